"""Seeding and Lloyd's iteration, against hand-computed cases and scikit-learn."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import stats
from sklearn.cluster import KMeans

from fedforget.baselines.lloyd import kmeans, lloyd, means, plus_plus


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, np.newaxis]


def test_lloyd_by_hand() -> None:
    """From 0 and 1: {0}, {1, 10, 11} with mean 22/3; {0, 1}, {10, 11}; then nothing changes."""
    result = lloyd(column(0, 1, 10, 11), column(0, 1))
    assert result.centres.tolist() == [[0.5], [10.5]]
    assert result.labels.tolist() == [0, 0, 1, 1]
    assert result.loss == 1.0
    assert result.n_iter == 2
    once = lloyd(column(0, 1, 10, 11), column(0, 1), max_iter=1)
    assert once.centres.tolist() == [[0.0], [22 / 3]]
    assert once.labels.tolist() == [0, 0, 1, 1]


def test_a_tolerance_stops_early() -> None:
    """From 0 and 1 the loss falls from 181 to 1 + (8/3)² + (11/3)², then to 1."""
    values = column(0, 1, 10, 11)
    assert lloyd(values, column(0, 1), tol=1e9).n_iter == 1
    assert lloyd(values, column(0, 1), tol=1e-9).n_iter == 2


def test_a_cluster_without_rows_keeps_its_centre_and_can_be_dropped() -> None:
    values, centres = column(0, 2), column(1, 50, 2.5)
    labels = np.array([0, 2], dtype=np.int32)
    assert means(values, labels, centres).tolist() == [[0.0], [50.0], [2.0]]
    result = lloyd(values, centres)
    assert result.centres.tolist() == [[0.0], [50.0], [2.0]]
    assert result.sizes.tolist() == [1, 0, 1]
    assert result.without_empty().centres.tolist() == [[0.0], [2.0]]
    assert result.without_empty().labels.tolist() == [0, 1]


def test_lloyd_equals_scikit_learns(rng: np.random.Generator) -> None:
    values = rng.random((300, 5))
    start = values[:6]
    theirs = KMeans(6, init=start, n_init=1, tol=0.0).fit(values)
    ours = lloyd(values, start)
    np.testing.assert_allclose(ours.centres, theirs.cluster_centers_, rtol=1e-12)
    assert ours.labels.tolist() == theirs.labels_.tolist()
    assert np.isclose(ours.loss, theirs.inertia_)


def test_seeds_are_drawn_in_proportion_to_squared_distance() -> None:
    """All 12 ordered pairs of 4 points; one in 10,000 right implementations fails."""
    values = column(0, 1, 3, 7)
    trials = 6000
    rng = np.random.default_rng(0)
    drawn = [tuple(plus_plus(values, 2, rng).tolist()) for _ in range(trials)]
    pairs = list(itertools.permutations(range(4), 2))
    d2 = (values - values.T) ** 2
    expected = [trials / 4 * d2[first, second] / d2[first].sum() for first, second in pairs]
    observed = [drawn.count(pair) for pair in pairs]
    assert sum(observed) == trials
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_fewer_distinct_rows_than_seeds() -> None:
    rng = np.random.default_rng(0)
    values = np.repeat(column(3, 1, 2), 4, axis=0)
    assert sorted(values[plus_plus(values, 9, rng)][:, 0].tolist()) == [1.0, 2.0, 3.0]
    assert kmeans(values, 9, rng).loss == 0.0
    assert len(plus_plus(np.empty((0, 2)), 3, rng)) == 0


def test_the_best_of_several_runs(rng: np.random.Generator) -> None:
    values = rng.random((200, 2))
    state = rng.bit_generator.state
    losses = [kmeans(values, 8, rng).loss for _ in range(5)]
    rng.bit_generator.state = state
    assert kmeans(values, 8, rng, n_init=5).loss == min(losses)
