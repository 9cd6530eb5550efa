"""Killed anywhere, with a full disk, or without the right to write: whole or absent afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from crash import WORKS, dying_at, finish, in_child, remove_template, report, run_case
from party_world import World, federation_file, table, values_of, write_npz

from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.database import Database, ErasureError, StoreError
from fedforget.parties.folders import FolderError
from fedforget.parties.receipts import request_digest
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.parties.store import Store

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL are POSIX's")


def test_killed_at_random_points() -> None:
    """A case for every kind of work; ``make crash`` kills thousands of times."""
    tally: Counter[str] = Counter()
    kills, violations = 0, []
    try:
        for seed in range(len(WORKS)):
            outcome = run_case(seed)
            kills += outcome.kills
            tally += outcome.tally
            if outcome.violation is not None:
                violations.append(report(outcome))
    finally:
        remove_template()
    assert not violations, "\n".join(violations)
    assert kills >= 30
    assert {key.split(",")[0] for key in tally} == set(WORKS)


@pytest.mark.parametrize("party", ["client", "server"])
def test_an_init_that_is_cut_off_can_be_run_again(tmp_path: Path, party: str) -> None:
    federation = federation_file()

    def make(folder: Path) -> None:
        if party == "client":
            ClientParty.create(folder, "aarhus")
        else:
            ServerParty.create(folder, federation)

    def opened(folder: Path) -> None:
        with open_client(folder) if party == "client" else open_server(folder):
            pass

    seen: Counter[str] = Counter()
    for call in count(1, 23):
        folder = tmp_path / str(call)
        said, killed = finish(*in_child(partial(make, folder), dying_at(call)))
        if not killed:
            assert said == b"confirmed"
            break
        try:
            opened(folder)
            seen["whole"] += 1
        except FolderError as error:
            seen["unfinished" if "run it again" in str(error) else "absent"] += 1
            make(folder)
        opened(folder)
    assert seen["unfinished"] >= 6
    assert seen["absent"] >= 1


_ON_A_FULL_DISK = """
import shutil, sys
from pathlib import Path
import numpy as np
from fedforget.errors import FedforgetError
from fedforget.parties.client_party import open_client
from party_world import table, values_of, write_npz

folder = Path(sys.argv[1])
path = write_npz(folder / "new.npz", [f"N-{i}" for i in range(3000)], values_of(3000, 5))
room = shutil.disk_usage(folder).free
(folder / "ballast").write_bytes(bytes(max(0, room - 120_000)))
with open_client(folder / "aarhus") as party:
    before = party.state_digest()
    try:
        party.import_table(table(path))
    except FedforgetError as error:
        print(error)
    assert party.state_digest() == before
(folder / "ballast").unlink()
with open_client(folder / "aarhus") as party:
    assert party.state_digest() == before and party.audit().passed
    assert party.import_table(table(path))["records"] == 3040
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of two megabytes, in a name space of its own."""
    mount = ["unshare", "-Urm", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], check=False).returncode:
        pytest.skip("no name spaces here")
    World(tmp_path / "made").set_up().fill()
    script = tmp_path / "script.py"
    script.write_text(_ON_A_FULL_DISK, encoding="utf-8")
    small = tmp_path / "small"
    small.mkdir()
    commands = (
        f"mount -t tmpfs -o size=2m none {small} && cp -r {tmp_path}/made/. {small}"
        f" && {sys.executable} {script} {small}"
    )
    done = subprocess.run(
        [*mount, commands],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    if "mount:" in done.stderr:
        pytest.skip("file systems cannot be mounted here")
    assert done.returncode == 0, done.stderr
    assert "the disk is full; nothing was changed" in done.stdout


def test_a_failed_checkpoint_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where old data cannot be overwritten yet, the request stands and its salt is not lost."""
    world = World(tmp_path).set_up().fill(20)

    def fails(self: object) -> None:
        raise ErasureError("no room")

    with open_client(world.client("aarhus")) as party, monkeypatch.context() as patch:
        patch.setattr(Store, "empty_log", fails)
        with pytest.raises(ErasureError, match=r"request 1-\w{8} is stored.*no room"):
            party.forget(["A-3"])
    assert "A-3" not in world.held("aarhus")
    check_waits(world, "A-3")


def check_waits(world: World, *ids: str) -> None:
    """The salt of the only request is kept, and the list knows the ids."""
    with open_client(world.client("aarhus")) as party:
        (waiting,) = party.requests()
        salt = bytes.fromhex(waiting["salt"])
        (request,) = party.store.requests()
        assert sorted(request.digests) == sorted(request_digest(salt, one) for one in ids)
        assert party.status()["ids_suppressed"] == len(ids)
        assert party.audit().passed


@pytest.mark.parametrize("error", [ErasureError, StoreError, KeyboardInterrupt])
def test_a_suppression_list_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Nothing is forgotten then, unless it is only that old pages are not overwritten yet."""
    world = World(tmp_path).set_up().fill(20)
    real = Database.transaction

    @contextmanager
    def transaction(self: Database) -> Iterator[None]:
        with real(self):
            yield
            if self.path.name == "forgotten.sqlite" and error is not ErasureError:
                raise error("no room")
        if self.path.name == "forgotten.sqlite":
            raise error("no room")

    with open_client(world.client("aarhus")) as party, monkeypatch.context() as patch:
        patch.setattr(Database, "transaction", transaction)
        if error is ErasureError:
            assert party.forget(["A-3"]).records == 1
        else:
            with pytest.raises(error, match="no room"):
                party.forget(["A-3"])
    if error is ErasureError:
        check_waits(world, "A-3")
    else:
        with open_client(world.client("aarhus")) as party:
            assert (len(party.store), party.requests()) == (20, [])
            assert party.status()["ids_suppressed"] == 0
        world.check_audits()


def test_somebody_elses_reader_is_not_passed_over(tmp_path: Path) -> None:
    """As long as another program reads an old state, the log cannot be emptied: this is said."""
    import sqlite3

    world = World(tmp_path).set_up().fill(20)
    path = world.client("aarhus") / "client.sqlite"
    with open_client(world.client("aarhus")) as party:
        party.store.execute("PRAGMA busy_timeout = 10")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM part").fetchall()
        with pytest.raises(ErasureError, match="another program has it open"):
            party.forget(["A-3"])
        reader.execute("COMMIT")
        reader.close()
    assert "A-3" not in world.held("aarhus")
    world.check_audits()


def test_what_could_not_be_stored_is_not_acted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose commit fails has not committed; the next round repeats it."""
    world = World(tmp_path).set_up().fill(20)
    world.round()
    with open_client(world.client("bologna")) as party:
        party.forget(["B-1"])

    def fails(self: object, *arguments: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("fedforget.parties.server_party.ServerParty._append", fails)
        with pytest.raises(StoreError, match="the disk is full"):
            world.round()
    with open_server(world.server) as server:
        assert server.ledger().place.round == 1
        assert server.audit()["problems"] == []
    assert world.round()["round"] == 2
    world.check_sums()
    world.check_audits()


def test_an_import_that_fails_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    """Rows before the wrong one were on their way to the disk."""
    from party_world import all_bytes

    world = World(tmp_path).set_up()
    values = values_of(60_000, 3)
    values[-1, 0] = 500.0
    path = write_npz(tmp_path / "wrong.npz", [f"WRONG-{i}" for i in range(60_000)], values)
    with open_client(world.client("aarhus")) as party:
        with pytest.raises(ValueError, match=r"row 60000, column 'age' is 500\.0, outside"):
            party.import_table(table(path))
        contents = all_bytes(world.client("aarhus"))
    assert not [path for path, data in contents.items() if b"WRONG-" in data]
