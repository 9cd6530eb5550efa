"""Kills clients and rounds at random points, and looks at what a restart finds.

A case is a function of its seed: a federation, what waits in it, the work that is cut off, and how:
by SIGKILL at a call (counted, so that a replay dies at the same one), by SIGKILL after a random
part of the time that the work takes (so that it also dies inside a call), by a disk that is full,
or by a directory that cannot be written.  The work runs in a process forked from this warm one.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from party_world import NAMES, World, all_bytes, found_in, memory_folder, table, write_npz

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.client import open_client
from fedforget.parties.database import ErasureError
from fedforget.parties.federation_file import FederationFile

WORKS = ("import", "replace", "forget", "round")
FAULTS = ("call", "call", "call", "time", "time", "time", "full disk", "read-only")
CONFIRMED, REFUSED, NOT_ERASED, BROKEN = b"confirmed", b"refused", b"not erased", b"broken"
_MODE_BITS = 0o700
_NOBODY = 65534
_TRIAL = 10**9

Records = frozenset[tuple[Any, bytes]]


@dataclass
class Outcome:
    """What became of a case."""

    seed: int
    kills: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    violation: str | None = None


@dataclass(frozen=True)
class Work:
    """Something a party does; ``before`` and ``after`` are the records that aarhus holds."""

    kind: str
    call: Callable[[], object]
    before: Records
    after: Records


# -- the federation ----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def template() -> Path:
    """A federation with a committed round, made once a process and copied for every case."""
    folder = Path(tempfile.mkdtemp(prefix="fedforget-crash-", dir=memory_folder()))
    folder.chmod(0o711)
    world = World(folder / "template").set_up().fill(24)
    world.round()
    return folder


def remove_template() -> None:
    if template.cache_info().currsize:
        shutil.rmtree(template(), ignore_errors=True)
        template.cache_clear()


@contextmanager
def copied(seed: int) -> Iterator[World]:
    folder = template() / f"case-{seed}"
    shutil.copytree(template() / "template", folder)
    try:
        yield World(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def values_for(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).random((n, 2)) * [120.0, 300.0]


def choose_work(kind: str, world: World, rng: np.random.Generator, seed: int) -> Work:
    before = world.records("aarhus")
    held = sorted(name for name, _ in before)
    client = world.client("aarhus")
    if kind == "round":
        return Work(kind, world.round, before, before)
    if kind == "forget":
        # Sometimes a seed, sometimes not, sometimes all.
        n = int(rng.choice([1, 2, 5, len(held)]))
        chosen = rng.choice(held, n, replace=False).tolist()

        def forget() -> None:
            with open_client(client) as party:
                party.forget(chosen)

        return Work(kind, forget, before, frozenset(r for r in before if r[0] not in chosen))
    n = int(rng.integers(1, 60))
    ids = [f"N-{seed}-{number}" for number in range(n)]
    if kind == "replace":
        old = min(n // 2, len(held))
        ids[:old] = rng.choice(held, old, replace=False).tolist()
    values = values_for(seed, n)
    path = write_npz(world.folder / "new.npz", ids, values)

    def add() -> None:
        with open_client(client) as party:
            party.import_table(table(path), replace=kind == "replace")

    new = zip(ids, (row.tobytes() for row in values), strict=True)
    return Work(kind, add, before, frozenset(r for r in before if r[0] not in ids) | set(new))


# -- cutting it off ----------------------------------------------------------------------------


def in_child(work: Callable[[], object], prepare: Callable[[], object]) -> tuple[int, int]:
    """Fork a process that prepares, works, and reports; returns its id and the pipe's end."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child:
        os.close(sender)
        return child, receiver
    try:
        os.close(receiver)
        prepare()
        try:
            work()
            report = CONFIRMED
        except ErasureError:
            report = NOT_ERASED
        except FedforgetError as error:
            report = REFUSED + b" " + str(error).encode()
        except BaseException:
            report = BROKEN + b" " + traceback.format_exc().encode()
        os.write(sender, report[:60_000])
    finally:
        os._exit(0)


def finish(child: int, receiver: int) -> tuple[bytes, bool]:
    """What a child reported, and whether it was killed."""
    _, status = os.waitpid(child, 0)
    with os.fdopen(receiver, "rb") as pipe:
        return pipe.read(), os.WIFSIGNALED(status)


def dying_at(call: int) -> Callable[[], None]:
    """Die at the given call of a function."""
    calls = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: sys.setprofile(watch)


@cache
def extent(kind: str) -> tuple[int, float]:
    """How many calls a work makes, and how many seconds it takes."""
    calls = 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1

    rng = np.random.default_rng(0)
    with copied(_TRIAL) as world:
        work = choose_work(kind, world, rng, _TRIAL)
        sys.setprofile(watch)
        try:
            work.call()
        finally:
            sys.setprofile(None)
    seconds = []
    for _ in range(3):
        with copied(_TRIAL) as world:
            work = choose_work(kind, world, rng, _TRIAL)
            start = time.perf_counter()
            finish(*in_child(work.call, lambda: None))
            seconds.append(time.perf_counter() - start)
    return calls, min(seconds)


def _with_little_room(size: int) -> Callable[[], None]:
    """No file can be written beyond a size: writing fails as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def _set_writable(folder: Path, writable: bool) -> None:
    """Directories that their owner cannot write; where we are root, the owner is nobody."""
    owner = 0 if writable else _NOBODY
    for path in (folder, *folder.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, owner, owner)
        if path.is_dir():
            path.chmod(_MODE_BITS if writable else 0o500)


def _as_nobody() -> None:
    if os.geteuid() == 0:
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def cut_off(work: Work, fault: str, world: World, rng: np.random.Generator) -> tuple[bytes, bool]:
    """Run the work under a fault; returns what it reported and whether it was killed."""
    folder = world.folder
    calls, seconds = extent(work.kind)
    if fault == "call":
        at = int(rng.integers(1, calls + 1))
        return finish(*in_child(work.call, dying_at(at)))
    if fault == "time":
        delay = float(rng.uniform(0.0, 1.05 * seconds))
        child, receiver = in_child(work.call, lambda: None)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        return finish(child, receiver)
    if fault == "full disk":
        largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        size = int(rng.integers(0, largest + (largest >> 2)))
        return finish(*in_child(work.call, _with_little_room(size)))
    _set_writable(folder, False)
    try:
        return finish(*in_child(work.call, _as_nobody))
    finally:
        _set_writable(folder, True)


# -- a case ------------------------------------------------------------------------------------


def run_case(seed: int) -> Outcome:
    """Play one case."""
    outcome = Outcome(seed)
    try:
        with copied(seed) as world:
            _play(world, seed, outcome)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome.violation = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    return outcome


def _play(world: World, seed: int, outcome: Outcome) -> None:
    rng = np.random.default_rng(seed)
    requests = 0
    if rng.random() < 0.6:
        # A request waits already.
        held = sorted(name for name, _ in world.records("aarhus"))
        chosen = rng.choice(held, 2, replace=False).tolist()
        with open_client(world.client("aarhus")) as party:
            party.forget(chosen)
        requests += 1
    gone: set[tuple[Any, bytes]] = set()
    # A round that was cut off is cut off again; other work only once.
    kind = WORKS[seed % len(WORKS)]
    for _ in range(2 if kind == "round" and rng.random() < 0.5 else 1):
        fault = str(rng.choice(FAULTS))
        work = choose_work(kind, world, rng, seed)
        report, killed = cut_off(work, fault, world, rng)
        outcome.kills += killed
        outcome.tally[f"{kind}, {fault}: {_in_words(report, killed)}"] += 1
        assert not report.startswith(BROKEN), report.decode()
        # The restart: stores open, audits pass, the work is whole or absent.
        world.check_audits()
        found = world.records("aarhus")
        if report.startswith((CONFIRMED, NOT_ERASED)):
            assert found == work.after, "confirmed, but not there after a restart"
        elif report.startswith(REFUSED):
            assert found == work.before, f"refused ({report!r}), but something has changed"
        assert found in (work.before, work.after), "neither whole nor absent"
        gone |= work.before - found
        requests += kind == "forget" and found == work.after
        _check_erased(world, gone)
    _check_recovery(world, requests, gone)


def _in_words(report: bytes, killed: bool) -> str:
    word = report.split(b" ")[0].decode() if not report.startswith(NOT_ERASED) else "not erased"
    return f"killed{' after it was confirmed' * bool(report)}" if killed else word


def _check_erased(world: World, gone: set[tuple[Any, bytes]]) -> None:
    """Once a directory has been opened, nothing is left of records that are not held."""
    held = world.held("aarhus")
    wanted = {f"values of {name}": values for name, values in gone}
    wanted |= {name: b"s" + name.encode() + b"\0" for name, _ in gone if name not in held}
    left = found_in(all_bytes(world.client("aarhus")), wanted)
    assert not left, f"left behind: {left}"


def _check_recovery(world: World, requests: int, gone: set[tuple[Any, bytes]]) -> None:
    """Two rounds finish or repeat what was cut off; nothing is lost or counted twice."""
    world.round()
    world.check_sums()
    world.check_audits()
    world.round()
    world.check_sums()
    federation = FederationFile.read(world.server / "federation.toml")
    with open_client(world.client("aarhus")) as party:
        documents = party.store.receipts()
        assert not party.store.requests()
    assert len(documents) == requests, f"{len(documents)} receipts for {requests} requests"
    for number in documents:
        path = world.folder / "receipt.json"
        path.write_text(documents[number], encoding="utf-8")
        assert receipts.verify(receipts.read(path), federation).client == NAMES[0]
    _check_erased(world, gone)


# -- many of them ------------------------------------------------------------------------------


def replay_command(seed: int) -> str:
    return f".venv/bin/python tests/parties/crash.py --kills 1 --seed {seed}"


def outcomes(first_seed: int, kills: int, jobs: int = 1) -> Iterator[Outcome]:
    """Play cases from a seed on until so many processes were killed."""
    landed = 0
    if jobs <= 1:
        try:
            for outcome in map(run_case, count(first_seed)):
                landed += outcome.kills
                yield outcome
                if landed >= kills:
                    return
        finally:
            remove_template()
    with get_context("spawn").Pool(jobs) as pool:
        try:
            seeds = count(first_seed)
            while landed < kills:
                some = list(islice(seeds, 100))
                for outcome in pool.imap_unordered(run_case, some, chunksize=5):
                    landed += outcome.kills
                    yield outcome
        finally:
            pool.map(_clean_up, range(4 * jobs), chunksize=1)


def _clean_up(_: int) -> None:
    remove_template()


def report(outcome: Outcome) -> str:
    return f"seed {outcome.seed}: {outcome.violation}\n  {replay_command(outcome.seed)}"


def main() -> int:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    parser = argparse.ArgumentParser(prog="crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=5000, help="how many processes to kill")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use")
    options = parser.parse_args()
    console = Console(highlight=False)
    tally: Counter[str] = Counter()
    violations = landed = cases = 0
    start = time.perf_counter()
    columns = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("kills", total=options.kills)
        for outcome in outcomes(options.seed, options.kills, options.jobs):
            cases += 1
            landed += outcome.kills
            tally += outcome.tally
            if outcome.violation is not None:
                violations += 1
                progress.console.print(report(outcome), markup=False, soft_wrap=True)
            progress.update(task, completed=landed)
    for kind in sorted(tally):
        console.print(f"{tally[kind]:8,}  {kind}", markup=False)
    console.print(
        f"{cases:,} cases, {landed:,} kills, {violations} violations,"
        f" {time.perf_counter() - start:.0f} s"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
