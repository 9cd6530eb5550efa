"""How the records of one owner become whole numbers of steps, with no bounds to agree on.

Sums of whole numbers are exact, whatever their order.  So each feature has a step, a power of two
that follows from its largest magnitude among the records present, and a record counts as the
nearest multiple of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedforget.arrays import Floats, Ints

BITS = 31
"""No record has more steps than two to this power; what is below a step is rounded away."""

COARSENESS = 4
"""Exponents are multiples of this, so that few records change one when they come or go."""

LOWEST_EXPONENT = -900
WIDEST_GAP = 900
"""Beyond these, powers of two and squared distances would leave the range of float64."""


@dataclass(frozen=True, eq=False)
class Rounding:
    """The steps of all features.

    With ``e`` the least multiple of 4 such that every magnitude of a feature is below 2^e, its step
    is 2^(e - 31): at least 28 bits of the largest magnitude are kept.  *Coordinates* are rounded
    values in a common unit, in which no magnitude exceeds 2^31.  Because all factors are powers of
    two, only the rounding, half to even, loses anything.

    Parameters
    ----------
    exponents : ``e`` of each feature; at least -900, and at most 900 below the largest.  Where all
        values are zero, it is the largest of the others.
    """

    exponents: Ints

    @classmethod
    def of(cls, largest: Floats) -> Rounding:
        """The steps for features with these largest magnitudes.

        >>> Rounding.of(np.array([1.0, 0.75, 0.0])).exponents
        array([4, 0, 4])
        """
        is_zero = largest == 0.0
        exponents = np.where(is_zero, LOWEST_EXPONENT, np.frexp(largest)[1]).astype(np.int64)
        exponents = -(-exponents // COARSENESS) * COARSENESS
        top = max(int(exponents.max(initial=LOWEST_EXPONENT)), LOWEST_EXPONENT)
        exponents[is_zero] = top
        return cls(np.maximum(exponents, max(top - WIDEST_GAP, LOWEST_EXPONENT)))

    @property
    def top(self) -> int:
        """The largest exponent."""
        return int(self.exponents.max(initial=LOWEST_EXPONENT))

    @cached_property
    def shift(self) -> int:
        """Coordinates are rounded values times two to this power."""
        return BITS - self.top

    @property
    def scale(self) -> float:
        """That power of two."""
        return float(np.ldexp(1.0, self.shift))

    @property
    def shifts(self) -> Ints:
        """Of each feature, the power of two that its step is in coordinates; none is positive."""
        return self.exponents - self.top

    @property
    def units(self) -> Floats:
        """The steps in coordinates."""
        return np.ldexp(1.0, self.shifts)

    @property
    def rounders(self) -> Floats:
        """Numbers so large that a value added to one, and taken away again, is rounded."""
        return np.ldexp(1.5, 52 - BITS + self.exponents)

    def round(self, values: Floats) -> Floats:
        """The nearest multiples of the steps, ties to even multiples.

        For values that are not far beyond the largest: up to 2^20 times it.
        """
        rounders = self.rounders
        rounded: Floats = (values + rounders) - rounders
        return rounded

    def round_any(self, values: Floats) -> Floats:
        """:meth:`round` for values of any magnitude, as strangers may have."""
        # Values beyond 2^22 times the largest are multiples of the step as they are.
        near = np.abs(values) < np.ldexp(1.0, self.exponents + 22)
        steps = np.rint(np.ldexp(np.where(near, values, 0.0), BITS - self.exponents))
        # Zeros lose their signs.
        rounded: Floats = np.where(near, np.ldexp(steps + 0.0, self.exponents - BITS), values)
        return rounded

    def coordinates(self, values: Floats) -> Floats:
        """Rounded values in the common unit."""
        coordinates = self.round(values)
        coordinates *= self.scale
        return coordinates

    def values_of(self, coordinates: Floats) -> Floats:
        """From coordinates back to values, without rounding to a step."""
        return np.ldexp(coordinates, -self.shift)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounding) and np.array_equal(self.exponents, other.exponents)

    __hash__ = None  # type: ignore[assignment]
