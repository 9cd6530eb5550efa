"""Making a client's records equal to a source: tonight's export, a query, a file.

New records are learnt, changed ones replaced, and those that the source no longer has are forgotten
by a request, as if somebody had asked for it.  All of it is one transaction.  Afterwards nothing
tells that the records did not come by one import of the source.

A source is read once, beside a keyed digest of each record that is held: neither the records nor
the source are in memory as a whole.  New records go to the store at once, and so do changed ones if
they are many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints
from fedforget.clustering.ids import IdIndex, Ids
from fedforget.clustering.prf import Keys, keys_of_messages
from fedforget.errors import DuplicateIdError
from fedforget.parties import receipts
from fedforget.parties.erasures import note_erasure
from fedforget.parties.errors import ClientError
from fedforget.parties.gate import Gate
from fedforget.parties.held_records import HeldRecords
from fedforget.parties.importing import Progress
from fedforget.parties.imports import note_import
from fedforget.parties.log import now
from fedforget.parties.record_change import RecordChange
from fedforget.parties.sources import Source
from fedforget.parties.store import (
    EncodedIds,
    Request,
    Store,
    decoded_id,
    encoded_ids,
    keys_of_stored,
)
from fedforget.parties.suppression import SuppressionList

COLUMNS = "columns"
"""The value of a client's store that names the columns of its last source."""

EXAMPLES = 5
"""So many ids of each kind are shown."""

_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%")
_NUMBER = re.compile(r"\d{1,18}")
_FEW = 8
"""Changes are few if they are at most one eighth of the records: these wait in memory."""

_NOWHERE = np.empty(0, dtype=np.int64)

Flags = npt.NDArray[np.bool_]


class SyncError(ClientError):
    """A source that a client does not follow; nothing has changed."""


@dataclass(frozen=True)
class Brake:
    """How many records one sync may remove.

    Attributes
    ----------
    number : at most this many; None if a share is meant.
    share : this share of the stored records, rounded down.
    least : this number, if the share is less.
    """

    number: int | None = None
    share: Fraction = Fraction(5, 100)
    least: int = 10

    @classmethod
    def parse(cls, text: str) -> Brake:
        """A number or a percentage.

        >>> Brake.parse("20").most(1000), Brake.parse("2.5%").most(1000), Brake().most(100)
        (20, 25, 10)
        """
        if _NUMBER.fullmatch(text):
            return cls(number=int(text))
        found = _SHARE.fullmatch(text)
        if found is None or Fraction(found.group(1)) > 100:
            raise SyncError(
                f"--max-removed takes a number of records or a percentage, such as 200 or 5%, not"
                f" {text!r}"
            )
        return cls(share=Fraction(found.group(1)) / 100, least=0)

    def most(self, stored: int) -> int:
        """How many of so many stored records may go."""
        if self.number is not None:
            return self.number
        return max(self.least, int(self.share * stored))


@dataclass(frozen=True)
class SyncRules:
    """What a sync may do.

    Attributes
    ----------
    brake : how many records may go.
    again : let ids in that were forgotten before.
    new_columns : the source may lack columns that the last one had.
    dry_run : change nothing.
    """

    brake: Brake = field(default_factory=Brake)
    again: bool = False
    new_columns: bool = False
    dry_run: bool = False


@dataclass
class Kind:
    """Records to which the same happens: how many, and the ids of some."""

    count: int = 0
    examples: list[int | str] = field(default_factory=list)

    def add(self, encoded: Sequence[bytes]) -> None:
        self.count += len(encoded)
        wanted = EXAMPLES - len(self.examples)
        self.examples += [decoded_id(one) for one in encoded[:wanted]]


@dataclass(frozen=True)
class Synced:
    """What a sync did or, as a dry run, would do.

    Attributes
    ----------
    added, changed, removed, kept_out : the records, by what happens to them.
    incomplete : those of the removed ones that the source has, but with a value missing.
    records : how many are held afterwards.
    refusal : why the source would be refused; only a dry run has one.
    request : the name of the request by which records were removed, None if none was.
    salt : of that request.
    reseeded : the first seed that is another one than before, from 1; None if all stand.
    """

    added: Kind
    changed: Kind
    removed: Kind
    kept_out: Kind
    incomplete: Kind
    records: int
    refusal: str | None = None
    request: str | None = None
    salt: str | None = None
    reseeded: int | None = None

    @property
    def kinds(self) -> dict[str, Kind]:
        return {
            "added": self.added,
            "changed": self.changed,
            "removed": self.removed,
            "kept_out": self.kept_out,
            "incomplete": self.incomplete,
        }


class Comparison:
    """A source beside the records that are held.

    Parameters
    ----------
    held : what the client holds.
    gate : says which ids may come in.
    writes : whether new records go to the store.

    Attributes
    ----------
    rows, ids : of the records that were held.
    seen, changed : which of them the source has, and with other values.
    left_out : which of them it has in a row that was left out, because a value is missing.
    """

    def __init__(self, held: HeldRecords, gate: Gate, *, writes: bool) -> None:
        self._store, self._grid, self._secret = held.store, held.config.grid, held.secret
        self._digest_key = held.secret.derive("values of records")
        self._gate, self._writes = gate, writes
        self._index = IdIndex()
        self._read_held()
        n = len(self.rows)
        self.seen, self.changed = np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_)
        self.left_out = np.zeros(n, dtype=np.bool_)
        self._pending: list[tuple[Ints, Floats]] = []
        self._change = RecordChange(held, self._rows_of(held.clusters().seed_ids))
        self.kinds = {name: Kind() for name in ("added", "changed", "kept_out")}
        self.n_rows = 0

    def _read_held(self) -> None:
        """Note where every record is, and the digest of its values."""
        rows, ids, digests = [_NOWHERE], [np.empty(0, dtype="S1")], [Keys.none()]
        n = 0
        for some, names, values in self._store.records(self._grid.n_features):
            self._index.put(keys_of_stored(self._secret, names), n + np.arange(len(some)))
            rows.append(some)
            ids.append(names)
            digests.append(self._digests(values))
            n += len(some)
        self.rows, self.ids = np.concatenate(rows), np.concatenate(ids)
        self._held = Keys(*map(np.concatenate, zip(*digests, strict=True)))

    def _rows_of(self, seeds: Sequence[bytes]) -> dict[bytes, int]:
        """Where the seeds are."""
        here = np.isin(self.ids, np.array(seeds, dtype=np.bytes_))
        return dict(zip(self.ids[here].tolist(), self.rows[here].tolist(), strict=True))

    def _digests(self, values: Floats) -> Keys:
        """A keyed digest of each row, in which every bit counts: -0.0 is not 0.0.

        It has 128 bits, and nobody without the client's secret can look for two rows with one.
        """
        content = np.ascontiguousarray(values, dtype="<f8")
        offsets = np.arange(len(values) + 1, dtype=np.int64) * (8 * values.shape[1])
        return keys_of_messages(self._digest_key, content.tobytes(), offsets)

    def take(self, source: Source, ids: Ids, values: Floats) -> None:
        """Compare some rows of the source with what is held."""
        source.check_inside(values, self._grid, self.n_rows)
        encoded = encoded_ids(ids.tolist())
        keys = keys_of_stored(self._secret, np.array(encoded, dtype=np.bytes_))
        held = self._look_up(source, encoded, keys)
        self.n_rows += len(encoded)
        admitted = np.zeros(len(encoded), dtype=np.bool_)
        admitted[self._gate.admitted(source, encoded)] = True
        self._keep_out(encoded, held, admitted)
        self._compare(encoded, values, held, np.flatnonzero(admitted & (held >= 0)))
        self._add(encoded, values, keys, np.flatnonzero(admitted & (held < 0)))

    def note_left_out(self, ids: Ids) -> None:
        """Note which records are held of rows that the source leaves out."""
        encoded = np.array(encoded_ids(ids.tolist()), dtype=np.bytes_)
        at = self._index.find(keys_of_stored(self._secret, encoded))
        self.left_out[at[(at >= 0) & (at < len(self.rows))]] = True

    def _look_up(self, source: Source, encoded: list[bytes], keys: Keys) -> Ints:
        """Where each id is among those held, -1 if it is not; refuses one that comes twice."""
        n = len(self.rows)
        at = self._index.find(keys)
        twice = at >= n
        known = np.flatnonzero((at >= 0) & ~twice)
        twice[known] = self.seen[at[known]]
        again = np.ones(len(known), dtype=np.bool_)
        again[np.unique(at[known], return_index=True)[1]] = False
        twice[known[again]] = True
        new = np.flatnonzero(at < 0)
        # Every handle from n on says that the source has had the id, whatever became of it.
        handles = np.full(len(new), n, dtype=np.int64)
        fresh = self._index.put(Keys(keys.low[new], keys.high[new]), handles)
        twice[new[~fresh]] = True
        if twice.any():
            first = int(twice.argmax())
            raise DuplicateIdError(
                f"{source.path}: the id {decoded_id(encoded[first])!r} occurs twice (again in"
                f" {source.place(first)}); nothing was changed"
            )
        self.seen[at[known]] = True
        return at

    def _keep_out(self, encoded: list[bytes], held: Ints, admitted: Flags) -> None:
        """Count those who stay out; nobody who stays out may be held."""
        out = np.flatnonzero(~admitted)
        if (held[out] >= 0).any():
            many = int(np.count_nonzero(held[out] >= 0))
            raise SyncError(
                f"{many} of the records that are held were forgotten before: this directory was"
                " restored from a backup. Run client recover first; nothing was changed"
            )
        self.kinds["kept_out"].add([encoded[one] for one in out.tolist()])

    def _compare(self, encoded: list[bytes], values: Floats, held: Ints, some: Ints) -> None:
        """Note the values that differ."""
        at, new = held[some], values[some]
        found = self._digests(new)
        other = (found.low != self._held.low[at]) | (found.high != self._held.high[at])
        self.changed[at[other]] = True
        self.kinds["changed"].add([encoded[one] for one in some[other].tolist()])
        if self._writes and other.any():
            self._pending.append((at[other], new[other]))
            if _FEW * self.kinds["changed"].count > len(self.rows):
                self._overwrite()

    def _overwrite(self) -> None:
        """Give changed records their new values in the store."""
        for at, values in self._pending:
            self._change.overwrite(self.rows[at], values)
        self._pending.clear()

    def _add(self, encoded: list[bytes], values: Floats, keys: Keys, some: Ints) -> None:
        names = [encoded[one] for one in some.tolist()]
        self.kinds["added"].add(names)
        if self._writes and names:
            self._change.add(names, values[some], Keys(keys.low[some], keys.high[some]))

    def change_records(self) -> int | None:
        """Erase and replace what differs; returns the first step whose seed is another one."""
        # What was only needed to compare.
        self._index, self._held = IdIndex(), Keys.none()
        self._change.remove(self.rows[~self.seen])
        while self._pending:
            at, values = self._pending.pop()
            self._change.replace(self.rows[at], self.ids[at], values)
        return self._change.finish()

    @property
    def n_removed(self) -> int:
        return len(self.rows) - int(np.count_nonzero(self.seen))

    @property
    def n_records(self) -> int:
        """How many records there are afterwards."""
        return len(self.rows) - self.n_removed + self.kinds["added"].count

    def held_ids(self) -> Collection[bytes]:
        """The encoded ids that were held; made when somebody looks at them."""
        return _Listed(self.ids)

    def removed_ids(self) -> list[bytes]:
        """The encoded ids that the source no longer has."""
        gone: list[bytes] = self.ids[~self.seen].tolist()
        return gone

    def incomplete_ids(self) -> list[bytes]:
        """Those of them that it has, but with a value missing."""
        gone: list[bytes] = self.ids[self.left_out & ~self.seen].tolist()
        return gone


class Synchroniser:
    """Makes the records of one client follow sources.

    Parameters
    ----------
    held : what the client holds.
    """

    def __init__(self, held: HeldRecords) -> None:
        self._held = held
        self._store, self._config = held.store, held.config
        self.request: Request | None = None
        """The request by which records were removed, once it is stored."""

    def run(
        self,
        source: Source,
        rules: SyncRules,
        suppression: SuppressionList,
        progress: Progress | None = None,
    ) -> Synced:
        """Compare, and unless it is a dry run make the change, in a transaction of the caller."""
        waiting = {one.name for one in self._store.requests()}
        gate = Gate(suppression, waiting, rules.again, waits=True)
        found = Comparison(self._held, gate, writes=not rules.dry_run)
        # An export that writes 5 as 5.0 would forget everybody, and learn them under other names.
        source.beside(found.held_ids())
        source.tell_left_out(found.note_left_out)
        for ids, values in source.parts():
            if found.n_rows == 0 and not rules.new_columns:
                self._check_columns(source)
            found.take(source, ids, values)
            if progress is not None:
                progress(len(ids))
        if found.n_rows and not rules.new_columns:
            # Of several files, a later one may lack what the first one had.
            self._check_columns(source)
        if found.n_rows == 0:
            raise SyncError(
                f"{source.path} has no rows: a source that is empty by mistake would erase"
                " everything. To erase all records on purpose, name them to client forget, or"
                " leave with client leave; nothing was changed"
            )
        removed, incomplete = Kind(), Kind()
        removed.add(found.removed_ids())
        incomplete.add(found.incomplete_ids())
        refusal = self._refusal(found, incomplete.count, rules.brake)
        kinds = found.kinds
        done = Synced(
            added=kinds["added"],
            changed=kinds["changed"],
            removed=removed,
            kept_out=kinds["kept_out"],
            incomplete=incomplete,
            records=found.n_records,
            refusal=refusal,
        )
        if rules.dry_run:
            return done
        if refusal is not None:
            raise SyncError(f"{refusal}; nothing was changed")
        return self._make(source, found, done, gate, suppression)

    # -- brakes --------------------------------------------------------------------------------

    def _check_columns(self, source: Source) -> None:
        """Refuse a source that lacks columns: it is not what the last one was."""
        last: list[str] = self._store.get(COLUMNS, [])
        gone = [name for name in last if name not in (source.columns or ())]
        if gone:
            named = ", ".join(map(repr, gone[:EXAMPLES]))
            more = f" and {len(gone) - EXAMPLES} more" if len(gone) > EXAMPLES else ""
            raise SyncError(
                f"{source.path} has no column {named}{more}, which the last source had; nothing"
                " was changed. If its columns have changed on purpose, add --new-columns"
            )

    def _refusal(self, found: Comparison, n_incomplete: int, brake: Brake) -> str | None:
        stored, most = len(found.rows), brake.most(len(found.rows))
        if found.n_removed > most:
            holes = f" (or miss a value there: {n_incomplete})" if n_incomplete else ""
            return (
                f"{found.n_removed} of {stored} stored records are not in the source any more"
                f"{holes}, and a sync removes at most {most}. Is the export complete, and are its"
                " ids those of the last one? Look with --dry-run; --max-removed"
                f" {found.n_removed} lets them go"
            )
        if found.n_records > self._config.max_records:
            return (
                f"{found.n_records} records do not fit: this grid has room for"
                f" {self._config.max_records}"
            )
        return None

    # -- the change ----------------------------------------------------------------------------

    def _make(
        self,
        source: Source,
        found: Comparison,
        done: Synced,
        gate: Gate,
        suppression: SuppressionList,
    ) -> Synced:
        names = found.removed_ids()
        first = found.change_records()
        reseeded = None if first is None else first + 1
        salt = None
        if names:
            salt = os.urandom(receipts.SALT_BYTES)
            ids = {one: decoded_id(one) for one in names}
            self.request = note_erasure(self._store, suppression, ids, salt, reseeded)
        gate.let_in(self._store)
        note_import(self._store, now(), done.added.count + done.changed.count)
        remember_columns(self._store, source.columns)
        return replace(
            done,
            request=None if self.request is None else self.request.name,
            salt=None if salt is None else salt.hex(),
            reseeded=reseeded,
        )


class _Listed(Collection[bytes]):
    """An array as a collection: bytes of their own for all ids would be there for long."""

    def __init__(self, ids: EncodedIds) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._ids.tolist())

    def __contains__(self, one: object) -> bool:
        return one in self._ids


def remember_columns(store: Store, columns: Sequence[str] | None) -> None:
    """Note the names of a source's columns, for the sync that follows."""
    if columns is not None and store.get(COLUMNS) != list(columns):
        store.put(COLUMNS, list(columns))
