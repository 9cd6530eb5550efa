"""A greedy race in one kernel, which takes over what stands of a race before records went."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.bits import bits_of, number_of
from fedforget.clustering.kernels.candidates import count_nearer
from fedforget.clustering.kernels.clocks import draw, exponential, uniform
from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.race import BLOCK, SCREEN
from fedforget.clustering.kernels.tiles import TILE, tile_distances
from fedforget.compilation import allocating_kernel, helper, inlined, kernel

TO_DRAW = -2
"""The row of a candidate that is still to be drawn."""

TO_MEASURE = -1
"""The potential of a candidate that was drawn, but not measured."""

MANY = 32
"""Where one row in so many has gone, shares are taken away only if distances are known."""

TILES_AT_ONCE = 32
"""Tiles that candidates meet before distances are added up: these are still in cache."""

SCREENED = 32
"""Rows screened together; they are looked at one by one only if one of them may matter."""

FEW_GONE = 32
"""Up to so many removed rows are looked for among the early ones before a list is rewritten."""

NOBODY = np.iinfo(np.int64).max
"""The potential of a candidate whose race nobody has won."""


@allocating_kernel
def draw_steps(
    tiles, keys0, keys1, weights, stream, candidate_bits, coarse, gone, gone_rate, step, rate,
    distances, known, early, draws, n_early, rows, scores, totals, chosen,
):  # fmt: skip
    """Draw seeds from a step on, until all are drawn or nobody can win any more.

    Candidates whose rows are ``TO_DRAW`` are drawn.  The others are those of a race before some
    records went: the rows ``gone``, in order, whose squared distances to the seeds before ``step``
    are ``gone_rate``.  While the same seeds are chosen, such a candidate still wins its race, and
    its potential is what it was without the shares of those that have gone.  Their distances are
    overwritten with zeros on the way.

    ``rate`` is the squared distance of each row to the seeds before ``step``; it is 0 where there
    is no record, whose weight is 0.  Before the first step all others are 1.  ``distances`` are
    those of all rows to the candidates of each step, ``known`` says to which rows.  ``early``,
    ``draws`` and ``n_early`` are the early rows of each race, as :func:`_gather_early` finds them.
    Where these are not kept there is room for one step.

    Returns the first step that was not taken, and -1.  Where several rows have the lowest score of
    a race, it returns the step and the candidate: the caller sets its row and its score, and its
    potential to ``TO_MEASURE``, and calls again.

    OUT: gone_rate, rate, distances, known, early, draws, n_early, rows, scores, totals, chosen.
    """
    n_seeds, n_candidates = rows.shape
    places = np.empty((n_candidates, tiles.shape[1]))
    is_new, counts = np.empty(n_candidates, dtype=np.bool_), np.empty(n_candidates, dtype=np.bool_)
    block, taken = np.empty(BLOCK), np.empty((n_candidates, gone.shape[0]))
    are_kept = distances.shape[0] == n_seeds
    if step == 0:
        for i in range(rate.shape[0]):
            rate[i] = 1.0 if weights[i] > 0 else 0.0
    while step < n_seeds:
        is_first, at = step == 0, step if are_kept else 0
        # Candidate 0 of the first step has no rivals.
        n_drawn = 1 if is_first else n_candidates
        drawn, potentials, apart, whose = rows[step], totals[step], distances[at], known[at]
        if not are_kept:
            whose[:] = -1
            n_early[at] = -1
        anybody, tied = _draw_candidates(
            keys0, keys1, weights, stream + np.uint64(step), candidate_bits, n_drawn, rate,
            early[at], draws[at], n_early[at], drawn, scores[step], potentials, block,
        )  # fmt: skip
        if tied >= 0:
            taken[:] = 0.0
            return step, tied
        if not anybody:
            break

        _set_out(tiles, gone, rate, whose, drawn, potentials, is_first, places, is_new, counts)
        _measure(tiles, places, coarse, rate, apart, whose, drawn, potentials, counts)
        for number in range(n_candidates):
            if whose[number] >= 0 or not are_kept:
                _take_out(apart[number], gone, taken[number])
        if not is_first:
            _subtract_gone(
                tiles, places, coarse, gone, gone_rate, whose, drawn, counts, taken, potentials
            )
        best = least_total(drawn, potentials)
        if whose[best] != drawn[best]:
            _measure_one(tiles, places[best], apart[best])
            whose[best] = drawn[best]
            _take_out(apart[best], gone, taken[best])

        if is_new[best] or best != chosen[step]:
            rows[step + 1 :] = TO_DRAW
        _come_nearer(rate, apart[best], is_first)
        _come_nearer(gone_rate, taken[best], is_first)
        chosen[step] = best
        step += 1
    # They were distances of records that have gone.
    taken[:] = 0.0
    if not are_kept:
        _forget_step(distances, known, early, draws, n_early)
    return step, -1


@helper
def _draw_candidates(
    keys0, keys1, weights, first_counter, candidate_bits, n_drawn, rate, early, draws, n_early,
    drawn, scores, potentials, block,
):  # fmt: skip
    """Draw the candidates of a step that are still to be drawn, among the first ``n_drawn``.

    Returns whether anybody has won a race, and the candidate whose race ends in a tie, or -1; the
    candidates after that one are not drawn.  OUT: early, draws, n_early, drawn, scores, potentials,
    block.
    """
    anybody, largest = False, -1.0
    for number in range(n_drawn):
        if drawn[number] == TO_DRAW:
            if largest < 0.0:
                largest = _largest(rate)
            counter = first_counter + np.uint64(number << candidate_bits)
            listed = early[number], draws[number]
            if n_early[number] < 0:
                n_early[number] = _gather_early(keys0, keys1, weights, counter, *listed, block)
            row, score, ties = _win(keys0, keys1, counter, rate, largest, *listed, n_early[number])
            if ties > 1:
                return anybody, number
            drawn[number] = row
            scores[number] = score
            potentials[number, :] = TO_MEASURE if row >= 0 else NOBODY
        anybody = anybody or drawn[number] >= 0
    return anybody, -1


@helper
def _set_out(tiles, gone, rate, whose, drawn, potentials, is_first, places, is_new, counts):
    """Find out which candidates are new, and whose potentials are to be added up from scratch.

    OUT: potentials, places (where each candidate is), is_new, counts.
    """
    few_gone = gone.shape[0] * MANY < rate.shape[0]
    for number in range(drawn.shape[0]):
        is_new[number] = counts[number] = False
        if drawn[number] >= 0:
            is_new[number] = potentials[number, 0] == TO_MEASURE
            # To measure what many leave behind takes longer than to add up what is left.
            stands = few_gone or whose[number] == drawn[number]
            counts[number] = (is_new[number] or not stands) and not is_first
            _pick(tiles, drawn[number], places[number])
    if is_first:
        potentials[0, :] = 0


@helper
def _subtract_gone(tiles, places, coarse, gone, gone_rate, whose, drawn, counts, taken, potentials):
    """Take the shares of records that have gone from the potentials of candidates that stand.

    OUT: taken, potentials.
    """
    for number in range(drawn.shape[0]):
        if drawn[number] < 0 or counts[number]:
            continue
        if whose[number] != drawn[number]:
            for c in range(gone.shape[0]):
                record = tiles[gone[c] // TILE, :, gone[c] % TILE]
                taken[number, c] = squared_distance(record, places[number])
        count_nearer(taken[number], gone_rate, coarse, -1, potentials[number])


@helper
def _forget_step(distances, known, early, draws, n_early):
    """Overwrite what is known of the only step that there is room for.  OUT: all arguments."""
    # These arrays are not kept up to date, so clear them now.
    distances[:] = 0.0
    known[:] = -1
    n_early[:] = -1
    early[:] = 0
    draws[:] = 0.0


@helper
def _measure(tiles, places, coarse, rate, apart, whose, drawn, potentials, counts):
    """Measure some candidates, some tiles at once.  OUT: apart, whose, potentials."""
    n = rate.shape[0]
    any_unknown = False
    for number in range(drawn.shape[0]):
        if counts[number]:
            potentials[number, :] = 0
            if whose[number] == drawn[number]:
                # Read from end to end, distances come from memory ahead of their turn.
                count_nearer(apart[number, :n], rate, coarse, 1, potentials[number])
            else:
                any_unknown = True
    for first in range(0, tiles.shape[0] if any_unknown else 0, TILES_AT_ONCE):
        last = min(first + TILES_AT_ONCE, tiles.shape[0])
        for tile in range(first, last):
            # A tile meets all candidates while the processor has it close at hand.
            for number in range(drawn.shape[0]):
                if counts[number] and whose[number] != drawn[number]:
                    some = apart[number, tile * TILE : (tile + 1) * TILE]
                    tile_distances(tiles[tile], places[number], some)
        begin, end = first * TILE, min(n, last * TILE)
        for number in range(drawn.shape[0]):
            if counts[number] and whose[number] != drawn[number]:
                some = apart[number, begin:end]
                count_nearer(some, rate[begin:end], coarse, 1, potentials[number])
    for number in range(drawn.shape[0]):
        if counts[number]:
            whose[number] = drawn[number]


@helper
def _measure_one(tiles, place, apart):
    """The squared distances of all rows to one candidate.  OUT: apart."""
    for number in range(tiles.shape[0]):
        tile_distances(tiles[number], place, apart[number * TILE : (number + 1) * TILE])


@helper
def _take_out(distances, rows, taken):
    """Overwrite the distances of some rows with zeros.  OUT: distances, taken: what they were."""
    for c in range(rows.shape[0]):
        taken[c] = distances[rows[c]]
        distances[rows[c]] = 0.0


@helper
def _come_nearer(rate, distances, is_first):
    """Bring squared distances to the seeds up to date; a rate of 0 stays.  OUT: rate."""
    if is_first:
        for i in range(rate.shape[0]):
            rate[i] = distances[i] if rate[i] > 0.0 else 0.0
    else:
        for i in range(rate.shape[0]):
            rate[i] = distances[i] if distances[i] < rate[i] else rate[i]


@helper
def _largest(rate):
    """The largest of some numbers that are not negative: their bits have the same order."""
    most = np.int64(0)
    for i in range(rate.shape[0]):
        most = max(most, bits_of(rate[i]))
    return number_of(most)


@inlined
def _limit_of(n, room):
    """Rows whose clocks draw at most that are early; there is room for twice as many."""
    return 0.5 * room / n if room < n else 1.0


@helper
def _gather_early(keys0, keys1, weights, counter, early, draws, block):
    """The early rows of a race, which depend on the clocks alone; -1 if there is no room for them.

    Returns how many there are.  OUT: early, draws: their numbers from 0 to 1; block.
    """
    n, found = weights.shape[0], 0
    limit = _limit_of(n, early.shape[0])
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        _draw_block(keys0[begin:end], keys1[begin:end], counter, block)
        for first in range(0, BLOCK, SCREENED):
            some = block[first : first + SCREENED]
            hits = 0
            for i in range(SCREENED):
                hits += 1 if some[i] <= limit else 0
            for i in range(SCREENED if hits > 0 else 0):
                if some[i] <= limit and weights[begin + first + i] > 0:
                    if found == early.shape[0]:
                        _clear(early, draws, 0)
                        return -1
                    early[found], draws[found] = begin + first + i, some[i]
                    found += 1
    _clear(early, draws, found)
    return found


@inlined
def _clear(early, draws, first):
    """Overwrite what a list holds from a place on.  OUT: early, draws."""
    for k in range(first, early.shape[0]):
        early[k], draws[k] = 0, 0.0


@helper
def _draw_block(keys0, keys1, counter, block):
    """The numbers from 0 to 1 of some rows, and then larger ones.  OUT: block."""
    n = keys0.shape[0]
    for i in range(n):
        block[i] = uniform(draw(keys0[i], keys1[i], counter))
    for i in range(n, block.shape[0]):
        block[i] = 2.0


@helper
def _win(keys0, keys1, counter, rate, largest, early, draws, n_early):
    """The row with the smallest score (-1: none has a finite one), the score, how many share it.

    An early row wins as a rule.  Any other has drawn more than the limit, so only a high rate lets
    it win; ``largest`` is the largest of all.
    """
    winner = np.int64(-1)
    best = np.inf
    ties = 0
    for k in range(n_early):
        i = early[k]
        if rate[i] > 0.0 and draws[k] <= best * SCREEN * rate[i]:
            score = exponential(draws[k]) / rate[i]
            if score < best:
                winner, best, ties = np.int64(i), score, 1
            elif score == best and score < np.inf:
                ties += 1
    n = rate.shape[0]
    limit = _limit_of(n, early.shape[0]) if n_early >= 0 else 0.0
    if best * SCREEN * largest <= limit:
        return winner, best, ties
    for begin in range(0, n, SCREENED):
        some = rate[begin : begin + SCREENED]
        hits = 0
        for i in range(some.shape[0]):
            hits += 1 if best * SCREEN * some[i] > limit else 0
        for i in range(begin, begin + some.shape[0] if hits > 0 else begin):
            most = best * SCREEN * rate[i]
            if not most > limit:
                continue
            u = uniform(draw(keys0[i], keys1[i], counter))
            if limit < u <= most:
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
def clear_rows(
    tiles, keys0, keys1, distances, known, early, draws, n_early, is_gone, are_clear, rows
):
    """Overwrite all that is known of some rows, which are in order.

    ``distances``, ``known`` and what is known of early rows are those of all races; ``are_clear``
    says that the race has overwritten these rows' distances already.
    OUT: tiles, keys0, keys1, distances, known, early, draws, n_early.  Working memory: is_gone,
    which is False everywhere before and after.
    """
    begin = 0
    while begin < rows.shape[0]:
        # Those of one tile together: memory is then met in its order.
        tile, end = rows[begin] // TILE, begin
        while end < rows.shape[0] and rows[end] // TILE == tile:
            keys0[rows[end]] = 0
            keys1[rows[end]] = 0
            is_gone[rows[end]] = True
            end += 1
        for t in range(tiles.shape[1]):
            for j in range(begin, end):
                tiles[tile, t, rows[j] % TILE] = 0.0
        begin = end
    for k in range(known.shape[0]):
        if known[k] >= 0 and is_gone[known[k]]:
            # From its distances to many others a record could be computed.
            distances[k, :] = 0.0
            known[k] = -1
        if not are_clear:
            for j in range(rows.shape[0]):
                distances[k, rows[j]] = 0.0
        # Few removed rows are seldom early; this check is vectorised and cheaper than rewriting the
        # list.
        if rows.shape[0] > FEW_GONE or any_among(rows, early[k, : max(n_early[k], 0)]):
            n_early[k] = _drop_early(early[k], draws[k], n_early[k], is_gone)
    for j in range(rows.shape[0]):
        is_gone[rows[j]] = False


@helper
def any_among(rows, others):
    """Whether any of some rows is among others."""
    hits = 0
    for j in range(rows.shape[0]):
        row = np.int32(rows[j])
        for k in range(others.shape[0]):
            hits += 1 if others[k] == row else 0
    return hits > 0


@helper
def _drop_early(early, draws, n_early, is_gone):
    """Take rows that have gone out of a list; returns how many are left.  OUT: early, draws."""
    left = 0
    for k in range(n_early):
        if not is_gone[early[k]]:
            early[left], draws[left] = early[k], draws[k]
            left += 1
    _clear(early, draws, left)
    return min(left, n_early)


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
