"""What the estimators share: checking rows, predicting, transforming, scoring."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

from fedforget.clustering.distance import MAX_MAGNITUDE, Floats, Labels, nearest, pairwise


class CentreEstimator(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """A clustering by centres; rows belong to the nearest one, ties to the earlier."""

    n_features_in_: int

    def _centres(self) -> Floats:
        """The centres, in the space that was clustered."""
        raise NotImplementedError

    def _to_clustered(self, X: Floats) -> Floats:
        """Take rows from the caller's units to that space."""
        return X

    def _unchecked_rows(self, X: npt.ArrayLike, *, reset: bool) -> Floats:
        """X as a float64 matrix with the right features.  NaN and infinities are still in it."""
        rows: Floats = validate_data(
            self, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite=False
        )
        return rows

    def _rows(self, X: npt.ArrayLike) -> Floats:
        check_is_fitted(self)
        checked = validate_data(self, X, reset=False, dtype=np.float64, order="C")
        return np.ascontiguousarray(self._to_clustered(checked))

    def _nearest(self, X: npt.ArrayLike) -> tuple[Labels, Floats]:
        rows, centres = self._rows(X), self._centres()
        if not len(centres):
            raise ValueError(
                "the model has no centres, because every record has been forgotten;"
                " learn new records or fit again"
            )
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
