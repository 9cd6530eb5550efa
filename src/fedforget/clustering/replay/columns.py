"""Very many points: estimates of all distances that follow the run from row to row.

At a server with many bins a run that has left its old path is soon far from it, but from one row to
the next only some points change their clusters.  So what a walk knows of one row it brings up to
date for the next: where a cluster has gained or lost a point x, the estimates of all points for its
centre change by a multiple of their inner products with x, which are kept.

The bounds on the errors of estimates are derived in docs/math.md.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.replay.arithmetic import (
    SINGLE,
    UNDERFLOW,
    copy,
    count_from,
    fetch,
    fill,
    locate_from_origin,
    magnitude,
    nearest_within,
    norm_of,
)
from fedforget.clustering.replay.moves import no_moves, note_changes, relabel
from fedforget.clustering.replay.products import multiply
from fedforget.clustering.replay.state import AFTER, BEFORE, NEAR_BLOCK, SLOT, SLOT_BLOCK
from fedforget.compilation import helper, inlined

WORN = 16.0
"""A column begins anew, from its cluster's members, before its error grows by more than this."""

MOST_ARRIVALS = 256
"""If more points come at once, no set follows the change."""

EXACT = 2.0**24
"""Up to this, whole numbers are exact in single precision."""

AT_ONCE = 4
"""Gains that a column follows at once."""

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


@inlined
def begin_by_columns(points, rows, columns, scratch, where, t, is_first, turn):
    """Let row t start with what the row above knows: a walk has that at hand."""


@inlined
def is_closer_by_columns(points, rows, columns, scratch, above, row, turn):
    """Whether to start as a copy of the row above takes less time than to follow the moves.

    As many labels change from that row as have changed to it, or fewer; the sums of all clusters
    have to be copied, too.
    """
    apart = _count_differences(rows.labels[row], rows.labels[above])
    return apart > 2 * columns.journey.step + rows.sums.shape[1]


@helper
def _count_differences(one, two):
    """How many labels differ."""
    count = np.int32(0)
    for i in range(one.shape[0]):
        count += np.int32(1) if one[i] != two[i] else np.int32(0)
    return np.int64(count)


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
        columns.journey.step = labels.shape[0]
        fill(scratch.column[: rows.centres.shape[1]], 0.0)
        for c in range(changed.shape[0]):
            if changed[c, BEFORE] == 0:
                _settle(points, rows, scratch, row, changed[c, SLOT], 0.0, touched)
        return
    if t == 0:
        columns.journey.step = labels.shape[0]
        _set_out_from_seeds(points, rows, columns, scratch, row)
    else:
        _choose_sets(rows, columns, above, t)
        _plot_courses(points, rows, columns, scratch, changed, above, row)
    _follow(points, rows, columns, scratch, changed, row, touched)
    if t > 0:
        journey = columns.journey
        copy(rows.labels[above], columns.bases[journey.target])
        columns.sets[journey.target].change = journey.change
        journey.latest = journey.target
        journey.step = _count_differences(rows.labels[above], labels)


@helper
def _set_out_from_seeds(points, rows, columns, scratch, row):
    """Compute the estimates for the seeds, which are no means of clusters.

    OUT: columns, scratch.
    """
    columns.journey.source = -1
    columns.journey.target = columns.sets.shape[0] - 1
    for k in range(columns.course.shape[0]):
        columns.fresh[k] = k
    _compute(points, rows, columns, scratch, row, columns.course.shape[0])


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
            _count_differences(columns.bases[own], labels)
            <= _count_differences(columns.bases[latest], labels)
        ):
            journey.source = own


# -- how columns follow their clusters -------------------------------------------------------------


@helper
def _plot_courses(points, rows, columns, scratch, changed, above, row):
    """Find out how each column becomes that of a row's centre.  OUT: columns, scratch.

    Columns that cannot follow are computed.
    """
    journey, n_clusters = columns.journey, columns.course.shape[0]
    source, most = journey.source, journey.most_gains
    for k in range(n_clusters):
        columns.course[k].first = -1
        columns.course[k].gains = 0
    journey.gains = 0
    is_new = _is_news(columns)
    follows = source >= 0
    if is_new:
        follows = _tell(columns, changed, most)
    follows = follows and _list_gains(points, columns, rows.labels[above], most)
    n_fresh = 0
    if follows:
        n_fresh, n_gains = _set_courses(points, rows, columns, above)
        follows = n_gains <= most
    if not follows:
        n_fresh = n_clusters
        for k in range(n_clusters):
            columns.fresh[k] = k
    else:
        _list_members(points, columns, rows.labels[above])
    if n_fresh > 0:
        _compute(points, rows, columns, scratch, row, n_fresh)
    _sort_gains(columns)
    if is_new:
        for k in range(n_clusters):
            # Points that come are estimated from scratch.
            centre = columns.centres[journey.target, k]
            centre.error = max(centre.error, _computed_error(points, centre.norm))


@inlined
def _is_news(columns):
    """Whether the change is news to the set that a row's is made from; the walk's own know it."""
    journey = columns.journey
    source = journey.source
    return (
        source >= 0 and source == journey.target and columns.sets[source].change != journey.change
    )


@helper
def _tell(columns, changed, most):
    """Let the basis of a set hear of the change, unless that is too much.  OUT: columns."""
    if changed.shape[0] > most:
        return False
    basis = columns.bases[columns.journey.source]
    for c in range(changed.shape[0]):
        slot, before, after = changed[c, SLOT], changed[c, BEFORE], changed[c, AFTER]
        if before > 0:
            _gain(columns, slot, np.int64(basis[slot]), after - before)
        if before == 0 or after == 0:
            basis[slot] = -1
    return True


@helper
def _list_gains(points, columns, labels, most):
    """List what clusters have gained against the basis of a set, unless that is too much.

    OUT: columns.
    """
    basis = columns.bases[columns.journey.source]
    for begin in range(0, labels.shape[0], SLOT_BLOCK):
        one, two = basis[begin : begin + SLOT_BLOCK], labels[begin : begin + SLOT_BLOCK]
        if _count_differences(one, two) == 0:
            continue
        if columns.journey.gains > most:
            return False
        for i in range(SLOT_BLOCK):
            if one[i] != two[i]:
                slot = begin + i
                if one[i] >= 0:
                    _gain(columns, slot, np.int64(one[i]), -points.weights[slot])
                if two[i] >= 0:
                    _gain(columns, slot, np.int64(two[i]), points.weights[slot])
    return True


@inlined
def _gain(columns, slot, cluster, weight):
    """Note that a cluster has gained some weight at a point.  OUT: columns."""
    number, course = columns.journey.gains, columns.course[cluster]
    gain = columns.gains[number]
    gain.slot = slot
    gain.weight = weight
    gain.next = course.first
    course.first = number
    course.gains += 1
    columns.journey.gains = number + 1


@helper
def _set_courses(points, rows, columns, above):
    """How the estimates for each centre follow.  OUT: columns.

    Returns how many columns have to be computed, which are listed, and the gains of all others.
    """
    n_clusters = columns.course.shape[0]
    for k in range(n_clusters):
        columns.course[k].members = 0
        columns.course[k].anew = False
    labels = rows.labels[above]
    for slot in range(labels.shape[0]):
        if labels[slot] >= 0:
            columns.course[labels[slot]].members += 1
    n_fresh = n_gains = 0
    for k in range(n_clusters):
        course = columns.course[k]
        if course.members == 0:
            columns.fresh[n_fresh] = k
            n_fresh += 1
        elif not _sets_course(points, rows.sums[above, k], columns, k):
            course.anew = True
            course.gains = course.members
        n_gains += course.gains
    return n_fresh, n_gains


@helper
def _sets_course(points, sums, columns, k):
    """Whether a column follows its gains; else it begins anew, from its members.

    Sets the norm and the error that the column will have, and how it follows.  OUT: columns.

    With W' = W + sum_j m_j the weight of a cluster that has gained weights m_j at points x_j,

        e' = a e + (|c'|^2 - a |c|^2) - 2/W' sum_j m_j x.x_j

    for the estimates e and a = W / W'.  With a = 0, all members are gains.
    """
    source, target = columns.journey.source, columns.journey.target
    known, centre, course = (
        columns.centres[source, k],
        columns.centres[target, k],
        columns.course[k],
    )
    if course.gains == 0:
        centre.norm = known.norm
        centre.error = known.error
        return True
    radius2 = points.summary.radius2
    total = np.float64(sums[points.origin.shape[0]])
    gain = gross = 0.0
    g = course.first
    while g >= 0:
        weight = np.float64(columns.gains[g].weight)
        gain += weight
        gross += abs(weight)
        g = columns.gains[g].next
    norm, ratio = norm_of(sums, points.units), (total - gain) / total
    constant = norm - ratio * known.norm
    grain = columns.grain.size
    course.share = -2.0 / total * grain
    anew = _follow_error(points, grain, norm, 2.0, course.members)
    most = ratio * (magnitude(known.norm, radius2) + known.error) + abs(constant)
    error = _follow_error(points, grain, most, 2.0 * gross / total, course.gains)
    error += ratio * (known.error + 2.0**-48 * (points.origin.shape[0] + 16.0) * radius2)
    follows = total > gain and course.gains <= course.members and error <= WORN * anew
    course.ratio = ratio if follows else 0.0
    course.constant = constant if follows else norm
    centre.norm = norm
    centre.error = error if follows else anew
    return follows


@helper
def _follow_error(points, grain, most, shares, count):
    """A bound on what following so many gains adds to the errors of a column.

    ``most`` bounds what the gains are added to, ``shares`` are the factors of their products.
    """
    d, radius2 = points.origin.shape[0], points.summary.radius2
    product = 0.51 * grain
    # These are points of a lattice: their products are whole numbers, no sum exceeds radius2.
    if radius2 >= EXACT:
        product += (d + 8.0) * (0.5 * SINGLE * radius2 + UNDERFLOW)
    terms = shares * (radius2 + product)
    rounding = 0.5 * SINGLE * ((count + 4.0) * (most + terms) + 2.0 * terms)
    exact = 2.0**-48 * (d + 16.0) * (1.0 + shares) * radius2
    return shares * product + 1.001 * rounding + exact + (count + 4.0) * UNDERFLOW


@helper
def _list_members(points, columns, labels):
    """Let all members be the gains of clusters whose columns begin anew.  OUT: columns."""
    some = False
    for k in range(columns.course.shape[0]):
        course = columns.course[k]
        if course.anew:
            some = True
            course.first = -1
            course.gains = 0
    if not some:
        return
    for slot in range(labels.shape[0]):
        if labels[slot] >= 0 and columns.course[labels[slot]].anew:
            _gain(columns, slot, np.int64(labels[slot]), points.weights[slot])


@helper
def _sort_gains(columns):
    """Put the gains of each cluster side by side.  OUT: columns."""
    count = 0
    for k in range(columns.course.shape[0]):
        course = columns.course[k]
        g = course.first
        course.first = count
        while g >= 0 and course.gains > 0:
            gain = columns.gains[g]
            columns.shares[count].slot = gain.slot
            columns.shares[count].factor = course.share * np.float64(gain.weight)
            count += 1
            g = gain.next
    columns.journey.gains = count


@inlined
def _computed_error(points, norm):
    """A bound on the errors of a column that is computed from scratch, for a rounded centre."""
    d = points.origin.shape[0]
    most = magnitude(norm, points.summary.radius2)
    return (d + 12.0) * (0.5 * SINGLE * most + UNDERFLOW) + points.summary.slack


@helper
def _compute(points, rows, columns, scratch, row, n_fresh):
    """Compute some columns from scratch, those of the first ``n_fresh`` clusters of ``fresh``.

    OUT: columns, scratch.
    """
    target, place, computed = columns.journey.target, columns.place, columns.computed
    for j in range(n_fresh):
        k = columns.fresh[j]
        norm = count_from(points.base, rows.centres[row, k], place)
        for c in range(place.shape[0]):
            columns.vectors[j, c] = -2.0 * place[c]
        columns.centres[target, k].norm = norm
        columns.centres[target, k].error = _computed_error(points, norm)
        columns.course[k].gains = -1
    multiply(columns.library.sgemm, columns.vectors, columns.coordinates, n_fresh, computed)
    for j in range(n_fresh):
        k = columns.fresh[j]
        column, norm = columns.columns[target, k], np.float32(columns.centres[target, k].norm)
        for i in range(column.shape[0]):
            column[i] = norm + computed[j, i]
    scratch.tally.distances += n_fresh * points.summary.n


# -- following, and what columns tell --------------------------------------------------------------


@helper
def _follow(points, rows, columns, scratch, changed, row, touched):
    """Let columns take their courses, and labels follow them, block by block.

    OUT: rows, columns, scratch, touched.
    """
    journey, slots = columns.journey, points.weights.shape[0]
    target = journey.target
    limit = _limit(columns.centres[target], points.summary.slack)
    is_new = _is_news(columns)
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
    first, shares = course.first, columns.shares
    end_of_gains = first + course.gains
    last = columns.journey.gains - 1
    p = first
    while p + AT_ONCE <= end_of_gains:
        for q in range(p + AHEAD, p + AHEAD + AT_ONCE):
            fetch(products[shares[min(q, last)].slot, begin:end])
        one, two, three, four = shares[p], shares[p + 1], shares[p + 2], shares[p + 3]
        _add_four(
            column,
            one.factor,
            products[one.slot, begin:end],
            two.factor,
            products[two.slot, begin:end],
            three.factor,
            products[three.slot, begin:end],
            four.factor,
            products[four.slot, begin:end],
        )
        p += AT_ONCE
    for q in range(p, end_of_gains):
        fetch(products[shares[min(q + AHEAD, last)].slot, begin:end])
        _add(column, shares[q].factor, products[shares[q].slot, begin:end])


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
def _add_four(column, a, w, b, x, c, y, d, z):
    """column += a w + b x + c y + d z.  OUT: column."""
    for i in range(column.shape[0]):
        some = a * np.float32(w[i]) + b * np.float32(x[i])
        more = c * np.float32(y[i]) + d * np.float32(z[i])
        column[i] += some + more


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
def _limit(centres, slack):
    """Estimates that differ by more than this tell which centre is nearer."""
    error = 0.0
    for k in range(centres.shape[0]):
        error = max(error, centres[k].error)
    return 2.0 * error + slack


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
        hits = np.int32(0)
        for i in range(first, first + SLOT_BLOCK):
            stands = (which[i] == labels[i]) & (other[i] - near[i] > bound)
            hits += np.int32(0) if stands else np.int32(1)
        if hits == 0:
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
