"""What forgetting costs at a client: ordinary records in batches, and losing a seed.

The server's part is left out here.
"""

from __future__ import annotations

from functools import partial

import common
import numpy as np

import figures

from fedforget import SeededKMeans
from fedforget.warmup import warm_up

BATCH = 1_000
LIMIT_MICROSECONDS = 50.0


def ordinary(n: int, d: int = 50, k: int = 20) -> tuple[float, float, float]:
    """Microseconds a record over batches that contain no seed: first batch, median, worst."""
    model = SeededKMeans(k, random_state=0).fit(common.mixture(n, d, k))
    rng = np.random.default_rng(1)
    pool = rng.permutation(np.setdiff1d(np.arange(n), model.seed_ids_))
    times = []
    for begin in range(0, min(len(pool), 100_000) - BATCH, BATCH):
        ids = pool[begin : begin + BATCH]
        report, seconds = common.timed(partial(model.forget, ids))
        times.append(1e6 * seconds / BATCH)
        assert not report.reseeded
    return times[0], float(np.median(times)), max(times)


def lost_seed(data: common.Dataset, repeats: int) -> tuple[float, float]:
    """Median seconds to forget a seed (each step in turn), and of a fresh fit on what is left."""
    k = data.n_clusters
    model = SeededKMeans(k, random_state=0).fit(data.X)
    keep = np.ones(len(data.X), dtype=bool)
    redraw, fresh = [], []
    for turn in range(repeats):
        victim = int(model.seed_ids_[turn % k])
        redraw.append(common.timed(partial(model.forget, victim))[1])
        keep[victim] = False
    left, ids = data.X[keep], np.flatnonzero(keep)
    for _ in range(repeats):
        fit = partial(SeededKMeans(k, random_state=0).fit, left, ids=ids)
        again, seconds = common.timed(fit)
        fresh.append(seconds)
    assert again.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
    assert (again.labels_ == model.labels_).all()
    return float(np.median(redraw)), float(np.median(fresh))


def main() -> None:
    given = figures.parser(__doc__).parse_args()
    common.heading("forgetting at a client")
    warm_up()
    with figures.kept(given):
        measure(given.quick)


def measure(quick: bool) -> None:
    """Print both tables."""
    rows = common.table(
        f"ordinary records, d = 50, K = 20, batches of {BATCH:,} (µs a record)",
        "n", "first batch", "median", "worst batch", "target",
    )  # fmt: skip
    for n in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
        first, median, worst = ordinary(n)
        figures.record(f"{n:,} records", microseconds=median)
        rows.add_row(
            f"{n:,}",
            f"{first:.2f}",
            f"{median:.2f}",
            f"{worst:.2f}",
            common.verdict(median, LIMIT_MICROSECONDS, at_least=False),
        )
    common.console.print(rows)
    seeds = common.table(
        "a seed, every step in turn", "data", "forget", "fresh fit", "ratio", "target"
    )
    for name in ("celltype",) if quick else ("femnist", "covtype", "gaussian", "celltype"):
        data = common.load(name)
        redraw, fresh = lost_seed(data, 62 if data.X.shape[1] > 100 else 210)
        figures.record(common.row_name(data), lost_seed_speed_up=fresh / redraw)
        seeds.add_row(
            common.label(data),
            common.milliseconds(redraw),
            common.milliseconds(fresh),
            f"{fresh / redraw:.1f}×",
            common.verdict(fresh / redraw, 1.0),
        )
    common.console.print(seeds)


if __name__ == "__main__":
    main()
