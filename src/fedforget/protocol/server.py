"""The server's side of a round: gathers answers, goes on when told, learns the sum alone.

There is no clock here.  The caller decides when a stage has lasted long enough and calls
:meth:`Server.advance`; whoever has not answered by then is taken for lost.  What must outlive the
process is the :class:`Ledger`, which the caller stores before it sends what ``open``, ``advance``
or ``commit`` return.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

import numpy as np

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import pair_mask, self_mask
from fedforget.protocol.errors import (
    BadShareError,
    BadSignatureError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    UnknownPartyError,
    WrongFederationError,
    WrongLengthError,
)
from fedforget.protocol.federation import EVERYONE, SERVER, Federation, Membership
from fedforget.protocol.graph import Graph
from fedforget.protocol.keys import Agreement, Entropy, Identity, digest_of, signed_by
from fedforget.protocol.messages import (
    Advertise,
    Body,
    Consent,
    Context,
    Delivery,
    Kind,
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
from fedforget.protocol.shares import join
from fedforget.scma import DecodeError, add, next_capacity
from fedforget.scma.polynomials import Elements, minus


class Outgoing(NamedTuple):
    """A message to be delivered to a client."""

    recipient: str
    data: bytes


class Stage(StrEnum):
    """What the server waits for."""

    IDLE = "idle"
    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "masked input"
    CONSENT = "consistency"
    UNMASK = "unmask"
    DECIDED = "commit"


class Exposed(NamedTuple):
    """The survivors whom clients were asked to unmask since the last commit."""

    epoch: int
    committed_round: int
    alive: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """What the server must remember between rounds.

    Attributes
    ----------
    round, attempt : the latest ones opened.
    committed_round : the last one committed, 0 for none.
    counted : for every client that the aggregate counts, the last round that counted it.
    notice : the last commit notice, as it was sent.
    exposed : the survivors of an attempt that may have been unmasked since the last commit.
    unmasked_since : the first epoch in which one may have been, 0 for none.
    """

    round: int = 0
    attempt: int = 0
    committed_round: int = 0
    counted: Mapping[str, int] = field(default_factory=dict)
    notice: bytes | None = None
    exposed: Exposed | None = None
    unmasked_since: int = 0


@dataclass(frozen=True)
class Result:
    """What a round found out: the sum of the survivors' histograms, or of their changes."""

    kind: Kind
    survivors: tuple[str, ...]
    total: Histogram


_ANSWERS: dict[Stage, type[Body]] = {
    Stage.ADVERTISE: Advertise,
    Stage.SHARE: Shares,
    Stage.MASK: Masked,
    Stage.CONSENT: Consent,
    Stage.UNMASK: Reveal,
}


class Server:
    """Runs the rounds of a federation.

    Parameters
    ----------
    identity : the server's key.
    federation, membership : what all parties agree on.
    ledger : what is remembered from before.
    entropy : source of random bytes.
    """

    def __init__(
        self,
        identity: Identity,
        federation: Federation,
        membership: Membership,
        ledger: Ledger | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        if identity.public != federation.server_key:
            raise UnknownPartyError("this is not the server's key")
        self.federation = federation
        self.membership = membership
        self.ledger = ledger or Ledger()
        self.stage = Stage.IDLE
        self.result: Result | None = None
        self._identity = identity
        self._entropy = entropy
        self._reset()

    def __repr__(self) -> str:
        return f"Server(epoch {self.membership.epoch}, round {self.ledger.round}, {self.stage})"

    def _reset(self) -> None:
        self.stage = Stage.IDLE
        self.result = None
        self._context: Context | None = None
        self._expected: tuple[str, ...] = ()
        self._answers: dict[str, Body] = {}
        self._fingerprints: dict[str, bytes] = {}
        self._advertisements: dict[str, tuple[bytes, Advertise]] = {}
        self._graph: Graph | None = None
        self._sharers: tuple[str, ...] = ()
        self._alive: tuple[str, ...] = ()
        self._total: Elements = np.empty(0, dtype=np.uint64)

    def adopt(self, membership: Membership, departed: Iterable[str] = ()) -> None:
        """Begin a later epoch; an attempt under way is abandoned.

        ``departed`` are clients that took their histogram out in a delta round and then left.
        """
        if membership.epoch <= self.membership.epoch:
            raise OutOfOrderError(
                f"epoch {membership.epoch} does not come after {self.membership.epoch}"
            )
        self.membership = membership
        gone = set(departed)
        counted = {name: at for name, at in self.ledger.counted.items() if name not in gone}
        self.ledger = replace(self.ledger, counted=counted)
        self._reset()

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Who has not answered in this stage."""
        return tuple(name for name in self._expected if name not in self._answers)

    @property
    def exposed(self) -> tuple[str, ...] | None:
        """The only survivors that may be unmasked before the next commit, if there are such."""
        exposed = self.ledger.exposed
        state = self.membership.epoch, self.ledger.committed_round
        return exposed.alive if exposed is not None and exposed[:2] == state else None

    # -- opening -------------------------------------------------------------------------------

    def open(self, kind: Kind) -> list[Outgoing]:
        """Begin a round; one under way is abandoned."""
        if kind == "delta" and self.needs_full_round:
            raise RoundAbortedError(
                "a full round is needed: the aggregate counts somebody who is no longer a member,"
                " or changes were unmasked in an earlier epoch and not committed"
            )
        full = self.membership.capacity
        capacity = full if kind == "full" else min(self.federation.first_capacity, 2 * full)
        self.ledger = replace(self.ledger, round=self.ledger.round + 1, attempt=0)
        return self._open_attempt(kind, capacity)

    @property
    def needs_full_round(self) -> bool:
        """Whether changes would not be enough, or would show too much.

        Two sums of changes since the same commit, over different survivors, differ by somebody's
        change; a new epoch does not make that better.
        """
        counted, unmasked_since = set(self.ledger.counted), self.ledger.unmasked_since
        return not counted <= set(self.membership.keys) or unmasked_since not in (
            0,
            self.membership.epoch,
        )

    def _open_attempt(self, kind: Kind, capacity: int) -> list[Outgoing]:
        self._reset()
        self.ledger = replace(self.ledger, attempt=self.ledger.attempt + 1)
        self._context = Context(
            federation=self.federation.identifier,
            configuration=self.federation.configuration,
            membership=self.membership.digest,
            epoch=self.membership.epoch,
            round=self.ledger.round,
            attempt=self.ledger.attempt,
            kind=kind,
            capacity=capacity,
            salt=self._entropy(16),
        )
        # Where survivors were exposed, nobody else can be let in before the next commit.
        invited = self.exposed or tuple(sorted(self.membership.keys))
        return self._ask(Stage.ADVERTISE, dict.fromkeys(invited, Open(self.ledger.notice)))

    def _ask(self, stage: Stage, bodies: Mapping[str, Body]) -> list[Outgoing]:
        """Begin a stage: what to say to whom."""
        assert self._context is not None
        self.stage = stage
        self._expected = tuple(bodies)
        self._answers, self._fingerprints = {}, {}
        return [
            Outgoing(name, seal(Payload(self._context, SERVER, name, body), self._identity))
            for name, body in bodies.items()
        ]

    # -- answers -------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take a client's answer, or refuse it and change nothing.

        The same answer again, byte for byte, is ignored.
        """
        fingerprint = digest_of(data)
        letter = Letter(data)
        payload = letter.payload
        key = self.membership.keys.get(payload.sender)
        if key is None or payload.recipient != SERVER:
            raise UnknownPartyError("not a message from a member to the server")
        letter.check(key)
        if self._context is None or payload.context != self._context:
            if payload.context.configuration != self.federation.configuration:
                raise WrongFederationError(f"{payload.sender} has another configuration")
            raise OutOfOrderError("the answer belongs to no attempt that is under way")
        name = payload.sender
        if self._fingerprints.get(name) == fingerprint:
            return
        expected = _ANSWERS.get(self.stage)
        if expected is None or not isinstance(payload.body, expected):
            raise OutOfOrderError(f"{type(payload.body).__name__} is not asked for now")
        if name not in self._expected or name in self._answers:
            raise OutOfOrderError(f"{name} is not asked, or has answered otherwise")
        self._accept(name, payload.body, data)
        self._answers[name] = payload.body
        self._fingerprints[name] = fingerprint

    def _accept(self, name: str, body: Body, data: bytes) -> None:
        """Check what only the server can check, and keep what the next stage needs."""
        assert self._context is not None
        match body:
            case Advertise():
                self._advertisements[name] = data, body
            case Shares():
                assert self._graph is not None
                if tuple(to for to, _ in body.sealed) != self._graph.neighbours(name):
                    raise WrongLengthError(f"{name}'s shares are not for its neighbours")
            case Masked():
                codec = self.federation.codec(self._context.capacity, self._context.salt)
                try:
                    vector = codec.unpack(body.vector)
                except DecodeError as error:
                    raise WrongLengthError(f"{name}'s vector: {error}") from None
                self._total = add(self._total, vector)
            case Consent():
                agreed = consent_to(self._context, self._alive, self._dead)
                if not signed_by(self.membership.keys[name], body.signature, agreed):
                    raise BadSignatureError(f"{name} signed other survivors")
            case Reveal():
                self._check_reveal(name, body)

    def _check_reveal(self, name: str, body: Reveal) -> None:
        assert self._graph is not None
        holders = {name, *self._graph.neighbours(name)}
        seeds, keys = ([owner for owner, _ in part] for part in (body.seeds, body.keys))
        if sorted(seeds) != sorted(holders & set(self._alive)):
            raise WrongLengthError(f"{name} revealed other seeds than those asked for")
        if sorted(keys) != sorted(holders & set(self._dead)):
            raise WrongLengthError(f"{name} revealed other keys than those asked for")

    @property
    def _dead(self) -> tuple[str, ...]:
        alive = set(self._alive)
        return tuple(name for name in self._sharers if name not in alive)

    # -- going on ------------------------------------------------------------------------------

    def advance(self) -> list[Outgoing]:
        """End the stage: go on with those who have answered.

        Returns the next messages; none if the round is decided, and :attr:`result` is there.

        Raises
        ------
        RoundAbortedError
            If the round cannot go on; the server is idle again.
        """
        try:
            match self.stage:
                case Stage.ADVERTISE:
                    return self._announce()
                case Stage.SHARE:
                    return self._deliver()
                case Stage.MASK:
                    return self._list_survivors()
                case Stage.CONSENT:
                    return self._ask_to_unmask()
                case Stage.UNMASK:
                    return self._decide()
        except RoundAbortedError:
            self._reset()
            raise
        raise OutOfOrderError(f"there is no stage to end: {self.stage}")

    def _present(self) -> tuple[str, ...]:
        """Those who have answered, sorted; too few of them end the round."""
        present = tuple(sorted(self._answers))
        if len(present) < self.federation.policy.minimum:
            raise RoundAbortedError(
                f"{len(present)} clients are left at {self.stage}, of"
                f" {self.federation.policy.minimum} that must be; nothing was learnt"
            )
        return present

    def _announce(self) -> list[Outgoing]:
        assert self._context is not None
        participants = self._present()
        self._check_exposed(participants, exactly=False)
        self._graph = Graph.of(self._context.digest, participants, self.federation.policy)
        rosters = {}
        for name in participants:
            near = self._graph.neighbours(name)
            rosters[name] = Roster(
                participants, tuple(self._advertisements[other][0] for other in near)
            )
        return self._ask(Stage.SHARE, rosters)

    def _deliver(self) -> list[Outgoing]:
        assert self._context is not None
        self._sharers = self._present()
        self._check_threshold(self._sharers)
        sealed: dict[str, list[tuple[str, bytes]]] = {name: [] for name in self._sharers}
        for name in self._sharers:
            body = self._answers[name]
            assert isinstance(body, Shares)
            for other, ciphertext in body.sealed:
                if other in sealed:
                    sealed[other].append((name, ciphertext))
        codec = self.federation.codec(self._context.capacity, self._context.salt)
        self._total = np.zeros(codec.length, dtype=np.uint64)
        return self._ask(
            Stage.MASK,
            {name: Delivery(self._sharers, tuple(parts)) for name, parts in sealed.items()},
        )

    def _list_survivors(self) -> list[Outgoing]:
        alive = self._present()
        self._check_exposed(alive, exactly=True)
        self._check_threshold(alive)
        self._alive = alive
        return self._ask(Stage.CONSENT, dict.fromkeys(alive, Survivors(alive, self._dead)))

    def _ask_to_unmask(self) -> list[Outgoing]:
        assert self._graph is not None
        consenting = self._present()
        self._check_threshold(consenting)
        self.ledger = replace(
            self.ledger,
            exposed=Exposed(self.membership.epoch, self.ledger.committed_round, self._alive),
            unmasked_since=self.ledger.unmasked_since or self.membership.epoch,
        )
        signatures = {}
        for name in consenting:
            body = self._answers[name]
            assert isinstance(body, Consent)
            signatures[name] = body.signature
        requests = {}
        for name in consenting:
            near = [other for other in self._graph.neighbours(name) if other in signatures]
            # A client's threshold counts itself; more signatures would prove nothing more.
            signers = near[: self._graph.plan.threshold - 1]
            others = (other for other in consenting if other != name and other not in signers)
            signers += islice(others, max(0, self.federation.policy.minimum - 1 - len(signers)))
            requests[name] = Unmask(tuple((other, signatures[other]) for other in signers))
        return self._ask(Stage.UNMASK, requests)

    def _check_threshold(self, present: Iterable[str]) -> None:
        """End the round if somebody's secrets can no longer be put together."""
        assert self._graph is not None
        there = set(present)
        for name in self._sharers:
            holders = {name, *self._graph.neighbours(name)}
            if len(holders & there) < self._graph.plan.threshold:
                raise RoundAbortedError(
                    f"too few neighbours of {name} are left at {self.stage} to take its masks off;"
                    " nothing was learnt"
                )

    def _check_exposed(self, present: tuple[str, ...], *, exactly: bool) -> None:
        exposed = self.exposed
        if exposed is None:
            return
        if not set(exposed) <= set(present) or (exactly and exposed != present):
            raise RoundAbortedError(
                "somebody whose input was part of an unmasked sum is missing; a sum without it"
                " would show it. A full round in a new epoch is needed",
                needs_new_epoch=True,
            )

    # -- the sum -------------------------------------------------------------------------------

    def _decide(self) -> list[Outgoing]:
        assert self._context is not None
        self._check_threshold(self._answers)
        total = self._unmasked()
        codec = self.federation.codec(self._context.capacity, self._context.salt)
        kind, capacity = self._context.kind, self._context.capacity
        try:
            histogram = Histogram.of(*codec.decode(total))
        except DecodeError as error:
            return self._grow(error, kind, capacity)
        self.result = Result(kind, self._alive, histogram)
        self.stage = Stage.DECIDED
        self._expected = ()
        return []

    def _grow(self, error: DecodeError, kind: Kind, capacity: int) -> list[Outgoing]:
        """Another attempt with more room, or the end of the round.

        A change can touch twice as many bins as there are, old ones and new ones, and then there is
        room for all of them: a sum that does not fit is corrupted.
        """
        full = self.membership.capacity * (2 if kind == "delta" else 1)
        try:
            larger = next_capacity(error, capacity, full)
        except DecodeError as final:
            raise RoundAbortedError(
                f"the sum is corrupted and was not used ({final}); somebody sent what is not an"
                " encoding of a histogram"
            ) from final
        return self._open_attempt(kind, larger)

    def _unmasked(self) -> Elements:
        """The sum of the survivors' vectors, from which every mask is taken off."""
        assert self._context is not None
        assert self._graph is not None
        context, graph, threshold = self._context, self._graph, self._graph.plan.threshold
        seeds: dict[str, dict[int, bytes]] = {name: {} for name in self._alive}
        keys: dict[str, dict[int, bytes]] = {name: {} for name in self._dead}
        for name, body in self._answers.items():
            assert isinstance(body, Reveal)
            number = graph.number(name)
            for owner, share in body.seeds:
                seeds[owner][number] = share
            for owner, share in body.keys:
                keys[owner][number] = share
        total, length = self._total, self._total.size
        alive = set(self._alive)
        try:
            for name, shares in seeds.items():
                seed = join(shares, threshold)
                total = add(total, minus(self_mask(seed, context, name, length)))
            for name, shares in keys.items():
                key = Agreement(join(shares, threshold))
                if key.public != self._advertisements[name][1].masking_key:
                    raise BadShareError(f"the shares of {name} do not give its key")
                for other in graph.neighbours(name):
                    if other in alive:
                        secret = key.with_peer(self._advertisements[other][1].masking_key)
                        total = add(total, pair_mask(secret, context, name, other, length))
        except ProtocolError as error:
            raise RoundAbortedError(f"the masks do not come off: {error}") from error
        return total

    # -- the end -------------------------------------------------------------------------------

    def commit(self, model: bytes) -> list[Outgoing]:
        """Make the result final, once the caller has stored it, and tell every member.

        Parameters
        ----------
        model : digest of the model that follows from the result.
        """
        if self.result is None or self._context is None:
            raise OutOfOrderError("there is no result to commit")
        if len(model) != 32:
            raise ValueError(f"a model's digest has 32 bytes, got {len(model)}")
        counted = dict(self.ledger.counted) if self.result.kind == "delta" else {}
        counted |= dict.fromkeys(self.result.survivors, self._context.round)
        notice = Notice(self.result.survivors, tuple(sorted(counted.items())), model)
        data = seal(Payload(self._context, SERVER, EVERYONE, notice), self._identity)
        self.ledger = replace(
            self.ledger,
            committed_round=self._context.round,
            counted=counted,
            notice=data,
            exposed=None,
            unmasked_since=0,
        )
        self._reset()
        return [Outgoing(name, data) for name in sorted(self.membership.keys)]

    def abandon(self) -> None:
        """Give up the round; nothing is committed."""
        self._reset()
