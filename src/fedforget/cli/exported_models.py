"""Centroids in the tables that ``server model`` writes beside JSON and npz."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import NamedArrays
from fedforget.incoming import (
    MAX_JSON_BYTES,
    IncomingFileError,
    read_bytes,
    read_text,
    unpacked_at_most,
)


def columns_of_csv(path: Path, features: list[str]) -> NamedArrays:
    """The features' columns of a CSV file, as far as they are there."""
    names, rows = _csv(path)
    short = next((at for at, row in enumerate(rows, 1) if len(row) != len(names)), None)
    if short is not None:
        raise IncomingFileError(
            f"{path} does not have as many cells in row {short} as in its first line"
        )
    return {
        name: _numbers(path, name, [row[names.index(name)] for row in rows])
        for name in features
        if name in names
    }


def names_in_csv(path: Path) -> list[str]:
    """The names of all columns of a CSV file."""
    return _csv(path)[0]


def _csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and the rows below them."""
    try:
        rows = list(csv.reader(io.StringIO(read_text(path, MAX_JSON_BYTES), newline="")))
    except csv.Error as error:
        raise IncomingFileError(f"{path} is not proper CSV ({error})") from None
    rows = [row for row in rows if row]
    if not rows:
        raise IncomingFileError(f"{path} is empty")
    # A name that a spreadsheet would take for a formula is written with a quote before it.
    return [name[1:] if name[:1] == "'" else name for name in rows[0]], rows[1:]


def _numbers(path: Path, name: str, cells: list[str]) -> npt.NDArray[Any]:
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        raise IncomingFileError(f"{path} does not hold numbers as {name!r}") from None


def columns_of_parquet(path: Path, features: list[str]) -> NamedArrays:
    """The features' columns of a Parquet file, as far as they are there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = read_bytes(path, MAX_JSON_BYTES)
    try:
        with pq.ParquetFile(pa.py_buffer(data)) as file:
            groups = map(file.metadata.row_group, range(file.num_row_groups))
            if sum(group.total_byte_size for group in groups) > unpacked_at_most(len(data)):
                raise IncomingFileError(f"{path} unpacks to far more than its own size")
            names = [name for name in features if name in file.schema_arrow.names]
            table = file.read(columns=names)
        table.validate(full=True)
        return {name: table.column(name).to_numpy() for name in names}
    except (pa.ArrowException, OSError) as error:
        raise IncomingFileError(f"{path} cannot be read: {error}") from None


def names_in_parquet(path: Path) -> list[str]:
    """The names of all columns of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.py_buffer(read_bytes(path, MAX_JSON_BYTES))) as file:
            return [str(name) for name in file.schema_arrow.names]
    except (pa.ArrowException, OSError) as error:
        raise IncomingFileError(f"{path} cannot be read: {error}") from None
