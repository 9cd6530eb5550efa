"""Compile every kernel once, so that nobody waits for a compiler in the middle of real work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedforget.clustering import kernels
from fedforget.clustering.distance import Floats, nearest, pairwise
from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import IdIndex, keys_of_ids
from fedforget.clustering.partition import SeededPartition
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.race import copy_and_start, first_row
from fedforget.clustering.records import RecordTable
from fedforget.clustering.replay import ReplayingServer
from fedforget.clustering.server import UniformPoints, WeightedPoints, cluster
from fedforget.compilation import compiled_now
from fedforget.scma import Codec


def warm_up(on_compile: Callable[[], None] | None = None) -> int:
    """Run every kernel on a few numbers; returns how many had to be compiled.

    ``on_compile`` is called once, early, if the first kernel was not in the cache on disk: the
    rest will take a while.
    """
    before = compiled_now()
    values = np.linspace(0.0, 1.0, 24).reshape(8, 3)
    kernels.all_within(values, 1.0)
    if compiled_now() > before and on_compile is not None:
        on_compile()
    secret = Secret(bytes(16))
    ids = np.arange(8)
    keys = keys_of_ids(secret, ids)
    keys_of_ids(secret, ids.astype(np.str_))
    index = IdIndex()
    index.put(keys, ids)
    index.find(keys)
    index.drop(keys)
    grid = Grid(np.array([[0.0, 1.0]] * 3), 0.25)
    table = RecordTable(values.copy(), ids, keys, ids)
    partition = SeededPartition(table, 2, grid.fixed_point)
    partition.forget(np.flatnonzero(np.isin(table.ids, partition.seed_ids[1:])))
    again = keys_of_ids(secret, ids + 8)
    partition.learn(values.copy(), ids + 8, again, ids + 8)
    _warm_up_rarely_used(values, keys)
    histogram = Histogram.of(grid.bins(values), np.ones(8, dtype=np.int64))
    for source in (WeightedPoints(secret, 9.0), UniformPoints(secret, 1e6)):
        cluster(source.points_of(histogram), 2, n_init=1, max_iter=2, tol=1e-3)
        server = ReplayingServer(source, 2, n_init=1, max_iter=9, tol=0.0)
        server.run(histogram)
        delta = Histogram.of(histogram.points()[:1], histogram.counts()[:1])
        server.update(histogram + delta, delta)
        new = Histogram.of(histogram.points()[:1] + 1, histogram.counts()[:1])
        server.update(histogram + delta + new, new)
    _warm_up_codes()
    return compiled_now() - before


def _warm_up_codes() -> None:
    """Few and many bins, short and long indices."""
    for levels, n in (([10**6], 3), ([10**6] * 4, 100), ([10**6], 1200)):
        codec = Codec(levels, n, salt=b"")
        bins = np.arange(n)[:, np.newaxis].repeat(len(levels), axis=1)
        vector = codec.unpack(codec.pack(codec.encode(bins, np.ones(n, dtype=np.int64))))
        codec.decode(vector)


def _warm_up_rarely_used(values: Floats, keys: Keys) -> None:
    """Kernels that small data does not reach: many features, tied scores."""
    n = len(values)
    copy_and_start(np.tile(values, (1, 8)), keys, first_row)
    pairwise(values, values)
    kernels.distances_to(values, values[0], np.empty(n))
    kernels.meet_tiled(values, values, 0, np.full(n, np.inf), np.full(n, -1, np.int32))
    wide = np.tile(values, (1, 1500))
    nearest(wide, wide[:3])
    state = (values, values[:1].copy(), 1, np.empty(0), *keys, np.uint64(1))
    rate, label, met = np.ones(n), np.zeros(n, np.int32), np.zeros(n, np.int32)
    kernels.tied_rows(*state, 0.0, rate, label, met, np.empty(n, np.bool_))
