"""docs/guide.md, run as a user types it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
PROGRAM = [sys.executable, "-c", "from fedforget.cli.main import app; app(prog_name='fedforget')"]


def steps() -> list[tuple[str, list[str]]]:
    """Every command of the page, with the lines that it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def write_patients(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for number, name in enumerate(("aarhus", "bologna", "coimbra")):
        age = rng.normal(45 + 10 * number, 15, 300).clip(0, 120)
        pressure = rng.normal(120 + 15 * number, 20, 300).clip(60, 260)
        rows = [f"{name[0].upper()}-{row},{age[row]:.1f},{pressure[row]:.1f}" for row in range(300)]
        (folder / f"{name}.csv").write_text("\n".join(["patient,age,pressure", *rows]) + "\n")


def fits(printed: str, expected: list[str]) -> bool:
    """Whether the output is the one on the page, where ``...`` stands for anything."""
    pattern = "\n".join(re.escape(line.rstrip()).replace(r"\.\.\.", ".*") for line in expected)
    plain = "\n".join(line.rstrip() for line in printed.splitlines())
    return re.fullmatch(pattern, plain.strip(), re.S) is not None


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of POSIX")
def test_the_guide_runs_as_it_is_written(tmp_path: Path) -> None:
    write_patients(tmp_path)
    assert len(steps()) > 20
    for command, expected in steps():
        program, *arguments = shlex.split(command)
        assert program == "fedforget"
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "500"},
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert fits(done.stdout, expected), f"{command}\n{done.stdout}"
