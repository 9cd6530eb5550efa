"""The server that forgets by replay: it clusters an aggregate, and follows its changes."""

from __future__ import annotations

from typing import Any

from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import PointSource, ServerModel, cluster_each
from fedforget.clustering.replay.engine import MOST_CLUSTERS, Replay, Task, Work

MEMORY_LIMIT = 1536 << 20
"""Bytes that trajectories may take; restarts that do not fit are run in full every time."""


class ReplayingServer:
    """Clusters an aggregate, and follows its changes.

    Parameters
    ----------
    source : makes points of an aggregate.
    n_clusters, n_init, max_iter, tol : as for
        :func:`~fedforget.clustering.lattice_kmeans.cluster_each`.
    memory_limit : bound on the bytes that trajectories take.
    """

    def __init__(
        self,
        source: PointSource,
        n_clusters: int,
        *,
        n_init: int,
        max_iter: int,
        tol: float,
        memory_limit: int = MEMORY_LIMIT,
    ) -> None:
        self.source = source
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.memory_limit = memory_limit
        self.work = Work()
        self._replay: Replay | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_replay": None}

    @property
    def cached_bytes(self) -> int:
        """Memory that the trajectories take now."""
        return 0 if self._replay is None else self._replay.nbytes

    def drop_cache(self) -> None:
        """Forget the trajectories; the next update runs in full."""
        self._replay = None

    def run(self, aggregate: Histogram) -> ServerModel:
        """A full run, recorded for later updates."""
        self._replay = None
        points = self.source.points_of(aggregate)
        self.work = Work()
        n = len(points.weights)
        if n < self.n_clusters or self.n_clusters > MOST_CLUSTERS:
            # Few points, or labels too large to keep: there is nothing to replay.
            models = cluster_each(
                points,
                self.n_clusters,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=self.tol,
            )
            distances = sum((model.n_iter + 1) * n * len(model.centres) for model in models)
            self.work = Work(0, distances, distances, self.n_init)
            return min(models, key=lambda model: model.loss)
        task = Task(self.n_clusters, self.n_init, self.max_iter, self.tol, self.memory_limit)
        self._replay = Replay(task, points, self.source.names_of(aggregate), self.work)
        self.work.full_distances = self._replay.full_distances()
        return self._replay.model()

    def update(self, aggregate: Histogram, delta: Histogram) -> ServerModel:
        """The model of ``aggregate``, which differs from the one before by ``delta``."""
        replay = self._replay
        if replay is None:
            return self.run(aggregate)
        changes = self.source.changes(aggregate, delta)
        n, total, n_new, n_gone = len(replay.names), replay.total, 0, 0
        for _, before, after, *_ in changes:
            n_new += before == 0
            n_gone += after == 0
            total += after - before
        if (
            n + n_new - n_gone < self.n_clusters
            or 2 * len(changes) > n
            or n_new > len(replay.free)
            # Where sums could overflow, building the points refuses.
            or total * max(self.source.diameter, 1.0) >= 2.0**62
        ):
            return self.run(aggregate)
        self.work = Work()
        replay.apply(changes, self.work)
        self.work.full_distances = replay.full_distances()
        return replay.model()
