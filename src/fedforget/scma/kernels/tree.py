"""The tree of products Π (1 - x_j z), 2^k points per node."""

from __future__ import annotations

import numpy as np

from fedforget.compilation import allocating_kernel
from fedforget.scma.kernels.field import (
    ONE,
    ZERO,
    add,
    clear,
    copy,
    mul,
    sub,
)
from fedforget.scma.kernels.transforms import transform, untransform


@allocating_kernel
def leaf_products(points, size):
    """Π (1 - x_j z) over each run of ``size`` points."""
    n_leaves = points.size // size
    out = np.zeros((n_leaves, size + 1), np.uint64)
    for leaf in range(n_leaves):
        a = out[leaf]
        a[0] = ONE
        for j in range(size):
            x = points[leaf * size + j]
            for i in range(j, -1, -1):
                a[i + 1] = sub(a[i + 1], mul(x, a[i]))
    return out


@allocating_kernel
def transform_nodes(nodes, table):
    """Transforms, twice as long as its degree, of each node's polynomial."""
    count, size = nodes.shape[0], nodes.shape[1] - 1
    out = np.zeros((count, 2 * size), np.uint64)
    for node in range(count):
        copy(nodes[node], out[node])
        transform(out[node], table)
    return out


@allocating_kernel
def join_nodes(transforms, inverse_table):
    """The product of each pair of neighbours."""
    count, size = transforms.shape[0] // 2, transforms.shape[1]
    out = np.zeros((count, size + 1), np.uint64)
    for node in range(count):
        left, right = transforms[2 * node], transforms[2 * node + 1]
        a = out[node, :size]
        for i in range(size):
            a[i] = mul(left[i], right[i])
        untransform(a, inverse_table)
        # The term of degree ``size`` was folded onto the constant one, which is known to be 1.
        out[node, size] = sub(a[0], ONE)
        a[0] = ONE
    return out


@allocating_kernel
def join_numerators(numerators, transforms, table, inverse_table):
    """Numerators of the sums of neighbouring fractions, whose denominators are the nodes."""
    count, size = transforms.shape[0] // 2, transforms.shape[1]
    out = np.zeros((count, size), np.uint64)
    left, right = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for node in range(count):
        clear(left)
        clear(right)
        copy(numerators[2 * node], left)
        copy(numerators[2 * node + 1], right)
        transform(left, table)
        transform(right, table)
        for i in range(size):
            one = mul(left[i], transforms[2 * node + 1, i])
            out[node, i] = add(one, mul(right[i], transforms[2 * node, i]))
        untransform(out[node], inverse_table)
    return out


@allocating_kernel
def leaf_numerators(points, weights, leaves):
    """Σ q_j · leaf / (1 - x_j z) for each leaf."""
    n_leaves, size = leaves.shape[0], leaves.shape[1] - 1
    out = np.zeros((n_leaves, size), np.uint64)
    for leaf in range(n_leaves):
        for j in range(leaf * size, (leaf + 1) * size):
            running = ZERO
            for i in range(size):
                running = add(leaves[leaf, i], mul(points[j], running))
                out[leaf, i] = add(out[leaf, i], mul(weights[j], running))
    return out


@allocating_kernel
def correlate(a, b_transform, n, table, inverse_table):
    """Σ_l b[l]·a[i+l] for i < n."""
    work = np.zeros(b_transform.size, np.uint64)
    copy(a, work)
    transform(work, inverse_table)
    for i in range(work.size):
        work[i] = mul(work[i], b_transform[i])
    untransform(work, table)
    return work[:n]


@allocating_kernel
def split_nodes(vectors, transforms, table, inverse_table):
    """One step down: correlate each node's vector with the product of the *other* child."""
    count, size = vectors.shape
    half = size // 2
    out = np.empty((2 * count, half), np.uint64)
    above, work = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for node in range(count):
        copy(vectors[node], above)
        transform(above, inverse_table)
        for side in range(2):
            other = transforms[2 * node + 1 - side]
            for i in range(size):
                work[i] = mul(above[i], other[i])
            untransform(work, table)
            copy(work[:half], out[2 * node + side])
    return out


@allocating_kernel
def leaf_values(vectors, leaves, points):
    """The last step down: for each point, its vector against leaf / (1 - x_j z)."""
    n_leaves, size = vectors.shape
    out = np.empty(points.size, np.uint64)
    for leaf in range(n_leaves):
        for j in range(leaf * size, (leaf + 1) * size):
            running, value = ZERO, ZERO
            for i in range(size):
                running = add(leaves[leaf, i], mul(points[j], running))
                value = add(value, mul(running, vectors[leaf, i]))
            out[j] = value
    return out
