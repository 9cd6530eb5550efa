"""The figure of ``bench disclosure``: how often guesses come near, and how often they tell more."""

from __future__ import annotations

import io
from collections.abc import Sequence

from fedforget.bench.disclosure import AttackOutcome
from fedforget.bench.figures import LOOK, smaller

_MARKS: tuple[tuple[str, str, str], ...] = (
    ("fullest place", "#999999", "|"),
    ("at random", "#000000", "|"),
    ("server, within 1 %", "#D55E00", "o"),
    ("two published models, from a change", "#56B4E9", "s"),
    ("server, singled out", "#0072B2", "D"),
)
"""What is drawn of each setting, with colours that colour-blind readers can tell apart."""


def shares_of(one: AttackOutcome) -> tuple[float, ...]:
    """What :data:`_MARKS` draws of one setting."""
    server = one.server
    two_models = one.outsider.informed
    return one.fullest_place, server.chance, server.near, two_models, server.singled_out


def draw(found: Sequence[AttackOutcome], title: str) -> tuple[bytes, str]:
    """The figure as PNG and as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(LOOK):
        figure, axes = plt.subplots(figsize=(7.2, 0.36 * len(found) + 1.3))
        rows = range(len(found))
        for at, (name, colour, mark) in enumerate(_MARKS):
            shares = [100 * shares_of(one)[at] for one in found]
            size = 13 if mark == "|" else 5
            axes.plot(shares, rows, mark, color=colour, label=name, markersize=size, clip_on=False)
        axes.set_yticks(list(rows), [one.setting.name for one in found])
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("removed records, %")
        axes.set_title(title)
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        png, svg = io.BytesIO(), io.StringIO()
        figure.savefig(png, format="png", dpi=150)
        figure.savefig(svg, format="svg", metadata={"Date": None})
        plt.close(figure)
    return png.getvalue(), smaller(svg.getvalue())
