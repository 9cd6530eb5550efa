"""One file with records, under the name that it had before there were other sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedforget.parties.sources.opening import file_reader
from fedforget.parties.sources.options import SourceOptions
from fedforget.parties.sources.reader import ROWS_AT_A_TIME, TableError, Wanted
from fedforget.parties.sources.source import Source

__all__ = ["ROWS_AT_A_TIME", "Table", "TableError"]


class Table(Source):
    """A file with records.

    Parameters
    ----------
    path : the file; its ending tells its format.
    features : the columns to read, in this order.
    id_column : the column with the ids.
    options : how it is read.
    """

    def __init__(
        self,
        path: Path,
        features: Sequence[str],
        id_column: str,
        *,
        delimiter: str | None = None,
        encoding: str = "utf-8",
        ids_as_is: bool = False,
    ) -> None:
        options = SourceOptions(delimiter=delimiter, encoding=encoding, ids_as_is=ids_as_is)
        wanted = Wanted(id_column, tuple(features))
        super().__init__([file_reader(path, wanted, options)], wanted, options)
