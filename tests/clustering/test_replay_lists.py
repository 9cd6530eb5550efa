"""Lists of points that are close to a border: which numbers come onto them, and in what order."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from fedforget.clustering.replay import margins
from fedforget.clustering.replay.arithmetic import at_most
from fedforget.clustering.replay.state import BORDER_BLOCK

_list_below = margins._list_below


@pytest.fixture(scope="module")
def list_below() -> Any:
    @numba.njit
    def listed(numbers, bound, places):
        return _list_below(numbers, bound, places)

    return listed


@pytest.fixture(scope="module")
def hits_of() -> Any:
    @numba.njit
    def hits(numbers, bound):
        return at_most(numbers, bound)

    return hits


def test_each_number_has_a_bit_of_its_own(hits_of: Any) -> None:
    for place in range(BORDER_BLOCK):
        numbers = np.full(BORDER_BLOCK, 2.0, dtype=np.float32)
        numbers[place] = 1.0
        assert int(hits_of(numbers, np.float32(1.0))) == 1 << place


def test_the_numbers_up_to_a_bound_are_listed_in_order(
    list_below: Any, rng: np.random.Generator
) -> None:
    odd = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 0.5], dtype=np.float32)
    for blocks in (1, 2, 7):
        for bound in (-np.inf, -1.0, 0.0, 0.5, np.inf):
            numbers = rng.normal(size=blocks * BORDER_BLOCK).astype(np.float32)
            some = rng.random(len(numbers)) < 0.3
            numbers[some] = rng.choice(odd, int(some.sum()))
            places = np.full(2 * len(numbers), -1)
            count = list_below(numbers, np.float32(bound), places)
            wanted = np.flatnonzero(numbers <= np.float32(bound))
            assert count == len(wanted)
            assert places[:count].tolist() == wanted.tolist()
            # The place behind the last is written to, those after it are not.
            assert (places[count + 1 :] == -1).all()


def test_a_block_may_begin_anywhere(hits_of: Any, rng: np.random.Generator) -> None:
    """Lists begin with a cache line; what is asked about need not."""
    numbers = rng.normal(size=3 * BORDER_BLOCK).astype(np.float32)
    for begin in range(2 * BORDER_BLOCK):
        block = numbers[begin : begin + BORDER_BLOCK]
        wanted = sum(1 << place for place in np.flatnonzero(block <= 0.0).tolist())
        assert int(hits_of(block, np.float32(0.0))) == wanted
