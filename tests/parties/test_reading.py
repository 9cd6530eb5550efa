"""Looking at a directory while it is in use: nothing is locked, nothing is changed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from party_world import NAMES, World

from fedforget.errors import FedforgetError
from fedforget.parties.client_party import open_client
from fedforget.parties.database import StoreError
from fedforget.parties.folders import FolderError
from fedforget.parties.reading import check_readable, kind_of, read_client, read_server, state_of
from fedforget.parties.round_progress import FILE, STAGES, RoundProgress, Seen, read_progress
from fedforget.parties.server_party import open_server


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path).set_up().fill()
    made.round()
    return made


# -- reading ---------------------------------------------------------------------------------------


def test_a_reader_sees_what_the_owner_sees(world: World) -> None:
    world.forget("aarhus", ["A-3"])
    with open_server(world.server) as server, open_client(world.client("aarhus")) as client:
        with read_server(world.server) as seen:
            assert seen.status() == server.status()
            assert seen.log() == server.log()
            assert seen.aggregate() == server.aggregate()
            assert seen.audit() == server.audit()
        with read_client(world.client("aarhus")) as looked_at:
            assert looked_at.status() == client.status()
            assert looked_at.requests() == client.requests()
            assert looked_at.preview() == client.preview()
            assert looked_at.audit() == client.audit()


def test_a_reader_can_change_nothing(world: World) -> None:
    with read_client(world.client("aarhus")) as client:
        with pytest.raises(StoreError, match="it cannot be written; nothing was changed"):
            client.forget(["A-3"])
        assert client.status()["requests_waiting"] == 0
    with read_server(world.server) as server, pytest.raises(StoreError):
        server.enrol(suspend=["aarhus"])
    world.check_audits()
    assert len(world.held("aarhus")) == 40


def test_readers_do_not_disturb_rounds_and_removals(world: World) -> None:
    """Every removal overwrites what it deletes at once, however often somebody looks."""
    stop = threading.Event()
    seen: list[int] = []
    errors: list[BaseException] = []

    def look() -> None:
        try:
            while not stop.is_set():
                with read_client(world.client("aarhus")) as client:
                    seen.append(client.status()["records"])
                with read_server(world.server) as server:
                    server.status()
        except BaseException as error:
            errors.append(error)
            raise

    readers = [threading.Thread(target=look) for _ in range(2)]
    for one in readers:
        one.start()
    try:
        for row in range(4):
            world.forget("aarhus", [f"A-{row}"])
            world.round()
    finally:
        stop.set()
        for one in readers:
            one.join()
    assert not errors
    assert set(seen) <= {40, 39, 38, 37, 36}
    assert len(seen) > 4
    world.check_audits()
    world.check_sums()


def test_every_change_shows_in_the_state(world: World) -> None:
    before = state_of(world.client("aarhus")), state_of(world.server)
    assert before == (state_of(world.client("aarhus")), state_of(world.server))
    world.forget("aarhus", ["A-3"])
    assert state_of(world.client("aarhus")) != before[0]
    world.round()
    assert state_of(world.server) != before[1]


def test_what_a_directory_is(world: World, tmp_path: Path) -> None:
    assert kind_of(world.server) == "server"
    assert kind_of(world.client("aarhus")) == "client"
    check_readable(world.server, "server")
    with pytest.raises(FedforgetError, match="neither a client's nor a server's directory"):
        kind_of(tmp_path)
    with pytest.raises(FolderError, match="is a server's directory, not a client's"):
        check_readable(world.server, "client")
    world.server.chmod(0o755)
    with pytest.raises(FolderError, match="can be read or written by others"):
        check_readable(world.server, "server")


def test_files_that_come_and_go_keep_nobody_from_looking(world: World) -> None:
    stop = threading.Event()

    def rush() -> None:
        while not stop.is_set():
            with RoundProgress(world.server).shown(2) as progress:
                progress.began("who", NAMES, attempt=0, kind=None)

    busy = threading.Thread(target=rush)
    busy.start()
    try:
        for _ in range(50):
            check_readable(world.server, "server")
    finally:
        stop.set()
        busy.join()


# -- a round under way -----------------------------------------------------------------------------


def test_a_round_shows_its_stages_and_answers(world: World) -> None:
    seen: list[Seen] = []

    def watch(stage: str) -> None:
        found = read_progress(world.server)
        assert found is not None
        seen.append(found)

    world.round(watch=watch)
    assert read_progress(world.server) is None
    assert not (world.server / f"{FILE}.new").exists()
    assert all(one.running and one.progress.round == 2 for one in seen)
    # What is seen when a stage begins is the end of the stage before it.
    ended = [one.progress.stage for one in seen]
    assert [one.title for one in ended if one is not None] == ["who", *STAGES[:-1]]
    assert all(one.answered == NAMES and not one.waiting_for for one in ended if one is not None)
    last = seen[-1].progress
    assert [one.title for one in last.stages] == list(STAGES[:-1])
    assert all(one.seconds is not None for one in last.stages[:-1])
    assert (last.kind, last.attempts) == ("delta", 1)


def test_a_member_that_refuses_is_shown_with_its_reason(world: World, tmp_path: Path) -> None:
    four = World(tmp_path / "four", (*NAMES, "dresden")).set_up().fill()
    four.round()
    four.back_up("aarhus")
    four.forget("aarhus", ["A-3"])
    four.round()
    four.restore("aarhus")
    reasons: list[dict[str, str]] = []

    def watch(stage: str) -> None:
        found = read_progress(four.server)
        assert found is not None
        reasons.append(found.progress.refused)

    result = four.round(watch=watch)
    assert set(result["participants"]) == {"bologna", "coimbra", "dresden"}
    assert reasons[-1] == result["refused"]
    assert "restored from a backup" in reasons[-1]["aarhus"]


def test_another_attempt_begins_with_its_stages_anew(tmp_path: Path) -> None:
    with RoundProgress(tmp_path).shown(4) as progress:
        progress.began("who", ["a", "b"], attempt=0, kind=None)
        progress.answered("a")
        progress.began("advertise", ["a", "b"], attempt=8, kind="delta")
        progress.began("share", ["a", "b"], attempt=8, kind="delta")
        progress.began("advertise", ["a"], attempt=9, kind="delta")
        seen = read_progress(tmp_path)
        assert seen is not None
        assert [one.title for one in seen.progress.stages] == ["who", "advertise"]
        assert (seen.progress.attempt, seen.progress.attempts) == (9, 2)
        progress.began("commit", [], attempt=9, kind="delta")
        progress.began("commit", ["a"], attempt=9, kind="delta")
        progress.answered("a")
        seen = read_progress(tmp_path)
        assert seen is not None
        assert [one.title for one in seen.progress.stages] == ["who", "advertise", "commit"]
        assert seen.progress.stages[-1].answered == ("a",)
    assert read_progress(tmp_path) is None


def test_a_disk_that_is_full_or_read_only_stops_no_round(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.new").mkdir()
    with RoundProgress(tmp_path).shown(1) as progress:
        progress.began("who", ["a"], attempt=0, kind=None)
        assert read_progress(tmp_path) is None


def test_looking_does_not_keep_a_round_from_being_shown(tmp_path: Path) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            read_progress(tmp_path)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(50):
            with RoundProgress(tmp_path).shown(number):
                seen = read_progress(tmp_path)
                assert seen is not None
                assert seen.running
    finally:
        stop.set()
        reader.join()


PROGRAM = """
import sys, time
from pathlib import Path
from fedforget.parties.round_progress import RoundProgress
with RoundProgress(Path(sys.argv[1])).shown(7) as progress:
    progress.began("share", ["a"], attempt=3, kind="full")
    print("there", flush=True)
    time.sleep(60)
"""


def test_a_round_that_was_cut_off_is_told_from_one_that_runs(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        seen = read_progress(tmp_path)
        assert seen is not None
        assert seen.running
        process.send_signal(signal.SIGKILL)
    end = time.monotonic() + 10
    while (seen := read_progress(tmp_path)) is not None and seen.running:
        assert time.monotonic() < end
    assert seen is not None
    assert seen.progress.round == 7
    # The next round takes its place.
    with RoundProgress(tmp_path).shown(7):
        seen = read_progress(tmp_path)
        assert seen is not None
        assert seen.running
    assert read_progress(tmp_path) is None


@pytest.mark.parametrize("text", [b"", b"{", b'{"round": "x"}', b"[]", b"\xff"])
def test_a_file_that_is_none_of_ours_is_no_round(text: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(text)
    assert read_progress(tmp_path) is None
