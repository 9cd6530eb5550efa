"""The records of one owner, each in a slot that it keeps while it is there.

Replay works on these slots themselves, so there is one copy of the records.  A record that goes is
overwritten.
"""

from __future__ import annotations

import numpy as np

from fedforget.arrays import Floats, Ints, UInts
from fedforget.clustering import kernels
from fedforget.clustering.ids import Ids
from fedforget.clustering.lloyd import Moments
from fedforget.clustering.prf import Keys
from fedforget.clustering.replay.parts import table_of
from fedforget.clustering.replay.points import add_up, count_large, erase_points, locate_points
from fedforget.clustering.replay.state import Points, Sizes, allocate, slots_for
from fedforget.clustering.rounding import COARSENESS, Rounding


class RecordSlots:
    """Records in slots, and what follows from all of them: steps, and exact moments.

    Parameters
    ----------
    values : (n, d) the records; copied.
    ids, keys : theirs.
    arrival : one number per record that grows with the order of arrival.
    rounding : the steps of the features, where they are agreed; every value must be below their
        range.  Otherwise they follow from the records present.

    Attributes
    ----------
    points : the records; a slot of weight 0 holds none, and zeros.
    ids, arrival : of each slot.
    rounding : the steps of the features.
    moments : those of the records, in steps.
    n_free : how many slots hold no record.
    """

    rounding: Rounding
    moments: Moments
    n_free: int

    def __init__(
        self,
        values: Floats,
        ids: Ids,
        keys: Keys,
        arrival: Ints,
        rounding: Rounding | None = None,
    ) -> None:
        n, d = values.shape
        self._agreed = rounding
        self._allocate(n, n, d, ids)
        points = self.points
        points.values[:n] = values
        points.weights[:n] = 1
        points.keys[:n, 0], points.keys[:n, 1] = keys
        points.summary["n"] = n
        self.ids[:n] = ids
        self.arrival[:n] = arrival
        self.measure()

    def _allocate(self, n: int, taken: int, d: int, ids: Ids) -> None:
        """Room for ``n`` records and some more; the first ``taken`` slots are not free."""
        slots = slots_for(n)
        self.points = allocate(Points, Sizes(slots, d, clusters=0, restarts=0))
        self.ids = np.zeros(slots, dtype=ids.dtype)
        self.arrival = np.zeros(slots, dtype=np.int64)
        # A stack, whose lowest slot is the first to be taken.
        self._free = np.arange(slots - 1, taken - 1, -1)
        self.n_free = slots - taken

    def __len__(self) -> int:
        return int(self.points.summary["n"])

    def in_use(self) -> Ints:
        """The slots that hold records."""
        # `flatnonzero` is much faster on booleans than on integers.
        return np.flatnonzero(self.points.weights > 0)

    def by_arrival(self) -> Ints:
        """The slots that hold records, in the order of arrival."""
        slots = self.in_use()
        ordered: Ints = slots[np.argsort(self.arrival[slots])]
        return ordered

    def coordinates(self, slots: Ints, table: Ints | None = None) -> Floats:
        """Some records in coordinates; ``table`` is that of the points, where there is one."""
        places = np.empty((len(slots), self.points.values.shape[1]))
        locate_points(table_of(self.points) if table is None else table, slots, places)
        return places

    def places_of(self, values: Floats) -> Floats:
        """Values in coordinates, which need not be those of records."""
        rounders = self.points.rounders
        places: Floats = ((values + rounders) - rounders) * float(self.points.summary["scale"])
        return places

    # -- coming and going ----------------------------------------------------------------------

    def take(self, n: int) -> Ints:
        """Slots for new records."""
        end = self.n_free
        self.n_free -= n
        return self._free[self.n_free : end][::-1].copy()

    def _give_back(self, slots: Ints) -> None:
        """Let slots be free."""
        if self.n_free + len(slots) > len(self._free):
            # Copies of a model hold all of it: what memory held before must not be there.
            room = np.zeros(2 * (self.n_free + len(slots)), dtype=np.int64)
            room[: self.n_free] = self._free[: self.n_free]
            self._free = room
        self._free[self.n_free : self.n_free + len(slots)] = slots
        self.n_free += len(slots)

    def note(self, slots: Ints, ids: Ids, arrival: Ints) -> None:
        """Note whose records come into some slots."""
        dtype = np.promote_types(self.ids.dtype, ids.dtype) if len(self) else ids.dtype
        if dtype != self.ids.dtype:
            kept = self.ids
            self.ids = np.zeros(len(kept), dtype=dtype)
            if len(self):
                self.ids[:] = kept
            kept[...] = np.zeros((), dtype=kept.dtype)
        self.ids[slots] = ids
        self.arrival[slots] = arrival

    def put(self, slots: Ints, values: Floats, keys: UInts) -> None:
        """Put records into slots that are noted already."""
        points = self.points
        points.values[slots] = values
        points.weights[slots] = 1
        points.keys[slots] = keys
        points.summary["n"] += len(slots)

    def remove(self, slots: Ints) -> None:
        """Let records go that are still there."""
        self.points.weights[slots] = 0
        self.points.summary["n"] -= len(slots)

    def erase(self, slots: Ints) -> None:
        """Overwrite what records that have gone leave behind, and free their slots."""
        erase_points(self.points.values, self.points.keys, slots)
        self.ids[slots] = np.zeros((), dtype=self.ids.dtype)
        self.arrival[slots] = 0
        self._give_back(slots)

    def grow(self, n: int) -> None:
        """Make room for ``n`` more; records keep their slots."""
        points, ids, arrival = self.points, self.ids, self.arrival
        old, d = points.values.shape
        self._allocate(max(old + n, old + old // 2), old, d, ids)
        self._give_back(np.flatnonzero(points.weights == 0)[::-1])
        for new, kept in ((self.ids, ids), (self.arrival, arrival)):
            new[:old] = kept
        for name in ("values", "weights", "keys"):
            getattr(self.points, name)[:old] = getattr(points, name)
            getattr(points, name)[...] = 0
        ids[...] = np.zeros((), dtype=ids.dtype)
        self.points.summary["n"] = points.summary["n"]

    # -- what follows from all records ---------------------------------------------------------

    def measure(self) -> None:
        """Find steps, moments and an origin for the records that are here."""
        points = self.points
        self.rounding = rounding = self._agreed or self._present()
        points.rounders[:] = rounding.rounders
        points.units[:] = rounding.units
        points.per_unit[:] = 1.0 / rounding.units
        points.summary["scale"] = rounding.scale
        self.moments = Moments.none(rounding.shifts)
        self.moments.weight = len(self)
        self._lowest_large = np.ldexp(1.0, rounding.exponents - COARSENESS)
        self._large = np.zeros(points.values.shape[1], dtype=np.int64)
        sums, squares = self.moments.sums, self.moments.squares
        add_up(table_of(points), self._lowest_large, sums, squares, self._large)
        points.origin[:] = self.moments.sums // max(len(self), 1)
        points.base[:] = points.origin * rounding.units
        points.summary["radius2"] = points.summary["reach2"] = points.summary["slack"] = 0.0

    def _present(self) -> Rounding:
        """The steps that follow from the records that are here."""
        largest = np.zeros(self.points.values.shape[1])
        # Slots without records hold zeros.
        kernels.largest_magnitudes(self.points.values, largest)
        self._is_zero = largest == 0.0
        return Rounding.of(largest)

    def steps_stand_with(self, comes: Floats) -> bool:
        """Whether the steps stand when values come, which are counted."""
        if self._agreed is not None:
            return True
        sizes = np.abs(comes)
        self._large += np.count_nonzero(sizes >= self._lowest_large, axis=0)
        limits = np.ldexp(self._lowest_large, COARSENESS)
        limits[self._is_zero] = np.finfo(np.float64).smallest_subnormal
        return bool((sizes < limits).all())

    def steps_stand_without(self, goes: Ints) -> bool:
        """Whether the steps stand when the records in some slots, still there, go."""
        if self._agreed is not None:
            return True
        lost = np.zeros_like(self._large)
        count_large(self.points.values, goes, self._lowest_large, lost)
        self._large -= lost
        # Values of a feature that has the lowest exponent may all be small.
        bare = ((self._large == 0) & ~self._is_zero).nonzero()[0]
        if len(bare):
            bare = bare[self.points.values[np.ix_(goes, bare)].any(axis=0)]
        if len(bare):
            rest = np.abs(self.points.values[:, bare])
            rest[goes] = 0.0
            has_some = rest.any(axis=0)
            if (has_some & (lost[bare] > 0)).any():
                return False
            # Where nothing but zeros is left, any step will do.
            self._is_zero[bare[~has_some]] = True
            rounding = Rounding.of(np.where(self._is_zero, 0.0, self._lowest_large))
            if rounding.top != self.rounding.top:
                return False
            self.rounding = rounding
        return True
