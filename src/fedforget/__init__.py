"""Federated K-means that can forget: exactly, cheaply and verifiably."""

from importlib.metadata import version

from fedforget.errors import (
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

__version__ = version("fedforget")

__all__ = [
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
