"""The secure sum at Celltype's shape: CPU, memory and traffic of full and delta rounds.

All parties run in this process, in one thread; time is CPU time.  ``--all`` goes up to 1,000
clients, ``--clients N`` measures one size alone (and so its memory).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections import defaultdict

import common
import numpy as np

import figures

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Policy, plan
from fedforget.protocol.history import Place, next_list
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Member
from fedforget.protocol.server_side import ServerSide
from fedforget.warmup import warm_up

N_FEATURES, LEVELS, N_CLUSTERS = 10, 111, 4
TARGETS = {"full": 6.0, "delta": 4.0}


class Parties:
    """A server and its clients, each with a histogram of K bins."""

    def __init__(self, n: int) -> None:
        self.rng = np.random.default_rng(0)
        identity = Identity(os.urandom(32))
        levels = (LEVELS,) * N_FEATURES
        federation = Federation(os.urandom(16), bytes(32), identity.public, levels, policy=Policy())
        members = {f"client-{i}": Identity(os.urandom(32)) for i in range(n)}
        membership = next_list(
            None,
            Place(),
            federation=federation.identifier,
            members=[Member(name, member.public.data) for name, member in members.items()],
            capacity=N_CLUSTERS * n,
        )
        self.notices: list[bytes] = []
        self.server = ServerSide(
            identity, federation, membership, notices=lambda after: self.notices[after:]
        )
        self.histograms = {name: self.histogram() for name in members}
        self.clients = {
            name: ClientSide(name, member, federation, [membership], self._current(name))
            for name, member in members.items()
        }

    def histogram(self) -> Histogram:
        bins = self.rng.integers(0, LEVELS, (N_CLUSTERS, N_FEATURES))
        return Histogram.of(bins, self.rng.integers(1, 60, N_CLUSTERS))

    def _current(self, name: str):
        return lambda: self.histograms[name]

    def round(self, kind: str) -> tuple[dict[str, float], dict[str, list[int]]]:
        """CPU seconds of the clients and the server, and the sizes of what clients send."""
        seconds, sizes = defaultdict(float), defaultdict(list)
        start = time.process_time()
        question = self.server.ask()
        for client in self.clients.values():
            before = time.process_time()
            answer = client.receive(question)
            seconds["clients"] += time.process_time() - before
            self.server.greet(answer)
        messages = self.server.open(kind)
        while True:
            stage = self.server.stage.title
            for name, data in messages:
                before = time.process_time()
                answer = self.clients[name].receive(data)
                seconds["clients"] += time.process_time() - before
                sizes["received"].append(len(data))
                if answer is not None:
                    sizes[stage].append(len(answer))
                    self.server.receive(answer)
            if stage == "idle":
                break
            messages = self.server.advance()
            if self.server.result is not None:
                total = self.server.result.total
                messages = self.server.commit(bytes(32))
                self.notices.append(self.server.last_notice)
        seconds["all"] = time.process_time() - start
        assert kind == "delta" or total == Histogram.sum(N_FEATURES, self.histograms.values())
        return seconds, sizes


def measure(n: int) -> None:
    """One line of each table, printed for the process that asked for it."""
    warm_up()
    parties = Parties(n)
    full, full_sizes = parties.round("full")
    parties.histograms["client-0"] = parties.histogram()
    delta, delta_sizes = parties.round("delta")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    codec = parties.server.federation.codec(N_CLUSTERS * n, bytes(16))

    def mean(sizes: dict[str, list[int]], stage: str) -> float:
        return float(np.mean(sizes[stage]))

    stages = ("advertise", "share", "masked input", "consistency", "unmask")
    numbers = [
        full["all"], full["clients"] / n, delta["all"], delta["clients"] / n, memory,
        codec.bits / 8, codec.packed_bytes / codec.with_capacity(16).packed_bytes,
        *(mean(full_sizes, stage) for stage in stages),
        mean(delta_sizes, "masked input"), np.sum(full_sizes["received"]) / n,
    ]  # fmt: skip
    print(*numbers)


def measured(n: int) -> list[float]:
    """The same, in a process of its own."""
    command = [sys.executable, __file__, "--clients", str(n), "--plain"]
    return [float(x) for x in subprocess.check_output(command, text=True).split()]


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--plain", action="store_true", help="numbers only")
    arguments = parser.parse_args()
    if arguments.plain:
        measure(arguments.clients)
        return
    warm_up()
    sizes: tuple[int, ...] = (10, 30, 100, 300, 1_000) if arguments.all else (10, 30, 100)
    if arguments.quick:
        sizes = (10, 100)
    if arguments.clients:
        sizes = (arguments.clients,)
    with figures.kept(arguments):
        compare(sizes)


def compare(sizes: tuple[int, ...]) -> None:
    """Print both tables."""
    common.heading("the secure sum, d = 10, 111 levels, K = 4, dropout 0.1, colluding 0.1")
    time_table = common.table(
        "CPU of all parties together, and of a client",
        "clients", "degree", "threshold", "full round", "a client", "delta round", "a client",
        "target", "memory",
    )  # fmt: skip
    traffic_table = common.table(
        "bytes that a client sends, by stage (full round), and receives",
        "clients", "keys", "shares", "masked", "over the code", "signature", "reveal",
        "masked (delta)", "its vector", "received",
    )  # fmt: skip
    for n in sizes:
        (full, full_client, delta, delta_client, memory, code, smaller,
         keys, shares, masked, consent, reveal, small, received) = measured(n)  # fmt: skip
        figures.record(
            f"{n:,} clients",
            full_seconds=full,
            delta_seconds=delta,
            client_seconds=full_client,
            mebibytes=memory,
            masked_bytes=masked,
            masked_over_code=masked / code,
            other_bytes=keys + shares + consent + reveal,
        )
        graph = plan(n, Policy())
        time_table.add_row(
            str(n), str(graph.degree), str(graph.threshold),
            f"{full:.2f} s", f"{1e3 * full_client:.1f} ms",
            f"{delta:.2f} s", f"{1e3 * delta_client:.1f} ms",
            f"{common.verdict(full, 6.0, at_least=False)}, "
            f"{common.verdict(delta, 4.0, at_least=False)} s" if n == 100 else "",
            f"{memory:.0f} MiB",
        )  # fmt: skip
        traffic_table.add_row(
            str(n), f"{keys:.0f}", f"{shares:.0f}", f"{masked:.0f}", f"{masked / code:.3f}×",
            f"{consent:.0f}", f"{reveal:.0f}", f"{small:.0f}", f"{smaller:.1f}× shorter",
            f"{received:.0f}",
        )  # fmt: skip
    common.console.print(time_table)
    common.console.print(traffic_table)


if __name__ == "__main__":
    main()
