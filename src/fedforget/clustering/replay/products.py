"""Inner products of many points with all centres, by the BLAS that SciPy brings along.

Compiled kernels are kept on disk, so an address must not be compiled into them: it is looked up
once in each process and handed over with the state.  In which order a library adds up does not
matter here, since what it returns is used with a bound on its errors.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import get_cython_function_address, intrinsic
from numba.np.arrayobj import make_array
from threadpoolctl import ThreadpoolController

_INT, _BYTE, _SINGLE = ir.IntType(32), ir.IntType(8), ir.FloatType()


@cache
def address_of_sgemm() -> int:
    """Where this process has the routine that multiplies matrices in single precision."""
    address: int = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    return address


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def blas_threads(n_threads: int) -> AbstractContextManager[Any]:
    """Let the library use no more than so many threads."""
    limited: AbstractContextManager[Any] = _libraries().limit(limits=n_threads, user_api="blas")
    return limited


@intrinsic
def multiply(typing_context: Any, sgemm: Any, points: Any, vectors: Any, n: Any, out: Any) -> Any:
    """Inner products of the first n points, row by row, with all vectors.  OUT: out.

    ``sgemm`` is the address of the routine; rows of ``out`` belong to points, columns to vectors.
    """
    signature = types.void(sgemm, points, vectors, n, out)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def array(place: int) -> Any:
            return make_array(signature.args[place])(context, builder, arguments[place])

        def by_address(value: Any) -> Any:
            # In the first block, or a loop would take more and more of the stack.
            with builder.goto_entry_block():
                place = builder.alloca(value.type)
            builder.store(value, place)
            return place

        def length(of: Any, axis: int) -> Any:
            return by_address(builder.trunc(builder.extract_value(of.shape, axis), _INT))

        def single(number: float) -> Any:
            return by_address(ir.Constant(_SINGLE, number))

        def letter(which: str) -> Any:
            return by_address(ir.Constant(_BYTE, ord(which)))

        rows, columns, target = array(1), array(2), array(4)
        count = by_address(builder.trunc(arguments[3], _INT))
        # To a routine that stores matrices by columns, each of these is its own transpose.
        depth, width = length(columns, 1), length(columns, 0)
        passed = [
            letter("T"), letter("N"), width, count, depth,
            single(1.0), columns.data, depth, rows.data, depth,
            single(0.0), target.data, width,
        ]  # fmt: skip
        routine = ir.FunctionType(ir.VoidType(), [one.type for one in passed])
        builder.call(builder.inttoptr(arguments[0], routine.as_pointer()), passed)
        return context.get_dummy_value()

    return signature, generate
