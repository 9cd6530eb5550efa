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
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.distance import Floats, Labels
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.prf import Ints, Keys
from fedforget.clustering.server import (
    Change,
    Iteration,
    LatticePoints,
    PointSource,
    Restarts,
    ServerModel,
    cluster,
)

MEMORY_LIMIT = 256 << 20
"""Bytes that trajectories may take; restarts that do not fit are run in full every time."""

_SPARE_ROWS = 8
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


class _Row(NamedTuple):
    """One assignment: labels, distances to the nearest and (at least) next centre, exact sums."""

    labels: Labels
    own: Floats
    second: Floats
    sums: Ints
    moved: int


@dataclass
class _Recording:
    """One restart as it was run: its race and, row by row, its assignments."""

    model: ServerModel
    seeds: Ints
    scores: Floats
    rows: list[_Row] = field(default_factory=list)

    @property
    def replayable(self) -> bool:
        """A cluster without points has no centroid that could be replayed."""
        return len(self.rows) > 1 and all((row.sums[:, -1] > 0).all() for row in self.rows)


class ReplayingServer:
    """Clusters an aggregate, and follows its changes.

    Parameters
    ----------
    source : makes points of an aggregate.
    n_clusters, n_init, max_iter, tol : as for :func:`~fedforget.clustering.server.cluster`.
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
        self.work = Work(restarts=self.n_init)
        if self.tol or len(points.weights) < self.n_clusters:
            # Too few points or an early stop: there is nothing worth replaying.
            return cluster(
                points,
                self.n_clusters,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=self.tol,
            )
        cache = _Cache(self, points, self.source.names_of(aggregate))
        self._cache = cache
        model = cache.model()
        self.work.full_distances = cache.full_distances()
        self.work.distances = self.work.full_distances
        return model

    def update(self, aggregate: Histogram, delta: Histogram) -> ServerModel:
        """The model of ``aggregate``, which differs from the one before by ``delta``."""
        cache = self._cache
        if cache is None:
            return self.run(aggregate)
        changes = self.source.changes(aggregate, delta)
        arrived = sum(change.before == 0 for change in changes)
        left = sum(change.after == 0 for change in changes)
        if len(cache.names) + arrived - left < self.n_clusters or 2 * len(changes) > len(
            cache.names
        ):
            return self.run(aggregate)
        self.work = Work()
        cache.apply(changes, self.work)
        self.work.full_distances = cache.full_distances()
        return cache.model()


class _Cache:
    """Points in slots, and the recorded rows of every restart that fits the memory limit."""

    def __init__(self, server: ReplayingServer, points: LatticePoints, names: list[bytes]) -> None:
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
        restarts = self._restarts()
        recordings = [self._record(restarts, number) for number in range(server.n_init)]
        self._lay_out(recordings)

    @property
    def order(self) -> Ints:
        """The slots in use, in canonical order."""
        return self._order[: len(self.names)]

    # -- recording -----------------------------------------------------------------------------

    def _restarts(self) -> Restarts:
        """The points as they are now, in canonical order."""
        order = self.order
        points = LatticePoints(
            self.points[order].astype(np.int64),
            self.weights[order],
            Keys(self.keys[0, order], self.keys[1, order]),
        )
        return Restarts.of(points, self.server.n_clusters, self.server.max_iter, 0.0)

    def _record(self, restarts: Restarts, number: int, *, keep: bool = True) -> _Recording:
        """Run one restart in full; labels and seeds are those of rows in canonical order."""
        race = restarts.seed(number, runners_up=keep)
        seeds = np.array(race.rows, dtype=np.int64)
        rows: list[_Row] = []

        def watch(row: Iteration) -> None:
            second = restarts.rows.second_distances(row.centres, row.labels)
            sums = np.column_stack([row.sums, row.totals])
            rows.append(_Row(row.labels, np.sqrt(row.d2), second, sums, row.moved))

        model = restarts.lloyd(seeds, number, watch if keep else None)
        scores = np.array([race.scores, race.runners_up if keep else race.scores])
        return _Recording(model, self.order[seeds], scores, rows)

    def _lay_out(self, recordings: list[_Recording]) -> None:
        """Move recordings into the arrays that the kernel walks; the first to go are the oldest."""
        k, d = self.server.n_clusters, self.points.shape[1]
        row_bytes = 24 * len(self.points) + 8 * k * (d + 2) + 24
        rooms = [len(one.rows) + _SPARE_ROWS if one.replayable else 0 for one in recordings]
        for number in range(len(rooms)):
            if sum(rooms) * row_bytes <= self.server.memory_limit:
                break
            rooms[number] = 0
        self._allocate(rooms)
        for number, recording in enumerate(recordings):
            self._store(number, recording)

    def _allocate(self, rooms: list[int]) -> None:
        k, d = self.server.n_clusters, self.points.shape[1]
        n_rows = sum(rooms)
        self.labels = np.full((n_rows, len(self.points)), -1, dtype=np.int32)
        self.upper = np.zeros((n_rows, len(self.points)))
        self.gap = np.zeros((n_rows, len(self.points)))
        self.tight = np.zeros((n_rows, len(self.points)), dtype=np.int32)
        self.watch = np.full((n_rows, 2), -1.0)
        self.sums = np.zeros((n_rows, k, d + 1), dtype=np.int64)
        self.drift = np.zeros((n_rows, k))
        self.moved = np.zeros(n_rows, dtype=np.int64)
        self.meta = np.zeros((len(rooms), 4), dtype=np.int64)
        self.meta[:, 0] = np.concatenate([[0], np.cumsum(rooms)[:-1]])
        self.meta[:, 2] = rooms
        self.seeds = np.zeros((len(rooms), k), dtype=np.int64)
        self.scores = np.zeros((len(rooms), 2, k))
        self.losses = np.zeros((len(rooms), k))

    def _store(self, number: int, recording: _Recording) -> None:
        """Put a recording into its place, if it has one."""
        room = int(self.meta[number, 2])
        self.meta[number, 3] = kernels.ABSENT
        self.absent[number] = recording.model
        if not recording.replayable or not room:
            return
        if len(recording.rows) > room:
            self._widen(number, len(recording.rows) + _SPARE_ROWS - room)
            if self.nbytes > self.server.memory_limit:
                self._drop(number)
                return
        first = int(self.meta[number, 0])
        del self.absent[number]
        self.meta[number, 1] = len(recording.rows)
        self.meta[number, 3] = kernels.READY
        self.seeds[number] = recording.seeds
        self.scores[number] = recording.scores
        for row, one in enumerate(recording.rows, start=first):
            self.labels[row] = -1
            self.labels[row, self.order] = one.labels
            self.upper[row, self.order] = one.own + self.slack
            self.gap[row, self.order] = one.second - one.own - 2.0 * self.slack
            self.watch[row, 0] = -1.0
            self.sums[row] = one.sums
            self.drift[row] = 0.0
            self.moved[row] = one.moved
        weights = self.weights[self.order].astype(np.float64)
        distances = np.empty(len(self.order))
        centres, labels = recording.model.centres, recording.model.labels
        for k in range(len(centres)):
            members = labels == k
            own = self.points[self.order[members]]
            part = np.empty(len(own))
            kernels.distances_to(own, centres[k], part)
            distances[members] = part
        self.losses[number] = 0.0
        kernels.cluster_losses(weights, distances, labels, self.losses[number])

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
        work.points, work.distances = counters.tolist()
        for change in changes:
            if change.after == 0:
                self.free.append(self.slot_of.pop(change.name))
        statuses = self.meta[:, 3].tolist()
        stale = [number for number, status in enumerate(statuses) if status != kernels.READY]
        if stale:
            self._run_again(stale, work)

    def _place(self, change: Change) -> int:
        """Set a point's weight; new points get a slot and their place in the order."""
        if change.before == 0:
            if not self.free:
                self._grow()
            slot = self.free.pop()
            self.slot_of[change.name] = slot
            self.points[slot] = change.coordinates
            self.keys[:, slot] = change.key
            place = bisect_left(self.names, change.name)
            self.names.insert(place, change.name)
            n = len(self.names)
            self._order[place + 1 : n] = self._order[place : n - 1]
            self._order[place] = slot
        slot = self.slot_of[change.name]
        self.weights[slot] = change.after
        if change.after == 0:
            place = bisect_left(self.names, change.name)
            del self.names[place]
            n = len(self.names)
            self._order[place:n] = self._order[place + 1 : n + 1]
        return slot

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
        self.labels = np.concatenate([self.labels, nobody], axis=1)
        blank = np.zeros((len(self.labels), extra))
        self.upper = np.concatenate([self.upper, blank], axis=1)
        self.gap = np.concatenate([self.gap, blank], axis=1)
        self.tight = np.concatenate([self.tight, nobody], axis=1)
        self.free = list(range(new - 1, old - 1, -1))
        while self.nbytes > self.server.memory_limit:
            self._drop(int(np.flatnonzero(self.meta[:, 2])[0]))

    def _drop(self, number: int) -> None:
        """Give up the rows of a restart; it will be run in full from now on."""
        first, _, room, _ = self.meta[number].tolist()
        kept = np.ones(len(self.labels), dtype=np.bool_)
        kept[first : first + room] = False
        for name in _ROW_ARRAYS:
            setattr(self, name, getattr(self, name)[kept])
        self.meta[number + 1 :, 0] -= room
        self.meta[number] = 0, 0, 0, kernels.ABSENT

    def _widen(self, number: int, extra: int) -> None:
        """Give a restart more rows."""
        first, _, room, _ = self.meta[number].tolist()
        at = first + room
        for name in _ROW_ARRAYS:
            old = getattr(self, name)
            blank = np.zeros((extra, *old.shape[1:]), dtype=old.dtype)
            setattr(self, name, np.concatenate([old[:at], blank, old[at:]]))
        self.meta[number + 1 :, 0] += extra
        self.meta[number, 2] += extra

    def _run_again(self, numbers: list[int], work: Work) -> None:
        """Run some restarts in full, and record them again where they have a place."""
        restarts = self._restarts()
        for number in numbers:
            work.restarts += 1
            keep = bool(self.meta[number, 2] > 0)
            recording = self._record(restarts, number, keep=keep)
            self._store(number, recording)
            work.distances += self._distances_of(recording.model)

    # -- results -------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in _ROW_ARRAYS)

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
