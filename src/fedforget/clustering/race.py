"""K-means++ seeding as a race that losers can leave without a trace.

At step j every record x has an exponential clock E_j(x), a keyed function of its id, and the record
with the smallest E_j(x) / D^2(x) becomes the next seed.  The minimum of exponential variables with
rates D^2 falls on x with probability D^2(x) / sum D^2: this is K-means++.  But the clocks belong to
the records, so a record that did not win can be removed, and one that would not win can be added,
without any change to the winners.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.distance import Floats, Labels
from fedforget.clustering.prf import Ints, Keys

_UNWEIGHTED = np.empty(0)


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
    """

    rows: Ints
    scores: Floats
    rate: Floats
    label: Labels
    met: Labels


def first_row(rows: Ints) -> int:
    """Tie-break for rows that are in the order of their ids already."""
    return int(rows[0])


def new_race(n: int) -> Race:
    """A race over ``n`` records in which nothing has been drawn."""
    return Race(
        rows=np.empty(0, dtype=np.int64),
        scores=np.empty(0),
        rate=np.ones(n),
        label=np.full(n, -1, dtype=np.int32),
        met=np.zeros(n, dtype=np.int32),
    )


def run_race(
    race: Race,
    values: Floats,
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
    values : the records, float64 and C-contiguous.
    keys : the records' keys.
    smallest_id : given the rows of tied records, returns the row with the smallest id.
    weights : positive weights; the rate of a record is its weight times D^2.
    stream : counter of the first step, so that restarts have clocks of their own.
    """
    n, d = values.shape
    drawn = len(race.rows)
    if n == 0 or drawn >= n_seeds:
        return
    seeds = np.empty((n_seeds, d))
    seeds[:drawn] = values[race.rows]
    rows, scores = race.rows.tolist(), race.scores.tolist()
    weight_column = _UNWEIGHTED if weights is None else weights
    if drawn == 0 and weights is not None:
        race.rate[:] = weights
    for step in range(drawn, n_seeds):
        counter = np.uint64(stream + step)
        state = (values, seeds, step, weight_column, *keys, counter)
        row, score, ties = kernels.race_step(*state, race.rate, race.label, race.met)
        if row < 0:
            break
        if ties > 1:
            tied = np.empty(n, dtype=np.bool_)
            kernels.tied_rows(*state, score, race.rate, race.label, race.met, tied)
            row = smallest_id(np.flatnonzero(tied))
        rows.append(row)
        scores.append(score)
        seeds[step] = values[row]
        if step == 0:
            kernels.distances_to(values, seeds[0], race.rate)
            if weights is not None:
                race.rate *= weights
            race.label[:] = 0
            race.met[:] = 1
    race.rows = np.array(rows, dtype=np.int64)
    race.scores = np.array(scores, dtype=np.float64)
