"""Where everything stands in the charts of a page; the template ``charts.html`` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedforget.arrays import Floats, Ints, Labels

N_COLOURS = 7
MOST_NUMBERED = 12
"""With more clusters than this, a profile has ticks instead of numbered dots."""
MOST_BINS = 3000


@dataclass(frozen=True)
class Cluster:
    """A cluster as the charts show it."""

    number: int
    size: int

    @property
    def colour(self) -> str:
        return colour(self.number)


def colour(number: int) -> str:
    """The class that gives a cluster its colour; colours repeat, numbers do not."""
    return f"c{number % N_COLOURS}"


# -- the plane of the clusters ---------------------------------------------------------------------


def plane(points: Floats, weights: Ints) -> tuple[Floats, Floats, Floats]:
    """Weighted principal components: the mean, two axes (2, d) and their shares of the variance.

    An axis points where its largest component is positive, so that a page looks the same every
    time.  One feature has one axis; the other is zero.
    """
    mean: Floats = np.average(points, axis=0, weights=weights)
    scaled = (points - mean) * np.sqrt(weights)[:, np.newaxis]
    _, spread, found = np.linalg.svd(scaled, full_matrices=False)
    axes, shares = np.zeros((2, points.shape[1])), np.zeros(2)
    n = min(2, len(found))
    largest = np.abs(found[:n]).argmax(axis=1)
    axes[:n] = found[:n] * np.where(found[np.arange(n), largest] < 0, -1, 1)[:, np.newaxis]
    total = float((spread**2).sum())
    if total > 0:
        shares[:n] = spread[:n] ** 2 / total
    return mean, axes, shares


@dataclass(frozen=True)
class Bin:
    """A circle whose area is what a bin counts."""

    x: float
    y: float
    radius: float
    colour: str


@dataclass(frozen=True)
class Mark:
    """A cluster's centre; ``size_at`` is where its size is written, if it is."""

    x: float
    y: float
    cluster: Cluster
    size_at: float | None


@dataclass(frozen=True)
class Scatter:
    """Bins and centres in the plane, and the size of the paper."""

    width: float
    height: float
    bins: Sequence[Bin]
    marks: Sequence[Mark]


def scatter(
    bins: Floats, counts: Ints, labels: Labels, centres: Floats, clusters: Sequence[Cluster]
) -> Scatter:
    """Bins as circles whose area is their count, and the clusters' centres as numbered marks.

    ``bins`` and ``centres`` are points of the plane, drawn to one scale in both directions;
    ``labels`` holds the number of each bin's cluster.
    """
    place, width, height = _frame(np.concatenate([bins, centres]))
    widest = min(28.0, max(10.0, 95.0 / math.sqrt(len(bins))))
    radii = np.maximum(1.5, widest * np.sqrt(counts / counts.max()))
    largest = np.argsort(-counts, kind="stable")[:MOST_BINS]
    circles = [
        Bin(x, y, radius, colour(label))
        for (x, y), radius, label in zip(
            place(bins[largest]).tolist(),
            radii[largest].tolist(),
            labels[largest].tolist(),
            strict=True,
        )
    ]
    marks = []
    for (x, y), cluster in zip(place(centres).tolist(), clusters, strict=True):
        # A size stands at the right of its mark, or at the left near the border.
        beside = x - 15.0 if x > width - 90.0 else x + 15.0
        marks.append(Mark(x, y, cluster, beside if len(clusters) <= MOST_NUMBERED else None))
    return Scatter(width, height, circles, marks)


def _frame(points: Floats) -> tuple[Callable[[Floats], Floats], float, float]:
    """How points of the plane are put on paper, and the paper's width and height."""
    width, margin = 560.0, 36.0
    low, extent = points.min(axis=0), np.ptp(points, axis=0)
    middle = low + extent / 2
    across, up = (max(float(one), 1e-9) for one in extent)
    height = float(np.clip((width - 2 * margin) * up / across + 2 * margin, 220.0, 420.0))
    scale = min((width - 2 * margin) / across, (height - 2 * margin) / up)

    def place(some: Floats) -> Floats:
        placed: Floats = (some - middle) * (scale, -scale) + (width / 2, height / 2)
        return placed

    return place, width, height


# -- profiles --------------------------------------------------------------------------------------


def lanes(places: Sequence[float], apart: float) -> list[int]:
    """The lowest lane for each dot in which it touches no other, taken from the left.

    >>> lanes([10.0, 50.0, 12.0, 14.0], apart=6.0)
    [0, 0, 1, 2]
    """
    last: list[float] = []
    chosen = [0] * len(places)
    for at in sorted(range(len(places)), key=lambda at: places[at]):
        free = (lane for lane, place in enumerate(last) if places[at] - place >= apart)
        lane = next(free, len(last))
        last[lane : lane + 1] = [places[at]]
        chosen[at] = lane
    return chosen


@dataclass(frozen=True)
class Dot:
    """A cluster's numbered dot in a strip; ``place`` is in per cent of the width."""

    place: float
    y: float
    value: float
    cluster: Cluster


@dataclass(frozen=True)
class Strip:
    """Where the clusters' centres lie between a feature's public bounds, in its own units."""

    feature: str
    low: float
    high: float
    height: float
    dots: Sequence[Dot]
    ticks: Sequence[Dot]


def strip(
    feature: str, low: float, high: float, values: Sequence[float], clusters: Sequence[Cluster]
) -> Strip:
    """Numbered dots that do not touch each other, or ticks if there are many clusters."""
    places = [100 * _share(value, low, high) for value in values]
    numbered = len(clusters) <= MOST_NUMBERED
    lane_of = lanes(places, apart=7.0) if numbered else [0] * len(places)
    height = 18.0 * (1 + max(lane_of, default=0)) + 8.0
    marks = [
        Dot(place, height - 13.0 - 18.0 * lane, value, cluster)
        for place, lane, value, cluster in zip(places, lane_of, values, clusters, strict=True)
    ]
    dots, ticks = (marks, []) if numbered else ([], marks)
    return Strip(feature, low, high, height, dots, ticks)


def _share(value: float, low: float, high: float) -> float:
    """How far a value lies between two bounds, from 0 to 1."""
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


# -- rounds ----------------------------------------------------------------------------------------


_TOP, _ROOM = 18.0, 110.0


@dataclass(frozen=True)
class Bar:
    """An upright bar; ``left``, ``width`` and ``middle`` are in per cent of the chart's width."""

    left: float
    width: float
    middle: float
    top: float
    height: float
    value: int
    label: str
    colour: str


@dataclass(frozen=True)
class Columns:
    """Upright bars on a base."""

    base: float
    bars: Sequence[Bar]


def columns(heights: Sequence[int], labels: Sequence[str], colours: Sequence[str]) -> Columns:
    """Bars over their labels, with their heights written above where there is room."""
    slot = 100 / max(12, len(heights))
    every = 1 + len(heights) // 25
    largest = max([1, *heights])
    bars = []
    for at, (value, label, style) in enumerate(zip(heights, labels, colours, strict=True)):
        tall = max(1.0, _ROOM * value / largest)
        bars.append(
            Bar(
                left=slot * (at + 0.2),
                width=slot * 0.6,
                middle=slot * (at + 0.5),
                top=_TOP + _ROOM - tall,
                height=tall,
                value=value,
                label=label if at % every == 0 else "",
                colour=style,
            )
        )
    return Columns(_TOP + _ROOM + 0.5, bars)
