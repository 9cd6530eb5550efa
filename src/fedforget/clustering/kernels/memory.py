"""Asking for memory ahead of its turn, where a processor cannot foresee what is met next."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from fedforget.compilation import helper

LINE = 64
"""Bytes of a cache line."""

AHEAD = 16
"""Of many places that are scattered, each is asked for so many before its turn."""


@intrinsic
def fetch_entry(typing_context: Any, numbers: Any, place: Any) -> Any:
    """Ask for the cache line of one number of an array, and do not wait for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        array = make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        routine = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        )
        # To be read, kept close, and data.
        builder.call(routine, [address, *(ir.Constant(word, number) for number in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(numbers, types.int64), generate


@helper
def fetch(numbers):
    """Ask for the cache lines of an array that will be read soon."""
    for i in range(0, numbers.shape[0], LINE // numbers.itemsize):
        fetch_entry(numbers, i)


@helper
def fetch_row(matrix, row):
    """Ask for the cache lines of a row that will be read soon."""
    width = matrix.shape[1]
    for c in range(0, width, LINE // matrix.itemsize):
        fetch_entry(matrix, row * width + c)
    fetch_entry(matrix, row * width + width - 1)
