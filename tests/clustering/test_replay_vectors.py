"""What clusters and moments gain and lose, in vectors, is what whole numbers in Python give."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba.core import config

from fedforget.clustering.kernels.vectors import has_long_registers
from fedforget.clustering.replay import arithmetic
from fedforget.clustering.replay.parts import part_of, table_of
from fedforget.clustering.replay.points import change_moments
from fedforget.clustering.replay.state import (
    AFTER,
    BEFORE,
    CHANGE_COLUMNS,
    SLOT,
    Points,
    Sizes,
    allocate,
)
from fedforget.clustering.rounding import Rounding

FEATURES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 33]
N = 64

_points = part_of(Points)
_add, _move = arithmetic.add_to_sums, arithmetic.move_between_sums


def points_of(d: int, rng: np.random.Generator) -> Points:
    """Points of very different scales, counted from an origin in their midst."""
    points = allocate(Points, Sizes(N, d, 1, 1))
    values = rng.normal(size=(N, d)) * 10.0 ** rng.integers(-3, 4, d)
    rounding = Rounding.of(np.abs(values).max(axis=0))
    points.values[:] = values
    points.weights[:] = 1
    points.rounders[:], points.units[:] = rounding.rounders, rounding.units
    points.per_unit[:] = 1.0 / rounding.units
    points.summary["scale"] = rounding.scale
    points.origin[:] = rng.integers(-(2**30), 2**30, d)
    return points


def steps_of(points: Points, values: np.ndarray) -> np.ndarray:
    """Rows in whole steps, counted from zero."""
    rounded = (values + points.rounders) - points.rounders
    steps = rounded * float(points.summary["scale"]) / points.units
    assert (steps == np.rint(steps)).all()
    return steps.astype(np.int64)


@pytest.fixture(scope="module")
def move() -> Any:
    @numba.njit(error_model="numpy")
    def moved(table, slots, weights, sources, targets, sums):
        points = _points(table)
        for i in range(slots.shape[0]):
            if sources[i] < 0:
                _add(points, slots[i], weights[i], sums[targets[i]])
            else:
                _move(points, slots[i], weights[i], sums[sources[i]], sums[targets[i]])

    return moved


@pytest.mark.parametrize("d", FEATURES)
def test_sums_follow_points_that_come_go_and_move(
    move: Any, d: int, rng: np.random.Generator
) -> None:
    """Nothing but the sums of the named clusters changes, not even next to them."""
    points, k, n = points_of(d, rng), 5, 200
    # The first and the last row stay as they are.
    sums = rng.integers(-(2**40), 2**40, (k + 2, d + 1))
    slots, weights = rng.integers(0, N, n), rng.integers(-(2**20), 2**20, n)
    targets = rng.integers(1, k + 1, n)
    sources = np.where(rng.random(n) < 0.5, -1, 1 + (targets + rng.integers(0, k - 1, n)) % k)
    wanted = sums.astype(object)
    shifted = np.column_stack([steps_of(points, points.values) - points.origin, np.ones(N, int)])
    for slot, weight, source, target in zip(slots, weights, sources, targets, strict=True):
        wanted[target] += int(weight) * shifted[slot].astype(object)
        if source >= 0:
            wanted[source] -= int(weight) * shifted[slot].astype(object)
    move(table_of(points), slots, weights, sources, targets, sums)
    assert (sources != targets).all()
    assert sums.tolist() == wanted.tolist()


@pytest.mark.parametrize("d", FEATURES)
@pytest.mark.parametrize("m", [1, 5, 3000])
def test_moments_follow_points_of_any_weight(d: int, m: int, rng: np.random.Generator) -> None:
    """More than 1,024 of them: squares are added up in parts that must not overflow."""
    points = points_of(d, rng)
    changed = np.zeros((m, CHANGE_COLUMNS), dtype=np.int64)
    changed[:, SLOT] = rng.integers(0, N, m)
    changed[:, BEFORE] = rng.choice([0, 1, 1, 3], m)
    changed[:, AFTER] = np.where(changed[:, BEFORE] == 0, rng.choice([1, 1, 4], m), 0)
    comes = changed[:, BEFORE] == 0
    values = points.values[changed[comes, SLOT]] * 0.75
    rows = points.values[changed[:, SLOT]].copy()
    rows[comes] = values
    steps = steps_of(points, rows).astype(object)
    weights = (changed[:, AFTER] - changed[:, BEFORE]).astype(object)
    sums, squares = np.zeros(d, dtype=np.int64), np.zeros((d, 2), dtype=np.uint64)
    change_moments(table_of(points), changed, values, sums, squares)
    assert sums.tolist() == (weights[:, None] * steps).sum(axis=0).tolist()
    found = [low + (high << 64) for low, high in squares.tolist()]
    wanted = (weights[:, None] * steps * steps).sum(axis=0)
    assert found == [int(square) % 2**128 for square in wanted]


def test_vectors_refuse_arrays_that_are_not_in_c_order(rng: np.random.Generator) -> None:
    """Addresses are computed for rows that follow each other, with no regard to strides."""
    points = points_of(3, rng)
    changed = np.zeros((2, CHANGE_COLUMNS), dtype=np.int64)
    changed[:, SLOT], changed[:, AFTER] = [0, 1], 1
    sums, squares = np.zeros(3, dtype=np.int64), np.zeros((3, 2), dtype=np.uint64)
    values = np.asfortranarray(points.values[:2])
    with pytest.raises(
        TypeError, match=r"vectors take C-contiguous arrays, not array\(float64, 2d, F"
    ):
        change_moments(table_of(points), changed, values, sums, squares)
    assert not sums.any()


@pytest.mark.parametrize(
    ("features", "is_long"), [("+avx2,+avx512f", True), ("+avx2,-avx512f", False), ("", False)]
)
def test_registers_are_those_of_the_processor_that_is_compiled_for(
    features: str, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CPU_FEATURES", features)
    assert has_long_registers() == is_long


def test_registers_are_short_where_numba_may_not_use_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(config, "ENABLE_AVX", 0)
    assert not has_long_registers()
