"""``fedforget client``: a data owner's directory: import, forget, receipts, audit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="A data owner's client.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The client's directory.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def init(
    folder: Folder,
    name: Annotated[str, typer.Option(help="The client's name in the federation.")],
    as_json: Json = False,
) -> None:
    """Make a client's directory, with keys of its own.

    Writes the enrolment file (a name and a public key) that `server enrol` takes.

    Example: `fedforget client init aarhus/ --name Aarhus`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.parties.client import ClientParty

    with plain_errors():
        enrolment = ClientParty.create(folder, name)
    path = folder / "enrolment.json"

    def in_words() -> None:
        where = f"{safe(name)} is set up in [bold]{safe(folder)}[/bold]"
        console.print(f"{where}; its public key is", soft_wrap=True)
        console.print(f"  {enrolment['key']}")
        give = f"Give the server [bold]{safe(path)}[/bold]"
        console.print(f"{give}, and read the key to it by telephone.", soft_wrap=True)

    show(enrolment | {"enrolment_file": str(path)}, as_json, in_words)


@app.command()
def join(
    folder: Folder,
    epoch: Annotated[Path, typer.Option(help="The membership list that the server signed.")],
    federation: Annotated[
        Path | None, typer.Option(help="The federation file, the first time.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Join a federation, or take over the list of a new epoch.

    Shows who came and who went: everybody on the list takes part in the sums.

    Example: `fedforget client join aarhus/ --federation federation.toml --epoch epoch-1.json`
    """
    import json

    from fedforget.cli.console import console, listed, plain_errors, safe, show
    from fedforget.errors import FedforgetError
    from fedforget.parties.client import open_client
    from fedforget.parties.federation_file import FederationFile

    with plain_errors():
        given = None if federation is None else FederationFile.read(federation)
        try:
            members = json.loads(epoch.read_text(encoding="utf-8"))
        except OSError as error:
            raise FedforgetError(f"{epoch} cannot be read: {error.strerror}") from None
        except ValueError:
            raise FedforgetError(f"{epoch} is not a membership list") from None
        with open_client(folder) as party:
            result = party.join(given, members)

    def in_words() -> None:
        console.print(f"Epoch {result['epoch']}.")
        for word in ("came", "went", "changed_keys"):
            if result[word]:
                names = safe(listed(result[word]))
                console.print(f"  {word.replace('_', ' ')}: {names}")

    show(result, as_json, in_words)


@app.command("import")
def import_(
    folder: Folder,
    table: Annotated[Path, typer.Argument(help="A .parquet, .csv, .feather, .arrow or .npz file.")],
    id_column: Annotated[str, typer.Option("--id", help="The column with the records' ids.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Forget records with the same ids first.")
    ] = False,
    delimiter: Annotated[str, typer.Option(help="Of a CSV file.")] = ",",
    encoding: Annotated[str, typer.Option(help="Of a CSV file.")] = "utf-8",
    as_json: Json = False,
) -> None:
    """Import records: all of a table, or nothing if anything in it is wrong.

    Columns are matched by the features' names; others are not read.

    Example: `fedforget client import aarhus/ patients.parquet --id patient_id`
    """
    from fedforget.cli.console import console, plain_errors, progress_bar, show
    from fedforget.parties.client import ClientError, open_client
    from fedforget.parties.tables import Table

    with plain_errors(), open_client(folder) as party:
        if party.federation is None:
            raise ClientError("this client has not joined a federation: run client join first")
        source = Table(
            table,
            party.federation.feature_names,
            id_column,
            delimiter=delimiter.replace("\\t", "\t"),
            encoding=encoding,
        )
        with progress_bar("Importing", None, quiet=as_json) as bar:
            task = bar.task_ids[0]
            result = party.import_table(
                source,
                replace=replace,
                progress=lambda n: bar.update(task, advance=n, total=source.n_rows),
            )

    def in_words() -> None:
        replaced = f" ({result['replaced']} replaced)" if result["replaced"] else ""
        console.print(f"{result['added']} records imported{replaced}; {result['records']} in all.")

    show(result, as_json, in_words)


@app.command()
def forget(
    folder: Folder,
    ids: Annotated[list[str] | None, typer.Option("--ids", help="An id; once for each.")] = None,
    ids_file: Annotated[
        str | None, typer.Option(help="A file with ids, one a line; - for standard input.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would happen.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Forget records: erased when this returns, and out of the model after the next round.

    Prints the salt of the request, which is stored nowhere: keep it with the request, `verify`
    wants it to tell which ids a receipt covers.

    Example: `fedforget client forget aarhus/ --ids P-1042 --ids P-7`
    """
    from fedforget.cli.console import console, plain_errors, show
    from fedforget.cli.receipts import read_ids
    from fedforget.parties.client import open_client

    with plain_errors():
        wanted = list(ids or [])
        if ids_file is not None:
            wanted += read_ids(sys.stdin if ids_file == "-" else Path(ids_file))
        with open_client(folder) as party:
            plan = party.forget(wanted, dry_run=True)
            redraw = (
                f"seeds are drawn again from number {plan.reseeded}"
                if plan.reseeded
                else "all seeds stand"
            )
            if dry_run:
                preview = {"records": plan.records, "reseeded": plan.reseeded, "erased": False}
                show(preview, as_json, lambda: console.print(f"{plan.records} records; {redraw}."))
                return
            if not yes:
                _ask(f"Erase {plan.records} records of {party.name} for good?", as_json)
            done = party.forget(wanted)
    result = {
        "request": done.request,
        "records": done.records,
        "reseeded": done.reseeded,
        "salt": done.salt,
        "erased": True,
    }

    def in_words() -> None:
        console.print(f"[bold green]{done.records} records erased[/]; {redraw}.")
        console.print(
            f"Request {done.request}, salt [bold]{done.salt}[/bold] (not stored: keep it)"
        )
        console.print(
            "The last committed histogram is kept until the next round commits; then there is a"
            " receipt."
        )

    show(result, as_json, in_words)


def _ask(question: str, as_json: bool) -> None:
    """Go on only if somebody says yes."""
    from fedforget.errors import FedforgetError
    from fedforget.text import visible

    if as_json or not sys.stdin.isatty():
        raise FedforgetError("nobody can be asked here: add --yes to erase")
    typer.confirm(visible(question), abort=True)


@app.command()
def leave(
    folder: Folder,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Leave: erase every record; the next round takes this client out of the model.

    Example: `fedforget client leave bologna/ --yes`
    """
    from fedforget.cli.console import console, plain_errors, show
    from fedforget.parties.client import open_client

    with plain_errors(), open_client(folder) as party:
        if not yes:
            _ask(f"Erase all records of {party.name} for good?", as_json)
        erased = party.leave()
    result = {"records": erased, "leaving": True}
    words = f"{erased} records erased. Take part in one more round; then the server enrols without."
    show(result, as_json, lambda: console.print(words))


@app.command()
def status(folder: Folder, as_json: Json = False) -> None:
    """Show what the client holds and what waits for a round.

    Example: `fedforget client status aarhus/`
    """
    from fedforget.cli.console import console, plain_errors, show
    from fedforget.cli.words import table_of
    from fedforget.parties.client import open_client

    with plain_errors(), open_client(folder) as party:
        result = party.status()
    show(result, as_json, lambda: console.print(table_of(result)))


@app.command()
def labels(
    folder: Folder,
    model: Annotated[Path, typer.Option(help="Centroids that the server exported (.npz, .json).")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A .csv or .parquet file to write.")],
    as_json: Json = False,
) -> None:
    """Write each record's cluster.

    Example: `fedforget client labels aarhus/ --model centroids.npz -o labels.csv`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.cli.receipts import read_centroids
    from fedforget.cli.words import write_table
    from fedforget.parties.client import ClientError, open_client

    with plain_errors(), open_client(folder) as party:
        if party.federation is None:
            raise ClientError("this client has not joined a federation: run client join first")
        centres = read_centroids(model, party.federation.feature_names)
        ids, found = party.labels(party.config.grid.to_clustered(centres))
        write_table(out, {"id": ids, "cluster": found})
    result = {"records": len(ids), "file": str(out)}
    words = f"{len(ids)} labels written to [bold]{safe(out)}[/]"
    show(result, as_json, lambda: console.print(words, soft_wrap=True))


@app.command()
def receipts(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A folder to write them to.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the receipts, or write them as files.

    Example: `fedforget client receipts aarhus/ -o receipts/`
    """
    import json

    from rich.table import Table

    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.parties.client import open_client

    with plain_errors(), open_client(folder) as party:
        documents = {number: json.loads(text) for number, text in party.store.receipts().items()}
        files = [] if out is None else _write_receipts(documents, out)
    result = {"receipts": list(documents.values()), "files": files}

    def in_words() -> None:
        table = Table(box=None)
        for column in ("request", "asked", "records", "round"):
            table.add_column(column, justify="right")
        for number, one in documents.items():
            request = one["request"]
            cells = (number, request["time"], request["records"], one["round"])
            table.add_row(*map(safe, cells))
        console.print(table if documents else "No receipts yet.")
        for path in files:
            console.print(f"Written to [bold]{safe(path)}[/bold]", soft_wrap=True)

    show(result, as_json, in_words)


def _write_receipts(documents: dict[int, Any], out: Path) -> list[str]:
    import json

    from fedforget.errors import FedforgetError
    from fedforget.parties.folders import write_private

    files = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for number, document in documents.items():
            path = out / f"receipt-{number}.json"
            text = json.dumps(document, indent=1, ensure_ascii=False)
            # A receipt is never changed: what is there already must be the same.
            write_private(path, text.encode(), replace=False)
            files.append(str(path))
    except OSError as error:
        raise FedforgetError(f"{out} cannot be written: {error.strerror}") from None
    return files


@app.command()
def audit(folder: Folder, as_json: Json = False) -> None:
    """Fit again from the retained records and compare with what is stored. Exit status 0 or 1.

    Example: `fedforget client audit aarhus/`
    """
    from fedforget.cli.console import console, plain_errors, show
    from fedforget.parties.client import open_client

    with plain_errors(), open_client(folder) as party:
        found = party.audit()
    result = {
        "records": found.records,
        "stored": found.stored,
        "fresh": found.fresh,
        "passed": found.passed,
    }

    def in_words() -> None:
        console.print(f"{found.records} records, fitted again.")
        console.print(f"  stored {found.stored}\n  fresh  {found.fresh}")
        if found.passed:
            console.print("[bold green]The stored state is that of a fresh fit.[/]")
        else:
            console.print("[bold red]The stored state is not that of the records.[/]")

    show(result, as_json, in_words)
    if not found.passed:
        raise typer.Exit(1)
