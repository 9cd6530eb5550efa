"""The records of a client's directory and the clusters that are stored for them, as one owner.

The records live in SQLite; :mod:`fedforget.parties.stored_records` gives them to the same owner
that an estimator has.  After an amendment of the federation, records may not fit for a while: there
are no clusters then, and they are drawn as soon as all records fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.owner import OwnedClusters, Owner
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.records import RecordTable
from fedforget.configuration import Configuration
from fedforget.local_clusters import local_clusters_of, local_kmeans
from fedforget.parties.errors import ClientError
from fedforget.parties.fitting import Misfit, misfit_of, no_clusters, waits
from fedforget.parties.store import Clusters, EncodedIds, Store, keys_of_stored
from fedforget.parties.stored_records import (
    StoredClusters,
    StoredRecords,
    clustered_in_place,
    clusters_of,
    fresh_owner,
    standing_owner,
)

if TYPE_CHECKING:
    from fedforget.clustering.lloyd_clusters import LocalKMeans

Known = tuple[Ints, Keys]
"""Rows of the store, and the keys of the records in them."""


@dataclass(frozen=True)
class HeldRecords:
    """What a client holds, under the parameters of its federation.

    Whatever changes something belongs in a transaction of the caller.

    Attributes
    ----------
    store : where the records are.
    config : the public parameters.
    feature_names : those of the federation, in its order.
    client : the client's name.
    secret : what the draws of its records depend on.
    """

    store: Store
    config: Configuration
    feature_names: Sequence[str]
    client: str
    secret: Secret

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    def clusters(self) -> Clusters:
        """The clusters that are stored."""
        return self.store.clusters(self.n_features)

    def with_clusters(self) -> StoredClusters:
        """The clusters that are stored, with their records."""
        clusters = self.clusters()
        return StoredClusters(self._records(len(clusters.seed_ids)), clusters)

    def erase(self) -> None:
        """Erase all records and their clusters."""
        self._records().erase()

    # -- clusters that follow from the records -------------------------------------------------

    def owner(self, clusters: Clusters, rows: Mapping[bytes, int]) -> Owner[StoredRecords]:
        """The owner with the clusters that are stored; ``rows`` says where the seeds are."""
        records = self._records(len(clusters.seed_ids))
        return standing_owner(records, clusters, rows, self._n_seeds, self._kmeans)

    def draw_afresh(self, known: Known | None = None) -> None:
        """Store the clusters that follow from the records."""
        owner = fresh_owner(self._records(known=known), self._n_seeds, self._kmeans)
        self.store.set_clusters(clusters_of(owner.clusters))

    def clusters_of(self, ids: EncodedIds, values: Floats) -> OwnedClusters[RecordTable]:
        """The clusters of records, found afresh and stored nowhere; takes ``values`` over."""
        clustered = clustered_in_place(self.config.grid, values)
        keys = keys_of_stored(self.secret, ids)
        table = RecordTable(clustered, ids, keys, np.arange(len(ids)))
        return local_clusters_of(self.config, self.client, table)

    @property
    def _n_seeds(self) -> int:
        return self.config.local_clusters_of(self.client)

    @property
    def _kmeans(self) -> LocalKMeans | None:
        """K-means of this client, where clients run it."""
        lloyd = self.config.representatives == "lloyd"
        return local_kmeans(self.config, self.client) if lloyd else None

    def _records(self, n_clusters: int = 0, known: Known | None = None) -> StoredRecords:
        return StoredRecords(self.store, self.config.grid, self.secret, n_clusters, known)

    # -- records that do not fit since the federation was amended ------------------------------

    def wait(self) -> bool:
        """Whether there are records and no clusters of them, because some do not fit."""
        return waits(self.store, self.n_features)

    def misfit(self) -> Misfit | None:
        """The records that do not fit; None if all do."""
        return misfit_of(self.store, self.config.grid, self.feature_names)

    def check_they_fit(self) -> None:
        """Refuse what needs clusters while there are none."""
        if self.wait():
            raise ClientError(f"the records do not fit the amended federation: {self.misfit()}")

    def draw_if_they_fit(self) -> bool:
        """Draw clusters if all records fit, and none otherwise."""
        fit = self.misfit() is None
        if fit and len(self.store):
            self.draw_afresh()
        else:
            self.store.set_clusters(no_clusters(self.n_features))
        return fit
