"""The codec's promises: sums of multisets come back exactly, and nothing else comes back at all.

``FEDFORGET_FUZZ=100`` multiplies the number of corrupted vectors, about 10⁵ in a plain run.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget import scma

P = 29 * 2**57 + 1
SALT = bytes(range(16))
CAUSES = frozenset({"capacity", "corrupted", "range"})
FUZZ = float(os.environ.get("FEDFORGET_FUZZ", "1"))

Multiset = dict[tuple[int, ...], int]


def trials(n: int) -> int:
    return max(1, round(n * FUZZ))


class Plain:
    """A codec that speaks of ``{bin: count}`` and checks the form of all that it returns."""

    def __init__(self, levels: Iterable[int], capacity: int, **options: object) -> None:
        self.levels = [int(level) for level in levels]
        self.capacity = capacity
        self.options = {"salt": SALT, "spare": 2, **options}
        self.codec = scma.Codec(np.array(self.levels), capacity, **self.options)
        self.n_syndromes = 2 * capacity + int(self.options["spare"])

    def __repr__(self) -> str:
        return f"Plain({self.levels}, {self.capacity}, **{self.options})"

    def arrays(self, multiset: Multiset) -> tuple[np.ndarray, np.ndarray]:
        bins = np.array(list(multiset), dtype=np.int64).reshape(len(multiset), len(self.levels))
        return bins, np.array(list(multiset.values()), dtype=np.int64)

    def encode(self, multiset: Multiset) -> np.ndarray:
        vector = self.codec.encode(*self.arrays(multiset))
        assert vector.dtype == np.uint64
        assert vector.shape == (self.codec.length,)
        assert (vector < P).all()
        return vector

    def decode(self, vector: np.ndarray) -> Multiset:
        bins, counts = self.codec.decode(vector)
        assert bins.dtype == counts.dtype == np.int64
        assert counts.ndim == 1
        assert bins.shape == (len(counts), len(self.levels))
        rows = [tuple(row) for row in bins.tolist()]
        assert rows == sorted(set(rows)), "not in canonical order"
        return dict(zip(rows, counts.tolist(), strict=True))

    def refuse(self, vector: np.ndarray, causes: Iterable[str] = CAUSES) -> None:
        """Fail unless the vector is refused, for one of these causes."""
        got, error = attempt(self.codec.decode, vector)
        assert error, f"{self} took {vector.tolist()} for {got}"
        assert error.cause in causes, f"{error.cause!r} of {self}: {vector.tolist()}"
        assert str(error)

    def refuse_packed(self, packed: bytes) -> None:
        """Fail unless the wire form is refused, when it is unpacked or when it is decoded."""
        vector, error = attempt(self.codec.unpack, packed)
        if error is None:
            self.refuse(vector)
        else:
            assert error.cause in CAUSES


def attempt(
    function: Callable[[Any], Any], argument: object
) -> tuple[Any, None] | tuple[None, scma.DecodeError]:
    """The result, or the error; much faster than ``pytest.raises``."""
    try:
        return function(argument), None
    except scma.DecodeError as error:
        return None, error


def total(*multisets: Multiset) -> Multiset:
    """The sum; a bin whose counts cancel is not in it."""
    counts: Multiset = {}
    for multiset in multisets:
        for row, count in multiset.items():
            counts[row] = counts.get(row, 0) + count
    return {row: count for row, count in counts.items() if count}


def negative(multiset: Multiset) -> Multiset:
    return {row: -count for row, count in multiset.items()}


def add_all(vectors: Iterable[np.ndarray]) -> np.ndarray:
    return reduce(scma.add, vectors)


def times(vector: np.ndarray, factor: int) -> np.ndarray:
    """The field's multiple of a vector."""
    return residues(factor * element for element in vector.tolist())


def residues(numbers: Iterable[int]) -> np.ndarray:
    return np.array([number % P for number in numbers], dtype=np.uint64)


def random_bins(rng: np.random.Generator, levels: Iterable[int], n: int) -> list[tuple[int, ...]]:
    """Up to ``n`` distinct bins: fewer where the grid is small."""
    levels = np.array(levels, dtype=np.int64)
    rows = rng.integers(0, levels, size=(n, len(levels)))
    return list(dict.fromkeys(tuple(row) for row in rows.tolist()))


def random_counts(rng: np.random.Generator, n: int, signed: bool = True) -> list[int]:
    """From 1 to 2⁴⁰, each magnitude alike, of either sign where ``signed``."""
    sizes = rng.integers(1, 2 ** rng.integers(0, 41, size=n), endpoint=True)
    signs = rng.choice([-1, 1], size=n) if signed else 1
    return (sizes * signs).tolist()


def random_multiset(
    rng: np.random.Generator, levels: Iterable[int], n: int, signed: bool = True
) -> Multiset:
    rows = random_bins(rng, levels, n)
    return dict(zip(rows, random_counts(rng, len(rows), signed), strict=True))


def some_of(rng: np.random.Generator, rows: list[tuple[int, ...]], n: int) -> Multiset:
    chosen = rng.permutation(len(rows))[:n].tolist()
    return dict(zip((rows[i] for i in chosen), random_counts(rng, len(chosen)), strict=True))


def n_bits(levels: Iterable[int]) -> int:
    """⌈log₂ of the number of bins⌉."""
    return (math.prod(int(level) for level in levels) - 1).bit_length()


def n_words(levels: Iterable[int]) -> int:
    return max(0, -((60 - n_bits(levels)) // 61))


def index_of(row: tuple[int, ...], levels: Iterable[int]) -> int:
    """Mixed radix, the first dimension most significant."""
    index = 0
    for position, level in zip(row, levels, strict=True):
        index = index * level + position
    return index


def slow_syndromes(multiset: Multiset, levels: list[int], n: int) -> list[int]:
    """Σ q·xⁱ with x = 1 + index: what the vector begins with where the index has ≤ 60 bits."""
    locators = [(1 + index_of(row, levels), count) for row, count in multiset.items()]
    return [sum(count * pow(x, i, P) for x, count in locators) % P for i in range(n)]


# Sums come back.


SCALES = [[1], [1, 2], [3, 10], [256], [1, 10**6], [10**6], [1, 2, 10, 256, 4000, 10**6]]


@st.composite
def federations(draw: st.DrawFn) -> tuple[Plain, list[Multiset]]:
    """A codec and the multisets of its clients, who share bins and sometimes cancel."""
    d = draw(st.one_of(st.integers(1, 4), st.integers(5, 80), st.integers(81, 1000)), label="d")
    scales = draw(st.sampled_from(SCALES), label="largest levels")
    n_clients = draw(st.integers(1, 10), label="clients")
    n_pool = draw(st.integers(1, 25), label="pool")
    n_each = draw(st.integers(0, 12), label="bins of a client")
    cancels = draw(st.sampled_from(["nothing", "half a client", "everything"]), label="cancels")
    slack = draw(st.sampled_from([0, 0, 1, 9]), label="slack")
    spare = draw(st.integers(0, 3), label="spare")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))

    levels = rng.integers(1, rng.choice(scales, size=d), endpoint=True)
    pool = random_bins(rng, levels, n_pool)
    clients = [some_of(rng, pool, n_each) for _ in range(n_clients)]
    if cancels == "everything":
        clients.append(negative(total(*clients)))
    elif cancels == "half a client":
        clients.append(negative(dict(list(clients[0].items())[: (n_each + 1) // 2])))
    capacity = max(1, len(total(*clients))) + slack
    return Plain(levels, capacity, spare=spare), clients


@settings(max_examples=150)
@given(federations())
def test_the_sum_of_encodings_decodes_to_the_sum(federation: tuple[Plain, list[Multiset]]) -> None:
    plain, clients = federation
    vector = add_all(plain.encode(multiset) for multiset in clients)
    assert plain.decode(vector) == total(*clients)


@settings(max_examples=200)
@given(
    levels=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    spare=st.integers(0, 3),
    slack=st.integers(0, 2),
    data=st.data(),
)
def test_small_grids_and_small_counts(
    levels: list[int], spare: int, slack: int, data: st.DataObject
) -> None:
    rows = st.tuples(*[st.integers(0, level - 1) for level in levels])
    multisets = st.dictionaries(rows, st.integers(-2, 2), max_size=8)
    clients = data.draw(st.lists(multisets, min_size=1, max_size=5))
    expected = total(*clients)
    plain = Plain(levels, max(1, len(expected)) + slack, spare=spare)
    assert plain.decode(add_all(map(plain.encode, clients))) == expected


@pytest.mark.parametrize(
    ("levels", "n_clients", "n_each"),
    [
        ([10**6] * 3, 1, 1200),
        ([10**6] * 3, 20, 60),
        ([64] * 30, 30, 40),
        ([64] * 30, 400, 2),
        ([10] * 500, 10, 12),
        ([1, 10**6, 1, 3] * 250, 6, 8),
    ],
    ids=["one client", "20 clients", "30 clients", "400 clients", "500 levels", "1000 levels"],
)
def test_a_large_capacity_is_reached_exactly(
    levels: list[int], n_clients: int, n_each: int
) -> None:
    rng = np.random.default_rng(n_clients * n_each)
    clients = [random_multiset(rng, levels, n_each, signed=False) for _ in range(n_clients)]
    expected = total(*clients)
    assert len(expected) == n_clients * n_each
    plain = Plain(levels, len(expected), signed=False)
    assert plain.decode(add_all(map(plain.encode, clients))) == expected


def test_every_bin_of_a_grid_at_once(rng: np.random.Generator) -> None:
    levels = [3, 1, 4, 5]
    rows = list(itertools.product(*map(range, levels)))
    multiset = dict(zip(rows, random_counts(rng, len(rows)), strict=True))
    plain = Plain(levels, len(rows))
    vector = plain.encode(multiset)
    assert plain.decode(vector) == multiset
    assert list(plain.decode(vector)) == rows


@pytest.mark.parametrize("levels", [[50], [1000] * 9], ids=["syndromes only", "with words"])
def test_many_clients_share_one_bin(levels: list[int], rng: np.random.Generator) -> None:
    (row,) = random_bins(rng, levels, 1)
    counts = random_counts(rng, 200)
    plain = Plain(levels, 1)
    vector = add_all(plain.encode({row: count}) for count in counts)
    assert plain.decode(vector) == {row: sum(counts)}


@pytest.mark.parametrize("levels", [[50], [1000] * 9], ids=["syndromes only", "with words"])
def test_only_what_remains_must_fit_the_capacity(
    levels: list[int], rng: np.random.Generator
) -> None:
    """Each client has far more bins than the capacity; their sum has one."""
    before = random_multiset(rng, levels, 30)
    (row,) = random_bins(rng, levels, 1)
    after = total(negative(before), {row: 5})
    plain = Plain(levels, 1)
    plain.refuse(plain.encode(before), {"capacity", "corrupted"})
    assert plain.decode(scma.add(plain.encode(before), plain.encode(after))) == {row: 5}


@pytest.mark.parametrize("levels", [[1], [50], [1000] * 9])
@pytest.mark.parametrize("capacity", [1, 7])
def test_nothing_is_the_zero_vector_and_the_zero_vector_is_nothing(
    levels: list[int], capacity: int, rng: np.random.Generator
) -> None:
    plain = Plain(levels, capacity)
    zero = plain.encode({})
    assert not zero.any()
    assert plain.decode(zero) == {}
    multiset = random_multiset(rng, levels, 20)
    cancelled = scma.add(plain.encode(multiset), plain.encode(negative(multiset)))
    np.testing.assert_array_equal(cancelled, zero)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("levels", [[50], [1000] * 9], ids=["syndromes only", "with words"])
def test_the_sign_does_not_change_what_is_decoded(
    levels: list[int], signed: bool, rng: np.random.Generator
) -> None:
    multiset = random_multiset(rng, levels, 12, signed=False)
    plain = Plain(levels, 12, signed=signed)
    assert plain.decode(plain.encode(multiset)) == multiset


# What a vector consists of.


GRIDS = {
    "one bin": [1],
    "one bin, 7 dimensions": [1] * 7,
    "one bin, 5,000 dimensions": [1] * 5000,
    "two bins": [2],
    "59 bits": [2] * 59,
    "60 bits": [2] * 60,
    "60 bits, 1 dimension": [2**60],
    "60 bits, 3 dimensions": [10**6] * 3,
    "60 bits, decimal": [10] * 18,
    "just above 60 bits": [2**60 + 1],
    "61 bits": [2] * 61,
    "61 bits, 1 dimension": [2**61],
    "61 bits, ternary": [3] * 38,
    "61 bits among ones": [1, 1, 2**30, 1, 2**31, 1],
    "121 bits": [2] * 121,
    "just above 121 bits": [2**61 + 1, 2**60],
    "122 bits": [2] * 122,
    "182 bits": [2] * 182,
    "183 bits": [2] * 183,
    "a few real dimensions in 20,000": ([1] * 499 + [5]) * 40,
}


@pytest.fixture(params=GRIDS.values(), ids=GRIDS.keys())
def levels(request: pytest.FixtureRequest) -> list[int]:
    return request.param


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("one bin", 0),
        ("60 bits", 0),
        ("60 bits, 1 dimension", 0),
        ("just above 60 bits", 1),
        ("61 bits, ternary", 1),
        ("121 bits", 1),
        ("just above 121 bits", 2),
        ("182 bits", 2),
        ("183 bits", 3),
    ],
)
def test_the_number_of_words(grid: str, words: int) -> None:
    assert n_words(GRIDS[grid]) == words
    assert Plain(GRIDS[grid], 10, spare=3).codec.length == 23 + 13 * words + 2


@pytest.mark.parametrize("spare", [0, 1, 2, 5])
@pytest.mark.parametrize("capacity", [1, 2, 40])
def test_the_length(levels: list[int], capacity: int, spare: int) -> None:
    codec = Plain(levels, capacity, spare=spare).codec
    n_sums = n_words(levels) * (capacity + spare)
    assert codec.length == 2 * capacity + spare + n_sums + 2
    assert codec.bits == 62 * codec.length


@pytest.mark.parametrize("capacity", [1, 2, 9])
def test_every_grid_decodes(levels: list[int], capacity: int, rng: np.random.Generator) -> None:
    """Also where the capacity exceeds the number of bins."""
    plain = Plain(levels, capacity)
    multiset = random_multiset(rng, levels, capacity)
    assert plain.decode(plain.encode(multiset)) == multiset


def test_the_first_and_the_last_bin(levels: list[int]) -> None:
    first, last = tuple(0 for _ in levels), tuple(level - 1 for level in levels)
    multiset = total({first: 3}, {last: -(2**40)})
    plain = Plain(levels, 2)
    for wanted in ({first: 1}, {last: 1}, multiset):
        assert plain.decode(plain.encode(wanted)) == wanted


@settings(max_examples=150)
@given(
    grid=st.one_of(
        st.lists(st.integers(1, 1000), min_size=1, max_size=6),
        st.sampled_from([grid for grid in GRIDS.values() if n_bits(grid) <= 60]),
    ),
    capacity=st.integers(1, 12),
    spare=st.integers(0, 3),
    n=st.integers(0, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_syndromes_are_power_sums_of_the_indices(
    grid: list[int], capacity: int, spare: int, n: int, seed: int
) -> None:
    """Up to 60 bits the salt has no part in them; they hold beyond the capacity too."""
    multiset = random_multiset(np.random.default_rng(seed), grid, n)
    plain = Plain(grid, capacity, spare=spare, salt=seed.to_bytes(16, "big"))
    got = plain.encode(multiset)[: plain.n_syndromes].tolist()
    assert got == slow_syndromes(multiset, grid, plain.n_syndromes)


def test_syndromes_by_hand() -> None:
    """Bin (1, 2) of a 3 × 4 grid has the index 6 and the locator 7; bin (0, 0) the locator 1."""
    vector = Plain([3, 4], 2, spare=1).encode({(1, 2): 10, (0, 0): -4})
    assert vector[:5].tolist() == [6, 66, 486, 3426, 24006]


@pytest.mark.parametrize("grid", [[2] * 61, [1000] * 9, [7] * 200])
def test_with_words_a_bin_has_one_locator_and_the_salt_moves_it(
    grid: list[int], rng: np.random.Generator
) -> None:
    row = tuple(level - 1 for level in grid)
    count = random_counts(rng, 1)[0]
    locators = []
    for salt in (SALT, SALT[::-1]):
        plain = Plain(grid, 5, salt=salt)
        syndromes = plain.encode({row: count})[: plain.n_syndromes].tolist()
        x = syndromes[1] * pow(syndromes[0], -1, P) % P
        assert x != 0
        assert syndromes == [count * pow(x, i, P) % P for i in range(plain.n_syndromes)]
        locators.append(x)
    assert locators[0] != locators[1]


# Linearity.


@settings(max_examples=80)
@given(federations(), st.integers(0, 2**32 - 1))
def test_encoding_is_linear(federation: tuple[Plain, list[Multiset]], seed: int) -> None:
    plain, clients = federation
    parts = [plain.arrays(multiset) for multiset in clients]
    bins = np.concatenate([rows for rows, _ in parts])
    counts = np.concatenate([column for _, column in parts])
    of_the_sum = plain.encode(total(*clients))
    np.testing.assert_array_equal(add_all(map(plain.encode, clients)), of_the_sum)
    np.testing.assert_array_equal(plain.codec.encode(bins, counts), of_the_sum)
    order = np.random.default_rng(seed).permutation(len(counts))
    np.testing.assert_array_equal(plain.codec.encode(bins[order], counts[order]), of_the_sum)


@pytest.mark.parametrize("capacity", [1, 6, 50])
@pytest.mark.parametrize("grid", [[50, 3], [1000] * 9, [7] * 200])
def test_the_negative_encodes_to_the_field_s_negative(
    grid: list[int], capacity: int, rng: np.random.Generator
) -> None:
    plain = Plain(grid, capacity)
    multiset = random_multiset(rng, grid, 20)
    vector = plain.encode(multiset)
    np.testing.assert_array_equal(plain.encode(negative(multiset)), times(vector, -1))


@pytest.mark.parametrize("grid", [[50, 3], [1000] * 9])
def test_duplicates_add_up_and_zero_counts_are_absent(grid: list[int]) -> None:
    plain = Plain(grid, 3)
    a, b, c = (tuple(min(k, level - 1) for level in grid) for k in range(3))
    bins = np.array([a, b, a, c, b, a, c])
    counts = np.array([4, 7, 0, 9, -7, -1, 0])
    vector = plain.codec.encode(bins, counts)
    np.testing.assert_array_equal(vector, plain.encode({a: 3, c: 9}))
    assert plain.decode(vector) == {a: 3, c: 9}


def test_zero_counts_are_absent_where_counts_are_unsigned() -> None:
    plain = Plain([9], 1, signed=False)
    vector = plain.codec.encode(np.array([[1], [2], [3]]), np.array([0, 8, 0]))
    assert plain.decode(vector) == {(2,): 8}


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_addition_is_modulo_p(n: int, rng: np.random.Generator) -> None:
    corners = np.array([0, 1, 2, P // 2, P // 2 + 1, P - 2, P - 1], dtype=np.uint64)
    a, b = rng.choice(corners, size=n), rng.choice(corners, size=n)
    drawn = rng.random(n) < 0.5
    a[drawn] = rng.integers(0, P, size=n, dtype=np.uint64)[drawn]
    got = scma.add(a, b)
    assert got.dtype == np.uint64
    assert got.tolist() == [(x + y) % P for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_addition_of_every_pair_of_corners() -> None:
    corners = [0, 1, P // 2, P // 2 + 1, P - 2, P - 1]
    pairs = list(itertools.product(corners, repeat=2))
    a, b = np.array(pairs, dtype=np.uint64).T
    assert scma.add(a, b).tolist() == [(x + y) % P for x, y in pairs]


# Counts.


RANGE_GRIDS = pytest.mark.parametrize("grid", [[50], [1000] * 9], ids=["no words", "with words"])


@RANGE_GRIDS
@pytest.mark.parametrize("max_count", [1, 5, 2**40, 2**48])
@pytest.mark.parametrize("others", [0, 3])
def test_a_sum_beyond_max_count_is_out_of_range(
    grid: list[int], max_count: int, others: int, rng: np.random.Generator
) -> None:
    rows = random_bins(rng, grid, 20)[: others + 1]
    rest = dict.fromkeys(rows[1:], 1)
    plain = Plain(grid, others + 1, max_count=max_count)
    for sign in (1, -1):
        full = {rows[0]: sign * max_count, **rest}
        vector = plain.encode(full)
        assert plain.decode(vector) == full
        beyond = scma.add(vector, plain.encode({rows[0]: sign}))
        plain.refuse(beyond, {"range"})
        back = scma.add(beyond, plain.encode({rows[0]: -sign}))
        assert plain.decode(back) == full


@RANGE_GRIDS
def test_unsigned_counts_lie_between_one_and_max_count(
    grid: list[int], rng: np.random.Generator
) -> None:
    rows = random_bins(rng, grid, 20)[:3]
    plain = Plain(grid, 3, max_count=5, signed=False)
    vector = plain.encode({rows[0]: 5, rows[1]: 1, rows[2]: 3})
    assert plain.decode(vector) == {rows[0]: 5, rows[1]: 1, rows[2]: 3}
    one = plain.encode({rows[1]: 1})
    plain.refuse(scma.add(vector, plain.encode({rows[0]: 1})), {"range"})
    assert plain.decode(scma.add(vector, times(one, -1))) == {rows[0]: 5, rows[2]: 3}
    plain.refuse(scma.add(vector, times(one, -2)), {"range"})
    plain.refuse(times(one, -1), {"range"})


@RANGE_GRIDS
def test_any_count_of_the_field_outside_the_range_is_refused(
    grid: list[int], rng: np.random.Generator
) -> None:
    """A multiple of an encoding fits every equation: only its counts are wrong."""
    plain = Plain(grid, 1, max_count=1000)
    (row,) = random_bins(rng, grid, 1)
    one = plain.encode({row: 1})
    for factor in (1001, P // 2, P // 2 + 1, P - 1001, *rng.integers(1001, P - 1000, 20).tolist()):
        plain.refuse(times(one, factor), {"range"})
    for factor in (1, 1000, -1, -1000):
        assert plain.decode(times(one, factor)) == {row: factor}


# Vectors that are no sum of encodings are refused.


SHAPES = {
    "T=1": ([10], 1, {}),
    "T=1, no spare": ([10], 1, {"spare": 0}),
    "T=1, one bin": ([1, 1], 1, {}),
    "T=1, 61 bits": ([2] * 61, 1, {}),
    "T=1, no spare, one word": ([1000] * 9, 1, {"spare": 0}),
    "T=1, one word": ([1000] * 9, 1, {}),
    "T=2": ([3, 5], 2, {}),
    "T=2, four words": ([7] * 100, 2, {}),
    "T=2, unsigned, one word": ([1000] * 9, 2, {"signed": False, "spare": 1}),
    "T=4, 60 bits": ([2**30] * 2, 4, {}),
    "T=8, one word": ([10**6] * 6, 8, {}),
}


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def plain(request: pytest.FixtureRequest) -> Plain:
    grid, capacity, options = request.param
    return Plain(grid, capacity, **options)


def codewords(rng: np.random.Generator, plain: Plain, n: int = 24) -> list[np.ndarray]:
    """Encodings of 0, 1, … bins, up to the capacity; all of them decode."""
    signed = bool(plain.options.get("signed", True))
    multisets = [
        random_multiset(rng, plain.levels, i % (plain.capacity + 1), signed) for i in range(n)
    ]
    vectors = [plain.encode(multiset) for multiset in multisets]
    for multiset, vector in zip(multisets, vectors, strict=True):
        assert plain.decode(vector) == multiset
    return vectors


def flip_a_bit(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    vector[rng.integers(len(vector))] ^= np.uint64(1 << int(rng.integers(64)))


def change_an_element(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    vector[rng.integers(len(vector))] = rng.integers(P)


def nudge_an_element(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    i = rng.integers(len(vector))
    vector[i] = (int(vector[i]) + int(rng.integers(-8, 9))) % P


def negate_an_element(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    i = rng.integers(len(vector))
    vector[i] = -int(vector[i]) % P


def add_a_multiple_of_p(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    """The same residue, but written in another way."""
    vector[rng.integers(len(vector))] += np.uint64(P * int(rng.integers(1, 4)))


def clear_some(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    vector[rng.random(len(vector)) < rng.random()] = 0


def change_some(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    chosen = rng.random(len(vector)) < rng.random()
    vector[chosen] = rng.integers(P, size=int(chosen.sum()))


def swap_two(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    i, j = rng.integers(len(vector), size=2)
    vector[[i, j]] = vector[[j, i]]


def rotate(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    vector[:] = np.roll(vector, rng.integers(1, len(vector)))


def splice(rng: np.random.Generator, vector: np.ndarray, other: np.ndarray) -> None:
    """The end of another encoding."""
    cut = rng.integers(1, len(vector))
    if not np.array_equal(vector[:cut], other[:cut]):
        vector[cut:] = other[cut:]


def draw_residues(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    vector[:] = rng.integers(P, size=len(vector))


def draw_words(rng: np.random.Generator, vector: np.ndarray, _: np.ndarray) -> None:
    vector[:] = rng.integers(2**64, size=len(vector), dtype=np.uint64)


Corruption = Callable[[np.random.Generator, np.ndarray, np.ndarray], None]


def corrupted(
    rng: np.random.Generator, plain: Plain, corrupt: Corruption, n: int
) -> Iterator[np.ndarray]:
    """``n`` vectors, each an encoding that was corrupted indeed."""
    vectors = codewords(rng, plain)
    for _ in range(n):
        vector = original = vectors[0]
        # Zero everywhere is the encoding of nothing, and no corruption.
        while np.array_equal(vector, original) or not vector.any():
            original, other = (vectors[i] for i in rng.integers(len(vectors), size=2))
            vector = original.copy()
            corrupt(rng, vector, other)
        yield vector


@pytest.mark.parametrize(
    "corrupt",
    [
        flip_a_bit,
        change_an_element,
        nudge_an_element,
        negate_an_element,
        add_a_multiple_of_p,
        clear_some,
        change_some,
        swap_two,
        rotate,
        splice,
        draw_residues,
        draw_words,
    ],
    ids=lambda function: function.__name__,
)
def test_corrupted_vectors_are_refused(plain: Plain, corrupt: Corruption) -> None:
    rng = np.random.default_rng(1)
    for vector in corrupted(rng, plain, corrupt, trials(500)):
        plain.refuse(vector)


def test_a_change_of_any_element_is_refused(plain: Plain, rng: np.random.Generator) -> None:
    """Every place in turn: syndromes, sums of words, check sums; the empty multiset too."""
    for vector in codewords(rng, plain, plain.capacity + 1):
        for i in range(len(vector)):
            for change in (1, P - 1, int(rng.integers(1, P))):
                changed = vector.copy()
                changed[i] = (int(changed[i]) + change) % P
                plain.refuse(changed)


def test_every_flipped_bit_is_refused() -> None:
    for grid in ([10], [2] * 61):
        plain = Plain(grid, 1, spare=1)
        vector = plain.encode({tuple(0 for _ in grid): 3})
        for i, bit in itertools.product(range(len(vector)), range(64)):
            flipped = vector.copy()
            flipped[i] ^= np.uint64(1 << bit)
            plain.refuse(flipped)


def test_elements_that_are_no_residues_are_refused(plain: Plain, rng: np.random.Generator) -> None:
    for vector in codewords(rng, plain, plain.capacity + 1):
        for i in range(len(vector)):
            for element in (int(vector[i]) + P, int(vector[i]) + 3 * P, P, 2**62, 2**64 - 1):
                changed = vector.copy()
                changed[i] = element
                plain.refuse(changed, {"range", "corrupted"})


def test_an_error_leaves_the_codec_as_it_was(plain: Plain, rng: np.random.Generator) -> None:
    multiset = random_multiset(rng, plain.levels, plain.capacity, signed=False)
    vector = plain.encode(multiset)
    for wrong in corrupted(rng, plain, change_some, 20):
        plain.refuse(wrong)
        assert plain.decode(vector) == multiset


@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize("capacity", [1, 2, 6])
@pytest.mark.parametrize("grid", [[5, 5], [10**6] * 3, [1000] * 9])
def test_more_bins_than_the_capacity_are_refused(
    grid: list[int], capacity: int, spare: int
) -> None:
    rng = np.random.default_rng(capacity)
    plain = Plain(grid, capacity, spare=spare)
    causes = {"capacity", "corrupted"} if spare else CAUSES
    for i in range(trials(400)):
        multiset: Multiset = {}
        # One too many half of the time; never fewer than that, whatever was drawn twice.
        wanted = capacity + 1 if i % 2 else int(rng.integers(capacity + 1, 3 * capacity + 2))
        while len(multiset) < wanted:
            multiset |= random_multiset(rng, grid, wanted - len(multiset))
        plain.refuse(plain.encode(multiset), causes)


def test_one_bin_too_many_in_the_sum_of_clients_who_have_one_each() -> None:
    plain = Plain([100, 100], 10)
    vectors = [plain.encode({(i, i): 1}) for i in range(11)]
    assert plain.decode(add_all(vectors[:10])) == {(i, i): 1 for i in range(10)}
    plain.refuse(add_all(vectors), {"capacity", "corrupted"})


def test_a_large_capacity_overfilled_by_one(rng: np.random.Generator) -> None:
    plain = Plain([64] * 30, 300)
    plain.refuse(plain.encode(random_multiset(rng, plain.levels, 301)), {"capacity", "corrupted"})


# Vectors that fit some of the equations, and are refused by the others.


Syndromes = Callable[[np.random.Generator, int], list[int]]


def no_syndromes(rng: np.random.Generator, n: int) -> list[int]:
    return [0] * n


def locator_zero(rng: np.random.Generator, n: int) -> list[int]:
    return [int(rng.integers(1, 2**48)), *[0] * (n - 1)]


def late_syndrome(rng: np.random.Generator, n: int) -> list[int]:
    return [*[0] * (n - 1), int(rng.integers(1, P))]


def any_locator(rng: np.random.Generator, n: int) -> list[int]:
    count, x = int(rng.integers(1, 2**40)), int(rng.integers(1, P))
    return [count * pow(x, i, P) for i in range(n)]


def repeated_locator(rng: np.random.Generator, n: int) -> list[int]:
    """Annihilated by (z − x)², of which x is the only root."""
    a, b, x = rng.integers(1, 2**40, size=3).tolist()
    return [(a + b * i) * pow(x, i, P) for i in range(n)]


def conjugate_locators(rng: np.random.Generator, n: int) -> list[int]:
    """Annihilated by z² − b·z − c, which has no root in the field."""
    while True:
        b, c = rng.integers(1, P, size=2).tolist()
        if pow(b * b + 4 * c, (P - 1) // 2, P) == P - 1:
            break
    sums = rng.integers(1, P, size=2).tolist()
    while len(sums) < n:
        sums.append((b * sums[-1] + c * sums[-2]) % P)
    return sums[:n]


FORGING_GRIDS = pytest.mark.parametrize(
    ("grid", "capacity"),
    [([10], 1), ([3, 5], 2), ([2] * 60, 5), ([2] * 61, 1), ([1000] * 9, 2), ([7] * 100, 3)],
    ids=["T=1", "T=2", "T=5, 60 bits", "T=1, 61 bits", "T=2, one word", "T=3, four words"],
)


@FORGING_GRIDS
@pytest.mark.parametrize(
    "forge",
    [
        no_syndromes,
        locator_zero,
        late_syndrome,
        any_locator,
        repeated_locator,
        conjugate_locators,
    ],
    ids=lambda function: function.__name__,
)
def test_forged_syndromes_are_refused(grid: list[int], capacity: int, forge: Syndromes) -> None:
    rng = np.random.default_rng(capacity)
    plain = Plain(grid, capacity)
    rest = slice(plain.n_syndromes, None)
    for i in range(trials(200)):
        vector = plain.encode(random_multiset(rng, grid, capacity))
        # What follows the syndromes is kept, drawn anew, or cleared.
        if i % 3 == 1:
            vector[rest] = rng.integers(P, size=len(vector[rest]))
        elif i % 3 == 2 and forge is not no_syndromes:
            vector[rest] = 0
        vector[: plain.n_syndromes] = residues(forge(rng, plain.n_syndromes))
        plain.refuse(vector)


@pytest.mark.parametrize("grid", [[1], [10], [6, 7], [10**6] * 2, [2**59 + 1]])
@pytest.mark.parametrize("capacity", [1, 4])
def test_locators_outside_the_grid_are_refused(grid: list[int], capacity: int) -> None:
    """Replace the locator x of a single bin by one that no bin of the grid has."""
    rng = np.random.default_rng(capacity)
    n_bins = math.prod(grid)
    plain = Plain(grid, capacity)
    drawn = rng.integers(n_bins + 1, P, size=trials(100)).tolist()
    for x in (n_bins + 1, n_bins + 2, 2 * n_bins + 1, P - 1, *drawn):
        vector = plain.encode(random_multiset(rng, grid, 1))
        count = int(vector[0])
        for rest in (vector[plain.n_syndromes :], 0):
            vector[plain.n_syndromes :] = rest
            vector[: plain.n_syndromes] = residues(
                count * pow(x, i, P) for i in range(plain.n_syndromes)
            )
            plain.refuse(vector)


@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize("capacity", [1, 2])
@pytest.mark.parametrize("grid", [[2] * 61, [10**6] * 3 + [3], [1000] * 9, [10**6] * 6])
@pytest.mark.parametrize("what", ["count", "locator", "word", "locator and word"])
def test_the_check_sums_refuse_what_fits_all_other_equations(
    grid: list[int], capacity: int, spare: int, what: str
) -> None:
    """A lone bin becomes another one, in the syndromes and in the sums of its word alike."""
    assert n_words(grid) == 1
    rng = np.random.default_rng(capacity)
    plain = Plain(grid, capacity, spare=spare)
    n = plain.n_syndromes
    for _ in range(trials(100)):
        vector = plain.encode(random_multiset(rng, grid, 1))
        count, second, weighted = (int(vector[i]) for i in (0, 1, n))
        x = second * pow(count, -1, P) % P
        word = weighted * pow(count, -1, P) % P
        nudge = int(rng.choice([-3, -2, -1, 1, 2, 3]))
        if what == "count":
            count += nudge
        if "locator" in what:
            x = (x + nudge) % P
        if "word" in what:
            word ^= 1 << int(rng.integers(max(1, n_bits(grid) - 60)))
        vector[:n] = residues(count * pow(x, i, P) for i in range(n))
        vector[n:-2] = residues(count * word * pow(x, i, P) for i in range(len(vector) - 2 - n))
        plain.refuse(vector)


# Vectors of another codec are refused.


FOREIGN = {
    "salt": (([7, 11], 2, {}), ([7, 11], 2, {"salt": b"another salt, 16"})),
    "salt, one bin": (([1], 1, {}), ([1], 1, {"salt": b"another salt, 16"})),
    "salt, words": (([1000] * 9, 2, {}), ([1000] * 9, 2, {"salt": b"another salt, 16"})),
    "salt, T=1, no spare": (
        ([2] * 61, 1, {"spare": 0}),
        ([2] * 61, 1, {"spare": 0, "salt": b"another salt, 16"}),
    ),
    "levels permuted": (([7, 11], 2, {}), ([11, 7], 2, {})),
    "levels fused": (([7, 11], 2, {}), ([77], 2, {})),
    "a level of 1 more": (([7, 11], 2, {}), ([7, 11, 1], 2, {})),
    "one bin more": (([10], 1, {}), ([11], 1, {})),
    "levels permuted, words": (([1000] * 8 + [999], 2, {}), ([999] + [1000] * 8, 2, {})),
    "capacity": (([7, 11], 2, {"spare": 2}), ([7, 11], 1, {"spare": 4})),
    "capacity, no spare": (([7, 11], 3, {"spare": 0}), ([7, 11], 1, {"spare": 4})),
    "capacity, words": (([1000] * 9, 3, {"spare": 1}), ([1000] * 9, 1, {"spare": 4})),
}


@pytest.mark.parametrize(("ours", "theirs"), FOREIGN.values(), ids=FOREIGN.keys())
def test_vectors_of_another_codec_are_refused(
    ours: tuple[list[int], int, dict], theirs: tuple[list[int], int, dict]
) -> None:
    pair = [Plain(grid, capacity, **options) for grid, capacity, options in (ours, theirs)]
    assert pair[0].codec.length == pair[1].codec.length
    rng = np.random.default_rng(2)
    smallest = min(each.capacity for each in pair)
    for _ in range(trials(150)):
        for own, other in (pair, pair[::-1]):
            count = int(rng.integers(1, smallest, endpoint=True))
            foreign = other.encode(random_multiset(rng, other.levels, count))
            own.refuse(foreign)
            own.refuse_packed(other.codec.pack(foreign))
            # Nor is a single client with the wrong codec overlooked, not even one whose
            # syndromes cancel those of the others.
            multiset = random_multiset(rng, own.levels, 1)
            own.refuse(scma.add(own.encode(multiset), foreign))
            if own.levels == other.levels:
                own.refuse(scma.add(own.encode(multiset), other.encode(negative(multiset))))


@pytest.mark.parametrize(
    ("grid", "capacity", "spare"),
    [([7, 11], 1, 2), ([7, 11], 3, 2), ([7, 11], 2, 3), ([2] * 61, 2, 2), ([2] * 200, 2, 2)],
    ids=["smaller capacity", "larger capacity", "spare", "one word", "three words"],
)
def test_vectors_of_another_length_are_refused(grid: list[int], capacity: int, spare: int) -> None:
    own, other = Plain([7, 11], 2), Plain(grid, capacity, spare=spare)
    assert own.codec.length != other.codec.length
    for multiset in ({}, {tuple(0 for _ in grid): 1}):
        own.refuse(other.encode(multiset), {"range", "corrupted"})


def test_truncated_and_extended_vectors_are_refused(plain: Plain, rng: np.random.Generator) -> None:
    for vector in codewords(rng, plain, plain.capacity + 1):
        for n in range(len(vector)):
            plain.refuse(vector[:n], {"range", "corrupted"})
        for extra in ([0], [1], vector):
            extended = np.concatenate([vector, np.array(extra, dtype=np.uint64)])
            plain.refuse(extended, {"range", "corrupted"})


def test_arrays_that_are_no_vectors_are_refused(plain: Plain, rng: np.random.Generator) -> None:
    for vector in codewords(rng, plain, plain.capacity + 1):
        for wrong in (
            vector.astype(np.float64),
            vector.astype(np.complex128),
            vector.astype(bool),
            vector.astype(str),
            -1 - vector.astype(np.int64),
            vector[np.newaxis],
            vector[:, np.newaxis],
            np.uint64(0),
        ):
            plain.refuse(np.asarray(wrong), {"range", "corrupted"})


@pytest.mark.parametrize("dtype", [np.int64, ">u8"])
def test_other_integers_are_refused_or_understood(plain: Plain, dtype: object) -> None:
    row = tuple(level - 1 for level in plain.levels)
    got, error = attempt(plain.decode, plain.encode({row: 6}).astype(dtype))
    assert got == {row: 6} or error.cause in {"range", "corrupted"}


# The wire form.


def body(plain: Plain, packed: bytes) -> bytes:
    return packed[len(plain.codec.digest) :]


def test_packing_has_its_exact_size_and_comes_back(plain: Plain, rng: np.random.Generator) -> None:
    codec = plain.codec
    for vector in (
        *codewords(rng, plain),
        np.full(codec.length, P - 1, dtype=np.uint64),
        rng.integers(P, size=codec.length, dtype=np.uint64),
    ):
        packed = codec.pack(vector)
        assert isinstance(packed, bytes)
        assert packed.startswith(codec.digest)
        assert len(packed) == len(codec.digest) + math.ceil(62 * codec.length / 8)
        unpacked = codec.unpack(packed)
        assert unpacked.dtype == np.uint64
        np.testing.assert_array_equal(unpacked, vector)


@pytest.mark.parametrize("spare", range(4))
def test_every_bit_of_the_body_is_an_element_s_or_refused(spare: int) -> None:
    """Of the bits of a packed zero vector 62 an element can be set, and the padding cannot."""
    plain = Plain([10], 1, spare=spare)
    codec = plain.codec
    packed = codec.pack(plain.encode({}))
    start = len(codec.digest)
    seen, n_refused = set(), 0
    for i, bit in itertools.product(range(start, len(packed)), range(8)):
        flipped = packed[:i] + bytes([packed[i] ^ 1 << bit]) + packed[i + 1 :]
        vector, error = attempt(codec.unpack, flipped)
        if error:
            assert error.cause in CAUSES
            n_refused += 1
            continue
        assert codec.pack(vector) == flipped
        (place,) = np.flatnonzero(vector).tolist()
        element = int(vector[place])
        assert element.bit_count() == 1
        seen.add((place, element))
    assert seen == {(i, 1 << bit) for i in range(codec.length) for bit in range(62)}
    assert n_refused == -62 * codec.length % 8


def test_the_padding_is_there_to_be_tested() -> None:
    lengths = [Plain([10], 1, spare=spare).codec.length for spare in range(4)]
    assert {-62 * length % 8 for length in lengths} == {0, 2, 4, 6}


def test_a_packed_element_that_is_no_residue_is_refused(plain: Plain) -> None:
    codec = plain.codec
    for i in range(codec.length):
        high, low = np.zeros((2, codec.length), dtype=np.uint64)
        high[i], low[i] = 2**61, 2**61 - 1
        both = bytes(a | b for a, b in zip(codec.pack(high), codec.pack(low), strict=True))
        plain.refuse_packed(both)


def test_truncated_and_extended_packings_are_refused(
    plain: Plain, rng: np.random.Generator
) -> None:
    for vector in codewords(rng, plain, plain.capacity + 1):
        packed = plain.codec.pack(vector)
        shorter = (packed[:n] for n in range(len(packed)))
        longer = (packed + end for end in (b"\0", b"\xff", bytes(8), packed))
        headless = (body(plain, packed), packed[1:])
        for wrong in (*shorter, *longer, *headless):
            with pytest.raises(scma.DecodeError) as caught:
                plain.codec.unpack(wrong)
            assert caught.value.cause in CAUSES


def test_every_flipped_bit_of_the_digest_is_refused(plain: Plain) -> None:
    packed = plain.codec.pack(plain.encode({}))
    for i, bit in itertools.product(range(len(plain.codec.digest)), range(8)):
        flipped = packed[:i] + bytes([packed[i] ^ 1 << bit]) + packed[i + 1 :]
        with pytest.raises(scma.DecodeError):
            plain.codec.unpack(flipped)


def test_corrupted_packings_are_refused(plain: Plain) -> None:
    rng = np.random.default_rng(3)
    packings = [plain.codec.pack(vector) for vector in codewords(rng, plain)]
    for i in range(trials(800)):
        wrong = bytearray(packings[i % len(packings)])
        if i % 2:
            wrong[rng.integers(len(wrong))] ^= 1 << int(rng.integers(8))
        else:
            wrong[rng.integers(len(wrong))] ^= int(rng.integers(1, 256))
        plain.refuse_packed(bytes(wrong))


# The digest says which codec it is.


VARIANTS = {
    "plain": ([12, 3], 2, {}),
    "levels": ([12, 4], 2, {}),
    "levels permuted": ([3, 12], 2, {}),
    "digits shifted": ([1, 23], 2, {}),
    "levels fused": ([36], 2, {}),
    "a level of 1 more": ([12, 3, 1], 2, {}),
    "a level of 1 less": ([12], 2, {}),
    "a large level": ([12 + 2**32, 3], 2, {}),
    "capacity": ([12, 3], 3, {}),
    "capacity and spare": ([12, 3], 1, {"spare": 4}),
    "spare": ([12, 3], 2, {"spare": 3}),
    "salt": ([12, 3], 2, {"salt": SALT[::-1]}),
    "salt longer": ([12, 3], 2, {"salt": SALT + b"\0"}),
    "salt shorter": ([12, 3], 2, {"salt": SALT[:-1]}),
    "max_count": ([12, 3], 2, {"max_count": 2**48 - 1}),
    "unsigned": ([12, 3], 2, {"signed": False}),
    "words": ([12, 3] * 40, 2, {}),
}


def test_whatever_differs_the_digest_differs() -> None:
    codecs = {name: Plain(*shape[:2], **shape[2]).codec for name, shape in VARIANTS.items()}
    digests = {name: codec.digest for name, codec in codecs.items()}
    assert all(isinstance(digest, bytes) and digest for digest in digests.values())
    assert len({len(digest) for digest in digests.values()}) == 1
    assert len(set(digests.values())) == len(VARIANTS)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "plain"])
def test_packings_of_any_other_codec_are_refused(name: str) -> None:
    """Even of the zero vector, and even where the vectors themselves would be understood."""
    own = Plain([12, 3], 2)
    other = Plain(*VARIANTS[name][:2], **VARIANTS[name][2])
    for multiset in ({}, {tuple(0 for _ in other.levels): 1}):
        packed = other.codec.pack(other.encode(multiset))
        with pytest.raises(scma.DecodeError) as caught:
            own.codec.unpack(packed)
        assert caught.value.cause in CAUSES


@pytest.mark.parametrize("name", VARIANTS)
def test_instances_agree(name: str, rng: np.random.Generator) -> None:
    levels, capacity, options = VARIANTS[name]
    one, two = (Plain(levels, capacity, **options) for _ in range(2))
    assert one.codec.digest == two.codec.digest
    multiset = random_multiset(rng, levels, capacity, signed=False)
    vector = one.encode(multiset)
    np.testing.assert_array_equal(two.encode(multiset), vector)
    assert two.codec.pack(vector) == one.codec.pack(vector)
    assert two.decode(two.codec.unpack(one.codec.pack(vector))) == multiset


@pytest.mark.parametrize(
    "levels",
    [
        [12, 3],
        (12, 3),
        np.array([12, 3], dtype=np.int64),
        np.array([12, 3], dtype=np.uint8),
        np.array([12, 3], dtype=">i4"),
        np.array([12, 0, 3, 0])[::2],
    ],
    ids=["list", "tuple", "int64", "uint8", "big-endian", "strided"],
)
def test_the_digest_is_of_the_levels_and_not_of_their_type(levels: object) -> None:
    codec = scma.Codec(levels, 2, salt=SALT)
    assert codec.digest == Plain([12, 3], 2).codec.digest
    bins = np.array([[11, 2], [0, 1]])
    vector = codec.encode(bins, np.array([1, 2]))
    np.testing.assert_array_equal(vector, Plain([12, 3], 2).encode({(0, 1): 2, (11, 2): 1}))


def test_the_defaults_are_part_of_the_contract() -> None:
    codec = scma.Codec(np.array([12, 3]), 2, salt=SALT)
    spelt_out = {"spare": 2, "max_count": 2**48, "signed": True}
    assert codec.digest == scma.Codec(np.array([12, 3]), 2, salt=SALT, **spelt_out).digest


def test_processes_agree() -> None:
    script = (
        "import numpy as np; from fedforget import scma;"
        "codec = scma.Codec(np.array([1000] * 9), 3, salt=bytes(range(16)));"
        "rows = np.array([[999] * 9, [0] * 9]);"
        "print(codec.pack(codec.encode(rows, np.array([5, -7]))).hex())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    plain = Plain([1000] * 9, 3)
    packed = plain.codec.pack(plain.encode({(999,) * 9: 5, (0,) * 9: -7}))
    assert run.stdout.strip() == packed.hex()


# Inputs are read, never written.


def frozen(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.setflags(write=False)
    return array


def test_inputs_stay_as_they_are(plain: Plain, rng: np.random.Generator) -> None:
    multiset = random_multiset(rng, plain.levels, plain.capacity, signed=False)
    bins, counts = plain.arrays(multiset)
    vector = plain.codec.encode(bins, counts)
    kept = bins.tobytes(), counts.tobytes(), vector.tobytes()
    plain.codec.decode(vector)
    plain.codec.pack(vector)
    scma.add(vector, vector)
    assert (bins.tobytes(), counts.tobytes(), vector.tobytes()) == kept


def test_read_only_inputs_are_enough(plain: Plain, rng: np.random.Generator) -> None:
    multiset = random_multiset(rng, plain.levels, plain.capacity, signed=False)
    bins, counts = map(frozen, plain.arrays(multiset))
    codec = scma.Codec(frozen(np.array(plain.levels)), plain.capacity, **plain.options)
    vector = frozen(codec.encode(bins, counts))
    np.testing.assert_array_equal(vector, plain.encode(multiset))
    assert plain.decode(frozen(scma.add(vector, plain.encode({})))) == multiset
    np.testing.assert_array_equal(codec.unpack(codec.pack(vector)), vector)


def test_results_are_the_caller_s(plain: Plain, rng: np.random.Generator) -> None:
    """Whoever writes into a result changes neither the inputs nor the next result."""
    multiset = random_multiset(rng, plain.levels, plain.capacity, signed=False)
    vector = plain.encode(multiset)
    kept = vector.copy()
    for result in (
        plain.encode(multiset),
        plain.encode({}),
        scma.add(vector, plain.encode({})),
        scma.add(plain.encode({}), vector),
        plain.codec.unpack(plain.codec.pack(vector)),
        *plain.codec.decode(vector),
    ):
        if result.flags.writeable:
            result[...] = 1
    np.testing.assert_array_equal(vector, kept)
    np.testing.assert_array_equal(plain.encode(multiset), kept)
    assert plain.decode(vector) == multiset


def test_the_levels_are_copied() -> None:
    levels = np.array([12, 3])
    codec = scma.Codec(levels, 2, salt=SALT)
    levels[:] = 1
    assert codec.digest == Plain([12, 3], 2).codec.digest
    vector = codec.encode(np.array([[11, 2]]), np.array([4]))
    bins, counts = codec.decode(vector)
    assert (bins.tolist(), counts.tolist()) == ([[11, 2]], [4])


def test_the_layout_in_memory_does_not_matter(plain: Plain, rng: np.random.Generator) -> None:
    multiset = random_multiset(rng, plain.levels, plain.capacity, signed=False)
    bins, counts = plain.arrays(multiset)
    vector = plain.encode(multiset)
    reversed_twice = bins[::-1, ::-1].copy()[::-1, ::-1]
    for rows in (np.asfortranarray(bins), np.repeat(bins, 2, axis=0)[::2], reversed_twice):
        np.testing.assert_array_equal(plain.codec.encode(rows, counts), vector)
    np.testing.assert_array_equal(plain.codec.encode(bins, np.repeat(counts, 2)[::2]), vector)
    strided = np.repeat(vector, 2)[::2]
    assert plain.decode(strided) == multiset
    assert plain.codec.pack(strided) == plain.codec.pack(vector)
    np.testing.assert_array_equal(scma.add(strided, strided), times(vector, 2))


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">i4"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("d", [2, 3, 6], ids=lambda d: f"d={d}")
def test_integers_of_any_width_are_taken(d: int, dtype: str) -> None:
    """The index is far wider than the type of the bins, and may not overflow it."""
    top = min(59_999, int(np.iinfo(dtype).max))
    rows = [[top] * d, [top, *[0] * (d - 1)], [0] * (d - 1) + [top]]
    counts = [top, 1, top - 1]
    plain = Plain([60_000] * d, 3)
    expected = plain.encode({tuple(row): count for row, count in zip(rows, counts, strict=True)})
    typed = plain.codec.encode(np.array(rows, dtype=dtype), np.array(counts, dtype=dtype))
    np.testing.assert_array_equal(typed, expected)


def test_lists_of_python_integers_are_taken() -> None:
    plain = Plain([60_000, 7], 2)
    expected = plain.encode({(59_999, 6): 2**40, (0, 3): -5})
    rows, counts = [[59_999, 6], [0, 3]], [2**40, -5]
    for bins in (rows, [tuple(row) for row in rows], tuple(rows)):
        np.testing.assert_array_equal(plain.codec.encode(bins, counts), expected)
        np.testing.assert_array_equal(plain.codec.encode(bins, tuple(counts)), expected)


# Bad input is refused, and the error says what is wrong and where.


BAD_ROW = 10  # of twelve; no level, bin or count below is written with these digits
MAX_COUNT = 2**48


def good_rows() -> tuple[np.ndarray, np.ndarray]:
    return np.array([[i % 5, i % 9] for i in range(12)]), np.full(12, 3)


@pytest.mark.parametrize(
    ("column", "value", "dtype"),
    [
        (0, 5, "int64"),
        (1, 9, "int64"),
        (1, 9, "uint8"),
        (0, -1, "int64"),
        (1, -1, "int8"),
        (0, 2**63 - 1, "int64"),
        (0, -(2**63), "int64"),
        (1, 2**32, "int64"),
        (1, 2**64 - 1, "uint64"),
        (0, 2**63, "uint64"),
    ],
)
@pytest.mark.parametrize("others", [[], [1000] * 9], ids=["no words", "with words"])
def test_bins_outside_the_grid_are_refused(
    column: int, value: int, dtype: str, others: list[int]
) -> None:
    bins, counts = good_rows()
    bins = np.hstack([bins, np.zeros((12, len(others)), dtype=int)]).astype(dtype)
    bins[BAD_ROW, column] = value
    plain = Plain([5, 9, *others], 12)
    with pytest.raises(ValueError, match=rf"\b{BAD_ROW}\b") as caught:
        plain.codec.encode(bins, counts)
    assert "bin" in str(caught.value)
    bins[BAD_ROW, column] = 4
    plain.codec.encode(bins, counts)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (MAX_COUNT + 1, "int64"),
        (-MAX_COUNT - 1, "int64"),
        (2**63 - 1, "int64"),
        (-(2**63), "int64"),
        (2**63, "uint64"),
        (2**64 - 1, "uint64"),
    ],
)
@pytest.mark.parametrize("signed", [True, False])
def test_counts_beyond_max_count_are_refused(value: int, dtype: str, signed: bool) -> None:
    bins, counts = good_rows()
    counts = counts.astype(dtype)
    counts[BAD_ROW] = value
    plain = Plain([5, 9], 12, signed=signed)
    with pytest.raises(ValueError, match=rf"\b{BAD_ROW}\b") as caught:
        plain.codec.encode(bins, counts)
    assert "count" in str(caught.value)
    counts[BAD_ROW] = MAX_COUNT
    plain.codec.encode(bins, counts)


@pytest.mark.parametrize("value", [-1, -MAX_COUNT])
def test_negative_counts_are_refused_where_counts_are_unsigned(value: int) -> None:
    bins, counts = good_rows()
    counts[BAD_ROW] = value
    with pytest.raises(ValueError, match=rf"\b{BAD_ROW}\b") as caught:
        Plain([5, 9], 12, signed=False).codec.encode(bins, counts)
    assert "count" in str(caught.value)
    Plain([5, 9], 12, signed=True).codec.encode(bins, counts)


def test_max_count_is_the_codec_s_own() -> None:
    bins = np.array([[0, 0]])
    plain = Plain([5, 9], 1, max_count=7)
    for count in (7, -7):
        assert plain.decode(plain.codec.encode(bins, np.array([count]))) == {(0, 0): count}
    for count in (8, -8):
        with pytest.raises(ValueError, match="count"):
            plain.codec.encode(bins, np.array([count]))


@pytest.mark.parametrize(
    ("bins", "counts"),
    [
        (np.zeros(2, int), np.ones(1, int)),
        (np.zeros(2, int), np.ones(2, int)),
        (np.zeros((3, 1), int), np.ones(3, int)),
        (np.zeros((3, 3), int), np.ones(3, int)),
        (np.zeros((2, 3), int), np.ones(3, int)),
        (np.zeros((3, 2, 1), int), np.ones(3, int)),
        (np.zeros((3, 2), int), np.ones(2, int)),
        (np.zeros((3, 2), int), np.ones(4, int)),
        (np.zeros((3, 2), int), np.ones(0, int)),
        (np.zeros((3, 2), int), np.ones((3, 1), int)),
        (np.zeros((3, 2), int), np.ones((1, 3), int)),
        (np.zeros((3, 2), int), 1),
        (np.zeros((0, 2), int), np.ones(1, int)),
        (np.zeros((0, 3), int), np.ones(0, int)),
        ([[0, 0], [0]], [1, 1]),
        (0, 1),
        (None, None),
    ],
    ids=lambda value: f"{np.shape(value)}" if isinstance(value, np.ndarray) else f"{value}",
)
def test_wrong_shapes_are_refused(bins: object, counts: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Plain([5, 9], 3).codec.encode(bins, counts)


@pytest.mark.parametrize(
    "bins",
    [
        np.array([[1.0, 2.0]]),
        np.array([[1.5, 2.0]]),
        np.array([[np.nan, 2.0]]),
        np.array([[np.inf, 2.0]]),
        np.array([[1.0, 2.0]], dtype=np.float32),
        np.array([[1 + 0j, 2]]),
        np.array([["1", "2"]]),
        np.array([[1.5, 2]], dtype=object),
        [[1.0, 2]],
        [[None, 2]],
        [[2**70, 2]],
        [[-(2**70), 2]],
    ],
    ids=lambda value: f"{getattr(value, 'dtype', 'list')} {np.ravel(value)[0]}",
)
def test_bins_that_are_no_integers_are_refused(bins: object) -> None:
    with pytest.raises(ValueError, match="bin"):
        Plain([5, 9], 3).codec.encode(bins, np.array([1]))


@pytest.mark.parametrize(
    "counts",
    [
        np.array([1.5]),
        np.array([2.0]),
        np.array([np.nan]),
        np.array([np.inf]),
        np.array([1 + 1j]),
        np.array(["1"]),
        np.array([1.5], dtype=object),
        [None],
        [2**70],
        [-(2**70)],
    ],
    ids=lambda value: f"{getattr(value, 'dtype', 'list')} {value[0]}",
)
def test_counts_that_are_no_integers_or_too_large_are_refused(counts: object) -> None:
    with pytest.raises(ValueError, match="count"):
        Plain([5, 9], 3).codec.encode(np.array([[1, 2]]), counts)


@pytest.mark.parametrize(
    "wrong",
    [
        {"levels": []},
        {"levels": [5, 0]},
        {"levels": [5, -3]},
        {"levels": [5.5, 3.0]},
        {"levels": [[5, 3]]},
        {"levels": 5},
        {"capacity": 0},
        {"capacity": -1},
        {"capacity": 1.5},
        {"spare": -1},
        {"spare": 0.5},
        {"max_count": 0},
        {"max_count": -5},
        {"max_count": P // 2 + 1},
        {"max_count": P, "signed": False},
        {"salt": "a string"},
        {"salt": None},
    ],
    ids=lambda wrong: " ".join(f"{name}={value!r}" for name, value in wrong.items()),
)
def test_codecs_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    """With counts beyond p / 2 a residue would stand for two counts of opposite sign."""
    good = {"levels": [5, 3], "capacity": 2, "salt": SALT}
    scma.Codec(**good)
    with pytest.raises((TypeError, ValueError)) as caught:
        scma.Codec(**{**good, **wrong})
    assert re.search(next(iter(wrong)), str(caught.value))
