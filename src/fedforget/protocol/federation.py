"""What every party of a federation agrees on before the first message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import digest_of
from fedforget.scma import Codec

SERVER = ""
"""The server's name in messages; no client has it."""

EVERYONE = "*"
"""The recipient of a commit notice; no client has this name either."""


@dataclass(frozen=True)
class Federation:
    """The fixed part.

    Attributes
    ----------
    identifier : 16 bytes that no other federation has.
    configuration : digest of everything public that influences the model or the protocol.
    server_key : the server's Ed25519 key.
    levels : the grid's bins along each feature.
    first_capacity : different bins for which a delta round has room at first.
    policy : what is expected of the members.
    """

    identifier: bytes
    configuration: bytes
    server_key: bytes
    levels: tuple[int, ...]
    first_capacity: int = 16
    policy: Policy = field(default_factory=Policy)

    def codec(self, capacity: int, salt: bytes) -> Codec:
        """The code of an attempt."""
        return _codec(self.levels, capacity, salt)


@lru_cache(maxsize=4)
def _codec(levels: tuple[int, ...], capacity: int, salt: bytes) -> Codec:
    return Codec(levels, capacity, salt=salt)


@dataclass(frozen=True)
class Membership:
    """The numbered list of members.

    Attributes
    ----------
    epoch : its number.
    keys : each member's identity key.
    capacity : the most different bins that the members' histograms together can have.
    """

    epoch: int
    keys: Mapping[str, bytes]
    capacity: int

    def __post_init__(self) -> None:
        if SERVER in self.keys or EVERYONE in self.keys:
            raise ValueError("a member's name must not be empty or *")

    @property
    def digest(self) -> bytes:
        """Identifies the list; part of every message."""
        entries = [part for name in sorted(self.keys) for part in (name.encode(), self.keys[name])]
        numbers = [number.to_bytes(8, "little") for number in (self.epoch, self.capacity)]
        return digest_of(b"membership", *numbers, *entries)
