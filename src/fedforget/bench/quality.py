"""How good the clusters are: the paper's two tables, K′, γ, and the number of local clusters.

Cells hold losses; ratios are taken where they are shown, to the loss of the cell ``reference``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedforget.baselines.lloyd import lloyd
from fedforget.baselines.retraining import (
    centralised,
    complete_client_training,
    complete_retraining,
    paper_configuration,
)
from fedforget.bench import methods
from fedforget.bench.cells import Value
from fedforget.bench.datasets import Dataset
from fedforget.bench.splits import clusters_seen, global_clusters, in_file_order
from fedforget.clustering.distance import nearest


def reference(data: Dataset, *, n_init: int) -> Value:
    """Centralised K-means++: its loss, its clusters, and how far the records lie from their centre.

    ``spread`` of a record is its squared distance to its centre over the mean of its cluster: a
    record is not an outlier in the sense of the paper's Assumption 5.3 as long as this is at most
    ε₂. ``farthest`` are the records with the largest spread, one in a hundred, the largest first;
    ``costliest`` is the one that contributes most to the loss.  ``printed`` is loss and sizes of
    the clustering that the paper compares with, where that is another one.
    """
    found = centralised(data.X, data.n_clusters, n_init=n_init)
    label, d2 = nearest(data.X, found.centres)
    sizes = np.bincount(label, minlength=len(found.centres))
    means = np.bincount(label, weights=d2, minlength=len(sizes)) / np.maximum(sizes, 1)
    spread = d2 / np.where(means > 0.0, means, 1.0)[label]
    farthest = np.argsort(-spread, kind="stable")[: max(1, len(spread) // 100)]
    printed: Value | None = None
    if data.printed_start:
        theirs = lloyd(data.X, data.X[list(data.printed_start)])
        printed = {"loss": theirs.loss, "sizes": sorted(theirs.sizes.tolist(), reverse=True)}
    return {
        "loss": found.loss,
        "printed": printed,
        "centres": found.centres.tolist(),
        "sizes": sorted(sizes.tolist(), reverse=True),
        "spread": float(spread.max()),
        "farthest": farthest.tolist(),
        "costliest": int(d2.argmax()),
    }


OURS: dict[str, dict[str, Any]] = {
    "ours, K": {},
    "ours, 2K": {"multiple": 2},
    "ours, lloyd K": {"representatives": "lloyd"},
    "ours, lloyd 2K": {"representatives": "lloyd", "multiple": 2},
}
"""The exact methods of the tables, and what sets them apart."""


def table_1(data: Dataset, trial: int, *, alternatives: bool = True, max_rounds: int = 20) -> Value:
    """Every method once, on all records.

    ``alternatives`` are other readings of the paper's methods: the greedy server, K-FED from
    another client or with K′ clusters, and DC-KM with ten starts at a leaf.
    """
    published = methods.mufc(data, trial).fit(data.X, clients=data.clients)
    found: Value = {"MUFC": methods.losses_of_model(published)}
    for name, settings in OURS.items():
        model = methods.ours(data, trial, **settings).fit(data.X, clients=data.clients)
        found[name] = methods.losses_of_model(model)
    rounds = methods.rounds(data, trial, max_rounds=max_rounds)
    outcomes = {
        "K-FED": methods.k_fed(data, trial),
        "DC-KM": methods.dc_km(data, trial).fit(data.X, data.clients).outcome(),
        "FKM": rounds.clustering,
    }
    if alternatives:
        tree = methods.dc_km(data, trial, local_init=10).fit(data.X, data.clients)
        outcomes |= {
            "MUFC, greedy server": methods.greedy_mufc(data, published, trial),
            "K-FED, drawn start": methods.k_fed(data, trial, drawn_start=True),
            "K-FED, K′": methods.k_fed(data, trial, local_clusters=data.k_prime),
            "DC-KM, 10 starts": tree.outcome(),
        }
    for name, outcome in outcomes.items():
        found[name] = methods.losses_of_outcome(data.X, outcome)
    found["FKM"]["rounds"] = rounds.n_rounds
    return found


def table_2(data: Dataset, trial: int, *, alternatives: bool = True) -> Value:
    """MUFC with Lloyd's iteration at the clients, and perhaps the authors' greedy server."""
    config = paper_configuration(data.n_clusters, *data.X.shape, seed=trial)
    outcomes = {"MUFC": complete_client_training(data.X, data.clients, config, seed=trial)}
    if alternatives:
        outcomes["MUFC, greedy server"] = complete_retraining(
            data.X, data.clients, data.n_clusters, config.grid, n_init=methods.N_INIT, seed=trial
        )
    return {name: methods.losses_of_outcome(data.X, outcome) for name, outcome in outcomes.items()}


def variants(data: Dataset, trial: int, *, known: bool = True) -> Value:
    """The paper's variants of MUFC, each of which changes one thing.

    Bin centres instead of drawn points; a grid that is shifted at random (its appendix on
    quantisation); Alg. 5, which sends centroids without a grid; and, where it is ``known`` how many
    global clusters each client holds, as many local clusters.
    """
    settings: dict[str, dict[str, Any]] = {
        "MUFC": {},
        "bin centres": {"points": "weighted"},
        "shifted grid": {"shift": True},
        "Alg. 5": {"points": "weighted", "aggregation": "centroids"},
    }
    if known:
        settings["known K⁽ˡ⁾"] = {"local_clusters": clusters_of_clients(data)}
    return {
        name: methods.losses_of_model(
            methods.mufc(data, trial, **one).fit(data.X, clients=data.clients)
        )
        for name, one in settings.items()
    }


def clusters_of_clients(data: Dataset) -> dict[int, int]:
    """How many global clusters each client holds records of."""
    clusters = data.clusters
    if clusters is None:
        clusters = global_clusters(data.X, data.n_clusters)
    seen = clusters_seen(clusters, data.clients)
    return dict(zip(np.unique(data.clients).tolist(), seen.tolist(), strict=True))


def fragments(data: Dataset, trial: int) -> Value:
    """The tables' methods on clients that hold slices of clusters.

    ``data`` is dealt so; see :func:`fedforget.bench.splits.fragmented`.
    """
    found = table_1(data, trial, alternatives=False)
    return found | {
        "complete client training": table_2(data, trial, alternatives=False)["MUFC"],
    }


def heterogeneity(data: Dataset, trial: int, *, k_prime: int) -> Value:
    """Other clients for the same records, who see at most ``k_prime`` clusters."""
    clusters = global_clusters(data.X, data.n_clusters)
    clients = in_file_order(clusters, data.n_clients, k_prime, seed=trial)
    return _three(replace(data, clients=clients, k_prime=k_prime), trial, None)


def step_size(data: Dataset, trial: int, *, step: float) -> Value:
    """Another grid.  ``weighted`` is MUFC with bin centres instead of points drawn in the bins."""
    found = _three(data, trial, step)
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


def _three(data: Dataset, trial: int, step: float | None) -> Value:
    models = {
        "MUFC": methods.mufc(data, trial, step=step),
        "ours, 2K": methods.ours(data, trial, multiple=2),
        "ours, lloyd K": methods.ours(data, trial, representatives="lloyd"),
    }
    if step is not None:
        for name in ("ours, 2K", "ours, lloyd K"):
            models[name].set_params(step=step)
    return {
        name: methods.losses_of_model(model.fit(data.X, clients=data.clients))
        for name, model in models.items()
    }
