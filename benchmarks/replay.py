"""What exact forgetting costs: the server's replay, and a whole removal.

First table: one record is removed, the aggregate changes in a few bins, and the server follows, by
replay and by a full run of its own code (10 restarts).  Second table: the whole removal, client
and server, of random records, against complete retraining with scikit-learn: K-means++ with Lloyd
at the slowest client, then K-means++ with 10 restarts at the server on its n points.

Removals and full runs take turns, a block of each at a time, and nothing else runs meanwhile, not
even a progress bar's thread: a server that forgets finds its caches as the last removal left them.
What a removal takes that finds those of a full run is shown beside, as "cold".
"""

from __future__ import annotations

import sys
import time

import common
import numpy as np
from rich.progress import track
from sklearn.cluster import KMeans

from fedforget import FederatedKMeans
from fedforget.modelling import model_of
from fedforget.warmup import warm_up
from fedforget.runtime.local import LocalFederation

REMOVALS = 200
BLOCK = 50
FULL_RUNS = 10  # after each block
COLD = 20  # removals after a full run each
FULL_SECONDS = 60.0  # after which no more full runs are timed
SPEED_UP = 84.0
REPLAY_TARGETS = {"celltype": 20.0, "covtype": 20.0, "Gaussian": 20.0, "mnist_by_writer": 30.0}


def fit(data: common.Dataset) -> FederatedKMeans:
    bounds = np.stack([data.X.min(axis=0), data.X.max(axis=0)], axis=1)
    model = FederatedKMeans(
        data.n_clusters, bounds=bounds, step=len(data.X) ** -0.5, random_state=0
    )
    return model.fit(data.X, clients=data.clients)


def full_run(federation: LocalFederation) -> float:
    """Seconds of one full run at the server; the result must be the replayed one."""
    start = time.perf_counter()
    model = model_of(federation.config, federation.aggregate)
    seconds = time.perf_counter() - start
    assert model.centres.tobytes() == federation.model.centres.tobytes()
    assert (model.loss, model.restart) == (federation.model.loss, federation.model.restart)
    return seconds


def retraining(data: common.Dataset) -> float:
    """Seconds of complete retraining."""
    assert data.clients is not None
    slowest, centres = 0.0, []
    for name in np.unique(data.clients):
        rows = data.X[data.clients == name]
        start = time.perf_counter()
        local = KMeans(min(data.n_clusters, len(rows)), n_init=1, random_state=0).fit(rows)
        slowest = max(slowest, time.perf_counter() - start)
        centres.append(local.cluster_centers_[local.labels_])
    points = np.concatenate(centres)
    start = time.perf_counter()
    KMeans(data.n_clusters, n_init=10, random_state=0).fit(points)
    return slowest + time.perf_counter() - start


def main() -> None:
    common.heading("the server's replay, and whole removals")
    warm_up()
    only = set(sys.argv[1:])
    server = common.table(
        f"one removed record at the server, {REMOVALS} random removals",
        "data", "bins", "full run", "replay", "95 %", "worst", "cold", "ratio", "target",
    )  # fmt: skip
    whole = common.table(
        "a whole removal, re-seeds included, against complete retraining",
        "data", "removal (mean)", "median", "client", "re-seeds", "retraining", "speed-up",
    )  # fmt: skip
    ratios = []
    for make in common.PAPER_SETS:
        data = make()
        if only and data.name not in only:
            continue
        model = fit(data)
        federation = model._federation
        rng = np.random.default_rng(1)
        replays, removals, clients, reseeds, full = [], [], [], 0, []
        victims = rng.permutation(len(data.X))[: REMOVALS + COLD]
        blocks = victims[:REMOVALS].reshape(-1, BLOCK)
        for block in track(
            blocks, data.name, console=common.console, transient=True, auto_refresh=False
        ):
            for victim in block.tolist():
                start = time.perf_counter()
                report = model.forget(victim)
                removals.append(time.perf_counter() - start)
                replays.append(report.seconds["server"])
                clients.append(report.seconds["clients"])
                reseeds += bool(report.reseeded)
            for _ in range(FULL_RUNS):
                if sum(full) < FULL_SECONDS:
                    full.append(full_run(federation))
        cold = []
        for victim in victims[REMOVALS:].tolist() if sum(full) < FULL_SECONDS else ():
            full_run(federation)
            cold.append(model.forget(victim).seconds["server"])
        again = [retraining(data) for _ in range(1 if sum(full) > FULL_SECONDS else 3)]
        median_full, median = float(np.median(full)), float(np.median(replays))
        target = REPLAY_TARGETS.get(data.name)
        server.add_row(
            data.label,
            f"{len(federation.aggregate):,}",
            common.milliseconds(median_full),
            common.milliseconds(median),
            common.milliseconds(float(np.percentile(replays, 95))),
            common.milliseconds(max(replays)),
            common.milliseconds(float(np.median(cold))) if cold else "",
            f"{median_full / median:.0f}×",
            "" if target is None else common.verdict(median_full / median, target),
        )
        ratios.append(float(np.median(again)) / float(np.mean(removals)))
        whole.add_row(
            data.label,
            common.milliseconds(float(np.mean(removals))),
            common.milliseconds(float(np.median(removals))),
            f"{100 * np.sum(clients) / np.sum(removals):.0f} %",
            f"{100 * reseeds / len(removals):.1f} %",
            common.milliseconds(float(np.median(again))),
            f"{ratios[-1]:.0f}×",
        )
    common.console.print(server)
    common.console.print(whole)
    mean = float(np.mean(ratios))
    common.console.print(f"mean speed-up {mean:.0f}×, target {common.verdict(mean, SPEED_UP)}")


if __name__ == "__main__":
    main()
