"""One owner's records: dense columns, in no particular order, with removal in constant time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.clustering.distance import Floats, Labels
from fedforget.clustering.ids import Ids, smallest_id
from fedforget.clustering.prf import Ints, Keys
from fedforget.clustering.race import Race, new_race


class RecordTable:
    """Columns of equal length that grow at the end and shrink by moving the last rows into holes.

    Parameters
    ----------
    values : (n, d) float64, C-contiguous; the table takes it over.
    ids : the records' ids.
    keys : the records' keys.
    arrival : a number a record that grows with the order of arrival.
    race : where given, the columns of a race over these records that has begun already.
    """

    def __init__(
        self, values: Floats, ids: Ids, keys: Keys, arrival: Ints, race: Race | None = None
    ) -> None:
        if race is None:
            race = new_race(len(values))
        self._size = len(values)
        self._columns: dict[str, npt.NDArray[Any]] = {
            "values": values,
            "ids": ids,
            "low": keys.low,
            "high": keys.high,
            "arrival": arrival,
            "label": race.label,
            "d2": race.rate,
        }

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

    def erase(self) -> None:
        """Overwrite everything; the table is empty then."""
        for column in self._columns.values():
            _overwrite(column)
        self._size = 0


def _overwrite(column: npt.NDArray[Any]) -> None:
    """Leave nothing of some rows in memory."""
    column[...] = "" if column.dtype.kind == "U" else 0
