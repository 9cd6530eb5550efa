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
    move = scratch.moves[scratch.tally.moves]
    move.slot = slot
    move.cluster = cluster
    move.weight = weight
    scratch.tally.moves += 1
    touched[cluster] = True


@inlined
def relabel(points, scratch, touched, slot, was, now):
    """Note that a point has left a cluster, or -1 for none, for another.  OUT: scratch, touched."""
    if was >= 0:
        note(scratch, touched, slot, was, -points.weights[slot])
    note(scratch, touched, slot, now, points.weights[slot])


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
