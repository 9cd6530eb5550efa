"""The schedule in simulated time, over rounds that a test makes up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from fedforget.cli.schedule_command import in_plain_words
from fedforget.runtime.driver import OnStage
from fedforget.runtime.schedule import (
    Backoff,
    Ending,
    Need,
    RoundOutcome,
    Schedule,
    Stop,
    StopAsked,
)
from fedforget.runtime.timetable import Timetable, duration, time_of_day
from simulated_clock import SimulatedClock

START = datetime(2026, 1, 1, tzinfo=UTC)
NIGHTLY = Timetable(duration("24h"), time_of_day("02:30"), UTC)
STAGES = ("who", "advertise", "share", "masked input", "consistency", "unmask", "commit")


class Scripted:
    """Rounds whose outcomes are written down; each takes a second a stage."""

    def __init__(
        self, clock: SimulatedClock, outcomes: Sequence[Need], *, sees_everybody: bool = True
    ) -> None:
        self.clock = clock
        self.outcomes = list(outcomes)
        self.sees_everybody = sees_everybody
        self.begun: list[datetime] = []
        self.looks = 0
        self.state = 0
        self.at_stage: dict[str, Any] = {}
        self.stages: list[str] = []
        self.last: datetime | None = None

    def attempt(self, watch: OnStage) -> RoundOutcome:
        self.begun.append(self.clock.now())
        for stage in STAGES:
            self.at_stage.pop(stage, lambda: None)()
            watch(stage)
            self.stages.append(stage)
            self.clock.sleep(1)
        need = self.outcomes.pop(0) if self.outcomes else Need.NOTHING
        if need is Need.NOTHING:
            self.last = self.clock.now()
        return RoundOutcome(need, f"needs {need}", {} if need is Need.NOTHING else None)

    def standing(self) -> object:
        self.looks += 1
        return self.state

    def last_commit(self) -> datetime | None:
        return self.last


def scheduled(
    rounds: Scripted, table: Timetable | None = NIGHTLY, **options: Any
) -> tuple[Ending, list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []
    exact = Backoff(jitter=0.0)
    schedule = Schedule(
        rounds, table, rounds.clock, tell=told.append, **{"backoff": exact} | options
    )
    return schedule.run(), told


def test_every_night_a_round() -> None:
    rounds = Scripted(SimulatedClock(START), [])
    ending, told = scheduled(rounds, wanted=3)
    assert rounds.begun == [START + timedelta(days=day, hours=2, minutes=30) for day in range(3)]
    assert ending == Ending(3, Need.NOTHING)
    assert ending.exit_code == 0
    assert [one["event"] for one in told if one["event"] != "stage"] == [
        *("waits", "begins", "committed") * 3,
        "ends",
    ]


def test_after_failures_it_waits_longer_each_time_up_to_a_cap() -> None:
    clock = SimulatedClock(START)
    rounds = Scripted(clock, [Need.TIME] * 9)
    ending, told = scheduled(rounds, wanted=1)
    waits = [one["again_in"] for one in told if one["event"] == "failed"]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert len(rounds.begun) == 10
    assert ending.exit_code == 0
    # The next night is as if nothing had been.
    rounds.outcomes = [Need.TIME]
    _, told = scheduled(rounds, wanted=1)
    assert [one["again_in"] for one in told if one["event"] == "failed"] == [60]


def test_waits_are_not_the_same_at_two_servers() -> None:
    waits = [Backoff(random=Random(seed)).wait(3, looking=False) for seed in range(50)]
    assert len(set(waits)) == 50
    assert 240 * 0.8 <= min(waits) <= max(waits) <= 240 * 1.2


@pytest.mark.parametrize("need", [Need.MEMBER, Need.PERSON])
def test_a_refusal_is_not_tried_again_before_something_changes(need: Need) -> None:
    """Three nights pass; it only looks. Then somebody comes back, and the round is run."""
    clock = SimulatedClock(START)
    rounds = Scripted(clock, [need])
    back = START + timedelta(days=3, hours=12)
    clock.at(back, lambda: setattr(rounds, "state", 1))
    ending, told = scheduled(rounds, wanted=1)
    assert len(rounds.begun) == 2
    assert back < rounds.begun[1] < back + timedelta(minutes=6)
    assert rounds.looks > 100
    assert len([one for one in told if one["event"] == "failed"]) == 1, "it is said once"
    assert ending == Ending(1, Need.NOTHING)


def test_over_a_network_a_refusal_is_tried_again_the_next_night() -> None:
    """What members do at their own machines cannot be seen from the server's."""
    rounds = Scripted(SimulatedClock(START), [Need.PERSON] * 3, sees_everybody=False)
    scheduled(rounds, wanted=1)
    assert [one.day for one in rounds.begun] == [1, 2, 3, 4]
    assert all(one.hour == 2 and 30 <= one.minute < 36 for one in rounds.begun)


@pytest.mark.parametrize(("need", "code"), [(Need.TIME, 3), (Need.MEMBER, 3), (Need.PERSON, 4)])
def test_the_exit_code_tells_what_a_round_that_is_due_waits_for(need: Need, code: int) -> None:
    rounds = Scripted(SimulatedClock(START), [need] * 9)
    ending, told = scheduled(rounds, None, tries=3)
    assert ending.exit_code == code
    assert told[-2]["event"] == "gives_up"
    assert told[-2]["text"] == f"needs {need}"
    assert f"needs {need}" in str(in_plain_words(told[-2]))
    assert len(rounds.begun) == (3 if need is Need.TIME else 1)


def test_one_round_now() -> None:
    rounds = Scripted(SimulatedClock(START), [Need.TIME])
    ending, _ = scheduled(rounds, None, tries=2)
    assert (ending.committed, ending.exit_code) == (1, 0)
    assert rounds.begun[0] == START


def test_after_so_many_tries_it_waits_for_the_next_night() -> None:
    rounds = Scripted(SimulatedClock(START), [Need.TIME] * 2)
    ending, _ = scheduled(rounds, tries=2, wanted=1)
    assert [one.day for one in rounds.begun] == [1, 1, 2]
    assert ending == Ending(1, Need.NOTHING)


def test_a_missed_round_is_run_at_once() -> None:
    clock = SimulatedClock(START)
    rounds = Scripted(clock, [])
    rounds.last = START - timedelta(days=3)
    scheduled(rounds, wanted=1)
    assert rounds.begun == [START]


def test_a_machine_that_slept_runs_one_round_and_not_all_that_it_missed() -> None:
    clock = SimulatedClock(START)
    rounds = Scripted(clock, [])
    asleep = START + timedelta(hours=1)
    real_sleep = clock.sleep

    def sleep(seconds: float) -> None:
        before = clock.moment
        real_sleep(seconds)
        # The machine's sleep is longer than what was asked for.
        if before <= asleep < clock.moment:
            clock.moment = START + timedelta(days=5)

    clock.sleep = sleep  # type: ignore[method-assign]
    scheduled(rounds, wanted=2)
    assert [one.day for one in rounds.begun] == [6, 6]
    assert rounds.begun[1].hour == 2


# -- an end that somebody asks for -----------------------------------------------------------------


def test_asked_to_end_while_it_waits() -> None:
    clock, stop = SimulatedClock(START), Stop()
    rounds = Scripted(clock, [])
    clock.at(START + timedelta(hours=1), stop.ask)
    ending, _ = scheduled(rounds, stop=stop)
    assert ending.exit_code == 0
    assert rounds.begun == []
    assert clock.now() < START + timedelta(hours=1, minutes=11)


def test_asked_to_end_between_two_tries() -> None:
    clock, stop = SimulatedClock(START), Stop()
    rounds = Scripted(clock, [Need.TIME] * 99)
    clock.at(START + timedelta(hours=2, minutes=40), stop.ask)
    ending, _ = scheduled(rounds, stop=stop)
    assert ending.exit_code == 3


@pytest.mark.parametrize("stage", STAGES)
def test_asked_to_end_in_a_round(stage: str) -> None:
    """Before members sign it ends with the stage; afterwards the round is finished first."""
    clock, stop = SimulatedClock(START), Stop()
    rounds = Scripted(clock, [])
    rounds.at_stage[stage] = stop.ask
    ending, _ = scheduled(rounds, stop=stop)
    if stage in ("consistency", "unmask", "commit"):
        assert ending == Ending(1, Need.NOTHING)
    else:
        assert ending == Ending(0, Need.TIME)
        assert stage not in rounds.stages
    assert len(rounds.begun) == 1


def test_a_stop_is_no_error_of_a_round() -> None:
    """What catches errors of rounds must let it through."""
    from fedforget.errors import FedforgetError

    assert not issubclass(StopAsked, (FedforgetError, OSError))


class CorrectedClock(SimulatedClock):
    """A clock that is a year ahead until somebody sets it right, in the first sleep after that."""

    ahead = timedelta(days=365)
    correct_after: datetime | None = None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.correct_after is not None and self.moment > self.correct_after:
            self.moment, self.correct_after = self.moment - self.ahead, None


@pytest.mark.parametrize("table", [NIGHTLY, Timetable(duration("24h")), Timetable(duration("7d"))])
def test_a_clock_that_was_a_year_ahead_does_not_stop_the_rounds(table: Timetable) -> None:
    clock = CorrectedClock(START + timedelta(days=365, hours=12))
    clock.correct_after = clock.moment
    rounds = Scripted(clock, [])
    rounds.last = clock.now() - timedelta(hours=1)
    scheduled(rounds, table, wanted=2)
    assert rounds.begun[0] - START < table.every + timedelta(days=1)
    assert rounds.begun[1] - rounds.begun[0] == table.every


def test_a_commit_in_the_future_does_not_stop_the_rounds() -> None:
    rounds = Scripted(SimulatedClock(START), [])
    rounds.last = START + timedelta(days=3650)
    scheduled(rounds, wanted=1)
    assert rounds.begun == [START + timedelta(hours=2, minutes=30)]


def test_a_clock_that_is_set_back_between_two_tries() -> None:
    clock = CorrectedClock(START)
    rounds = Scripted(clock, [Need.TIME])
    begun = START + timedelta(hours=2, minutes=30)
    clock.correct_after = begun + timedelta(seconds=len(STAGES))
    scheduled(rounds, wanted=1)
    assert rounds.begun[1] - (begun - clock.ahead) < timedelta(minutes=5)


def test_a_round_that_another_process_has_committed_is_not_run_again() -> None:
    clock = SimulatedClock(START)
    rounds = Scripted(clock, [Need.TIME])
    night = START + timedelta(hours=2, minutes=30)

    def other() -> None:
        rounds.last = clock.now()

    clock.at(night + timedelta(seconds=30), other)
    ending, told = scheduled(rounds, wanted=1)
    assert rounds.begun == [night, night + timedelta(days=1)]
    assert [one["event"] for one in told if one["event"] != "stage"] == [
        *("waits", "begins", "failed", "elsewhere"),
        *("waits", "begins", "committed", "ends"),
    ]
    assert ending == Ending(1, Need.NOTHING)
