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


def too_demanding(dropout: float, colluding: float) -> bool:
    """Whether survivors may be too few for a majority that colluders cannot make two of."""
    return 2 * Fraction(str(dropout)) + Fraction(str(colluding)) >= 1


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

    dropout: float = 0.1
    colluding: float = 0.1
    minimum: int = 3
    security_bits: int = 40
    reliability_bits: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1 or not 0 <= self.colluding < 1:
            raise ValueError("dropout and colluding are shares of the participants, from 0 to 1")
        if too_demanding(self.dropout, self.colluding):
            raise ValueError(
                f"dropout {self.dropout} and colluding {self.colluding} are too much: twice"
                " the one plus the other must be below 1, or no threshold lets a round end and"
                " keeps a server that tells clients of different survivors from an input"
            )
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


def _shares(n: int, policy: Policy) -> tuple[int, int]:
    """How many of n may collude and how many may vanish; 0.29 of 100 are 29, not 28."""
    colluding, lost = (Fraction(str(share)) for share in (policy.colluding, policy.dropout))
    return floor(colluding * n), floor(lost * n)


def _complete(n: int, policy: Policy) -> Plan:
    """Everybody is everybody's neighbour: so large a majority that colluding in both of two groups
    does not make two of it.

    With c colluding and l lost, 2l + c < n by the policy, so that as many as it takes are left.
    """
    colluding, _ = _shares(n, policy)
    return Plan(n - 1, (n + colluding) // 2 + 1, float("-inf"), float("-inf"))


def _threshold(n: int, degree: int, policy: Policy) -> Plan | None:
    """A threshold that keeps the promises at this degree, halfway between the two limits.

    Of the k + 1 holders of somebody's shares, an honest one reveals shares of one kind, a colluding
    one of both.  So both secrets come out if 2t ≤ k + 1 + c for c colluding neighbours, however the
    server splits the honest ones into two groups.
    """
    colluding, lost = _shares(n, policy)
    # Two runs of k/2 neighbours on the circle, all lost or colluding, would cut it in two.
    cut = comb(n, 2) * Fraction(comb(colluding + lost, degree), comb(n, degree))
    for_security = Fraction(1, 2**policy.security_bits) - cut
    if for_security < 0:
        return None
    total = comb(n - 1, degree)
    exposed = _tail_counts(n - 1, colluding, degree)
    failing = _tail_counts(n - 1, lost, degree)
    most_exposed = floor(for_security * total / n)
    most_failing = total // (n * 2**policy.reliability_bits)
    good = [
        t
        for t in range(degree // 2 + 1, degree + 1)
        if exposed[2 * t - degree - 1] <= most_exposed and failing[degree - t + 1] <= most_failing
    ]
    if not good:
        return None
    t = good[len(good) // 2]
    exposure = Fraction(n * exposed[2 * t - degree - 1], total) + cut
    return Plan(degree, t, _log2(exposure), _log2(Fraction(n * failing[degree - t + 1], total)))


def _tail_counts(n: int, bad: int, draws: int) -> list[int]:
    """In how many of the ways to draw are at least i bad, i = 0 … draws + 1."""
    counts = [0] * (draws + 2)
    for i in range(draws, -1, -1):
        counts[i] = counts[i + 1] + comb(bad, i) * comb(n - bad, draws - i)
    return counts


def _tails(n: int, bad: int, draws: int) -> list[Fraction]:
    """The same as probabilities: the tails of the hypergeometric law."""
    return [Fraction(count, comb(n, draws)) for count in _tail_counts(n, bad, draws)]


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
