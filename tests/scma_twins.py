"""Slow, plain twins of the code and its algebra, in Python's own integers.

Nothing is shared with the compiled code except the definition of the field and of the two
hashes, which are written down again here.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Sequence

P = 29 * 2**57 + 1
Polynomial = list[int]
Multiset = dict[tuple[int, ...], int]


# -- polynomials, the constant term first ------------------------------------------------------


def trimmed(a: Sequence[int]) -> Polynomial:
    end = len(a)
    while end and a[end - 1] == 0:
        end -= 1
    return list(a[:end])


def product(a: Sequence[int], b: Sequence[int]) -> Polynomial:
    out = [0] * max(0, len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] = (out[i + j] + x * y) % P
    return out


def from_roots(roots: Sequence[int]) -> Polynomial:
    out = [1]
    for root in roots:
        out = product(out, [-root % P, 1])
    return out


def value(a: Sequence[int], x: int) -> int:
    out = 0
    for coefficient in reversed(a):
        out = (out * x + coefficient) % P
    return out


def divmod_of(a: Sequence[int], b: Sequence[int]) -> tuple[Polynomial, Polynomial]:
    rest, b = list(a), trimmed(b)
    scale = pow(b[-1], -1, P)
    quotient = [0] * max(0, len(rest) - len(b) + 1)
    for at in range(len(quotient) - 1, -1, -1):
        factor = rest[at + len(b) - 1] * scale % P
        quotient[at] = factor
        for i, x in enumerate(b):
            rest[at + i] = (rest[at + i] - factor * x) % P
    return quotient, trimmed(rest)


def gcd(a: Sequence[int], b: Sequence[int]) -> Polynomial:
    a, b = trimmed(a), trimmed(b)
    while b:
        a, b = b, divmod_of(a, b)[1]
    scale = pow(a[-1], -1, P)
    return [x * scale % P for x in a]


def power_mod(a: Sequence[int], exponent: int, modulus: Sequence[int]) -> Polynomial:
    out, a = [1], divmod_of(a, modulus)[1]
    while exponent:
        if exponent & 1:
            out = divmod_of(product(out, a), modulus)[1]
        a = divmod_of(product(a, a), modulus)[1]
        exponent >>= 1
    return out


def roots(a: Sequence[int]) -> list[int] | None:
    """All roots by Cantor and Zassenhaus, or None if there are not as many as the degree."""
    a = trimmed(a)
    if len(a) > 1:
        rest = [*power_mod([0, 1], P, a), 0, 0]
        rest[1] = (rest[1] - 1) % P
        if divmod_of(rest, a)[1]:
            return None
    return sorted(_split(a, 1))


def _split(a: Polynomial, shift: int) -> list[int]:
    if len(a) <= 1:
        return []
    if len(a) == 2:
        return [-a[0] * pow(a[1], -1, P) % P]
    while True:
        half = power_mod([shift, 1], (P - 1) // 2, a) or [0]
        half[0] = (half[0] - 1) % P
        part = gcd(a, half) if trimmed(half) else a
        shift += 1
        if 1 < len(part) < len(a):
            return _split(part, shift) + _split(divmod_of(a, part)[0], shift)


def shortest_recurrence(sequence: Sequence[int]) -> Polynomial:
    """The monic characteristic polynomial, by Berlekamp and Massey."""
    current, previous, length, gap, last = [1], [1], 0, 1, 1
    for i, term in enumerate(sequence):
        discrepancy = term
        for j in range(1, length + 1):
            if j < len(current):
                discrepancy += current[j] * sequence[i - j]
        discrepancy %= P
        if not discrepancy:
            gap += 1
            continue
        factor = discrepancy * pow(last, -1, P) % P
        new = current + [0] * (len(previous) + gap - len(current))
        for j, x in enumerate(previous):
            new[j + gap] = (new[j + gap] - factor * x) % P
        if 2 * length <= i:
            previous, last, length, gap = current, discrepancy, i + 1 - length, 1
        else:
            gap += 1
        current = new
    padded = (current + [0] * (length + 1))[: length + 1]
    return padded[::-1]


def solve(matrix: Sequence[Sequence[int]], right: Sequence[int]) -> list[int]:
    """Gaussian elimination for a square system with one solution."""
    n = len(right)
    rows = [[*row, right[i]] for i, row in enumerate(matrix)]
    for column in range(n):
        pivot = next(r for r in range(column, n) if rows[r][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = pow(rows[column][column], -1, P)
        rows[column] = [x * scale % P for x in rows[column]]
        for r in range(n):
            if r != column and rows[r][column]:
                factor = rows[r][column]
                rows[r] = [(x - factor * y) % P for x, y in zip(rows[r], rows[column], strict=True)]
    return [row[-1] for row in rows]


# -- the code ----------------------------------------------------------------------------------


class Refused(Exception):
    """The twin's DecodeError; its argument is the cause."""


def _digest(domain: str, levels: Sequence[int], fields: Sequence[tuple[str, str, bytes]]) -> bytes:
    out = hashlib.sha256()

    def chunk(data: bytes) -> None:
        out.update(struct.pack("<Q", len(data)) + data)

    chunk(b"fedforget/1")
    chunk(domain.encode())
    chunk(b"levels")
    chunk(f"array <i8 ({len(levels)},)".encode())
    chunk(b"".join(struct.pack("<q", level) for level in levels))
    for name, kind, data in fields:
        chunk(name.encode())
        chunk(kind.encode())
        chunk(data)
    return out.digest()


class TwinCodec:
    """The whole code, as its definition reads."""

    def __init__(
        self,
        levels: Sequence[int],
        capacity: int,
        *,
        salt: bytes,
        spare: int = 2,
        max_count: int = 2**48,
        signed: bool = True,
    ) -> None:
        self.levels, self.capacity, self.spare = list(levels), capacity, spare
        self.max_count, self.signed = max_count, signed
        self.bits = (math.prod(self.levels) - 1).bit_length()
        self.rest = max(0, self.bits - 60)
        self.n_words = math.ceil(self.rest / 61)
        self.digest = _digest(
            "scma",
            levels,
            [
                ("capacity", "int", str(capacity).encode()),
                ("salt", "bytes", salt),
                ("spare", "int", str(spare).encode()),
                ("max_count", "int", str(max_count).encode()),
                ("signed", "bool", bytes([signed])),
            ],
        )
        self.word_key = _digest("scma words", levels, [("salt", "bytes", salt)])

    def index(self, bin_: Sequence[int]) -> int:
        out = 0
        for digit, level in zip(bin_, self.levels, strict=True):
            out = out * level + digit
        return out

    def bin(self, index: int) -> tuple[int, ...]:
        out = []
        for level in reversed(self.levels):
            index, digit = divmod(index, level)
            out.append(digit)
        return tuple(reversed(out))

    def words(self, index: int) -> list[int]:
        rest = index & ((1 << self.rest) - 1)
        return [rest >> 61 * t & (2**61 - 1) for t in reversed(range(self.n_words))]

    def mask(self, words: Sequence[int]) -> int:
        if not words:
            return 0
        data = b"".join(struct.pack("<Q", word) for word in words)
        digest = hashlib.blake2b(data, key=self.word_key, digest_size=16, person=b"fedforget word")
        return int.from_bytes(digest.digest(), "little") % (P - 1)

    def checks(self, index: int) -> list[int]:
        parts = [index >> self.rest, *self.words(index)]
        data = b"".join(struct.pack("<Q", part) for part in parts)
        digest = hashlib.blake2b(data, key=self.digest, digest_size=32, person=b"fedforget check")
        halves = digest.digest()[:16], digest.digest()[16:]
        return [int.from_bytes(half, "little") % P for half in halves]

    def locator(self, index: int) -> int:
        return 1 + ((index >> self.rest) + self.mask(self.words(index))) % (P - 1)

    def encode(self, multiset: Multiset) -> list[int]:
        indices = {self.index(bin_): count for bin_, count in multiset.items()}
        located = {index: self.locator(index) for index in indices}
        n_sums = self.capacity + self.spare

        def sums(weights: dict[int, int], length: int) -> list[int]:
            return [
                sum(weights[index] * pow(x, i, P) for index, x in located.items()) % P
                for i in range(length)
            ]

        out = sums(indices, 2 * self.capacity + self.spare)
        for t in range(self.n_words):
            weighted = {index: count * self.words(index)[t] for index, count in indices.items()}
            out += sums(weighted, n_sums)
        for t in range(2):
            out.append(sum(count * self.checks(index)[t] for index, count in indices.items()) % P)
        return out

    def decode(self, vector: Sequence[int]) -> Multiset:
        if any(element >= P for element in vector):
            raise Refused("range")
        n_syndromes, n_sums = 2 * self.capacity + self.spare, self.capacity + self.spare
        locator = shortest_recurrence(vector[:n_syndromes])
        if len(locator) - 1 > self.capacity:
            raise Refused("capacity")
        points = roots(locator)
        if points is None or 0 in points:
            raise Refused("corrupted")
        matrix = [[pow(x, i, P) for x in points] for i in range(n_sums)]
        n = len(points)
        weights = solve(matrix[:n], vector[:n])
        counts = [weight if weight <= P // 2 else weight - P for weight in weights]
        least = -self.max_count if self.signed else 1
        if any(not least <= count <= self.max_count for count in counts):
            raise Refused("range")
        columns = []
        for t in range(self.n_words):
            sums = vector[n_syndromes + t * n_sums : n_syndromes + (t + 1) * n_sums]
            products = solve(matrix[:n], sums[:n])
            for row, total in zip(matrix, sums, strict=True):
                if sum(x * y for x, y in zip(row, products, strict=True)) % P != total:
                    raise Refused("corrupted")
            columns.append([y * pow(w, -1, P) % P for y, w in zip(products, weights, strict=True)])
        out: Multiset = {}
        check_sums = [0, 0]
        widths = [self.rest - 61 * (self.n_words - 1)] + [61] * (self.n_words - 1)
        for j, x in enumerate(points):
            words = [column[j] for column in columns]
            if any(word >> width for word, width in zip(words, widths, strict=False)):
                raise Refused("range")
            head = (x - 1 - self.mask(words)) % (P - 1)
            index = head
            for width, word in zip(widths, words, strict=False):
                index = (index << width) + word
            if head >> 60 or index >= math.prod(self.levels):
                raise Refused("range")
            out[self.bin(index)] = counts[j]
            for t, check in enumerate(self.checks(index)):
                check_sums[t] = (check_sums[t] + counts[j] * check) % P
        if check_sums != list(vector[-2:]):
            raise Refused("corrupted")
        return out


def total_of(multisets: Sequence[Multiset]) -> Multiset:
    out: Counter[tuple[int, ...]] = Counter()
    for multiset in multisets:
        for bin_, count in multiset.items():
            out[bin_] += count
    return {bin_: count for bin_, count in out.items() if count}
