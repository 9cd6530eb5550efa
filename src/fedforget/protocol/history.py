"""One history: how commit notices and membership lists follow one another.

A *place* is where the history stands after a commit.  The *link* of a notice is the digest of
everything that decides what clients count from then on; the attempt, the kind of the round, the
model and the time are signed by the server beside it.  All attempts between two commits are at one
place, and no client signs two different sets of survivors there under one membership list.  So two
notices with different links for one place cannot both have enough signatures.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fedforget.protocol.errors import (
    BadSignatureError,
    ForkError,
    MissingNoticeError,
    TooFewError,
    WrongFederationError,
)
from fedforget.protocol.federation import Federation, Version
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import digest_of
from fedforget.protocol.membership import (
    BEGINNING,
    DigestBytes,
    Member,
    Membership,
    Number,
    SignedMembership,
)
from fedforget.protocol.messages import Context, Letter, Notice, consent_to
from fedforget.protocol.rules import Counted, Requirements, check_leavers, requirements


class Place(Struct, frozen=True):
    """Where the history stands.

    ``counted`` is None where only a membership list has told of the commit so far.
    """

    round: Number = 0
    link: DigestBytes = BEGINNING
    attempt: Number = 0
    model: DigestBytes = BEGINNING
    counted: dict[str, int] | None = msgspec.field(default_factory=dict)

    @classmethod
    def told_by(cls, membership: Membership) -> Place:
        """Where somebody begins who comes with this list."""
        if membership.after_round == 0:
            return cls()
        return cls(membership.after_round, membership.after, counted=None)


def link_of(context: Context, notice: Notice) -> bytes:
    """What identifies a commit: everything that clients go on from."""
    return digest_of(
        b"link",
        context.federation,
        context.configuration,
        context.membership,
        context.last,
        context.round.to_bytes(8, "little"),
        msgspec.msgpack.encode([notice.survivors, notice.left, notice.counted]),
    )


def place_of(context: Context, notice: Notice) -> Place:
    """Where the history stands after a notice."""
    link = link_of(context, notice)
    return Place(context.round, link, context.attempt, notice.model, dict(notice.counted))


def counted_after(
    context: Context, before: Counted, survivors: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Who leaves with a commit, and whom it counts from then on."""
    left = tuple(name for name in survivors if name in context.leaving)
    counted = dict(before) if context.kind == "delta" else {}
    counted |= dict.fromkeys(survivors, context.round)
    return left, {name: at for name, at in counted.items() if name not in left}


def left_after(left: tuple[str, ...], notice: Notice) -> tuple[str, ...]:
    """Who has left, after a commit: whoever is counted again has come back."""
    back = {name for name, _ in notice.counted}
    return tuple(sorted(({*left} | {*notice.left}) - back))


def next_list(
    before: Membership | None,
    place: Place,
    *,
    federation: bytes,
    members: Iterable[Member],
    capacity: int,
    leavers: Iterable[tuple[str, ...]] = (),
    opened: Set[str] = frozenset(),
) -> Membership:
    """The membership list that follows another one at a place.

    ``opened`` are the members of sets that were signed at this place and are not committed, and
    ``leavers`` those among them who were to leave.
    """
    listed = sorted(members, key=lambda member: member.name)
    counted = tuple(sorted(place.counted or ()))
    came = _lineage(before, _just_came(before, place.round) - opened, counted, listed)
    return Membership(
        federation=federation,
        epoch=1 if before is None else before.epoch + 1,
        previous=BEGINNING if before is None else before.digest,
        after=place.link,
        after_round=place.round,
        counted=counted,
        dropped=came.dropped,
        former=came.former,
        parted=tuple(sorted({*came.parted, *leavers} - {()})),
        members=tuple(replace(one, since=came.since[one.name]) for one in listed),
        capacity=capacity,
    )


class _Lineage(NamedTuple):
    """Who came when: the part of a list that follows from the list before it."""

    since: dict[str, int]
    dropped: tuple[tuple[str, int], ...]
    former: tuple[str, ...]
    parted: frozenset[tuple[str, ...]]


def _just_came(before: Membership | None, after_round: int) -> Set[str]:
    """Who came with the list before, if there was no commit since."""
    same_place = before is not None and before.after_round == after_round
    return frozenset(before.joined) if before is not None and same_place else frozenset()


def _lineage(
    before: Membership | None,
    unheard: Set[str],
    counted: Sequence[str],
    members: Sequence[Member],
) -> _Lineage:
    """Whoever stays, or is dropped and still counted, is what it was; all others are new.

    A member of whom nothing is counted and who gets a new key is new, too, except for those who are
    ``unheard``: they came with the list before, and no sum holds anything of them.
    """
    if before is None:
        return _Lineage({one.name: 1 for one in members}, (), (), frozenset())
    known = {**dict(before.dropped), **before.since}
    keys = {one.name: one.key for one in before.members}
    still = set(counted)
    since, former = {}, set(before.former)
    for one in members:
        stays = one.name in keys and (keys[one.name] == one.key or one.name in unheard)
        keeps = one.name in known and (one.name in still or stays)
        since[one.name] = known[one.name] if keeps else before.epoch + 1
        if one.name in known and not keeps:
            former.add(one.name)
    former |= {name for name in known if name not in since and name not in still}
    dropped = tuple((name, known[name]) for name in counted if name not in since and name in known)
    # A sum without those who were dropped may have been opened, whatever became of that list.
    back = tuple(name for name, _ in before.dropped if name in since and name in still)
    parted = {some for some in (*before.parted, back) if still.intersection(some)}
    return _Lineage(since, dropped, tuple(sorted(former)), frozenset(parted))


def check_list(lists: Sequence[Membership], membership: Membership, place: Place) -> None:
    """Refuse a list that does not follow the last one, or comes from another history."""
    if lists and membership.epoch != lists[-1].epoch + 1:
        raise MissingNoticeError(_why_not_next(lists, membership))
    if lists and membership.previous != lists[-1].digest:
        raise ForkError(
            f"the list of epoch {membership.epoch} follows another list of epoch"
            f" {lists[-1].epoch} than the one known here; compare the fingerprints of that list"
        )
    if not lists:
        return
    # Whether a sum was begun with somebody whose key is new now, those know who signed that sum.
    just_came = _just_came(lists[-1], membership.after_round)
    unheard = {name for name in just_came if membership.since.get(name) == lists[-1].since[name]}
    came = _lineage(lists[-1], unheard, membership.counted, membership.members)
    told = membership.since, membership.dropped, membership.former
    if came[:3] != told or not came.parted <= set(membership.parted):
        raise ForkError(
            f"the list of epoch {membership.epoch} disagrees with the list before it about who came"
            " when"
        )
    if place.round > membership.after_round:
        raise ForkError(
            f"the list of epoch {membership.epoch} was made after round {membership.after_round},"
            f" but round {place.round} is known here; the server was restored from a backup, or"
            " tells two histories"
        )
    check_made_after(membership, place)


def _why_not_next(lists: Sequence[Membership], membership: Membership) -> str:
    """Why a list of another number than the next one cannot be taken over."""
    last = lists[-1].epoch
    if membership.epoch > last:
        return (
            f"the list of epoch {membership.epoch} does not follow epoch {last}: take the list of"
            f" epoch {last + 1} first"
        )
    said = f"epoch {membership.epoch} is not later than {last}, which is in force here"
    same = [one for one in lists if one.epoch == membership.epoch]
    if same and same[0].digest != membership.digest:
        return (
            f"{said}; and it is another list of epoch {membership.epoch} than the one known here:"
            " the server tells two histories, or was restored. Compare the fingerprints with other"
            " members"
        )
    return said


def check_made_after(membership: Membership, place: Place) -> None:
    """Refuse a list that tells something else of the commit it was made after than is known here.

    Whom the commit counts matters, too: only who is counted can be suspended.
    """
    if place.round != membership.after_round:
        return
    if place.link != membership.after:
        raise ForkError(
            f"the list of epoch {membership.epoch} was made after another round"
            f" {place.round} than the one known here; the server tells two histories"
        )
    if place.counted is not None and set(membership.counted) != place.counted.keys():
        raise ForkError(
            f"the list of epoch {membership.epoch} does not count those whom round {place.round}"
            " counts"
        )


def check_lists(signed: Iterable[SignedMembership], federation: Federation) -> None:
    """Make sure that stored lists are signed by the server, and follow one another."""
    lists: list[Membership] = []
    for one in signed:
        membership = one.check(federation.server_key, federation.identifier)
        check_list(lists, membership, Place())
        lists.append(membership)


def version_of(context: Context, federation: Federation) -> Version:
    """The version of the federation under whose list a round was run, if the round says so, too."""
    version = federation.version_at(context.epoch)
    if version is None:
        raise WrongFederationError(
            f"round {context.round} was run before the first version of the federation file that is"
            " known here"
        )
    if context.configuration != version.configuration:
        raise WrongFederationError(
            f"round {context.round} was run with another configuration of this federation than the"
            f" one that belongs to the list of epoch {context.epoch}"
        )
    return version


def follow(
    place: Place,
    lists: Sequence[Membership],
    context: Context,
    notice: Notice,
    policy: Policy,
) -> tuple[Place, Membership, Requirements]:
    """The place after a notice, its list, and who had to sign; signatures are not looked at.

    ``place`` must be known, and ``lists`` are those that were adopted, in their order.
    """
    assert place.counted is not None
    if context.round != place.round + 1:
        raise MissingNoticeError(
            f"the notice of round {context.round} does not follow round {place.round}, which is"
            " the last one known here"
        )
    if context.last != place.link:
        raise ForkError(
            f"the notice of round {context.round} follows another round {place.round} than the one"
            " known here; the server tells two histories"
        )
    membership = _list_of(context, lists)
    left, counted = counted_after(context, place.counted, notice.survivors)
    if notice.left != left or notice.counted != tuple(sorted(counted.items())):
        raise ForkError(
            f"the notice of round {context.round} does not count those whom it should: what was"
            " counted before, and its survivors"
        )
    needed = requirements(context.kind, membership, place.counted, policy)
    needed.check_present(notice.survivors)
    check_leavers(membership, policy, notice.survivors, left, context.alone, place.counted, counted)
    after = place_of(context, notice)
    for one in standing(lists):
        check_made_after(one, after)
    return after, membership, needed


def standing(lists: Sequence[Membership]) -> list[Membership]:
    """The lists whose word on the commit that they were made after still stands.

    A restored server may have lost a commit that nobody else knows, and a list that was made after
    it is known.  The next list is then made after an earlier round: it takes that word back.  It is
    refused wherever the lost commit is known, so nobody can follow both.
    """
    found: list[Membership] = []
    for one in reversed(lists):
        if not found or one.after_round <= found[-1].after_round:
            found.append(one)
    return found[::-1]


def _list_of(context: Context, lists: Sequence[Membership]) -> Membership:
    """The list under which a round was committed, if it was the right one for that place."""
    for at, membership in enumerate(lists):
        if membership.digest != context.membership or membership.epoch != context.epoch:
            continue
        ended = any(context.round > later.after_round for later in lists[at + 1 :])
        if context.round <= membership.after_round or ended:
            raise ForkError(
                f"round {context.round} should not have been run with the list of epoch"
                f" {membership.epoch}"
            )
        return membership
    raise WrongFederationError(
        f"round {context.round} was run with a membership list (epoch {context.epoch}) that is not"
        " known here: join with that list first"
    )


def check_consents(
    consents: Sequence[tuple[str, bytes]],
    statement: bytes,
    membership: Membership,
    needed: Requirements,
    policy: Policy,
    secret: bytes | None = None,
) -> None:
    """Make sure that enough members signed a set of survivors.

    Where many more signatures came than are needed, a random sample of them is verified: were
    fewer than the needed number valid, it would find a bad one except with a probability of 2 to
    minus ``policy.security_bits``.

    Parameters
    ----------
    consents : names and signatures, each name once.
    statement : what was signed.
    membership, needed, policy : whose signatures, and how many.
    secret : from which the sample follows; all are verified without it.
    """
    signatures: Mapping[str, bytes] = dict(consents)
    if len(signatures) != len(consents) or not signatures.keys() <= membership.keys.keys():
        raise TooFewError("a signature occurs twice, or is not by a member")
    missing = needed.missing_signers(signatures)
    if missing:
        raise TooFewError(f"{len(signatures)} members agree to the survivors; {missing} more must")
    generator = None if secret is None else random.Random(secret)
    verified: set[str] = set()
    for quorum in needed.quorums:
        signers = sorted(quorum.population & signatures.keys())
        size = _sample_size(len(signers), quorum.signers, policy.security_bits)
        chosen = signers if generator is None else generator.sample(signers, size)
        for name in chosen:
            if name not in verified:
                _verify(membership, name, signatures[name], statement)
                verified.add(name)


def _verify(membership: Membership, name: str, signature: bytes, statement: bytes) -> None:
    try:
        membership.keys[name].verify(signature, statement)
    except BadSignatureError:
        raise BadSignatureError(f"{name} did not agree to these survivors") from None


def _sample_size(given: int, needed: int, bits: int) -> int:
    """How many of the given signatures to verify, so that enough of them are valid."""
    if needed <= 1:
        return min(given, needed)
    # Were at most needed - 1 valid, each one drawn is valid with a smaller probability than this.
    share = (needed - 1) / given
    return min(given, needed, math.ceil(bits / -math.log2(share))) if share < 1 else given


def consent_of(context: Context, notice: Notice) -> bytes:
    """What the signatures of a notice are on."""
    return consent_to(context, notice.survivors, notice.view)


def walk(
    lists: Sequence[Membership],
    letters: Sequence[bytes],
    federation: Federation,
) -> Place:
    """Follow stored notices from the first list on, and verify every signature.

    Each is judged by the version of the federation that its list came with or found in force.
    The first notice may be the one after which the first list was made: the list vouches for it.
    """
    place = Place.told_by(lists[0])
    for data in letters:
        letter = Letter(data)
        letter.check(federation.server_key)
        context, notice = letter.payload.context, letter.payload.body
        if not isinstance(notice, Notice):
            raise MissingNoticeError("what is stored as a commit notice is not one")
        if place.counted is None:
            if (context.round, link_of(context, notice)) != (place.round, place.link):
                raise ForkError(f"the notice of round {place.round} is not the one of the list")
            place = place_of(context, notice)
            continue
        policy = version_of(context, federation).policy
        place, membership, needed = follow(place, lists, context, notice, policy)
        check_consents(notice.consents, consent_of(context, notice), membership, needed, policy)
    return place
