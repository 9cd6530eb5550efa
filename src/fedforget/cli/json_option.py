"""The option that prints a command's result for a script."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
