"""Scheduled rounds over Flower, and nodes that die while ``flower up`` looks on.

What a round comes to is read from the server's directory: ``flwr run`` says 0 to everything.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sites import NAMES, Sites

from fedforget.errors import FedforgetError
from fedforget.parties.attempts import failures_since
from fedforget.parties.folders import held
from fedforget.parties.server_party import open_server
from fedforget.runtime.flower import scheduled
from fedforget.runtime.flower.app_folder import write_app
from fedforget.runtime.flower.network import NetworkError
from fedforget.runtime.flower.scheduled import FlowerRounds, need_of, server_of
from fedforget.runtime.flower.simulation import PROGRESS, NoCommitError, read_progress
from fedforget.runtime.schedule import Need

pytestmark = pytest.mark.usefixtures("flower")

PROGRAM = [sys.executable, "-c", "from fedforget.cli.main import app; app()"]


def test_an_app_folder_names_its_server(tmp_path: Path) -> None:
    write_app(tmp_path / "app", "0.0.0", server=tmp_path / "a server", clients=None)
    assert server_of(tmp_path / "app") == tmp_path / "a server"
    with pytest.raises(FedforgetError, match="flower init"):
        server_of(tmp_path)


@pytest.mark.parametrize(
    ("event", "need"),
    [
        ({"event": "aborted", "person": True}, Need.PERSON),
        ({"event": "aborted", "person": False, "missing": ["x"]}, Need.TIME),
        ({"event": "failed", "person": True}, Need.PERSON),
        ({"event": "failed"}, Need.TIME),
    ],
)
def test_what_a_run_that_committed_nothing_needs(event: dict[str, Any], need: Need) -> None:
    assert need_of(NoCommitError("no", event)) is need
    assert need_of(NetworkError("the SuperLink is away")) is Need.TIME


def test_a_superlink_that_is_not_there_is_tried_again(sites: Sites) -> None:
    rounds = FlowerRounds(sites.root / "app", sites.server, "deployment")
    outcome = rounds.attempt(lambda stage: None)
    assert outcome.need is Need.TIME
    assert "flwr run failed" in outcome.text
    assert failures_since(sites.server, None)[0]["cause"] == outcome.text


def test_a_directory_in_use_is_waited_for(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled, "LOOK_AGAIN_SECONDS", 0.05)
    waited: list[str] = []
    with held(sites.server):
        rounds = FlowerRounds(sites.root / "app", sites.server, "deployment", wait=0.3)
        outcome = rounds.attempt(waited.append)
    assert outcome.need is Need.TIME
    assert "is in use" in outcome.text
    assert len(waited) > 2


def test_a_run_is_followed_over_a_rotation(tmp_path: Path) -> None:
    """logrotate puts the file aside in the middle of a run."""
    path = tmp_path / PROGRESS
    lines = [json.dumps({"event": str(number), "run": number % 2}) for number in range(6)]
    path.with_name(PROGRESS + ".1").write_text("\n".join(lines[:3]) + "\n")
    assert [one["event"] for one in read_progress(path, 1)] == ["1"]
    path.write_text("\n".join(lines[3:]) + "\n")
    assert [one["event"] for one in read_progress(path, 1)] == ["1", "3", "5"]


# -- with Flower's processes -----------------------------------------------------------------------


def flower_round(sites: Sites, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and events of ``fedforget flower round``."""
    command = ["flower", "round", str(sites.root / "app"), "--superlink", "here", "--json"]
    done = subprocess.run(
        [*PROGRAM, *command, *options],
        env={**os.environ, "FLWR_HOME": str(sites.network.home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("campaign")
def test_the_status_tells_the_truth(sites: Sites) -> None:
    sites.start()
    code, events = flower_round(sites)
    assert code == 0, events
    committed = next(one for one in events if one["event"] == "committed")
    assert committed["participants"] == list(NAMES)
    with open_server(sites.server) as server:
        assert server.status()["last_round"] == 1
    for name in NAMES[1:]:
        sites.network.kill_node(name)
    code, events = flower_round(sites)
    assert code == 3, events
    with open_server(sites.server) as server:
        assert server.status()["last_round"] == 1
    told = json.loads(
        subprocess.run(
            [*PROGRAM, "server", "status", str(sites.server), "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert "missing" in " ".join(told["failed_attempts"][-1]["causes"])


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 150.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def test_flower_up_says_when_a_node_dies(tmp_path: Path) -> None:
    """One SuperNode is killed: it is named, with its log's last lines, and the others go on."""
    out, errors = (tmp_path / "out").open("w"), (tmp_path / "errors").open("w")
    command = [*PROGRAM, "flower", "up", "--clients", "2", "--folder", str(tmp_path / "trial")]
    process = subprocess.Popen([*command, "--json"], stdout=out, stderr=errors)

    def events() -> list[dict[str, Any]]:
        lines = (tmp_path / "out").read_text().splitlines()
        return [json.loads(line) for line in lines]

    try:
        wait_for(lambda: bool(events()) or process.poll() is not None, "it starts")
        nodes = events()[0]["nodes"]
        lost, kept = sorted(nodes)
        os.kill(nodes[lost]["pid"], signal.SIGKILL)
        wait_for(lambda: len(events()) > 1, "the death is told", 10)
        (told,) = events()[1:]
        assert (told["event"], told["node"], told["exit_code"]) == ("node_ended", lost, -9)
        assert told["last_lines"]
        assert f"node-{lost}.log" in told["log"]
        assert "flower-supernode" in told["command"]
        assert "Rounds go on without it" in told["advice"]
        assert process.poll() is None
        os.kill(nodes[kept]["pid"], 0)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        out.close()
        errors.close()
    assert len(events()) == 2, "nodes that are stopped in the end have not died"
