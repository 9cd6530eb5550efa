"""The race: at each step the row with the smallest clock / rate wins."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.clocks import draw, exponential, uniform
from fedforget.clustering.kernels.distance import squared_distance
from fedforget.compilation import helper, inlined, kernel

BLOCK = 256
"""Rows screened at once: a loop of this shape is vectorised, and its numbers stay in cache."""

HINT_COST = 512
"""Distances times features from which a search for the best first threshold pays off."""

SCREEN = 1.0 + 1e-9
"""Covers the rounding of the screen; whatever it lets pass is compared exactly."""


@inlined
def any_below(keys0, keys1, counter, rate, limit):
    """How many rows of a block have u <= limit * rate: only they can score up to the limit."""
    hits = 0
    for i in range(rate.shape[0]):
        u = (np.float64(draw(keys0[i], keys1[i], counter)) + 0.5) * 5.421010862427522e-20
        hits += 1 if u <= limit * rate[i] else 0
    return hits


@kernel
def race_step(values, seeds, n_seeds, weights, keys0, keys1, counter, rate, label, met):
    """One step of the race: the row with the smallest score E / rate.  OUT: rate, label, met.

    ``rate`` is the row's weight times D^2, or an upper bound of it for a row that has not met all
    ``n_seeds`` seeds; a row is brought up to date only when its bound could win.  Since
    -log(1 - u) >= u, the comparison needs no logarithm until then.  ``weights`` is empty for
    unit weights.

    Returns the winning row (-1: none has a finite score), its score, and how many rows share it.
    """
    n, d = values.shape

    # Which row looks best by the stale rates?  Its true score makes a sharp first threshold.  Where
    # a few more rows are brought up to date cheaply, the first block alone has to give the hint.
    hint = np.int64(-1)
    lowest = np.inf
    for begin in range(0, n if n_seeds * d > HINT_COST else min(n, BLOCK), BLOCK):
        end = min(begin + BLOCK, n)
        if lowest < np.inf and not any_below(
            keys0[begin:end], keys1[begin:end], counter, rate[begin:end], lowest
        ):
            continue
        for i in range(begin, end):
            u = uniform(draw(keys0[i], keys1[i], counter))
            if rate[i] > 0.0 and u / rate[i] < lowest:
                lowest = u / rate[i]
                hint = i

    winner = -1
    best = np.inf
    ties = 0
    if hint >= 0:
        _refresh(values, seeds, n_seeds, weights, hint, rate, label, met)
    if hint >= 0 and rate[hint] > 0.0:
        score = exponential(uniform(draw(keys0[hint], keys1[hint], counter))) / rate[hint]
        if score < best:
            winner, best, ties = hint, score, 1
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
            _refresh(values, seeds, n_seeds, weights, i, rate, label, met)
            if not rate[i] > 0.0:
                continue
            score = exponential(u) / rate[i]
            if score < best:
                winner, best, ties = i, score, 1
            elif score == best and score < np.inf:
                ties += 1
    return winner, best, ties


@helper
def _refresh(values, seeds, n_seeds, weights, i, rate, label, met):
    """Let row ``i`` meet the seeds it has not met.  OUT: rate, label, met."""
    for k in range(met[i], n_seeds):
        fresh = squared_distance(values[i], seeds[k])
        if weights.shape[0] > 0:
            fresh = weights[i] * fresh
        if fresh < rate[i]:
            rate[i] = fresh
            label[i] = k
    met[i] = n_seeds


@kernel
def tied_rows(values, seeds, n_seeds, weights, keys0, keys1, counter, score, rate, label, met, out):
    """Mark every row whose score equals ``score``.  OUT: rate, label, met, out."""
    for i in range(values.shape[0]):
        _refresh(values, seeds, n_seeds, weights, i, rate, label, met)
        clock = exponential(uniform(draw(keys0[i], keys1[i], counter)))
        out[i] = rate[i] > 0.0 and clock / rate[i] == score


@kernel
def challenge(values, keys0, keys1, stream, seeds, scores, out_step, d2, label):
    """Find the first step at which a new row would beat or equal the winner.

    OUT: out_step (len(scores) where it beats none), and d2, label against all the seeds
    (meaningful where it beats none).
    """
    n_seeds = scores.shape[0]
    for i in range(values.shape[0]):
        rate = 1.0
        nearest = -1
        out_step[i] = n_seeds
        for step in range(n_seeds):
            clock = exponential(uniform(draw(keys0[i], keys1[i], stream + np.uint64(step))))
            if rate > 0.0 and clock / rate <= scores[step]:
                out_step[i] = step
                break
            distance = squared_distance(values[i], seeds[step])
            if step == 0 or distance < rate:
                rate = distance
                nearest = step
        d2[i] = rate
        label[i] = nearest


@kernel
def runner_up(keys0, keys1, counter, rate, winner):
    """A lower bound on the score of everybody but the winner of a step."""
    lowest = np.inf
    for i in range(rate.shape[0]):
        if i != winner and rate[i] > 0.0:
            u = uniform(draw(keys0[i], keys1[i], counter))
            lowest = min(lowest, u / rate[i])
    return lowest / SCREEN
