"""Plays schedules from the command line, or one of them again with all that happened."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulator.campaign import outcomes, report
from simulator.faults import KINDS
from simulator.schedule import run

TAKEN_BACK = ("rollbacks", "directories restored", "servers restored", "new keys")
COMMANDS = ("client recover", "server recover", "accepted to join alone", "cured")
LISTS = (
    "lists", "joined together", "joined alone", "wanted to leave together", "wanted to leave alone",
    "suspended", "unsuspended", "gone", "empty epochs",
)  # fmt: skip
AMENDMENTS = (
    "amendments", "amendments in the middle of a round", "amendments with other bins",
    "amendments with more colluders", "amendments with fewer colluders", "server amend --restore",
    "rounds committed after an amendment",
    "amendments of a lying server", "amendments told in two versions",
    "amendments that change the members", "rounds of a lying server after an amendment",
)  # fmt: skip
LIES = (
    "attempts of a lying server", "rounds committed by a lying server",
    "sums that show, to a lying server", "notices hidden", "forged notices", "replayed lies",
    "plots", "split contexts", "split rosters", "split sharers", "split survivors",
    "lists of a lying server", "lists that lie", "lists replaced",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000, help="how many to play")
    parser.add_argument("--first-seed", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--seed", type=int, help="play this one and show what happened")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use")
    options = parser.parse_args()
    console = Console(highlight=False)
    if options.seed is not None:
        return replay(options.seed, console)
    return campaign(
        range(options.first_seed, options.first_seed + options.schedules), options.jobs, console
    )


def replay(seed: int, console: Console) -> int:
    """Show one schedule, line by line."""
    outcome = run(seed)
    for line in outcome.trace:
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"violation: {outcome.violation}" if outcome.violation else "no violation")
    return 1 if outcome.violation else 0


def campaign(seeds: range, jobs: int, console: Console) -> int:
    """Play many, and say how often what happened."""
    tally: Counter[str] = Counter()
    violations = []
    start = time.perf_counter()
    columns = (
        TextColumn("schedules"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("schedules", total=len(seeds))
        for outcome in outcomes(seeds, jobs):
            tally += outcome.tally
            if outcome.violation is not None:
                violations.append(outcome.seed)
                progress.console.print(report(outcome), markup=False, soft_wrap=True)
            progress.advance(task)
    seconds = time.perf_counter() - start
    faults = (*KINDS, "reordered")
    _show(console, "Faults injected", tally, faults)
    _show(console, "Taken back, and the commands that followed", tally, (*TAKEN_BACK, *COMMANDS))
    _show(console, "Membership", tally, LISTS)
    _show(console, "Amendments", tally, AMENDMENTS)
    _show(console, "Lies", tally, LIES)
    _show_spoilers(console, tally)
    shown = {*faults, *TAKEN_BACK, *COMMANDS, *LISTS, *AMENDMENTS, *LIES}
    rest = sorted(kind for kind in tally if kind not in shown and not _is_spoiler(kind))
    _show(console, "What else happened", tally, tuple(rest))
    _conclude(console, tally, len(seeds), seconds, len(violations))
    return 1 if violations else 0


def _conclude(
    console: Console, tally: Counter[str], schedules: int, seconds: float, violations: int
) -> None:
    total: Callable[[tuple[str, ...]], int] = lambda kinds: sum(map(tally.__getitem__, kinds))  # noqa: E731
    console.print(
        f"{schedules:,} schedules in {seconds:.0f} s: {tally['honest servers']:,} with an honest"
        f" server, {tally['lying servers']:,} with a lying one.\n"
        f"{total((*KINDS, 'reordered')):,} faults, {total(('rollbacks',)):,} rollbacks,"
        f" {total(('directories restored', 'servers restored')):,} restores,"
        f" {tally['forged notices']:,} forged notices.\n"
        f"{tally['rounds committed']:,} rounds committed, {tally['rounds aborted']:,} aborted,"
        f" {tally['attempts'] + tally['attempts of a lying server']:,} attempts.\n"
        f"{violations} violations"
    )


def _is_spoiler(kind: str) -> bool:
    return kind.startswith("spoiler, ")


def _show_spoilers(console: Console, tally: Counter[str]) -> None:
    table = Table(title="Spoilers, and whether they were found")
    table.add_column("kind")
    how = ("named", "paired", "unnamed")
    for one in how:
        table.add_column(one, justify="right")
    kinds = sorted({key.split(", ")[1].split(":")[0] for key in tally if _is_spoiler(key)})
    for kind in kinds:
        table.add_row(kind, *(f"{tally[f'spoiler, {kind}: {one}']:,}" for one in how))
    console.print(table)


def _show(console: Console, title: str, tally: Counter[str], kinds: tuple[str, ...]) -> None:
    table = Table(title=title)
    table.add_column("kind")
    table.add_column("count", justify="right")
    for kind in kinds:
        table.add_row(kind.replace("_", " "), f"{tally[kind]:,}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
