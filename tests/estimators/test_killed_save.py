"""A process that is killed while it saves a model leaves no copy of the records behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killed_save.py")


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("new", 0),
        # An older file is replaced by one that has a name for some microseconds.
        ("replace", 1),
    ],
)
def test_kills_leave_nothing_but_whole_models(tmp_path: Path, kind: str, most: int) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path), "40", "1", kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= most
