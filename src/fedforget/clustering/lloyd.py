"""Lloyd's iteration on points that count whole steps, from seeds that a race has drawn.

The sums behind every centre are exact and do not depend on the order of the points.  What is left
in floating point (distances, quotients) is a fixed function of one point and one centre.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import lshift, mul
from typing import NamedTuple

import numpy as np

from fedforget.arrays import Floats, Ints, Labels, UInts
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import Race, first_row, new_race, run_race


@dataclass
class Moments:
    """The weight, the sums and the sums of squares of points, exactly.

    They know no order, and points can be added and taken away again.

    Attributes
    ----------
    weight : of all points.
    sums : of w x per feature, where x counts steps.
    squares : of w x^2 per feature, a low and a high word each.
    shifts : of each feature, the power of two that its step is.
    finest : the least of the shifts; exact sums over features count in squares of this step.
    """

    weight: int
    sums: Ints
    squares: UInts
    shifts: Ints
    finest: int = field(init=False)

    def __post_init__(self) -> None:
        self.finest = int(self.shifts.min(initial=0))

    @classmethod
    def none(cls, shifts: Ints) -> Moments:
        """Those of no points."""
        d = len(shifts)
        return cls(0, np.zeros(d, dtype=np.int64), np.zeros((d, 2), dtype=np.uint64), shifts)

    def add(self, steps: Ints, weights: Ints) -> None:
        """Add points; those with negative weights are taken away."""
        self.weight += sum(weights.tolist())
        kernels.add_moments(steps, weights, self.sums, self.squares)

    def total_squares(self) -> int:
        """The sum of w |x|^2, in squares of the finest step."""
        low, high = self.squares.T.tolist()
        return self._in_finest(low) + (self._in_finest(high) << 64)

    def _in_finest(self, squares: list[int]) -> int:
        """The sum of one number per feature, each in squares of its step."""
        # It is asked for with every change, so the loop is not one of Python's.
        return sum(map(lshift, squares, (2 * (self.shifts - self.finest)).tolist()))

    def mean_variance(self) -> float:
        """The variance of a feature, averaged over the features, correctly rounded; 0 if none."""
        n_features = len(self.sums)
        if not self.weight * n_features:
            return 0.0
        sums = self.sums.tolist()
        means = self._in_finest([*map(mul, sums, sums)])
        spread = self.weight * self.total_squares() - means
        # Python rounds a quotient of integers once.
        divisor = self.weight * self.weight * n_features
        variance: float = spread / (divisor << -2 * self.finest)
        return variance


NO_THRESHOLD = -1.0
"""Without a tolerance only labels count: no shift is below zero."""


def threshold_of(moments: Moments | None, tol: float) -> float:
    """The squared shift of all centres up to which Lloyd's iteration stops.

    Without a tolerance, nobody needs moments.
    """
    return tol * moments.mean_variance() if tol and moments is not None else NO_THRESHOLD


@dataclass(frozen=True)
class Restarts:
    """Points that are ready to be clustered several times.

    ``threshold`` is that of :func:`threshold_of`.
    """

    rows: Rows
    weights: Floats | None
    keys: Keys
    n_clusters: int
    max_iter: int
    threshold: float

    def seed(self, restart: int, *, runners_up: bool = False) -> Race:
        """The race of one restart."""
        race = new_race(len(self.rows))
        if runners_up:
            race.runners_up = []
        run_race(
            race,
            self.rows,
            self.keys,
            self.n_clusters,
            smallest_id=self.first_of,
            weights=self.weights,
            stream=restart << 32,
        )
        return race

    def first_of(self, rows: Ints) -> int:
        """Which of some rows comes first, if they tie."""
        return first_row(rows)

    def steps(self) -> Ints:
        """The points in whole steps."""
        raise NotImplementedError

    def whole_weights(self) -> Ints:
        """Their weights."""
        raise NotImplementedError

    def units(self) -> Floats:
        """The steps of the features."""
        raise NotImplementedError

    def lloyd(self, seeds: Ints) -> Run:
        """Iterate until no label changes, or the centres shift by no more than the threshold.

        The squared shifts of all centres together count.  A cluster that loses all its points keeps
        its centre.
        """
        steps, weights, units = self.steps(), self.whole_weights(), self.units()
        n, d = self.rows.values.shape
        centres = self.rows.values[seeds]
        sums = np.zeros((len(seeds), d), dtype=np.int64)
        totals = np.zeros(len(seeds), dtype=np.int64)
        before = np.full(n, -1, dtype=np.int32)
        n_iter = 0
        while True:
            labels, d2 = self.rows.nearest(centres)
            if n_iter == self.max_iter:
                break
            n_iter += 1
            moved = kernels.move_points(steps, weights, before, labels, sums, totals)
            if moved == 0:
                break
            before = labels
            last = centres.copy()
            kernels.recentre(sums, totals, units, centres)
            if self.threshold >= 0.0 and kernels.total_shift(last, centres) <= self.threshold:
                labels, d2 = self.rows.nearest(centres)
                break
        kernels.move_points(steps, weights, before, labels, sums, totals)
        return Run(centres, labels, d2, sums, totals, n_iter)


class Run(NamedTuple):
    """Where Lloyd's iteration ended.

    Attributes
    ----------
    centres, labels : of the last assignment.
    d2 : the squared distance of each point to its centre.
    sums, totals : of each cluster the sum of its points, in steps, and its weight.
    n_iter : iterations.
    """

    centres: Floats
    labels: Labels
    d2: Floats
    sums: Ints
    totals: Ints
    n_iter: int
