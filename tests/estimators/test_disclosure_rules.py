"""Rules about what is reported and published: the promise holds under each, at every threshold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedforget import FederatedKMeans
from fedforget.clustering.distance import nearest
from test_history_independence import federated_state, fresh_federation

CLIENTS = ["north", "south", "east"]
POOL = 60


def state(model: FederatedKMeans) -> dict[str, Any]:
    aggregate = model._federation.aggregate
    return federated_state(model) | {
        "points": aggregate.points().tolist(),
        "counts": aggregate.counts().tolist(),
    }


class ThresholdMachine(RuleBasedStateMachine):
    """Clusters and clients are brought to sizes just below, at and just above the thresholds."""

    held: dict[str, tuple[int, str]]  # id -> (row of the pool, client)

    @initialize(
        seed=st.integers(0, 2**32 - 1),
        decimals=st.sampled_from([1, 6]),
        options=st.fixed_dictionaries(
            {
                "n_clusters": st.integers(1, 3),
                "local_clusters": st.integers(2, 6),
                "representatives": st.sampled_from(["means", "seeds", "lloyd"]),
                "aggregation": st.sampled_from(["plain", "scma", "centroids"]),
                "min_cell": st.integers(1, 6),
                "min_records": st.integers(1, 12),
                "count_step": st.integers(1, 6),
                "published_step": st.sampled_from([None, 0.02, 0.3]),
                "step": st.sampled_from([0.01, 0.2]),
                "max_iter": st.sampled_from([1, 300]),
            }
        ),
    )
    def fit(self, seed: int, decimals: int, options: dict[str, Any]) -> None:
        self.rng = np.random.default_rng(seed)
        blobs = self.rng.random((5, 2))
        near = blobs[self.rng.integers(0, 5, POOL)] + self.rng.normal(0, 0.1, (POOL, 2))
        # With one decimal, many records are equally far from two seeds.
        self.pool = np.clip(near, 0.0, 1.0).round(decimals)
        self.model = FederatedKMeans(**options, bounds=(0, 1), n_init=2, random_state=seed)
        self.held = {}
        self._learn(self.model.fit, self._free(int(self.rng.integers(12, 45))))

    def _free(self, count: int, client: str | None = None) -> dict[str, tuple[int, str]]:
        free = [f"r{i}" for i in range(POOL) if f"r{i}" not in self.held]
        ids = self.rng.permutation(free)[:count].tolist()
        return {i: (int(i[1:]), client or str(self.rng.choice(CLIENTS))) for i in ids}

    def _columns(self, records: dict[str, tuple[int, str]]) -> tuple[Any, ...]:
        order = self.rng.permutation(list(records)) if records else np.empty(0, dtype="U1")
        rows = [records[i][0] for i in order]
        return self.pool[rows], np.array([records[i][1] for i in order], dtype="U5"), order

    def _learn(self, verb: Any, records: dict[str, tuple[int, str]]) -> None:
        X, clients, ids = self._columns(records)
        verb(X, clients=clients, ids=ids)
        self.held.update(records)

    def _forget(self, ids: list[str]) -> None:
        if ids:
            self.model.forget(ids)
        for i in ids:
            del self.held[i]

    def _some_client(self) -> Any:
        clients = self.model._federation.clients
        return clients[str(self.rng.choice(sorted(clients)))].owner

    @rule(count=st.integers(1, 5))
    def forget_some(self, count: int) -> None:
        self._forget(self.rng.permutation(list(self.held))[:count].tolist())

    @precondition(lambda self: self.held)
    @rule(beyond=st.sampled_from([-1, 0, 1]), how_many=st.integers(1, 3))
    def bring_clusters_to_the_threshold(self, beyond: int, how_many: int) -> None:
        """Several clusters of one client are left with m - 1, m or m + 1 records."""
        owner, gone = self._some_client(), []
        label = owner.clusters.labels_of(np.arange(len(owner)))
        for k in self.rng.permutation(np.unique(label))[:how_many]:
            members = owner.records.ids[label == k]
            left = max(0, self.model.min_cell + beyond)
            gone += self.rng.permutation(members)[left:].tolist()
        self._forget(gone)

    @precondition(lambda self: self.held)
    @rule(beyond=st.sampled_from([-1, 0, 1]), comes_back=st.booleans())
    def bring_a_client_to_the_threshold(self, beyond: int, comes_back: bool) -> None:
        owner = self._some_client()
        left = max(0, self.model.min_records + beyond)
        ids = self.rng.permutation(owner.records.ids)[left:].tolist()
        before = {i: self.held[i] for i in ids}
        self._forget(ids)
        if comes_back and before:
            self.equals_a_fresh_fit()
            self._learn(self.model.learn, before)

    @rule(count=st.integers(1, 12), client=st.sampled_from([None, *CLIENTS]))
    def learn_some(self, count: int, client: str | None) -> None:
        records = self._free(count, client)
        if records:
            self._learn(self.model.learn, records)

    @invariant()
    def equals_a_fresh_fit(self) -> None:
        fresh = fresh_federation(self.model, *self._columns(self.held))
        assert state(self.model) == state(fresh)

    @invariant()
    def nothing_small_is_reported(self) -> None:
        rules = self.model._federation.config.rules
        least = int(rules.rounded(np.array([rules.min_cell]))[0])
        for client in self.model._federation.clients.values():
            counts = client.reported.counts()
            assert (counts % rules.count_step == 0).all()
            assert (counts >= least).all()
            assert len(client.owner) >= rules.min_records or not len(counts)
            if rules.count_step == 1 and len(counts):
                assert client.reported.total == len(client.owner)

    @invariant()
    def labels_are_those_of_the_published_centres(self) -> None:
        X = self.pool[[self.held[i][0] for i in self.model.ids_]].reshape(-1, 2)
        centres = self.model.cluster_centers_
        assert self.model.labels_.tolist() == nearest(X, centres)[0].tolist()
        step = self.model.published_step
        if step is not None:
            assert np.allclose(centres / step, np.rint(centres / step), atol=1e-9)


ThresholdMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=12)
TestThresholds = ThresholdMachine.TestCase


def line(count: int, at: float) -> np.ndarray:
    """Records so close together that they fall into one bin."""
    return at + np.linspace(0.0, 1e-4, count)[:, np.newaxis]


def two_groups(small: int, **rules: Any) -> FederatedKMeans:
    """One client with a group of 20 records near 0.2 and a small one near 0.9."""
    X = np.concatenate([line(20, 0.2), line(small, 0.9)])
    options: dict[str, Any] = {"bounds": (0, 1), "step": 0.01, "random_state": 0} | rules
    return FederatedKMeans(2, **options).fit(X)


@pytest.mark.parametrize("representatives", ["means", "seeds", "lloyd"])
def test_a_small_group_does_not_show(representatives: str) -> None:
    for small in (4, 5, 6):
        model = two_groups(small, min_cell=5, representatives=representatives)
        assert len(model.cluster_centers_) == (1 if small < 5 else 2)
        assert model._federation.aggregate.total == 20 + small


def test_what_grew_is_represented_by_the_mean_of_all_that_it_holds() -> None:
    """The centre of one record is that record, however many others join it."""
    X = np.array([[0.1], [0.9], [0.5]])
    options: dict[str, Any] = {"bounds": (0, 1), "step": 0.01, "random_state": 0, "min_cell": 3}
    for representatives in ("means", "lloyd"):
        model = FederatedKMeans(3, representatives=representatives, **options).fit(X)
        assert model.cluster_centers_.tolist() == [[0.5]]


def test_counts_are_rounded_and_then_added() -> None:
    X = np.concatenate([line(8, 0.2), line(7, 0.2), line(2, 0.2)])
    clients = np.repeat(["a", "b", "c"], [8, 7, 2])
    model = FederatedKMeans(1, bounds=(0, 1), step=0.01, count_step=5, random_state=0)
    model.fit(X, clients=clients)
    assert model._federation.aggregate.counts().tolist() == [15]  # 10 + 5 + 0


@pytest.mark.parametrize("huge", [2**31, 2**62, 2**63, 10**30])
def test_rules_that_nobody_can_meet_leave_nothing_to_report(huge: int) -> None:
    for name in ("min_cell", "min_records", "count_step"):
        model = two_groups(6, **{name: huge})
        assert len(model.cluster_centers_) == 0
        assert model._federation.aggregate.total == 0


def test_records_that_are_not_reported_follow_the_nearest_centre() -> None:
    X = np.concatenate([line(10, 0.2), line(10, 0.8), line(3, 0.7)])
    clients = np.repeat(["a", "b", "c"], [10, 10, 3])
    model = FederatedKMeans(2, bounds=(0, 1), step=0.01, min_records=4, random_state=0)
    model.fit(X, clients=clients)
    assert model._federation.aggregate.total == 20
    assert set(model.induced_labels_[20:]) == set(model.induced_labels_[10:20])
    assert math.isfinite(model.induced_inertia_)


def test_nobody_may_report() -> None:
    model = two_groups(3, min_records=100)
    assert model.cluster_centers_.shape == (0, 1)
    assert set(model.labels_) == set(model.induced_labels_) == {-1}
    with pytest.raises(ValueError, match="none is reported"):
        model.predict([[0.5]])


def test_the_published_model_is_all_that_shows() -> None:
    exact = two_groups(6)
    model = two_groups(6, published_step=0.25)
    assert sorted(model.cluster_centers_[:, 0].tolist()) == [0.25, 1.0]
    assert sorted(exact.cluster_centers_[:, 0].tolist()) != [0.25, 1.0]
    assert model.predict([[0.6], [0.65]]).tolist() == model.labels_[[0, -1]].tolist()
    assert model.transform([[1.0]]).min() == 0.0
    # A removal that moves no published centre leaves no trace in anything that is published.
    before = model.model_digest_
    report = model.forget([0])
    assert report.changed_points > 0
    assert model.model_digest_ == before


def test_rules_are_part_of_the_digest_and_of_a_saved_model(tmp_path: Any) -> None:
    digests = {two_groups(6).model_digest_}
    for rules in ({"min_cell": 2}, {"min_records": 2}, {"count_step": 1, "published_step": 0.01}):
        model = two_groups(6, **rules)
        digests.add(model.model_digest_)
        model.save(tmp_path / "model.npz")
        again = FederatedKMeans.load(tmp_path / "model.npz")
        assert state(again) == state(model)
        assert {name: getattr(again, name) for name in rules} == rules
    assert len(digests) == 4


def test_what_is_refused() -> None:
    for name in ("min_cell", "min_records", "count_step"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            two_groups(6, **{name: 0})
        with pytest.raises(ValueError, match=r'mode="paper"'):
            two_groups(6, mode="paper", **{name: 2})
    with pytest.raises(ValueError, match="published_step must lie between"):
        two_groups(6, published_step=0.0)
