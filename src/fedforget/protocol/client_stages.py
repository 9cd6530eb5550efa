"""Where a client stands in an attempt.

Own secrets are not here: they follow from what the ledger holds.  The shares of others are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fedforget.protocol.client_ledger import ClientLedger, Event
from fedforget.protocol.messages import Context


@dataclass(frozen=True)
class Resting:
    """Between rounds."""


@dataclass(frozen=True)
class Advertised:
    """Fresh keys are on their way."""

    context: Context


@dataclass(frozen=True)
class Shared:
    """Secrets are shared with the neighbours."""

    context: Context
    roster: tuple[str, ...]
    masking_keys: Mapping[str, bytes]
    secrets: Mapping[str, bytes] = field(repr=False)
    own_share: bytes = field(repr=False)


@dataclass(frozen=True)
class Sent:
    """The masked vector is sent.  ``held`` are the shares of others' seeds and masking keys."""

    context: Context
    roster: tuple[str, ...]
    sharers: tuple[str, ...]
    held: Mapping[str, tuple[bytes, bytes]] = field(repr=False)
    own_share: bytes = field(repr=False)


@dataclass(frozen=True)
class Consented:
    """A set of survivors is signed."""

    context: Context
    roster: tuple[str, ...]
    sharers: tuple[str, ...]
    alive: tuple[str, ...]
    dead: tuple[str, ...]
    held: Mapping[str, tuple[bytes, bytes]] = field(repr=False)
    own_share: bytes = field(repr=False)


@dataclass(frozen=True)
class Revealed:
    """Shares are revealed; nothing secret is left except what the ledger holds."""

    context: Context


ClientStage = Resting | Advertised | Shared | Sent | Consented | Revealed


@dataclass(frozen=True)
class ClientStep:
    """What handling a message came to; nothing of it has happened yet."""

    answer: bytes | None
    stage: ClientStage
    ledger: ClientLedger
    events: tuple[Event, ...]
    last: tuple[bytes, bytes | None]


class Archive(Protocol):
    """Where a client keeps the commits and lists that it has followed, as they were received."""

    def notices_after(self, round_number: int) -> Sequence[bytes]: ...

    def lists_after(self, epoch: int) -> Sequence[bytes]: ...


class NoArchive:
    """Keeps nothing."""

    def notices_after(self, round_number: int) -> Sequence[bytes]:
        return ()

    def lists_after(self, epoch: int) -> Sequence[bytes]:
        return ()
