"""The two losses of a federated clustering, and why they differ.

The centralised loss sends every record to its nearest centre.  The federated loss (the paper's
phi_f) sends a record where its local cluster went: to the server's cluster of its representative
(Definition 3.1, "induced global clusters").  It is never smaller.
"""

from __future__ import annotations

import math

import numpy as np

from fedforget.arrays import Floats, Labels
from fedforget.clustering.distance import nearest


def nearest_loss(values: Floats, centres: Floats) -> float:
    """Sum of squared distances to the nearest centre, correctly rounded; 0 without records."""
    return math.fsum(nearest(values, centres)[1]) if len(values) else 0.0


def induced_labels(local: Labels, global_of_local: Labels) -> Labels:
    """The server's cluster of each record, through its local cluster."""
    return global_of_local[local]


def induced_loss(values: Floats, labels: Labels, centres: Floats) -> float:
    """Sum of squared distances to the centres of given labels, correctly rounded."""
    distances = np.empty(len(values))
    for k in np.unique(labels):
        members = labels == k
        distances[members] = nearest(values[members], centres[k : k + 1])[1]
    return math.fsum(distances)


def loss_ratio(loss: float, reference: float) -> float:
    """``loss / reference``, with 0 / 0 = 1: both are perfect."""
    if reference == 0.0:
        return 1.0 if loss == 0.0 else math.inf
    return loss / reference
