"""How good the clusters are: the paper's two tables, K′, γ, and the number of local clusters.

Cells hold losses; ratios are taken where they are shown, to the loss of the cell ``reference``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedforget.baselines.retraining import (
    centralised,
    complete_client_training,
    paper_configuration,
)
from fedforget.bench import methods
from fedforget.bench.cells import Value
from fedforget.bench.datasets import Dataset
from fedforget.bench.splits import global_clusters, non_iid
from fedforget.clustering.distance import nearest


def reference(data: Dataset, *, n_init: int) -> Value:
    """Centralised K-means++: its loss, its clusters, and how far the records lie from their centre.

    ``spread`` of a record is its squared distance to its centre over the mean of its cluster: a
    record is no outlier in the sense of the paper's Assumption 2 as long as this is at most ε₂.
    ``farthest`` are the records with the largest spread, one in a hundred, the largest first;
    ``costliest`` is the one that contributes most to the loss.
    """
    found = centralised(data.X, data.n_clusters, n_init=n_init)
    label, d2 = nearest(data.X, found.centres)
    sizes = np.bincount(label, minlength=len(found.centres))
    means = np.bincount(label, weights=d2, minlength=len(sizes)) / np.maximum(sizes, 1)
    spread = d2 / np.where(means > 0.0, means, 1.0)[label]
    farthest = np.argsort(-spread, kind="stable")[: max(1, len(spread) // 100)]
    return {
        "loss": found.loss,
        "centres": found.centres.tolist(),
        "sizes": sorted(sizes.tolist(), reverse=True),
        "spread": float(spread.max()),
        "farthest": farthest.tolist(),
        "costliest": int(d2.argmax()),
    }


def table_1(data: Dataset, trial: int, *, restarted_leaves: bool = True) -> Value:
    """Every method once, on all records."""
    found: Value = {
        "MUFC": methods.losses_of_model(methods.mufc(data, trial).fit(data.X, clients=data.clients))
    }
    for name, multiple in (("ours, K", 1), ("ours, 2K", 2)):
        model = methods.ours(data, trial, multiple=multiple).fit(data.X, clients=data.clients)
        found[name] = methods.losses_of_model(model)
    outcomes = {
        "K-FED": methods.k_fed(data, trial),
        "K-FED, K′": methods.k_fed(data, trial, local_clusters=data.k_prime),
        "DC-KM": methods.dc_km(data, trial).fit(data.X, data.clients).outcome(),
    }
    if restarted_leaves:
        tree = methods.dc_km(data, trial, local_init=10).fit(data.X, data.clients)
        outcomes["DC-KM, 10 starts"] = tree.outcome()
    for name, outcome in outcomes.items():
        found[name] = methods.losses_of_outcome(data.X, outcome)
    return found


def table_2(data: Dataset, trial: int) -> Value:
    """MUFC with Lloyd's iteration at the clients."""
    config = paper_configuration(data.n_clusters, *data.X.shape, seed=trial)
    outcome = complete_client_training(data.X, data.clients, config, seed=trial)
    return {"MUFC": methods.losses_of_outcome(data.X, outcome)}


def heterogeneity(data: Dataset, trial: int, *, k_prime: int) -> Value:
    """Other clients for the same records, who see at most ``k_prime`` clusters."""
    clusters = global_clusters(data.X, data.n_clusters)
    dealt = replace(
        data, clients=non_iid(clusters, data.n_clients, k_prime, seed=trial), k_prime=k_prime
    )
    return _both(dealt, trial, None)


def step_size(data: Dataset, trial: int, *, step: float) -> Value:
    """Another grid.  ``weighted`` is MUFC with bin centres instead of points drawn in the bins."""
    found = _both(data, trial, step)
    weighted = methods.mufc(data, trial, step=step, points="weighted")
    found["weighted"] = methods.losses_of_model(weighted.fit(data.X, clients=data.clients))
    return found


def local_clusters(data: Dataset, trial: int, *, multiple: int, representatives: str) -> Value:
    """More local clusters, and how often they would have to be drawn again.

    ``reseed`` is the chance that a removed record is a seed, if first a client and then one of its
    records is drawn uniformly.
    """
    model = methods.ours(data, trial, multiple=multiple, representatives=representatives)
    model.fit(data.X, clients=data.clients)
    held = np.bincount(data.clients, minlength=data.n_clients)
    seeds = np.array([len(model.seed_ids_[client]) for client in range(data.n_clients)])
    return methods.losses_of_model(model) | {"reseed": float((seeds / held).mean())}


def _both(data: Dataset, trial: int, step: float | None) -> Value:
    published = methods.mufc(data, trial, step=step).fit(data.X, clients=data.clients)
    exact = methods.ours(data, trial, multiple=2)
    if step is not None:
        exact.set_params(step=step)
    exact.fit(data.X, clients=data.clients)
    return {
        "MUFC": methods.losses_of_model(published),
        "ours, 2K": methods.losses_of_model(exact),
    }
