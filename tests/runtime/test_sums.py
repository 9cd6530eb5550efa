"""However the histograms are added up, the model is the same, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedforget import FederatedKMeans
from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.prf import Secret
from fedforget.configuration import Configuration
from fedforget.runtime.sums import FIRST_CAPACITY, CodedSum, Contribution, PlainSum
from fedforget.scma import Cause, DecodeError


def configuration(n_features: int = 2, step: float = 0.01) -> Configuration:
    return Configuration(
        n_clusters=3,
        local_clusters=3,
        grid=Grid(np.array([[0.0, 1.0]] * n_features), step),
        representatives="means",
        lattice="grid",
        server_points="weighted",
        mode="exact",
        n_init=2,
        max_iter=10,
        tol=0.0,
        public_seed=Secret(bytes(16)),
    )


def contributions(points: np.ndarray, counts: np.ndarray) -> list[Contribution]:
    """One point from each client."""
    nothing = Histogram(points.shape[1])
    return [
        Contribution(i, nothing, Histogram.of(points[i : i + 1], counts[i : i + 1]), 1)
        for i in range(len(points))
    ]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"representatives": "seeds", "server_points": "uniform"},
        {"mode": "paper"},
        {"local_clusters": 9, "shift": True},
        {"scale": "box", "step": 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize("n_features", [1, 3, 40])
@pytest.mark.parametrize("aggregation", ["scma", "secure"])
def test_the_model_is_the_plain_one(
    params: dict[str, object], n_features: int, aggregation: str, rng: np.random.Generator
) -> None:
    X = rng.random((120, n_features))
    clients = rng.integers(0, 6, 120)
    new, new_clients = rng.random((10, n_features)), rng.integers(4, 8, 10)

    def history(how: str) -> list[str]:
        settings = {"step": 1e-3, **params}
        model = FederatedKMeans(
            3, bounds=(0, 1), aggregation=how, random_state=1, n_init=3, **settings
        )
        digests = [model.fit(X, clients=clients).model_digest_]
        for change in (
            lambda: model.forget(7),
            lambda: model.forget(range(20, 60)),
            lambda: model.learn(new, clients=new_clients, ids=range(200, 210)),
            lambda: model.forget_clients([3]),
            lambda: model.forget(model.ids_),
        ):
            change()
            digests.append(model.model_digest_)
        return digests

    assert history(aggregation) == history("plain")


def test_the_report_says_what_the_sum_took(rng: np.random.Generator) -> None:
    model = FederatedKMeans(2, bounds=(0, 1), step=0.1, aggregation="scma", random_state=0)
    report = model.fit(rng.random((30, 2))).forget(3)
    assert set(report.seconds) == {"clients", "sum", "server", "total"}


@pytest.mark.parametrize("n", [0, 1, FIRST_CAPACITY, FIRST_CAPACITY + 1, 200])
def test_room_grows_until_the_sum_fits(n: int, rng: np.random.Generator) -> None:
    config = configuration()
    points = np.stack(np.divmod(rng.permutation(10_000)[:n], 100), axis=1)
    one_each = contributions(points, np.arange(1, n + 1))
    total = CodedSum(config)(one_each)
    assert total == PlainSum(config)(one_each)
    assert len(total) == n


def test_a_sum_with_more_points_than_can_be_is_refused(rng: np.random.Generator) -> None:
    points = np.stack(np.divmod(rng.permutation(10_000)[:50], 100), axis=1)
    many = replace(
        contributions(points[:1], np.ones(1))[0], after=Histogram.of(points, np.ones(50, int))
    )
    with pytest.raises(DecodeError) as caught:
        CodedSum(configuration())([many])
    assert caught.value.cause is Cause.CORRUPTED
