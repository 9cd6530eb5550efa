"""Training from scratch: the yardstick for speed, and for loss.

*Complete retraining* is what a removal costs without unlearning: K-means++ with Lloyd at every
client, then K-means++ with several starts at the server on its n points, all with scikit-learn.

*Complete client training* is the paper's variant (its second table) in which clients run Lloyd's
iteration to the end before they quantise; the server is fedforget's own.

*Centralised* K-means++ sees all records; its loss is what every ratio is taken to.

The three run scikit-learn on one thread, so that clients that would work side by side are timed as
if each had a machine to itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

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
from fedforget.baselines.lloyd import MAX_ITER, Clustering
from fedforget.clustering.distance import nearest
from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.losses import nearest_loss
from fedforget.clustering.prf import Secret
from fedforget.configuration import Configuration, ServerPoints
from fedforget.constraints import checked, parse_bounds
from fedforget.modelling import model_of
from fedforget.record_checks import check_inside

_SERVER, _CLIENT = 0, 1


def centralised(
    values: Any, n_clusters: int, *, n_init: int = 10, max_iter: int = MAX_ITER, seed: int = 0
) -> Clustering:
    """K-means++ on all records together, the best of ``n_init`` starts."""
    values = check_values(values)
    given = checked(CONSTRAINTS, n_clusters=n_clusters, n_init=n_init, max_iter=max_iter, seed=seed)
    rng = generator(given.pop("seed"))
    with threadpool_limits(limits=1):
        found = _fit(values, given.pop("n_clusters"), rng, **given)
    labels, loss = nearest(values, found.centres)[0], nearest_loss(values, found.centres)
    return replace(found, labels=labels, loss=loss).without_empty()


def complete_retraining(
    values: Any,
    clients: Any,
    n_clusters: int,
    grid: Grid,
    *,
    local_clusters: int | None = None,
    n_init: int = 10,
    max_iter: int = MAX_ITER,
    seed: int = 0,
) -> FederatedClustering:
    """Train everything again, as a federation without unlearning must after each removal.

    The server's n points are drawn uniformly in the bins that the clients report, as many as each
    one counts.

    Parameters
    ----------
    values, clients : the records, in the space that is clustered, and the client of each.
    n_clusters : K at the server.
    grid : the public grid, with ``scale="none"``.
    local_clusters : clusters of a client (K where not given).
    n_init : starts at the server.
    max_iter : of Lloyd's iteration.
    seed : of everything random.
    """
    values, clients = _check_inside(values, clients, grid)
    given = checked(
        CONSTRAINTS,
        n_clusters=n_clusters,
        local_clusters=local_clusters,
        n_init=n_init,
        max_iter=max_iter,
        seed=seed,
    )
    k: int = given["n_clusters"]
    local: int = given["local_clusters"] or k
    with threadpool_limits(limits=1):
        reports = _Reports(values, clients, grid, local, max_iter, seed)

        serve = partial(
            greedy_server, grid, reports.bins, reports.sizes, k, n_init=n_init, max_iter=max_iter,
            seed=seed,
        )  # fmt: skip
        (centres, labels), elapsed = timed(serve)
    return reports.outcome(centres, labels, elapsed)


def greedy_server(
    grid: Grid,
    bins: Ints,
    sizes: Ints,
    n_clusters: int,
    *,
    n_init: int = 10,
    max_iter: int = MAX_ITER,
    seed: int = 0,
) -> tuple[Floats, Labels]:
    """The server of the paper's authors: as many points in each bin as it counts, and scikit-learn.

    Points are drawn uniformly.  scikit-learn's K-means++ is *greedy*: it draws several candidates
    for each seed and keeps the best.  Returns the centres, and the cluster of each bin.
    """
    rng = generator(seed, _SERVER)
    repeated = np.repeat(bins, sizes, axis=0)
    scattered = grid.units_of_bins(repeated + rng.random(repeated.shape) - 0.5)
    points = grid.from_units(scattered)[0]
    centres = _fit(points, n_clusters, rng, n_init=n_init, max_iter=max_iter).centres
    middles = grid.from_units(grid.units_of_bins(bins))[0]
    return centres, nearest(middles, centres)[0]


def complete_client_training(
    values: Any, clients: Any, config: Configuration, *, seed: int = 0
) -> FederatedClustering:
    """MUFC with Lloyd's iteration at the clients; after a removal a client must start afresh.

    Parameters
    ----------
    values, clients : the records, in the space that is clustered, and the client of each.
    config : the federation's public parameters, on the grid, with ``scale="none"`` and one number
        of local clusters; see :func:`paper_configuration`.
    seed : of the clients' seeding.
    """
    grid = config.grid
    values, clients = _check_inside(values, clients, grid)
    checked(CONSTRAINTS, seed=seed)
    if config.lattice != "grid" or not isinstance(config.local_clusters, int):
        raise ValueError("config must have lattice='grid' and one number of local clusters")
    with threadpool_limits(limits=1):
        local = config.local_clusters
        reports = _Reports(values, clients, grid, local, config.max_iter, seed)

        def serve() -> tuple[Floats, Labels]:
            model = model_of(config, Histogram.of(reports.bins, reports.sizes))
            labels = nearest(config.coordinates_of(reports.bins), model.centres)[0]
            return config.centres_of(model)[0], labels

        (centres, labels), elapsed = timed(serve)
    return reports.outcome(centres, labels, elapsed)


def paper_configuration(
    n_clusters: int,
    n_records: int,
    n_features: int,
    *,
    bounds: Any = (0.0, 1.0),
    local_clusters: int | None = None,
    server_points: ServerPoints = "uniform",
    n_init: int = 10,
    seed: int = 0,
) -> Configuration:
    """The parameters of the paper's experiments: γ = 1/√n, K everywhere, uniform server points."""
    given = checked(
        CONSTRAINTS,
        n_clusters=n_clusters,
        local_clusters=local_clusters,
        n_init=n_init,
        seed=seed,
    )
    return Configuration(
        n_clusters=given["n_clusters"],
        local_clusters=given["local_clusters"] or given["n_clusters"],
        grid=Grid(parse_bounds(bounds, n_features), n_records**-0.5),
        representatives="seeds",
        lattice="grid",
        server_points=server_points,
        mode="exact",
        n_init=given["n_init"],
        max_iter=MAX_ITER,
        tol=1e-4,
        public_seed=Secret(bytes(16)).derive("baselines", str(given["seed"]).encode()),
    )


class _Reports:
    """What the clients report after complete training, and what their records were told."""

    def __init__(
        self, values: Floats, clients: Ints, grid: Grid, k: int, max_iter: int, seed: int
    ) -> None:
        self._rows = rows_of_clients(clients)

        def prepare(name: int, rows: Ints) -> Callable[[], tuple[Clustering, Ints]]:
            rng = generator(seed, _CLIENT, name)
            return partial(_train_client, values[rows], grid, k, max_iter, rng)

        found, self._slowest = ask_clients(self._rows, prepare)
        fitted = [one for one, _ in found]
        self.bins = np.concatenate([own_bins for _, own_bins in found])
        self.sizes = np.concatenate([one.sizes for one in fitted])
        self._labels = [one.labels for one in fitted]
        self._ends = np.cumsum([len(one.centres) for one in fitted])

    def outcome(self, centres: Floats, labels: Labels, elapsed: float) -> FederatedClustering:
        """Every record goes where its client's representative went."""
        by_client = np.split(labels, self._ends[:-1])
        seconds = Seconds(self._slowest, elapsed)
        return outcome_of(centres, self._rows, self._labels, by_client, seconds)


def _train_client(
    values: Floats, grid: Grid, k: int, max_iter: int, rng: np.random.Generator
) -> tuple[Clustering, Ints]:
    one = _fit(values, k, rng, n_init=1, max_iter=max_iter)
    return one, grid.bins_of_units(grid.to_units(one.centres))


def _fit(
    values: Floats, n_clusters: int, rng: np.random.Generator, *, n_init: int, max_iter: int
) -> Clustering:
    """scikit-learn's K-means; without clusters that have no records.

    Labels and loss are scikit-learn's own: this is timed, and retraining needs no others.
    """
    model = KMeans(
        min(n_clusters, len(values)),
        n_init=n_init,
        max_iter=max_iter,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        # Fewer distinct rows than clusters: the clusters without rows are dropped below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(values)
    centres = np.ascontiguousarray(model.cluster_centers_, dtype=np.float64)
    labels = model.labels_.astype(np.int32)
    return Clustering(centres, labels, float(model.inertia_), int(model.n_iter_)).without_empty()


def _check_inside(values: Any, clients: Any, grid: Grid) -> tuple[Floats, Ints]:
    if grid.scale != "none":
        raise ValueError("the grid must have scale='none': pass values in the clustered space")
    values = check_values(values)
    check_inside(values, grid)
    return values, check_clients(clients, len(values))
