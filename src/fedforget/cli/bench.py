"""``fedforget bench``: the paper's experiments from one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedforget.cli.json_option import Json

if TYPE_CHECKING:
    from fedforget.bench.cells import Cell
    from fedforget.bench.datasets import Split
    from fedforget.bench.plan import Library, Plan

app = typer.Typer(help="Measure fedforget against the paper.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure fedforget against the paper."""


@app.command()
def paper(
    quick: Annotated[
        bool, typer.Option("--quick", help="A minute or two, on data that needs no files.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Some experiments, such as table1,fig3d; see above.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder with the data files.", metavar="DIR")
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="Your own records (.npz, .csv, .parquet) instead.", metavar="FILE"),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="K; needed if your file has no labels to count.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; run again to resume.")] = Path(
        "bench-output"
    ),
    trials: Annotated[int | None, typer.Option(help="Repetitions of every experiment.")] = None,
    split: Annotated[
        Literal["file", "shuffled"],
        typer.Option(help="Deal neighbouring rows, as the authors do, or shuffled ones."),
    ] = "file",
) -> None:
    """The paper's tables and figures, with our numbers beside the printed ones.

    Each finished piece is kept in OUT/cells; a run that is cut off goes on from there. Numbers are
    written as JSON and CSV, figures as PNG and SVG, and all of it as one page, OUT/index.html.

    Experiments: table1, table2, variants, fragmented, fig3, fig3a … fig3l, random, adversarial,
    appendix, batch, clients, secure, local-clusters, theorem4.1, outliers, growth, remark,
    theorem5.4, scaling, reseeding, q-k-means, codes, exactness, beyond.

    Example: `fedforget bench paper --quick --only table1,fig3f`
    """
    from fedforget.cli.console import plain_errors
    from fedforget.cli.extras import check_extra

    with plain_errors():
        check_extra("bench", "bench paper")
    from fedforget.bench.machine import one_thread

    if trials is not None and trials < 1:
        raise typer.BadParameter("must be at least 1", param_hint="--trials")
    with one_thread():
        _run(quick, only, data, dataset, clusters, out, trials, split)


@app.command()
def disclosure(
    dataset: Annotated[
        str,
        typer.Option(help="A set of the paper or a small one by name, or a file of your own."),
    ] = "celltype",
    data: Annotated[
        Path | None, typer.Option(help="The folder with the data files.", metavar="DIR")
    ] = None,
    clusters: Annotated[
        int | None, typer.Option(help="K; needed if your file has no labels to count.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", help="A column of your file to leave out: the ids.")
    ] = None,
    local_clusters: Annotated[
        int | None, typer.Option(help="Clusters that a client reports; 2 K if left out.")
    ] = None,
    representatives: Annotated[
        Literal["means", "seeds", "lloyd"], typer.Option(help="What stands for a local cluster.")
    ] = "means",
    step: Annotated[
        float, typer.Option(help="Width of a grid bin, as a fraction of the range.")
    ] = 0.01,
    removals: Annotated[
        int | None,
        typer.Option(min=1, help="Records that are removed one by one; all if left out."),
    ] = None,
    models: Annotated[
        int, typer.Option(min=0, help="Removals that are guessed from two published models.")
    ] = 200,
    seed: Annotated[
        int, typer.Option(help="Seed of the federation and of the order of removals.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="A folder for a figure and the numbers.", metavar="DIR"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack a federation: guess removed records from what others see, under several rules.

    Removes records one by one and in batches of 20, and guesses each from the change of the sum, as
    the server can, and from two published models, as an outsider can. Prints how often a guess is
    within one step, and within 1 % of the range, in every feature. Also prints how many of these
    guesses come from a change (where nothing shows, the guess is random), how often the change
    alone, added up as if it were one record, is as near, and how often a guess singles the record
    out, because fewer than five records are that near to it. For comparison, prints how often a
    random guess is near, how often the fullest place of the sum is near, and what the rules cost. A
    member guesses as an outsider does: its own records drop out of the difference. Not tried:
    knowledge of other records, and changes watched over many rounds. The loss is null where no
    centre is published.

    Example: `fedforget bench disclosure --dataset mine.csv --clusters 4 --removals 1000`
    """
    from fedforget.cli.console import console, plain_errors, progress_bar, show
    from fedforget.cli.extras import check_extra

    with plain_errors():
        check_extra("bench", "bench disclosure")
    from dataclasses import asdict
    from math import isfinite

    from fedforget.bench.datasets import load, load_file, names
    from fedforget.bench.disclosure import attack
    from fedforget.bench.machine import one_thread
    from fedforget.errors import FedforgetError

    with plain_errors(), one_thread():
        if dataset in names() and id_column is not None:
            raise FedforgetError(f"--id is for a file of your own, and {dataset} is a known set")
        if dataset not in names() and not Path(dataset).exists():
            raise FedforgetError(
                f"there is no file {dataset}, and no set of this name; there are"
                f" {', '.join(names())}"
            )
        try:
            chosen = (
                load(dataset, data)
                if dataset in names()
                else load_file(Path(dataset), n_clusters=clusters, id_column=id_column)
            )
        except (ValueError, OSError) as error:
            raise FedforgetError(str(error)) from None
        with progress_bar("preparing", None, quiet=as_json) as bar:
            task = bar.task_ids[0]
            found = attack(
                chosen,
                step=step,
                local_clusters=local_clusters,
                representatives=representatives,
                singles=removals,
                outsider_tries=models,
                seed=seed,
                progress=lambda what, done, total: bar.update(
                    task, description=what, completed=done, total=total
                ),
            )
    result = {
        "dataset": chosen.name,
        "records": len(chosen.X),
        "clients": chosen.n_clients,
        "step": step,
        "representatives": representatives,
        "local_clusters": local_clusters or 2 * chosen.n_clusters,
        "seed": seed,
        # JSON has no infinite numbers.
        "settings": [
            asdict(one) | {"loss": one.loss if isfinite(one.loss) else None} for one in found
        ],
    }

    if out is not None:
        from fedforget.bench.cells import write_whole
        from fedforget.bench.disclosure_figure import draw
        from fedforget.text import json_text

        png, svg = draw(found, f"{chosen.name}, step {step:g}: removed records guessed")
        with plain_errors():
            for ending, content in (("png", png), ("svg", svg), ("json", json_text(result))):
                write_whole(out / f"disclosure.{ending}", content)

    def in_words() -> None:
        from fedforget.cli.disclosure_tables import tables_of

        for table in tables_of(found, f"{chosen.name}, step {step:g}"):
            console.print(table)

    show(result, as_json, in_words)


def _run(
    quick: bool,
    only: str | None,
    data: Path | None,
    dataset: Path | None,
    clusters: int | None,
    out: Path,
    trials: int | None,
    split: Split,
) -> None:
    from fedforget.bench import machine
    from fedforget.bench.catalogue import chosen
    from fedforget.bench.cells import CellStore
    from fedforget.bench.results_page import write_results
    from fedforget.bench.runner import run
    from fedforget.cli.console import console, messages, progress_bar, safe, warm_up_kernels
    from fedforget.text import visible

    try:
        experiments = chosen(only)
        plan, library = _plan(quick, data, dataset, clusters, trials, split)
    except (ValueError, FileNotFoundError) as error:
        messages.print(f"[bold red]error:[/bold red] {safe(error)}", soft_wrap=True)
        if not quick and dataset is None and isinstance(error, FileNotFoundError):
            messages.print("Name the folder with --data, or run --quick, which needs no files.")
        raise typer.Exit(1) from None
    warm_up_kernels()
    with progress_bar("preparing", None, quiet=False) as progress:
        task = progress.task_ids[0]

        def watch(cell: Cell, number: int, total: int) -> None:
            progress.update(
                task, description=visible(cell.label)[:70], completed=number, total=total
            )
            if not messages.is_terminal:
                # A log has no use for a bar that moves.
                messages.print(f"{number + 1}/{total} {safe(cell.label)}", soft_wrap=True)

        results = run(plan, library, CellStore(out / "cells"), experiments, watch)
    page = write_results(
        results,
        out,
        command=_command(quick, only, data, dataset, clusters, trials, split),
        machine=machine.describe(),
        notes={name: library.get(name).note for name in plan.datasets},
    )
    _summarise(results, page, console)


def _plan(
    quick: bool,
    data: Path | None,
    dataset: Path | None,
    clusters: int | None,
    trials: int | None,
    split: Split,
) -> tuple[Plan, Library]:
    from dataclasses import replace

    from fedforget.bench.plan import FULL, QUICK, Library, own_library, own_plan

    plan = QUICK if quick else FULL
    if trials is not None:
        plan = replace(plan, trials=trials, sweep_trials=trials, timing_trials=trials)
    if dataset is None:
        library = Library(data, split=split)
        for name in plan.datasets:
            library.get(name)
        return plan, library
    library = own_library(dataset, clusters, split)
    return own_plan(plan, library.get(dataset.stem)), library


def _command(
    quick: bool,
    only: str | None,
    data: Path | None,
    dataset: Path | None,
    clusters: int | None,
    trials: int | None,
    split: Split,
) -> str:
    """How to get the page again; folders by what they are, not where."""
    words = ["fedforget bench paper"]
    words += ["--quick"] if quick else []
    words += [f"--only {only}"] if only else []
    words += ["--data DIR"] if data else []
    words += [f"--dataset {dataset.name}"] if dataset else []
    words += [f"--clusters {clusters}"] if clusters else []
    words += [f"--trials {trials}"] if trials else []
    words += [f"--split {split}"] if split != "file" else []
    return " ".join(words)


def _summarise(results: Any, page: Path, console: Any) -> None:
    from fedforget.bench.checks import all_checks
    from fedforget.cli.console import safe

    for one in all_checks(results):
        mark = "[green]yes[/green]" if one.holds else "[red]no [/red]"
        console.print(
            f"{mark} {safe(one.claim)}: {safe(one.evidence)}", soft_wrap=True, highlight=False
        )
    console.print(f"The page: {safe(page)}", soft_wrap=True, highlight=False)
