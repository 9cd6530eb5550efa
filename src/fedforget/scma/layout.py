"""A bin as numbers: its index in the grid, cut into a 60-bit head and 61-bit words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedforget.arrays import Elements, Flags, Ints
from fedforget.scma import kernels

HEAD_BITS = 60
WORD_BITS = 61
MAX_LEVEL = 2**63 - 1
_GROUP = 2**32 - 1


class Layout:
    """Where the bits of a bin's index go.

    The index is the bin's place in lexicographic order: mixed radix, the first feature most
    significant.  Of its ``bits`` bits the first 60 are the head, the others fill words.

    Parameters
    ----------
    levels : the number of bins of each feature.
    """

    def __init__(self, levels: Ints) -> None:
        self.levels = levels
        self.n_bins = math.prod(levels.tolist())
        self.bits = (self.n_bins - 1).bit_length()
        rest = max(0, self.bits - HEAD_BITS)
        self.n_words = -(-rest // WORD_BITS)
        # The words fill up from the end of the index; the first one has what is left over.
        shifts = [rest] + [WORD_BITS * t for t in range(self.n_words - 1, -1, -1)]
        ends = [max(self.bits, 1), *shifts[:-1]]
        self._shifts = np.array(shifts, dtype=np.int64)
        self._widths = np.array(ends, dtype=np.int64) - self._shifts
        self._group_ends = _groups(levels.tolist())
        self._wide = bool(levels.max() > _GROUP)

    def words(self, bins: Ints) -> Elements:
        """Head and words of each bin, one bin per row."""
        if self._wide:
            return self._words_of_wide(bins)
        words: Elements = kernels.bins_to_words(
            bins, self.levels, self._group_ends, self._shifts, self._widths
        )
        return words

    def bins(self, words: Elements) -> tuple[Ints, Flags]:
        """The bins with these heads and words, and which of them lie on the grid."""
        fit = np.all(words >> self._widths.astype(np.uint64) == 0, axis=1)
        fitting = np.where(fit[:, np.newaxis], words, np.uint64(0))
        if self._wide:
            bins, on_grid = self._bins_of_wide(fitting)
        else:
            bins, on_grid = kernels.words_to_bins(
                fitting, self.levels, self._group_ends, self._shifts, self._widths
            )
        return bins, fit & on_grid

    # Levels of more than 32 bits are rare enough for Python's own integers.

    def _words_of_wide(self, bins: Ints) -> Elements:
        cuts = list(zip(self._shifts.tolist(), self._widths.tolist(), strict=True))
        words = np.empty((len(bins), len(cuts)), dtype=np.uint64)
        for row, digits in enumerate(bins.tolist()):
            index = 0
            for digit, level in zip(digits, self.levels.tolist(), strict=True):
                index = index * level + digit
            words[row] = [index >> shift & ((1 << width) - 1) for shift, width in cuts]
        return words

    def _bins_of_wide(self, words: Elements) -> tuple[Ints, Flags]:
        bins = np.empty((len(words), self.levels.size), dtype=np.int64)
        on_grid = np.empty(len(words), dtype=np.bool_)
        for row, parts in enumerate(words.tolist()):
            index = sum(w << shift for w, shift in zip(parts, self._shifts.tolist(), strict=True))
            for feature in range(self.levels.size - 1, -1, -1):
                index, bins[row, feature] = divmod(index, int(self.levels[feature]))
            on_grid[row] = index == 0
        return bins, on_grid


def checked_levels(levels: Any) -> Ints:
    """``levels`` as an array, or a ValueError that says what is wrong with it."""
    array = np.asarray(levels)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(
            f"levels must be a sequence with one number for each feature, got shape {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise ValueError(f"levels must be integers, got {array.dtype}")
    wrong = np.flatnonzero((array < 1) | (array > MAX_LEVEL))
    if wrong.size:
        first = int(wrong[0])
        raise ValueError(
            f"levels must be between 1 and {MAX_LEVEL}, but feature {first} has {array[first]}"
        )
    return array.astype(np.int64)


def _groups(levels: list[int]) -> Ints:
    """Ends of the longest runs of features whose levels multiply to less than 2³²."""
    ends, product = [], 1
    for feature, level in enumerate(levels):
        if product * level > _GROUP:
            ends.append(feature)
            product = 1
        product *= level
    return np.array([*ends, len(levels)], dtype=np.int64)
