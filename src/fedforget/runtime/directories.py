"""Runs a round among parties in directories of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedforget.errors import FedforgetError
from fedforget.parties.client import ClientParty, open_client
from fedforget.parties.server import ServerParty, open_server
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.messages import Kind
from fedforget.protocol.server import Outgoing
from fedforget.runtime.driver import drive

Watch = Callable[[str], None]


class RoundError(FedforgetError):
    """A round that cannot begin."""


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
    with ExitStack() as stack:
        server = stack.enter_context(open_server(server_folder))
        clients: dict[str, ClientParty] = {}
        for folder in client_folders:
            client = stack.enter_context(open_client(folder))
            if client.name in clients:
                raise RoundError(f"{folder}: there are two clients named {client.name}")
            _check_same_federation(server, client, folder)
            clients[client.name] = client
        _tell(server.last_notice(), clients)
        return _round(server, clients, kind, watch)


def _check_same_federation(server: ServerParty, client: ClientParty, folder: Path) -> None:
    if client.federation is None:
        raise RoundError(f"{folder}: {client.name} has not joined a federation")
    difference = client.federation.difference(server.federation)
    if difference is not None:
        raise RoundError(f"{folder}: {client.name} has another federation file: {difference}")
    members = server.members()
    if members is None or client.name not in members["keys"]:
        raise RoundError(f"{folder}: {client.name} is not enrolled at the server")
    if client.membership().epoch != members["epoch"]:
        raise RoundError(
            f"{folder}: {client.name} knows epoch {client.membership().epoch}, the server is at"
            f" {members['epoch']}: run client join with the new list"
        )


def _tell(messages: Sequence[Outgoing], clients: Mapping[str, ClientParty]) -> None:
    """Deliver commit notices; whoever knows them already ignores them."""
    for name, data in messages:
        if name in clients:
            clients[name].receive(data)


def _round(
    server: ServerParty, clients: Mapping[str, ClientParty], kind: Kind | None, watch: Watch
) -> dict[str, Any]:
    def exchange(messages: Sequence[Outgoing]) -> Iterator[tuple[str, bytes | None]]:
        for name, data in messages:
            if name in clients:
                yield name, clients[name].receive(data)

    def refused(name: str, error: ProtocolError) -> None:
        raise error

    return drive(server, kind, exchange, watch, refused)
