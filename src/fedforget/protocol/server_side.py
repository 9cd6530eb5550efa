"""The server's side of a round: gathers answers, goes on when told, and learns only the sum.

There is no clock here.  The caller decides when a stage has lasted long enough and calls
:meth:`Server.advance`; whoever has not answered by then is taken for lost.  What must outlive the
process is the :class:`Ledger`, which the caller stores before it sends what ``open``, ``advance``
or ``commit`` return.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from msgspec.structs import replace

from fedforget import scma
from fedforget.clustering.histogram import Histogram
from fedforget.protocol.blame import complaints, judge
from fedforget.protocol.client_ledger import Lock, lock_at
from fedforget.protocol.errors import (
    BadShareError,
    BadSignatureError,
    ChangedParticipantsError,
    Finding,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    TooFewError,
    UnknownPartyError,
    WrongFederationError,
    WrongLengthError,
)
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Graph
from fedforget.protocol.history import (
    check_list,
    counted_after,
    follow,
    left_after,
    place_of,
    version_of,
)
from fedforget.protocol.keys import (
    DIGEST_BYTES,
    Entropy,
    Identity,
    digest_of,
)
from fedforget.protocol.membership import EVERYONE, MAX_NUMBER, SERVER, Membership
from fedforget.protocol.messages import (
    Advertise,
    Body,
    Consent,
    Context,
    Delivery,
    LeaveStatement,
    Letter,
    Masked,
    Notice,
    Open,
    Payload,
    Present,
    Reveal,
    Roster,
    RoundKind,
    SealedShares,
    Shares,
    Survivors,
    Unmask,
    Who,
    consent_to,
    digest_of_delivery,
    leave_statement,
    seal,
)
from fedforget.protocol.recovery import highest_attempt, signed_since
from fedforget.protocol.rules import (
    NEEDS_EVERYBODY,
    Requirements,
    Waiting,
    check_advertised,
    check_leavers,
    check_partings,
    few_stay,
    joiners,
    may_leave,
    requirements,
    why_no_delta,
    why_waiting,
)
from fedforget.protocol.server_stages import (
    ANSWERS,
    Advertising,
    Asking,
    Consenting,
    Decided,
    Gathering,
    Idle,
    Masking,
    Outgoing,
    RoundResult,
    Running,
    ServerLedger,
    ServerStage,
    Sharing,
    Unmasking,
)
from fedforget.protocol.unmasking import MisdealtError, check_reveal, unmasked

Notices = Callable[[int], Sequence[bytes]]
"""Gives the commit notices after a round, in their order."""


class ServerSide:
    """Runs the rounds of a federation.

    Parameters
    ----------
    identity : the server's key.
    federation : what all parties agree on.
    membership : the list in force.
    ledger : what is remembered from before.
    notices : gives the commits after a round, for members who have missed some.
    entropy : source of random bytes.

    Attributes
    ----------
    stage : where the server stands.
    present : what members have said that they know, since the last :meth:`ask`.
    findings : who misbehaved in this round, as far as that can be told.
    waiting : who wished to leave and could not in the latest attempt, and why.
    took_part : the participants of the latest attempt.
    last_notice : the latest commit notice of this process.
    """

    def __init__(
        self,
        identity: Identity,
        federation: Federation,
        membership: Membership,
        ledger: ServerLedger | None = None,
        notices: Notices = lambda after: (),
        entropy: Entropy = os.urandom,
    ) -> None:
        if identity.public != federation.server_key:
            raise UnknownPartyError("this is not the server's key")
        self.federation = federation
        self.membership = membership
        self.ledger = ledger or ServerLedger()
        self.stage: ServerStage = Idle()
        self.present: dict[str, Present] = {}
        self.findings: list[Finding] = []
        self.waiting: list[Waiting] = []
        self.took_part: tuple[str, ...] = ()
        self.last_notice = b""
        self._excluded: set[str] = set()
        self._notices = notices
        self._identity = identity
        self._entropy = entropy

    def __repr__(self) -> str:
        return (
            f"Server(epoch {self.membership.epoch}, round {self.ledger.place.round},"
            f" {self.stage.title})"
        )

    def adopt(self, membership: Membership) -> None:
        """Begin a later epoch; an attempt under way is abandoned."""
        check_list([self.membership], membership, self.ledger.place)
        self.membership = membership
        self.present = {}
        self.stage = Idle()

    @property
    def result(self) -> RoundResult | None:
        return self.stage.result if isinstance(self.stage, Decided) else None

    @property
    def counted(self) -> dict[str, int]:
        """Whom the last commit counts, each with the round that last counted it."""
        counted = self.ledger.place.counted
        assert counted is not None
        return counted

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Who has not answered in this stage."""
        if isinstance(self.stage, Asking):
            return tuple(name for name in self.membership.active if name not in self.present)
        if isinstance(self.stage, Idle | Decided):
            return ()
        gathering = self.stage.gathering
        return tuple(name for name in gathering.asked if name not in gathering.answers)

    # -- greetings -----------------------------------------------------------------------------

    def ask(self) -> bytes:
        """Begin to ask who is there; the question is the same for everybody."""
        self.stage = Asking(self._entropy(16))
        self.present = {}
        self.findings = []
        self._excluded = set()
        who = Who(
            federation=self.federation.identifier,
            configuration=self.federation.configuration,
            nonce=self.stage.nonce,
            epoch=self.membership.epoch,
            round=self.ledger.place.round,
        )
        return seal(who, self._identity)

    def greet(self, data: bytes) -> str:
        """Take a member's answer to :meth:`ask`; returns who it is."""
        letter = Letter(data)
        greeting = letter.content
        if not isinstance(greeting, Present):
            raise OutOfOrderError("not an answer to the question who is there")
        key = self.membership.keys.get(greeting.name)
        if key is None:
            raise UnknownPartyError(f"{greeting.name} is not a member")
        letter.check(key)
        nonce = self.stage.nonce if isinstance(self.stage, Asking) else b""
        if greeting.nonce != nonce or greeting.federation != self.federation.identifier:
            raise OutOfOrderError(f"{greeting.name} answers another question")
        before = self.present.get(greeting.name)
        if before is not None and before != greeting:
            raise OutOfOrderError(f"{greeting.name} answers twice: another copy of it is in use")
        self.present[greeting.name] = greeting
        return greeting.name

    # -- opening -------------------------------------------------------------------------------

    def kind_needed(self) -> RoundKind:
        """The kind of round that comes next, if nobody asks for another one.

        A full round comes by itself only where a list has brought or dropped somebody, at the
        beginning, and after ``server recover`` or an amendment; never because a member says so.
        """
        place, membership = self.ledger.place, self.membership
        if self.ledger.full_due or why_no_delta(membership, self.counted) is not None:
            return "full"
        lock = self._lock()
        if lock is not None:
            # No other set than the one that was signed may come out now, with newcomers or without.
            return "delta" if set(lock.alive) <= self.counted.keys() else "full"
        # Whoever has left and was enrolled again waits to be counted.
        gone = set(self.ledger.left) - membership.returned
        if joiners(membership, {*self.counted, *gone}) and place.round:
            everyone = not self.present or set(membership.active) <= self.present.keys()
            blocked = any(name in self.counted for name in membership.suspended)
            return "full" if everyone and not blocked else "delta"
        return "delta"

    def open(self, kind: RoundKind) -> list[Outgoing]:
        """Begin an attempt at the next round; one under way is abandoned."""
        if kind == "delta" and self.ledger.full_due:
            raise RoundAbortedError(
                "what the aggregate counts is not certain, since this server was recovered, a"
                " member has a new key or the federation was amended: a full round must come first",
                person=True,
            )
        full = self.membership.capacity
        capacity = full if kind == "full" else min(self.federation.first_capacity, 2 * full)
        return self._open_attempt(kind, capacity)

    def _open_attempt(self, kind: RoundKind, capacity: int) -> list[Outgoing]:
        self.stage = Idle()
        place = self.ledger.place
        try:
            needed = requirements(kind, self.membership, self.counted, self.federation.policy)
        except ProtocolError as error:
            raise RoundAbortedError(f"{error}; nothing was learnt", person=True) from None
        self._check_lock(needed)
        attempt = highest_attempt(self.ledger.attempt, self.present.values()) + 1
        if attempt >= MAX_NUMBER:
            raise RoundAbortedError("there are no attempt numbers left")
        self.ledger = replace(self.ledger, attempt=attempt)
        leavers = self._leavers(needed)
        context = Context(
            federation=self.federation.identifier,
            configuration=self.federation.configuration,
            membership=self.membership.digest,
            epoch=self.membership.epoch,
            last=place.link,
            last_attempt=place.attempt,
            model=place.model,
            round=place.round + 1,
            attempt=self.ledger.attempt,
            kind=kind,
            capacity=capacity,
            salt=self._entropy(16),
            leaving=tuple(one.name for one in leavers),
            alone=tuple(one.name for one in leavers if one.alone),
        )
        invited = self._invited(needed)
        bodies: dict[str, Body] = {}
        openings: dict[int, Open] = {}
        for name in invited:
            known = self.present[name].round if name in self.present else place.round - 1
            if known not in openings:
                openings[known] = Open(tuple(self._notices(known)), leavers)
            bodies[name] = openings[known]
        self.stage = Advertising(context, needed, Gathering(invited))
        return self._sealed(context, bodies)

    def _invited(self, needed: Requirements) -> tuple[str, ...]:
        """Where survivors were signed, only they may come again before the next commit."""
        lock = self._lock()
        if lock is not None:
            return lock.alive
        return tuple(name for name in needed.allowed if name not in self._excluded)

    def _check_lock(self, needed: Requirements) -> None:
        """A full round needs everybody, and cannot be committed where a smaller set was signed."""
        lock = self._lock()
        if lock is None or not needed.everyone:
            return
        missing = sorted(set(needed.allowed) - set(lock.alive))
        if missing:
            full_only = self.ledger.full_due or why_no_delta(self.membership, self.counted)
            otherwise = "" if full_only else "run a round without --full first, or "
            raise RoundAbortedError(
                f"a set without {missing[0]} was signed since the last commit, and no other set"
                f" can be committed under this list: {otherwise}make a new list (server enrol"
                " --afresh); nothing was learnt",
                person=True,
            )

    def _lock(self) -> Lock | None:
        """The set that must come out again: signed at this place, under this list."""
        lock = lock_at(self.ledger.place, self.ledger.lock)
        return lock if lock is not None and lock.membership == self.membership.digest else None

    def _leavers(self, needed: Requirements) -> tuple[LeaveStatement, ...]:
        """Those who may leave in this round: enough of a group, or those who go alone."""
        lock = lock_at(self.ledger.place, self.ledger.lock)
        found = {}
        for name, greeting in sorted(self.present.items()):
            one = greeting.leaving
            if one is None or one.name != name or name not in needed.allowed:
                continue
            if self._says(one):
                found[name] = one
        if lock is not None:
            leaving = [name for name in lock.left if name in self.membership.active]
            silent = [name for name in leaving if name not in found]
            if silent:
                # Without its statement another set would come out, which no client would sign.
                otherwise = (
                    "take it off the list (server enrol --gone), which shows its histogram"
                    if self.kind_needed() == "full"
                    else "suspend it (server enrol --suspend)"
                )
                raise RoundAbortedError(
                    f"{silent[0]} was to leave with a set that was signed since the last commit,"
                    f" but has not said so under the list of epoch {self.membership.epoch}: let it"
                    " come back and take that list over (client join), and say so again if it was"
                    f" restored (client leave), or {otherwise}; nothing was learnt",
                    missing=silent,
                )
            others = tuple(name for name in found if name not in leaving)
            why = (
                "a set in which they do not leave was signed since the last commit; they can"
                " leave once it is committed"
            )
            self.waiting = [Waiting(others, why)] if others else []
            alone = {name for name in leaving if found[name].alone}
            self._check_groups(set(leaving), alone)
            return tuple(found[name] for name in leaving)
        policy, counted = self.federation.policy, self.counted
        wishes = {name: one.alone for name, one in found.items()}
        gone = may_leave(self.membership, policy, wishes, counted)
        self.waiting = why_waiting(self.membership, policy, wishes, counted)
        staying = min(len(counted.keys() - gone), len(set(needed.allowed) - gone))
        held = few_stay(self.membership, policy, staying, gone)
        if held is not None and gone:
            self.waiting.append(held)
            return ()
        return tuple(found[name] for name in sorted(gone))

    def _check_groups(self, leaving: set[str], alone: set[str]) -> None:
        """End the attempt before it begins if these leavers would refuse to send what they must."""
        policy = self.federation.policy
        try:
            check_partings(self.membership, policy, self.counted, leaving, alone)
        except TooFewError as error:
            raise RoundAbortedError(
                f"{error}. A set with these leavers was signed since the last commit, so no other"
                " set can be committed; nothing was learnt",
                person=True,
            ) from None

    def _says(self, one: LeaveStatement) -> bool:
        """Whether a leave statement is for this list and place."""
        where = self.federation.identifier, self.membership.digest, self.ledger.place.link
        try:
            self.membership.keys[one.name].verify(
                one.signature, leave_statement(where, one.name, one.alone)
            )
        except BadSignatureError:
            return False
        return True

    def _sealed(self, context: Context, bodies: Mapping[str, Body]) -> list[Outgoing]:
        """What to say to whom."""
        return [
            Outgoing(name, seal(Payload(context, SERVER, name, body), self._identity))
            for name, body in bodies.items()
        ]

    # -- answers -------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take a client's answer, or refuse it and change nothing.

        The same answer again, byte for byte, is ignored.
        """
        letter = Letter(data)
        payload = letter.payload
        name = payload.sender
        key = self.membership.keys.get(name)
        if key is None or payload.recipient != SERVER:
            raise UnknownPartyError("not a message from a member to the server")
        letter.check(key)
        stage = self.stage
        if isinstance(stage, Idle | Asking | Decided) or payload.context != stage.context:
            if payload.context.configuration != self.federation.configuration:
                raise WrongFederationError(f"{name} has another configuration")
            raise OutOfOrderError("the answer belongs to no attempt that is under way")
        gathering, message = stage.gathering, digest_of(data)
        if gathering.fingerprints.get(name) == message:
            return
        if not isinstance(payload.body, ANSWERS[type(stage)]):
            raise OutOfOrderError(f"{type(payload.body).__name__} is not asked for now")
        if name not in gathering.asked or name in gathering.answers:
            raise OutOfOrderError(f"{name} is not asked, or has answered otherwise")
        try:
            self._check_answer(stage, name, payload.body)
        except ProtocolError as error:
            # It signed what is wrong by itself: that is enough to name it.
            self._find(Finding((name,), str(error)))
            raise
        if isinstance(stage, Advertising):
            stage.advertisements[name] = data
        gathering.answers[name] = payload.body
        gathering.fingerprints[name] = message

    def _find(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    def _check_answer(self, stage: Running, name: str, body: Body) -> None:
        """Check what only the server can check, and add vectors up."""
        match stage, body:
            case Advertising(), Advertise():
                check_advertised(name, body)
            case Sharing(), Shares():
                if tuple(one.name for one in body.dealt) != stage.graph.neighbours(name):
                    raise WrongLengthError(f"{name}'s shares are not for its neighbours")
            case Masking(), Masked():
                self._take_vector(stage, name, body)
            case Unmasking(), Reveal():
                check_reveal(stage, name, body)
            case Consenting(), Consent():
                statement = consent_to(stage.context, stage.alive, stage.view)
                try:
                    self.membership.keys[name].verify(body.signature, statement)
                except BadSignatureError:
                    raise BadSignatureError(f"{name} signed other survivors") from None

    def _take_vector(self, stage: Masking, name: str, body: Masked) -> None:
        near = set(stage.graph.neighbours(name)) & set(stage.sharers)
        if list(body.unreadable) != sorted(set(body.unreadable) & near):
            raise ChangedParticipantsError(f"{name} complains of others than its neighbours")
        if body.received != stage.delivered[name]:
            raise BadShareError(f"{name} signed for other shares than were delivered to it")
        codec = self.federation.codec(stage.context.capacity, stage.context.salt)
        try:
            masked_vector = codec.unpack(body.masked_vector)
        except scma.DecodeError as error:
            raise WrongLengthError(f"{name}'s vector: {error}") from None
        stage.masked_total = scma.add(stage.masked_total, masked_vector)

    # -- going on ------------------------------------------------------------------------------

    def advance(self) -> list[Outgoing]:
        """End the stage: go on with those who have answered.

        Returns the next messages; none if the round is decided, and :attr:`result` is there.

        Raises
        ------
        RoundAbortedError
            If the attempt cannot go on; the server is idle again.
        """
        try:
            match self.stage:
                case Advertising() as stage:
                    return self._announce(stage)
                case Sharing() as stage:
                    return self._deliver(stage)
                case Masking() as stage:
                    return self._list_survivors(stage)
                case Unmasking() as stage:
                    return self._decide(stage)
                case Consenting() as stage:
                    return self._ask_to_unmask(stage)
        except RoundAbortedError:
            self.stage = Idle()
            raise
        raise OutOfOrderError(f"there is no stage to end: {self.stage.title}")

    def _abort(
        self, reason: str, *, again: bool = False, missing: Sequence[str] = (), person: bool = False
    ) -> RoundAbortedError:
        return RoundAbortedError(
            reason, findings=self.findings, again=again, missing=missing, person=person
        )

    def _check_present(self, stage: Running, present: tuple[str, ...]) -> None:
        """End the attempt if too few are left, or somebody is missing who must be there."""
        counted = self.counted
        lock = self.ledger.lock
        if lock is not None and lock.round == stage.context.round:
            gone = sorted(set(lock.alive) & set(self.membership.active) - set(present))
            if gone:
                it, its, it_was = (
                    ("it", "its", "it was") if len(gone) == 1 else ("them", "their", "they were")
                )
                otherwise = (
                    f"suspend {it} with a new list (server enrol --suspend)"
                    if gone[0] in counted
                    else f"take {it} off the list (server enrol --gone), and {its} input shows"
                )
                raise self._abort(
                    f"{_who(gone, counted)}; {it_was} part of a sum since the last commit, and a"
                    f" sum without {it} would show {its} input. Let {it} come back, or {otherwise}",
                    missing=gone,
                )
        try:
            stage.needed.check_present(present)
        except (TooFewError, ChangedParticipantsError) as error:
            gone = sorted(set(stage.needed.allowed) - set(present))
            where = f" at {stage.title}" if stage.title != "advertise" else ""
            # Who is missing is said once.
            lacks = gone and stage.needed.everyone and isinstance(error, TooFewError)
            reason = NEEDS_EVERYBODY if lacks else str(error)
            advice = ""
            if stage.needed.everyone and gone and gone[0] not in counted:
                advice = (
                    f". Nothing of {gone[0]} is counted: if it has left, or does not come, take it"
                    " off the list (server enrol --gone)"
                )
            away = sorted(self.membership.suspended & counted.keys())
            if away and len(stage.needed.allowed) < stage.needed.present:
                advice = (
                    f". {away[0]} is suspended: let it come back (server enrol --resume), or take"
                    " it off the list and enrol others"
                )
            raise self._abort(
                f"{_who(gone, counted)}{where}: {reason}; nothing was learnt{advice}"
                if gone
                else f"{error}; nothing was learnt{advice}",
                missing=gone,
                person=not gone,
            ) from None

    def _announce(self, stage: Advertising) -> list[Outgoing]:
        participants = self.took_part = stage.gathering.present
        self._check_present(stage, participants)
        context, letters = stage.context, stage.advertisements
        graph = Graph.of(context.digest, participants, len(self.membership), self.federation.policy)
        keys = {name: cast(Advertise, stage.gathering.answers[name]) for name in participants}
        self.stage = Sharing(context, stage.needed, Gathering(participants), graph, keys)
        return self._sealed(
            context,
            {
                name: Roster(participants, tuple(letters[o] for o in graph.neighbours(name)))
                for name in participants
            },
        )

    def _deliver(self, stage: Sharing) -> list[Outgoing]:
        sharers, context = stage.gathering.present, stage.context
        self._check_present(stage, sharers)
        dealt = {name: cast(Shares, stage.gathering.answers[name]) for name in sharers}
        boxes: dict[str, list[SealedShares]] = {name: [] for name in sharers}
        for dealer, body in dealt.items():
            for one in body.dealt:
                if one.name in boxes:
                    boxes[one.name].append(replace(one, name=dealer))
        codec = self.federation.codec(context.capacity, context.salt)
        total = np.zeros(codec.length, dtype=np.uint64)
        delivered = {name: digest_of_delivery(box) for name, box in boxes.items()}
        self.stage = Masking(
            context, stage.needed, Gathering(sharers), stage.graph, stage.keys, dealt, delivered,
            total,
        )  # fmt: skip
        self._check_threshold(self.stage, set(sharers), {})
        return self._sealed(
            context, {name: Delivery(sharers, tuple(box)) for name, box in boxes.items()}
        )

    def _list_survivors(self, stage: Masking) -> list[Outgoing]:
        alive = stage.gathering.present
        unreadable = complaints(
            {name: cast(Masked, stage.gathering.answers[name]).unreadable for name in alive}
        )
        # First: whoever spoils is named also where the attempt ends because somebody is missing.
        for finding in judge(unreadable, self.federation.policy.colluders(len(self.membership))):
            self._find(finding)
        self._check_present(stage, alive)
        self._check_threshold(stage, set(alive), unreadable)
        context = stage.context
        self._check_leavers(context, alive)
        self.stage = Consenting(
            context, stage.needed, Gathering(alive), stage.graph, stage.keys, stage.dealt,
            stage.masked_total, alive, unreadable,
        )  # fmt: skip
        left = tuple(name for name in alive if name in context.leaving)
        lock = Lock(context.round, context.membership, alive, left)
        self.ledger = replace(self.ledger, lock=lock)
        return self._sealed(context, dict.fromkeys(alive, Survivors(alive, self.stage.dead)))

    def _check_leavers(self, context: Context, alive: tuple[str, ...]) -> None:
        """End the attempt, before anybody signs, if no client would sign these leavers."""
        left, counted = counted_after(context, self.counted, alive)
        policy = self.federation.policy
        try:
            check_leavers(
                self.membership, policy, alive, left, context.alone, self.counted, counted
            )
        except TooFewError as error:
            raise self._abort(f"{error}; nothing was learnt", person=True) from None

    def _ask_to_unmask(self, stage: Consenting) -> list[Outgoing]:
        consenting = stage.gathering.present
        missing = stage.needed.missing_signers(consenting)
        if missing:
            gone = sorted(set(stage.alive) - set(consenting))
            raise self._abort(
                f"{_who(gone, self.counted)} at {stage.title}: {missing} more must sign the"
                " survivors; nothing was learnt",
                missing=gone,
            )
        self._check_threshold(stage, set(consenting), stage.unreadable)
        consents = {
            name: cast(Consent, stage.gathering.answers[name]).signature for name in consenting
        }
        self.stage = Unmasking(
            stage.context, stage.needed, Gathering(consenting), stage.graph, stage.keys,
            stage.dealt, stage.masked_total, stage.alive, stage.unreadable, consents,
        )  # fmt: skip
        request = Unmask(tuple(consents.items()))
        return self._sealed(stage.context, dict.fromkeys(consenting, request))

    def _check_threshold(
        self,
        stage: Masking | Consenting,
        there: set[str],
        unreadable: Mapping[str, frozenset[str]],
    ) -> None:
        """End the attempt if somebody's secrets can no longer be put together."""
        for dealer in stage.sharers:
            holders = {dealer, *stage.graph.neighbours(dealer)} & there
            readers = holders - unreadable.get(dealer, frozenset())
            if len(readers) >= stage.graph.plan.threshold:
                continue
            named = {one.members[0] for one in self.findings if len(one.members) == 1}
            # Without those who are named, another attempt can succeed.
            self._excluded |= named
            raise self._abort(
                f"too few neighbours of {dealer} hold shares at {stage.title} to take its masks"
                " off; nothing was learnt",
                again=bool(named) and not stage.needed.everyone and self._lock() is None,
            )

    # -- the sum -------------------------------------------------------------------------------

    def _decide(self, stage: Unmasking) -> list[Outgoing]:
        self._check_threshold(stage, set(stage.gathering.answers), stage.unreadable)
        total = self._unmasked(stage)
        context = stage.context
        codec = self.federation.codec(context.capacity, context.salt)
        try:
            histogram = Histogram.of(*codec.decode(total))
        except scma.DecodeError as error:
            return self._grow(error, context)
        left = tuple(name for name in stage.alive if name in context.leaving)
        signers = stage.needed.enough(stage.consents)
        self.stage = Decided(
            context,
            RoundResult(context.kind, stage.alive, left, histogram),
            stage.view,
            tuple((name, stage.consents[name]) for name in signers),
        )
        return []

    def _grow(self, error: scma.DecodeError, context: Context) -> list[Outgoing]:
        """Another attempt with more room, or the end of the round.

        A change can touch twice as many bins as there are, old ones and new ones, and then there is
        room for all of them: a sum that does not fit is corrupted.
        """
        full = self.membership.capacity * (2 if context.kind == "delta" else 1)
        try:
            larger = scma.next_capacity(error, context.capacity, full)
        except scma.DecodeError as final:
            finding = Finding(
                (),
                "somebody sent something other than an encoded histogram; nobody can tell who it"
                " was",
            )
            self._find(finding)
            raise RoundAbortedError(
                f"the sum is corrupted and was not used ({final}); {finding}. If it happens again,"
                " suspend members one after the other (server enrol --suspend): the log says who"
                " took part",
                findings=self.findings,
            ) from final
        return self._open_attempt(context.kind, larger)

    def _unmasked(self, stage: Unmasking) -> scma.Elements:
        try:
            return unmasked(stage, self.membership)
        except MisdealtError as error:
            self._find(Finding((error.dealer,), str(error)))
            raise self._abort(
                f"the masks do not come off: {error}; suspend it with a new list (server enrol"
                " --suspend)"
            ) from error

    # -- the end -------------------------------------------------------------------------------

    def commit(self, model: bytes, time: int = 0) -> list[Outgoing]:
        """Make the result final, once the caller has stored it, and tell every member.

        Parameters
        ----------
        model : digest of the model that follows from the result.
        time : the clock, in seconds since 1970.
        """
        stage = self.stage
        if not isinstance(stage, Decided):
            raise OutOfOrderError("there is no result to commit")
        if len(model) != DIGEST_BYTES:
            # Every client would refuse the notice, and every message that follows it.
            raise ValueError(f"a model's digest has {DIGEST_BYTES} bytes, got {len(model)}")
        context, survivors = stage.context, stage.result.survivors
        left, counted = counted_after(context, self.counted, survivors)
        notice = Notice(
            survivors=survivors,
            left=left,
            counted=tuple(sorted(counted.items())),
            view=stage.view,
            model=model,
            time=time,
            consents=stage.consents,
        )
        self.last_notice = seal(Payload(context, SERVER, EVERYONE, notice), self._identity)
        place = place_of(context, notice)
        full_due = self.ledger.full_due and context.kind == "delta"
        gone = left_after(self.ledger.left, notice)
        self.ledger = replace(self.ledger, place=place, lock=None, full_due=full_due, left=gone)
        self.stage = Idle()
        # What members have said of their place is no longer so.
        for name, greeting in self.present.items():
            if greeting.round == context.round - 1:
                self.present[name] = replace(greeting, leaving=None)
        # Who has missed an earlier commit gets all of them when the next round opens.
        behind = {name for name, one in self.present.items() if one.round < context.round - 1}
        # A survivor got them when this one opened.
        behind -= set(survivors)
        members = (name for name in self.membership.active if name not in behind)
        return [Outgoing(name, self.last_notice) for name in members]

    def overdue(self) -> list[list[Outgoing]]:
        """Commits that some members must have before the next opening.

        They get no opening, because they have left or are suspended; or they want to leave, which
        they must say for the last commit.  One list of messages after the other, because commits
        must be followed in their order.
        """
        place, found = self.ledger.place, list[list[Outgoing]]()
        for name, greeting in sorted(self.present.items()):
            idle = name in self.membership.suspended or name not in self.counted
            waits = greeting.leaving is not None
            if not (idle or waits) or greeting.round >= place.round:
                continue
            for number, letter in enumerate(self._notices(greeting.round)):
                if number == len(found):
                    found.append([])
                found[number].append(Outgoing(name, letter))
        return found

    def delivered(self, name: str) -> None:
        """A member has taken the last notice: it need not be sent again."""
        if name in self.present:
            greeting = self.present[name]
            self.present[name] = replace(greeting, round=self.ledger.place.round)

    def abandon(self) -> None:
        """Give up the attempt; nothing is committed."""
        self.stage = Idle()

    def recover(
        self,
        letters: Iterable[bytes],
        lists: Sequence[Membership],
        attempt: int,
        greetings: Iterable[Present] = (),
    ) -> int:
        """Take over commits that this server has lost; returns how many were new.

        The aggregate that belongs to them is lost: a full round must come.  What more members have
        signed since the last commit than may collude is taken over from their greetings, and so is
        a set whose leavers all say that they leave.
        """
        place, gone, found = self.ledger.place, self.ledger.left, 0
        for data in letters:
            letter = Letter(data)
            letter.check(self.federation.server_key)
            context, notice = letter.payload.context, letter.payload.body
            if not isinstance(notice, Notice) or context.round <= place.round:
                continue
            policy = version_of(context, self.federation).policy
            place, _, _ = follow(place, lists, context, notice, policy)
            gone = left_after(gone, notice)
            found += 1
        self.membership = lists[-1]
        policy, known = self.federation.policy, None if found else self.ledger.lock
        lock = signed_since(self.membership, policy, place, greetings, known)
        latest = max(attempt, self.ledger.attempt)
        self.ledger = ServerLedger(place, latest, lock, full_due=True, left=gone)
        self.present = {}
        self.stage = Idle()
        return found


def _who(missing: Sequence[str], counted: Mapping[str, int]) -> str:
    """Who is missing, in words."""
    if not missing:
        return "somebody is missing"
    first = missing[0]
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    whose = first if others else "it"
    since = f"; {whose} was counted in round {counted[first]}" if first in counted else ""
    return f"{first}{others} {'are' if others else 'is'} missing{since}"
