"""``client labels``: each record's cluster, numbered as the model or an earlier one does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedforget.cli.console import console, plain_errors, safe, show
from fedforget.cli.given_files import read_centroids, read_numbers
from fedforget.cli.numbering import Changed, Earlier
from fedforget.cli.words import write_table
from fedforget.parties.client_party import open_client
from fedforget.parties.errors import ClientError


def write_labels(folder: Path, model: Path, like: Path | None, out: Path, as_json: bool) -> None:
    """Write the labels; with ``like``, say how far clusters moved and who has another number."""
    changed: Changed | None = None
    with plain_errors(), open_client(folder) as party:
        if party.federation is None:
            raise ClientError("this client has not joined a federation: run client join first")
        names = party.federation.feature_names
        centres = read_centroids(model, names)
        numbers = read_numbers(model, len(centres), names)
        ids, places = party.labels(party.config.grid.to_clustered(centres))
        if like is not None:
            earlier = Earlier.read(like, party.federation)
            numbering = earlier.numbering(centres)
            before = earlier.labels(party.clustered_records())
            weights = np.ones(len(ids), dtype=np.int64)
            changed, numbers = Changed.of(numbering, before, places, weights), numbering.numbers
        write_table(out, {"id": ids, "cluster": numbers[places]})
    result: dict[str, Any] = {"records": len(ids), "file": str(out)}
    if changed is not None:
        result |= changed.plain()

    def in_words() -> None:
        if changed is not None:
            changed.show()
        console.print(f"{len(ids)} labels written to [bold]{safe(out)}[/]", soft_wrap=True)

    show(result, as_json, in_words)
