"""The options of ``round`` and ``flower round`` that say when rounds come."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Full = Annotated[
    bool, typer.Option("--full", help="Count everybody afresh instead of only what changed.")
]
Every = Annotated[
    str | None,
    typer.Option(help="Stay, and run a round at this interval: 24h, 7d, 30m."),
]
At = Annotated[
    str | None,
    typer.Option(help="With --every: at this time of the local clock, such as 02:30."),
]
Tries = Annotated[
    int | None,
    typer.Option(min=1, help="Most tries for one round; no limit with --every, otherwise one."),
]
RoundLimit = Annotated[
    int | None, typer.Option(min=1, help="With --every: end after this many rounds.")
]
FirstWait = Annotated[
    str, typer.Option(help="Wait before the second try; doubled each time, up to an hour.")
]
Log = Annotated[
    Path | None,
    typer.Option(help="With --every or --tries: write what happens to this file; it rotates."),
]
