"""The client's side of a round: takes a message, gives the answer or refuses.

:meth:`Client.handle` changes nothing.  It returns a :class:`Step`: the answer, the state that comes
with it, and what happened.  The caller stores the step's ledger and events, then calls
:meth:`Client.accept`, then sends the answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import (
    ClientLedger,
    Event,
    Followed,
    InputFixed,
    Lock,
    Pending,
    digest_of_input,
    lock_at,
    opened_since,
)
from fedforget.protocol.client_stages import (
    Advertised,
    Archive,
    ClientStage,
    ClientStep,
    Consented,
    NoArchive,
    Resting,
    Revealed,
    Sent,
    Shared,
)
from fedforget.protocol.dealing import advertised_by, deal, masked, opened
from fedforget.protocol.errors import (
    AliveAndDeadError,
    AloneError,
    BadShareError,
    ChangedParticipantsError,
    ForkError,
    FullRoundNeededError,
    MissingNoticeError,
    NotReadyError,
    OlderDirectoryError,
    OutOfOrderError,
    SecondSurvivorSetError,
    SuspendedError,
    UnknownPartyError,
    WrongFederationError,
    WrongLengthError,
)
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Graph
from fedforget.protocol.history import (
    Place,
    check_consents,
    check_made_after,
    consent_of,
    counted_after,
    follow,
    link_of,
    place_of,
    standing,
    version_of,
)
from fedforget.protocol.joining import (
    check_adoption,
    check_company,
    check_listed,
    is_in_force,
    joins_alone,
    newcomer,
)
from fedforget.protocol.keys import (
    KEY_BYTES,
    Entropy,
    Identity,
    digest_of,
)
from fedforget.protocol.masks import AttemptSecrets, View
from fedforget.protocol.membership import EVERYONE, SERVER, Membership
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
    SignedSet,
    Survivors,
    Unmask,
    Who,
    consent_to,
    digest_of_delivery,
    leave_statement,
    seal,
    view_of,
)
from fedforget.protocol.rules import (
    Requirements,
    check_leavers,
    fewest_together,
    groups_of,
    part_with,
    requirements,
)

MOST_NOTICES = 1_000
"""Most commits that a client passes on to a server that has lost them."""


class ClientSide:
    """One member of a federation.

    Parameters
    ----------
    name, identity : who this is.
    federation : what all parties agree on.
    lists : the membership lists that this client has adopted, in their order.
    current : gives the histogram that the client would like to be counted with; None if it is to be
        counted as it was before.
    ledger : what is remembered from before; without it, the client begins where the first of
        the lists says.
    archive : commits and lists that a server may have lost.
    entropy : source of random bytes.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        federation: Federation,
        lists: Sequence[Membership],
        current: Callable[[], Histogram | None],
        ledger: ClientLedger | None = None,
        archive: Archive | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.name = name
        self.federation = federation
        self.lists = list(lists)
        self._identity = identity
        check_listed(self.membership, name, identity)
        self.ledger = ledger or newcomer(self.membership, len(federation.levels))
        self.stage: ClientStage = Resting()
        self._archive = archive or NoArchive()
        self._current = current
        self._entropy = entropy
        self._last: tuple[bytes, bytes | None] = (b"", None)

    @property
    def _keeps_notices(self) -> bool:
        return not isinstance(self._archive, NoArchive)

    def __repr__(self) -> str:
        return f"Client({self.name!r}, {type(self.stage).__name__})"

    @property
    def membership(self) -> Membership:
        """The list in force."""
        return self.lists[-1]

    def adopt(self, *lists: Membership, alone: bool = False) -> None:
        """Take over the next membership lists; an attempt under way is dropped.

        ``alone`` if the operator accepts that this client is one of few who come, or stay.
        """
        check_adoption(
            self.name, self._identity, self.federation, self.lists, lists, self.ledger, alone
        )
        self.lists += () if is_in_force(self.lists, lists) else lists
        alone = joins_alone(self.name, self.membership, self.ledger, alone)
        self.ledger = replace(self.ledger, joins_alone=alone)
        self.stage = Resting()

    # -- receiving -----------------------------------------------------------------------------

    def receive(self, data: bytes) -> bytes | None:
        """Handle a message and take the step at once: for clients that store nothing."""
        step = self.handle(data)
        self.accept(step)
        return step.answer

    def accept(self, step: ClientStep) -> None:
        """Move on, once everything that must last is stored."""
        self.stage, self.ledger, self._last = step.stage, step.ledger, step.last

    def handle(self, data: bytes) -> ClientStep:
        """What a message leads to.

        The last message, sent again byte for byte, gets the same answer again.  A refusal is a
        :class:`~fedforget.protocol.errors.ProtocolError`.
        """
        message = digest_of(data)
        if message == self._last[0]:
            return ClientStep(self._last[1], self.stage, self.ledger, (), self._last)
        letter = Letter(data)
        if isinstance(letter.content, Who):
            letter.check(self.federation.server_key)
            answer = self._present(letter.content)
            return ClientStep(answer, self.stage, self.ledger, (), self._last)
        payload = letter.payload
        notice = payload.body if isinstance(payload.body, Notice) else None
        if payload.sender != SERVER or payload.recipient != (EVERYONE if notice else self.name):
            raise UnknownPartyError(f"not a message from the server to {self.name}")
        letter.check(self.federation.server_key)
        if notice is not None:
            return self._handle_notice(letter)
        stage, ledger, body, events = self._handle(payload, message)
        answer = seal(Payload(payload.context, self.name, SERVER, body), self._identity)
        return ClientStep(answer, stage, ledger, events, (message, answer))

    def _handle_notice(self, letter: Letter) -> ClientStep:
        ledger, events = self._with_notice(self.ledger, letter)
        if not events:
            return ClientStep(None, self.stage, self.ledger, (), self._last)
        # When a commit is followed, the attempt under way is over, and its answers are, too.
        return ClientStep(None, Resting(), ledger, events, (b"", None))

    def _handle(
        self, payload: Payload, message: bytes
    ) -> tuple[ClientStage, ClientLedger, Body, tuple[Event, ...]]:
        context, stage, body = payload.context, self.stage, payload.body
        self._check_federation(context)
        if isinstance(body, Open):
            return self._open(context, body)
        if context.membership != self.membership.digest:
            raise WrongFederationError("the message belongs to another membership list")
        if isinstance(stage, Resting) or context != stage.context:
            raise OutOfOrderError("the message belongs to no attempt that is under way here")
        match body, stage:
            case Roster(), Advertised():
                return *self._share(stage, body), ()
            case Roster(), Shared() | Sent() | Consented() if body.participants != stage.roster:
                raise ChangedParticipantsError("the participants were others before")
            case Delivery(), Shared():
                return *self._send(stage, body), ()
            case Survivors(), Sent():
                return *self._consent(stage, body), ()
            case Survivors(), Consented() if (body.alive, body.dead) != (stage.alive, stage.dead):
                raise SecondSurvivorSetError("other survivors were signed in this attempt")
            case Unmask(), Consented():
                return *self._reveal(stage, body, message), ()
        kind = type(body).__name__
        raise OutOfOrderError(f"{kind} does not come after {type(stage).__name__}")

    def _check_federation(self, told: Context | Who) -> None:
        ours = self.federation
        if told.federation != ours.identifier:
            raise WrongFederationError("the message belongs to another federation")
        if told.configuration != ours.configuration:
            known = [one.configuration for one in ours.earlier]
            what = (
                f"an earlier version of the federation file; version {len(known) + 1} is"
                " known here. The server was restored from a backup: run `server amend --restore`"
                if told.configuration in known
                else "another configuration of this federation; if it was amended, run `client"
                " join` with its new file"
            )
            raise WrongFederationError(f"the server has {what}")

    def _requirements(self, context: Context) -> Requirements:
        counted = self.ledger.place.counted
        assert counted is not None
        return requirements(context.kind, self.membership, counted, self.federation.policy)

    # -- greetings -----------------------------------------------------------------------------

    def _present(self, who: Who) -> bytes:
        self._check_federation(who)
        ledger, place = self.ledger, self.ledger.place
        if ledger.left:
            raise SuspendedError(f"{self.name} has left and no longer answers")
        # Of a commit that only a list has told of, the notice is still wanted.
        known = place.round if place.counted is not None else place.round - 1
        greeting = Present(
            federation=who.federation,
            nonce=who.nonce,
            name=self.name,
            membership=self.membership.digest,
            epoch=self.membership.epoch,
            round=known,
            link=place.link,
            seen=ledger.seen,
            needs_full=ledger.needs_full,
            leaving=self._leave_statement(),
            notices=tuple(self._archive.notices_after(who.round)[:MOST_NOTICES]),
            lists=tuple(self._archive.lists_after(who.epoch)[:MOST_NOTICES]),
            signed=self._signed_set(),
        )
        return seal(greeting, self._identity)

    def _signed_set(self) -> SignedSet | None:
        lock = lock_at(self.ledger.place, self.ledger.lock)
        return None if lock is None else SignedSet(lock.membership, lock.alive, lock.left)

    def _leave_statement(self) -> LeaveStatement | None:
        leaving, signed = self.ledger.leaving, self._signed_set()
        if leaving is None or self.ledger.left:
            return None
        if signed is not None and self.name in {*signed.alive} - {*signed.left}:
            # A set in which it does not leave was signed: no other can come out before a commit.
            return None
        statement = self._leaving_of(self.name, leaving.alone, self.ledger.place)
        return LeaveStatement(self.name, leaving.alone, self._identity.sign(statement))

    def _leaving_of(self, name: str, alone: bool, place: Place) -> bytes:
        return leave_statement(
            (self.federation.identifier, self.membership.digest, place.link), name, alone
        )

    # -- commit notices ------------------------------------------------------------------------

    def _with_notice(
        self, ledger: ClientLedger, letter: Letter
    ) -> tuple[ClientLedger, tuple[Event, ...]]:
        """The ledger after a commit; unchanged if the commit is known."""
        payload = letter.payload
        context, notice = payload.context, payload.body
        if not isinstance(notice, Notice) or payload.sender != SERVER:
            raise OutOfOrderError("what came as a commit notice is not one")
        if context.federation != self.federation.identifier:
            raise WrongFederationError("the message belongs to another federation")
        place = ledger.place
        if place.counted is None:
            # The list vouches for it, whatever the version of the federation was then.
            return self._first_notice(ledger, letter, context, notice)
        if context.round <= place.round:
            if context.round == place.round and link_of(context, notice) != place.link:
                raise ForkError(
                    f"another round {place.round} was committed here; the server tells two"
                    " histories"
                )
            return ledger, ()
        policy = version_of(context, self.federation).policy
        after, membership, needed = follow(place, self.lists, context, notice, policy)
        self._check_against_lock(ledger.lock, context, notice)
        # Signatures that this client saw for this very attempt need not be verified again, unless
        # it keeps the notice: receipts and others rely on it then.
        seen = ledger.lock.proven if ledger.lock is not None else b""
        if seen != context.digest or self._keeps_notices:
            statement = consent_of(context, notice)
            check_consents(notice.consents, statement, membership, needed, policy)
        ledger, event = self._moved(ledger, after, context, notice, letter.data)
        return ledger, (event,)

    def _check_against_lock(self, lock: Lock | None, context: Context, notice: Notice) -> None:
        """Where enough others signed the same set as this client, no other can be committed.

        A set that it signed before the attempt broke off says nothing: the others may have gone on.
        """
        if lock is None or not lock.proven:
            return
        here = (lock.round, lock.membership) == (context.round, context.membership)
        if here and not lock.same_set(notice.survivors, notice.left):
            raise SecondSurvivorSetError(
                f"round {context.round} was committed with other survivors than those that"
                f" {self.name} and enough others signed"
            )

    def _first_notice(
        self, ledger: ClientLedger, letter: Letter, context: Context, notice: Notice
    ) -> tuple[ClientLedger, tuple[Event, ...]]:
        """The commit that the list told of: the list vouches for it."""
        place = ledger.place
        if context.round < place.round:
            return ledger, ()
        if context.round != place.round or link_of(context, notice) != place.link:
            raise MissingNoticeError(
                f"the notice of round {place.round}, after which the membership list was made, is"
                " not known here"
            )
        known = place_of(context, notice)
        for membership in standing(self.lists):
            check_made_after(membership, known)
        counted = known.counted or {}
        if self.name in counted:
            # The same name with another directory: what is counted of it is not known here.
            ledger = replace(ledger, base=None, base_round=counted[self.name])
        event = Followed(context.round, letter.data, context, None, False)
        return replace(ledger, place=known), (event,)

    def _moved(
        self, ledger: ClientLedger, after: Place, context: Context, notice: Notice, data: bytes
    ) -> tuple[ClientLedger, Followed]:
        """The base moves if, and only if, the commit counted this client's input."""
        pending = ledger.pending
        ledger = replace(ledger, place=after, pending=None, lock=None)
        if self.name not in notice.survivors:
            return ledger, Followed(context.round, data, context, None, False)
        # An input that was not sent is not the one that was counted: that one came from a copy of
        # this directory, or from before a rollback.
        ours = pending is not None and (pending.attempt, pending.context, pending.sent) == (
            context.attempt,
            context.digest,
            True,
        )
        if not ours and not ledger.recovering:
            raise OlderDirectoryError(
                f"this directory is older than round {context.round}, which counted {self.name}:"
                " it was restored from a backup, or another copy of it is in use. Run `client"
                " recover` once the erasures since the backup are applied again"
            )
        left = self.name in notice.left
        base = pending.plain_input if ours and pending is not None else None
        if version_of(context, self.federation).report != self.federation.report:
            # It was counted before an amendment, and says nothing in the bins of now.
            base = None
        ledger = replace(
            ledger,
            base=Histogram(len(self.federation.levels)) if left else base,
            base_round=0 if left else context.round,
            joins_alone=False,
            recovering=ledger.recovering and not ours,
            left=left,
        )
        return ledger, Followed(
            context.round, data, context, context.attempt if ours else None, left
        )

    # -- opening -------------------------------------------------------------------------------

    def _open(
        self, context: Context, opening: Open
    ) -> tuple[ClientStage, ClientLedger, Body, tuple[Event, ...]]:
        ours, ledger = self.membership, self.ledger
        if (context.epoch, context.membership) != (ours.epoch, ours.digest):
            raise WrongFederationError(
                f"the server has another membership list: epoch {context.epoch}, and epoch"
                f" {ours.epoch} here"
            )
        if context.attempt <= ledger.seen:
            raise OutOfOrderError(f"attempt {context.attempt} is not after {ledger.seen}")
        events: list[Event] = []
        for data in opening.notices:
            letter = Letter(data)
            letter.check(self.federation.server_key)
            ledger, found = self._with_notice(ledger, letter)
            events += found
        if self.name in ours.suspended or ledger.left:
            raise SuspendedError(f"{self.name} is suspended, or has left")
        self._check_place(ledger, context)
        assert ledger.place.counted is not None
        needed = requirements(context.kind, ours, ledger.place.counted, self.federation.policy)
        if self.name not in needed.allowed:
            raise ChangedParticipantsError(f"{self.name} is not counted yet: a full round comes")
        self._check_joining(ledger, context)
        self._check_capacity(context)
        self._check_lock(ledger, context, needed)
        if context.kind == "delta" and ledger.base is None:
            raise FullRoundNeededError(
                f"the server counts round {ledger.base_round} of {self.name}, which is not known"
                " here: a full round is needed"
            )
        pending = Pending(
            attempt=context.attempt,
            context=context.digest,
            plain_input=self._plain_input(ledger, context, opening),
            secret_randomness=self._entropy(KEY_BYTES),
        )
        ledger = replace(ledger, seen=context.attempt, pending=pending)
        secrets = self._secrets(context, pending)
        body = Advertise(secrets.sharing.public.data, secrets.masking.public.data)
        # Where what was counted is counted once more, no request travels with it.
        held_back = pending.plain_input is ledger.base
        if not held_back and not self._waits_to_leave(ledger, context):
            events.append(InputFixed(context.attempt))
        return Advertised(context), ledger, body, tuple(events)

    def _check_place(self, ledger: ClientLedger, context: Context) -> None:
        place = ledger.place
        if place.counted is None:
            raise MissingNoticeError(f"the notice of round {place.round} is missing here")
        if context.round <= place.round:
            raise OutOfOrderError(f"round {context.round} is committed already")
        if context.round != place.round + 1:
            raise MissingNoticeError(
                f"round {context.round} does not follow round {place.round}, which is the last one"
                " known here"
            )
        if place.round < self.membership.after_round:
            raise MissingNoticeError(
                f"the membership list was made after round {self.membership.after_round}; only"
                f" round {place.round} is known here. If the server was restored and nobody knows"
                f" round {self.membership.after_round} any more, a new list helps (server enrol"
                " --afresh)"
            )
        if context.last != place.link:
            raise ForkError(
                f"the server knows another round {place.round} than the one committed here"
            )
        if (context.last_attempt, context.model) != (place.attempt, place.model):
            raise ForkError(
                f"the server speaks of another attempt or model of round {place.round} than the"
                " one that its notice told here"
            )

    def _check_joining(self, ledger: ClientLedger, context: Context) -> None:
        """Whoever is counted for the first time must not be alone with that."""
        counted = ledger.place.counted or {}
        # Whoever leaves before it was ever counted sends nothing that could show.
        if self.name in counted or ledger.joins_alone or self.name in context.leaving:
            return
        check_company(self.name, self.membership, self.federation, context.leaving)

    def _check_capacity(self, context: Context) -> None:
        full, capacity = self.membership.capacity, context.capacity
        if context.kind == "full" and capacity != full:
            raise WrongLengthError(f"a full round has capacity {full}, not {capacity}")
        least = min(self.federation.first_capacity, 2 * full)
        if context.kind == "delta" and not least <= capacity <= 2 * full:
            raise WrongLengthError(
                f"a delta round has a capacity between {least} and {2 * full}, not {capacity}"
            )

    def _check_lock(self, ledger: ClientLedger, context: Context, needed: Requirements) -> None:
        """Survivors were signed since the last commit: can the same come out again?"""
        if needed.everyone:
            self._check_signed(ledger, context, needed.allowed)

    def _check_signed(self, ledger: ClientLedger, context: Context, alive: tuple[str, ...]) -> None:
        """One set of survivors for one place and list; after a new list, nobody may be missing."""
        lock = ledger.lock
        left = tuple(name for name in alive if name in context.leaving)
        if lock is None or lock.round != context.round:
            return
        if lock.membership == context.membership:
            if not lock.same_set(alive, left):
                # A list that a server makes without knowing of leavers is refused by who signed.
                helps = (
                    "run `server recover` before any new list is made"
                    if lock.left
                    else "a new list helps (server enrol --afresh)"
                )
                raise SecondSurvivorSetError(
                    "other survivors were signed since the last commit; the difference of the two"
                    " sums would show somebody's input. If the server was restored and has lost"
                    f" that attempt, {helps}"
                )
            return
        self._check_still_there(lock, alive)
        stayed = set(lock.alive) & set(self.membership.active)
        if stayed & set(left) != stayed & set(lock.left):
            raise SecondSurvivorSetError(
                "others leave than in a sum since the last commit; the difference of the two would"
                " show somebody's input. If the server was restored, run `server recover`"
            )

    def _check_still_there(self, lock: Lock, names: tuple[str, ...]) -> None:
        missing = sorted(set(lock.alive) & set(self.membership.active) - set(names))
        if missing:
            raise SecondSurvivorSetError(
                f"{missing[0]} was part of a sum since the last commit and is still a member; a"
                " sum without it would show its input"
            )

    def _check_gathering(self, context: Context, names: tuple[str, ...]) -> None:
        """A roster or the sharers: enough, and nobody missing whom a signed set needs."""
        _check_sorted(names)
        self._requirements(context).check_present(names)
        lock = self.ledger.lock
        if lock is not None and lock.round == context.round:
            self._check_still_there(lock, names)

    def _plain_input(self, ledger: ClientLedger, context: Context, opening: Open) -> Histogram:
        """What this client wants to be counted with from now on."""
        listed = self._leavers(ledger, context, opening)
        leaving, empty = ledger.leaving, Histogram(len(self.federation.levels))
        if leaving is None:
            if self.name in listed:
                raise ChangedParticipantsError(f"{self.name} does not leave")
            return self._wanted(ledger)
        if self.name not in listed:
            if self.name not in (ledger.place.counted or {}):
                sent = ledger.pending
                if (
                    sent is not None
                    and sent.sent
                    and self.name in opened_since(ledger.place, ledger.lock)
                ):
                    # It is in a set that was signed, and must come out in it.
                    return sent.plain_input
                # Its statement says that it has nothing to add: others would hide behind nobody.
                raise AloneError(
                    f"{self.name} leaves before it was counted, and this attempt does not say so"
                )
            # The others with whom it leaves are not there yet: nothing changes until then.  If it
            # is not known what is counted, what it has comes closest.
            if ledger.base is not None:
                return ledger.base
            current = self._wanted(ledger)
            if not len(current) and not leaving.alone:
                raise AloneError(
                    f"{self.name} waits to leave, has erased its records and does not know what is"
                    " counted of it: its histogram would show (`client leave --alone` accepts that,"
                    " and so does the server's operator who drops it, `server enrol --gone`)"
                )
            return current
        fewest = fewest_together(self.membership, self.federation.policy)
        counted = ledger.place.counted or {}
        mine = part_with(self.name, self.membership, groups_of(self.membership, counted))
        together = mine.intersection(listed)
        if mine and not leaving.alone and len(together) < fewest:
            raise AloneError(
                f"{len(together)} members of those who came together leave in this round; with"
                f" fewer than {fewest}, {self.name}'s histogram would show (`client leave --alone`"
                " accepts that)"
            )
        return empty

    def _wanted(self, ledger: ClientLedger) -> Histogram:
        """What its owner gives, or once more what was counted."""
        current = self._current()
        if current is not None:
            return current.copy()
        if ledger.base is None:
            raise NotReadyError(self.name)
        return ledger.base

    def _waits_to_leave(self, ledger: ClientLedger, context: Context) -> bool:
        """Whether this attempt counts once more what was counted before, and nothing newer."""
        return ledger.leaving is not None and self.name not in context.leaving

    def _leavers(self, ledger: ClientLedger, context: Context, opening: Open) -> tuple[str, ...]:
        """Who leaves in this attempt, as they have signed for this list and place."""
        listed = tuple(one.name for one in opening.leavers)
        alone = tuple(one.name for one in opening.leavers if one.alone)
        _check_sorted(listed)
        if (listed, alone) != (context.leaving, context.alone):
            raise ChangedParticipantsError("the leave statements are not those of the leavers")
        for one in opening.leavers:
            if one.name not in self.membership:
                raise UnknownPartyError(f"{one.name} leaves but is not a member")
            statement = self._leaving_of(one.name, one.alone, ledger.place)
            self.membership.keys[one.name].verify(one.signature, statement)
        return listed

    def _secrets(self, context: Context, pending: Pending | None = None) -> AttemptSecrets:
        pending = pending or self.ledger.pending
        if pending is None or pending.context != context.digest:
            raise OutOfOrderError("the input of this attempt is not known here any more")
        return AttemptSecrets(
            pending.secret_randomness,
            self._identity,
            pending.context,
            digest_of_input(pending.plain_input),
        )

    # -- the other stages ----------------------------------------------------------------------

    def _graph(self, context: Context, roster: tuple[str, ...]) -> Graph:
        return Graph.of(context.digest, roster, len(self.membership), self.federation.policy)

    def _share(self, stage: Advertised, roster: Roster) -> tuple[ClientStage, ClientLedger, Body]:
        context, participants = stage.context, roster.participants
        if self.name not in participants:
            raise ChangedParticipantsError(f"{self.name} advertised but is not listed")
        self._check_gathering(context, participants)
        graph, secrets = self._graph(context, participants), self._secrets(context)
        neighbours = advertised_by(graph.neighbours(self.name), self.membership, context, roster)
        dealt, body = deal(self.name, self.membership, context, graph, secrets, neighbours)
        return dealt, self.ledger, body

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[ClientStage, ClientLedger, Body]:
        context, sharers = stage.context, delivery.sharers
        if not set(sharers) <= set(stage.roster) or self.name not in sharers:
            raise ChangedParticipantsError("who shared secrets does not fit who takes part")
        self._check_gathering(context, sharers)
        present = set(sharers)
        near = [name for name in stage.masking_keys if name in present]
        if [one.name for one in delivery.dealt] != near:
            raise ChangedParticipantsError("the shares delivered do not fit who shared secrets")
        held, unreadable = opened(self.name, stage, delivery)
        colluders = self.federation.policy.colluders(len(self.membership))
        if len(unreadable) == len(near) > colluders:
            # So many cannot all be at fault: the shares are for keys that are not known here.
            raise BadShareError(
                f"{self.name} can read nobody's share: this attempt was begun by another copy of"
                " this directory, or before a rollback"
            )
        ledger, secrets = self.ledger, self._secrets(context)
        assert ledger.pending is not None
        change = ledger.pending.plain_input
        if context.kind == "delta":
            assert ledger.base is not None
            change = change - ledger.base
        codec = self.federation.codec(context.capacity, context.salt)
        view = View(context.digest, stage.roster, sharers)
        plain_vector = codec.encode(change.points(), change.counts())
        near_keys = {name: stage.masking_keys[name] for name in near}
        masked_vector = masked(plain_vector, self.name, view, secrets, near_keys)
        received = digest_of_delivery(delivery.dealt)
        sent = Sent(context, stage.roster, sharers, held, stage.own_share)
        ledger = replace(ledger, pending=replace(ledger.pending, sent=True))
        return sent, ledger, Masked(codec.pack(masked_vector), unreadable, received)

    def _consent(self, stage: Sent, survivors: Survivors) -> tuple[ClientStage, ClientLedger, Body]:
        alive, dead, context = survivors.alive, survivors.dead, stage.context
        both = set(alive) & set(dead)
        if both:
            raise AliveAndDeadError(f"{min(both)} is listed as alive and as dead")
        _check_sorted(dead)
        if tuple(sorted(alive + dead)) != stage.sharers or self.name not in alive:
            raise ChangedParticipantsError("the survivors do not fit who shared secrets")
        self._check_gathering(context, alive)
        before = self.ledger.place.counted
        assert before is not None
        left, after = counted_after(context, before, alive)
        policy = self.federation.policy
        known = self.ledger.lock
        self._check_signed(self.ledger, context, alive)
        check_leavers(self.membership, policy, alive, left, context.alone, before, after)
        lock = Lock(context.round, context.membership, alive, left)
        if known is not None and replace(known, proven=b"") == lock:
            lock = known
        view = view_of(stage.roster, stage.sharers, dead)
        signature = self._identity.sign(consent_to(context, alive, view))
        consented = Consented(
            context, stage.roster, stage.sharers, alive, dead, stage.held, stage.own_share
        )
        return consented, replace(self.ledger, lock=lock), Consent(signature)

    def _reveal(
        self, stage: Consented, unmask: Unmask, message: bytes
    ) -> tuple[ClientStage, ClientLedger, Body]:
        context, alive = stage.context, stage.alive
        signers = [name for name, _ in unmask.consents]
        if self.name not in signers or not set(signers) <= set(alive):
            raise ChangedParticipantsError("signatures of others than the survivors")
        check_consents(
            unmask.consents,
            consent_to(context, alive, view_of(stage.roster, stage.sharers, stage.dead)),
            self.membership,
            self._requirements(context),
            self.federation.policy,
            self._secrets(context).draw("sample", message),
        )
        lock = self.ledger.lock
        assert lock is not None
        seeds = [(name, stage.held[name][0]) for name in alive if name in stage.held]
        keys = [(name, stage.held[name][1]) for name in stage.dead if name in stage.held]
        body = Reveal(tuple(sorted([*seeds, (self.name, stage.own_share)])), tuple(keys))
        ledger = replace(self.ledger, lock=replace(lock, proven=context.digest))
        return Revealed(context), ledger, body


def _check_sorted(names: tuple[str, ...]) -> None:
    if any(one >= other for one, other in pairwise(names)):
        raise ChangedParticipantsError("a list of names is not sorted, or has one twice")
