"""The race: lazy equals eager, order and layout do not matter, losers leave no trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import twins
from fedforget.clustering.distance import Rows
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.race import (
    Race,
    copy_and_start,
    first_row,
    new_race,
    run_race,
)

SECRET = Secret(bytes(range(16)))


def lazy_race(
    values: np.ndarray,
    keys: Keys,
    n_seeds: int,
    weights: np.ndarray | None = None,
    stream: int = 0,
) -> Race:
    race = new_race(len(values))
    run_race(
        race, Rows(values), keys, n_seeds, smallest_id=first_row, weights=weights, stream=stream
    )
    return race


def check_against_twin(values: np.ndarray, keys: Keys, n_seeds: int, **options: object) -> Race:
    race = lazy_race(values, keys, n_seeds, **options)
    rows, scores = twins.eager_race(values, *keys, range(len(values)), n_seeds, **options)
    assert race.rows == rows
    assert race.scores == scores
    return race


COORDINATES = st.one_of(
    st.sampled_from([0.0, 1.0, 0.5, -1.0]),  # ties and duplicates
    st.floats(-1e3, 1e3),
    st.floats(-1e-160, 1e-160),  # squares underflow
    st.sampled_from([1e100, -1e100]),
)


@settings(max_examples=300)
@given(
    values=hnp.arrays(
        np.float64, st.tuples(st.integers(0, 30), st.integers(1, 9)), elements=COORDINATES
    ),
    n_seeds=st.integers(1, 12),
    weighted=st.booleans(),
    stream=st.sampled_from([0, 1 << 32, 7 << 32]),
    data=st.data(),
)
def test_the_lazy_race_equals_the_eager_race(
    values: np.ndarray, n_seeds: int, weighted: bool, stream: int, data: st.DataObject
) -> None:
    n = len(values)
    hashes = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**64 - 1]))
    columns = [data.draw(hnp.arrays(np.uint64, n, elements=hashes)) for _ in range(2)]
    weights = None
    if weighted:
        counts = st.one_of(st.integers(1, 5), st.integers(1, 10**9)).map(float)
        weights = data.draw(hnp.arrays(np.float64, n, elements=counts))
    check_against_twin(values, Keys(*columns), n_seeds, weights=weights, stream=stream)


@pytest.mark.parametrize("value", [0, 2**64 - 1])
def test_equal_keys_are_settled_by_the_smallest_id(value: int) -> None:
    """With every clock the same, the farthest record wins; the first of equals."""
    values = np.array([[3.0], [0.0], [-3.0], [3.0]])
    keys = Keys(np.full(4, value, np.uint64), np.full(4, value, np.uint64))
    race = check_against_twin(values, keys, 4)
    assert race.rows == [0, 2, 1]


def test_blocks_and_many_records_make_no_difference(rng: np.random.Generator) -> None:
    values = rng.normal(size=(1500, 3))
    keys = keys_of_ids(SECRET, np.arange(1500))
    check_against_twin(values, keys, 6)


@pytest.mark.parametrize(
    ("values", "n_seeds", "n_drawn"),
    [
        (np.empty((0, 2)), 3, 0),
        (np.array([[1.0, 2.0]]), 3, 1),
        (np.array([[1.0], [1.0], [1.0]]), 2, 1),
        (np.array([[1.0], [2.0], [1.0]]), 3, 2),
        (np.array([[5.0], [6.0]]), 1, 1),
        (np.array([[0.0], [1e-170]]), 2, 1),
    ],
)
def test_degenerate_races_end_early(values: np.ndarray, n_seeds: int, n_drawn: int) -> None:
    race = check_against_twin(values, keys_of_ids(SECRET, np.arange(len(values))), n_seeds)
    assert len(race.rows) == n_drawn


def test_an_infinite_score_never_wins() -> None:
    """D² is a denormal number here: the quotient overflows."""
    values = np.array([[0.0], [3e-162]])
    keys = Keys(np.full(2, 2**63, np.uint64), np.zeros(2, np.uint64))
    race = check_against_twin(values, keys, 2)
    assert len(race.rows) == 1


def test_the_order_of_rows_does_not_matter(rng: np.random.Generator) -> None:
    values = rng.normal(size=(400, 5)).round(1)
    ids = np.arange(400)
    race = lazy_race(values, keys_of_ids(SECRET, ids), 8)
    order = rng.permutation(400)
    shuffled = lazy_race(values[order], keys_of_ids(SECRET, ids[order]), 8)
    assert ids[order][shuffled.rows].tolist() == race.rows
    assert shuffled.scores == race.scores


def test_losers_leave_no_trace_and_stop_the_race_nowhere(rng: np.random.Generator) -> None:
    values = rng.normal(size=(300, 4))
    ids = np.arange(300)
    race = lazy_race(values, keys_of_ids(SECRET, ids), 7)
    keep = np.isin(ids, race.rows) | (rng.random(300) < 0.3)
    alone = lazy_race(values[keep], keys_of_ids(SECRET, ids[keep]), 7)
    assert ids[keep][alone.rows].tolist() == race.rows
    assert alone.scores == race.scores


@pytest.mark.parametrize("kept", [0, 1, 3, 6])
def test_a_race_can_be_resumed_from_any_step(kept: int, rng: np.random.Generator) -> None:
    values = rng.normal(size=(200, 3))
    keys = keys_of_ids(SECRET, np.arange(200))
    whole = lazy_race(values, keys, 6)
    resumed = new_race(200)
    run_race(resumed, Rows(values), keys, kept, smallest_id=first_row)
    run_race(resumed, Rows(values), keys, 6, smallest_id=first_row)
    assert resumed.rows == whole.rows
    assert resumed.scores == whole.scores


def test_few_records_are_brought_up_to_date() -> None:
    """Laziness is the point: only a handful of records meet more than the first seed."""
    values = np.random.default_rng(0).random((20_000, 8))
    race = lazy_race(values, keys_of_ids(SECRET, np.arange(20_000)), 20)
    assert (race.met > 1).sum() < 400


@pytest.mark.parametrize("d", [1, 15, 16, 19, 64])
def test_a_race_that_began_with_the_copy_is_the_same_race(d: int, rng: np.random.Generator) -> None:
    values = rng.normal(size=(300, d))
    keys = keys_of_ids(SECRET, np.arange(300))
    copied, race = copy_and_start(values, keys, first_row)
    assert copied.tobytes() == values.tobytes()
    assert not np.shares_memory(copied, values)
    run_race(race, Rows(copied), keys, 5, smallest_id=first_row)
    whole = lazy_race(values, keys, 5)
    assert race.rows == whole.rows
    assert race.scores == whole.scores
