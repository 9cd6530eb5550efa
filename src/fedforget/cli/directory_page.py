"""``fedforget report``: a client's or a server's directory as one page to read, print or send.

A client's page may be sent to others.  It holds no ids, no secrets and no digest of the records;
means are rounded to a public grid, and those of very small clusters are left out, because the mean
of one record is that record.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedforget import __version__
from fedforget.arrays import Floats, Ints, Labels
from fedforget.cli.charts import (
    MOST_BINS,
    MOST_NUMBERED,
    N_COLOURS,
    Cluster,
    Columns,
    Scatter,
    Strip,
    columns,
    plane,
    scatter,
    strip,
)
from fedforget.cli.console import console, plain_errors, safe, show
from fedforget.clustering.disclosure import Cells
from fedforget.clustering.distance import nearest
from fedforget.clustering.partition import FIXED_POINT_BITS
from fedforget.configuration import Configuration
from fedforget.errors import FedforgetError
from fedforget.pages.templates import grouped, render
from fedforget.parties import client_party, receipts, server_party
from fedforget.parties.federation_file import Feature, FederationFile
from fedforget.parties.folders import write_private
from fedforget.parties.log import LogError
from fedforget.parties.store import Clusters, StoredReceipt

SMALLEST_SHOWN = 5
"""Local clusters with fewer records than this are not drawn."""
FINEST_MEAN = 0.01
"""Means of local clusters are rounded to this part of the range, or to the grid if it is wider."""
MOST_ROUNDS = 100


def write_report(folder: Path, out: Path, as_json: bool) -> None:
    """Write the page of a directory, over an older one if there is one."""
    with plain_errors():
        if out.suffix.lower() not in (".html", ".htm"):
            raise FedforgetError(f"{out}: the ending must be .html")
        kind, page = report_of(folder)
        # Private, because it may lie in a party's directory, where all files have to be.
        write_private(out, page.encode())
    result = {"report": str(out), "kind": kind, "bytes": len(page.encode())}
    show(
        result,
        as_json,
        lambda: console.print(f"The {kind}'s report: [bold]{safe(out)}[/bold]", soft_wrap=True),
    )


def report_of(folder: Path) -> tuple[str, str]:
    """What a directory is, ``"server"`` or ``"client"``, and its page."""
    if (folder / server_party.STORE).is_file():
        with server_party.open_server(folder) as one:
            return "server", server_page(one)
    if (folder / client_party.STORE).is_file():
        with client_party.open_client(folder) as other:
            return "client", client_page(other)
    raise FedforgetError(
        f"{folder} is neither a client's nor a server's directory"
        f" (it has no {client_party.STORE} and no {server_party.STORE})"
    )


# -- both ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """What a check found, in words."""

    good: bool
    words: str


@dataclass(frozen=True)
class Picture:
    """Clusters to be drawn, and the bins around them.

    Attributes
    ----------
    clusters : those that are drawn.
    centres : (k, d) their centres in the features' units.
    marks : (k, d) the same in the clustered space.
    bins, counts, labels : points of the clustered space, what they count, their clusters' numbers.
    """

    clusters: Sequence[Cluster]
    centres: Floats
    marks: Floats
    bins: Floats
    counts: Ints
    labels: Labels

    @cached_property
    def _plane(self) -> tuple[Floats, Floats, Floats]:
        return plane(self.bins, self.counts)

    @property
    def scatter(self) -> Scatter:
        """The clusters in the plane of most variance."""
        mean, axes, _ = self._plane
        return scatter(
            (self.bins - mean) @ axes.T,
            self.counts,
            self.labels,
            (self.marks - mean) @ axes.T,
            self.clusters,
        )

    @property
    def caption(self) -> str:
        """What the reader has to know about the plane."""
        shares = self._plane[2]
        caption = (
            f"Across and up: the two directions in which the bins differ most, with {shares[0]:.0%}"
            f" and {shares[1]:.0%} of their variance."
            if shares[1]
            else "Across: the one direction in which the bins differ."
        )
        caption += " The area of a circle is what a bin counts."
        if len(self.bins) > MOST_BINS:
            caption += f" The {grouped(MOST_BINS)} largest bins are drawn."
        if len(self.clusters) > N_COLOURS:
            caption += " Colours repeat, numbers do not."
        return caption

    def strips(self, features: Sequence[Feature]) -> list[Strip]:
        """Every feature with the clusters' centres."""
        return [
            strip(feature.name, feature.low, feature.high, values, self.clusters)
            for feature, values in zip(features, self.centres.T.tolist(), strict=True)
        ]

    @staticmethod
    def many(clusters: Sequence[Cluster]) -> bool:
        """Whether there are too many clusters to be numbered everywhere."""
        return len(clusters) > MOST_NUMBERED


def _page(kind: str, name: str, **values: Any) -> str:
    """A page of one kind, with what every page has."""
    return render(
        f"{kind}.html",
        title=f"{name}: {kind}",
        kind=kind,
        name=name,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        **values,
    )


# -- the server's page -----------------------------------------------------------------------------


def server_page(party: server_party.ServerParty) -> str:
    """The page of a server: the sum and the model, the rounds, the members, the log."""
    status, log, lists = party.status(), party.log(), party.lists()
    rounds = [entry for entry in log if entry["kind"] == "round"]
    recent = rounds[-MOST_ROUNDS:]
    return _page(
        "server",
        party.federation.name,
        identifier=party.federation.identifier,
        status=status,
        check=_server_check(party),
        picture=_picture_of_server(party) if status["clusters"] else None,
        features=party.counted_with.features,
        published_step=party.model_config.published_step,
        rounds=recent,
        left_out=len(rounds) - len(recent),
        chart=None if party.config.published_step is not None else _chart_of(recent),
        trouble=trouble(log)[-MOST_ROUNDS:],
        listed=lists[-1] if lists else None,
        epochs=_epochs(log),
    )


def _chart_of(rounds: Sequence[dict[str, Any]]) -> Columns:
    """How many bins of the sum each round has changed."""
    return columns(
        [int(entry["body"].get("changed_bins", 0)) for entry in rounds],
        [str(entry["body"]["round"]) for entry in rounds],
        ["c1" if entry["body"]["kind"] == "full" else "c0" for entry in rounds],
    )


def _server_check(party: server_party.ServerParty) -> Checked:
    """What an audit says."""
    try:
        result = party.audit()
    except LogError as error:
        return Checked(False, str(error))
    if result["problems"]:
        return Checked(False, "; ".join(result["problems"]))
    words = "the log's chain and signatures fit"
    if result["rounds"]:
        words += "; the model is the one that follows from the sum"
    return Checked(True, words)


def _picture_of_server(party: server_party.ServerParty) -> Picture:
    """The model among the bins of the sum; alone, where only the published one may be seen."""
    config, aggregate, model = party.model_config, party.aggregate(), party.model()
    bins, counts = aggregate.points(), aggregate.counts()
    marks, centres = config.centres_of(model)
    sizes = party.sizes()
    clusters = [Cluster(number, size) for number, size in enumerate(sizes)]
    if config.published_step is not None:
        numbers = np.arange(len(sizes), dtype=np.int32)
        return Picture(clusters, centres, marks, marks, np.array(sizes, dtype=np.int64), numbers)
    return Picture(
        clusters,
        centres,
        marks,
        config.grid.from_units(config.grid.units_of_bins(bins))[0],
        counts,
        nearest(config.coordinates_of(bins), model.centres)[0],
    )


def trouble(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Attempts that failed, and who was found out in those and in committed rounds."""
    rows: list[dict[str, Any]] = []
    for entry in log:
        body, failed = entry["body"], entry["kind"] == "failure"
        found = body.get("findings", []) if failed or entry["kind"] == "round" else []
        if not found and not failed:
            continue
        rows.append(
            {
                "round": body["round"],
                "attempt": body["attempt"],
                "time": entry["time"],
                "outcome": "failed" if failed else "committed",
                "participants": body["participants"],
                "named": sorted({name for one in found for name in one["members"]}),
                "found": "; ".join(str(one["text"]) for one in found) or "nobody can be named",
            }
        )
    return rows


def _epochs(log: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Who came and went, by the log."""
    rows: list[dict[str, Any]] = []
    before: dict[str, str] = {}
    for entry in (entry for entry in log if entry["kind"] in ("epoch", "recovery")):
        now = entry["body"]["members"]
        rows.append(
            {
                "epoch": entry["body"]["epoch"],
                "time": entry["time"],
                "came": [name for name in now if name not in before],
                "went": [name for name in before if name not in now],
                "new_keys": [name for name in now if before.get(name, now[name]) != now[name]],
                "suspended": entry["body"].get("suspended", []),
                "members": len(now),
            }
        )
        before = now
    return rows


# -- the client's page -----------------------------------------------------------------------------


def client_page(party: client_party.ClientParty) -> str:
    """The page of a client, fit to be sent to others."""
    status, federation = party.status(), party.federation
    if federation is None:
        return _page("client", party.name, federation=None, status=status)
    rules = party.reporting.rules
    everyone, picture = _clusters_of_client(party.reporting, party.cells())
    return _page(
        "client",
        party.name,
        federation=federation,
        status=status,
        check=_client_check(party, exact=rules.are_off),
        reported=None if rules.are_off else sum(cluster.size for cluster in everyone),
        smallest_shown=SMALLEST_SHOWN,
        everyone=everyone,
        n_small=sum(cluster.size < SMALLEST_SHOWN for cluster in everyone),
        picture=picture,
        requests=party.store.requests(),
        receipts=[_receipt(one, federation) for one in party.store.receipts()],
    )


def _client_check(party: client_party.ClientParty, *, exact: bool) -> Checked:
    """What an audit says, without the digests: few records could be guessed from theirs."""
    found = party.audit()
    if not found.passed:
        words = "the stored state is not the one that a fresh fit of the records gives"
        words = "; ".join([words] * (found.stored != found.fresh) + list(found.problems))
        return Checked(False, words)
    records = f"{grouped(found.records)} records" if exact else "records"
    words = f"the stored state is that of a fresh fit of the {records} held"
    return Checked(True, words)


def rounded_means(config: Configuration, clusters: Cells | Clusters) -> tuple[Floats, Floats]:
    """Means of local clusters in the clustered space and in the features' units, made coarse.

    Two pages from before and after a removal must not give the removed record away, which exact
    means would do.  The representatives themselves are of no use: they can be records.
    """
    grid = replace(config.grid, step=max(config.grid.step, FINEST_MEAN))
    # A cluster without records has no mean, and is never shown.
    units = clusters.sums / np.maximum(clusters.sizes, 1)[:, np.newaxis] / 2.0**FIXED_POINT_BITS
    return grid.from_units(grid.units_of_bins(grid.bins_of_units(units)))


def _clusters_of_client(
    config: Configuration, cells: Cells
) -> tuple[list[Cluster], Picture | None]:
    """A client's clusters, and a picture of those that are large enough to be drawn.

    Numbered from 1, in the order of the draw.  Lloyd's iteration may leave some without records.
    Under rules the page must hold no more than a report does.  There, sizes at one place are added
    up, and the largest is the first: nothing tells of clusters that were dissolved.
    """
    sizes, numbers = config.rules.rounded(cells.sizes), cells.kept + 1
    marks, centres = rounded_means(config, cells)
    if not config.rules.are_off:
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
    return everyone, Picture(drawn, centres, marks, marks, sizes[large], labels)


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
