"""Runs every benchmark and keeps what it finds: ``make bench``.

The figures of each go to ``build/bench/NAME.json``, what it prints to ``build/bench/NAME.log``.  A
benchmark that fails does not stop the others; it is named at the end, and the exit code is 1.
``python benchmarks/page.py`` then writes ``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
OUT = HERE.parent / "build" / "bench"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

RUNS: dict[str, str] = {
    "coldstart": "coldstart.py --clone",
    "seeding": "seeding.py",
    "forgetting": "forgetting.py",
    "memory": "memory.py",
    "quality": "quality.py",
    "scma": "scma.py --all",
    "parties": "parties.py",
    "replay": "replay.py",
    "disclosure": "replay.py --disclosure tmi celltype gaussian tcga body-postures covtype",
    "many-bins": "replay.py many-bins",
    "complete": "complete.py --fast",
    "lloyd": "lloyd.py",
    "securesum": "securesum.py --all",
    "splits": "splits.py",
    "size": "size.py",
    "flower": "flower.py",
}
"""The command of each run, by the name of its files."""
ON_REQUEST = ("flower",)


def run(name: str, folder: Path, quick: bool) -> int:
    """One benchmark; what it prints is shown and kept.  Returns its exit code."""
    script, *options = shlex.split(RUNS[name])
    kept = folder / f"{name}.json"
    # Figures of an earlier run must not be taken for those of one that fails.
    kept.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / script), *options, "--json", str(kept)]
    if quick:
        command.append("--quick")
    environment = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONUNBUFFERED": "1"}
    with (
        (folder / f"{name}.log").open("w", 1, encoding="utf-8") as log,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            log.write(line)
    return process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)}")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER")
    parser.add_argument("--flower", action="store_true", help="also rounds over Flower")
    parser.add_argument(
        "--quick", action="store_true", help="tries the chain out; the figures mean nothing"
    )
    given = parser.parse_args()
    for name in set(given.only) - set(RUNS):
        parser.error(f"there is no run {name!r}")
    wanted = given.only or [name for name in RUNS if name not in ON_REQUEST or getattr(given, name)]
    given.out.mkdir(parents=True, exist_ok=True)
    failed, lines = [], []
    for name in wanted:
        start = time.perf_counter()
        print(flush=True)
        status = run(name, given.out, given.quick)
        state = "" if status == 0 else f"  FAILED with exit code {status}"
        lines.append(f"  {name:<12}{(time.perf_counter() - start) / 60:5.1f} minutes{state}")
        if status:
            failed.append(name)
    print("\n".join(["", f"figures and logs are in {given.out}", *lines]))
    if failed:
        print(f"{len(failed)} of {len(wanted)} failed: {', '.join(failed)}; see their logs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
