"""The options of ``server page`` and ``client page``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PORT = 8731

Serve = Annotated[bool, typer.Option("--serve", help="Serve the page live, until Ctrl-C.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Without --serve: the page to write.")]
Address = Annotated[
    str, typer.Option(help="Where to serve it; anywhere except on loopback needs a token.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any port that is free.")]
Token = Annotated[
    bool, typer.Option("--token", help="Require a token on loopback, too, because of other users.")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="Write the token to this file, instead of printing it.")
]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="A name of this machine that browsers may use for the page."),
]
REPORT = Path("report.html")
