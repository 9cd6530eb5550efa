"""The masks that hide a vector, and everything secret that one attempt derives.

What a client keeps secret in an attempt follows from 32 random bytes that it drew, and stored
together with its input, before it said anything.  A machine that is rolled back, copied, or whose
generator repeats itself can then only repeat a message, or make one that has nothing to do with the
first: another input, context, roster or set of sharers gives unrelated keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedforget import scma
from fedforget.protocol.keys import (
    Agreement,
    Identity,
    OneTimeKey,
    derive,
    digest_of,
    digest_of_names,
)

_LOW_62_BITS = np.uint64(2**62 - 1)


@dataclass(frozen=True)
class AttemptSecrets:
    """What one client derives for one attempt.

    Parameters
    ----------
    randomness : 32 bytes, drawn once.
    identity : the client's long-term key.
    context : digest of the attempt.
    plain_input : digest of the histogram that the client sends.
    """

    randomness: bytes = field(repr=False)
    identity: Identity = field(repr=False)
    context: bytes
    plain_input: bytes = field(repr=False)

    @cached_property
    def _root(self) -> bytes:
        return derive(
            self.randomness + self.identity.seed, "attempt", self.context, self.plain_input
        )

    @cached_property
    def sharing(self) -> Agreement:
        """The key under which shares are encrypted."""
        return Agreement(derive(self._root, "sharing key"))

    @cached_property
    def masking(self) -> Agreement:
        """The key from which pairwise masks follow."""
        return Agreement(derive(self._root, "masking key"))

    def seed(self, roster: tuple[str, ...]) -> bytes:
        """The seed of the self-mask."""
        return derive(self._root, "seed", digest_of_names(roster))

    def coefficients(self, roster: tuple[str, ...]) -> Callable[[int], bytes]:
        """The source of the coefficients that hide seed and key in Shamir's shares."""
        return stream(derive(self._root, "coefficients", digest_of_names(roster)))

    def draw(self, label: str, message: bytes) -> bytes:
        """Secret bytes that follow from a received message."""
        return derive(self._root, label, message)


@dataclass(frozen=True)
class View:
    """What one attempt's masks are bound to."""

    context: bytes
    roster: tuple[str, ...]
    sharers: tuple[str, ...]

    @cached_property
    def digest(self) -> bytes:
        lists = (digest_of_names(names) for names in (self.roster, self.sharers))
        return digest_of(b"view", self.context, *lists)


def share_key(
    secret: bytes, context: bytes, roster: bytes, sender: str, recipient: str
) -> tuple[OneTimeKey, bytes]:
    """The key that encrypts one neighbour's shares for another, and what binds it to them."""
    pair = digest_of(b"pair", context, roster, sender.encode(), recipient.encode())
    return OneTimeKey(derive(secret, "shares", pair)), pair


def self_mask(seed: bytes, view: View, name: str, length: int) -> scma.Elements:
    """The mask that a client puts on its vector for itself."""
    return expand(derive(seed, "self mask", view.digest, name.encode()), length)


def pair_mask(secret: bytes, view: View, name: str, other: str, length: int) -> scma.Elements:
    """The mask that ``name`` puts on its vector for ``other``; theirs together are zero."""
    first, second = sorted((name, other))
    key = derive(secret, "pair mask", view.digest, first.encode(), second.encode())
    elements = expand(key, length)
    return elements if name == first else scma.minus(elements)


def stream(key: bytes) -> Callable[[int], bytes]:
    """ChaCha20's stream, to be read piece by piece."""
    encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return lambda count: encryptor.update(bytes(count))


def expand(key: bytes, length: int) -> scma.Elements:
    """Field elements that look uniform: ChaCha20's stream, 62 bits per word, those below p."""
    read = stream(key)
    parts: list[scma.Elements] = []
    missing = length
    while missing > 0:
        # 29 of 32 words are below p; take a few more than that calls for.
        n_words = missing * 9 // 8 + 16
        words = np.frombuffer(read(8 * n_words), dtype="<u8").astype(np.uint64)
        words &= _LOW_62_BITS
        parts.append(words[words < scma.PRIME][:missing])
        missing -= parts[-1].size
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
