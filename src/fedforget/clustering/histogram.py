"""Sparse multisets of lattice points: what clients report and the server adds up."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Sequence
from typing import Self

import numpy as np

from fedforget.arrays import Ints


class Histogram:
    """A sparse map from points of an integer lattice to counts.

    Points are kept as big-endian bytes, so that the sorted keys are in lexicographic order and the
    arrays below come out in one canonical order.  Counts of zero are not stored; a difference of
    two histograms may have negative ones.

    Examples
    --------
    >>> one = Histogram.of(np.array([[1, 2], [1, 2], [0, 5]]), np.array([3, 1, 2]))
    >>> one.points(), one.counts()
    (array([[0, 5],
           [1, 2]]), array([2, 4]))
    >>> (one - one).total
    0
    """

    def __init__(self, n_features: int, entries: dict[bytes, int] | None = None) -> None:
        self.n_features = n_features
        self._entries = {} if entries is None else entries

    @classmethod
    def checked(cls, n_features: int, entries: dict[bytes, int]) -> Histogram:
        """The histogram that was stored as these entries; a ValueError if they are not one's."""
        if any(len(point) != 8 * n_features or not count for point, count in entries.items()):
            raise ValueError("the histogram has points of another dimension")
        return cls(n_features, entries)

    @classmethod
    def of(cls, points: Ints, counts: Ints) -> Histogram:
        """Count points, one per row; equal points add up."""
        n_features = points.shape[1]
        result = cls(n_features)
        if n_features == 0:
            result._add(b"", int(counts.sum()))
            return result
        encoded = np.ascontiguousarray(points, dtype=">i8").tobytes()
        width = 8 * n_features
        for row, count in enumerate(counts.tolist()):
            result._add(encoded[row * width : (row + 1) * width], count)
        return result

    @classmethod
    def sum(cls, n_features: int, parts: Iterable[Histogram]) -> Histogram:
        """Add up any number of histograms."""
        result = cls(n_features)
        for part in parts:
            for point, count in part._entries.items():
                result._add(point, count)
        return result

    def _add(self, point: bytes, count: int) -> None:
        total = self._entries.get(point, 0) + count
        if total:
            self._entries[point] = total
        else:
            self._entries.pop(point, None)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self.n_features == other.n_features and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Histogram({len(self)} points, total {self.total})"

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram.sum(self.n_features, (self, other))

    def __iadd__(self, other: Histogram) -> Self:
        for point, count in other._entries.items():
            self._add(point, count)
        return self

    def __sub__(self, other: Histogram) -> Histogram:
        negated = {point: -count for point, count in other._entries.items()}
        return self + Histogram(self.n_features, negated)

    def copy(self) -> Histogram:
        """A histogram of its own."""
        return Histogram(self.n_features, dict(self._entries))

    def items(self) -> ItemsView[bytes, int]:
        """Points, encoded, and their counts."""
        return self._entries.items()

    def count_of(self, point: bytes) -> int:
        """The count of an encoded point."""
        return self._entries.get(point, 0)

    def decode(self, points: Sequence[bytes]) -> Ints:
        """Encoded points as integer vectors."""
        flat = np.frombuffer(b"".join(points), dtype=">i8").astype(np.int64)
        return flat.reshape(len(points), self.n_features)

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self._entries.values())

    def encoded(self) -> list[bytes]:
        """The points, encoded, in lexicographic order."""
        return sorted(self._entries)

    def points(self) -> Ints:
        """The points, in lexicographic order."""
        return self.decode(self.encoded())

    def counts(self) -> Ints:
        """The counts, in the order of :meth:`points`."""
        return np.array([self._entries[point] for point in self.encoded()], dtype=np.int64)
