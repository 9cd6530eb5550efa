"""Does a removal leave what a fresh fit gives?  Bit for bit on real data, in law on small sets.

Bit for bit, after each removal the method's centres are compared with those of a fresh fit on the
records that are left, with the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from fedforget.baselines.qkmeans import QKMeans
from fedforget.bench import laws, methods
from fedforget.bench.cells import Value
from fedforget.bench.datasets import Dataset
from fedforget.estimators import SeededKMeans

Q_EPSILON = 0.05


SEED_EVERY = 5
"""Every so many requests the removed record is a seed: at random that would hardly ever happen."""


def bit_for_bit(data: Dataset, trial: int, *, requests: int) -> Value:
    """For each method, whether each removal left the model of a fresh fit."""
    rules: dict[str, Callable[[_Requests], list[bool]]] = {
        "MUFC as printed": partial(_estimator, lambda: methods.mufc(data, trial)),
        "seeds drawn anew if one is hit": partial(_restarting, trial),
        "DC-KM": partial(_tree, trial),
        "Q-KM": partial(_quantised, trial),
        "ours": partial(_estimator, lambda: methods.ours(data, trial)),
        "ours, lloyd K": partial(
            _estimator, lambda: methods.ours(data, trial, representatives="lloyd")
        ),
    }
    return {name: rule(_Requests(data, trial, requests)) for name, rule in rules.items()}


class _Requests:
    """Records to remove, one per turn: random ones, and now and then a seed."""

    def __init__(self, data: Dataset, trial: int, n_requests: int) -> None:
        self.data = data
        self.left = np.arange(len(data.X))
        self._rng = np.random.default_rng([trial, 5])
        self._n_requests = n_requests

    def turns(self) -> range:
        return range(1, self._n_requests + 1)

    def draw(self, turn: int, seeds: Any = ()) -> int:
        """The record of this turn, which is then no longer left."""
        pool = np.asarray(seeds) if turn % SEED_EVERY == 0 and len(seeds) else self.left
        victim = int(self._rng.choice(pool))
        self.left = self.left[self.left != victim]
        return victim


def _estimator(make: Callable[[], Any], requests: _Requests) -> list[bool]:
    data = requests.data
    model = make().fit(data.X, clients=data.clients)
    same = []
    for turn in requests.turns():
        seeds = model.seed_ids_.get(turn % data.n_clients, ())
        model.forget(requests.draw(turn, seeds))
        left = requests.left
        fresh = make().fit(data.X[left], clients=data.clients[left], ids=left)
        same.append(_equal(model.cluster_centers_, fresh.cluster_centers_))
    return same


def _restarting(trial: int, requests: _Requests) -> list[bool]:
    """The authors' rule for one owner of all records: a hit seed means a new random start."""
    data = requests.data
    model = SeededKMeans(data.n_clusters, random_state=trial).fit(data.X)
    same = []
    for turn in requests.turns():
        victim = requests.draw(turn, model.seed_ids_)
        left = requests.left
        if victim in model.seed_ids_:
            again = SeededKMeans(data.n_clusters, random_state=1000 * (trial + 1) + turn)
            model = again.fit(data.X[left], ids=left)
        else:
            model.forget(victim)
        fresh = SeededKMeans(data.n_clusters, random_state=trial).fit(data.X[left], ids=left)
        same.append(_equal(model.cluster_centers_, fresh.cluster_centers_))
    return same


def _tree(trial: int, requests: _Requests) -> list[bool]:
    data = requests.data
    tree = methods.dc_km(data, trial).fit(data.X, data.clients)
    same = []
    for turn in requests.turns():
        tree.forget([requests.draw(turn)])
        left = requests.left
        fresh = methods.dc_km(data, trial).fit(data.X[left], data.clients[left], ids=left)
        same.append(_equal(tree.outcome().centres, fresh.outcome().centres))
    return same


def _quantised(trial: int, requests: _Requests) -> list[bool]:
    data = requests.data

    def make() -> QKMeans:
        return QKMeans(data.n_clusters, bounds=(0.0, 1.0), epsilon=Q_EPSILON, seed=trial)

    model = make().fit(data.X)
    same = []
    for turn in requests.turns():
        model.forget([requests.draw(turn, model.seed_ids)])
        left = requests.left
        fresh = make().fit(data.X[left], ids=left)
        same.append(_equal(model.centres, fresh.centres))
    return same


def _equal(one: Any, two: Any) -> bool:
    return bool(one.tobytes() == two.tobytes())


def in_law() -> Value:
    """Total variation between forgetting and retraining on the smallest telling examples."""
    line = tuple(Fraction(x) for x in (0, 1, 3, 7))
    clients = ((Fraction(0), Fraction(2, 5)), (Fraction(4, 5),))
    trees = ((Fraction(0), Fraction(1), Fraction(4)), (Fraction(6), Fraction(9)))
    step = Fraction(1, 2)
    distances = {
        "MUFC as printed": laws.total_variation(
            laws.federated_mean_after(clients, Fraction(2, 5), counts_follow=False),
            laws.federated_mean(((Fraction(0),), (Fraction(4, 5),))),
        ),
        "seeds drawn anew if one is hit": _seed_distance(line, laws.starting_over),
        "the prefix kept (Alg. 3)": _seed_distance(line, laws.keeping_the_prefix),
        "DC-KM": laws.total_variation(
            laws.dc_k_means_after(trees, 2, Fraction(4)),
            laws.dc_k_means((trees[0][:2], trees[1]), 2),
        ),
        "Q-KM, trained afresh where the check fails": laws.total_variation(
            laws.q_k_means_after(line[:3], 2, Fraction(1), step, 8),
            laws.q_k_means((line[0], line[2]), 2, step, 8),
        ),
        "ours": laws.total_variation(
            laws.federated_mean_after(clients, Fraction(2, 5), counts_follow=True),
            laws.federated_mean(((Fraction(0),), (Fraction(4, 5),))),
        ),
    }
    return {name: str(distance) for name, distance in distances.items()}


def _seed_distance(line: laws.Seeds, redraw: laws.Redraw) -> Fraction:
    """The worst over the records, of the law of the set of seeds, K = 2."""

    def unordered(law: laws.Law[laws.Seeds]) -> laws.Law[frozenset[Fraction]]:
        return laws.mapped(law, frozenset)

    return max(
        laws.total_variation(
            unordered(laws.after_forgetting(line, 2, victim, redraw)),
            unordered(laws.seedings(tuple(point for point in line if point != victim), 2)),
        )
        for victim in line
    )
