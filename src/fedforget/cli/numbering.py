"""Clusters numbered as an earlier model numbered them, and what has changed since."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fedforget.arrays import Floats, Ints
from fedforget.cli.console import console, listed, safe
from fedforget.cli.given_files import features_in, read_centroids, read_numbers
from fedforget.clustering.distance import nearest
from fedforget.clustering.grid import Grid
from fedforget.clustering.matching import Numbering, number_like
from fedforget.parties.federation_file import FederationFile


@dataclass(frozen=True)
class Earlier:
    """An earlier model: its centres in the units of the features that it shares with now.

    ``shared`` are the places of these features among the federation's.
    """

    centres: Floats
    numbers: Ints
    shared: list[int]
    grid: Grid

    @classmethod
    def read(cls, path: Path, federation: FederationFile) -> Earlier:
        """A model that was exported before; features may have come and gone since."""
        names = federation.feature_names
        held = features_in(path, names)
        # Without any of them the error names those that are looked for.
        centres = read_centroids(path, held or names)
        shared = [names.index(name) for name in held]
        numbers = read_numbers(path, len(centres), names)
        return cls(centres, numbers, shared, federation.configuration().grid)

    def clustered(self, values: Floats) -> Floats:
        """Values of the shared features in the clustered space."""
        whole = np.tile(self.grid.low, (len(values), 1))
        whole[:, self.shared] = values
        clustered: Floats = np.ascontiguousarray(self.grid.to_clustered(whole)[:, self.shared])
        return clustered

    def numbering(self, centres: Floats) -> Numbering:
        """How present centres, in the units of all features, are numbered."""
        now = self.clustered(centres[:, self.shared])
        return number_like(self.clustered(self.centres), self.numbers, now)

    def labels(self, clustered: Floats) -> Ints:
        """The number that the earlier model gave to points of the clustered space."""
        points = np.ascontiguousarray(clustered[:, self.shared])
        return self.numbers[nearest(points, self.clustered(self.centres))[0]]


@dataclass(frozen=True)
class Changed:
    """What became of the clusters since an earlier model, in the order of their numbers.

    ``counts`` are the records of each cluster, ``changed`` those that had another number before.
    """

    numbering: Numbering
    counts: Ints
    changed: Ints
    least: int = 1

    @classmethod
    def of(
        cls, numbering: Numbering, before: Ints, places: Ints, weights: Ints, least: int = 1
    ) -> Changed:
        """``places`` are clusters in the model's order, ``before`` the earlier numbers."""
        n = len(numbering.numbers)
        other = before != numbering.numbers[places]
        return cls(
            numbering,
            np.bincount(places, weights, minlength=n).astype(np.int64),
            np.bincount(places[other], weights[other], minlength=n).astype(np.int64),
            least,
        )

    def shown(self, count: int) -> str | int:
        """A count as it may be shown: never one from 1 to what the rules forbid."""
        return f"<{self.least}" if 0 < count < self.least else count

    def plain(self) -> dict[str, Any]:
        """For scripts."""
        order = np.argsort(self.numbering.numbers)
        total = self.shown(int(self.changed.sum()))
        return {
            "like": [
                {
                    "cluster": int(self.numbering.numbers[at]),
                    "moved": self.numbering.moved[at],
                    "records": self.shown(int(self.counts[at])),
                    "changed": self.shown(int(self.changed[at])),
                }
                for at in order.tolist()
            ],
            "changed": total,
            "gone": list(self.numbering.gone),
        }

    def show(self) -> None:
        """The same as a table."""
        table = Table(box=None)
        for column in ("cluster", "moved", "records", "had another number"):
            table.add_column(column, justify="right")
        plain = self.plain()
        for row in plain["like"]:
            moved = "new" if row["moved"] is None else f"{row['moved']:.4g}"
            table.add_row(*map(safe, (row["cluster"], moved, row["records"], row["changed"])))
        console.print(table)
        if self.numbering.gone:
            console.print(f"Gone: {safe(listed(self.numbering.gone))}", soft_wrap=True)
        console.print(
            f"{safe(plain['changed'])} of {int(self.counts.sum())} records have another number"
            " than before.",
            soft_wrap=True,
        )
