"""Finished cells outlive the run that made them, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedforget.bench.cells import Cell, CellStore, code_version, write_whole

SCRIPT = """
import sys, time
from fedforget.bench.cells import Cell, CellStore
store = CellStore(sys.argv[1])
for number in range(100):
    run = lambda: time.sleep(0.05) or {"n": 1}
    cell = Cell("slow", "none", number, {}, ("bench/cells.py",), run)
    store.find(cell) or store.compute(cell)
"""


def cell(trial: int = 0, x: int = 3) -> Cell:
    return Cell("squares", "none", trial, {"x": x}, ("bench/cells.py",), lambda: {"y": x * x})


def never() -> dict[str, int]:
    raise AssertionError("a finished cell was computed again")


def test_a_finished_cell_is_not_computed_again(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    first = store.compute(cell())
    again = store.find(replace(cell(), run=never))
    assert again == first
    assert first.value == {"y": 9}
    assert first.seconds >= 0.0


def test_what_a_cell_depends_on_is_part_of_its_name(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    store.compute(cell())
    assert store.find(cell(trial=1)) is None
    assert store.find(cell(x=4)) is None
    assert store.find(replace(cell(), experiment="cubes")) is None
    assert store.find(replace(cell(), modules=("bench/cells.py", "bench/codes.py"))) is None


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    store.compute(cell())
    path = tmp_path / cell().file_name
    for text in ("", "{", "{}", "[1]", '"text"', json.dumps({"value": 1})):
        path.write_text(text)
        assert store.find(cell()) is None
    assert store.compute(cell()).value == {"y": 9}


def test_a_cell_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = CellStore(tmp_path)
    with pytest.raises(AssertionError):
        store.compute(replace(cell(), run=never))
    with pytest.raises(ValueError, match="JSON"):
        store.compute(replace(cell(), run=lambda: {"y": float("nan")}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_write_that_fails_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.txt"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)])
    deadline = time.monotonic() + 30.0
    while len(list(tmp_path.rglob("*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = list(tmp_path.rglob("*.json"))
    assert 3 <= len(done) < 100
    store = CellStore(tmp_path)
    for number in range(len(done)):
        held = store.find(Cell("slow", "none", number, {}, ("bench/cells.py",), never))
        assert held is not None
        assert held.value == {"n": 1}


def test_comments_do_not_change_the_version_of_the_code(tmp_path: Path) -> None:
    """But code does.  (A path outside the package stands for a module.)"""
    module = tmp_path / "module.py"
    versions = []
    for text in (
        'def f():\n    """Says one thing."""\n    return 1\n',
        'def f():\n    """Says another."""\n    return 1  # with a comment\n',
        "def f():\n    return 2\n",
    ):
        module.write_text(text)
        code_version.cache_clear()
        versions.append(code_version((str(module),)))
    assert versions[0] == versions[1] != versions[2]
