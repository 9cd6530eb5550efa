"""A whole federation in one process: every client's records, and the server's model of their sum.

The clients are simulated, but each one keeps its own records, secret and clusters, and the server
sees nothing but the sum of their histograms.  Nothing here checks its input; the estimators do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt

from fedforget.clustering.distance import Floats, Labels, nearest
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import IdIndex, Ids, encode_id, keys_of_ids
from fedforget.clustering.partition import SeededPartition
from fedforget.clustering.prf import Ints, Keys, Secret
from fedforget.clustering.records import RecordTable
from fedforget.clustering.server import ServerModel
from fedforget.configuration import Configuration
from fedforget.report import Name, Report, Stopwatch, Verb
from fedforget.runtime.sums import SUMS, Contribution

_ROW_BITS = 40
_ROW_MASK = (1 << _ROW_BITS) - 1


@dataclass
class SimulatedClient:
    """One client: its secret, its clusters, and the histogram that the server has counted."""

    name: Name
    number: int
    secret: Secret
    partition: SeededPartition
    reported: Histogram


class LocalFederation:
    """Clients and a server in one process.

    Parameters
    ----------
    config : the public parameters.
    root : the secret from which the simulated clients' secrets derive.
    aggregation : how histograms are added up, a key of :data:`~fedforget.runtime.sums.SUMS`.
    n_jobs : how many clients work at a time, as in scikit-learn.
    """

    def __init__(
        self,
        config: Configuration,
        root: Secret,
        aggregation: str = "plain",
        n_jobs: int | None = None,
    ) -> None:
        self.config = config
        self.aggregation = aggregation
        self._sum = SUMS[aggregation](config)
        self.root = root
        self.n_jobs = n_jobs
        self.clients: dict[Name, SimulatedClient] = {}
        self.aggregate = Histogram(config.grid.n_features)
        self.server = config.new_server()
        self.model: ServerModel = self.server.run(self.aggregate)
        self._index = IdIndex()
        self._index_secret = root.derive("index of ids")
        self._by_number: dict[int, SimulatedClient] = {}
        self._next_number = 0
        self._next_arrival = 0

    def __len__(self) -> int:
        return len(self._index)

    # -- finding records -----------------------------------------------------------------------

    def _keys(self, ids: Ids) -> Keys:
        return keys_of_ids(self._index_secret, ids)

    def find(self, ids: Ids) -> Ints:
        """An opaque handle for each id; -1 for an id that nobody holds."""
        return self._index.find(self._keys(ids))

    def _file(self, client: SimulatedClient, rows: Ints) -> None:
        """Record where rows of a client are now."""
        keys = self._keys(client.partition.table.ids[rows])
        self._index.put(keys, rows + (client.number << _ROW_BITS))

    def order(self) -> Ints:
        """The permutation from client after client to the order of arrival."""
        return np.argsort(self.gather(lambda client: client.partition.table.arrival, np.int64))

    def gather(
        self, column: Callable[[SimulatedClient], npt.NDArray[Any]], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """One column of every client's records, client after client."""
        parts = [column(client) for client in self.clients.values()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)

    # -- the verbs -----------------------------------------------------------------------------

    def learn(
        self, values: Floats, ids: Ids, names: Ids, to_clustered: Callable[[Floats], Floats]
    ) -> Report:
        """Add records at the clients named.

        ``to_clustered`` takes some rows of ``values`` to the clustered space, as a new array; it
        is called a client at a time, so that there is never a second copy of everything.
        """
        watch = Stopwatch()
        arrival = np.arange(self._next_arrival, self._next_arrival + len(values))
        self._next_arrival += len(values)
        distinct, member = np.unique(names, return_inverse=True)
        by_client = np.argsort(member, kind="stable")
        ends = np.cumsum(np.bincount(member, minlength=len(distinct)))

        def work(position: int) -> tuple[SimulatedClient, Ints, int | None, bool]:
            begin = int(ends[position - 1]) if position else 0
            rows = by_client[begin : int(ends[position])]
            own = slice(None) if len(distinct) == 1 else rows
            name = distinct[position].item()
            return self._learn_at(name, to_clustered(values[own]), ids[own], arrival[own])

        for name in distinct.tolist():
            if name not in self.clients:
                self._enrol(name)
        done = self._in_parallel(work, range(len(distinct)))
        for client, rows, _, _ in done:
            self._file(client, rows)
        reseeded = {
            client.name: step for client, _, step, new in done if step is not None and not new
        }
        return self._close(
            watch,
            "learn",
            added=len(values),
            reseeded=reseeded,
            changed=[client for client, _, _, _ in done],
            joined=tuple(client.name for client, _, _, new in done if new),
        )

    def forget(self, handles: Ints) -> Report:
        """Erase records by their handles."""
        watch = Stopwatch()
        numbers, rows = handles >> _ROW_BITS, handles & _ROW_MASK
        touched = [
            (self._by_number[number], rows[numbers == number])
            for number in sorted(set(numbers.tolist()))
        ]
        for client, own in touched:
            self._index.drop(self._keys(client.partition.table.ids[own]))
        reseeded: dict[Name, int] = {}
        changed, left = [], []
        done = self._in_parallel(_forget_at, touched)
        for (client, _), (moved, step) in zip(touched, done, strict=True):
            self._file(client, moved)
            if not len(client.partition):
                left.append(client.name)
                continue
            if step is not None:
                reseeded[client.name] = step
            # Alg. 4 as printed: a client that did not draw again reports nothing.
            if step is not None or self.config.mode != "paper":
                changed.append(client)
        return self._close(
            watch,
            "forget",
            removed=len(handles),
            reseeded=reseeded,
            changed=changed,
            left=tuple(left),
        )

    def forget_clients(self, names: Iterable[Name]) -> Report:
        """Erase clients with all their records; nobody else has anything to do."""
        watch = Stopwatch()
        names = tuple(names)
        removed = 0
        for name in names:
            table = self.clients[name].partition.table
            removed += len(table)
            self._index.drop(self._keys(table.ids))
        return self._close(watch, "forget_clients", removed=removed, left=names)

    # -- one client's part ---------------------------------------------------------------------

    def _enrol(self, name: Name) -> None:
        grid = self.config.grid
        secret = self.root.derive("client", encode_id(name))
        empty = RecordTable(
            np.empty((0, grid.n_features)),
            np.empty(0, dtype=np.int64),
            Keys(np.empty(0, np.uint64), np.empty(0, np.uint64)),
            np.empty(0, dtype=np.int64),
        )
        partition = SeededPartition(empty, self.config.local_clusters_of(name), grid.fixed_point)
        client = SimulatedClient(
            name, self._next_number, secret, partition, Histogram(grid.n_features)
        )
        self._next_number += 1
        self.clients[name] = self._by_number[client.number] = client

    def _learn_at(
        self, name: Name, clustered: Floats, ids: Ids, arrival: Ints
    ) -> tuple[SimulatedClient, Ints, int | None, bool]:
        client = self.clients[name]
        keys = keys_of_ids(client.secret, ids)
        if len(client.partition):
            rows, step = client.partition.learn(clustered, ids, keys, arrival)
            return client, rows, step, False
        client.partition = SeededPartition(
            RecordTable(clustered, ids.copy(), keys, arrival.copy()),
            client.partition.n_seeds,
            client.partition.fixed_point,
        )
        return client, np.arange(len(ids)), 0, True

    # -- the server's part ---------------------------------------------------------------------

    def _close(
        self,
        watch: Stopwatch,
        verb: Verb,
        *,
        removed: int = 0,
        added: int = 0,
        reseeded: Mapping[Name, int] | None = None,
        changed: Iterable[SimulatedClient] = (),
        left: tuple[Name, ...] = (),
        joined: tuple[Name, ...] = (),
    ) -> Report:
        """Bring the aggregate and the model up to date with what clients report."""
        contributions, gone = [], []
        for name in left:
            client = self.clients.pop(name)
            gone.append(client)
            del self._by_number[client.number]
            nothing = Histogram(self.config.grid.n_features)
            contributions.append(_contribution(client, nothing, leaves=True))
        for client in changed:
            reported = self.config.histogram_of(client.partition)
            contributions.append(_contribution(client, reported))
            client.reported = reported
        watch.lap("clients")
        delta = self._sum(contributions)
        watch.lap("sum")
        if len(delta):
            self.aggregate += delta
            self.model = self.server.update(self.aggregate, delta)
        watch.lap("server")
        for client in gone:
            client.partition.table.erase()
        return Report(
            verb,
            removed=removed,
            added=added,
            reseeded={name: step + 1 for name, step in (reseeded or {}).items()},
            left=left,
            joined=joined,
            changed_points=len(delta),
            server="ran" if len(delta) else "unchanged",
            work=replace(self.server.work) if len(delta) else None,
            traffic=self._sum.traffic,
            seconds=watch.total(),
        )

    def restore_reports(self, reports: dict[Name, Histogram]) -> None:
        """Set what the server has counted of each client (``mode="paper"`` may lag behind)."""
        contributions = []
        for name, reported in reports.items():
            self.clients[name].reported = Histogram(self.config.grid.n_features)
            contributions.append(_contribution(self.clients[name], reported))
            self.clients[name].reported = reported
        self._sum = SUMS[self.aggregation](self.config)
        self.aggregate = self._sum(contributions)
        self.model = self.server.run(self.aggregate)

    def _in_parallel(self, work: Callable[[Any], Any], items: Any) -> list[Any]:
        """Map over clients, in threads: the kernels release the interpreter's lock."""
        items = list(items)
        if self.n_jobs in (None, 1) or len(items) < 2:
            return [work(item) for item in items]
        parallel = joblib.Parallel(n_jobs=self.n_jobs, prefer="threads")
        return list(parallel(joblib.delayed(work)(item) for item in items))

    def global_of_local(self, client: SimulatedClient) -> Labels:
        """The server's cluster of each of a client's clusters, by its representative."""
        points = self.config.representatives_of(client.partition)
        return nearest(self.config.coordinates_of(points), self.model.centres)[0]


def _forget_at(request: tuple[SimulatedClient, Ints]) -> tuple[Ints, int | None]:
    """Returns the rows into which other records moved, and the first step drawn again."""
    client, rows = request
    return client.partition.forget(rows)


def _contribution(
    client: SimulatedClient, after: Histogram, *, leaves: bool = False
) -> Contribution:
    return Contribution(client.name, client.reported, after, client.partition.n_seeds, leaves)
