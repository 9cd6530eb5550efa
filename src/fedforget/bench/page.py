"""One HTML page that needs nothing else: tables, figures, machine, versions, commands, seeds."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedforget.bench.catalogue import EXPERIMENTS
from fedforget.bench.cells import write_whole
from fedforget.bench.checks import Check, all_checks
from fedforget.bench.figures import Figure, all_figures
from fedforget.bench.runner import Results
from fedforget.bench.tables import Table, all_tables, duration, label

STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem clamp(1rem, 4vw, 3rem); color: #1c2126;
  font: 15px/1.5 system-ui, sans-serif; background: #fff; }
h1 { font-size: 1.8rem; margin: 0 0 .4rem; } h2 { margin: 2.4rem 0 .4rem; font-size: 1.3rem; }
h3 { margin: 1.6rem 0 .3rem; font-size: 1.02rem; }
p, li { max-width: 54rem; } p { margin: 0 0 .7rem; }
.note, figcaption { color: #5a646e; font-size: .88rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .9rem .28rem 0; border-bottom: 1px solid #dce1e6; text-align: left;
  vertical-align: top; white-space: nowrap; }
thead th { color: #5a646e; font-weight: 600; } tbody th { font-weight: 600; }
.printed { display: block; color: #5a646e; font-size: .92em; }
.printed::before { content: "paper "; }
.yes { color: #00745a; font-weight: 600; } .no { color: #b3261e; font-weight: 600; }
figure { margin: 1rem 0 0; } figure img { width: 100%; height: auto; }
figcaption { margin-top: .3rem; max-width: 54rem; }
code { font: .9em ui-monospace, monospace; background: #f4f6f8; padding: .1em .3em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.4rem; }
dt { color: #5a646e; } dd { margin: 0; }
"""

_SECTIONS = (
    (
        "The paper's tables and figures",
        ("table1", "speed-up", "table2"),
        ("fig3",),
        ("step", "removal-times", "loss-drift"),
    ),
    (
        "The appendix, batches and whole clients",
        (),
        ("appendix", "batch"),
        ("batch", "clients"),
    ),
    (
        "Beyond the paper",
        ("local-clusters",),
        ("local-clusters", "theorem1", "reseeding", "codes"),
        ("reseeding", "q-k-means", "code-lengths", "code-times", "secure", "exactness", "laws"),
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
    page = folder / "index.html"
    write_whole(page, render(results, tables, figures, checks, command, machine, notes))
    return page


def _as_json(
    results: Results,
    checks: list[Check],
    tables: list[Table],
    command: str,
    machine: dict[str, str],
    notes: dict[str, str],
) -> str:
    """Everything but the centres of the references, which are large."""
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


# -- markup ----------------------------------------------------------------------------------------


def render(
    results: Results,
    tables: list[Table],
    figures: list[Figure],
    checks: list[Check],
    command: str,
    machine: dict[str, str],
    notes: dict[str, str],
) -> str:
    """The page."""
    by_name = {table.name: table for table in tables}
    drawn = {figure.name: figure for figure in figures}
    introduction = (
        "<p>The tables and figures of Pan, Sima, Prakash, Rana and Milenkovic (ICLR 2023), and some"
        " more, from one command; the numbers that the paper prints stand below ours in grey."
        " Some datasets are stand-ins (see the list): there the printed numbers are for"
        " orientation only.</p>"
    )
    body = [
        _tag("h1", "Machine Unlearning of Federated Clusters, measured again"),
        introduction,
        f"<p><code>{html.escape(command)}</code></p>",
        _checks(checks),
    ]
    for title, before, pictures, after in _SECTIONS:
        parts = [_table(by_name[name]) for name in before if name in by_name]
        parts += [_figure(drawn[name]) for name in pictures if name in drawn]
        parts += [_table(by_name[name]) for name in after if name in by_name]
        if parts:
            body += [_tag("h2", title), *parts]
    body += [_tag("h2", "Data"), _facts((label(k), v) for k, v in notes.items())]
    body += [_tag("h2", "Machine and versions"), _facts(machine.items()), _seeds(results)]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'; img-src data:\">"
        f"<title>fedforget bench paper</title><style>{STYLE}</style>"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>'
        + "\n".join(body)
        + "</body></html>\n"
    )


def _tag(name: str, text: str) -> str:
    return f"<{name}>{html.escape(text)}</{name}>"


def _checks(checks: list[Check]) -> str:
    if not checks:
        return ""
    rows = "".join(
        f'<tr><td class="{"yes" if one.holds else "no"}">{"yes" if one.holds else "no"}</td>'
        f"<td>{html.escape(one.claim)}</td><td>{html.escape(one.evidence)}</td></tr>"
        for one in checks
    )
    held = sum(one.holds for one in checks)
    return (
        f"<h2>What was to be shown: {held} of {len(checks)} hold</h2>"
        '<div class="scroll"><table><thead><tr><th>holds</th><th>claim</th><th>measured</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _table(table: Table) -> str:
    head = "".join(_tag("th", column) for column in ("", *table.columns))
    rows = ""
    for name, entries in table.rows:
        cells = "".join(
            f"<td>{html.escape(entry.text)}"
            + (
                f'<span class="printed">{html.escape(entry.printed)}</span>'
                if entry.printed
                else ""
            )
            + "</td>"
            for entry in entries
        )
        rows += f"<tr>{_tag('th', name)}{cells}</tr>"
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes.splitlines())
    return (
        f'{_tag("h3", table.title)}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{notes}"
    )


def _figure(figure: Figure) -> str:
    data = quote(figure.svg, safe=" /:;=,.()!*+@'-_~\n")
    return (
        f"{_tag('h3', figure.title)}<figure>"
        f'<img alt="{html.escape(figure.title)}" src="data:image/svg+xml,{data}">'
        f"{_tag('figcaption', figure.caption)}</figure>"
    )


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"{_tag('dt', name)}{_tag('dd', value)}" for name, value in pairs)
    return f"<dl>{rows}</dl>"


def _seeds(results: Results) -> str:
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
    return _tag("h2", "Seeds and times") + _facts(rows)
