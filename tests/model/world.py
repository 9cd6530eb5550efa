"""Honest clients, up to c colluders, one restore, and any server.

A move is one of: the server runs an attempt; a client follows a notice; a client's operator accepts
a list; a client is restored to an earlier state of its own; a restored client takes part once more
in an attempt that exists; an operator runs ``recover``. The server chooses everything: context,
kind, survivors, who of them signs, who hears of which notice and of which list, and when.

What is left out, and why nothing is lost by that:

* An attempt is one move. Attempt numbers only grow at each client, so in any run the events of
  attempt k can be moved before those of attempt k + 1; only a restored client can come back to an
  older attempt, and it has a move of its own for this. Inside one attempt, ``model.attempt`` shows
  that whatever the views, at most one set gets a quorum; so the move has one set.
* Survivors that sign as soon as there is a quorum also reveal: the lock is taken already. (Where
  the lock is taken at reveal, who reveals is a choice of its own.)
* Colluders sign everything and know each other's secrets; they have no state.
* Nobody takes part who is called lost: that binds the client and gives the server nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, permutations
from typing import Any, NamedTuple

from model.knowledge import REGIMES, Row, exposed
from model.rules import (
    DELTA,
    EMPTY,
    FULL,
    NOBODY,
    Client,
    Context,
    Input,
    Link,
    List,
    Notice,
    Refused,
    Rules,
    Set,
    Stopped,
    Wishes,
    adopt,
    advertise,
    colluders,
    consent,
    follow,
    history,
    is_quorum,
    list_at,
    make_link,
    make_list,
    present,
    recover,
    show,
)


class Attempt(NamedTuple):
    """What the server has from one attempt."""

    notice: Notice
    row: Row  # the sum of what honest survivors sent
    opened: bool  # whether the server has it
    stray: tuple[int, int] | None = None  # whose base is not the one that somebody else presumes


class World(NamedTuple):
    clients: tuple[Client, ...]
    attempts: tuple[Attempt, ...] = ()
    known: frozenset[Row] = frozenset()  # the first round; differences of inputs under one mask
    past: tuple[Client, ...] = ()  # earlier states of the client that may be restored
    restored: int | None = None


Step = tuple[tuple[Any, ...], World]


class Change(NamedTuple):
    """What a new list may do to the list before."""

    what: str
    who: Set = NOBODY
    line_of: int | None = None  # whose line the one who comes takes over


SAME = Change("same")
NO_WISHES = Wishes()


@dataclass(frozen=True)
class Scenario:
    """Who is there, what may happen and how often."""

    name: str
    members: int  # the founders are 0 .. members - 1
    counted: bool = True  # whether they have a first round behind them
    colluding: Set = NOBODY
    newcomers: Set = NOBODY
    restorable: int | None = None
    wishes: Wishes = NO_WISHES
    changes: tuple[Change, ...] = ()
    attempts: int = 2
    lists: int = 0
    places: int = 2  # commits beyond the start
    recovers: bool = False
    lies: bool = False  # whether notices leave out whom they should count
    tolerated: int = 1  # c, where a tenth of the members is less
    silent: bool = False  # no notice is shown: the server keeps all sums to itself
    # Bounds for the larger ones:
    leavings: tuple[Set, ...] | None = None  # which leavers an attempt may name (None: any)
    all_sign: bool = False  # all survivors who would sign are asked to
    together: bool = False  # all operators who would accept a list do so at once

    def honest(self) -> Set:
        return (frozenset(range(self.members)) | self.newcomers) - self.colluding


def start(scenario: Scenario) -> World:
    everyone = frozenset(range(scenario.members))
    counted = tuple((member, 0) for member in sorted(everyone)) if scenario.counted else ()
    root = make_link(0, None, None, everyone if scenario.counted else NOBODY, NOBODY, counted)
    founding = make_list("L1", everyone, NOBODY, None, root)
    clients = []
    for name in sorted(scenario.honest()):
        if name in scenario.newcomers:
            clients.append(Client(name, None, None))
            continue
        base = Input(name, -1, 0) if scenario.counted else EMPTY
        clients.append(Client(name, founding, root, base=base))
    first = frozenset((client.base, 1) for client in clients if isinstance(client.base, Input))
    return World(tuple(clients), known=frozenset({first}) if scenario.counted else frozenset())


# Moves


class Server:
    """All moves from a state, for one scenario and one set of rules."""

    def __init__(self, scenario: Scenario, rules: Rules) -> None:
        self.scenario = scenario
        self.rules = rules = replace(rules, tolerated=scenario.tolerated)
        # Clients decide by their own state only, and few states of one client make many worlds.
        self.advertise = cache(partial(outcome, advertise, rules))
        self.consent = cache(partial(outcome, consent, rules))
        self.follow = cache(partial(outcome, follow, rules))
        self.adopt = cache(partial(outcome, adopt, rules))
        self.signed_by = cache(partial(is_quorum, rules))

    def moves(self, world: World) -> Iterator[Step]:
        yield from self.run_attempts(world)
        yield from self.show_notices(world)
        yield from self.show_lists(world)
        yield from self.restores(world)
        yield from self.recoveries(world)

    def put(self, world: World, *new: Client) -> World:
        """The world with these clients changed; earlier states of one of them are kept."""
        byname = {client.name: client for client in new}
        past = world.past
        for client in world.clients:
            mine = client.name == self.scenario.restorable and client.name in byname
            if mine and world.restored is None and client not in past:
                past = (*past, client)
        clients = tuple(byname.get(client.name, client) for client in world.clients)
        return world._replace(clients=clients, past=past)

    def run_attempts(self, world: World) -> Iterator[Step]:
        if len(world.attempts) >= self.scenario.attempts:
            return
        number = len(world.attempts) + 1
        for context in self.contexts(world, number):
            ready = {}
            for client in world.clients:
                if client.list is not None and client.name in context.list.members:
                    after = self.advertise(client, context, 0, self.scenario.wishes)
                    if isinstance(after, Client):
                        ready[client.name] = after
            bad = self.scenario.colluding & context.list.members
            for alive in subsets(frozenset(ready) | bad, 2):
                if alive & frozenset(ready):
                    yield from self.run_attempt(world, context, alive, ready)

    def contexts(self, world: World, number: int) -> Iterator[Context]:
        seen: dict[Context, None] = {}
        for client in world.clients:
            if client.list is None or client.link is None:
                continue
            place = client.link.place
            if place >= self.scenario.places:
                continue
            list_ = list_at(self.rules, client, place)
            link = client.link if self.rules.link_in_context else None
            notice = client.notice if self.rules.notice_in_context else None
            for kind in (FULL, DELTA):
                for leaving in self.leavings(client.link):
                    seen[Context(number, list_, link, notice, kind, leaving)] = None
        yield from seen

    def leavings(self, link: Link) -> Iterator[Set]:
        """Statements are signed by the leavers: the server names those who want to leave."""
        wish = self.scenario.wishes.leaving & link.members
        named = self.scenario.leavings
        yield from subsets(wish, 0) if named is None else (one for one in named if one <= wish)

    def run_attempt(
        self,
        world: World,
        context: Context,
        alive: Set,
        ready: dict[int, Client],
    ) -> Iterator[Step]:
        """One set of survivors; the server chooses who of them is asked to sign."""
        rules, wishes = self.rules, self.scenario.wishes
        bad = alive & self.scenario.colluding
        willing = {}
        for name in alive - bad:
            signed = self.consent(ready[name], context, alive, wishes, rules.lock_at_consent)
            if isinstance(signed, Client):
                willing[name] = signed
        link = next(iter(willing.values())).link if willing else None
        if link is None:
            return
        late = frozenset({self.scenario.restorable}) if world.restored is None else NOBODY
        everyone = frozenset(willing)
        for signing in [everyone] if self.scenario.all_sign else subsets(everyone, 1):
            complete = self.quorum(context, alive, link, signing | bad)
            if not complete and not self.quorum(context, alive, link, signing | bad | late):
                continue
            revealing = [signing] if rules.lock_at_consent else subsets(signing, 0)
            for revealed in revealing:
                changed = {name: ready[name] for name in alive - bad}
                changed |= {name: willing[name] for name in signing}
                if not rules.lock_at_consent:
                    for name in revealed:
                        changed[name] = self.consent(changed[name], context, alive, wishes)
                notice = Notice(context, alive, first_keys(alive - bad), signing | bad)
                opened = complete and self.quorum(context, alive, link, revealed | bad)
                stray = astray(changed) if opened and context.kind == DELTA else None
                run = Attempt(notice, self.row(context.kind, changed), opened, stray)
                after = self.put(world, *changed.values())
                after = after._replace(attempts=(*world.attempts, run))
                yield (describe, notice, signing, revealed, opened), after

    def quorum(self, context: Context, alive: Set, link: Link, signers: Set) -> bool:
        return self.signed_by(context.list, link, context.kind, signers & alive, alive)

    def row(self, kind: str, clients: dict[int, Client]) -> Row:
        """The sum of what the honest survivors sent."""
        total: dict[Input, int] = {}
        for client in clients.values():
            assert client.stored is not None
            sent = client.stored[2]
            if isinstance(sent, Input):
                total[sent] = total.get(sent, 0) + 1
            if kind == DELTA and isinstance(client.base, Input):
                total[client.base] = total.get(client.base, 0) - 1
        return frozenset((symbol, value) for symbol, value in total.items() if value)

    def show_notices(self, world: World) -> Iterator[Step]:
        for attempt in () if self.scenario.silent else world.attempts:
            for client in world.clients:
                if client.link is None or client.link.place >= self.scenario.places:
                    continue
                for notice in self.versions(attempt.notice):
                    after = self.follow(client, notice)
                    if isinstance(after, Client):
                        yield (said_follow, client.name, notice), self.put(world, after)
                    elif isinstance(after, Stopped):
                        stopped = client._replace(stopped=True)
                        yield (said_stop, client.name, notice, after), self.put(world, stopped)

    def versions(self, notice: Notice) -> Iterator[Notice]:
        yield notice
        if self.scenario.lies and not self.rules.counted_recomputed:
            for member in notice.context.list.members:
                yield notice._replace(uncounted=frozenset({member}))

    def show_lists(self, world: World) -> Iterator[Step]:
        lists = {one: None for client in world.clients for one in history(client.list)}
        links = {client.link: None for client in world.clients if client.link is not None}
        offered = dict(lists)
        if len(lists) <= self.scenario.lists:
            for before in lists:
                for change in self.scenario.changes:
                    for link in links:
                        for parted in self.partings(world, before, link):
                            new = changed_list(before, change, link, len(lists) + 1, parted)
                            if new is not None:
                                offered[new] = None
        if self.scenario.together:
            for new in offered:
                after = [self.adopt(client, new, self.scenario.wishes) for client in world.clients]
                after = [self.instruct(world, c) for c in after if isinstance(c, Client)]
                if after:
                    yield (said_adopt, "everybody who may", new), self.put(world, *after)
            return
        for client in world.clients:
            for new in offered:
                after = self.adopt(client, new, self.scenario.wishes)
                if isinstance(after, Client):
                    after = self.instruct(world, after)
                    yield (said_adopt, client.name, new), self.put(world, after)

    def partings(self, world: World, before: List, link: Link) -> Iterator[frozenset[Set]]:
        """Lists may name the leavers of the sums that were begun, or hide them."""
        yield before.parted
        notices = [a.notice for a in world.attempts if a.notice.context.link is link]
        begun = {notice.alive & notice.context.leaving for notice in notices}
        named = before.parted | (begun - {NOBODY})
        if named != before.parted:
            yield named

    def instruct(self, world: World, client: Client) -> Client:
        """The server tells a newcomer which attempt was behind the notice that its list names."""
        if next(c for c in world.clients if c.name == client.name).list is None:
            for other in world.clients:
                if other.link is client.link:
                    return client._replace(notice=other.notice)
        return client

    def restores(self, world: World) -> Iterator[Step]:
        if world.restored is not None:
            yield from self.repeat(world)
            return
        for number, old in enumerate(world.past):
            clients = tuple(old if c.name == old.name else c for c in world.clients)
            if clients != world.clients:
                after = world._replace(clients=clients, restored=old.name, past=())
                yield (said_restore, number, old), after

    def repeat(self, world: World) -> Iterator[Step]:
        """The restored client takes part once more in an attempt that exists."""
        client = next(c for c in world.clients if c.name == world.restored)
        for index, attempt in enumerate(world.attempts):
            notice, context = attempt.notice, attempt.notice.context
            keys = dict(notice.copies)
            # From the start, with a fresh key: unrelated to what it sent before.
            again = self.advertise(client, context, 1, self.scenario.wishes)
            if isinstance(again, Client):
                known = world.known
                if not self.rules.fixed_at_advertise and client.name in keys:
                    one = Input(client.name, client.link.place, context.number)
                    known |= {frozenset({(one, 1), (one._replace(copy=1), -1)})}
                after = self.put(world, again)._replace(known=known)
                yield (said_again, client.name, context.number), after
            # From where it was, with the same key: it may sign what it had not signed.
            if client.stored is None or client.stored[:2] != (
                context.number,
                keys.get(client.name),
            ):
                continue
            signed = self.consent(client, context, notice.alive, self.scenario.wishes)
            if not isinstance(signed, Client):
                continue
            signers = notice.signers | {client.name}
            there = {c.name for c in world.clients if c.stored and c.stored[0] == context.number}
            there = signers & (there | self.scenario.colluding)
            opened = attempt.opened or self.quorum(context, notice.alive, client.link, there)
            attempts = list(world.attempts)
            attempts[index] = attempt._replace(
                notice=notice._replace(signers=signers), opened=opened
            )
            after = self.put(world, signed)._replace(attempts=tuple(attempts))
            yield (said_sign, client.name, context.number), after

    def recoveries(self, world: World) -> Iterator[Step]:
        for client in world.clients:
            if client.stopped and self.scenario.recovers:
                yield (said_recover, client.name), self.put(world, recover(client))

    # What must never be

    def wrong(self, world: World) -> str | None:
        return self.tells(world) or self.forks(world) or self.strays(world) or self.keeps(world)

    def tells(self, world: World) -> str | None:
        """(a) No combination of sums tells something about too few honest members."""
        rows = frozenset(a.row for a in world.attempts if a.opened) | world.known
        if not rows:
            return None
        lists = {one for client in world.clients for one in history(client.list)}
        dropped = frozenset(m for one in lists for m in gone(one))
        by_list = frozenset(m for one in lists for m in one.suspended)
        excused = dropped | self.scenario.wishes.alone
        groups = any(one.before and one.joined for one in lists) or self.scenario.wishes.leaving
        limit = min(
            present(len(one.members)) - colluders(self.rules, len(one.members)) for one in lists
        )
        for regime in REGIMES:
            also = by_list | away(world) if regime == "PLACE" else NOBODY
            found = exposed(rows, regime, 2 if groups else limit, excused | also)
            if found:
                what = "a whole input" if regime == "CONSTANT" else "a change"
                return f"(a) the server can compute {what} of {show(found)} alone ({regime})"
        return None

    def forks(self, world: World) -> str | None:
        """(b) Two honest clients with one list know one link for one place."""
        for one, two in combinations(world.clients, 2):
            if one.list is not two.list or world.restored in (one.name, two.name):
                continue
            first, second = one.link, two.link
            while first and second and first.place > second.place:
                first = first.previous
            while first and second and second.place > first.place:
                second = second.previous
            if first is not second:
                return f"(b) {one.name} and {two.name} hold one list and know {first} and {second}"
        return None

    def strays(self, world: World) -> str | None:
        """Exactness: in a delta that was opened, every base is the one that the others presume."""
        for attempt in world.attempts:
            if attempt.stray is not None:
                one, two = attempt.stray
                return f"(e) the bases of {one} and {two} are not of one history"
        return None

    def keeps(self, world: World) -> str | None:
        """After a commit everybody who is counted is on the list."""
        for client in world.clients:
            link = client.link
            if link and link.list and not link.members <= link.list.members:
                return f"(e) {show(link.members - link.list.members)} is counted and on no list"
        return None


def outcome(event: Callable[..., Client], *arguments: Any) -> Client | Refused | Stopped:
    """What a client does at an event, a refusal included."""
    try:
        return event(*arguments)
    except (Refused, Stopped) as reason:
        return reason.with_traceback(None)


def astray(clients: dict[int, Client]) -> tuple[int, int] | None:
    """Two clients whose bases are not of one history.

    A base is of the place that the notices name, and bases of one place are of one attempt.
    """
    for one in clients.values():
        if not isinstance(one.base, Input):
            continue
        if one.base.copy or dict(one.link.counted).get(one.name) != one.base.place + 1:
            return one.name, one.name
        for two in clients.values():
            if not isinstance(two.base, Input) or two.base.place != one.base.place:
                continue
            if two.base.attempt != one.base.attempt:
                return one.name, two.name
    return None


def gone(list_: List) -> Set:
    """Whom a list dropped though they had not left: the list says that they show."""
    found = list_.before.members - list_.members if list_.before else NOBODY
    link: Link | None = list_.after
    while link is not None:
        found, link = found - link.left, link.previous
    return found


def away(world: World) -> Set:
    """Those who were away under one list and came in under the next at the same place.

    Their change shows, just as if the first set had been committed and they had come back then. It
    is only excused where the second set keeps all of the first that its list allows.
    """
    opened = [attempt.notice for attempt in world.attempts if attempt.opened]
    found: set[int] = set()
    for one, two in permutations(opened, 2):
        if two.context.list in history(one.context.list):
            continue
        if one.alive & two.context.list.active <= two.alive:
            found |= two.alive - one.alive
    return frozenset(found)


def changed_list(
    before: List,
    change: Change,
    link: Link,
    number: int,
    parted: frozenset[Set] = frozenset(),
) -> List | None:
    """A new list, or None where the change changes nothing."""
    members, suspended = before.members, before.suspended
    lines: frozenset[tuple[int, int]] = frozenset()
    if change.what == "join":
        members |= change.who
    elif change.what == "drop":
        members, suspended = members - change.who, suspended - change.who
    elif change.what == "suspend":
        suspended |= change.who & members
    elif change.what == "resume":
        suspended -= change.who
    elif change.what == "suspend only":
        suspended = change.who & members
    elif change.what == "pass on" and change.line_of in members:
        members = (members - {change.line_of}) | change.who
        lines = frozenset((new, change.line_of) for new in change.who)
    if change.what != "same" and (members, suspended) == (before.members, before.suspended):
        return None
    did = f" {change.what} {show(change.who)}" if change.who else " same"
    label = f"L{number}({before.label[:2]}{did})"
    return make_list(label, members, suspended, before, link, parted, lines)


def subsets(members: Set, least: int) -> list[Set]:
    ordered = sorted(members)
    sizes = range(least, len(ordered) + 1)
    return [frozenset(some) for size in sizes for some in combinations(ordered, size)]


def first_keys(members: Set) -> frozenset[tuple[int, int]]:
    return frozenset((name, 0) for name in members)


# Moves in plain English (only built for a trace)


def describe(notice: Notice, signing: Set, revealed: Set, opened: bool) -> str:
    context = notice.context
    who = f", leaving {show(context.leaving)}" if context.leaving else ""
    said = f"attempt {context.number}: {context.kind} under {context.list} after {context.link}"
    told = "; the sum is opened" if opened else f"; {show(revealed)} reveal"
    return f"{said}, survivors {show(notice.alive)}{who}, {show(signing)} sign{told}"


def said_follow(name: int, notice: Notice) -> str:
    lie = f", which leaves out {show(notice.uncounted)}" if notice.uncounted else ""
    return f"{name} follows the notice of attempt {notice.context.number}{lie}"


def said_stop(name: int, notice: Notice, reason: Stopped) -> str:
    return f"{name} is shown the notice of attempt {notice.context.number} and stops: {reason}"


def said_adopt(name: int | str, new: List) -> str:
    return f"{name} accepts list {new.label}, made after {new.after}"


def said_restore(number: int, old: Client) -> str:
    place = old.link.place if old.link else "-"
    return f"{old.name} is restored to its {number + 1}. state (place {place}, seen {old.seen})"


def said_again(name: int, number: int) -> str:
    return f"{name} takes part in attempt {number} a second time"


def said_sign(name: int, number: int) -> str:
    return f"{name} signs again in attempt {number}"


def said_recover(name: int) -> str:
    return f"the operator of {name} runs recover"
