"""Kills processes while they save models, and looks at what they leave behind.

Run as a program: ``python killed_save.py FOLDER KILLS SEED new|replace``.  It prints the number of
kills after which there was anything but whole models in the folder.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np

from fedforget.estimators import files

HEADER = {"estimator": "SeededKMeans"}
LONGEST = 0.25


def save_again_and_again(folder: Path, replace: bool) -> None:
    """Save models of some megabytes until somebody ends the process."""
    values = np.random.default_rng(0).random((500_000, 2))
    (folder / "ready").touch()
    for number in count():
        files.write(folder / f"model-{0 if replace else number}.npz", HEADER, {"values": values})


def kill_one(folder: Path, seconds: float, replace: bool) -> list[str]:
    """Let a process save for some time and kill it; returns what is there but models."""
    (folder / "ready").unlink(missing_ok=True)
    child = os.fork()
    if not child:
        try:
            save_again_and_again(folder, replace)
        finally:
            os._exit(1)
    while not (folder / "ready").exists():
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended == -signal.SIGKILL, ended
    (folder / "ready").unlink()
    models = sorted(folder.glob("model-*.npz"))
    for path in models[-2:]:
        files.read(path, HEADER["estimator"])  # raises unless it is whole
    others = [path.name for path in folder.iterdir() if path not in models]
    for path in folder.iterdir():
        if not (replace and path in models):
            path.unlink()
    return others


def main(folder: Path, kills: int, seed: int, replace: bool) -> None:
    rng = random.Random(seed)
    found = [kill_one(folder, LONGEST * rng.random(), replace) for _ in range(kills)]
    print(sum(map(bool, found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "replace")
