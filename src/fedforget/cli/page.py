"""Building blocks of a self-contained HTML page: escaped markup, tables, small SVG charts.

Everything is built by :func:`element`, which escapes whatever is not :class:`Html` already: a name
that comes from somebody else can never become markup.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from fedforget.clustering.distance import Floats, Labels
from fedforget.clustering.prf import Ints
from fedforget.text import visible

N_COLOURS = 7
MOST_NUMBERED = 12
"""With more clusters than this, a profile has ticks instead of numbered dots."""
MOST_BINS = 3000

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --ink: #1c2126; --muted: #5a646e; --rule: #dce1e6;
  --soft: #f4f6f8; --good: #00745a; --bad: #b3261e; --c0: #0072b2; --c1: #e69f00; --c2: #009e73;
  --c3: #cc79a7; --c4: #d55e00; --c5: #56b4e9; --c6: #868e96; }
@media screen and (prefers-color-scheme: dark) { :root { --bg: #14181c; --ink: #e6e9ec;
  --muted: #9aa5af; --rule: #2e363d; --soft: #1c2227; --good: #3ecf9f; --bad: #ff8a80;
  --c0: #2a93dc; --c1: #f0b429; --c2: #1fbf8f; --c3: #e39bc3; --c4: #f0763a; --c5: #94d3f7;
  --c6: #a3abb2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: clamp(1rem, 4vw, 3rem); background: var(--bg);
  color: var(--ink); font: .94rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.2; margin: 0; font-weight: 650; }
h1 { font-size: clamp(1.6rem, 5vw, 2.2rem); }
h2 { font-size: 1.2rem; margin-bottom: .35rem; }
h3 { font-size: .95rem; margin-bottom: .3rem; }
p { margin: 0 0 .8rem; max-width: 46rem; }
section { margin-top: 2.2rem; padding-top: 1.2rem; border-top: 1px solid var(--rule); }
bdi, td, dd { unicode-bidi: isolate; }
code { font: .88em/1.4 ui-monospace, monospace; }
.kind, .muted, figcaption, dt { color: var(--muted); }
.kind { font-size: .8rem; letter-spacing: .08em; text-transform: uppercase; margin: 0 0 .3rem; }
.muted, figcaption { font-size: .87rem; }
.note { background: var(--soft); border-left: 3px solid var(--c0); padding: .7rem 1rem;
  margin: 1.2rem 0 0; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.5rem, 1fr)); gap: 1.2rem;
  margin: 1.6rem 0 1rem; }
.tiles div { display: flex; flex-direction: column-reverse; }
.tiles dt { font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.7rem; font-weight: 600; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: 0; }
.facts dd { margin: 0; }
.side { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 2rem;
  align-items: start; }
figure { margin: 0; }
figcaption { margin-top: .4rem; }
svg { display: block; overflow: visible; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .faint { fill: var(--muted); }
.plot { width: 100%; height: auto; background: var(--soft); border-radius: 4px; }
.axis { stroke: var(--rule); } .strip .axis { stroke: var(--muted); stroke-opacity: .6; }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); }
.c4 { --c: var(--c4); } .c5 { --c: var(--c5); } .c6 { --c: var(--c6); }
.bin { fill: var(--c); fill-opacity: .5; }
.mark { fill: var(--bg); stroke: var(--c); stroke-width: 3; }
.tick { stroke: var(--c); stroke-width: 3; }
.bar { fill: var(--c); }
.centred { text-anchor: middle; dominant-baseline: central; font-weight: 650 !important; }
.halo { paint-order: stroke; stroke: var(--soft); stroke-width: 4px; stroke-linejoin: round;
  dominant-baseline: central; }
.key { display: inline-block; min-width: 1.7em; padding: 0 .3em; border: 2px solid var(--c);
  border-radius: 1em; text-align: center; font-size: .85em; font-weight: 650; }
.profiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(18rem, 100%), 1fr));
  gap: 1.3rem 2.2rem; }
.profiles > div { break-inside: avoid; }
.strip { padding: .3rem 9px 0; }
.bounds { display: flex; justify-content: space-between; padding: 0 9px; font-size: .8rem;
  color: var(--muted); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem 1.4rem .35rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); overflow-wrap: normal; }
td:last-child, th:last-child { padding-right: 0; }
th { font-size: .82rem; font-weight: 600; color: var(--muted); white-space: nowrap; }
.number { text-align: right; white-space: nowrap; }
time { white-space: nowrap; }
td bdi, th bdi { display: inline-block; max-width: 18rem; overflow-wrap: break-word; }
.sizes { columns: 15rem; column-gap: 2.5rem; margin: 0; padding: 0; list-style: none; }
.sizes li { display: grid; grid-template-columns: 2.6rem 4.5rem 1fr; align-items: center;
  break-inside: avoid; gap: .8rem; padding: .1rem 0; }
.alone { max-width: 46rem; margin-bottom: 1.4rem; }
.numbers, figure + .scroll { margin-top: 1.4rem; }
@media (max-width: 44rem) { .side { grid-template-columns: minmax(0, 1fr); }
  .plot text { font-size: 17px; } .facts { grid-template-columns: 1fr; gap: 0; }
  .facts dd { margin-bottom: .5rem; } }
@media print { html { font-size: 11.5px; } body { padding: 0; max-width: none; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; } .scroll { overflow: visible; }
  table { font-size: .85em; } th { white-space: normal; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, *children: str | int, **attributes: str | float) -> Html:
    """An element; children that are not markup are escaped, and so are attributes.

    In the names of attributes a final underscore is dropped, another one stands for a hyphen.

    >>> element("b", "<i>", element("i", 7), class_="x")
    '<b class="x">&lt;i&gt;<i>7</i></b>'
    """
    opening = name
    for key, value in attributes.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        opening += f' {key.rstrip("_").replace("_", "-")}="{_escaped(shown)}"'
    return Html(f"<{opening}>{joined(children)}</{name}>")


def joined(children: Iterable[str | int]) -> Html:
    """Children one after the other, escaped where they are not markup."""
    return Html(
        "".join(child if isinstance(child, Html) else _escaped(child) for child in children)
    )


def _escaped(text: object) -> str:
    """Text that is neither markup nor able to hide or turn what is around it."""
    return html.escape(visible(text))


def document(title: str, body: Iterable[Html]) -> str:
    """The whole page.  Its policy forbids the browser to load or run anything."""
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )
    style = element("style", Html(STYLE))
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}{element("title", title)}{style}</head>\n'
        f"<body>{element('main', *body)}</body></html>\n"
    )


# -- words and tables ------------------------------------------------------------------------------


def section(title: str, *children: Html) -> Html:
    return element("section", element("h2", title), *children)


def paragraph(*children: str | int, class_: str = "") -> Html:
    return element("p", *children, class_=class_) if class_ else element("p", *children)


def named(name: str) -> Html:
    """A name that somebody else chose, kept from turning the text around it."""
    return element("bdi", name)


def tiles(figures: Iterable[tuple[str, str | int]]) -> Html:
    """The figures that matter, large."""
    return element("dl", *map(_fact, figures), class_="tiles")


def facts(values: Iterable[tuple[str, str | int]]) -> Html:
    """Names and values, one a line."""
    parts = (joined((element("dt", name), element("dd", value))) for name, value in values)
    return element("dl", *parts, class_="facts")


def _fact(figure: tuple[str, str | int]) -> Html:
    name, value = figure
    shown = grouped(value) if isinstance(value, int) else value
    return element("div", element("dt", name), element("dd", shown))


def table(
    headers: Sequence[str], rows: Iterable[Sequence[str | int]], numbers: Container[str] = ()
) -> Html:
    """A table; the columns whose headers are in ``numbers`` stand at the right."""
    at_right = [name in numbers for name in headers]
    head = element("thead", _row("th", headers, at_right))
    body = element("tbody", *(_row("td", row, at_right) for row in rows))
    return element("div", element("table", head, body), class_="scroll")


def _row(tag: str, cells: Sequence[str | int], at_right: Sequence[bool]) -> Html:
    shown = (grouped(cell) if isinstance(cell, int) else cell for cell in cells)
    return element(
        "tr",
        *(
            element(tag, cell, class_="number") if right else element(tag, cell)
            for cell, right in zip(shown, at_right, strict=True)
        ),
    )


def grouped(number: int) -> str:
    """An integer with its thousands apart.

    >>> grouped(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def figure(value: float) -> str:
    """A measured number, to four digits or to the integer.

    >>> figure(0.123456), figure(27.0), figure(499812.3)
    ('0.1235', '27', '499,812')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def short(digest: str | None) -> Html | str:
    """The first digits of a digest."""
    return "—" if digest is None else element("code", digest[:12] + "…")


def moment(text: str) -> Html:
    """A time of a log or a receipt, in a form that people read.

    >>> moment("2030-01-02T03:04:05+00:00")
    '<time>2030-01-02 03:04:05 UTC</time>'
    """
    with suppress(ValueError):
        text = f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}"
    return element("time", text)


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


def scatter(
    bins: Floats, counts: Ints, labels: Labels, centres: Floats, clusters: Sequence[Cluster]
) -> Html:
    """Bins as circles whose area is their count, and the clusters' centres as numbered marks.

    ``bins`` and ``centres`` are points of the plane, drawn to one scale in both directions;
    ``labels`` holds the number of each bin's cluster.
    """
    place, width, height = _frame(np.concatenate([bins, centres]))
    widest = min(28.0, max(10.0, 95.0 / math.sqrt(len(bins))))
    radii = np.maximum(1.5, widest * np.sqrt(counts / counts.max()))
    largest = np.argsort(-counts, kind="stable")[:MOST_BINS]
    circles = (
        element("circle", cx=x, cy=y, r=r, class_=f"bin {colour(label)}")
        for (x, y), r, label in zip(
            place(bins[largest]).tolist(),
            radii[largest].tolist(),
            labels[largest].tolist(),
            strict=True,
        )
    )
    marks = (
        _centre(x, y, cluster, flip=x > width - 90, sized=len(clusters) <= MOST_NUMBERED)
        for (x, y), cluster in zip(place(centres).tolist(), clusters, strict=True)
    )
    title = element("title", "The clusters in the plane in which they differ most")
    box = f"0 0 {width:g} {height:g}"
    return element("svg", title, *circles, *marks, viewBox=box, class_="plot", role="img")


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


def _centre(x: float, y: float, cluster: Cluster, *, flip: bool, sized: bool) -> Html:
    """A numbered mark, with the cluster's size at its right, or at its left with ``flip``."""
    parts = [
        element("title", f"cluster {cluster.number}: {grouped(cluster.size)} records"),
        element("circle", cx=x, cy=y, r=10.0, class_="mark"),
        element("text", cluster.number, x=x, y=y, class_="centred"),
    ]
    if sized:
        beside = {"x": x - 15.0, "text_anchor": "end"} if flip else {"x": x + 15.0}
        parts.append(element("text", grouped(cluster.size), y=y, class_="halo", **beside))
    return element("g", *parts, class_=cluster.colour)


def key(cluster: Cluster) -> Html:
    """A cluster's number in its colour, for the text."""
    return element("span", cluster.number, class_=f"key {cluster.colour}")


def size_bars(clusters: Sequence[Cluster]) -> Html:
    """How many records each cluster has."""
    largest = max(cluster.size for cluster in clusters)
    lines = (
        element(
            "li",
            element("span", key(cluster)),
            element("span", grouped(cluster.size), class_="number"),
            _bar(cluster.size / max(1, largest), cluster.colour),
        )
        for cluster in clusters
    )
    return element("ul", *lines, class_="sizes", aria_label="Records of each cluster")


def _bar(share: float, style: str) -> Html:
    """A horizontal bar; its length is a share of the room that there is."""
    bar = element("rect", width=f"{100 * share:.4g}%", height=12, y=5, rx=2, class_=f"bar {style}")
    return element("svg", bar, width="100%", height=22, aria_hidden="true")


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


def strip(
    feature: str, low: float, high: float, values: Sequence[float], clusters: Sequence[Cluster]
) -> Html:
    """Where the clusters' centres lie between a feature's public bounds, in its own units."""
    places = [100 * _share(value, low, high) for value in values]
    numbered = len(clusters) <= MOST_NUMBERED
    lane_of = lanes(places, apart=7.0) if numbered else [0] * len(places)
    height = 18.0 * (1 + max(lane_of, default=0)) + 8.0
    marks = (
        _dot(f"{place:.4g}%", height - 13.0 - 18.0 * lane, figure(value), cluster)
        if numbered
        else _tick(f"{place:.4g}%", height, cluster)
        for place, lane, value, cluster in zip(places, lane_of, values, clusters, strict=True)
    )
    base = height - 1.0
    axis = element("line", x1="0", x2="100%", y1=base, y2=base, class_="axis")
    label = f"{feature}, from {figure(low)} to {figure(high)}"
    svg = element("svg", axis, *marks, width="100%", height=height, role="img", aria_label=label)
    ends = (element("span", figure(bound)) for bound in (low, high))
    return element(
        "div",
        element("h3", named(feature)),
        element("div", svg, class_="strip"),
        element("div", *ends, class_="bounds"),
    )


def _share(value: float, low: float, high: float) -> float:
    """How far a value lies between two bounds, from 0 to 1."""
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5


def _dot(x: str, y: float, value: str, cluster: Cluster) -> Html:
    return element(
        "g",
        element("title", f"cluster {cluster.number}: {value}"),
        element("circle", cx=x, cy=y, r=8.0, class_="mark"),
        element("text", cluster.number, x=x, y=y, class_="centred"),
        class_=cluster.colour,
    )


def _tick(x: str, height: float, cluster: Cluster) -> Html:
    return element("line", x1=x, x2=x, y1=4.0, y2=height - 1.0, class_=f"tick {cluster.colour}")


# -- rounds ----------------------------------------------------------------------------------------


def columns(heights: Sequence[int], labels: Sequence[str], colours: Sequence[str]) -> Html:
    """Upright bars over their labels, with their heights written above where there is room."""
    slot = 100 / max(12, len(heights))
    every = 1 + len(heights) // 25
    largest = max([1, *heights])
    bars = (
        _column(at, slot, value, value / largest, label if at % every == 0 else "", style)
        for at, (value, label, style) in enumerate(zip(heights, labels, colours, strict=True))
    )
    base = _COLUMN_TOP + _COLUMN_ROOM + 0.5
    axis = element("line", x1="0", x2="100%", y1=base, y2=base, class_="axis")
    label, height = "Changed bins by round", base + 24.0
    return element("svg", axis, *bars, width="100%", height=height, role="img", aria_label=label)


_COLUMN_TOP, _COLUMN_ROOM = 18.0, 110.0


def _column(at: int, slot: float, value: int, share: float, label: str, style: str) -> Html:
    tall = max(1.0, _COLUMN_ROOM * share)
    top = _COLUMN_TOP + _COLUMN_ROOM - tall
    left, wide = f"{slot * (at + 0.2):.4g}%", f"{slot * 0.6:.4g}%"
    parts = [element("rect", x=left, width=wide, y=top, height=tall, class_="bar")]
    if label:
        text = {"x": f"{slot * (at + 0.5):.4g}%", "text_anchor": "middle"}
        parts.append(element("text", grouped(value), y=top - 5.0, **text))
        parts.append(element("text", label, y=_COLUMN_TOP + _COLUMN_ROOM + 18, **text))
    return element("g", *parts, class_=style)
