"""The server forgets by replay: the model of a changed aggregate from the trajectories of the old.

A full run keeps, for each restart, the race's winners with their scores and, for each assignment of
Lloyd's iteration, the labels, the exact integer sums, and what tells whether a label can change:

* *margins*, by how much a point's own centre is nearer than any other.  They last until the
  centres have moved by as much, and most rows of most changes touch a short list of points alone;
* or, where features and clusters are many, so that margins are small and dear, *estimates* of
  every point's distance to every centre, which follow a change by inner products.

Where neither tells the nearest centre for certain, the exact kernel does.  The result is that of a
full run, bit for bit; the proof is in docs/math.md.

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
from fedforget.clustering.prf import Ints, Keys, UInts
from fedforget.clustering.race import Race
from fedforget.clustering.server import (
    Change,
    LatticePoints,
    PointSource,
    Restarts,
    ServerModel,
    cluster_each,
)

MEMORY_LIMIT = 1536 << 20
"""Bytes that the cache may take; restarts that do not fit are run in full every time."""

BY_MARGINS = 1024
"""Features times clusters up to which rows keep margins, and beyond which estimates."""

_LABEL = np.int16
_MOST_CLUSTERS = 1 << 15
_PRODUCTS_SHARE = 4
_BATCH = 512
_NOTHING = np.empty((0, 4), dtype=np.int64)


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
        n = len(points.weights)
        if self.tol or n < self.n_clusters or self.n_clusters > _MOST_CLUSTERS:
            # An early stop, few points, or labels too large to keep: there is nothing to replay.
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
        task = _Task(self.n_clusters, self.n_init, self.max_iter, self.memory_limit)
        self._cache = _Cache(task, points, self.source.names_of(aggregate), self.work)
        self.work.full_distances = self._cache.full_distances()
        return self._cache.model()

    def update(self, aggregate: Histogram, delta: Histogram) -> ServerModel:
        """The model of ``aggregate``, which differs from the one before by ``delta``."""
        cache = self._cache
        if cache is None:
            return self.run(aggregate)
        changes = self.source.changes(aggregate, delta)
        n, total, n_new, n_gone = len(cache.names), cache.total, 0, 0
        for _, before, after, *_ in changes:
            n_new += before == 0
            n_gone += after == 0
            total += after - before
        if (
            n + n_new - n_gone < self.n_clusters
            or 2 * len(changes) > n
            or n_new > len(cache.free)
            # Where sums could overflow, building the points refuses.
            or total * max(self.source.diameter, 1.0) >= 2.0**62
        ):
            return self.run(aggregate)
        self.work = Work()
        cache.apply(changes, self.work)
        self.work.full_distances = cache.full_distances()
        return cache.model()


@dataclass(frozen=True)
class _Task:
    """What a cache knows of its server: no reference, or both would outlive their use."""

    n_clusters: int
    n_init: int
    max_iter: int
    memory_limit: int


class _Cache:
    """Points in slots, and the rows of every restart that fits the memory limit."""

    def __init__(self, task: _Task, points: LatticePoints, names: list[bytes], work: Work) -> None:
        self.task = task
        self.names = names
        self.slot_of = {name: slot for slot, name in enumerate(names)}
        self.total = sum(points.weights.tolist())
        self.n_rows = 0
        self.absent: dict[int, ServerModel] = {}
        self.dropped: set[int] = set()
        n, d = points.coordinates.shape
        self.by_margins = d * task.n_clusters <= BY_MARGINS
        capacity = -(-(n + 16 + n // 32) // kernels.SLOT_BLOCK) * kernels.SLOT_BLOCK
        self.free = list(range(capacity - 1, n - 1, -1))
        self._no_points = np.empty((0, d), dtype=np.int64), np.empty((0, 2), dtype=np.uint64)
        self.cloud = self._cloud_of(points, capacity)
        self.rows, self.margins, self.estimates, self.runs = self._room(capacity)
        self.desk = _desk(capacity, task.n_clusters, d)
        records = self.cloud, self.rows, self.margins, self.estimates, self.runs, self.desk
        self._records = tuple(map(tuple, records))
        self._run(range(task.n_init), work)

    def _cloud_of(self, points: LatticePoints, capacity: int) -> kernels.Cloud:
        n, d = points.coordinates.shape
        origin = points.coordinates.sum(axis=0) // n
        values = np.zeros((capacity, d))
        values[:n] = points.coordinates
        shifted = np.zeros((capacity, d))
        shifted[:n] = points.coordinates - origin
        weights = np.zeros(capacity, dtype=np.int64)
        weights[:n] = points.weights
        keys = np.zeros((2, capacity), dtype=np.uint64)
        keys[:, :n] = points.keys
        lengths = (shifted * shifted).sum(axis=1)
        bounds = np.zeros(2)
        kernels.widen(bounds, d, lengths.max(), (values * values).sum(axis=1).max())
        single, multiplied = (capacity, 0) if self.by_margins else (0, capacity)
        # Products are computed when wanted; all of them, and at once, where a cluster has fewer
        # members than there are features.
        room = min(multiplied, self.task.memory_limit // (_PRODUCTS_SHARE * 4 * capacity))
        cloud = kernels.Cloud(
            values=values,
            weights=weights,
            keys=keys,
            order=np.arange(capacity),
            origin=origin,
            bounds=bounds,
            shifted=shifted,
            single=_aligned((d, single), np.float32),
            lengths=lengths[:single].astype(np.float32),
            turned=np.ascontiguousarray(shifted[:multiplied].T),
            products=_aligned((room, multiplied), np.float32),
            place=np.full(multiplied, -1, dtype=np.int64),
            known=np.zeros(room + 1, dtype=np.int64),
        )
        cloud.single[:] = shifted[:single].T
        if room == capacity and n < d * self.task.n_clusters:
            cloud.place[:] = cloud.known[1:] = np.arange(capacity)
            cloud.known[0] = capacity
            for begin in range(0, capacity, _BATCH):
                some = slice(begin, begin + _BATCH)
                cloud.products[some] = shifted[some] @ cloud.turned
        return cloud

    # -- room ----------------------------------------------------------------------------------

    def _room(
        self, capacity: int
    ) -> tuple[kernels.Trajectories, kernels.Margins, kernels.Estimates, kernels.Runs]:
        """A pool of rows.  Memory that is never written to is never taken."""
        task = self.task
        k = task.n_clusters
        d: int = self.cloud.values.shape[1]
        self.row_bytes = 2 * capacity + 8 * k * (d + 1) + 8
        if self.by_margins:
            self.row_bytes += 4 * capacity + 4 * k * (d + 2) + 8 * kernels.TIGHT + 24
        else:
            self.row_bytes += (8 + 4 * k) * capacity + 16 * k
        room = max(0, task.memory_limit - self.cloud.products.nbytes) // self.row_bytes
        room = min(room, task.n_init * (task.max_iter + 1))
        rows = kernels.Trajectories(
            labels=_aligned((room, capacity), _LABEL),
            sums=np.empty((room, k, d + 1), dtype=np.int64),
            witness=np.empty(room, dtype=np.int64),
        )
        runs = kernels.Runs(
            where=np.zeros((task.n_init, min(room, task.max_iter + 1)), dtype=np.int64),
            length=np.zeros(task.n_init, dtype=np.int64),
            status=np.full(task.n_init, kernels.ABSENT),
            seeds=np.zeros((task.n_init, k), dtype=np.int64),
            scores=np.zeros((task.n_init, 2, k)),
            about=np.zeros((task.n_init, k)),
            losses=np.zeros((task.n_init, k)),
            stale=np.ones((task.n_init, k), dtype=np.bool_),
            contends=np.zeros(task.n_init, dtype=np.bool_),
            free=np.arange(room, -1, -1, dtype=np.int64),
        )
        runs.free[0] = room
        with_margins, with_estimates = (room, 0) if self.by_margins else (0, room)
        margins = kernels.Margins(
            anchors=_aligned((with_margins, k, d), np.float32),
            drifts=np.empty((with_margins, k)),
            keys=_aligned((with_margins, capacity), np.float32),
            sunk=np.empty(with_margins),
            cut=np.empty(with_margins),
            tight=_aligned((with_margins, kernels.TIGHT), np.int32),
            listed=_aligned((with_margins, kernels.TIGHT), np.float32),
            debt=np.empty(with_margins, dtype=np.int64),
        )
        estimates = kernels.Estimates(
            all=_aligned((with_estimates, k, capacity), np.float32),
            near=_aligned((with_estimates, capacity), np.float32),
            other=_aligned((with_estimates, capacity), np.float32),
            errors=np.empty((with_estimates, k)),
            norms=np.empty((with_estimates, k)),
        )
        return rows, margins, estimates, runs

    @property
    def nbytes(self) -> int:
        used = len(self.rows.witness) - int(self.runs.free[0])
        products = 4 * len(self.cloud.place) * int(self.cloud.known[0])
        return used * self.row_bytes + products

    def _release(self, number: int) -> None:
        """Give the rows of a restart back."""
        free, length = self.runs.free, int(self.runs.length[number])
        free[1 + free[0] : 1 + free[0] + length] = self.runs.where[number, :length]
        free[0] += length
        self.runs.length[number] = 0
        self.n_rows -= length

    def _drop(self) -> None:
        """Make room: the first restart that has rows is run in full from now on."""
        number = int(np.flatnonzero(self.runs.length)[0])
        self._release(number)
        self.dropped.add(number)
        self.runs.status[number] = kernels.RERUN

    # -- running restarts ----------------------------------------------------------------------

    @property
    def order(self) -> Ints:
        """The slots in use, in canonical order."""
        slots: Ints = self.cloud.order[: len(self.names)]
        return slots

    def _restarts(self) -> Restarts:
        """The points as they are now, in canonical order."""
        order, cloud = self.order, self.cloud
        points = LatticePoints(
            cloud.values[order].astype(np.int64),
            cloud.weights[order],
            Keys(cloud.keys[0, order], cloud.keys[1, order]),
        )
        return Restarts.of(points, self.task.n_clusters, self.task.max_iter, 0.0)

    def _run(self, numbers: Iterable[int], work: Work) -> None:
        """Run restarts from the start; those that cannot be replayed are run without rows."""
        restarts = self._restarts()
        runs = self.runs
        for number in numbers:
            work.restarts += 1
            self.absent.pop(number, None)
            self._release(number)
            runs.status[number] = kernels.ABSENT
            race = restarts.seed(number, runners_up=True)
            while number not in self.dropped and not runs.free[0] and runs.length.any():
                self._drop()
            few = len(race.rows) < self.task.n_clusters
            if few or number in self.dropped or not runs.free[0]:
                self._run_absent(restarts, number, race, work)
                continue
            runs.seeds[number] = self.order[race.rows]
            runs.scores[number] = race.scores, race.runners_up
            row = int(runs.free[runs.free[0]])
            runs.free[0] -= 1
            runs.where[number, 0] = row
            runs.length[number] = 1
            runs.status[number] = kernels.GROW
            kernels.first_row(self._records, len(self.names), row, runs.seeds[number])
            self._count(work)
        self._replay(len(self.names), _NOTHING, *self._no_points, work)
        for number in np.flatnonzero(runs.status == kernels.RERUN).tolist():
            # A cluster ran empty, or the memory ran out.
            self._release(number)
            self._run_absent(restarts, number, restarts.seed(number), work)

    def _run_absent(self, restarts: Restarts, number: int, race: Race, work: Work) -> None:
        """Run a restart and keep its result alone."""
        model = restarts.lloyd(np.array(race.rows, dtype=np.int64), number)
        self.absent[number] = model
        self.runs.stale[number] = True
        self.runs.contends[number] = False
        self.runs.status[number] = kernels.ABSENT
        work.distances += self._distances_of(model)

    def _replay(self, n: int, changed: Ints, coordinates: Ints, keys: UInts, work: Work) -> None:
        """Let the kernel bring every restart with rows up to date, however many rows it takes."""
        kernels.replay(self._records, n, changed, coordinates, keys, self.task.max_iter, self.total)
        self._count(work)
        if kernels.FULL in self.runs.status.tolist():
            self._drop()
            self.runs.status[self.runs.status == kernels.FULL] = kernels.GROW
            self._replay(len(self.names), _NOTHING, *self._no_points, work)

    def _count(self, work: Work) -> None:
        points, distances, self.n_rows = self.desk.work.tolist()
        work.points += points
        work.distances += distances

    # -- following -----------------------------------------------------------------------------

    def apply(self, changes: list[Change], work: Work) -> None:
        """Bring points, order and every restart up to date."""
        cloud = self.cloud
        n = len(self.names)
        if not self.by_margins and len(cloud.products) <= cloud.known[0] < n:
            cloud.place[:] = -1
            cloud.known[0] = 0
        changed = np.array([self._place(change) for change in changes] or _NOTHING, dtype=np.int64)
        new = [change for change in changes if change.before == 0]
        coordinates, keys = self._no_points
        if new:
            coordinates = np.array([change.coordinates for change in new])
            keys = np.array([change.key for change in new])
        self._replay(n, changed, coordinates, keys, work)
        for change in changes:
            if change.after == 0:
                self.free.append(self.slot_of.pop(change.name))
        status = self.runs.status.tolist()
        if any(status):
            stale = [number for number, state in enumerate(status) if state != kernels.READY]
            self._run(stale, work)

    def _place(self, change: Change) -> tuple[int, int, int, int]:
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

    # -- results -------------------------------------------------------------------------------

    def _distances_of(self, model: ServerModel) -> int:
        return (model.n_iter + 1) * len(self.order) * self.task.n_clusters

    def full_distances(self) -> int:
        """How many distances the assignments of a full run compute."""
        here: int = self.n_rows * len(self.names) * self.task.n_clusters
        return here + sum(self._distances_of(model) for model in self.absent.values())

    def model(self) -> ServerModel:
        """The restart with the lowest loss, the first of equals."""
        runs, rows, cloud = self.runs, self.rows, self.cloud
        losses = [(model.loss, number) for number, model in self.absent.items()]
        for number, contends in enumerate(runs.contends.tolist()):
            if contends:
                losses.append((math.fsum(runs.losses[number].tolist()), number))
        loss, best = min(losses)
        if best in self.absent:
            return self.absent[best]
        length = int(runs.length[best])
        above, row = runs.where[best, length - 2 : length].tolist()
        centres = np.empty((self.task.n_clusters, cloud.values.shape[1]))
        labels = np.empty(len(self.names), dtype=np.int32)
        kernels.read_out(
            rows.sums[above], cloud.origin, rows.labels[row], self.order, centres, labels
        )
        return ServerModel(centres, labels, loss, min(length, self.task.max_iter), best)


def _desk(capacity: int, n_clusters: int, d: int) -> kernels.Desk:
    """Room for as many changes as are replayed, and for as many moves as there can be."""
    notes = 4 * capacity
    factors = np.zeros((n_clusters + n_clusters % 2, d + 1), dtype=np.float32)
    factors[n_clusters:, -1] = np.inf
    return kernels.Desk(
        work=np.zeros(3, dtype=np.int64),
        count=np.zeros(1, dtype=np.int64),
        slot=np.empty(notes, dtype=np.int64),
        cluster=np.empty(notes, dtype=np.int64),
        weight=np.empty(notes, dtype=np.int64),
        mine=np.empty(notes, dtype=np.int64),
        touched=np.empty((2, n_clusters), dtype=np.bool_),
        centres=np.empty((n_clusters, d)),
        have=np.empty(n_clusters, dtype=np.bool_),
        companion=np.empty(capacity, dtype=np.int64),
        apart=np.empty(capacity),
        twin=np.empty(n_clusters + 1, dtype=np.int32),
        listed=np.empty(2 * capacity, dtype=np.int64),
        column=np.empty(capacity),
        everyone=np.arange(capacity),
        factors=factors,
        gathered=_aligned((d, capacity), np.float32),
        single=_aligned((6, capacity), np.float32),
        nearest=_aligned((capacity,), np.int32),
    )


def _aligned(shape: tuple[int, ...], dtype: type) -> Any:
    """An uninitialised array that begins with a cache line, as its rows then do."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = np.empty(size + 64, dtype=np.uint8)
    begin = -buffer.ctypes.data % 64
    return buffer[begin : begin + size].view(dtype).reshape(shape)
