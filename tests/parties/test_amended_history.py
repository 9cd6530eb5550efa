"""Amendments, erasures, imports, restores and rounds in any order: the model of a fresh fit."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
from party_world import FIVE, World, federation_file, memory_folder

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.amended_servers import take_back
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.server_party import open_server
from fedforget.protocol.errors import OutOfOrderError
from fedforget.protocol.messages import Letter, Notice, Payload

CHANGES: list[dict[str, Any]] = [
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
NAMES = FIVE[:4]
"""With four members a round of changes can do without one of them."""

ACTS = {
    "amend": 4,
    "round": 6,
    "forget": 4,
    "learn": 3,
    "take_over": 1,
    "back_up_client": 2,
    "restore_client": 2,
    "back_up_server": 1,
    "restore_server": 2,
}
"""What may happen, and how often."""

N_ACTS = 16


@contextmanager
def lost_notice(name: str | None) -> Iterator[None]:
    """The commit notices of a round do not reach one member; the next opening tells it."""
    receive = ClientParty.receive

    def deaf(party: ClientParty, data: bytes) -> bytes | None:
        content = Letter(data).content
        if party.name == name and isinstance(content, Payload) and isinstance(content.body, Notice):
            raise OutOfOrderError("lost on the way")
        return receive(party, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClientParty, "receive", deaf)
        yield


@dataclass
class Backup:
    """What was true when a client's directory was copied aside."""

    records: dict[str, dict[str, float]]
    amendments: int
    erased: list[str] = field(default_factory=list)


class AmendedHistory:
    """Everything that may happen to a federation of four members.

    ``records`` are those that each member holds, ``counted`` those that it was last counted with.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self.acts: list[str] = []
        self.world = World(self.folder / "world", NAMES).set_up(federation_file())
        self.records = {name: patients(name, 12, number) for number, name in enumerate(NAMES)}
        for name, held in self.records.items():
            hold(self.world, name, held)
        self.world.round()
        self.counted = deepcopy(self.records)
        self.made: list[Made] = []
        self.behind = dict.fromkeys(NAMES, 0)
        self.backups: dict[str, Backup] = {}
        self.server_backup: int | None = None
        self.seed = 100
        self.full_due = False
        self.restored = False
        self.rounds = 0

    def play(self) -> None:
        """Act at random, and end with a full round."""
        weights = np.array(list(ACTS.values())) / sum(ACTS.values())
        for act in self.rng.choice(list(ACTS), N_ACTS, p=weights).tolist():
            getattr(self, act)()
            for name, held in self.records.items():
                assert self.world.held(name) == set(held)
        for name in NAMES:
            self.bring(name)
        self.note(self.world.round(kind="full"))
        self.world.check_sums()
        self.world.check_audits()
        assert self.counted == self.records
        self.check_receipts()

    def a_member(self) -> str:
        return str(self.rng.choice(NAMES))

    def perhaps_a_member(self) -> str | None:
        return self.a_member() if self.rng.random() < 0.35 else None

    # -- what people do ----------------------------------------------------------------------

    def amend(self) -> None:
        """Members take it over when they next have to."""
        changes = dict(CHANGES[int(self.rng.integers(len(CHANGES)))])
        before = self.world.federation
        if before == replace(changed_file(before, **changes), amendment=before.amendment):
            return
        self.acts.append(f"amend {changes}")
        self.made.append(amend_server(self.world, **changes))
        self.full_due = True

    def take_over(self, name: str | None = None) -> None:
        name = name or self.a_member()
        while self.behind[name] < len(self.made):
            made = self.made[self.behind[name]]
            with open_client(self.world.client(name)) as client:
                client.join(made.file, made.document)
            self.behind[name] += 1

    def forget(self) -> None:
        name = self.a_member()
        held = sorted(self.records[name])
        if len(held) < 6:
            return
        one = str(self.rng.choice(held))
        self.acts.append(f"forget {one}")
        self.world.forget(name, [one])
        self.drop(name, [one])

    def drop(self, name: str, ids: list[str]) -> None:
        for one in ids:
            del self.records[name][one]
        if name in self.backups:
            self.backups[name].erased += ids

    def learn(self) -> None:
        """New records with the features that the client knows of; they must lie in its bounds."""
        self.seed += 1
        name = self.a_member()
        new = patients(name, int(self.rng.integers(1, 4)), self.seed)
        with open_client(self.world.client(name)) as client:
            assert client.federation is not None
            known = {one.name: one for one in client.federation.features}
        inside = {
            patient: values
            for patient, values in new.items()
            if all(one.low <= values[key] <= one.high for key, one in known.items())
        }
        hold(self.world, name, inside)
        self.records[name] |= inside

    def round(self) -> None:
        """A round comes out, or nothing happens; what it comes to is the model of a fresh fit.

        Somebody may be away, and the commit may not reach somebody.  After a restore of a client,
        its operator asks for a full round.
        """
        ready = self.rng.random() < 0.75
        away, deaf = self.perhaps_a_member(), self.perhaps_a_member()
        self.acts.append(f"round, ready: {ready}, without {away}, {deaf} is not told")
        if ready:
            for name in NAMES:
                self.bring(name)
        full = self.full_due or self.restored
        # With everybody ready and no full round due, it must come out without one of them.
        sure = ready and (away is None or not full)
        world = self.world if away is None else self.world.without(away)
        kind = "full" if self.restored else None
        before = self.rounds
        with suppress(FedforgetError), lost_notice(deaf):
            done = world.round(kind=kind)
            assert done["kind"] == "full" or not self.full_due
            self.note(done)
        assert not sure or self.rounds == before + 1

    def note(self, done: dict) -> None:
        """A round was committed."""
        self.rounds += 1
        for name in done["participants"]:
            self.counted[name] = deepcopy(self.records[name])
        if done["kind"] == "full":
            self.full_due = self.restored = False
        self.check_model(f"after round {done['round']}", done["model"])

    # -- what happens to directories ---------------------------------------------------------

    def back_up_client(self) -> None:
        name = self.a_member()
        self.acts.append(f"back {name} up")
        self.world.back_up(name)
        self.backups[name] = Backup(deepcopy(self.records[name]), self.behind[name])

    def restore_client(self) -> None:
        if not self.backups:
            return
        name = str(self.rng.choice(sorted(self.backups)))
        self.acts.append(f"restore {name}")
        backup = self.backups.pop(name)
        self.world.restore(name)
        self.records[name] = backup.records
        self.behind[name] = backup.amendments
        with open_client(self.world.client(name)) as client:
            client.recover(backup.erased)
        for one in backup.erased:
            self.records[name].pop(one, None)
        self.restored = True

    def back_up_server(self) -> None:
        self.acts.append("back the server up")
        self.world.back_up("server")
        self.server_backup = len(self.made)

    def restore_server(self) -> None:
        """Everybody is there and knows the last version, as operate.md asks for."""
        if self.server_backup is None:
            return
        self.acts.append("restore the server")
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

    def bring(self, name: str) -> None:
        """A member takes the last version over, and brings what it asks for."""
        self.take_over(name)
        with open_client(self.world.client(name)) as client:
            assert client.audit().passed
            misfit = client.misfit()
        if misfit is None:
            return
        outside = [str(one) for one in misfit.ids]
        if outside:
            self.world.forget(name, outside)
            self.drop(name, outside)
        if misfit.missing:
            hold(self.world, name, self.records[name], again=True)

    def check_model(self, when: str, digest: str) -> None:
        folder = self.folder / "fresh"
        shutil.rmtree(folder, ignore_errors=True)
        assert digest == fresh_model(folder, self.world, self.counted), when

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


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_model_is_that_of_a_fresh_federation(seed: int) -> None:
    folder = Path(tempfile.mkdtemp(dir=memory_folder()))
    history = AmendedHistory(folder, seed)
    try:
        history.play()
        assert history.rounds > 1
    except BaseException:
        print("\n".join(history.acts))  # pytest shows it
        raise
    finally:
        shutil.rmtree(folder)
