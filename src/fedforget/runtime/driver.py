"""One round from its first question to its commit, over any way of carrying messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedforget.protocol.errors import Finding, ProtocolError, RoundAbortedError
from fedforget.protocol.messages import Letter, Present, RoundKind
from fedforget.protocol.recovery import highest_attempt
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Decided, Outgoing, RoundResult
from fedforget.report import Traffic

OnStage = Callable[[str], None]
"""Called with each stage as it begins."""


class Host(Protocol):
    """A server and what it stores."""

    @property
    def protocol(self) -> ServerSide: ...

    def remember(self) -> None:
        """Store what must last, before messages go out."""

    def failed(self, error: RoundAbortedError) -> None:
        """Keep who took part in an attempt that failed, and who is to blame."""

    def commit(self, result: RoundResult, traffic: Traffic) -> list[Outgoing]:
        """Take a result over, commit it, and give the notices."""


class Carrier(Protocol):
    """Brings messages to members and answers back, until a stage's time is up.

    A member that cannot be reached, or refuses, is left out.
    """

    def ask(self, question: bytes) -> Iterable[bytes]:
        """Ask everybody who they are; gives the answers as they come."""

    def exchange(self, messages: Sequence[Outgoing]) -> Iterable[tuple[str, bytes | None]]:
        """Deliver messages; gives who has taken one, and the answer if there is one."""

    def refused(self, name: str, error: ProtocolError) -> None:
        """The server refuses somebody's answer."""


class Onlooker(Protocol):
    """Follows a round; it has no part in it."""

    def began(self, stage: str, asked: Sequence[str], *, attempt: int, kind: str | None) -> None:
        """A stage begins, and waits for those who were asked."""

    def answered(self, name: str) -> None:
        """A member's answer was taken."""

    def refused(self, name: str, reason: str) -> None:
        """A member's answer was not taken."""


class _Nobody:
    """Nobody looks on."""

    def began(self, stage: str, asked: Sequence[str], *, attempt: int, kind: str | None) -> None:
        pass

    def answered(self, name: str) -> None:
        pass

    def refused(self, name: str, reason: str) -> None:
        pass


NOBODY = _Nobody()


@dataclass(frozen=True)
class Committed:
    """A committed round."""

    round: int
    result: RoundResult
    model: bytes
    traffic: Traffic
    findings: tuple[Finding, ...] = field(default=())


def ask_everybody(
    server: ServerSide,
    carrier: Carrier,
    traffic: Traffic | None = None,
    known: Mapping[str, Present] | None = None,
    onlooker: Onlooker = NOBODY,
) -> dict[str, bytes]:
    """Find out who is there and what they know; returns the answers that were accepted, by name.

    ``known`` are answers to an earlier question that still hold: these members need not be asked.
    """
    question = server.ask()
    server.present.update(known or {})
    onlooker.began("who", server.waiting_for, attempt=0, kind=None)
    accepted: dict[str, bytes] = {}
    for answer in carrier.ask(question):
        try:
            if known and _sender_of(answer) in known:
                continue
            name = server.greet(answer)
        except ProtocolError as error:
            carrier.refused("somebody", error)
            onlooker.refused("somebody", str(error))
            continue
        onlooker.answered(name)
        accepted.setdefault(name, answer)
        if traffic is not None:
            traffic.count("server", name, len(question))
            traffic.count(name, "server", len(answer))
        if not server.waiting_for:
            break
    return accepted


def _sender_of(answer: bytes) -> str:
    content = Letter(answer).content
    return content.name if isinstance(content, Present) else ""


def drive(
    host: Host,
    kind: RoundKind | None,
    carrier: Carrier,
    watch: OnStage = lambda stage: None,
    *,
    ask: bool = True,
    onlooker: Onlooker = NOBODY,
) -> Committed:
    """Run one round, commit it, and tell every member.

    Parameters
    ----------
    host : the server.
    kind : ``"full"`` or ``"delta"``; what is needed, if None.
    carrier : brings messages.
    watch : told each stage as it begins.
    ask : whether to ask first who is there; not needed again in a run of several rounds.
    onlooker : follows the round, stage by stage and answer by answer.
    """
    server, traffic = host.protocol, Traffic()
    if ask:
        watch("who")
        begin = time.perf_counter()
        ask_everybody(server, carrier, traffic, onlooker=onlooker)
        traffic.seconds["who"] = time.perf_counter() - begin
    _catch_up(server, carrier, traffic, onlooker)
    chosen: RoundKind = kind or server.kind_needed()
    first = highest_attempt(server.ledger.attempt, server.present.values()) + 1
    for _ in range(len(server.membership)):
        try:
            _attempt(host, chosen, carrier, watch, traffic, onlooker)
            break
        except RoundAbortedError as error:
            host.failed(error)
            if not error.again:
                raise
    else:
        raise RoundAbortedError("somebody spoils every attempt", findings=server.findings)
    assert server.result is not None
    watch(server.stage.title)
    attempt = server.ledger.attempt
    onlooker.began("commit", (), attempt=attempt, kind=chosen)
    begin, result, findings = time.perf_counter(), server.result, tuple(server.findings)
    traffic.attempts = server.ledger.attempt - first + 1
    messages = host.commit(result, traffic)
    told = [one.recipient for one in messages]
    onlooker.began("commit", told, attempt=attempt, kind=chosen)
    for name, _ in carrier.exchange(messages):
        server.delivered(name)
        onlooker.answered(name)
    traffic.seconds["commit"] = time.perf_counter() - begin
    place = server.ledger.place
    return Committed(place.round, result, place.model, traffic, findings)


def _catch_up(server: ServerSide, carrier: Carrier, traffic: Traffic, onlooker: Onlooker) -> None:
    """Bring commits to members who need them now, and ask those again who want to leave."""
    waiting = {
        name
        for name, one in server.present.items()
        if one.leaving is not None and one.round < server.ledger.place.round
    }
    for messages in server.overdue():
        for _ in carrier.exchange(messages):
            pass
    if waiting:
        known = {name: one for name, one in server.present.items() if name not in waiting}
        ask_everybody(server, carrier, traffic, known, onlooker)


def _attempt(
    host: Host,
    kind: RoundKind,
    carrier: Carrier,
    watch: OnStage,
    traffic: Traffic,
    onlooker: Onlooker,
) -> None:
    """From the opening to a sum; capacity may grow on the way."""
    server = host.protocol
    messages = server.open(kind)
    while not isinstance(server.stage, Decided):
        stage, begin = server.stage.title, time.perf_counter()
        watch(stage)
        onlooker.began(stage, server.waiting_for, attempt=server.ledger.attempt, kind=kind)
        host.remember()
        for recipient, data in messages:
            traffic.count("server", recipient, len(data))
        for sender, answer in carrier.exchange(messages):
            if answer is not None:
                traffic.count(sender, "server", len(answer))
                try:
                    server.receive(answer)
                    onlooker.answered(sender)
                except ProtocolError as error:
                    carrier.refused(sender, error)
                    onlooker.refused(sender, str(error))
            if not server.waiting_for:
                break
        messages = server.advance()
        traffic.seconds[stage] = traffic.seconds.get(stage, 0.0) + time.perf_counter() - begin
