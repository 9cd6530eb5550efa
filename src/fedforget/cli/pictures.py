"""Clusters as a page shows them: in a plane, feature by feature, and as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedforget.arrays import Floats, Ints, Labels
from fedforget.cli.charts import (
    MOST_BINS,
    MOST_NUMBERED,
    N_COLOURS,
    Cluster,
    Scatter,
    Strip,
    plane,
    scatter,
    strip,
)
from fedforget.pages.templates import grouped
from fedforget.parties.federation_file import Feature

MOST_FEATURES = 12
"""Of more features than this, those that separate the clusters most are shown, others folded."""


@dataclass(frozen=True)
class Checked:
    """What a check found, in words; ``good`` is None while it is not known."""

    good: bool | None
    words: str


@dataclass(frozen=True)
class CentreValue:
    """A cluster's centre in one feature, and how far its records spread around it."""

    value: float
    spread: float | None


@dataclass(frozen=True)
class FeatureRow:
    """A feature with the clusters' centres."""

    feature: Feature
    numbers: Sequence[CentreValue]


@dataclass(frozen=True)
class Picture:
    """Clusters to be drawn, and the bins around them.

    Attributes
    ----------
    clusters : those that are drawn.
    centres : (k, d) their centres in the features' units.
    marks : (k, d) the same in the clustered space.
    bins, counts, labels : points of the clustered space, what they count, their clusters' numbers.
    spread : (k, d) standard deviations within the clusters, in the features' units; None if they
        are not known or not to be shown.
    """

    clusters: Sequence[Cluster]
    centres: Floats
    marks: Floats
    bins: Floats
    counts: Ints
    labels: Labels
    spread: Floats | None = None

    @cached_property
    def _plane(self) -> tuple[Floats, Floats, Floats]:
        return plane(self.bins, self.counts)

    @property
    def scatter(self) -> Scatter:
        """The clusters in the plane of most variance."""
        mean, axes, _ = self._plane
        return scatter(
            (self.bins - mean) @ axes.T,
            self.counts,
            self.labels,
            (self.marks - mean) @ axes.T,
            self.clusters,
        )

    @property
    def caption(self) -> str:
        """What the reader has to know about the plane."""
        shares = self._plane[2]
        caption = (
            f"Across and up: the two directions in which the bins differ most, with {shares[0]:.0%}"
            f" and {shares[1]:.0%} of their variance."
            if shares[1]
            else "Across: the one direction in which the bins differ."
        )
        caption += " The area of a circle is what a bin counts."
        if len(self.bins) > MOST_BINS:
            caption += f" The {grouped(MOST_BINS)} largest bins are drawn."
        if len(self.clusters) > N_COLOURS:
            caption += " Colours repeat, numbers do not."
        return caption

    def strips(self, rows: Sequence[FeatureRow]) -> list[Strip]:
        """Some features with the clusters' centres."""
        return [
            strip(
                row.feature.name,
                row.feature.low,
                row.feature.high,
                [one.value for one in row.numbers],
                self.clusters,
                None
                if self.spread is None
                else [0.0 if one.spread is None else one.spread for one in row.numbers],
            )
            for row in rows
        ]

    def rows(self, features: Sequence[Feature]) -> tuple[list[FeatureRow], list[FeatureRow]]:
        """The features to show, and those to fold away."""
        order, shown = ordered_features(features, self.centres, [one.size for one in self.clusters])
        rows = [
            FeatureRow(
                features[at],
                [
                    CentreValue(
                        value, None if self.spread is None else float(self.spread[number, at])
                    )
                    for number, value in enumerate(self.centres[:, at].tolist())
                ],
            )
            for at in order
        ]
        return rows[:shown], rows[shown:]

    @staticmethod
    def many(clusters: Sequence[Cluster]) -> bool:
        """Whether there are too many clusters to be numbered everywhere."""
        return len(clusters) > MOST_NUMBERED


def ordered_features(
    features: Sequence[Feature], centres: Floats, sizes: Sequence[int]
) -> tuple[list[int], int]:
    """In which order features are shown, and how many of them before the fold.

    A few keep their order.  Of many, those come first in which the clusters differ most: by the
    variance between the centres, each counted with its size, in units of the feature's range.
    """
    n = len(features)
    if n <= MOST_FEATURES:
        return list(range(n)), n
    separation = separations(features, centres, sizes)
    order: list[int] = np.argsort(-separation, kind="stable").tolist()
    return order, MOST_FEATURES


def separations(features: Sequence[Feature], centres: Floats, sizes: Sequence[int]) -> Floats:
    """The variance between clusters in each feature, as a part of its squared range."""
    ranges = np.array([one.high - one.low for one in features])
    weights = np.maximum(np.array(sizes, dtype=np.float64), 0.0)
    if not weights.sum():
        weights = np.ones(len(centres))
    mean = np.average(centres, axis=0, weights=weights)
    variance = np.average((centres - mean) ** 2, axis=0, weights=weights)
    found: Floats = np.divide(variance, ranges**2, out=np.zeros_like(variance), where=ranges > 0)
    return found


def spread_around(values: Floats, weights: Ints, labels: Labels, n_clusters: int) -> Floats:
    """(k, d) standard deviations of weighted points in each cluster; 0 for a cluster of none.

    Points with a label below 0 belong to no cluster.
    """
    out = np.zeros((n_clusters, values.shape[1]))
    for number in range(n_clusters):
        here = labels == number
        if here.any():
            mine, mass = values[here], weights[here]
            mean = np.average(mine, axis=0, weights=mass)
            out[number] = np.sqrt(np.average((mine - mean) ** 2, axis=0, weights=mass))
    return out
