"""``client preview`` and ``client approve``: what a round would take, looked at before it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from fedforget.cli.console import console, number_of, plain_errors, safe, show
from fedforget.cli.words import check_ending
from fedforget.errors import FedforgetError
from fedforget.incoming import read_json
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.folders import write_private
from fedforget.parties.preview import Preview
from fedforget.text import json_text

COLUMNS = 6
"""So many features are shown on a terminal; a file has all of them."""


def show_preview(folder: Path, out: Path | None, as_json: bool) -> None:
    """Print a preview; with ``out``, write it for its owner alone, too."""
    with plain_errors():
        if out is not None:
            check_ending(out, ".json")
        with open_client(folder) as party:
            found, result = _looked_at(party)
            name, policy = party.name, party.policy
        if out is not None:
            if out.exists():
                raise FedforgetError(f"{out} exists already; choose another file")
            write_private(out, json_text(result, indent=2).encode())

    def in_words() -> None:
        console.print(_table(name, result["cells"]))
        if found.smallest_cell is None:
            console.print("Nothing is reported.")
        else:
            smallest = number_of(found.smallest_cell, "record")
            console.print(f"The smallest reported cluster has {smallest}.")
        if found.dissolved:
            clusters = number_of(found.dissolved, "cluster")
            console.print(f"{clusters} too small to be reported.")
        for problem in found.verdict.problems:
            console.print(f"[bold red]policy.toml:[/] {safe(problem)}", soft_wrap=True)
        if policy.approval and not found.verdict.approved:
            console.print(
                "Not approved: rounds go on with what was counted last, and requests wait. To"
                " approve exactly this:",
                soft_wrap=True,
            )
            command = f"  fedforget client approve {safe(folder)} --digest {found.digest}"
            console.print(command, style="dim", soft_wrap=True)
        elif found.verdict.goes:
            console.print("[bold green]The policy allows it.[/]")
        if out is not None:
            console.print(f"Written to [bold]{safe(out)}[/bold]", soft_wrap=True)

    show(result, as_json, in_words)


def approve_report(folder: Path, digest: str | None, previewed: Path | None, as_json: bool) -> None:
    """Approve the report that somebody has looked at, by its digest or in a file."""
    with plain_errors():
        if (digest is None) == (previewed is None):
            raise FedforgetError("give --digest or --preview, one of the two")
        with open_client(folder) as party:
            if previewed is not None:
                digest = _digest_of(previewed, _looked_at(party)[1])
            party.approve(str(digest))
            asked = party.policy.approval

    def in_words() -> None:
        console.print("[bold green]Approved.[/]")
        if not asked:
            console.print(
                "No approval is asked for here: rounds take reports without one, unless policy.toml"
                " says approval = true.",
                soft_wrap=True,
            )

    show({"approved": digest, "needs_approval": asked}, as_json, in_words)


def _looked_at(party: ClientParty) -> tuple[Preview, dict[str, Any]]:
    found = party.preview()
    names = party.federation.feature_names if party.federation is not None else []
    return found, found.plain(party.config, names)


def _digest_of(path: Path, now: dict[str, Any]) -> str:
    """The digest of a file's report, if the file is about what a round would take now.

    The cells are compared, too: whoever approves has looked at them, and not at the digest.
    """
    given = read_json(path)
    for key in ("digest", "cells"):
        if not isinstance(given, dict) or given.get(key) != now[key]:
            raise FedforgetError(
                f"{path} is not a preview of what the next round would take now ({key}): run client"
                " preview again, and look at what has changed"
            )
    return str(now["digest"])


def _table(name: str, cells: list[dict[str, Any]]) -> Table:
    shown = Table(title=f"What the next round takes from {safe(name)}")
    names = list(cells[0]["centre"]) if cells else []
    more = ["…"] if len(names) > COLUMNS else []
    for column in (*names[:COLUMNS], *more, "count", "change"):
        shown.add_column(safe(column), justify="right")
    for cell in cells:
        values = [f"{value:.4g}" for value in list(cell["centre"].values())[:COLUMNS]]
        shown.add_row(*values, *more, str(cell["count"]), f"{cell['change']:+d}")
    return shown
