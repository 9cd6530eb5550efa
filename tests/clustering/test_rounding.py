"""How records are rounded: against the definition, in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedforget.clustering.rounding import BITS, LOWEST_EXPONENT, WIDEST_GAP, Rounding

MAGNITUDES = st.one_of(
    st.floats(-1e100, 1e100),
    st.floats(-4.0, 4.0),
    st.integers(-(2**33), 2**33).map(float),
    st.integers(-999, 300).map(lambda e: 2.0**e),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1e-300, 1e100, -1e100, 1.0, -1.0, 0.5]),
    st.sampled_from([1.0 - 2**-53, 2.0 - 2**-52, 1e100 - 1e84]),
)
TABLES = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=MAGNITUDES
)


def exponent(column: list[float]) -> int | None:
    """The least multiple of 4 with every magnitude below 2^e; None where all values are zero."""
    largest = max(abs(Fraction(x)) for x in column)
    if largest == 0:
        return None
    e = next(e for e in range(-1076, 1028, 4) if largest < Fraction(2) ** e)
    assert Fraction(2) ** (e - 4) <= largest
    return e


def exponents(table: np.ndarray) -> list[int]:
    """By the definition; never below -900 or 900 below the largest, which zeros have too."""
    found = [exponent(column) for column in table.T.tolist()]
    top = max([e for e in found if e is not None], default=LOWEST_EXPONENT)
    top = max(top, LOWEST_EXPONENT)
    lowest = max(LOWEST_EXPONENT, top - WIDEST_GAP)
    return [top if e is None else max(e, lowest) for e in found]


def steps(value: float, e: int) -> int:
    """x 2^(31-e), to the nearest integer, half to even: what Python's round does."""
    return round(Fraction(value) * Fraction(2) ** (BITS - e))


def rounding_of(table: np.ndarray) -> Rounding:
    return Rounding.of(np.abs(table).max(axis=0))


@settings(max_examples=400)
@given(TABLES)
def test_records_are_rounded_as_defined(table: np.ndarray) -> None:
    rounding = rounding_of(table)
    defined = exponents(table)
    assert rounding.exponents.tolist() == defined
    whole = [[steps(x, e) for x, e in zip(row, defined, strict=True)] for row in table.tolist()]
    rounded = rounding.round(table)
    coordinates = rounding.coordinates(table)
    top = max(defined)
    for i, row in enumerate(whole):
        for t, (q, e) in enumerate(zip(row, defined, strict=True)):
            assert abs(q) <= 2**BITS
            assert Fraction(rounded[i, t]) == q * Fraction(2) ** (e - BITS)
            assert Fraction(coordinates[i, t]) == q * Fraction(2) ** (e - top)
            assert coordinates[i, t] / rounding.units[t] == q
    assert rounding.round_any(table).tobytes() == rounded.tobytes()
    assert rounding.values_of(coordinates).tobytes() == rounded.tobytes()
    assert rounding.round(rounded).tobytes() == rounded.tobytes()


@given(TABLES)
def test_no_zero_is_negative(table: np.ndarray) -> None:
    """Or centres of equal records could differ in a bit."""
    rounded = rounding_of(table).round(table)
    assert not np.signbit(rounded[rounded == 0.0]).any()


@pytest.mark.parametrize("e", [-899, -30, 0, 1, 31, 333])
def test_half_goes_to_even(e: int) -> None:
    rounding = Rounding(np.array([e]))
    step = np.ldexp(1.0, e - BITS)
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2**31 - 1.5, -(2**31) + 1.5, 2**31 - 0.5])
    expected = [0, 2, 2, 0, -2, 2**31 - 2, -(2**31) + 2, 2**31]
    assert (rounding.round(halves * step) / step).tolist() == expected


@pytest.mark.parametrize("e", [-899, -30, 0, 31, 333])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_far_beyond_the_records_are_rounded_likewise(e: int, sign: float) -> None:
    """Such rows are only predicted; they too become what the definition says."""
    rounding = Rounding(np.array([e]))
    for power in range(1, 40):
        for mantissa in (1.0, 1.0 + 2**-52, 1.0 + 2**-51, 1.75 - 2**-52, 2.0 - 2**-52):
            value = sign * math.ldexp(mantissa, e + power)
            if math.isinf(value):
                continue
            found = rounding.round_any(np.array([value]))[0]
            assert Fraction(found) == steps(value, e) * Fraction(2) ** (e - BITS)
    largest = np.array([sign * np.finfo(float).max])
    assert rounding.round_any(largest).tobytes() == largest.tobytes()


@pytest.mark.parametrize("largest", [[], [0.0], [0.0, 0.0], [5e-324], [1e-280, 0.0]])
def test_nothing_and_next_to_nothing(largest: list[float]) -> None:
    rounding = Rounding.of(np.array(largest))
    assert rounding.exponents.tolist() == [LOWEST_EXPONENT] * len(largest) or largest[0] > 1e-285
    assert np.isfinite(rounding.scale)
    assert np.isfinite(rounding.rounders).all()
    assert (rounding.units > 0.0).all()


def test_roundings_are_compared_by_their_steps() -> None:
    one, other = (Rounding.of(np.array([largest, 4.0])) for largest in (0.6, 0.9))
    assert one == other
    assert one != Rounding.of(np.array([1.0, 4.0]))
    assert one != "a rounding"
