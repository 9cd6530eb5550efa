"""What an honest client does: one small function per event, and every rule is a flag.

Words are those of ``docs/threat-model.md``. A *place* is the number of commits so far, an *attempt*
one run of the secure sum, a *link* the digest of a notice. Digests and signatures are perfect here:
a link or a list is the tuple of what it holds, interned, so that equal means identical.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import NamedTuple

Set = frozenset[int]
NOBODY: Set = frozenset()
MINIMUM = 3
FULL, DELTA = "full", "delta"


@dataclass(frozen=True)
class Rules:
    """Which rules clients follow. The default is all of them; ``without`` switches some off."""

    # R1: one history
    lock_at_consent: bool = True  # else the lock is taken at reveal
    locks: bool = True  # else a client signs any set at any time
    full_keeps_the_lock: bool = True  # else a full round may replace a locked set
    lock_names_leavers: bool = True
    link_in_context: bool = True
    notice_in_context: bool = True  # the attempt behind the last notice is in the context
    counted_recomputed: bool = True
    colluders_in_quorum: bool = True  # else c = 0 in every threshold
    joint_quorum: bool = True  # s(|D|) signatures come from D
    list_names_link: bool = True  # a list says after which notice it was made
    right_list: bool = True  # the newest list made no later than this place, no other
    keys_in_notice: bool = True  # a notice names the advertised key, not only the attempt
    others_sets_followed: bool = True  # else one follows no notice but for the set one signed
    superset_across_lists: bool = True  # a later set at one place keeps everybody still active
    leavers_across_lists: bool = True  # the same for leavers
    leavers_named: bool = True  # a list names the leavers of sums that were begun
    # R2: a base never changes by itself
    stop_without_input: bool = True
    # R3 and R4: who must be there
    thresholds_from_list: bool = True  # else from those whom the server lets take part
    full_of_everybody: bool = True
    no_full_beside_suspended: bool = True
    delta_of_counted: bool = True
    no_delta_beside_dropped: bool = True
    joiners_in_groups: bool = True
    joiners_by_list: bool = True  # else joiners are "active and not counted"
    companions_kept: bool = True  # who came together stays together, or is at least c + 2
    parted_apart: bool = True  # leavers of a sum that was begun are a group of their own
    few_in_every_sum: bool = True  # c + 2 were active under all lists since the last commit
    few_beside_absent: bool = True  # n - h more from the third list on
    signers_stay: bool = True  # lists drop fewer than s - c of those who may have signed
    lines_end_with_sums: bool = True  # whoever is in a sum gives its line to nobody else
    suspend_counted_only: bool = True
    leaver_waits_for_group: bool = True
    leavers_survive_in_groups: bool = True
    enough_stay: bool = True  # `minimum` survivors stay when others leave
    leavers_wait: bool = True  # an honest server lists only those who may leave
    # R5: fixed before it is secret
    fixed_at_advertise: bool = True
    # What a policy says: how many colluders are tolerated at least
    tolerated: int = 1

    def without(self, *names: str) -> Rules:
        return replace(self, **dict.fromkeys(names, False))


MENDED = Rules()
#: The rules as they were written before the model; what the model added is off.
DRAFT = MENDED.without(
    "joiners_by_list",
    "suspend_counted_only",
    "leavers_survive_in_groups",
    "leavers_across_lists",
    "enough_stay",
    "keys_in_notice",
    "notice_in_context",
    "others_sets_followed",
    "companions_kept",
)
NAMES = tuple(field.name for field in fields(Rules) if field.default is True)


class Refused(Exception):
    """The client does nothing: the message is not one that it accepts."""


class Stopped(Exception):
    """The client does nothing more until its operator tells it to."""


def require(condition: bool, reason: str) -> None:
    if not condition:
        raise Refused(reason)


# What is written down


@dataclass(frozen=True, eq=False)
class List:
    """A membership list. ``after`` is the link of the last notice when it was made."""

    label: str
    members: Set
    suspended: Set
    before: List | None
    after: Link
    parted: frozenset[Set] = frozenset()  # leavers of sums that were begun and not committed
    lines: frozenset[tuple[int, int]] = frozenset()  # who takes over whose line with this list

    @cached_property
    def active(self) -> Set:
        return self.members - self.suspended

    @cached_property
    def joined(self) -> Set:
        if self.before is None:
            return self.members
        return self.members - self.before.members - {new for new, _ in self.lines}

    def __repr__(self) -> str:
        return self.label


@dataclass(frozen=True, eq=False)
class Link:
    """A link of the history: the digest of what a notice says, without attempt and model."""

    place: int
    previous: Link | None
    list: List | None
    survivors: Set
    left: Set
    counted: tuple[tuple[int, int], ...]  # member and the place that last counted it

    @cached_property
    def members(self) -> Set:
        return frozenset(member for member, _ in self.counted)

    def __repr__(self) -> str:
        if self.previous is None:
            return f"link {self.place}"
        return f"link {self.place} ({show(self.survivors)} under {self.list})"


make_list = cache(List)
make_link = cache(Link)


def show(members: Set) -> str:
    return "{" + ",".join(map(str, sorted(members))) + "}"


class Input(NamedTuple):
    """A symbol for what a client sent: fresh for every attempt that it advertised in."""

    member: int
    place: int
    attempt: int
    copy: int = 0


EMPTY, UNKNOWN = "empty", "unknown"
Value = Input | str


class Lock(NamedTuple):
    list: List
    alive: Set
    left: Set


class Context(NamedTuple):
    """What every message of an attempt is signed over."""

    number: int
    list: List
    link: Link | None
    notice: int | None
    kind: str
    leaving: Set


class Client(NamedTuple):
    """The durable state of an honest client."""

    name: int
    list: List | None
    link: Link | None
    notice: int = 0  # the attempt behind the last notice
    locks: frozenset[Lock] = frozenset()  # those of this place
    stored: tuple[int, int, Value] | None = None  # attempt, copy of the key, what is sent
    base: Value = EMPTY
    seen: int = 0  # the last attempt
    stopped: bool = False
    gone: bool = False  # it has left


class Wishes(NamedTuple):
    """What operators said on their own command lines."""

    leaving: Set = NOBODY
    alone: Set = NOBODY


# Thresholds


def colluders(rules: Rules, members: int) -> int:
    return max(rules.tolerated, -(-members // 10)) if rules.colluders_in_quorum else 0


def present(count: int) -> int:
    """h(m) with δ = 0.1."""
    return max(MINIMUM, count - -(-count // 10))


def signatures(rules: Rules, members: int, count: int) -> int:
    """s(m); c is that of the whole list."""
    return (count + colluders(rules, members)) // 2 + 1


def at_home(link: Link, list_: List) -> Set:
    """D: counted and on the list."""
    return link.members & list_.members


def is_quorum(rules: Rules, list_: List, link: Link, kind: str, signers: Set, alive: Set) -> bool:
    """Whether so many signed that any two quorums share an honest member.

    Delta: s(|D|) of D. Full: s(n) of the list, and s(|D|) of them from D.
    """
    n, home = len(list_.members), at_home(link, list_)
    if not rules.thresholds_from_list:
        n, home = len(alive), alive & home
    of_home = len(signers & home) >= signatures(rules, n, len(home))
    if kind == DELTA:
        return of_home
    whole = len(signers & list_.members) >= signatures(rules, n, n)
    return whole and (of_home or not home or not rules.joint_quorum)


# Events


def list_at(rules: Rules, client: Client, place: int) -> List:
    """The list that is right for a place: the newest one that was not made later."""
    found = client.list
    assert found is not None
    while rules.right_list and found.after.place > place and found.before is not None:
        found = found.before
    return found


def adopt(rules: Rules, client: Client, new: List, wishes: Wishes) -> Client:
    """The operator has looked at a list and accepts it."""
    require(not client.gone, "it has left")
    require(client.name in new.members, "it is not on the list")
    n = len(new.members)
    require(present(n) <= n, "too few members")
    require(signatures(rules, n, n) <= present(n), "too few members")
    if rules.suspend_counted_only:
        require(new.suspended <= new.after.members, "it suspends somebody who is not counted")
    if rules.companions_kept:
        groups = companions(new, new.after)
        mine = next((group for group in groups if client.name in group), NOBODY)
        mine = next((part for part in parts(rules, new, mine) if client.name in part), mine)
        require(is_group(rules, new, mine, wishes), "too few of those who came with me remain")
    if client.list is None:
        return client._replace(list=new, link=new.after)
    check_sums_begun(rules, client, new)
    if client.name not in wishes.alone:
        check_lists_since(rules, client, new)
    require(new.before is client.list, "it does not follow the list before")
    if rules.list_names_link and client.link is not None:
        require(new.after.place >= client.link.place, "it was made before a notice that I know")
        same = new.after.place > client.link.place or new.after is client.link
        require(same, "it was made after another notice")
    return client._replace(list=new)


def check_sums_begun(rules: Rules, client: Client, new: List) -> None:
    """A list does not hide what this client signed since the last commit."""
    if rules.leavers_named and new.before is not None:
        require(new.before.parted <= new.parted, "it forgets who was to leave")
    if client.link is None or new.after.place != client.link.place:
        return
    for lock in client.locks:
        if rules.leavers_named and lock.left:
            require(lock.left in new.parted, "it hides who was to leave in a sum that was begun")
        if rules.lines_end_with_sums:
            passed_on = {old for _, old in new.lines}
            require(not lock.alive & passed_on, "it gives away a line that is in a sum")


def check_lists_since(rules: Rules, client: Client, new: List) -> None:
    """The lists since the last commit, taken together, do not tell what this client has."""
    if client.name not in new.after.members:
        return
    if rules.few_in_every_sum:
        few = few_in_every_sum(rules, new, new.after)
        asked = few != few_in_every_sum(rules, client.list, new.after)
        require(not asked or client.name not in few, "too few took part under every list")
    if rules.signers_stay:
        for one in lists_since(new.before, new.after.place):
            known = new.after.members & one.members
            enough = signatures(rules, len(one.members), len(known))
            if enough > len(known):
                known, enough = one.members, signatures(rules, len(one.members), len(one.members))
            honest = enough - colluders(rules, len(one.members))
            require(len(known - new.members) < honest, "all who signed a sum may be dropped")


def lists_since(list_: List | None, place: int) -> list[List]:
    """The lists under which sums may have been begun at a place, newest first."""
    found = history(list_)
    later = [one for one in found if one.after.place == place]
    return [*later, *[one for one in found if one.after.place < place][:1]]


def few_in_every_sum(rules: Rules, list_: List | None, link: Link) -> Set:
    """Who could take part under every list since the last commit, if they are too few."""
    lists, left = lists_since(list_, link.place), link.members
    for one in lists:
        left &= one.active
    fewest = max(colluders(rules, len(one.members)) for one in lists) + 2
    if rules.few_beside_absent and len(lists) > 2:
        # Some may have been away in the first sum; three sums tell them apart from the others.
        fewest += max(most_away(one, link) for one in lists)
    return left if len(left) < min(fewest, len(link.members)) else NOBODY


def most_away(list_: List, link: Link) -> int:
    """How many who are counted and active a delta can do without."""
    home = at_home(link, list_)
    return max(0, len(home & list_.active) - present(len(home)))


def check_set(rules: Rules, client: Client, context: Context, members: Set) -> None:
    """R3 and R4, for roster, sharers and survivors alike."""
    list_, link = context.list, client.link
    assert link is not None
    home = at_home(link, list_)
    require(members <= list_.active, "somebody is not active")
    full = context.kind == FULL
    if rules.thresholds_from_list:
        enough = present(len(list_.members) if full else len(home))
        require(len(members) >= enough, "too few")
    if full:
        if rules.full_of_everybody:
            require(members == list_.active, "a full round is of everybody")
        if rules.no_full_beside_suspended:
            require(not list_.suspended & link.members, "a suspended member is counted")
    else:
        if rules.delta_of_counted:
            require(members <= home, "somebody is not counted")
        if rules.no_delta_beside_dropped:
            require(link.members <= list_.members, "somebody counted is not on the list")


def check_joiners(rules: Rules, client: Client, list_: List, wishes: Wishes) -> None:
    """A newcomer sends its whole input only in a crowd (or alone, by its own word)."""
    assert client.link is not None
    waiting = list_.active - client.link.members
    if rules.joiners_by_list:
        waiting &= next(came for came in arrivals(list_) if client.name in came)
    crowd = len(waiting) >= colluders(rules, len(list_.members)) + 2
    require(crowd or waiting <= wishes.alone, "too few join together")


def is_group(rules: Rules, list_: List, members: Set, wishes: Wishes) -> bool:
    """Whether these are a crowd, or each of them said --alone."""
    enough = len(members) >= colluders(rules, len(list_.members)) + 2
    return enough or members <= wishes.alone


def arrivals(list_: List) -> list[Set]:
    """Who came with each list, newest first, under the names of those who have their lines now."""
    names: dict[int, int] = {}
    found = []
    for one in history(list_):
        found.append(frozenset(names.get(name, name) for name in one.joined))
        names |= {old: names.get(new, new) for new, old in one.lines}
    return found


def parts(rules: Rules, list_: List, group: Set) -> list[Set]:
    """A group in the parts that sums which were never committed may tell apart."""
    found = [group]
    for some in list_.parted if rules.parted_apart else ():
        both = [(part & some, part - some) for part in found]
        found = [one for pair in both for one in pair if one]
    return found


@cache
def companions(list_: List, link: Link) -> tuple[Set, ...]:
    """Those on a list in the groups in which they came, without those who left.

    Members of one group are in exactly the same sums, so no combination of sums tells two honest
    ones of them apart.
    """
    placed: Set = NOBODY  # who left, and then who has a group; the newest list comes first
    step: Link | None = link
    while step is not None:
        placed, step = placed | step.left, step.previous
    groups = []
    for came in arrivals(list_):
        groups.append((came & list_.members) - placed)
        placed |= came
    return tuple(group for group in groups if group)


def may_part(rules: Rules, list_: List, group: Set, left: Set, wishes: Wishes) -> bool:
    """Whether those who leave, and those who stay, hide one another, in every part of a group.

    Those who leave may accept that they show; those who stay are not asked in a round.
    """
    for whole in {group, *parts(rules, list_, group)}:
        going, staying = whole & left, whole - left
        if going and not is_group(rules, list_, going, wishes):
            return False
        if going and staying and not is_group(rules, list_, staying, Wishes()):
            return False
    return True


def may_leave(rules: Rules, list_: List, link: Link, wishes: Wishes) -> Set:
    """Whom an honest server lists as leavers: the others wait."""
    wished = wishes.leaving & link.members & list_.active
    if not rules.leavers_wait:
        return wished
    found: Set = NOBODY
    for group in companions(list_, link):
        for some in (group & wished, group & wished & wishes.alone):
            if may_part(rules, list_, group, some, wishes):
                found |= some
                break
    return found if len(link.members - found) >= MINIMUM else NOBODY


def advertise(rules: Rules, client: Client, context: Context, copy: int, wishes: Wishes) -> Client:
    """Open an attempt: fix the input and the randomness, and store them."""
    list_, link = list_at(rules, client, client.link.place if client.link else 0), client.link
    assert link is not None
    require(not client.stopped and not client.gone, "it has stopped")
    require(context.number > client.seen, "an old attempt")
    require(context.list is list_, "another list")
    if rules.right_list:
        require(list_.after.place <= link.place, "the list is for a later place")
        require(list_.after.place < link.place or list_.after is link, "another history")
    if rules.link_in_context:
        require(context.link is link, "another last notice")
    if rules.notice_in_context:
        require(context.notice == client.notice, "another attempt behind the last notice")
    if context.kind == DELTA:
        require(client.base != UNKNOWN, "the base is not known")
    elif client.name not in link.members and rules.joiners_in_groups:
        check_joiners(rules, client, list_, wishes)
    value: Value = Input(client.name, link.place, context.number, copy)
    if client.name in context.leaving:
        group = is_group(rules, list_, context.leaving, wishes)
        value = EMPTY if group or not rules.leaver_waits_for_group else client.base
    return client._replace(stored=(context.number, copy, value), seen=context.number)


def consent(
    rules: Rules, client: Client, context: Context, alive: Set, wishes: Wishes, lock: bool = True
) -> Client:
    """Sign the survivors, after the lock is stored."""
    link, list_ = client.link, context.list
    assert link is not None
    require(client.stored is not None and client.stored[0] == context.number, "not in this one")
    check_set(rules, client, context, alive)
    left = alive & context.leaving
    if rules.leavers_survive_in_groups and left:
        require(is_group(rules, list_, left, wishes), "too few leave together")
    for group in companions(list_, link) if rules.companions_kept and left else ():
        require(may_part(rules, list_, group, left, wishes), "a group is torn apart")
    if rules.enough_stay and left:
        require(len(alive - left) >= MINIMUM, "too few would stay")
    new = Lock(list_, alive, left if rules.lock_names_leavers else NOBODY)
    free = context.kind == FULL and not rules.full_keeps_the_lock
    for old in client.locks if rules.locks and not free else ():
        if old.list is list_:
            require(old == new, "another set is locked at this place")
            continue
        kept = old.alive & list_.active
        if rules.superset_across_lists:
            require(kept <= alive, "somebody of the set locked under the list before is missing")
        if rules.leavers_across_lists:
            require(left & kept == old.left & kept, "others left under the list before")
            new_ones = left - old.alive
            require(not new_ones or is_group(rules, list_, new_ones, wishes), "too few more leave")
    if not lock:
        return client
    kept_locks = frozenset(old for old in client.locks if old.list is not list_)
    return client._replace(locks=kept_locks | {new})


class Notice(NamedTuple):
    """What the server shows as committed; the link follows from it and the link before."""

    context: Context
    alive: Set
    copies: frozenset[tuple[int, int]]  # member, copy of its advertised key
    signers: Set
    uncounted: Set = NOBODY  # whom a lying notice leaves out (where counted is not recomputed)


def link_after(link: Link, notice: Notice) -> Link:
    left = notice.alive & notice.context.leaving
    list_ = notice.context.list
    # A full round is the sum of its survivors; a delta leaves in the sum whoever was in it.
    drops = notice.context.kind == FULL
    counted = {m: place for m, place in link.counted if not drops or m in list_.members}
    counted |= dict.fromkeys(notice.alive, link.place + 1)
    stay = sorted((m, p) for m, p in counted.items() if m not in left | notice.uncounted)
    return make_link(link.place + 1, link, list_, notice.alive, left, tuple(stay))


def follow(rules: Rules, client: Client, notice: Notice) -> Client:
    """Accept a notice: the history gets a link, and the base moves if the notice counts it."""
    context, link = notice.context, client.link
    assert link is not None
    require(not client.stopped and not client.gone, "it has stopped")
    list_ = list_at(rules, client, link.place)
    if rules.right_list:
        require(context.list is list_, "not the list of this place")
    else:
        require(context.list in history(client.list), "a list that it has not adopted")
    if rules.link_in_context:
        require(context.link is link, "another notice before it")
    if rules.notice_in_context:
        require(context.notice == client.notice, "another attempt behind the notice before it")
    require(
        is_quorum(rules, context.list, link, context.kind, notice.signers, notice.alive),
        "no quorum",
    )
    left = notice.alive & context.leaving
    if rules.locks and not rules.others_sets_followed:
        mine = Lock(context.list, notice.alive, left if rules.lock_names_leavers else NOBODY)
        for lock in client.locks:
            require(lock.list is not context.list or lock == mine, "it signed another set")
    after = link_after(link, notice)
    if rules.right_list and client.list is not None and client.list.after.place == after.place:
        require(client.list.after is after, "its list was made after another notice")
    moved = client._replace(
        link=after,
        notice=context.number,
        locks=frozenset(),
        stored=None,
        seen=max(client.seen, context.number),
    )
    return move_base(rules, client, moved, notice, left)


def move_base(rules: Rules, client: Client, moved: Client, notice: Notice, left: Set) -> Client:
    """R2: the base becomes what was counted, or the client stops."""
    name, number = client.name, notice.context.number
    if name in left:
        return moved._replace(base=EMPTY, gone=True)
    if name in notice.uncounted and client.base != EMPTY:
        if rules.stop_without_input:
            raise Stopped("a notice does not count me though I did not leave")
        return moved._replace(base=EMPTY)
    if name not in notice.alive:
        return moved
    stored, copy = client.stored, dict(notice.copies).get(name)
    if stored and stored[0] == number and (stored[1] == copy or not rules.keys_in_notice):
        return moved._replace(base=stored[2])
    if client.base == UNKNOWN or not rules.stop_without_input:
        return moved
    raise Stopped("a notice counts an input that this directory does not hold")


def recover(client: Client) -> Client:
    """The operator's command after a stop: full rounds only until one counts this client."""
    require(client.stopped, "it has not stopped")
    return client._replace(stopped=False, base=UNKNOWN, stored=None)


def history(list_: List | None) -> list[List]:
    found = []
    while list_ is not None:
        found.append(list_)
        list_ = list_.before
    return found
