"""The loss over the number of clusters, and the agreement of restarts, as one SVG picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedforget.clustering.choosing import Choices, in_words
from fedforget.pages.templates import render

WIDTH, HEIGHT = 560.0, 190.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 16.0, 12.0, 30.0


@dataclass(frozen=True)
class CurvePoint:
    """One number of clusters; ``label`` is written below where there is room."""

    x: float
    y: float
    label: str
    title: str
    hollow: bool


@dataclass(frozen=True)
class Tick:
    """A value of the upright axis."""

    y: float
    label: str


@dataclass(frozen=True)
class Curve:
    """Points joined by lines, with their axes."""

    name: str
    points: Sequence[CurvePoint]
    ticks: Sequence[Tick]
    line: str
    own_x: float | None


def curve(
    name: str,
    values: Sequence[float],
    labels: Sequence[str],
    titles: Sequence[str],
    hollow: Sequence[bool],
    top: float,
    own: int | None,
) -> Curve:
    """Values from 0 to ``top`` over their labels; ``own`` is the place that is marked."""
    room, tall = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
    slot = room / max(1, len(values))
    every = 1 + len(values) // 20
    xs = [_LEFT + slot * (at + 0.5) for at in range(len(values))]
    ys = [_TOP + tall * (1.0 - (value / top if top else 0.0)) for value in values]
    points = [
        CurvePoint(x, y, label if at % every == 0 else "", title, open_)
        for at, (x, y, label, title, open_) in enumerate(
            zip(xs, ys, labels, titles, hollow, strict=True)
        )
    ]
    ticks = [Tick(_TOP + tall * (1.0 - share), f"{top * share:.3g}") for share in (0.0, 0.5, 1.0)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return Curve(name, points, ticks, line, None if own is None else xs[own])


def curves_of(choices: Choices, own: int | None) -> list[Curve]:
    """The loss, and the agreement where there are several restarts.

    Hollow points are numbers with which a cluster is smaller than the rules allow.  ``own`` is the
    federation's number of clusters, which is marked.
    """
    rows = choices.rows
    labels = [str(row.n_clusters) for row in rows]
    hollow = [not row.complies for row in rows]
    marked = next((at for at, row in enumerate(rows) if row.n_clusters == own), None)
    losses = [row.loss for row in rows]
    titles = [f"{row.n_clusters} clusters: loss {row.loss:.6g}" for row in rows]
    found = [curve("loss", losses, labels, titles, hollow, max(losses), marked)]
    agreements = [max(0.0, row.agreement) for row in rows if row.agreement is not None]
    if len(agreements) == len(rows):
        titles = [f"{row.n_clusters} clusters: agreement {row.agreement:.2f}" for row in rows]
        name = "agreement between restarts"
        found.append(curve(name, agreements, labels, titles, hollow, 1.0, marked))
    return found


def picture_of(choices: Choices, own: int | None = None) -> str:
    """A picture that stands by itself."""
    return render(
        "choose.svg",
        curves=curves_of(choices, own),
        width=WIDTH,
        height=HEIGHT,
        left=_LEFT,
        bottom=HEIGHT - _BOTTOM,
        right=WIDTH - _RIGHT,
        has_small=any(not row.complies for row in choices.rows),
        min_cell=choices.min_cell,
        suggestion=in_words(choices.suggested),
        own=own,
    )
