"""Figures go from a run of the benchmarks to the page, and nothing else does."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pages import ROOT, text_of

sys.path.insert(0, str(ROOT / "benchmarks"))

import page
import run_all

MACHINE = {
    "cores": "2", "processor": "Intel Xeon", "architecture": "x86_64", "system": "Linux",
    "Python": "3.11.7", "NumPy": "2.4.6", "numba": "0.63.1", "scikit-learn": "1.8.0",
}  # fmt: skip
LLOYD = {
    "celltype": {"fit_ratio": 0.874, "forget_speed_up": 51.6},
    "gaussian": {"fit_ratio": 0.39, "forget_speed_up": 7.04},
    "blobs 1,000,000": {"fit_ratio": 0.744, "forget_speed_up": 1234.4, "iterations": 13.0},
}
REPLAY = {name: {"removal_speed_up": 50.0 + 10 * n} for n, name in enumerate(page.SETS)}


def keep(folder: Path, name: str, rows: dict[str, Any], **other: Any) -> None:
    """A file as a benchmark writes it."""
    found = {"date": "2026-11-16", "commit": "abc123456", "machine": MACHINE, "quick": False}
    (folder / f"{name}.json").write_text(json.dumps(found | {"figures": rows} | other))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run in which two benchmarks came to their end."""
    folder = tmp_path / "bench"
    folder.mkdir()
    keep(folder, "lloyd", LLOYD)
    keep(folder, "replay", REPLAY)
    return folder


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The page, where it can be written."""
    return Path(shutil.copy(ROOT / "docs" / "performance.md", tmp_path))


def command(*options: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(ROOT / "benchmarks" / "page.py"), *map(str, options)]
    return subprocess.run(program, capture_output=True, text=True, check=False)


def test_figures_come_onto_the_page_and_the_words_stay(run: Path, copied: Path) -> None:
    before = copied.read_text()
    done = command("--run", run, "--page", copied)
    assert done.returncode == 0, done.stderr
    after = copied.read_text()
    assert "| Celltype | 0.87 | | 52× | | | |" in after
    assert "| blobs, 10⁶ × 20 | 0.74 | | 1,234× | | | |" in after
    assert "All figures are of one run: 16 November 2026; commit `abc123456`; one" in after
    assert page.BLOCK.sub("", after) == page.BLOCK.sub("", before)
    assert command("--run", run, "--page", copied).returncode == 0
    assert copied.read_text() == after


def test_what_no_file_holds_is_left_out_and_said(run: Path, copied: Path) -> None:
    done = command("--run", run, "--page", copied)
    blocks = {match[2]: match[3].strip() for match in page.BLOCK.finditer(copied.read_text())}
    assert blocks["secure-sum"] == blocks["memory-of-a-fit"] == page.NOTHING
    assert "Covtype" not in blocks["one-owner"]
    assert re.search(r"\| Celltype \| 50× \| \|", blocks["removals"])
    assert "no file holds lloyd: covtype: fit_ratio" in done.stderr
    assert "no file holds securesum: 100 clients: full_seconds" in done.stderr


def test_charts_show_the_new_figures(run: Path, copied: Path) -> None:
    command("--run", run, "--page", copied)
    chart = (copied.parent / "images" / "forget-speed.svg").read_text()
    assert "1234×" in chart
    assert "Covtype" not in chart
    assert "body postures" in (copied.parent / "images" / "removal-speed.svg").read_text()


def test_a_quick_run_does_not_come_onto_the_real_page(run: Path) -> None:
    before = text_of("docs/performance.md")
    keep(run, "memory", {}, quick=True)
    done = command("--run", run)
    assert done.returncode == 1
    assert "quick" in done.stderr
    assert text_of("docs/performance.md") == before


def test_files_of_two_commits_are_told_apart(run: Path) -> None:
    keep(run, "memory", {}, commit="fff000000")
    words = page.the_run(page.Run(run)).replace("\n", " ")
    assert "Figures are of several runs" in words
    assert "`abc123456` (lloyd, replay); `fff000000` (memory)" in words


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    assert "run make bench first" in command("--run", tmp_path).stderr


def test_check_names_what_differs_and_writes_nothing(run: Path, copied: Path) -> None:
    before = copied.read_text()
    done = command("--run", run, "--page", copied, "--check")
    assert done.returncode == 1
    assert copied.read_text() == before
    assert "performance.md: one-owner is not of this run" in done.stdout
    line = text_of("README.md").split("forget one record of a million")[0].count("\n") + 1
    assert re.search(rf"README\.md:{line}: says \S+, the run has 1,234\n", done.stdout)
    assert re.search(r"docs/replay\.md:\d+: says \S+, the run has 7\.0\n", done.stdout)


def test_claims_that_agree_are_not_named(run: Path) -> None:
    found = page.Run(run)
    claim = page.Claim(
        "x.md",
        rf"is {page.NUMBER} times",
        page._of("lloyd", "gaussian", "forget_speed_up", page.factor),
    )
    assert page.disagreements(claim, "It is 7.0\ntimes", found) == []
    assert page.disagreements(claim, "It\nis 7.1 times", found) == [
        "x.md:2: says 7.1, the run has 7.0"
    ]
    [gone] = page.disagreements(claim, "It is fast.", found)
    assert gone.startswith("x.md: nothing there fits")


@pytest.mark.parametrize("claim", page.CLAIMS, ids=lambda claim: claim.pattern[:20])
def test_figures_that_pages_repeat_are_found_there(claim: page.Claim) -> None:
    assert re.search(claim.pattern.replace(" ", r"\s+"), text_of(claim.page), re.S)


def test_the_page_has_a_place_for_every_block() -> None:
    places = [match[2] for match in page.BLOCK.finditer(text_of("docs/performance.md"))]
    assert sorted(places) == sorted(page.BLOCKS)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0000752, "0.075 ms"), (0.000594, "0.59 ms"), (0.00498, "4.98 ms"), (0.1664, "166 ms"),
     (1.2904, "1.29 s"), (0.9999, "1.00 s")],
)  # fmt: skip
def test_seconds_have_the_unit_that_fits(value: float, shown: str) -> None:
    assert page.seconds(value) == shown


def test_digits_without_an_exponent() -> None:
    assert [page.digits(value) for value in (0.0331, 0.3, 9.96, 131_800)] == [
        "0.033", "0.30", "10", "130,000",
    ]  # fmt: skip


def test_records_are_dealt_as_in_the_run_of_the_papers_tables() -> None:
    """In file order, not shuffled: a set whose records are generated shows it without a file."""
    program = (
        "import common; from fedforget.bench import datasets\n"
        "dealt = common.load('gaussian').clients\n"
        "for split in ('file', 'shuffled'):\n"
        "    print((dealt == datasets.load('gaussian', split=split).clients).all())"
    )
    folder = ROOT / "benchmarks"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_a_number_and_its_unit_stay_together_in_a_table() -> None:
    shown = page.table(["a", "b"], [["two words", "1.5 ms"], ["x", "7.2 s, 0.95 of an import"]])
    assert shown.splitlines()[2:] == [
        "| two words | 1.5\u00a0ms |",
        "| x | 7.2 s, 0.95 of an import |",
    ]


# -- the runs ----------------------------------------------------------------------------------


def test_every_benchmark_is_run() -> None:
    # The benchmark of live pages wants a directory to open.
    helpers = {"common", "earlier", "figures", "importing", "live_page", "page", "run_all"}
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in helpers}
    assert {words.split()[0] for words in run_all.RUNS.values()} == scripts


def test_a_benchmark_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures that it left before are gone, and the exit code tells."""
    scripts = {
        "bad": "raise SystemExit(3)",
        "good": "import figures\n"
        "given = figures.parser('').parse_args()\n"
        "with figures.kept(given):\n    figures.record('a row', one=1, two=None)\n"
        "    figures.record('a row', three=3)\n    print('a table')\n",
    }
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text)
    shutil.copy(ROOT / "benchmarks" / "figures.py", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "bad.json").write_text("old")
    monkeypatch.setattr(run_all, "HERE", tmp_path)
    monkeypatch.setattr(run_all, "RUNS", {name: f"{name}.py" for name in scripts})
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--out", str(out), "--quick"])
    assert run_all.main() == 1
    assert "1 of 2 failed: bad" in capsys.readouterr().out
    assert not (out / "bad.json").exists()
    assert (out / "good.log").read_text() == "a table\n"
    found = json.loads((out / "good.json").read_text())
    assert found["figures"] == {"a row": {"one": 1.0, "three": 3.0}}
    assert found["quick"] is True
    assert found["machine"].keys() == MACHINE.keys()
    assert found["machine"]["Python"] == platform.python_version()
