"""The methods that are compared, set up as the experiments need them.

* **MUFC** is the paper's method as published: seeds represent, the server draws points uniformly in
  the bins, γ = 1/√n, Alg. 4 as printed.  Its Lloyd iteration at the server stops as scikit-learn's
  does, which the authors use.  Its server seeds by plain K-means++, as the paper says; the authors'
  code seeds greedily, which is a method of its own here (*greedy server*).
* **ours** is exact, clients report means (or, *lloyd*, the centres of K-means of their own), the
  server clusters weighted bins.
* **K-FED** starts from the centres of client 0, as the authors' code does; *drawn start* draws it.
* **DC-KM** stops its Lloyd iterations as its authors do, when the loss falls by less than 0.1 %.
* **FKM** talks in rounds; the others talk once.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fedforget.arrays import Floats
from fedforget.baselines.dckmeans import DCKMeans
from fedforget.baselines.federation import FederatedClustering, Seconds, outcome_of, rows_of_clients
from fedforget.baselines.fkm import FkmResult, fkm
from fedforget.baselines.kfed import kfed
from fedforget.baselines.retraining import greedy_server, paper_configuration
from fedforget.bench.datasets import Dataset
from fedforget.clustering.distance import nearest
from fedforget.clustering.losses import induced_loss, nearest_loss
from fedforget.estimators import FederatedKMeans

Losses = dict[str, float]

N_INIT = 10
"""Starts at the server, for every method that has any."""

DC_TOLERANCE = 1e-3


def mufc(
    data: Dataset, seed: int, *, step: float | None = None, points: str = "uniform", **others: Any
) -> Any:
    """MUFC as published, except for what ``others`` change; not fitted."""
    return FederatedKMeans(
        data.n_clusters,
        bounds=(0.0, 1.0),
        step=step or data.step,
        mode="paper",
        server_points=points,
        n_init=N_INIT,
        tol=1e-4,
        random_state=seed,
        **others,
    )


def greedy_mufc(data: Dataset, model: Any, seed: int) -> FederatedClustering:
    """The authors' server on what the clients of a fitted MUFC report."""
    grid = paper_configuration(data.n_clusters, *data.X.shape).grid
    rows = rows_of_clients(data.clients)
    bins, sizes, local = [], [], []
    for client, own in rows.items():
        seeds = data.X[model.seed_ids_[client]]
        labels = nearest(data.X[own], seeds)[0]
        bins.append(grid.bins_of_units(grid.to_units(seeds)))
        sizes.append(np.bincount(labels, minlength=len(seeds)))
        local.append(labels)
    centres, of_bin = greedy_server(
        grid, np.concatenate(bins), np.concatenate(sizes), data.n_clusters, n_init=N_INIT, seed=seed
    )
    parts = np.split(of_bin, np.cumsum([len(one) for one in bins])[:-1])
    return outcome_of(centres, rows, local, parts, Seconds(0.0, 0.0))


def ours(
    data: Dataset,
    seed: int,
    *,
    multiple: int = 1,
    representatives: str = "means",
    aggregation: str = "plain",
) -> Any:
    """The exact method with ``multiple`` · K local clusters; not fitted."""
    return FederatedKMeans(
        data.n_clusters,
        bounds=(0.0, 1.0),
        step=data.step,
        local_clusters=multiple * data.n_clusters,
        representatives=representatives,
        aggregation=aggregation,
        n_init=N_INIT,
        random_state=seed,
    )


def dc_km(data: Dataset, seed: int, *, local_init: int = 1) -> DCKMeans:
    """DC-KM; not fitted."""
    return DCKMeans(
        data.n_clusters, n_init=N_INIT, local_init=local_init, tol=DC_TOLERANCE, seed=seed
    )


def k_fed(
    data: Dataset, seed: int, *, local_clusters: int | None = None, drawn_start: bool = False
) -> FederatedClustering:
    """K-FED, from client 0 or from one drawn at random: the algorithm starts from any."""
    first = int(np.random.default_rng(seed).integers(data.n_clients)) if drawn_start else 0
    return kfed(
        data.X,
        data.clients,
        data.n_clusters,
        local_clusters=local_clusters,
        first_device=first,
        seed=seed,
    )


def rounds(data: Dataset, seed: int, *, max_rounds: int) -> FkmResult:
    """FKM."""
    return fkm(
        data.X, data.clients, data.n_clusters, n_init=N_INIT, max_rounds=max_rounds, seed=seed
    )


def losses_of_model(model: Any) -> Losses:
    """Induced and nearest-centre loss of a fitted estimator."""
    return {"induced": model.induced_inertia_, "nearest": model.inertia_}


def losses_of_outcome(values: Floats, outcome: FederatedClustering) -> Losses:
    """The same of a baseline's outcome."""
    return {
        "induced": induced_loss(values, outcome.labels, outcome.centres),
        "nearest": nearest_loss(values, outcome.centres),
    }


def refined_loss(values: Floats, centres: Floats) -> float:
    """The loss of centralised K-means that starts from ``centres``: a reference for other records.

    After a few removals the optimum is near the old one, so that Lloyd's iteration need not search.
    """
    with warnings.catch_warnings():
        # Fewer distinct records than clusters are no reason to complain.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(min(len(centres), len(values)), init=centres[: len(values)], n_init=1)
        model.fit(values)
    return float(model.inertia_)
