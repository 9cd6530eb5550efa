"""What the estimators for one data owner share: ids, and the two verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints
from fedforget.clustering.ids import IdIndex, Ids, keys_of_ids
from fedforget.clustering.prf import Keys, Secret
from fedforget.estimators.base import CentreEstimator
from fedforget.estimators.parameters import (
    check_same_kind,
    check_values,
    column_of,
    ids_to_learn,
    locate,
    refuse_held,
)
from fedforget.record_checks import check_distinct
from fedforget.report import Report, Stopwatch, Verb


class OwnerEstimator(CentreEstimator):
    """An estimator for one data owner.

    A record has a *handle*, the number by which the subclass finds it again.
    """

    _root: Secret
    _secret: Secret
    _index: IdIndex
    _next_arrival: int

    def _ids_of_fit(self, ids: Any, n: int, n_clusters: int) -> Ids:
        """The ids of the records of a fit."""
        if n_clusters > n:
            raise ValueError(f"n_samples={n} should be at least n_clusters={n_clusters}")
        return np.arange(n) if ids is None else column_of(ids, n, "ids")

    def _begin(self, ids: Ids, root: Secret) -> Keys:
        """Take over ids and a secret; the handles of the records are their positions."""
        secret = root.derive("owner")
        keys = keys_of_ids(secret, ids)
        index = IdIndex()
        if not index.put(keys, np.arange(len(ids))).all():
            check_distinct(ids)
        self._root, self._secret, self._index = root, secret, index
        self._next_arrival = len(ids)
        self._torn = False
        return keys

    # -- what a subclass says and does -----------------------------------------------------------

    def _some_ids(self) -> Ids:
        """An array of the ids' type, which is empty if there are no records."""
        raise NotImplementedError

    def _check_room(self, held: int, new: int) -> None:
        """Refuse more records than a model can hold; here there is no such limit."""

    def _take_out(self, found: Ints) -> tuple[Ints, Keys]:
        """Erase records; returns the handles that others have now, and the keys of these."""
        raise NotImplementedError

    def _take_in(self, rows: Floats, ids: Ids, arrival: Ints, keys: Keys) -> Ints:
        """Add records, whose rows may be the caller's own; returns their handles."""
        raise NotImplementedError

    def _report(self, verb: Verb, watch: Stopwatch, removed: int, added: int) -> Report:
        """What the last change did."""
        raise NotImplementedError

    # -- the verbs -----------------------------------------------------------------------------

    def forget(self, ids: Any) -> Report:
        """Erase records.

        Parameters
        ----------
        ids : an id, or an array-like of them
            All of them must be held; otherwise nothing changes.

        Returns
        -------
        Report
        """
        self._check_fitted()
        watch, index, secret = Stopwatch(), self._index, self._secret
        look_up: Callable[[Ids], Any] = lambda wanted: index.look_up(keys_of_ids(secret, wanted))  # noqa: E731
        found = locate(ids, self._some_ids(), look_up)

        def change() -> Report:
            index.drop(found.keys)
            moved, keys = self._take_out(found.handles)
            index.put(keys, moved)
            return self._report("forget", watch, len(found.handles), 0)

        return self._change(change)

    def learn(self, X: npt.ArrayLike, *, ids: Any = None) -> Report:
        """Add records.

        Parameters
        ----------
        X : array-like of shape (n_new, n_features)
        ids : array-like of int or str
            Their ids, which must be given; none may be held already.

        Returns
        -------
        Report
        """
        self._check_fitted()
        watch, index = Stopwatch(), self._index
        rows = self._unchecked_rows(X, reset=False)
        self._check_room(len(index), len(rows))
        check_values(rows)
        new = ids_to_learn(ids, len(rows), self)
        check_same_kind(new, self._some_ids(), "ids")
        check_distinct(new)
        keys = refuse_held(new, index.look_up(keys_of_ids(self._secret, new))).keys
        arrival = np.arange(self._next_arrival, self._next_arrival + len(new))
        self._next_arrival += len(new)

        def change() -> Report:
            index.put(keys, self._take_in(rows, new, arrival, keys))
            return self._report("learn", watch, 0, len(new))

        return self._change(change)
