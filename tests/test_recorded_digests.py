"""Models are what they were: digests recorded once, of everything that a user may have stored.

``python tests/test_recorded_digests.py`` prints the digests of the code as it is.  They may change
only on purpose, with an entry in the changelog.  Directories: ``tests/parties``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedforget import FederatedKMeans, KMeans, SeededKMeans
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import (
    REPLICATE_BITS,
    PointSource,
    ServerModel,
    UniformPoints,
    WeightedPoints,
    cluster,
)
from fedforget.clustering.prf import Secret
from fedforget.clustering.replay import ReplayingServer
from fedforget.digests import Digest
from fedforget.scma import Codec, add
from fixed_numbers import integers, units

RECORDED = Path(__file__).with_name("recorded_digests.json")
SEED = Secret(bytes(range(16)))


# -- the estimators --------------------------------------------------------------------------------


def of_seeded(model: SeededKMeans) -> str:
    digest = Digest("recorded seeded")
    order = np.argsort(model.ids_)
    digest.array("centres", model.cluster_centers_).array("seeds", model.seed_ids_.astype(np.int64))
    digest.array("sizes", model.cluster_sizes_).array("labels", model.labels_[order])
    return digest.field("inertia", model.inertia_).hex()


def seeded(n: int, d: int, k: int) -> Iterator[tuple[str, str]]:
    """One owner: fit, forget ordinary records, forget a seed, learn."""
    X = units(f"seeded {n} {d}", (n + 20, d))
    model = SeededKMeans(k, random_state=3).fit(X[:n], ids=np.arange(n))
    yield "fit", of_seeded(model)
    ordinary = np.setdiff1d(model.ids_, model.seed_ids_)[:7]
    model.forget(ordinary)
    yield "forget", of_seeded(model)
    model.forget(model.seed_ids_[k // 2])
    yield "forget a seed", of_seeded(model)
    model.learn(X[n:], ids=np.arange(n, n + 20))
    yield "learn", of_seeded(model)


def of_kmeans(model: KMeans) -> str:
    digest = Digest("recorded kmeans")
    order = np.argsort(model.ids_)
    digest.array("centres", model.cluster_centers_).array("sizes", model.cluster_sizes_)
    digest.array("labels", model.labels_[order]).field("n_iter", model.n_iter_)
    return digest.field("inertia", model.inertia_).hex()


def kmeans(n: int, d: int, k: int, **options: object) -> Iterator[tuple[str, str]]:
    """K-means of one owner: fit, forget one by one, in a batch, learn."""
    X = units(f"kmeans {n} {d}", (n + 20, d))
    model = KMeans(k, random_state=3, **options).fit(X[:n], ids=np.arange(n))
    yield "fit", of_kmeans(model)
    for record in integers(f"kmeans {n} victims", n, (12,)).tolist():
        if record in model.ids_:
            model.forget(record)
    yield "forget", of_kmeans(model)
    model.forget(model.ids_[: n // 4])
    yield "forget a batch", of_kmeans(model)
    model.learn(X[n:], ids=np.arange(n, n + 20))
    yield "learn", of_kmeans(model)


def of_federated(model: FederatedKMeans) -> str:
    digest = Digest("recorded federated").field("model", model.model_digest_)
    order = np.argsort(model.ids_)
    digest.array("labels", model.labels_[order]).array("induced", model.induced_labels_[order])
    digest.field("inertia", model.inertia_).field("induced inertia", model.induced_inertia_)
    return digest.array("centres", model.cluster_centers_).hex()


def federated(n: int, d: int, k: int, **options: object) -> Iterator[tuple[str, str]]:
    """A federation: fit, forget, forget seeds, a client leaves, learn; the server replays."""
    X = units(f"federated {n} {d}", (n + 30, d))
    clients = np.array(["A", "B", "C", "D", "E"])[integers("clients", 5, (n + 30,))]
    model = FederatedKMeans(k, bounds=(0, 1), step=0.01, random_state=5, **options)
    model.fit(X[:n], clients=clients[:n], ids=np.arange(n))
    yield "fit", of_federated(model)
    for record in np.setdiff1d(model.ids_, np.concatenate(list(model.seed_ids_.values())))[:5]:
        model.forget(record)
    yield "forget", of_federated(model)
    model.forget([seeds[1] for seeds in model.seed_ids_.values()])
    yield "forget seeds", of_federated(model)
    model.forget_clients("C")
    yield "forget a client", of_federated(model)
    model.learn(X[n:], clients=clients[n:], ids=np.arange(n, n + 30))
    yield "learn", of_federated(model)


# -- the server ------------------------------------------------------------------------------------


def of_server(model: ServerModel) -> str:
    digest = Digest("recorded server").array("centres", model.centres)
    digest.array("labels", model.labels).field("loss", float(model.loss))
    return digest.field("n_iter", model.n_iter).field("restart", model.restart).hex()


def source_of(kind: str, top: int, d: int) -> PointSource:
    diameter = (top + 1) * d**0.5
    if kind == "weighted":
        return WeightedPoints(SEED, diameter)
    return UniformPoints(SEED, diameter * 2**REPLICATE_BITS)


def aggregate_of(name: str, n: int, d: int, top: int) -> Histogram:
    points = (units(name, (n, d)) * (top + 1)).astype(np.int64)
    return Histogram.of(points, 1 + integers(f"{name} counts", 40, (n,)))


def server(kind: str, n: int, d: int, k: int, top: int) -> Iterator[tuple[str, str]]:
    """The server's own K-means, with and without a tolerance."""
    points = source_of(kind, top, d).points_of(aggregate_of(f"server {kind} {n} {d}", n, d, top))
    for tol in (0.0, 1e-2):
        yield f"tol {tol}", of_server(cluster(points, k, n_init=4, max_iter=300, tol=tol))


def replay(kind: str, n: int, d: int, k: int, top: int) -> Iterator[tuple[str, str]]:
    """A server that follows: counts that fall and rise, points that come, go and move."""
    name = f"replay {kind} {n} {d}"
    aggregate = aggregate_of(name, n, d, top)
    following = ReplayingServer(source_of(kind, top, d), k, n_init=5, max_iter=300, tol=0.0)
    yield "run", of_server(following.run(aggregate))
    replayed = 0
    for turn in range(24):
        points, counts = aggregate.points(), aggregate.counts()
        where = int(integers(f"{name} where {turn}", len(points), (1,))[0])
        rows, differences = [points[where]], [-1, 3, -int(counts[where]), -int(counts[where])]
        changes = [differences[turn % 4]]
        if turn % 4 == 3:
            rows.append(np.clip(points[where] + (np.arange(d) == turn % d), 0, top))
            changes.append(int(counts[where]))
        if turn % 6 == 5:
            rows.append(integers(f"{name} new {turn}", top + 1, (d,)))
            changes.append(turn)
        delta = Histogram.of(np.array(rows), np.array(changes))
        aggregate = aggregate + delta
        model = following.update(aggregate, delta)
        replayed += following.work.restarts < following.n_init
        if turn % 4 == 3:
            yield f"update {turn}", of_server(model)
    assert replayed > 12, "hardly anything was replayed"


# -- the code of multisets -------------------------------------------------------------------------


def codec(levels: list[int], n: int) -> Iterator[tuple[str, str]]:
    """Vectors of two multisets, of their sum, and what the sum decodes to."""
    code = Codec(levels, capacity=2 * n, salt=b"recorded")
    vectors = []
    for owner in ("a", "b"):
        name = f"codec {len(levels)} {n} {owner}"
        bins = np.stack(
            [integers(f"{name} {t}", level, (n,)) for t, level in enumerate(levels)], axis=1
        )
        histogram = Histogram.of(bins, 1 + integers(f"{name} counts", 9, (n,)))
        vectors.append(code.encode(histogram.points(), histogram.counts()))
        yield owner, hashlib.sha256(code.pack(vectors[-1])).hexdigest()
    total = add(*vectors)
    yield "sum", hashlib.sha256(code.pack(total)).hexdigest()
    bins, counts = code.decode(total)
    yield "decoded", Digest("recorded").array("bins", bins).array("counts", counts).hex()


SCENARIOS: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "seeded 400 x 3, K = 4": lambda: seeded(400, 3, 4),
    "seeded 300 x 40, K = 9": lambda: seeded(300, 40, 9),
    "seeded 90 x 700, K = 12": lambda: seeded(90, 700, 12),
    "kmeans": lambda: kmeans(900, 4, 5, n_init=3),
    "kmeans, plain seeds": lambda: kmeans(900, 4, 5, seeding="plain", tol=0.0),
    "kmeans by products": lambda: kmeans(500, 40, 14),
    "kmeans by estimates": lambda: kmeans(260, 130, 12, n_init=2, max_iter=9),
    "federated": lambda: federated(600, 4, 4),
    "federated, seeds": lambda: federated(600, 4, 4, representatives="seeds"),
    "federated, lloyd": lambda: federated(600, 4, 4, representatives="lloyd"),
    "federated, lloyd, many features": lambda: federated(
        400, 130, 9, representatives="lloyd", scale="box"
    ),
    "federated, more local clusters": lambda: federated(600, 12, 5, local_clusters=10),
    "federated, uniform": lambda: federated(400, 3, 3, server_points="uniform"),
    "federated, centroids": lambda: federated(400, 3, 3, aggregation="centroids"),
    "federated, secure": lambda: federated(200, 3, 3, aggregation="secure"),
    "federated, paper": lambda: federated(400, 4, 3, mode="paper", representatives="seeds"),
    "server, weighted": lambda: server("weighted", 300, 5, 6, 60),
    "server, uniform": lambda: server("uniform", 60, 3, 4, 60),
    "server, many features": lambda: server("weighted", 200, 400, 12, 90),
    "replay by margins": lambda: replay("weighted", 300, 4, 5, 50),
    "replay by margins, uniform": lambda: replay("uniform", 30, 3, 4, 50),
    "replay by margins, 16 features": lambda: replay("weighted", 250, 16, 20, 30),
    "replay by estimates": lambda: replay("weighted", 260, 130, 12, 40),
    "replay by estimates, few points": lambda: replay("weighted", 80, 300, 8, 120),
    "codec, one short index": lambda: codec([1000], 12),
    "codec, long indices": lambda: codec([193] * 40, 60),
    "codec, many bins": lambda: codec([10**6], 700),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_digests_are_the_recorded_ones(scenario: str) -> None:
    assert dict(SCENARIOS[scenario]()) == json.loads(RECORDED.read_text())[scenario]


def test_every_recorded_scenario_is_looked_at() -> None:
    assert set(json.loads(RECORDED.read_text())) == set(SCENARIOS)


if __name__ == "__main__":
    print(json.dumps({name: dict(make()) for name, make in SCENARIOS.items()}, indent=1))
