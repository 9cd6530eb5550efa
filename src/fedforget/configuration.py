"""Everything public that influences a federation's model, and the two lattices it can live on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.grid import Grid
from fedforget.clustering.histogram import Histogram
from fedforget.clustering.lattice_kmeans import REPLICATE_BITS, ServerModel
from fedforget.clustering.partition import FIXED_POINT_BITS, MAX_RECORDS
from fedforget.clustering.prf import Secret
from fedforget.digests import Digest

Representatives = Literal["means", "seeds", "lloyd"]
ServerPoints = Literal["weighted", "uniform"]
Lattice = Literal["grid", "fixed-point"]
Mode = Literal["exact", "paper"]

_FIXED = 2.0**FIXED_POINT_BITS


class LocalClusters(Protocol):
    """What a report is computed from: the clusters of one owner, without the records."""

    @property
    def centres(self) -> Floats: ...
    @property
    def sizes(self) -> Ints: ...
    @property
    def sums(self) -> Ints: ...


@dataclass(frozen=True, eq=False)
class Configuration:
    """The public parameters of a federation.

    Clients and the server are given the same one.  ``lattice`` is ``"grid"`` for the quantised
    histograms that can be summed securely, ``"fixed-point"`` for exact representatives (the
    paper's Alg. 5).
    """

    n_clusters: int
    local_clusters: int | Mapping[int | str, int]
    grid: Grid
    representatives: Representatives
    lattice: Lattice
    server_points: ServerPoints
    mode: Mode
    n_init: int
    max_iter: int
    tol: float
    public_seed: Secret

    def local_clusters_of(self, client: int | str) -> int:
        """How many clusters a client draws; a client not named in a mapping draws K."""
        if isinstance(self.local_clusters, Mapping):
            return self.local_clusters.get(client, self.n_clusters)
        return self.local_clusters

    @property
    def max_records(self) -> int:
        """The most records for which no integer sum can leave 64 bits."""
        if self.lattice == "fixed-point":
            largest = 2**FIXED_POINT_BITS
        else:
            largest = max(1, int(self.grid.levels.max(initial=1)))
            if self.server_points == "uniform":
                largest <<= REPLICATE_BITS
        most: int = min(MAX_RECORDS, 2**61 // largest)
        return most

    # -- the client's side ---------------------------------------------------------------------

    @property
    def tells_every_removal(self) -> bool:
        """Whether a client reports after every removal.

        In Alg. 4 as printed, one that need not draw again reports nothing.  Complete client
        training, which the paper compares with, has no such shortcut: every removal trains again.
        """
        return self.mode != "paper" or self.representatives == "lloyd"

    def representatives_of(self, partition: LocalClusters) -> Ints:
        """The lattice point that stands for each local cluster."""
        if self.representatives != "means":
            # Seeds, or where Lloyd's iteration has taken them.
            units = self.grid.to_units(partition.centres)
            if self.lattice == "fixed-point":
                return np.floor(units * _FIXED + 0.5).astype(np.int64)
            return self.grid.bins_of_units(units)
        sums, sizes = partition.sums, partition.sizes[:, np.newaxis]
        if self.lattice == "fixed-point":
            return sums // sizes + (2 * (sums % sizes) >= sizes)
        return self.grid.bins_of_units(sums / sizes / _FIXED)

    def histogram_of(self, partition: LocalClusters) -> Histogram:
        """What a client reports: the size of each local cluster at its representative.

        A cluster that Lloyd's iteration has left without records keeps its centre; as it has none,
        nothing is reported of it.
        """
        return Histogram.of(self.representatives_of(partition), partition.sizes)

    # -- the model's coordinates ---------------------------------------------------------------

    @property
    def finer(self) -> float:
        """How much finer than the grid the server's lattice is."""
        return 2.0**REPLICATE_BITS if self.server_points == "uniform" else 1.0

    def coordinates_of(self, points: Ints) -> Floats:
        """Lattice points in the coordinates of the model's centres."""
        return points.astype(np.float64) * self.finer

    def centres_of(self, model: ServerModel) -> tuple[Floats, Floats]:
        """The model's centres, in the clustered space and in the caller's units."""
        if self.lattice == "fixed-point":
            units = model.centres / _FIXED
        else:
            units = self.grid.units_of_bins(model.centres / self.finer)
        return self.grid.from_units(units)

    def model_digest(self, aggregate: Histogram, model: ServerModel) -> str:
        """Digest of the parameters, the aggregate and the centroids."""
        digest = Digest("model")
        digest.field("n_clusters", self.n_clusters)
        per_client = isinstance(self.local_clusters, Mapping)
        digest.field("local_clusters", "by client" if per_client else str(self.local_clusters))
        digest.array("bounds", self.grid.bounds)
        digest.field("scale", self.grid.scale)
        if self.lattice == "grid":
            digest.field("step", self.grid.step)
            digest.array("shift", self.grid.shift)
        digest.field("lattice", self.lattice)
        digest.field("representatives", self.representatives)
        digest.field("server_points", self.server_points)
        digest.field("mode", self.mode)
        digest.field("n_init", self.n_init)
        digest.field("max_iter", self.max_iter)
        digest.field("tol", self.tol)
        digest.field("public_seed", self.public_seed.data)
        digest.array("points", aggregate.points())
        digest.array("counts", aggregate.counts())
        digest.array("centres", model.centres)
        return digest.hex()
