"""Keys and what is derived from them.  All primitives come from ``cryptography``.

Every derived key has a label of its own, and its context names the federation, round, attempt and
the parties, so that no two uses share a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedforget.protocol.errors import BadShareError
from fedforget.scma.kernels import PRIME
from fedforget.scma.polynomials import Elements

KEY_BYTES = 32
SIGNATURE_BYTES = 64

Entropy = Callable[[int], bytes]
"""Gives as many random bytes as it is asked for."""

_MASK = np.uint64(2**62 - 1)


@dataclass(frozen=True)
class Identity:
    """A party's long-term Ed25519 key."""

    seed: bytes = field(repr=False)

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> bytes:
        """The key that others pin."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


def signed_by(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether a signature is the one that the owner of a public key makes."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Agreement:
    """A fresh X25519 key, for one attempt."""

    private: bytes = field(repr=False)

    @cached_property
    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.private)

    @cached_property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def with_peer(self, peer: bytes) -> bytes:
        """The secret shared with the owner of a public key."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:
            raise BadShareError("a key of low order was advertised") from None


def derive(secret: bytes, label: str, context: bytes) -> bytes:
    """A key for one purpose: HKDF-SHA256 of a secret under a label and a context."""
    info = b"fedforget/1 " + label.encode() + b"\0" + context
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def encrypt(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """ChaCha20-Poly1305.  The nonce is zero: a key encrypts one message only."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), plaintext, associated)


def decrypt(key: bytes, ciphertext: bytes, associated: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), ciphertext, associated)
    except InvalidTag:
        raise BadShareError("a share does not decrypt") from None


def mask(key: bytes, length: int) -> Elements:
    """Field elements that look uniform: ChaCha20's stream, 62 bits a word, those below p."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    parts: list[Elements] = []
    missing = length
    while missing > 0:
        # 29 of 32 words are below p; take a few more than that calls for.
        n_words = missing * 9 // 8 + 16
        words = np.frombuffer(stream.update(bytes(8 * n_words)), dtype="<u8").astype(np.uint64)
        words &= _MASK
        parts.append(words[words < PRIME][:missing])
        missing -= parts[-1].size
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def digest_of(*parts: bytes) -> bytes:
    """SHA-256 of a sequence of byte strings, each with its length."""
    out = hashlib.sha256()
    for part in parts:
        out.update(len(part).to_bytes(8, "little"))
        out.update(part)
    return out.digest()
