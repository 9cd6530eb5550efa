"""``fedforget server``: set a federation up, enrol members, look at the model and the log."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedforget.cli.federation_options import (
    CLUSTERS,
    COLLUDING,
    DEADLINE,
    DROPOUT,
    MAX_ITER,
    MINIMUM,
    N_INIT,
    STEP,
    CountStep,
    MinCell,
    MinRecords,
)
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

if TYPE_CHECKING:
    from fedforget.parties.federation_file import FederationFile
    from fedforget.parties.joined import Joined
    from fedforget.parties.membership_file import MembershipDocument

app = typer.Typer(help="The server of a federation.", no_args_is_help=True)

_TWO = (
    "with a minimum of 2, each of two members can take its own part out of the sum and sees what"
    " the other one reported. With 3 or more, nobody can do that alone."
)

ServerFolder = Annotated[Path, typer.Argument(help="The server's directory.")]


_OPTION = re.compile(r"^draft(?:, line \d+)?: ((?:model|protocol|disclosure)\.(\w+)|\S+)")


def _check_options(draft: FederationFile) -> None:
    """Every check of the format; there is no file yet, so options are named and no lines."""
    from fedforget.parties.federation_file import FederationFileError

    def option(found: re.Match[str]) -> str:
        path, key = found.groups()
        if key is None:
            return path
        name = "clusters" if key == "n_clusters" else key.replace("_", "-")
        return f"--{name} ({path})"

    try:
        type(draft).parse(draft.text(), "draft")
    except FederationFileError as error:
        raise FederationFileError(_OPTION.sub(option, str(error))) from None


@app.command()
def init(
    folder: ServerFolder,
    name: Annotated[str, typer.Option(help="The federation's name.")],
    clusters: Annotated[int, CLUSTERS],
    feature: Annotated[
        list[str] | None,
        typer.Option(help="A column with its public bounds, NAME:LOW:HIGH; repeat for each."),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(help="The columns and bounds as a CSV file with columns name, low, high."),
    ] = None,
    fill: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A public constant for missing values of a column; repeat for each.",
        ),
    ] = None,
    step: Annotated[float, STEP] = 0.01,
    local_clusters: Annotated[
        int | None, typer.Option(help="Clusters that a client reports; 2 K if left out.")
    ] = None,
    scale: Annotated[
        str, typer.Option(help="none, or box: each feature is scaled by its range.")
    ] = "box",
    representatives: Annotated[
        str, typer.Option(help="means, seeds as in the paper, or lloyd: K-means of each client.")
    ] = "means",
    server_points: Annotated[str, typer.Option(help="weighted or uniform.")] = "weighted",
    shift: Annotated[bool, typer.Option("--shift", help="Shift the grid at random.")] = False,
    n_init: Annotated[int, N_INIT] = 10,
    max_iter: Annotated[int, MAX_ITER] = 300,
    disclosure: Annotated[
        str,
        typer.Option(
            help="What clients report and the server publishes: the rules of datashield (cells of"
            " at least 3 records), omop (5), cms (11), or none."
        ),
    ] = "omop",
    min_cell: MinCell = None,
    min_records: MinRecords = None,
    count_step: CountStep = None,
    published_step: Annotated[
        float | None,
        typer.Option(
            help="Centres are published on a grid of this step; the step of the bins if left out,"
            " 0 for exact ones."
        ),
    ] = None,
    show_seeds: Annotated[
        bool,
        typer.Option(
            "--show-seeds", help="Report seeds, even though each is the bin of a real record."
        ),
    ] = False,
    dropout: Annotated[float, DROPOUT] = 0.1,
    colluding: Annotated[float, COLLUDING] = 0.1,
    minimum: Annotated[int, MINIMUM] = 3,
    deadline: Annotated[float, DEADLINE] = 60.0,
    as_json: Json = False,
) -> None:
    """Set up a federation: make the server's directory and its federation file.

    Three numbers follow from the membership list of n members. **c**, how many may collude with the
    server: the share `--colluding` of n, at least one. **h**, how many must take part in a round: n
    minus the share `--dropout`, and at least `--minimum`. **s**, how many must sign whose inputs
    are summed up: more than half of n + c. A list for which h is above n, or s above h, is refused.
    With three members, all three must be there in every round.

    The rules of `--disclosure` are part of the federation file; the options after it replace single
    values. By default clients report no cluster of fewer than 5 records, nothing at all if they
    have fewer than 10 records, and sizes in steps of 5; centres are published on the grid of the
    bins. The presets take their cell sizes from what the consortia named have agreed on.

    Example: `fedforget server init server/ --name study --clusters 3 --feature age:0:120
    --feature weight:0:300`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.cli.source_options import constants
    from fedforget.parties.disclosure import (
        checked_preset,
        first_capacity,
        preset,
        warnings_of,
    )
    from fedforget.parties.federation_file import (
        Feature,
        FederationFile,
        ModelPart,
        ProtocolPart,
        with_fill,
    )
    from fedforget.parties.folders import FEDERATION
    from fedforget.parties.server_party import ServerParty

    with plain_errors():
        columns = [feature_of(text) for text in feature or []]
        if features is not None:
            columns += _features_of(features)
        filled = with_fill([Feature(*column) for column in columns], constants(fill or []))
        check_seeds(representatives, show_seeds)
        rules = preset(
            checked_preset(disclosure),
            step,
            min_cell=min_cell,
            min_records=min_records,
            count_step=count_step,
            published_step=published_step,
        )
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
            protocol=ProtocolPart(dropout, colluding, minimum, first_capacity(rules), deadline),
            features=filled,
            disclosure=rules,
        )
        _check_options(draft)
        federation = ServerParty.create(folder, draft)
    path = folder / FEDERATION
    warnings = [_TWO] * (minimum == 2) + warnings_of(rules, step)
    result = {
        "federation_file": str(path),
        "identifier": federation.identifier,
        "disclosure": asdict(rules),
        "warnings": warnings,
    }

    def in_words() -> None:
        where = (
            f"The federation “{safe(federation.name)}” is set up in [bold]{safe(folder)}[/bold]."
        )
        console.print(where, soft_wrap=True)
        for warning in warnings:
            console.print(f"[bold yellow]warning:[/bold yellow] {warning}", soft_wrap=True)
        give = f"Give every client the file [bold]{safe(path)}[/bold], and then enrol them:"
        console.print(give, soft_wrap=True)
        command = f"  fedforget server enrol {safe(folder)} --client enrolment.json ..."
        console.print(command, style="dim", soft_wrap=True)

    show(result, as_json, in_words)


def check_seeds(representatives: str | None, show_seeds: bool) -> None:
    """Let seeds be reported only where somebody has said what that shows."""
    from fedforget.errors import FedforgetError

    if representatives == "seeds" and not show_seeds:
        raise FedforgetError(
            "a seed is a real record, and the sum would show its bin: use --representatives"
            " means or lloyd, or say --show-seeds, too"
        )


def feature_of(text: str) -> tuple[str, float, float]:
    from fedforget.errors import FedforgetError

    try:
        name, low, high = text.rsplit(":", 2)
        return name, float(low), float(high)
    except ValueError:
        raise FedforgetError(f"--feature {text!r} must have the form NAME:LOW:HIGH") from None


def _features_of(path: Path) -> list[tuple[str, float, float]]:
    import csv

    from fedforget.errors import FedforgetError
    from fedforget.incoming import MAX_JSON_BYTES, read_text

    try:
        rows = list(csv.DictReader(read_text(path, MAX_JSON_BYTES).splitlines()))
        return [(row["name"], float(row["low"]), float(row["high"])) for row in rows]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        if isinstance(error, FedforgetError):
            raise
        raise FedforgetError(f"{path} must have the columns name, low and high") from None


@app.command()
def enrol(
    folder: ServerFolder,
    client: Annotated[
        list[Path] | None, typer.Option(help="Enrolment file of a client; repeat for each.")
    ] = None,
    gone: Annotated[
        list[str] | None,
        typer.Option(help="A member to take off the list; what is counted of it will show."),
    ] = None,
    renew: Annotated[
        list[str] | None,
        typer.Option(help="A member whose key is replaced by that of its new enrolment file."),
    ] = None,
    suspend: Annotated[
        list[str] | None,
        typer.Option(help="A member that takes no part for a while; it stays counted."),
    ] = None,
    resume: Annotated[
        list[str] | None, typer.Option(help="A suspended member that takes part again.")
    ] = None,
    afresh: Annotated[
        bool,
        typer.Option(
            "--afresh", help="Make a new list of the same members, when an error asks for it."
        ),
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Go on even if members will have to accept (`client join --alone`)."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before --gone.")] = False,
    as_json: Json = False,
) -> None:
    """Begin an epoch: a new, numbered and signed list of members.

    Shows what changes, the list's fingerprint, and what the coming sums will show. A member that is
    away for long, or suspected of spoiling rounds, is better suspended than taken off the list: the
    sums then show at most what it changed, and not its whole histogram. Without `--alone`, a list
    is refused if some members could accept it only by letting something of theirs show.

    Example: `fedforget server enrol server/ --client aarhus/enrolment.json
    --client bologna/enrolment.json`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.cli.member_lists import plain_join, show_join
    from fedforget.errors import FedforgetError
    from fedforget.parties.joined import Joined
    from fedforget.parties.server_party import ListChanges, open_server

    with plain_errors():
        enrolments: dict[str, str] = {}
        for one in client or []:
            name, key = _enrolment(one)
            if name in enrolments:
                raise FedforgetError(f"{one}: there are two enrolment files of {name}")
            enrolments[name] = key
        with open_server(folder) as party:
            lists = party.lists()
            before = lists[-1] if lists else None
            path = list_file(folder, 1 if before is None else before.epoch + 1)
            if path.exists() or path.is_symlink():
                raise FedforgetError(
                    f"{path} exists already, but this server knows no such epoch: it was restored"
                    " from a backup (run server recover), or the file is not its own"
                    " (move it away)"
                )
            changes: ListChanges = {
                "gone": tuple(gone or ()),
                "renew": tuple(renew or ()),
                "suspend": tuple(suspend or ()),
                "resume": tuple(resume or ()),
                "afresh": afresh,
            }
            opened = party.opened_since_the_last_commit()
            listed = party.plan(enrolments, **changes)
            plan = Joined.after(party.federation, lists, [listed], opened)
            if not alone:
                check_nobody_is_asked(plan)
            if gone and not yes and not as_json and sys.stdin.isatty():
                who = ", ".join(gone)
                typer.confirm(f"What is counted of {who} will show. Go on?", abort=True)
            write_list(path, party.enrol(enrolments, **changes))

    def in_words() -> None:
        show_join(plan)
        console.print(f"Give every member the file [bold]{safe(path)}[/bold]:", soft_wrap=True)
        command = f"  fedforget client join CLIENT --epoch {safe(path)}"
        console.print(command, style="dim", soft_wrap=True)
        console.print("  (a new member's first time: also --federation FILE)", style="dim")

    show(plain_join(plan) | {"epoch_file": str(path)}, as_json, in_words)


def check_nobody_is_asked(plan: Joined) -> None:
    """Refuse a list that members would refuse, before it is made."""
    from fedforget.cli.console import listed
    from fedforget.errors import FedforgetError

    asked = plan.asked()
    if asked:
        raise FedforgetError(
            f"{listed(asked)} could go on with this list only by `client join --alone`"
            f" ({'; '.join(plan.will_show())}). Nothing was changed. Ask them first and then say"
            " --alone here, too, or make another list: with several newcomers at once, with fewer"
            " who go, or the same list after the next round"
        )


def _enrolment(path: Path) -> tuple[str, str]:
    """Name and key of an enrolment file."""
    from fedforget.errors import FedforgetError
    from fedforget.incoming import read_json

    entry = read_json(path)
    match entry:
        case {"name": str(name), "key": str(key)} if len(entry) == 2:
            return name, key
    raise FedforgetError(f"{path} is not an enrolment file: client init writes one")


def list_file(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch}.json"


def write_list(path: Path, document: MembershipDocument) -> None:
    """Write a membership list; a file with another content is left alone."""
    import json

    from fedforget.parties.folders import write_private

    text = json.dumps(document.plain(), indent=1, ensure_ascii=False)
    # Private, because every file of a party's directory has to be.
    write_private(path, text.encode(), replace=False)


@app.command()
def amend(
    folder: ServerFolder,
    clusters: Annotated[int | None, CLUSTERS] = None,
    local_clusters: Annotated[
        int | None, typer.Option(help="Clusters that a client reports.")
    ] = None,
    step: Annotated[float | None, STEP] = None,
    scale: Annotated[
        str | None, typer.Option(help="none, or box: each feature is scaled by its range.")
    ] = None,
    representatives: Annotated[
        str | None, typer.Option(help="means, seeds as in the paper, or lloyd.")
    ] = None,
    show_seeds: Annotated[
        bool, typer.Option("--show-seeds", help="Seeds are real records: their bins may be shown.")
    ] = False,
    feature: Annotated[
        list[str] | None,
        typer.Option(help="A column with other bounds, or a new one, NAME:LOW:HIGH."),
    ] = None,
    drop_feature: Annotated[
        list[str] | None, typer.Option(help="A column that is no longer used.")
    ] = None,
    n_init: Annotated[int | None, N_INIT] = None,
    max_iter: Annotated[int | None, MAX_ITER] = None,
    min_cell: MinCell = None,
    min_records: MinRecords = None,
    count_step: CountStep = None,
    published_step: Annotated[
        float | None, typer.Option(help="Centres are published on a grid of this step; 0: exact.")
    ] = None,
    dropout: Annotated[float | None, DROPOUT] = None,
    colluding: Annotated[float | None, COLLUDING] = None,
    minimum: Annotated[int | None, MINIMUM] = None,
    deadline: Annotated[float | None, DEADLINE] = None,
    restore: Annotated[
        list[Path] | None,
        typer.Option(
            help="A later version that this server made before it was restored; repeat for each."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Go on even if members will have to accept (`client join --alone`)."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Change the federation: make the next version of its file, and a list that goes with it.

    Shows the difference and what follows. Every member takes both files over with `client join`;
    the next round is a full one of everybody. Receipts of earlier versions stay valid: the file of
    that time is kept as `federation-N.toml`. Name, seed, shift of the grid and the kind of points
    at the server stay for ever: for others, set up a new federation with `server init`.

    Example: `fedforget server amend server/ --clusters 5 --feature age:0:110`
    """
    from fedforget.cli.amend_command import make_amendment, take_versions_back
    from fedforget.cli.console import plain_errors

    given: dict[str, dict[str, Any]] = {
        "model": {
            "n_clusters": clusters,
            "local_clusters": local_clusters,
            "step": step,
            "scale": scale,
            "representatives": representatives,
            "n_init": n_init,
            "max_iter": max_iter,
        },
        "disclosure": {
            "min_cell": min_cell,
            "min_records": min_records,
            "count_step": count_step,
            "published_step": published_step,
        },
        "protocol": {
            "dropout": dropout,
            "colluding": colluding,
            "minimum": minimum,
            "deadline": deadline,
        },
    }
    with plain_errors():
        check_seeds(representatives, show_seeds)
    if restore:
        besides = [value for part in given.values() for value in part.values() if value is not None]
        others = bool(besides or feature or drop_feature or dry_run)
        take_versions_back(folder, restore, as_json, others=others)
        return
    make_amendment(
        folder,
        given,
        feature or [],
        drop_feature or [],
        dry_run=dry_run,
        alone=alone,
        as_json=as_json,
    )


@app.command()
def members(
    folder: ServerFolder,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A file to write the list to.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the list in force and its fingerprint, or write it once more.

    Example: `fedforget server members server/ -o epoch-3.json`
    """
    from fedforget.cli.console import console, plain_errors, safe, show
    from fedforget.cli.member_lists import plain_list, show_list
    from fedforget.parties.server_party import ServerError, open_server

    with plain_errors(), open_server(folder) as party:
        document, name = party.document(), party.federation.name
        if document is None:
            raise ServerError("nobody is enrolled: run server enrol first")
        membership = document.signed().membership
        if out is not None:
            write_list(out, document)

    def in_words() -> None:
        show_list(membership, name)
        if out is not None:
            console.print(f"Written to [bold]{safe(out)}[/bold]", soft_wrap=True)

    file = None if out is None else str(out)
    show(plain_list(membership) | {"file": file}, as_json, in_words)


@app.command()
def recover(
    folder: ServerFolder,
    clients: Annotated[list[Path], typer.Argument(help="The clients' directories.")],
    as_json: Json = False,
) -> None:
    """Go on with a server that was restored from a backup: collect what its members know.

    Takes over the commit notices and membership lists that were made since the backup; every one
    is checked. The sum that belonged to them is lost, so a full round of everybody must follow.

    Example: `fedforget server recover server/ aarhus/ bologna/ coimbra/`
    """
    from fedforget.cli.console import console, number_of, plain_errors, safe, show
    from fedforget.parties.server_party import open_server
    from fedforget.runtime.directories import recover as recover_server

    with plain_errors():
        result: dict[str, Any] = dict(recover_server(folder, clients))
        with open_server(folder) as party:
            document = party.document()
            path = list_file(folder, result["epoch"])
            if document is not None:
                write_list(path, document)

    def in_words() -> None:
        console.print(
            f"{number_of(result['rounds_taken_over'], 'round')} and"
            f" {number_of(result['lists_taken_over'], 'list')} taken over; this server stands at"
            f" round {result['round']}, epoch {result['epoch']}.",
            soft_wrap=True,
        )
        console.print(f"The list in force: [bold]{safe(path)}[/bold]", soft_wrap=True)
        console.print(
            "A full round of everybody must follow: fedforget round SERVER CLIENT... --full",
            soft_wrap=True,
        )

    show(result | {"epoch_file": str(path)}, as_json, in_words)


@app.command()
def status(
    folder: ServerFolder,
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
    """Show the members, the rounds, who is missing and since when, and what is overdue.

    `--check` ends with status 1 if something is overdue: a commit or a member that has been missing
    for longer than `--stale-days`.

    Example: `fedforget server status server/ --check --metrics server.prom`
    """
    from fedforget.cli.status_command import Asked, show_server

    show_server(folder, Asked(30.0, stale_days, metrics, check, as_json))


@app.command()
def model(
    folder: ServerFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="A .csv, .json, .npz or .parquet file to write; `client labels` reads them all.",
        ),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="Another number of clusters, from the same sum.")
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="An earlier model (.npz, .json): number clusters as it does."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Export the centroids, in the original units and with the features' names.

    Example: `fedforget server model server/ -o centroids.npz`
    """
    from fedforget.cli.model_command import export_model

    export_model(folder, out, clusters, like, as_json)


@app.command()
def choose(
    folder: ServerFolder,
    clusters: Annotated[
        str, typer.Option(help="Numbers of clusters: 2:12 for all from 2 to 12, or 3,5,8.")
    ] = "2:12",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A picture to write, an .svg file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare numbers of clusters on the sum that the server holds; no round is needed.

    Shows for each number the loss and its decrease, whether restarts agree, the smallest cluster
    and whether the federation's rules are kept. Suggests a number and says why; nothing is changed.
    `server model --clusters` exports any of them, `server amend --clusters` makes one the
    federation's.

    Example: `fedforget server choose server/ --clusters 2:12 -o choose.svg`
    """
    from fedforget.cli.choose_command import compare

    compare(folder, clusters, out, as_json)


@app.command()
def audit(folder: ServerFolder, as_json: Json = False) -> None:
    """Recompute the model from the aggregate, and walk the log. Exit status 0 or 1.

    Example: `fedforget server audit server/`
    """
    from fedforget.cli.audit_command import audit_server

    audit_server(folder, as_json)


@app.command(
    help=page_help(
        "Show the server's page: the round under way, rounds, members, clusters and rules.",
        "fedforget server page server/ --serve",
    )
)
def page(
    folder: ServerFolder,
    serve: Serve = False,
    out: Out = REPORT,
    address: PageAddress = "127.0.0.1",
    port: Port = PORT,
    token: Token = False,
    token_file: TokenFile = None,
    names: HostNames = None,
) -> None:
    from fedforget.cli.page_command import show_page

    show_page(folder, "server", serve, out, address, port, token, token_file, names)
