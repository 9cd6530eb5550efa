"""A source of records: one reader or several, and what is checked whatever the format is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.grid import Grid
from fedforget.clustering.ids import Ids, parse_ids
from fedforget.errors import FedforgetError, OutOfBoundsError
from fedforget.incoming import IncomingFileError
from fedforget.parties.sources.alike import LookAlikes
from fedforget.parties.sources.missing import MissingValues
from fedforget.parties.sources.options import SourceOptions
from fedforget.parties.sources.reader import RawIds, Reader, TableError, Wanted
from fedforget.parties.sources.watching import Watch
from fedforget.parties.store import LONGEST_ID


class Source:
    """Records, some rows at a time.

    What is wrong with single rows is told at once.  What can only be counted (missing values, ids
    that look alike, a file that has changed) is told when everything was read: whoever reads must
    keep nothing before :meth:`parts` has come to its end.

    Parameters
    ----------
    readers : what is read, one after the other.
    wanted : the columns.
    options : what becomes of missing values and of ids that look alike.
    listing : finds the readers' files again, where a directory or a pattern was given.

    Attributes
    ----------
    path : what messages call the source.
    n_rows : how many rows there are, where that is known.
    columns : the columns that all readers have, once the first part was read.
    dropped, filled : how many rows were left out, and how many values of each column filled.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        wanted: Wanted,
        options: SourceOptions | None = None,
        listing: Callable[[], list[Path]] | None = None,
    ) -> None:
        self._listing = listing
        self._readers = list(readers)
        self._wanted = wanted
        self._options = options or SourceOptions()
        self._held: Collection[bytes] = ()
        more = f" and {len(self._readers) - 1} more" if len(self._readers) > 1 else ""
        self.path: str | Path = f"{self._readers[0].name}{more}"
        self.n_rows: int | None = None
        self.columns: list[str] | None = None
        self.dropped = 0
        self.filled: dict[str, int] = {}
        self._reader_name = str(self.path)
        self._rows: Ints | None = None
        self._tell_left_out: Callable[[Ids], None] | None = None

    @property
    def features(self) -> list[str]:
        return list(self._wanted.features)

    @property
    def id_column(self) -> str:
        return self._wanted.id_column

    def beside(self, held: Collection[bytes]) -> None:
        """Compare numbers among the ids with encoded ids that are held already."""
        self._held = held

    def tell_left_out(self, tell: Callable[[Ids], None]) -> None:
        """Tell the ids of rows that are left out because a value is missing."""
        self._tell_left_out = tell

    def place(self, at: int) -> str:
        """Where a row of the last part stands."""
        row = at if self._rows is None else int(self._rows[at])
        return f"{self._reader_name}: row {row + 1}"

    def _short_place(self, at: int) -> str:
        """The same, without the source's name where that stands before it anyway."""
        place = self.place(at)
        return place if len(self._readers) > 1 else place.removeprefix(f"{self.path}: ")

    def check_inside(self, values: Floats, grid: Grid, first: int) -> None:
        """Refuse values of the last part that lie outside the federation's bounds."""
        outside = grid.outside(values)
        if outside is not None:
            row, column, _ = outside
            low, high = grid.bounds[column].tolist()
            raise OutOfBoundsError(
                f"{self.place(row)}, column {self.features[column]!r} is"
                f" {values[row, column].item()!r}, outside the federation's bounds [{low!r},"
                f" {high!r}]; nothing was imported"
            )

    # -- reading ---------------------------------------------------------------------------------

    def parts(self) -> Iterator[tuple[Ids, Floats]]:
        """Ids and values, some rows at a time.

        Raises
        ------
        TableError
            If anything is wrong; some parts may have been given out before.
        """
        paths = [one.path for one in self._readers if one.path is not None]
        watch = Watch(paths, self._listing)
        fill = self._options.fill
        missing = MissingValues(self.features, self._options.missing == "drop", fill)
        alike = None if self._options.ids_as_is else LookAlikes()
        rows = given = 0
        for reader in self._readers:
            first = 0
            for raw, values in self._read(reader, watch):
                self._note_columns(reader)
                self._reader_name = reader.name
                self._rows = first + np.arange(len(values))
                first += len(values)
                ids = self._parsed(raw)
                self._check_finite(values)
                if alike is not None:
                    alike.see(ids, self._short_place)
                kept = missing.settle(values)
                if kept is not None:
                    if self._tell_left_out is not None:
                        self._tell_left_out(ids[~kept])
                    ids, values, self._rows = ids[kept], values[kept], self._rows[kept]
                if missing.refused or (alike is not None and alike.count):
                    continue  # It is refused; what follows is only counted.
                given += len(ids)
                if len(ids):
                    yield ids, values
            rows += first
        watch.check()
        self.dropped, self.filled = missing.dropped, missing.filled
        if alike is not None:
            alike.compare(self._held)
        problems = [missing.problem()] if missing.refused else []
        problems += [alike.problem()] if alike is not None and alike.count else []
        if problems:
            raise TableError(f"{self.path}: {'; '.join(problems)}. Nothing was imported")
        if rows == 0:
            raise TableError(f"{self.path} has no rows")
        if given == 0:
            raise TableError(f"{self.path}: every row has missing values; nothing was imported")

    def _read(self, reader: Reader, watch: Watch) -> Iterator[tuple[RawIds, Floats]]:
        """The parts of a reader; whatever goes wrong with it is a :class:`TableError`."""
        parts = reader.parts()
        while True:
            try:
                part = next(parts, None)
            except IncomingFileError as error:
                watch.check()
                raise TableError(f"{error}; nothing was imported") from None
            except FedforgetError:
                watch.check()
                raise
            except Exception as error:
                watch.check()
                raise TableError(
                    f"{reader.name} cannot be read: {reader.explained(error)}; nothing was imported"
                ) from None
            if part is None:
                return
            yield part

    def _note_columns(self, reader: Reader) -> None:
        if len(self._readers) == 1:
            self.n_rows = reader.n_rows
        there = reader.columns or []
        known = there if self.columns is None else self.columns
        self.columns = [name for name in known if name in there]

    def _parsed(self, raw: Any) -> Ids:
        """Ids in one form; refused if one is missing, too long, or no id at all."""
        if isinstance(raw, list):
            for nothing in (None, ""):
                if nothing in raw:
                    raise TableError(
                        f"{self.place(raw.index(nothing))} has no id in column"
                        f" {self.id_column!r}; nothing was imported"
                    )
        try:
            parsed = parse_ids(raw, self.id_column)
        except (TypeError, ValueError) as error:
            raise TableError(
                f"{self._reader_name}, from row {self._first_row + 1} on: {error}; nothing was"
                " imported"
            ) from None
        # The longest code point takes four bytes, and one tells the type.
        if parsed.dtype.kind == "U" and parsed.dtype.itemsize >= LONGEST_ID:
            for at, one in enumerate(parsed.tolist()):
                if len(one.encode()) >= LONGEST_ID:
                    raise TableError(
                        f"{self._reader_name}: the id in row {self._first_row + at + 1} is longer"
                        f" than {LONGEST_ID - 1} bytes; nothing was imported"
                    )
        return parsed

    @property
    def _first_row(self) -> int:
        return 0 if self._rows is None else int(self._rows[0])

    def _check_finite(self, values: Floats) -> None:
        infinite = np.isinf(values)
        if infinite.any():
            row, column = np.argwhere(infinite)[0].tolist()
            raise TableError(
                f"{self.place(row)}, column {self.features[column]!r} is not a finite number;"
                " nothing was imported"
            )
