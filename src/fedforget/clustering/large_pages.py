"""Memory in large pages, where the system has these.

Getting memory page by page takes longer than filling it.  And a processor has to look up where
pages are, whenever others have been used meanwhile: a change of a model begins with that.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

UInt8s = npt.NDArray[np.uint8]

LARGE = 4 << 20
"""Bytes from which memory asks for large pages, but not for whole ones."""

_PAGE = 2 << 20
_HALF = _PAGE // 2


def zeros(size: int) -> UInt8s:
    """So many bytes, for which memory is taken when they are written to.

    Those that fill half a large page get whole ones.  ``LARGE`` ones take no more than they need,
    which at their ends may be small pages.
    """
    if size < _HALF or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(size, dtype=np.uint8)
    is_large = size >= LARGE
    memory = mmap.mmap(-1, size if is_large else (-(-size // _PAGE) + 1) * _PAGE)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    buffer = np.frombuffer(memory, dtype=np.uint8)
    begin = 0 if is_large else -buffer.ctypes.data % _PAGE
    return buffer[begin : begin + size]


def zeros_of(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """An array of zeros."""
    kind = np.dtype(dtype)
    return zeros(math.prod(shape) * kind.itemsize).view(kind).reshape(shape)
