"""Records come and go in one transaction, and the clusters follow.

Whoever forgets, imports or follows a source changes records here and nowhere else.  Afterwards the
clusters are, in every bit, those of a fresh draw over the records then held.  A small change keeps
the seeds before the first one that is lost or beaten, and looks only at the records that come or go
while all seeds stand.  A large one is cheaper to draw afresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedforget.arrays import Floats, Ints
from fedforget.clustering.owner import Owner, first_among
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import first_difference
from fedforget.parties.held_records import HeldRecords, Known
from fedforget.parties.store import EncodedIds, keys_of_stored
from fedforget.parties.stored_records import StoredRecords, clusters_of

_GOING, _COMING = 4, 8
"""What a record costs that goes or comes; a small change costs at most the number of records held.

Beyond that a draw is the quicker way: it reads records many at a time, these are read one by one.
"""


class RecordChange:
    """One change of a client's records, in a transaction of the caller.

    Records go and come in any number of calls; :meth:`finish` brings the clusters up to date.

    Parameters
    ----------
    held : what the client holds.
    rows : where at least the seeds are.
    """

    def __init__(self, held: HeldRecords, rows: Mapping[bytes, int]) -> None:
        self._held, self._store = held, held.store
        self._waits = held.wait()
        self._before = held.clusters()
        self._n_held = int(self._before.sizes.sum())
        seeds = self._before.seed_ids
        self._seeds = {seed: rows[seed] for seed in seeds if seed in rows}
        self._seed_rows = np.array([rows.get(seed, -1) for seed in seeds], dtype=np.int64)
        # Clients that run K-means run it again with every change.
        self._follows = bool(seeds) and held.config.representatives != "lloyd"
        self._owner: Owner[StoredRecords] | None = None
        self._lost = len(seeds)
        self._cost = 0
        self._added: list[Ints] = [np.empty(0, dtype=np.int64)]
        self._keys = [Keys.none()]

    def remove(self, rows: Ints) -> None:
        """Erase records."""
        if not len(rows):
            return
        self._spend(_GOING * len(rows))
        self._note_lost(rows)
        if self._follows:
            self._own().take_out(rows)
        else:
            self._store.remove(rows, self._held.n_features)

    def add(self, ids: Sequence[bytes], values: Floats, keys: Keys) -> None:
        """Add records, whose ids must not be there."""
        if not len(ids):
            return
        self._spend(_COMING * len(ids))
        self._added.append(self._store.add(ids, values))
        self._keys.append(keys)

    def replace(self, rows: Ints, ids: EncodedIds, values: Floats) -> None:
        """Give records other values."""
        if self._follows and self._affords((_GOING + _COMING) * len(rows)):
            self.remove(rows)
            self.add(ids.tolist(), values, keys_of_stored(self._held.secret, ids))
        else:
            self.overwrite(rows, values)

    def overwrite(self, rows: Ints, values: Floats) -> None:
        """Give so many records other values that the clusters are drawn afresh."""
        self._spend((_GOING + _COMING) * len(rows))
        self._follows = False
        self._note_lost(rows)
        self._store.set_values(rows, values)

    def finish(self) -> int | None:
        """Store the clusters; returns the first step, from 0, whose seed is another one.

        A seed that was replaced is another one, even if it wins again.  None if all seeds stand.
        """
        if not self._cost:
            return None
        if self._waits:
            return 0 if self._held.draw_if_they_fit() else None
        # A draw takes all the memory that a change may have.
        rows, keys = self._take_added()
        if self._follows:
            self._follow(rows, keys)
        else:
            self._owner = None
            self._held.draw_afresh((rows, keys))
        before, after = self._before.seed_ids, self._held.clusters().seed_ids
        lost = self._lost if self._lost < len(before) else None
        steps = (lost, first_difference(before, after))
        return min((step for step in steps if step is not None), default=None)

    # -- following -----------------------------------------------------------------------------

    def _affords(self, more: int) -> bool:
        """Whether the change is still small if it costs so much more."""
        return self._cost + more <= self._n_held

    def _spend(self, cost: int) -> None:
        self._follows = self._follows and self._affords(cost)
        self._cost += cost

    def _note_lost(self, rows: Ints) -> None:
        step = first_among(self._seed_rows, rows)
        self._lost = self._lost if step is None else min(self._lost, step)

    def _own(self) -> Owner[StoredRecords]:
        """The owner with the clusters from before the change."""
        if self._owner is None:
            self._owner = self._held.owner(self._before, self._seeds)
        return self._owner

    def _follow(self, rows: Ints, keys: Keys) -> None:
        owner = self._own()
        if len(rows) or self._lost < len(self._before.seed_ids):
            owner.records.known = rows, keys
            owner.take_in(rows, keys, self._lost)
        self._store.set_clusters(clusters_of(owner.clusters))

    def _take_added(self) -> Known:
        rows = np.concatenate(self._added)
        keys = Keys(*(np.concatenate(column) for column in zip(*self._keys, strict=True)))
        self._added, self._keys = [], []
        return rows, keys
