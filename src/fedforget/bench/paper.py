"""The numbers that the paper prints, as data.

Pan, Sima, Prakash, Rana, Milenkovic, "Machine Unlearning of Federated Clusters", ICLR 2023.
"""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """A mean and its standard deviation, as printed (two decimals)."""

    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}"


DATASETS = ("TMI", "Celltype", "Gaussian", "TCGA", "Postures", "FEMNIST", "Covtype")
"""In the order of the paper's tables."""


def _row(*cells: tuple[float, float]) -> dict[str, Printed]:
    return {name: Printed(*cell) for name, cell in zip(DATASETS, cells, strict=True)}


_K_FED = _row(
    (1.84, 0.07), (1.72, 0.24), (1.25, 0.01), (1.56, 0.11), (1.13, 0.01), (1.21, 0.00), (1.60, 0.01)
)
_DC_KM = _row(
    (1.54, 0.13), (1.46, 0.01), (1.02, 0.00), (1.15, 0.02), (1.03, 0.00), (1.18, 0.00), (1.03, 0.02)
)

TABLE_1 = {
    "MUFC": _row(
        (1.24, 0.10), (1.14, 0.03), (1.25, 0.02), (1.18, 0.05), (1.10, 0.01), (1.20, 0.00),
        (1.03, 0.02),
    ),
    "K-FED": _K_FED,
    "DC-KM": _DC_KM,
}  # fmt: skip
"""Loss ratios: clients run the K-means++ initialisation only."""

TABLE_2 = {
    "MUFC": _row(
        (1.05, 0.01), (1.03, 0.00), (1.02, 0.00), (1.02, 0.01), (1.02, 0.00), (1.12, 0.00),
        (1.02, 0.00),
    ),
    "K-FED": _K_FED,
    "DC-KM": _DC_KM,
}  # fmt: skip
"""Loss ratios with complete client training."""

SPEED_UP = dict(zip(DATASETS, (151, 1535, 2074, 483, 613, 53, 267), strict=True))
"""Complete retraining over one removal that needs no re-seeding."""

AVERAGE_SPEED_UP = 84
"""Over random removals on the seven datasets, re-seeding included."""

SIZES = {
    "TMI": (934, 125, 46, 21),
    "Celltype": (6506, 2328, 2201, 974),
    "TCGA": (735, 503, 390, 276),
    "Postures": (19772, 17340, 15141, 12225, 10497),
    "Covtype": (3742, 3105, 2873, 2307, 1482, 886, 725),
}
"""Cluster sizes, the largest first; FEMNIST has 1234 to 282, and Gaussian none are printed for."""
