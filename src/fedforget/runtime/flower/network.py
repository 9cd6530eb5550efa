"""A SuperLink and SuperNodes on this machine, on loopback alone, for trying out and for tests.

Everything lives in one folder: Flower's home, its database and the logs.  Nothing in the user's
home is touched, nothing outside loopback is reached, and only processes started here are ended.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from fedforget.errors import FedforgetError
from fedforget.runtime.flower.settings import OFFLINE_FLOWER
from fedforget.whole_files import whole_file

START_SECONDS = 60.0
STOP_SECONDS = 10.0
HEARTBEAT_SECONDS = 60.0

OFFLINE = {
    **OFFLINE_FLOWER,
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without this Ray takes the machine's outer address, and listens on all of them.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""What keeps Flower and Ray from calling home, and Ray on loopback."""


class NetworkError(FedforgetError):
    """Something of Flower's that did not start or did not do what it was asked to."""


class Network:
    """Flower's processes.

    Parameters
    ----------
    folder : for the home, database and logs.
    app : a folder that :func:`~fedforget.runtime.flower.app_folder.write_app` wrote.
    simulation : whether the SuperLink is to simulate nodes instead of waiting for them.
    """

    def __init__(self, folder: Path, app: Path, *, simulation: bool = False) -> None:
        self.folder = folder.absolute()
        self.app = app.absolute()
        self.simulation = simulation
        self.port = free_port()
        self.home = self.folder / "flwr"
        self.logs = self.folder / "logs"
        self.database = self.folder / "superlink.sqlite"
        self.superlink: subprocess.Popen[bytes] | None = None
        self.gate: subprocess.Popen[bytes] | None = None
        self.gate_port = self.port
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._node_commands: dict[str, list[str]] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[IO[bytes]] = []
        for path in (self.home, self.logs):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write_config()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        programs = str(Path(sys.executable).parent)
        # The sockets of Ray need a short path, and its logs would stay where all can read them.
        scratch = {} if self._scratch is None else {"RAY_TMPDIR": self._scratch.name}
        return {
            **os.environ,
            **OFFLINE,
            **scratch,
            "FLWR_HOME": str(self.home),
            # Flower finds its own programs by their names.
            "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
            "NO_COLOR": "1",
            "COLUMNS": "500",
        }

    def _write_config(self) -> None:
        lines = ["[superlink]", 'default = "here"', "", "[superlink.here]"]
        lines += [f'address = "127.0.0.1:{self.port}"']
        if self.simulation:
            lines += ["insecure = true"]
        else:
            lines += [f'root-certificates = "{self.app / "keys" / "authority.pem"}"']
        _write(self.home / "config.toml", "\n".join(lines) + "\n")

    # -- processes -----------------------------------------------------------------------------

    def make_keys(self, *arguments: str) -> None:
        """Run the app folder's script."""
        for program in ("openssl", "ssh-keygen"):
            if shutil.which(program) is None:
                raise NetworkError(f"{program} is needed to make keys, and is not installed")
        done = subprocess.run(
            [str(self.app / "make-keys.sh"), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NetworkError(f"make-keys.sh failed: {done.stderr.strip()}")

    def start_superlink(self) -> None:
        """Start the SuperLink, or start it again on the same port and database."""
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation"]
        if self.simulation:
            command += ["--simulation", "--insecure"]
            self._scratch = self._scratch or tempfile.TemporaryDirectory(
                prefix="ray-", dir="/tmp", ignore_cleanup_errors=True
            )
        else:
            keys = self.app / "keys"
            if not (keys / "superlink.pem").exists():
                self.make_keys("superlink", "localhost")
            command += ["--ssl-ca-certfile", str(keys / "authority.pem")]
            command += ["--ssl-certfile", str(keys / "superlink.pem")]
            command += ["--ssl-keyfile", str(keys / "superlink.key")]
            command += ["--enable-supernode-auth", "--database", str(self.database)]
        self.superlink = self._start("superlink", command)
        end = time.monotonic() + START_SECONDS
        while not self.healthy():
            if self.superlink.poll() is not None or time.monotonic() > end:
                raise NetworkError(f"the SuperLink did not start; see {self.logs}/superlink.log")
            time.sleep(0.1)

    def start_gate(self) -> None:
        """Start the proxy of the app folder, and let nodes that start later go through it."""
        self.gate_port = free_port()
        text = (self.app / "nginx.conf").read_text(encoding="utf-8")
        text = re.sub(r"listen \d+", f"listen 127.0.0.1:{self.gate_port}", text)
        text = re.sub(r"https://127\.0\.0\.1:\d+", f"https://127.0.0.1:{self.port}", text)
        # Beside the other one: nginx looks for certificates from where its configuration is.
        path = self.app / "nginx-here.conf"
        _write(path, text)
        self.gate = self._start("gate", ["nginx", "-p", str(self.app), "-c", str(path)])
        end = time.monotonic() + START_SECONDS
        while not _listens(self.gate_port):
            if self.gate.poll() is not None or time.monotonic() > end:
                raise NetworkError(f"nginx did not start; see {self.logs}/gate.log")
            time.sleep(0.1)

    def healthy(self) -> bool:
        scheme, context = "http", None
        if not self.simulation:
            scheme = "https"
            context = ssl.create_default_context(cafile=self.app / "keys" / "authority.pem")
        try:
            with urllib.request.urlopen(
                f"{scheme}://127.0.0.1:{self.port}/health", timeout=2, context=context
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def register(self, name: str) -> int:
        """Make a node's key, if necessary, and register it; returns the node's number."""
        self.make_keys("node", name)
        public = self.app / "keys" / "nodes" / f"{name}.pub"
        found = self.flwr("supernode", "register", str(public), "here", "--format", "json")
        return int(found["node-id"])

    def start_node(self, name: str, client: Path) -> None:
        """Start the SuperNode of a client's directory; its key must be there."""
        command = [
            "flower-supernode",
            *("--superlink", f"127.0.0.1:{self.gate_port}"),
            *("--root-certificates", str(self.app / "keys" / "authority.pem")),
            *("--auth-supernode-private-key", str(self.app / "keys" / "nodes" / name)),
            *("--host", "127.0.0.1", "--port", str(free_port())),
            *("--node-config", f'client="{client.absolute()}"'),
        ]
        self._node_commands[name] = command
        self.nodes[name] = self._start(f"node-{name}", command)

    def node_command(self, name: str) -> str:
        """The command line that starts a node again, to be typed elsewhere."""
        return self._typed(self._node_commands[name])

    def restart_node(self, name: str, client: Path) -> None:
        """Start a node that was killed, again and again until the SuperLink takes it back.

        For a minute after its last sign of life the SuperLink holds a node to be there, and
        refuses another one with the same key; the SuperNode then ends.
        """
        end = time.monotonic() + START_SECONDS + HEARTBEAT_SECONDS
        log = self.logs / f"node-{name}.log"
        while True:
            before = log.stat().st_size if log.exists() else 0
            self.start_node(name, client)
            process = self.nodes[name]
            while process.poll() is None:
                if b"SuperNode ID" in log.read_bytes()[before:]:
                    return
                if time.monotonic() > end:
                    break
                time.sleep(0.2)
            self.kill_node(name)
            if time.monotonic() > end:
                raise NetworkError(f"the SuperLink does not take {name} back; see {log}")
            time.sleep(3)

    def _start(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        program = shutil.which(command[0], path=self.environment["PATH"])
        if program is None:
            raise NetworkError(f"{command[0]} is not installed: pip install 'fedforget[flower]'")
        log = (self.logs / f"{name}.log").open("ab")
        self._files.append(log)
        return subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self.environment,
            cwd=self.folder,
            start_new_session=True,
        )

    def kill_node(self, name: str) -> None:
        """End a node at once, as a power cut would."""
        process = self.nodes.pop(name)
        _kill([process], _groups([process]))

    def stop_superlink(self) -> None:
        if self.superlink is not None:
            _stop([self.superlink])
            self.superlink = None

    def stop(self) -> None:
        """End what was started here, the nodes first."""
        _stop(list(self.nodes.values()))
        self.nodes.clear()
        if self.gate is not None:
            _stop([self.gate])
            self.gate = None
        self.stop_superlink()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None
        for file in self._files:
            file.close()
        self._files.clear()

    # -- Flower's own command line -------------------------------------------------------------

    def flwr(self, *arguments: str, timeout: float = 120.0) -> Any:
        """Run ``flwr`` and return the JSON that it prints."""
        program = shutil.which("flwr", path=self.environment["PATH"])
        if program is None:
            raise NetworkError("flwr is not installed: pip install 'fedforget[flower]'")
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            text = (done.stderr + done.stdout).strip()
            raise NetworkError(f"flwr {arguments[0]} failed: {text[-500:]}")
        found = re.search(r"^\{.*^\}", done.stdout, re.S | re.M)
        return json.loads(found.group() if found else "{}")

    def command(self, *arguments: str) -> str:
        """A command line of ``flwr``, to be typed elsewhere, that calls only this network."""
        return self._typed(["flwr", *arguments])

    def _typed(self, command: Sequence[str]) -> str:
        variables = {"FLWR_HOME": str(self.home), **OFFLINE}
        names = ("FLWR_HOME", "FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK")
        parts = [f"{name}={shlex.quote(variables[name])}" for name in names]
        return " ".join([*parts, shlex.join(command)])

    def online(self) -> dict[int, str]:
        """The state of every registered node, by its number."""
        listed = self.flwr("supernode", "ls", "here", "--format", "json")
        return {int(node["node-id"]): str(node["status"]) for node in listed.get("nodes", [])}

    def start_run(self, nodes: int | None = None, **config: Any) -> int:
        """Start a run with values of its own; returns its number."""
        arguments = ["run", str(self.app), "here", "--format", "json"]
        if config:
            pairs = (f"{key}={_toml(value)}" for key, value in config.items())
            arguments += ["--run-config", " ".join(pairs)]
        if nodes is not None:
            resources = f"num-supernodes={nodes} client-resources-num-cpus=1"
            arguments += ["--federation-config", resources]
        return int(self.flwr(*arguments)["run-id"])

    def run_state(self, run: int) -> Mapping[str, Any]:
        """What the SuperLink says of a run."""
        runs = self.flwr("ls", "here", "--run-id", str(run), "--format", "json")["runs"]
        state: Mapping[str, Any] = runs[0]
        return state

    def run_log(self, run: int) -> str:
        program = shutil.which("flwr", path=self.environment["PATH"]) or "flwr"
        done = subprocess.run(
            [program, "log", str(run), "here", "--show"],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=60,
            check=False,
        )
        return done.stdout


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write(path: Path, text: str) -> None:
    with whole_file(path, private=False) as file:
        file.write(text.encode())


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _toml(value: Any) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value)


def _groups(processes: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """The process groups of processes and of all that descends from them.

    Everything is started here in a session of its own, and a SuperLink starts its helpers, among
    them the ServerApp and Ray, in yet another one.
    """
    own, size = {process.pid for process in processes}, -1
    groups = set(own)
    listed = list(_listed())
    while size != len(own):
        size = len(own)
        for pid, parent, group in listed:
            if parent in own:
                own.add(pid)
                groups.add(group)
    return groups


def _listed() -> Iterator[tuple[int, int, int]]:
    """Every process of this machine: its number, its parent's and its group's."""
    if Path("/proc/self/stat").exists():
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                # Behind the name, which may hold anything, come the state and the numbers.
                numbers = path.read_text(errors="replace").rpartition(")")[2].split()
                yield int(path.parent.name), int(numbers[1]), int(numbers[2])
        return
    command = ["ps", "-A", "-o", "pid=,ppid=,pgid="]
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        pid, parent, group = map(int, line.split())
        yield pid, parent, group


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes in order, and what is left of them after a while at once."""
    groups = _groups(processes)
    for process in processes:
        if process.poll() is None:
            process.terminate()
    end = time.monotonic() + STOP_SECONDS
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
    _kill(processes, groups)


def _kill(processes: Sequence[subprocess.Popen[bytes]], groups: set[int]) -> None:
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):  # macOS: all of it has ended
            os.killpg(group, signal.SIGKILL)
    for process in processes:
        process.wait()
