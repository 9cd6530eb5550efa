"""The compiled algebra against plain twins, and the laws that it must obey."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scma_twins as twins
from fedforget.arrays import Elements
from fedforget.scma import kernels, polynomials, recurrences
from fedforget.scma.kernels.field import ONE
from fedforget.scma.polynomials import PointTree
from fedforget.scma.roots import DoesNotSplitError, roots
from scma_twins import P

CORNERS = [0, 1, 2, 28, 29, 2**31, 2**32 - 1, 2**57, 2**61, P // 2, P // 2 + 1, P - 2, P - 1]
elements = st.one_of(st.sampled_from(CORNERS), st.integers(0, P - 1))


def entered(values: list[int]) -> Elements:
    return kernels.enter(np.array(values, dtype=np.uint64))


def left(values: Elements) -> list[int]:
    return kernels.leave(values).tolist()


def some(rng: np.random.Generator, n: int) -> list[int]:
    return rng.integers(0, P, n, dtype=np.uint64).tolist()


def different(rng: np.random.Generator, n: int) -> list[int]:
    values = set(some(rng, n))
    assert len(values) == n
    return sorted(values)


# -- the field ---------------------------------------------------------------------------------


def test_the_prime_and_its_generator() -> None:
    """By Pocklington: 3 has the order p - 1 = 29·2⁵⁷, so p is prime and 3 generates."""
    assert pow(3, P - 1, P) == 1
    assert pow(3, (P - 1) // 2, P) != 1
    assert pow(3, (P - 1) // 29, P) != 1
    assert kernels.PRIME == P < 2**62 < 2 * P
    assert 4 * P < 2**64


@given(a=elements, b=elements)
def test_one_product(a: int, b: int) -> None:
    assert left(kernels.multiply(entered([a]), entered([b]))) == [a * b % P]
    plain = kernels.multiply(np.array([a], dtype=np.uint64), entered([b]))
    assert plain.tolist() == [a * b % P]


def test_every_pair_of_corners() -> None:
    pairs = [(a, b) for a in CORNERS for b in CORNERS]
    a, b = ([pair[side] for pair in pairs] for side in (0, 1))
    assert left(kernels.multiply(entered(a), entered(b))) == [x * y % P for x, y in pairs]
    total = polynomials.add(np.array(a, dtype=np.uint64), np.array(b, dtype=np.uint64))
    assert total.tolist() == [(x + y) % P for x, y in pairs]


@given(values=st.lists(elements.filter(bool), min_size=1, max_size=9))
def test_inverses(values: list[int]) -> None:
    assert left(kernels.inverses(entered(values))) == [pow(x, -1, P) for x in values]


@given(values=st.lists(st.tuples(elements, elements), max_size=40))
def test_inner_products_of_any_length(values: list[tuple[int, int]]) -> None:
    a, b = [x for x, _ in values], [y for _, y in values]
    assert left(np.array([kernels.inner_product(entered(a), entered(b))], dtype=np.uint64)) == [
        sum(x * y for x, y in values) % P
    ]


def test_the_largest_inner_product() -> None:
    for n in range(1, 20):
        a = np.full(n, P - 1, dtype=np.uint64)
        expected = n * pow(P - 1, 2, P) * pow(2**64, -1, P) % P
        assert int(kernels.inner_product(a, a)) == expected


# -- transforms --------------------------------------------------------------------------------


@pytest.mark.parametrize("log_size", range(8))
def test_a_transform_is_the_values_at_the_roots_of_unity(
    log_size: int, rng: np.random.Generator
) -> None:
    size = 1 << log_size
    root = pow(3, (P - 1) // size, P)
    forward, backward = polynomials.twiddles(size)
    for values in (some(rng, size), [P - 1] * size, [0] * size):
        transformed = kernels.transformed(entered(values), size, forward)
        # The order is that of the bits of the exponent, read backwards.
        order = [int(f"{i:0{log_size}b}"[::-1], 2) if log_size else 0 for i in range(size)]
        assert left(transformed) == [twins.value(values, pow(root, k, P)) for k in order]
        assert left(kernels.untransformed(transformed, backward)) == values


# -- polynomials -------------------------------------------------------------------------------

SIZES = [1, 2, 3, 7, 31, 47, 48, 49, 64, 65, 129, 200]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", [1, 5, 48, 49, 120])
def test_products(n: int, m: int, rng: np.random.Generator) -> None:
    a, b = some(rng, n), some(rng, m)
    assert left(polynomials.product(entered(a), entered(b))) == twins.product(a, b)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("terms", [1, 2, 40, 49, 300])
def test_series_inverses(n: int, terms: int, rng: np.random.Generator) -> None:
    a = [1, *some(rng, n - 1)]
    inverse = left(polynomials.series_inverse(entered(a), terms))
    assert (twins.product(a, inverse) + [0] * terms)[:terms] == [1] + [0] * (terms - 1)


@pytest.mark.parametrize("n", SIZES)
def test_shifts_and_derivatives(n: int, rng: np.random.Generator) -> None:
    a, (by, x) = some(rng, n), some(rng, 2)
    shifted = left(polynomials.shift(entered(a), entered([by])[0]))
    assert len(shifted) == n
    assert twins.value(shifted, x) == twins.value(a, (x + by) % P)
    assert left(polynomials.derivative(entered(a))) == [i * a[i] % P for i in range(1, n)]


@pytest.mark.parametrize("n", [1, 2, 33, 70, 130])
@pytest.mark.parametrize("m", [1, 2, 33, 70, 130])
def test_exact_quotients(n: int, m: int, rng: np.random.Generator) -> None:
    a, b = some(rng, n), [*some(rng, m - 1), 1]
    quotient = polynomials.exact_quotient(entered(twins.product(a, b)), entered(b))
    assert left(quotient) == a


def test_an_exact_quotient_by_the_roots_of_unity_themselves() -> None:
    """The first coset tried must not meet the divisor's roots; here one after the other does."""
    size = 8
    root = pow(3, (P - 1) // size, P)
    divisor = twins.from_roots([7 * pow(root, k, P) % P for k in range(3)] + [49])
    a = [5, 4, 3, 2, 1, 9, 9]
    quotient = polynomials.exact_quotient(entered(twins.product(a, divisor)), entered(divisor))
    assert left(quotient) == a


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 65, 100, 129])
def test_many_points_at_once(n: int, rng: np.random.Generator) -> None:
    points = different(rng, n)
    tree = PointTree(entered(points))
    assert left(tree.polynomial) == twins.from_roots(points)
    for m in {1, n}:
        a = some(rng, m)
        assert left(tree.values(entered(a))) == [twins.value(a, x) for x in points]
    weights = some(rng, n)
    length = 2 * n + 3
    expected = [
        sum(w * pow(x, i, P) for w, x in zip(weights, points, strict=True)) % P
        for i in range(length)
    ]
    assert left(tree.power_sums(entered(weights), length)) == expected
    one_row = np.array([weights], dtype=np.uint64)
    assert kernels.power_sums(entered(points), one_row, length)[0].tolist() == expected


def test_large_trees_agree_with_horner(rng: np.random.Generator) -> None:
    points, a = entered(different(rng, 3000)), entered(some(rng, 3000))
    expected = kernels.values_at(a[np.newaxis], points)[0]
    assert PointTree(points).values(a).tobytes() == expected.tobytes()


# -- recurrences -------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    points=st.lists(elements.filter(bool), unique=True, max_size=8),
    data=st.data(),
    spare=st.integers(0, 3),
)
def test_a_sum_of_powers_has_its_points_recurrence(
    points: list[int], data: st.DataObject, spare: int
) -> None:
    weights = [data.draw(elements.filter(bool)) for _ in points]
    sequence = [
        sum(w * pow(x, i, P) for w, x in zip(weights, points, strict=True)) % P
        for i in range(2 * len(points) + spare)
    ]
    expected = twins.from_roots(points)
    assert twins.shortest_recurrence(sequence) == expected
    found = recurrences.minimal_polynomial(entered(sequence), max(1, len(points)))
    assert found is not None
    assert left(found) == expected


@settings(max_examples=60)
@given(
    sequence=st.lists(st.sampled_from([0, 0, 1, 2, P - 1]), max_size=24), most=st.integers(1, 13)
)
def test_any_sequence(sequence: list[int], most: int) -> None:
    expected = twins.shortest_recurrence(sequence)
    found = recurrences.minimal_polynomial(entered(sequence), most)
    if len(expected) - 1 > most:
        assert found is None
    else:
        assert found is not None
        assert left(found) == expected


@pytest.mark.parametrize("quadratic", [0, 10**6], ids=["half-gcd", "Berlekamp-Massey"])
@pytest.mark.parametrize("n", [0, 1, 5, 60])
def test_both_ways_to_a_recurrence_agree(
    quadratic: int, n: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrences, "_QUADRATIC", quadratic)
    tree = PointTree(entered(different(rng, n)))
    sequence = tree.power_sums(entered(some(rng, n)), 2 * n + 2)
    found = recurrences.minimal_polynomial(sequence, max(1, n))
    assert found is not None
    assert found.tobytes() == tree.polynomial.tobytes()
    if n > 1:
        assert recurrences.minimal_polynomial(sequence, n - 1) is None


@pytest.mark.parametrize("n", [1, 2, 5, 63, 64, 65, 90])
@pytest.mark.parametrize("spare", [0, 1, 4])
def test_transposed_vandermonde_systems(n: int, spare: int, rng: np.random.Generator) -> None:
    points = different(rng, n)
    polynomial = entered(twins.from_roots(points))
    wanted = [some(rng, n) for _ in range(3)]
    sums = kernels.power_sums(entered(points), np.array(wanted, dtype=np.uint64), n + spare)
    rows = kernels.enter(sums.ravel()).reshape(sums.shape)
    system = recurrences.TransposedVandermonde(entered(points), polynomial)
    solved, fits = system.solve(rows)
    assert [left(row) for row in solved] == wanted
    assert fits.all()
    if spare:
        rows[1, -1] ^= np.uint64(1)
        _, fits = system.solve(rows)
        assert fits.tolist() == [True, False, True]


# -- roots -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 39, 40, 41, 42, 100, 333])
def test_roots_of_a_product_of_linear_factors(n: int, rng: np.random.Generator) -> None:
    points = different(rng, n)
    assert left(roots(PointTree(entered(points)).polynomial)) == points


@settings(max_examples=40)
@given(points=st.lists(elements, unique=True, max_size=12))
def test_roots_at_the_corners(points: list[int]) -> None:
    polynomial = twins.from_roots(points)
    assert left(roots(entered(polynomial))) == sorted(points) == twins.roots(polynomial)


def test_roots_that_are_all_roots_of_unity() -> None:
    """They collide the most before the polynomial is shifted."""
    for order in (2, 29, 58, 128, 29 * 8):
        root = pow(3, (P - 1) // order, P)
        points = sorted(pow(root, k, P) for k in range(order))
        assert left(roots(PointTree(entered(points)).polynomial)) == points


def test_roots_in_arithmetic_progression() -> None:
    points = list(range(P - 100, P)) + list(range(100))
    assert left(roots(PointTree(entered(points)).polynomial)) == sorted(points)


def test_many_roots(rng: np.random.Generator) -> None:
    points = different(rng, 5000)
    assert left(roots(PointTree(entered(points)).polynomial)) == points


NON_RESIDUE = 3


@pytest.mark.parametrize("n", [0, 1, 2, 7, 30, 60, 100])
@pytest.mark.parametrize(
    "factor",
    [
        [-NON_RESIDUE % P, 0, 1],  # x² - 3, irreducible
        [1, P - 2, 1],  # (x - 1)²
        [0, 0, 1],  # x²
        [-NON_RESIDUE % P] + [0] * 28 + [1],  # x²⁹ - 3
        [-NON_RESIDUE % P] + [0] * 63 + [1],  # x⁶⁴ - 3
    ],
    ids=["irreducible", "double root", "double zero", "degree 29", "degree 64"],
)
def test_what_does_not_split_is_refused(
    n: int, factor: list[int], rng: np.random.Generator
) -> None:
    """Whatever else it has roots in the field."""
    points = [x for x in different(rng, n) if x > 1]
    polynomial = twins.product(twins.from_roots(points), factor)
    with pytest.raises(DoesNotSplitError):
        roots(entered(polynomial))


@settings(max_examples=60)
@given(low=st.lists(elements, min_size=1, max_size=5))
def test_random_polynomials_against_cantor_and_zassenhaus(low: list[int]) -> None:
    expected = twins.roots([*low, 1])
    if expected is None:
        with pytest.raises(DoesNotSplitError):
            roots(entered([*low, 1]))
    else:
        assert left(roots(entered([*low, 1]))) == expected


def test_one_is_one() -> None:
    assert left(np.array([ONE], dtype=np.uint64)) == [1]
