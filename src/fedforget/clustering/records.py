"""Where one owner's records live: in memory, or anywhere else that can be asked for single rows.

In memory they are dense columns, in no particular order, with removal in constant time.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, Ints, Labels
from fedforget.clustering.ids import Ids, smallest_id
from fedforget.clustering.prf import Keys


class OwnedRecords(Protocol):
    """What clusters ask of the place where their records live.

    A *row* is whatever number that place gives to a record.  Only a draw needs all the records: it
    works on a :class:`RecordTable`, in which a record has a *position*.
    """

    def __len__(self) -> int: ...

    def ids_of(self, rows: Ints) -> Ids:
        """The ids of some records."""

    def values_of(self, rows: Ints) -> Floats:
        """The values of some records, in the space that is clustered."""

    def labels_of(self, rows: Ints) -> Labels:
        """The seeds that some records belong to."""

    def labelled(self, seeds: Ints) -> Ints:
        """The rows of all records that belong to some seeds, in any order."""

    def settle(self, rows: Ints, label: Labels, d2: Floats) -> None:
        """Note the seeds that some records belong to, and the squared distances to them."""

    def remove(self, rows: Ints) -> tuple[Ints, Ints]:
        """Erase rows (distinct, sorted).  Returns the rows that others fill now, and from where."""

    def erase(self) -> None:
        """Overwrite everything."""

    def in_memory(self, seeds: Floats) -> RecordTable:
        """All the records, each with its cluster; the clusters have these seeds."""

    def positions_of(self, rows: Ints) -> Ints:
        """Where rows stand in the last :meth:`in_memory`."""

    def rows_at(self, positions: Ints) -> Ints:
        """The rows that stand there."""

    def keep(self, table: RecordTable) -> None:
        """Take over the clusters that a draw has found in :meth:`in_memory`."""


class RecordTable:
    """Columns of equal length that grow at the end and shrink by moving the last rows into holes.

    Parameters
    ----------
    values : (n, d) float64, C-contiguous; the table takes it over.
    ids : the records' ids.
    keys : the records' keys.
    arrival : one number per record that grows with the order of arrival.
    label, d2 : where known, the seed of each record and the squared distance to it.
    """

    def __init__(
        self,
        values: Floats,
        ids: Ids,
        keys: Keys,
        arrival: Ints,
        label: Labels | None = None,
        d2: Floats | None = None,
    ) -> None:
        n = self._size = len(values)
        self._columns: dict[str, npt.NDArray[Any]] = {
            "values": values,
            "ids": ids,
            "low": keys.low,
            "high": keys.high,
            "arrival": arrival,
            "label": np.full(n, -1, dtype=np.int32) if label is None else label,
            "d2": np.full(n, np.inf) if d2 is None else d2,
        }

    @classmethod
    def empty(cls, n_features: int) -> RecordTable:
        """A table without records."""
        none = np.empty(0, dtype=np.int64)
        return cls(np.empty((0, n_features)), none, Keys.none(), none.copy())

    def __len__(self) -> int:
        return self._size

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name][: self._size]

    @property
    def values(self) -> Floats:
        return self._column("values")

    @property
    def ids(self) -> Ids:
        return self._column("ids")

    @property
    def keys(self) -> Keys:
        return Keys(self._column("low"), self._column("high"))

    @property
    def arrival(self) -> Ints:
        return self._column("arrival")

    @property
    def label(self) -> Labels:
        """The seed that each record belongs to."""
        return self._column("label")

    @property
    def d2(self) -> Floats:
        """Squared distance to that seed."""
        return self._column("d2")

    # -- some rows -----------------------------------------------------------------------------

    def ids_of(self, rows: Ints) -> Ids:
        return self.ids[rows]

    def values_of(self, rows: Ints) -> Floats:
        return self.values[rows]

    def labels_of(self, rows: Ints) -> Labels:
        return self.label[rows]

    def labelled(self, seeds: Ints) -> Ints:
        return rows_labelled(self.label, seeds)

    def keys_of(self, rows: Ints) -> Keys:
        """The keys of some records."""
        return Keys(self._column("low")[rows], self._column("high")[rows])

    def settle(self, rows: Ints, label: Labels, d2: Floats) -> None:
        self.label[rows] = label
        self.d2[rows] = d2

    def smallest_id(self, rows: Ints) -> int:
        """Of some rows, the one with the smallest id."""
        return smallest_id(self.ids, rows)

    def append(self, values: Floats, ids: Ids, keys: Keys, arrival: Ints) -> Ints:
        """Add rows at the end; returns their row numbers."""
        begin, end = self._size, self._size + len(values)
        added: dict[str, npt.NDArray[Any]] = {
            "values": values,
            "ids": ids,
            "low": keys.low,
            "high": keys.high,
            "arrival": arrival,
            "label": np.full(len(values), -1, dtype=np.int32),
            "d2": np.full(len(values), np.inf),
        }
        for name, new in added.items():
            column = self._columns[name]
            dtype = np.promote_types(column.dtype, new.dtype)
            if end > len(column) or dtype != column.dtype:
                capacity = max(end, len(column) + len(column) // 2)
                grown = np.zeros((capacity, *column.shape[1:]), dtype=dtype)
                grown[:begin] = column[:begin]
                _overwrite(column)
                self._columns[name] = column = grown
            column[begin:end] = new
        self._size = end
        return np.arange(begin, end, dtype=np.int64)

    def remove(self, rows: Ints) -> tuple[Ints, Ints]:
        """Erase rows (distinct, sorted); the last rows move into the holes.

        Returns the holes and the rows that moved into them.  The freed rows are overwritten.
        """
        end = self._size - len(rows)
        holes, movers = rows[rows < end], np.arange(end, self._size)
        if len(holes) < len(rows):
            movers = np.delete(movers, rows[len(holes) :] - end)
        for column in self._columns.values():
            column[holes] = column[movers]
            _overwrite(column[end : self._size])
        self._size = end
        return holes, movers

    # -- a draw: the records are in memory already, and a row is a position ----------------------

    def in_memory(self, seeds: Floats) -> RecordTable:
        return self

    def positions_of(self, rows: Ints) -> Ints:
        return rows

    def rows_at(self, positions: Ints) -> Ints:
        return positions

    def keep(self, table: RecordTable) -> None:
        """The draw has written to the columns themselves."""

    def erase(self) -> None:
        """Overwrite everything; the table is empty then."""
        for column in self._columns.values():
            _overwrite(column)
        self._size = 0


def rows_labelled(label: Labels, wanted: Ints) -> Ints:
    """Where a label is one of some.

    >>> rows_labelled(np.array([0, 2, -1, 1, 2]), np.array([1, 2]))
    array([1, 3, 4])
    """
    # The last entry is that of rows without a label.
    chosen = np.zeros(int(label.max(initial=0)) + 2, dtype=np.bool_)
    chosen[wanted[wanted < len(chosen) - 1]] = True
    return np.flatnonzero(chosen[label])


def _overwrite(column: npt.NDArray[Any]) -> None:
    """Leave nothing of some rows in memory."""
    column[...] = "" if column.dtype.kind == "U" else 0
