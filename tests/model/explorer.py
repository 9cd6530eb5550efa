"""Breadth-first search over hashed states, with the shortest trace to whatever goes wrong."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

State = TypeVar("State", bound=Hashable)
Label = tuple[Any, ...]  # a function and its arguments, which say what happened
Move = tuple[Label, State]


@dataclass
class Result(Generic[State]):
    """How far a search came, and the shortest way to what it found."""

    states: int = 0
    moves: int = 0
    seconds: float = 0.0
    complete: bool = True
    violation: str | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        steps = [f"{i}. {step}" for i, step in enumerate(self.trace, 1)]
        end = f"=> {self.violation}" if self.violation else "=> nothing found"
        extent = "all" if self.complete else "the first"
        return "\n".join([*steps, end, f"({extent} {self.states} states, {self.moves} moves)"])


def explore(
    start: State,
    moves: Callable[[State], Iterable[Move[State]]],
    wrong: Callable[[State], str | None],
    most: int | None = None,
) -> Result[State]:
    """Visit all states that can be reached, or ``most`` of them, until one is wrong."""
    began = time.perf_counter()
    parents: dict[State, tuple[State, Label] | None] = {start: None}
    queue = deque([start])
    result: Result[State] = Result()
    while queue:
        state = queue.popleft()
        for label, after in moves(state):
            result.moves += 1
            if after in parents:
                continue
            parents[after] = state, label
            queue.append(after)
            result.violation = wrong(after)
            if result.violation:
                result.trace = list(trace(parents, after))[::-1]
                queue.clear()
                break
        if most is not None and len(parents) >= most and queue:
            result.complete = False
            break
    result.states = len(parents)
    result.seconds = time.perf_counter() - began
    return result


def trace(parents: dict[State, tuple[State, Label] | None], state: State) -> Iterator[str]:
    """The labels of the moves that led to a state, last one first."""
    while (step := parents[state]) is not None:
        state, label = step
        say, *about = label
        yield say(*about)
