"""What a party remembers of rounds that came to nothing: when, and why.

A small file of the last ones, for the directory's owner alone.  The server's signed log has no
place for these texts: it is public, and they may name files and members' own words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from fedforget.parties.folders import FolderError, write_private
from fedforget.wall_clock import moment_of, stamp, utc_now

FILE = "attempts.json"
MOST = 50
_LONGEST = 2000


def note_failure(folder: Path, cause: object) -> None:
    """Remember that a round came to nothing; a disk that takes nothing is passed over."""
    if not folder.is_dir() or not any(folder.glob("*.sqlite")):
        return
    entry = {"time": stamp(utc_now()), "cause": str(cause)[:_LONGEST]}
    kept = [*_stored(folder), entry][-MOST:]
    with suppress(FolderError, OSError):
        write_private(folder / FILE, json.dumps(kept, indent=1, ensure_ascii=False).encode())


def failures_since(folder: Path, moment: datetime | None) -> list[dict[str, str]]:
    """What came to nothing after a moment, the latest last; everything, if it is None."""
    return [
        {"time": one["time"], "cause": one["cause"]}
        for one in _stored(folder)
        if moment is None or (when := moment_of(one["time"])) is None or when > moment
    ]


def _stored(folder: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads((folder / FILE).read_bytes())
    except (OSError, ValueError):
        return []
    return list(_entries(found))


def _entries(found: object) -> Iterator[dict[str, Any]]:
    for one in found if isinstance(found, list) else ():
        match one:
            case {"time": str(), "cause": str()}:
                yield one
