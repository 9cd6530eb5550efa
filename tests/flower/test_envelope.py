"""Sealed answers, and attempts that cannot be read once they are over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Advertised, Resting, Revealed, Shared
from fedforget.protocol.errors import BadKeyError, BadSignatureError, MalformedError
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Policy
from fedforget.protocol.history import Place, next_list
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Member
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Outgoing
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
    with pytest.raises(MalformedError, match="not sealed for this run"):
        later.open(sealed)
    with pytest.raises(MalformedError, match="not sealed for this run"):
        key.open(sealed[:-1] + bytes([sealed[-1] ^ 1]))
    with pytest.raises(BadKeyError, match="low order"):
        key.open(bytes(32) + sealed[32:])
    with pytest.raises(MalformedError, match="too short"):
        key.open(sealed[:31])


class World:
    """Two clients in a round; each is a new object for every message.

    What a client stores itself, its ledger, is kept by its name.
    """

    def __init__(self, folder: Path) -> None:
        self.identities = {name: Identity(os.urandom(32)) for name in ("one", "two")}
        self.federation = Federation(
            FEDERATION, bytes(32), SERVER.public, (4, 4), policy=Policy(dropout=0.0, minimum=2)
        )
        self.membership = next_list(
            None,
            Place(),
            federation=FEDERATION,
            members=[Member(name, one.public.data) for name, one in self.identities.items()],
            capacity=4,
        )
        self.server = ServerSide(SERVER, self.federation, self.membership)
        self.state: dict[str, dict[str, bytes]] = {}
        self.folder = folder
        self.ledgers = {name: self.client(name).ledger for name in self.identities}
        self.other = self.client("two")

    def client(self, name: str = "one") -> ClientSide:
        ledger = self.ledgers[name] if hasattr(self, "ledgers") else None
        return ClientSide(
            name,
            self.identities[name],
            self.federation,
            [self.membership],
            lambda: Histogram(2),
            ledger,
        )

    def memory(self) -> AttemptMemory:
        return AttemptMemory(self.folder, self.state, dict)

    def deliver(self, data: bytes) -> bytes | None:
        """Hand a message to the first client, as a process of its own would."""
        client = self.client()
        self.memory().recall(client)
        answer = client.receive(data)
        self.ledgers["one"] = client.ledger
        self.memory().keep(client)
        self.last = client
        return answer

    def open(self) -> None:
        self.deliver(self.server.open("full")[0].data)

    def stage(self, messages: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Deliver a stage's messages; returns those of the next."""
        for name, data in messages:
            answer = self.deliver(data) if name == "one" else self.other.receive(data)
            assert answer is not None
            self.server.receive(answer)
        return self.server.advance()


def test_a_whole_attempt_goes_on_in_other_processes(tmp_path: Path) -> None:
    world = World(tmp_path)
    messages: Sequence[Outgoing] = world.server.open("full")
    stages = []
    while messages:
        messages = world.stage(messages)
        stages.append(type(world.last.stage).__name__)
    assert stages == ["Advertised", "Shared", "Sent", "Consented", "Revealed"]
    assert world.server.result is not None
    # Nothing of the attempt is left when there is nothing more to say.
    assert isinstance(world.last.stage, Revealed)
    assert world.state == {}
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_not_readable_in_flowers_memory(tmp_path: Path) -> None:
    world = World(tmp_path)
    messages = world.stage(world.server.open("full"))
    assert isinstance(world.last.stage, Advertised)
    world.stage(messages)
    stage = world.last.stage
    assert isinstance(stage, Shared)
    assert (tmp_path / ATTEMPT_KEY).stat().st_mode & 0o777 == 0o600
    kept = world.state["attempt"]["attempt"]
    assert not any(secret in kept for secret in (stage.own_share, *stage.secrets.values()))
    again = world.client()
    world.memory().recall(again)
    assert again.stage == stage


def test_a_cut_off_attempt_cannot_be_read_after_the_next_one_began(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    left_over = dict(world.state)
    world.open()
    world.state.clear()
    world.state |= left_over
    again = world.client()
    world.memory().recall(again)
    assert isinstance(again.stage, Resting)
    assert "attempt" not in world.state


def test_nothing_is_kept_between_rounds(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    world.memory().keep(world.client())
    assert world.state == {}
    assert list(tmp_path.iterdir()) == []

    world.open()
    world.memory().wipe()
    world.memory().wipe()
    assert world.state == {}
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_memory_is_no_memory(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.open()
    kept = world.state["attempt"]["attempt"]
    world.state["attempt"] = {"attempt": kept[:-1] + bytes([kept[-1] ^ 1])}
    again = world.client()
    world.memory().recall(again)
    assert isinstance(again.stage, Resting)
    assert world.state == {}
