"""Schedules with an honest server: faults, members that spoil, directories that were restored.

The federation lives through them, is healed, and must then become whole by the commands that its
errors name, which the operator here carries out.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from random import Random

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import leavers_since, opened_since
from fedforget.protocol.errors import (
    AloneError,
    BadShareError,
    BadSignatureError,
    ChangedParticipantsError,
    Finding,
    ForkError,
    FullRoundNeededError,
    MissingNoticeError,
    OlderDirectoryError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    SecondSurvivorSetError,
    SuspendedError,
    TooFewError,
    UnknownPartyError,
    WrongFederationError,
)
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Policy, PolicyError
from fedforget.protocol.history import walk
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import SERVER, Membership, SignedMembership
from fedforget.protocol.messages import Context, Letter, Notice, Payload, Present, RoundKind
from fedforget.protocol.server_stages import (
    Advertising,
    Asking,
    Consenting,
    Decided,
    Idle,
    Masking,
    Outgoing,
)
from simulator.amending import AmendmentPlans
from simulator.data import Data, DrawnData, RecordData
from simulator.faults import Fate, KilledError, Rates, ViolationError
from simulator.hosts import Answer, ClientHost
from simulator.members import Members
from simulator.network import Envelope, Network
from simulator.parties import Parties
from simulator.spoilers import SPOILERS, Mischief, spoiler
from simulator.truth import Truth
from simulator.view import ServerView

PATIENCE = 8
"""Ticks after which the server ends a stage with those who have answered."""

ASK_AGAIN = 4
"""Ticks after which it repeats its messages, byte for byte, to those who have not."""

MOST_TICKS = 900

SIZES = (3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 7, 8)

_STALE = (OutOfOrderError, UnknownPartyError, WrongFederationError, SuspendedError)
"""Why a message that is what its sender sent may be refused at any time."""

_RESTORED = (OlderDirectoryError, FullRoundNeededError, BadShareError)
"""Why a client may refuse that was restored, or has a new directory."""

_LOCKED = (SecondSurvivorSetError, TooFewError, ChangedParticipantsError)

_AFRESH = "server enrol --afresh"
_DROP = re.compile(r"drop ([^()]+) \(`server enrol --gone`\)")
_LEFT = re.compile(r"Nothing of (\S+) is counted: if it has left, .*\(server enrol --gone\)")
"""How an error asks to take members off the list."""

TROUBLES = ("none", "spoiler", "rollback", "client restored", "server restored", "new key")


def draw_policy(rng, n: int) -> Policy:  # type: ignore[no-untyped-def]
    """A policy under which n members can end a round."""
    policy = Policy(
        dropout=rng.choice((0.1, 0.1, 0.2, 0.3)), minimum=rng.choice((3, 3, 4)) if n > 3 else 3
    )
    try:
        policy.check(n)
    except PolicyError:
        return Policy()
    return policy


class HonestWorld:
    """Clients, a server, and a network between them."""

    def __init__(
        self,
        fate: Fate,
        parties: Parties,
        trouble: str | None = None,
        plans: Random | None = None,
    ) -> None:
        self._parties = parties
        rng = self.rng = fate.rng
        self.fate = fate
        self.trace: list[str] = []
        self._alone: set[str] = set()
        self._change_shows: set[str] = set()
        self.network = Network(fate)
        self.data: Data = RecordData(rng) if rng.random() < 0.04 else DrawnData(rng)
        identity = Identity(rng.randbytes(32))
        roll = rng.random()
        n_clients = 40 if roll < 0.001 else 12 if roll < 0.03 else rng.choice(SIZES)
        federation = Federation(
            identifier=rng.randbytes(16),
            configuration=rng.randbytes(32),
            server_key=identity.public,
            levels=self.data.levels,
            first_capacity=rng.randint(1, 4),
            policy=draw_policy(rng, n_clients),
        )
        self.members = Members(
            identity, federation, self.data, rng, self._new_host, max(8, n_clients)
        )
        other_bins = self.data.has_other_bins
        self._plans = None if plans is None else AmendmentPlans(plans, other_bins=other_bins)
        self.truth = Truth(self.data, self.members)
        self.view = ServerView(federation)
        signed = self.members.first(n_clients)
        self.server = parties.server_host(
            identity, federation, signed, self.data, fate, parties.server
        )
        self.members.publish(signed)
        self.trouble = trouble or rng.choice((*TROUBLES[:2], *TROUBLES))
        self._mischief: Mischief | None = None
        self._spoiler_kind = ""
        self._deed: tuple[int, frozenset[str]] = 0, frozenset()
        self._spoiler = ""
        self._complained = False
        self._victim = ""
        self._trouble_left = rng.randint(1, 2)
        self._trouble_at = rng.randint(5, 60)
        self._backups = []
        self._server_was_restored = self._server_behind = False
        self._prepare_trouble(n_clients)
        for name in self.members.hosts:
            self._bring_back(self.members.hosts[name])
        self.server.start()
        self._rounds_left = rng.randint(2, 5) if n_clients < 40 else 1
        self._returning = rng.choice((0.05, 0.2, 0.5))
        self._changing = rng.choice((0.0, 0.02, 0.1))
        self._churning = rng.choice((0.0, 0.1, 0.4))
        # What the server sent in this stage, and since when it waits.
        self._asked: list[Outgoing] = []
        self._stage_since = 0
        self._again = 0
        self._kind: RoundKind = "full"
        self._took_part: tuple[str, ...] = ()
        self._findings: list[Finding] = []
        self._corrupted = False
        self._locked_out = False
        self._suspects: list[str] = []
        self._tried: set[str] = set()
        self._suspect = ""
        self._blocked = self._more_needed = False
        self._refusal = ""
        self._named: set[str] = set()
        self._log(f"{n_clients} clients, {self.federation.policy}, {self.trouble}, {fate.rates}")

    def _log(self, event: str) -> None:
        self.trace.append(f"{self.network.clock:4d}  {event}")

    def _new_host(self, name: str, identity: Identity) -> ClientHost:
        host = self._parties.client_host(
            name,
            identity,
            replace(self.federation, earlier=()),
            self.data,
            self.fate,
            self._client_answers,
            self._parties.client,
        )
        host.alone = name in self._alone
        return host

    @property
    def federation(self) -> Federation:
        """In the version that people have seen last."""
        return self.members.federation

    @property
    def membership(self) -> Membership:
        return self.server.store.membership

    @property
    def _here(self) -> set[str]:
        """Names on the latest list that people have seen."""
        return set(self.members.latest.position)

    @property
    def _hosts(self) -> list[ClientHost]:
        """Those on the latest list."""
        return [self.members.hosts[name] for name in self.members.latest.position]

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
        process = self.server.process
        return process is not None and (not isinstance(process.stage, Idle) or self._again > 0)

    def _tick(self) -> None:
        for envelope in self.network.tick():
            self._deliver(envelope)
        try:
            self._make_trouble()
        except KilledError as killed:
            self._log(str(killed))
        if self._plans is not None and self._plans.due(self.network.clock):
            self._amend(self._plans)
        self._clients_live()
        self._server_lives()
        if self.truth.check_store(self.server.store):
            self._committed()

    def _committed(self) -> None:
        self._log(f"committed round {self.truth.state.round}: {self.truth.state.survivors}")
        self.fate.tally["rounds committed"] += 1
        self.fate.tally["rounds committed after an amendment"] += bool(self.federation.earlier)
        self.truth.histories.check(list(self.members.hosts.values()))

    # -- messages ------------------------------------------------------------------------------

    def _deliver(self, envelope: Envelope) -> None:
        if envelope.recipient == SERVER:
            self._deliver_to_server(envelope)
        elif envelope.recipient in self.members.hosts:
            self._deliver_to_client(self.members.hosts[envelope.recipient], envelope)

    def _deliver_to_server(self, envelope: Envelope) -> None:
        if self.server.process is None:
            return
        waiting = self.server.running.waiting_for
        try:
            if isinstance(Letter(envelope.data).content, Present):
                self.server.running.greet(envelope.data)
            else:
                self.server.receive(envelope.data)
        except ProtocolError as error:
            self._refused("server", envelope, error)
        if envelope.intact and self._spoiler in waiting:
            self._note_deed(envelope)

    def _note_deed(self, envelope: Envelope) -> None:
        """What a spoiler did has reached the server while it waited for that."""
        content = Letter(envelope.data).content
        if self._mischief is None or not isinstance(content, Payload):
            return
        if content.sender != self._spoiler or not self._is_of_this_attempt(content.context):
            return
        witnesses = self._mischief.witnesses(content.body)
        if witnesses is not None:
            self._deed = content.context.attempt, witnesses
            self.fate.tally["deeds of spoilers that arrived"] += 1
            if not witnesses:
                self._check_named(self.server.running.findings)

    def _is_of_this_attempt(self, context: Context) -> bool:
        stage = self.server.running.stage
        return not isinstance(stage, Idle | Asking) and stage.context == context

    def _is_seen(self, stage: Masking) -> bool:
        """Whether somebody who can notice what the spoiler did is among enough survivors."""
        attempt, witnesses = self._deed
        alive = stage.gathering.present
        try:
            stage.needed.check_present(alive)
        except ProtocolError:
            return False
        return attempt == stage.context.attempt and not witnesses.isdisjoint(alive)

    def _check_named(self, findings: Collection[Finding]) -> None:
        """Whoever spoils where the server or an honest survivor sees it is named, or in a pair."""
        if not any(self._spoiler in finding.members for finding in findings):
            raise ViolationError(
                f"{self._spoiler} spoilt the attempt ({self._spoiler_kind}) and is not named"
            )
        self.fate.tally[f"deeds by which a spoiler was named, {self._spoiler_kind}"] += 1

    def _deliver_to_client(self, host: ClientHost, envelope: Envelope) -> None:
        if host.process is None:
            return
        try:
            answer = host.receive(envelope.data)
        except ProtocolError as error:
            if isinstance(error, SecondSurvivorSetError) or _AFRESH in str(error):
                self._locked_out = True
            self._refused(host.name, envelope, error)
        except KilledError as killed:
            self._log(str(killed))
        else:
            if answer is not None:
                self.network.send(SERVER, answer)

    def _refused(self, who: str, envelope: Envelope, error: ProtocolError) -> None:
        if envelope.intact and not self._may_refuse(who, envelope, error):
            raise ViolationError(f"{who} refused an honest message: {error!r}")
        self._log(f"{who} refused: {type(error).__name__}: {error}")
        self.fate.tally[f"refused: {type(error).__name__}"] += 1

    def _may_refuse(self, who: str, envelope: Envelope, error: ProtocolError) -> bool:
        """Whether a party that does what it should can refuse this message for this reason."""
        if isinstance(error, _STALE):
            return True
        if self.trouble == "new key" and isinstance(error, BadSignatureError):
            return True
        if who == "server":
            content = Letter(envelope.data).content
            sender = content.sender if isinstance(content, Payload) else ""
            return sender in self.members.hosts and self.members.hosts[sender].troubled
        if self.members.hosts[who].troubled and isinstance(error, _RESTORED):
            return True
        if self._server_was_restored and isinstance(error, (ForkError, *_LOCKED, *_RESTORED)):
            return True
        if isinstance(error, AloneError) and (
            self._leaver_was_suspended
            or self.members.hosts[who].troubled
            or self._left_behind(self.members.hosts[who])
        ):
            return True
        # The set that was signed may not come out again under the same list: a command mends that.
        return isinstance(error, SecondSurvivorSetError)

    @property
    def _leaver_was_suspended(self) -> bool:
        """Whether a group was to leave of which somebody is suspended, or has not the new list yet.

        The others then cannot leave, and nothing else can come out at this place: they have to
        accept that they leave alone.
        """
        lock = self.server.store.ledger.lock
        return lock is not None and bool(lock.left) and lock.membership != self.membership.digest

    def _left_behind(self, host: ClientHost) -> bool:
        """Whether somebody who waited to leave took over other bins, and has nothing to report.

        Nobody can say in these bins what is counted of it, so it has to accept that this shows.
        """
        ledger = host.ledger
        return (
            bool(host.federation.earlier)
            and ledger is not None
            and ledger.leaving is not None
            and ledger.base is None
            and not len(host.current)
        )

    def _client_answers(self, host: ClientHost, answer: Answer) -> None:
        self.truth.client_answers(host, answer)
        assert host.membership is not None
        self.view.client_answers(host.name, host.membership, answer)
        if answer.step.answer is not None:
            content = Letter(answer.step.answer).content
            kind = type(content.body if isinstance(content, Payload) else content).__name__
            self._log(f"{host.name} answers {kind}")

    def _send(self, messages: list[Outgoing]) -> None:
        cut = len(messages)
        if messages and self.fate.strikes("server_killed_while_sending"):
            cut = self.rng.randrange(len(messages))
            self.server.kill()
            self._log("server killed while sending")
        names = tuple(self.members.hosts)
        for message in messages[:cut]:
            self.network.send(message.recipient, message.data, names)

    # -- clients -------------------------------------------------------------------------------

    def _clients_live(self) -> None:
        rng = self.rng
        for host in self._hosts:
            if not host.leaving and rng.random() < self._changing:
                self.fate.tally[self.data.change(host.name)] += 1
            if host.process is None:
                if host.away <= self.network.clock and rng.random() < self._returning:
                    self._bring_back(host)
            elif self.fate.strikes("client_killed"):
                host.kill()
                if self.fate.strikes("away_for_long"):
                    host.away = self.network.clock + rng.randint(40, 200)
                self._log(f"{host.name} killed, until {host.away}")
            elif host.stopped is not None and rng.random() < 0.05:
                self._recover(host)
            elif self.members.behind(host) and self._comes_to_it():
                self._catch_up(host)

    def _comes_to_it(self) -> bool:
        """Whether an operator takes over now what is new."""
        if self._plans is None:
            return self.rng.random() < 0.4
        return self._plans.rng.random() < self._plans.lateness

    def _bring_back(self, host: ClientHost) -> None:
        self._catch_up(host)
        if host.directory.lists:
            host.start()
            self._log(f"{host.name} is there")

    def _catch_up(self, host: ClientHost) -> None:
        """Take lists over; a client that was restored may have to hear of commits first."""
        try:
            self.members.catch_up(host, files=1.0 if self._plans is None else self._plans.files)
        except AloneError as error:
            # Its operator accepts what the list shows: all that it has if others of its group were
            # taken off, its change if others were suspended.
            before, host.alone = host.alone, True
            if "took part under every list" in str(error):
                self.members.catch_up(host, only_next=True)
                host.alone = before
                self._change_shows.add(host.name)
            self.fate.tally["accepted to join alone"] += 1
            self._catch_up(host)
        except PolicyError as error:
            if not self.members.behind(host):
                raise ViolationError(f"{host.name} refused an honest list: {error!r}") from error
            self._log(f"{host.name} lacks a file: {error}")
        except (ForkError, MissingNoticeError) as error:
            if not (host.troubled or self._server_was_restored):
                raise ViolationError(f"{host.name} refused an honest list: {error!r}") from error
            self._log(f"{host.name} refused a list: {error}")

    def _recover(self, host: ClientHost) -> None:
        if host.process is None:
            return
        host.recover()
        self.fate.tally["client recover"] += 1
        self._log(f"{host.name}: client recover")

    # -- trouble -------------------------------------------------------------------------------

    def _prepare_trouble(self, n_clients: int) -> None:
        names = sorted(self.members.hosts)
        self._victim = self.rng.choice(names)
        host = self.members.hosts[self._victim]
        if self.trouble == "spoiler":
            kind = self._spoiler_kind = self.rng.choice(tuple(SPOILERS))
            self._mischief = Mischief(self.rng, self.rng.choice((0.2, 0.6, 1.0)))
            host.party = spoiler(kind, self._mischief)
            host.troubled = True
            self._spoiler = self._victim
        elif self.trouble in ("rollback", "client restored"):
            host.keeps_backups = True

    def _make_trouble(self) -> None:
        if (
            self.network.clock < self._trouble_at
            or self._trouble_left <= 0
            or not self._rounds_left
        ):
            return
        if self.trouble in ("none", "spoiler") or self.rng.random() < 0.7:
            return
        host = self.members.hosts[self._victim]
        if host not in self._hosts or host.left:
            return
        match self.trouble:
            case "rollback" | "client restored" if host.backups:
                self._take_back(host)
            case "server restored" if self._backups and self.server.process is not None:
                self._restore_server()
            case "new key":
                self._lose_directory(host)
            case _:
                return
        self._trouble_left -= 1

    def _take_back(self, host: ClientHost) -> None:
        memory = self.trouble == "rollback"
        recent = host.backups[-6:] if memory else host.backups
        host.go_back(self.rng.choice(recent), memory=memory)
        self.fate.tally["rollbacks" if memory else "directories restored"] += 1
        assert host.ledger is not None
        self._log(f"{host.name} taken back to round {host.ledger.place.round}, memory {memory}")
        if not memory and self.rng.random() < 0.5:
            self._recover(host)

    def _restore_server(self) -> None:
        self.server.kill()
        self.server.store = self.rng.choice(self._backups)
        self.server.start()
        self.truth.recovered(self.server.store)
        self._server_was_restored = self._server_behind = True
        self._again = 0
        self.fate.tally["servers restored"] += 1
        self._log(f"server restored to round {self.server.store.ledger.place.round}")

    def _amend(self, plans: AmendmentPlans) -> None:
        """``server amend``, at any moment: an attempt under way is lost."""
        latest, ledger = self.members.latest, self.server.store.ledger
        if self._server_behind or latest.suspended or self.membership is not latest:
            return
        signed = self.members.amending(
            ledger.place,
            leavers=[leavers_since(ledger.place, ledger.lock)],
            opened=opened_since(ledger.place, ledger.lock),
        )
        # Whoever has erased its records to leave cannot report in other bins.
        leaving = any(host.leaving and not host.left for host in self._hosts)
        before, epoch = self.federation, signed.membership.epoch
        version = plans.version_after(before, epoch, len(latest), same_bins=leaving)
        tally = self.fate.tally
        tally["amendments"] += 1
        tally["amendments in the middle of a round"] += not self._server_idle
        tally["amendments with other bins"] += version.report != before.report
        more = version.policy.colluders(len(latest)) - before.policy.colluders(len(latest))
        tally["amendments with more colluders"] += more > 0
        tally["amendments with fewer colluders"] += more < 0
        self._again = 0
        self.server.amend(version, signed)
        self.members.amend(signed, version)
        self.view.amended(version)
        self._log(f"epoch {epoch} amends the federation: {version.policy}, bins {version.report!r}")

    def _lose_directory(self, host: ClientHost) -> None:
        """The key is lost with the directory: a new list gives the name a new key."""
        if self._server_idle:
            self.members.rekey(host.name)
            if self._new_list(full_due=True):
                self.fate.tally["new keys"] += 1
                self._log(f"{host.name} has a new key")

    @property
    def _server_idle(self) -> bool:
        return self.server.process is not None and isinstance(self.server.running.stage, Idle)

    # -- the server ----------------------------------------------------------------------------

    def _server_lives(self) -> None:
        server = self.server
        if server.process is None:
            if self.rng.random() < self._returning:
                server.start()
                self._again = 0
                self._log("server returned")
            return
        if self.fate.strikes("server_killed"):
            server.kill()
            self._log("server killed")
            return
        try:
            match server.running.stage:
                case Idle():
                    self._operate()
                case Decided():
                    self._begin_stage(server.commit())
                case Asking():
                    self._hear_greetings()
                case _:
                    self._wait()
        except KilledError as killed:
            self._log(str(killed))
        except RoundAbortedError as aborted:
            try:
                self._aborted(aborted)
            except KilledError as killed:
                self._log(str(killed))

    def _operate(self) -> None:
        """Between rounds: another attempt, a command, a new round, or nothing."""
        if self._again > 0:
            self._again -= 1
            self._open(self._kind)
            return
        if self._rounds_left <= 0 or self.rng.random() < 0.5:
            return
        if self.trouble == "server restored" and not self._server_was_restored:
            self._backups.append(self.server.store)
        if self._findings and self.rng.random() < 0.5:
            self._react()
        elif self.rng.random() < self._churning:
            self._churn()
        else:
            self._rounds_left -= 1
            self._ask()

    def _ask(self) -> None:
        self._complained = False
        if self.server.federation != self.federation:
            # Members say that the server has an earlier version: its operator knows the command.
            self.server.take_back(self.federation)
            self.server.start()
            self.fate.tally["server amend --restore"] += 1
            self._log("server amend --restore")
        question = self.server.running.ask()
        self._stage_since = self.network.clock
        self._asked = [Outgoing(name, question) for name in self.membership.position]
        self._send(self._asked)

    def _hear_greetings(self) -> None:
        server, waited = self.server.running, self.network.clock - self._stage_since
        if not server.waiting_for or waited >= PATIENCE or self.fate.strikes("impatient"):
            self._after_greetings()
        elif waited == ASK_AGAIN:
            late = set(server.waiting_for)
            self._send([message for message in self._asked if message.recipient in late])

    def _after_greetings(self) -> None:
        server = self.server.running
        place = server.ledger.place
        ahead = [one for one in server.present.values() if one.round > place.round]
        if ahead and not self._server_was_restored:
            raise ViolationError(f"{ahead[0].name} knows of a later round than the server")
        if self._server_behind and self._recover_server():
            server.abandon()
            return
        needs_full = [one.name for one in server.present.values() if one.needs_full]
        kind = server.kind_needed()
        if (needs_full and self.rng.random() < 0.7) or self.rng.random() < 0.1:
            kind = "full"
        self._again = 0
        self._kind = kind
        self._log(f"present: {sorted(server.present)}, {kind}")
        self._open(kind)

    def _recover_server(self) -> bool:
        """``server recover``, once everybody has answered; what nobody there knows is lost."""
        server = self.server.running
        if any(name not in server.present for name in self.membership.active if name in self._here):
            return False
        greetings = [(one.notices, one.lists, one.seen) for one in server.present.values()]
        greetings.append(((), [one.data for one in self.members.published], 0))
        found = self.server.recover(greetings)
        self.truth.recovered(self.server.store)
        self._server_behind = found > 0
        self.fate.tally["server recover"] += 1
        self._log(f"server recover: {found} commits")
        return True

    def _open(self, kind: RoundKind) -> None:
        self._complained = False
        messages = self.server.open(kind)
        self._log(f"opened attempt {self.server.running.ledger.attempt}, {kind}")
        self.fate.tally[f"{kind} rounds"] += 1
        self._begin_stage(messages)

    def _begin_stage(self, messages: list[Outgoing]) -> None:
        self._asked = messages
        self._stage_since = self.network.clock
        if isinstance(self.server.running.stage, Advertising):
            self.fate.tally["attempts"] += 1
            self._took_part = self.server.running.waiting_for
        self._send(messages)

    def _wait(self) -> None:
        """End the stage when all have answered, or patience has; ask again in between."""
        server, waited = self.server.running, self.network.clock - self._stage_since
        if not server.waiting_for or waited >= PATIENCE or self.fate.strikes("impatient"):
            self._log(f"{server.stage.title} ends without {server.waiting_for}")
            attempt, masking = server.ledger.attempt, isinstance(server.stage, Masking)
            seen = isinstance(server.stage, Masking) and self._is_seen(server.stage)
            try:
                messages = self.server.advance()
            finally:
                self._check_findings(server.findings)
                if seen:
                    self._check_named(server.findings)
            if server.ledger.attempt != attempt:
                self.fate.tally["attempts with more room"] += 1
            if masking and isinstance(server.stage, Consenting):
                self._took_part = server.stage.alive
            self._begin_stage(messages)
        elif waited == ASK_AGAIN:
            late = set(server.waiting_for)
            self._send([message for message in self._asked if message.recipient in late])

    def _aborted(self, aborted: RoundAbortedError) -> None:
        self._log(f"aborted: {aborted}")
        self._blocked = "take it off the list" in str(aborted)
        self._more_needed = "Enrol others first" in str(aborted)
        self._refusal = str(aborted)
        self.fate.tally["rounds aborted"] += 1
        self._check_findings(aborted.findings)
        self._findings = [one for one in aborted.findings if one.members]
        self._corrupted = any(not one.members for one in aborted.findings)
        if self._corrupted and self._spoiler_kind != "garbage vector":
            raise ViolationError(f"honest vectors did not add up: {aborted}")
        self.server.remember()
        if aborted.again and self._again == 0:
            self._again = 1

    def _check_findings(self, findings: Collection[Finding]) -> None:
        """Whoever is named misbehaves, and of a pair one does."""
        for finding in findings:
            if not finding.members:
                continue
            if not any(self.members.hosts[name].troubled for name in finding.members):
                raise ViolationError(f"honest members are blamed: {finding}")
            kind = "named" if len(finding.members) == 1 else "paired"
            if self._spoiler in finding.members and kind not in self._named:
                self._named.add(kind)

    # -- the operator --------------------------------------------------------------------------

    def _new_list(self, *, full_due: bool = False, **changes: Collection[str]) -> bool:
        """Make a list and give it to everybody; False if it would end all rounds."""
        if self._server_behind:
            return False
        ledger = self.server.store.ledger
        leavers = [leavers_since(ledger.place, ledger.lock)]
        opened = opened_since(ledger.place, ledger.lock)
        signed = self.members.next(ledger.place, leavers=leavers, opened=opened, **changes)
        if signed is None:
            return False
        self._publish(signed, full_due)
        return True

    def _publish(self, signed: SignedMembership, full_due: bool) -> None:
        try:
            self.server.adopt(signed, full_due=full_due)
        finally:
            if self.membership is signed.membership:
                self.members.publish(signed)
                self.fate.tally["lists"] += 1
                members = [
                    f"{one.name}{'*' if one.suspended else ''}" for one in signed.membership.members
                ]
                self._log(f"epoch {signed.membership.epoch}: {' '.join(members)}")
                for name in signed.membership.position:
                    host = self.members.hosts[name]
                    if not host.directory.lists:
                        self._bring_back(host)

    def _churn(self) -> None:
        """Somebody joins, leaves, is suspended, comes back, or is gone."""
        rng, place, latest = self.rng, self.server.store.ledger.place, self.members.latest
        counted = sorted(set(place.counted or ()) & set(latest.position))
        active = [name for name in counted if name not in latest.suspended]
        drop = self._departed()
        room = self.members.most - len(latest)
        match rng.choice(
            ("join", "join alone", "leave", "leave alone", "suspend", "back", "gone", "same")
        ):
            case "join" if room >= self.members.together(3):
                names = [self.members.newcomer() for _ in range(self.members.together(3))]
                self._tally_if("joined together", self._new_list(add=names, drop=drop))
            case "join alone" if room > 0:
                name = self.members.newcomer()
                self._alone.add(name)
                self._tally_if("joined alone", self._new_list(add=[name], drop=drop))
            case "leave" if len(active) >= self.members.together() + 3:
                for name in rng.sample(active, self.members.together()):
                    self._leave(name, alone=False)
                self._tally_if("wanted to leave together", True)
            case "leave alone" if len(active) > 3:
                self._leave(rng.choice(active), alone=True)
                self._tally_if("wanted to leave alone", True)
            case "suspend" if active:
                absent = [name for name in active if self.members.hosts[name].process is None]
                name = rng.choice(absent or active)
                self._tally_if("suspended", self._new_list(suspend=[name], drop=drop))
            case "back" if latest.suspended:
                self._tally_if("unsuspended", self._new_list(back=latest.suspended, drop=drop))
            case "gone" if len(latest) > 3:
                name = rng.choice(list(latest.position))
                self._tally_if("gone", self._new_list(drop=[name, *drop]))
            case _:
                self._tally_if("empty epochs", self._new_list(drop=drop))

    def _departed(self) -> list[str]:
        """Who wanted to leave and is no longer counted; it may not have heard of that yet."""
        counted = self.server.store.ledger.place.counted or {}
        return [
            name
            for name in self.members.latest.position
            if name not in counted and self.members.hosts[name].leaving
        ]

    def _tally_if(self, what: str, happened: bool) -> None:
        self.fate.tally[what] += happened

    def _leave(self, name: str, *, alone: bool) -> None:
        host = self.members.hosts[name]
        if host.process is not None and not host.leaving and host.stopped is None:
            if host.ledger is not None and host.ledger.base is None and not alone and self._plans:
                return
            host.leave(alone=alone)
            self._log(f"{name} wants to leave{' alone' if alone else ''}")

    def _react(self) -> None:
        """Suspend who is named, one of a pair, or suspects one after the other."""
        findings, self._findings = self._findings, []
        latest = self.members.latest
        counted = self.server.store.ledger.place.counted or {}
        chosen = next((one.members[0] for one in findings if len(one.members) == 1), None)
        if chosen is None:
            pool = [name for one in findings for name in one.members]
            pool = pool or list(self._took_part)
            chosen = next((name for name in pool if name not in self._tried), None)
        if chosen is None or chosen not in latest:
            return
        back = [name for name in latest.suspended if name not in {chosen}]
        self._tried.add(chosen)
        self._suspect = chosen
        self._log(f"suspects {chosen}")
        if chosen in counted:
            if self._can_do_without(chosen):
                self._tally_if("suspended", self._new_list(suspend=[chosen], back=back))
            else:
                self._cure()
        elif not self._new_list(drop=[chosen], back=back):
            self._cure()

    def _can_do_without(self, name: str) -> bool:
        """Whether deltas can go on with the others."""
        latest = self.members.latest
        counted = set(self.server.store.ledger.place.counted or ()) & set(latest.position)
        if not counted:
            return False
        here = self.federation.policy.thresholds(len(latest), len(counted))
        return len(counted - {name}) >= here.present >= here.signers

    def _cure(self) -> None:
        """There are too few members to go on without one: its machine is replaced."""
        if self._mischief is not None and not self._mischief.cured:
            self._mischief.cured = True
            self.fate.tally["cured"] += 1
            self._log("the spoiler was cured")

    # -- healing -------------------------------------------------------------------------------

    def _heal(self) -> None:
        """Everybody is back and nothing is lost any more: the federation must become whole."""
        self._log("healed")
        self.fate.rates = Rates()
        self._changing, self._returning = 0.0, 1.0
        self._rounds_left = 0
        self._trouble_left = 0
        if self._plans is not None:
            self._plans.moments, self._plans.lateness, self._plans.files = [], 1.0, 1.0
        if self.server.process is None:
            self.server.start()
        for _ in range(2 * len(self.membership) + 12):
            self._tend()
            before = self.fate.tally["rounds committed"]
            self._healed_round()
            if self.fate.tally["rounds committed"] > before:
                self._findings, self._corrupted, self._locked_out = [], False, False
                if self._whole():
                    break
        else:
            raise ViolationError("with everybody there, the federation does not become whole")
        self._settle()
        self._check_whole()
        self._summary()

    def _settle(self) -> None:
        """Let everything arrive that is on its way: who took part must follow the last commit."""
        for _ in range(PATIENCE):
            self._tick()
        place, notice = self.server.store.ledger.place, Letter(self.server.store.notices[-1])
        assert isinstance(notice.payload.body, Notice)
        for name in notice.payload.body.survivors:
            ledger = self.members.hosts[name].ledger
            if name != self._spoiler and (ledger is None or ledger.place.link != place.link):
                raise ViolationError(f"{name} does not follow round {place.round}")

    def _tend(self) -> None:
        """What the operators do before the next round."""
        for host in self._hosts:
            host.away = 0
            if host.process is None:
                self._bring_back(host)
            self._catch_up(host)
            if host.stopped is not None:
                self._recover(host)
        if self._server_behind:
            return
        for host in self._hosts:
            waits = host.leaving and not host.left
            if waits and (self._leaver_was_suspended or self._left_behind(host)):
                host.leave(alone=True)
                self.fate.tally["accepted to leave alone"] += 1
        latest = self.members.latest
        if self._findings or self._corrupted:
            self._react()
        if latest is self.members.latest:
            drop = self._departed()
            back = [name for name in latest.suspended if name != self._suspect]
            drop += self._told_to_drop(but_not=[*drop, *back])
            afresh = self._locked_out or _AFRESH in self._refusal
            if self._blocked and self._suspect in latest.suspended:
                drop.append(self._suspect)
            add: list[str] = []
            if len(latest) - len(drop) < 3 or self._more_needed:
                add = [self.members.newcomer() for _ in range(self.members.together(3))]
            if drop or back or add or afresh:
                while not self._new_list(drop=drop, back=back, add=add) and len(add) < 8:
                    more = 1 if add else self.members.together(4)
                    add += [self.members.newcomer() for _ in range(more)]
                self._more_needed = False
                self._locked_out = False
                self._refusal = ""
        for host in self._hosts:
            self._catch_up(host)

    def _told_to_drop(self, but_not: Collection[str]) -> list[str]:
        """Whom the last refusal asks to take off the list; nothing milder helped."""
        asked = _DROP.search(self._refusal)
        names = [] if asked is None else asked[1].split(", ")
        left = _LEFT.search(self._refusal)
        if left is not None and self.members.hosts[left[1]].troubled:
            # It was restored to a moment before it left, and says that it has left.
            names.append(left[1])
        found = [name for name in names if name in self.members.latest and name not in but_not]
        if found:
            self._log(f"drops {' '.join(found)}, as the error says")
            self.fate.tally["dropped because an error asked for it"] += 1
        return found

    def _healed_round(self) -> None:
        """Run a round to its end."""
        self._ask()
        while self._busy:
            self._tick()

    def _whole(self) -> bool:
        """Whether everybody who can be is counted with what it has now."""
        if self.server.store.ledger.full_due or any(map(self.members.behind, self._hosts)):
            return False
        return all(self._is_counted(host) for host in self._hosts)

    def _is_counted(self, host: ClientHost) -> bool:
        latest = self.members.latest
        if host.name in latest.suspended or host.name == self._spoiler or host.left:
            return True
        counted = self.truth.state.counted.get(host.name)
        if counted is None:
            return False
        return host.leaving or counted.histogram == host.current

    def _check_whole(self) -> None:
        names = tuple(sorted(self.truth.state.counted))
        if self.server.store.aggregate != self.truth.expected:
            raise ViolationError("after the last round the aggregate is not what was counted")
        plain = not self._spoiler and not any(self.members.hosts[name].leaving for name in names)
        plain = plain and not set(names) & self.members.latest.suspended
        if plain:
            each = (self.members.hosts[name].current for name in names)
            total = Histogram.sum(len(self.data.levels), each)
            if self.server.store.aggregate != total:
                raise ViolationError("after the last round the aggregate is not everybody's data")
            if self.server.store.model != self.data.fresh_digest(names, self.federation.report):
                raise ViolationError("after the last round the model is not that of a fresh fit")
        self.truth.histories.check(list(self.members.hosts.values()))
        self._check_notices_stay_valid()
        hosts = self.members.hosts
        alone = {
            name
            for name, host in hosts.items()
            if host.alone or (host.ledger and host.ledger.leaving and host.ledger.leaving.alone)
        }
        self.fate.tally["sums that show"] += self.view.check(
            troubled=[name for name, host in hosts.items() if host.troubled],
            shows_whole=alone | self.members.gone,
            shows_change=self.members.suspended_once | self._change_shows,
        )

    def _check_notices_stay_valid(self) -> None:
        """What receipts hold, of any version, is valid for everybody who keeps it."""
        for host in self._hosts:
            if host.troubled or self._server_was_restored or host.ledger is None or host.left:
                continue
            letters = [data for _, data in host.directory.notices]
            try:
                place = walk(host.directory.memberships, letters, host.federation)
            except ProtocolError as error:
                raise ViolationError(
                    f"{host.name} keeps a commit that is not valid any more: {error}"
                ) from error
            if place != host.ledger.place:
                raise ViolationError(f"{host.name} stands at another commit than those it keeps")

    def _summary(self) -> None:
        if self._mischief is not None and self._mischief.done:
            how = "named" if "named" in self._named else "paired" if self._named else "unnamed"
            self.fate.tally[f"spoiler, {self._spoiler_kind}: {how}"] += 1
