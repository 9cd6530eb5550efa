"""The figures, in the paper's arrangement; colours that colour-blind readers can tell apart."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedforget.bench.cells import CellResult
from fedforget.bench.numbers import METHODS, label, losses, title
from fedforget.bench.runner import Results

STYLES: dict[str, tuple[str, Any, str]] = {
    "MUFC": ("#D55E00", "-", "MUFC as published"),
    "ours, K": ("#56B4E9", "-", "ours, K"),
    "ours, 2K": ("#0072B2", "-", "ours, 2K"),
    "ours, lloyd K": ("#E69F00", "-", "ours, lloyd K"),
    "DC-KM": ("#009E73", "--", "DC-KM"),
    "weighted": ("#CC79A7", "--", "MUFC, bin centres"),
    "retraining": ("#555555", ":", "complete retraining"),
    "bound": ("#000000", ":", "information bound"),
    "SCMA": ("#0072B2", "-", "SCMA (ours)"),
    "Alg. 2": ("#D55E00", "-", "SCMA, Alg. 2 as printed"),
    "IBLT": ("#009E73", "--", "IBLT"),
    "dense": ("#555555", "-.", "dense vector"),
    "seeds, induced": ("#D55E00", "-", "seeds, induced"),
    "seeds, nearest": ("#D55E00", ":", "seeds, nearest centre"),
    "means, induced": ("#0072B2", "-", "means, induced"),
    "means, nearest": ("#0072B2", ":", "means, nearest centre"),
    "lloyd, induced": ("#E69F00", "-", "lloyd, induced"),
    "lloyd, nearest": ("#E69F00", ":", "lloyd, nearest centre"),
}
"""Colour (Okabe and Ito), line and words of everything that is drawn."""

_REPRESENTATIVES, _LOSSES = ("seeds", "means", "lloyd"), ("induced", "nearest")

LOOK: Any = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.hashsalt": "fedforget",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Figure:
    """A drawn figure."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: str


Painter = Callable[[Any], None]


def all_figures(results: Results) -> list[Figure]:
    """Every figure that the results have something for."""
    makers = (
        figure_3, trade_off, appendix, batch_figure, local_clusters, theorem_4_1, scaling,
        reseeding, codes,
    )  # fmt: skip
    return [figure for make in makers if (figure := make(results)) is not None]


# -- the paper's -----------------------------------------------------------------------------------


def figure_3(results: Results) -> Figure | None:
    """(a)–(l), four in a row."""
    plan = results.plan
    panels: list[tuple[str, Painter]] = []
    if "fig3a" in results:
        panels.append((f"K′, {label(plan.synthetic)}", lambda axis: _k_prime(axis, results)))
    for experiment, name in (("fig3b", plan.synthetic), ("fig3c", plan.real)):
        if experiment in results:
            panels.append(
                (f"γ, {label(name)}", partial(_step, results=results, experiment=experiment))
            )
    if results.of("random", plan.real):
        panels.append((f"loss, {label(plan.real)}", lambda axis: _loss(axis, results, plan.real)))
    if results.of("adversarial", plan.adversarial_main):
        name = plan.adversarial_main
        panels.append(
            (f"adversarial, {label(name)}", lambda axis: _times(axis, results, "adversarial", name))
        )
    panels += [
        (
            f"random, {label(one)}",
            partial(_times, results=results, experiment="random", dataset=one),
        )
        for one in plan.datasets
        if results.of("random", one)
    ]
    return _sheet(
        "fig3", "Figure 3", panels,
        ("MUFC", "ours, K", "ours, 2K", "ours, lloyd K", "weighted", "DC-KM", "retraining"),
        "Shaded: standard deviation over trials. (a) Influence of K′, the most global clusters that"
        " a client sees. (b), (c) Influence of the step γ; the red line is 1/√n. (d) Induced loss"
        " ratio over removals. Others: accumulated removal time in seconds, logarithmic."
        " Complete retraining is timed on three requests and multiplied.",
    )  # fmt: skip


def appendix(results: Results) -> Figure | None:
    """Loss ratios and adversarial removals on the datasets that Figure 3 leaves out."""
    plan = results.plan
    panels: list[tuple[str, Painter]] = [
        (f"loss, {label(name)}", partial(_loss, results=results, dataset=name))
        for name in plan.datasets
        if name != plan.real and results.of("random", name)
    ]
    panels += [
        (
            f"adversarial, {label(name)}",
            partial(_times, results=results, experiment="adversarial", dataset=name),
        )
        for name in plan.datasets
        if name != plan.adversarial_main and results.of("adversarial", name)
    ]
    return _sheet(
        "appendix", "Appendix: loss ratios and adversarial removals", panels,
        (*METHODS, "retraining"),
        "Induced loss ratio over random removals, then accumulated removal time in seconds"
        " (logarithmic) for adversarial removals.",
    )  # fmt: skip


def batch_figure(results: Results) -> Figure | None:
    """Batch removals."""
    panels: list[tuple[str, Painter]] = []
    for name in results.plan.batch_sets:
        for kind in ("10", "30"):
            cells = [one for one in results.of("batch", name) if one.parameters["kind"] == kind]
            if cells:
                panels.append(
                    (
                        f"{label(name)}, {kind} per request",
                        partial(_accumulated, cells=cells),
                    )
                )
    return _sheet(
        "batch", "Appendix: batch removals", panels, (*METHODS, "retraining"),
        "Accumulated removal time in seconds (logarithmic); all records of a request belong to one"
        " random client.",
    )  # fmt: skip


# -- beyond ----------------------------------------------------------------------------------------


def local_clusters(results: Results) -> Figure | None:
    """Loss against the re-seed rate."""
    panels: list[tuple[str, Painter]] = [
        (label(name), partial(_trade, results=results, dataset=name))
        for name in results.plan.datasets
        if results.of("local-clusters", name)
    ]
    return _sheet(
        "local-clusters", "Beyond the paper: what more local clusters buy, and cost", panels,
        [f"{what}, {loss}" for what in _REPRESENTATIVES for loss in _LOSSES],
        "Loss ratio against the chance that a random removal makes a client draw again; the points"
        " of a line are 1, 2, 4, 8 times K local clusters.",
    )  # fmt: skip


def trade_off(results: Results) -> Figure | None:
    """The induced loss against the time of a removal."""
    panels: list[tuple[str, Painter]] = [
        (title(name), partial(_loss_and_time, results=results, dataset=name))
        for name in results.plan.datasets
        if results.of("random", name) and results.of("table1", name)
    ]
    return _sheet(
        "trade-off", "Loss against the time of a removal", panels, (*METHODS, "retraining"),
        "Induced loss ratio (Tables 1 and 2) against the mean time of a random removal, re-seeds"
        " included, in seconds, logarithmic; lower and further left is better. Complete retraining"
        " has the loss of complete client training. Bars: standard deviation of the loss over"
        " trials. * stand-in.",
    )  # fmt: skip


def scaling(results: Results) -> Figure | None:
    """Removals and n."""
    if "scaling" not in results:
        return None
    return _sheet(
        "scaling", "Theorem 5.4: the median time of a removal, against n",
        [("", lambda axis: _removal_against_n(axis, results))], (),
        "Seconds, both axes logarithmic. Alg. 3 is the paper's; seeding anew is what a removal"
        " would cost without it.",
        size=(5.2, 3.0),
    )  # fmt: skip


def theorem_4_1(results: Results) -> Figure | None:
    """The loss above that of the finest grid, against n d γ²."""
    panels: list[tuple[str, Painter]] = [
        (label(results.of(e)[0].dataset), partial(_quantisation, results=results, experiment=e))
        for e in ("fig3b", "fig3c")
        if results.of(e)
    ]
    return _sheet(
        "theorem4-1", "Beyond the paper: the second term of Theorem 4.1", panels,
        ("MUFC", "weighted", "ours, 2K", "ours, lloyd K"),
        "Loss over φ* against n d γ² / φ*. The dotted line is the quantisation term with constant"
        " 1/4, on top of the loss of the finest grid; the loss must rise no faster than a multiple"
        " of it.",
    )  # fmt: skip


def reseeding(results: Results) -> Figure | None:
    """Measured chances and the bound."""
    if "reseeding" not in results:
        return None
    return _sheet(
        "reseeding", "Beyond the paper: the chance of a re-seed against Theorem 5.4",
        [("", lambda axis: _chances(axis, results))], (),
        "One seeding of all records. Filled: all records; hollow: without the hundredth that lies"
        " farthest out. A triangle: never seen, so the chance is below it or"
        " near it.",
        size=(7.0, 3.2),
    )  # fmt: skip


def codes(results: Results) -> Figure | None:
    """Bits over d and L, and the server's time."""
    if "codes" not in results:
        return None
    cells = results.of("codes")
    over_d = sorted(
        (one for one in cells if one.parameters["n_clients"] == 100),
        key=lambda one: int(one.parameters["n_features"]),
    )
    over_l = sorted(
        (one for one in cells if one.parameters["n_features"] == 10),
        key=lambda one: int(one.parameters["n_clients"]),
    )
    panels: list[tuple[str, Painter]] = [
        ("bytes per client, L = 100", lambda a: _lengths(a, over_d, "n_features", "features d")),
        ("bytes per client, d = 10", lambda a: _lengths(a, over_l, "n_clients", "clients L")),
        ("server's seconds, L = 100", lambda a: _decoding(a, over_d, "n_features", "features d")),
        ("server's seconds, d = 10", lambda a: _decoding(a, over_l, "n_clients", "clients L")),
    ]
    return _sheet(
        "codes", "Beyond the paper: codes for the sum", panels,
        ("bound", "SCMA", "Alg. 2", "IBLT", "dense"),
        "Celltype's shape: K = 4, 110 levels, n = 12,009. The dense vector leaves the picture at"
        " d = 4; Alg. 2 is decoded where that takes seconds, not hours.",
    )  # fmt: skip


# -- panels ----------------------------------------------------------------------------------------


def _k_prime(axis: Any, results: Results) -> None:
    methods = ("MUFC", "ours, 2K", "ours, lloyd K")
    _sweep(axis, results, results.of("fig3a"), "k_prime", methods)
    axis.set_xlabel("K′")


def _step(axis: Any, results: Results, experiment: str) -> None:
    cells = results.of(experiment)
    _sweep(axis, results, cells, "step", ("MUFC", "weighted", "ours, 2K", "ours, lloyd K"))
    axis.set_xscale("log")
    reference = results.reference(cells[0].dataset)
    assert reference is not None
    axis.axvline(sum(reference["sizes"]) ** -0.5, color="#C00000", linewidth=1.0)
    axis.set_xlabel("γ")


def _sweep(
    axis: Any, results: Results, cells: list[CellResult], key: str, methods: Sequence[str]
) -> None:
    reference = results.reference(cells[0].dataset)
    assert reference is not None
    places = sorted({one.parameters[key] for one in cells})
    for method in methods:
        rows = [
            [
                one.value[method]["induced"] / reference["loss"]
                for one in cells
                if one.parameters[key] == place
            ]
            for place in places
        ]
        _band(axis, places, rows, method, marker="o")
    axis.set_ylabel("loss ratio")
    _logarithmic_if_wide(axis)


def _logarithmic_if_wide(axis: Any) -> None:
    """A loss that grows tenfold must not press the others flat."""
    low, high = axis.dataLim.intervaly
    if high > 4 * low > 0:
        axis.set_yscale("log")
        ticks = [
            tick for tick in (1, 1.5, 2, 3, 5, 10, 20, 50, 100) if low * 0.9 < tick < high * 1.1
        ]
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_yticks([], minor=True)


def _loss(axis: Any, results: Results, dataset: str) -> None:
    cells = results.of("random", dataset)
    for method in METHODS:
        rows = [
            list(column) for column in zip(*(c.value["ratios"][method] for c in cells), strict=True)
        ]
        _band(axis, cells[0].value["checked"], rows, method, marker="o")
    axis.set_xlabel("removals")
    axis.set_ylabel("loss ratio")


def _times(axis: Any, results: Results, experiment: str, dataset: str) -> None:
    _accumulated(axis, results.of(experiment, dataset))


def _accumulated(axis: Any, cells: list[CellResult]) -> None:
    for method in METHODS:
        curves = [
            np.cumsum(one.value["seconds"][method])
            for one in cells
            if method in one.value["seconds"]
        ]
        if not curves:
            continue
        place = np.arange(1, len(curves[0]) + 1)
        _band(axis, place, np.array(curves).T, method)
    again = [s for one in cells for s in one.value["retraining"]]
    if again:
        place = np.arange(1, len(cells[0].value["seconds"]["MUFC"]) + 1)
        colour, line, _ = STYLES["retraining"]
        axis.plot(place, place * float(np.median(again)), color=colour, linestyle=line)
    axis.set_yscale("log")
    axis.set_xlabel("requests")
    axis.set_ylabel("seconds")


def _band(axis: Any, places: Any, rows: Any, method: str, *, marker: str = "") -> None:
    """A line of means with the standard deviation shaded."""
    colour, line, _ = STYLES[method]
    means = np.array([np.mean(row) for row in rows])
    deviations = np.array([np.std(row) for row in rows])
    style = {"marker": marker, "markersize": 3.0} if marker else {}
    axis.plot(places, means, color=colour, linestyle=line, **style)
    low = np.maximum(means - deviations, means * 0.05)
    axis.fill_between(places, low, means + deviations, color=colour, alpha=0.15, linewidth=0)


def _trade(axis: Any, results: Results, dataset: str) -> None:
    reference = results.reference(dataset)
    assert reference is not None
    cells = results.of("local-clusters", dataset)
    for what in _REPRESENTATIVES:
        own = [one for one in cells if one.parameters["representatives"] == what]
        multiples = sorted({one.parameters["multiple"] for one in own})
        groups = [[one for one in own if one.parameters["multiple"] == m] for m in multiples]
        across = [100 * float(np.mean([one.value["reseed"] for one in group])) for group in groups]
        for key in _LOSSES:
            colour, line, _ = STYLES[f"{what}, {key}"]
            up = [
                float(np.mean([one.value[key] for one in group])) / reference["loss"]
                for group in groups
            ]
            axis.plot(
                across, up, color=colour, linestyle=line, marker="o", markersize=3.5,
                markerfacecolor=colour if key == "induced" else "white",
            )  # fmt: skip
        axis.set_xscale("log")
        axis.set_xticks(across, [f"{value:.2g}" for value in across])
        axis.set_xticks([], minor=True)
    axis.set_xlabel("chance of a re-seed, %")
    axis.set_ylabel("loss ratio")


def _loss_and_time(axis: Any, results: Results, dataset: str) -> None:
    reference = results.reference(dataset)
    assert reference is not None
    cells = results.of("random", dataset)
    points = [
        (method, losses(results, "table1", method, dataset), one)
        for method in METHODS
        if (one := [s for cell in cells for s in cell.value["seconds"].get(method, ())])
    ]
    again = [s for cell in cells for s in cell.value["retraining"]]
    points.append(("retraining", losses(results, "table2", "MUFC", dataset), again))
    for method, found, seconds in points:
        if not found or not seconds:
            continue
        ratio = np.array(found) / reference["loss"]
        axis.errorbar(
            np.mean(seconds) if method != "retraining" else np.median(seconds), ratio.mean(),
            yerr=ratio.std(), color=STYLES[method][0], marker="o", markersize=5, capsize=2,
        )  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlabel("seconds per removal")
    axis.set_ylabel("loss ratio")
    _logarithmic_if_wide(axis)


def _removal_against_n(axis: Any, results: Results) -> None:
    for name, colour in (
        ("Alg. 3", "#D55E00"),
        ("ours, K", "#56B4E9"),
        ("ours, lloyd K", "#E69F00"),
    ):
        shown = [
            (one.parameters["n"], float(np.median(one.value[name]["seconds"])))
            for one in results.of("scaling")
            if name in one.value
        ]
        axis.plot(*zip(*shown, strict=True), color=colour, marker="o", markersize=3.5, label=name)
    anew = [(one.parameters["n"], one.value["Alg. 3"]["fit"]) for one in results.of("scaling")]
    axis.plot(*zip(*anew, strict=True), color="#555555", linestyle=":", label="seeding anew")
    axis.set(xscale="log", yscale="log", xlabel="records n", ylabel="seconds")
    axis.legend()


def _quantisation(axis: Any, results: Results, experiment: str) -> None:
    cells = results.of(experiment)
    reference = results.reference(cells[0].dataset)
    assert reference is not None
    n, d = sum(reference["sizes"]), len(reference["centres"][0])
    steps = sorted({one.parameters["step"] for one in cells})
    across = np.array([n * d * step**2 / reference["loss"] for step in steps])
    base = math.inf
    for method in ("MUFC", "weighted", "ours, 2K", "ours, lloyd K"):
        rows = [
            [
                one.value[method]["induced"] / reference["loss"]
                for one in cells
                if one.parameters["step"] == step
            ]
            for step in steps
        ]
        base = min(base, float(np.mean(rows[0])))
        _band(axis, across, rows, method, marker="o")
    _logarithmic_if_wide(axis)
    bottom, top = axis.get_ylim()
    line = np.geomspace(across[0], across[-1], 200)
    axis.plot(line, base + line / 4, color="#000000", linestyle=":", linewidth=1.0)
    axis.set_ylim(bottom, top * 1.1)
    axis.set_xscale("log")
    axis.set_xlabel("n d γ² / φ*")
    axis.set_ylabel("loss / φ*")


def _chances(axis: Any, results: Results) -> None:
    names = [name for name in results.plan.datasets if results.of("reseeding", name)]
    for place, name in enumerate(names):
        held = results.of("reseeding", name)[0].value
        for key, shift, filled in (("with", -0.12, True), ("without", 0.12, False)):
            one = held[key]
            for value, colour, marker in (
                (one["random_bound"], "#56B4E9", "s"),
                (max(one["hits"], 1) / one["seedings"], "#D55E00", "o" if one["hits"] else "v"),
                (one["bound"], "#000000", "_"),
            ):
                axis.plot(
                    place + shift, value, marker=marker, color=colour, linestyle="", markersize=6,
                    markerfacecolor=colour if filled else "white",
                )  # fmt: skip
    axis.set_yscale("log")
    axis.set_xticks(range(len(names)), [label(name) for name in names])
    axis.set_ylabel("probability")
    for words, colour, marker in (
        ("random record: K/n", "#56B4E9", "s"),
        ("costliest record, measured", "#D55E00", "o"),
        ("Theorem 5.4's bound for any record", "#000000", "_"),
    ):
        axis.plot([], [], marker=marker, color=colour, linestyle="", label=words)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, 1.16), ncols=3)


def _lengths(axis: Any, cells: list[CellResult], key: str, words: str) -> None:
    across = [one.parameters[key] for one in cells]
    for code in ("bound", "SCMA", "Alg. 2", "IBLT"):
        colour, line, _ = STYLES[code]
        up = [one.value["bits"][code] / 8 for one in cells]
        axis.plot(across, up, color=colour, linestyle=line, marker="o", markersize=2.5)
    top = 20 * max(one.value["bits"]["IBLT"] / 8 for one in cells)
    colour, line, _ = STYLES["dense"]
    dense = [(one.parameters[key], one.value["bits"]["dense"] - 3) for one in cells]
    shown = [(place, 2.0**power) for place, power in dense if power < 60]
    if shown:
        axis.plot(*zip(*shown, strict=True), color=colour, linestyle=line)
    axis.set(xscale="log", yscale="log", xlabel=words, ylabel="bytes")
    axis.set_ylim(top=top)


def _decoding(axis: Any, cells: list[CellResult], key: str, words: str) -> None:
    for code in ("SCMA", "Alg. 2", "IBLT", "dense"):
        colour, line, _ = STYLES[code]
        shown = [
            (one.parameters[key], one.value["seconds"][code])
            for one in cells
            if code in one.value["seconds"]
        ]
        if shown:
            across, up = zip(*shown, strict=True)
            axis.plot(across, up, color=colour, linestyle=line, marker="o", markersize=2.5)
    axis.set(xscale="log", yscale="log", xlabel=words, ylabel="seconds")


# -- sheets ----------------------------------------------------------------------------------------


def _sheet(
    name: str,
    title: str,
    panels: list[tuple[str, Painter]],
    legend: Sequence[str],
    caption: str,
    *,
    size: tuple[float, float] | None = None,
) -> Figure | None:
    """Panels (a), (b), … four in a row, with one legend for all."""
    if not panels:
        return None
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    width, height = size or (2.75 * columns + 0.2, 2.05 * rows + 0.45)
    with matplotlib.rc_context(LOOK):
        figure, grid = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
        axes = grid.ravel()
        for number, (axis, (words, paint)) in enumerate(zip(axes, panels, strict=False)):
            paint(axis)
            if words:
                axis.set_title(f"({chr(ord('a') + number)}) {words}")
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        if legend:
            handles = [
                Line2D([], [], color=STYLES[one][0], linestyle=STYLES[one][1], label=STYLES[one][2])
                for one in legend
            ]
            figure.legend(
                handles=handles, loc="outside upper center", ncols=min(len(handles), 2 * columns)
            )
        png, svg = io.BytesIO(), io.StringIO()
        figure.savefig(png, format="png", dpi=150)
        figure.savefig(svg, format="svg", metadata={"Date": None})
        plt.close(figure)
    return Figure(name, title, caption, png.getvalue(), smaller(svg.getvalue()))


def smaller(svg: str) -> str:
    """Coordinates to two decimals: nobody sees the others."""
    return re.sub(r"(\d+\.\d{2})\d+", r"\1", svg)
