"""Every message of the protocol, how it is signed, and how bytes become one again.

A message is a payload (context, sender, recipient, body) in msgpack, and an Ed25519 signature over
exactly these bytes.  The context names everything that a message must not be torn out of.  Decoding
is strict: unknown fields, other types, wrong lengths and too many bytes are refused by name.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from fedforget.protocol.errors import BadSignatureError, MalformedError
from fedforget.protocol.keys import KEY_BYTES, SIGNATURE_BYTES, Identity, digest_of, signed_by
from fedforget.protocol.shares import SHARE_BYTES

VERSION: Literal[1] = 1
MAX_BYTES = 1 << 28
MAX_MEMBERS = 100_000
SEALED_SHARES_BYTES = 2 * SHARE_BYTES + 16

_DOMAIN = b"fedforget message 1\0"

Kind = Literal["full", "delta"]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Number = Annotated[int, Meta(ge=0, lt=2**62)]
Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
Share = Annotated[bytes, Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
Sealed = Annotated[bytes, Meta(min_length=SEALED_SHARES_BYTES, max_length=SEALED_SHARES_BYTES)]
Names = Annotated[tuple[Name, ...], Meta(max_length=MAX_MEMBERS)]


class Context(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an attempt is: parties compare all of it."""

    federation: Annotated[bytes, Meta(min_length=16, max_length=16)]
    configuration: Digest
    membership: Digest
    epoch: Number
    round: Number
    attempt: Number
    kind: Kind
    capacity: Number
    salt: Annotated[bytes, Meta(max_length=64)]
    version: Literal[1] = VERSION

    @property
    def digest(self) -> bytes:
        """Binds keys, shares and signatures to this attempt."""
        return digest_of(b"attempt", msgspec.msgpack.encode(self))

    @property
    def number(self) -> tuple[int, int, int]:
        """Attempts in their order."""
        return self.epoch, self.round, self.attempt


class Open(Struct, frozen=True, array_like=True, tag="open", forbid_unknown_fields=True):
    """The server begins an attempt, and repeats its last commit notice."""

    notice: bytes | None


class Advertise(Struct, frozen=True, array_like=True, tag="advertise", forbid_unknown_fields=True):
    """A client takes part, with fresh keys."""

    sharing_key: Key
    masking_key: Key


class Roster(Struct, frozen=True, array_like=True, tag="roster", forbid_unknown_fields=True):
    """Who takes part, sorted, and the signed advertisements of the recipient's neighbours."""

    participants: Names
    advertisements: Annotated[tuple[bytes, ...], Meta(max_length=MAX_MEMBERS)]


class Shares(Struct, frozen=True, array_like=True, tag="shares", forbid_unknown_fields=True):
    """A client's secrets in shares, each encrypted for one neighbour."""

    sealed: Annotated[tuple[tuple[Name, Sealed], ...], Meta(max_length=MAX_MEMBERS)]


class Delivery(Struct, frozen=True, array_like=True, tag="delivery", forbid_unknown_fields=True):
    """Who shared secrets, sorted, and the shares that are meant for the recipient."""

    sharers: Names
    sealed: Annotated[tuple[tuple[Name, Sealed], ...], Meta(max_length=MAX_MEMBERS)]


class Masked(Struct, frozen=True, array_like=True, tag="masked", forbid_unknown_fields=True):
    """A client's vector under its masks, packed."""

    vector: bytes


class Survivors(Struct, frozen=True, array_like=True, tag="survivors", forbid_unknown_fields=True):
    """Whose vectors arrived, and who shared secrets and then vanished; both sorted."""

    alive: Names
    dead: Names


class Consent(Struct, frozen=True, array_like=True, tag="consent", forbid_unknown_fields=True):
    """A client's signature on the survivors, for its neighbours."""

    signature: Signature


class Unmask(Struct, frozen=True, array_like=True, tag="unmask", forbid_unknown_fields=True):
    """The neighbours' signatures on the survivors, for the recipient."""

    signatures: Annotated[tuple[tuple[Name, Signature], ...], Meta(max_length=MAX_MEMBERS)]


class Reveal(Struct, frozen=True, array_like=True, tag="reveal", forbid_unknown_fields=True):
    """Shares of the survivors' self-masks and of the masking keys of those who vanished."""

    seeds: Annotated[tuple[tuple[Name, Share], ...], Meta(max_length=MAX_MEMBERS)]
    keys: Annotated[tuple[tuple[Name, Share], ...], Meta(max_length=MAX_MEMBERS)]


class Notice(Struct, frozen=True, array_like=True, tag="notice", forbid_unknown_fields=True):
    """The server has committed a round.

    ``counted`` says for every client of which the model counts something, sorted by name, the last
    round that counted it; ``model`` is the digest of the new model.
    """

    survivors: Names
    counted: Annotated[tuple[tuple[Name, Number], ...], Meta(max_length=MAX_MEMBERS)]
    model: Digest


FromServer = Open | Roster | Delivery | Survivors | Unmask | Notice
FromClient = Advertise | Shares | Masked | Consent | Reveal
Body = FromServer | FromClient


class Payload(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message before it is signed.  The server's name is empty."""

    context: Context
    sender: Annotated[str, Meta(max_length=200)]
    recipient: Annotated[str, Meta(max_length=200)]
    body: Body


class _Signed(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    payload: bytes
    signature: Signature


_signed = msgspec.msgpack.Decoder(_Signed)
_payload = msgspec.msgpack.Decoder(Payload)


def seal(payload: Payload, identity: Identity) -> bytes:
    """Sign a message and make bytes of it."""
    data = msgspec.msgpack.encode(payload)
    return msgspec.msgpack.encode(_Signed(data, identity.sign(_DOMAIN + data)))


class Letter:
    """Received bytes: readable at once, but not to be believed before :meth:`check`."""

    def __init__(self, data: bytes) -> None:
        if len(data) > MAX_BYTES:
            raise MalformedError(f"a message of {len(data)} bytes; {MAX_BYTES} are allowed")
        try:
            self._outer = _signed.decode(data)
            self.payload = _payload.decode(self._outer.payload)
            canonical = msgspec.msgpack.encode(self.payload) == self._outer.payload
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise MalformedError(f"not a message of version {VERSION}: {error}") from None
        if not canonical:
            raise MalformedError("a message must be written in one way only")
        self.data = data

    def check(self, public_key: bytes) -> Payload:
        """The payload, if the owner of this key signed it."""
        if not signed_by(public_key, self._outer.signature, _DOMAIN + self._outer.payload):
            sender = self.payload.sender or "the server"
            raise BadSignatureError(f"the message was not signed by {sender}")
        return self.payload


def consent_to(context: Context, alive: tuple[str, ...], dead: tuple[str, ...]) -> bytes:
    """What a client signs when it agrees to a set of survivors."""
    lists = [digest_of(*(name.encode() for name in names)) for names in (alive, dead)]
    return b"fedforget survivors 1\0" + digest_of(context.digest, *lists)
