"""The time of day: what logs, requests and schedules read, and what a test can replace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
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


def length_in_words(length: timedelta) -> str:
    """A length of time for people, roughly: its two largest units.

    >>> length_in_words(timedelta(days=2, seconds=61)), length_in_words(timedelta(seconds=5400))
    ('2 d 1 min', '1 h 30 min')
    >>> length_in_words(timedelta(0))
    '0 s'
    """
    seconds = int(length.total_seconds())
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    told = [f"{number} {unit}" for number, unit in parts if number][:2]
    return " ".join(told) or "0 s"


def time_since(moment: datetime, now: datetime) -> str:
    """How long ago a moment was; a clock that was wrong makes it no time ago.

    >>> time_since(datetime(2030, 1, 2, 3, tzinfo=UTC), datetime(2030, 1, 3, 9, 10, tzinfo=UTC))
    '1 d 6 h ago'
    """
    return f"{length_in_words(max(now - moment, timedelta(0)))} ago"
