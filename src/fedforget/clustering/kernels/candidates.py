"""Candidates for a seed: how near records come to them, and exact potentials.

A potential is the sum of the records' squared distances to the nearest of the seeds and one
candidate.  Each squared distance is rounded, half to even, to a multiple of a *grain*, and these
are added up as integers: the sum knows no order, and what a record adds can be taken away again.

A total has two words, ``high * 2^46 + low`` grains with 0 <= low < 2^46, so that totals compare
word by word.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.bits import bits_of
from fedforget.clustering.kernels.distance import screen_margin, squared_distance
from fedforget.clustering.kernels.tiles import TILE, tile_distances, turn_tile
from fedforget.compilation import allocating_kernel, helper, inlined, kernel

LOW_BITS = 46
"""Low parts have so many bits, and a sign."""

HIGH_BITS = 32
"""High parts of 2^30 rows fit one word."""

LARGEST_BITS = 64
"""Squared differences of coordinates, which are at most 2^31 in magnitude, have so many bits."""

_LOW_MASK = (1 << LOW_BITS) - 1
_LOW_WORD = 2.0**LOW_BITS
_LIFT = 1.5 * 2.0**52
"""A number below 2^51 that is added to this, and from which it is taken again, is rounded."""

_AT_ONCE = 1 << 16
"""The low parts of so many rows add up in 64 bits."""


@inlined
def part_high(square, coarse):
    """A squared distance, rounded to a multiple of ``coarse``, which is 2^46 grains."""
    return (square + _LIFT * coarse) - _LIFT * coarse


@inlined
def part_low(square, high, coarse):
    """What the high part leaves, rounded to whole grains."""
    grain = coarse / _LOW_WORD
    return ((square - high) + _LIFT * grain) - _LIFT * grain


@inlined
def carry(total, high, low):
    """Add so much to a total.  OUT: total."""
    low += total[1]
    total[0] += high + (low >> LOW_BITS)
    total[1] = low & _LOW_MASK


@helper
def count_square(total, square, coarse, sign):
    """Let one squared distance come (sign 1) or go (-1).  OUT: total."""
    high = part_high(square, coarse)
    low = part_low(square, high, coarse)
    carry(total, sign * np.int64(high / coarse), sign * np.int64(low / (coarse / _LOW_WORD)))


@helper
def count_nearer(squares, others, coarse, sign, total):
    """Let the lesser of each of two squared distances come (sign 1) or go (-1).  OUT: total.

    Adding the lift makes a number's bits an integer that grows by one per unit, so parts are added
    up as integers.  The sums may wrap around before the lifts are subtracted; the results are
    exact.
    """
    high_lift, low_lift = _LIFT * coarse, _LIFT * (coarse / _LOW_WORD)
    for begin in range(0, squares.shape[0], _AT_ONCE):
        one, two = squares[begin : begin + _AT_ONCE], others[begin : begin + _AT_ONCE]
        high = low = np.int64(0)
        for i in range(one.shape[0]):
            square = one[i] if one[i] < two[i] else two[i]
            lifted = square + high_lift
            high += bits_of(lifted)
            low += bits_of((square - (lifted - high_lift)) + low_lift)
        high -= one.shape[0] * bits_of(high_lift)
        low -= one.shape[0] * bits_of(low_lift)
        carry(total, sign * high, sign * low)


@helper
def _try_tile(tile, candidates, coarse, begin, end, d2, near, totals, one):
    """Measure the rows of one tile.  OUT: near, totals, one."""
    for k in range(candidates.shape[0]):
        tile_distances(tile, candidates[k], one)
        nearer = near[k, begin:end]
        for i in range(nearer.shape[0]):
            nearer[i] = min(one[i], d2[begin + i])
        count_nearer(nearer, nearer, coarse, 1, totals[k])


@allocating_kernel
def try_tiled(values, candidates, coarse, d2, near, totals):
    """Rows try each candidate as a further seed, one tile after the other.  OUT: near, totals.

    ``near[k, i]`` is the lesser of ``d2[i]`` and row i's squared distance to candidate k, and
    ``totals[k]`` gets the sum of all of them, to begin with zeros.
    """
    n, d = values.shape
    tile = np.zeros((d, TILE))
    one = np.empty(TILE)
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        turn_tile(values[begin:end], tile)
        _try_tile(tile, candidates, coarse, begin, end, d2, near, totals, one)


@kernel
def try_screened(values, lengths, candidates, products, scale, norms, radius, unit, coarse, d2,
                 near, totals):  # fmt: skip
    """:func:`try_tiled`, with a matrix product to rule out what is not nearer.  OUT: near, totals.

    ``products``, ``scale``, ``lengths``, ``norms``, ``radius`` and ``unit`` are those of
    ``meet_screened``.  A row that is not nearer to a candidate adds what it adds to the seeds so
    far; the callers put that into ``totals``, so only differences are counted here.
    """
    twice = 2.0 * scale
    for i in range(values.shape[0]):
        limit = d2[i] + screen_margin(lengths[i], radius, unit, scale, values.shape[1])
        for k in range(norms.shape[0]):
            near[k, i] = d2[i]
            if lengths[i] + (norms[k] - twice * np.float64(products[i, k])) <= limit:
                distance = squared_distance(values[i], candidates[k])
                if distance < d2[i]:
                    near[k, i] = distance
                    count_square(totals[k], d2[i], coarse, -1)
                    count_square(totals[k], distance, coarse, 1)


@kernel
def total_of(squares, coarse, total):
    """Add squared distances to a total.  OUT: total."""
    for i in range(squares.shape[0]):
        count_square(total, squares[i], coarse, 1)
