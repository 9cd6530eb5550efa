"""Explores the large scenarios and prints how many states each of them has."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model import attempt, operators, scenarios, world
from model.explorer import Result, explore
from model.operators import Faults, Plan
from model.rules import MENDED
from model.world import Scenario, Server


def main() -> int:
    parser = argparse.ArgumentParser(prog="model", description=__doc__)
    parser.add_argument("--most", type=int, default=700_000, help="states of one scenario")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use")
    parser.add_argument("--rules", action="store_true", help="show what each rule prevents")
    options = parser.parse_args()
    if options.rules:
        return show_rules()
    inside()
    every = [*scenarios.SMALL, *scenarios.LARGE, *scenarios.LIVE_SMALL, *scenarios.LIVE_LARGE]
    failed = False
    print(f"{'states':>10} {'moves':>11} {'seconds':>8}  scenario")
    with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool:
        for case, result in zip(every, pool.map(partial(run, options.most), every), strict=True):
            extent = "" if result.complete else " (not all of it)"
            figures = f"{result.states:>10,} {result.moves:>11,} {result.seconds:>8.1f}"
            print(f"{figures}  {case.name}{extent}", flush=True)
            if result.violation:
                failed = True
                print(result)
    return int(failed)


def run(most: int, case: Scenario | Plan) -> Result[object]:
    """One search, with the rules as they are."""
    if isinstance(case, Plan):
        faults = Faults(case, MENDED)
        return explore(operators.start(case), faults.moves, faults.wrong, most)
    server = Server(case, MENDED)
    return explore(world.start(case), server.moves, server.wrong, most)


def inside() -> None:
    for members, colluding in ((3, {2}), (4, {3}), (4, set()), (5, {4}), (5, set())):
        count, found = attempt.check(attempt.Inside(), members, frozenset(colluding))
        said = found or "one sum at most, over h - c honest members at least"
        print(f"one attempt of {members}, colluders {colluding or '{}'}: {count:,} choices: {said}")


def show_rules() -> int:
    for name, needed in scenarios.NEEDED.items():
        server = Server(needed.scenario, MENDED.without(name, *needed.also_off))
        found = explore(world.start(needed.scenario), server.moves, server.wrong)
        print(f"\nwithout {name}:\n{found}")
    for name, plan in scenarios.LIVE_NEEDED.items():
        faults = Faults(plan, MENDED.without(name))
        found = explore(operators.start(plan), faults.moves, faults.wrong)
        print(f"\nwithout {name}:\n{found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
