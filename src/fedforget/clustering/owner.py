"""One data owner: records, the secret that their draws depend on, and their clusters.

Everything that holds records is an owner: :class:`~fedforget.SeededKMeans`, each client of a
federation in one process, and the client in a directory, whose records live in a database.  They
differ in where the records live (:class:`~fedforget.clustering.records.OwnedRecords`), not in what
happens to them.  One exception: the records of :class:`~fedforget.KMeans` are the points that it
replays, so :mod:`fedforget.clustering.replay.owned_kmeans` holds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.ids import Ids, keys_of_ids
from fedforget.clustering.partition import R
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.records import RecordTable


class OwnedClusters(Protocol[R]):
    """What an owner asks of its clusters, however they are found.

    A record belongs to the cluster whose centre is the nearest.  After every call everything is
    what it would be with clusters that are new, of the records now held.
    """

    @property
    def records(self) -> R:
        """The records, which belong to the clusters."""

    @property
    def n_seeds(self) -> int:
        """How many clusters there are, unless there are fewer distinct records."""

    @property
    def seed_ids(self) -> Ids:
        """The ids of the records that were drawn as seeds, in the order of drawing."""

    @property
    def centres(self) -> Floats:
        """(k, d) in the space of the records."""

    @property
    def sizes(self) -> Ints:
        """Each cluster's number of records."""

    @property
    def sums(self) -> Ints:
        """Each cluster's integer sum, where such sums are kept."""

    def of(self, records: R) -> OwnedClusters[R]:
        """Clusters of the same kind, of other records."""

    def labels_of(self, rows: Ints) -> Labels:
        """The clusters of some records."""

    def members_of(self, clusters: Ints) -> Ints:
        """The rows of all records that belong to some clusters, in any order."""

    def first_lost(self, rows: Ints) -> int | None:
        """The first step, from 0, whose seed is among these rows; None if the seeds would stand."""

    def forget(self, rows: Ints) -> tuple[Ints, int | None]:
        """Erase records; returns the rows into which others moved, and the first step drawn again.

        None if the seeds stand.
        """

    def admit(self, rows: Ints, values: Floats, keys: Keys) -> int | None:
        """Count records that lie in ``records`` already; returns the first step drawn again."""

    def take_out(self, rows: Ints) -> tuple[Ints, int | None]:
        """:meth:`forget`, where :meth:`take_in` will follow and may draw for both."""

    def take_in(self, rows: Ints, values: Floats, keys: Keys, kept: int) -> int | None:
        """:meth:`admit`, after only the first ``kept`` seeds were not taken out."""

    def erase(self) -> None:
        """Overwrite all records, for good."""


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

    def __init__(self, secret: Secret, clusters: OwnedClusters[R]) -> None:
        self.secret = secret
        self.clusters = clusters

    def __len__(self) -> int:
        return len(self.records)

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
            rows = self.records.append(values, ids, keys, arrival)
            return Change(rows, self.clusters.admit(rows, values, keys))
        self.clusters = self.clusters.of(RecordTable(values, ids, keys, arrival))
        return Change(np.arange(len(ids)), 0)

    def take_out(self, rows: Ints) -> Change:
        """Erase records, where others come at once: :meth:`take_in` must follow."""
        return Change(*self.clusters.take_out(rows))

    def take_in(self, rows: Ints, keys: Keys, kept: int) -> Change:
        """Count records that have come to where the records live.

        ``kept`` is the number of seeds before the first that was taken out.  Records that go and
        records that come need one draw at most.
        """
        step = self.clusters.take_in(rows, self.records.values_of(rows), keys, kept)
        return Change(rows, step)

    def erase(self) -> None:
        """Overwrite all records, for good."""
        self.clusters.erase()


def first_among(seeds: Ints | Ids, some: Ints | Ids) -> int | None:
    """The first step whose seed is one of some records.

    >>> first_among(np.array([7, 3, 5]), np.array([5, 3, 9]))
    1
    """
    wanted = set(some.tolist())
    return next((step for step, one in enumerate(seeds.tolist()) if one in wanted), None)
