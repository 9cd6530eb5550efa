"""A whole federation in one folder: a server, clients and their records, for trying things out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.ids import Ids
from fedforget.errors import FedforgetError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.disclosure import DEFAULT, first_capacity, preset
from fedforget.parties.federation_file import Feature, FederationFile, ModelPart, ProtocolPart
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.parties.sources.reader import Reader, Wanted
from fedforget.parties.sources.source import Source
from fedforget.protocol.graph import Policy, PolicyError

DROPOUT, COLLUDING = 0.2, 0.1


class TrialError(FedforgetError):
    """A federation that cannot be made."""


class MemoryTable(Source):
    """Records that are in memory already, and are as they should be."""

    def __init__(self, ids: Ids, values: Floats, features: list[str]) -> None:
        wanted = Wanted("", tuple(features))
        super().__init__([Reader("the records", wanted)], wanted)
        self.n_rows = len(ids)
        self._content = ids, values

    def parts(self) -> Iterator[tuple[Ids, Floats]]:
        yield self._content


def check_clients(n_clients: int) -> None:
    """Refuse a federation in which nobody could hide."""
    if n_clients < 2:
        raise TrialError(
            "a federation has at least two clients: a sum over one client alone is its own"
            " histogram. Give more of them, for instance --clients 3"
        )


def protocol_part(
    n_clients: int, minimum: int, deadline: float, capacity: int = 16
) -> ProtocolPart:
    """Values with which so many clients can run rounds.

    Two or three clients are so few that all of them must be there in every round.
    """
    minimum = max(2, min(minimum, n_clients))
    try:
        Policy(DROPOUT, COLLUDING, minimum).check(n_clients)
        dropout = DROPOUT
    except PolicyError:
        dropout = 0.0
    return ProtocolPart(dropout, COLLUDING, minimum, capacity, deadline)


def make_federation(
    root: Path,
    values: Floats,
    owners: Ints,
    *,
    n_clusters: int,
    step: float = 0.01,
    minimum: int = 3,
    deadline: float = 60.0,
    disclosure: str = DEFAULT,
    progress: Callable[[], None] = lambda: None,
) -> None:
    """Make ``root/server`` and a directory in ``root/clients`` for each owner.

    Parameters
    ----------
    values : (n, d), between 0 and 1.
    owners : the client of each record, from 0.  Record i has the id i.
    n_clusters, step, minimum, deadline, disclosure : as ``server init`` takes them; with fewer
        clients than ``minimum``, all of them must be there.
    progress : called when a client is ready.
    """
    n_clients = int(owners.max()) + 1
    check_clients(n_clients)
    rules = preset(disclosure, step)
    features = [f"x{number}" for number in range(values.shape[1])]
    draft = FederationFile(
        name="trial",
        identifier=os.urandom(16).hex(),
        server_key="00" * 32,
        model=ModelPart(
            n_clusters=n_clusters,
            local_clusters=2 * n_clusters,
            scale="none",
            step=step,
            shift=False,
            representatives="means",
            server_points="weighted",
            n_init=10,
            max_iter=300,
            public_seed=os.urandom(16).hex(),
        ),
        protocol=protocol_part(n_clients, minimum, deadline, first_capacity(rules)),
        features=tuple(Feature(name, 0.0, 1.0) for name in features),
        disclosure=rules,
    )
    federation = ServerParty.create(root / "server", draft)
    width = len(str(n_clients - 1))
    names = [f"client-{number:0{width}}" for number in range(n_clients)]
    folders = [root / "clients" / name for name in names]
    keys = {
        name: ClientParty.create(folder, name)["key"]
        for name, folder in zip(names, folders, strict=True)
    }
    with open_server(root / "server") as server:
        document = server.enrol(keys)
    for number, folder in enumerate(folders):
        own = np.flatnonzero(owners == number)
        with open_client(folder) as client:
            client.join(federation, document)
            client.import_table(MemoryTable(own, values[own], features))
        progress()
