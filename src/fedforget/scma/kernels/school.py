"""Short polynomials, by the school's methods (the fast ones are in scma/polynomials.py)."""

from __future__ import annotations

import numpy as np

from fedforget.compilation import allocating_kernel
from fedforget.scma.kernels.field import (
    ONE,
    ZERO,
    add,
    copy,
    dot,
    mul,
    sub,
)


@allocating_kernel
def school_product(a, b):
    """Product of two short polynomials."""
    out = np.zeros(a.size + b.size - 1, np.uint64)
    backwards = np.empty(b.size, np.uint64)
    for i in range(b.size):
        backwards[i] = b[b.size - 1 - i]
    for k in range(out.size):
        low = max(0, k - b.size + 1)
        high = min(k, a.size - 1) + 1
        first = low + b.size - 1 - k
        out[k] = dot(a[low:high], backwards[first : first + high - low])
    return out


@allocating_kernel
def school_shift(a, by):
    """a(x + by)."""
    n = a.size
    out = np.empty(n, np.uint64)
    copy(a, out)
    for first in range(n - 1):
        for i in range(n - 2, first - 1, -1):
            out[i] = add(out[i], mul(by, out[i + 1]))
    return out


@allocating_kernel
def school_series_inverse(a, n):
    """The first n terms of 1 / a, where a begins with one."""
    out = np.zeros(n, np.uint64)
    out[0] = ONE
    for k in range(1, n):
        total = ZERO
        for i in range(1, min(k, a.size - 1) + 1):
            total = add(total, mul(a[i], out[k - i]))
        out[k] = sub(ZERO, total)
    return out


@allocating_kernel
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


@allocating_kernel
def numerators(a, sums):
    """For each row W: the polynomial part of a(x)·Σ W_i·x^(-i-1), and whether the rest vanishes."""
    n_rows, length = sums.shape
    n = a.size - 1
    out = np.zeros((n_rows, n), np.uint64)
    fits = np.empty(n_rows, np.bool_)
    for row in range(n_rows):
        fits[row] = True
        for k in range(n):
            out[row, k] = dot(a[k + 1 :], sums[row, : n - k])
        for first in range(length - n):
            fits[row] &= dot(a, sums[row, first : first + n + 1]) == 0
    return out, fits


@allocating_kernel
def quotients_at(a, points):
    """The polynomial a / (x - x_j) at x_j, that is a'(x_j), for the roots x_j of a."""
    out = np.empty(points.size, np.uint64)
    for j in range(points.size):
        running, value = ZERO, ZERO
        for i in range(a.size - 1, 0, -1):
            running = add(mul(running, points[j]), a[i])
            value = add(mul(value, points[j]), running)
        out[j] = value
    return out
