"""Rounds over Flower: seconds a stage and a round, beside what empty stages cost there.

Real processes on loopback (a SuperLink and SuperNodes, TLS and node authentication) and Flower's
simulation engine.  ``--nodes N`` and ``--simulated N`` measure one size alone.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import common  # noqa: F401
import numpy as np

import figures

from fedforget import __version__
from fedforget.runtime.flower.app_folder import PACKAGE, write_app
from fedforget.runtime.flower.network import Network
from fedforget.runtime.flower.simulation import forget_records, run_once
from fedforget.runtime.flower.trial import make_federation

STAGES = ("advertise", "share", "masked input", "consistency", "unmask", "commit")

_EMPTY_SERVER = """
import json, time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    wanted, seconds = int(context.run_config["rounds"]), []
    while len(list(grid.get_node_ids())) < wanted:
        time.sleep(0.3)
    for _ in range(7):
        start = time.perf_counter()
        messages = [
            Message(RecordDict({"letter": ConfigRecord({"data": b""})}), dst_node_id=node,
                    message_type="query.empty", ttl=600.0)
            for node in grid.get_node_ids()
        ]
        waiting = set(grid.push_messages(messages))
        while waiting:
            waiting -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(waiting)}
            if waiting:
                time.sleep(0.3)
        seconds.append(time.perf_counter() - start)
    with open(context.run_config["server"], "w") as file:
        json.dump(seconds, file)
"""
_EMPTY_CLIENT = """
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query("empty")
def empty(message, context):
    return Message(RecordDict({"letter": ConfigRecord({"data": b""})}), reply_to=message)
"""


def empty_app(folder: Path) -> Path:
    """An app whose stages do nothing."""
    write_app(folder, __version__)
    (folder / PACKAGE / "server_app.py").write_text(_EMPTY_SERVER)
    (folder / PACKAGE / "client_app.py").write_text(_EMPTY_CLIENT)
    return folder


def empty_stages(network: Network, app: Path, out: Path, n: int, nodes: int | None) -> list[float]:
    real, network.app = network.app, app
    try:
        network.start_run(nodes, server=out, rounds=n)
    finally:
        network.app = real
    end = time.monotonic() + 600
    while not out.exists() or not out.read_text():
        if time.monotonic() > end:
            raise TimeoutError(f"no empty stages; see {network.logs}")
        time.sleep(0.2)
    time.sleep(0.2)
    # The first one starts workers up, as the search for members does in a round.
    return json.loads(out.read_text())[1:]


def measure(n: int, simulation: bool) -> None:
    rng = np.random.default_rng(0)
    values, owners = rng.uniform(0, 1, (100 * n, 4)), np.arange(100 * n) % n
    with tempfile.TemporaryDirectory(prefix="ff-") as folder:
        root = Path(folder)
        (root / "study").mkdir(mode=0o700)
        make_federation(root / "study", values, owners, n_clusters=4, deadline=300.0)
        server, clients = root / "study" / "server", root / "study" / "clients"
        write_app(root / "app", __version__, server=server, clients=clients)
        empty = empty_app(root / "empty")
        with Network(root / "net", root / "app", simulation=simulation) as network:
            network.start_superlink()
            if not simulation:
                for path in sorted(clients.iterdir()):
                    network.register(path.name)
                    network.start_node(path.name, path)
            nodes = n if simulation else None
            rounds = [run_once(network, server, nodes)]
            forget_records(root / "study", np.array([1]), owners)
            rounds.append(run_once(network, server, nodes))
            nothing = empty_stages(network, empty, root / "seconds.json", n, nodes)
    kind = "simulated clients" if simulation else "SuperNodes"
    for result in rounds:
        stages = [result["stages"][stage] for stage in STAGES]
        cells = " | ".join(f"{seconds:.1f}" for seconds in stages)
        total = sum(stages)
        keep(f"{n} {kind}, {result['kind']}", stages)
        print(f"| {n} {kind} | {result['kind']} | {cells} | {total:.1f} |", flush=True)
    cells = " | ".join(f"{seconds:.1f}" for seconds in nothing)
    keep(f"{n} {kind}, empty", nothing)
    print(
        f"| {n} {kind} | empty | {cells} | {sum(nothing):.1f} |"
        f"   (median stage {statistics.median(nothing):.2f} s)",
        flush=True,
    )


def keep(row: str, seconds: list[float]) -> None:
    """The seconds of every stage."""
    names = (stage.replace(" ", "_") for stage in STAGES)
    figures.record(row, **dict(zip(names, seconds, strict=True)))


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--simulated", type=int, action="append")
    asked = parser.parse_args()
    nodes, simulated = asked.nodes or [], asked.simulated or []
    if not nodes and not simulated:
        nodes, simulated = ([], [3]) if asked.quick else ([3, 5], [10, 100])
    print(f"| | round | {' | '.join(STAGES)} | all |")
    print("|---" * (len(STAGES) + 3) + "|")
    with figures.kept(asked):
        for n in nodes:
            measure(n, simulation=False)
        for n in simulated:
            measure(n, simulation=True)


if __name__ == "__main__":
    main()
