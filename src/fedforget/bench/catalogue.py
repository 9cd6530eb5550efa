"""Every experiment: what it is called, and the cells that a plan makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedforget.bench import codes, exactness, guarantees, quality, removals, scaling, theory
from fedforget.bench.cells import Cell, Value
from fedforget.bench.plan import HEAVY, Library, Plan

Reference = Callable[[str], Value]
"""The result of the cell ``reference`` of a dataset; computed if it has to be."""


@dataclass(frozen=True)
class Experiment:
    """A part of the page that can be asked for by itself.

    Attributes
    ----------
    name : what ``--only`` calls it.
    title : one line about it.
    cells : the work.
    """

    name: str
    title: str
    cells: Callable[[Plan, Library, Reference], Iterator[Cell]]


def reference_cell(plan: Plan, library: Library, dataset: str) -> Cell:
    """Centralised K-means++, to which every loss is compared."""
    starts = plan.starts_of(dataset)
    return Cell(
        "reference",
        dataset,
        0,
        {"n_init": starts, "data": library.digest(dataset)},
        ("bench/quality.py",),
        lambda: quality.reference(library.get(dataset), n_init=starts),
    )


def _cell(
    library: Library,
    experiment: str,
    dataset: str,
    trial: int,
    modules: tuple[str, ...],
    run: Callable[..., Value],
    **parameters: Any,
) -> Cell:
    """A cell that calls ``run(data, trial, **parameters)``."""
    return Cell(
        experiment,
        dataset,
        trial,
        {**parameters, "data": library.digest(dataset)},
        modules,
        lambda: run(library.get(dataset), trial, **parameters),
    )


_QUALITY = ("bench/quality.py", "bench/methods.py")
_REMOVALS = ("bench/removals.py", "bench/methods.py", "bench/quality.py", "runtime/sums.py")
_SECURE = (*_REMOVALS, "protocol", "runtime/rounds.py")


def _table_1(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for name in plan.datasets:
        for trial in range(plan.trials_of(name)):
            yield _cell(
                library, "table1", name, trial, _QUALITY, quality.table_1,
                alternatives=name not in HEAVY, max_rounds=plan.rounds_of(name),
            )  # fmt: skip


def _table_2(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for name in plan.datasets:
        for trial in range(plan.trials_of(name)):
            yield _cell(
                library, "table2", name, trial, _QUALITY, quality.table_2,
                alternatives=name not in HEAVY,
            )  # fmt: skip


def _variants(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for name in plan.light_sets:
        for trial in range(plan.trials_of(name)):
            yield _cell(library, "variants", name, trial, _QUALITY, quality.variants)


def _fragmented(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    sliced = library.dealt("fragmented")
    for name in plan.fragmented_sets:
        for trial in range(plan.trials_of(name)):
            yield _cell(sliced, "fragmented", name, trial, _QUALITY, quality.fragments)


_GUARANTEES = ("bench/guarantees.py", "bench/methods.py", "bench/quality.py")


def _referring(
    experiment: str, dataset: str, trial: int, modules: tuple[str, ...], plan: Plan,
    library: Library, reference: Reference, run: Callable[..., Value], **parameters: Any,
) -> Cell:  # fmt: skip
    """A cell that calls ``run(data, reference=…, **parameters)``."""
    return Cell(
        experiment,
        dataset,
        trial,
        {**parameters, "starts": plan.starts_of(dataset), "data": library.digest(dataset)},
        modules,
        lambda: run(library.get(dataset), reference=reference(dataset), **parameters),
    )


def _outliers(plan: Plan, library: Library, reference: Reference) -> Iterator[Cell]:
    for name in plan.light_sets:
        for trial in range(plan.sweep_trials):
            yield _referring(
                "outliers", name, trial, _GUARANTEES, plan, library, reference,
                partial(guarantees.without_outliers, trial=trial),
            )  # fmt: skip


def _growth(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for k in plan.growth:
        for trial in range(2 * plan.trials):
            run = partial(guarantees.growth, trial, k=k)
            yield Cell("growth", f"K = {k}", trial, {"k": k}, _GUARANTEES, run)


def _remark(plan: Plan, library: Library, reference: Reference) -> Iterator[Cell]:
    yield _referring(
        "remark", plan.synthetic, 0, _GUARANTEES, plan, library, reference,
        guarantees.one_cluster_each, runs=plan.remark_runs,
    )  # fmt: skip


def _scaling(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    modules = ("bench/scaling.py", "bench/methods.py")
    for n in plan.scales:
        # K-means of clients with 100,000 records each would take minutes to prepare.
        settings = {"n": n, "requests": 100, "federations": n <= 10**5}
        run = partial(scaling.removal, 0, **settings)  # type: ignore[arg-type]
        yield Cell("scaling", f"n = {n}", 0, settings, modules, run)


def _fig_3a(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    data = library.get(plan.synthetic)
    for k_prime in plan.k_primes:
        if k_prime * data.n_clients < data.n_clusters:
            continue  # so few clients cannot hold all clusters
        for trial in range(plan.sweep_trials):
            yield _cell(
                library, "fig3a", plan.synthetic, trial, _QUALITY, quality.heterogeneity,
                k_prime=k_prime,
            )  # fmt: skip


def _steps(name: str, dataset: str, plan: Plan, library: Library) -> Iterator[Cell]:
    for step in sorted({*plan.steps, library.get(dataset).step}):
        for trial in range(plan.sweep_trials):
            yield _cell(library, name, dataset, trial, _QUALITY, quality.step_size, step=step)


def _fig_3b(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    yield from _steps("fig3b", plan.synthetic, plan, library)


def _fig_3c(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    yield from _steps("fig3c", plan.real, plan, library)


def _removals(
    experiment: str, kind: str, dataset: str, requests: int, plan: Plan, library: Library,
    reference: Reference,
) -> Iterator[Cell]:  # fmt: skip
    names = tuple(removals.CONTENDERS)
    settings: Value = {
        "kind": kind,
        "requests": requests,
        "retrainings": plan.retrainings,
        "names": names,
    }
    for trial in range(plan.timing_trials):

        def run(trial: int = trial) -> Value:
            centres = np.array(reference(dataset)["centres"])
            return removals.removals(library.get(dataset), trial, centres=centres, **settings)

        parameters = {
            **settings,
            "names": list(names),
            "starts": plan.starts_of(dataset),
            "data": library.digest(dataset),
        }
        yield Cell(experiment, dataset, trial, parameters, _REMOVALS, run)


def _random(plan: Plan, library: Library, reference: Reference) -> Iterator[Cell]:
    for name in plan.light_sets:
        yield from _removals("random", "random", name, plan.requests, plan, library, reference)


def _adversarial(plan: Plan, library: Library, reference: Reference) -> Iterator[Cell]:
    requests = plan.adversarial_requests
    for name in plan.light_sets:
        yield from _removals("adversarial", "adversarial", name, requests, plan, library, reference)


def _batch(plan: Plan, library: Library, reference: Reference) -> Iterator[Cell]:
    for name in plan.batch_sets:
        for size in ("10", "30"):
            # Requests take away up to half of the records, not more.
            most = len(library.get(name).X) // (2 * int(size))
            if not most:
                continue
            requests = min(plan.requests, most)
            yield from _removals("batch", size, name, requests, plan, library, reference)


def _clients(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for name in plan.light_sets:
        if library.get(name).n_clients < 2:
            continue
        requests = max(1, min(10, library.get(name).n_clients // 3))
        for trial in range(plan.timing_trials):
            yield _cell(
                library, "clients", name, trial, _REMOVALS, removals.client_removals,
                requests=requests,
            )  # fmt: skip


def _secure(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for name in plan.light_sets:
        yield _cell(library, "secure", name, 0, _SECURE, removals.secure_sum, requests=3)


def _local_clusters(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for name in plan.light_sets:
        for trial in range(plan.sweep_trials):
            for multiple in plan.multiples:
                for representatives in ("seeds", "means", "lloyd"):
                    yield _cell(
                        library, "local-clusters", name, trial, _QUALITY, quality.local_clusters,
                        multiple=multiple, representatives=representatives,
                    )  # fmt: skip


def _reseeding(plan: Plan, library: Library, reference: Reference) -> Iterator[Cell]:
    for name in plan.light_sets:
        yield _referring(
            "reseeding", name, 0, ("bench/theory.py", "bench/quality.py"), plan, library,
            reference, theory.reseeding, seedings=plan.seedings,
        )  # fmt: skip


def _q_k_means(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    for name in plan.q_sets:
        for iterate in (False, True):
            yield _cell(
                library, "q-k-means", name, 0, ("bench/theory.py",), theory.owned_k_means,
                iterate=iterate, requests=plan.q_requests,
            )  # fmt: skip
        for epsilon in plan.q_epsilons:
            yield _cell(
                library, "q-k-means", name, 0, ("bench/theory.py",), theory.q_k_means,
                epsilon=epsilon, requests=plan.q_requests,
            )  # fmt: skip


CODE_SHAPE = {"k": 4, "levels": 110, "n_records": 12_009}
"""Celltype's: K, bins a feature at γ = 1/√n, and records."""


def _codes(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    shapes = {(d, 100) for d in plan.code_features} | {(10, n) for n in plan.code_clients}
    for d, n_clients in sorted(shapes):
        # Alg. 2's time grows with the square of T and more than the square of the field's length.
        literal = d * CODE_SHAPE["k"] * n_clients <= 10 * plan.code_literal
        shape = {"n_features": d, "n_clients": n_clients, **CODE_SHAPE, "literal": literal}
        run = partial(codes.compare, **shape)  # type: ignore[arg-type]
        yield Cell(
            "codes", f"d={d} L={n_clients}", 0, shape, ("bench/codes.py", "bench/iblt.py"), run
        )


def _exactness(plan: Plan, library: Library, _: Reference) -> Iterator[Cell]:
    modules = ("bench/exactness.py", "bench/methods.py", "bench/laws.py")
    yield Cell("exactness", "small sets", 0, {}, modules, exactness.in_law)
    for name in plan.exact_sets:
        yield _cell(
            library, "exactness", name, 0, modules, exactness.bit_for_bit,
            requests=plan.exact_requests,
        )  # fmt: skip


EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment("table1", "Table 1: loss ratios", _table_1),
        Experiment("table2", "Table 2: complete client training", _table_2),
        Experiment("variants", "The paper's variants of MUFC", _variants),
        Experiment("fragmented", "Clients that hold slices of clusters", _fragmented),
        Experiment("fig3a", "Fig. 3 (a): influence of K′", _fig_3a),
        Experiment("fig3b", "Fig. 3 (b): influence of γ, synthetic data", _fig_3b),
        Experiment("fig3c", "Fig. 3 (c): influence of γ, real data", _fig_3c),
        Experiment("random", "Fig. 3 (d), (f)–(l): random removals", _random),
        Experiment("adversarial", "Fig. 3 (e): adversarial removals", _adversarial),
        Experiment("batch", "Batch removals of 10 and 30", _batch),
        Experiment("clients", "Multi-client removal", _clients),
        Experiment("secure", "The secure sum", _secure),
        Experiment("local-clusters", "More local clusters", _local_clusters),
        Experiment("outliers", "Theorem 4.1 without outliers", _outliers),
        Experiment("growth", "Theorem 4.1's first term: growth with K", _growth),
        Experiment("remark", "L = K, K′ = 1", _remark),
        Experiment("scaling", "Theorem 5.4: removals and n", _scaling),
        Experiment("reseeding", "The chance of re-seeding", _reseeding),
        Experiment("q-k-means", "Q-k-means", _q_k_means),
        Experiment("codes", "Codes for the sum", _codes),
        Experiment("exactness", "Exactness", _exactness),
    )
}

ALIASES = {
    "fig3": ("fig3a", "fig3b", "fig3c", "random", "adversarial"),
    **{f"fig3{letter}": ("random",) for letter in "dfghijkl"},
    "fig3e": ("adversarial",),
    "appendix": ("table2", "random", "adversarial", "batch"),
    "theorem4.1": ("fig3b", "fig3c", "variants", "outliers", "growth", "remark"),
    "theorem5.4": ("scaling", "reseeding", "random", "adversarial"),
    "beyond": (
        "fragmented", "secure", "local-clusters", "scaling", "reseeding", "q-k-means", "codes",
        "exactness",
    ),
}  # fmt: skip
"""Other names that ``--only`` understands."""


def chosen(only: str | None) -> tuple[str, ...]:
    """The experiments that ``--only`` names, in the order of the page; all where it is not given.

    >>> chosen("fig3d, table1")
    ('table1', 'random')
    """
    if only is None:
        return tuple(EXPERIMENTS)
    wanted: set[str] = set()
    for word in only.replace(" ", "").split(","):
        if word not in EXPERIMENTS and word not in ALIASES:
            known = ", ".join([*EXPERIMENTS, *ALIASES])
            raise ValueError(f"there is no experiment {word!r}; there are {known}")
        wanted |= set(ALIASES.get(word, (word,)))
    return tuple(name for name in EXPERIMENTS if name in wanted)
