"""The scikit-learn estimators."""

from fedforget.estimators.federated import FederatedKMeans
from fedforget.estimators.seeded import SeededKMeans

__all__ = ["FederatedKMeans", "SeededKMeans"]
