"""What the benchmarks share: pinned threads, data, timing, tables.

Import this before NumPy: thread pools read their environment when they start.
"""

from __future__ import annotations

import os
import sys

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"
if "numpy" in sys.modules:
    raise ImportError("import benchmarks' common module before numpy, or threads are not pinned")

import platform
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import figures
from fedforget.bench import datasets
from fedforget.bench.datasets import Dataset
from fedforget.bench.plan import PAPER_SETS as PRINTED_SETS
from fedforget.bench.splits import in_file_order
from fedforget.bench.timing import median_seconds, timed

__all__ = [
    "PAPER_SETS", "REMOVAL_COLUMNS", "SPEED_UP", "Dataset", "Removals", "console", "dealt",
    "heading", "is_generated", "label", "load", "median_seconds", "milliseconds", "mixture",
    "row_name", "show_mean_speed_up", "table", "timed", "verdict",
]  # fmt: skip

console = Console(width=110)

# glibc hands every freed block of more than 128 KiB back to the kernel until a program has freed a
# larger one.  Free one here, as any program that has loaded a dataset has, so that neither side is
# timed for getting its memory back page by page.
del (_block := [bytes(31 << 20)])[:]


PAPER_SETS = tuple("body-postures" if name == "postures" else name for name in PRINTED_SETS)
"""The paper's sets; Postures, of which a part is at hand, by a set of the size of the whole."""

_SHAPES = {
    "tmi": (1_989, 826, 4),
    "celltype": (12_009, 10, 4),
    "tcga": (1_915, 138, 4),
    "body-postures": (74_975, 12, 5),
    "femnist": (36_721, 784, 62),
    "covtype": (15_120, 52, 7),
}
"""Rows, columns and clusters of the sets that need a file."""
_GENERATED = "Generated, of the same shape."


def mixture(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """Rows around k uniform centres, with the variance of the paper's Gaussian set."""
    rng = np.random.default_rng(seed)
    return rng.random((k, d))[np.arange(n) % k] + rng.normal(0, 0.5**0.5, (n, d))


def load(name: str) -> Dataset:
    """A set of ``fedforget bench paper``, with its clients; generated if its file is missing."""
    try:
        return datasets.load(name)
    except FileNotFoundError:
        n, d, k = _SHAPES[name]
        n_clients, k_prime = 100 if n > 10_000 else 10, datasets.default_k_prime(k)
        X = datasets.unit_columns(mixture(n, d, k))
        clients = in_file_order(np.arange(n) % k, n_clients, k_prime)
        return Dataset(name, "", X, clients, k, k_prime, n_clients, _GENERATED)


def dealt(data: Dataset, clients: np.ndarray) -> Dataset:
    """The same records with other clients."""
    return replace(data, clients=clients)


def is_generated(data: Dataset) -> bool:
    """Whether a set only has the shape of the one whose name it bears."""
    return data.note == _GENERATED


def label(data: Dataset) -> str:
    """A set in a table."""
    n, d = data.X.shape
    origin = " (generated)" if is_generated(data) else ""
    return f"{data.name}{origin} {n:,} × {d}, K = {data.n_clusters}"


def row_name(data: Dataset) -> str:
    """Under which name figures are kept: those of generated data never under the real one's."""
    return f"{data.name} (generated)" if is_generated(data) else data.name


REMOVAL_COLUMNS = (
    "data", "removal (mean)", "median", "client", "re-seeds", "retraining", "speed-up",
)  # fmt: skip
SPEED_UP = 84.0
"""What the paper reports for a removal against complete retraining, on the mean of its sets."""


@dataclass
class Removals:
    """Whole removals of single records, timed from the call to the return."""

    seconds: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    clients: list[float] = field(default_factory=list)
    reseeds: int = 0

    def forget(self, model: Any, victim: int) -> None:
        """Let a fitted federation forget one record."""
        report, seconds = timed(partial(model.forget, victim))
        self.seconds.append(seconds)
        self.server.append(report.seconds["server"])
        self.clients.append(report.seconds["clients"])
        self.reseeds += bool(report.reseeded)

    def speed_up(self, retraining: list[float]) -> float:
        """How much faster a removal is, on the mean, than retraining."""
        return float(np.median(retraining)) / float(np.mean(self.seconds))

    def record(self, data: Dataset, retraining: list[float]) -> None:
        """Keep the figures of the row."""
        figures.record(
            row_name(data),
            removal_seconds=float(np.mean(self.seconds)),
            retraining_seconds=float(np.median(retraining)),
            removal_speed_up=self.speed_up(retraining),
            reseeded_share=self.reseeds / len(self.seconds),
        )

    def row(self, data: Dataset, retraining: list[float]) -> tuple[str, ...]:
        """The cells of :data:`REMOVAL_COLUMNS`."""
        return (
            label(data),
            milliseconds(float(np.mean(self.seconds))),
            milliseconds(float(np.median(self.seconds))),
            f"{100 * np.sum(self.clients) / np.sum(self.seconds):.0f} %",
            f"{100 * self.reseeds / len(self.seconds):.1f} %",
            milliseconds(float(np.median(retraining))),
            f"{self.speed_up(retraining):.0f}×",
        )


def table(title: str, *columns: str) -> Table:
    result = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        result.add_column(column, justify="left" if number == 0 else "right")
    return result


def heading(text: str) -> None:
    console.rule(text, align="left")
    console.print(
        f"[dim]one thread; {platform.machine()}, Python {platform.python_version()},"
        f" NumPy {np.__version__}[/dim]"
    )


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f} ms" if seconds < 1 else f"{seconds:.2f} s"


def verdict(value: float, target: float, *, at_least: bool = True) -> str:
    good = value >= target if at_least else value <= target
    sign = "≥" if at_least else "≤"
    colour = "green" if good else "red"
    return f"[{colour}]{sign} {target:g}[/{colour}]"


def show_mean_speed_up(ratios: list[float]) -> None:
    """Against complete retraining, beside the paper's."""
    if not ratios:
        return
    mean = float(np.mean(ratios))
    console.print(f"mean speed-up {mean:.0f}×, target {verdict(mean, SPEED_UP)}")
