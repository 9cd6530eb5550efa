"""Plays schedules from the command line, or one of them again with all that happened."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulator.campaign import outcomes, report
from simulator.faults import KINDS
from simulator.schedule import run


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
    _show(console, "Faults injected", tally, (*KINDS, "reordered"))
    rest = sorted(kind for kind in tally if kind not in (*KINDS, "reordered"))
    _show(console, "What happened", tally, tuple(rest))
    faults = sum(tally[kind] for kind in (*KINDS, "reordered"))
    console.print(
        f"{len(seeds):,} schedules in {seconds:.0f} s, {faults:,} faults,"
        f" {tally['rounds committed']:,} rounds committed, {tally['rounds aborted']:,} aborted,"
        f" {tally['attempts']:,} attempts, {len(violations)} violations"
    )
    return 1 if violations else 0


def _show(console: Console, title: str, tally: Counter[str], kinds: tuple[str, ...]) -> None:
    table = Table(title=title)
    table.add_column("kind")
    table.add_column("count", justify="right")
    for kind in kinds:
        table.add_row(kind.replace("_", " "), f"{tally[kind]:,}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
