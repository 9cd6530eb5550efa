"""``fedforget``: the commands.  Heavy modules are imported by the command that needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget import __version__

app = typer.Typer(
    help="Cluster data that may not be pooled, and forget records that may not be kept.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    # A traceback must never print the values of variables: they may be records or secrets.
    pretty_exceptions_show_locals=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedforget {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the picture; made if it does not exist.")
    ] = Path("demo-output"),
    seed: Annotated[int, typer.Option(help="Seed of the split and of the model.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Hospitals cluster their patients together, then forget some of them.

    Real clinical records (569 patients of the Wisconsin diagnostic breast cancer study, which ship
    with scikit-learn) are split unevenly over five hospitals. Patients are forgotten, a hospital
    leaves, new patients arrive. After each step the model is compared, bit for bit, with a fresh
    fit on what is left.

    Example: `fedforget demo --out /tmp/demo --json`
    """
    from fedforget.cli.demo import run_demo

    run_demo(out, seed, as_json)


@app.command("warm-up")
def warm_up() -> None:
    """Compile the numerical kernels and cache them, so that later commands start at once.

    Example: `fedforget warm-up`
    """
    from fedforget.cli.console import warm_up_kernels

    warm_up_kernels()
