"""All kernels: compiled ahead, and without operations that round otherwise."""

from __future__ import annotations

import re
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.compiler import Flags

from fedforget import warmup
from fedforget.compilation import KERNELS
from fedforget.warmup import values_of, warm_up

FUSED = re.compile(r"\b(?:v?fn?m(?:add|sub|la|ls)\w*|llvm\.(?:fma|fmuladd)).*")
IN_SINGLE_PRECISION = re.compile(r"\w+ps\b|.*\.4s\b")
ESTIMATING = {"replay_by_margins"}
"""Kernels that may fuse estimates in single precision, whose errors have bounds."""


def assembly_of(compiled: Any) -> str:
    """What the processor executes; for a kernel that was kept, made of its optimised code."""
    library = compiled.library
    return str(library.codegen._tm.emit_assembly(library._get_module_for_linking()))


@pytest.fixture(scope="module")
def kernels() -> list[Any]:
    warm_up()
    return KERNELS


def test_the_warm_up_compiles_every_kernel(kernels: list[Any]) -> None:
    assert [one.py_func.__qualname__ for one in kernels if not one.overloads] == []


def test_options_read_at_once_are_those_that_the_compiler_reads() -> None:
    options = Flags()
    assert values_of(options) == options.values()
    options.nrt = True
    options.error_model = "numpy"
    assert values_of(options) == options.values()
    assert values_of(options)["error_model"] == "numpy"
    assert values_of(options) != values_of(Flags())
    assert list(values_of(options)) == list(options.values())


def test_no_kernel_contains_a_fused_multiply_add(kernels: list[Any]) -> None:
    """A fused operation rounds once where two operations round twice: other bits."""
    products = 0
    for one in kernels:
        for compiled in one.overloads.values():
            assembly = assembly_of(compiled)
            assert len(assembly) > 300
            name = one.py_func.__qualname__
            fused = FUSED.findall(assembly)
            if name in ESTIMATING:
                fused = [line for line in fused if not IN_SINGLE_PRECISION.match(line)]
            assert not fused, name
            products += bool(re.search(r"\bv?mulp[ds]\b|\bfmul\b", assembly))
    assert products > 5, "hardly any kernel multiplies vectors: was the right code looked at?"


def test_a_fused_multiply_add_would_be_found() -> None:
    @numba.njit(fastmath={"contract"})
    def fused(x: np.ndarray) -> float:
        return x[0] * x[1] + x[2]

    fused(np.ones(3))
    (compiled,) = fused.overloads.values()
    features = compiled.library.codegen.magic_tuple()[2]
    if "+fma" not in features and "+neon" not in features:
        pytest.skip("this processor has no fused multiply-add")
    assert FUSED.search(assembly_of(compiled))


def test_every_part_is_given_to_a_process() -> None:
    given = [part for together in warmup._TOGETHER for part in together]
    assert sorted(given) == sorted(warmup.PARTS)
    assert set(warmup.FOR_THE_DEMO) < set(warmup.PARTS)
