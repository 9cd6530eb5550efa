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
from pathlib import Path
from typing import Any

import numpy as np

from fedforget import __version__
from fedforget.cli.console import console, plain_errors, safe, show
from fedforget.cli.page import (
    MOST_BINS,
    MOST_NUMBERED,
    N_COLOURS,
    Cluster,
    Html,
    columns,
    document,
    element,
    facts,
    figure,
    grouped,
    joined,
    key,
    moment,
    named,
    paragraph,
    plane,
    scatter,
    section,
    short,
    size_bars,
    strip,
    table,
    tiles,
)
from fedforget.clustering.distance import Floats, Labels, nearest
from fedforget.clustering.partition import FIXED_POINT_BITS
from fedforget.clustering.prf import Ints
from fedforget.configuration import Configuration
from fedforget.errors import FedforgetError
from fedforget.parties import client, receipts, server
from fedforget.parties.federation_file import Feature, FederationFile
from fedforget.parties.folders import write_private
from fedforget.parties.log import LogError
from fedforget.parties.store import Clusters, Request, StoredReceipt

SMALLEST_SHOWN = 5
"""Local clusters with fewer records than this are not drawn."""
FINEST_MEAN = 0.01
"""Means of local clusters are rounded to this part of the range, or to the grid if it is wider."""
MOST_ROUNDS = 100
_MOST_NAMES = 6


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
    if (folder / server.STORE).is_file():
        with server.open_server(folder) as one:
            return "server", server_page(one)
    if (folder / client.STORE).is_file():
        with client.open_client(folder) as other:
            return "client", client_page(other)
    raise FedforgetError(
        f"{folder} is neither a client's nor a server's directory"
        f" (it has no {client.STORE} and no {server.STORE})"
    )


# -- both ------------------------------------------------------------------------------------------


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


def _header(kind: str, name: str, subtitle: Html) -> Html:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return element(
        "header",
        paragraph(f"fedforget · {kind}", class_="kind"),
        element("h1", named(name)),
        paragraph(
            subtitle, " · made ", moment(now), f" by fedforget {__version__}", class_="muted"
        ),
    )


def _projection(picture: Picture) -> Html:
    """The clusters in the plane of most variance, and what the reader has to know about it."""
    mean, axes, shares = plane(picture.bins, picture.counts)
    drawn = scatter(
        (picture.bins - mean) @ axes.T,
        picture.counts,
        picture.labels,
        (picture.marks - mean) @ axes.T,
        picture.clusters,
    )
    caption = (
        f"Across and up: the two directions in which the bins differ most, with {shares[0]:.0%} and"
        f" {shares[1]:.0%} of their variance."
        if shares[1]
        else "Across: the one direction in which the bins differ."
    )
    caption += " The area of a circle is what a bin counts."
    if len(picture.bins) > MOST_BINS:
        caption += f" The {grouped(MOST_BINS)} largest bins are drawn."
    if len(picture.clusters) > N_COLOURS:
        caption += " Colours repeat, numbers do not."
    return element("figure", drawn, element("figcaption", caption))


def _beside(drawn: Html, clusters: Sequence[Cluster]) -> Html:
    """A picture with the clusters' sizes beside it, or below it if they are many."""
    many = len(clusters) > MOST_NUMBERED
    bars = element("div", element("h3", "Records"), size_bars(clusters))
    if many:
        return joined([element("div", drawn, class_="alone"), bars])
    return element("div", drawn, bars, class_="side")


def _profiles(picture: Picture, features: Sequence[Feature], explanation: str) -> Html:
    """Every feature as a strip, then the same as numbers."""
    strips = (
        strip(feature.name, feature.low, feature.high, values, picture.clusters)
        for feature, values in zip(features, picture.centres.T.tolist(), strict=True)
    )
    return section(
        "Profiles",
        paragraph(explanation, class_="muted"),
        element("div", *strips, class_="profiles"),
        _numbers(picture, features),
    )


def _numbers(picture: Picture, features: Sequence[Feature]) -> Html:
    """The centres as a table: a row for every feature, or for every cluster if they are many."""
    keys = [key(cluster) for cluster in picture.clusters]
    names = [named(feature.name) for feature in features]
    values, above, aside, corner = picture.centres.T, keys, names, "feature"
    if len(keys) > MOST_NUMBERED:
        values, above, aside, corner = picture.centres, names, keys, "cluster"
    rows = ([name, *map(figure, row)] for name, row in zip(aside, values.tolist(), strict=True))
    return element("div", table([corner, *above], rows, numbers=above), class_="numbers")


def _some(names: Sequence[str]) -> Html:
    """A few names, and how many more there are."""
    parts: list[Html | str] = []
    for name in names[:_MOST_NAMES]:
        parts += [", " if parts else "", named(name)]
    if len(names) > _MOST_NAMES:
        parts.append(f" and {grouped(len(names) - _MOST_NAMES)} more")
    return joined(parts or ["—"])


# -- the server's page -----------------------------------------------------------------------------


def server_page(party: server.ServerParty) -> str:
    """The page of a server: the sum and the model, the rounds, the members, the log."""
    status, log = party.status(), party.log()
    rounds = [entry for entry in log if entry["kind"] == "round"]
    federation = party.federation
    body = [
        _header("server", federation.name, joined([f"federation {federation.identifier}"])),
        tiles(
            [
                ("members", len(status["members"])),
                ("rounds committed", status["rounds_committed"]),
                ("records counted", status["records"]),
                ("bins of the sum", status["bins"]),
                ("clusters", status["clusters"]),
            ]
        ),
        facts(
            [
                ("model", element("code", status["model"] or "none yet: no round was run")),
                ("checked now", _server_check(party)),
                ("list's fingerprint", status["fingerprint"] or "nobody is enrolled"),
                *([("next round", "a full one")] if status["needs_full_round"] else []),
            ]
        ),
    ]
    if status["clusters"]:
        picture = _picture_of_server(party)
        body += [_server_clusters(picture), _server_profiles(picture, federation)]
    body += [_rounds(rounds), _trouble(log), _members(party, status), _epochs(log), _log(status)]
    return document(f"{federation.name}: server", body)


def _server_check(party: server.ServerParty) -> Html:
    """What an audit says."""
    try:
        result = party.audit()
    except LogError as error:
        return element("span", str(error), class_="bad")
    if result["problems"]:
        return element("span", "; ".join(result["problems"]), class_="bad")
    words = "the log's chain and signatures fit"
    if result["rounds"]:
        words += "; the model is the one that follows from the sum"
    return element("span", words, class_="good")


def _picture_of_server(party: server.ServerParty) -> Picture:
    """The model among the bins of the sum."""
    config, aggregate, model = party.config, party.aggregate(), party.model()
    bins, counts = aggregate.points(), aggregate.counts()
    marks, centres = config.centres_of(model)
    return Picture(
        [Cluster(number, size) for number, size in enumerate(party.sizes())],
        centres,
        marks,
        config.grid.from_units(config.grid.units_of_bins(bins))[0],
        counts,
        nearest(config.coordinates_of(bins), model.centres)[0],
    )


def _server_clusters(picture: Picture) -> Html:
    return section(
        "Clusters",
        paragraph(
            "The sum of what all members reported, and the model that follows from it; whose"
            " records a bin counts is not known here. Bins that count few records are drawn like"
            " all others: show this page to those who may see the sum."
        ),
        _beside(_projection(picture), picture.clusters),
    )


def _server_profiles(picture: Picture, federation: FederationFile) -> Html:
    words = "The clusters' centres, each feature between its public bounds and in its own units."
    return _profiles(picture, federation.features, words)


def _rounds(rounds: Sequence[dict[str, Any]]) -> Html:
    """The history, as bars and as a table with the newest round first."""
    if not rounds:
        return section("Rounds", paragraph("No round was committed yet."))
    recent = [entry["body"] for entry in rounds[-MOST_ROUNDS:]]
    colours = ["c1" if body["kind"] == "full" else "c0" for body in recent]
    drawn = columns(
        [int(body.get("changed_bins", 0)) for body in recent],
        [str(body["round"]) for body in recent],
        colours,
    )
    legend = (
        "Bins of the sum that a round changed: ",
        element("span", "full", class_="key c1"),
        " rounds count everybody anew, ",
        element("span", "delta", class_="key c0"),
        " rounds what changed.",
    )
    left_out = len(rounds) - len(recent)
    older = f" The {left_out} older rounds are in the log." if left_out else ""
    return section(
        "Rounds",
        element("figure", drawn, element("figcaption", *legend, older)),
        _round_table(rounds[-MOST_ROUNDS:]),
    )


def _round_table(rounds: Sequence[dict[str, Any]]) -> Html:
    numbers = ("changed bins", "seconds", "sent by a client", "attempts")
    headers = ("round", "committed", "kind", "participants", *numbers, "model after")
    return table(headers, map(_round_row, reversed(rounds)), ("round", *numbers))


def _round_row(entry: dict[str, Any]) -> list[str | int]:
    body = entry["body"]
    seconds, sent = body.get("seconds"), body.get("bytes_from_a_client")
    return [
        body["round"],
        moment(entry["time"]),
        body["kind"],
        _some(body["participants"]),
        body.get("changed_bins", "—"),
        "—" if seconds is None else f"{seconds:.2f}",
        "—" if sent is None else f"≤ {sent / 1e3:.1f} kB",
        body.get("attempts", "—"),
        short(body["model"]),
    ]


def _trouble(log: Sequence[dict[str, Any]]) -> Html:
    """Attempts that failed, and who was found out in those and in committed rounds."""
    rows: list[list[str | int]] = []
    for entry in log:
        body = entry["body"]
        found = body.get("findings", []) if entry["kind"] in ("round", "failure") else []
        if not found and entry["kind"] != "failure":
            continue
        failed = entry["kind"] == "failure"
        texts = "; ".join(str(one["text"]) for one in found) or "nobody can be named"
        people = _some(sorted({name for one in found for name in one["members"]}))
        rows.append(
            [
                body["round"],
                body["attempt"],
                moment(entry["time"]),
                "failed" if failed else "committed",
                _some(body["participants"]),
                people,
                texts,
            ]
        )
    if not rows:
        return section("Failures and findings", paragraph("None."))
    recent = rows[-MOST_ROUNDS:]
    headers = ("round", "attempt", "time", "outcome", "participants", "named", "what was found")
    words = "Where two members are named, one of the two is at fault."
    shown = table(headers, reversed(recent), ("round", "attempt"))
    return section("Failures and findings", paragraph(words, class_="muted"), shown)


def _members(party: server.ServerParty, status: dict[str, Any]) -> Html:
    lists = party.lists()
    if not lists:
        return section("Members", paragraph("Nobody is enrolled yet."))
    listed, counted = lists[-1], status["counted"]
    rows = [
        (
            named(one.name),
            short(one.key.hex()),
            "suspended" if one.suspended else "takes part",
            counted.get(one.name, "not yet"),
        )
        for one in listed.members
    ]
    gone = [name for name in counted if name not in listed]
    words = f"Epoch {listed.epoch}. Compare the fingerprint {listed.fingerprint} by telephone."
    extra = [paragraph("Still counted, though no longer a member: ", _some(gone))] if gone else []
    headers = ("member", "public key", "state", "counted as of round")
    return section("Members", paragraph(words), *extra, table(headers, rows, headers[3:]))


def _epochs(log: Sequence[dict[str, Any]]) -> Html:
    """Who came and went, by the log."""
    rows: list[list[str | int]] = []
    before: dict[str, str] = {}
    for entry in (entry for entry in log if entry["kind"] in ("epoch", "recovery")):
        now = entry["body"]["members"]
        came = [name for name in now if name not in before]
        went = [name for name in before if name not in now]
        changed = [name for name in now if name in before and before[name] != now[name]]
        number = entry["body"]["epoch"]
        suspended = entry["body"].get("suspended", [])
        people = [_some(some) for some in (came, went, changed, suspended)]
        rows.append([number, moment(entry["time"]), *people, len(now)])
        before = now
    if not rows:
        return section("Epochs", paragraph("None yet."))
    headers = ("epoch", "began", "came", "went", "new keys", "suspended", "members")
    return section("Epochs", table(headers, reversed(rows), ("epoch", "members")))


def _log(status: dict[str, Any]) -> Html:
    head = status["log_head"]
    return section(
        "Log",
        paragraph(
            f"{grouped(status['log_entries'])} entries. Whoever keeps the digest of the last one"
            " can tell later whether anything before it was rewritten.",
            class_="muted",
        ),
        facts([("head", element("code", head or "empty"))]),
    )


# -- the client's page -----------------------------------------------------------------------------


def client_page(party: client.ClientParty) -> str:
    """The page of a client, fit to be sent to others."""
    status = party.status()
    federation = party.federation
    if federation is None:
        words = paragraph("This client has not joined a federation yet.")
        return document(
            f"{party.name}: client",
            [_header("client", party.name, Html("no federation")), section("Status", words)],
        )
    stored = party.store.clusters(len(federation.features))
    of = joined(["of the federation ", named(federation.name), f", epoch {status['epoch']}"])
    body = [
        _header("client", party.name, of),
        element("p", _PRIVACY, class_="note"),
        tiles(
            [
                ("records", status["records"]),
                ("local clusters", status["clusters"]),
                ("last round", status["last_committed_round"] or "—"),
                ("requests waiting", status["requests_waiting"]),
                ("receipts", status["receipts"]),
            ]
        ),
        facts(_client_facts(party, status)),
    ]
    if len(stored.sizes):
        body += _local_clusters(party.config, stored, federation)
    body += [_waiting(party.store.requests()), _receipts(party, federation)]
    return document(f"{party.name}: client", body)


_PRIVACY = (
    "This page can be sent to others: it holds no record's id, no record's values and no keys."
    " Means are rounded to the federation's grid, to a hundredth of the range at the finest;"
    f" the means of clusters with fewer than {SMALLEST_SHOWN} records are left out."
)


def _client_facts(party: client.ClientParty, status: dict[str, Any]) -> list[tuple[str, str]]:
    counted = status["counted_in_round"]
    found = [
        ("counted", f"as of round {counted}" if counted else "not yet"),
        ("audit, now", _client_check(party)),
    ]
    if status["keeps_last_committed_histogram"]:
        words = "the last committed histogram is kept until the next round commits"
        found.append(("waiting", words))
    if status["fingerprint"]:
        found.append(("list's fingerprint", status["fingerprint"]))
    if status["suspended"]:
        found.append(("suspended", "the list lets this client take no part; it stays counted"))
    if status["left"]:
        found.append(("left", "this client has left, and takes no part any more"))
    elif status["leaving"]:
        found.append(("leaving", "all records are erased; a later round takes this client out"))
    return found


def _client_check(party: client.ClientParty) -> Html:
    """What an audit says, without the digests: few records could be guessed from theirs."""
    found = party.audit()
    if not found.passed:
        words = "the stored state is not the one that a fresh fit of the records gives"
        words = "; ".join([words] * (found.stored != found.fresh) + list(found.problems))
        return element("span", words, class_="bad")
    words = f"the stored state is that of a fresh fit of the {grouped(found.records)} records held"
    return element("span", words, class_="good")


def rounded_means(config: Configuration, clusters: Clusters) -> tuple[Floats, Floats]:
    """Means of local clusters in the clustered space and in the features' units, made coarse.

    Two pages from before and after a removal must not give the removed record away, which exact
    means would do.  The representatives themselves are of no use: they can be records.
    """
    grid = replace(config.grid, step=max(config.grid.step, FINEST_MEAN))
    units = clusters.sums / clusters.sizes[:, np.newaxis] / 2.0**FIXED_POINT_BITS
    return grid.from_units(grid.units_of_bins(grid.bins_of_units(units)))


def _local_clusters(
    config: Configuration, stored: Clusters, federation: FederationFile
) -> list[Html]:
    """The sections on a client's clusters; they are numbered from 1, in the order of the draw."""
    everyone = [Cluster(number, int(size)) for number, size in enumerate(stored.sizes, 1)]
    large = stored.sizes >= SMALLEST_SHOWN
    words = "Numbered in the order in which their seeds were drawn."
    if not large.all():
        words += f" {int((~large).sum())} with fewer than {SMALLEST_SHOWN} records are not drawn."
    if not large.any():
        return [section("Local clusters", paragraph(words), size_bars(everyone))]
    marks, centres = rounded_means(config, stored)
    drawn = [cluster for cluster, fits in zip(everyone, large, strict=True) if fits]
    labels = np.array([cluster.number for cluster in drawn], dtype=np.int32)
    sizes = stored.sizes[large]
    picture = Picture(drawn, centres[large], marks[large], marks[large], sizes, labels)
    side = _beside(_projection(picture), everyone)
    explanation = (
        "The clusters' rounded means, each feature between its public bounds and in its own units."
    )
    return [
        section("Local clusters", paragraph(words, class_="muted"), side),
        _profiles(picture, federation.features, explanation),
    ]


def _waiting(requests: Sequence[Request]) -> Html:
    if not requests:
        return section("Requests waiting", paragraph("None."))
    rows = [
        (
            one.name,
            moment(one.time),
            one.records,
            _redrawn(one.digests, one.reseeded),
            "for the next round" if one.attempt is None else f"for attempt {one.attempt}",
        )
        for one in requests
    ]
    headers = ("request", "asked", "records erased", "seeds", "waits")
    words = "The records are erased here already; the model follows when a round commits."
    shown = table(headers, rows, ("records erased",))
    return section("Requests waiting", paragraph(words, class_="muted"), shown)


def _redrawn(digests: Sequence[str] | None, reseeded: int | None) -> str:
    """What became of the seeds; there are no digests where everything was erased."""
    if digests is None:
        return "all erased"
    return "all stand" if reseeded is None else f"drawn again from {reseeded}"


def _receipts(party: client.ClientParty, federation: FederationFile) -> Html:
    found = party.store.receipts()
    if not found:
        return section("Receipts", paragraph("None yet."))
    before_models = ("request", "asked", "records erased", "seeds", "round")
    headers = (*before_models, "model before", "model after", "checked now")
    rows = (_receipt_row(one, federation) for one in reversed(found))
    words = "Each one can be checked by others with fedforget verify and the federation file."
    shown = table(headers, rows, ("records erased", "round"))
    return section("Receipts", paragraph(words, class_="muted"), shown)


def _receipt_row(stored: StoredReceipt, federation: FederationFile) -> list[str | int]:
    document = json.loads(stored.document)
    request = document["request"]
    try:
        proof = receipts.verify(document, federation)
    except receipts.ReceiptError as error:
        models: tuple[str | Html, ...] = ("—", "—")
        verdict = element("span", str(error), class_="bad")
    else:
        models = short(proof.model_before), short(proof.model_after)
        verdict = element("span", "; ".join(["valid", *proof.remarks]), class_="good")
    return [
        stored.name,
        moment(request["time"]),
        request["records"],
        _redrawn(request["digests"], request["seeds_drawn_again_from"]),
        document["round"],
        *models,
        verdict,
    ]
