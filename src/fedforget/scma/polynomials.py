"""Fast polynomials over the field: products, division, shifts, and many points at once.

A polynomial is an array of coefficients in Montgomery form, the constant term first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedforget.arrays import Elements
from fedforget.scma import kernels
from fedforget.scma.kernels import PRIME
from fedforget.scma.kernels.field import ONE

_SCHOOL = 48
"""Terms below which the school's product is faster than transforms."""

_LEAF = 32
"""Points in a leaf of the tree."""


class Twiddles(NamedTuple):
    """Roots of unity for transforms up to some size, and their inverses."""

    forward: Elements
    backward: Elements


@lru_cache(maxsize=1)
def _twiddles_up_to(size: int) -> Twiddles:
    return Twiddles(kernels.twiddles(size, False), kernels.twiddles(size, True))


_largest = 1 << 10


def twiddles(size: int) -> Twiddles:
    """Tables that serve every power of two up to ``size``; the largest ones made are kept."""
    global _largest
    _largest = max(_largest, size)
    return _twiddles_up_to(_largest)


def size_for(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def minus(a: Elements) -> Elements:
    """-a, element by element."""
    return np.where(a == 0, a, np.uint64(PRIME) - a)


def product(a: Elements, b: Elements) -> Elements:
    """a · b."""
    result: Elements
    if min(a.size, b.size) <= _SCHOOL:
        result = kernels.school_product(a, b)
        return result
    n = a.size + b.size - 1
    size = size_for(n)
    forward, backward = twiddles(size)
    values = kernels.multiply(
        kernels.transformed(a, size, forward), kernels.transformed(b, size, forward)
    )
    result = kernels.untransformed(values, backward)[:n]
    return result


def series_inverse(a: Elements, n: int) -> Elements:
    """The first n terms of 1 / a, where a begins with one."""
    known = min(n, _SCHOOL)
    inverse: Elements = kernels.school_series_inverse(a, known)
    while known < n:
        # Newton's step: g·(2 - a·g) is right to twice as many terms as g.
        known = min(2 * known, n)
        defect = minus(product(a[:known], inverse)[:known])
        defect[0] = ONE
        inverse = product(inverse, defect)[:known]
    return inverse


def derivative(a: Elements) -> Elements:
    """a'."""
    numbers = kernels.enter(np.arange(1, a.size, dtype=np.uint64))
    result: Elements = kernels.multiply(a[1:].copy(), numbers)
    return result


def shift(a: Elements, by: np.uint64) -> Elements:
    """a(x + by), for a polynomial of degree below p."""
    n = a.size
    result: Elements
    if n <= _SCHOOL:
        result = kernels.school_shift(a, by)
        return result
    # With c_k = k!·a_k and e_k = by^k / k!, the result times j! is Σ_k c_k·e_(k-j).
    factorials = kernels.factorials(n)
    inverses = kernels.inverses(factorials)
    scaled = kernels.multiply(a, factorials)[::-1].copy()
    exponential = kernels.multiply(kernels.powers(by, n), inverses)
    correlated = product(scaled, exponential)[:n][::-1]
    result = kernels.multiply(correlated.copy(), inverses)
    return result


def exact_quotient(a: Elements, b: Elements) -> Elements:
    """a / b, where b is known to divide a."""
    n = a.size - b.size + 1
    size = size_for(n)
    forward, backward = twiddles(size)
    stretch = 1
    while True:
        # On a coset of the roots of unity where b is nowhere zero, division is pointwise.
        stretch = stretch * 7 % PRIME
        scale = np.uint64(stretch * 2**64 % PRIME)
        values = [_folded(kernels.multiply(c, kernels.powers(scale, c.size)), size) for c in (a, b)]
        above, below = (kernels.transformed(c, size, forward) for c in values)
        if np.all(below != 0):
            break
    quotient = kernels.untransformed(kernels.multiply(above, kernels.inverses(below)), backward)[:n]
    unscale = np.uint64(pow(stretch, -1, PRIME) * 2**64 % PRIME)
    result: Elements = kernels.multiply(quotient, kernels.powers(unscale, n))
    return result


def _folded(a: Elements, size: int) -> Elements:
    """a modulo x^size - 1."""
    out = np.zeros(size, dtype=np.uint64)
    for start in range(0, a.size, size):
        part = a[start : start + size]
        out[: part.size] = add(out[: part.size], part)
    return out


def add(a: Elements, b: Elements) -> Elements:
    """a + b modulo p, element by element, for residues below p."""
    total = a + b
    # Where the sum is below p, the difference wraps round to something larger.
    reduced: Elements = np.minimum(total, total - np.uint64(PRIME))
    return reduced


class PointTree:
    """Distinct points, prepared for polynomials that are needed at all of them.

    Holds the tree of the products Π (1 - x_j z).  Below a leaf's size everything is done by the
    school's methods.
    """

    def __init__(self, points: Elements) -> None:
        self.points = points
        self.n = points.size
        self.size = max(_LEAF, size_for(self.n))
        self._padded = np.zeros(self.size, dtype=np.uint64)
        self._padded[: self.n] = points
        self._leaves = kernels.leaf_products(self._padded, _LEAF)
        self._twiddles = twiddles(2 * self.size)
        self._levels: list[Elements] = []
        nodes = self._leaves
        while len(nodes) > 1:
            self._levels.append(kernels.transform_nodes(nodes, self._twiddles.forward))
            nodes = kernels.join_nodes(self._levels[-1], self._twiddles.backward)
        self.reversed: Elements = nodes[0, : self.n + 1]
        self._inverse: Elements | None = None
        self._series = np.empty(0, dtype=np.uint64)

    @property
    def polynomial(self) -> Elements:
        """Π (x - x_j)."""
        return self.reversed[::-1].copy()

    def values(self, a: Elements) -> Elements:
        """A polynomial of degree below the number of points, at every point.

        This is the transpose of adding up the fractions q_j / (1 - x_j z), run backwards down
        the tree (Bostan, Lecerf, Schost: "Tellegen's principle into practice").
        """
        forward, backward = self._twiddles
        if self._inverse is None:
            inverse = series_inverse(self.reversed, self.size)
            self._inverse = kernels.transformed(inverse, 2 * self.size, forward)
        vectors = kernels.correlate(a, self._inverse, self.size, forward, backward)
        vectors = vectors.reshape(1, -1)
        for level in reversed(self._levels):
            vectors = kernels.split_nodes(vectors, level, forward, backward)
        result: Elements = kernels.leaf_values(vectors, self._leaves, self._padded)
        return result[: self.n]

    def power_sums(self, weights: Elements, length: int) -> Elements:
        """Σ_j q_j·x_j^i for i < length."""
        forward, backward = self._twiddles
        padded = np.zeros(self.size, dtype=np.uint64)
        padded[: self.n] = weights
        numerators = kernels.leaf_numerators(self._padded, padded, self._leaves)
        for level in self._levels:
            numerators = kernels.join_numerators(numerators, level, forward, backward)
        if self._series.size != length:
            self._series = series_inverse(self.reversed, length)
        return product(numerators[0], self._series)[:length]
