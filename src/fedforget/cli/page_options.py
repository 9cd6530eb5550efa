"""The options of ``server page`` and ``client page``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PORT = 8731

Serve = Annotated[bool, typer.Option("--serve", help="Serve the page live, until Ctrl-C.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Without --serve: the page to write.")]
PageAddress = Annotated[
    str, typer.Option(help="Where to serve it; anywhere except on loopback needs a token.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any port that is free.")]
Token = Annotated[
    bool, typer.Option("--token", help="Require a token on loopback, too, because of other users.")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="Write the token to this file, instead of printing it.")
]
HostNames = Annotated[
    list[str] | None,
    typer.Option("--name", help="A name of this machine that browsers may use for the page."),
]
REPORT = Path("report.html")


def page_help(shown: str, example: str) -> str:
    """The help of a command that shows a page."""
    return f"{shown}\n\n{_LIVE}\n\nExample: `{example}`"


_LIVE = """\
With `--serve` the page is live: it follows the directory without being reloaded, even while a
round runs, and never locks or changes it. It is served on this machine alone; elsewhere, and
with `--token`, a browser needs the token that this command makes. Without `--serve` the page is
written to a file, as by `fedforget report`."""
