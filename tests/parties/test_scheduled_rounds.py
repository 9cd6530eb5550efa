"""Rounds on a schedule over real directories, in simulated time; and as a process that is ended."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from party_world import FIVE, World
from typer.testing import CliRunner

from fedforget.cli import schedule_command
from fedforget.cli.main import app
from fedforget.parties.attempts import failures_since
from fedforget.parties.client_party import open_client
from fedforget.parties.database import StoreError
from fedforget.parties.server_party import open_server
from fedforget.parties.store import Store
from fedforget.runtime.directory_rounds import DirectoryRounds
from fedforget.runtime.schedule import Backoff, Ending, Need, Schedule, Stop
from fedforget.runtime.timetable import Timetable, duration, time_of_day
from fedforget.wall_clock import using
from simulated_clock import SimulatedClock

START = datetime(2026, 1, 1, tzinfo=UTC)
NIGHTLY = Timetable(duration("24h"), time_of_day("02:30"), UTC)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Five members, of which one may be away."""
    world = World(tmp_path_factory.mktemp("five"), FIVE).set_up().fill(12)
    with using(SimulatedClock(START - timedelta(hours=20))):
        world.round()
    return world


@pytest.fixture
def world(five: World, tmp_path: Path) -> World:
    return five.copy_to(tmp_path)


def nights(
    world: World, number: int, clock: SimulatedClock | None = None, **options: Any
) -> tuple[Ending, list[dict[str, Any]]]:
    """Run some nightly rounds."""
    told: list[dict[str, Any]] = []
    rounds = DirectoryRounds(world.server, world.clients, wait=options.pop("wait", 0.0))
    schedule = Schedule(
        rounds,
        NIGHTLY,
        clock or SimulatedClock(START),
        tell=told.append,
        backoff=Backoff(jitter=0.0),
        wanted=number,
        **options,
    )
    return schedule.run(), [one for one in told if one["event"] != "stage"]


def of_kind(told: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [one for one in told if one["event"] == event]


def test_the_log_has_the_times_of_the_clock_that_is_given(world: World) -> None:
    nights(world, 2)
    with open_server(world.server) as server:
        times = [entry["time"] for entry in server.log() if entry["kind"] == "round"]
    assert times[1:] == ["2026-01-01T02:30:00+00:00", "2026-01-02T02:30:00+00:00"]


# -- one member's trouble is not the others' -------------------------------------------------------


def make_damaged(folder: Path) -> None:
    (folder / "client.sqlite").write_bytes(b"this is no database" * 1000)


def make_gone(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def make_open_to_others(folder: Path) -> None:
    folder.chmod(0o755)


def make_without_key(folder: Path) -> None:
    (folder / "identity.key").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (make_damaged, "damaged"),
        (make_gone, "is not a directory"),
        (make_open_to_others, "chmod 700"),
        (make_without_key, "identity.key is missing"),
    ],
)
def test_a_broken_directory_does_not_stop_the_others(
    world: World, spoil: Callable[[Path], None], said: str
) -> None:
    spoil(world.client("bologna"))
    ending, told = nights(world, 1)
    committed = of_kind(told, "committed")[0]
    assert committed["participants"] == [name for name in FIVE if name != "bologna"]
    assert said in committed["refused"][str(world.client("bologna"))]
    assert ending.exit_code == 0


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let a client's store take nothing, or take things again."""
    real, full = Store.transaction, set()

    @contextmanager
    def transaction(self: Store) -> Iterator[None]:
        if self.path.parent in full:
            raise StoreError(f"{self.path}: the disk is full; nothing was changed")
        with real(self):
            yield

    monkeypatch.setattr(Store, "transaction", transaction)
    return lambda folder: full.symmetric_difference_update({folder})


def test_a_full_disk_does_not_stop_the_others(
    world: World, full_disk: Callable[[Path], None]
) -> None:
    full_disk(world.client("bologna"))
    _, told = nights(world, 1)
    committed = of_kind(told, "committed")[0]
    assert committed["participants"] == [name for name in FIVE if name != "bologna"]
    assert "the disk is full" in " ".join(committed["refused"].values())


def test_where_everybody_is_needed_a_full_disk_is_tried_again(
    tmp_path: Path, full_disk: Callable[[Path], None]
) -> None:
    """Nothing tells from outside that a disk has room again: only another try does."""
    world, clock = World(tmp_path).set_up().fill(12), SimulatedClock(START)
    bologna = world.client("bologna")
    full_disk(bologna)
    clock.at(START + timedelta(hours=6), lambda: full_disk(bologna))
    ending, told = nights(world, 1, clock)
    assert ending == Ending(1, Need.NOTHING)
    assert {one["need"] for one in of_kind(told, "failed")} == {"time"}
    assert all("the disk is full" in one["text"] for one in of_kind(told, "failed"))
    begun = [datetime.fromisoformat(one["time"]) for one in of_kind(told, "begins")]
    waits = [later - earlier for earlier, later in pairwise(begun)]
    assert waits == sorted(waits)
    assert waits[-1] <= timedelta(hours=1)
    assert begun[-1] < START + timedelta(hours=7)


def test_a_member_that_has_not_taken_a_list_over_is_left_out(world: World) -> None:
    with open_server(world.server) as server:
        document = server.enrol(afresh=True)
    for name in FIVE[:4]:
        world.join(name, document)
    _, told = nights(world, 1)
    committed = of_kind(told, "committed")[0]
    assert committed["participants"] == list(FIVE[:4])
    assert "client join" in committed["refused"]["evora"]


# -- what the rules refuse is not repeated ---------------------------------------------------------


def attempts_of(world: World) -> int:
    with open_server(world.server) as server:
        return server.ledger().attempt


def test_a_missing_member_is_waited_for(world: World) -> None:
    """With three of five, no sum may come out; nothing is asked of anybody until one is back."""
    clock = SimulatedClock(START)
    away = [world.client(name) for name in ("bologna", "coimbra")]
    for folder in away:
        make_gone_to(folder)
    back, seen = START + timedelta(days=2, hours=12), []

    def come_back() -> None:
        seen.append(attempts_of(world))
        bring_back(away[0])()

    before = attempts_of(world)
    clock.at(back, come_back)
    ending, told = nights(world, 1, clock)
    assert seen == [before + 1], "one attempt, and none in all the nights after it"
    failed = of_kind(told, "failed")
    assert [one["need"] for one in failed] == ["member"]
    assert "missing" in failed[0]["text"]
    committed = of_kind(told, "committed")[0]
    assert committed["participants"] == ["aarhus", "bologna", "dresden", "evora"]
    assert datetime.fromisoformat(committed["time"]) - back < timedelta(minutes=6)
    assert ending.exit_code == 0


def make_gone_to(folder: Path) -> None:
    folder.rename(folder.with_suffix(".away"))


def bring_back(folder: Path) -> Callable[[], None]:
    def come() -> None:
        folder.with_suffix(".away").rename(folder)

    return come


def recover(world: World) -> None:
    world.recover_server()


def test_a_restored_server_waits_for_the_command_that_the_message_names(world: World) -> None:
    clock = SimulatedClock(START)
    world.back_up("server")
    with using(clock):
        world.round()
    world.restore("server")
    clock.at(START + timedelta(days=3), lambda: recover(world))
    ending, told = nights(world, 1, clock)
    failed = of_kind(told, "failed")
    assert [one["need"] for one in failed] == ["person"]
    assert "server recover" in failed[0]["text"]
    # After a recovery a full round of everybody must come, and comes.
    assert of_kind(told, "committed")[0]["kind"] == "full"
    assert ending.exit_code == 0
    with open_server(world.server) as server:
        assert not server.audit()["problems"]


def test_a_server_that_has_lost_a_list_waits_though_others_could_go_on(world: World) -> None:
    """Leaving out the one member that knows the list would make a second history."""
    world.back_up("server")
    with open_server(world.server) as server:
        document = server.enrol(afresh=True)
    world.join("evora", document)
    world.restore("server")
    told: list[dict[str, Any]] = []
    rounds, before = DirectoryRounds(world.server, world.clients), attempts_of(world)
    ending = Schedule(rounds, None, SimulatedClock(START), tries=2, tell=told.append).run()
    assert ending.exit_code == 4
    assert "server recover" in of_kind(told, "failed")[0]["text"]
    assert attempts_of(world) == before


def test_a_set_that_was_signed_is_asked_for_again_with_all_of_it(world: World) -> None:
    """A round is cut off after members have signed; without one of them a sum would show it."""

    class CutOff(Exception):
        pass

    def cut(stage: str) -> None:
        if stage == "unmask":
            raise CutOff

    with pytest.raises(CutOff):
        world.round(watch=cut)
    clock = SimulatedClock(START)
    make_gone_to(world.client("evora"))
    before = attempts_of(world)
    clock.at(START + timedelta(days=1), bring_back(world.client("evora")))
    ending, told = nights(world, 1, clock)
    failed = of_kind(told, "failed")
    assert [one["need"] for one in failed] == ["member"]
    assert "a sum without it would show its input" in failed[0]["text"]
    assert attempts_of(world) == before + 2
    assert of_kind(told, "committed")[0]["participants"] == list(FIVE)
    assert ending.exit_code == 0


def test_looking_at_a_directory_is_no_change(world: World) -> None:
    rounds = DirectoryRounds(world.server, world.clients)
    before = rounds.standing()
    with open_client(world.client("aarhus")) as client:
        client.status()
    with open_server(world.server) as server:
        server.status()
    assert rounds.standing() == before
    world.forget("aarhus", ["A-1"])
    assert rounds.standing() != before


def test_failures_are_kept_with_their_causes(world: World) -> None:
    for name in ("bologna", "coimbra"):
        make_gone_to(world.client(name))
    clock = SimulatedClock(START)
    Schedule(DirectoryRounds(world.server, world.clients), None, clock, tries=2).run()
    failures = failures_since(world.server, START - timedelta(hours=1))
    assert len(failures) == 1
    assert "missing" in failures[0]["cause"]
    assert failures[0]["time"] == "2026-01-01T00:00:00+00:00"
    assert (world.server / "attempts.json").stat().st_mode & 0o077 == 0


# -- a directory in use ----------------------------------------------------------------------------


class Held:
    """A directory that somebody uses."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        os.close(self._descriptor)


@pytest.mark.parametrize("name", ["server", "bologna"])
def test_a_directory_in_use_is_waited_for(world: World, name: str) -> None:
    clock, held = SimulatedClock(START), Held(world.folder / name)
    free = START + timedelta(hours=2, minutes=30, seconds=20)
    clock.at(free, held.release)
    _, told = nights(world, 1, clock, wait=60.0)
    committed = of_kind(told, "committed")[0]
    assert committed["participants"] == list(FIVE)
    assert datetime.fromisoformat(committed["time"]) - free < timedelta(seconds=3)
    assert not of_kind(told, "failed")


def test_a_client_in_use_for_longer_is_left_out(world: World) -> None:
    held = Held(world.client("bologna"))
    _, told = nights(world, 1, wait=60.0)
    held.release()
    committed = of_kind(told, "committed")[0]
    assert "bologna" not in committed["participants"]
    assert committed["time"] == "2026-01-01T02:31:00+00:00"


def test_nobody_else_has_to_wait_meanwhile(world: World) -> None:
    clock, held = SimulatedClock(START), Held(world.client("bologna"))
    opened: list[str] = []

    def look() -> None:
        with open_client(world.client("aarhus")) as client:
            opened.append(client.name)

    clock.at(START + timedelta(hours=2, minutes=30, seconds=10), look)
    clock.at(START + timedelta(hours=2, minutes=30, seconds=20), held.release)
    nights(world, 1, clock, wait=60.0)
    assert opened == ["aarhus"]


# -- an end that is asked for in a real round ------------------------------------------------------


@pytest.mark.parametrize("stage", ["who", "advertise", "masked input", "consistency", "unmask"])
def test_asked_to_end_in_a_round(world: World, stage: str) -> None:
    """The directories are as after any cut, and the next round counts what this one did not."""
    stop = Stop()
    world.forget("aarhus", ["A-1"])

    def tell(event: dict[str, Any]) -> None:
        if event.get("stage") == stage:
            stop.ask()

    rounds = DirectoryRounds(world.server, world.clients)
    ending = Schedule(rounds, NIGHTLY, SimulatedClock(START), stop=stop, tell=tell).run()
    # What begins after the stage is the next one: from "consistency" on, the round is finished.
    finished = stage in ("masked input", "consistency", "unmask")
    assert ending == Ending(int(finished), Need.NOTHING if finished else Need.TIME)
    world.round()
    world.check_sums()
    with open_client(world.client("aarhus")) as client:
        assert len(client.store.receipts()) == 1


def test_one_round_waits_for_a_directory_too(world: World) -> None:
    """``fedforget round --wait``, without a schedule, by the machine's clock."""
    held = Held(world.client("bologna"))
    threading.Timer(0.5, held.release).start()
    arguments = ["round", world.server, *world.clients, "--json", "--wait"]
    done = CliRunner().invoke(app, [*map(str, arguments), "20s"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["participants"] == list(FIVE)
    held = Held(world.client("bologna"))
    done = CliRunner().invoke(app, [*map(str, arguments), "0s"])
    held.release()
    assert done.exit_code == 1
    assert "is in use" in done.output


def test_a_log_rotates_and_is_its_owners_alone(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_command, "LOG_BYTES", 600)
    log = tmp_path / "logs" / "rounds.log"
    log.parent.mkdir()
    arguments = ["round", world.server, *world.clients, "--log", log]
    for _ in range(8):
        assert CliRunner().invoke(app, [*map(str, arguments)]).exit_code == 0
    files = sorted(log.parent.iterdir())
    assert len(files) > 2
    for path in files:
        assert path.stat().st_mode & 0o077 == 0
        assert path.stat().st_size <= 600
    assert "Round 9" in "".join(path.read_text() for path in files[:2]), "the newest are first"


# -- as a process ----------------------------------------------------------------------------------


def started(world: World, *options: str) -> subprocess.Popen[str]:
    program = "from fedforget.cli.main import app; app()"
    clients = [str(folder) for folder in world.clients]
    return subprocess.Popen(
        [sys.executable, "-c", program, "round", str(world.server), *clients, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "500"},
    )


def ended(process: subprocess.Popen[str], seconds: float = 60.0) -> tuple[int, str, str]:
    out, errors = process.communicate(timeout=seconds)
    return process.returncode, out, errors


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_process_that_waits_for_its_time_ends_in_order(world: World, tmp_path: Path) -> None:
    log = tmp_path / "rounds.log"
    process = started(world, "--every", "24h", "--log", str(log))
    # The last commit is long ago, by this machine's clock: a round is due now.
    wait_for(lambda: log.exists() and "is due" in log.read_text())
    process.send_signal(signal.SIGTERM)
    code, out, errors = ended(process)
    assert (code, errors) == (0, "")
    assert "Round 2 (delta) committed" in out
    assert "Ended after 1 round." in out
    assert log.stat().st_mode & 0o077 == 0
    assert [line.split(" ", 1)[1] for line in log.read_text().splitlines()] == out.splitlines()


def test_a_process_that_is_behind_says_so_by_its_status(world: World) -> None:
    for name in ("bologna", "coimbra"):
        make_gone_to(world.client(name))
    code, out, errors = ended(started(world, "--tries", "2", "--first-wait", "1s"))
    assert code == 3
    assert "bologna and 1 more are missing" in errors
    assert "a round is due and not committed" in out
    code, _, errors = ended(started(world, "--every", "5h", "--at", "02:30"))
    assert code == 1
    assert "divides a day evenly" in errors
    shutil.rmtree(world.server)
    code, _, errors = ended(started(world, "--every", "24h"))
    assert code == 1
    assert "is not a directory" in errors
