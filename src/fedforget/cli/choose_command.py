"""``server choose``: numbers of clusters side by side, as a table and as a picture."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from fedforget.cli.console import console, messages, plain_errors, safe, show
from fedforget.cli.curves import picture_of
from fedforget.cli.words import fewer_in_words
from fedforget.clustering.choosing import Choices, in_words
from fedforget.errors import FedforgetError
from fedforget.modelling import path_of
from fedforget.parties.folders import writing_private
from fedforget.parties.server_party import ServerParty, open_server

MOST_NUMBERS = 1000


def numbers_of(text: str) -> list[int]:
    """The numbers that ``2:12`` or ``3,5,8`` stand for.

    >>> numbers_of("2:4,8")
    [2, 3, 4, 8]
    """
    found: set[int] = set()
    try:
        for part in text.split(","):
            first, _, last = part.partition(":")
            low, high = int(first), int(last or first)
            if not 1 <= low <= high or high - low >= MOST_NUMBERS:
                raise ValueError
            found |= set(range(low, high + 1))
    except ValueError:
        raise FedforgetError(
            f"--clusters {text!r} must be LOW:HIGH, such as 2:12, or a list such as 3,5,8; from"
            f" 1 up, and at most {MOST_NUMBERS} of them"
        ) from None
    return sorted(found)


def choices_at(party: ServerParty, numbers: list[int]) -> Choices:
    """The table of a server's aggregate."""
    party.model()  # there must be one
    return path_of(party.model_config, party.aggregate(), numbers).choices


LIVE_NUMBERS = range(2, 13)
"""The numbers of clusters on a live page."""


def losses_of(party: ServerParty) -> list[tuple[int, float]]:
    """The loss for each number of clusters, for a server's live page."""
    rows = choices_at(party, list(LIVE_NUMBERS)).rows
    return [(row.n_clusters, row.loss) for row in rows if row.found == row.n_clusters]


def plain_choices(choices: Choices) -> dict[str, Any]:
    """For scripts and pages."""
    rows = [asdict(row) | {"complies": row.complies} for row in choices.rows]
    number, reason = choices.suggested
    return {
        "choices": rows,
        "min_cell": choices.min_cell,
        "suggested": number,
        "reason": reason,
    }


def compare(folder: Path, clusters: str, out: Path | None, as_json: bool) -> None:
    """Show the table, and write the picture where asked."""
    with plain_errors():
        numbers = numbers_of(clusters)
        if out is not None and out.suffix.lower() != ".svg":
            raise FedforgetError(f"{out}: the picture is an .svg file, which every browser shows")
        with open_server(folder) as party:
            choices, own = choices_at(party, numbers), party.model_config.n_clusters
        if out is not None:
            with writing_private(out) as file:
                file.write(picture_of(choices, own).encode())

    def words() -> None:
        heading, *lines = choices.columns()
        table = Table(box=None)
        for column in heading:
            table.add_column(column, justify="right")
        for row, cells in zip(choices.rows, lines, strict=True):
            table.add_row(*map(safe, cells), style="bold" if row.n_clusters == own else None)
        console.print(table)
        console.print(safe(in_words(choices.suggested)), soft_wrap=True)
        console.print(f"The federation has {own}.", soft_wrap=True)
        if out is not None:
            console.print(f"Written to [bold]{safe(out)}[/bold]", soft_wrap=True)

    file_name = None if out is None else str(out)
    fewer = [row.n_clusters for row in choices.rows if row.found < row.n_clusters]
    more = {"n_clusters": own, "fewer": fewer, "file": file_name}
    show(plain_choices(choices) | more, as_json, words)
    if fewer:
        most = max(row.found for row in choices.rows)
        messages.print(f"[yellow]{fewer_in_words(fewer, most)}[/]", soft_wrap=True)
