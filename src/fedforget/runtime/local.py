"""A whole federation in one process: every client's records, and the server's model of their sum.

The clients are simulated, but each one keeps its own records, secret and clusters, and the server
sees only the sum of their histograms.  Nothing here checks its input; the estimators do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.distance import nearest
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import Found, IdIndex, Ids, encode_id, keys_of_ids
from fedforget.clustering.lattice_kmeans import ServerModel
from fedforget.clustering.losses import induced_labels
from fedforget.clustering.owner import Change, Owner
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.records import RecordTable
from fedforget.configuration import Configuration
from fedforget.local_clusters import new_owner
from fedforget.modelling import new_server
from fedforget.report import Name, Report, Stopwatch, Verb
from fedforget.runtime.sums import SUMS, Contribution

_ROW_BITS = 40
_ROW_MASK = (1 << _ROW_BITS) - 1


@dataclass
class SimulatedClient:
    """One client: an owner, and the histogram that the server has counted of it."""

    name: Name
    number: int
    owner: Owner[RecordTable]
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
        self.server = new_server(config)
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

    def find(self, ids: Ids) -> Found:
        """An opaque handle for each id; -1 for an id that nobody holds."""
        return self._index.look_up(self._keys(ids))

    def _file(self, client: SimulatedClient, rows: Ints, keys: Keys) -> None:
        """Record where rows of a client are now."""
        self._index.put(keys, rows + (client.number << _ROW_BITS))

    def order(self) -> Ints:
        """The permutation from client after client to the order of arrival."""
        return np.argsort(self.gather(lambda client: client.owner.records.arrival, np.int64))

    def gather(
        self, column: Callable[[SimulatedClient], npt.NDArray[Any]], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """One column of every client's records, client after client."""
        parts = [column(client) for client in self.clients.values()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)

    # -- the verbs -----------------------------------------------------------------------------

    def learn(
        self,
        values: Floats,
        ids: Ids,
        names: Ids,
        to_clustered: Callable[[Floats], Floats],
        found: Found | None = None,
    ) -> Report:
        """Add records at the clients named.

        ``to_clustered`` takes some rows of ``values`` to the clustered space, as a new array; it
        is called for one client at a time, so that there is never a second copy of everything.
        ``found`` is what :meth:`find` said of the ids, where they were looked up before.
        """
        watch = Stopwatch()
        filed = self._keys(ids) if found is None else found.keys
        arrival = np.arange(self._next_arrival, self._next_arrival + len(values))
        self._next_arrival += len(values)
        distinct, member = np.unique(names, return_inverse=True)
        by_client = np.argsort(member, kind="stable")
        ends = np.cumsum(np.bincount(member, minlength=len(distinct)))

        def own(position: int) -> Ints | slice:
            """The rows of the client with this position among the distinct names."""
            if len(distinct) == 1:
                return slice(None)
            return by_client[int(ends[position - 1]) if position else 0 : int(ends[position])]

        def work(position: int) -> Change:
            owner, rows = clients[position].owner, own(position)
            return owner.learn(to_clustered(values[rows]), ids[rows].copy(), arrival[rows].copy())

        clients = [self.clients.get(name) or self._enrol(name) for name in distinct.tolist()]
        new = dict.fromkeys(client.name for client in clients if not len(client.owner))
        done = self._in_parallel(work, range(len(distinct)))
        for position, (client, change) in enumerate(zip(clients, done, strict=True)):
            rows = own(position)
            self._file(client, change.moved, Keys(filed.low[rows], filed.high[rows]))
        reseeded = {
            client.name: change.redrawn_from
            for client, change in zip(clients, done, strict=True)
            if change.redrawn_from is not None and client.name not in new
        }
        return self._update_model(
            watch,
            "learn",
            added=len(values),
            reseeded=reseeded,
            changed=clients,
            joined=tuple(new),
        )

    def forget(self, found: Found) -> Report:
        """Erase records that :meth:`find` has found."""
        watch = Stopwatch()
        numbers, rows = found.handles >> _ROW_BITS, found.handles & _ROW_MASK
        touched = [
            (self._by_number[number], rows[numbers == number])
            for number in sorted(set(numbers.tolist()))
        ]
        self._index.drop(found.keys)
        reseeded: dict[Name, int] = {}
        changed, left = [], []
        done: list[Change] = self._in_parallel(_forget_at, touched)
        for (client, _), change in zip(touched, done, strict=True):
            moved, step = change.moved, change.redrawn_from
            self._file(client, moved, self._keys(client.owner.records.ids_of(moved)))
            if not len(client.owner):
                left.append(client.name)
                continue
            if step is not None:
                reseeded[client.name] = step
            if step is not None or self.config.tells_every_removal:
                changed.append(client)
        return self._update_model(
            watch,
            "forget",
            removed=len(found.handles),
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
            table = self.clients[name].owner.records
            removed += len(table)
            self._index.drop(self._keys(table.ids))
        return self._update_model(watch, "forget_clients", removed=removed, left=names)

    def _enrol(self, name: Name) -> SimulatedClient:
        grid = self.config.grid
        owner = new_owner(self.config, name, self.root.derive("client", encode_id(name)))
        client = SimulatedClient(name, self._next_number, owner, Histogram(grid.n_features))
        self._next_number += 1
        self.clients[name] = self._by_number[client.number] = client
        return client

    # -- the server's part ---------------------------------------------------------------------

    def _update_model(
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
            reported = self.config.histogram_of(client.owner.clusters)
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
            client.owner.erase()
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

    def induced_labels(self, client: SimulatedClient, centres: Floats) -> Labels:
        """The cluster of each of a client's records, through its local cluster.

        Where a record is not reported, its cluster is that of the nearest of the centres.
        """
        clusters = client.owner.clusters
        cells = self.config.cells_of(clusters)
        points = self.config.representatives_of(cells)
        counted = self.config.rules.rounded(cells.sizes) > 0
        local = cells.labels_of(clusters, np.arange(len(client.owner)))
        unreported = local < 0
        unreported[~unreported] = ~counted[local[~unreported]]
        if not unreported.any():
            return induced_labels(local, self.config.nearest_centres(points, self.model))
        labels = nearest(client.owner.records.values, centres)[0]
        reported = ~unreported
        global_of_local = self.config.nearest_centres(points, self.model)
        labels[reported] = induced_labels(local[reported], global_of_local)
        return labels


def _forget_at(request: tuple[SimulatedClient, Ints]) -> Change:
    client, rows = request
    return client.owner.forget(rows)


def _contribution(
    client: SimulatedClient, after: Histogram, *, leaves: bool = False
) -> Contribution:
    most = client.owner.clusters.n_seeds
    return Contribution(client.name, client.reported, after, most, leaves)
