"""What a verb did: returned by ``forget``, ``learn`` and ``forget_clients``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from fedforget.clustering.replay import Work

Name = int | str


@dataclass(frozen=True)
class Report:
    """A summary of one change to a model.

    Attributes
    ----------
    verb : ``"forget"``, ``"learn"`` or ``"forget_clients"``.
    removed, added : numbers of records.
    left, joined : clients that went with their last record, or came with their first.
    reseeded : for each client that drew seeds again, the first step (from 1) that it drew.
    changed_points : in how many lattice points the aggregate changed.
    server : ``"ran"``, ``"unchanged"`` (as the aggregate is), or ``"none"`` (there is no server).
    work : what the server had to compute again, beside what a full run computes.
    seconds : time spent at the ``clients``, on the ``sum`` and at the ``server``, and in ``total``.
    """

    verb: Literal["forget", "learn", "forget_clients"]
    removed: int = 0
    added: int = 0
    left: tuple[Name, ...] = ()
    joined: tuple[Name, ...] = ()
    reseeded: Mapping[Name, int] = field(default_factory=dict)
    changed_points: int = 0
    server: Literal["ran", "unchanged", "none"] = "none"
    work: Work | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        numbers = ((self.removed, "removed"), (self.added, "added"))
        counts = [f"{n} {word}" for n, word in numbers if n]
        parts = [f"{self.verb}: {', '.join(counts) or 'nothing changed'}"]
        if self.reseeded:
            drawn = ", ".join(f"{name} from step {step}" for name, step in self.reseeded.items())
            parts.append(f"seeds drawn again: {drawn}")
        if self.joined:
            parts.append(f"joined: {', '.join(map(str, self.joined))}")
        if self.left:
            parts.append(f"left: {', '.join(map(str, self.left))}")
        if self.server != "none":
            changed = f"{self.changed_points} points of the aggregate changed"
            parts.append(f"server {self.server}, {changed}")
        if self.work is not None:
            parts.append(
                f"{self.work.points} points looked at again, {self.work.distances} distances"
                f" computed (a full run: {self.work.full_distances})"
            )
        if "total" in self.seconds:
            parts.append(f"{1e3 * self.seconds['total']:.2f} ms")
        return "; ".join(parts)


class Stopwatch:
    """Seconds spent in named parts of a call."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def total(self) -> dict[str, float]:
        return self.seconds | {"total": time.perf_counter() - self._start}
