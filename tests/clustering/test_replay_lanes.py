"""Points side by side in vectors give the bits of NumPy, operation by operation."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

import numba
import numpy as np
import pytest
import test_distance
from llvmlite.binding import get_host_cpu_features

from fedforget.clustering.replay import lanes
from fedforget.clustering.replay.erasing import erase_coordinates
from fedforget.clustering.replay.state import FEATURES_AT_ONCE, SLOT_BLOCK, Margins, Sizes, allocate

_gather, _meet_anchors, _put_in_tile = lanes.gather, lanes.meet_anchors, lanes.put_in_tile
TWICE, PAD, AWAY = np.float32(1e-3), np.float32(2e-3), np.float32(5e-4)


@pytest.fixture(scope="module")
def measure() -> Any:
    @numba.njit(error_model="numpy")
    def measured(coordinates, slots, tile, factors, nearest, margins):
        _gather(coordinates, slots, 0, tile)
        _meet_anchors(tile, factors, TWICE, PAD, AWAY, nearest, margins)

    return measured


def rounded_twice(one: np.ndarray, two: np.ndarray, addend: np.ndarray) -> np.ndarray:
    """The product is rounded, and then the sum."""
    return addend + one * two


def rounded_once(one: np.ndarray, two: np.ndarray, addend: np.ndarray) -> np.ndarray:
    """The sum alone is rounded: a product of numbers in single precision is exact in double.

    The sum in double precision is rounded to odd, so that the rounding to single precision which
    follows is that of the exact sum.
    """
    product, addend = np.float64(one) * np.float64(two), np.float64(addend)
    total = product + addend
    with np.errstate(invalid="ignore"):
        of_product = total - addend
        lost = (product - of_product) + (addend - (total - of_product))
    is_even = total.view(np.uint64) & np.uint64(1) == 0
    odd = np.nextafter(total, np.where(lost > 0.0, np.inf, -np.inf))
    is_wrong = np.isfinite(total) & (lost != 0.0) & is_even
    return np.where(is_wrong, odd, total).astype(np.float32)


def twin(
    x: np.ndarray, factors: np.ndarray, add_product: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nearest anchors, margins and squared lengths, one rounded operation after the other."""
    half = np.float32(0.5 * (1.0 - 2.0**-18))
    estimates = np.repeat(factors[None, :, -1], len(x), axis=0)
    length = np.zeros(len(x), np.float32)
    for c in range(x.shape[1]):
        estimates = add_product(factors[None, :, c], x[:, c, None], estimates)
        length = length + x[:, c] * x[:, c]
    ordered = np.sort(estimates, axis=1)
    near, other = ordered[:, 0], ordered[:, 1]
    with np.errstate(invalid="ignore"):
        margin = (((other - near) - TWICE) / np.sqrt((length + other) + PAD)) * half - AWAY
    margin = np.where(other < np.inf, margin, np.float32(np.inf))
    return estimates.argmin(axis=1), margin, length


def with_none(factors: np.ndarray) -> np.ndarray:
    """The anchors, and one that is infinitely far, so that there always is a next one."""
    none = np.zeros((1, factors.shape[1]), np.float32)
    none[0, -1] = np.inf
    return np.vstack([factors, none])


@pytest.mark.parametrize("d", [1, 2, 3, 10, 15, 16, 17, 20, 33, 52])
@pytest.mark.parametrize("k", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("top", [2, 10**6])
def test_every_bit_is_that_of_the_twin(
    measure: Any, d: int, k: int, top: int, rng: np.random.Generator
) -> None:
    """With few values, anchors are equally near all the time; the first of equals counts.

    Whether estimates are rounded once or twice depends on the processor.
    """
    sizes = Sizes(4 * SLOT_BLOCK, d, k, 1)
    margins = allocate(Margins, sizes)
    margins.coordinates[:] = rng.integers(-top, top + 1, margins.coordinates.shape) / top
    anchors = (rng.integers(-top, top + 1, (k, d)) / top).astype(np.float32)
    # Clusters come in pairs: one that makes them even is infinitely far.
    margins.factors[k:, -1] = np.inf
    margins.factors[:k, :-1] = np.float32(-2.0) * anchors
    margins.factors[:k, -1] = (anchors * anchors).sum(axis=1)
    slots = rng.integers(0, sizes.slots, SLOT_BLOCK)
    slots[-1] = sizes.slots - 1
    nearest, measured = np.empty(SLOT_BLOCK, np.int32), np.empty(SLOT_BLOCK, np.float32)
    measure(margins.coordinates, slots, margins.gathered, margins.factors, nearest, measured)
    x = margins.coordinates[slots]
    anchors = with_none(margins.factors)
    wanted = [twin(x, anchors, add_product) for add_product in (rounded_once, rounded_twice)]
    found = nearest.tolist(), measured.tobytes()
    assert found in [(one[0].tolist(), one[1].tobytes()) for one in wanted]
    assert margins.gathered[:d].T.tobytes() == x.tobytes()
    assert margins.gathered[-1].tobytes() == wanted[0][2].tobytes()


def test_a_group_may_be_read_behind_the_last_coordinate() -> None:
    """Rows are read by whole groups of features, the last row, too."""
    for d in (1, 5, 17):
        coordinates = allocate(Margins, Sizes(SLOT_BLOCK, d, 2, 1)).coordinates
        memory = coordinates
        while memory.base is not None and isinstance(memory.base, np.ndarray):
            memory = memory.base
        end = memory.ctypes.data + memory.nbytes
        assert end - (coordinates.ctypes.data + coordinates.nbytes) >= 4 * (FEATURES_AT_ONCE - 1)


@pytest.mark.parametrize("d", [1, 4, 5, 20])
def test_points_that_lie_side_by_side_come_and_go(d: int, rng: np.random.Generator) -> None:
    """Put one by one or all at once, they are the same; who has left is near to no anchor."""
    sizes = Sizes(3 * SLOT_BLOCK, d, 3, 1, turned=3)
    margins = allocate(Margins, sizes)
    margins.coordinates[:] = rng.normal(size=margins.coordinates.shape)
    weights = np.ones(sizes.slots, dtype=np.int64)
    weights[::7] = 0
    every = np.arange(sizes.slots)
    lanes.fill_tiles(margins.coordinates, every, weights, margins.turned)
    assert np.isnan(margins.turned[:, 0].ravel()).tolist() == (weights == 0).tolist()
    for slot in every[::7]:
        put_one(margins.coordinates, slot, margins.turned)
    everyone = np.zeros_like(margins.turned)
    lanes.fill_tiles(margins.coordinates, every, np.ones_like(weights), everyone)
    assert margins.turned.tobytes() == everyone.tobytes()

    gone = np.sort(rng.choice(sizes.slots, 50, replace=False))
    erase_coordinates(margins.coordinates, margins.turned, gone)
    assert not margins.coordinates[gone].any()
    columns = margins.turned.transpose(0, 2, 1).reshape(sizes.slots, -1)
    assert np.isnan(columns[gone, 0]).all()
    assert not columns[gone, 1:].any()
    left = np.setdiff1d(every, gone)
    assert columns[left, :d].tobytes() == margins.coordinates[left].tobytes()


@numba.njit
def put_one(coordinates, slot, turned):
    _put_in_tile(coordinates, slot, turned)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_who_has_left_is_infinitely_far_from_any_border(
    measure: Any, k: int, rng: np.random.Generator
) -> None:
    margins = allocate(Margins, Sizes(SLOT_BLOCK, 3, k, 1))
    margins.coordinates[:] = rng.normal(size=margins.coordinates.shape)
    gone = rng.permutation(SLOT_BLOCK)[:20]
    margins.coordinates[gone, 0] = np.nan
    margins.factors[k:, -1] = np.inf
    margins.factors[:k] = rng.normal(size=(k, 4))
    nearest, measured = np.empty(SLOT_BLOCK, np.int32), np.empty(SLOT_BLOCK, np.float32)
    slots = np.arange(SLOT_BLOCK)
    measure(margins.coordinates, slots, margins.gathered, margins.factors, nearest, measured)
    assert (measured[gone] == np.inf).all()
    assert (np.isinf(measured).sum() == len(gone)) == (k > 1)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86-64")
@pytest.mark.parametrize("features", ["sse4.2", "avx2 fma"])
def test_shorter_registers_give_the_bits_of_the_twin(features: str) -> None:
    """Also compiled for processors whose registers hold a quarter or half a vector."""
    here = get_host_cpu_features()
    if not all(here.get(feature) for feature in features.split()):
        pytest.skip(f"this processor has no {features}")
    named = ",".join(f"+{feature}" for feature in features.split())
    environment = os.environ | {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": named}
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    of_tiles = test_distance.test_every_row_of_a_tile_has_the_distance_of_the_definition
    wanted = [
        f"{__file__}::{test_every_bit_is_that_of_the_twin.__name__}",
        f"{test_distance.__file__}::{of_tiles.__name__}",
    ]
    done = subprocess.run([*command, *wanted], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
