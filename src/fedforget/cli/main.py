"""``fedforget``: the commands.  Heavy modules are imported by the command that needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedforget import __version__
from fedforget.cli import bench, client_commands, flower, server_commands
from fedforget.cli.json_errors import JsonErrors
from fedforget.cli.json_option import Json
from fedforget.cli.schedule_options import At, Every, FirstWait, Full, Log, RoundLimit, Tries

app = typer.Typer(
    cls=JsonErrors,
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
    full: Full = False,
    every: Every = None,
    at: At = None,
    wait: Annotated[
        str, typer.Option(help="How long to wait for a directory that is in use, such as 10m.")
    ] = "0s",
    tries: Tries = None,
    rounds: RoundLimit = None,
    first_wait: FirstWait = "1m",
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Run one round of the secure sum over directories of this machine, or rounds on a schedule.

    The first round is a full one of everybody; later ones sum up what changed. A round that was cut
    off is finished or repeated by the next one; nothing is lost or counted twice. The command says
    who refused to take part and why, and who spoiled an attempt, as far as that can be told.

    With `--every` or `--tries`, a member whose directory is broken, full or not up to date is left
    out where the rules allow it. A round that came to nothing is tried again, each time after a
    longer wait. A round that the rules refuse is not repeated before a directory has changed. In
    the night in which the clock skips `--at`, the round comes an hour later by the clock. In the
    night in which that time comes twice, it comes once. SIGTERM ends the command between two
    stages. The exit status is 0 if no round is due, 3 if one is due and may come by itself, 4 if
    somebody must act first (the message says how), and 1 after an error.

    Example: `fedforget round server/ aarhus/ bologna/ coimbra/ --every 24h --at 02:30 --wait 10m`
    """
    if every is None and at is None and tries is None and log is None and rounds is None:
        from fedforget.cli.round_command import run_round

        run_round(server, clients, full, as_json, wait)
        return
    from fedforget.cli.round_command import scheduled_rounds
    from fedforget.cli.schedule_command import Wishes, run_schedule

    wishes = Wishes(every, at, tries, rounds, first_wait, log, as_json)
    run_schedule(scheduled_rounds(server, clients, full, wait), wishes)


@app.command()
def units(
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write the units to.")],
    server: Annotated[
        Path | None, typer.Option(help="The server's directory, if it is on this machine.")
    ] = None,
    clients: Annotated[
        list[Path] | None, typer.Option(help="A client's directory; repeat for each.")
    ] = None,
    app_folder: Annotated[
        Path | None,
        typer.Option("--app", help="Flower's app folder; without it rounds run over directories."),
    ] = None,
    every: Annotated[str, typer.Option(help="How often a round comes.")] = "24h",
    at: Annotated[
        str | None, typer.Option(help="At which time of the local clock, such as 02:30.")
    ] = None,
    superlink: Annotated[
        str, typer.Option(help="HOST:PORT of the centre's gate, for SuperNodes.")
    ] = "127.0.0.1:9092",
    user: Annotated[str, typer.Option(help="The account of all services.")] = "fedforget",
    metrics: Annotated[
        Path | None, typer.Option(help="A folder for Prometheus' files, such as the collector's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the files as JSON.")] = False,
) -> None:
    """Write services and timers of systemd, hardened, for a centre, a site, or both.

    With `--app` there are a SuperLink and a gate at the centre, and one SuperNode per client at a
    site. Timers start the rounds, and an hourly check of what is overdue. A service that fails
    calls `fedforget-alarm@.service`, which is the place for a mail. Output goes to journald, which
    rotates it. INSTALL.txt says how to install all of it.

    Example: `fedforget units --server /var/lib/fedforget/server --app /srv/fedforget/app
    --every 24h --at 02:30 -o units/`
    """
    from fedforget.cli.units import make_units

    make_units(out, server, clients or [], app_folder, every, at, superlink, user, metrics, as_json)


@app.command()
def verify(
    receipt: Annotated[Path, typer.Argument(help="The receipt, a JSON file.")],
    federation: Annotated[Path, typer.Option(help="The federation file.")],
    ids_file: Annotated[
        Path | None, typer.Option(help="A file of ids, one per line: which of them does it cover?")
    ] = None,
    salt: Annotated[str | None, typer.Option(help="The salt of the request, hexadecimal.")] = None,
    ids_as_is: Annotated[
        bool, typer.Option("--ids-as-is", help="Accept ids that could be mistaken for others.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a receipt: what it proves, and what it does not. Exit status 0 or 1.

    Example: `fedforget verify receipt-1.json --federation federation.toml`
    """
    from fedforget.cli.given_files import verify_receipt

    verify_receipt(receipt, federation, ids_file, salt, as_json, ids_as_is=ids_as_is)


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
