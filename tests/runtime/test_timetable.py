"""When rounds are due, also in the two nights in which the clock is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from fedforget.runtime.timetable import Timetable, TimetableError, duration, time_of_day

LISBON, BERLIN, KATHMANDU = map(ZoneInfo, ("Europe/Lisbon", "Europe/Berlin", "Asia/Kathmandu"))
DAILY = Timetable(timedelta(days=1), time(2, 30), BERLIN)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


def series(table: Timetable, start: datetime, number: int) -> list[datetime]:
    """The first times after a moment, each counted from the one before."""
    found: list[datetime] = []
    for _ in range(number):
        last = found[-1] if found else None
        found.append(table.following(last, last or start))
    return found


def test_every_night_at_one_time_of_the_local_clock() -> None:
    assert series(DAILY, utc(2026, 1, 1), 3) == [utc(2026, 1, day, 1, 30) for day in (1, 2, 3)]
    assert series(DAILY, utc(2026, 7, 1), 2) == [utc(2026, 7, 1, 0, 30), utc(2026, 7, 2, 0, 30)]


def test_the_night_without_that_time() -> None:
    """In Berlin, 02:00 is followed by 03:00 on 29 March 2026: there is no 02:30."""
    found = series(DAILY, utc(2026, 3, 27, 12), 3)
    assert found == [utc(2026, 3, 28, 1, 30), utc(2026, 3, 29, 1, 30), utc(2026, 3, 30, 0, 30)]
    assert [moment.astimezone(BERLIN).strftime("%d. %H:%M") for moment in found] == [
        "28. 02:30",
        "29. 03:30",
        "30. 02:30",
    ]


def test_the_night_with_that_time_twice() -> None:
    """In Berlin, 03:00 is followed by 02:00 on 25 October 2026: 02:30 comes at 00:30 and 01:30."""
    found = series(DAILY, utc(2026, 10, 23, 12), 3)
    assert found == [utc(2026, 10, 24, 0, 30), utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]
    # Also where the process begins between the two.
    assert DAILY.following(None, utc(2026, 10, 25, 0, 45)) == utc(2026, 10, 26, 1, 30)


def test_the_machines_own_zone_is_the_default() -> None:
    """A process of its own: the zone of a process is set when it starts."""
    program = (
        "from datetime import *\n"
        "from fedforget.runtime.timetable import Timetable\n"
        "t = Timetable(timedelta(days=1), time(2, 30))\n"
        "now = datetime(2026, 3, 28, 12, tzinfo=UTC)\n"
        "for _ in range(2):\n"
        "    now = t.following(None, now); print(now.isoformat())\n"
        "print(t.following(None, datetime(2026, 10, 24, 12, tzinfo=UTC)).isoformat())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TZ": "Europe/Berlin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        "2026-03-29T01:30:00+00:00",
        "2026-03-30T00:30:00+00:00",
        "2026-10-25T00:30:00+00:00",
    ]


@pytest.mark.parametrize("zone", [LISBON, BERLIN, KATHMANDU, ZoneInfo("America/St_Johns")])
@pytest.mark.parametrize("at", [time(0, 0), time(2, 30), time(23, 59)])
def test_a_year_has_one_round_for_each_day(zone: ZoneInfo, at: time) -> None:
    table = Timetable(timedelta(days=1), at, zone)
    found = series(table, utc(2026, 1, 1), 365)
    assert len({moment.astimezone(zone).date() for moment in found}) == 365
    distances = {later - earlier for earlier, later in pairwise(found)}
    assert distances <= {timedelta(hours=hours) for hours in (23, 24, 25)}


def test_parts_of_a_day_are_hours_that_pass() -> None:
    """25 hours have 25 rounds: nobody waits two hours because the clock was put back."""
    table = Timetable(timedelta(hours=1), time(2, 30), BERLIN)
    found = series(table, utc(2026, 10, 23, 12), 72)
    assert {b - a for a, b in pairwise(found)} == {timedelta(hours=1)}
    table = Timetable(timedelta(hours=12), time(2, 30), BERLIN)
    found = series(table, utc(2026, 3, 28, 12), 4)
    local = [moment.astimezone(BERLIN).strftime("%d. %H:%M") for moment in found]
    assert local == ["28. 14:30", "29. 03:30", "29. 15:30", "30. 02:30"]


def test_several_days_are_counted_from_the_last_round() -> None:
    weekly = Timetable(timedelta(days=7), time(2, 30), BERLIN)
    assert weekly.following(None, utc(2026, 1, 1)) == utc(2026, 1, 1, 1, 30)
    # It was due on the first, and committed hours later.
    late = utc(2026, 1, 1, 9)
    assert weekly.following(late, late) == utc(2026, 1, 8, 1, 30)
    assert weekly.first(late, utc(2026, 1, 3)) == utc(2026, 1, 8, 1, 30)


def test_a_round_that_was_missed_is_due_now() -> None:
    now = utc(2026, 1, 10, 12)
    assert DAILY.first(utc(2026, 1, 7, 1, 31), now) == now
    assert DAILY.first(utc(2026, 1, 10, 1, 31), now) == utc(2026, 1, 11, 1, 30)
    assert DAILY.first(None, now) == utc(2026, 1, 11, 1, 30)
    plain = Timetable(timedelta(hours=6))
    assert plain.first(None, now) == now
    assert plain.first(utc(2026, 1, 10, 7), now) == utc(2026, 1, 10, 13)
    assert plain.first(utc(2026, 1, 9, 7), now) == now


def test_without_a_time_of_day_rounds_do_not_drift() -> None:
    table = Timetable(timedelta(hours=6))
    due = utc(2026, 1, 1)
    assert table.following(due, due + timedelta(minutes=3)) == due + timedelta(hours=6)
    # One that took longer than the distance leaves the missed ones out.
    assert table.following(due, due + timedelta(hours=13)) == due + timedelta(hours=18)


@pytest.mark.parametrize(
    "text", ["", "24", "h", "1.5h", "-1h", "24 h", "1w", "9999999999d", "999999999d"]
)
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(TimetableError, match=r"length of time|too long"):
        duration(text)


@pytest.mark.parametrize("text", ["2:30", "24:00", "02:60", "0230", "02:30:00", "noon", "02:30Z"])
def test_what_is_no_time_of_the_day(text: str) -> None:
    with pytest.raises(TimetableError, match="time of day"):
        time_of_day(text)


def test_a_distance_that_does_not_fill_a_day_has_no_time_of_the_day() -> None:
    with pytest.raises(TimetableError, match="whole days"):
        Timetable(timedelta(hours=5), time(2, 30))
    with pytest.raises(TimetableError, match="second"):
        Timetable(timedelta(0))
