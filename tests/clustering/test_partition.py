"""One owner's clusters: whatever happened before, they are those of a fresh start."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import twins
from fedforget.clustering import distance
from fedforget.clustering import partition as partition_module
from fedforget.clustering.grid import Grid
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.partition import FIXED_POINT_BITS, SeededPartition
from fedforget.clustering.prf import Secret
from fedforget.clustering.records import RecordTable

SECRET = Secret(bytes(range(16)))


def fresh(values: np.ndarray, ids: np.ndarray, n_seeds: int) -> SeededPartition:
    grid = Grid(np.tile([[0.0, 1.0]], (values.shape[1], 1)), 0.1)
    table = RecordTable(values.copy(), ids.copy(), keys_of_ids(SECRET, ids), np.arange(len(ids)))
    return SeededPartition(table, n_seeds, grid.fixed_point)


def state(partition: SeededPartition) -> dict[str, object]:
    """Everything about a partition that may not depend on its past."""
    table = partition.records
    order = np.argsort(table.ids)
    return {
        "ids": table.ids[order].tolist(),
        "values": table.values[order].tobytes(),
        "label": table.label[order].tobytes(),
        "d2": table.d2[order].tobytes(),
        "seeds": partition.seeds.tobytes(),
        "seed_ids": partition.seed_ids.tolist(),
        "scores": partition.scores.tobytes(),
        "sizes": partition.sizes.tolist(),
        "sums": partition.sums.tolist(),
    }


@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("path", ["tiled", "screened"])
@settings(max_examples=60)
@given(
    n=st.integers(0, 40),
    d=st.integers(1, 5),
    n_seeds=st.integers(1, 6),
    coarse=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_forget_and_learn_leave_no_history(
    path: str, few: int, n: int, d: int, n_seeds: int, coarse: bool, seed: int
) -> None:
    """However distances are computed, and however many records are counted without a kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_module, "_FEW", few)
        patch.setattr(distance, "_SCREEN_SIZE", 10**9 if path == "tiled" else 0)
        change_and_compare(n, d, n_seeds, coarse, seed)


def change_and_compare(n: int, d: int, n_seeds: int, coarse: bool, seed: int) -> None:
    """Records leave and come back at random; after every change, compare with a fresh start."""
    rng = np.random.default_rng(seed)
    values = rng.random((n, d))
    if coarse:
        values = (values * 2).round() / 2  # duplicates, fewer distinct records than seeds
    ids = rng.permutation(3 * n)[:n]
    partition = fresh(values, ids, n_seeds)
    held = np.ones(n, dtype=bool)
    for _ in range(5):
        away = np.flatnonzero(held & (rng.random(n) < 0.3))
        rows = np.flatnonzero(np.isin(partition.records.ids, ids[away]))
        _, step = partition.forget(rng.permutation(rows))
        held[away] = False
        assert state(partition) == state(fresh(values[held], ids[held], n_seeds))
        assert step is None or 0 <= step < n_seeds
        back = np.flatnonzero(~held & (rng.random(n) < 0.5))
        keys = keys_of_ids(SECRET, ids[back])
        new_rows = partition.records.append(values[back], ids[back], keys, back + 1000)
        partition.admit(new_rows, values[back], keys)
        assert partition.records.ids[new_rows].tolist() == ids[back].tolist()
        held[back] = True
        assert state(partition) == state(fresh(values[held], ids[held], n_seeds))


def test_only_a_lost_seed_makes_the_owner_draw_again(rng: np.random.Generator) -> None:
    values, ids = rng.random((60, 3)), np.arange(60)
    for victim in range(60):
        partition = fresh(values, ids, 5)
        drawn = partition.seed_ids.tolist()
        _, step = partition.forget(np.array([victim]))
        assert step == (drawn.index(victim) if victim in drawn else None)
        if step is not None:
            assert partition.seed_ids[:step].tolist() == drawn[:step]


def test_a_newcomer_is_noticed_exactly_when_it_would_win(rng: np.random.Generator) -> None:
    values, ids = rng.random((80, 2)), np.arange(80)
    noticed = 0
    for newcomer in range(80):
        others = ids != newcomer
        partition = fresh(values[others], ids[others], 6)
        drawn = partition.seed_ids.tolist()
        one = slice(newcomer, newcomer + 1)
        keys = keys_of_ids(SECRET, ids[one])
        rows = partition.records.append(values[one], ids[one], keys, ids[one])
        step = partition.admit(rows, values[one], keys)
        whole = fresh(values, ids, 6).seed_ids.tolist()
        expected = next((j for j in range(6) if drawn[j] != whole[j]), None)
        assert step == expected
        noticed += step is not None
    assert noticed == 6


def test_sums_are_exact_integers_of_the_members(rng: np.random.Generator) -> None:
    values = rng.random((50, 4))
    partition = fresh(values, np.arange(50), 4)
    labels = partition.records.label
    for k in range(4):
        exact = [
            sum(
                int(np.floor(v * 2.0**FIXED_POINT_BITS + 0.5))
                for v in values[labels == k, t].tolist()
            )
            for t in range(4)
        ]
        assert partition.sums[k].tolist() == exact
        assert partition.sizes[k] == (labels == k).sum()


def test_freed_rows_are_overwritten() -> None:
    values = np.full((10, 2), 0.123456789)
    values[:5] = 0.5
    partition = fresh(values, np.arange(10), 2)
    partition.forget(np.flatnonzero(np.isin(partition.records.ids, np.arange(5, 10))))
    for column in partition.records._columns.values():
        assert not np.isin(column[len(partition) :].astype(float), [0.123456789, 5.0, 9.0]).any()
    assert not (partition.records._columns["values"] == 0.123456789).any()


def test_a_table_that_grows_leaves_nothing_behind() -> None:
    partition = fresh(np.full((4, 2), 0.123456789), np.arange(1, 5), 2)
    before = list(partition.records._columns.values())
    keys = keys_of_ids(SECRET, np.arange(5, 55))
    new = np.full((50, 2), 0.5)
    partition.admit(
        partition.records.append(new, np.arange(5, 55), keys, np.arange(5, 55)), new, keys
    )
    assert len(partition) == 54
    for column in before:
        assert not column.any()


def test_an_erased_table_is_empty() -> None:
    partition = fresh(np.full((4, 2), 0.123456789), np.arange(1, 5), 2)
    columns = list(partition.records._columns.values())
    partition.records.erase()
    assert len(partition.records) == 0
    assert not any(column.any() for column in columns)


def test_a_random_batch_hits_a_seed_as_often_as_counting_says(seed: int) -> None:
    """P(no seed among R of n) is hypergeometric; RK/n bounds the chance of a re-seed."""
    n, n_seeds, batch, trials = 120, 4, 5, 1500
    rng = np.random.default_rng(seed)
    values = rng.random((n, 2))
    reseeded = 0
    for trial in range(trials):
        ids = np.arange(n) + n * trial
        partition = fresh(values, ids, n_seeds)
        reseeded += partition.forget(rng.choice(n, batch, replace=False))[1] is not None
    expected = 1.0 - stats.hypergeom(n, n_seeds, batch).pmf(0)
    assert expected < batch * n_seeds / n
    # One in 10,000 runs of a right implementation fails here.
    assert stats.binomtest(reseeded, trials, expected).pvalue > 1e-4


def test_seeding_keeps_its_guarantee(seed: int) -> None:
    """E loss <= 8 (ln K + 2) times the optimum, which is known exactly on a line."""
    rng = np.random.default_rng(seed)
    for n_seeds in (2, 4, 8):
        centres = rng.random(n_seeds)
        points = np.clip(rng.choice(centres, 80) + rng.normal(0, 0.01, 80), 0, 1)
        optimum = twins.optimal_loss_1d(points.tolist(), n_seeds)
        losses = [
            fresh(points[:, None], np.arange(80) + 80 * trial, n_seeds).records.d2.sum()
            for trial in range(300)
        ]
        assert np.mean(losses) >= optimum * (1 - 1e-9)
        # The mean of 300 runs, three standard errors added, against the bound.
        bound = 8.0 * (np.log(n_seeds) + 2.0) * optimum
        assert np.mean(losses) + 3 * np.std(losses) / np.sqrt(300) <= bound
