"""ColumnSets that follow a run: their estimates are as close as they say, and memory is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.clustering.replay import ReplayingServer, pair_products, room
from fedforget.clustering.replay.state import ColumnSets, Estimates, Margins, Sizes, slots_for
from followers import Follower, random_change, replace_points, rows_keep, source_of, trajectories


def follower_of(
    rng: np.random.Generator, n: int, d: int, k: int, top: int, *, kind: str = "weighted"
) -> Follower:
    aggregate = Histogram.of(rng.integers(0, top + 1, (n, d)), rng.integers(1, 9, n))
    server = ReplayingServer(source_of(kind, top, d), k, n_init=3, max_iter=300, tol=0.0)
    return Follower(server, aggregate)


def check_columns(server: ReplayingServer) -> int:
    """Compare every estimate of the sets of their own that rows have; returns how many sets."""
    replay = server._replay
    assert replay is not None
    columns, rows, order = replay.columns, replay.rows, replay.in_use()
    assert columns is not None
    points = replay.points.values[order] - replay.points.origin
    journey = columns.journey
    checked = 0
    for restart, (where, length) in enumerate(trajectories(replay)):
        for t in range(1, min(int(length), int(journey["places"]) + 1)):
            number = restart * int(journey["places"]) + t - 1
            assert columns.sets[number]["change"] == journey["change"]
            sums = rows.sums[where[t - 1]].astype(float)
            basis = columns.bases[number][order]
            assert (basis == rows.labels[where[t - 1]][order]).all()
            centres = rows.centres[where[t]] - replay.points.origin
            filled = sums[:, -1] > 0
            centres[filled] = sums[filled, : points.shape[1]] / sums[filled, -1:]
            truly = (centres**2).sum(axis=1)[:, None] - 2.0 * centres @ points.T
            off = np.abs(columns.columns[number][:, order] - truly).max(axis=1)
            # The error of this comparison itself is far below that of single precision.
            assert (off <= columns.centres[number]["error"] * (1.0 + 1e-6)).all()
            checked += 1
    return checked


@pytest.mark.parametrize(
    ("n", "d", "k", "top", "kind"),
    [
        (300, 5, 6, 40, "weighted"),
        (300, 40, 7, 30_000, "weighted"),
        (120, 3, 5, 12, "uniform"),
        (500, 2, 1, 9, "weighted"),
    ],
)
def test_estimates_are_as_close_as_they_say(
    n: int, d: int, k: int, top: int, kind: str, rng: np.random.Generator
) -> None:
    with rows_keep("columns"):
        follower = follower_of(rng, n, d, k, top, kind=kind)
        checked = check_columns(follower.server)
        for _ in range(30):
            random_change(rng, follower, top, 2)
            checked += check_columns(follower.server)
            assert follower.is_right()
    assert checked > 60


def test_columns_of_a_long_history_stay_close(rng: np.random.Generator) -> None:
    """Errors add up with each change, until a column begins anew from its cluster's members."""
    top = 60
    with rows_keep("columns"):
        follower = follower_of(rng, 200, 4, 5, top)
        for _ in range(400):
            random_change(rng, follower, top, 1, largest=200)
        assert check_columns(follower.server) > 3
        assert follower.is_right()


def test_a_point_that_is_farther_out_than_all_others(rng: np.random.Generator) -> None:
    """Products with it need larger grains: all of them are computed again."""
    top = 10_000
    with rows_keep("columns"):
        aggregate = Histogram.of(rng.integers(0, 50, (200, 3)), rng.integers(1, 9, 200))
        server = ReplayingServer(source_of("weighted", top, 3), 4, n_init=3, max_iter=99, tol=0.0)
        follower = Follower(server, aggregate)
        assert server._replay is not None
        columns = server._replay.columns
        assert columns is not None
        grain = float(columns.grain["size"])
        follower.change(np.array([[top, 0, 9]]), np.array([1]))
        assert follower.is_right()
        assert server._replay.columns is columns
        assert float(columns.grain["size"]) > 100.0 * grain
        for _ in range(10):
            random_change(rng, follower, 50, 2)
            assert check_columns(server) > 0
            assert follower.is_right()


@pytest.mark.parametrize("most", [0, 3, 300])
def test_many_points_that_come_at_once(
    most: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More gains than columns follow, or more arrivals: they are computed from scratch."""
    with rows_keep("columns"):
        monkeypatch.setattr(room, "TERMS_PER_GAIN", 1e9 if most == 0 else 15.0 / most)
        follower = follower_of(rng, 1200, 3, 5, 60)
        for n_points in (1, 30, 1, 1, 2, 30, 1):
            replace_points(rng, follower, 60, n_points)
            assert follower.is_right()
            check_columns(follower.server)


def test_products_are_whole_numbers_of_grains(rng: np.random.Generator) -> None:
    with rows_keep("columns"):
        follower = follower_of(rng, 700, 6, 3, 100)
        replay = follower.server._replay
        assert replay is not None
        assert replay.columns is not None
        for _ in range(5):
            random_change(rng, follower, 100, 3)
        order = replay.in_use()
        points = (replay.points.values - replay.points.origin)[order]
        grain = float(replay.columns.grain["size"])
        products = replay.columns.products[np.ix_(order, order)].astype(float)
    assert (np.abs(products * grain - points @ points.T) <= 0.51 * grain).all()
    assert np.abs(products).max() <= pair_products.MOST_GRAINS + 1


# -- what rows keep --------------------------------------------------------------------------------


GIB = 1 << 30


@pytest.mark.parametrize(
    ("n", "d", "k", "limit", "is_server", "strategy"),
    [
        (400, 10, 4, 2 * GIB, True, Margins),
        (40, 826, 4, 2 * GIB, True, Estimates),
        (6_200, 784, 62, 2 * GIB, True, ColumnSets),
        (12_400, 784, 62, 2 * GIB, True, ColumnSets),
        (6_200, 784, 62, 200 << 20, True, Margins),
        (1_989, 826, 4, 2 * GIB, False, Estimates),
        (36_721, 784, 62, 2 * GIB, False, Margins),
        (200_000, 60, 40, 2 * GIB, True, Margins),
    ],
)
def test_what_rows_keep(
    n: int, d: int, k: int, limit: int, is_server: bool, strategy: type
) -> None:
    sizes = Sizes(slots_for(n), d, k, 10)
    planned = room.room_for(sizes, limit, 300, weights_change=is_server)
    assert planned.strategy is strategy
    taken = planned.sizes.rows * planned.row_bytes + planned.column_bytes
    assert taken + planned.sizes.known * planned.product_bytes <= limit
    if strategy is ColumnSets:
        assert room.FEWEST_SETS <= planned.sets <= room.MOST_SETS
        # Ten runs of usual length find room.
        assert planned.sizes.rows >= 10 * room.USUAL_ROWS


def test_memory_of_columns_is_bounded(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restarts whose rows find no room are run in full."""
    sizes = Sizes(slots_for(300), 4, 6, 5)
    with rows_keep("columns"):
        monkeypatch.setattr(room, "COLUMNS_SHARE", 0.99)
        limit = next(
            limit
            for limit in range(400_000, 4_000_000, 4_000)
            if room.room_for(sizes, limit, 300, weights_change=True).strategy is ColumnSets
        )
        limit += 40_000  # for some rows
        aggregate = Histogram.of(rng.integers(0, 30, (300, 4)), rng.integers(1, 9, 300))
        server = ReplayingServer(
            source_of("weighted", 30, 4), 6, n_init=5, max_iter=300, tol=0.0, memory_limit=limit
        )
        follower = Follower(server, aggregate)
        replay = server._replay
        assert replay is not None
        assert replay.columns is not None
        for _ in range(20):
            random_change(rng, follower, 30, 2)
            assert follower.is_right()
            assert 0 < server.cached_bytes <= limit
        assert replay.dropped
        assert (replay.runs.restarts["length"] > 0).any()
