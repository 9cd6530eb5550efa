"""Looks at a party's directory while another process may be using it.

Nothing is locked and nothing is written: the party works on a copy of its store in memory, as it
was after one of its transactions.  A round under way goes on, and a command that begins is not
refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from fedforget.errors import FedforgetError
from fedforget.parties.attempts import FILE as ATTEMPTS
from fedforget.parties.client_party import ClientParty
from fedforget.parties.folders import (
    FEDERATION,
    STORES,
    UNFINISHED,
    FolderError,
    FolderInUseError,
    check_private,
    check_whose,
)
from fedforget.parties.policy import FILE as POLICY
from fedforget.parties.round_progress import FILE as PROGRESS
from fedforget.parties.server_party import ServerParty

PartyKind = Literal["server", "client"]
_TRIES = 20


def kind_of(folder: Path) -> PartyKind:
    """Whose directory it is."""
    if (folder / STORES["server"]).is_file():
        return "server"
    if (folder / STORES["client"]).is_file():
        return "client"
    raise FedforgetError(
        f"{folder} is neither a client's nor a server's directory"
        f" (it has no {STORES['client']} and no {STORES['server']})"
    )


def check_readable(folder: Path, kind: PartyKind) -> None:
    """Refuse a directory that is not of this kind, is unfinished, or is open to others."""
    kind_of(folder)
    check_whose(folder, kind)
    for _ in range(_TRIES - 1):
        # Files of a round under way come and go.
        with suppress(FolderInUseError):
            check_private(folder)
            break
        time.sleep(0.05)
    else:
        check_private(folder)
    if (folder / UNFINISHED).exists():
        raise FolderError(f"{folder} is unfinished: its init was cut off; run it again")


@contextmanager
def read_server(folder: Path) -> Iterator[ServerParty]:
    """A server as it is now; whatever would change it is refused."""
    party = ServerParty(folder, copy=True)
    try:
        yield party
    finally:
        party.close()


@contextmanager
def read_client(folder: Path) -> Iterator[ClientParty]:
    """A client as it is now; whatever would change it is refused."""
    party = ClientParty(folder, copy=True)
    try:
        yield party
    finally:
        party.store.close()


State = tuple[tuple[str, int, int, int], ...]


def state_of(folder: Path) -> State:
    """Changes with every change of a directory, and is found without opening anything.

    Every transaction ends with a write to the store itself, because its log is emptied.
    """
    found = []
    names = (STORES["server"], STORES["client"], FEDERATION, PROGRESS)
    for name in (*names, ATTEMPTS, POLICY):
        try:
            one = (folder / name).stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise FolderError(f"{folder} cannot be read: {error.strerror}") from None
        found.append((name, one.st_ino, one.st_mtime_ns, one.st_size))
    return tuple(found)
