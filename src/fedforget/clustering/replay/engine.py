"""The trajectories of a full run, kept, and brought up to date when points change.

This is the Python around the kernels: it gives points their slots and restarts their rows, and runs
in full what cannot be replayed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fedforget.arrays import Ints, UInts
from fedforget.clustering.lattice_kmeans import (
    NO_THRESHOLD,
    LatticePoints,
    Moments,
    PointChange,
    Restarts,
    ServerModel,
    threshold_of,
)
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import Race
from fedforget.clustering.replay import walk
from fedforget.clustering.replay.parts import table_of
from fedforget.clustering.replay.points import bound_points
from fedforget.clustering.replay.state import (
    ABSENT,
    FULL,
    GROW,
    READY,
    RERUN,
    SLOT_BLOCK,
    START,
    Assignments,
    Estimates,
    Margins,
    Points,
    Runs,
    Scratch,
    Sizes,
    allocate,
    nbytes,
)

BY_MARGINS = 1024
"""Features times clusters up to which rows keep margins, and beyond which estimates."""

MOST_CLUSTERS = 1 << 15
"""Labels of more clusters would not fit their type."""

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


@dataclass(frozen=True)
class Task:
    """What is to be computed: no reference to a server, or both would outlive their use."""

    n_clusters: int
    n_init: int
    max_iter: int
    tol: float
    memory_limit: int


class Replay:
    """Points in slots, and the rows of every restart that fits the memory limit."""

    def __init__(self, task: Task, points: LatticePoints, names: list[bytes], work: Work) -> None:
        self.task = task
        self.names = names
        self.slot_of = {name: slot for slot, name in enumerate(names)}
        self.total = sum(points.weights.tolist())
        self.moments = Moments.of(points) if task.tol else None
        self.threshold = self._threshold()
        self.n_rows = 0
        self.absent: dict[int, ServerModel] = {}
        self.dropped: set[int] = set()
        n, d = points.coordinates.shape
        slots = -(-(n + 16 + n // 32) // SLOT_BLOCK) * SLOT_BLOCK
        self.free = list(range(slots - 1, n - 1, -1))
        self._no_points = np.empty((0, d), dtype=np.int64), np.empty((0, 2), dtype=np.uint64)
        self._allocate(Sizes(slots, d, task.n_clusters, task.n_init))
        self._fill(points)
        parts = (self.points, self.rows, self.margins, self.estimates, self.runs, self.scratch)
        self._tables = [table_of(part) for part in parts if part is not None]
        self._kernel = walk.replay_by_estimates if self.margins is None else walk.replay_by_margins
        self._run(range(task.n_init), work)

    # -- room ----------------------------------------------------------------------------------

    def _allocate(self, sizes: Sizes) -> None:
        """As many rows as the memory limit leaves, beside the inner products."""
        limit = self.task.memory_limit
        self.margins: Margins | None = None
        self.estimates: Estimates | None = None
        by_margins = sizes.features * sizes.clusters <= BY_MARGINS
        known = 0
        if not by_margins:
            # Products are computed when wanted; all of them, and at once, where a cluster has
            # fewer members than there are features.
            known = min(sizes.slots, limit // (_PRODUCTS_SHARE * 4 * sizes.slots))
        one = replace(sizes, rows=1, known=known)
        strategy = Margins if by_margins else Estimates
        self.row_bytes = sum(nbytes(part, one, along="rows") for part in (Assignments, strategy))
        self.product_bytes = 4 * sizes.slots
        rows = max(0, limit - known * self.product_bytes) // self.row_bytes
        rows = min(rows, self.task.n_init * (self.task.max_iter + 1))
        sizes = replace(one, rows=rows, longest=min(rows, self.task.max_iter + 1))
        self.points = allocate(Points, sizes)
        self.rows = allocate(Assignments, sizes)
        if by_margins:
            self.margins = allocate(Margins, sizes)
            self.margins.factors[sizes.clusters :, -1] = np.inf
        else:
            self.estimates = allocate(Estimates, sizes)
        self.runs = allocate(Runs, sizes)
        self.runs.free[:] = np.arange(rows - 1, -1, -1)
        self.runs.pool["free"] = rows
        self.runs.restarts["status"] = ABSENT
        self.runs.losses["stale"] = True
        self.scratch = allocate(Scratch, sizes)

    def _fill(self, given: LatticePoints) -> None:
        """Put the points into the first slots."""
        points = self.points
        n, d = given.coordinates.shape
        points.origin[:] = given.coordinates.sum(axis=0) // n
        points.base[:] = points.origin
        points.values[:n] = given.coordinates
        points.weights[:n] = given.weights
        points.keys[:n] = np.stack(given.keys, axis=1)
        points.order[:] = np.arange(len(points.order))
        shifted = (given.coordinates - points.origin).astype(np.float64)
        lengths = (shifted * shifted).sum(axis=1)
        points.summary["n"] = n
        reach2 = (points.values * points.values).sum(axis=1).max()
        bound_points(table_of(points), lengths.max(), reach2)
        if self.margins is not None:
            self.margins.features[:, :n] = shifted.T
            self.margins.lengths[:n] = lengths
        if self.estimates is not None:
            self.estimates.features[:, :n] = shifted.T
            self.estimates.place[:] = -1
            if len(self.estimates.known) == len(points.order) and n < d * self.task.n_clusters:
                self._know_everything(self.estimates)

    def _know_everything(self, estimates: Estimates) -> None:
        """Compute all inner products."""
        slots = len(estimates.place)
        estimates.place[:] = estimates.known[:] = np.arange(slots)
        estimates.count["known"] = slots
        for begin in range(0, slots, _BATCH):
            some = slice(begin, begin + _BATCH)
            estimates.products[some] = estimates.features[:, some].T @ estimates.features

    @property
    def nbytes(self) -> int:
        """What rows and inner products take now."""
        used = len(self.rows.witness) - int(self.runs.pool["free"])
        known = 0 if self.estimates is None else int(self.estimates.count["known"])
        return used * self.row_bytes + known * self.product_bytes

    def _release(self, number: int) -> None:
        """Give the rows of a restart back."""
        runs, restart = self.runs, self.runs.restarts[number]
        free, length = int(runs.pool["free"]), int(restart["length"])
        runs.free[free : free + length] = runs.where[number, :length]
        runs.pool["free"] += length
        restart["length"] = 0
        self.n_rows -= length

    def _drop(self) -> None:
        """Make room: the first restart that has rows is run in full from now on."""
        number = int(np.flatnonzero(self.runs.restarts["length"])[0])
        self._release(number)
        self.dropped.add(number)
        self.runs.restarts["status"][number] = RERUN

    # -- running restarts ----------------------------------------------------------------------

    @property
    def order(self) -> Ints:
        """The slots in use, in canonical order."""
        slots: Ints = self.points.order[: len(self.names)]
        return slots

    def _restarts(self) -> Restarts:
        """The points as they are now, in canonical order."""
        order, points = self.order, self.points
        keys = points.keys[order]
        lattice = LatticePoints(
            points.values[order].astype(np.int64),
            points.weights[order],
            Keys(np.ascontiguousarray(keys[:, 0]), np.ascontiguousarray(keys[:, 1])),
        )
        task = self.task
        return Restarts.of(
            lattice, task.n_clusters, max_iter=task.max_iter, threshold=self.threshold
        )

    def _threshold(self) -> float:
        return NO_THRESHOLD if self.moments is None else threshold_of(self.moments, self.task.tol)

    def _run(self, numbers: Iterable[int], work: Work) -> None:
        """Run restarts from the start; those that cannot be replayed are run without rows."""
        restarts, runs = self._restarts(), self.runs
        pool, heads = runs.pool, runs.restarts
        for number in numbers:
            work.restarts += 1
            self.absent.pop(number, None)
            self._release(number)
            heads["status"][number] = ABSENT
            race = restarts.seed(number, runners_up=True)
            while number not in self.dropped and not pool["free"] and heads["length"].any():
                self._drop()
            few = len(race.rows) < self.task.n_clusters
            if few or number in self.dropped or not pool["free"]:
                self._run_absent(restarts, number, race, work)
                continue
            runs.seeds[number]["slot"] = self.order[race.rows]
            runs.seeds[number]["score"] = race.scores
            runs.seeds[number]["runner_up"] = race.runners_up
            pool["free"] -= 1
            runs.where[number, 0] = runs.free[pool["free"]]
            heads[number] = START, 1, 0, False
        self._replay(_NOTHING, *self._no_points, work)
        for number in np.flatnonzero(heads["status"] == RERUN).tolist():
            # The memory ran out.
            self._release(number)
            self._run_absent(restarts, number, restarts.seed(number), work)

    def _run_absent(self, restarts: Restarts, number: int, race: Race, work: Work) -> None:
        """Run a restart and keep its result alone."""
        model = restarts.lloyd(np.array(race.rows, dtype=np.int64), number)
        self.absent[number] = model
        self.runs.losses["stale"][number] = True
        self.runs.restarts[number] = ABSENT, 0, 0, False
        work.distances += self._distances_of(model)

    def _replay(self, changed: Ints, coordinates: Ints, keys: UInts, work: Work) -> None:
        """Let the kernel bring every restart with rows up to date, however many rows it takes."""
        task, status = self.task, self.runs.restarts["status"]
        self._kernel(
            *self._tables, changed, coordinates, keys, task.max_iter, self.total, self.threshold
        )
        tally = self.scratch.tally
        work.points += int(tally["labels"])
        work.distances += int(tally["distances"])
        self.n_rows = int(tally["rows"])
        if FULL in status.tolist():
            self._drop()
            status[status == FULL] = GROW
            self._replay(_NOTHING, *self._no_points, work)

    # -- following -----------------------------------------------------------------------------

    def apply(self, changes: list[PointChange], work: Work) -> None:
        """Bring points, order and every restart up to date."""
        self._make_room_for_products()
        changed = np.array([self._place(change) for change in changes] or _NOTHING, dtype=np.int64)
        new = [change for change in changes if change.before == 0]
        coordinates, keys = self._no_points
        if new:
            coordinates = np.array([change.coordinates for change in new])
            keys = np.array([change.key for change in new])
        if self.moments is not None and changes:
            self._follow_moments(self.moments, changed, coordinates)
        self._replay(changed, coordinates, keys, work)
        for change in changes:
            if change.after == 0:
                self.free.append(self.slot_of.pop(change.name))
        status = self.runs.restarts["status"].tolist()
        if any(status):
            self._run([number for number, state in enumerate(status) if state != READY], work)

    def _follow_moments(self, moments: Moments, changed: Ints, new: Ints) -> None:
        """Bring moments and threshold up to date, before the points in the slots are."""
        slots, before, after, _ = changed.T
        coordinates = self.points.values[slots].astype(np.int64)
        coordinates[before == 0] = new
        moments.add(coordinates, after - before)
        self.threshold = self._threshold()

    def _make_room_for_products(self) -> None:
        """Forget all inner products when there is no room left for those of another point."""
        estimates = self.estimates
        if estimates is not None:
            known = int(estimates.count["known"])
            if len(estimates.known) <= known < len(self.names):
                estimates.place[:] = -1
                estimates.count["known"] = 0

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

    # -- results -------------------------------------------------------------------------------

    def _distances_of(self, model: ServerModel) -> int:
        return (model.n_iter + 1) * len(self.order) * self.task.n_clusters

    def full_distances(self) -> int:
        """How many distances the assignments of a full run compute."""
        here: int = self.n_rows * len(self.names) * self.task.n_clusters
        return here + sum(self._distances_of(model) for model in self.absent.values())

    def model(self) -> ServerModel:
        """The restart with the lowest loss, the first of equals."""
        runs, rows = self.runs, self.rows
        losses = [(model.loss, number) for number, model in self.absent.items()]
        for number, contends in enumerate(runs.restarts["contends"].tolist()):
            if contends:
                losses.append((math.fsum(runs.losses["exact"][number].tolist()), number))
        loss, best = min(losses)
        if best in self.absent:
            return self.absent[best]
        length = int(runs.restarts["length"][best])
        row = int(runs.where[best, length - 1])
        centres, labels = rows.centres[row].copy(), rows.labels[row][self.order].astype(np.int32)
        return ServerModel(centres, labels, loss, int(runs.restarts["n_iter"][best]), best)
