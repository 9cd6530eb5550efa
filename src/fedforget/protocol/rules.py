"""Who may take part in a round, who must be there, and who must sign.

Clients and server ask the same questions here, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from fedforget.protocol.errors import (
    BadShareError,
    ChangedParticipantsError,
    ProtocolError,
    TooFewError,
)
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import AgreementKey
from fedforget.protocol.membership import Membership
from fedforget.protocol.messages import Advertise, RoundKind

Counted = Mapping[str, int]
"""Whom the model counts, each with the last round that counted it."""
NEEDS_EVERYBODY = "a full round needs everybody on the list"


@dataclass(frozen=True)
class Quorum:
    """How many signatures must come from which members."""

    population: frozenset[str]
    signers: int


@dataclass(frozen=True)
class Requirements:
    """What a round of one kind asks of its participants.

    Attributes
    ----------
    allowed : who may take part, sorted.
    everyone : whether all of them must.
    present : fewest participants, sharers and survivors.
    quorums : who must sign.
    """

    allowed: tuple[str, ...]
    everyone: bool
    present: int
    quorums: tuple[Quorum, ...]

    def check_present(self, names: tuple[str, ...]) -> None:
        """Refuse a sorted list of participants, sharers or survivors that is too small."""
        if not set(names) <= set(self.allowed):
            stranger = min(set(names) - set(self.allowed))
            raise ChangedParticipantsError(f"{stranger} may not take part in this round")
        if self.everyone and names != self.allowed:
            missing = min(set(self.allowed) - set(names))
            raise TooFewError(f"{NEEDS_EVERYBODY}; {missing} is missing")
        if len(names) < self.present:
            raise TooFewError(f"{len(names)} clients are left, at least {self.present} must be")

    def missing_signers(self, signers: Iterable[str]) -> int:
        """How many more signatures are needed."""
        there = set(signers)
        return max(max(0, one.signers - len(one.population & there)) for one in self.quorums)

    def enough(self, signers: Iterable[str]) -> tuple[str, ...]:
        """The first of these signers, so many that every quorum is reached; sorted."""
        chosen: set[str] = set()
        ordered = sorted(signers)
        for quorum in self.quorums:
            lacking = quorum.signers - len(chosen & quorum.population)
            more = [name for name in ordered if name in quorum.population and name not in chosen]
            chosen.update(more[: max(0, lacking)])
        return tuple(sorted(chosen))


def requirements(
    kind: RoundKind, membership: Membership, counted: Counted, policy: Policy
) -> Requirements:
    """What a round asks for, or why there can be none of this kind."""
    n = len(membership)
    known = frozenset(name for name in counted if name in membership)
    whole = policy.thresholds(n)
    of_known = policy.thresholds(n, len(known))
    known_quorum = Quorum(known, of_known.signers)
    if kind == "delta":
        reason = why_no_delta(membership, counted)
        if reason is not None:
            raise ChangedParticipantsError(reason)
        allowed = tuple(name for name in membership.active if name in known)
        present = max(of_known.present, of_known.signers)
        if len(known) < n:
            # Newcomers make the list longer: more may collude, all of them among the known ones.
            present = max(present, fewest_counted(membership, policy))
        return Requirements(allowed, False, present, (known_quorum,))
    reason = why_no_full(membership, counted)
    if reason is not None:
        raise ChangedParticipantsError(reason)
    quorums = [Quorum(frozenset(membership.position), whole.signers)]
    if known_quorum.signers <= len(known) < n:
        # Deltas among the counted members may go on meanwhile; the two must not pass each other by.
        # Where too few of them are left to sign, there can be no delta either.
        quorums.append(known_quorum)
    return Requirements(membership.active, True, whole.present, tuple(quorums))


def why_no_delta(membership: Membership, counted: Counted) -> str | None:
    """What stands against a round of changes, None if nothing does."""
    if not counted:
        return "nothing is counted yet: the first round must be a full one"
    strangers = sorted(name for name in counted if name not in membership)
    if strangers:
        return (
            f"{strangers[0]} was counted in round {counted[strangers[0]]} and is no longer a"
            " member: a full round must take it out"
        )
    return None


def why_no_full(membership: Membership, counted: Counted) -> str | None:
    """What stands against a full round, None if nothing does."""
    away = sorted(name for name in membership.suspended if name in counted)
    if away:
        return (
            f"{away[0]} is suspended and was counted in round {counted[away[0]]}: a full round"
            " without it would show its histogram; let it come back, or take it off the list"
        )
    return None


def check_leavers(
    membership: Membership,
    policy: Policy,
    alive: tuple[str, ...],
    left: tuple[str, ...],
    alone: Iterable[str],
    before: Counted,
    after: Counted,
) -> None:
    """Refuse a round whose leavers are so few that one would show, or that leaves too few behind.

    ``left`` are the leavers among the survivors, ``before`` and ``after`` who is counted before and
    after the round.  A leaver of whom nothing is counted hides nobody.
    """
    if not left:
        return
    check_partings(membership, policy, before, set(left), set(alone))
    behind, staying = fewest_counted(membership, policy), len(alive) - len(left)
    if after and (len(after) < behind or staying < policy.minimum):
        raise TooFewError(_too_few_stay(min(len(after), staying)))


def groups_of(membership: Membership, counted: Iterable[str]) -> list[frozenset[str]]:
    """The counted members in groups of those who came together.

    Whole inputs are in sums group by group, as long as no group parts: so a group of two honest
    members hides each of them, whatever the server adds and subtracts.  Whoever was there before
    is a group by itself: earlier sums may tell it apart from the others.
    """
    groups: dict[tuple[int, str], set[str]] = {}
    for name in counted:
        if name in membership:
            apart = name if name in membership.returned else ""
            groups.setdefault((membership.since[name], apart), set()).add(name)
    return [frozenset(group) for group in groups.values()]


def parts_of(group: frozenset[str], parted: Iterable[tuple[str, ...]]) -> list[frozenset[str]]:
    """A group in the parts that sums which were never committed may tell apart."""
    parts = [group]
    for some in parted:
        both = [(part & set(some), part - set(some)) for part in parts]
        parts = [one for pair in both for one in pair if one]
    return parts


def group_with(name: str, groups: Iterable[frozenset[str]]) -> frozenset[str]:
    """The group of one member; empty if it is in none."""
    return next((group for group in groups if name in group), frozenset())


def part_with(
    name: str, membership: Membership, groups: Iterable[frozenset[str]]
) -> frozenset[str]:
    """Those of a member's group whom no sum may tell apart from it."""
    return group_with(name, parts_of(group_with(name, groups), membership.parted))


def check_partings(
    membership: Membership,
    policy: Policy,
    counted: Iterable[str],
    leaving: Set[str],
    alone: Set[str],
) -> None:
    """Refuse leavers that part any group so that somebody would show."""
    for group in groups_of(membership, counted):
        check_parting(membership, policy, group, leaving, alone)


def check_parting(
    membership: Membership,
    policy: Policy,
    group: frozenset[str],
    leaving: Set[str],
    alone: Set[str],
) -> None:
    """Refuse leavers that part a group so that those who go, or those who stay, would show.

    Those who go may accept that.  Those who stay are not asked in a round, only by a new list.  The
    same holds for each part of the group that is told apart already.
    """
    fewest, epoch = fewest_together(membership, policy), membership.since[min(group)]
    for part in dict.fromkeys((group, *parts_of(group, membership.parted))):
        going, staying = part & leaving, part - leaving
        if 0 < len(going) < fewest and not going <= alone:
            raise TooFewError(
                f"of those who came with list {epoch} only {_all_of(going)} would leave; with fewer"
                f" than {fewest}, their histograms would show. Others of that group must leave with"
                " them, or each of them accepts that it shows (`client leave --alone`)"
                + _suspended_in(membership, staying)
            )
        if going and 0 < len(staying) < fewest:
            short = len(membership) - len(going) < policy.minimum
            first = "enrol others first and then " if short else ""
            raise TooFewError(
                f"{_all_of(staying)} would be all that stays of those who came with list {epoch};"
                f" with fewer than {fewest}, their histograms would show. Let them leave together,"
                f" or {first}drop {', '.join(sorted(going))} (`server enrol --gone`), which asks"
                " those who stay" + _suspended_in(membership, staying)
            )


def may_leave(
    membership: Membership,
    policy: Policy,
    wishes: Mapping[str, bool],
    counted: Iterable[str],
) -> set[str]:
    """Who of those who wish to leave can, group by group.

    ``wishes`` says of each whether it would leave alone.
    """
    counted = set(counted)
    alone = {name for name, one in wishes.items() if one}
    found = wishes.keys() - counted
    for group in groups_of(membership, counted):
        wished = group & wishes.keys()
        fewest = fewest_together(membership, policy)
        parts = [part & wished for part in parts_of(group, membership.parted)]
        enough = frozenset[str]().union(*(part for part in parts if len(part) >= fewest))
        for leaving in (wished, enough, group & alone):
            try:
                check_parting(membership, policy, group, leaving, alone)
            except TooFewError:
                continue
            found |= leaving
            break
    return found


@dataclass(frozen=True)
class Waiting:
    """Members that wish to leave and cannot yet, and what would let them go."""

    members: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{', '.join(self.members)}: {self.text}"


def why_waiting(
    membership: Membership,
    policy: Policy,
    wishes: Mapping[str, bool],
    counted: Iterable[str],
) -> list[Waiting]:
    """Why :func:`may_leave` does not let go some of those who wish to leave, group by group."""
    counted = set(counted)
    alone = {name for name, one in wishes.items() if one}
    held = wishes.keys() - may_leave(membership, policy, wishes, counted)
    found = []
    for group in groups_of(membership, counted):
        if held.isdisjoint(group):
            continue
        try:
            check_parting(membership, policy, group, group & wishes.keys(), alone)
        except TooFewError as error:
            found.append(Waiting(tuple(sorted(held & group)), str(error)))
    return sorted(found, key=lambda one: one.members)


def few_stay(
    membership: Membership, policy: Policy, staying: int, gone: Iterable[str]
) -> Waiting | None:
    """Who waits because too few members would stay, None if enough do, or nobody."""
    if 0 < staying < fewest_counted(membership, policy):
        return Waiting(tuple(sorted(gone)), _too_few_stay(staying))
    return None


def _too_few_stay(number: int) -> str:
    return (
        f"{_members(number)} would stay after this round, too few: what they hold would show."
        " Enrol others first, or end the federation together"
    )


def _suspended_in(membership: Membership, names: Iterable[str]) -> str:
    """The way out where somebody who was to leave with the others is suspended."""
    away = sorted(set(names) & membership.suspended)
    if not away:
        return ""
    return (
        f". {away[0]} of that group is suspended and cannot leave with them: let it come back"
        " (`server enrol --resume`), or drop it (`--gone`)"
    )


def _all_of(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed) if len(listed) <= 5 else f"{', '.join(listed[:4])} and others"


def _members(number: int) -> str:
    return "1 member" if number == 1 else f"{number} members"


def joiners(membership: Membership, counted: Iterable[str]) -> tuple[str, ...]:
    """Who may take part and is not counted yet."""
    known = set(counted)
    return tuple(name for name in membership.active if name not in known)


def fewest_counted(membership: Membership, policy: Policy) -> int:
    """Fewest whose sum may be known.

    Among ``minimum`` members there are two honest ones, or one if that is all that was asked for,
    even if all who may collude on the whole list are among them.
    """
    return max(policy.minimum, policy.colluders(len(membership)) + policy.honest)


def fewest_together(membership: Membership, policy: Policy) -> int:
    """How many must join, or leave, at once: two honest ones whatever the colluders do."""
    return policy.colluders(len(membership)) + 2 if policy.minimum > 1 else 1


def check_advertised(name: str, body: Advertise) -> None:
    """Refuse keys of low order, and say whose they are."""
    try:
        for data in (body.sharing_key, body.masking_key):
            AgreementKey(data)
    except ProtocolError as error:
        raise BadShareError(f"{name}: {error}") from None
