"""Small things that several commands show or write."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from fedforget.errors import FedforgetError


def table_of(values: dict[str, Any]) -> Table:
    """Names and values, one a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(name.replace("_", " "), escape(_in_words(value)))
    return table


def _in_words(value: Any) -> str:
    match value:
        case None:
            return "—"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value)) or "—"
        case dict():
            return ", ".join(f"{key}: {item}" for key, item in value.items()) or "—"
    return str(value)


def write_table(path: Path, columns: dict[str, Any]) -> None:
    """Columns as CSV, JSON, npz or Parquet, as the file's ending says."""
    plain = {name: np.asarray(column) for name, column in columns.items()}
    try:
        match path.suffix.lower():
            case ".csv":
                rows = zip(*(column.tolist() for column in plain.values()), strict=True)
                with path.open("w", newline="", encoding="utf-8") as file:
                    writer = csv.writer(file)
                    writer.writerow(plain)
                    writer.writerows([_safe(cell) for cell in row] for row in rows)
            case ".json":
                content = {name: column.tolist() for name, column in plain.items()}
                path.write_text(json.dumps(content, indent=1), encoding="utf-8")
            case ".npz":
                with path.open("wb") as target:
                    np.savez(target, **plain)  # type: ignore[arg-type]
            case ".parquet":
                import pyarrow as pa
                import pyarrow.parquet as pq

                pq.write_table(pa.table({k: pa.array(v.tolist()) for k, v in plain.items()}), path)
            case _:
                raise FedforgetError(f"{path}: the ending must be .csv, .json, .npz or .parquet")
    except OSError as error:
        raise FedforgetError(f"{path} cannot be written: {error.strerror}") from None


def _safe(cell: Any) -> Any:
    """Text that a spreadsheet would take for a formula is quoted."""
    return "'" + cell if isinstance(cell, str) and cell[:1] in "=+-@\t\r" else cell
