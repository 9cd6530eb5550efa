"""Many schedules, on several processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context

from simulator.schedule import Outcome, run


def replay_command(seed: int) -> str:
    """What to type to see a schedule again."""
    return f".venv/bin/python tests/simulator/__main__.py --seed {seed}"


def outcomes(seeds: range, jobs: int = 1) -> Iterator[Outcome]:
    """Play schedules, in no order where there are several jobs."""
    if jobs <= 1:
        yield from map(_brief, seeds)
        return
    # Spawned, not forked: what one schedule leaves behind must not reach another process.
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_brief, seeds, chunksize=8)


def _brief(seed: int) -> Outcome:
    """Without the trace, which a replay gives."""
    outcome = run(seed)
    outcome.trace = []
    return outcome


def play(seeds: range) -> tuple[Counter[str], list[str]]:
    """Play schedules here; returns the count of events, and a report of each violation."""
    tally: Counter[str] = Counter()
    reports = []
    for outcome in outcomes(seeds):
        tally += outcome.tally
        if outcome.violation is not None:
            reports.append(report(outcome))
    return tally, reports


def report(outcome: Outcome) -> str:
    return f"seed {outcome.seed}: {outcome.violation}\n  {replay_command(outcome.seed)}"
