"""Greedy races of one owner's records, run in the slots in which the records are.

Between two races most records stay where they are, and most candidates win again.  So the records
stay turned in tiles, and their distances to the candidates of each step are kept: a race that is
run again then measures the distances to new candidates alone.  Also kept is which records have
early clocks in each race: hardly anybody else can win.
"""

from __future__ import annotations

import numpy as np

from fedforget.arrays import Floats, Ints, UInts
from fedforget.clustering import kernels
from fedforget.clustering.distance import Rows, can_be_turned
from fedforget.clustering.greedy import Track, run_on
from fedforget.clustering.ids import smallest_id
from fedforget.clustering.prf import Keys
from fedforget.clustering.race import Candidates, Race
from fedforget.clustering.replay.record_slots import RecordSlots

MOST_DISTANCES = 1 << 20
"""So many distances to candidates are kept at most, for all restarts together."""

_LIMIT_SHARE = 64
"""They may take this part of the memory limit."""


class SlotRaces:
    """The races of all restarts.

    Parameters
    ----------
    records : the records.
    n_restarts, n_seeds, n_candidates : of the races.
    memory_limit : that of the trajectories, in bytes.
    """

    def __init__(
        self,
        records: RecordSlots,
        n_restarts: int,
        n_seeds: int,
        n_candidates: int,
        memory_limit: int,
    ) -> None:
        self._records = records
        slots, _ = records.points.values.shape
        tiles = Rows(records.coordinates(np.arange(slots))).turned()
        keys = Keys.of_words(records.points.keys)
        n_distances = n_restarts * n_seeds * n_candidates * slots
        most = min(MOST_DISTANCES, memory_limit // (8 * _LIMIT_SHARE))
        self.are_kept = n_distances <= most
        n_steps = n_seeds if self.are_kept else 1
        self._are_clear = [False] * n_restarts
        self._tracks = [Track.of(tiles, keys, n_steps, n_candidates) for _ in range(n_restarts)]
        # Of each track what is overwritten where records go, the candidates of all steps in a row.
        self._leftovers = [(tiles, *keys, *one.of_races()) for one in self._tracks]
        self._is_gone = np.zeros(slots, dtype=np.bool_)

    @staticmethod
    def are_for(records: RecordSlots, n_candidates: int) -> bool:
        """Whether records are so few that they are best kept in tiles."""
        slots, d = records.points.values.shape
        return can_be_turned(slots, d, n_candidates)

    def run(self, restart: int, gone: Ints, drawn: Candidates) -> Race:
        """The race of one restart, whose rows are slots.

        Parameters
        ----------
        gone : the slots of records that have gone since the last race.
        drawn : the candidates, completed in place.  They are those of that race, and those that
            have gone are ``kernels.TO_DRAW``; or all are.
        """
        records, track = self._records, self._tracks[restart]
        race = run_on(
            track,
            records.points.weights,
            drawn,
            gone,
            smallest_id=lambda rows: smallest_id(records.ids, rows),
            stream=restart << 32,
        )
        # Where seeds are fewer than asked for, there are steps that were not looked at.
        self._are_clear[restart] = len(gone) > 0 and len(race.rows) == len(drawn.rows)
        return race

    def put(self, slots: Ints, places: Floats, keys: UInts) -> None:
        """Let records come into some slots."""
        track = self._tracks[0]
        track.tiles[slots // kernels.TILE, :, slots % kernels.TILE] = places
        track.keys.low[slots], track.keys.high[slots] = keys.T
        for one in self._tracks:
            one.know_nothing()

    def erase(self, slots: Ints) -> None:
        """Overwrite what is known of records that have gone, whose slots are sorted."""
        for restart, leftovers in enumerate(self._leftovers):
            kernels.clear_rows(*leftovers, self._is_gone, self._are_clear[restart], slots)
            self._are_clear[restart] = False
