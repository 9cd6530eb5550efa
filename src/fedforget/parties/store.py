"""The client's store: one SQLite file with the records and the state that follows from them.

Records lie in parts of some hundreds: a blob with the ids, one with the values and one with the
labels, each cut into slots of equal size.  A record never moves.  Forgetting one overwrites its
slots where they are, and a new record may get them later.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import encode_id
from fedforget.clustering.prf import Keys, Secret, keys_of_messages
from fedforget.clustering.records import rows_labelled
from fedforget.parties.database import Database, Schema, StoreError
from fedforget.parties.imports import WaitingImport

__all__ = ["Clusters", "Store", "StoreError"]

RowNumbers = Sequence[int] | Ints

EncodedIds = npt.NDArray[np.bytes_]
"""Encoded ids, filled up with zeros to one width."""

MOST_SLOTS = 4096
"""A record's row is its part's number times this, plus its slot."""

LONGEST_ID = 255
"""In bytes, encoded."""

_PART_BYTES = 1 << 18
_FEWEST_SLOTS = 16
_INTEGER_BYTES = 9

_TAGGED = "typeof(tag) = 'text' AND length(tag) = 8 AND tag NOT GLOB '*[^0-9a-f]*'"
_SOUND = {
    "part": "part BETWEEN 1 AND 1 << 40 AND typeof(slots) = 'integer' AND typeof(width) = 'integer'"
    f" AND slots BETWEEN 1 AND {MOST_SLOTS} AND width BETWEEN 1 AND {LONGEST_ID + 1}"
    " AND typeof(labels) = 'blob' AND typeof(ids) = 'blob' AND typeof(number) = 'blob'"
    " AND length(labels) = 4 * slots AND length(ids) = width * slots",
    "cluster": "typeof(seed) = 'blob' AND typeof(score) = 'real' AND typeof(size) = 'integer'"
    " AND size >= 0 AND typeof(position) = 'blob' AND typeof(sums) = 'blob'",
    "request": f"{_TAGGED} AND typeof(time) = 'text' AND typeof(records) = 'integer'"
    " AND records >= 0 AND typeof(digests) = 'blob' AND typeof(reseeded) IN ('null', 'integer')"
    " AND typeof(attempt) IN ('null', 'integer')",
    "receipt": f"{_TAGGED} AND typeof(document) = 'text'",
    "list": "typeof(data) = 'blob'",
    "notice": "typeof(letter) = 'blob'",
}
_SOUND_WITH_FEATURES = {
    "part": "length(number) = 8 * ?1 * slots",
    "cluster": "length(position) = 8 * ?1 AND length(sums) = 8 * ?1",
}


class SuppressionSetting(TypedDict):
    """Where the suppression list lies, if not in the directory, and whether it is kept."""

    path: str | None
    on: bool


SCHEMA = Schema(
    2,
    """
    CREATE TABLE part (
        part INTEGER PRIMARY KEY, slots INTEGER NOT NULL, width INTEGER NOT NULL,
        labels BLOB NOT NULL, ids BLOB NOT NULL, number BLOB NOT NULL
    );
    CREATE TABLE cluster (
        step INTEGER PRIMARY KEY, seed BLOB NOT NULL, score REAL NOT NULL,
        size INTEGER NOT NULL, position BLOB NOT NULL, sums BLOB NOT NULL
    );
    CREATE TABLE request (
        number INTEGER PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, time TEXT NOT NULL,
        records INTEGER NOT NULL, digests BLOB NOT NULL, reseeded INTEGER, attempt INTEGER
    );
    CREATE TABLE receipt (
        number INTEGER PRIMARY KEY, tag TEXT NOT NULL, document TEXT NOT NULL
    );
    CREATE TABLE list (epoch INTEGER PRIMARY KEY, data BLOB NOT NULL);
    CREATE TABLE notice (round INTEGER PRIMARY KEY, letter BLOB NOT NULL)
    """,
    "its rounds cannot be continued. Make a new directory with `client init`, join with it, and"
    " import the records again from their source; receipts stay valid with the earlier fedforget",
    damaged="restore the directory from a backup, then run `client recover`",
    sound=_SOUND,
    values={
        "name": str,
        "federation": str,
        "versions": list[str],
        "ledger": bytes,
        "ledger_seal": bytes,
        "requests_seal": bytes,
        "suppression": SuppressionSetting,
        "let_in": str,
        "changing": str,
        "approved": bytes,
        "columns": list[str],
        "imports": list[WaitingImport],
        "salt_": bytes,
        "not_held_": int,
    },
)


@dataclass
class Clusters:
    """A client's local clusters, without its records: what it reports is computed from these."""

    seed_ids: list[bytes]
    scores: Floats
    centres: Floats
    sizes: Ints
    sums: Ints


class Request(NamedTuple):
    """An erasure request that waits for a commit.

    ``attempt`` is the one whose input carries it, None if none does yet.  ``not_held`` says how
    many more ids it named, where it was for those that are held.
    """

    number: int
    tag: str
    time: str
    records: int
    digests: list[str] | None
    reseeded: int | None
    attempt: int | None
    not_held: int | None = None

    @property
    def name(self) -> str:
        return f"{self.number}-{self.tag}"


class StoredReceipt(NamedTuple):
    """A receipt."""

    number: int
    tag: str
    document: str

    @property
    def name(self) -> str:
        return f"{self.number}-{self.tag}"


class Store(Database):
    """Everything that a client keeps, except its keys.

    Attributes
    ----------
    seal : what tells the requests that were stored from others; they are not sealed where it is
        None.
    """

    def __init__(self, path: Path, *, create: bool = False, copy: bool = False) -> None:
        self.seal: Callable[[bytes], bytes] | None = None
        self._requests_changed = False
        self._free: list[tuple[int, int]] | None = None
        super().__init__(path, SCHEMA, create=create, copy=copy)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; afterwards nothing of it is left in the write-ahead log."""
        self._requests_changed = False
        try:
            with super().transaction():
                yield
                if self._requests_changed:
                    self.seal_requests()
        except BaseException:
            self._free = None
            raise

    def check_features(self, n_features: int) -> None:
        """Refuse records and clusters that do not have so many features."""
        self._check_rows(_SOUND_WITH_FEATURES, (n_features,))

    # -- records -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(len(np.flatnonzero(names != b"")) for _, _, names in self._ids())

    def _ids(self) -> Iterator[tuple[int, int, EncodedIds]]:
        """First row, width and ids of every part; a free slot has an empty id."""
        for (part,) in self.execute("SELECT part FROM part ORDER BY part"):
            query = "SELECT width, ids FROM part WHERE part = ?"
            width, data = self.execute(query, (part,))[0]
            yield part * MOST_SLOTS, width, np.frombuffer(data, dtype=f"S{width}")

    def index(self) -> dict[bytes, int]:
        """The row of every id."""
        found: dict[bytes, int] = {}
        for first, _, names in self._ids():
            found.update(zip(names.tolist(), range(first, first + len(names)), strict=True))
        found.pop(b"", None)
        return found

    def rows_of(self, ids: Iterable[bytes]) -> dict[bytes, int]:
        """Where the records with these ids are; ids that are not there are left out."""
        wanted = frozenset(ids)
        found: dict[bytes, int] = {}
        for first, _, names in self._ids():
            listed = names.tolist()
            for name in wanted.intersection(listed):
                found[name] = first + listed.index(name)
        return found

    def _free_rows(self) -> list[tuple[int, int]]:
        """Rows that hold nothing, and the width of their ids."""
        if self._free is None:
            self._free = [
                (first + slot, width)
                for first, width, names in self._ids()
                for slot in np.flatnonzero(names == b"").tolist()
            ]
        return self._free

    def add(self, ids: Sequence[bytes], values: Floats) -> Ints:
        """Add records, whose ids must not be there; returns their rows."""
        longest = max(map(len, ids), default=0)
        free = [row for row, width in self._free_rows() if width >= longest][: len(ids)]
        taken = set(free)
        self._free = [one for one in self._free_rows() if one[0] not in taken]
        count = len(free)
        self._fill(np.array(free, dtype=np.int64), ids[:count], values[:count])
        width = max(16, -(-longest // 8) * 8)
        fitting = _PART_BYTES // (8 * values.shape[1] + width)
        most = max(_FEWEST_SLOTS, min(MOST_SLOTS, fitting))
        parts = [
            self._add_part(ids[at : at + most], values[at : at + most], most, width)
            for at in range(count, len(ids), most)
        ]
        return np.concatenate([np.array(free, dtype=np.int64), *parts])

    def _fill(self, rows: Ints, ids: Sequence[bytes], values: Floats) -> None:
        """Write records to slots that are free."""
        content = np.ascontiguousarray(values, dtype="<f8")
        for part, slots, here in _by_part(rows):
            width = self.execute("SELECT width FROM part WHERE part = ?", (part,))[0][0]
            names = b"".join(ids[at].ljust(width, b"\0") for at in here.tolist())
            self._overwrite("ids", part, slots, names)
            self._overwrite("number", part, slots, content[here].tobytes())

    def _add_part(self, ids: Sequence[bytes], values: Floats, most: int, width: int) -> Ints:
        """Write records to a new part; returns their rows."""
        n = len(ids)
        slots = min(most, max(_FEWEST_SLOTS, 1 << (n - 1).bit_length()))
        names = np.zeros(slots, dtype=f"S{width}")
        names[:n] = ids
        numbers = np.zeros((slots, values.shape[1]), dtype="<f8")
        numbers[:n] = values
        labels = np.full(slots, -1, dtype="<i4")
        last = self.execute("SELECT coalesce(max(part), 0) FROM part")[0][0]
        self.execute(
            "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
            (last + 1, slots, width, labels.tobytes(), names.tobytes(), numbers.tobytes()),
        )
        first = (last + 1) * MOST_SLOTS
        if n < slots and self._free is not None:
            self._free += [(first + slot, width) for slot in range(n, slots)]
        return np.arange(first, first + n)

    def _overwrite(self, column: str, part: int, slots: Ints, data: bytes) -> None:
        """Write ``data``, a piece for each slot, into a part's column."""
        size = len(data) // len(slots)
        with self.blob("part", column, part, readonly=False) as blob:
            for number, slot in enumerate(slots.tolist()):
                blob.seek(slot * size)
                blob.write(data[number * size : (number + 1) * size])

    def ids_of(self, rows: RowNumbers) -> EncodedIds:
        """The ids of some records."""
        out = [b""] * len(rows)
        for part, slots, here in _by_part(rows):
            width = self.execute("SELECT width FROM part WHERE part = ?", (part,))[0][0]
            with self.blob("part", "ids", part) as blob:
                for at, slot in zip(here.tolist(), slots.tolist(), strict=True):
                    blob.seek(slot * width)
                    out[at] = blob.read(width)
        return np.array(out, dtype=np.bytes_)

    def values_of(self, rows: RowNumbers, n_features: int) -> Floats:
        """The values of some records."""
        out = np.empty((len(rows), n_features))
        size = 8 * n_features
        for part, slots, here in _by_part(rows):
            with self.blob("part", "number", part) as blob:
                for at, slot in zip(here.tolist(), slots.tolist(), strict=True):
                    blob.seek(slot * size)
                    out[at] = np.frombuffer(blob.read(size), dtype="<f8")
        return out

    def set_values(self, rows: RowNumbers, values: Floats) -> None:
        """Overwrite the values of some records where they are."""
        content = np.ascontiguousarray(values, dtype="<f8")
        for part, slots, here in _by_part(rows):
            self._overwrite("number", part, slots, content[here].tobytes())

    def remove(self, rows: RowNumbers, n_features: int) -> None:
        """Erase records: ids, values and labels."""
        if len(rows):
            self._free = None
        for part, slots, _ in _by_part(rows):
            width = self.execute("SELECT width FROM part WHERE part = ?", (part,))[0][0]
            self._overwrite("ids", part, slots, bytes(width * len(slots)))
            self._overwrite("number", part, slots, bytes(8 * n_features * len(slots)))
            self._overwrite("labels", part, slots, b"\xff" * (4 * len(slots)))

    def clear(self) -> None:
        """Erase every record and all that follows from them."""
        self._free = None
        self.execute("DELETE FROM part")
        self.execute("DELETE FROM cluster")

    def rewrite(self, ids: EncodedIds, values: Floats) -> None:
        """Replace all records by these, which may have other features; no cluster is left.

        Everything is cleared as a whole and written anew, so that nothing is moved.
        """
        self.clear()
        self.add(ids.tolist(), values)

    def records(self, n_features: int) -> Iterator[tuple[Ints, EncodedIds, Floats]]:
        """Rows, ids and values of all records, some at a time, in the order of the rows."""
        for first, _, names in self._ids():
            used = np.flatnonzero(names != b"")
            query = "SELECT number FROM part WHERE part = ?"
            data = self.execute(query, (first // MOST_SLOTS,))[0][0]
            numbers = np.frombuffer(data, dtype="<f8").reshape(-1, n_features)
            yield first + used, names[used], numbers[used]

    def everything(self, n_features: int) -> tuple[Ints, EncodedIds, Floats]:
        """Rows, ids and values of all records, in the order of the rows."""
        rows, ids = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype="S1")]
        values = np.empty((len(self), n_features))
        at = 0
        for some, names, numbers in self.records(n_features):
            values[at : at + len(some)] = numbers
            rows.append(some)
            ids.append(names)
            at += len(some)
        return np.concatenate(rows), np.concatenate(ids), values

    def unclean_slots(self, n_features: int) -> int:
        """How many slots without an id still hold values or a label."""
        found = 0
        for first, _, names in self._ids():
            free = names == b""
            query = "SELECT number, labels FROM part WHERE part = ?"
            numbers, labels = self.execute(query, (first // MOST_SLOTS,))[0]
            # As integers: a zero with a sign is a trace, too.
            bits = np.frombuffer(numbers, dtype="<u8").reshape(-1, n_features)
            unclean = bits.any(axis=1) | (np.frombuffer(labels, dtype="<i4") != -1)
            found += int(np.count_nonzero(free & unclean))
        return found

    # -- labels --------------------------------------------------------------------------------

    def labels_of(self, rows: RowNumbers) -> Labels:
        """The local cluster of some records."""
        out = np.empty(len(rows), dtype=np.int32)
        for part, slots, here in _by_part(rows):
            data = self.execute("SELECT labels FROM part WHERE part = ?", (part,))[0][0]
            out[here] = np.frombuffer(data, dtype="<i4")[slots]
        return out

    def rows_labelled(self, clusters: Ints) -> Ints:
        """The rows of all records in some local clusters."""
        found = [np.empty(0, dtype=np.int64)]
        for part, data in self.execute("SELECT part, labels FROM part ORDER BY part"):
            slots = rows_labelled(np.frombuffer(data, dtype="<i4"), clusters)
            found.append(part * MOST_SLOTS + slots)
        return np.concatenate(found)

    def forget_labels(self) -> None:
        """No record belongs to a cluster any more."""
        for (part,) in self.execute("SELECT part FROM part"):
            with self.blob("part", "labels", part, readonly=False) as blob:
                size = len(blob.read())
                blob.seek(0)
                blob.write(b"\xff" * size)

    def set_labels(self, rows: RowNumbers, labels: Labels) -> None:
        """Set the local cluster of some records."""
        for part, slots, here in _by_part(rows):
            with self.blob("part", "labels", part, readonly=False) as blob:
                content = np.frombuffer(blob.read(), dtype="<i4").copy()
                content[slots] = labels[here]
                blob.seek(0)
                blob.write(content.tobytes())

    # -- clusters ------------------------------------------------------------------------------

    def clusters(self, n_features: int) -> Clusters:
        rows = self.execute("SELECT seed, score, size, position, sums FROM cluster ORDER BY step")
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
        """Replace the clusters: cleared as a whole, then written in order (nothing is moved)."""
        self.execute("DELETE FROM cluster")
        self.executemany(
            "INSERT INTO cluster VALUES (?, ?, ?, ?, ?, ?)",
            (
                (
                    step,
                    seed,
                    float(clusters.scores[step]),
                    int(clusters.sizes[step]),
                    clusters.centres[step].astype("<f8").tobytes(),
                    clusters.sums[step].astype("<i8").tobytes(),
                )
                for step, seed in enumerate(clusters.seed_ids)
            ),
        )

    # -- requests and receipts -----------------------------------------------------------------

    def add_request(
        self,
        time: str,
        records: int,
        digests: list[str] | None,
        salt: bytes,
        reseeded: int | None,
        not_held: int | None = None,
    ) -> Request:
        """A request that waits for a round; no digests where it was for everything.

        The tag is random: numbers may come again after a restore, names must not.  The salt has a
        table of its own, so that it can be erased.
        """
        tag = os.urandom(4).hex()
        self._begin_change_of_requests()
        self.execute(
            "INSERT INTO request (tag, time, records, digests, reseeded) VALUES (?, ?, ?, ?, ?)",
            (tag, time, records, msgspec.msgpack.encode(digests), reseeded),
        )
        number: int = self.execute("SELECT last_insert_rowid()")[0][0]
        self.put(f"salt_{tag}", salt)
        if not_held is not None:
            self.put(f"not_held_{tag}", not_held)
        return Request(number, tag, time, records, digests, reseeded, None, not_held)

    def requests(self, attempt: int | None = None) -> list[Request]:
        """Requests that wait for a commit: all, or those that travel with an attempt."""
        rows = self.execute(
            "SELECT number, tag, time, records, digests, reseeded, attempt FROM request"
            " ORDER BY number"
        )
        found = [
            Request(
                number,
                tag,
                time,
                records,
                self._digests(digests),
                reseeded,
                sent,
                self.get(f"not_held_{tag}"),
            )
            for number, tag, time, records, digests, reseeded, sent in rows
        ]
        return [one for one in found if attempt is None or one.attempt == attempt]

    def _digests(self, data: bytes) -> list[str] | None:
        try:
            return msgspec.msgpack.decode(data, type=list[str] | None)
        except (msgspec.DecodeError, ValueError):
            raise self.damage("table “request”") from None

    def _all_of_requests(self) -> bytes:
        """The requests that wait, with their salts, and the last number that was given out."""
        last = self.execute("SELECT seq FROM sqlite_sequence WHERE name = 'request'")
        waiting = [(one, self.salt_of(one.tag)) for one in self.requests()]
        return msgspec.msgpack.encode((last, waiting))

    def seal_requests(self) -> None:
        """Store what tells the requests from others; belongs in a transaction."""
        if self.seal is not None:
            self.put("requests_seal", self.seal(self._all_of_requests()))

    def requests_are_sealed(self) -> bool:
        """Whether the requests are those that were stored."""
        stored = self.get("requests_seal")
        return self.seal is not None and stored == self.seal(self._all_of_requests())

    def _begin_change_of_requests(self) -> None:
        """Refuse to go on with requests that were altered: they would be sealed as they are."""
        known = self.seal is not None and self.get("requests_seal") is not None
        if known and not self._requests_changed and not self.requests_are_sealed():
            raise self.damage("table “request”")
        self._requests_changed = True

    def send_requests(self, attempt: int) -> None:
        """Note the attempt that carries every request made so far."""
        self._begin_change_of_requests()
        self.execute("UPDATE request SET attempt = ?", (attempt,))

    def close_request(self, request: Request, document: str) -> None:
        """A request has its receipt."""
        self._begin_change_of_requests()
        self.execute("DELETE FROM request WHERE number = ?", (request.number,))
        self.discard(f"not_held_{request.tag}")
        self.execute(
            "INSERT INTO receipt VALUES (?, ?, ?)", (request.number, request.tag, document)
        )

    def receipts(self) -> list[StoredReceipt]:
        rows = self.execute("SELECT number, tag, document FROM receipt ORDER BY number")
        return [StoredReceipt(*row) for row in rows]

    def salt_of(self, tag: str) -> bytes | None:
        """The salt of a request, None once it was erased."""
        salt: bytes | None = self.get(f"salt_{tag}")
        return salt

    def erase_salt(self, tag: str) -> None:
        self.discard(f"salt_{tag}")

    def missing_requests(self) -> list[int]:
        """Numbers that were given out and are neither waiting nor have a receipt."""
        rows = self.execute("SELECT seq FROM sqlite_sequence WHERE name = 'request'")
        last = rows[0][0] if rows else 0
        known = self.execute("SELECT number FROM request UNION SELECT number FROM receipt")
        return sorted(set(range(1, last + 1)) - {number for (number,) in known})

    # -- history -------------------------------------------------------------------------------

    def add_list(self, epoch: int, data: bytes) -> None:
        self.execute("INSERT INTO list VALUES (?, ?)", (epoch, data))

    def lists_after(self, epoch: int) -> list[bytes]:
        rows = self.execute("SELECT data FROM list WHERE epoch > ? ORDER BY epoch", (epoch,))
        return [data for (data,) in rows]

    def epochs(self) -> list[int]:
        """The epochs under which lists are stored, in their order."""
        return [epoch for (epoch,) in self.execute("SELECT epoch FROM list ORDER BY epoch")]

    def add_notice(self, round_number: int, letter: bytes) -> None:
        self.execute("INSERT OR REPLACE INTO notice VALUES (?, ?)", (round_number, letter))

    def notices_after(self, round_number: int) -> list[bytes]:
        rows = self.execute(
            "SELECT letter FROM notice WHERE round > ? ORDER BY round", (round_number,)
        )
        return [letter for (letter,) in rows]

    def notice(self, round_number: int) -> bytes | None:
        rows = self.execute("SELECT letter FROM notice WHERE round = ?", (round_number,))
        return rows[0][0] if rows else None


def _by_part(rows: RowNumbers) -> Iterator[tuple[int, Ints, Ints]]:
    """For each part: its number, the slots of its rows, and where those stand in ``rows``."""
    if not len(rows):
        return
    numbers = np.asarray(rows, dtype=np.int64)
    parts, slots = numbers // MOST_SLOTS, numbers % MOST_SLOTS
    order = np.argsort(parts, kind="stable")
    distinct, starts = np.unique(parts[order], return_index=True)
    for part, here in zip(distinct.tolist(), np.split(order, starts[1:]), strict=True):
        yield part, slots[here], here


def encoded_ids(ids: Sequence[int | str]) -> list[bytes]:
    """The canonical encoding of each id, as NumPy keeps it: without the zeros at its end.

    Text ends in none, and an integer has nine bytes: nothing is lost.
    """
    return [encode_id(one).rstrip(b"\0") for one in ids]


def decoded_id(data: bytes) -> int | str:
    """The id that was encoded."""
    if data[:1] == b"i":
        return int.from_bytes(data.ljust(_INTEGER_BYTES, b"\0")[1:], "little", signed=True)
    try:
        return data[1:].decode()
    except UnicodeDecodeError:
        raise StoreError(f"a stored id is damaged: {SCHEMA.damaged}") from None


def keys_of_stored(secret: Secret, ids: EncodedIds) -> Keys:
    """The record keys of ids: those of their whole encodings."""
    width = max(ids.dtype.itemsize, _INTEGER_BYTES)
    table = ids.astype(f"S{width}").view(np.uint8).reshape(len(ids), width)
    lengths = np.where(table[:, 0] == ord("i"), _INTEGER_BYTES, np.strings.str_len(ids))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return keys_of_messages(secret, table[np.arange(width) < lengths[:, None]].tobytes(), offsets)


def plain_histogram(histogram: Histogram | None) -> dict[bytes, int] | None:
    """A histogram as the store keeps it."""
    return None if histogram is None else dict(histogram.items())


def histogram_of(plain: object, n_features: int) -> Histogram | None:
    """A stored histogram; a ValueError if what is stored is not one."""
    if plain is None:
        return None
    return Histogram.checked(n_features, msgspec.convert(plain, dict[bytes, int]))
