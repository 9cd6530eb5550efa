"""Clients that run K-means of their own: what they report, and that it is that of a fresh fit."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import twins
from fedforget import FederatedKMeans, KMeans
from fedforget.clustering import lloyd_clusters
from fedforget.clustering.distance import Rows
from fedforget.clustering.ids import encode_id, keys_of_ids
from fedforget.clustering.lloyd_clusters import LloydClusters, LocalKMeans
from fedforget.clustering.partition import FixedPoint
from fedforget.clustering.prf import Secret
from fedforget.clustering.race import first_row, new_race, run_race
from fedforget.clustering.records import RecordTable
from fedforget.estimators.parameters import root_secret

LAST_OF_ITS_CLUSTER = 8
EMPTYING = np.array(
    [[12, 2], [3, 0], [0, 1], [8, 10], [11, 2], [15, 14], [12, 14], [13, 12], [4, 12]]
)
"""With random_state=0, four clusters at client A and one start, the last record is no seed; but
without it, Lloyd's iteration leaves a cluster without records."""


def federated(n_clusters: int, **options: Any) -> FederatedKMeans:
    options = {"bounds": (0, 1), "step": 1 / 64, "random_state": 0} | options
    return FederatedKMeans(n_clusters, representatives="lloyd", **options)


def secret_of(client: str, random_state: int = 0) -> Secret:
    return root_secret(random_state).derive("client", encode_id(client))


def state(model: FederatedKMeans) -> list[Any]:
    order = np.argsort(model.ids_)
    return [
        model.model_digest_,
        model.cluster_centers_.tobytes(),
        model.inertia_,
        model.induced_inertia_,
        model.ids_[order].tolist(),
        model.labels_[order].tolist(),
        model.induced_labels_[order].tolist(),
        {name: ids.tolist() for name, ids in sorted(model.seed_ids_.items())},
    ]


def plain_kmeans(
    values: np.ndarray, seeds: np.ndarray, max_iter: int
) -> tuple[Fraction, list[list[Fraction]], list[int]]:
    """Lloyd's iteration in fractions, which round nothing: loss, centres and labels."""
    points = [[Fraction(x) for x in row] for row in values.tolist()]
    centres = [[Fraction(x) for x in row] for row in seeds.tolist()]
    labels: list[int] = []
    for turn in range(max_iter + 1):
        before, loss = labels, Fraction(0)
        labels = []
        for point in points:
            d2 = [sum((x - y) ** 2 for x, y in zip(point, c, strict=True)) for c in centres]
            labels.append(d2.index(min(d2)))
            loss += min(d2)
        if labels == before or turn == max_iter:
            break
        for k in range(len(centres)):
            members = [p for p, label in zip(points, labels, strict=True) if label == k]
            if members:
                columns = zip(*members, strict=True)
                centres[k] = [sum(column, Fraction(0)) / len(members) for column in columns]
    return loss, centres, labels


@pytest.mark.parametrize("max_iter", [1, 2, 300])
def test_a_client_reports_the_centres_of_its_own_kmeans(max_iter: int, seed: int) -> None:
    """Values are multiples of 2^-20, so that nothing is rounded before it is clustered."""
    rng = np.random.default_rng(seed)
    X, ids = rng.integers(0, 2**20, (70, 3)) / 2**20, np.arange(70)
    model = federated(4, local_clusters=5, max_iter=max_iter, random_state=seed)
    model.fit(X, clients=["A"] * 70)
    keys = keys_of_ids(secret_of("A", seed), ids)
    starts = []
    for start in range(2):
        race = new_race(70)
        run_race(race, Rows(X), keys, 5, smallest_id=first_row, stream=start << 32)
        starts.append((*plain_kmeans(X, X[race.rows], max_iter), race.rows))
    _, centres, labels, seeds = min(starts, key=lambda one: one[0])
    assert model.seed_ids_["A"].tolist() == seeds
    bins = [[int(64 * x + Fraction(1, 2)) for x in centre] for centre in centres]
    expected: dict[tuple[int, ...], int] = {}
    for k, place in enumerate(bins):
        expected[tuple(place)] = expected.get(tuple(place), 0) + labels.count(k)
    aggregate = model._federation.aggregate
    pairs = zip(aggregate.points().tolist(), aggregate.counts().tolist(), strict=True)
    assert {tuple(point): count for point, count in pairs} == expected
    client = model._federation.clients["A"]
    assert client.owner.clusters.labels_of(ids).tolist() == labels
    # A record goes where the bin of its local cluster goes.
    distances = ((np.array(bins)[:, np.newaxis] / 64 - model.cluster_centers_) ** 2).sum(axis=2)
    assert model.induced_labels_.tolist() == distances.argmin(axis=1)[labels].tolist()


LINE = [0, 2, 3, 7, 12, 13]
"""Starts with two seeds among these end at different losses; also without the record at 12."""

SECRETS = 2500


def drawn_at_clients(gone: list[int]) -> tuple[list[Counter[tuple[int, ...]]], Counter[Any]]:
    """What many clients drew: the seeds of each start, and those of the better start."""
    values, ids = np.array(LINE)[:, np.newaxis] / 16.0, np.arange(len(LINE))
    task = LocalKMeans(2, FixedPoint(np.zeros(1), 1.0), 300, 0.0)
    starts: list[Counter[tuple[int, ...]]] = [Counter(), Counter()]
    better: Counter[tuple[int, ...]] = Counter()
    for number in range(SECRETS):
        keys = keys_of_ids(Secret(number.to_bytes(16, "little")), ids)
        clusters = LloydClusters(RecordTable(values.copy(), ids.copy(), keys, ids.copy()), task)
        if gone:
            clusters.forget(np.array(gone))
        kmeans = clusters._kmeans
        for start, slots in kmeans._seeds_of_all().items():
            starts[start][tuple(kmeans.records.ids[slots].tolist())] += 1
        better[tuple(clusters.seed_ids.tolist())] += 1
    return starts, better


def law_of_the_better(law: twins.Law, places: list[int]) -> twins.Law:
    """Of two independent starts, the one with the lower loss counts; of equals, the first."""
    points = np.array(places, dtype=float)[:, np.newaxis]
    loss = {seeds: plain_kmeans(points, points[list(seeds)], 300)[0] for seeds in law}
    found = dict.fromkeys(law, Fraction(0))
    for first, second in itertools.product(law, law):
        found[second if loss[second] < loss[first] else first] += law[first] * law[second]
    return found


@pytest.mark.parametrize("gone", [[], [4]], ids=str)
def test_seeds_of_clients_follow_the_law_of_kmeans_plus_plus(gone: list[int]) -> None:
    """Of both starts and of the better one, against enumerated laws; before and after a removal."""
    kept = [i for i in range(len(LINE)) if i not in gone]
    places = [LINE[i] for i in kept]

    def named(law: twins.Law) -> twins.Law:
        return {tuple(kept[i] for i in seeds): p for seeds, p in law.items()}

    plain = twins.seeding_law(places, 2)
    of_the_better = law_of_the_better(plain, places)
    starts, better = drawn_at_clients(gone)
    for counts in starts:
        assert counts.total() == SECRETS
        assert twins.fits(counts, named(plain))
    assert twins.fits(better, named(of_the_better))
    # The test has power: it tells these laws from others that are near.
    assert not twins.fits(better, named(plain))
    assert not twins.fits(starts[0], named(of_the_better))
    for counts in starts:
        assert not twins.fits(counts, named(twins.greedy_law(places, 2, 2)))
    if gone:
        before = twins.seeding_law(LINE, 2)
        left = {seeds: p for seeds, p in before.items() if not set(seeds) & set(gone)}
        unchanged = {seeds: p / sum(left.values()) for seeds, p in left.items()}
        for counts in starts:
            assert not twins.fits(counts, unchanged)


def test_a_removal_that_leaves_a_cluster_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of two starts, one that loses a cluster is hardly ever the better one.
    monkeypatch.setattr(lloyd_clusters, "STARTS", 1)
    X = np.concatenate([EMPTYING / 16, [[0.25, 0.25], [0.5, 0.75], [0.75, 0.5]]])
    clients, ids = np.array(["A"] * 9 + ["B"] * 3), np.arange(12)
    model = federated(4).fit(X, clients=clients, ids=ids)
    before, at_a = state(model), model._federation.clients["A"]
    assert at_a.owner.clusters.sizes.tolist() == [2, 2, 3, 2]
    report = model.forget(LAST_OF_ITS_CLUSTER)
    assert report.reseeded == {}, "all seeds stand"
    sizes = at_a.owner.clusters.sizes
    assert len(sizes) == 4
    assert np.count_nonzero(sizes == 0) == 1
    assert len(at_a.reported) == 3
    assert at_a.reported.total == 8
    kept = ids != LAST_OF_ITS_CLUSTER
    fresh = federated(4).fit(X[kept], clients=clients[kept], ids=ids[kept])
    assert state(model) == state(fresh)
    model.learn(X[~kept], clients=clients[~kept], ids=ids[~kept])
    assert state(model) == before


def test_duplicates_and_few_records() -> None:
    """As many centres as there are different records; one record; none, and back."""
    X = np.array([[0.25, 0.5]] * 7 + [[0.75, 0.125]] * 2 + [[0.5, 0.5]])
    clients = np.array(["A"] * 9 + ["B"])
    model = federated(3, local_clusters=4).fit(X, clients=clients)
    before = state(model)
    at_a = model._federation.clients["A"]
    assert sorted(at_a.owner.clusters.sizes.tolist()) == [2, 7]
    assert len(model._federation.clients["B"].reported) == 1
    assert model.induced_inertia_ == 0.0
    model.forget(list(range(7)))
    assert model._federation.clients["A"].reported.total == 2
    model.forget([7, 8])
    assert list(model._federation.clients) == ["B"]
    model.forget(9)
    assert model.cluster_centers_.shape == (0, 2)
    model.learn(X, clients=clients, ids=np.arange(10))
    assert state(model) == before


def test_all_clients_may_leave_and_come_back(rng: np.random.Generator) -> None:
    X, clients = rng.random((80, 2)), np.array(["A", "B", "C", "D"])[rng.integers(0, 4, 80)]
    model = federated(3).fit(X, clients=clients)
    before = state(model)
    at_b = clients == "B"
    model.forget_clients("B")
    ids = np.arange(80)
    assert state(model) == state(federated(3).fit(X[~at_b], clients=clients[~at_b], ids=ids[~at_b]))
    model.learn(X[at_b], clients=clients[at_b], ids=ids[at_b])
    assert state(model) == before


@pytest.mark.parametrize("rows", [0, 9])
def test_what_is_kept_makes_no_difference(
    rows: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Starts that have no room for their trajectories are run again with every change."""
    X, clients = rng.random((150, 4)), rng.integers(0, 3, 150)
    roomy = federated(5).fit(X, clients=clients)
    row_bytes = max(
        one.owner.clusters._kmeans.replayed.row_bytes for one in roomy._federation.clients.values()
    )
    monkeypatch.setattr(lloyd_clusters, "_LEAST_MEMORY", rows * row_bytes)
    monkeypatch.setattr(lloyd_clusters, "_MEMORY_PER_BYTE", 0)
    tight = federated(5).fit(X, clients=clients)
    kmeans = [one.owner.clusters._kmeans for one in tight._federation.clients.values()]
    absent = [len(one.replayed.absent) for one in kmeans]
    unkept = [one.work.unkept for one in kmeans]
    assert min(absent) == 2 if rows == 0 else max(absent) + max(unkept) > 0
    for victim in range(0, 60, 3):
        roomy.forget(victim)
        tight.forget(victim)
        assert state(roomy) == state(tight)


@pytest.mark.parametrize("d", [3, 300])
def test_nothing_of_a_record_is_left_in_memory(d: int, rng: np.random.Generator) -> None:
    """In slots, and in what replay keeps of them, by margins and by estimates."""
    X = rng.uniform(0.01, 0.99, (60, d))
    model = federated(5, random_state=1).fit(X, clients=["A"] * 30 + ["B"] * 30)

    def kept(name: str) -> list[np.ndarray]:
        kmeans = model._federation.clients[name].owner.clusters._kmeans
        replay = kmeans.replayed
        by_margins = replay.margins is not None
        places = replay.margins.coordinates if by_margins else replay.estimates.features.T
        return [kmeans.records.points.values, places]

    def rows_with_values(arrays: list[np.ndarray]) -> list[int]:
        return [int(np.count_nonzero(array.any(axis=1))) for array in arrays]

    ordinary = next(i for i in range(30) if i not in model.seed_ids_["A"].tolist())
    assert rows_with_values(kept("A")) == [30, 30]
    model.forget(ordinary)
    assert rows_with_values(kept("A")) == [29, 29]
    of_a, of_b = kept("A"), kept("B")
    model.forget_clients("B")
    assert rows_with_values(of_b) == [0, 0]
    model.forget([i for i in range(30) if i != ordinary])
    assert rows_with_values(of_a) == [0, 0]


def test_a_copy_is_a_copy(rng: np.random.Generator) -> None:
    """Replay holds addresses; those of a copy must be its own."""
    X = rng.random((90, 3))
    for model in (
        federated(4).fit(X, clients=["A"] * 50 + ["B"] * 40),
        KMeans(4, random_state=0).fit(X),
    ):
        centres, labels = model.cluster_centers_.tobytes(), model.labels_.tobytes()
        twin = copy.deepcopy(model)
        for victim in range(40):
            twin.forget(victim)
        assert model.cluster_centers_.tobytes() == centres
        assert model.labels_.tobytes() == labels
        for victim in range(40):
            model.forget(victim)
        assert model.cluster_centers_.tobytes() == twin.cluster_centers_.tobytes()
        assert model.labels_.tobytes() == twin.labels_.tobytes()
