"""When rounds are due.

``--at`` is a time of the local clock, and the clock is put forward and back once a year:

- In the night in which the clock skips the time, the round comes as long after midnight as always:
  02:30 becomes 03:30 on the new clock.
- In the night in which the time comes twice, the round comes once, the first time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from fedforget.errors import FedforgetError
from fedforget.wall_clock import length_in_words, stamp

DAY = timedelta(days=1)
LONGEST = timedelta(days=36500)
"""The calendar ends; a length of time that reaches beyond it is a slip of the pen."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class TimetableError(FedforgetError):
    """Something that is not a time, or not a length of time."""


def duration(text: str) -> timedelta:
    """A length of time as people write it.

    >>> duration("24h"), duration("90m") == duration("1h30m")
    (datetime.timedelta(days=1), True)
    """
    parts = re.findall(r"(\d{1,9})([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise TimetableError(f"{text!r} is not a length of time: write 30s, 10m, 24h, 7d or 1h30m")
    seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if seconds > LONGEST.total_seconds():
        raise TimetableError(f"{text!r} is too long: {LONGEST.days}d is the most")
    return timedelta(seconds=seconds)


def time_of_day(text: str) -> time:
    """A time of the day.

    >>> time_of_day("02:30")
    datetime.time(2, 30)
    """
    if not re.fullmatch(r"\d{2}:\d{2}", text):
        raise TimetableError(f"{text!r} is not a time of day: write it as 02:30")
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise TimetableError(f"{text!r} is not a time of day: write it as 02:30") from None


@dataclass(frozen=True)
class Timetable:
    """Rounds at equal distances, or at a time of the local day.

    Attributes
    ----------
    every : the distance.  With ``at``, whole days, or a length that divides a day evenly.
    at : a time of the local clock; None to count from the last round.
    zone : whose clock; None for the machine's.
    """

    every: timedelta
    at: time | None = None
    zone: tzinfo | None = None

    def __post_init__(self) -> None:
        if self.every < timedelta(seconds=1):
            raise TimetableError("--every must be at least one second")
        if self.at is not None and self.every % DAY and DAY % self.every:
            raise TimetableError(
                "with --at, --every must be whole days (24h, 7d) or a length that divides a day"
                " evenly (12h, 8h, 30m)"
            )

    def first(self, last: datetime | None, now: datetime) -> datetime:
        """When the first round of a new process is due, ``last`` being the last commit.

        One that was missed is due now.
        """
        if last is None:
            return now if self.at is None else self.following(None, now)
        # A commit in the future was made while the clock was wrong.
        last = min(last, now)
        return max(now, self.following(last, last))

    def following(self, last: datetime | None, now: datetime) -> datetime:
        """The first time after ``now`` at which a round is due, ``last`` being the last due one."""
        if self.at is None:
            return _beyond(now if last is None else last, self.every, now)
        first = self._local_date(now) - DAY
        if last is not None and self.every > DAY:
            first = max(first, self._local_date(last) + self.every)
        while True:
            for moment in self._of_day(first):
                if moment > now:
                    return moment
            first += DAY

    def not_beyond(self, due: datetime, now: datetime) -> datetime:
        """``due``, or an earlier time if the clock was set back after it was computed."""
        longest = self.every
        if self.at is not None:
            # The clock may be changed by law, and several days are counted from the last round's.
            longest += timedelta(hours=2) + (DAY if self.every > DAY else timedelta(0))
        return due if due - now <= longest else self.following(now, now)

    def _of_day(self, day: date) -> list[datetime]:
        """The times that belong to a local day: from its ``at`` to the next day's."""
        begin, end = self._instant(day), self._instant(day + DAY)
        step = min(self.every, DAY)
        count = 1 if step == DAY else -(-(end - begin) // step)
        return [begin + number * step for number in range(count)]

    def _local_date(self, moment: datetime) -> date:
        return moment.astimezone(self.zone).date()

    def _instant(self, day: date) -> datetime:
        """The moment at which a local clock shows ``at`` on a day; see the module's docstring.

        Only moments are turned into local times, never the other way round: platforms do not agree
        on what a local time is that does not exist.
        """
        assert self.at is not None
        wanted = datetime.combine(day, self.at)
        before, after = (self._moment(wanted, shift) for shift in (-DAY, DAY))
        shown = after.astimezone(self.zone).replace(tzinfo=None)
        exists_before = before.astimezone(self.zone).replace(tzinfo=None) == wanted
        return after if shown == wanted and not exists_before else before

    def _moment(self, wanted: datetime, shift: timedelta) -> datetime:
        """The moment of a local time by the offset that is in force a day before or after it."""
        near = (wanted + shift).replace(tzinfo=UTC)
        offset = near.astimezone(self.zone).utcoffset()
        assert offset is not None
        return wanted.replace(tzinfo=UTC) - offset

    def __str__(self) -> str:
        when = "" if self.at is None else f" at {self.at:%H:%M} (local time)"
        return f"every {length_in_words(self.every)}{when}"


def _beyond(start: datetime, every: timedelta, now: datetime) -> datetime:
    """The first of ``start + every``, ``start + 2 every``... that is after ``now``."""
    steps = max(1, (now - start) // every + 1)
    return start + steps * every


def local_words(moment: datetime, zone: tzinfo | None = None) -> str:
    """A moment on the local clock, and in UTC."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S %Z} ({stamp(moment)})"
