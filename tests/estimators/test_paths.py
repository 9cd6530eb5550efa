"""Other numbers of clusters on a fitted model: each is a fresh fit with that number."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget import FederatedKMeans, KMeans

RNG = np.random.default_rng(11)
X = np.concatenate([RNG.normal(centre, 0.04, (40, 2)) for centre in (0.2, 0.5, 0.8)]).clip(0, 1)
CLIENTS = np.arange(len(X)) % 4
IDS = [f"p{row}" for row in range(len(X))]


def federated(n_clusters: int, **more: object) -> FederatedKMeans:
    usual = {"bounds": (0, 1), "step": 0.01, "n_init": 4, "random_state": 5, "local_clusters": 6}
    return FederatedKMeans(n_clusters, **usual | more)


VARIANTS = [
    {},
    {"server_points": "uniform"},
    {"aggregation": "centroids"},
    {"tol": 1e-3, "scale": "box"},
    {"published_step": 0.02, "min_cell": 3, "count_step": 2},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_number_is_a_fresh_fit(variant: dict[str, object]) -> None:
    model = federated(3, **variant).fit(X, clients=CLIENTS, ids=IDS)
    model.forget(IDS[:5])
    before = model.model_digest_
    path = model.path(range(2, 6))
    assert [row.n_clusters for row in path.rows] == [2, 3, 4, 5]
    for number in (2, 3, 4, 5):
        fresh = federated(number, **variant).fit(X[5:], clients=CLIENTS[5:], ids=IDS[5:])
        found = path.model(number)
        assert found.digest == fresh.model_digest_
        assert (found.cluster_centers == fresh.cluster_centers_).all()
        assert found.n_iter == fresh.n_iter_
    assert path.model(3).digest == model.model_digest_ == before
    assert (path.model(3).cluster_centers == model.cluster_centers_).all()


def test_the_number_of_local_clusters_stays_that_of_the_fit() -> None:
    model = federated(3, local_clusters=None).fit(X, clients=CLIENTS, ids=IDS)
    fresh = federated(5, local_clusters=3).fit(X, clients=CLIENTS, ids=IDS)
    other = federated(5, local_clusters=None).fit(X, clients=CLIENTS, ids=IDS)
    assert model.path([5]).model(5).digest == fresh.model_digest_ != other.model_digest_


def test_what_the_rows_say_of_clear_clusters() -> None:
    path = federated(2).fit(X, clients=CLIENTS, ids=IDS).path(range(2, 6))
    assert path.suggested.n_clusters == 3
    assert "falls by" in path.suggested.reason
    assert path.model(3).cluster_sizes is not None
    assert sorted(path.model(3).cluster_sizes.tolist()) == [40, 40, 40]
    assert path.rows[1].smallest == 40
    assert path.rows[1].agreement is not None
    assert path.rows[1].agreement > path.rows[3].agreement  # type: ignore[operator]
    assert "Suggested, not taken: 3 clusters" in repr(path)
    assert len(repr(path).splitlines()) == 6


def test_a_loss_is_that_of_the_aggregate_in_the_clustered_space() -> None:
    model = federated(3, bounds=(0, 2), scale="box").fit(X, clients=CLIENTS, ids=IDS)
    config, aggregate = model._federation.config, model._federation.aggregate
    points, counts = config.clustered_of(aggregate.points()), aggregate.counts()
    centres = config.centres_of(model._federation.model)[0]
    d2 = ((points[:, None] - centres[None]) ** 2).sum(-1).min(1)
    assert model.path([3]).rows[0].loss == pytest.approx(float((counts * d2).sum()), rel=1e-9)


def test_small_clusters_are_not_told() -> None:
    model = federated(3, min_cell=3, server_points="uniform").fit(X, clients=CLIENTS, ids=IDS)
    path = model.path([2, 60])
    assert not path.rows[1].complies
    assert path.rows[1].smallest is None
    assert path.model(60).cluster_sizes is None
    assert "<3" in repr(path)


@pytest.mark.parametrize("seeding", ["greedy", "plain"])
@pytest.mark.parametrize("n_init", [1, 3])
def test_one_owner(n_init: int, seeding: str) -> None:
    def fitted(number: int, rows: slice) -> KMeans:
        usual = {"n_init": n_init, "random_state": 2, "seeding": seeding}
        return KMeans(number, **usual).fit(X[rows], ids=IDS[rows])  # type: ignore[arg-type]

    model = fitted(3, slice(None))
    model.forget(IDS[:7])
    path = model.path(range(1, 6))
    for number in range(1, 6):
        fresh, found = fitted(number, slice(7, None)), path.model(number)
        assert (found.cluster_centers == fresh.cluster_centers_).all()
        assert found.loss == fresh.inertia_
        assert (found.cluster_sizes == fresh.cluster_sizes_).all()
        assert (found.n_iter, found.digest) == (fresh.n_iter_, fresh.model_digest_)
    assert (path.model(3).cluster_centers == model.cluster_centers_).all()
    assert path.rows[0].decrease is None
    assert (path.rows[2].agreement is None) == (n_init == 1)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [([], "no number"), ([0], "at least 1"), ([2.5], "integers"), ([121], "at most 120")],
)
def test_what_is_refused(numbers: list[object], message: str) -> None:
    model = KMeans(3, random_state=0).fit(X)
    with pytest.raises(ValueError, match=message):
        model.path(numbers)
    with pytest.raises(ValueError, match="not among"):
        model.path([2]).model(3)
