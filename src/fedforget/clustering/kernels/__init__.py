"""The compiled loops: arrays in, arrays out, and nothing else.

Every function here is a numba kernel.  Arguments are validated by the callers; an argument that
a kernel writes to is marked OUT, everything else is only read.

The results are the same bits on any machine and for any batch of rows: no fast-math, no fused
multiply-add, no function of the C library.  The logarithm, for one, is made of additions,
multiplications and divisions, which IEEE 754 rounds the same way everywhere.

The kernels of replay are in :mod:`fedforget.clustering.replay`.
"""

from fedforget.clustering.kernels.candidates import (
    HIGH_BITS,
    LARGEST_BITS,
    LOW_BITS,
    total_of,
    try_screened,
    try_tiled,
)
from fedforget.clustering.kernels.clocks import (
    draw,
    exponential,
    siphash_integers,
    siphash_messages,
    siphash_vectors,
    uniform,
)
from fedforget.clustering.kernels.distance import (
    all_within,
    copy_and_measure,
    distances_to,
    largest_magnitudes,
    meet_screened,
    meet_tiled,
    meet_tiles,
    pairwise_distances,
    squared_distance,
    turn,
)
from fedforget.clustering.kernels.greedy import TO_DRAW, TO_MEASURE, clear_rows, draw_steps
from fedforget.clustering.kernels.index import index_drop, index_find, index_put
from fedforget.clustering.kernels.lattice import (
    add_fixed_point,
    add_moments,
    cluster_losses,
    move_points,
    recentre,
    scatter_replicates,
    total_shift,
)
from fedforget.clustering.kernels.race import (
    BLOCK,
    SCREEN,
    challenge,
    race_step,
    runner_up,
    tied_rows,
)
from fedforget.clustering.kernels.tiles import TILE

__all__ = [
    "BLOCK",
    "HIGH_BITS",
    "LARGEST_BITS",
    "LOW_BITS",
    "SCREEN",
    "TILE",
    "TO_DRAW",
    "TO_MEASURE",
    "add_fixed_point",
    "add_moments",
    "all_within",
    "challenge",
    "clear_rows",
    "cluster_losses",
    "copy_and_measure",
    "distances_to",
    "draw",
    "draw_steps",
    "exponential",
    "index_drop",
    "index_find",
    "index_put",
    "largest_magnitudes",
    "meet_screened",
    "meet_tiled",
    "meet_tiles",
    "move_points",
    "pairwise_distances",
    "race_step",
    "recentre",
    "runner_up",
    "scatter_replicates",
    "siphash_integers",
    "siphash_messages",
    "siphash_vectors",
    "squared_distance",
    "tied_rows",
    "total_of",
    "total_shift",
    "try_screened",
    "try_tiled",
    "turn",
    "uniform",
]
