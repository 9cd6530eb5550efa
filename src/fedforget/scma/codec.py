"""The code: sparse multisets of bins as short vectors that can be added, and so masked.

A bin's index is cut into a head A of 60 bits and words w_t (none if it is that short).  Its
*locator* is x = 1 + (A + H(words)) mod (p - 1), H a keyed hash.  A multiset with counts q becomes

    2T + s syndromes   Σ q·x^i,
    T + s word sums    Σ q·w_t·x^i     for each word,
    2 check sums       Σ q·G(bin)      G a keyed hash into the field,

for a capacity of T different bins and s spare equations.  All of it is linear in q, so vectors are
added element by element.  Decoding finds the locators, then the counts, then the words and bins,
and accepts nothing that does not satisfy every equation; docs/math.md has the proof.
"""

from __future__ import annotations

import hashlib
import operator
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Elements, Ints
from fedforget.digests import Digest
from fedforget.errors import FedforgetError
from fedforget.scma import kernels
from fedforget.scma.kernels import PRIME
from fedforget.scma.layout import Layout, checked_levels
from fedforget.scma.polynomials import PointTree
from fedforget.scma.polynomials import add as add_residues
from fedforget.scma.recurrences import TransposedVandermonde, minimal_polynomial
from fedforget.scma.roots import DoesNotSplitError, roots

ELEMENT_BITS = 62
DIGEST_BYTES = 32

_N_CHECKS = 2
_FEW = 1000
"""Bins up to which power sums are computed term by term."""


class Cause(StrEnum):
    """Why a vector could not be decoded."""

    CAPACITY = "capacity"
    """There may be more different bins than the capacity; a larger one will tell."""
    CORRUPTED = "corrupted"
    """This is not the sum of encodings by this code."""
    RANGE = "range"
    """A number in it is larger than any sum of encodings may contain."""


class DecodeError(FedforgetError, ValueError):
    """A vector that does not decode; ``cause`` says why."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class Codec:
    """Encodes multisets of grid bins, and decodes sums of encodings.

    Parameters
    ----------
    levels : array-like of int
        The number of bins of each feature, at least 1.
    capacity : int
        The largest number of different bins that a sum may hold.
    salt : bytes
        Public key of the hashes.  A fresh one undoes a (most unlikely) collision of locators.
    spare : int
        Additional equations; each one lowers the chance that a random vector gets far.
    max_count : int
        The largest count, in absolute value, of a bin in an input or a sum.
    signed : bool
        Whether counts may be negative, as those of a change.

    Attributes
    ----------
    length : int
        Field elements in a vector.
    bits : int
        Bits of a packed vector, without its digest.
    digest : bytes
        Identifies the code; vectors of different codes do not add up.

    Examples
    --------
    >>> codec = Codec([10, 10], capacity=4, salt=b"public")
    >>> one = codec.encode([[3, 7], [0, 2]], [5, 1])
    >>> two = codec.encode([[3, 7], [9, 9]], [2, 4])
    >>> codec.decode(add(one, two))
    (array([[0, 2],
           [3, 7],
           [9, 9]]), array([1, 7, 4]))
    >>> change = codec.encode([[3, 7]], [-7])
    >>> codec.decode(add(add(one, two), change))
    (array([[0, 2],
           [9, 9]]), array([1, 4]))
    """

    def __init__(
        self,
        levels: npt.ArrayLike,
        capacity: int,
        *,
        salt: bytes,
        spare: int = 2,
        max_count: int = 2**48,
        signed: bool = True,
    ) -> None:
        self._layout = Layout(checked_levels(levels))
        self.capacity = _whole_number("capacity", capacity, 1, 2**40)
        self.spare = _whole_number("spare", spare, 0, 2**40)
        self.max_count = _whole_number("max_count", max_count, 1, (PRIME - 1) // 2)
        self.signed = bool(signed)
        if not isinstance(salt, bytes):
            raise TypeError(f"salt must be bytes, got {type(salt).__name__}")
        self.salt = salt
        self._n_syndromes = 2 * self.capacity + self.spare
        self._n_sums = self.capacity + self.spare
        self.length: int = self._n_syndromes + self._layout.n_words * self._n_sums + _N_CHECKS
        self.bits: int = ELEMENT_BITS * self.length
        self.digest = (
            Digest("scma")
            .array("levels", self._layout.levels)
            .field("capacity", self.capacity)
            .field("salt", salt)
            .field("spare", self.spare)
            .field("max_count", self.max_count)
            .field("signed", self.signed)
            .bytes()
        )
        # The words' hash must not depend on the capacity: a bin has one locator in every size.
        key = Digest("scma words").array("levels", self._layout.levels).field("salt", salt).bytes()
        self._hash_words = hashlib.blake2b(key=key, digest_size=16, person=b"fedforget word")
        self._hash_bin = hashlib.blake2b(
            key=self.digest, digest_size=16 * _N_CHECKS, person=b"fedforget check"
        )

    def __repr__(self) -> str:
        features = self._layout.levels.size
        return f"Codec({features} features, capacity {self.capacity}, {self.length} elements)"

    @property
    def levels(self) -> Ints:
        """The number of bins of each feature."""
        return self._layout.levels.copy()

    def with_capacity(self, capacity: int) -> Codec:
        """The same code for another number of different bins."""
        return Codec(
            self._layout.levels,
            capacity,
            salt=self.salt,
            spare=self.spare,
            max_count=self.max_count,
            signed=self.signed,
        )

    # -- encoding ------------------------------------------------------------------------------

    def encode(self, bins: npt.ArrayLike, counts: npt.ArrayLike) -> Elements:
        """The vector of a multiset.

        Parameters
        ----------
        bins : array-like of int, shape (n, n_features)
            One bin per row, counted from 0.  Counts of equal rows add up.
        counts : array-like of int, shape (n,)

        Returns
        -------
        Array of ``length`` residues below p.
        """
        bins, counts = self._checked_multiset(bins, counts)
        words = self._layout.words(bins)
        points = kernels.enter(self._locators(words))
        plain = _residues(counts)
        weighted = np.empty((self._layout.n_words, len(plain)), dtype=np.uint64)
        for t, column in enumerate(words[:, 1:].T.copy()):
            weighted[t] = kernels.multiply(plain, kernels.enter(column))
        parts = [
            *_power_sums(points, plain[np.newaxis], self._n_syndromes),
            *_power_sums(points, weighted, self._n_sums),
            self._check_sums(words, plain),
        ]
        return np.concatenate(parts)

    def _checked_multiset(self, bins: npt.ArrayLike, counts: npt.ArrayLike) -> tuple[Ints, Ints]:
        levels = self._layout.levels
        rows, numbers = np.asarray(bins), np.asarray(counts)
        if numbers.shape == (0,) and rows.shape in ((0,), (0, levels.size)):
            return np.empty((0, levels.size), np.int64), np.empty(0, np.int64)
        if rows.ndim != 2 or rows.shape[1] != levels.size:
            raise ValueError(
                f"bins must have one row per bin and {levels.size} columns, got shape {rows.shape}"
            )
        if numbers.shape != rows.shape[:1]:
            raise ValueError(
                f"counts must have one number for each of the {len(rows)} bins, "
                f"got shape {numbers.shape}"
            )
        for name, array in (("bins", rows), ("counts", numbers)):
            if array.dtype.kind not in "iu":
                raise ValueError(f"{name} must be integers, got {array.dtype}")
        outside = np.argwhere((rows < 0) | (rows >= levels))
        if len(outside):
            row, column = outside[0].tolist()
            raise ValueError(
                f"bin {row} has {rows[row, column]} in column {column}, "
                f"which must be between 0 and {levels[column] - 1}"
            )
        least = -self.max_count if self.signed else 0
        too_large = np.flatnonzero((numbers > self.max_count) | (numbers < least))
        if len(too_large):
            row = int(too_large[0])
            raise ValueError(
                f"count {row} is {numbers[row]}, but must be between {least} and {self.max_count}"
            )
        return rows.astype(np.int64), numbers.astype(np.int64)

    def _locators(self, words: Elements) -> Elements:
        return 1 + (words[:, 0] + self._masks(words)) % np.uint64(PRIME - 1)

    def _masks(self, words: Elements) -> Elements:
        """The hash of each bin's words, below p - 1; zero where there are none."""
        if not self._layout.n_words:
            return np.zeros(len(words), dtype=np.uint64)
        rest = np.ascontiguousarray(words[:, 1:])
        return _hashes(self._hash_words, rest, PRIME - 1)[:, 0]

    def _check_sums(self, words: Elements, plain_counts: Elements) -> Elements:
        hashes = kernels.enter(_hashes(self._hash_bin, words, PRIME).ravel())
        columns = hashes.reshape(-1, _N_CHECKS).T.copy()
        sums = [kernels.inner_product(plain_counts, column) for column in columns]
        return np.array(sums, dtype=np.uint64)

    # -- decoding ------------------------------------------------------------------------------

    def decode(self, vector: npt.ArrayLike) -> tuple[Ints, Ints]:
        """The multiset whose encoding, or sum of encodings, this is.

        Returns
        -------
        bins : array of int64, shape (n, n_features), in lexicographic order.
        counts : array of int64, none of them zero.

        Raises
        ------
        DecodeError
            If it is not such a sum.  A wrong multiset is never returned, except with a chance of
            about 2⁻¹²⁰ (docs/math.md).
        """
        syndromes, sums, checks = self._parts(self._checked_vector(vector))
        entered = kernels.enter(syndromes)
        polynomial = minimal_polynomial(entered, self.capacity)
        if polynomial is None:
            raise DecodeError(
                Cause.CAPACITY,
                f"more than {self.capacity} different bins (or a corrupted sum): "
                "try again with a larger capacity",
            )
        if polynomial[0] == 0:
            raise _corrupted("its recurrence has a root at zero")
        try:
            points = roots(polynomial)
        except DoesNotSplitError:
            raise _corrupted("its locators are not in the field") from None
        system = TransposedVandermonde(points, polynomial)
        weights, _ = system.solve(entered[np.newaxis, : self._n_sums])
        counts = self._counts(kernels.leave(weights[0]))
        words = self._words(system, points, weights[0], sums)
        bins, on_grid = self._layout.bins(words)
        if not on_grid.all():
            raise DecodeError(Cause.RANGE, "a bin lies outside the grid")
        plain = _residues(counts)
        if not np.array_equal(self._check_sums(words, plain), checks):
            raise _corrupted("its check sums do not fit")
        order = _lexicographic(words)
        return bins[order], counts[order]

    def _checked_vector(self, vector: npt.ArrayLike) -> Elements:
        array = np.asarray(vector)
        if array.shape != (self.length,):
            raise _corrupted(f"it must have {self.length} elements, got shape {array.shape}")
        if array.dtype != np.uint64:
            raise _corrupted(f"its elements must be uint64, got {array.dtype}")
        if (array >= PRIME).any():
            first = int(np.flatnonzero(array >= PRIME)[0])
            raise DecodeError(Cause.RANGE, f"element {first} is not below p")
        return array

    def _parts(self, vector: Elements) -> tuple[Elements, Elements, Elements]:
        """Syndromes, word sums (one word per row), check sums."""
        sums = vector[self._n_syndromes : -_N_CHECKS].reshape(-1, self._n_sums)
        return vector[: self._n_syndromes], sums, vector[-_N_CHECKS:]

    def _counts(self, weights: Elements) -> Ints:
        negative = weights > np.uint64(PRIME // 2)
        counts = np.where(negative, weights - np.uint64(PRIME), weights).view(np.int64)
        least = -self.max_count if self.signed else 1
        if ((counts > self.max_count) | (counts < least)).any():
            raise DecodeError(Cause.RANGE, f"a count is not between {least} and {self.max_count}")
        return counts

    def _words(
        self, system: TransposedVandermonde, points: Elements, weights: Elements, sums: Elements
    ) -> Elements:
        """Head and words of each bin, from its locator and the word sums."""
        entered = kernels.enter(sums.ravel()).reshape(sums.shape)
        products, fits = system.solve(entered)
        if not fits.all():
            raise _corrupted("its word sums and its syndromes do not fit")
        words = np.empty((points.size, 1 + len(sums)), dtype=np.uint64)
        scales = kernels.inverses(weights)
        for t, row in enumerate(products):
            words[:, t + 1] = kernels.leave(kernels.multiply(row, scales))
        locators = kernels.leave(points)
        order = np.uint64(PRIME - 1)
        words[:, 0] = (locators - np.uint64(1) + (order - self._masks(words))) % order
        return words

    # -- the wire ------------------------------------------------------------------------------

    def pack(self, vector: npt.ArrayLike) -> bytes:
        """A vector as bytes: the digest, then 62 bits per element, the lowest bit first."""
        array = self._checked_vector(vector)
        packed: bytes = kernels.pack(array).astype("<u8").tobytes()
        return self.digest + packed[: self.packed_bytes - DIGEST_BYTES]

    @property
    def packed_bytes(self) -> int:
        """The size of a packed vector."""
        return DIGEST_BYTES + -(-self.bits // 8)

    def unpack(self, data: bytes) -> Elements:
        """The vector in these bytes; those of another code are refused."""
        if len(data) != self.packed_bytes:
            raise _corrupted(f"a packed vector has {self.packed_bytes} bytes, got {len(data)}")
        if data[:DIGEST_BYTES] != self.digest:
            raise _corrupted("it was packed for another grid, capacity or salt")
        payload = data[DIGEST_BYTES:]
        n_words = self.bits // 64 + 2
        words = np.frombuffer(payload.ljust(8 * n_words, b"\0"), dtype="<u8").astype(np.uint64)
        vector = self._checked_vector(kernels.unpack(words, self.length))
        if int.from_bytes(payload[-8:], "little") >> (self.bits - 8 * max(0, len(payload) - 8)):
            raise _corrupted("the bits behind its last element are not zero")
        return vector


def add(a: Elements, b: Elements) -> Elements:
    """The sum of two vectors, modulo p."""
    a, b = np.asarray(a), np.asarray(b)
    for vector in (a, b):
        if vector.dtype != np.uint64 or vector.ndim != 1:
            raise ValueError(
                f"a vector is a row of uint64, got {vector.dtype} of shape {vector.shape}"
            )
        if (vector >= PRIME).any():
            raise ValueError("an element of a vector is not below p")
    if a.size != b.size:
        raise ValueError(f"vectors of {a.size} and {b.size} elements do not add up")
    return add_residues(a, b)


def next_capacity(error: DecodeError, capacity: int, full: int) -> int:
    """The capacity to try after ``error`` at ``capacity``: twice as much, at most ``full``.

    Raises
    ------
    DecodeError
        ``error`` itself if more capacity would not help; with the cause *corrupted* if the full
        capacity has been tried, at which no sum of honest encodings fails.

    Examples
    --------
    >>> error = DecodeError(Cause.CAPACITY, "too many bins")
    >>> next_capacity(error, 16, 40), next_capacity(error, 32, 40)
    (32, 40)
    """
    if error.cause is not Cause.CAPACITY:
        raise error
    if capacity >= full:
        raise _corrupted(f"it does not decode at the full capacity of {full}") from error
    return min(2 * capacity, full)


def _corrupted(reason: str) -> DecodeError:
    return DecodeError(Cause.CORRUPTED, f"not a sum of encodings by this code: {reason}")


def _residues(counts: Ints) -> Elements:
    """Signed counts as plain residues."""
    return np.where(counts < 0, counts + PRIME, counts).astype(np.uint64)


def _power_sums(points: Elements, plain_weights: Elements, length: int) -> Elements:
    """Power sums, as plain residues, for each row of plain weights."""
    if points.size <= _FEW:
        sums: Elements = kernels.power_sums(points, plain_weights, length)
        return sums
    tree = PointTree(points)
    rows = [tree.power_sums(kernels.enter(row), length) for row in plain_weights]
    return np.array([kernels.leave(row) for row in rows], dtype=np.uint64).reshape(-1, length)


def _hashes(keyed: Any, rows: Elements, modulus: int) -> Elements:
    """A keyed hash of each row of words, cut into numbers of 16 bytes, modulo ``modulus``."""
    data = rows.astype("<u8").tobytes()
    width = 8 * rows.shape[1]
    numbers = keyed.digest_size // 16
    out = np.empty((len(rows), numbers), dtype=np.uint64)
    for row in range(len(rows)):
        one = keyed.copy()
        one.update(data[row * width : (row + 1) * width])
        digest = one.digest()
        for t in range(numbers):
            out[row, t] = int.from_bytes(digest[16 * t : 16 * t + 16], "little") % modulus
    return out


def _lexicographic(words: Elements) -> npt.NDArray[np.intp]:
    """The order of the bins: head and words are digits of the index, the first most significant."""
    if words.shape[1] == 1:
        return np.argsort(words[:, 0])
    rows = words.astype(">u8")
    return np.array(sorted(range(len(words)), key=lambda row: rows[row].tobytes()), dtype=np.intp)


def _whole_number(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} must be between {least} and {most}, got {number}")
    return number
