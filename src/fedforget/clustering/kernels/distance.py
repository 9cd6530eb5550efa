"""Squared distances, in one order of summation, and who is nearest by them.

A squared distance is always computed by :func:`squared_distance`, or in tiles that give the same
bits.  Other ways of getting at a distance (a matrix product, the triangle inequality) may only
*rule out* candidates, with a margin that covers their error.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.tiles import TILE, tile_distances, turn_tile
from fedforget.compilation import allocating_kernel, helper, inlined, kernel

_UNDERFLOW = 2.0**-145
"""More than the error of a tiny number or product in single precision, times 8."""


@inlined
def squared_distance(x, y):
    """Sum of squared differences: four interleaved partial sums, then the remaining features."""
    d = x.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    for group in range(d // 4):
        t = group * 4
        e0 = x[t] - y[t]
        e1 = x[t + 1] - y[t + 1]
        e2 = x[t + 2] - y[t + 2]
        e3 = x[t + 3] - y[t + 3]
        s0 += e0 * e0
        s1 += e1 * e1
        s2 += e2 * e2
        s3 += e3 * e3
    rest = 0.0
    for t in range(d - d % 4, d):
        e = x[t] - y[t]
        rest += e * e
    return ((s0 + s2) + (s1 + s3)) + rest


@kernel
def distances_to(values, centre, out):
    """Write every row's squared distance to one centre.  OUT: out."""
    for i in range(values.shape[0]):
        out[i] = squared_distance(values[i], centre)


@kernel
def copy_and_measure(values, centre, out, d2):
    """Copy rows and write their :func:`squared_distance` to one centre.  OUT: out, d2."""
    n, d = values.shape
    for i in range(n):
        x = values[i]
        copied = out[i]
        s0 = s1 = s2 = s3 = 0.0
        for group in range(d // 4):
            t = group * 4
            x0, x1, x2, x3 = x[t], x[t + 1], x[t + 2], x[t + 3]
            copied[t] = x0
            copied[t + 1] = x1
            copied[t + 2] = x2
            copied[t + 3] = x3
            e0 = x0 - centre[t]
            e1 = x1 - centre[t + 1]
            e2 = x2 - centre[t + 2]
            e3 = x3 - centre[t + 3]
            s0 += e0 * e0
            s1 += e1 * e1
            s2 += e2 * e2
            s3 += e3 * e3
        rest = 0.0
        for t in range(d - d % 4, d):
            copied[t] = x[t]
            e = x[t] - centre[t]
            rest += e * e
        d2[i] = ((s0 + s2) + (s1 + s3)) + rest


@kernel
def pairwise_distances(values, centres, out):
    """Write the squared distance of every row to every centre.  OUT: out."""
    for i in range(values.shape[0]):
        for k in range(centres.shape[0]):
            out[i, k] = squared_distance(values[i], centres[k])


@helper
def _meet_tile(tile, centres, first, best, nearest, distances):
    """Let the rows of one tile meet the centres ``first`` and later.

    OUT: best, nearest, distances.
    """
    for k in range(first, centres.shape[0]):
        tile_distances(tile, centres[k], distances)
        for i in range(best.shape[0]):
            if distances[i] < best[i]:
                best[i] = distances[i]
                nearest[i] = k


@kernel
def turn(values, tiles):
    """Cut rows into tiles of 32 and transpose each.  OUT: tiles, of shape (n_tiles, d, 32)."""
    for number in range(tiles.shape[0]):
        turn_tile(values[number * TILE : (number + 1) * TILE], tiles[number])


@allocating_kernel
def meet_tiles(tiles, centres, first, d2, label):
    """Let rows that were turned before meet the centres ``first`` and later.  OUT: d2, label."""
    distances = np.empty(TILE)
    for number in range(tiles.shape[0]):
        begin, end = number * TILE, (number + 1) * TILE
        _meet_tile(tiles[number], centres, first, d2[begin:end], label[begin:end], distances)


@allocating_kernel
def meet_tiled(values, centres, first, d2, label):
    """:func:`meet_tiles`, turning one tile after the other.  OUT: d2, label."""
    n, d = values.shape
    tile = np.zeros((d, TILE))
    distances = np.empty(TILE)
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        turn_tile(values[begin:end], tile)
        _meet_tile(tile, centres, first, d2[begin:end], label[begin:end], distances)


@inlined
def screen_margin(length, radius, unit, scale, d):
    """A bound on the errors of estimates from products in single precision (docs/math.md)."""
    reach = np.sqrt(length) + radius
    return unit * reach * reach + d * _UNDERFLOW * scale


@kernel
def meet_screened(values, lengths, centres, first, products, scale, norms, radius, unit, d2, label):
    """Like :func:`meet_tiled`, with a matrix product to rule centres out.  OUT: d2, label.

    ``products`` times ``scale`` is values @ centres[first:].T, ``lengths`` the rows' squared
    lengths and ``norms`` those of the centres from ``first`` on.  |x|^2 + |c|^2 - 2 x.c estimates a
    squared distance, and a margin bounds its error for any way to sum the product.  What lies
    within the margin of the smallest estimate is settled by the exact kernel.
    """
    twice = 2.0 * scale
    for i in range(values.shape[0]):
        best = d2[i]
        nearest = label[i]
        margin = screen_margin(lengths[i], radius, unit, scale, values.shape[1])
        lowest = np.inf
        for k in range(norms.shape[0]):
            estimate = norms[k] - twice * np.float64(products[i, k])
            lowest = estimate if estimate < lowest else lowest
        limit = min(lengths[i] + lowest + margin, best) + margin
        if lengths[i] + lowest <= limit:
            for k in range(norms.shape[0]):
                if lengths[i] + (norms[k] - twice * np.float64(products[i, k])) <= limit:
                    distance = squared_distance(values[i], centres[first + k])
                    if distance < best:
                        best = distance
                        nearest = first + k
        d2[i] = best
        label[i] = nearest


@kernel
def all_within(values, limit):
    """Whether every value is a number of magnitude at most ``limit``; NaN is not."""
    flat = values.reshape(-1)
    for begin in range(0, flat.shape[0], 4096):
        block = flat[begin : begin + 4096]
        bad = 0
        for t in range(block.shape[0]):
            bad += 0 if abs(block[t]) <= limit else 1
        if bad:
            return False
    return True


@kernel
def largest_magnitudes(values, largest):
    """Per feature the largest magnitude.  OUT: largest, which must hold zeros."""
    for i in range(values.shape[0]):
        row = values[i]
        for t in range(row.shape[0]):
            size = abs(row[t])
            largest[t] = size if size > largest[t] else largest[t]
