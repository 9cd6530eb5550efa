"""Epochs, lost keys, members that come and go, and two processes at one directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from party_world import World, federation_file, values_of

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.client import ClientError, ClientParty, open_client
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.folders import FolderError, FolderInUseError, being_made, write_private
from fedforget.parties.server import ServerError, ServerParty, open_server
from fedforget.runtime.directories import run


def new_epoch(world: World, members: list[str], **changes: dict) -> None:
    enrolments = changes.pop("enrolments", {})
    with open_server(world.server) as server:
        listed = server.enrol(enrolments, **changes)
    for name in members:
        with open_client(world.client(name)) as party:
            party.join(FederationFile.read(world.server / "federation.toml"), listed)


def test_old_receipts_verify_after_new_epochs(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    documents = []
    for epoch in range(1, 4):
        with open_client(world.client("aarhus")) as party:
            party.forget([f"A-{epoch}", f"A-{epoch + 10}"])
        world.round()
        new_epoch(world, list(world.names))
    world.round()
    with open_client(world.client("aarhus")) as party:
        documents = [json.loads(text) for text in party.store.receipts().values()]
    file = FederationFile.read(world.server / "federation.toml")
    proofs = [receipts.verify(one, file) for one in documents]
    assert [proof.epoch for proof in proofs] == [1, 2, 3]
    assert [one["request"]["number"] for one in documents] == [1, 2, 3]
    assert proofs[0].model_after == proofs[1].model_before


def test_a_lost_identity_key_is_replaced_through_a_new_epoch(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    lost = world.client("aarhus")
    (lost / "identity.key").unlink()
    with pytest.raises(FolderError, match="set up a new client"):
        world.round()
    lost.rename(tmp_path / "lost")
    key = ClientParty.create(world.client("aarhus"), "aarhus")["key"]
    new_epoch(world, list(world.names), enrolments={"aarhus": key})
    world.hold("aarhus", [f"A-{number}" for number in range(15)], values_of(15, 3))
    with open_server(world.server) as server:
        assert server.status()["needs_full_round"]
    assert world.round()["kind"] == "full"
    world.check_sums()
    with open_server(world.server) as server:
        assert not server.needs_full_round()
    assert world.round()["kind"] == "delta"
    world.check_sums()
    # The old directory, found again, is of no use to anybody.
    (tmp_path / "lost" / "identity.key").write_bytes(bytes(32))
    (tmp_path / "lost" / "identity.key").chmod(0o600)
    with (
        open_client(tmp_path / "lost") as party,
        open_server(world.server) as server,
        pytest.raises(ClientError, match="not on this list with its present key"),
    ):
        party.join(None, server.members())


def test_leaving_in_order(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    with open_client(world.client("bologna")) as party:
        assert party.leave() == 20
        assert party.status()["leaving"]
        assert party.audit().passed
    assert world.round()["kind"] == "delta"
    world.check_sums()
    with open_client(world.client("bologna")) as party:
        document = json.loads(party.store.receipts()[1])
    file = FederationFile.read(world.server / "federation.toml")
    proof = receipts.verify(document, file)
    assert proof.everything
    assert proof.records == 20
    assert "all that it held" in proof.sentences()[0]
    with pytest.raises(receipts.ReceiptError, match="cannot be checked"):
        receipts.verify(document, file, ids=["B-1"], salt=bytes(16))
    rest = World(tmp_path, ["aarhus", "coimbra"])
    new_epoch(rest, list(rest.names), gone=("bologna",))
    assert rest.round()["kind"] == "delta"
    rest.check_sums()


def test_a_member_that_is_lost(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    rest = World(tmp_path, ["aarhus", "coimbra"])
    new_epoch(rest, list(rest.names), lost=("bologna",))
    assert rest.round()["kind"] == "full"
    rest.check_sums()
    with pytest.raises(FedforgetError, match="bologna is not enrolled"):
        world.round()
    with open_server(world.server) as server, pytest.raises(ServerError, match="not a member"):
        server.enrol({}, gone=("bologna",))


def test_a_member_that_comes(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    more = World(tmp_path, [*world.names, "dresden"])
    key = ClientParty.create(more.client("dresden"), "dresden")["key"]
    with open_server(world.server) as server:
        members = server.enrol({"dresden": key})
    with pytest.raises(FedforgetError, match="knows epoch 1, the server is at 2: run client join"):
        world.round()
    for name in more.names:
        with open_client(more.client(name)) as party:
            done = party.join(FederationFile.read(world.server / "federation.toml"), members)
            assert "dresden" in done["came"]
    more.hold("dresden", ["D-1", "D-2"], values_of(2, 9))
    assert more.round()["kind"] == "delta"
    more.check_sums()


def test_a_client_that_was_away(tmp_path: Path) -> None:
    """A round without it keeps counting it; a notice that it missed comes with the next one."""
    world = World(tmp_path).set_up().fill(20)
    world.round()
    with open_client(world.client("coimbra")) as party:
        party.forget(["C-1"])
    run(world.server, world.clients[:2])
    with open_client(world.client("coimbra")) as party:
        assert party.status()["requests_waiting"] == 1
    world.round()
    world.check_sums()
    with open_client(world.client("coimbra")) as party:
        assert len(party.store.receipts()) == 1


def test_a_client_restored_from_a_backup(tmp_path: Path) -> None:
    """It does not know what is counted of it: a delta is refused, a full round mends it."""
    import shutil

    world = World(tmp_path).set_up().fill(20)
    world.round()
    shutil.copytree(world.client("aarhus"), tmp_path / "backup")
    with open_client(world.client("aarhus")) as party:
        party.forget(["A-1"])
    world.round()
    world.round()
    shutil.rmtree(world.client("aarhus"))
    (tmp_path / "backup").rename(world.client("aarhus"))
    with pytest.raises(FedforgetError, match="a full round is needed"):
        world.round()
    world.round(kind="full")
    world.check_sums()


def test_only_one_process_at_a_time(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(5)
    in_use = pytest.raises(FolderInUseError, match="in use by another")
    with open_client(world.client("aarhus")), in_use:
        world.held("aarhus")
    with open_server(world.server), in_use:
        world.round()
    child = os.fork()
    if not child:
        try:
            world.held("aarhus")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert world.held("aarhus")


def test_a_join_that_was_cut_off(tmp_path: Path) -> None:
    """The federation file is there, the membership list is not: joining again mends it."""
    world = World(tmp_path, ["aarhus", "bologna"]).set_up()
    late = tmp_path / "late"
    key = ClientParty.create(late, "late")["key"]
    write_private(late / "federation.toml", (world.server / "federation.toml").read_bytes())
    with open_client(late) as party:
        assert party.status()["records"] == 0
        with pytest.raises(ClientError, match="run client join"):
            party.membership()
    with open_server(world.server) as server:
        members = server.enrol({"late": key})
    with open_client(late) as party:
        party.join(None, members)


def test_before_joining(tmp_path: Path) -> None:
    ClientParty.create(tmp_path / "alone", "alone")
    with open_client(tmp_path / "alone") as party:
        assert party.status()["federation"] is None
        for call in (lambda: party.forget(["x"]), party.audit, party.leave):
            with pytest.raises(ClientError, match="run client join"):
                call()
        with pytest.raises(ClientError, match="federation file is needed"):
            party.join(None, {})


@pytest.mark.parametrize("name", ["", "*", "x" * 201])
def test_names_that_no_client_has(tmp_path: Path, name: str) -> None:
    with pytest.raises(ClientError, match="1 to 200 characters"):
        ClientParty.create(tmp_path / "client", name)


def test_directories_that_are_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(FolderError, match="is a file"):
        ClientParty.create(tmp_path / "file", "x")
    with pytest.raises(FolderError, match="not empty"):
        ClientParty.create(tmp_path, "x")
    with pytest.raises(FolderError, match="not a directory"), open_client(tmp_path / "missing"):
        pass
    with pytest.raises(FolderError, match="cannot be made"):
        ClientParty.create(tmp_path / "file" / "below", "x")


@pytest.mark.parametrize("strange", ["thesis.tex", "thesis/", ".unfinished/", "client.sqlite/"])
def test_an_init_removes_nothing_that_is_not_its_own(tmp_path: Path, strange: str) -> None:
    """Even where it takes the directory for one whose making was cut off."""
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "identity.key").touch()
    if strange.endswith("/"):
        (folder / strange).mkdir()
    else:
        (folder / strange).touch()
    if strange != ".unfinished/":
        (folder / ".unfinished").touch()
    before = sorted(folder.iterdir())
    with pytest.raises(FolderError, match="not empty"):
        ClientParty.create(folder, "x")
    assert sorted(folder.iterdir()) == before


def test_two_inits_of_one_directory(tmp_path: Path) -> None:
    with being_made(tmp_path / "client", ("identity.key",)):
        write_private(tmp_path / "client" / "identity.key", bytes(32))
        with pytest.raises(FolderInUseError):
            ClientParty.create(tmp_path / "client", "x")
        with pytest.raises(FolderInUseError), open_client(tmp_path / "client"):
            pass
        assert (tmp_path / "client" / "identity.key").exists()


def test_rounds_that_cannot_begin(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(5)
    with pytest.raises(FedforgetError, match="in use"):
        run(world.server, [world.client("aarhus"), world.client("aarhus")])
    with pytest.raises(FedforgetError, match="1 clients are left at advertise, of 2"):
        run(world.server, [world.client("aarhus")])
    ClientParty.create(tmp_path / "alone", "alone")
    with pytest.raises(FedforgetError, match="has not joined"):
        run(world.server, [tmp_path / "alone"])
    assert world.round()["round"] == 2


def test_a_server_without_members(tmp_path: Path) -> None:
    from party_world import federation_file

    ServerParty.create(tmp_path / "server", federation_file())
    with open_server(tmp_path / "server") as server:
        with pytest.raises(ServerError, match="nobody is enrolled"):
            server.membership()
        with pytest.raises(ServerError, match="no model yet"):
            server.model()
        assert server.audit() == {"log_entries": 0, "rounds": 0, "problems": []}
        with pytest.raises(ServerError, match="not valid"):
            server.enrol({"x": "00"})
        with pytest.raises(ServerError, match="not valid"):
            server.enrol({"*": "00" * 32})


@pytest.mark.parametrize("server_points", ["weighted", "uniform"])
def test_the_sizes_of_the_clusters_add_up_to_the_records(
    tmp_path: Path, server_points: str
) -> None:
    federation = federation_file(server_points=server_points)
    world = World(tmp_path).set_up(federation).fill(40)
    world.round()
    with open_server(world.server) as server:
        assert sum(server.sizes()) == 40 * len(world.clients)
        assert len(server.sizes()) == len(server.centres()[0])
