"""The sum is exact, whoever is lost and whenever, or the round ends and the next one succeeds."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import Idle, Revealed
from fedforget.protocol.errors import RoundAbortedError
from fedforget.protocol.graph import Policy, plan
from fedforget.protocol.messages import Kind
from fedforget.protocol.server import Stage
from fedforget.runtime.rounds import run_round
from parties import ANSWERED, Everyone, Lost, expected_survivors, histogram, random_histogram

BEFORE_SENDING = ANSWERED[:3]


def attempt_of(everyone: Everyone, kind: Kind, lost: Lost) -> tuple[str, ...] | None:
    """Run a round with losses; check the outcome against the rules.  Returns the survivors."""
    invited = everyone.server.exposed or everyone.names
    began = len(everyone.history)
    before = everyone.server.ledger
    counted = {
        name: client.ledger.base if kind == "delta" else Histogram(2)
        for name, client in everyone.clients.items()
    }
    survivors = None
    try:
        result = everyone.decide(kind, lost)
    except RoundAbortedError as error:
        needs_new_epoch = error.needs_new_epoch
    else:
        needs_new_epoch = False
        survivors = result.survivors
        bases = Histogram.sum(2, (counted[name] or Histogram(2) for name in survivors))
        assert result.total == everyone.total(survivors) - bases
        everyone.commit()
    assert not needs_new_epoch
    if survivors is None:
        assert everyone.server.stage is Stage.IDLE
        assert everyone.server.result is None
        after = everyone.server.ledger
        assert (after.committed_round, after.counted, after.notice) == (
            before.committed_round,
            before.counted,
            before.notice,
        )
    context = everyone.history[began].context
    policy = everyone.federation.policy
    assert survivors == expected_survivors(context, invited, policy, lost)
    return survivors


def next_round_succeeds(everyone: Everyone) -> None:
    """Everybody is there again.  After an unmask was asked for, the same survivors come first."""
    exposed = everyone.server.exposed
    survivors = attempt_of(everyone, "full", {})
    assert survivors == (exposed or everyone.names)
    if exposed:
        assert attempt_of(everyone, "full", {}) == everyone.names


# -- nobody lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 32, 33, 50, 100])
def test_the_sum_of_everybody_is_exact(n: int) -> None:
    everyone = Everyone(n, seed="everybody")
    for kind in ("full", "delta")[: 1 if n > 33 else 2]:
        assert attempt_of(everyone, kind, {}) == everyone.names
        everyone.histograms[everyone.names[-1]] = histogram(((3, 4), 5))


def test_the_sum_of_two_hundred_is_exact_while_a_tenth_vanishes() -> None:
    everyone = Everyone(200, seed="many")
    random = Random(200)
    gone = random.sample(everyone.names, 20)
    lost = {stage: gone[4 * i : 4 * i + 4] for i, stage in enumerate(ANSWERED)}
    survivors = attempt_of(everyone, "full", lost)
    assert survivors is not None
    assert set(survivors) == set(everyone.names) - set(gone[:12])


def test_the_runner_gives_the_same() -> None:
    everyone = Everyone(5, seed="runner")
    totals = []

    def take_over(result: object) -> bytes:
        totals.append(result.total)
        return bytes(32)

    traffic = run_round(everyone.server, everyone.clients, "full", take_over)
    assert totals == [everyone.total(everyone.names)]
    assert traffic.attempts == 1
    assert set(traffic.sent) == {"server", *everyone.names}
    assert sum(traffic.sent.values()) == sum(traffic.received.values())
    everyone.histograms["c000"] = histogram(((1, 1), 1))
    run_round(everyone.server, everyone.clients, "delta", take_over)
    assert totals[0] + totals[1] == everyone.total(everyone.names)


# -- losses at each stage ----------------------------------------------------------------------


def most_that_may_go(n: int, minimum: int) -> int:
    return n - max(minimum, plan(n, Policy(minimum=minimum)).threshold)


@pytest.mark.parametrize("stage", ANSWERED)
@pytest.mark.parametrize("n", [3, 4, 5, 8])
@pytest.mark.parametrize("beyond", [0, 1])
def test_as_many_as_the_threshold_allows_may_vanish_at(stage: Stage, n: int, beyond: int) -> None:
    """One more, and the round ends; the next one succeeds with everybody."""
    everyone = Everyone(n, seed=f"limit {stage}")
    # Who never advertised is no participant: there the minimum alone decides.
    most = n - 3 if stage is Stage.ADVERTISE else most_that_may_go(n, 3)
    if stage is Stage.UNMASK:
        most = n - plan(n, everyone.federation.policy).threshold
    gone = Random(n).sample(everyone.names, most + beyond)
    survivors = attempt_of(everyone, "full", {stage: gone})
    if beyond:
        assert survivors is None
    elif stage in BEFORE_SENDING:
        assert survivors == tuple(name for name in everyone.names if name not in gone)
    else:
        assert survivors == everyone.names
    next_round_succeeds(everyone)


@pytest.mark.parametrize("stage", ANSWERED)
def test_everybody_may_vanish_at(stage: Stage) -> None:
    everyone = Everyone(4, seed="nobody")
    assert attempt_of(everyone, "full", {stage: everyone.names}) is None
    next_round_succeeds(everyone)


@st.composite
def losses(draw: st.DrawFn) -> tuple[int, int, dict[Stage, list[str]], Kind]:
    n = draw(st.integers(1, 9))
    names = [f"c{i:03}" for i in range(n)]
    when = draw(st.lists(st.sampled_from([None, None, None, *ANSWERED]), min_size=n, max_size=n))
    lost = {
        stage: [name for name, at in zip(names, when, strict=True) if at is stage]
        for stage in ANSWERED
    }
    return n, draw(st.integers(1, min(n, 3))), lost, draw(st.sampled_from(["full", "delta"]))


@settings(max_examples=60, derandomize=True)
@given(case=losses(), later=losses(), seed=st.integers(0, 9))
def test_whoever_is_lost_the_sum_is_exact_or_there_is_none(
    case: tuple[int, int, dict[Stage, list[str]], Kind],
    later: tuple[int, int, dict[Stage, list[str]], Kind],
    seed: int,
) -> None:
    """Two rounds with losses, then everybody is back and everything is counted."""
    n, minimum, lost, kind = case
    everyone = Everyone(n, seed=seed, policy=Policy(minimum=minimum))
    attempt_of(everyone, kind, lost)
    change(everyone, seed)
    if everyone.server.exposed is None:
        attempt_of(everyone, later[3], later[2])
    next_round_succeeds(everyone)


def change(everyone: Everyone, seed: int) -> None:
    random = Random(f"change {seed}")
    for name in everyone.names:
        if random.random() < 0.5:
            everyone.histograms[name] = random_histogram(random)


@pytest.mark.parametrize("n", [33, 40])
def test_on_a_sparse_graph_too(n: int, seed: int) -> None:
    """A tenth vanishes, at any stages; then so many that somebody's neighbours are too few."""
    everyone = Everyone(n, seed=f"sparse {seed}")
    random = Random(seed)
    gone = random.sample(everyone.names, n // 10)
    lost: dict[Stage, list[str]] = {stage: [] for stage in ANSWERED}
    for name in gone:
        lost[random.choice(ANSWERED)].append(name)
    assert attempt_of(everyone, "full", lost) is not None
    stage = ANSWERED[1 + seed % 4]
    attempt_of(everyone, "delta", {stage: random.sample(everyone.names, n - 8)})
    next_round_succeeds(everyone)


def test_neighbours_all_lost_end_a_round_on_a_sparse_graph() -> None:
    """Few enough in all, but all of them next to one client: its masks cannot come off."""
    everyone = Everyone(40, seed="around", policy=Policy(dropout=0.05, colluding=0.05))
    messages = everyone.until(Stage.CONSENT)
    graph = everyone.server._graph
    assert graph is not None
    near: Collection[str] = graph.neighbours("c000")
    assert len(near) < len(everyone.names) // 2
    everyone.ask(messages, near)
    with pytest.raises(RoundAbortedError, match="too few neighbours"):
        everyone.server.advance()
    assert everyone.server.exposed is None
    next_round_succeeds(everyone)


def test_clients_that_refuse_are_lost_and_come_back() -> None:
    """A round that shrinks below the threshold after sharing is refused by the clients."""
    everyone = Everyone(7, seed="refusing")
    gone = everyone.names[4:]
    messages = everyone.until(Stage.MASK)
    step = everyone.ask(messages, gone)
    assert not step.refusals
    assert attempt_of(everyone, "full", {Stage.SHARE: gone}) == everyone.names[:4]
    assert attempt_of(everyone, "full", {Stage.SHARE: everyone.names[3:]}) is None
    next_round_succeeds(everyone)
    assert {type(client.stage) for client in everyone.clients.values()} == {Idle}


# -- what is summed ----------------------------------------------------------------------------


def test_a_delta_round_grows_until_the_change_fits() -> None:
    everyone = Everyone(3, seed="grow", capacity=60, first_capacity=3)
    everyone.round("full")
    everyone.histograms["c001"] = histogram(*(((i, 49 - i), i + 1) for i in range(30)))
    assert attempt_of(everyone, "delta", {}) == everyone.names
    assert everyone.server.ledger.attempt > 3
    capacities = [s.context.capacity for s in everyone.history if s.stage is Stage.MASK][1:]
    assert capacities == [min(3 * 2**i, 120) for i in range(len(capacities))]
    # The next one starts small again.
    everyone.round("delta")
    assert everyone.server.ledger.attempt == 1


def test_a_client_lost_while_a_delta_round_grows_ends_it() -> None:
    """The sum of the first attempt may be known: a second one without somebody would show it."""
    everyone = Everyone(4, seed="grow and lose", capacity=60, first_capacity=3)
    everyone.round("full")
    everyone.histograms["c001"] = histogram(*(((i, i), 1) for i in range(30)))
    messages = everyone.server.open("delta")
    while everyone.server.ledger.attempt == 1:
        everyone.ask(messages)
        messages = everyone.server.advance()
    everyone.ask(messages, ["c003"])
    with pytest.raises(RoundAbortedError) as caught:
        everyone.server.advance()
    assert caught.value.needs_new_epoch
    everyone.adopt(everyone.members(2, everyone.names[:3], 60))
    result = everyone.round("full")
    assert result.survivors == everyone.names[:3]
    assert result.total == everyone.total(everyone.names[:3])


@pytest.mark.parametrize("kind", ["full", "delta"])
def test_empty_equal_and_opposite_inputs(kind: Kind) -> None:
    everyone = Everyone(4, seed="edge")
    for name in everyone.names:
        everyone.histograms[name] = Histogram(2)
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
    everyone = Everyone(6, seed=f"rounds {seed}")
    random = Random(int(rng.integers(2**32)))
    aggregate, counted = Histogram(2), dict.fromkeys(everyone.names, Histogram(2))
    for _ in range(12):
        change(everyone, random.randrange(10**6))
        kind: Kind = random.choice(["delta", "delta", "delta", "full"])
        lost = {random.choice(ANSWERED): random.sample(everyone.names, random.randrange(3))}
        lost[Stage.DECIDED] = random.sample(everyone.names, random.randrange(3))
        result = everyone.round(kind, lost)
        if kind == "full":
            aggregate, counted = Histogram(2), dict.fromkeys(everyone.names, Histogram(2))
        aggregate = aggregate + result.total
        counted |= {name: everyone.histograms[name] for name in result.survivors}
        assert aggregate == Histogram.sum(2, counted.values())


def test_a_client_that_restarts_anywhere_is_lost_for_the_attempt_only(seed: int) -> None:
    """All it keeps is its ledger."""
    everyone = Everyone(5, seed=f"restart {seed}")
    everyone.round("full")
    random = Random(seed)
    for stage in ANSWERED:
        everyone.histograms["c002"] = random_histogram(random)
        messages = everyone.until(stage, "delta")
        everyone.clients["c002"] = everyone.new_client("c002", everyone.clients["c002"].ledger)
        step = everyone.ask(messages)
        taken = "c002" in step.answers
        assert taken == (stage is Stage.ADVERTISE)
        while everyone.server.stage is not Stage.DECIDED:
            messages = everyone.server.advance()
            everyone.ask(messages)
        assert everyone.server.result is not None
        counts = stage in (Stage.ADVERTISE, Stage.CONSENT, Stage.UNMASK)
        assert ("c002" in everyone.server.result.survivors) == counts
        everyone.commit()
    assert attempt_of(everyone, "delta", {}) == everyone.names
    assert not any(isinstance(client.stage, Revealed) for client in everyone.clients.values())
