"""What every federated baseline takes and gives, and how it is judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.grid import SMALLEST_STEP
from fedforget.clustering.ids import kind_of, parse_ids
from fedforget.clustering.losses import induced_loss, loss_ratio, nearest_loss
from fedforget.constraints import K_MEANS, Constraint, Count, OrNone, RealNumber
from fedforget.record_checks import check_distinct, check_magnitude, ids_of_rows

T = TypeVar("T")

CONSTRAINTS: Mapping[str, Constraint] = {
    **K_MEANS,
    "local_clusters": OrNone(Count()),
    "local_init": Count(),
    "epsilon": RealNumber(SMALLEST_STEP, 1.0),
    "balance": RealNumber(0.0, 1.0, above=True),
    "first_device": OrNone(Count(least=0)),
    "max_rounds": Count(),
    "seed": Count(least=0),
}
"""What the baselines take."""


@dataclass(frozen=True)
class Seconds:
    """How long a federated method takes when its clients work side by side.

    Attributes
    ----------
    slowest_client : the time of the client that took the longest.
    server : the time of the server.
    """

    slowest_client: float
    server: float

    @property
    def total(self) -> float:
        """The server has to wait for the slowest client."""
        return self.slowest_client + self.server


@dataclass(frozen=True, eq=False)
class FederatedClustering:
    """The outcome of a federated method.

    Attributes
    ----------
    centres : (k, d) the server's centres.
    labels : the server's cluster of each record, through its local cluster (the paper's
        Definition 3.1).
    local_labels : each record's cluster at its own client.
    seconds : what it took.
    """

    centres: Floats
    labels: Labels
    local_labels: Labels
    seconds: Seconds


@dataclass(frozen=True)
class LossRatios:
    """Losses over the loss of centralised K-means++.

    Attributes
    ----------
    induced : every record goes where its local cluster goes; the ratio that the paper reports.
    nearest : every record goes to the nearest of the server's centres.
    """

    induced: float
    nearest: float


def loss_ratios(values: Floats, outcome: FederatedClustering, reference: float) -> LossRatios:
    """Judge the clustering of ``values`` against the loss of a centralised one."""
    induced = induced_loss(values, outcome.labels, outcome.centres)
    nearest = nearest_loss(values, outcome.centres)
    return LossRatios(loss_ratio(induced, reference), loss_ratio(nearest, reference))


def check_ids(ids: Any) -> Ints:
    """Integer ids, as they are: neither a mask, nor text, nor numbers that would be cut off."""
    array = parse_ids(ids)
    if array.dtype.kind != "i":
        raise TypeError(f"ids must be integers, not {kind_of(array)}")
    return array


def check_fresh_ids(ids: Any, n: int) -> Ints:
    """The distinct ids of ``n`` records; 0, 1, … where not given."""
    if ids is None:
        return np.arange(n)
    array = check_ids(ids_of_rows(ids, n, "ids", "values"))
    check_distinct(array)
    return array


def check_values(values: Any) -> Floats:
    """Records as a C-contiguous (n, d) array of float64 with at least one row, all in range."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(
            f"values must have two dimensions (records, features), got shape {array.shape}"
        )
    if not len(array):
        raise ValueError("values has no records")
    if not np.isfinite(array).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"row {row}, column {column}: {array[row, column]} is not finite")
    check_magnitude(array, "values")
    return array


def check_clients(clients: Any, n: int) -> Ints:
    """The client of each of ``n`` records, as non-negative integers."""
    array = np.asarray(clients)
    if array.shape != (n,):
        raise ValueError(f"clients must have one entry per record ({n}), got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"clients must be integers, not {array.dtype}")
    if array.min(initial=0) < 0:
        raise ValueError(f"clients must not be negative (record {int(array.argmin())})")
    return array.astype(np.int64)


def rows_of_clients(clients: Ints) -> dict[int, Ints]:
    """The rows of each client that has any, by ascending client; rows keep their order.

    >>> rows_of_clients(np.array([4, 0, 4]))
    {0: array([1]), 4: array([0, 2])}
    """
    order = np.argsort(clients, kind="stable")
    names, first = np.unique(clients[order], return_index=True)
    return dict(zip(names.tolist(), np.split(order, first[1:]), strict=True))


def generator(seed: int, *name: int) -> np.random.Generator:
    """A generator of its own for one party, whatever the other parties draw."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=name))


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of a call and the seconds that it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def ask_clients(
    rows: Mapping[int, Ints], prepare: Callable[[int, Ints], Callable[[], T]]
) -> tuple[list[T], float]:
    """What every client finds, and the seconds of the slowest.

    ``prepare`` takes a client and its rows, and gives the work that is timed.  All work runs on one
    thread, so that every client is timed as if it had a machine to itself.
    """
    found, slowest = [], 0.0
    with threadpool_limits(limits=1):
        for name, own in rows.items():
            result, elapsed = timed(prepare(name, own))
            found.append(result)
            slowest = max(slowest, elapsed)
    return found, slowest


def outcome_of(
    centres: Floats,
    rows: Mapping[int, Ints],
    local_labels: list[Labels],
    server_labels: list[Labels],
    seconds: Seconds,
) -> FederatedClustering:
    """Every record goes where its local cluster goes.

    ``server_labels`` holds, client after client, the server's cluster of each local cluster.
    """
    induced = [server[local] for server, local in zip(server_labels, local_labels, strict=True)]
    return FederatedClustering(
        centres, _spread(rows, induced), _spread(rows, local_labels), seconds
    )


def _spread(rows: Mapping[int, Ints], parts: list[Labels]) -> Labels:
    """Labels of each client's rows as one column in the order of the records."""
    column = np.empty(sum(map(len, rows.values())), dtype=np.int32)
    for own, part in zip(rows.values(), parts, strict=True):
        column[own] = part
    return column
