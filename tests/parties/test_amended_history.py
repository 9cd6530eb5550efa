"""Amendments, erasures, imports, restores and rounds in any order: the model of a fresh fit."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

from amending import (
    AGE,
    HEIGHT,
    RULES,
    WEIGHT,
    Made,
    amend_server,
    changed_file,
    fresh_model,
    hold,
    patients,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from party_world import NAMES, World, memory_folder

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.amended_servers import take_back
from fedforget.parties.client_party import open_client
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.server_party import open_server

CHANGES = st.sampled_from(
    [
        {"n_clusters": 3},
        {"n_clusters": 2},
        {"local_clusters": 3},
        {"local_clusters": 5},
        {"step": 0.02},
        {"step": 0.01},
        {"disclosure": RULES},
        {"disclosure": None},
        {"features": (AGE, WEIGHT)},
        {"features": (replace(AGE, high=150.0), WEIGHT)},
        {"features": (replace(AGE, high=80.0), WEIGHT)},
        {"features": (HEIGHT, AGE)},
        {"features": (WEIGHT, AGE, HEIGHT)},
        {"representatives": "lloyd"},
        {"representatives": "means"},
    ]
)
CLIENTS = st.sampled_from(NAMES)


@dataclass
class Backup:
    """What was true when a client's directory was copied aside."""

    records: dict[str, dict[str, float]]
    amendments: int
    erased: list[str] = field(default_factory=list)


class AmendedHistory(RuleBasedStateMachine):
    """Everything that may happen to a federation of three members, and what they hold by then."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=memory_folder()))
        self.world = World(self.folder / "world").set_up()
        self.records = {name: patients(name, 12, number) for number, name in enumerate(NAMES)}
        for name, held in self.records.items():
            hold(self.world, name, held)
        self.world.round()
        self.made: list[Made] = []
        self.behind = dict.fromkeys(NAMES, 0)
        self.backups: dict[str, Backup] = {}
        self.server_backup: int | None = None
        self.seed = 100
        self.full_due = False

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.catch_up()
            self.check_model("at the end")
            self.check_receipts()
        finally:
            shutil.rmtree(self.folder)

    # -- what people do ----------------------------------------------------------------------

    @rule(changes=CHANGES)
    def amend(self, changes: dict) -> None:
        """Members take it over when they next have to."""
        before = self.world.federation
        if before == replace(changed_file(before, **changes), amendment=before.amendment):
            return
        self.made.append(amend_server(self.world, **changes))
        self.full_due = True

    @rule(name=CLIENTS)
    def take_over(self, name: str) -> None:
        while self.behind[name] < len(self.made):
            made = self.made[self.behind[name]]
            with open_client(self.world.client(name)) as client:
                client.join(made.file, made.document)
            self.behind[name] += 1

    @rule(name=CLIENTS, at=st.integers(0, 100))
    def forget(self, name: str, at: int) -> None:
        held = sorted(self.records[name])
        if len(held) < 6:
            return
        one = held[at % len(held)]
        self.world.forget(name, [one])
        self.drop(name, [one])

    def drop(self, name: str, ids: list[str]) -> None:
        for one in ids:
            del self.records[name][one]
        if name in self.backups:
            self.backups[name].erased += ids

    @rule(name=CLIENTS, n=st.integers(1, 3))
    def learn(self, name: str, n: int) -> None:
        """New records with the features that the client knows of; they must lie in its bounds."""
        self.seed += 1
        new = patients(name, n, self.seed)
        with open_client(self.world.client(name)) as client:
            assert client.federation is not None
            known = {one.name: one for one in client.federation.features}
        inside = {
            key: values
            for key, values in new.items()
            if all(one.low <= values[name] <= one.high for name, one in known.items())
        }
        hold(self.world, name, inside)
        self.records[name] |= inside

    @rule()
    def round(self) -> None:
        """A round comes out, or nothing happens; what it comes to is the model of a fresh fit."""
        with suppress(FedforgetError):
            done = self.world.round()
            assert done["kind"] == "full" or not self.full_due
            self.full_due = False
            self.check_model("after a round", done["model"])

    # -- what happens to directories ---------------------------------------------------------

    @rule(name=CLIENTS)
    def back_up_client(self, name: str) -> None:
        self.world.back_up(name)
        self.backups[name] = Backup(deepcopy(self.records[name]), self.behind[name])

    @precondition(lambda self: self.backups)
    @rule(at=st.integers(0, 2))
    def restore_client(self, at: int) -> None:
        name = sorted(self.backups)[at % len(self.backups)]
        backup = self.backups.pop(name)
        self.world.restore(name)
        self.records[name] = backup.records
        self.behind[name] = backup.amendments
        with open_client(self.world.client(name)) as client:
            client.recover(backup.erased)
        for one in backup.erased:
            self.records[name].pop(one, None)
        # Its operator asks for a full round.
        self.full_due = True
        with open_server(self.world.server) as server, server.storing():
            from msgspec import structs

            server.keep_ledger(structs.replace(server.ledger(), full_due=True))

    @rule()
    def back_up_server(self) -> None:
        self.world.back_up("server")
        self.server_backup = len(self.made)

    @precondition(lambda self: self.server_backup is not None)
    @rule()
    def restore_server(self) -> None:
        """Everybody is there and knows the last version, as operate.md asks for."""
        assert self.server_backup is not None
        for name in NAMES:
            self.take_over(name)
        self.world.restore("server")
        lost, self.server_backup = self.made[self.server_backup :], None
        with open_server(self.world.server) as server:
            if lost:
                take_back(server, [one.file for one in lost])
        self.world.recover_server()
        self.full_due = True

    # -- what must be true -------------------------------------------------------------------

    @invariant()
    def clients_hold_what_they_should(self) -> None:
        if hasattr(self, "world"):
            for name, held in self.records.items():
                assert self.world.held(name) == set(held)

    def catch_up(self) -> None:
        """Everybody takes the last version over, and brings what it asks for."""
        for name in NAMES:
            self.take_over(name)
            with open_client(self.world.client(name)) as client:
                assert client.audit().passed
                misfit = client.misfit()
                outside = [] if misfit is None else [str(one) for one in misfit.ids]
            if outside:
                self.world.forget(name, outside)
                self.drop(name, outside)
            hold(self.world, name, self.records[name], again=True)
        done = self.world.round(kind="full")
        self.check_model("of a full round", done["model"])
        self.world.check_sums()
        self.world.check_audits()

    def check_model(self, when: str, digest: str | None = None) -> None:
        with open_server(self.world.server) as server:
            found = digest or server.status()["model"]
        folder = self.folder / "fresh"
        shutil.rmtree(folder, ignore_errors=True)
        assert found == fresh_model(folder, self.world, self.records), when

    def check_receipts(self) -> None:
        """Each is valid with the version of its time, which every party still has."""
        files = [self.world.server / "federation.toml"]
        files += sorted(self.world.server.glob("federation-*.toml"))
        versions = {one.digest.hex(): one for one in map(FederationFile.read, files)}
        assert len(versions) == len(self.made) + 1
        for name in NAMES:
            with open_client(self.world.client(name)) as client:
                documents = [json.loads(one.document) for one in client.store.receipts()]
            for document in documents:
                receipts.verify(document, versions[document["configuration"]])


TestAmendedHistory = AmendedHistory.TestCase
TestAmendedHistory.settings = settings(max_examples=12, stateful_step_count=14, deadline=None)
