"""Keys and clocks: SipHash makes a record's key of its id, a counter-based mix its clocks."""

from __future__ import annotations

import numpy as np

from fedforget.compilation import helper, inlined, kernel


@inlined
def _rotate(x, bits):
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@inlined
def _sip_round(v0, v1, v2, v3):
    v0 += v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 += v3
    v3 = _rotate(v3, 16) ^ v2
    v0 += v3
    v3 = _rotate(v3, 21) ^ v0
    v2 += v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@inlined
def _sip_start(key0, key1):
    v0 = key0 ^ np.uint64(0x736F6D6570736575)
    v1 = key1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = key0 ^ np.uint64(0x6C7967656E657261)
    v3 = key1 ^ np.uint64(0x7465646279746573)
    return v0, v1, v2, v3


def _absorb(v0, v1, v2, v3, word):
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@inlined
def _four_rounds(v0, v1, v2, v3):
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return _sip_round(v0, v1, v2, v3)


def _finish(v0, v1, v2, v3):
    v2 ^= np.uint64(0xEE)
    v0, v1, v2, v3 = _four_rounds(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    v0, v1, v2, v3 = _four_rounds(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


# Integer ids are hashed in a loop that LLVM vectorises, so these are inlined by numba.  Other ids
# use helpers, which compile ten times faster.
_absorb_beside, _finish_beside = inlined(_absorb), inlined(_finish)
_sip_absorb, _sip_finish = helper(_absorb), helper(_finish)


@kernel
def siphash_messages(key0, key1, data, offsets, out0, out1):
    """SipHash-2-4 with 128 bits of output of each message.  OUT: out0, out1.

    Message ``i`` is ``data[offsets[i]:offsets[i + 1]]`` (Aumasson and Bernstein, 2012).
    """
    for i in range(out0.shape[0]):
        begin = offsets[i]
        length = offsets[i + 1] - begin
        v0, v1, v2, v3 = _sip_start(key0, key1)
        for block in range(length // 8):
            at = begin + 8 * block
            word = np.uint64(0)
            for byte in range(8):
                word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
            v0, v1, v2, v3 = _sip_absorb(v0, v1, v2, v3, word)
        word = np.uint64(length & 0xFF) << np.uint64(56)
        at = begin + length - length % 8
        for byte in range(length % 8):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        v0, v1, v2, v3 = _sip_absorb(v0, v1, v2, v3, word)
        out0[i], out1[i] = _sip_finish(v0, v1, v2, v3)


@kernel
def siphash_integers(key0, key1, tag, numbers, out0, out1):
    """:func:`siphash_messages` of one byte, ``tag``, and an int64.  OUT: out0, out1."""
    for i in range(numbers.shape[0]):
        number = np.uint64(numbers[i])
        v0, v1, v2, v3 = _sip_start(key0, key1)
        v0, v1, v2, v3 = _absorb_beside(v0, v1, v2, v3, (number << np.uint64(8)) | tag)
        last = (number >> np.uint64(56)) | (np.uint64(9) << np.uint64(56))
        v0, v1, v2, v3 = _absorb_beside(v0, v1, v2, v3, last)
        out0[i], out1[i] = _finish_beside(v0, v1, v2, v3)


@kernel
def siphash_vectors(key0, key1, vectors, out0, out1):
    """:func:`siphash_messages` of vectors of int64, little-endian.  OUT: out0, out1."""
    n, d = vectors.shape
    for i in range(n):
        v0, v1, v2, v3 = _sip_start(key0, key1)
        for t in range(d):
            v0, v1, v2, v3 = _sip_absorb(v0, v1, v2, v3, np.uint64(vectors[i, t]))
        last = np.uint64((8 * d) & 0xFF) << np.uint64(56)
        v0, v1, v2, v3 = _sip_absorb(v0, v1, v2, v3, last)
        out0[i], out1[i] = _sip_finish(v0, v1, v2, v3)


@inlined
def draw(key0, key1, counter):
    """64 pseudorandom bits from a 128-bit key and a counter.

    SplitMix64's finaliser over a Weyl sequence that starts at ``key0``, whitened by ``key1`` half
    way.  For a uniform ``key0`` each single output is exactly uniform, whatever the counter.
    """
    z = key0 + counter * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z ^= key1
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def uniform(bits):
    """Map 64 bits to (0, 1): (bits + 1/2) * 2^-64, kept below 1."""
    u = (np.float64(bits) + 0.5) * 5.421010862427522e-20
    return u if u < 0.9999999999999999 else 0.9999999999999999


@kernel
def exponential(u):
    """-log(1 - u) for u in (0, 1), from basic operations only; relative error below 1e-15.

    log(m) = 2 artanh((m - 1) / (m + 1)) by its series, after doubling m = 1 - u until it lies in
    [1/sqrt 2, sqrt 2).  Small u skip the subtraction, which would lose their low bits.
    """
    if u < 0.25:
        s = u / (2.0 - u)
        doublings = 0.0
    else:
        m = 1.0 - u
        doublings = 0.0
        while m < 0.7071067811865476:
            m *= 2.0
            doublings += 1.0
        s = (1.0 - m) / (1.0 + m)
    z = s * s
    series = 0.0
    for term in range(12, 0, -1):
        series = (series + 1.0 / (2.0 * term + 1.0)) * z
    return doublings * 0.6931471805599453 + 2.0 * (s + s * series)
