"""What the paper proves about the loss, against measurement.

The paper states its bounds with O(·).  The constants here are those of its proofs, with
a(K) = 8 ln K + 16, the factor of a K-means++ seeding, and q = n d γ² / 4, the largest squared error
of the grid:

* Lemma D.1, without a grid (Alg. 5):  E φ_f ≤ 2 a (3 + 2 a) φ*;
* the remark after it, where each client knows how many clusters it holds, at most K′:
  2 (a′ + 2 a + 2 a a′) φ*, with a′ = a(K′);
* Theorem 4.1:  3 a (4 + 3 a) φ* + 3 (1 + 3 a) q;
* the same without outliers, whose first term is O(ε₂ log K):  3 a (1 + 2 ε₂) φ* + 3 (1 + 2 a) q;
* L = K clients with one whole cluster each: E φ_f = 2 φ*, for any K.

They hold for one start at the server, and for any number, because the best of several is no worse.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fedforget.baselines.lloyd import lloyd
from fedforget.bench import methods
from fedforget.bench.cells import Value
from fedforget.bench.datasets import Dataset
from fedforget.bench.splits import iid
from fedforget.clustering.distance import nearest
from fedforget.estimators import FederatedKMeans

GROWTH_CLIENTS = 10
_PER_CLUSTER, _FEATURES, _DEVIATION = 200, 10, 0.03


def seeding_factor(k: int) -> float:
    """How far a K-means++ seeding may be from the optimum, in expectation.

    >>> seeding_factor(1)
    16.0
    """
    return 8.0 * math.log(k) + 16.0


def without_grid(k: int) -> float:
    """Lemma D.1: the factor of φ*.

    >>> without_grid(1)
    1120.0
    """
    a = seeding_factor(k)
    return 2.0 * a * (3.0 + 2.0 * a)


def with_known_clusters(k: int, k_prime: int) -> float:
    """The remark on clients that know how many clusters they hold: the factor of φ*."""
    a, own = seeding_factor(k), seeding_factor(k_prime)
    return 2.0 * (own + 2.0 * a + 2.0 * a * own)


def with_grid(k: int, quantisation: float) -> float:
    """Theorem 4.1, over φ*; ``quantisation`` is n d γ² / φ*."""
    a = seeding_factor(k)
    return 3.0 * a * (4.0 + 3.0 * a) + 3.0 * (1.0 + 3.0 * a) * quantisation / 4.0


def with_grid_without_outliers(k: int, quantisation: float, epsilon_2: float) -> float:
    """Theorem 4.1 for data without outliers, over φ*."""
    a = seeding_factor(k)
    first = 3.0 * a * (1.0 + 2.0 * epsilon_2)
    return first + 3.0 * (1.0 + 2.0 * a) * quantisation / 4.0


def without_outliers(data: Dataset, *, trial: int, reference: Value) -> Value:
    """MUFC and Alg. 5 on the records that are left without the farthest hundredth.

    Returns their losses, φ* of these records, the ε₂ for which none of them is an outlier, and K′.
    """
    kept = np.setdiff1d(np.arange(len(data.X)), reference["farthest"])
    values = np.ascontiguousarray(data.X[kept])
    inliers = replace(data, X=values, clients=data.clients[kept], clusters=None)
    optimum = lloyd(values, np.ascontiguousarray(reference["centres"]))
    d2 = nearest(values, optimum.centres)[1]
    sizes = optimum.sizes
    means = np.bincount(optimum.labels, weights=d2, minlength=len(sizes)) / np.maximum(sizes, 1)
    spread = d2 / np.where(means > 0.0, means, 1.0)[optimum.labels]
    losses = {}
    settings: dict[str, dict[str, Any]] = {
        "MUFC": {},
        "Alg. 5": {"points": "weighted", "aggregation": "centroids"},
    }
    for name, others in settings.items():
        model = methods.mufc(inliers, trial, **others).fit(values, clients=inliers.clients)
        losses[name] = float(model.induced_inertia_)
    n, d = values.shape
    return {
        "losses": losses,
        "optimum": optimum.loss,
        "epsilon_2": float(spread.max()),
        "k_prime": data.k_prime,
        "quantisation": n * d * inliers.step**2 / optimum.loss,
    }


def growth(trial: int, *, k: int) -> Value:
    """How the loss grows with K: separated clusters, dealt i.i.d., one start at the server.

    A seed that two share leaves a cluster without one, and more clusters leave more chances.
    """
    rng = np.random.default_rng([trial, 6, k])
    centres = rng.random((k, _FEATURES))
    truth = np.repeat(np.arange(k), _PER_CLUSTER)
    values = centres[truth] + rng.normal(0.0, _DEVIATION, (len(truth), _FEATURES))
    values = np.clip(values, 0.0, 1.0)
    clients = iid(len(values), GROWTH_CLIENTS, seed=trial)
    data = Dataset(f"K = {k}", "", values, clients, k, k, GROWTH_CLIENTS, "")
    optimum = lloyd(values, centres).loss
    published = methods.mufc(data, trial).set_params(n_init=1)
    simple = methods.mufc(data, trial, points="weighted", aggregation="centroids")
    exact = methods.ours(data, trial, representatives="lloyd").set_params(n_init=1)
    models = {"MUFC": published, "Alg. 5": simple.set_params(n_init=1), "ours, lloyd K": exact}
    return {
        "optimum": optimum,
        "quantisation": values.size * data.step**2 / optimum,
        "losses": {
            name: float(model.fit(values, clients=clients).induced_inertia_)
            for name, model in models.items()
        },
    }


def one_cluster_each(data: Dataset, *, reference: Value, runs: int) -> Value:
    """L = K, K′ = 1: φ_f over φ* of clients that hold one optimal cluster and report one seed."""
    values = data.X
    optimum = lloyd(values, np.ascontiguousarray(reference["centres"]))
    ratios = []
    for seed in range(runs):
        model = FederatedKMeans(
            data.n_clusters, bounds=(0.0, 1.0), step=data.step, local_clusters=1,
            representatives="seeds", aggregation="centroids", n_init=1, random_state=seed,
        )  # fmt: skip
        model.fit(values, clients=optimum.labels)
        ratios.append(float(model.induced_inertia_) / optimum.loss)
    return {"ratios": ratios}
