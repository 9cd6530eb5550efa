"""Training from scratch, and the ratios that everything is judged by."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.cluster import KMeans

from fedforget.baselines.federation import (
    FederatedClustering,
    Seconds,
    loss_ratios,
    rows_of_clients,
)
from fedforget.baselines.retraining import (
    centralised,
    complete_client_training,
    complete_retraining,
    paper_configuration,
)
from fedforget.clustering.grid import Grid
from fedforget.errors import OutOfBoundsError


def unit_grid(d: int, step: float) -> Grid:
    return Grid(np.tile([[0.0, 1.0]], (d, 1)), step)


def mixture(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    centres = np.array([[0.1, 0.1], [0.9, 0.1], [0.5, 0.9]])
    truth = rng.integers(0, 3, n)
    return np.clip(centres[truth] + rng.normal(0, 0.02, (n, 2)), 0, 1), truth


def test_the_centralised_reference_is_the_best_of_its_starts(rng: np.random.Generator) -> None:
    values = rng.random((300, 2))
    best = centralised(values, 9, n_init=8, seed=1)
    assert best.loss <= centralised(values, 9, n_init=1, seed=1).loss * 1.1
    assert best.loss <= 1.02 * KMeans(9, n_init=20, random_state=0).fit(values).inertia_
    assert best.loss == math.fsum(((values - best.centres[best.labels]) ** 2).sum(axis=1))


def test_the_centralised_reference_with_few_distinct_records() -> None:
    assert centralised([[0.0], [1.0]], 5).loss == 0.0
    repeated = centralised([[0.0]] * 6 + [[1.0]] * 6, 5)
    assert repeated.loss == 0.0
    assert sorted(repeated.centres.tolist()) == [[0.0], [1.0]]


def test_sizes_count_at_the_server() -> None:
    """One record at 0.2, three at 0.8, K = 1: the weighted centre is 0.65."""
    values, clients = [[0.2], [0.8], [0.8], [0.8]], [0, 1, 1, 1]
    config = replace(paper_configuration(1, 4, 1, server_points="weighted"), grid=unit_grid(1, 0.1))
    outcome = complete_client_training(values, clients, config)
    assert outcome.centres[0, 0] == pytest.approx(0.65)
    scattered = complete_retraining(values, clients, 1, unit_grid(1, 2.0**-20))
    assert scattered.centres[0, 0] == pytest.approx(0.65, abs=2.0**-20)


def test_clients_report_the_means_of_their_clusters() -> None:
    """{0.1, 0.3} and {0.7, 0.9}: local means 0.2 and 0.8 are the server's centres."""
    values, clients = [[0.1], [0.3], [0.7], [0.9]], [0, 0, 1, 1]
    config = paper_configuration(2, 4, 1, local_clusters=1, server_points="weighted")
    outcome = complete_client_training(values, clients, replace(config, grid=unit_grid(1, 0.1)))
    assert sorted(outcome.centres[:, 0].tolist()) == pytest.approx([0.2, 0.8])
    assert outcome.local_labels.tolist() == [0, 0, 0, 0]
    assert outcome.labels[0] == outcome.labels[1] != outcome.labels[2] == outcome.labels[3]


@pytest.mark.parametrize("n_clients", [1, 6])
def test_clear_clusters_are_found(seed: int, n_clients: int) -> None:
    rng = np.random.default_rng(seed)
    values, _ = mixture(rng, 400)
    clients = rng.integers(0, n_clients, 400)
    reference = centralised(values, 3).loss
    config = paper_configuration(3, 400, 2, seed=seed)
    for outcome in (
        complete_client_training(values, clients, config, seed=seed),
        complete_retraining(values, clients, 3, config.grid, seed=seed),
    ):
        ratios = loss_ratios(values, outcome, reference)
        # The grid is as wide as the clusters; half a bin in each direction is the worst.
        assert 1.0 <= ratios.nearest <= ratios.induced < 1.0 + 400 * 2 * 0.025**2 / reference
        assert outcome.centres.shape == (3, 2)


def test_the_same_seed_gives_the_same_outcome(rng: np.random.Generator) -> None:
    values, clients = rng.random((200, 3)), rng.integers(0, 4, 200)
    config = paper_configuration(3, 200, 3, seed=1)
    for train in (
        lambda: complete_client_training(values, clients, config, seed=1),
        lambda: complete_retraining(values, clients, 3, config.grid, seed=1),
    ):
        one, two = train(), train()
        assert one.centres.tobytes() == two.centres.tobytes()
        assert one.labels.tobytes() == two.labels.tobytes()
        assert min(one.seconds.slowest_client, one.seconds.server) > 0.0


def test_clients_with_fewer_records_than_clusters() -> None:
    config = paper_configuration(3, 4, 1)
    outcome = complete_client_training([[0.0], [0.5], [1.0], [1.0]], [0, 1, 2, 2], config)
    assert outcome.local_labels.tolist() == [0, 0, 0, 0]
    assert len(np.unique(outcome.labels)) == 3


def test_bad_input() -> None:
    config = paper_configuration(2, 4, 1)
    with pytest.raises(OutOfBoundsError, match="row 1, column 0"):
        complete_client_training([[0.5], [1.5]], [0, 0], config)
    boxed = replace(config, grid=Grid(config.grid.bounds, 0.1, scale="box"))
    with pytest.raises(ValueError, match="scale='none'"):
        complete_client_training([[0.5]], [0], boxed)
    with pytest.raises(ValueError, match="one number of local clusters"):
        complete_client_training([[0.5]], [0], replace(config, local_clusters={"a": 3}))


# -- judging ---------------------------------------------------------------------------------------


def test_ratios_by_hand() -> None:
    """The paper's example: records 4 and 8 share a local cluster whose mean 6 goes to 10."""
    outcome = FederatedClustering(
        np.array([[0.0], [10.0]]),
        np.array([1, 1], dtype=np.int32),
        np.array([0, 0], dtype=np.int32),
        Seconds(1.0, 2.0),
    )
    ratios = loss_ratios(np.array([[4.0], [8.0]]), outcome, 8.0)
    assert ratios.induced == (36.0 + 4.0) / 8.0
    assert ratios.nearest == (16.0 + 4.0) / 8.0
    assert outcome.seconds.total == 3.0


def test_rows_of_clients_keep_their_order() -> None:
    found = rows_of_clients(np.array([2, 0, 2, 0, 9]))
    assert {name: rows.tolist() for name, rows in found.items()} == {0: [1, 3], 2: [0, 2], 9: [4]}
