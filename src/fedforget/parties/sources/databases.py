"""Queries: PostgreSQL by ADBC, SQLite, and DuckDB; each result is read as it comes in.

A query only reads.  PostgreSQL runs it in a transaction that may not write, and the files of SQLite
and DuckDB are opened for reading.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedforget.arrays import Floats
from fedforget.incoming import IncomingFileError, read_text
from fedforget.parties.sources.addresses import Address
from fedforget.parties.sources.arrow_columns import parts_of
from fedforget.parties.sources.cells import ids_and_values
from fedforget.parties.sources.queries import only_query
from fedforget.parties.sources.reader import (
    ROWS_AT_A_TIME,
    RawIds,
    Reader,
    TableError,
    Wanted,
    check_installed,
)

_LONGEST_QUERY = 1 << 20
_BATCH_BYTES = 4 << 20


def read_query(path: Path) -> str:
    """The text of a file with a query."""
    try:
        return read_text(path, _LONGEST_QUERY)
    except IncomingFileError as error:
        raise TableError(f"--sql: {error}") from None


_ABOUT_A_VALUE = re.compile(
    r"invalid input syntax|out of range|could not convert|malformed", re.IGNORECASE
)
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


def without_values(message: str) -> str:
    """A driver's message without the value that it is about, which may be a patient's.

    >>> without_values('invalid input syntax for type numeric: "Smith"')
    'invalid input syntax for type numeric: …'
    >>> without_values('column "agee" does not exist')
    'column "agee" does not exist'
    """
    return _QUOTED.sub("…", message) if _ABOUT_A_VALUE.search(message) else message


class QueryReader(Reader):
    """The result of a query."""

    def __init__(self, address: Address, query: str, wanted: Wanted) -> None:
        super().__init__(address.name, wanted)
        self._address = address
        self._text = query

    @property
    def _query(self) -> str:
        return only_query(self._text, f"{self.name}: --sql")

    def explained(self, error: Exception) -> str:
        return without_values(self._address.cleaned(str(error)))

    def _existing(self) -> str:
        """The database's file; a driver would make one that is not there."""
        assert self._address.file is not None
        if not Path(self._address.file).is_file():
            raise TableError(f"{self.name}: there is no such database")
        return self._address.file


class PostgresReader(QueryReader):
    """A query of a PostgreSQL server.  Its own variables and files complete the address."""

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        check_installed("adbc_driver_postgresql", "sql", "PostgreSQL")
        from adbc_driver_postgresql import StatementOptions, dbapi

        with ExitStack() as stack:
            connection = stack.enter_context(dbapi.connect(self._address.uri))
            cursor = stack.enter_context(connection.cursor())
            cursor.execute("SET TRANSACTION READ ONLY")
            size = StatementOptions.BATCH_SIZE_HINT_BYTES.value
            cursor.adbc_statement.set_options(**{size: str(_BATCH_BYTES)})
            cursor.execute(self._query)
            batches = cursor.fetch_record_batch()
            self.check_columns(batches.schema.names)
            yield from parts_of(self, (batch.select(self.wanted.columns) for batch in batches))


def _text(stored: bytes) -> str:
    """Text of SQLite; bytes that are not UTF-8 become characters that no id may have."""
    return stored.decode("utf-8", "surrogateescape")


class SqliteReader(QueryReader):
    """A query of an SQLite file.

    Python's own driver reads it: a value of SQLite has a type of its own, and ADBC's driver takes
    that of the first rows for all, so a column that begins with NULLs could not be read.
    """

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        place = f"file:{quote(self._existing())}?mode=ro"
        with closing(sqlite3.connect(place, uri=True)) as connection:
            # Text that is none does no harm in a column that is not wanted.
            connection.text_factory = _text
            cursor = connection.execute(self._query)
            names = [column[0] for column in cursor.description or ()]
            self.check_columns(names)
            columns = [names.index(name) for name in self.wanted.columns]
            first = 0
            while rows := cursor.fetchmany(ROWS_AT_A_TIME):
                yield ids_and_values(self, rows, columns, first)
                first += len(rows)


class DuckdbReader(QueryReader):
    """A query of a DuckDB file."""

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        check_installed("duckdb", "duckdb", "DuckDB")
        import duckdb

        # A query must not make it load programs from the network.
        settings: dict[str, Any] = {"autoinstall_known_extensions": "false"}
        with duckdb.connect(self._existing(), read_only=True, config=settings) as connection:
            result: Any = connection.sql(self._query)
            if result is None:
                raise TableError(f"{self.name}: --sql must hold one query that gives rows")
            names = list(result.columns)
            self.check_columns(names)
            kinds = dict(zip(names, map(str, result.types), strict=True))
            for name in self.wanted.columns:
                if kinds[name] == "UHUGEINT":
                    # What has 128 bits is handed over with a sign.
                    raise TableError(
                        f"{self.name}: column {name!r} holds UHUGEINT; cast it in the query, for"
                        " example to HUGEINT or VARCHAR; nothing was imported"
                    )
            self.integers = frozenset(name for name in names if kinds[name] == "HUGEINT")
            batches = result.to_arrow_reader(ROWS_AT_A_TIME)
            yield from parts_of(self, (batch.select(self.wanted.columns) for batch in batches))


_READERS = {"postgresql": PostgresReader, "sqlite": SqliteReader, "duckdb": DuckdbReader}


def query_reader(uri: str, sql: Path, wanted: Wanted) -> QueryReader:
    """The reader of a query, by the address's scheme."""
    address = Address.parse(uri)
    return _READERS[address.kind](address, read_query(sql), wanted)
