"""One schedule: a federation lives through faults, is healed, and must then be whole."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import Client
from fedforget.protocol.errors import (
    BaseMismatchError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    SecondSurvivorSetError,
    TooFewError,
    UnknownPartyError,
    WrongFederationError,
)
from fedforget.protocol.federation import SERVER, Federation, Membership
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import Identity
from fedforget.protocol.messages import Kind, Letter, Masked
from fedforget.protocol.server import Outgoing, Server, Stage
from simulator.data import Data, DrawnData, RecordData
from simulator.faults import Fate, KilledError, Rates, ViolationError, draw_rates
from simulator.hosts import ClientHost, ServerHost
from simulator.members import Members
from simulator.network import Envelope, Network
from simulator.truth import Truth
from simulator.view import ServerView

PATIENCE = 8
"""Ticks after which the server ends a stage with those who have answered."""

ASK_AGAIN = 4
"""Ticks after which it repeats its messages, byte for byte, to those who have not."""

MOST_TICKS = 1500

_STALE = (
    SecondSurvivorSetError,
    BaseMismatchError,
    OutOfOrderError,
    TooFewError,
    UnknownPartyError,
    WrongFederationError,
)
"""Why a message that is what its sender sent may be refused; the first is for a prying server."""


@dataclass(frozen=True)
class Parties:
    """What the parties are made of; tests put broken ones in."""

    client: type[Client] = Client
    server: type[Server] = Server
    client_host: type[ClientHost] = ClientHost
    server_host: type[ServerHost] = ServerHost


@dataclass
class Outcome:
    """How a schedule went."""

    seed: int
    tally: Counter[str] = field(default_factory=Counter)
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


def run(
    seed: int, parties: Parties | None = None, faults: Mapping[str, float] | None = None
) -> Outcome:
    """Play a schedule.  Whatever is raised inside it, other than a refusal, is a violation.

    ``faults`` replaces the rates that the seed gives to some kinds.
    """
    world = World(seed, parties or Parties(), faults or {})
    outcome = Outcome(seed, world.fate.tally, None, world.trace)
    try:
        world.play()
    except ViolationError as violation:
        outcome.violation = str(violation)
    except Exception as error:
        outcome.violation = f"{type(error).__name__}: {error}"
        outcome.trace += traceback.format_exc().splitlines()
    return outcome


class World:
    """Clients, a server, and a network between them."""

    def __init__(self, seed: int, parties: Parties, faults: Mapping[str, float]) -> None:
        self._parties = parties
        rng = self.rng = Random(seed)
        self.trace: list[str] = []
        self.fate = Fate(rng, replace(draw_rates(rng), **faults))
        self.network = Network(self.fate)
        self.data: Data = RecordData(rng) if rng.random() < 0.1 else DrawnData(rng)
        identity = Identity(rng.randbytes(32))
        n_clients = rng.choice((2, 3, 3, 3, 4, 4, 5, 6, 8))
        self.federation = Federation(
            identifier=rng.randbytes(16),
            configuration=rng.randbytes(32),
            server_key=identity.public,
            levels=self.data.levels,
            first_capacity=rng.randint(1, 4),
            policy=Policy(minimum=rng.randint(1, min(3, n_clients))),
        )
        self.truth = Truth(self.data)
        self.view = ServerView(self.federation)
        self.members = Members(self.federation, self.data, self.fate, self._new_host)
        membership = self.members.first(n_clients)
        self.server = parties.server_host(
            identity, self.federation, membership, self.data, self.fate, parties.server
        )
        self.members.settle(membership)
        self.server.start()
        self._rounds_left = rng.randint(2, 5)
        self._returning = rng.choice((0.05, 0.2, 0.5))
        self._changing = rng.choice((0.0, 0.02, 0.1))
        self._leaving = rng.choice((0.0, 0.2, 0.5))
        self._churning = rng.choice((0.05, 0.2, 0.5))
        # What the server sent in this stage, and since when it waits.
        self._asked: list[Outgoing] = []
        self._stage_since = 0
        self._waiting_for_epoch = False
        self._full_is_needed = False
        self._pried = self._ever_pried = False
        self._log(f"{n_clients} clients, {self.federation.policy}, {self.fate.rates}")

    def _log(self, event: str) -> None:
        self.trace.append(f"{self.network.clock:4d}  {event}")

    def _new_host(self, name: str, identity: Identity, membership: Membership) -> ClientHost:
        return self._parties.client_host(
            name,
            identity,
            self.federation,
            membership,
            self.data,
            self.fate,
            self._client_answers,
            self._parties.client,
        )

    @property
    def membership(self) -> Membership:
        return self.server.store.membership

    # -- the clock -----------------------------------------------------------------------------

    def play(self) -> None:
        """The faulty part, then the healed one."""
        while self._rounds_left > 0 or self._busy:
            self._tick()
            if self.network.clock > MOST_TICKS:
                break
        self._heal()

    @property
    def _busy(self) -> bool:
        return self.server.process is not None and self.server.process.stage is not Stage.IDLE

    def _tick(self) -> None:
        for envelope in self.network.tick():
            self._deliver(envelope)
        self._clients_live()
        self._server_lives()
        if self.truth.check_store(self.server.store):
            self._log(f"committed round {self.truth.committed[1]}")
            self.fate.tally["rounds committed"] += 1
            self._pried = False

    # -- messages ------------------------------------------------------------------------------

    def _deliver(self, envelope: Envelope) -> None:
        if envelope.recipient == SERVER:
            self._deliver_to_server(envelope)
        elif envelope.recipient in self.members.hosts:
            self._deliver_to_client(self.members.hosts[envelope.recipient], envelope)

    def _deliver_to_server(self, envelope: Envelope) -> None:
        if envelope.intact:
            self.view.heard(envelope.data)
        if self.server.process is None:
            return
        try:
            self.server.receive(envelope.data)
        except ProtocolError as error:
            self._refused("server", envelope, error)

    def _deliver_to_client(self, host: ClientHost, envelope: Envelope) -> None:
        if host.process is None:
            return
        try:
            answer = host.receive(envelope.data)
        except ProtocolError as error:
            self._refused(host.name, envelope, error)
            if isinstance(error, BaseMismatchError):
                self._full_is_needed = self._full_is_needed or self.rng.random() < 0.5
        except KilledError as killed:
            self._log(str(killed))
        else:
            if answer is not None:
                self.network.send(SERVER, answer)

    def _refused(self, who: str, envelope: Envelope, error: ProtocolError) -> None:
        stale = _STALE if self._ever_pried else _STALE[1:]
        if envelope.intact and not isinstance(error, stale):
            raise ViolationError(f"{who} refused an honest message: {error!r}")
        self._log(f"{who} refused: {type(error).__name__}: {error}")
        self.fate.tally[f"refused: {type(error).__name__}"] += 1

    def _client_answers(
        self, host: ClientHost, message: bytes, answer: bytes | None, taken: Histogram | None
    ) -> None:
        assert host.process is not None
        ledger = host.process.ledger
        if ledger.base is not None:
            host.amnesic = False
        self.truth.check_base(host.name, ledger, amnesic=host.amnesic)
        if answer is None:
            return
        self.truth.client_answers(host.name, message, answer, taken)
        payload = Letter(answer).payload
        self._log(f"{host.name} answers {type(payload.body).__name__} {payload.context.number}")
        if isinstance(payload.body, Masked):
            change = self.truth.change_of(host.name, payload.context)
            self.view.encoded(host.name, payload.context, change)

    def _send(self, messages: list[Outgoing]) -> None:
        cut = len(messages)
        if messages and self.fate.strikes("server_killed_while_sending"):
            cut = self.rng.randrange(len(messages))
            self.server.kill()
            self._log("server killed while sending")
        names = tuple(self.members.hosts)
        for message in messages[:cut]:
            self.view.said(message.data, self.truth)
            self.network.send(message.recipient, message.data, names)

    # -- clients -------------------------------------------------------------------------------

    def _clients_live(self) -> None:
        latest, rng = self.membership, self.rng
        for host in self.members.hosts.values():
            if not host.leaving and rng.random() < self._changing:
                self.fate.tally[self.data.change(host.name)] += 1
            if host.process is None:
                if not host.lost and rng.random() < self._returning:
                    self._bring_back(host)
            elif self.fate.strikes("client_killed"):
                host.kill()
                host.lost = self.fate.strikes("lost_for_good")
                self._log(f"{host.name} killed{', for good' if host.lost else ''}")
            elif _behind(host, latest) and rng.random() < 0.5:
                host.adopt(latest)

    def _bring_back(self, host: ClientHost) -> None:
        host.start()
        self.fate.tally["client returned"] += 1
        self._log(f"{host.name} returned")

    # -- the server ----------------------------------------------------------------------------

    def _server_lives(self) -> None:
        server = self.server
        if server.process is None:
            if self.rng.random() < self._returning:
                self._bring_server_back()
            return
        if self.fate.strikes("server_killed"):
            server.kill()
            self._log("server killed")
            return
        try:
            match server.process.stage:
                case Stage.IDLE:
                    self._operate()
                case Stage.DECIDED:
                    self._begin_stage(server.commit())
                case _:
                    self._wait()
        except KilledError as killed:
            self._log(str(killed))
        except RoundAbortedError as aborted:
            self._aborted(aborted)

    def _bring_server_back(self) -> None:
        exposed = self.server.store.ledger.exposed
        if exposed is not None and self.fate.strikes("pried"):
            # A server that pretends not to know whom it has unmasked: clients must.
            store = self.server.store
            self.server.store = replace(store, ledger=replace(store.ledger, exposed=None))
            self._pried = self._ever_pried = True
        self.server.start()
        self.fate.tally["server returned"] += 1
        self._log("server returned")

    def _aborted(self, aborted: RoundAbortedError) -> None:
        if aborted.__cause__ is not None:
            raise ViolationError(f"honest vectors did not add up: {aborted}")
        self._log(f"aborted: {aborted}")
        self.fate.tally["rounds aborted"] += 1
        if aborted.needs_new_epoch:
            self.fate.tally["aborted for want of a new epoch"] += 1
            self._waiting_for_epoch = self.rng.random() < 0.6

    def _wait(self) -> None:
        """End the stage when all have answered, or patience has; ask again in between."""
        server, waited = self.server.running, self.network.clock - self._stage_since
        if not server.waiting_for or waited >= PATIENCE or self.fate.strikes("impatient"):
            attempt = server.ledger.attempt
            messages = self.server.advance()
            if server.ledger.attempt != attempt:
                self.fate.tally["attempts with more room"] += 1
            self._begin_stage(messages)
        elif waited == ASK_AGAIN:
            late = set(server.waiting_for)
            self._send([message for message in self._asked if message.recipient in late])

    def _begin_stage(self, messages: list[Outgoing]) -> None:
        self._asked = messages
        self._stage_since = self.network.clock
        if self.server.running.stage is Stage.ADVERTISE:
            self.fate.tally["attempts"] += 1
        self._send(messages)

    def _operate(self) -> None:
        """Between rounds: a new epoch, a new round, or nothing."""
        if self._rounds_left <= 0 or self.rng.random() < 0.5:
            return
        if self.rng.random() < self._leaving:
            self.members.stay_or_go(self.membership)
        if self._waiting_for_epoch or self.rng.random() < self._churning:
            self._new_epoch(self._to_give_up())
            return
        self._rounds_left -= 1
        kind: Kind = "full" if self._full_is_needed else "delta"
        if not self.truth.counted or self.rng.random() < 0.15:
            kind = self.rng.choice(("full", "delta"))
        self._open(kind)

    def _open(self, kind: Kind) -> None:
        try:
            messages = self.server.open(kind)
        except RoundAbortedError:
            kind = "full"
            messages = self.server.open(kind)
        if kind == "full":
            self._full_is_needed = False
        self._log(f"opened {self.server.running.ledger.round}, {kind}")
        self.fate.tally[f"{kind} rounds"] += 1
        self._begin_stage(messages)

    def _to_give_up(self) -> tuple[str, ...]:
        """Members that do not answer and may never come back; now and then one that does."""
        hosts = [self.members.hosts[name] for name in self.membership.keys]
        chosen = [
            host.name
            for host in hosts
            if self.rng.random() < (0.7 if host.process is None else 0.05)
        ]
        return tuple(chosen[: len(hosts) - self.members.fewest])

    def _new_epoch(self, given_up: tuple[str, ...]) -> None:
        before = self.membership
        after = self.members.next(before, given_up)
        wanted = self.members.gone(before)
        departed = tuple(name for name in wanted if name not in after.keys)
        try:
            self.server.adopt(after, departed)
        finally:
            if self.membership is after:
                self._waiting_for_epoch = False
                self.truth.departed(departed)
                self.members.settle(after)
                self.fate.tally["epochs"] += 1
                self._log(f"epoch {after.epoch}: {', '.join(after.keys)}")

    # -- healing -------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Everybody is back and nothing is lost any more: the federation must become whole."""
        self._log("healed")
        self.fate.rates = Rates()
        self._changing = 0.0
        self._rounds_left = 0
        if self.server.process is None:
            self.server.start()
        for name in self.membership.keys:
            host = self.members.hosts[name]
            if host.process is None:
                self._bring_back(host)
            if _behind(host, self.membership):
                host.adopt(self.membership)
        if not self._healed_round(self._kind_for_all()):
            if not self._pried:
                raise ViolationError("everybody was there, and the round was aborted")
            self._renew()
            if not self._healed_round("full"):
                raise ViolationError("a full round of everybody in a new epoch was aborted")
        # Those exposed had to be counted by themselves first.
        alone = set(self.truth.survivors) != set(self.membership.keys)
        if alone and not self._healed_round(self._kind_for_all()):
            raise ViolationError("the round after that of the exposed ones was aborted")
        self._check_whole()

    def _kind_for_all(self) -> Kind:
        """A kind of round in which every member can take part."""
        names = self.membership.keys
        if any(self.members.hosts[name].amnesic for name in names):
            return "full"
        if not set(self.truth.counted) <= set(names):
            return "full"
        return "full" if self.rng.random() < 0.2 else "delta"

    def _renew(self) -> None:
        """A new epoch of the same members."""
        membership = self.members.renewed(self.membership)
        self.server.adopt(membership, ())
        for name in membership.keys:
            self.members.hosts[name].adopt(membership)

    def _healed_round(self, kind: Kind) -> bool:
        """Run a round to its end; returns whether it was committed."""
        self._open(kind)
        opened = self.server.running.ledger.round
        while self._busy:
            self._tick()
        return self.truth.committed[1] == opened

    def _check_whole(self) -> None:
        names = tuple(self.membership.keys)
        if set(self.truth.counted) != set(names):
            raise ViolationError(f"{sorted(self.truth.counted)} are counted, not {names}")
        total = Histogram.sum(len(self.data.levels), map(self.data.current, names))
        if self.server.store.aggregate != total:
            raise ViolationError("after the last round the aggregate is not everybody's data")
        if self.server.store.model != self.data.fresh_digest(names):
            raise ViolationError("after the last round the model is not that of a fresh fit")
        for name in names:
            ledger = self.members.hosts[name].ledger
            assert ledger is not None
            if ledger.committed != self.truth.committed:
                self._log(f"{name} has not yet heard of the last commit")
            self.truth.check_base(name, ledger, amnesic=False)
        self.view.check()


def _behind(host: ClientHost, latest: Membership) -> bool:
    return host.name in latest.keys and host.membership.epoch < latest.epoch
