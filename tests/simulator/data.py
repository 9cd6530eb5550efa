"""What the clients would like to be counted with, and the model that follows from the sum."""

from __future__ import annotations

from random import Random
from typing import Protocol

import numpy as np

from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.prf import Secret
from fedforget.clustering.server import ServerModel
from fedforget.configuration import Configuration
from fedforget.digests import Digest
from fedforget.runtime.local import LocalFederation


class Model(Protocol):
    """Follows the aggregate."""

    def follow(self, aggregate: Histogram, change: Histogram | None) -> bytes:
        """Digest of the model; ``change`` is None where the whole aggregate is new."""
        ...


class Data(Protocol):
    """The data of every client."""

    levels: tuple[int, ...]

    def enrol(self, name: str) -> int:
        """Give a new client some data; returns the most points that its histogram may have."""
        ...

    def current(self, name: str) -> Histogram: ...

    def change(self, name: str) -> str:
        """Learn or forget something; says which."""
        ...

    def clear(self, name: str) -> None:
        """Forget everything of a client."""
        ...

    def new_model(self) -> Model: ...

    def fresh_digest(self, names: tuple[str, ...]) -> bytes:
        """Digest of a fresh fit on the data of these clients."""
        ...


# -- made-up histograms ------------------------------------------------------------------------


class DrawnData:
    """Histograms at random, over few points, so that clients share some and changes cancel."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        n_features = rng.randint(1, 3)
        # Beyond 60 bits a bin needs words behind its head.
        largest = rng.choice((3, 20, 2**21, 2**30))
        self.levels = tuple(rng.randint(2, largest) for _ in range(n_features))
        self._pool = [
            tuple(rng.randrange(level) for level in self.levels) for _ in range(rng.randint(3, 16))
        ]
        self._counts: dict[str, dict[tuple[int, ...], int]] = {}
        self._capacity: dict[str, int] = {}

    def enrol(self, name: str) -> int:
        capacity = self._capacity.setdefault(name, self._rng.randint(1, 5))
        self._counts[name] = {}
        for _ in range(self._rng.randint(0, 6)):
            self._learn(name)
        return capacity

    def current(self, name: str) -> Histogram:
        counts = self._counts[name]
        points = np.array(list(counts), dtype=np.int64).reshape(len(counts), len(self.levels))
        return Histogram.of(points, np.array(list(counts.values()), dtype=np.int64))

    def change(self, name: str) -> str:
        if self._counts[name] and self._rng.random() < 0.5:
            return self._forget(name)
        return self._learn(name)

    def _learn(self, name: str) -> str:
        counts, point = self._counts[name], self._rng.choice(self._pool)
        if len(counts) >= self._capacity[name] and point not in counts:
            point = self._rng.choice(list(counts))
        counts[point] = counts.get(point, 0) + self._rng.randint(1, 9)
        return "learn"

    def _forget(self, name: str) -> str:
        counts = self._counts[name]
        point = self._rng.choice(list(counts))
        left = self._rng.randint(0, counts[point] - 1)
        if left:
            counts[point] = left
        else:
            del counts[point]
        return "forget"

    def clear(self, name: str) -> None:
        self._counts[name] = {}

    def new_model(self) -> Model:
        return DigestOnly()

    def fresh_digest(self, names: tuple[str, ...]) -> bytes:
        total = Histogram.sum(len(self.levels), map(self.current, names))
        return DigestOnly().follow(total, None)


class DigestOnly:
    """Takes the aggregate itself for the model."""

    def follow(self, aggregate: Histogram, change: Histogram | None) -> bytes:
        digest = Digest("aggregate").array("points", aggregate.points())
        return digest.array("counts", aggregate.counts()).bytes()


# -- real records ------------------------------------------------------------------------------


class RecordData:
    """Real records, clustered at their clients, and the real model at the server."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        n_features = rng.randint(1, 3)
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
        self._records: dict[str, dict[int, tuple[float, ...]]] = {}
        self._next_id = 0

    def enrol(self, name: str) -> int:
        self._records.setdefault(name, {})
        for _ in range(self._rng.randint(1, 4)):
            self._learn(name)
        return self._config.local_clusters_of(name)

    def current(self, name: str) -> Histogram:
        client = self._federation.clients.get(name)
        if client is None:
            return Histogram(len(self.levels))
        return self._config.histogram_of(client.partition)

    def change(self, name: str) -> str:
        records = self._records[name]
        if records and self._rng.random() < 0.5:
            self._forget(name, [self._rng.choice(list(records))])
            return "forget"
        self._learn(name)
        return "learn"

    def _learn(self, name: str) -> None:
        record = tuple(self._rng.random() for _ in self.levels)
        self._next_id += 1
        self._records[name][self._next_id] = record
        _learn_at(self._federation, {name: {self._next_id: record}})

    def _forget(self, name: str, ids: list[int]) -> None:
        self._federation.forget(self._federation.find(np.array(ids)))
        for identifier in ids:
            del self._records[name][identifier]

    def clear(self, name: str) -> None:
        if self._records[name]:
            self._forget(name, list(self._records[name]))

    def new_model(self) -> Model:
        return Replayed(self._config)

    def fresh_digest(self, names: tuple[str, ...]) -> bytes:
        federation = LocalFederation(self._config, self._root)
        _learn_at(federation, {name: self._records[name] for name in names})
        digest = self._config.model_digest(federation.aggregate, federation.model)
        return bytes.fromhex(digest)


def _learn_at(
    federation: LocalFederation, records: dict[str, dict[int, tuple[float, ...]]]
) -> None:
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
        self._server = config.new_server()
        self._model: ServerModel | None = None

    def follow(self, aggregate: Histogram, change: Histogram | None) -> bytes:
        if self._model is None or change is None:
            self._model = self._server.run(aggregate)
        elif len(change):
            self._model = self._server.update(aggregate, change)
        return bytes.fromhex(self._config.model_digest(aggregate, self._model))
