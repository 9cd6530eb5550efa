"""Numbers that stay: the matching against all matchings, and numbers of new clusters."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.clustering.matching import number_like

small = st.integers(0, 20)
centres = st.lists(st.tuples(small, small), min_size=1, max_size=5)


def cheapest(earlier: np.ndarray, now: np.ndarray) -> float:
    """The least sum of squared distances over all matchings of the shorter with the longer."""
    if len(earlier) < len(now):
        earlier, now = now, earlier
    return min(
        sum(float(((one - other) ** 2).sum()) for one, other in zip(now, some, strict=True))
        for some in permutations(earlier, len(now))
    )


@given(centres, centres)
def test_the_matching_is_the_cheapest(before: list[tuple], after: list[tuple]) -> None:
    earlier, now = np.array(before, float), np.array(after, float)
    found = number_like(earlier, np.arange(len(earlier)), now)
    cost = sum(moved**2 for moved in found.moved if moved is not None)
    assert cost == pytest.approx(cheapest(earlier, now))
    for number, moved, centre in zip(found.numbers, found.moved, now, strict=True):
        if moved is None:
            assert number >= len(earlier)
        else:
            assert moved == pytest.approx(np.linalg.norm(centre - earlier[number]))
    assert len(set(found.numbers.tolist())) == len(now)
    assert set(found.gone) == set(range(len(earlier))) - set(found.numbers.tolist())


@given(centres, st.randoms())
def test_centres_that_only_changed_places_keep_their_numbers(before: list, random: object) -> None:
    earlier = np.unique(np.array(before, float), axis=0)
    order = np.random.default_rng(random.randrange(1000)).permutation(len(earlier))
    found = number_like(earlier, np.arange(len(earlier)), earlier[order])
    assert (found.numbers == order).all()
    assert set(found.moved) == {0.0}


def test_new_clusters_are_numbered_after_the_highest_known_one() -> None:
    earlier, known = np.array([[0.0], [1.0]]), np.array([0, 4])
    found = number_like(earlier, known, np.array([[7.0], [1.1], [0.1], [5.0]]))
    assert found.numbers.tolist() == [5, 4, 0, 6]
    assert found.moved[0] is None


def test_numbers_of_clusters_that_are_gone_stay_free() -> None:
    found = number_like(np.array([[0.0], [1.0], [2.0]]), np.arange(3), np.array([[2.1], [0.0]]))
    assert found.numbers.tolist() == [2, 0]
    assert found.gone == (1,)
