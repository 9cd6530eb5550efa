"""Who shares secrets with whom: the probabilities behind it, and the graph itself."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from math import comb, exp2, inf, isclose, log
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedforget.protocol import graph as graph_module
from fedforget.protocol.graph import COMPLETE, Graph, Plan, Policy, plan

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())["graphs"]
POLICIES = {
    "default": Policy(),
    "few": Policy(dropout=0.05, colluding=0.05),
    "steady": Policy(dropout=0.05, colluding=0.01),
    "many lost": Policy(dropout=0.3, colluding=0.2),
    "many colluding": Policy(dropout=0.1, colluding=0.3),
    "nobody lost": Policy(dropout=0.0, colluding=0.1),
    "nobody colluding": Policy(dropout=0.2, colluding=0.0),
    "strict": Policy(security_bits=80, reliability_bits=40),
    "lax": Policy(security_bits=10, reliability_bits=5),
}
SIZES = (33, 34, 50, 64, 100, 101, 200, 333, 500, 1000)


def at_least(i: int, n: int, bad: int, draws: int) -> Fraction:
    """P(at least i of ``draws`` of n are among the bad), term by term."""
    good = [
        comb(bad, j) * comb(n - bad, draws - j)
        for j in range(max(i, 0), draws + 1)
        if j <= bad and draws - j <= n - bad
    ]
    return Fraction(sum(good), comb(n, draws))


# -- probabilities -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 9))
def test_the_tails_are_those_of_a_count_by_hand(n: int) -> None:
    """Every way to draw, one after another."""
    for bad, draws in product(range(n + 1), range(1, n + 1)):
        found = Counter(sum(one < bad for one in drawn) for drawn in combinations(range(n), draws))
        total = sum(found.values())
        for i, tail in enumerate(graph_module._tails(n, bad, draws)):
            ways = sum(count for hits, count in found.items() if hits >= i)
            assert tail == Fraction(ways, total)
            assert tail == at_least(i, n, bad, draws)


@pytest.mark.parametrize(("n", "bad", "draws"), [(32, 6, 10), (99, 20, 28), (999, 100, 66)])
def test_the_tails_are_scipy_s(n: int, bad: int, draws: int) -> None:
    law = stats.hypergeom(n, bad, draws)
    for i, tail in enumerate(graph_module._tails(n, bad, draws)):
        if tail:
            assert isclose(law.logsf(i - 1), log(tail), rel_tol=1e-7, abs_tol=1e-9)
        else:
            assert law.sf(i - 1) < 1e-300


def shares_of(n: int, policy: Policy) -> tuple[int, int]:
    """How many may collude and vanish, as the decimals say."""
    colluding, lost = (int(Fraction(str(x)) * n) for x in (policy.colluding, policy.dropout))
    return colluding, lost


def exposure(n: int, degree: int, colluding_neighbours: int, policy: Policy) -> Fraction:
    """That somebody has so many colluding neighbours, or that the circle falls apart."""
    colluding, lost = shares_of(n, policy)
    apart = comb(n, 2) * at_least(degree, n, colluding + lost, degree)
    return n * at_least(colluding_neighbours, n - 1, colluding, degree) + apart


def by_a_split(degree: int, threshold: int) -> int:
    """Colluding neighbours that make a split view work.

    There are degree + 1 shares of each kind.  An honest holder reveals one kind, c colluding ones
    reveal both: two groups reach the threshold if degree + 1 - c + 2c is twice as much.
    """
    return max(0, 2 * threshold - degree - 1)


def failure(n: int, degree: int, threshold: int, policy: Policy) -> Fraction:
    """That somebody keeps fewer neighbours than the threshold."""
    _, lost = shares_of(n, policy)
    return n * at_least(degree - threshold + 1, n - 1, lost, degree)


def close(probability: Fraction, shown: float) -> bool:
    return isclose(log2(probability), shown, rel_tol=1e-9) if probability else shown == -inf


def log2(probability: Fraction) -> float:
    return log(probability.numerator, 2) - log(probability.denominator, 2)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_promises_are_kept(policy: Policy, n: int) -> None:
    found = plan(n, policy)
    assert 2 <= found.threshold <= found.degree <= n - 1
    colluding, lost = shares_of(n, policy)
    if found.degree == n - 1:
        assert colluding < found.threshold <= n - lost
        return
    assert found.degree % 2 == 0
    exposed = [
        exposure(n, found.degree, c, policy)
        for c in (found.threshold, by_a_split(found.degree, found.threshold))
    ]
    failing = failure(n, found.degree, found.threshold, policy)
    assert exposed[0] <= Fraction(1, 2**policy.security_bits)
    assert failing <= Fraction(1, 2**policy.reliability_bits)
    assert any(close(probability, found.exposure_log2) for probability in exposed)
    assert close(failing, found.failure_log2)


@pytest.mark.parametrize("n", SIZES[:6])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_no_sparser_graph_keeps_them(policy: Policy, n: int) -> None:
    """Every smaller degree breaks a promise, whatever the threshold."""
    for degree in range(2, min(plan(n, policy).degree, n - 1), 2):
        assert not any(
            exposure(n, degree, by_a_split(degree, t), policy)
            <= Fraction(1, 2**policy.security_bits)
            and failure(n, degree, t, policy) <= Fraction(1, 2**policy.reliability_bits)
            for t in range(2, degree + 1)
        )


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_two_groups_cannot_both_reach_the_threshold(policy: Policy) -> None:
    """Each holder of a share of somebody's secrets reveals one kind.  With a majority threshold
    no split of the holders gives both kinds (``test_attacks`` carries the attack out)."""
    plans = {n: plan(n, policy) for n in (*range(1, COMPLETE + 1), *SIZES)}
    assert [n for n, found in plans.items() if 2 * found.threshold <= found.degree + 1] == []


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_not_even_with_those_who_collude(policy: Policy) -> None:
    """Colluding holders are in both groups."""
    exposed = []
    for n in (*range(3, COMPLETE + 1), *SIZES):
        found, (colluding, lost) = plan(n, policy), shares_of(n, policy)
        c = by_a_split(found.degree, found.threshold)
        if found.degree < n - 1:
            kept = exposure(n, found.degree, c, policy) <= Fraction(1, 2**policy.security_bits)
        else:
            kept = colluding < c and n - lost >= found.threshold
        if not kept:
            exposed.append(n)
    assert exposed == []


@pytest.mark.parametrize(
    ("share", "n"), [(0.29, 100), (0.07, 100), (0.47, 100), (0.1, 30), (0.28, 25), (0.45, 40)]
)
def test_a_share_of_the_participants_is_what_the_decimals_say(share: float, n: int) -> None:
    """0.29 * 100 is 28.999… in binary; 29 may vanish."""
    policy = Policy(dropout=share, colluding=0.0, reliability_bits=5, security_bits=5)
    found = plan(n, policy)
    if found.degree == n - 1:
        assert found.failure_log2 == (-inf if found.threshold <= n - int(share * n + 0.5) else 0)
        return
    assert failure(n, found.degree, found.threshold, policy) <= Fraction(1, 32)
    shown = 0 if found.failure_log2 == -inf else exp2(found.failure_log2)
    assert isclose(shown, failure(n, found.degree, found.threshold, policy), rel_tol=1e-9)


@pytest.mark.parametrize("n", range(1, 200))
def test_policies_just_short_of_too_demanding_keep_their_promises(n: int) -> None:
    """With the most that may vanish and collude, enough are left, and no two majorities."""
    for dropout, colluding in ((0.499, 0.001), (0.3, 0.399), (0.05, 0.899), (0.0, 0.999)):
        policy = Policy(dropout=dropout, colluding=colluding)
        found, (bad, lost) = plan(n, policy), shares_of(n, policy)
        assert found.threshold <= found.degree + 1
        if found.degree == n - 1:
            assert 2 * found.threshold > n + bad
            assert n - lost >= found.threshold


@pytest.mark.parametrize("n", range(1, COMPLETE + 1))
def test_few_participants_are_all_neighbours(n: int) -> None:
    found = plan(n, Policy())
    assert found.degree == n - 1
    assert n // 2 < found.threshold <= n
    # What is promised is certain here.
    assert (found.exposure_log2, found.failure_log2) == (-inf, -inf)


@pytest.mark.parametrize(
    "wrong",
    [
        {"dropout": -0.1},
        {"dropout": 1.0},
        {"colluding": -0.1},
        {"colluding": 1.0},
        {"dropout": 0.5, "colluding": 0.0},
        {"dropout": 0.4, "colluding": 0.2},
        {"dropout": 0.1, "colluding": 0.8},
        {"minimum": 0},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|share"):
        Policy(**wrong)


# -- the graph ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: len(case["participants"]))
def test_order_and_neighbours_are_the_twin_s(case: dict[str, Any]) -> None:
    participants = tuple(case["participants"])
    graph = Graph.of(bytes.fromhex(case["context"]), participants, Policy())
    assert graph.circle == tuple(case["circle"])
    graph = Graph(participants, graph.circle, Plan(case["degree"], 1, 0.0, 0.0))
    for name, near in case["neighbours"].items():
        assert graph.neighbours(name) == tuple(near)
        assert participants[graph.number(name) - 1] == name


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 70), context=st.binary(min_size=32, max_size=32), seed=st.integers(0, 10**6)
)
def test_neighbours_are_mutual_and_as_many_as_planned(n: int, context: bytes, seed: int) -> None:
    random = Random(seed)
    names = sorted({random.randbytes(3).hex() for _ in range(n)})
    graph = Graph.of(context, names, Policy())
    near = {name: graph.neighbours(name) for name in names}
    for name in names:
        assert len(near[name]) == graph.plan.degree == len(set(near[name]))
        assert name not in near[name]
        assert list(near[name]) == sorted(near[name])
        assert all(name in near[other] for other in near[name])
    assert sorted(graph.number(name) for name in names) == list(range(1, len(names) + 1))
    assert graph == Graph.of(context, names, Policy())


@pytest.mark.parametrize("n", [33, 200])
def test_the_graph_is_connected_without_those_who_may_vanish(n: int) -> None:
    names = [f"{i:03}" for i in range(n)]
    for seed in range(5):
        graph = Graph.of(seed.to_bytes(32, "little"), names, Policy())
        left = set(Random(seed).sample(names, n - int(0.3 * n)))
        reached, new = set(), {min(left)}
        while new:
            reached |= new
            new = {o for name in new for o in graph.neighbours(name)} & left - reached
        assert reached == left


def test_the_circle_depends_on_the_attempt_and_every_participant() -> None:
    names = [f"{i:03}" for i in range(40)]
    one = Graph.of(bytes(32), names, Policy())
    other = Graph.of(bytes(31) + b"\1", names, Policy())
    assert one.circle != other.circle
    assert sorted(one.circle) == sorted(other.circle) == names
    fewer = Graph.of(bytes(32), names[1:], Policy())
    assert [name for name in one.circle if name != names[0]] == list(fewer.circle)


def test_nobody_s_place_on_the_circle_is_favoured() -> None:
    """Over many attempts, every pair is neighbours about equally often."""
    names = [f"{i:03}" for i in range(40)]
    together: Counter[tuple[str, str]] = Counter()
    for attempt in range(400):
        graph = Graph.of(attempt.to_bytes(32, "little"), names, Policy())
        together.update((name, other) for name in names for other in graph.neighbours(name))
    share = plan(40, Policy()).degree / 39
    counts = [together[pair] for pair in combinations(names, 2)]
    deviation = (400 * share * (1 - share)) ** 0.5
    assert abs(sum(counts) / len(counts) - 400 * share) < 1e-9
    assert all(abs(count - 400 * share) < 5.5 * deviation for count in counts)
