"""The paper's own SCMA: both decoders find the sum of the clients, or say that they cannot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import log2
from random import Random

import numpy as np
import pytest
from flint import fmpq, fmpz_mod_ctx, fmpz_mod_poly_ctx, fmpz_poly
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.scma.literal import (
    DeterministicScheme,
    LiteralScheme,
    UndecodableError,
    berlekamp_massey,
    integer_roots,
    power_sums,
)

Scheme = LiteralScheme | DeterministicScheme
SCHEMES = pytest.mark.parametrize("kind", [LiteralScheme, DeterministicScheme])


@dataclass(frozen=True)
class Federation:
    n_bins: int
    clients: list[dict[int, int]]

    @property
    def counts(self) -> dict[int, int]:
        added: Counter[int] = Counter()
        for client in self.clients:
            added.update(client)
        return dict(sorted(added.items()))

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@st.composite
def federations(draw: st.DrawFn, min_bins: int = 0) -> Federation:
    """Clients that share some of their bins; the first and the last bin are favourites."""
    largest = draw(st.sampled_from([max(1, min_bins), 5, 64, 10**6, 2**64, 2**90 + 1]))
    n_bins = draw(st.integers(max(1, min_bins), largest))
    anywhere = st.one_of(st.integers(1, n_bins), st.sampled_from([1, n_bins]))
    size = draw(st.integers(min_bins, max(min_bins, min(10, n_bins))))
    occupied = draw(st.lists(anywhere, min_size=size, max_size=size, unique=True))
    some_counts = st.one_of(st.integers(1, 9), st.integers(1, 10**12))
    clients: list[dict[int, int]] = [{} for _ in range(draw(st.integers(1, 4)))]
    for bin_ in occupied:
        holders = st.lists(st.integers(0, len(clients) - 1), min_size=1, unique=True)
        for holder in draw(holders):
            clients[holder][bin_] = draw(some_counts)
    return Federation(n_bins, clients)


def aggregate(scheme: Scheme, clients: list[dict[int, int]], seed: int = 0) -> list[int]:
    """What the server holds after every client has sent its masked sums."""
    masks = scheme.masks(len(clients), Random(seed))
    messages = [
        scheme.add(scheme.encode(counts), mask) for counts, mask in zip(clients, masks, strict=True)
    ]
    return scheme.add(*messages)


# The round trip


@settings(max_examples=150)
@given(
    federation=federations(),
    spare=st.sampled_from([0, 0, 1, 3]),
    unused=st.sampled_from([0, 0, 1, 1000]),
    seed=st.integers(0, 100),
)
def test_both_decoders_find_the_sum_of_the_clients(
    federation: Federation, spare: int, unused: int, seed: int
) -> None:
    """Without spare capacity T is reached exactly, without unused records so is n."""
    capacity = max(1, len(federation.counts) + spare)
    total = max(1, federation.total + unused)
    for kind in (LiteralScheme, DeterministicScheme):
        scheme = kind(federation.n_bins, capacity, total)
        decoded = scheme.decode(aggregate(scheme, federation.clients, seed))
        assert list(decoded.items()) == list(federation.counts.items())


@pytest.mark.parametrize(
    ("kind", "n_bins", "capacity"),
    [
        (LiteralScheme, 110**10, 100),
        (LiteralScheme, 123**52, 30),
        (DeterministicScheme, 1000, 30),
        (DeterministicScheme, 110**10, 16),
    ],
)
def test_large_federations(kind: type[Scheme], n_bins: int, capacity: int, seed: int) -> None:
    rng = Random(seed)
    bins: list[int] = []
    while len(bins) < capacity:
        bins = list({*bins, rng.randint(1, n_bins)})
    clients = [{j: rng.randint(1, 50) for j in rng.sample(bins, 12)} for _ in range(4)]
    clients.append(dict.fromkeys(bins, 1))
    federation = Federation(n_bins, clients)
    scheme = kind(n_bins, capacity, federation.total)
    assert scheme.decode(aggregate(scheme, clients, seed)) == federation.counts


@SCHEMES
@pytest.mark.parametrize(
    ("n_bins", "clients", "expected"),
    [
        (1, [{}], {}),
        (1, [{1: 7}], {1: 7}),
        (9, [{}, {}, {}], {}),
        (9, [{9: 4}, {}, {9: 3}], {9: 7}),
        (9, [{1: 7}], {1: 7}),
        (2, [{1: 1}, {2: 6}], {1: 1, 2: 6}),
    ],
)
def test_edge_cases(
    kind: type[Scheme], n_bins: int, clients: list[dict[int, int]], expected: dict[int, int]
) -> None:
    scheme = kind(n_bins, 2, 7)
    assert scheme.decode(aggregate(scheme, clients)) == expected


def test_exactly_the_encodings_are_decoded_in_a_small_field() -> None:
    """Four bins, T = 2, n = 4: 1 + 4·4 + 6·6 multisets among the 5⁴ vectors."""
    scheme = LiteralScheme(4, 2, 4)
    assert scheme.modulus == 5
    decoded = {}
    for vector in product(range(5), repeat=4):
        try:
            decoded[vector] = scheme.decode(vector)
        except UndecodableError:
            continue
    assert len(decoded) == 1 + 4 * 4 + 6 * 6
    assert all(tuple(scheme.encode(counts)) == vector for vector, counts in decoded.items())


def test_exactly_the_encodings_are_decoded_over_the_integers() -> None:
    """Two bins, T = 1, n = 4: 1 + 2·4 multisets among the 9² vectors."""
    scheme = DeterministicScheme(2, 1, 4)
    assert scheme.modulus == 9
    decoded = {}
    for vector in product(range(9), repeat=2):
        try:
            decoded[vector] = scheme.decode(vector)
        except UndecodableError:
            continue
    assert len(decoded) == 1 + 2 * 4
    assert all(tuple(scheme.encode(counts)) == vector for vector, counts in decoded.items())


@SCHEMES
@given(data=st.data())
def test_any_vector_is_decoded_to_its_own_sums_or_refused(
    kind: type[Scheme], data: st.DataObject
) -> None:
    scheme = kind(20, 3, 30)
    entries = st.one_of(st.integers(0, 40), st.integers(0, scheme.modulus - 1))
    vector = data.draw(st.lists(entries.map(lambda s: s % scheme.modulus), min_size=6, max_size=6))
    try:
        decoded = scheme.decode(vector)
    except UndecodableError:
        return
    assert scheme.encode(decoded) == vector


@SCHEMES
def test_a_double_root_is_refused(kind: type[Scheme]) -> None:
    """The sums i·2^i obey a recurrence of length two whose polynomial is (x - 2)²."""
    scheme = kind(20, 2, 30)
    with pytest.raises(UndecodableError):
        scheme.decode([0, 2, 8, 24])


@SCHEMES
def test_a_recurrence_longer_than_the_capacity_is_refused(kind: type[Scheme]) -> None:
    with pytest.raises(UndecodableError, match="more than 2 bins"):
        kind(20, 2, 30).decode([0, 0, 0, 1])


def test_fractional_counts_are_refused() -> None:
    """3/2 records in bin 1 and 5/2 in bin 3 have sums of integers."""
    with pytest.raises(UndecodableError, match="no counts"):
        DeterministicScheme(3, 2, 9).decode([4, 9, 24, 69])


# Over capacity


@settings(max_examples=150)
@given(federation=federations(min_bins=2), missing=st.integers(1, 3))
def test_over_capacity_is_never_taken_for_the_truth(federation: Federation, missing: int) -> None:
    """Refused, or the counts of other bins that have the very same sums."""
    capacity = max(1, len(federation.counts) - missing)
    for kind in (LiteralScheme, DeterministicScheme):
        scheme = kind(federation.n_bins, capacity, federation.total)
        single_bins = [{j: q} for j, q in federation.counts.items()]
        sums = aggregate(scheme, single_bins)
        try:
            decoded = scheme.decode(sums)
        except UndecodableError:
            continue
        assert decoded != federation.counts
        assert scheme.encode(decoded) == sums


@SCHEMES
@pytest.mark.parametrize(
    "counts",
    [
        {1: 1, 2: 3, 3: 1, 5: 2},
        {2: 1, 3: 1, 5: 1, 7: 1},
        {1: 1, 2: 1, 3: 1, 4: 1, 5: 1},
        {j: j for j in range(1, 30)},
    ],
)
def test_over_capacity_is_refused(kind: type[Scheme], counts: dict[int, int]) -> None:
    scheme = kind(30, 3, 1000)
    with pytest.raises(UndecodableError):
        scheme.decode(aggregate(scheme, [{j: q} for j, q in counts.items()]))


@SCHEMES
def test_over_capacity_can_go_unnoticed(kind: type[Scheme]) -> None:
    """2T equations are no more than T bins need: two bins have the sums of the one between."""
    scheme = kind(3, 1, 2)
    assert scheme.decode(aggregate(scheme, [{1: 1}, {3: 1}])) == {2: 2}


def test_only_the_integers_tell_these_two_bins_from_one() -> None:
    """Their mean, 3/2, is no bin, but it is 4 modulo 5."""
    literal, deterministic = LiteralScheme(4, 1, 2), DeterministicScheme(4, 1, 2)
    assert literal.decode(aggregate(literal, [{1: 1}, {2: 1}])) == {4: 2}
    with pytest.raises(UndecodableError, match="not integers"):
        deterministic.decode(aggregate(deterministic, [{1: 1}, {2: 1}]))


# Where the paper is imprecise


@pytest.mark.parametrize(("n", "p"), [(2, 2), (13, 13)])
def test_a_prime_equal_to_the_total_loses_a_full_bin(n: int, p: int) -> None:
    """The paper asks for p ≥ n only."""
    assert power_sums({1: n}, 4, p) == power_sums({}, 4, p)
    with pytest.raises(ValueError, match="exceed both"):
        LiteralScheme(n_bins=2, capacity=2, total=n, modulus=p)


@pytest.mark.parametrize("p", [2, 5])
def test_a_prime_equal_to_the_number_of_bins_loses_the_last_one(p: int) -> None:
    """The paper asks for p ≥ B^d only: its last bin is 0, and 1 - 0·x has no root."""
    sums = power_sums({p: 1}, 2, p)
    assert sums == [1, 0]
    field = fmpz_mod_ctx(p)
    g = berlekamp_massey([field(s) for s in sums])
    assert g == [1, 0]
    assert fmpz_mod_poly_ctx(field)(g).degree() == 0
    with pytest.raises(ValueError, match="exceed both"):
        LiteralScheme(n_bins=p, capacity=1, total=1, modulus=p)


def appendix_bound(n_bins: int, capacity: int, total: int) -> int:
    return max(capacity * n_bins ** (2 * capacity), total) + 1


def test_the_appendix_takes_too_small_a_modulus() -> None:
    """Five records in bin 3 of three have the sums of five records in bin 1, modulo p' = 10."""
    modulus = appendix_bound(n_bins=3, capacity=1, total=5)
    assert modulus == 10
    assert power_sums({3: 5}, 2, modulus) == power_sums({1: 5}, 2, modulus)
    with pytest.raises(ValueError, match="largest sum, 15"):
        DeterministicScheme(3, 1, 5, modulus)
    scheme = DeterministicScheme(3, 1, 5)
    assert scheme.modulus == 16
    assert scheme.decode(scheme.encode({3: 5})) == {3: 5}


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 100))
def test_the_appendix_modulus_serves_up_to_a_number_of_records(
    n_bins: int, capacity: int, total: int
) -> None:
    bound = appendix_bound(n_bins, capacity, total)
    largest_sum = total * n_bins ** (2 * capacity - 1)
    if total <= capacity * n_bins:
        assert largest_sum < bound
        assert DeterministicScheme(n_bins, capacity, total).modulus == bound
    elif n_bins > 1:
        assert largest_sum >= bound
        assert DeterministicScheme(n_bins, capacity, total).modulus == largest_sum + 1


def test_a_message_can_exceed_the_papers_bound_on_its_length() -> None:
    """Rounding up costs a bit for each of the 2KL sums, not one bit for all."""
    n = n_bins = 4
    assert LiteralScheme(n_bins, 1, n).bits == 6 > max(2 * log2(n), 2 * log2(n_bins)) + 1


def test_the_papers_example_is_longer_than_the_vector_that_it_compresses() -> None:
    scheme = LiteralScheme(n_bins=4, capacity=4, total=12)
    assert scheme.bits == 8 * 4 > scheme.n_bins * 4


def test_rational_coefficients_outgrow_the_modulus() -> None:
    """The appendix counts operations on numbers of log p' bits, but not Berlekamp-Massey's."""
    scheme = DeterministicScheme(n_bins=6, capacity=3, total=6)
    sums = [fmpq(s) for s in scheme.encode({1: 1, 2: 2, 6: 3})]
    assert max(c.height_bits() for c in berlekamp_massey(sums)) == 5
    assert max(c.height_bits() for c in berlekamp_massey(sums[:-1])) == 19
    assert scheme.modulus.bit_length() == 18


# Berlekamp-Massey


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ([0, 0, 0, 0], [1]),
        ([5, 5, 5, 5], [1, -1]),
        ([3, 6, 12, 24], [1, -2]),
        ([0, 1, 1, 2, 3, 5], [1, -1, -1]),
        ([1, 0, 0, 0], [1, 0]),
        ([0, 0, 1], [1, 0, 0, -1]),
        ([1, 2, 5], [1, -2, -1]),
        ([2, 3], [1, fmpq(-3, 2)]),
        ([0, 1, 4, 9, 16, 25], [1, -3, 3, -1]),
    ],
)
def test_recurrences_worked_by_hand(sequence: list[int], expected: list[int]) -> None:
    assert berlekamp_massey([fmpq(s) for s in sequence]) == expected


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        berlekamp_massey([])


def generates(g: tuple[int, ...], sequence: tuple[int, ...], p: int) -> bool:
    m = len(g) - 1
    return all(
        sum(g[k] * sequence[i - k] for k in range(m + 1)) % p == 0 for i in range(m, len(sequence))
    )


def test_every_short_sequence_has_no_shorter_recurrence() -> None:
    """All sequences of five elements of F_3, against all recurrences."""
    field = fmpz_mod_ctx(3)
    for sequence in product(range(3), repeat=5):
        g = tuple(int(c) for c in berlekamp_massey([field(s) for s in sequence]))
        assert g[0] == 1
        assert generates(g, sequence, 3)
        assert not any(
            generates((1, *rest), sequence, 3)
            for length in range(len(g) - 1)
            for rest in product(range(3), repeat=length)
        )


@given(st.sampled_from([2, 13, 2**89 - 1]), st.data())
def test_the_recurrence_is_flints_minimal_polynomial_reversed(p: int, data: st.DataObject) -> None:
    field = fmpz_mod_ctx(p)
    elements = st.one_of(st.just(0), st.integers(0, p - 1)).map(field)
    start = data.draw(st.lists(elements, min_size=1, max_size=6))
    taps = data.draw(st.lists(elements, min_size=len(start), max_size=len(start)))
    sequence = start
    while len(sequence) < 2 * len(taps):
        recent = sequence[len(sequence) - len(taps) :]
        sequence = [*sequence, sum((c * s for c, s in zip(taps, recent, strict=True)), field(0))]
    h = fmpz_mod_poly_ctx(field).minpoly(sequence)
    assert berlekamp_massey(sequence) == h.coeffs()[::-1]


# Roots by bisection


def polynomial(roots: list[int]) -> fmpz_poly:
    h = fmpz_poly([1])
    for root in roots:
        h *= fmpz_poly([-root, 1])
    return h


@settings(max_examples=300)
@given(
    last=st.one_of(st.integers(1, 20), st.integers(1, 2**80)),
    mirrored=st.booleans(),
    data=st.data(),
)
def test_bisection_finds_all_bins(last: int, mirrored: bool, data: st.DataObject) -> None:
    """Mirrored bins put a root of h' in the very middle of the search."""
    bins = set(data.draw(st.lists(st.integers(1, last), max_size=12)))
    if mirrored:
        bins |= {last + 1 - j for j in bins}
    assert integer_roots(polynomial(sorted(bins)), last) == sorted(bins)


@pytest.mark.parametrize("size", range(9))
def test_bisection_finds_any_bins_among_eight(size: int) -> None:
    for chosen in product([False, True], repeat=8):
        bins = [j for j, taken in enumerate(chosen, start=1) if taken]
        if len(bins) == size:
            assert integer_roots(polynomial(bins), 8) == bins


def test_the_last_bin_is_a_root_and_not_positive() -> None:
    """The appendix has h(B^d) > 0."""
    h = polynomial([4])
    assert h(4) == 0
    assert integer_roots(h, 4) == [4]


def test_roots_of_the_derivative_need_not_be_integers() -> None:
    """h' = 2x - 3, and h is zero, not negative, at the integers next to 3/2."""
    h = polynomial([1, 2])
    assert h.derivative() == fmpz_poly([-3, 2])
    assert [h(1), h(2)] == [0, 0]
    assert integer_roots(h, 2) == [1, 2]


def test_the_first_root_of_the_derivative_may_be_on_a_hill() -> None:
    """h'(4) = 0 and h(4) > 0 in the middle of [0, 8]: there is a valley on either side."""
    h = polynomial([1, 2, 6, 7])
    assert h.derivative()(4) == 0 < h(4)
    assert integer_roots(h, 7) == [1, 2, 6, 7]


@pytest.mark.parametrize(
    "h",
    [
        polynomial([9]),
        polynomial([0]),
        polynomial([-3, 5]),
        polynomial([3, 9]),
        polynomial([2, 2]),
        polynomial([2, 5, 5]),
        fmpz_poly([1, 0, 1]),
        fmpz_poly([-2, 0, 1]),
        fmpz_poly([-2, 0, 0, 1]),
        fmpz_poly([3, 0, -4, 0, 1]),
        fmpz_poly([100, 0, -4, 0, 1]),
        fmpz_poly([14, -8, 1]),  # 4 ± √2
        fmpz_poly([5, -1, 0, 2, 1]),  # h' turns right above 0, where h > 0
    ],
)
def test_other_roots_are_refused(h: fmpz_poly) -> None:
    with pytest.raises(UndecodableError):
        integer_roots(h, 8)


# Masks, messages and limits


@SCHEMES
@pytest.mark.parametrize("n_clients", [1, 2, 5])
def test_masks_cancel(kind: type[Scheme], n_clients: int, seed: int) -> None:
    scheme = kind(50, 3, 20)
    masks = scheme.masks(n_clients, Random(seed))
    assert len(masks) == n_clients
    assert all(0 <= z < scheme.modulus for mask in masks for z in mask)
    assert scheme.add(*masks) == [0] * 6
    assert len({tuple(mask) for mask in masks}) == n_clients


def test_masks_take_every_value() -> None:
    """5,000 of each of two masks: missing one of five values has probability below 10⁻⁴⁸⁰."""
    scheme = LiteralScheme(4, 2500, 4)
    for mask in scheme.masks(2, Random(1)):
        assert set(mask) == set(range(5))


def test_a_masked_message_is_not_the_encoding() -> None:
    scheme = LiteralScheme(1000, 3, 20)
    mask, _ = scheme.masks(2, Random(1))
    plain_sums = scheme.encode({7: 2})
    assert all(
        masked != s for masked, s in zip(scheme.add(plain_sums, mask), plain_sums, strict=True)
    )


def test_bits_at_the_papers_datasets() -> None:
    """B = √n; Celltype has n = 12,009 records in 10 dimensions, Covtype 15,120 in 52."""
    assert LiteralScheme(12_009**5, 40, 12_009).bits == 80 * 68
    assert LiteralScheme(15_120**26, 70, 15_120).bits == 140 * 361
    assert DeterministicScheme(12_009**5, 40, 12_009).bits == 80 * (40 * 12_009**400).bit_length()


def test_bits_are_those_of_the_largest_element() -> None:
    """p' = 2⁴ + 1 has elements up to 2⁴, which is five bits; 2⁴ has elements of four."""
    assert DeterministicScheme(2, 1, 8, modulus=17).bits == 2 * 5
    assert DeterministicScheme(2, 1, 7, modulus=16).bits == 2 * 4


def test_numpy_integers_do_not_overflow() -> None:
    counts = {np.int64(10**6): np.int64(5), np.int64(3): np.int64(2)}
    plain_counts = {10**6: 5, 3: 2}
    for kind in (LiteralScheme, DeterministicScheme):
        scheme = kind(10**6, 5, 10)
        assert scheme.encode(counts) == scheme.encode(plain_counts)
        assert scheme.decode(np.array(scheme.encode(plain_counts), object)) == plain_counts


@SCHEMES
@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ({0: 1}, "bin 0"),
        ({-1: 1}, "bin -1"),
        ({10: 1}, "bin 10"),
        ({4: 0}, "count of bin 4"),
        ({4: -2}, "count of bin 4"),
        ({4: 9}, "total of 8"),
        ({4: 5, 5: 4}, "total of 8"),
        ({1: 1, 2: 1, 3: 1}, "capacity of 2"),
    ],
)
def test_counts_outside_of_the_limits_are_refused(
    kind: type[Scheme], counts: dict[int, int], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        kind(9, 2, 8).encode(counts)


@SCHEMES
def test_vectors_of_another_scheme_are_refused(kind: type[Scheme]) -> None:
    scheme = kind(9, 2, 8)
    for vector in ([0, 0, 0], [0] * 6, [0, 0, 0, scheme.modulus], [-1, 0, 0, 0]):
        with pytest.raises(UndecodableError, match="expected 4 sums"):
            scheme.decode(vector)
    with pytest.raises(ValueError, match="shorter"):
        scheme.add([0, 0, 0])


@SCHEMES
@pytest.mark.parametrize("limits", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_limits_are_positive(kind: type[Scheme], limits: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        kind(*limits)


def test_moduli_and_numbers_of_clients_are_checked() -> None:
    with pytest.raises(ValueError, match="prime, got 15"):
        LiteralScheme(9, 2, 8, modulus=15)
    with pytest.raises(ValueError, match="largest sum, 5832"):
        DeterministicScheme(9, 2, 8, modulus=5832)
    with pytest.raises(ValueError, match="one client at least"):
        LiteralScheme(9, 2, 8).masks(0, Random(0))
