"""Workbooks of Excel, row by row.

openpyxl reads a sheet as a stream.  Faster readers hold all cells between the first and the last at
once, and a small file can put the last one very far away.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from fedforget.arrays import Floats
from fedforget.parties.sources.cells import ids_and_values
from fedforget.parties.sources.reader import (
    ROWS_AT_A_TIME,
    RawIds,
    Reader,
    TableError,
    Wanted,
    check_installed,
)


class WorkbookReader(Reader):
    """One sheet of a workbook; its first row that is not empty names the columns."""

    def __init__(self, name: str, wanted: Wanted, path: Path, sheet: str | None = None) -> None:
        super().__init__(name, wanted, path)
        self._sheet = sheet

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        check_installed("openpyxl", "excel", "Excel")
        import openpyxl

        assert self.path is not None
        self._check_texts(self.path)
        with warnings.catch_warnings():
            # It warns of what it does not draw: colours, rules, drop-down lists.
            warnings.simplefilter("ignore")
            with closing(openpyxl.load_workbook(self.path, read_only=True, data_only=True)) as book:
                sheet = self._chosen(book)
                # What the file says about the sheet's size need not be true.
                sheet.reset_dimensions()
                # A sheet that is not read to its end would keep the file open.
                with closing(sheet.iter_rows(values_only=True)) as rows:
                    yield from self._rows(rows)

    def _check_texts(self, path: Path) -> None:
        """All texts of a workbook are held at once: they must not be far larger than the file."""
        with zipfile.ZipFile(path) as archive:
            sizes = [one.file_size for one in archive.infolist() if "sharedStrings" in one.filename]
        self.check_unpacked(sum(sizes), "files, or as CSV")

    def _chosen(self, book: Any) -> Any:
        names = [sheet.title for sheet in book.worksheets]
        if self._sheet is None and len(names) == 1:
            return book.worksheets[0]
        if self._sheet in names:
            return book[self._sheet]
        listed = ", ".join(map(repr, names[:20]))
        if self._sheet is None:
            raise TableError(f"{self.name} has the sheets {listed}: choose one with --sheet")
        raise TableError(f"{self.name} has no sheet {self._sheet!r}; it has {listed}")

    def _rows(self, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[RawIds, Floats]]:
        header = next((row for row in rows if any(cell is not None for cell in row)), ())
        names = ["" if cell is None else str(cell) for cell in header]
        if not set(names) & set(self.wanted.columns):
            # What stands there may be a patient: it is not repeated.
            raise TableError(
                f"{self.name} has no column {self.wanted.id_column!r}, and no other that is wanted:"
                " its first row must name the columns; nothing was imported"
            )
        self.check_columns(names)
        columns = [names.index(name) for name in self.wanted.columns]
        full = (row + (None,) * (len(names) - len(row)) for row in _up_to_the_last(rows))
        first = 0
        while part := list(islice(full, ROWS_AT_A_TIME)):
            cells = [[None if cell == "" else cell for cell in row] for row in part]
            yield ids_and_values(self, cells, columns, first)
            first += len(part)


def _up_to_the_last(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """All rows except empty ones at the end, which sheets often have."""
    empty = 0
    for row in rows:
        if all(cell is None for cell in row):
            empty += 1
            continue
        for _ in range(empty):
            yield ()
        empty = 0
        yield row
