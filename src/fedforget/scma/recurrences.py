"""From power sums back to what was summed: locators by a recurrence, weights by Forney's formula.

With different x_j and S_i = Σ_j q_j·x_j^i, the generating function in 1/x is a fraction,

    Σ_i S_i·x^(-i-1) = Σ_j q_j / (x - x_j) = U(x) / P(x),   P(x) = Π (x - x_j),   deg U < deg P,

so P is the characteristic polynomial of the shortest recurrence of the S_i, U is the polynomial
part of P times the series, and q_j = U(x_j) / P'(x_j).  The same formula solves the transposed
Vandermonde system Σ_j y_j·x_j^i = W_i for any other right-hand side.
"""

from __future__ import annotations

import flint
import numpy as np

from fedforget.arrays import Elements, Flags
from fedforget.scma import kernels
from fedforget.scma.kernels import PRIME
from fedforget.scma.polynomials import PointTree, derivative, product

_QUADRATIC = 30_000
"""Terms up to which Berlekamp–Massey is faster than python-flint's half-gcd."""

_SCHOOL = 64
"""Points up to which the school's methods solve a system."""


def minimal_polynomial(sequence: Elements, most: int) -> Elements | None:
    """Characteristic polynomial of the shortest recurrence, or None if it is longer than ``most``.

    It is monic; its constant term is zero if the recurrence does not hold from the first term on.
    """
    if sequence.size <= _QUADRATIC:
        connection, length = kernels.berlekamp_massey(sequence, most)
        return None if length > most else connection[: length + 1][::-1].copy()
    context = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(PRIME))
    polynomial = context.minpoly(kernels.leave(sequence).tolist())
    if polynomial.degree() > most:
        return None
    coefficients = np.array([int(one) for one in polynomial.coeffs()], dtype=np.uint64)
    result: Elements = kernels.enter(coefficients)
    return result


class TransposedVandermonde:
    """The systems Σ_j y_j·x_j^i = W_i, i < M, for any M that is at least the number of points.

    Parameters
    ----------
    points : the different x_j.
    polynomial : Π (x - x_j).
    """

    def __init__(self, points: Elements, polynomial: Elements) -> None:
        self.points = points
        self.polynomial = polynomial
        if points.size <= _SCHOOL:
            derivatives = kernels.quotients_at(polynomial, points)
        else:
            self._tree = PointTree(points)
            derivatives = self._tree.values(derivative(polynomial))
        self._scales: Elements = kernels.inverses(derivatives)

    def solve(self, sums: Elements) -> tuple[Elements, Flags]:
        """Solve for each row of sums; returns the rows of y, and which rows fit every equation."""
        n = self.points.size
        if n <= _SCHOOL:
            numerators, fits = kernels.numerators(self.polynomial, sums)
            values = kernels.values_at(numerators, self.points)
        else:
            values = np.empty((len(sums), n), dtype=np.uint64)
            fits = np.empty(len(sums), dtype=np.bool_)
            for row, one in enumerate(sums):
                # Term M + u of the product is that of x^u in U; terms n … M - 1 are the recurrence.
                terms = product(self.polynomial, one[::-1].copy())
                values[row] = self._tree.values(terms[one.size :])
                fits[row] = not terms[n : one.size].any()
        for row in values:
            row[:] = kernels.multiply(row, self._scales)
        return values, fits
