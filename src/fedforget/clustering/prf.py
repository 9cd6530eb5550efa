"""Secrets, and the keys that records and bins get from them.

A record's clocks come in two stages.  SipHash-2-4, keyed with the owner's 128-bit secret, turns the
record's id into a 128-bit record key; a counter-based mix expands that key into one number per
step.  Record keys and clocks never leave their owner, so all that must hold is that nobody without
the secret can predict or steer the draws, which is SipHash's promise as a pseudorandom function.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fedforget.arrays import Ints, UInts
from fedforget.clustering import kernels
from fedforget.clustering.siphash import siphash_128

_FEW = 1000
"""Messages that are hashed in less time than it takes to load numba."""


@dataclass(frozen=True)
class Secret:
    """128 bits that key a pseudorandom function.  Its repr does not show them."""

    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.data) != 16:
            raise ValueError(f"a secret has 16 bytes, not {len(self.data)}")

    def derive(self, purpose: str, name: bytes = b"") -> Secret:
        """A secret of its own for one purpose and name; independent of all the others."""
        header = purpose.encode()
        message = len(header).to_bytes(8, "little") + header + name
        return Secret(hashlib.blake2b(message, key=self.data, digest_size=16).digest())

    @cached_property
    def words(self) -> tuple[np.uint64, np.uint64]:
        """The two little-endian halves."""
        return (
            np.uint64(int.from_bytes(self.data[:8], "little")),
            np.uint64(int.from_bytes(self.data[8:], "little")),
        )


class Keys(NamedTuple):
    """One 128-bit key per row, as two columns."""

    low: UInts
    high: UInts

    @classmethod
    def none(cls) -> Keys:
        """No keys."""
        return cls(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64))

    @classmethod
    def of_words(cls, words: UInts) -> Keys:
        """Keys whose two words stand side by side."""
        return cls(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]))

    def words(self) -> UInts:
        """The two words of each key side by side."""
        return np.stack(self, axis=1)


def _in_python(n: int) -> bool:
    """Whether to hash without the kernels; the keys are the same."""
    return n <= _FEW and "numba" not in sys.modules


def _keys_in_python(secret: Secret, messages: Iterable[bytes], n: int) -> Keys:
    words = [siphash_128(secret.data, message) for message in messages]
    low, high = np.array(words, dtype=np.uint64).reshape(n, 2).T.copy()
    return Keys(low, high)


def keys_of_messages(secret: Secret, data: bytes, offsets: Ints) -> Keys:
    """SipHash-2-4-128 of ``data[offsets[i]:offsets[i + 1]]`` for every i."""
    n = len(offsets) - 1
    if _in_python(n):
        ends = offsets.tolist()
        return _keys_in_python(secret, (data[a:b] for a, b in pairwise(ends)), n)
    keys = Keys(np.empty(n, np.uint64), np.empty(n, np.uint64))
    buffer = np.frombuffer(data, dtype=np.uint8)
    kernels.siphash_messages(*secret.words, buffer, offsets, keys.low, keys.high)
    return keys


def keys_of_integers(secret: Secret, tag: bytes, numbers: Ints) -> Keys:
    """SipHash-2-4-128 of ``tag`` (one byte) followed by the number as a little-endian int64."""
    n = len(numbers)
    if _in_python(n):
        messages = (tag + number.to_bytes(8, "little", signed=True) for number in numbers.tolist())
        return _keys_in_python(secret, messages, n)
    keys = Keys(np.empty(n, np.uint64), np.empty(n, np.uint64))
    kernels.siphash_integers(*secret.words, np.uint64(tag[0]), numbers, keys.low, keys.high)
    return keys


def keys_of_vectors(secret: Secret, vectors: Ints) -> Keys:
    """Keys of integer vectors (the bins of a grid), one per row: of their little-endian bytes."""
    n = len(vectors)
    keys = Keys(np.empty(n, np.uint64), np.empty(n, np.uint64))
    kernels.siphash_vectors(*secret.words, vectors, keys.low, keys.high)
    return keys
