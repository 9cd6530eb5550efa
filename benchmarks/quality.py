"""Loss ratios on celltype with its authors' 100 clients: what seeds, means and more clusters buy.

The reference is centralised K-means++ (scikit-learn, best of 10 starts).  Step 1/√n, ten seeds.
"""

from __future__ import annotations

import common
import numpy as np
from sklearn.cluster import KMeans

from fedforget import FederatedKMeans

SEEDS = range(10)
CASES = [("seeds", 4, 1.17), ("means", 4, 1.09), ("means", 8, 1.04), ("seeds", 16, 1.03)]


def main() -> None:
    common.heading("quality on celltype")
    data = common.celltype()
    if not data.real:
        common.console.print(
            f"[yellow]celltype.npz is not at {common.DATA}; nothing to measure[/yellow]"
        )
        return
    n = len(data.X)
    reference = KMeans(data.n_clusters, n_init=10, random_state=0).fit(data.X).inertia_
    rows = common.table(
        f"n = {n:,}, K = {data.n_clusters}, step = {n**-0.5:.4f}; mean and deviation over seeds",
        "representatives, local clusters", "induced loss ratio", "nearest-centre ratio", "target",
    )  # fmt: skip
    for representatives, local, target in CASES:
        induced, nearest = [], []
        for seed in SEEDS:
            model = FederatedKMeans(
                data.n_clusters,
                bounds=(0.0, 1.0),
                step=n**-0.5,
                local_clusters=local,
                representatives=representatives,
                random_state=seed,
            ).fit(data.X, clients=data.clients)
            induced.append(model.induced_inertia_ / reference)
            nearest.append(model.inertia_ / reference)
        rows.add_row(
            f"{representatives}, {local}",
            f"{np.mean(induced):.3f} ± {np.std(induced):.3f}",
            f"{np.mean(nearest):.3f} ± {np.std(nearest):.3f}",
            common.verdict(float(np.mean(induced)), target, at_least=False),
        )
    common.console.print(rows)


if __name__ == "__main__":
    main()
