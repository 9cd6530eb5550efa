"""Parties as processes that may die: what they store outlives them, and nothing else does.

A party stores before it sends.  It may die before it stores, and then nobody has heard of what it
did, or after, and then it remembers an answer that nobody has got.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import Client
from fedforget.protocol.client import Ledger as ClientLedger
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.federation import Federation, Membership
from fedforget.protocol.keys import Identity
from fedforget.protocol.messages import Kind
from fedforget.protocol.server import Ledger as ServerLedger
from fedforget.protocol.server import Outgoing, Result, Server
from simulator.data import Data, Model
from simulator.faults import Fate, KilledError, ViolationError


class ClientHost:
    """A client and its store.

    Parameters
    ----------
    name, identity, federation, membership : as for a client.
    data : gives the histogram that it would like to be counted with.
    fate : decides where it dies, and is the source of its random bytes.
    observe : called with (message, answer, histogram taken) before an answer leaves.
    party : the class of the process.

    Attributes
    ----------
    ledger, membership : what is stored.
    process : None while it is dead.
    lost : it will not come back by itself.
    leaving : it has forgotten all its data and waits to be counted with nothing.
    amnesic : its store was lost, and it may not know what it is counted with.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        federation: Federation,
        membership: Membership,
        data: Data,
        fate: Fate,
        observe: Callable[[ClientHost, bytes, bytes | None, Histogram | None], None],
        party: type[Client] = Client,
    ) -> None:
        self.name = name
        self.identity = identity
        self.federation = federation
        self.membership = membership
        self.ledger: ClientLedger | None = None
        self.process: Client | None = None
        self.lost = False
        self.leaving = False
        self.amnesic = False
        self._data = data
        self._fate = fate
        self._observe = observe
        self._party = party
        self._taken: Histogram | None = None

    def start(self) -> None:
        """Begin a new process with what is stored."""
        self.process = self._party(
            self.name,
            self.identity,
            self.federation,
            self.membership,
            self._take,
            self.ledger,
            self._fate.rng.randbytes,
        )

    def _take(self) -> Histogram:
        self._taken = self._data.current(self.name)
        return self._taken

    def kill(self) -> None:
        self.process = None

    def lose_ledger(self) -> None:
        """The store is gone.  What the server counts is unknown here until a full round."""
        self.kill()
        self.ledger = None
        self.amnesic = True

    def adopt(self, membership: Membership) -> None:
        if self.process is not None:
            self.process.adopt(membership)
        self.membership = membership

    def receive(self, data: bytes) -> bytes | None:
        """Handle a message, store, and return what is to be sent."""
        assert self.process is not None
        self._taken = None
        before = client_state(self.process)
        try:
            answer = self.process.receive(data)
        except ProtocolError as error:
            if client_state(self.process) != before:
                raise ViolationError(
                    f"{self.name} changed although it refused a message: {error}"
                ) from error
            raise
        return self._conclude(data, answer)

    def _conclude(self, data: bytes, answer: bytes | None) -> bytes | None:
        self._die_if("client_killed_before_storing")
        self._store(data, answer)
        self._die_if("client_killed_before_sending")
        return answer

    def _store(self, data: bytes, answer: bytes | None) -> None:
        assert self.process is not None
        self.ledger = self.process.ledger
        self._observe(self, data, answer, self._taken)

    def _die_if(self, kind: str) -> None:
        if self._fate.strikes(kind):
            self.kill()
            raise KilledError(f"{self.name}: {kind}")


def client_state(client: Client) -> tuple[object, ...]:
    """What a refusal must leave as it was."""
    ledger = client.ledger
    contents = [
        None if histogram is None else dict(histogram.items())
        for histogram in (ledger.base, ledger.pending)
    ]
    return ledger, contents, id(client.stage), client.membership, client._last


@dataclass(frozen=True)
class ServerStore:
    """What the server's disk holds; one transaction replaces all of it."""

    ledger: ServerLedger
    membership: Membership
    aggregate: Histogram
    model: bytes


class ServerHost:
    """The server, its store and its model."""

    def __init__(
        self,
        identity: Identity,
        federation: Federation,
        membership: Membership,
        data: Data,
        fate: Fate,
        party: type[Server] = Server,
    ) -> None:
        self.identity = identity
        self.federation = federation
        empty = Histogram(len(federation.levels))
        model = data.new_model().follow(empty, None)
        self.store = ServerStore(ServerLedger(), membership, empty, model)
        self.process: Server | None = None
        self._data = data
        self._fate = fate
        self._party = party
        self._model: Model = data.new_model()

    def start(self) -> None:
        """Begin a new process with what is stored."""
        self._model = self._data.new_model()
        self.process = self._party(
            self.identity,
            self.federation,
            self.store.membership,
            self.store.ledger,
            self._fate.rng.randbytes,
        )

    def kill(self) -> None:
        self.process = None

    @property
    def running(self) -> Server:
        assert self.process is not None
        return self.process

    def open(self, kind: Kind) -> list[Outgoing]:
        return self._stored(self.running.open(kind))

    def advance(self) -> list[Outgoing]:
        return self._stored(self.running.advance())

    def adopt(self, membership: Membership, departed: tuple[str, ...]) -> None:
        self.running.adopt(membership, departed)
        self._stored([])

    def commit(self) -> list[Outgoing]:
        """Take the result over: ledger, aggregate and model change together."""
        result = self.running.result
        assert result is not None
        aggregate, model = self._outcome(result)
        messages = self.running.commit(model)
        return self._stored(messages, aggregate=aggregate, model=model)

    def _outcome(self, result: Result) -> tuple[Histogram, bytes]:
        if result.kind == "full":
            return result.total, self._model.follow(result.total, None)
        aggregate = self.store.aggregate + result.total
        return aggregate, self._model.follow(aggregate, result.total)

    def _stored(self, messages: list[Outgoing], **changes: object) -> list[Outgoing]:
        self._die_if("server_killed_before_storing")
        server = self.running
        self.store = replace(
            self.store, ledger=server.ledger, membership=server.membership, **changes
        )
        self._die_if("server_killed_before_sending")
        return messages

    def _die_if(self, kind: str) -> None:
        if self._fate.strikes(kind):
            self.kill()
            raise KilledError(f"server: {kind}")

    def receive(self, data: bytes) -> None:
        """Take an answer; a refusal must change nothing."""
        before = server_state(self.running)
        try:
            self.running.receive(data)
        except ProtocolError as error:
            if server_state(self.running) != before:
                raise ViolationError(
                    f"the server changed although it refused a message: {error}"
                ) from error
            raise


def server_state(server: Server) -> tuple[object, ...]:
    """What a refusal must leave as it was."""
    return (
        server.ledger,
        server.stage,
        server.result,
        server.membership,
        server._context,
        server._expected,
        dict(server._answers),
        dict(server._fingerprints),
        dict(server._advertisements),
        server._sharers,
        server._alive,
        server._total.tobytes(),
    )
