"""Small numbers about points, clusters and centres, counted from the origin of the points."""

from __future__ import annotations

import numpy as np

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.race import SCREEN
from fedforget.compilation import helper, inlined

SINGLE = 2.0**-23
"""Twice the unit roundoff of single precision."""


@helper
def copy(source, target):
    """Copy numbers; an assignment of whole arrays would allocate.  OUT: target."""
    for i in range(target.shape[0]):
        target[i] = source[i]


@helper
def fill(target, value):
    """Set all numbers.  OUT: target."""
    for i in range(target.shape[0]):
        target[i] = value


@helper
def two_lowest(numbers):
    """The lowest of some numbers, the next, and the place of the lowest, of equals the first."""
    lowest = other = np.inf
    place = 0
    for k in range(numbers.shape[0]):
        number = np.float64(numbers[k])
        if number < lowest:
            other = lowest
            lowest = number
            place = k
        else:
            other = min(other, number)
    return lowest, other, place


@inlined
def largest(numbers):
    """The largest of some numbers that are not negative."""
    found = 0.0
    for i in range(numbers.shape[0]):
        found = max(found, numbers[i])
    return found


@helper
def take(sums, point, origin, weight):
    """Add weight times a point to the sums of a cluster.  OUT: sums."""
    d = point.shape[0]
    for c in range(d):
        sums[c] += weight * (np.int64(point[c]) - origin[c])
    sums[d] += weight


@helper
def mean_of(sums, origin, centre):
    """A cluster's mean from its sums, counted from zero.  OUT: centre."""
    d = origin.shape[0]
    total = np.float64(sums[d])
    for c in range(d):
        centre[c] = np.float64(sums[c] + sums[d] * origin[c]) / total


@helper
def norm_of(sums):
    """Squared length of a cluster's mean."""
    d = sums.shape[0] - 1
    norm = 0.0
    for c in range(d):
        norm += np.float64(sums[c]) * np.float64(sums[c])
    return norm / (np.float64(sums[d]) * np.float64(sums[d]))


@helper
def count_from(origin, place, shifted):
    """Count a point or a centre from the origin; returns its squared length there.  OUT: shifted.

    For points this is exact.
    """
    norm = 0.0
    for c in range(origin.shape[0]):
        shifted[c] = place[c] - origin[c]
        norm += shifted[c] * shifted[c]
    return norm


@inlined
def magnitude(norm, radius2):
    """A bound on the estimates for a centre: |c|^2 + 2 |x| |c|."""
    return (norm + 2.0 * np.sqrt(norm * radius2)) * SCREEN


@helper
def nearest_within(points, centres, scratch, slot, estimates, most):
    """The nearest of the centres whose estimates are at most that; of equals the first.

    Squared distances decide, as in a full run.  OUT: scratch.
    """
    smallest = np.inf
    nearest = -1
    for k in range(estimates.shape[0]):
        if estimates[k] <= most:
            distance = squared_distance(points.values[slot], centres[k])
            scratch.tally.distances += 1
            if distance < smallest:
                smallest = distance
                nearest = k
    return nearest
