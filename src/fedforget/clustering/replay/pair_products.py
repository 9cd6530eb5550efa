"""Inner products of all points with all points, for columns that follow a run.

They are kept as whole numbers of *grains* that fit 16 bits.  A walk reads them from memory and does
little else with them, so half the bytes take half the time; and the rounding is no worse than what
a sum of hundreds of terms in single precision may be off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedforget.arrays import Ints
from fedforget.clustering.replay.state import ColumnSets

MOST_GRAINS = 32_000
"""The largest product; some room is left for its errors."""

_BATCH = 512


def know_all(columns: ColumnSets, radius2: float) -> None:
    """Compute all products, of points whose squared lengths are at most that."""
    points, products = columns.coordinates, columns.products
    columns.grain["size"] = max(radius2, 1e-30) / MOST_GRAINS
    for begin in range(0, len(points), _BATCH):
        some = slice(begin, begin + _BATCH)
        grains = _in_grains(columns, points[some] @ points[begin:].T)
        products[some, begin:] = grains
        products[begin:, some] = grains.T


def know_arrivals(columns: ColumnSets, slots: Ints, radius2: float) -> None:
    """Compute the products of points that come with all points."""
    if not len(slots):
        return
    if radius2 > MOST_GRAINS * float(columns.grain["size"]):
        know_all(columns, radius2)
        return
    grains = _in_grains(columns, columns.coordinates[slots] @ columns.coordinates.T)
    columns.products[slots] = grains
    columns.products[:, slots] = grains.T


def _in_grains(columns: ColumnSets, products: Any) -> Any:
    """Products as whole numbers of grains."""
    products *= np.float32(1.0 / float(columns.grain["size"]))
    return np.rint(products, out=products).astype(np.int16)
