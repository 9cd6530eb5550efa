"""Options for the values of a federation file, which `server init` and `server amend` share.

A value that `init` has by default may be left out of `amend`, where it stays as it is; so the
types of an option can differ, and its name and words do not.
"""

from __future__ import annotations

from typing import Annotated

import typer

CLUSTERS = typer.Option("--clusters", help="Number of clusters K.")
STEP = typer.Option("--step", help="Width of a grid bin, as a fraction of the range.")
N_INIT = typer.Option("--n-init", help="Restarts at the server.")
MAX_ITER = typer.Option("--max-iter", help="The most iterations of a restart.")
DROPOUT = typer.Option("--dropout", help="Share of the members that may be away in a round.")
COLLUDING = typer.Option("--colluding", help="Share of the members that may side with the server.")
MINIMUM = typer.Option(
    "--minimum", help="Fewest members whose inputs may be summed up; at least 2."
)
DEADLINE = typer.Option("--deadline", help="Seconds that a stage may last.")

MinCell = Annotated[
    int | None, typer.Option(help="Fewest records of a cluster that a client reports.")
]
MinRecords = Annotated[
    int | None, typer.Option(help="A client with fewer records reports nothing.")
]
CountStep = Annotated[int | None, typer.Option(help="Clients round sizes to multiples of this.")]
