"""The sum is exact, whoever is lost and whenever, or the round ends and the next one succeeds."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_stages import Resting, Revealed
from fedforget.protocol.errors import OutOfOrderError, RoundAbortedError, SecondSurvivorSetError
from fedforget.protocol.graph import Policy, plan
from fedforget.protocol.messages import RoundKind
from fedforget.protocol.server_stages import RoundResult, Unmasking
from fedforget.runtime.rounds import run_round
from parties import (
    ANSWERED,
    Everyone,
    Lost,
    Stage,
    expected_survivors,
    histogram,
    random_histogram,
)

BEFORE_SENDING = ANSWERED[:3]


def attempt_of(everyone: Everyone, kind: RoundKind, lost: Lost) -> tuple[str, ...] | None:
    """Run a round with losses; check the outcome against the rules.  Returns the survivors."""
    lock = everyone.server.ledger.lock
    invited = everyone.names if lock is None else lock.alive
    began = len(everyone.history)
    before = everyone.server.ledger
    counted = {
        name: client.ledger.base if kind == "delta" else Histogram(2)
        for name, client in everyone.clients.items()
    }
    survivors = None
    try:
        result = everyone.decide(kind, lost)
    except RoundAbortedError:
        pass
    else:
        survivors = result.survivors
        bases = Histogram.sum(2, (counted[name] or Histogram(2) for name in survivors))
        assert result.total == everyone.total(survivors) - bases
    context = everyone.history[began].context
    assert survivors == expected_survivors(everyone, kind, context, invited, lost)
    if survivors is None:
        assert everyone.stage is Stage.IDLE
        assert everyone.server.result is None
        assert everyone.server.ledger.place == before.place
        assert everyone.server.ledger.attempt == before.attempt + 1
    else:
        everyone.commit()
        assert everyone.server.ledger.lock is None
        assert everyone.server.ledger.place.round == before.place.round + 1
    return survivors


def next_round_succeeds(everyone: Everyone) -> None:
    """Everybody is there again.  Where a set was signed, the same survivors come first."""
    lock = everyone.server.ledger.lock
    some = lock is not None and lock.alive != everyone.names
    kind: RoundKind = "delta" if some else "full"
    survivors = attempt_of(everyone, kind, {})
    assert survivors == (everyone.names if lock is None else lock.alive)
    if some:
        assert attempt_of(everyone, "full", {}) == everyone.names
    assert {type(client.stage) for client in everyone.clients.values()} == {Resting}
    links = {client.ledger.place.link for client in everyone.clients.values()}
    assert links == {everyone.server.ledger.place.link}


# -- nobody lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 32, 33, 50])
def test_the_sum_of_everybody_is_exact(n: int) -> None:
    everyone = Everyone(n, seed="everybody")
    for kind in ("full", "delta")[: 1 if n > 33 else 2]:
        assert attempt_of(everyone, kind, {}) == everyone.names
        everyone.histograms[everyone.names[-1]] = histogram(((3, 4), 5))


@pytest.mark.parametrize("n", [1, 3, 10])
def test_the_first_round_is_full(n: int) -> None:
    everyone = Everyone(n, seed="first")
    ledger = everyone.server.ledger
    assert everyone.server.kind_needed() == "full"
    with pytest.raises(RoundAbortedError, match="the first round must be a full one"):
        everyone.server.open("delta")
    assert everyone.server.ledger == ledger
    assert attempt_of(everyone, "full", {}) == everyone.names
    assert everyone.server.kind_needed() == "delta"


def test_the_sum_of_150_is_exact_while_a_tenth_vanishes() -> None:
    everyone = Everyone(150, seed="many", capacity=150)
    for name in everyone.names:
        everyone.histograms[name] = histogram(((int(name[1:]) % 50, 7), 1))
    everyone.round("full")
    random = Random(150)
    change(everyone, 7)
    gone = random.sample(everyone.names, 15)
    lost = {stage: gone[3 * i : 3 * i + 3] for i, stage in enumerate(ANSWERED)}
    survivors = attempt_of(everyone, "delta", lost)
    assert survivors is not None
    assert set(survivors) == set(everyone.names) - set(gone[:9])


def test_the_runner_gives_the_same() -> None:
    everyone = Everyone(5, seed="runner")
    totals: list[Histogram] = []

    def take_over(result: RoundResult) -> bytes:
        totals.append(result.total)
        return bytes(32)

    traffic = run_round(everyone.server, everyone.clients, None, take_over)
    assert totals == [everyone.total(everyone.names)]
    assert traffic.attempts == 1
    assert set(traffic.sent) == {"server", *everyone.names}
    assert sum(traffic.sent.values()) == sum(traffic.received.values())
    everyone.histograms["c000"] = histogram(((1, 1), 1))
    run_round(everyone.server, everyone.clients, "delta", take_over)
    assert totals[0] + totals[1] == everyone.total(everyone.names)


# -- losses at each stage ----------------------------------------------------------------------


@pytest.mark.parametrize("stage", BEFORE_SENDING)
@pytest.mark.parametrize("n", [3, 4, 10, 33])
def test_nobody_may_vanish_from_a_full_round_before_it_has_sent(stage: Stage, n: int) -> None:
    """The next full sum would show it, or this one without it would."""
    everyone = Everyone(n, seed=f"full {stage}")
    assert attempt_of(everyone, "full", {stage: everyone.names[-1:]}) is None
    assert everyone.server.ledger.lock is None
    next_round_succeeds(everyone)


def most_that_may_go(n: int, stage: Stage, policy: Policy) -> int:
    needed = policy.thresholds(n)
    if stage in BEFORE_SENDING:
        return n - needed.present
    return n - needed.signers


@pytest.mark.parametrize("stage", ANSWERED)
@pytest.mark.parametrize("n", [3, 4, 5, 8, 21])
@pytest.mark.parametrize("beyond", [0, 1])
def test_as_many_as_the_policy_allows_may_vanish_at(stage: Stage, n: int, beyond: int) -> None:
    """One more, and the round ends; the next one succeeds with everybody."""
    everyone = Everyone(n, seed=f"limit {stage}")
    everyone.round("full")
    change(everyone, n)
    most = most_that_may_go(n, stage, everyone.federation.policy)
    gone = Random(n).sample(everyone.names, most + beyond)
    survivors = attempt_of(everyone, "delta", {stage: gone})
    if beyond:
        assert survivors is None
    elif stage in BEFORE_SENDING:
        assert survivors == tuple(name for name in everyone.names if name not in gone)
    else:
        assert survivors == everyone.names
    next_round_succeeds(everyone)


@pytest.mark.parametrize("kind", ["full", "delta"])
@pytest.mark.parametrize("stage", ANSWERED)
def test_everybody_may_vanish_at(stage: Stage, kind: RoundKind) -> None:
    everyone = Everyone(4, seed="nobody")
    everyone.round("full")
    assert attempt_of(everyone, kind, {stage: everyone.names}) is None
    next_round_succeeds(everyone)


@st.composite
def losses(draw: st.DrawFn) -> tuple[int, dict[Stage, list[str]], RoundKind]:
    n = draw(st.integers(3, 12))
    names = [f"c{i:03}" for i in range(n)]
    some = [None] * draw(st.sampled_from([1, 4, 20]))
    when = draw(st.lists(st.sampled_from([*some, *ANSWERED]), min_size=n, max_size=n))
    lost = {
        stage: [name for name, at in zip(names, when, strict=True) if at is stage]
        for stage in ANSWERED
    }
    return n, lost, draw(st.sampled_from(["full", "delta", "delta"]))


@settings(max_examples=40, derandomize=True)
@given(case=losses(), later=losses(), seed=st.integers(0, 9), minimum=st.integers(1, 3))
def test_whoever_is_lost_the_sum_is_exact_or_there_is_none(
    case: tuple[int, dict[Stage, list[str]], RoundKind],
    later: tuple[int, dict[Stage, list[str]], RoundKind],
    seed: int,
    minimum: int,
) -> None:
    """Two rounds with losses, then everybody is back and everything is counted."""
    n, lost, kind = case
    everyone = Everyone(n, seed=seed, policy=Policy(minimum=minimum))
    everyone.round("full")
    change(everyone, seed)
    attempt_of(everyone, kind, lost)
    change(everyone, seed + 10)
    if everyone.server.ledger.lock is None:
        attempt_of(everyone, later[2], later[1])
    next_round_succeeds(everyone)


def change(everyone: Everyone, seed: int) -> None:
    """Some histograms change, so few bins that a delta round need not grow."""
    random = Random(f"change {seed}")
    for name in random.sample(everyone.names, min(4, len(everyone.names))):
        everyone.histograms[name] = random_histogram(random, most=2)


@pytest.mark.parametrize("n", [34, 41])
def test_on_a_sparse_graph_too(n: int, seed: int) -> None:
    """Some vanish, at any stages; then so many that too few are left."""
    policy = Policy(dropout=0.05, colluding=0.02)
    everyone = Everyone(n, seed=f"sparse {seed}", policy=policy)
    everyone.round("full")
    assert plan(n, policy).degree < n - 1
    random = Random(seed)
    gone = random.sample(everyone.names, n // 20)
    lost: dict[Stage, list[str]] = {stage: [] for stage in ANSWERED}
    for name in gone:
        lost[random.choice(ANSWERED)].append(name)
    change(everyone, seed)
    assert attempt_of(everyone, "delta", lost) is not None
    stage = ANSWERED[1 + seed % 4]
    assert attempt_of(everyone, "delta", {stage: random.sample(everyone.names, n - 8)}) is None
    next_round_succeeds(everyone)


def test_neighbours_all_lost_end_a_round_on_a_sparse_graph() -> None:
    """Few enough in all, but all of them next to one client: its masks cannot come off."""
    everyone = Everyone(60, seed="around", policy=Policy(dropout=0.05, colluding=0.02))
    everyone.round("full")
    messages = everyone.until(Stage.UNMASK, "delta")
    assert isinstance(everyone.server.stage, Unmasking)
    near: Collection[str] = everyone.server.stage.graph.neighbours("c000")
    assert len(near) < len(everyone.names) // 2
    everyone.ask(messages, near)
    with pytest.raises(RoundAbortedError, match="too few neighbours"):
        everyone.server.advance()
    next_round_succeeds(everyone)


def test_a_client_that_sat_an_attempt_out_comes_back() -> None:
    everyone = Everyone(21, seed="refusing")
    everyone.round("full")
    gone = everyone.names[18:]
    messages = everyone.until(Stage.MASK, "delta")
    step = everyone.ask(messages, gone)
    assert not step.refusals
    assert attempt_of(everyone, "delta", {Stage.SHARE: gone}) == everyone.names[:18]
    assert attempt_of(everyone, "delta", {Stage.SHARE: everyone.names[17:]}) is None
    next_round_succeeds(everyone)


# -- what is summed ----------------------------------------------------------------------------


def test_a_delta_round_grows_until_the_change_fits() -> None:
    everyone = Everyone(3, seed="grow", capacity=60, first_capacity=3)
    everyone.round("full")
    everyone.histograms["c001"] = histogram(*(((i, 49 - i), i + 1) for i in range(30)))
    began = len(everyone.history)
    assert everyone.round("delta").survivors == everyone.names
    assert everyone.server.ledger.attempt > 4
    steps = everyone.history[began:]
    capacities = [s.context.capacity for s in steps if s.stage is Stage.MASK]
    assert capacities == [min(3 * 2**i, 120) for i in range(len(capacities))]
    # Every attempt has a number of its own, and all are at one place.
    attempts = [s.context.attempt for s in steps if s.stage is Stage.MASK]
    assert attempts == list(range(2, 2 + len(capacities)))
    assert {s.context.round for s in steps} == {2}
    # The next one starts small again; its number goes on.
    everyone.histograms["c002"] = histogram(((1, 1), 1))
    everyone.round("delta")
    assert everyone.history[-2].context.capacity == 3
    assert everyone.context.attempt == attempts[-1] + 1
    assert everyone.context.round == 3


def test_a_client_lost_while_a_delta_round_grows_ends_it() -> None:
    """The sum of the first attempt may be known: a second one without somebody would show it."""
    everyone = Everyone(4, seed="grow and lose", capacity=60, first_capacity=3)
    everyone.round("full")
    everyone.histograms["c001"] = histogram(*(((i, i), 1) for i in range(30)))
    messages = everyone.server.open("delta")
    while everyone.server.ledger.attempt == 2:
        everyone.ask(messages)
        messages = everyone.server.advance()
    everyone.ask(messages, ["c003"])
    with pytest.raises(RoundAbortedError, match=r"c003 is missing.*part of a sum.*--suspend"):
        everyone.server.advance()
    # Without the check in the server, the clients end it.
    forgetful = everyone.server.ledger
    everyone.server.ledger = replace(forgetful, lock=None)
    everyone.ask(everyone.server.open("delta"), ["c003"])
    step = everyone.ask(everyone.server.advance())
    assert {type(error) for error in step.refusals.values()} == {SecondSurvivorSetError}
    # It comes back, or the operator suspends it: its change alone may show then.
    everyone.adopt(everyone.members(everyone.names, suspended=["c003"], capacity=60))
    bases = {name: everyone.clients[name].ledger.base for name in everyone.names}
    result = everyone.round("delta")
    assert result.survivors == everyone.names[:3]
    expected = Histogram.sum(2, (bases[name] or Histogram(2) for name in everyone.names[:3]))
    assert result.total == everyone.total(everyone.names[:3]) - expected


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_empty_equal_and_opposite_inputs(kind: RoundKind) -> None:
    everyone = Everyone(4, seed="edge")
    for name in everyone.names:
        everyone.histograms[name] = Histogram(2)
    assert len(everyone.round("full").total) == 0
    assert len(everyone.round(kind).total) == 0
    for name in everyone.names:
        everyone.histograms[name] = histogram(((0, 0), 2**40), ((49, 49), 1))
    assert everyone.round(kind).total == histogram(((0, 0), 2**42), ((49, 49), 4))
    # What one takes away, another adds: the change is nothing.
    first, second = everyone.names[:2]
    everyone.histograms[first] = histogram(((0, 0), 2**40))
    everyone.histograms[second] = histogram(((0, 0), 2**40), ((49, 49), 2))
    expected = Histogram(2) if kind == "delta" else everyone.total(everyone.names)
    assert everyone.round(kind).total == expected


def test_many_rounds_of_changes_add_up(rng: np.random.Generator, seed: int) -> None:
    """The aggregate is, for every member, its histogram at the last round that counted it."""
    everyone = Everyone(12, seed=f"rounds {seed}", policy=Policy(dropout=0.2))
    random = Random(int(rng.integers(2**32)))
    aggregate, counted = Histogram(2), dict.fromkeys(everyone.names, Histogram(2))
    rounds = dict.fromkeys(everyone.names, 0)
    for number in range(1, 13):
        change(everyone, random.randrange(10**6))
        kind: RoundKind = (
            random.choice(["delta", "delta", "delta", "full"]) if number > 1 else "full"
        )
        stages = ANSWERED if kind == "delta" else ANSWERED[3:]
        lost = {random.choice(stages): random.sample(everyone.names, random.randrange(4))}
        lost[Stage.DECIDED] = random.sample(everyone.names, random.randrange(3))
        everyone.greet()
        result = everyone.round(kind, lost)
        if kind == "full":
            aggregate, counted = Histogram(2), dict.fromkeys(everyone.names, Histogram(2))
        aggregate = aggregate + result.total
        counted |= {name: everyone.histograms[name] for name in result.survivors}
        rounds |= dict.fromkeys(result.survivors, number)
        assert aggregate == Histogram.sum(2, counted.values())
        assert everyone.server.counted == rounds
    everyone.greet()
    everyone.round("delta")
    for name, client in everyone.clients.items():
        assert client.ledger.base == everyone.histograms[name]
        assert client.ledger.base_round == 13


def test_a_client_that_restarts_anywhere_is_lost_for_the_attempt_only(seed: int) -> None:
    """All it keeps is its ledger."""
    everyone = Everyone(5, seed=f"restart {seed}")
    everyone.round("full")
    random = Random(seed)
    for stage in ANSWERED:
        everyone.histograms["c002"] = histogram(
            ((seed, random.randrange(50)), 1 + len(stage.value))
        )
        messages = everyone.until(stage, "delta")
        everyone.restart("c002")
        step = everyone.ask(messages)
        taken = "c002" in step.answers
        assert taken == (stage is Stage.ADVERTISE)
        assert {type(error) for error in step.refusals.values()} <= {OutOfOrderError}
        while everyone.stage is not Stage.DECIDED:
            messages = everyone.server.advance()
            everyone.ask(messages)
        assert everyone.server.result is not None
        counts = stage in (Stage.ADVERTISE, Stage.CONSENT, Stage.UNMASK)
        assert ("c002" in everyone.server.result.survivors) == counts
        everyone.commit()
        base = everyone.clients["c002"].ledger.base
        assert (base == everyone.histograms["c002"]) == counts
    assert attempt_of(everyone, "delta", {}) == everyone.names
    assert not any(isinstance(client.stage, Revealed) for client in everyone.clients.values())
