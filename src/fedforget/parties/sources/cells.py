"""Rows of Python's own values, as spreadsheets and SQLite give them, as ids and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedforget.arrays import Floats
from fedforget.parties.sources.reader import EXACT, RawIds, Reader, TableError


def ids_and_values(
    reader: Reader, rows: Sequence[Sequence[Any]], columns: Sequence[int], first: int
) -> tuple[RawIds, Floats]:
    """The wanted columns of some rows; ``columns`` says where they are, the ids first."""
    ids = _ids([row[columns[0]] for row in rows])
    values = np.empty((len(rows), len(columns) - 1))
    for at, column in enumerate(columns[1:]):
        cells = [row[column] for row in rows]
        # Most columns hold nothing but floats: those are checked at the speed of NumPy.
        if set(map(type, cells)) != {float}:
            name = reader.wanted.features[at]
            cells = [_number(reader, name, cell, first + row) for row, cell in enumerate(cells)]
        values[:, at] = cells
    return ids, values


def _ids(cells: list[Any]) -> RawIds:
    """Numbers of a spreadsheet are floats: 17.0 is the id 17."""
    found = [
        int(cell) if type(cell) is float and cell.is_integer() and abs(cell) <= EXACT else cell
        for cell in cells
    ]
    kinds = {type(cell) for cell in found if cell is not None}
    if kinds == {int, str}:
        # The decimal text of an integer is the same id.
        found = [str(cell) if type(cell) is int else cell for cell in found]
    return found


def _number(reader: Reader, name: str, cell: Any, row: int) -> float:
    if cell is None:
        return math.nan
    if isinstance(cell, float):
        return cell
    if isinstance(cell, int) and abs(cell) <= EXACT:
        return float(cell)
    what = {str: "text", bytes: "bytes", int: "an integer beyond 2**53"}.get(
        type(cell), f"a {type(cell).__name__}"
    )
    raise TableError(
        f"{reader.name}: row {row + 1}, column {name!r} holds {what}, not a number; make it a"
        " number where it comes from; nothing was imported"
    )
