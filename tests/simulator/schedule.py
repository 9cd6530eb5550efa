"""One schedule, and how it went."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

from simulator.faults import Fate, ViolationError, draw_rates
from simulator.honest import HonestWorld
from simulator.lying import LyingWorld
from simulator.parties import Parties
from simulator.speed import verify_once


@dataclass
class Outcome:
    """How a schedule went."""

    seed: int
    tally: Counter[str] = field(default_factory=Counter)
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


def run(
    seed: int,
    parties: Parties | None = None,
    faults: Mapping[str, float] | None = None,
    trouble: str | None = None,
    lying: bool | None = None,
    amending: bool | None = None,
) -> Outcome:
    """Play a schedule.  Whatever is raised inside it, other than a refusal, is a violation.

    ``faults`` replaces the rates that the seed gives to some kinds, ``trouble`` the kind of
    trouble, ``lying`` whether the server lies, ``amending`` whether the federation is amended.
    """
    verify_once()
    rng = Random(seed)
    rates = replace(draw_rates(rng), **(faults or {}))
    lies = rng.random() < 0.45 if lying is None else lying
    plans = Random(f"amendments {seed}")
    amends = plans.random() < 0.6 if amending is None else amending
    world = (LyingWorld if lies else HonestWorld)(
        Fate(rng, rates), parties or Parties(), trouble, plans if amends else None
    )
    world.fate.tally["lying servers" if lies else "honest servers"] += 1
    outcome = Outcome(seed, world.fate.tally, None, world.trace)
    try:
        world.play()
    except ViolationError as violation:
        outcome.violation = str(violation)
    except Exception as error:
        outcome.violation = f"{type(error).__name__}: {error}"
        outcome.trace += traceback.format_exc().splitlines()
    return outcome
