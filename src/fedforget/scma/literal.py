"""SCMA as the paper has it, exact and slow: the oracle for the fast code, and the reproduction.

Bins are numbered 1, ..., N (the paper's B^d).  A client with q_j records in bin j sends 2T masked
power sums S_i = Σ_j q_j·j^i, i = 0, ..., 2T - 1; the masks cancel in the sum over the clients, and
the sums of at most T bins determine the bins and their counts.  Both of the paper's decoders are
here: :class:`LiteralScheme` is Alg. 2 over a prime field, :class:`DeterministicScheme` its
appendix's variant over the integers.

Two clients with two clusters each (K = L = 2, so T = 4), four bins, twelve records: p = 13.

>>> scheme = LiteralScheme(n_bins=4, capacity=4, total=12)
>>> scheme.modulus
13

Each client takes its sums; the second entry of the first client is 4·1 + 2·3 = 10.

>>> first, second = scheme.encode({1: 4, 3: 2}), scheme.encode({3: 1, 4: 5})
>>> first, second
([6, 10, 9, 6, 10, 9, 6, 10], [6, 10, 11, 9, 9, 7, 6, 10])

It adds a mask; the masks of all clients together are zero modulo p.

>>> mask = [3, 1, 4, 1, 5, 9, 2, 6]
>>> opposite = [-z % 13 for z in mask]
>>> messages = scheme.add(first, mask), scheme.add(second, opposite)
>>> messages
([9, 11, 0, 7, 2, 5, 8, 3], [3, 9, 7, 8, 4, 11, 4, 4])

The server adds what it received, and has the sums of 4, 3 and 5 records in bins 1, 3 and 4.

>>> sums = scheme.add(*messages)
>>> sums
[12, 7, 7, 2, 6, 3, 12, 7]

The shortest recurrence that the sums obey is g(x) = (1 - x)(1 - 3x)(1 - 4x), modulo 13, ...

>>> field = fmpz_mod_ctx(13)
>>> g = berlekamp_massey([field(s) for s in sums])
>>> [int(c) for c in g]
[1, 5, 6, 1]

... the reciprocals of whose roots 1, 9 and 10 are the bins ...

>>> roots = sorted(int(x) for x, _ in fmpz_mod_poly_ctx(field)(g).roots())
>>> roots, [pow(x, -1, 13) for x in roots]
([1, 9, 10], [1, 3, 4])

... and with the bins known, the counts solve linear equations.

>>> scheme.decode(sums)
{1: 4, 3: 3, 4: 5}

Where the paper is imprecise, this is what is done instead:

- p is larger than n and B^d, not equal to either.  A bin that holds n = p records would vanish,
  and bin p is 0 in the field: it has no reciprocal, and its factor of g is 1.
- The appendix's p' is claimed to exceed every sum.  The largest sum is n·(B^d)^(2T - 1), which the
  appendix's bound covers only while n ≤ T·B^d.
- The roots of h' need not be integers, and h may be zero where the appendix wants a sign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from random import Random
from typing import TypeVar

from flint import fmpq, fmpz, fmpz_mod, fmpz_mod_ctx, fmpz_mod_poly_ctx, fmpz_poly

from fedforget.errors import FedforgetError

Element = TypeVar("Element", fmpz_mod, fmpq)


class UndecodableError(FedforgetError, ValueError):
    """Sums that belong to no multiset within the scheme's limits."""


def power_sums(counts: Mapping[int, int], length: int, modulus: int) -> list[int]:
    """Σ_j q_j·j^i modulo ``modulus`` for i = 0, ..., ``length`` - 1.

    >>> power_sums({2: 5, 10: 1}, 4, 1000)
    [6, 20, 120, 40]
    """
    sums = [0] * length
    for bin_, count in counts.items():
        # NumPy's integers would overflow without a word.
        factor, term = int(bin_), int(count)
        for i in range(length):
            sums[i] = (sums[i] + term) % modulus
            term = term * factor % modulus
    return sums


def berlekamp_massey(sequence: Sequence[Element]) -> list[Element]:
    """The shortest linear recurrence that generates a sequence over a field (Massey 1969).

    Returns
    -------
    The coefficients 1, c_1, ..., c_m of g(x), so that s_i + c_1·s_(i-1) + ... + c_m·s_(i-m) = 0 for
    i = m, m + 1, ...  Trailing zeros are kept, so that the length tells m even where g has a lower
    degree.

    Examples
    --------
    The Fibonacci numbers obey s_i - s_(i-1) - s_(i-2) = 0.

    >>> [int(c) for c in berlekamp_massey([fmpq(s) for s in (1, 1, 2, 3, 5, 8)])]
    [1, -1, -1]
    """
    if not sequence:
        raise ValueError("an empty sequence has no field to compute in")
    zero, one = sequence[0] * 0, sequence[0] ** 0
    # before: g before it last grew; miss: by how much that one missed; age: the steps since.
    g, before, miss, age = [one], [one], one, 1
    for i, term in enumerate(sequence):
        off = sum((c * s for c, s in zip(g[1:], reversed(sequence[:i]), strict=False)), term)
        if off == 0:
            age += 1
            continue
        correction = [zero] * age + [off / miss * c for c in before]
        better = [c - d for c, d in zip_longest(g, correction, fillvalue=zero)]
        if len(better) > len(g):
            before, miss, age = g, off, 1
        else:
            age += 1
        g = better
    return g


def solve_counts(
    h: Sequence[Element], bins: Sequence[Element], sums: Sequence[Element]
) -> list[Element]:
    """Solve Σ_j q_j·j^i = S_i for q, where h(x) = Π_j (x - j), lowest coefficient first.

    h(x)/(x - j) vanishes at every bin except j, where it is h'(j).  Its coefficients therefore
    combine the sums into h'(j)·q_j.
    """
    counts = []
    for j in bins:
        coefficient = h[-1]
        combined = slope = coefficient * 0
        for k in range(len(h) - 2, -1, -1):
            combined += coefficient * sums[k]
            slope = slope * j + coefficient
            coefficient = coefficient * j + h[k]
        counts.append(combined / slope)
    return counts


def integer_roots(h: fmpz_poly, last: int) -> list[int]:
    """The roots of h, if they are distinct integers in 1, ..., ``last``, by the appendix's search.

    The appendix takes h(``last``) > 0, but ``last`` may be a root: the search ends one later.

    Raises
    ------
    UndecodableError
        If h has any other root.

    Examples
    --------
    >>> integer_roots(fmpz_poly([-30, 31, -10, 1]), 7)
    [2, 3, 5]
    """
    roots: list[int] = []
    while h.degree() > 0:
        turns = [] if h.degree() % 2 else _turns(h, h.derivative(), 0, last + 1)
        found = [_crossing(h, *ends) for ends in pairwise([0, *turns, last + 1])]
        for root in found:
            h, remainder = divmod(h, fmpz_poly([-root, 1]))
            if remainder or root < 1 or root in roots:
                raise UndecodableError("the roots of the bins' polynomial are not distinct bins")
            roots.append(root)
    return sorted(roots)


def _turns(h: fmpz_poly, slope: fmpz_poly, low: int, high: int) -> list[int]:
    """Places between the roots of an h of even degree: h ≤ 0, h > 0, h ≤ 0, ..., h ≤ 0 there.

    The roots of h' need not be integers.  Rounded down they serve as well, because a root of h that
    is an integer is not passed by rounding; but it may be met, so that h = 0 counts as negative.
    """
    turn = _crossing(slope, low, high)
    if h(turn) <= 0:
        return [turn]
    # A search that follows the signs of h' from - to + ends in a valley of h, where h ≤ 0.  Only a
    # root of h' that is hit exactly can be a hill, and then there is a valley on either side.
    return [*_turns(h, slope, low, turn - 1), turn, *_turns(h, slope, turn + 1, high)]


def _crossing(f: fmpz_poly, low: int, high: int) -> int:
    """A root of f, or the integer next to one where f < 0; f is positive at one end only."""
    rising = f(high) > 0
    if low >= high or rising == (f(low) > 0):
        raise UndecodableError(
            "the bins' polynomial does not have the signs that bins would give it"
        )
    while high - low > 1:
        middle = (low + high) // 2
        value = f(middle)
        if value == 0:
            return middle
        if (value > 0) == rising:
            high = middle
        else:
            low = middle
    return low if rising else high


@dataclass(frozen=True)
class _Scheme(ABC):
    """What the two schemes share: everything except the modulus and the solution of the
    equations."""

    n_bins: int
    capacity: int
    total: int
    modulus: int = 0

    def __post_init__(self) -> None:
        if min(self.n_bins, self.capacity, self.total) < 1:
            raise ValueError(f"bins, capacity and total must be positive: {self}")
        if self.modulus == 0:
            object.__setattr__(self, "modulus", self._smallest_modulus())

    @abstractmethod
    def _smallest_modulus(self) -> int: ...

    @abstractmethod
    def _solve(self, sums: Sequence[int]) -> dict[int, int]:
        """Bins and counts; right whenever there is a right answer, otherwise anything or an
        error."""

    @property
    def bits(self) -> int:
        """The length of a client's message."""
        return 2 * self.capacity * (self.modulus - 1).bit_length()

    def encode(self, counts: Mapping[int, int]) -> list[int]:
        """The 2T sums of a client that has ``counts[j]`` records in bin j (1-based)."""
        if len(counts) > self.capacity:
            raise ValueError(f"{len(counts)} bins are more than the capacity of {self.capacity}")
        for bin_, count in counts.items():
            if not 1 <= bin_ <= self.n_bins:
                raise ValueError(f"bin {bin_} is not one of 1, ..., {self.n_bins}")
            if count < 1:
                raise ValueError(f"the count of bin {bin_} must be positive, got {count}")
        if sum(counts.values()) > self.total:
            raise ValueError(f"the counts exceed the federation's total of {self.total} records")
        return power_sums(counts, 2 * self.capacity, self.modulus)

    def masks(self, n_clients: int, rng: Random) -> list[list[int]]:
        """A mask for each client; all except the last are uniform, and together they are zero.

        The masks hide only as much as ``rng`` does: outside of experiments, ``SystemRandom``.
        """
        if n_clients < 1:
            raise ValueError(f"masks are for one client at least, got {n_clients}")
        length = 2 * self.capacity
        drawn = [[rng.randrange(self.modulus) for _ in range(length)] for _ in range(n_clients - 1)]
        return [*drawn, [-z % self.modulus for z in self.add(*drawn)]]

    def add(self, *vectors: Sequence[int]) -> list[int]:
        """The sum of encodings, masks or messages."""
        zeros = [0] * (2 * self.capacity)
        return [sum(column) % self.modulus for column in zip(zeros, *vectors, strict=True)]

    def decode(self, vector: Sequence[int]) -> dict[int, int]:
        """The counts of the occupied bins, in the order of the bins.

        All 2T equations are used up by T bins.  The sums of more than T bins may therefore be those
        of other T bins or fewer, and no decoder can tell; otherwise they are refused.

        Raises
        ------
        UndecodableError
            If no counts within the scheme's limits have these sums.
        """
        sums = [int(s) for s in vector]
        if len(sums) != 2 * self.capacity or not all(0 <= s < self.modulus for s in sums):
            raise UndecodableError(
                f"expected {2 * self.capacity} sums below {self.modulus}; do the schemes agree?"
            )
        counts = dict(sorted(self._solve(sums).items()))
        try:
            agrees = self.encode(counts) == sums
        except ValueError as error:
            raise UndecodableError(f"the sums lead to impossible counts: {error}") from error
        if not agrees:
            raise UndecodableError(f"no counts of at most {self.capacity} bins have these sums")
        return counts

    def _check_degree(self, degree: int) -> None:
        if degree > self.capacity:
            raise UndecodableError(f"more than {self.capacity} bins are occupied; raise capacity")


class LiteralScheme(_Scheme):
    """Alg. 2 as printed, over the integers modulo a prime p > max(n, B^d).

    Parameters
    ----------
    n_bins : B^d, the number of bins.
    capacity : T, the most bins that all clients together can occupy (the paper's KL).
    total : n, the most records that all clients together can hold.
    modulus : the prime p; by default the smallest that will do.  The search for a prime of 6,000
        bits takes half a minute.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.modulus <= max(self.n_bins, self.total):
            raise ValueError("the modulus must exceed both the number of bins and the total")
        if not fmpz(self.modulus).is_probable_prime():
            raise ValueError(f"the modulus must be a prime, got {self.modulus}")

    def _smallest_modulus(self) -> int:
        candidate = fmpz(max(self.n_bins, self.total) + 1)
        while not candidate.is_probable_prime():
            candidate += 1
        return int(candidate)

    def _solve(self, sums: Sequence[int]) -> dict[int, int]:
        field = fmpz_mod_ctx(self.modulus)
        elements = [field(s) for s in sums]
        # FLINT's Berlekamp-Massey returns h(x) = x^m·g(1/x), whose roots are the bins themselves.
        h = fmpz_mod_poly_ctx(field).minpoly(elements)
        self._check_degree(h.degree())
        bins = [root for root, _ in h.roots()]
        if len(bins) < h.degree():
            raise UndecodableError("the roots of the bins' polynomial are not distinct bins")
        counts = solve_counts(h.coeffs(), bins, elements)
        return {int(j): int(q) for j, q in zip(bins, counts, strict=True)}


class DeterministicScheme(_Scheme):
    """The appendix's variant: a modulus p' beyond every sum, and a decoder that draws no numbers.

    No sum wraps around, so the server computes in the rationals, and finds the bins by bisection.
    A message is about 2T times as long as that of Alg. 2.  Most of the time goes into
    Berlekamp-Massey, whose fractions grow to some 3T/4 times the length of p' before they cancel:
    seconds at T = 40 for bins of 68 bits, and 30 times that for twice the bins.

    Parameters
    ----------
    n_bins, capacity, total : as for :class:`LiteralScheme`.
    modulus : p', any number above every possible sum; by default the appendix's bound, raised where
        it is too small.

    Examples
    --------
    >>> scheme = DeterministicScheme(n_bins=4, capacity=4, total=12)
    >>> sums = scheme.add(scheme.encode({1: 4, 3: 2}), scheme.encode({3: 1, 4: 5}))
    >>> sums
    [12, 33, 111, 405, 1527, 5853, 22671, 88485]
    >>> scheme.decode(sums)
    {1: 4, 3: 3, 4: 5}
    >>> scheme.bits, LiteralScheme(n_bins=4, capacity=4, total=12).bits
    (152, 32)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.modulus <= self._largest_sum:
            raise ValueError(f"the modulus must exceed the largest sum, {self._largest_sum}")

    @property
    def _largest_sum(self) -> int:
        # All records in the last bin, and the highest power.
        return self.total * int(self.n_bins ** (2 * self.capacity - 1))

    def _smallest_modulus(self) -> int:
        of_the_appendix = self.capacity * int(self.n_bins ** (2 * self.capacity))
        return 1 + max(of_the_appendix, self._largest_sum)

    def _solve(self, sums: Sequence[int]) -> dict[int, int]:
        elements = [fmpq(s) for s in sums]
        g = berlekamp_massey(elements)
        self._check_degree(len(g) - 1)
        if any(c.denominator != 1 for c in g):
            raise UndecodableError("the bins' polynomial has coefficients that are not integers")
        h = g[::-1]
        bins = integer_roots(fmpz_poly([c.numerator for c in h]), self.n_bins)
        counts = solve_counts(h, [fmpq(j) for j in bins], elements)
        # Fractions are cut off here; the sums that decode() compares will then not agree.
        return {j: int(q) for j, q in zip(bins, counts, strict=True)}
