"""The rules hold in every small scenario, and each of them is needed somewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model import attempt, operators, scenarios, world
from model.explorer import Result, explore
from model.knowledge import exposed
from model.operators import Faults, Plan
from model.rules import DRAFT, MENDED, NAMES, NOBODY, Input, Rules
from model.world import Scenario, Server


def search(scenario: Scenario, rules: Rules = MENDED) -> Result[world.World]:
    server = Server(scenario, rules)
    return explore(world.start(scenario), server.moves, server.wrong)


def operate(plan: Plan, rules: Rules = MENDED) -> Result[operators.Office]:
    faults = Faults(plan, rules)
    return explore(operators.start(plan), faults.moves, faults.wrong)


@pytest.mark.parametrize("scenario", scenarios.SMALL, ids=lambda scenario: scenario.name)
def test_no_server_learns_more_or_forks_the_history(scenario: Scenario) -> None:
    found = search(scenario)
    assert found.complete
    assert found.violation is None, f"\n{found}"


@pytest.mark.parametrize("name", scenarios.NEEDED)
def test_every_rule_is_needed(name: str) -> None:
    needed = scenarios.NEEDED[name]
    found = search(needed.scenario, MENDED.without(name, *needed.also_off))
    assert found.violation is not None, f"nothing goes wrong without {name}\n{found}"
    print(f"without {name}:\n{found}")


def test_every_rule_is_tried() -> None:
    assert {*scenarios.NEEDED, *scenarios.LIVE_NEEDED} == set(NAMES)


@pytest.mark.parametrize(
    "scenario",
    [scenarios.ALONE_NEW, scenarios.SUSPEND_NEW, scenarios.FIVE_LEAVE, scenarios.RESTORE],
    ids=lambda scenario: scenario.name,
)
def test_the_first_draft_of_the_rules_failed(scenario: Scenario) -> None:
    assert search(scenario, DRAFT).violation is not None


def test_two_bad_members_are_one_too_many() -> None:
    found = search(scenarios.TOO_MANY)
    assert found.violation is not None, f"\n{found}"
    found = search(replace(scenarios.FIVE_TWO, tolerated=1))
    assert found.violation is not None, f"\n{found}"


@pytest.mark.parametrize("plan", scenarios.LIVE_SMALL, ids=lambda plan: plan.name)
def test_whoever_stays_can_commit_and_records_stay_forgotten(plan: Plan) -> None:
    found = operate(plan)
    assert found.complete
    assert found.violation is None, f"\n{found}"


@pytest.mark.parametrize("name", scenarios.LIVE_NEEDED)
def test_without_the_rule_members_get_stuck_or_records_return(name: str) -> None:
    found = operate(scenarios.LIVE_NEEDED[name], MENDED.without(name))
    assert found.violation is not None, f"nothing goes wrong without {name}\n{found}"


@pytest.mark.parametrize(("members", "colluding"), [(3, {2}), (4, {3}), (4, set()), (5, {4})])
def test_one_attempt_opens_one_sum_at_most(members: int, colluding: set[int]) -> None:
    _, found = attempt.check(attempt.Inside(), members, frozenset(colluding))
    assert found is None, found


@pytest.mark.parametrize(
    ("name", "members"),
    [("one_view", 4), ("never_both", 4), ("enough_present", 4), ("colluders_in_quorum", 5)],
)
def test_the_rules_inside_an_attempt_are_needed(name: str, members: int) -> None:
    rules = attempt.Inside().without(name)
    _, found = attempt.check(rules, members, frozenset({members - 1}))
    assert found is not None, f"nothing goes wrong without {name}"


def test_differences_of_sums_are_found() -> None:
    one, two, three = (Input(member, 0, 1) for member in range(3))
    later = two._replace(attempt=2)
    rows = frozenset({frozenset({(one, 1), (two, 1)}), frozenset({(one, 1), (three, 1)})})
    assert exposed(rows, "FRESH", 2, NOBODY) is None
    rows |= {frozenset({(later, 1), (three, 1)})}
    assert exposed(rows, "FRESH", 2, NOBODY) == {1}  # the change of one member
    assert exposed(rows, "CONSTANT", 2, NOBODY) == {0}  # everybody's whole input
    assert exposed(rows, "CONSTANT", 2, frozenset({0, 1, 2})) is None
