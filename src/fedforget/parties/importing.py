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
from fedforget.parties.sources.source import Source
from fedforget.parties.store import decoded_id, encoded_ids, keys_of_stored
from fedforget.parties.stored_records import clusters_of

Progress = Callable[[int], None]
"""Called with the number of rows read so far."""

_NO_KEYS = Keys(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.uint64))


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
    store, n_features = held.store, held.n_features
    places = store.index()
    waiting = held.wait()
    replaced = first = 0
    before, seen = len(places), IdIndex()
    back = gate.held_though_forgotten(places)
    if not gate.again:
        _check_nobody_is_back(back)
    source.beside(places.keys())
    added, hashed = [np.empty(0, dtype=np.int64)], [_NO_KEYS]
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
        store.remove(np.array([places.pop(one) for one in known], dtype=np.int64), n_features)
        added.append(store.add(encoded, values))
        hashed.append(Keys(keys.low[kept], keys.high[kept]))
        replaced += len(known)
        if progress is not None:
            progress(len(ids))
    _check_nobody_is_back(back)
    rows = np.concatenate(added)
    keys = Keys(*(np.concatenate(column) for column in zip(*hashed, strict=True)))
    # A draw takes all the memory that an import may have.
    del added, hashed, seen
    records = len(places) + len(rows)
    if records > held.config.max_records:
        raise ClientError(
            f"{records} records do not fit: this grid has room for"
            f" {held.config.max_records}; nothing was imported"
        )
    if waiting:
        held.draw_if_they_fit()
    elif replaced or len(rows) > before:
        del places
        held.draw_afresh((rows, keys))
    else:
        owner = held.owner(held.clusters(), places, (rows, keys))
        owner.admit(rows, keys)
        store.set_clusters(clusters_of(owner.clusters))
    return Imported(len(rows), replaced, records)


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
