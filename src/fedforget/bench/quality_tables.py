"""Tables of losses: the paper's two, its variants, its guarantees, and other splits."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from fedforget.bench import guarantees, paper
from fedforget.bench.cells import CellResult
from fedforget.bench.numbers import (
    STAR,
    Entry,
    LossColumn,
    ResultTable,
    columns_of,
    label,
    losses,
    percent,
    spread,
    title,
)
from fedforget.bench.runner import Results

_KINDS = (("induced", "induced"), ("nearest", "nearest centre"))


def _ratio_row(
    results: Results, experiment: str, method: str, loss: str, columns: Sequence[LossColumn]
) -> tuple[Entry, ...]:
    printed = {"table1": paper.TABLE_1, "table2": paper.TABLE_2}.get(experiment, {}).get(method, {})
    return tuple(
        Entry(
            _spread(results, experiment, method, loss, c),
            str(printed[label(c.dataset)])
            if loss == "induced" and label(c.dataset) in printed
            else "",
        )
        for c in columns
    )


def _spread(results: Results, experiment: str, method: str, loss: str, column: LossColumn) -> str:
    found = losses(results, experiment, method, column.dataset, loss)
    return spread(one / column.reference for one in found)


def _methods(results: Results, experiment: str, first: Sequence[str]) -> list[str]:
    """The methods that an experiment has results of, those of ``first`` before the others."""
    names = list(dict.fromkeys(name for one in results.of(experiment) for name in one.value))
    return [name for name in first if name in names] + [n for n in names if n not in first]


_ORDER = (
    "MUFC", "MUFC, greedy server", "K-FED", "K-FED, drawn start", "K-FED, K′", "DC-KM",
    "DC-KM, 10 starts", "FKM",
)  # fmt: skip


def table_1(results: Results) -> ResultTable | None:
    """Loss ratios, induced and nearest-centre."""
    if "table1" not in results:
        return None
    columns = columns_of(results, results.plan.datasets)
    names = _methods(results, "table1", _ORDER)
    rows = [
        (f"{name} ({words})", _ratio_row(results, "table1", name, loss, columns))
        for loss, words in _KINDS
        for name in names
    ]
    rounds = tuple(
        Entry(_mean_text(losses(results, "table1", "FKM", c.dataset, "rounds"))) for c in columns
    )
    rows.append(("FKM: rounds", rounds))
    return ResultTable(
        "table1",
        "Table 1: loss over that of centralised K-means++",
        tuple(c.title for c in columns),
        tuple(rows),
        f"{STAR} Covtype stands twice: φ* is the best clustering known, and the local optimum whose"
        " cluster sizes the paper prints.\n"
        "Induced: every record goes where its local cluster goes (the paper's Definition 3.1,"
        " and the loss that it prints). Nearest centre: every record goes to the nearest of the"
        " server's centres, which a client can always do. Mean ± standard deviation over"
        " trials.\n"
        "MUFC: as published (seeds, points drawn uniformly in the bins, γ = 1/√n), with plain"
        " K-means++ at the server, as the paper says; greedy server: scikit-learn's greedy"
        " K-means++, as in the authors' code. K-FED starts from client 0, as in the authors' code;"
        " drawn start: from a client drawn at random; K′: its clients report K′ clusters instead"
        " of K. DC-KM, 10 starts: its leaves keep the best of ten runs. FKM (Garst, Reinders 2023)"
        " sends means in the clear in several rounds, and cannot forget.\n"
        "ours, K and 2K: means, weighted bins, as many local clusters as the name says. ours, lloyd"
        ' K and 2K: representatives="lloyd", K-means at the clients.',
    )


def _mean_text(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.1f}" if values else "—"


def table_2(results: Results) -> ResultTable | None:
    """Complete client training."""
    if "table2" not in results:
        return None
    columns = columns_of(results, results.plan.datasets)
    rows = [
        (f"{name} ({words})", _ratio_row(results, "table2", name, loss, columns))
        for loss, words in _KINDS
        for name in _methods(results, "table2", ("MUFC",))
    ]
    rows += [
        (f"{name} (induced)", _ratio_row(results, "table1", name, "induced", columns))
        for name in ("ours, lloyd K", "ours, lloyd 2K")
        if any(name in one.value for one in results.of("table1"))
    ]
    return ResultTable(
        "table2",
        "Table 2: MUFC with complete client training",
        tuple(c.title for c in columns),
        tuple(rows),
        f"{STAR} K-FED and DC-KM are those of Table 1. Clients run Lloyd's iteration to its end, so"
        " that every removal makes a client and the server start afresh. ours, lloyd does the same"
        " and forgets by replay; its clients keep the better of two starts.",
    )


def sizes(results: Results) -> ResultTable | None:
    """Cluster sizes of the references, beside those that the paper prints."""
    rows = []
    for name in results.plan.datasets:
        reference = results.reference(name)
        printed = paper.SIZES.get(label(name))
        if reference is None or printed is None:
            continue
        held = (reference.get("printed") or reference)["sizes"]
        own = ", ".join(map(str, held))
        same = "yes" if tuple(held) == printed else _apart(held, printed)
        entries = (Entry(own), Entry(", ".join(map(str, printed))), Entry(same))
        rows.append((title(name), entries))
    if not rows:
        return None
    return ResultTable(
        "sizes",
        "Cluster sizes of the centralised clustering",
        ("here", "paper", "the same"),
        tuple(rows),
        f"{STAR} Postures is a part of the paper's set. Covtype: the local optimum from which"
        " Lloyd's iteration ends nearest to the printed sizes, not the best clustering known.",
    )


def _apart(held: Sequence[int], printed: Sequence[int]) -> str:
    if sum(held) != sum(printed) or len(held) != len(printed):
        return "other records"
    return f"except {sum(abs(a - b) for a, b in zip(held, printed, strict=True)) // 2}"


def variants(results: Results) -> ResultTable | None:
    """The paper's variants of MUFC."""
    if "variants" not in results:
        return None
    columns = columns_of(results, results.plan.light_sets)
    names = _methods(results, "variants", ("MUFC",))
    rows = [(name, _ratio_row(results, "variants", name, "induced", columns)) for name in names]
    rows += [
        (f"{name} (Table 1)", _ratio_row(results, "table1", name, "induced", columns))
        for name in ("ours, lloyd K",)
        if "table1" in results
    ]
    return ResultTable(
        "variants",
        "MUFC's variants in the paper: induced loss ratios",
        tuple(c.title for c in columns),
        tuple(rows),
        f"{STAR} Each changes one thing. Bin centres: weighted bins instead of points drawn in"
        " them. Shifted grid: moved by a random part of a step in each feature (appendix on"
        " quantisation). Alg. 5: centroids and sizes without a grid. Known K⁽ˡ⁾: a client reports"
        " as many local clusters as it holds global ones (the remark after Lemma D.1, and what"
        " K-FED assumes).",
    )


def guarantee_table(results: Results) -> ResultTable | None:
    """The bounds of Theorem 4.1 and Lemma D.1, with the constants of their proofs."""
    rows = []
    for name in results.plan.light_sets:
        reference = results.reference(name)
        left = results.of("outliers", name)
        measured = {
            key: losses(results, "variants", key, name) for key in ("MUFC", "Alg. 5", "known K⁽ˡ⁾")
        }
        if reference is None or not left or not measured["MUFC"]:
            continue
        k, best = len(reference["centres"]), reference["loss"]
        n, d = sum(reference["sizes"]), len(reference["centres"][0])
        k_prime = left[0].value["k_prime"]
        mean = {key: statistics.fmean(own) / best for key, own in measured.items() if own}
        epsilon = statistics.fmean(one.value["epsilon_2"] for one in left)
        inner = statistics.fmean(one.value["losses"]["MUFC"] / one.value["optimum"] for one in left)
        quantisation = left[0].value["quantisation"]
        rows.append(
            (
                title(name),
                (
                    Entry(_against(mean["MUFC"], guarantees.with_grid(k, d / best))),
                    Entry(_against(mean["Alg. 5"], guarantees.without_grid(k))),
                    Entry(_against(mean["known K⁽ˡ⁾"], guarantees.with_known_clusters(k, k_prime))),
                    Entry(f"{epsilon:.1f}"),
                    Entry(
                        _against(
                            inner,
                            guarantees.with_grid_without_outliers(k, quantisation, epsilon),
                        )
                    ),
                    Entry(f"{n:,}"),
                ),
            )
        )
    if not rows:
        return None
    return ResultTable(
        "guarantees",
        "Theorem 4.1 and Lemma D.1: the loss over φ*; its bound with the constants of the proofs",
        (
            "MUFC; Theorem 4.1",
            "Alg. 5; Lemma D.1",
            "known K⁽ˡ⁾; remark",
            "ε₂",
            "MUFC without outliers; Theorem 4.1",
            "n",
        ),
        tuple(rows),
        "With a = 8 ln K + 16, a′ = 8 ln K′ + 16 and q = n d γ²/4 over φ* (γ = 1/√n): Theorem 4.1"
        " 3a(4 + 3a) + 3(1 + 3a) q; Lemma D.1 2a(3 + 2a); known K⁽ˡ⁾ 2(a′ + 2a + 2aa′); without"
        " outliers 3a(1 + 2ε₂) + 3(1 + 2a) q, where the hundredth of the records that lies farthest"
        " out is left out of everything, and ε₂ is the smallest for which no other is an outlier.",
    )


def _against(measured: float, bound: float) -> str:
    return f"{measured:.3f}; {bound:,.0f}"


def growth(results: Results) -> ResultTable | None:
    """How the loss grows with K."""
    rows = []
    for k in results.plan.growth:
        cells = results.of("growth", f"K = {k}")
        if not cells:
            continue
        quantisation = statistics.fmean(one.value["quantisation"] for one in cells)
        entries = [Entry(_growth_text(cells, name)) for name in ("MUFC", "Alg. 5", "ours, lloyd K")]
        entries += [
            Entry(f"{math.log(k) ** 2:.2f}"),
            Entry(f"{guarantees.with_grid(k, quantisation):,.0f}"),
            Entry(f"{guarantees.without_grid(k):,.0f}"),
        ]
        rows.append((f"K = {k}", tuple(entries)))
    if not rows:
        return None
    return ResultTable(
        "growth",
        "Theorem 4.1's first term: the loss over φ* as K grows",
        ("MUFC", "Alg. 5", "ours, lloyd K", "ln² K", "Theorem 4.1", "Lemma D.1"),
        tuple(rows),
        "Mean; median. Clusters of 200 records in 10 dimensions, with centres uniform in the unit"
        " cube and deviation 0.03, dealt i.i.d. to 10 clients; one start at the server, as in the"
        " theorem. The mean is carried by the trials in which a cluster gets no centre.",
    )


def _growth_text(cells: Sequence[CellResult], name: str) -> str:
    found = [one.value["losses"][name] / one.value["optimum"] for one in cells]
    return f"{statistics.fmean(found):.2f}; {statistics.median(found):.2f}"


def remark(results: Results) -> ResultTable | None:
    """L = K, K′ = 1."""
    cells = results.of("remark")
    if not cells:
        return None
    found = cells[0].value["ratios"]
    mean = statistics.fmean(found)
    error = statistics.stdev(found) / math.sqrt(len(found))
    entries = (Entry(f"{mean:.4f} ± {error:.4f}"), Entry("2"), Entry(f"{len(found):,}"))
    return ResultTable(
        "remark",
        "L = K clients with one whole cluster each, K′ = 1: the loss over φ*",
        ("mean ± standard error", "paper", "runs"),
        ((title(cells[0].dataset), entries),),
        "Each client reports one record drawn uniformly (Alg. 5). The paper: E φ_f = 2 φ*, for any"
        " K. The only place where ± is a standard error.",
    )


def fragmented(results: Results) -> ResultTable | None:
    """Clients that hold slices of clusters."""
    if "fragmented" not in results:
        return None
    columns = columns_of(results, results.plan.fragmented_sets)
    rows = []
    for name in _methods(results, "fragmented", ("MUFC", "K-FED", "DC-KM", "FKM")):
        usual, method = "table1", name
        if name == "complete client training":
            usual, method = "table2", "MUFC"
        entries = [
            Entry(
                _spread(results, "fragmented", name, "induced", c)
                + _usual(results, usual, method, c)
            )
            for c in columns
        ]
        rows.append((name, tuple(entries)))
    return ResultTable(
        "fragmented",
        "Clients that hold slices of clusters: induced loss ratios",
        tuple(c.title for c in columns),
        tuple(rows),
        "In brackets: the mean of Tables 1 and 2. Every cluster is sorted along the direction in"
        " which it is longest, and a client gets neighbouring records of up to K′ clusters, so that"
        " its mean of a cluster is that of a slice.",
    )


def _usual(results: Results, experiment: str, method: str, column: LossColumn) -> str:
    found = losses(results, experiment, method, column.dataset)
    return f" ({statistics.fmean(found) / column.reference:.3f})" if found else ""


_REPRESENTATIVES = ("seeds", "means", "lloyd")


def step_table(results: Results) -> ResultTable | None:
    """Fig. 3 (b), (c) and the two terms of Theorem 4.1, in numbers."""
    rows = []
    for experiment in ("fig3b", "fig3c"):
        cells = results.of(experiment)
        if not cells:
            continue
        name = cells[0].dataset
        reference = results.reference(name)
        assert reference is not None
        for step in sorted({one.parameters["step"] for one in cells}):
            own = [one for one in cells if one.parameters["step"] == step]
            rows.append(
                (
                    f"{label(name)}, γ = {step:.4g}",
                    (
                        *(
                            Entry(
                                spread(one.value[m]["induced"] / reference["loss"] for one in own)
                            )
                            for m in ("MUFC", "weighted", "ours, 2K", "ours, lloyd K")
                        ),
                        Entry(f"{_quantisation(results, name, step):.3g}"),
                    ),
                )
            )
    if not rows:
        return None
    return ResultTable(
        "step",
        "Fig. 3 (b), (c) in numbers: the grid, and the second term of Theorem 4.1",
        ("MUFC", "MUFC, bin centres", "ours, 2K", "ours, lloyd K", "n d γ² / φ*"),
        tuple(rows),
        "Induced loss ratios. Theorem 4.1 bounds the loss by O(log² K) φ* + O(n d γ² log K); the"
        " last column is the second term's n d γ², over φ*.",
    )


def _quantisation(results: Results, dataset: str, step: float) -> float:
    """n d γ² over the reference loss."""
    reference = results.reference(dataset)
    assert reference is not None
    n, d = sum(reference["sizes"]), len(reference["centres"][0])
    return float(n * d * step**2 / reference["loss"])


def local_clusters(results: Results) -> ResultTable | None:
    """Loss against the number of local clusters, and the re-seed rate that it costs."""
    cells = results.of("local-clusters")
    if not cells:
        return None
    settings = sorted(
        {(one.parameters["representatives"], one.parameters["multiple"]) for one in cells},
        key=lambda pair: (_REPRESENTATIVES.index(pair[0]), pair[1]),
    )
    columns = columns_of(results, results.plan.light_sets, printed=False)
    rows = []
    for setting in settings:
        entries = []
        for c in columns:
            cells_of = results.of("local-clusters", c.dataset)
            own = [one for one in cells_of if _setting(one) == setting]
            if not own:
                entries.append(Entry("—"))
                continue
            induced, near, reseed = (
                statistics.fmean(one.value[key] for one in own)
                for key in ("induced", "nearest", "reseed")
            )
            words = f"{induced / c.reference:.3f}; {near / c.reference:.3f}; {percent(reseed)}"
            entries.append(Entry(words))
        what, multiple = setting
        rows.append((f"{what}, {multiple}K", tuple(entries)))
    return ResultTable(
        "local-clusters",
        "More local clusters: induced loss ratio; nearest-centre one; chance of a re-seed",
        tuple(c.title for c in columns),
        tuple(rows),
        f"{STAR} Exact mode, weighted bins. The chance of a re-seed is that of a random removal: a"
        " client drawn uniformly, then one of its records. With lloyd it is that of the better of"
        " two starts.",
    )


def _setting(one: CellResult) -> tuple[str, int]:
    return one.parameters["representatives"], one.parameters["multiple"]
