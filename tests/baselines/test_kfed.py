"""K-FED: each stage against its definition, and the setting in which it must succeed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedforget.baselines.kfed import (
    clear_members,
    cluster_centres,
    cluster_device,
    farthest_points,
    kfed,
    project,
)


def blobs(
    rng: np.random.Generator, k: int, per_cluster: int, d: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Clusters that nobody could confuse."""
    truth = np.repeat(np.arange(k), per_cluster)
    return 100.0 * np.eye(k, d)[truth] + rng.normal(0, 0.1, (len(truth), d)), truth


def test_projection_keeps_the_leading_directions() -> None:
    values = np.array([[3.0, 0.0], [0.0, 1.0], [-4.0, 0.0]])
    assert np.abs(project(values, 1)).tolist() == [[3.0], [0.0], [4.0]]
    assert project(values, 2) is values


def test_projection_keeps_distances_within_the_span(rng: np.random.Generator) -> None:
    flat = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 12))
    projected = project(flat, 3)
    assert projected.shape == (40, 3)
    gaps = np.linalg.norm(flat[:, None] - flat, axis=2)
    np.testing.assert_allclose(
        np.linalg.norm(projected[:, None] - projected, axis=2), gaps, atol=1e-9
    )


def test_the_split_by_thirds_is_its_definition(rng: np.random.Generator) -> None:
    values, centres = rng.random((200, 2)), rng.random((4, 2))
    distances = np.linalg.norm(values[:, None] - centres, axis=2)
    for row, label in enumerate(clear_members(values, centres).tolist()):
        meets = [
            r
            for r in range(4)
            if all(distances[row, r] <= distances[row, s] / 3 for s in range(4) if s != r)
        ]
        assert meets == ([] if label < 0 else [label])
    assert clear_members(values, centres[:1]).tolist() == [0] * 200


def test_farthest_points_are_farthest(rng: np.random.Generator) -> None:
    points = rng.random((50, 3))
    chosen = farthest_points(points, np.array([4, 7]), 6).tolist()
    assert chosen[:2] == [4, 7]
    for step in range(2, 6):
        gaps = np.linalg.norm(points[:, None] - points[chosen[:step]], axis=2).min(axis=1)
        assert chosen[step] == gaps.argmax()
    twice = np.repeat(points[:2], 3, axis=0)
    assert len(farthest_points(twice, np.array([0]), 5)) == 2


def test_the_server_makes_one_round_of_lloyd_without_weights() -> None:
    """From 0 alone, 10 is farthest; 4 goes to 0.  A second round would not change the labels."""
    points = np.array([[0.0], [4.0], [10.0], [9.0]])
    server = cluster_centres(points, np.array([0]), 2)
    assert server.labels.tolist() == [0, 0, 1, 1]
    assert server.centres.tolist() == [[2.0], [9.5]]


def test_every_device_centre_counts_the_same() -> None:
    """One record at 0.25 and three at 0.75: the centre is 0.5, and not their mean 0.625."""
    outcome = kfed([[0.25], [0.75], [0.75], [0.75]], [0, 1, 1, 1], 1)
    assert outcome.centres.tolist() == [[0.5]]
    assert outcome.labels.tolist() == [0, 0, 0, 0]


def test_devices_that_see_few_clusters_find_all_of_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, truth = blobs(rng, 5, 120)
    # Each device sees k' = 2 of the K = 5 clusters.
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
    clients = np.empty(len(values), dtype=int)
    for k in range(5):
        owners = [number for number, pair in enumerate(pairs) if k in pair]
        clients[truth == k] = rng.choice(owners, 120)
    outcome = kfed(values, clients, 5, local_clusters=2, seed=seed)
    assert adjusted_rand_score(truth, outcome.labels) == 1.0
    assert outcome.centres.shape == (5, 5)
    assert min(outcome.seconds.slowest_client, outcome.seconds.server) > 0.0


def test_one_device_with_all_clusters_gives_its_own_centres(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, truth = blobs(rng, 4, 50)
    outcome = kfed(values, np.full(200, 3), 4, seed=seed)
    assert (outcome.labels == outcome.local_labels).all()
    assert adjusted_rand_score(truth, outcome.labels) == 1.0
    for k in range(4):
        np.testing.assert_allclose(
            outcome.centres[k], values[outcome.labels == k].mean(axis=0), atol=1e-9
        )


def test_the_same_seed_gives_the_same_outcome(rng: np.random.Generator) -> None:
    values, clients = rng.random((200, 4)), rng.integers(0, 5, 200)
    one, two = (kfed(values, clients, 3, seed=9) for _ in range(2))
    assert one.centres.tobytes() == two.centres.tobytes()
    assert one.labels.tobytes() == two.labels.tobytes()
    # Devices draw for themselves: what one holds does not change another's clusters.
    fewer = kfed(values[clients != 4], clients[clients != 4], 3, seed=9)
    assert fewer.local_labels.tolist() == one.local_labels[clients != 4].tolist()


def test_small_devices(rng: np.random.Generator) -> None:
    """A device with fewer records than k' sends what it has."""
    assert cluster_device(np.array([[1.0, 2.0]]), 3, rng).centres.tolist() == [[1.0, 2.0]]
    same = cluster_device(np.ones((5, 2)), 3, rng)
    assert same.centres.tolist() == [[1.0, 1.0]]
    assert kfed([[0.0], [1.0]], [0, 1], 2).labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_clusters": 0}, "n_clusters must be at least 1"),
        ({"local_clusters": 4}, "must not exceed n_clusters = 3"),
        ({"first_device": 8}, "first_device 8 has no records"),
        ({"clients": [0, 1]}, r"one entry per record \(4\)"),
        ({"clients": [0, -1, 0, 0]}, r"must not be negative \(record 1\)"),
        ({"values": [[0.0], [1.0], [np.nan], [2.0]]}, "row 2, column 0: nan"),
        ({"values": np.empty((0, 2)), "clients": []}, "no records"),
        ({"values": [0.0, 1.0, 2.0, 3.0]}, "two dimensions"),
    ],
)
def test_bad_input(change: dict[str, object], message: str) -> None:
    call = {"values": [[0.0], [1.0], [2.0], [3.0]], "clients": [0, 0, 1, 1], "n_clusters": 3}
    with pytest.raises(ValueError, match=message):
        kfed(**(call | change))


def test_client_names_must_be_integers() -> None:
    with pytest.raises(TypeError, match="must be integers"):
        kfed([[0.0]], ["a"], 1)
