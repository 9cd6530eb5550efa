"""How the clients' changes become one sum: in the clear, through the code, or under masks."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Protocol

from msgspec.structs import replace

from fedforget.clustering.histogram import Histogram
from fedforget.configuration import Configuration
from fedforget.protocol.client_ledger import Leaving
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Policy
from fedforget.protocol.history import Place, next_list
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Member, Membership
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import RoundResult
from fedforget.report import Name, Traffic
from fedforget.runtime.rounds import run_round
from fedforget.scma import Codec, DecodeError, add, next_capacity

FIRST_CAPACITY = 16
"""Different points for which the vector of a change has room at first."""


@dataclass(frozen=True)
class Contribution:
    """A client's histogram, as it was counted before and as it is to be counted now.

    ``capacity`` is the most points that it can have; ``leaves`` says that the client goes.
    """

    name: Name
    before: Histogram
    after: Histogram
    capacity: int
    leaves: bool = False


class Sum(Protocol):
    """Adds up what changes.  ``traffic`` says what the last sum cost, where that is of interest."""

    traffic: Traffic | None

    def __call__(self, contributions: Sequence[Contribution]) -> Histogram: ...


class PlainSum:
    """Adds histograms up in the clear."""

    traffic: Traffic | None = None

    def __init__(self, config: Configuration) -> None:
        self._n_features = config.grid.n_features

    def __call__(self, contributions: Sequence[Contribution]) -> Histogram:
        return Histogram.sum(self._n_features, (one.after - one.before for one in contributions))


class CodedSum:
    """Adds the clients' encodings up and decodes the sum, without masks.

    A change is small as a rule, so the vectors are short at first; where the sum does not fit, the
    clients encode again for twice as many points.
    """

    traffic: Traffic | None = None

    def __init__(self, config: Configuration) -> None:
        self._config = config
        self._codec = Codec(
            config.grid.levels,
            FIRST_CAPACITY,
            salt=config.public_seed.derive("scma salt").data,
        )
        self._n_features = config.grid.n_features

    def __reduce__(self) -> tuple[type[CodedSum], tuple[Configuration]]:
        # It keeps nothing between sums, and the codec's hash state cannot be copied.
        return CodedSum, (self._config,)

    def __call__(self, contributions: Sequence[Contribution]) -> Histogram:
        if not contributions:
            return Histogram(self._n_features)
        changes = [one.after - one.before for one in contributions]
        full = 2 * sum(one.capacity for one in contributions)
        # Whoever sends that much at once, as in a first round, need not start small.
        capacity = min(max(FIRST_CAPACITY, *map(len, changes)), full)
        while True:
            codec = self._codec.with_capacity(capacity)
            vectors = (codec.encode(change.points(), change.counts()) for change in changes)
            try:
                return Histogram.of(*codec.decode(reduce(add, vectors)))
            except DecodeError as error:
                capacity = next_capacity(error, capacity, full)


class SecureSum:
    """Runs the whole protocol, with a server and every client in this process.

    Membership follows the contributions: a client that is new here, or leaves, begins a new epoch.
    """

    def __init__(self, config: Configuration) -> None:
        self._identity = Identity(os.urandom(32))
        self._federation = Federation(
            identifier=os.urandom(16),
            configuration=config.public_seed.derive("configuration").data * 2,
            server_key=self._identity.public,
            levels=tuple(config.grid.levels.tolist()),
            first_capacity=FIRST_CAPACITY,
            # In one process there is nobody to hide from, and there may be a single client.
            policy=Policy(dropout=0.0, colluding=0.0, minimum=1),
        )
        self._n_features = config.grid.n_features
        self._labels: dict[Name, str] = {}
        self._identities: dict[str, Identity] = {}
        self._capacities: dict[str, int] = {}
        self._current: dict[str, Histogram] = {}
        self._clients: dict[str, ClientSide] = {}
        self._server: ServerSide | None = None
        self._notices: list[bytes] = []
        self._counted = Histogram(self._n_features)
        self.traffic: Traffic | None = None

    def __call__(self, contributions: Sequence[Contribution]) -> Histogram:
        self.traffic = None
        if not contributions:
            return Histogram(self._n_features)
        for one in contributions:
            label = self._labels.setdefault(one.name, f"client-{len(self._identities)}")
            self._identities.setdefault(label, Identity(os.urandom(32)))
            self._capacities[label] = one.capacity
            self._current[label] = one.after
        if set(self._labels.values()) != set(self._clients):
            self._begin_epoch()
        gone = [self._labels.pop(one.name) for one in contributions if one.leaves]
        for label in gone:
            client = self._clients[label]
            client.ledger = replace(client.ledger, leaving=Leaving(alone=True))
        change = self._round()
        if gone:
            self._let_go(gone)
        return change

    def _round(self) -> Histogram:
        """One round; returns what changed in the sum."""
        server, changes = self._server, list[Histogram]()
        assert server is not None

        def take_over(result: RoundResult) -> bytes:
            total = result.total
            changes.append(total - self._counted if result.kind == "full" else total)
            return bytes(32)

        self.traffic = run_round(server, self._clients, None, take_over)
        self._notices.append(server.last_notice)
        self._counted += changes[0]
        return changes[0]

    def _begin_epoch(self) -> None:
        """A new membership list, for everybody."""
        labels = sorted(self._labels.values())
        server = self._server
        membership = next_list(
            None if server is None else server.membership,
            Place() if server is None else server.ledger.place,
            federation=self._federation.identifier,
            members=[Member(label, self._identities[label].public.data) for label in labels],
            capacity=sum(self._capacities[label] for label in labels),
        )
        if server is None:
            self._notices = []
            self._counted = Histogram(self._n_features)
            self._server = ServerSide(
                self._identity, self._federation, membership, notices=self._notices_after
            )
        else:
            server.adopt(membership)
        for label in labels:
            if label in self._clients:
                self._clients[label].adopt(membership)
            else:
                self._clients[label] = self._new_client(label, membership)

    def _notices_after(self, round_number: int) -> Sequence[bytes]:
        return self._notices[round_number:]

    def _new_client(self, label: str, membership: Membership) -> ClientSide:
        return ClientSide(
            label,
            self._identities[label],
            self._federation,
            [membership],
            # Not a lambda: a copy of this sum must read its own histograms.
            partial(self._histogram_of, label),
        )

    def _histogram_of(self, label: str) -> Histogram:
        return self._current[label]

    def _let_go(self, labels: Sequence[str]) -> None:
        for label in labels:
            del self._clients[label], self._current[label], self._capacities[label]
        if self._labels:
            self._begin_epoch()
        else:
            # Nobody is left to run another round with; the next client begins anew.
            self._server = None


SUMS: dict[str, Callable[[Configuration], Sum]] = {
    "plain": PlainSum,
    "scma": CodedSum,
    "secure": SecureSum,
    "centroids": PlainSum,
}
"""How each ``aggregation`` adds up."""
