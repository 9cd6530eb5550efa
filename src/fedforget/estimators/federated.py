"""Federated K-means with exact forgetting, as a scikit-learn estimator."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.disclosure import ReportRules
from fedforget.clustering.distance import nearest
from fedforget.clustering.grid import SMALLEST_STEP, Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import Ids, name_some, parse_ids
from fedforget.clustering.losses import induced_loss
from fedforget.clustering.prf import Secret
from fedforget.configuration import Configuration, Representatives
from fedforget.constraints import (
    K_MEANS,
    Choice,
    Constraint,
    Count,
    CountPerClient,
    Flag,
    Jobs,
    OrNone,
    RealNumber,
    checked_among,
    parse_bounds,
)
from fedforget.errors import DataTraceWarning, LatticeOverflowError, UnknownIdError
from fedforget.estimators import files
from fedforget.estimators.base import CentreEstimator
from fedforget.estimators.parameters import (
    check_same_kind,
    check_values,
    column_of,
    ids_to_learn,
    locate,
    refuse_held,
    root_secret,
)
from fedforget.estimators.paths import ClusterPath, PathModel, numbers_of, path_with
from fedforget.modelling import path_of, sizes_of
from fedforget.record_checks import check_distinct, check_inside
from fedforget.report import Name, Report
from fedforget.runtime.local import LocalFederation
from fedforget.runtime.sums import SUMS


class FederatedKMeans(CentreEstimator):
    """K-means over the records of several clients, from which any record can be forgotten exactly.

    Each client draws K-means++ seeds among its records and reports, on a public grid, where its
    local clusters lie and how large they are.  The server clusters the sum of these histograms.
    After ``forget``, ``learn`` or ``forget_clients`` the model equals, bit for bit, a fresh fit on
    the records that are left (with the same parameters and an integer ``random_state``).

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters K.
    bounds : (low, high) or one such pair per feature, default=None
        The public box in which all records lie.  If it is left out, it is inferred from the first
        data, with a warning: inferred bounds keep a trace of records that are forgotten later.
    scale : {"none", "box"}, default="none"
        ``"none"`` clusters values as they are; ``"box"`` maps each feature to [0, 1] by its bounds.
    step : float, default=None
        Width of a grid bin, as a fraction of the widest feature (of each feature for ``"box"``).
        If it is left out, 1/√n is taken, with the same warning.
    shift : bool, default=False
        Shift the grid by a public random part of a step in each feature.
    clip : bool, default=False
        Move values outside the bounds to the border instead of refusing them.
    local_clusters : int or mapping from client to int, default=None
        How many clusters a client reports; K if left out.  More of them give a better model, but
        make clients draw seeds again more often.
    representatives : {"means", "seeds", "lloyd"}, default="means"
        What stands for a local cluster: the mean of its records, or the seed (a record) itself.
        With ``"lloyd"`` each client runs K-means of its own, the better of two starts of K-means++
        and Lloyd's iteration, and reports its centres: the paper's complete client training.  The
        model is better.  Forgetting takes longer, and is just as exact.
    min_cell : int, default=1
        Least size of a cluster that a client reports.  While some cluster is smaller, the smallest
        one (of equals, the last drawn) is dissolved, and its records go to the nearest one left.
    min_records : int, default=1
        A client with fewer records reports nothing.
    count_step : int, default=1
        Clients round sizes to multiples of this, halves upwards.
    published_step : float, default=None
        If it is given, the model is the one that may be published: its centres are rounded to a
        public grid of this step, which is a fraction like ``step``.
    aggregation : {"plain", "scma", "secure", "centroids"}, default="plain"
        ``"plain"`` adds the histograms up in the clear; ``"scma"`` adds up their encodings and
        decodes the sum; ``"secure"`` runs the whole protocol, in which the server sees masked
        encodings only.  All three give the same model.  ``"centroids"`` reports representatives
        exactly, without the grid (the paper's Alg. 5).
    mode : {"exact", "paper"}, default="exact"
        ``"paper"`` follows the paper's Alg. 4 as printed, for comparison: seeds represent, and a
        client that need not draw again after ``forget`` reports nothing, so that the server keeps
        counting what it has forgotten.  ``learn``, which the paper does not have, always reports.
        With ``representatives="lloyd"`` it is the paper's complete client training, in which every
        removal is reported: the model is that of ``"exact"``.
    server_points : {"weighted", "uniform"}, default="weighted"
        Whether the server clusters weighted bin centres, or draws points uniformly in the bins.
    n_init : int, default=10
        Restarts at the server.
    max_iter : int, default=300
        The most Lloyd iterations of a restart; with ``"lloyd"`` also at the clients.
    tol : float, default=0.0
        The iteration also ends when the squared shifts of all centres add up to at most ``tol``
        times the mean variance of the features.  With 0 it ends when no label changes.
    n_jobs : int, default=None
        How many clients work at a time, in threads.  The model does not depend on it.
    random_state : int, RandomState or None, default=None
        Source of the clients' secrets and of the public seed.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_centres, n_features)
        In the units of X.  Fewer than K where there are fewer distinct points.
    labels_, induced_labels_ : ndarray of shape (n_records,)
        Nearest centre; and the centre of the record's local cluster (the paper's Definition 3.1),
        which for a record that is not reported is the nearest one.  -1 where no centre is left.
    inertia_, induced_inertia_ : float
        The two losses, in the space that was clustered, correctly rounded.
    n_iter_ : int
        Lloyd iterations of the best restart.
    ids_, clients_ : ndarray of shape (n_records,)
        Each record's id and client.
    seed_ids_ : dict from client to ndarray
        The ids of each client's seeds, in the order of drawing: the records whose removal makes
        that client draw again.  With ``representatives="lloyd"``, those of its better start.
    bounds_ : ndarray of shape (n_features, 2)
        The bounds in force.
    step_ : float
        The step in force.
    model_digest_ : str
        SHA-256 of the parameters, the aggregate and the centroids.  Equal digests are equal models.
        With ``published_step``, of the parameters and the published centroids.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Notes
    -----
    Attributes with one entry per record keep the order of X; ``forget`` closes the gaps and
    ``learn`` appends.  Only ``fit`` refuses K > n; a model may shrink to nothing.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.1], [0.2], [0.8], [0.9]])
    >>> model = FederatedKMeans(n_clusters=2, bounds=(0, 1), step=0.01, random_state=0)
    >>> model.fit(X, clients=["A", "A", "B", "B"], ids=["p1", "p2", "p3", "p4"]).cluster_centers_
    array([[0.15],
           [0.85]])
    >>> print(model.forget("p3").removed)
    1
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **K_MEANS,
        "scale": Choice(("none", "box")),
        "step": OrNone(RealNumber(SMALLEST_STEP, 1.0)),
        "shift": Flag(),
        "clip": Flag(),
        "local_clusters": OrNone(CountPerClient()),
        "representatives": Choice(("means", "seeds", "lloyd")),
        "min_cell": Count(),
        "min_records": Count(),
        "count_step": Count(),
        "published_step": OrNone(RealNumber(SMALLEST_STEP, 1.0)),
        "aggregation": Choice(tuple(SUMS)),
        "mode": Choice(("exact", "paper")),
        "server_points": Choice(("weighted", "uniform")),
        "n_jobs": OrNone(Jobs()),
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        bounds: Any = None,
        scale: str = "none",
        step: float | None = None,
        shift: bool = False,
        clip: bool = False,
        local_clusters: Any = None,
        representatives: str = "means",
        min_cell: int = 1,
        min_records: int = 1,
        count_step: int = 1,
        published_step: float | None = None,
        aggregation: str = "plain",
        mode: str = "exact",
        server_points: str = "weighted",
        n_init: int = 10,
        max_iter: int = 300,
        tol: float = 0.0,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.bounds = bounds
        self.scale = scale
        self.step = step
        self.shift = shift
        self.clip = clip
        self.local_clusters = local_clusters
        self.representatives = representatives
        self.min_cell = min_cell
        self.min_records = min_records
        self.count_step = count_step
        self.published_step = published_step
        self.aggregation = aggregation
        self.mode = mode
        self.server_points = server_points
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    # -- fitting -------------------------------------------------------------------------------

    def fit(self, X: npt.ArrayLike, y: Any = None, *, clients: Any = None, ids: Any = None) -> Self:
        """Cluster the records of all clients.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
        y : ignored
        clients : array-like of int or str, default=None
            The client that holds each record; one client (0) for all if left out.
        ids : array-like of int or str, default=None
            The records' ids, unique over the federation; the row numbers if left out.
        """
        with self._unchanged_on_error():
            rows = self._unchecked_rows(X, reset=True)
            check_values(rows)
            n = len(rows)
            given = checked_among(self._constraints, self.get_params(deep=False))
            if given["n_clusters"] > n:
                raise ValueError(f"n_samples={n} should be at least n_clusters={self.n_clusters}")
            id_column = np.arange(n) if ids is None else column_of(ids, n, "ids")
            names = np.zeros(n, np.int64) if clients is None else column_of(clients, n, "clients")
            check_distinct(id_column)
            root = root_secret(self.random_state)
            bounds = self._bounds_for(rows)
            step = self._step_for(n) if given["step"] is None else given["step"]
            config = _configuration(given, bounds, step, root)
            if isinstance(config.local_clusters, Mapping):
                named = parse_ids(list(config.local_clusters), "clients")
                check_same_kind(named, names, "names in local_clusters")
            self._check_new(config, rows, n, given["clip"])
            federation = LocalFederation(config, root, given["aggregation"], given["n_jobs"])
            conversion = _conversion(config.grid, given["clip"])
            report = federation.learn(rows, id_column, names, conversion)
            self._adopt(federation, self.get_params(deep=False))
            # Times are no part of the fitted state, so this is not a public attribute.
            self._fit_report = report
        return self

    def _bounds_for(self, rows: Floats) -> Floats:
        if self.bounds is not None:
            return parse_bounds(self.bounds, rows.shape[1])
        warnings.warn(
            "bounds were inferred from the data and are frozen in bounds_: they keep a trace of"
            " the extreme records even after those are forgotten, and later records outside them"
            " are refused. Pass public bounds to avoid both.",
            DataTraceWarning,
            stacklevel=3,
        )
        return np.stack([rows.min(axis=0), rows.max(axis=0)], axis=1)

    def _step_for(self, n: int) -> float:
        """The step where none is given."""
        if self.aggregation != "centroids":
            warnings.warn(
                "step was inferred as 1/sqrt(n) and is frozen in step_: it keeps a trace of how"
                " many records there once were. Pass a public step to avoid this.",
                DataTraceWarning,
                stacklevel=3,
            )
        return max(1.0 / math.sqrt(n), SMALLEST_STEP)

    def _check_new(self, config: Configuration, rows: Floats, total: int, clip: bool) -> None:
        """Refuse rows outside the bounds, and more records than the lattice has room for."""
        if not clip:
            names = getattr(self, "feature_names_in_", None)
            advice = "widen the bounds of a new federation, or pass clip=True"
            check_inside(rows, config.grid, names, advice)
        if total > config.max_records:
            raise LatticeOverflowError(
                f"{total} records could overflow the integer sums of this lattice, which has room"
                f" for {config.max_records}; use a larger step"
            )

    def _adopt(self, federation: LocalFederation, parameters: dict[str, Any]) -> None:
        """Set the fitted state.  ``parameters`` stay in force until the next fit."""
        self._federation = federation
        self._parameters = parameters
        self._cache: dict[str, Any] = {}
        self._torn = False
        self.bounds_ = federation.config.grid.bounds.copy()
        self.step_ = federation.config.grid.step

    # -- forgetting and learning ---------------------------------------------------------------

    def forget(self, ids: Any) -> Report:
        """Erase records, whoever holds them.

        Parameters
        ----------
        ids : an id, or an array-like of them
            All of them must be held; otherwise nothing changes.

        Returns
        -------
        Report
        """
        self._check_fitted()
        found = locate(ids, self._some_ids(), self._federation.find)
        return self._change(lambda: self._federation.forget(found))

    def forget_clients(self, names: Any) -> Report:
        """Erase clients with all their records.

        Parameters
        ----------
        names : a client's name, or an array-like of them

        Returns
        -------
        Report
        """
        self._check_fitted()
        wanted = parse_ids(names, "clients")
        check_distinct(wanted, "clients")
        held = self._federation.clients
        missing = [name for name in wanted.tolist() if name not in held]
        if missing:
            raise UnknownIdError(
                f"{len(missing)} of {len(wanted)} clients are not in the federation:"
                f" {name_some(missing)}; nothing was forgotten"
            )
        return self._change(lambda: self._federation.forget_clients(wanted.tolist()))

    def learn(self, X: npt.ArrayLike, *, clients: Any = None, ids: Any = None) -> Report:
        """Add records, at old clients or new ones.

        Parameters
        ----------
        X : array-like of shape (n_new, n_features)
        clients : array-like of int or str
            The client of each record; may be left out if ``fit`` was called without it.
        ids : array-like of int or str
            Their ids, which must be given; none may be held already.

        Returns
        -------
        Report
        """
        self._check_fitted()
        rows = self._unchecked_rows(X, reset=False)
        check_values(rows)
        federation = self._federation
        new = ids_to_learn(ids, len(rows), self)
        names = self._names_for(clients, len(rows))
        check_same_kind(new, self._some_ids(), "ids")
        check_same_kind(names, parse_ids(list(federation.clients), "clients"), "clients")
        check_distinct(new)
        found = refuse_held(new, federation.find(new))
        config, clip = federation.config, self._parameters["clip"]
        self._check_new(config, rows, len(federation) + len(rows), clip)
        conversion = _conversion(config.grid, clip)
        return self._change(lambda: federation.learn(rows, new, names, conversion, found))

    def _names_for(self, clients: Any, n: int) -> Ids:
        if clients is not None:
            return column_of(clients, n, "clients")
        if set(self._federation.clients) - {0}:
            raise ValueError("clients is needed: say which client holds each new record")
        return np.zeros(n, dtype=np.int64)

    def _some_ids(self) -> Ids:
        """A few of the held ids; they are all of one kind."""
        for client in self._federation.clients.values():
            return client.owner.records.ids
        return np.empty(0, dtype=np.int64)

    def _change(self, change: Callable[[], Report]) -> Report:
        self._cache = {}
        return super()._change(change)

    # -- the model -----------------------------------------------------------------------------

    @property
    def _fitted(self) -> LocalFederation:
        self._check_fitted()
        return self._federation

    def _cached(self, name: str, compute: Any) -> Any:
        federation = self._fitted
        if name not in self._cache:
            self._cache[name] = compute(federation)
        return self._cache[name]

    def _both_centres(self) -> tuple[Floats, Floats]:
        centres: tuple[Floats, Floats] = self._cached(
            "centres", lambda federation: federation.config.centres_of(federation.model)
        )
        return centres

    def _centres(self) -> Floats:
        return self._both_centres()[0]

    def _to_clustered(self, X: Floats) -> Floats:
        return self._fitted.config.grid.to_clustered(X)

    @property
    def cluster_centers_(self) -> Floats:
        return self._both_centres()[1].copy()

    @property
    def n_iter_(self) -> int:
        return self._fitted.model.n_iter

    @property
    def model_digest_(self) -> str:
        digest: str = self._cached(
            "digest",
            lambda federation: federation.config.model_digest(
                federation.aggregate, federation.model
            ),
        )
        return digest

    def path(self, numbers: Any) -> ClusterPath:
        """Compare models with other numbers of clusters, made from the same aggregate.

        Clients report nothing again, and the fitted model stays as it is.  Losses are those of the
        aggregate: each client's histogram, not its records.

        Parameters
        ----------
        numbers : iterable of int, such as ``range(2, 13)``

        Returns
        -------
        ClusterPath
            With the fitted number of clusters, the model is the fitted one, bit for bit.  With
            another number k it is that of a fresh fit on the same records with ``n_clusters=k`` and
            all other parameters as they are in force: ``bounds_``, ``step_``, the same integer
            ``random_state``, and as ``local_clusters`` the number in force (K of the fitted model,
            if it was left out; a mapping must name every client).  In ``mode="paper"`` the
            aggregate depends on what was forgotten, and so do all models of it.

        Examples
        --------
        >>> X = np.repeat([[0.1], [0.5], [0.9]], 4, axis=0) + np.tile([[0], [0.01]], (6, 1))
        >>> model = FederatedKMeans(3, bounds=(0, 1), step=0.001, random_state=0)
        >>> path = model.fit(X, clients=np.arange(12) % 2).path(range(2, 5))
        >>> path.suggested.n_clusters
        3
        >>> bool((path.model(3).cluster_centers == model.cluster_centers_).all())
        True
        """
        federation = self._fitted
        wanted = numbers_of(numbers)
        config, aggregate = federation.config, federation.aggregate
        found = path_of(config, aggregate, wanted)

        def model_with(number: int) -> PathModel:
            model, own = found.models[number], replace(config, n_clusters=number)
            row = next(one for one in found.choices.rows if one.n_clusters == number)
            return PathModel(
                number,
                own.centres_of(model)[1],
                sizes_of(own, aggregate, model) if row.complies else None,
                row.loss,
                model.n_iter,
                own.model_digest(aggregate, model),
            )

        return path_with(found.choices, model_with)

    # -- one entry per record --------------------------------------------------------------------

    def _order(self) -> Ints:
        order: Ints = self._cached("order", lambda federation: federation.order())
        return order

    def _values(self) -> Floats:
        federation = self._fitted
        shape = (0, federation.config.grid.n_features)
        parts = [client.owner.records.values for client in federation.clients.values()]
        return np.concatenate(parts)[self._order()] if parts else np.empty(shape)

    def _assigned(self) -> tuple[Labels, Floats]:
        """Nearest centre and squared distance of each record, client after client."""

        def compute(federation: LocalFederation) -> tuple[Labels, Floats]:
            tables = [client.owner.records for client in federation.clients.values()]
            found = [nearest(table.values, self._centres()) for table in tables]
            if not found:
                return np.empty(0, dtype=np.int32), np.empty(0)
            return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

        assigned: tuple[Labels, Floats] = self._cached("assigned", compute)
        return assigned

    @property
    def labels_(self) -> Labels:
        return self._assigned()[0][self._order()]

    @property
    def inertia_(self) -> float:
        return math.fsum(self._assigned()[1])

    @property
    def induced_labels_(self) -> Labels:
        labels: Labels = self._fitted.gather(
            lambda client: self._federation.induced_labels(client, self._centres()), np.int32
        )[self._order()]
        return labels

    @property
    def induced_inertia_(self) -> float:
        return induced_loss(self._values(), self.induced_labels_, self._centres())

    @property
    def ids_(self) -> Ids:
        return self._fitted.gather(lambda client: client.owner.records.ids, np.int64)[self._order()]

    @property
    def clients_(self) -> Ids:
        names = self._fitted.gather(
            lambda client: np.full(len(client.owner), client.name), np.int64
        )
        return names[self._order()]

    @property
    def seed_ids_(self) -> dict[Name, Ids]:
        clients = self._fitted.clients
        return {name: client.owner.clusters.seed_ids for name, client in clients.items()}

    # -- files ---------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model, records and secrets included, to one file that only you may read."""
        federation = self._fitted
        parameters = dict(self._parameters)
        bounds = parameters["bounds"]
        parameters["bounds"] = None if bounds is None else np.asarray(bounds).tolist()
        parameters["random_state"] = files.plain_random_state(parameters["random_state"])
        local: Any = parameters.pop("local_clusters")
        if local is not None:
            checked = federation.config.local_clusters
            local = list(checked.items()) if isinstance(checked, Mapping) else checked
        arrays = {
            "values": self._values(),
            "ids": self.ids_,
            "clients": self.clients_,
            "bounds": self.bounds_,
            **files.feature_names(self),
        }
        if federation.config.mode == "paper":
            for number, client in enumerate(federation.clients.values()):
                arrays[f"points_{number}"] = client.reported.points()
                arrays[f"counts_{number}"] = client.reported.counts()
        files.write(
            path,
            {
                "estimator": "FederatedKMeans",
                "parameters": _plain(parameters),
                "local_clusters": local,
                "step": self.step_,
                "secret": federation.root.data.hex(),
                "reported_by": list(federation.clients),
                "digest": self.model_digest_,
            },
            arrays,
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a saved model.  It is fitted again from its records, and must come out the same."""
        header, arrays = files.read(path, "FederatedKMeans")
        with files.explained(path):
            local = header["local_clusters"]
            model = cls(
                **header["parameters"],
                local_clusters=dict(local) if isinstance(local, list) else local,
            )
            values = arrays["values"]
            files.restore_features(model, arrays, values.shape[1])
            check_values(values)
            root = Secret(bytes.fromhex(header["secret"]))
            bounds = parse_bounds(arrays["bounds"], values.shape[1])
            given = checked_among(cls._constraints, model.get_params(deep=False))
            config = _configuration(given, bounds, header["step"], root)
            federation = LocalFederation(config, root, given["aggregation"], given["n_jobs"])
            ids = column_of(arrays["ids"], len(values), "ids")
            check_distinct(ids)
            names = column_of(arrays["clients"], len(values), "clients")
            federation.learn(values, ids, names, lambda rows: np.array(rows, order="C"))
            if federation.config.mode == "paper":
                reports = {
                    name: Histogram.of(arrays[f"points_{number}"], arrays[f"counts_{number}"])
                    for number, name in enumerate(header["reported_by"])
                }
                federation.restore_reports(reports)
            model._adopt(federation, model.get_params(deep=False))
        files.check_digest(path, header["digest"], model.model_digest_)
        return model


def _configuration(
    given: Mapping[str, Any], bounds: Floats, step: float, root: Secret
) -> Configuration:
    """The public parameters of those given, which have been checked one by one."""
    if given["aggregation"] == "centroids" and given["server_points"] == "uniform":
        raise ValueError(
            'server_points="uniform" draws points in the bins of a grid, and'
            ' aggregation="centroids" has none; use server_points="weighted"'
        )
    rules = ReportRules(given["min_cell"], given["min_records"], given["count_step"])
    if given["mode"] == "paper" and not rules.are_off:
        raise ValueError(
            'mode="paper" reports as the paper does, without min_cell, min_records and count_step;'
            ' use mode="exact"'
        )
    public_seed = root.derive("public seed")
    shift_seed = public_seed.derive("shift") if given["shift"] else None
    return Configuration(
        n_clusters=given["n_clusters"],
        local_clusters=given["local_clusters"] or given["n_clusters"],
        grid=Grid(bounds, step, given["scale"], shift_seed),
        representatives=_representatives(given),
        lattice="fixed-point" if given["aggregation"] == "centroids" else "grid",
        server_points=given["server_points"],
        mode=given["mode"],
        n_init=given["n_init"],
        max_iter=given["max_iter"],
        tol=given["tol"],
        public_seed=public_seed,
        rules=rules,
        published_step=given["published_step"],
    )


def _representatives(given: Mapping[str, Any]) -> Representatives:
    """What the paper's modes report: seeds, or the centres of complete client training."""
    asked: Representatives = given["representatives"]
    return "seeds" if given["mode"] == "paper" and asked == "means" else asked


def _conversion(grid: Grid, clip: bool) -> Callable[[Floats], Floats]:
    """How rows get from the caller's units to the clustered space."""
    if clip:
        return lambda rows: grid.to_clustered(grid.clip(rows))
    return grid.to_clustered


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Numpy scalars as Python's own, so that JSON can hold them."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in parameters.items()
    }
