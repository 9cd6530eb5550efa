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

from fedforget.arrays import Floats, Ints, Labels, UInts
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.prf import Keys, Secret, keys_of_vectors
from fedforget.clustering.race import Race, first_row, new_race, run_race
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
                f"{total} counts at coordinates up to {largest} could overflow 64-bit sums;"
                f" use a larger step, or fewer records"
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


@dataclass
class Moments:
    """The weight, the sums and the sums of squares of points, exactly.

    They know no order, and points can be added and taken away again.

    Attributes
    ----------
    weight : of all points.
    sums : of w x per feature.
    squares : of w x^2 per feature, a low and a high word each.
    """

    weight: int
    sums: Ints
    squares: UInts

    @classmethod
    def of(cls, points: LatticePoints) -> Moments:
        d = points.coordinates.shape[1]
        moments = cls(0, np.zeros(d, dtype=np.int64), np.zeros((d, 2), dtype=np.uint64))
        moments.add(points.coordinates, points.weights)
        return moments

    def add(self, coordinates: Ints, weights: Ints) -> None:
        """Add points; those with negative weights are taken away."""
        self.weight += sum(weights.tolist())
        kernels.add_moments(coordinates, weights, self.sums, self.squares)

    def mean_variance(self) -> float:
        """The variance of a feature, averaged over the features, correctly rounded; 0 if none."""
        n_features = len(self.sums)
        if not self.weight * n_features:
            return 0.0
        words = self.squares.tolist()
        squares = sum(low for low, _ in words) + (sum(high for _, high in words) << 64)
        spread = self.weight * squares - sum(total * total for total in self.sums.tolist())
        # Python rounds a quotient of integers once.
        variance: float = spread / (self.weight * self.weight * n_features)
        return variance


NO_THRESHOLD = -1.0
"""Without a tolerance only labels count: no shift is below zero."""


def threshold_of(moments: Moments, tol: float) -> float:
    """The squared shift of all centres up to which Lloyd's iteration stops."""
    return tol * moments.mean_variance() if tol else NO_THRESHOLD


@dataclass(frozen=True)
class Restarts:
    """Points that are ready to be clustered several times.

    ``threshold`` is that of :func:`threshold_of`.
    """

    points: LatticePoints
    rows: Rows
    weights: Floats
    n_clusters: int
    max_iter: int
    threshold: float

    @classmethod
    def of(
        cls, points: LatticePoints, n_clusters: int, *, max_iter: int, threshold: float
    ) -> Restarts:
        coordinates = points.coordinates.astype(np.float64)
        weights = points.weights.astype(np.float64)
        return cls(points, Rows(coordinates), weights, n_clusters, max_iter, threshold)

    def seed(self, restart: int, *, runners_up: bool = False) -> Race:
        """The race of one restart."""
        race = new_race(len(self.rows))
        if runners_up:
            race.runners_up = []
        run_race(
            race,
            self.rows,
            self.points.keys,
            self.n_clusters,
            smallest_id=first_row,
            weights=self.weights,
            stream=restart << 32,
        )
        return race

    def lloyd(self, seeds: Ints, restart: int) -> ServerModel:
        """Iterate until no label changes, or the centres shift by no more than the threshold.

        The squared shifts of all centres together count.  A cluster that loses all its points keeps
        its centre.
        """
        points = self.points
        n, d = self.rows.values.shape
        centres = self.rows.values[seeds]
        sums = np.zeros((len(seeds), d), dtype=np.int64)
        totals = np.zeros(len(seeds), dtype=np.int64)
        before = np.full(n, -1, dtype=np.int32)
        n_iter = 0
        while True:
            labels, d2 = self.rows.nearest(centres)
            if n_iter == self.max_iter:
                break
            n_iter += 1
            moved = kernels.move_points(
                points.coordinates, points.weights, before, labels, sums, totals
            )
            if moved == 0:
                break
            before = labels
            last = centres.copy()
            kernels.recentre(sums, totals, centres)
            if self.threshold >= 0.0 and kernels.total_shift(last, centres) <= self.threshold:
                labels, d2 = self.rows.nearest(centres)
                break
        losses = np.zeros(len(centres))
        kernels.cluster_losses(self.weights, d2, labels, losses)
        return ServerModel(centres, labels, math.fsum(losses), n_iter, restart)


def cluster_each(
    points: LatticePoints, n_clusters: int, *, n_init: int, max_iter: int, tol: float
) -> list[ServerModel]:
    """K-means++ seeding and Lloyd's iteration, ``n_init`` times."""
    threshold = threshold_of(Moments.of(points), tol) if tol else NO_THRESHOLD
    restarts = Restarts.of(points, n_clusters, max_iter=max_iter, threshold=threshold)
    return [
        restarts.lloyd(np.array(restarts.seed(number).rows, dtype=np.int64), number)
        for number in range(n_init)
    ]


def cluster(
    points: LatticePoints, n_clusters: int, *, n_init: int, max_iter: int, tol: float
) -> ServerModel:
    """The best of :func:`cluster_each`: the lowest loss, the first of equals."""
    models = cluster_each(points, n_clusters, n_init=n_init, max_iter=max_iter, tol=tol)
    return min(models, key=lambda model: model.loss)
