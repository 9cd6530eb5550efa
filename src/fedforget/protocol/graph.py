"""How many must be there, how many must sign, and who shares secrets with whom.

:class:`Policy` turns a number of members into :class:`Thresholds`: c colluders, h who must be
there, s who must sign.  Two sets of survivors cannot both find s signatures of m members, c of
whom sign both: 2s > m + c.  So all honest members who reveal shares in one attempt do it for the
same set.

:func:`plan` turns it into a graph.  Up to :data:`COMPLETE` participants, everybody is everybody's
neighbour.  With more, the participants stand on a circle in an order that a hash of the attempt and
of the participants decides, and the neighbours of each are the k/2 next to it on either side (the
circulant graph of Bell et al. 2020).  Among m participants, c of whom collude, the server calls up
to l = m − h lost, after it has seen the circle.  Honest inputs stay hidden unless

1. t of an honest owner's k neighbours collude: they then know its second secret as well; or
2. the honest survivors fall apart.  Survivors on both sides of a gap are neighbours if fewer than
   k/2 places lie between them.  So there must be two separate runs of k/2 places whose members all
   collude or are lost: of these k members at most l are honest, at least k − l collude.

On a random circle the places of one owner's neighbours, or of one pair of runs, are a random subset
of all places, and the colluders in it follow the hypergeometric law.  The probabilities are summed
over all honest owners and all pairs of runs, and multiplied by 2 to the :data:`TRIES_LOG2`, because
the server may try salts and participants until it likes the circle.  A round of an honest server
fails needlessly if somebody keeps fewer than t + 1 neighbours (one of whom may spoil) when l random
participants are lost.  docs/threat-model.md has the argument in full, and a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, comb, log2

from fedforget.errors import FedforgetError
from fedforget.protocol.keys import digest_of

COMPLETE = 32
"""Number of participants up to which the graph is complete."""

TRIES_LOG2 = 60
"""How often the server may try another salt or other participants, as a power of two."""


class PolicyError(FedforgetError, ValueError):
    """A policy that makes no sense, or under which so few members could never end a round."""


def too_demanding(dropout: float, colluding: float) -> bool:
    """Whether survivors may be too few for a majority that colluders cannot make two of."""
    return 2 * Fraction(str(dropout)) + Fraction(str(colluding)) >= 1


def _part(share: float, n: int) -> int:
    """A share of n members, rounded up; 0.07 of 100 are 7, not 8, though 0.07 * 100 is above 7."""
    return ceil(Fraction(str(share)) * n)


@dataclass(frozen=True)
class Thresholds:
    """What follows from a number of members and a policy.

    Attributes
    ----------
    members : the population m: everybody on the list, or those of them who are already counted.
    colluders : how many of the whole list may collude; in the worst case all are in the population.
    present : how many must be on the roster, share, and survive.
    signers : how many must sign a set of survivors before anybody reveals a share for it.
    """

    members: int
    colluders: int
    present: int
    signers: int


@dataclass(frozen=True)
class Policy:
    """What a federation expects of its members in one round.

    Attributes
    ----------
    dropout : share of the members that may be away or vanish during a round.
    colluding : share of the members on the list that may pool what they see with the server.
    minimum : fewest survivors whose sum may be unmasked.  1 says that all members are one process
        with nobody to hide from; nobody colludes then.
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
            raise PolicyError("dropout and colluding are shares of the members, from 0 to 1")
        if too_demanding(self.dropout, self.colluding):
            raise PolicyError(
                f"dropout {self.dropout} and colluding {self.colluding} are too much: twice"
                " dropout plus colluding must be below 1, or too few members are left to sign"
            )
        if self.minimum < 1:
            raise PolicyError(f"minimum must be at least 1, got {self.minimum}")

    def colluders(self, n: int) -> int:
        """How many of n members on the list may collude: one at least, a restored one for instance.

        >>> [Policy().colluders(n) for n in (3, 10, 11, 100)]
        [1, 1, 2, 10]
        """
        return 0 if self.minimum == 1 else max(1, _part(self.colluding, n))

    def thresholds(self, n: int, population: int | None = None) -> Thresholds:
        """The thresholds for a population (all n members on the list unless told otherwise).

        Colluders are counted in the whole list, and all of them may be in the population.

        >>> Policy().thresholds(10)
        Thresholds(members=10, colluders=1, present=9, signers=6)
        >>> Policy().thresholds(20, population=10)
        Thresholds(members=10, colluders=2, present=9, signers=7)
        """
        m = n if population is None else population
        if not 0 <= m <= n:
            raise ValueError(f"{m} members counted, but {n} members on the list")
        c = self.colluders(n)
        return Thresholds(m, c, max(self.minimum, m - _part(self.dropout, m)), (m + c) // 2 + 1)

    @property
    def honest(self) -> int:
        """Fewest honest members of a sum: two hide each other, unless fewer were asked for."""
        return min(self.minimum, 3) - 1

    def check(self, n: int) -> None:
        """Refuse a list of n members that could never end a round, or whose sums hide nobody."""
        found = self.thresholds(n)
        if found.present > n:
            raise PolicyError(
                f"the list has {n} members, but {found.present} must take part in every round:"
                " enrol more members, or lower protocol.minimum"
            )
        if found.signers > found.present:
            raise PolicyError(
                f"of {n} members, {found.colluders} may collude, so {found.signers} must sign, but"
                f" a round may end with only {found.present}: enrol more members, or lower"
                " protocol.dropout or protocol.colluding"
            )
        if found.present - found.colluders < self.honest:
            raise PolicyError(
                f"of {n} members, {found.colluders} may collude, and a round may end with"
                f" {found.present}: its sum would show what one honest member reports. Enrol more"
                " members, or lower protocol.colluding"
            )


@dataclass(frozen=True)
class GraphPlan:
    """Degree of the graph, shares that give a secret, and log₂ of what may go wrong.

    ``threshold`` counts the owner's own share, so there are ``degree + 1`` in all.
    ``exposure_log2`` is that of all the server's tries together.
    """

    degree: int
    threshold: int
    exposure_log2: float
    failure_log2: float


def plan(n: int, policy: Policy, participants: int | None = None) -> GraphPlan:
    """The sparsest graph on the participants (all n on the list unless told otherwise) that keeps
    the policy's promises.

    With fewer participants there are still as many colluders as the whole list may have.  They lose
    at most what a population of just their number may lose: a larger population must keep more.
    """
    m = n if participants is None else participants
    here = policy.thresholds(n, m)
    return _plan(here, policy.security_bits, policy.reliability_bits)


@lru_cache(maxsize=1024)
def _plan(here: Thresholds, security_bits: int, reliability_bits: int) -> GraphPlan:
    m = here.members
    if m > COMPLETE:
        for degree in range(2, m - 1, 2):
            found = _sparse(here, degree, security_bits, reliability_bits)
            if found is not None:
                return found
    # Colluders alone are fewer than the signers, and whoever may end a round is enough.
    return GraphPlan(max(0, m - 1), here.signers, float("-inf"), float("-inf"))


def _sparse(
    here: Thresholds, degree: int, security_bits: int, reliability_bits: int
) -> GraphPlan | None:
    """The largest threshold that keeps the promises at this degree, if any does.

    The largest, because no round ends with more losses than are planned for, while more may collude
    than a policy thinks: whatever room there is goes to secrecy.
    """
    m, c = here.members, min(here.colluders, here.members)
    lost = max(0, m - here.present)
    # Pairs of runs of k/2 places with at least one place on either side between them.
    runs = m * (m - degree - 1) // 2
    cut = Fraction(runs * _tail(m, c, degree, degree - lost), comb(m, degree))
    allowed = Fraction(1, 2 ** (security_bits + TRIES_LOG2))
    if cut > allowed:
        return None
    ways = comb(m - 1, degree)
    failing = _tails(m - 1, lost, degree)
    most_failing = ways // (m * 2**reliability_bits)
    t = max((t for t in range(1, degree + 1) if failing[degree - t] <= most_failing), default=0)
    exposed = cut + Fraction((m - c) * _tail(m - 1, c, degree, t), ways)
    if not t or exposed > allowed:
        return None
    failure = Fraction(m * failing[degree - t], ways)
    return GraphPlan(degree, t, _log2(exposed) + TRIES_LOG2, _log2(failure))


def _tails(n: int, bad: int, draws: int) -> list[int]:
    """In how many of the ways to draw from n at least i are bad, i = 0 … draws + 1."""
    most, least = min(bad, draws), max(0, draws - (n - bad))
    counts = [comb(n, draws)] * (least + 1) + [0] * (draws + 1 - least)
    ways = comb(bad, most) * comb(n - bad, draws - most)
    for i in range(most, least, -1):
        counts[i] = counts[i + 1] + ways
        # from comb(bad, i) * comb(n - bad, draws - i) to the same with i - 1
        ways = ways * i * (n - bad - draws + i) // ((bad - i + 1) * (draws - i + 1))
    return counts


def _tail(n: int, bad: int, draws: int, least: int) -> int:
    """In how many of the ways to draw from n at least this many are bad."""
    return _tails(n, bad, draws)[max(0, least)]


def _log2(probability: Fraction) -> float:
    if not probability:
        return float("-inf")
    return log2(probability.numerator) - log2(probability.denominator)


@dataclass(frozen=True)
class Graph:
    """Neighbourhoods of one attempt."""

    participants: tuple[str, ...]
    circle: tuple[str, ...]
    plan: GraphPlan

    @classmethod
    def of(cls, context: bytes, participants: Sequence[str], n: int, policy: Policy) -> Graph:
        """The graph for an attempt, known by its context, and its participants, sorted, of n
        members on the list.

        All participants decide the order: a server that leaves one out gets another circle, not the
        same with a gap closed where it likes.
        """
        names = [name.encode() for name in participants]
        attempt = digest_of(b"circle", context, *names)
        order = sorted(participants, key=lambda name: digest_of(attempt, name.encode()))
        return cls(tuple(participants), tuple(order), plan(n, policy, len(order)))

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.circle)}

    def neighbours(self, name: str) -> tuple[str, ...]:
        """Everyone who shares secrets with a participant, sorted."""
        n, degree = len(self.circle), self.plan.degree
        at = self._place[name]
        if degree >= n - 1:
            return tuple(sorted(other for other in self.circle if other != name))
        steps = range(1, degree // 2 + 1)
        near = [self.circle[(at + step) % n] for step in steps]
        return tuple(sorted(near + [self.circle[(at - step) % n] for step in steps]))
