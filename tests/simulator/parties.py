"""What the parties of a schedule are made of; tests put broken ones in."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.server_side import ServerSide
from simulator.hosts import ClientHost, ServerHost


@dataclass(frozen=True)
class Parties:
    """The classes of clients, of the server, and of what they store."""

    client: type[ClientSide] = ClientSide
    server: type[ServerSide] = ServerSide
    client_host: type[ClientHost] = ClientHost
    server_host: type[ServerHost] = ServerHost
