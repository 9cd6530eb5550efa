"""The server's clustering: weighted K-means++ with restarts, on an integer lattice.

Points are integer vectors with integer weights, so the sums behind every centroid are exact and
do not depend on the order of the points.  What is left in floating point (distances, quotients)
is a fixed function of one point and one centroid.  The model is therefore a function of the
aggregate and the public seed alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.distance import Floats, Labels, Rows, nearest
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.prf import Ints, Keys, Secret, keys_of_vectors
from fedforget.clustering.race import first_row, new_race, run_race
from fedforget.errors import LatticeOverflowError

REPLICATE_BITS = 16
"""Uniform points lie on a lattice 2^16 times finer than the grid."""

_STREAM = 1 << 32
"""Counters of one restart's clocks start here times the restart's number."""


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


@dataclass(frozen=True)
class ServerModel:
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


def weighted_points(aggregate: Histogram, seed: Secret) -> LatticePoints:
    """The aggregate's points with their counts as weights."""
    points = aggregate.points()
    return LatticePoints(points, aggregate.counts(), keys_of_vectors(seed, points))


def uniform_points(aggregate: Histogram, seed: Secret) -> LatticePoints:
    """As many points of weight 1 as the aggregate counts, drawn uniformly within their bins.

    Coordinates are in units of 2^-16 of a bin.  Replicate r of a bin is a function of the bin, r
    and the public seed: lowering a count by one drops the last replicate.
    """
    bins, counts = aggregate.points(), aggregate.counts()
    n = int(counts.sum())
    points = np.empty((n, aggregate.n_features), dtype=np.int64)
    keys = Keys(np.empty(n, np.uint64), np.empty(n, np.uint64))
    bin_keys = keys_of_vectors(seed, bins)
    kernels.scatter_replicates(*bin_keys, bins, counts, REPLICATE_BITS, points, *keys)
    return LatticePoints(points, np.ones(n, dtype=np.int64), keys)


def cluster(
    points: LatticePoints, n_clusters: int, *, n_init: int, max_iter: int, tol: float
) -> ServerModel:
    """K-means++ seeding and Lloyd's iteration, ``n_init`` times; the lowest loss wins."""
    best: ServerModel | None = None
    coordinates = points.coordinates.astype(np.float64)
    weights = points.weights.astype(np.float64)
    # Without a tolerance only labels count: no shift is below zero.
    threshold = tol * _mean_variance(points, coordinates, weights) if tol else -1.0
    rows = Rows(coordinates)
    for restart in range(n_init):
        race = new_race(len(coordinates))
        run_race(
            race,
            rows,
            points.keys,
            n_clusters,
            smallest_id=first_row,
            weights=weights,
            stream=restart * _STREAM,
        )
        model = _lloyd(
            points, rows, weights, np.array(race.rows, dtype=np.int64), restart, max_iter, threshold
        )
        if best is None or model.loss < best.loss:
            best = model
    assert best is not None
    return best


def _lloyd(
    points: LatticePoints,
    rows: Rows,
    weights: Floats,
    seeds: Ints,
    restart: int,
    max_iter: int,
    threshold: float,
) -> ServerModel:
    """Iterate until no label changes.  A cluster that loses all its points keeps its centre."""
    n, d = rows.values.shape
    centres = rows.values[seeds]
    sums = np.zeros((len(seeds), d), dtype=np.int64)
    totals = np.zeros(len(seeds), dtype=np.int64)
    before = np.full(n, -1, dtype=np.int32)
    n_iter = 0
    while True:
        labels, d2 = rows.nearest(centres)
        if n_iter == max_iter:
            break
        n_iter += 1
        moved = kernels.move_points(
            points.coordinates, points.weights, before, labels, sums, totals
        )
        if moved == 0:
            break
        before = labels
        if kernels.recentre(sums, totals, centres) <= threshold:
            labels, d2 = rows.nearest(centres)
            break
    losses = np.zeros(len(centres))
    kernels.cluster_losses(weights, d2, labels, losses)
    return ServerModel(centres, labels, float(sum(losses.tolist())), n_iter, restart)


def _mean_variance(points: LatticePoints, coordinates: Floats, weights: Floats) -> float:
    """The variance of a feature, averaged over the features: the scale that ``tol`` refers to."""
    n, d = coordinates.shape
    total: int = points.weights.sum().item()
    if not total * d:
        return 0.0
    everyone = np.zeros(n, dtype=np.int32)
    sums, totals = np.zeros((1, d), dtype=np.int64), np.zeros(1, dtype=np.int64)
    kernels.move_points(points.coordinates, points.weights, everyone - 1, everyone, sums, totals)
    mean = np.zeros((1, d))
    kernels.recentre(sums, totals, mean)
    spread = np.zeros(1)
    kernels.cluster_losses(weights, nearest(coordinates, mean)[1], everyone, spread)
    variance: float = spread[0].item() / total / d
    return variance
