"""What the baselines refuse: above all, to delete records that nobody named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedforget.baselines.dckmeans import DCKMeans
from fedforget.baselines.fkm import fkm
from fedforget.baselines.kfed import kfed
from fedforget.baselines.qkmeans import QKMeans
from fedforget.baselines.retraining import centralised
from fedforget.errors import DuplicateIdError

VALUES = np.random.default_rng(0).random((40, 3))
CLIENTS = np.arange(40) % 4
MASK = np.arange(40) == 30


def tree(ids: Any = None) -> DCKMeans:
    return DCKMeans(2).fit(VALUES, CLIENTS, ids)


def quantised(ids: Any = None) -> QKMeans:
    return QKMeans(2, bounds=(0.0, 1.0), epsilon=0.1).fit(VALUES, ids)


@pytest.mark.parametrize("fit", [tree, quantised])
@pytest.mark.parametrize("ids", [MASK, [1.7], ["1"], [True], [None]], ids=str)
def test_ids_that_are_no_integers_delete_nothing(fit: Callable[..., Any], ids: Any) -> None:
    model = fit()
    with pytest.raises(TypeError, match="ids must be integers"):
        model.forget(ids)
    assert model.ids.tolist() == list(range(40))


@pytest.mark.parametrize("fit", [tree, quantised])
def test_ids_of_records_are_distinct_integers(fit: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="ids must be integers"):
        fit(np.arange(40) + 0.5)
    with pytest.raises(DuplicateIdError):
        fit(np.arange(40) // 2)
    with pytest.raises(ValueError, match="39 entries for 40 rows of values"):
        fit(np.arange(39))
    model = fit(np.arange(40, dtype=np.uint8))
    model.forget([])
    assert model.ids.tolist() == list(range(40))


@pytest.mark.parametrize("wrong", [2.5, "2", None])
def test_counts_are_integers(wrong: Any) -> None:
    with pytest.raises(TypeError, match="n_clusters must be an integer"):
        DCKMeans(wrong)
    with pytest.raises(TypeError, match="n_clusters must be an integer"):
        QKMeans(wrong, bounds=(0, 1), epsilon=0.1)


@pytest.mark.parametrize("wrong", [2.5, "3", True])
def test_rounds_seeds_and_devices_are_integers(wrong: Any) -> None:
    with pytest.raises(TypeError, match="max_rounds must be an integer"):
        fkm(VALUES, CLIENTS, 2, max_rounds=wrong)
    with pytest.raises(TypeError, match="first_device must be an integer"):
        kfed(VALUES, CLIENTS, 2, first_device=wrong)
    for method in (fkm, kfed):
        with pytest.raises(TypeError, match="seed must be an integer"):
            method(VALUES, CLIENTS, 2, seed=wrong)
    with pytest.raises(TypeError, match="seed must be an integer"):
        centralised(VALUES, 2, seed=wrong)
    with pytest.raises(TypeError, match="seed must be an integer"):
        DCKMeans(2, seed=wrong)


def test_values_whose_squares_overflow_are_refused() -> None:
    far = VALUES.copy()
    far[3, 1] = -1e200
    for method in (fkm, kfed):
        with pytest.raises(ValueError, match=r"values\[3, 1\] = -1e\+200 is beyond .* rescale"):
            method(far, CLIENTS, 2)


def test_no_local_clusters_are_not_all_of_them() -> None:
    with pytest.raises(ValueError, match="local_clusters must be at least 1"):
        DCKMeans(2, local_clusters=0)


def test_rows_with_other_features_have_no_nearest_centroid() -> None:
    model = quantised()
    for features in (1, 7):
        with pytest.raises(ValueError, match=f"{features} features, not 3"):
            model.predict(np.ones((3, features)))
    model.forget(np.arange(40))
    with pytest.raises(ValueError, match="every record has been deleted"):
        model.predict(np.ones((1, 3)))
