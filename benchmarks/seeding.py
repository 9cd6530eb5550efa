"""Seeding and whole fits against scikit-learn, on the same rows in the same run.

Seeding: the race alone (keys of the records computed before) against
``kmeans_plusplus(n_local_trials=1)``.  Fit: ``SeededKMeans.fit``, with validation, ids, labels and
sizes, against ``kmeans_plusplus`` followed by ``pairwise_distances_argmin``.
"""

from __future__ import annotations

import common
import numpy as np
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin

import figures
from fedforget import SeededKMeans
from fedforget.clustering.distance import Rows
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.prf import Secret
from fedforget.clustering.race import first_row, new_race, run_race
from fedforget.warmup import warm_up

CASES = [
    ("celltype", 5.0, 2.0, 201),
    ("covtype", 5.0, 3.0, 101),
    ("gaussian", 5.0, 2.0, 101),
    ("femnist", 15.0, 5.0, 10),
]


def main() -> None:
    given = figures.parser(__doc__).parse_args()
    common.heading("seeding and fitting against scikit-learn")
    warm_up()
    with figures.kept(given):
        measure(given.quick)


def measure(quick: bool) -> None:
    """Print both tables."""
    seeding = common.table(
        "seeding alone", "data", "race", "scikit-learn", "ratio", "target", "met"
    )
    fitting = common.table("whole fit", "data", "SeededKMeans", "scikit-learn", "ratio", "target")
    for name, seeding_target, fit_target, repeats in CASES[:1] if quick else CASES:
        data = common.load(name)
        X, k = data.X, data.n_clusters
        keys = keys_of_ids(Secret(bytes(16)), np.arange(len(X)))
        turn = iter(range(10**9))

        def race(X: np.ndarray = X, k: int = k, keys: tuple = keys) -> object:
            state = new_race(len(X))
            run_race(state, Rows(X), keys, k, smallest_id=first_row)
            return state

        def draw(X: np.ndarray = X, k: int = k, turn: object = turn) -> np.ndarray:
            return kmeans_plusplus(X, k, n_local_trials=1, random_state=next(turn))[0]

        def fit(X: np.ndarray = X, k: int = k, turn: object = turn) -> SeededKMeans:
            return SeededKMeans(k, random_state=next(turn)).fit(X)

        def draw_and_assign(X: np.ndarray = X, draw: object = draw) -> np.ndarray:
            return pairwise_distances_argmin(X, draw())

        ours, theirs, our_fit, their_fit = common.median_seconds(
            race, draw, fit, draw_and_assign, repeats=repeats
        )
        figures.record(
            common.row_name(data), seeding_speed_up=theirs / ours, fit_speed_up=their_fit / our_fit
        )
        met = int((race().met > 1).sum())
        seeding.add_row(
            common.label(data),
            common.milliseconds(ours),
            common.milliseconds(theirs),
            f"{theirs / ours:.1f}×",
            common.verdict(theirs / ours, seeding_target),
            f"{met:,}",
        )
        fitting.add_row(
            common.label(data),
            common.milliseconds(our_fit),
            common.milliseconds(their_fit),
            f"{their_fit / our_fit:.1f}×",
            common.verdict(their_fit / our_fit, fit_target),
        )
    common.console.print(seeding)
    common.console.print("[dim]met: records that had to meet more than the first seed[/dim]\n")
    common.console.print(fitting)


if __name__ == "__main__":
    main()
