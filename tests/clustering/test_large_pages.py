"""Memory in large pages is memory like any other."""

from __future__ import annotations

import mmap
from itertools import pairwise

import numpy as np
import pytest

from fedforget.clustering.kernels.memory import LINE
from fedforget.clustering.large_pages import LARGE, zeros, zeros_of
from fedforget.clustering.replay.state import Margins, Points, Scratch, Sizes, allocate

PAGE = 2 << 20
SIZES = [0, 1, 1000, PAGE // 2 - 1, PAGE // 2, PAGE, PAGE + 1, LARGE - 1, LARGE, LARGE + 12345]


@pytest.mark.parametrize("size", SIZES)
def test_it_is_all_there_and_zero(size: int) -> None:
    memory = zeros(size)
    assert memory.shape == (size,)
    assert not memory.any()
    memory[:] = 255
    assert int(memory.sum(dtype=np.int64)) == 255 * size


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="no large pages here")
@pytest.mark.parametrize("size", [PAGE // 2, PAGE, LARGE - 1])
def test_a_large_page_begins_where_the_memory_does(size: int) -> None:
    assert zeros(size).ctypes.data % PAGE == 0


@pytest.mark.parametrize("without", [True, False], ids=["without", "refused"])
def test_systems_without_large_pages_give_small_ones(
    without: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without:
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    else:
        # No system knows this wish.
        monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12345, raising=False)
    assert not zeros(PAGE).any()
    assert zeros_of((3, PAGE // 8)).shape == (3, PAGE // 8)


@pytest.mark.parametrize("slots", [64, 10_368, 131_072])
def test_no_array_of_a_part_reaches_into_another(slots: int) -> None:
    """Each begins with a line, and behind its end there is one that may be read."""
    sizes = Sizes(slots, 5, 3, 2, rows=4, longest=4, turned=slots // 64)
    for part in (Points, Margins, Scratch):
        arrays = [array for array in allocate(part, sizes) if array.nbytes]
        arrays.sort(key=lambda array: array.ctypes.data)
        assert not any(array.ctypes.data % LINE for array in arrays)
        assert not any(array.view(np.uint8).any() for array in arrays if array.ndim)
        for one, other in pairwise(arrays):
            assert one.ctypes.data + one.nbytes + LINE <= other.ctypes.data
