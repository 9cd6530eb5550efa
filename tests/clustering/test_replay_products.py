"""Margins by products of matrices, and the bounds on distances that a walk keeps."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from fedforget.clustering.histogram import Histogram
from fedforget.clustering.replay import ReplayingServer
from fedforget.clustering.replay.products import blas_threads
from followers import Follower, random_change, replace_points, rows_keep, source_of


def follow(
    rng: np.random.Generator, n: int, d: int, k: int, top: int, *, tol: float = 0.0
) -> Follower:
    aggregate = Histogram.of(rng.integers(0, top + 1, (n, d)), rng.integers(1, 30, n))
    source = source_of("weighted", top, d)
    return Follower(ReplayingServer(source, k, n_init=1, max_iter=300, tol=tol), aggregate)


@pytest.mark.parametrize("d", [1, 3, 20])
@pytest.mark.parametrize("k", [9, 40])
@pytest.mark.parametrize("tol", [0.0, 1e-3])
def test_many_clusters(d: int, k: int, tol: float, rng: np.random.Generator) -> None:
    """Noise, where trajectories leave their paths, so that most points are measured often."""
    top = 10_000
    with rows_keep("products"):
        follower = follow(rng, 600, d, k, top, tol=tol)
        for _ in range(25):
            random_change(rng, follower, top, 2)
            assert follower.is_right()


def test_bounds_are_what_they_say(rng: np.random.Generator) -> None:
    """After a walk its bounds hold for the centres of its last row."""
    top, k, checked, spared = 10_000, 40, 0, 0
    with rows_keep("products"):
        follower = follow(rng, 600, 3, k, top)
        for _ in range(25):
            random_change(rng, follower, top, 2)
            work = follower.server.work
            spared += work.points * k - work.distances
            replay = follower.server._replay
            assert replay is not None
            assert replay.margins is not None
            margins = replay.margins
            slots = np.flatnonzero(margins.measured_on == margins.path["number"])
            slots = slots[replay.points.weights[slots] > 0]
            row = replay.runs.where[0, replay.runs.restarts["length"][0] - 1]
            sides = replay.points.values[slots][:, None] - replay.rows.centres[row][None]
            distances = np.linalg.norm(sides, axis=2)
            assert (margins.bounds[slots] - margins.travelled <= distances).all()
            owners = margins.owners[slots]
            own = distances[np.arange(len(slots)), owners]
            assert (margins.farthest[slots] + margins.travelled[owners] >= own).all()
            checked += len(slots)
    assert checked > 1000
    assert spared > 0, "bounds have spared no distance"


def test_bounds_of_an_earlier_walk_are_not_used(rng: np.random.Generator) -> None:
    """Two restarts share the memory, and a slot may hold another point than before."""
    top, k = 10_000, 20
    with rows_keep("products"):
        aggregate = Histogram.of(rng.integers(0, top + 1, (300, 2)), rng.integers(1, 30, 300))
        source = source_of("weighted", top, 2)
        follower = Follower(ReplayingServer(source, k, n_init=4, max_iter=300, tol=0.0), aggregate)
        for _ in range(40):
            replace_points(rng, follower, top, 5)
            assert follower.is_right()


def test_the_library_is_given_its_threads_and_gets_them_back() -> None:
    def threads() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    before = threads()
    assert before, "SciPy has come without a BLAS that can be asked"
    with blas_threads(1):
        assert set(threads()) == {1}
    assert threads() == before
