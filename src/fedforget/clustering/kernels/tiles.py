"""Tiles of 32 rows, side by side: one feature after the other, in vectors."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from fedforget.clustering.kernels.vectors import VectorCode, has_long_registers, lanes_of
from fedforget.compilation import helper

_LANES = lanes_of(types.float64)
_VECTORS = 4
"""Vectors of rows in a tile."""

TILE = _VECTORS * _LANES
"""Rows of a tile, which is read from its first number to its last."""

_AT_ONCE = _VECTORS if has_long_registers() else 1
"""So many vectors of rows meet a centre at once, and their sums stay in registers.

With AVX2, these have a quarter as many bytes as with AVX-512.
"""


@helper
def turn_tile(rows, turned):
    """Transpose some rows, so that they are stored side by side.  OUT: turned."""
    n, d = rows.shape
    whole_rows, whole_features = n - n % _LANES, d - d % _LANES
    for i in range(0, whole_rows, _LANES):
        for t in range(0, whole_features, _LANES):
            _turn_square(rows, i, t, turned)
        for t in range(whole_features, d):
            for j in range(i, i + _LANES):
                turned[t, j] = rows[j, t]
    for i in range(whole_rows, n):
        for t in range(d):
            turned[t, i] = rows[i, t]


@intrinsic
def _turn_square(typing_context: Any, rows: Any, row: Any, feature: Any, turned: Any) -> Any:
    """Transpose as many rows and features as a vector has lanes.  OUT: turned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float64, context, builder, signature, arguments)
        _, row, feature, _ = arguments
        lanes = range(code.lanes)
        loaded = [code.load(code.entry(0, code.plus(row, i), feature)) for i in lanes]
        for i, column in enumerate(code.transposed(loaded)):
            code.store(column, code.entry(3, code.plus(feature, i), row))
        return code.none

    return types.void(rows, types.int64, types.int64, turned), generate


@intrinsic
def tile_distances(typing_context: Any, tile: Any, centre: Any, out: Any) -> Any:
    """Squared distances of the rows of one tile to a centre.  OUT: out.

    Each row's sum has the order of ``squared_distance``: four interleaved sums, then the rest.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float64, context, builder, signature, arguments)
        d = code.length(0, 0)
        n_groups = builder.udiv(d, code.word(4))

        def add_squares(sums: list[Any], begins: list[Any], feature: Any) -> None:
            c = code.everywhere(builder.load(code.entry(1, feature)))
            for variable, begin in zip(sums, begins, strict=True):
                difference = builder.fsub(code.load(code.entry(0, feature, begin)), c)
                code.add_product(variable, difference, difference)

        for first in range(0, _VECTORS, _AT_ONCE):
            begins = [code.word(code.lanes * (first + i)) for i in range(_AT_ONCE)]
            sums = [code.variables(code.constant(0.0), _AT_ONCE) for _ in range(5)]
            with code.count(n_groups) as group:
                for j in range(4):
                    add_squares(sums[j], begins, code.plus(code.times(group, 4), j))
            with code.count(d, code.times(n_groups, 4)) as feature:
                add_squares(sums[4], begins, feature)
            for i, begin in enumerate(begins):
                s0, s1, s2, s3, rest = (builder.load(of[i]) for of in sums)
                total = builder.fadd(builder.fadd(s0, s2), builder.fadd(s1, s3))
                code.store(builder.fadd(total, rest), code.entry(2, begin))
        return code.none

    return types.void(tile, centre, out), generate
