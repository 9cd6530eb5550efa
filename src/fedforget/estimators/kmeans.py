"""K-means with Lloyd's iteration for one data owner, with exact removal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.choosing import Trial, agreement_of, choices_among, runs_for
from fedforget.clustering.distance import MAX_MAGNITUDE, nearest, pairwise
from fedforget.clustering.ids import Ids
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.replay.engine import Task
from fedforget.clustering.replay.owned_kmeans import Outcome, OwnedKMeans, in_full
from fedforget.constraints import (
    K_MEANS,
    Choice,
    Constraint,
    Jobs,
    MemorySize,
    OrNone,
    checked_among,
)
from fedforget.digests import Digest
from fedforget.estimators import files
from fedforget.estimators.base import warn_of_few
from fedforget.estimators.owning import OwnerEstimator
from fedforget.estimators.parameters import check_values, column_of, root_secret
from fedforget.estimators.paths import ClusterPath, PathModel, numbers_of, path_with
from fedforget.report import Name, Report, Stopwatch, Verb

GREEDY, PLAIN = "greedy", "plain"
"""How seeds are drawn: the best of several candidates per step, or one after the other."""

MOST_RECORDS = 2**30
"""A model holds no more: sums of 32-bit steps could overflow."""


class KMeans(OwnerEstimator):
    """K-means that forgets exactly: K-means++ seeds, then Lloyd's iteration.

    After ``forget`` and ``learn`` the model equals, bit for bit, that of a fresh fit on the records
    that are then held, with the same ``random_state``.  They take a small part of its time, because
    what the last run did is kept, and only what changes is followed.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.  Fewer are found where fewer records are distinct after rounding;
        ``fit`` warns.
    n_init : int, default=1
        Number of restarts; the one with the lowest inertia is the model.
    max_iter : int, default=300
        The most iterations of a restart.
    tol : float, default=1e-4
        The iteration ends when the squared shifts of all centres add up to at most ``tol`` times
        the mean variance of the features.  With 0 it ends when no label changes.
    seeding : {"greedy", "plain"}, default="greedy"
        How K-means++ draws seeds.  "greedy" takes the best of 2 + ⌊ln K⌋ candidates for each seed
        after the first, as scikit-learn does; "plain" draws each seed once.
    memory_limit : int or str, default="2 GiB"
        The most memory that is kept to forget quickly.  Iterations that do not fit are run again
        with each change, and so are restarts of which not even three do.  The model does not
        depend on it.
    n_jobs : int or None, default=None
        Number of threads, as in scikit-learn.  They share the restarts, if there are several and
        if these keep margins (docs/replay.md).  The model does not depend on it.
    random_state : int, RandomState or None, default=None
        Source of the owner's secret.  An integer makes fits repeatable.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The means of the clusters.
    labels_ : ndarray of shape (n_records,)
        The cluster of each record.
    cluster_sizes_ : ndarray of shape (n_clusters,)
        Number of records of each cluster.
    inertia_ : float
        Sum of squared distances of the records to their centres, correctly rounded.
    n_iter_ : int
        Iterations of the best restart.
    ids_ : ndarray of shape (n_records,)
        The records' ids.
    model_digest_ : str
        SHA-256 of ``n_clusters``, ``seeding``, the steps to which features are rounded, the centres
        and the sizes of the clusters.  Equal digests are equal models.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Notes
    -----
    Records are rounded before they are clustered: per feature, to 28 bits or more of its largest
    magnitude among the records present; magnitudes below 2^-932 count as zero (docs/math.md,
    section 10, has the definition).  So sums are exact and do not depend on the order.  A cluster
    that loses all its records keeps its last centre; scikit-learn moves such a centre to a far
    record.

    What a removal costs depends on the data.  Where clusters are apart, it takes a small part of a
    fit.  Where they overlap everywhere, removing one record can change the whole later course of
    Lloyd's iteration, and following it can take half a fit.

    Attributes with one entry per record keep the order of X; ``forget`` closes the gaps and
    ``learn`` appends.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [0.5], [5.0], [5.5], [9.0]])
    >>> model = KMeans(n_clusters=2, random_state=0).fit(X, ids=list("abcde"))
    >>> print(model.forget("b").removed)
    1
    >>> again = KMeans(n_clusters=2, random_state=0).fit(X[[0, 2, 3, 4]], ids=list("acde"))
    >>> bool((model.cluster_centers_ == again.cluster_centers_).all())
    True
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **K_MEANS,
        "seeding": Choice((GREEDY, PLAIN)),
        "memory_limit": MemorySize(),
        "n_jobs": OrNone(Jobs()),
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-4,
        seeding: str = GREEDY,
        memory_limit: int | str = "2 GiB",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.seeding = seeding
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: Any = None, *, ids: Any = None) -> Self:
        """Cluster X.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
        y : ignored
        ids : array-like of int or str, default=None
            The records' ids, all different; the row numbers if left out.
        """
        given = checked_among(self._constraints, self.get_params(deep=False))
        with self._unchanged_on_error():
            rows = self._unchecked_rows(X, reset=True)
            column = self._ids_of_fit(ids, len(rows), given["n_clusters"])
            self._build(rows, column, given, root_secret(self.random_state))
            self._fitted_with = self.get_params(deep=False)
            found = len(self._outcome.centres)
            if found < given["n_clusters"]:
                warn_of_few(found, given["n_clusters"])
        return self

    def _build(self, rows: Floats, ids: Ids, given: Mapping[str, Any], root: Secret) -> None:
        """Set the fitted state."""
        self._check_room(0, len(rows))
        check_values(rows)
        keys = self._begin(ids, root)
        task = Task(
            given["n_clusters"],
            given["n_init"],
            given["max_iter"],
            given["tol"],
            given["memory_limit"],
            effective_n_jobs(given["n_jobs"]),
            given["seeding"] == GREEDY,
        )
        self._model = OwnedKMeans(rows, ids, keys, np.arange(len(ids)), task)

    # -- forgetting and learning ---------------------------------------------------------------

    def _some_ids(self) -> Ids:
        return self._model.records.ids[: len(self._model)]

    def _check_room(self, held: int, new: int) -> None:
        if held + new <= MOST_RECORDS:
            return
        if held:
            raise ValueError(
                f"X has {new} rows, and the model holds {held} records; it can hold {MOST_RECORDS}"
                " at most, so learn fewer, or forget others first"
            )
        raise ValueError(
            f"X has {new} rows; a model can hold {MOST_RECORDS} records at most, so fit fewer"
        )

    def _take_out(self, found: Ints) -> tuple[Ints, Keys]:
        self._model.forget(found)
        return np.empty(0, dtype=np.int64), Keys.none()

    def _take_in(self, rows: Floats, ids: Ids, arrival: Ints, keys: Keys) -> Ints:
        return self._model.learn(rows, ids, keys, arrival)

    def _report(self, verb: Verb, watch: Stopwatch, removed: int, added: int) -> Report:
        work, step = self._model.work, self._model.redrawn_from
        reseeded: dict[Name, int] = {} if step is None else {"owner": step}
        return Report(verb, removed, added, reseeded=reseeded, work=work, seconds=watch.total())

    # -- what was found ------------------------------------------------------------------------

    @property
    def _fitted(self) -> OwnedKMeans:
        self._check_fitted()
        return self._model

    @property
    def _outcome(self) -> Outcome:
        return self._fitted.outcome

    def _centres(self) -> Floats:
        return self.cluster_centers_

    @property
    def cluster_centers_(self) -> Floats:
        return self._fitted.records.rounding.values_of(self._fitted.centres)

    @property
    def cluster_sizes_(self) -> Ints:
        return self._outcome.totals.copy()

    @property
    def n_iter_(self) -> int:
        return self._outcome.n_iter

    @property
    def labels_(self) -> Labels:
        labels: Labels = self._outcome.labels[self._fitted.records.by_arrival()].astype(np.int32)
        return labels

    @property
    def ids_(self) -> Ids:
        records = self._fitted.records
        return records.ids[records.by_arrival()]

    @property
    def inertia_(self) -> float:
        return _as_float(self._fitted.loss())

    @property
    def model_digest_(self) -> str:
        return self._digest_of(self._outcome, self._fitted.task.n_clusters)

    def path(self, numbers: Any) -> ClusterPath:
        """Compare models with other numbers of clusters, on the records held.

        Each of them is run in full; the fitted model stays as it is.

        Parameters
        ----------
        numbers : iterable of int, such as ``range(2, 13)``; none above the number of records

        Returns
        -------
        ClusterPath
            With the fitted number of clusters, the model is the fitted one, bit for bit.  With
            another number k it is that of a fresh fit on the same records and ids with
            ``n_clusters=k``, all other parameters of the last ``fit``, and the same integer
            ``random_state``.  Agreement between restarts needs ``n_init`` above 1.
        """
        model = self._fitted
        wanted = numbers_of(numbers, len(model))
        unit = Fraction(model.records.rounding.scale)
        found, models = {}, {}
        for number in runs_for(wanted):
            outcomes, losses = in_full(model.records, replace(model.task, n_clusters=number))
            best = min(range(len(outcomes)), key=lambda at: (losses[at], at))
            outcome, loss = outcomes[best], _as_float(losses[best] / (unit * unit))
            held = outcome.labels >= 0
            agreement = agreement_of([one.labels[held] for one in outcomes])
            found[number] = Trial(number, loss, outcome.totals, agreement)
            models[number] = PathModel(
                number,
                model.records.rounding.values_of(outcome.centres),
                outcome.totals,
                loss,
                outcome.n_iter,
                self._digest_of(outcome, number),
            )
        return path_with(choices_among(found, wanted), models.__getitem__)

    # -- new rows ------------------------------------------------------------------------------

    def _framed(self, X: npt.ArrayLike) -> Iterator[tuple[Any, Floats, Floats, int]]:
        """Groups of rows: places in X, rounded values, centres in their unit, the power of two.

        It is the one that records are clustered at, unless squares of a row would overflow there.
        A row's power depends on no other row.
        """
        rounding = self._fitted.records.rounding
        rows, centres = rounding.round_any(self._rows(X)), self._filled_centres()
        largest = np.abs(rows).max(axis=1)
        exponents = np.frexp(largest)[1]
        is_far = (exponents + rounding.shift > math.frexp(MAX_MAGNITUDE)[1]) & (largest > 0.0)
        if not is_far.any():
            yield slice(None), *_times(rounding.shift, rows, centres)
            return
        shifts = np.where(is_far, -exponents, rounding.shift)
        for shift in np.unique(shifts).tolist():
            which = np.flatnonzero(shifts == shift)
            yield which, *_times(shift, rows[which], centres)

    def _nearest(self, X: npt.ArrayLike) -> tuple[Labels, Floats]:
        parts = [(which, *nearest(rows, c), shift) for which, rows, c, shift in self._framed(X)]
        n = sum(len(part[1]) for part in parts)
        labels, squares = np.empty(n, dtype=np.int32), np.empty(n)
        for which, label, d2, shift in parts:
            labels[which] = label
            with np.errstate(over="ignore", under="ignore"):
                squares[which] = np.ldexp(d2, -2 * shift)
        return labels, squares

    def transform(self, X: npt.ArrayLike) -> Floats:
        """The distance of each row of X, rounded as records are, to every centre."""
        parts = [(which, pairwise(rows, c), shift) for which, rows, c, shift in self._framed(X)]
        distances = np.empty((sum(len(part[1]) for part in parts), parts[0][1].shape[1]))
        for which, d2, shift in parts:
            with np.errstate(over="ignore", under="ignore"):
                distances[which] = np.ldexp(np.sqrt(d2), -shift)
        return distances

    # -- files ---------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model, records and secret included, to one file that only you may read."""
        records = self._fitted.records
        order = records.by_arrival()
        parameters = checked_among(self._constraints, self._fitted_with)
        limit = self._fitted_with["memory_limit"]
        if isinstance(limit, str):  # As it was given, not in bytes.
            parameters["memory_limit"] = str(limit)
        files.write(
            path,
            {
                "estimator": "KMeans",
                "parameters": parameters,
                "random_state": files.plain_random_state(self._fitted_with["random_state"]),
                "secret": self._root.data.hex(),
                "digest": self.model_digest_,
            },
            {
                "values": records.points.values[order],
                "ids": records.ids[order],
                **files.feature_names(self),
            },
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a saved model.  It is fitted again from its records, and must come out the same."""
        header, arrays = files.read(path, "KMeans")
        with files.explained(path):
            # Files from before there was a choice do not say how seeds were drawn.
            parameters = {"seeding": PLAIN, **header["parameters"]}
            model = cls(**parameters, random_state=header["random_state"])
            given = checked_among(cls._constraints, model.get_params(deep=False))
            values = files.matrix(arrays["values"])
            files.restore_features(model, arrays, values.shape[1])
            root = Secret(bytes.fromhex(header["secret"]))
            model._build(values, column_of(arrays["ids"], len(values), "ids"), given, root)
            model._fitted_with = model.get_params(deep=False)
        files.check_digest(path, header["digest"], model.model_digest_)
        return model

    def _digest_of(self, outcome: Outcome, n_clusters: int) -> str:
        digest = Digest("kmeans").field("n_clusters", n_clusters)
        if self._fitted.task.greedy:
            digest.field("seeding", GREEDY)
        digest.array("exponents", self._fitted.records.rounding.exponents)
        return digest.array("centres", outcome.centres).array("sizes", outcome.totals).hex()


def _times(shift: int, rows: Floats, centres: Floats) -> tuple[Floats, Floats, int]:
    """Rows and centres times two to a power, and the power."""
    return np.ldexp(rows, shift), np.ldexp(centres, shift), shift


def _as_float(loss: Fraction) -> float:
    try:
        return float(loss)
    except OverflowError:
        return math.inf
