"""Nearest-centre and induced losses."""

from __future__ import annotations

import math

import numpy as np

from fedforget.clustering.losses import (
    induced_labels,
    induced_loss,
    loss_ratio,
    nearest_loss,
)


def test_a_record_may_go_where_its_local_cluster_goes_and_not_to_its_nearest_centre() -> None:
    """The paper's example on C and C_s: x1 is nearer to c1, its local centroid to c2."""
    centres = np.array([[0.0], [10.0]])
    x1, local_centroid = np.array([[4.0]]), np.array([[6.0]])
    records = np.array([[4.0], [8.0]])  # one local cluster with mean 6
    assert records.mean() == local_centroid[0, 0]
    assert nearest_loss(x1, centres) == 16.0
    global_of_local = np.array([1], dtype=np.int32)  # 6 is nearer to 10
    labels = induced_labels(np.zeros(2, dtype=np.int32), global_of_local)
    assert labels.tolist() == [1, 1]
    assert induced_loss(records, labels, centres) == 36.0 + 4.0
    assert nearest_loss(records, centres) == 16.0 + 4.0


def test_sums_are_correctly_rounded_in_any_order(rng: np.random.Generator) -> None:
    values = rng.normal(size=(500, 3)) * 10.0 ** rng.integers(-8, 8, (500, 1))
    centres = values[:4]
    order = rng.permutation(500)
    assert nearest_loss(values, centres) == nearest_loss(values[order], centres)
    labels = rng.integers(0, 4, 500).astype(np.int32)
    one = induced_loss(values, labels, centres)
    assert one == induced_loss(values[order], labels[order], centres)
    assert one >= nearest_loss(values, centres)


def test_ratios_of_nothing() -> None:
    assert loss_ratio(3.0, 2.0) == 1.5
    assert loss_ratio(0.0, 0.0) == 1.0
    assert loss_ratio(1.0, 0.0) == math.inf
    assert nearest_loss(np.empty((0, 2)), np.empty((0, 2))) == 0.0
