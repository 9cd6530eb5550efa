"""Schedules with a server that lies, and members that help it.

The server has every message on its way, says anything to anyone, and tells each client another
story.  Up to c members collude or are taken back to earlier moments: colluders sign and reveal
anything.  What the server must not get is in :mod:`simulator.view`; besides, no two clients that
hold the same list may follow different commits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from random import Random

from msgspec.structs import replace

from fedforget.protocol.client_ledger import Followed, leavers_since
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Graph, Policy, PolicyError
from fedforget.protocol.history import Place, counted_after, place_of
from fedforget.protocol.keys import Agreement, Identity
from fedforget.protocol.membership import EVERYONE, SERVER, Membership, SignedMembership
from fedforget.protocol.messages import (
    SEALED_SHARES_BYTES,
    Advertise,
    Body,
    Consent,
    Context,
    Delivery,
    LeaveStatement,
    Letter,
    Notice,
    Open,
    Payload,
    Roster,
    RoundKind,
    SealedShares,
    Shares,
    Survivors,
    Unmask,
    consent_to,
    leave_statement,
    seal,
    view_of,
)
from fedforget.protocol.rules import requirements
from fedforget.protocol.shares import HASH_BYTES
from simulator.amending import AmendmentPlans
from simulator.data import DrawnData
from simulator.faults import Fate, Rates
from simulator.honest import SIZES, draw_policy
from simulator.hosts import Answer, Backup, ClientHost
from simulator.members import Members
from simulator.parties import Parties
from simulator.truth import Histories
from simulator.view import ServerView

Names = tuple[str, ...]


@dataclass
class Line:
    """One story that the server tells in one attempt, to some of the clients."""

    context: Context
    membership: Membership
    group: set[str]
    advertisements: dict[str, bytes] = field(default_factory=dict)
    roster: Names = ()
    dealt: dict[str, Shares] = field(default_factory=dict)
    sharers: Names = ()
    masked: set[str] = field(default_factory=set)
    alive: Names = ()
    consents: dict[str, bytes] = field(default_factory=dict)

    @property
    def dead(self) -> Names:
        return tuple(name for name in self.sharers if name not in self.alive)

    @property
    def view(self) -> bytes:
        return view_of(self.roster, self.sharers, self.dead)

    @property
    def statement(self) -> bytes:
        return consent_to(self.context, self.alive, self.view)

    def copy(self, group: Iterable[str]) -> Line:
        """The same story so far, told to others."""
        return changed(
            self,
            group=set(group),
            advertisements=dict(self.advertisements),
            dealt=dict(self.dealt),
            masked=set(self.masked),
            consents=dict(self.consents),
        )


class LyingWorld:
    """Honest clients, a lying server, and its accomplices."""

    def __init__(
        self,
        fate: Fate,
        parties: Parties,
        trouble: str | None = None,
        plans: Random | None = None,
    ) -> None:
        del trouble
        self.fate = fate
        fate.rates = Rates()
        self.rng: Random = fate.rng
        self.trace: list[str] = []
        self._parties = parties
        self._data = DrawnData(self.rng)
        self._plans = None if plans is None else AmendmentPlans(plans, other_bins=True)
        self._identity = Identity(self.rng.randbytes(32))
        n_clients = 12 if self.rng.random() < 0.03 else self.rng.choice(SIZES)
        self.federation = Federation(
            identifier=self.rng.randbytes(16),
            configuration=self.rng.randbytes(32),
            server_key=self._identity.public,
            levels=self._data.levels,
            first_capacity=self.rng.randint(1, 4),
            policy=draw_policy(self.rng, n_clients),
        )
        self._versions = {self.federation.configuration: self.federation}
        self._alone: set[str] = set()
        self.members = Members(
            self._identity,
            self.federation,
            self._data,
            self.rng,
            self._new_host,
            max(8, n_clients),
            keeps_the_dropped=True,
        )
        self.histories = Histories()
        signed = self.members.first(n_clients)
        bad = self._draw_bad(signed.membership)
        self._colluders = frozenset(bad[: self.rng.randint(0, len(bad))])
        self.view = ServerView(self.federation, self._colluders)
        self.members.publish(signed)
        for name in bad:
            self.members.hosts[name].keeps_backups = name not in self._colluders
        for host in self._honest:
            self.members.catch_up(host)
            host.start()
        self._commits: dict[bytes, tuple[Place, bytes, bytes]] = {}
        self._places: list[Place] = [Place()]
        self._past: list[tuple[str, bytes]] = []
        self._agreements: dict[str, Agreement] = {}
        self._attempt = 0
        self._drops = self._splits = 0
        self._hides = False
        self._log(f"{n_clients} clients, {self.federation.policy}, against {bad}")

    def _draw_bad(self, membership: Membership) -> list[str]:
        """Those who collude, or will be taken back: at most c."""
        c = self.federation.policy.colluders(len(membership))
        return self.rng.sample(list(membership.position), self.rng.choice((0, c, c)))

    def _log(self, event: str) -> None:
        self.trace.append(event)

    def _tell(self, event: str, happened: int = 1) -> None:
        self.fate.tally[event] += happened

    def _new_host(self, name: str, identity: Identity) -> ClientHost:
        host = self._parties.client_host(
            name,
            identity,
            changed(self.members.federation, earlier=()),
            self._data,
            self.fate,
            self._client_answers,
            self._parties.client,
        )
        host.alone = name in self._alone
        return host

    @property
    def _honest(self) -> list[ClientHost]:
        return [host for name, host in self.members.hosts.items() if name not in self._colluders]

    def _client_answers(self, host: ClientHost, answer: Answer) -> None:
        assert host.membership is not None
        self.view.client_answers(host.name, host.membership, answer)
        for event in answer.step.events:
            if isinstance(event, Followed):
                payload = Letter(event.letter).payload
                assert isinstance(payload.body, Notice)
                link = place_of(payload.context, payload.body).link
                self.histories.follows(host.name, event.round, link)
                self._log(f"{host.name} follows round {event.round}, {link.hex()[:6]}")

    # -- the schedule --------------------------------------------------------------------------

    def play(self) -> None:
        """The server tries this and that, and is then judged."""
        for _ in range(self.rng.randint(6, 14)):
            for host in self._honest:
                if self.rng.random() < 0.1 and not host.leaving:
                    self._data.change(host.name)
            self._move()()
            self.histories.check(self._honest)
        hosts = self.members.hosts
        alone = {
            name
            for name, host in hosts.items()
            if host.alone or (host.ledger and host.ledger.leaving and host.ledger.leaving.alone)
        }
        shown = self.view.check(
            troubled=[name for name, host in hosts.items() if host.troubled],
            shows_whole=alone | self.members.gone,
            shows_change=self.members.suspended_once,
        )
        self._tell("sums that show, to a lying server", shown)

    def _move(self) -> Callable[[], None]:
        moves = {
            self._run_attempt: 8,
            self._plot: 3,
            self._make_list: 2,
            self._adopt_late: 1,
            self._forge_notice: 2,
            self._replay: 1,
            self._take_back: 1,
            self._let_leave: 1,
        }
        if self._plans is not None:
            moves[self._amend] = 3
        return self.rng.choices(list(moves), list(moves.values()))[0]

    def _ask(self, name: str, data: bytes) -> Body | None:
        """Give a client a message; what it answers, None if it refuses or is not there."""
        host = self.members.hosts.get(name)
        if host is None or host.process is None or name in self._colluders:
            return None
        self._past.append((name, data))
        try:
            answer = host.receive(data)
        except ProtocolError as error:
            self._tell(f"lie refused: {type(error).__name__}")
            self._log(f"{name} refused: {type(error).__name__}: {error}")
            return None
        if answer is None:
            return None
        content = Letter(answer).content
        return content.body if isinstance(content, Payload) else None

    def _say(self, name: str, context: Context, body: Body) -> Body | None:
        return self._ask(name, seal(Payload(context, SERVER, name, body), self._identity))

    def _some(self, names: Iterable[str], least: int = 1) -> Names:
        """Everybody, or everybody except for some whom the server has chosen."""
        names = sorted(names)
        while len(names) > least and self._drops and self.rng.random() < 0.4:
            names.remove(self.rng.choice(names))
            self._drops -= 1
        return tuple(names)

    def _parts(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        share = self.rng.choice((0.5, 0.8, 0.9))
        first = {name for name in sorted(names) if self.rng.random() < share}
        return first, set(names) - first

    # -- attempts ------------------------------------------------------------------------------

    def _run_attempt(self) -> None:
        self._drops = self.rng.choice((0, 0, 0, 0, 1, 1, 2))
        self._splits = self.rng.choice((0, 0, 0, 1, 1, 2))
        self._hides = self.rng.random() < 0.3
        if self.rng.random() < 0.85:
            self._adopt_late()
        context, membership, leavers = self._draw_context()
        if context.kind == "full" and self.rng.random() < 0.8:
            # Everybody must be there, and the server knows that.
            self._drops = 0
        self._tell_attempt(context, membership, leavers)

    def _plot(self) -> None:
        """A sum that nobody hears of, then a list, and another sum at the same place."""
        self._adopt_late()
        self._drops = self._splits = 0
        self._hides = True
        self._tell("plots")
        self._tell_attempt(*self._draw_context(straight=True))
        if self._plans is not None and self._plans.rng.random() < 0.5:
            self._amend(straight=True)
        elif self.rng.random() < 0.8:
            self._make_list(straight=True)
        self._adopt_late()
        self._drops = self.rng.choice((0, 1))
        self._hides = self.rng.random() < 0.3
        self._tell_attempt(*self._draw_context(straight=True))

    def _tell_attempt(
        self, context: Context, membership: Membership, leavers: tuple[LeaveStatement, ...]
    ) -> None:
        self._tell("attempts of a lying server")
        members = set(membership.position)
        line = Line(context, membership, members)
        before = {}
        for host in self._honest:
            if host.keeps_backups and host.process is not None and self.rng.random() < 0.3:
                host.back_up()
                before[host.name] = host.backups[-1]
        lines = [line]
        if self._splits and self.rng.random() < 0.25:
            self._splits -= 1
            self._tell("split contexts")
            one, other = self._parts(members)
            lines = [
                Line(context, membership, one),
                Line(self._another(context), membership, other),
            ]
        for one_line in lines:
            self._log(
                f"attempt {context.attempt}, {one_line.context.kind}, round {context.round},"
                f" epoch {context.epoch}, leaving {context.leaving} to {len(one_line.group)}"
            )
            self._open(one_line, leavers)
        for one_line in lines:
            self._announce(one_line)
        for name, backup in before.items():
            self._ask_once_more(lines[0], name, backup, leavers)

    def _ask_once_more(
        self, line: Line, name: str, backup: Backup, leavers: tuple[LeaveStatement, ...]
    ) -> None:
        """Take a client back to before the attempt, and ask it for the same attempt again."""
        if name not in line.roster or name not in line.sharers:
            return
        self.members.hosts[name].go_back(backup, memory=True)
        self._tell("rollbacks")
        self._data.change(name)
        context, graph = line.context, self._graph(line)
        opening = Open(tuple(self._missing_at(name, context.last)), leavers)
        if self._say(name, context, opening) is None:
            return
        near = graph.neighbours(name)
        keys = tuple(line.advertisements[other] for other in near)
        self._say(name, context, Roster(line.roster, keys))
        box = tuple(
            self._sealed_for(line, graph, other, name) for other in near if other in line.sharers
        )
        self._say(name, context, Delivery(line.sharers, box))

    def _draw_context(
        self, *, straight: bool = False
    ) -> tuple[Context, Membership, tuple[LeaveStatement, ...]]:
        rng = self.rng
        held = [host.membership for host in self._honest if host.membership is not None]
        straight = straight or rng.random() < 0.7
        membership = self.members.latest if straight else rng.choice(held)
        place = self._places[-1] if straight else rng.choice(self._places)
        version = self._draw_version(membership)
        kind = self._draw_kind(membership, place, version.policy)
        leavers = self._leavers(membership, place)
        # A client that was taken back may be asked for the same number twice.
        again = rng.random() < 0.05 and self._attempt > 0
        self._attempt += not again
        full = membership.capacity
        least = min(version.first_capacity, 2 * full)
        context = Context(
            federation=self.federation.identifier,
            configuration=version.configuration,
            membership=membership.digest,
            epoch=membership.epoch,
            last=place.link,
            last_attempt=place.attempt,
            model=place.model,
            round=place.round + 1,
            attempt=self._attempt,
            kind=kind,
            capacity=full if kind == "full" else rng.randint(least, 2 * full),
            salt=rng.randbytes(16),
            leaving=tuple(one.name for one in leavers),
            alone=tuple(one.name for one in leavers if one.alone),
        )
        return context, membership, leavers

    def _draw_version(self, membership: Membership) -> Federation:
        """A version that somebody with this list knows, mostly."""
        if self._plans is None:
            return self.federation
        rng = self._plans.rng
        if rng.random() < 0.08:
            return rng.choice(list(self._versions.values()))
        held = [one.federation for one in self._honest if one.membership == membership]
        # What most of them know is what a round can come of.
        known = [one.configuration for one in held] or [self.members.federation.configuration]
        often = max(known, key=known.count) if rng.random() < 0.7 else rng.choice(known)
        return self._versions[often]

    def _draw_kind(self, membership: Membership, place: Place, policy: Policy) -> RoundKind:
        """A kind that clients may accept, mostly."""
        kinds: list[RoundKind] = ["full", "delta"]
        if self.rng.random() < 0.9:
            for kind in ("full", "delta"):
                try:
                    requirements(kind, membership, place.counted or {}, policy)  # type: ignore[arg-type]
                except ProtocolError:
                    kinds.remove(kind)  # type: ignore[arg-type]
        return self.rng.choice(kinds or ["full"])

    def _leavers(self, membership: Membership, place: Place) -> tuple[LeaveStatement, ...]:
        """Statements of those who want to leave, and of colluders who say that they do."""
        found = {}
        where = self.federation.identifier, membership.digest, place.link
        for host in self._honest:
            if host.name in membership and host.process is not None and host.leaving:
                statement = host.process._leave_statement()
                if statement is not None:
                    found[host.name] = statement
        if found or self.rng.random() < 0.1:
            for name in self._colluders & set(membership.position):
                signed = self.members.identity(name).sign(leave_statement(where, name, False))
                found[name] = LeaveStatement(name, False, signed)
        names = self._some(found, 0) if self.rng.random() < 0.8 else ()
        return tuple(found[name] for name in names)

    def _another(self, context: Context) -> Context:
        """The same attempt, told otherwise."""
        if self._plans is not None and self._plans.rng.random() < 0.3:
            version = self._plans.rng.choice(list(self._versions.values()))
            return replace(context, configuration=version.configuration)
        match self.rng.randrange(4):
            case 0:
                return replace(context, salt=self.rng.randbytes(16))
            case 1:
                self._attempt += 1
                return replace(context, attempt=self._attempt)
            case 2:
                return replace(context, leaving=(), alone=())
            case _:
                kind: RoundKind = "full" if context.kind == "delta" else "delta"
                return replace(context, kind=kind)

    def _open(self, line: Line, leavers: tuple[LeaveStatement, ...]) -> None:
        context = line.context
        said = leavers if context.leaving else ()
        for name in self._shuffled(line.group):
            if name in self._colluders:
                continue
            opening = Open(tuple(self._missing_at(name, context.last)), said)
            body = self._say(name, context, opening)
            if isinstance(body, Advertise):
                line.advertisements[name] = self._signed(name, context, body)
        for name in self._colluders & set(line.membership.active):
            agreement = self._agreements.setdefault(name, Agreement(self.rng.randbytes(32)))
            body = Advertise(agreement.public.data, agreement.public.data)
            line.advertisements[name] = self._signed(name, context, body)

    def _signed(self, name: str, context: Context, body: Body) -> bytes:
        # The server has the letter itself; signing it again gives the same bytes.
        return seal(Payload(context, name, SERVER, body), self.members.identity(name))

    def _missing_at(self, name: str, link: bytes) -> list[bytes]:
        """The commits on the way from where a client stands to a place."""
        ledger = self.members.hosts[name].ledger
        known = 0
        if ledger is not None:
            known = ledger.place.round - (ledger.place.counted is None)
        letters: list[bytes] = []
        while link in self._commits and self._commits[link][0].round > known:
            _, link, letter = self._commits[link]
            letters.append(letter)
        return letters[::-1]

    def _shuffled(self, names: Iterable[str]) -> list[str]:
        names = sorted(names)
        self.rng.shuffle(names)
        return names

    def _told(self, line: Line, what: str, go_on: Callable[[Line], None]) -> None:
        """Go on with one story, or with two of them for two parts of the clients."""
        honest = line.group - self._colluders
        if not self._splits or self.rng.random() < 0.6 or len(honest) < 2:
            go_on(line)
            return
        self._splits -= 1
        self._tell(f"split {what}")
        one, other = self._parts(honest)
        twice = {name for name in honest if self.members.hosts[name].keeps_backups}
        before = {}
        for name in twice:
            host = self.members.hosts[name]
            if host.process is not None:
                host.back_up()
                before[name] = host.backups[-1]
        go_on(line.copy(one | self._colluders | twice))
        for name, backup in before.items():
            # In the middle of an attempt, its memory included.
            self.members.hosts[name].go_back(backup, memory=True)
            self._tell("rollbacks")
        go_on(line.copy(other | self._colluders | twice))

    def _announce(self, line: Line) -> None:
        self._told(line, "rosters", self._share)

    def _share(self, line: Line) -> None:
        line.roster = self._some(line.advertisements)
        if not line.roster:
            return
        graph = self._graph(line)
        for name in self._shuffled(set(line.roster) & line.group - self._colluders):
            near = tuple(line.advertisements[other] for other in graph.neighbours(name))
            body = self._say(name, line.context, Roster(line.roster, near))
            if isinstance(body, Shares):
                line.dealt[name] = body
        self._told(line, "sharers", self._deliver)

    def _graph(self, line: Line) -> Graph:
        n, policy = len(line.membership), self._versions[line.context.configuration].policy
        return Graph.of(line.context.digest, line.roster, n, policy)

    def _deliver(self, line: Line) -> None:
        shared = set(line.dealt) | (self._colluders & set(line.roster))
        if self.rng.random() < 0.05:
            shared = set(line.roster)
        line.sharers = self._some(shared)
        graph = self._graph(line)
        for name in self._shuffled(set(line.sharers) & set(line.dealt) & line.group):
            near = [other for other in graph.neighbours(name) if other in line.sharers]
            box = tuple(self._sealed_for(line, graph, other, name) for other in near)
            if self._say(name, line.context, Delivery(line.sharers, box)) is not None:
                line.masked.add(name)
        self._told(line, "survivors", self._ask_consent)

    def _sealed_for(self, line: Line, graph: Graph, dealer: str, name: str) -> SealedShares:
        if dealer in line.dealt:
            at = graph.neighbours(dealer).index(name)
            return replace(line.dealt[dealer].dealt[at], name=dealer)
        noise = self.rng.randbytes(SEALED_SHARES_BYTES)
        return SealedShares(dealer, noise, bytes(HASH_BYTES), bytes(HASH_BYTES))

    def _ask_consent(self, line: Line) -> None:
        arrived = line.masked | (self._colluders & set(line.sharers))
        if self.rng.random() < 0.05:
            arrived = set(line.sharers)
        line.alive = self._some(arrived)
        if self.rng.random() < 0.03:
            # Somebody alive and dead at once.
            line.sharers = line.sharers[1:]
        asked = Survivors(line.alive, line.dead)
        line.consents = {}
        for name in self._shuffled(set(line.alive) & line.masked & line.group):
            body = self._say(name, line.context, asked)
            if isinstance(body, Consent):
                line.consents[name] = body.signature
        for name in self._colluders & set(line.alive):
            line.consents[name] = self.members.identity(name).sign(line.statement)
        self._unmask(line)

    def _unmask(self, line: Line) -> None:
        request = Unmask(tuple(sorted(line.consents.items())))
        revealed = [
            name
            for name in self._shuffled(set(line.consents) - self._colluders)
            if self._say(name, line.context, request) is not None
        ]
        self._log(
            f"alive {line.alive}, signed {sorted(line.consents)}, revealed {sorted(revealed)}"
        )
        if line.consents:
            self._commit(line)

    # -- notices -------------------------------------------------------------------------------

    def _notice(self, line: Line) -> tuple[Place, bytes] | None:
        before = next((one for one in self._places if one.link == line.context.last), None)
        if before is None:
            return None
        left, counted = counted_after(line.context, before.counted or {}, line.alive)
        notice = Notice(
            survivors=line.alive,
            left=left,
            counted=tuple(sorted(counted.items())),
            view=line.view,
            model=self.rng.randbytes(32),
            time=0,
            consents=tuple(sorted(line.consents.items())),
        )
        return place_of(line.context, notice), self._letter(line.context, notice)

    def _letter(self, context: Context, notice: Notice) -> bytes:
        return seal(Payload(context, SERVER, EVERYONE, notice), self._identity)

    def _commit(self, line: Line) -> None:
        """A commit in truth, told to everybody, to some, or to nobody; with lies about it."""
        made = self._notice(line)
        if made is None:
            return
        place, letter = made
        apart = [name for name in line.membership.active if name not in line.consents]
        if self.rng.random() < (0.6 if apart else 0.2):
            self._send_forged(line.context, letter, apart)
        if self._hides:
            self._tell("notices hidden")
            return
        before = {host.name: host.ledger for host in self._honest}
        for name in self._some(before, 0) if self.rng.random() < 0.7 else self._parts(before)[0]:
            self._ask(name, letter)
        followed = [
            host
            for host in self._honest
            if host.ledger is not None and host.ledger.place.link == place.link
        ]
        if followed:
            self._tell("rounds committed by a lying server")
            amended = bool(self._versions[line.context.configuration].earlier)
            self._tell("rounds of a lying server after an amendment", amended)
            self._commits.setdefault(place.link, (place, line.context.last, letter))
            self._places.append(self._commits[place.link][0])

    def _forge_notice(self) -> None:
        if self._commits:
            link = self.rng.choice(list(self._commits))
            _, _, letter = self._commits[link]
            self._send_forged(Letter(letter).payload.context, letter)

    def _send_forged(self, context: Context, letter: bytes, unsigned: Collection[str] = ()) -> None:
        """A notice with something changed, for one client alone or for several."""
        notice = Letter(letter).payload.body
        assert isinstance(notice, Notice)
        rng = self.rng
        match 7 if unsigned and rng.random() < 0.5 else rng.randrange(8):
            case 0 if len(notice.survivors) > 1:
                gone = rng.choice(notice.survivors)
                survivors = tuple(name for name in notice.survivors if name != gone)
                before = next(one for one in self._places if one.link == context.last)
                left, counts = counted_after(context, before.counted or {}, survivors)
                counted = tuple(sorted(counts.items()))
                notice = replace(notice, survivors=survivors, left=left, counted=counted)
            case 1 if notice.counted:
                gone = rng.choice(notice.counted)
                counted = tuple(entry for entry in notice.counted if entry != gone)
                notice = replace(notice, counted=counted)
            case 2:
                notice = replace(notice, model=rng.randbytes(32))
            case 3:
                notice = replace(notice, consents=notice.consents[1:])
            case 4:
                signed = {
                    name: self.members.identity(name).sign(rng.randbytes(8))
                    for name in self._colluders
                }
                notice = replace(notice, consents=tuple(sorted(signed.items())))
            case 5:
                context = replace(context, attempt=rng.randint(1, self._attempt + 1))
            case 6:
                context = replace(context, kind="full" if context.kind == "delta" else "delta")
            case _:
                left = (rng.choice(notice.survivors),)
                context = replace(context, leaving=left, alone=left)
                counted = tuple(entry for entry in notice.counted if entry[0] not in left)
                notice = replace(notice, left=left, counted=counted)
        forged = self._letter(context, notice)
        self._tell("forged notices")
        names = [host.name for host in self._honest]
        # Who has signed other survivors would not follow; who was left out may.
        apart = [name for name in names if name in unsigned]
        for name in apart or rng.sample(names, rng.choice((1, 1, len(names)))):
            self._ask(name, forged)
        if rng.random() < 0.3:
            self._places.append(place_of(context, notice))

    # -- other moves ---------------------------------------------------------------------------

    def _replay(self) -> None:
        for _ in range(5):
            if self._past:
                name, data = self.rng.choice(self._past)
                others = [host.name for host in self._honest]
                self._ask(self.rng.choice((name, name, self.rng.choice(others))), data)
                self._tell("replayed lies")

    def _take_back(self) -> None:
        able = [
            host
            for host in self._honest
            if host.keeps_backups and host.backups and host.process is not None
        ]
        for host in able:
            memory = self.rng.random() < 0.5
            host.go_back(self.rng.choice(host.backups), memory=memory)
            self._tell("rollbacks" if memory else "directories restored")
            self._log(f"{host.name} taken back")
            if self.rng.random() < 0.3:
                host.recover()
                self._tell("client recover")

    def _let_leave(self) -> None:
        able = [
            host
            for host in self._honest
            if host.process is not None and not host.leaving and host.ledger is not None
        ]
        if self._plans is not None:
            # Whoever does not know what is counted of it must wait for a full round.
            able = [host for host in able if host.ledger and host.ledger.base is not None]
        if not able:
            return
        if self.rng.random() < 0.4:
            self.rng.choice(able).leave(alone=True)
            self._tell("wanted to leave alone")
        else:
            for host in self.rng.sample(able, min(len(able), self.members.together())):
                host.leave(alone=False)
            self._tell("wanted to leave together")

    def _adopt_late(self) -> None:
        for host in self._honest:
            if self.members.behind(host):
                self._adopt(host)

    def _adopt(self, host: ClientHost, *, files: float = 0.85) -> None:
        try:
            self.members.catch_up(host, files=1.0 if self._plans is None else files)
        except (ProtocolError, PolicyError) as error:
            self._tell(f"list refused: {type(error).__name__}")
            self._log(f"{host.name} refused a list: {error}")
        if host.process is None and host.directory.lists:
            host.start()

    def _amend(self, *, straight: bool = False) -> None:
        """The next version, told as it is, in two ways, or with a list that changes the members.

        ``straight`` if everybody is to go on with it, and with rounds of changes at once.
        """
        assert self._plans is not None
        rng, latest = self._plans.rng, self.members.latest
        if not any(host.membership == latest for host in self._honest):
            return
        same_bins = straight
        straight = straight or rng.random() < 0.3
        if rng.random() < 0.15 and not straight:
            signed = self._drawn_list()
            self._tell("amendments that change the members")
        else:
            honest = straight or rng.random() < 0.95
            place = self._places[-1] if honest else rng.choice(self._places)
            ledgers = (host.ledger for host in self.members.hosts.values())
            leavers = {leavers_since(one.place, one.lock) for one in ledgers if one is not None}
            try:
                signed = self.members.amending(place, leavers=leavers)
            except ValueError:
                return
        if signed is None:
            return
        before, epoch, n = self.members.federation, signed.membership.epoch, len(latest)
        versions = 1 if straight else rng.choice((1, 1, 2))
        told = [
            self._plans.version_after(before, epoch, n, same_bins=same_bins)
            for _ in range(versions)
        ]
        for version in told:
            self._versions[version.configuration] = version
            self.view.amended(version)
        self.members.amend(signed, *told)
        self._tell("amendments of a lying server")
        self._tell("amendments told in two versions", len(told) > 1)
        self._log(f"epoch {epoch} amends: {[(one.policy, one.report) for one in told]}")
        for host in self._honest:
            if host.name in signed.membership and (straight or rng.random() < 0.8):
                self._adopt(host, files=1.0 if straight else 0.85)

    def _make_list(self, *, straight: bool = False) -> None:
        """A list as people let it pass: who is suspended or dropped was told so when it joined."""
        rng, latest = self.rng, self.members.latest
        signed = self._drawn_list(straight=straight)
        if signed is None:
            return
        holders = [host for host in self._honest if host.membership == latest]
        if not holders:
            # Nobody took the last one over: the server makes another one in its place.
            self._tell("lists replaced")
            self.members.published.pop()
            signed = self._drawn_list()
            if signed is None or not self.members.published:
                return
        membership = signed.membership
        self.members.publish(signed)
        self._tell("lists of a lying server")
        names = [f"{one.name}{'*' if one.suspended else ''}" for one in membership.members]
        self._log(f"epoch {membership.epoch} after {membership.after_round}: {' '.join(names)}")
        for host in self._honest:
            if host.name in membership and (straight or rng.random() < 0.8):
                self._adopt(host)

    def _drawn_list(self, *, straight: bool = False) -> SignedMembership | None:
        rng = self.rng
        if not self.members.published:
            return None
        latest = self.members.latest
        straight = straight or rng.random() < 0.95
        place = self._places[-1] if straight else rng.choice(self._places)
        counted = set(place.counted or ()) & set(latest.position)
        # With fewer on the list, fewer may collude.
        fewest = min(one.policy.colluders(len(latest) - 1) for one in self._versions.values())
        may_drop = fewest >= len(self._colluders) + sum(one.keeps_backups for one in self._honest)
        room = self.members.most - len(latest)
        match rng.randrange(6):
            case 0:
                victim = rng.choice(list(latest.position))
                if victim not in counted:
                    # Counted by nobody, but the list says that it is.
                    place = replace(place, counted={**(place.counted or {}), victim: place.round})
                    self._tell("lists that lie")
                return self._next(place, suspend=[victim])
            case 1 if latest.suspended:
                return self._next(place, back=list(latest.suspended))
            case 2 if may_drop:
                return self._next(place, drop=[rng.choice(list(latest.position))])
            case 3 if room >= self.members.together(3):
                names = [self.members.newcomer() for _ in range(self.members.together(3))]
                return self._next(place, add=names)
            case 4 if room > 0:
                name = self.members.newcomer()
                if rng.random() < 0.7:
                    self._alone.add(name)
                return self._next(place, add=[name])
        self._tell("empty epochs")
        return self._next(place)

    def _next(self, place: Place, **changes: Collection[str]) -> SignedMembership | None:
        # A list that hides whom it let clients sign as leavers is refused by them.
        leavers = set[tuple[str, ...]]()
        if self.rng.random() < 0.9:
            ledgers = (host.ledger for host in self.members.hosts.values())
            leavers = {leavers_since(one.place, one.lock) for one in ledgers if one is not None}
        try:
            return self.members.next(place, leavers=leavers, **changes)
        except ValueError:
            return None
