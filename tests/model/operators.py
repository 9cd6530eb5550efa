"""An honest server, members that vanish or are restored, and the commands of operators.

(c) From every state that faults can lead to, as soon as h members stay, some sequence of attempts
and named commands (a list that suspends, drops or adds somebody; ``recover``) commits a round of
those who stay.

Whoever wishes to leave is let go after finitely many of these, too, and does not stop the others
while it waits.

(d) One member holds a record and forgets it at some time. Its share of the aggregate is followed as
a bit: after every commit the aggregate holds exactly what the member's counted input held, and once
the erasure is committed the record never comes back, whatever state the member is restored to,
unless its operator recovers without applying the erasure again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

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
    Rules,
    Set,
    Stopped,
    Wishes,
    adopt,
    advertise,
    consent,
    follow,
    is_quorum,
    link_after,
    make_link,
    make_list,
    may_leave,
    present,
    recover,
    show,
)
from model.world import Change, changed_list, first_keys, outcome, subsets


class Record(NamedTuple):
    """What becomes of the one record that is followed."""

    held: bool = True  # whether the member's directory has it
    sent: tuple[bool, ...] = (True,)  # by attempt: whether the member's input held it
    in_sum: int = 1  # how often the server's aggregate holds it
    erased: bool = False  # its erasure was committed
    excused: bool = False  # its operator recovered without applying the erasure again


class Office(NamedTuple):
    clients: tuple[Client, ...]
    link: Link
    list: List
    notice: int = 0
    notices: tuple[Notice, ...] = ()
    attempts: int = 0
    past: tuple[tuple[Client, bool], ...] = ()
    restored: bool = False
    record: Record = Record()


@dataclass(frozen=True)
class Plan:
    """What may happen before the faults end, and who may be used afterwards."""

    name: str
    members: int
    counted: bool = True
    newcomers: Set = NOBODY
    alone: Set = NOBODY
    leaving: Set = NOBODY  # who wishes to leave
    spoiler: int | None = None
    restorable: int | None = None
    forgets: bool = False
    attempts: int = 2
    lists: int = 1
    changes: tuple[Change, ...] = ()
    commands: tuple[Change, ...] = ()  # those that may help, beside those that were used


def start(plan: Plan) -> Office:
    everyone = frozenset(range(plan.members))
    counted = tuple((member, 0) for member in sorted(everyone)) if plan.counted else ()
    root = make_link(0, None, None, everyone if plan.counted else NOBODY, NOBODY, counted)
    founding = make_list("L1", everyone, NOBODY, None, root)
    clients = [
        Client(name, founding, root, base=Input(name, -1, 0) if plan.counted else EMPTY)
        for name in sorted(everyone)
    ]
    clients += [Client(name, None, None) for name in sorted(plan.newcomers)]
    record = Record(in_sum=int(plan.counted), sent=(plan.counted,))
    return Office(tuple(clients), root, founding, record=record)


class Faults:
    """All that may happen under an honest server."""

    def __init__(self, plan: Plan, rules: Rules) -> None:
        self.plan = plan
        self.rules = rules
        self.wishes = Wishes(plan.leaving, plan.alone)
        self.advertise = cache(partial(outcome, advertise, rules))
        self.consent = cache(partial(outcome, consent, rules))
        self.follow = cache(partial(outcome, follow, rules))
        self.adopt = cache(partial(outcome, adopt, rules))
        self.may_leave = cache(partial(may_leave, rules))
        self.live: dict[tuple[Any, ...], bool] = {}

    def moves(self, office: Office) -> Iterator[tuple[tuple[Any, ...], Office]]:
        if office.attempts < self.plan.attempts:
            yield from self.tries(office)
        if len(chain(office.list)) <= self.plan.lists:
            yield from self.commands(office, self.plan.changes)
        yield from self.recoveries(office)
        if not office.restored:
            for number, (old, held) in enumerate(office.past):
                clients = tuple(old if c.name == old.name else c for c in office.clients)
                record = office.record._replace(held=held)
                after = office._replace(clients=clients, record=record, restored=True, past=())
                yield (said_restored, old.name, number), after
        if self.plan.forgets and office.record.held and not office.restored:
            yield (
                (said_forget, self.plan.restorable),
                self.keep(office)._replace(record=office.record._replace(held=False)),
            )

    def keep(self, office: Office) -> Office:
        """Remember the state of the member that may be restored."""
        if self.plan.restorable is None or office.restored:
            return office
        now = office.clients[self.plan.restorable], office.record.held
        return office if now in office.past else office._replace(past=(*office.past, now))

    def tries(self, office: Office, there: Set | None = None) -> Iterator[Any]:
        """One attempt. ``there``: who stays (then nobody vanishes and the spoiler is not asked)."""
        office = self.keep(office)
        number = office.attempts + 1
        leaving = self.may_leave(office.list, office.link, self.wishes)
        for kind in (FULL, DELTA):
            context = Context(number, office.list, office.link, office.notice, kind, leaving)
            ready = {}
            for client in office.clients:
                if there is None or client.name in there:
                    client = self.catch_up(office, client)
                    if client.list is None:
                        continue
                    after = self.advertise(client, context, 0, self.wishes)
                    if isinstance(after, Client):
                        ready[client.name] = after
            for alive in subsets(frozenset(ready), 2):
                yield from self.run(office, context, alive, ready, there is not None)

    def run(
        self, office: Office, context: Context, alive: Set, ready: dict[int, Client], stay: bool
    ) -> Iterator[Any]:
        signed = {}
        for name in alive:
            after = self.consent(ready[name], context, alive, self.wishes)
            if isinstance(after, Client):
                signed[name] = after
            elif stay:
                return
        for signing in [frozenset(signed)] if stay else subsets(frozenset(signed), 0):
            clients = tuple(
                signed[c.name] if c.name in signing else ready[c.name] if c.name in alive else c
                for c in office.clients
            )
            sent = self.plan.restorable in alive and office.record.held
            record = office.record._replace(sent=(*office.record.sent, sent))
            tried = office._replace(clients=clients, attempts=context.number, record=record)
            if not stay:
                yield (said_failed, context, alive, signing), tried
            spoiled = self.plan.spoiler in alive
            quorum = is_quorum(self.rules, office.list, office.link, context.kind, signing, alive)
            if quorum and not spoiled:
                notice = Notice(context, alive, first_keys(alive), signing)
                yield (said_commit, context, alive, signing), self.commit(tried, notice)

    def commit(self, office: Office, notice: Notice) -> Office:
        record, who = office.record, self.plan.restorable
        if who is not None:
            held = record.sent[-1] if who in notice.alive else None
            total = record.in_sum
            base = office.clients[who].base
            if notice.context.kind == FULL:
                total = int(bool(held))
            elif held is not None and isinstance(base, Input):
                total += int(held) - int(record.sent[base.attempt])
            erased = record.erased or held is False
            record = record._replace(in_sum=total, erased=erased)
        return office._replace(
            link=link_after(office.link, notice),
            notice=notice.context.number,
            notices=(*office.notices, notice),
            record=record,
        )

    def catch_up(self, office: Office, client: Client) -> Client:
        """Show a member the lists and notices that it missed, in their order."""
        moved = True
        while moved and not client.stopped:
            moved = False
            for list_ in reversed(chain(office.list)):
                after = self.adopt(client, list_, self.wishes)
                if isinstance(after, Client):
                    if client.list is None:
                        after = after._replace(notice=self.behind(office, list_.after))
                    client, moved = after, True
            for notice in office.notices if client.list is not None else ():
                after = self.follow(client, notice)
                if isinstance(after, Client):
                    client, moved = after, True
                elif isinstance(after, Stopped):
                    client = client._replace(stopped=True)
        return client

    def behind(self, office: Office, link: Link) -> int:
        return next(
            (n.context.number for n in office.notices if n.context.link is link.previous), 0
        )

    def commands(self, office: Office, changes: tuple[Change, ...]) -> Iterator[Any]:
        for change in changes:
            begun = {lock.left for c in office.clients for lock in c.locks} - {NOBODY}
            parted = office.list.parted | begun
            number = len(chain(office.list)) + 1
            new = changed_list(office.list, change, office.link, number, parted)
            if new is None or present(len(new.members)) > len(new.members):
                continue
            if new.suspended <= office.link.members or not self.rules.suspend_counted_only:
                yield (said_list, new), office._replace(list=new)

    def recoveries(self, office: Office) -> Iterator[Any]:
        for client in office.clients:
            shown = self.catch_up(office, client)
            if shown.stopped:
                clients = tuple(recover(shown) if c is client else c for c in office.clients)
                record, mine = office.record, client.name == self.plan.restorable
                after = office._replace(clients=clients)
                if not mine or not record.held:
                    yield (said_recover, client.name, "and applies the erasures again"), after
                    continue
                yield (
                    (said_recover, client.name, "and applies the erasures again"),
                    after._replace(record=record._replace(held=not record.erased)),
                )
                if record.erased:
                    again = record._replace(excused=True)
                    yield (said_recover, client.name, "only"), after._replace(record=again)

    # What must hold

    def wrong(self, office: Office) -> str | None:
        record = office.record
        counted = dict(office.link.counted).get(self.plan.restorable or 0)
        if self.plan.restorable is not None and counted is not None:
            if record.in_sum not in (0, 1):
                return f"(d) the aggregate holds the record {record.in_sum} times"
            if record.erased and record.in_sum and not record.excused:
                return "(d) a record is in the aggregate after its erasure was committed"
        return self.stuck(office)

    def stuck(self, office: Office) -> str | None:
        """(c) Whoever stays, if they are h, can commit."""
        left = frozenset(member for link in links(office.link) for member in link.left)
        # Whoever goes as soon as it can is not one of those who stay.
        left |= self.plan.leaving & self.plan.alone
        members = office.list.members - {self.plan.spoiler} - left
        for there in subsets(members, present(len(office.list.members))):
            if not self.can_commit(office, there):
                return f"(c) {show(there)} stay and can commit nothing"
        for member in self.plan.leaving & office.link.members:
            if not self.can_commit(office, members, without=member):
                return f"(c) {member} wishes to leave, and nothing lets it go"
        return None

    def can_commit(self, office: Office, there: Set, without: int | None = None) -> bool:
        """Whether these can commit something, where a member is given: that it is out."""
        # Those who stay catch up first; what else was tried or stored makes no difference then.
        staying = [c for c in office.clients if c.name in there | self.plan.newcomers]
        caught_up = (self.catch_up(office, client) for client in staying)
        key = (
            tuple(client._replace(stored=None, seen=0) for client in caught_up),
            (office.link, office.list, office.notices, there, without),
        )
        if key not in self.live:
            self.live[key] = self.search(office, there, without)
        return self.live[key]

    def search(self, office: Office, there: Set, without: int | None, deep: int = 4) -> bool:
        queue = deque([(office._replace(restored=True, past=()), 0)])
        helpful = self.plan.commands
        seen = set()
        while queue:
            now, depth = queue.popleft()
            for _, after in self.tries(now, there | self.plan.newcomers):
                if after.link is not now.link and without not in after.link.members:
                    return True
            if depth < deep:
                steps = [*self.commands(now, helpful), *self.recoveries(now)]
                for _, after in steps:
                    if after not in seen:
                        seen.add(after)
                        queue.append((after, depth + 1))
        return False


def links(link: Link | None) -> Iterator[Link]:
    while link is not None:
        yield link
        link = link.previous


def chain(list_: List | None) -> list[List]:
    found = []
    while list_ is not None:
        found.append(list_)
        list_ = list_.before
    return found


def said_failed(context: Context, alive: Set, signing: Set) -> str:
    who = f"{show(alive)} take part, {show(signing)} sign"
    return f"attempt {context.number} ({context.kind}): {who}, and it comes to nothing"


def said_commit(context: Context, alive: Set, signing: Set) -> str:
    who = f"{show(alive)} take part, {show(signing)} sign"
    return f"attempt {context.number} ({context.kind}): {who}; committed"


def said_restored(name: int, number: int) -> str:
    return f"{name} is restored to its {number + 1}. state"


def said_forget(name: int) -> str:
    return f"{name} forgets the record"


def said_list(new: List) -> str:
    return f"the operators make list {new}"


def said_recover(name: int, how: str) -> str:
    return f"the operator of {name} runs recover {how}"
