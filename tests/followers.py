"""Servers that follow changes by replay, and full runs to compare them with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import (
    REPLICATE_BITS,
    LatticeRestarts,
    PointSource,
    ServerModel,
    UniformPoints,
    WeightedPoints,
    cluster,
)
from fedforget.clustering.prf import Secret
from fedforget.clustering.race import Race, new_race
from fedforget.clustering.replay import ReplayingServer, engine, room

SEED = Secret(bytes(range(16)))


def source_of(kind: str, top: int, d: int) -> PointSource:
    diameter = (top + 1) * d**0.5
    if kind == "weighted":
        return WeightedPoints(SEED, diameter)
    return UniformPoints(SEED, diameter * 2**REPLICATE_BITS)


def full_run(server: ReplayingServer, aggregate: Histogram) -> ServerModel:
    return cluster(
        server.source.points_of(aggregate),
        server.n_clusters,
        n_init=server.n_init,
        max_iter=server.max_iter,
        tol=server.tol,
    )


def bits(model: ServerModel) -> tuple:
    return (
        model.centres.tobytes(),
        model.labels.tobytes(),
        np.float64(model.loss).tobytes(),
        model.n_iter,
        model.restart,
    )


class Follower:
    """A server and the aggregate that it follows."""

    def __init__(self, server: ReplayingServer, aggregate: Histogram) -> None:
        self.server, self.aggregate = server, aggregate
        self.model = server.run(aggregate)
        assert bits(self.model) == bits(full_run(server, aggregate))

    def change(self, points: np.ndarray, counts: np.ndarray) -> ServerModel:
        delta = Histogram.of(points, counts)
        self.aggregate = self.aggregate + delta
        assert (self.aggregate.counts() > 0).all(), "a test must not make counts negative"
        self.model = self.server.update(self.aggregate, delta)
        return self.model

    def is_right(self) -> bool:
        return bits(self.model) == bits(full_run(self.server, self.aggregate))


def make_follower(rng: np.random.Generator, **options: int) -> Follower:
    """A server with six restarts, whose 200 points are random."""
    aggregate = Histogram.of(rng.integers(0, 30, (200, 3)), rng.integers(1, 9, 200))
    server = ReplayingServer(
        source_of("weighted", 29, 3), 5, n_init=6, max_iter=300, tol=0.0, **options
    )
    return Follower(server, aggregate)


def random_change(
    rng: np.random.Generator, follower: Follower, top: int, most: int, largest: int = 10**9
) -> None:
    """Lower, raise, remove, move and add some points."""
    points, counts = follower.aggregate.points(), follower.aggregate.counts()
    d = points.shape[1]
    chosen = rng.permutation(len(points))[: int(rng.integers(0, most + 1))]
    rows, differences = [], []
    for i in chosen:
        kind = rng.integers(5)
        lower = -int(rng.integers(1, counts[i] + 1))
        differences.append((-1, lower, -int(counts[i]), int(rng.integers(1, 4)), -counts[i])[kind])
        rows.append(points[i])
        if kind == 4:
            # To a neighbour on the lattice, as a client's mean moves.
            rows.append(np.clip(points[i] + (np.arange(d) == rng.integers(d)), 0, top))
            differences.append(int(counts[i]))
    for _ in range(int(rng.integers(0, 3)) if len(points) < largest else 0):
        rows.append(rng.integers(0, top + 1, d))
        differences.append(int(rng.integers(1, 5)))
    if rows:
        follower.change(np.array(rows), np.array(differences))


def replace_points(rng: np.random.Generator, follower: Follower, top: int, n_points: int) -> None:
    """Let some points go, and as many come anywhere."""
    points, counts = follower.aggregate.points(), follower.aggregate.counts()
    gone = rng.permutation(len(points))[:n_points]
    come = rng.integers(0, top + 1, (n_points, points.shape[1]))
    changes = np.concatenate([-counts[gone], rng.integers(1, 30, n_points)])
    follower.change(np.concatenate([points[gone], come]), changes)


KEPT = ("margins", "products", "estimates")
"""What rows keep; margins may be taken from products of matrices."""

KEPT_BY_SERVERS = (*KEPT, "columns", "few columns")
"""Columns of estimates may be those of many rows, or of one row of each restart alone."""


@contextmanager
def rows_keep(what: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "MARGINS_UP_TO", 10**9 if what in ("margins", "products") else 0)
        patch.setattr(room, "PRODUCTS_FROM", 0 if what == "products" else 10**9)
        patch.setattr(room, "MANY_POINTS", 10**9 if what == "estimates" else 0)
        patch.setattr(room, "USUAL_ROWS", 0)
        # Columns follow, where there are many to follow, too.
        patch.setattr(room, "TERMS_PER_GAIN", 1e-9)
        if what == "few columns":
            patch.setattr(room, "FEWEST_SETS", 1)
            patch.setattr(room, "MOST_SETS", 1)
        yield


def trajectories(replay: engine.Replay) -> Iterator[tuple[np.ndarray, int]]:
    """The rows of each restart, and how many there are."""
    yield from zip(replay.runs.where, replay.runs.restarts["length"], strict=True)


@contextmanager
def seeds_are(points: list[np.ndarray]) -> Iterator[None]:
    """Let the race of each restart be won by given points, which nobody can beat.

    Their weights must stay as they are.
    """

    def seed(self: LatticeRestarts, restart: int, *, runners_up: bool = False) -> Race:
        race = new_race(len(self.rows))
        for point in points[restart]:
            (row,) = np.flatnonzero((self.points.coordinates == point).all(axis=1)).tolist()
            race.rows.append(row)
        race.scores[:] = [0.0] * len(race.rows)
        if runners_up:
            race.runners_up = [np.inf] * len(race.rows)
        return race

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatticeRestarts, "seed", seed)
        yield
