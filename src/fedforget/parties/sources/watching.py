"""Files that must stay as they are while they are read."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedforget.parties.sources.reader import TableError


class _Mark(NamedTuple):
    """What changes if a file does."""

    device: int
    number: int
    size: int
    changed: int


def _mark(path: Path) -> _Mark | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _is_open_for_writing(path: Path) -> bool:
    """Whether some program has a file open for writing, as far as that can be told.

    Linux gives nobody a lease to read on such a file.  It is asked for the files of the same user
    only, and by few file systems of a network; elsewhere the answer is no.
    """
    try:
        import fcntl

        sign, lease = fcntl.F_SETSIG, fcntl.F_SETLEASE  # only Linux has them
    except (ImportError, AttributeError):
        return False
    try:
        with path.open("rb") as file:
            # Whoever opens the file in this moment makes the kernel send a signal: one that is
            # ignored, not the one that would end the process.
            fcntl.fcntl(file, sign, signal.SIGURG)
            fcntl.fcntl(file, lease, fcntl.F_RDLCK)
            fcntl.fcntl(file, lease, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


class Watch:
    """How some files were when reading began.

    Parameters
    ----------
    paths : the files.
    listing : finds the files again, where a directory or a pattern was given.
    """

    def __init__(
        self, paths: Sequence[Path], listing: Callable[[], list[Path]] | None = None
    ) -> None:
        self._listing = listing
        self._marks = {path: _mark(path) for path in paths}
        for path in paths:
            if _is_open_for_writing(path):
                raise TableError(
                    f"{path} is still open for writing in some program; wait until it is written,"
                    " and try again; nothing was imported"
                )

    def check(self) -> None:
        """Refuse files that have changed since, were replaced, or have come or gone."""
        for path, before in self._marks.items():
            now = _mark(path)
            if now == before:
                continue
            if now is None:
                what = "is gone"
            elif before is None or (now.device, now.number) != (before.device, before.number):
                what = "was replaced by another file"
            elif now.size > before.size:
                what = f"grew by {now.size - before.size:,} bytes"
            else:
                what = "has changed"
            raise TableError(
                f"{path} {what} while it was read; wait until it is written, and try again; nothing"
                " was imported"
            )
        if self._listing is not None and self._listing() != list(self._marks):
            raise TableError(
                "files have come or gone while the source was read; wait until it is written, and"
                " try again; nothing was imported"
            )
