"""``fedforget report``: a client's or a server's directory as one page to read, print or send."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedforget import __version__
from fedforget.cli.client_page import SMALLEST_SHOWN, client_values, rounded_means
from fedforget.cli.console import console, plain_errors, safe, show
from fedforget.cli.log_rows import trouble
from fedforget.cli.server_page import server_values
from fedforget.errors import FedforgetError
from fedforget.pages.templates import render
from fedforget.parties.client_party import ClientParty
from fedforget.parties.folders import write_private
from fedforget.parties.reading import PartyKind, check_readable, kind_of, read_client, read_server
from fedforget.parties.server_party import ServerParty

__all__ = ["SMALLEST_SHOWN", "report_of", "rounded_means", "trouble", "write_report"]


def write_report(folder: Path, out: Path, as_json: bool) -> None:
    """Write the page of a directory, over an older one if there is one."""
    with plain_errors():
        if out.suffix.lower() not in (".html", ".htm"):
            raise FedforgetError(f"{out}: the file name must end in .html")
        kind, page = report_of(folder)
        # Private, because it may lie in a party's directory, where all files have to be.
        write_private(out, page.encode())
    result = {"report": str(out), "kind": kind, "bytes": len(page.encode())}
    show(
        result,
        as_json,
        lambda: console.print(f"The {kind}'s report: [bold]{safe(out)}[/bold]", soft_wrap=True),
    )


def report_of(folder: Path) -> tuple[PartyKind, str]:
    """What a directory is, ``"server"`` or ``"client"``, and its page.

    The directory is not locked: a round may be under way, and the page shows what it began with.
    """
    kind = kind_of(folder)
    check_readable(folder, kind)
    if kind == "server":
        with read_server(folder) as one:
            return kind, server_page(one)
    with read_client(folder) as other:
        return kind, client_page(other)


def server_page(party: ServerParty) -> str:
    """The page of a server."""
    return page_of("server", server_values(party))


def client_page(party: ClientParty) -> str:
    """The page of a client, fit to be sent to others."""
    return page_of("client", client_values(party))


def page_of(kind: PartyKind, values: dict[str, Any], live: dict[str, Any] | None = None) -> str:
    """A page of one kind, with what every page has.

    ``live`` is what only a live page knows; without it, the page is a whole document that needs
    nothing else.
    """
    now = datetime.now(UTC)
    return render(
        f"{kind}.html",
        shell="base.html" if live is None else "bare.html",
        title=f"{values['name']}: {kind}",
        kind=kind,
        now=now,
        made=now.isoformat(timespec="seconds"),
        version=__version__,
        live=live,
        **values,
    )
