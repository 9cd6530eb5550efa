"""What a client must remember, and what happens to it.

The caller stores the ledger before it sends an answer.  Everything else (the stages of an attempt)
may be lost: the client then sits the attempt out.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.history import Place
from fedforget.protocol.keys import digest_of
from fedforget.protocol.messages import Context


class Pending(Struct, frozen=True):
    """The input of the latest attempt, and the random bytes from which its secrets follow.

    Both are fixed and stored before the client says anything in the attempt.  ``sent`` says that
    the input was sent under its masks: nothing else can have been counted.
    """

    attempt: int
    context: bytes
    plain_input: Histogram
    secret_randomness: bytes
    sent: bool = False

    def __repr__(self) -> str:
        return f"Pending(attempt {self.attempt})"


class Lock(Struct, frozen=True):
    """The survivors that this client signed for since the last commit.

    ``left`` are those among them who leave.  ``proven`` is the digest of the attempt in which
    enough others were seen to sign the same.
    """

    round: int
    membership: bytes
    alive: tuple[str, ...]
    left: tuple[str, ...]
    proven: bytes = b""

    def same_set(self, alive: tuple[str, ...], left: tuple[str, ...]) -> bool:
        return (self.alive, self.left) == (alive, left)


def lock_at(place: Place, lock: Lock | None) -> Lock | None:
    """What was signed since the commit of a place, under whichever list."""
    return lock if lock is not None and lock.round == place.round + 1 else None


def opened_since(place: Place, lock: Lock | None) -> frozenset[str]:
    """Whose inputs are in a sum that may have been opened since the last commit."""
    signed = lock_at(place, lock)
    return frozenset() if signed is None else frozenset(signed.alive)


def leavers_since(place: Place, lock: Lock | None) -> tuple[str, ...]:
    """Who leaves in a sum that may have been opened since the last commit."""
    signed = lock_at(place, lock)
    return () if signed is None else signed.left


class Leaving(Struct, frozen=True):
    """The client wants to leave; ``alone`` if it accepts that its histogram then shows."""

    alone: bool


class ClientLedger(Struct, frozen=True):
    """What a client must remember.

    Attributes
    ----------
    base : what the server counts of this client; None if that is not known.
    base_round : the round that counted it, 0 for none.
    place : the last commit that the client follows.
    pending : the input of the latest attempt since then.
    seen : the latest attempt; earlier ones are replays.
    lock : the survivors that it signed for since the last commit.
    recovering : whether the operator said that this directory may be older than the last commit.
    joins_alone : whether the operator accepted that it joins with few others.
    leaving : whether the client wants to leave.
    left : whether it has left: it says nothing any more.
    """

    base: Histogram | None
    base_round: int = 0
    place: Place = Place()
    pending: Pending | None = None
    seen: int = 0
    lock: Lock | None = None
    recovering: bool = False
    joins_alone: bool = False
    leaving: Leaving | None = None
    left: bool = False

    @classmethod
    def new(cls, n_features: int) -> ClientLedger:
        """Of somebody of whom nothing is counted."""
        return cls(Histogram(n_features))

    @property
    def needs_full(self) -> bool:
        """Whether this client can take part in full rounds only."""
        return self.base is None


class InputFixed(Struct, frozen=True):
    """The client has fixed its input for an attempt: whatever it holds now travels with it.

    There is none where a client sends once more what was counted before: because it waits to leave,
    or because its owner holds something newer back.
    """

    attempt: int


class Followed(Struct, frozen=True):
    """The client follows a commit.

    ``attempt`` is the one whose input was counted, None where the commit did not count this client
    anew.  ``letter`` is the notice as it was received.
    """

    round: int
    letter: bytes
    context: Context
    attempt: int | None
    left: bool


Event = InputFixed | Followed


def digest_of_input(histogram: Histogram) -> bytes:
    """Identifies an input."""
    return digest_of(b"input", msgspec.msgpack.encode(_plain(histogram)))


def dump(ledger: Any) -> bytes:
    """A ledger, or a part of one, as bytes."""
    return msgspec.msgpack.encode(ledger, enc_hook=_encode)


def load(data: bytes, kind: Any = ClientLedger) -> Any:
    """The ledger that :func:`dump` made bytes of."""
    return msgspec.msgpack.decode(data, type=kind, dec_hook=_decode)


def _plain(histogram: Histogram) -> tuple[int, list[tuple[bytes, int]]]:
    return histogram.n_features, sorted(histogram.items())


def _encode(value: Any) -> Any:
    if isinstance(value, Histogram):
        return _plain(value)
    raise NotImplementedError(f"{type(value).__name__} cannot be stored")


def _decode(kind: type, value: Any) -> Any:
    if kind is Histogram:
        n_features, entries = msgspec.convert(value, tuple[int, list[tuple[bytes, int]]])
        return Histogram.checked(n_features, dict(entries))
    raise NotImplementedError(f"{kind} cannot be read")
