"""``client labels``: each record's cluster, numbered as the model or an earlier one does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedforget.cli.console import console, plain_errors, safe, show
from fedforget.cli.given_files import read_model, read_numbers
from fedforget.cli.numbering import Changed, Earlier
from fedforget.cli.words import TABLES, check_ending, write_table
from fedforget.parties.client_party import open_client


def write_labels(
    folder: Path,
    model: Path,
    like: Path | None,
    out: Path,
    as_json: bool,
    *,
    key: str,
    id_column: str | None,
) -> None:
    """Write the labels; with ``like``, say how far clusters moved and who has another number."""
    changed: Changed | None = None
    with plain_errors():
        check_ending(out, *TABLES, ".h5ad")
    with plain_errors(), open_client(folder) as party:
        federation = party.joined()
        names = federation.feature_names
        centres = read_model(model, names)
        numbers = read_numbers(model, len(centres), names)
        if like is not None:
            earlier = Earlier.read(like, federation)
            numbering = earlier.numbering(centres)
            numbers = numbering.numbers
        # A record between two clusters goes to the lower number, however the file is ordered.
        order = np.argsort(numbers)
        ids, found = party.labels(party.config.grid.to_clustered(centres[order]))
        places = order[found]
        if like is not None:
            before = earlier.labels(party.clustered_records())
            weights = np.ones(len(ids), dtype=np.int64)
            changed = Changed.of(numbering, before, places, weights)
        labels = numbers[places].astype(np.int32)
        result: dict[str, Any] = {"records": len(ids), "file": str(out)}
        if out.suffix.lower() == ".h5ad":
            from fedforget.cli.cell_labels import write_cell_labels

            highest = int(numbers.max()) + 1
            done = write_cell_labels(out, ids, labels, highest, key=key, id_column=id_column)
            result |= {"key": key, **done._asdict()}
        else:
            write_table(out, {"id": ids, "cluster": labels})
    if changed is not None:
        result |= changed.plain()

    def in_words() -> None:
        if changed is not None:
            changed.show()
        written = result.get("labelled", result["records"])
        console.print(f"{written} labels written to [bold]{safe(out)}[/]", soft_wrap=True)
        if result.get("without"):
            console.print(f"{result['without']} cells of the file are not held here.")
        if result.get("elsewhere"):
            console.print(f"{result['elsewhere']} records are not cells of the file.")

    show(result, as_json, in_words)
