"""Imports that no committed round has counted yet: since when, and how many records.

An import travels with the input of an attempt, as requests do, and is counted when that attempt's
round commits.  There are never more than two entries: what travels, and what came since.
"""

from __future__ import annotations

from msgspec import Struct, to_builtins

from fedforget.parties.database import Database

VALUE = "imports"


class WaitingImport(Struct, frozen=True):
    """Imports that wait together.

    Attributes
    ----------
    since : time of the first one.
    records : how many records they brought.
    attempt : the one whose input carries them, None if none does yet.
    """

    since: str
    records: int
    attempt: int | None = None


def waiting_imports(store: Database) -> list[WaitingImport] | None:
    """What waits; None where an earlier fedforget has kept no times."""
    stored: list[WaitingImport] | None = store.get(VALUE)
    return stored


def note_import(store: Database, time: str, records: int) -> None:
    """Remember an import, in the transaction that makes it."""
    if records:
        _put(store, [*_known(store), WaitingImport(time, records)])


def send_imports(store: Database, attempt: int) -> None:
    """Everything imported so far travels with an attempt's input."""
    known = _known(store)
    if known:
        _put(store, [WaitingImport(one.since, one.records, attempt) for one in known])


def close_imports(store: Database, attempt: int) -> None:
    """A round has counted what travelled with an attempt.

    From here on it is known what waits, even in a directory of an earlier version.
    """
    _put(store, [one for one in _known(store) if one.attempt != attempt])


def _known(store: Database) -> list[WaitingImport]:
    return waiting_imports(store) or []


def _put(store: Database, waiting: list[WaitingImport]) -> None:
    """Store entries, those of one attempt as one."""
    merged: dict[int | None, WaitingImport] = {}
    for one in waiting:
        before = merged.get(one.attempt)
        if before is not None:
            since, records = min(before.since, one.since), before.records + one.records
            one = WaitingImport(since, records, one.attempt)
        merged[one.attempt] = one
    store.put(VALUE, to_builtins(list(merged.values())))
