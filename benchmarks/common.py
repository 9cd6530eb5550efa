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
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.cluster import KMeans

DATA = Path(os.environ.get("FEDFORGET_DATA", Path(__file__).parents[2] / "shared" / "data"))
console = Console(width=110)

# glibc hands every freed block of more than 128 KiB back to the kernel until a program has freed a
# larger one.  Free one here, as any program that has loaded a dataset has, so that neither side is
# timed for getting its memory back page by page.
del (_block := [bytes(31 << 20)])[:]


@dataclass(frozen=True)
class Dataset:
    """Rows to cluster; ``real`` tells whether they are the data itself or just of its shape."""

    name: str
    X: np.ndarray
    n_clusters: int
    real: bool
    clients: np.ndarray | None = None

    @property
    def label(self) -> str:
        n, d = self.X.shape
        origin = "" if self.real else " (generated)"
        return f"{self.name}{origin} {n:,} × {d}, K = {self.n_clusters}"


def unit_columns(X: np.ndarray) -> np.ndarray:
    """Each column to [0, 1] by its own minimum and maximum, row after row in memory."""
    X = X.astype(np.float64)
    low, spread = X.min(axis=0), np.ptp(X, axis=0)
    return np.ascontiguousarray((X - low) / np.where(spread > 0, spread, 1.0))


def mixture(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    """Rows around k uniform centres: the paper's Gaussian set, and a stand-in for absent data."""
    rng = np.random.default_rng(seed)
    return rng.random((k, d))[np.arange(n) % k] + rng.normal(0, 0.5**0.5, (n, d))


def gaussian() -> Dataset:
    """The paper's Gaussian set: ten clusters of 3,000, variance 0.5."""
    return Dataset("Gaussian", mixture(30_000, 10, 10), 10, real=True)


def load(
    name: str, shape: tuple[int, int], n_clusters: int, prepare: Callable, split: str
) -> Dataset:
    path = DATA / f"{name}.npz"
    if not path.exists():
        return Dataset(name, unit_columns(mixture(*shape, n_clusters)), n_clusters, real=False)
    with np.load(path, allow_pickle=False) as file:
        return Dataset(name, prepare(file["X"]), n_clusters, True, file[split])


def mnist_by_writer() -> Dataset:
    scaled = lambda X: X / 255.0  # noqa: E731
    return load("mnist_by_writer", (36_721, 784), 62, scaled, "client100")


def covtype() -> Dataset:
    return load("covtype", (15_120, 52), 7, unit_columns, "client")


def body_postures() -> Dataset:
    def some(X: np.ndarray) -> np.ndarray:
        chosen = np.random.default_rng(0).permutation(len(X))[:74_975]
        return unit_columns(X[np.sort(chosen)])

    return load("body_postures_puc", (74_975, 12), 5, some, "class_names")


def tcga_expression() -> Dataset:
    def logarithm(X: np.ndarray) -> np.ndarray:
        return unit_columns(np.log2(X.astype(np.float64) + 1.0))

    return load("tcga_expression_4cancers", (1_915, 138), 4, logarithm, "client")


def gut_microbiome() -> Dataset:
    return load("gut_microbiome_species", (1_989, 826), 4, unit_columns, "client")


def celltype() -> Dataset:
    widened = lambda X: np.ascontiguousarray(X, dtype=np.float64)  # noqa: E731
    return load("celltype", (12_009, 10), 4, widened, "client")


def shards(labels: np.ndarray, n_clients: int, seed: int = 0) -> np.ndarray:
    """Clients that each see a few clusters only: rows sorted by cluster, dealt in shards."""
    rng = np.random.default_rng(seed)
    per_client = max(1, round(len(np.unique(labels)) ** 0.5))
    order = np.lexsort((rng.random(len(labels)), labels))
    owner = rng.permutation(np.arange(n_clients * per_client) % n_clients)
    clients = np.empty(len(labels), dtype=np.int64)
    for shard, rows in enumerate(np.array_split(order, len(owner))):
        clients[rows] = owner[shard]
    return clients


def with_shards(make: Callable[[], Dataset], n_clients: int) -> Callable[[], Dataset]:
    def dealt() -> Dataset:
        data = make()
        labels = KMeans(data.n_clusters, n_init=1, random_state=0).fit_predict(data.X)
        return replace(data, clients=shards(labels, n_clients))

    return dealt


def with_natural_clients(make: Callable[[], Dataset], n_clients: int) -> Callable[[], Dataset]:
    def natural() -> Dataset:
        data = make()
        return data if data.real else with_shards(make, n_clients)()

    return natural


def median_seconds(*calls: Callable[[], object], repeats: int, rounds: int = 5) -> list[float]:
    """The median time of each call.

    The calls take turns in rounds, so that a noisy spell hits all of them.  Within a round each
    one is repeated, and the first time does not count: it is spent getting back memory that the
    others have given up.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, times, strict=True):
            call()
            own += [_seconds(call) for _ in range(max(1, repeats // rounds))]
    return [statistics.median(own) for own in times]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


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


PAPER_SETS = [
    with_natural_clients(celltype, 100),
    with_shards(covtype, 100),
    with_shards(gaussian, 100),
    with_shards(body_postures, 100),
    with_shards(tcga_expression, 10),
    with_shards(gut_microbiome, 10),
    with_natural_clients(mnist_by_writer, 100),
]
"""The paper's seven datasets or their stand-ins, with as many clients as in the paper."""
