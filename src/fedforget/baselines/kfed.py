"""K-FED: one-shot federated clustering without weights (Dennis, Li, Smith, ICML 2021).

Each device clusters its own data by the method of Awasthi and Sheffet (2012) and sends its k'
centres.  The server starts from the centres of one device, adds the device centre that is farthest
from those chosen until there are K, and makes one round of Lloyd's method over all device centres.
Every device centre counts the same, however many records stand behind it.  Nothing can be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.baselines.federation import (
    CONSTRAINTS,
    FederatedClustering,
    Seconds,
    ask_clients,
    check_clients,
    check_values,
    generator,
    outcome_of,
    rows_of_clients,
    timed,
)
from fedforget.baselines.lloyd import MAX_ITER, Clustering, lloyd, means, plus_plus
from fedforget.clustering.distance import Rows, nearest, pairwise
from fedforget.constraints import checked


def kfed(
    values: Any,
    clients: Any,
    n_clusters: int,
    *,
    local_clusters: int | None = None,
    first_device: int | None = None,
    max_iter: int = MAX_ITER,
    tol: float = 0.0,
    seed: int = 0,
) -> FederatedClustering:
    """Cluster records that are spread over devices.

    Parameters
    ----------
    values : (n, d) records.
    clients : the device of each record.
    n_clusters : K, the clusters of the server.
    local_clusters : k', the clusters of a device (K where not given); at most K.
    first_device : whose centres the server starts from; the smallest number where not given.
    max_iter, tol : when a device's Lloyd iteration ends; by default when no label changes.
    seed : of the devices' seeding.
    """
    values = check_values(values)
    clients = check_clients(clients, len(values))
    given = checked(
        CONSTRAINTS,
        n_clusters=n_clusters,
        local_clusters=local_clusters,
        max_iter=max_iter,
        first_device=first_device,
        tol=tol,
        seed=seed,
    )
    k: int = given["n_clusters"]
    local: int = given["local_clusters"] or k
    if local > k:
        raise ValueError(f"local_clusters must not exceed n_clusters = {k}, got {local}")
    devices = rows_of_clients(clients)
    start: int = min(devices) if first_device is None else given["first_device"]
    if start not in devices:
        raise ValueError(f"first_device {start} has no records")

    def prepare(name: int, rows: Ints) -> Callable[[], Clustering]:
        rng = generator(seed, name)
        return partial(cluster_device, values[rows], local, rng, max_iter=max_iter, tol=tol)

    fitted, slowest = ask_clients(devices, prepare)
    points = np.concatenate([one.centres for one in fitted])
    offsets = np.cumsum([0, *(len(one.centres) for one in fitted)])
    position = list(devices).index(start)
    chosen = np.arange(offsets[position], offsets[position + 1])
    server, elapsed = timed(lambda: cluster_centres(points, chosen, k))
    return outcome_of(
        server.centres,
        devices,
        [one.labels for one in fitted],
        np.split(server.labels, offsets[1:-1]),
        Seconds(slowest, elapsed),
    )


def cluster_device(
    values: Floats,
    n_clusters: int,
    rng: np.random.Generator,
    *,
    max_iter: int = MAX_ITER,
    tol: float = 0.0,
) -> Clustering:
    """The clusters of one device: project, seed, keep what is clearly nearest, then Lloyd.

    The seeding is K-means++ on the projected records; the paper allows any approximation there.
    """
    projected = project(values, n_clusters)
    seeds = projected[plus_plus(projected, n_clusters, rng)]
    core = clear_members(projected, seeds)
    # A seed is its own nearest row, so that no core is empty and nothing of `fill` is left.
    fill = np.empty((len(seeds), values.shape[1]))
    start = means(values[core >= 0], core[core >= 0], fill)
    return lloyd(values, start, max_iter=max_iter, tol=tol).without_empty()


def project(values: Floats, rank: int) -> Floats:
    """Coordinates of the rows in the span of their ``rank`` leading right singular vectors."""
    if rank >= min(values.shape):
        return values
    directions = np.linalg.svd(values, full_matrices=False)[2][:rank]
    return np.ascontiguousarray(values @ directions.T)


def clear_members(values: Floats, centres: Floats) -> Labels:
    """The centre that is at most a third as far as any other, -1 where there is none.

    >>> clear_members(np.array([[0.0], [2.0], [3.0]]), np.array([[0.0], [8.0]]))
    array([ 0,  0, -1], dtype=int32)
    """
    d2 = pairwise(values, centres)
    label: Labels = d2.argmin(axis=1).astype(np.int32)
    if len(centres) > 1:
        closest, second = np.partition(d2, 1, axis=1)[:, :2].T
        label[9.0 * closest > second] = -1
    return label


def cluster_centres(points: Floats, chosen: Ints, n_clusters: int) -> Clustering:
    """The server's part: complete ``chosen`` by farthest points, then one round of Lloyd's method.

    The labels are those of the round's assignment, the centres the means that follow from it.
    """
    start = points[farthest_points(points, chosen, n_clusters)]
    labels, d2 = nearest(points, start)
    return Clustering(means(points, labels, start), labels, float(d2.sum()), 1)


def farthest_points(points: Floats, chosen: Ints, n_points: int) -> Ints:
    """Add the point whose nearest chosen point is the farthest, until there are ``n_points``.

    >>> farthest_points(np.array([[0.0], [1.0], [9.0], [5.0]]), np.array([0]), 3)
    array([0, 2, 3])
    """
    rows = Rows(points)
    picked = chosen.tolist()
    label, d2 = rows.nearest(points[chosen])
    while len(picked) < n_points and d2.any():
        picked.append(int(d2.argmax()))
        rows.meet(points[picked], len(picked) - 1, d2, label)
    return np.array(picked, dtype=np.int64)
