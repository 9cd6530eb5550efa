"""A federation to test with: real parties, seeded randomness, and a server's key to lie with."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from random import Random
from typing import Any

import numpy as np
from msgspec.structs import replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import (
    ClientLedger,
    Leaving,
    digest_of_input,
    leavers_since,
    opened_since,
)
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Graph, Policy
from fedforget.protocol.history import Place, next_list
from fedforget.protocol.keys import Entropy, Identity
from fedforget.protocol.masks import AttemptSecrets
from fedforget.protocol.membership import SERVER, Member, Membership
from fedforget.protocol.messages import Body, Context, Letter, Payload, RoundKind, seal
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Outgoing, RoundResult, ServerLedger

LEVELS = (50, 50)


class Stage(enum.Enum):
    """Where a server stands, by the title of its stage."""

    IDLE = "idle"
    WHO = "who"
    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "masked input"
    CONSENT = "consistency"
    UNMASK = "unmask"
    DECIDED = "commit"


ANSWERED = (Stage.ADVERTISE, Stage.SHARE, Stage.MASK, Stage.CONSENT, Stage.UNMASK)
"""The stages in which clients answer, in their order."""

Lost = Mapping[Stage, Collection[str]]
MODEL = bytes(range(32))


def stage_of(server: ServerSide) -> Stage:
    return Stage(server.stage.title)


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

    Attributes
    ----------
    lists : the membership lists, in their order.
    notices : the commits, in their order, as they were sent.
    history : what was asked and answered, stage by stage.
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
        self.identities: dict[str, Identity] = {}
        for name in (SERVER, *self.names):
            self.enrol(name)
        self.federation = Federation(
            identifier=Random(f"{seed} federation").randbytes(16),
            configuration=Random(f"{seed} configuration").randbytes(32),
            server_key=self.identities[SERVER].public,
            levels=LEVELS,
            first_capacity=first_capacity,
            policy=policy or Policy(minimum=min(n, 3)),
        )
        self.notices: list[bytes] = []
        self.lists: list[Membership] = []
        self.lists.append(self.members(self.names, capacity=capacity))
        random = Random(f"{seed} histograms")
        self.random = Random(f"{seed} choices")
        self.histograms = {name: random_histogram(random) for name in self.names}
        self.server = self.new_server()
        self.clients = {name: self.new_client(name) for name in self.names}
        self.history: list[Step] = []

    @property
    def membership(self) -> Membership:
        """The list in force."""
        return self.lists[-1]

    @property
    def stage(self) -> Stage:
        return stage_of(self.server)

    def enrol(self, name: str) -> None:
        """Keys for somebody."""
        self.identities[name] = Identity(Random(f"{self.seed} identity {name}").randbytes(32))

    def members(
        self,
        names: Collection[str],
        *,
        suspended: Collection[str] = (),
        capacity: int | None = None,
        place: Place | None = None,
    ) -> Membership:
        """The list that comes next, with these members."""
        if place is None:
            place = self.server.ledger.place if self.lists else Place()
        return next_list(
            self.lists[-1] if self.lists else None,
            place,
            federation=self.federation.identifier,
            members=[
                Member(name, self.identities[name].public.data, name in suspended) for name in names
            ],
            capacity=4 * len(names) if capacity is None else capacity,
            leavers=[leavers_since(place, self.server.ledger.lock)] if self.lists else (),
            opened=opened_since(place, self.server.ledger.lock) if self.lists else frozenset(),
        )

    def new_client(
        self,
        name: str,
        ledger: ClientLedger | None = None,
        lists: Sequence[Membership] | None = None,
    ) -> ClientSide:
        """A client as it was in the beginning, or after a restart."""
        return ClientSide(
            name,
            self.identities[name],
            self.federation,
            [one for one in self.lists if name in one] if lists is None else lists,
            lambda: self.histograms[name],
            ledger,
            entropy=self.entropy(name if ledger is None else f"{name} again {ledger.seen}"),
        )

    def restart(self, name: str) -> ClientSide:
        """A client loses everything that is not in its ledger."""
        self.clients[name] = self.new_client(name, self.clients[name].ledger)
        return self.clients[name]

    def new_server(self, ledger: ServerLedger | None = None) -> ServerSide:
        return ServerSide(
            self.identities[SERVER],
            self.federation,
            self.lists[-1 if ledger is not None else 0],
            ledger,
            lambda after: tuple(self.notices[after:]),
            self.entropy(SERVER),
        )

    def adopt(self, membership: Membership, alone: Collection[str] = ()) -> None:
        """A new membership list for the server and everybody on it; newcomers are made."""
        self.lists.append(membership)
        self.server.adopt(membership)
        for name in membership.position:
            if name in self.clients:
                self.clients[name].adopt(membership, alone=name in alone)
            else:
                self.histograms.setdefault(name, random_histogram(Random(f"{self.seed} {name}")))
                self.clients[name] = self.new_client(name)
                if name in alone:
                    with_ledger(self.clients[name], joins_alone=True)

    def secrets_of(self, name: str, randomness: bytes, context: Context) -> AttemptSecrets:
        """What a client derives if it fixes its present histogram with these random bytes."""
        plain_input = digest_of_input(self.histograms[name])
        return AttemptSecrets(randomness, self.identities[name], context.digest, plain_input)

    def total(self, names: Collection[str]) -> Histogram:
        """What the sum must be."""
        return Histogram.sum(len(LEVELS), (self.histograms[name] for name in names))

    # -- honest rounds -------------------------------------------------------------------------

    def greet(self, absent: Collection[str] = ()) -> None:
        """The server finds out who is there and what they know."""
        question = self.server.ask()
        for name in self.membership.active:
            if name not in absent:
                answer = self.clients[name].receive(question)
                assert answer is not None
                self.server.greet(answer)

    def leave(self, names: Collection[str], alone: Collection[str] = ()) -> None:
        """Some members want to leave."""
        for name in names:
            with_ledger(self.clients[name], leaving=Leaving(name in alone))

    def ask(self, messages: list[Outgoing], lost: Collection[str] = ()) -> Step:
        """Carry one stage's messages and the answers; who is lost gets nothing."""
        step = Step(self.stage, dict(messages))
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

    def decide(self, kind: RoundKind, lost: Lost | None = None) -> RoundResult:
        """Run a round up to its result, with as many attempts as it takes."""
        lost = lost or {}
        messages = self.server.open(kind)
        while self.stage is not Stage.DECIDED:
            self.ask(messages, lost.get(self.stage, ()))
            messages = self.server.advance()
        assert self.server.result is not None
        return self.server.result

    def commit(self, lost: Collection[str] = ()) -> Step:
        messages = self.server.commit(MODEL)
        self.notices.append(self.server.last_notice)
        return self.ask(messages, lost)

    def round(self, kind: RoundKind, lost: Lost | None = None) -> RoundResult:
        """Run a round and commit it."""
        result = self.decide(kind, lost)
        self.commit((lost or {}).get(Stage.DECIDED, ()))
        return result

    def until(self, stage: Stage, kind: RoundKind = "full") -> list[Outgoing]:
        """Run a round until the server asks for the answers of a stage."""
        messages = self.server.open(kind)
        while self.stage is not stage:
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


def body_of(data: bytes | None) -> Any:
    assert data is not None
    return Letter(data).payload.body


def changed(context: Context, **fields: Any) -> Context:
    """A context with other fields."""
    return replace(context, **fields)


def state_of(client: ClientSide) -> tuple[object, ...]:
    """Everything that a refusal must not change.  The objects are frozen: identity will do."""
    return client.stage, client.ledger, client._last, client.membership


def unchanged(client: ClientSide, before: tuple[object, ...]) -> bool:
    return all(one is other for one, other in zip(state_of(client), before, strict=True))


def server_state(server: ServerSide) -> dict[str, object]:
    """Everything in a server, copied.  Only what it has found out about members is left out: a
    refused answer names its sender."""
    return {name: _copied(value) for name, value in vars(server).items() if name != "findings"}


def _copied(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, set):
        return set(value)
    if is_dataclass(value) and not isinstance(value, type):
        copied = {one.name: _copied(getattr(value, one.name)) for one in fields(value)}
        return type(value).__name__, copied
    return value


def expected_survivors(
    everyone: Everyone, kind: RoundKind, context: Context, invited: Collection[str], lost: Lost
) -> tuple[str, ...] | None:
    """Who must be in the sum if these are lost at these stages; None if the round must end.

    Written from the rules alone.  A full round needs everybody up to the masked input, a delta
    round h of those counted; s of them must sign; and a threshold of every sharer's holders must be
    there until the end.
    """
    policy, n = everyone.federation.policy, len(everyone.membership)
    counted = everyone.server.ledger.place.counted
    assert counted is not None
    m = n if kind == "full" else len(counted)
    needed = policy.thresholds(n, m)
    most_lost = 0 if kind == "full" else m - needed.present

    def left(names: Collection[str], stage: Stage) -> list[str]:
        return sorted(set(names) - set(lost.get(stage, ())))

    def too_few(names: Collection[str]) -> bool:
        return len(names) < m - most_lost or len(names) < needed.present

    def out_of_reach(names: Collection[str]) -> bool:
        here = set(names)
        return any(len(here & {one, *near[one]}) < graph.plan.threshold for one in sharers)

    participants = left(invited, Stage.ADVERTISE)
    if too_few(participants):
        return None
    graph = Graph.of(context.digest, participants, n, policy)
    near = {name: graph.neighbours(name) for name in participants}
    sharers = left(participants, Stage.SHARE)
    if too_few(sharers) or out_of_reach(sharers):
        return None
    alive = left(sharers, Stage.MASK)
    if too_few(alive) or out_of_reach(alive):
        return None
    consenting = left(alive, Stage.CONSENT)
    if len(consenting) < needed.signers or out_of_reach(consenting):
        return None
    return None if out_of_reach(left(consenting, Stage.UNMASK)) else tuple(alive)


def came_with(membership: Membership, since: Mapping[str, int]) -> Membership:
    """A list that says of some members that they came with another one."""
    lines = (replace(one, since=since.get(one.name, one.since)) for one in membership.members)
    return replace(membership, members=tuple(lines))


def with_ledger(client: ClientSide, **fields: Any) -> None:
    """Change what a client remembers."""
    client.ledger = replace(client.ledger, **fields)
