"""Lists of points that are close to a border: which numbers come onto them, and in what order."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from fedforget.clustering.replay import margins
from fedforget.clustering.replay.arithmetic import at_most, in_doubt
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
    def hits(numbers, begin, bound):
        return at_most(numbers, begin, bound)

    return hits


def test_each_number_has_a_bit_of_its_own(hits_of: Any) -> None:
    for place in range(BORDER_BLOCK):
        numbers = np.full(BORDER_BLOCK, 2.0, dtype=np.float32)
        numbers[place] = 1.0
        assert int(hits_of(numbers, 0, np.float32(1.0))) == 1 << place


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
        assert int(hits_of(numbers, begin, np.float32(0.0))) == wanted


@pytest.fixture(scope="module")
def doubts_of() -> Any:
    @numba.njit
    def doubts(margins, nearest, labels, begin, bound, lowest):
        return in_doubt(margins, nearest, labels, begin, bound, lowest)

    return doubts


@pytest.mark.parametrize("lowest", [-1, 0])
def test_labels_are_in_doubt_where_margins_are_small_or_others_nearest(
    doubts_of: Any, lowest: int, rng: np.random.Generator
) -> None:
    n = 4 * BORDER_BLOCK
    margins = rng.choice(np.array([-np.inf, 0.0, 0.5, 1.0, np.inf, np.nan], dtype=np.float32), n)
    nearest = rng.integers(0, 3, n).astype(np.int32)
    labels = rng.integers(-1, 3, n).astype(np.int16)
    labels[:4], nearest[:4] = [32767, 32767, -1, 0], [32767, 0, 0, 32767]
    wanted = (margins <= np.float32(0.5)) | ((labels != nearest) & (labels >= lowest))
    for begin in range(0, n - BORDER_BLOCK + 1, 16):
        found = int(doubts_of(margins, nearest, labels, begin, np.float32(0.5), np.int16(lowest)))
        block = wanted[begin : begin + BORDER_BLOCK]
        assert found == sum(1 << place for place in np.flatnonzero(block).tolist())
