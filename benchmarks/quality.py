"""Loss ratios on Celltype with its authors' 100 clients: seeds, means, more clusters, K-means.

Data, methods and reference are those of ``fedforget bench paper`` (experiments ``table1`` and
``local-clusters``): centralised K-means++, the best of 10 starts; step 1/√n, ten seeds.
"""

from __future__ import annotations

import common
import numpy as np

import figures

from fedforget.baselines.retraining import centralised
from fedforget.bench import methods

SEEDS = 10
CASES = [
    ("seeds", 1, 1.17),
    ("means", 1, 1.09),
    ("means", 2, 1.04),
    ("seeds", 4, 1.03),
    ("lloyd", 1, 1.03),
]


def main() -> None:
    given = figures.parser(__doc__).parse_args()
    common.heading("quality on Celltype")
    with figures.kept(given):
        measure(1 if given.quick else SEEDS)


def measure(seeds: int) -> None:
    """Print the table."""
    data = common.load("celltype")
    if common.is_generated(data):
        common.console.print("[yellow]celltype.npz was not found: nothing to measure[/yellow]")
        return
    reference = centralised(data.X, data.n_clusters, n_init=methods.N_INIT).loss
    rows = common.table(
        f"{common.label(data)}, step = {data.step:.4f}; mean and deviation over seeds",
        "representatives, local clusters", "induced loss ratio", "nearest-centre ratio", "target",
    )  # fmt: skip
    for representatives, multiple, target in CASES:
        found = []
        for seed in range(seeds):
            model = methods.ours(data, seed, multiple=multiple, representatives=representatives)
            found.append(methods.losses_of_model(model.fit(data.X, clients=data.clients)))
        induced, nearest = (
            np.array([one[kind] for one in found]) / reference for kind in ("induced", "nearest")
        )
        figures.record(
            f"{representatives}, {multiple} K",
            induced=float(induced.mean()),
            deviation=float(induced.std()),
            nearest=float(nearest.mean()),
        )
        rows.add_row(
            f"{representatives}, {multiple * data.n_clusters}",
            f"{induced.mean():.3f} ± {induced.std():.3f}",
            f"{nearest.mean():.3f} ± {nearest.std():.3f}",
            common.verdict(float(induced.mean()), target, at_least=False),
        )
    common.console.print(rows)


if __name__ == "__main__":
    main()
