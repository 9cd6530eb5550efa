"""The protocol under faults and lies: schedules that must hold, and flaws that must show."""

from __future__ import annotations

import pytest

from simulator.broken import FLAWS
from simulator.campaign import play, replay_command
from simulator.schedule import run
from simulator.view import independent, shows_alone

SCHEDULES = 300
CHUNKS = 12


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_schedule_keeps_the_promises(chunk: int) -> None:
    size = SCHEDULES // CHUNKS
    tally, violations = play(range(chunk * size, (chunk + 1) * size))
    assert not violations, "\n".join(violations)
    # A chunk in which nothing is committed, or nothing goes wrong, would test nothing.
    assert tally["rounds committed"] > size // 2
    assert tally["rounds committed by a lying server"] > 0
    assert tally["rounds aborted"] > 0
    assert tally["forged notices"] > 0
    assert tally["dropped"] + tally["client_killed"] + tally["server_killed"] > 0


@pytest.mark.parametrize("name", FLAWS)
def test_a_flaw_shows(name: str) -> None:
    flaw = FLAWS[name]
    # Where to begin is written down with the flaw, so that this does not take long.
    for seed in range(flaw.seed, flaw.seed + 150):
        outcome = run(seed, flaw.parties, flaw.faults, flaw.trouble, flaw.lying, flaw.amending)
        if outcome.violation is not None and any(one in outcome.violation for one in flaw.shows):
            return
    pytest.fail(f"nobody has noticed a party that {name}")


@pytest.mark.parametrize("lying", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_schedule_replays_exactly(seed: int, lying: bool) -> None:
    one, other = run(seed, lying=lying), run(seed, lying=lying)
    assert one.trace == other.trace
    assert one.tally == other.tally


def test_a_violation_says_how_to_see_it_again() -> None:
    assert replay_command(7).endswith("tests/simulator/__main__.py --seed 7")


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        (["abc", "ab"], "c"),
        (["abc", "abd"], ""),
        (["abc", "abd", "cd"], "cd"),
        (["ab", "bc", "ca"], "abc"),
        (["abcd", "ab", "cd"], ""),
    ],
)
def test_what_follows_from_sums(rows: list[str], shown: str) -> None:
    sums = independent([{(name, 0): 1 for name in row} for row in rows])
    found = {name for name in "abcd" if shows_alone(sums, name)}
    assert found == set(shown)
