"""Rounds that come by themselves: when to begin one, and what to do when it comes to nothing.

A round that came to nothing has one of three needs:

- *time*: a directory was in use, a disk was full, somebody spoilt an attempt.  It is tried again,
  each time after a longer wait.
- *a member*: somebody who must be there was away.  A sum without it would show something, and the
  rules have refused it.  It is not tried again before that member's directory has changed.
- *a person*: only a command helps, which the message names.  It is not tried again before some
  directory has changed.

Whether a round may begin is never decided here: that is the protocol's, and each attempt asks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random
from typing import Any, Protocol

from fedforget.errors import FedforgetError
from fedforget.runtime.driver import OnStage
from fedforget.runtime.timetable import Timetable
from fedforget.wall_clock import Clock, stamp, using

BINDING_STAGES = ("consistency", "unmask", "commit")
"""From here on members sign who is in the sum: the same ones must come again until it commits.

A process that is asked to end finishes such a round; it takes no longer than two stages.
"""


class Need(StrEnum):
    """What a round that came to nothing waits for."""

    NOTHING = "nothing"
    TIME = "time"
    MEMBER = "member"
    PERSON = "person"


@dataclass(frozen=True)
class RoundOutcome:
    """What came of an attempt at a round."""

    need: Need
    text: str = ""
    result: dict[str, Any] | None = None

    @property
    def committed(self) -> bool:
        return self.need is Need.NOTHING


class Rounds(Protocol):
    """A way of running rounds."""

    sees_everybody: bool
    """Whether :meth:`standing` changes when any member has changed something."""

    def attempt(self, watch: OnStage) -> RoundOutcome:
        """Run one round, or say why there is none; what ``watch`` raises is raised."""

    def standing(self) -> object:
        """Something that is equal as long as a refused round would be refused again."""

    def last_commit(self) -> datetime | None:
        """When the last round was committed, None if there was none."""


class StopAsked(Exception):
    """Somebody asked for an end, and the stage under way is over."""


class Stop:
    """Tells whether somebody asked for an end."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self) -> None:
        self.asked = True

    def between_stages(self, stage: str) -> None:
        """To be called as a stage begins; ends the round where that binds nobody."""
        if self.asked and stage not in BINDING_STAGES:
            raise StopAsked


@dataclass(frozen=True)
class Backoff:
    """How long to wait after failures: twice as long each time, up to a cap, and not exactly so.

    The random part keeps several servers of one machine from trying at the same moments.
    """

    first: float = 60.0
    cap: float = 3600.0
    look: float = 300.0
    jitter: float = 0.2
    random: Random = field(default_factory=Random)

    def wait(self, failures: int, *, looking: bool) -> float:
        """Seconds before the next try; ``looking`` if it only looks for changes."""
        cap = self.look if looking else self.cap
        exact = min(cap, self.first * 2.0 ** min(failures - 1, 60))
        return exact * self.random.uniform(1 - self.jitter, 1 + self.jitter)


@dataclass(frozen=True)
class Ending:
    """How a schedule ended.

    Attributes
    ----------
    committed : how many rounds it has run.
    behind : what a round that is due waits for; NOTHING if none is due.
    """

    committed: int
    behind: Need

    @property
    def exit_code(self) -> int:
        """0: nothing is due; 3: a round is due and may come by itself; 4: a person must act."""
        return {Need.NOTHING: 0, Need.TIME: 3, Need.MEMBER: 3, Need.PERSON: 4}[self.behind]


EarlierMoment = Callable[[datetime, datetime], datetime]
"""The moment to wait for, given that moment as it was computed and the time of now."""

Tell = Callable[[dict[str, Any]], None]
"""Told what happens: a dictionary with ``event``, and ``time``."""


class Schedule:
    """Runs rounds when they are due, until it is asked to end.

    Parameters
    ----------
    rounds : how they are run.
    timetable : when; None for one round, now.
    clock, backoff : of this process, or of a test.
    stop : asked before every step.
    tell : told what happens.
    tries : most attempts (and looks for changes) for a round that is due; None for no limit.
    wanted : end after this many rounds; None for no end.
    """

    def __init__(
        self,
        rounds: Rounds,
        timetable: Timetable | None,
        clock: Clock,
        *,
        stop: Stop | None = None,
        backoff: Backoff | None = None,
        tell: Tell = lambda event: None,
        tries: int | None = None,
        wanted: int | None = None,
    ) -> None:
        self._rounds = rounds
        self._timetable = timetable
        self._clock = clock
        self._stop = stop or Stop()
        self._backoff = backoff or Backoff()
        self._tell = tell
        self._tries = tries
        self._wanted = 1 if timetable is None else wanted
        self._blocked: object = None
        self._still_blocked = Need.TIME
        self._cause = ""
        self._committed = 0

    def run(self) -> Ending:
        """Run until enough rounds were committed, or somebody asks for an end."""
        with using(self._clock):
            return self._run()

    def _run(self) -> Ending:
        self._committed, behind = 0, Need.NOTHING
        due = self._first_due()
        while True:
            if due > self._clock.now():
                self._say("waits", until=stamp(due))
            reached = self._sleep_until(due, self._not_beyond)
            if reached is None:
                break
            due = reached
            behind = self._until_committed(due)
            if self._stop.asked or self._committed == self._wanted or self._timetable is None:
                break
            due = self._timetable.following(due, self._clock.now())
        ending = Ending(self._committed, behind)
        self._say("ends", committed=self._committed, behind=str(behind), exit_code=ending.exit_code)
        return ending

    def _first_due(self) -> datetime:
        now = self._clock.now()
        if self._timetable is None:
            return now
        return self._timetable.first(self._rounds.last_commit(), now)

    def _until_committed(self, due: datetime) -> Need:
        """Try until the round that is due has committed; returns what it still needs."""
        failures, need = 0, Need.TIME
        while True:
            if self._is_done_by_others(due):
                self._say("elsewhere")
                return Need.NOTHING
            try:
                outcome = self._attempt()
            except StopAsked:
                return need
            if outcome is None:
                # Nothing has changed since a refusal: the same question has the same answer.
                need = self._still_blocked
            elif outcome.committed:
                return Need.NOTHING
            else:
                need, self._cause = outcome.need, outcome.text
            failures += 1
            if failures == self._tries:
                self._say("gives_up", tries=failures, need=str(need), text=self._cause)
                return need
            wait = self._backoff.wait(failures, looking=need in (Need.MEMBER, Need.PERSON))
            if outcome is not None:
                self._say("failed", need=str(need), text=outcome.text, again_in=round(wait))
            pause = timedelta(seconds=wait)
            if self._sleep_until(self._clock.now() + pause, _within(pause)) is None:
                return need
            if self._is_due_again(due):
                # Another occasion: where not everybody can be seen from here, ask again.
                due, failures = self._clock.now(), 0
                if not self._rounds.sees_everybody:
                    self._blocked = None

    def _attempt(self) -> RoundOutcome | None:
        """One attempt; None if it was refused before and nothing has changed since."""
        if self._blocked is not None and self._blocked == self._rounds.standing():
            return None
        self._blocked = None
        self._say("begins")
        outcome = self._rounds.attempt(self._watch)
        if outcome.committed:
            self._committed += 1
            self._say("committed", **(outcome.result or {}))
        elif outcome.need in (Need.MEMBER, Need.PERSON):
            self._blocked, self._still_blocked = self._rounds.standing(), outcome.need
        return outcome

    def _watch(self, stage: str) -> None:
        self._stop.between_stages(stage)
        self._say("stage", stage=stage)

    def _is_due_again(self, due: datetime) -> bool:
        table = self._timetable
        return table is not None and table.following(due, due) <= self._clock.now()

    def _is_done_by_others(self, due: datetime) -> bool:
        """Whether the round that is due was committed by another process, or by hand."""
        if self._timetable is None:
            return False
        try:
            last = self._rounds.last_commit()
        except FedforgetError:
            # What is wrong with the server's directory is told by the attempt.
            return False
        return last is not None and due <= last <= self._clock.now()

    def _not_beyond(self, due: datetime, now: datetime) -> datetime:
        return due if self._timetable is None else self._timetable.not_beyond(due, now)

    def _sleep_until(self, moment: datetime, earlier: EarlierMoment) -> datetime | None:
        """The moment that has come; None if somebody asked for an end meanwhile.

        ``earlier`` corrects the moment where the clock was set back: nobody waits a year because
        the clock was a year ahead.
        """
        while not self._stop.asked:
            now = self._clock.now()
            moment = earlier(moment, now)
            left = (moment - now).total_seconds()
            if left <= 0:
                return moment
            # In pieces: a machine that slept, or a clock that was set, is noticed.
            self._clock.sleep(min(left, 600.0))
        return None

    def _say(self, event: str, **fields: Any) -> None:
        self._tell({"event": event, "time": stamp(self._clock.now()), **fields})


def _within(pause: timedelta) -> EarlierMoment:
    """No later than a pause from now."""
    return lambda moment, now: min(moment, now + pause)
