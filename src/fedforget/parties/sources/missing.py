"""Missing values: counted and refused, left out with their rows, or a public constant.

Nothing is ever computed from other records to stand for them.  A mean would keep a trace of
everybody who went into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedforget.arrays import Flags, Floats


class MissingValues:
    """What becomes of missing values, and how many there were.

    Parameters
    ----------
    features : the columns.
    drop : leave rows with missing values out, instead of refusing them.
    fill : constants by columns; they stand for missing values.
    """

    def __init__(self, features: Sequence[str], drop: bool, fill: Mapping[str, float]) -> None:
        self._features = list(features)
        self._drop = drop
        self._fill = {self._features.index(name): value for name, value in fill.items()}
        self._missing = np.zeros(len(self._features), dtype=np.int64)
        self._filled = np.zeros(len(self._features), dtype=np.int64)
        self._rows = 0
        self.refused = 0
        self.dropped = 0

    def settle(self, values: Floats) -> Flags | None:
        """Fill what is to be filled; the rows that stay, None if all do.

        OUT: ``values``.
        """
        self._rows += len(values)
        holes = np.isnan(values)
        if not holes.any():
            return None
        filled = np.zeros_like(holes)
        for column, constant in self._fill.items():
            values[holes[:, column], column] = constant
            filled[:, column] = holes[:, column]
        holes &= ~filled
        rows: Flags = np.asarray(holes.any(axis=1))
        self._filled += filled[~rows].sum(axis=0)
        if not rows.any():
            return None
        if self._drop:
            self.dropped += int(np.count_nonzero(rows))
            return ~rows
        self._missing += holes.sum(axis=0)
        self.refused += int(np.count_nonzero(rows))
        return ~rows

    @property
    def filled(self) -> dict[str, int]:
        """How many values of each column were filled."""
        counted = zip(self._features, self._filled.tolist(), strict=True)
        return {name: count for name, count in counted if count}

    def problem(self) -> str:
        """What is refused, in words."""
        counted = zip(self._features, self._missing.tolist(), strict=True)
        each = ", ".join(f"{name!r} {count}" for name, count in counted if count)
        return (
            f"{self.refused} of {self._rows} rows have missing values ({each}). --missing drop"
            " leaves such rows out; --fill takes a constant that stands in the federation file"
        )
