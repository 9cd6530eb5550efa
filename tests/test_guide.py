"""docs/guide.md and docs/operate.md, run as a user types them."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedforget.cli.main import app

DOCS = Path(__file__).parents[1] / "docs"
TOWNS = ("aarhus", "bologna", "coimbra", "dresden", "evora")


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Every command of a page, with the lines that it is said to print."""
    return steps_of((DOCS / page).read_text(encoding="utf-8"))


def steps_of(text: str) -> list[tuple[str, list[str]]]:
    """The same of a part of a page."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def write_patients(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for number, name in enumerate(TOWNS):
        age = rng.normal(45 + 10 * number, 15, 300).clip(0, 120)
        pressure = rng.normal(120 + 15 * number, 20, 300).clip(60, 260)
        rows = [f"{name[0].upper()}-{row},{age[row]:.1f},{pressure[row]:.1f}" for row in range(300)]
        (folder / f"{name}.csv").write_text("\n".join(["patient,age,pressure", *rows]) + "\n")


def four_hospitals() -> Iterator[str]:
    """What operate.md begins with."""
    features = "--feature age:0:120 --feature pressure:60:260"
    yield f"fedforget server init server --name 'heart study' --clusters 3 {features}"
    towns = TOWNS[:4]
    for town in towns:
        yield f"fedforget client init {town} --name {town.title()}"
    enrolments = " ".join(f"--client {town}/enrolment.json" for town in towns)
    yield f"fedforget server enrol server {enrolments}"
    given = "--federation server/federation.toml --epoch server/epoch-1.json"
    for town in towns:
        yield f"fedforget client join {town} {given}"
        yield f"fedforget client import {town} {town}.csv --id patient"


def fits(printed: str, expected: list[str]) -> bool:
    """Whether the output is the one on the page, where ``...`` stands for anything."""
    pattern = "\n".join(re.escape(line.rstrip()).replace(r"\.\.\.", ".*") for line in expected)
    plain = "\n".join(line.rstrip() for line in printed.splitlines())
    return re.fullmatch(pattern, plain.strip(), re.S) is not None


def run(folder: Path, command: str) -> tuple[int, str]:
    """Status and output of a command.  ``fedforget`` runs in this process, others in a shell."""
    words = shlex.split(command)
    if words[0] != "fedforget":
        shell = ["bash", "-c", command]
        done = subprocess.run(
            shell, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout
    with contextlib.chdir(folder):
        arguments = [found for word in words[1:] for found in glob(word) or [word]]
        result = CliRunner(env={"COLUMNS": "500"}).invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def typed(folder: Path, line: str) -> str:
    """What a line prints; ``||`` means what it means in a shell."""
    printed = ""
    for command in line.split(" || "):
        status, output = run(folder, command)
        printed += output
        if status == 0:
            return printed
    raise AssertionError(f"{line}\n{printed}")


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of POSIX")
@pytest.mark.parametrize("page", ["guide.md", "operate.md"])
def test_the_page_runs_as_it_is_written(page: str, tmp_path: Path) -> None:
    write_patients(tmp_path)
    if page == "operate.md":
        for command in four_hospitals():
            typed(tmp_path, command)
    assert len(steps(page)) > 20
    for command, expected in steps(page):
        printed = typed(tmp_path, command)
        assert fits(printed, expected), f"{command}\n{printed}"
