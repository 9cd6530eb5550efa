"""DC-k-means: divide and conquer, so that a deletion touches one path of a tree.

Ginart, Guan, Valiant, Zou, "Making AI forget you" (NeurIPS 2019), with a tree of height 2 whose
leaves are the clients: every client runs K-means++ with Lloyd, and the root clusters all of the
clients' centres, each with weight one.

Every node draws from a generator of its own, made anew from the public seed and the node's name
each time that the node is computed.  A deletion computes the client's leaf and then the root from
what is left, so the tree after it equals a tree that never held the record, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.baselines.federation import (
    CONSTRAINTS,
    FederatedClustering,
    Seconds,
    check_clients,
    check_fresh_ids,
    check_ids,
    check_values,
    generator,
    rows_of_clients,
    timed,
)
from fedforget.baselines.lloyd import MAX_ITER, Clustering, kmeans
from fedforget.clustering.ids import name_some
from fedforget.constraints import checked
from fedforget.errors import UnknownIdError

_ROOT, _LEAF = 0, 1


@dataclass(eq=False)
class Leaf:
    """One client: its records by ascending id, and its clusters."""

    ids: Ints
    values: Floats
    clustering: Clustering


class DCKMeans:
    """A tree of height 2 over the clients.

    Parameters
    ----------
    n_clusters : K, the clusters of the root.
    local_clusters : the clusters of a leaf (K where not given).
    n_init, local_init : how many runs the root and a leaf choose the best from.
    max_iter, tol : when Lloyd's iteration ends; by default when no label changes.
    seed : from which every node's generator is made.

    Attributes
    ----------
    leaves : the clients that hold records, by ascending number.
    root : the clustering of the leaves' centres, leaf after leaf.
    seconds : what the last ``fit`` or ``forget`` took.
    """

    def __init__(
        self,
        n_clusters: int,
        *,
        local_clusters: int | None = None,
        n_init: int = 10,
        local_init: int = 1,
        max_iter: int = MAX_ITER,
        tol: float = 0.0,
        seed: int = 0,
    ) -> None:
        given = checked(
            CONSTRAINTS,
            n_clusters=n_clusters,
            local_clusters=local_clusters,
            n_init=n_init,
            local_init=local_init,
            max_iter=max_iter,
            tol=tol,
            seed=seed,
        )
        self.n_clusters: int = given["n_clusters"]
        self.local_clusters: int = given["local_clusters"] or self.n_clusters
        self.n_init: int = given["n_init"]
        self.local_init: int = given["local_init"]
        self.max_iter: int = given["max_iter"]
        self.tol: float = given["tol"]
        self.seed: int = given["seed"]
        self.leaves: dict[int, Leaf] = {}
        self.root: Clustering | None = None
        self.seconds = Seconds(0.0, 0.0)

    def fit(self, values: Any, clients: Any, ids: Any = None) -> DCKMeans:
        """Compute every leaf and the root.

        ``ids`` are distinct integers (0, 1, … where not given).  The order of the records does not
        matter: a leaf keeps them by ascending id.
        """
        values = check_values(values)
        clients = check_clients(clients, len(values))
        ids = check_fresh_ids(ids, len(values))
        self.leaves = {}
        slowest = 0.0
        for client, rows in rows_of_clients(clients).items():
            rows = rows[np.argsort(ids[rows])]
            slowest = max(slowest, self._grow(client, ids[rows], values[rows]))
        self.seconds = Seconds(slowest, self._merge())
        return self

    def forget(self, ids: Any) -> tuple[int, ...]:
        """Delete records; returns the clients whose leaves were computed again."""
        wanted = np.unique(check_ids(ids))
        touched = {
            client: gone
            for client, leaf in self.leaves.items()
            if (gone := np.isin(leaf.ids, wanted, kind="sort")).any()
        }
        missing = np.setdiff1d(wanted, self.ids)
        if len(missing):
            raise UnknownIdError(f"not held: {name_some(missing)}; nothing was deleted")
        slowest = 0.0
        for client, gone in touched.items():
            leaf = self.leaves[client]
            if gone.all():
                del self.leaves[client]
            else:
                elapsed = self._grow(client, leaf.ids[~gone], leaf.values[~gone])
                slowest = max(slowest, elapsed)
        if touched:
            self.seconds = Seconds(slowest, self._merge())
        return tuple(touched)

    def _grow(self, client: int, ids: Ints, values: Floats) -> float:
        """Compute a leaf; returns the seconds."""
        clustering, elapsed = timed(
            lambda: kmeans(
                values,
                self.local_clusters,
                generator(self.seed, _LEAF, client),
                n_init=self.local_init,
                max_iter=self.max_iter,
                tol=self.tol,
            )
        )
        self.leaves[client] = Leaf(ids, values, clustering)
        return elapsed

    def _merge(self) -> float:
        """Compute the root from the leaves' centres; returns the seconds."""
        if not self.leaves:
            self.root = None
            return 0.0
        points = np.concatenate([leaf.clustering.centres for leaf in self.leaves.values()])
        self.root, elapsed = timed(
            lambda: kmeans(
                points,
                self.n_clusters,
                generator(self.seed, _ROOT),
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=self.tol,
            )
        )
        return elapsed

    @property
    def ids(self) -> Ints:
        """The ids of the records held, ascending."""
        held = [leaf.ids for leaf in self.leaves.values()]
        return np.sort(np.concatenate(held)) if held else np.empty(0, dtype=np.int64)

    def outcome(self) -> FederatedClustering:
        """Centres and labels; the records are those of :attr:`ids`, in that order."""
        if self.root is None:
            raise ValueError("there are no records: fit first")
        leaves = self.leaves.values()
        sizes = [len(leaf.clustering.centres) for leaf in leaves]
        offsets = np.cumsum([0, *sizes[:-1]])
        induced = [
            self.root.labels[offset + leaf.clustering.labels]
            for offset, leaf in zip(offsets, leaves, strict=True)
        ]
        order = np.argsort(np.concatenate([leaf.ids for leaf in leaves]))
        return FederatedClustering(
            self.root.centres,
            np.concatenate(induced)[order],
            np.concatenate([leaf.clustering.labels for leaf in leaves])[order],
            self.seconds,
        )
