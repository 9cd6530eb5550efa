"""Everything public that influences a federation's model, and the two lattices it can live on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.disclosure import (
    NO_RULES,
    Cells,
    ReportableClusters,
    ReportRules,
    cells_of,
)
from fedforget.clustering.distance import nearest
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


@dataclass(frozen=True, eq=False)
class Configuration:
    """The public parameters of a federation.

    Clients and the server are given the same one.  ``lattice`` is ``"grid"`` for the quantised
    histograms that can be summed securely, ``"fixed-point"`` for exact representatives (the
    paper's Alg. 5).  ``rules`` say what clients may report; with a ``published_step`` the model
    that anybody sees has its centres on a public grid of that step.
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
    rules: ReportRules = NO_RULES
    published_step: float | None = None

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
        if self.rules.count_step > 1:
            largest *= 2  # rounding reports at most twice as many records as there are
        most: int = min(MAX_RECORDS, 2**61 // largest)
        return most

    # -- the client's side ---------------------------------------------------------------------

    @property
    def tells_every_removal(self) -> bool:
        """Whether a client reports after every removal.

        In Alg. 4 as printed, a client that need not draw again reports nothing.  Complete client
        training, which the paper compares with, has no such shortcut: every removal trains again.
        """
        return self.mode != "paper" or self.representatives == "lloyd"

    def cells_of(self, clusters: ReportableClusters) -> Cells:
        """The local clusters that a client reports: all of them, if no rule forbids it."""
        return cells_of(clusters, self.rules, self.grid.fixed_point)

    def representatives_of(self, cells: Cells) -> Ints:
        """The lattice point that stands for each local cluster.

        A cluster that has taken in the records of another one is represented by the mean of all of
        them, unless seeds represent clusters: its own centre may be that of very few records.
        """
        if self.representatives == "means":
            return self._means_of(cells.sums, cells.sizes)
        # Seeds, or where Lloyd's iteration has taken them.
        units = self.grid.to_units(cells.centres)
        if self.lattice == "fixed-point":
            points = np.floor(units * _FIXED + 0.5).astype(np.int64)
        else:
            points = self.grid.bins_of_units(units)
        if self.representatives == "lloyd" and cells.grown.any():
            points[cells.grown] = self._means_of(cells.sums[cells.grown], cells.sizes[cells.grown])
        return points

    def _means_of(self, sums: Ints, sizes: Ints) -> Ints:
        """The lattice points of clusters' means."""
        sizes = sizes[:, np.newaxis]
        if self.lattice == "fixed-point":
            return sums // sizes + (2 * (sums % sizes) >= sizes)
        return self.grid.bins_of_units(sums / sizes / _FIXED)

    def histogram_of(self, clusters: ReportableClusters) -> Histogram:
        """What a client reports: the size of each local cluster at its representative.

        A cluster that Lloyd's iteration has left without records keeps its centre.  Because it has
        no records, it is not reported.
        """
        cells = self.cells_of(clusters)
        return Histogram.of(self.representatives_of(cells), self.rules.rounded(cells.sizes))

    # -- the model's coordinates ---------------------------------------------------------------

    @property
    def finer(self) -> float:
        """How much finer than the grid the server's lattice is."""
        return 2.0**REPLICATE_BITS if self.server_points == "uniform" else 1.0

    def coordinates_of(self, points: Ints) -> Floats:
        """Lattice points in the coordinates of the model's centres."""
        return points.astype(np.float64) * self.finer

    def clustered_of(self, points: Ints) -> Floats:
        """Lattice points in the space that was clustered."""
        return self.grid.from_units(self._units_of(points))[0]

    def _units_of(self, points: Floats | Ints) -> Floats:
        """Lattice points, of which centroids are fractional ones, as fractions of the box."""
        return points / _FIXED if self.lattice == "fixed-point" else self.grid.units_of_bins(points)

    @cached_property
    def _published_grid(self) -> Grid | None:
        """Where published centres lie; None if they are published as they are."""
        if self.published_step is None:
            return None
        return Grid(self.grid.bounds, self.published_step, self.grid.scale)

    def _published_units(self, model: ServerModel) -> Floats:
        """The centres of the published model as fractions of the box."""
        centres = model.centres if self.lattice == "fixed-point" else model.centres / self.finer
        units = self._units_of(centres)
        public = self._published_grid
        return units if public is None else public.units_of_bins(public.bins_of_units(units))

    def centres_of(self, model: ServerModel) -> tuple[Floats, Floats]:
        """The published model's centres, in the clustered space and in the caller's units."""
        return self.grid.from_units(self._published_units(model))

    def nearest_centres(self, points: Ints, model: ServerModel) -> Labels:
        """The published model's centre that is nearest to each lattice point."""
        if self.published_step is None:
            return nearest(self.coordinates_of(points), model.centres)[0]
        return nearest(self.clustered_of(points), self.centres_of(model)[0])[0]

    def model_digest(self, aggregate: Histogram, model: ServerModel) -> str:
        """Digest of the parameters, the aggregate and the centroids.

        Of a model with published centres, it covers those and not the aggregate: whoever sees two
        digests must learn no more from them than from the two published models.
        """
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
        if not self.rules.are_off:
            digest.field("min_cell", self.rules.min_cell)
            digest.field("min_records", self.rules.min_records)
            digest.field("count_step", self.rules.count_step)
        if self.published_step is not None:
            digest.field("published_step", self.published_step)
            return digest.array("published", self._published_units(model)).hex()
        digest.array("points", aggregate.points())
        digest.array("counts", aggregate.counts())
        digest.array("centres", model.centres)
        return digest.hex()
