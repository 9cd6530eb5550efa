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

import numpy as np

from fedforget.compilation import inlined, kernel

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
"""One that needs more rows than it has room for; what it has is right."""


@kernel
def replay(
    points,
    weights,
    keys,
    order,
    changed,
    labels,
    upper,
    gap,
    tight,
    watch,
    sums,
    drift,
    moved,
    meta,
    seeds,
    scores,
    losses,
    max_iter,
    slack,
    work,
):
    """Bring every recorded restart up to date with some changed weights.

    Points live in slots.  ``weights`` holds the new weights, ``changed`` rows of (slot, old weight,
    new weight); a point that comes or goes has the old or new weight 0.  ``order`` lists the
    slots in use in canonical order.  Restart r has meta[r, 1] rows, from meta[r, 0] on, of the
    arrays ``labels`` to ``moved``, and room for meta[r, 2]; meta[r, 3] is its status.  ``upper``
    bounds a point's distance to its own centre from above, ``upper + gap`` that to any other centre
    from below, for centres as they once were; ``drift`` is how far each centre has moved since
    then, at most.  The first watch[row, 1] entries of ``tight`` list every slot with a gap of up
    to watch[row, 0].  The last column of ``sums`` is the total weight.

    OUT: labels, upper, gap, tight, watch, sums, drift, moved, meta, scores, losses; work (points
    looked at again, distances computed).
    """
    n_restarts, n_clusters = seeds.shape
    d = points.shape[1]
    capacity = points.shape[0]
    centres = np.empty((n_clusters, d))
    have = np.zeros(n_clusters, np.bool_)
    dirty = np.zeros(n_clusters, np.bool_)
    touched = np.zeros(n_clusters, np.bool_)
    former = np.empty((n_clusters, d + 1), np.int64)
    touched_former = np.empty((n_clusters, d + 1), np.int64)
    shifted = np.zeros(n_clusters, np.bool_)
    shifts = np.empty(n_clusters, np.int64)
    others = np.empty(n_clusters)
    threshold = np.empty(n_clusters + 1)
    threshold[n_clusters] = -np.inf  # a slot without a point has the label -1 and never gives way
    distances = np.empty(n_clusters)
    listed = np.empty(capacity, np.int64)
    differing = np.empty(capacity, np.int64)
    former_label = np.empty(capacity, np.int32)
    old_before = np.full(capacity, -2, np.int32)
    old_now = np.full(capacity, -2, np.int32)
    listed_before = np.empty(capacity, np.int64)
    listed_now = np.empty(capacity, np.int64)

    for r in range(n_restarts):
        if meta[r, 3] != READY and meta[r, 3] != GROW:
            continue
        base = meta[r, 0]
        length = meta[r, 1]
        t = length
        if meta[r, 3] == READY:
            t = 0
            if not _winners_stand(points, keys, changed, r, seeds[r], scores[r], work):
                meta[r, 3] = RERUN
                continue
        dirty[:] = False
        n_before = 0
        meta[r, 3] = RERUN
        while True:
            row = base + t
            fine = True
            extended = t >= length
            if extended:
                if t >= meta[r, 2]:
                    meta[r, 1] = t
                    meta[r, 3] = FULL
                    fine = False
                    break
                labels[row] = labels[row - 1]
                upper[row] = upper[row - 1]
                gap[row] = gap[row - 1]
                watch[row, 0] = -1.0
                sums[row] = sums[row - 1]
                drift[row] = drift[row - 1]
                for k in range(n_clusters):
                    dirty[k] = t == 1
                    if t == 1:
                        for c in range(d):
                            former[k, c] = np.int64(points[seeds[r, k], c])
                        former[k, d] = 1
                        continue
                    for c in range(d + 1):
                        if sums[row - 1, k, c] != sums[row - 2, k, c]:
                            dirty[k] = True
                            former[k] = sums[row - 2, k]
                            break

            # 1. Which centres move now, and how far since the bounds of this row were measured?
            have[:] = False
            shifted[:] = False
            n_shifted = 0
            if t == 0:
                for k in range(n_clusters):
                    centres[k] = points[seeds[r, k]]
                    have[k] = True
            for k in range(n_clusters):
                if dirty[k]:
                    if sums[row - 1, k, d] == 0:
                        fine = False
                        break
                    _centre(sums[row - 1, k], centres[k])
                    have[k] = True
                    squared = 0.0
                    for c in range(d):
                        e = centres[k, c] - np.float64(former[k, c]) / np.float64(former[k, d])
                        squared += e * e
                    if squared > 0.0:
                        drift[row, k] += np.sqrt(squared) * SCREEN
                        shifted[k] = True
                        shifts[n_shifted] = k
                        n_shifted += 1
            if not fine:
                break

            # 2. A point whose centre stands can only go over to one that moves; one whose centre
            # moves, to any.  Where the bounds rule that out, the label is certain to stand.
            n_now = 0
            if not extended:
                for c in range(changed.shape[0]):
                    slot = changed[c, 0]
                    old_now[slot] = labels[row, slot]
                    listed_now[n_now] = slot
                    n_now += 1
                    if changed[c, 2] == 0:
                        labels[row, slot] = -1
            complete = t == 0
            if n_shifted:
                top = _thresholds(drift[row], shifted, others, threshold)
                if top > watch[row, 0]:
                    _list_tight(gap[row], 2.0 * top, tight[row], watch[row])
                doubtful = _list_doubtful(
                    tight[row], np.int64(watch[row, 1]), labels[row], gap[row], threshold, listed
                )
                if doubtful and not complete:
                    _centres(sums[row - 1], have, centres)
                    complete = True
                changes = _look_again(
                    points,
                    centres,
                    listed[:doubtful],
                    shifted,
                    shifts[:n_shifted],
                    drift[row],
                    others,
                    slack,
                    labels[row],
                    upper[row],
                    gap[row],
                    differing,
                    former_label,
                    distances,
                    work,
                )
                for p in range(changes):
                    slot = differing[p]
                    if old_now[slot] == -2:
                        old_now[slot] = former_label[p]
                        listed_now[n_now] = slot
                        n_now += 1
                if 12 * doubtful > order.shape[0]:
                    # The bounds have worn out: measure all of them afresh.
                    drift[row] = 0.0
                    watch[row, 0] = -1.0
                    _measure(points, centres, labels[row], slack, upper[row], gap[row])
                    work[1] += order.shape[0] * n_clusters
            if not extended:
                for c in range(changed.shape[0]):
                    slot = changed[c, 0]
                    if changed[c, 1] == 0:
                        if not complete:
                            _centres(sums[row - 1], have, centres)
                            complete = True
                        work[0] += 1
                        work[1] += n_clusters
                        labels[row, slot], upper[row, slot], gap[row, slot] = _bounds_of(
                            points[slot], centres, drift[row], slack, distances
                        )
                        if gap[row, slot] <= watch[row, 0]:
                            _append_tight(slot, tight[row], watch[row])

            # 3. The sums follow, exactly.
            touched[:] = False
            for p in range(n_now):
                slot = listed_now[p]
                gone = weights[slot]
                come = weights[slot]
                if not extended:
                    for c in range(changed.shape[0]):
                        if changed[c, 0] == slot:
                            gone = changed[c, 1]
                            come = changed[c, 2]
                if gone > 0:
                    _take(sums[row], touched, touched_former, old_now[slot], points[slot], -gone)
                if come > 0:
                    _take(sums[row], touched, touched_former, labels[row, slot], points[slot], come)

            # 4. How many labels differ from the iteration before?
            if t > 0:
                count = 0 if extended else moved[row]
                for p in range(n_now):
                    slot = listed_now[p]
                    was = old_before[slot] if old_before[slot] != -2 else labels[row - 1, slot]
                    count += 1 if labels[row, slot] != labels[row - 1, slot] else 0
                    if not extended:
                        count -= 1 if old_now[slot] != was else 0
                if not extended:
                    for p in range(n_before):
                        slot = listed_before[p]
                        if old_now[slot] == -2:
                            count += 1 if labels[row, slot] != labels[row - 1, slot] else 0
                            count -= 1 if labels[row, slot] != old_before[slot] else 0
                moved[row] = count
            for p in range(n_before):
                old_before[listed_before[p]] = -2
            if (t > 0 and moved[row] == 0) or t == max_iter:
                for p in range(n_now):
                    old_now[listed_now[p]] = -2
                break
            n_before = n_now
            for p in range(n_now):
                listed_before[p] = listed_now[p]
                old_before[listed_now[p]] = old_now[listed_now[p]]
                old_now[listed_now[p]] = -2
            for k in range(n_clusters):
                dirty[k] = touched[k]
                if touched[k]:
                    former[k] = touched_former[k]
            t += 1

        if not fine:
            for p in range(n_before):
                old_before[listed_before[p]] = -2
            continue

        # 5. Losses of the clusters that are not what they were, in canonical order.
        row = base + t
        for k in range(n_clusters):
            touched[k] = touched[k] or dirty[k] or t + 1 != length
            if touched[k]:
                losses[r, k] = 0.0
                _centre(sums[row - 1, k], centres[k])
        work[1] += _add_losses(
            points, weights, order, labels[row], touched, centres, listed, losses[r]
        )
        meta[r, 1] = t + 1
        meta[r, 3] = READY


@kernel
def first_row_of(points, weights, seeds, slack, labels, upper, gap, sums):
    """The first assignment of a restart, to its seeds.  OUT: labels, upper, gap, sums."""
    d = points.shape[1]
    centres = points[seeds]
    upper[:] = np.inf
    meet_tiled(points, centres, 0, upper, labels)
    sums[:] = 0
    for slot in range(points.shape[0]):
        if weights[slot] == 0:
            labels[slot] = -1
            continue
        nearest = labels[slot]
        for c in range(d):
            sums[nearest, c] += weights[slot] * np.int64(points[slot, c])
        sums[nearest, d] += weights[slot]
    _measure(points, centres, labels, slack, upper, gap)


@kernel
def _add_losses(points, weights, order, labels, wanted, centres, listed, losses):
    """Losses of the wanted clusters, point by point in canonical order.  OUT: listed, losses."""
    count = 0
    for p in range(order.shape[0]):
        listed[count] = order[p]
        count += 1 if wanted[labels[order[p]]] else 0
    for p in range(count):
        slot = listed[p]
        distance = squared_distance(points[slot], centres[labels[slot]])
        losses[labels[slot]] += np.float64(weights[slot]) * distance
    return count


@kernel
def _centres(sums, have, centres):
    """Every centroid that is not there yet.  OUT: have, centres."""
    for k in range(centres.shape[0]):
        if not have[k]:
            _centre(sums[k], centres[k])
            have[k] = True


@kernel
def _list_doubtful(tight, n_tight, labels, gap, threshold, out):
    """Those of the tight points whose gap the drift can have closed.  OUT: out."""
    count = 0
    for p in range(n_tight):
        slot = tight[p]
        out[count] = slot
        count += 1 if gap[slot] <= threshold[labels[slot]] else 0
    return count


@kernel
def _look_again(
    points,
    centres,
    doubtful,
    shifted,
    shifts,
    drift,
    others,
    slack,
    labels,
    upper,
    gap,
    differing,
    former_label,
    distances,
    work,
):
    """Labels of doubtful points, computed again as far as needed.

    Returns how many labels differ; ``differing`` and ``former_label`` tell which, and from what.
    OUT: labels, upper, gap, differing, former_label, distances, work.
    """
    changes = 0
    computed = 0
    for p in range(doubtful.shape[0]):
        slot = doubtful[p]
        label = labels[slot]
        point = points[slot]
        squared = squared_distance(point, centres[label])
        computed += 1
        own = np.sqrt(squared) + slack
        bound = upper[slot] + gap[slot]
        upper[slot] = own - drift[label]
        gap[slot] = bound - upper[slot]
        if bound - others[label] > own:
            continue
        if not shifted[label]:
            nearer = 0
            for q in range(shifts.shape[0]):
                k = shifts[q]
                distance = squared_distance(point, centres[k])
                nearer += 1 if distance < squared or (distance == squared and k < label) else 0
            computed += shifts.shape[0]
            if nearer == 0:
                continue
        nearest, upper[slot], gap[slot] = _bounds_of(point, centres, drift, slack, distances)
        computed += centres.shape[0]
        if nearest != label:
            labels[slot] = nearest
            differing[changes] = slot
            former_label[changes] = label
            changes += 1
    work[0] += doubtful.shape[0]
    work[1] += computed
    return changes


@kernel
def _measure(points, centres, labels, slack, upper, gap):
    """Bounds of every point afresh, for the centres as they are.  OUT: upper, gap."""
    n, d = points.shape
    tile = np.zeros((d, TILE))
    s0, s1, s2, s3 = np.empty(TILE), np.empty(TILE), np.empty(TILE), np.empty(TILE)
    own = np.zeros(TILE)
    other = np.empty(TILE)
    for begin in range(0, n, TILE):
        m = min(TILE, n - begin)
        _turn(points[begin : begin + m], tile)
        label = labels[begin : begin + m]
        other[:] = np.inf
        for k in range(centres.shape[0]):
            _tile_distances(tile, centres[k], s0, s1, s2, s3)
            for i in range(m):
                own[i] = s0[i] if label[i] == k else own[i]
                other[i] = s0[i] if label[i] != k and s0[i] < other[i] else other[i]
        for i in range(m):
            upper[begin + i] = np.sqrt(own[i]) + slack
            gap[begin + i] = np.sqrt(other[i]) - slack - upper[begin + i]


@kernel
def _winners_stand(points, keys, changed, restart, seeds, scores, work):
    """Whether every seed still wins its step.  OUT: scores (the winners', and the runners-up).

    Winners come first: the others have to be compared with the winners' new scores.
    """
    n_seeds = seeds.shape[0]
    for winners in (True, False):
        for c in range(changed.shape[0]):
            slot = changed[c, 0]
            won = -1
            for step in range(n_seeds):
                if seeds[step] == slot:
                    won = step
            if (won >= 0) != winners or (won < 0 and changed[c, 2] <= changed[c, 1]):
                continue
            if changed[c, 2] == 0:
                return False
            d2 = 1.0
            weight = np.float64(changed[c, 2])
            for step in range(n_seeds):
                counter = (np.uint64(restart) << np.uint64(32)) + np.uint64(step)
                clock = exponential(uniform(draw(keys[0, slot], keys[1, slot], counter)))
                score = clock / (weight * d2)
                if step == won:
                    if not score < scores[1, step]:
                        return False
                    scores[0, step] = score
                    break
                if score <= scores[0, step]:
                    return False
                scores[1, step] = min(scores[1, step], score)
                distance = squared_distance(points[slot], points[seeds[step]])
                work[1] += 1
                if step == 0 or distance < d2:
                    d2 = distance
                if d2 == 0.0:
                    return False
    return True


@inlined
def _centre(sums, out):
    """A centroid from its integer sums and, in the last column, total weight.  OUT: out."""
    total = np.float64(sums[out.shape[0]])
    for c in range(out.shape[0]):
        out[c] = np.float64(sums[c]) / total


@inlined
def _take(sums, touched, former, cluster, point, weight):
    """Add weight times a point to a cluster, whose sums so far are kept.

    OUT: sums, touched, former.
    """
    d = point.shape[0]
    if not touched[cluster]:
        touched[cluster] = True
        former[cluster] = sums[cluster]
    for c in range(d):
        sums[cluster, c] += weight * np.int64(point[c])
    sums[cluster, d] += weight


@kernel
def _thresholds(drift, shifted, others, threshold):
    """How small a gap the drift can have closed, for each cluster.  OUT: others, threshold.

    ``others`` is what the centres that a point of the cluster could go over to have drifted by.
    Returns the largest threshold.
    """
    first = second = first_shifted = second_shifted = 0.0
    farthest = farthest_shifted = -1
    for k in range(drift.shape[0]):
        if drift[k] > first:
            first, second, farthest = drift[k], first, k
        elif drift[k] > second:
            second = drift[k]
        if shifted[k] and drift[k] > first_shifted:
            first_shifted, second_shifted, farthest_shifted = drift[k], first_shifted, k
        elif shifted[k] and drift[k] > second_shifted:
            second_shifted = drift[k]
    top = 0.0
    for k in range(drift.shape[0]):
        if shifted[k]:
            others[k] = (second if k == farthest else first) * SCREEN
        else:
            others[k] = (second_shifted if k == farthest_shifted else first_shifted) * SCREEN
        threshold[k] = drift[k] * SCREEN + others[k]
        top = max(top, threshold[k])
    return top


@kernel
def _list_tight(gap, limit, tight, watch):
    """List the slots with a gap of up to ``limit``.  OUT: tight, watch."""
    count = 0
    for i in range(gap.shape[0]):
        tight[count] = i
        count += 1 if gap[i] <= limit else 0
    watch[0] = limit
    watch[1] = count


@kernel
def _append_tight(slot, tight, watch):
    """Add a slot to the list; a full list counts as none.  OUT: tight, watch."""
    count = np.int64(watch[1])
    if count < tight.shape[0]:
        tight[count] = slot
        watch[1] = count + 1
    else:
        watch[0] = -1.0


@inlined
def _bounds_of(point, centres, drift, slack, distances):
    """The nearest centre of a point and its bounds, upper and gap.  OUT: distances.

    The bounds are given as if measured before the drift, which later checks will count again.
    """
    nearest = -1
    lowest = np.inf
    for k in range(centres.shape[0]):
        distances[k] = squared_distance(point, centres[k])
        if distances[k] < lowest:
            lowest = distances[k]
            nearest = k
    lower = np.inf
    for k in range(centres.shape[0]):
        bound = np.sqrt(distances[k]) + drift[k]
        lower = bound if k != nearest and bound < lower else lower
    upper = np.sqrt(lowest) + slack - drift[nearest]
    return nearest, upper, lower - slack - upper


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
