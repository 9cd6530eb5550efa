"""``client requests`` and ``client receipts``: what was asked for, and what proves it done."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.table import Table

from fedforget.cli.console import console, number_of, plain_errors, safe, show
from fedforget.parties.client_party import WrittenReceipt, open_client


def show_requests(folder: Path, as_json: bool) -> None:
    """List the requests of a client, with their salts."""
    with plain_errors(), open_client(folder) as party:
        found, waits = party.requests(), party.waits_for_approval()

    def in_words() -> None:
        for one in found:
            what = f"{number_of(one['records'], 'record')}, asked on {safe(one['time'])}"
            console.print(
                f"Request {safe(one['request'])}: {what}; {safe(one['state'])}.", soft_wrap=True
            )
            if one["salt"]:
                console.print(f"  salt [bold]{safe(one['salt'])}[/bold]")
        if not found:
            console.print("No request waits, and every receipt was written out.")
        if waits:
            console.print(
                "What the next round would take waits for client approve, as policy.toml asks; so"
                " do requests.",
                soft_wrap=True,
            )

    show({"requests": found, "waits_for_approval": waits}, as_json, in_words)


def show_receipts(folder: Path, out: Path | None, as_json: bool) -> None:
    """List the receipts of a client, or write them out and erase their salts."""

    def tell(written: list[WrittenReceipt]) -> None:
        files = [
            {"file": str(one.path), "request": one.request, "salt": one.salt} for one in written
        ]
        found = {one.name: json.loads(one.document) for one, _ in party.receipts()}

        def in_words() -> None:
            table = Table(box=None)
            for column in ("request", "asked", "records", "round"):
                table.add_column(column, justify="right")
            for name, one in found.items():
                request = one["request"]
                cells = (name, request["time"], request["records"], one["round"])
                table.add_row(*map(safe, cells))
            console.print(table if found else "No receipts yet.")
            for one in written:
                console.print(f"Written to [bold]{safe(one.path)}[/bold]", soft_wrap=True)
                if one.salt:
                    console.print(f"  salt [bold]{safe(one.salt)}[/bold]", soft_wrap=True)
            if any(one.salt for one in written):
                console.print(
                    "The salts are shown here for the last time, and are now erased: keep each one"
                    " with its request.",
                    soft_wrap=True,
                )

        show({"receipts": list(found.values()), "files": files}, as_json, in_words)
        # What could not be shown must not be erased.
        sys.stdout.flush()

    with plain_errors(), open_client(folder) as party:
        if out is None:
            tell([])
        else:
            party.write_receipts(out, tell)
