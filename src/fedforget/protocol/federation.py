"""What every party of a federation agrees on before the first message."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from fedforget import scma
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import PublicKey


@dataclass(frozen=True)
class Version:
    """One version of what the parties agree on.

    Attributes
    ----------
    configuration : digest of everything public that influences the model or the protocol.
    first_epoch : the membership list with which it came into force.
    policy : what was expected of the members.
    report : digest of what a client's histogram depends on, its records apart.
    """

    configuration: bytes
    first_epoch: int
    policy: Policy
    report: bytes


@dataclass(frozen=True)
class Federation:
    """What is in force, and what was before an amendment.

    Attributes
    ----------
    identifier : 16 bytes that no other federation has.
    configuration : digest of everything public that influences the model or the protocol.
    server_key : the server's identity key.
    levels : the grid's bins along each feature.
    first_capacity : different bins for which a delta round has room at first.
    policy : what is expected of the members.
    first_epoch : the membership list with which this version came into force.
    report : digest of what a client's histogram depends on, its records apart.
    earlier : the versions before this one, as far as they are known here, the oldest first.
    """

    identifier: bytes
    configuration: bytes
    server_key: PublicKey
    levels: tuple[int, ...]
    first_capacity: int = 16
    policy: Policy = field(default_factory=Policy)
    first_epoch: int = 1
    report: bytes = b""
    earlier: tuple[Version, ...] = ()

    @property
    def version(self) -> Version:
        """The version in force."""
        return Version(self.configuration, self.first_epoch, self.policy, self.report)

    def version_at(self, epoch: int) -> Version | None:
        """The version that goes with a membership list; None if it is not known here."""
        for version in (self.version, *reversed(self.earlier)):
            if epoch >= version.first_epoch:
                return version
        return None

    def codec(self, capacity: int, salt: bytes) -> scma.Codec:
        """The code of an attempt."""
        return _codec(self.levels, capacity, salt)


@lru_cache(maxsize=4)
def _codec(levels: tuple[int, ...], capacity: int, salt: bytes) -> scma.Codec:
    return scma.Codec(levels, capacity, salt=salt)
