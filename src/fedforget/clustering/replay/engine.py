"""The trajectories of a full run, kept, and brought up to date when points change.

This is the Python around the kernels: it gives points their slots and restarts their rows, and runs
in full what cannot be replayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np

from fedforget.arrays import Floats, Ints, UInts
from fedforget.clustering.lloyd import Moments, Restarts, threshold_of
from fedforget.clustering.race import Race
from fedforget.clustering.replay import walk
from fedforget.clustering.replay.parts import table_of
from fedforget.clustering.replay.points import set_features
from fedforget.clustering.replay.state import (
    ABSENT,
    FULL,
    GROW,
    READY,
    RERUN,
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
_ROWS_PER_RESTART = 16
_NOTHING = np.empty((0, 4), dtype=np.int64)

Result = TypeVar("Result")
Draws = TypeVar("Draws", bound=Restarts)


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


class Replay(Generic[Draws, Result]):
    """Points in slots, and the rows of every restart that fits the memory limit.

    Parameters
    ----------
    task : what is to be computed.
    points : the points, whose origin and bounds are still to be set.
    moments : theirs, where there is a tolerance.
    total : their weight.
    work : where costs are noted.
    """

    def __init__(
        self, task: Task, points: Points, moments: Moments | None, total: int, work: Work
    ) -> None:
        self.task = task
        self.points = points
        self.moments = moments
        self.total = total
        self.threshold = threshold_of(moments, task.tol)
        self.n_rows = 0
        self.absent: dict[int, Result] = {}
        self.dropped: set[int] = set()
        slots, d = points.values.shape
        self.nothing = np.empty((0, d)), np.empty((0, 2), dtype=np.uint64)
        self._allocate(Sizes(slots, d, task.n_clusters, task.n_init))
        self._set_features()
        parts = (self.points, self.rows, self.margins, self.estimates, self.runs, self.scratch)
        self._tables = [table_of(part) for part in parts if part is not None]
        self._kernel = walk.replay_by_estimates if self.margins is None else walk.replay_by_margins
        self._run(range(task.n_init), work)

    weights_change: ClassVar[bool]
    """Whether a point's weight can change while it stays; only then do runners-up matter."""

    # -- what the points are -------------------------------------------------------------------

    def in_use(self) -> Ints:
        """The slots with points; where there is a canonical order, in that order."""
        raise NotImplementedError

    def _restarts(self) -> Draws:
        """The points as they are now, in the order of :meth:`in_use`."""
        raise NotImplementedError

    def _result(self, restarts: Draws, seeds: Ints, number: int) -> tuple[Result, int]:
        """What a full run of a restart comes to, and its iterations."""
        raise NotImplementedError

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

    def _set_features(self) -> None:
        """Let the strategy know the points."""
        points = table_of(self.points)
        if self.margins is not None:
            set_features(points, self.margins.features, self.margins.lengths)
        if self.estimates is not None:
            set_features(points, self.estimates.features, np.empty(0, dtype=np.float32))
            self.estimates.place[:] = -1
            slots, d = self.points.values.shape
            n = int(self.points.summary["n"])
            # Inner products of all points pay where each has its part in many columns.
            columns = _ROWS_PER_RESTART * self.task.n_init * self.task.n_clusters
            if len(self.estimates.known) == slots and n < min(d * self.task.n_clusters, columns):
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

    def _run(self, numbers: Iterable[int], work: Work) -> None:
        """Run restarts from the start; those that cannot be replayed are run without rows."""
        restarts, runs = self._restarts(), self.runs
        in_use = self.in_use()
        pool, heads = runs.pool, runs.restarts
        for number in numbers:
            work.restarts += 1
            self.absent.pop(number, None)
            self._release(number)
            heads["status"][number] = ABSENT
            race = restarts.seed(number, runners_up=self.weights_change)
            while number not in self.dropped and not pool["free"] and heads["length"].any():
                self._drop()
            few = len(race.rows) < self.task.n_clusters
            if few or number in self.dropped or not pool["free"]:
                self._run_absent(restarts, number, race, work)
                continue
            runs.seeds[number]["slot"] = in_use[race.rows]
            runs.seeds[number]["score"] = race.scores
            runs.seeds[number]["runner_up"] = race.runners_up or np.inf
            pool["free"] -= 1
            runs.where[number, 0] = runs.free[pool["free"]]
            heads[number] = START, 1, 0, False
        # They may hold a copy of all points.
        del restarts
        self._replay(_NOTHING, *self.nothing, work)
        crowded_out = np.flatnonzero(heads["status"] == RERUN).tolist()
        if crowded_out:
            restarts = self._restarts()
        for number in crowded_out:
            self._release(number)
            self._run_absent(restarts, number, restarts.seed(number), work)

    def _run_absent(self, restarts: Draws, number: int, race: Race, work: Work) -> None:
        """Run a restart and keep its result alone."""
        seeds = np.array(race.rows, dtype=np.int64)
        self.absent[number], n_iter = self._result(restarts, seeds, number)
        self.runs.losses["stale"][number] = True
        self.runs.restarts[number] = ABSENT, 0, n_iter, False
        work.distances += self._distances_of(n_iter)

    def _replay(self, changed: Ints, values: Floats, keys: UInts, work: Work) -> None:
        """Let the kernel bring every restart with rows up to date, however many rows it takes."""
        task, status = self.task, self.runs.restarts["status"]
        self._kernel(
            *self._tables, changed, values, keys, task.max_iter, self.total, self.threshold
        )
        tally = self.scratch.tally
        work.points += int(tally["labels"])
        work.distances += int(tally["distances"])
        self.n_rows = int(tally["rows"])
        if FULL in status.tolist():
            self._drop()
            status[status == FULL] = GROW
            self._replay(_NOTHING, *self.nothing, work)

    # -- following -----------------------------------------------------------------------------

    def follow(self, changed: Ints, values: Floats, keys: UInts, work: Work) -> None:
        """Bring points and every restart up to date; ``total`` is up to date already.

        Parameters
        ----------
        changed : of each point its slot, its weights before and after, and its place in the order.
        values, keys : those of the points that come.
        """
        self._make_room_for_products()
        if self.moments is not None and len(changed):
            self._follow_moments(self.moments, changed, values)
        self._replay(changed, values, keys, work)
        status = self.runs.restarts["status"].tolist()
        if any(status):
            self._run([number for number, state in enumerate(status) if state != READY], work)

    def _follow_moments(self, moments: Moments, changed: Ints, new: Floats) -> None:
        """Bring moments and threshold up to date, before the points in the slots are."""
        slots, before, after, _ = changed.T
        values = self.points.values[slots]
        values[before == 0] = new
        moments.add(self.steps_of(values), after - before)
        self.threshold = threshold_of(moments, self.task.tol)

    def steps_of(self, values: Floats) -> Ints:
        """Values in whole steps."""
        points = self.points
        rounded = (values + points.rounders) - points.rounders
        rounded *= points.summary["scale"]
        rounded *= points.per_unit
        steps: Ints = rounded.astype(np.int64)
        return steps

    def _make_room_for_products(self) -> None:
        """Forget all inner products when there is no room left for those of another point."""
        estimates = self.estimates
        if estimates is not None:
            known = int(estimates.count["known"])
            if len(estimates.known) <= known < int(self.points.summary["n"]):
                estimates.place[:] = -1
                estimates.count["known"] = 0

    # -- results -------------------------------------------------------------------------------

    def _distances_of(self, n_iter: int) -> int:
        return (n_iter + 1) * int(self.points.summary["n"]) * self.task.n_clusters

    def full_distances(self) -> int:
        """How many distances the assignments of a full run compute."""
        here: int = self.n_rows * int(self.points.summary["n"]) * self.task.n_clusters
        n_iter = self.runs.restarts["n_iter"].tolist()
        return here + sum(self._distances_of(n_iter[number]) for number in self.absent)

    def contenders(self) -> list[int]:
        """The restarts with rows that may be the first to have the lowest loss."""
        return np.flatnonzero(self.runs.restarts["contends"]).tolist()

    def last_row(self, number: int) -> int:
        """Where the last row of a restart is."""
        length = int(self.runs.restarts["length"][number])
        return int(self.runs.where[number, length - 1])
