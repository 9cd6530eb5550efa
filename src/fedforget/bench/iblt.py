"""An invertible Bloom lookup table over a prime field, to compare SCMA with.

Goodrich, Mitzenmacher, "Invertible Bloom lookup tables" (2011).  Every bin is added to a few cells
that its hash chooses.  A cell that holds one bin alone gives it away; it is then taken out of its
other cells, and so on until the table is empty, or stuck.  Cells hold sums over the field of
:mod:`fedforget.scma`, so that tables can be added and masked as its vectors can.

Unlike SCMA a table fails now and then, however few bins it holds: with three hashes it needs at
least 1.22 cells per bin in the limit, and more if there are few bins.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Elements, Ints
from fedforget.scma import DecodeError
from fedforget.scma.codec import ELEMENT_BITS, Cause
from fedforget.scma.kernels import PRIME
from fedforget.scma.layout import Layout, checked_levels


class Iblt:
    """Tables for multisets of grid bins.

    Parameters
    ----------
    levels : the number of bins of each feature.
    capacity : how many different bins a sum is meant to hold.
    salt : public key of the hashes.
    overhead : cells per bin.
    hashes : in how many cells each bin is.

    Attributes
    ----------
    length : field elements of a table.
    bits : its length in bits.

    Examples
    --------
    >>> table = Iblt([10, 10], capacity=4, salt=b"public", overhead=3.0)
    >>> one = table.encode([[3, 7], [0, 2]], [5, 1])
    >>> two = table.encode([[3, 7]], [2])
    >>> table.decode(table.add(one, two))
    (array([[0, 2],
           [3, 7]]), array([1, 7]))
    """

    def __init__(
        self,
        levels: npt.ArrayLike,
        capacity: int,
        *,
        salt: bytes,
        overhead: float = 1.5,
        hashes: int = 3,
    ) -> None:
        self._layout = Layout(checked_levels(levels))
        self._part = max(1, math.ceil(overhead * capacity / hashes))
        self._hashes = hashes
        self._salt = salt
        # The count, the head and the words of the bin's index, and a check sum.
        self._width = 3 + self._layout.n_words
        self.length: int = hashes * self._part * self._width
        self.bits: int = ELEMENT_BITS * self.length

    def encode(self, bins: npt.ArrayLike, counts: npt.ArrayLike) -> Elements:
        """The table of a multiset."""
        rows = np.asarray(bins, dtype=np.int64).reshape(-1, len(self._layout.levels))
        table = [[0] * self._width for _ in range(self._hashes * self._part)]
        for words, count in zip(
            self._layout.words(rows).tolist(), np.asarray(counts).tolist(), strict=True
        ):
            self._put(table, words, int(count))
        return np.array(table, dtype=np.uint64)

    def add(self, *tables: Elements) -> Elements:
        """The table of the sum."""
        total = np.zeros_like(tables[0])
        for one in tables:
            total = (total + one) % np.uint64(PRIME)
        return total

    def decode(self, table: Elements) -> tuple[Ints, Ints]:
        """The multiset, by taking out one bin after the other.

        Raises
        ------
        DecodeError
            No cell holds one bin alone, and the table is not empty.
        """
        cells: list[list[int]] = table.tolist()
        found: dict[tuple[int, ...], int] = {}
        waiting = list(range(len(cells)))
        while waiting:
            number = waiting.pop()
            pure = self._pure(cells[number], number)
            if pure is None:
                continue
            words, count = pure
            found[words] = found.get(words, 0) + count
            self._put(cells, list(words), -count)
            waiting += self._places(words)[0]
        if any(any(cell) for cell in cells):
            raise DecodeError(Cause.CAPACITY, "no cell holds one bin alone; use a larger table")
        kept = {words: count for words, count in found.items() if count}
        heads = np.array(list(kept), dtype=np.uint64).reshape(-1, 1 + self._layout.n_words)
        bins, _ = self._layout.bins(heads)
        order = np.lexsort(bins.T[::-1])
        return bins[order], np.array(list(kept.values()), dtype=np.int64)[order]

    def _put(self, table: list[list[int]], words: list[int], count: int) -> None:
        places, check = self._places(tuple(words))
        for place in places:
            cell = table[place]
            cell[0] = (cell[0] + count) % PRIME
            for position, word in enumerate(words):
                cell[1 + position] = (cell[1 + position] + count * word) % PRIME
            cell[-1] = (cell[-1] + count * check) % PRIME

    def _pure(self, cell: list[int], number: int) -> tuple[tuple[int, ...], int] | None:
        """The only bin of a cell and its count; None where there is none, or more than one."""
        if cell[0] == 0:
            return None
        inverse = pow(cell[0], -1, PRIME)
        words = tuple(word * inverse % PRIME for word in cell[1:-1])
        places, check = self._places(words)
        if number not in places or check * cell[0] % PRIME != cell[-1]:
            return None
        return words, cell[0] if cell[0] <= PRIME // 2 else cell[0] - PRIME

    def _places(self, words: tuple[int, ...]) -> tuple[list[int], int]:
        """The cells of a bin, one in each part of the table, and its check."""
        text = b"".join(word.to_bytes(8, "little") for word in words)
        digest = hashlib.blake2b(text, key=self._salt, digest_size=8 * (self._hashes + 1)).digest()
        drawn = [
            int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(len(digest) // 8)
        ]
        places = [part * self._part + one % self._part for part, one in enumerate(drawn[1:])]
        return places, drawn[0] % PRIME


def decodes(table: Iblt, total: Any) -> bool:
    """Whether a table gives its multiset away."""
    try:
        table.decode(total)
    except DecodeError:
        return False
    return True
