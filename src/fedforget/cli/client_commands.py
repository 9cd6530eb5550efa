"""``fedforget client``: a data owner's directory: import, forget, receipts, audit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedforget.cli.json_option import Json
from fedforget.cli.page_options import (
    PORT,
    REPORT,
    HostNames,
    Out,
    PageAddress,
    Port,
    Serve,
    Token,
    TokenFile,
    page_help,
)
from fedforget.cli.source_options import GivenSource, takes_source, words_of

app = typer.Typer(help="A data owner's client.", no_args_is_help=True)

ClientFolder = Annotated[Path, typer.Argument(help="The client's directory.")]
AsIs = Annotated[
    bool, typer.Option("--ids-as-is", help="Accept ids that could be mistaken for others.")
]


@app.command()
def init(
    folder: ClientFolder,
    name: Annotated[str, typer.Option(help="The client's name in the federation.")],
    suppression: Annotated[
        Path | None,
        typer.Option(help="Where to keep the list of forgotten ids; in the directory if left out."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a client's directory, with keys of its own.

    Writes the enrolment file (a name and a public key) that `server enrol` takes.

    The suppression list holds keyed digests of forgotten ids and keeps old exports from bringing
    them back. Put it on a disk that is not restored together with the directory: after a restore,
    the list then still knows what was forgotten since the backup.

    Example: `fedforget client init aarhus/ --name Aarhus --suppression /safe/aarhus-forgotten.db`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.parties.client_party import ClientParty

    with plain_errors():
        enrolment = ClientParty.create(folder, name, suppression=suppression)
    path = folder / "enrolment.json"
    place = folder / "forgotten.sqlite" if suppression is None else suppression
    result = enrolment | {"enrolment_file": str(path), "suppression_list": str(place)}

    def in_words() -> None:
        where = f"{safe(name)} is set up in [bold]{safe(folder)}[/bold]"
        console.print(f"{where}; its public key is", soft_wrap=True)
        console.print(f"  {enrolment['key']}")
        give = f"Give the server [bold]{safe(path)}[/bold]"
        console.print(f"{give}, and read the key to it by telephone.", soft_wrap=True)
        if suppression is None:
            console.print(
                "The list of forgotten ids lies in the directory and would be restored with it;"
                " a place outside is better (client suppression --move FILE).",
                soft_wrap=True,
            )
        else:
            console.print(f"The list of forgotten ids is {safe(place)}.", soft_wrap=True)

    show(result, as_json, in_words)


@app.command()
def join(
    folder: ClientFolder,
    epoch: Annotated[
        list[Path],
        typer.Option(
            help="The membership list that the server signed; several, in their order, to take"
            " them over as one."
        ),
    ],
    federation: Annotated[
        Path | None,
        typer.Option(help="The federation file: the first time, and when it was amended."),
    ] = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Join even if so few join together, or are left, that the next rounds show what"
            " this client reports or has changed.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Join a federation, or take over the list of a new epoch, or an amendment.

    Shows the list, its fingerprint and what the coming sums will show; asks before it accepts. Read
    the fingerprint to another member by telephone: this is the only way to detect a server that
    gives members different lists.

    Example: `fedforget client join aarhus/ --federation federation.toml --epoch epoch-1.json`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.cli.member_lists import plain_join, show_join
    from fedforget.parties.client_party import open_client
    from fedforget.parties.federation_file import FederationFile
    from fedforget.parties.membership_file import read_membership

    with plain_errors():
        given = None if federation is None else FederationFile.read(federation)
        documents = [read_membership(path) for path in epoch]
        with open_client(folder) as party:
            plan = party.plan_join(given, *documents, alone=alone)
            if not as_json and not plan.known:
                show_join(plan, party.name)
                if not yes and sys.stdin.isatty():
                    typer.confirm("Is this the list that the others have? Accept it?", abort=True)
            party.join(given, *documents, alone=alone)
            name, misfit = party.name, party.status()["records_that_do_not_fit"]
    words = (
        f"{safe(name)} follows the list of epoch {plan.membership.epoch}, version"
        f" {plan.federation.version} of the federation file, already. Nothing was changed."
        if plan.known
        else f"{safe(name)} follows the list of epoch {plan.membership.epoch}."
    )

    def in_words() -> None:
        console.print(words)
        if misfit is not None:
            what = f"[bold yellow]no round until this is mended:[/bold yellow] {safe(misfit)}"
            console.print(what, soft_wrap=True)

    told = {"known": plan.known, "records_that_do_not_fit": misfit}
    show(plain_join(plan) | told, as_json, in_words)


@app.command("import")
@takes_source
def import_(
    folder: ClientFolder,
    source: GivenSource,
    replace: Annotated[
        bool, typer.Option("--replace", help="Forget records with the same ids first.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Accept ids that were forgotten before.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Import records: all of a source, or nothing if anything in it is wrong.

    Columns are matched by the features' names; others are not read. Ids on the suppression list
    stay out and are counted: they were forgotten, and the source is an old export. A patient who
    has come back is let in with `--again`.

    Missing values are refused and counted, and so are ids that could be mistaken for others. A file
    that changes while it is read is refused.

    Example: `fedforget client import aarhus/ patients.parquet --id patient_id`

    Example: `fedforget client import aarhus/ --uri postgresql://warehouse/omop --sql cohort.sql
    --id person_id --missing drop`
    """
    from fedforget.cli.console import console, number_of, plain_errors, progress_bar, safe, show
    from fedforget.parties.client_party import open_client

    with plain_errors(), open_client(folder) as party:
        records = source.open(party.joined())
        with progress_bar("Importing", None, quiet=as_json) as bar:
            task = bar.task_ids[0]
            result = party.import_table(
                records,
                replace=replace,
                again=again,
                progress=lambda n: bar.update(task, advance=n, total=records.n_rows),
            )

    def in_words() -> None:
        replaced = f" ({result['replaced']} replaced)" if result["replaced"] else ""
        added = number_of(result["added"], "record")
        console.print(f"{added} imported{replaced}; {result['records']} in all.")
        for words in words_of(records):
            console.print(safe(words), soft_wrap=True)
        if result["kept_out"]:
            console.print(
                f"{number_of(result['kept_out'], 'id')} kept out: on the suppression list, because"
                " forgotten before. --again lets them in.",
                soft_wrap=True,
            )

    show(result, as_json, in_words)


@app.command()
@takes_source
def sync(
    folder: ClientFolder,
    source: GivenSource,
    max_removed: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|PERCENT",
            help="Refuse to remove more records than this.  [default: 5%, at least 10]",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Accept ids that were forgotten before.")
    ] = False,
    new_columns: Annotated[
        bool,
        typer.Option("--new-columns", help="Accept a source that lacks columns of the last one."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would happen, with some of the ids.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the records equal to those of a source, such as tonight's export.

    New records are learnt, changed ones replaced, and those that the source no longer has are
    forgotten by a request, with a salt and later a receipt. All of it happens, or nothing. A source
    that is empty, that lacks a column of the last one, or that would remove too many records is
    refused. Ids on the suppression list stay out and are counted. With `--missing drop`, a record
    whose row has a missing value now is forgotten like one that is gone.

    With `--dry-run` the exit status is 1 if the source would be refused.

    Example: `fedforget client sync aarhus/ tonight.parquet --id patient_id`
    """
    from fedforget.cli.console import plain_errors
    from fedforget.cli.sync_command import run_sync
    from fedforget.parties.sync import Brake, SyncRules

    with plain_errors():
        brake = Brake() if max_removed is None else Brake.parse(max_removed)
    rules = SyncRules(brake, again=again, new_columns=new_columns, dry_run=dry_run)
    run_sync(folder, source, rules, as_json)


@app.command()
def forget(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...", help="The client's directory; several with --ignore-missing."
        ),
    ],
    ids: Annotated[list[str] | None, typer.Option("--ids", help="An id; repeat for each.")] = None,
    ids_file: Annotated[
        str | None, typer.Option(help="A file with ids, one per line; - for standard input.")
    ] = None,
    ignore_missing: Annotated[
        bool,
        typer.Option("--ignore-missing", help="Forget those that are held, and say which are not."),
    ] = False,
    ids_as_is: AsIs = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
    as_json: Json = False,
) -> None:
    """Forget records: erased at once, and out of the model after the next round.

    Prints the salt of the request. Keep it with the request: `verify` needs it to say which ids a
    receipt covers. The client keeps it, too, until the receipt is written out; `client requests`
    shows it.

    With `--ignore-missing` a list may name ids that are not held, as the list of a whole study
    does. The command can be repeated: where nothing is held, there is no request, and the exit
    status is 0, and so it is where the file is empty. Several directories are taken one after the
    other, each whole or not at all; if one of them cannot forget, the others do, and the exit
    status is 1.

    Example: `fedforget client forget aarhus/ --ids P-1042 --ids P-7`

    Example: `fedforget client forget aarhus/ bologna/ --ids-file withdrawn.txt --ignore-missing`
    """
    from fedforget.cli.console import plain_errors
    from fedforget.cli.forget_command import run_forget
    from fedforget.cli.given_files import IdList

    with plain_errors():
        given = IdList.read(ids, ids_file, as_is=ids_as_is)
    run_forget(
        folders, given, ignore_missing=ignore_missing, yes=yes, dry_run=dry_run, as_json=as_json
    )


@app.command()
def requests(folder: ClientFolder, as_json: Json = False) -> None:
    """List requests that wait for a round, and those whose receipts were not written out.

    Shows their salts. A salt is erased when its receipt has been written out.

    Example: `fedforget client requests aarhus/`
    """
    from fedforget.cli.receipts_command import show_requests

    show_requests(folder, as_json)


@app.command()
def leave(
    folder: ClientFolder,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Leave without waiting for others: what was reported will show."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Leave: erase every record; a later round takes this client out of the model.

    The sum before that round, minus the sum after it, is what the leavers had reported. So a client
    leaves together with others that came with the same list (two more than may collude), or
    `--alone` if it accepts that its own histogram shows. Enough members must stay: at least
    `protocol.minimum`, and of those who came with this client either nobody or at least two more
    than may collude.

    Example: `fedforget client leave bologna/ --yes`
    """
    from fedforget.cli.console import ask, console, number_of, plain_errors, safe, show
    from fedforget.parties.client_party import open_client
    from fedforget.protocol.rules import fewest_counted, fewest_together, group_with, groups_of

    with plain_errors(), open_client(folder) as party:
        if not yes:
            ask(f"Erase all records of {party.name} for good?", as_json)
        erased = party.leave(alone=alone)
        name, federation = party.name, party.federation
        assert federation is not None
        membership, policy = party.lists()[-1], federation.policy()
        fewest = fewest_together(membership, policy)
        behind = fewest_counted(membership, policy)
        groups = groups_of(membership, party.ledger().place.counted or ())
    company = sorted(group_with(name, groups) - {name})
    blocked = alone and 0 < len(company) < fewest
    result = {
        "records": erased,
        "leaving": True,
        "alone": alone,
        "fewest_together": fewest,
        "fewest_who_stay": behind,
        "came_with": company,
        "must_be_dropped": blocked,
    }

    def in_words() -> None:
        console.print(f"[bold green]{number_of(erased, 'record')} erased.[/]")
        if blocked:
            words = (
                f"Of those who came with {safe(name)}, only {safe(', '.join(company))} would stay,"
                " and what they have would show, too, so no round takes it out by itself. Ask the"
                f" server's operator to drop it (server enrol --gone {safe(name)}); those who stay"
                " are then asked (client join --alone)."
            )
        elif alone:
            words = (
                f"The next round takes {safe(name)} out. Whoever knows the sums before and after it"
                f" can compute what {safe(name)} had reported."
            )
        else:
            words = (
                f"{safe(name)} is taken out by the first round in which at least {fewest} members"
                " that came with the same list leave together; until then it takes part, and what"
                " was last counted of it stays in the model. client leave --alone does not wait,"
                " and then what it had reported shows."
            )
        console.print(words, soft_wrap=True)
        console.print(
            f"At least {behind} members must stay. After that round the server takes"
            f" {safe(name)} off the list (server enrol --gone).",
            soft_wrap=True,
        )

    show(result, as_json, in_words)


@app.command()
def recover(
    folder: ClientFolder,
    ids_file: Annotated[
        str | None,
        typer.Option(
            help="Ids of the erasures since the backup, one per line; - for standard input."
        ),
    ] = None,
    ids_as_is: AsIs = False,
    nothing_to_forget: Annotated[
        bool,
        typer.Option("--nothing-to-forget", help="There were no erasures since the backup."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Go on with a directory that was restored from a backup.

    Say which erasures were made since the backup: they are made again, as far as the records are
    held. What the suppression list knows is forgotten again in any case. A full round of everybody
    must follow (`fedforget round ... --full`).

    Run this after every restore, even if no error asks for it. A backup made after the last
    committed round looks to everybody like the directory itself, so nobody can notice that it was
    restored: erasures made after that backup are back, and only their ids can tell.

    Example: `fedforget client recover aarhus/ --ids-file erased-since-the-backup.txt`
    """
    from fedforget.cli.console import console, number_of, plain_errors, safe, show
    from fedforget.cli.given_files import read_ids
    from fedforget.errors import FedforgetError
    from fedforget.parties.client_party import open_client

    with plain_errors():
        if (ids_file is None) == (not nothing_to_forget):
            raise FedforgetError(
                "say which erasures since the backup are to be made again: --ids-file FILE, or"
                " --nothing-to-forget if there were none"
            )
        ids: list[str] = []
        if ids_file is not None:
            place = sys.stdin if ids_file == "-" else Path(ids_file)
            ids = read_ids(place, as_is=ids_as_is)
        with open_client(folder) as party:
            result = party.recover(ids)

    def in_words() -> None:
        again = number_of(result["records_forgotten_again"], "record")
        console.print(f"[bold green]{again} forgotten again.[/]")
        if result["ids_not_held"]:
            console.print(f"{number_of(result['ids_not_held'], 'id')} of the file not held here.")
        if result["request"]:
            salt = f"salt [bold]{safe(result['salt'])}[/bold]"
            console.print(f"Request {safe(result['request'])}, {salt}", soft_wrap=True)
        console.print(f"The last round known here is {result['last_round_known']}.")
        console.print(
            "A full round of everybody must follow: fedforget round SERVER CLIENT... --full",
            soft_wrap=True,
        )

    show(result, as_json, in_words)


@app.command()
def suppression(
    folder: ClientFolder,
    off: Annotated[
        bool, typer.Option("--off", help="Erase each digest once its round has committed.")
    ] = False,
    on: Annotated[bool, typer.Option("--on", help="Keep the digests again.")] = False,
    move: Annotated[
        Path | None, typer.Option(help="Move the list to this file, or use the one that is there.")
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Begin an empty list, because the old one is lost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the list of forgotten ids, move it, or switch it off.

    The list holds keyed digests, not ids. It keeps old exports from bringing forgotten records
    back, and tells after a restore what was forgotten since the backup. Keep it in a place that is
    not restored together with the directory.

    Example: `fedforget client suppression aarhus/ --move /safe/aarhus-forgotten.db`
    """
    from fedforget.cli.console import console, number_of, plain_errors, safe, show
    from fedforget.errors import FedforgetError
    from fedforget.parties.client_party import open_client

    with plain_errors():
        if on and off:
            raise FedforgetError("--on and --off contradict each other")
        with open_client(folder) as party:
            if on or off or anew or move is not None:
                party.suppression.set(on=on or (False if off else None), path=move, anew=anew)
            inside = party.suppression.path.parent == party.folder.resolve()
            result = {
                "ids": party.status()["ids_suppressed"],
                "file": str(party.suppression.path),
                "in_the_directory": inside,
                "on": party.suppression.keeps,
            }

    def in_words() -> None:
        ids = number_of(result["ids"], "id")
        console.print(f"{ids}, in [bold]{safe(result['file'])}[/]", soft_wrap=True)
        if not result["on"]:
            console.print(
                "Switched off: digests are kept only until the round that forgets their ids has"
                " committed. An old export can bring forgotten records back.",
                soft_wrap=True,
            )
        elif inside:
            console.print(
                "The file lies in the client's directory and would be restored with it; a place"
                " outside is better (--move FILE).",
                soft_wrap=True,
            )

    show(result, as_json, in_words)


@app.command()
def status(
    folder: ClientFolder,
    due_days: Annotated[
        float, typer.Option(min=0, help="Days within which a request must be carried out.")
    ] = 30.0,
    stale_days: Annotated[
        float, typer.Option(min=0, help="Days after which a missed round is overdue.")
    ] = 7.0,
    metrics: Annotated[
        Path | None, typer.Option(help="A file to write, in Prometheus' text format.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="End with status 1 if something is overdue.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what the client holds, what waits for a round and since when, and what is overdue.

    `--check` ends with status 1 if something is overdue: a request after its due date, a member, a
    commit or an import that has been missing for longer than `--stale-days`. `--metrics` leaves out
    numbers of records and requests below the federation's least cell.

    Example: `fedforget client status aarhus/ --check --metrics aarhus.prom`
    """
    from fedforget.cli.status_command import Asked, show_client

    show_client(folder, Asked(due_days, stale_days, metrics, check, as_json))


@app.command()
def preview(
    folder: ClientFolder,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A new .json file for whoever approves it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show exactly what the next round would take, before it goes.

    Shows each reported centre in the features' own units with its count, what changed since the
    last commit, the smallest cluster behind it, and what the site's `policy.toml` says. Nothing is
    sent and nothing changes. A client that waits to leave sends what was counted last instead.

    Example: `fedforget client preview aarhus/ -o preview.json`
    """
    from fedforget.cli.preview_commands import show_preview

    show_preview(folder, out, as_json)


@app.command()
def approve(
    folder: ClientFolder,
    digest: Annotated[
        str | None, typer.Option(help="The digest that `client preview` has shown.")
    ] = None,
    previewed: Annotated[
        Path | None,
        typer.Option("--preview", help="The file that `client preview -o` has written."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Approve what was previewed, where the site's policy asks for approval.

    Give the digest, or the file that was looked at. The approval holds for exactly that report. As
    soon as records change it, rounds go on with what was counted last until the new one is
    approved.

    Example: `fedforget client approve aarhus/ --preview preview.json`
    """
    from fedforget.cli.preview_commands import approve_report

    approve_report(folder, digest, previewed, as_json)


@app.command()
def labels(
    folder: ClientFolder,
    model: Annotated[Path, typer.Option(help="Centroids as `server model` writes them.")],
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", help="A .csv or .parquet file to write, or the .h5ad file of the cells."
        ),
    ],
    like: Annotated[
        Path | None,
        typer.Option(help="An earlier model (.npz, .json): number clusters as it does."),
    ] = None,
    key: Annotated[
        str, typer.Option(help="Of an .h5ad file: the column of obs for the labels.")
    ] = "fedforget",
    id_column: Annotated[
        str | None,
        typer.Option("--id", help="Of an .h5ad file: the column of obs with the ids, if any."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write each record's cluster.

    With `--like`, each cluster has the number of the earlier one that it is matched with, and the
    command says how far clusters moved and how many records have another number than before.

    In an .h5ad file, which must exist, the clusters are written as a categorical column of obs;
    cells that are not held here have none. The file is replaced as a whole.

    Example: `fedforget client labels aarhus/ --model centroids.npz -o labels.csv`

    Example: `fedforget client labels aarhus/ --model centroids.npz -o cells.h5ad`
    """
    from fedforget.cli.labels_command import write_labels

    write_labels(folder, model, like, out, as_json, key=key, id_column=id_column)


@app.command()
def receipts(
    folder: ClientFolder,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A folder to write them to.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the receipts, or write them as files that are never overwritten.

    The salt of a request is shown a last time when its receipt is written out, and is then erased
    here. Keep it apart from the receipt: together they tell who was forgotten.

    Example: `fedforget client receipts aarhus/ -o receipts/`
    """
    from fedforget.cli.receipts_command import show_receipts

    show_receipts(folder, out, as_json)


@app.command()
def audit(folder: ClientFolder, as_json: Json = False) -> None:
    """Fit again from the retained records and compare with what is stored. Exit status 0 or 1.

    Also looks for requests without receipts, records that are held although they were forgotten,
    and commit notices that do not make one history.

    Example: `fedforget client audit aarhus/`
    """
    from fedforget.cli.audit_command import audit_client

    audit_client(folder, as_json)


@app.command(
    help=page_help(
        "Show the client's page: requests, receipts, local clusters, and what the next round"
        " takes.",
        "fedforget client page aarhus/ --serve",
    )
)
def page(
    folder: ClientFolder,
    serve: Serve = False,
    out: Out = REPORT,
    address: PageAddress = "127.0.0.1",
    port: Port = PORT,
    token: Token = False,
    token_file: TokenFile = None,
    names: HostNames = None,
) -> None:
    from fedforget.cli.page_command import show_page

    show_page(folder, "client", serve, out, address, port, token, token_file, names)
