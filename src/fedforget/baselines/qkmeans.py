"""Q-k-means: centroids on a randomly shifted lattice, so that most deletions change nothing.

Ginart, Guan, Valiant, Zou, "Making AI forget you" (NeurIPS 2019).  After each Lloyd step every
centroid is rounded to a lattice of width ε with a random phase.  One record moves a mean so little
that the rounded centroid usually stays where it is; then the sums and sizes kept for each step are
all that a deletion has to mend.  Otherwise the model is trained again from the remaining records.

Three things are stricter here than in the paper, so that a deletion equals training without the
record bit for bit, and not in most cases only:

* the seeding is a race between the records' own clocks (:mod:`fedforget.clustering.race`), and the
  phases come from the public seed.  Deleting a record that is not a seed leaves the seeds of a
  fresh start; training again with new random numbers, only when a seed is hit, would not;
* sums and losses are integers, so that subtracting a record gives what summing the others gives;
* the certificate covers everything that depends on the record: the threshold of the balance
  correction, which falls with n for all clusters, and the decision when to stop, which compares
  losses that the record was part of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.baselines.federation import (
    CONSTRAINTS,
    check_fresh_ids,
    check_ids,
    check_values,
    generator,
)
from fedforget.clustering import kernels
from fedforget.clustering.distance import nearest
from fedforget.clustering.grid import Grid
from fedforget.clustering.ids import name_some
from fedforget.clustering.owner import Owner
from fedforget.clustering.partition import FIXED_POINT_BITS, SeededPartition
from fedforget.clustering.prf import Secret
from fedforget.clustering.records import RecordTable
from fedforget.constraints import checked, parse_bounds
from fedforget.errors import UnknownIdError
from fedforget.record_checks import check_inside

_FIXED = 2.0**FIXED_POINT_BITS
_LOSS_UNITS = 2.0**30


@dataclass(frozen=True, eq=False)
class LossStep:
    """What one step of the iteration leaves behind for later deletions.

    Attributes
    ----------
    sizes, sums : of the clusters whose means were taken; sums are fixed-point integers.
    lattice : the quantised centroids, as integer vectors.
    loss : of all records at these centroids, in integer units.
    """

    sizes: Ints
    sums: Ints
    lattice: Ints
    loss: int


class QKMeans:
    """Centralised K-means whose centroids survive most deletions.

    Parameters
    ----------
    n_clusters : K.
    bounds : one public (low, high) pair, or one per feature; values outside are refused.
    epsilon : the width of the lattice, as a fraction of the widest feature's range.
    balance : γ in (0, 1]; a cluster of fewer than γ n / K records is averaged with its previous
        centroid as if that stood for the missing ones.
    max_iter : T, the most steps.
    seed : of the records' clocks and of the phases.

    Attributes
    ----------
    centres : (k, d) in the caller's units.
    steps : one entry per step; the last one may be the step whose loss no longer fell.
    """

    def __init__(
        self,
        n_clusters: int,
        *,
        bounds: Any,
        epsilon: float,
        balance: float = 0.2,
        max_iter: int = 10,
        seed: int = 0,
    ) -> None:
        given = checked(
            CONSTRAINTS,
            n_clusters=n_clusters,
            epsilon=epsilon,
            balance=balance,
            max_iter=max_iter,
            seed=seed,
        )
        self.n_clusters: int = given["n_clusters"]
        self.max_iter: int = given["max_iter"]
        self.bounds = bounds
        self.epsilon: float = given["epsilon"]
        self.balance: float = given["balance"]
        self.seed: int = given["seed"]

    def fit(self, values: Any, ids: Any = None) -> QKMeans:
        """Train on records with distinct integer ids (0, 1, … where not given)."""
        values = check_values(values)
        n, d = values.shape
        ids = check_fresh_ids(ids, n)
        self._grid = Grid(parse_bounds(self.bounds, d), self.epsilon)
        check_inside(values, self._grid)
        secret = Secret(bytes(16)).derive("Q-k-means", str(self.seed).encode())
        phases = generator(self.seed).random((self.max_iter, d))
        self._phases: Floats = phases - 0.5
        units = np.ascontiguousarray(self._grid.to_units(values))
        self._owner = Owner(secret, SeededPartition(RecordTable.empty(d), self.n_clusters))
        self._owner.learn(units, ids, ids.copy())
        self._train()
        return self

    def forget(self, ids: Any) -> bool:
        """Delete records; returns whether the certificate held (False: trained again)."""
        wanted = np.unique(check_ids(ids))
        table = self._owner.records
        rows = np.flatnonzero(np.isin(table.ids, wanted, kind="sort"))
        if len(rows) != len(wanted):
            missing = np.setdiff1d(wanted, table.ids)
            raise UnknownIdError(f"not held: {name_some(missing)}; nothing was deleted")
        gone = table.values[rows]
        seeds_stand = self._owner.forget(rows).redrawn_from is None
        if seeds_stand and self._certify(gone):
            return True
        self._train()
        return False

    # -- training and its certificate ------------------------------------------------------------

    def _train(self) -> None:
        """Quantised Lloyd iteration from the seeds of the records now held."""
        values = self._owner.records.values
        centres = self._owner.clusters.centres
        labels, d2 = nearest(values, centres)
        self._first_loss = loss = _integer_loss(d2, values.shape[1])
        self.steps: list[LossStep] = []
        for phase in self._phases[: self.max_iter if len(values) else 0]:
            sizes, sums = _tally(values, labels, len(centres))
            lattice = self._quantise(sizes, sums, centres, phase)
            moved = self._centres_of(lattice, phase)
            labels, d2 = nearest(values, moved)
            step = LossStep(sizes, sums, lattice, _integer_loss(d2, values.shape[1]))
            self.steps.append(step)
            if step.loss >= loss:
                break
            centres, loss = moved, step.loss
        self._units = centres

    def _certify(self, gone: Floats) -> bool:
        """Walk the steps without the rows ``gone``; True if every decision comes out the same.

        Only then are the kept sums, sizes and losses brought up to date.  The rows have left the
        records already.
        """
        if not len(self._owner):
            return False
        d = gone.shape[1]
        centres = self._owner.clusters.centres
        labels, d2 = nearest(gone, centres)
        first = loss = self._first_loss - _integer_loss(d2, d)
        loss_before = self._first_loss
        steps = []
        for old, phase in zip(self.steps, self._phases, strict=False):
            sizes, sums = _tally(gone, labels, len(centres))
            sizes, sums = old.sizes - sizes, old.sums - sums
            lattice = self._quantise(sizes, sums, centres, phase)
            if not np.array_equal(lattice, old.lattice):
                return False
            centres = self._centres_of(lattice, phase)
            labels, d2 = nearest(gone, centres)
            step = LossStep(sizes, sums, lattice, old.loss - _integer_loss(d2, d))
            if (step.loss < loss) != (old.loss < loss_before):
                return False
            steps.append(step)
            loss, loss_before = step.loss, old.loss
        self._first_loss, self.steps = first, steps
        return True

    def _quantise(self, sizes: Ints, sums: Ints, before: Floats, phase: Floats) -> Ints:
        """The lattice points nearest to the means, corrected for imbalance."""
        least = self.balance * len(self._owner) / self.n_clusters
        weight = np.maximum(sizes, least)[:, np.newaxis]
        lacking = np.maximum(least - sizes, 0.0)[:, np.newaxis]
        corrected: Floats = (sums / _FIXED + lacking * before) / weight
        return np.floor(corrected / self.epsilon - phase + 0.5).astype(np.int64)

    def _centres_of(self, lattice: Ints, phase: Floats) -> Floats:
        centres: Floats = self.epsilon * (lattice + phase)
        return centres

    # -- the model -------------------------------------------------------------------------------

    @property
    def seed_ids(self) -> Ints:
        """The ids of the records that training starts from."""
        return self._owner.clusters.seed_ids

    @property
    def ids(self) -> Ints:
        """The ids of the records held, ascending."""
        return np.sort(self._owner.records.ids)

    @property
    def centres(self) -> Floats:
        """The centroids, in the caller's units."""
        return self._grid.from_units(self._units)[1]

    def predict(self, values: Any) -> Labels:
        """The nearest centroid of each row."""
        rows, centres = check_values(values), self.centres
        if not len(centres):
            raise ValueError("there are no centroids: every record has been deleted")
        if rows.shape[1] != centres.shape[1]:
            raise ValueError(f"values has {rows.shape[1]} features, not {centres.shape[1]}")
        return nearest(rows, centres)[0]


def _tally(values: Floats, labels: Labels, k: int) -> tuple[Ints, Ints]:
    """Sizes and fixed-point sums of the clusters."""
    n, d = values.shape
    sizes, sums = np.zeros(k, dtype=np.int64), np.zeros((k, d), dtype=np.int64)
    rows, origin = np.arange(n), np.zeros(d)
    kernels.add_fixed_point(values, rows, labels, 1, origin, 1.0, _FIXED, sums, sizes)
    return sizes, sums


def _integer_loss(d2: Floats, n_features: int) -> int:
    """A sum of squared distances in which the order of the records cannot show."""
    return int(np.floor(d2 * (_LOSS_UNITS / max(n_features, 1))).astype(np.int64).sum())
