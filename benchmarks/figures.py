"""Figures that a benchmark keeps: ``--json FILE`` writes them, with the machine, date and commit.

Only the standard library, because :mod:`common` has to be imported before NumPy is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDED: dict[str, dict[str, float]] = {}
"""The figures of this process: by row of a table, then by name."""


def record(row: str, **figures: float | None) -> None:
    """Keep some figures of a row; None is not kept.  A later call adds others to the same row."""
    RECORDED.setdefault(row, {}).update(
        {name: float(value) for name, value in figures.items() if value is not None}
    )


def parser(description: str | None) -> argparse.ArgumentParser:
    """What every benchmark can be asked for."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a file")
    found.add_argument(
        "--quick", action="store_true", help="as little as possible; the figures mean nothing"
    )
    return found


@contextmanager
def kept(given: argparse.Namespace) -> Iterator[None]:
    """Write what is recorded meanwhile, unless the benchmark fails."""
    start = time.perf_counter()
    yield
    if given.json is None:
        return
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "quick": given.quick,
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(processor_seconds(), 1),
        "figures": RECORDED,
    }
    text = json.dumps(found, indent=1, ensure_ascii=False)
    given.json.write_text(text + "\n", encoding="utf-8")


def processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def commit() -> str:
    """The commit of the checkout, with a plus sign if files have changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=9", "HEAD") or "unknown") + ("+" if changed else "")


def machine() -> dict[str, str]:
    """The machine in words."""
    return {
        "cores": str(os.cpu_count()),
        "processor": processor(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "Python": platform.python_version(),
        **{name: installed(name) for name in ("NumPy", "numba", "scikit-learn")},
    }


def processor() -> str:
    """Its name without the marks of its maker."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor()
    return " ".join(name.replace("(R)", "").replace("(TM)", "").split()) or "unknown processor"


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
