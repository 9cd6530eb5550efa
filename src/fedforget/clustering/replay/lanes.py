"""Points side by side, one in each lane of the machine's vectors.

LLVM does not find these vectors by itself: it will not turn rows of coordinates into columns, and
it stores what could stay in registers.  The vectors are those of LLVM, not of a processor; a
processor with shorter ones takes several for each.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from fedforget.clustering.replay.state import LANES, SLOT_BLOCK
from fedforget.compilation import helper

VECTORS_AT_ONCE = 2
ANCHORS_AT_ONCE = 2
"""So many vectors of points meet so many anchors at once: their sums fit into registers."""

_WORD, _INT, _SINGLE = ir.IntType(64), ir.IntType(32), ir.FloatType()
_SINGLES, _INTS = ir.VectorType(_SINGLE, LANES), ir.VectorType(_INT, LANES)
_INFINITE = ir.Constant(_SINGLES, [float("inf")] * LANES)


@helper
def gather(coordinates, slots, begin, tile):
    """Put the coordinates of a block of points side by side, from ``slots[begin]`` on.

    Whole vectors are read, so behind the last coordinate there has to be room for one.
    OUT: tile, feature by feature, up to a multiple of the lanes.
    """
    for j in range(0, SLOT_BLOCK, LANES):
        for c in range(0, coordinates.shape[1], LANES):
            _turn(coordinates, slots, begin + j, c, tile, j)


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


class _Code:
    """Writes the code of an intrinsic whose arguments are arrays and numbers."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        self.none = context.get_dummy_value()
        self._arrays = {
            place: make_array(kind)(context, builder, argument)
            for place, (kind, argument) in enumerate(zip(signature.args, arguments, strict=True))
            if isinstance(kind, types.Array)
        }

    def length(self, array: int, axis: int) -> Any:
        return self.builder.extract_value(self._arrays[array].shape, axis)

    def plus(self, word: Any, number: int) -> Any:
        return self.builder.add(word, ir.Constant(_WORD, number))

    def entry(self, array: int, *index: Any) -> Any:
        """The address of an entry of an array."""
        place = index[0]
        for axis, number in enumerate(index[1:], 1):
            place = self.builder.add(self.builder.mul(place, self.length(array, axis)), number)
        return self.builder.gep(self._arrays[array].data, [place])

    def load(self, place: Any) -> Any:
        """The vector that begins at an address."""
        return self.builder.load(self.builder.bitcast(place, _SINGLES.as_pointer()), align=4)

    def store(self, vector: Any, place: Any) -> None:
        self.builder.store(vector, self.builder.bitcast(place, vector.type.as_pointer()), align=4)

    def everywhere(self, number: Any) -> Any:
        """A vector of one number."""
        vector = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
        first = self.builder.insert_element(vector, number, ir.Constant(_INT, 0))
        return self.builder.shuffle_vector(first, first, ir.Constant(_INTS, [0] * LANES))

    def variables(self, value: Any) -> list[Any]:
        """One variable for each of the vectors at once."""
        return [cgutils.alloca_once_value(self.builder, value) for _ in range(VECTORS_AT_ONCE)]

    def lower(self, one: Any, two: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered("<", one, two), one, two)

    def root(self, vector: Any) -> Any:
        kind = ir.FunctionType(_SINGLES, [_SINGLES])
        routine = self.builder.module.declare_intrinsic(f"llvm.sqrt.v{LANES}f32", (), kind)
        return self.builder.call(routine, [vector])

    def transposed(self, rows: list[Any]) -> list[Any]:
        """A square of vectors; halves, quarters, ... across the diagonal change places."""
        rows, size, lanes = rows.copy(), LANES // 2, range(LANES)
        while size:
            # Lanes of the second of two vectors count on from those of the first.
            upper = [lane if not lane & size else LANES + lane - size for lane in lanes]
            lower = [lane + size if not lane & size else LANES + lane for lane in lanes]
            for i in (i for i in lanes if not i & size):
                pair = rows[i], rows[i + size]
                rows[i] = self.builder.shuffle_vector(*pair, ir.Constant(_INTS, upper))
                rows[i + size] = self.builder.shuffle_vector(*pair, ir.Constant(_INTS, lower))
            size //= 2
        return rows


@intrinsic
def _turn(
    typing_context: Any, rows: Any, slots: Any, first: Any, feature: Any, tile: Any, lane: Any
) -> Any:
    """Let ``tile[feature + f, lane + i]`` be ``rows[slots[first + i], feature + f]``; OUT: tile."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, signature, arguments)
        _, _, first, feature, _, lane = arguments
        numbers = [builder.load(code.entry(1, code.plus(first, i))) for i in range(LANES)]
        loaded = [code.load(code.entry(0, number, feature)) for number in numbers]
        for f, column in enumerate(code.transposed(loaded)):
            code.store(column, code.entry(4, code.plus(feature, f), lane))
        return code.none

    return types.void(rows, slots, types.int64, types.int64, tile, types.int64), generate


@intrinsic
def _meet(
    typing_context: Any, tile: Any, begin: Any, factors: Any,
    twice: Any, pad: Any, away: Any, nearest: Any, margins: Any,
) -> Any:  # fmt: skip
    """:func:`meet_anchors` for the vectors at once from ``begin`` on.  OUT: nearest, margins."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Code(context, builder, signature, arguments)
        vectors, anchors = range(VECTORS_AT_ONCE), range(ANCHORS_AT_ONCE)
        begins = [code.plus(arguments[1], LANES * i) for i in vectors]
        n_features = code.plus(code.length(2, 1), -1)
        n_groups = builder.udiv(code.length(2, 0), ir.Constant(_WORD, ANCHORS_AT_ONCE))

        def add(variable: Any, one: Any, two: Any) -> None:
            """Add a product to a sum."""
            builder.store(builder.fadd(builder.load(variable), builder.fmul(one, two)), variable)

        near, other = code.variables(_INFINITE), code.variables(_INFINITE)
        which = code.variables(ir.Constant(_INTS, [0] * LANES))
        with cgutils.for_range(builder, n_groups) as group:
            first = builder.mul(group.index, ir.Constant(_WORD, ANCHORS_AT_ONCE))
            numbers = [code.plus(first, k) for k in anchors]
            norms = [builder.load(code.entry(2, number, n_features)) for number in numbers]
            estimates = [code.variables(code.everywhere(norm)) for norm in norms]
            with cgutils.for_range(builder, n_features) as feature:
                x = [code.load(code.entry(0, feature.index, place)) for place in begins]
                for k in anchors:
                    f = builder.load(code.entry(2, numbers[k], feature.index))
                    for i in vectors:
                        add(estimates[k][i], code.everywhere(f), x[i])
            for k in anchors:
                name = code.everywhere(builder.trunc(numbers[k], _INT))
                for i in vectors:
                    estimate, before = builder.load(estimates[k][i]), builder.load(near[i])
                    closer = builder.fcmp_ordered("<", estimate, before)
                    second = code.lower(estimate, builder.load(other[i]))
                    builder.store(builder.select(closer, before, second), other[i])
                    builder.store(code.lower(estimate, before), near[i])
                    builder.store(builder.select(closer, name, builder.load(which[i])), which[i])

        lengths = code.variables(ir.Constant(_SINGLES, [0.0] * LANES))
        with cgutils.for_range(builder, n_features) as feature:
            for i in vectors:
                x_i = code.load(code.entry(0, feature.index, begins[i]))
                add(lengths[i], x_i, x_i)

        # d_b - d_a = (d_b^2 - d_a^2) / (d_b + d_a), which is at least the same over 2 d_b.
        twice, pad, away = (code.everywhere(number) for number in arguments[3:6])
        half = ir.Constant(_SINGLES, [0.5 * (1.0 - 2.0**-18)] * LANES)
        for i in vectors:
            a, b = builder.load(near[i]), builder.load(other[i])
            gap = builder.fsub(builder.fsub(b, a), twice)
            farther = code.root(builder.fadd(builder.fadd(builder.load(lengths[i]), b), pad))
            margin = builder.fsub(builder.fmul(builder.fdiv(gap, farther), half), away)
            has_other = builder.fcmp_ordered("<", b, _INFINITE)
            code.store(builder.select(has_other, margin, _INFINITE), code.entry(7, begins[i]))
            code.store(builder.load(which[i]), code.entry(6, begins[i]))
        return code.none

    single = types.float32
    return types.void(
        tile, types.int64, factors, single, single, single, nearest, margins
    ), generate
