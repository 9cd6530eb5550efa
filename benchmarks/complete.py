"""Complete client training that forgets: ``representatives="lloyd"`` with K local clusters.

First table: induced and nearest-centre loss over that of centralised K-means++ (the best of 10
starts), beside means and seeds.  Second table: a whole exact removal, client and server, against
complete retraining with scikit-learn: K-means++ with Lloyd at the slowest client, then K-means++
with 10 restarts at the server on its n points.

Data, clients, requests (a client drawn at random, then one of its records) and retraining are those
of ``benchmarks/replay.py``.  Names of sets on the command line choose among them; ``--fast`` leaves
the losses out.
"""

from __future__ import annotations

import common
import numpy as np
from rich.progress import track

import figures

from fedforget.baselines.retraining import centralised
from fedforget.bench import methods
from fedforget.bench.plan import HEAVY
from fedforget.bench.removals import Pool, retraining_seconds
from fedforget.modelling import model_of
from fedforget.warmup import warm_up

REMOVALS = 200
SEEDS = 5
REPRESENTATIVES = ("seeds", "means", "lloyd")
RATIO_TARGETS = {"celltype": 1.03, "gaussian": 1.03}
QUICK = ("celltype", "tcga")


def loss_ratios(data: common.Dataset, representatives: str, reference: float) -> np.ndarray:
    """Induced and nearest-centre loss ratios of some seeds, one row each."""
    found = []
    for seed in range(1 if data.name in HEAVY else SEEDS):
        model = methods.ours(data, seed, representatives=representatives)
        losses = methods.losses_of_model(model.fit(data.X, clients=data.clients))
        found.append((losses["induced"], losses["nearest"]))
    return np.array(found) / reference


def time_removals(data: common.Dataset, count: int) -> common.Removals:
    """Remove records, then compare the model with that of a full run."""
    model = methods.ours(data, 0, representatives="lloyd").fit(data.X, clients=data.clients)
    pool, removals = Pool(data, np.random.default_rng(1)), common.Removals()
    victims = [pool.draw(1)[0] for _ in range(count)]
    for victim in track(
        victims, data.name, console=common.console, transient=True, auto_refresh=False
    ):
        removals.forget(model, victim)
    federation = model._federation
    again = model_of(federation.config, federation.aggregate)
    assert again.centres.tobytes() == federation.model.centres.tobytes()
    return removals


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("sets", nargs="*", help="names of sets; all of the paper if left out")
    parser.add_argument("--fast", action="store_true", help="without the losses")
    given = parser.parse_args()
    common.heading("complete client training that forgets")
    warm_up()
    with figures.kept(given):
        names = given.sets or [one for one in common.PAPER_SETS if one in QUICK or not given.quick]
        measure(
            names, losses=not (given.fast or given.quick), count=20 if given.quick else REMOVALS
        )


def measure(names: list[str], *, losses: bool, count: int) -> None:
    """Print both tables."""
    quality = common.table(
        f"induced loss ratio (nearest-centre ratio), mean over {SEEDS} seeds",
        "data", *REPRESENTATIVES, "target",
    )  # fmt: skip
    whole = common.table(
        'a whole removal with representatives="lloyd", re-seeds included', *common.REMOVAL_COLUMNS
    )
    ratios = []
    for name in names:
        data = common.load(name)
        removals = time_removals(data, count)
        times = 1 if name in HEAVY else 3
        again = [retraining_seconds(data, seed) for seed in range(times)]
        ratios.append(removals.speed_up(again))
        whole.add_row(*removals.row(data, again))
        removals.record(data, again)
        if not losses:
            continue
        reference = centralised(data.X, data.n_clusters, n_init=methods.N_INIT).loss
        means = {
            one: loss_ratios(data, one, reference).mean(axis=0).tolist() for one in REPRESENTATIVES
        }
        figures.record(
            common.row_name(data), **{f"{one}_loss": induced for one, (induced, _) in means.items()}
        )
        target = RATIO_TARGETS.get(name)
        quality.add_row(
            common.label(data),
            *(f"{induced:.3f} ({nearest:.3f})" for induced, nearest in means.values()),
            "" if target is None else common.verdict(means["lloyd"][0], target, at_least=False),
        )
    if quality.row_count:
        common.console.print(quality)
    common.console.print(whole)
    common.show_mean_speed_up(ratios)


if __name__ == "__main__":
    main()
