"""Nearest centres, bit for bit the same however the work is cut up.

The label of a row is the centre with the smallest squared distance as the kernel
``squared_distance`` computes it, ties to the earlier centre.  Where many features meet many
centres, a matrix product rules most of them out first; what it cannot rule out for certain is
settled by that kernel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np

from fedforget.arrays import Floats, Ints, Labels, Singles
from fedforget.clustering import kernels

_UNIT = 2.0**-24
_CHUNK_BYTES = 2 << 20
_WITHIN = 40
_SMALL_CHUNK_BYTES = 1 << 20
_SCREEN_SIZE = 4096
_TURNED_SIZE = 1 << 19
_FEW = 1 << 24
"""So many differences NumPy computes faster than numba is loaded."""

MAX_MAGNITUDE = 1e100
"""The square of a larger value could overflow, or its score underflow."""


class _Screen:
    """Centres that rows are multiplied with, in single precision, part by part.

    Attributes
    ----------
    norms : the squared lengths of the centres.
    radius : a bound on their lengths.
    unit : times the square of how far a row and a centre can be apart, it bounds the errors of
        estimates.
    """

    def __init__(self, centres: Floats) -> None:
        k, d = centres.shape
        self.norms = np.einsum("ij,ij->i", centres, centres)
        self.radius = float(np.sqrt(self.norms.max()) * (1.0 + 1e-9))
        self.unit = 8.0 * (d + 16) * _UNIT
        self._rows = max(64, _CHUNK_BYTES // (8 * d))
        turned = np.empty((d, k), dtype=np.float32)
        self._scale = _round(centres.T, self.radius, turned)
        self._turned = turned
        self._rounded = np.empty((self._rows, d), dtype=np.float32)

    def parts(self, n: int) -> Iterator[slice]:
        """Cut n rows into parts that fit a processor's cache."""
        for begin in range(0, n, self._rows):
            yield slice(begin, min(begin + self._rows, n))

    def multiply(self, values: Floats, lengths: Floats) -> tuple[Singles, float]:
        """Products of some rows with all centres; times the number they are the inner products."""
        rounded = self._rounded[: len(values)]
        scale = _round(values, float(np.sqrt(lengths.max())), rounded)
        return rounded @ self._turned, scale * self._scale


def _round(values: Floats, largest: float, out: Singles) -> float:
    """Round to single precision; returns what the result is to be multiplied by.

    Values far from 1 are scaled by a power of two, so that no product overflows.
    """
    exponent = math.frexp(largest)[1]
    if largest == 0.0 or abs(exponent) <= _WITHIN:
        np.copyto(out, values, casting="same_kind")
        return 1.0
    np.copyto(out, np.ldexp(values, -exponent), casting="same_kind")
    return math.ldexp(1.0, exponent)


def can_be_turned(n: int, d: int, n_centres: int) -> bool:
    """Whether so many centres are best met by rows in tiles, side by side."""
    return d * n_centres < _SCREEN_SIZE and n * d <= _TURNED_SIZE


class Rows:
    """Rows that are to meet centres, perhaps many times.  Prior validation is assumed.

    Few values are kept in a second layout, 32 rows side by side, in which distances to several rows
    are computed at once; with many, each call turns a tile at a time.
    """

    def __init__(self, values: Floats) -> None:
        self.values = values
        self._tiles: Floats | None = None
        self._lengths: Floats | None = None

    def __len__(self) -> int:
        return len(self.values)

    def meet(self, centres: Floats, first: int, d2: Floats, label: Labels) -> None:
        """Bring rows up to date with the centres ``first`` and later, in place.

        Before, ``label`` and ``d2`` hold each row's nearest centre among the first ``first`` and
        the squared distance to it (-1 and inf where ``first`` is 0); afterwards, among all.
        """
        n, d = self.values.shape
        if first >= len(centres):
            return
        if d * (len(centres) - first) >= _SCREEN_SIZE:
            self._meet_screened(centres, first, d2, label)
        elif n * d <= _TURNED_SIZE:
            kernels.meet_tiles(self.turned(), centres, first, d2, label)
        elif len(centres) - first == 1:
            self._meet_one(centres[first], first, d2, label)
        else:
            kernels.meet_tiled(self.values, centres, first, d2, label)

    def can_be_turned(self, n_centres: int) -> bool:
        """Whether so many centres are best met by rows in the second layout."""
        n, d = self.values.shape
        return can_be_turned(n, d, n_centres)

    def turned(self) -> Floats:
        """The rows in the second layout."""
        if self._tiles is None:
            n, d = self.values.shape
            tiles = np.empty((-(-n // kernels.TILE), d, kernels.TILE))
            # Places behind the last row are measured, too, though nobody reads what comes of it.
            tiles[-1:] = 0.0
            kernels.turn(self.values, tiles)
            # Only now: another thread may be here, too.
            self._tiles = tiles
        return self._tiles

    def catch_up(
        self, centres: Floats, first: int, behind: Ints, d2: Floats, label: Labels
    ) -> None:
        """:meth:`meet` for rows of which some, ``behind``, have not met the first ones either.

        Those may have any ``d2`` that is larger than their distance to the nearest centre.
        """
        d = self.values.shape[1]
        if not len(behind):
            self.meet(centres, first, d2, label)
        elif d * (len(centres) - first) < _SCREEN_SIZE:
            # Meeting a centre twice changes nothing, and costs less than picking rows out.
            self.meet(centres, 0, d2, label)
        else:
            rows = max(64, _SMALL_CHUNK_BYTES // (8 * d))
            for begin in range(0, len(behind), rows):
                part = behind[begin : begin + rows]
                label[part], d2[part] = nearest(self.values[part], centres[:first])
            self.meet(centres, first, d2, label)

    def _meet_one(self, centre: Floats, number: int, d2: Floats, label: Labels) -> None:
        """One centre is not worth turning the rows."""
        distances = np.empty(len(self))
        kernels.distances_to(self.values, centre, distances)
        label[distances < d2] = number
        np.minimum(d2, distances, out=d2)

    def _meet_screened(self, centres: Floats, first: int, d2: Floats, label: Labels) -> None:
        """Rule most centres out by a matrix product."""
        screen = _Screen(centres[first:])
        for part in screen.parts(len(self)):
            values = self.values[part]
            lengths = np.einsum("ij,ij->i", values, values)
            products, scale = screen.multiply(values, lengths)
            kernels.meet_screened(
                values, lengths, centres, first, products, scale,
                screen.norms, screen.radius, screen.unit, d2[part], label[part],
            )  # fmt: skip

    def try_candidates(
        self, candidates: Floats, coarse: float, d2: Floats, near: Floats, totals: Ints
    ) -> None:
        """Let every row try each candidate as one more centre.

        ``near[k]`` becomes the lesser of ``d2`` and the rows' squared distances to candidate k.
        ``totals[k]``, zeros before, becomes the exact sum of ``near[k]``, in two words, as
        :mod:`~fedforget.clustering.kernels.candidates` defines it.
        """
        if self.values.shape[1] * len(candidates) >= _SCREEN_SIZE:
            self._try_screened(candidates, coarse, d2, near, totals)
        else:
            kernels.try_tiled(self.values, candidates, coarse, d2, near, totals)

    def _try_screened(
        self, candidates: Floats, coarse: float, d2: Floats, near: Floats, totals: Ints
    ) -> None:
        """Rule out by a matrix product what is not nearer."""
        screen = _Screen(candidates)
        kernels.total_of(d2, coarse, totals[0])
        totals[1:] = totals[0]
        if self._lengths is None:
            lengths = np.empty(len(self))
            for part in screen.parts(len(self)):
                some = self.values[part]
                lengths[part] = np.einsum("ij,ij->i", some, some)
            self._lengths = lengths
        for part in screen.parts(len(self)):
            values, lengths = self.values[part], self._lengths[part]
            products, scale = screen.multiply(values, lengths)
            kernels.try_screened(
                values, lengths, candidates, products, scale,
                screen.norms, screen.radius, screen.unit, coarse, d2[part], near[:, part], totals,
            )  # fmt: skip

    def nearest(self, centres: Floats) -> tuple[Labels, Floats]:
        """Label and squared distance of each row's nearest centre (-1 and inf without centres)."""
        label = np.full(len(self), -1, dtype=np.int32)
        d2 = np.full(len(self), np.inf)
        self.meet(centres, 0, d2, label)
        return label, d2


def nearest(values: Floats, centres: Floats) -> tuple[Labels, Floats]:
    """:meth:`Rows.nearest` for rows that are used once."""
    if _do_without_kernels(values, centres):
        return _nearest_without_kernels(values, centres)
    return Rows(values).nearest(centres)


def pairwise(values: Floats, centres: Floats) -> Floats:
    """The squared distance of every row to every centre."""
    out = np.empty((len(values), len(centres)))
    if _do_without_kernels(values, centres):
        for number, centre in enumerate(centres):
            out[:, number] = _distances_without_kernels(values, centre)
    else:
        kernels.pairwise_distances(values, centres, out)
    return out


def _do_without_kernels(values: Floats, centres: Floats) -> bool:
    """Whether NumPy is quicker.

    A page with a picture, or a status, needs few distances: they are there before numba is loaded.
    """
    return "numba" not in sys.modules and values.size * len(centres) <= _FEW


def _nearest_without_kernels(values: Floats, centres: Floats) -> tuple[Labels, Floats]:
    label = np.full(len(values), -1, dtype=np.int32)
    d2 = np.full(len(values), np.inf)
    for number, centre in enumerate(centres):
        distances = _distances_without_kernels(values, centre)
        label[distances < d2] = number
        np.minimum(d2, distances, out=d2)
    return label, d2


def _distances_without_kernels(values: Floats, centre: Floats) -> Floats:
    """The same bits from NumPy, with the order of summation of ``squared_distance``."""
    d = values.shape[1]
    squares = np.square(values - centre).T
    sums = np.zeros((4, len(values)))
    for begin in range(0, d - d % 4, 4):
        sums += squares[begin : begin + 4]
    rest = np.zeros(len(values))
    for one in squares[d - d % 4 :]:
        rest += one
    distances: Floats = ((sums[0] + sums[2]) + (sums[1] + sums[3])) + rest
    return distances
