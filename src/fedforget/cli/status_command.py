"""``client status`` and ``server status``: what is there, since when, and what is overdue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from fedforget.cli.console import console, listed, number_of, plain_errors, safe, show
from fedforget.cli.metrics import client_metrics, server_metrics, write_metrics
from fedforget.cli.words import table_of
from fedforget.errors import FedforgetError
from fedforget.parties.times import ClientTimes, Limits, Times, client_times, server_times
from fedforget.wall_clock import stamp, time_since, utc_now

UNKNOWN = "unknown"
WAITS = "waits for client approve; rounds go on with what was counted last"
MOST_DAYS = 36500
"""The calendar ends, and no due date can lie beyond it."""


@dataclass(frozen=True)
class Asked:
    """What the options of a status ask for."""

    due_days: float = 30.0
    stale_days: float = 7.0
    metrics: Path | None = None
    check: bool = False
    as_json: bool = False

    @property
    def limits(self) -> Limits:
        return Limits(_days("--due-days", self.due_days), _days("--stale-days", self.stale_days))


def _days(option: str, number: float) -> timedelta:
    if not 0 <= number <= MOST_DAYS:
        raise FedforgetError(f"{option} must be a number of days up to {MOST_DAYS}, got {number:g}")
    return timedelta(days=number)


def show_client(folder: Path, asked: Asked) -> None:
    """A client's status."""
    # Neither party's status waits for what the other needs.
    from fedforget.parties.client_party import open_client

    with plain_errors():
        with open_client(folder) as party:
            status = party.status()
            times = client_times(party, utc_now(), asked.limits)
            least = 1 if party.federation is None else party.reporting.rules.min_cell
            waits = party.waits_for_approval()
        if asked.metrics is not None:
            gauges = client_metrics(status, times, least)
            write_metrics(asked.metrics, gauges, private=_is_in(asked.metrics, folder))
    # Metrics are read by others, who are not to know this.
    words = ({"approval": WAITS} if waits else {}) | _client_words(times)
    _show(status, times, words, asked, waits_for_approval=waits)


def show_server(folder: Path, asked: Asked) -> None:
    """A server's status."""
    from fedforget.parties.server_party import open_server

    with plain_errors():
        with open_server(folder) as party:
            status = party.status()
            times = server_times(party, utc_now(), asked.limits)
        if asked.metrics is not None:
            gauges = server_metrics(status, times)
            write_metrics(asked.metrics, gauges, private=_is_in(asked.metrics, folder))
    _show(status, times, _words(times), asked)


def _show(
    status: dict[str, Any], times: Times, words: dict[str, Any], asked: Asked, **more: Any
) -> None:
    """A status in words, or for scripts with ``more`` that the words say in their own way."""

    def in_words() -> None:
        console.print(table_of(status | words))
        for one in times.failed:
            causes = "; ".join(one["causes"])
            when = one["time"] or UNKNOWN
            console.print(f"[yellow]Failed[/] {safe(when)}: {safe(causes)}", soft_wrap=True)
        for late in times.overdue:
            console.print(f"[bold red]Overdue:[/] {safe(late.text)}", soft_wrap=True)

    show(status | times.plain() | more, asked.as_json, in_words)
    if asked.check and times.overdue:
        raise typer.Exit(1)


def _words(times: Times) -> dict[str, Any]:
    last = times.last
    return {
        "last_commit": None if last is None else f"round {last.round}, {_since(times, last.time)}",
        "members_missing": [
            f"{one.name} ({_rounds(one.rounds)}, since {_since(times, one.since)})"
            for one in times.missing
        ],
        "failed_attempts": len(times.failed),
        "overdue": listed(sorted({one.what for one in times.overdue})) or None,
    }


def _client_words(times: ClientTimes) -> dict[str, Any]:
    oldest, imports = times.oldest, times.imports
    request = None
    if oldest is not None:
        due = UNKNOWN if oldest[2] is None else stamp(oldest[2])
        request = f"{oldest[0]}, made {_since(times, oldest[1])}, due {due}"
    waiting: str | None = UNKNOWN
    if imports is not None:
        waiting = None
        if imports[1]:
            waiting = f"{number_of(imports[1], 'record')}, since {_since(times, imports[0])}"
    return _words(times) | {"oldest_request": request, "imports_waiting": waiting}


def _rounds(number: int | None) -> str:
    return "never counted" if number is None else f"not in {number_of(number, 'round')}"


def _since(times: Times, moment: datetime | None) -> str:
    if moment is None:
        return UNKNOWN
    return f"{stamp(moment)} ({time_since(moment, times.now)})"


def _is_in(path: Path, folder: Path) -> bool:
    """Whether a file lies in a party's directory, where all files have to be private."""
    return path.resolve().is_relative_to(folder.resolve())
