"""K-means++ seeding for one data owner, with exact removal: the paper's Alg. 3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.ids import Ids, smallest_id
from fedforget.clustering.owner import OwnedClusters, Owner
from fedforget.clustering.partition import SeededPartition
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.race import copy_and_start
from fedforget.clustering.records import RecordTable
from fedforget.constraints import Constraint, Count, checked
from fedforget.digests import Digest
from fedforget.estimators import files
from fedforget.estimators.base import warn_of_few
from fedforget.estimators.owning import OwnerEstimator
from fedforget.estimators.parameters import (
    check_measured,
    column_of,
    root_secret,
)
from fedforget.report import Name, Report, Stopwatch, Verb


class SeededKMeans(OwnerEstimator):
    """K-means++ seeds as a clustering that can forget exactly.

    The centres are records, drawn by D² sampling; there are no Lloyd iterations.  Forgetting a
    record that is not a seed changes only a count.  Forgetting a seed keeps the seeds drawn before
    it and draws the others again.  Either way the result equals, bit for bit, a fresh fit on the
    remaining records with the same ``random_state``.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of seeds.  Fewer are drawn where there are fewer distinct records; ``fit`` warns.
    random_state : int, RandomState or None, default=None
        Source of the owner's secret.  An integer makes fits repeatable.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_seeds, n_features)
        The seeds: unchanged rows of X, in the order of drawing.
    seed_ids_ : ndarray
        Their ids.
    labels_ : ndarray of shape (n_records,)
        The nearest seed of each record.
    cluster_sizes_ : ndarray of shape (n_seeds,)
        Number of records of each seed.
    inertia_ : float
        Sum of squared distances to the nearest seed, correctly rounded.
    n_iter_ : int
        Steps of the drawing: the number of seeds.
    ids_ : ndarray of shape (n_records,)
        The records' ids.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Notes
    -----
    Attributes with one entry per record keep the order of X; ``forget`` closes the gaps and
    ``learn`` appends.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [0.1], [5.0], [5.1], [9.0]])
    >>> model = SeededKMeans(n_clusters=2, random_state=0).fit(X, ids=list("abcde"))
    >>> print(model.forget("b").removed)
    1
    >>> again = SeededKMeans(n_clusters=2, random_state=0).fit(X[[0, 2, 3, 4]], ids=list("acde"))
    >>> bool((model.cluster_centers_ == again.cluster_centers_).all())
    True
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {"n_clusters": Count()}

    def __init__(self, n_clusters: int = 8, *, random_state: Any = None) -> None:
        self.n_clusters = n_clusters
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: Any = None, *, ids: Any = None) -> Self:
        """Draw the seeds of X.

        Parameters
        ----------
        X : array-like of shape (n_records, n_features)
        y : ignored
        ids : array-like of int or str, default=None
            The records' ids, all different; the row numbers if left out.
        """
        n_clusters = checked(self._constraints, n_clusters=self.n_clusters)["n_clusters"]
        with self._unchanged_on_error():
            rows = self._unchecked_rows(X, reset=True)
            column = self._ids_of_fit(ids, len(rows), n_clusters)
            self._build(rows, column, n_clusters, root_secret(self.random_state))
            self._random_state = self.random_state
            if self.n_iter_ < n_clusters:
                warn_of_few(self.n_iter_, n_clusters)
        return self

    def _build(self, rows: Floats, ids: Ids, n_clusters: int, root: Secret) -> None:
        """Set the fitted state."""
        keys = self._begin(ids, root)
        values, race = copy_and_start(rows, keys, partial(smallest_id, ids))
        if len(rows):
            check_measured(rows, race.rows[0], race.rate)
        table = RecordTable(values, ids, keys, np.arange(len(ids)), race.label, race.rate)
        self._owner = Owner(self._secret, SeededPartition(table, n_clusters, start=race))

    # -- forgetting and learning ---------------------------------------------------------------

    def _some_ids(self) -> Ids:
        return self._owner.records.ids

    def _take_out(self, found: Ints) -> tuple[Ints, Keys]:
        self._last = self._owner.forget(found)
        return self._last.moved, self._owner.records.keys_of(self._last.moved)

    def _take_in(self, rows: Floats, ids: Ids, arrival: Ints, keys: Keys) -> Ints:
        # A copy: the owner overwrites what it forgets.
        self._last = self._owner.learn(rows.copy(), ids, arrival, keys)
        return self._last.moved

    def _report(self, verb: Verb, watch: Stopwatch, removed: int, added: int) -> Report:
        step = self._last.redrawn_from
        reseeded: dict[Name, int] = {} if step is None else {"owner": step + 1}
        return Report(verb, removed, added, reseeded=reseeded, seconds=watch.total())

    # -- what was found ------------------------------------------------------------------------

    @property
    def _order(self) -> Ints:
        return np.argsort(self._records.arrival)

    @property
    def _fitted(self) -> OwnedClusters[RecordTable]:
        self._check_fitted()
        return self._owner.clusters

    @property
    def _records(self) -> RecordTable:
        return self._fitted.records

    def _centres(self) -> Floats:
        return self._fitted.centres

    @property
    def cluster_centers_(self) -> Floats:
        return self._fitted.centres.copy()

    @property
    def seed_ids_(self) -> Ids:
        return self._fitted.seed_ids

    @property
    def cluster_sizes_(self) -> Ints:
        return self._fitted.sizes.copy()

    @property
    def n_iter_(self) -> int:
        return len(self._fitted.sizes)

    @property
    def labels_(self) -> Labels:
        return self._records.label[self._order]

    @property
    def ids_(self) -> Ids:
        return self._records.ids[self._order]

    @property
    def inertia_(self) -> float:
        return math.fsum(self._records.d2)

    # -- files ---------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model, records and secret included, to one file that only you may read."""
        order, table = self._order, self._records
        files.write(
            path,
            {
                "estimator": "SeededKMeans",
                "n_clusters": self._fitted.n_seeds,
                "random_state": files.plain_random_state(self._random_state),
                "secret": self._root.data.hex(),
                "digest": self._digest(),
            },
            {"values": table.values[order], "ids": table.ids[order], **files.feature_names(self)},
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a saved model.  It is fitted again from its records, and must come out the same."""
        header, arrays = files.read(path, "SeededKMeans")
        with files.explained(path):
            given = checked(cls._constraints, n_clusters=header["n_clusters"])
            n_clusters: int = given["n_clusters"]
            model = cls(n_clusters, random_state=header["random_state"])
            values, ids = files.matrix(arrays["values"]), arrays["ids"]
            files.restore_features(model, arrays, values.shape[1])
            root = Secret(bytes.fromhex(header["secret"]))
            model._build(values, column_of(ids, len(values), "ids"), n_clusters, root)
            model._random_state = model.random_state
        files.check_digest(path, header["digest"], model._digest())
        return model

    def _digest(self) -> str:
        partition = self._fitted
        digest = Digest("seeded").field("n_clusters", partition.n_seeds)
        digest.array("seeds", partition.centres).array("sizes", partition.sizes)
        return digest.hex()
