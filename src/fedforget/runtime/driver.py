"""One round from its opening to its commit, over any way of carrying messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fedforget.parties.server import ServerParty
from fedforget.protocol.errors import ProtocolError, RoundAbortedError
from fedforget.protocol.messages import Kind
from fedforget.protocol.server import Outgoing, Stage
from fedforget.report import Traffic

Exchange = Callable[[Sequence[Outgoing]], Iterable[tuple[str, bytes | None]]]
"""Delivers messages and gives back who answered and with what, until the stage's time is up."""


def drive(
    server: ServerParty,
    kind: Kind | None,
    exchange: Exchange,
    watch: Callable[[Stage], None],
    refused: Callable[[str, ProtocolError], None],
) -> dict[str, Any]:
    """Run one round, commit it, and tell every client.

    Parameters
    ----------
    server : the open server.
    kind : ``"full"`` or ``"delta"``; what is needed, if None.
    exchange : carries messages.
    watch : told each stage as it begins.
    refused : told of answers that the server refuses; their senders are taken for lost.
    """
    protocol, traffic = server.protocol, Traffic()
    start = time.perf_counter()
    chosen: Kind = kind or ("full" if server.needs_full_round() else "delta")
    messages = protocol.open(chosen)
    while protocol.stage is not Stage.DECIDED:
        stage, begin = protocol.stage, time.perf_counter()
        watch(stage)
        server.remember()
        for recipient, data in messages:
            traffic.count("server", recipient, len(data))
        for sender, answer in exchange(messages):
            if answer is not None:
                traffic.count(sender, "server", len(answer))
                try:
                    protocol.receive(answer)
                except ProtocolError as error:
                    refused(sender, error)
            if not protocol.waiting_for:
                break
        try:
            messages = protocol.advance()
        except RoundAbortedError:
            server.remember()
            raise
        traffic.seconds[stage] = traffic.seconds.get(stage, 0.0) + time.perf_counter() - begin
    assert protocol.result is not None
    watch(Stage.DECIDED)
    begin, result, number = time.perf_counter(), protocol.result, protocol.ledger.round
    statistics = {
        "attempts": protocol.ledger.attempt,
        "seconds": round(time.perf_counter() - start, 3),
        "bytes_from_a_client": max(
            (size for party, size in traffic.sent.items() if party != "server"), default=0
        ),
        "changed_bins": len(result.total),
    }
    for _ in exchange(server.commit(result, statistics)):
        pass
    traffic.seconds[Stage.DECIDED] = time.perf_counter() - begin
    return {
        "round": number,
        "kind": result.kind,
        "participants": list(result.survivors),
        "model": server.log()[-1]["body"]["model"],
        **statistics,
        "stages": {stage: round(seconds, 3) for stage, seconds in traffic.seconds.items()},
    }
