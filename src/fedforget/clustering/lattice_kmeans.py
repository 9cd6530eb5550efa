"""The server's clustering: weighted K-means++ with restarts, on an integer lattice.

Points are integer vectors with integer weights, so the sums behind every centroid are exact and
do not depend on the order of the points.  What is left in floating point (distances, quotients)
is a fixed function of one point and one centroid.  The model is therefore a function of the
aggregate and the public seed alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lloyd import Moments, Restarts, threshold_of
from fedforget.clustering.prf import Keys, Secret, keys_of_vectors
from fedforget.errors import LatticeOverflowError

REPLICATE_BITS = 16
"""Uniform points lie on a lattice 2^16 times finer than the grid."""


@dataclass(frozen=True)
class LatticePoints:
    """What the server clusters: distinct keys, integer coordinates, positive integer weights."""

    coordinates: Ints
    weights: Ints
    keys: Keys

    def __post_init__(self) -> None:
        largest = int(np.abs(self.coordinates).max(initial=1))
        total = sum(self.weights.tolist())
        if largest >= 2**52 or total * largest >= 2**62:
            raise LatticeOverflowError(
                f"{total} counts at coordinates up to {largest} could overflow 64-bit sums:"
                " the step is too small for so many records"
            )


class ServerModel(NamedTuple):
    """Centroids in lattice coordinates, and how they were found.

    Attributes
    ----------
    centres : (k, d); k is smaller than asked for where there are fewer distinct points.
    labels : the centroid of each point.
    loss : weighted sum of squared distances, in lattice units.
    n_iter : iterations of the best restart.
    restart : which restart was the best (the first of equals).
    """

    centres: Floats
    labels: Labels
    loss: float
    n_iter: int
    restart: int


class PointChange(NamedTuple):
    """One point whose weight changes; a weight of 0 means that it is not there.

    Coordinates and key matter only for a point that was not there before.
    """

    name: bytes
    before: int
    after: int
    coordinates: Ints | None = None
    key: tuple[np.uint64, np.uint64] = (np.uint64(0), np.uint64(0))


class PointSource(Protocol):
    """Where the server's points come from."""

    @property
    def diameter(self) -> float:
        """A bound on the distance of any two points."""

    def points_of(self, aggregate: Histogram) -> LatticePoints:
        """All points, in canonical order."""

    def names_of(self, aggregate: Histogram) -> list[bytes]:
        """Their names, sorted; the order of the names is the canonical one."""

    def changes(self, aggregate: Histogram, delta: Histogram) -> list[PointChange]:
        """Which points a change of the aggregate changes; ``aggregate`` is the one after it."""


@dataclass(frozen=True)
class WeightedPoints:
    """The aggregate's points themselves, with their counts as weights."""

    seed: Secret
    diameter: float

    def points_of(self, aggregate: Histogram) -> LatticePoints:
        points = aggregate.points()
        return LatticePoints(points, aggregate.counts(), keys_of_vectors(self.seed, points))

    def names_of(self, aggregate: Histogram) -> list[bytes]:
        return aggregate.encoded()

    def changes(self, aggregate: Histogram, delta: Histogram) -> list[PointChange]:
        changes = []
        for name, difference in delta.items():
            after = aggregate.count_of(name)
            if after == difference:
                point = aggregate.decode([name])
                key = keys_of_vectors(self.seed, point)
                change = PointChange(name, 0, after, point[0], (key.low[0], key.high[0]))
            else:
                change = PointChange(name, after - difference, after)
            changes.append(change)
        return changes


@dataclass(frozen=True)
class UniformPoints:
    """As many points of weight 1 as the aggregate counts, drawn uniformly within their bins.

    Coordinates are in units of 2^-16 of a bin.  Replicate r of a bin is a function of the bin, r
    and the public seed: lowering a count by one drops the last replicate.
    """

    seed: Secret
    diameter: float

    def _scatter(self, bins: Ints, first: Ints, counts: Ints) -> LatticePoints:
        n = int(counts.sum())
        points = np.empty((n, bins.shape[1]), dtype=np.int64)
        keys = Keys(np.empty(n, np.uint64), np.empty(n, np.uint64))
        bin_keys = keys_of_vectors(self.seed, bins)
        kernels.scatter_replicates(*bin_keys, bins, first, counts, REPLICATE_BITS, points, *keys)
        return LatticePoints(points, np.ones(n, dtype=np.int64), keys)

    def points_of(self, aggregate: Histogram) -> LatticePoints:
        counts = aggregate.counts()
        return self._scatter(aggregate.points(), np.zeros_like(counts), counts)

    def names_of(self, aggregate: Histogram) -> list[bytes]:
        return [
            _replicate(name, number)
            for name in aggregate.encoded()
            for number in range(aggregate.count_of(name))
        ]

    def changes(self, aggregate: Histogram, delta: Histogram) -> list[PointChange]:
        changes = []
        for name, difference in delta.items():
            after = aggregate.count_of(name)
            gone = range(after, after - difference)
            changes += [PointChange(_replicate(name, number), 1, 0) for number in gone]
            if difference > 0:
                first = after - difference
                new = self._scatter(
                    aggregate.decode([name]), np.array([first]), np.array([difference])
                )
                keys = zip(new.keys.low, new.keys.high, strict=True)
                changes += [
                    PointChange(_replicate(name, number), 0, 1, point, key)
                    for number, point, key in zip(
                        range(first, after), new.coordinates, keys, strict=True
                    )
                ]
        return changes


def _replicate(name: bytes, number: int) -> bytes:
    return name + number.to_bytes(8, "big")


def moments_of(points: LatticePoints) -> Moments:
    """The exact moments of lattice points, whose steps are 1."""
    moments = Moments.none(np.zeros(points.coordinates.shape[1], dtype=np.int64))
    moments.add(points.coordinates, points.weights)
    return moments


@dataclass(frozen=True)
class LatticeRestarts(Restarts):
    """Lattice points: whole numbers themselves, in canonical order."""

    points: LatticePoints

    @classmethod
    def of(
        cls, points: LatticePoints, n_clusters: int, *, max_iter: int, threshold: float
    ) -> LatticeRestarts:
        rows = Rows(points.coordinates.astype(np.float64))
        weights = points.weights.astype(np.float64)
        return cls(rows, weights, points.keys, n_clusters, max_iter, threshold, points)

    def steps(self) -> Ints:
        return self.points.coordinates

    def whole_weights(self) -> Ints:
        return self.points.weights

    def units(self) -> Floats:
        return np.ones(self.points.coordinates.shape[1])

    def model(self, seeds: Ints, restart: int) -> ServerModel:
        """The model that a restart comes to; its loss is added up in canonical order."""
        run = self.lloyd(seeds)
        losses = np.zeros(len(run.centres))
        kernels.cluster_losses(self.weights, run.d2, run.labels, losses)
        return ServerModel(run.centres, run.labels, math.fsum(losses), run.n_iter, restart)


def cluster_each(
    points: LatticePoints, n_clusters: int, *, n_init: int, max_iter: int, tol: float
) -> list[ServerModel]:
    """K-means++ seeding and Lloyd's iteration, ``n_init`` times."""
    threshold = threshold_of(moments_of(points) if tol else None, tol)
    restarts = LatticeRestarts.of(points, n_clusters, max_iter=max_iter, threshold=threshold)
    return [
        restarts.model(np.array(restarts.seed(number).rows, dtype=np.int64), number)
        for number in range(n_init)
    ]


def cluster(
    points: LatticePoints, n_clusters: int, *, n_init: int, max_iter: int, tol: float
) -> ServerModel:
    """The best of :func:`cluster_each`: the lowest loss, the first of equals."""
    models = cluster_each(points, n_clusters, n_init=n_init, max_iter=max_iter, tol=tol)
    return min(models, key=lambda model: model.loss)
