"""A client that cannot store what a message leads to: memory and disk agree afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from party_world import FIVE, World, values_of

from fedforget.errors import FedforgetError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.database import ErasureError, StoreError
from fedforget.parties.server_party import open_server
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.messages import Consent, Letter, Masked, Payload, Reveal
from fedforget.runtime.directories import Directories
from fedforget.runtime.driver import ask_everybody, drive

FAILURES = ("before", "inside", "erasure", "interrupted")


def failing_at(number: int, how: str, real: Callable) -> Callable:
    """The transaction with this number fails, once."""
    count = 0

    @contextmanager
    def transaction() -> Iterator[None]:
        nonlocal count
        count += 1
        if count != number:
            with real():
                yield
            return
        if how == "before":
            raise StoreError("the disk is full; nothing was changed")
        with real():
            yield
            if how == "inside":
                raise StoreError("the disk is full; nothing was changed")
            if how == "interrupted":
                raise KeyboardInterrupt
        raise ErasureError("stored, but not overwritten yet")

    return transaction


class Watched(Directories):
    """Delivers every message to aarhus again if it could not be stored, and notes its answers."""

    def __init__(self, clients: dict[str, ClientParty]) -> None:
        super().__init__(clients)
        self.failures = 0
        self.said: dict[tuple[bytes, str], set[bytes]] = {}

    def _deliver(self, name: str, data: bytes) -> bytes | None:
        try:
            answer = super()._deliver(name, data)
        except (StoreError, KeyboardInterrupt):
            self.failures += 1
            self._check_agrees(self._clients[name])
            # The same message again gives an answer, or a refusal by name.
            answer = super()._deliver(name, data)
        self._check_agrees(self._clients[name])
        content = Letter(answer).content if answer else None
        if name == "aarhus" and isinstance(content, Payload):
            key = content.context.digest, type(content.body).__name__
            self.said.setdefault(key, set()).add(answer or b"")
        return answer

    def _check_agrees(self, party: ClientParty) -> None:
        assert party.protocol.ledger == party.ledger()

    def check_said_once(self) -> None:
        """Never two vectors, sets or shares in one attempt."""
        for (_, kind), answers in self.said.items():
            if kind in (Masked.__name__, Consent.__name__, Reveal.__name__):
                assert len(answers) == 1, kind


def run_with(world: World, spoil: Callable[[ClientParty], None], kind: str | None) -> Watched:
    """A round in which one client is spoiled; it may fail."""
    with ExitStack() as stack:
        server = stack.enter_context(open_server(world.server))
        clients = {
            name: stack.enter_context(open_client(world.client(name))) for name in world.names
        }
        spoil(clients["aarhus"])
        carrier = Watched(clients)
        try:
            ask_everybody(server.protocol, carrier)
            drive(server, kind, carrier, ask=False)
        except FedforgetError:
            assert carrier.refusals.keys() == {"aarhus"}
        carrier.check_said_once()
        return carrier


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("storage"), FIVE).set_up().fill(10)
    world.round()
    world.forget("aarhus", ["A-1", "A-2"])
    world.hold("bologna", ["X-1"], values_of(1, 30))
    return world


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("kind", ["delta", "full"])
def test_storing_fails_at_every_stage(tmp_path: Path, made: World, how: str, kind: str) -> None:
    """Opening, masked input, consent, reveal and notice are stored: each of them fails once."""
    refused = 0
    for number in range(1, 7):
        world = made.copy_to(tmp_path / str(number))

        def spoil(party: ClientParty, number: int = number) -> None:
            party.store.transaction = failing_at(number, how, party.store.transaction)  # type: ignore[method-assign]

        carrier = run_with(world, spoil, kind)
        assert carrier.failures == (number <= 5), "five messages are stored"
        refused += bool(carrier.refusals)
        world.check_audits()
        world.round(kind=kind)
        world.round()
        world.check_sums()
        world.check_audits()
        with open_client(world.client("aarhus")) as party:
            assert (len(party.store.receipts()), party.store.requests()) == (1, [])
    # A client that begins again from its store sits the attempt out; a notice is just taken again.
    assert refused <= 4


def test_an_answer_is_not_given_before_it_is_stored(made: World) -> None:
    """A store that never takes anything: the client says nothing at all that binds it."""

    def broken() -> None:
        raise StoreError("the disk is full; nothing was changed")

    with open_server(made.server) as server, open_client(made.client("aarhus")) as party:
        (_, opening), *_ = server.protocol.open("delta")
        party.store.transaction = broken  # type: ignore[method-assign,assignment]
        before = party.ledger()
        for _ in range(3):
            with pytest.raises(StoreError, match="the disk is full"):
                party.receive(opening)
            assert party.ledger() == party.protocol.ledger == before


def test_a_refusal_stores_nothing(made: World) -> None:
    with open_client(made.client("aarhus")) as party:
        before = party.ledger()
        for data in (b"", b"\x00", b"x" * 1000):
            with pytest.raises(ProtocolError):
                party.receive(data)
        assert party.ledger() == party.protocol.ledger == before
