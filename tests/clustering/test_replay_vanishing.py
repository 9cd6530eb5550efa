"""Replay where clusters lose all their points, keep their centres, and get points again."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.clustering.replay import ReplayingServer
from followers import KEPT_BY_SERVERS, Follower, rows_keep, seeds_are, source_of, trajectories

SQUEEZE = np.array([0, 205, 220, 420, 481, 539])
WEIGHTS = np.array([1, 3, 1, 1, 3, 1])
"""Six points on a line whose middle cluster is squeezed out.

With seeds at 0, 420 and 539 the clusters are {0, 205}, {220, 420} and {481, 539}.  The means of the
outer ones, 153.75 and 495.5, are nearer to 220 and to 420 than the mean of the two, 320.
"""
SEEDS = [0, 3, 5]


def is_empty(replay) -> list[np.ndarray]:
    """For each restart, which clusters of which rows have no points."""
    return [replay.rows.sums[where[:n], :, -1] == 0 for where, n in trajectories(replay)]


def squeezed(rng: np.random.Generator, groups: int, gap: int, d: int, others: int) -> tuple:
    """Several groups of such points, a little shaken, and some other points; with the seeds."""
    points = np.zeros((groups, len(SQUEEZE), d), dtype=np.int64)
    points[:, :, 0] = SQUEEZE + gap * np.arange(groups)[:, None] + 10
    points[:, :, 0] += rng.integers(-4, 5, points.shape[:2])
    points[:, :, 1:] = rng.integers(0, 9, points[:, :, 1:].shape)
    noise = rng.integers(0, 9, (others, d))
    noise[:, 0] = rng.integers(0, groups * gap, others)
    counts = np.tile(WEIGHTS, groups) * rng.integers(1, 3, groups * len(WEIGHTS))
    everything = np.concatenate([points.reshape(-1, d), noise])
    return everything, np.append(counts, np.ones(others, int)), points[:, SEEDS].reshape(-1, d)


def change_others(rng: np.random.Generator, follower: Follower, seeds: np.ndarray) -> None:
    """Change a point that is not a seed; now and then one comes to a centre without points."""
    points, counts = follower.aggregate.points(), follower.aggregate.counts()
    is_seed = (points[:, None] == seeds).all(axis=2).any(axis=1)
    i = int(rng.choice(np.flatnonzero(~is_seed)))
    lower = -int(rng.integers(1, counts[i] + 1))
    change = lower if rng.random() < 0.5 else int(rng.integers(1, 6))
    rows, differences = [points[i]], [change]
    if change == -counts[i]:
        rows.append(points[i] + (np.arange(points.shape[1]) == 0) * rng.integers(1, 4))
        differences.append(int(rng.integers(1, 4)))
    replay = follower.server._replay
    for empty, (where, _) in zip(is_empty(replay), trajectories(replay), strict=True):
        if empty.any() and rng.random() < 0.05:
            row, k = rng.choice(np.argwhere(empty))
            rows.append(replay.rows.centres[where[row], k].round().astype(np.int64))
            differences.append(1)
    follower.change(np.array(rows), np.array(differences))


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
@pytest.mark.parametrize("tol", [0.0, 1e-4])
@pytest.mark.parametrize("max_iter", [3, 300])
def test_clusters_vanish_and_come_back(kept: str, tol: float, max_iter: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(120):
        rng = np.random.default_rng(seed)
        groups, gap, d, others = [(3, 700, 1, 3), (6, 800, 2, 20), (6, 620, 1, 40)][seed % 3]
        points, counts, seeds = squeezed(rng, groups, gap, d, others)
        source = source_of("weighted", groups * gap + 100, d)
        server = ReplayingServer(source, len(seeds), n_init=2, max_iter=max_iter, tol=tol)
        with rows_keep(kept), seeds_are([seeds, seeds[::-1]]):
            follower = Follower(server, Histogram.of(points, counts))
            before = is_empty(server._replay)
            for _ in range(15):
                change_others(rng, follower, seeds)
                assert follower.is_right()
                now = is_empty(server._replay)
                if server.work.restarts == 0:
                    for old, new in zip(before, now, strict=True):
                        seen["followed"] += bool(new.any())
                        seen["vanished"] += bool(new.any() and not old.any())
                        seen["back"] += bool(old.any() and not new.any())
                        seen["back within a run"] += bool((new[:-1] & ~new[1:]).any())
                before = now
    assert seen["followed"] > 300
    assert min(seen["vanished"], seen["back"]) > 25
    assert seen["back within a run"] > 5 or max_iter == 3


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
def test_a_run_with_a_vanished_cluster_is_replayed(kept: str) -> None:
    """With the seeds of the race: among many restarts some lose a cluster."""
    source = source_of("weighted", 1000, 1)
    server = ReplayingServer(source, 3, n_init=300, max_iter=300, tol=0.0)
    with rows_keep(kept):
        follower = Follower(server, Histogram.of(SQUEEZE[:, None], WEIGHTS))
        replay = server._replay
        assert sum(empty.any() for empty in is_empty(replay)) > 0
        assert not replay.absent
        follower.change(np.array([[205]]), np.array([1]))
        assert follower.is_right()
        assert sum(empty.any() for empty in is_empty(replay)) > 0
        assert not replay.absent


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
def test_a_run_that_divides_the_clusters_of_another_is_not_its_twin(kept: str) -> None:
    """Far from zero losses are told apart by full sums alone, so that both runs contend.

    The first loses its middle cluster; the clusters of the second lie each in one of the first.
    """
    points = SQUEEZE[:, None] + 2**36
    source = source_of("weighted", 2**37, 1)
    server = ReplayingServer(source, 3, n_init=2, max_iter=300, tol=0.0)
    with rows_keep(kept), seeds_are([points[SEEDS], points[[0, 2, 4]]]):
        follower = Follower(server, Histogram.of(points, WEIGHTS))
        first, second = is_empty(server._replay)
        assert first[-1].any()
        assert not second.any()
        assert follower.model.restart == 1
        follower.change(points[1:2], np.array([2]))
        assert server.work.restarts == 0
        assert follower.is_right()
        assert follower.model.restart == 1
