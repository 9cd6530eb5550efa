"""Numbers for recorded results: bytes of SHAKE-256, which depend on no generator's version."""

from __future__ import annotations

import hashlib

import numpy as np


def integers(name: str, top: int, shape: tuple[int, ...]) -> np.ndarray:
    """Integers from 0 to below ``top``, a function of the name."""
    n = int(np.prod(shape))
    words = np.frombuffer(hashlib.shake_256(name.encode()).digest(8 * n), dtype="<u8")
    return (words % np.uint64(top)).astype(np.int64).reshape(shape)


def units(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in [0, 1) in a few lumps, so that clusters exist and labels move."""
    centres = integers(f"{name} centres", 2**20, (5, shape[1])) / 2**20
    spread = integers(f"{name} spread", 2**20, shape) / 2**20 - 0.5
    return np.clip(centres[np.arange(shape[0]) % 5] + 0.6 * spread, 0.0, 1.0 - 2**-20)
