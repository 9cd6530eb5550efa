"""Few features and clusters: a row's labels stand until its centres have moved by the margins.

The bounds that are used here are derived in docs/math.md.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.race import SCREEN
from fedforget.clustering.replay.arithmetic import (
    at_most,
    copy,
    fill,
    in_doubt,
    largest,
    locate,
    locate_from_origin,
    lowest_bit,
    nearest_within,
    two_lowest,
)
from fedforget.clustering.replay.lanes import mark_empty, put_in_tile
from fedforget.clustering.replay.measuring import (
    all_at_once,
    find_rivals,
    measure,
    root_of,
    takes_every_slot,
    takes_products,
    travel,
)
from fedforget.clustering.replay.moves import no_moves, note, note_changes, relabel, relabel_next
from fedforget.clustering.replay.points import find_companions
from fedforget.clustering.replay.state import AFTER, BEFORE, BORDER_BLOCK, SLOT
from fedforget.compilation import helper, inlined

SLOTS_PER_POINT = 64
"""Looking through the margins of so many slots takes as long as measuring a point."""

REACH = 1.5
"""Lists are made for drifts so many times larger than the one that called for them."""

ROOMY = 3
"""A list that takes up less than one place in so many may be made longer."""

SHORTEST = 8
"""Lists shorter than this are worth lengthening."""

FEW = 12
"""Up to so many points are settled one by one."""

AT_ONCE = 4
"""Points of a block that are listed at once."""


@helper
def add_point_to_margins(points, margins, scratch, slot):
    """Let the coordinates include a new point's.  OUT: margins, scratch."""
    length = locate_from_origin(points, scratch, slot)
    if takes_products(margins):
        margins.lengths[slot] = length
    for c in range(margins.coordinates.shape[1]):
        margins.coordinates[slot, c] = scratch.point[c]
    if margins.turned.shape[0] > 0:
        put_in_tile(margins.coordinates, slot, margins.turned)


@inlined
def meet_changes(points, margins, scratch, changed):
    """Before any row is looked at.  OUT: margins, scratch."""
    find_companions(points, changed, scratch)
    if margins.turned.shape[0] > 0:
        for c in range(changed.shape[0]):
            if changed[c, AFTER] == 0:
                mark_empty(margins.turned, changed[c, SLOT])


@helper
def begin_by_margins(points, rows, margins, scratch, where, t, is_first, turn):
    """Let row t start with what the row above knows; margins of points are copied when wanted.

    OUT: margins.
    """
    source, row = where[t - 1], where[t]
    kept, given = margins.rows[row], margins.rows[source]
    kept.spent = given.spent
    # The first row's list is empty.
    kept.cut = given.cut if t > 1 else -1.0
    kept.listed = given.listed
    kept.usual = given.usual
    kept.debt = given.debt
    kept.price = given.price
    copy(margins.drifts[source], margins.drifts[row])
    for k in range(margins.anchors.shape[1]):
        copy(margins.anchors[source, k], margins.anchors[row, k])


@helper
def _copy_margins(margins, above, row):
    """Let a row have the margins of the row above, and its list.  OUT: margins."""
    listed = _whole_blocks(margins.rows[row].listed)
    copy(margins.reserves[above], margins.reserves[row])
    copy(margins.border[above, :listed], margins.border[row, :listed])
    copy(margins.border_margins[above, :listed], margins.border_margins[row, :listed])


@helper
def is_closer_by_margins(points, rows, margins, scratch, above, row, turn):
    """Whether the margins of a row are used up, and those of the row above less so.  OUT: scratch.

    A run that has left its old path is soon far from it, while it moves less and less from one
    iteration to the next.
    """
    kept, moved, drifts = margins.rows[row], scratch.moved[turn], margins.drifts[row]
    most = next_ = 0.0
    for k in range(drifts.shape[0]):
        drift = drifts[k]
        if moved[k]:
            drift = _drift(rows.centres[row, k], points.base, margins.anchors[row, k])
        next_ = max(next_, min(most, drift))
        most = max(most, drift)
    if most + next_ < kept.cut and kept.debt <= kept.price:
        return False
    most_above = next_above = 0.0
    for k in range(drifts.shape[0]):
        drift = _drift(rows.centres[row, k], points.base, margins.anchors[above, k])
        next_above = max(next_above, min(most_above, drift))
        most_above = max(most_above, drift)
    return most_above + next_above < most + next_


@helper
def assign_by_margins(points, rows, margins, scratch, changed, above, row, t, is_old, turn):
    """Bring the labels of a row up to date.

    While the two centres that have moved most have together moved by less than the row's cut, the
    listed points alone can have changed their labels.  ``scratch.moved[turn]`` marks the centres
    that are not where they were, ``scratch.touched[turn]`` will mark the clusters that have moves.
    OUT: rows, margins, scratch.
    """
    if t > 0:
        travel(rows, margins, above, row)
    before, touched = scratch.moved[turn], scratch.touched[turn]
    labels, reserves = rows.labels[row], margins.reserves[row]
    drifts, kept = margins.drifts[row], margins.rows[row]
    most = next_ = moved = 0.0
    any_moved = False
    for k in range(drifts.shape[0]):
        # What a new row knows is about the centres of the row above.
        before[k] = before[k] or not is_old
        if before[k]:
            any_moved = True
            drifts[k] = _drift(rows.centres[row, k], points.base, margins.anchors[row, k])
            moved = max(moved, drifts[k])
        next_ = max(next_, min(most, drifts[k]))
        most = max(most, drifts[k])
    no_moves(scratch, touched)
    is_first = t == 0 and not is_old
    all_labelled = True
    if is_old:
        for c in range(changed.shape[0]):
            if changed[c, BEFORE] == 0:
                _inherit(labels, reserves, changed[c, SLOT], scratch.arrivals[c])
                all_labelled = False
        note_changes(labels, changed, touched, scratch)
        for c in range(changed.shape[0]):
            slot = changed[c, SLOT]
            if changed[c, AFTER] == 0:
                reserves[slot] = np.inf
            elif changed[c, BEFORE] == 0 and labels[slot] >= 0:
                note(scratch, touched, slot, np.int64(labels[slot]), changed[c, AFTER])
    if not is_first and most + next_ < kept.cut and kept.debt <= kept.price:
        if not is_old:
            _copy_margins(margins, above, row)
        # Where no centre has moved, labels stand.  One that is back at its anchor has moved.
        if any_moved:
            _settle_border(points, rows, margins, scratch, row, most, next_, moved, turn)
        if not is_old:
            return
        # The first point that finds the list full makes it void; those after it are let in, too.
        cut = kept.cut
        for c in range(changed.shape[0]):
            slot = changed[c, SLOT]
            left = np.float64(reserves[slot]) - kept.spent
            if changed[c, BEFORE] == 0 and left <= cut:
                _let_in(points, rows, margins, scratch, row, slot, turn)
        return
    _take_anchors(rows.centres[row], points.base, margins.anchors[row], drifts)
    drift = most + next_
    _take_margins(
        points, rows, margins, scratch, above, row, drift, is_first, is_old, all_labelled, turn
    )
    if t == 0:
        # Seeds do not move: these margins are good for ever.
        kept.listed = 0
        kept.cut = np.inf


@inlined
def _inherit(labels, reserves, slot, arrival):
    """Let a new point have the label of a close one, and what is left of its margin.

    A point that is ``apart`` has distances that differ by no more than that.
    OUT: labels, reserves.
    """
    reserve = np.float32(-np.inf)
    labels[slot] = -1
    if arrival.companion >= 0:
        labels[slot] = labels[arrival.companion]
        left = np.float64(reserves[arrival.companion]) - 2.0 * arrival.apart
        reserve = np.float32(left * (1.0 - 1e-6)) if left > 0.0 else reserve
    reserves[slot] = reserve


@helper
def _drift(centre, origin, anchor):
    """How far a centre is from an anchor, at most."""
    d = anchor.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    for group in range(d // 4):
        c = group * 4
        e0 = (centre[c] - origin[c]) - anchor[c]
        e1 = (centre[c + 1] - origin[c + 1]) - anchor[c + 1]
        e2 = (centre[c + 2] - origin[c + 2]) - anchor[c + 2]
        e3 = (centre[c + 3] - origin[c + 3]) - anchor[c + 3]
        s0 += e0 * e0
        s1 += e1 * e1
        s2 += e2 * e2
        s3 += e3 * e3
    for c in range(d - d % 4, d):
        e0 = (centre[c] - origin[c]) - anchor[c]
        s0 += e0 * e0
    return np.sqrt((s0 + s2) + (s1 + s3)) * SCREEN


# -- while the margins hold ------------------------------------------------------------------------


@inlined
def _set_charges(drifts, before, most, next_, moved, charges):
    """How much margin a point of each cluster must have for its label to stand.  OUT: charges.

    Labels were right before centres have moved, so a point whose own centre has not has to be
    compared with these alone.  ``moved`` is the largest of their drifts, ``most`` and ``next_`` are
    those of all.
    """
    for k in range(drifts.shape[0]):
        rivals = moved
        if before[k]:
            rivals = next_ if drifts[k] == most else most
        charges[k] = drifts[k] + rivals


@helper
def _settle_border(points, rows, margins, scratch, row, most, next_, moved, turn):
    """Settle the listed points whose margins are used up.  OUT: rows, margins, scratch.

    ``most`` and ``next_`` are the largest drifts, ``moved`` is that of the centres that have moved.
    """
    labels, kept = rows.labels[row], margins.rows[row]
    slots, charges = scratch.candidates, margins.charges
    bound = np.float32((most + next_) * (1.0 + 1e-6))
    listed = margins.border_margins[row, : _whole_blocks(kept.listed)]
    near = _list_below(listed, bound, slots)
    if near == 0:
        return
    _set_charges(margins.drifts[row], scratch.moved[turn], most, next_, moved, charges)
    count = np.int64(0)
    for j in range(near):
        place = slots[j]
        slot = np.int64(margins.border[row, place])
        own = np.int64(labels[slot])
        # Not the listed margin: another point may be in this slot by now.
        margin = np.float64(margins.reserves[row, slot]) - kept.spent
        if own >= 0 and margin <= charges[own]:
            slots[count] = slot
            margins.places[count] = place
            count += 1
    if count > FEW:
        _settle_many(points, rows, margins, scratch, row, count, turn)
    else:
        _settle_few(points, rows, margins, scratch, row, count, turn)
    scratch.tally.labels += count
    # Points that are close to a border come back with any margins.
    if kept.usual < 0:
        kept.usual = 2 + count // 2
    kept.debt += max(0, count - kept.usual) * (1 if count > FEW else FEW)


@helper
def _settle_few(points, rows, margins, scratch, row, count, turn):
    """Settle the first candidates, one by one.  OUT: rows, margins, scratch."""
    before, labels = scratch.moved[turn], rows.labels[row]
    for j in range(count):
        slot = scratch.candidates[j]
        own = np.int64(labels[slot])
        margin = np.float64(margins.reserves[row, slot]) - margins.rows[row].spent
        nearest = _nearest_of(
            points,
            rows,
            margins.drifts[row],
            scratch,
            row,
            slot,
            own,
            margin,
            before,
            not before[own],
        )
        if nearest != own:
            _change_label(points, rows, margins, scratch, row, slot, j, own, nearest, turn)


@helper
def _settle_many(points, rows, margins, scratch, row, count, turn):
    """Settle the first candidates, all at once where single precision tells.

    OUT: rows, margins, scratch.
    """
    slots, labels, roundings = scratch.candidates, rows.labels[row], margins.roundings
    _take_anchors(rows.centres[row], points.base, margins.current, roundings)
    least = 2.0 * largest(roundings)
    current, some = margins.current, np.bool_(False)
    saved = measure(points, margins, labels, slots, count, current, least, 0.0, some)
    for j in range(count):
        slot = slots[j]
        own, nearest = np.int64(labels[slot]), np.int64(margins.nearest[j])
        if margins.measured[j] <= least:
            nearest = _nearest_of_all(points, rows, margins, roundings, scratch, row, slot)
        if nearest != own:
            _change_label(points, rows, margins, scratch, row, slot, j, own, nearest, turn)
    scratch.tally.distances += roundings.shape[0] * count - saved


@inlined
def _change_label(points, rows, margins, scratch, row, slot, j, own, nearest, turn):
    """Give candidate j another label; it has no margin then.  OUT: rows, margins, scratch."""
    rows.labels[row, slot] = nearest
    margins.border_margins[row, margins.places[j]] = -np.inf
    margins.reserves[row, slot] = -np.inf
    relabel(points, scratch, scratch.touched[turn], slot, own, nearest)


@helper
def _nearest_of(points, rows, drifts, scratch, row, slot, own, margin, moved, only_moved):
    """The nearest centre of a point, except for those that its margin rules out.  OUT: scratch.

    ``only_moved`` leaves out, too, those that ``moved`` does not mark; its own counts in any case.
    Estimates in double precision tell most centres apart; squared distances tell the others.
    """
    estimates = scratch.column[: drifts.shape[0]]
    centres = rows.centres[row]
    limit = 2.0**-48 * (points.origin.shape[0] + 16.0) * points.summary.radius2
    limit = points.summary.slack + limit
    locate(points, slot, scratch.place)
    for k in range(drifts.shape[0]):
        estimates[k] = np.inf
        if k == own or ((moved[k] or not only_moved) and drifts[own] + drifts[k] >= margin):
            estimates[k] = _estimate(scratch.place, centres[k], points.base)
            scratch.tally.distances += 1
    lowest, other, nearest = two_lowest(estimates)
    if other <= lowest + limit:
        nearest = nearest_within(points, centres, scratch, slot, estimates, lowest + limit)
    return nearest


@inlined
def _nearest_of_all(points, rows, margins, drifts, scratch, row, slot):
    """The nearest of all centres for a point that was just measured.  OUT: margins, scratch."""
    own, rivals = find_rivals(margins, slot), margins.rivals
    known = own >= 0
    own = max(own, 0)
    return _nearest_of(points, rows, drifts, scratch, row, slot, own, -np.inf, rivals, known)


@helper
def _estimate(point, centre, origin):
    """|c|^2 - 2 x.c for a point x and a centre c, both counted from the origin."""
    d = point.shape[0]
    n0 = n1 = n2 = n3 = 0.0
    s0 = s1 = s2 = s3 = 0.0
    for group in range(d // 4):
        c = group * 4
        o0, o1 = origin[c], origin[c + 1]
        o2, o3 = origin[c + 2], origin[c + 3]
        x0, x1 = centre[c] - o0, centre[c + 1] - o1
        x2, x3 = centre[c + 2] - o2, centre[c + 3] - o3
        n0 += x0 * x0
        n1 += x1 * x1
        n2 += x2 * x2
        n3 += x3 * x3
        s0 += (point[c] - o0) * x0
        s1 += (point[c + 1] - o1) * x1
        s2 += (point[c + 2] - o2) * x2
        s3 += (point[c + 3] - o3) * x3
    for c in range(d - d % 4, d):
        o0 = origin[c]
        x0 = centre[c] - o0
        n0 += x0 * x0
        s0 += (point[c] - o0) * x0
    return ((n0 + n2) + (n1 + n3)) - 2.0 * ((s0 + s2) + (s1 + s3))


@helper
def _let_in(points, rows, margins, scratch, row, slot, turn):
    """Give a new point its label, its margin, and its place on the list.

    OUT: rows, margins, scratch.
    """
    touched = scratch.touched[turn]
    drifts, kept = margins.drifts[row], margins.rows[row]
    distances = scratch.column[: drifts.shape[0]]
    locate_from_origin(points, scratch, slot)
    for k in range(drifts.shape[0]):
        distances[k] = squared_distance(scratch.point, margins.anchors[row, k])
    first, second, own = two_lowest(distances)
    moved = 0.0
    for k in range(drifts.shape[0]):
        if k != own:
            moved = max(moved, drifts[k])
    margin = (np.sqrt(second) - np.sqrt(first)) * (1.0 - 1e-9) - root_of(points.summary.slack)
    nearest = own
    if margin <= drifts[own] + moved:
        nearest = _nearest_of(
            points, rows, drifts, scratch, row, slot, own, margin, touched, np.bool_(False)
        )
    if nearest != own or margin <= 0.0:
        margin = -np.inf
    margins.reserves[row, slot] = (margin + kept.spent) * (1.0 - 1e-6)
    if margin <= kept.cut < np.inf:
        _append(margins.border[row], margins.border_margins[row], kept, slot, margin)
    was = np.int64(rows.labels[row, slot])
    if nearest != was:
        rows.labels[row, slot] = nearest
        relabel(points, scratch, touched, slot, was, nearest)
    scratch.tally.labels += 1
    scratch.tally.distances += drifts.shape[0]


@inlined
def _append(border, border_margins, kept, slot, margin):
    """Put a point at the end of a list; a list that is full is void.

    OUT: border, border_margins, kept.
    """
    p = kept.listed
    if p == border.shape[0]:
        kept.cut = -1.0
    else:
        if p % BORDER_BLOCK == 0:
            fill(border_margins[p : p + BORDER_BLOCK], np.float32(np.inf))
        border[p] = slot
        border_margins[p] = margin * (1.0 - 1e-6)
        kept.listed = p + 1


@inlined
def _whole_blocks(listed):
    """The length of a list, up to the end of a block."""
    return -(-listed // BORDER_BLOCK) * BORDER_BLOCK


# -- taking margins --------------------------------------------------------------------------------


@helper
def _take_anchors(centres, origin, anchors, drifts):
    """Let the centres be the anchors.  OUT: anchors, drifts."""
    for k in range(anchors.shape[0]):
        for c in range(anchors.shape[1]):
            anchors[k, c] = centres[k, c] - origin[c]
        drifts[k] = _drift(centres[k], origin, anchors[k])


@helper
def _take_margins(
    points, rows, margins, scratch, above, row, drift, is_first, is_old, all_labelled, turn
):
    """Labels and margins for new anchors, which are off the old by no more than ``drift``.

    That is, two of them together.  Points with ample margins keep what the drift leaves of them,
    unless there are few of these or nothing is known of them.  ``is_first`` marks the first row of
    a new run, which notes no moves; in others, ``all_labelled`` says that every slot that holds a
    point has a label.

    OUT: rows, margins, scratch.
    """
    slots, capacity = scratch.candidates, points.weights.shape[0]
    radius = np.sqrt(points.summary.radius2)
    kept = margins.rows[row]
    cut, most = _first_cut(margins, row, capacity, radius, drift, is_old)
    # The new anchors are off the centres, too, by a rounding.
    least = 2.0 * largest(margins.drifts[row])
    drift += least
    kept.spent = 0.0 if is_first else (kept.spent + drift) * SCREEN
    within = 1.5 * cut
    # A new row's margins are still those of the row above.
    reserves, known = margins.reserves[row], margins.reserves[row if is_old else above]
    bound = np.float32((kept.spent + within) * (1.0 + 1e-6))
    everyone = is_first or all_at_once(points, margins, _count_below(known, bound))
    in_order = everyone and takes_every_slot(points, margins)
    if everyone:
        count = _list_everyone(points, reserves, slots, in_order)
        within = np.inf
        kept.spent = 0.0
    else:
        count = _list_below(known, bound, slots)
        if not is_old:
            copy(known, reserves)
    wanted = REACH * drift if everyone else max(REACH * drift, within)
    anchors, labels = margins.anchors[row], rows.labels[row]
    saved = measure(points, margins, labels, slots, count, anchors, least, wanted, everyone)
    if in_order and is_first:
        _take_first_labels(points, labels, margins.nearest)
    if in_order:
        lowest = np.int16(0 if all_labelled and not takes_products(margins) else -1)
        left = _take_in_order(margins, labels, row, count, least, lowest, slots[capacity:])
    else:
        left = _take_listed(margins, labels, row, slots, count, least, slots[capacity:])
    _settle_left(points, rows, margins, scratch, row, left, least, is_first, turn)
    met = points.summary.n if everyone else count
    kept.cut = _find_cut(margins.measured[:count], most, cut, within, 4.0 * radius)
    kept.listed = 0
    if kept.cut > 0.0:
        _list_border(margins, row, slots, count)
    kept.usual = -1
    kept.debt = 0
    kept.price = count + capacity // SLOTS_PER_POINT
    scratch.tally.labels += met
    scratch.tally.distances += margins.drifts.shape[1] * met - saved


@inlined
def _first_cut(margins, row, capacity, radius, drift, is_old):
    """The cut to begin with, and how many points may be listed.

    An old row has a list for changes such as this one, unless its last list took up much of the
    room already.  How far centres of a new row are from those of the row above says nothing about
    changes to come, so there the list is short.
    """
    kept = margins.rows[row]
    cut, most = kept.cut, margins.border.shape[1]
    if is_old:
        cut = max(cut, REACH * drift) if ROOMY * kept.listed <= most else cut
    else:
        most = min(most, capacity // SLOTS_PER_POINT + BORDER_BLOCK)
    if not 0.0 < cut < 4.0 * radius:
        cut = 0.125 * radius
    return cut, most


@helper
def _list_everyone(points, reserves, slots, in_order):
    """List every slot with a point, or simply every slot; returns how many.

    Where there is no point, nothing is at stake.  OUT: reserves, slots.
    """
    if in_order:
        for slot in range(reserves.shape[0]):
            slots[slot] = slot
        return reserves.shape[0]
    count = 0
    for slot in range(reserves.shape[0]):
        reserves[slot] = np.inf
        slots[count] = slot
        count += 1 if points.weights[slot] > 0 else 0
    return count


@helper
def _take_first_labels(points, labels, nearest):
    """Let every slot with a point have the label that was measured.  OUT: labels."""
    for slot in range(labels.shape[0]):
        labels[slot] = np.int16(nearest[slot]) if points.weights[slot] > 0 else np.int16(-1)


@helper
def _take_in_order(margins, labels, row, count, least, lowest, left):
    """Let all slots have the margins that were measured, slot by slot.

    List the slots whose labels are in doubt.  Slots with a label below ``lowest`` are listed only
    if their margin is small; with ``lowest`` = 0 this leaves out empty slots.  Returns how many.
    OUT: margins, left.
    """
    reserves, measured, nearest = margins.reserves[row], margins.measured, margins.nearest
    spent, bound = np.float32(margins.rows[row].spent), np.float32(least)
    for slot in range(count):
        reserves[slot] = (measured[slot] + spent) * np.float32(1.0 - 1e-6)
    n_left = np.uint64(0)
    for begin in range(0, count, BORDER_BLOCK):
        hits = in_doubt(measured, nearest, labels, begin, bound, lowest)
        n_left = _list_hits(hits, begin, left, n_left)
    return np.int64(n_left)


@helper
def _take_listed(margins, labels, row, slots, count, least, left):
    """Let the first ``count`` listed slots have the margins that were measured.

    Lists the places of those whose labels are in doubt; returns how many.  OUT: margins, left.
    """
    reserves, measured, nearest = margins.reserves[row], margins.measured, margins.nearest
    spent = np.float32(margins.rows[row].spent)
    n_left = 0
    for j in range(count):
        slot = np.uint64(slots[j])
        reserves[slot] = (measured[j] + spent) * np.float32(1.0 - 1e-6)
        # Most points keep their labels, so there is no branch.
        left[n_left] = j
        n_left += 1 if (measured[j] <= least) | (labels[slot] != nearest[j]) else 0
    return n_left


@helper
def _settle_left(points, rows, margins, scratch, row, n_left, least, is_first, turn):
    """Give the points whose labels are in doubt the nearest centres, and settle near ones.

    ``candidates[capacity:]`` holds their indices in ``candidates``.  OUT: rows, margins, scratch.
    """
    labels, reserves, drifts = rows.labels[row], margins.reserves[row], margins.drifts[row]
    slots, measured, nearest = scratch.candidates, margins.measured, margins.nearest
    touched, left = scratch.touched[turn], slots[points.weights.shape[0] :]
    n_moves = scratch.tally.moves
    for i in range(n_left):
        j = left[i]
        slot = slots[j]
        if points.weights[slot] == 0:
            # It has no label, either.
            measured[j] = np.inf
            reserves[slot] = np.inf
            continue
        now = np.int64(nearest[j])
        if measured[j] <= least:
            now = _nearest_of_all(points, rows, margins, drifts, scratch, row, slot)
            measured[j] = -np.inf
            reserves[slot] = -np.inf
        was = np.int64(labels[slot])
        if was != now:
            labels[slot] = now
            if not is_first:
                n_moves = relabel_next(points, scratch, touched, n_moves, slot, was, now)
    scratch.tally.moves = n_moves


@helper
def _count_below(numbers, bound):
    """How many numbers are at most the bound."""
    count = np.int32(0)
    for i in range(numbers.shape[0]):
        count = np.int32(count + (1 if numbers[i] <= bound else 0))
    return np.int64(count)


@helper
def _list_below(numbers, bound, listed):
    """List the places of numbers that are at most the bound; returns how many.  OUT: listed.

    There is a whole number of blocks, and room for one place behind the last that is listed.
    """
    count = np.uint64(0)
    for begin in range(0, numbers.shape[0], BORDER_BLOCK):
        hits = at_most(numbers, begin, bound)
        count = _list_hits(hits, begin, listed, count)
    return np.int64(count)


@inlined
def _list_hits(hits, begin, listed, count):
    """Go on with a list: the places, from ``begin`` on, of the bits that are set.  OUT: listed."""
    while hits != 0:
        # Some at once, so that a processor seldom guesses wrong when they end.
        for _ in range(AT_ONCE):
            listed[count] = begin + lowest_bit(hits)
            count += np.uint64(1 if hits != 0 else 0)
            hits &= hits - np.uint32(1)
    return count


@helper
def _find_cut(measured, most, cut, within, widest):
    """A cut that leaves a list neither too long nor short; the search begins at ``cut``.

    Of points that are not among the measured, the margins exceed ``within``.  Where too many are
    equal there is no list (-1), and the row is measured every time.
    """
    found = -1.0
    for _ in range(40):
        bound = np.float32(cut)
        hits = np.int32(0)
        for j in range(measured.shape[0]):
            hits = np.int32(hits + (1 if measured[j] <= bound else 0))
        if hits <= most:
            found = cut
        if hits > most:
            cut *= 0.5
        elif hits < SHORTEST and 1.5 * cut <= within and cut < widest:
            cut *= 1.5
        else:
            break
    return found


@helper
def _list_border(margins, row, slots, count):
    """List the measured points whose margins are at most the cut.  OUT: margins."""
    kept = margins.rows[row]
    border, border_margins = margins.border[row], margins.border_margins[row]
    bound = np.float32(kept.cut)
    p = 0
    for begin in range(0, count, BORDER_BLOCK):
        hits = at_most(margins.measured, begin, bound)
        while hits != 0:
            j = begin + lowest_bit(hits)
            hits &= hits - np.uint32(1)
            # Behind the last one there may be anything.
            if j < count:
                border[p] = slots[j]
                border_margins[p] = margins.measured[j]
                p += 1
    for rest in range(p, _whole_blocks(p)):
        border_margins[rest] = np.inf
    kept.listed = p
    kept.cut *= 1.0 - 1e-6
