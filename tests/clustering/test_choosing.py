"""Numbers of clusters side by side: agreement against its definition, and what is never shown."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from fedforget.clustering.choosing import (
    Choices,
    Trial,
    adjusted_rand,
    agreement_of,
    choices_of,
    in_words,
)


def by_definition(one: list[int], other: list[int]) -> float:
    """Hubert and Arabie's index over all pairs of records."""
    pairs = list(combinations(range(len(one)), 2))
    both = sum(one[a] == one[b] and other[a] == other[b] for a, b in pairs)
    first = sum(one[a] == one[b] for a, b in pairs)
    second = sum(other[a] == other[b] for a, b in pairs)
    if not pairs:
        return 1.0
    expected = Fraction(first * second, len(pairs))
    best = Fraction(first + second, 2)
    return 1.0 if best == expected else float((both - expected) / (best - expected))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3)), max_size=8))
def test_agreement_is_that_of_repeated_records(points: list[tuple[int, int, int]]) -> None:
    one, other, weights = np.array(points, np.int64).reshape(-1, 3).T
    found = adjusted_rand(one, other, weights)
    repeated = [np.repeat(labels, weights).tolist() for labels in (one, other)]
    assert found == by_definition(*repeated)
    assert found == adjusted_rand(other, one, weights)


def test_agreement_is_scikit_learns() -> None:
    rng = np.random.default_rng(3)
    one, other = rng.integers(0, 5, 300), rng.integers(0, 4, 300)
    other[:150] = one[:150] % 4
    assert adjusted_rand(one, other) == pytest.approx(adjusted_rand_score(one, other), abs=1e-12)


def test_counts_up_to_the_most_records_do_not_overflow() -> None:
    labels, weights = np.array([0, 1]), np.array([2**29, 2**29])
    assert adjusted_rand(labels, 1 - labels, weights) == 1.0


def test_agreement_is_the_mean_over_pairs_of_restarts() -> None:
    same, other = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    low = adjusted_rand(same, other)
    assert agreement_of([same, 1 - same, other]) == (1.0 + low + low) / 3
    assert agreement_of([same]) is None


def found(number: int, loss: float, sizes: list[int], agreement: float | None = 1.0) -> Trial:
    return Trial(number, loss, np.array(sizes), agreement)


def three_clear_clusters(min_cell: int = 1) -> Choices:
    runs = [
        found(2, 60.0, [70, 30]),
        found(3, 10.0, [40, 30, 30]),
        found(4, 9.0, [40, 30, 26, 4], 0.6),
        found(5, 8.5, [40, 30, 20, 6, 4], 0.5),
    ]
    return choices_of(found(1, 100.0, [100]), runs, min_cell)


def test_the_table_tells_decreases_and_a_reason() -> None:
    choices = three_clear_clusters()
    assert [row.decrease for row in choices.rows] == pytest.approx([0.4, 5 / 6, 0.1, 0.5 / 9])
    assert choices.suggested.n_clusters == 3
    assert "83.3 %" in choices.suggested.reason
    assert "10.0 % more with 4" in choices.suggested.reason
    assert "not taken" in in_words(choices.suggested)
    assert "not taken: 3" in str(choices)


def test_sizes_below_the_least_are_nowhere_in_the_table() -> None:
    choices = three_clear_clusters(min_cell=5)
    assert [row.smallest for row in choices.rows] == [30, 30, None, None]
    assert [row.too_small for row in choices.rows] == [0, 0, 1, 1]
    assert "<5" in str(choices)
    assert "1 too small" in str(choices)


def test_a_number_that_breaks_the_rules_is_not_suggested() -> None:
    choices = three_clear_clusters(min_cell=31)
    assert choices.suggested.n_clusters is None
    assert "rules" in choices.suggested.reason


def test_numbers_whose_restarts_disagree_are_not_suggested() -> None:
    runs = [found(2, 60.0, [70, 30], 0.5), found(3, 10.0, [40, 30, 30], 0.3)]
    choices = choices_of(found(1, 100.0, [100]), runs)
    assert choices.suggested.n_clusters is None
    assert "chance" in choices.suggested.reason


def test_one_number_alone_suggests_nothing() -> None:
    assert choices_of(None, [found(1, 5.0, [3])]).suggested.n_clusters is None


def test_a_loss_of_nothing_has_no_share() -> None:
    choices = choices_of(found(1, 0.0, [4]), [found(2, 0.0, [4]), found(3, 0.0, [4])])
    assert [row.decrease for row in choices.rows] == [None, None]
    assert [row.found for row in choices.rows] == [1, 1]
    assert choices.suggested.n_clusters is None
