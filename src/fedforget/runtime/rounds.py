"""Runs one round of the protocol among parties in this process, and measures it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from fedforget.protocol.client import Client
from fedforget.protocol.messages import Kind
from fedforget.protocol.server import Outgoing, Result, Server, Stage
from fedforget.report import Traffic


def run_round(
    server: Server,
    clients: Mapping[str, Client],
    kind: Kind,
    model_of: Callable[[Result], bytes],
) -> Traffic:
    """Open a round, carry every message, and commit.

    Parameters
    ----------
    server, clients : the parties, clients by their name.
    kind : ``"full"`` or ``"delta"``.
    model_of : takes the result over and returns the digest of the model that follows.
    """
    traffic = Traffic()

    def exchange(messages: list[Outgoing]) -> None:
        for recipient, data in messages:
            traffic.count("server", recipient, len(data))
            answer = clients[recipient].receive(data)
            if answer is not None:
                traffic.count(recipient, "server", len(answer))
                server.receive(answer)

    start = time.perf_counter()
    messages = server.open(kind)
    while server.stage is not Stage.DECIDED:
        stage = server.stage
        exchange(messages)
        messages = server.advance()
        traffic.seconds[stage] = traffic.seconds.get(stage, 0.0) + time.perf_counter() - start
        start = time.perf_counter()
    assert server.result is not None
    digest = model_of(server.result)
    exchange(server.commit(digest))
    traffic.seconds[Stage.DECIDED] = time.perf_counter() - start
    traffic.attempts = server.ledger.attempt
    return traffic
