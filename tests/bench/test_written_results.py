"""What the documents say about the full run is what its page says, to the last digit."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE, WORDS = ROOT / "docs" / "results" / "index.html", ROOT / "docs" / "results" / "README.md"
FIGURES = ROOT / "docs" / "performance.md"


class Tables(HTMLParser):
    """The tables of the page: title, then row, then column, then the measured text."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, dict[str, dict[str, str]]] = {}
        self._title = self._cell = self._row = ""
        self._columns: list[str] = []
        self._entries: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("h3", "th", "td"):
            self._inside, self._cell = tag, ""
        elif tag == "span":
            self._inside = "span"
        elif tag == "tr":
            self._entries = []

    def handle_data(self, data: str) -> None:
        if self._inside in ("h3", "th", "td"):
            self._cell += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "h3":
            self._title = self._cell.strip()
        elif tag in ("th", "td"):
            self._entries.append(self._cell.strip())
            self._inside = ""
        elif tag == "thead":
            self._columns = self._entries[1:]
            self.tables.setdefault(self._title, {})
        elif tag == "tr" and self._entries and self._columns and self._title:
            row, *entries = self._entries
            if len(entries) == len(self._columns):
                held = self.tables.setdefault(self._title, {})
                held[row] = dict(zip(self._columns, entries, strict=True))


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, dict[str, str]]]:
    parser = Tables()
    parser.feed(PAGE.read_text(encoding="utf-8"))
    return parser.tables


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the Markdown table below a heading, without markup."""
    text = WORDS.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[_plain(cell) for cell in line.strip("|").split("|")] for line in lines]


def _plain(cell: str) -> str:
    """Without a star, and without the escape before it, that marks a stand-in."""
    return cell.strip().removesuffix("\\*")


def column_of(tables: dict[str, dict[str, dict[str, str]]], title: str, dataset: str) -> str:
    """The head of a dataset's column, where stand-ins have a star."""
    head = next(iter(tables[title].values()))
    return next(column for column in head if column.removesuffix("*") == dataset)


TABLE_1 = "Table 1: loss over that of centralised K-means++"
TABLE_2 = "Table 2: MUFC with complete client training"


def test_the_comparison_with_the_paper(tables: dict[str, dict[str, dict[str, str]]]) -> None:
    methods = (
        (TABLE_1, "MUFC (induced)"),
        (TABLE_1, "K-FED (induced)"),
        (TABLE_1, "DC-KM (induced)"),
        (TABLE_2, "MUFC (induced)"),
    )
    rows = rows_of("What agrees with the paper, and what does not")
    here = [row for row in rows if row[1] == "here"]
    assert len(here) == 5
    for name, _, *cells in here:
        for cell, (table, method) in zip(cells, methods, strict=True):
            assert tables[table][method][column_of(tables, table, name)] == cell, (name, method)


def test_ours_against_the_others(tables: dict[str, dict[str, dict[str, str]]]) -> None:
    head, _, *rows = rows_of("Ours against the others, in the same run")
    assert len(rows) == 12
    for label, *cells in rows:
        title, row = TABLE_1, label
        if label.startswith("complete client training"):
            title, row = TABLE_2, "MUFC" + label.removeprefix("complete client training")
        for dataset, cell in zip(head[1:], cells, strict=True):
            held = tables[title][row][column_of(tables, title, dataset)]
            assert cell == held.split(" ±")[0], (label, dataset)


def test_speed_ups(tables: dict[str, dict[str, dict[str, str]]]) -> None:
    title = "Table 1, continued: complete retraining over one removal"
    head, _, *rows = rows_of("How fast a removal is")
    assert len(rows) == 5
    for label, *cells in rows:
        for dataset, cell in zip(head[1:], cells, strict=True):
            assert cell == tables[title][label][column_of(tables, title, dataset)], (label, dataset)


def test_the_time_of_the_run() -> None:
    page = PAGE.read_text(encoding="utf-8")
    seconds = float(re.search(r"<dt>in all</dt><dd>([\d.]+) s</dd>", page).group(1))  # type: ignore[union-attr]
    minutes = f"{seconds / 60:.0f} minutes"
    assert minutes in WORDS.read_text(encoding="utf-8")
    assert f"{minutes} of one core" in FIGURES.read_text(encoding="utf-8")
    assert seconds <= 7200.0
