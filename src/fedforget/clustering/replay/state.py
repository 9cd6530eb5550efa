"""The state of a replay: every array, with its type and its shape, written down once.

A class below declares the arrays of one part.  :func:`allocate` makes them and :func:`nbytes` says
what they take, both from the declaration.  A shape is made of the names of :class:`Sizes`; no name
at all means a single record, whose fields a kernel reads and writes by name.
"""

from __future__ import annotations

import math
import mmap
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from fedforget.clustering.kernels.memory import LINE

UInt8s = npt.NDArray[np.uint8]
Part = TypeVar("Part", bound=tuple[Any, ...])

SLOT_BLOCK = 64
"""Slots come in blocks of so many: whole vectors of the machine, and nothing left over."""

LANES = 16
"""Points side by side in a vector."""

FEATURES_AT_ONCE = 4
"""Features of a point that are put side by side together."""

BORDER_BLOCK = 32
"""Lists of points close to a border between clusters come in blocks of so many."""

SLOTS_PER_BORDER = 16
"""One slot in so many has room on such a list."""

NEAR_BLOCK = 32 * SLOT_BLOCK
"""Of so many points at a time, all estimates stay close to the processor."""

BLOCK_OF_PRODUCTS = 256
"""Points that are multiplied with all anchors at once."""

# The columns of a table of changes: a point's slot, its weights before and after, and its place in
# the canonical order.  Such tables are plain integers: numba takes longer to accept other ones.
SLOT, BEFORE, AFTER, PLACE = range(4)
CHANGE_COLUMNS = 4

# What has to be done about a restart.
READY = 0  # Its rows are complete.
RERUN = 1  # It has to be seeded and run from the start.
ABSENT = 2  # It has no rows.
GROW = 3  # Its first rows are right; later ones are to be made.
FULL = 4  # It needs another row when there is none; what it has is right.
START = 5  # It has its seeds, and room for one row that is not filled yet.
STANDS = 6  # Its seeds were drawn again and are the same; its rows are to follow the change.


@dataclass(frozen=True)
class Sizes:
    """How long the dimensions are.

    ``slots`` is the room for points, ``ordered`` that for their order, ``rows`` that for
    assignments of all restarts together, ``longest`` that of one restart, ``known`` that for points
    whose inner products are kept.  Where margins are taken from products, distances of
    ``together`` slots are known together, and a ``block`` of points is multiplied at once.
    Otherwise the points of so many blocks, if they are few, lie side by side (``turned``).
    ``sets`` is the room for columns of estimates that follow a run.
    """

    slots: int
    features: int
    clusters: int
    restarts: int
    ordered: int = 0
    rows: int = 0
    longest: int = 0
    known: int = 0
    turned: int = 0
    together: int = 0
    block: int = 0
    sets: int = 0
    both: int = 2
    tile: int = SLOT_BLOCK
    near_block: int = NEAR_BLOCK

    @property
    def border(self) -> int:
        """How many points a row lists at most as close to a border between clusters."""
        return max(1, self.slots // (SLOTS_PER_BORDER * BORDER_BLOCK)) * BORDER_BLOCK

    @property
    def features_and_weight(self) -> int:
        return self.features + 1

    @property
    def width_of_sums(self) -> int:
        """Features and the weight, so wide that no vector of a row lies in two cache lines."""
        words, line = self.features + 1, LINE // 8
        return -(-words // line) * line if words > line else 1 << (words - 1).bit_length()

    @property
    def features_and_length(self) -> int:
        """Features, in whole groups, and the squared length."""
        return -(-self.features // FEATURES_AT_ONCE) * FEATURES_AT_ONCE + 1

    @property
    def clusters_and_none(self) -> int:
        return self.clusters + 1

    @property
    def paired_clusters(self) -> int:
        """Clusters, made even."""
        return self.clusters + self.clusters % 2

    @property
    def moves(self) -> int:
        """Room for every change and every move that a row can have."""
        return 4 * self.slots

    @property
    def candidates(self) -> int:
        """Room for every point that is in doubt, and every point that is new."""
        return 2 * self.slots


def slots_for(n: int) -> int:
    """Room for so many points and some more, in whole blocks."""
    return -(-(n + 16 + n // 32) // SLOT_BLOCK) * SLOT_BLOCK


class Spec(NamedTuple):
    """The type and the shape of an array; each thread has working memory of its own."""

    dtype: np.dtype[Any]
    shape: tuple[str, ...]
    is_working: bool = False


def of(dtype: Any, *shape: str) -> Spec:
    return Spec(np.dtype(dtype), shape)


def working(dtype: Any, *shape: str) -> Spec:
    return Spec(np.dtype(dtype), shape, is_working=True)


def record(**fields: type) -> np.dtype[Any]:
    return np.dtype(list(fields.items()), align=True)


Real, Single, Int, Word = np.float64, np.float32, np.int64, np.uint64

SUMMARY = record(n=Int, radius2=Real, reach2=Real, slack=Real, scale=Real)
ROW_OF_MARGINS = record(spent=Real, cut=Real, listed=Int, usual=Int, debt=Int, price=Int)
CENTRE = record(norm=Real, error=Real)
PRODUCTS = record(known=Int)
FOLLOW = record(ratio=Real, constant=Real, by_members=np.bool_)
LIBRARY = record(sgemm=Int)
SET = record(change=Int)
JOURNEY = record(
    most_gains=Int, places=Int, change=Int, restart=Int,
    source=Int, target=Int, latest=Int, gains=Int, step=Int,
)  # fmt: skip
COURSE = record(
    ratio=Real, constant=Real, share=Real, first=Int, gains=Int, members=Int, anew=np.bool_
)  # fmt: skip
GAIN = record(slot=Int, weight=Int, next=Int)
SHARE = record(slot=Int, factor=Single)
GRAIN = record(size=Real)
PATH = record(number=Int, known=Int)
ERRORS = record(estimate=Real, squared=Real, away=Real, rounding=Real)
POOL = record(free=Int)
RESTART = record(status=Int, length=Int, taken=Int, n_iter=Int, contends=np.bool_)
SEED = record(slot=Int, score=Real, runner_up=Real)
LOSS = record(about=Real, exact=Real, stale=np.bool_)
MOVE = record(slot=np.int32, cluster=np.int32, weight=Int)
ARRIVAL = record(companion=Int, apart=Real)
TALLY = record(labels=Int, distances=Int, rows=Int, unkept=Int, moves=Int)


class Points(NamedTuple):
    """Points in slots.  A slot of weight 0 holds no point.

    A coordinate is a value, rounded to a multiple of its feature's step, times the ``scale`` of the
    summary.  In this common unit a feature's step is its ``units``: a coordinate over it is an
    integer.  All of these are powers of two, so nothing but the rounding is inexact.

    values : the values as they were given.
    rounders : adding a feature's number to a value and taking it away again rounds the value.
    units, per_unit : of each feature, and 1 over it.
    origin, base : a point in their midst, as integers and as coordinates; *shifted* coordinates are
        counted from it.
    weights, keys : those of the points; a key is two words.
    order : begins with the slots in use, in canonical order, where there is one.
    summary : ``n`` points; ``radius2`` bounds the squared lengths of the shifted coordinates,
        ``reach2`` those counted from zero, and ``slack`` the errors of two squared distances
        together, as they are computed.
    """

    values: Annotated[Any, of(Real, "slots", "features")]
    rounders: Annotated[Any, of(Real, "features")]
    units: Annotated[Any, of(Real, "features")]
    per_unit: Annotated[Any, of(Real, "features")]
    weights: Annotated[Any, of(Int, "slots")]
    keys: Annotated[Any, of(Word, "slots", "both")]
    order: Annotated[Any, of(Int, "ordered")]
    origin: Annotated[Any, of(Int, "features")]
    base: Annotated[Any, of(Real, "features")]
    summary: Annotated[Any, of(SUMMARY)]


class Assignments(NamedTuple):
    """A pool of rows.  A row is one assignment of Lloyd's iteration.

    centres : the seeds, or the means of the clusters of the row above; a cluster that has no points
        there keeps the centre that it had there.  Counted from zero, as in a full run.
    labels : the cluster of each slot; -1 for a slot without a point.
    sums : of each cluster the sums of the shifted coordinates and, in the last column, the weight;
        columns between them are not used.
    witness : a slot whose label differs from that in the row above; -1 if there is none.
    shifts : by how much each centre differs from that of the row above, squared; where there is a
        tolerance.
    """

    centres: Annotated[Any, of(Real, "rows", "clusters", "features")]
    labels: Annotated[Any, of(np.int16, "rows", "slots")]
    sums: Annotated[Any, of(Int, "rows", "clusters", "width_of_sums")]
    witness: Annotated[Any, of(Int, "rows")]
    shifts: Annotated[Any, of(Real, "rows", "clusters")]


class Margins(NamedTuple):
    """How far the points of each row are from another cluster.

    A row's *anchors* are its centres as they were when its margins were taken, and its *drifts* say
    how far each has moved since.  A point's *margin* is the difference of its distances to its own
    anchor and to the next.  Until its own centre and another one have together moved by as much,
    its label stands.

    coordinates : the shifted coordinates.
    turned : the same side by side, block by block, with squared lengths, where points are few;
        where there is no point, the first coordinate is not a number.
    library, lengths : where features and clusters are many, what products with anchors are taken
        from, and the points' squared lengths.
    anchors, drifts : those of the rows.
    reserves : a point's margin is at least its reserve less what the row has ``spent``.
    rows : of each row what it has ``spent``; the ``cut`` that the margins of all points exceed that
        are not ``listed``; how many listed points are settled as a rule (``usual``; -1 if not known
        yet); the ``debt``, by how many more were settled since the margins were taken; and the
        ``price`` of better margins, counted in points to be measured.
    border, border_margins : the listed points of each row, and their margins.  Behind the last one,
        margins are infinite up to the end of a block.

    The rest is working memory in which margins are taken:

    current, roundings : the centres as anchors, and how far they are from them.
    charges : of each cluster, how much margin its points must have.
    places : where points stand on a list.
    gathered : coordinates of a block of points, side by side, and their squared lengths.
    block, products : coordinates of some points, and their products with all anchors.
    vectors, norms : of each anchor its coordinates times -2, and its squared length.
    errors : bounds on the errors of an ``estimate``, of a ``squared`` distance from it, and of how
        far anchors are from centres by ``rounding``; ``away`` as in :func:`root_of`.
    left : places of the points that are multiplied with all anchors.
    path, travelled : the ``number`` of a walk, and of how many points it knows distances; how far
        each centre has come on it.
    spans : the same in single precision, rounded up.
    lefts : what is left of one point's bounds.
    rivals : which centres may be nearest to one point.
    bounds, measured_on : of each point lower bounds on its distances to all centres, when it was
        measured, and what these had travelled; the number of the walk on which that was.
    owners, farthest : the nearest centre of each such point, and an upper bound on its distance
        less what the centre had travelled.
    factors : of each anchor its coordinates times -2 and, last, its squared length.
    nearest, measured : of each of these points the nearest anchor, and the margin.
    """

    coordinates: Annotated[Any, of(Single, "slots", "features")]
    lengths: Annotated[Any, of(Single, "together")]
    turned: Annotated[Any, of(Single, "turned", "features_and_length", "tile")]
    library: Annotated[Any, of(LIBRARY)]
    anchors: Annotated[Any, of(Single, "rows", "clusters", "features")]
    drifts: Annotated[Any, of(Real, "rows", "clusters")]
    reserves: Annotated[Any, of(Single, "rows", "slots")]
    rows: Annotated[Any, of(ROW_OF_MARGINS, "rows")]
    border: Annotated[Any, of(np.int32, "rows", "border")]
    border_margins: Annotated[Any, of(Single, "rows", "border")]
    current: Annotated[Any, working(Single, "clusters", "features")]
    roundings: Annotated[Any, working(Real, "clusters")]
    charges: Annotated[Any, working(Real, "clusters")]
    places: Annotated[Any, working(np.int32, "border")]
    gathered: Annotated[Any, working(Single, "features_and_length", "tile")]
    block: Annotated[Any, working(Single, "block", "features")]
    products: Annotated[Any, working(Single, "block", "clusters")]
    vectors: Annotated[Any, working(Single, "clusters", "features")]
    norms: Annotated[Any, working(Single, "clusters")]
    errors: Annotated[Any, working(ERRORS)]
    left: Annotated[Any, working(np.int32, "together")]
    path: Annotated[Any, working(PATH)]
    travelled: Annotated[Any, working(Real, "clusters")]
    spans: Annotated[Any, working(Single, "clusters")]
    lefts: Annotated[Any, working(Single, "clusters")]
    rivals: Annotated[Any, working(np.bool_, "clusters")]
    bounds: Annotated[Any, working(Single, "together", "clusters")]
    measured_on: Annotated[Any, working(Int, "together")]
    owners: Annotated[Any, working(np.int32, "together")]
    farthest: Annotated[Any, working(Real, "together")]
    factors: Annotated[Any, working(Single, "paired_clusters", "features_and_weight")]
    nearest: Annotated[Any, working(np.int32, "slots")]
    measured: Annotated[Any, working(Single, "slots")]


class Estimates(NamedTuple):
    """Every point's distance to every centre of each row, up to what all centres share.

    With shifted coordinates, |x - c|^2 = |x|^2 + (|c|^2 - 2 x.c); the first term is the same for
    every centre, the second is what is estimated.

    features : the shifted coordinates, feature by feature.
    products : inner products of some points with all points.
    place : the row of ``products`` that is a slot's; -1 if there is none.
    known, count : the slots of the first ``count.known`` rows of ``products``.
    columns : the estimates of all points for each centre.
    centres : of each centre its ``norm`` |c|^2 and a bound on the ``error`` of its column.
    near, other : a point's estimate for its own centre, and a number not above any of its others.

    The rest is working memory:

    fresh, is_fresh : clusters whose estimates are computed from scratch, listed and marked.
    vectors : their centres, counted from the origin.
    follow : how the estimates for another centre follow its moves: they are multiplied by the
        ``ratio``, and the ``constant`` is added; or that they are computed ``by_members``.
    one, two : inner products of a block of points with two centres.
    """

    features: Annotated[Any, of(Real, "features", "slots")]
    products: Annotated[Any, of(Single, "known", "slots")]
    place: Annotated[Any, of(Int, "slots")]
    known: Annotated[Any, of(Int, "known")]
    count: Annotated[Any, of(PRODUCTS)]
    columns: Annotated[Any, of(Single, "rows", "clusters", "slots")]
    centres: Annotated[Any, of(CENTRE, "rows", "clusters")]
    near: Annotated[Any, of(Single, "rows", "slots")]
    other: Annotated[Any, of(Single, "rows", "slots")]
    fresh: Annotated[Any, of(Int, "clusters")]
    is_fresh: Annotated[Any, of(np.bool_, "clusters")]
    vectors: Annotated[Any, of(Real, "clusters", "features")]
    follow: Annotated[Any, of(FOLLOW, "clusters")]
    one: Annotated[Any, of(Real, "tile")]
    two: Annotated[Any, of(Real, "tile")]


class ColumnSets(NamedTuple):
    """Estimates as those of :class:`Estimates`, which follow a run from row to row.

    A *set* holds the estimates of all points for the centres of one row.  Its *basis* are the
    labels that made these centres: those of the row above.  The first rows of each restart, after
    that of the seeds, have sets of their own; the others share the last set, which a walk takes
    along.

    library : where products of matrices are computed.
    coordinates : the shifted coordinates.
    grain, products : inner products of all points with all points, in whole grains.
    columns, centres, bases : those of the sets.
    sets : of each the number of the last ``change`` that it has followed.

    The rest is working memory:

    journey : up to ``most_gains`` columns follow, and beyond that they are computed; how many sets,
        or ``places``, a restart has; the number of the ``change``; the ``restart`` that is walked,
        the ``latest`` set on this walk, and from which ``source`` the ``target`` is made, -1 for
        none; how many ``gains`` are listed; how many labels the last ``step`` has changed, from one
        row to the next.
    course : how the estimates for a centre follow its cluster: they are multiplied by the
        ``ratio``, the ``constant`` is added, and so is, for each gain, its weight times the
        ``share`` times a product.  The ``first`` of the ``gains``, -1 for none, and how many there
        are, -1 for estimates that are computed from scratch; how many ``members`` there are, and
        whether they are the gains of a column that begins ``anew``.
    gains : what clusters have gained, or with a negative weight lost, against a basis; the ``next``
        one of the same cluster.
    fresh, vectors, computed : clusters whose estimates are computed from scratch, their centres or
        parts of these, and the products of these with all points.
    place : a centre, counted from the origin.
    near, other, which : of a block of points the lowest estimate, the next, and whose the lowest
        is.
    """

    library: Annotated[Any, of(LIBRARY)]
    coordinates: Annotated[Any, of(Single, "slots", "features")]
    grain: Annotated[Any, of(GRAIN)]
    products: Annotated[Any, of(np.int16, "slots", "slots")]
    columns: Annotated[Any, of(Single, "sets", "clusters", "slots")]
    centres: Annotated[Any, of(CENTRE, "sets", "clusters")]
    bases: Annotated[Any, of(np.int16, "sets", "slots")]
    sets: Annotated[Any, of(SET, "sets")]
    journey: Annotated[Any, of(JOURNEY)]
    course: Annotated[Any, of(COURSE, "clusters")]
    gains: Annotated[Any, of(GAIN, "moves")]
    shares: Annotated[Any, of(SHARE, "moves")]
    fresh: Annotated[Any, of(Int, "clusters")]
    vectors: Annotated[Any, of(Single, "clusters", "features")]
    computed: Annotated[Any, of(Single, "clusters", "slots")]
    place: Annotated[Any, of(Real, "features")]
    near: Annotated[Any, of(Single, "near_block")]
    other: Annotated[Any, of(Single, "near_block")]
    which: Annotated[Any, of(np.int32, "near_block")]


class Runs(NamedTuple):
    """The restarts: which rows are theirs, and what is known of their seeds and losses.

    where : the row in place p of restart r is row ``where[r, p]`` of the pool, for p below its
        ``length``.  Row t is in place t; where more rows were ``taken`` than are kept, the last two
        places hold the last two rows.
    most : the most rows that each restart may keep.
    free, pool : ``free[:pool.free]`` lists the rows of the pool that are nobody's.
    restarts : of each its ``status``, how many rows it keeps (``length``) and how many its run has
        ``taken``, the iterations that a full run counts, and
        whether it ``contends``: only such a restart may be the first to have the lowest loss.
    seeds : their ``slot`` and ``score``, and a bound on the score of the ``runner_up``.
    losses : of each cluster; ``about`` is off by rounding and, over a restart, a constant, and
        ``exact`` is added up as in a full run, of restarts that contend, unless it is ``stale``.
    """

    where: Annotated[Any, of(Int, "restarts", "longest")]
    most: Annotated[Any, of(Int, "restarts")]
    free: Annotated[Any, of(Int, "rows")]
    pool: Annotated[Any, of(POOL)]
    restarts: Annotated[Any, of(RESTART, "restarts")]
    seeds: Annotated[Any, of(SEED, "restarts", "clusters")]
    losses: Annotated[Any, of(LOSS, "restarts", "clusters")]


class Scratch(NamedTuple):
    """Working memory of a walk.

    tally : labels and distances that were computed again, all rows that runs have taken, how many
        of them are ``unkept``, and the number of ``moves``.
    moves : what the clusters of a row have gained, or with a negative weight lost, against what
        they were.
    mine : the moves of one cluster.
    touched, moved : room to mark, for two rows, the clusters that have moves, and the centres that
        are not where they were.
    centre, point : one of them, counted from the origin.
    place, other_place : coordinates of a point.
    arrivals : of each changed point that comes a ``companion`` that goes, and how far ``apart``
        they are.
    twin : of each cluster, and of slots without a point, the cluster of another restart.
    candidates : slots that are to be looked at.
    column : one number per slot.
    """

    tally: Annotated[Any, of(TALLY)]
    moves: Annotated[Any, of(MOVE, "moves")]
    mine: Annotated[Any, of(Int, "moves")]
    touched: Annotated[Any, of(np.bool_, "both", "clusters")]
    moved: Annotated[Any, of(np.bool_, "both", "clusters")]
    centre: Annotated[Any, of(Real, "features")]
    point: Annotated[Any, of(Real, "features")]
    place: Annotated[Any, of(Real, "features")]
    other_place: Annotated[Any, of(Real, "features")]
    arrivals: Annotated[Any, of(ARRIVAL, "slots")]
    twin: Annotated[Any, of(np.int32, "clusters_and_none")]
    candidates: Annotated[Any, of(Int, "candidates")]
    column: Annotated[Any, of(Real, "slots")]


@cache
def specs(part: type) -> dict[str, Spec]:
    """The declared arrays of a part, by name."""
    hints = get_type_hints(part, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def _shape(spec: Spec, sizes: Sizes) -> tuple[int, ...]:
    return tuple(getattr(sizes, name) for name in spec.shape)


def nbytes(part: type, sizes: Sizes, *, along: str = "") -> int:
    """What the arrays of a part take, or those of them alone that have the dimension ``along``."""
    return sum(
        math.prod(_shape(spec, sizes)) * spec.dtype.itemsize
        for spec in specs(part).values()
        if not along or along in spec.shape
    )


_LARGE = 4 << 20


def _zeros(size: int) -> UInt8s:
    """Zeros, for which memory is taken when they are written to.

    Large ones ask for large pages, where the system has these: getting memory page by page takes
    longer than filling it.
    """
    if size < _LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(size, dtype=np.uint8)
    memory = mmap.mmap(-1, size)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


def allocate(part: type[Part], sizes: Sizes) -> Part:
    """Make the arrays of a part, filled with zeros.

    Each begins with a cache line, as its rows then do, and has a line behind its end, which may be
    read.  Memory that is never written to is never taken.
    """
    arrays = {}
    for name, spec in specs(part).items():
        shape = _shape(spec, sizes)
        size = math.prod(shape) * spec.dtype.itemsize
        buffer = _zeros(size + 2 * LINE)
        begin = -buffer.ctypes.data % LINE
        arrays[name] = buffer[begin : begin + size].view(spec.dtype).reshape(shape)
    return part(**arrays)
