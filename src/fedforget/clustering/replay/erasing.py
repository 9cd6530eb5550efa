"""What points that have left leave behind in a replay by margins."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.greedy import any_among
from fedforget.clustering.replay.arithmetic import fill
from fedforget.clustering.replay.lanes import mark_empty
from fedforget.clustering.replay.state import SLOT_BLOCK
from fedforget.compilation import kernel

FEW = 8
"""So many slots are looked for one after the other, because vectors tell soon."""


@kernel
def erase_coordinates(coordinates, turned, slots):
    """Overwrite points that have left.  OUT: coordinates, turned."""
    for i in range(slots.shape[0]):
        fill(coordinates[slots[i]], np.float32(0.0))
        if turned.shape[0] == 0:
            continue
        tile, lane = turned[slots[i] // SLOT_BLOCK], slots[i] % SLOT_BLOCK
        for c in range(tile.shape[0]):
            tile[c, lane] = 0.0
        mark_empty(turned, slots[i])


@kernel
def erase_from_rows(
    labels, reserves, border, border_margins, rows, listed, given_back, slots, is_gone
):
    """Overwrite what rows know of points that have left.

    From its margins in many rows a point could be computed.  The ``rows`` have followed, but for
    their lists, which have ``listed`` points each; those that were ``given_back`` have not.
    OUT: labels, reserves, border_margins.  Working memory: is_gone, which is False everywhere
    before and after.
    """
    for j in range(slots.shape[0]):
        is_gone[slots[j]] = True
    for i in range(rows.shape[0]):
        points = border[rows[i], : listed[i]]
        if slots.shape[0] > FEW or any_among(slots, points):
            for p in range(points.shape[0]):
                if is_gone[points[p]]:
                    border_margins[rows[i], p] = np.inf
    for i in range(given_back.shape[0]):
        for j in range(slots.shape[0]):
            labels[given_back[i], slots[j]] = -1
            reserves[given_back[i], slots[j]] = 0.0
    for j in range(slots.shape[0]):
        is_gone[slots[j]] = False
