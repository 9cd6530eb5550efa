"""What restarts come to: which may have the lowest loss, and what it is."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.replay.arithmetic import fill, weight_of
from fedforget.clustering.replay.state import READY
from fedforget.compilation import helper, inlined


@helper
def estimate_losses(points, centres, sums, losses, touched, moved, everything):
    """Follow the losses of clusters that have changed, or whose centres have.  OUT: losses.

    ``centres`` and ``sums`` are those of the last row.
    """
    d = points.origin.shape[0]
    for k in range(touched.shape[0]):
        if touched[k] or moved[k] or everything:
            losses[k].stale = True
            # The sum of w (|c|^2 - 2 x.c); that of w |x|^2 is the same for every restart.
            weight = np.float64(weight_of(sums[k]))
            norm = product = 0.0
            for c in range(d):
                side = centres[k, c] - points.base[c]
                norm += side * side
                product += side * (np.float64(sums[k, c]) * points.units[c])
            losses[k].about = weight * norm - 2.0 * product


@helper
def settle_outcomes(points, rows, runs, scratch, total):
    """Mark the restarts that may have the lowest loss.  OUT: runs, scratch.

    Where points have an order, the losses of these are added up in that order.
    ``total`` is the weight of all points.
    """
    lowest = np.inf
    n_restarts, n_clusters = runs.losses.shape
    for r in range(n_restarts):
        if runs.restarts[r].status == READY:
            lowest = min(lowest, _about(runs.losses[r]))
    terms = points.summary.n + points.origin.shape[0] + n_clusters + 64.0
    margin = 2.0**-48 * terms * np.float64(total)
    margin *= points.summary.radius2 + points.summary.reach2
    for r in range(n_restarts):
        restart = runs.restarts[r]
        restart.contends = (
            restart.status == READY
            and _about(runs.losses[r]) <= lowest + margin
            and not _has_twin(rows, runs, r, scratch.twin)
        )
        if restart.contends and points.order.shape[0] > 0:
            row = runs.where[r, restart.length - 1]
            _add_losses(points, rows.centres[row], rows.labels[row], runs.losses[r], scratch)
        scratch.tally.rows += restart.taken
        if restart.taken > restart.length:
            # The last two rows change places with each change.
            scratch.tally.unkept += restart.taken - (restart.length - 2)


@inlined
def _about(losses):
    """The loss of a restart, roughly."""
    total = 0.0
    for k in range(losses.shape[0]):
        total += losses[k].about
    return total


@helper
def _has_twin(rows, runs, r, twin):
    """Whether an earlier contender has converged to the same clusters.  OUT: twin.

    It then has the same loss, bit for bit, and comes first.
    """
    last = runs.where[r, runs.restarts[r].length - 1]
    if rows.witness[last] >= 0:
        return False
    for earlier in range(r):
        other = runs.where[earlier, runs.restarts[earlier].length - 1]
        if (
            runs.restarts[earlier].contends
            and rows.witness[other] < 0
            and _count_filled(rows.sums[last]) == _count_filled(rows.sums[other])
            and _same_clusters(rows.labels[last], rows.labels[other], rows.sums[last], twin)
        ):
            return True
    return False


@helper
def _count_filled(sums):
    """How many clusters have points."""
    count = 0
    for k in range(sums.shape[0]):
        count += 1 if weight_of(sums[k]) > 0 else 0
    return count


@inlined
def _same_clusters(one, two, sums, twin):
    """Whether labels differ by nothing but the clusters' numbers.  OUT: twin.

    Both have equally many clusters with points, and ``sums`` are those of the first.  So if every
    cluster of the first lies in one of the second, no two of them lie in the same.  The last entry
    of ``twin`` is for slots without a point, of label -1.
    """
    fill(twin, np.int32(-1))
    missing = _count_filled(sums)
    for slot in range(one.shape[0]):
        if missing == 0:
            break
        if one[slot] >= 0 and twin[one[slot]] < 0:
            twin[one[slot]] = two[slot]
            missing -= 1
    differing = np.int32(0)
    for slot in range(one.shape[0]):
        differing = np.int32(differing + np.int32(twin[one[slot]] != two[slot]))
    return differing == 0


@helper
def _add_losses(points, centres, labels, losses, scratch):
    """Losses of a restart's stale clusters, point by point in canonical order.

    OUT: losses, scratch.
    """
    for k in range(losses.shape[0]):
        if losses[k].stale:
            losses[k].exact = 0.0
    count = 0
    for p in range(points.summary.n):
        slot = points.order[p]
        scratch.candidates[count] = slot
        count += 1 if losses[labels[slot]].stale else 0
    for p in range(count):
        slot = scratch.candidates[p]
        distance = squared_distance(points.values[slot], centres[labels[slot]])
        losses[labels[slot]].exact += np.float64(points.weights[slot]) * distance
    for k in range(losses.shape[0]):
        losses[k].stale = False
    scratch.tally.distances += count
