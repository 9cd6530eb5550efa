"""The compiled loops: arrays in, arrays out, and nothing else.

Every function here is a numba kernel.  Arguments are validated by the callers; an argument that
a kernel writes to is marked OUT, everything else is only read.

Two rules make the results reproducible bit for bit, on any machine and for any batch of rows:

* A squared distance is always computed by :func:`squared_distance`, whose order of summation
  depends on the number of features alone.  Other ways of getting at a distance (a matrix product,
  the triangle inequality) may only *rule out* candidates, with a margin that covers their error.
* No fast-math, no fused multiply-add, and no function of the C library: the logarithm below is
  made of additions, multiplications and divisions, which IEEE 754 rounds the same way everywhere.

All kernels live in one module because numba's on-disk cache looks only at the file of the kernel
itself: a kernel cached here can never call an outdated helper from elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedforget.compilation import inlined, kernel, lean_kernel

# --------------------------------------------------------------------------------------------
# Distances
# --------------------------------------------------------------------------------------------


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


@inlined
def _turn(rows, turned):
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
def _tile_distances(tile, c, s0, s1, s2, s3):
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


@inlined
def _meet_tile(tile, centres, first, best, nearest, s0, s1, s2, s3):
    """Let the rows of one tile meet the centres ``first`` and later.  OUT: best, nearest, s0.."""
    for k in range(first, centres.shape[0]):
        _tile_distances(tile, centres[k], s0, s1, s2, s3)
        for i in range(best.shape[0]):
            if s0[i] < best[i]:
                best[i] = s0[i]
                nearest[i] = k


@kernel
def turn(values, tiles):
    """Cut rows into tiles of 64 and transpose each.  OUT: tiles, of shape (n_tiles, d, 64)."""
    for number in range(tiles.shape[0]):
        _turn(values[number * TILE : (number + 1) * TILE], tiles[number])


@kernel
def meet_tiles(tiles, centres, first, d2, label):
    """Let rows that were turned before meet the centres ``first`` and later.  OUT: d2, label."""
    s0, s1, s2, s3 = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for number in range(tiles.shape[0]):
        begin, end = number * TILE, (number + 1) * TILE
        _meet_tile(tiles[number], centres, first, d2[begin:end], label[begin:end], s0, s1, s2, s3)


@kernel
def meet_tiled(values, centres, first, d2, label):
    """:func:`meet_tiles`, turning one tile after the other.  OUT: d2, label."""
    n, d = values.shape
    tile = np.zeros((d, TILE))
    s0, s1, s2, s3 = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    for begin in range(0, n, TILE):
        end = min(begin + TILE, n)
        _turn(values[begin:end], tile)
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


# --------------------------------------------------------------------------------------------
# Keyed randomness: SipHash for a record's key, a counter-based mix for its clocks
# --------------------------------------------------------------------------------------------


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


@inlined
def _sip_absorb(v0, v1, v2, v3, word):
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@inlined
def _sip_finish(v0, v1, v2, v3):
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


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
        v0, v1, v2, v3 = _sip_absorb(v0, v1, v2, v3, (number << np.uint64(8)) | tag)
        last = (number >> np.uint64(56)) | (np.uint64(9) << np.uint64(56))
        v0, v1, v2, v3 = _sip_absorb(v0, v1, v2, v3, last)
        out0[i], out1[i] = _sip_finish(v0, v1, v2, v3)


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


# --------------------------------------------------------------------------------------------
# The race
# --------------------------------------------------------------------------------------------

BLOCK = 256
"""Rows screened at once: a loop of this shape is vectorised, and its numbers stay in cache."""

HINT_COST = 512
"""Distances times features from which a search for the best first threshold pays off."""

SCREEN = 1.0 + 1e-9
"""Covers the rounding of the screen; whatever it lets pass is compared exactly."""


@inlined
def _any_below(keys0, keys1, counter, rate, limit):
    """How many rows of a block have u <= limit * rate: only they can score up to the limit."""
    hits = 0
    for i in range(rate.shape[0]):
        u = (np.float64(draw(keys0[i], keys1[i], counter)) + 0.5) * 5.421010862427522e-20
        hits += 1 if u <= limit * rate[i] else 0
    return hits


@kernel
def race_step(values, seeds, n_seeds, weights, keys0, keys1, counter, rate, label, met):
    """One step of the race: the row with the smallest score E / rate.  OUT: rate, label, met.

    ``rate`` is the row's weight times D^2, or an upper bound of it for a row that has not met all
    ``n_seeds`` seeds; a row is brought up to date only when its bound could win.  Since
    -log(1 - u) >= u, the comparison needs no logarithm until then.  ``weights`` is empty for
    unit weights.

    Returns the winning row (-1: none has a finite score), its score, and how many rows share it.
    """
    n, d = values.shape

    # Which row looks best by the stale rates?  Its true score makes a sharp first threshold.  Where
    # a few more rows are brought up to date cheaply, the first block alone has to give the hint.
    hint = -1
    lowest = np.inf
    for begin in range(0, n if n_seeds * d > HINT_COST else min(n, BLOCK), BLOCK):
        end = min(begin + BLOCK, n)
        if lowest < np.inf and not _any_below(
            keys0[begin:end], keys1[begin:end], counter, rate[begin:end], lowest
        ):
            continue
        for i in range(begin, end):
            u = uniform(draw(keys0[i], keys1[i], counter))
            if rate[i] > 0.0 and u / rate[i] < lowest:
                lowest = u / rate[i]
                hint = i

    winner = -1
    best = np.inf
    ties = 0
    if hint >= 0:
        _refresh(values, seeds, n_seeds, weights, hint, rate, label, met)
    if hint >= 0 and rate[hint] > 0.0:
        score = exponential(uniform(draw(keys0[hint], keys1[hint], counter))) / rate[hint]
        if score < best:
            winner, best, ties = hint, score, 1
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        if best < np.inf and not _any_below(
            keys0[begin:end], keys1[begin:end], counter, rate[begin:end], best * SCREEN
        ):
            continue
        for i in range(begin, end):
            u = uniform(draw(keys0[i], keys1[i], counter))
            if i == hint or not (rate[i] > 0.0 and u <= best * SCREEN * rate[i]):
                continue
            _refresh(values, seeds, n_seeds, weights, i, rate, label, met)
            if not rate[i] > 0.0:
                continue
            score = exponential(u) / rate[i]
            if score < best:
                winner, best, ties = i, score, 1
            elif score == best and score < np.inf:
                ties += 1
    return winner, best, ties


@kernel
def _refresh(values, seeds, n_seeds, weights, i, rate, label, met):
    """Let row ``i`` meet the seeds it has not met.  OUT: rate, label, met."""
    for k in range(met[i], n_seeds):
        fresh = squared_distance(values[i], seeds[k])
        if weights.shape[0] > 0:
            fresh = weights[i] * fresh
        if fresh < rate[i]:
            rate[i] = fresh
            label[i] = k
    met[i] = n_seeds


@kernel
def tied_rows(values, seeds, n_seeds, weights, keys0, keys1, counter, score, rate, label, met, out):
    """Mark every row whose score equals ``score``.  OUT: rate, label, met, out."""
    for i in range(values.shape[0]):
        _refresh(values, seeds, n_seeds, weights, i, rate, label, met)
        clock = exponential(uniform(draw(keys0[i], keys1[i], counter)))
        out[i] = rate[i] > 0.0 and clock / rate[i] == score


@kernel
def challenge(values, keys0, keys1, stream, seeds, scores, out_step, d2, label):
    """Find the first step at which a new row would beat or equal the winner.

    OUT: out_step (len(scores) where it beats none), and d2, label against all the seeds
    (meaningful where it beats none).
    """
    n_seeds = scores.shape[0]
    for i in range(values.shape[0]):
        rate = 1.0
        nearest = -1
        out_step[i] = n_seeds
        for step in range(n_seeds):
            clock = exponential(uniform(draw(keys0[i], keys1[i], stream + np.uint64(step))))
            if rate > 0.0 and clock / rate <= scores[step]:
                out_step[i] = step
                break
            distance = squared_distance(values[i], seeds[step])
            if step == 0 or distance < rate:
                rate = distance
                nearest = step
        d2[i] = rate
        label[i] = nearest


# --------------------------------------------------------------------------------------------
# Fixed-point values and the grid
# --------------------------------------------------------------------------------------------


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
def bin_indices(units, step, shift, out):
    """Index of the grid point step * j + shift nearest to each unit coordinate.  OUT: out.

    Ties go to the smaller index.
    """
    for i in range(units.shape[0]):
        for t in range(units.shape[1]):
            y = units[i, t] - shift[t]
            below = np.floor(y / step)
            if y - step * below > step * (below + 1.0) - y:
                below += 1.0
            out[i, t] = np.int64(max(below, 0.0))


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


# --------------------------------------------------------------------------------------------
# Lloyd's iteration on an integer lattice
# --------------------------------------------------------------------------------------------


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
def recentre(sums, totals, centres):
    """Move each centre to the mean of its points; an empty cluster keeps its place.  OUT: centres.

    Returns the sum of the squared moves.
    """
    shift = 0.0
    for k in range(centres.shape[0]):
        if totals[k] == 0:
            continue
        for t in range(centres.shape[1]):
            mean = np.float64(sums[k, t]) / np.float64(totals[k])
            shift += (mean - centres[k, t]) * (mean - centres[k, t])
            centres[k, t] = mean
    return shift


@kernel
def cluster_losses(weights, d2, label, out):
    """Add weight * d2 to each point's cluster, in the order of the points.  OUT: out."""
    for i in range(label.shape[0]):
        out[label[i]] += weights[i] * d2[i]


@kernel
def runner_up(keys0, keys1, counter, rate, winner):
    """A lower bound on the score of everybody but the winner of a step."""
    lowest = np.inf
    for i in range(rate.shape[0]):
        if i != winner and rate[i] > 0.0:
            u = uniform(draw(keys0[i], keys1[i], counter))
            lowest = min(lowest, u / rate[i])
    return lowest / SCREEN


# --------------------------------------------------------------------------------------------
# Replay: walk the trajectories of old runs after a few points have changed
# --------------------------------------------------------------------------------------------

READY = 0
"""A restart whose rows are complete."""

RERUN = 1
"""One that has to be seeded and run from the start."""

ABSENT = 2
"""One that has no rows."""

GROW = 3
"""One whose first rows are right, and whose later ones are to be made."""

FULL = 4
"""One that needs another row when there is none; what it has is right."""

SINGLE = 2.0**-23
"""Twice the unit roundoff of single precision."""

SLOT_BLOCK = 64
"""Slots come in blocks of so many: whole vectors of the machine, and nothing left over."""

SLOT_TILE = 1024
"""Slots whose margins are taken at once: long loops, and numbers that stay in cache."""

TIGHT = 32
"""How many points a row lists at most as close to a border between clusters."""

PATIENCE = 32
"""Margins are taken again when one point in so many has been settled because of old ones."""

MOST_PAIRS = 1024
"""Pairs of points that come and go up to which each looks for its nearest."""

WORN = 32.0
"""Estimates are computed afresh before their error grows by more than this factor."""


class Cloud(NamedTuple):
    """Points in slots.  A slot of weight 0 holds no point.

    ``order`` begins with the slots in use, in canonical order.  ``shifted`` holds the coordinates
    counted from ``origin``, a lattice point in their midst; the first of ``bounds`` is a bound on
    the squared lengths of these vectors, the second one on the errors of two squared distances
    together, as :func:`squared_distance` computes them.

    For margins, ``single`` holds the shifted coordinates feature by feature, in single precision,
    and ``lengths`` the squared lengths.

    For estimates, ``turned`` holds them feature by feature, and row ``place[slot]`` of
    ``products`` a point's inner products with all points, in single precision; a point whose place
    is -1 has none.  The first ``known[0]`` rows are in use, by the slots known[1], known[2], ...
    """

    values: Any
    weights: Any
    keys: Any
    order: Any
    origin: Any
    bounds: Any
    shifted: Any
    single: Any
    lengths: Any
    turned: Any
    products: Any
    place: Any
    known: Any


class Trajectories(NamedTuple):
    """A pool of rows.  A row is one assignment of Lloyd's iteration.

    The centres of a row are the seeds, or the means of the clusters of the row before.  ``sums``
    holds each cluster's sums, from the origin, and, in the last column, its weight; ``witness`` a
    slot whose label differs from that of the row before, or -1.
    """

    labels: Any
    sums: Any
    witness: Any


class Margins(NamedTuple):
    """How far the points of each row are from another cluster; empty where there are estimates.

    ``anchors`` are the row's centres, counted from the origin, as they were when its margins were
    taken, and ``drifts`` says how far each has moved since.  A point's margin is the difference of
    its distances to its own anchor and to the next.  Until its own centre and another one have
    together moved by as much, its label stands.

    A point's margin is at least ``keys`` less the row's ``sunk``.  The points whose margins are not
    above the row's ``cut`` are listed: their slots in ``tight``, their margins in ``listed``.
    ``debt`` counts points that were settled for want of better margins.
    """

    anchors: Any
    drifts: Any
    keys: Any
    sunk: Any
    cut: Any
    tight: Any
    listed: Any
    debt: Any


class Estimates(NamedTuple):
    """Every point's distance to every centre of each row; empty where there are margins.

    With coordinates counted from the origin, |x - c|^2 = |x|^2 + (|c|^2 - 2 x.c); the first term is
    the same for every centre.  ``all`` holds the second, for each centre and point, to within the
    centre's entry of ``errors``, and ``norms`` holds |c|^2.  ``near`` is a point's estimate for its
    own centre, ``other`` a number not above any of its others.
    """

    all: Any
    near: Any
    other: Any
    errors: Any
    norms: Any


class Runs(NamedTuple):
    """The restarts: which rows of the pool are theirs, and what is known of their seeds.

    Row t of restart r is row ``where[r, t]`` of the pool, for t below ``length[r]``.
    ``free[1 : 1 + free[0]]`` lists the rows of the pool that are nobody's.

    ``about`` holds the loss of each cluster but for rounding and, over a restart, a constant.
    ``losses`` holds them added up as in a full run, except where ``stale``; that is done for the
    restarts that ``contends`` marks, which alone may be the first to have the lowest.
    """

    where: Any
    length: Any
    status: Any
    seeds: Any
    scores: Any
    about: Any
    losses: Any
    stale: Any
    contends: Any
    free: Any


class Desk(NamedTuple):
    """Working memory of a walk.

    The first ``count[0]`` entries of ``slot``, ``cluster`` and ``weight`` tell what the clusters of
    a row have gained, or with a negative weight lost, against what they were; ``touched`` has room
    to mark these clusters for two rows.  ``centres`` are those of a row that ``have`` marks.
    ``work`` counts labels and distances that were computed again, and all rows there are.
    """

    work: Any
    count: Any
    slot: Any
    cluster: Any
    weight: Any
    mine: Any
    touched: Any
    centres: Any
    have: Any
    companion: Any
    apart: Any
    twin: Any
    listed: Any
    column: Any
    everyone: Any
    factors: Any
    gathered: Any
    single: Any
    nearest: Any


class Records(NamedTuple):
    """All that a replay reads and writes."""

    cloud: Any
    rows: Any
    margins: Any
    estimates: Any
    runs: Any
    desk: Any


@inlined
def _named(plain):
    """Records from plain tuples.

    numba reads the names of named tuples anew at each call from Python, and that takes as long as
    many a removal's rows.
    """
    return Records(
        Cloud(*plain[0]),
        Trajectories(*plain[1]),
        Margins(*plain[2]),
        Estimates(*plain[3]),
        Runs(*plain[4]),
        Desk(*plain[5]),
    )


@kernel
def replay(plain, n, changed, coordinates, keys, max_iter, total):
    """Let some points change, and bring every recorded restart up to date.

    ``changed`` has rows (slot, old weight, new weight, place in the canonical order); a point
    that comes or goes has the old or new weight 0.  ``coordinates`` and ``keys`` are those of the
    points that come.  There were ``n`` points before, and the weights are ``total`` after.

    The losses are added up of those restarts alone that may have the lowest, and of these the
    clusters that are not what they were.

    OUT: the records.
    """
    records = _named(plain)
    cloud, runs, desk = records.cloud, records.runs, records.desk
    desk.work[:] = 0
    order = _change_points(records, n, changed, coordinates, keys)
    _find_companions(cloud, changed, desk)
    for r in range(runs.status.shape[0]):
        if runs.status[r] == READY and not _winners_stand(
            cloud, changed, r, runs.seeds[r], runs.scores[r], desk.work
        ):
            runs.status[r] = RERUN
        elif runs.status[r] == READY or runs.status[r] == GROW:
            runs.status[r] = _walk(records, changed, r, max_iter)
    lowest = np.inf
    for r in range(runs.status.shape[0]):
        if runs.status[r] == READY:
            lowest = min(lowest, _total(runs.about[r]))
    terms = order.shape[0] + cloud.values.shape[1] + runs.stale.shape[1] + 64.0
    margin = 2.0**-48 * terms * np.float64(total) * cloud.bounds[0]
    for r in range(runs.status.shape[0]):
        runs.contends[r] = (
            runs.status[r] == READY
            and _total(runs.about[r]) <= lowest + margin
            and not _has_twin(records.rows, runs, r, desk)
        )
        if runs.contends[r]:
            desk.work[1] += _add_losses(cloud, order, records.rows, runs, r, desk)
        desk.work[2] += runs.length[r]


@inlined
def _change_points(records, n, changed, coordinates, keys):
    """Let points come, change their weights, and go.  Returns their order.  OUT: records."""
    cloud = records.cloud
    order = cloud.order
    new = 0
    for c in range(changed.shape[0]):
        slot, before, after, place = changed[c, 0], changed[c, 1], changed[c, 2], changed[c, 3]
        cloud.weights[slot] = after
        if before == 0:
            _put_point(records, slot, coordinates[new], keys[new])
            new += 1
            for p in range(n, place, -1):
                order[p] = order[p - 1]
            order[place] = slot
            n += 1
        if after == 0:
            n -= 1
            for p in range(place, n):
                order[p] = order[p + 1]
    return order[:n]


@inlined
def _find_companions(cloud, changed, desk):
    """For each point that comes the nearest of those that go, and how far it is.  OUT: desk.

    Where a client's mean moves on, these are neighbours on the lattice.  Many points at once, whose
    pairs would take longer than they save, have none.
    """
    comes = goes = 0
    for c in range(changed.shape[0]):
        desk.companion[c] = -1
        comes += 1 if changed[c, 1] == 0 else 0
        goes += 1 if changed[c, 2] == 0 else 0
    if comes * goes > MOST_PAIRS:
        return
    for c in range(changed.shape[0]):
        if changed[c, 1] > 0:
            continue
        nearest = np.inf
        for other in range(changed.shape[0]):
            if changed[other, 2] == 0:
                slot = changed[other, 0]
                distance = squared_distance(cloud.shifted[changed[c, 0]], cloud.shifted[slot])
                if distance < nearest:
                    nearest = distance
                    desk.companion[c] = slot
        desk.apart[c] = np.sqrt(nearest) * SCREEN


@inlined
def _put_point(records, slot, coordinates, key):
    """Put a point into a slot.  OUT: records.cloud, records.desk."""
    cloud = records.cloud
    d = cloud.origin.shape[0]
    cloud.keys[0, slot] = key[0]
    cloud.keys[1, slot] = key[1]
    radius2 = reach2 = 0.0
    for c in range(d):
        value = np.float64(coordinates[c])
        shifted = np.float64(coordinates[c] - cloud.origin[c])
        cloud.values[slot, c] = value
        cloud.shifted[slot, c] = shifted
        radius2 += shifted * shifted
        reach2 += value * value
    widen(cloud.bounds, d, radius2, reach2)
    if cloud.lengths.shape[0] > 0:
        cloud.lengths[slot] = radius2
        for c in range(d):
            cloud.single[c, slot] = cloud.shifted[slot, c]
    else:
        for c in range(d):
            cloud.turned[c, slot] = cloud.shifted[slot, c]
        _put_products(cloud, slot, records.desk.column)


@kernel
def widen(bounds, d, radius2, reach2):
    """Let the bounds of a cloud cover a point with these squared lengths.  OUT: bounds.

    The first is its length from the origin, the second from zero.
    """
    bounds[0] = max(bounds[0], (1.0 + 1e-9) * radius2)
    bounds[1] = max(bounds[1], 2.0**-47 * (d + 16.0) * (1.0 + 1e-9) * reach2)


@kernel
def first_row(plain, n, row, seeds):
    """The first assignment of a restart, to its seeds.  OUT: the row of the records, their desk."""
    records = _named(plain)
    cloud, rows, desk = records.cloud, records.rows, records.desk
    margins, estimates = records.margins, records.estimates
    desk.work[:] = 0
    for k in range(seeds.shape[0]):
        desk.centres[k] = cloud.values[seeds[k]]
        desk.have[k] = True
    rows.labels[row] = -1
    rows.sums[row] = 0
    desk.count[0] = 0
    if margins.cut.shape[0] > 0:
        for k in range(seeds.shape[0]):
            seed, anchor = cloud.shifted[seeds[k]], margins.anchors[row, k]
            _copy(seed, anchor)
            margins.drifts[row, k] = np.sqrt(squared_distance(seed, anchor)) * SCREEN
        _take_margins(cloud, rows, margins, desk, row, row, 0.0, True, desk.touched[0])
        # Seeds do not move: these margins are good for ever.
        margins.listed[row] = np.inf
        margins.cut[row] = np.inf
    else:
        _estimate_seeds(cloud, estimates, row, seeds, desk.column)
        limit = _limit(estimates.errors[row], cloud.bounds[1])
        for p in range(n):
            _settle(cloud, rows, estimates, desk, row, row, cloud.order[p], limit)
    for p in range(n):
        slot = cloud.order[p]
        sums = rows.sums[row, rows.labels[row, slot]]
        _take(sums, cloud.values[slot], cloud.origin, cloud.weights[slot])
    rows.witness[row] = cloud.order[0]
    desk.work[1] += seeds.shape[0] * n


@kernel
def read_out(sums, origin, slot_labels, order, centres, labels):
    """The means of clusters, and the labels in canonical order.  OUT: centres, labels."""
    for k in range(sums.shape[0]):
        centre_of(sums[k], origin, centres[k])
    for p in range(order.shape[0]):
        labels[p] = slot_labels[order[p]]


@lean_kernel
def _walk(records, changed, r, max_iter):
    """Bring one restart up to date, row by row.  Returns its status.  OUT: records.

    The rows that are there follow the changes.  Further ones, if it takes any, start as copies
    of the row before: their clusters differ from those by what has moved since.
    """
    cloud, rows, runs, desk = records.cloud, records.rows, records.runs, records.desk
    margins, estimates = records.margins, records.estimates
    by_margins = margins.cut.shape[0] > 0
    where = runs.where[r]
    length = runs.length[r]
    t = length if runs.status[r] == GROW else 0
    before, touched = desk.touched[0], desk.touched[1]
    touched[:] = False
    desk.count[0] = 0
    newcomers = False
    for c in range(changed.shape[0]):
        newcomers |= changed[c, 1] == 0
    while True:
        old = t < length
        if not old:
            if runs.free[0] == 0 or t == where.shape[0]:
                runs.length[r] = t
                return FULL
            where[t] = runs.free[runs.free[0]]
            runs.free[0] -= 1
            _copy_row(rows, margins, estimates, where[t - 1], where[t])
            if t == length and t > 1 and not by_margins:
                _list_moves(cloud, rows, where[t - 2], where[t - 1], touched, desk)
        row = where[t]
        above = where[t - 1] if t > 0 else row
        before, touched = touched, before
        desk.have[:] = False
        if t == 0 and newcomers:
            for k in range(desk.have.shape[0]):
                _copy(cloud.values[runs.seeds[r, k]], desk.centres[k])
                desk.have[k] = True
        # What the clusters of the row above have gained is noted; then, what those of this row do.
        if by_margins:
            filled = _assign_by_margins(
                cloud, rows, margins, desk, changed, above, row, old, before, touched
            )
        else:
            filled = _assign_by_estimates(
                cloud, rows, estimates, desk, changed, above, row, t, old, before, touched
            )
        if not filled:
            runs.length[r] = t + 1 if not old else length
            return RERUN
        for p in range(desk.count[0]):
            sums = rows.sums[row, desk.cluster[p]]
            _take(sums, cloud.values[desk.slot[p]], cloud.origin, desk.weight[p])

        if t > 0:
            rows.witness[row] = _differ(rows.labels[above], rows.labels[row], rows.witness[row])
        if rows.witness[row] < 0 or t == max_iter:
            break
        t += 1

    for later in range(t + 1, length):
        runs.free[0] += 1
        runs.free[runs.free[0]] = where[later]
    runs.length[r] = t + 1
    d = cloud.values.shape[1]
    for k in range(touched.shape[0]):
        if touched[k] or before[k] or t + 1 != length:
            runs.stale[r, k] = True
            # The sum of w (|c|^2 - 2 x.c); that of w |x|^2 is the same for every restart.
            after = rows.sums[row, k]
            norm = _norm(rows.sums[above, k], d)
            mixed = _mixed(rows.sums[above, k], after, d)
            runs.about[r, k] = np.float64(after[d]) * norm - 2.0 * mixed
    return READY


@lean_kernel
def _copy_row(rows, margins, estimates, source, row):
    """Let a row start as a copy of another.  OUT: rows, margins, estimates."""
    rows.witness[row] = -1
    _copy(rows.labels[source], rows.labels[row])
    for k in range(rows.sums.shape[1]):
        _copy(rows.sums[source, k], rows.sums[row, k])
    if margins.cut.shape[0] > 0:
        margins.cut[row] = margins.cut[source]
    else:
        _copy(estimates.near[source], estimates.near[row])
        _copy(estimates.other[source], estimates.other[row])
        _copy(estimates.errors[source], estimates.errors[row])
        _copy(estimates.norms[source], estimates.norms[row])
        for k in range(estimates.norms.shape[1]):
            _copy(estimates.all[source, k], estimates.all[row, k])


@lean_kernel
def _copy(source, target):
    """Copy numbers; an assignment of whole arrays would allocate.  OUT: target."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@inlined
def _note(desk, touched, slot, cluster, weight):
    """Note that a cluster has gained some weight at a point.  OUT: desk, touched."""
    count = desk.count[0]
    desk.slot[count] = slot
    desk.cluster[count] = cluster
    desk.weight[count] = weight
    desk.count[0] = count + 1
    touched[cluster] = True


@inlined
def _relabel(cloud, desk, touched, slot, was, now):
    """Note that a point has left a cluster, or -1 for none, for another.  OUT: desk, touched."""
    if was >= 0:
        _note(desk, touched, slot, was, -cloud.weights[slot])
    _note(desk, touched, slot, now, cloud.weights[slot])


@inlined
def _note_changes(rows, row, changed, touched, desk):
    """Let the changed points that were there change their weights, or go.  OUT: rows, desk."""
    for c in range(changed.shape[0]):
        slot, before, after = changed[c, 0], changed[c, 1], changed[c, 2]
        if before > 0:
            _note(desk, touched, slot, rows.labels[row, slot], after - before)
        if after == 0:
            rows.labels[row, slot] = -1


@inlined
def _take(sums, point, origin, weight):
    """Add weight times a point to the sums of a cluster.  OUT: sums."""
    d = point.shape[0]
    for c in range(d):
        sums[c] += weight * (np.int64(point[c]) - origin[c])
    sums[d] += weight


@inlined
def _differ(before, after, witness):
    """A slot whose labels differ, ``witness`` if they do so there; -1 if there is none."""
    found = witness
    if witness < 0 or before[witness] == after[witness]:
        found = -1
        for begin in range(0, before.shape[0], SLOT_BLOCK):
            one, two = before[begin : begin + SLOT_BLOCK], after[begin : begin + SLOT_BLOCK]
            hits = np.int32(0)
            for i in range(SLOT_BLOCK):
                hits += np.int32(1) if one[i] != two[i] else np.int32(0)
            if hits > 0:
                for i in range(SLOT_BLOCK):
                    found = begin + i if one[i] != two[i] else found
                break
    return found


@inlined
def _two_lowest(numbers):
    """The lowest of some numbers, the next, and the place of the lowest, of equals the first."""
    lowest = other = np.inf
    place = 0
    for k in range(numbers.shape[0]):
        number = np.float64(numbers[k])
        if number < lowest:
            other = lowest
            lowest = number
            place = k
        else:
            other = min(other, number)
    return lowest, other, place


@inlined
def _nearest_within(cloud, rows, desk, above, slot, estimates, most):
    """The nearest of the centres whose estimates are at most that; of equals the first.  OUT: desk.

    Squared distances decide, as in a full run.
    """
    smallest = np.inf
    nearest = -1
    for k in range(estimates.shape[0]):
        if estimates[k] <= most:
            _centre_of(cloud, rows, above, k, desk)
            distance = squared_distance(cloud.values[slot], desk.centres[k])
            desk.work[1] += 1
            if distance < smallest:
                smallest = distance
                nearest = k
    return nearest


@inlined
def _centre_of(cloud, rows, above, k, desk):
    """Let a centre be on the desk.  OUT: desk."""
    if not desk.have[k]:
        centre_of(rows.sums[above, k], cloud.origin, desk.centres[k])
        desk.have[k] = True


@inlined
def centre_of(sums, origin, centre):
    """A cluster's mean from its sums.  OUT: centre."""
    d = origin.shape[0]
    total = np.float64(sums[d])
    for c in range(d):
        centre[c] = np.float64(sums[c] + sums[d] * origin[c]) / total


@inlined
def _norm(sums, d):
    """Squared length of a mean, counted from the origin."""
    norm = 0.0
    for c in range(d):
        norm += np.float64(sums[c]) * np.float64(sums[c])
    return norm / (np.float64(sums[d]) * np.float64(sums[d]))


@inlined
def _mixed(sums, after, d):
    """Inner product of a mean, by its sums, and other sums."""
    product = 0.0
    for c in range(d):
        product += np.float64(sums[c]) * np.float64(after[c])
    return product / np.float64(sums[d])


@inlined
def _total(numbers):
    """Their sum, in order."""
    total = 0.0
    for i in range(numbers.shape[0]):
        total += numbers[i]
    return total


@inlined
def _magnitude(norm, radius2):
    """A bound on a centre's estimates: |c|^2 + 2 |x| |c|."""
    return (norm + 2.0 * np.sqrt(norm * radius2)) * SCREEN


# -- few features and clusters: margins ----------------------------------------------------------


@inlined
def _assign_by_margins(cloud, rows, margins, desk, changed, above, row, old, before, touched):
    """Bring the labels of a row up to date.  Returns whether no cluster of the row above is empty.

    While the two centres that have moved most have together moved by less than the row's cut, the
    points on its list alone can have changed their labels.  OUT: rows, margins, touched, desk.
    """
    drifts = margins.drifts[row]
    most = next_ = moved = 0.0
    for k in range(drifts.shape[0]):
        if before[k]:
            if rows.sums[above, k, cloud.origin.shape[0]] == 0:
                return False
            drifts[k] = _drift(rows.sums[above, k], margins.anchors[row, k])
            moved = max(moved, drifts[k])
        next_ = max(next_, min(most, drifts[k]))
        most = max(most, drifts[k])
    touched[:] = False
    desk.count[0] = 0
    calm = old and most + next_ < margins.cut[row]
    calm = calm and margins.debt[row] * PATIENCE < rows.labels.shape[1]
    if old:
        for c in range(changed.shape[0]):
            if changed[c, 1] == 0:
                _inherit(rows, margins, row, changed[c, 0], desk.companion[c], desk.apart[c])
        _note_changes(rows, row, changed, touched, desk)
        for c in range(changed.shape[0]):
            slot, label = changed[c, 0], rows.labels[row, changed[c, 0]]
            if changed[c, 2] == 0:
                margins.keys[row, slot] = np.inf
            elif changed[c, 1] == 0 and label >= 0:
                _note(desk, touched, slot, label, changed[c, 2])
    if calm:
        _settle_tight(cloud, rows, margins, desk, above, row, before, most, next_, moved, touched)
        for c in range(changed.shape[0]):
            slot = changed[c, 0]
            left = np.float64(margins.keys[row, slot]) - margins.sunk[row]
            if changed[c, 1] == 0 and left <= margins.cut[row]:
                _let_in(cloud, rows, margins, desk, above, row, slot, touched)
    else:
        if not _take_anchors(rows, margins, above, row):
            return False
        _take_margins(cloud, rows, margins, desk, above, row, most + next_, not old, touched)
    return True


@inlined
def _inherit(rows, margins, row, slot, companion, apart):
    """Let a new point have the label of a close one, and what is left of its margin.

    A point that is ``apart`` has distances that differ by no more than that.  OUT: rows, margins.
    """
    key = np.float32(-np.inf)
    rows.labels[row, slot] = -1
    if companion >= 0:
        rows.labels[row, slot] = rows.labels[row, companion]
        left = np.float64(margins.keys[row, companion]) - 2.0 * apart
        key = np.float32(left * (1.0 - 1e-6)) if left > 0.0 else key
    margins.keys[row, slot] = key


@inlined
def _drift(sums, anchor):
    """How far a cluster's mean is from an anchor, at most."""
    d = anchor.shape[0]
    share = 1.0 / np.float64(sums[d])
    s0 = s1 = s2 = s3 = 0.0
    for group in range(d // 4):
        c = group * 4
        e0 = np.float64(sums[c]) * share - anchor[c]
        e1 = np.float64(sums[c + 1]) * share - anchor[c + 1]
        e2 = np.float64(sums[c + 2]) * share - anchor[c + 2]
        e3 = np.float64(sums[c + 3]) * share - anchor[c + 3]
        s0 += e0 * e0
        s1 += e1 * e1
        s2 += e2 * e2
        s3 += e3 * e3
    for c in range(d - d % 4, d):
        e0 = np.float64(sums[c]) * share - anchor[c]
        s0 += e0 * e0
    return np.sqrt((s0 + s2) + (s1 + s3)) * SCREEN


@inlined
def _settle_tight(cloud, rows, margins, desk, above, row, before, most, next_, moved, touched):
    """Settle the listed points whose margins are used up.  OUT: rows, margins, touched, desk.

    Labels were right before the clusters that ``before`` marks have changed, so a point of another
    cluster has to be compared with these alone.  ``moved`` is the largest of their drifts, ``most``
    and ``next_`` are those of all.
    """
    drifts, listed = margins.drifts[row], margins.listed[row]
    bound = np.float32((most + next_) * (1.0 + 1e-6))
    hits = np.int32(0)
    for p in range(TIGHT):
        hits += np.int32(1) if listed[p] <= bound else np.int32(0)
    if hits == 0:
        return
    settled = 0
    for p in range(TIGHT):
        if listed[p] > bound:
            continue
        slot = np.int64(margins.tight[row, p])
        own = rows.labels[row, slot]
        if own < 0:
            continue
        # Not the listed margin: another point may be in this slot by now.
        margin = np.float64(margins.keys[row, slot]) - margins.sunk[row]
        rivals = moved
        if before[own]:
            rivals = next_ if drifts[own] == most else most
        if margin > drifts[own] + rivals:
            continue
        settled += 1
        nearest = _nearest_of(
            cloud, rows, margins, desk, above, row, slot, own, margin, before, not before[own]
        )
        if nearest != own:
            rows.labels[row, slot] = nearest
            listed[p] = -np.inf
            margins.keys[row, slot] = -np.inf
            _relabel(cloud, desk, touched, slot, own, nearest)
    desk.work[0] += settled
    # One or two points that are close to a border come back with any margins.
    margins.debt[row] += max(0, settled - 2)


@inlined
def _nearest_of(cloud, rows, margins, desk, above, row, slot, own, margin, before, few):
    """The nearest centre of a point, but for those that its margin rules out.  OUT: desk.

    ``few`` leaves those out, too, that ``before`` does not mark; its own counts in any case.
    Estimates in double precision tell most centres apart; squared distances tell the others.  At
    the seeds, where no row is above, there are no sums to make estimates of.
    """
    drifts = margins.drifts[row]
    estimates = desk.column[: drifts.shape[0]]
    limit = cloud.bounds[1] + 2.0**-48 * (cloud.origin.shape[0] + 16.0) * cloud.bounds[0]
    for k in range(drifts.shape[0]):
        estimates[k] = np.inf
        if k == own or ((before[k] or not few) and drifts[own] + drifts[k] >= margin):
            estimates[k] = 0.0
            if above != row:
                estimates[k] = _estimate(cloud.shifted[slot], rows.sums[above, k])
            desk.work[1] += 1
    lowest, other, nearest = _two_lowest(estimates)
    if other <= lowest + limit:
        nearest = _nearest_within(cloud, rows, desk, above, slot, estimates, lowest + limit)
    return nearest


@inlined
def _estimate(point, sums):
    """|c|^2 - 2 x.c for a point and the mean c of a cluster, by its sums."""
    d = point.shape[0]
    n0 = n1 = n2 = n3 = 0.0
    s0 = s1 = s2 = s3 = 0.0
    for group in range(d // 4):
        c = group * 4
        x0, x1 = np.float64(sums[c]), np.float64(sums[c + 1])
        x2, x3 = np.float64(sums[c + 2]), np.float64(sums[c + 3])
        n0 += x0 * x0
        n1 += x1 * x1
        n2 += x2 * x2
        n3 += x3 * x3
        s0 += point[c] * x0
        s1 += point[c + 1] * x1
        s2 += point[c + 2] * x2
        s3 += point[c + 3] * x3
    for c in range(d - d % 4, d):
        x0 = np.float64(sums[c])
        n0 += x0 * x0
        s0 += point[c] * x0
    share = 1.0 / np.float64(sums[d])
    return (((n0 + n2) + (n1 + n3)) * share - 2.0 * ((s0 + s2) + (s1 + s3))) * share


@inlined
def _let_in(cloud, rows, margins, desk, above, row, slot, touched):
    """Give a new point its label, its margin, and its place on the list.

    OUT: rows, margins, touched, desk.
    """
    drifts = margins.drifts[row]
    distances = desk.column[: drifts.shape[0]]
    for k in range(drifts.shape[0]):
        distances[k] = squared_distance(cloud.shifted[slot], margins.anchors[row, k])
    first, second, own = _two_lowest(distances)
    moved = 0.0
    for k in range(drifts.shape[0]):
        if k != own:
            moved = max(moved, drifts[k])
    margin = (np.sqrt(second) - np.sqrt(first)) * (1.0 - 1e-9) - _root(cloud.bounds[1])
    nearest = own
    if margin <= drifts[own] + moved:
        nearest = _nearest_of(
            cloud, rows, margins, desk, above, row, slot, own, margin, touched, False
        )
    if nearest != own or margin <= 0.0:
        margin = -np.inf
    margins.keys[row, slot] = (margin + margins.sunk[row]) * (1.0 - 1e-6)
    if margin <= margins.cut[row] < np.inf:
        p = 0
        while p < TIGHT and margins.listed[row, p] < np.inf:
            p += 1
        if p < TIGHT:
            margins.tight[row, p] = slot
            margins.listed[row, p] = margin * (1.0 - 1e-6)
        else:
            margins.cut[row] = -1.0
    was = rows.labels[row, slot]
    if nearest != was:
        rows.labels[row, slot] = nearest
        _relabel(cloud, desk, touched, slot, was, nearest)
    desk.work[0] += 1
    desk.work[1] += drifts.shape[0]


@inlined
def _root(slack):
    """Distances that differ by more than this are told apart by their computed squares."""
    return 1.001 * np.sqrt(slack)


@inlined
def _take_anchors(rows, margins, above, row):
    """Let the centres of a row be its anchors; False if a cluster is empty.  OUT: margins."""
    d = margins.anchors.shape[2]
    for k in range(margins.anchors.shape[1]):
        sums, anchor = rows.sums[above, k], margins.anchors[row, k]
        if sums[d] == 0:
            return False
        for c in range(d):
            anchor[c] = np.float64(sums[c]) / np.float64(sums[d])
        margins.drifts[row, k] = _drift(sums, anchor)
    return True


@lean_kernel
def _take_margins(cloud, rows, margins, desk, above, row, drift, everyone, touched):
    """Labels and margins for new anchors, which are off the old by no more than ``drift``.

    That is, two of them together.  Points with ample margins keep what the drift leaves of them,
    unless there are few of these or ``everyone`` is asked for.  OUT: rows, margins, touched, desk.
    """
    capacity = desk.nearest.shape[0]
    radius = np.sqrt(cloud.bounds[0])
    margins.debt[row] = 0
    cut = margins.cut[row]
    if not 0.0 < cut < 4.0 * radius:
        cut = 0.125 * radius
    # The new anchors are off the centres, too, by a rounding.
    drift += 2.0 * _largest(margins.drifts[row])
    margins.sunk[row] = 0.0 if everyone else (margins.sunk[row] + drift) * SCREEN
    within = 1.5 * cut
    count = capacity
    if not everyone:
        bound = np.float32((margins.sunk[row] + within) * (1.0 + 1e-6))
        count = _list_below(margins.keys[row], bound, desk.listed)
    slots, single, lengths = desk.listed, desk.gathered, desk.single[3]
    width = -(-count // SLOT_BLOCK) * SLOT_BLOCK
    if 2 * width >= capacity:
        slots, single, lengths = desk.everyone, cloud.single, cloud.lengths
        count = width = capacity
        within = np.inf
        margins.sunk[row] = 0.0
    else:
        for j in range(count, width):
            slots[j] = slots[0]
        _gather(cloud.single, cloud.lengths, slots, width, single, lengths)
    _measure(single, lengths, width, margins.anchors[row], cloud.bounds, desk)
    _take_labels(cloud, rows, margins, desk, above, row, slots, count, touched)
    _list_tight(margins, row, slots, count, desk.single[2], cut, within, 4.0 * radius)
    desk.work[0] += count
    desk.work[1] += margins.drifts.shape[1] * count


@lean_kernel
def _gather(single, lengths, slots, width, some, some_lengths):
    """Copy the features of some points side by side.  OUT: some, some_lengths."""
    for j in range(width):
        some_lengths[j] = lengths[slots[j]]
    for c in range(single.shape[0]):
        source, target = single[c], some[c]
        for j in range(width):
            target[j] = source[slots[j]]


@inlined
def _measure(single, lengths, width, anchors, bounds, desk):
    """Nearest anchors of some points, and margins; both on the desk.  OUT: desk.

    ``single`` and ``lengths`` are as in :class:`Cloud`, for these points.
    """
    near, other, margins = desk.single[0], desk.single[1], desk.single[2]
    n_clusters, d = anchors.shape
    largest = 0.0
    for k in range(n_clusters):
        norm = 0.0
        for c in range(d):
            anchor = np.float64(anchors[k, c])
            norm += anchor * anchor
            desk.factors[k, c] = -2.0 * anchor
        desk.factors[k, d] = norm
        largest = max(largest, _magnitude(norm, bounds[0]))
    for begin in range(0, width, SLOT_TILE):
        end = min(begin + SLOT_TILE, width)
        _two_nearest(
            single,
            begin,
            desk.factors,
            near[begin:end],
            other[begin:end],
            desk.nearest[begin:end],
            desk.single[4, begin:end],
            desk.single[5, begin:end],
        )
    # The errors of estimates in single precision (docs/math.md).
    error = 0.5 * SINGLE * (d + 8.0) * largest
    pad = error + 2.0 * SINGLE * (bounds[0] + largest)
    away = _root(bounds[1])
    _margins_of(
        near[:width],
        other,
        lengths,
        np.float32(2.0 * error * (1.0 + 1e-6)),
        np.float32(pad),
        np.float32(away * (1.0 + 1e-6)),
        margins,
    )


@lean_kernel
def _two_nearest(single, begin, factors, near, other, nearest, one, two):
    """Estimates of points for their nearest anchor and the next.

    As in :class:`Estimates`, a point's squared length is left out.  Two anchors are met at a
    time.  OUT: near, other, nearest; one, two.
    """
    d, n = single.shape[0], near.shape[0]
    end = begin + n
    for i in range(n):
        near[i] = np.inf
        other[i] = np.inf
    for k in range(0, factors.shape[0], 2):
        f, g = factors[k], factors[k + 1]
        norm1, norm2 = f[d], g[d]
        rest = d % 4
        if rest == 0:
            for i in range(n):
                one[i] = norm1
                two[i] = norm2
        elif rest == 1:
            x0 = single[0, begin:end]
            f0, g0 = f[0], g[0]
            for i in range(n):
                one[i] = norm1 + f0 * x0[i]
                two[i] = norm2 + g0 * x0[i]
        elif rest == 2:
            x0, x1 = single[0, begin:end], single[1, begin:end]
            f0, f1, g0, g1 = f[0], f[1], g[0], g[1]
            for i in range(n):
                one[i] = norm1 + (f0 * x0[i] + f1 * x1[i])
                two[i] = norm2 + (g0 * x0[i] + g1 * x1[i])
        else:
            x0, x1 = single[0, begin:end], single[1, begin:end]
            x2 = single[2, begin:end]
            f0, f1, f2, g0, g1, g2 = f[0], f[1], f[2], g[0], g[1], g[2]
            for i in range(n):
                one[i] = norm1 + (f0 * x0[i] + (f1 * x1[i] + f2 * x2[i]))
                two[i] = norm2 + (g0 * x0[i] + (g1 * x1[i] + g2 * x2[i]))
        for c in range(rest, d, 4):
            x0, x1 = single[c, begin:end], single[c + 1, begin:end]
            x2, x3 = single[c + 2, begin:end], single[c + 3, begin:end]
            f0, f1, f2, f3 = f[c], f[c + 1], f[c + 2], f[c + 3]
            g0, g1, g2, g3 = g[c], g[c + 1], g[c + 2], g[c + 3]
            for i in range(n):
                one[i] += (f0 * x0[i] + f1 * x1[i]) + (f2 * x2[i] + f3 * x3[i])
                two[i] += (g0 * x0[i] + g1 * x1[i]) + (g2 * x2[i] + g3 * x3[i])
        first, then = np.int32(k), np.int32(k + 1)
        for i in range(n):
            closest, next_, which = near[i], other[i], nearest[i]
            estimate = one[i]
            closer = estimate < closest
            lower = estimate if estimate < next_ else next_
            next_ = closest if closer else lower
            closest = estimate if closer else closest
            which = first if closer else which
            estimate = two[i]
            closer = estimate < closest
            lower = estimate if estimate < next_ else next_
            other[i] = closest if closer else lower
            near[i] = estimate if closer else closest
            nearest[i] = then if closer else which


@lean_kernel
def _margins_of(near, other, lengths, twice, pad, away, margins):
    """By how much the next anchor is farther than the nearest, at least.  OUT: margins.

    d_b - d_a = (d_b^2 - d_a^2) / (d_b + d_a), which is at least the same over 2 d_b.
    """
    for i in range(near.shape[0]):
        gap = (other[i] - near[i]) - twice
        farther = np.sqrt((lengths[i] + other[i]) + pad)
        margin = gap / (np.float32(2.0) * farther) * np.float32(1.0 - 2.0**-18) - away
        margins[i] = margin if other[i] < np.inf else np.float32(np.inf)


@inlined
def _take_labels(cloud, rows, margins, desk, above, row, slots, count, touched):
    """Let points have the labels and margins that are on the desk.

    Those without a margin are settled.  OUT: rows, margins, touched, desk.
    """
    labels, keys = rows.labels[row], margins.keys[row]
    measured = desk.single[2]
    sunk = np.float32(margins.sunk[row])
    # Anchors are off the centres by a rounding.
    least = 2.0 * _largest(margins.drifts[row])
    for j in range(count):
        slot = slots[j]
        if cloud.weights[slot] == 0:
            measured[j] = np.inf
            keys[slot] = np.inf
            continue
        now = np.int64(desk.nearest[j])
        if measured[j] <= least:
            now = _nearest_of(
                cloud, rows, margins, desk, above, row, slot, now, -np.inf, touched, False
            )
            measured[j] = -np.inf
        keys[slot] = (measured[j] + sunk) * np.float32(1.0 - 1e-6)
        was = labels[slot]
        if was != now:
            labels[slot] = now
            _relabel(cloud, desk, touched, slot, was, now)


@inlined
def _largest(numbers):
    """The largest of some numbers that are not negative."""
    largest = 0.0
    for i in range(numbers.shape[0]):
        largest = max(largest, numbers[i])
    return largest


@inlined
def _list_below(numbers, bound, listed):
    """List the slots whose numbers are at most the bound; returns how many.  OUT: listed."""
    count = 0
    for begin in range(0, numbers.shape[0], SLOT_BLOCK):
        block = numbers[begin : begin + SLOT_BLOCK]
        hits = np.int32(0)
        for i in range(SLOT_BLOCK):
            hits += np.int32(1) if block[i] <= bound else np.int32(0)
        if hits > 0:
            for i in range(SLOT_BLOCK):
                listed[count] = begin + i
                count += 1 if block[i] <= bound else 0
    return count


@lean_kernel
def _list_tight(kept, row, slots, count, margins, cut, within, widest):
    """List the points with the smallest margins, and the cut that all others exceed.  OUT: kept.

    The search for a cut that leaves the list neither long nor short begins at ``cut``.  Of points
    that are not among the given, the margins exceed ``within``.
    """
    found = -1.0
    for _ in range(40):
        bound = np.float32(cut)
        hits = np.int32(0)
        for j in range(count):
            hits += np.int32(1) if margins[j] <= bound else np.int32(0)
        if hits <= TIGHT:
            found = cut
        if hits > 3 * TIGHT // 4:
            cut *= 0.5
        elif hits < TIGHT // 4 and 1.5 * cut <= within and cut < widest:
            cut *= 1.5
        else:
            break
    kept.listed[row, :] = np.inf
    # Where too many are equal, there is no list, and the row is measured every time.
    kept.cut[row] = found * (1.0 - 1e-6)
    if found > 0.0:
        bound = np.float32(found)
        p = 0
        for j in range(count):
            if margins[j] <= bound:
                kept.tight[row, p] = slots[j]
                kept.listed[row, p] = margins[j]
                p += 1


# -- many features or clusters: estimates --------------------------------------------------------


@lean_kernel
def _assign_by_estimates(
    cloud, rows, estimates, desk, changed, above, row, t, old, before, touched
):
    """As :func:`_assign_by_margins`.  OUT: rows, estimates, touched, desk."""
    in_doubt = 0
    if t > 0:
        in_doubt = _move_centres(
            cloud, rows, estimates, above, row, before, t == 1 and not old, desk
        )
        if in_doubt < 0:
            return False
    touched[:] = False
    desk.count[0] = 0
    if old:
        _note_changes(rows, row, changed, touched, desk)
        _estimate_changed(cloud, rows, estimates, above, row, changed, t, desk)
    limit = _limit(estimates.errors[row], cloud.bounds[1])
    doubtful = 0
    if t > 0 and in_doubt > 0:
        doubtful = _list_doubtful(estimates.near[row], estimates.other[row], limit, desk.listed)
    if old:
        for c in range(changed.shape[0]):
            if changed[c, 1] == 0:
                desk.listed[doubtful] = changed[c, 0]
                doubtful += 1
    for p in range(doubtful):
        slot = desk.listed[p]
        label = rows.labels[row, slot]
        nearest = _settle(cloud, rows, estimates, desk, above, row, slot, limit)
        if nearest != label:
            _relabel(cloud, desk, touched, slot, label, nearest)
    desk.work[0] += doubtful
    return True


@lean_kernel
def _estimate_seeds(cloud, estimates, row, seeds, column):
    """All points' estimates for the seeds, from scratch.  OUT: the row of estimates, column."""
    for k in range(seeds.shape[0]):
        seed = cloud.shifted[seeds[k]]
        norm = 0.0
        for c in range(seed.shape[0]):
            norm += seed[c] * seed[c]
        estimates.norms[row, k] = norm
        estimates.errors[row, k] = _fresh_error(norm, cloud.bounds[0])
        column[:] = norm
        _add_features(column, -2.0, seed, cloud.turned)
        _copy(column, estimates.all[row, k])
    estimates.near[row, :] = -np.inf
    estimates.other[row, :] = np.inf


@lean_kernel
def _list_moves(cloud, rows, above, row, touched, desk):
    """Note what has moved from one row to the next.  OUT: touched, desk."""
    touched[:] = False
    desk.count[0] = 0
    for slot in range(cloud.weights.shape[0]):
        a, b = rows.labels[above, slot], rows.labels[row, slot]
        if a != b:
            _relabel(cloud, desk, touched, slot, a, b)


@inlined
def _move_centres(cloud, rows, estimates, above, row, touched, afresh, desk):
    """Bring the estimates of a row up to date with the clusters of the row above.

    What the touched clusters have gained and lost is on the desk.  Returns how many labels are in
    doubt (none where no centre moves), or -1 if a cluster is empty.  OUT: estimates, desk.

    With S and W a centre's sums and weight, a gain of weights m_j at points x_j makes

        x.S' = x.S + sum_j m_j x.x_j,  so  e' = a e + (|c'|^2 - a |c|^2) - 2/W' sum_j m_j x.x_j

    for the estimates e and a = W / W'.
    """
    d, capacity = cloud.turned.shape
    radius2 = cloud.bounds[0]
    last = -1
    for k in range(touched.shape[0]):
        if touched[k] or afresh:
            last = k
            if rows.sums[above, k, d] == 0:
                return -1
    in_doubt = np.int32(0)
    for k in range(last + 1):
        if not touched[k] and not afresh:
            continue
        total = np.float64(rows.sums[above, k, d])
        norm = _norm(rows.sums[above, k], d)
        n_mine = 0
        gain = gross = 0.0
        for p in range(desk.count[0]):
            if desk.cluster[p] == k:
                desk.mine[n_mine] = p
                n_mine += 1
                gain += np.float64(desk.weight[p])
                gross += abs(np.float64(desk.weight[p]))
        ratio = (total - gain) / total
        constant = norm - ratio * estimates.norms[row, k]
        few = 0 < n_mine <= 2
        fresh = _fresh_error(norm, radius2)
        step = 2.0 * gross / total * radius2 + ratio * estimates.errors[row, k]
        if few:
            step += ratio * _magnitude(estimates.norms[row, k], radius2) + abs(constant)
            step *= 3.5
        else:
            step += _magnitude(norm, radius2)
        error = ratio * estimates.errors[row, k] + SINGLE * step
        error += 2.0**-48 * (d + 16.0) * (1.0 + ratio + gross / total) * radius2
        labels, near, other = rows.labels[row], estimates.near[row], estimates.other[row]
        column = estimates.all[row, k]
        from_scratch = (
            afresh or n_mine > d or error > WORN * fresh or not _know_products(cloud, desk, n_mine)
        )
        estimates.norms[row, k] = norm
        estimates.errors[row, k] = fresh if from_scratch else error
        # Whoever comes last sees what all columns together have left in doubt.
        limit = _limit(estimates.errors[row], cloud.bounds[1])
        bound = _bound(limit) if k == last else np.float32(-np.inf)
        if from_scratch:
            desk.work[1] += capacity
            _estimate_column(cloud, rows, above, k, norm, desk.column)
            in_doubt = _store_column(desk.column, k, labels, column, near, other, bound)
        elif few:
            p, q = desk.mine[0], desk.mine[n_mine - 1]
            in_doubt = _shift_column(
                np.float32(ratio),
                np.float32(constant),
                np.float32(-2.0 * np.float64(desk.weight[p]) / total),
                cloud.products[cloud.place[desk.slot[p]]],
                np.float32(-2.0 * np.float64(desk.weight[q]) / total if q != p else 0.0),
                cloud.products[cloud.place[desk.slot[q]]],
                k,
                labels,
                column,
                near,
                other,
                bound,
            )
        else:
            for i in range(capacity):
                desk.column[i] = ratio * np.float64(column[i]) + constant
            for q in range(n_mine):
                p = desk.mine[q]
                factor = -2.0 * np.float64(desk.weight[p]) / total
                _add(desk.column, factor, cloud.products[cloud.place[desk.slot[p]]])
            in_doubt = _store_column(desk.column, k, labels, column, near, other, bound)
    return in_doubt


@inlined
def _fresh_error(norm, radius2):
    """A bound on the errors of a centre's estimates when they are computed from scratch."""
    return SINGLE * (_magnitude(norm, radius2) + 2.0 * radius2)


@lean_kernel
def _estimate_column(cloud, rows, above, k, norm, column):
    """All points' estimates for a centre, from scratch.  OUT: column.

    By its members' inner products, or feature by feature, whichever takes fewer terms.
    """
    d = cloud.turned.shape[0]
    sums, labels = rows.sums[above, k], rows.labels[above]
    total = np.float64(sums[d])
    members = 0
    for slot in range(labels.shape[0]):
        if labels[slot] == k:
            members += 1 if cloud.place[slot] >= 0 else d
    column[:] = norm
    if members < d:
        for slot in range(labels.shape[0]):
            if labels[slot] == k:
                factor = -2.0 * np.float64(cloud.weights[slot]) / total
                _add(column, factor, cloud.products[cloud.place[slot]])
    else:
        _add_features(column, -2.0 / total, sums, cloud.turned)


@lean_kernel
def _add(column, factor, vector):
    """column += factor * vector.  OUT: column."""
    for i in range(column.shape[0]):
        column[i] += factor * np.float64(vector[i])


@lean_kernel
def _add_features(column, factor, vector, turned):
    """column += factor * (vector . each point), four features at a time.  OUT: column."""
    d = turned.shape[0]
    for group in range(d // 4):
        c = group * 4
        x0, x1, x2, x3 = turned[c], turned[c + 1], turned[c + 2], turned[c + 3]
        f0 = factor * np.float64(vector[c])
        f1 = factor * np.float64(vector[c + 1])
        f2 = factor * np.float64(vector[c + 2])
        f3 = factor * np.float64(vector[c + 3])
        for i in range(column.shape[0]):
            column[i] += (f0 * x0[i] + f1 * x1[i]) + (f2 * x2[i] + f3 * x3[i])
    for c in range(d - d % 4, d):
        _add(column, factor * np.float64(vector[c]), turned[c])


@lean_kernel
def _store_column(column, k, labels, estimates, near, other, bound):
    """Keep the estimates for centre k; returns how many labels are in doubt.

    OUT: estimates, near, other.
    """
    in_doubt = np.int32(0)
    for i in range(column.shape[0]):
        estimate = np.float32(column[i])
        doubt = _store(i, estimate, k, labels, estimates, near, other, bound)
        in_doubt = np.int32(in_doubt + doubt)
    return in_doubt


@inlined
def _shift_column(a, b, f, x, g, y, k, labels, estimates, near, other, bound):
    """Estimates e become a e + b + f x + g y, in single precision.  As :func:`_store_column`."""
    in_doubt = np.int32(0)
    for i in range(estimates.shape[0]):
        estimate = a * estimates[i] + b + f * x[i] + g * y[i]
        doubt = _store(i, estimate, k, labels, estimates, near, other, bound)
        in_doubt = np.int32(in_doubt + doubt)
    return in_doubt


@inlined
def _store(i, estimate, k, labels, estimates, near, other, bound):
    """Keep the estimate of a point for centre k, without a branch; returns 1 if in doubt."""
    own = labels[i] == np.int32(k)
    nearest, lowest = near[i], other[i]
    lower = estimate if estimate < lowest else lowest
    nearest = estimate if own else nearest
    lowest = lowest if own else lower
    estimates[i] = estimate
    near[i] = nearest
    other[i] = lowest
    return np.int32(1) if lowest - nearest <= bound else np.int32(0)


@lean_kernel
def _estimate_changed(cloud, rows, estimates, above, row, changed, t, desk):
    """New points' estimates for all centres of a row, and none for points that have gone.

    OUT: estimates.
    """
    d = cloud.turned.shape[0]
    for j in range(changed.shape[0]):
        slot = changed[j, 0]
        if changed[j, 1] == 0:
            point = cloud.shifted[slot]
            for k in range(estimates.norms.shape[1]):
                if t == 0:
                    product = 0.0
                    for c in range(d):
                        product += point[c] * (desk.centres[k, c] - np.float64(cloud.origin[c]))
                else:
                    sums = rows.sums[above, k]
                    product = _inner(point, sums) / np.float64(sums[d])
                norm = estimates.norms[row, k]
                estimates.all[row, k, slot] = norm - 2.0 * product
                fresh = _fresh_error(norm, cloud.bounds[0])
                estimates.errors[row, k] = max(estimates.errors[row, k], fresh)
        if changed[j, 1] == 0 or changed[j, 2] == 0:
            estimates.near[row, slot] = -np.inf
            estimates.other[row, slot] = np.inf


@inlined
def _inner(point, sums):
    """The inner product of a point and a cluster's sums."""
    d = point.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    for group in range(d // 4):
        c = group * 4
        s0 += point[c] * np.float64(sums[c])
        s1 += point[c + 1] * np.float64(sums[c + 1])
        s2 += point[c + 2] * np.float64(sums[c + 2])
        s3 += point[c + 3] * np.float64(sums[c + 3])
    for c in range(d - d % 4, d):
        s0 += point[c] * np.float64(sums[c])
    return (s0 + s2) + (s1 + s3)


@lean_kernel
def _put_products(cloud, slot, column):
    """Let the inner products include a new point's.  OUT: cloud, column."""
    if not _know(cloud, slot, column):
        _multiply(cloud, slot, column)
    for row in range(cloud.known[0]):
        cloud.products[row, slot] = column[cloud.known[1 + row]]


@lean_kernel
def _multiply(cloud, slot, column):
    """A point's inner products with all points.  OUT: column."""
    column[:] = 0.0
    _add_features(column, 1.0, cloud.shifted[slot], cloud.turned)


@lean_kernel
def _know(cloud, slot, column):
    """Keep a point's inner products, unless there is no room for them.  OUT: cloud, column."""
    row = cloud.place[slot]
    if row < 0:
        row = cloud.known[0]
        if row == cloud.products.shape[0]:
            return False
        cloud.place[slot] = row
        cloud.known[0] = row + 1
        cloud.known[1 + row] = slot
    _multiply(cloud, slot, column)
    _copy(column, cloud.products[row])
    return True


@inlined
def _know_products(cloud, desk, n_mine):
    """Whether the inner products of the points at hand are known, or can be.  OUT: cloud, desk."""
    for q in range(n_mine):
        slot = desk.slot[desk.mine[q]]
        if cloud.place[slot] < 0:
            if not _know(cloud, slot, desk.column):
                return False
            desk.work[1] += desk.column.shape[0]
    return True


@inlined
def _limit(errors, slack):
    """Estimates that differ by more than this tell which centre is nearer."""
    return 2.0 * _largest(errors) + slack


@inlined
def _bound(limit):
    """The limit for a difference of estimates that is taken in single precision."""
    return np.float32(limit * (1.0 + 1e-5))


@inlined
def _list_doubtful(near, other, limit, listed):
    """List the points whose label is in doubt; returns how many.  OUT: listed."""
    bound = _bound(limit)
    count = 0
    for begin in range(0, near.shape[0], SLOT_BLOCK):
        own, rest = near[begin : begin + SLOT_BLOCK], other[begin : begin + SLOT_BLOCK]
        hits = np.int32(0)
        for i in range(SLOT_BLOCK):
            hits += np.int32(1) if rest[i] - own[i] <= bound else np.int32(0)
        if hits > 0:
            for i in range(SLOT_BLOCK):
                listed[count] = begin + i
                count += 1 if rest[i] - own[i] <= bound else 0
    return count


@inlined
def _settle(cloud, rows, estimates, desk, above, row, slot, limit):
    """The nearest centre of a point, by its estimates or, where they are close, exactly.

    OUT: the slot of the row, desk.
    """
    known = estimates.all[row, :, slot]
    lowest, other, nearest = _two_lowest(known)
    if other <= lowest + limit:
        first = nearest
        nearest = _nearest_within(cloud, rows, desk, above, slot, known, lowest + limit)
        if nearest != first:
            other = lowest
    rows.labels[row, slot] = nearest
    estimates.near[row, slot] = known[nearest]
    estimates.other[row, slot] = other
    return nearest


# -- what restarts come to -----------------------------------------------------------------------


@lean_kernel
def _has_twin(rows, runs, r, desk):
    """Whether an earlier contender has converged to the same clusters.  OUT: desk.

    It then has the same loss, bit for bit, and comes first.
    """
    last = runs.where[r, runs.length[r] - 1]
    if rows.witness[last] >= 0:
        return False
    for earlier in range(r):
        other = runs.where[earlier, runs.length[earlier] - 1]
        if (
            runs.contends[earlier]
            and rows.witness[other] < 0
            and _same_clusters(rows.labels[last], rows.labels[other], desk.twin)
        ):
            return True
    return False


@inlined
def _same_clusters(one, two, twin):
    """Whether labels differ by nothing but the clusters' numbers.  OUT: twin.

    No cluster is empty.  The last entry of ``twin`` is for slots without a point, of label -1.
    """
    twin[:] = -1
    missing = twin.shape[0] - 1
    for slot in range(one.shape[0]):
        if missing == 0:
            break
        if one[slot] >= 0 and twin[one[slot]] < 0:
            twin[one[slot]] = two[slot]
            missing -= 1
    differing = np.int32(0)
    for slot in range(one.shape[0]):
        differing = np.int32(differing + np.int32(twin[one[slot]] != two[slot]))
    return differing == 0


@lean_kernel
def _add_losses(cloud, order, rows, runs, r, desk):
    """Losses of a restart's stale clusters, point by point in canonical order.  OUT: runs, desk.

    Returns how many points they have.
    """
    stale, losses = runs.stale[r], runs.losses[r]
    last = runs.length[r] - 1
    labels = rows.labels[runs.where[r, last]]
    desk.have[:] = False
    for k in range(stale.shape[0]):
        if stale[k]:
            losses[k] = 0.0
            _centre_of(cloud, rows, runs.where[r, last - 1], k, desk)
    count = 0
    for p in range(order.shape[0]):
        desk.listed[count] = order[p]
        count += 1 if stale[labels[order[p]]] else 0
    for p in range(count):
        slot = desk.listed[p]
        distance = squared_distance(cloud.values[slot], desk.centres[labels[slot]])
        losses[labels[slot]] += np.float64(cloud.weights[slot]) * distance
    stale[:] = False
    return count


@lean_kernel
def _winners_stand(cloud, changed, restart, seeds, scores, work):
    """Whether every seed still wins its step.  OUT: scores (the winners', and the runners-up).

    Winners come first: the others have to be compared with the winners' new scores.
    """
    n_seeds = seeds.shape[0]
    for winners in (True, False):
        for c in range(changed.shape[0]):
            slot, before, after = changed[c, 0], changed[c, 1], changed[c, 2]
            won = -1
            for step in range(n_seeds):
                if seeds[step] == slot:
                    won = step
            if (won >= 0) != winners or (won < 0 and after <= before):
                continue
            if after == 0:
                return False
            d2 = 1.0
            weight = np.float64(after)
            for step in range(n_seeds):
                counter = (np.uint64(restart) << np.uint64(32)) + np.uint64(step)
                u = uniform(draw(cloud.keys[0, slot], cloud.keys[1, slot], counter))
                rate = weight * d2
                if step == won:
                    score = exponential(u) / rate
                    if not score < scores[1, step]:
                        return False
                    scores[0, step] = score
                    break
                # The score is at least u / rate: the clock -log(1 - u) is at least u.
                best = scores[0, step]
                if u <= best * SCREEN * rate and exponential(u) / rate <= best:
                    return False
                scores[1, step] = min(scores[1, step], u / rate / SCREEN)
                distance = squared_distance(cloud.values[slot], cloud.values[seeds[step]])
                work[1] += 1
                if step == 0 or distance < d2:
                    d2 = distance
                if d2 == 0.0:
                    return False
    return True


# --------------------------------------------------------------------------------------------
# The index of ids: open addressing, linear probing, deletion by shifting back
# --------------------------------------------------------------------------------------------


@kernel
def index_find(slots0, slots1, handles, keys0, keys1, out):
    """Look keys up; -1 for a key that is not there.  OUT: out."""
    mask = np.uint64(handles.shape[0] - 1)
    for i in range(keys0.shape[0]):
        at = keys0[i] & mask
        out[i] = -1
        while handles[at] >= 0:
            if slots0[at] == keys0[i] and slots1[at] == keys1[i]:
                out[i] = handles[at]
                break
            at = (at + np.uint64(1)) & mask


@kernel
def index_put(slots0, slots1, handles, keys0, keys1, new, fresh):
    """Insert keys, or change the handle of those present.  OUT: slots0, slots1, handles, fresh.

    ``fresh`` tells which keys were not there.  The caller keeps the table at most half full.
    """
    mask = np.uint64(handles.shape[0] - 1)
    for i in range(keys0.shape[0]):
        at = keys0[i] & mask
        fresh[i] = True
        while handles[at] >= 0:
            if slots0[at] == keys0[i] and slots1[at] == keys1[i]:
                fresh[i] = False
                break
            at = (at + np.uint64(1)) & mask
        slots0[at] = keys0[i]
        slots1[at] = keys1[i]
        handles[at] = new[i]


@kernel
def index_drop(slots0, slots1, handles, keys0, keys1):
    """Remove keys that are present and leave nothing of them.  OUT: slots0, slots1, handles."""
    one = np.uint64(1)
    mask = np.uint64(handles.shape[0] - 1)
    for i in range(keys0.shape[0]):
        at = keys0[i] & mask
        while slots0[at] != keys0[i] or slots1[at] != keys1[i] or handles[at] < 0:
            at = (at + one) & mask
        gap = at
        at = (at + one) & mask
        while handles[at] >= 0:
            home = slots0[at] & mask
            if ((at - home) & mask) >= ((at - gap) & mask):
                slots0[gap] = slots0[at]
                slots1[gap] = slots1[at]
                handles[gap] = handles[at]
                gap = at
            at = (at + one) & mask
        slots0[gap] = np.uint64(0)
        slots1[gap] = np.uint64(0)
        handles[gap] = -1
