"""``fedforget server``: set a federation up, enrol members, look at the model and the log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="The server of a federation.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The server's directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def init(
    folder: Folder,
    name: Annotated[str, typer.Option(help="The federation's name.")],
    clusters: Annotated[int, typer.Option(help="Number of clusters K.")],
    feature: Annotated[
        list[str] | None,
        typer.Option(help="A column with its public bounds, NAME:LOW:HIGH; once for each."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="The same as a CSV file with columns name, low, high.")
    ] = None,
    step: Annotated[float, typer.Option(help="Width of a grid bin, part of the range.")] = 0.01,
    local_clusters: Annotated[
        int | None, typer.Option(help="Clusters that a client reports; 2 K if left out.")
    ] = None,
    scale: Annotated[str, typer.Option(help="none, or box: each feature by its range.")] = "box",
    representatives: Annotated[
        str, typer.Option(help="means, or seeds as in the paper.")
    ] = "means",
    server_points: Annotated[str, typer.Option(help="weighted or uniform.")] = "weighted",
    shift: Annotated[bool, typer.Option("--shift", help="Shift the grid at random.")] = False,
    n_init: Annotated[int, typer.Option(help="Restarts at the server.")] = 10,
    max_iter: Annotated[int, typer.Option(help="Most Lloyd iterations.")] = 300,
    dropout: Annotated[float, typer.Option(help="Share that may vanish in a round.")] = 0.1,
    colluding: Annotated[float, typer.Option(help="Share that may collude.")] = 0.1,
    minimum: Annotated[int, typer.Option(help="Fewest survivors of a round.")] = 3,
    deadline: Annotated[float, typer.Option(help="Seconds that a stage may last.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Set up a federation: make the server's directory and its federation file.

    Example: `fedforget server init server/ --name study --clusters 3 --feature age:0:120
    --feature weight:0:300`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.parties.federation_file import (
        Feature,
        FederationFile,
        ModelPart,
        ProtocolPart,
    )
    from fedforget.parties.server import ServerParty

    with plain_errors():
        columns = [_feature(text) for text in feature or []]
        if features is not None:
            columns += _features_of(features)
        draft = FederationFile(
            name=name,
            identifier=os.urandom(16).hex(),
            server_key="00" * 32,
            model=ModelPart(
                n_clusters=clusters,
                local_clusters=local_clusters or 2 * clusters,
                scale=scale,  # type: ignore[arg-type]
                step=step,
                shift=shift,
                representatives=representatives,  # type: ignore[arg-type]
                server_points=server_points,  # type: ignore[arg-type]
                n_init=n_init,
                max_iter=max_iter,
                public_seed=os.urandom(16).hex(),
            ),
            protocol=ProtocolPart(dropout, colluding, minimum, 16, deadline),
            features=tuple(Feature(*column) for column in columns),
        )
        FederationFile.parse(draft.text(), "the federation file")  # every check of the format
        federation = ServerParty.create(folder, draft)
    path = folder / "federation.toml"
    result = {"federation_file": str(path), "identifier": federation.identifier}

    def in_words() -> None:
        where = (
            f"The federation “{safe(federation.name)}” is set up in [bold]{safe(folder)}[/bold]."
        )
        console.print(where, soft_wrap=True)
        give = f"Give every client the file [bold]{safe(path)}[/bold], and then enrol them:"
        console.print(give, soft_wrap=True)
        command = f"  fedforget server enrol {safe(folder)} --client enrolment.json ..."
        console.print(command, style="dim", soft_wrap=True)

    show(result, as_json, in_words)


def _feature(text: str) -> tuple[str, float, float]:
    from fedforget.errors import FedforgetError

    try:
        name, low, high = text.rsplit(":", 2)
        return name, float(low), float(high)
    except ValueError:
        raise FedforgetError(f"--feature {text!r} must read NAME:LOW:HIGH") from None


def _features_of(path: Path) -> list[tuple[str, float, float]]:
    import csv

    from fedforget.errors import FedforgetError

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
        return [(row["name"], float(row["low"]), float(row["high"])) for row in rows]
    except OSError as error:
        raise FedforgetError(f"{path} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError):
        raise FedforgetError(f"{path} must have the columns name, low and high") from None


@app.command()
def enrol(
    folder: Folder,
    client: Annotated[
        list[Path] | None, typer.Option(help="Enrolment file of a client that comes.")
    ] = None,
    gone: Annotated[
        list[str] | None, typer.Option(help="A client that has left, after its last round.")
    ] = None,
    lost: Annotated[
        list[str] | None, typer.Option(help="A client that is lost; a full round follows.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Begin an epoch: a new, numbered and signed list of members.

    A member whose key was lost or stolen is enrolled again with a new enrolment file.

    Example: `fedforget server enrol server/ --client aarhus/enrolment.json
    --client bologna/enrolment.json`
    """
    import json

    from fedforget.cli.console import console, listed, plain_errors, safe, show
    from fedforget.errors import FedforgetError
    from fedforget.parties.folders import write_private
    from fedforget.parties.server import open_server

    with plain_errors():
        enrolments = {}
        for path in client or []:
            try:
                entry = json.loads(path.read_text(encoding="utf-8"))
                enrolments[entry["name"]] = entry["key"]
                bytes.fromhex(entry["key"])
            except OSError as error:
                raise FedforgetError(f"{path} cannot be read: {error.strerror}") from None
            except (ValueError, KeyError, TypeError):
                raise FedforgetError(f"{path} is not an enrolment file") from None
        with open_server(folder) as party:
            before = party.members()
            members = party.enrol(enrolments, gone=tuple(gone or ()), lost=tuple(lost or ()))
            path = folder / f"epoch-{members['epoch']}.json"
            write_private(path, json.dumps(members, indent=1).encode())
    old = set() if before is None else set(before["keys"])
    new = set(members["keys"])
    result = {
        "epoch": members["epoch"],
        "members": sorted(new),
        "came": sorted(new - old),
        "went": sorted(old - new),
        "epoch_file": str(path),
    }

    def in_words() -> None:
        console.print(f"Epoch {members['epoch']}: {safe(listed(sorted(new)) or 'nobody')}")
        console.print(f"Give every member the file [bold]{safe(path)}[/bold]:", soft_wrap=True)
        command = f"  fedforget client join CLIENT --epoch {safe(path)}"
        console.print(command, style="dim", soft_wrap=True)
        console.print("  (a new member's first time: also --federation FILE)", style="dim")

    show(result, as_json, in_words)


@app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """Show the members, rounds and the model's digest.

    Example: `fedforget server status server/ --json`
    """
    from fedforget.cli.console import console, plain_errors, show
    from fedforget.cli.words import table_of
    from fedforget.parties.server import open_server

    with plain_errors(), open_server(folder) as party:
        result = party.status()
    show(result, as_json, lambda: console.print(table_of(result)))


@app.command()
def model(
    folder: Folder,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="A .csv, .json or .npz file to write; `client labels` reads the last two.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Export the centroids, in the original units and with the features' names.

    Example: `fedforget server model server/ -o centroids.npz`
    """
    from rich.table import Table

    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.cli.words import write_table
    from fedforget.parties.server import open_server

    with plain_errors(), open_server(folder) as party:
        _, centres = party.centres()
        names = party.federation.feature_names
        sizes = party.sizes()
        digest = party.status()["model"]
        if out is not None:
            write_table(out, {"size": sizes, **dict(zip(names, centres.T, strict=True))})
    result = {
        "model": digest,
        "features": names,
        "centroids": centres.tolist(),
        "sizes": sizes,
        "file": None if out is None else str(out),
    }

    def in_words() -> None:
        shown = Table(title=f"{len(centres)} clusters, model {digest[:12]}…")
        for column in ("cluster", "records", *names[:6], *(["…"] if len(names) > 6 else [])):
            shown.add_column(safe(column), justify="right")
        for k, centre in enumerate(centres):
            cells = [f"{value:.4g}" for value in centre[:6]]
            shown.add_row(str(k), str(sizes[k]), *cells, *(["…"] if len(names) > 6 else []))
        console.print(shown)
        if out is not None:
            console.print(f"Written to [bold]{safe(out)}[/bold]", soft_wrap=True)

    show(result, as_json, in_words)


@app.command()
def audit(folder: Folder, as_json: Json = False) -> None:
    """Recompute the model from the aggregate, and walk the log. Exit status 0 or 1.

    Example: `fedforget server audit server/`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.parties.server import open_server

    with plain_errors(), open_server(folder) as party:
        result = party.audit()
    problems = result["problems"]

    def in_words() -> None:
        console.print(
            f"Log: {result['log_entries']} entries, {result['rounds']} rounds; every signature and"
            " link of the chain fits."
        )
        for problem in problems:
            console.print(f"[bold red]{safe(problem)}[/bold red]")
        if not problems:
            console.print("[bold green]The model is the one that follows from the aggregate.[/]")

    show(result, as_json, in_words)
    if problems:
        raise typer.Exit(1)
