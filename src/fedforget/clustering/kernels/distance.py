"""Squared distances, in one order of summation, and who is nearest by them.

A squared distance is always computed by :func:`squared_distance`, or in tiles that give the same
bits.  Other ways of getting at a distance (a matrix product, the triangle inequality) may only
*rule out* candidates, with a margin that covers their error.
"""

from __future__ import annotations

import numpy as np

from fedforget.compilation import allocating_kernel, helper, inlined, kernel


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


TILE = 64


@helper
def turn_tile(rows, turned):
    """Transpose some rows, eight at a time, so that they are stored side by side.  OUT: turned."""
    n, d = rows.shape
    whole = n - n % 8
    for i in range(0, whole, 8):
        x0, x1, x2, x3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        x4, x5, x6, x7 = rows[i + 4], rows[i + 5], rows[i + 6], rows[i + 7]
        for t in range(d):
            feature = turned[t]
            feature[i] = x0[t]
            feature[i + 1] = x1[t]
            feature[i + 2] = x2[t]
            feature[i + 3] = x3[t]
            feature[i + 4] = x4[t]
            feature[i + 5] = x5[t]
            feature[i + 6] = x6[t]
            feature[i + 7] = x7[t]
    for i in range(whole, n):
        x = rows[i]
        for t in range(d):
            turned[t, i] = x[t]


@inlined
def tile_distances(tile, c, s0, s1, s2, s3):
    """Squared distances of the rows of one tile to a centre.  OUT: s0 (the result), s1 to s3.

    The inner loops run over rows and are vectorised.  Each row's sum has the order of
    :func:`squared_distance`: four interleaved sums, then the rest.
    """
    d = tile.shape[0]
    for i in range(TILE):
        s0[i] = 0.0
        s1[i] = 0.0
        s2[i] = 0.0
        s3[i] = 0.0
    for pair in range(d // 8):
        t = pair * 8
        x0, x1, x2, x3 = tile[t], tile[t + 1], tile[t + 2], tile[t + 3]
        x4, x5, x6, x7 = tile[t + 4], tile[t + 5], tile[t + 6], tile[t + 7]
        c0, c1, c2, c3 = c[t], c[t + 1], c[t + 2], c[t + 3]
        c4, c5, c6, c7 = c[t + 4], c[t + 5], c[t + 6], c[t + 7]
        for i in range(TILE):
            e0 = x0[i] - c0
            e1 = x1[i] - c1
            e2 = x2[i] - c2
            e3 = x3[i] - c3
            e4 = x4[i] - c4
            e5 = x5[i] - c5
            e6 = x6[i] - c6
            e7 = x7[i] - c7
            s0[i] = (s0[i] + e0 * e0) + e4 * e4
            s1[i] = (s1[i] + e1 * e1) + e5 * e5
            s2[i] = (s2[i] + e2 * e2) + e6 * e6
            s3[i] = (s3[i] + e3 * e3) + e7 * e7
    for group in range(2 * (d // 8), d // 4):
        t = group * 4
        x0, x1, x2, x3 = tile[t], tile[t + 1], tile[t + 2], tile[t + 3]
        c0, c1, c2, c3 = c[t], c[t + 1], c[t + 2], c[t + 3]
        for i in range(TILE):
            e0 = x0[i] - c0
            e1 = x1[i] - c1
            e2 = x2[i] - c2
            e3 = x3[i] - c3
            s0[i] += e0 * e0
            s1[i] += e1 * e1
            s2[i] += e2 * e2
            s3[i] += e3 * e3
    for i in range(TILE):
        s0[i] = (s0[i] + s2[i]) + (s1[i] + s3[i])
        s1[i] = 0.0
    for t in range(d - d % 4, d):
        x0 = tile[t]
        c0 = c[t]
        for i in range(TILE):
            e = x0[i] - c0
            s1[i] += e * e
    for i in range(TILE):
        s0[i] = s0[i] + s1[i]


@helper
def _meet_tile(tile, centres, first, best, nearest, s0, s1, s2, s3):
    """Let the rows of one tile meet the centres ``first`` and later.  OUT: best, nearest, s0.."""
    for k in range(first, centres.shape[0]):
        tile_distances(tile, centres[k], s0, s1, s2, s3)
        for i in range(best.shape[0]):
            if s0[i] < best[i]:
                best[i] = s0[i]
                nearest[i] = k


@kernel
def turn(values, tiles):
    """Cut rows into tiles of 64 and transpose each.  OUT: tiles, of shape (n_tiles, d, 64)."""
    for number in range(tiles.shape[0]):
        turn_tile(values[number * TILE : (number + 1) * TILE], tiles[number])


@allocating_kernel
def meet_tiles(tiles, centres, first, d2, label):
    """Let rows that were turned before meet the centres ``first`` and later.  OUT: d2, label."""
    s0, s1, s2, s3 = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for number in range(tiles.shape[0]):
        begin, end = number * TILE, (number + 1) * TILE
        _meet_tile(tiles[number], centres, first, d2[begin:end], label[begin:end], s0, s1, s2, s3)


@allocating_kernel
def meet_tiled(values, centres, first, d2, label):
    """:func:`meet_tiles`, turning one tile after the other.  OUT: d2, label."""
    n, d = values.shape
    tile = np.zeros((d, TILE))
    s0, s1, s2, s3 = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        turn_tile(values[begin:end], tile)
        _meet_tile(tile, centres, first, d2[begin:end], label[begin:end], s0, s1, s2, s3)


@kernel
def meet_screened(values, lengths, centres, first, products, norms, radius, unit, d2, label):
    """Like :func:`meet_tiled`, with a matrix product to rule centres out.  OUT: d2, label.

    ``products`` holds values @ centres[first:].T, ``lengths`` the rows' squared lengths and
    ``norms`` those of the centres from ``first`` on.  |x|^2 + |c|^2 - 2 x.c estimates a squared
    distance, and ``margin`` bounds its error for any way to sum the product (docs/math.md).  What
    lies within the margin of the smallest estimate is settled by the exact kernel.
    """
    for i in range(values.shape[0]):
        best = d2[i]
        nearest = label[i]
        reach = np.sqrt(lengths[i]) + radius
        margin = unit * reach * reach
        lowest = np.inf
        for k in range(norms.shape[0]):
            estimate = norms[k] - 2.0 * products[i, k]
            lowest = estimate if estimate < lowest else lowest
        limit = min(lengths[i] + lowest + margin, best) + margin
        if lengths[i] + lowest <= limit:
            for k in range(norms.shape[0]):
                if lengths[i] + (norms[k] - 2.0 * products[i, k]) <= limit:
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
