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
    """A cluster's numbered mark.

    Attributes
    ----------
    x, y : where the mark stands.
    at_x, at_y : where the centre is; a line leads there if the mark had to give way to others.
    size_at : (x, y, anchor) of its size, None if there is no room for it.
    numbered : whether there is room for its number.
    """

    x: float
    y: float
    cluster: Cluster
    at_x: float
    at_y: float
    size_at: tuple[float, float, str] | None
    numbered: bool = True

    @property
    def moved(self) -> bool:
        return math.hypot(self.x - self.at_x, self.y - self.at_y) > 1.0


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
    marks = place_marks(place(centres).tolist(), clusters, width, height)
    return Scatter(width, height, circles, marks)


MARK_RADIUS = 11.0
"""Of a numbered mark with its border."""
_TEXT_HEIGHT, _LETTER = 22.0, 11.5
"""Of a size as it is written on a phone, where letters are larger in the drawing's units."""
_APART = 2 * MARK_RADIUS + 2.0
_TURN = math.pi * (3.0 - math.sqrt(5.0))
"""Places to try lie on a spiral, each this far around from the one before."""


def place_marks(
    centres: Sequence[Sequence[float]], clusters: Sequence[Cluster], width: float, height: float
) -> list[Mark]:
    """Marks that do not cover each other, and sizes where they cover neither marks nor sizes.

    Earlier clusters keep their places.  A mark that would cover another moves to the nearest free
    place of a spiral around its centre; where all are taken, it is a dot without a number.
    """
    places: list[tuple[float, float] | None] = []
    held: list[tuple[float, float]] = []
    for x, y in centres:
        free = _free_place(x, y, held, width, height)
        places.append(free)
        held += [] if free is None else [free]
    taken = [_box(x, y, "middle", MARK_RADIUS) for x, y in held]
    marks = []
    for (at_x, at_y), free, cluster in zip(centres, places, clusters, strict=True):
        if free is None:
            marks.append(Mark(at_x, at_y, cluster, at_x, at_y, None, numbered=False))
            continue
        (x, y), size_at = free, None
        if len(clusters) <= MOST_NUMBERED:
            reach = _LETTER * len(f"{cluster.size:,}")
            size_at = _free_side(x, y, reach, taken, width, height)
        marks.append(Mark(x, y, cluster, at_x, at_y, size_at))
    return marks


def _free_place(
    x: float, y: float, taken: Sequence[tuple[float, float]], width: float, height: float
) -> tuple[float, float] | None:
    """The place near a point at which a mark touches no other, the nearest first."""
    for step in range(400):
        away = 3.0 * math.sqrt(step)
        angle = step * _TURN
        one = x + away * math.cos(angle), y + away * math.sin(angle)
        inside = all(
            MARK_RADIUS <= place <= most - MARK_RADIUS
            for place, most in zip(one, (width, height), strict=True)
        )
        if (inside or not step) and all(math.dist(one, other) >= _APART for other in taken):
            return one
    return None


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def _box(x: float, y: float, anchor: str, reach: float, tall: float = 2 * MARK_RADIUS) -> Box:
    left = {"start": x, "middle": x - reach, "end": x - reach}[anchor]
    right = {"start": x + reach, "middle": x + reach, "end": x}[anchor]
    return left, y - tall / 2, right, y + tall / 2


def _free_side(
    x: float, y: float, reach: float, taken: list[Box], width: float, height: float
) -> tuple[float, float, str] | None:
    """Where a size can stand: right, left, below or above its mark; takes the place."""
    gap = MARK_RADIUS + 4.0
    down = MARK_RADIUS + _TEXT_HEIGHT / 2
    sides = (
        (x + gap, y, "start"),
        (x - gap, y, "end"),
        (x, y + down, "middle"),
        (x, y - down, "middle"),
    )
    for at_x, at_y, anchor in sides:
        half = reach / 2 if anchor == "middle" else reach
        box = _box(at_x, at_y, anchor, half, _TEXT_HEIGHT)
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height
        if inside and not any(_meet(box, other) for other in taken):
            taken.append(box)
            return at_x, at_y, anchor
    return None


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


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


DOTS_APART = 8.0
"""In per cent of a strip, which is at least 270 pixels wide: a dot has 19."""


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
    """A cluster's numbered dot in a strip; places are in per cent of the width.

    ``reach`` is from where to where its records spread, None if that is not known.
    """

    place: float
    y: float
    value: float
    cluster: Cluster
    spread: float | None = None
    reach: tuple[float, float] | None = None


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
    feature: str,
    low: float,
    high: float,
    values: Sequence[float],
    clusters: Sequence[Cluster],
    spread: Sequence[float] | None = None,
) -> Strip:
    """Numbered dots that do not touch each other, or ticks if there are many clusters.

    ``spread`` is a standard deviation per cluster, if it is known.
    """
    places = [100 * _share(value, low, high) for value in values]
    numbered = len(clusters) <= MOST_NUMBERED
    lane_of = lanes(places, apart=DOTS_APART) if numbered else [0] * len(places)
    height = 18.0 * (1 + max(lane_of, default=0)) + 8.0
    marks = []
    for at, (place, lane, cluster) in enumerate(zip(places, lane_of, clusters, strict=True)):
        value, around = values[at], None if spread is None else spread[at]
        reach = None
        if around is not None:
            ends = (100 * _share(end, low, high) for end in (value - around, value + around))
            reach = (next(ends), next(ends))
        marks.append(Dot(place, height - 13.0 - 18.0 * lane, value, cluster, around, reach))
    dots, ticks = (marks, []) if numbered else ([], marks)
    return Strip(feature, low, high, height, dots, ticks)


def _share(value: float, low: float, high: float) -> float:
    """How far a value lies between two bounds, from 0 to 1."""
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


# -- rounds ----------------------------------------------------------------------------------------


_TOP, _ROOM = 18.0, 110.0
WIDE, NARROW = 560.0, 288.0
"""Pixels that a chart of rounds has at least: on a screen, and on a phone."""
_CHARACTER = 7.2
"""Pixels of a character of a chart's text, at the most."""
_BETWEEN = 6.0
"""Pixels between two labels."""


@dataclass(frozen=True)
class Label:
    """A text under or above a bar, at a place in per cent of the chart's width.

    ``roomy`` if a phone has no room for it.
    """

    text: str
    place: float
    anchor: str
    roomy: bool


@dataclass(frozen=True)
class Bar:
    """An upright bar; ``left``, ``width`` and ``middle`` are in per cent of the chart's width.

    ``missing`` is how much is missing on top of it, as a height.
    """

    left: float
    width: float
    middle: float
    top: float
    height: float
    missing: float
    colour: str
    title: str


@dataclass(frozen=True)
class Columns:
    """Upright bars on a base, with rows of labels that do not touch each other.

    ``values`` stand above the bars, each at its own height.
    """

    title: str
    base: float
    bars: Sequence[Bar]
    values: Sequence[tuple[Label, float]]
    rows: Sequence[Sequence[Label]]


@dataclass(frozen=True)
class Column:
    """What a bar shows: its height, what is missing on top of it, and its label and date."""

    height: int
    label: str
    date: str
    colour: str
    missing: int = 0
    title: str = ""


def columns(title: str, shown: Sequence[Column]) -> Columns:
    """Bars over their labels and dates, with their heights written above where there is room."""
    slot = 100 / max(12, len(shown))
    largest = max([1, *(one.height + one.missing for one in shown)])
    bars = []
    for at, one in enumerate(shown):
        missing = _ROOM * one.missing / largest
        tall = max(1.0, _ROOM * one.height / largest)
        bars.append(
            Bar(
                left=slot * (at + 0.2),
                width=slot * 0.6,
                middle=slot * (at + 0.5),
                top=_TOP + _ROOM - tall,
                height=tall,
                missing=missing,
                colour=one.colour,
                title=one.title,
            )
        )
    middles = [bar.middle for bar in bars]
    tops = [bar.top - bar.missing - 5.0 for bar in bars]

    def is_free(at: int, left: float, right: float) -> bool:
        """Whether a value above its bar lies over no other bar; places are in per cent."""
        return all(
            bar.top - bar.missing > tops[at] or bar.left > right or bar.left + bar.width < left
            for bar in bars
        )

    values = fitting([f"{one.height:,}" for one in shown], middles, is_free)
    # A date is written once, under the first round of the day.
    dates = [
        one.date if at == 0 or one.date != shown[at - 1].date else ""
        for at, one in enumerate(shown)
    ]
    rows = [fitting([one.label for one in shown], middles), fitting(dates, middles)]
    return Columns(
        title,
        _TOP + _ROOM + 0.5,
        bars,
        [(label, tops[at]) for at, label in values.items()],
        [list(row.values()) for row in rows if row],
    )


def fitting(
    texts: Sequence[str],
    middles: Sequence[float],
    is_free: Callable[[int, float, float], bool] = lambda at, left, right: True,
) -> dict[int, Label]:
    """The texts that fit into a row without touching each other, by their numbers.

    First those that fit on a phone, from the right, because the newest matter most; then those
    that fit between them on a wider screen.  A text that would stick out begins or ends with
    the chart.  ``is_free`` says whether a text may stand from one place to another, in per cent.

    >>> found = fitting(["10", "11", "12"], [10.0, 14.0, 90.0])
    >>> [(at, label.text, label.roomy) for at, label in found.items()]
    [(0, '10', True), (1, '11', False), (2, '12', False)]
    """
    chosen: dict[int, Label] = {}
    for roomy, width in ((False, NARROW), (True, WIDE)):
        for at in range(len(texts) - 1, -1, -1):
            if not texts[at] or at in chosen:
                continue
            one = _label(texts[at], middles[at], roomy, width)
            span = _span(one, width)
            free = is_free(at, 100 * span[0] / width, 100 * span[1] / width)
            if free and not any(_touch(span, _span(other, width)) for other in chosen.values()):
                chosen[at] = one
    return {at: chosen[at] for at in sorted(chosen)}


def _label(text: str, middle: float, roomy: bool, width: float) -> Label:
    half, place = len(text) * _CHARACTER / 2, middle * width / 100
    if place < half:
        return Label(text, 0.0, "start", roomy)
    if place > width - half:
        return Label(text, 100.0, "end", roomy)
    return Label(text, middle, "middle", roomy)


def _span(label: Label, width: float) -> tuple[float, float]:
    length, place = len(label.text) * _CHARACTER, label.place * width / 100
    left = {"start": place, "middle": place - length / 2, "end": place - length}[label.anchor]
    return left, left + length


def _touch(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] + _BETWEEN and other[0] < one[1] + _BETWEEN


# -- losses by the number of clusters --------------------------------------------------------------


@dataclass(frozen=True)
class LossPoint:
    """A number of clusters and the loss of its model; places are in per cent and in pixels."""

    n_clusters: int
    loss: float
    x: float
    y: float
    chosen: bool


@dataclass(frozen=True)
class LossCurve:
    """The loss for each number of clusters."""

    points: Sequence[LossPoint]
    labels: Sequence[Label]
    base: float


def loss_curve(losses: Sequence[tuple[int, float]], chosen: int) -> LossCurve:
    """The losses of models with some numbers of clusters, and the number in force."""
    losses = sorted(losses)
    largest = max((loss for _, loss in losses), default=0.0) or 1.0
    step = 100 / max(1, len(losses))
    points = [
        LossPoint(
            n_clusters,
            loss,
            step * (at + 0.5),
            _TOP + _ROOM * (1 - loss / largest),
            n_clusters == chosen,
        )
        for at, (n_clusters, loss) in enumerate(losses)
    ]
    labels = fitting([str(one.n_clusters) for one in points], [one.x for one in points])
    return LossCurve(points, list(labels.values()), _TOP + _ROOM + 8.0)
