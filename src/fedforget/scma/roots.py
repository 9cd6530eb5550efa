"""All roots of a polynomial that splits over the field, by the tangent Graeffe method.

The method (Grenet, van der Hoeven, Lecerf) is made for primes p with p - 1 = 29·2⁵⁷.  Squaring the
roots of P again and again (Graeffe) takes each root α to β = α^r, r = 2^(57-e), which is one of the
29·2^e roots of unity of that order; transforms find them all.  Several α may fall on one β.  To get
from a β that only one α fell on back to α, the whole computation is done for P(x + ε), ε² = 0,
whose root α - ε goes to α^r - ε·r·α^(r-1): the coefficient of ε tells α.  A random shift of P
before each pass lets other roots collide the next time.

See docs/math.md for why a root found is always a root, and why the search always ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import flint
import numpy as np

from fedforget.arrays import Elements
from fedforget.scma import kernels
from fedforget.scma.kernels import ORDER, PRIME
from fedforget.scma.kernels.field import ONE, ZERO
from fedforget.scma.polynomials import (
    PointTree,
    add,
    derivative,
    exact_quotient,
    minus,
    shift,
    size_for,
    twiddles,
)

_SCHOOL = 40
"""Degree up to which the school's products are faster than transforms."""


class DoesNotSplitError(ArithmeticError):
    """The polynomial is not a product of different linear factors."""


def roots(polynomial: Elements) -> Elements:
    """All roots of a monic polynomial, sorted as plain residues, in Montgomery form.

    Raises
    ------
    DoesNotSplitError
        If it is not a product of different linear factors.
    """
    found: list[Elements] = []
    shifts = _shifts(polynomial)
    rest = polynomial
    while rest.size > 2:
        some = _some_roots(rest, next(shifts))
        if some.size:
            found.append(some)
            rest = exact_quotient(rest, PointTree(some).polynomial)
        elif not _splits(rest):
            raise DoesNotSplitError
    if rest.size == 2:
        found.append(minus(rest[:1]))
    everything = np.concatenate(found) if found else np.empty(0, dtype=np.uint64)
    return everything[np.argsort(kernels.leave(everything))]


def _shifts(polynomial: Elements) -> Iterator[np.uint64]:
    """Shifts that look random, and are the same whenever this polynomial is given."""
    key = hashlib.sha256(polynomial.tobytes()).digest()
    number = 0
    while True:
        block = hashlib.sha256(key + number.to_bytes(8, "little")).digest()
        yield np.uint64(int.from_bytes(block, "little") % PRIME)
        number += 1


def _some_roots(polynomial: Elements, by: np.uint64) -> Elements:
    """One pass: those roots that no other root falls on."""
    degree = polynomial.size - 1
    shifted = shift(polynomial, by)
    tangent = np.append(derivative(shifted), ZERO)
    # At least twice as many roots of unity as roots; then about two thirds fall alone.
    exponent = max(0, (2 * degree // 29).bit_length())
    steps = ORDER - exponent
    if degree <= _SCHOOL:
        kernels.school_graeffe(shifted, tangent, steps)
    else:
        size = size_for(degree + 1)
        forward, backward = twiddles(size)
        line = np.array([0, ONE], dtype=np.uint64)
        points = kernels.transformed(line, size, forward)
        kernels.graeffe(shifted, tangent, steps, points, forward, backward)
    size = 1 << exponent
    numerators, denominators = kernels.simple_roots(shifted, tangent, size, twiddles(size).forward)
    if not len(numerators):
        return np.empty(0, dtype=np.uint64)
    multiplier = np.full(numerators.size, np.uint64(2**steps * 2**64 % PRIME))
    tangents = kernels.multiply(
        kernels.multiply(numerators, multiplier), kernels.inverses(denominators)
    )
    return add(tangents, np.full(tangents.size, by))


def _splits(polynomial: Elements) -> bool:
    """Whether x^p = x modulo the polynomial, which holds for products of different factors only."""
    modulus = flint.nmod_poly(kernels.leave(polynomial).tolist(), PRIME)
    x = flint.nmod_poly([0, 1], PRIME)
    return bool(x.pow_mod(PRIME, modulus) == x % modulus)
