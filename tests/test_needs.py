"""Long campaigns say first what they need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from needs import CAMPAIGNS, lines

ROOT = Path(__file__).parents[1]


def test_every_long_campaign_says_it_before_anything_is_installed() -> None:
    """Each target's first prerequisite is what it needs, and only then its packages."""
    text = (ROOT / "Makefile").read_text()
    targets = dict(re.findall(r"^([a-z-]+): (.*?)  ##", text, re.M))
    for name in CAMPAIGNS:
        first, *packages = targets[name].split()
        assert first == f"needs-{name}"
        assert packages[0] == "$(VENV)/dev"
        assert all(one.startswith("$(VENV)/") for one in packages)


@pytest.mark.parametrize("name", sorted(CAMPAIGNS))
def test_it_names_time_cores_and_programs(name: str) -> None:
    needs = CAMPAIGNS[name]
    everything = frozenset(program for program, _ in (*needs.programs, *needs.better))
    told, able = lines(name, 2, everything)
    assert able
    assert needs.minutes in told[1]
    assert not re.search("MISSING|missing", "\n".join(told))
    told, able = lines(name, 1, frozenset())
    assert able == (not needs.programs)
    for program, _ in needs.programs:
        assert any(program in line and "MISSING" in line for line in told)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_program_that_is_missing_stops_make_at_once(tmp_path: Path) -> None:
    """Nothing is installed, nothing is compiled."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "needs.py", tmp_path / "tests")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "bash"):
        found = shutil.which(name)
        if found:
            (programs / name).symlink_to(found)
    done = subprocess.run(
        [shutil.which("make") or "make", "test-flower", f"PYTHON={sys.executable}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "openssl (certificates): MISSING" in done.stdout
    assert not (tmp_path / ".venv").exists()
