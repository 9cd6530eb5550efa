"""What the next round would take from a client, before it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedforget.clustering.histogram import Histogram
from fedforget.configuration import Configuration
from fedforget.protocol.client_ledger import digest_of_input


@dataclass(frozen=True)
class Verdict:
    """What the site's policy says of a report."""

    problems: tuple[str, ...] = ()
    needs_approval: bool = False
    approved: bool = False

    @property
    def goes(self) -> bool:
        """Whether a round would take the report; if not, it takes what was counted last."""
        return not self.problems and (self.approved or not self.needs_approval)


@dataclass(frozen=True)
class Preview:
    """A report beside what was counted last.

    Attributes
    ----------
    records : how many the client holds.
    smallest_cell : the size, not rounded, of the smallest cluster that is reported; None if none
        is.
    dissolved : how many clusters were too small to be reported.
    reported : what would be counted.
    counted : what is counted now; None if that is not known.
    """

    records: int
    smallest_cell: int | None
    dissolved: int
    reported: Histogram
    counted: Histogram | None
    verdict: Verdict

    @property
    def digest(self) -> str:
        """Identifies the report; an approval names it."""
        return digest_of_input(self.reported).hex()

    def plain(self, config: Configuration, names: list[str]) -> dict[str, Any]:
        """For people and for output checkers: centres in the features' own units."""
        before = Histogram(self.reported.n_features) if self.counted is None else self.counted
        both = sorted({*self.reported.encoded(), *before.encoded()})
        centres = config.grid.from_units(config.grid.units_of_bins(self.reported.decode(both)))[1]
        cells = [
            {
                "centre": dict(zip(names, centre, strict=True)),
                "count": self.reported.count_of(point),
                "change": self.reported.count_of(point) - before.count_of(point),
            }
            for point, centre in zip(both, centres.tolist(), strict=True)
        ]
        return {
            "digest": self.digest,
            "records": self.records,
            "smallest_cell": self.smallest_cell,
            "dissolved": self.dissolved,
            "last_counted_is_known": self.counted is not None,
            "cells": cells,
            "policy": {
                "problems": list(self.verdict.problems),
                "needs_approval": self.verdict.needs_approval,
                "approved": self.verdict.approved,
                "goes": self.verdict.goes,
            },
        }
