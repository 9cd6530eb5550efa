"""Small numbers about points, clusters and centres, counted from the origin of the points."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fedforget.clustering.kernels.distance import squared_distance
from fedforget.clustering.kernels.race import SCREEN
from fedforget.clustering.kernels.vectors import VectorCode
from fedforget.clustering.replay.state import BORDER_BLOCK
from fedforget.compilation import helper, inlined

SINGLE = 2.0**-23
"""Twice the unit roundoff of single precision."""


UNDERFLOW = 2.0**-130
"""More than the errors of tiny numbers in single precision, whose last bit is worth 2^-149."""


@intrinsic
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """The place of the lowest bit that is set, of a word of 32 bits; 32 if there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zeros = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))
        return builder.zext(zeros, ir.IntType(64))

    return types.int64(types.uint32), generate


@intrinsic
def at_most(typing_context: Any, numbers: Any, begin: Any, bound: Any) -> Any:
    """Which numbers of the block that begins there are at most the bound: a bit for each."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float32, context, builder, signature, arguments)
        block = code.load(code.entry(0, arguments[1]), BORDER_BLOCK)
        bound = code.everywhere(arguments[2], BORDER_BLOCK)
        return code.bits(builder.fcmp_ordered("<=", block, bound))

    return types.uint32(numbers, types.int64, types.float32), generate


@intrinsic
def in_doubt(
    typing_context: Any, margins: Any, nearest: Any, labels: Any, begin: Any, bound: Any,
    lowest: Any,
) -> Any:  # fmt: skip
    """Of the block of points that begins there, a bit for each whose label may have changed.

    Its margin is at most the bound; or it has a label, at least ``lowest``, and another is nearest.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float32, context, builder, signature, arguments)
        begin = arguments[3]
        margins, nearest, labels = (
            code.load(code.entry(number, begin), BORDER_BLOCK) for number in range(3)
        )
        bound, lowest = (code.everywhere(one, BORDER_BLOCK) for one in arguments[4:])
        is_close = builder.fcmp_ordered("<=", margins, bound)
        is_other = builder.icmp_signed("!=", builder.sext(labels, nearest.type), nearest)
        has_label = builder.icmp_signed(">=", labels, lowest)
        return code.bits(builder.or_(is_close, builder.and_(is_other, has_label)))

    single, half = types.float32, types.int16
    return types.uint32(margins, nearest, labels, types.int64, single, half), generate


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


@inlined
def coordinate(points, slot, c):
    """One coordinate of a point."""
    rounder = points.rounders[c]
    return ((points.values[slot, c] + rounder) - rounder) * points.summary.scale


@helper
def locate(points, slot, place):
    """The coordinates of a point.  OUT: place."""
    values, rounders, scale = points.values[slot], points.rounders, points.summary.scale
    for c in range(place.shape[0]):
        place[c] = ((values[c] + rounders[c]) - rounders[c]) * scale


@inlined
def weight_of(sums):
    """The weight of a cluster, from its sums."""
    return sums[sums.shape[0] - 1]


@helper
def add_to_sums(points, slot, weight, sums):
    """Add weight times a point, in steps from the origin, to the sums of a cluster.  OUT: sums."""
    _add_steps(points.values, slot, points.rounders, points.origin, weight, sums)
    sums[sums.shape[0] - 1] += weight


@helper
def move_between_sums(points, slot, weight, source, target):
    """Let a point leave the sums of a cluster for those of another.  OUT: source, target."""
    _move_steps(points.values, slot, points.rounders, points.origin, weight, source, target)
    source[source.shape[0] - 1] -= weight
    target[target.shape[0] - 1] += weight


def steps_of(code: VectorCode, arguments: Any, c: Any, lanes: int) -> Any:
    """Some features of one of some rows, in whole steps.

    The first arguments of the intrinsic are the rows, the number of the row, and the rounders.  The
    last bit of a rounder is worth a step, also when a value is added: so their bits, read as
    integers, differ by the value's steps.
    """
    builder = code.builder
    value = code.load(code.entry(0, arguments[1], c), lanes)
    rounder = code.load(code.entry(2, c), lanes)
    whole = ir.VectorType(ir.IntType(64), lanes)
    lifted, zero = (builder.bitcast(one, whole) for one in (builder.fadd(value, rounder), rounder))
    return builder.sub(lifted, zero)


def _weighted_steps(code: VectorCode, arguments: Any, c: Any, lanes: int) -> Any:
    """Weight times a point, in steps from the origin: a vector of some features."""
    builder, origin = code.builder, code.load(code.entry(3, c), lanes)
    shifted = builder.sub(steps_of(code, arguments, c, lanes), origin)
    return builder.mul(shifted, code.everywhere(arguments[4], lanes))


@intrinsic
def _add_steps(
    typing_context: Any, values: Any, slot: Any, rounders: Any, origin: Any, weight: Any, sums: Any
) -> Any:
    """:func:`add_to_sums` in vectors, except for the weight of the cluster.  OUT: sums."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float64, context, builder, signature, arguments)
        for c, lanes in code.parts(code.length(3, 0)):
            gain = _weighted_steps(code, arguments, c, lanes)
            before = code.load(code.entry(5, c), lanes)
            code.store(builder.add(before, gain), code.entry(5, c))
        return code.none

    return types.void(values, types.int64, rounders, origin, types.int64, sums), generate


@intrinsic
def _move_steps(
    typing_context: Any, values: Any, slot: Any, rounders: Any, origin: Any, weight: Any,
    source: Any, target: Any,
) -> Any:  # fmt: skip
    """:func:`move_between_sums` in vectors, except for the weights.  OUT: source, target."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = VectorCode(types.float64, context, builder, signature, arguments)
        for c, lanes in code.parts(code.length(3, 0)):
            gain = _weighted_steps(code, arguments, c, lanes)
            for place, change in ((5, builder.sub), (6, builder.add)):
                before = code.load(code.entry(place, c), lanes)
                code.store(change(before, gain), code.entry(place, c))
        return code.none

    return types.void(values, types.int64, rounders, origin, types.int64, source, target), generate


@helper
def mean_of(points, sums, centre):
    """A cluster's mean from its sums, counted from zero.  OUT: centre."""
    weight = weight_of(sums)
    total = np.float64(weight)
    origin, units = points.origin, points.units
    for c in range(origin.shape[0]):
        centre[c] = np.float64(sums[c] + weight * origin[c]) / total * units[c]


@helper
def scaled(sums, units, vector):
    """The sums of a cluster in the common unit.  OUT: vector."""
    for c in range(vector.shape[0]):
        vector[c] = np.float64(sums[c]) * units[c]


@helper
def norm_of(sums, units):
    """Squared length of a cluster's mean."""
    norm, weight = 0.0, np.float64(weight_of(sums))
    for c in range(units.shape[0]):
        side = np.float64(sums[c]) * units[c]
        norm += side * side
    return norm / (weight * weight)


@helper
def locate_from_origin(points, scratch, slot):
    """A point, counted from the origin; returns its squared length there.  OUT: scratch.point."""
    point = scratch.point
    locate(points, slot, point)
    norm = 0.0
    for c in range(point.shape[0]):
        point[c] -= points.base[c]
        norm += point[c] * point[c]
    return norm


@helper
def count_from(origin, place, shifted):
    """Count a centre from the origin; returns its squared length there.  OUT: shifted."""
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
def limit_of(centres, slack):
    """Estimates that differ by more than this tell which centre is nearer."""
    error = 0.0
    for k in range(centres.shape[0]):
        error = max(error, centres[k].error)
    return 2.0 * error + slack


@helper
def nearest_within(points, centres, scratch, slot, estimates, most):
    """The nearest of the centres whose estimates are at most that; of equals the first.

    Squared distances decide, as in a full run.  OUT: scratch.
    """
    smallest = np.inf
    nearest = -1
    locate(points, slot, scratch.place)
    for k in range(estimates.shape[0]):
        if estimates[k] <= most:
            distance = squared_distance(scratch.place, centres[k])
            scratch.tally.distances += 1
            if distance < smallest:
                smallest = distance
                nearest = k
    return nearest
