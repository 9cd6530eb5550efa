"""From finished cells to tables: our numbers, with the printed ones beside them."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedforget.bench import paper
from fedforget.bench.cells import CellResult
from fedforget.bench.runner import Results

METHODS = ("MUFC", "ours, K", "ours, 2K", "DC-KM")
"""Those that can forget, in the order of the figures."""

_PAPER_NAMES = {name.lower(): name for name in paper.DATASETS}


@dataclass(frozen=True)
class Entry:
    """One cell of a table: what was measured, and what the paper prints."""

    text: str
    printed: str = ""


@dataclass(frozen=True)
class ResultTable:
    """A table of the page.

    ``notes`` say what the numbers mean, a paragraph a line.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    notes: str = ""

    def csv(self) -> str:
        """The table as text, one line an entry."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", "column", "measured", "printed"])
        for label, entries in self.rows:
            for column, entry in zip(self.columns, entries, strict=True):
                writer.writerow([label, column, entry.text, entry.printed])
        return file.getvalue()


def label(dataset: str) -> str:
    """A dataset as the paper spells it.

    >>> label("tmi"), label("digits")
    ('TMI', 'digits')
    """
    return _PAPER_NAMES.get(dataset, dataset)


def all_tables(results: Results) -> list[ResultTable]:
    """Every table that the results have something for."""
    makers = (
        table_1, speed_ups, table_2, step_table, removal_times, loss_drift, batches, clients,
        secure, local_clusters, reseeding, q_k_means, code_lengths, code_times, exactness,
        laws,
    )  # fmt: skip
    made = (make(results) for make in makers)
    return [table for table in made if table is not None]


# -- numbers ---------------------------------------------------------------------------------------


def spread(values: Iterable[float]) -> str:
    """Mean and standard deviation.

    >>> spread([1.0, 1.2])
    '1.100 ± 0.141'
    """
    numbers = list(values)
    if not numbers:
        return "—"
    if len(numbers) == 1:
        return f"{numbers[0]:.3f}"
    return f"{statistics.fmean(numbers):.3f} ± {statistics.stdev(numbers):.3f}"


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them.

    >>> duration(0.00012), duration(0.5), duration(0.9996), duration(12)
    ('0.12 ms', '500 ms', '1.0 s', '12.0 s')
    """
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.1f} s"


def times(ratio: float) -> str:
    """A speed-up.

    >>> times(83.7), times(5.25)
    ('84×', '5.2×')
    """
    if not math.isfinite(ratio):
        return "—"
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def size(bits: float) -> str:
    """Bits as bytes.

    >>> size(8000), size(8e9)
    ('1 kB', '1000 MB')
    """
    number = bits / 8
    for unit in ("B", "kB", "MB"):
        if number < 999.5 or unit == "MB":
            return (
                f"{number:.3g} {unit}" if number < 99.5 or unit == "B" else f"{number:.0f} {unit}"
            )
        number /= 1000
    raise AssertionError


def percent(share: float) -> str:
    """A share; small ones keep two digits.

    >>> percent(0.5), percent(0.00123)
    ('50 %', '0.12 %')
    """
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def ratios(results: Results, experiment: str, method: str, dataset: str, loss: str) -> list[float]:
    """Loss ratios of a method over the trials of ``table1`` or ``table2``."""
    reference = results.reference(dataset)
    if reference is None:
        return []
    return [
        float(one.value[method][loss] / reference["loss"])
        for one in results.of(experiment, dataset)
        if method in one.value
    ]


def speed_up(cell: CellResult, method: str) -> float:
    """Complete retraining over the mean removal, re-seeds included."""
    again, seconds = cell.value["retraining"], cell.value["seconds"].get(method)
    if not again or not seconds or not any(seconds):
        return math.nan
    return float(statistics.median(again) / statistics.fmean(seconds))


def quiet_speed_up(cell: CellResult, method: str) -> float:
    """Complete retraining over the median removal of a record that is no seed."""
    again = cell.value["retraining"]
    if not again or method not in cell.value["seconds"]:
        return math.nan
    quiet = quiet_seconds(cell, method)
    return float(statistics.median(again) / statistics.median(quiet)) if quiet else math.nan


def quiet_seconds(cell: CellResult, method: str) -> list[float]:
    """The times of the removals after which no client drew again."""
    both = zip(cell.value["seconds"][method], cell.value["reseeded"][method], strict=True)
    return [seconds for seconds, redrawn in both if not redrawn]


def mean_of(
    cells: Sequence[CellResult], measure: Callable[[CellResult, str], float], method: str
) -> float:
    """A measure averaged over trials, those without one left out."""
    found = [value for one in cells if math.isfinite(value := measure(one, method))]
    return statistics.fmean(found) if found else math.nan


# -- the paper's tables ----------------------------------------------------------------------------


def _columns(results: Results) -> tuple[str, ...]:
    return tuple(label(name) for name in results.plan.datasets)


def _ratio_row(results: Results, experiment: str, method: str, loss: str) -> tuple[Entry, ...]:
    printed = {"table1": paper.TABLE_1, "table2": paper.TABLE_2}[experiment]
    return tuple(
        Entry(
            spread(ratios(results, experiment, method, name, loss)),
            str(printed[method][label(name)])
            if method in printed and loss == "induced" and label(name) in paper.DATASETS
            else "",
        )
        for name in results.plan.datasets
    )


def table_1(results: Results) -> ResultTable | None:
    """Loss ratios, induced and nearest-centre."""
    if "table1" not in results:
        return None
    names = list(dict.fromkeys(name for one in results.of("table1") for name in one.value))
    printed = ["MUFC", "K-FED", "DC-KM"]
    order = [name for name in printed if name in names]
    order += [name for name in names if name not in order]
    rows = [
        (f"{name} ({words})", _ratio_row(results, "table1", name, loss))
        for loss, words in (("induced", "induced"), ("nearest", "nearest centre"))
        for name in order
    ]
    return ResultTable(
        "table1",
        "Table 1: loss over that of centralised K-means++",
        _columns(results),
        tuple(rows),
        "Induced: every record goes where its local cluster goes (the paper's Definition 3.2,"
        " and the loss that it prints). Nearest centre: every record goes to the nearest of the"
        " server's centres, which a client can always do. Mean ± standard deviation over"
        " trials.\n"
        "MUFC: as published (seeds, points drawn uniformly in the bins, γ = 1/√n). ours, K and"
        " 2K: means, weighted bins, as many local clusters as the name says. K-FED, K′: its"
        " clients report K′ clusters instead of K. DC-KM, 10 starts: its leaves keep the best"
        " of ten runs.",
    )


def table_2(results: Results) -> ResultTable | None:
    """Complete client training."""
    if "table2" not in results:
        return None
    rows = [
        (f"MUFC ({words})", _ratio_row(results, "table2", "MUFC", loss))
        for loss, words in (("induced", "induced"), ("nearest", "nearest centre"))
    ]
    return ResultTable(
        "table2",
        "Table 2: MUFC with complete client training",
        _columns(results),
        tuple(rows),
        "K-FED and DC-KM are those of Table 1. Clients run Lloyd's iteration to its end, so that"
        " every removal makes a client and the server start afresh.",
    )


def speed_ups(results: Results) -> ResultTable | None:
    """The second half of Table 1, and the average that the abstract names."""
    if "random" not in results:
        return None
    data = results.plan.datasets
    rows: list[tuple[str, tuple[Entry, ...]]] = []
    for method in ("MUFC", "ours, K", "ours, 2K"):
        entries = [
            Entry(
                times(mean_of(results.of("random", name), quiet_speed_up, method)),
                f"{paper.SPEED_UP[label(name)]}×"
                if method == "MUFC" and label(name) in paper.SPEED_UP
                else "",
            )
            for name in data
        ]
        rows.append(
            (f"{method}: no seed removed", (*entries, _average(results, quiet_speed_up, method)))
        )
    for method in METHODS:
        found = [mean_of(results.of("random", name), speed_up, method) for name in data]
        entries = [Entry(times(one)) for one in found]
        printed = f"{paper.AVERAGE_SPEED_UP}×" if method == "MUFC" else ""
        mean = _average(results, speed_up, method)
        rows.append((f"{method}: all requests", (*entries, Entry(mean.text, printed))))
    return ResultTable(
        "speed-up",
        "Table 1, continued: complete retraining over one removal",
        (*_columns(results), "average"),
        tuple(rows),
        "Random removals, one record a request: a client drawn uniformly, then one of its"
        " records. Complete retraining is K-means++ with Lloyd at the slowest client plus"
        " K-means++ with 10 starts at the server on its n points, with scikit-learn on one"
        " thread. It is timed three times in a run and its median taken. No seed removed: the"
        " median of those removals; all requests: the mean, re-seeds included.\n"
        "MUFC here follows Alg. 4 as printed, so that the server does nothing unless a client"
        " draws again. ours is exact: the server follows every removal.",
    )


def _average(results: Results, measure: Callable[[CellResult, str], float], method: str) -> Entry:
    found = [
        value
        for name in results.plan.datasets
        if math.isfinite(value := mean_of(results.of("random", name), measure, method))
    ]
    return Entry(times(statistics.fmean(found)) if found else "—")


def step_table(results: Results) -> ResultTable | None:
    """Fig. 3 (b), (c) and the two terms of Theorem 1, in numbers."""
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
                            for m in ("MUFC", "weighted", "ours, 2K")
                        ),
                        Entry(f"{_quantisation(results, name, step):.3g}"),
                    ),
                )
            )
    if not rows:
        return None
    return ResultTable(
        "step",
        "Fig. 3 (b), (c) in numbers: the grid, and the second term of Theorem 1",
        ("MUFC", "MUFC, bin centres", "ours, 2K", "n d γ² / φ*"),
        tuple(rows),
        "Induced loss ratios. Theorem 1 bounds the loss by O(log² K) φ* + O(n d γ² log K); the last"
        " column is the second term's n d γ², over φ*.",
    )


def _quantisation(results: Results, dataset: str, step: float) -> float:
    """n d γ² over the reference loss."""
    reference = results.reference(dataset)
    assert reference is not None
    n, d = sum(reference["sizes"]), len(reference["centres"][0])
    return float(n * d * step**2 / reference["loss"])


# -- removals --------------------------------------------------------------------------------------


def removal_times(results: Results) -> ResultTable | None:
    """Fig. 3 (e)–(l) in numbers."""
    rows = []
    for title, cells in _by_kind(results):
        entries = []
        for method in METHODS:
            own = [one for one in cells if method in one.value["seconds"]]
            if not own:
                entries.append(Entry("—"))
                continue
            middle = statistics.median(_seconds(own, method))
            mean = duration(_mean_seconds(own, method))
            entries.append(Entry(f"{mean}; {duration(middle)}{_redrawn(own, method)}"))
        count = len(cells[0].value["seconds"]["MUFC"])
        rows.append((f"{title} ({count} × {len(cells)})", (*entries, _retraining(cells))))
    if not rows:
        return None
    return ResultTable(
        "removal-times",
        "Fig. 3 (e)–(l) in numbers: seconds a request",
        (*METHODS, "complete retraining"),
        tuple(rows),
        "Mean; median; share of requests after which a client drew seeds again. In brackets:"
        " requests × trials. Adversarial: the record that contributes most to the method's own"
        " objective, chosen anew after each removal.",
    )


def loss_drift(results: Results) -> ResultTable | None:
    """Fig. 3 (d) and the appendix's loss ratios, in numbers."""
    rows = []
    for title, cells in _by_kind(results):
        entries = [
            Entry(
                f"{statistics.fmean(one.value['ratios'][m][0] for one in cells):.3f} → "
                f"{statistics.fmean(one.value['ratios'][m][-1] for one in cells):.3f}"
                if all(m in one.value["ratios"] for one in cells)
                else "—"
            )
            for m in METHODS
        ]
        rows.append((title, tuple(entries)))
    if not rows:
        return None
    return ResultTable(
        "loss-drift",
        "Fig. 3 (d) in numbers: the induced loss ratio, before and after all requests",
        METHODS,
        tuple(rows),
        "The reference is centralised K-means on the records that are left.",
    )


def batches(results: Results) -> ResultTable | None:
    """Batch removals."""
    rows = []
    for name in results.plan.batch_sets:
        for kind in ("10", "30"):
            cells = [one for one in results.of("batch", name) if one.parameters["kind"] == kind]
            if not cells:
                continue
            entries = [
                Entry(
                    f"{duration(_mean_seconds(cells, m))}{_redrawn(cells, m)};"
                    f" {times(mean_of(cells, speed_up, m))}"
                )
                for m in METHODS
            ]
            title = f"{label(name)}, {kind} records a request"
            rows.append((title, (*entries, _retraining(cells))))
    if not rows:
        return None
    return ResultTable(
        "batch",
        "Batch removals: several records of one client in a request",
        (*METHODS, "complete retraining"),
        tuple(rows),
        "Mean seconds; share of requests that made the client draw again; speed-up.",
    )


def clients(results: Results) -> ResultTable | None:
    """Whole clients leave."""
    rows = []
    for name in results.plan.datasets:
        cells = results.of("clients", name)
        if not cells:
            continue
        entries = [
            Entry(f"{duration(_mean_seconds(cells, m))}; {times(mean_of(cells, speed_up, m))}")
            for m in ("MUFC", "ours, 2K", "DC-KM")
        ]
        rows.append((label(name), (*entries, _retraining(cells))))
    if not rows:
        return None
    return ResultTable(
        "clients",
        "Multi-client removal: one client after another leaves with all its records",
        ("MUFC", "ours, 2K", "DC-KM", "complete retraining"),
        tuple(rows),
        "Mean seconds a client, and the speed-up over complete retraining.",
    )


def _by_kind(results: Results) -> Iterator[tuple[str, list[CellResult]]]:
    """The cells of random and of adversarial removals, dataset by dataset, where there are any."""
    for experiment in ("random", "adversarial"):
        for name in results.plan.datasets:
            cells = results.of(experiment, name)
            if cells:
                yield f"{experiment}, {label(name)}", cells


def _seconds(cells: Sequence[CellResult], method: str) -> list[float]:
    return [s for one in cells for s in one.value["seconds"][method]]


def _mean_seconds(cells: Sequence[CellResult], method: str) -> float:
    return statistics.fmean(_seconds(cells, method))


def _redrawn(cells: Sequence[CellResult], method: str) -> str:
    """The share of requests after which a client drew again; DC-KM draws after every one."""
    if method == "DC-KM":
        return ""
    redrawn = [r for one in cells for r in one.value["reseeded"][method]]
    return f"; {percent(statistics.fmean(redrawn))}"


def _retraining(cells: Sequence[CellResult]) -> Entry:
    again = [s for one in cells for s in one.value["retraining"]]
    return Entry(duration(statistics.median(again)) if again else "—")


def secure(results: Results) -> ResultTable | None:
    """What the secure sum adds."""
    rows = []
    for name in results.plan.datasets:
        for one in results.of("secure", name):
            held = one.value
            rows.append(
                (
                    label(name),
                    (
                        *(
                            Entry(duration(statistics.median(held[way]["seconds"])))
                            for way in ("plain", "scma", "secure")
                        ),
                        Entry(size(8 * max(held["secure"]["bytes"], default=0))),
                    ),
                )
            )
    if not rows:
        return None
    return ResultTable(
        "secure",
        "The secure sum of one removal (ours, K)",
        ("in the clear", "SCMA, no masks", "whole protocol", "a client sends"),
        tuple(rows),
        "Seconds of the sum alone, at all parties together, in one process. The times above leave"
        " it out, as the paper does. Plain and SCMA involve the client that changes; the protocol"
        " involves everybody, so that nobody learns who changed.",
    )


# -- beyond the paper ------------------------------------------------------------------------------


def local_clusters(results: Results) -> ResultTable | None:
    """Loss against the number of local clusters, and the re-seed rate that it costs."""
    cells = results.of("local-clusters")
    if not cells:
        return None
    settings = sorted(
        {(one.parameters["representatives"], one.parameters["multiple"]) for one in cells},
        key=lambda pair: (pair[0] != "seeds", pair[1]),
    )
    rows = []
    for name in results.plan.datasets:
        reference = results.reference(name)
        assert reference is not None
        entries = []
        for setting in settings:
            own = [one for one in results.of("local-clusters", name) if _setting(one) == setting]
            if not own:
                entries.append(Entry("—"))
                continue
            induced, near, reseed = (
                statistics.fmean(one.value[key] for one in own)
                for key in ("induced", "nearest", "reseed")
            )
            loss = reference["loss"]
            entries.append(Entry(f"{induced / loss:.3f} ({near / loss:.3f}); {percent(reseed)}"))
        rows.append((label(name), tuple(entries)))
    return ResultTable(
        "local-clusters",
        "More local clusters: induced (nearest-centre) loss ratio; chance of a re-seed",
        tuple(f"{what}, {multiple}K" for what, multiple in settings),
        tuple(rows),
        "Exact mode, weighted bins. The chance of a re-seed is that of a random removal: a client"
        " drawn uniformly, then one of its records.",
    )


def _setting(one: CellResult) -> tuple[str, int]:
    return one.parameters["representatives"], one.parameters["multiple"]


def reseeding(results: Results) -> ResultTable | None:
    """Measured chances against the theorem's bound."""
    rows = []
    for name in results.plan.datasets:
        for one in results.of("reseeding", name):
            for key, words in (("with", "all records"), ("without", "without outliers")):
                held = one.value[key]
                rows.append(
                    (
                        f"{label(name)}, {words}",
                        (
                            Entry(f"{held['epsilon_1']:.2f}"),
                            Entry(f"{held['epsilon_2']:.1f}"),
                            Entry(percent(held["random_bound"])),
                            Entry(percent(held["bound"])),
                            Entry(
                                f"{percent(held['hits'] / held['seedings'])}"
                                f" ({held['hits']} of {held['seedings']})"
                            ),
                            Entry(_hits(results, "random", name) if key == "with" else ""),
                            Entry(_hits(results, "adversarial", name) if key == "with" else ""),
                        ),
                    )
                )
    if not rows:
        return None
    return ResultTable(
        "reseeding",
        "The chance that a removed record is a seed, against Theorem 3",
        (
            "ε₁",
            "ε₂",
            "K/n",
            "bound",
            "costliest, measured",
            "random, federated",
            "adaptive, federated",
        ),
        tuple(rows),
        "One K-means++ seeding of all records by one owner, as in the theorem's lemma. ε₁ = n /"
        " (K · smallest cluster). ε₂ is the smallest for which there is no outlier. Bound: 1/n +"
        " 10 K (K − 1) ε₁ ε₂ / n, at most 1. Costliest: the record that contributes most to the"
        " centralised loss. Without outliers: the hundredth of the records that lie farthest"
        " from their centres is taken out.\n"
        "Federated: the share of the requests of Fig. 3 that made a client of MUFC draw again, for"
        " random removals and for the adversary of (e). A client has about n/L records, so that its"
        " chance is about K L / n. The adversary sees the model and strikes again and again, which"
        " the lemma does not cover.",
    )


def _hits(results: Results, experiment: str, dataset: str) -> str:
    """The share of MUFC's requests after which a client drew again."""
    hits = [r for one in results.of(experiment, dataset) for r in one.value["reseeded"]["MUFC"]]
    return percent(statistics.fmean(hits)) if hits else "—"


def q_k_means(results: Results) -> ResultTable | None:
    """Q-k-means against SeededKMeans."""
    cells = results.of("q-k-means")
    if not cells:
        return None
    widths = sorted({one.parameters["epsilon"] for one in cells if "epsilon" in one.parameters})
    rows = []
    for name in results.plan.q_sets:
        own = results.of("q-k-means", name)
        reference = results.reference(name)
        assert reference is not None
        held = {one.parameters.get("epsilon"): one.value for one in own}
        entries = []
        for width in (None, *reversed(widths)):
            value = held.get(width)
            if value is None:
                entries.append(Entry("—"))
                continue
            mean = statistics.fmean(value["seconds"])
            again = 1.0 - statistics.fmean(value["certified"])
            ratio = value["loss"] / reference["loss"]
            entries.append(Entry(f"{duration(mean)}; {percent(again)}; {ratio:.2f}"))
        rows.append((label(name), tuple(entries)))
    return ResultTable(
        "q-k-means",
        "Q-k-means against SeededKMeans (Alg. 3), one owner of all records",
        ("SeededKMeans", *(f"Q-KM, ε = {width:.3g}" for width in reversed(widths))),
        tuple(rows),
        "Mean seconds a removal; share of removals after which it trained (drew seeds) again; loss"
        " over that of centralised K-means++. SeededKMeans has no Lloyd iterations, and its loss is"
        " that of seeds.",
    )


_CODES = ("bound", "SCMA", "Alg. 2", "IBLT", "dense")


def code_lengths(results: Results) -> ResultTable | None:
    """Bits a client sends."""
    if "codes" not in results:
        return None
    rows = []
    for one in results.of("codes"):
        bits = one.value["bits"]
        bound = bits["bound"]
        entries = [Entry(size(bound))]
        entries += [Entry(f"{size(bits[code])}; {bits[code] / bound:.2f}×") for code in _CODES[1:4]]
        entries.append(Entry(_power(bits["dense"] - 3)))
        entries.append(Entry(size(bits["SCMA, a change of 16 bins"])))
        rows.append((one.dataset, tuple(entries)))
    return ResultTable(
        "code-lengths",
        "Codes for the sum: what a client sends in a full round, and over the bound",
        ("information bound", "SCMA", "Alg. 2", "IBLT", "dense", "SCMA, a change of 16 bins"),
        tuple(rows),
        "Celltype's shape (K = 4, 110 levels, n = 12,009) with other numbers of features d and"
        " clients L; T = K L bins. The IBLT has 1.5 cells a bin.",
    )


def _power(log2_bytes: float) -> str:
    return (
        size(8 * 2.0**log2_bytes) if log2_bytes < 40 else f"10^{log2_bytes * math.log10(2):.0f} B"
    )


def code_times(results: Results) -> ResultTable | None:
    """The server's time."""
    if "codes" not in results:
        return None
    names = ("SCMA", "Alg. 2", "IBLT", "dense")
    rows = []
    for one in results.of("codes"):
        seconds = one.value["seconds"]
        entries = [Entry(duration(seconds[n]) if n in seconds else "—") for n in names]
        rows.append((one.dataset, (*entries, Entry(percent(one.value["iblt_decoded"])))))
    return ResultTable(
        "code-times",
        "Codes for the sum: the server's time to decode (dense: to add up)",
        (*names, "IBLTs that decode"),
        tuple(rows),
        "Alg. 2 is python-flint's Berlekamp–Massey and root finding over the literal field; it and"
        " dense vectors are timed only where that takes seconds. The IBLT is plain Python.",
    )


def exactness(results: Results) -> ResultTable | None:
    """Bit for bit."""
    cells = [one for one in results.of("exactness") if one.dataset != "small sets"]
    if not cells:
        return None
    names = list(cells[0].value)
    rows = [
        (
            label(one.dataset),
            tuple(Entry(f"{sum(one.value[name])} of {len(one.value[name])}") for name in names),
        )
        for one in cells
    ]
    return ResultTable(
        "exactness",
        "Exactness, bit for bit: removals after which the centres equal a fresh fit's",
        tuple(names),
        tuple(rows),
        "The fresh fit has the same seed and sees only the records that are left. DC-KM and Q-KM"
        " are fedforget's, whose random numbers belong to nodes and records; drawn from a running"
        " generator they could agree in law at best. Seeds drawn anew: the authors' rule, one"
        " owner. Every fifth request takes away a seed, where the method has any.",
    )


def laws(results: Results) -> ResultTable | None:
    """In law."""
    from fractions import Fraction

    found = results.of("exactness", "small sets")
    if not found:
        return None
    held: dict[str, Any] = found[0].value
    rows = [
        (name, (Entry(text if text in ("0", "1/2") else f"{text} ≈ {float(Fraction(text)):.4f}"),))
        for name, text in held.items()
    ]
    return ResultTable(
        "laws",
        "Exactness in law: total variation between forgetting and retraining",
        ("total variation",),
        tuple(rows),
        "Enumerated with fractions. MUFC as printed and ours: K = 1, clients {0, 0.4} and {0.8},"
        " 0.4 is removed. Seeds drawn anew, and Alg. 3: K = 2 seeds of {0, 1, 3, 7}, the record"
        " for which the distance is largest. DC-KM: K = 2, clients {0, 1, 4} and {6, 9}, 4 is"
        " removed. Q-KM: K = 2 on {0, 1, 3}, one step on a lattice of width 1/2 with 8 phases,"
        " 1 is removed.",
    )
