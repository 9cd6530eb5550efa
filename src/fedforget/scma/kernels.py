"""Compiled arithmetic over the prime field of p = 29·2⁵⁷ + 1 elements.

Every function here is a numba kernel.  Arguments are validated by the callers; an argument that a
kernel writes to is marked OUT, one that it destroys SCRATCH, everything else is only read.

A field element a is held as a·2⁶⁴ mod p (*Montgomery form*), in which a product costs three machine
multiplications and no division.  The product of a plain residue and a Montgomery number is a plain
residue, which some kernels use to leave the form for nothing.

Transforms take a polynomial to its values at all roots of unity of order n = 2^k, in bit-reversed
order, and back.  Twiddle factors are plain residues with a precomputed quotient (Shoup's trick),
and numbers may grow to 4p < 2⁶⁴ on the way, as Harvey proposed.
"""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedforget.compilation import inlined, kernel

PRIME = 29 * 2**57 + 1
ORDER = 57  # p - 1 = 29 · 2^57
GENERATOR = 3  # of the multiplicative group

_P = np.uint64(PRIME)
_2P = np.uint64(2 * PRIME)
_INVERSE = np.uint64(pow(PRIME, -1, 2**64))  # of p modulo 2^64
_ONE = np.uint64(2**64 % PRIME)  # one in Montgomery form
_SQUARE = np.uint64(2**128 % PRIME)  # takes a plain residue to Montgomery form
_ZERO = np.uint64(0)
_UNIT = np.uint64(1)
_REST = np.uint64(29)


# --------------------------------------------------------------------------------------------
# One element
# --------------------------------------------------------------------------------------------


@intrinsic
def _product(typingctx, a, b):
    """The 128-bit product of two words: (high, low)."""
    signature = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64)

    def codegen(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return _halves(context, builder, product)

    return signature, codegen


@intrinsic
def _add_product(typingctx, high, low, a, b):
    """(high, low) plus the 128-bit product of a and b."""
    signature = types.UniTuple(types.uint64, 2)(*[types.uint64] * 4)

    def codegen(context, builder, signature, arguments):
        wide = ir.IntType(128)
        high, low, a, b = (builder.zext(argument, wide) for argument in arguments)
        total = builder.or_(builder.shl(high, ir.Constant(wide, 64)), low)
        return _halves(context, builder, builder.add(total, builder.mul(a, b)))

    return signature, codegen


def _halves(context, builder, wide_value):
    word = ir.IntType(64)
    high = builder.lshr(wide_value, ir.Constant(wide_value.type, 64))
    parts = [builder.trunc(high, word), builder.trunc(wide_value, word)]
    return cgutils.pack_array(builder, parts)


@inlined
def reduce(high, low):
    """(high·2⁶⁴ + low) / 2⁶⁴ mod p, for high < p."""
    correction = _product(low * _INVERSE, _P)[0]
    return high - correction if high >= correction else high - correction + _P


@inlined
def mul(a, b):
    high, low = _product(a, b)
    return reduce(high, low)


@inlined
def add(a, b):
    total = a + b
    return total - _P if total >= _P else total


@inlined
def sub(a, b):
    return a - b if a >= b else a - b + _P


@numba.njit(error_model="numpy")
def power(a, exponent):
    """``a`` to a power, by repeated squaring."""
    result = _ONE
    while exponent:
        if exponent & _UNIT:
            result = mul(result, a)
        a = mul(a, a)
        exponent >>= _UNIT
    return result


@numba.njit(error_model="numpy")
def inverse(a):
    """1 / a, and 0 for a = 0."""
    return power(a, _P - np.uint64(2))


@inlined
def shoup_quotient(a):
    """For a in Montgomery form: the quotient that :func:`shoup` wants beside the plain a."""
    return (_ZERO - a) * _INVERSE


@inlined
def shoup(a, w, quotient):
    """a·w modulo p, but only below 2p; any word a."""
    return a * w - _product(a, quotient)[0] * _P


# --------------------------------------------------------------------------------------------
# Vectors
# --------------------------------------------------------------------------------------------


@kernel
def enter(values):
    """Plain residues in Montgomery form."""
    out = np.empty_like(values)
    for i in range(values.size):
        out[i] = mul(values[i], _SQUARE)
    return out


@kernel
def leave(values):
    """Montgomery numbers as plain residues."""
    out = np.empty_like(values)
    for i in range(values.size):
        out[i] = reduce(_ZERO, values[i])
    return out


@kernel
def multiply(a, b):
    """Products, element by element."""
    out = np.empty_like(a)
    for i in range(a.size):
        out[i] = mul(a[i], b[i])
    return out


@kernel
def inverses(values):
    """The inverse of every element, none of which is zero, for the price of one and 3n products."""
    n = values.size
    out = np.empty_like(values)
    running = _ONE
    for i in range(n):
        out[i] = running
        running = mul(running, values[i])
    running = inverse(running)
    for i in range(n - 1, -1, -1):
        out[i] = mul(out[i], running)
        running = mul(running, values[i])
    return out


@kernel
def powers(base, n):
    """base⁰ … baseⁿ⁻¹."""
    out = np.empty(n, np.uint64)
    running = _ONE
    for i in range(n):
        out[i] = running
        running = mul(running, base)
    return out


@kernel
def factorials(n):
    """0! … (n-1)!"""
    out = np.empty(n, np.uint64)
    running, number = _ONE, _ZERO
    for i in range(n):
        out[i] = running
        number = add(number, _ONE)
        running = mul(running, number)
    return out


@inlined
def dot(a, b):
    """Σ a[i]·b[i]; four products of numbers below p fit 128 bits before a reduction."""
    total = _ZERO
    end = a.size - a.size % 4
    for i in range(0, end, 4):
        high, low = _product(a[i], b[i])
        high, low = _add_product(high, low, a[i + 1], b[i + 1])
        high, low = _add_product(high, low, a[i + 2], b[i + 2])
        high, low = _add_product(high, low, a[i + 3], b[i + 3])
        total = add(total, reduce(high, low))
    for i in range(end, a.size):
        total = add(total, mul(a[i], b[i]))
    return total


@kernel
def inner_product(a, b):
    """Σ a[i]·b[i]; plain residues and Montgomery numbers give a plain residue."""
    return dot(a, b)


@inlined
def add_multiple(a, factor, b):
    """Add factor·b[i] to a[i] for each i.  OUT: a."""
    w, quotient = reduce(_ZERO, factor), shoup_quotient(factor)
    for i in range(a.size):
        y = shoup(b[i], w, quotient)
        a[i] = add(a[i], y - _P if y >= _P else y)


# --------------------------------------------------------------------------------------------
# Transforms
# --------------------------------------------------------------------------------------------


@kernel
def twiddles(size, invert):
    """For each h = 1, 2, 4 … size/2, the powers of a root of order 2h at [h:2h], with quotients."""
    table = np.empty((2, size), np.uint64)
    table[:, 0] = 0
    generator = mul(np.uint64(GENERATOR), _SQUARE)
    h, order = 1, np.uint64(2)
    while h < size:
        root = power(generator, (_P - _UNIT) // order)
        if invert:
            root = inverse(root)
        running = _ONE
        for i in range(h):
            table[0, h + i] = reduce(_ZERO, running)
            table[1, h + i] = shoup_quotient(running)
            running = mul(running, root)
        h *= 2
        order *= np.uint64(2)
    return table


@numba.njit(error_model="numpy")
def transform(a, table):
    """Values of a polynomial at the roots of unity, in bit-reversed order.  OUT: a, in place."""
    n = a.size
    h = n // 2
    while h > 1:
        w, quotients = table[0, h : 2 * h], table[1, h : 2 * h]
        for start in range(0, n, 2 * h):
            left, right = a[start : start + h], a[start + h : start + 2 * h]
            for i in range(h):
                x, y = left[i], right[i]
                total = x + y
                left[i] = total - _2P if total >= _2P else total
                right[i] = shoup(x - y + _2P, w[i], quotients[i])
        h //= 2
    if n > 1:
        for i in range(0, n, 2):
            x, y = a[i], a[i + 1]
            x = x - _P if x >= _P else x
            y = y - _P if y >= _P else y
            a[i] = add(x, y)
            a[i + 1] = sub(x, y)


@numba.njit(error_model="numpy")
def untransform(a, table):
    """The polynomial with these values; ``table`` is that of the inverse roots.  OUT: a."""
    n = a.size
    h = 1
    while h < n:
        w, quotients = table[0, h : 2 * h], table[1, h : 2 * h]
        for start in range(0, n, 2 * h):
            left, right = a[start : start + h], a[start + h : start + 2 * h]
            for i in range(h):
                x = left[i]
                x = x - _2P if x >= _2P else x
                y = shoup(right[i], w[i], quotients[i])
                left[i] = x + y
                right[i] = x - y + _2P
        h *= 2
    scale = inverse(mul(np.uint64(n), _SQUARE))
    w, quotient = reduce(_ZERO, scale), shoup_quotient(scale)
    for i in range(n):
        y = shoup(a[i], w, quotient)
        a[i] = y - _P if y >= _P else y


@kernel
def transformed(a, size, table):
    """The transform of a polynomial padded with zeros."""
    out = np.zeros(size, np.uint64)
    out[: a.size] = a
    transform(out, table)
    return out


@kernel
def untransformed(values, table):
    """The polynomial with these values."""
    out = values.copy()
    untransform(out, table)
    return out


# --------------------------------------------------------------------------------------------
# Polynomials, by the school's methods (the fast ones are in polynomials.py)
# --------------------------------------------------------------------------------------------


@kernel
def school_product(a, b):
    """Product of two short polynomials."""
    out = np.zeros(a.size + b.size - 1, np.uint64)
    backwards = b[::-1].copy()
    for k in range(out.size):
        low = max(0, k - b.size + 1)
        high = min(k, a.size - 1) + 1
        first = low + b.size - 1 - k
        out[k] = dot(a[low:high], backwards[first : first + high - low])
    return out


@kernel
def school_shift(a, by):
    """a(x + by)."""
    out = a.copy()
    n = out.size
    for first in range(n - 1):
        for i in range(n - 2, first - 1, -1):
            out[i] = add(out[i], mul(by, out[i + 1]))
    return out


@kernel
def school_series_inverse(a, n):
    """The first n terms of 1 / a, where a begins with one."""
    out = np.zeros(n, np.uint64)
    out[0] = _ONE
    for k in range(1, n):
        total = _ZERO
        for i in range(1, min(k, a.size - 1) + 1):
            total = add(total, mul(a[i], out[k - i]))
        out[k] = sub(_ZERO, total)
    return out


@kernel
def values_at(polynomials, points):
    """Every polynomial (a row of coefficients) at every point, by Horner's rule."""
    m, n = polynomials.shape
    out = np.zeros((m, points.size), np.uint64)
    for row in range(m):
        a, values = polynomials[row], out[row]
        for i in range(n - 1, -1, -1):
            for j in range(points.size):
                values[j] = add(mul(values[j], points[j]), a[i])
    return out


@kernel
def numerators(a, sums):
    """For each row W: the polynomial part of a(x)·Σ W_i·x^(-i-1), and whether the rest vanishes."""
    n_rows, length = sums.shape
    n = a.size - 1
    out = np.zeros((n_rows, n), np.uint64)
    fits = np.ones(n_rows, np.bool_)
    for row in range(n_rows):
        for k in range(n):
            out[row, k] = dot(a[k + 1 :], sums[row, : n - k])
        for first in range(length - n):
            fits[row] &= dot(a, sums[row, first : first + n + 1]) == 0
    return out, fits


@kernel
def quotients_at(a, points):
    """The polynomial a / (x - x_j) at x_j, that is a'(x_j), for the roots x_j of a."""
    out = np.empty(points.size, np.uint64)
    for j in range(points.size):
        running, value = _ZERO, _ZERO
        for i in range(a.size - 1, 0, -1):
            running = add(mul(running, points[j]), a[i])
            value = add(mul(value, points[j]), running)
        out[j] = value
    return out


# --------------------------------------------------------------------------------------------
# The tree of products Π (1 - x_j z), 2^k points a node
# --------------------------------------------------------------------------------------------


@kernel
def leaf_products(points, size):
    """Π (1 - x_j z) over each run of ``size`` points."""
    n_leaves = points.size // size
    out = np.zeros((n_leaves, size + 1), np.uint64)
    for leaf in range(n_leaves):
        a = out[leaf]
        a[0] = _ONE
        for j in range(size):
            x = points[leaf * size + j]
            for i in range(j, -1, -1):
                a[i + 1] = sub(a[i + 1], mul(x, a[i]))
    return out


@kernel
def transform_nodes(nodes, table):
    """Transforms, twice as long as its degree, of each node's polynomial."""
    count, size = nodes.shape[0], nodes.shape[1] - 1
    out = np.zeros((count, 2 * size), np.uint64)
    for node in range(count):
        out[node, : size + 1] = nodes[node]
        transform(out[node], table)
    return out


@kernel
def join_nodes(transforms, inverse_table):
    """The product of each pair of neighbours."""
    count, size = transforms.shape[0] // 2, transforms.shape[1]
    out = np.zeros((count, size + 1), np.uint64)
    for node in range(count):
        left, right = transforms[2 * node], transforms[2 * node + 1]
        a = out[node, :size]
        for i in range(size):
            a[i] = mul(left[i], right[i])
        untransform(a, inverse_table)
        # The term of degree ``size`` was folded onto the constant one, which is known to be 1.
        out[node, size] = sub(a[0], _ONE)
        a[0] = _ONE
    return out


@kernel
def join_numerators(numerators, transforms, table, inverse_table):
    """Numerators of the sums of neighbouring fractions, whose denominators are the nodes."""
    count, size = transforms.shape[0] // 2, transforms.shape[1]
    out = np.zeros((count, size), np.uint64)
    left, right = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for node in range(count):
        left[:] = 0
        right[:] = 0
        left[: size // 2] = numerators[2 * node]
        right[: size // 2] = numerators[2 * node + 1]
        transform(left, table)
        transform(right, table)
        for i in range(size):
            one = mul(left[i], transforms[2 * node + 1, i])
            out[node, i] = add(one, mul(right[i], transforms[2 * node, i]))
        untransform(out[node], inverse_table)
    return out


@kernel
def leaf_numerators(points, weights, leaves):
    """Σ q_j · leaf / (1 - x_j z) for each leaf."""
    n_leaves, size = leaves.shape[0], leaves.shape[1] - 1
    out = np.zeros((n_leaves, size), np.uint64)
    for leaf in range(n_leaves):
        for j in range(leaf * size, (leaf + 1) * size):
            running = _ZERO
            for i in range(size):
                running = add(leaves[leaf, i], mul(points[j], running))
                out[leaf, i] = add(out[leaf, i], mul(weights[j], running))
    return out


@kernel
def correlate(a, b_transform, n, table, inverse_table):
    """Σ_l b[l]·a[i+l] for i < n."""
    work = np.zeros(b_transform.size, np.uint64)
    work[: a.size] = a
    transform(work, inverse_table)
    for i in range(work.size):
        work[i] = mul(work[i], b_transform[i])
    untransform(work, table)
    return work[:n].copy()


@kernel
def split_nodes(vectors, transforms, table, inverse_table):
    """One step down: correlate each node's vector with the product of the *other* child."""
    count, size = vectors.shape
    half = size // 2
    out = np.empty((2 * count, half), np.uint64)
    above, work = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for node in range(count):
        above[:] = vectors[node]
        transform(above, inverse_table)
        for side in range(2):
            other = transforms[2 * node + 1 - side]
            for i in range(size):
                work[i] = mul(above[i], other[i])
            untransform(work, table)
            out[2 * node + side] = work[:half]
    return out


@kernel
def leaf_values(vectors, leaves, points):
    """The last step down: for each point, its vector against leaf / (1 - x_j z)."""
    n_leaves, size = vectors.shape
    out = np.empty(points.size, np.uint64)
    for leaf in range(n_leaves):
        for j in range(leaf * size, (leaf + 1) * size):
            running, value = _ZERO, _ZERO
            for i in range(size):
                running = add(leaves[leaf, i], mul(points[j], running))
                value = add(value, mul(running, vectors[leaf, i]))
            out[j] = value
    return out


# --------------------------------------------------------------------------------------------
# Recurrences and roots
# --------------------------------------------------------------------------------------------


@kernel
def berlekamp_massey(sequence, most):
    """The shortest recurrence of a sequence: its connection polynomial, 1 first, and its length.

    Gives up, with the length reached, as soon as that exceeds ``most``.
    """
    n = sequence.size
    backwards = sequence[::-1].copy()
    current = np.zeros(most + 2, np.uint64)
    previous = np.zeros(most + 2, np.uint64)
    before = np.empty(most + 2, np.uint64)
    current[0] = previous[0] = previous_discrepancy = _ONE
    length, filled, gap = 0, 1, 1  # ``filled`` terms of ``previous`` may differ from zero
    for i in range(n):
        discrepancy = dot(current[: length + 1], backwards[n - 1 - i : n - i + length])
        if discrepancy == 0:
            gap += 1
            continue
        factor = sub(_ZERO, mul(discrepancy, inverse(previous_discrepancy)))
        grows = 2 * length <= i
        if grows and i + 1 - length > most:
            return current, i + 1 - length
        if grows:
            before[:] = current
        end = min(filled + gap, most + 2)
        add_multiple(current[gap:end], factor, previous[: end - gap])
        if grows:
            filled = length + 1
            length = i + 1 - length
            previous, before = before, previous
            previous_discrepancy = discrepancy
            gap = 1
        else:
            gap += 1
    return current, length


@kernel
def school_graeffe(a, b, steps):
    """Steps of :func:`graeffe` on short polynomials.  OUT: a, b."""
    n = a.size
    new_a, new_b = np.empty(n, np.uint64), np.empty(n, np.uint64)
    signed = np.empty(n, np.uint64)
    for _ in range(steps):
        for i in range(n):
            signed[i] = a[i] if i % 2 == 0 else sub(_ZERO, a[i])
        for k in range(n):
            square = cross = _ZERO
            for i in range(max(0, 2 * k - n + 1), min(2 * k, n - 1) + 1):
                square = add(square, mul(signed[i], a[2 * k - i]))
                cross = add(cross, mul(signed[i], b[2 * k - i]))
            new_a[k] = square
            new_b[k] = add(cross, cross)
        a[:] = new_a
        b[:] = new_b


@kernel
def graeffe(a, b, steps, points, table, inverse_table):
    """Square the roots of a + ε·b, ε² = 0, ``steps`` times.  OUT: a, b.

    One step takes A to the polynomial A(x)·A(-x) in x².  With A = E(x²) + x·O(x²) that is
    E² - y·O² in y = x²; ``points`` are the values of y that the transforms belong to.
    """
    n, size = a.size, points.size
    even, odd = np.empty(size, np.uint64), np.empty(size, np.uint64)
    even_b, odd_b = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for _ in range(steps):
        for target, source, first in ((even, a, 0), (odd, a, 1), (even_b, b, 0), (odd_b, b, 1)):
            half = source[first::2]
            target[: half.size] = half
            target[half.size :] = 0
            transform(target, table)
        for i in range(size):
            y_odd = mul(points[i], odd[i])
            cross = sub(mul(even[i], even_b[i]), mul(y_odd, odd_b[i]))
            even[i] = sub(mul(even[i], even[i]), mul(y_odd, odd[i]))
            odd[i] = add(cross, cross)
        untransform(even, inverse_table)
        untransform(odd, inverse_table)
        a[:] = even[:n]
        b[:] = odd[:n]


@kernel
def simple_roots(a, b, size, table):
    """The simple roots β of a among the roots of unity of order 29·size.

    Returns β·a'(β) and b(β) for each of them.  The roots of unity are those of order ``size``, on
    which a transform evaluates, times the powers of one of order 29, by which the polynomials are
    stretched before they are folded to the length of the transform.
    """
    n = a.size
    numerators, denominators = np.empty(n, np.uint64), np.empty(n, np.uint64)
    found = 0
    step = power(mul(np.uint64(GENERATOR), _SQUARE), (_P - _UNIT) // _REST)
    values = np.empty((3, size), np.uint64)
    stretch = _ONE
    for _ in range(29):
        values[:] = 0
        running, degree = _ONE, _ZERO
        for i in range(n):
            at = i & (size - 1)
            term = mul(a[i], running)
            values[0, at] = add(values[0, at], term)
            values[1, at] = add(values[1, at], mul(degree, term))
            values[2, at] = add(values[2, at], mul(b[i], running))
            running = mul(running, stretch)
            degree = add(degree, _ONE)
        for row in range(3):
            transform(values[row], table)
        for i in range(size):
            if values[0, i] == 0 and values[1, i] != 0:
                numerators[found] = values[1, i]
                denominators[found] = values[2, i]
                found += 1
        stretch = mul(stretch, step)
    return numerators[:found], denominators[:found]


# --------------------------------------------------------------------------------------------
# Encoding
# --------------------------------------------------------------------------------------------


@kernel
def power_sums(points, weights, length):
    """Σ_j weights[t, j]·x_j^i for each row t and i < length; plain weights give plain sums."""
    n_rows, n = weights.shape
    out = np.empty((n_rows, length), np.uint64)
    running = np.full(n, _ONE)
    for i in range(length):
        for t in range(n_rows):
            out[t, i] = dot(weights[t], running)
        for j in range(n):
            running[j] = mul(running[j], points[j])
    return out


@kernel
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


@kernel
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


# --------------------------------------------------------------------------------------------
# A bin's index: mixed radix to words of bits and back
# --------------------------------------------------------------------------------------------


@kernel
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
        limbs[:] = 0
        used = 0
        first = 0
        for end in group_ends:
            radix, carry = _UNIT, _ZERO
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
            out[row, t] = value & ((_UNIT << np.uint64(widths[t])) - _UNIT)
    return out


@kernel
def words_to_bins(words, levels, group_ends, shifts, widths):
    """The bins with these indices, and whether each index is in range."""
    n, d = words.shape[0], levels.size
    out = np.zeros((n, d), np.int64)
    good = np.ones(n, np.bool_)
    n_limbs = (shifts[0] + widths[0]) // 32 + 3
    limbs = np.zeros(n_limbs, np.uint64)
    for row in range(n):
        limbs[:] = 0
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
            radix = _UNIT
            for t in range(first, group_ends[group]):
                radix *= np.uint64(levels[t])
            while used and limbs[used - 1] == 0:
                used -= 1
            rest = _ZERO
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
