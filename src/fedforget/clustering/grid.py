"""The public grid on which clients report, and the box that it covers.

Nothing here may depend on the data: bounds, step and shift are configuration, agreed before the
first record is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints
from fedforget.clustering.partition import FixedPoint
from fedforget.clustering.prf import Secret, keys_of_integers

Scale = Literal["none", "box"]

SMALLEST_STEP = 2.0**-24


class Outside(NamedTuple):
    """Values outside a box: the first one's row and column, and how many there are."""

    row: int
    column: int
    total: int


@dataclass(frozen=True, eq=False)
class Grid:
    """A box, cut into bins of equal width.

    Parameters
    ----------
    bounds : (d, 2) the box.
    step : width of a bin as a fraction of the widest feature (``scale="none"``), or of each
        feature's own range (``scale="box"``).
    scale : ``"none"`` clusters the values as they are; ``"box"`` maps each feature to [0, 1] first.
    shift_seed : where given, the bins of a feature are shifted by a public random part of a step.

    Attributes
    ----------
    levels : the number of bins along each feature; 1 where low equals high.

    Examples
    --------
    >>> grid = Grid(np.array([[0.0, 10.0], [0.0, 5.0], [3.0, 3.0]]), step=0.25)
    >>> grid.levels
    array([5, 3, 1])
    >>> grid.bins(np.array([[1.2, 5.0, 3.0]]))
    array([[0, 2, 0]])
    """

    bounds: Floats
    step: float
    scale: Scale = "none"
    shift_seed: Secret | None = None
    low: Floats = field(init=False)
    span: Floats = field(init=False)
    offset: Floats = field(init=False)
    extent: float = field(init=False)
    shift: Floats = field(init=False)
    levels: Ints = field(init=False)

    def __post_init__(self) -> None:
        if not SMALLEST_STEP <= self.step <= 1.0:
            raise ValueError(
                f"step must lie between 2^-24 and 1 (the whole box), got {self.step!r}"
            )
        low, high = self.bounds.T.copy()
        ranges = high - low
        widest = float(ranges.max(initial=0.0)) or 1.0
        constant = np.zeros_like(low)
        derived: dict[str, Any] = {"low": low}
        if self.scale == "box":
            derived |= {"span": np.where(ranges > 0.0, ranges, 1.0)}
            derived |= {"offset": constant, "extent": 1.0}
        else:
            derived |= {"span": np.full_like(low, widest), "offset": low, "extent": widest}
        shift = constant
        if self.shift_seed is not None:
            keys = keys_of_integers(self.shift_seed, b"f", np.arange(len(low)))
            # In [-1/2, 1/2) of a step, so that the lowest value always falls into bin 0.
            shift = ((keys.low >> np.uint64(11)) * 2.0**-53 - 0.5) * self.step
        derived |= {"shift": np.where(ranges > 0.0, shift, 0.0)}
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        top = self._indices((ranges / self.span)[np.newaxis])[0]
        object.__setattr__(self, "levels", top + 1)

    @property
    def n_features(self) -> int:
        return len(self.bounds)

    @property
    def fixed_point(self) -> FixedPoint:
        """How clustered values become fixed-point integers."""
        return FixedPoint(self.offset, self.extent)

    def outside(self, values: Floats) -> Outside | None:
        """Where values lie outside the box; None if none does."""
        outside = (values < self.bounds[:, 0]) | (values > self.bounds[:, 1])
        if not outside.any():
            return None
        row, column = (int(i) for i in np.argwhere(outside)[0])
        return Outside(row, column, int(np.count_nonzero(outside)))

    def clip(self, values: Floats) -> Floats:
        """Move values outside the box to its border."""
        return np.clip(values, self.bounds[:, 0], self.bounds[:, 1])

    def to_clustered(self, values: Floats) -> Floats:
        """From the caller's units to the space that is clustered (a copy, C-contiguous)."""
        if self.scale == "none":
            return np.array(values, dtype=np.float64, order="C")
        clustered: Floats = np.subtract(values, self.low, order="C")
        clustered /= self.span
        return clustered

    def to_units(self, clustered: Floats) -> Floats:
        """From the clustered space to fractions of the box."""
        units: Floats = (clustered - self.offset) / self.extent
        return units

    def from_units(self, units: Floats) -> tuple[Floats, Floats]:
        """Fractions of the box as points of the clustered space and in the caller's units."""
        clustered = self.offset + units * self.extent
        return clustered, clustered if self.scale == "none" else self.low + units * self.span

    def _indices(self, units: Floats) -> Ints:
        """Index of the grid point nearest to each coordinate; ties go to the smaller index."""
        # In NumPy, because a grid is made by commands that have no other use for numba.
        away = units - self.shift
        below = np.floor(away / self.step)
        below += away - self.step * below > self.step * (below + 1.0) - away
        return np.maximum(below, 0.0).astype(np.int64)

    def bins_of_units(self, units: Floats) -> Ints:
        """The bin nearest to each point; ties go to the smaller index."""
        return np.minimum(self._indices(units), self.levels - 1)

    def bins(self, values: npt.ArrayLike) -> Ints:
        """The bin nearest to each point in the caller's units."""
        return self.bins_of_units(self.to_units(self.to_clustered(np.asarray(values, float))))

    def units_of_bins(self, bins: Floats | Ints) -> Floats:
        """The centres of bins as fractions of the box; bins may be fractional (centroids)."""
        units: Floats = bins * self.step + self.shift
        return units
