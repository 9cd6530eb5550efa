"""The replay: the numbered steps of docs/replay.md, once for all strategies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.memory import AHEAD, fetch_row
from fedforget.clustering.replay.arithmetic import (
    add_to_sums,
    copy,
    fill,
    locate,
    mean_of,
    move_between_sums,
    weight_of,
)
from fedforget.clustering.replay.columns import (
    add_point_to_columns,
    assign_by_columns,
    begin_by_columns,
    hear_of_changes,
    is_closer_by_columns,
    set_out_by_columns,
)
from fedforget.clustering.replay.estimates import (
    add_point_to_estimates,
    assign_by_estimates,
    begin_by_estimates,
    ignore_changes,
    is_never_closer,
    set_out_by_estimates,
)
from fedforget.clustering.replay.margins import (
    add_point_to_margins,
    assign_by_margins,
    begin_by_margins,
    is_closer_by_margins,
    meet_changes,
)
from fedforget.clustering.replay.measuring import set_out_by_margins
from fedforget.clustering.replay.outcomes import estimate_losses, settle_outcomes
from fedforget.clustering.replay.parts import part_of
from fedforget.clustering.replay.points import change_points
from fedforget.clustering.replay.seeds import winners_stand
from fedforget.clustering.replay.state import (
    BEFORE,
    FULL,
    GROW,
    READY,
    RERUN,
    SLOT,
    SLOT_BLOCK,
    STANDS,
    START,
    Assignments,
    ColumnSets,
    Estimates,
    Margins,
    Points,
    Runs,
    Scratch,
)
from fedforget.compilation import Function, helper, inlined, kernel

CHANGE, SETTLE = 1, 2
"""The steps of a replay that concern all restarts; each is taken once."""

OTHERS = 4
"""Only restarts that are not ready are walked; the others have followed the change before."""


class Strategy(NamedTuple):
    """What a row keeps in order to tell which labels can have changed, and how it is used.

    name : of the strategy.
    part : the part of the state that holds it.
    add_point : let it know a point that comes.
    meet_changes : what is to be done before any row is looked at.
    set_out : what is to be done before the rows of a restart are walked.
    begin : let a new row start with what the row above knows.
    is_closer_above : whether a row that is there is better started again as a new one.
    assign : bring the labels of a row up to date with its centres, and note the moves.
    """

    name: str
    part: type
    add_point: Function
    meet_changes: Function
    set_out: Function
    begin: Function
    is_closer_above: Function
    assign: Function


BY_MARGINS = Strategy(
    "margins",
    Margins,
    add_point_to_margins,
    meet_changes,
    set_out_by_margins,
    begin_by_margins,
    is_closer_by_margins,
    assign_by_margins,
)
BY_ESTIMATES = Strategy(
    "estimates",
    Estimates,
    add_point_to_estimates,
    ignore_changes,
    set_out_by_estimates,
    begin_by_estimates,
    is_never_closer,
    assign_by_estimates,
)
BY_COLUMNS = Strategy(
    "columns",
    ColumnSets,
    add_point_to_columns,
    hear_of_changes,
    set_out_by_columns,
    begin_by_columns,
    is_closer_by_columns,
    assign_by_columns,
)


def replay_by(strategy: Strategy) -> Function:
    """The kernel that replays by a strategy.

    Its arguments are tables of the points, the rows, the strategy's part, the runs and the scratch
    space, and then:

    changed : a row per point, with the columns SLOT, BEFORE, AFTER and PLACE; a point that comes or
        goes has the weight 0 before or after.
    values, keys : those of the points that come.
    max_iter, threshold : of Lloyd's iteration; the threshold is negative without a tolerance.
    total : the weight of all points after the change.
    stages : whether to take the steps CHANGE and SETTLE, and to walk only the OTHERS.
    first, last : the restarts to walk, without the last.
    """
    _, _, add_point, meet_changes, set_out, begin, is_closer_above, assign = strategy
    points_of, rows_of, kept_of = part_of(Points), part_of(Assignments), part_of(strategy.part)
    runs_of, scratch_of = part_of(Runs), part_of(Scratch)

    def replay(
        points_table, rows_table, kept_table, runs_table, scratch_table,
        changed, values, keys, max_iter, total, threshold, stages, first, last,
    ):  # fmt: skip
        """Let some points change, and bring every recorded restart up to date.  OUT: the state."""
        points, rows, kept = points_of(points_table), rows_of(rows_table), kept_of(kept_table)
        runs, scratch = runs_of(runs_table), scratch_of(scratch_table)

        # 1. The points change.
        if stages & CHANGE:
            change_points(points, changed, values, keys)
            for c in range(changed.shape[0]):
                if changed[c, BEFORE] == 0:
                    add_point(points, kept, scratch, changed[c, SLOT])
            meet_changes(points, kept, scratch, changed)

        for r in range(first, last):
            # 2. Where seeds may no longer win, they are to be drawn again.
            restart, seeds = runs.restarts[r], runs.seeds[r]
            status = restart.status
            if status == READY and stages & OTHERS:
                continue
            if status == READY and not winners_stand(points, changed, r, seeds, scratch):
                restart.status = RERUN
            # 3. The rows of the others follow the change.
            elif status in (READY, STANDS, GROW, START):
                walk(points, rows, kept, runs, scratch, changed, r, max_iter, threshold)

        # 4. The lowest loss.
        if stages & SETTLE:
            settle_outcomes(points, rows, runs, scratch, total)

    @inlined
    def walk(points, rows, kept, runs, scratch, changed, r, max_iter, threshold):
        """Bring one restart up to date, row by row.  OUT: the state.

        The rows that are there follow the changes.  Further ones, if it takes any, start as copies
        of the row above: their clusters differ from those by what has moved since.  Row t is in
        place t; where no more rows may be kept, the last two places hold the last two rows.
        """
        restart, where, seeds = runs.restarts[r], runs.where[r], runs.seeds[r]
        is_new_run = restart.status == START
        if is_new_run:
            _clear_row(points, rows, where[0])
            restart.length = restart.taken = 0
        t = place = np.int64(0)
        if restart.status == GROW:
            t, place = restart.taken, restart.length
        elif restart.taken > restart.length:
            _give_back(runs, where, restart.length - 2, restart.length)
            restart.length -= 2
        length, taken = restart.length, restart.taken
        turn = np.int64(0)
        fill(scratch.touched[turn], np.bool_(False))
        fill(scratch.moved[turn], np.bool_(False))
        scratch.tally.moves = 0
        set_out(kept, r)
        going = True
        while going:
            is_old = t < length
            if t > 0 and not is_old:
                if place == runs.most[r]:
                    place -= 1
                    _pass_on_row(rows, where, place)
                elif not _take_row(rows, runs, where, place):
                    restart.length, restart.taken = place, t
                    restart.status = FULL
                    break
                begin(points, rows, kept, scratch, where, place, t == length, turn)
            row = where[place]
            above = where[place - 1] if t > 0 else row
            turn = 1 - turn

            # 3a. Centres follow the clusters of the row above.
            _place_centres(points, rows, scratch, seeds, above, row, t, is_old, turn)
            is_still = False
            if t > 0 and threshold >= 0.0:
                is_still = _total_shift(rows, scratch, above, row, is_old, turn) <= threshold
            # 3b. Labels follow the centres.  Where these are closer to the row above than to what
            # they were, the row starts again as its copy.
            starts_again = (
                is_old and t > 1 and is_closer_above(points, rows, kept, scratch, above, row, turn)
            )
            if starts_again:
                _copy_row(rows, above, row)
                begin(points, rows, kept, scratch, where, place, np.bool_(False), turn)
            follows = is_old and not starts_again
            assign(points, rows, kept, scratch, changed, above, row, t, follows, turn)
            # 3c. The clusters of this row follow their labels.
            if is_new_run and t == 0:
                _add_up_clusters(points, rows.labels[row], rows.sums[row])
            else:
                _move_clusters(points, rows.sums[row], scratch)
            if starts_again:
                # Nothing tells which clusters are as they were.
                fill(scratch.touched[turn], np.bool_(True))
            # 3d. A row whose labels equal those of the row above is the last one, and so is one
            # whose centres hardly differ.
            if t > 0:
                rows.witness[row] = _differ(rows.labels[above], rows.labels[row], rows.witness[row])
            if rows.witness[row] < 0 or is_still or t == max_iter:
                # A full run does not count the iteration in which it assigns for the last time.
                restart.n_iter = t if is_still or t == max_iter else t + 1
                _give_back(runs, where, place + 1, length)
                restart.length, restart.taken, restart.status = place + 1, t + 1, READY
                is_other = not is_old or t + 1 != taken
                _follow_losses(points, rows, runs, scratch, r, row, is_other, turn)
                going = False
            t += 1
            place += 1

    replay.__qualname__ = f"replay_by_{strategy.name}"
    return kernel(replay)


replay_by_margins = replay_by(BY_MARGINS)
replay_by_estimates = replay_by(BY_ESTIMATES)
replay_by_columns = replay_by(BY_COLUMNS)


@helper
def _clear_row(points, rows, row):
    """A first row, in which no point has a label yet.  OUT: rows."""
    fill(rows.labels[row], np.int16(-1))
    for k in range(rows.sums.shape[1]):
        fill(rows.sums[row, k], np.int64(0))
    rows.witness[row] = 0


@helper
def _take_row(rows, runs, where, place):
    """Let the next row of a restart start as a copy of the row above; False if there is no room.

    OUT: rows, runs, where.
    """
    if runs.pool.free == 0 or place == where.shape[0]:
        return False
    runs.pool.free -= 1
    where[place] = runs.free[runs.pool.free]
    _copy_row(rows, where[place - 1], where[place])
    return True


@helper
def _pass_on_row(rows, where, place):
    """Let the row above the last one make room: the next row starts there, as a copy of the last.

    OUT: rows, where, whose last places change.
    """
    source = where[place]
    where[place] = where[place - 1]
    where[place - 1] = source
    _copy_row(rows, source, where[place])


@helper
def _give_back(runs, where, first, end):
    """Let some rows of a restart be free, in such an order that the first is taken first.

    OUT: runs.
    """
    for place in range(end - 1, first - 1, -1):
        runs.free[runs.pool.free] = where[place]
        runs.pool.free += 1


@helper
def _copy_row(rows, source, row):
    """Let a row have the clusters of another.  OUT: rows."""
    rows.witness[row] = -1
    copy(rows.labels[source], rows.labels[row])
    for k in range(rows.sums.shape[1]):
        copy(rows.sums[source, k], rows.sums[row, k])


@helper
def _place_centres(points, rows, scratch, seeds, above, row, t, is_old, turn):
    """Bring the centres of row t up to date, and mark those that have moved.  OUT: rows, scratch.

    A row that is there knows its centres as they were; a new one what the row above knows, so there
    a centre has moved if it differs from that row's.
    """
    touched, before = scratch.touched[1 - turn], scratch.moved[1 - turn]
    moved = scratch.moved[turn]
    for k in range(seeds.shape[0]):
        centre, sums = rows.centres[row, k], rows.sums[above, k]
        if is_old and (t == 0 or not (touched[k] or before[k])):
            moved[k] = False
        elif t == 0:
            moved[k] = True
            locate(points, seeds[k].slot, centre)
        elif weight_of(sums) == 0:
            # A cluster without points keeps its centre.
            moved[k] = is_old
            copy(rows.centres[above, k], centre)
        else:
            moved[k] = touched[k] or (t == 1 and not is_old)
            if moved[k] or not is_old:
                mean_of(points, sums, centre)


@helper
def _total_shift(rows, scratch, above, row, is_old, turn):
    """The squared shifts of a row's centres, one after the other, as in a full run.  OUT: rows."""
    moved, before, shifts = scratch.moved[turn], scratch.moved[1 - turn], rows.shifts[row]
    total = 0.0
    for k in range(moved.shape[0]):
        if moved[k] or before[k] or not is_old:
            shifts[k] = squared_distance(rows.centres[row, k], rows.centres[above, k])
        total += shifts[k]
    return total


@helper
def _add_up_clusters(points, labels, sums):
    """Add every point to the sums of its cluster, which are zero.  OUT: sums, of the clusters."""
    for slot in range(labels.shape[0]):
        if labels[slot] >= 0:
            add_to_sums(points, slot, points.weights[slot], sums[labels[slot]])


@helper
def _move_clusters(points, sums, scratch):
    """Carry out the moves.  OUT: sums, of the clusters."""
    moves, count = scratch.moves, scratch.tally.moves
    p = 0
    while p < count:
        move, next_ = moves[p], moves[min(p + 1, count - 1)]
        fetch_row(points.values, moves[min(p + AHEAD, count - 1)].slot)
        is_one = next_.slot == move.slot and next_.weight == -move.weight
        if is_one and next_.cluster != move.cluster:
            # A point leaves a cluster for another.
            move_between_sums(
                points, move.slot, next_.weight, sums[move.cluster], sums[next_.cluster]
            )
            p += 2
        else:
            add_to_sums(points, move.slot, move.weight, sums[move.cluster])
            p += 1


@helper
def _differ(before, after, witness):
    """A slot whose labels differ, ``witness`` if they do so there; -1 if there is none."""
    found = witness
    if witness < 0 or before[witness] == after[witness]:
        found = -1
        for begin in range(0, before.shape[0], SLOT_BLOCK):
            one, two = before[begin : begin + SLOT_BLOCK], after[begin : begin + SLOT_BLOCK]
            hits = np.int32(0)
            for i in range(SLOT_BLOCK):
                hits = np.int32(hits + (1 if one[i] != two[i] else 0))
            if hits > 0:
                for i in range(SLOT_BLOCK):
                    found = begin + i if one[i] != two[i] else found
                break
    return found


@helper
def _follow_losses(points, rows, runs, scratch, r, row, is_other, turn):
    """Follow the losses of restart r, all where the last row is another than before.  OUT: runs."""
    touched, moved = scratch.touched[turn], scratch.moved[turn]
    losses = runs.losses[r]
    estimate_losses(points, rows.centres[row], rows.sums[row], losses, touched, moved, is_other)
