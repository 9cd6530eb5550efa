"""What K-means that forgets costs: a fit, one removed record, a batch; and what it finds.

Fits: ``fedforget.KMeans`` and scikit-learn's, one start each, the same tolerance, taking turns over
several seeds.  Ours records in its fit all that a later ``forget`` needs.  Removals: random records
one after the other, each timed with reading ``cluster_centers_``, against scikit-learn's fit on
what is left.  Batches: 1,000 records at once, against the same and against our own fit; one after
the other, and in turns with scikit-learn's fits.  Losses: the mean over many seeds.  Greedy
seeding, the default of both, is compared with scikit-learn's default, and plain seeding with its
Lloyd's iteration from plain seeds.  Memory: what a fit takes, and what removals cost with less.

Data are those of ``benchmarks/replay.py`` without their clients, and overlapping blobs.  Name some
sets to run these alone; ``--quick`` leaves out what takes minutes.
"""

from __future__ import annotations

import multiprocessing
import resource
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection

import common
import numpy as np
from rich.progress import track
from sklearn.cluster import KMeans as Theirs
from sklearn.cluster import kmeans_plusplus

import figures
from fedforget import KMeans
from fedforget.arrays import Ints
from fedforget.warmup import warm_up

REMOVALS = 200
WARM_UP = 20
SEEDS, MANY_SEEDS = 40, 400
PLAIN = "fedforget, plain seeds"
SHORT, LONG, VERY_LONG = 0.03, 1.0, 10.0
"""Seconds of a fit up to which more seeds, and from which fewer fits and seeds are run."""

FIT, WORST_FIT = 1.0, 2.0
FORGET, WORST_FORGET, BLOBS_FORGET = 40.0, 8.0, 150.0
LOSS, BATCH, SLOPE, MEMORY = 1.005, 5.0, 0.4, 4.0
BATCHES, BATCH_SIZE = 3, 1000
"""Batches of each of three models, and records of a batch."""


@dataclass(frozen=True)
class Case:
    """A set without clients."""

    name: str
    label: str
    X: np.ndarray
    n_clusters: int


def blobs(n: int, d: int = 20, k: int = 10) -> np.ndarray:
    """Overlapping blobs: centres are about four standard deviations apart."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(k, d))
    X = np.empty((n, d))
    # In parts, so that memory is not at its peak before the fit.
    for part in np.array_split(X, max(1, n // 10_000)):
        part[:] = centres[rng.integers(k, size=len(part))]
        part += rng.normal(0.0, 1.5, size=part.shape)
    return X


def cases(wanted: set[str], quick: bool) -> list[Case]:
    found = []
    for name in common.PAPER_SETS:
        if (not wanted or name in wanted) and not (quick and name == "femnist"):
            data = common.load(name)
            X = np.ascontiguousarray(data.X, dtype=np.float64)
            found.append(Case(common.row_name(data), common.label(data), X, data.n_clusters))
    if not wanted or "blobs" in wanted:
        n = 100_000 if quick else 1_000_000
        found.append(Case(f"blobs {n:,}", f"blobs {n:,} × 20, K = 10", blobs(n), 10))
    return found


def fewer(seconds: float, many: int, some: int, few: int) -> int:
    """How often to repeat what takes about as long as a fit, or a part of that."""
    if seconds > VERY_LONG:
        return few
    return some if seconds > LONG else many


def ours(case: Case, seed: int, **options: str | int) -> KMeans:
    return KMeans(case.n_clusters, random_state=seed, **options).fit(case.X)


def theirs(X: np.ndarray, k: int, seed: int) -> Theirs:
    return Theirs(k, n_init=1, random_state=seed).fit(X)


# -- fits ------------------------------------------------------------------------------------------


def others() -> dict[str, object]:
    """Fits of other libraries, where they are installed."""
    found = {}
    if find_spec("sklearnex"):
        from sklearnex.cluster import KMeans as Intel

        found["scikit-learn-intelex"] = lambda X, k, seed: Intel(
            k, n_init=1, random_state=seed, algorithm="lloyd"
        ).fit(X)
    if find_spec("faiss"):
        import faiss

        faiss.omp_set_num_threads(1)
        found["faiss, 25 iterations"] = lambda X, k, seed: faiss.Kmeans(
            X.shape[1], k, niter=25, seed=seed, max_points_per_centroid=2**31 - 1
        ).train(X.astype(np.float32))
    return found


def time_fits(case: Case, times: int) -> dict[str, list[float]]:
    """Seconds of fits, in turns, by library."""
    X, k = case.X, case.n_clusters
    sides = {
        "fedforget": partial(ours, case),
        PLAIN: partial(ours, case, seeding="plain"),
        "scikit-learn": lambda seed: theirs(X, k, seed),
    }
    sides |= {name: partial(fit, X, k) for name, fit in others().items()}
    seconds = {name: [] for name in sides}
    for seed in range(times):
        for name, fit in sides.items():
            seconds[name].append(common.timed(partial(fit, seed))[1])
    return seconds


# -- removals --------------------------------------------------------------------------------------


@dataclass
class Removals:
    """Seconds of single removals, and of scikit-learn's fits on what all of them leave.

    ``redrawn`` counts those after which a restart had another seed.
    """

    seconds: list[float]
    fits: list[float]
    redrawn: int = 0


def removed(n: int, count: int) -> Ints:
    """Random records."""
    return np.random.default_rng(1).permutation(n)[:count]


def removals(model: KMeans, n: int, count: int, warm_up: int = WARM_UP) -> Removals:
    """Some of n records go one after the other; those of the warm-up are not timed."""
    found = Removals([], [])
    for number, victim in enumerate(removed(n, warm_up + count).tolist()):

        def remove(victim: int = victim) -> object:
            report = model.forget(victim)
            assert len(model.cluster_centers_)
            return report

        report, time = common.timed(remove)
        if number >= warm_up:
            found.seconds.append(time)
            found.redrawn += bool(report.reseeded)
    return found


def removals_of_all(case: Case, seconds: float, **options: str) -> Removals:
    """:func:`removals` for several random states, because trajectories differ in length."""
    states = fewer(seconds, 9, 3, 1)
    count, warm = fewer(seconds, REMOVALS, REMOVALS, 5), fewer(seconds, WARM_UP, WARM_UP, 1)
    found = Removals([], [])
    of_each = -(-count // states)
    rest = np.delete(case.X, removed(len(case.X), warm + of_each), axis=0)
    for state in range(states):
        some = removals(ours(case, state, **options), len(case.X), of_each, warm)
        found.seconds += some.seconds
        found.redrawn += some.redrawn
        found.fits.append(common.timed(partial(theirs, rest, case.n_clusters, state))[1])
    return found


def compare(chosen: list[Case]) -> None:
    """The two tables of fits and removals."""
    fits = common.table(
        "a fit, one start",
        "data", "fedforget", "scikit-learn", "ratio", "target", "plain seeds, ratio", *others(),
    )  # fmt: skip
    forgets = common.table(
        "one removed record", "data", "median", "mean", "95 %", "redrawn", "fit on the rest",
        "speed-up", "target", "plain seeds, speed-up",
    )  # fmt: skip
    ratios, gains = [], []
    for case in track(chosen, "fits and removals", console=common.console, transient=True):
        _, first = common.timed(lambda case=case: ours(case, 0))
        seconds = time_fits(case, fewer(first, 9, 3, 1))
        medians = {name: float(np.median(times)) for name, times in seconds.items()}
        ratios.append(medians["fedforget"] / medians["scikit-learn"])
        fits.add_row(
            case.label,
            common.milliseconds(medians["fedforget"]),
            common.milliseconds(medians["scikit-learn"]),
            f"{ratios[-1]:.2f}×",
            common.verdict(ratios[-1], WORST_FIT, at_least=False),
            f"{medians[PLAIN] / medians['scikit-learn']:.2f}×",
            *(common.milliseconds(medians[name]) for name in others()),
        )
        greedy = removals_of_all(case, first)
        plain = removals_of_all(case, first, seeding="plain")
        median, mean = float(np.median(greedy.seconds)), float(np.mean(greedy.seconds))
        # Both models are compared with the same fits: scikit-learn's default.
        fit = float(np.median(greedy.fits + plain.fits))
        gains.append(fit / median)
        others_found = {
            f"{name.split(',')[0]}_seconds": medians[name] for name in medians if name in others()
        }
        figures.record(
            case.name,
            fit_seconds=medians["fedforget"],
            their_fit_seconds=medians["scikit-learn"],
            fit_ratio=ratios[-1],
            plain_fit_ratio=medians[PLAIN] / medians["scikit-learn"],
            forget_seconds=median,
            forget_mean_seconds=mean,
            removals=len(greedy.seconds),
            forget_speed_up=gains[-1],
            plain_forget_speed_up=fit / float(np.median(plain.seconds)),
            **others_found,
        )
        target = BLOBS_FORGET if case.label.startswith("blobs 1,") else WORST_FORGET
        forgets.add_row(
            case.label,
            common.milliseconds(median),
            common.milliseconds(mean),
            common.milliseconds(float(np.percentile(greedy.seconds, 95))),
            f"{100 * greedy.redrawn / len(greedy.seconds):.1f} %",
            common.milliseconds(fit),
            f"{gains[-1]:.0f}×",
            common.verdict(gains[-1], target),
            f"{fit / float(np.median(plain.seconds)):.0f}×",
        )
    common.console.print(fits)
    mean = float(np.exp(np.mean(np.log(ratios))))
    common.console.print(
        f"geometric mean {mean:.2f}×, target {common.verdict(mean, FIT, at_least=False)}\n"
    )
    common.console.print(forgets)
    figures.record("geometric mean", fit_ratio=mean)
    mean = float(np.exp(np.mean(np.log(gains))))
    figures.record("geometric mean", forget_speed_up=mean)
    common.console.print(f"geometric mean {mean:.0f}×, target {common.verdict(mean, FORGET)}\n")


# -- more records, and many at once ----------------------------------------------------------------


def batches(
    case: Case, model: KMeans, gone: Ints, seed: int, *, in_turns: bool = False
) -> list[tuple[float, float]]:
    """Successive batches: seconds of each, and of scikit-learn's fit on what it leaves.

    ``gone`` are the records that the model has forgotten before.  As single removals do, batches
    follow each other, and so do the fits.  Or both sides take turns: then each finds the
    processor's caches full of what the other has used.
    """
    n = len(case.X)
    order = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(n), gone))
    ends = [(number + 1) * BATCH_SIZE for number in range(BATCHES)]

    def remove(end: int) -> float:
        def change() -> None:
            model.forget(order[end - BATCH_SIZE : end])
            assert len(model.cluster_centers_)

        return common.timed(change)[1]

    def fit(end: int) -> float:
        rest = case.X[np.sort(order[end:])]
        return common.timed(partial(theirs, rest, case.n_clusters, seed))[1]

    if in_turns:
        return [(remove(end), fit(end)) for end in ends]
    ours = [remove(end) for end in ends]
    return list(zip(ours, [fit(end) for end in ends], strict=True))


def scale(quick: bool) -> None:
    """One distribution, more and more records."""
    rows = common.table(
        "blobs × 20, K = 10: one removal, a batch of 1,000, and scikit-learn's fit on the rest",
        "records", "one removal", "batch", "our fit", "our fit / batch",
        "fit on the rest", "speed-up", "target", "in turns",
    )  # fmt: skip
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    medians = []
    for n in sizes:
        case = Case("", "", blobs(n), 10)
        fits, single, many, turns = [], [], [], []
        gone = removed(n, WARM_UP + 50)
        # Trajectories differ in length from seed to seed.
        models = 3 if quick else 5 if n > 100_000 else 9
        for seed in range(models):
            model, seconds = common.timed(lambda case=case, seed=seed: ours(case, seed))
            fits.append(seconds)
            single += removals(model, n, 50).seconds
            many += batches(case, model, gone, 2 + seed)
            again = ours(case, seed)
            removals(again, n, 50)
            turns += batches(case, again, gone, 2 + seed, in_turns=True)
        medians.append(float(np.median(single)))
        fit = float(np.median(fits))
        batch, rest = np.median(many, axis=0).tolist()
        in_turns, rest_in_turns = np.median(turns, axis=0).tolist()
        figures.record(
            f"blobs {n:,}",
            models=models,
            removal_seconds=medians[-1],
            batch_speed_up=rest / batch,
            batch_in_turns=rest_in_turns / in_turns,
            batch_over_own_fit=fit / batch,
        )
        rows.add_row(
            f"{n:,}",
            common.milliseconds(medians[-1]),
            common.milliseconds(batch),
            common.milliseconds(fit),
            f"{fit / batch:.1f}×",
            common.milliseconds(rest),
            f"{rest / batch:.1f}×",
            common.verdict(rest / batch, BATCH),
            f"{rest_in_turns / in_turns:.1f}×",
        )
    common.console.print(rows)
    slope = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
    figures.record("blobs", slope=slope)
    common.console.print(
        f"log time over log n: slope {slope:.2f},"
        f" target {common.verdict(slope, SLOPE, at_least=False)}\n"
    )


# -- losses ----------------------------------------------------------------------------------------


def losses(chosen: list[Case]) -> None:
    """Mean losses over many seeds."""
    rows = common.table(
        "mean loss over seeds, ours over theirs",
        "data", "seeds", "greedy", "standard error", "target", "plain", "target",
        "plain over their greedy",
    )  # fmt: skip
    for case in track(chosen, "losses", console=common.console, transient=True):
        X, k = case.X, case.n_clusters
        _, seconds = common.timed(lambda case=case: ours(case, 0))
        seeds = MANY_SEEDS if seconds < SHORT else fewer(seconds, SEEDS, 3, 1)
        found = {"greedy": [], "plain": [], "their greedy": [], "their plain": []}
        for seed in range(seeds):
            for seeding in ("greedy", "plain"):
                found[seeding].append(ours(case, seed, seeding=seeding).inertia_)
            start, _ = kmeans_plusplus(X, k, n_local_trials=1, random_state=seed)
            found["their plain"].append(Theirs(k, init=start, n_init=1).fit(X).inertia_)
            found["their greedy"].append(theirs(X, k, seed).inertia_)
        mean = {name: float(np.mean(values)) for name, values in found.items()}
        greedy, plain = (mean[name] / mean[f"their {name}"] for name in ("greedy", "plain"))
        # Both means are estimates; where local minima differ, they scatter by more than the target.
        spread = [np.var(found[name]) / mean[name] ** 2 for name in ("greedy", "their greedy")]
        error = greedy * float(np.sqrt(sum(spread) / seeds))
        over_greedy = mean["plain"] / mean["their greedy"]
        figures.record(
            case.name,
            loss_ratio=greedy,
            loss_error=error,
            plain_loss_ratio=plain,
            plain_over_greedy=over_greedy,
            seeds=seeds,
        )
        rows.add_row(
            case.label,
            str(seeds),
            f"{greedy:.4f}",
            f"{error:.4f}",
            common.verdict(greedy, LOSS + 2.0 * error, at_least=False),
            f"{plain:.4f}",
            common.verdict(plain, LOSS, at_least=False),
            f"{over_greedy:.4f}",
        )
    common.console.print(rows)


# -- memory ----------------------------------------------------------------------------------------


def measure(n: int, pipe: Connection) -> None:
    """In a process of its own: by how much a fit raises the peak."""
    warm_up()
    X = blobs(n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = KMeans(10, random_state=0).fit(X)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send((1024 * (after - before), X.nbytes, model.n_iter_))


def memory(n: int) -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=measure, args=(n, sender))
    worker.start()
    extra, data, n_iter = receiver.recv()
    worker.join()
    figures.record(f"blobs {n:,}", fit_memory=extra / data, iterations=n_iter)
    verdict = common.verdict(extra / data, MEMORY, at_least=False)
    common.console.print(
        f"memory of a fit on {n:,} × 20, {n_iter} iterations: {extra / 2**20:,.0f} MiB more,"
        f" {extra / data:.2f} times X, target {verdict}\n"
    )


def less_memory(n: int) -> None:
    """Removals where the iterations of a fit do not all find room."""
    case = Case("", "", blobs(n), 10)
    ample = ours(case, 0)
    needed = ample._model.replayed.nbytes
    rows = common.table(
        f"blobs {n:,} × 20: one removal, where memory for {ample.n_iter_} iterations is limited",
        "room for", "iterations run again", "one removal", "times faster than our fit",
    )  # fmt: skip
    _, fit = common.timed(lambda: ours(case, 0))
    for name, part in (("all", 1.0), ("half", 0.5), ("a fifth", 0.2), ("none", 0.0)):
        model = ours(case, 0, memory_limit=int(part * needed))
        seconds = float(np.median(removals(model, n, 9, warm_up=1).seconds))
        unkept = model.n_iter_ + 1 if part == 0.0 else model.forget(n - 1).work.unkept
        figures.record(f"blobs {n:,}, {name}", removal_seconds=seconds, unkept=unkept)
        rows.add_row(name, str(unkept), common.milliseconds(seconds), f"{fit / seconds:.1f}×")
    common.console.print(rows)


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("sets", nargs="*", help="names of sets, or blobs; all if left out")
    given = parser.parse_args()
    common.heading("K-means that forgets, for one owner")
    warm_up()
    with figures.kept(given):
        run(set(given.sets), given.quick)


def run(names: set[str], quick: bool) -> None:
    """Print every table."""
    if not names or "blobs" in names:
        # First: a new process counts what its parent has held as its own peak.
        memory(100_000 if quick else 1_000_000)
        scale(quick)
        less_memory(100_000 if quick else 1_000_000)
    chosen = cases(names, quick)
    compare(chosen)
    losses(chosen)


if __name__ == "__main__":
    main()
