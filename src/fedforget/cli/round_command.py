"""``fedforget round``."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fedforget.cli.console import (
    console,
    listed,
    messages,
    number_of,
    plain_errors,
    progress_bar,
    safe,
    show,
)
from fedforget.errors import FedforgetError
from fedforget.parties.attempts import note_failure
from fedforget.parties.folders import FolderInUseError
from fedforget.parties.server_party import open_server
from fedforget.protocol.errors import Finding
from fedforget.runtime.directories import WAITING, run
from fedforget.runtime.directory_rounds import DirectoryRounds, aborted_by
from fedforget.runtime.timetable import duration

_STAGES = 6


def run_round(
    server: Path, clients: list[Path], full: bool, as_json: bool, wait: str = "0s"
) -> None:
    """Run one round over directories, and say what came of it."""
    with plain_errors(), progress_bar("Opening", _STAGES, quiet=as_json) as bar:
        task = bar.task_ids[0]
        seconds = duration(wait).total_seconds()
        try:
            result = run(
                server,
                clients,
                "full" if full else None,
                lambda stage: bar.update(
                    task, description=stage.capitalize(), advance=stage != WAITING
                ),
                wait=seconds,
            )
        except FedforgetError as error:
            note_failure(server, error)
            _show_findings(messages, [str(one) for one in _findings_of(error)])
            raise
        result["waiting_to_leave"] = _waiting_to_leave(server)

    def in_words() -> None:
        names = safe(listed(result["participants"]))
        console.print(
            f"Round {result['round']} ({safe(result['kind'])}) committed: {names};"
            f" {number_of(result['changed_bins'], 'bin')},"
            f" {result['bytes_from_a_client'] / 1e3:.1f} kB from a client at the most,"
            f" {result['seconds']:.2f} s.",
            soft_wrap=True,
        )
        if result["left"]:
            console.print(f"Left: {safe(listed(result['left']))}", soft_wrap=True)
        for text in result["waiting_to_leave"]:
            console.print(f"[yellow]Waits to leave:[/] {safe(text)}", soft_wrap=True)
        for name, reason in result["refused"].items():
            console.print(f"[yellow]Refused:[/] {safe(name)}: {safe(reason)}", soft_wrap=True)
        _show_findings(console, result["findings"])
        console.print(f"Model {safe(result['model'])}")

    show(result, as_json, in_words)


def scheduled_rounds(server: Path, clients: list[Path], full: bool, wait: str) -> DirectoryRounds:
    """The rounds of a schedule; the server's directory must be there."""
    with plain_errors():
        rounds = DirectoryRounds(
            server, clients, "full" if full else None, duration(wait).total_seconds()
        )
        # A wrong path is told at once, and not every hour.
        rounds.last_commit()
        return rounds


def _waiting_to_leave(server: Path) -> list[str]:
    """Who wished to leave and could not, if no other process has taken the directory meanwhile.

    The round is committed by now, so the command must not fail; `server status` tells the same.
    """
    try:
        with open_server(server) as party:
            return party.waiting_to_leave()
    except FolderInUseError:
        return []


def _findings_of(error: FedforgetError) -> tuple[Finding, ...]:
    """Who made a round fail, as far as it can be told."""
    aborted = aborted_by(error)
    return () if aborted is None else aborted.findings


def _show_findings(where: Console, findings: list[str]) -> None:
    for text in findings:
        where.print(f"[yellow]Found:[/] {safe(text)}", soft_wrap=True)
