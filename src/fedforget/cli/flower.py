"""``fedforget flower`` and ``fedforget simulate``: rounds over Flower's engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedforget.cli.json_option import Json
from fedforget.cli.schedule_options import At, Every, FirstWait, Full, RoundLimit, Tries

if TYPE_CHECKING:
    from rich.table import Table

    from fedforget.runtime.flower.deaths import Death
    from fedforget.runtime.flower.network import Network

app = typer.Typer(help="Rounds over a network, with Flower.", no_args_is_help=True)

Disclosure = Annotated[
    str, typer.Option(help="The rules of datashield, omop, cms, or none, as in `server init`.")
]

_STAGES = 7


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="The app folder, made anew.")],
    server: Annotated[
        Path, typer.Option(help="The server's directory, on the machine of the SuperLink.")
    ] = Path("/srv/fedforget/server"),
    clients: Annotated[
        Path | None, typer.Option(help="The folder with all clients' directories, to simulate.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port of the SuperLink.")] = 8000,
    as_json: Json = False,
) -> None:
    """Write a Flower app folder: what `flwr run` takes, its configuration, a script for keys.

    Example: `fedforget flower init app/ --server /srv/fedforget/server`
    """
    from fedforget import __version__
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.runtime.flower.app_folder import write_app

    with plain_errors():
        written = write_app(folder, __version__, server=server, clients=clients, port=port)

    def in_words() -> None:
        script = safe(folder / "make-keys.sh")
        console.print(
            f"The app is in [bold]{safe(folder)}[/bold]. Next, at the SuperLink or at a site:",
            soft_wrap=True,
        )
        console.print(f"  {script} superlink NAME_OF_THIS_MACHINE", style="dim", soft_wrap=True)
        console.print(f"  {script} node NAME_OF_THE_SITE", style="dim", soft_wrap=True)
        console.print("docs/deploy.md goes through all of it, step by step.")

    show({"folder": str(folder), "files": [str(path) for path in written]}, as_json, in_words)


@app.command()
def up(
    clients: Annotated[
        int, typer.Option(min=1, help="Number of clients, at least 2, each with a SuperNode.")
    ] = 3,
    folder: Annotated[
        Path, typer.Option(help="Folder for everything; used again the next time.")
    ] = Path("flower-trial"),
    rounds: Annotated[
        int, typer.Option(min=0, help="Run this many rounds and stop; 0: stay until interrupted.")
    ] = 0,
    disclosure: Disclosure = "omop",
    as_json: Json = False,
) -> None:
    """Try a federation out: a SuperLink and SuperNodes on loopback, with TLS and node keys.

    The clients hold made-up records. Everything is stopped when you press Ctrl-C. A SuperNode that
    dies is named, with the last lines of its log and what to do; the others go on.

    Example: `fedforget flower up --clients 3 --rounds 1`
    """
    import time
    from contextlib import ExitStack

    from rich.live import Live

    from fedforget.cli.console import console, messages, plain_errors, safe
    from fedforget.cli.extras import check_extra
    from fedforget.parties.folders import held
    from fedforget.runtime.flower.deaths import watched
    from fedforget.runtime.flower.network import Network
    from fedforget.runtime.flower.simulation import run_once
    from fedforget.text import json_text

    with plain_errors(), suppress(KeyboardInterrupt), _terminable():
        check_extra("flower", "flower up")
        app_folder, names = _trial(folder, clients, disclosure)
        with (
            held(folder),
            Network(folder / "net", app_folder) as network,
            ExitStack() as stack,  # what watches the processes ends before they do
        ):
            network.database.unlink(missing_ok=True)
            with messages.status("Starting a SuperLink and SuperNodes …"):
                network.start_superlink()
                numbers = {}
                for name in names:
                    numbers[name] = network.register(name)
                    network.start_node(name, folder / "clients" / name)
                _wait_for_nodes(network, numbers)
            stack.enter_context(watched(network, lambda death: _tell_death(death, as_json)))
            state = {
                "superlink": {
                    "address": f"127.0.0.1:{network.port}",
                    "pid": network.superlink.pid if network.superlink else None,
                },
                "nodes": {
                    name: {"node": numbers[name], "pid": network.nodes[name].pid} for name in names
                },
                "logs": str(network.logs),
                "run": network.command("run", str(network.app), "here", "--stream"),
            }
            if as_json:
                print(json_text(state), flush=True)
            else:
                console.print(_table(network, numbers))
            if not rounds and not as_json:
                console.print("Run a round, from another terminal:")
                console.print(f"  {safe(state['run'])}", style="bold", soft_wrap=True)
            for _ in range(rounds):
                result = run_once(
                    network, folder / "server", None, lambda stage: _say(stage, as_json)
                )
                if as_json:
                    print(json_text(result), flush=True)
                else:
                    _show_round(result)
            if not rounds and as_json:
                while True:
                    time.sleep(0.5)
            if not rounds:
                console.print("Ctrl-C stops everything.")
                with Live(_table(network, numbers), console=console, transient=True) as live:
                    while True:
                        time.sleep(5)
                        live.update(_table(network, numbers))
    if not as_json:
        console.print("Everything is stopped.")


@app.command("round")
def round_(
    folder: Annotated[Path, typer.Argument(help="The app folder (fedforget flower init).")],
    server: Annotated[
        Path | None, typer.Option(help="The server's directory; the app's, if left out.")
    ] = None,
    superlink: Annotated[
        str, typer.Option(help="The SuperLink's name in the folder's flwr/config.toml.")
    ] = "deployment",
    full: Full = False,
    every: Every = None,
    at: At = None,
    wait: Annotated[
        str, typer.Option(help="How long to wait for the server's directory, if it is in use.")
    ] = "0s",
    tries: Tries = None,
    rounds: RoundLimit = None,
    first_wait: FirstWait = "1m",
    log: Annotated[
        Path | None, typer.Option(help="Write what happens to this file; it rotates.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a round over Flower, or rounds on a schedule, with a truthful exit status.

    `flwr run` ends with 0 whatever becomes of the run. This command starts it, follows it, and
    reads from the server's directory what came of it. Exit status: 0 if a round was committed (with
    `--every`: if none is due), 3 if it was not and may come by itself, 4 if somebody must act first
    (the message says how), and 1 after an error.

    Example: `fedforget flower round app/ --every 24h --at 02:30 --wait 10m`
    """
    from fedforget.cli.console import plain_errors
    from fedforget.cli.extras import check_extra
    from fedforget.cli.schedule_command import Wishes, run_schedule
    from fedforget.runtime.flower.scheduled import FlowerRounds, server_of
    from fedforget.runtime.timetable import duration

    with plain_errors():
        check_extra("flower", "flower round")
        found = FlowerRounds(
            folder,
            server_of(folder) if server is None else server,
            superlink,
            "full" if full else None,
            duration(wait).total_seconds(),
        )
        # A wrong path is told at once, and not every hour.
        found.last_commit()
    run_schedule(found, Wishes(every, at, tries, rounds, first_wait, log, as_json))


def simulate(
    dataset: Annotated[
        Path, typer.Option(help="Records: a .npz (X), .csv or .parquet file of numbers.")
    ],
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="Number of clients, at least 2; those of the file if left out."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds.")] = 3,
    clusters: Annotated[
        int | None,
        typer.Option(help="Number of clusters K; not needed if the file has labels."),
    ] = None,
    forget: Annotated[
        int, typer.Option(min=0, help="Records forgotten before each later round.")
    ] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the split and of what is forgotten.")] = 0,
    disclosure: Disclosure = "omop",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Keep all directories in this new folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a federation of many clients on Flower's engine.

    With --clients, records are dealt at random; otherwise by the file's column "client", or to ten
    clients with a few clusters each. Columns are scaled to [0, 1]. The first round is full; before
    each later one records are forgotten, and a delta round takes them out.

    Example: `fedforget simulate --clients 100 --dataset celltype.npz --clusters 4 --rounds 3`
    """
    import tempfile
    from contextlib import ExitStack

    from fedforget.bench.datasets import load_file
    from fedforget.bench.splits import iid
    from fedforget.cli.console import plain_errors, progress_bar, show
    from fedforget.cli.extras import check_extra
    from fedforget.errors import FedforgetError
    from fedforget.parties.disclosure import checked_preset
    from fedforget.runtime.flower import simulation
    from fedforget.runtime.flower.trial import check_clients
    from fedforget.text import visible

    with plain_errors(), _terminable(), ExitStack() as stack:
        check_extra("flower", "simulate")
        checked_preset(disclosure)
        try:
            data = load_file(dataset, n_clusters=clusters, n_clients=clients or 10, seed=seed)
            owners = data.clients if clients is None else iid(len(data.X), clients, seed=seed)
        except (OSError, ValueError) as error:
            raise FedforgetError(str(error)) from None
        n_clients = int(owners.max()) + 1
        check_clients(n_clients)
        if out is not None and out.exists():
            raise FedforgetError(f"{out} exists already; choose another folder")
        if out is not None:
            root = out
            root.mkdir(mode=0o700, parents=True)
        else:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedforget-")))
        total = n_clients + rounds * _STAGES
        bar = stack.enter_context(progress_bar("Setting up", total, quiet=as_json))

        def watch(what: str) -> None:
            bar.update(bar.task_ids[0], description=visible(what.capitalize()), advance=1)

        results = simulation.simulate(
            root,
            data.X,
            owners,
            n_clusters=data.n_clusters,
            rounds=rounds,
            forget=forget,
            seed=seed,
            disclosure=disclosure,
            watch=watch,
        )

    def in_words() -> None:
        for result in results:
            _show_round(result)

    show({"clients": n_clients, "records": len(data.X), "rounds": results}, as_json, in_words)


# -- what the commands share -------------------------------------------------------------------


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a termination end the block in order, as Ctrl-C does."""
    import signal

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _trial(folder: Path, clients: int, disclosure: str = "omop") -> tuple[Path, list[str]]:
    """The trial federation in a folder, made if it is not there yet."""
    import numpy as np

    from fedforget import __version__
    from fedforget.errors import FedforgetError
    from fedforget.parties.disclosure import checked_preset
    from fedforget.runtime.flower.app_folder import write_app
    from fedforget.runtime.flower.trial import check_clients, make_federation

    check_clients(clients)
    checked_preset(disclosure)
    if not (folder / "app" / ".gitignore").exists():  # this is written last
        if folder.exists() and any(folder.iterdir()):
            raise FedforgetError(
                f"{folder} is not empty and holds no whole trial; choose another folder"
            )
        rng = np.random.default_rng(0)
        centres = rng.uniform(0.2, 0.8, (3, 2))
        values = (centres[rng.integers(3, size=300 * clients)]).clip(0, 1)
        values = (values + rng.normal(0, 0.05, values.shape)).clip(0, 1)
        owners = np.arange(len(values)) % clients
        make_federation(folder, values, owners, n_clusters=3, disclosure=disclosure)
        write_app(folder / "app", __version__, server=folder / "server", clients=folder / "clients")
    names = sorted(path.name for path in (folder / "clients").iterdir())
    if len(names) != clients:
        raise FedforgetError(f"{folder} holds a trial of {len(names)} clients, not {clients}")
    return folder / "app", names


def _wait_for_nodes(network: Network, numbers: dict[str, int]) -> None:
    import time

    from fedforget.runtime.flower.deaths import deaths_of
    from fedforget.runtime.flower.network import START_SECONDS, NetworkError

    end = time.monotonic() + START_SECONDS
    while True:
        for one in deaths_of(network):
            lines = " | ".join(one.lines)
            raise NetworkError(f"{one.who} did not start ({one.how}); {one.log} ends with: {lines}")
        online = network.online()
        if all(online.get(number) == "online" for number in numbers.values()):
            return
        if time.monotonic() > end:
            raise NetworkError(f"not all SuperNodes came up; see {network.logs}")
        time.sleep(0.5)


def _table(network: Network, numbers: dict[str, int]) -> Table:
    from rich.table import Table

    from fedforget.cli.console import safe

    online = network.online() if network.healthy() else {}
    table = Table()
    for column in ("process", "number", "state"):
        table.add_column(column)
    up = "answers" if online else "does not answer"
    table.add_row("SuperLink", f"127.0.0.1:{network.port}", up)
    for name, number in numbers.items():
        process = network.nodes[name]
        state = "ended" if process.poll() is not None else online.get(number, "unknown")
        table.add_row(f"SuperNode {safe(name)}", str(number), safe(state))
    return table


def _tell_death(death: Death, as_json: bool) -> None:
    from fedforget.cli.console import console, safe
    from fedforget.text import json_text

    if as_json:
        print(json_text(death.plain()), flush=True)
        return
    console.print(f"[bold red]{safe(death.who)} has ended[/] ({safe(death.how)}).", soft_wrap=True)
    console.print(f"The end of {safe(death.log)}:", soft_wrap=True)
    for line in death.lines:
        console.print(f"  {safe(line)}", style="dim", soft_wrap=True)
    console.print(safe(death.advice), soft_wrap=True)
    if death.command:
        console.print(f"  {safe(death.command)}", style="bold", soft_wrap=True)


def _say(stage: str, quiet: bool) -> None:
    from fedforget.cli.console import messages, safe

    if not quiet:
        messages.print(f"[dim]{safe(stage)}[/dim]")


def _show_round(result: dict[str, Any]) -> None:
    from fedforget.cli.console import console, safe

    console.print(
        f"Round {result['round']} ({safe(result['kind'])}) committed: {len(result['participants'])}"
        f" clients; {result['changed_bins']} bins, {result['bytes_from_a_client'] / 1e3:.1f} kB"
        f" from a client at the most, {result['seconds']:.2f} s."
    )
    console.print(f"Model {safe(result['model'])}")
