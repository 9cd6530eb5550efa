"""SipHash of a few messages, in Python integers.

The kernels hash hundreds of thousands of ids.  A command that hashes one or two, to open a
directory or to forget a record, is done in less time than it takes to load numba.
"""

from __future__ import annotations

_MASK = 2**64 - 1


def siphash_128(key: bytes, message: bytes) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits of output: its low and its high word.

    Parameters
    ----------
    key : bytes
        16 bytes.
    message : bytes
        Any number of bytes.

    Notes
    -----
    Aumasson and Bernstein, *SipHash: a fast short-input PRF*, INDOCRYPT 2012.

    >>> low, high = siphash_128(bytes(range(16)), b"")
    >>> (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex()
    'a3817f04ba25a8e66df67214c7550293'
    """
    key0, key1 = (int.from_bytes(half, "little") for half in (key[:8], key[8:]))
    state = (
        key0 ^ 0x736F6D6570736575,
        key1 ^ 0x646F72616E646F6D ^ 0xEE,
        key0 ^ 0x6C7967656E657261,
        key1 ^ 0x7465646279746573,
    )
    # The last word is what is left over, and the length modulo 256 in its last byte.
    padding = bytes(7 - len(message) % 8) + bytes([len(message) & 0xFF])
    padded = message + padding
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _rounds(2, v0, v1, v2, v3 ^ word)
        state = v0 ^ word, v1, v2, v3
    v0, v1, v2, v3 = state
    state = _rounds(4, v0, v1, v2 ^ 0xEE, v3)
    low = state[0] ^ state[1] ^ state[2] ^ state[3]
    v0, v1, v2, v3 = state
    state = _rounds(4, v0, v1 ^ 0xDD, v2, v3)
    return low, state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(count: int, v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        v0 = (v0 + v1) & _MASK
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = (v2 + v3) & _MASK
        v3 = _rotated(v3, 16) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = _rotated(v3, 21) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _rotated(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & _MASK
