"""Small things that several commands show or write."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from rich.table import Table

from fedforget.arrays import NamedArrays
from fedforget.cli.console import listed, safe
from fedforget.errors import FedforgetError
from fedforget.parties.folders import writing_private

TABLES = (".csv", ".json", ".npz", ".parquet")
"""The endings of tables that commands write."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def table_of(values: dict[str, Any]) -> Table:
    """Names and values, one per line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(safe(name.replace("_", " ")), safe(_in_words(value)))
    return table


def _in_words(value: Any) -> str:
    match value:
        case None:
            return "—"
        case bool():
            return "yes" if value else "no"
        case list():
            return listed(value) or "—"
        case dict():
            return listed(f"{key}: {item}" for key, item in value.items()) or "—"
    return str(value)


def fewer_in_words(wanted: Sequence[int], most: int) -> str:
    """That so many clusters cannot be had, and why.

    >>> fewer_in_words([20, 30], 12)
    '20 and 30 clusters were asked for, and at most 12 found: the sum has no more different points.'
    """
    numbers = " and ".join(filter(None, [", ".join(map(str, wanted[:-1])), str(wanted[-1])]))
    found = f"{numbers} clusters were asked for, and at most {most} found"
    return f"{found}: the sum has no more different points."


def check_ending(path: Path, *endings: str) -> None:
    """Refuse a file to be written whose name does not end in one of some endings."""
    if path.suffix.lower() not in endings:
        known = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise FedforgetError(f"{path}: the file name must end in {known}")


def write_table(path: Path, columns: dict[str, Any]) -> None:
    """Columns as CSV, JSON, npz or Parquet, as the file's ending says; for its owner alone."""
    check_ending(path, *TABLES)
    writer = dict(zip(TABLES, (_csv, _json, _npz, _parquet), strict=True))[path.suffix.lower()]
    with writing_private(path) as file:
        writer(file, {name: np.asarray(column) for name, column in columns.items()})


def _csv(file: BinaryIO, columns: NamedArrays) -> None:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        writer = csv.writer(text)
        writer.writerow(map(_no_formula, columns))
        writer.writerows([_no_formula(cell) for cell in row] for row in rows)
    finally:
        text.detach()  # the file is closed by whoever opened it


def _json(file: BinaryIO, columns: NamedArrays) -> None:
    content = {name: column.tolist() for name, column in columns.items()}
    file.write(json.dumps(content, indent=1, allow_nan=False).encode())


def _npz(file: BinaryIO, columns: NamedArrays) -> None:
    import zipfile

    # numpy.savez takes the arrays as keyword arguments, and cannot take one that is named "file".
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, column, allow_pickle=False)


def _parquet(file: BinaryIO, columns: NamedArrays) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: pa.array(column.tolist()) for name, column in columns.items()})
    pq.write_table(table, file)


def _no_formula(cell: Any) -> Any:
    """Text that a spreadsheet would take for a formula is quoted."""
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULAS) else cell
