"""``client audit`` and ``server audit``: whether what is stored follows from what is held."""

from __future__ import annotations

from pathlib import Path

import typer

from fedforget.cli.console import console, number_of, plain_errors, safe, show
from fedforget.parties.client_party import open_client
from fedforget.parties.server_party import open_server


def audit_client(folder: Path, as_json: bool) -> None:
    """Audit a client; the exit status is 1 if it does not pass."""
    with plain_errors(), open_client(folder) as party:
        found = party.audit()
    result = {
        "records": found.records,
        "stored": found.stored,
        "fresh": found.fresh,
        "problems": list(found.problems),
        "passed": found.passed,
    }

    def in_words() -> None:
        console.print(f"{number_of(found.records, 'record')}, fitted again.")
        console.print(f"  stored {found.stored}\n  fresh  {found.fresh}")
        if found.stored == found.fresh:
            console.print("[bold green]The stored state is that of a fresh fit.[/]")
        else:
            console.print("[bold red]The stored state is not that of the records.[/]")
        for problem in found.problems:
            console.print(f"[bold red]{safe(problem)}[/bold red]", soft_wrap=True)

    show(result, as_json, in_words)
    if not found.passed:
        raise typer.Exit(1)


def audit_server(folder: Path, as_json: bool) -> None:
    """Audit a server; the exit status is 1 if it does not pass."""
    with plain_errors(), open_server(folder) as party:
        result = party.audit()
    problems = result["problems"]

    def in_words() -> None:
        console.print(
            f"Log: {result['log_entries']} entries, {result['rounds']} rounds; every signature and"
            " link of the chain fits.",
            soft_wrap=True,
        )
        for problem in problems:
            console.print(f"[bold red]{safe(problem)}[/bold red]", soft_wrap=True)
        if not problems:
            console.print("[bold green]The model is the one that follows from the aggregate.[/]")

    show(result, as_json, in_words)
    if problems:
        raise typer.Exit(1)
