"""How columns of estimates follow what their clusters have gained and lost.

The bounds on the errors of estimates are derived in docs/math.md.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.replay.arithmetic import (
    SINGLE,
    UNDERFLOW,
    copy,
    count_from,
    fill,
    magnitude,
    norm_of,
    weight_of,
)
from fedforget.clustering.replay.products import multiply
from fedforget.clustering.replay.state import AFTER, BEFORE, SLOT, SLOT_BLOCK
from fedforget.compilation import helper, inlined

WORN = 3.0
"""A column begins anew, from its cluster's members, before its error grows by more than this."""

EXACT = 2.0**24
"""Up to this, whole numbers are exact in single precision."""


@helper
def count_differences(one, two):
    """How many labels differ."""
    count = np.int32(0)
    for i in range(one.shape[0]):
        count = np.int32(count + (1 if one[i] != two[i] else 0))
    return np.int64(count)


@helper
def plot_courses(points, rows, columns, scratch, changed, above, row):
    """Find out how each column becomes that of a row's centre.  OUT: columns, scratch.

    Columns that cannot follow are computed.
    """
    journey, n_clusters = columns.journey, columns.course.shape[0]
    source, most = journey.source, journey.most_gains
    for k in range(n_clusters):
        columns.course[k].first = -1
        columns.course[k].gains = 0
    journey.gains = 0
    is_new = is_news(columns)
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
        compute_columns(points, rows, columns, scratch, row, n_fresh)
    _sort_gains(columns)
    if is_new:
        for k in range(n_clusters):
            # Points that come are estimated from scratch.
            centre = columns.centres[journey.target, k]
            centre.error = max(centre.error, _computed_error(points, centre.norm))


@inlined
def is_news(columns):
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
        if count_differences(one, two) == 0:
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
    total = np.float64(weight_of(sums))
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
    d, radius2 = points.origin.shape[0], points.summary.radius2
    most = magnitude(norm, radius2)
    if _is_exact(points):
        # Fractions are multiplied in single precision, and the result is rounded.
        most = most / (d + 12.0) + np.sqrt(d * radius2)
    return (d + 12.0) * (0.5 * SINGLE * most + UNDERFLOW) + points.summary.slack


@inlined
def _is_exact(points):
    """Whether points are multiplied with whole numbers next to a centre without any rounding."""
    d, radius2 = points.origin.shape[0], points.summary.radius2
    return radius2 + 0.5 * np.sqrt(d * radius2) < EXACT


@helper
def compute_columns(points, rows, columns, scratch, row, n_fresh):
    """Compute some columns from scratch, those of the first ``n_fresh`` clusters of ``fresh``.

    Where that is exact, products with the whole numbers next to the centres are computed apart from
    those with the fractions.
    OUT: columns, scratch.
    """
    target, computed, sgemm = columns.journey.target, columns.computed, columns.library.sgemm
    for j in range(n_fresh):
        fill(columns.columns[target, columns.fresh[j]], np.float32(0.0))
    if _is_exact(points):
        _list_vectors(points, rows, columns, row, n_fresh, True)
        multiply(sgemm, columns.vectors, columns.coordinates, n_fresh, computed)
        for j in range(n_fresh):
            copy(computed[j], columns.columns[target, columns.fresh[j]])
    if _list_vectors(points, rows, columns, row, n_fresh, False):
        multiply(sgemm, columns.vectors, columns.coordinates, n_fresh, computed)
    else:
        for j in range(n_fresh):
            fill(computed[j], np.float32(0.0))
    for j in range(n_fresh):
        k = columns.fresh[j]
        column, norm = columns.columns[target, k], columns.centres[target, k].norm
        for i in range(column.shape[0]):
            column[i] = norm - 2.0 * (np.float64(column[i]) + np.float64(computed[j, i]))
    scratch.tally.distances += n_fresh * points.summary.n


@helper
def _list_vectors(points, rows, columns, row, n_fresh, whole):
    """List the whole numbers next to the centres of columns to be computed, or what is left.

    Returns whether there is anything but zeros.  OUT: columns.
    """
    target, place, some = columns.journey.target, columns.place, False
    is_exact = _is_exact(points)
    for j in range(n_fresh):
        k = columns.fresh[j]
        norm = count_from(points.base, rows.centres[row, k], place)
        for c in range(place.shape[0]):
            next_to = np.rint(place[c]) if is_exact else 0.0
            vector = next_to if whole else place[c] - next_to
            columns.vectors[j, c] = vector
            some |= vector != 0.0
        columns.centres[target, k].norm = norm
        columns.centres[target, k].error = _computed_error(points, norm)
        columns.course[k].gains = -1
    return some
