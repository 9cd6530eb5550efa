"""Compile kernels ahead, so that nobody waits for a compiler in the middle of real work.

The kernels are divided into parts, by what needs them.  numba compiles one kernel at a time in a
process, so several processes share the parts; what they compile is kept on disk, and the others
load it from there.
"""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import llvmlite.binding
import numpy as np
from numba.core.targetconfig import TargetConfig

from fedforget import kernel_cache
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows, nearest, pairwise
from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import IdIndex, keys_of_ids
from fedforget.clustering.lattice_kmeans import PointSource, UniformPoints, WeightedPoints, cluster
from fedforget.clustering.partition import SeededPartition
from fedforget.clustering.prf import Secret
from fedforget.clustering.race import copy_and_start, first_row
from fedforget.clustering.records import RecordTable
from fedforget.clustering.replay import ReplayingServer
from fedforget.clustering.replay.engine import Task
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans
from fedforget.compilation import KERNELS, compiled_now
from fedforget.scma import Codec

_SECRET = Secret(bytes(16))
_DONE = "."


def _run_records() -> None:
    """What a data owner uses: ids, seeds, partitions, bins."""
    values = np.linspace(0.0, 1.0, 24).reshape(8, 3)
    kernels.all_within(values, 1.0)
    kernels.exponential(0.5)
    ids = np.arange(8)
    keys = keys_of_ids(_SECRET, ids)
    keys_of_ids(_SECRET, ids.astype(np.str_))
    index = IdIndex()
    index.put(keys, ids)
    index.find(keys)
    index.drop(keys)
    grid = Grid(np.array([[0.0, 1.0]] * 3), 0.25)
    grid.bins(values)
    table = RecordTable(values.copy(), ids, keys, ids)
    partition = SeededPartition(table, 2, grid.fixed_point)
    partition.forget(np.flatnonzero(np.isin(table.ids, partition.seed_ids[1:])))
    keys = keys_of_ids(_SECRET, ids + 8)
    partition.admit(table.append(values, ids + 8, keys, ids + 8), values, keys)


def _run_large_data() -> None:
    """What small data does not reach: many rows, many features, tied scores."""
    values = np.linspace(0.0, 1.0, 24).reshape(8, 3)
    n = len(values)
    keys = keys_of_ids(_SECRET, np.arange(n))
    copy_and_start(np.tile(values, (1, 8)), keys, first_row)
    pairwise(values, values)
    kernels.distances_to(values, values[0], np.empty(n))
    kernels.meet_tiled(values, values, 0, np.full(n, np.inf), np.full(n, -1, np.int32))
    wide = np.tile(values, (1, 1500))
    nearest(wide, wide[:3])
    tried = 1.0, np.full(n, 9.0), np.empty((n, n)), np.zeros((n, 2), dtype=np.int64)
    kernels.try_tiled(values, values, *tried)
    Rows(wide).try_candidates(wide, *tried)
    state = (values, values[:1].copy(), 1, np.empty(0), *keys, np.uint64(1))
    rate, label, met = np.ones(n), np.zeros(n, np.int32), np.zeros(n, np.int32)
    kernels.tied_rows(*state, 0.0, rate, label, met, np.empty(n, np.bool_))


def _points(d: int, n: int = 8) -> Histogram:
    """Some points of a lattice."""
    points = np.arange(n)[:, np.newaxis] * np.ones(d, dtype=np.int64)
    return Histogram.of(points, np.ones(n, dtype=np.int64))


def _run_server() -> None:
    """The server's own K-means."""
    for source in (WeightedPoints(_SECRET, 99.0), UniformPoints(_SECRET, 1e7)):
        cluster(source.points_of(_points(3)), 2, n_init=1, max_iter=2, tol=1e-3)


def _replay(source: PointSource, d: int, n_clusters: int = 2) -> None:
    """A count changes, and a point comes."""
    aggregate = _points(d, 4 * n_clusters)
    server = ReplayingServer(source, n_clusters, n_init=1, max_iter=9, tol=0.0)
    server.run(aggregate)
    for point in aggregate.points()[:1], aggregate.points()[:1] + 10:
        change = Histogram.of(point, np.ones(1, dtype=np.int64))
        aggregate = aggregate + change
        server.update(aggregate, change)


def _run_margins() -> None:
    """Replay for few features and clusters, of the server and of one owner's records."""
    _replay(WeightedPoints(_SECRET, 99.0), 3)
    values, ids = np.linspace(0.0, 1.0, 24).reshape(8, 3), np.arange(8)
    for greedy in (False, True):
        task = Task(2, n_init=1, max_iter=2, tol=1e-4, memory_limit=1 << 20, greedy=greedy)
        OwnedKMeans(values, ids, keys_of_ids(_SECRET, ids), ids, task).forget(ids[:1])


def _run_estimates() -> None:
    """The server's replay, for many features or clusters."""
    _replay(WeightedPoints(_SECRET, 9999.0), 600)


def _run_columns() -> None:
    """The same for many bins."""
    _replay(WeightedPoints(_SECRET, 9999.0), 6, n_clusters=200)


def _encode_and_decode(levels: list[int], n: int) -> None:
    codec = Codec(levels, n, salt=b"")
    bins = np.arange(n)[:, np.newaxis].repeat(len(levels), axis=1)
    vector = codec.unpack(codec.pack(codec.encode(bins, np.ones(n, dtype=np.int64))))
    codec.decode(vector)


def _run_codes() -> None:
    """Few bins, with short and with long indices."""
    _encode_and_decode([10**6], 3)
    _encode_and_decode([10**6] * 4, 100)


def _run_large_codes() -> None:
    """Many bins."""
    _encode_and_decode([10**6], 1200)


PARTS: dict[str, Callable[[], None]] = {
    "records": _run_records,
    "codes": _run_codes,
    "server": _run_server,
    "margins": _run_margins,
    "estimates": _run_estimates,
    "columns": _run_columns,
    "large codes": _run_large_codes,
    "large data": _run_large_data,
}
"""What is compiled ahead, the parts that others build on first."""

_TOGETHER = (
    ("margins", "estimates", "columns"),
    ("records", "server"),
    ("codes", "large codes"),
    ("large data",),
)
"""Parts that share helpers, which each process compiles for itself, go to one process; what takes
longest goes first."""

FOR_THE_DEMO = ("records", "codes", "server", "margins")


def warm_up() -> int:
    """Compile everything that is not kept, and load it; returns how many were compiled."""
    compiled = compile_ahead()
    before = compiled_now()
    for run in PARTS.values():
        run()
    return compiled + compiled_now() - before


def compile_ahead(
    parts: Iterable[str] = tuple(PARTS), on_compiled: Callable[[str], None] | None = None
) -> int:
    """Compile the kernels of some parts in several processes, unless they are kept.

    Parameters
    ----------
    parts : iterable of str
        Names of :data:`PARTS`.
    on_compiled : callable, optional
        Called with the name of each kernel that was compiled, one call at a time.

    Returns
    -------
    int
        How many kernels were compiled.  None are, if nothing can be kept.
    """
    folder = kernel_cache.folder()
    if folder is None:
        return 0
    missing = [part for part in parts if not _marker(folder, part).exists()]
    if not missing:
        return 0
    compiled = 0
    for name in _compile(missing):
        compiled += 1
        if on_compiled is not None:
            on_compiled(name)
    for part in missing:
        _marker(folder, part).touch()
    return compiled


def _marker(folder: Path, part: str) -> Path:
    """A file that tells that the kernels of a part, as they are, have been compiled."""
    modules = sorted({one.py_func.__module__ for one in KERNELS})
    depends = [kernel_cache.stamp(module) for module in (__name__, *modules)]
    depends += [*kernel_cache.versions(), llvmlite.binding.get_host_cpu_name()]
    hashed = hashlib.sha256(repr(depends).encode()).hexdigest()[:16]
    return folder / f"compiled {part}-{hashed}-"


def _compile(parts: list[str]) -> Iterator[str]:
    """The names of kernels as they are compiled, by as many processes as there are cores."""
    waiting: SimpleQueue[list[str]] = SimpleQueue()
    lots = [[part for part in together if part in parts] for together in _TOGETHER]
    for lot in filter(None, lots):
        waiting.put(lot)
    names: SimpleQueue[str | BaseException | None] = SimpleQueue()
    workers = [
        threading.Thread(target=_drive_worker, args=(waiting, names), daemon=True)
        for _ in range(min(waiting.qsize(), _cores()))
    ]
    for worker in workers:
        worker.start()
    running = len(workers)
    while running:
        match names.get():
            case None:
                running -= 1
            case BaseException() as error:
                raise error
            case str() as name:
                yield name


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _drive_worker(
    waiting: SimpleQueue[list[str]], names: SimpleQueue[str | BaseException | None]
) -> None:
    """Give parts to a process until there are none left, and pass on what it says."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # numba looks for implementations by trying them, and formats what each one says against it.
        "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1",
    }
    command = [sys.executable, "-m", __name__]
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(Empty):
                while True:
                    for part in waiting.get_nowait():
                        process.stdin.write(part + "\n")
                        process.stdin.flush()
                        for line in process.stdout:
                            if line.strip() == _DONE:
                                break
                            names.put(line.strip())
                        else:
                            raise RuntimeError(f"compiling the kernels of {part!r} failed")
            process.stdin.close()
        names.put(None)
    except BaseException as error:
        names.put(error)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}


def values_of(options: Any) -> dict[str, Any]:
    """All options of numba's compiler, those that were set and the others, as it gives them itself.

    It compares them whenever it looks for an implementation, and then asks for one option after the
    other, which takes a tenth of the time of all compiling.
    """
    return {**_defaults(options.__class__), **options._values}


def _work() -> None:
    """A process that compiles parts: names of parts come in, names of kernels go out."""
    kernel_cache.KernelCache.on_compiled = lambda name: print(name, flush=True)
    TargetConfig.values = values_of  # type: ignore[method-assign]
    # A compiler makes objects by the million, and looking through them again and again takes a
    # tenth of this process's time.  It ends soon, and between two parts is often enough.
    gc.disable()
    for line in sys.stdin:
        PARTS[line.strip()]()
        gc.collect()
        print(_DONE, flush=True)


if __name__ == "__main__":
    _work()
