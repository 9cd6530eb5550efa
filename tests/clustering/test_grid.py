"""The grid: bins, bounds, scales, shifts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.clustering.grid import SMALLEST_STEP, Grid
from fedforget.clustering.prf import Secret

UNIT = np.array([[0.0, 1.0]])


@pytest.mark.parametrize("step", [0.0, -0.1, 1.0000001, np.nan, np.inf, SMALLEST_STEP / 2])
def test_a_step_that_does_not_fit_the_box_is_refused(step: float) -> None:
    with pytest.raises(ValueError, match="step"):
        Grid(UNIT, step)


@given(step=st.floats(0.001, 1.0), y=st.floats(0.0, 1.0))
def test_a_bin_is_the_nearest_multiple_of_the_step(step: float, y: float) -> None:
    grid = Grid(UNIT, step)
    found = int(grid.bins([[y]])[0, 0])
    exact = Fraction(y) / Fraction(step)
    # The kernel computes in floating point; it may differ from the exact nearest only at ties.
    assert abs(exact - found) <= Fraction(1, 2) + Fraction(1, 10**9)
    assert 0 <= found < grid.levels[0]


def test_ties_go_to_the_smaller_index() -> None:
    grid = Grid(UNIT, 0.25)
    assert grid.bins([[0.125], [0.375], [0.1251], [0.0], [1.0]]).ravel().tolist() == [0, 1, 1, 0, 4]


def test_an_unscaled_grid_has_one_step_for_all_features() -> None:
    grid = Grid(np.array([[0.0, 10.0], [-1.0, 1.0], [3.0, 3.0]]), 0.1)
    assert grid.levels.tolist() == [11, 3, 1]
    assert grid.bins([[4.6, 0.4, 3.0]]).tolist() == [[5, 1, 0]]
    clustered, original = grid.from_units(grid.units_of_bins(np.array([[5, 1, 0]])))
    assert original.tolist() == clustered.tolist() == [[5.0, 0.0, 3.0]]


def test_a_box_grid_scales_each_feature_by_its_own_range() -> None:
    grid = Grid(np.array([[0.0, 10.0], [-1.0, 1.0], [3.0, 3.0]]), 0.1, scale="box")
    assert grid.levels.tolist() == [11, 11, 1]
    assert grid.to_clustered(np.array([[5.0, 0.5, 3.0]])).tolist() == [[0.5, 0.75, 0.0]]
    clustered, original = grid.from_units(grid.units_of_bins(np.array([[5, 10, 0]])))
    assert clustered.tolist() == [[0.5, 1.0, 0.0]]
    assert original.tolist() == [[5.0, 1.0, 3.0]]


def test_a_box_without_extent_has_one_bin() -> None:
    grid = Grid(np.array([[2.0, 2.0]] * 2), 0.5)
    assert grid.levels.tolist() == [1, 1]
    assert grid.bins([[2.0, 2.0]]).tolist() == [[0, 0]]


@given(st.integers(0, 2**32), st.floats(0.01, 1.0))
def test_a_shift_moves_bins_by_less_than_half_a_step(number: int, step: float) -> None:
    seed = Secret(number.to_bytes(16, "little"))
    grid = Grid(np.array([[0.0, 1.0], [0.0, 1.0], [4.0, 4.0]]), step, "none", seed)
    assert (np.abs(grid.shift) <= step / 2).all()
    assert grid.shift[2] == 0.0
    assert grid.bins([[0.0, 0.0, 4.0]]).tolist() == [[0, 0, 0]]
    assert grid.bins([[1.0, 1.0, 4.0]]).tolist() == [(grid.levels - 1).tolist()]
    ys = np.linspace(0, 1, 50)
    points = np.column_stack([ys, ys, np.full(50, 4.0)])
    error = grid.units_of_bins(grid.bins(points))[:, :2] - points[:, :2]
    assert np.abs(error).max() <= step / 2 + 1e-12


def test_shifts_differ_between_features_and_seeds() -> None:
    shifts = [
        Grid(np.tile(UNIT, (5, 1)), 0.1, "none", Secret(bytes([s] * 16))).shift for s in (1, 2)
    ]
    assert len(set(np.concatenate(shifts).tolist())) == 10


def test_values_outside_are_found() -> None:
    grid = Grid(np.array([[0.0, 1.0], [0.0, 2.0]]), 0.1)
    values = np.array([[0.5, 1.0], [0.5, 2.5], [7.0, 1.0]])
    assert grid.outside(values) == (1, 1, 2)
    assert grid.outside(grid.clip(values)) is None
    assert grid.clip(values).tolist() == [[0.5, 1.0], [0.5, 2.0], [1.0, 1.0]]


@given(st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=9))
def test_a_clipped_value_is_inside_and_an_inner_one_stays(column: list[float]) -> None:
    grid, values = Grid(UNIT, 0.1), np.array(column)[:, np.newaxis]
    found = grid.outside(values)
    outer = [row for row, value in enumerate(column) if not 0.0 <= value <= 1.0]
    assert found == ((outer[0], 0, len(outer)) if outer else None)
    assert grid.outside(grid.clip(values)) is None
    inner = [row for row in range(len(column)) if row not in outer]
    assert grid.clip(values)[inner].tolist() == values[inner].tolist()
