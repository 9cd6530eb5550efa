"""The records of an owner that live in a client's store.

While the seeds stand, only the rows that come or go are read.  A draw reads all of them, and writes
the labels that changed.  Where clients run K-means of their own, every change reads all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.distance import pairwise
from fedforget.clustering.grid import Grid
from fedforget.clustering.ids import Ids
from fedforget.clustering.owner import OwnedClusters, Owner, first_among
from fedforget.clustering.partition import SeededPartition, StandingClusters
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.records import RecordTable
from fedforget.parties.sources.reader import ROWS_AT_A_TIME
from fedforget.parties.store import Clusters, EncodedIds, Store, StoreError, keys_of_stored

if TYPE_CHECKING:
    from fedforget.clustering.lloyd_clusters import LocalKMeans

_NO_ROWS = np.empty(0, dtype=np.int64)


class StoredRecords:
    """Records in a store, as clusters see them.

    Parameters
    ----------
    store : where they are; calls that change something belong in one of its transactions.
    grid : says how values are clustered.
    secret : the owner's.
    n_clusters : how many clusters the store has.
    known : rows whose keys are known already, and the keys.

    Attributes
    ----------
    known : the same; whoever adds records may set it before a draw.
    """

    def __init__(
        self,
        store: Store,
        grid: Grid,
        secret: Secret,
        n_clusters: int = 0,
        known: tuple[Ints, Keys] | None = None,
    ) -> None:
        self.store = store
        self.grid = grid
        self.secret = secret
        self._n_clusters = n_clusters
        self.known = known
        self._rows = _NO_ROWS
        self._labels = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self.store)

    def ids_of(self, rows: Ints) -> Ids:
        return self.store.ids_of(rows)

    def values_of(self, rows: Ints) -> Floats:
        return self.grid.to_clustered(self.store.values_of(rows, self.grid.n_features))

    def labels_of(self, rows: Ints) -> Labels:
        labels = self.store.labels_of(rows)
        if len(labels) and not 0 <= labels.min() <= labels.max() < self._n_clusters:
            raise _foreign_clusters(self.store)
        return labels

    def labelled(self, seeds: Ints) -> Ints:
        return self.store.rows_labelled(seeds)

    def settle(self, rows: Ints, label: Labels, d2: Floats) -> None:
        """Distances are not stored: a draw computes them again."""
        self.store.set_labels(rows, label)

    def remove(self, rows: Ints) -> tuple[Ints, Ints]:
        """Erase rows; in a store no record ever moves."""
        self.store.remove(rows, self.grid.n_features)
        return _NO_ROWS, _NO_ROWS

    def erase(self) -> None:
        self.store.clear()

    # -- a draw --------------------------------------------------------------------------------

    def in_memory(self, seeds: Floats) -> RecordTable:
        rows, ids, values = self.store.everything(self.grid.n_features)
        clustered = clustered_in_place(self.grid, values)
        if len(seeds):
            labels = self.labels_of(rows)
            d2 = _distances_to_own(clustered, labels, seeds)
        else:
            labels, d2 = np.full(len(rows), -1, dtype=np.int32), np.full(len(rows), np.inf)
        self._rows, self._labels = rows, labels.copy()
        return RecordTable(clustered, ids, self._keys_of(rows, ids), rows, labels, d2)

    def _keys_of(self, rows: Ints, ids: EncodedIds) -> Keys:
        if self.known is None:
            return keys_of_stored(self.secret, ids)
        known_rows, known = self.known
        if np.array_equal(rows, known_rows):
            return known
        at = np.searchsorted(rows, known_rows)
        others = np.ones(len(rows), dtype=np.bool_)
        others[at] = False
        hashed = keys_of_stored(self.secret, ids[others])
        keys = Keys(np.empty(len(rows), np.uint64), np.empty(len(rows), np.uint64))
        for column, old, new in zip(keys, known, hashed, strict=True):
            column[at] = old
            column[others] = new
        return keys

    def positions_of(self, rows: Ints) -> Ints:
        return np.searchsorted(self._rows, rows)

    def rows_at(self, positions: Ints) -> Ints:
        return self._rows[positions]

    def keep(self, table: RecordTable) -> None:
        changed = np.flatnonzero(table.label != self._labels)
        self.store.set_labels(self._rows[changed], table.label[changed])


class StoredClusters:
    """Clusters as they are stored, with their records: enough to report of them.

    Parameters
    ----------
    records : the records.
    found : the clusters that are stored for them.
    """

    def __init__(self, records: StoredRecords, found: Clusters) -> None:
        self.records = records
        self._found = found

    @property
    def centres(self) -> Floats:
        return self._found.centres

    @property
    def sizes(self) -> Ints:
        return self._found.sizes

    @property
    def sums(self) -> Ints:
        return self._found.sums

    def labels_of(self, rows: Ints) -> Labels:
        """The clusters of some records."""
        return self.records.labels_of(rows)

    def members_of(self, clusters: Ints) -> Ints:
        """The rows of all records that belong to some clusters."""
        return self.records.labelled(clusters)


class StoredLloydClusters(StoredClusters):
    """Clusters by K-means of the records' owner, run again with every change.

    Trajectories are never stored: they would take longer to write and to read than a run.

    Parameters
    ----------
    records : the records.
    task : what is to be computed.
    stored : where given, the clusters of these records as they were; nothing is run then.
    """

    def __init__(
        self, records: StoredRecords, task: LocalKMeans, stored: Clusters | None = None
    ) -> None:
        self.records = records
        self.task = task
        super().__init__(records, self._run() if stored is None else stored)

    def _run(self) -> Clusters:
        """Cluster all records; their labels are stored."""
        from fedforget.clustering.lloyd_clusters import LloydClusters

        table = self.records.in_memory(np.empty((0, self.records.grid.n_features)))
        fresh = LloydClusters(table, self.task)
        table.label[:] = fresh.labels_of(np.arange(len(table)))
        self.records.keep(table)
        return clusters_of(fresh)

    def of(self, records: StoredRecords) -> StoredLloydClusters:
        """The same for other records."""
        return StoredLloydClusters(records, self.task)

    @property
    def n_seeds(self) -> int:
        return self.task.n_clusters

    @property
    def seed_ids(self) -> Ids:
        """The seeds' ids, in the order of drawing."""
        return np.array(self._found.seed_ids, dtype=np.bytes_)

    def first_lost(self, rows: Ints) -> int | None:
        """The first step whose seed is among these rows; None if the seeds would stand."""
        return first_among(self.seed_ids, self.records.ids_of(rows))

    def forget(self, rows: Ints) -> tuple[Ints, int | None]:
        """Erase records; returns no rows, because none moves, and the first step drawn again."""
        lost = self.first_lost(rows)
        moved, _ = self.records.remove(rows)
        self._found = self._run()
        return moved, lost

    def admit(self, rows: Ints, values: Floats, keys: Keys) -> int | None:
        """Count records that lie in the store already; returns the first step drawn again."""
        self._found = self._run()
        return self.first_lost(rows)

    def take_out(self, rows: Ints) -> tuple[Ints, int | None]:
        """:meth:`forget`: here every change is followed by itself."""
        return self.forget(rows)

    def take_in(self, rows: Ints, values: Floats, keys: Keys, kept: int) -> int | None:
        """:meth:`admit`, likewise."""
        return self.admit(rows, values, keys)

    def erase(self) -> None:
        """Overwrite the records, for good."""
        self.records.erase()


def standing_owner(
    records: StoredRecords,
    stored: Clusters,
    rows: Mapping[bytes, int],
    n_seeds: int,
    kmeans: LocalKMeans | None = None,
) -> Owner[StoredRecords]:
    """The owner of stored records with the clusters that are stored for them.

    ``rows`` says where at least the seeds are; ``kmeans`` is given where owners run K-means.
    """
    try:
        seed_rows = np.array([rows[seed] for seed in stored.seed_ids], dtype=np.int64)
    except KeyError:
        raise _foreign_clusters(records.store) from None
    if kmeans is not None:
        return Owner(records.secret, StoredLloydClusters(records, kmeans, stored))
    standing = StandingClusters(seed_rows, stored.scores, stored.centres, stored.sizes, stored.sums)
    fixed_point = records.grid.fixed_point
    return Owner(records.secret, SeededPartition(records, n_seeds, fixed_point, standing=standing))


def fresh_owner(
    records: StoredRecords, n_seeds: int, kmeans: LocalKMeans | None = None
) -> Owner[StoredRecords]:
    """The owner of stored records, whose clusters are found now."""
    if kmeans is not None:
        return Owner(records.secret, StoredLloydClusters(records, kmeans))
    return Owner(records.secret, SeededPartition(records, n_seeds, records.grid.fixed_point))


def clusters_of(clusters: OwnedClusters[Any]) -> Clusters:
    """Clusters as the store keeps them."""
    seeds: list[bytes] = clusters.seed_ids.tolist()
    # Newcomers are compared with the winners' scores only while seeds are all there is.
    scores = clusters.scores if isinstance(clusters, SeededPartition) else np.zeros(len(seeds))
    return Clusters(seeds, scores, clusters.centres, clusters.sizes, clusters.sums)


def _foreign_clusters(store: Store) -> StoreError:
    return StoreError(
        f"{store.path}: the stored clusters are not those of the stored records; restore the"
        " directory from a backup (`client audit` tells what does not fit)"
    )


def clustered_in_place(grid: Grid, values: Floats) -> Floats:
    """Take rows to the clustered space, some at a time: there is no second copy."""
    if grid.scale != "none":
        for at in range(0, len(values), ROWS_AT_A_TIME):
            part = slice(at, at + ROWS_AT_A_TIME)
            values[part] = grid.to_clustered(values[part])
    return values


def _distances_to_own(values: Floats, label: Labels, seeds: Floats) -> Floats:
    """The squared distance of each row to the seed that it belongs to."""
    d2 = np.empty(len(values))
    order = np.argsort(label.astype(np.min_scalar_type(len(seeds))), kind="stable")
    ends = np.cumsum(np.bincount(label, minlength=len(seeds)))
    for k, members in enumerate(np.split(order, ends[:-1])):
        for at in range(0, len(members), ROWS_AT_A_TIME):
            some = members[at : at + ROWS_AT_A_TIME]
            d2[some] = pairwise(values[some], seeds[k : k + 1])[:, 0]
    return d2
