"""Nearest centres, bit for bit the same however the work is cut up.

The label of a row is the centre with the smallest squared distance as the kernel
``squared_distance`` computes it, ties to the earlier centre.  Where many features meet many
centres, a matrix product rules most of them out first; what it cannot rule out for certain is
settled by that kernel.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedforget.clustering import kernels

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int32]

_UNIT = 2.0**-53
_CHUNK_BYTES = 4 << 20
_SCREEN_SIZE = 4096

MAX_MAGNITUDE = 1e100
"""The square of a larger value could overflow, or its score underflow."""


def meet_centres(values: Floats, centres: Floats, first: int, d2: Floats, label: Labels) -> None:
    """Bring rows up to date with the centres ``first`` and later, in place.

    Before, ``label`` and ``d2`` hold each row's nearest centre among the first ``first`` and the
    squared distance to it (-1 and inf where ``first`` is 0); afterwards, among all.  Prior
    validation is assumed.
    """
    n, d = values.shape
    if d * (len(centres) - first) < _SCREEN_SIZE:
        kernels.meet_tiled(values, centres, first, d2, label)
        return
    if first == 0:
        # The screen starts from a known distance.
        kernels.distances_to(values, centres[0], d2)
        label[:] = 0
        first = 1
    transposed = np.ascontiguousarray(centres.T)
    norms = np.einsum("ij,ij->i", centres, centres)
    radius = float(np.sqrt(norms.max()) * (1.0 + 1e-9))
    unit = 16.0 * (d + 16) * _UNIT
    rows = max(64, _CHUNK_BYTES // (8 * d))
    for begin in range(0, n, rows):
        part = slice(begin, begin + rows)
        kernels.meet_screened(
            values[part],
            centres,
            first,
            values[part] @ transposed,
            norms,
            radius,
            unit,
            d2[part],
            label[part],
        )


def nearest(values: Floats, centres: Floats) -> tuple[Labels, Floats]:
    """Label and squared distance of each row's nearest centre (-1 and inf without centres)."""
    n = len(values)
    label = np.full(n, -1, dtype=np.int32)
    d2 = np.full(n, np.inf)
    meet_centres(values, centres, 0, d2, label)
    return label, d2


def pairwise(values: Floats, centres: Floats) -> Floats:
    """The squared distance of every row to every centre."""
    out = np.empty((len(values), len(centres)))
    kernels.pairwise_distances(values, centres, out)
    return out
