"""Kills clients, servers and rounds at random points, and looks at what a restart finds.

A case is a function of its seed: a federation, works that are cut off one after the other, and how:
by SIGKILL at a call (counted, so that a replay dies at the same one), by SIGKILL after a random
part of the time that the work takes (so that it also dies inside a call), by a disk that is full,
or by a directory that cannot be written.  The work runs in a process forked from this warm one.
After each one the stores open, audits pass, and the work is whole or absent; in the end, everything
that was cut off is completed, and nothing that was forgotten is anywhere.
"""

from __future__ import annotations

import argparse
import json
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from party_world import FIVE, NAMES, World, all_bytes, found_in, memory_folder, table, write_npz

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.database import ErasureError
from fedforget.parties.membership_file import MembershipDocument
from fedforget.parties.server_party import open_server
from fedforget.parties.store import encoded_ids
from fedforget.parties.sync import Brake, SyncRules
from fedforget.runtime.directories import recover, run

WORKS = (
    "import", "replace", "again", "sync", "sync", "forget", "forget", "receipts", "join", "enrol",
    "recover", "round", "round", "round", "server recover", "leave",
)  # fmt: skip
MOST_WORKS = 7
FAULTS = ("call", "call", "call", "call", "time", "time", "time", "time", "full disk", "read-only")
CONFIRMED, REFUSED, NOT_ERASED, BROKEN = b"confirmed", b"refused", b"not erased", b"broken"
MEMBERS = FIVE[:4]
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
    """Something a party does; ``view`` gives what it changes, ``before`` or ``after``."""

    kind: str
    call: Callable[[], object]
    view: Callable[[], object]
    before: object
    after: object
    forgets: tuple[str, ...] = ()
    lets_in: tuple[str, ...] = ()


# -- the federation ----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def template() -> Path:
    """A federation with a committed round, made once a process and copied for every case."""
    folder = Path(tempfile.mkdtemp(prefix="fedforget-crash-", dir=memory_folder()))
    folder.chmod(0o711)
    world = World(folder / "template", MEMBERS).set_up().fill(24)
    world.round()
    world.forget("aarhus", ["A-0", "A-1", "A-2"])
    world.round()
    world.forget("bologna", ["B-0"])
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
        yield World(folder, MEMBERS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def values_for(seed: int, n: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).random((n, 2)) * [120.0, 300.0]


class Case:
    """A federation, and what is known to have happened to its first client."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.client = world.client("aarhus")
        self.number = 0
        self.erased: dict[str, set[bytes]] = {f"A-{number}": set() for number in range(3)}
        """Every id that was forgotten, with values that it had."""
        self.suppressed = {"A-0", "A-1", "A-2"}
        self.replaced: set[tuple[Any, bytes]] = set()
        self.asked: list[tuple[str, ...]] = []
        self.out = world.folder / "receipts"
        self.left = False

    def records(self) -> Records:
        return self.world.records("aarhus")

    def waiting(self) -> set[str]:
        """Ids that wait to be forgotten."""
        with open_client(self.client) as party:
            waits = [set(one.digests or ()) for one in party.store.requests()]
            salts = [bytes.fromhex(one["salt"] or "") for one in party.requests()]
        return {
            name
            for name in self.suppressed
            for digests, salt in zip(waits, salts, strict=False)
            if receipts.request_digest(salt, name) in digests
        }

    def work(self, kind: str, rng: np.random.Generator) -> Work | None:
        """A work of a kind, None if there is nothing to do."""
        self.number += 1
        match kind:
            case "forget":
                return self._forget(rng)
            case "import" | "replace" | "again":
                return self._import(kind, rng)
            case "sync":
                return self._sync(rng)
            case "join" | "enrol":
                return self._membership(kind)
            case "round":
                before = self.records()
                return Work(kind, self._round, self.records, before, before)
            case "receipts":
                before = self.records()
                return Work(kind, self._write_receipts, self.records, before, before)
            case "recover":
                return self._recover()
            case "server recover":
                return self._recover_server()
        return Work(kind, self._leave, self.records, self.records(), frozenset())

    def _round(self) -> None:
        run(self.world.server, self.world.clients)

    def _write_receipts(self) -> None:
        with open_client(self.client) as party:
            party.write_receipts(self.out)

    def _leave(self) -> None:
        with open_client(self.client) as party:
            party.leave(alone=True)

    def _forget(self, rng: np.random.Generator) -> Work | None:
        before = self.records()
        held = sorted(name for name, _ in before)
        if not held:
            return None
        # Sometimes a seed, sometimes not, sometimes all.
        n = min(len(held), int(rng.choice([1, 2, 5, len(held)])))
        chosen = tuple(rng.choice(held, n, replace=False).tolist())
        after = frozenset(one for one in before if one[0] not in chosen)

        def forget() -> None:
            with open_client(self.client) as party:
                party.forget(list(chosen))

        return Work("forget", forget, self.records, before, after, forgets=chosen)

    def _import(self, kind: str, rng: np.random.Generator) -> Work | None:
        before = self.records()
        held = sorted(name for name, _ in before)
        n = int(rng.integers(1, 60))
        ids = [f"N-{self.seed}-{self.number}-{number}" for number in range(n)]
        known: list[str] = []
        if kind == "replace":
            known = held
        elif kind == "again":
            known = sorted(self.suppressed - self.waiting())
            if not known:
                return None
        old = min(n // 2 + 1, n, len(known))
        ids[:old] = rng.choice(known, old, replace=False).tolist() if old else []
        values = values_for(self.seed + 7919 * self.number, n)
        path = write_npz(self.world.folder / f"new-{self.number}.npz", ids, values)

        def add() -> None:
            with open_client(self.client) as party:
                party.import_table(table(path), replace=kind == "replace", again=kind == "again")

        new = zip(ids, (row.tobytes() for row in values), strict=True)
        after = frozenset(one for one in before if one[0] not in ids) | set(new)
        lets_in = tuple(ids[:old]) if kind == "again" else ()
        return Work(kind, add, self.records, before, after, lets_in=lets_in)

    def _sync(self, rng: np.random.Generator) -> Work | None:
        """An export with new, changed and vanished records, and with some that were forgotten."""
        before = self.records()
        held = sorted(before)
        rng.shuffle(held)  # type: ignore[arg-type]
        n_gone, n_changed = rng.integers(0, len(held) // 2 + 1, 2).tolist()
        gone, changed, same = (
            held[:n_gone],
            held[n_gone : n_gone + n_changed],
            held[n_gone + n_changed :],
        )
        n_new = int(rng.integers(0, 40))
        ids = [f"S-{self.seed}-{self.number}-{number}" for number in range(n_new)]
        ids += [name for name, _ in changed]
        values = values_for(self.seed + 7919 * self.number, len(ids))
        out = sorted(self.suppressed)
        names = [*ids, *(name for name, _ in same), *out]
        if not names:
            return None
        rows = [np.frombuffer(row).reshape(1, 2) for _, row in same]
        everything = np.concatenate([values, *rows, values_for(self.seed, len(out))])
        order = rng.permutation(len(names))
        path = write_npz(
            self.world.folder / f"export-{self.number}.npz",
            [names[at] for at in order],
            everything[order],
        )

        def follow() -> None:
            with open_client(self.client) as party:
                party.sync(table(path), SyncRules(Brake.parse("100%")))

        new = zip(ids, (row.tobytes() for row in values), strict=True)
        forgets = tuple(name for name, _ in gone)
        return Work("sync", follow, self.records, before, frozenset([*same, *new]), forgets)

    def epochs(self) -> tuple[int, int]:
        """What the server and the client know."""
        with open_server(self.world.server) as server, open_client(self.client) as party:
            return server.membership().epoch, party.lists()[-1].epoch

    def _change_list(self) -> None:
        """Suspend somebody, or let it come back."""
        with open_server(self.world.server) as server:
            away = sorted(server.membership().suspended)
            server.enrol(resume=away) if away else server.enrol(suspend=["dresden"])

    def _membership(self, kind: str) -> Work:
        if kind == "enrol":
            listed, known = self.epochs()
            return Work(kind, self._change_list, self.epochs, (listed, known), (listed + 1, known))
        self._change_list()
        listed, known = self.epochs()
        return Work(kind, self.catch_up, self.epochs, (listed, known), (listed, listed))

    def catch_up(self) -> None:
        """All clients join with the lists that they do not know yet."""
        with open_server(self.world.server) as server:
            lists = [MembershipDocument.of(one) for one in server.signed_lists()]
        for folder in self.world.clients:
            with open_client(folder) as party:
                for one in lists[party.lists()[-1].epoch :]:
                    party.join(None, one, alone=True)

    def recovering(self) -> bool:
        with open_client(self.client) as party:
            return party.ledger().recovering

    def _recover(self) -> Work:
        def recover_client() -> None:
            with open_client(self.client) as party:
                party.recover()

        return Work("recover", recover_client, self.recovering, self.recovering(), True)

    def known_round(self) -> int:
        with open_server(self.world.server) as server:
            return server.ledger().place.round

    def _recover_server(self) -> Work:
        """The server is put back to the template."""
        self.recover_server()
        with suppress(FedforgetError):
            self._round()
        now = self.known_round()
        shutil.rmtree(self.world.server)
        shutil.copytree(template() / "template" / "server", self.world.server)
        return Work(
            "server recover", self.recover_server, self.known_round, self.known_round(), now
        )

    def recover_server(self) -> None:
        with open_server(self.world.server) as server, ExitStack() as stack:
            clients = [stack.enter_context(open_client(one)) for one in self.world.clients]
            place, epoch = server.ledger().place, server.membership().epoch
            lost = any(
                one.ledger().place.round > place.round or one.lists()[-1].epoch > epoch
                for one in clients
            )
        if lost:
            recover(self.world.server, self.world.clients)


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

    def chosen(world: World) -> Work:
        work = Case(world, _TRIAL).work(kind, np.random.default_rng(0))
        assert work is not None
        return work

    with copied(_TRIAL) as world:
        work = chosen(world)
        sys.setprofile(watch)
        try:
            work.call()
        finally:
            sys.setprofile(None)
    seconds = []
    for _ in range(3):
        with copied(_TRIAL) as world:
            work = chosen(world)
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
    template()
    outcome = Outcome(seed)
    try:
        with copied(seed) as world:
            _play(Case(world, seed), outcome)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome.violation = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    return outcome


def _play(case: Case, outcome: Outcome) -> None:
    rng = np.random.default_rng(case.seed)
    first = WORKS[case.seed % len(WORKS)]
    others = rng.choice(WORKS[:-1], int(rng.integers(3, MOST_WORKS))).tolist()
    for kind in [first, *others] if first != "leave" else [*others[:2], first]:
        fault = str(rng.choice(FAULTS))
        work = case.work(kind, rng)
        if work is None:
            continue
        report, killed = cut_off(work, fault, case.world, rng)
        outcome.kills += killed
        outcome.tally[f"{kind}, {fault}: {_in_words(report, killed)}"] += 1
        assert not report.startswith(BROKEN), report.decode()
        _check_whole_or_absent(case, work, report)
        _check_client(case)
        if kind in ("enrol", "server recover"):
            case.recover_server()
        case.catch_up()
    _check_recovery(case)


def _check_whole_or_absent(case: Case, work: Work, report: bytes) -> None:
    """The restart: stores open, and the work is done or it is not."""
    found = work.view()
    if work.kind == "join":
        assert work.before <= found <= work.after, found  # type: ignore[operator]
    else:
        assert found in (work.before, work.after), f"{work.kind}: neither whole nor absent"
    if report.startswith((CONFIRMED, NOT_ERASED)):
        assert found == work.after, f"{work.kind}: confirmed, but not there after a restart"
    elif report.startswith(REFUSED) and work.kind not in ("round", "server recover", "join"):
        assert found == work.before, f"{work.kind}: refused ({report!r}), but something changed"
    if work.kind in ("import", "replace", "again", "sync", "forget", "leave"):
        gone = work.before - found  # type: ignore[operator]
        if work.kind == "sync":
            case.replaced |= {one for one in gone if one[0] not in work.forgets}
            gone = {one for one in gone if one[0] in work.forgets}
        if work.kind in ("sync", "forget", "leave"):
            for name, values in gone:
                case.erased.setdefault(name, set()).add(values)
                case.suppressed.add(name)
        else:
            case.replaced |= gone
    if found != work.before:
        case.suppressed -= set(work.lets_in)
        if work.forgets:
            case.asked.append(work.forgets)
    if work.kind == "leave":
        # Not by its records: there may have been none.
        with open_client(case.client) as party:
            case.left |= party.ledger().leaving is not None


def _check_client(case: Case) -> None:
    with open_client(case.client) as party:
        audit = party.audit()
        assert audit.passed, audit
        _check_suppression(case, party)
        _check_salts(case, party)
    _check_erased(case)


def _check_suppression(case: Case, party: ClientParty) -> None:
    """The list holds just the ids that were erased."""
    with party.suppression.opened() as listed:
        ids = np.array(encoded_ids(sorted(case.suppressed)), dtype=np.bytes_)
        expected = set(listed.digests(ids)) if case.suppressed else set()
        found = set(listed.entries())
    assert not expected - found, f"{len(expected - found)} erased ids are not on the list"
    assert not found - expected, f"{len(found - expected)} ids are on the list by mistake"


def _check_salts(case: Case, party: ClientParty) -> None:
    """A request has its salt until its receipt is written out, and says what was asked."""
    asked = {tuple(sorted(ids)) for ids in case.asked} | {("A-0", "A-1", "A-2")}
    names = {name for ids in asked for name in ids}
    waiting = [(one, one.digests, False) for one in party.store.requests()]
    closed = [
        (one, json.loads(one.document)["request"]["digests"], True)
        for one in party.store.receipts()
    ]
    for one, digests, has_receipt in (*waiting, *closed):
        salt = party.store.salt_of(one.tag)
        if digests is None:
            continue
        if salt is None:
            path = case.out / f"receipt-{one.name}.json"
            assert has_receipt, "a request that waits has lost its salt"
            assert path.read_text(encoding="utf-8") == one.document, "the salt went too early"
            continue
        covered = {name for name in names if receipts.request_digest(salt, name) in set(digests)}
        assert tuple(sorted(covered)) in asked, f"request {one.name} covers {covered}"


def _in_words(report: bytes, killed: bool) -> str:
    word = report.split(b" ")[0].decode() if not report.startswith(NOT_ERASED) else "not erased"
    return f"killed{' after it was confirmed' * bool(report)}" if killed else word


def _check_erased(case: Case) -> None:
    """Once a directory has been opened, nothing is left of records that are not held."""
    held = dict(case.records())
    gone = {(name, values) for name, some in case.erased.items() for values in some}
    gone |= case.replaced
    wanted = {f"values of {name}": values for name, values in gone if held.get(name) != values}
    names = {*case.erased, *(name for name, _ in gone)} - held.keys()
    wanted |= {name: b"s" + name.encode() + b"\0" for name in names}
    left = found_in(all_bytes(case.client, case.world.server), wanted)
    assert not left, f"left behind: {left}"


def _check_recovery(case: Case) -> None:
    """Two rounds finish or repeat what was cut off; nothing is lost or counted twice."""
    world = case.world
    with open_server(world.server) as server:
        if server.membership().suspended:
            server.enrol(resume=sorted(server.membership().suspended))
    case.catch_up()
    with open_client(case.client) as party:
        kind = "full" if party.ledger().needs_full else None
        requests = len(party.store.requests()) + len(party.store.receipts())
    try:
        run(world.server, world.clients, kind)
    except FedforgetError as error:
        # A server that was restored has lost an attempt in which some have signed, or a set without
        # this client was signed: as the error says.
        if "server enrol --afresh" not in str(error):
            raise
        with open_server(world.server) as server:
            server.enrol(afresh=True)
        case.catch_up()
        run(world.server, world.clients, kind)
    if not case.left:
        world.check_sums()
        world.check_audits()
    run(world.server, world.clients)
    world.check_sums()
    world.check_audits()
    _check_client(case)
    with open_client(case.client) as party:
        documents = party.store.receipts()
        assert not party.store.requests()
        assert party.ledger().left == case.left
        party.write_receipts(case.out)
        assert not party.requests()
    assert len(documents) == requests, f"{len(documents)} receipts for {requests} requests"
    assert requests >= 1 + len(case.asked)
    for one in documents:
        path = case.out / f"receipt-{one.name}.json"
        assert receipts.verify(receipts.read(path), world.federation).client == NAMES[0]
    _check_erased(case)


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
    seconds = time.perf_counter() - start
    console.print(
        f"{cases:,} cases, {landed:,} kills, {violations} violations,"
        f" {seconds:.0f} s ({landed / seconds:.1f} kills a second)"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
