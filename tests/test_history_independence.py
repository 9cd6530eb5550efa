"""The promise: after any sequence of changes the model is that of a fresh fit, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fedforget import FederatedKMeans, SeededKMeans
from fedforget.runtime.local import LocalFederation

CLIENTS = ["north", "south", "east", "west"]


def per_record(model: Any) -> dict[str, list[Any]]:
    """The attributes with one entry a record, sorted by id."""
    names = ["ids_", "labels_"]
    if isinstance(model, FederatedKMeans):
        names += ["induced_labels_", "clients_"]
    order = np.argsort(model.ids_)
    return {name: getattr(model, name)[order].tolist() for name in names}


def federated_state(model: FederatedKMeans) -> dict[str, Any]:
    return {
        "centres": model.cluster_centers_.tobytes(),
        "digest": model.model_digest_,
        "inertia": model.inertia_,
        "induced_inertia": model.induced_inertia_,
        "n_iter": model.n_iter_,
        **per_record(model),
    }


def fresh_federation(model: FederatedKMeans, X: Any, clients: Any, ids: Any) -> FederatedKMeans:
    """What ``fit`` would give; below K records, which ``fit`` refuses, the layer beneath it."""
    other = FederatedKMeans(**model.get_params())
    if len(X) >= model.n_clusters:
        return other.fit(X, clients=clients, ids=ids)
    other.n_features_in_ = model.n_features_in_
    federation = LocalFederation(model._federation.config, model._federation.root)
    federation.learn(X, ids, clients, federation.config.grid.to_clustered)
    other._adopt(federation, other.get_params(deep=False))
    return other


class FederationMachine(RuleBasedStateMachine):
    """Records come, go and come back, clients join and leave; the past must not show."""

    pool: np.ndarray
    held: dict[str, tuple[int, str]]  # id -> (row of the pool, client)

    @initialize(
        seed=st.integers(0, 2**32 - 1),
        d=st.integers(1, 4),
        decimals=st.sampled_from([0, 1, 6]),
        options=st.fixed_dictionaries(
            {
                "n_clusters": st.integers(1, 4),
                "scale": st.sampled_from(["none", "box"]),
                "step": st.sampled_from([0.01, 0.2, 1.0]),
                "shift": st.booleans(),
                "local_clusters": st.sampled_from([None, 1, 5, {"north": 2, "west": 7}]),
                "representatives": st.sampled_from(["means", "seeds", "lloyd"]),
                "n_init": st.integers(1, 3),
                "max_iter": st.sampled_from([1, 300]),
                "tol": st.sampled_from([0.0, 0.1]),
                "n_jobs": st.sampled_from([None, 2]),
            }
        ),
        points=st.sampled_from(
            [
                ("plain", "weighted"),
                ("plain", "uniform"),
                ("scma", "weighted"),
                ("centroids", "weighted"),
            ]
        ),
    )
    def fit(self, seed: int, d: int, decimals: int, options: dict, points: tuple[str, str]) -> None:
        self.rng = np.random.default_rng(seed)
        self.pool = (self.rng.random((40, d)) * [[1.0, 2.0, 0.5, 1.0][:d]]).round(decimals)
        self.pool = np.clip(self.pool, 0.0, [[1.0, 2.0, 0.5, 1.0][:d]])
        bounds = [(0.0, high) for high in (1.0, 2.0, 0.5, 1.0)[:d]]
        aggregation, server_points = points
        self.model = FederatedKMeans(
            **options,
            bounds=bounds,
            aggregation=aggregation,
            server_points=server_points,
            random_state=seed,
        )
        self.held = {}
        chosen = self._choose_new(int(self.rng.integers(options["n_clusters"], 25)))
        self._learn(self.model.fit, chosen)

    def _choose_new(self, count: int) -> dict[str, tuple[int, str]]:
        free = [f"r{i}" for i in range(40) if f"r{i}" not in self.held]
        ids = self.rng.permutation(free)[:count].tolist()
        # A record that comes back may come to another client.
        return {i: (int(i[1:]), str(self.rng.choice(CLIENTS))) for i in ids}

    def _columns(self, records: dict[str, tuple[int, str]]) -> tuple:
        order = self.rng.permutation(list(records)) if records else np.empty(0, dtype="U1")
        rows = [records[i][0] for i in order]
        names = np.array([records[i][1] for i in order], dtype="U5")
        return self.pool[rows], names, order

    def _learn(self, verb: Any, records: dict[str, tuple[int, str]]) -> None:
        X, clients, ids = self._columns(records)
        verb(X, clients=clients, ids=ids)
        self.held.update(records)

    @rule(count=st.integers(1, 6))
    def forget_some(self, count: int) -> None:
        ids = self.rng.permutation(list(self.held))[:count].tolist()
        report = self.model.forget(ids)
        assert report.removed == len(ids)
        for i in ids:
            del self.held[i]

    @precondition(lambda self: self.held)
    @rule(position=st.integers(0, 6))
    def forget_a_seed(self, position: int) -> None:
        name = str(self.rng.choice(sorted({client for _, client in self.held.values()})))
        seeds = self.model.seed_ids_[name]
        victim = str(seeds[position % len(seeds)])
        report = self.model.forget(victim)
        del self.held[victim]
        alone = name not in {client for _, client in self.held.values()}
        assert report.reseeded == ({} if alone else {name: position % len(seeds) + 1})

    @precondition(lambda self: self.held)
    @rule(how=st.sampled_from(["records", "clients"]))
    def lose_clients(self, how: str) -> None:
        present = sorted({client for _, client in self.held.values()})
        leaving = present[: int(self.rng.integers(1, len(present) + 1))]
        ids = [i for i, (_, client) in self.held.items() if client in leaving]
        report = self.model.forget(ids) if how == "records" else self.model.forget_clients(leaving)
        assert set(report.left) == set(leaving)
        for i in ids:
            del self.held[i]

    @rule()
    def forget_everything(self) -> None:
        self.model.forget(list(self.held))
        self.held = {}
        assert self.model.cluster_centers_.shape == (0, self.pool.shape[1])

    @rule(count=st.integers(1, 12))
    def learn_some(self, count: int) -> None:
        chosen = self._choose_new(count)
        if chosen:
            self._learn(self.model.learn, chosen)

    @invariant()
    def equals_a_fresh_fit(self) -> None:
        fresh = fresh_federation(self.model, *self._columns(self.held))
        assert federated_state(self.model) == federated_state(fresh)


FederationMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=15)
TestFederation = FederationMachine.TestCase


class OwnerMachine(RuleBasedStateMachine):
    """The same for one owner."""

    @initialize(
        seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6), k=st.integers(1, 5), fine=st.booleans()
    )
    def fit(self, seed: int, d: int, k: int, fine: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.pool = self.rng.normal(size=(50, d)).round(6 if fine else 0)
        self.model = SeededKMeans(k, random_state=seed)
        self.held = self.rng.permutation(50)[: int(self.rng.integers(k, 30))]
        self.model.fit(self.pool[self.held], ids=self.held)

    @rule(count=st.integers(1, 10))
    def forget(self, count: int) -> None:
        gone = self.rng.permutation(self.held)[:count]
        self.model.forget(gone)
        self.held = self.held[~np.isin(self.held, gone)]

    @precondition(lambda self: len(self.held))
    @rule(position=st.integers(0, 4))
    def forget_a_seed(self, position: int) -> None:
        seeds = self.model.seed_ids_
        gone = int(seeds[position % len(seeds)])
        self.model.forget(gone)
        self.held = self.held[self.held != gone]

    @rule(count=st.integers(1, 10))
    def learn(self, count: int) -> None:
        free = self.rng.permutation(np.setdiff1d(np.arange(50), self.held))[:count]
        if len(free):
            self.model.learn(self.pool[free], ids=free)
            self.held = np.concatenate([self.held, free])

    @invariant()
    def equals_a_fresh_fit(self) -> None:
        assert self.model.ids_.tolist() == self.held.tolist()
        if len(self.held) < self.model.n_clusters:
            return
        order = self.rng.permutation(self.held)
        fresh = SeededKMeans(**self.model.get_params()).fit(self.pool[order], ids=order)
        for name in ("cluster_centers_", "cluster_sizes_", "seed_ids_"):
            assert getattr(self.model, name).tobytes() == getattr(fresh, name).tobytes()
        assert self.model.inertia_ == fresh.inertia_
        assert per_record(self.model) == per_record(fresh)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestOwner(OwnerMachine.TestCase):
    """Coarse values have fewer distinct rows than there are clusters."""


TestOwner.settings = settings(max_examples=150, stateful_step_count=20)


@pytest.mark.parametrize("n_jobs", [1, 2, -1])
@pytest.mark.parametrize("what", ["means", "lloyd"])
def test_parallel_clients_make_no_difference(
    n_jobs: int, what: str, rng: np.random.Generator
) -> None:
    X, clients = rng.random((500, 6)), rng.integers(0, 20, 500)
    options = {"n_clusters": 4, "bounds": (0, 1), "step": 0.02, "random_state": 0}
    options |= {"representatives": what}
    one = FederatedKMeans(**options).fit(X, clients=clients)
    many = FederatedKMeans(**options, n_jobs=n_jobs).fit(X, clients=clients)
    assert federated_state(one) == federated_state(many)
    gone = rng.choice(500, 200, replace=False)
    one.forget(gone)
    many.forget(gone)
    assert federated_state(one) == federated_state(many)


@pytest.mark.parametrize("what", ["means", "lloyd"])
def test_hundreds_of_features_and_real_magnitudes(what: str, rng: np.random.Generator) -> None:
    """Many features take the path through the matrix product."""
    X = rng.gamma(0.3, 40.0, (300, 400)).clip(max=900.0)
    clients = rng.integers(0, 4, 300)
    options = {"n_clusters": 12, "bounds": (0, 900), "step": 0.01, "n_init": 2, "random_state": 1}
    options |= {"representatives": what}
    model = FederatedKMeans(**options).fit(X, clients=clients)
    keep = np.ones(300, dtype=bool)
    for _ in range(3):
        gone = rng.choice(np.flatnonzero(keep), 20, replace=False)
        model.forget(gone)
        keep[gone] = False
        fresh = FederatedKMeans(**options).fit(
            X[keep], clients=clients[keep], ids=np.flatnonzero(keep)
        )
        assert federated_state(model) == federated_state(fresh)
