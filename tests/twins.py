"""Slow, plain twins of the compiled code: the oracles that it is tested against."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from scipy import stats

MASK = 2**64 - 1

ERROR_RATE = 1e-4
"""How often a test of fit may reject a right implementation, over all choices of seeds."""

Law = dict[tuple[int, ...], Fraction]
"""The probability of each outcome, such as seeds in the order of drawing."""


def siphash_128(key: bytes, message: bytes) -> bytes:
    """SipHash-2-4 with 128 bits of output, in Python integers."""

    def rotate(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (64 - bits))) & MASK

    def rounds(v: list[int], times: int) -> None:
        for _ in range(times):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    v[1] ^= 0xEE
    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(v, 4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(v, 4)
    return low.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


def draw(key0: int, key1: int, counter: int) -> int:
    z = (key0 + counter * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z ^= key1
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def uniform(bits: int) -> float:
    return min((float(bits) + 0.5) * 2.0**-64, 1.0 - 2.0**-53)


def exponential(u: float) -> float:
    """The series of the kernel, operation by operation."""
    doublings = 0.0
    if u < 0.25:
        s = u / (2.0 - u)
    else:
        m = 1.0 - u
        while m < 0.7071067811865476:
            m *= 2.0
            doublings += 1.0
        s = (1.0 - m) / (1.0 + m)
    z = s * s
    series = 0.0
    for term in range(12, 0, -1):
        series = (series + 1.0 / (2.0 * term + 1.0)) * z
    return doublings * 0.6931471805599453 + 2.0 * (s + s * series)


def squared_distance(x: Sequence[float], y: Sequence[float]) -> float:
    sums = [0.0] * 4
    whole = len(x) - len(x) % 4
    for t in range(whole):
        sums[t % 4] += (x[t] - y[t]) * (x[t] - y[t])
    rest = 0.0
    for t in range(whole, len(x)):
        rest += (x[t] - y[t]) * (x[t] - y[t])
    return ((sums[0] + sums[2]) + (sums[1] + sums[3])) + rest


def eager_race(
    values: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    ids: Sequence[int | str],
    n_seeds: int,
    weights: Sequence[float] | None = None,
    stream: int = 0,
) -> tuple[list[int], list[float]]:
    """The race by its definition: every score of every record at every step."""
    rows = values.tolist()
    weight = [1.0] * len(rows) if weights is None else [float(w) for w in weights]
    seeds: list[int] = []
    scores: list[float] = []
    for step in range(n_seeds):
        best: tuple[float, int | str, int] | None = None
        for i, row in enumerate(rows):
            d2 = min((squared_distance(row, rows[s]) for s in seeds), default=1.0)
            rate = weight[i] * d2
            if rate == 0.0:
                continue
            clock = exponential(uniform(draw(int(low[i]), int(high[i]), stream + step)))
            score = clock / rate
            if score < float("inf") and (best is None or (score, ids[i]) < best[:2]):
                best = (score, ids[i], i)
        if best is None:
            break
        scores.append(best[0])
        seeds.append(best[2])
    return seeds, scores


def potential(squares: Sequence[float], n_features: int) -> int:
    """A sum of squared distances in whole grains: each is rounded, half to even."""
    grain = Fraction(2) ** (64 + (n_features - 1).bit_length() - 32 - 46)
    return sum(round(Fraction(square) / grain) for square in squares)


def greedy_race(
    values: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    ids: Sequence[int | str],
    n_seeds: int,
    n_candidates: int,
    stream: int = 0,
) -> tuple[list[int], list[list[int | None]], list[list[int | None]]]:
    """The greedy race by its definition: seeds, and the candidates and potentials of each step.

    A race that nobody wins has no candidate and no potential.
    """
    rows = values.tolist()
    d2 = [1.0] * len(rows)
    seeds: list[int] = []
    candidates: list[list[int | None]] = []
    potentials: list[list[int | None]] = []
    for step in range(n_seeds):
        found: list[int | None] = []
        sums: list[int | None] = []
        for number in range(n_candidates if step else 1):
            scored = []
            for i, rate in enumerate(d2):
                counter = stream + step + number * 2**27
                clock = exponential(uniform(draw(int(low[i]), int(high[i]), counter)))
                if rate > 0.0 and clock / rate < float("inf"):
                    scored.append((clock / rate, ids[i], i))
            found.append(min(scored)[2] if scored else None)
        nearer = {}
        for i in set(found) - {None}:
            distances = [squared_distance(row, rows[i]) for row in rows]
            nearer[i] = [min(pair) for pair in zip(distances, d2, strict=True)]
            if step == 0:
                nearer[i] = distances
        if not nearer:
            break
        sums = [None if i is None else potential(nearer[i], len(rows[0])) for i in found]
        least = min(total for total in sums if total is not None)
        seed = found[sums.index(least)]
        seeds.append(seed)
        candidates.append(found)
        potentials.append(sums)
        d2 = nearer[seed]
    return seeds, candidates, potentials


def greedy_law(
    points: Sequence[int], n_seeds: int, n_candidates: int
) -> dict[tuple[int, ...], Fraction]:
    """The exact law of greedy K-means++ on integer points of a line, by enumeration.

    Of candidates with the same potential the first drawn is taken.
    """
    law: dict[tuple[int, ...], Fraction] = {}

    def extend(drawn: tuple[int, ...], probability: Fraction) -> None:
        rates = [min(((x - points[s]) ** 2 for s in drawn), default=1) for x in points]
        total = sum(rates)
        if len(drawn) == n_seeds or total == 0:
            law[drawn] = law.get(drawn, Fraction(0)) + probability
            return
        possible = [i for i, rate in enumerate(rates) if rate]

        def loss(i: int) -> int:
            return sum(min(r, (x - points[i]) ** 2) for r, x in zip(rates, points, strict=True))

        chances: dict[int, Fraction] = {}
        for tried in itertools.product(possible, repeat=n_candidates if drawn else 1):
            # ``min`` takes the first of equals.
            best = min(tried, key=loss) if drawn else tried[0]
            chance = math.prod((Fraction(rates[i], total) for i in tried), start=Fraction(1))
            chances[best] = chances.get(best, Fraction(0)) + chance
        for i, chance in chances.items():
            extend((*drawn, i), probability * chance)

    extend((), Fraction(1))
    return law


def seeding_law(points: Sequence[int], n_seeds: int) -> dict[tuple[int, ...], Fraction]:
    """The exact law of K-means++ seeding on integer points of a line, by enumeration."""
    law: dict[tuple[int, ...], Fraction] = {}

    def extend(drawn: tuple[int, ...], probability: Fraction) -> None:
        if drawn:
            rates = [min((x - points[s]) ** 2 for s in drawn) for x in points]
        else:
            rates = [1] * len(points)
        total = sum(rates)
        if len(drawn) == n_seeds or total == 0:
            law[drawn] = law.get(drawn, Fraction(0)) + probability
            return
        for i, rate in enumerate(rates):
            if rate:
                extend((*drawn, i), probability * Fraction(rate, total))

    extend((), Fraction(1))
    return law


def fits(observed: Iterable[tuple[int, ...]], law: Law) -> bool:
    """Pearson's test; outcomes expected fewer than five times are taken together."""
    counts = Counter(observed)  # which takes counts, too, as they are
    total = counts.total()
    assert set(counts) <= set(law), "an impossible outcome"
    found, expected = [], []
    rare_found, rare_expected = 0, 0.0
    for outcome, probability in law.items():
        if total * probability < 5:
            rare_found += counts[outcome]
            rare_expected += float(total * probability)
        else:
            found.append(counts[outcome])
            expected.append(float(total * probability))
    if rare_expected:
        found.append(rare_found)
        expected.append(rare_expected)
    return bool(stats.chisquare(found, expected).pvalue > ERROR_RATE)


def total_variation(
    one: dict[tuple[int, ...], Fraction], other: dict[tuple[int, ...], Fraction]
) -> Fraction:
    keys = set(one) | set(other)
    zero = Fraction(0)
    return sum((abs(one.get(k, zero) - other.get(k, zero)) for k in keys), zero) / 2


def optimal_loss_1d(points: Sequence[float], n_clusters: int) -> float:
    """The optimal K-means loss on a line, by dynamic programming over sorted points."""
    xs = sorted(points)
    n = len(xs)
    s1 = np.concatenate([[0.0], np.cumsum(xs)])
    s2 = np.concatenate([[0.0], np.cumsum(np.square(xs))])

    def cost(i: int, j: int) -> float:
        return float(s2[j] - s2[i] - (s1[j] - s1[i]) ** 2 / (j - i))

    best = [0.0] + [cost(0, j) for j in range(1, n + 1)]
    for _ in range(n_clusters - 1):
        best = [0.0] + [
            min([best[i] + cost(i, j) for i in range(1, j)] + [best[j]]) for j in range(1, n + 1)
        ]
    return best[n]
