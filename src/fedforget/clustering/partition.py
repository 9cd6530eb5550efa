"""The clusters of one data owner: K-means++ seeds with their members, kept up to date exactly.

This is the paper's Alg. 3.  After every call the seeds, labels, sizes and sums are those of a fresh
race over the records now held; which records came and went cannot be told from them.

Only a draw looks at all the records.  While the seeds stand, a removal looks at the records that
go, and an addition at those that come; so the records may live anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows, nearest, pairwise
from fedforget.clustering.ids import Ids
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import Race, run_race
from fedforget.clustering.records import OwnedRecords, RecordTable

FIXED_POINT_BITS = 32
"""Records in the unit cube are rounded to multiples of 2^-32 before they are summed."""

MAX_RECORDS = 2 ** (62 - FIXED_POINT_BITS)
"""The most records of one owner for which no integer sum can overflow."""

_FEW = 64
"""Records that are counted without a kernel."""

_UNCOUNTED = np.iinfo(np.int32).max

R = TypeVar("R", bound=OwnedRecords)


@dataclass(frozen=True)
class FixedPoint:
    """How values become integers: t = (value - offset) / extent lies in [0, 1]."""

    offset: Floats
    extent: float

    def integers_of(self, values: Floats) -> Ints:
        """Rows as integers, as the kernel that sums them up makes them."""
        units = values - self.offset
        units /= self.extent
        integers: Ints = np.floor(units * 2.0**FIXED_POINT_BITS + 0.5).astype(np.int64)
        return integers


@dataclass
class StandingClusters:
    """Seeds and the totals of the clusters around them, without the records.

    Attributes
    ----------
    seed_rows : the seeds' rows, in the order of drawing.
    scores : their winning scores.
    centres : (k, d) the points that records are nearest to.
    sizes, sums : each cluster's number of records and integer sum.
    """

    seed_rows: Ints
    scores: Floats
    centres: Floats
    sizes: Ints
    sums: Ints


def _no_clusters() -> StandingClusters:
    rows, sizes, sums = (np.empty(shape, dtype=np.int64) for shape in (0, 0, (0, 0)))
    return StandingClusters(rows, np.empty(0), np.empty((0, 0)), sizes, sums)


class SeededPartition(Generic[R]):
    """Seeds of one owner's records and the clusters around them.

    Parameters
    ----------
    records : the records; the partition takes them over.
    n_seeds : how many seeds to draw (fewer where there are fewer distinct records).
    fixed_point : where given, exact integer sums of the clusters are kept as well.
    start : a race over the records' own columns that has begun already.
    standing : where given, the clusters of these records as they were; nothing is drawn then.

    Attributes
    ----------
    seeds : (k, d) the seeds' values, in the order of drawing.
    scores : the winning scores.
    sizes, sums : each cluster's number of records and integer sum.
    """

    def __init__(
        self,
        records: R,
        n_seeds: int,
        fixed_point: FixedPoint | None = None,
        start: Race | None = None,
        standing: StandingClusters | None = None,
    ) -> None:
        self.records = records
        self.n_seeds = n_seeds
        self.fixed_point = fixed_point
        drawn = _no_clusters() if standing is None else standing
        self._seed_rows, self.scores, self.seeds = drawn.seed_rows, drawn.scores, drawn.centres
        self.sizes, self.sums = drawn.sizes, drawn.sums
        if standing is None:
            table = records.in_memory(self.seeds)
            self._draw(table, start or self._race(table, 0), None)

    def __len__(self) -> int:
        return len(self.records)

    def of(self, records: R) -> SeededPartition[R]:
        """The same for other records."""
        return SeededPartition(records, self.n_seeds, self.fixed_point)

    @property
    def centres(self) -> Floats:
        """The points that records are nearest to: the seeds."""
        return self.seeds

    @property
    def seed_ids(self) -> Ids:
        """The seeds' ids, in the order of drawing."""
        return self.records.ids_of(self._seed_rows)

    def labels_of(self, rows: Ints) -> Labels:
        """The clusters of some records."""
        return self.records.labels_of(rows)

    def members_of(self, clusters: Ints) -> Ints:
        """The rows of all records that belong to some clusters, in any order."""
        return self.records.labelled(clusters)

    def erase(self) -> None:
        """Overwrite the records, for good."""
        self.records.erase()

    # -- forgetting and learning ---------------------------------------------------------------

    def first_lost(self, rows: Ints) -> int | None:
        """The first step whose seed is among these rows; None if the seeds would stand."""
        return self._first_lost(rows, self.records.labels_of(rows))

    def _first_lost(self, rows: Ints, label: Labels) -> int | None:
        lost = label[self._seed_rows[label] == rows]  # a seed belongs to the cluster it seeds
        return int(lost.min()) if len(lost) else None

    def forget(self, rows: Ints) -> tuple[Ints, int | None]:
        """Erase records; returns the rows into which others moved, and the first step drawn again.

        Steps count from 0; None if the seeds stand.
        """
        holes, kept = self.take_out(rows)
        if kept is not None:
            self._redraw(kept)
        return holes, kept

    def take_out(self, rows: Ints) -> tuple[Ints, int | None]:
        """Erase records without a draw; returns the same as :meth:`forget`.

        If a seed is lost, a call of :meth:`take_in` must follow.
        """
        rows = np.sort(rows)
        label = self.records.labels_of(rows)
        kept = self._first_lost(rows, label)
        # Clusters from `kept` on are dissolved by the draw; only the others must be told.
        told = slice(None) if kept is None else label < kept
        self._count_some(rows[told], label[told], -1)
        holes, movers = self.records.remove(rows)
        if len(holes):
            label = self.records.labels_of(holes)
            seeds = self._seed_rows[label] == movers
            self._seed_rows[label[seeds]] = holes[seeds]
        return holes, kept

    def admit(self, rows: Ints, values: Floats, keys: Keys) -> int | None:
        """Count records that lie in ``records`` already; returns the first step drawn again.

        None if the seeds stand.
        """
        return self.take_in(rows, values, keys, len(self.scores))

    def take_in(self, rows: Ints, values: Floats, keys: Keys, kept: int) -> int | None:
        """Count records like :meth:`admit`, after only the first ``kept`` seeds were not lost.

        What went and what comes then takes one draw at most.
        """
        n = len(values)
        step = np.empty(n, dtype=np.int64)
        d2, label = np.empty(n), np.empty(n, dtype=np.int32)
        seeds, scores = self.seeds[:kept], self.scores[:kept]
        kernels.challenge(values, *keys, np.uint64(0), seeds, scores, step, d2, label)
        first = int(step.min(initial=kept))
        complete = kept == self.n_seeds or not (d2 > 0.0).any()
        if first == len(self.scores) and complete:
            self.records.settle(rows, label, d2)
            self._count(values, np.arange(n), label, 1)
            return None
        self.records.settle(rows, *nearest(values, self.seeds[:first]))
        self._redraw(first, rows)
        return first

    # -- drawing -------------------------------------------------------------------------------

    def _race(self, table: RecordTable, kept: int) -> Race:
        """A race over the table's own columns, in which the first ``kept`` seeds are drawn."""
        met = np.zeros(len(table), dtype=np.int32)
        rows = self.records.positions_of(self._seed_rows[:kept]).tolist()
        scores = self.scores[:kept].tolist()
        if kept == 0:
            table.d2[:] = 1.0
            table.label[:] = -1
        return Race(rows, scores, table.d2, table.label, met)

    def _redraw(self, kept: int, new: Ints | None = None) -> None:
        """Keep the first ``kept`` seeds and draw the others again.

        ``new`` are rows that no cluster counts yet, but that have met the kept seeds.
        """
        # Where no seed is kept, nobody needs to know who belonged to which.
        table = self.records.in_memory(self.seeds if kept else self.seeds[:0])
        self._seed_rows = self._seed_rows[:kept]
        race = self._race(table, kept)
        if kept == 0:
            self._draw(table, race, None)
            return
        before = table.label.copy()
        if new is not None:
            before[self.records.positions_of(new)] = _UNCOUNTED
        # A record whose seed stands keeps it: it is the nearest of fewer seeds too.  One that lost
        # its seed is, until it meets another, no farther from the kept seeds than by way of it.
        lost = np.flatnonzero(table.label >= kept)
        race.met[:] = kept
        race.met[lost] = 0
        gaps = np.sqrt(pairwise(self.seeds[kept:], self.seeds[:kept]).min(axis=1))
        detour = np.sqrt(table.d2[lost]) + gaps[table.label[lost] - kept]
        table.d2[lost] = detour * detour * (1.0 + 1e-9) + 2.0**-1022
        table.label[lost] = -1
        self._draw(table, race, before)

    def _draw(self, table: RecordTable, race: Race, before: Labels | None) -> None:
        """Draw the seeds that are missing and settle every record's cluster.

        ``before`` holds the clusters to which the present sizes and sums belong (None: to none).
        """
        kept = len(race.rows)
        rows = Rows(table.values)
        run_race(race, rows, table.keys, self.n_seeds, smallest_id=table.smallest_id)
        drawn = np.array(race.rows, dtype=np.int64)
        self._seed_rows = self.records.rows_at(drawn)
        self.scores = np.array(race.scores, dtype=np.float64)
        self.seeds = table.values[drawn]
        if len(table):
            behind = np.flatnonzero(race.met < kept)
            rows.catch_up(self.seeds, max(kept, 1), behind, table.d2, table.label)
        self._recount(table, before, kept)
        self.records.keep(table)

    # -- counting ------------------------------------------------------------------------------

    def _recount(self, table: RecordTable, before: Labels | None, kept: int) -> None:
        """Sizes and sums after a draw; only records that changed their cluster are counted."""
        k, d = self.seeds.shape
        sizes = np.zeros(k, dtype=np.int64)
        sums = np.zeros((k if self.fixed_point else 0, d), dtype=np.int64)
        if before is None:
            self.sizes, self.sums = sizes, sums
            self._count(table.values, np.arange(len(table)), table.label, 1)
            return
        sizes[:kept] = self.sizes[:kept]
        sums[:kept] = self.sums[:kept]
        self.sizes, self.sums = sizes, sums
        changed = np.flatnonzero((before != table.label) | (before >= kept))
        self._count(table.values, changed[before[changed] < kept], before, -1)
        self._count(table.values, changed, table.label, 1)

    def _count_some(self, rows: Ints, label: Labels, sign: int) -> None:
        """Count some records, whose values are asked for only if they are needed."""
        if self.fixed_point is None:
            self.sizes += sign * np.bincount(label, minlength=len(self.sizes))
        elif len(rows) <= _FEW:
            # As the kernel does it.  Loading compiled code takes longer than most requests.
            amounts = self.fixed_point.integers_of(self.records.values_of(rows))
            for at, k in enumerate(label.tolist()):
                self.sums[k] += sign * amounts[at]
                self.sizes[k] += sign
        else:
            self._count(self.records.values_of(rows), np.arange(len(rows)), label, sign)

    def _count(self, values: Floats, rows: Ints, label: Labels, sign: int) -> None:
        """Add rows to the sizes and sums of their clusters, or take them away."""
        if self.fixed_point is None:
            self.sizes += sign * np.bincount(label[rows], minlength=len(self.sizes))
            return
        kernels.add_fixed_point(
            values,
            rows,
            label,
            sign,
            self.fixed_point.offset,
            self.fixed_point.extent,
            2.0**FIXED_POINT_BITS,
            self.sums,
            self.sizes,
        )
