"""What the clusters of a row gain and lose, noted while the row is brought up to date.

``touched`` marks the clusters that have moves.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.replay.state import AFTER, BEFORE, SLOT
from fedforget.compilation import helper, inlined


@inlined
def no_moves(scratch, touched):
    """Begin a new list.  OUT: scratch, touched."""
    scratch.tally.moves = 0
    touched[:] = False


@helper
def note(scratch, touched, slot, cluster, weight):
    """Note that a cluster has gained some weight at a point.  OUT: scratch, touched."""
    scratch.tally.moves = _note(scratch, touched, scratch.tally.moves, slot, cluster, weight)


@inlined
def _note(scratch, touched, count, slot, cluster, weight):
    """Note one more than ``count`` moves; returns how many there are.  OUT: scratch, touched."""
    move = scratch.moves[count]
    move.slot = slot
    move.cluster = cluster
    move.weight = weight
    touched[cluster] = True
    return count + 1


@inlined
def relabel(points, scratch, touched, slot, was, now):
    """Note that a point has left a cluster, or -1 for none, for another.  OUT: scratch, touched."""
    count = scratch.tally.moves
    scratch.tally.moves = relabel_next(points, scratch, touched, count, slot, was, now)


@inlined
def relabel_next(points, scratch, touched, count, slot, was, now):
    """:func:`relabel` behind ``count`` moves; returns how many there are.

    Where many points follow each other, the count need not go to memory and back.
    OUT: scratch, touched.
    """
    if was >= 0:
        count = _note(scratch, touched, count, slot, was, -points.weights[slot])
    return _note(scratch, touched, count, slot, now, points.weights[slot])


@inlined
def note_changes(labels, changed, touched, scratch):
    """Let the changed points that were there change their weights, or go.

    OUT: labels, touched, scratch.
    """
    for c in range(changed.shape[0]):
        slot, before, after = changed[c, SLOT], changed[c, BEFORE], changed[c, AFTER]
        if before > 0:
            note(scratch, touched, slot, np.int64(labels[slot]), after - before)
        if after == 0:
            labels[slot] = -1
