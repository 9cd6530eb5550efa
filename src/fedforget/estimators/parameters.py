"""Checks of constructor parameters and of arrays, with messages that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from sklearn.utils import assert_all_finite, check_random_state

from fedforget.clustering import kernels
from fedforget.clustering.distance import MAX_MAGNITUDE, Floats
from fedforget.clustering.ids import Found, Ids, kind_of, name_some, parse_ids
from fedforget.clustering.prf import Secret
from fedforget.errors import DuplicateIdError, UnknownIdError


def check_count(name: str, value: Any) -> int:
    """A positive integer."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def check_number(name: str, value: Any, low: float, high: float) -> float:
    """A finite number in [low, high]."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    number = float(value)
    if not low <= number <= high:
        raise ValueError(f"{name} must lie between {low:g} and {high:g}, got {number!r}")
    return number


def check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_choice(name: str, value: Any, choices: Collection[str]) -> Any:
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}")
    return value


def check_local_clusters(value: Any, n_clusters: int) -> int | dict[int | str, int]:
    """K where nothing is given, one number for all clients, or a number by client's name."""
    if value is None:
        return n_clusters
    if not isinstance(value, Mapping):
        return check_count("local_clusters", value)
    if not value:
        return n_clusters
    names = parse_ids(list(value), "the clients in local_clusters").tolist()
    counts = [check_count("local_clusters of each client", count) for count in value.values()]
    return dict(zip(names, counts, strict=True))


def root_secret(random_state: Any) -> Secret:
    """The secret from which everything random derives."""
    if isinstance(random_state, Integral):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}")
        return Secret(bytes(16)).derive("random_state", str(int(random_state)).encode())
    return Secret(check_random_state(random_state).bytes(16))


def check_values(X: Floats) -> None:
    """Refuse NaN, infinities, and values whose squared differences could leave float64's range."""
    if not kernels.all_within(X, MAX_MAGNITUDE):
        _refuse_values(X)


def check_distances(X: Floats, d2: Floats) -> None:
    """:func:`check_values` by the rows' distances to one of them: n numbers tell about n times d.

    A row with a NaN or an infinity is at no finite distance from any other, and large values are
    harmless as long as their differences are not large.
    """
    if not kernels.all_within(d2, MAX_MAGNITUDE**2):
        _refuse_values(X)


def _refuse_values(X: Floats) -> NoReturn:
    assert_all_finite(X, input_name="X")
    row, column = (int(i) for i in np.unravel_index(np.abs(X).argmax(), X.shape))
    raise ValueError(
        f"X[{row}, {column}] = {X[row, column].item()!r} is beyond {MAX_MAGNITUDE:g} in magnitude;"
        f" its square could overflow, so rescale X"
    )


def column_of(values: Any, n: int, what: str) -> Ids:
    """Ids or names that go with ``n`` rows."""
    array = parse_ids(values, what)
    if len(array) != n:
        raise ValueError(f"{what} has {len(array)} entries for {n} rows of X")
    return array


def check_distinct(ids: Ids, what: str = "ids") -> None:
    """Refuse ids that occur twice in one call."""
    if len(ids) < 2 or (ids.dtype.kind == "i" and bool((ids[1:] > ids[:-1]).all())):
        return
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) != len(ids):
        repeated = distinct[counts > 1]
        raise DuplicateIdError(f"{what} given more than once: {name_some(repeated)}")


def check_same_kind(new: Ids, old: Ids, what: str) -> None:
    """Refuse strings where the model holds integers, and the other way round."""
    if len(new) and len(old) and new.dtype.kind != old.dtype.kind:
        raise ValueError(
            f"{what} of mixed type: the model holds {kind_of(old)}, these are {kind_of(new)};"
            f" convert them first"
        )


def refuse_held(ids: Ids, found: Found) -> Found:
    """Refuse to learn ids that the model holds already."""
    held = ids[found.handles >= 0]
    if len(held):
        raise DuplicateIdError(
            f"{len(held)} of {len(ids)} ids are held already: {name_some(held)};"
            f" forget them first, or give the new records other ids"
        )
    return found


def locate(ids: Any, held: Ids, look_up: Callable[[Ids], Found]) -> Found:
    """Parse the ids of a removal request and find their records; all of them must exist."""
    wanted = parse_ids(ids)
    check_same_kind(wanted, held, "ids")
    check_distinct(wanted)
    found = look_up(wanted)
    if found.handles.min(initial=0) < 0:
        missing = wanted[found.handles < 0]
        raise UnknownIdError(
            f"{len(missing)} of {len(wanted)} ids are not in the model: {name_some(missing)};"
            f" nothing was forgotten"
        )
    return found
