"""What may be reported of clusters: merged by hand and by the code, at every threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedforget.clustering.disclosure import Cells, ReportRules, cells_of
from fedforget.clustering.partition import FIXED_POINT_BITS, FixedPoint

SIDE = 16
FIXED_POINT = FixedPoint(np.zeros(1), float(SIDE))


@dataclass
class Given:
    """Clusters with chosen members: whole numbers, so that no distance is rounded."""

    values: np.ndarray
    label: np.ndarray
    centres: np.ndarray

    @property
    def records(self) -> Given:
        return self

    @property
    def sizes(self) -> np.ndarray:
        return np.bincount(self.label, minlength=len(self.centres))

    @property
    def sums(self) -> np.ndarray:
        sums = np.zeros(self.centres.shape, dtype=np.int64)
        np.add.at(sums, self.label, FIXED_POINT.integers_of(self.values))
        return sums

    def values_of(self, rows: np.ndarray) -> np.ndarray:
        return self.values[rows]

    def labels_of(self, rows: np.ndarray) -> np.ndarray:
        return self.label[rows]

    def members_of(self, clusters: np.ndarray) -> np.ndarray:
        # In any order.
        return np.flatnonzero(np.isin(self.label, clusters))[::-1]


def clusters(sizes: list[int], centres: list[int], seed: int = 0) -> Given:
    """Clusters on a line, with members anywhere: only a centre says where a record may go."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    values = rng.integers(0, SIDE + 1, (len(label), 1)).astype(float)
    return Given(values, label, np.array(centres, dtype=float)[:, np.newaxis])


def by_hand(given: Given, min_cell: int) -> dict[int, set[int]]:
    """The rule as it is written down: cluster to rows."""
    held = {k: set(np.flatnonzero(given.label == k).tolist()) for k in range(len(given.centres))}
    while any(len(rows) < min_cell for rows in held.values()):
        smallest = min(held, key=lambda k: (len(held[k]), -k))
        rows = held.pop(smallest)
        if not held:
            break
        for row in rows:
            away = {k: abs(given.values[row, 0] - given.centres[k, 0]) for k in held}
            held[min(away, key=lambda k: (away[k], k))].add(row)
    return held


def check(given: Given, cells: Cells, expected: dict[int, set[int]]) -> None:
    assert cells.kept.tolist() == list(expected)
    assert cells.sizes.tolist() == [len(rows) for rows in expected.values()]
    amounts = FIXED_POINT.integers_of(given.values)
    for at, (k, rows) in enumerate(expected.items()):
        assert cells.sums[at].tolist() == amounts[list(rows)].sum(axis=0).tolist()
        assert cells.centres[at].tolist() == given.centres[k].tolist()
        assert cells.grown[at] == bool((given.label[list(rows)] != k).any())
    labels = cells.labels_of(given, np.arange(len(given.label)))
    where = {row: at for at, rows in enumerate(expected.values()) for row in rows}
    assert labels.tolist() == [where.get(row, -1) for row in range(len(given.label))]


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=7),
    seed=st.integers(0, 2**16),
    min_cell=st.integers(2, 6),
)
@example(sizes=[4, 5, 6], seed=0, min_cell=5)
@example(sizes=[4, 4, 4], seed=1, min_cell=5)
@example(sizes=[1, 1, 1, 1], seed=2, min_cell=4)
@example(sizes=[0, 3, 0, 9], seed=3, min_cell=2)
def test_small_clusters_are_dissolved_as_the_rule_says(
    sizes: list[int], seed: int, min_cell: int
) -> None:
    centres = np.random.default_rng(seed).permutation(SIDE + 1)[: len(sizes)].tolist()
    given = clusters(sizes, centres, seed)
    cells = cells_of(given, ReportRules(min_cell=min_cell), FIXED_POINT)
    check(given, cells, by_hand(given, min_cell))
    assert (cells.sizes >= min_cell).all()
    assert cells.sizes.sum() in (0, sum(sizes))


def test_the_smallest_goes_first_and_of_equals_the_last_drawn() -> None:
    # Of two clusters of one record the later one goes; its record makes the other large enough.
    given = Given(np.array([[1.0], [2.0]]), np.array([0, 1]), np.array([[1.0], [2.0]]))
    cells = cells_of(given, ReportRules(min_cell=2), FIXED_POINT)
    assert cells.kept.tolist() == [0]
    assert cells.sums.tolist() == [[3 * 2**FIXED_POINT_BITS // SIDE]]
    # The smallest goes first though it was drawn first, and takes the place of none.
    given = clusters([1, 2, 3], [0, 8, 16])
    assert 0 not in cells_of(given, ReportRules(min_cell=3), FIXED_POINT).kept


def test_ties_between_centres_go_to_the_earlier_one() -> None:
    values = np.array([[4.0], [4.0], [4.0], [12.0], [12.0], [12.0], [8.0]])
    label = np.array([0, 0, 0, 1, 1, 1, 2])
    given = Given(values, label, np.array([[4.0], [12.0], [8.0]]))
    cells = cells_of(given, ReportRules(min_cell=2), FIXED_POINT)
    assert cells.sizes.tolist() == [4, 3]
    assert cells.grown.tolist() == [True, False]


def test_what_is_undersized_can_grow_by_others_and_is_then_reported() -> None:
    given = clusters([4, 3], [8, 8])
    cells = cells_of(given, ReportRules(min_cell=5), FIXED_POINT)
    assert (cells.kept.tolist(), cells.sizes.tolist()) == ([0], [7])


@pytest.mark.parametrize(("records", "reported"), [(9, 0), (10, 10), (11, 11)])
def test_too_few_records_are_not_reported(records: int, reported: int) -> None:
    given = clusters([records - 5, 5], [3, 9])
    cells = cells_of(given, ReportRules(min_records=10), FIXED_POINT)
    assert cells.sizes.sum() == reported
    labels = cells.labels_of(given, np.arange(records))
    assert (labels < 0).all() == (not reported)


def test_sizes_are_rounded_half_upwards() -> None:
    for step in range(1, 12):
        rounded = ReportRules(count_step=step).rounded(np.arange(100))
        assert (rounded % step == 0).all()
        away = rounded - np.arange(100)
        assert ((2 * away <= step) & (2 * away > -step)).all()
        # What is reported is at most twice what there is, which bounds all sums.
        assert (rounded <= 2 * np.arange(100)).all()


def test_without_rules_nothing_changes() -> None:
    given = clusters([0, 1, 5], [3, 9, 12])
    cells = cells_of(given, ReportRules(), FIXED_POINT)
    assert cells.sizes.tolist() == [0, 1, 5]
    assert ReportRules().are_off
    assert not ReportRules(count_step=2).are_off
