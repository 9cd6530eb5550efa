"""The server that forgets by replay: it clusters an aggregate, and follows its changes."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import numpy as np

from fedforget.arrays import Ints
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import (
    LatticePoints,
    LatticeRestarts,
    PointChange,
    PointSource,
    ServerModel,
    cluster_each,
    moments_of,
)
from fedforget.clustering.prf import Keys
from fedforget.clustering.replay.engine import MOST_CLUSTERS, ChangedSlots, Replay, Task, Work
from fedforget.clustering.replay.state import CHANGE_COLUMNS, Points, Sizes, allocate, slots_for

LARGEST = 2.0**51
"""Coordinates below this are what they were when a rounder was added and taken away."""

MEMORY_LIMIT = 2 << 30
"""Bytes that trajectories may take; restarts that do not fit are run in full every time."""


class LatticeReplay(Replay[LatticeRestarts, ServerModel]):
    """Lattice points with names, whose order is the canonical one."""

    weights_change = True

    def __init__(self, task: Task, points: LatticePoints, names: list[bytes], work: Work) -> None:
        self.names = names
        self.slot_of = {name: slot for slot, name in enumerate(names)}
        n, d = points.coordinates.shape
        slots = slots_for(n)
        self.free = list(range(slots - 1, n - 1, -1))
        room = allocate(Points, Sizes(slots, d, task.n_clusters, task.n_init, ordered=slots))
        room.values[:n] = points.coordinates
        room.weights[:n] = points.weights
        room.keys[:n] = points.keys.words()
        room.order[:] = np.arange(slots)
        room.units[:] = room.per_unit[:] = 1.0
        room.rounders[:] = 1.5 * 2.0**52
        room.origin[:] = points.coordinates.sum(axis=0) // n
        room.base[:] = room.origin
        room.summary["n"] = n
        room.summary["scale"] = 1.0
        moments = moments_of(points) if task.tol else None
        super().__init__(task, room, moments, sum(points.weights.tolist()), work)

    def in_use(self) -> Ints:
        slots: Ints = self.points.order[: len(self.names)]
        return slots

    def _restarts(self) -> LatticeRestarts:
        order, points, task = self.in_use(), self.points, self.task
        lattice = LatticePoints(
            points.values[order].astype(np.int64),
            points.weights[order],
            Keys.of_words(points.keys[order]),
        )
        return LatticeRestarts.of(
            lattice, task.n_clusters, max_iter=task.max_iter, threshold=self.threshold
        )

    def _result(
        self, restarts: LatticeRestarts, seeds: Ints, number: int
    ) -> tuple[ServerModel, int]:
        model = restarts.model(seeds, number)
        return model, model.n_iter

    def apply(self, changes: list[PointChange], work: Work) -> None:
        """Bring points, order and every restart up to date."""
        places = [self._place(change) for change in changes]
        changed = np.array(places, dtype=np.int64).reshape(-1, CHANGE_COLUMNS)
        new = [change for change in changes if change.before == 0]
        values, keys = self.nothing
        if new:
            values = np.array([change.coordinates for change in new], dtype=np.float64)
            keys = np.array([change.key for change in new])
        self.follow(ChangedSlots(changed, values, keys), work)
        for change in changes:
            if change.after == 0:
                self.free.append(self.slot_of.pop(change.name))

    def _place(self, change: PointChange) -> tuple[int, int, int, int]:
        """A point's slot, its weights before and after, and its place in the order."""
        name, before, after = change.name, change.before, change.after
        self.total += after - before
        place = bisect_left(self.names, name)
        if before == 0:
            self.slot_of[name] = self.free.pop()
            self.names.insert(place, name)
        if after == 0:
            del self.names[place]
        return self.slot_of[name], before, after, place

    def model(self) -> ServerModel:
        """The restart with the lowest loss, the first of equals."""
        runs, rows = self.runs, self.rows
        losses = [(model.loss, number) for number, model in self.absent.items()]
        exact = runs.losses["exact"]
        losses += [(math.fsum(exact[number].tolist()), number) for number in self.contenders()]
        loss, best = min(losses)
        if best in self.absent:
            return self.absent[best]
        row = self.last_row(best)
        centres, labels = rows.centres[row].copy(), rows.labels[row][self.in_use()].astype(np.int32)
        return ServerModel(centres, labels, loss, int(runs.restarts["n_iter"][best]), best)


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
        self._replay: LatticeReplay | None = None

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
        if (
            n < self.n_clusters
            or self.n_clusters > MOST_CLUSTERS
            or self.source.diameter >= LARGEST
        ):
            # Few points, or labels or coordinates too large to keep: there is nothing to replay.
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
        self._replay = LatticeReplay(task, points, self.source.names_of(aggregate), self.work)
        self.work.full_distances = self._replay.full_distances()
        return self._replay.model()

    def update(self, aggregate: Histogram, delta: Histogram) -> ServerModel:
        """The model of ``aggregate``, which differs from the one before by ``delta``."""
        replay = self._replay
        if replay is None:
            return self.run(aggregate)
        changes = self.source.changes(aggregate, delta)
        n, total, n_new, n_gone = len(replay.names), replay.total, 0, 0
        for change in changes:
            n_new += change.before == 0
            n_gone += change.after == 0
            total += change.after - change.before
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
