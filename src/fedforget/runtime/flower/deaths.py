"""Notices when a process of a network on this machine ends by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedforget.runtime.flower.network import HEARTBEAT_SECONDS, Network

LOOK_SECONDS = 0.5
LINES = 5
_MOST_BYTES = 8192


@dataclass(frozen=True)
class Death:
    """A process that has ended though nobody asked it to.

    Attributes
    ----------
    name : of the client whose SuperNode it is; None for the SuperLink.
    code : its exit status; negative for the number of a signal.
    log, lines : its log, and the last lines in it.
    command : starts it again.
    """

    name: str | None
    code: int
    log: Path
    lines: tuple[str, ...]
    command: str

    @property
    def who(self) -> str:
        return "The SuperLink" if self.name is None else f"The SuperNode of {self.name}"

    @property
    def how(self) -> str:
        return f"killed by signal {-self.code}" if self.code < 0 else f"exit status {self.code}"

    @property
    def advice(self) -> str:
        """What to do."""
        if self.name is None:
            return (
                "No round can be run without it, and a run under way has ended. Press Ctrl-C and"
                " run `fedforget flower up` again: the folder is found again, and nothing"
                " that was committed is lost."
            )
        return (
            "Rounds go on without it while enough members are left; a full round waits for it. To"
            f" have it back, run the command below, {HEARTBEAT_SECONDS:.0f} seconds after its end"
            " or later (the SuperLink refuses it before), or press Ctrl-C and start all of them"
            " again."
        )

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "event": "superlink_ended" if self.name is None else "node_ended",
            "node": self.name,
            "exit_code": self.code,
            "log": str(self.log),
            "last_lines": list(self.lines),
            "advice": self.advice,
            "command": self.command,
        }


def last_lines(path: Path, number: int = LINES) -> tuple[str, ...]:
    """The end of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MOST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-number:]


def deaths_of(network: Network) -> list[Death]:
    """Every process that is not there any more, though it was not stopped."""
    processes = [(name, process) for name, process in list(network.nodes.items())]
    found = [
        _death(network, name, process.returncode, f"node-{name}.log", network.node_command(name))
        for name, process in processes
        if process.poll() is not None
    ]
    link = network.superlink
    if link is not None and link.poll() is not None:
        found.append(_death(network, None, link.returncode, "superlink.log", ""))
    return found


def _death(network: Network, name: str | None, code: int, log: str, command: str) -> Death:
    path = network.logs / log
    return Death(name, code, path, last_lines(path), command)


@contextmanager
def watched(network: Network, tell: Callable[[Death], None]) -> Iterator[None]:
    """Tell of every process that ends while the body runs, once each."""
    over, told = threading.Event(), set[str | None]()

    def look() -> None:
        for one in deaths_of(network):
            if one.name not in told:
                told.add(one.name)
                tell(one)

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            look()

    thread = threading.Thread(target=watch, name="deaths", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
