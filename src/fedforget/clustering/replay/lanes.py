"""Margins of points that lie side by side, one in each lane of the machine's vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fedforget.clustering.kernels.memory import fetch_row
from fedforget.clustering.kernels.vectors import VectorCode, has_long_registers
from fedforget.clustering.replay.arithmetic import fill
from fedforget.clustering.replay.state import FEATURES_AT_ONCE, LANES, SLOT_BLOCK
from fedforget.compilation import helper, inlined, kernel

VECTORS_AT_ONCE = 4 if has_long_registers() else 2
ANCHORS_AT_ONCE = 2
"""A block of so many vectors of points meets so many anchors at once.  Their estimates stay in
registers, of which processors without AVX-512 have a quarter as many bytes or fewer.
"""


@helper
def gather(coordinates, slots, begin, tile):
    """Put the coordinates of a block of points side by side, from ``slots[begin]`` on.

    Whole groups of features are read, so behind the last coordinate there has to be room for one.
    Points are scattered: those of the next block are asked for from memory.
    OUT: tile, feature by feature; then, up to a whole group, what stands behind the coordinates; in
    its last row the squared lengths.
    """
    for j in range(0, SLOT_BLOCK, LANES):
        for later in range(begin + SLOT_BLOCK + j, begin + SLOT_BLOCK + j + LANES):
            fetch_row(coordinates, slots[min(later, slots.shape[0] - 1)])
        for c in range(0, coordinates.shape[1], FEATURES_AT_ONCE):
            _turn(coordinates, slots, begin + j, c, tile, j)
    for j in range(0, SLOT_BLOCK, VECTORS_AT_ONCE * LANES):
        _measure_lengths(tile, coordinates.shape[1], j)


@helper
def put_in_tile(coordinates, slot, turned):
    """Put a point in its place among points that lie side by side.  OUT: turned."""
    tile, lane = turned[slot // SLOT_BLOCK], slot % SLOT_BLOCK
    length = np.float32(0.0)
    for c in range(coordinates.shape[1]):
        side = coordinates[slot, c]
        tile[c, lane] = side
        length += side * side
    tile[tile.shape[0] - 1, lane] = length


@inlined
def mark_empty(turned, slot):
    """Mark a place as empty with NaN: every comparison with an anchor is then false, so the margin
    is infinite.  OUT: turned.
    """
    turned[slot // SLOT_BLOCK, 0, slot % SLOT_BLOCK] = np.float32(np.nan)


@kernel
def fill_tiles(coordinates, slots, weights, turned):
    """Put all slots side by side; where the weight is 0, there is no point.  OUT: turned."""
    for slot in range(weights.shape[0]):
        tile = turned[slot // SLOT_BLOCK]
        if slot % SLOT_BLOCK == 0:
            gather(coordinates, slots, slot, tile)
            # Behind a point's coordinates stand those of the next one.
            for c in range(coordinates.shape[1], tile.shape[0] - 1):
                fill(tile[c], np.float32(0.0))
        if weights[slot] == 0:
            mark_empty(turned, slot)


@helper
def meet_anchors(tile, factors, twice, pad, away, nearest, margins):
    """The nearest anchors of a block of points, and margins.

    Of each anchor there are its coordinates times -2 and, last, its squared length.  Estimates
    leave out a point's squared length, as it is the same for all.  ``twice`` is taken from their
    difference, ``pad`` added to a squared distance, and ``away`` taken from the margin, for errors.
    OUT: nearest, margins.
    """
    for begin in range(0, SLOT_BLOCK, VECTORS_AT_ONCE * LANES):
        _meet(tile, begin, factors, twice, pad, away, nearest, margins)


@intrinsic
def _turn(
    typing_context: Any, rows: Any, slots: Any, first: Any, feature: Any, tile: Any, lane: Any
) -> Any:
    """Let ``tile[feature + f, lane + i]`` be ``rows[slots[first + i], feature + f]``; OUT: tile."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float32, context, builder, signature, arguments)
        _, _, first, feature, _, lane = arguments
        numbers = [builder.load(code.entry(1, code.plus(first, i))) for i in range(LANES)]
        groups = [code.load(code.entry(0, number, feature), FEATURES_AT_ONCE) for number in numbers]
        for f, column in enumerate(code.columns_of(groups)):
            code.store(column, code.entry(4, code.plus(feature, f), lane))
        return code.none

    return types.void(rows, slots, types.int64, types.int64, tile, types.int64), generate


@intrinsic
def _measure_lengths(typing_context: Any, tile: Any, n_features: Any, begin: Any) -> Any:
    """Squared lengths of the vectors at once from ``begin`` on.  OUT: tile, its last row."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float32, context, builder, signature, arguments)
        _, n_features, begin = arguments
        places = [code.plus(begin, LANES * i) for i in range(VECTORS_AT_ONCE)]
        lengths = code.variables(code.constant(0.0), VECTORS_AT_ONCE)
        with code.count(n_features) as feature:
            for length, place in zip(lengths, places, strict=True):
                x = code.load(code.entry(0, feature, place))
                code.add_product(length, x, x)
        last = code.plus(code.length(0, 0), -1)
        for length, place in zip(lengths, places, strict=True):
            code.store(builder.load(length), code.entry(0, last, place))
        return code.none

    return types.void(tile, types.int64, types.int64), generate


@intrinsic
def _meet(
    typing_context: Any, tile: Any, begin: Any, factors: Any,
    twice: Any, pad: Any, away: Any, nearest: Any, margins: Any,
) -> Any:  # fmt: skip
    """:func:`meet_anchors` for the vectors at once from ``begin`` on.  OUT: nearest, margins."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float32, context, builder, signature, arguments)
        vectors, anchors = range(VECTORS_AT_ONCE), range(ANCHORS_AT_ONCE)
        begins = [code.plus(arguments[1], LANES * i) for i in vectors]
        n_features = code.plus(code.length(2, 1), -1)
        n_groups = builder.udiv(code.length(2, 0), code.word(ANCHORS_AT_ONCE))
        infinite = code.constant(float("inf"))

        def variables(value: Any) -> list[Any]:
            return code.variables(value, VECTORS_AT_ONCE)

        near, other = variables(infinite), variables(infinite)
        which = variables(ir.Constant(code.ints, [0] * LANES))
        with code.count(n_groups) as group:
            first = code.times(group, ANCHORS_AT_ONCE)
            numbers = [code.plus(first, k) for k in anchors]
            norms = [builder.load(code.entry(2, number, n_features)) for number in numbers]
            estimates = [variables(code.everywhere(norm)) for norm in norms]
            with code.count(n_features) as feature:
                x = [code.load(code.entry(0, feature, place)) for place in begins]
                for k in anchors:
                    f = code.everywhere(builder.load(code.entry(2, numbers[k], feature)))
                    for i in vectors:
                        code.add_fused(estimates[k][i], f, x[i])
            for k in anchors:
                name = code.everywhere(builder.trunc(numbers[k], ir.IntType(32)))
                for i in vectors:
                    estimate, before = builder.load(estimates[k][i]), builder.load(near[i])
                    closer = builder.fcmp_ordered("<", estimate, before)
                    second = code.lower(estimate, builder.load(other[i]))
                    builder.store(builder.select(closer, before, second), other[i])
                    builder.store(code.lower(estimate, before), near[i])
                    builder.store(builder.select(closer, name, builder.load(which[i])), which[i])

        # d_b - d_a = (d_b^2 - d_a^2) / (d_b + d_a), which is at least the same over 2 d_b.
        twice, pad, away = (code.everywhere(number) for number in arguments[3:6])
        half = code.constant(0.5 * (1.0 - 2.0**-18))
        last = code.plus(code.length(0, 0), -1)
        for i in vectors:
            a, b = builder.load(near[i]), builder.load(other[i])
            length = code.load(code.entry(0, last, begins[i]))
            gap = builder.fsub(builder.fsub(b, a), twice)
            farther = code.root(builder.fadd(builder.fadd(length, b), pad))
            margin = builder.fsub(builder.fmul(builder.fdiv(gap, farther), half), away)
            has_other = builder.fcmp_ordered("<", b, infinite)
            code.store(builder.select(has_other, margin, infinite), code.entry(7, begins[i]))
            code.store(builder.load(which[i]), code.entry(6, begins[i]))
        return code.none

    single = types.float32
    return types.void(
        tile, types.int64, factors, single, single, single, nearest, margins
    ), generate
