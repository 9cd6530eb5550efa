"""The grid, fixed-point sums, and Lloyd's iteration on an integer lattice."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.clocks import draw
from fedforget.clustering.kernels.distance import squared_distance
from fedforget.compilation import helper, inlined, kernel

SQUARE_BITS = 26
"""Bits of the low part of a number that is squared in parts."""


@kernel
def add_fixed_point(values, rows, label, sign, offset, extent, factor, sums, sizes):
    """Add (or, with sign -1, take away) rows to their clusters' integer sums.  OUT: sums, sizes.

    A coordinate becomes floor(t * factor + 1/2) with t = (value - offset) / extent in [0, 1].
    """
    for r in range(rows.shape[0]):
        i = rows[r]
        k = label[i]
        sizes[k] += sign
        for t in range(values.shape[1]):
            unit = (values[i, t] - offset[t]) / extent
            sums[k, t] += sign * np.int64(np.floor(unit * factor + 0.5))


@kernel
def scatter_replicates(keys0, keys1, bins, first, counts, bits, points, point_keys0, point_keys1):
    """Spread each bin's replicates ``first`` and later, ``counts`` of them, inside the bin.

    Replicate r of a bin depends on the bin's key and r alone.  A point's coordinates are
    bin * 2^bits plus a draw from [-2^(bits-1), 2^(bits-1)).  OUT: points, point_keys0, point_keys1.
    """
    n = 0
    half = np.int64(1) << np.int64(bits - 1)
    for j in range(bins.shape[0]):
        for r in range(first[j], first[j] + counts[j]):
            counter = (np.uint64(1) << np.uint64(62)) + np.uint64(2) * np.uint64(r)
            point_keys0[n] = draw(keys0[j], keys1[j], counter)
            point_keys1[n] = draw(keys0[j], keys1[j], counter + np.uint64(1))
            for t in range(bins.shape[1]):
                coordinate = (np.uint64(1) << np.uint64(61)) + np.uint64(t)
                offset = draw(point_keys0[n], point_keys1[n], coordinate) >> np.uint64(64 - bits)
                points[n, t] = (bins[j, t] << np.int64(bits)) + np.int64(offset) - half
            n += 1


@kernel
def move_points(points, weights, before, after, sums, totals):
    """Take points that changed their cluster from the old sums to the new.  OUT: sums, totals.

    ``before`` is -1 for a point that belonged to none.  Returns how many points moved.
    """
    moved = 0
    for i in range(points.shape[0]):
        if before[i] == after[i]:
            continue
        moved += 1
        weight = weights[i]
        if before[i] >= 0:
            totals[before[i]] -= weight
            for t in range(points.shape[1]):
                sums[before[i], t] -= weight * points[i, t]
        totals[after[i]] += weight
        for t in range(points.shape[1]):
            sums[after[i], t] += weight * points[i, t]
    return moved


@kernel
def recentre(sums, totals, units, centres):
    """Move each centre to the mean of its points, if it has any.  OUT: centres.

    The sums count steps, which are ``units`` of a coordinate.
    """
    for k in range(centres.shape[0]):
        if totals[k] == 0:
            continue
        for t in range(centres.shape[1]):
            centres[k, t] = np.float64(sums[k, t]) / np.float64(totals[k]) * units[t]


@kernel
def total_shift(before, after):
    """The sum of the squared shifts of centres: one by one, each by :func:`squared_distance`."""
    total = 0.0
    for k in range(after.shape[0]):
        total += squared_distance(after[k], before[k])
    return total


@inlined
def add_moment(weight, x, sums, squares, t):
    """Add w x and w x^2 of feature t of a point.  OUT: sums, squares.

    The weight may be negative.  ``squares`` has a low and a high word per feature, a number of 128
    bits in two's complement.  |w x| is below 2^62, and |x| below 2^52.
    """
    half = np.uint64(32)
    low_half = (np.uint64(1) << half) - np.uint64(1)
    moment = weight * x
    sums[t] += moment
    one, other = np.uint64(abs(moment)), np.uint64(abs(x))
    a, b, c, d = one >> half, one & low_half, other >> half, other & low_half
    middle = a * d + b * c
    low = b * d + (middle << half)
    high = a * c + (middle >> half)
    if low < b * d:
        high += np.uint64(1)
    if weight < 0:
        # The complement of both words, plus 1.
        low = ~low + np.uint64(1)
        high = ~high + (np.uint64(1) if low == np.uint64(0) else np.uint64(0))
    squares[t, 0] += low
    squares[t, 1] += high
    if squares[t, 0] < low:
        squares[t, 1] += np.uint64(1)


@inlined
def join_squares(squares, t, highest, middle, lowest):
    """Add the sums of squares whose parts were added up apart; they may be negative.  OUT: squares.

    With the low bits of x, ``SQUARE_BITS`` of them, and the high ones above, the parts of x^2 are
    high * high, high * low and low * low.  |x| is below 2^52, so that up to 1,024 of each add up in
    63 bits.
    """
    _add_shifted(squares, t, highest, 2 * SQUARE_BITS)
    _add_shifted(squares, t, middle, SQUARE_BITS + 1)
    _add_shifted(squares, t, lowest, 0)


@helper
def _add_shifted(squares, t, number, bits):
    """Add a signed number times a power of two to a number of two words.  OUT: squares."""
    low = np.uint64(number) << np.uint64(bits)
    # Shifted in two steps, because a word cannot be shifted by all its bits.
    high = np.uint64((number >> (63 - bits)) >> 1)
    squares[t, 0] += low
    squares[t, 1] += high + (np.uint64(1) if squares[t, 0] < low else np.uint64(0))


@kernel
def add_moments(points, weights, sums, squares):
    """:func:`add_moment` of every point and feature.  OUT: sums, squares."""
    for i in range(points.shape[0]):
        for t in range(points.shape[1]):
            add_moment(weights[i], points[i, t], sums, squares, t)


@kernel
def cluster_losses(weights, d2, label, out):
    """Add weight * d2 to each point's cluster, in the order of the points.  OUT: out."""
    for i in range(label.shape[0]):
        out[label[i]] += weights[i] * d2[i]
