"""The numbered list of members, which people check with their own eyes.

A list holds the digest of the list before it and the link of the last commit when it was made, so
lists and commits form one history.  Thresholds, Shamir's points and capacities follow from the
list, not from who happens to take part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

import msgspec
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from msgspec import Meta, Struct

from fedforget.protocol.errors import BadSignatureError, MalformedError, ProtocolError
from fedforget.protocol.keys import (
    DIGEST_BYTES,
    KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    PublicKey,
    digest_of,
)
from fedforget.text import UnsafeNameError, check_name

SERVER = ""
"""The server's name in messages; no client has it."""

EVERYONE = "*"
"""The recipient of a commit notice; no client has this name either."""

BEGINNING = bytes(DIGEST_BYTES)
"""Stands for the commit before the first one, and for the list before the first one."""

MAX_MEMBERS = 100_000
MAX_NUMBER = 2**53
"""Epochs, rounds and attempts stay below this, so that every reader of JSON can hold them."""

MAX_CAPACITY = 2**24
"""Most bins that a list can have room for: a vector for twice as many still fits in memory."""

MemberName = Annotated[str, Meta(min_length=1, max_length=200)]
Names = Annotated[tuple[MemberName, ...], Meta(max_length=MAX_MEMBERS)]
Number = Annotated[int, Meta(ge=0, lt=MAX_NUMBER)]
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
DigestBytes = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
FederationId = Annotated[bytes, Meta(min_length=16, max_length=16)]

_FINGERPRINT = b"fedforget fingerprint 2"
_DOMAIN = b"fedforget membership 2\0"


class Member(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One line of the list.

    Attributes
    ----------
    name, key : who it is, and its identity key.
    suspended : a suspended member stays counted and takes no part.
    since : the epoch it came with.  Those who came together are in the same sums.
    """

    name: MemberName
    key: Key
    suspended: bool = False
    since: Number = 0


class Membership(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, dict=True):
    """A list of members.

    Attributes
    ----------
    federation : the federation's identifier.
    epoch : the list's number, from 1.
    previous : digest of the list before, ``BEGINNING`` for the first.
    after, after_round : link and number of the last commit when the list was made.
    counted : whom that commit counts, sorted.
    dropped : those of them who are not on this list, each with the epoch it came with.
    former : who was on an earlier list and had to go, sorted; some may have come back.
    parted : sets of members whose sum may be known though they are counted with others: they
        were to leave in a sum that was never committed, or were dropped by a list and taken back.
    members : sorted by name.
    capacity : the most different bins that the members' histograms together can have.
    """

    federation: FederationId
    epoch: Number
    previous: DigestBytes
    after: DigestBytes
    after_round: Number
    counted: Names
    dropped: Annotated[tuple[tuple[MemberName, Number], ...], Meta(max_length=MAX_MEMBERS)]
    former: Names
    parted: Annotated[tuple[Names, ...], Meta(max_length=MAX_MEMBERS)]
    members: Annotated[tuple[Member, ...], Meta(max_length=MAX_MEMBERS)]
    capacity: Number

    def __post_init__(self) -> None:
        names = tuple(member.name for member in self.members)
        dropped = tuple(name for name, _ in self.dropped)
        for some in (names, self.counted, dropped, self.former, *self.parted):
            if list(some) != sorted(set(some)):
                raise ValueError("the names of a membership list must be sorted and different")
        if list(self.parted) != sorted(set(self.parted)):
            raise ValueError("the sets of a membership list must be sorted and different")
        if self.epoch < 1:
            raise ValueError("epochs are numbered from 1")
        for name, since in (*((one.name, one.since) for one in self.members), *self.dropped):
            if not 1 <= since <= self.epoch:
                raise ValueError(f"{name} cannot have come with list {since} of {self.epoch}")
        if set(dropped) != set(self.counted) - set(names):
            raise ValueError("those who are dropped must be those who are counted and not listed")
        if self.counted and not self.after_round:
            raise ValueError("nothing is counted before the first commit")
        if not 1 <= self.capacity <= MAX_CAPACITY:
            raise ValueError(f"the capacity must be from 1 to {MAX_CAPACITY}, not {self.capacity}")
        try:
            for name in (*names, *self.counted, *self.former, *sum(self.parted, ())):
                check_name(name)
            keys = {PublicKey(member.key) for member in self.members}
        except (UnsafeNameError, ProtocolError) as error:
            raise ValueError(str(error)) from None
        if len(keys) != len(names):
            raise ValueError("two members must not have the same key")
        for member in self.members:
            if member.suspended and member.name not in self.counted:
                # Its whole input could show, not only what changed since the last commit.
                raise ValueError(
                    f"{member.name} is not counted, so it cannot be suspended: take it off the list"
                )

    @cached_property
    def keys(self) -> Mapping[str, PublicKey]:
        """Each member's identity key."""
        return {member.name: PublicKey(member.key) for member in self.members}

    @cached_property
    def active(self) -> tuple[str, ...]:
        """Those who may take part, sorted."""
        return tuple(member.name for member in self.members if not member.suspended)

    @cached_property
    def suspended(self) -> frozenset[str]:
        return frozenset(member.name for member in self.members if member.suspended)

    @cached_property
    def since(self) -> Mapping[str, int]:
        """The epoch with which each member came."""
        return {member.name: member.since for member in self.members}

    @cached_property
    def returned(self) -> frozenset[str]:
        """Members who were there before: earlier sums may already hold what they bring."""
        return frozenset(self.former) & self.position.keys()

    @cached_property
    def joined(self) -> tuple[str, ...]:
        """Who was not on the list before, sorted."""
        return tuple(member.name for member in self.members if member.since == self.epoch)

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Each member's place on the list, from 1: its point in the sharing of secrets."""
        return {member.name: number for number, member in enumerate(self.members, 1)}

    @cached_property
    def digest(self) -> bytes:
        """Identifies the list; part of every message."""
        return digest_of(b"membership", msgspec.msgpack.encode(self))

    @cached_property
    def fingerprint(self) -> str:
        """Six groups of five digits, to be compared on the telephone.

        A lying server makes both lists that it shows, so it need not meet a given fingerprint: any
        two that agree will do, and these are found after about 10^15 tries.  Therefore a try must
        be slow: 4 MiB of memory and about 10 ms.
        """
        slow = Scrypt(salt=_FINGERPRINT, length=16, n=2**12, r=8, p=1).derive(self.digest)
        digits = f"{int.from_bytes(slow, 'big') % 10**30:030}"
        return " ".join(digits[at : at + 5] for at in range(0, 30, 5))

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, name: object) -> bool:
        return name in self.position


class SignedMembership(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A list and the server's signature on it."""

    membership: Membership
    signature: Signature

    @classmethod
    def by(cls, membership: Membership, identity: Identity) -> SignedMembership:
        return cls(membership, identity.sign(_DOMAIN + membership.digest))

    def check(self, server_key: PublicKey, federation: bytes) -> Membership:
        """The list, if the server of this federation signed it."""
        try:
            server_key.verify(self.signature, _DOMAIN + self.membership.digest)
        except BadSignatureError:
            raise BadSignatureError(
                "the membership list was changed, or not signed by the server"
            ) from None
        if self.membership.federation != federation:
            raise BadSignatureError("the membership list belongs to another federation")
        return self.membership

    @property
    def data(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def parse(cls, data: bytes) -> SignedMembership:
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise MalformedError(f"not a membership list: {error}") from None
