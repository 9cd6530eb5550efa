"""Checks of records and their ids, for estimators and baselines alike.

They refuse with messages that name the first row, column or id at fault, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedforget.arrays import Floats
from fedforget.clustering import kernels
from fedforget.clustering.distance import MAX_MAGNITUDE
from fedforget.clustering.grid import Grid
from fedforget.clustering.ids import Ids, name_some, parse_ids
from fedforget.errors import DuplicateIdError, OutOfBoundsError


def all_in_range(values: Floats) -> bool:
    """Whether values are finite, and so small that squared differences stay in float64's range."""
    return bool(kernels.all_within(values, MAX_MAGNITUDE))


def check_magnitude(values: Floats, name: str) -> None:
    """Refuse finite values whose squared differences could leave float64's range."""
    if all_in_range(values):
        return
    row, column = (int(i) for i in np.unravel_index(np.abs(values).argmax(), values.shape))
    raise ValueError(
        f"{name}[{row}, {column}] = {values[row, column].item()!r} is beyond {MAX_MAGNITUDE:g} in"
        f" magnitude; its square could overflow, so rescale {name}"
    )


def check_inside(
    values: Floats, grid: Grid, names: Sequence[str] | None = None, advice: str | None = None
) -> None:
    """Refuse values outside a grid's box, naming the first one's row and column."""
    outside = grid.outside(values)
    if outside is None:
        return
    row, column, total = outside
    low, high = grid.bounds[column].tolist()
    feature = f"column {column}" + (f" ({names[column]!r})" if names is not None else "")
    raise OutOfBoundsError(
        f"row {row}, {feature}: {values[row, column].item()!r} is outside the bounds"
        f" [{low!r}, {high!r}] ({total} such values in all)" + (f"; {advice}" if advice else "")
    )


def ids_of_rows(ids: Any, n: int, what: str, name: str) -> Ids:
    """Ids that go with the ``n`` rows of the array ``name``."""
    array = parse_ids(ids, what)
    if len(array) != n:
        raise ValueError(f"{what} has {len(array)} entries for {n} rows of {name}")
    return array


def check_distinct(ids: Ids, what: str = "ids") -> None:
    """Refuse ids that occur twice in one call."""
    if len(ids) < 2 or (ids.dtype.kind == "i" and bool((ids[1:] > ids[:-1]).all())):
        return
    ordered = np.sort(ids)
    is_repeated = ordered[1:] == ordered[:-1]
    if is_repeated.any():
        repeated = np.unique(ordered[1:][is_repeated])
        raise DuplicateIdError(f"{what} given more than once: {name_some(repeated)}")
