"""A client in a directory: records, state, keys, receipts; durable at the end of every call."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.distance import Floats, Labels, nearest
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import keys_of_encoded, name_some, parse_ids
from fedforget.clustering.partition import FIXED_POINT_BITS, SeededPartition
from fedforget.clustering.prf import Ints, Secret
from fedforget.clustering.records import RecordTable
from fedforget.digests import Digest
from fedforget.errors import DuplicateIdError, FedforgetError, UnknownIdError
from fedforget.parties import receipts
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.folders import locked, make_private, write_private
from fedforget.parties.store import (
    Clusters,
    Store,
    decoded_id,
    encoded_ids,
    histogram_of,
    plain_histogram,
)
from fedforget.parties.tables import Table
from fedforget.protocol.client import Answered, Client, Ledger
from fedforget.protocol.federation import Membership
from fedforget.protocol.keys import Identity

STORE = "client.sqlite"
IDENTITY = "identity.key"
SECRET = "records.key"
FEDERATION = "federation.toml"

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
        self.store = Store(folder / STORE)
        self.identity = Identity((folder / IDENTITY).read_bytes())
        self._secret = Secret((folder / SECRET).read_bytes())
        self.name: str = self.store.get("name")
        path = folder / FEDERATION
        self.federation = FederationFile.read(path) if path.exists() else None
        if self.federation is not None:
            self.config = self.federation.configuration()
            self._n_features = len(self.federation.features)
        self._protocol: Client | None = None

    # -- setting up ----------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, name: str) -> dict[str, str]:
        """Make a client; returns its enrolment, which the server takes."""
        if not name or name == "*" or len(name) > 200:
            raise ClientError("a client's name has 1 to 200 characters, and is not *")
        make_private(folder)
        identity = Identity(os.urandom(32))
        write_private(folder / IDENTITY, identity.seed)
        write_private(folder / SECRET, os.urandom(16))
        store = Store(folder / STORE, create=True)
        with store.transaction():
            store.put("name", name)
        store.close()
        enrolment = {"name": name, "key": identity.public.hex()}
        write_private(folder / "enrolment.json", json.dumps(enrolment, indent=1).encode())
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
            self.config = federation.configuration()
            self._n_features = len(federation.features)
        with self.store.transaction():
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
        added = replaced = 0
        with self.store.transaction():
            for ids, values in table.parts():
                self.config.grid.check_inside(values, table.features)
                encoded = encoded_ids(ids.tolist())
                if len(set(encoded)) != len(encoded):
                    twice = next(one for one in encoded if encoded.count(one) > 1)
                    raise DuplicateIdError(
                        f"{table.path}: the id {decoded_id(twice)!r} is there twice"
                    )
                held = self.store.rows_of(encoded)
                if held and not replace:
                    some = name_some([decoded_id(one) for one in held])
                    raise DuplicateIdError(
                        f"{table.path}: {len(held)} ids are held already: {some}; nothing was"
                        " imported (--replace forgets the old records first)"
                    )
                self.store.remove(list(held.values()))
                self.store.add(encoded, values)
                added += len(encoded)
                replaced += len(held)
                if progress is not None:
                    progress(len(encoded))
            if len(self.store) > self.config.max_records:
                raise ClientError(f"more than {self.config.max_records} records do not fit")
            self._fit_again()
        return {"added": added, "replaced": replaced, "records": len(self.store)}

    def _partition(self) -> tuple[Ints, list[bytes], SeededPartition]:
        """Rows and ids of all records, and their clusters, drawn afresh."""
        rows, ids, values = self.store.everything(self._n_features)
        if self.config.grid.scale != "none":
            values = self.config.grid.to_clustered(values)
        keys = keys_of_encoded(self._secret, ids)
        table = RecordTable(values, np.arange(len(ids)), keys, np.arange(len(ids)))
        partition = SeededPartition(
            table, self.config.local_clusters_of(self.name), self.config.grid.fixed_point
        )
        return rows, ids, partition

    def _fit_again(self) -> None:
        """Store the state that follows from the records."""
        rows, ids, partition = self._partition()
        self.store.set_labels(rows, partition.table.label)
        self.store.set_clusters(_clusters_of(partition, ids))

    def forget(self, ids: Any, *, dry_run: bool = False) -> Forgotten:
        """Erase records; when this returns they are gone, and the change waits for a round."""
        self._joined()
        wanted = parse_ids(ids).tolist()
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
        with self.store.transaction():
            rows = list(held.values())
            if not lost:
                self._take_out(clusters, rows)
            self.store.remove(rows)
            if lost:
                self._fit_again()
            else:
                self.store.set_clusters(clusters)
            number = self.store.add_request(_now(), digests, reseeded)
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
        _, ids, _ = self.store.everything(self._n_features)
        if ids:
            self.forget([decoded_id(one) for one in ids])
        with self.store.transaction():
            self.store.put("leaving", True)
        return len(ids)

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
        return [decoded_id(one) for one in ids], nearest_centre

    def state_digest(self) -> str:
        """Digest of the records and the state stored for them, in the order of the ids."""
        rows, ids, values = self.store.everything(self._n_features)
        labels = self.store.labels_of(rows)
        return _state_digest(ids, values, labels, self.store.clusters(self._n_features))

    def audit(self) -> Audit:
        """Fit again from the retained records, and compare with what is stored."""
        self._joined()
        stored = self.state_digest()
        _, ids, partition = self._partition()
        _, _, values = self.store.everything(self._n_features)
        fresh = _state_digest(ids, values, partition.table.label, _clusters_of(partition, ids))
        return Audit(len(ids), stored, fresh)

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
        answered = plain["answered"]
        return Ledger(
            base=histogram_of(plain["base"], self._n_features),
            base_round=plain["base_round"],
            pending=histogram_of(plain["pending"], self._n_features),
            pending_round=plain["pending_round"],
            seen=tuple(plain["seen"]),
            committed=tuple(plain["committed"]),
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


def _clusters_of(partition: SeededPartition, ids: list[bytes]) -> Clusters:
    seeds = [ids[row] for row in partition.seed_ids.tolist()]
    return Clusters(seeds, partition.scores, partition.seeds, partition.sizes, partition.sums)


def _state_digest(ids: list[bytes], values: Floats, labels: Labels, clusters: Clusters) -> str:
    digest = Digest("client state").field("records", len(ids))
    for one in ids:
        digest.field("id", one)
    digest.array("values", values).array("labels", labels.astype(np.int32))
    for seed in clusters.seed_ids:
        digest.field("seed", seed)
    for name in ("scores", "seeds", "sizes", "sums"):
        digest.array(name, getattr(clusters, name))
    return digest.hex()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
