"""Scheduled rounds over directories of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from fedforget.errors import FedforgetError
from fedforget.parties.attempts import FILE as ATTEMPTS
from fedforget.parties.attempts import note_failure
from fedforget.parties.folders import LOCK, FolderInUseError, locked
from fedforget.parties.server_party import open_server
from fedforget.parties.times import last_commit_of
from fedforget.protocol.errors import RoundAbortedError
from fedforget.protocol.messages import RoundKind
from fedforget.runtime.directories import RoundError, RoundFailedError, run
from fedforget.runtime.driver import OnStage
from fedforget.runtime.schedule import Need, RoundOutcome

_PASSING = (ATTEMPTS, LOCK)
"""Files that change though nothing has."""


class DirectoryRounds:
    """Rounds of a server and clients in directories.

    A client that cannot be opened, or cannot store anything, is left out where the rules allow it.

    Parameters
    ----------
    server, clients : the directories.
    kind : of every round; what is needed, if None.
    wait : seconds for which a directory that is in use is tried again.
    """

    sees_everybody = True

    def __init__(
        self,
        server: Path,
        clients: Sequence[Path],
        kind: RoundKind | None = None,
        wait: float = 0.0,
    ) -> None:
        self._server = server
        self._clients = tuple(clients)
        self._kind: RoundKind | None = kind
        self._wait = wait

    def attempt(self, watch: OnStage) -> RoundOutcome:
        try:
            result = run(
                self._server, self._clients, self._kind, watch, wait=self._wait, spare=True
            )
        except FedforgetError as error:
            note_failure(self._server, error)
            return RoundOutcome(need_of(error), str(error))
        return RoundOutcome(Need.NOTHING, result=result)

    def standing(self) -> object:
        """When each file of the parties was changed last, and whether a directory is in use."""
        return tuple(_standing_of(folder) for folder in (self._server, *self._clients))

    def last_commit(self) -> datetime | None:
        with suppress(FolderInUseError), open_server(self._server) as server:
            return last_commit_of(server.log())
        return None


def need_of(error: FedforgetError) -> Need:
    """What a round that failed in this way waits for."""
    aborted = aborted_by(error)
    if aborted is not None:
        broken = error.broken if isinstance(error, RoundFailedError) else frozenset()
        if aborted.person:
            return Need.PERSON
        # A disk that gets room again changes no file: only another attempt finds out.
        return Need.MEMBER if aborted.missing and not broken else Need.TIME
    return Need.PERSON if isinstance(error, RoundError) else Need.TIME


def aborted_by(error: BaseException | None) -> RoundAbortedError | None:
    """The protocol's own words, if it ended the round."""
    while error is not None and not isinstance(error, RoundAbortedError):
        error = error.__cause__
    return error


def _standing_of(folder: Path) -> tuple[object, ...]:
    files = []
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda one: one.name):
            # What SQLite puts beside a store comes and goes with every opening.
            if entry.name not in _PASSING and not entry.name.endswith(("-wal", "-shm")):
                about = entry.stat(follow_symlinks=False)
                files.append((entry.name, about.st_mtime_ns, about.st_size, about.st_mode))
    return (str(folder), _can_be_opened(folder), *files)


def _can_be_opened(folder: Path) -> bool:
    try:
        with locked(folder):
            return True
    except (FedforgetError, OSError):
        return False
