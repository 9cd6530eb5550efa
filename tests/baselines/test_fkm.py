"""FKM: its stages against their definitions, and the settings in which it must succeed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedforget.baselines import fkm as module
from fedforget.baselines.fkm import fkm, local_clusters
from fedforget.clustering.losses import induced_loss, nearest_loss


def blobs(rng: np.random.Generator, k: int, per_cluster: int) -> tuple[np.ndarray, np.ndarray]:
    truth = np.repeat(np.arange(k), per_cluster)
    return 10.0 * np.eye(k)[truth] + rng.normal(0, 0.1, (len(truth), k)), truth


def test_clusters_that_nobody_could_confuse_are_found(rng: np.random.Generator) -> None:
    values, truth = blobs(rng, 4, 50)
    clients = rng.integers(0, 5, len(values))
    found = fkm(values, clients, 4)
    assert found.converged
    assert adjusted_rand_score(truth, found.clustering.labels) == 1.0
    means = np.array([values[truth == k].mean(axis=0) for k in range(4)])
    order = np.argsort(found.clustering.centres.argmax(axis=1))
    np.testing.assert_allclose(found.clustering.centres[order], means, atol=1e-12)


def test_a_client_keeps_the_centres_that_it_has_records_for() -> None:
    values = np.array([[0.0], [1.0], [5.0]])
    found = local_clusters(values, np.array([[0.2], [90.0], [6.0], [70.0]]))
    assert found.centres.tolist() == [[0.5], [5.0]]
    assert found.labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("max_rounds", [1, 20])
def test_the_centres_are_weighted_means_of_the_reported_means(
    rng: np.random.Generator, max_rounds: int
) -> None:
    """Clients hold one side of a cluster each; every mean counts as often as it has records."""
    values = rng.random((600, 2))
    clients = (values[:, 0] * 6).astype(np.int64)
    found = fkm(values, clients, 4, max_rounds=max_rounds, tol=0.0)
    assert found.n_rounds == 1 or found.n_rounds > 2
    held = found.clustering
    means, sizes = [], []
    for client in range(6):
        for local in np.unique(held.local_labels[clients == client]):
            own = (clients == client) & (held.local_labels == local)
            means.append(values[own].mean(axis=0))
            sizes.append(own.sum())
    points, weights = np.array(means), np.array(sizes, dtype=float)
    gaps = ((points[:, None] - held.centres) ** 2).sum(axis=2)
    for k in range(4):
        members = gaps.argmin(axis=1) == k
        mean = np.average(points[members], axis=0, weights=weights[members])
        np.testing.assert_allclose(held.centres[k], mean, atol=1e-9)


def test_means_of_single_records_stay_at_home(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of client 1 lies far from all others; its mean would be the record."""
    values = np.concatenate([rng.normal(0, 0.1, (30, 1)), [[50.0]], rng.normal(9, 0.1, (30, 1))])
    clients = np.array([0] * 30 + [1] * 31)
    assert fkm(values, clients, 2, max_rounds=1).clustering.centres.max() < 10.0
    monkeypatch.setattr(module, "LEAST", 1)
    assert fkm(values, clients, 2, max_rounds=1).clustering.centres.max() == 50.0


def test_records_go_where_their_local_means_go(rng: np.random.Generator) -> None:
    values = rng.random((200, 3))
    clients = rng.integers(0, 4, 200)
    found = fkm(values, clients, 3, max_rounds=2).clustering
    for client in range(4):
        for local in np.unique(found.local_labels[clients == client]):
            own = (clients == client) & (found.local_labels == local)
            mean = values[own].mean(axis=0)
            nearest = ((found.centres - mean) ** 2).sum(axis=1).argmin()
            assert set(found.labels[own].tolist()) == {int(nearest)}
    assert nearest_loss(values, found.centres) <= induced_loss(values, found.labels, found.centres)


def test_the_same_seed_gives_the_same_clusters(rng: np.random.Generator) -> None:
    values, clients = rng.random((120, 2)), np.arange(120) % 5
    one, two, other = (fkm(values, clients, 6, max_rounds=2, seed=seed) for seed in (3, 3, 4))
    assert one.clustering.centres.tobytes() == two.clustering.centres.tobytes()
    assert one.clustering.centres.tobytes() != other.clustering.centres.tobytes()


def test_few_records_and_what_is_refused() -> None:
    few = fkm([[0.0], [1.0]], [0, 1], 3)
    assert sorted(few.clustering.centres.ravel().tolist()) == [0.0, 1.0]
    with pytest.raises(ValueError, match="max_rounds must be at least 1"):
        fkm([[0.0]], [0], 1, max_rounds=0)
    with pytest.raises(ValueError, match="clients must have one entry per record"):
        fkm([[0.0]], [0, 1], 1)
