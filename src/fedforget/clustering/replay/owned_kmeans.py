"""K-means of one owner's records, which follows what comes and goes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fedforget.arrays import Floats, Ints, Labels, UInts
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.greedy import NO_ROWS, coarse_of, n_candidates_of
from fedforget.clustering.ids import Ids
from fedforget.clustering.lloyd import threshold_of
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import Candidates, first_difference
from fedforget.clustering.record_kmeans import RecordRestarts, exact_loss
from fedforget.clustering.replay.candidates import FALL, GONE, STAND, choices_stand
from fedforget.clustering.replay.engine import (
    MOST_CLUSTERS,
    ChangedSlots,
    Drawn,
    Replay,
    Task,
    Work,
)
from fedforget.clustering.replay.erasing import erase_coordinates, erase_from_rows
from fedforget.clustering.replay.record_slots import RecordSlots
from fedforget.clustering.replay.slot_races import SlotRaces
from fedforget.clustering.replay.state import (
    AFTER,
    BEFORE,
    CHANGE_COLUMNS,
    PLACE,
    READY,
    RERUN,
    SLOT,
    Margins,
    Sizes,
)
from fedforget.clustering.rounding import Rounding

MANY_GONE = 16
"""Where one record in so many goes, rows that were given back are overwritten as a whole."""


class Outcome(NamedTuple):
    """Where a restart ended.

    Attributes
    ----------
    centres : in coordinates; fewer than asked for where there are fewer distinct records.
    labels : the cluster of each slot; -1 where there is no record.
    sums, totals : of each cluster the sum of its records, in steps, and their number.
    n_iter : iterations.
    seeds : the slots of the seeds, in the order of drawing.
    """

    centres: Floats
    labels: Labels
    sums: Ints
    totals: Ints
    n_iter: int
    seeds: Ints


def restarts_of(
    records: RecordSlots, slots: Ints, task: Task, table: Ints | None = None
) -> RecordRestarts:
    """Records in coordinates, ready to be clustered.

    ``table`` is that of the points, where there is one.
    """
    return RecordRestarts(
        Rows(records.coordinates(slots, table)),
        None,
        Keys.of_words(records.points.keys[slots]),
        task.n_clusters,
        task.max_iter,
        threshold_of(records.moments, task.tol),
        records.ids[slots],
        records.rounding,
        n_candidates_of(task.n_clusters) if task.greedy else 1,
    )


def run_in_full(restarts: RecordRestarts, slots: Ints, seeds: Ints, capacity: int) -> Outcome:
    """Lloyd's iteration from given seeds, without a trace."""
    run = restarts.lloyd(seeds)
    labels = np.full(capacity, -1, dtype=np.int32)
    labels[slots] = run.labels
    return Outcome(run.centres, labels, run.sums, run.totals, run.n_iter, slots[seeds])


def in_full(records: RecordSlots, task: Task) -> tuple[list[Outcome], list[Fraction]]:
    """Where each restart ends, run without a trace, and its exact loss in coordinates."""
    slots = records.in_use()
    restarts = restarts_of(records, slots, task)
    outcomes = []
    for number in range(task.n_init):
        seeds = np.array(restarts.seed(number).rows, dtype=np.int64)
        outcomes.append(run_in_full(restarts, slots, seeds, len(records.ids)))
    moments = records.moments
    return outcomes, [exact_loss(moments, one.centres, one.sums, one.totals) for one in outcomes]


class RecordReplay(Replay[RecordRestarts, Outcome]):
    """Trajectories of one owner's records, whose weights are 1 and which know no order."""

    weights_change = False

    def __init__(self, task: Task, records: RecordSlots, work: Work) -> None:
        self.records = records
        self.candidates: Candidates | None = None
        self.races: SlotRaces | None = None
        self._reusable: list[int] = []
        self._gone = NO_ROWS
        if task.greedy:
            shape = task.n_init, task.n_clusters, n_candidates_of(task.n_clusters)
            self.candidates = Candidates.none(*shape)
            if SlotRaces.are_for(records, shape[-1]):
                self.races = SlotRaces(records, *shape, task.memory_limit)
        super().__init__(task, records.points, records.moments, len(records), work)
        self._clear_working_memory()

    def _allocate(self, sizes: Sizes) -> Sizes:
        sizes = super()._allocate(sizes)
        self._written = np.zeros(len(self.rows.witness), dtype=np.bool_)
        self._is_gone = np.zeros(sizes.slots, dtype=np.bool_)
        return sizes

    def in_use(self) -> Ints:
        return self.records.in_use()

    def _restarts(self) -> RecordRestarts:
        return restarts_of(self.records, self.in_use(), self.task, self._tables[0])

    def _draw(self, numbers: list[int]) -> dict[int, Drawn]:
        if self.races is None:
            return super()._draw(numbers)
        races, reusable, gone = self.races, self._reusable, self._gone
        self._reusable, self._gone = [], NO_ROWS

        def seed(number: int) -> Drawn:
            candidates = self._to_draw(number, number in reusable)
            race = races.run(number, gone, candidates)
            seeds = np.array(race.rows, dtype=np.int64)
            return Drawn(seeds, race.scores, None, candidates)

        return self._for_each(seed, numbers)

    def _to_draw(self, number: int, are_reusable: bool) -> Candidates:
        """The candidates of a restart, of which those that have gone, or all, are to be drawn."""
        assert self.candidates is not None
        candidates = self.candidates.of_restart(number)
        slots = candidates.rows
        if are_reusable:
            slots[(self.points.weights[slots] == 0) & (slots >= 0)] = kernels.TO_DRAW
        else:
            slots.fill(kernels.TO_DRAW)
        return candidates

    def _result(self, restarts: RecordRestarts, seeds: Ints, number: int) -> tuple[Outcome, int]:
        capacity = len(self.points.weights)
        outcome = run_in_full(restarts, self.in_use(), seeds, capacity)
        return outcome, outcome.n_iter

    def _note_candidates(self, number: int, drawn: Candidates | None) -> None:
        if drawn is None or self.candidates is None:
            return
        if self.races is None:
            kept = self.candidates.of_restart(number)
            kept.rows[:] = drawn.rows
            kept.scores[:] = drawn.scores
            kept.totals[:] = drawn.totals
            kept.chosen[:] = drawn.chosen
        # The candidates tell whether seeds stand.  Nobody scores 0, so the seeds alone always do.
        self.runs.seeds[number]["score"] = 0.0

    def follow(self, change: ChangedSlots, work: Work) -> None:
        if self.candidates is not None and len(change.changed):
            self._follow_candidates(self.candidates, change)
        if self.races is not None and len(change.values):
            slots = change.changed[change.changed[:, BEFORE] == 0, SLOT]
            self.races.put(slots, self.records.places_of(change.values), change.keys)
        super().follow(change, work)

    def _follow_candidates(self, kept: Candidates, change: ChangedSlots) -> None:
        """Let restarts that may choose another seed be drawn again; the points are as before."""
        status, (m, d) = self.runs.restarts["status"], (len(change.changed), change.values.shape[1])
        stand = np.where(status == READY, STAND, FALL)
        drawn = kept.rows, kept.scores, kept.totals, kept.chosen
        working = np.empty((m, d)), np.empty(m), np.empty((kept.rows.shape[2], m)), np.empty(d)
        choices_stand(self._tables[0], *drawn, *change, coarse_of(d), *working, stand)
        # They are places of records that go.
        for part in working:
            part.fill(0.0)
        status[(status == READY) & (stand != STAND)] = RERUN
        self._reusable, self._gone = [], NO_ROWS
        # A record that comes could win any race.
        if not len(change.values):
            self._reusable = (stand == GONE).nonzero()[0].tolist()
            self._gone = change.changed[:, SLOT].copy()

    def outcome(self, number: int) -> Outcome:
        """Where a restart ended; a copy, except for its labels."""
        if number in self.absent:
            return self.absent[number]
        rows, row = self.rows, self.last_row(number)
        totals = rows.sums[row, :, -1].copy()
        origin = self.points.origin
        sums = rows.sums[row, :, : len(origin)] + totals[:, np.newaxis] * origin
        n_iter = int(self.runs.restarts["n_iter"][number])
        centres, seeds = rows.centres[row].copy(), self.seeds_of(number)
        return Outcome(centres, rows.labels[row], sums, totals, n_iter, seeds)

    def seeds_of(self, number: int) -> Ints:
        """The slots of a restart's seeds."""
        if number in self.absent:
            return self.absent[number].seeds
        seeds: Ints = self.runs.seeds[number]["slot"].copy()
        return seeds

    # -- erasing -------------------------------------------------------------------------------

    def _give_back(self, number: int, first: int, end: int) -> None:
        self._blank(self.runs.where[number, first:end])
        super()._give_back(number, first, end)

    def _replay(
        self, change: ChangedSlots, work: Work, stages: int, *, alone: bool = False
    ) -> None:
        before = self.runs.restarts["length"].copy()
        super()._replay(change, work, stages, alone=alone)
        shorter = (self.runs.restarts["length"] < before).nonzero()[0].tolist()
        if shorter:
            after = self.runs.restarts["length"]
            given_back = [self.runs.where[r, after[r] : before[r]] for r in shorter]
            # Another restart may have taken some of them at once.
            self._blank(np.setdiff1d(np.concatenate(given_back), self._rows_in_use()))

    def _rows_in_use(self) -> Ints:
        lengths = self.runs.restarts["length"].tolist()
        return np.concatenate([self.runs.where[r, :length] for r, length in enumerate(lengths)])

    def _blank(self, rows: Ints) -> None:
        """Overwrite rows that are given back: seeds, and clusters of one record, are records."""
        self._written[rows] = True
        self.rows.centres[rows] = 0.0
        self.rows.sums[rows] = 0
        if self.margins is not None:
            self.margins.anchors[rows] = 0.0

    def erase(self, slots: Ints) -> None:
        """Overwrite what is known of records that have gone."""
        self._clear_working_memory()
        if self.races is not None:
            self.races.erase(slots)
        if self.margins is not None:
            erase_coordinates(self.margins.coordinates, self.margins.turned, slots)
            self._erase_margins(self.margins, slots)
            if len(self.margins.bounds):
                for margins in self._margins_of_all():
                    # From its distances to many centres a record could be computed.
                    margins.bounds[slots] = 0.0
                    margins.farthest[slots] = 0.0
                    margins.measured_on[slots] = 0
                self.margins.lengths[slots] = 0.0
        if self.estimates is not None:
            estimates = self.estimates
            estimates.vectors.fill(0.0)
            estimates.features[:, slots] = 0.0
            estimates.products[:, slots] = 0.0
            known = estimates.place[slots]
            estimates.products[known[known >= 0]] = 0.0
            # From its estimates for many centres a record could be computed.
            self._written[self._rows_in_use()] = True
            written, clusters = np.flatnonzero(self._written), np.arange(self.task.n_clusters)
            estimates.columns[np.ix_(written, clusters, slots)] = 0.0
            self.rows.labels[np.ix_(written, slots)] = -1
            estimates.near[np.ix_(written, slots)] = -np.inf
            estimates.other[np.ix_(written, slots)] = np.inf

    def _erase_margins(self, margins: Margins, slots: Ints) -> None:
        """Overwrite what rows know of records that have gone."""
        labels, reserves = self.rows.labels, margins.reserves
        free = self.runs.free[: int(self.runs.pool["free"])]
        given_back = free[self._written[free]]
        if MANY_GONE * len(slots) > len(self._is_gone):
            # It takes no longer to overwrite these rows as a whole, and only once.
            labels[given_back], reserves[given_back] = -1, 0.0
            self._written[given_back] = False
            given_back = given_back[:0]
        rows = self._rows_in_use()
        listed = margins.rows["listed"][rows]
        kept = labels, reserves, margins.border, margins.border_margins
        erase_from_rows(*kept, rows, listed, given_back, slots, self._is_gone)

    def _prepare_products(self) -> None:
        known = 0 if self.estimates is None else int(self.estimates.count["known"])
        super()._prepare_products()
        if self.estimates is not None and int(self.estimates.count["known"]) < known:
            # From its products with many others a record could be computed.
            self.estimates.products[:known] = 0.0

    def _clear_working_memory(self) -> None:
        """Overwrite the places of points and centres, those of other threads included."""
        for scratch in (self.scratch, *(hand.scratch for hand in self._crew)):
            for place in (scratch.place, scratch.other_place, scratch.point, scratch.centre):
                place.fill(0.0)
            scratch.column[: self.task.n_clusters if self.margins is not None else None] = 0.0
        for margins in self._margins_of_all():
            margins.current.fill(0.0)
            margins.factors[: self.task.n_clusters] = 0.0
            for part in (margins.block, margins.products, margins.vectors, margins.norms):
                part.fill(0.0)
            margins.gathered.fill(0.0)
            margins.lefts.fill(0.0)

    def _margins_of_all(self) -> list[Margins]:
        """The margins, if they are kept, with the working memory of each thread."""
        own = [] if self.margins is None else [self.margins]
        return own + [hand.margins for hand in self._crew]


class OwnedKMeans:
    """K-means of one owner's records.

    Parameters
    ----------
    values : (n, d) the records; copied.
    ids, keys : theirs.
    arrival : one number per record that grows with the order of arrival.
    task : what is to be computed.
    rounding : the steps of the features, where they are agreed.

    Attributes
    ----------
    records : the records, in slots.
    best : the number of the best restart: the lowest loss, the first of equals.
    work : what the last change cost.
    redrawn_from : the first step, from 1, at which the last change gave a restart another seed;
        None if all seeds stand.
    """

    best: int
    redrawn_from: int | None = None

    def __init__(
        self,
        values: Floats,
        ids: Ids,
        keys: Keys,
        arrival: Ints,
        task: Task,
        rounding: Rounding | None = None,
    ) -> None:
        self.task = task
        self.records = RecordSlots(values, ids, keys, arrival, rounding)
        self._run()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no trajectories, whose tables hold addresses, but what they came to.

        It makes trajectories of its own with its next change.
        """
        state = vars(self) | {"_replay": None}
        if self._replay is not None:
            outcome = self._replay.outcome(self.best)
            labels = outcome.labels.astype(np.int32)
            state["_outcomes"] = {self.best: outcome._replace(labels=labels)}
        return state

    def __len__(self) -> int:
        return len(self.records)

    @property
    def replayed(self) -> RecordReplay | None:
        """The trajectories, where there are any."""
        return self._replay

    # -- running -------------------------------------------------------------------------------

    def _run(self) -> None:
        """Run in full, and keep the trajectories where they can be replayed."""
        task, records, self.work = self.task, self.records, Work()
        # An old one's memory goes before a new one's comes.
        self._replay: RecordReplay | None = None
        self._outcomes: dict[int, Outcome] = {}
        if task.n_clusters <= min(len(records), MOST_CLUSTERS):
            self._replay = RecordReplay(task, records, self.work)
            self.work.full_distances = self._replay.full_distances()
        elif len(records):
            self._outcomes = dict(enumerate(in_full(records, task)[0]))
            self.work.restarts = task.n_init
        self._choose()

    def _choose(self) -> None:
        """Find the best restart."""
        numbers = list(self._outcomes)
        if self._replay is not None:
            numbers = sorted([*self._replay.contenders(), *self._replay.absent])
        self.best = numbers[0] if numbers else 0
        if len(numbers) > 1:
            self.best = min((self._loss(number), number) for number in numbers)[1]

    def _outcome(self, number: int) -> Outcome:
        return self._outcomes[number] if self._replay is None else self._replay.outcome(number)

    def _loss(self, number: int) -> Fraction:
        outcome = self._outcome(number)
        return exact_loss(self.records.moments, outcome.centres, outcome.sums, outcome.totals)

    # -- results -------------------------------------------------------------------------------

    @property
    def outcome(self) -> Outcome:
        """Where the best restart ended."""
        if not len(self):
            d = self.records.points.values.shape[1]
            none = np.zeros((0, d), dtype=np.int64)
            labels = np.full(len(self.records.ids), -1, dtype=np.int32)
            return Outcome(np.empty((0, d)), labels, none, none[:, 0], 0, none[:, 0])
        return self._outcome(self.best)

    @property
    def centres(self) -> Floats:
        """Those of the best restart, in coordinates: a part of its :attr:`outcome`."""
        if self._replay is None or self.best in self._replay.absent:
            return self.outcome.centres
        centres: Floats = self._replay.rows.centres[self._replay.last_row(self.best)].copy()
        return centres

    @property
    def seeds(self) -> Ints:
        """The slots of the best restart's seeds, in the order of drawing."""
        return self.outcome.seeds if self._replay is None else self._replay.seeds_of(self.best)

    def _seeds_of_all(self) -> dict[int, Ints]:
        """The slots of the seeds of each restart that is known."""
        if self._replay is None:
            return {number: outcome.seeds for number, outcome in self._outcomes.items()}
        return {number: self._replay.seeds_of(number) for number in range(self.task.n_init)}

    def _first_redrawn(self, before: dict[int, Ints]) -> int | None:
        """The first step, from 1, at which a restart has another seed; records keep their slots."""
        after = self._seeds_of_all()
        both = before.keys() & after.keys()
        steps = [first_difference(before[r].tolist(), after[r].tolist()) for r in both]
        return min((step + 1 for step in steps if step is not None), default=None)

    def loss(self) -> Fraction:
        """The exact sum of squared distances to the centres, in the records' own units."""
        if not len(self):
            return Fraction(0)
        # In coordinates, no magnitude exceeds 2^31.
        unit = Fraction(self.records.rounding.scale)
        return self._loss(self.best) / (unit * unit)

    # -- forgetting and learning ---------------------------------------------------------------

    def forget(self, slots: Ints) -> None:
        """Erase records."""
        before = self._seeds_of_all()
        # In their order, memory is asked for ahead of its turn.
        self._take_out(np.sort(slots) if len(slots) > 1 else slots)
        self.redrawn_from = self._first_redrawn(before)

    def _take_out(self, slots: Ints) -> None:
        records, replay = self.records, self._replay
        n = len(records) - len(slots)
        stands = records.steps_stand_without(slots)
        if replay is None or not stands or n < self.task.n_clusters or 2 * len(slots) > n:
            if replay is not None:
                replay.erase(slots)
            del replay
            records.remove(slots)
            records.erase(slots)
            records.measure()
            self._run()
            return
        self._follow(replay, _changes(slots, 1, 0), *replay.nothing)
        records.erase(slots)
        replay.erase(slots)

    def erase(self) -> None:
        """Overwrite all records; there are none then."""
        self.forget(self.records.in_use())

    def learn(self, values: Floats, ids: Ids, keys: Keys, arrival: Ints) -> Ints:
        """Add records; returns their slots."""
        before = self._seeds_of_all()
        slots = self._take_in(np.ascontiguousarray(values), ids, keys, arrival)
        self.redrawn_from = self._first_redrawn(before)
        return slots

    def _take_in(self, values: Floats, ids: Ids, keys: Keys, arrival: Ints) -> Ints:
        records, replay = self.records, self._replay
        stands = records.steps_stand_with(values)
        has_room = len(ids) <= records.n_free
        if not has_room:
            self._replay = None
            records.grow(len(ids))
        slots = records.take(len(ids))
        records.note(slots, ids, arrival)
        if replay is None or not (stands and has_room) or 2 * len(ids) > len(records):
            del replay
            records.put(slots, values, keys.words())
            records.measure()
            self._run()
        else:
            self._follow(replay, _changes(slots, 0, 1), values, keys.words())
        return slots

    def _follow(self, replay: RecordReplay, changed: Ints, values: Floats, keys: UInts) -> None:
        self.work = Work()
        replay.total += int((changed[:, AFTER] - changed[:, BEFORE]).sum())
        replay.follow(ChangedSlots(changed, values, keys), self.work)
        self.work.full_distances = replay.full_distances()
        self._choose()


def _changes(slots: Ints, before: int, after: int) -> Ints:
    """Changes of points that have no place in an order."""
    changed = np.empty((len(slots), CHANGE_COLUMNS), dtype=np.int64)
    changed[:, SLOT] = slots
    changed[:, BEFORE], changed[:, AFTER], changed[:, PLACE] = before, after, -1
    return changed
