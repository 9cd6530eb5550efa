"""What may go wrong by itself, how often, and the count of how often it did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from random import Random


@dataclass(frozen=True)
class Rates:
    """The chance of each fault; zero for all of them is a healed world.

    The first group is drawn for every message, the second for every tick of the clock and every
    party, the third wherever a party could die halfway, and the last once for each occasion.
    """

    dropped: float = 0.0
    delayed: float = 0.0
    duplicated: float = 0.0
    truncated: float = 0.0
    corrupted: float = 0.0
    replayed: float = 0.0
    misdirected: float = 0.0

    client_killed: float = 0.0
    server_killed: float = 0.0
    impatient: float = 0.0

    client_killed_before_storing: float = 0.0
    client_killed_before_sending: float = 0.0
    server_killed_before_storing: float = 0.0
    server_killed_before_sending: float = 0.0
    server_killed_while_sending: float = 0.0

    away_for_long: float = 0.0
    thawed: float = 0.0


_RARE_AND_FREQUENT = {
    "dropped": (0.01, 0.05),
    "delayed": (0.02, 0.08),
    "duplicated": (0.05, 0.20),
    "truncated": (0.005, 0.02),
    "corrupted": (0.005, 0.02),
    "replayed": (0.02, 0.10),
    "misdirected": (0.01, 0.03),
    "client_killed": (0.001, 0.005),
    "server_killed": (0.002, 0.01),
    "impatient": (0.005, 0.03),
    "client_killed_before_storing": (0.003, 0.01),
    "client_killed_before_sending": (0.003, 0.01),
    "server_killed_before_storing": (0.01, 0.05),
    "server_killed_before_sending": (0.01, 0.05),
    "server_killed_while_sending": (0.01, 0.05),
    "away_for_long": (0.2, 0.5),
    "thawed": (0.05, 0.3),
}

KINDS = tuple(field.name for field in fields(Rates))


def draw_rates(rng: Random) -> Rates:
    """The faults of one schedule: each kind is absent, rare or frequent, independently.

    Leaving kinds out matters as much as putting them in: some states are only reached in a world
    where little else goes wrong.
    """
    return Rates(**{kind: rng.choice((0.0, 0.0, *_RARE_AND_FREQUENT[kind])) for kind in KINDS})


class Fate:
    """Decides whether a fault happens, and counts those that do."""

    def __init__(self, rng: Random, rates: Rates) -> None:
        self.rng = rng
        self.rates = rates
        self.tally: Counter[str] = Counter()

    def strikes(self, kind: str) -> bool:
        """Whether a fault of this kind happens now."""
        rate: float = getattr(self.rates, kind)
        if not rate or self.rng.random() >= rate:
            return False
        self.tally[kind] += 1
        return True


class KilledError(Exception):
    """The process dies here; what it had not stored is lost."""


class ViolationError(Exception):
    """A promise of the protocol is broken."""
