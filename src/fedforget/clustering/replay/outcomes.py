"""What restarts come to: which may have the lowest loss, and what it is."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.replay.arithmetic import fill, mixed, need_centre, norm_of
from fedforget.clustering.replay.state import READY
from fedforget.compilation import helper, inlined


@helper
def estimate_losses(above, sums, losses, touched, before, everything):
    """Follow the losses of clusters that have changed, or whose centres have.  OUT: losses.

    ``above`` holds the sums of the last row but one, ``sums`` those of the last.
    """
    d = sums.shape[1] - 1
    for k in range(touched.shape[0]):
        if touched[k] or before[k] or everything:
            losses[k].stale = True
            # The sum of w (|c|^2 - 2 x.c); that of w |x|^2 is the same for every restart.
            weight = np.float64(sums[k, d])
            losses[k].about = weight * norm_of(above[k]) - 2.0 * mixed(above[k], sums[k])


@helper
def settle_outcomes(points, rows, runs, scratch, total):
    """Mark the restarts that may have the lowest loss, and add theirs up.  OUT: runs, scratch.

    ``total`` is the weight of all points.
    """
    lowest = np.inf
    n_restarts, n_clusters = runs.losses.shape
    for r in range(n_restarts):
        if runs.restarts[r].status == READY:
            lowest = min(lowest, _about(runs.losses[r]))
    terms = points.summary.n + points.origin.shape[0] + n_clusters + 64.0
    margin = 2.0**-48 * terms * np.float64(total) * points.summary.radius2
    for r in range(n_restarts):
        restart = runs.restarts[r]
        restart.contends = (
            restart.status == READY
            and _about(runs.losses[r]) <= lowest + margin
            and not _has_twin(rows, runs, r, scratch.twin)
        )
        if restart.contends:
            last = restart.length - 1
            above, row = runs.where[r, last - 1], runs.where[r, last]
            _add_losses(points, rows.sums[above], rows.labels[row], runs.losses[r], scratch)
        scratch.tally.rows += restart.length


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
            and _same_clusters(rows.labels[last], rows.labels[other], twin)
        ):
            return True
    return False


@inlined
def _same_clusters(one, two, twin):
    """Whether labels differ by nothing but the clusters' numbers.  OUT: twin.

    No cluster is empty.  The last entry of ``twin`` is for slots without a point, of label -1.
    """
    fill(twin, np.int32(-1))
    missing = twin.shape[0] - 1
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
def _add_losses(points, above, labels, losses, scratch):
    """Losses of a restart's stale clusters, point by point in canonical order.

    ``above`` holds the sums that make its centres.  OUT: losses, scratch.
    """
    fill(scratch.have, np.bool_(False))
    for k in range(losses.shape[0]):
        if losses[k].stale:
            losses[k].exact = 0.0
            need_centre(points, above, k, scratch)
    count = 0
    for p in range(points.summary.n):
        slot = points.order[p]
        scratch.candidates[count] = slot
        count += 1 if losses[labels[slot]].stale else 0
    for p in range(count):
        slot = scratch.candidates[p]
        distance = squared_distance(points.values[slot], scratch.centres[labels[slot]])
        losses[labels[slot]].exact += np.float64(points.weights[slot]) * distance
    for k in range(losses.shape[0]):
        losses[k].stale = False
    scratch.tally.distances += count
