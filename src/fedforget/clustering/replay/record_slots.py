"""The records of one owner, each in a slot that it keeps while it is there.

Replay works on these slots themselves, so there is one copy of the records.  A record that goes is
overwritten.
"""

from __future__ import annotations

import numpy as np

from fedforget.arrays import Floats, Ints, UInts
from fedforget.clustering.ids import Ids
from fedforget.clustering.lloyd import Moments
from fedforget.clustering.prf import Keys
from fedforget.clustering.replay.parts import table_of
from fedforget.clustering.replay.points import add_up
from fedforget.clustering.replay.state import SLOT_BLOCK, Points, Sizes, allocate
from fedforget.clustering.rounding import Rounding


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
    """

    rounding: Rounding
    moments: Moments

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
        self._allocate(n, d, ids)
        slots = self.take(n)
        self.note(slots, ids, arrival)
        self.put(slots, values, np.stack(keys, axis=1))
        self.measure()

    def _allocate(self, n: int, d: int, ids: Ids) -> None:
        """Room for ``n`` records and some more."""
        slots = -(-(n + 16 + n // 32) // SLOT_BLOCK) * SLOT_BLOCK
        self.points = allocate(Points, Sizes(slots, d, clusters=0, restarts=0))
        self.ids = np.zeros(slots, dtype=ids.dtype)
        self.arrival = np.zeros(slots, dtype=np.int64)
        self._free = list(range(slots - 1, -1, -1))

    def __len__(self) -> int:
        return int(self.points.summary["n"])

    @property
    def n_free(self) -> int:
        return len(self._free)

    def in_use(self) -> Ints:
        """The slots that hold records."""
        return np.flatnonzero(self.points.weights)

    def by_arrival(self) -> Ints:
        """The slots that hold records, in the order of arrival."""
        slots = self.in_use()
        ordered: Ints = slots[np.argsort(self.arrival[slots])]
        return ordered

    def coordinates(self, slots: Ints) -> Floats:
        """Some records in coordinates."""
        return self.rounding.coordinates(self.points.values[slots])

    # -- coming and going ----------------------------------------------------------------------

    def take(self, n: int) -> Ints:
        """Slots for new records."""
        first = len(self._free) - n
        taken, self._free = self._free[first:][::-1], self._free[:first]
        return np.array(taken, dtype=np.int64)

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
        self.points.values[slots] = 0.0
        self.points.keys[slots] = 0
        self.ids[slots] = np.zeros((), dtype=self.ids.dtype)
        self.arrival[slots] = 0
        self._free.extend(slots.tolist())

    def grow(self, n: int) -> None:
        """Make room for ``n`` more; records keep their slots."""
        points, ids, arrival = self.points, self.ids, self.arrival
        old, d = points.values.shape
        self._allocate(max(old + n, old + old // 2), d, ids)
        self._free = [slot for slot in self._free if slot >= old]
        self._free += np.flatnonzero(points.weights == 0)[::-1].tolist()
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
        self._halves = np.ldexp(1.0, rounding.exponents - 1)
        self._large = np.zeros(points.values.shape[1], dtype=np.int64)
        add_up(table_of(points), self._halves, self.moments.sums, self.moments.squares, self._large)
        points.origin[:] = self.moments.sums // max(len(self), 1)
        points.base[:] = points.origin * rounding.units
        points.summary["radius2"] = points.summary["reach2"] = points.summary["slack"] = 0.0

    def _present(self) -> Rounding:
        """The steps that follow from the records that are here."""
        # Slots without records hold zeros.
        highest, lowest = self.points.values.max(axis=0), self.points.values.min(axis=0)
        return Rounding.of(np.maximum(highest, -lowest))

    def keep_steps(self, comes: Floats, goes: Floats) -> bool:
        """Whether the steps stand when values come and go; the count of large values follows."""
        if self._agreed is not None:
            return True
        fits = bool((np.abs(comes) < 2.0 * self._halves).all())
        lost = np.count_nonzero(np.abs(goes) >= self._halves, axis=0)
        self._large += np.count_nonzero(np.abs(comes) >= self._halves, axis=0) - lost
        return fits and not ((self._large == 0) & (lost > 0)).any()
