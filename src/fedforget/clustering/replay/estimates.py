"""Many features or clusters: a row follows its centres by estimates of all distances.

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
    limit_of,
    locate_from_origin,
    magnitude,
    nearest_within,
    norm_of,
    scaled,
    two_lowest,
    weight_of,
)
from fedforget.clustering.replay.moves import no_moves, note_changes, relabel
from fedforget.clustering.replay.state import AFTER, BEFORE, SLOT, SLOT_BLOCK
from fedforget.compilation import helper, inlined

PRODUCTS_PER_COLUMN = 16
"""So many inner products are computed rather than one column from scratch."""

WORN = 32.0
"""Estimates are computed afresh before their error grows by more than this factor."""


@helper
def add_point_to_estimates(points, estimates, scratch, slot):
    """Let features and inner products include a new point's.  OUT: estimates, scratch."""
    locate_from_origin(points, scratch, slot)
    for c in range(points.origin.shape[0]):
        estimates.features[c, slot] = scratch.point[c]
    if not _know(points, estimates, scratch, slot):
        _multiply(points, estimates, scratch, slot)
    for row in range(estimates.count.known):
        estimates.products[row, slot] = scratch.column[estimates.known[row]]


@inlined
def ignore_changes(points, estimates, scratch, changed):
    """Before any row is looked at: nothing."""


@inlined
def set_out_by_estimates(estimates, restart):
    """Before the first row of a walk: nothing."""


@inlined
def is_never_closer(points, rows, estimates, scratch, above, row, turn):
    """Estimates follow the moves of clusters, and these are known against the row as it was."""
    return False


@helper
def begin_by_estimates(points, rows, estimates, scratch, where, t, is_first, turn):
    """Let row t start with what the row above knows.  OUT: estimates, scratch.

    The first row that is new has to hear what has moved from the row above it to the last one.
    """
    if is_first and t > 1:
        _list_moves(points, rows, scratch, where[t - 2], where[t - 1], turn)
    source, row = where[t - 1], where[t]
    copy(estimates.near[source], estimates.near[row])
    copy(estimates.other[source], estimates.other[row])
    for k in range(estimates.centres.shape[1]):
        estimates.centres[row, k].norm = estimates.centres[source, k].norm
        estimates.centres[row, k].error = estimates.centres[source, k].error
        copy(estimates.columns[source, k], estimates.columns[row, k])


@helper
def _list_moves(points, rows, scratch, above, row, turn):
    """Note what has moved from one row to the next.  OUT: scratch."""
    touched = scratch.touched[turn]
    no_moves(scratch, touched)
    for slot in range(points.weights.shape[0]):
        was, now = np.int64(rows.labels[above, slot]), np.int64(rows.labels[row, slot])
        if was != now:
            relabel(points, scratch, touched, slot, was, now)


@helper
def assign_by_estimates(points, rows, estimates, scratch, changed, above, row, t, is_old, turn):
    """Bring the labels of a row up to date.

    ``scratch.moved[turn]`` marks the centres that are not where they were, and
    ``scratch.touched[turn]`` will mark the clusters that have moves.
    OUT: rows, estimates, scratch.
    """
    touched, listed = scratch.touched[turn], scratch.candidates
    in_doubt = np.int32(0)
    if t > 0:
        in_doubt = _move_centres(points, rows, estimates, scratch, above, row, t, is_old, turn)
    elif not is_old:
        _estimate_seeds(points, rows, estimates, scratch, row)
    no_moves(scratch, touched)
    if is_old:
        note_changes(rows.labels[row], changed, touched, scratch)
        _estimate_changed(points, rows, estimates, scratch, above, row, changed, t)
    limit = limit_of(estimates.centres[row], points.summary.slack)
    doubtful = 0
    if t == 0 and not is_old:
        for slot in range(points.weights.shape[0]):
            listed[doubtful] = slot
            doubtful += 1 if points.weights[slot] > 0 else 0
    elif in_doubt > 0:
        doubtful = _list_doubtful(estimates.near[row], estimates.other[row], limit, listed)
    if is_old:
        for c in range(changed.shape[0]):
            if changed[c, BEFORE] == 0:
                listed[doubtful] = changed[c, SLOT]
                doubtful += 1
    for p in range(doubtful):
        slot = listed[p]
        was = np.int64(rows.labels[row, slot])
        nearest = _settle(points, rows, estimates, scratch, row, slot, limit)
        if nearest != was:
            relabel(points, scratch, touched, slot, was, nearest)
    scratch.tally.labels += doubtful


@helper
def _estimate_seeds(points, rows, estimates, scratch, row):
    """All points' estimates for the seeds, from scratch.  OUT: the row of estimates, scratch."""
    n_clusters = estimates.centres.shape[1]
    for k in range(n_clusters):
        centre = estimates.centres[row, k]
        centre.norm = count_from(points.base, rows.centres[row, k], estimates.vectors[k])
        centre.error = _fresh_error(centre.norm, points.summary.radius2)
        estimates.fresh[k] = k
    _estimate_by_features(estimates, row, n_clusters)
    fill(estimates.near[row], np.float32(-np.inf))
    fill(estimates.other[row], np.float32(np.inf))
    scratch.tally.distances += n_clusters * points.summary.n


@helper
def _estimate_by_features(estimates, row, count):
    """All points' estimates for the first ``count`` clusters of ``fresh``, feature by feature.

    Their ``vectors`` are the centres.  A block of points meets all of them, two at a time, while
    its features are in the cache.  OUT: the columns of the row; one, two.
    """
    fresh, features = estimates.fresh, estimates.features
    one, two = estimates.one, estimates.two
    for begin in range(0, features.shape[1], SLOT_BLOCK):
        for j in range(0, count, 2):
            # The last one of an odd number meets itself.
            k, m = fresh[j], fresh[min(j + 1, count - 1)]
            _multiply_block(features, begin, estimates.vectors[k], estimates.vectors[m], one, two)
            norm1, norm2 = estimates.centres[row, k].norm, estimates.centres[row, m].norm
            first, second = estimates.columns[row, k], estimates.columns[row, m]
            for i in range(SLOT_BLOCK):
                first[begin + i] = norm1 - 2.0 * one[i]
                second[begin + i] = norm2 - 2.0 * two[i]


@helper
def _multiply_block(features, begin, f, g, one, two):
    """Inner products of a block of points with two vectors.  OUT: one, two."""
    d, end = features.shape[0], begin + SLOT_BLOCK
    for i in range(SLOT_BLOCK):
        one[i] = 0.0
        two[i] = 0.0
    for c in range(0, d - d % 4, 4):
        x0, x1 = features[c, begin:end], features[c + 1, begin:end]
        x2, x3 = features[c + 2, begin:end], features[c + 3, begin:end]
        f0, f1, f2, f3 = f[c], f[c + 1], f[c + 2], f[c + 3]
        g0, g1, g2, g3 = g[c], g[c + 1], g[c + 2], g[c + 3]
        for i in range(SLOT_BLOCK):
            one[i] += (f0 * x0[i] + f1 * x1[i]) + (f2 * x2[i] + f3 * x3[i])
            two[i] += (g0 * x0[i] + g1 * x1[i]) + (g2 * x2[i] + g3 * x3[i])
    for c in range(d - d % 4, d):
        x0 = features[c, begin:end]
        f0, g0 = f[c], g[c]
        for i in range(SLOT_BLOCK):
            one[i] += f0 * x0[i]
            two[i] += g0 * x0[i]


# -- centres that have moved -----------------------------------------------------------------------


@helper
def _move_centres(points, rows, estimates, scratch, above, row, t, is_old, turn):
    """Bring the estimates of a row up to date with its centres.

    What clusters of the row above have gained and lost is in the moves.  Returns how many labels
    are in doubt (none where no centre moves).  OUT: estimates, scratch.

    With S and W a centre's sums and weight, a gain of weights m_j at points x_j makes

        x.S' = x.S + sum_j m_j x.x_j,  so  e' = a e + (|c'|^2 - a |c|^2) - 2/W' sum_j m_j x.x_j

    for the estimates e and a = W / W'.  A cluster that had no points has a = 0, whatever its centre
    was.  One that has none is estimated from scratch.
    """
    moved = scratch.moved[turn]
    # Row 1 of a new run has nothing to follow: the row above has the estimates for the seeds.
    afresh = t == 1 and not is_old
    last = -1
    n_fresh = np.int64(0)
    if is_old:
        _know_products(points, estimates, scratch, moved)
    for k in range(moved.shape[0]):
        estimates.is_fresh[k] = False
        if moved[k]:
            last = k
            if _begins_afresh(points, rows, estimates, scratch, above, row, k, afresh):
                estimates.is_fresh[k] = True
                estimates.fresh[n_fresh] = k
                n_fresh += 1
    if n_fresh > 0:
        _estimate_by_features(estimates, row, n_fresh)
        scratch.tally.distances += n_fresh * points.summary.n
    # Whoever comes last sees what all columns together have left in doubt.
    limit = _bound(limit_of(estimates.centres[row], points.summary.slack))
    labels, near, other = rows.labels[row], estimates.near[row], estimates.other[row]
    in_doubt = np.int32(0)
    for k in range(last + 1):
        if moved[k]:
            bound = limit if k == last else np.float32(-np.inf)
            if estimates.is_fresh[k]:
                in_doubt = _keep_column(estimates.columns[row, k], k, labels, near, other, bound)
            else:
                in_doubt = _follow_moves(points, rows, estimates, scratch, above, row, k, bound)
    return in_doubt


@inlined
def _weigh_moves(scratch, k):
    """List the moves of a cluster; returns how many, what it gains, and all without their signs.

    OUT: scratch (mine).
    """
    moves = scratch.moves
    n_mine = np.int64(0)
    gain = gross = 0.0
    for p in range(scratch.tally.moves):
        if moves[p].cluster == k:
            scratch.mine[n_mine] = p
            n_mine += 1
            gain += np.float64(moves[p].weight)
            gross += abs(np.float64(moves[p].weight))
    return n_mine, gain, gross


@helper
def _begins_afresh(points, rows, estimates, scratch, above, row, k, afresh):
    """Whether the estimates for a centre are computed from scratch, feature by feature.

    Sets the centre's norm and error for what is to come; where it begins afresh, its vector.
    OUT: estimates, scratch.
    """
    centre, sums = estimates.centres[row, k], rows.sums[above, k]
    d, radius2 = points.origin.shape[0], points.summary.radius2
    total = np.float64(weight_of(sums))
    is_empty = total == 0.0
    if is_empty:
        norm = count_from(points.base, rows.centres[row, k], estimates.vectors[k])
    else:
        norm = norm_of(sums, points.units)
    n_mine, gain, gross = _weigh_moves(scratch, k)
    ratio = (total - gain) / total
    constant = norm - ratio * centre.norm
    few = 0 < n_mine <= 2
    fresh = _fresh_error(norm, radius2)
    step = 2.0 * gross / total * radius2 + ratio * centre.error
    if few:
        step += ratio * magnitude(centre.norm, radius2) + abs(constant)
        step *= 3.5
    else:
        step += magnitude(norm, radius2)
    error = ratio * centre.error + SINGLE * step + UNDERFLOW
    error += 2.0**-48 * (d + 16.0) * (1.0 + ratio + gross / total) * radius2
    from_scratch = (
        is_empty
        or afresh
        or n_mine > d
        or error > WORN * fresh
        or not _products_are_known(estimates, scratch, n_mine)
    )
    follow = estimates.follow[k]
    follow.ratio = ratio
    follow.constant = constant
    centre.norm = norm
    centre.error = fresh if from_scratch else error
    if not from_scratch:
        follow.by_members = False
        return False
    follow.by_members = not is_empty and _members_are_few(estimates, rows.labels[above], k, d)
    if follow.by_members:
        return False
    if not is_empty:
        vector = estimates.vectors[k]
        scaled(sums, points.units, vector)
        for c in range(d):
            vector[c] /= total
    return True


@helper
def _members_are_few(estimates, labels, k, d):
    """Whether a centre's estimates take fewer terms by its members' inner products."""
    terms = 0
    for slot in range(labels.shape[0]):
        if labels[slot] == k:
            terms += 1 if estimates.place[slot] >= 0 else d
            if terms >= d:
                break
    return terms < d


@helper
def _follow_moves(points, rows, estimates, scratch, above, row, k, bound):
    """Let the estimates for a centre follow what its cluster has gained and lost.

    Or, where its members are few, compute them from these.  OUT: estimates, scratch.
    """
    sums, moves, follow = rows.sums[above, k], scratch.moves, estimates.follow[k]
    total = np.float64(weight_of(sums))
    labels, near, other = rows.labels[row], estimates.near[row], estimates.other[row]
    estimated, column = estimates.columns[row, k], scratch.column
    if follow.by_members:
        fill(column, estimates.centres[row, k].norm)
        members = rows.labels[above]
        for slot in range(members.shape[0]):
            if members[slot] == k:
                factor = -2.0 * np.float64(points.weights[slot]) / total
                _add_products(column, factor, estimates.products[estimates.place[slot]])
        scratch.tally.distances += points.summary.n
        return _store_column(column, k, labels, estimated, near, other, bound)
    n_mine, _gain, _gross = _weigh_moves(scratch, k)
    if 0 < n_mine <= 2:
        p, q = scratch.mine[0], scratch.mine[n_mine - 1]
        return _shift_column(
            np.float32(follow.ratio),
            np.float32(follow.constant),
            np.float32(-2.0 * np.float64(moves[p].weight) / total),
            estimates.products[estimates.place[moves[p].slot]],
            np.float32(-2.0 * np.float64(moves[q].weight) / total if q != p else 0.0),
            estimates.products[estimates.place[moves[q].slot]],
            k,
            labels,
            estimated,
            near,
            other,
            bound,
        )
    for i in range(column.shape[0]):
        column[i] = follow.ratio * np.float64(estimated[i]) + follow.constant
    for q in range(n_mine):
        move = moves[scratch.mine[q]]
        factor = -2.0 * np.float64(move.weight) / total
        _add_products(column, factor, estimates.products[estimates.place[move.slot]])
    return _store_column(column, k, labels, estimated, near, other, bound)


@inlined
def _fresh_error(norm, radius2):
    """A bound on the errors of a centre's estimates when they are computed from scratch."""
    return SINGLE * (magnitude(norm, radius2) + 2.0 * radius2) + UNDERFLOW


@helper
def _add_products(column, factor, vector):
    """column += factor * vector.  OUT: column."""
    for i in range(column.shape[0]):
        column[i] += factor * np.float64(vector[i])


@helper
def _store_column(column, k, labels, estimates, near, other, bound):
    """Keep the estimates for centre k; returns how many labels are in doubt.

    OUT: estimates, near, other.
    """
    in_doubt = np.int32(0)
    for i in range(column.shape[0]):
        estimate = np.float32(column[i])
        doubt = _store(i, estimate, k, labels, estimates, near, other, bound)
        in_doubt = np.int32(in_doubt + doubt)
    return in_doubt


@helper
def _keep_column(estimates, k, labels, near, other, bound):
    """:func:`_store_column` for estimates that are in their column already."""
    in_doubt = np.int32(0)
    for i in range(estimates.shape[0]):
        doubt = _store(i, estimates[i], k, labels, estimates, near, other, bound)
        in_doubt = np.int32(in_doubt + doubt)
    return in_doubt


@helper
def _shift_column(a, b, f, x, g, y, k, labels, estimates, near, other, bound):
    """Estimates e become a e + b + f x + g y, in single precision.  As :func:`_store_column`."""
    in_doubt = np.int32(0)
    for i in range(estimates.shape[0]):
        estimate = a * estimates[i] + b + f * x[i] + g * y[i]
        doubt = _store(i, estimate, k, labels, estimates, near, other, bound)
        in_doubt = np.int32(in_doubt + doubt)
    return in_doubt


@inlined
def _store(i, estimate, k, labels, estimates, near, other, bound):
    """Keep the estimate of a point for centre k, without a branch; returns 1 if in doubt."""
    own = labels[i] == np.int32(k)
    nearest, lowest = near[i], other[i]
    lower = estimate if estimate < lowest else lowest
    nearest = estimate if own else nearest
    lowest = lowest if own else lower
    estimates[i] = estimate
    near[i] = nearest
    other[i] = lowest
    return np.int32(1) if lowest - nearest <= bound else np.int32(0)


# -- points that have changed, and labels in doubt -------------------------------------------------


@helper
def _estimate_changed(points, rows, estimates, scratch, above, row, changed, t):
    """New points' estimates for all centres of a row, and none for points that have gone.

    OUT: estimates, scratch.
    """
    for j in range(changed.shape[0]):
        slot = changed[j, SLOT]
        if changed[j, BEFORE] == 0:
            point = scratch.point
            locate_from_origin(points, scratch, slot)
            for k in range(estimates.centres.shape[1]):
                sums = rows.sums[above, k]
                if t == 0 or weight_of(sums) == 0:
                    count_from(points.base, rows.centres[row, k], scratch.centre)
                    product = _inner(point, scratch.centre)
                else:
                    scaled(sums, points.units, scratch.centre)
                    product = _inner(point, scratch.centre) / np.float64(weight_of(sums))
                centre = estimates.centres[row, k]
                estimates.columns[row, k, slot] = centre.norm - 2.0 * product
                fresh = _fresh_error(centre.norm, points.summary.radius2)
                centre.error = max(centre.error, fresh)
        if changed[j, BEFORE] == 0 or changed[j, AFTER] == 0:
            estimates.near[row, slot] = -np.inf
            estimates.other[row, slot] = np.inf


@helper
def _inner(point, sums):
    """The inner product of a point and a cluster's sums, or a centre."""
    d = point.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    for group in range(d // 4):
        c = group * 4
        s0 += point[c] * np.float64(sums[c])
        s1 += point[c + 1] * np.float64(sums[c + 1])
        s2 += point[c + 2] * np.float64(sums[c + 2])
        s3 += point[c + 3] * np.float64(sums[c + 3])
    for c in range(d - d % 4, d):
        s0 += point[c] * np.float64(sums[c])
    return (s0 + s2) + (s1 + s3)


@inlined
def _bound(limit):
    """The limit for a difference of estimates that is taken in single precision."""
    return np.float32(limit * (1.0 + 1e-5))


@helper
def _list_doubtful(near, other, limit, listed):
    """List the points whose label is in doubt; returns how many.  OUT: listed."""
    bound = _bound(limit)
    count = 0
    for begin in range(0, near.shape[0], SLOT_BLOCK):
        own, rest = near[begin : begin + SLOT_BLOCK], other[begin : begin + SLOT_BLOCK]
        hits = np.int32(0)
        for i in range(SLOT_BLOCK):
            hits = np.int32(hits + (1 if rest[i] - own[i] <= bound else 0))
        if hits > 0:
            for i in range(SLOT_BLOCK):
                listed[count] = begin + i
                count += 1 if rest[i] - own[i] <= bound else 0
    return count


@helper
def _settle(points, rows, estimates, scratch, row, slot, limit):
    """The nearest centre of a point, by its estimates or, where they are close, exactly.

    OUT: the slot of the row, scratch.
    """
    known = estimates.columns[row, :, slot]
    lowest, other, nearest = two_lowest(known)
    if other <= lowest + limit:
        first = nearest
        nearest = nearest_within(points, rows.centres[row], scratch, slot, known, lowest + limit)
        if nearest != first:
            other = lowest
    rows.labels[row, slot] = nearest
    estimates.near[row, slot] = known[nearest]
    estimates.other[row, slot] = other
    return nearest


# -- inner products --------------------------------------------------------------------------------


@helper
def _multiply(points, estimates, scratch, slot):
    """A point's inner products with all points.  OUT: scratch (point and column)."""
    locate_from_origin(points, scratch, slot)
    point, one = scratch.point, estimates.one
    for begin in range(0, scratch.column.shape[0], SLOT_BLOCK):
        _multiply_block(estimates.features, begin, point, point, one, estimates.two)
        copy(one[:SLOT_BLOCK], scratch.column[begin : begin + SLOT_BLOCK])


@helper
def _know(points, estimates, scratch, slot):
    """Keep a point's inner products, unless there is no room.  OUT: estimates, scratch."""
    row = estimates.place[slot]
    if row < 0:
        row = estimates.count.known
        if row == estimates.products.shape[0]:
            return False
        estimates.place[slot] = row
        estimates.count.known = row + 1
        estimates.known[row] = slot
    _multiply(points, estimates, scratch, slot)
    copy(scratch.column, estimates.products[row])
    return True


@helper
def _products_are_known(estimates, scratch, n_mine):
    """Whether the inner products of one cluster's moves are known."""
    unknown = 0
    for q in range(n_mine):
        unknown += 1 if estimates.place[scratch.moves[scratch.mine[q]].slot] < 0 else 0
    return unknown == 0


@helper
def _know_products(points, estimates, scratch, moved):
    """Compute the inner products that the moves of centres need, where that pays.

    One takes as long as a column from scratch.  But a point that has moved in one row does so in
    others, and with other changes, so many times as many pay.
    OUT: estimates, scratch.
    """
    columns = 0
    for k in range(moved.shape[0]):
        columns += 1 if moved[k] else 0
    count, most = 0, min(PRODUCTS_PER_COLUMN * columns, scratch.candidates.shape[0])
    known = estimates.count.known
    for p in range(scratch.tally.moves):
        move = scratch.moves[p]
        if moved[move.cluster] and estimates.place[move.slot] == -1:
            if count == most or known + count == estimates.products.shape[0]:
                for j in range(count):
                    estimates.place[scratch.candidates[j]] = -1
                return
            # Noted, so that a point is listed once.
            estimates.place[move.slot] = known + count
            scratch.candidates[count] = move.slot
            count += 1
    estimates.count.known = known + count
    batch = estimates.vectors.shape[0]
    for first in range(0, count, batch):
        some = min(batch, count - first)
        for j in range(some):
            slot = scratch.candidates[first + j]
            estimates.known[known + first + j] = slot
            locate_from_origin(points, scratch, slot)
            copy(scratch.point, estimates.vectors[j])
        _multiply_points(estimates, known + first, some)
    scratch.tally.distances += count * points.summary.n


@helper
def _multiply_points(estimates, row, count):
    """Inner products of all points with some, whose coordinates are in ``vectors``.

    OUT: estimates (products from the given row on; one, two).
    """
    features, one, two = estimates.features, estimates.one, estimates.two
    for begin in range(0, features.shape[1], SLOT_BLOCK):
        for j in range(0, count, 2):
            m = min(j + 1, count - 1)
            _multiply_block(features, begin, estimates.vectors[j], estimates.vectors[m], one, two)
            first, second = estimates.products[row + j], estimates.products[row + m]
            for i in range(SLOT_BLOCK):
                first[begin + i] = one[i]
                second[begin + i] = two[i]
