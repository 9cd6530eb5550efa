"""Replay: equal to a full run in every bit, whatever changes and in whatever order."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedforget.clustering import kernels
from fedforget.clustering.distance import pairwise as pairwise_distances
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.replay import ReplayingServer
from followers import (
    KEPT_BY_SERVERS,
    Follower,
    make_follower,
    random_change,
    replace_points,
    rows_keep,
    source_of,
    trajectories,
)

TOLERANCES = [0.0, 1e-3]


@settings(max_examples=800)
@given(
    kept=st.sampled_from(sorted(KEPT_BY_SERVERS)),
    kind=st.sampled_from(["weighted", "uniform"]),
    n=st.integers(1, 60),
    d=st.integers(1, 6),
    top=st.sampled_from([1, 3, 20, 200]),
    k=st.integers(1, 8),
    heavy=st.booleans(),
    n_init=st.integers(1, 4),
    max_iter=st.sampled_from([1, 2, 3, 300]),
    tol=st.sampled_from([0.0, 0.0, 1e-4, 1e-2, 0.2]),
    seed=st.integers(0, 2**32),
)
# Of several points that come at once, the first finds the list of its row full.
@example("margins", "uniform", 17, 1, 200, 4, False, 1, 1, 0.0, 44936)
def test_updates_equal_full_runs(
    kept: str,
    kind: str,
    n: int,
    d: int,
    top: int,
    k: int,
    heavy: bool,
    n_init: int,
    max_iter: int,
    tol: float,
    seed: int,
) -> None:
    """Few levels make ties and equal distances; ``heavy`` weights go up to 10^9."""
    rng = np.random.default_rng(seed)
    heavy = heavy and kind == "weighted"
    counts = rng.integers(1, 10**9 if heavy else 6, n)
    aggregate = Histogram.of(rng.integers(0, top + 1, (n, d)), counts)
    server = ReplayingServer(source_of(kind, top, d), k, n_init=n_init, max_iter=max_iter, tol=tol)
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        for _ in range(12):
            random_change(rng, follower, top, 3)
            assert follower.is_right()


@pytest.mark.parametrize(
    ("n", "d", "k", "top"),
    [
        (400, 10, 4, 110),
        (900, 2, 100, 40),
        (300, 120, 40, 30),
        (250, 800, 12, 190),
        (600, 1, 30, 900),
    ],
)
@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
@pytest.mark.parametrize("tol", TOLERANCES)
def test_large_aggregates_and_long_sequences(
    tol: float, kept: str, n: int, d: int, k: int, top: int
) -> None:
    rng = np.random.default_rng(n + d)
    centres = rng.integers(0, top + 1, (k, d))
    spread = rng.normal(0, top / 12, (n, d))
    points = np.clip(centres[rng.integers(0, k, n)] + spread, 0, top).round().astype(int)
    aggregate = Histogram.of(points, rng.integers(1, 200, n))
    server = ReplayingServer(source_of("weighted", top, d), k, n_init=4, max_iter=300, tol=tol)
    replayed = 0
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        for _ in range(25):
            random_change(rng, follower, top, 2)
            assert follower.is_right()
            replayed += server.work.restarts < server.n_init
    assert replayed > 10, "hardly anything was replayed"


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
@pytest.mark.parametrize("tol", TOLERANCES)
@pytest.mark.parametrize("max_iter", [4, 300])
def test_uniform_noise(kept: str, tol: float, max_iter: int, rng: np.random.Generator) -> None:
    """Without structure, trajectories diverge after a small change."""
    top, k = 10_000, 8
    aggregate = Histogram.of(rng.integers(0, top + 1, (700, 2)), np.ones(700, dtype=np.int64))
    server = ReplayingServer(source_of("weighted", top, 2), k, n_init=3, max_iter=max_iter, tol=tol)
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        for _ in range(25):
            random_change(rng, follower, top, 1)
            assert follower.is_right()


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_corners_of_a_cube_are_equally_far(kept: str, k: int, rng: np.random.Generator) -> None:
    """More points have the same margin than a row's list could hold."""
    corners = rng.integers(0, 2, (300, 8))
    aggregate = Histogram.of(corners, rng.integers(1, 10**9, 300))
    server = ReplayingServer(source_of("weighted", 1, 8), k, n_init=3, max_iter=300, tol=0.0)
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        for _ in range(60):
            random_change(rng, follower, 1, 3)
            assert follower.is_right()


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
def test_many_points_come_and_go_at_once(kept: str, rng: np.random.Generator) -> None:
    top, k = 60, 4
    aggregate = Histogram.of(rng.integers(0, top + 1, (400, 3)), rng.integers(1, 30, 400))
    server = ReplayingServer(source_of("weighted", top, 3), k, n_init=3, max_iter=300, tol=0.0)
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        for _ in range(10):
            replace_points(rng, follower, top, 40)
            assert follower.is_right()


# -- adversarial changes ---------------------------------------------------------------------------


def at_the_smallest_margin(follower: Follower, rng: np.random.Generator) -> tuple:
    """Change the weight of the point that is closest to changing its cluster."""
    replay = follower.server._replay
    assert replay is not None
    where = np.concatenate([where[:length] for where, length in trajectories(replay)])
    taken = np.ix_(where, replay.in_use())
    if replay.margins is not None:
        margins = replay.margins.reserves[taken] - replay.margins.rows["spent"][where][:, None]
    elif replay.columns is not None:
        places = replay.points.values[replay.in_use()]
        distances = np.array(
            [pairwise_distances(places, replay.rows.centres[row]) for row in where]
        )
        distances.sort(axis=2)
        margins = distances[:, :, 1] - distances[:, :, 0]
    else:
        margins = replay.estimates.other[taken] - replay.estimates.near[taken]
    slot = replay.in_use()[int(np.unravel_index(margins.argmin(), margins.shape)[1])]
    return replay.points.values[slot].astype(int), rng.choice([1, 7, 50])


def at_a_winner(follower: Follower, rng: np.random.Generator) -> tuple:
    replay = follower.server._replay
    assert replay is not None
    slot = int(rng.choice(replay.runs.seeds["slot"].ravel()))
    weight = int(replay.points.weights[slot])
    change = -weight if rng.random() < 0.3 else (-1 if weight > 1 and rng.random() < 0.7 else 5)
    return replay.points.values[slot].astype(int), change


def at_the_last_point_of_a_cluster(follower: Follower, rng: np.random.Generator) -> tuple:
    """Empty the smallest cluster, point by point."""
    labels = follower.model.labels
    sizes = np.bincount(labels, minlength=len(follower.model.centres))
    smallest = int(np.argmin(np.where(sizes > 0, sizes, 10**9)))
    i = int(rng.choice(np.flatnonzero(labels == smallest)))
    points, counts = follower.aggregate.points(), follower.aggregate.counts()
    return points[i], -int(counts[i])


def between_two_centres(follower: Follower, rng: np.random.Generator) -> tuple:
    """A heavy new point half way between two centres pulls on both."""
    a, b = follower.model.centres[rng.choice(len(follower.model.centres), 2, replace=False)]
    return ((a + b) / 2).round().astype(int), int(rng.integers(1, 400))


AIMS: dict[str, Callable[[Follower, np.random.Generator], tuple]] = {
    aim.__name__: aim
    for aim in (
        at_the_smallest_margin,
        at_a_winner,
        at_the_last_point_of_a_cluster,
        between_two_centres,
    )
}


def attack(
    aim: str, kept: str, seed: int, *, tol: float = 0.0, broken: bool = False
) -> Iterator[bool]:
    """Whether the model is right after each of many changes aimed at a weak spot."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 16, (150, 2))
    aggregate = Histogram.of(points, rng.integers(1, 12, 150))
    server = ReplayingServer(source_of("weighted", 15, 2), 6, n_init=5, max_iter=300, tol=tol)
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        for _ in range(60):
            if len(follower.aggregate) < 30:
                break
            point, change = AIMS[aim](follower, rng)
            if broken:
                never_give_way(server)
            follower.change(point[None], np.array([change]))
            yield follower.is_right()


def never_give_way(server: ReplayingServer) -> None:
    """Let no margin and no difference of estimates ever be too small."""
    replay = server._replay
    if replay is not None:
        replay.points.summary["slack"] = -np.inf
        if replay.margins is not None:
            replay.margins.rows["cut"] = 1e9
            replay.margins.rows["debt"] = 0
            replay.margins.border_margins[:] = np.inf
        if replay.columns is not None:
            # The lowest estimate decides in any case, so here all of them are off.
            columns = replay.columns.columns
            columns += np.random.default_rng(0).normal(0.0, 3.0, columns.shape)


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("tol", TOLERANCES)
def test_aimed_changes_equal_full_runs(tol: float, aim: str, kept: str, seed: int) -> None:
    outcomes = list(attack(aim, kept, seed, tol=tol))
    assert len(outcomes) > 15
    assert all(outcomes)


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
@pytest.mark.parametrize("tol", TOLERANCES)
def test_a_broken_margin_check_is_caught(tol: float, kept: str) -> None:
    """With margins that never give way, no label is looked at again: the tests must notice."""
    outcomes = [
        right
        for aim in AIMS
        for seed in range(3)
        for right in attack(aim, kept, seed, tol=tol, broken=True)
    ]
    assert not all(outcomes)


@pytest.mark.parametrize("d", [2, 7])
@pytest.mark.parametrize("kept", ["margins", "products"])
def test_margins_are_what_they_say(kept: str, d: int, rng: np.random.Generator) -> None:
    """Drifts, reserves, cuts and lists bound what they are said to bound, in every row."""
    top, k = 40, 6
    aggregate = Histogram.of(rng.integers(0, top + 1, (400, d)), rng.integers(1, 30, 400))
    server = ReplayingServer(source_of("weighted", top, d), k, n_init=4, max_iter=300, tol=0.0)
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        for turn in range(60):
            random_change(rng, follower, top, 2)
            if turn % 6 == 0:
                assert check_margins(server) > 10


def check_margins(server: ReplayingServer) -> int:
    """Check every row that has centres of its own; returns how many."""
    replay = server._replay
    assert replay is not None
    assert replay.margins is not None
    rows, margins, order = replay.rows, replay.margins, replay.in_use()
    points = replay.points.values[order] - replay.points.origin
    checked = 0
    for where, length in trajectories(replay):
        for row in where[1:length]:
            centres = rows.centres[row] - replay.points.origin
            anchors = margins.anchors[row].astype(float)
            assert (margins.drifts[row] >= np.linalg.norm(centres - anchors, axis=1) - 1e-12).all()
            distances = np.linalg.norm(points[:, None] - anchors[None], axis=2)
            own = rows.labels[row, order][:, None].astype(int)
            mine = np.take_along_axis(distances, own, axis=1)[:, 0]
            np.put_along_axis(distances, own, np.inf, axis=1)
            truly = distances.min(axis=1) - mine
            kept = margins.rows[row]
            assert (truly >= margins.reserves[row, order] - kept["spent"]).all()
            listed = set(margins.border[row, margins.border_margins[row] < np.inf].tolist())
            unlisted = np.array([slot not in listed for slot in order.tolist()])
            assert (truly[unlisted] > kept["cut"]).all()
            checked += 1
    return checked


def exact_distance(point: np.ndarray, sums: np.ndarray, origin: np.ndarray) -> Fraction:
    """The squared distance of a point to the mean of a cluster, without any rounding."""
    # Behind the coordinates, the width of sums may leave columns that are not used.
    coordinates, weight = sums[: len(origin)].tolist(), int(sums[-1])
    mean = [Fraction(c, weight) + o for c, o in zip(coordinates, origin.tolist(), strict=True)]
    return sum((Fraction(x) - m) ** 2 for x, m in zip(point.tolist(), mean, strict=True))


@pytest.mark.parametrize("top", [40, 2**20, 2**40])
def test_the_slack_covers_the_errors_of_two_distances(top: int, rng: np.random.Generator) -> None:
    """Distances that differ by more than the slack are told apart by their computed squares.

    Points far from zero, close together: there the rounding is largest.
    """
    d, k = 5, 3
    near = rng.integers(0, 30, (40, d)) + (top - 40)
    points = np.unique(np.concatenate([near, rng.integers(0, top, (8, d))]), axis=0)
    aggregate = Histogram.of(points, rng.integers(1, 99, len(points)))
    server = ReplayingServer(source_of("weighted", top, d), k, n_init=2, max_iter=9, tol=0.0)
    server.run(aggregate)
    replay = server._replay
    assert replay is not None
    order, origin = replay.in_use(), replay.points.origin
    worst = 0.0
    for where, length in trajectories(replay):
        above, row = where[length - 2 : length]
        sums, centres = replay.rows.sums[above], replay.rows.centres[row]
        computed = pairwise_distances(replay.points.values[order], centres)
        for point, distances in zip(replay.points.values[order], computed.tolist(), strict=True):
            for distance, one in zip(distances, sums, strict=True):
                error = abs(Fraction(distance) - exact_distance(point, one, origin))
                worst = max(worst, float(error))
    slack = float(replay.points.summary["slack"])
    assert 0.0 < 2.0 * worst <= slack
    # Not much wider than the proof needs, or replay would settle more points than it has to.
    assert slack < 1e-11 * float((replay.points.values**2).sum(axis=1).max())


def test_work_counts_points_and_not_empty_slots() -> None:
    """Two points in a block of 64 slots."""
    aggregate = Histogram.of(np.array([[3, 1], [9, 9]]), np.array([5, 6]))
    server = ReplayingServer(source_of("weighted", 9, 2), 1, n_init=10, max_iter=300, tol=0.0)
    server.run(aggregate)
    # In each restart every point is assigned to the seed.  One cluster has no border, so when the
    # centre moves to the mean nobody has to be looked at.
    assert server.work.points == 10 * 2


# -- the cache is only a cache ---------------------------------------------------------------------


def test_dropping_the_cache_at_any_moment_changes_nothing(rng: np.random.Generator) -> None:
    follower = make_follower(rng)
    for turn in range(20):
        if turn % 3 == 0:
            follower.server.drop_cache()
        random_change(rng, follower, 29, 2)
        assert follower.is_right()


@pytest.mark.parametrize("limit", [0, 40_000, 120_000])
def test_memory_is_bounded_and_the_oldest_restarts_go_first(
    limit: int, rng: np.random.Generator
) -> None:
    follower = make_follower(rng, memory_limit=limit)
    replay = follower.server._replay
    assert replay is not None
    ready = replay.runs.restarts["length"] > 0
    assert ready.tolist() == sorted(ready.tolist())
    for _ in range(10):
        random_change(rng, follower, 29, 2)
        assert follower.server.cached_bytes <= limit
        assert follower.is_right()


def test_trajectories_go_with_their_server(rng: np.random.Generator) -> None:
    """At once: they may take a gigabyte, and a cycle of references would keep it for a while."""
    follower = make_follower(rng)
    assert follower.server._replay is not None
    replay = weakref.ref(follower.server._replay)
    gc.disable()
    try:
        del follower
        assert replay() is None
    finally:
        gc.enable()


def test_memory_stays_within_its_bound_over_ten_thousand_updates() -> None:
    rng = np.random.default_rng(0)
    limit = 1_000_000
    follower = make_follower(rng, memory_limit=limit)
    most = 0
    for turn in range(10_000):
        random_change(rng, follower, 29, 2, largest=300)
        most = max(most, follower.server.cached_bytes)
        if turn % 500 == 0:
            assert follower.is_right()
    assert follower.is_right()
    assert 0 < most <= limit


@pytest.mark.parametrize("tol", TOLERANCES)
def test_too_few_points_are_run_in_full(tol: float, rng: np.random.Generator) -> None:
    aggregate = Histogram.of(rng.integers(0, 30, (50, 2)), rng.integers(1, 9, 50))
    server = ReplayingServer(source_of("weighted", 29, 2), 60, n_init=2, max_iter=300, tol=tol)
    follower = Follower(server, aggregate)
    assert server.cached_bytes == 0
    for _ in range(5):
        random_change(rng, follower, 29, 2)
        assert follower.is_right()
        assert server.work.distances == server.work.full_distances > 0
        assert server.work.restarts == 2


def test_the_work_of_one_small_change_is_a_small_part_of_a_full_run(
    rng: np.random.Generator,
) -> None:
    follower = make_follower(rng)
    shares = []
    for _ in range(30):
        points = follower.aggregate.points()
        follower.change(points[rng.integers(len(points))][None], np.array([1]))
        work = follower.server.work
        shares.append(work.distances / work.full_distances)
    assert np.median(shares) < 0.1


def test_the_bound_on_runners_up_is_below_every_other_score(rng: np.random.Generator) -> None:
    n = 50
    keys = rng.integers(0, 2**63, (2, n)).astype(np.uint64)
    rate = rng.random(n)
    scores = np.array(
        [
            kernels.exponential(
                kernels.uniform(np.uint64(kernels.draw(keys[0, i], keys[1, i], np.uint64(3))))
            )
            / rate[i]
            for i in range(n)
        ]
    )
    winner = int(scores.argmin())
    bound = kernels.runner_up(keys[0], keys[1], np.uint64(3), rate, winner)
    assert 0.0 < bound <= np.delete(scores, winner).min()
