"""What tables and figures share: entries, labels, and numbers as text.

Ratios and speed-ups are taken here, from finished cells, for every table in the same way.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fedforget.bench import paper
from fedforget.bench.cells import CellResult
from fedforget.bench.runner import Results

METHODS = ("MUFC", "ours, K", "ours, 2K", "ours, lloyd K", "DC-KM")
"""Those that can forget, in the order of the figures."""

_PAPER_NAMES = {name.lower(): name for name in paper.DATASETS} | {"body-postures": "body postures"}

STAND_INS = ("tmi", "tcga", "body-postures", "femnist")
"""The sets for which the paper's own data are not at hand."""


@dataclass(frozen=True)
class Entry:
    """One cell of a table: what was measured, and what the paper prints."""

    text: str
    printed: str = ""


@dataclass(frozen=True)
class ResultTable:
    """A table of the page.

    ``notes`` say what the numbers mean, one paragraph per line.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Entry, ...]], ...]
    notes: str = ""

    def csv(self) -> str:
        """The table as text, one line per entry."""
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


def title(dataset: str) -> str:
    """A dataset at the head of a column; stand-ins have a star.

    >>> title("tmi"), title("body-postures"), title("celltype")
    ('TMI*', 'body postures*', 'Celltype')
    """
    return label(dataset) + ("*" if dataset in STAND_INS else "")


STAR = "* stand-in: the paper's own data are not at hand."


@dataclass(frozen=True)
class LossColumn:
    """One dataset of a table of loss ratios, and the loss that its ratios are taken to."""

    dataset: str
    title: str
    reference: float


def columns_of(
    results: Results, datasets: Iterable[str], *, printed: bool = True
) -> list[LossColumn]:
    """Every dataset; Covtype twice, because the paper's reference is not the best clustering known.

    Without ``printed`` it stands once, against the best.
    """
    found = []
    for name in datasets:
        reference = results.reference(name)
        if reference is None:
            continue
        other = reference.get("printed") if printed else None
        words = f", φ* = {reference['loss']:,.0f}" if other else ""
        found.append(LossColumn(name, title(name) + words, reference["loss"]))
        if other:
            words = f", φ* = {other['loss']:,.0f}"
            found.append(LossColumn(name, title(name) + words, other["loss"]))
    return found


def losses(
    results: Results, experiment: str, method: str, dataset: str, loss: str = "induced"
) -> list[float]:
    """A method's losses over the trials of an experiment."""
    return [
        float(one.value[method][loss])
        for one in results.of(experiment, dataset)
        if method in one.value
    ]


def ratios(
    results: Results,
    experiment: str,
    method: str,
    dataset: str,
    loss: str = "induced",
    *,
    printed: bool = False,
) -> list[float]:
    """Loss ratios of a method over the trials, to the best clustering known.

    ``printed`` takes them to the clustering that the paper compares with, where that is another.
    """
    reference = results.reference(dataset)
    if reference is None:
        return []
    other = reference.get("printed") if printed else None
    best = (other or reference)["loss"]
    return [one / best for one in losses(results, experiment, method, dataset, loss)]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Of trials; one trial has no deviation, which counts as 0.

    >>> mean_and_deviation([2.0])
    (2.0, 0.0)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def speed_up(cell: CellResult, method: str) -> float:
    """Complete retraining over the mean removal, re-seeds included."""
    again, seconds = cell.value["retraining"], cell.value["seconds"].get(method)
    if not again or not seconds or not any(seconds):
        return math.nan
    return float(statistics.median(again) / statistics.fmean(seconds))


def quiet_speed_up(cell: CellResult, method: str) -> float:
    """Complete retraining over the median removal of a record that is not a seed."""
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
