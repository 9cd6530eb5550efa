"""Splits: every record has one client, no client is empty, nobody sees too many clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedforget.bench.splits import (
    clusters_seen,
    fragmented,
    global_clusters,
    iid,
    in_file_order,
    natural,
    non_iid,
)

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def check_partition(split: np.ndarray, n: int, n_clients: int) -> np.ndarray:
    """The laws of every split; returns the clients' sizes."""
    assert split.shape == (n,)
    assert split.dtype == np.int64
    sizes = np.bincount(split, minlength=n_clients)
    assert len(sizes) == n_clients
    assert sizes.min() >= 1
    assert sizes.sum() == n
    return sizes


@given(n=st.integers(1, 500), n_clients=st.integers(1, 60), seed=st.integers(0, 2**32))
def test_iid_splits(n: int, n_clients: int, seed: int) -> None:
    assume(n_clients <= n)
    split = iid(n, n_clients, seed=seed)
    assert np.ptp(check_partition(split, n, n_clients)) <= 1
    assert split.tolist() == iid(n, n_clients, seed=seed).tolist()


@settings(max_examples=300)
@given(
    sizes=SIZES,
    n_clients=st.integers(1, 15),
    k_prime=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_non_iid_splits(sizes: list[int], n_clients: int, k_prime: int, seed: int) -> None:
    n, n_groups = sum(sizes), len(sizes)
    assume(n_clients <= n)
    assume(n_groups <= n_clients * k_prime)
    clusters = np.random.default_rng(seed).permutation(np.repeat(np.arange(n_groups), sizes))
    split = non_iid(clusters, n_clients, k_prime, seed=seed)
    found = check_partition(split, n, n_clients)
    if k_prime < n_groups:
        assert clusters_seen(clusters, split).max() <= k_prime
    if k_prime >= 2 and n_groups <= n_clients * (k_prime - 1) + 1:
        assert set(found.tolist()) <= {n // n_clients, math.ceil(n / n_clients)}
    assert split.tolist() == non_iid(clusters, n_clients, k_prime, seed=seed).tolist()


@settings(max_examples=150)
@given(
    sizes=SIZES,
    n_clients=st.integers(1, 15),
    k_prime=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_runs_of_neighbours(sizes: list[int], n_clients: int, k_prime: int, seed: int) -> None:
    """What a client has of a cluster is one run of the cluster's rows, in the order of the file."""
    n, n_groups = sum(sizes), len(sizes)
    assume(n_clients <= n)
    assume(n_groups <= n_clients * k_prime)
    clusters = np.random.default_rng(seed).permutation(np.repeat(np.arange(n_groups), sizes))
    split = in_file_order(clusters, n_clients, k_prime, seed=seed)
    check_partition(split, n, n_clients)
    assert split.tolist() == in_file_order(clusters, n_clients, k_prime, seed=seed).tolist()
    if k_prime < n_groups:
        assert clusters_seen(clusters, split).max() <= k_prime
        for group in range(n_groups):
            own = split[clusters == group]
            assert np.count_nonzero(np.diff(own)) == len(np.unique(own)) - 1


def test_the_authors_rule(seed: int) -> None:
    """All but the last client have n/L records or, where clusters ran out, at least half of it."""
    clusters = np.repeat(np.arange(4), [6506, 2328, 2201, 974])
    split = in_file_order(clusters, 100, 2, seed=seed)
    sizes = np.bincount(split)
    assert sizes[:-1].max() == 120
    assert sizes[:-1].min() >= 60
    assert sizes[-1] == 12009 - sizes[:-1].sum() > 120
    seen = clusters_seen(clusters, split)
    # The small clusters are drawn as often as the large one, and run out early.
    assert np.mean(seen[:20] == 2) > 0.9
    assert set(seen[-20:].tolist()) == {1}


def test_another_order_deals_by_that_order() -> None:
    """Two clusters of six, cut in two each: the three smallest keys, and the three largest."""
    clusters, keys = np.repeat([0, 1], 6), np.array([5, 0, 4, 1, 3, 2] * 2)
    split = in_file_order(clusters, 4, 1, order=keys)
    for group in (0, 1):
        own = split[clusters == group]
        assert len(set(own[[1, 3, 5]].tolist())) == len(set(own[[0, 2, 4]].tolist())) == 1
    assert len(set(split.tolist())) == 4


def test_fragments_are_slices_of_clusters(rng: np.random.Generator) -> None:
    """Two long clusters along the first axis: a client's piece is an interval of that axis."""
    X = rng.normal(0.0, [5.0, 0.1], (400, 2))
    X[200:, 1] += 100.0
    clusters = np.repeat([0, 1], 200)
    split = fragmented(X, clusters, 8, 1)
    check_partition(split, 400, 8)
    for client in range(8):
        own = split == client
        (group,) = set(clusters[own].tolist())
        low, high = X[own, 0].min(), X[own, 0].max()
        between = (X[:, 0] >= low) & (X[:, 0] <= high) & (clusters == group)
        assert 0.9 * between.sum() <= own.sum()
        assert own.sum() < 200
    whole = X[:200, 0].std()
    assert max(X[split == client, 0].std() for client in range(8)) < 0.75 * whole


def test_one_client_holds_everything() -> None:
    assert non_iid([3, 3, 8], 1, 2).tolist() == [0, 0, 0]
    assert iid(3, 1).tolist() == [0, 0, 0]


def test_all_clusters_allowed_means_iid(seed: int) -> None:
    """K′ = K: the paper's i.i.d. limit.  A client of 200 lacks a cluster with chance 10⁻⁹."""
    clusters = np.repeat(np.arange(10), 200)
    split = non_iid(clusters, 10, 10, seed=seed)
    assert split.tolist() == iid(2000, 10, seed=seed).tolist()
    assert clusters_seen(clusters, split).tolist() == [10] * 10


def test_one_cluster_a_client_by_hand() -> None:
    """Six, two and two records for five clients of one cluster each: 2 + 2 + 2, 2, 2."""
    clusters = np.array([0] * 6 + [1] * 2 + [2] * 2)
    split = non_iid(clusters, 5, 1)
    assert np.bincount(split).tolist() == [2] * 5
    assert clusters_seen(clusters, split).tolist() == [1] * 5


def test_barely_enough_clients() -> None:
    """Four clusters for two clients with two each leave no choice but to keep them whole."""
    clusters = np.array([0] * 9 + [1] * 5 + [2] * 3 + [3])
    split = non_iid(clusters, 2, 2)
    assert clusters_seen(clusters, split).tolist() == [2, 2]
    assert sorted(np.bincount(split).tolist()) == [8, 10]


def test_clients_see_as_many_clusters_as_they_may(seed: int) -> None:
    clusters = np.repeat(np.arange(10), 300)
    seen = clusters_seen(clusters, non_iid(clusters, 100, 3, seed=seed))
    assert seen.max() == 3
    assert np.median(seen) == 3


def test_seeds_differ() -> None:
    clusters = np.repeat(np.arange(5), 40)
    assert non_iid(clusters, 10, 2, seed=0).tolist() != non_iid(clusters, 10, 2, seed=1).tolist()


def test_natural_clients() -> None:
    numbers, names = natural(np.array(["b", "a", "b"]))
    assert numbers.tolist() == [1, 0, 1]
    assert names.tolist() == ["a", "b"]
    assert clusters_seen([0, 1, 1], [7, 7, 9]).tolist() == [2, 1]


def test_global_clusters_are_those_of_k_means() -> None:
    values = np.array([[0.0], [0.1], [5.0], [5.1], [9.0]])
    found = global_clusters(values, 3)
    assert found[0] == found[1] != found[2] == found[3] != found[4]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid(3, 4), "3 records are too few for 4 clients"),
        (lambda: iid(3, 0), "n_clients must be at least 1"),
        (lambda: non_iid([0, 1, 2], 2, 1), "cannot hold all 3; raise n_clients or k_prime"),
        (lambda: non_iid([0, 1, 2], 2, 0), "k_prime must be at least 1"),
        (lambda: non_iid([0, 1, 2], 4, 2), "too few for 4 clients"),
    ],
)
def test_what_cannot_be_dealt(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
