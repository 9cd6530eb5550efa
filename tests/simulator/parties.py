"""What the parties of a schedule are made of; tests put broken ones in."""

from __future__ import annotations

from dataclasses import dataclass

from fedforget.protocol.client import Client
from fedforget.protocol.server import Server
from simulator.hosts import ClientHost, ServerHost


@dataclass(frozen=True)
class Parties:
    """The classes of clients, of the server, and of what they store."""

    client: type[Client] = Client
    server: type[Server] = Server
    client_host: type[ClientHost] = ClientHost
    server_host: type[ServerHost] = ServerHost
