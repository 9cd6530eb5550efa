"""How far points are from their nearest anchors: margins, and what they are measured by.

Few features and clusters are met one feature after the other.  Where they are many, a library
multiplies points with all anchors; and while a walk goes from row to row, it keeps a lower bound on
every distance that it has measured.  A centre that has not come close enough since need not be
looked at again, which leaves two or three of them as a rule.

The errors of what is computed in single precision are derived in docs/math.md.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.memory import fetch
from fedforget.clustering.kernels.race import SCREEN
from fedforget.clustering.replay.arithmetic import (
    SINGLE,
    UNDERFLOW,
    copy,
    magnitude,
)
from fedforget.clustering.replay.lanes import gather, meet_anchors
from fedforget.clustering.replay.products import multiply
from fedforget.clustering.replay.state import SLOT_BLOCK
from fedforget.compilation import helper, inlined, reordering_helper

ONE_BY_ONE = 4
"""One anchor in so many is multiplied with a point in the time of a product with all of them."""

AHEAD_OF_BOUNDS = 8
AHEAD_OF_PRODUCTS = 2
"""How many points before its turn a point's numbers are asked for, so as not to wait for memory."""


@inlined
def takes_products(margins):
    """Whether features and clusters are so many that points are multiplied with all anchors."""
    return margins.block.shape[0] > 0


@helper
def set_out_by_margins(margins, restart):
    """Before the first row of a walk: nothing is known of distances.  OUT: margins."""
    margins.path.number += 1
    margins.path.known = 0
    margins.travelled[:] = 0.0
    margins.spans[:] = 0.0


@helper
def travel(rows, margins, above, row):
    """Let each centre have travelled from where the row above has it.  OUT: margins."""
    if takes_products(margins):
        for k in range(margins.travelled.shape[0]):
            step2 = squared_distance(rows.centres[row, k], rows.centres[above, k])
            margins.travelled[k] += np.sqrt(step2) * SCREEN
            margins.spans[k] = margins.travelled[k] * (1.0 + 1e-6)


@helper
def all_at_once(points, margins, count):
    """Whether to measure all points rather than so many of them."""
    if not takes_products(margins):
        # Points that lie side by side already take less time.
        return (3 if margins.turned.shape[0] > 0 else 2) * count >= points.summary.n
    # A point whose distances are known takes less time by itself.
    capacity = points.weights.shape[0]
    return 2 * count >= capacity and 2 * margins.path.known < capacity


@inlined
def takes_every_slot(points, margins):
    """Whether all points are measured slot by slot, and slots without a point, too.

    That is simpler, and faster unless many slots are empty.
    """
    return takes_products(margins) or 2 * points.summary.n > points.weights.shape[0]


@helper
def measure(points, margins, labels, slots, count, anchors, rounding, wanted, everyone):
    """Nearest anchors of the points in some slots, and margins.

    ``labels`` say which anchors may be the nearest, ``everyone`` means every point, in the order of
    slots, ``rounding`` how far anchors may be from their centres, and ``wanted`` up to where
    margins should be good.
    Returns how many distances did not have to be computed.
    OUT: margins (nearest, measured; working memory), slots behind the last.
    """
    n_clusters, d = anchors.shape
    summary = points.summary
    most = 0.0
    for k in range(n_clusters):
        norm = 0.0
        for c in range(d):
            anchor = np.float64(anchors[k, c])
            norm += anchor * anchor
        most = max(most, magnitude(norm, summary.radius2))
        margins.norms[k] = norm
    errors = margins.errors
    errors.estimate = (d + 8.0) * (0.5 * SINGLE * most + UNDERFLOW)
    # Squared lengths that are kept were rounded once.
    roundings = 2.0 if takes_products(margins) else d + 8.0
    errors.squared = errors.estimate + roundings * SINGLE * (summary.radius2 + most)
    errors.away = root_of(summary.slack)
    errors.rounding = rounding
    if takes_products(margins):
        return _measure_by_products(margins, labels, slots, count, anchors, wanted, everyone)
    _measure_by_features(points, margins, slots, count, anchors, everyone)
    return 0


@helper
def root_of(slack):
    """Distances that differ by more than this are told apart by their computed squares."""
    return 1.001 * np.sqrt(slack)


# -- one feature after the other -------------------------------------------------------------------


@helper
def _measure_by_features(points, margins, slots, count, anchors, everyone):
    """Measure points one feature after the other, block by block.  OUT: margins, slots.

    A slot without a point is infinitely far from any border.
    """
    n_clusters, d = anchors.shape
    for k in range(n_clusters):
        for c in range(d):
            margins.factors[k, c] = np.float32(-2.0) * anchors[k, c]
        margins.factors[k, d] = margins.norms[k]
    width = _pad(slots, count)
    errors = margins.errors
    twice = np.float32(2.0 * errors.estimate * (1.0 + 1e-6))
    pad, away = np.float32(errors.squared), np.float32(errors.away * (1.0 + 1e-6))
    in_order = everyone and takes_every_slot(points, margins)
    are_turned = in_order and margins.turned.shape[0] > 0
    for begin in range(0, width, SLOT_BLOCK):
        some = slice(begin, begin + SLOT_BLOCK)
        tile = margins.turned[begin // SLOT_BLOCK] if are_turned else margins.gathered
        if not are_turned:
            gather(margins.coordinates, slots, begin, tile)
        if in_order and not are_turned:
            _mark_empty_places(tile[0], points.weights[some])
        nearest, measured = margins.nearest[some], margins.measured[some]
        meet_anchors(tile, margins.factors, twice, pad, away, nearest, measured)


@helper
def _mark_empty_places(side, weights):
    """:func:`mark_empty` wherever there is no point.  OUT: side, one coordinate of all."""
    for j in range(SLOT_BLOCK):
        side[j] = side[j] if weights[j] > 0 else np.float32(np.nan)


@helper
def _pad(slots, count):
    """Repeat a slot until there is a whole number of blocks; returns how many.  OUT: slots."""
    width = -(-count // SLOT_BLOCK) * SLOT_BLOCK
    for j in range(count, width):
        slots[j] = slots[0]
    return width


# -- by products -----------------------------------------------------------------------------------


@helper
def _measure_by_products(margins, labels, slots, count, anchors, wanted, everyone):
    """Measure points by the bounds that are known of them, or else by products with all anchors.

    Returns how many products did not have to be computed.  OUT: margins.
    """
    n_clusters, d = anchors.shape
    for k in range(n_clusters):
        for c in range(d):
            margins.vectors[k, c] = np.float32(-2.0) * anchors[k, c]
    left, saved = count, 0
    if everyone:
        for j in range(count):
            margins.left[j] = j
    else:
        left, saved = _measure_by_bounds(margins, labels, slots, count, wanted)
    at_once = margins.block.shape[0]
    for begin in range(0, left, at_once):
        end = min(begin + at_once, left)
        block = margins.coordinates[begin:end]
        if not everyone:
            block = margins.block[: end - begin]
            for i in range(begin, end):
                copy(margins.coordinates[slots[margins.left[i]]], block[i - begin])
        multiply(margins.library.sgemm, block, margins.vectors, end - begin, margins.products)
        for i in range(begin, end):
            j = margins.left[i]
            _measure_by_all(margins, j, slots[j], margins.products[i - begin])
    return saved


@helper
def _measure_by_all(margins, j, slot, products):
    """Measure a point whose products with all anchors are there.  OUT: margins."""
    norms, bounds = margins.norms, margins.bounds[slot]
    closest = next_ = np.float32(np.inf)
    which = np.int32(0)
    for k in range(norms.shape[0]):
        estimate = norms[k] + products[k]
        closer = estimate < closest
        lower = estimate if estimate < next_ else next_
        next_ = closest if closer else lower
        closest = estimate if closer else closest
        which = np.int32(k) if closer else which
    for k in range(norms.shape[0]):
        bounds[k] = _bound(margins, slot, norms[k] + products[k], margins.travelled[k])
    if margins.measured_on[slot] != margins.path.number:
        margins.measured_on[slot] = margins.path.number
        margins.path.known += 1
    _own(margins, slot, which, closest)
    margins.nearest[j] = which
    margins.measured[j] = _margin(margins, slot, closest, next_) - margins.errors.away


@helper
def _measure_by_bounds(margins, labels, slots, count, wanted):
    """Measure points by the bounds that are known of them, and by few products where these fail.

    Returns for how many points these would not be few, and how many products the others save.
    Points are met twice, since bounds tell which ones have to be fetched from memory.
    OUT: margins (the places of the points that are not measured are listed in ``left``).
    """
    n_clusters = margins.norms.shape[0]
    places = margins.left
    doubtful = 0
    for j in range(count):
        slot, own = slots[j], np.int64(labels[slots[j]])
        fetch(margins.bounds[slots[min(j + AHEAD_OF_BOUNDS, count - 1)]])
        if not _holds(margins, j, slot, own):
            places[doubtful] = j
            doubtful += 1
    left, saved = 0, (count - doubtful) * n_clusters
    for p in range(doubtful):
        j, later = places[p], places[min(p + AHEAD_OF_PRODUCTS, doubtful - 1)]
        slot, own, taken = slots[j], np.int64(labels[slots[j]]), n_clusters
        fetch(margins.coordinates[slots[later]])
        if _is_known(margins, slot, own):
            taken = _measure_by_some(margins, j, slot, own, wanted)
        saved += n_clusters - taken
        if taken == n_clusters:
            places[left] = j
            left += 1
    return left, saved


@inlined
def _is_known(margins, slot, own):
    """Whether a point has a label, and bounds that were taken on this walk."""
    return own >= 0 and margins.measured_on[slot] == margins.path.number


@helper
def _least(errors):
    """Margins above this are not lost in the errors of bounds."""
    return 4.0 * (errors.away + errors.rounding)


@helper
def _spend(margins, slot, own):
    """What is left of a point's bounds for the centres except its own.  OUT: margins (lefts)."""
    bounds, lefts = margins.bounds[slot], margins.lefts
    for k in range(lefts.shape[0]):
        lefts[k] = bounds[k] - margins.spans[k]
    lefts[own] = np.inf


@helper
def _holds(margins, j, slot, own):
    """Measure a point by its bounds alone, if these leave it a margin.  OUT: margins."""
    if not _is_known(margins, slot, own) or margins.owners[slot] != own:
        return False
    _spend(margins, slot, own)
    margin = _lowest(margins.lefts) - _reach(margins, slot, own)
    if margin <= _least(margins.errors):
        return False
    margins.nearest[j] = own
    margins.measured[j] = margin - margins.errors.away
    return True


@helper
def _measure_by_some(margins, j, slot, own, wanted):
    """Measure a point by products with the anchors that its bounds leave, unless these are many.

    Returns the number of products that it takes, or that of all anchors if it is not measured.
    OUT: margins.
    """
    norms, bounds, travelled = margins.norms, margins.bounds[slot], margins.travelled
    errors, point, lefts = margins.errors, margins.coordinates[slot], margins.lefts
    least = _least(errors)
    _spend(margins, slot, own)
    closest = norms[own] + _product(margins.vectors[own], point)
    limit = np.float32(_farthest(margins, slot, closest) + max(wanted, least))
    close = np.int32(1)
    for k in range(norms.shape[0]):
        close = np.int32(close + (1 if lefts[k] <= limit else 0))
    if close * ONE_BY_ONE > norms.shape[0] or close == norms.shape[0]:
        return norms.shape[0]
    next_ = np.float32(np.inf)
    which = own
    bounds[own] = _bound(margins, slot, closest, travelled[own])
    for k in range(norms.shape[0]):
        if lefts[k] <= limit:
            estimate = norms[k] + _product(margins.vectors[k], point)
            bounds[k] = _bound(margins, slot, estimate, travelled[k])
            lefts[k] = np.inf
            # Of equals, it does not matter which: they have no margin.
            if estimate < closest:
                next_ = closest
                closest = estimate
                which = k
            else:
                next_ = min(next_, estimate)
    _own(margins, slot, which, closest)
    beyond = _lowest(lefts) - _reach(margins, slot, which)
    margins.nearest[j] = which
    margins.measured[j] = min(_margin(margins, slot, closest, next_), beyond) - errors.away
    return np.int64(close)


@helper
def find_rivals(margins, slot):
    """Which centres may be nearest to a point that was measured.  OUT: margins (rivals).

    Returns one of them, or -1 if there is nothing known about the point.
    """
    if not takes_products(margins):
        return np.int64(-1)
    own, bounds = np.int64(margins.owners[slot]), margins.bounds[slot]
    reach = _reach(margins, slot, own) + margins.errors.away
    for k in range(bounds.shape[0]):
        margins.rivals[k] = np.float64(bounds[k]) - np.float64(margins.spans[k]) <= reach
    return own


@helper
def _reach(margins, slot, own):
    """Centres that are farther than this are farther from a point than the one that it has."""
    return (margins.farthest[slot] + margins.travelled[own]) * SCREEN + margins.errors.rounding


@helper
def _lowest(numbers):
    """The lowest of some numbers; four at a time, so that none has to wait for the one before."""
    n = numbers.shape[0]
    a = b = c = d = np.float32(np.inf)
    for k in range(0, n - 3, 4):
        w, x, y, z = numbers[k], numbers[k + 1], numbers[k + 2], numbers[k + 3]
        a = w if w < a else a
        b = x if x < b else b
        c = y if y < c else c
        d = z if z < d else d
    for k in range(n - n % 4, n):
        a = min(a, numbers[k])
    return np.float64(min(min(a, b), min(c, d)))


@reordering_helper
def _product(one, two):
    """The inner product of two vectors, added up in any order."""
    total = np.float32(0.0)
    for c in range(one.shape[0]):
        total += one[c] * two[c]
    return total


@helper
def _bound(margins, slot, estimate, travelled):
    """A bound below the distance of a point to a centre, and what the centre has travelled."""
    errors = margins.errors
    squared = np.float64(margins.lengths[slot]) + estimate - errors.squared
    distance = max(0.0, np.sqrt(max(0.0, squared)) - errors.rounding)
    return np.float32((distance + travelled) * (1.0 - 2e-6))


@helper
def _farthest(margins, slot, estimate):
    """An upper bound on the distance of a point to a centre."""
    errors = margins.errors
    squared = np.float64(margins.lengths[slot]) + estimate + errors.squared
    return np.sqrt(max(0.0, squared)) * SCREEN + errors.rounding


@helper
def _own(margins, slot, cluster, estimate):
    """Note the nearest centre of a point.  OUT: margins."""
    margins.owners[slot] = cluster
    margins.farthest[slot] = _farthest(margins, slot, estimate) - margins.travelled[cluster]


@helper
def _margin(margins, slot, near, other):
    """By how much the next anchor is farther than the nearest, at least, from their estimates."""
    gap = np.float64(other) - np.float64(near) - 2.0 * margins.errors.estimate
    farther = np.sqrt(np.float64(margins.lengths[slot]) + other + margins.errors.squared)
    return gap / (2.0 * farther) * (1.0 - 1e-6) if other < np.inf else np.inf
