"""``fedforget``: the commands.  Heavy modules are imported by the command that needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget import __version__
from fedforget.cli import bench, client_commands, flower, server_commands

app = typer.Typer(
    help="Cluster data that may not be pooled, and forget records that may not be kept.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    # A traceback must never print the values of variables: they may be records or secrets.
    pretty_exceptions_show_locals=False,
)
app.add_typer(server_commands.app, name="server")
app.add_typer(client_commands.app, name="client")
app.add_typer(flower.app, name="flower")
app.add_typer(bench.app, name="bench")
app.command()(flower.simulate)


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
    from fedforget.cli.console import plain_errors
    from fedforget.cli.extras import check_extra

    with plain_errors():
        check_extra("bench", "demo")
    from fedforget.cli.demo import run_demo

    run_demo(out, seed, as_json)


@app.command("round")
def round_(
    server: Annotated[Path, typer.Argument(help="The server's directory.")],
    clients: Annotated[list[Path], typer.Argument(help="The clients' directories.")],
    full: Annotated[
        bool, typer.Option("--full", help="Count everybody anew instead of what changed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run one round of the secure sum over directories of this machine.

    The first round is a full one of everybody, later ones sum up what changed. A round that was
    cut off is finished or repeated by the next one; nothing is lost or counted twice. The command
    says who refused to take part and why, and who spoiled an attempt, as far as that can be told.

    Example: `fedforget round server/ aarhus/ bologna/ coimbra/`
    """
    from fedforget.cli.round_command import run_round

    run_round(server, clients, full, as_json)


@app.command()
def verify(
    receipt: Annotated[Path, typer.Argument(help="The receipt, a JSON file.")],
    federation: Annotated[Path, typer.Option(help="The federation file.")],
    ids_file: Annotated[
        Path | None, typer.Option(help="A file of ids, one per line: which of them does it cover?")
    ] = None,
    salt: Annotated[str | None, typer.Option(help="The salt of the request, hexadecimal.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check a receipt: what it proves, and what it does not. Exit status 0 or 1.

    Example: `fedforget verify receipt-1.json --federation federation.toml`
    """
    from fedforget.cli.given_files import verify_receipt

    verify_receipt(receipt, federation, ids_file, salt, as_json)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A client's or the server's directory.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path(
        "report.html"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print where it is as JSON.")] = False,
) -> None:
    """Draw a directory as one self-contained HTML page.

    Example: `fedforget report server/ -o report.html`
    """
    from fedforget.cli.directory_page import write_report

    write_report(folder, out, as_json)


@app.command("warm-up")
def warm_up() -> None:
    """Compile the numerical kernels and keep them, so that later commands start at once.

    Example: `fedforget warm-up`
    """
    from fedforget.cli.console import warm_up_kernels

    warm_up_kernels()
