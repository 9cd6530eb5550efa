"""How much the split decides: Covtype and Gaussian, dealt in other ways than the tables deal them.

The tables of ``fedforget bench paper`` deal both in file order, with K′ = ⌊√K⌋ and seed 0, Covtype
by the clustering whose sizes the paper prints.  Ratios are induced, Covtype's to that clustering.
"""

from __future__ import annotations

import common
import numpy as np

import figures

from fedforget.baselines.lloyd import lloyd
from fedforget.baselines.retraining import centralised
from fedforget.bench import methods, quality
from fedforget.bench.splits import global_clusters, in_file_order, non_iid

COLUMNS = ("MUFC", "K-FED", "DC-KM", "complete client training")


def ratios(words: str, data: common.Dataset, reference: float, trials: int) -> list[str]:
    """The row of a table: mean and deviation of every method, over trials."""
    found = []
    for trial in range(trials):
        model = methods.mufc(data, trial).fit(data.X, clients=data.clients)
        tree = methods.dc_km(data, trial).fit(data.X, data.clients).outcome()
        outcomes = [
            methods.losses_of_model(model),
            methods.losses_of_outcome(data.X, methods.k_fed(data, trial)),
            methods.losses_of_outcome(data.X, tree),
            quality.table_2(data, trial, alternatives=False)["MUFC"],
        ]
        found.append([one["induced"] / reference for one in outcomes])
    mean, deviation = np.mean(found, axis=0), np.std(found, axis=0, ddof=min(1, trials - 1))
    names = ("MUFC", "K_FED", "DC_KM", "complete_client_training")
    figures.record(words, **dict(zip(names, mean.tolist(), strict=True)))
    return [words, *(f"{a:.3f} ± {b:.3f}" for a, b in zip(mean, deviation, strict=True))]


def main() -> None:
    given = figures.parser(__doc__).parse_args()
    common.heading("other splits")
    with figures.kept(given):
        measure(given.quick)


def measure(quick: bool) -> None:
    """Print the table."""
    table = common.table("induced loss ratios", "split", *COLUMNS)
    covtype, gaussian = common.load("covtype"), common.load("gaussian")
    if quick:
        common.console.print("[dim]quick: Gaussian only[/dim]")
    elif common.is_generated(covtype):
        common.console.print("[yellow]covtype.npz was not found: Gaussian only[/yellow]")
    else:
        printed = covtype.clusters
        best = global_clusters(covtype.X, 7)
        reference = lloyd(covtype.X, covtype.X[list(covtype.printed_start)]).loss
        splits = {
            "shuffled, K′ = 2": non_iid(printed, 100, 2),
            "in file order, K′ = 3": in_file_order(printed, 100, 3),
            "dealt by the best of three starts": in_file_order(best, 100, 2),
            **{f"split {seed}": in_file_order(printed, 100, 2, seed=seed) for seed in (1, 2, 3)},
        }
        for words, clients in splits.items():
            data = common.dealt(covtype, clients)
            table.add_row(*ratios(f"Covtype, {words}", data, reference, 5))
    reference = centralised(gaussian.X, 10).loss
    splits = {
        "shuffled, K′ = 3": non_iid(gaussian.clusters, 100, 3),
        "in file order, K′ = 2": in_file_order(gaussian.clusters, 100, 2),
        "dealt by the true clusters, K′ = 3": in_file_order(np.repeat(range(10), 3_000), 100, 3),
    }
    for words, clients in splits.items():
        data = common.dealt(gaussian, clients)
        table.add_row(*ratios(f"Gaussian, {words}", data, reference, 1 if quick else 3))
    common.console.print(table)


if __name__ == "__main__":
    main()
