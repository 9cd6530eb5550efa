"""The client's store: one SQLite file with the records and the state that follows from them.

Erasing is meant literally: ``secure_delete`` overwrites what is deleted, and the write-ahead log is
emptied after every transaction.  Labels lie apart from the records, thousands to a row, so that
drawing seeds again does not rewrite the records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fedforget.clustering.distance import Floats, Labels
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import encode_id
from fedforget.clustering.prf import Ints
from fedforget.errors import FedforgetError

SCHEMA_VERSION = 1
_LABELS_A_ROW = 4096
_LOOK_UP = 500

_MIGRATIONS = [
    # To version 1.
    """
    CREATE TABLE record (row INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, number BLOB NOT NULL);
    CREATE TABLE label (part INTEGER PRIMARY KEY, labels BLOB NOT NULL);
    CREATE TABLE cluster (
        step INTEGER PRIMARY KEY, seed BLOB NOT NULL, score REAL NOT NULL,
        size INTEGER NOT NULL, position BLOB NOT NULL, sums BLOB NOT NULL
    );
    CREATE TABLE request (
        number INTEGER PRIMARY KEY, time TEXT NOT NULL, records INTEGER NOT NULL,
        digests BLOB NOT NULL, reseeded INTEGER, round INTEGER
    );
    CREATE TABLE receipt (number INTEGER PRIMARY KEY, document TEXT NOT NULL);
    CREATE TABLE value (name TEXT PRIMARY KEY, content BLOB NOT NULL);
    """,
]


class StoreError(FedforgetError):
    """A store that cannot be used."""


@dataclass
class Clusters:
    """A client's local clusters, without its records: what it reports is computed from these."""

    seed_ids: list[bytes]
    scores: Floats
    seeds: Floats
    sizes: Ints
    sums: Ints


class Store:
    """Everything that a client keeps, but for its keys."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and not path.exists():
            raise StoreError(f"{path} is missing: this is no client's directory")
        try:
            if create:
                path.touch(mode=0o600)
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("PRAGMA secure_delete = ON")
            self._db.execute("PRAGMA temp_store = MEMORY")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._migrate()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{path} cannot be opened: {error}") from None

    def close(self) -> None:
        self._db.close()

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"the store has schema {version}, this version of fedforget knows up to"
                f" {SCHEMA_VERSION}; use a newer one"
            )
        for number in range(version, SCHEMA_VERSION):
            with self.transaction():
                for statement in _MIGRATIONS[number].split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number + 1}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; afterwards nothing of it is left in the write-ahead log."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        self.empty_log()

    def empty_log(self) -> None:
        """Move what the write-ahead log holds to its place, and cut the log off."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # -- single values -------------------------------------------------------------------------

    def put(self, name: str, content: Any) -> None:
        data = msgspec.msgpack.encode(content)
        self._db.execute("INSERT OR REPLACE INTO value VALUES (?, ?)", (name, data))

    def get(self, name: str, default: Any = None) -> Any:
        row = self._db.execute("SELECT content FROM value WHERE name = ?", (name,)).fetchone()
        return default if row is None else msgspec.msgpack.decode(row[0])

    # -- records -------------------------------------------------------------------------------

    def __len__(self) -> int:
        count: int = self._db.execute("SELECT count(*) FROM record").fetchone()[0]
        return count

    def add(self, ids: Sequence[bytes], values: Floats) -> None:
        """Add records; an id that is there already is refused by the table itself."""
        rows = np.ascontiguousarray(values, dtype="<f8")
        data, width = rows.tobytes(), 8 * rows.shape[1]
        numbers = (data[at : at + width] for at in range(0, len(data), width))
        self._db.executemany(
            "INSERT INTO record (id, number) VALUES (?, ?)", zip(ids, numbers, strict=True)
        )

    def rows_of(self, ids: Sequence[bytes]) -> dict[bytes, int]:
        """Where the records with these ids are; ids that are not there are left out."""
        found: dict[bytes, int] = {}
        for at in range(0, len(ids), _LOOK_UP):
            some = ids[at : at + _LOOK_UP]
            marks = ",".join("?" * len(some))
            query = f"SELECT id, row FROM record WHERE id IN ({marks})"
            found.update(self._db.execute(query, some).fetchall())
        return found

    def values_of(self, rows: Sequence[int], n_features: int) -> Floats:
        """The values of some records."""
        out = np.empty((len(rows), n_features))
        for at, row in enumerate(rows):
            data = self._db.execute("SELECT number FROM record WHERE row = ?", (row,)).fetchone()[0]
            out[at] = np.frombuffer(data, dtype="<f8")
        return out

    def remove(self, rows: Sequence[int]) -> None:
        """Erase records, their ids, values and labels."""
        self._db.executemany("DELETE FROM record WHERE row = ?", ((row,) for row in rows))
        self.set_labels(rows, np.full(len(rows), -1, dtype=np.int32))

    def everything(self, n_features: int) -> tuple[Ints, list[bytes], Floats]:
        """Rows, ids and values of all records, in the order of their ids."""
        n = len(self)
        rows = np.empty(n, dtype=np.int64)
        values = np.empty((n, n_features))
        ids: list[bytes] = []
        cursor = self._db.execute("SELECT row, id, number FROM record ORDER BY id")
        at = 0
        while batch := cursor.fetchmany(_LABELS_A_ROW):
            end = at + len(batch)
            rows[at:end] = [row for row, _, _ in batch]
            ids += [name for _, name, _ in batch]
            joined = b"".join(number for _, _, number in batch)
            values[at:end] = np.frombuffer(joined, dtype="<f8").reshape(-1, n_features)
            at = end
        return rows, ids, values

    # -- labels --------------------------------------------------------------------------------

    def _label_parts(self, parts: Sequence[int]) -> dict[int, Labels]:
        found = {}
        for part in parts:
            row = self._db.execute("SELECT labels FROM label WHERE part = ?", (part,)).fetchone()
            if row is None:
                found[part] = np.full(_LABELS_A_ROW, -1, dtype=np.int32)
            else:
                found[part] = np.frombuffer(row[0], dtype="<i4").astype(np.int32)
        return found

    def labels_of(self, rows: Sequence[int] | Ints) -> Labels:
        """The local cluster of some records."""
        numbers = np.asarray(rows, dtype=np.int64)
        out = np.empty(len(numbers), dtype=np.int32)
        part_of = numbers // _LABELS_A_ROW
        for part, labels in self._label_parts(np.unique(part_of).tolist()).items():
            here = part_of == part
            out[here] = labels[numbers[here] % _LABELS_A_ROW]
        return out

    def set_labels(self, rows: Sequence[int] | Ints, labels: Labels) -> None:
        """Set the local cluster of some records."""
        numbers = np.asarray(rows, dtype=np.int64)
        if not len(numbers):
            return
        part_of = numbers // _LABELS_A_ROW
        order = np.argsort(part_of, kind="stable")
        distinct, starts = np.unique(part_of[order], return_index=True)
        for part, here in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
            content = self._label_parts([part])[part]
            content[numbers[here] % _LABELS_A_ROW] = labels[here]
            data = content.astype("<i4").tobytes()
            self._db.execute("INSERT OR REPLACE INTO label VALUES (?, ?)", (part, data))

    # -- clusters ------------------------------------------------------------------------------

    def clusters(self, n_features: int) -> Clusters:
        rows = self._db.execute(
            "SELECT seed, score, size, position, sums FROM cluster ORDER BY step"
        ).fetchall()
        shape = (len(rows), n_features)
        joined = [b"".join(row[column] for row in rows) for column in (3, 4)]
        return Clusters(
            [row[0] for row in rows],
            np.array([row[1] for row in rows], dtype=np.float64),
            np.frombuffer(joined[0], dtype="<f8").reshape(shape).astype(np.float64),
            np.array([row[2] for row in rows], dtype=np.int64),
            np.frombuffer(joined[1], dtype="<i8").reshape(shape).astype(np.int64),
        )

    def set_clusters(self, clusters: Clusters) -> None:
        self._db.execute("DELETE FROM cluster")
        self._db.executemany(
            "INSERT INTO cluster VALUES (?, ?, ?, ?, ?, ?)",
            (
                (
                    step,
                    seed,
                    float(clusters.scores[step]),
                    int(clusters.sizes[step]),
                    clusters.seeds[step].astype("<f8").tobytes(),
                    clusters.sums[step].astype("<i8").tobytes(),
                )
                for step, seed in enumerate(clusters.seed_ids)
            ),
        )

    # -- requests and receipts -----------------------------------------------------------------

    def add_request(self, time: str, digests: list[str], reseeded: int | None) -> int:
        cursor = self._db.execute(
            "INSERT INTO request (time, records, digests, reseeded) VALUES (?, ?, ?, ?)",
            (time, len(digests), msgspec.msgpack.encode(digests), reseeded),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def requests(self, *, sent: bool | None = None) -> list[dict[str, Any]]:
        """Requests that wait for a commit; ``sent`` tells those in a round from those not."""
        rows = self._db.execute(
            "SELECT number, time, records, digests, reseeded, round FROM request ORDER BY number"
        ).fetchall()
        names = ("number", "time", "records", "digests", "reseeded", "round")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        for one in found:
            one["digests"] = msgspec.msgpack.decode(one["digests"])
        return [one for one in found if sent is None or (one["round"] is not None) == sent]

    def send_requests(self, round_number: int) -> None:
        """Note the round that carries every request made so far."""
        self._db.execute("UPDATE request SET round = ?", (round_number,))

    def unsend_requests(self) -> None:
        self._db.execute("UPDATE request SET round = NULL")

    def close_request(self, number: int, document: str) -> None:
        """A request has its receipt."""
        self._db.execute("DELETE FROM request WHERE number = ?", (number,))
        self._db.execute("INSERT INTO receipt VALUES (?, ?)", (number, document))

    def receipts(self) -> dict[int, str]:
        return dict(self._db.execute("SELECT number, document FROM receipt ORDER BY number"))


def encoded_ids(ids: Sequence[int | str]) -> list[bytes]:
    """The canonical encoding of each id."""
    return [encode_id(one) for one in ids]


def decoded_id(data: bytes) -> int | str:
    """The id that was encoded."""
    if data[:1] == b"i":
        return int.from_bytes(data[1:], "little", signed=True)
    return data[1:].decode()


def plain_histogram(histogram: Histogram | None) -> dict[bytes, int] | None:
    """A histogram as the store keeps it."""
    return None if histogram is None else dict(histogram.items())


def histogram_of(plain: dict[bytes, int] | None, n_features: int) -> Histogram | None:
    return None if plain is None else Histogram(n_features, plain)
