"""What the cells of the examples print: recorded here, shown on the site, compared by the tests.

``python tools/example_outputs.py`` runs the examples and writes ``examples/output/NAME.txt`` anew.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from percent_scripts import CELL

EXAMPLES = Path(__file__).parents[1] / "examples"
MARK = "%% cell {}"
MARKED = re.compile(r"^%% cell \d+\n", re.M)

CHANGING = [
    (re.compile(r"\b[0-9a-f]{8,}\b"), "HEX"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ][\d:.]+(?:Z|\+[\d:]+)?)?"), "DATE"),
    (re.compile(r"\b[\d.]+ (?:µs|ms|s)\b"), "TIME"),
    (re.compile(r"\b\d+ bytes\b"), "BYTES"),
    (
        re.compile(
            r"\d+ labels? computed again, \d+ distances? computed \(.*?\)"
            r"(?:; \d+ restarts? run in full)?"
        ),
        "WORK",
    ),
    (re.compile(r"\s+"), " "),
]
"""What differs from run to run: digests under fresh keys, dates, times, messages of the protocol,
and so widths of columns; and how much work an exact result took, which a faster version changes."""


class ExampleError(Exception):
    """An example ended with an error."""


def run(script: Path) -> list[str]:
    """Run an example as it is, with warnings as errors; returns what each of its cells prints.

    Each comment that begins a cell becomes a line that prints a mark, so lines keep their numbers.
    """
    numbers = iter(range(10**6))
    text = CELL.sub(
        lambda _: f'print("{MARK.format(next(numbers))}", flush=True)',
        script.read_text(encoding="utf-8"),
    )
    with tempfile.TemporaryDirectory() as name:
        marked = Path(name) / script.name
        marked.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "error", str(marked)],
            cwd=name,
            env={**os.environ, "TMPDIR": name},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if done.returncode != 0:
        raise ExampleError(done.stderr)
    _, *printed = MARKED.split(done.stdout)
    return printed


def recorded(script: Path) -> list[str]:
    """What is kept of an example: one output per cell, empty where a cell prints nothing."""
    path = EXAMPLES / "output" / f"{script.stem}.txt"
    _, *printed = MARKED.split(path.read_text(encoding="utf-8"))
    return printed


def record(script: Path) -> None:
    printed = run(script)
    parts = [f"{MARK.format(number)}\n{text}" for number, text in enumerate(printed)]
    path = EXAMPLES / "output" / f"{script.stem}.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(parts), encoding="utf-8")


def steady(printed: str) -> str:
    """An output without what differs from run to run."""
    for pattern, word in CHANGING:
        printed = pattern.sub(word, printed)
    return printed.strip()


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for example in sorted(EXAMPLES.glob("*.py")):
        if not wanted or example.stem in wanted:
            record(example)
            print(example.name, flush=True)
