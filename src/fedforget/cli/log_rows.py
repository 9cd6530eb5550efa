"""What a server's log says of rounds, failures, members and epochs, as rows of a page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

LogEntry = dict[str, Any]


@dataclass(frozen=True)
class RoundRow:
    """A committed round, and who of those who could have taken part did not."""

    body: dict[str, Any]
    time: str
    expected: int
    absent: tuple[str, ...]

    @property
    def present(self) -> int:
        return len(self.body["participants"])

    @property
    def date(self) -> str:
        return day_of(self.time)


def day_of(time: str) -> str:
    """The day of a log entry, in few characters.

    >>> day_of("2030-03-02T23:04:05+00:00")
    '2 Mar'
    """
    with suppress(ValueError):
        moment = datetime.fromisoformat(time).astimezone(UTC)
        return f"{moment.day} {moment:%b}"
    return ""


def rounds_of(log: Sequence[LogEntry]) -> list[RoundRow]:
    """Committed rounds in their order."""
    rows: list[RoundRow] = []
    keys: dict[str, str] = {}
    suspended: set[str] = set()
    left: set[str] = set()
    for entry in log:
        body = entry["body"]
        if entry["kind"] in ("epoch", "recovery"):
            # Whoever has left stays on the list until another one drops it, or gives it a new key.
            left = {name for name in left if body["members"].get(name) == keys.get(name)}
            keys, suspended = body["members"], {*body.get("suspended", ())}
        elif entry["kind"] == "round":
            there = set(body["participants"])
            expected = {*keys, *there} - suspended - (left - there)
            rows.append(
                RoundRow(body, entry["time"], len(expected), tuple(sorted(expected - there)))
            )
            left |= set(body.get("left", ()))
    return rows


@dataclass(frozen=True)
class Presence:
    """When a member took part last.

    Attributes
    ----------
    round, time : the last round with it; None if there was none.
    """

    round: int | None
    time: str | None


def presences(names: Sequence[str], rounds: Sequence[RoundRow]) -> dict[str, Presence]:
    """When each member took part last, by the committed rounds."""
    found = {}
    for name in names:
        there = (row for row in reversed(rounds) if name in row.body["participants"])
        last = next(there, None)
        found[name] = (
            Presence(None, None) if last is None else Presence(int(last.body["round"]), last.time)
        )
    return found


def trouble(log: Sequence[LogEntry]) -> list[dict[str, Any]]:
    """Attempts that failed, and who was found out in those and in committed rounds."""
    rows: list[dict[str, Any]] = []
    for entry in log:
        body, failed = entry["body"], entry["kind"] == "failure"
        found = body.get("findings", []) if failed or entry["kind"] == "round" else []
        if not found and not failed:
            continue
        rows.append(
            {
                "round": body["round"],
                "attempt": body["attempt"],
                "time": entry["time"],
                "outcome": "failed" if failed else "committed",
                "participants": body["participants"],
                "named": sorted({name for one in found for name in one["members"]}),
                "found": "; ".join(str(one["text"]) for one in found) or "nobody can be named",
            }
        )
    return rows


def epochs_of(log: Sequence[LogEntry]) -> list[dict[str, Any]]:
    """Who came and went."""
    rows: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    for entry in (entry for entry in log if entry["kind"] in ("epoch", "recovery")):
        now = entry["body"]["members"]
        rows.append(
            {
                "epoch": entry["body"]["epoch"],
                "time": entry["time"],
                "came": [name for name in now if name not in before],
                "went": [name for name in before if name not in now],
                "new_keys": [name for name in now if before.get(name, now[name]) != now[name]],
                "suspended": entry["body"].get("suspended", []),
                "members": len(now),
            }
        )
        before = now
    return rows
