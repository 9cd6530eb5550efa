"""The client's side of a round: takes a message, gives the answer or refuses.

What must outlive the process is the :class:`Ledger`; the caller stores it before it sends an
answer.  Everything else (the stages below, with the secrets of one attempt) may be lost: the client
then sits the attempt out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.errors import (
    AliveAndDeadError,
    BadSignatureError,
    BaseMismatchError,
    ChangedParticipantsError,
    OutOfOrderError,
    SecondSurvivorSetError,
    TooFewError,
    UnknownPartyError,
    WrongFederationError,
    WrongLengthError,
)
from fedforget.protocol.federation import EVERYONE, SERVER, Federation, Membership
from fedforget.protocol.graph import Graph
from fedforget.protocol.keys import (
    KEY_BYTES,
    Agreement,
    Entropy,
    Identity,
    decrypt,
    derive,
    digest_of,
    encrypt,
    mask,
    signed_by,
)
from fedforget.protocol.messages import (
    Advertise,
    Body,
    Consent,
    Context,
    Delivery,
    Letter,
    Masked,
    Notice,
    Open,
    Payload,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Unmask,
    consent_to,
    seal,
)
from fedforget.protocol.shares import SHARE_BYTES, split
from fedforget.scma import add
from fedforget.scma.polynomials import Elements, minus


class Answered(NamedTuple):
    """The survivors for whom this client has revealed shares since the last commit."""

    epoch: int
    committed_round: int
    alive: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """What a client must remember.

    Attributes
    ----------
    base : what the server counts of this client; None if that is not known (see ``BaseMismatch``).
    base_round : the committed round that counted it, 0 for none.
    pending : the histogram sent in ``pending_round``, of which no commit notice has told yet.
    seen : the latest attempt (epoch, round, attempt); earlier ones are replays.
    committed : epoch and round of the latest commit notice.
    answered : the one set of survivors answered for since then.
    unmasked_since : the first epoch in which shares were revealed since then, 0 for none.
    """

    base: Histogram | None
    base_round: int = 0
    pending: Histogram | None = None
    pending_round: int = 0
    seen: tuple[int, int, int] = (0, 0, 0)
    committed: tuple[int, int] = (0, 0)
    answered: Answered | None = None
    unmasked_since: int = 0


@dataclass(frozen=True)
class Idle:
    """Between rounds."""


@dataclass(frozen=True)
class Advertised:
    """Fresh keys are on their way."""

    context: Context
    sharing: Agreement = field(repr=False)
    masking: Agreement = field(repr=False)


@dataclass(frozen=True)
class Shared:
    """Secrets are shared with the neighbours."""

    context: Context
    graph: Graph
    neighbours: Mapping[str, Advertise]
    secrets: Mapping[str, bytes] = field(repr=False)
    masking: Agreement = field(repr=False)
    seed: bytes = field(repr=False)
    own_share: bytes = field(repr=False)


@dataclass(frozen=True)
class Sent:
    """The masked vector is sent.  ``held`` are the shares of others' seeds and masking keys."""

    context: Context
    graph: Graph
    sharers: tuple[str, ...]
    held: Mapping[str, tuple[bytes, bytes]] = field(repr=False)
    own_share: bytes = field(repr=False)


@dataclass(frozen=True)
class Consented:
    """A set of survivors is agreed to."""

    context: Context
    graph: Graph
    alive: tuple[str, ...]
    dead: tuple[str, ...]
    held: Mapping[str, tuple[bytes, bytes]] = field(repr=False)
    own_share: bytes = field(repr=False)


@dataclass(frozen=True)
class Revealed:
    """Shares are revealed; nothing secret is left but what the ledger holds."""

    context: Context


Stage = Idle | Advertised | Shared | Sent | Consented | Revealed


class Client:
    """One member of a federation.

    Parameters
    ----------
    name, identity : who this is.
    federation, membership : what all parties agree on.
    current : gives the histogram that the client would like to be counted with.
    ledger : what is remembered from before; an empty one for a new member.
    entropy : source of random bytes.

    Attributes
    ----------
    stage, ledger : where the client stands.
    notice : the commit notice that the ledger last followed, as it was received.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        federation: Federation,
        membership: Membership,
        current: Callable[[], Histogram],
        ledger: Ledger | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        if membership.keys.get(name) != identity.public:
            raise UnknownPartyError(f"{name} is not a member with this key")
        self.name = name
        self.federation = federation
        self.membership = membership
        self.ledger = ledger or Ledger(Histogram(len(federation.levels)))
        self.stage: Stage = Idle()
        self.notice: bytes | None = None
        self._identity = identity
        self._current = current
        self._entropy = entropy
        self._last: tuple[bytes, bytes | None] = (b"", None)

    def __repr__(self) -> str:
        return f"Client({self.name!r}, {type(self.stage).__name__})"

    def adopt(self, membership: Membership) -> None:
        """Take over the membership list of a later epoch; an attempt under way is dropped."""
        if membership.epoch <= self.membership.epoch:
            raise OutOfOrderError(
                f"epoch {membership.epoch} does not come after {self.membership.epoch}"
            )
        if membership.keys.get(self.name) != self._identity.public:
            raise UnknownPartyError(f"{self.name} is not a member of epoch {membership.epoch}")
        self.membership = membership
        self.stage = Idle()

    def receive(self, data: bytes) -> bytes | None:
        """Handle a message; returns the answer, if it calls for one.

        The last message, sent again byte for byte, gets the same answer again.  A refusal is a
        :class:`~fedforget.protocol.errors.ProtocolError` and changes nothing.
        """
        fingerprint = digest_of(data)
        if fingerprint == self._last[0]:
            return self._last[1]
        letter = Letter(data)
        payload = letter.payload
        for_all = isinstance(payload.body, Notice) and payload.recipient == EVERYONE
        if payload.sender != SERVER or not (for_all or payload.recipient == self.name):
            raise UnknownPartyError(f"not a message from the server to {self.name}")
        letter.check(self.federation.server_key)
        stage, ledger, body = self._handle(payload)
        answer = None if body is None else self._seal(payload.context, body)
        if ledger.committed != self.ledger.committed:
            self.notice = payload.body.notice if isinstance(payload.body, Open) else data
        if not isinstance(payload.body, Notice):
            self._last = fingerprint, answer
        elif isinstance(stage, Idle):  # the attempt is over, and its answers with it
            self._last = b"", None
        self.stage, self.ledger = stage, ledger
        return answer

    def _seal(self, context: Context, body: Body) -> bytes:
        return seal(Payload(context, self.name, SERVER, body), self._identity)

    def _handle(self, payload: Payload) -> tuple[Stage, Ledger, Body | None]:
        context, stage = payload.context, self.stage
        self._check_federation(context)
        match payload.body:
            case Notice() as notice:
                ledger = self._with_notice(self.ledger, context, notice)
                done = isinstance(stage, Idle) or context.number >= stage.context.number
                return (Idle() if done else stage), ledger, None
            case Open() as opening:
                return self._open(context, opening)
        if context.membership != self.membership.digest:
            raise WrongFederationError("the message belongs to another membership list")
        if isinstance(stage, Idle) or context != stage.context:
            raise OutOfOrderError("the message belongs to no attempt that is under way here")
        match payload.body, stage:
            case Roster() as roster, Advertised():
                return self._share(stage, roster)
            case Roster() as roster, Shared() | Sent() | Consented() if (
                roster.participants != stage.graph.participants
            ):
                raise ChangedParticipantsError("the participants were others before")
            case Delivery() as delivery, Shared():
                return self._send(stage, delivery)
            case Survivors() as survivors, Sent():
                return self._consent(stage, survivors)
            case Survivors() as survivors, Consented() if (survivors.alive, survivors.dead) != (
                stage.alive,
                stage.dead,
            ):
                raise SecondSurvivorSetError("other survivors were agreed to in this attempt")
            case Unmask() as unmask, Consented():
                return self._reveal(stage, unmask)
        kind = type(payload.body).__name__
        raise OutOfOrderError(f"{kind} does not come after {type(stage).__name__}")

    def _check_federation(self, context: Context) -> None:
        ours = self.federation
        if context.federation != ours.identifier:
            raise WrongFederationError("the message belongs to another federation")
        if context.configuration != ours.configuration:
            raise WrongFederationError("the server has another configuration of this federation")

    # -- commit notices ------------------------------------------------------------------------

    def _with_notice(self, ledger: Ledger, context: Context, notice: Notice) -> Ledger:
        """The ledger after a commit: the base moves if, and only if, the commit counted it."""
        committed = context.epoch, context.round
        if committed < ledger.committed:
            raise OutOfOrderError("a commit notice older than one already seen")
        if committed == ledger.committed:
            return ledger
        counted = dict(notice.counted).get(self.name)
        ledger = replace(ledger, committed=committed, answered=None, unmasked_since=0)
        if counted is None:
            empty = Histogram(len(self.federation.levels))
            return replace(ledger, base=empty, base_round=0, pending=None)
        if ledger.pending is not None and counted == ledger.pending_round:
            return replace(ledger, base=ledger.pending, base_round=counted, pending=None)
        if counted == ledger.base_round:
            return replace(ledger, pending=None)
        return replace(ledger, base=None, base_round=counted, pending=None)

    # -- the stages ----------------------------------------------------------------------------

    def _open(self, context: Context, opening: Open) -> tuple[Stage, Ledger, Body]:
        ours = self.membership
        if (context.epoch, context.membership) != (ours.epoch, ours.digest):
            raise WrongFederationError(
                f"the server has another membership list: epoch {context.epoch},"
                f" and epoch {self.membership.epoch} here"
            )
        if context.number <= self.ledger.seen:
            raise OutOfOrderError(f"attempt {context.number} is not after {self.ledger.seen}")
        self._check_capacity(context)
        ledger = replace(self.ledger, seen=context.number)
        if opening.notice is not None:
            letter = Letter(opening.notice)
            payload = letter.check(self.federation.server_key)
            if not isinstance(payload.body, Notice) or payload.sender != SERVER:
                raise OutOfOrderError("what came as a commit notice is none")
            self._check_federation(payload.context)
            ledger = self._with_notice(ledger, payload.context, payload.body)
        elif ledger.committed != (0, 0):
            raise OutOfOrderError("the server has forgotten its last commit")
        if context.number[:2] <= ledger.committed:
            raise OutOfOrderError(f"round {context.round} is committed already")
        if ledger.pending is not None and ledger.pending_round != context.round:
            # Had that round been committed, the notice would have told.
            ledger = replace(ledger, pending=None)
        if context.kind == "delta":
            self._known_base(ledger)
            if ledger.unmasked_since not in (0, context.epoch):
                raise SecondSurvivorSetError(
                    "changes since the last commit were unmasked in an earlier epoch; only a full"
                    " round can follow"
                )
        sharing, masking = (Agreement(self._entropy(KEY_BYTES)) for _ in range(2))
        body = Advertise(sharing.public, masking.public)
        return Advertised(context, sharing, masking), ledger, body

    def _check_capacity(self, context: Context) -> None:
        full, capacity = self.membership.capacity, context.capacity
        if context.kind == "full" and capacity != full:
            raise WrongLengthError(f"a full round has capacity {full}, not {capacity}")
        least = min(self.federation.first_capacity, 2 * full)
        if context.kind == "delta" and not least <= capacity <= 2 * full:
            raise WrongLengthError(
                f"a delta round has a capacity between {least} and {2 * full}, not {capacity}"
            )

    def _share(self, stage: Advertised, roster: Roster) -> tuple[Stage, Ledger, Body]:
        context, participants = stage.context, roster.participants
        _check_sorted(participants)
        unknown = [name for name in participants if name not in self.membership.keys]
        if unknown:
            raise UnknownPartyError(f"{unknown[0]} takes part but is not a member")
        if self.name not in participants:
            raise ChangedParticipantsError(f"{self.name} advertised but is not listed")
        self._check_enough(participants)
        graph = Graph.of(context.digest, participants, self.federation.policy)
        neighbours = self._advertised_by(graph.neighbours(self.name), context, roster)
        seed = self._entropy(KEY_BYTES)
        numbers = [graph.number(name) for name in (*neighbours, self.name)]
        threshold = graph.plan.threshold
        seeds = split(seed, numbers, threshold, self._entropy)
        keys = split(stage.masking.private, numbers, threshold, self._entropy)
        secrets = {
            name: stage.sharing.with_peer(advertised.sharing_key)
            for name, advertised in neighbours.items()
        }
        sealed = []
        for name, of_seed, of_key in zip(neighbours, seeds, keys, strict=False):
            key, pair = _sharing_key(secrets[name], context, self.name, name)
            sealed.append((name, encrypt(key, of_seed + of_key, pair)))
        shared = Shared(context, graph, neighbours, secrets, stage.masking, seed, seeds[-1])
        return shared, self.ledger, Shares(tuple(sealed))

    def _advertised_by(
        self, neighbours: tuple[str, ...], context: Context, roster: Roster
    ) -> dict[str, Advertise]:
        """The neighbours' keys, each signed by its owner for this attempt."""
        found: dict[str, Advertise] = {}
        for data in roster.advertisements:
            letter = Letter(data)
            name = letter.payload.sender
            if name not in neighbours or name in found:
                raise ChangedParticipantsError(f"{name or 'the server'} is not a neighbour here")
            payload = letter.check(self.membership.keys[name])
            if payload.context != context or not isinstance(payload.body, Advertise):
                raise OutOfOrderError(f"{name}'s advertisement belongs to another attempt")
            found[name] = payload.body
        if len(found) != len(neighbours):
            raise ChangedParticipantsError("a neighbour's advertisement is missing")
        return {name: found[name] for name in neighbours}

    def _send(self, stage: Shared, delivery: Delivery) -> tuple[Stage, Ledger, Body]:
        context, sharers = stage.context, delivery.sharers
        _check_sorted(sharers)
        present = set(sharers)
        if not present <= set(stage.graph.participants) or self.name not in present:
            raise ChangedParticipantsError("who shared secrets does not fit who takes part")
        self._check_enough(sharers)
        near = [name for name in stage.neighbours if name in present]
        if sorted(name for name, _ in delivery.sealed) != near:
            raise ChangedParticipantsError("the shares delivered do not fit who shared secrets")
        self._check_threshold(stage.graph, len(near))
        held = {}
        for name, ciphertext in delivery.sealed:
            key, pair = _sharing_key(stage.secrets[name], context, name, self.name)
            plaintext = decrypt(key, ciphertext, pair)
            held[name] = plaintext[:SHARE_BYTES], plaintext[SHARE_BYTES:]
        ledger, change = self._change(context)
        codec = self.federation.codec(context.capacity, context.salt)
        vector = codec.encode(change.points(), change.counts())
        vector = add(vector, mask(_self_mask_key(stage.seed, context, self.name), codec.length))
        for name in near:
            secret = stage.masking.with_peer(stage.neighbours[name].masking_key)
            vector = add(vector, pair_mask(secret, context, self.name, name, codec.length))
        sent = Sent(context, stage.graph, sharers, held, stage.own_share)
        return sent, ledger, Masked(codec.pack(vector))

    def _change(self, context: Context) -> tuple[Ledger, Histogram]:
        """What to send; the same in every attempt of a round."""
        ledger = self.ledger
        pending = ledger.pending
        if pending is None:
            pending = self._current().copy()
            ledger = replace(ledger, pending=pending, pending_round=context.round)
        if context.kind == "full":
            return ledger, pending
        return ledger, pending - self._known_base(ledger)

    def _known_base(self, ledger: Ledger) -> Histogram:
        if ledger.base is None:
            raise BaseMismatchError(
                f"the server counts round {ledger.base_round} of {self.name}, which is not"
                " known here: a full round is needed"
            )
        return ledger.base

    def _consent(self, stage: Sent, survivors: Survivors) -> tuple[Stage, Ledger, Body]:
        alive, dead = survivors.alive, survivors.dead
        both = set(alive) & set(dead)
        if both:
            raise AliveAndDeadError(f"{min(both)} is listed as alive and as dead")
        _check_sorted(alive)
        _check_sorted(dead)
        if tuple(sorted(alive + dead)) != stage.sharers or self.name not in alive:
            raise ChangedParticipantsError("the survivors do not fit who shared secrets")
        self._check_enough(alive)
        near = set(stage.graph.neighbours(self.name)) & set(alive)
        self._check_threshold(stage.graph, len(near))
        self._check_answered(stage.context, alive)
        consented = Consented(stage.context, stage.graph, alive, dead, stage.held, stage.own_share)
        signature = self._identity.sign(consent_to(stage.context, alive, dead))
        return consented, self.ledger, Consent(signature)

    def _reveal(self, stage: Consented, unmask: Unmask) -> tuple[Stage, Ledger, Body]:
        self._check_answered(stage.context, stage.alive)
        signers = [name for name, _ in unmask.signatures]
        if len(set(signers)) != len(signers) or not set(signers) <= set(stage.alive) - {self.name}:
            raise ChangedParticipantsError("signatures of others than the survivors")
        near = set(stage.graph.neighbours(self.name)) & set(signers)
        needed = stage.graph.plan.threshold - 1, self.federation.policy.minimum - 1
        if len(near) < needed[0] or len(signers) < needed[1]:
            raise TooFewError(
                f"{len(near)} neighbours and {len(signers)} survivors in all agree to the"
                f" survivors; {needed[0]} and {needed[1]} must"
            )
        agreed = consent_to(stage.context, stage.alive, stage.dead)
        for name, signature in unmask.signatures:
            if not signed_by(self.membership.keys[name], signature, agreed):
                raise BadSignatureError(f"{name} did not agree to these survivors")
        seeds = [(name, stage.held[name][0]) for name in stage.alive if name in stage.held]
        keys = [(name, stage.held[name][1]) for name in stage.dead if name in stage.held]
        state = stage.context.epoch, self.ledger.committed[1]
        ledger = replace(
            self.ledger,
            answered=Answered(*state, stage.alive),
            unmasked_since=self.ledger.unmasked_since or stage.context.epoch,
        )
        body = Reveal(tuple(sorted([*seeds, (self.name, stage.own_share)])), tuple(keys))
        return Revealed(stage.context), ledger, body

    # -- checks --------------------------------------------------------------------------------

    def _check_answered(self, context: Context, alive: tuple[str, ...]) -> None:
        """One set of survivors between two commits."""
        answered = self.ledger.answered
        state = context.epoch, self.ledger.committed[1]
        if answered is not None and answered[:2] == state and answered.alive != alive:
            raise SecondSurvivorSetError(
                "other survivors were answered for since the last commit; the difference of the two"
                " sums would show somebody's input"
            )

    def _check_enough(self, names: tuple[str, ...]) -> None:
        minimum = self.federation.policy.minimum
        if len(names) < minimum:
            raise TooFewError(f"{len(names)} clients are left, at least {minimum} must be")

    def _check_threshold(self, graph: Graph, neighbours: int) -> None:
        if neighbours + 1 < graph.plan.threshold:
            raise TooFewError(
                f"{neighbours} neighbours are left, at least {graph.plan.threshold - 1} must be"
            )


def _check_sorted(names: tuple[str, ...]) -> None:
    if any(one >= other for one, other in pairwise(names)):
        raise ChangedParticipantsError("a list of names is not sorted, or has one twice")


# -- keys that both sides derive ---------------------------------------------------------------


def _sharing_key(
    secret: bytes, context: Context, sender: str, recipient: str
) -> tuple[bytes, bytes]:
    """The key that encrypts one neighbour's shares for another, and what binds it to them."""
    pair = digest_of(context.digest, sender.encode(), recipient.encode())
    return derive(secret, "shares", pair), pair


def _self_mask_key(seed: bytes, context: Context, name: str) -> bytes:
    return derive(seed, "self mask", digest_of(context.digest, name.encode()))


def self_mask(seed: bytes, context: Context, name: str, length: int) -> Elements:
    """The mask that a client puts on its vector for itself."""
    return mask(_self_mask_key(seed, context, name), length)


def pair_mask(secret: bytes, context: Context, name: str, other: str, length: int) -> Elements:
    """The mask that ``name`` puts on its vector for ``other``; theirs together are zero."""
    first, second = sorted((name, other))
    pair = digest_of(context.digest, first.encode(), second.encode())
    elements = mask(derive(secret, "pair mask", pair), length)
    return elements if name == first else minus(elements)
