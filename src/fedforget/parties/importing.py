"""Importing: the records of a source are added to those that are held, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from fedforget.clustering.ids import IdIndex, name_some
from fedforget.clustering.prf import Keys
from fedforget.errors import DuplicateIdError
from fedforget.parties.errors import ClientError
from fedforget.parties.gate import Gate
from fedforget.parties.held_records import HeldRecords
from fedforget.parties.record_change import RecordChange
from fedforget.parties.sources.source import Source
from fedforget.parties.store import decoded_id, encoded_ids, keys_of_stored

Progress = Callable[[int], None]
"""Called with the number of rows read so far."""


@dataclass(frozen=True)
class Imported:
    """How many records came, how many of them replaced others, and how many there are now."""

    added: int
    replaced: int
    records: int


def import_records(
    held: HeldRecords,
    source: Source,
    gate: Gate,
    *,
    replace: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Add the records of a source, and bring the clusters up to date, in a transaction.

    Parameters
    ----------
    held : what the client holds.
    source : the new records.
    gate : says which ids may come in.
    replace : whether records with ids that are held take the place of the old ones.
    progress : told how many rows were read.
    """
    places = held.store.index()
    change = RecordChange(held, places)
    added = replaced = first = 0
    seen = IdIndex()
    back = gate.held_though_forgotten(places)
    if not gate.again:
        _check_nobody_is_back(back)
    source.beside(places.keys())
    for ids, values in source.parts():
        source.check_inside(values, held.config.grid, first)
        encoded = encoded_ids(ids.tolist())
        keys = _check_fresh(held, source, encoded, seen)
        first += len(encoded)
        kept = gate.admitted(source, encoded)
        back.difference_update(encoded)
        encoded, values = [encoded[at] for at in kept], values[kept]
        known = [one for one in encoded if one in places]
        if known and not replace:
            some = name_some([decoded_id(one) for one in known])
            raise DuplicateIdError(
                f"{source.path}: {len(known)} ids are held already: {some}; nothing was"
                " imported (--replace forgets the old records first)"
            )
        change.remove(np.array([places.pop(one) for one in known], dtype=np.int64))
        change.add(encoded, values, Keys(keys.low[kept], keys.high[kept]))
        added += len(encoded)
        replaced += len(known)
        if progress is not None:
            progress(len(ids))
    _check_nobody_is_back(back)
    records = len(places) + added
    if records > held.config.max_records:
        raise ClientError(
            f"{records} records do not fit: this grid has room for"
            f" {held.config.max_records}; nothing was imported"
        )
    # A draw takes all the memory that an import may have.
    del places, seen
    change.finish()
    return Imported(added, replaced, records)


def _check_nobody_is_back(back: Collection[bytes]) -> None:
    """Nobody who must stay out may be held: that shows a directory restored from a backup."""
    if back:
        raise ClientError(
            f"{len(back)} of the records that are held were forgotten before: this directory was"
            " restored from a backup. Run client recover first; nothing was imported"
        )


def _check_fresh(held: HeldRecords, source: Source, encoded: list[bytes], seen: IdIndex) -> Keys:
    """Refuse an id that the source has had already; ``seen`` grows by those of this part."""
    keys = keys_of_stored(held.secret, np.array(encoded, dtype=np.bytes_))
    fresh = seen.put(keys, np.zeros(len(encoded), dtype=np.int64))
    if not fresh.all():
        at = int(fresh.argmin())
        raise DuplicateIdError(
            f"{source.place(at)}: the id {decoded_id(encoded[at])!r} occurs twice; nothing was"
            " imported"
        )
    return keys
