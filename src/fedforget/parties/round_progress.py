"""Where a round under way stands: a small file in the server's directory, for whoever looks on.

The file is written whole at every stage and with every answer, and is gone when the round has
ended.  It holds names and times, no message.  A process that is killed leaves it behind: so the
directory itself is locked while a round runs, and a file beside a directory that nobody has locked
is that of a round that was cut off.  This lock keeps nobody out; the one in ``folders`` does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from fedforget.locks import is_locked, lock

FILE = "round.json"
_NEW = f"{FILE}.new"

STAGES = ("who", "advertise", "share", "masked input", "consistency", "unmask", "commit")
"""In their order; an attempt that fails begins again with the second."""

_MOST_REFUSALS = 1000
_LONGEST_REASON = 500

_PATIENCE = 1.0
"""Seconds to wait for somebody who is just looking whether the directory is locked."""


class StageProgress(msgspec.Struct, frozen=True):
    """A stage: who was asked, who has answered, and how long it took if it has ended."""

    title: str
    began: float
    asked: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    seconds: float | None = None

    @property
    def waiting_for(self) -> tuple[str, ...]:
        answered = set(self.answered)
        return tuple(name for name in self.asked if name not in answered)


class StoredProgress(msgspec.Struct, frozen=True):
    """A round under way; times are seconds since 1970.

    Attributes
    ----------
    round, kind : which round it is, and ``"full"`` or ``"delta"`` once that is known.
    attempt : the attempt under way; 0 before the first.
    began : when the round began.
    stages : those of this attempt, the last of them under way.
    refused : members that refused or were refused, and why.
    attempts : how many were begun in this round; all except the last have come to nothing.
    """

    round: int
    began: float
    kind: str | None = None
    attempt: int = 0
    stages: tuple[StageProgress, ...] = ()
    refused: dict[str, str] = {}
    attempts: int = 0

    @property
    def stage(self) -> StageProgress | None:
        return self.stages[-1] if self.stages else None

    @property
    def lost(self) -> dict[str, str]:
        """Who did not answer in a stage that has ended, and in which one first."""
        found: dict[str, str] = {}
        for stage in self.stages[:-1]:
            for name in stage.waiting_for:
                found.setdefault(name, stage.title)
        return found


class RoundProgress:
    """Keeps the file while a round runs.

    Whatever goes wrong with the file, the round goes on: a full disk must not stop it here.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._progress = StoredProgress(0, time.time())

    @contextmanager
    def shown(self, round_number: int) -> Iterator[RoundProgress]:
        """Show a round in the body of the ``with``."""
        self._progress = StoredProgress(round_number, time.time())
        descriptor = None
        with suppress(OSError):
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            # Whoever looks whether a round runs holds the directory for an instant.
            lock(descriptor, _PATIENCE)
        try:
            self._write()
            yield self
        finally:
            for name in (FILE, _NEW):
                with suppress(OSError):
                    (self._folder / name).unlink(missing_ok=True)
            if descriptor is not None:
                os.close(descriptor)

    def began(self, stage: str, asked: Sequence[str], *, attempt: int, kind: str | None) -> None:
        """A stage begins; those who were asked may answer."""
        now, before = time.time(), self._progress
        new, stages, attempts = StageProgress(stage, now, tuple(asked)), before.stages, 0
        if attempt != before.attempt:
            # Only the question who is there is common to all attempts.
            stages, attempts = tuple(one for one in stages if one.title == "who"), 1
        if stages and stages[-1].title == stage:
            # The same stage, with more to ask.
            new = msgspec.structs.replace(new, began=stages[-1].began)
            stages = stages[:-1]
        self._progress = msgspec.structs.replace(
            before,
            kind=kind,
            attempt=attempt,
            stages=(*_ended(stages, now), new),
            attempts=before.attempts + attempts,
        )
        self._write()

    def answered(self, name: str) -> None:
        """A member has answered in the stage under way."""
        *before, last = self._progress.stages or (None,)
        if last is None or name in last.answered:
            return
        last = msgspec.structs.replace(last, answered=(*last.answered, name))
        self._progress = msgspec.structs.replace(self._progress, stages=(*before, last))
        self._write()

    def refused(self, name: str, reason: str) -> None:
        """A member takes no part, or something that it said was refused."""
        refused = self._progress.refused
        if len(refused) < _MOST_REFUSALS and refused.get(name) != reason:
            refused = refused | {name: reason[:_LONGEST_REASON]}
            self._progress = msgspec.structs.replace(self._progress, refused=refused)
            self._write()

    def _write(self) -> None:
        # Not made durable: after a crash of the machine no round is under way.
        data = msgspec.json.encode(self._progress)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with suppress(OSError):
            descriptor = os.open(self._folder / _NEW, flags, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            (self._folder / _NEW).replace(self._folder / FILE)


def _ended(stages: tuple[StageProgress, ...], now: float) -> tuple[StageProgress, ...]:
    """The stages with the last of them ended."""
    if not stages or stages[-1].seconds is not None:
        return stages
    last = msgspec.structs.replace(stages[-1], seconds=round(now - stages[-1].began, 3))
    return (*stages[:-1], last)


class Seen(msgspec.Struct, frozen=True):
    """What the file says, and whether the process that wrote it still runs."""

    progress: StoredProgress
    running: bool


def read_progress(folder: Path) -> Seen | None:
    """The round under way, or one that was cut off; None if there is none."""
    running = _is_locked(folder)
    try:
        data = (folder / FILE).read_bytes()
        return Seen(msgspec.json.decode(data, type=StoredProgress), running)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        # Only its owner can write it; whatever else lies there is not a round.
        return None


def _is_locked(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)
