"""Tables that a client imports: Parquet, CSV, Arrow/Feather and npz, a part at a time.

Columns are matched by their names; a table may have others, which are not looked at.  Anything
wrong is said with its row and column, and nothing has been imported then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedforget.clustering.distance import Floats
from fedforget.clustering.ids import Ids, parse_ids
from fedforget.errors import FedforgetError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_A_TIME = 65_536


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
        except (FedforgetError, GeneratorExit):
            raise
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise TableError(f"{self.path} cannot be read: {reason}") from None
        if first == 0:
            raise TableError(f"{self.path} has no rows")

    def _check(self, values: Floats, first: int) -> None:
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            row, column = wrong[0].tolist()
            raise TableError(
                f"{self.path}: row {first + row + 1}, column {self.features[column]!r} is missing"
                " or not a finite number"
            )

    def _check_columns(self, names: Sequence[str]) -> None:
        wanted = [self.id_column, *self.features]
        missing = [name for name in wanted if name not in names]
        if missing:
            there = ", ".join(map(repr, names[:20]))
            raise TableError(f"{self.path} has no column {missing[0]!r}; it has {there}")
        twice = [name for name in wanted if list(names).count(name) > 1]
        if twice:
            raise TableError(f"{self.path} has the column {twice[0]!r} twice")

    # -- formats -------------------------------------------------------------------------------

    def _parquet(self) -> Iterator[tuple[Ids, Floats]]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            self._check_columns(file.schema_arrow.names)
            self.n_rows = file.metadata.num_rows
            columns = [self.id_column, *self.features]
            yield from self._batches(file.iter_batches(ROWS_AT_A_TIME, columns=columns))

    def _arrow(self) -> Iterator[tuple[Ids, Floats]]:
        import pyarrow as pa
        import pyarrow.feather

        with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as file:
            self._check_columns(file.schema.names)
            yield from self._batches(
                file.get_batch(number) for number in range(file.num_record_batches)
            )

    def _csv(self) -> Iterator[tuple[Ids, Floats]]:
        import pyarrow as pa
        from pyarrow import csv

        read = csv.ReadOptions(encoding=self.encoding, block_size=16 << 20)
        parse = csv.ParseOptions(delimiter=self.delimiter)
        head = csv.open_csv(self.path, read_options=read, parse_options=parse)
        self._check_columns(head.schema.names)
        types = dict.fromkeys(self.features, pa.float64()) | {self.id_column: pa.string()}
        convert = csv.ConvertOptions(
            column_types=types, include_columns=[self.id_column, *self.features]
        )
        batches = csv.open_csv(
            self.path, read_options=read, parse_options=parse, convert_options=convert
        )
        yield from self._batches(batches)

    def _batches(self, batches: Any) -> Iterator[tuple[Ids, Floats]]:
        first = 0
        for batch in batches:
            yield self._ids(batch.column(self.id_column), first), self._values(batch, first)
            first += batch.num_rows

    def _ids(self, column: pa.Array, first: int) -> Ids:
        if column.null_count:
            empty = column.is_null().to_pylist().index(True)
            raise TableError(
                f"{self.path}: row {first + empty + 1} has no id in column {self.id_column!r}"
            )
        return self._parsed(column.to_pylist(), first)

    def _parsed(self, ids: Any, first: int) -> Ids:
        try:
            return parse_ids(ids, self.id_column)
        except (TypeError, ValueError) as error:
            raise TableError(f"{self.path}, from row {first + 1} on: {error}") from None

    def _values(self, batch: pa.RecordBatch, first: int) -> Floats:
        import pyarrow as pa

        out = np.empty((batch.num_rows, len(self.features)))
        for at, name in enumerate(self.features):
            column = batch.column(name)
            if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
                raise TableError(f"{self.path}: column {name!r} holds {column.type}, not numbers")
            out[:, at] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return out

    def _npz(self) -> Iterator[tuple[Ids, Floats]]:
        with np.load(self.path, allow_pickle=False) as file:
            if "X" in file and "feature_names" in file:
                names = [str(name) for name in file["feature_names"]]
                self._check_columns([self.id_column, *names])
                order = [names.index(name) for name in self.features]
                values = np.asarray(file["X"])[:, order].astype(np.float64)
            else:
                self._check_columns(list(file))
                values = np.column_stack([file[name] for name in self.features]).astype(np.float64)
            if self.id_column not in file:
                raise TableError(f"{self.path} has no array {self.id_column!r} with the ids")
            ids = self._parsed(file[self.id_column], 0)
        if len(ids) != len(values):
            raise TableError(f"{self.path} has {len(ids)} ids and {len(values)} rows")
        self.n_rows = len(ids)
        for at in range(0, len(ids), ROWS_AT_A_TIME):
            yield ids[at : at + ROWS_AT_A_TIME], values[at : at + ROWS_AT_A_TIME]
