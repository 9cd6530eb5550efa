"""K-means of one owner's records: what the model is, run in full.

Records are rounded (:mod:`~fedforget.clustering.rounding`), seeds are drawn by the race over their
ids' keys, one by one or greedily (:mod:`~fedforget.clustering.greedy`), and Lloyd's iteration runs
on exact sums.  Of several restarts the one with the lowest loss is the model, and losses are
compared as exact numbers: no order of records shows anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.greedy import run_greedily
from fedforget.clustering.ids import Ids, smallest_id
from fedforget.clustering.lloyd import Moments, Restarts
from fedforget.clustering.race import Race
from fedforget.clustering.rounding import Rounding


@dataclass(frozen=True)
class RecordRestarts(Restarts):
    """Records of weight 1; ties in the race go to the smallest id.

    With several candidates per step, seeds are drawn greedily.
    """

    ids: Ids
    rounding: Rounding
    n_candidates: int = 1

    def seed(self, restart: int, *, runners_up: bool = False) -> Race:
        if self.n_candidates == 1:
            return super().seed(restart, runners_up=runners_up)
        return run_greedily(
            self.rows,
            self.keys,
            self.n_clusters,
            self.n_candidates,
            smallest_id=self.first_of,
            stream=restart << 32,
        )

    def first_of(self, rows: Ints) -> int:
        return smallest_id(self.ids, rows)

    def steps(self) -> Ints:
        return (self.rows.values / self.rounding.units).astype(np.int64)

    def whole_weights(self) -> Ints:
        return np.ones(len(self.rows), dtype=np.int64)

    def units(self) -> Floats:
        return self.rounding.units


def exact_loss(moments: Moments, centres: Floats, sums: Ints, totals: Ints) -> Fraction:
    """The sum of squared distances of all records to their centres, in coordinates.

    With S the sum and N the number of a cluster's records, their squared distances to c add up to
    the sum of |x|^2, plus N |c|^2 - 2 c.S: a few numbers per cluster, all of them exact.
    """
    loss = Fraction(moments.total_squares()) * Fraction(2) ** (2 * moments.finest)
    mantissas, exponents = np.frexp(centres)
    # Each coordinate of a centre is a whole number of 53 bits times a power of two.
    whole = np.ldexp(mantissas, 53).astype(np.int64).tolist()
    exponents = exponents.astype(np.int64) - 53
    shifts = moments.shifts
    # c.S has the power x + s, |c|^2 has 2 x; both are brought to the least of all.
    least = int(min((2 * exponents).min(initial=0), (exponents + shifts).min(initial=0)))
    squares, products = (2 * exponents - least).tolist(), (exponents + shifts - least).tolist()
    total = 0
    for k, count in enumerate(totals.tolist()):
        for mantissa, amount, up, across in zip(
            whole[k], sums[k].tolist(), squares[k], products[k], strict=True
        ):
            total += (count * mantissa * mantissa << up) - (2 * mantissa * amount << across)
    return loss + Fraction(total) * Fraction(2) ** least
