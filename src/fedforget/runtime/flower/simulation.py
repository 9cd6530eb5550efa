"""Many clients on Flower's simulation engine, with records forgotten between the rounds."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedforget import __version__
from fedforget.arrays import Floats, Ints
from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import DEFAULT
from fedforget.runtime.driver import OnStage
from fedforget.runtime.flower.app_folder import write_app
from fedforget.runtime.flower.network import Network, NetworkError
from fedforget.runtime.flower.settings import PROGRESS
from fedforget.runtime.flower.trial import make_federation

STALLED_SECONDS = 600.0


class RunStarter(Protocol):
    """Whoever starts runs and knows their state."""

    @property
    def logs(self) -> object: ...

    def start_run(self, nodes: int | None = None, **config: Any) -> int: ...

    def run_state(self, run: int) -> Mapping[str, Any]: ...


class NoCommitError(NetworkError):
    """A run that has said why it committed nothing; ``event`` is what it wrote down."""

    def __init__(self, message: str, event: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.event = dict(event)


def simulate(
    root: Path,
    values: Floats,
    owners: Ints,
    *,
    n_clusters: int,
    rounds: int,
    forget: int,
    seed: int = 0,
    disclosure: str = DEFAULT,
    watch: OnStage = lambda what: None,
) -> list[dict[str, Any]]:
    """Set clients up in ``root``, and run rounds; the first is full, later ones are deltas.

    Parameters
    ----------
    values, owners, n_clusters, disclosure : as
        :func:`~fedforget.runtime.flower.trial.make_federation` takes them.
    rounds : how many.
    forget : how many records, drawn from all clients, are forgotten before each later round.
    seed : of that draw.
    watch : told what begins: a client set up, a stage of a round.

    Returns
    -------
    list of dict
        What each round says of itself, as :func:`fedforget.runtime.directories.run` does, with the
        seconds of each stage.
    """
    make_federation(
        root,
        values,
        owners,
        n_clusters=n_clusters,
        disclosure=disclosure,
        progress=lambda: watch("client ready"),
    )
    write_app(root / "app", __version__, server=root / "server", clients=root / "clients")
    n_clients = int(owners.max()) + 1
    rng = np.random.default_rng(seed)
    left = np.arange(len(values))
    results = []
    with Network(root / "net", root / "app", simulation=True) as network:
        network.start_superlink()
        for number in range(rounds):
            if number:
                gone = rng.choice(left, min(forget, len(left)), replace=False)
                left = np.setdiff1d(left, gone)
                forget_records(root, gone, owners)
            results.append(run_once(network, root / "server", n_clients, watch))
    return results


def forget_records(root: Path, ids: Ints, owners: Ints) -> None:
    """Forget records, each at its owner."""
    folders = sorted((root / "clients").iterdir())
    for owner in np.unique(owners[ids]).tolist():
        with open_client(folders[owner]) as client:
            client.forget(ids[owners[ids] == owner])


def run_once(
    network: RunStarter,
    server: Path,
    nodes: int | None,
    watch: OnStage = lambda what: None,
    **config: Any,
) -> dict[str, Any]:
    """One run of one round, followed by what the ServerApp writes into the server's directory.

    ``config`` are values of the run's configuration, such as ``kind`` or ``recover``.
    """
    run = network.start_run(nodes, server=server.absolute(), **config)
    path = server / PROGRESS
    seen, last = 0, time.monotonic()
    committed: dict[str, Any] | None = None
    checked = last
    while True:
        events = read_progress(path, run)
        for event in events[seen:]:
            last = time.monotonic()
            if event["event"] == "stage":
                watch(event["stage"])
            elif event["event"] == "committed":
                committed = {
                    key: value
                    for key, value in event.items()
                    if key not in ("event", "run", "time")
                }
            elif event["event"] in ("aborted", "failed"):
                told = "; ".join([event["reason"], *event.get("advice", [])])
                raise NoCommitError(f"the run ended without a commit: {told}", event)
        seen = len(events)
        if committed is not None and events[-1]["event"] == "end":
            _wait_for_end(network, run)
            return committed
        if time.monotonic() - checked > 10:
            checked = time.monotonic()
            state = network.run_state(run)["status"]
            if state.startswith("finished") and seen == len(read_progress(path, run)):
                raise NetworkError(f"the run is {state} without a commit; see {network.logs}")
        if time.monotonic() - last > STALLED_SECONDS:
            raise NetworkError(f"the run stands still; see {network.logs}")
        time.sleep(0.1)


def _wait_for_end(network: RunStarter, run: int) -> None:
    end = time.monotonic() + 60
    while not network.run_state(run)["status"].startswith("finished"):
        if time.monotonic() > end:
            raise NetworkError(f"the run does not end; see {network.logs}")
        time.sleep(0.5)


def read_progress(path: Path, run: int) -> list[dict[str, Any]]:
    """What a run has written so far; other runs' lines are passed over.

    Where the file was rotated meanwhile, the run began in the one before it.
    """
    lines: list[str] = []
    for one in (path.with_name(path.name + ".1"), path):
        with suppress(FileNotFoundError):
            lines += one.read_text(encoding="utf-8").splitlines(keepends=True)
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in events if event.get("run") == run]
