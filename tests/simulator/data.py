"""The records of every client, the histograms that follow from them, and the model of the sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

import numpy as np

from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import ServerModel
from fedforget.clustering.prf import Secret
from fedforget.configuration import Configuration
from fedforget.digests import Digest
from fedforget.modelling import new_server
from fedforget.runtime.local import LocalFederation

Records = Mapping[int, Any]
"""A client's records by their ids."""


class Model(Protocol):
    """Follows the aggregate."""

    def follow(self, aggregate: Histogram, change: Histogram | None) -> bytes:
        """Digest of the model; ``change`` is None where the whole aggregate is new."""
        ...


class Data(ABC):
    """The data of every client, record by record.

    Attributes
    ----------
    levels : the grid's bins along each feature.
    forgotten : ids that each client has erased and not imported again, as its operator knows them.
    requests : the number of the request that erased each of these ids.
    has_other_bins : whether an amendment may let clients report in other bins.
    """

    levels: tuple[int, ...]
    has_other_bins = False

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.forgotten: dict[str, dict[int, Any]] = {}
        self.requests: dict[str, dict[int, int]] = defaultdict(dict)
        self._n_requests = 0
        self._records: dict[str, dict[int, Any]] = {}
        self._next_id = 0

    @abstractmethod
    def current(self, name: str, report: bytes = b"") -> Histogram:
        """What a client reports now; ``report`` says in which bins."""

    @abstractmethod
    def enrol(self, name: str) -> int:
        """Give a new client some data; returns the most points that its histogram may have."""

    @abstractmethod
    def new_model(self) -> Model: ...

    @abstractmethod
    def fresh_digest(self, names: tuple[str, ...], report: bytes = b"") -> bytes:
        """Digest of a fresh fit on the data of these clients."""

    @abstractmethod
    def _drawn(self, name: str) -> Any:
        """A new record."""

    def _added(self, name: str, records: Records) -> None:
        """Some records are new."""
        return

    def _removed(self, name: str, ids: list[int]) -> None:
        """Some records are gone."""
        return

    def records(self, name: str) -> frozenset[int]:
        return frozenset(self._records[name])

    def change(self, name: str) -> str:
        """Learn something, forget something, or import something erased again; says which."""
        roll = self.rng.random()
        if self._records[name] and roll < 0.5:
            self.forget(name, [self.rng.choice(list(self._records[name]))])
            return "forget"
        erased = [one for one in self.forgotten[name] if one not in self._records[name]]
        if erased and roll > 0.95:
            again = self.rng.choice(erased)
            del self.requests[name][again]
            self._add(name, {again: self.forgotten[name].pop(again)})
            return "imported again"
        self.learn(name)
        return "learn"

    def learn(self, name: str) -> None:
        self._next_id += 1
        self._add(name, {self._next_id: self._drawn(name)})

    def forget(self, name: str, ids: list[int]) -> None:
        self._n_requests += 1
        for one in ids:
            self.forgotten[name][one] = self._records[name].pop(one)
            # What is erased again after a restore was asked for once.
            self.requests[name].setdefault(one, self._n_requests)
        self._removed(name, ids)

    def _add(self, name: str, records: Records) -> None:
        self._records[name].update(records)
        if records:
            self._added(name, records)

    # -- backups -------------------------------------------------------------------------------

    def snapshot(self, name: str) -> Records:
        return dict(self._records[name])

    def restore(self, name: str, snapshot: Records) -> None:
        """Take a client's records back to an earlier moment."""
        now = self._records[name]
        gone = [one for one in now if one not in snapshot]
        for one in gone:
            del now[one]
        if gone:
            self._removed(name, gone)
        self._add(name, {one: value for one, value in snapshot.items() if one not in now})

    def reapply(self, name: str) -> None:
        """Erase again what was erased since the backup."""
        again = [one for one in self._records[name] if one in self.forgotten[name]]
        if again:
            self.forget(name, again)


# -- made-up histograms ------------------------------------------------------------------------


class DrawnData(Data):
    """Records at few points, so that clients share some and changes cancel."""

    has_other_bins = True

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        n_features = rng.randint(1, 2)
        # Beyond 60 bits a bin needs words behind its head.
        largest = rng.choice((3, 20, 2**21, 2**31))
        self.levels = tuple(rng.randint(2, largest) for _ in range(n_features))
        self._pool = [
            tuple(rng.randrange(level) for level in self.levels) for _ in range(rng.randint(3, 9))
        ]
        self._capacity: dict[str, int] = {}

    def enrol(self, name: str) -> int:
        self._records[name], self.forgotten[name] = {}, {}
        self._capacity[name] = self.rng.randint(1, 3)
        for _ in range(self.rng.randint(0, 4)):
            self.learn(name)
        return self._capacity[name]

    def _drawn(self, name: str) -> Any:
        used = {point for point, _ in self._records[name].values()}
        used |= {point for point, _ in self.forgotten[name].values()}
        full = len(used) >= self._capacity[name]
        point = self.rng.choice(sorted(used) if full else self._pool)
        return point, self.rng.randint(1, 9)

    def current(self, name: str, report: bytes = b"") -> Histogram:
        # Other bins are the same ones, all of them moved by one or more.
        moved = len(report)
        counts: Counter[tuple[int, ...]] = Counter()
        for point, count in self._records[name].values():
            pairs = zip(point, self.levels, strict=True)
            counts[tuple((at + moved) % level for at, level in pairs)] += count
        points = np.array(list(counts), dtype=np.int64).reshape(len(counts), len(self.levels))
        return Histogram.of(points, np.array(list(counts.values()), dtype=np.int64))

    def new_model(self) -> Model:
        return DigestOnly()

    def fresh_digest(self, names: tuple[str, ...], report: bytes = b"") -> bytes:
        each = (self.current(name, report) for name in names)
        total = Histogram.sum(len(self.levels), each)
        return DigestOnly().follow(total, None)


class DigestOnly:
    """Takes the aggregate itself for the model."""

    def follow(self, aggregate: Histogram, change: Histogram | None) -> bytes:
        digest = Digest("aggregate").array("points", aggregate.points())
        return digest.array("counts", aggregate.counts()).bytes()


# -- real records ------------------------------------------------------------------------------


class RecordData(Data):
    """Real records, clustered at their clients, and the real model at the server."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        n_features = rng.randint(1, 2)
        self._config = Configuration(
            n_clusters=rng.randint(1, 3),
            local_clusters=rng.randint(1, 3),
            grid=Grid(np.array([[0.0, 1.0]] * n_features), rng.choice((0.3, 0.01))),
            representatives=rng.choice(("means", "seeds")),
            lattice="grid",
            server_points=rng.choice(("weighted", "uniform")),
            mode="exact",
            n_init=rng.randint(1, 2),
            max_iter=4,
            tol=0.0,
            public_seed=Secret(rng.randbytes(16)),
        )
        self._root = Secret(rng.randbytes(16))
        self._federation = LocalFederation(self._config, self._root)
        self.levels = tuple(self._config.grid.levels.tolist())

    def enrol(self, name: str) -> int:
        self._records[name], self.forgotten[name] = {}, {}
        for _ in range(self.rng.randint(1, 3)):
            self.learn(name)
        return self._config.local_clusters_of(name)

    def _drawn(self, name: str) -> Any:
        return tuple(self.rng.random() for _ in self.levels)

    def current(self, name: str, report: bytes = b"") -> Histogram:
        client = self._federation.clients.get(name)
        if client is None:
            return Histogram(len(self.levels))
        return self._config.histogram_of(client.owner.clusters)

    def _added(self, name: str, records: Records) -> None:
        _learn_at(self._federation, {name: records})

    def _removed(self, name: str, ids: list[int]) -> None:
        self._federation.forget(self._federation.find(np.array(ids)))

    def new_model(self) -> Model:
        return Replayed(self._config)

    def fresh_digest(self, names: tuple[str, ...], report: bytes = b"") -> bytes:
        federation = LocalFederation(self._config, self._root)
        _learn_at(federation, {name: self._records[name] for name in names})
        digest = self._config.model_digest(federation.aggregate, federation.model)
        return bytes.fromhex(digest)


def _learn_at(federation: LocalFederation, records: Mapping[str, Records]) -> None:
    rows = [
        (name, identifier, record)
        for name, held in records.items()
        for identifier, record in held.items()
    ]
    if rows:
        names, ids, values = zip(*rows, strict=True)
        federation.learn(
            np.array(values), np.array(ids), np.array(names), federation.config.grid.to_clustered
        )


class Replayed:
    """The server's model, which follows a change by replay as long as the process lives."""

    def __init__(self, config: Configuration) -> None:
        self._config = config
        self._server = new_server(config)
        self._model: ServerModel | None = None

    def follow(self, aggregate: Histogram, change: Histogram | None) -> bytes:
        if self._model is None or change is None:
            self._model = self._server.run(aggregate)
        elif len(change):
            self._model = self._server.update(aggregate, change)
        return bytes.fromhex(self._config.model_digest(aggregate, self._model))
