"""Points come, change their weights, and go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.lattice import SQUARE_BITS, add_moment, join_squares
from fedforget.clustering.kernels.memory import AHEAD, fetch_row
from fedforget.clustering.kernels.race import SCREEN
from fedforget.clustering.kernels.vectors import VectorCode
from fedforget.clustering.replay.arithmetic import coordinate, locate, steps_of
from fedforget.clustering.replay.parts import part_of
from fedforget.clustering.replay.state import AFTER, BEFORE, PLACE, SLOT, Points
from fedforget.compilation import allocating_kernel, helper, inlined, kernel

_points = part_of(Points)

SQUARES_AT_ONCE = 1024
"""So many squares are added up in parts before these are joined."""

MOST_PAIRS = 1024
"""Pairs of points that come and go up to which each looks for its nearest."""


@helper
def change_points(points, changed, values, keys):
    """Let points come, change their weights, and go.  OUT: points."""
    new = 0
    for c in range(changed.shape[0]):
        slot, before, after, place = (
            changed[c, SLOT],
            changed[c, BEFORE],
            changed[c, AFTER],
            changed[c, PLACE],
        )
        points.weights[slot] = after
        if before == 0:
            _put_point(points, slot, values[new], keys[new])
            new += 1
            if points.order.shape[0] > 0:
                _insert(points.order, points.summary.n, place, slot)
            points.summary.n += 1
        if after == 0:
            points.summary.n -= 1
            if points.order.shape[0] > 0:
                _delete(points.order, points.summary.n, place)


@inlined
def _insert(order, n, place, slot):
    """Put a slot into its place among n.  OUT: order."""
    for p in range(n, place, -1):
        order[p] = order[p - 1]
    order[place] = slot


@inlined
def _delete(order, n, place):
    """Take a place out, so that n are left.  OUT: order."""
    for p in range(place, n):
        order[p] = order[p + 1]


@kernel
def set_features(table, features, together, lengths):
    """Write the shifted coordinates and their squared lengths, where these are wanted.

    OUT: features, feature by feature; together, point by point; lengths; the summary of the points,
    which come as a table.
    """
    points = _points(table)
    d = points.origin.shape[0]
    for slot in range(points.weights.shape[0]):
        if points.weights[slot] == 0:
            continue
        radius2 = reach2 = 0.0
        for c in range(d):
            side = coordinate(points, slot, c)
            shifted = side - points.base[c]
            if features.shape[0] > 0:
                features[c, slot] = shifted
            if together.shape[0] > 0:
                together[slot, c] = shifted
            radius2 += shifted * shifted
            reach2 += side * side
        if lengths.shape[0] > 0:
            lengths[slot] = radius2
        _widen(points.summary, d, radius2, reach2)


@kernel
def locate_points(table, slots, places):
    """The coordinates of some points.  OUT: places."""
    points = _points(table)
    for i in range(slots.shape[0]):
        locate(points, slots[i], places[i])


@allocating_kernel
def change_moments(table, changed, values, sums, squares):
    """Let sums and sums of squares follow a change, before the points, a table, do.

    ``changed`` and ``values`` are those of the change.  OUT: sums, squares.
    """
    points = _points(table)
    new = 0
    parts = np.zeros((3, sums.shape[0]), dtype=np.int64)
    for begin in range(0, changed.shape[0], SQUARES_AT_ONCE):
        for i in range(begin, min(begin + SQUARES_AT_ONCE, changed.shape[0])):
            slot, before, after = changed[i, SLOT], changed[i, BEFORE], changed[i, AFTER]
            if before == 0:
                _change_moment(points, values, new, after, sums, squares, parts)
                new += 1
            else:
                _change_moment(points, points.values, slot, after - before, sums, squares, parts)
        for c in range(sums.shape[0]):
            join_squares(squares, c, parts[0, c], parts[1, c], parts[2, c])
        parts[:] = 0


@helper
def _change_moment(points, rows, row, weight, sums, squares, parts):
    """Add a row so many times; squares of one that counts once are added up in parts.

    OUT: sums, squares, parts.
    """
    scale, rounders, per_unit = points.summary.scale, points.rounders, points.per_unit
    if abs(weight) == 1:
        _add_parts(rows, row, rounders, weight, sums, parts)
        return
    for c in range(sums.shape[0]):
        steps = np.int64(((rows[row, c] + rounders[c]) - rounders[c]) * scale * per_unit[c])
        add_moment(weight, steps, sums, squares, c)


@intrinsic
def _add_parts(
    typing_context: Any, rows: Any, row: Any, rounders: Any, sign: Any, sums: Any, parts: Any
) -> Any:
    """Add a row's steps, and their squares in the parts of ``join_squares``.  OUT: sums, parts."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float64, context, builder, signature, arguments)
        for c, lanes in code.parts(code.length(4, 0)):
            steps = steps_of(code, arguments, c, lanes)
            sign = code.everywhere(arguments[3], lanes)
            half, rest = (
                code.everywhere(code.word(number), lanes)
                for number in (SQUARE_BITS, (1 << SQUARE_BITS) - 1)
            )
            high, low = builder.ashr(steps, half), builder.and_(steps, rest)
            gains = [builder.mul(steps, sign)]
            gains += [
                builder.mul(builder.mul(one, other), sign)
                for one, other in ((high, high), (high, low), (low, low))
            ]
            places = [code.entry(4, c), *(code.entry(5, code.word(part), c) for part in range(3))]
            for place, gain in zip(places, gains, strict=True):
                code.store(builder.add(code.load(place, lanes), gain), place)
        return code.none

    return types.void(rows, types.int64, rounders, types.int64, sums, parts), generate


@kernel
def count_large(values, slots, lowest_large, large):
    """Per feature, how many values in some slots are large.

    A value is large if its magnitude is at least the feature's ``lowest_large``.
    OUT: large, which must hold zeros.
    """
    last = slots.shape[0] - 1
    for i in range(slots.shape[0]):
        fetch_row(values, slots[min(i + AHEAD, last)])
        row = values[slots[i]]
        for c in range(lowest_large.shape[0]):
            large[c] += 1 if abs(row[c]) >= lowest_large[c] else 0


@kernel
def erase_points(values, keys, slots):
    """Overwrite the points that were in some slots.  OUT: values, keys."""
    for i in range(slots.shape[0]):
        keys[slots[i], 0] = 0
        keys[slots[i], 1] = 0
        for c in range(values.shape[1]):
            values[slots[i], c] = 0.0


@kernel
def add_up(table, lowest_large, sums, squares, large):
    """Sums and sums of squares of the points, in steps, whose weights are 1.

    ``large`` counts, per feature, the magnitudes that are at least the feature's ``lowest_large``.
    OUT: sums, squares (a low and a high word per feature), large.
    """
    points = _points(table)
    for slot in range(points.weights.shape[0]):
        if points.weights[slot] == 0:
            continue
        for c in range(sums.shape[0]):
            large[c] += 1 if abs(points.values[slot, c]) >= lowest_large[c] else 0
            steps = np.int64(coordinate(points, slot, c) * points.per_unit[c])
            sums[c] += steps
            square = np.uint64(steps * steps)
            squares[c, 0] += square
            squares[c, 1] += np.uint64(1 if squares[c, 0] < square else 0)


@helper
def _put_point(points, slot, values, key):
    """Put a point into a slot.  OUT: points."""
    d = points.origin.shape[0]
    points.keys[slot, 0] = key[0]
    points.keys[slot, 1] = key[1]
    radius2 = reach2 = 0.0
    for c in range(d):
        points.values[slot, c] = values[c]
        side = coordinate(points, slot, c)
        shifted = side - points.base[c]
        radius2 += shifted * shifted
        reach2 += side * side
    _widen(points.summary, d, radius2, reach2)


@helper
def find_companions(points, changed, scratch):
    """For each point that comes the nearest of those that go, and how far it is.

    OUT: scratch (arrivals).

    Where a client's mean moves on, these are neighbours on the lattice.  Many points at once, whose
    pairs would take longer than they save, have none.
    """
    arrivals = scratch.arrivals
    comes = goes = 0
    for c in range(changed.shape[0]):
        arrivals[c].companion = -1
        comes += 1 if changed[c, BEFORE] == 0 else 0
        goes += 1 if changed[c, AFTER] == 0 else 0
    if comes * goes > MOST_PAIRS:
        return
    for c in range(changed.shape[0]):
        if changed[c, BEFORE] > 0:
            continue
        nearest = np.inf
        locate(points, changed[c, SLOT], scratch.place)
        for other in range(changed.shape[0]):
            if changed[other, AFTER] == 0:
                slot = changed[other, SLOT]
                locate(points, slot, scratch.other_place)
                distance = squared_distance(scratch.place, scratch.other_place)
                if distance < nearest:
                    nearest = distance
                    arrivals[c].companion = slot
        arrivals[c].apart = np.sqrt(nearest) * SCREEN


@inlined
def _widen(summary, d, radius2, reach2):
    """Let the bounds cover a point with these squared lengths, from the origin and from zero.

    OUT: summary.
    """
    summary.radius2 = max(summary.radius2, (1.0 + 1e-9) * radius2)
    summary.reach2 = max(summary.reach2, (1.0 + 1e-9) * reach2)
    summary.slack = max(summary.slack, 2.0**-47 * (d + 16.0) * summary.reach2)
