"""Epochs, lost keys, members that come and go, and two processes at one directory."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from party_world import FIVE, World, federation_file, values_of

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.errors import ClientError
from fedforget.parties.folders import FolderError, FolderInUseError, being_made, write_private
from fedforget.parties.server_party import ServerError, ServerParty, open_server
from fedforget.runtime.directories import run
from fedforget.text import UnsafeNameError


def test_old_receipts_verify_after_new_epochs(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    for epoch in range(1, 4):
        world.forget("aarhus", [f"A-{epoch}", f"A-{epoch + 10}"])
        world.round()
        world.enrol(suspend=["evora"]) if epoch % 2 else world.enrol(resume=["evora"])
    world.round()
    with open_client(world.client("aarhus")) as party:
        documents = [json.loads(one.document) for one in party.store.receipts()]
    proofs = [receipts.verify(one, world.federation) for one in documents]
    assert [proof.epoch for proof in proofs] == [1, 2, 3]
    assert [one["request"]["number"] for one in documents] == [1, 2, 3]
    assert proofs[0].model_after == proofs[1].model_before
    covers = world.federation.configuration().published_step is None
    assert {proof.digest_covers_sum for proof in proofs} == {covers}
    world.check_audits()


@pytest.mark.parametrize("published_step", [0.0, 0.01])
def test_the_same_model_is_not_said_to_be_the_same_sum(
    tmp_path: Path, published_step: float
) -> None:
    rules = DisclosurePart(1, 1, 1, published_step)
    world = World(tmp_path).set_up(federation_file(disclosure=rules)).fill(20)
    world.round()
    world.forget("aarhus", ["A-1"])
    world.round()
    with open_client(world.client("aarhus")) as party:
        (document,) = (json.loads(one.document) for one in party.store.receipts())
    proof = receipts.verify(document, world.federation)
    same = " ".join(replace(proof, model_before=proof.model_after).sentences())
    assert ("no bin of the sum changed" in same) == (published_step == 0.0)
    assert ("what is published did not change" in same) == (published_step > 0.0)
    world.check_audits()


def test_before_joining_every_command_says_so(tmp_path: Path) -> None:
    ClientParty.create(tmp_path / "aarhus", "aarhus")
    with open_client(tmp_path / "aarhus") as party:
        for call in (party.preview, lambda: party.approve("abc"), party.histogram, party.audit):
            with pytest.raises(ClientError, match="has not joined a federation"):
                call()


def test_a_lost_identity_key_is_replaced_through_a_new_epoch(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    lost = world.client("aarhus")
    (lost / "identity.key").unlink()
    with pytest.raises(FolderError, match="set up a new client"):
        world.round()
    lost.rename(tmp_path / "lost")
    key = ClientParty.create(world.client("aarhus"), "aarhus")["key"]
    with open_server(world.server) as server:
        with pytest.raises(ServerError, match="aarhus is a member already; --renew replaces"):
            server.enrol({"aarhus": key})
        assert server.membership().epoch == 1
    # Of three that came together, the two others are asked: what aarhus had may show.
    document = world.enrol({"aarhus": key}, renew=["aarhus"], alone=True)
    world.hold("aarhus", [f"A-{number}" for number in range(15)], values_of(15, 3))
    with open_server(world.server) as server:
        assert server.status()["needs_full_round"]
    assert world.round()["kind"] == "full"
    world.check_sums()
    with open_server(world.server) as server:
        assert not server.needs_full_round()
    assert world.round()["kind"] == "delta"
    world.check_sums()
    world.check_audits()
    # The old directory, found again, is of no use to anybody.
    (tmp_path / "lost" / "identity.key").write_bytes(bytes(32))
    (tmp_path / "lost" / "identity.key").chmod(0o600)
    with (
        open_client(tmp_path / "lost") as party,
        pytest.raises(FedforgetError, match=r"not the key with which|not a member of epoch 2"),
    ):
        party.join(None, document)


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
    world = World(tmp_path).set_up()
    late = tmp_path / "late"
    key = ClientParty.create(late, "late")["key"]
    write_private(late / "federation.toml", (world.server / "federation.toml").read_bytes())
    with open_client(late) as party:
        assert party.status()["records"] == 0
        for call in (party.ledger, lambda: party.protocol):
            with pytest.raises(ClientError, match="run client join"):
                call()
    world.round()
    with open_server(world.server) as server:
        members = server.enrol({"late": key})
    with open_client(late) as party:
        party.join(None, members, alone=True)
        assert party.lists()[-1].epoch == 2


def test_before_joining(tmp_path: Path) -> None:
    world = World(tmp_path / "world").set_up()
    with open_server(world.server) as server:
        document = server.document()
    assert document is not None
    ClientParty.create(tmp_path / "alone", "alone")
    with open_client(tmp_path / "alone") as party:
        assert party.status()["federation"] is None
        for call in (lambda: party.forget(["x"]), party.audit, party.leave, party.recover):
            with pytest.raises(ClientError, match="run client join"):
                call()
        with pytest.raises(ClientError, match="federation file is needed"):
            party.join(None, document)


@pytest.mark.parametrize("name", ["", "*", "x" * 201, "a\u202eb", "a\nb"])
def test_names_that_no_client_has(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeNameError):
        ClientParty.create(tmp_path / "client", name)
    assert not (tmp_path / "client").exists()


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
    words = "bologna and 1 more are missing: a full round needs everybody on the list; nothing"
    with pytest.raises(FedforgetError, match=words):
        run(world.server, [world.client("aarhus")])
    ClientParty.create(tmp_path / "alone", "alone")
    with pytest.raises(FedforgetError, match="has not joined"):
        run(world.server, [tmp_path / "alone"])
    assert world.round()["round"] == 1


def test_a_server_without_members(tmp_path: Path) -> None:
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
            server.enrol({"x": "00" * 32})
        with pytest.raises(UnsafeNameError):
            server.enrol({"*": "00" * 32})
        for nothing in ({}, {"gone": []}):
            with pytest.raises(ServerError, match="nothing would change"):
                server.enrol({}, **nothing)
        with pytest.raises(ServerError, match="x is not a member"):
            server.enrol({}, gone=["x"])
        assert server.lists() == []


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
