"""What exact forgetting costs: the server's replay, and a whole removal.

First table: one record is removed, the aggregate changes in a few bins, and the server follows, by
replay and by a full run of its own code (10 restarts).  Second table: the whole removal, client
and server, against complete retraining with scikit-learn: K-means++ with Lloyd at the slowest
client, then K-means++ with 10 restarts at the server on its n points.

Data, clients, methods, requests (a client drawn at random, then one of its records) and retraining
are those of ``fedforget bench paper``, experiment ``random``; only here nothing else runs between
the removals of a block.

Removals and full runs take turns, a block of each at a time, and nothing else runs meanwhile, not
even a progress bar's thread: a server that forgets finds its caches as the last removal left them.
What a removal takes that finds those of a full run is shown beside, as "cold".

Name some sets to run these alone.  ``many-bins`` is MNIST by writer with 2K local clusters, where
trajectories leave their paths; it runs only if it is named, with few removals.
"""

from __future__ import annotations

import sys
import common
import numpy as np
from rich.progress import track

from fedforget.bench import methods
from fedforget.bench.removals import Pool, retraining_seconds
from fedforget.modelling import model_of
from fedforget.runtime.local import LocalFederation
from fedforget.warmup import warm_up

REMOVALS = 200
BLOCK = 50
FULL_RUNS = 10  # after each block
COLD = 20  # removals after a full run each
FULL_SECONDS = 60.0  # after which no more full runs are timed
FEW = 16  # removals with many bins
MANY_BINS = "many-bins"
REPLAY_TARGETS = {
    "celltype": 20.0, "covtype": 20.0, "gaussian": 20.0, "femnist": 30.0, MANY_BINS: 30.0
}  # fmt: skip


def full_run(federation: LocalFederation) -> float:
    """Seconds of one full run at the server; the result must be the replayed one."""
    model, seconds = common.timed(lambda: model_of(federation.config, federation.aggregate))
    assert model.centres.tobytes() == federation.model.centres.tobytes()
    assert (model.loss, model.restart) == (federation.model.loss, federation.model.restart)
    return seconds


def main() -> None:
    common.heading("the server's replay, and whole removals")
    warm_up()
    only = set(sys.argv[1:])
    server = common.table(
        f"one removed record at the server, {REMOVALS} random removals ({FEW} with many bins)",
        "data", "bins", "full run", "replay", "95 %", "worst", "cold", "ratio", "target",
    )  # fmt: skip
    whole = common.table(
        "a whole removal, re-seeds included, against complete retraining", *common.REMOVAL_COLUMNS
    )
    ratios = []
    for name in (*common.PAPER_SETS, MANY_BINS):
        if name not in (only or common.PAPER_SETS):
            continue
        many = name == MANY_BINS
        data = common.load("femnist" if many else name)
        n_removals, in_block = (FEW, FEW) if many else (REMOVALS, BLOCK)
        model = methods.ours(data, 0, multiple=1 + many).fit(data.X, clients=data.clients)
        federation = model._federation
        pool = Pool(data, np.random.default_rng(1))
        removals, full = common.Removals(), []
        victims = np.array([pool.draw(1)[0] for _ in range(n_removals + COLD)])
        blocks = victims[:n_removals].reshape(-1, in_block)
        for block in track(
            blocks, name, console=common.console, transient=True, auto_refresh=False
        ):
            for victim in block.tolist():
                removals.forget(model, victim)
            for _ in range(FULL_RUNS):
                if sum(full) < FULL_SECONDS:
                    full.append(full_run(federation))
        cold = []
        for victim in victims[n_removals:].tolist() if sum(full) < FULL_SECONDS else ():
            full_run(federation)
            cold.append(model.forget(victim).seconds["server"])
        times = 1 if sum(full) > FULL_SECONDS else 3
        again = [retraining_seconds(data, seed) for seed in range(times)]
        replays = removals.server
        median_full, median = float(np.median(full)), float(np.median(replays))
        target = REPLAY_TARGETS.get(name)
        server.add_row(
            common.label(data),
            f"{len(federation.aggregate):,}",
            common.milliseconds(median_full),
            common.milliseconds(median),
            common.milliseconds(float(np.percentile(replays, 95))),
            common.milliseconds(max(replays)),
            common.milliseconds(float(np.median(cold))) if cold else "",
            f"{median_full / median:.0f}×",
            "" if target is None else common.verdict(median_full / median, target),
        )
        ratios.append(removals.speed_up(again))
        whole.add_row(*removals.row(data, again))
    common.console.print(server)
    common.console.print(whole)
    common.show_mean_speed_up(ratios)


if __name__ == "__main__":
    main()
