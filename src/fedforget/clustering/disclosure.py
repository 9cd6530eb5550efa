"""What an owner may report of its clusters: no small ones, and no exact counts.

Clusters of fewer than ``min_cell`` records are dissolved, an owner with fewer than ``min_records``
records reports nothing, and sizes are rounded to multiples of ``count_step``.  Everything is
computed from the unmerged clusters, every time: it is a function of the records now held, so a
removal and a fresh fit report the same.  Only records of undersized clusters ever move, because a
cluster that is large enough never loses any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedforget.arrays import Flags, Floats, Ints, Labels
from fedforget.clustering.distance import pairwise
from fedforget.clustering.partition import FixedPoint

_NO_ROWS = np.empty(0, dtype=np.int64)
_LARGEST_STEP = 2**60


@dataclass(frozen=True)
class ReportRules:
    """The least that a report may show.  The default values change nothing.

    Attributes
    ----------
    min_cell : clusters of fewer records are dissolved.
    min_records : an owner with fewer records reports nothing.
    count_step : sizes are rounded to multiples of this.

    Examples
    --------
    >>> ReportRules(count_step=5).rounded(np.array([2, 3, 7, 8]))
    array([ 0,  5,  5, 10])
    """

    min_cell: int = 1
    min_records: int = 1
    count_step: int = 1

    @property
    def are_off(self) -> bool:
        """Whether everything is reported as it is."""
        return self == NO_RULES

    def rounded(self, sizes: Ints) -> Ints:
        """Sizes as they are reported: the nearest multiple of the step, halves upwards."""
        # No size comes near the limit: whatever is above it rounds all of them to 0, as it does.
        step = min(self.count_step, _LARGEST_STEP)
        return sizes if step == 1 else (2 * sizes + step) // (2 * step) * step


class ReadableRecords(Protocol):
    """Where records can be looked at."""

    def values_of(self, rows: Ints) -> Floats:
        """The values of some records, in the space that is clustered."""


class ReportableClusters(Protocol):
    """What is asked of clusters of which something is to be reported."""

    @property
    def records(self) -> ReadableRecords: ...
    @property
    def centres(self) -> Floats: ...
    @property
    def sizes(self) -> Ints: ...
    @property
    def sums(self) -> Ints: ...

    def labels_of(self, rows: Ints) -> Labels:
        """The clusters of some records."""

    def members_of(self, clusters: Ints) -> Ints:
        """The rows of all records that belong to some clusters, in any order."""


NO_RULES = ReportRules()
"""Everything is reported as it is."""


@dataclass(frozen=True)
class Cells:
    """The clusters that are left to report, in the order of drawing.

    Attributes
    ----------
    kept : their numbers among the owner's clusters.
    centres, sizes, sums : as those of the owner's clusters, of the records that they hold now.
    grown : which of them hold records of dissolved clusters.
    moved_rows, moved_to : the records of dissolved clusters, and the cells that hold them now
        (-1: none does).
    n_clusters : how many clusters the owner has.
    """

    kept: Ints
    centres: Floats
    sizes: Ints
    sums: Ints
    grown: Flags
    moved_rows: Ints
    moved_to: Ints
    n_clusters: int

    def labels_of(self, clusters: ReportableClusters, rows: Ints) -> Labels:
        """The cells of some records, given as sorted rows; -1 where a record is in none."""
        cell_of = np.full(self.n_clusters, -1, dtype=np.int32)
        cell_of[self.kept] = np.arange(len(self.kept))
        labels: Labels = cell_of[clusters.labels_of(rows)]
        if len(self.moved_rows) and len(rows):
            at = np.searchsorted(rows, self.moved_rows)
            asked = rows[np.minimum(at, len(rows) - 1)] == self.moved_rows
            labels[at[asked]] = self.moved_to[asked]
        return labels


def cells_of(clusters: ReportableClusters, rules: ReportRules, fixed_point: FixedPoint) -> Cells:
    """The cells that an owner reports under the rules."""
    sizes = clusters.sizes
    if rules.min_records > 1 and int(sizes.sum()) < rules.min_records:
        return _chosen(clusters, _NO_ROWS)
    if rules.min_cell > 1:
        undersized = np.flatnonzero(sizes < rules.min_cell)
        if len(undersized):
            return _merged(clusters, undersized, rules.min_cell, fixed_point)
    return _chosen(clusters, np.arange(len(sizes)))


def _chosen(clusters: ReportableClusters, kept: Ints) -> Cells:
    """Some clusters as they are, or all of them."""
    n_clusters = len(clusters.sizes)
    centres, sizes, sums = clusters.centres, clusters.sizes, clusters.sums
    if len(kept) < n_clusters:
        centres, sizes, sums = centres[kept], sizes[kept], sums[kept]
    grown = np.zeros(len(kept), dtype=np.bool_)
    return Cells(kept, centres, sizes, sums, grown, _NO_ROWS, _NO_ROWS, n_clusters)


def _merged(
    clusters: ReportableClusters, undersized: Ints, min_cell: int, fixed_point: FixedPoint
) -> Cells:
    """Dissolve the smallest cluster, of equals the last drawn, until all are large enough.

    Its records go to the nearest of the centres that remain.
    """
    rows = np.sort(clusters.members_of(undersized))
    values = clusters.records.values_of(rows)
    centres, sizes = clusters.centres, clusters.sizes.copy()
    before = clusters.labels_of(rows)
    label = before.astype(np.int64)
    d2 = pairwise(values, centres)
    remains = np.ones(len(sizes), dtype=np.bool_)
    # Only these can be dissolved: the others never lose a record.
    candidates: list[int] = undersized.tolist()
    while candidates:
        smallest = min(candidates, key=lambda k: (sizes[k], -k))
        if sizes[smallest] >= min_cell:
            break
        candidates.remove(smallest)
        remains[smallest] = False
        d2[:, smallest] = np.inf
        moving = np.flatnonzero(label == smallest)
        if not remains.any():
            label[moving] = -1
            break
        # Ties go to the earlier centre, as they do everywhere.
        label[moving] = d2[moving].argmin(axis=1)
        sizes += np.bincount(label[moving], minlength=len(sizes))
    moved = np.flatnonzero(label != before)
    held = moved[label[moved] >= 0]
    sums, grown = clusters.sums.copy(), np.zeros(len(sizes), dtype=np.bool_)
    np.add.at(sums, label[held], fixed_point.integers_of(values[held]))
    grown[label[held]] = True
    kept = np.flatnonzero(remains)
    cell_of = np.full(len(sizes) + 1, -1, dtype=np.int64)  # the last is for those in no cluster
    cell_of[kept] = np.arange(len(kept))
    return Cells(
        kept,
        centres[kept],
        sizes[kept],
        sums[kept],
        grown[kept],
        rows[moved],
        cell_of[label[moved]],
        len(sizes),
    )
