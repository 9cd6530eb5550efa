"""How this package compiles its kernels with numba.

A module of kernels must be complete in itself: numba's cache on disk looks only at the file of the
kernel, so a kernel that called a helper from another file could be cached with an outdated one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

Function = Callable[..., Any]

KERNELS: list[Any] = []
"""Every compiled function, so that a warm-up can see which ones were cached."""


def kernel(function: Function) -> Function:
    """Compile ``function`` on first use, strictly IEEE, without the GIL, cached on disk."""
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    KERNELS.append(compiled)
    return compiled


def lean_kernel(function: Function) -> Function:
    """A kernel that allocates nothing, compiled without counting references to arrays.

    Else every view of an array costs two atomic operations.  Only for calls from other kernels.
    """
    options: Any = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
    compiled: Function = numba.njit(**options)(function)
    KERNELS.append(compiled)
    return compiled


def inlined(function: Function) -> Function:
    """Compile a small helper into each kernel that calls it, where the loops can be vectorised."""
    return numba.njit(inline="always", error_model="numpy")(function)


def compiled_now() -> int:
    """How many kernels this process had to compile because they were not cached."""
    return sum(sum(one.stats.cache_misses.values()) for one in KERNELS)
