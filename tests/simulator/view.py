"""What the server gets to see, and every sum that it can make of it.

Everything that an honest client sends is known to the server.  So is what colluding members hold:
their keys, and the shares that were sealed for them.  A masked vector is an input, a self-mask and
a mask for each neighbour.  The server takes off the masks whose secrets it can rebuild; each of the
others belongs to two vectors at most, and cancels where both are added.  So what shows are the sums
over the parts that unknown masks hold together, and whatever follows from these sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import ClientLedger, Followed
from fedforget.protocol.errors import BadSignatureError
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Graph
from fedforget.protocol.keys import Agreement, AgreementKey, digest_of
from fedforget.protocol.masks import View, pair_mask, self_mask
from fedforget.protocol.membership import Membership
from fedforget.protocol.messages import (
    Advertise,
    Consent,
    Context,
    Delivery,
    Letter,
    Masked,
    Payload,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Unmask,
    consent_to,
    view_of,
)
from fedforget.protocol.shares import fingerprint, join
from fedforget.scma import Elements, add, minus
from simulator.faults import ViolationError
from simulator.hosts import Answer

_PRIME = 2**61 - 1

Variable = Hashable
Combination = dict[Variable, int]
"""A linear combination of inputs."""


@dataclass
class Dealing:
    """One client's secrets in shares, for one roster of one attempt."""

    owner: str
    context: Context
    graph: Graph
    points: Mapping[str, int]
    masking_key: bytes
    keys_of: dict[str, bytes]
    body: Shares
    seeds: dict[str, bytes] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)

    def take(self, holder: str, share: bytes, *, of_seed: bool) -> None:
        """A share became known; it is kept if it is one of these."""
        if holder == self.owner:
            dealt = self.body.own_hash if of_seed else b""
        else:
            found = [one for one in self.body.dealt if one.name == holder]
            if not found:
                return
            dealt = found[0].seed_hash if of_seed else found[0].key_hash
        if fingerprint(share) == dealt:
            (self.seeds if of_seed else self.keys)[holder] = share

    def rebuilt(self, *, of_seed: bool, colluders: frozenset[str]) -> bool:
        """Whether the server and the colluders have enough shares."""
        known = set(self.seeds if of_seed else self.keys)
        known |= colluders & set(self.graph.neighbours(self.owner))
        return len(known) >= self.graph.plan.threshold


@dataclass(frozen=True)
class Row:
    """A masked vector: whose input it hides, and which masks are on it."""

    number: int
    owner: str
    context: Context
    dealing: Dealing
    sharers: tuple[str, ...]
    membership: Membership
    counted: Mapping[str, int]
    base: tuple[int, int]
    empty: bool
    change: Histogram
    masked_vector: bytes

    @property
    def place(self) -> tuple[int, int]:
        return self.context.round, self.context.epoch


@dataclass(frozen=True)
class Opened:
    """A sum that the server can compute."""

    rows: tuple[Row, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(row.owner for row in self.rows)


class ServerView:
    """Every message that clients sent, and what follows from it.

    Parameters
    ----------
    federation : what all agree on.
    colluders : members whose secrets the server has.
    """

    def __init__(self, federation: Federation, colluders: Iterable[str] = ()) -> None:
        self._federation = federation
        self._policies = {federation.configuration: federation.policy}
        self.colluders = frozenset(colluders)
        self._dealings: dict[tuple[str, bytes], list[Dealing]] = defaultdict(list)
        self._advertised: dict[tuple[str, bytes], bytes] = {}
        self._rows: list[Row] = []
        self._counted_at: dict[tuple[str, int], int] = {}
        self._seen: set[bytes] = set()
        self._shows_whole: frozenset[str] = frozenset()
        self._signed: dict[tuple[str, bytes], Survivors] = {}
        self._masks: dict[tuple[str, bytes], bytes] = {}

    def amended(self, version: Federation) -> None:
        """There is another version: attempts that name it are judged by its policy."""
        self._policies[version.configuration] = version.policy

    # -- what clients say ----------------------------------------------------------------------

    def client_answers(self, name: str, membership: Membership, answer: Answer) -> None:
        """An honest client is about to send an answer."""
        for event in answer.step.events:
            if isinstance(event, Followed) and event.attempt is not None:
                self._counted_at[name, event.round] = event.context.epoch
        data = answer.step.answer
        if data is None or digest_of(data) in self._seen:
            return
        self._seen.add(digest_of(data))
        payload = Letter(data).content
        if not isinstance(payload, Payload):
            return
        context = payload.context
        match payload.body:
            case Advertise() as body:
                self._advertised[name, context.digest] = body.masking_key
            case Shares() as body:
                self._deals(name, context, membership, Letter(answer.message).payload.body, body)
            case Masked() as body:
                delivery = Letter(answer.message).payload.body
                self._sends(name, context, membership, answer, delivery, body)
            case Consent():
                survivors = Letter(answer.message).payload.body
                assert isinstance(survivors, Survivors)
                self._signed[name, context.digest] = survivors
            case Reveal() as body:
                unmask = Letter(answer.message).payload.body
                assert isinstance(unmask, Unmask)
                self._check_signed(name, context, membership, answer.step.ledger, unmask)
                self._reveals(name, context, body)

    def _check_signed(
        self,
        name: str,
        context: Context,
        membership: Membership,
        ledger: ClientLedger,
        unmask: Unmask,
    ) -> None:
        """Nobody reveals without enough signatures, its own included, on its own set."""
        survivors = self._signed[name, context.digest]
        row = next(
            row
            for row in reversed(self._rows)
            if (row.owner, row.context.digest) == (name, context.digest)
        )
        view = view_of(row.dealing.graph.participants, row.sharers, survivors.dead)
        statement = consent_to(context, survivors.alive, view)
        signers = set()
        for signer, signature in unmask.consents:
            try:
                membership.keys[signer].verify(signature, statement)
            except (BadSignatureError, KeyError):
                continue
            signers.add(signer)
        policy, n = self._policies[context.configuration], len(membership)
        known = {one for one in ledger.place.counted or () if one in membership}
        fewest = policy.thresholds(n, len(known)).signers if known else 1
        # Where so few are left that they can never sign, they are not asked.
        enough = len(signers & known) >= fewest or fewest > len(known) or not known
        if context.kind == "full":
            enough = enough and len(signers) >= policy.thresholds(n).signers
        if name not in signers or not enough:
            raise ViolationError(f"{name} revealed shares for a set that only {signers} signed")

    def _deals(
        self, name: str, context: Context, membership: Membership, roster: object, body: Shares
    ) -> None:
        assert isinstance(roster, Roster)
        keys = {}
        for data in roster.advertisements:
            payload = Letter(data).payload
            assert isinstance(payload.body, Advertise)
            keys[payload.sender] = payload.body.masking_key
        policy = self._policies[context.configuration]
        graph = Graph.of(context.digest, roster.participants, len(membership), policy)
        key = self._advertised[name, context.digest]
        self._dealings[name, context.digest].append(
            Dealing(name, context, graph, membership.position, key, keys, body)
        )

    def _sends(
        self,
        name: str,
        context: Context,
        membership: Membership,
        answer: Answer,
        delivery: object,
        body: Masked,
    ) -> None:
        assert isinstance(delivery, Delivery)
        ledger: ClientLedger = answer.step.ledger
        pending, counted = ledger.pending, ledger.place.counted
        assert pending is not None
        assert counted is not None
        change = pending.plain_input
        if context.kind == "delta":
            assert ledger.base is not None
            change = change - ledger.base
        base = ledger.base_round, self._counted_at.get((name, ledger.base_round), 0)
        row = Row(
            number=len(self._rows),
            owner=name,
            context=context,
            dealing=self._dealings[name, context.digest][-1],
            sharers=delivery.sharers,
            membership=membership,
            counted=counted,
            base=base,
            empty=name in context.leaving or _leaves_unlisted(ledger),
            change=change,
            masked_vector=body.masked_vector,
        )
        self._rows.append(row)
        vector, plain = self._vectors(row)
        if np.array_equal(vector, plain):
            raise ViolationError(f"{name} sent its vector without masks")
        mask = add(vector, minus(plain)).tobytes()
        if self._masks.setdefault((name, mask), plain.tobytes()) != plain.tobytes():
            raise ViolationError(f"{name} hid two inputs under one mask")

    def _reveals(self, holder: str, context: Context, body: Reveal) -> None:
        for of_seed, shares in ((True, body.seeds), (False, body.keys)):
            for owner, share in shares:
                for dealing in self._dealings.get((owner, context.digest), ()):
                    dealing.take(holder, share, of_seed=of_seed)

    # -- what the server can add up ------------------------------------------------------------

    def opened(self) -> list[Opened]:
        """The sums over the parts that unknown masks hold together, in the order of time."""
        parts = {row.number: row.number for row in self._rows}

        def root(number: int) -> int:
            while parts[number] != number:
                number = parts[number]
            return number

        holders: dict[Hashable, list[int]] = defaultdict(list)
        for row in self._rows:
            for mask in self._unknown_masks(row):
                holders[mask].append(row.number)
        shut = set()
        for numbers in holders.values():
            if len(numbers) == 1:
                shut.add(numbers[0])
            for number in numbers[1:]:
                parts[root(number)] = root(numbers[0])
        closed = {root(number) for number in shut}
        sums: dict[int, list[Row]] = defaultdict(list)
        for row in self._rows:
            if root(row.number) not in closed:
                sums[root(row.number)].append(row)
        return [Opened(tuple(rows)) for rows in sums.values()]

    def _unknown_masks(self, row: Row) -> list[Hashable]:
        dealing, colluders = row.dealing, self.colluders
        found: list[Hashable] = []
        if not dealing.rebuilt(of_seed=True, colluders=colluders):
            found.append(("self", row.number))
        if dealing.rebuilt(of_seed=False, colluders=colluders):
            return found
        view = row.context.digest, dealing.graph.participants, row.sharers
        for other, key in dealing.keys_of.items():
            if other not in row.sharers or other in colluders or self._has_key(other, key, row):
                continue
            pair = frozenset(((row.owner, dealing.masking_key), (other, key)))
            found.append(("pair", pair, view))
        return found

    def _has_key(self, other: str, key: bytes, row: Row) -> bool:
        return any(
            dealing.masking_key == key and dealing.rebuilt(of_seed=False, colluders=self.colluders)
            for dealing in self._dealings.get((other, row.context.digest), ())
        )

    # -- what must not show --------------------------------------------------------------------

    def check(
        self,
        troubled: Iterable[str],
        shows_whole: Iterable[str],
        shows_change: Iterable[str],
    ) -> int:
        """Nothing shows except for what the rules say; returns the number of sums that show.

        Parameters
        ----------
        troubled : clients that were taken back, or spoil; they count as colluders.
        shows_whole : whose whole input may show: who joined or left alone, or was dropped.
        shows_change : of whom a change may show: who was suspended.
        """
        sums = self.opened()
        ignored = frozenset(troubled) | self.colluders
        for one in sums:
            self._check_size(one, ignored)
        whole = set(shows_whole)
        self._shows_whole = frozenset(whole)
        self._check_spans(sums, ignored, whole, _whole, "the whole input")
        self._check_spans(sums, ignored, whole, _by_list, "the change under one list")
        away = whole | set(shows_change) | self._came_later(sums)
        self._check_spans(sums, ignored, away, _by_place, "the change at one place")
        for row in self._rows:
            if row.owner not in ignored:
                self._check_hidden(row, sums)
        return len(sums)

    def _check_size(self, one: Opened, ignored: frozenset[str]) -> None:
        for row in one.rows:
            policy = self._policies[row.context.configuration]
            n = len(row.membership)
            known = sum(name in row.membership for name in row.counted)
            thresholds = policy.thresholds(n, n if row.context.kind == "full" else known)
            fewest = thresholds.present - thresholds.colluders
            left = one.names - ignored
            if row.owner not in ignored and len(left) < fewest:
                raise ViolationError(
                    f"the sum of {sorted(left)} shows in attempt {row.context.attempt};"
                    f" {fewest} honest members must be in it"
                )

    def _check_spans(
        self,
        sums: list[Opened],
        ignored: frozenset[str],
        allowed: set[str],
        variables: Callable[[Row], Combination],
        what: str,
    ) -> None:
        """Nobody's input follows from the sums by itself.

        Whole inputs are compared over all sums, those of members who show included.  For changes,
        the inputs of those who may show have nothing to do with each other in any two sums.
        """
        apart = frozenset() if variables is _whole else self._shows_whole
        for owner in self._alone_in(sums, ignored, variables, apart):
            if owner not in allowed:
                raise ViolationError(f"{what} of {owner} follows from the sums that show")

    @staticmethod
    def _alone_in(
        sums: list[Opened],
        ignored: frozenset[str],
        variables: Callable[[Row], Combination],
        apart: frozenset[str],
    ) -> set[str]:
        """Who shows alone; the inputs of those who are ``apart`` differ from sum to sum."""
        rows = []
        for number, one in enumerate(sums):
            total: Combination = defaultdict(int)
            for row in one.rows:
                if row.owner in ignored:
                    continue
                for variable, factor in variables(row).items():
                    key = (row.owner, variable, number) if row.owner in apart else variable
                    total[key] += factor
            rows.append({key: value for key, value in total.items() if value})
        reduced = independent([row for row in rows if row])
        owners = {key[0] for row in reduced for key in row}  # type: ignore[index]
        return {owner for owner in owners if shows_alone(reduced, owner)}

    @staticmethod
    def _came_later(sums: list[Opened]) -> set[str]:
        """Who was away in one sum of a place and part of a later one there."""
        sets: dict[int, list[tuple[int, frozenset[str]]]] = defaultdict(list)
        for one in sums:
            attempt = min(row.context.attempt for row in one.rows)
            sets[one.rows[0].context.round].append((attempt, one.names))
        found: set[str] = set()
        for at_place in sets.values():
            so_far: list[frozenset[str]] = []
            for _, names in sorted(at_place, key=lambda entry: entry[0]):
                found |= {name for name in names for before in so_far if name not in before}
                so_far.append(names)
        return found

    # -- with real masks -----------------------------------------------------------------------

    def _check_hidden(self, row: Row, sums: list[Opened]) -> None:
        """What is said to be hidden must be: take off what can be taken off, and look."""
        if any(one.rows == (row,) for one in sums):
            return
        vector, plain = self._vectors(row)
        if np.array_equal(self._peeled(row, vector), plain):
            raise ViolationError(f"the server can take the masks off the vector of {row.owner}")

    def _vectors(self, row: Row) -> tuple[Elements, Elements]:
        """What a client sent, and what it hides."""
        codec = self._federation.codec(row.context.capacity, row.context.salt)
        plain = codec.encode(row.change.points(), row.change.counts())
        return codec.unpack(row.masked_vector), plain

    def _peeled(self, row: Row, vector: Elements) -> Elements:
        """A vector without the masks that the server can compute from shares it was given."""
        dealing, size = row.dealing, vector.size
        view = View(row.context.digest, dealing.graph.participants, row.sharers)
        if len(dealing.seeds) >= dealing.graph.plan.threshold:
            seed = self._joined(dealing, dealing.seeds)
            vector = add(vector, minus(self_mask(seed, view, row.owner, size)))
        for other, key in dealing.keys_of.items():
            if other not in row.sharers:
                continue
            secret = self._secret_with(dealing, other, key)
            if secret is not None:
                vector = add(vector, minus(pair_mask(secret, view, row.owner, other, size)))
        return vector

    def _secret_with(self, dealing: Dealing, other: str, key: bytes) -> bytes | None:
        threshold = dealing.graph.plan.threshold
        if len(dealing.keys) >= threshold:
            return Agreement(self._joined(dealing, dealing.keys)).with_peer(AgreementKey(key))
        for theirs in self._dealings.get((other, dealing.context.digest), ()):
            if theirs.masking_key == key and len(theirs.keys) >= threshold:
                private = Agreement(self._joined(theirs, theirs.keys))
                return private.with_peer(AgreementKey(dealing.masking_key))
        return None

    @staticmethod
    def _joined(dealing: Dealing, shares: Mapping[str, bytes]) -> bytes:
        held = {dealing.points[name]: share for name, share in shares.items()}
        return join(held, dealing.graph.plan.threshold)


def _leaves_unlisted(ledger: ClientLedger) -> bool:
    """Whether a client sends nothing because it wants to leave, whoever leaves with it."""
    if ledger.leaving is None or ledger.pending is None or ledger.base is None:
        return False
    return len(ledger.base) > 0 and not len(ledger.pending.plain_input)


# -- which inputs are the same -----------------------------------------------------------------


def _whole(row: Row) -> Combination:
    """As if no client ever changed anything: then only whole inputs are left.

    What a leaver takes out is what earlier sums hold of it.
    """
    total = Counted()
    if not row.empty:
        total[row.owner, "input"] += 1
    if row.context.kind == "delta":
        total[row.owner, "input"] -= 1
    return total


def _by_list(row: Row) -> Combination:
    """As if every client changed between two commits, and between two lists."""
    return _changing(row, row.place, row.base)


def _by_place(row: Row) -> Combination:
    """As if every client changed between two commits, and not while there is none."""
    return _changing(row, row.place[0], row.base[0])


def _changing(row: Row, now: Hashable, before: Hashable) -> Combination:
    total = Counted()
    if not row.empty:
        total[row.owner, now] += 1
    if row.context.kind == "delta":
        total[row.owner, "left" if row.empty else before] -= 1
    return total


class Counted(defaultdict[Variable, int]):
    def __init__(self) -> None:
        super().__init__(int)


# -- linear algebra ----------------------------------------------------------------------------


def independent(rows: list[Combination]) -> list[Combination]:
    """Rows that span the same, none of which follows from the others."""
    return [row for row in _eliminated(rows, lambda variable: True) if row]


def shows_alone(rows: list[Combination], owner: str) -> bool:
    """Whether something that has to do with one client alone follows from the rows."""
    left = _eliminated(rows, lambda variable: variable[0] != owner)  # type: ignore[index]
    return any(
        row and all(variable[0] == owner for variable in row)  # type: ignore[index]
        for row in left
    )


def _eliminated(rows: list[Combination], wanted: Callable[[Variable], bool]) -> list[Combination]:
    """The rows after elimination of the wanted variables, modulo a large prime."""
    rest = [{key: value % _PRIME for key, value in row.items()} for row in rows]
    done: list[Combination] = []
    while rest:
        pivot = rest.pop()
        variable = next((key for key in pivot if wanted(key)), None)
        if variable is None:
            done.append(pivot)
            continue
        inverse = pow(pivot[variable], -1, _PRIME)
        for number, row in enumerate(rest):
            if variable in row:
                rest[number] = _less(row, pivot, row[variable] * inverse % _PRIME)
        done.append(pivot)
    return done


def _less(row: Combination, pivot: Combination, factor: int) -> Combination:
    out = dict(row)
    for key, value in pivot.items():
        left = (out.get(key, 0) - factor * value) % _PRIME
        if left:
            out[key] = left
        else:
            out.pop(key, None)
    return out
