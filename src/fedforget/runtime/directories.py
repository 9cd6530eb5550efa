"""Runs a round among parties in directories of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedforget.errors import FedforgetError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.round_progress import RoundProgress
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.messages import Kind
from fedforget.protocol.server_stages import Outgoing
from fedforget.runtime.driver import (
    NOBODY,
    Committed,
    Onlooker,
    Watch,
    ask_everybody,
    drive,
)


class RoundError(FedforgetError):
    """A round that cannot begin, or a member that cannot take part in it."""


class Directories:
    """Carries messages between an open server and open clients.

    A member that refuses is left out, and the reason is kept: it is the operator's to read.
    """

    def __init__(self, clients: Mapping[str, ClientParty], onlooker: Onlooker = NOBODY) -> None:
        self._clients = clients
        self._onlooker = onlooker
        self.refusals: dict[str, str] = {}

    def ask(self, question: bytes) -> Iterator[bytes]:
        for name in self._clients:
            answer = self._deliver(name, question)
            if answer is not None:
                yield answer

    def exchange(self, messages: Sequence[Outgoing]) -> Iterator[tuple[str, bytes | None]]:
        for name, data in messages:
            if name in self._clients and name not in self.refusals:
                answer = self._deliver(name, data)
                if name not in self.refusals:
                    yield name, answer

    def _deliver(self, name: str, data: bytes) -> bytes | None:
        try:
            return self._clients[name].receive(data)
        except ProtocolError as error:
            self.refused(name, error)
            return None

    def refused(self, name: str, error: ProtocolError) -> None:
        self.refusals[name] = str(error)
        self._onlooker.refused(name, str(error))


def run(
    server_folder: Path,
    client_folders: Sequence[Path],
    kind: Kind | None = None,
    watch: Watch = lambda stage: None,
) -> dict[str, Any]:
    """Open the directories, bring everybody up to date, and run one round to its commit.

    A round that was cut off before is finished if it was committed, and repeated otherwise.

    Parameters
    ----------
    server_folder, client_folders : the parties.
    kind : ``"full"`` or ``"delta"``; what is needed, if left out.
    watch : told each stage as it begins.
    """
    with _opened(server_folder, client_folders) as (server, clients):
        for name, client in clients.items():
            _check_list(server, client, name)
        with RoundProgress(server_folder).shown(server.ledger().place.round + 1) as onlooker:
            carrier = Directories(clients, onlooker)
            ask_everybody(server.protocol, carrier, onlooker=onlooker)
            problem = server.behind(server.protocol.present.values())
            if problem is not None:
                raise RoundError(problem)
            watch("who")
            try:
                committed = drive(server, kind, carrier, watch, ask=False, onlooker=onlooker)
            except FedforgetError as error:
                if carrier.refusals:
                    raise RoundError(f"{error} ({_in_words(carrier.refusals)})") from error
                raise
        return summary(committed) | {"refused": carrier.refusals}


def recover(server_folder: Path, client_folders: Sequence[Path]) -> dict[str, int]:
    """Give a restored server what its members know.

    Those who came with a list that it has lost are recognised once another member has shown it.
    """
    with _opened(server_folder, client_folders) as (server, clients):
        rounds = lists = 0
        while True:
            carrier = Directories(clients)
            ask_everybody(server.protocol, carrier)
            present = server.protocol.present
            if not present:
                raise RoundError(_in_words(carrier.refusals) or "no member is there to help")
            found = server.recover(present.values())
            rounds += found["rounds_taken_over"]
            lists += found["lists_taken_over"]
            if not found["lists_taken_over"]:
                return found | {"rounds_taken_over": rounds, "lists_taken_over": lists}


def summary(committed: Committed) -> dict[str, Any]:
    """What a round came to, for people and scripts."""
    traffic, result = committed.traffic, committed.result
    sizes = (size for party, size in traffic.sent.items() if party != "server")
    return {
        "round": committed.round,
        "kind": result.kind,
        "participants": list(result.survivors),
        "left": list(result.left),
        "model": committed.model.hex(),
        "attempts": traffic.attempts,
        "seconds": round(sum(traffic.seconds.values()), 3),
        "bytes_from_a_client": max(sizes, default=0),
        "changed_bins": len(result.total),
        "findings": [str(one) for one in committed.findings],
        "stages": {stage: round(seconds, 3) for stage, seconds in traffic.seconds.items()},
    }


def _in_words(refusals: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in refusals.items())


@contextmanager
def _opened(
    server_folder: Path, client_folders: Sequence[Path]
) -> Iterator[tuple[ServerParty, dict[str, ClientParty]]]:
    with ExitStack() as stack:
        server = stack.enter_context(open_server(server_folder))
        clients: dict[str, ClientParty] = {}
        for folder in client_folders:
            client = stack.enter_context(open_client(folder))
            if client.name in clients:
                raise RoundError(f"{folder}: there are two clients named {client.name}")
            if client.federation is None:
                raise RoundError(f"{folder}: {client.name} has not joined a federation")
            difference = client.federation.difference(server.federation)
            if difference is not None:
                raise RoundError(
                    f"{folder}: {client.name} has another federation file: {difference}"
                )
            clients[client.name] = client
        yield server, clients


def _check_list(server: ServerParty, client: ClientParty, name: str) -> None:
    listed, known = server.membership(), client.lists()[-1]
    if known.epoch > listed.epoch:
        raise RoundError(
            f"{name} knows epoch {known.epoch}; this server knows epoch {listed.epoch}: it was"
            " restored from a backup. Run `server recover`"
        )
    if name not in listed:
        raise RoundError(f"{name} is not enrolled at the server")
    if known.epoch < listed.epoch:
        raise RoundError(
            f"{name} knows epoch {known.epoch}, the server is at {listed.epoch}: run client join"
            " with the new list"
        )
