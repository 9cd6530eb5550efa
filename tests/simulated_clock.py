"""A clock that a test moves: nobody waits, and a year takes no longer than its rounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class SimulatedClock:
    """Time that passes only while somebody sleeps.

    ``meanwhile`` is what happens while it passes: (moment, what to do) in the order of time.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self.moment = start or datetime(2026, 1, 1, tzinfo=UTC)
        self.meanwhile: list[tuple[datetime, Callable[[], None]]] = []
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.sleeps.append(seconds)
        end = self.moment + timedelta(seconds=seconds)
        while self.meanwhile and self.meanwhile[0][0] <= end:
            when, what = self.meanwhile.pop(0)
            self.moment = max(self.moment, when)
            what()
        self.moment = end

    def at(self, moment: datetime, what: Callable[[], None]) -> None:
        """Let something happen at a moment."""
        self.meanwhile.append((moment, what))
        self.meanwhile.sort(key=lambda one: one[0])
