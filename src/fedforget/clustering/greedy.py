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
from dataclasses import dataclass

import numpy as np

from fedforget.arrays import Floats, Int32s, Ints
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import Candidates, Race, new_race, run_race, winner_of

CANDIDATE_BITS = 27
"""The clocks of candidate j at a step have the step's number plus j times two to this power."""

_MOST_EARLY = 128
"""Room for early rows of each race; half as many are expected."""

NO_ROWS = np.empty(0, dtype=np.int64)
_NO_LABELS = np.empty(0, dtype=np.int32)


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


@dataclass
class Track:
    """Records that race, side by side, and what is known of their distances to candidates.

    Attributes
    ----------
    tiles : the records in coordinates, turned tile by tile; a place may be empty.
    keys : those of the records.
    distances, known : squared distances of all records to the candidates of each step, and to
        which rows they are (-1: to none); room for one step where they are not kept.
    early, draws, n_early : of each race the rows whose clocks have the lowest numbers from 0 to 1,
        these numbers, and how many there are (-1: they are still to be found, or there is no room).
    """

    tiles: Floats
    keys: Keys
    distances: Floats
    known: Ints
    early: Int32s
    draws: Floats
    n_early: Ints

    @classmethod
    def of(cls, tiles: Floats, keys: Keys, n_steps: int, n_candidates: int) -> Track:
        """A track on which nothing has been drawn; ``n_steps`` is 1 if distances are not kept."""
        width = len(tiles) * kernels.TILE
        races, room = (n_steps, n_candidates), min(_MOST_EARLY, width // 4)
        return cls(
            tiles,
            keys,
            np.zeros((*races, width)),
            np.full(races, -1),
            np.zeros((*races, room), dtype=np.int32),
            np.zeros((*races, room)),
            np.full(races, -1),
        )

    def of_races(self) -> tuple[Floats | Ints | Int32s, ...]:
        """What is known, with the races of all steps in a row."""
        parts = self.distances, self.known, self.early, self.draws, self.n_early
        return tuple(part.reshape(self.known.size, *part.shape[2:]) for part in parts)

    def know_nothing(self) -> None:
        """Forget what is known of all races, and overwrite it: records may go before the next."""
        if (self.known >= 0).any():
            self.distances.fill(0.0)
        if (self.n_early > 0).any():
            self.early.fill(0)
            self.draws.fill(0.0)
        self.known.fill(-1)
        self.n_early.fill(-1)


def run_greedily(
    rows: Rows,
    keys: Keys,
    n_seeds: int,
    n_candidates: int,
    *,
    smallest_id: Callable[[Ints], int],
    stream: int = 0,
) -> Race:
    """Draw until there are ``n_seeds`` seeds, or no record is apart from them.

    Parameters
    ----------
    rows : the records, in coordinates.
    keys : the records' keys.
    n_candidates : how many races a step has.
    smallest_id : given the rows of tied records, returns the row with the smallest id.
    stream : counter of the first step.
    """
    if len(rows) and rows.can_be_turned(n_candidates):
        drawn = Candidates.none(n_seeds, n_candidates)
        drawn.rows[:] = kernels.TO_DRAW
        track = Track.of(rows.turned(), keys, 1, n_candidates)
        weights = np.ones(len(rows), dtype=np.int64)
        return run_on(track, weights, drawn, NO_ROWS, smallest_id=smallest_id, stream=stream)
    return _run_by_calls(rows, keys, n_seeds, n_candidates, smallest_id, stream)


def run_on(
    track: Track,
    weights: Ints,
    drawn: Candidates,
    gone: Ints,
    *,
    smallest_id: Callable[[Ints], int],
    stream: int = 0,
) -> Race:
    """Draw seeds on a track, in one kernel which comes back only where scores are equal.

    Parameters
    ----------
    track : the records; what is known of their distances changes how much is computed, and nothing
        else.
    weights : 1 for each record, 0 for each place without one.
    drawn : the candidates, completed in place.  All are ``kernels.TO_DRAW``; or they are those of a
        race before records went, and those that have gone are ``kernels.TO_DRAW``.
    gone : the rows of these records, which are still on the track.
    """
    keys, rate = track.keys, np.empty(len(weights))
    known = track.distances, track.known, track.early, track.draws, track.n_early
    parts = drawn.rows, drawn.scores, drawn.totals, drawn.chosen
    # Candidate 0 of the first step has no rivals.
    drawn.rows[0, 1:] = -1
    gone_rate, coarse = np.ones(len(gone)), coarse_of(track.tiles.shape[1])
    race = Race([], [], rate, _NO_LABELS, _NO_LABELS, candidates=drawn)
    step = 0
    while True:
        step, tied = kernels.draw_steps(
            track.tiles, *keys, weights, np.uint64(stream), CANDIDATE_BITS, coarse, gone, gone_rate,
            step, rate, *known, *parts,
        )  # fmt: skip
        if tied < 0:
            break
        won = _settle_tie(keys, rate, stream + step + (tied << CANDIDATE_BITS), smallest_id)
        drawn.rows[step, tied], drawn.scores[step, tied] = won
        drawn.totals[step, tied] = kernels.TO_MEASURE
    gone_rate.fill(0.0)
    drawn.rows[step:], drawn.scores[step:], drawn.totals[step:] = -1, np.inf, 0
    seeds = np.arange(step), drawn.chosen[:step]
    race.rows, race.scores = drawn.rows[seeds].tolist(), drawn.scores[seeds].tolist()
    return race


def _settle_tie(
    keys: Keys, rate: Floats, counter: int, smallest_id: Callable[[Ints], int]
) -> tuple[int, float]:
    """The row that wins a race in which several have the lowest score, and the score."""
    n = len(rate)
    no_values = np.empty((n, 0))
    labels = np.zeros(n, dtype=np.int32)
    race = Race([], [], rate, labels, labels)
    won = winner_of(race, no_values, keys, no_values[:0], counter, smallest_id)
    assert won is not None
    return won


def _run_by_calls(
    rows: Rows,
    keys: Keys,
    n_seeds: int,
    n_candidates: int,
    smallest_id: Callable[[Ints], int],
    stream: int,
) -> Race:
    """:func:`run_greedily`, race by race."""
    race, drawn = new_race(len(rows)), Candidates.none(n_seeds, n_candidates)
    race.candidates = drawn
    run_race(race, rows, keys, min(n_seeds, 1), smallest_id=smallest_id, stream=stream)
    if not race.rows:
        return race
    drawn.rows[0, 0], drawn.scores[0, 0] = race.rows[0], race.scores[0]
    values = rows.values
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
    return race


def least_of(totals: Ints) -> int:
    """Which potential is the least; of equals the first.

    >>> least_of(np.array([[3, 1], [2, 9], [2, 9], [2, 10]]))
    1
    """
    return min(range(len(totals)), key=lambda number: (*totals[number].tolist(), number))
