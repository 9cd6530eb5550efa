"""How this package compiles its kernels with numba.

All of them are strictly IEEE (no fast-math except in what :func:`reordering_helper` says, no fused
multiply-add except in the estimates of :mod:`fedforget.clustering.replay.lanes`), release the
interpreter's lock and are kept on disk (:mod:`fedforget.kernel_cache`).  A kernel may call helpers
from any module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from fedforget.helper_code import HelperCompiler
from fedforget.kernel_cache import KernelCache

Function = Callable[..., Any]

KERNELS: list[Any] = []
"""Every compiled function, so that a warm-up can see which ones were kept."""


def _compiled(function: Function, **options: bool) -> Function:
    shared: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True} | options
    dispatcher: Any = numba.njit(**shared)(function)
    dispatcher._cache = KernelCache(function)
    KERNELS.append(dispatcher)
    compiled: Function = dispatcher
    return compiled


def kernel(function: Function) -> Function:
    """A loop over arrays that Python calls, and that allocates nothing.

    It is compiled without counting references to arrays.  Otherwise every view of an array would
    cost two atomic operations, and compiling would take longer.
    """
    return _compiled(function, _nrt=False)


def allocating_kernel(function: Function) -> Function:
    """A kernel that makes arrays of its own."""
    return _compiled(function)


def _taken_in(function: Function, **options: Any) -> Function:
    shared: Any = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True} | options
    compiled: Function = numba.njit(error_model="numpy", pipeline_class=HelperCompiler, **shared)(
        function
    )
    return compiled


def helper(function: Function) -> Function:
    """A function that only kernels call, and take in; LLVM inlines it where that pays."""
    return _taken_in(function)


def reordering_helper(function: Function) -> Function:
    """A helper whose sums are added up in any order, so that these loops, too, become vectors.

    What it returns may be used only together with a bound on its error.
    """
    return _taken_in(function, fastmath={"reassoc", "nsz"})


def inlined(function: Function) -> Function:
    """A small helper that numba puts into each caller, where loops can then be vectorised.

    This takes long in callers that are long themselves.
    """
    return numba.njit(inline="always", error_model="numpy")(function)


def compiled_now() -> int:
    """How many kernels this process had to compile because they were not kept."""
    return sum(sum(one.stats.cache_misses.values()) for one in KERNELS)
