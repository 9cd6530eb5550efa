"""The chance of re-seeding, against the lemma behind Theorem 5.4; and Q-k-means.

Theorem 5.4 rests on a lemma about one K-means++ seeding of n records: a random record is a seed
with probability K/n; one that an adversary chooses, with at most 1/n + 10 K (K − 1) ε₁ ε₂ / n.
Here ε₁ = n / (K · smallest optimal cluster), and ε₂ is the smallest for which the data hold no
outlier: the largest squared distance to a centre over the mean of its cluster.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fedforget.arrays import Floats
from fedforget.baselines.qkmeans import QKMeans
from fedforget.bench.cells import Value
from fedforget.bench.datasets import Dataset
from fedforget.bench.timing import timed
from fedforget.clustering.distance import nearest
from fedforget.clustering.losses import nearest_loss
from fedforget.estimators import KMeans, SeededKMeans


def adversarial_bound(n: int, k: int, epsilon_1: float, epsilon_2: float) -> float:
    """The lemma's bound on the chance that a chosen record is a seed, with its constants.

    >>> adversarial_bound(1000, 2, 1.0, 5.0)
    0.101
    """
    return min(1.0, (1.0 + 10.0 * k * (k - 1) * epsilon_1 * epsilon_2) / n)


def reseeding(data: Dataset, *, reference: Value, seedings: int) -> Value:
    """How often the record that costs most is a seed, with all records and without outliers.

    Outliers are the hundredth of the records that lie farthest from their centres, as ε₂ measures
    it.
    """
    everything = np.arange(len(data.X))
    inliers = np.setdiff1d(everything, reference["farthest"])
    return {
        "with": _chance(data.X, data.n_clusters, reference["centres"], seedings),
        "without": _chance(data.X[inliers], data.n_clusters, reference["centres"], seedings),
    }


def _chance(values: Floats, k: int, centres: Any, seedings: int) -> Value:
    label, d2 = nearest(values, np.ascontiguousarray(centres, dtype=np.float64))
    sizes = np.bincount(label, minlength=k)
    means = np.bincount(label, weights=d2, minlength=k) / np.maximum(sizes, 1)
    n = len(values)
    epsilon_1 = n / (k * int(sizes[sizes > 0].min()))
    epsilon_2 = float((d2 / np.where(means > 0.0, means, 1.0)[label]).max())
    target = int(d2.argmax())
    hits = 0
    for seed in range(seedings):
        seeds = SeededKMeans(k, random_state=seed).fit(values).seed_ids_
        hits += target in seeds
    return {
        "n": n,
        "epsilon_1": epsilon_1,
        "epsilon_2": epsilon_2,
        "bound": adversarial_bound(n, k, epsilon_1, epsilon_2),
        "seedings": seedings,
        "hits": hits,
        "random_bound": k / n,
    }


def q_k_means(data: Dataset, trial: int, *, epsilon: float, requests: int) -> Value:
    """Centralised removals with Q-k-means on a lattice of width ε."""
    model = QKMeans(data.n_clusters, bounds=(0.0, 1.0), epsilon=epsilon, seed=trial)
    _, fitted = timed(lambda: model.fit(data.X))
    loss = nearest_loss(data.X, model.centres)
    seconds, certified = [], []
    for one in _victims(data, trial, requests):
        held, elapsed = timed(partial(model.forget, [one]))
        certified.append(held)
        seconds.append(elapsed)
    return {"fit": fitted, "loss": loss, "seconds": seconds, "certified": certified}


def owned_k_means(data: Dataset, trial: int, *, iterate: bool, requests: int) -> Value:
    """The same removals with the paper's Alg. 3, or with Lloyd's iteration after it (``KMeans``).

    ``certified`` are those that need no seeding.
    """
    kind = partial(KMeans, n_init=1) if iterate else SeededKMeans
    model, fitted = timed(lambda: kind(data.n_clusters, random_state=trial).fit(data.X))
    loss = float(model.inertia_)
    seconds, certified = [], []
    for one in _victims(data, trial, requests):
        report, elapsed = timed(partial(model.forget, one))
        seconds.append(elapsed)
        certified.append(not report.reseeded)
    return {"fit": fitted, "loss": loss, "seconds": seconds, "certified": certified}


def _victims(data: Dataset, trial: int, requests: int) -> list[int]:
    order = np.random.default_rng([trial, 4]).permutation(len(data.X))
    chosen: list[int] = order[:requests].tolist()
    return chosen
