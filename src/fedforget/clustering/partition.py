"""The clusters of one data owner: K-means++ seeds with their members, kept up to date exactly.

This is the paper's Alg. 3.  After every call the seeds, labels, sizes and sums are those of a fresh
race over the records now held; which records came and went cannot be told from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.distance import Floats, Labels, Rows, nearest, pairwise
from fedforget.clustering.ids import Ids
from fedforget.clustering.prf import Ints, Keys
from fedforget.clustering.race import Race, run_race
from fedforget.clustering.records import RecordTable

FIXED_POINT_BITS = 32
"""Records in the unit cube are rounded to multiples of 2^-32 before they are summed."""

MAX_RECORDS = 2 ** (62 - FIXED_POINT_BITS)
"""The most records of one owner for which no integer sum can overflow."""

_UNCOUNTED = np.iinfo(np.int32).max


@dataclass(frozen=True)
class FixedPoint:
    """How values become integers: t = (value - offset) / extent lies in [0, 1]."""

    offset: Floats
    extent: float


class SeededPartition:
    """Seeds of one owner's records and the clusters around them.

    Parameters
    ----------
    table : the records; the partition takes it over.
    n_seeds : how many seeds to draw (fewer where there are fewer distinct records).
    fixed_point : where given, exact integer sums of the clusters are kept as well.
    start : a race over the table's own columns that has begun already.

    Attributes
    ----------
    seeds : (k, d) the seeds' values, in the order of drawing.
    scores : the winning scores.
    sizes, sums : each cluster's number of records and integer sum.
    """

    def __init__(
        self,
        table: RecordTable,
        n_seeds: int,
        fixed_point: FixedPoint | None = None,
        start: Race | None = None,
    ) -> None:
        self.table = table
        self.n_seeds = n_seeds
        self.fixed_point = fixed_point
        self._seed_rows = np.empty(0, dtype=np.int64)
        self.scores: Floats = np.empty(0)
        self.sizes: Ints = np.empty(0, dtype=np.int64)
        self.sums: Ints = np.empty((0, 0), dtype=np.int64)
        self._draw(start or self._race(0), None)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def seed_ids(self) -> Ids:
        """The seeds' ids, in the order of drawing."""
        return self.table.ids[self._seed_rows]

    def forget(self, rows: Ints) -> tuple[Ints, int | None]:
        """Erase records; returns the rows into which others moved, and the first step drawn again.

        Steps count from 0; None if the seeds stand.
        """
        rows = np.sort(rows)
        label = self.table.label[rows]
        lost = label[self._seed_rows[label] == rows]  # a seed belongs to the cluster it seeds
        kept = int(lost.min()) if len(lost) else None
        if kept is None:
            self._tally(rows, -1)
        else:
            # Clusters from `kept` on are dissolved below; only the others must be told.
            self._tally(rows[label < kept], -1)
        holes, movers = self.table.remove(rows)
        label = self.table.label[holes]
        seeds = self._seed_rows[label] == movers
        self._seed_rows[label[seeds]] = holes[seeds]
        if kept is not None:
            self._redraw(kept)
        return holes, kept

    def learn(self, values: Floats, ids: Ids, keys: Keys, arrival: Ints) -> tuple[Ints, int | None]:
        """Add records; returns their rows, and the first step drawn again (None: seeds stand)."""
        n, n_drawn = len(values), len(self.scores)
        step = np.empty(n, dtype=np.int64)
        d2, label = np.empty(n), np.empty(n, dtype=np.int32)
        kernels.challenge(values, *keys, np.uint64(0), self.seeds, self.scores, step, d2, label)
        first = int(step.min(initial=n_drawn))
        complete = n_drawn == self.n_seeds or not (d2 > 0.0).any()
        rows = self.table.append(values, ids, keys, arrival)
        if first == n_drawn and complete:
            self.table.d2[rows] = d2
            self.table.label[rows] = label
            self._tally(rows, 1)
            return rows, None
        self.table.label[rows], self.table.d2[rows] = nearest(values, self.seeds[:first])
        self._redraw(first, rows)
        return rows, first

    def _race(self, kept: int) -> Race:
        """A race over the table's own columns, in which the first ``kept`` seeds are drawn."""
        table = self.table
        met = np.zeros(len(table), dtype=np.int32)
        rows, scores = self._seed_rows[:kept].tolist(), self.scores[:kept].tolist()
        if kept == 0:
            table.d2[:] = 1.0
            table.label[:] = -1
        return Race(rows, scores, table.d2, table.label, met)

    def _redraw(self, kept: int, new: Ints | None = None) -> None:
        """Keep the first ``kept`` seeds and draw the others again.

        ``new`` are rows that no cluster counts yet, but that have met the kept seeds.
        """
        table = self.table
        self._seed_rows = self._seed_rows[:kept]
        race = self._race(kept)
        if kept == 0:
            self._draw(race, None)
            return
        before = table.label.copy()
        if new is not None:
            before[new] = _UNCOUNTED
        # A record whose seed stands keeps it: it is the nearest of fewer seeds too.  One that lost
        # its seed is, until it meets another, no farther from the kept seeds than by way of it.
        lost = np.flatnonzero(table.label >= kept)
        race.met[:] = kept
        race.met[lost] = 0
        gaps = np.sqrt(pairwise(self.seeds[kept:], self.seeds[:kept]).min(axis=1))
        detour = np.sqrt(table.d2[lost]) + gaps[table.label[lost] - kept]
        table.d2[lost] = detour * detour * (1.0 + 1e-9) + 2.0**-1022
        table.label[lost] = -1
        self._draw(race, before)

    def _draw(self, race: Race, before: Labels | None) -> None:
        """Draw the seeds that are missing and settle every record's cluster.

        ``before`` holds the clusters to which the present sizes and sums belong (None: to none).
        """
        table, kept = self.table, len(race.rows)
        rows = Rows(table.values)
        run_race(race, rows, table.keys, self.n_seeds, smallest_id=table.smallest_id)
        self._seed_rows = np.array(race.rows, dtype=np.int64)
        self.scores = np.array(race.scores, dtype=np.float64)
        self.seeds = table.values[self._seed_rows]
        if len(table):
            behind = np.flatnonzero(race.met < kept)
            rows.catch_up(self.seeds, max(kept, 1), behind, table.d2, table.label)
        self._recount(before, kept)

    def _recount(self, before: Labels | None, kept: int) -> None:
        """Sizes and sums after a draw; only records that changed their cluster are counted."""
        k, d = self.seeds.shape
        sizes = np.zeros(k, dtype=np.int64)
        sums = np.zeros((k if self.fixed_point else 0, d), dtype=np.int64)
        if before is None:
            self.sizes, self.sums = sizes, sums
            self._tally(None, 1)
            return
        sizes[:kept] = self.sizes[:kept]
        sums[:kept] = self.sums[:kept]
        self.sizes, self.sums = sizes, sums
        changed = np.flatnonzero((before != self.table.label) | (before >= kept))
        self._tally(changed[before[changed] < kept], -1, before)
        self._tally(changed, 1)

    def _tally(self, rows: Ints | None, sign: int, label: Labels | None = None) -> None:
        """Add rows (all, where None) to the sizes and sums of their clusters, or take them away."""
        label = self.table.label if label is None else label
        if self.fixed_point is None:
            members = label if rows is None else label[rows]
            self.sizes += sign * np.bincount(members, minlength=len(self.sizes))
            return
        rows = np.arange(len(label)) if rows is None else rows
        kernels.add_fixed_point(
            self.table.values,
            rows,
            label,
            sign,
            self.fixed_point.offset,
            self.fixed_point.extent,
            2.0**FIXED_POINT_BITS,
            self.sums,
            self.sizes,
        )
