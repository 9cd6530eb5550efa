"""A server in a directory: the current aggregate and model, the membership list, the public log.

The previous aggregate and model are overwritten when a round commits: an old model is a copy of
what was forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.clustering.distance import Floats
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.server import ServerModel
from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.database import Database
from fedforget.parties.federation_file import FederationFile, check_unchanged
from fedforget.parties.folders import being_made, locked, read_key, write_private
from fedforget.parties.log import LogError, check_chain, entry_digest, next_entry, now
from fedforget.parties.store import histogram_of, plain_histogram
from fedforget.protocol.federation import Membership
from fedforget.protocol.keys import Identity
from fedforget.protocol.server import Exposed, Ledger, Outgoing, Result, Server

STORE = "server.sqlite"
IDENTITY = "identity.key"
FEDERATION = "federation.toml"

_SCHEMA = ["CREATE TABLE log (number INTEGER PRIMARY KEY, entry TEXT NOT NULL)"]


class ServerError(FedforgetError):
    """Something that a server cannot do in its present state."""


class ServerParty:
    """An open server directory.  Use :func:`open_server`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity = Identity(read_key(folder / IDENTITY, 32, "restore it from a backup"))
        self.federation = FederationFile.read(folder / FEDERATION)
        self.config = self.federation.configuration()
        self._protocol: Server | None = None
        self._db = Database(folder / STORE, _SCHEMA)
        try:
            check_unchanged(self.federation, self._db.get("federation"), folder / FEDERATION)
            if self.identity.public.hex() != self.federation.server_key:
                raise ServerError(f"{folder / IDENTITY} is not the key of this federation's server")
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def create(cls, folder: Path, federation: FederationFile) -> FederationFile:
        """Make a server; returns the federation file with the server's key in it."""
        identity = Identity(os.urandom(32))
        federation = replace(federation, server_key=identity.public.hex())
        with being_made(folder, (IDENTITY, FEDERATION, STORE)):
            write_private(folder / IDENTITY, identity.seed)
            write_private(folder / FEDERATION, federation.text().encode())
            database = Database(folder / STORE, _SCHEMA, create=True)
            with database.transaction():
                database.put("federation", federation.text())
            database.close()
        return federation

    def close(self) -> None:
        self._db.close()

    # -- storage -------------------------------------------------------------------------------

    def log(self) -> list[dict[str, Any]]:
        entries = []
        for number, text in self._db.execute("SELECT number, entry FROM log ORDER BY number"):
            try:
                entries.append(json.loads(text))
            except ValueError:
                raise LogError(f"log entry {number} is damaged: it is not JSON") from None
        return entries

    def _append(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        rows = self._db.execute("SELECT entry FROM log ORDER BY number DESC LIMIT 1")
        previous = json.loads(rows[0][0]) if rows else None
        entry = next_entry(previous, now(), kind, body, self.identity)
        text = json.dumps(entry, ensure_ascii=False)
        self._db.execute("INSERT INTO log VALUES (?, ?)", (entry["number"], text))
        return entry

    # -- members -------------------------------------------------------------------------------

    def members(self) -> dict[str, Any] | None:
        """The current membership list, as the server signed it."""
        members: dict[str, Any] | None = self._db.get("membership")
        return members

    def membership(self) -> Membership:
        members = self.members()
        if members is None:
            raise ServerError("nobody is enrolled: run server enrol first")
        keys = {name: bytes.fromhex(key) for name, key in members["keys"].items()}
        return Membership(members["epoch"], keys, members["capacity"])

    def enrol(
        self,
        enrolments: Mapping[str, str],
        *,
        gone: tuple[str, ...] = (),
        lost: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Begin an epoch: members come, go, or get a new key.

        ``gone`` have left in order, in a delta round; ``lost`` are taken out of the model by a full
        round of the others.
        """
        before = self.members()
        keys = {} if before is None else dict(before["keys"])
        for name in (*gone, *lost):
            if keys.pop(name, None) is None:
                raise ServerError(f"{name} is not a member")
        keys |= dict(enrolments)
        for name, key in enrolments.items():
            if not name or name == "*" or len(bytes.fromhex(key)) != 32:
                raise ServerError(f"the enrolment of {name!r} is not valid")
        epoch = 1 if before is None else before["epoch"] + 1
        members = {
            "federation": self.federation.identifier,
            "epoch": epoch,
            "keys": dict(sorted(keys.items())),
            "capacity": self.federation.model.local_clusters * max(1, len(keys)),
        }
        signature = self.identity.sign(receipts.membership_statement(members))
        members["signature"] = signature.hex()
        ledger = self.ledger()
        counted = {name: at for name, at in ledger.counted.items() if name not in gone}
        # Whoever comes back with a new key does not know what was counted of it.
        renewed = [
            name
            for name in counted
            if before is not None and before["keys"].get(name) not in (None, keys.get(name))
        ]
        with self._db.transaction():
            if renewed:
                self._db.put("full_round_due", True)
            self._db.put("membership", members)
            self._store_ledger(replace(ledger, counted=counted))
            self._append("epoch", {"epoch": epoch, "members": members["keys"]})
        self._protocol = None
        return members

    # -- rounds --------------------------------------------------------------------------------

    @property
    def protocol(self) -> Server:
        if self._protocol is None:
            self._protocol = Server(
                self.identity,
                self.federation.protocol_federation(),
                self.membership(),
                self.ledger(),
            )
        return self._protocol

    def ledger(self) -> Ledger:
        plain = self._db.get("ledger")
        if plain is None:
            return Ledger()
        if plain["exposed"] is not None:
            epoch, committed, alive = plain["exposed"]
            plain["exposed"] = Exposed(epoch, committed, tuple(alive))
        return Ledger(**plain)

    def _store_ledger(self, ledger: Ledger) -> None:
        self._db.put("ledger", asdict(ledger) | {"counted": dict(ledger.counted)})

    def remember(self) -> None:
        """Store the ledger; to be called before messages go out."""
        with self._db.transaction():
            self._store_ledger(self.protocol.ledger)

    def needs_full_round(self) -> bool:
        """Whether nothing is counted yet, or somebody who has gone or has another key since."""
        if self.members() is None or self._db.get("full_round_due", False):
            return True
        return not self.ledger().committed_round or self.protocol.needs_full_round

    def commit(self, result: Result, statistics: dict[str, Any]) -> list[Outgoing]:
        """Compute the model of a result and make both final, in one transaction."""
        aggregate = Histogram(len(self.federation.features))
        if result.kind == "delta":
            aggregate = self.aggregate()
        aggregate += result.total
        if any(count < 0 for _, count in aggregate.items()):
            self.protocol.abandon()
            raise ServerError("the sum takes out more than was counted; it was not used")
        model = self.config.model_of(aggregate)
        digest = self.config.model_digest(aggregate, model)
        context_round = self.protocol.ledger.round
        messages = self.protocol.commit(bytes.fromhex(digest))
        entry = {
            "round": context_round,
            "epoch": self.protocol.membership.epoch,
            "kind": result.kind,
            "participants": list(result.survivors),
            "configuration": self.federation.digest.hex(),
            "model": digest,
        }
        try:
            with self._db.transaction():
                self._db.put("aggregate", plain_histogram(aggregate))
                self._db.put("model", _plain_model(model))
                self._store_ledger(self.protocol.ledger)
                if result.kind == "full":
                    self._db.put("full_round_due", False)
                self._append("round", entry | statistics)
        except BaseException:
            # What could not be stored is not committed: begin again from the store.
            self._protocol = None
            raise
        return messages

    def aggregate(self) -> Histogram:
        n_features = len(self.federation.features)
        return histogram_of(self._db.get("aggregate"), n_features) or Histogram(n_features)

    def last_notice(self) -> list[Outgoing]:
        """The last commit notice, for members who may have missed it."""
        notice = self.ledger().notice
        if notice is None:
            return []
        return [Outgoing(name, notice) for name in sorted(self.membership().keys)]

    # -- looking -------------------------------------------------------------------------------

    def model(self) -> ServerModel:
        plain = self._db.get("model")
        if plain is None:
            raise ServerError("there is no model yet: run a round first")
        return _model_of(plain)

    def sizes(self) -> list[int]:
        """How many records each cluster of the model counts."""
        model = self.model()
        # The labels are those of weighted bins, or of the points drawn in them, one a record.
        uniform = self.config.server_points == "uniform"
        weights = np.ones(len(model.labels)) if uniform else self.aggregate().counts()
        counted = np.bincount(model.labels, weights, minlength=len(model.centres))
        return [int(size) for size in counted]

    def centres(self) -> tuple[Floats, Floats]:
        """The centres, in the clustered space and in the original units."""
        return self.config.centres_of(self.model())

    def status(self) -> dict[str, Any]:
        members, ledger, log = self.members(), self.ledger(), self.log()
        rounds = [entry for entry in log if entry["kind"] == "round"]
        has_model = self._db.get("model") is not None
        return {
            "name": self.federation.name,
            "identifier": self.federation.identifier,
            "epoch": None if members is None else members["epoch"],
            "members": [] if members is None else list(members["keys"]),
            "rounds_committed": len(rounds),
            "last_round": ledger.committed_round or None,
            "counted": dict(ledger.counted),
            "needs_full_round": self.needs_full_round(),
            "clusters": len(self.model().centres) if has_model else 0,
            "bins": len(self.aggregate()),
            "records": self.aggregate().total,
            "model": rounds[-1]["body"]["model"] if rounds else None,
            "log_entries": len(log),
            "log_head": entry_digest(log[-1]) if log else None,
        }

    def audit(self) -> dict[str, Any]:
        """Recompute the model from the aggregate, and walk the log."""
        log = self.log()
        length = check_chain(log, bytes.fromhex(self.federation.server_key))
        rounds = [entry for entry in log if entry["kind"] == "round"]
        problems = []
        if rounds:
            model = self.config.model_of(self.aggregate())
            digest = self.config.model_digest(self.aggregate(), model)
            if digest != rounds[-1]["body"]["model"]:
                problems.append("the aggregate does not give the model that the log names")
            if _plain_model(model) != self._db.get("model"):
                problems.append("the stored model is not that of the aggregate")
        last = rounds[-1]["body"]["round"] if rounds else 0
        if last != self.ledger().committed_round:
            problems.append(
                f"the log ends with round {last}, but round {self.ledger().committed_round} was"
                " committed last"
            )
        epochs = [entry["body"] for entry in log if entry["kind"] == "epoch"]
        members = self.members()
        if (epochs[-1]["members"] if epochs else None) != (members and members["keys"]):
            problems.append("the membership list is not the one that the log names")
        return {"log_entries": length, "rounds": len(rounds), "problems": problems}


@contextmanager
def open_server(folder: Path) -> Iterator[ServerParty]:
    """Open a server's directory for this process alone."""
    with locked(folder):
        party = ServerParty(folder)
        try:
            yield party
        finally:
            party.close()


def _plain_model(model: ServerModel) -> dict[str, Any]:
    return {
        "centres": model.centres.astype("<f8").tobytes(),
        "shape": list(model.centres.shape),
        "labels": model.labels.astype("<i4").tobytes(),
        "loss": model.loss,
        "n_iter": model.n_iter,
        "restart": model.restart,
    }


def _model_of(plain: dict[str, Any]) -> ServerModel:
    centres = np.frombuffer(plain["centres"], dtype="<f8").reshape(plain["shape"])
    labels = np.frombuffer(plain["labels"], dtype="<i4").astype(np.int32)
    return ServerModel(
        centres.astype(np.float64), labels, plain["loss"], plain["n_iter"], plain["restart"]
    )
