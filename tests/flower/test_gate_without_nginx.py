"""A machine without nginx: the gate's test skips, and nothing fails when it is taken down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sites import Sites

TESTS = Path(__file__).parent

pytestmark = pytest.mark.usefixtures("flower")


def outcome(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run tests where only the programs that Flower needs can be found."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("openssl", "ssh-keygen", "bash", "sh", "env"):
        for place in ("/usr/bin", "/bin"):
            if (Path(place) / name).exists() and not (programs / name).exists():
                (programs / name).symlink_to(Path(place) / name)
    path = os.pathsep.join([str(Path(sys.executable).parent), str(programs)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments],
        cwd=TESTS.parents[1],
        env={**os.environ, "PATH": path, "FEDFORGET_FLOWER": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_gates_test_skips_and_says_why(tmp_path: Path) -> None:
    code, out = outcome(tmp_path, str(TESTS / "test_campaign.py"), "-k", "gate")
    assert code == 0, out
    assert "1 skipped" in out
    assert "nginx is not installed" in out
    assert "error" not in out


def test_a_test_that_starts_nothing_is_taken_down(tmp_path: Path) -> None:
    """What the fixture of all campaigns does at its end, also where a test has skipped."""
    made = Sites.make(tmp_path / "study")
    with made.network:
        made.check_loopback()
    assert made.survivors() == []
