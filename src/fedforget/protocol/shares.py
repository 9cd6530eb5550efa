"""Shamir's secret sharing of 32-byte secrets.

A secret is the value at 0 of a random polynomial of degree t - 1 over the integers modulo the prime
2²⁵⁶ + 297; the share of holder x is its value at x.  Any t shares give the secret, fewer say
nothing about it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache

from fedforget.protocol.errors import BadShareError
from fedforget.protocol.keys import KEY_BYTES, Entropy

PRIME = 2**256 + 297
SHARE_BYTES = 33
HASH_BYTES = 16


def fingerprint(share: bytes) -> bytes:
    """A hash by which a share is recognised.  It says nothing: shares look uniform."""
    return hashlib.sha256(b"fedforget share 2\0" + share).digest()[:HASH_BYTES]


def split(secret: bytes, holders: Sequence[int], threshold: int, entropy: Entropy) -> list[bytes]:
    """One share for each holder, a positive number; any ``threshold`` of them give the secret."""
    coefficients = [int.from_bytes(secret, "little")]
    while len(coefficients) < threshold:
        # 128 bits more than the prime has: uniform except for 2⁻¹²⁸.
        coefficients.append(int.from_bytes(entropy(48), "little") % PRIME)
    shares = []
    for x in holders:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "little"))
    return shares


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret of which ``threshold`` or more holders give their shares."""
    if len(shares) < threshold:
        raise BadShareError(f"{len(shares)} shares, but {threshold} are needed")
    chosen = tuple(sorted(shares)[:threshold])
    values = [int.from_bytes(shares[x], "little") for x in chosen]
    pairs = zip(values, _weights(chosen), strict=True)
    secret = sum(value * weight for value, weight in pairs) % PRIME
    if max(values) >= PRIME or secret >= 2**256:
        raise BadShareError("these shares belong to no secret")
    return secret.to_bytes(KEY_BYTES, "little")


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights: what takes values at the points to the value at 0."""
    weights = []
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
