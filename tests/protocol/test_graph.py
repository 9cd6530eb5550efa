"""Who shares secrets with whom: the probabilities behind it, and the graph itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, product
from math import ceil, comb, inf, isclose, log
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedforget.protocol import graph as graph_module
from fedforget.protocol.graph import COMPLETE, Graph, GraphPlan, Policy, plan

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
        for i, ways in enumerate(graph_module._tails(n, bad, draws)):
            assert ways == sum(count for hits, count in found.items() if hits >= i)
            assert Fraction(ways, comb(n, draws)) == at_least(i, n, bad, draws)


@pytest.mark.parametrize(("n", "bad", "draws"), [(32, 6, 10), (99, 20, 28), (999, 100, 66)])
def test_the_tails_are_scipy_s(n: int, bad: int, draws: int) -> None:
    law = stats.hypergeom(n, bad, draws)
    for i, ways in enumerate(graph_module._tails(n, bad, draws)):
        if ways:
            tail = Fraction(ways, comb(n, draws))
            assert isclose(law.logsf(i - 1), log(tail), rel_tol=1e-7, abs_tol=1e-9)
        else:
            assert law.sf(i - 1) < 1e-300


def shares_of(m: int, policy: Policy, n: int | None = None) -> tuple[int, int]:
    """How many of the list may collude and how many of m may be called lost, from the decimals."""
    colluders = max(1, ceil(Fraction(str(policy.colluding)) * (n or m)))
    return colluders, m - max(policy.minimum, m - ceil(Fraction(str(policy.dropout)) * m))


def known_by_colluders(m: int, degree: int, threshold: int, colluders: int) -> Fraction:
    """Bound on the probability that colluders hold enough shares of an honest owner."""
    return (m - colluders) * at_least(threshold, m - 1, colluders, degree)


def cut_apart(m: int, degree: int, colluders: int, lost: int) -> Fraction:
    """Bound on the probability that a server which chooses the lost can cut the circle.

    Two runs of degree/2 places, with ``between`` ≥ 1 places after the first and at least one after
    the second.  Counting them from either run gives each pair twice.
    """
    pairs = Fraction(sum(1 for _ in product(range(m), range(1, m - degree))), 2)
    return pairs * at_least(degree - lost, m, colluders, degree)


def exposure(m: int, degree: int, threshold: int, colluders: int, lost: int) -> Fraction:
    """All tries of the server together."""
    known = known_by_colluders(m, degree, threshold, colluders)
    return 2**60 * (known + cut_apart(m, degree, colluders, lost))


def failure(m: int, degree: int, threshold: int, lost: int) -> Fraction:
    """Bound on the probability that somebody keeps fewer neighbours than the threshold, when one
    of those who are left spoils."""
    return m * at_least(degree - threshold, m - 1, lost, degree)


def close(probability: Fraction, shown: float) -> bool:
    return isclose(log2(probability), shown, rel_tol=1e-9) if probability else shown == -inf


def log2(probability: Fraction) -> float:
    return log(probability.numerator, 2) - log(probability.denominator, 2)


def check_promises(found: GraphPlan, m: int, policy: Policy, n: int | None = None) -> None:
    colluders, lost = shares_of(m, policy, n)
    if found.degree == m - 1:
        assert colluders < found.threshold == (m + colluders) // 2 + 1 <= m - lost
        return
    assert 1 <= found.threshold <= found.degree < m - 1
    assert found.degree % 2 == 0
    exposed = exposure(m, found.degree, found.threshold, colluders, lost)
    failing = failure(m, found.degree, found.threshold, lost)
    assert exposed <= Fraction(1, 2**policy.security_bits)
    assert failing <= Fraction(1, 2**policy.reliability_bits)
    assert close(exposed, found.exposure_log2)
    assert close(failing, found.failure_log2)
    # The threshold is the largest that is reliable enough.
    larger = failure(m, found.degree, found.threshold + 1, lost)
    assert found.threshold == found.degree or larger > Fraction(1, 2**policy.reliability_bits)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_the_promises_are_kept(policy: Policy, n: int) -> None:
    check_promises(plan(n, policy), n, policy)


@pytest.mark.parametrize("n", [33, 60, 100, 300])
@pytest.mark.parametrize("name", ["default", "few", "many lost", "lax"])
def test_they_are_kept_for_every_number_of_participants(name: str, n: int) -> None:
    """From the fewest that clients accept to all, the colluders of the whole list among them; and
    for those who are counted while most of the list is new."""
    policy = POLICIES[name]
    _, lost = shares_of(n, policy)
    for m in {*range(n - lost, n + 1, 1 + n // 60), *range(40, n - lost, 20)}:
        here = policy.thresholds(n, m)
        if here.signers <= here.present <= m:
            found = plan(n, policy, m)
            check_promises(found, m, policy, n)
            # Nobody may be called lost whom the plan has not reckoned with.
            for population in range(m, n + 1):
                whole = policy.thresholds(n, population)
                if whole.present <= m:
                    assert m - whole.present <= m - here.present
                    if found.degree == m - 1:
                        assert found.threshold <= whole.signers


@pytest.mark.parametrize("n", SIZES[:6])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_no_sparser_graph_keeps_them(policy: Policy, n: int) -> None:
    """Every smaller degree breaks a promise, whatever the threshold."""
    colluders, lost = shares_of(n, policy)
    for degree in range(2, min(plan(n, policy).degree, n - 1), 2):
        assert not any(
            exposure(n, degree, t, colluders, lost) <= Fraction(1, 2**policy.security_bits)
            and failure(n, degree, t, lost) <= Fraction(1, 2**policy.reliability_bits)
            for t in range(1, degree + 1)
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", [(9, 6), (10, 5), (22, 11), (62, 41), (170, 128)]),
        ("few", [(9, 6), (6, 3), (12, 6), (32, 20), (90, 70)]),
        ("many lost", [(9, 7), (20, 9), (52, 23), (152, 83), (472, 286)]),
    ],
)
def test_the_plans_of_the_table(name: str, expected: list[tuple[int, int]]) -> None:
    """In docs/threat-model.md."""
    found = [plan(n, POLICIES[name]) for n in (10, 33, 100, 300, 1000)]
    assert [(one.degree, one.threshold) for one in found] == expected


# -- small circles, by trying everything -------------------------------------------------------

CIRCLES = [(12, 4, 2, 2), (12, 4, 3, 1), (12, 4, 1, 4), (11, 6, 3, 3), (10, 2, 1, 1), (13, 4, 4, 0)]
"""Participants, degree, colluders, and how many may be called lost."""


def ring(m: int, degree: int) -> list[set[int]]:
    """Everybody's neighbours, as the graph has them."""
    names = tuple(f"{i:02}" for i in range(m))
    graph = Graph(names, names, GraphPlan(degree, 1, 0.0, 0.0))
    return [{int(other) for other in graph.neighbours(name)} for name in names]


def falls_apart(near: list[set[int]], left: set[int]) -> bool:
    """Whether those who are left are not connected."""
    reached: set[int] = set()
    new = {min(left)} if left else set()
    while new:
        reached |= new
        new = {other for one in new for other in near[one]} & left - reached
    return reached != left


def placements(m: int, colluders: int) -> Iterator[set[int]]:
    """Where the colluders stand, turned so that one of them stands at place 0.

    Every turn of the circle is as likely, so shares among these are the shares among all.
    """
    for others in combinations(range(1, m), colluders - 1):
        yield {0, *others}


def server_can_cut(m: int, near: list[set[int]], colluding: set[int], lost: int) -> bool:
    """Every choice of whom to call lost, after the colluders' places are known."""
    honest = set(range(m)) - colluding
    return any(
        falls_apart(near, honest - set(gone))
        for some in range(lost + 1)
        for gone in combinations(sorted(honest), some)
    )


def two_runs(m: int, degree: int, colluding: set[int], lost: int) -> bool:
    """Whether two runs of degree/2 places, somebody honest on either side between them, hold no
    more honest members than may be called lost."""
    half = degree // 2
    for start, between in product(range(m), range(1, m - degree)):
        places = [(start + step) % m for step in range(m)]
        first, middle = places[:half], places[half : half + between]
        second, rest = places[half + between : degree + between], places[degree + between :]
        if (
            len(set(first + second) - colluding) <= lost
            and set(middle) - colluding
            and set(rest) - colluding
        ):
            return True
    return False


@pytest.mark.parametrize(("m", "degree", "colluders", "lost"), CIRCLES)
def test_the_server_can_cut_the_circle_only_at_two_runs(
    m: int, degree: int, colluders: int, lost: int
) -> None:
    near = ring(m, degree)
    cut = total = 0
    for colluding in placements(m, colluders):
        can = server_can_cut(m, near, colluding, lost)
        assert can == two_runs(m, degree, colluding, lost), colluding
        cut, total = cut + can, total + 1
    assert Fraction(cut, total) <= cut_apart(m, degree, colluders, lost)
    if lost + colluders < degree:
        assert cut == 0 == cut_apart(m, degree, colluders, lost)


@pytest.mark.parametrize("threshold", [1, 2, 3])
@pytest.mark.parametrize(("m", "degree", "colluders", "lost"), CIRCLES)
def test_colluders_know_a_second_secret_as_rarely_as_bounded(
    m: int, degree: int, colluders: int, lost: int, threshold: int
) -> None:
    near = ring(m, degree)
    known = [
        any(len(near[one] & colluding) >= threshold for one in set(range(m)) - colluding)
        for colluding in placements(m, colluders)
    ]
    bound = known_by_colluders(m, degree, threshold, colluders)
    assert Fraction(sum(known), len(known)) <= bound
    if colluders < threshold:
        assert not any(known)
        assert bound == 0


@pytest.mark.parametrize(("m", "degree", "threshold", "lost"), [(14, 4, 1, 4), (16, 4, 1, 4)])
def test_a_round_fails_as_rarely_as_bounded(m: int, degree: int, threshold: int, lost: int) -> None:
    """Any one of those who are left may spoil; the owner's own share counts if it is there."""
    near = ring(m, degree)
    failed = 0
    for gone in combinations(range(m), lost):
        left = set(range(m)) - set(gone)
        failed += any(
            len((near[owner] | {owner}) & left - {spoiler}) < threshold
            for owner, spoiler in product(range(m), left)
        )
    assert 0 < Fraction(failed, comb(m, lost)) <= failure(m, degree, threshold, lost)


@pytest.mark.parametrize("n", range(1, COMPLETE + 1))
def test_few_participants_are_all_neighbours(n: int) -> None:
    found = plan(n, Policy())
    assert found.degree == n - 1
    assert found.threshold == Policy().thresholds(n).signers
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
    n = len(participants)
    graph = Graph.of(bytes.fromhex(case["context"]), participants, n, Policy())
    assert graph.circle == tuple(case["circle"])
    graph = Graph(participants, graph.circle, GraphPlan(case["degree"], 1, 0.0, 0.0))
    for name, near in case["neighbours"].items():
        assert graph.neighbours(name) == tuple(near)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 70),
    others=st.integers(0, 70),
    context=st.binary(min_size=32, max_size=32),
    seed=st.integers(0, 10**6),
)
def test_neighbours_are_mutual_and_as_many_as_planned(
    m: int, others: int, context: bytes, seed: int
) -> None:
    random = Random(seed)
    names = sorted({random.randbytes(3).hex() for _ in range(m)})
    n = len(names) + others
    graph = Graph.of(context, names, n, Policy())
    assert graph.plan == plan(n, Policy(), len(names))
    near = {name: graph.neighbours(name) for name in names}
    for name in names:
        assert len(near[name]) == graph.plan.degree == len(set(near[name]))
        assert name not in near[name]
        assert list(near[name]) == sorted(near[name])
        assert all(name in near[other] for other in near[name])
    assert graph == Graph.of(context, names, n, Policy())


@pytest.mark.parametrize("n", [33, 100, 300])
def test_the_graph_is_connected_however_the_server_chooses_the_lost(n: int) -> None:
    """It spends all it has on the two runs with the most colluders; the rest stay together."""
    names = [f"{i:03}" for i in range(n)]
    here = Policy().thresholds(n)
    for seed in range(5):
        graph = Graph.of(seed.to_bytes(32, "little"), names, n, Policy())
        half = graph.plan.degree // 2
        colluding = set(Random(seed).sample(names, here.colluders))
        runs = [[graph.circle[(at + step) % n] for step in range(half)] for at in range(n)]
        runs.sort(key=lambda run: -len(colluding & set(run)))
        first = runs[0]
        second = next(run for run in runs if not set(run) & set(first))
        chosen = [name for name in first + second if name not in colluding]
        left = set(names) - colluding - set(chosen[: n - here.present])
        reached: set[str] = set()
        new = {min(left)}
        while new:
            reached |= new
            new = {o for name in new for o in graph.neighbours(name)} & left - reached
        assert reached == left


def test_the_circle_depends_on_the_attempt_and_every_participant() -> None:
    """A server that leaves somebody out does not just close the gap."""
    names = [f"{i:03}" for i in range(40)]
    one = Graph.of(bytes(32), names, 40, Policy())
    other = Graph.of(bytes(31) + b"\1", names, 40, Policy())
    assert one.circle != other.circle
    assert sorted(one.circle) == sorted(other.circle) == names
    fewer = Graph.of(bytes(32), names[1:], 40, Policy())
    assert sorted(fewer.circle) == names[1:]
    kept = [name for name in one.circle if name != names[0]]
    at = kept.index(fewer.circle[0])
    assert kept[at:] + kept[:at] != list(fewer.circle)


def test_nobody_s_place_on_the_circle_is_favoured() -> None:
    """Over many attempts, every pair is neighbours about equally often."""
    names = [f"{i:03}" for i in range(40)]
    together: Counter[tuple[str, str]] = Counter()
    for attempt in range(400):
        graph = Graph.of(attempt.to_bytes(32, "little"), names, 40, Policy())
        together.update((name, other) for name in names for other in graph.neighbours(name))
    share = plan(40, Policy()).degree / 39
    counts = [together[pair] for pair in combinations(names, 2)]
    deviation = (400 * share * (1 - share)) ** 0.5
    assert abs(sum(counts) / len(counts) - 400 * share) < 1e-9
    assert all(abs(count - 400 * share) < 5.5 * deviation for count in counts)
