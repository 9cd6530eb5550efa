"""The paper's theorems and variants: bounds by hand, and what is measured is what is said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedforget import FederatedKMeans
from fedforget.baselines.kfed import kfed
from fedforget.bench import guarantees, methods, quality, scaling
from fedforget.bench.datasets import Dataset, load


@pytest.fixture(scope="module")
def iris() -> Dataset:
    return load("iris")


def test_bounds_by_hand() -> None:
    """K = 1: a = 16."""
    assert guarantees.without_grid(1) == 2 * 16 * (3 + 32)
    assert guarantees.with_known_clusters(1, 1) == 2 * (16 + 32 + 512)
    assert guarantees.with_grid(1, 4.0) == 3 * 16 * (4 + 48) + 3 * (1 + 48)
    assert guarantees.with_grid_without_outliers(1, 4.0, 2.0) == 3 * 16 * 5 + 3 * (1 + 32)
    a = 8 * math.log(10) + 16
    assert math.isclose(guarantees.without_grid(10), 2 * a * (3 + 2 * a))
    for k in (2, 10, 100):
        assert guarantees.with_known_clusters(k, k) <= guarantees.without_grid(k)
        assert guarantees.with_known_clusters(k, 1) < guarantees.with_known_clusters(k, k)


def test_clients_that_hold_one_cluster_each_have_twice_the_loss() -> None:
    """E φ_f = 2 φ* (the remark after Lemma D.1).  Four standard errors: one failure in 16,000."""
    data = load("wine")
    reference = quality.reference(data, n_init=3)
    found = guarantees.one_cluster_each(data, reference=reference, runs=200)["ratios"]
    error = np.std(found, ddof=1) / math.sqrt(len(found))
    assert abs(np.mean(found) - 2.0) < 4 * error
    assert error < 0.05


def test_without_outliers_the_farthest_hundredth_is_gone(iris: Dataset) -> None:
    reference = quality.reference(iris, n_init=3)
    found = guarantees.without_outliers(iris, trial=0, reference=reference)
    assert found["epsilon_2"] < reference["spread"]
    assert found["optimum"] < reference["loss"]
    assert all(loss >= found["optimum"] for loss in found["losses"].values())
    # n d γ² = d, as γ = 1/√n.
    assert math.isclose(found["quantisation"], 4 / found["optimum"])


def test_growth_measures_against_the_planted_clusters() -> None:
    found = guarantees.growth(0, k=4)
    # 800 records in ten dimensions with deviation 0.03.
    assert found["optimum"] == pytest.approx(800 * 10 * 0.03**2, rel=0.1)
    assert all(loss > found["optimum"] for loss in found["losses"].values())


def test_scaling_counts_its_removals() -> None:
    found = scaling.removal(0, n=300, requests=20, federations=True)
    assert list(found) == ["Alg. 3", "ours, K", "ours, lloyd K"]
    for held in found.values():
        assert len(held["seconds"]) == len(held["reseeded"]) == 20
        assert min(held["seconds"]) > 0.0
        assert held["fit"] > 0.0
    assert list(scaling.removal(0, n=300, requests=2, federations=False)) == ["Alg. 3"]


def test_variants_change_one_thing_each(iris: Dataset) -> None:
    found = quality.variants(iris, 2)
    for name, options in (
        ("bin centres", {}),
        ("shifted grid", {"server_points": "uniform", "shift": True}),
        ("Alg. 5", {"aggregation": "centroids"}),
    ):
        model = FederatedKMeans(
            3, bounds=(0, 1), step=iris.step, mode="paper", tol=1e-4, random_state=2, **options
        )
        model.fit(iris.X, clients=iris.clients)
        assert found[name]["induced"] == model.induced_inertia_
    assert len({losses["induced"] for losses in found.values()}) == len(found) == 5


def test_known_clusters_are_those_by_which_the_records_were_dealt(iris: Dataset) -> None:
    assert iris.clusters is not None
    for client, count in quality.clusters_of_clients(iris).items():
        assert count == len(np.unique(iris.clusters[iris.clients == client])) <= iris.k_prime


def test_the_greedy_server_sees_what_the_clients_report(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bins with the same sizes as the server of MUFC itself."""
    model = methods.mufc(iris, 0).fit(iris.X, clients=iris.clients)
    seen: dict[str, Any] = {}

    def server(grid: Any, bins: Any, sizes: Any, k: int, **_: Any) -> Any:
        seen.update(bins=bins, sizes=sizes)
        middles = grid.from_units(grid.units_of_bins(bins))[0]
        labels = ((middles[:, None] - middles[:k]) ** 2).sum(axis=2).argmin(axis=1)
        return middles[:k], labels.astype(np.int32)

    monkeypatch.setattr(methods, "greedy_server", server)
    found = methods.greedy_mufc(iris, model, 0)
    aggregate = model._federation.aggregate
    own = zip(map(tuple, aggregate.points().tolist()), aggregate.counts().tolist(), strict=True)
    theirs: dict[tuple[int, ...], int] = {}
    for row, size in zip(map(tuple, seen["bins"].tolist()), seen["sizes"].tolist(), strict=True):
        theirs[row] = theirs.get(row, 0) + size
    assert theirs == dict(own)
    # Each record goes where its client's nearest seed went.
    for client, seeds in model.seed_ids_.items():
        rows = np.flatnonzero(iris.clients == client)
        gaps = ((iris.X[rows][:, None] - iris.X[seeds]) ** 2).sum(axis=2)
        assert found.local_labels[rows].tolist() == gaps.argmin(axis=1).tolist()


def test_k_fed_starts_from_client_0_unless_asked(iris: Dataset) -> None:
    first = methods.k_fed(iris, 5)
    again = kfed(iris.X, iris.clients, 3, first_device=0, seed=5)
    assert first.centres.tobytes() == again.centres.tobytes()
    drawn = int(np.random.default_rng(5).integers(10))
    assert drawn != 0
    other = kfed(iris.X, iris.clients, 3, first_device=drawn, seed=5)
    assert methods.k_fed(iris, 5, drawn_start=True).centres.tobytes() == other.centres.tobytes()
