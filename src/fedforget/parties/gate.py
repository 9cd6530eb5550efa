"""Which ids of a table may come in: those on the suppression list stay out."""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np

from fedforget.clustering.ids import name_some
from fedforget.parties.errors import ClientError
from fedforget.parties.sources.source import Source
from fedforget.parties.store import Store, decoded_id
from fedforget.parties.suppression import SuppressionList


class Gate:
    """Which ids of a table may come in.

    Parameters
    ----------
    suppression : the list.
    waiting : the names of requests that wait for a round.
    again : whether ids that were forgotten before may come in.
    waits : ids that wait to be forgotten stay out like others, instead of being refused.
    """

    def __init__(
        self,
        suppression: SuppressionList,
        waiting: set[str],
        again: bool,
        *,
        waits: bool = False,
    ) -> None:
        self._suppression = suppression
        self._entries = suppression.entries()
        self._waiting = waiting
        self.again = again
        self._waits = waits
        self.forgiven: list[bytes] = []
        self.kept_out = 0

    def admitted(self, table: Source, encoded: list[bytes]) -> list[int]:
        """Positions of the ids that may come in."""
        everybody = list(range(len(encoded)))
        if not self._entries or not encoded:
            return everybody
        digests = self._suppression.digests(np.array(encoded, dtype=np.bytes_))
        listed = [at for at in everybody if digests[at] in self._entries]
        soon = [at for at in listed if self._entries[digests[at]] in self._waiting]
        if soon and (self.again or not self._waits):
            some = name_some([decoded_id(encoded[at]) for at in soon])
            raise ClientError(
                f"{table.path}: {len(soon)} ids wait to be forgotten by the next round: {some};"
                " nothing was imported. Leave them out of the table (client sync does), or import"
                " them after that round, with --again"
            )
        if self.again:
            self.forgiven += [digests[at] for at in listed]
            return everybody
        self.kept_out += len(listed)
        out = set(listed)
        return [at for at in everybody if at not in out]

    def held_though_forgotten(self, held: Collection[bytes]) -> set[bytes]:
        """Those of the encoded ids that are on the list."""
        if not self._entries or not held:
            return set()
        ids = list(held)
        digests = self._suppression.digests(np.array(ids, dtype=np.bytes_))
        return {one for one, digest in zip(ids, digests, strict=True) if digest in self._entries}

    def let_in(self, store: Store) -> None:
        """Take those who came again off the list, with the change that brings them.

        Belongs in the transaction of that change: the store's mark tells whether it was made.
        """
        if self.forgiven:
            mark = os.urandom(8).hex()
            store.put("let_in", mark)
            self._suppression.begin_forgiving(self.forgiven, mark)
