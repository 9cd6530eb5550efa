"""The server forgets by replay: the model of a changed aggregate from the trajectories of the old.

A full run keeps, for each restart, the race's winners with their scores and, for each assignment of
Lloyd's iteration, the labels, the exact integer sums and every point's margin: how much farther the
second-nearest centre is than the nearest.  After a change, centres move a little; a point whose
margin exceeds what its own and the other centres moved by keeps its label for certain.  Only the
others are computed again, by the same kernel.  The result is that of a full run, bit for bit; the
proof is in docs/math.md.

What is kept is a cache.  Its memory is bounded, it is never saved, and losing it costs time only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.prf import Ints, Keys
from fedforget.clustering.race import Race
from fedforget.clustering.server import (
    Change,
    LatticePoints,
    PointSource,
    Restarts,
    ServerModel,
    cluster_each,
)

MEMORY_LIMIT = 256 << 20
"""Bytes that trajectories may take; restarts that do not fit are run in full every time."""

REPLAY_SIZE = 4096
"""Features times clusters from which a full run, by matrix products, is faster than a replay."""

_FIRST_ROWS = 24
_SPARE_ROWS = 8
_NOTHING = np.empty((0, 3), dtype=np.int64)
_ROW_ARRAYS = ("labels", "upper", "gap", "tight", "watch", "sums", "drift", "moved")


@dataclass
class Work:
    """What an update cost, in the terms of a full run.

    Attributes
    ----------
    points : how many times a point's label was computed again.
    distances : how many distances were computed.
    full_distances : how many the assignments of a full run compute.
    restarts : how many restarts had to be run in full.
    """

    points: int = 0
    distances: int = 0
    full_distances: int = 0
    restarts: int = 0


class ReplayingServer:
    """Clusters an aggregate, and follows its changes.

    Parameters
    ----------
    source : makes points of an aggregate.
    n_clusters, n_init, max_iter, tol : as for :func:`~fedforget.clustering.server.cluster_each`.
    memory_limit : bound on the bytes that trajectories take.
    replay_size : number of features times clusters from which every update is a full run.
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
        replay_size: int = REPLAY_SIZE,
    ) -> None:
        self.source = source
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.memory_limit = memory_limit
        self.replay_size = replay_size
        self.work = Work()
        self._cache: _Cache | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_cache": None}

    @property
    def cached_bytes(self) -> int:
        """Memory that the trajectories take now."""
        return 0 if self._cache is None else self._cache.nbytes

    def drop_cache(self) -> None:
        """Forget the trajectories; the next update runs in full."""
        self._cache = None

    def run(self, aggregate: Histogram) -> ServerModel:
        """A full run, recorded for later updates."""
        self._cache = None
        points = self.source.points_of(aggregate)
        self.work = Work()
        n, d = points.coordinates.shape
        if self.tol or n < self.n_clusters or d * self.n_clusters >= self.replay_size:
            # An early stop, few points, or many numbers: there is nothing worth replaying.
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
        self._cache = _Cache(self, points, self.source.names_of(aggregate), self.work)
        self.work.full_distances = self._cache.full_distances()
        return self._cache.model()

    def update(self, aggregate: Histogram, delta: Histogram) -> ServerModel:
        """The model of ``aggregate``, which differs from the one before by ``delta``."""
        cache = self._cache
        if cache is None:
            return self.run(aggregate)
        changes = self.source.changes(aggregate, delta)
        n = len(cache.names)
        n_after = n + sum((change.after > 0) - (change.before > 0) for change in changes)
        if n_after < self.n_clusters or 2 * len(changes) > n:
            return self.run(aggregate)
        self.work = Work()
        cache.apply(changes, self.work)
        self.work.full_distances = cache.full_distances()
        return cache.model()


class _Cache:
    """Points in slots, and the rows of every restart that fits the memory limit."""

    def __init__(
        self, server: ReplayingServer, points: LatticePoints, names: list[bytes], work: Work
    ) -> None:
        self.server = server
        n, d = points.coordinates.shape
        self.slack = 64.0 * (d + 16) * 2.0**-53 * server.source.diameter
        self.names = names
        self.slot_of = {name: slot for slot, name in enumerate(names)}
        self.total = sum(points.weights.tolist())
        capacity = n + max(16, n // 8)
        self._order = np.arange(capacity, dtype=np.int64)
        self.points = np.zeros((capacity, d))
        self.points[:n] = points.coordinates
        self.weights = np.zeros(capacity, dtype=np.int64)
        self.weights[:n] = points.weights
        self.keys = np.zeros((2, capacity), dtype=np.uint64)
        self.keys[:, :n] = points.keys
        self.free = list(range(capacity - 1, n - 1, -1))
        self.absent: dict[int, ServerModel] = {}
        k = server.n_clusters
        self.labels = np.empty((0, capacity), dtype=np.int32)
        self.upper = np.empty((0, capacity))
        self.gap = np.empty((0, capacity))
        self.tight = np.empty((0, capacity), dtype=np.int32)
        self.watch = np.empty((0, 2))
        self.sums = np.empty((0, k, d + 1), dtype=np.int64)
        self.drift = np.empty((0, k))
        self.moved = np.empty(0, dtype=np.int64)
        self.meta = np.zeros((server.n_init, 4), dtype=np.int64)
        self.seeds = np.zeros((server.n_init, k), dtype=np.int64)
        self.scores = np.zeros((server.n_init, 2, k))
        self.losses = np.zeros((server.n_init, k))
        self._make_room(dict.fromkeys(range(server.n_init), _FIRST_ROWS))
        self._run(range(server.n_init), work)

    @property
    def order(self) -> Ints:
        """The slots in use, in canonical order."""
        return self._order[: len(self.names)]

    # -- running restarts ----------------------------------------------------------------------

    def _restarts(self) -> Restarts:
        """The points as they are now, in canonical order."""
        order = self.order
        points = LatticePoints(
            self.points[order].astype(np.int64),
            self.weights[order],
            Keys(self.keys[0, order], self.keys[1, order]),
        )
        return Restarts.of(points, self.server.n_clusters, self.server.max_iter, 0.0)

    def _run(self, numbers: Iterable[int], work: Work) -> None:
        """Run restarts from the start; those that cannot be replayed are run without rows."""
        restarts = self._restarts()
        for number in numbers:
            work.restarts += 1
            self.absent.pop(number, None)
            first, _, room, _ = self.meta[number].tolist()
            race = restarts.seed(number, runners_up=True)
            if not room or len(race.rows) < self.server.n_clusters:
                self._run_absent(restarts, number, race, work)
                continue
            self.seeds[number] = self.order[race.rows]
            self.scores[number] = race.scores, race.runners_up
            kernels.first_row_of(
                self.points,
                self.weights,
                self.seeds[number],
                self.slack,
                self.labels[first],
                self.upper[first],
                self.gap[first],
                self.sums[first],
            )
            work.distances += len(self.order) * self.server.n_clusters
            self.watch[first, 0] = -1.0
            self.drift[first] = 0.0
            self.moved[first] = len(self.order)
            self.meta[number, 1] = 1
            self.meta[number, 3] = kernels.GROW
        self._walk(_NOTHING, work)
        for number in np.flatnonzero(self.meta[:, 3] == kernels.RERUN).tolist():
            # A cluster ran empty.
            self._run_absent(restarts, number, restarts.seed(number), work)

    def _run_absent(self, restarts: Restarts, number: int, race: Race, work: Work) -> None:
        """Run a restart and keep its result alone."""
        model = restarts.lloyd(np.array(race.rows, dtype=np.int64), number)
        self.absent[number] = model
        self.meta[number, 3] = kernels.ABSENT
        work.distances += self._distances_of(model)

    def _walk(self, changed: Ints, work: Work) -> None:
        """Let the kernel bring every restart with rows up to date, however many rows it takes."""
        counters = np.zeros(2, dtype=np.int64)
        kernels.replay(
            self.points,
            self.weights,
            self.keys,
            self.order,
            changed,
            self.labels,
            self.upper,
            self.gap,
            self.tight,
            self.watch,
            self.sums,
            self.drift,
            self.moved,
            self.meta,
            self.seeds,
            self.scores,
            self.losses,
            self.server.max_iter,
            self.slack,
            counters,
        )
        points, distances = counters.tolist()
        work.points += points
        work.distances += distances
        if kernels.FULL in self.meta[:, 3].tolist():
            self._give_more_rows()
            self._walk(_NOTHING, work)

    # -- room ----------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in _ROW_ARRAYS)

    def _row_bytes(self) -> int:
        d: int = self.points.shape[1]
        return 24 * len(self.points) + 8 * self.server.n_clusters * (d + 2) + 24

    def _give_more_rows(self) -> None:
        """Half as many rows again for every restart that has run out of them."""
        rooms = dict(enumerate(self.meta[:, 2].tolist()))
        for number in np.flatnonzero(self.meta[:, 3] == kernels.FULL).tolist():
            rooms[number] += max(_SPARE_ROWS, rooms[number] // 2)
            self.meta[number, 3] = kernels.GROW
        self._make_room(rooms)

    def _make_room(self, rooms: dict[int, int]) -> None:
        """Move the rows to where each restart has the room it wants, or as many as fit.

        The first restarts are the first to go; one that goes is run in full from now on.
        """
        for number in rooms:
            if sum(rooms.values()) * self._row_bytes() <= self.server.memory_limit:
                break
            rooms[number] = 0
        firsts = np.concatenate([[0], np.cumsum(list(rooms.values()))])
        for name in _ROW_ARRAYS:
            old = getattr(self, name)
            new = np.zeros((int(firsts[-1]), *old.shape[1:]), dtype=old.dtype)
            for number, room in rooms.items():
                first, length, _, _ = self.meta[number].tolist()
                if room:
                    new[firsts[number] : firsts[number] + length] = old[first : first + length]
            setattr(self, name, new)
        for number, room in rooms.items():
            self.meta[number, 0] = firsts[number]
            self.meta[number, 2] = room
            if not room:
                self.meta[number, 1] = 0
                self.meta[number, 3] = kernels.RERUN

    def _grow(self) -> None:
        """Make room for more points."""
        old = len(self.points)
        new = old + max(16, old // 4)
        extra = new - old
        self.points = np.concatenate([self.points, np.zeros((extra, self.points.shape[1]))])
        self.weights = np.concatenate([self.weights, np.zeros(extra, dtype=np.int64)])
        self._order = np.concatenate([self._order, np.zeros(extra, dtype=np.int64)])
        self.keys = np.concatenate([self.keys, np.zeros((2, extra), dtype=np.uint64)], axis=1)
        nobody = np.full((len(self.labels), extra), -1, dtype=np.int32)
        blank = np.zeros((len(self.labels), extra))
        self.labels = np.concatenate([self.labels, nobody], axis=1)
        self.upper = np.concatenate([self.upper, blank], axis=1)
        self.gap = np.concatenate([self.gap, blank], axis=1)
        self.tight = np.concatenate([self.tight, nobody], axis=1)
        self.free = list(range(new - 1, old - 1, -1))
        if self.nbytes > self.server.memory_limit:
            self._make_room(dict(enumerate(self.meta[:, 2].tolist())))

    # -- following -----------------------------------------------------------------------------

    def apply(self, changes: list[Change], work: Work) -> None:
        """Bring points, order and every restart up to date."""
        changed = np.empty((len(changes), 3), dtype=np.int64)
        for number, change in enumerate(changes):
            changed[number] = self._place(change), change.before, change.after
        self.total += sum(change.after - change.before for change in changes)
        if self.total * max(self.server.source.diameter, 1.0) >= 2.0**62:
            # The guard of the sums; building the points refuses what could overflow.
            self._restarts()
        self._walk(changed, work)
        for change in changes:
            if change.after == 0:
                self.free.append(self.slot_of.pop(change.name))
        stale = [n for n, status in enumerate(self.meta[:, 3].tolist()) if status != kernels.READY]
        if stale:
            self._run(stale, work)

    def _place(self, change: Change) -> int:
        """Set a point's weight; new points get a slot and their place in the order."""
        place = bisect_left(self.names, change.name)
        if change.before == 0:
            if not self.free:
                self._grow()
            slot = self.free.pop()
            self.slot_of[change.name] = slot
            self.points[slot] = change.coordinates
            self.keys[:, slot] = change.key
            self.names.insert(place, change.name)
            n = len(self.names)
            self._order[place + 1 : n] = self._order[place : n - 1]
            self._order[place] = slot
        slot = self.slot_of[change.name]
        self.weights[slot] = change.after
        if change.after == 0:
            del self.names[place]
            n = len(self.names)
            self._order[place:n] = self._order[place + 1 : n + 1]
        return slot

    # -- results -------------------------------------------------------------------------------

    def _distances_of(self, model: ServerModel) -> int:
        return (model.n_iter + 1) * len(self.order) * self.server.n_clusters

    def full_distances(self) -> int:
        """How many distances the assignments of a full run compute."""
        per_row = len(self.order) * self.server.n_clusters
        rows = sum(length for _, length, _, status in self.meta.tolist() if status == kernels.READY)
        return rows * per_row + sum(self._distances_of(model) for model in self.absent.values())

    def model(self) -> ServerModel:
        """The restart with the lowest loss, the first of equals."""
        losses = [math.fsum(parts) for parts in self.losses.tolist()]
        for number, model in self.absent.items():
            losses[number] = model.loss
        best = losses.index(min(losses))
        if best in self.absent:
            return self.absent[best]
        first, length, _, _ = self.meta[best].tolist()
        last = first + length - 1
        sums = self.sums[last - 1]
        centres = sums[:, :-1] / sums[:, -1:]
        labels = self.labels[last, self.order]
        n_iter = min(length, self.server.max_iter)
        return ServerModel(centres, labels, losses[best], n_iter, best)
