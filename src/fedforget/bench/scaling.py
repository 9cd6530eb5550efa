"""Theorem 5.4: the expected time of a removal does not depend on the number of records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedforget.arrays import Floats
from fedforget.bench import methods
from fedforget.bench.cells import Value
from fedforget.bench.datasets import Dataset, unit_box
from fedforget.bench.splits import iid
from fedforget.bench.timing import timed
from fedforget.estimators import SeededKMeans

N_CLUSTERS, N_FEATURES, N_CLIENTS = 10, 10, 10


def records(n: int) -> Floats:
    """The paper's Gaussian set, with another number of records."""
    rng = np.random.default_rng(0)
    centres = rng.random((N_CLUSTERS, N_FEATURES))[np.arange(n) % N_CLUSTERS]
    return unit_box(centres + rng.normal(0.0, 0.5**0.5, centres.shape))


def removal(trial: int, *, n: int, requests: int, federations: bool) -> Value:
    """Random removals from n records: of Alg. 3 and, with ``federations``, of whole federations.

    For each method the seconds of every removal, whether seeds were drawn again, and the seconds
    of a fit.
    """
    X = records(n)
    victims = np.random.default_rng([trial, 7]).permutation(n)[:requests].tolist()
    makers: dict[str, Callable[[], Any]] = {
        "Alg. 3": lambda: SeededKMeans(N_CLUSTERS, random_state=trial).fit(X)
    }
    if federations:
        clients = iid(n, N_CLIENTS, seed=trial)
        data = Dataset("scaling", "", X, clients, N_CLUSTERS, N_CLUSTERS, N_CLIENTS, "")
        for name, model in (
            ("ours, K", methods.ours(data, trial)),
            ("ours, lloyd K", methods.ours(data, trial, representatives="lloyd")),
        ):
            makers[name] = partial(model.fit, X, clients=clients)
    found: Value = {}
    for name, make in makers.items():
        model, fitted = timed(make)
        seconds, redrawn = [], []
        for victim in victims:
            report, elapsed = timed(partial(model.forget, victim))
            seconds.append(elapsed)
            redrawn.append(bool(report.reseeded))
        found[name] = {"seconds": seconds, "reseeded": redrawn, "fit": fitted}
    return found
