"""What every party of a federation agrees on before the first message."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from fedforget import scma
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import PublicKey


@dataclass(frozen=True)
class Federation:
    """The fixed part.

    Attributes
    ----------
    identifier : 16 bytes that no other federation has.
    configuration : digest of everything public that influences the model or the protocol.
    server_key : the server's identity key.
    levels : the grid's bins along each feature.
    first_capacity : different bins for which a delta round has room at first.
    policy : what is expected of the members.
    """

    identifier: bytes
    configuration: bytes
    server_key: PublicKey
    levels: tuple[int, ...]
    first_capacity: int = 16
    policy: Policy = field(default_factory=Policy)

    def codec(self, capacity: int, salt: bytes) -> scma.Codec:
        """The code of an attempt."""
        return _codec(self.levels, capacity, salt)


@lru_cache(maxsize=4)
def _codec(levels: tuple[int, ...], capacity: int, salt: bytes) -> scma.Codec:
    return scma.Codec(levels, capacity, salt=salt)
