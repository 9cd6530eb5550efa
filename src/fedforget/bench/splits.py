"""Who holds which record: i.i.d. clients, and clients that see a few clusters only.

A split is a column of client numbers 0 … L − 1, one per record: every record has exactly one
client, and no client is empty.  The same seed gives the same split.

Three splits limit what a client sees.  :func:`in_file_order` is that of the paper's authors: a
client gets runs of neighbouring rows, so that whatever order the file has reaches the clients.
:func:`non_iid` gives all clients the same number of records, which it shuffles first.
:func:`fragmented` gives a client thin slices of clusters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints
from fedforget.baselines.retraining import centralised


def natural(names: Any) -> tuple[Ints, npt.NDArray[Any]]:
    """Clients that the data names itself: the number of each record's client, and the sorted names.

    >>> natural(["Ulm", "Bern", "Ulm"])
    (array([1, 0, 1]), array(['Bern', 'Ulm'], dtype='<U4'))
    """
    distinct, numbers = np.unique(np.asarray(names), return_inverse=True)
    return numbers.astype(np.int64), distinct


def iid(n: int, n_clients: int, *, seed: int = 0) -> Ints:
    """Deal ``n`` records at random; the sizes of two clients differ by at most one."""
    _check_sizes(n, n_clients)
    return np.random.default_rng(seed).permutation(np.arange(n, dtype=np.int64) % n_clients)


def non_iid(clusters: Any, n_clients: int, k_prime: int, *, seed: int = 0) -> Ints:
    """Deal records such that no client sees more than ``k_prime`` of the global clusters.

    This is the heterogeneity of Dennis, Li, Smith (2021) that the MUFC paper takes over.  Client
    after client draws up to K′ clusters, in proportion to what is left of them, and random shares.

    Where K′ is not smaller than the number of clusters the records are dealt i.i.d.

    *Sizes.*  With G clusters, L clients, K′ ≥ 2 and G ≤ L (K′ − 1) + 1, every client has ⌊n/L⌋ or
    ⌈n/L⌉ records.  Where K′ = 1, or there are barely enough clients to hold the clusters, sizes
    follow from the clusters': each is cut into equal parts.  (The authors' own split of Celltype
    gives the last client whatever is left: 1,134 records where the others have up to 120.)

    Parameters
    ----------
    clusters : the global cluster of each record; see :func:`global_clusters`.
    n_clients : L.
    k_prime : K′, the most clusters of a client.
    seed : of every draw.

    Examples
    --------
    >>> split = non_iid([0] * 6 + [1] * 3 + [2] * 3, n_clients=4, k_prime=2)
    >>> np.bincount(split)
    array([3, 3, 3, 3])
    >>> clusters_seen([0] * 6 + [1] * 3 + [2] * 3, split).max() <= 2
    np.True_
    """
    codes = _checked_clusters(clusters, n_clients, k_prime)
    n, n_groups = len(codes), int(codes.max()) + 1
    if k_prime >= n_groups:
        return iid(n, n_clients, seed=seed)
    rng = np.random.default_rng(seed)
    sizes = np.bincount(codes, minlength=n_groups)
    if k_prime >= 2 and n_groups <= n_clients * (k_prime - 1) + 1:
        amounts = _even_amounts(sizes, n_clients, k_prime, rng)
    else:
        amounts = _cut_clusters(sizes, n_clients, k_prime)
    amounts = rng.permutation(amounts)
    clients = np.empty(n, dtype=np.int64)
    numbers = np.arange(n_clients, dtype=np.int64)
    for group in range(n_groups):
        members = rng.permutation(np.flatnonzero(codes == group))
        clients[members] = np.repeat(numbers, amounts[:, group])
    return clients


_TRIES = 1000
"""Draws after which :func:`in_file_order` gives up on the authors' rule."""


def in_file_order(
    clusters: Any, n_clients: int, k_prime: int, *, seed: int = 0, order: Any = None
) -> Ints:
    """Deal runs of neighbouring records of a cluster, as the paper's authors do.

    Clients take their turns.  Each draws up to K′ of the clusters that still have records, all
    with the same chance, and takes the next records of one after the other until it has n/L: a
    random number, at least a K′-th of n/L where there are as many.  The last client gets what is
    left, which is often much more.  Where that is more than K′ clusters, or some client is left
    without records, everything is drawn again.

    Where 1,000 draws do not do (K′ = 1; barely enough clients), every cluster is cut into
    equal runs instead.  Where K′ is not smaller than the number of clusters, the records are dealt
    i.i.d.

    Parameters
    ----------
    clusters, n_clients, k_prime, seed : as in :func:`non_iid`.
    order : a sortable key per record; records of a cluster are dealt by ascending key.  The order
        of the file where not given.

    Examples
    --------
    >>> in_file_order([0] * 6 + [1] * 6, n_clients=3, k_prime=1).tolist()
    [0, 0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 1]
    """
    codes = _checked_clusters(clusters, n_clients, k_prime)
    n, sizes = len(codes), np.bincount(codes)
    if k_prime >= len(sizes):
        return iid(n, n_clients, seed=seed)
    rng = np.random.default_rng(seed)
    draws = (_turns(sizes, n_clients, k_prime, rng) for _ in range(_TRIES if k_prime > 1 else 0))
    amounts = next((one for one in draws if one is not None), None)
    if amounts is None:
        amounts = rng.permutation(_cut_clusters(sizes, n_clients, k_prime))
    place = np.arange(n) if order is None else np.asarray(order)
    by_cluster = np.lexsort((place, codes))
    clients = np.empty(n, dtype=np.int64)
    numbers = np.arange(n_clients, dtype=np.int64)
    clients[by_cluster] = np.concatenate([np.repeat(numbers, column) for column in amounts.T])
    return clients


def _turns(sizes: Ints, n_clients: int, k_prime: int, rng: np.random.Generator) -> Ints | None:
    """(L, G) how many records of each cluster each client takes; None where it does not do."""
    left, room = sizes.copy(), int(sizes.sum()) // n_clients
    amounts = np.zeros((n_clients, len(sizes)), dtype=np.int64)
    for client in range(n_clients - 1):
        held = np.flatnonzero(left)
        for group in rng.choice(held, min(k_prime, len(held)), replace=False):
            wanted = int(rng.integers(max(1, room // k_prime), room + 1))
            missing = room - int(amounts[client].sum())
            amounts[client, group] = min(wanted, missing, int(left[group]))
        left = left - amounts[client]
    amounts[-1] = left
    fits = np.count_nonzero(left) <= k_prime and amounts.sum(axis=1).all()
    return amounts if fits else None


def fragmented(X: Floats, clusters: Any, n_clients: int, k_prime: int, *, seed: int = 0) -> Ints:
    """Deal slices of clusters, across the direction in which a cluster is longest.

    A client that sees a cluster sees one side of it only, or a slice from its middle: no client's
    mean of that cluster is near the cluster's own.  Apart from the order of the records this is
    :func:`in_file_order`.
    """
    codes = natural(clusters)[0]
    along = np.empty(len(codes))
    for group in range(int(codes.max()) + 1):
        members = codes == group
        centred = X[members] - X[members].mean(axis=0)
        direction = np.linalg.svd(centred, full_matrices=False)[2][0]
        along[members] = centred @ direction
    return in_file_order(codes, n_clients, k_prime, seed=seed, order=along)


def clusters_seen(clusters: Any, clients: Any) -> Ints:
    """How many clusters each client that has records sees, by ascending client."""
    pairs = np.unique(np.stack([np.asarray(clients), natural(clusters)[0]]), axis=1)
    return np.unique(pairs[0], return_counts=True)[1]


def global_clusters(X: Floats, n_clusters: int, *, n_init: int = 3, seed: int = 0) -> Ints:
    """The clusters by which records are dealt: those of centralised K-means++, as in the paper."""
    return centralised(X, n_clusters, n_init=n_init, seed=seed).labels.astype(np.int64)


def _checked_clusters(clusters: Any, n_clients: int, k_prime: int) -> Ints:
    """The clusters as 0 … G − 1, if clients that see so few of them can hold all."""
    codes = natural(clusters)[0]
    n_groups = int(codes.max(initial=-1)) + 1
    _check_sizes(len(codes), n_clients)
    if k_prime < 1:
        raise ValueError(f"k_prime must be at least 1, got {k_prime}")
    if n_groups > n_clients * k_prime:
        raise ValueError(
            f"{n_clients} clients that see at most {k_prime} clusters each cannot hold all"
            f" {n_groups}; raise n_clients or k_prime"
        )
    return codes


def _check_sizes(n: int, n_clients: int) -> None:
    if n_clients < 1:
        raise ValueError(f"n_clients must be at least 1, got {n_clients}")
    if n < n_clients:
        raise ValueError(f"{n} records are too few for {n_clients} clients, none of them empty")


def _even_amounts(sizes: Ints, n_clients: int, k_prime: int, rng: np.random.Generator) -> Ints:
    """(L, G) how many records of each cluster each client gets, clients being equally large.

    R clients can share G clusters evenly if G ≤ R (K′ − 1) + 1, for then one of them can leave such
    a rest to the others: :func:`_fitting_amounts`.  A random draw stands if it does so too.
    """
    left = sizes.copy()
    amounts = np.zeros((n_clients, len(sizes)), dtype=np.int64)
    for client in range(n_clients - 1):
        others = n_clients - client - 1
        room = int(left.sum()) // (others + 1)
        most_left = others * (k_prime - 1) + 1
        taken = _draw_amounts(left, room, k_prime, rng)
        if taken is None or np.count_nonzero(left - taken) > most_left:
            taken = _fitting_amounts(left, room, k_prime)
        amounts[client] = taken
        left = left - taken
    amounts[-1] = left
    return amounts


def _draw_amounts(left: Ints, room: int, k_prime: int, rng: np.random.Generator) -> Ints | None:
    """Random shares of K′ clusters, drawn by what is left of them; None where they do not do."""
    held = np.flatnonzero(left)
    drawn = rng.choice(
        held, min(k_prime, len(held)), replace=False, p=left[held] / left[held].sum()
    )
    if left[drawn].sum() < room:
        return None
    taken = np.zeros_like(left)
    shares = rng.multinomial(room, rng.dirichlet(np.ones(len(drawn))))
    taken[drawn] = np.minimum(shares, left[drawn])
    for group in rng.permutation(drawn):
        taken[group] += min(room - int(taken.sum()), int(left[group] - taken[group]))
    return taken


def _fitting_amounts(left: Ints, room: int, k_prime: int) -> Ints:
    """Amounts of K′ clusters, neighbours in the order of size, that use up as many as they can.

    Take the K′ smallest clusters, or the next larger window, until they are large enough together,
    and start with the smallest of them.  If that was the first window, and its j smallest clusters
    fit with j < K′ − 1, all others except one have more than room / (j + 1) records each and there
    are fewer than (R − 1) (j + 1) of them.  In every other case K′ − 1 clusters are used up.
    """
    held = np.flatnonzero(left)
    order = held[np.argsort(left[held], kind="stable")]
    begin = 0
    while begin + k_prime < len(order) and left[order[begin : begin + k_prime]].sum() < room:
        begin += 1
    taken = np.zeros_like(left)
    for group in order[begin : begin + k_prime]:
        taken[group] = min(int(left[group]), room - int(taken.sum()))
    return taken


def _cut_clusters(sizes: Ints, n_clients: int, k_prime: int) -> Ints:
    """(L, G) amounts where every cluster is cut into equal parts and no client has more than K′."""
    parts = np.ones(len(sizes), dtype=np.int64)
    for _ in range(min(n_clients * k_prime, int(sizes.sum())) - len(sizes)):
        parts[np.argmax(np.where(parts < sizes, sizes / parts, 0.0))] += 1
    pieces = [
        (size // count + (piece < size % count), group)
        for group, (size, count) in enumerate(zip(sizes.tolist(), parts.tolist(), strict=True))
        for piece in range(count)
    ]
    pieces.sort(key=lambda piece: -piece[0])
    amounts = np.zeros((n_clients, len(sizes)), dtype=np.int64)
    for number, (size, group) in enumerate(pieces):
        lap, place = divmod(number, n_clients)
        # Back and forth, so that who got a large piece gets a small one next.
        amounts[place if lap % 2 == 0 else n_clients - 1 - place, group] += size
    return amounts
