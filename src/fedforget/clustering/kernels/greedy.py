"""A greedy race in one kernel, which takes over what stands of a race before records went."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.candidates import count_nearer, count_square
from fedforget.clustering.kernels.clocks import draw, exponential, uniform
from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.race import BLOCK, SCREEN, any_below
from fedforget.clustering.kernels.tiles import TILE, tile_distances
from fedforget.compilation import allocating_kernel, helper, inlined, kernel

TO_DRAW = -2
"""The row of a candidate that is still to be drawn."""

TO_MEASURE = -1
"""The potential of a candidate that was drawn, but not measured."""

MANY = 32
"""Where one row in so many has gone, potentials are added up again."""

NOBODY = np.iinfo(np.int64).max
"""The potential of a candidate whose race nobody has won."""


@allocating_kernel
def draw_steps(
    tiles, keys0, keys1, stream, candidate_bits, coarse, gone, gone_rate, step, rate, distances,
    known, rows, scores, totals, chosen,
):  # fmt: skip
    """Draw seeds from a step on, until all are drawn or nobody can win any more.

    Candidates whose rows are ``TO_DRAW`` are drawn.  The others are those of a race before some
    records went: the rows ``gone``, in order, whose squared distances to the seeds before ``step``
    are ``gone_rate``.  While the same seeds are chosen, such a candidate still wins its race, and
    its potential is what it was without the shares of those that have gone.  Their distances are
    overwritten with zeros on the way.

    ``rate`` is the squared distance of each row to the seeds before ``step``, before the first one
    1; it is 0 where there is no record.  ``distances`` are those of all rows to the candidates of
    each step, ``known`` says to which rows.  Where they are not kept there is room for one step.
    Whoever won a race before is likely to win it again, so the race starts with that row's score.

    Returns the first step that was not taken, and -1.  Where several rows have the lowest score of
    a race, it returns the step and the candidate: the caller sets its row and its score, and its
    potential to ``TO_MEASURE``, and calls again.

    OUT: gone_rate, rate, distances, known, rows, scores, totals, chosen.
    """
    n_seeds, n_candidates = rows.shape
    places = np.empty((n_candidates, tiles.shape[1]))
    is_new, counts = np.empty(n_candidates, dtype=np.bool_), np.empty(n_candidates, dtype=np.bool_)
    one, two = np.empty(TILE), np.empty(TILE)
    are_kept = distances.shape[0] == n_seeds
    # What many have left behind takes longer to take away than what is left takes to add up.
    many_gone = gone.shape[0] * MANY >= rate.shape[0]
    while step < n_seeds:
        drawn, potentials = rows[step], totals[step]
        apart, whose = distances[step if are_kept else 0], known[step if are_kept else 0]
        if not are_kept:
            whose[:] = -1
        anybody = False
        for number in range(n_candidates if step > 0 else 1):
            if drawn[number] == TO_DRAW:
                counter = stream + np.uint64(step) + np.uint64(number << candidate_bits)
                row, score, ties = _win(keys0, keys1, counter, rate, whose[number])
                if ties > 1:
                    return step, number
                drawn[number] = row
                scores[step, number] = score
                potentials[number, :] = TO_MEASURE if row >= 0 else NOBODY
            anybody = anybody or drawn[number] >= 0
        if not anybody:
            break

        for number in range(n_candidates):
            is_new[number] = drawn[number] >= 0 and potentials[number, 0] == TO_MEASURE
            counts[number] = is_new[number] or (many_gone and drawn[number] >= 0)
            if drawn[number] >= 0:
                _pick(tiles, drawn[number], places[number])
        if step == 0:
            potentials[0, :] = 0
        else:
            # Those that stand lose the shares of the records that have gone.
            for number in range(n_candidates):
                if drawn[number] >= 0 and not counts[number]:
                    is_known = whose[number] == drawn[number]
                    for c in range(gone.shape[0]):
                        distance = apart[number, gone[c]]
                        if not is_known:
                            record = tiles[gone[c] // TILE, :, gone[c] % TILE]
                            distance = squared_distance(record, places[number])
                        share = min(distance, gone_rate[c])
                        count_square(potentials[number], share, coarse, -1)
            # The others are measured.
            _measure(
                tiles, places, coarse, gone if many_gone else gone[:0], rate, apart, whose, drawn,
                potentials, counts, one, two,
            )  # fmt: skip

        best = least_total(drawn, potentials)
        if whose[best] != drawn[best]:
            whose[best] = drawn[best]
            for number in range(tiles.shape[0]):
                some = apart[best, number * TILE : (number + 1) * TILE]
                tile_distances(tiles[number], places[best], some)
        if is_new[best] or best != chosen[step]:
            rows[step + 1 :] = TO_DRAW
        nearest = apart[best]
        for i in range(rate.shape[0]):
            # A place without a record keeps its rate of 0.
            lower = nearest[i] if nearest[i] < rate[i] else rate[i]
            first = nearest[i] if rate[i] > 0.0 else 0.0
            rate[i] = first if step == 0 else lower
        if step == 0 or not many_gone:
            for c in range(gone.shape[0]):
                distance = apart[best, gone[c]]
                gone_rate[c] = distance if step == 0 else min(gone_rate[c], distance)
            for number in range(n_candidates):
                if whose[number] >= 0 or not are_kept:
                    for c in range(gone.shape[0]):
                        apart[number, gone[c]] = 0.0
        chosen[step] = best
        step += 1
    return step, -1


@helper
def _measure(tiles, places, coarse, gone, rate, apart, whose, drawn, potentials, counts, one, two):
    """Measure some candidates, tile by tile, and overwrite the distances of rows that have gone.

    OUT: apart, whose, potentials, one, two.
    """
    n, at = rate.shape[0], 0
    for number in range(drawn.shape[0]):
        if counts[number]:
            potentials[number, :] = 0
    for tile in range(tiles.shape[0]):
        begin, end = tile * TILE, min(n, (tile + 1) * TILE)
        later = at
        while later < gone.shape[0] and gone[later] < end:
            later += 1
        for number in range(drawn.shape[0]):
            if counts[number]:
                if whose[number] != drawn[number]:
                    some = apart[number, begin : begin + TILE]
                    tile_distances(tiles[tile], places[number], some)
                some = apart[number, begin:end]
                count_nearer(some, rate[begin:end], coarse, potentials[number], one, two)
            for c in range(at, later):
                apart[number, gone[c]] = 0.0
        at = later
    for number in range(drawn.shape[0]):
        if counts[number]:
            whose[number] = drawn[number]


@helper
def _win(keys0, keys1, counter, rate, hint):
    """The row with the smallest score (-1: none has a finite one), the score, how many share it.

    The score of the row ``hint``, if there is one, makes a sharp first threshold.
    """
    winner = np.int64(-1)
    best = np.inf
    ties = 0
    if hint >= 0 and rate[hint] > 0.0:
        score = exponential(uniform(draw(keys0[hint], keys1[hint], counter))) / rate[hint]
        if score < best:
            winner, best, ties = hint, score, 1
    hint = winner
    n = rate.shape[0]
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        if best < np.inf and not any_below(
            keys0[begin:end], keys1[begin:end], counter, rate[begin:end], best * SCREEN
        ):
            continue
        for i in range(begin, end):
            u = uniform(draw(keys0[i], keys1[i], counter))
            if i == hint or not (rate[i] > 0.0 and u <= best * SCREEN * rate[i]):
                continue
            score = exponential(u) / rate[i]
            if score < best:
                winner, best, ties = i, score, 1
            elif score == best and score < np.inf:
                ties += 1
    return winner, best, ties


@inlined
def _pick(tiles, row, place):
    """One row of the tiles.  OUT: place."""
    for t in range(place.shape[0]):
        place[t] = tiles[row // TILE, t, row % TILE]


@kernel
def clear_rows(tiles, keys0, keys1, distances, known, are_clear, rows):
    """Overwrite all that is known of some rows, which are in order.

    ``distances`` and ``known`` are those of the candidates of all steps; ``are_clear`` says that
    the distances of these rows to candidates that are there are overwritten already.
    OUT: tiles, keys0, keys1, distances, known.
    """
    begin = 0
    while begin < rows.shape[0]:
        # Those of one tile together: memory is then met in its order.
        tile, end = rows[begin] // TILE, begin
        while end < rows.shape[0] and rows[end] // TILE == tile:
            keys0[rows[end]] = 0
            keys1[rows[end]] = 0
            end += 1
        for t in range(tiles.shape[1]):
            for j in range(begin, end):
                tiles[tile, t, rows[j] % TILE] = 0.0
        begin = end
    for k in range(known.shape[0]):
        for j in range(rows.shape[0]):
            if known[k] == rows[j]:
                # From its distances to many others a record could be computed.
                distances[k, :] = 0.0
                known[k] = -1
        if not are_clear:
            for j in range(rows.shape[0]):
                distances[k, rows[j]] = 0.0


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
