"""The time of day: what logs, requests and schedules read, and what a test can replace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and lets time pass."""

    def now(self) -> datetime:
        """This moment, with a time zone."""

    def sleep(self, seconds: float) -> None:
        """Let time pass; may return early where somebody asks for an end."""


class SystemClock:
    """The machine's clock.  :meth:`wake` ends a sleep, even from a signal handler."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._woken.wait(seconds)

    def wake(self) -> None:
        """End this sleep and all later ones."""
        self._woken.set()


_current: ContextVar[Clock | None] = ContextVar("clock", default=None)
_system = SystemClock()


def present_clock() -> Clock:
    """The clock in force: the machine's, or the one of :func:`using`."""
    return _current.get() or _system


@contextmanager
def using(clock: Clock) -> Iterator[None]:
    """Let everything in the body of the ``with`` read this clock."""
    token = _current.set(clock)
    try:
        yield
    finally:
        _current.reset(token)


def utc_now() -> datetime:
    """This moment, in UTC, by the clock in force."""
    return present_clock().now().astimezone(UTC)


def stamp(moment: datetime) -> str:
    """A moment as logs and requests write it.

    >>> stamp(datetime(2026, 3, 1, 2, 30, tzinfo=UTC))
    '2026-03-01T02:30:00+00:00'
    """
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def moment_of(text: object) -> datetime | None:
    """The moment that a log or a request names; None if the text names none.

    >>> moment_of("2026-03-01T02:30:00+00:00").hour
    2
    >>> moment_of("some day") is None
    True
    """
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
