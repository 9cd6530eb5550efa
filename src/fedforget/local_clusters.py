"""The client's part: the clusters of its records that the public parameters ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedforget.clustering.owner import OwnedClusters, Owner
from fedforget.clustering.partition import SeededPartition
from fedforget.clustering.prf import Secret
from fedforget.clustering.records import RecordTable
from fedforget.configuration import Configuration

if TYPE_CHECKING:
    from fedforget.clustering.lloyd_clusters import LocalKMeans


def new_owner(config: Configuration, client: int | str, secret: Secret) -> Owner[RecordTable]:
    """A client without records, which will live in memory."""
    records = RecordTable.empty(config.grid.n_features)
    return Owner(secret, local_clusters_of(config, client, records))


def local_clusters_of(
    config: Configuration, client: int | str, records: RecordTable
) -> OwnedClusters[RecordTable]:
    """The clusters of a client's records."""
    if config.representatives == "lloyd":
        from fedforget.clustering.lloyd_clusters import LloydClusters

        return LloydClusters(records, local_kmeans(config, client))
    n_seeds = config.local_clusters_of(client)
    return SeededPartition(records, n_seeds, config.grid.fixed_point)


def local_kmeans(config: Configuration, client: int | str) -> LocalKMeans:
    """What K-means of a client computes.

    Lloyd's iteration stops as it does at the server: those parameters are public, and part of the
    model's digest already.
    """
    from fedforget.clustering.lloyd_clusters import LocalKMeans

    n_clusters = config.local_clusters_of(client)
    return LocalKMeans(n_clusters, config.grid.fixed_point, config.max_iter, config.tol)
