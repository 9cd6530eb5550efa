"""Points come, change their weights, and go."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.race import SCREEN
from fedforget.clustering.replay.parts import part_of
from fedforget.clustering.replay.state import Points
from fedforget.compilation import helper, inlined, kernel

_points = part_of(Points)

MOST_PAIRS = 1024
"""Pairs of points that come and go up to which each looks for its nearest."""


@helper
def change_points(points, changed, coordinates, keys):
    """Let points come, change their weights, and go.  OUT: points."""
    order, n = points.order, points.summary.n
    new = 0
    for c in range(changed.shape[0]):
        slot, before, after, place = changed[c, 0], changed[c, 1], changed[c, 2], changed[c, 3]
        points.weights[slot] = after
        if before == 0:
            _put_point(points, slot, coordinates[new], keys[new])
            new += 1
            for p in range(n, place, -1):
                order[p] = order[p - 1]
            order[place] = slot
            n += 1
        if after == 0:
            n -= 1
            for p in range(place, n):
                order[p] = order[p + 1]
    points.summary.n = n


@kernel
def bound_points(table, radius2, reach2):
    """Let the bounds of the points cover squared lengths, from the origin and from zero.

    OUT: the summary of the points, which come as a table.
    """
    points = _points(table)
    _widen(points.summary, points.origin.shape[0], radius2, reach2)


@helper
def _put_point(points, slot, coordinates, key):
    """Put a point into a slot.  OUT: points."""
    d = points.origin.shape[0]
    points.keys[slot, 0] = key[0]
    points.keys[slot, 1] = key[1]
    radius2 = reach2 = 0.0
    for c in range(d):
        value = np.float64(coordinates[c])
        shifted = np.float64(coordinates[c] - points.origin[c])
        points.values[slot, c] = value
        radius2 += shifted * shifted
        reach2 += value * value
    _widen(points.summary, d, radius2, reach2)


@helper
def find_companions(points, changed, arrivals):
    """For each point that comes the nearest of those that go, and how far it is.  OUT: arrivals.

    Where a client's mean moves on, these are neighbours on the lattice.  Many points at once, whose
    pairs would take longer than they save, have none.
    """
    comes = goes = 0
    for c in range(changed.shape[0]):
        arrivals[c].companion = -1
        comes += 1 if changed[c, 1] == 0 else 0
        goes += 1 if changed[c, 2] == 0 else 0
    if comes * goes > MOST_PAIRS:
        return
    for c in range(changed.shape[0]):
        if changed[c, 1] > 0:
            continue
        nearest = np.inf
        for other in range(changed.shape[0]):
            if changed[other, 2] == 0:
                slot = changed[other, 0]
                distance = squared_distance(points.values[changed[c, 0]], points.values[slot])
                if distance < nearest:
                    nearest = distance
                    arrivals[c].companion = slot
        arrivals[c].apart = np.sqrt(nearest) * SCREEN


@inlined
def _widen(summary, d, radius2, reach2):
    """Let the bounds cover a point with these squared lengths, from the origin and from zero.

    OUT: summary.
    """
    summary.radius2 = max(summary.radius2, (1.0 + 1e-9) * radius2)
    summary.reach2 = max(summary.reach2, (1.0 + 1e-9) * reach2)
    summary.slack = max(summary.slack, 2.0**-47 * (d + 16.0) * summary.reach2)
