"""Checks of what the estimators are given, with messages that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, check_random_state

from fedforget.arrays import Floats
from fedforget.clustering import kernels
from fedforget.clustering.distance import MAX_MAGNITUDE
from fedforget.clustering.ids import Found, Ids, kind_of, name_some, parse_ids
from fedforget.clustering.prf import Secret
from fedforget.errors import DuplicateIdError, UnknownIdError
from fedforget.record_checks import all_in_range, check_distinct, check_magnitude, ids_of_rows


def root_secret(random_state: Any) -> Secret:
    """The secret from which everything random derives."""
    if isinstance(random_state, Integral):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state}")
        return Secret(bytes(16)).derive("random_state", str(int(random_state)).encode())
    return Secret(check_random_state(random_state).bytes(16))


def check_values(X: Floats) -> None:
    """Refuse NaN, infinities, and values whose squared differences could leave float64's range."""
    if not all_in_range(X):
        refuse_not_finite(X)
        check_magnitude(X, "X")


def check_finite(X: Floats) -> None:
    """Refuse NaN and infinities, unless scikit-learn is told to assume that there are none."""
    try:
        assert_all_finite(X, input_name="X")
    except ValueError:
        refuse_not_finite(X)
        raise


def refuse_not_finite(X: Floats) -> None:
    """Name the first NaN or infinity.  This looks at every value: call it when a check failed."""
    is_wrong = ~np.isfinite(X)
    total = int(np.count_nonzero(is_wrong))
    if not total:
        return
    row, column = divmod(int(is_wrong.argmax()), X.shape[1])
    value = float(X[row, column])
    what = "NaN" if np.isnan(value) else "infinity"
    others = f", the first of {total} such values" if total > 1 else ""
    raise ValueError(
        f"Input X contains {what}: X[{row}, {column}] = {value!r}{others}; leave such rows out, or"
        " put numbers there"
    ) from None


def check_measured(X: Floats, row: int, d2: Floats) -> None:
    """:func:`check_values` where the squared distances of all rows to one of them are known.

    If that row and the distances are well within the limit, so is every value, and n numbers tell
    about n times d.  Otherwise every value is looked at: what is refused must not depend on the
    row that was measured from.
    """
    limit = MAX_MAGNITUDE / 4.0
    if not (kernels.all_within(X[row], limit) and kernels.all_within(d2, limit * limit)):
        check_values(X)


def column_of(values: Any, n: int, what: str) -> Ids:
    """Ids or names that go with ``n`` rows."""
    return ids_of_rows(values, n, what, "X")


def ids_to_learn(ids: Any, n: int, estimator: object) -> Ids:
    """The ids of new records, which must be given: row numbers would be held already."""
    if ids is None:
        raise TypeError(
            f"{type(estimator).__name__}.learn needs ids: pass one per new row, each of which the"
            " model does not hold yet"
        )
    return column_of(ids, n, "ids")


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
