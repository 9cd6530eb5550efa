"""One data owner: records, the secret that their draws depend on, and their clusters.

Everything that holds records is an owner: the estimator for one owner, each client of a federation
in one process, and the client in a directory, whose records live in a database.  They differ in
where the records live (:class:`~fedforget.clustering.records.OwnedRecords`), not in what happens
to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.ids import Ids, keys_of_ids
from fedforget.clustering.partition import FixedPoint, R, SeededPartition
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.records import RecordTable


@dataclass(frozen=True)
class Change:
    """What happened to an owner.

    Attributes
    ----------
    moved : the rows that hold another record than before.
    redrawn_from : the first step, from 0, whose seed was drawn again; None if the seeds stand.
    """

    moved: Ints
    redrawn_from: int | None


class Owner(Generic[R]):
    """One data owner.

    Parameters
    ----------
    secret : the records' keys are derived from it.
    clusters : the clusters, with the records.
    """

    def __init__(self, secret: Secret, clusters: SeededPartition[R]) -> None:
        self.secret = secret
        self.clusters = clusters

    @classmethod
    def without_records(
        cls, secret: Secret, n_features: int, n_seeds: int, fixed_point: FixedPoint | None = None
    ) -> Owner[RecordTable]:
        """An owner of nothing yet, whose records will live in memory."""
        clusters = SeededPartition(RecordTable.empty(n_features), n_seeds, fixed_point)
        return Owner(secret, clusters)

    def __len__(self) -> int:
        return len(self.clusters)

    @property
    def records(self) -> R:
        return self.clusters.records

    def keys_of(self, ids: Ids) -> Keys:
        """The keys of records with these ids, here or to come."""
        return keys_of_ids(self.secret, ids)

    def forget(self, rows: Ints) -> Change:
        """Erase records."""
        return Change(*self.clusters.forget(rows))

    def learn(
        self: Owner[RecordTable],
        values: Floats,
        ids: Ids,
        arrival: Ints,
        keys: Keys | None = None,
    ) -> Change:
        """Add records, which the owner takes over; ``keys`` where they are known already."""
        keys = self.keys_of(ids) if keys is None else keys
        if len(self) or not len(ids):
            return Change(*self.clusters.learn(values, ids, keys, arrival))
        table = RecordTable(values, ids, keys, arrival)
        self.clusters = SeededPartition(table, self.clusters.n_seeds, self.clusters.fixed_point)
        return Change(np.arange(len(ids)), 0)

    def admit(self, rows: Ints, keys: Keys) -> Change:
        """Count records that have come to where the records live."""
        step = self.clusters.admit(rows, self.records.values_of(rows), keys)
        return Change(rows, step)
