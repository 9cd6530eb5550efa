"""``fedforget client sync``: a client's records follow a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fedforget.cli.console import console, number_of, plain_errors, progress_bar, safe, show
from fedforget.cli.source_options import words_of
from fedforget.parties.client_party import open_client
from fedforget.parties.sources.reader import told_otherwise
from fedforget.parties.sync import Synced, SyncRules

if TYPE_CHECKING:
    from pathlib import Path

    from fedforget.cli.source_options import GivenSource
    from fedforget.parties.sources import Source

_WORDS = {"added": "learnt", "changed": "replaced", "removed": "forgotten", "kept_out": "kept out"}


def run_sync(folder: Path, given: GivenSource, rules: SyncRules, as_json: bool) -> None:
    """Make a client's records equal to a source, and say what that did."""
    nothing = told_otherwise("nothing was changed")
    with plain_errors(), open_client(folder) as party, nothing:
        source = given.open(party.joined())
        with progress_bar("Comparing", None, quiet=as_json) as bar:
            task = bar.task_ids[0]
            done = party.sync(
                source,
                rules,
                progress=lambda n: bar.update(task, advance=n, total=source.n_rows),
            )
    read = {"dropped": source.dropped, "filled": sum(source.filled.values())}
    show(_plain(done, rules) | read, as_json, lambda: _in_words(done, rules, source))
    if done.refusal is not None:
        raise typer.Exit(1)


def _plain(done: Synced, rules: SyncRules) -> dict[str, Any]:
    counts: dict[str, Any] = {name: kind.count for name, kind in done.kinds.items()}
    counts["records"] = done.records
    if rules.dry_run:
        examples = {name: kind.examples for name, kind in done.kinds.items()}
        return counts | {"synced": False, "examples": examples, "refusal": done.refusal}
    return counts | {
        "synced": True,
        "request": done.request,
        "salt": done.salt,
        "reseeded": done.reseeded,
    }


def _in_words(done: Synced, rules: SyncRules, source: Source) -> None:
    for words in words_of(source):
        console.print(safe(words), soft_wrap=True)
    if rules.dry_run:
        _show_plan(done)
        return
    changes = [f"{done.kinds[name].count} {_WORDS[name]}" for name in ("added", "changed")]
    changes.append(f"{done.removed.count} {_WORDS['removed']}")
    console.print(f"{', '.join(changes)}; {number_of(done.records, 'record')} in all.")
    _show_incomplete(done, "")
    if done.kept_out.count:
        console.print(
            f"{number_of(done.kept_out.count, 'id')} kept out: on the suppression list, because"
            " forgotten before. --again lets them in.",
            soft_wrap=True,
        )
    if done.request is not None and done.salt is not None:
        console.print(f"Request {safe(done.request)}, salt [bold]{safe(done.salt)}[/bold]")
        console.print(
            "The salt is kept here until the receipt is written out; client requests shows it.",
            soft_wrap=True,
        )


def _show_incomplete(done: Synced, would: str) -> None:
    """Who goes though the source has a row of theirs."""
    kind = done.incomplete
    if kind.count:
        more = ", …" if kind.count > len(kind.examples) else ""
        console.print(
            f"{kind.count} of the forgotten {would or 'are '}forgotten because a value is missing"
            f" in the source: {', '.join(map(safe, kind.examples))}{more}",
            soft_wrap=True,
        )


def _show_plan(done: Synced) -> None:
    """What a sync would do, with some ids of each kind."""
    for name, kind in done.kinds.items():
        if name not in _WORDS:
            continue
        more = ", …" if kind.count > len(kind.examples) else ""
        some = f": {', '.join(map(safe, kind.examples))}{more}" if kind.examples else ""
        console.print(f"{kind.count} would be {_WORDS[name]}{some}", soft_wrap=True)
    _show_incomplete(done, "would be ")
    console.print(f"{number_of(done.records, 'record')} in all; nothing was changed.")
    if done.refusal is not None:
        console.print(f"[bold red]It would be refused:[/] {safe(done.refusal)}.", soft_wrap=True)
