"""What it costs to forget: requests of several kinds, served by every method in turn.

Times are those of a federation whose clients work side by side: the client that has to do with the
request, then the server.  Estimators are timed from the call to the return; DC-KM by its own clock,
leaf plus root; complete retraining by the slowest client plus the server.  The methods take turns
within one run, ten requests at a time, so that a noisy spell of the machine hits all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.baselines.dckmeans import DCKMeans
from fedforget.baselines.retraining import complete_retraining, paper_configuration
from fedforget.bench import methods
from fedforget.bench.cells import Value
from fedforget.bench.datasets import Dataset
from fedforget.bench.timing import timed
from fedforget.clustering.distance import nearest

BLOCK = 10
"""Requests that a method serves before the next one has its turn."""

CHECKPOINTS = 5
"""How many times, over the requests, the loss is compared with a centralised clustering's."""


class Contender(Protocol):
    """A method that can forget."""

    def remove(self, ids: Sequence[int]) -> tuple[float, bool]:
        """Forget records; returns the seconds, and whether seeds had to be drawn again."""
        ...

    def costliest(self) -> int:
        """The record that contributes most to the current objective."""
        ...

    def loss(self) -> float:
        """The induced loss of the records now held."""
        ...

    def held(self) -> Ints:
        """The ids of the records now held."""
        ...


class EstimatorContender:
    """MUFC or ours."""

    def __init__(self, model: Any, data: Dataset) -> None:
        self._data = data
        self.model = model.fit(data.X, clients=data.clients)

    def remove(self, ids: Sequence[int]) -> tuple[float, bool]:
        report, seconds = timed(lambda: self.model.forget(np.asarray(ids)))
        return seconds, bool(report.reseeded)

    def costliest(self) -> int:
        ids, centres = self.model.ids_, self.model.cluster_centers_
        return _costliest(self._data.X, ids, centres, self.model.induced_labels_)

    def loss(self) -> float:
        return float(self.model.induced_inertia_)

    def held(self) -> Ints:
        ids: Ints = self.model.ids_
        return ids


class TreeContender:
    """DC-KM."""

    def __init__(self, tree: DCKMeans, data: Dataset) -> None:
        self._data = data
        self.tree = tree.fit(data.X, data.clients)

    def remove(self, ids: Sequence[int]) -> tuple[float, bool]:
        self.tree.forget(ids)
        return self.tree.seconds.total, True

    def costliest(self) -> int:
        outcome = self.tree.outcome()
        return _costliest(self._data.X, self.tree.ids, outcome.centres, outcome.labels)

    def loss(self) -> float:
        values = self._data.X[self.tree.ids]
        return methods.losses_of_outcome(values, self.tree.outcome())["induced"]

    def held(self) -> Ints:
        return self.tree.ids


CONTENDERS: dict[str, Callable[[Dataset, int], Contender]] = {
    "MUFC": lambda data, seed: EstimatorContender(methods.mufc(data, seed), data),
    "ours, K": lambda data, seed: EstimatorContender(methods.ours(data, seed), data),
    "ours, 2K": lambda data, seed: EstimatorContender(methods.ours(data, seed, multiple=2), data),
    "ours, lloyd K": lambda data, seed: EstimatorContender(
        methods.ours(data, seed, representatives="lloyd"), data
    ),
    "DC-KM": lambda data, seed: TreeContender(methods.dc_km(data, seed), data),
}


def removals(
    data: Dataset,
    trial: int,
    *,
    kind: str,
    requests: int,
    retrainings: int,
    centres: Floats,
    names: Sequence[str] = tuple(CONTENDERS),
) -> Value:
    """Serve requests with every method.

    Parameters
    ----------
    data, trial : the records, and the seed of methods and requests.
    kind : ``"random"`` (a client drawn uniformly, then one of its records), ``"adversarial"`` (the
        record that contributes most to the method's objective, chosen anew each time), or a number
        of records, all of one random client, in each request.
    requests : how many.
    retrainings : how often complete retraining is timed.
    centres : of the centralised clustering, from which a reference for fewer records starts.
    names : the methods, keys of :data:`CONTENDERS`.
    """
    contenders = {name: CONTENDERS[name](data, trial) for name in names}
    rng = np.random.default_rng([trial, 1])
    pool = Pool(data, rng)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    reseeded: dict[str, list[bool]] = {name: [] for name in names}
    ratios: dict[str, list[float]] = {name: [] for name in names}
    again: list[float] = []
    checked = _spaced(requests, CHECKPOINTS)
    retrained = _spaced(requests, retrainings)
    size = int(kind) if kind.isdigit() else 1
    drawn = [pool.draw(size) for _ in range(0 if kind == "adversarial" else requests)]
    _compare(data, contenders, centres, ratios)
    begin = 0
    for end in sorted({*range(BLOCK, requests, BLOCK), *checked, *retrained, requests}):
        for name, contender in contenders.items():
            for turn in range(begin, end):
                ids = drawn[turn] if drawn else [contender.costliest()]
                elapsed, redrawn = contender.remove(ids)
                seconds[name].append(elapsed)
                reseeded[name].append(redrawn)
        if end in retrained:
            again.append(retraining_seconds(data, trial + end))
        if end in checked:
            _compare(data, contenders, centres, ratios)
        begin = end
    return {
        "seconds": seconds,
        "reseeded": reseeded,
        "retraining": again,
        "checked": [0, *sorted(checked)],
        "ratios": ratios,
    }


def client_removals(data: Dataset, trial: int, *, requests: int) -> Value:
    """Whole clients leave, one per request; only the server has anything to compute."""
    order = np.random.default_rng([trial, 2]).permutation(data.n_clients)[:requests].tolist()
    seconds: dict[str, list[float]] = {}
    for name in ("MUFC", "ours, 2K", "ours, lloyd K"):
        contender = CONTENDERS[name](data, trial)
        assert isinstance(contender, EstimatorContender)
        leave = contender.model.forget_clients
        seconds[name] = [timed(partial(leave, [client]))[1] for client in order]
    tree = methods.dc_km(data, trial).fit(data.X, data.clients)
    seconds["DC-KM"] = []
    for client in order:
        tree.forget(tree.leaves[client].ids)
        seconds["DC-KM"].append(tree.seconds.total)
    return {"seconds": seconds, "retraining": [retraining_seconds(data, trial)]}


def secure_sum(data: Dataset, trial: int, *, requests: int) -> Value:
    """What the sum of one removal costs, in the clear, through the code, and under masks.

    ``seconds`` is the time of the sum at all parties together, in one process; ``bytes`` is the
    most that a client sends in the round.  ``lloyd`` is ``secure`` with K-means at the clients.
    """
    found: Value = {}
    order = np.random.default_rng([trial, 3]).permutation(len(data.X))[:requests].tolist()
    for name in ("plain", "scma", "secure", "lloyd"):
        aggregation = "secure" if name == "lloyd" else name
        representatives = "lloyd" if name == "lloyd" else "means"
        model = methods.ours(data, trial, aggregation=aggregation, representatives=representatives)
        model.fit(data.X, clients=data.clients)
        reports = [model.forget(int(one)) for one in order]
        sent = [
            max(size for party, size in one.traffic.sent.items() if party != "server")
            for one in reports
            if one.traffic is not None
        ]
        found[name] = {
            "seconds": [one.seconds["sum"] for one in reports],
            "bytes": sent,
        }
    return found


class Pool:
    """Records that random requests are drawn from: a client first, then its records."""

    def __init__(self, data: Dataset, rng: np.random.Generator) -> None:
        self._rng = rng
        self._left = [
            rng.permutation(np.flatnonzero(data.clients == client)).tolist()
            for client in range(data.n_clients)
        ]

    def draw(self, n_records: int) -> list[int]:
        """Records of one client that still has as many, and as many more where any client has."""
        for least in (2 * n_records, n_records, 1):
            able = [client for client, rows in enumerate(self._left) if len(rows) >= least]
            if able:
                rows = self._left[able[int(self._rng.integers(len(able)))]]
                return [rows.pop() for _ in range(min(n_records, len(rows)))]
        raise ValueError("there are no records left to draw from")


def _costliest(values: Floats, ids: Ints, centres: Floats, labels: Any) -> int:
    d2 = np.empty(len(ids))
    for k in np.unique(labels):
        members = labels == k
        d2[members] = nearest(values[ids[members]], centres[k : k + 1])[1]
    return int(ids[d2.argmax()])


def retraining_seconds(data: Dataset, seed: int) -> float:
    """What one removal costs without unlearning: complete retraining, with scikit-learn."""
    grid = paper_configuration(data.n_clusters, *data.X.shape).grid
    again = complete_retraining(
        data.X, data.clients, data.n_clusters, grid, n_init=methods.N_INIT, seed=seed
    )
    return again.seconds.total


def _compare(
    data: Dataset,
    contenders: dict[str, Contender],
    centres: Floats,
    ratios: dict[str, list[float]],
) -> None:
    """Note each method's loss over that of a centralised clustering of the same records."""
    known: dict[bytes, float] = {}
    for name, contender in contenders.items():
        held = np.sort(contender.held())
        key = held.tobytes()
        if key not in known:
            known[key] = methods.refined_loss(data.X[held], centres)
        ratios[name].append(contender.loss() / known[key])


def _spaced(last: int, count: int) -> set[int]:
    """``count`` numbers from 1 to ``last``, evenly spaced, the last one included."""
    return {max(1, round(last * (one + 1) / count)) for one in range(min(count, last))}
