"""The first minute: what a stranger waits for, and how long commands take to start.

First table: compiling everything into an empty cache, in as many processes as there are cores; and
the demonstration from an empty cache, with ``--clone`` from ``git clone`` on (a fresh virtual
environment, dependencies included).  Second table: the kernels that take longest, compiled one
after the other.  Third table: commands on a small federation, beside a Python that does nothing.
"""

from __future__ import annotations

import common
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import figures

ROOT = Path(__file__).parents[1]
CPU_TARGET = 40.0
START_TARGET = 0.4
FORGET_TARGET = 0.8
FEDFORGET = [sys.executable, "-c", "from fedforget.cli.main import app; app()"]
REPEATS = 7

# Prints the seconds of processor time of each kernel, its helpers included.
ONE_BY_ONE = """
import json, time
from numba.core import event
from fedforget.compilation import KERNELS
from fedforget import warmup
spent, started = {}, []
kernels = {id(one): one for one in KERNELS}

class Watch(event.Listener):
    def on_start(self, about):
        started.append((time.process_time(), 0.0))
    def on_end(self, about):
        begin, inside = started.pop()
        seconds = time.process_time() - begin
        dispatcher = about.data["dispatcher"]
        if id(dispatcher) in kernels:
            name = f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__qualname__}"
            spent[name] = spent.get(name, 0.0) + seconds - inside
        elif started:
            return  # A helper's time is its kernel's.
        if started:
            started[-1] = (started[-1][0], started[-1][1] + seconds)

with event.install_listener("numba:compile", Watch()):
    for run in warmup.PARTS.values():
        run()
print(json.dumps(spent))
"""


def measured(command: list[str], **options: object) -> tuple[float, float, str]:
    """Seconds of wall clock and of processor time, children included, and what was printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True, **options)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout


def with_cache(folder: Path | None) -> dict[str, str]:
    """Variables for a cache in a folder; None: where it is."""
    cache = {} if folder is None else {"FEDFORGET_CACHE": str(folder)}
    return os.environ | cache | {"PYTHONPATH": str(ROOT / "src")}


def compiling(scratch: Path, clone: bool) -> None:
    table = common.table("from nothing", "what", "wall", "CPU, all processes", "target")

    def show(what: str, command: list[str], cache: str, target: float | None = None) -> None:
        wall, cpu, _ = measured(command, env=with_cache(scratch / cache))
        verdict = "" if target is None else common.verdict(cpu, target, at_least=False)
        table.add_row(f"fedforget {what}", f"{wall:.1f} s", f"{cpu:.1f} s", verdict)
        figures.record(what, seconds=wall, processor_seconds=cpu)

    show("warm-up, empty cache", [*FEDFORGET, "warm-up"], "all", CPU_TARGET)
    show("warm-up, again", [*FEDFORGET, "warm-up"], "all")
    demo = [*FEDFORGET, "demo", "--out", str(scratch / "demo")]
    show("demo, empty cache", demo, "demo-cache")
    show("demo, again", demo, "demo-cache")
    if clone:
        start = time.perf_counter()
        subprocess.run(["git", "clone", "-q", str(ROOT), str(scratch / "clone")], check=True)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment["FEDFORGET_CACHE"] = str(scratch / "clone-cache")
        subprocess.run(
            ["make", "demo"], cwd=scratch / "clone", env=environment, check=True,
            capture_output=True,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        table.add_row("git clone, make demo, up to its table", f"{seconds:.1f} s", "", "")
        figures.record("git clone, make demo", seconds=seconds)
    common.console.print(table)


def slowest(scratch: Path) -> None:
    _, _, printed = measured([sys.executable, "-c", ONE_BY_ONE], env=with_cache(scratch / "one"))
    spent = json.loads(printed)
    figures.record("all kernels, one by one", processor_seconds=sum(spent.values()))
    figures.record("kernels", count=len(spent))
    table = common.table(
        f"the ten slowest of {len(spent)} kernels, {sum(spent.values()):.1f} s together",
        "kernel", "CPU",
    )  # fmt: skip
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1])[:10]:
        table.add_row(name.removeprefix("fedforget."), f"{seconds:.2f} s")
        figures.record(f"kernel {name.removeprefix('fedforget.')}", processor_seconds=seconds)
    common.console.print(table)


CLIENTS = ("aarhus", "bologna", "coimbra", "dresden")
NOT_JOINED = "not-joined"
"""A copy of the first client from before it joined."""
LISTS = ("--federation", "server/federation.toml", "--epoch", "server/epoch-1.json", "--yes")


def federation(folder: Path, environment: dict[str, str]) -> str:
    """Four clients of 1,000 records and a round, then a record forgotten and another round.

    Returns the path of the receipt.
    """

    def run(*arguments: str) -> str:
        return measured([*FEDFORGET, *arguments], env=environment, cwd=folder)[2]

    run("server", "init", "server", "--name", "study", "--clusters", "3",
        "--feature", "age:0:120", "--feature", "weight:0:300")  # fmt: skip
    enrolments = []
    for name in CLIENTS:
        run("client", "init", name, "--name", name)
        enrolments += ["--client", f"{name}/enrolment.json"]
    shutil.copytree(folder / CLIENTS[0], folder / NOT_JOINED)
    run("server", "enrol", "server", *enrolments)
    for number, name in enumerate(CLIENTS):
        run("client", "join", name, *LISTS)
        rows = [f"P-{i},{(37 * i + number) % 101},{(53 * i + number) % 211}" for i in range(1000)]
        (folder / "table.csv").write_text("\n".join(["id,age,weight", *rows]) + "\n")
        run("client", "import", name, "table.csv", "--id", "id")
    run("round", "server", *CLIENTS)
    run("client", "forget", CLIENTS[0], "--ids", "P-1", "--yes")
    run("round", "server", *CLIENTS)
    run("client", "receipts", CLIENTS[0], "-o", "receipts")
    (receipt,) = (folder / "receipts").iterdir()
    return str(receipt)


def not_joined(folder: Path) -> str:
    """A directory that has not joined yet, which is used once."""
    name = f"joins-{sum(1 for _ in folder.glob('joins-*'))}"
    shutil.copytree(folder / NOT_JOINED, folder / name)
    return name


def commands(scratch: Path, cache: Path | None, repeats: int) -> None:
    """How long commands take that only read, and one that forgets an ordinary record."""
    environment = with_cache(cache)
    folder = scratch / "federation"
    folder.mkdir()
    receipt = federation(folder, environment)
    forgotten = iter(range(500, 1000))
    cases: list[tuple[str, Callable[[], list[str]], float | None]] = [
        ("python -c pass", lambda: [sys.executable, "-c", "pass"], None),
        ("client status", lambda: [*FEDFORGET, "client", "status", CLIENTS[0]], START_TARGET),
        ("client receipts", lambda: [*FEDFORGET, "client", "receipts", CLIENTS[0]], START_TARGET),
        ("client requests", lambda: [*FEDFORGET, "client", "requests", CLIENTS[0]], START_TARGET),
        (
            "client join",
            lambda: [*FEDFORGET, "client", "join", not_joined(folder), *LISTS],
            START_TARGET,
        ),
        ("server status", lambda: [*FEDFORGET, "server", "status", "server"], START_TARGET),
        (
            "verify",
            lambda: [*FEDFORGET, "verify", receipt, "--federation", "server/federation.toml"],
            START_TARGET,
        ),
        (
            "client forget, an ordinary record",
            lambda: [
                *FEDFORGET,
                "client",
                "forget",
                CLIENTS[1],
                "--ids",
                f"P-{next(forgotten)}",
                "--yes",
            ],
            FORGET_TARGET,
        ),
    ]
    table = common.table(f"one command, median of {repeats}", "command", "wall", "target")
    for name, command, target in cases:
        times = [measured(command(), env=environment, cwd=folder)[0] for _ in range(repeats)]
        median = statistics.median(times)
        verdict = "" if target is None else common.verdict(median, target, at_least=False)
        table.add_row(name, f"{median:.2f} s", verdict)
        figures.record(name, seconds=median)
    common.console.print(table)


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--clone", action="store_true", help="also make demo in a fresh clone")
    given = parser.parse_args()
    common.heading("the first minute")
    with figures.kept(given), tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if given.quick:
            # Compiling takes most of the time.
            commands(scratch, None, 1)
            return
        compiling(scratch, given.clone)
        slowest(scratch)
        commands(scratch, scratch / "all", REPEATS)


if __name__ == "__main__":
    main()
