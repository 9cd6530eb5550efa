"""Says at once what a long campaign needs; ``make`` calls it before anything is installed.

Only the standard library: on a fresh machine there is nothing else yet.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """What a campaign takes.

    Attributes
    ----------
    about : what it does.
    minutes : how long, on two cores of 2.5 GHz that do nothing else.
    cores : how many processes it starts.
    gigabytes : of memory, at most.
    programs : must be there, and why.
    better : without these it passes, but some of it is skipped, and what.
    """

    about: str
    minutes: str
    cores: int = 2
    gigabytes: int = 2
    programs: tuple[tuple[str, str], ...] = ()
    better: tuple[tuple[str, str], ...] = ()


CAMPAIGNS = {
    "faults": Needs("10,000 seeded schedules of faults, lies and restores", "10"),
    "crash": Needs("5,000 kills of clients and servers in the middle of their work", "30 to 60"),
    "model": Needs("the rules of the protocol against any server, enumerated", "5", gigabytes=4),
    "fuzz": Needs("ten million corrupted vectors", "5"),
    "test-flower": Needs(
        "SuperNodes killed at every stage, restarts, simulations, over real processes",
        "40 to 60",
        gigabytes=8,
        programs=(("openssl", "certificates"), ("ssh-keygen", "keys of nodes")),
        better=(("nginx", "the test of the gate"),),
    ),
    "bench": Needs(
        "every benchmark; figures mean something on a quiet machine only", "30 to 40", cores=1,
        gigabytes=8,
    ),
}  # fmt: skip


def lines(name: str, cores: int, found: frozenset[str]) -> tuple[list[str], bool]:
    """What to say on a machine with so many cores and these programs; whether it can begin."""
    needs = CAMPAIGNS[name]
    told = [
        f"make {name}: {needs.about}",
        f"  time    about {needs.minutes} minutes on two quiet cores",
        "          the first run also installs packages and compiles kernels (3 to 5 minutes)",
        f"  cores   {needs.cores}"
        + ("" if cores >= needs.cores else f" (there is {cores}: it takes longer)"),
        f"  memory  {needs.gigabytes} GB",
    ]
    able = True
    for program, why in needs.programs:
        there = program in found
        able = able and there
        state = "found" if there else "MISSING: install it first"
        told.append(f"  program {program} ({why}): {state}")
    for program, what in needs.better:
        state = "found" if program in found else f"missing; {what} is skipped"
        told.append(f"  program {program}: {state}")
    return told, able


def main() -> int:
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in CAMPAIGNS:
        print(f"usage: needs.py {'|'.join(CAMPAIGNS)}", file=sys.stderr)
        return 2
    wanted = [program for program, _ in (*CAMPAIGNS[name].programs, *CAMPAIGNS[name].better)]
    found = frozenset(program for program in wanted if shutil.which(program))
    told, able = lines(name, os.cpu_count() or 1, found)
    print("\n".join(told), flush=True)
    return 0 if able else 1


if __name__ == "__main__":
    sys.exit(main())
