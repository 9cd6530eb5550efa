"""The server's part: the model that follows from an aggregate and the public parameters."""

from __future__ import annotations

import math

from fedforget.clustering import replay
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import (
    PointSource,
    ServerModel,
    UniformPoints,
    WeightedPoints,
    cluster,
)
from fedforget.clustering.partition import FIXED_POINT_BITS
from fedforget.configuration import Configuration


def new_server(config: Configuration) -> replay.ReplayingServer:
    """A server that has not seen an aggregate, and will follow its changes."""
    return replay.ReplayingServer(
        _points_of(config),
        config.n_clusters,
        n_init=config.n_init,
        max_iter=config.max_iter,
        tol=config.tol,
    )


def model_of(config: Configuration, aggregate: Histogram) -> ServerModel:
    """The model of an aggregate, for those who will not follow its changes."""
    return cluster(
        _points_of(config).points_of(aggregate),
        config.n_clusters,
        n_init=config.n_init,
        max_iter=config.max_iter,
        tol=config.tol,
    )


def _points_of(config: Configuration) -> PointSource:
    """What makes points of an aggregate."""
    grid = config.grid
    if config.lattice == "fixed-point":
        diameter = math.sqrt(grid.n_features) * (2.0**FIXED_POINT_BITS + 1.0)
    else:
        diameter = config.finer * math.sqrt(float((grid.levels.astype(float) ** 2).sum()))
    make = UniformPoints if config.server_points == "uniform" else WeightedPoints
    return make(config.public_seed, diameter)
