"""Verifies each signature once: what every client checks again is the same in one process."""

from __future__ import annotations

from functools import lru_cache

from fedforget.protocol.keys import PublicKey

_verify = PublicKey.verify


@lru_cache(maxsize=20_000)
def _valid(key: PublicKey, signature: bytes, data: bytes) -> None:
    # What raises is not remembered.
    _verify(key, signature, data)


def verify_once() -> None:
    """Let this process remember valid signatures."""
    PublicKey.verify = _valid  # type: ignore[method-assign]
