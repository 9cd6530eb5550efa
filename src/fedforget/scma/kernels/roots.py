"""Recurrences of sequences, and roots of polynomials."""

from __future__ import annotations

import numpy as np

from fedforget.compilation import allocating_kernel
from fedforget.scma.kernels.field import (
    GENERATOR,
    ONE,
    REST,
    SQUARE,
    UNIT,
    ZERO,
    P,
    add,
    add_multiple,
    clear,
    copy,
    dot,
    inverse,
    mul,
    power,
    sub,
)
from fedforget.scma.kernels.transforms import transform, untransform


@allocating_kernel
def berlekamp_massey(sequence, most):
    """The shortest recurrence of a sequence: its connection polynomial, 1 first, and its length.

    Gives up, with the length reached, as soon as that exceeds ``most``.
    """
    n = sequence.size
    backwards = np.empty(n, np.uint64)
    for i in range(n):
        backwards[i] = sequence[n - 1 - i]
    current = np.zeros(most + 2, np.uint64)
    previous = np.zeros(most + 2, np.uint64)
    before = np.empty(most + 2, np.uint64)
    current[0] = previous[0] = previous_discrepancy = ONE
    length, filled, gap = 0, 1, 1  # ``filled`` terms of ``previous`` may differ from zero
    for i in range(n):
        discrepancy = dot(current[: length + 1], backwards[n - 1 - i : n - i + length])
        if discrepancy == 0:
            gap += 1
            continue
        factor = sub(ZERO, mul(discrepancy, inverse(previous_discrepancy)))
        grows = 2 * length <= i
        if grows and i + 1 - length > most:
            return current, i + 1 - length
        if grows:
            copy(current, before)
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


@allocating_kernel
def school_graeffe(a, b, steps):
    """Steps of :func:`graeffe` on short polynomials.  OUT: a, b."""
    n = a.size
    new_a, new_b = np.empty(n, np.uint64), np.empty(n, np.uint64)
    signed = np.empty(n, np.uint64)
    for _ in range(steps):
        for i in range(n):
            signed[i] = a[i] if i % 2 == 0 else sub(ZERO, a[i])
        for k in range(n):
            square = cross = ZERO
            for i in range(max(0, 2 * k - n + 1), min(2 * k, n - 1) + 1):
                square = add(square, mul(signed[i], a[2 * k - i]))
                cross = add(cross, mul(signed[i], b[2 * k - i]))
            new_a[k] = square
            new_b[k] = add(cross, cross)
        copy(new_a, a)
        copy(new_b, b)


@allocating_kernel
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
            clear(target)
            for i in range(first, n, 2):
                target[i // 2] = source[i]
            transform(target, table)
        for i in range(size):
            y_odd = mul(points[i], odd[i])
            cross = sub(mul(even[i], even_b[i]), mul(y_odd, odd_b[i]))
            even[i] = sub(mul(even[i], even[i]), mul(y_odd, odd[i]))
            odd[i] = add(cross, cross)
        untransform(even, inverse_table)
        untransform(odd, inverse_table)
        copy(even[:n], a)
        copy(odd[:n], b)


@allocating_kernel
def simple_roots(a, b, size, table):
    """The simple roots β of a among the roots of unity of order 29·size.

    Returns β·a'(β) and b(β) for each of them.  The roots of unity are those of order ``size``, on
    which a transform evaluates, times the powers of one of order 29, by which the polynomials are
    stretched before they are folded to the length of the transform.
    """
    n = a.size
    numerators, denominators = np.empty(n, np.uint64), np.empty(n, np.uint64)
    found = 0
    step = power(mul(np.uint64(GENERATOR), SQUARE), (P - UNIT) // REST)
    values = np.empty((3, size), np.uint64)
    stretch = ONE
    for _ in range(29):
        for row in range(3):
            clear(values[row])
        running, degree = ONE, ZERO
        for i in range(n):
            at = i & (size - 1)
            term = mul(a[i], running)
            values[0, at] = add(values[0, at], term)
            values[1, at] = add(values[1, at], mul(degree, term))
            values[2, at] = add(values[2, at], mul(b[i], running))
            running = mul(running, stretch)
            degree = add(degree, ONE)
        for row in range(3):
            transform(values[row], table)
        for i in range(size):
            if values[0, i] == 0 and values[1, i] != 0:
                numerators[found] = values[1, i]
                denominators[found] = values[2, i]
                found += 1
        stretch = mul(stretch, step)
    return numerators[:found], denominators[:found]
