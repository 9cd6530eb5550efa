"""Several numbers of clusters on what is fitted already, for notebooks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedforget.arrays import Floats, Ints
from fedforget.clustering.choosing import ChoiceRow, Choices, Suggestion


@dataclass(frozen=True, eq=False)
class PathModel:
    """The model with one number of clusters.

    Attributes
    ----------
    n_clusters : the number asked for.
    cluster_centers : in the units of X; fewer than asked for where there are fewer distinct points.
    cluster_sizes : records of each cluster, as they are counted; None where some are fewer than may
        be shown.
    loss : sum of squared distances, in the space that was clustered.
    n_iter : iterations of the best restart.
    digest : that of the model with this number of clusters.
    """

    n_clusters: int
    cluster_centers: Floats
    cluster_sizes: Ints | None
    loss: float
    n_iter: int
    digest: str


@dataclass(frozen=True, eq=False)
class ClusterPath:
    """What several numbers of clusters give, one row per number.

    Attributes
    ----------
    rows : one :class:`~fedforget.clustering.choosing.ChoiceRow` per number, the smallest first.
    suggested : a number, or None, and the reason; the fitted model does not change.
    """

    choices: Choices
    models: Mapping[int, PathModel]

    @property
    def rows(self) -> tuple[ChoiceRow, ...]:
        return self.choices.rows

    @property
    def suggested(self) -> Suggestion:
        return self.choices.suggested

    def model(self, n_clusters: int) -> PathModel:
        """The model with one of the numbers."""
        if n_clusters not in self.models:
            known = ", ".join(map(str, self.models))
            raise ValueError(f"{n_clusters} is not among the numbers of this path: {known}")
        return self.models[n_clusters]

    def __repr__(self) -> str:
        return str(self.choices)


def numbers_of(numbers: Any, most: int | None = None) -> list[int]:
    """The numbers of clusters that a path was asked for, checked and sorted."""
    found: list[int] = []
    given: Iterable[Any] = numbers if isinstance(numbers, Iterable) else [numbers]
    for one in given:
        try:
            number = operator.index(one)
        except TypeError:
            raise ValueError(f"numbers of clusters must be integers, got {one!r}") from None
        if number < 1 or (most is not None and number > most):
            limit = "" if most is None else f" and at most {most}, the number of records"
            raise ValueError(f"numbers of clusters must be at least 1{limit}; got {number}")
        found.append(number)
    if not found:
        raise ValueError("no number of clusters was given; say, for example, range(2, 13)")
    return sorted(set(found))


def path_with(choices: Choices, model_with: Callable[[int], PathModel]) -> ClusterPath:
    """A path whose models are made from its rows."""
    return ClusterPath(
        choices, {row.n_clusters: model_with(row.n_clusters) for row in choices.rows}
    )
