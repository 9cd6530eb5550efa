"""Sealed answers, and attempts that cannot be read once they are over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import Advertised, Client, Idle
from fedforget.protocol.errors import BadShareError, BadSignatureError, MalformedError
from fedforget.protocol.federation import Federation, Membership
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import Agreement, Identity
from fedforget.protocol.server import Server
from fedforget.runtime.flower.envelope import (
    ATTEMPT_KEY,
    AttemptMemory,
    RunKey,
    checked,
    seal_for,
)

SERVER, OTHER = (Identity(bytes([number]) * 32) for number in (1, 2))
FEDERATION = bytes(16)


def test_an_answer_comes_back() -> None:
    key = RunKey.fresh(SERVER, FEDERATION)
    for answer in (b"", b"masked", os.urandom(5000)):
        sealed = seal_for(checked(key.offer, SERVER.public, FEDERATION), answer)
        assert not answer or answer not in sealed
        assert key.open(sealed) == answer


def test_only_the_servers_key_is_answered() -> None:
    offer = RunKey.fresh(OTHER, FEDERATION).offer
    with pytest.raises(BadSignatureError, match="not the server of the client's federation"):
        checked(offer, SERVER.public, FEDERATION)
    offer = RunKey.fresh(SERVER, bytes(15) + b"1").offer
    with pytest.raises(BadSignatureError):
        checked(offer, SERVER.public, FEDERATION)
    with pytest.raises(BadSignatureError):
        checked(b"", SERVER.public, FEDERATION)


def test_another_runs_key_opens_nothing() -> None:
    key, later = (RunKey.fresh(SERVER, FEDERATION) for _ in range(2))
    sealed = seal_for(checked(key.offer, SERVER.public, FEDERATION), b"masked")
    with pytest.raises(BadShareError):
        later.open(sealed)
    with pytest.raises(BadShareError):
        key.open(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    with pytest.raises(MalformedError, match="too short"):
        key.open(sealed[:31])


class World:
    """A client in a round, which is a new object for every message."""

    def __init__(self, folder: Path) -> None:
        self.identity = Identity(os.urandom(32))
        self.federation = Federation(
            FEDERATION, bytes(32), SERVER.public, (4, 4), policy=Policy(minimum=1)
        )
        self.membership = Membership(1, {"one": self.identity.public}, 4)
        self.server = Server(SERVER, self.federation, self.membership)
        self.state: dict[str, dict[str, bytes]] = {}
        self.folder = folder

    def client(self) -> Client:
        return Client("one", self.identity, self.federation, self.membership, lambda: Histogram(2))

    def memory(self) -> AttemptMemory:
        return AttemptMemory(self.folder, self.state, dict)


def test_an_attempt_goes_on_in_another_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    client = world.client()
    client.receive(world.server.open("full")[0].data)
    world.memory().keep(client)
    stage = client.stage
    assert isinstance(stage, Advertised)
    assert (tmp_path / ATTEMPT_KEY).stat().st_mode & 0o777 == 0o600
    assert stage.masking.private not in world.state["attempt"]["attempt"]

    again = world.client()
    world.memory().recall(again)
    assert again.stage == stage
    assert isinstance(stage.masking, Agreement)


def test_a_cut_off_attempt_cannot_be_read_after_the_next_one_began(tmp_path: Path) -> None:
    world = World(tmp_path)
    client = world.client()
    client.receive(world.server.open("full")[0].data)
    world.memory().keep(client)
    left_over = dict(world.state)

    client.receive(world.server.open("full")[0].data)
    world.memory().keep(client)
    world.state.clear()
    world.state |= left_over
    again = world.client()
    world.memory().recall(again)
    assert isinstance(again.stage, Idle)
    assert "attempt" not in world.state


def test_nothing_is_kept_between_rounds(tmp_path: Path) -> None:
    world = World(tmp_path)
    client = world.client()
    client.receive(world.server.open("full")[0].data)
    world.memory().keep(client)
    world.memory().keep(world.client())
    assert world.state == {}
    assert list(tmp_path.iterdir()) == []

    client.receive(world.server.open("full")[0].data)
    world.memory().keep(client)
    world.memory().wipe()
    world.memory().wipe()
    assert world.state == {}
    assert list(tmp_path.iterdir()) == []
