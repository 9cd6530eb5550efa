"""Draws the pictures of the explanations: ``python docs/images/draw.py``.

Each picture is one function that returns SVG.  The numbers of the race and of the replay are those
of the worked examples on their pages; the charts read their figures from tables of
``docs/performance.md``, or of another page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = HERE.parent / "performance.md"

INK, GREY, PALE = "#263238", "#90a4ae", "#eceff1"
BLUE, ORANGE, GREEN = "#1565c0", "#e65100", "#2e7d32"


# -- the little that is needed of SVG ----------------------------------------------------------


def page(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """A whole picture on a white ground."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" font-family="Helvetica, Arial, sans-serif"'
        f' font-size="14" fill="{INK}">'
    )
    ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, **style: str | float) -> str:
    return f'<text x="{x:g}" y="{y:g}"{_attributes(style)}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, **style: str | float) -> str:
    style = {"stroke": INK, "stroke_width": 1} | style
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{_attributes(style)}/>'


def box(x: float, y: float, width: float, height: float, **style: str | float) -> str:
    shape = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f"<rect {shape}{_attributes({'fill': PALE} | style)}/>"


def dot(x: float, y: float, radius: float, **style: str | float) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}"{_attributes({"fill": INK} | style)}/>'


def arrow(x1: float, y1: float, x2: float, y2: float, colour: str = INK) -> str:
    """A horizontal line with a head."""
    back = math.copysign(8, x2 - x1)
    head = f"M {x2:g} {y2:g} l {-back:g} -4 l 0 8 z"
    shaft = line(x1, y1, x2 - back, y2, stroke=colour, stroke_width=1.5)
    return f'{shaft}<path d="{head}" fill="{colour}"/>'


def _attributes(style: dict[str, str | float]) -> str:
    return "".join(f' {name.replace("_", "-")}="{value}"' for name, value in style.items())


# -- the race ----------------------------------------------------------------------------------

PLACES = {"a": 0, "b": 1, "c": 4, "d": 5, "e": 9}
SECOND_CLOCKS = {"a": 0.40, "b": 1.20, "c": 1.80, "d": 0.64, "e": 1.60}
FIRST_SEED = "b"


def scores(present: Sequence[str]) -> dict[str, float]:
    """Clock over squared distance to the first seed, of everybody else who is present."""
    found = {}
    for name in present:
        squared = (PLACES[name] - PLACES[FIRST_SEED]) ** 2
        if squared:
            found[name] = SECOND_CLOCKS[name] / squared
    return found


def race() -> str:
    """The second step of the race: with all records, without a loser, without the winner."""
    panels = [
        ("All five records", "e wins the second step", "abcde"),
        ("d has gone", "e still wins", "abce"),
        ("e has gone", "the step is raced again: d wins", "abcd"),
    ]
    width, scale = 300, 500
    parts = []
    for number, (head, foot, present) in enumerate(panels):
        left = 20 + number * width
        parts.append(text(left, 28, head, font_weight="bold", font_size=16))
        found = scores(present)
        winner = min(found, key=lambda name: found[name])
        for row, name in enumerate(PLACES):
            y = 64 + 34 * row
            gone = name not in present
            parts.append(text(left, y, f"{name}", fill=GREY if gone else INK, font_weight="bold"))
            if gone:
                parts.append(text(left + 22, y, "gone", fill=GREY, font_style="italic"))
            elif name == FIRST_SEED:
                parts.append(text(left + 22, y, "seed of step 1", fill=BLUE))
            else:
                colour = ORANGE if name == winner else GREY
                length = max(3.0, found[name] * scale)
                parts.append(box(left + 22, y - 13, length, 18, fill=colour))
                label = f"{found[name]:.3f}" + (" wins" if name == winner else "")
                parts.append(text(left + 28 + length, y, label, font_size=13))
        parts.append(text(left, 250, foot, fill=ORANGE, font_weight="bold"))
    parts.append(
        text(20, 282, "Bars: score = clock / D². The lowest score is the next seed.", fill=INK)
    )
    return page(920, 300, "A record that did not win can leave without changing who did", parts)


# -- the replay --------------------------------------------------------------------------------

POINTS = (0, 2, 4, 5.6, 8, 10, 12, 18)
NEAR, FAR, FAR_AFTER = 2.9, 12.0, 10.0


def replay() -> str:
    """Two clusters on a line; the point at 18 goes, and one point has to be looked at."""

    def at(x: float) -> float:
        return 60 + 42 * x

    border = (NEAR + FAR) / 2
    drift = FAR - FAR_AFTER
    parts = []
    for y, head, here, centre in (
        (90, "Before: two centres, and the border half way between them", POINTS, FAR),
        (230, "The record at 18 goes: the right centre moves by 2", POINTS[:-1], FAR_AFTER),
    ):
        parts.append(text(20, y - 50, head, font_weight="bold", font_size=16))
        if centre != FAR:
            parts.append(box(at(border - drift / 2), y - 34, 42 * drift, 68, fill="#ffe0b2", rx=4))
        parts.append(line(at(-0.6), y, at(18.6), y, stroke=GREY))
        parts.append(
            line(at(border), y - 34, at(border), y + 34, stroke=INK, stroke_dasharray="5 4")
        )
        for x in POINTS:
            gone = x not in here
            inside = centre != FAR and abs(x - border) <= drift / 2
            colour = "none" if gone else ORANGE if inside else BLUE if x < border else GREEN
            outline = GREY if gone else colour
            parts.append(dot(at(x), y, 7, fill=colour, stroke=outline, stroke_width=1.5))
            parts.append(text(at(x), y + 26, f"{x:g}", text_anchor="middle", font_size=12))
        for x, colour in ((NEAR, BLUE), (centre, GREEN)):
            parts.append(_cross(at(x), y - 18, colour))
            parts.append(text(at(x) + 9, y - 20, f"{x:g}", font_size=12, fill=colour))
        if centre != FAR:
            parts.append(arrow(at(FAR), y - 18, at(FAR_AFTER) + 40, y - 18, GREEN))
    notes = "Only a point within half the drift of the border can change sides: the one at 8."
    parts.append(text(20, 292, notes, fill=ORANGE, font_weight="bold"))
    return page(880, 312, "Few points are close enough to the border to be looked at again", parts)


def _cross(x: float, y: float, colour: str) -> str:
    ends = (x - 6, y - 6, x + 6, y + 6), (x - 6, y + 6, x + 6, y - 6)
    return "".join(line(*end, stroke=colour, stroke_width=3) for end in ends)


# -- SCMA --------------------------------------------------------------------------------------


def scma() -> str:
    """Two clients' counts, their short vectors, and the sum that decodes."""
    prime, length = 101, 6
    clients = {"Aarhus": {3: 2, 7: 1}, "Bologna": {7: 4, 10: 1}}
    total = {3: 2, 7: 5, 10: 1}
    rows: list[tuple[str, dict[int, int], str]] = [
        *((name, counts, "") for name, counts in clients.items()),
        ("sum", total, ORANGE),
    ]
    parts = [
        text(20, 28, "counts of bins 1 to 11", font_weight="bold"),
        text(430, 28, "six sums modulo 101", font_weight="bold"),
    ]
    for number, (name, counts, colour) in enumerate(rows):
        y = 50 + 62 * number + (14 if colour else 0)
        parts.append(text(20, y + 20, name, font_weight="bold", fill=colour or INK))
        for place in range(1, 12):
            x = 100 + 26 * (place - 1)
            count = counts.get(place)
            parts.append(box(x, y, 24, 28, fill="#bbdefb" if count else PALE))
            if count:
                parts.append(text(x + 12, y + 19, str(count), text_anchor="middle"))
        parts.append(arrow(395, y + 14, 424, y + 14, GREY))
        for power in range(length):
            value = sum(c * pow(b, power, prime) for b, c in counts.items()) % prime
            x = 430 + 46 * power
            parts.append(box(x, y, 44, 28, fill="#ffe0b2" if colour else PALE))
            parts.append(text(x + 22, y + 19, str(value), text_anchor="middle"))
    parts.append(line(430, 180, 706, 180, stroke=GREY))
    parts.append(
        text(20, 262, "The server sees only the last vector, and gets the counts of the sum back.")
    )
    return page(730, 280, "Vectors of power sums add up like the counts that they stand for", parts)


# -- the protocol ------------------------------------------------------------------------------

STAGES: list[tuple[str, str, str]] = [
    ("who", "who is there? (a question with a nonce)", "greeting: my list, my last commit"),
    ("advertise", "what this attempt is", "two fresh public keys"),
    ("share", "everybody's keys", "my secrets in encrypted shares, one per neighbour"),
    ("masked input", "the shares for you", "my change, encoded, under masks"),
    ("consistency", "who has sent, and who is lost", "my signature on exactly this set"),
    (
        "unmask",
        "signatures of enough members",
        "shares: of survivors the seed, of the lost the key",
    ),
    ("commit", "notice: survivors, signatures, digest of the model", ""),
]
"""Each stage with what the server says and what a client answers."""


def protocol() -> str:
    """A round as a sequence diagram."""
    width, server, client = 760, 170, 650
    parts = []
    for x, name, colour in ((server, "Server", BLUE), (client, "each client", GREEN)):
        parts.append(box(x - 60, 14, 120, 32, fill=colour, rx=4))
        parts.append(text(x, 35, name, fill="#ffffff", text_anchor="middle", font_weight="bold"))
    y = 84
    middle = (server + client) / 2
    for stage, said, answered in STAGES:
        parts.append(text(20, y, stage, font_weight="bold"))
        for words, start, end, colour in (
            (said, server, client, BLUE),
            (answered, client, server, GREEN),
        ):
            if words:
                parts.append(text(middle, y - 6, words, text_anchor="middle", font_size=13))
                parts.append(arrow(start, y, end, y, colour))
                y += 32
        y += 10
    for x in (server, client):
        parts.insert(0, line(x, 46, x, y - 20, stroke=GREY, stroke_dasharray="3 4"))
    return page(width, y, "A round of the secure sum, stage by stage", parts)


# -- charts of the figures ---------------------------------------------------------------------


def table(page: Path, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of a page."""
    below = page.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1]
    first = re.search(r"(?:^\|.*\n)+", below.split("\n## ", 1)[0], re.M)
    if first is None:
        return []
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in first[0].splitlines()]


def column(page: Path, heading: str, name: str) -> list[tuple[str, float]]:
    """First column and one other of a table, as labels and numbers; empty cells are left out."""
    rows = table(page, heading)
    if not rows or name not in rows[0]:
        return []
    place = rows[0].index(name)
    found = [(row[0], re.sub(r"[^\d.]", "", row[place])) for row in rows[2:]]
    return [(label, float(number)) for label, number in found if number]


def bars(title: str, figures: list[tuple[str, float]], unit: str, marked: float = 1.0) -> str:
    """Bars on a logarithmic scale, with a line where both sides take the same time."""
    most = max([2 * marked, *(value for _, value in figures)])
    least = min([marked, *(value for _, value in figures)]) / 1.5
    span = math.log(most / least)

    def at(value: float) -> float:
        return 190 + 440 * math.log(value / least) / span

    parts = [text(20, 28, title, font_weight="bold", font_size=16)]
    for row, (label, value) in enumerate(figures):
        y = 50 + 30 * row
        parts.append(text(180, y + 15, label, text_anchor="end", font_size=13))
        colour = GREEN if value >= marked else ORANGE
        left, right = sorted((at(marked), at(value)))
        parts.append(box(left, y, max(2.0, right - left), 20, fill=colour))
        parts.append(text(max(left, right) + 6, y + 15, f"{value:g}{unit}", font_size=13))
    bottom = 54 + 30 * len(figures)
    parts.append(line(at(marked), 44, at(marked), bottom, stroke=INK))
    parts.append(text(at(marked), bottom + 16, "same time", text_anchor="middle", font_size=12))
    parts.append(text(700, bottom + 16, "logarithmic scale", text_anchor="end", font_size=12))
    return page(720, bottom + 28, title, parts)


def forget_speed(page: Path = FIGURES) -> str:
    figures = column(page, "One owner: `KMeans`", "`forget`, times faster")
    return bars("Forgetting one record, against a fit of scikit-learn", figures, "×")


def removal_speed(page: Path = FIGURES) -> str:
    figures = column(page, "A whole exact removal", "means, times faster")
    return bars("An exact removal in a federation, against complete retraining", figures, "×")


CHARTS: dict[str, Callable[..., str]] = {
    "forget-speed.svg": forget_speed,
    "removal-speed.svg": removal_speed,
}
"""The charts; each takes the page whose table it shows."""

PICTURES: dict[str, Callable[[], str]] = {
    "race.svg": race,
    "replay.svg": replay,
    "scma.svg": scma,
    "protocol.svg": protocol,
    **CHARTS,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (HERE / name).write_text(draw(), encoding="utf-8")
        print(name)
