"""Compiled arithmetic over the prime field of p = 29·2⁵⁷ + 1 elements.

Every function here is a numba kernel.  Arguments are validated by the callers; an argument that a
kernel writes to is marked OUT, one that it destroys SCRATCH, everything else is only read.
"""

from fedforget.scma.kernels.field import (
    GENERATOR,
    ORDER,
    PRIME,
    enter,
    factorials,
    inner_product,
    inverses,
    leave,
    multiply,
    powers,
)
from fedforget.scma.kernels.roots import berlekamp_massey, graeffe, school_graeffe, simple_roots
from fedforget.scma.kernels.school import (
    numerators,
    quotients_at,
    school_product,
    school_series_inverse,
    school_shift,
    values_at,
)
from fedforget.scma.kernels.transforms import transformed, twiddles, untransformed
from fedforget.scma.kernels.tree import (
    correlate,
    join_nodes,
    join_numerators,
    leaf_numerators,
    leaf_products,
    leaf_values,
    split_nodes,
    transform_nodes,
)
from fedforget.scma.kernels.words import bins_to_words, pack, power_sums, unpack, words_to_bins

__all__ = [
    "GENERATOR",
    "ORDER",
    "PRIME",
    "berlekamp_massey",
    "bins_to_words",
    "correlate",
    "enter",
    "factorials",
    "graeffe",
    "inner_product",
    "inverses",
    "join_nodes",
    "join_numerators",
    "leaf_numerators",
    "leaf_products",
    "leaf_values",
    "leave",
    "multiply",
    "numerators",
    "pack",
    "power_sums",
    "powers",
    "quotients_at",
    "school_graeffe",
    "school_product",
    "school_series_inverse",
    "school_shift",
    "simple_roots",
    "split_nodes",
    "transform_nodes",
    "transformed",
    "twiddles",
    "unpack",
    "untransformed",
    "values_at",
    "words_to_bins",
]
