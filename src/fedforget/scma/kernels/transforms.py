"""Transforms: a polynomial's values at the roots of unity, and back.

Transforms take a polynomial to its values at all roots of unity of order n = 2^k, in bit-reversed
order.  Twiddle factors are plain residues with a precomputed quotient (Shoup's trick), and numbers
may grow to 4p < 2⁶⁴ on the way, as Harvey proposed.
"""

from __future__ import annotations

import numpy as np

from fedforget.compilation import allocating_kernel, helper
from fedforget.scma.kernels.field import (
    GENERATOR,
    ONE,
    P2,
    SQUARE,
    UNIT,
    ZERO,
    P,
    add,
    copy,
    inverse,
    mul,
    power,
    reduce,
    shoup,
    shoup_quotient,
    sub,
)


@allocating_kernel
def twiddles(size, invert):
    """For each h = 1, 2, 4 … size/2, the powers of a root of order 2h at [h:2h], with quotients."""
    table = np.empty((2, size), np.uint64)
    table[0, 0] = table[1, 0] = ZERO
    generator = mul(np.uint64(GENERATOR), SQUARE)
    h, order = 1, np.uint64(2)
    while h < size:
        root = power(generator, (P - UNIT) // order)
        if invert:
            root = inverse(root)
        running = ONE
        for i in range(h):
            table[0, h + i] = reduce(ZERO, running)
            table[1, h + i] = shoup_quotient(running)
            running = mul(running, root)
        h *= 2
        order *= np.uint64(2)
    return table


@helper
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
                left[i] = total - P2 if total >= P2 else total
                right[i] = shoup(x - y + P2, w[i], quotients[i])
        h //= 2
    if n > 1:
        for i in range(0, n, 2):
            x, y = a[i], a[i + 1]
            x = x - P if x >= P else x
            y = y - P if y >= P else y
            a[i] = add(x, y)
            a[i + 1] = sub(x, y)


@helper
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
                x = x - P2 if x >= P2 else x
                y = shoup(right[i], w[i], quotients[i])
                left[i] = x + y
                right[i] = x - y + P2
        h *= 2
    scale = inverse(mul(np.uint64(n), SQUARE))
    w, quotient = reduce(ZERO, scale), shoup_quotient(scale)
    for i in range(n):
        y = shoup(a[i], w, quotient)
        a[i] = y - P if y >= P else y


@allocating_kernel
def transformed(a, size, table):
    """The transform of a polynomial padded with zeros."""
    out = np.zeros(size, np.uint64)
    copy(a, out)
    transform(out, table)
    return out


@allocating_kernel
def untransformed(values, table):
    """The polynomial with these values."""
    out = np.empty(values.size, np.uint64)
    copy(values, out)
    untransform(out, table)
    return out
