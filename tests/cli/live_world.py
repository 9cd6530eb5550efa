"""A federation whose members are processes of their own, and a round that a test leads by the hand.

The server, its driver, the clients and their directories are the real ones.  Messages go through
pipes, and the test decides when a stage may go on and who is killed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedforget.errors import FedforgetError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.federation_file import Feature, FederationFile, ModelPart, ProtocolPart
from fedforget.parties.round_progress import RoundProgress
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.parties.sources import open_source
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.server_stages import Outgoing
from fedforget.runtime.driver import drive

TOWNS = ("Aarhus", "Bologna", "Coimbra", "Dresden", "Évora")
FEATURES = (
    ("age", 0.0, 120.0),
    ("weight", 30.0, 200.0),
    ("systolic pressure", 60.0, 260.0),
    ("cholesterol", 1.0, 12.0),
)

PROGRAM = """
import sys
from pathlib import Path
from fedforget.parties.client_party import open_client
from fedforget.protocol.errors import ProtocolError

def read(n):
    return sys.stdin.buffer.read(n)

with open_client(Path(sys.argv[1])) as client:
    while head := read(4):
        data = read(int.from_bytes(head, "big"))
        try:
            kind, answer = b"a", client.receive(data)
            if answer is None:
                kind, answer = b"n", b""
        except ProtocolError as error:
            kind, answer = b"r", str(error).encode()
        sys.stdout.buffer.write(kind + len(answer).to_bytes(4, "big") + answer)
        sys.stdout.buffer.flush()
"""


def make_federation(
    root: Path,
    towns: Sequence[str] = TOWNS,
    *,
    features: Sequence[tuple[str, float, float]] = FEATURES,
    clusters: int = 3,
    records: int = 120,
    disclosure: DisclosurePart | None = None,
) -> list[Path]:
    """Set up a server and clients with records below ``root``; returns the clients' folders."""
    rng = np.random.default_rng(3)
    file = FederationFile(
        "heart study",
        "7f3c9a51e2d84b06b1c5d0e8a64f2739",
        "00" * 32,
        ModelPart(
            clusters, 2 * clusters, "box", 0.01, False, "means", "weighted", 3, 50, "ab" * 16
        ),
        ProtocolPart(0.2, 0.0, 3, 16, 60.0),
        tuple(Feature(*one) for one in features),
        disclosure,
    )
    agreed = ServerParty.create(root / "server", file)
    folders = [root / f"client-{number}" for number in range(len(towns))]
    keys = {
        town: ClientParty.create(folder, town)["key"]
        for town, folder in zip(towns, folders, strict=True)
    }
    with open_server(root / "server") as server:
        members = server.enrol(keys)
    low, high = np.array([one[1:] for one in features]).T
    middles = rng.uniform(0.2, 0.8, (clusters, len(features)))
    for town, folder in zip(towns, folders, strict=True):
        chosen = rng.integers(0, clusters, records)
        units = np.clip(middles[chosen] + rng.normal(0, 0.07, (records, len(features))), 0, 1)
        values = low + units * (high - low)
        path = root / "table.npz"
        np.savez(
            path,
            patient=np.array([f"{town[0]}-{row}" for row in range(records)]),
            **dict(zip(agreed.feature_names, values.T, strict=True)),
        )
        with open_client(folder) as client:
            client.join(agreed, members)
            if records:
                client.import_table(open_source([path], agreed.feature_names, "patient"))
        path.unlink()
    return folders


class Member:
    """A client's process."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def receive(self, data: bytes) -> tuple[str, bytes] | None:
        """The kind of an answer and its content; None if there is nobody any more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(len(data).to_bytes(4, "big") + data)
            self._process.stdin.flush()
            head = self._process.stdout.read(5)
            if len(head) < 5:
                return None
            return chr(head[0]), self._process.stdout.read(int.from_bytes(head[1:], "big"))
        except BrokenPipeError:
            return None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        self._process.wait(timeout=30)


class LedRound:
    """A round in a thread, which waits before each answer until the test lets it go on."""

    def __init__(self, server: Path, folders: dict[str, Path]) -> None:
        self.members = {name: Member(folder) for name, folder in folders.items()}
        self.result: Any = None
        self.error: FedforgetError | None = None
        self._server = server
        self._steps = threading.Semaphore(0)
        self._free = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with open_server(self._server) as server:
                number = server.ledger().place.round + 1
                with RoundProgress(self._server).shown(number) as onlooker:
                    self._onlooker = onlooker
                    self.result = drive(server, None, self, onlooker=onlooker)
        except FedforgetError as error:
            self.error = error

    def let(self, answers: int) -> None:
        """Let some answers through."""
        for _ in range(answers):
            self._steps.release()

    def finish(self) -> None:
        """Let the rest of the round run, and wait for its end."""
        self._free.set()
        self._steps.release()
        self._thread.join(timeout=120)
        assert not self._thread.is_alive()
        for member in self.members.values():
            member.close()

    def _wait(self) -> None:
        if not self._free.is_set():
            self._steps.acquire()

    # -- the carrier -------------------------------------------------------------------------------

    def ask(self, question: bytes) -> Iterator[bytes]:
        for name in self.members:
            answer = self._delivered(name, question)
            if answer is not None:
                yield answer

    def exchange(self, messages: Sequence[Outgoing]) -> Iterator[tuple[str, bytes | None]]:
        for name, data in messages:
            self._wait()
            answer = self.members[name].receive(data)
            if answer is None:
                continue
            if answer[0] == "r":
                self._onlooker.refused(name, answer[1].decode())
                continue
            yield name, answer[1] if answer[0] == "a" else None

    def _delivered(self, name: str, data: bytes) -> bytes | None:
        self._wait()
        answer = self.members[name].receive(data)
        return answer[1] if answer is not None and answer[0] == "a" else None

    def refused(self, name: str, error: ProtocolError) -> None:
        pass


@contextmanager
def led_round(server: Path, folders: dict[str, Path]) -> Iterator[LedRound]:
    one = LedRound(server, folders)
    try:
        yield one
    finally:
        one.finish()
