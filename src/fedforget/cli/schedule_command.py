"""Rounds that come by themselves: ``fedforget round --every`` and ``fedforget flower round``."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import typer

from fedforget.cli.console import console, listed, messages, number_of, plain_errors, safe
from fedforget.errors import FedforgetError
from fedforget.runtime.schedule import Backoff, Rounds, Schedule, Stop, Tell
from fedforget.runtime.timetable import Timetable, duration, local_words, time_of_day
from fedforget.text import json_text, visible
from fedforget.wall_clock import SystemClock, length_in_words, moment_of

LOG_BYTES = 1 << 20
LOGS_KEPT = 5

_WHAT_HELPS = {
    "time": "It is tried again",
    "member": "It is tried again once a member's directory has changed; the next look is",
    "person": "Somebody has to act, as the message says; the next look for a change is",
}
_WHO_ACTS = {
    "time": "Another try may succeed.",
    "member": "It waits for a member.",
    "person": "Somebody has to act, as the message says.",
}


@dataclass(frozen=True)
class Wishes:
    """What the options ask for.

    Attributes
    ----------
    every, at : as they were typed; None if left out.
    tries : most tries for a round that is due; None for no limit.
    rounds : end after this many; None for no end.
    first_wait : seconds before the second try.
    log : a file that what happens is written to, beside the terminal.
    as_json : one JSON object per line instead of words.
    """

    every: str | None = None
    at: str | None = None
    tries: int | None = None
    rounds: int | None = None
    first_wait: str = "1m"
    log: Path | None = None
    as_json: bool = False

    @property
    def timetable(self) -> Timetable | None:
        if self.every is None:
            if self.at is not None:
                raise FedforgetError("--at needs --every: say --every 24h --at " + self.at)
            return None
        return Timetable(duration(self.every), None if self.at is None else time_of_day(self.at))


def run_schedule(rounds: Rounds, wishes: Wishes) -> None:
    """Run rounds when they are due; ends with a status that tells the truth."""
    with plain_errors():
        table = wishes.timetable
        first = duration(wishes.first_wait).total_seconds()
        with _listener(wishes) as tell, _stoppable() as (stop, clock):
            backoff = Backoff(first=max(first, 0.001), cap=max(3600.0, first))
            schedule = Schedule(
                rounds,
                table,
                clock,
                stop=stop,
                backoff=backoff,
                tell=tell,
                tries=wishes.tries or (1 if table is None else None),
                wanted=wishes.rounds,
            )
            ending = schedule.run()
    if ending.exit_code:
        raise typer.Exit(ending.exit_code)


@contextmanager
def _stoppable() -> Iterator[tuple[Stop, SystemClock]]:
    """Let SIGTERM and Ctrl-C end what is run here between two stages."""
    stop, clock = Stop(), SystemClock()

    def ask(*_: object) -> None:
        stop.ask()
        clock.wake()

    before = {one: signal.signal(one, ask) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop, clock
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _listener(wishes: Wishes) -> Iterator[Tell]:
    """Whoever is told what happens: the terminal, and a file if there is to be one."""
    handler = None if wishes.log is None else _log_file(wishes.log)

    def tell(event: dict[str, Any]) -> None:
        if wishes.as_json:
            print(json_text(event), flush=True)
        text = in_plain_words(event)
        if text is None:
            return
        if not wishes.as_json:
            (messages if event["event"] in ("failed", "gives_up") else console).print(
                safe(text), soft_wrap=True
            )
        if handler is not None:
            line = f"{event['time']} {visible(text)}"
            handler.handle(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))

    try:
        yield tell
    finally:
        if handler is not None:
            handler.close()


class _PrivateFile(RotatingFileHandler):
    """A log that only its owner can read, with a few older ones beside it."""

    def _open(self) -> Any:
        mask = os.umask(0o077)
        try:
            return super()._open()
        finally:
            os.umask(mask)

    def handleError(self, record: logging.LogRecord) -> None:
        """A disk that is full must not end the rounds."""


def _log_file(path: Path) -> _PrivateFile:
    try:
        return _PrivateFile(path, maxBytes=LOG_BYTES, backupCount=LOGS_KEPT, encoding="utf-8")
    except OSError as error:
        raise FedforgetError(f"{path} cannot be written: {error.strerror}") from None


def in_plain_words(event: dict[str, Any]) -> str | None:
    """What happened, for people; None for what only scripts want to know."""
    match event["event"]:
        case "waits":
            return f"The next round is due {_local(event['until'])}."
        case "committed":
            refused = "".join(f" Left out: {k}: {v}." for k, v in event.get("refused", {}).items())
            return (
                f"Round {event['round']} ({event['kind']}) committed:"
                f" {listed(event['participants'])}; model {event['model']}.{refused}"
            )
        case "elsewhere":
            return "The round that was due has been committed by another process."
        case "failed":
            wait = length_in_words(timedelta(seconds=event["again_in"]))
            return f"No round: {event['text']}. {_WHAT_HELPS[event['need']]} in {wait}."
        case "gives_up":
            tries = "1 try" if event["tries"] == 1 else f"{event['tries']} tries"
            return f"No round after {tries}: {event['text']}. {_WHO_ACTS[event['need']]}"
        case "ends":
            due = "" if event["behind"] == "nothing" else "; a round is due and not committed"
            return f"Ended after {number_of(event['committed'], 'round')}{due}."
    return None


def _local(text: str) -> str:
    moment = moment_of(text)
    assert isinstance(moment, datetime)
    return local_words(moment)
