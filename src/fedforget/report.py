"""What a verb did: returned by ``forget``, ``learn`` and ``forget_clients``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fedforget.clustering.replay import Work

Name = int | str
Verb = Literal["forget", "learn", "forget_clients"]


@dataclass
class Traffic:
    """What one round of the secure sum cost.

    Attributes
    ----------
    sent, received : bytes by party; the server is called ``"server"``.
    seconds : time spent in each stage, at all parties together.
    attempts : how many times vectors had to be sent.
    """

    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    attempts: int = 0

    def count(self, sender: str, recipient: str, size: int) -> None:
        """Record a message."""
        self.sent[sender] = self.sent.get(sender, 0) + size
        self.received[recipient] = self.received.get(recipient, 0) + size


@dataclass(frozen=True)
class Report:
    """A summary of one change to a model.

    ``print`` shows it as a sentence.  Its ``repr`` is short: it leaves out what is zero or empty,
    and always ``work``, ``traffic`` and ``seconds``, which are there to be read one by one.

    Attributes
    ----------
    verb : ``"forget"``, ``"learn"`` or ``"forget_clients"``.
    removed, added : numbers of records.
    left, joined : clients that went with their last record, or came with their first.
    reseeded : for each client that drew seeds again, the first step (from 1) that it drew; for
        :class:`~fedforget.KMeans`, the first step at which one of its restarts has another seed.
    changed_points : in how many lattice points the aggregate changed.
    server : ``"ran"``, ``"unchanged"`` (because the aggregate is), or ``"none"`` (there is none).
    work : what the server, or one owner, computed again, beside what a full run computes.
    traffic : bytes and time of the secure sum, where there was one.
    seconds : time spent at the ``clients``, on the ``sum`` and at the ``server``, and in ``total``.
    """

    verb: Verb
    removed: int = 0
    added: int = 0
    left: tuple[Name, ...] = ()
    joined: tuple[Name, ...] = ()
    reseeded: Mapping[Name, int] = field(default_factory=dict)
    changed_points: int = 0
    server: Literal["ran", "unchanged", "none"] = "none"
    work: Work | None = field(default=None, repr=False)
    traffic: Traffic | None = field(default=None, repr=False)
    seconds: Mapping[str, float] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        given = ((one, getattr(self, one.name)) for one in fields(self) if one.repr)
        shown = (f"{one.name}={value!r}" for one, value in given if value not in (one.default, {}))
        return f"Report({', '.join(shown)})"

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
            points = "1 point" if self.changed_points == 1 else f"{self.changed_points} points"
            changed = f"{points} of the aggregate changed"
            parts.append(f"server {self.server}, {changed}")
        if self.work is not None:
            parts.append(
                f"{self.work.points} labels computed again, {self.work.distances} distances"
                f" computed (a full run: {self.work.full_distances})"
            )
            if self.work.restarts:
                restarts = (
                    "1 restart" if self.work.restarts == 1 else f"{self.work.restarts} restarts"
                )
                parts.append(f"{restarts} run in full")
            if self.work.unkept:
                iterations = (
                    "1 iteration" if self.work.unkept == 1 else f"{self.work.unkept} iterations"
                )
                parts.append(f"{iterations} not kept within the memory limit, and run again")
        if self.traffic is not None:
            most = max(size for party, size in self.traffic.sent.items() if party != "server")
            parts.append(f"secure sum: {most} bytes sent by a client at most")
        if "total" in self.seconds:
            parts.append(f"{1e3 * self.seconds['total']:.2f} ms")
        return "; ".join(parts)


class Stopwatch:
    """Seconds spent in named parts of a call, which follow one another."""

    def __init__(self) -> None:
        self._start = self._lap = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Put the time since the last lap down to a part."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._lap
        self._lap = now

    def total(self) -> dict[str, float]:
        return self.seconds | {"total": time.perf_counter() - self._start}
