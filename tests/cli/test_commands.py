"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from fedforget.cli.main import app; app()", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "80", **environment},
        check=False,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    folder = tmp_path_factory.mktemp("demo")
    done = run("demo", "--out", "pictures", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


def test_the_demo_proves_every_step(demo: tuple[dict, Path]) -> None:
    story, _ = demo
    titles = [step["title"] for step in story["steps"]]
    assert len(titles) == 5
    for step in story["steps"]:
        assert step["exact"]
        assert step["digest"] == step["fresh_digest"]
        assert 1.0 <= step["nearest_loss_ratio"] <= step["loss_ratio"] < 1.2
    assert "redrawn" in story["steps"][2]["happened"]
    assert "all seeds stand" in story["steps"][1]["happened"]
    assert len({step["digest"] for step in story["steps"]}) == 5


def test_the_demo_draws_a_picture(demo: tuple[dict, Path]) -> None:
    story, folder = demo
    picture = Path(story["picture"])
    assert picture.is_relative_to(folder)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_demo_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    done = run("demo", "--out", "pictures", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("Picture:")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("= fresh fit") == 5
    assert "bit for bit" in table


def test_help_teaches_and_loads_nothing_heavy(tmp_path: Path) -> None:
    done = run("demo", "--help", cwd=tmp_path)
    assert "Example" in done.stdout
    probe = (
        "import sys, fedforget.cli.main; print([m in sys.modules for m in ('numba', 'sklearn')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[False, False]"


def test_a_crash_does_not_print_the_values_of_variables(tmp_path: Path) -> None:
    """Variables may hold records or secrets; a folder that cannot be made provokes a traceback."""
    (tmp_path / "taken").write_text("a file, not a folder")
    done = run("demo", "--out", "taken", cwd=tmp_path)
    assert done.returncode != 0
    assert "locals" not in done.stderr
    assert "P-0" not in done.stderr


def test_version(tmp_path: Path) -> None:
    import fedforget

    assert run("--version", cwd=tmp_path).stdout.strip() == f"fedforget {fedforget.__version__}"
