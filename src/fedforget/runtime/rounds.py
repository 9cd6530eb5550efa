"""Rounds among parties in this process, which store nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.errors import ProtocolError, RoundAbortedError
from fedforget.protocol.messages import RoundKind
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Outgoing, RoundResult
from fedforget.report import Traffic
from fedforget.runtime.driver import drive


class InProcess:
    """A server, its clients by their names, and what takes a result over."""

    def __init__(
        self,
        server: ServerSide,
        clients: Mapping[str, ClientSide],
        model_of: Callable[[RoundResult], bytes],
    ) -> None:
        self.protocol = server
        self._clients = clients
        self._model_of = model_of

    def remember(self) -> None:
        """Nothing outlives this process."""

    def failed(self, error: RoundAbortedError) -> None:
        """There is no log."""

    def commit(self, result: RoundResult, traffic: Traffic) -> list[Outgoing]:
        return self.protocol.commit(self._model_of(result))

    def ask(self, question: bytes) -> Iterator[bytes]:
        for client in self._clients.values():
            answer = client.receive(question)
            assert answer is not None
            yield answer

    def exchange(self, messages: Sequence[Outgoing]) -> Iterator[tuple[str, bytes | None]]:
        for recipient, data in messages:
            yield recipient, self._clients[recipient].receive(data)

    def refused(self, name: str, error: ProtocolError) -> None:
        raise error


def run_round(
    server: ServerSide,
    clients: Mapping[str, ClientSide],
    kind: RoundKind | None,
    model_of: Callable[[RoundResult], bytes],
) -> Traffic:
    """Open a round, carry every message, and commit.

    Parameters
    ----------
    server, clients : the parties, clients by their name.
    kind : ``"full"`` or ``"delta"``; what is needed, if None.
    model_of : takes the result over and returns the digest of the model that follows.
    """
    both = InProcess(server, clients, model_of)
    return drive(both, kind, both).traffic
