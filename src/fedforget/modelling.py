"""The server's part: the model that follows from an aggregate and the public parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fedforget.arrays import Ints
from fedforget.clustering import replay
from fedforget.clustering.choosing import (
    Choices,
    Trial,
    agreement_of,
    choices_among,
    runs_for,
    squared_loss,
)
from fedforget.clustering.distance import nearest
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import (
    PointSource,
    ServerModel,
    UniformPoints,
    WeightedPoints,
    cluster,
    cluster_each,
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


# -- other numbers of clusters -----------------------------------------------------------------


def sizes_of(config: Configuration, aggregate: Histogram, model: ServerModel) -> Ints:
    """How many records each cluster of the published model counts."""
    if config.published_step is not None:
        labels, weights = config.nearest_centres(aggregate.points(), model), aggregate.counts()
    else:
        # The labels are those of weighted bins, or of the points drawn in them, one per record.
        uniform = config.server_points == "uniform"
        weights = np.ones(len(model.labels), np.int64) if uniform else aggregate.counts()
        labels = model.labels
    counted = np.bincount(labels, weights, minlength=len(model.centres))
    return counted.astype(np.int64)


def loss_of(config: Configuration, aggregate: Histogram, model: ServerModel) -> float:
    """The loss of the published model on the aggregate, in the clustered space."""
    if config.published_step is None:
        grid = config.grid
        fixed = config.lattice == "fixed-point"
        units = 2.0**-FIXED_POINT_BITS if fixed else grid.step / config.finer
        return model.loss * (units * grid.extent) ** 2
    if not len(model.centres):
        return 0.0
    points = config.clustered_of(aggregate.points())
    return squared_loss(aggregate.counts(), nearest(points, config.centres_of(model)[0])[1])


@dataclass(frozen=True)
class ServerPath:
    """The models that an aggregate gives with several numbers of clusters, beside each other."""

    choices: Choices
    models: dict[int, ServerModel]


def path_of(config: Configuration, aggregate: Histogram, numbers: Iterable[int]) -> ServerPath:
    """Cluster an aggregate with each number of clusters.

    All else stays as it is: local clusters, too.  Each model is the one of :func:`model_of`.
    """
    wanted = sorted(set(numbers))
    points = _points_of(config).points_of(aggregate)
    found: dict[int, Trial] = {}
    models: dict[int, ServerModel] = {}
    for number in runs_for(wanted):
        own = replace(config, n_clusters=number)
        each = cluster_each(
            points, number, n_init=config.n_init, max_iter=config.max_iter, tol=config.tol
        )
        model = min(each, key=lambda one: one.loss)
        models[number] = model
        found[number] = Trial(
            number,
            loss_of(own, aggregate, model),
            sizes_of(own, aggregate, model),
            agreement_of([one.labels for one in each], points.weights),
        )
    choices = choices_among(found, wanted, config.rules.min_cell)
    return ServerPath(choices, {one: models[one] for one in wanted})
