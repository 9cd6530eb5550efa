"""Who shares secrets with whom: a public function of the attempt and its participants.

With few participants everybody is everybody's neighbour.  With many, the participants are put on a
circle in an order that a hash decides, and each one's neighbours are the k/2 next to it on either
side (the circulant graph of Bell et al. 2020).  Degree k and threshold t follow from how many
participants may vanish and how many may collude with the server; docs/threat-model.md has the
probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import comb, floor, log2

from fedforget.protocol.keys import digest_of

COMPLETE = 32
"""Number of participants up to which the graph is complete."""


@dataclass(frozen=True)
class Policy:
    """What a federation expects of its members in one round.

    Attributes
    ----------
    dropout : share of the participants that may vanish during a round.
    colluding : share of the participants that may pool what they see with the server.
    minimum : fewest survivors whose sum may be unmasked.
    security_bits : an honest input is exposed with a probability below 2 to minus this.
    reliability_bits : a round with no more dropouts than stated fails with a probability below
        2 to minus this.
    """

    dropout: float = 0.2
    colluding: float = 0.1
    minimum: int = 3
    security_bits: int = 40
    reliability_bits: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1 or not 0 <= self.colluding < 1:
            raise ValueError("dropout and colluding are shares of the participants, from 0 to 1")
        if self.dropout + self.colluding >= 1:
            raise ValueError("dropout and colluding together must leave somebody honest and alive")
        if self.minimum < 1:
            raise ValueError(f"minimum must be at least 1, got {self.minimum}")


@dataclass(frozen=True)
class Plan:
    """Degree of the graph, shares that give a secret, and log₂ of what may go wrong.

    ``threshold`` counts the owner's own share, so there are ``degree + 1`` in all.
    """

    degree: int
    threshold: int
    exposure_log2: float
    failure_log2: float


@lru_cache(maxsize=256)
def plan(n: int, policy: Policy) -> Plan:
    """The sparsest graph on n participants that keeps the policy's promises."""
    if n > COMPLETE:
        for degree in range(2, n - 1, 2):
            found = _threshold(n, degree, policy)
            if found is not None:
                return found
    return _complete(n, policy)


def _complete(n: int, policy: Policy) -> Plan:
    """Everybody is everybody's neighbour: a majority, and more than can collude."""
    colluding = floor(policy.colluding * n)
    threshold = min(n, max(colluding + 1, n // 2 + 1))
    lost = floor(policy.dropout * n)
    exposure = 0.0 if colluding >= threshold else float("-inf")
    return Plan(n - 1, threshold, exposure, 0.0 if n - lost < threshold else float("-inf"))


def _threshold(n: int, degree: int, policy: Policy) -> Plan | None:
    """A threshold that keeps the promises at this degree, halfway between the two limits."""
    colluding, lost = floor(policy.colluding * n), floor(policy.dropout * n)
    # Two runs of k/2 neighbours on the circle, all lost or colluding, would cut it in two.
    cut = comb(n, 2) * _all_bad(n, colluding + lost, degree)
    for_security = Fraction(1, 2**policy.security_bits) - cut
    for_reliability = Fraction(1, 2**policy.reliability_bits)
    exposed = [n * tail for tail in _tails(n - 1, colluding, degree)]
    failing = [n * tail for tail in _tails(n - 1, lost, degree)]
    # Exposed: ``threshold`` neighbours collude.  Failing: fewer than ``threshold`` are left.
    good = [
        t
        for t in range(2, degree + 1)
        if exposed[t] <= for_security and failing[degree - t + 1] <= for_reliability
    ]
    if not good:
        return None
    t = good[len(good) // 2]
    return Plan(degree, t, _log2(exposed[t] + cut), _log2(failing[degree - t + 1]))


def _all_bad(n: int, bad: int, draws: int) -> Fraction:
    """The probability that ``draws`` of n without replacement are all among the bad ones."""
    return Fraction(comb(bad, draws), comb(n, draws)) if draws <= n else Fraction(0)


def _tails(n: int, bad: int, draws: int) -> list[Fraction]:
    """P(at least i of ``draws`` are bad), i = 0 … draws + 1: the hypergeometric law's tails."""
    total = comb(n, draws)
    tails = [Fraction(0)] * (draws + 2)
    for i in range(draws, -1, -1):
        tails[i] = tails[i + 1] + Fraction(comb(bad, i) * comb(n - bad, draws - i), total)
    return tails


def _log2(probability: Fraction) -> float:
    if not probability:
        return float("-inf")
    return log2(probability.numerator) - log2(probability.denominator)


@dataclass(frozen=True)
class Graph:
    """Neighbourhoods of one attempt."""

    participants: tuple[str, ...]
    circle: tuple[str, ...]
    plan: Plan

    @classmethod
    def of(cls, context: bytes, participants: Sequence[str], policy: Policy) -> Graph:
        """The graph for an attempt, known by its context, and its participants, sorted."""
        order = sorted(participants, key=lambda name: digest_of(b"circle", context, name.encode()))
        return cls(tuple(participants), tuple(order), plan(len(order), policy))

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Everyone who shares secrets with a participant, sorted."""
        n, degree = len(self.circle), self.plan.degree
        at = self.circle.index(name)
        if degree >= n - 1:
            return tuple(sorted(other for other in self.circle if other != name))
        steps = range(1, degree // 2 + 1)
        near = [self.circle[(at + step) % n] for step in steps]
        return tuple(sorted(near + [self.circle[(at - step) % n] for step in steps]))

    def number(self, name: str) -> int:
        """A participant's point in the sharing of secrets, from 1 on."""
        return self.participants.index(name) + 1
