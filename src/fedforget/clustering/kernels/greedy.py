"""A greedy race in one kernel, which takes over what stands of a race before records went."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.candidates import carry, try_tiles
from fedforget.clustering.kernels.race import race_step
from fedforget.clustering.kernels.tiles import TILE
from fedforget.compilation import allocating_kernel, helper, inlined

TO_DRAW = -2
"""The row of a candidate that is still to be drawn."""

TO_MEASURE = -1
"""The potential of a candidate that was drawn, but not measured."""

NOBODY = np.iinfo(np.int64).max
"""The potential of a candidate whose race nobody has won."""


@allocating_kernel
def draw_steps(
    tiles, values, keys0, keys1, stream, candidate_bits, coarse, gone, gone_rate, step, rate, label,
    met, near, rows, scores, totals, chosen,
):  # fmt: skip
    """Draw seeds from a step on, until all are drawn or nobody can win any more.

    Candidates whose rows are ``TO_DRAW`` are drawn.  The others are those of a race before some
    records went, whose tiles are ``gone``, and whose squared distances to the seeds before ``step``
    are ``gone_rate``.  While the same seeds are chosen, such a candidate still wins its race, and
    its potential is what it was without the shares of those that have gone.

    Returns the first step that was not taken, and -1.  Where several rows have the lowest score of
    a race, it returns the step and the candidate: the caller sets its row and its score, and its
    potential to ``TO_MEASURE``, and calls again.

    OUT: gone_rate, rate, label, met, near, rows, scores, totals, chosen.
    """
    n_seeds, n_candidates = rows.shape
    d = values.shape[1]
    no_seeds, no_weights = np.empty((0, d)), np.empty(0)
    # Which candidates are measured together, where they are, and what they come to.
    which = np.empty(n_candidates, dtype=np.int64)
    places, sums = np.empty((n_candidates, d)), np.empty((n_candidates, 2), dtype=np.int64)
    gone_near = np.empty((n_candidates, gone_rate.shape[0]))
    one, two = np.empty(TILE), np.empty(TILE)
    while step < n_seeds:
        drawn, potentials = rows[step], totals[step]
        anybody = False
        for number in range(n_candidates):
            if drawn[number] == TO_DRAW:
                counter = stream + np.uint64(step) + np.uint64(number << candidate_bits)
                # Rows have met all seeds: their rates are what they are.
                n_met = no_seeds.shape[0]
                row, score, ties = race_step(
                    values, no_seeds, n_met, no_weights, keys0, keys1, counter, rate, label, met
                )
                if ties > 1:
                    return step, number
                drawn[number] = row
                scores[step, number] = score
                potentials[number, :] = TO_MEASURE if row >= 0 else NOBODY
            anybody = anybody or drawn[number] >= 0
        if not anybody:
            break

        # Those that stand lose the shares of the records that have gone.
        count = _gather(values, drawn, potentials, False, which, places)
        n_standing = count
        if n_standing > 0:
            _clear(sums)
            try_tiles(gone, places[:count], coarse, gone_rate, gone_near, sums, one, two)
            for j in range(count):
                carry(potentials[which[j]], -sums[j, 0], -sums[j, 1])
        gone_row = _place_of(which, n_standing, chosen[step])

        # The others are measured.
        count = _gather(values, drawn, potentials, True, which, places)
        if count > 0:
            _clear(sums)
            try_tiles(tiles, places[:count], coarse, rate, near, sums, one, two)
            for number in range(n_candidates):
                if potentials[number, 0] == TO_MEASURE:
                    at = _place_of_row(drawn, which, count, drawn[number])
                    potentials[number, 0] = sums[at, 0]
                    potentials[number, 1] = sums[at, 1]

        best = least_total(drawn, potentials)
        at = _place_of_row(drawn, which, count, drawn[best])
        if at < 0:
            _copy(values[drawn[best]], places[0])
            _clear(sums)
            try_tiles(tiles, places[:1], coarse, rate, near, sums, one, two)
            at = 0
        _copy(near[at], rate)
        if n_standing > 0 and gone_row >= 0 and best == chosen[step]:
            _copy(gone_near[gone_row], gone_rate)
        else:
            rows[step + 1 :] = TO_DRAW
        chosen[step] = best
        step += 1
    return step, -1


@inlined
def _copy(source, out):
    """Copy a vector.  OUT: out."""
    for t in range(out.shape[0]):
        out[t] = source[t]


@inlined
def _clear(sums):
    """Begin with potentials of zero.  OUT: sums."""
    for number in range(sums.shape[0]):
        sums[number, 0] = 0
        sums[number, 1] = 0


@helper
def _gather(values, drawn, potentials, is_new, which, places):
    """List the candidates that are to be measured, or the others, each row once; how many.

    OUT: which, places.
    """
    count = 0
    for number in range(drawn.shape[0]):
        if drawn[number] < 0 or (potentials[number, 0] == TO_MEASURE) != is_new:
            continue
        if is_new and _place_of_row(drawn, which, count, drawn[number]) >= 0:
            continue
        which[count] = number
        _copy(values[drawn[number]], places[count])
        count += 1
    return count


@helper
def _place_of(which, count, number):
    """Where a candidate is listed, or -1."""
    for j in range(count):
        if which[j] == number:
            return j
    return -1


@helper
def _place_of_row(drawn, which, count, row):
    """Where a candidate with this row is listed, or -1."""
    for j in range(count):
        if drawn[which[j]] == row:
            return j
    return -1


@helper
def least_total(rows, totals):
    """The first of the candidates with the least potential."""
    least = -1
    for number in range(rows.shape[0]):
        if rows[number] >= 0 and (
            least < 0
            or totals[number, 0] < totals[least, 0]
            or (totals[number, 0] == totals[least, 0] and totals[number, 1] < totals[least, 1])
        ):
            least = number
    return least
