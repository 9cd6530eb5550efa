"""Which cluster is which: numbers that stay from one model to the next.

A model has no history, so its clusters come in the order in which seeds were drawn, and removing
one record may change that order.  Whoever follows clusters over time numbers them like an earlier
model: each cluster takes the number of the earlier centre that it is matched with.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.distance import pairwise


class Numbering(NamedTuple):
    """The numbers of clusters, after those of an earlier model.

    Attributes
    ----------
    numbers : of each cluster of the present model, in the model's order.
    moved : how far each lies from the earlier centre of its number, in the clustered space; None
        for a cluster that is new.
    gone : numbers of the earlier model that no cluster has now.
    """

    numbers: Ints
    moved: tuple[float | None, ...]
    gone: tuple[int, ...]


def number_like(earlier: Floats, known: Ints, centres: Floats) -> Numbering:
    """Number centres like earlier ones.

    As many as possible are matched, one to one, with the least sum of squared distances.  Clusters
    that are left over are new: they get the numbers after the highest known one, in the model's
    order.  Where there are fewer clusters than before, numbers are left over.

    Parameters
    ----------
    earlier, known : the earlier centres, in the clustered space, and their numbers.
    centres : the present ones.

    Examples
    --------
    >>> number_like(np.array([[0.0], [1.0]]), np.arange(2), np.array([[1.25], [9.0], [0.0]]))
    Numbering(numbers=array([1, 2, 0]), moved=(0.25, None, 0.0), gone=())
    """
    from scipy.optimize import linear_sum_assignment

    distances = pairwise(np.ascontiguousarray(centres), np.ascontiguousarray(earlier))
    rows, columns = linear_sum_assignment(distances)
    numbers = np.full(len(centres), -1, dtype=np.int64)
    numbers[rows] = known[columns]
    moved: list[float | None] = [None] * len(centres)
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        moved[row] = math.sqrt(distances[row, column])
    new = np.flatnonzero(numbers < 0)
    numbers[new] = int(known.max(initial=-1)) + 1 + np.arange(len(new))
    gone = tuple(sorted(set(known.tolist()) - set(numbers.tolist())))
    return Numbering(numbers, tuple(moved), gone)
