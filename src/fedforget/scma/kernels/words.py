"""Encoding: power sums, packed vectors, and a bin's index as words of bits."""

from __future__ import annotations

import numpy as np

from fedforget.compilation import allocating_kernel
from fedforget.scma.kernels.field import ONE, UNIT, ZERO, clear, dot, mul


@allocating_kernel
def power_sums(points, weights, length):
    """Σ_j weights[t, j]·x_j^i for each row t and i < length; plain weights give plain sums."""
    n_rows, n = weights.shape
    out = np.empty((n_rows, length), np.uint64)
    running = np.empty(n, np.uint64)
    for j in range(n):
        running[j] = ONE
    for i in range(length):
        for t in range(n_rows):
            out[t, i] = dot(weights[t], running)
        for j in range(n):
            running[j] = mul(running[j], points[j])
    return out


@allocating_kernel
def pack(values):
    """62 bits an element, the lowest bit first."""
    n_bits = 62 * values.size
    words = np.zeros(n_bits // 64 + 2, np.uint64)
    for i in range(values.size):
        at, shift = (62 * i) >> 6, np.uint64((62 * i) & 63)
        words[at] |= values[i] << shift
        if shift > np.uint64(2):
            words[at + 1] |= values[i] >> (np.uint64(64) - shift)
    return words


@allocating_kernel
def unpack(words, n):
    """The elements that :func:`pack` took; ``words`` has one word more than the bits fill."""
    out = np.empty(n, np.uint64)
    for i in range(n):
        at, shift = (62 * i) >> 6, np.uint64((62 * i) & 63)
        value = words[at] >> shift
        if shift > np.uint64(2):
            value |= words[at + 1] << (np.uint64(64) - shift)
        out[i] = value & np.uint64(2**62 - 1)
    return out


@allocating_kernel
def bins_to_words(bins, levels, group_ends, shifts, widths):
    """The index of each bin, cut into words.

    Features are taken in groups whose levels multiply to less than 2³²; ``group_ends`` says where
    each group ends.  Word t holds the ``widths[t]`` bits of the index from bit ``shifts[t]`` on.
    """
    n = len(bins)
    out = np.zeros((n, shifts.size), np.uint64)
    n_limbs = (shifts[0] + widths[0]) // 32 + 3
    limbs = np.zeros(n_limbs, np.uint64)
    for row in range(n):
        clear(limbs)
        used = 0
        first = 0
        for end in group_ends:
            radix, carry = UNIT, ZERO
            for t in range(first, end):
                radix *= np.uint64(levels[t])
                carry = carry * np.uint64(levels[t]) + np.uint64(bins[row, t])
            first = end
            for i in range(used):
                carry += limbs[i] * radix
                limbs[i] = carry & np.uint64(0xFFFFFFFF)
                carry >>= np.uint64(32)
            if carry:
                limbs[used] = carry
                used += 1
        for t in range(shifts.size):
            at, shift = shifts[t] // 32, np.uint64(shifts[t] % 32)
            value = (limbs[at] | (limbs[at + 1] << np.uint64(32))) >> shift
            if shift:
                value |= limbs[at + 2] << (np.uint64(64) - shift)
            out[row, t] = value & ((UNIT << np.uint64(widths[t])) - UNIT)
    return out


@allocating_kernel
def words_to_bins(words, levels, group_ends, shifts, widths):
    """The bins with these indices, and whether each index is in range."""
    n, d = words.shape[0], levels.size
    out = np.zeros((n, d), np.int64)
    good = np.empty(n, np.bool_)
    n_limbs = (shifts[0] + widths[0]) // 32 + 3
    limbs = np.zeros(n_limbs, np.uint64)
    for row in range(n):
        good[row] = True
        clear(limbs)
        for t in range(shifts.size):
            at, shift = shifts[t] // 32, np.uint64(shifts[t] % 32)
            value = words[row, t]
            low = value << shift
            limbs[at] |= low & np.uint64(0xFFFFFFFF)
            limbs[at + 1] |= low >> np.uint64(32)
            if shift:
                limbs[at + 2] |= value >> (np.uint64(64) - shift)
        used = n_limbs
        for group in range(group_ends.size - 1, -1, -1):
            first = group_ends[group - 1] if group else 0
            radix = UNIT
            for t in range(first, group_ends[group]):
                radix *= np.uint64(levels[t])
            while used and limbs[used - 1] == 0:
                used -= 1
            rest = ZERO
            for i in range(used - 1, -1, -1):
                value = (rest << np.uint64(32)) | limbs[i]
                limbs[i] = value // radix
                rest = value - limbs[i] * radix
            for t in range(group_ends[group] - 1, first - 1, -1):
                out[row, t] = np.int64(rest % np.uint64(levels[t]))
                rest //= np.uint64(levels[t])
        for i in range(used):
            good[row] &= limbs[i] == 0
    return out, good
