"""Peak memory of a fit, beyond the data itself, measured by the operating system.

Each fit runs in a process of its own; the peak before the fit is taken off.
"""

from __future__ import annotations

import multiprocessing
import resource
from multiprocessing.connection import Connection

import common
import numpy as np

import figures

ROWS, FEATURES = 1_000_000, 50
K = 20


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(kind: str, n: int, pipe: Connection) -> None:
    from fedforget import FederatedKMeans, SeededKMeans
    from fedforget.warmup import warm_up

    warm_up()
    X = np.random.default_rng(0).random((n, FEATURES))
    clients = np.arange(len(X)) % 10
    before = peak()
    if kind == "SeededKMeans":
        model = SeededKMeans(K, random_state=0).fit(X)
    elif kind == "FederatedKMeans, 1 client":
        model = FederatedKMeans(K, bounds=(0, 1), step=0.01, random_state=0).fit(X)
    else:
        model = FederatedKMeans(K, bounds=(0, 1), step=0.01, random_state=0)
        model.fit(X, clients=clients)
    pipe.send((peak() - before, X.nbytes, len(model.ids_)))


def main() -> None:
    given = figures.parser(__doc__).parse_args()
    with figures.kept(given):
        compare(ROWS // 20 if given.quick else ROWS)


def compare(n_rows: int) -> None:
    """Print the table."""
    common.heading(f"additional memory of a fit on {n_rows:,} × {FEATURES}, K = {K}")
    rows = common.table("peak resident memory beyond the data", "", "MiB", "of the data", "target")
    context = multiprocessing.get_context("spawn")
    for kind in ("SeededKMeans", "FederatedKMeans, 1 client", "FederatedKMeans, 10 clients"):
        receiver, sender = context.Pipe(duplex=False)
        worker = context.Process(target=measure, args=(kind, n_rows, sender))
        worker.start()
        extra, data, n = receiver.recv()
        worker.join()
        assert n == n_rows
        figures.record(kind, memory=extra / data)
        rows.add_row(
            kind,
            f"{extra / 2**20:,.0f}",
            f"{extra / data:.2f}×",
            common.verdict(extra / data, 1.5, at_least=False),
        )
    common.console.print(rows)


if __name__ == "__main__":
    main()
