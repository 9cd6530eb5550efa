"""Keys, each with a type of its own.  All primitives come from ``cryptography``.

Every derived key has a label, and the context that it is derived under names the federation, the
attempt and the parties, so that no two uses share a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedforget.protocol.errors import BadKeyError, BadShareError, BadSignatureError

KEY_BYTES = 32
SIGNATURE_BYTES = 64
DIGEST_BYTES = 32

Entropy = Callable[[int], bytes]
"""Gives as many random bytes as it is asked for."""

_FIELD = 2**255 - 19
_SMALL_ORDER_Y = frozenset(
    (
        0,
        1,
        _FIELD - 1,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    )
)
"""The y coordinates of the eight points of Ed25519 whose order divides 8."""

_SMALL_ORDER_U = frozenset(
    (
        0,
        1,
        _FIELD - 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    )
)
"""The u coordinates of the points of Curve25519 and its twist whose order divides 8."""


@dataclass(frozen=True)
class PublicKey:
    """A party's Ed25519 key, which others pin.

    A key of small order is refused: with one, signatures exist that fit any message.
    """

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != KEY_BYTES:
            raise BadKeyError(f"an identity key has {KEY_BYTES} bytes, got {len(self.data)}")
        y = int.from_bytes(self.data, "little") & (2**255 - 1)
        if y >= _FIELD or y in _SMALL_ORDER_Y:
            raise BadKeyError("this is not a valid identity key: it is a point of small order")

    @cached_property
    def _key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.data)

    def verify(self, signature: bytes, data: bytes) -> None:
        """Raise :class:`BadSignatureError` unless this key's owner signed ``data``."""
        try:
            self._key.verify(signature, data)
        except (InvalidSignature, ValueError):
            raise BadSignatureError("the signature is not by the owner of this key") from None


@dataclass(frozen=True)
class Identity:
    """A party's long-term Ed25519 key, the private half."""

    seed: bytes = field(repr=False)

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self._key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


@dataclass(frozen=True)
class AgreementKey:
    """The public half of a fresh X25519 key.

    A key of low order is refused: the secret shared with its owner would be zero.
    """

    data: bytes

    def __post_init__(self) -> None:
        if len(self.data) != KEY_BYTES:
            raise BadKeyError(f"an X25519 key has {KEY_BYTES} bytes, got {len(self.data)}")
        u = int.from_bytes(self.data, "little") & (2**255 - 1)
        if u % _FIELD in _SMALL_ORDER_U:
            raise BadKeyError("a key of low order was advertised")


@dataclass(frozen=True)
class Agreement:
    """An X25519 key for one attempt, the private half."""

    private: bytes = field(repr=False)

    @cached_property
    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.private)

    @cached_property
    def public(self) -> AgreementKey:
        return AgreementKey(self._key.public_key().public_bytes_raw())

    def with_peer(self, peer: AgreementKey) -> bytes:
        """The secret shared with the owner of a public key."""
        return self._key.exchange(X25519PublicKey.from_public_bytes(peer.data))


class OneTimeKey:
    """A ChaCha20-Poly1305 key for a single message, so that its nonce can be zero."""

    def __init__(self, key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._used = False

    def encrypt(self, plaintext: bytes, associated: bytes) -> bytes:
        """Encrypt the one message; a second one is refused."""
        if self._used:
            raise RuntimeError("a one-time key must not encrypt twice")
        self._used = True
        return self._cipher.encrypt(bytes(12), plaintext, associated)

    def decrypt(self, ciphertext: bytes, associated: bytes) -> bytes:
        try:
            return self._cipher.decrypt(bytes(12), ciphertext, associated)
        except InvalidTag:
            raise BadShareError("a share does not decrypt") from None


def derive(secret: bytes, label: str, *context: bytes) -> bytes:
    """A key for one purpose: HKDF-SHA256 of a secret, under a label and length-prefixed parts."""
    info = b"fedforget/2 " + label.encode() + b"\0" + digest_of(*context)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def digest_of(*parts: bytes) -> bytes:
    """SHA-256 of a sequence of byte strings, each with its length."""
    pieces = [piece for part in parts for piece in (len(part).to_bytes(8, "little"), part)]
    return hashlib.sha256(b"".join(pieces)).digest()


@lru_cache(maxsize=256)
def digest_of_names(names: tuple[str, ...]) -> bytes:
    """SHA-256 of a list of names."""
    return digest_of(*(name.encode() for name in names))
