"""Where the server stands in a round, and what it must remember between rounds.

One class per state; each holds just what the server knows by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from fedforget import scma
from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import Lock
from fedforget.protocol.graph import Graph
from fedforget.protocol.history import Place
from fedforget.protocol.messages import (
    Advertise,
    Body,
    Consent,
    Context,
    Masked,
    Reveal,
    RoundKind,
    Shares,
    view_of,
)
from fedforget.protocol.rules import Requirements


class Outgoing(NamedTuple):
    """A message to be delivered to a client."""

    recipient: str
    data: bytes


class ServerLedger(Struct, frozen=True):
    """What the server must remember between rounds.

    Attributes
    ----------
    place : the last commit.
    attempt : the latest attempt opened, of any round.
    lock : the survivors whom clients were asked to sign since the last commit.
    full_due : whether the aggregate is not to be relied on, so that a full round must come.
    left : who has left in order; they stay on the list until another one drops them.
    """

    place: Place = Place()
    attempt: int = 0
    lock: Lock | None = None
    full_due: bool = False
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoundResult:
    """What a round found out: the sum of the survivors' histograms, or of their changes."""

    kind: RoundKind
    survivors: tuple[str, ...]
    left: tuple[str, ...]
    total: Histogram


@dataclass
class Gathering:
    """Whom a stage has asked, and what they answered."""

    asked: tuple[str, ...] = ()
    answers: dict[str, Body] = field(default_factory=dict)
    fingerprints: dict[str, bytes] = field(default_factory=dict)

    @property
    def present(self) -> tuple[str, ...]:
        """Those who have answered, sorted."""
        return tuple(sorted(self.answers))


@dataclass
class Idle:
    """Between rounds."""

    title = "idle"


@dataclass
class Asking:
    """Who is there?"""

    nonce: bytes
    title = "who"


@dataclass
class Advertising:
    """Waits for fresh keys."""

    context: Context
    needed: Requirements
    gathering: Gathering
    advertisements: dict[str, bytes] = field(default_factory=dict)
    title = "advertise"


@dataclass
class Sharing:
    """Waits for shares."""

    context: Context
    needed: Requirements
    gathering: Gathering
    graph: Graph
    keys: Mapping[str, Advertise]
    title = "share"


@dataclass
class Masking:
    """Waits for masked vectors, and adds them up."""

    context: Context
    needed: Requirements
    gathering: Gathering
    graph: Graph
    keys: Mapping[str, Advertise]
    dealt: Mapping[str, Shares]
    delivered: Mapping[str, bytes]
    masked_total: scma.Elements
    title = "masked input"

    @property
    def sharers(self) -> tuple[str, ...]:
        return tuple(self.dealt)


@dataclass
class Consenting:
    """Waits for signatures on the survivors."""

    context: Context
    needed: Requirements
    gathering: Gathering
    graph: Graph
    keys: Mapping[str, Advertise]
    dealt: Mapping[str, Shares]
    masked_total: scma.Elements
    alive: tuple[str, ...]
    unreadable: Mapping[str, frozenset[str]]
    title = "consistency"

    @property
    def sharers(self) -> tuple[str, ...]:
        return tuple(self.dealt)

    @property
    def dead(self) -> tuple[str, ...]:
        alive = set(self.alive)
        return tuple(name for name in self.dealt if name not in alive)

    @property
    def view(self) -> bytes:
        return view_of(self.graph.participants, self.sharers, self.dead)


@dataclass
class Unmasking(Consenting):
    """Waits for shares of what takes the masks off."""

    consents: Mapping[str, bytes] = field(default_factory=dict)
    title = "unmask"


@dataclass
class Decided:
    """The sum is known, and waits for its commit."""

    context: Context
    result: RoundResult
    view: bytes
    consents: tuple[tuple[str, bytes], ...]
    title = "commit"


ServerStage = Idle | Asking | Advertising | Sharing | Masking | Consenting | Unmasking | Decided
Running = Advertising | Sharing | Masking | Consenting | Unmasking

ANSWERS: dict[type[Running], type[Body]] = {
    Advertising: Advertise,
    Sharing: Shares,
    Masking: Masked,
    Consenting: Consent,
    Unmasking: Reveal,
}
