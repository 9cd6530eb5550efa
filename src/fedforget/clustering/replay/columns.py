"""Very many points: estimates of all distances that follow the run from row to row.

At a server with many bins a run that has left its old path is soon far from it, but from one row to
the next only some points change their clusters.  So what a walk knows of one row it brings up to
date for the next: where a cluster has gained or lost a point x, the estimates of all points for its
centre change by a multiple of their inner products with x, which are kept.  That is their course
(:mod:`~fedforget.clustering.replay.courses`).
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.memory import fetch
from fedforget.clustering.replay.arithmetic import (
    copy,
    count_from,
    fill,
    limit_of,
    locate_from_origin,
    nearest_within,
)
from fedforget.clustering.replay.courses import (
    compute_columns,
    count_differences,
    is_news,
    plot_courses,
)
from fedforget.clustering.replay.moves import no_moves, note_changes, relabel
from fedforget.clustering.replay.state import BEFORE, NEAR_BLOCK, SLOT, SLOT_BLOCK
from fedforget.compilation import helper, inlined

MOST_ARRIVALS = 256
"""If more points come at once, no set follows the change."""

AHEAD = 3
"""So many gains ahead, products are asked for from memory."""

NEVER = -2
"""The change that a set has followed which has no estimates."""


# -- what a walk is told ---------------------------------------------------------------------------


@helper
def add_point_to_columns(points, columns, scratch, slot):
    """Let the coordinates include a new point's.  OUT: columns, scratch."""
    locate_from_origin(points, scratch, slot)
    copy(scratch.point, columns.coordinates[slot])


@inlined
def hear_of_changes(points, columns, scratch, changed):
    """Before any row is looked at.  OUT: columns."""
    arrivals = 0
    for c in range(changed.shape[0]):
        arrivals += 1 if changed[c, BEFORE] == 0 else 0
    # After two steps, no set has followed the change before this one.
    columns.journey.change += 1 if arrivals <= MOST_ARRIVALS else 2


@inlined
def set_out_by_columns(columns, restart):
    """Before the first row of a walk.  OUT: columns."""
    columns.journey.restart = restart
    columns.journey.latest = -1
    columns.journey.step = columns.bases.shape[1]


@inlined
def begin_by_columns(points, rows, columns, scratch, where, t, is_first, turn):
    """Let row t start with what the row above knows: a walk has that at hand."""


@inlined
def is_closer_by_columns(points, rows, columns, scratch, above, row, turn):
    """Whether to start as a copy of the row above takes less time than to follow the moves.

    As many labels change from that row as have changed to it, or fewer; the sums of all clusters
    have to be copied, too.
    """
    apart = count_differences(rows.labels[row], rows.labels[above])
    return apart > 2 * columns.journey.step + rows.sums.shape[1]


@helper
def assign_by_columns(points, rows, columns, scratch, changed, above, row, t, is_old, turn):
    """Bring the labels of a row up to date.

    ``scratch.touched[turn]`` will mark the clusters that have moves.  OUT: rows, columns, scratch.
    """
    touched, labels = scratch.touched[turn], rows.labels[row]
    no_moves(scratch, touched)
    if is_old:
        for c in range(changed.shape[0]):
            if changed[c, BEFORE] == 0:
                labels[changed[c, SLOT]] = -1
        note_changes(labels, changed, touched, scratch)
    if t == 0 and is_old:
        # Seeds do not move; only points that come need labels.
        fill(scratch.column[: rows.centres.shape[1]], 0.0)
        for c in range(changed.shape[0]):
            if changed[c, BEFORE] == 0:
                _settle(points, rows, scratch, row, changed[c, SLOT], 0.0, touched)
        return
    if t == 0:
        _set_out_from_seeds(points, rows, columns, scratch, row)
    else:
        _choose_sets(rows, columns, above, t)
        plot_courses(points, rows, columns, scratch, changed, above, row)
    _follow(points, rows, columns, scratch, changed, row, touched)
    if t > 0:
        journey = columns.journey
        copy(rows.labels[above], columns.bases[journey.target])
        columns.sets[journey.target].change = journey.change
        journey.latest = journey.target
        journey.step = count_differences(rows.labels[above], labels)


@helper
def _set_out_from_seeds(points, rows, columns, scratch, row):
    """Compute the estimates for the seeds, which are no means of clusters.

    OUT: columns, scratch.
    """
    columns.journey.source = -1
    columns.journey.target = columns.sets.shape[0] - 1
    for k in range(columns.course.shape[0]):
        columns.fresh[k] = k
    compute_columns(points, rows, columns, scratch, row, columns.course.shape[0])


@helper
def _choose_sets(rows, columns, above, t):
    """Which set is to be that of row t, and from which one it is made.  OUT: columns.

    A row's own set starts from itself or from the latest of the walk, whichever is closer.
    """
    journey, labels = columns.journey, rows.labels[above]
    journey.source = journey.latest
    journey.target = columns.sets.shape[0] - 1
    if t > journey.places:
        return
    own = journey.restart * journey.places + t - 1
    journey.target = own
    if columns.sets[own].change >= journey.change - 1:
        latest = journey.latest
        if latest < 0 or (
            count_differences(columns.bases[own], labels)
            <= count_differences(columns.bases[latest], labels)
        ):
            journey.source = own


# -- following, and what columns tell --------------------------------------------------------------


@helper
def _follow(points, rows, columns, scratch, changed, row, touched):
    """Let columns take their courses, and labels follow them, block by block.

    OUT: rows, columns, scratch, touched.
    """
    journey, slots = columns.journey, points.weights.shape[0]
    target = journey.target
    limit = limit_of(columns.centres[target], points.summary.slack)
    is_new = is_news(columns)
    for begin in range(0, slots, NEAR_BLOCK):
        end = min(begin + NEAR_BLOCK, slots)
        for k in range(columns.course.shape[0]):
            _take_course(columns, k, begin, end)
        if is_new:
            for c in range(changed.shape[0]):
                if changed[c, BEFORE] == 0 and begin <= changed[c, SLOT] < end:
                    _estimate_arrival(points, rows, columns, scratch, row, changed[c, SLOT])
        near, other = columns.near[: end - begin], columns.other[: end - begin]
        which = columns.which[: end - begin]
        fill(near, np.float32(np.inf))
        fill(other, np.float32(np.inf))
        block = columns.columns[target, :, begin:end]
        n_clusters = block.shape[0]
        for k in range(0, n_clusters - n_clusters % 4, 4):
            _meet_four(
                block[k], block[k + 1], block[k + 2], block[k + 3], np.int32(k), near, other, which
            )
        for k in range(n_clusters - n_clusters % 4, n_clusters):
            _meet(block[k], np.int32(k), near, other, which)
        _take_labels(points, rows, columns, scratch, row, begin, end, limit, touched)


@helper
def _take_course(columns, k, begin, end):
    """Let a block of a column follow its cluster.  OUT: columns."""
    course, products = columns.course[k], columns.products
    source, target = columns.journey.source, columns.journey.target
    if course.gains < 0:
        return
    column = columns.columns[target, k, begin:end]
    if source != target:
        copy(columns.columns[source, k, begin:end], column)
    if course.gains == 0:
        return
    _rescale(column, np.float32(course.ratio), np.float32(course.constant))
    shares, last = columns.shares, columns.journey.gains - 1
    for p in range(course.first, course.first + course.gains):
        fetch(products[shares[min(p + AHEAD, last)].slot, begin:end])
        _add(column, shares[p].factor, products[shares[p].slot, begin:end])


@helper
def _rescale(column, ratio, constant):
    """Multiply, and add a constant.  OUT: column."""
    for i in range(column.shape[0]):
        column[i] = ratio * column[i] + constant


@helper
def _add(column, factor, vector):
    """column += factor * vector.  OUT: column."""
    for i in range(column.shape[0]):
        column[i] += factor * np.float32(vector[i])


@helper
def _estimate_arrival(points, rows, columns, scratch, row, slot):
    """The estimates of a point that comes, for all centres.  OUT: columns, scratch."""
    target, place = columns.journey.target, columns.place
    locate_from_origin(points, scratch, slot)
    for k in range(columns.course.shape[0]):
        count_from(points.base, rows.centres[row, k], place)
        product = 0.0
        for c in range(place.shape[0]):
            product += scratch.point[c] * place[c]
        columns.columns[target, k, slot] = columns.centres[target, k].norm - 2.0 * product


@helper
def _meet(column, k, near, other, which):
    """Let points meet one more centre, without a branch.  OUT: near, other, which."""
    for i in range(column.shape[0]):
        near[i], other[i], which[i] = _closer(column[i], k, near[i], other[i], which[i])


@helper
def _meet_four(one, two, three, four, k, near, other, which):
    """Let points meet four more centres, from k on.  OUT: near, other, which."""
    second, third, fourth = k + np.int32(1), k + np.int32(2), k + np.int32(3)
    for i in range(one.shape[0]):
        a, b, c = near[i], other[i], which[i]
        a, b, c = _closer(one[i], k, a, b, c)
        a, b, c = _closer(two[i], second, a, b, c)
        a, b, c = _closer(three[i], third, a, b, c)
        a, b, c = _closer(four[i], fourth, a, b, c)
        near[i], other[i], which[i] = a, b, c


@inlined
def _closer(estimate, k, lowest, second, which):
    """The lowest estimate and the next, and whose the lowest is, with one more, of centre k."""
    closer = estimate < lowest
    higher = lowest if closer else estimate
    return (
        estimate if closer else lowest,
        higher if higher < second else second,
        k if closer else which,
    )


@helper
def _any_in_doubt(which, labels, near, other, bound):
    """Whether a point of a block has another label than the lowest estimate, or two are close."""
    hits = np.int32(0)
    for i in range(SLOT_BLOCK):
        stands = (which[i] == labels[i]) & (other[i] - near[i] > bound)
        hits = np.int32(hits + (0 if stands else 1))
    return hits > 0


@helper
def _take_labels(points, rows, columns, scratch, row, begin, end, limit, touched):
    """Let a block of points have the labels of their lowest estimates, or settle them.

    OUT: rows, scratch, touched.
    """
    labels = rows.labels[row, begin:end]
    near, other, which = columns.near, columns.other, columns.which
    # The difference is taken in single precision.
    bound = np.float32(limit * (1.0 + 1e-5))
    for first in range(0, end - begin, SLOT_BLOCK):
        # Loops over slices, whose indices are not negative, become vectors.
        some = slice(first, first + SLOT_BLOCK)
        if not _any_in_doubt(which[some], labels[some], near[some], other[some], bound):
            continue
        for i in range(first, first + SLOT_BLOCK):
            slot, was, now = begin + i, np.int64(labels[i]), np.int64(which[i])
            if points.weights[slot] == 0:
                continue
            if other[i] - near[i] <= bound:
                known, target = scratch.column, columns.journey.target
                for k in range(columns.course.shape[0]):
                    known[k] = columns.columns[target, k, slot]
                _settle(points, rows, scratch, row, slot, near[i] + limit, touched)
            elif was != now:
                labels[i] = now
                relabel(points, scratch, touched, slot, was, now)


@helper
def _settle(points, rows, scratch, row, slot, most, touched):
    """Give a point the nearest of the centres whose estimates, in ``column``, are at most that.

    OUT: rows, scratch, touched.
    """
    centres, was = rows.centres[row], np.int64(rows.labels[row, slot])
    known = scratch.column[: centres.shape[0]]
    now = nearest_within(points, centres, scratch, slot, known, most)
    scratch.tally.labels += 1
    if was != now:
        rows.labels[row, slot] = now
        relabel(points, scratch, touched, slot, was, now)
