"""What sums tell: linear algebra over symbols.

An opened attempt gives the server one row: a combination of the symbols that honest clients sent
(the inputs of colluders are known to it, so they are left out). The server can compute exactly the
span of its rows. Whether a row is worth something depends on what changed when, so the span is
looked at in three *regimes*, which differ in the symbols that are taken for one and the same:

``CONSTANT``  nobody's data ever change: what is left are whole inputs
``PLACE``     everybody's data change between two commits, nobody's in between
``FRESH``     everybody's data change before every attempt

The check, in each regime: no combination of rows is supported on the symbols of fewer than
``limit`` honest members, unless all of them are excused by name. (If some members change and others
do not, a whole input that shows would show under CONSTANT too; what remains is the change of a
member over a time in which nobody else changed, which the rules do not hide.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from itertools import combinations

from model.rules import Input, Set

Row = frozenset[tuple[Input, int]]
PRIME = 2**61 - 1  # minors of these small matrices of 0, 1, -1 (and 2) are far below it


def constant(symbol: Input) -> Hashable:
    return symbol.member


def place(symbol: Input) -> Hashable:
    return symbol.member, symbol.place


def fresh(symbol: Input) -> Hashable:
    return symbol


REGIMES: dict[str, Callable[[Input], Hashable]] = {
    "CONSTANT": constant,
    "PLACE": place,
    "FRESH": fresh,
}


def rank(rows: Iterable[dict[Hashable, int]]) -> int:
    """The rank over the rationals (computed modulo a prime that no minor reaches)."""
    pivots: dict[Hashable, dict[Hashable, int]] = {}
    for row in rows:
        row = {key: value % PRIME for key, value in row.items() if value % PRIME}
        while row:
            key = min(row, key=repr)
            if key not in pivots:
                inverse = pow(row[key], -1, PRIME)
                pivots[key] = {k: v * inverse % PRIME for k, v in row.items()}
                break
            factor = row[key]
            for k, v in pivots[key].items():
                value = (row.get(k, 0) - factor * v) % PRIME
                if value:
                    row[k] = value
                else:
                    row.pop(k, None)
    return len(pivots)


@cache
def exposed(rows: frozenset[Row], regime: str, limit: int, excused: Set) -> Set | None:
    """A set of fewer than ``limit`` members, none excused, whose symbols alone make a known value.

    A combination that vanishes outside the symbols of a set exists if and only if the rank falls
    when the columns of the set are left out.
    """
    name = REGIMES[regime]
    merged = []
    for row in rows:
        total: dict[Hashable, int] = {}
        for symbol, value in row:
            total[name(symbol)] = total.get(name(symbol), 0) + value
        merged.append({key: value for key, value in total.items() if value})
    owner = {name(symbol): symbol.member for row in rows for symbol, _ in row}
    whole = rank(merged)
    members = sorted(set(owner.values()) - excused)
    for size in range(1, limit):
        for some in combinations(members, size):
            outside = [{k: v for k, v in row.items() if owner[k] not in some} for row in merged]
            if rank(outside) < whole:
                return frozenset(some)
    return None
