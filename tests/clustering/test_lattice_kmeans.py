"""The server: a function of the aggregate, equal to a plain twin in exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import twins
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import (
    REPLICATE_BITS,
    LatticePoints,
    LatticeRestarts,
    ServerModel,
    UniformPoints,
    WeightedPoints,
    cluster,
    moments_of,
)
from fedforget.clustering.lloyd import NO_THRESHOLD
from fedforget.clustering.prf import Secret, keys_of_vectors
from fedforget.errors import LatticeOverflowError

SEED = Secret(bytes(range(16)))
WEIGHTED, UNIFORM = WeightedPoints(SEED, 1e9), UniformPoints(SEED, 1e9)
OPTIONS = {"n_init": 3, "max_iter": 50, "tol": 0.0}


def plain_variance(points: LatticePoints) -> Fraction:
    """The variance of a feature, averaged over the features, without any rounding."""
    total = sum(points.weights.tolist())
    variances = []
    for feature in points.coordinates.T.tolist():
        weighted = list(zip(points.weights.tolist(), feature, strict=True))
        mean = Fraction(sum(w * x for w, x in weighted), total)
        variances.append(sum(w * (x - mean) ** 2 for w, x in weighted) / total)
    return Fraction(sum(variances), len(variances))


def plain_lloyd(
    points: LatticePoints, n_clusters: int, restart: int, max_iter: int, tol: float
) -> tuple:
    """One restart in Python: exact sums as integers, centres rounded once from fractions."""
    threshold = tol * float(plain_variance(points))
    is_still = False
    coordinates = points.coordinates.astype(float)
    weights = points.weights.tolist()
    seeds, _ = twins.eager_race(
        coordinates, *points.keys, range(len(weights)), n_clusters, weights, restart << 32
    )
    centres = [coordinates[s].tolist() for s in seeds]
    rows = coordinates.tolist()
    before = None
    n_iter = 0
    while True:
        distances = [[twins.squared_distance(x, c) for c in centres] for x in rows]
        labels = [d.index(min(d)) for d in distances]
        if n_iter == max_iter or is_still:
            break
        n_iter += 1
        if labels == before:
            break
        before = labels
        last = list(centres)
        for k in range(len(centres)):
            members = [i for i, label in enumerate(labels) if label == k]
            total = sum(weights[i] for i in members)
            if total:
                exact = [
                    Fraction(
                        sum(weights[i] * int(points.coordinates[i, t]) for i in members), total
                    )
                    for t in range(coordinates.shape[1])
                ]
                centres[k] = [float(mean) for mean in exact]
        shifts = [twins.squared_distance(b, a) for a, b in zip(last, centres, strict=True)]
        is_still = bool(tol) and sum(shifts) <= threshold
    losses = [0.0] * len(centres)
    for i, label in enumerate(labels):
        losses[label] += weights[i] * min(distances[i])
    return centres, labels, math.fsum(losses), n_iter


def aggregates(draw: st.DrawFn) -> Histogram:
    n, d = draw(st.integers(1, 14)), draw(st.integers(1, 4))
    top = draw(st.sampled_from([1, 3, 50]))
    points = draw(
        st.lists(st.lists(st.integers(0, top), min_size=d, max_size=d), min_size=n, max_size=n)
    )
    counts = draw(st.lists(st.integers(1, 30), min_size=n, max_size=n))
    return Histogram.of(np.array(points), np.array(counts))


@settings(max_examples=120)
@given(
    st.composite(aggregates)(),
    st.integers(1, 5),
    st.sampled_from([1, 2, 50]),
    st.sampled_from([0.0, 1e-3, 0.1]),
)
def test_the_model_is_that_of_the_plain_twin(
    aggregate: Histogram, n_clusters: int, max_iter: int, tol: float
) -> None:
    points = WEIGHTED.points_of(aggregate)
    model = cluster(points, n_clusters, n_init=3, max_iter=max_iter, tol=tol)
    runs = [plain_lloyd(points, n_clusters, restart, max_iter, tol) for restart in range(3)]
    best = min(range(3), key=lambda r: runs[r][2])
    centres, labels, loss, n_iter = runs[best]
    assert model.centres.tolist() == centres
    assert model.labels.tolist() == labels
    assert (model.loss, model.n_iter, model.restart) == (loss, n_iter, best)


def same(one: ServerModel, other: ServerModel) -> bool:
    return one.centres.tobytes() == other.centres.tobytes() and (
        one.loss,
        one.n_iter,
        one.restart,
    ) == (other.loss, other.n_iter, other.restart)


def test_the_order_of_reports_does_not_matter(rng: np.random.Generator) -> None:
    points, counts = rng.integers(0, 30, (200, 3)), rng.integers(1, 100, 200)
    order = rng.permutation(200)
    for source in (WEIGHTED, UNIFORM):
        one = cluster(source.points_of(Histogram.of(points, counts)), 5, **OPTIONS)
        other = cluster(source.points_of(Histogram.of(points[order], counts[order])), 5, **OPTIONS)
        assert same(one, other)


def test_uniform_points_lie_in_their_bins_and_the_last_replicate_goes_first() -> None:
    aggregate = Histogram.of(np.array([[0, 4], [2, 1]]), np.array([300, 5]))
    points = UNIFORM.points_of(aggregate)
    assert points.coordinates.shape == (305, 2)
    assert points.weights.tolist() == [1] * 305
    half = 2 ** (REPLICATE_BITS - 1)
    offset = points.coordinates[:300] - np.array([0, 4]) * 2**REPLICATE_BITS
    assert offset.min() >= -half
    assert offset.max() < half
    assert np.abs(offset.mean(axis=0)).max() < 2**REPLICATE_BITS / 12**0.5 / 300**0.5 * 5
    fewer = UNIFORM.points_of(aggregate - Histogram.of(np.array([[0, 4]]), np.array([1])))
    kept = np.arange(305) != 299
    assert fewer.coordinates.tobytes() == points.coordinates[kept].tobytes()
    assert fewer.keys.low.tobytes() == points.keys.low[kept].tobytes()


def test_fewer_points_than_clusters_and_none_at_all() -> None:
    aggregate = Histogram.of(np.array([[1], [4]]), np.array([2, 3]))
    few = cluster(WEIGHTED.points_of(aggregate), 5, **OPTIONS)
    assert sorted(few.centres.ravel().tolist()) == [1.0, 4.0]
    assert few.loss == 0.0
    none = cluster(WEIGHTED.points_of(Histogram(2)), 5, **OPTIONS)
    assert none.centres.shape == (0, 2)


def test_an_empty_cluster_keeps_its_centre() -> None:
    """Seeds differ, so it hardly ever happens; two equal starting centres force it.

    The second centre has no points in the first iteration and stays at 0; in the next one the
    first centre has moved to 0.5, so the point at 0 goes over to the second.
    """
    aggregate = Histogram.of(np.array([[0], [1], [9], [11]]), np.array([1, 1, 1, 3]))
    points = WEIGHTED.points_of(aggregate)
    restarts = LatticeRestarts.of(points, 3, max_iter=50, threshold=NO_THRESHOLD)
    model = restarts.lloyd(np.array([0, 0, 2]))
    assert model.centres.ravel().tolist() == [1.0, 0.0, 10.5]
    assert model.labels.tolist() == [1, 0, 2, 2]


def test_sums_that_could_overflow_are_refused() -> None:
    points = np.array([[2**40]])
    with pytest.raises(LatticeOverflowError, match="the step is too small for so many records"):
        LatticePoints(points, np.array([2**23]), keys_of_vectors(SEED, points))


def test_a_tolerance_stops_early(rng: np.random.Generator) -> None:
    aggregate = Histogram.of(rng.integers(0, 1000, (300, 2)), rng.integers(1, 9, 300))
    points = WEIGHTED.points_of(aggregate)
    exact = cluster(points, 8, n_init=1, max_iter=300, tol=0.0)
    rough = cluster(points, 8, n_init=1, max_iter=300, tol=0.01)
    assert rough.n_iter < exact.n_iter
    assert rough.loss >= exact.loss
    assert rough.labels.tolist() == [
        int(np.argmin([twins.squared_distance(x, c) for c in rough.centres.tolist()]))
        for x in points.coordinates.astype(float).tolist()
    ]


@given(
    st.lists(
        st.tuples(
            st.lists(
                st.one_of(st.integers(-9, 9), st.integers(1 - 2**52, 2**52 - 1)),
                min_size=2,
                max_size=2,
            ),
            st.integers(1, 100),
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(0, 8),
)
def test_moments_are_exact_and_points_can_be_taken_away(given_points: list, taken: int) -> None:
    coordinates = np.array([point for point, _ in given_points])
    weights = np.array([weight for _, weight in given_points])
    keys = keys_of_vectors(SEED, coordinates)
    moments = moments_of(LatticePoints(coordinates, weights, keys))
    assert moments.mean_variance() == float(
        plain_variance(LatticePoints(coordinates, weights, keys))
    )
    moments.add(coordinates[:taken], -weights[:taken])
    left = LatticePoints(coordinates[taken:], weights[taken:], keys_of_vectors(SEED, coordinates))
    assert moments.squares.tolist() == moments_of(left).squares.tolist()
    assert moments.sums.tolist() == moments_of(left).sums.tolist()
    if taken < len(weights):
        assert moments.mean_variance() == float(plain_variance(left))
    else:
        assert moments.mean_variance() == 0.0


def test_moments_of_the_largest_points() -> None:
    """Up to the bounds of :class:`LatticePoints`: products of 114 bits."""
    coordinates = np.array([[2**52 - 1, 1 - 2**52], [1 - 2**52, 1]])
    weights = np.array([511, 512])
    points = LatticePoints(coordinates, weights, keys_of_vectors(SEED, coordinates))
    words = moments_of(points).squares.tolist()
    expected = [511 * (2**52 - 1) ** 2 + 512 * (2**52 - 1) ** 2, 511 * (2**52 - 1) ** 2 + 512]
    assert [low + (high << 64) for low, high in words] == expected
    assert moments_of(points).mean_variance() == float(plain_variance(points))
