"""One HTML page that needs nothing else: tables, figures, machine, versions, commands, seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedforget.bench.catalogue import EXPERIMENTS
from fedforget.bench.cells import write_whole
from fedforget.bench.checks import Check, all_checks
from fedforget.bench.figures import Figure, all_figures
from fedforget.bench.numbers import ResultTable, duration, title
from fedforget.bench.result_tables import all_tables
from fedforget.bench.runner import Results
from fedforget.pages.templates import render

_SECTIONS = (
    (
        "The paper's tables and figures",
        ("table1", "speed-up", "table2", "sizes"),
        ("fig3",),
        ("step", "removal-times", "loss-drift"),
    ),
    (
        "The appendix, batches and whole clients",
        ("variants",),
        ("appendix", "batch"),
        ("batch", "clients"),
    ),
    (
        "The paper's theorems",
        ("guarantees", "growth", "remark", "scaling", "reseeding"),
        ("theorem4-1", "scaling", "reseeding"),
        (),
    ),
    (
        "Beyond the paper",
        ("fragmented", "local-clusters"),
        ("trade-off", "local-clusters", "codes"),
        ("q-k-means", "code-lengths", "code-times", "secure", "exactness", "laws"),
    ),
)
"""Title, tables before the figures, figures, tables after them."""


def write_results(
    results: Results,
    folder: Path,
    *,
    command: str,
    machine: dict[str, str],
    notes: dict[str, str],
) -> Path:
    """Write the page, the figures and the numbers; returns the page.

    ``notes`` say where each dataset comes from.
    """
    tables, figures = all_tables(results), all_figures(results)
    checks = all_checks(results)
    for table in tables:
        write_whole(folder / "tables" / f"{table.name}.csv", table.csv())
    for figure in figures:
        write_whole(folder / "figures" / f"{figure.name}.svg", figure.svg)
        write_whole(folder / "figures" / f"{figure.name}.png", figure.png)
    write_whole(folder / "results.json", _as_json(results, checks, tables, command, machine, notes))
    path = folder / "index.html"
    write_whole(path, page(results, tables, figures, checks, command, machine, notes))
    return path


def _as_json(
    results: Results,
    checks: list[Check],
    tables: list[ResultTable],
    command: str,
    machine: dict[str, str],
    notes: dict[str, str],
) -> str:
    """Everything except the centres of the references, which are large."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for experiment, held in results.cells.items():
        cells[experiment] = [
            one.__dict__ | {"value": {k: v for k, v in one.value.items() if k != "centres"}}
            for one in held
        ]
    content = {
        "command": command,
        "plan": results.plan.__dict__,
        "machine": machine,
        "datasets": notes,
        "checks": [one.__dict__ for one in checks],
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "columns": table.columns,
                "rows": {
                    row: [[e.text, e.printed] for e in entries] for row, entries in table.rows
                },
            }
            for table in tables
        ],
        "cells": cells,
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


# -- the page --------------------------------------------------------------------------------------


def page(
    results: Results,
    tables: list[ResultTable],
    figures: list[Figure],
    checks: list[Check],
    command: str,
    machine: dict[str, str],
    notes: dict[str, str],
) -> str:
    """One page that needs nothing else."""
    by_name = {table.name: table for table in tables}
    drawn = {figure.name: figure for figure in figures}
    sections = [
        {
            "title": title,
            "before": [by_name[name] for name in before if name in by_name],
            "figures": [drawn[name] for name in pictures if name in drawn],
            "after": [by_name[name] for name in after if name in by_name],
        }
        for title, before, pictures, after in _SECTIONS
    ]
    return render(
        "results.html",
        title="fedforget bench paper",
        command=command,
        checks=checks,
        sections=[one for one in sections if one["before"] or one["figures"] or one["after"]],
        picture_address=_address,
        notes=[(title(name), note) for name, note in notes.items()],
        machine=machine,
        seeds=_seeds(results),
    )


def _address(svg: str) -> str:
    """A drawing as an address, so that the page needs no other file."""
    # A line's end is a space to a reader of SVG, and needs no escape in an address.
    return "data:image/svg+xml," + quote(svg.replace("\n", " "), safe=" /:;=,.()!*+@-_~")


def _seeds(results: Results) -> list[tuple[str, str]]:
    """Which trials were run and how long they took."""
    rows = []
    for experiment in ("reference", *EXPERIMENTS):
        cells = results.of(experiment)
        if not cells:
            continue
        trials = sorted({one.trial for one in cells})
        seeds = f"{trials[0]}–{trials[-1]}" if len(trials) > 1 else f"{trials[0]}"
        seconds = sum(one.seconds for one in cells)
        rows.append((experiment, f"{len(cells)} cells, seeds {seeds}, {duration(seconds)}"))
    total = sum(one.seconds for held in results.cells.values() for one in held)
    rows.append(("in all", duration(total)))
    return rows
