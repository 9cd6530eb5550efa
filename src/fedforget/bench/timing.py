"""Seconds, measured in one way by all benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from fedforget.baselines.federation import timed

__all__ = ["median_seconds", "timed"]


def median_seconds(*calls: Callable[[], object], repeats: int, rounds: int = 5) -> list[float]:
    """The median time of each call.

    The calls take turns in rounds, so that a noisy spell hits all of them.  Within a round each
    one is repeated, and the first time does not count: it is spent getting back memory that the
    others have given up.

    Parameters
    ----------
    calls : what is measured.
    repeats : how often each call is measured over all rounds, and at least once per round.
    rounds : how often the calls take turns.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, own in zip(calls, times, strict=True):
            call()
            own += [timed(call)[1] for _ in range(max(1, repeats // rounds))]
    return [statistics.median(own) for own in times]
