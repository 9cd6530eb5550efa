"""One attempt from the inside: the server shows any view to any client.

``world`` takes an attempt for one move with one set of survivors. Here is why: for every choice
of sharers, survivors and lost that a server can show to each client by itself, the masks that come
off are worked out from the shares that were revealed. Whatever the choice, all that can be opened
is one sum, over the honest survivors of one view that s members signed.

A client masks its input for the sharers U that it was shown: a self mask from a seed, and a
pairwise mask with every other member of U from its key. A member that reveals for a view gives its
share of the seed of everybody alive and of the key of everybody dead in that view. Colluders give
all their shares. The graph is complete, and as many shares as signatures are needed (t = s): with
that, a reveal without a quorum of signatures tells nothing more, so that rule is no flag here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

from model.rules import MINIMUM, NOBODY, Set, show


@dataclass(frozen=True)
class Inside:
    """The rules that hold within one attempt."""

    one_view: bool = True  # a client signs once per attempt
    never_both: bool = True  # nobody is both alive and dead
    enough_present: bool = True  # h
    colluders_in_quorum: bool = True  # else c = 0

    def without(self, *names: str) -> Inside:
        return replace(self, **dict.fromkeys(names, False))


class View(NamedTuple):
    sharers: Set
    alive: Set
    dead: Set

    def __repr__(self) -> str:
        return f"sharers {show(self.sharers)} alive {show(self.alive)} dead {show(self.dead)}"


def subsets(members: Set, least: int) -> list[Set]:
    sizes = range(least, len(members) + 1)
    return [frozenset(some) for size in sizes for some in combinations(sorted(members), size)]


def threshold(rules: Inside, n: int) -> int:
    return (n + (1 if rules.colluders_in_quorum else 0)) // 2 + 1


def views(rules: Inside, n: int) -> list[View]:
    """All views that a client accepts: who is alive sent its input, who is dead only shared."""
    least = max(MINIMUM, n - 1) if rules.enough_present else 2
    found = []
    for sharers in subsets(frozenset(range(n)), least):
        for alive in subsets(sharers, least):
            rest = sharers - alive
            found += [View(sharers, alive, rest)]
            if not rules.never_both:
                found += [View(sharers, alive, rest | both) for both in subsets(alive, 1)]
    return found


Choice = tuple[View, ...]  # what one honest client signed; the sharers are those of the first


def choices(rules: Inside, n: int, name: int) -> list[Choice]:
    """What may become of one honest client: away, or it signs one view (or, unruly, two)."""
    mine = [view for view in views(rules, n) if name in view.alive]
    found: list[Choice] = [(), *((view,) for view in mine)]
    if not rules.one_view:
        pairs = combinations(mine, 2)
        found += [(one, two) for one, two in pairs if one.sharers == two.sharers]
    return found


def sums(rules: Inside, n: int, colluding: Set, made: dict[int, Choice]) -> Iterator[Set]:
    """The sets of honest members over whose inputs the server has the sum."""
    enough = threshold(rules, n)
    signed: dict[View, int] = {}
    for choice in made.values():
        for view in choice:
            signed[view] = signed.get(view, 0) + 1
    seeds = dict.fromkeys(range(n), len(colluding))
    keys = dict.fromkeys(range(n), len(colluding))
    for choice in made.values():
        shown = [v for v in choice if signed[v] + len(colluding & v.alive) >= enough]
        for member in frozenset().union(*(view.alive for view in shown)):
            seeds[member] += 1
        for member in frozenset().union(*(view.dead for view in shown)):
            keys[member] += 1
    masked = {name: choice[0].sharers for name, choice in made.items() if choice}
    yield from components(masked, seeds, keys, enough, colluding)


def components(
    masked: dict[int, Set],
    seeds: dict[int, int],
    keys: dict[int, int],
    enough: int,
    colluding: Set,
) -> Iterator[Set]:
    """Groups whose pairwise masks cancel among themselves and whose self masks are known."""
    left = set(masked)
    while left:
        group, edge = set(), {left.pop()}
        open_ = True
        while edge:
            one = edge.pop()
            group.add(one)
            open_ &= seeds[one] >= enough
            if keys[one] >= enough:
                continue
            for two in masked[one] - colluding - {one}:
                if keys[two] >= enough:
                    continue
                same = masked.get(two) == masked[one]
                if two not in masked or not same or one not in masked[two]:
                    open_ = False  # a mask that nobody takes off
                elif two not in group:
                    edge.add(two)
        left -= group
        if open_:
            yield frozenset(group)


def check(rules: Inside, n: int, colluding: Set = NOBODY) -> tuple[int, str | None]:
    """How many choices there are, and the first that gives the server more than it should have."""
    honest = sorted(frozenset(range(n)) - colluding)
    least = max(MINIMUM, n - 1) - len(colluding)
    count = 0
    for made in product(*(choices(rules, n, name) for name in honest)):
        count += 1
        chosen = dict(zip(honest, made, strict=True))
        found = list(sums(rules, n, colluding, chosen))
        if len(found) > 1 or any(len(group) < least for group in found):
            lines = [f"{name} signs {list(choice) or 'nothing'}" for name, choice in chosen.items()]
            told = " and ".join(f"the sum over {show(group)}" for group in found)
            return count, "; ".join([*lines, f"the server has {told}"])
    return count, None
