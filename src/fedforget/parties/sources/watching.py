"""Files that must stay as they are while they are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
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


class Watch:
    """How some files were when reading began."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._marks = {path: _mark(path) for path in paths}

    def check(self) -> None:
        """Refuse a file that has changed since, was replaced, or is gone."""
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
