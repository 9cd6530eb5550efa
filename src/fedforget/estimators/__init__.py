"""The scikit-learn estimators."""

from fedforget.estimators.federated import FederatedKMeans
from fedforget.estimators.kmeans import KMeans
from fedforget.estimators.seeded import SeededKMeans

__all__ = ["FederatedKMeans", "KMeans", "SeededKMeans"]
