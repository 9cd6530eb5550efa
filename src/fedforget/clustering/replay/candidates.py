"""Whether the steps of a greedy race would choose the same seeds when records come and go.

A record that goes, and was no candidate, only takes its share out of each candidate's potential; a
record that comes may also win a candidate's race.  Shares are exact, so what is left is what a
fresh race would add up.
"""

from __future__ import annotations

import numpy as np

from fedforget.clustering.greedy import CANDIDATE_BITS
from fedforget.clustering.kernels.candidates import count_square
from fedforget.clustering.kernels.clocks import draw, exponential, uniform
from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.greedy import least_total
from fedforget.clustering.kernels.race import SCREEN
from fedforget.clustering.replay.arithmetic import locate
from fedforget.clustering.replay.parts import part_of
from fedforget.clustering.replay.state import AFTER, BEFORE, SLOT, Points
from fedforget.compilation import helper, kernel

_points = part_of(Points)

FALL, STAND, GONE = 0, 1, 2
"""Choices may fall or stand; or a candidate has gone, and potentials are as they were."""


@kernel
def choices_stand(
    table, rows, scores, totals, chosen, changed, values, keys, coarse, places, d2, near, place,
    stand,
):  # fmt: skip
    """Whether every step of each restart keeps its candidates and its choice: FALL, STAND or GONE.

    ``rows``, ``scores``, ``totals`` and ``chosen`` are those of the candidates, with slots for
    rows, restart by restart.  ``changed``, ``values`` and ``keys`` say which records come and go,
    as the replay is told; the points, which come as a table, are still as they were.  Only restarts
    whose ``stand`` is STAND are looked at.

    OUT: totals, which follow the changes; they are of no use any more where choices fall.
    OUT: stand.  Working memory: places, d2, near, place.
    """
    points = _points(table)
    any_stands = False
    for r in range(stand.shape[0]):
        if stand[r] == STAND and _any_gone(rows[r], changed):
            stand[r] = GONE
        any_stands = any_stands or stand[r] == STAND
    if not any_stands:
        return
    new = 0
    for c in range(changed.shape[0]):
        if changed[c, BEFORE] == 0:
            for t in range(place.shape[0]):
                rounder = points.rounders[t]
                places[c, t] = ((values[new, t] + rounder) - rounder) * points.summary.scale
            new += 1
        else:
            locate(points, changed[c, SLOT], places[c])
    for r in range(stand.shape[0]):
        if stand[r] == STAND:
            stand[r] = _restart_stands(
                points, r, rows[r], scores[r], totals[r], chosen[r], changed, keys, coarse, places,
                d2, near, place,
            )  # fmt: skip


@helper
def _restart_stands(
    points, restart, rows, scores, totals, chosen, changed, keys, coarse, places, d2, near, place
):
    """Whether one restart whose candidates are all there keeps its choices: FALL or STAND.

    OUT: totals, d2, near, place.
    """
    n_seeds, n_candidates = rows.shape
    m = changed.shape[0]
    for c in range(m):
        d2[c] = 1.0
    for step in range(n_seeds):
        for number in range(n_candidates if step > 0 else 1):
            counter = np.uint64(restart) << np.uint64(32)
            counter += np.uint64(number) << np.uint64(CANDIDATE_BITS)
            counter += np.uint64(step)
            if _any_wins(changed, keys, counter, scores[step, number], d2):
                return FALL
            if rows[step, number] < 0:
                continue
            locate(points, rows[step, number], place)
            for c in range(m):
                distance = squared_distance(places[c], place)
                near[number, c] = distance if step == 0 else min(d2[c], distance)
                if step > 0:
                    sign = changed[c, AFTER] - changed[c, BEFORE]
                    count_square(totals[step, number], near[number, c], coarse, sign)
        if least_total(rows[step], totals[step]) != chosen[step]:
            return FALL
        for c in range(m):
            d2[c] = near[chosen[step], c]
    return STAND


@helper
def _any_wins(changed, keys, counter, score, d2):
    """Whether a record that comes would win a candidate's race, or equal the winner."""
    new = 0
    for c in range(changed.shape[0]):
        if changed[c, BEFORE] == 0:
            if d2[c] > 0.0:
                u = uniform(draw(keys[new, 0], keys[new, 1], counter))
                # The score is at least u / rate: the clock -log(1 - u) is at least u.
                if u <= score * SCREEN * d2[c] and exponential(u) / d2[c] <= score:
                    return True
            new += 1
    return False


@helper
def _any_gone(rows, changed):
    """Whether a candidate is among the records that go."""
    for c in range(changed.shape[0]):
        if changed[c, AFTER] == 0:
            slot = changed[c, SLOT]
            for step in range(rows.shape[0]):
                for number in range(rows.shape[1]):
                    if rows[step, number] == slot:
                        return True
    return False
