"""A client in a directory: records, state, keys, receipts; durable at the end of every call."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.distance import Floats, Labels, nearest
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import IdIndex, Ids, name_some, parse_ids
from fedforget.clustering.partition import FIXED_POINT_BITS, SeededPartition
from fedforget.clustering.prf import Ints, Secret
from fedforget.clustering.records import RecordTable
from fedforget.digests import Digest
from fedforget.errors import DuplicateIdError, FedforgetError, UnknownIdError
from fedforget.parties import receipts
from fedforget.parties.database import ErasureError
from fedforget.parties.federation_file import FederationFile, check_unchanged
from fedforget.parties.folders import being_made, locked, read_key, write_private
from fedforget.parties.log import now
from fedforget.parties.store import (
    Clusters,
    EncodedIds,
    Store,
    decoded_id,
    encoded_ids,
    histogram_of,
    keys_of_stored,
    plain_histogram,
)
from fedforget.parties.tables import ROWS_AT_A_TIME, Table
from fedforget.protocol.client import Answered, Client, Ledger
from fedforget.protocol.federation import Membership
from fedforget.protocol.keys import Identity

STORE = "client.sqlite"
IDENTITY = "identity.key"
SECRET = "records.key"
FEDERATION = "federation.toml"
ENROLMENT = "enrolment.json"

Progress = Callable[[int], None]


class ClientError(FedforgetError):
    """Something that a client cannot do in its present state."""


@dataclass(frozen=True)
class Forgotten:
    """What a request did: the salt is handed out here and stored nowhere."""

    request: int
    records: int
    reseeded: int | None
    salt: str


@dataclass(frozen=True)
class Audit:
    """A fresh fit beside what is stored."""

    records: int
    stored: str
    fresh: str

    @property
    def passed(self) -> bool:
        return self.stored == self.fresh


class ClientParty:
    """An open client directory.  Use :func:`open_client`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity = Identity(
            read_key(
                folder / IDENTITY,
                32,
                "restore it, or set up a new client with a new key and have the server enrol it",
            )
        )
        self._secret = Secret(
            read_key(folder / SECRET, 16, "restore it; without it the clusters would change")
        )
        path = folder / FEDERATION
        self.federation = FederationFile.read(path) if path.exists() else None
        if self.federation is not None:
            self._configure(self.federation)
        self._protocol: Client | None = None
        self.store = Store(folder / STORE)
        try:
            self.name: str = self.store.get("name")
            if self.federation is not None:
                check_unchanged(self.federation, self.store.get("federation"), path)
        except BaseException:
            self.store.close()
            raise

    def _configure(self, federation: FederationFile) -> None:
        self.config = federation.configuration()
        self._n_features = len(federation.features)

    # -- setting up ----------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, name: str) -> dict[str, str]:
        """Make a client; returns its enrolment, which the server takes."""
        if not name or name == "*" or len(name) > 200:
            raise ClientError("a client's name has 1 to 200 characters, and is not *")
        identity = Identity(os.urandom(32))
        enrolment = {"name": name, "key": identity.public.hex()}
        with being_made(folder, (IDENTITY, SECRET, STORE, ENROLMENT)):
            write_private(folder / IDENTITY, identity.seed)
            write_private(folder / SECRET, os.urandom(16))
            store = Store(folder / STORE, create=True)
            with store.transaction():
                store.put("name", name)
            store.close()
            write_private(folder / ENROLMENT, json.dumps(enrolment, indent=1).encode())
        return enrolment

    def join(self, federation: FederationFile | None, members: dict[str, Any]) -> dict[str, Any]:
        """Take the federation file and a membership list; returns who came and went."""
        ours = self.federation
        if federation is None:
            federation = ours
        if federation is None:
            raise ClientError("the federation file is needed to join for the first time")
        if ours is not None and ours.digest != federation.digest:
            raise ClientError(
                f"this client belongs to “{ours.name}”: {ours.difference(federation)}"
            )
        receipts.check_membership(members, federation)
        before = self.store.get("membership")
        if before is not None and members["epoch"] <= before["epoch"]:
            raise ClientError(f"epoch {members['epoch']} is not later than {before['epoch']}")
        if members["keys"].get(self.name) != self.identity.public.hex():
            raise ClientError(f"{self.name} is not on this list with its present key")
        if ours is None:
            write_private(self.folder / FEDERATION, federation.text().encode())
            self.federation = federation
            self._configure(federation)
        with self.store.transaction():
            self.store.put("federation", federation.text())
            self.store.put("membership", members)
            if self.store.get("ledger") is None:
                self._store_ledger(Ledger(Histogram(self._n_features)))
        self._protocol = None
        old = set() if before is None else set(before["keys"])
        new = set(members["keys"])
        return {
            "epoch": members["epoch"],
            "came": sorted(new - old),
            "went": sorted(old - new),
            "changed_keys": sorted(
                name for name in new & old if before["keys"][name] != members["keys"][name]
            ),
        }

    def _joined(self) -> FederationFile:
        if self.federation is None:
            raise ClientError("this client has not joined a federation: run client join first")
        return self.federation

    # -- records -------------------------------------------------------------------------------

    def import_table(
        self, table: Table, *, replace: bool = False, progress: Progress | None = None
    ) -> dict[str, int]:
        """Add the records of a table, all of them or none."""
        self._joined()
        with self.store.transaction():
            held = self.store.index()
            added = replaced = 0
            seen = IdIndex()
            for ids, values in table.parts():
                table.check_inside(values, self.config.grid.bounds, added)
                encoded = encoded_ids(ids.tolist())
                self._check_fresh(table, encoded, seen, added)
                again = [one for one in encoded if one in held]
                if again and not replace:
                    some = name_some([decoded_id(one) for one in again])
                    raise DuplicateIdError(
                        f"{table.path}: {len(again)} ids are held already: {some}; nothing was"
                        " imported (--replace forgets the old records first)"
                    )
                self.store.remove([held.pop(one) for one in again], self._n_features)
                self.store.add(encoded, values)
                added += len(encoded)
                replaced += len(again)
                if progress is not None:
                    progress(len(encoded))
            records = len(held) + len(seen)
            if records > self.config.max_records:
                raise ClientError(
                    f"{records} records do not fit: this grid has room for"
                    f" {self.config.max_records}; nothing was imported"
                )
            del held, seen
            self._fit_again()
        return {"added": added, "replaced": replaced, "records": records}

    def _check_fresh(self, table: Table, encoded: list[bytes], seen: IdIndex, first: int) -> None:
        """Refuse an id that the file has had already; ``seen`` grows by those of this part."""
        keys = keys_of_stored(self._secret, np.array(encoded, dtype=np.bytes_))
        fresh = seen.put(keys, np.zeros(len(encoded), dtype=np.int64))
        if not fresh.all():
            at = int(fresh.argmin())
            raise DuplicateIdError(
                f"{table.path}: the id {decoded_id(encoded[at])!r} is there twice (again in row"
                f" {first + at + 1}); nothing was imported"
            )

    def _partition_of(self, ids: EncodedIds, values: Floats) -> SeededPartition:
        """The clusters of records, drawn afresh; takes ``values`` over."""
        grid = self.config.grid
        if grid.scale != "none":
            for at in range(0, len(values), ROWS_AT_A_TIME):
                part = slice(at, at + ROWS_AT_A_TIME)
                values[part] = grid.to_clustered(values[part])
        keys = keys_of_stored(self._secret, ids)
        table = RecordTable(values, ids, keys, np.arange(len(ids)))
        return SeededPartition(table, self.config.local_clusters_of(self.name), grid.fixed_point)

    def _fit_again(self) -> None:
        """Store the state that follows from the records."""
        rows, ids, values = self.store.everything(self._n_features)
        partition = self._partition_of(ids, values)
        self.store.set_labels(rows, partition.table.label)
        self.store.set_clusters(_clusters_of(partition))

    def forget(self, ids: Any, *, dry_run: bool = False) -> Forgotten:
        """Erase records; when this returns they are gone, and the change waits for a round."""
        self._joined()
        wanted = _parsed(ids).tolist()
        encoded = encoded_ids(wanted)
        if not encoded:
            raise UnknownIdError("no ids were given; nothing was forgotten")
        if len(set(encoded)) != len(encoded):
            raise DuplicateIdError("an id was given twice; nothing was forgotten")
        held = self.store.rows_of(encoded)
        missing = [one for one, key in zip(wanted, encoded, strict=True) if key not in held]
        if missing:
            raise UnknownIdError(
                f"{len(missing)} of {len(encoded)} ids are not held here: {name_some(missing)};"
                " nothing was forgotten"
            )
        clusters = self.store.clusters(self._n_features)
        lost = [step for step, seed in enumerate(clusters.seed_ids) if seed in held]
        reseeded = lost[0] + 1 if lost else None
        if dry_run:
            return Forgotten(0, len(encoded), reseeded, "")
        salt = os.urandom(receipts.SALT_BYTES)
        digests = sorted(receipts.request_digest(salt, one) for one in wanted)
        number = 0
        try:
            with self.store.transaction():
                rows = list(held.values())
                if not lost:
                    self._take_out(clusters, rows)
                self.store.remove(rows, self._n_features)
                if lost:
                    self._fit_again()
                else:
                    self.store.set_clusters(clusters)
                number = self.store.add_request(now(), len(digests), digests, reseeded)
        except ErasureError as error:
            raise ErasureError(
                f"request {number} is stored and its records are forgotten, salt {salt.hex()}"
                f" (not stored: keep it); but {error}"
            ) from None
        return Forgotten(number, len(encoded), reseeded, salt.hex())

    def _take_out(self, clusters: Clusters, rows: Sequence[int]) -> None:
        """Take records out of the sizes and sums of their clusters; the seeds stand."""
        values = self.store.values_of(rows, self._n_features)
        kernels.add_fixed_point(
            self.config.grid.to_clustered(values),
            np.arange(len(rows)),
            self.store.labels_of(rows),
            -1,
            self.config.grid.fixed_point.offset,
            self.config.grid.fixed_point.extent,
            2.0**FIXED_POINT_BITS,
            clusters.sums,
            clusters.sizes,
        )

    def leave(self) -> int:
        """Erase all records; the next round takes this client out of the sum."""
        self._joined()
        with self.store.transaction():
            records = len(self.store)
            if records:
                self.store.clear()
                self.store.add_request(now(), records, None, 1)
            self.store.put("leaving", True)
        return records

    # -- looking -------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        ledger = self.ledger() if self.federation is not None else None
        membership = self.store.get("membership")
        waiting = self.store.requests()
        keeps_old = bool(waiting) or (ledger is not None and ledger.pending is not None)
        return {
            "name": self.name,
            "federation": None if self.federation is None else self.federation.name,
            "epoch": None if membership is None else membership["epoch"],
            "records": len(self.store),
            "clusters": 0 if ledger is None else len(self.store.clusters(self._n_features).sizes),
            "last_committed_round": None if ledger is None else ledger.committed[1],
            "counted_in_round": None if ledger is None else ledger.base_round,
            "requests_waiting": len(waiting),
            "records_waiting": sum(one["records"] for one in waiting),
            "keeps_last_committed_histogram": keeps_old,
            "receipts": len(self.store.receipts()),
            "leaving": bool(self.store.get("leaving", False)),
        }

    def labels(self, centres: Floats) -> tuple[list[int | str], Labels]:
        """Each record's cluster: the nearest of the model's centres, in the clustered space."""
        _, ids, values = self.store.everything(self._n_features)
        nearest_centre = nearest(self.config.grid.to_clustered(values), centres)[0]
        return [decoded_id(one) for one in ids.tolist()], nearest_centre

    def state_digest(self) -> str:
        """Digest of the records and the state stored for them, in the order of the ids."""
        rows, ids, values = self.store.everything(self._n_features)
        order = np.argsort(ids, kind="stable")
        labels = self.store.labels_of(rows)[order]
        clusters = self.store.clusters(self._n_features)
        return _state_digest(_records_digest(ids, values, order), labels, clusters)

    def audit(self) -> Audit:
        """Fit again from the retained records, and compare with what is stored."""
        self._joined()
        rows, ids, values = self.store.everything(self._n_features)
        order = np.argsort(ids, kind="stable")
        records = _records_digest(ids, values, order)
        labels = self.store.labels_of(rows)[order]
        clusters = self.store.clusters(self._n_features)
        partition = self._partition_of(ids, values)
        fresh = partition.table.label[order]
        return Audit(
            records=len(ids),
            stored=_state_digest(records, labels, clusters),
            fresh=_state_digest(records, fresh, _clusters_of(partition)),
        )

    # -- rounds --------------------------------------------------------------------------------

    def membership(self) -> Membership:
        members = self.store.get("membership")
        if members is None:
            raise ClientError("this client has not joined a federation: run client join first")
        keys = {name: bytes.fromhex(key) for name, key in members["keys"].items()}
        return Membership(members["epoch"], keys, members["capacity"])

    def histogram(self) -> Histogram:
        """What the client would like to be counted with."""
        return self.config.histogram_of(self.store.clusters(self._n_features))

    @property
    def protocol(self) -> Client:
        """The client's part of the protocol; its attempt under way lives in memory alone."""
        if self._protocol is None:
            self._protocol = Client(
                self.name,
                self.identity,
                self._joined().protocol_federation(),
                self.membership(),
                self.histogram,
                self.ledger(),
            )
        return self._protocol

    def receive(self, data: bytes) -> bytes | None:
        """Handle a message of the protocol; what must last is stored before the answer is given."""
        protocol = self.protocol
        before = protocol.ledger
        answer = protocol.receive(data)
        after = protocol.ledger
        if after != before:
            with self.store.transaction():
                self._store_ledger(after)
                self._follow(before, after, data)
        return answer

    def _follow(self, before: Ledger, after: Ledger, data: bytes) -> None:
        """Requests travel with the histogram that carries them, and end in receipts."""
        if after.pending is not None and before.pending is None:
            self.store.send_requests(after.pending_round)
        if after.committed == before.committed:
            if after.pending is None and before.pending is not None:
                self.store.unsend_requests()
            return
        assert self._protocol is not None
        notice = self._protocol.notice
        assert notice is not None
        for request in self.store.requests(sent=True):
            if request["round"] == after.base_round:
                document = receipts.issue(
                    self._joined(),
                    self.name,
                    self.identity,
                    request,
                    self.store.get("membership"),
                    self.store.get("notice"),
                    notice,
                )
                self.store.close_request(request["number"], json.dumps(document, indent=1))
        if after.pending is None:
            self.store.unsend_requests()
        self.store.put("notice", notice)

    def ledger(self) -> Ledger:
        plain = self.store.get("ledger")
        if plain is None:
            return Ledger(Histogram(self._n_features))
        answered = plain["answered"]
        return Ledger(
            base=histogram_of(plain["base"], self._n_features),
            base_round=plain["base_round"],
            pending=histogram_of(plain["pending"], self._n_features),
            pending_round=plain["pending_round"],
            seen=tuple(plain["seen"]),
            committed=tuple(plain["committed"]),
            unmasked_since=plain["unmasked_since"],
            answered=None
            if answered is None
            else Answered(answered[0], answered[1], tuple(answered[2])),
        )

    def _store_ledger(self, ledger: Ledger) -> None:
        plain = asdict(ledger) | {
            "base": plain_histogram(ledger.base),
            "pending": plain_histogram(ledger.pending),
        }
        self.store.put("ledger", plain)


@contextmanager
def open_client(folder: Path) -> Iterator[ClientParty]:
    """Open a client's directory for this process alone."""
    with locked(folder):
        party = ClientParty(folder)
        try:
            yield party
        finally:
            party.store.close()


def _clusters_of(partition: SeededPartition) -> Clusters:
    seeds: list[bytes] = partition.seed_ids.tolist()
    return Clusters(seeds, partition.scores, partition.seeds, partition.sizes, partition.sums)


def _parsed(ids: Any) -> Ids:
    try:
        return parse_ids(ids)
    except (TypeError, ValueError) as error:
        raise ClientError(f"{error}; nothing was forgotten") from None


def _records_digest(ids: EncodedIds, values: Floats, order: Ints) -> str:
    """Digest of records in the order of their ids, some at a time: there is no second copy."""
    digest = Digest("client records").field("records", len(ids))
    # The width is that of the widest part, which is history.
    width = int(np.strings.str_len(ids).max(initial=0))
    for at in range(0, len(ids), ROWS_AT_A_TIME):
        some = order[at : at + ROWS_AT_A_TIME]
        digest.array("ids", ids[some].astype(f"S{width}")).array("values", values[some])
    return digest.hex()


def _state_digest(records: str, labels: Labels, clusters: Clusters) -> str:
    digest = Digest("client state").field("records", records)
    digest.array("labels", labels.astype(np.int32))
    for seed in clusters.seed_ids:
        digest.field("seed", seed)
    for name in ("scores", "seeds", "sizes", "sums"):
        digest.array(name, getattr(clusters, name))
    return digest.hex()
