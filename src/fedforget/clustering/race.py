"""K-means++ seeding as a race that losers can leave without a trace.

At step j every record x has an exponential clock E_j(x), a keyed function of its id, and the record
with the smallest E_j(x) / D^2(x) becomes the next seed.  The minimum of exponential variables with
rates D^2 falls on x with probability D^2(x) / sum D^2: this is K-means++.  But the clocks belong to
the records, so a record that did not win can be removed, and one that would not win can be added,
without any change to the winners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.prf import Keys

_UNWEIGHTED = np.empty(0)
_FEW_FEATURES = 16
_CACHE_BYTES = 16 << 20


@dataclass(frozen=True)
class Candidates:
    """The candidates of a greedy race (:mod:`fedforget.clustering.greedy`).

    The first seed has no rivals: it is candidate 0 of step 0.  Several restarts together have one
    more dimension, the first.

    Attributes
    ----------
    rows : (n_seeds, n_candidates) the row that won each candidate's race; -1: nobody.
    scores : the winning scores; inf where nobody won.
    totals : (n_seeds, n_candidates, 2) the potentials, in two words.
    chosen : (n_seeds,) which candidate became the seed.
    """

    rows: Ints
    scores: Floats
    totals: Ints
    chosen: Ints

    @classmethod
    def none(cls, *shape: int) -> Candidates:
        """Room for those of a race that is still to be run."""
        return cls(
            np.full(shape, -1, dtype=np.int64),
            np.full(shape, np.inf),
            np.zeros((*shape, 2), dtype=np.int64),
            np.zeros(shape[:-1], dtype=np.int64),
        )

    def of_restart(self, number: int) -> Candidates:
        """Those of one of several restarts; they share memory with all."""
        return Candidates(
            self.rows[number], self.scores[number], self.totals[number], self.chosen[number]
        )


@dataclass
class Race:
    """The seeds drawn so far, and what each record knows of them.

    Attributes
    ----------
    rows : the winning rows, in the order of drawing.
    scores : the winning score of each step.
    rate : each record's weight times D^2 to the seeds that it has met.
    label : the seed that ``rate`` belongs to (-1: none).
    met : how many seeds each record has met.
    runners_up : where wanted, a lower bound on the other records' scores at each step.
    candidates : of a greedy race.
    """

    rows: list[int]
    scores: list[float]
    rate: Floats
    label: Labels
    met: Labels
    runners_up: list[float] | None = None
    candidates: Candidates | None = None


def first_row(rows: Ints) -> int:
    """Tie-break for rows that are in the order of their ids already."""
    return int(rows[0])


def new_race(n: int) -> Race:
    """A race over ``n`` records in which nothing has been drawn."""
    return Race(
        rows=[],
        scores=[],
        rate=np.ones(n),
        label=np.full(n, -1, dtype=np.int32),
        met=np.zeros(n, dtype=np.int32),
    )


def copy_and_start(
    values: Floats, keys: Keys, smallest_id: Callable[[Ints], int]
) -> tuple[Floats, Race]:
    """Copy records and draw the first seed, which depends on the keys alone.

    The distances to it tell whether all values are finite.  While the records fit into the cache,
    copying and measuring share one pass over them.
    """
    n, d = values.shape
    race = new_race(n)
    if n == 0:
        return values.copy(), race
    _draw(race, values, keys, np.empty((0, d)), smallest_id)
    first = values[race.rows[0]]
    race.label[:] = 0
    race.met[:] = 1
    if d < _FEW_FEATURES or values.nbytes > _CACHE_BYTES:
        kernels.distances_to(values, first, race.rate)
        return values.copy(), race
    copied = np.empty_like(values)
    kernels.copy_and_measure(values, first, copied, race.rate)
    return copied, race


def run_race(
    race: Race,
    rows: Rows,
    keys: Keys,
    n_seeds: int,
    *,
    smallest_id: Callable[[Ints], int],
    weights: Floats | None = None,
    stream: int = 0,
) -> None:
    """Draw until there are ``n_seeds`` seeds, or no record has a positive rate.

    Parameters
    ----------
    race : continued in place; its ``rate``, ``label`` and ``met`` must describe the seeds so far.
    rows : the records.
    keys : the records' keys.
    smallest_id : given the rows of tied records, returns the row with the smallest id.
    weights : positive weights; the rate of a record is its weight times D^2.
    stream : counter of the first step, so that restarts have clocks of their own.
    """
    values = rows.values
    drawn = len(race.rows)
    if not len(rows) or drawn >= n_seeds:
        return
    seeds = np.empty((n_seeds, values.shape[1]))
    seeds[:drawn] = values[race.rows]
    if drawn == 0 and weights is not None:
        race.rate[:] = weights
    for step in range(drawn, n_seeds):
        if not _draw(race, values, keys, seeds[:step], smallest_id, weights, stream):
            break
        seeds[step] = values[race.rows[step]]
        if step == 0:
            race.rate[:] = np.inf
            rows.meet(seeds[:1], 0, race.rate, race.label)
            race.met[:] = 1
            if weights is not None:
                race.rate *= weights


def _draw(
    race: Race,
    values: Floats,
    keys: Keys,
    seeds: Floats,
    smallest_id: Callable[[Ints], int],
    weights: Floats | None = None,
    stream: int = 0,
) -> bool:
    """One step; False if nobody can win any more."""
    counter = stream + len(seeds)
    won = winner_of(race, values, keys, seeds, counter, smallest_id, weights)
    if won is None:
        return False
    row, score = won
    race.rows.append(row)
    race.scores.append(score)
    if race.runners_up is not None:
        race.runners_up.append(kernels.runner_up(*keys, np.uint64(counter), race.rate, row))
    return True


def winner_of(
    race: Race,
    values: Floats,
    keys: Keys,
    seeds: Floats,
    counter: int,
    smallest_id: Callable[[Ints], int],
    weights: Floats | None = None,
) -> tuple[int, float] | None:
    """The row with the smallest score by the clocks of one number, and the score; None if none.

    Rows meet the seeds that they have not met where they could win.
    """
    weight_column = _UNWEIGHTED if weights is None else weights
    state = (values, seeds, len(seeds), weight_column, *keys, np.uint64(counter))
    row, score, ties = kernels.race_step(*state, race.rate, race.label, race.met)
    if row < 0:
        return None
    if ties > 1:
        tied = np.empty(len(values), dtype=np.bool_)
        kernels.tied_rows(*state, score, race.rate, race.label, race.met, tied)
        row = smallest_id(np.flatnonzero(tied))
    return row, score


def first_difference(before: Sequence[object], after: Sequence[object]) -> int | None:
    """The first step at which two draws have different seeds, or only one of them has any.

    >>> first_difference([7, 3, 5], [7, 4, 5]), first_difference([7], [7, 3])
    (1, 1)
    """
    for step, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return step
    return None if len(before) == len(after) else min(len(before), len(after))
