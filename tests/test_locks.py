"""Locks last as long as what they were put on is open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedforget.locks import is_locked, lock


@pytest.fixture(params=["file", "directory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "directory":
        return tmp_path
    (tmp_path / "file").touch()
    return tmp_path / "file"


@pytest.fixture
def two(place: Path) -> Iterator[list[int]]:
    """The same thing, opened by two."""
    opened = [os.open(place, os.O_RDONLY) for _ in range(2)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def test_one_has_it_and_the_other_is_told(two: list[int]) -> None:
    one, other = two
    assert not is_locked(other)
    lock(one)
    assert is_locked(other)
    with pytest.raises(BlockingIOError):
        lock(other)
    lock(one)
    assert is_locked(other)


def test_looking_takes_nothing(two: list[int]) -> None:
    one, other = two
    assert not is_locked(one)
    lock(other)
    assert is_locked(one)


def test_who_is_patient_gets_it_when_it_is_free(place: Path) -> None:
    held, waiting = os.open(place, os.O_RDONLY), os.open(place, os.O_RDONLY)
    lock(held)
    threading.Timer(0.1, os.close, [held]).start()
    began = time.monotonic()
    lock(waiting, 60.0)
    assert time.monotonic() - began < 30.0
    os.close(waiting)


def test_patience_ends(two: list[int]) -> None:
    one, other = two
    lock(one)
    began = time.monotonic()
    with pytest.raises(BlockingIOError):
        lock(other, 0.05)
    assert time.monotonic() - began >= 0.05


def test_a_process_that_is_killed_holds_nothing(place: Path) -> None:
    code = (
        "import os, sys, time; from fedforget.locks import lock\n"
        "lock(os.open(sys.argv[1], os.O_RDONLY)); print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(place)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    mine = os.open(place, os.O_RDONLY)
    assert is_locked(mine)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    lock(mine)
    os.close(mine)
