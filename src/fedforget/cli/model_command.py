"""``server model``: the centroids, with any number of clusters and numbered as one likes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fedforget.arrays import Floats, Ints
from fedforget.cli.console import console, messages, plain_errors, safe, show
from fedforget.cli.given_files import NUMBERS, SIZES
from fedforget.cli.numbering import Changed, Earlier
from fedforget.cli.words import fewer_in_words, write_table
from fedforget.errors import FedforgetError
from fedforget.modelling import model_of, sizes_of
from fedforget.parties.server_party import ServerError, ServerParty, open_server

MOST_SHOWN = 6


@dataclass(frozen=True)
class Exported:
    """A model as it leaves the server, in the model's own order."""

    digest: str
    clustered: Floats
    centres: Floats
    sizes: Ints


def exported(party: ServerParty, clusters: int | None) -> Exported:
    """The federation's model, or that of the same aggregate with another number of clusters."""
    config, model = party.model_config, party.model()
    if clusters is None or clusters == config.n_clusters:
        clustered, centres = config.centres_of(model)
        sizes = sizes_of(config, party.aggregate(), model)
        return Exported(party.status()["model"], clustered, centres, sizes)
    if clusters < 1:
        raise ServerError(f"--clusters must be at least 1, got {clusters}")
    own, aggregate = replace(config, n_clusters=clusters), party.aggregate()
    other = model_of(own, aggregate)
    sizes, least = sizes_of(own, aggregate, other), config.rules.min_cell
    small = int(np.count_nonzero(sizes < least))
    if small:
        raise ServerError(
            f"with {clusters} clusters, {small} have fewer than {least} records, and the rules of"
            " this federation do not show such clusters: choose fewer clusters (server choose)"
        )
    return Exported(own.model_digest(aggregate, other), *own.centres_of(other), sizes)


def _changed(party: ServerParty, like: Path, model: Exported) -> Changed:
    """How clusters moved, and how many records have another number by the counts of the sum."""
    earlier = Earlier.read(like, party.counted_with)
    config, aggregate = party.model_config, party.aggregate()
    points = config.clustered_of(aggregate.points())
    from fedforget.clustering.distance import nearest

    numbering = earlier.numbering(model.centres)
    # A point between two clusters goes to the lower number, as in a file in this order.
    order = np.argsort(numbering.numbers)
    return Changed.of(
        numbering,
        earlier.labels(points),
        order[nearest(points, model.clustered[order])[0]],
        aggregate.counts(),
        config.rules.min_cell,
    )


def export_model(
    folder: Path, out: Path | None, clusters: int | None, like: Path | None, as_json: bool
) -> None:
    """Show the centroids, and write them where asked."""
    changed: Changed | None = None
    with plain_errors(), open_server(folder) as party:
        model = exported(party, clusters)
        names = party.counted_with.feature_names
        numbers = np.arange(len(model.centres))
        columns: dict[str, Any] = {}
        if like is not None:
            changed = _changed(party, like, model)
            numbers = changed.numbering.numbers
        order = np.argsort(numbers)
        numbers, centres, sizes = numbers[order], model.centres[order], model.sizes[order].tolist()
        if like is not None and NUMBERS not in names:
            columns[NUMBERS] = numbers
        elif (numbers != np.arange(len(numbers))).any():
            raise FedforgetError(
                f"a feature is named {NUMBERS!r}, so a file has no column for the clusters'"
                " numbers; number them by hand"
            )
        if out is not None:
            columns = {SIZES: sizes, **columns, **dict(zip(names, centres.T, strict=True))}
            write_table(out, columns)
        own_number = party.model_config.n_clusters
    wanted = own_number if clusters is None else clusters
    result = {
        "model": model.digest,
        "wanted": wanted,
        "found": len(centres),
        "features": names,
        "centroids": centres.tolist(),
        "sizes": sizes,
        "file": None if out is None else str(out),
    }
    if changed is not None:
        result |= {"clusters": numbers.tolist(), **changed.plain()}

    def in_words() -> None:
        shown = Table(title=f"{len(centres)} clusters, model {model.digest[:12]}…")
        more = ["…"] * (len(names) > MOST_SHOWN)
        for column in ("cluster", "records", *names[:MOST_SHOWN], *more):
            shown.add_column(safe(column), justify="right")
        for number, size, centre in zip(numbers.tolist(), sizes, centres, strict=True):
            cells = [f"{value:.4g}" for value in centre[:MOST_SHOWN]]
            shown.add_row(str(number), str(size), *cells, *more)
        console.print(shown)
        if clusters not in (None, own_number):
            console.print(
                f"The federation's own model has {own_number} clusters; this one is computed from"
                " the same sum and is not stored.",
                soft_wrap=True,
            )
        if changed is not None:
            changed.show()
        if out is not None:
            console.print(f"Written to [bold]{safe(out)}[/bold]", soft_wrap=True)

    show(result, as_json, in_words)
    if len(centres) < wanted:
        messages.print(f"[yellow]{fewer_in_words([wanted], len(centres))}[/]", soft_wrap=True)
