"""Opening a directory that another command may be using for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from fedforget.parties.folders import FolderInUseError

SECONDS = 10.0

Party = TypeVar("Party")


@contextmanager
def patiently(
    open_party: Callable[[Path], AbstractContextManager[Party]],
    folder: Path,
    seconds: float = SECONDS,
) -> Iterator[Party]:
    """Open a party's directory; where it is in use, try again for a while."""
    end = time.monotonic() + seconds
    while True:
        opening = open_party(folder)
        try:
            party = opening.__enter__()
        except FolderInUseError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            break
    try:
        yield party
    finally:
        opening.__exit__(None, None, None)
