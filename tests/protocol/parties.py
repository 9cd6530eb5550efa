"""A federation to test with: real parties, seeded randomness, and a server's key to lie with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from fedforget.clustering.histogram import Histogram
from fedforget.protocol import client as client_module
from fedforget.protocol.client import Client
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.federation import SERVER, Federation, Membership
from fedforget.protocol.graph import Graph, Policy
from fedforget.protocol.keys import Entropy, Identity
from fedforget.protocol.messages import Body, Context, Kind, Letter, Payload, seal
from fedforget.protocol.server import Outgoing, Result, Server, Stage

LEVELS = (50, 50)
ANSWERED = (Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.CONSENT, Stage.UNMASK)
"""The stages in which clients answer, in their order."""

Lost = Mapping[Stage, Collection[str]]
MODEL = bytes(range(32))


def histogram(*entries: tuple[tuple[int, ...], int]) -> Histogram:
    """A histogram from points and counts."""
    if not entries:
        return Histogram(len(LEVELS))
    points = np.array([point for point, _ in entries], dtype=np.int64)
    return Histogram.of(points, np.array([count for _, count in entries], dtype=np.int64))


def random_histogram(random: Random, most: int = 4) -> Histogram:
    """A few points with counts; perhaps none."""
    return histogram(
        *(
            (tuple(random.randrange(level) for level in LEVELS), random.randrange(1, 1000))
            for _ in range(random.randrange(most + 1))
        )
    )


@dataclass
class Step:
    """One stage as it happened: what was asked, and what came back."""

    stage: Stage
    asked: dict[str, bytes]
    answers: dict[str, bytes] = field(default_factory=dict)
    refusals: dict[str, ProtocolError] = field(default_factory=dict)

    @property
    def context(self) -> Context:
        return Letter(next(iter(self.asked.values()))).payload.context


class Everyone:
    """A whole federation.  Every party has randomness of its own, so that each can be made again.

    Parameters
    ----------
    n : number of members, called c000, c001, …
    policy : what is expected of them.
    seed : of all keys, secrets and histograms.
    capacity : the membership's; four bins a member if left out.
    entropy : randomness by party, to watch it.
    """

    def __init__(
        self,
        n: int,
        *,
        policy: Policy | None = None,
        seed: object = 0,
        capacity: int | None = None,
        first_capacity: int = 16,
        entropy: Callable[[str], Entropy] | None = None,
    ) -> None:
        self.seed = seed
        self.entropy = entropy or (lambda name: Random(f"{seed} entropy {name}").randbytes)
        self.names = tuple(f"c{i:03}" for i in range(n))
        self.identities = {
            name: Identity(Random(f"{seed} identity {name}").randbytes(32))
            for name in (SERVER, *self.names)
        }
        self.federation = Federation(
            identifier=Random(f"{seed} federation").randbytes(16),
            configuration=Random(f"{seed} configuration").randbytes(32),
            server_key=self.identities[SERVER].public,
            levels=LEVELS,
            first_capacity=first_capacity,
            policy=policy or Policy(minimum=min(n, 3)),
        )
        self.membership = self.members(1, self.names, capacity)
        random = Random(f"{seed} histograms")
        self.random = Random(f"{seed} choices")
        self.histograms = {name: random_histogram(random) for name in self.names}
        self.server = self.new_server()
        self.clients = {name: self.new_client(name) for name in self.names}
        self.history: list[Step] = []

    def members(
        self, epoch: int, names: Collection[str], capacity: int | None = None
    ) -> Membership:
        keys = {name: self.identities[name].public for name in names}
        return Membership(epoch, keys, 4 * len(names) if capacity is None else capacity)

    def new_client(self, name: str, ledger: client_module.Ledger | None = None) -> Client:
        """A client as it was in the beginning, or after a restart."""
        return Client(
            name,
            self.identities[name],
            self.federation,
            self.membership,
            lambda: self.histograms[name],
            ledger,
            self.entropy(name if ledger is None else f"{name} again"),
        )

    def new_server(self) -> Server:
        return Server(
            self.identities[SERVER], self.federation, self.membership, None, self.entropy(SERVER)
        )

    def adopt(self, membership: Membership) -> None:
        """A new membership list for everybody on it."""
        self.membership = membership
        self.server.adopt(membership)
        for name in membership.keys:
            self.clients[name].adopt(membership)

    def total(self, names: Collection[str]) -> Histogram:
        """What the sum must be."""
        return Histogram.sum(len(LEVELS), (self.histograms[name] for name in names))

    # -- honest rounds -------------------------------------------------------------------------

    def ask(self, messages: list[Outgoing], lost: Collection[str] = ()) -> Step:
        """Carry one stage's messages and the answers; who is lost gets nothing."""
        step = Step(self.server.stage, dict(messages))
        for name, data in messages:
            if name in lost:
                continue
            try:
                answer = self.clients[name].receive(data)
            except ProtocolError as error:
                step.refusals[name] = error
                continue
            if answer is not None:
                self.server.receive(answer)
                step.answers[name] = answer
        self.history.append(step)
        return step

    def decide(self, kind: Kind, lost: Lost | None = None) -> Result:
        """Run a round up to its result, with as many attempts as it takes."""
        lost = lost or {}
        messages = self.server.open(kind)
        while self.server.stage is not Stage.DECIDED:
            self.ask(messages, lost.get(self.server.stage, ()))
            messages = self.server.advance()
        assert self.server.result is not None
        return self.server.result

    def commit(self, lost: Collection[str] = ()) -> None:
        self.ask(self.server.commit(MODEL), lost)

    def round(self, kind: Kind, lost: Lost | None = None) -> Result:
        """Run a round and commit it."""
        result = self.decide(kind, lost)
        self.commit((lost or {}).get(Stage.DECIDED, ()))
        return result

    def until(self, stage: Stage, kind: Kind = "full") -> list[Outgoing]:
        """Run a round until the server asks for the answers of a stage."""
        messages = self.server.open(kind)
        while self.server.stage is not stage:
            self.ask(messages)
            messages = self.server.advance()
        return messages

    # -- forgeries -----------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """The attempt under way, or the last one."""
        return self.history[-1].context

    def from_server(self, name: str, body: Body, context: Context | None = None) -> bytes:
        """Anything at all, with the server's signature."""
        payload = Payload(context or self.context, SERVER, name, body)
        return seal(payload, self.identities[SERVER])

    def from_client(self, name: str, body: Body, context: Context | None = None) -> bytes:
        """Anything at all, with a client's signature."""
        payload = Payload(context or self.context, name, SERVER, body)
        return seal(payload, self.identities[name])


def body_of(data: bytes) -> Any:
    return Letter(data).payload.body


def changed(context: Context, **fields: Any) -> Context:
    """A context with other fields."""
    names = context.__struct_fields__
    return Context(**({name: getattr(context, name) for name in names} | fields))


def state_of(client: Client) -> tuple[object, ...]:
    """Everything that a refusal must not change.  The objects are frozen: identity will do."""
    return client.stage, client.ledger, client._last, client.membership, client.notice


def unchanged(client: Client, before: tuple[object, ...]) -> bool:
    return all(one is other for one, other in zip(state_of(client), before, strict=True))


def server_state(server: Server) -> dict[str, object]:
    """Everything in a server, copied where it can be changed in place."""
    copied: dict[str, object] = {}
    for name, value in vars(server).items():
        if isinstance(value, dict):
            copied[name] = dict(value)
        elif isinstance(value, np.ndarray):
            copied[name] = value.tobytes()
        else:
            copied[name] = value
    return copied


def expected_survivors(
    context: Context, invited: Collection[str], policy: Policy, lost: Lost
) -> tuple[str, ...] | None:
    """Who must be in the sum if these are lost at these stages; None if the round must end.

    Written from the rules alone: ``minimum`` parties at every stage, and a threshold of every
    sharer's holders at the last two; a client goes on only with a threshold of neighbours.
    """

    def left(names: Collection[str], stage: Stage) -> list[str]:
        return sorted(set(names) - set(lost.get(stage, ())))

    def with_neighbours(names: Collection[str]) -> list[str]:
        here = set(names)
        return [n for n in names if len(here & {n, *near[n]}) >= graph.plan.threshold]

    participants = left(invited, Stage.ADVERTISE)
    if len(participants) < policy.minimum:
        return None
    graph = Graph.of(context.digest, participants, policy)
    near = {name: graph.neighbours(name) for name in participants}
    sharers = left(participants, Stage.SHARE)
    if len(sharers) < policy.minimum:
        return None
    alive = left(with_neighbours(sharers), Stage.MASK)
    if len(alive) < policy.minimum:
        return None
    consenting = left(with_neighbours(alive), Stage.CONSENT)
    revealing = left(with_neighbours(consenting), Stage.UNMASK)
    for present in (consenting, revealing):
        for name in sharers:
            if len({name, *near[name]} & set(present)) < graph.plan.threshold:
                return None
    return tuple(alive) if len(consenting) >= policy.minimum else None


def with_ledger(client: Client, **fields: Any) -> None:
    """Change what a client remembers."""
    client.ledger = replace(client.ledger, **fields)
