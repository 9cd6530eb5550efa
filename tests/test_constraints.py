"""Constraints: what they allow comes out in its plain type, the rest is refused by name."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget import FederatedKMeans, SeededKMeans
from fedforget.baselines import federation
from fedforget.baselines.dckmeans import DCKMeans
from fedforget.baselines.fkm import fkm
from fedforget.baselines.kfed import kfed
from fedforget.baselines.qkmeans import QKMeans
from fedforget.baselines.retraining import centralised, complete_retraining
from fedforget.constraints import (
    K_MEANS,
    Choice,
    Constraint,
    Count,
    CountPerClient,
    Flag,
    Jobs,
    OrNone,
    RealNumber,
    checked,
    checked_among,
    parse_bounds,
)

ALLOWED: list[tuple[Constraint, Any, Any]] = [
    (Count(), 1, 1),
    (Count(), np.uint8(7), 7),
    (Count(least=0), 0, 0),
    (RealNumber(0.0), 0, 0.0),
    (RealNumber(0.0), math.inf, math.inf),
    (RealNumber(0.0, 1.0), np.float32(0.5), 0.5),
    (RealNumber(0.0, 1.0, above=True), 5e-324, 5e-324),
    (Flag(), np.True_, True),
    (Choice(("a", "b")), "b", "b"),
    (OrNone(Count()), None, None),
    (OrNone(Count()), 3, 3),
    (Jobs(), -1, -1),
    (CountPerClient(), 4, 4),
    (CountPerClient(), {"east": np.int64(2)}, {"east": 2}),
    (CountPerClient(), {}, {}),
]
REFUSED: list[tuple[Constraint, Any, type[Exception], str]] = [
    (Count(), 0, ValueError, "p must be at least 1, got 0"),
    (Count(least=0), -1, ValueError, "p must be at least 0, got -1"),
    (Count(), True, TypeError, "p must be an integer, got True of type bool"),
    (Count(), 2.0, TypeError, "p must be an integer, got 2.0 of type float"),
    (RealNumber(0.0, 1.0), 1.5, ValueError, "p must lie between 0 and 1, got 1.5"),
    (RealNumber(0.0, 1.0), math.nan, ValueError, "p must lie between"),
    (RealNumber(0.0, 1.0, above=True), 0.0, ValueError, "p must be above 0 and at most 1, got 0.0"),
    (RealNumber(0.0), "1", TypeError, "p must be a number, got '1' of type str"),
    (RealNumber(0.0), False, TypeError, "p must be a number"),
    (Flag(), 1, TypeError, "p must be True or False, got 1 of type int"),
    (Choice(("a", "b")), "c", ValueError, "p must be one of 'a', 'b'; got 'c'"),
    (Choice(("a", "b")), ["a"], ValueError, "p must be one of"),
    (OrNone(Count()), 0, ValueError, "p must be at least 1"),
    (Jobs(), 0, ValueError, "other than 0"),
    (Jobs(), 1.5, TypeError, "p must be None or an integer"),
    (CountPerClient(), {"east": 0}, ValueError, "p of each client must be at least 1"),
    (CountPerClient(), {1.5: 2}, TypeError, "the clients in p"),
]


@pytest.mark.parametrize(("constraint", "value", "plain"), ALLOWED, ids=str)
def test_what_is_allowed_comes_out_plain(constraint: Constraint, value: Any, plain: Any) -> None:
    found = constraint("p", value)
    assert found == plain
    assert type(found) is type(plain)


@pytest.mark.parametrize(("constraint", "value", "error", "message"), REFUSED, ids=str)
def test_what_is_refused_is_named(
    constraint: Constraint, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        constraint("p", value)


@given(low=st.floats(-9, 9), width=st.floats(0, 9), value=st.floats(-20, 20))
def test_a_number_is_allowed_exactly_in_its_range(low: float, width: float, value: float) -> None:
    constraint = RealNumber(low, low + width)
    if low <= value <= low + width:
        assert constraint("p", value) == value
    else:
        with pytest.raises(ValueError, match="p must lie between"):
            constraint("p", value)


def test_only_what_was_given_is_checked() -> None:
    table: dict[str, Constraint] = {"a": Count(), "b": Flag()}
    assert checked(table, b=True) == {"b": True}
    assert checked_among(table, {"b": True, "random_state": object()}) == {"b": True}


def test_a_misspelt_parameter_is_not_left_out() -> None:
    with pytest.raises(TypeError, match="no constraint says what 'n_cluster', 'tools' may be"):
        checked(K_MEANS, tools=1, n_cluster=0, n_init=1)


@pytest.mark.parametrize(
    ("taker", "table", "free"),
    [
        (SeededKMeans, SeededKMeans._constraints, {"random_state"}),
        (FederatedKMeans, FederatedKMeans._constraints, {"random_state", "bounds"}),
        (DCKMeans, federation.CONSTRAINTS, set()),
        (QKMeans, federation.CONSTRAINTS, {"bounds"}),
        (kfed, federation.CONSTRAINTS, {"values", "clients"}),
        (fkm, federation.CONSTRAINTS, {"values", "clients"}),
        (centralised, federation.CONSTRAINTS, {"values"}),
        (complete_retraining, federation.CONSTRAINTS, {"values", "clients", "grid"}),
    ],
)
def test_every_parameter_has_a_constraint(taker: Any, table: Any, free: set[str]) -> None:
    """Except those that have a check of their own."""
    assert set(inspect.signature(taker).parameters) - set(table) == free


def test_bounds_are_one_pair_or_one_a_feature() -> None:
    assert parse_bounds((0, 2), 3).tolist() == [[0.0, 2.0]] * 3
    assert parse_bounds([(0, 1), (5, 5)], 2).tolist() == [[0.0, 1.0], [5.0, 5.0]]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1, 0), "reversed for feature 0"),
        ([(0, 1), (3, 2)], "reversed for feature 1"),
        ((0, np.inf), "finite"),
        ((np.nan, 1), "finite"),
        ([(0, 1)] * 3, "2 features"),
        ("ab", "must be numbers"),
        ((0, 1, 2), "2 features"),
        ((-1e200, 1e200), "overflow"),
    ],
)
def test_bad_bounds_are_refused(bounds: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_bounds(bounds, 2)
