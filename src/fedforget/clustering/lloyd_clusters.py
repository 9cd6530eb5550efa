"""The clusters of one data owner by K-means of its own: K-means++ seeds, then Lloyd's iteration.

They are one kind of :class:`~fedforget.clustering.owner.OwnedClusters`; the other is the
:class:`~fedforget.clustering.partition.SeededPartition`, which stops at the seeds.  Records are
clustered as fractions of the public box, in steps of 2^-30 of it, so nothing depends on which
values are present.  Of two starts the one with the lower loss counts.  A cluster that loses all its
records keeps its last centre and has size 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.ids import Ids
from fedforget.clustering.owner import first_among
from fedforget.clustering.partition import FIXED_POINT_BITS, FixedPoint
from fedforget.clustering.prf import Keys
from fedforget.clustering.records import RecordTable, rows_labelled
from fedforget.clustering.replay.engine import Task
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans
from fedforget.clustering.rounding import BITS, Rounding

STARTS = 2
"""How often an owner seeds and iterates.

Seeds are drawn one by one, not the best of several candidates as scikit-learn does.  On Celltype
one such start induces 1.030 times the loss of centralised K-means; two come to 1.024, as one start
of scikit-learn's does.  More would gain less than they cost.
"""

_LEAST_MEMORY, _MEMORY_PER_BYTE = 16 << 20, 8
"""What an owner may keep to forget quickly: so many bytes, and so many per byte of its records.

All owners of a process together then take a small multiple of their records.  What does not fit is
run again with each change.
"""

_EXPONENT = 1
"""Fractions of the box are at most 1, and below two to this power."""

_FINER = FIXED_POINT_BITS - (BITS - _EXPONENT)
"""By how many bits the fixed-point integers of reports are finer than the steps."""


@dataclass(frozen=True)
class LocalKMeans:
    """What an owner's K-means is to compute.

    Attributes
    ----------
    n_clusters : fewer are found where there are fewer distinct records.
    fixed_point : how values become fractions of the public box.
    max_iter, tol : when Lloyd's iteration stops.
    """

    n_clusters: int
    fixed_point: FixedPoint
    max_iter: int
    tol: float


class LloydClusters:
    """Clusters of records in memory, which follow what comes and goes.

    Parameters
    ----------
    records : the records; the clusters take them over.
    task : what is to be computed.
    """

    def __init__(self, records: RecordTable, task: LocalKMeans) -> None:
        self.records = records
        self.task = task
        values = self._fractions(records.values)
        rounding = Rounding(np.full(values.shape[1], _EXPONENT))
        memory = _LEAST_MEMORY + _MEMORY_PER_BYTE * values.nbytes
        whole = Task(task.n_clusters, STARTS, task.max_iter, task.tol, memory)
        self._kmeans = OwnedKMeans(
            values, records.ids, records.keys, records.arrival, whole, rounding
        )
        # Records of K-means never move; rows of a table do.
        self._slots = np.arange(len(records))

    def _fractions(self, values: Floats) -> Floats:
        """Values as fractions of the box."""
        fractions: Floats = (values - self.task.fixed_point.offset) / self.task.fixed_point.extent
        return fractions

    def of(self, records: RecordTable) -> LloydClusters:
        """The same for other records."""
        return LloydClusters(records, self.task)

    @property
    def n_seeds(self) -> int:
        return self.task.n_clusters

    # -- what was found ------------------------------------------------------------------------

    @property
    def seed_ids(self) -> Ids:
        """The ids of the seeds of the better start, in the order of drawing."""
        return self._kmeans.records.ids[self._kmeans.seeds]

    @property
    def centres(self) -> Floats:
        """Where Lloyd's iteration ended, in the space of the records."""
        fractions = self._kmeans.records.rounding.values_of(self._kmeans.outcome.centres)
        centres: Floats = self.task.fixed_point.offset + fractions * self.task.fixed_point.extent
        return centres

    @property
    def sizes(self) -> Ints:
        return self._kmeans.outcome.totals

    @property
    def sums(self) -> Ints:
        """Each cluster's integer sum, in the unit of all fixed-point sums."""
        sums: Ints = self._kmeans.outcome.sums << _FINER
        return sums

    def labels_of(self, rows: Ints) -> Labels:
        """The clusters of some records."""
        labels: Labels = self._kmeans.outcome.labels[self._slots[rows]].astype(np.int32)
        return labels

    def members_of(self, clusters: Ints) -> Ints:
        """The rows of all records that belong to some clusters."""
        return rows_labelled(self.labels_of(np.arange(len(self.records))), clusters)

    # -- forgetting and learning ---------------------------------------------------------------

    def first_lost(self, rows: Ints) -> int | None:
        """The first step of the better start whose seed is among these rows; None if none is."""
        return first_among(self._kmeans.seeds, self._slots[rows])

    def forget(self, rows: Ints) -> tuple[Ints, int | None]:
        """Erase records; returns the rows into which others moved, and the first step drawn again.

        Steps count from 0; None if the seeds stand.
        """
        rows = np.sort(rows)
        lost = self.first_lost(rows)
        self._kmeans.forget(self._slots[rows])
        holes, movers = self.records.remove(rows)
        self._slots[holes] = self._slots[movers]
        self._slots = self._slots[: len(self.records)]
        return holes, lost

    def admit(self, rows: Ints, values: Floats, keys: Keys) -> int | None:
        """Count records that lie in ``records`` already; returns the first step drawn again.

        None if the seeds stand.
        """
        if not len(rows):
            return None
        ids, arrival = self.records.ids_of(rows), self.records.arrival[rows]
        slots = self._kmeans.learn(self._fractions(values), ids, keys, arrival)
        self._slots = np.concatenate([self._slots, slots])
        # No other step can change before one that a newcomer wins.
        return first_among(self._kmeans.seeds, slots)

    def take_out(self, rows: Ints) -> tuple[Ints, int | None]:
        """:meth:`forget`: here every change is followed by itself."""
        return self.forget(rows)

    def take_in(self, rows: Ints, values: Floats, keys: Keys, kept: int) -> int | None:
        """:meth:`admit`, likewise."""
        return self.admit(rows, values, keys)

    def erase(self) -> None:
        """Overwrite the records, for good."""
        self.records.erase()
        self._kmeans.erase()
        self._slots = self._slots[:0]
