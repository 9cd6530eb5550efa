"""DC-k-means: a deletion equals a tree that never held the records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.baselines.dckmeans import DCKMeans
from fedforget.baselines.federation import generator
from fedforget.baselines.lloyd import kmeans
from fedforget.errors import DuplicateIdError, UnknownIdError


def state(tree: DCKMeans) -> dict[str, object]:
    """Everything in a tree that may not depend on its past."""
    root = tree.root
    return {
        "root": None if root is None else (root.centres.tobytes(), root.labels.tobytes()),
        "leaves": {
            client: (
                leaf.ids.tolist(),
                leaf.values.tobytes(),
                leaf.clustering.centres.tobytes(),
                leaf.clustering.labels.tobytes(),
            )
            for client, leaf in tree.leaves.items()
        },
    }


@given(
    n=st.integers(1, 60),
    d=st.integers(1, 3),
    n_clients=st.integers(1, 5),
    n_clusters=st.integers(1, 4),
    local=st.integers(1, 5),
    coarse=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_deletion_equals_retraining(
    n: int, d: int, n_clients: int, n_clusters: int, local: int, coarse: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random((n, d))
    if coarse:
        values = np.round(2 * values)
    clients, ids = rng.integers(0, n_clients, n), rng.permutation(3 * n)[:n]
    make = lambda: DCKMeans(n_clusters, local_clusters=local, n_init=2, seed=7)  # noqa: E731
    tree = make().fit(values, clients, ids)
    held = np.ones(n, dtype=bool)
    for _ in range(3):
        gone = held & (rng.random(n) < 0.3)
        touched = tree.forget(ids[gone])
        assert set(touched) == set(clients[gone].tolist())
        held &= ~gone
        if not held.any():
            assert tree.root is None
            return
        order = rng.permutation(np.flatnonzero(held))
        assert state(tree) == state(make().fit(values[order], clients[order], ids[order]))


def test_only_one_leaf_and_the_root_are_computed_again(rng: np.random.Generator) -> None:
    values, clients = rng.random((100, 2)), np.arange(100) % 5
    tree = DCKMeans(3).fit(values, clients)
    before, root = dict(tree.leaves), tree.root
    assert tree.forget([7]) == (2,)
    assert [client for client in range(5) if tree.leaves[client] is not before[client]] == [2]
    assert tree.root is not root
    assert tree.forget([]) == ()


def test_the_root_clusters_what_the_leaves_found_without_weights() -> None:
    """Leaves {0, 0, 0, 1} and {1} with one cluster each: centres 0.25 and 1, root 0.625."""
    tree = DCKMeans(1).fit([[0.0], [0.0], [0.0], [1.0], [1.0]], [0, 0, 0, 0, 1])
    assert tree.outcome().centres.tolist() == [[0.625]]
    tree.forget([3])
    assert tree.outcome().centres.tolist() == [[0.5]]
    tree.forget([4])
    assert tree.outcome().centres.tolist() == [[0.0]]
    assert list(tree.leaves) == [0]


def test_one_client_with_as_many_clusters_as_the_root(rng: np.random.Generator) -> None:
    values = rng.random((80, 3))
    tree = DCKMeans(4).fit(values, np.zeros(80, dtype=int))
    outcome = tree.outcome()
    leaf = tree.leaves[0].clustering
    assert sorted(outcome.centres.tolist()) == sorted(leaf.centres.tolist())
    assert (outcome.centres[outcome.labels] == leaf.centres[leaf.labels]).all()


def test_labels_follow_the_ids(rng: np.random.Generator) -> None:
    values, clients = rng.random((60, 2)), rng.integers(0, 4, 60)
    ids = rng.permutation(60)
    tree = DCKMeans(3).fit(values, clients, ids)
    assert tree.ids.tolist() == list(range(60))
    by_id = np.argsort(ids)
    outcome = tree.outcome()
    for client, leaf in tree.leaves.items():
        mine = clients[by_id] == client
        assert outcome.local_labels[mine].tolist() == leaf.clustering.labels.tolist()


# -- the known mistake ---------------------------------------------------------------------------


class WrongLevel:
    """A tree that, on a deletion, writes a leaf's new centres among the records.

    That is what happens if the level is lowered after the centres are stored instead of before.
    The root keeps the centres to which the deleted record contributed, and other clients' records
    are overwritten.
    """

    def __init__(self, values: np.ndarray, clients: np.ndarray, k: int) -> None:
        self.k = k
        self.records = values.copy()
        self.rows = {client: np.flatnonzero(clients == client) for client in np.unique(clients)}
        self.points = np.empty((k * len(self.rows), values.shape[1]))
        for slot, client in enumerate(self.rows):
            self.points[slot * k : (slot + 1) * k] = self.leaf(client)
        self.merge()

    def leaf(self, client: int) -> np.ndarray:
        rng = generator(0, 1, client)
        return kmeans(self.records[self.rows[client]], self.k, rng).centres

    def merge(self) -> None:
        self.centres = kmeans(self.points, self.k, generator(0, 0), n_init=10).centres

    def forget(self, client: int, row: int, *, wrong: bool) -> None:
        self.rows[client] = self.rows[client][self.rows[client] != row]
        slot = list(self.rows).index(client) * self.k
        level = self.records if wrong else self.points
        level[slot : slot + self.k] = self.leaf(client)
        self.merge()


def test_centres_written_to_the_wrong_level_are_no_deletion() -> None:
    rng = np.random.default_rng(3)
    values, clients = rng.random((40, 2)), np.arange(40) % 4
    rest = np.arange(40) != 9
    retrained = DCKMeans(2).fit(values[rest], clients[rest], np.flatnonzero(rest))
    tree = DCKMeans(2).fit(values, clients)
    wrong, right = WrongLevel(values, clients, 2), WrongLevel(values, clients, 2)
    assert wrong.centres.tolist() == tree.outcome().centres.tolist()
    tree.forget([9])
    right.forget(1, 9, wrong=False)
    wrong.forget(1, 9, wrong=True)
    assert state(tree) == state(retrained)
    assert right.centres.tolist() == retrained.outcome().centres.tolist()
    # The root still averages the deleted record, and two other records are no longer their own.
    assert wrong.centres.tolist() == WrongLevel(values, clients, 2).centres.tolist()
    assert wrong.centres.tolist() != retrained.outcome().centres.tolist()
    assert np.flatnonzero((wrong.records != values).any(axis=1)).tolist() == [2, 3]


# -- bad input -----------------------------------------------------------------------------------


def test_an_unknown_id_changes_nothing(rng: np.random.Generator) -> None:
    tree = DCKMeans(2).fit(rng.random((20, 2)), np.arange(20) % 2)
    before = state(tree)
    with pytest.raises(UnknownIdError, match="not held: 20; nothing was deleted"):
        tree.forget([3, 20])
    assert state(tree) == before


def test_bad_input() -> None:
    with pytest.raises(DuplicateIdError, match="given more than once"):
        DCKMeans(2).fit([[0.0], [1.0]], [0, 0], ids=[1, 1])
    with pytest.raises(ValueError, match="1 entries for 2 rows of values"):
        DCKMeans(2).fit([[0.0], [1.0]], [0, 0], ids=[1])
    with pytest.raises(ValueError, match="fit first"):
        DCKMeans(2).outcome()
    with pytest.raises(ValueError, match="n_init must be at least 1"):
        DCKMeans(2, n_init=0)
