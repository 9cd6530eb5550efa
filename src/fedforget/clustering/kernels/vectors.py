"""Vectors of the machine, where LLVM does not find them by itself.

It will not turn rows of numbers into columns, and it stores sums that could stay in registers.  The
vectors are those of LLVM, not of a processor; a processor with shorter ones takes several for each.
Every operation rounds once, as the same operation on numbers does, so no bit depends on them,
except :meth:`VectorCode.add_fused`, which only estimates use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.codegen import get_host_cpu_features
from numba.np.arrayobj import make_array

VECTOR = 64
"""Bytes of a vector."""


def has_long_registers() -> bool:
    """Whether kernels are compiled for a processor whose registers hold whole vectors.

    Others split each vector, and their registers have a quarter as many bytes in all, or fewer.
    """
    # As numba does: where none are named, those of this machine that numba may use.
    named: str | None = getattr(config, "CPU_FEATURES", None)
    features: str = get_host_cpu_features() if named is None else named
    return "+avx512f" in features.split(",")


_WORD, _INT = ir.IntType(64), ir.IntType(32)
_REAL = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


def lanes_of(kind: Any) -> int:
    """How many numbers of a kind a vector has."""
    lanes: int = 8 * VECTOR // kind.bitwidth
    return lanes


class VectorCode:
    """Writes the code of an intrinsic, whose arguments are arrays and numbers.

    Parameters
    ----------
    kind : the type of the numbers in the vectors.
    context, builder, signature, arguments : what an intrinsic is given by numba.  Arrays have to be
        C-contiguous.
    """

    def __init__(
        self, kind: Any, context: Any, builder: Any, signature: Any, arguments: Any
    ) -> None:
        for one in signature.args:
            if isinstance(one, types.Array) and one.layout != "C":
                raise TypeError(f"vectors take C-contiguous arrays, not {one}")
        self.builder = builder
        self.lanes = lanes_of(kind)
        self.vector = ir.VectorType(_REAL[kind], self.lanes)
        self.ints = ir.VectorType(_INT, self.lanes)
        self.none = context.get_dummy_value()
        self._suffix = f"v{self.lanes}f{kind.bitwidth}"
        self._arrays = {
            place: make_array(kind)(context, builder, argument)
            for place, (kind, argument) in enumerate(zip(signature.args, arguments, strict=True))
            if isinstance(kind, types.Array)
        }

    # -- addresses -----------------------------------------------------------------------------

    def word(self, number: int) -> Any:
        return ir.Constant(_WORD, number)

    def plus(self, word: Any, number: int) -> Any:
        return self.builder.add(word, self.word(number))

    def times(self, word: Any, number: int) -> Any:
        return self.builder.mul(word, self.word(number))

    def length(self, array: int, axis: int) -> Any:
        """The length of the array that is argument number ``array``."""
        return self.builder.extract_value(self._arrays[array].shape, axis)

    def entry(self, array: int, *index: Any) -> Any:
        """The address of an entry of an array."""
        place = index[0]
        for axis, number in enumerate(index[1:], 1):
            place = self.builder.add(self.builder.mul(place, self.length(array, axis)), number)
        return self.builder.gep(self._arrays[array].data, [place])

    @contextmanager
    def count(self, end: Any, begin: Any = None) -> Iterator[Any]:
        """A loop over the numbers from ``begin``, or 0, up to ``end``."""
        with cgutils.for_range(self.builder, end, start=begin) as loop:
            yield loop.index

    def parts(self, length: Any) -> Iterator[tuple[Any, int]]:
        """Places of whole vectors, in a loop, then of halves, quarters, ... for what they leave.

        With each place comes the number of lanes; what is written in between goes there.
        """
        lanes = self.lanes
        with self.count(self.builder.udiv(length, self.word(lanes))) as number:
            yield self.times(number, lanes), lanes
        while lanes := lanes // 2:
            is_left = self.builder.and_(length, self.word(lanes))
            place = self.builder.and_(length, self.word(-2 * lanes))
            with self.builder.if_then(self.builder.icmp_unsigned("!=", is_left, self.word(0))):
                yield place, lanes

    # -- vectors -------------------------------------------------------------------------------

    def constant(self, number: float) -> Any:
        return ir.Constant(self.vector, [number] * self.lanes)

    def everywhere(self, number: Any, count: int | None = None) -> Any:
        """A vector of one number, in all lanes or in so many."""
        count = count or self.lanes
        vector = ir.Constant(ir.VectorType(number.type, count), ir.Undefined)
        first = self.builder.insert_element(vector, number, ir.Constant(_INT, 0))
        order = ir.Constant(ir.VectorType(_INT, count), [0] * count)
        return self.builder.shuffle_vector(first, first, order)

    def load(self, place: Any, count: int | None = None) -> Any:
        """The vector that begins at an address, whole or of so many numbers."""
        number = place.type.pointee
        kind = ir.VectorType(number, count or self.lanes)
        # Never claim more alignment than one number has; four bytes are enough.
        align = min(4, number.width // 8) if isinstance(number, ir.IntType) else 4
        return self.builder.load(self.builder.bitcast(place, kind.as_pointer()), align=align)

    def store(self, vector: Any, place: Any) -> None:
        address = self.builder.bitcast(place, vector.type.as_pointer())
        self.builder.store(vector, address, align=4)

    def variables(self, value: Any, count: int) -> list[Any]:
        """Some variables that hold vectors, with a first value."""
        return [cgutils.alloca_once_value(self.builder, value) for _ in range(count)]

    def add_product(self, variable: Any, one: Any, two: Any) -> None:
        """Add a product to a sum; both are rounded."""
        total = self.builder.fadd(self.builder.load(variable), self.builder.fmul(one, two))
        self.builder.store(total, variable)

    def add_fused(self, variable: Any, one: Any, two: Any) -> None:
        """Add a product to a sum, which alone is rounded where the processor can do so at once.

        This is for estimates with bounds on their errors: bits depend on the processor.
        """
        routine = self._routine("fmuladd", 3)
        total = self.builder.call(routine, [one, two, self.builder.load(variable)])
        self.builder.store(total, variable)

    def lower(self, one: Any, two: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered("<", one, two), one, two)

    def bits(self, hits: Any) -> Any:
        """The answers of a comparison as one word, of as many bits; the first is the lowest."""
        word = self.builder.bitcast(hits, ir.IntType(hits.type.count))
        return word if sys.byteorder == "little" else self.builder.bitreverse(word)

    def root(self, vector: Any) -> Any:
        return self.builder.call(self._routine("sqrt", 1), [vector])

    def _routine(self, name: str, n_arguments: int) -> Any:
        """One of LLVM's own functions of vectors."""
        kind = ir.FunctionType(self.vector, [self.vector] * n_arguments)
        return self.builder.module.declare_intrinsic(f"llvm.{name}.{self._suffix}", (), kind)

    def transposed(self, rows: list[Any]) -> list[Any]:
        """A square of vectors; halves, quarters, ... across the diagonal change places."""
        rows, size, lanes = rows.copy(), self.lanes // 2, range(self.lanes)
        while size:
            # Lanes of the second of two vectors count on from those of the first.
            upper = [lane if not lane & size else self.lanes + lane - size for lane in lanes]
            lower = [lane + size if not lane & size else self.lanes + lane for lane in lanes]
            for i in (i for i in lanes if not i & size):
                pair = rows[i], rows[i + size]
                rows[i] = self.builder.shuffle_vector(*pair, ir.Constant(self.ints, upper))
                rows[i + size] = self.builder.shuffle_vector(*pair, ir.Constant(self.ints, lower))
            size //= 2
        return rows

    def columns_of(self, rows: list[Any]) -> list[Any]:
        """As many rows of four numbers as there are lanes, turned into four vectors."""
        quarter = self.lanes // 4
        # Of each four rows in turn the first ones, the second ones, ...
        parts = [self._joined([rows[4 * i + j] for i in range(quarter)]) for j in range(4)]
        columns = []
        for first in (0, 2):
            # Two columns of two vectors, and the same two of the others.
            both = [(0, first), (1, first), (0, first + 1), (1, first + 1)]
            one, two = (self._picked(parts[j], parts[j + 1], both) for j in (0, 2))
            columns += [
                self._picked(one, two, [(0, j), (0, j + 1), (1, j), (1, j + 1)]) for j in (0, 2)
            ]
        return columns

    def _joined(self, parts: list[Any]) -> Any:
        """One vector of several, one behind the other."""
        while len(parts) > 1:
            count = 2 * parts[0].type.count
            order = ir.Constant(ir.VectorType(_INT, count), list(range(count)))
            parts = [
                self.builder.shuffle_vector(one, two, order)
                for one, two in zip(parts[::2], parts[1::2], strict=True)
            ]
        return parts[0]

    def _picked(self, one: Any, two: Any, places: list[tuple[int, int]]) -> Any:
        """In each four lanes, those of the first or second vector that are named."""
        lanes = [
            self.lanes * which + begin + place
            for begin in range(0, self.lanes, 4)
            for which, place in places
        ]
        return self.builder.shuffle_vector(one, two, ir.Constant(self.ints, lanes))
