"""What the estimators share: checking rows, predicting, transforming, scoring."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from fedforget.arrays import Floats, Labels
from fedforget.clustering.distance import MAX_MAGNITUDE, nearest, pairwise
from fedforget.errors import CutOffError
from fedforget.estimators.parameters import check_finite
from fedforget.report import Report


class CentreEstimator(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """A clustering by centres; rows belong to the nearest one, ties to the earlier."""

    n_features_in_: int
    _torn = False

    def _centres(self) -> Floats:
        """The centres, in the space that was clustered."""
        raise NotImplementedError

    def _to_clustered(self, X: Floats) -> Floats:
        """Take rows from the caller's units to that space."""
        return X

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        """Undo what scikit-learn's validation sets early, if anything goes wrong later."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _unchecked_rows(self, X: npt.ArrayLike, *, reset: bool) -> Floats:
        """X as a float64 matrix with the right features.  NaN and infinities are still in it."""
        if type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size and reset:
            # Nothing to convert, and a plain array has no feature names: a short cut that matters
            # where a fit takes less than a millisecond.
            self.n_features_in_ = X.shape[1]
            self.__dict__.pop("feature_names_in_", None)
            return np.ascontiguousarray(X)
        rows = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
        return _numbers(rows)

    def _check_fitted(self) -> None:
        """As scikit-learn's check, which takes a tenth of a removal even when all is well."""
        if "n_features_in_" not in self.__dict__:
            check_is_fitted(self)
        if self._torn:
            raise CutOffError(
                "a change of this model was cut off, so it is neither the old one nor the new one;"
                " fit it again, or load it from a file"
            )

    def _change(self, change: Callable[[], Report]) -> Report:
        """Carry a change out.  A model whose change is cut off refuses all further use."""
        self._torn = True
        report = change()
        self._torn = False
        return report

    def _rows(self, X: npt.ArrayLike) -> Floats:
        self._check_fitted()
        rows = self._unchecked_rows(X, reset=False)
        check_finite(rows)
        return np.ascontiguousarray(self._to_clustered(rows))

    def _filled_centres(self) -> Floats:
        """The centres; there must be some."""
        centres = self._centres()
        if not len(centres):
            raise ValueError(
                "the model has no centres, because every record has been forgotten or none is"
                " reported; learn new records or fit again"
            )
        return centres

    def _nearest(self, X: npt.ArrayLike) -> tuple[Labels, Floats]:
        rows, centres = self._rows(X), self._filled_centres()
        if np.abs(rows).max(initial=0.0) <= MAX_MAGNITUDE:
            return nearest(rows, centres)
        # Squares of such values overflow.  The nearest centre is the same at any common scale.
        scale = 1.0 / float(np.abs(rows).max())
        labels, d2 = nearest(rows * scale, centres * scale)
        with np.errstate(over="ignore"):
            return labels, d2 / scale / scale

    def predict(self, X: npt.ArrayLike) -> Labels:
        """The nearest centre of each row of X."""
        return self._nearest(X)[0]

    def transform(self, X: npt.ArrayLike) -> Floats:
        """The distance of each row of X to every centre, in the space that was clustered."""
        distances: Floats = np.sqrt(pairwise(self._rows(X), self._centres()))
        return distances

    def score(self, X: npt.ArrayLike, y: Any = None) -> float:
        """Minus the sum of squared distances to the nearest centre."""
        return -math.fsum(self._nearest(X)[1])

    @property
    def _n_features_out(self) -> int:
        return len(self._centres())


def warn_of_few(found: int, n_clusters: int) -> None:
    """Warn, at the caller of ``fit``, that fewer seeds were drawn than asked for."""
    warnings.warn(
        f"only {found} of n_clusters={n_clusters} seeds could be drawn: every row of X equals one"
        " of them, or differs from it by so little that rounding removes the difference",
        ConvergenceWarning,
        stacklevel=3,
    )


def _numbers(rows: npt.NDArray[Any]) -> Floats:
    """Rows as float64, C-contiguous.  Text that looks like numbers is refused: it may be codes."""
    if rows.dtype.kind == "O":
        text = next((item for item in rows.flat if isinstance(item, (str, bytes))), None)
        if text is not None:
            raise ValueError(f"X holds {text!r}, which is text; convert it to numbers first")
    elif rows.dtype.kind not in "biuf":
        raise ValueError(f"X must hold numbers, not {rows.dtype}; convert it first")
    return np.ascontiguousarray(rows, dtype=np.float64)
