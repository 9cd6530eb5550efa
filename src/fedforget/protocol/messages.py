"""Every message of the protocol, how it is signed, and how bytes become one again.

A message is a payload (context, sender, recipient, body) in msgpack, and an Ed25519 signature over
exactly these bytes.  The context names everything that a message must not be torn out of.  Decoding
is strict: unknown fields, other types, wrong lengths and too many bytes are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from fedforget.protocol.errors import BadSignatureError, MalformedError
from fedforget.protocol.keys import Identity, PublicKey, digest_of, digest_of_names
from fedforget.protocol.membership import (
    MAX_MEMBERS,
    SERVER,
    DigestBytes,
    FederationId,
    Key,
    MemberName,
    Names,
    Number,
    Signature,
)
from fedforget.protocol.shares import HASH_BYTES, SHARE_BYTES

VERSION: Literal[2] = 2
MAX_BYTES = 1 << 28
SEALED_SHARES_BYTES = 2 * SHARE_BYTES + 16

_DOMAIN = b"fedforget message 2\0"

RoundKind = Literal["full", "delta"]
Share = Annotated[bytes, Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
ShareHash = Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
Sealed = Annotated[bytes, Meta(min_length=SEALED_SHARES_BYTES, max_length=SEALED_SHARES_BYTES)]
Capacity = Annotated[int, Meta(ge=0, lt=2**31)]
Letters = Annotated[tuple[bytes, ...], Meta(max_length=MAX_MEMBERS)]
Signatures = Annotated[tuple[tuple[MemberName, Signature], ...], Meta(max_length=MAX_MEMBERS)]


class Context(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an attempt is: parties compare all of it.

    ``last`` is the link of the last commit; ``last_attempt`` and ``model`` are the attempt whose
    inputs it counted and the digest of the model that came with it.
    ``leaving`` are the members whose leave statements the opening lists, sorted; ``alone`` those
    among them who accept that their histogram may show.
    """

    federation: FederationId
    configuration: DigestBytes
    membership: DigestBytes
    epoch: Number
    last: DigestBytes
    last_attempt: Number
    model: DigestBytes
    round: Number
    attempt: Number
    kind: RoundKind
    capacity: Capacity
    salt: Annotated[bytes, Meta(max_length=64)]
    leaving: Names = ()
    alone: Names = ()
    version: Literal[2] = VERSION

    @property
    def digest(self) -> bytes:
        """Binds keys, shares and signatures to this attempt."""
        return digest_of(b"attempt", msgspec.msgpack.encode(self))


class LeaveStatement(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A member wants to leave; ``alone`` if it accepts that its histogram then shows."""

    name: MemberName
    alone: bool
    signature: Signature


class Open(Struct, frozen=True, array_like=True, tag="open", forbid_unknown_fields=True):
    """The server begins an attempt; ``notices`` are commits that the recipient does not know."""

    notices: Letters
    leavers: Annotated[tuple[LeaveStatement, ...], Meta(max_length=MAX_MEMBERS)] = ()


class Advertise(Struct, frozen=True, array_like=True, tag="advertise", forbid_unknown_fields=True):
    """A client takes part, with fresh keys."""

    sharing_key: Key
    masking_key: Key


class Roster(Struct, frozen=True, array_like=True, tag="roster", forbid_unknown_fields=True):
    """Who takes part, sorted, and the signed advertisements of the recipient's neighbours."""

    participants: Names
    advertisements: Letters


class SealedShares(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Shares of a dealer's seed and masking key, encrypted, with the hash of each."""

    name: MemberName
    ciphertext: Sealed
    seed_hash: ShareHash
    key_hash: ShareHash

    @property
    def hashes(self) -> bytes:
        return self.seed_hash + self.key_hash


class Shares(Struct, frozen=True, array_like=True, tag="shares", forbid_unknown_fields=True):
    """A dealer's secrets in shares, one for each neighbour, and what its seed hashes to.

    ``own_hash`` is the hash of the share of the seed that the dealer keeps.
    """

    dealt: Annotated[tuple[SealedShares, ...], Meta(max_length=MAX_MEMBERS)]
    own_hash: ShareHash
    seed_digest: DigestBytes


class Delivery(Struct, frozen=True, array_like=True, tag="delivery", forbid_unknown_fields=True):
    """Who shared secrets, sorted, and the shares that are meant for the recipient."""

    sharers: Names
    dealt: Annotated[tuple[SealedShares, ...], Meta(max_length=MAX_MEMBERS)]


def digest_of_delivery(dealt: Iterable[SealedShares]) -> bytes:
    """What a client signs of the shares that reached it."""
    parts = (one.name.encode() + one.ciphertext + one.hashes for one in dealt)
    return digest_of(b"received", *parts)


class Masked(Struct, frozen=True, array_like=True, tag="masked", forbid_unknown_fields=True):
    """A client's vector under its masks, packed.

    ``unreadable`` are the neighbours whose shares the client cannot use, sorted; ``received`` is
    the digest of the shares as they reached it.
    """

    masked_vector: bytes
    unreadable: Names
    received: DigestBytes


class Survivors(Struct, frozen=True, array_like=True, tag="survivors", forbid_unknown_fields=True):
    """Whose vectors arrived, and who shared secrets and then vanished; both sorted."""

    alive: Names
    dead: Names


class Consent(Struct, frozen=True, array_like=True, tag="consent", forbid_unknown_fields=True):
    """A client's signature on the survivors."""

    signature: Signature


class Unmask(Struct, frozen=True, array_like=True, tag="unmask", forbid_unknown_fields=True):
    """The survivors' signatures."""

    consents: Signatures


class Reveal(Struct, frozen=True, array_like=True, tag="reveal", forbid_unknown_fields=True):
    """Shares of the survivors' self-masks and of the masking keys of those who vanished."""

    seeds: Annotated[tuple[tuple[MemberName, Share], ...], Meta(max_length=MAX_MEMBERS)]
    keys: Annotated[tuple[tuple[MemberName, Share], ...], Meta(max_length=MAX_MEMBERS)]


class Notice(Struct, frozen=True, array_like=True, tag="notice", forbid_unknown_fields=True):
    """The server has committed a round.

    Attributes
    ----------
    survivors : whose inputs the round counted, sorted.
    left : those among them who are counted no longer, because they left.
    counted : whom the model counts, sorted by name, each with the last round that counted it.
    view : digest of what the survivors signed beside the survivors.
    model : digest of the new model.
    time : the server's clock, in seconds since 1970.
    consents : signatures of survivors, as many as the policy asks for.
    """

    survivors: Names
    left: Names
    counted: Annotated[tuple[tuple[MemberName, Number], ...], Meta(max_length=MAX_MEMBERS)]
    view: DigestBytes
    model: DigestBytes
    time: Number
    consents: Signatures


FromServer = Open | Roster | Delivery | Survivors | Unmask | Notice
FromClient = Advertise | Shares | Masked | Consent | Reveal
Body = FromServer | FromClient


class Payload(Struct, frozen=True, array_like=True, tag="message", forbid_unknown_fields=True):
    """A message of an attempt before it is signed.  The server's name is empty."""

    context: Context
    sender: Annotated[str, Meta(max_length=200)]
    recipient: Annotated[str, Meta(max_length=200)]
    body: Body


class Who(Struct, frozen=True, array_like=True, tag="who", forbid_unknown_fields=True):
    """The server asks who is there; it says which list and which commit it knows itself."""

    federation: FederationId
    configuration: DigestBytes
    nonce: Annotated[bytes, Meta(min_length=16, max_length=16)]
    epoch: Number
    round: Number


class SignedSet(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Survivors that a client has signed since the last commit, with a list, and who leaves."""

    membership: DigestBytes
    alive: Names
    left: Names


class Present(Struct, frozen=True, array_like=True, tag="present", forbid_unknown_fields=True):
    """A client is there, and says what it knows.

    ``round`` and ``link`` are those of the last commit that it follows, ``seen`` the last attempt.
    ``notices`` and ``lists`` are commits and membership lists that the server does not know, and
    ``signed`` is what a restored server may have lost.
    """

    federation: FederationId
    nonce: Annotated[bytes, Meta(min_length=16, max_length=16)]
    name: MemberName
    membership: DigestBytes
    epoch: Number
    round: Number
    link: DigestBytes
    seen: Number
    needs_full: bool
    leaving: LeaveStatement | None
    notices: Letters
    lists: Letters
    signed: SignedSet | None


class _Signed(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    content: bytes
    signature: Signature


Content = Payload | Who | Present
_signed = msgspec.msgpack.Decoder(_Signed)
_content = msgspec.msgpack.Decoder(Content)


def seal(content: Content, identity: Identity) -> bytes:
    """Sign a message and make bytes of it."""
    data = msgspec.msgpack.encode(content)
    return msgspec.msgpack.encode(_Signed(data, identity.sign(_DOMAIN + data)))


class Letter:
    """Received bytes: readable at once, but not to be believed before :meth:`check`."""

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_BYTES:
            raise MalformedError(f"a message of {len(data)} bytes; {MAX_BYTES} are allowed")
        try:
            self._outer = _signed.decode(data)
            self.content: Content = _content.decode(self._outer.content)
            canonical = msgspec.msgpack.encode(self.content) == self._outer.content
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise MalformedError(f"not a message of version {VERSION}: {error}") from None
        if not canonical:
            raise MalformedError("a message must be written in one way only")
        self.data = data

    @property
    def payload(self) -> Payload:
        """The message of an attempt; a greeting is refused."""
        if not isinstance(self.content, Payload):
            raise MalformedError("a greeting came where a message of an attempt was expected")
        return self.content

    def check(self, key: PublicKey) -> Content:
        """What was sent, if the owner of this key signed it."""
        try:
            key.verify(self._outer.signature, _DOMAIN + self._outer.content)
        except BadSignatureError:
            sender = _sender(self.content) or "the server"
            raise BadSignatureError(f"the message was not signed by {sender}") from None
        return self.content


def _sender(content: Content) -> str:
    match content:
        case Payload():
            return content.sender
        case Present():
            return content.name
    return SERVER


def view_of(roster: tuple[str, ...], sharers: tuple[str, ...], dead: tuple[str, ...]) -> bytes:
    """Digest of what a client signs beside the survivors."""
    return digest_of(b"view", *(digest_of_names(names) for names in (roster, sharers, dead)))


def consent_to(context: Context, alive: tuple[str, ...], view: bytes) -> bytes:
    """What a client signs when it agrees to a set of survivors."""
    return b"fedforget survivors 2\0" + digest_of(context.digest, digest_of_names(alive), view)


def leave_statement(context: tuple[bytes, bytes, bytes], name: str, alone: bool) -> bytes:
    """What a leaver signs; the context is federation, membership list and last link."""
    return b"fedforget leave 2\0" + digest_of(*context, name.encode(), bytes([alone]))
