"""The protocol under faults: schedules that must hold, and flaws that must show."""

from __future__ import annotations

import pytest

from simulator.broken import FLAWS
from simulator.campaign import play, replay_command
from simulator.schedule import Parties, World, run

SCHEDULES = 300
CHUNKS = 12
ENOUGH = 80
"""Schedules within which every flaw shows."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_schedule_keeps_the_promises(chunk: int) -> None:
    size = SCHEDULES // CHUNKS
    tally, violations = play(range(chunk * size, (chunk + 1) * size))
    assert not violations, "\n".join(violations)
    # A chunk in which nothing is committed, or nothing goes wrong, would test nothing.
    assert tally["rounds committed"] > size
    assert tally["rounds aborted"] > 0
    assert tally["dropped"] + tally["client_killed"] + tally["server_killed"] > 0


@pytest.mark.parametrize("name", FLAWS)
def test_a_flaw_shows(name: str) -> None:
    flaw = FLAWS[name]
    violations = (run(seed, flaw.parties, flaw.faults).violation for seed in range(ENOUGH))
    assert any(flaw.shows in violation for violation in violations if violation is not None)


@pytest.mark.parametrize("seed", range(5))
def test_a_schedule_replays_exactly(seed: int) -> None:
    one, other = run(seed), run(seed)
    assert one.trace == other.trace
    assert one.tally == other.tally


def test_a_violation_says_how_to_see_it_again() -> None:
    assert replay_command(7).endswith("tests/simulator/__main__.py --seed 7")


def test_a_new_epoch_does_not_show_one_change() -> None:
    for seed in range(12):
        world = World(seed, Parties(), {})
        world.play()
        assert not world.view.deltas_that_show_one(), replay_command(seed)
