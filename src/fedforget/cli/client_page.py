"""What a client's page says.

The page that is written to a file may be sent to others.  It holds no ids, no secrets and no digest
of the records; means and spreads are rounded to a public grid, and those of very small clusters are
left out, because the mean of one record is that record.  The live page is for the site alone, and
also shows what the next round takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedforget.arrays import Floats
from fedforget.cli.charts import Cluster
from fedforget.cli.pictures import (
    CentreValue,
    Checked,
    FeatureRow,
    Picture,
    ordered_features,
    spread_around,
)
from fedforget.clustering.disclosure import Cells
from fedforget.clustering.partition import FIXED_POINT_BITS
from fedforget.configuration import Configuration
from fedforget.pages.templates import grouped
from fedforget.parties import receipts
from fedforget.parties.client_party import ClientParty
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.store import Clusters, StoredReceipt
from fedforget.parties.times import Limits, client_times, overdue_texts
from fedforget.wall_clock import utc_now

SMALLEST_SHOWN = 5
"""Local clusters with fewer records than this are not drawn."""
FINEST_MEAN = 0.01
"""Means of local clusters are rounded to this part of the range, or to the grid if it is wider."""


def client_values(
    party: ClientParty, check: Checked | None = None, *, live: bool = False
) -> dict[str, Any]:
    """The values of the template ``client.html``; without a check, an audit is made now."""
    status, federation = party.status(), party.federation
    if federation is None:
        return {"name": party.name, "federation": None, "status": status}
    rules = party.reporting.rules
    everyone, picture = _clusters(party, party.cells())
    times = client_times(party, utc_now(), Limits())
    return {
        "name": party.name,
        "federation": federation,
        "status": status,
        "check": check or client_check(party, exact=rules.are_off),
        "reported": None if rules.are_off else sum(cluster.size for cluster in everyone),
        "smallest_shown": SMALLEST_SHOWN,
        "everyone": everyone,
        "n_small": sum(cluster.size < SMALLEST_SHOWN for cluster in everyone),
        "picture": picture,
        "requests": party.store.requests(),
        "receipts": [_receipt(one, federation) for one, _ in party.receipts()],
        "disclosure": federation.disclosure,
        "preview": _preview(party, federation) if live else None,
        "overdue": overdue_texts(times),
        "failed": times.failed,
    }


def client_check(party: ClientParty, *, exact: bool) -> Checked:
    """What an audit says, without the digests: few records could be guessed from theirs."""
    found = party.audit()
    if not found.passed:
        words = "the stored state is not the one that a fresh fit of the records gives"
        words = "; ".join([words] * (found.stored != found.fresh) + list(found.problems))
        return Checked(False, words)
    records = f"{grouped(found.records)} records" if exact else "records"
    return Checked(True, f"the stored state is that of a fresh fit of the {records} held")


def rounded_means(config: Configuration, clusters: Cells | Clusters) -> tuple[Floats, Floats]:
    """Means of local clusters in the clustered space and in the features' units, made coarse.

    Two pages from before and after a removal must not give the removed record away, which exact
    means would do.  The representatives themselves are of no use: they can be records.
    """
    grid = replace(config.grid, step=max(config.grid.step, FINEST_MEAN))
    # A cluster without records has no mean, and is never shown.
    units = clusters.sums / np.maximum(clusters.sizes, 1)[:, np.newaxis] / 2.0**FIXED_POINT_BITS
    return grid.from_units(grid.units_of_bins(grid.bins_of_units(units)))


def rounded_spread(party: ClientParty, cells: Cells) -> Floats:
    """Standard deviations within the cells, of all records, rounded as their means are.

    Rounded to a whole number of steps, so that a removal shows no more here than there.
    """
    config = party.config
    rows, _, values = party.store.everything(len(config.grid.bounds))
    labels = cells.labels_of(party.reportable(), rows)
    weights = np.ones(len(rows), dtype=np.int64)
    exact = spread_around(values, weights, labels, len(cells.sizes))
    ranges = config.grid.bounds[:, 1] - config.grid.bounds[:, 0]
    step = max(config.grid.step, FINEST_MEAN) * ranges
    steps = np.divide(exact, step, out=np.zeros_like(exact), where=step > 0)
    spread: Floats = np.round(steps) * step
    return spread


def _clusters(party: ClientParty, cells: Cells) -> tuple[list[Cluster], Picture | None]:
    """A client's clusters, and a picture of those that are large enough to be drawn.

    Numbered from 1, in the order of the draw.  Lloyd's iteration may leave some without records.
    Under rules the page must hold no more than a report does.  There, sizes at one place are added
    up, the largest is the first, and nothing is said of spreads: nothing tells of clusters that
    were dissolved.
    """
    config = party.reporting
    sizes, numbers = config.rules.rounded(cells.sizes), cells.kept + 1
    marks, centres = rounded_means(config, cells)
    spread: Floats | None = None
    if config.rules.are_off:
        spread = rounded_spread(party, cells)
    else:
        _, first, place = np.unique(marks, axis=0, return_index=True, return_inverse=True)
        sizes = np.bincount(place.ravel(), sizes, minlength=len(first)).astype(np.int64)
        order = np.argsort(-sizes, kind="stable")
        sizes, marks, centres = sizes[order], marks[first][order], centres[first][order]
        numbers = np.arange(1, len(sizes) + 1)
    numbered = zip(numbers.tolist(), sizes.tolist(), strict=True)
    everyone = [Cluster(number, size) for number, size in numbered if size]
    large = sizes >= SMALLEST_SHOWN
    if not large.any():
        return everyone, None
    drawn = [cluster for cluster in everyone if cluster.size >= SMALLEST_SHOWN]
    labels = np.array([cluster.number for cluster in drawn], dtype=np.int32)
    marks, centres = marks[large], centres[large]
    shown = None if spread is None else spread[large]
    return everyone, Picture(drawn, centres, marks, marks, sizes[large], labels, shown)


def _receipt(stored: StoredReceipt, federation: FederationFile) -> dict[str, Any]:
    """A receipt, and what a check of it says."""
    document = json.loads(stored.document)
    row = {"name": stored.name, "document": document, "model_before": None, "model_after": None}
    try:
        proof = receipts.verify(document, federation)
    except receipts.ReceiptError as error:
        return row | {"check": Checked(False, str(error))}
    return row | {
        "model_before": proof.model_before,
        "model_after": proof.model_after,
        "check": Checked(True, "; ".join(["valid", *proof.remarks])),
    }


# -- what the next round takes ---------------------------------------------------------------------


@dataclass(frozen=True)
class PreviewShown:
    """What the next round would take, cell by cell.

    Attributes
    ----------
    plain : the same for scripts, as ``client preview --json`` prints it.
    shown, folded : the features, with one number per cell.
    """

    plain: dict[str, Any]
    shown: Sequence[FeatureRow]
    folded: Sequence[FeatureRow]


def _preview(party: ClientParty, federation: FederationFile) -> PreviewShown | None:
    if not party.lists():
        return None
    plain = party.preview().plain(party.reporting, federation.feature_names)
    cells = plain["cells"]
    centres = np.array([list(one["centre"].values()) for one in cells], dtype=np.float64)
    centres = centres.reshape(len(cells), len(federation.features))
    order, n_shown = list(range(len(federation.features))), len(federation.features)
    if len(cells):
        sizes = [one["count"] for one in cells]
        order, n_shown = ordered_features(federation.features, centres, sizes)
    rows = [
        FeatureRow(
            federation.features[at], [CentreValue(value, None) for value in centres[:, at].tolist()]
        )
        for at in order
    ]
    return PreviewShown(plain, rows[:n_shown], rows[n_shown:])
