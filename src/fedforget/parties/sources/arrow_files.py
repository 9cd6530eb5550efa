"""Parquet files, Arrow and Feather files, and Arrow streams."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from fedforget.arrays import Floats
from fedforget.parties.arrow_sizes import CheckedStream, largest_batch
from fedforget.parties.sources.arrow_columns import parts_of
from fedforget.parties.sources.reader import ROWS_AT_A_TIME, RawIds, Reader, Wanted

_MAGIC = b"ARROW1"


class ParquetReader(Reader):
    """A Parquet file."""

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        import pyarrow.parquet as pq

        # Without reading ahead, and a group at a time, only some of each column is held at once.
        with pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
            self.check_columns(file.schema_arrow.names)
            self.n_rows = file.metadata.num_rows
            columns = self.wanted.columns
            self.check_unpacked(_largest_group(file.metadata, set(columns)), "row groups")
            groups = range(file.num_row_groups)
            yield from parts_of(
                self,
                (
                    batch
                    for group in groups
                    for batch in file.iter_batches(
                        ROWS_AT_A_TIME, row_groups=[group], columns=columns
                    )
                ),
            )


class ArrowReader(Reader):
    """An Arrow file; or a stream, if it does not begin like a file."""

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        assert self.path is not None
        with self.path.open("rb") as file:
            beginning = file.read(len(_MAGIC))
        if beginning == _MAGIC:
            yield from self._file(self.path)
        else:
            stream = ArrowStreamReader(self.name, self.wanted, self.path)
            for part in stream.parts():
                self.columns = stream.columns
                yield part

    def _file(self, path: Path) -> Iterator[tuple[RawIds, Floats]]:
        import pyarrow as pa

        with path.open("rb") as file:
            self.check_unpacked(largest_batch(file, path.stat().st_size), "batches")
        with pa.OSFile(str(path)) as source:
            with pa.ipc.open_file(source) as file:
                names = file.schema.names
                self.check_columns(names)
            with pa.ipc.open_file(source, options=_only(names, self.wanted)) as file:
                yield from parts_of(self, map(file.get_batch, range(file.num_record_batches)))


class ArrowStreamReader(Reader):
    """An Arrow stream, in a file or on standard input."""

    def __init__(
        self,
        name: str,
        wanted: Wanted,
        path: Path | None = None,
        stream: IO[bytes] | io.RawIOBase | None = None,
    ) -> None:
        super().__init__(name, wanted, path)
        self._stream = stream

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        import pyarrow as pa

        with ExitStack() as stack:
            stream = self._stream
            if stream is None:
                assert self.path is not None
                stream = stack.enter_context(self.path.open("rb"))
            checked = CheckedStream(stream)
            names = pa.ipc.read_schema(pa.py_buffer(checked.schema)).names
            self.check_columns(names)
            options = _only(names, self.wanted)
            reader = stack.enter_context(pa.ipc.open_stream(checked, options=options))
            yield from parts_of(self, reader)


def _only(names: list[str], wanted: Wanted) -> Any:
    """Other columns may be damaged, or hold types that are not known here: they stay unread."""
    import pyarrow as pa

    return pa.ipc.IpcReadOptions(included_fields=sorted(map(names.index, wanted.columns)))


def _largest_group(metadata: Any, columns: set[str]) -> int:
    """The bytes of some columns in the row group in which they have most."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = ([group.column(at) for at in range(group.num_columns)] for group in groups)
    sizes = (
        sum(one.total_uncompressed_size for one in group if one.path_in_schema in columns)
        for group in chunks
    )
    return max(sizes, default=0)
