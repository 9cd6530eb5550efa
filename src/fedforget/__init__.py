"""Federated K-means that can forget: exactly, cheaply and verifiably."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedforget.lazy import names_from

if TYPE_CHECKING:
    from fedforget.errors import (
        CutOffError,
        DataTraceWarning,
        DuplicateIdError,
        FedforgetError,
        LatticeOverflowError,
        ModelFileError,
        OutOfBoundsError,
        UnknownIdError,
    )
    from fedforget.estimators import FederatedKMeans, KMeans, SeededKMeans
    from fedforget.report import Report

__version__ = "0.2.0"

# scikit-learn and numba take a second to load, which most commands should not spend.
_HOMES = {
    "CutOffError": "fedforget.errors",
    "DataTraceWarning": "fedforget.errors",
    "DuplicateIdError": "fedforget.errors",
    "FederatedKMeans": "fedforget.estimators",
    "FedforgetError": "fedforget.errors",
    "KMeans": "fedforget.estimators",
    "LatticeOverflowError": "fedforget.errors",
    "ModelFileError": "fedforget.errors",
    "OutOfBoundsError": "fedforget.errors",
    "Report": "fedforget.report",
    "SeededKMeans": "fedforget.estimators",
    "UnknownIdError": "fedforget.errors",
}
if not TYPE_CHECKING:
    __getattr__ = names_from(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])


__all__ = [
    "CutOffError",
    "DataTraceWarning",
    "DuplicateIdError",
    "FederatedKMeans",
    "FedforgetError",
    "KMeans",
    "LatticeOverflowError",
    "ModelFileError",
    "OutOfBoundsError",
    "Report",
    "SeededKMeans",
    "UnknownIdError",
    "__version__",
]
