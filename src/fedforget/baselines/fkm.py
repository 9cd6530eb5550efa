"""FKM: federated K-means in several rounds (Garst, Reinders, "Federated K-Means clustering", 2023).

First every client runs K-means++ with Lloyd and reports its means with their sizes.  The server
clusters the means, each weighted by its size, and sends its centres back.  In each further round a
client drops the centres that are nearest to none of its records, so that clients have as many
clusters as they need, runs Lloyd's iteration from the others, and reports again; the server starts
from its own centres.  A mean of fewer than two records is not reported: it would be a record.

This is written from the idea of the paper, not from its code.  Open there, and chosen here: Lloyd's
iteration runs to its end at the clients, and rounds end when the server's centres hardly move.
Means travel in the clear, as they do in the paper, and nothing can be deleted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fedforget.arrays import Floats, Ints
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
from fedforget.baselines.lloyd import MAX_ITER, Clustering, kmeans, lloyd
from fedforget.clustering.distance import nearest
from fedforget.constraints import checked

LEAST = 2
"""Records that a reported mean must have, the paper's p."""

MAX_ROUNDS = 20

_SERVER, _CLIENT = 0, 1


@dataclass(frozen=True, eq=False)
class FkmResult:
    """The outcome of a federation that talks in rounds.

    Attributes
    ----------
    clustering : centres, labels and times, which are summed over the rounds.
    n_rounds : how often every client reported.
    converged : whether the centres hardly moved in the last round.
    """

    clustering: FederatedClustering
    n_rounds: int
    converged: bool


def fkm(
    values: Any,
    clients: Any,
    n_clusters: int,
    *,
    n_init: int = 10,
    max_rounds: int = MAX_ROUNDS,
    max_iter: int = MAX_ITER,
    tol: float = 1e-4,
    seed: int = 0,
) -> FkmResult:
    """Cluster records that are spread over clients, in several rounds.

    Parameters
    ----------
    values : (n, d) records.
    clients : the client of each record.
    n_clusters : K, of the server and, in the first round, of every client.
    n_init : starts of the server's K-means in the first round.
    max_rounds : reports of a client after which the federation stops in any case.
    max_iter : of Lloyd's iteration.
    tol : rounds end when the squared shifts of all centres together are at most this, relative to
        the mean variance of a feature.
    seed : of everything random.
    """
    values = check_values(values)
    clients = check_clients(clients, len(values))
    given = checked(
        CONSTRAINTS,
        n_clusters=n_clusters,
        n_init=n_init,
        max_rounds=max_rounds,
        max_iter=max_iter,
        tol=tol,
        seed=seed,
    )
    still = given["tol"] * float(values.var(axis=0).mean())
    k: int = given["n_clusters"]
    rows = rows_of_clients(clients)
    client_seconds = server_seconds = 0.0
    centres: Floats | None = None
    converged = False
    n_rounds = 0
    with threadpool_limits(limits=1):
        while n_rounds < max_rounds and not converged:
            held, slowest = _round_of_clients(values, rows, centres, k, max_iter, seed)
            found, elapsed = timed(partial(_serve, held, centres, k, n_init, max_iter, seed))
            client_seconds += slowest
            server_seconds += elapsed
            n_rounds += 1
            converged = centres is not None and _shift(centres, found) <= still
            centres = found
    assert centres is not None
    clustering = outcome_of(
        centres,
        rows,
        [one.labels for one in held],
        [nearest(one.centres, centres)[0] for one in held],
        Seconds(client_seconds, server_seconds),
    )
    return FkmResult(clustering, n_rounds, converged)


def local_clusters(values: Floats, centres: Floats, *, max_iter: int = MAX_ITER) -> Clustering:
    """A client's clusters in a further round: from the centres that it has records for.

    >>> local_clusters(np.array([[0.0], [2.0]]), np.array([[0.5], [9.0]])).centres
    array([[1.]])
    """
    needed = np.unique(nearest(values, centres)[0])
    return lloyd(values, centres[needed], max_iter=max_iter).without_empty()


def _shift(before: Floats, after: Floats) -> float:
    """The squared shifts of all centres together; without end where some were lost."""
    return float(((before - after) ** 2).sum()) if before.shape == after.shape else np.inf


def _round_of_clients(
    values: Floats, rows: dict[int, Ints], centres: Floats | None, k: int, max_iter: int, seed: int
) -> tuple[list[Clustering], float]:
    """What every client finds in a round, and the time of the slowest."""

    def prepare(name: int, own: Ints) -> Callable[[], Clustering]:
        if centres is None:
            rng = generator(seed, _CLIENT, name)
            return partial(kmeans, values[own], k, rng, max_iter=max_iter)
        return partial(local_clusters, values[own], centres, max_iter=max_iter)

    return ask_clients(rows, prepare)


def _serve(
    held: list[Clustering], centres: Floats | None, k: int, n_init: int, max_iter: int, seed: int
) -> Floats:
    """K-means of the reported means, weighted by their sizes."""
    points = np.concatenate([one.centres for one in held])
    sizes = np.concatenate([one.sizes for one in held])
    # Where no mean may be reported there would be nothing to cluster.
    reported = sizes >= min(LEAST, int(sizes.max()))
    points, sizes = points[reported], sizes[reported]
    state = int(generator(seed, _SERVER).integers(2**31))
    if centres is None:
        model = KMeans(min(k, len(points)), n_init=n_init, max_iter=max_iter, random_state=state)
    else:
        # A set of centres can be larger than that of means only where means went unreported.
        init = centres[: len(points)]
        model = KMeans(len(init), init=init, n_init=1, max_iter=max_iter, random_state=state)
    with warnings.catch_warnings():
        # Fewer distinct means than clusters are no reason to complain.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points, sample_weight=sizes)
    return np.ascontiguousarray(model.cluster_centers_, dtype=np.float64)
