"""Points side by side, one in each lane of the machine's vectors.

LLVM does not find these vectors by itself: it will not turn rows of coordinates into columns, and
it stores what could stay in registers.  The vectors are those of LLVM, not of a processor, so a
processor with shorter ones takes several for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from fedforget.clustering.replay.arithmetic import fetch_ends
from fedforget.clustering.replay.state import LANES, SLOT_BLOCK
from fedforget.compilation import helper

VECTORS_AT_ONCE = 2
ANCHORS_AT_ONCE = 2
"""So many vectors of points meet so many anchors at once: their sums fit into registers."""

_WORD, _INT, _SINGLE = ir.IntType(64), ir.IntType(32), ir.FloatType()
_SINGLES, _INTS = ir.VectorType(_SINGLE, LANES), ir.VectorType(_INT, LANES)


@helper
def gather(coordinates, slots, begin, tile):
    """Put the coordinates of a block of points side by side, from ``slots[begin]`` on.

    Whole vectors are read, so behind the last coordinate there has to be room for one.
    OUT: tile, feature by feature, up to a multiple of the lanes.
    """
    last = slots.shape[0] - 1
    for j in range(SLOT_BLOCK):
        fetch_ends(coordinates, np.int64(slots[min(begin + SLOT_BLOCK + j, last)]))
    for j in range(0, SLOT_BLOCK, LANES):
        for c in range(0, coordinates.shape[1], LANES):
            _turn(coordinates, slots, begin + j, c, tile, j)


@helper
def meet_anchors(tile, factors, near, other, nearest):
    """Estimates of a block of points for their nearest anchor and the next, of equals the first.

    A point's squared length is left out, as it is the same for all.  Of each anchor there are its
    coordinates times -2 and, last, its squared length.  OUT: near, other, nearest.
    """
    for begin in range(0, SLOT_BLOCK, VECTORS_AT_ONCE * LANES):
        _two_nearest(tile, begin, factors, near, other, nearest)


def _constant(number: int) -> Any:
    return ir.Constant(_WORD, number)


def _everywhere(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    vector = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    first = builder.insert_element(vector, number, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, first, ir.Constant(_INTS, [0] * LANES))


def _vector_at(builder: Any, place: Any, kind: Any = _SINGLES) -> Any:
    return builder.bitcast(place, kind.as_pointer())


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """A square of vectors, transposed: halves, quarters, ... across the diagonal change places."""
    rows, size = rows.copy(), LANES // 2
    lanes = range(LANES)
    while size:
        # Lanes of the second of two vectors count on from those of the first.
        upper = [lane if not lane & size else LANES + lane - size for lane in lanes]
        lower = [lane + size if not lane & size else LANES + lane for lane in lanes]
        for i in range(LANES):
            if not i & size:
                pair = rows[i], rows[i + size]
                rows[i] = builder.shuffle_vector(*pair, ir.Constant(_INTS, upper))
                rows[i + size] = builder.shuffle_vector(*pair, ir.Constant(_INTS, lower))
        size //= 2
    return rows


@intrinsic
def _turn(
    typing_context: Any, rows: Any, slots: Any, first: Any, feature: Any, tile: Any, lane: Any
) -> Any:
    """Let ``tile[feature + f, lane + i]`` be ``rows[slots[first + i], feature + f]``; OUT: tile."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(place: int) -> Any:
            return make_array(signature.args[place])(context, builder, arguments[place])

        def entry(matrix: Any, row: Any, column: Any) -> Any:
            width = builder.extract_value(matrix.shape, 1)
            place = builder.gep(matrix.data, [builder.add(builder.mul(row, width), column)])
            return _vector_at(builder, place)

        source, places, target = array(0), array(1), array(4)
        _, _, first, feature, _, lane = arguments
        loaded = []
        for i in range(LANES):
            place = builder.gep(places.data, [builder.add(first, _constant(i))])
            loaded.append(builder.load(entry(source, builder.load(place), feature), align=4))
        for f, column in enumerate(_transposed(builder, loaded)):
            row = builder.add(feature, _constant(f))
            builder.store(column, entry(target, row, lane), align=4)
        return context.get_dummy_value()

    return types.void(rows, slots, types.int64, types.int64, tile, types.int64), generate


@intrinsic
def _two_nearest(
    typing_context: Any, tile: Any, begin: Any, factors: Any, near: Any, other: Any, nearest: Any
) -> Any:
    """:func:`meet_anchors` for some vectors of points.  OUT: near, other, nearest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(place: int) -> Any:
            return make_array(signature.args[place])(context, builder, arguments[place])

        def variables(kind: Any, value: Any) -> list[Any]:
            found = [cgutils.alloca_once(builder, kind) for _ in vectors]
            for variable in found:
                builder.store(value, variable)
            return found

        def lower(one: Any, two: Any) -> Any:
            return builder.select(builder.fcmp_ordered("<", one, two), one, two)

        points, table = array(0), array(2)
        vectors, anchors = range(VECTORS_AT_ONCE), range(ANCHORS_AT_ONCE)
        stride, width = (builder.extract_value(one.shape, 1) for one in (points, table))
        n_features = builder.sub(width, _constant(1))
        infinite = ir.Constant(_SINGLES, [float("inf")] * LANES)
        closest, next_ = variables(_SINGLES, infinite), variables(_SINGLES, infinite)
        which = variables(_INTS, ir.Constant(_INTS, [0] * LANES))
        sums = [variables(_SINGLES, infinite) for _ in anchors]
        n_groups = builder.udiv(builder.extract_value(table.shape, 0), _constant(ANCHORS_AT_ONCE))
        with cgutils.for_range(builder, n_groups) as groups:
            number = builder.mul(groups.index, _constant(ANCHORS_AT_ONCE))
            numbers = [builder.add(number, _constant(k)) for k in anchors]
            factor = [builder.gep(table.data, [builder.mul(k, width)]) for k in numbers]
            for k in anchors:
                norm = builder.load(builder.gep(factor[k], [n_features]))
                for i in vectors:
                    builder.store(_everywhere(builder, norm), sums[k][i])
            with cgutils.for_range(builder, n_features) as features:
                c = features.index
                row = builder.gep(points.data, [builder.add(builder.mul(c, stride), arguments[1])])
                places = [builder.gep(row, [_constant(LANES * i)]) for i in vectors]
                x = [builder.load(_vector_at(builder, place), align=4) for place in places]
                for k in anchors:
                    f = _everywhere(builder, builder.load(builder.gep(factor[k], [c])))
                    for i in vectors:
                        total = builder.fadd(builder.load(sums[k][i]), builder.fmul(f, x[i]))
                        builder.store(total, sums[k][i])
            for k in anchors:
                name = _everywhere(builder, builder.trunc(numbers[k], _INT))
                for i in vectors:
                    estimate, before = builder.load(sums[k][i]), builder.load(closest[i])
                    is_closer = builder.fcmp_ordered("<", estimate, before)
                    second = lower(estimate, builder.load(next_[i]))
                    builder.store(builder.select(is_closer, before, second), next_[i])
                    builder.store(lower(estimate, before), closest[i])
                    builder.store(builder.select(is_closer, name, builder.load(which[i])), which[i])
        outputs = (3, closest, _SINGLES), (4, next_, _SINGLES), (5, which, _INTS)
        for place, found, kind in outputs:
            for i in vectors:
                lane = builder.add(arguments[1], _constant(LANES * i))
                target = _vector_at(builder, builder.gep(array(place).data, [lane]), kind)
                builder.store(builder.load(found[i]), target, align=4)
        return context.get_dummy_value()

    return types.void(tile, types.int64, factors, near, other, nearest), generate
