"""What the rows of a replay keep, and for how many of them there is room."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, TypeAlias

from fedforget.clustering.replay.state import (
    BLOCK_OF_PRODUCTS,
    Assignments,
    ColumnSets,
    Estimates,
    Margins,
    Sizes,
    nbytes,
)

MARGINS_UP_TO = 1024
"""Features times clusters up to which rows keep margins."""

PRODUCTS_FROM = 512
"""Features times clusters from which margins are taken from products of matrices."""

MOST_TURNED = 1 << 19
"""Slots times features up to which all points lie side by side."""

MANY_POINTS = 8
"""Estimates of all rows take longer to bring up to date where there are so many points to a
feature: then records of one owner keep margins, and bins of a server columns."""

USUAL_ROWS = 64
"""Estimates of so many rows per restart must find room, or rows keep something else."""

COLUMNS_SHARE = 0.6
"""What part of the memory limit columns may take, together with the products that they follow."""

FEWEST_SETS, MOST_SETS = 4, 16
"""Columns pay where a restart has room for so many sets of them.  Below the last row that has a
set, a run that has left its path is about as far from it as from the row above."""

TERMS_PER_GAIN = 8
"""In the time in which columns follow one gain, a product of matrices takes so many terms for each
point: features times clusters are all of them."""

_PRODUCTS_SHARE = 4

Kept: TypeAlias = type[Margins] | type[Estimates] | type[ColumnSets]


class Room(NamedTuple):
    """What there is room for.

    Attributes
    ----------
    strategy : the part of the state that tells which labels can have changed.
    sizes : of all arrays.
    row_bytes, product_bytes : what a row takes, and a point whose inner products are known.
    column_bytes : what columns take, with all products.
    sets : how many sets of columns a restart has.
    most_gains : up to how many columns follow.
    """

    strategy: Kept
    sizes: Sizes
    row_bytes: int
    product_bytes: int
    column_bytes: int
    sets: int
    most_gains: int


def room_for(sizes: Sizes, limit: int, max_iter: int, *, weights_change: bool) -> Room:
    """Plan for so many points, features, clusters and restarts within a bound on bytes.

    ``weights_change`` tells bins of a server from records of one owner.
    """
    # Products are computed when wanted, or all at once where they are all wanted.
    product_bytes = 4 * sizes.slots
    known = min(sizes.slots, limit // (_PRODUCTS_SHARE * product_bytes))
    fits = _estimates_fit(sizes, limit - known * product_bytes, max_iter)
    sets = _room_for_sets(sizes, limit) if weights_change else 0
    strategy = _what_to_keep(sizes, fits, sets, weights_change)
    sets = sets if strategy is ColumnSets else 0
    by_products = strategy is Margins and sizes.features * sizes.clusters >= PRODUCTS_FROM
    one = replace(
        sizes,
        rows=1,
        known=known if strategy is Estimates else 0,
        turned=_blocks_to_turn(sizes) if strategy is Margins and not by_products else 0,
        together=sizes.slots if by_products else 0,
        block=BLOCK_OF_PRODUCTS if by_products else 0,
        # One more than the restarts have, for the walk.
        sets=sets * sizes.restarts + 1 if sets else 0,
    )
    row_bytes = sum(nbytes(part, one, along="rows") for part in (Assignments, strategy))
    column_bytes = nbytes(ColumnSets, one) if sets else 0
    left = max(0, limit - column_bytes - one.known * product_bytes)
    rows = min(left // row_bytes, sizes.restarts * (max_iter + 1))
    planned = replace(one, rows=rows, longest=min(rows, max_iter + 1))
    most_gains = min(sizes.slots, int(sizes.features * sizes.clusters / TERMS_PER_GAIN))
    return Room(strategy, planned, row_bytes, product_bytes, column_bytes, sets, most_gains)


def _what_to_keep(sizes: Sizes, fits: bool, sets: int, weights_change: bool) -> Kept:
    """What rows keep, if estimates would fit, or so many sets of columns per restart."""
    is_many = sizes.slots > MANY_POINTS * sizes.features
    if sizes.features * sizes.clusters <= MARGINS_UP_TO:
        return Margins
    if not weights_change:
        return Margins if is_many else Estimates
    if sets and (is_many or not fits):
        return ColumnSets
    return Estimates if fits else Margins


def _blocks_to_turn(sizes: Sizes) -> int:
    """How many blocks of points lie side by side: all, or none where they are many."""
    return sizes.slots // sizes.tile if sizes.slots * sizes.features <= MOST_TURNED else 0


def _estimates_fit(sizes: Sizes, left: int, max_iter: int) -> bool:
    """Whether so many bytes are enough for the estimates of all rows of a usual run."""
    row = nbytes(Estimates, replace(sizes, rows=1), along="rows")
    return row * sizes.restarts * min(USUAL_ROWS, max_iter + 1) <= left


def _room_for_sets(sizes: Sizes, limit: int) -> int:
    """How many sets of columns each restart may have; 0 if they would not pay."""
    one = replace(sizes, sets=1)
    left = COLUMNS_SHARE * limit - nbytes(ColumnSets, one)
    sets = int(left // (nbytes(ColumnSets, one, along="sets") * sizes.restarts))
    return min(sets, MOST_SETS) if sets >= FEWEST_SETS else 0
