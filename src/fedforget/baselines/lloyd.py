"""Plain K-means: D² seeding and Lloyd's iteration, as the baselines use them.

Everything random comes from a generator that the caller passes, so the same rows in the same order
with the same generator give the same clusters, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.distance import Rows

MAX_ITER = 300
"""Iterations after which Lloyd's method is stopped, as in scikit-learn."""


@dataclass(frozen=True, eq=False)
class Clustering:
    """Centres, and the centre of each row.

    Attributes
    ----------
    centres : (k, d); k is smaller than asked for where there are fewer distinct rows.
    labels : the nearest centre of each row.
    loss : sum of squared distances to these.
    n_iter : how many times the centres were moved.
    """

    centres: Floats
    labels: Labels
    loss: float
    n_iter: int

    @property
    def sizes(self) -> Ints:
        """How many rows each centre has."""
        return np.bincount(self.labels, minlength=len(self.centres))

    def without_empty(self) -> Clustering:
        """The same clusters without centres that no row is nearest to."""
        held = self.sizes > 0
        renumbered = (np.cumsum(held) - 1).astype(np.int32)
        return Clustering(self.centres[held], renumbered[self.labels], self.loss, self.n_iter)


def plus_plus(values: Floats, n_seeds: int, rng: np.random.Generator) -> Ints:
    """Rows drawn as K-means++ draws them: the first uniformly, the others in proportion to D².

    This is the plain rule, with one candidate per step.  There are fewer than ``n_seeds`` where
    there are fewer distinct rows.

    >>> rows = plus_plus(np.array([[0.0], [0.0], [5.0]]), 3, np.random.default_rng(0))
    >>> sorted(np.array([0.0, 0.0, 5.0])[rows].tolist())
    [0.0, 5.0]
    """
    n = len(values)
    if not n or n_seeds < 1:
        return np.empty(0, dtype=np.int64)
    rows = Rows(values)
    d2 = np.full(n, np.inf)
    label = np.full(n, -1, dtype=np.int32)
    drawn = [int(rng.integers(n))]
    while True:
        rows.meet(values[drawn], len(drawn) - 1, d2, label)
        if len(drawn) == n_seeds or not d2.any():
            return np.array(drawn, dtype=np.int64)
        mass = np.cumsum(d2)
        # The product may round up to the whole mass, beyond the last row that can be drawn.
        mark = min(rng.random() * mass[-1], np.nextafter(mass[-1], 0.0))
        drawn.append(int(np.searchsorted(mass, mark, side="right")))


def means(values: Floats, labels: Labels, centres: Floats) -> Floats:
    """The mean of each cluster; one without rows keeps its centre."""
    order = np.argsort(labels, kind="stable")
    held, first = np.unique(labels[order], return_index=True)
    moved = centres.copy()
    for cluster, rows in zip(held, np.split(order, first[1:]), strict=False):
        moved[cluster] = values[rows].mean(axis=0)
    return moved


def lloyd(
    values: Floats, centres: Floats, *, max_iter: int = MAX_ITER, tol: float = 0.0
) -> Clustering:
    """Lloyd's iteration until no label changes.

    Parameters
    ----------
    values : (n, d) rows.
    centres : (k, d) where to start; left as they are.
    max_iter : how many times the centres may be moved.
    tol : where positive, stop as soon as the loss falls by no more than this part of itself.
    """
    rows = Rows(values)
    labels, d2 = rows.nearest(centres)
    loss = float(d2.sum())
    for n_iter in range(max_iter):
        centres = means(values, labels, centres)
        before, loss_before = labels, loss
        labels, d2 = rows.nearest(centres)
        loss = float(d2.sum())
        if np.array_equal(labels, before) or (tol > 0.0 and loss_before - loss <= tol * loss):
            return Clustering(centres, labels, loss, n_iter + 1)
    return Clustering(centres, labels, loss, max_iter)


def kmeans(
    values: Floats,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    n_init: int = 1,
    max_iter: int = MAX_ITER,
    tol: float = 0.0,
) -> Clustering:
    """K-means++ seeding and Lloyd's iteration, the best of ``n_init`` runs (first of equals)."""
    runs = (
        lloyd(values, values[plus_plus(values, n_clusters, rng)], max_iter=max_iter, tol=tol)
        for _ in range(n_init)
    )
    return min(runs, key=lambda run: run.loss).without_empty()
