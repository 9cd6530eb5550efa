"""What a status knows of time, what it calls overdue, and what a collector of metrics reads."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from party_world import FIVE, World, federation_file, values_of
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

from fedforget.cli.main import app
from fedforget.cli.server_page import server_values
from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import preset
from fedforget.parties.server_party import open_server
from fedforget.protocol.messages import Letter
from fedforget.wall_clock import using
from simulated_clock import SimulatedClock

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(START)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("times"), FIVE)
    with using(SimulatedClock(START - DAY)):
        world.set_up(federation_file(disclosure=preset("omop", 0.01)))
        world.fill(30)
    with using(SimulatedClock(START)):
        world.round()
    return world


@pytest.fixture
def world(made: World, tmp_path: Path) -> World:
    return made.copy_to(tmp_path)


def call(clock: SimulatedClock, *arguments: object) -> Result:
    with using(clock):
        return CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(one) for one in arguments])


def status(clock: SimulatedClock, side: str, folder: Path, *options: object) -> dict[str, Any]:
    done = call(clock, side, "status", folder, "--json", *options)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def overdue(clock: SimulatedClock, side: str, folder: Path, *options: object) -> set[str]:
    """What is overdue; the exit status must agree."""
    done = call(clock, side, "status", folder, "--json", "--check", *options)
    found = {one["what"] for one in json.loads(done.stdout)["overdue"]}
    assert done.exit_code == (1 if found else 0)
    return found


def a_round(world: World, clock: SimulatedClock, *absent: str) -> None:
    with using(clock):
        world.without(*absent).round()


# -- times -----------------------------------------------------------------------------------------


def test_the_last_commit(world: World, clock: SimulatedClock) -> None:
    clock.moment += 3 * DAY
    for side, folder in (("server", world.server), ("client", world.client("aarhus"))):
        assert status(clock, side, folder)["last_commit"] == {
            "round": 1,
            "time": "2026-01-01T00:00:00+00:00",
        }
        done = call(clock, side, "status", folder)
        assert "round 1, 2026-01-01T00:00:00+00:00 (3 d ago)" in done.output


def test_who_is_missing_and_for_how_long(world: World, clock: SimulatedClock) -> None:
    """Both sides say the same: commit notices tell it to everybody."""
    for _ in range(3):
        clock.moment += DAY
        a_round(world, clock, "evora")
    clock.moment += 2 * DAY
    wanted = [
        {"member": "evora", "since": "2026-01-02T00:00:00+00:00", "seconds": 4 * 86400, "rounds": 3}
    ]
    for side, folder in (("server", world.server), ("client", world.client("aarhus"))):
        assert status(clock, side, folder)["members_missing"] == wanted
    assert (
        "evora (not in 3 rounds, since 2026-01-02"
        in call(clock, "server", "status", world.server).output
    )
    # A member that was away knows nothing of the rounds without it.
    assert status(clock, "client", world.client("evora"))["members_missing"] == []
    a_round(world, clock)
    assert status(clock, "server", world.server)["members_missing"] == []


def test_a_newcomer_is_missing_since_its_list(world: World, clock: SimulatedClock) -> None:
    clock.moment += 5 * DAY
    with using(clock):
        key = world.make_client("faro")
        with open_server(world.server) as server:
            document = server.enrol({"faro": key})
        for name in FIVE:
            world.join(name, document)
        world.round()
    clock.moment += DAY
    (one,) = status(clock, "server", world.server)["members_missing"]
    assert one == {
        "member": "faro", "since": "2026-01-06T00:00:00+00:00", "seconds": 86400, "rounds": None
    }  # fmt: skip
    (one,) = status(clock, "client", world.client("aarhus"))["members_missing"]
    assert (one["member"], one["since"]) == ("faro", None)


def test_who_has_left_or_just_come_is_not_missing(world: World, clock: SimulatedClock) -> None:
    """Neither for a status nor on the page: both take it from one place."""
    clock.moment += DAY
    with using(clock):
        with open_client(world.client("evora")) as client:
            client.leave(alone=True)
        world.round()
        clock.moment += DAY
        world.without("evora").round()
        with open_server(world.server) as server:
            server.enrol({"faro": world.make_client("faro")})
    clock.moment += 30 * DAY
    for side, folder in (("server", world.server), ("client", world.client("aarhus"))):
        assert status(clock, side, folder)["members_missing"] == []
        assert "member" not in overdue(clock, side, folder)
    with using(clock), open_server(world.server) as server:
        assert server_values(server)["missing"] == []


def test_the_page_and_the_status_agree_on_who_is_missing(
    world: World, clock: SimulatedClock
) -> None:
    for _ in range(2):
        clock.moment += DAY
        a_round(world, clock, "evora")
    (told,) = status(clock, "server", world.server)["members_missing"]
    assert (told["member"], told["rounds"]) == ("evora", 2)
    with using(clock), open_server(world.server) as server:
        first, *others = server_values(server)["members"]
    assert (first.name, first.state) == ("evora", "missing in the last 2 rounds")
    assert (first.is_missing, first.last.round) == (True, 1)
    assert {(row.state, row.is_missing, row.last.round) for row in others} == {
        ("takes part", False, 3)
    }


def test_the_oldest_request_and_its_due_date(world: World, clock: SimulatedClock) -> None:
    folder = world.client("aarhus")
    assert status(clock, "client", folder)["oldest_request"] is None
    clock.moment += DAY
    with using(clock):
        first = world.forget("aarhus", ["A-1"]).request
        clock.moment += DAY
        world.forget("aarhus", ["A-2"])
    assert status(clock, "client", folder)["oldest_request"] == {
        "request": first,
        "time": "2026-01-02T00:00:00+00:00",
        "due": "2026-02-01T00:00:00+00:00",
    }
    assert status(clock, "client", folder, "--due-days", 10)["oldest_request"]["due"].startswith(
        "2026-01-12"
    )
    a_round(world, clock)
    assert status(clock, "client", folder)["oldest_request"] is None


def test_imports_that_no_round_has_counted(world: World, clock: SimulatedClock) -> None:
    folder = world.client("aarhus")
    assert status(clock, "client", folder)["imports_waiting"] == {"records": 0, "since": None}
    clock.moment += DAY
    with using(clock):
        world.hold("aarhus", ["N-1", "N-2"], values_of(2, 70))
        clock.moment += DAY
        world.hold("aarhus", ["N-3"], values_of(1, 71))
    assert status(clock, "client", folder)["imports_waiting"] == {
        "records": 3,
        "since": "2026-01-02T00:00:00+00:00",
    }

    class CutOff(Exception):
        pass

    def cut(stage: str) -> None:
        if stage == "unmask":
            raise CutOff

    # An attempt takes them along and comes to nothing; another import comes; then a round commits.
    with pytest.raises(CutOff), using(clock):
        world.round(watch=cut)
    with using(clock):
        world.hold("aarhus", ["N-4"], values_of(1, 72))
    assert status(clock, "client", folder)["imports_waiting"]["records"] == 4
    a_round(world, clock)
    assert status(clock, "client", folder)["imports_waiting"] == {"records": 0, "since": None}
    with open_client(folder) as client:
        assert client.audit().passed


def test_an_absent_members_import_waits_until_it_is_counted(
    world: World, clock: SimulatedClock
) -> None:
    with using(clock):
        world.hold("evora", ["N-1"], values_of(1, 70))
    a_round(world, clock, "evora")
    folder = world.client("evora")
    assert status(clock, "client", folder)["imports_waiting"]["records"] == 1
    a_round(world, clock)
    assert status(clock, "client", folder)["imports_waiting"]["records"] == 0


def test_failed_attempts_have_causes(world: World, clock: SimulatedClock) -> None:
    clock.moment += DAY
    clients = [world.client(name) for name in FIVE[:3]]
    done = call(clock, "round", world.server, *clients)
    assert done.exit_code == 1
    (one,) = status(clock, "server", world.server)["failed_attempts"]
    assert one["time"] == "2026-01-02T00:00:00+00:00"
    assert "dresden and 1 more are missing; dresden was counted in round 1:" in one["causes"][0]
    assert (
        "Failed 2026-01-02T00:00:00+00:00: dresden"
        in call(clock, "server", "status", world.server).output
    )
    clock.moment += DAY
    a_round(world, clock)
    assert status(clock, "server", world.server)["failed_attempts"] == []


def test_a_client_knows_why_it_refused(world: World, clock: SimulatedClock) -> None:
    world.back_up("evora")
    clock.moment += DAY
    a_round(world, clock)
    world.restore("evora")
    clock.moment += DAY
    a_round(world, clock)
    (one,) = status(clock, "client", world.client("evora"))["failed_attempts"]
    assert "client recover" in one["causes"][0]


# -- what is overdue -------------------------------------------------------------------------------


def test_nothing_is_overdue_in_good_times(world: World, clock: SimulatedClock) -> None:
    clock.moment += DAY
    assert overdue(clock, "server", world.server) == set()
    assert overdue(clock, "client", world.client("aarhus")) == set()


def test_a_request_is_overdue_after_its_due_date(world: World, clock: SimulatedClock) -> None:
    with using(clock):
        world.forget("aarhus", ["A-1"])
    folder, long = world.client("aarhus"), ("--stale-days", 99)
    clock.moment = START + 30 * DAY
    assert overdue(clock, "client", folder, *long) == set()
    clock.moment += timedelta(seconds=1)
    assert overdue(clock, "client", folder, *long) == {"request"}
    assert overdue(clock, "client", folder, *long, "--due-days", 31) == set()
    done = call(clock, "client", "status", folder, "--check", *long)
    assert done.exit_code == 1
    assert done.output.count("Overdue:") == 1


@pytest.mark.parametrize("days", ["nan", "inf", "1e12", "999999999"])
def test_limits_beyond_the_calendar(world: World, clock: SimulatedClock, days: str) -> None:
    with using(clock):
        world.forget("aarhus", ["A-1"])
    for option in ("--due-days", "--stale-days"):
        done = call(clock, "client", "status", world.client("aarhus"), "--check", option, days)
        assert done.exit_code == 1
        assert option in done.output
        assert isinstance(done.exception, SystemExit)
    done = call(clock, "server", "status", world.server, "--stale-days", days)
    assert isinstance(done.exception, SystemExit)
    assert "--stale-days must be a number of days" in done.output


def test_rounds_members_and_imports_are_overdue(world: World, clock: SimulatedClock) -> None:
    clock.moment += DAY
    with using(clock):
        world.hold("evora", ["N-1"], values_of(1, 70))
    a_round(world, clock, "evora")
    clock.moment += 7 * DAY
    assert overdue(clock, "server", world.server) == set()
    clock.moment += timedelta(minutes=1)
    assert overdue(clock, "server", world.server) == {"round", "member"}
    assert overdue(clock, "client", world.client("evora")) == {"round", "import"}
    assert overdue(clock, "server", world.server, "--stale-days", 8) == set()


def test_a_federation_that_never_began_is_overdue(tmp_path: Path) -> None:
    clock = SimulatedClock(START)
    world = World(tmp_path)
    with using(clock):
        world.set_up()
    clock.moment += 8 * DAY
    assert overdue(clock, "server", world.server) == {"round"}
    assert overdue(clock, "client", world.client("aarhus")) == set()
    assert status(clock, "client", world.client("aarhus"))["last_commit"] is None


# -- directories of earlier versions ---------------------------------------------------------------


def test_without_times_it_says_unknown(
    world: World, clock: SimulatedClock, monkeypatch: Any
) -> None:
    """An earlier version has kept no times of imports; notices may have none either."""
    with using(clock):
        world.forget("aarhus", ["A-1"])
    with open_client(world.client("aarhus")) as client, client.store.transaction():
        client.store.discard("imports")
        client.store.execute("UPDATE request SET time = 'some day'")
    real = Letter.payload

    def timeless(letter: Letter) -> Any:
        from msgspec import structs

        payload = real.fget(letter)  # type: ignore[attr-defined]
        return structs.replace(payload, body=structs.replace(payload.body, time=0))

    monkeypatch.setattr(Letter, "payload", property(timeless))
    clock.moment += 90 * DAY
    found = status(clock, "client", world.client("aarhus"))
    assert found["imports_waiting"] is None
    assert found["oldest_request"]["time"] is None
    assert found["last_commit"] == {"round": 1, "time": None}
    assert found["overdue"] == []
    shown = call(clock, "client", "status", world.client("aarhus")).output
    assert shown.count("unknown") == 4
    assert "round 1, unknown" in shown


def test_an_old_directory_knows_again_after_its_next_round(
    world: World, clock: SimulatedClock
) -> None:
    with open_client(world.client("aarhus")) as client, client.store.transaction():
        client.store.discard("imports")
    a_round(world, clock)
    assert status(clock, "client", world.client("aarhus"))["imports_waiting"]["records"] == 0


# -- metrics ---------------------------------------------------------------------------------------


def samples(path: Path) -> dict[tuple[str, str], float]:
    """What the official parser reads: values by name and the label that is not the party's."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert family.type == "gauge"
        assert family.documentation
        for one in family.samples:
            more = [v for k, v in one.labels.items() if k not in ("federation", "party")]
            assert (one.name, *more) not in found
            found[one.name, "".join(more)] = one.value
    return found


def test_a_servers_metrics(world: World, clock: SimulatedClock, tmp_path: Path) -> None:
    clock.moment += DAY
    a_round(world, clock, "evora")
    clock.moment += 9 * DAY
    path = tmp_path / "server.prom"
    assert call(clock, "server", "status", world.server, "--metrics", path).exit_code == 0
    found = samples(path)
    second = (START + DAY).timestamp()
    assert found["fedforget_last_round", ""] == 2
    assert found["fedforget_last_commit_timestamp_seconds", ""] == second
    assert found["fedforget_member_missing_since_timestamp_seconds", "evora"] == second
    assert found["fedforget_members", ""] == 5
    # No server knows what waits at a client.
    overdue = {what: value for (name, what), value in found.items() if name == "fedforget_overdue"}
    assert overdue == {"round": 1, "member": 1}


def test_a_clients_metrics_tell_no_small_numbers(
    world: World, clock: SimulatedClock, tmp_path: Path
) -> None:
    """Of fewer than five records nothing is counted, as in reports; that something waits shows."""
    path, folder = tmp_path / "aarhus.prom", world.client("aarhus")
    counts = (
        "fedforget_requests_waiting",
        "fedforget_records_waiting",
        "fedforget_imported_records_waiting",
    )

    def found() -> dict[tuple[str, str], float]:
        assert call(clock, "client", "status", folder, "--metrics", path).exit_code == 0
        return samples(path)

    assert [found()[name, ""] for name in counts] == [0, 0, 0]
    with using(clock):
        world.forget("aarhus", [f"A-{row}" for row in range(4)])
        world.hold("aarhus", [f"N-{row}" for row in range(4)], values_of(4, 70))
    after = found()
    assert not [name for name in counts if (name, "") in after]
    assert after["fedforget_oldest_request_timestamp_seconds", ""] == START.timestamp()
    with using(clock):
        world.forget("aarhus", ["A-10"])
        world.hold("aarhus", ["N-10"], values_of(1, 71))
    after = found()
    assert (counts[0], "") not in after, "two requests"
    assert (after[counts[1], ""], after[counts[2], ""]) == (5, 5)


def test_names_cannot_break_the_format(tmp_path: Path, clock: SimulatedClock) -> None:
    names = ('a"b', "c\\d", "e{f}=1")
    world = World(tmp_path, names)
    with using(clock):
        world.set_up().fill(10)
        world.round()
    path = tmp_path / "x.prom"
    for name in names:
        call(clock, "client", "status", world.client(name), "--metrics", path)
        (family, *_) = text_string_to_metric_families(path.read_text())
        assert family.samples[0].labels["party"] == name


def test_the_file_is_whole_or_not_there(
    world: World, clock: SimulatedClock, tmp_path: Path
) -> None:
    done = call(clock, "server", "status", world.server, "--metrics", tmp_path / "no" / "x.prom")
    assert done.exit_code == 1
    assert "cannot be written" in done.output
    path = tmp_path / "x.prom"
    path.write_text("old")
    before = path.stat().st_ino
    call(clock, "server", "status", world.server, "--metrics", path)
    assert path.stat().st_ino != before, "replaced, not rewritten"
    inside = world.server / "x.prom"
    call(clock, "server", "status", world.server, "--metrics", inside)
    assert inside.stat().st_mode & 0o077 == 0, "or the directory could not be opened any more"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
