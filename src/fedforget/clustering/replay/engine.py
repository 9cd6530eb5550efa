"""The trajectories of a full run, kept, and brought up to date when points change.

This is the Python around the kernels: it gives points their slots and restarts their rows, and runs
in full what cannot be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from fedforget.arrays import Floats, Ints, UInts
from fedforget.clustering.lloyd import Moments, Restarts, threshold_of
from fedforget.clustering.race import Candidates
from fedforget.clustering.replay import walk
from fedforget.clustering.replay.columns import NEVER
from fedforget.clustering.replay.lanes import fill_tiles
from fedforget.clustering.replay.pair_products import know_all, know_arrivals
from fedforget.clustering.replay.parts import table_of
from fedforget.clustering.replay.points import change_moments, set_features
from fedforget.clustering.replay.products import address_of_sgemm, blas_threads
from fedforget.clustering.replay.room import room_for
from fedforget.clustering.replay.state import (
    ABSENT,
    AFTER,
    BEFORE,
    CHANGE_COLUMNS,
    FULL,
    GROW,
    READY,
    RERUN,
    SLOT,
    STANDS,
    START,
    Assignments,
    ColumnSets,
    Estimates,
    Margins,
    Points,
    Runs,
    Scratch,
    Sizes,
    allocate,
    specs,
)

MOST_CLUSTERS = 1 << 15
"""Labels of more clusters would not fit their type."""

WORTH_A_THREAD = 1 << 20
"""Slots times features times clusters from which threads take less time than they cost."""

NO_BOUND = np.iinfo(np.int64).max
"""The most rows of a restart that has to keep all of its rows, or none."""

FEWEST_ROWS = 3
"""A restart that keeps so many rows or more can be walked: the first one, and the last two."""

ROOM_TO_RETURN = 1.25
"""A restart that was dropped keeps rows again where so many times its last ones would fit."""

_BATCH = 512
_ROWS_PER_RESTART = 16
_NOTHING = np.empty((0, CHANGE_COLUMNS), dtype=np.int64)

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
    unkept : how many iterations of the others are not kept, as there is no room for them: they are
        run again with each change.
    """

    points: int = 0
    distances: int = 0
    full_distances: int = 0
    restarts: int = 0
    unkept: int = 0


@dataclass(frozen=True)
class Task:
    """What is to be computed: no reference to a server, or both would outlive their use."""

    n_clusters: int
    n_init: int
    max_iter: int
    tol: float
    memory_limit: int
    n_threads: int = 1
    greedy: bool = False


class ChangedSlots(NamedTuple):
    """Points that come, go, or change their weights.

    Attributes
    ----------
    changed : a row per point, with the columns SLOT, BEFORE, AFTER and PLACE of the state.
    values, keys : those of the points that come.
    """

    changed: Ints
    values: Floats
    keys: UInts


class Drawn(NamedTuple):
    """The seeds of a restart: what is left of its race.

    Attributes
    ----------
    slots : the slots of the seeds.
    scores : with which they have won.
    runners_up : of each a bound on the score of whoever comes second, where it is asked for.
    candidates : those of a greedy race, with slots for rows.
    """

    slots: Ints
    scores: list[float]
    runners_up: list[float] | None
    candidates: Candidates | None


@dataclass
class Hand:
    """What a thread has for itself: working memory, and rows to take.

    Attributes
    ----------
    tables : of all parts, as a kernel takes them.
    runs, scratch, margins : the arrays behind them.
    """

    tables: list[Ints]
    runs: Runs
    scratch: Scratch
    margins: Margins

    @classmethod
    def of(cls, points: Ints, rows: Ints, replay: Replay[Any, Any], sizes: Sizes) -> Hand:
        """A thread's part of a replay by margins."""
        own = allocate(Margins, replace(sizes, rows=0))
        own.factors[sizes.clusters :, -1] = np.inf
        assert replay.margins is not None
        margins = replay.margins._replace(
            **{name: getattr(own, name) for name, spec in specs(Margins).items() if spec.is_working}
        )
        runs = replay.runs._replace(
            free=np.empty_like(replay.runs.free), pool=np.zeros_like(replay.runs.pool)
        )
        # What the change says of points that come, every thread reads.
        scratch = allocate(Scratch, sizes)._replace(arrivals=replay.scratch.arrivals)
        tables = [points, rows, table_of(margins), table_of(runs), table_of(scratch)]
        return cls(tables, runs, scratch, margins)

    def begin(self, free: Ints) -> None:
        """Begin with some free rows."""
        self.runs.free[: len(free)] = free
        self.runs.pool["free"] = len(free)
        self.scratch.tally[...] = 0

    def left(self) -> Ints:
        """The rows that are free."""
        rows: Ints = self.runs.free[: int(self.runs.pool["free"])]
        return rows


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
        sizes = self._allocate(Sizes(slots, d, task.n_clusters, task.n_init))
        self._set_features()
        kept, self._kernel = self._strategy()
        parts = (self.points, self.rows, kept, self.runs, self.scratch)
        self._tables = [table_of(part) for part in parts]
        self._crew = self._make_crew(sizes)
        self._run(range(task.n_init), ChangedSlots(_NOTHING, *self.nothing), work)

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

    def _note_candidates(self, number: int, drawn: Candidates | None) -> None:
        """Keep what tells whether a restart's seeds stand, if they were drawn greedily."""

    # -- room ----------------------------------------------------------------------------------

    def _allocate(self, sizes: Sizes) -> Sizes:
        """What rows keep, and as many rows as the memory limit leaves."""
        task = self.task
        room = room_for(sizes, task.memory_limit, task.max_iter, weights_change=self.weights_change)
        self.row_bytes, self.product_bytes = room.row_bytes, room.product_bytes
        self.column_bytes = room.column_bytes
        sizes, rows = room.sizes, room.sizes.rows
        self.rows = allocate(Assignments, sizes)
        self.margins = allocate(Margins, sizes) if room.strategy is Margins else None
        self.columns = allocate(ColumnSets, sizes) if room.strategy is ColumnSets else None
        self.estimates = allocate(Estimates, sizes) if room.strategy is Estimates else None
        if self.margins is not None:
            self.margins.factors[sizes.clusters :, -1] = np.inf
            self.margins.library["sgemm"] = address_of_sgemm() if sizes.block else 0
        if self.columns is not None:
            self.columns.library["sgemm"] = address_of_sgemm()
            self.columns.journey["places"] = room.sets
            self.columns.journey["most_gains"] = room.most_gains
            self.columns.sets["change"] = NEVER
        self.runs = allocate(Runs, sizes)
        self.runs.free[:] = np.arange(rows - 1, -1, -1)
        self.runs.pool["free"] = rows
        self.runs.restarts["status"] = ABSENT
        self.runs.losses["stale"] = True
        # Margins alone know what they are about without the rows before.
        keeps_few = self.margins is not None and sizes.longest >= FEWEST_ROWS
        self.runs.most[:] = sizes.longest if keeps_few else NO_BOUND
        self.scratch = allocate(Scratch, sizes)
        return sizes

    def _strategy(self) -> tuple[Margins | Estimates | ColumnSets, Any]:
        """The part of the state that tells which labels can have changed, and its kernel."""
        if self.margins is not None:
            return self.margins, walk.replay_by_margins
        if self.columns is not None:
            return self.columns, walk.replay_by_columns
        assert self.estimates is not None
        return self.estimates, walk.replay_by_estimates

    def _make_crew(self, sizes: Sizes) -> list[Hand]:
        """Working memory for each thread, if several pay."""
        n_threads = min(self.task.n_threads, self.task.n_init)
        work = sizes.slots * sizes.features * sizes.clusters
        if self.margins is None or n_threads == 1 or work < WORTH_A_THREAD:
            return []
        points, rows = self._tables[:2]
        return [Hand.of(points, rows, self, sizes) for _ in range(n_threads)]

    def _set_features(self) -> None:
        """Let the strategy know the points."""
        points = table_of(self.points)
        if self.margins is not None:
            kept = self.margins
            set_features(points, np.empty((0, 1), dtype=np.float64), kept.coordinates, kept.lengths)
            if len(kept.turned):
                weights = self.points.weights
                fill_tiles(kept.coordinates, np.arange(len(weights)), weights, kept.turned)
        nothing = np.empty((0, 1), dtype=np.float32)
        if self.columns is not None:
            empty = np.empty((0, 1), dtype=np.float64)
            set_features(points, empty, self.columns.coordinates, nothing[:, 0].copy())
            with blas_threads(self.task.n_threads):
                know_all(self.columns, float(self.points.summary["radius2"]))
        if self.estimates is not None:
            set_features(points, self.estimates.features, nothing, nothing[:, 0].copy())
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
        return used * self.row_bytes + known * self.product_bytes + self.column_bytes

    def _give_back(self, number: int, first: int, end: int) -> None:
        """Let the rows in some places of a restart be free."""
        runs = self.runs
        free = int(runs.pool["free"])
        runs.free[free : free + end - first] = runs.where[number, first:end]
        runs.pool["free"] += end - first

    def _release(self, number: int) -> None:
        """Give the rows of a restart back."""
        restart = self.runs.restarts[number]
        self._give_back(number, 0, int(restart["length"]))
        self.n_rows -= int(restart["taken"])
        restart["length"] = restart["taken"] = 0

    def _make_room(self) -> None:
        """Let restarts keep fewer rows; where that does not help, drop one."""
        level = self._level()
        if level < FEWEST_ROWS:
            self._drop()
            return
        self.runs.most[:] = level
        for number in np.flatnonzero(self.runs.restarts["length"] > level).tolist():
            self._shorten(number, level)

    def _level(self) -> int:
        """How many rows each restart may keep, so that there is room for all; 0 if for none.

        Those whose runs take fewer leave their rows to the others.
        """
        if self.margins is None or self.runs.most[0] == NO_BOUND:
            return 0
        heads = self.runs.restarts
        wanted = np.where(heads["status"] == READY, heads["taken"], self.runs.where.shape[1])
        left, level = len(self.rows.witness), 0
        numbers = [number for number in range(self.task.n_init) if number not in self.dropped]
        for place, most in enumerate(sorted(int(wanted[number]) for number in numbers)):
            level = left // (len(numbers) - place)
            if level < most:
                return level
            left -= most
        return int(self.runs.where.shape[1])

    def _drop(self) -> None:
        """The first restart that has rows is run in full, until there is room for it again."""
        number = int(np.flatnonzero(self.runs.restarts["length"])[0])
        self._release(number)
        self.dropped.add(number)
        self.runs.restarts["status"][number] = RERUN

    def _shorten(self, number: int, length: int) -> None:
        """Of the rows of a restart, keep the first ones and the last two."""
        where, before = self.runs.where[number], int(self.runs.restarts["length"][number])
        self._give_back(number, length - 2, before - 2)
        where[length - 2 : length] = where[before - 2 : before]
        self.runs.restarts["length"][number] = length

    # -- running restarts ----------------------------------------------------------------------

    def _run(self, numbers: Iterable[int], change: ChangedSlots, work: Work) -> None:
        """Draw the seeds of some restarts, and run these from the start.

        One whose seeds are what they were follows the change instead; one that cannot be replayed
        is run without rows.
        """
        runs = self.runs
        pool, heads = runs.pool, runs.restarts
        restarts: Draws | None = None
        for number, drawn in self._draw(list(numbers)).items():
            stands = np.array_equal(runs.seeds[number]["slot"], drawn.slots)
            if heads["length"][number] and stands:
                heads["status"][number] = STANDS
                self._note_seeds(number, drawn)
                continue
            work.restarts += 1
            self.absent.pop(number, None)
            self._release(number)
            heads["status"][number] = ABSENT
            while number not in self.dropped and not pool["free"] and heads["length"].any():
                self._make_room()
            if pool["free"] > ROOM_TO_RETURN * heads["n_iter"][number] + FEWEST_ROWS:
                self.dropped.discard(number)
            few = len(drawn.slots) < self.task.n_clusters
            if few or number in self.dropped or not pool["free"]:
                restarts = restarts or self._restarts()
                self._run_absent(restarts, number, self._places_of(drawn.slots), work)
                continue
            self._note_seeds(number, drawn)
            pool["free"] -= 1
            runs.where[number, 0] = runs.free[pool["free"]]
            heads[number] = START, 1, 1, 0, False
        # They may hold a copy of all points.
        del restarts
        self._replay(change, work, walk.OTHERS | walk.SETTLE)
        crowded_out = (heads["status"] == RERUN).nonzero()[0].tolist()
        if crowded_out:
            restarts = self._restarts()
        for number in crowded_out:
            self._release(number)
            seeds = np.array(restarts.seed(number).rows, dtype=np.int64)
            self._run_absent(restarts, number, seeds, work)

    def _places_of(self, slots: Ints) -> Ints:
        """Where some slots are among those in use."""
        in_use = self.in_use()
        ordered = np.argsort(in_use)
        places: Ints = ordered[np.searchsorted(in_use, slots, sorter=ordered)]
        return places

    def _note_seeds(self, number: int, drawn: Drawn) -> None:
        """Keep the seeds of a restart, and what tells later whether they stand."""
        seeds = self.runs.seeds[number]
        seeds["slot"] = drawn.slots
        seeds["score"] = drawn.scores
        seeds["runner_up"] = drawn.runners_up or np.inf
        self._note_candidates(number, drawn.candidates)

    def _draw(self, numbers: list[int]) -> dict[int, Drawn]:
        """Draw the seeds of some restarts."""
        restarts, in_use = self._restarts(), self.in_use()

        def seed(number: int) -> Drawn:
            race = restarts.seed(number, runners_up=self.weights_change)
            if race.candidates is not None:
                rows = race.candidates.rows
                rows[:] = np.where(rows >= 0, in_use[rows], -1)
            slots = in_use[np.array(race.rows, dtype=np.int64)]
            return Drawn(slots, race.scores, race.runners_up, race.candidates)

        return self._for_each(seed, numbers)

    def _for_each(self, seed: Callable[[int], Drawn], numbers: list[int]) -> dict[int, Drawn]:
        """Draw the seeds of some restarts, by several threads if there are any."""
        if not self._crew:
            return {number: seed(number) for number in numbers}
        with ThreadPoolExecutor(len(self._crew)) as threads:
            return dict(zip(numbers, threads.map(seed, numbers), strict=True))

    def _run_absent(self, restarts: Draws, number: int, seeds: Ints, work: Work) -> None:
        """Run a restart and keep its result alone; its seeds are places among slots in use."""
        self.absent[number], n_iter = self._result(restarts, seeds, number)
        self.runs.losses["stale"][number] = True
        self.runs.restarts[number] = ABSENT, 0, 0, n_iter, False
        work.distances += self._distances_of(n_iter)

    def _replay(
        self, change: ChangedSlots, work: Work, stages: int, *, alone: bool = False
    ) -> None:
        """Let the kernel bring restarts with rows up to date, however many rows it takes.

        ``alone`` asks for one thread, which may take any row that is free.
        """
        task, status = self.task, self.runs.restarts["status"]
        tally = self.scratch.tally
        tally[...] = 0
        rest = *change, task.max_iter, self.total, self.threshold
        with self._library_threads():
            if self.columns is not None and stages & walk.CHANGE:
                # What the walks will want to know of the points that come.
                self._kernel(*self._tables, *rest, walk.CHANGE, 0, 0)
                arrivals = change.changed[change.changed[:, BEFORE] == 0, SLOT]
                know_arrivals(self.columns, arrivals, float(self.points.summary["radius2"]))
                stages &= ~walk.CHANGE
            if alone or not self._crew:
                self._kernel(*self._tables, *rest, stages, 0, task.n_init)
            else:
                self._kernel(*self._tables, *rest, stages & walk.CHANGE, 0, 0)
                self._share_out(rest, stages & walk.OTHERS)
                self._kernel(*self._tables, *rest, stages & walk.SETTLE, 0, 0)
        work.points += int(tally["labels"])
        work.distances += int(tally["distances"])
        self.n_rows, work.unkept = int(tally["rows"]), int(tally["unkept"])
        if FULL in status.tolist():
            self._make_room()
            status[status == FULL] = GROW
            self._replay(change, work, walk.OTHERS | walk.SETTLE, alone=True)
        elif work.unkept:
            # With the next change, restarts may take rows that others do not want.
            self.runs.most[:] = np.maximum(self.runs.most, self._level())

    def _library_threads(self) -> AbstractContextManager[Any]:
        """Let products of matrices use the cores that threads of our own leave."""
        if self.columns is None and (self.margins is None or not len(self.margins.block)):
            return nullcontext()
        return blas_threads(max(1, self.task.n_threads // max(1, len(self._crew))))

    def _share_out(self, rest: tuple[Any, ...], stages: int) -> None:
        """Let threads walk the restarts; each has a part of the free rows meanwhile."""
        crew, pool, runs = self._crew, self.runs.pool, self.runs
        free = runs.free[: int(pool["free"])].copy()
        for number, hand in enumerate(crew):
            hand.begin(free[number :: len(crew)])
        numbers = iter(range(self.task.n_init))

        def walk_some(hand: Hand) -> None:
            for number in numbers:
                self._kernel(*hand.tables, *rest, stages, number, number + 1)

        with ThreadPoolExecutor(len(crew)) as threads:
            list(threads.map(walk_some, crew))
        left = np.concatenate([hand.left() for hand in crew])
        runs.free[: len(left)] = left
        pool["free"] = len(left)
        for hand in crew:
            for name in ("labels", "distances"):
                self.scratch.tally[name] += hand.scratch.tally[name]

    # -- following -----------------------------------------------------------------------------

    def follow(self, change: ChangedSlots, work: Work) -> None:
        """Bring points and every restart up to date; ``total`` is up to date already."""
        self._prepare_products()
        if self.moments is not None and len(change.changed):
            self._follow_moments(self.moments, change)
        self._replay(change, work, walk.CHANGE | walk.SETTLE)
        status = self.runs.restarts["status"].tolist()
        if any(status):
            pending = [number for number, state in enumerate(status) if state != READY]
            self._run(pending, change, work)

    def _follow_moments(self, moments: Moments, change: ChangedSlots) -> None:
        """Bring moments and threshold up to date, before the points in the slots are."""
        changed = change.changed
        moments.weight += int((changed[:, AFTER] - changed[:, BEFORE]).sum())
        squares = moments.squares
        change_moments(self._tables[0], change.changed, change.values, moments.sums, squares)
        self.threshold = threshold_of(moments, self.task.tol)

    def _prepare_products(self) -> None:
        """Know all inner products where a change is likely to need many; a fit needs few.

        Else forget all when there is no room left for those of another point.
        """
        estimates = self.estimates
        if estimates is None:
            return
        slots, d = self.points.values.shape
        n, known = int(self.points.summary["n"]), int(estimates.count["known"])
        most = len(estimates.known)
        if known < most == slots and n < d * self.task.n_clusters:
            self._know_everything(estimates)
        elif most <= known < n:
            estimates.place[:] = -1
            estimates.count["known"] = 0

    # -- results -------------------------------------------------------------------------------

    def _distances_of(self, n_iter: int) -> int:
        return (n_iter + 1) * int(self.points.summary["n"]) * self.task.n_clusters

    def full_distances(self) -> int:
        """How many distances the assignments of a full run compute."""
        here: int = self.n_rows * int(self.points.summary["n"]) * self.task.n_clusters
        if self.absent:
            n_iter = self.runs.restarts["n_iter"].tolist()
            here += sum(self._distances_of(n_iter[number]) for number in self.absent)
        return here

    def contenders(self) -> list[int]:
        """The restarts with rows that may be the first to have the lowest loss."""
        contend = self.runs.restarts["contends"].tolist()
        return [number for number, contends in enumerate(contend) if contends]

    def last_row(self, number: int) -> int:
        """Where the last row of a restart is."""
        length = int(self.runs.restarts["length"][number])
        return int(self.runs.where[number, length - 1])
