"""The demonstration's picture: the clusters before and after, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedforget.arrays import Floats
    from fedforget.cli.demo import Patients, Scene

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
MARKERS = ("o", "s", "^", "D", "v")


def draw_story(out: Path, before: Scene, after: Scene, gone: list[Patients], width: Floats) -> Path:
    """Draw the clusters before and after, in the plane of most variance; returns the PNG's path.

    ``width`` holds the range of each feature, by which the values are divided first.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from sklearn.decomposition import PCA

    plane = PCA(2, random_state=0).fit(before.patients.values / width)

    def project(values: Floats) -> Floats:
        points: Floats = plane.transform(values / width)
        return points

    figure, axes = plt.subplots(1, 2, figsize=(11, 5.2), sharex=True, sharey=True, dpi=150)
    hospitals = sorted(set(before.patients.hospital.tolist()))
    for axis, scene, title in zip(axes, (before, after), ("before", "after"), strict=True):
        patients, labels, centres = scene
        # Numbered from left to right, a colour means the same cluster in both panels.
        order = np.argsort(project(centres)[:, 0])
        rank = np.argsort(order)
        points = project(patients.values)
        for number, name in enumerate(hospitals):
            own = patients.hospital == name
            axis.scatter(
                *points[own].T,
                c=[COLOURS[rank[label]] for label in labels[own]],
                marker=MARKERS[number],
                s=16,
                alpha=0.75,
                linewidths=0,
            )
        axis.scatter(
            *project(centres[order]).T,
            c=COLOURS[: len(centres)],
            marker="*",
            s=320,
            edgecolors="black",
            linewidths=1.1,
            zorder=5,
        )
        axis.set_title(f"{title}: {len(patients)} patients", loc="left", fontsize=11)
        axis.set_xlabel("first principal component")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.2)
    axes[0].set_ylabel("second principal component")
    forgotten = np.concatenate([project(patients.values) for patients in gone])
    axes[1].scatter(*forgotten.T, marker="x", s=14, c="#999999", linewidths=0.8, zorder=0)
    _legend(figure, hospitals, len(forgotten))
    figure.suptitle("Five hospitals cluster together, then forget", x=0.01, ha="left", fontsize=13)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    out.mkdir(parents=True, exist_ok=True)
    path = out / "fedforget-demo.png"
    figure.savefig(path)
    plt.close(figure)
    return path.resolve()


def _legend(figure: Any, hospitals: list[str], n_gone: int) -> None:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"linestyle": "", "color": "#555555", "markersize": 6}
    entries = [
        Line2D([], [], marker=marker, label=name, **style)
        for marker, name in zip(MARKERS, hospitals, strict=False)
    ]
    entries.append(
        Line2D([], [], marker="*", label="centre", **(style | {"markersize": 12, "color": "black"}))
    )
    entries.append(
        Line2D([], [], marker="x", label=f"forgotten ({n_gone})", **(style | {"color": "#999999"}))
    )
    figure.legend(handles=entries, loc="lower center", ncols=len(entries), frameon=False)
