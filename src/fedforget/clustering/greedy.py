"""Greedy K-means++ as several races: the best of some candidates becomes the seed.

At every step after the first, candidate j is the winner of a race with clocks of its own, and of
all candidates the one with the least *potential* becomes the seed: the sum over all records of the
squared distance to the nearest seed, if it were one.  Candidates are independent draws of
K-means++, so this is what scikit-learn does by default.

A race's losers leave no trace in its winner, and a potential is an exact sum, from which a record's
share can be taken away.  So the seeds are a function of the records that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import Candidates, Race, new_race, run_race, winner_of

CANDIDATE_BITS = 27
"""The clocks of candidate j at a step have the step's number plus j times two to this power."""


def n_candidates_of(n_clusters: int) -> int:
    """How many candidates a step has, as in scikit-learn.

    >>> [n_candidates_of(k) for k in (1, 2, 3, 8, 62)]
    [2, 2, 3, 4, 6]
    """
    return 2 + int(math.log(n_clusters))


def coarse_of(n_features: int) -> float:
    """What the high word of a potential counts, in squares of coordinates.

    Squared distances of coordinates are below ``n_features`` times 2^64, so that their high parts
    have 32 bits.  A grain is 2^46 times smaller.

    >>> coarse_of(1) == 2.0**32, coarse_of(9) == 2.0**36
    (True, True)
    """
    bits = kernels.LARGEST_BITS + (n_features - 1).bit_length() - kernels.HIGH_BITS
    return 2.0**bits


class Before(NamedTuple):
    """A race that was run before some records went, and from which a new one takes what stands.

    Attributes
    ----------
    candidates : its candidates, by the rows of the records that are left; ``kernels.TO_DRAW``
        where a candidate has gone.
    gone : the records that have gone, in coordinates.
    """

    candidates: Candidates
    gone: Floats


def run_greedily(
    rows: Rows,
    keys: Keys,
    n_seeds: int,
    n_candidates: int,
    *,
    smallest_id: Callable[[Ints], int],
    stream: int = 0,
    before: Before | None = None,
) -> Race:
    """Draw until there are ``n_seeds`` seeds, or no record is apart from them.

    Parameters
    ----------
    rows : the records, in coordinates.
    keys : the records' keys.
    n_candidates : how many races a step has.
    smallest_id : given the rows of tied records, returns the row with the smallest id.
    stream : counter of the first step.
    before : what is known of the race; it changes how much is computed, and nothing else.
    """
    race, drawn = new_race(len(rows)), Candidates.none(n_seeds, n_candidates)
    race.candidates = drawn
    run_race(race, rows, keys, min(n_seeds, 1), smallest_id=smallest_id, stream=stream)
    if not race.rows:
        return race
    drawn.rows[0, 0], drawn.scores[0, 0] = race.rows[0], race.scores[0]
    if rows.can_be_turned(n_candidates):
        _draw_by_tiles(race, drawn, rows, keys, smallest_id, stream, before)
    else:
        _draw_by_calls(race, drawn, rows, keys, smallest_id, stream)
    return race


def _draw_by_tiles(
    race: Race,
    drawn: Candidates,
    rows: Rows,
    keys: Keys,
    smallest_id: Callable[[Ints], int],
    stream: int,
    before: Before | None,
) -> None:
    """Draw all further seeds in one kernel, which comes back only where scores are equal."""
    n_candidates = drawn.rows.shape[1]
    drawn.rows[1:] = kernels.TO_DRAW
    tiles, gone = rows.turned(), np.empty((0, 1, kernels.TILE))
    gone_rate = np.empty(0)
    if before is not None and before.candidates.rows[0, 0] == race.rows[0]:
        kept = before.candidates
        for new, old in zip(vars(drawn).values(), vars(kept).values(), strict=True):
            new[1:] = old[1:]
        gone_rows = Rows(before.gone)
        gone, (_, gone_rate) = gone_rows.turned(), gone_rows.nearest(rows.values[race.rows])
    parts = drawn.rows, drawn.scores, drawn.totals, drawn.chosen
    near, coarse = np.empty((n_candidates, len(rows))), coarse_of(rows.values.shape[1])
    step, no_seeds = 1, np.empty((0, rows.values.shape[1]))
    while True:
        step, tied = kernels.draw_steps(
            tiles, rows.values, *keys, np.uint64(stream), CANDIDATE_BITS, coarse, gone, gone_rate,
            step, race.rate, race.label, race.met, near, *parts,
        )  # fmt: skip
        if tied < 0:
            break
        counter = stream + step + (tied << CANDIDATE_BITS)
        won = winner_of(race, rows.values, keys, no_seeds, counter, smallest_id)
        assert won is not None
        drawn.rows[step, tied], drawn.scores[step, tied] = won
        drawn.totals[step, tied] = kernels.TO_MEASURE
    # These are records that are to be erased.
    gone.fill(0.0)
    drawn.rows[step:] = -1
    steps = range(1, step)
    race.rows += [int(drawn.rows[at, drawn.chosen[at]]) for at in steps]
    race.scores += [float(drawn.scores[at, drawn.chosen[at]]) for at in steps]


def _draw_by_calls(
    race: Race,
    drawn: Candidates,
    rows: Rows,
    keys: Keys,
    smallest_id: Callable[[Ints], int],
    stream: int,
) -> None:
    """Draw all further seeds, race by race."""
    values = rows.values
    n_seeds, n_candidates = drawn.rows.shape
    n, d = values.shape
    no_seeds, coarse = np.empty((0, d)), coarse_of(d)
    near = np.empty((n_candidates, n))
    for step in range(1, n_seeds):
        for number in range(n_candidates):
            counter = stream + step + (number << CANDIDATE_BITS)
            # Rows have met all seeds: their rates are what they are.
            won = winner_of(race, values, keys, no_seeds, counter, smallest_id)
            if won is not None:
                drawn.rows[step, number], drawn.scores[step, number] = won
        found, which = np.unique(drawn.rows[step], return_inverse=True)
        first = int(found[0] < 0)
        if first == len(found):
            break
        totals = np.zeros((len(found), 2), dtype=np.int64)
        if first:
            totals[0] = np.iinfo(np.int64).max
        rows.try_candidates(values[found[first:]], coarse, race.rate, near, totals[first:])
        drawn.totals[step] = totals[which]
        chosen = least_of(drawn.totals[step])
        drawn.chosen[step] = chosen
        race.rows.append(int(drawn.rows[step, chosen]))
        race.scores.append(float(drawn.scores[step, chosen]))
        race.rate[:] = near[which[chosen] - first]


def least_of(totals: Ints) -> int:
    """Which potential is the least; of equals the first.

    >>> least_of(np.array([[3, 1], [2, 9], [2, 9], [2, 10]]))
    1
    """
    return min(range(len(totals)), key=lambda number: (*totals[number].tolist(), number))
