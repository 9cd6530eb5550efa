"""Scheduled rounds over Flower, started with ``flwr run`` at the centre.

``flwr run`` ends with 0 whatever becomes of the run.  What came of it is read from the server's
directory: its ledger says whether a round was committed, and ``flower.jsonl`` says why not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fedforget.errors import FedforgetError
from fedforget.parties.attempts import note_failure
from fedforget.parties.folders import FolderInUseError, locked
from fedforget.parties.server_party import open_server
from fedforget.parties.times import last_commit_of
from fedforget.protocol.messages import RoundKind
from fedforget.runtime.directories import LOOK_AGAIN_SECONDS
from fedforget.runtime.driver import OnStage
from fedforget.runtime.flower.network import OFFLINE, NetworkError
from fedforget.runtime.flower.patience import patiently
from fedforget.runtime.flower.simulation import NoCommitError, run_once
from fedforget.runtime.schedule import Need, RoundOutcome
from fedforget.wall_clock import present_clock

COMMAND_SECONDS = 120.0


class SuperLink:
    """The SuperLink that an app folder's configuration names, by its control API.

    Parameters
    ----------
    app : a folder that ``fedforget flower init`` wrote.
    name : of the SuperLink in the folder's ``flwr/config.toml``.
    """

    def __init__(self, app: Path, name: str) -> None:
        self._app = app.absolute()
        self._name = name
        self.logs = "its log"

    def start_run(self, nodes: int | None = None, **config: Any) -> int:
        """Start a run with values of its own; returns its number."""
        pairs = " ".join(f"{key}={json.dumps(_plain(value))}" for key, value in config.items())
        found = self._flwr("run", str(self._app), self._name, "--run-config", pairs)
        if "run-id" not in found:
            raise NetworkError("flwr run has started nothing, and does not say why")
        return int(found["run-id"])

    def run_state(self, run: int) -> Mapping[str, Any]:
        """What the SuperLink says of a run."""
        runs = self._flwr("ls", self._name, "--run-id", str(run)).get("runs") or [{}]
        return {"status": "unknown", **runs[0]}

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        programs = str(Path(sys.executable).parent)
        path = os.pathsep.join([programs, os.environ.get("PATH", os.defpath)])
        program = shutil.which("flwr", path=path)
        if program is None:
            raise NetworkError("flwr is not installed: pip install 'fedforget[flower]'")
        home = os.environ.get("FLWR_HOME") or str(self._app / "flwr")
        environment = {**os.environ, **OFFLINE, "FLWR_HOME": home, "PATH": path, "COLUMNS": "500"}
        try:
            done = subprocess.run(
                [program, *arguments, "--format", "json"],
                capture_output=True,
                text=True,
                env=environment,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NetworkError(f"flwr {arguments[0]} does not end; is the SuperLink up?") from None
        text = (done.stderr + done.stdout).strip()
        if done.returncode:
            raise NetworkError(f"flwr {arguments[0]} failed: {text[-500:]}")
        found = re.search(r"^\{.*^\}", done.stdout, re.S | re.M)
        try:
            answer: dict[str, Any] = json.loads(found.group()) if found else {}
        except ValueError:
            answer = {}
        if answer.get("success") is False:
            raise NetworkError(f"flwr {arguments[0]} failed: {text[-500:]}")
        return answer


class FlowerRounds:
    """Rounds over Flower, started and judged at the centre.

    A process that ends while a run is under way leaves it to the SuperLink, and it goes on.
    """

    sees_everybody = False

    def __init__(
        self,
        app: Path,
        server: Path,
        superlink: str,
        kind: RoundKind | None = None,
        wait: float = 0.0,
    ) -> None:
        self._server = server
        self._link = SuperLink(app, superlink)
        self._kind = kind
        self._wait = wait

    def attempt(self, watch: OnStage) -> RoundOutcome:
        try:
            self._wait_for_the_directory(watch)
            before = self._round()
        except FedforgetError as error:
            note_failure(self._server, error)
            return RoundOutcome(Need.TIME, str(error))
        config = {} if self._kind is None else {"kind": self._kind}
        try:
            result = run_once(self._link, self._server, None, watch, **config)
        except NetworkError as error:
            if self._committed_since(before):
                text = f"round {before + 1} was committed, though the run did not end well: {error}"
                return RoundOutcome(Need.NOTHING, text, self._told())
            if not isinstance(error, NoCommitError):
                note_failure(self._server, error)
            return RoundOutcome(need_of(error), str(error))
        if not self._committed_since(before):
            text = "the run says that it has committed, and the server's directory does not"
            return RoundOutcome(Need.TIME, text)
        return RoundOutcome(Need.NOTHING, result=result)

    def standing(self) -> object:
        """When the server's store was changed last: members are elsewhere."""
        with suppress(OSError):
            return (self._server / "server.sqlite").stat().st_mtime_ns
        return None

    def last_commit(self) -> datetime | None:
        with suppress(FolderInUseError), open_server(self._server) as server:
            return last_commit_of(server.log())
        return None

    def _round(self) -> int:
        with patiently(open_server, self._server) as server:
            return server.ledger().place.round

    def _committed_since(self, before: int) -> bool:
        try:
            return self._round() > before
        except FedforgetError:
            return False

    def _told(self) -> dict[str, Any]:
        """What the log says of the last round, as far as a schedule tells it."""
        with patiently(open_server, self._server) as server:
            body = [entry for entry in server.log() if entry["kind"] == "round"][-1]["body"]
        names = ("round", "kind", "participants", "model")
        return {name: body[name] for name in names}

    def _wait_for_the_directory(self, watch: OnStage) -> None:
        clock = present_clock()
        end = clock.now() + timedelta(seconds=self._wait)
        while True:
            try:
                with locked(self._server):
                    return
            except FolderInUseError:
                if clock.now() >= end:
                    raise
            watch("waiting")
            clock.sleep(LOOK_AGAIN_SECONDS)


def need_of(error: NetworkError) -> Need:
    """What a run that committed nothing waits for.

    A member that was missing may be back at any time, and nothing here tells: so it is asked again,
    by the signed question with which every run begins.
    """
    told = error.event if isinstance(error, NoCommitError) else {}
    return Need.PERSON if told.get("person") else Need.TIME


def server_of(app: Path) -> Path:
    """The server's directory that an app folder names."""
    try:
        text = (app / "pyproject.toml").read_text(encoding="utf-8")
        return Path(str(tomllib.loads(text)["tool"]["flwr"]["app"]["config"]["server"]))
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):
        raise FedforgetError(
            f"{app} is not an app folder that names a server's directory: fedforget flower init"
            " writes one, or say --server DIR"
        ) from None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
