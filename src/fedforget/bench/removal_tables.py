"""Tables of removals: how long they take, what they do to the loss, and how often seeds are hit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from fedforget.bench import paper
from fedforget.bench.cells import CellResult
from fedforget.bench.numbers import (
    METHODS,
    STAR,
    Entry,
    ResultTable,
    duration,
    label,
    mean_of,
    percent,
    quiet_speed_up,
    size,
    speed_up,
    times,
    title,
)
from fedforget.bench.runner import Results


def speed_ups(results: Results) -> ResultTable | None:
    """The second half of Table 1, and the average that the abstract names."""
    if "random" not in results:
        return None
    data = results.plan.light_sets
    rows: list[tuple[str, tuple[Entry, ...]]] = []
    for method in ("MUFC", "ours, K", "ours, 2K", "ours, lloyd K"):
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
        (*(title(name) for name in data), "average"),
        tuple(rows),
        f"{STAR} Random removals, one record per request: a client drawn uniformly, then one of its"
        " records. Complete retraining is K-means++ with Lloyd at the slowest client plus"
        " K-means++ with 10 starts at the server on its n points, with scikit-learn on one"
        " thread. It is timed three times in a run and its median taken. No seed removed: the"
        " median of those removals; all requests: the mean, re-seeds included.\n"
        "MUFC here follows Alg. 4 as printed, so that the server does nothing unless a client"
        " draws again. ours is exact: the server follows every removal. With lloyd the client's own"
        " K-means follows, too; no seed removed then means: none of its better start.",
    )


def _average(results: Results, measure: Callable[[CellResult, str], float], method: str) -> Entry:
    found = [
        value
        for name in results.plan.datasets
        if math.isfinite(value := mean_of(results.of("random", name), measure, method))
    ]
    return Entry(times(statistics.fmean(found)) if found else "—")


def removal_times(results: Results) -> ResultTable | None:
    """Fig. 3 (e)–(l) in numbers."""
    rows = []
    for words, cells in _by_kind(results):
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
        rows.append((f"{words} ({count} × {len(cells)})", (*entries, _retraining(cells))))
    if not rows:
        return None
    return ResultTable(
        "removal-times",
        "Fig. 3 (e)–(l) in numbers: seconds per request",
        (*METHODS, "complete retraining"),
        tuple(rows),
        "Mean; median; share of requests after which a client drew seeds again. In brackets:"
        " requests × trials. Adversarial: the record that contributes most to the method's own"
        " objective, chosen anew after each removal.",
    )


def loss_drift(results: Results) -> ResultTable | None:
    """Fig. 3 (d) and the appendix's loss ratios, in numbers."""
    rows = []
    for words, cells in _by_kind(results):
        entries = [
            Entry(
                f"{statistics.fmean(one.value['ratios'][m][0] for one in cells):.3f} → "
                f"{statistics.fmean(one.value['ratios'][m][-1] for one in cells):.3f}"
                if all(m in one.value["ratios"] for one in cells)
                else "—"
            )
            for m in METHODS
        ]
        rows.append((words, tuple(entries)))
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
            words = f"{label(name)}, {kind} records per request"
            rows.append((words, (*entries, _retraining(cells))))
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
    names = ("MUFC", "ours, 2K", "ours, lloyd K", "DC-KM")
    for name in results.plan.datasets:
        cells = results.of("clients", name)
        if not cells:
            continue
        entries = [
            Entry(f"{duration(_mean_seconds(cells, m))}; {times(mean_of(cells, speed_up, m))}")
            for m in names
        ]
        rows.append((title(name), (*entries, _retraining(cells))))
    if not rows:
        return None
    return ResultTable(
        "clients",
        "Multi-client removal: one client after another leaves with all its records",
        (*names, "complete retraining"),
        tuple(rows),
        f"{STAR} Mean seconds per client, and the speed-up over complete retraining.",
    )


def _by_kind(results: Results) -> Iterator[tuple[str, list[CellResult]]]:
    """The cells of random and of adversarial removals, dataset by dataset, where there are any."""
    for experiment in ("random", "adversarial"):
        for name in results.plan.datasets:
            cells = results.of(experiment, name)
            if cells:
                yield f"{experiment}, {title(name)}", cells


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
                    title(name),
                    (
                        *(
                            Entry(duration(statistics.median(held[way]["seconds"])))
                            for way in ("plain", "scma", "secure", "lloyd")
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
        (
            "in the clear",
            "SCMA, no masks",
            "whole protocol",
            "whole protocol, ours, lloyd K",
            "a client sends",
        ),
        tuple(rows),
        f"{STAR} Seconds of the sum alone, at all parties together, in one process. The times above"
        " leave it out, as the paper does. Plain and SCMA involve the client that changes; the"
        " protocol involves everybody, so that nobody learns who changed.",
    )


def reseeding(results: Results) -> ResultTable | None:
    """Measured chances against the theorem's bound."""
    rows = []
    for name in results.plan.datasets:
        for one in results.of("reseeding", name):
            for key, words in (("with", "all records"), ("without", "without outliers")):
                held = one.value[key]
                rows.append(
                    (
                        f"{title(name)}, {words}",
                        (
                            Entry(f"{held['epsilon_1']:.2f}"),
                            Entry(f"{held['epsilon_2']:.1f}"),
                            Entry(percent(held["random_bound"])),
                            Entry(percent(held["bound"])),
                            Entry(
                                f"{percent(held['hits'] / held['seedings'])}"
                                f" ({held['hits']} of {held['seedings']})"
                            ),
                            *(
                                Entry(_hits(results, kind, name, method) if key == "with" else "")
                                for kind in ("random", "adversarial")
                                for method in ("MUFC", "ours, lloyd K")
                            ),
                        ),
                    )
                )
    if not rows:
        return None
    return ResultTable(
        "reseeding",
        "The chance that a removed record is a seed, against Theorem 5.4",
        (
            "ε₁",
            "ε₂",
            "K/n",
            "bound",
            "costliest, measured",
            "random: MUFC",
            "random: lloyd",
            "adaptive: MUFC",
            "adaptive: lloyd",
        ),
        tuple(rows),
        "One K-means++ seeding of all records by one owner, as in the theorem's lemma. ε₁ = n /"
        " (K · smallest cluster). ε₂ is the smallest for which there is no outlier. Bound: 1/n +"
        " 10 K (K − 1) ε₁ ε₂ / n, at most 1. Costliest: the record that contributes most to the"
        " centralised loss. Without outliers: the hundredth of the records that lie farthest"
        " from their centres is taken out.\n"
        "Random, adaptive: the share of the requests of Fig. 3 that made a client draw again, of"
        " MUFC and of ours, lloyd K, for random removals and for the adversary of (e). A client has"
        " about n/L records, so that its chance is about K L / n. The adversary sees the model and"
        " strikes again and again, which the lemma does not cover.",
    )


def _hits(results: Results, experiment: str, dataset: str, method: str) -> str:
    """The share of a method's requests after which a client drew again."""
    hits = [r for one in results.of(experiment, dataset) for r in one.value["reseeded"][method]]
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
        held = {one.parameters.get("epsilon", one.parameters.get("iterate")): one for one in own}
        entries = []
        for setting in (False, True, *reversed(widths)):
            value = held[setting].value if setting in held else None
            if value is None:
                entries.append(Entry("—"))
                continue
            mean = statistics.fmean(value["seconds"])
            again = 1.0 - statistics.fmean(value["certified"])
            ratio = value["loss"] / reference["loss"]
            entries.append(Entry(f"{duration(mean)}; {percent(again)}; {ratio:.2f}"))
        rows.append((title(name), tuple(entries)))
    return ResultTable(
        "q-k-means",
        "Q-k-means against SeededKMeans (Alg. 3) and KMeans, one owner of all records",
        ("SeededKMeans", "KMeans", *(f"Q-KM, ε = {width:.3g}" for width in reversed(widths))),
        tuple(rows),
        f"{STAR} Mean seconds per removal; share of removals after which it trained (drew seeds)"
        " again; loss over that of centralised K-means++. SeededKMeans has no Lloyd iterations, and"
        " its loss is that of seeds; KMeans runs them and follows each removal exactly, one start.",
    )


def scaling(results: Results) -> ResultTable | None:
    """Theorem 5.4: removals and n."""
    rows = []
    names = ("Alg. 3", "ours, K", "ours, lloyd K")
    for n in results.plan.scales:
        cells = results.of("scaling", f"n = {n}")
        if not cells:
            continue
        held = cells[0].value
        entries = [Entry(_removal_text(held[name]) if name in held else "—") for name in names]
        entries += [Entry(duration(held["Alg. 3"]["fit"]))]
        rows.append((f"n = {n:,}", tuple(entries)))
    if not rows:
        return None
    return ResultTable(
        "scaling",
        "Theorem 5.4: a removal does not depend on n",
        (*names, "Alg. 3, seeding anew"),
        tuple(rows),
        "Median; mean; re-seeds among the removals of single random records. Gaussian records, 10"
        " features, K = 10. Alg. 3 (SeededKMeans) is what the theorem speaks of: a re-seed costs"
        " O(nKd) and has probability K/n. ours: federations of 10 clients; the server follows every"
        " removal. With lloyd a client's K-means follows as well, through all its iterations, and"
        " that does grow with n: these clusters overlap, and many records lie near a border.",
    )


def _removal_text(held: dict[str, list[float]]) -> str:
    seconds, redrawn = held["seconds"], held["reseeded"]
    return (
        f"{duration(statistics.median(seconds))}; {duration(statistics.fmean(seconds))};"
        f" {int(sum(redrawn))} of {len(redrawn)}"
    )
