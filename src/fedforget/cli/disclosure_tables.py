"""The tables of ``bench disclosure``; each fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rich import box
from rich.table import Table

from fedforget.bench.disclosure import BATCH, AttackOutcome
from fedforget.cli.console import safe

RULES = "rules: cell,\nrecords, counts"
"""Least cell, least records and step of counts, as settings are named."""


def tables_of(found: Sequence[AttackOutcome], what: str) -> Iterator[Table]:
    """What was guessed of single records and otherwise, and what had shown."""
    yield _singles(found, what)
    yield _others(found)
    yield _shown(found)


def _table(title: str, *columns: str) -> Table:
    """A table whose first column gives way where it is narrow; figures are never cut."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    first, *others = columns
    table.add_column(first, overflow="fold")
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _percent(share: float) -> str:
    return f"{share:.2%}"


def _singles(found: Sequence[AttackOutcome], what: str) -> Table:
    table = _table(
        f"{safe(what)}: one record removed, guessed by the server",
        RULES, "within\na step", "within\n1 %", "from a\nchange", "change\nadded\nup",
        "singled\nout", "at\nrandom", "fullest\nplace",
    )  # fmt: skip
    for one in found:
        server = one.server
        shares = (
            server.within_step, server.near, server.informed, server.added_up, server.singled_out,
            server.chance, one.fullest_place,
        )  # fmt: skip
        table.add_row(safe(one.setting.name), *map(_percent, shares))
    return table


def _others(found: Sequence[AttackOutcome]) -> Table:
    table = _table(
        f"Batches of {BATCH}, two published models, and what the rules cost",
        RULES, "batches:\nwithin\n1 %", "singled\nout", "at\nrandom", "models:\nwithin\n1 %",
        "from a\nchange", "smallest\ncell", "loss",
    )  # fmt: skip
    for one in found:
        batches, models = one.batches, one.outsider
        shares = batches.near, batches.singled_out, batches.chance, models.near, models.informed
        loss = f"{one.loss:.4f}" if isfinite(one.loss) else "—"
        name, smallest = safe(one.setting.name), str(one.smallest_cell or "—")
        table.add_row(name, *map(_percent, shares), smallest, loss)
    return table


def _shown(found: Sequence[AttackOutcome]) -> Table:
    table = _table(
        "What the server saw, and how much of it was guessed",
        RULES, "of all\nremovals", "within\n1 %", "singled\nout",
    )  # fmt: skip
    for one in found:
        table.add_row(f"[bold]{safe(one.setting.name)}[/bold]")
        for kind in one.shown:
            shares = kind.removals, kind.near, kind.singled_out
            table.add_row(f"  {kind.what}", *map(_percent, shares))
    return table
