"""One owner: what it says of a change, and that its ids are hashed once per change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedforget import FederatedKMeans, SeededKMeans
from fedforget.clustering import ids as ids_module
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.lloyd_clusters import LloydClusters, LocalKMeans
from fedforget.clustering.owner import Owner
from fedforget.clustering.partition import FixedPoint, SeededPartition
from fedforget.clustering.prf import Secret
from fedforget.clustering.records import RecordTable

SECRET = Secret(bytes(range(16)))


def lloyd_clusters(records: RecordTable, n_seeds: int) -> LloydClusters:
    d = records.values.shape[1]
    return LloydClusters(records, LocalKMeans(n_seeds, FixedPoint(np.zeros(d), 1.0), 300, 0.0))


KINDS: dict[str, Callable[[RecordTable, int], Any]] = {
    "seeded": SeededPartition,
    "lloyd": lloyd_clusters,
}
both_kinds = pytest.mark.parametrize("kind", KINDS)


def owner_of_nothing(d: int, n_seeds: int, kind: str = "seeded") -> Owner[RecordTable]:
    return Owner(SECRET, KINDS[kind](RecordTable.empty(d), n_seeds))


def owner_of(
    values: np.ndarray, ids: np.ndarray, n_seeds: int = 4, kind: str = "seeded"
) -> Owner[RecordTable]:
    owner = owner_of_nothing(values.shape[1], n_seeds, kind)
    owner.learn(values.copy(), ids.copy(), np.arange(len(ids)))
    return owner


def places(owner: Owner[RecordTable]) -> dict[int, int]:
    """The row of every id."""
    return {one: row for row, one in enumerate(owner.records.ids.tolist())}


@both_kinds
def test_what_moved_is_what_an_index_must_be_told(kind: str, rng: np.random.Generator) -> None:
    """An index that follows only the changes still knows where every record is."""
    values, ids = rng.random((80, 3)), rng.permutation(400)[:80]
    owner = owner_of(values, ids, kind=kind)
    index = places(owner)
    for turn in range(12):
        gone = rng.choice(owner.records.ids, 5, replace=False)
        change = owner.forget(np.array([index.pop(one) for one in gone.tolist()]))
        for row in change.moved.tolist():
            index[int(owner.records.ids[row])] = row
        assert index == places(owner)
        new = 1000 + 3 * turn + np.arange(3)
        change = owner.learn(rng.random((3, 3)), new, new)
        index |= dict(zip(new.tolist(), change.moved.tolist(), strict=True))
        assert index == places(owner)
        assert (owner.records.keys_of(change.moved).low == keys_of_ids(SECRET, new).low).all()


@both_kinds
def test_a_change_says_from_which_step_seeds_were_drawn_again(
    kind: str, rng: np.random.Generator
) -> None:
    values, ids = rng.random((60, 2)), np.arange(60)
    drawn = owner_of(values, ids, kind=kind).clusters.seed_ids.tolist()
    for victim in range(60):
        owner = owner_of(values, ids, kind=kind)
        row = np.array([places(owner)[victim]])
        told = owner.clusters.first_lost(row)
        step = owner.forget(row).redrawn_from
        assert step == told == (drawn.index(victim) if victim in drawn else None)
        if kind == "seeded":
            # Of K-means, the other start may be the better one now.
            assert owner.clusters.seed_ids[:step].tolist() == drawn[:step]


@both_kinds
def test_the_first_records_are_taken_over_and_the_last_may_go(
    kind: str, rng: np.random.Generator
) -> None:
    values, ids = rng.random((9, 2)), np.arange(9)
    owner = owner_of(values, ids, 3, kind)
    fresh = owner.clusters.centres.tobytes()
    owner.forget(np.arange(9))
    assert len(owner) == 0
    assert owner.clusters.centres.shape == (0, 2)
    assert owner.learn(values.copy(), ids.copy(), ids.copy()).redrawn_from == 0
    assert owner.clusters.centres.tobytes() == fresh
    empty = owner_of_nothing(2, 3, kind)
    assert empty.learn(values[:0], ids[:0], ids[:0]).redrawn_from is None


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Counter[Any]:
    """How often each id was hashed under each secret."""
    count: Counter[Any] = Counter()
    integers, messages = ids_module.keys_of_integers, ids_module.keys_of_messages

    def count_integers(secret: Secret, tag: bytes, numbers: np.ndarray) -> Any:
        count.update((secret.data, one) for one in numbers.tolist())
        return integers(secret, tag, numbers)

    def count_messages(secret: Secret, data: bytes, offsets: np.ndarray) -> Any:
        pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        count.update((secret.data, data[begin:end]) for begin, end in pairs)
        return messages(secret, data, offsets)

    monkeypatch.setattr(ids_module, "keys_of_integers", count_integers)
    monkeypatch.setattr(ids_module, "keys_of_messages", count_messages)
    return count


@pytest.mark.parametrize("kind", [np.asarray, lambda ids: np.char.add("p", ids.astype(str))])
def test_one_owner_hashes_an_id_once_per_call(
    hashed: Counter[Any], kind: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator
) -> None:
    ids = kind(np.arange(50))
    model = SeededKMeans(4, random_state=0).fit(rng.random((50, 3)), ids=ids)
    assert hashed.total() == len(hashed) == 50
    hashed.clear()
    model.forget(ids[5:12])
    assert hashed.total() == len(hashed) == 7, "records that move have their keys with them"
    hashed.clear()
    model.forget(model.seed_ids_[:1])
    assert hashed.total() == 1
    hashed.clear()
    model.learn(rng.random((6, 3)), ids=kind(np.arange(100, 106)))
    assert hashed.total() == len(hashed) == 6


@pytest.mark.parametrize("kind", [np.asarray, lambda ids: np.char.add("p", ids.astype(str))])
@pytest.mark.parametrize("what", ["means", "lloyd"])
def test_a_federation_hashes_an_id_once_per_call_and_secret(
    hashed: Counter[Any],
    kind: Callable[[np.ndarray], np.ndarray],
    what: str,
    rng: np.random.Generator,
) -> None:
    """The federation's index has a secret of its own, and so has every client."""
    ids = kind(np.arange(60))
    model = FederatedKMeans(3, bounds=(0, 1), step=0.05, representatives=what, random_state=0)
    model.fit(rng.random((60, 3)), clients=np.arange(60) % 4, ids=ids)
    assert hashed.total() == len(hashed) == 2 * 60
    hashed.clear()
    model.forget(ids[5:12])
    assert hashed.total() == len(hashed) <= 2 * 7, "those that went, and those that moved"
    hashed.clear()
    model.learn(rng.random((6, 3)), clients=np.arange(6) % 5, ids=kind(np.arange(100, 106)))
    assert hashed.total() == len(hashed) == 2 * 6
