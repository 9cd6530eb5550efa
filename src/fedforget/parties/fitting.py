"""Whether the records that a client holds fit the features and bounds of its federation.

After an amendment they may not: a new feature has no values yet, and a value may lie outside
narrower bounds.  The client keeps such records, says which they are, and takes part in no round
until they are imported again, forgotten, or the federation is amended once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedforget.arrays import Floats
from fedforget.clustering.grid import Grid
from fedforget.clustering.ids import name_some
from fedforget.parties.store import Clusters, Store, decoded_id

HOW_TO_GIVE_VALUES = "client import --replace, or client sync"
"""What gives records that are held their values of a new feature."""
MOST_LISTED = 1000
"""Most ids that are listed for a script; all of them are counted."""


@dataclass(frozen=True)
class Misfit:
    """Records that do not fit: those without a value, and those with a value out of bounds.

    ``missing`` and ``outside`` count them per feature; ``ids`` are some of those outside.
    """

    missing: dict[str, int]
    outside: dict[str, int]
    ids: tuple[int | str, ...]

    def __str__(self) -> str:
        parts = [
            f"{count} records have no value of {name}: import them again ({HOW_TO_GIVE_VALUES})"
            for name, count in self.missing.items()
        ]
        parts += [
            f"{count} records lie outside the bounds of {name}"
            for name, count in self.outside.items()
        ]
        if self.ids:
            parts.append(
                f"ids outside the bounds: {name_some(list(self.ids))}. Forget them, import them"
                " again with other values, or ask for wider bounds (server amend)"
            )
        return "; ".join(parts)

    def plain(self) -> dict[str, Any]:
        """For scripts."""
        return {"missing": self.missing, "outside": self.outside, "ids": list(self.ids)}


def waits(store: Store, n_features: int) -> bool:
    """Whether a client has records and no clusters of them: some do not fit."""
    return not store.clusters(n_features).seed_ids and len(store) > 0


def misfit_of(store: Store, grid: Grid, names: Sequence[str]) -> Misfit | None:
    """Which stored records do not fit; None if all do."""
    _, ids, values = store.everything(len(names))
    missing = np.isnan(values)
    outside = (values < grid.bounds[:, 0]) | (values > grid.bounds[:, 1])
    if not missing.any() and not outside.any():
        return None
    some = ids[outside.any(axis=1)][:MOST_LISTED].tolist()
    return Misfit(
        {name: int(n) for name, n in zip(names, missing.sum(axis=0), strict=True) if n},
        {name: int(n) for name, n in zip(names, outside.sum(axis=0), strict=True) if n},
        tuple(decoded_id(one) for one in some),
    )


def no_clusters(n_features: int) -> Clusters:
    """The clusters of a client while records of it do not fit."""
    none = np.empty((0, n_features))
    return Clusters([], np.empty(0), none, np.empty(0, np.int64), none.astype(np.int64))


def rearranged(values: Floats, before: Sequence[str], after: Sequence[str]) -> Floats:
    """Values in the order of other features; NaN where there are none."""
    out = np.full((len(values), len(after)), np.nan)
    for place, name in enumerate(after):
        if name in before:
            out[:, place] = values[:, list(before).index(name)]
    return out
