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
What a removal takes that finds those of a full run is shown beside, as "cold".  "First run" is that
of a server that will follow changes: it keeps what replay needs, and takes the same shortcuts.

Name some sets to run these alone.  ``many-bins`` is MNIST by writer with 2K local clusters, where
trajectories leave their paths; it runs only if it is named, with few removals.

With ``--disclosure`` another table is printed instead: whole removals under the rules of disclosure
that federations of real parties have by default, beside the same removals without rules.  The two
sides take turns, a block of removals at a time.  There, seconds are the processor's: one thread
runs, and other programs would disturb a ratio of two such short times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from time import process_time

import common
import numpy as np
from rich.progress import track

import figures

from fedforget.bench import methods
from fedforget.bench.removals import Pool, retraining_seconds
from fedforget.modelling import model_of, new_server
from fedforget.parties.disclosure import DEFAULT, preset
from fedforget.runtime.local import LocalFederation
from fedforget.warmup import warm_up

REMOVALS = 200
BLOCK = 50
FULL_RUNS = 10  # after each block
COLD = 20  # removals after a full run each
FULL_SECONDS = 60.0  # after which no more full runs are timed
FEW = 48  # removals with many bins
MANY_BINS = "many-bins"
REPLAY_TARGETS = {
    "celltype": 20.0, "covtype": 20.0, "gaussian": 20.0, "femnist": 30.0, MANY_BINS: 30.0
}  # fmt: skip
TURN = 20  # removals until the other side has its turn
SLOWER = 1.2
"""How much longer a removal may take under rules."""
QUICK = ("celltype", "tcga")


def records(name: str) -> common.Dataset:
    """A set by the name that this script has for it."""
    return replace(common.load("femnist"), name=name) if name == MANY_BINS else common.load(name)


def full_run(federation: LocalFederation) -> float:
    """Seconds of one full run at the server; the result must be the replayed one."""
    model, seconds = common.timed(lambda: model_of(federation.config, federation.aggregate))
    assert model.centres.tobytes() == federation.model.centres.tobytes()
    assert (model.loss, model.restart) == (federation.model.loss, federation.model.restart)
    return seconds


def first_run(federation: LocalFederation) -> float:
    """Seconds of a server's first run, which keeps what it needs to follow changes."""
    server = new_server(federation.config)
    return common.timed(lambda: server.run(federation.aggregate))[1]


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("sets", nargs="*", help="names of sets; all of the paper if left out")
    parser.add_argument("--disclosure", action="store_true", help="removals with and without rules")
    given = parser.parse_args()
    for name in set(given.sets) - {*common.PAPER_SETS, MANY_BINS}:
        parser.error(f"there is no set {name!r}")
    common.heading("the server's replay, and whole removals")
    warm_up()
    wanted = given.sets or common.PAPER_SETS
    names = [name for name in wanted if name in QUICK or not given.quick]
    blocks = 1 if given.quick else REMOVALS // BLOCK
    with figures.kept(given):
        if given.disclosure:
            with_and_without_rules(names, blocks * BLOCK)
        else:
            replay_and_retraining(names, blocks * BLOCK)


def with_and_without_rules(names: Sequence[str], count: int) -> None:
    """Print what the default rules of disclosure cost a removal."""
    shown = common.table(
        f"a whole removal, {count} random removals of one record, with and without rules",
        "data", "no rules (mean)", "median", "rules (mean)", "median", "its client", "ratio",
        "of medians", "target",
    )  # fmt: skip
    for name in names:
        many = name == MANY_BINS
        data = records(name)
        rules = preset(DEFAULT, data.step)
        models = [
            methods.ours(data, 0, multiple=1 + many).set_params(**options)
            for options in ({}, vars(rules))
        ]
        for model in models:
            model.fit(data.X, clients=data.clients)
        pool = Pool(data, np.random.default_rng(1))
        victims = [pool.draw(1)[0] for _ in range(FEW if many else count)]
        seconds: tuple[list[float], list[float]] = ([], [])
        clients = [0.0, 0.0]
        # Whoever comes second finds caches as the other one has left them; so they swap.
        for at, first in zip(range(0, len(victims), TURN), cycle((0, 1))):
            for side in (first, 1 - first):
                for victim in victims[at : at + TURN]:
                    began = process_time()
                    report = models[side].forget(victim)
                    seconds[side].append(process_time() - began)
                    clients[side] += report.seconds["clients"] / report.seconds["total"]
        without, under = seconds
        ratio = float(np.mean(under) / np.mean(without))
        figures.record(common.row_name(data), rules_ratio=ratio)
        shown.add_row(
            common.label(data),
            *(
                common.milliseconds(float(of(side)))
                for side in seconds
                for of in (np.mean, np.median)
            ),
            f"{100 * clients[1] / len(under):.0f} %",
            f"{ratio:.2f}",
            f"{np.median(under) / np.median(without):.2f}",
            common.verdict(ratio, SLOWER, at_least=False),
        )
    common.console.print(shown)


def replay_and_retraining(names: Sequence[str], count: int) -> None:
    server = common.table(
        f"one removed record at the server, {count} random removals ({FEW} with many bins)",
        "data", "bins", "full run", "first run", "replay", "95 %", "worst", "cold", "ratio",
        "target",
    )  # fmt: skip
    whole = common.table(
        "a whole removal, re-seeds included, against complete retraining", *common.REMOVAL_COLUMNS
    )
    ratios = []
    for name in names:
        many = name == MANY_BINS
        data = records(name)
        n_removals, in_block = (FEW, FEW) if many else (count, BLOCK)
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
        first = [first_run(federation) for _ in range(times)]
        again = [retraining_seconds(data, seed) for seed in range(times)]
        replays = removals.server
        median_full, median = float(np.median(full)), float(np.median(replays))
        target = REPLAY_TARGETS.get(name)
        server.add_row(
            common.label(data),
            f"{len(federation.aggregate):,}",
            common.milliseconds(median_full),
            common.milliseconds(float(np.median(first))),
            common.milliseconds(median),
            common.milliseconds(float(np.percentile(replays, 95))),
            common.milliseconds(max(replays)),
            common.milliseconds(float(np.median(cold))) if cold else "",
            f"{median_full / median:.0f}×",
            "" if target is None else common.verdict(median_full / median, target),
        )
        ratios.append(removals.speed_up(again))
        whole.add_row(*removals.row(data, again))
        removals.record(data, again)
        figures.record(
            common.row_name(data),
            bins=len(federation.aggregate),
            full_seconds=median_full,
            first_seconds=float(np.median(first)),
            replay_seconds=median,
            replay_95_seconds=float(np.percentile(replays, 95)),
            replay_worst_seconds=max(replays),
            replay_speed_up=median_full / median,
        )
    common.console.print(server)
    common.console.print(whole)
    common.show_mean_speed_up(ratios)


if __name__ == "__main__":
    main()
