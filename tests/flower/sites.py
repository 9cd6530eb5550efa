"""Four hospitals and a coordinating centre, in directories, over real processes of Flower."""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedforget import __version__
from fedforget.parties.client_party import open_client
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.server_party import open_server
from fedforget.runtime import directories
from fedforget.runtime.flower.app_folder import write_app
from fedforget.runtime.flower.network import Network
from fedforget.runtime.flower.simulation import PROGRESS, read_progress
from fedforget.runtime.flower.trial import MemoryTable, make_federation

NAMES = ("client-0", "client-1", "client-2", "client-3")
"""Four: then one may be lost.  Of three, all must sign.  With more, stages take longer."""

RECORDS = 100
DEADLINE = float(os.environ.get("FEDFORGET_FLOWER_DEADLINE", "40"))
PATIENCE = 240.0


@dataclass
class Sites:
    """A federation in ``root``, and its twin, on which the in-process runtime runs."""

    root: Path
    network: Network

    def __post_init__(self) -> None:
        self._family = Family()

    @classmethod
    def make(cls, root: Path, deadline: float = DEADLINE) -> Sites:
        rng = np.random.default_rng(7)
        n = RECORDS * len(NAMES)
        owners = np.arange(n) % len(NAMES)
        values = rng.normal(0.3 + 0.2 * owners[:, None], 0.08, (n, 3)).clip(0, 1)
        root.mkdir(mode=0o700)
        make_federation(root, values, owners, n_clusters=3, deadline=deadline)
        # One patient whose traces can be told from anything else.
        with open_client(root / "clients" / NAMES[0]) as client:
            client.import_table(
                MemoryTable(np.array([PATIENT]), PATIENT_VALUES, ["x0", "x1", "x2"])
            )
        write_app(root / "app", __version__, server=root / "server", clients=root / "clients")
        return cls(root, Network(root / "net", root / "app"))

    @property
    def server(self) -> Path:
        return self.root / "server"

    def client(self, name: str) -> Path:
        return self.root / "clients" / name

    @property
    def federation(self) -> FederationFile:
        return FederationFile.read(self.server / "federation.toml")

    def twin(self, name: str = "twin") -> Sites:
        """The same directories again, keys and all, without Flower."""
        root = self.root.parent / name
        for folder in ("server", "clients"):
            shutil.copytree(self.root / folder, root / folder)
        return replace(self, root=root)

    def run_in_process(self, names: Sequence[str] = NAMES, **options: Any) -> dict[str, Any]:
        return directories.run(self.server, [self.client(name) for name in names], **options)

    # -- Flower --------------------------------------------------------------------------------

    def start(self, names: Sequence[str] = NAMES) -> None:
        self.network.start_superlink()
        for name in names:
            self.network.register(name)
            self.network.start_node(name, self.client(name))

    def run(self, **config: Any) -> int:
        return self.network.start_run(server=self.server, **config)

    def events(self, run: int) -> list[dict[str, Any]]:
        return read_progress(self.server / PROGRESS, run)

    def wait(self, run: int, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event of a run that is wanted."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for event in self.events(run):
                if wanted(event):
                    return event
            time.sleep(0.05)
        raise TimeoutError(f"events so far: {self.events(run)}; {self.last_lines()}")

    def wait_for_stage(self, run: int, number: int, stage: str) -> None:
        self.wait(run, lambda event: (event.get("round"), event.get("stage")) == (number, stage))

    def wait_for_commit(self, run: int, number: int) -> dict[str, Any]:
        return self.wait(
            run, lambda event: event["event"] == "committed" and event["round"] == number
        )

    def wait_for_end(self, run: int) -> list[dict[str, Any]]:
        """All events of a run that has ended, one way or another."""
        self.wait(run, lambda event: event["event"] in ("end", "aborted", "failed"))
        return self.events(run)

    def last_lines(self) -> str:
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-500:]}"
            for path in sorted(self.network.logs.iterdir())
        )

    # -- looking at processes ------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Everything that was started here; see :class:`Family`."""
        self._family.look(self.network)
        return self._family.alive()

    def survivors(self) -> list[int]:
        """What is left of what was started; a test that skips or fails early starts nothing."""
        return self._family.survivors() if self._family.seen else []

    def check_loopback(self) -> None:
        """No process listens on, or speaks with, anything but loopback."""
        check_loopback(self.processes())

    # -- traces --------------------------------------------------------------------------------

    def files_of_flower(self) -> Iterator[tuple[Path, bytes]]:
        """The database and every log, and whatever else Flower has written."""
        for path in sorted(self.network.folder.rglob("*")):
            if path.is_file():
                yield path, path.read_bytes()

    def traces(self) -> dict[str, bytes]:
        """What of the patient, the aggregate and the model could be found in a file."""
        found = {"id": PATIENT.encode()}
        for value in PATIENT_VALUES[0].tolist():
            found |= _forms(f"value {value}", value)
        with open_server(self.server) as server:
            for part in (*server.centres(), server.model().centres):
                for value in part.ravel().tolist():
                    found |= _forms(f"centre {value}", value)
            for bin_, count in server.aggregate().items():
                found[f"bin {bin_.hex()} ({count})"] = bytes(bin_)
        return found


PATIENT = "patient-7c1e-anna"
PATIENT_VALUES = np.array([[0.61803398875, 0.14142135623, 0.70710678118]])
LOOPBACK = {
    "0100007F",
    "00000000000000000000000001000000",
    "0000000000000000FFFF00000100007F",
}
NOBODY = {"00000000", "00000000000000000000000000000000"}
"""The other end of a socket that listens."""


class Family:
    """The processes of a network and their descendants.

    Each process of Flower's has a session of its own, and a SuperLink's helpers have another one;
    they are known by these sessions when their parents have ended.
    """

    def __init__(self) -> None:
        self._sessions: set[int] = set()

    @property
    def seen(self) -> bool:
        """Whether there was ever anybody."""
        return bool(self._sessions)

    def look(self, network: Network) -> None:
        """Learn who is there now."""
        self.look_at(process.pid for process in network.nodes.values())
        self.look_at(process.pid for process in (network.superlink, network.gate) if process)

    def look_at(self, pids: Iterable[int]) -> None:
        own, size = set(pids), -1
        while size != len(own):
            size = len(own)
            own |= {pid for pid, parent, _ in _processes() if parent in own}
        self._sessions |= {session for pid, _, session in _processes() if pid in own}

    def alive(self) -> list[int]:
        return [pid for pid, _, session in _processes() if session in self._sessions]

    def names(self) -> list[str]:
        """What they call themselves."""
        found = []
        for pid in self.alive():
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
        return found

    def survivors(self) -> list[int]:
        """Who is still there, a moment later; the kernel needs one to end a process."""
        assert self.seen
        end = time.monotonic() + 2
        while self.alive() and time.monotonic() < end:
            time.sleep(0.05)
        return self.alive()


def check_loopback(processes: Sequence[int]) -> int:
    """No process listens on, or speaks with, anything but loopback; the number of sockets."""
    sockets = {
        link
        for pid in processes
        for link in _links(Path(f"/proc/{pid}/fd"))
        if link.startswith("socket:")
    }
    seen = 0
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, *_, inode = line.split()[:10]
            if f"socket:[{inode}]" in sockets:
                seen += 1
                assert local.split(":")[0] in LOOPBACK, line
                assert remote.split(":")[0] in LOOPBACK | NOBODY, line
    assert seen or not sockets
    return seen


def _forms(what: str, value: float) -> dict[str, bytes]:
    """A number as bytes, big and small end first, and as text."""
    return {
        f"{what} <d": struct.pack("<d", value),
        f"{what} >d": struct.pack(">d", value),
        f"{what} text": f"{value:.7f}".encode(),
    }


def _links(folder: Path) -> list[str]:
    found = []
    try:
        for path in folder.iterdir():
            try:
                found.append(os.readlink(path))
            except OSError:
                continue
    except OSError:
        pass
    return found


def _processes() -> Iterator[tuple[int, int, int]]:
    """Every process that has not ended: its number, its parent's and its session's."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                status = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if status[0] != "Z":
                yield int(path.name), int(status[1]), int(status[3])


def memory_folder() -> str | None:
    """Where files cost nothing, if there is such a place: nothing here survives a power cut."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def forget(party_folder: Path, ids: Sequence[Any]) -> str:
    """Forget records at a client; returns the salt."""
    with open_client(party_folder) as client:
        return client.forget(ids).salt


def receipts_of(folder: Path) -> list[str]:
    with open_client(folder) as client:
        return [one.document for one in client.store.receipts()]
