"""``epoch-N.json``: a membership list as people read it, compare it and pass it on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from fedforget.errors import FedforgetError
from fedforget.incoming import read_json
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.keys import PublicKey
from fedforget.protocol.membership import Member, Membership, SignedMembership

VERSION = 2

Hex = Annotated[str, Meta(pattern="^[0-9a-f]*$", max_length=1 << 20)]


class MembershipFileError(FedforgetError, ValueError):
    """A membership list that cannot be used."""


class MemberLine(Struct, frozen=True, forbid_unknown_fields=True):
    """One member, and the epoch it came with."""

    name: str
    key: Hex
    suspended: bool
    since: int

    def member(self) -> Member:
        return Member(self.name, bytes.fromhex(self.key), self.suspended, self.since)


class MembershipDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file.  ``fingerprint`` is there for people; it follows from the rest."""

    version: int
    federation: Hex
    epoch: int
    fingerprint: str
    previous: Hex
    after_round: int
    after: Hex
    counted: tuple[str, ...]
    dropped: dict[str, int]
    former: tuple[str, ...]
    parted: tuple[tuple[str, ...], ...]
    members: tuple[MemberLine, ...]
    capacity: int
    signature: Hex

    @classmethod
    def of(cls, signed: SignedMembership) -> MembershipDocument:
        listed = signed.membership
        return cls(
            version=VERSION,
            federation=listed.federation.hex(),
            epoch=listed.epoch,
            fingerprint=listed.fingerprint,
            previous=listed.previous.hex(),
            after_round=listed.after_round,
            after=listed.after.hex(),
            counted=listed.counted,
            dropped=dict(listed.dropped),
            former=listed.former,
            parted=listed.parted,
            members=tuple(
                MemberLine(one.name, one.key.hex(), one.suspended, one.since)
                for one in listed.members
            ),
            capacity=listed.capacity,
            signature=signed.signature.hex(),
        )

    def signed(self) -> SignedMembership:
        """The list as parties use it; only its form is verified."""
        if self.version != VERSION:
            raise MembershipFileError(
                f"a membership list of version {self.version}; this fedforget writes {VERSION}"
            )
        try:
            plain = [
                [
                    bytes.fromhex(self.federation),
                    self.epoch,
                    bytes.fromhex(self.previous),
                    bytes.fromhex(self.after),
                    self.after_round,
                    self.counted,
                    sorted(self.dropped.items()),
                    self.former,
                    self.parted,
                    [line.member() for line in self.members],
                    self.capacity,
                ],
                bytes.fromhex(self.signature),
            ]
            # There and back, so that every length and range is checked.
            signed = SignedMembership.parse(msgspec.msgpack.encode(plain))
        except (ProtocolError, ValueError, OverflowError) as error:
            raise MembershipFileError(f"the membership list is damaged: {error}") from None
        if signed.membership.fingerprint != self.fingerprint:
            raise MembershipFileError("the fingerprint is not that of the membership list")
        return signed

    def checked(self, server_key: PublicKey, federation: bytes) -> Membership:
        """The list, if the server of this federation signed it."""
        try:
            return self.signed().check(server_key, federation)
        except ProtocolError as error:
            raise MembershipFileError(str(error)) from None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        result: dict[str, Any] = msgspec.to_builtins(self)
        return result


def document_of(plain: Any) -> MembershipDocument:
    """The document that JSON holds."""
    try:
        return msgspec.convert(plain, MembershipDocument)
    except (msgspec.ValidationError, ValueError) as error:
        raise MembershipFileError(f"not a membership list: {error}") from None


def read_membership(path: Path) -> MembershipDocument:
    """Read a file that the server wrote."""
    try:
        return document_of(read_json(path))
    except MembershipFileError as error:
        raise MembershipFileError(f"{path}: {error}") from None
