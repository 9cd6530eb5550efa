"""Federated K-means that can forget: exactly, cheaply and verifiably."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from fedforget.estimators import FederatedKMeans, SeededKMeans
    from fedforget.report import Report

__version__ = "0.2.0"

# Names are imported when they are first used: scikit-learn and numba take a second to load, which
# a command line that only prints its help should not spend.
_HOME = {
    "CutOffError": "fedforget.errors",
    "DataTraceWarning": "fedforget.errors",
    "DuplicateIdError": "fedforget.errors",
    "FederatedKMeans": "fedforget.estimators",
    "FedforgetError": "fedforget.errors",
    "LatticeOverflowError": "fedforget.errors",
    "ModelFileError": "fedforget.errors",
    "OutOfBoundsError": "fedforget.errors",
    "Report": "fedforget.report",
    "SeededKMeans": "fedforget.estimators",
    "UnknownIdError": "fedforget.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedforget' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*_HOME, "__version__"])


__all__ = [
    "CutOffError",
    "DataTraceWarning",
    "DuplicateIdError",
    "FederatedKMeans",
    "FedforgetError",
    "LatticeOverflowError",
    "ModelFileError",
    "OutOfBoundsError",
    "Report",
    "SeededKMeans",
    "UnknownIdError",
    "__version__",
]
