"""Replay of runs that stop where their centres hardly shift any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import moments_of
from fedforget.clustering.replay import ReplayingServer
from fedforget.clustering.replay.engine import Replay
from followers import KEPT_BY_SERVERS, Follower, random_change, rows_keep, source_of, trajectories


def follow(kept: str, tol: float, *, heavy: int = 0) -> Iterator[Follower]:
    """A server after each of some changes.

    A ``heavy`` weight comes to two corners in turn, and goes: the variance rises and falls.
    """
    top, rng = 900, np.random.default_rng(0)
    aggregate = Histogram.of(rng.integers(0, top + 1, (400, 3)), rng.integers(1, 30, 400))
    server = ReplayingServer(source_of("weighted", top, 3), 6, n_init=3, max_iter=300, tol=tol)
    with rows_keep(kept):
        follower = Follower(server, aggregate)
        yield follower
        for turn in range(30):
            random_change(rng, follower, top, 2)
            if heavy:
                sign = 1 if turn % 4 < 2 else -1
                follower.change(np.full((1, 3), top * (turn % 2)), np.array([sign * heavy]))
            yield follower


def sharp_tolerances(kept: str) -> list[float]:
    """Tolerances whose thresholds are what centres shift by in some row, up to a rounding."""
    server = next(follow(kept, 1e-30)).server
    replay = server._replay
    where, length = next(trajectories(replay))
    shifts = replay.rows.shifts[where[1:length]].sum(axis=1)
    return (shifts[shifts > 0][1:] / replay.moments.mean_variance()).tolist()


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
@pytest.mark.parametrize("heavy", [0, 60])
def test_stops_come_and_go(kept: str, heavy: int) -> None:
    """Small changes decide whether a row is the last one."""
    seen: Counter[str] = Counter()
    tolerances = sharp_tolerances(kept)
    assert len(tolerances) > 2
    for tol in tolerances:
        lengths = np.zeros(3, dtype=np.int64)
        for follower in follow(kept, tol, heavy=heavy):
            assert follower.is_right()
            replay = follower.server._replay
            if follower.server.work.restarts == 0:
                now = replay.runs.restarts["length"]
                seen["earlier"] += int((now < lengths).sum())
                seen["later"] += int((now > lengths).sum())
            lengths = replay.runs.restarts["length"].copy()
            for where, length in trajectories(replay):
                last = where[length - 1]
                if replay.rows.shifts[last].sum() <= replay.threshold:
                    seen["still"] += 1
                    seen["still, and labels differ"] += int(replay.rows.witness[last] >= 0)
    assert min(seen.values()) > 10, seen
    assert len(seen) == 4


def test_the_kept_shifts_and_the_threshold_are_those_of_a_fresh_run() -> None:
    for follower in follow("margins", 1e-3):
        replay, server = follower.server._replay, follower.server
        points = server.source.points_of(follower.aggregate)
        assert replay.threshold == 1e-3 * moments_of(points).mean_variance()
        for where, length in trajectories(replay):
            for above, row in pairwise(where[:length]):
                apart = replay.rows.centres[row] - replay.rows.centres[above]
                assert np.allclose(replay.rows.shifts[row], (apart**2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("kept", KEPT_BY_SERVERS)
def test_a_threshold_that_does_not_follow_is_caught(
    kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replay, "_follow_moments", lambda *_: None)
    outcomes = [
        follower.is_right()
        for tol in sharp_tolerances(kept)
        for follower in follow(kept, tol, heavy=60)
    ]
    assert not all(outcomes)


def test_shifts_that_do_not_follow_are_caught() -> None:
    outcomes = []
    for follower in follow("margins", 1e-3):
        outcomes.append(follower.is_right())
        follower.server._replay.rows.shifts[:] *= 3.0
    assert not all(outcomes)
