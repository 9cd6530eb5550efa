"""Tables that a client imports: Parquet, CSV, Arrow/Feather and npz, a part at a time.

Columns are matched by their names; a table may have others, which are not looked at.  Anything
wrong is said with its row (the first one below the header is row 1) and column, and nothing has
been imported then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats
from fedforget.clustering.grid import Grid
from fedforget.clustering.ids import Ids, parse_ids
from fedforget.errors import FedforgetError, OutOfBoundsError
from fedforget.incoming import IncomingFileError, Npz, open_npz, unpacked_at_most
from fedforget.parties.arrow_sizes import largest_batch
from fedforget.parties.store import LONGEST_ID

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_A_TIME = 16_384


class TableError(FedforgetError, ValueError):
    """A table that cannot be imported."""


class Table:
    """A file with records.

    Parameters
    ----------
    path : the file; its ending tells its format.
    features : the columns to read, in this order.
    id_column : the column with the ids.
    delimiter, encoding : of a CSV file.
    """

    def __init__(
        self,
        path: Path,
        features: Sequence[str],
        id_column: str,
        *,
        delimiter: str = ",",
        encoding: str = "utf-8",
    ) -> None:
        self.path = path
        self.features = list(features)
        self.id_column = id_column
        self.delimiter = delimiter
        self.encoding = encoding
        self.n_rows: int | None = None
        self.columns: list[str] | None = None
        """The names of all columns, once the first part was read."""
        if not path.is_file():
            raise TableError(f"{path}: there is no such file")
        if id_column in self.features:
            raise TableError(f"{id_column!r} is a feature; ids need a column of their own")

    def parts(self) -> Iterator[tuple[Ids, Floats]]:
        """Ids and values, some rows at a time."""
        readers = {
            ".parquet": self._parquet,
            ".csv": self._csv,
            ".feather": self._arrow,
            ".arrow": self._arrow,
            ".npz": self._npz,
        }
        reader = readers.get(self.path.suffix.lower())
        if reader is None:
            known = ", ".join(readers)
            raise TableError(f"{self.path}: the ending must be one of {known}")
        first = 0
        try:
            for ids, values in reader():
                self._check(values, first)
                first += len(values)
                yield ids, values
        except IncomingFileError as error:
            raise TableError(f"{error}; nothing was imported") from None
        except (FedforgetError, GeneratorExit):
            raise
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TableError(
                f"{self.path} cannot be read: {reason}; nothing was imported"
            ) from None
        if first == 0:
            raise TableError(f"{self.path} has no rows")

    def _check(self, values: Floats, first: int) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            row, column = np.argwhere(~finite)[0].tolist()
            raise TableError(
                f"{self._at(first + row, column)} is missing or not a finite number;"
                " nothing was imported"
            )

    def check_inside(self, values: Floats, grid: Grid, first: int) -> None:
        """Refuse values outside the federation's bounds; ``first`` rows came before these."""
        outside = grid.outside(values)
        if outside is not None:
            row, column, _ = outside
            low, high = grid.bounds[column].tolist()
            raise OutOfBoundsError(
                f"{self._at(first + row, column)} is {values[row, column].item()!r}, outside the"
                f" federation's bounds [{low!r}, {high!r}]; nothing was imported"
            )

    def _at(self, row: int, column: int) -> str:
        return f"{self.path}: row {row + 1}, column {self.features[column]!r}"

    def _check_columns(self, names: Sequence[str]) -> None:
        self.columns = list(names)
        wanted = [self.id_column, *self.features]
        missing = [name for name in wanted if name not in names]
        if missing:
            there = ", ".join(map(repr, names[:20]))
            hint = ""
            if len(names) == 1 and self.path.suffix.lower() == ".csv":
                hint = f" (is {self.delimiter!r} its delimiter?)"
            raise TableError(f"{self.path} has no column {missing[0]!r}; it has {there}{hint}")
        twice = [name for name in wanted if list(names).count(name) > 1]
        if twice:
            raise TableError(f"{self.path} has the column {twice[0]!r} twice")

    # -- formats -------------------------------------------------------------------------------

    def _parquet(self) -> Iterator[tuple[Ids, Floats]]:
        import pyarrow.parquet as pq

        # Without reading ahead, and a group at a time, only some of each column is held at once.
        with pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
            self._check_columns(file.schema_arrow.names)
            self.n_rows = file.metadata.num_rows
            columns = [self.id_column, *self.features]
            self._check_unpacked(_largest_group(file.metadata, set(columns)), "row groups")
            groups = range(file.num_row_groups)
            yield from self._batches(
                batch
                for group in groups
                for batch in file.iter_batches(ROWS_AT_A_TIME, row_groups=[group], columns=columns)
            )

    def _arrow(self) -> Iterator[tuple[Ids, Floats]]:
        import pyarrow as pa

        self._check_arrow_sizes()
        with pa.OSFile(str(self.path)) as source:
            with pa.ipc.open_file(source) as file:
                names = file.schema.names
                self._check_columns(names)
            # Other columns may be damaged, or hold types that are not known here: they stay unread.
            fields = sorted(names.index(name) for name in (self.id_column, *self.features))
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            with pa.ipc.open_file(source, options=options) as file:
                yield from self._batches(
                    file.get_batch(number) for number in range(file.num_record_batches)
                )

    def _check_arrow_sizes(self) -> None:
        with self.path.open("rb") as file:
            unpacked = largest_batch(file, self.path.stat().st_size)
        self._check_unpacked(unpacked, "batches")

    def _check_unpacked(self, n_bytes: int, parts: str) -> None:
        """Refuse a small file of which a part takes a large memory."""
        if n_bytes > unpacked_at_most(self.path.stat().st_size):
            raise TableError(
                f"{self.path} unpacks to far more than its own size; if it is meant to, save it"
                f" without compression or in smaller {parts}; nothing was imported"
            )

    def _csv(self) -> Iterator[tuple[Ids, Floats]]:
        import pyarrow as pa

        if len(self.delimiter) != 1:
            raise TableError(f"{self.path}: a delimiter is one character, not {self.delimiter!r}")
        try:
            "".encode(self.encoding)
        except LookupError:
            raise TableError(f"{self.path}: there is no encoding {self.encoding!r}") from None
        with self._open_csv(None) as head:
            self._check_columns(head.schema.names)
        try:
            with self._open_csv(pa.float64()) as batches:
                yield from self._batches(batches)
        except pa.ArrowInvalid as error:
            if "conversion error" in str(error):
                self._refuse_text()
            raise

    def _open_csv(self, kind: pa.DataType | None) -> Any:
        """A reader of the columns wanted, with features of one type; of the header, without."""
        from pyarrow import csv, string

        # With threads, errors would not say which row they mean.
        read = csv.ReadOptions(encoding=self.encoding, block_size=16 << 20, use_threads=False)
        parse = csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        convert = csv.ConvertOptions()
        if kind is not None:
            convert = csv.ConvertOptions(
                column_types=dict.fromkeys(self.features, kind) | {self.id_column: string()},
                include_columns=[self.id_column, *self.features],
                null_values=["", "NA", "N/A", "NaN", "nan", "NULL", "null"],
            )
        return csv.open_csv(
            self.path, read_options=read, parse_options=parse, convert_options=convert
        )

    def _refuse_text(self) -> None:
        """Find the first cell that is not a number, and name it."""
        import pyarrow as pa

        first = 0
        with self._open_csv(pa.string()) as batches:
            for batch in batches:
                cells = [batch.column(name).to_pylist() for name in self.features]
                for row, values in enumerate(zip(*cells, strict=True)):
                    for column, value in enumerate(values):
                        try:
                            float(value)
                        except (TypeError, ValueError):
                            raise TableError(
                                f"{self._at(first + row, column)} is {value!r}, not a number;"
                                " nothing was imported"
                            ) from None
                first += batch.num_rows

    def _batches(self, batches: Any) -> Iterator[tuple[Ids, Floats]]:
        first = 0
        for batch in batches:
            # Arrow believes the offsets, lengths and indices of a file, and reads where they point.
            batch.validate(full=True)
            for at in range(0, batch.num_rows, ROWS_AT_A_TIME):
                part = batch.slice(at, ROWS_AT_A_TIME)
                yield self._ids(part.column(self.id_column), first), self._values(part, first)
                first += part.num_rows
        _give_memory_back()

    def _ids(self, column: pa.Array, first: int) -> Ids:
        ids = column.to_pylist()
        for nothing in (None, ""):
            if nothing in ids:
                raise TableError(
                    f"{self.path}: row {first + ids.index(nothing) + 1} has no id in column"
                    f" {self.id_column!r}; nothing was imported"
                )
        return self._parsed(ids, first)

    def _parsed(self, ids: Any, first: int) -> Ids:
        try:
            parsed = parse_ids(ids, self.id_column)
        except (TypeError, ValueError) as error:
            raise TableError(
                f"{self.path}, from row {first + 1} on: {error}; nothing was imported"
            ) from None
        # The longest code point takes four bytes, and one tells the type.
        if parsed.dtype.kind == "U" and parsed.dtype.itemsize >= LONGEST_ID:
            for row, one in enumerate(parsed.tolist(), first + 1):
                if len(one.encode()) >= LONGEST_ID:
                    raise TableError(
                        f"{self.path}: the id in row {row} is longer than {LONGEST_ID - 1} bytes;"
                        " nothing was imported"
                    )
        return parsed

    def _values(self, batch: pa.RecordBatch, first: int) -> Floats:
        import pyarrow as pa

        out = np.empty((batch.num_rows, len(self.features)))
        for at, name in enumerate(self.features):
            column = batch.column(name)
            if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
                raise TableError(
                    f"{self.path}: column {name!r} holds {column.type}, not numbers;"
                    " nothing was imported"
                )
            out[:, at] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return out

    def _npz(self) -> Iterator[tuple[Ids, Floats]]:
        with open_npz(self.path) as file:
            values = self._matrix(file) if "X" in file and "feature_names" in file else None
            if values is None:
                self._check_columns(list(file))
                columns = [self._numbers(file, name, 1) for name in self.features]
                values = np.column_stack(columns).astype(np.float64)
            if self.id_column not in file:
                raise TableError(f"{self.path} has no array {self.id_column!r} with the ids")
            ids = self._parsed(file[self.id_column], 0)
        if len(ids) != len(values):
            raise TableError(f"{self.path} has {len(ids)} ids and {len(values)} rows")
        self.n_rows = len(ids)
        for at in range(0, len(ids), ROWS_AT_A_TIME):
            yield ids[at : at + ROWS_AT_A_TIME], values[at : at + ROWS_AT_A_TIME]

    def _matrix(self, file: Npz) -> Floats:
        """The features' columns of the array X."""
        found = file["feature_names"]
        if found.ndim != 1:
            raise TableError(f"{self.path}: feature_names must have one dimension")
        names = [str(name) for name in found.tolist()]
        self._check_columns([self.id_column, *names])
        table = self._numbers(file, "X", 2)
        if table.shape[1] != len(names):
            raise TableError(
                f"{self.path}: X has {table.shape[1]} columns and feature_names {len(names)} names"
            )
        values: Floats = table[:, [names.index(name) for name in self.features]].astype(np.float64)
        return values

    def _numbers(self, file: Npz, name: str, dimensions: int) -> npt.NDArray[Any]:
        found = file[name]
        if found.ndim != dimensions:
            words = {1: "one dimension", 2: "two dimensions"}[dimensions]
            raise TableError(f"{self.path}: {name} must have {words}")
        if found.dtype.kind not in "iuf":
            raise TableError(
                f"{self.path}: {name!r} holds {found.dtype}, not numbers; nothing was imported"
            )
        return found


def _largest_group(metadata: Any, columns: set[str]) -> int:
    """The bytes of some columns in the row group in which they have most."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = ([group.column(at) for at in range(group.num_columns)] for group in groups)
    sizes = (
        sum(one.total_uncompressed_size for one in group if one.path_in_schema in columns)
        for group in chunks
    )
    return max(sizes, default=0)


def _give_memory_back() -> None:
    """Arrow keeps what it has freed; what follows an import needs the memory."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
