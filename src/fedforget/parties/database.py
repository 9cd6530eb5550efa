"""A SQLite file that keeps nothing of what is deleted from it.

``secure_delete`` overwrites what is deleted, and the write-ahead log is emptied after every
transaction and whenever the file is opened.  That alone is not enough: where SQLite moves the rows
of a table between pages, copies can stay behind in the free part of a page, and a later deletion
does not find them.  So nothing that may have to be erased is ever moved: a value has a table of its
own, which is cleared as a whole, and records lie in blobs that are overwritten in place (see
:mod:`fedforget.parties.store`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fedforget.errors import FedforgetError

PAGE_BYTES = 8192
_PAGES_AT_A_TIME = 64
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON", "temp_store = MEMORY")
_OVERWRITES = [(1,)]
_VALUE = "CREATE TABLE value_{} (content BLOB NOT NULL)"


class StoreError(FedforgetError):
    """A store that cannot be used, or cannot take a change; nothing has changed then."""


class ErasureError(StoreError):
    """A change was stored, but what it deleted could not be overwritten yet."""


@dataclass(frozen=True)
class Schema:
    """The tables of a file, and how what they hold must look.

    Attributes
    ----------
    version, statements : the tables.
    too_old : what to do with a file of an earlier version.
    damaged : what to do with a file that holds anything else than this package wrote.
    sound : by the name of a table, what is true of each of its rows.
    values : the types of the single values.  A name that ends in ``_`` is that of many values, each
        with a tag after it.
    """

    version: int
    statements: str
    too_old: str = ""
    damaged: str = "restore it from a backup"
    sound: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def type_of(self, value: str) -> Any:
        """The type of a single value."""
        family = value[: value.rfind("_") + 1]
        return self.values.get(value, self.values.get(family, Any))


class Database:
    """An open file, for this process alone.

    Parameters
    ----------
    path : the file.
    schema : the tables, and their version.
    create : make the file; it must not exist.
    copy : read the file as it is now, whoever uses it, and work on a copy in memory that cannot be
        changed.
    """

    def __init__(
        self, path: Path, schema: Schema, *, create: bool = False, copy: bool = False
    ) -> None:
        self.path = path
        self._schema = schema
        if not create and not path.exists():
            raise StoreError(f"{path} is missing: this is not a party's directory")
        if copy:
            with self._plain_errors():
                self._db = _copy_in_memory(path)
            try:
                self._check_version(schema, False)
                self._check_rows(schema.sound)
            except BaseException:
                self._db.close()
                raise
            return
        try:
            if create:
                path.touch(mode=0o600, exist_ok=False)
            self._db = sqlite3.connect(path, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be opened: {error}") from None
        try:
            self.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            for pragma in _PRAGMAS:
                self.execute(f"PRAGMA {pragma}")
            if self.execute("PRAGMA secure_delete") != _OVERWRITES:
                raise StoreError("this build of SQLite cannot overwrite what is deleted")
            self._empty_old_log()
            self._check_version(schema, create)
            self._check_rows(schema.sound)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def _empty_old_log(self) -> None:
        """A process that was killed may have left a log behind."""
        try:
            self.empty_log()
        except ErasureError as error:
            raise StoreError(f"an earlier change must be completed first: {error}") from None

    def _check_version(self, schema: Schema, create: bool) -> None:
        version = self.execute("PRAGMA user_version")[0][0]
        if create or version == 0:
            with self.transaction():
                for statement in schema.statements.split(";"):
                    self.execute(statement)
                self.execute(f"PRAGMA user_version = {schema.version}")
        elif version > schema.version:
            raise StoreError(
                f"{self.path} has schema {version}, this version of fedforget knows"
                f" {schema.version}; use a newer one"
            )
        elif version < schema.version:
            raise StoreError(f"{self.path} was made by an earlier fedforget: {schema.too_old}")

    def _check_rows(self, sound: Mapping[str, str], values: Sequence[Any] = ()) -> None:
        """Refuse a file with rows that this package did not write: nothing else looks at them.

        SQLite knows types and lengths without reading the contents.
        """
        for table, condition in sound.items():
            query = f"SELECT 1 FROM {table} WHERE ({condition}) IS NOT TRUE LIMIT 1"
            if self.execute(query, values):
                raise self.damage(f"table “{table}”")

    def damage(self, what: str) -> StoreError:
        """The error about something that is stored and cannot be what this package has stored."""
        return StoreError(
            f"{self.path}: the stored {what} is damaged; nothing was changed:"
            f" {self._schema.damaged}"
        )

    def damaged_values(self) -> Iterator[str]:
        """What is wrong with the single values, each of which is one row of a table."""
        rows = self.execute("SELECT name FROM sqlite_schema WHERE name GLOB 'value_*'")
        for (table,) in rows:
            try:
                self.get(table.removeprefix("value_"))
            except StoreError as error:
                yield str(error)

    def strange_tables(self, schema: Schema, values: Iterable[str]) -> list[str]:
        """Whatever this package did not make; ``values`` are the single values that may be here."""
        ours = {
            name: statement
            for statement in map(_one_line, schema.statements.split(";"))
            for name in re.findall(r"CREATE TABLE (\w+)", statement)
        }
        ours |= {f"value_{one}": _one_line(_VALUE.format(one)) for one in values}
        rows = self.execute("SELECT type, name, sql FROM sqlite_schema")
        return sorted(
            f"{kind} {name}"
            for kind, name, statement in rows
            if not name.startswith("sqlite_")
            and (kind != "table" or ours.get(name) != _one_line(statement or ""))
        )

    # -- statements ----------------------------------------------------------------------------

    @contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {_in_words(error)}") from None

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; returns all rows that it gives."""
        with self._plain_errors():
            return self._db.execute(statement, values).fetchall()

    def executemany(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        with self._plain_errors():
            self._db.executemany(statement, values)

    @contextmanager
    def blob(
        self, table: str, column: str, row: int, *, readonly: bool = True
    ) -> Iterator[sqlite3.Blob]:
        """A blob, to be read or overwritten in place."""
        with (
            self._plain_errors(),
            self._db.blobopen(table, column, row, readonly=readonly) as blob,
        ):
            yield blob

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; afterwards nothing of it is left in the write-ahead log."""
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            # SQLite may have rolled back by itself; the log may hold what was not committed.
            with suppress(StoreError):
                if self._db.in_transaction:
                    self.execute("ROLLBACK")
                self.empty_log()
            raise
        self.empty_log()

    def empty_log(self) -> None:
        """Move what the write-ahead log holds to its place, and cut the log off."""
        problem = "another program has it open"
        try:
            busy = self.execute("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        except StoreError as error:
            busy, problem = True, str(error)
        if busy:
            raise ErasureError(
                f"{self.path}: changes are stored, but what they delete could not be overwritten"
                f" yet ({problem}); it will be overwritten when the directory is next used"
            )

    # -- single values -------------------------------------------------------------------------

    def put(self, name: str, content: Any) -> None:
        """Replace a value; the old one is overwritten."""
        data = msgspec.msgpack.encode(content)
        known = self.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (f"value_{name}",))
        if not known:
            self.execute(_VALUE.format(name))
        self.execute(f"DELETE FROM value_{name}")
        self.execute(f"INSERT INTO value_{name} VALUES (?)", (data,))

    def discard(self, name: str) -> None:
        """Erase a value."""
        self.execute(f"DROP TABLE IF EXISTS value_{name}")

    def get(self, name: str, default: Any = None) -> Any:
        """A value, of the type that the schema names; the default where none was put."""
        known = self.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (f"value_{name}",))
        if not known:
            return default
        rows = self.execute(f"SELECT content FROM value_{name} LIMIT 2")
        if len(rows) != 1:
            # A second row could hold anything, and would never be overwritten.
            raise self.damage(name)
        try:
            return msgspec.msgpack.decode(rows[0][0], type=self._schema.type_of(name))
        except (msgspec.DecodeError, TypeError, ValueError):
            raise self.damage(name) from None


def _copy_in_memory(path: Path) -> sqlite3.Connection:
    """A copy of a file as it was after one of its transactions; changes of it are refused.

    The file is locked for some pages at a time, for a millisecond or so: whoever changes it waits
    no longer than that to empty the write-ahead log.  If it changes between two steps, SQLite
    begins the copy again.
    """
    found = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        address = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as source:
            source.backup(found, pages=_PAGES_AT_A_TIME, sleep=0.005)
        found.execute("PRAGMA query_only = ON")
    except BaseException:
        found.close()
        raise
    return found


def erase_database(path: Path) -> None:
    """Overwrite and remove a file, and what SQLite puts beside it."""
    for ending in ("", "-wal", "-shm"):
        one = path.with_name(path.name + ending)
        if one.exists():
            with one.open("r+b") as file:
                file.write(bytes(one.stat().st_size))
            one.unlink()


def _one_line(statement: str) -> str:
    return " ".join(statement.split())


def _in_words(error: sqlite3.Error) -> str:
    match getattr(error, "sqlite_errorname", ""):
        case "SQLITE_FULL":
            return "the disk is full; nothing was changed"
        case name if name.startswith("SQLITE_IOERR"):
            return f"the disk fails to read or write ({name}); is it full? Nothing was changed"
        case name if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            return "it cannot be written; nothing was changed"
        case "SQLITE_BUSY":
            return "another program has it open; nothing was changed"
        case name if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return f"the file is damaged ({error})"
    return str(error)
