"""Locks on files and directories: held while a descriptor is open, and gone with its process."""

from __future__ import annotations

import fcntl
import time

_PAUSE = 0.005


def lock(descriptor: int, patience: float = 0.0) -> None:
    """Lock what is open, so that nobody else can, until it is closed.

    Whoever asks whether something is locked holds it for an instant; ``patience`` says for how many
    seconds to try again.

    Raises
    ------
    BlockingIOError
        If somebody else has locked it.
    OSError
        If the file system has no locks.
    """
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise
            time.sleep(_PAUSE)


def is_locked(descriptor: int) -> bool:
    """Whether somebody else has locked what is open; without locks nobody has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
