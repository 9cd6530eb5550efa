"""Amendments in schedules: when they come, and what the next version changes.

Their draws come from a source of their own: a schedule without amendments is what it would be if
there were none.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Policy, PolicyError


class AmendmentPlans:
    """The amendments of one schedule.

    Parameters
    ----------
    rng : decides.
    other_bins : whether a version may let clients report in other bins.

    Attributes
    ----------
    moments : the ticks at which an honest server's operator amends the federation.
    lateness : the chance that a client that is behind catches up in a tick.
    files : the chance that a list that amends comes together with the file.
    """

    def __init__(self, rng: Random, *, other_bins: bool) -> None:
        self.rng = rng
        self._other_bins = other_bins
        self.moments = sorted(rng.randint(2, 90) for _ in range(rng.choice((1, 1, 2, 3))))
        self.lateness = rng.choice((0.4, 0.4, 0.05, 0.005))
        self.files = rng.choice((1.0, 1.0, 0.5))

    def due(self, clock: int) -> bool:
        """Whether an amendment comes now."""
        if not self.moments or self.moments[0] > clock:
            return False
        self.moments.pop(0)
        return True

    def version_after(
        self, before: Federation, epoch: int, n: int, *, same_bins: bool = False
    ) -> Federation:
        """A version that comes into force with a list of n members."""
        rng = self.rng
        moves = self._other_bins and not same_bins and rng.random() < 0.5
        return replace(
            before,
            configuration=rng.randbytes(32),
            policy=self._policy(before.policy, n) if rng.random() < 0.6 else before.policy,
            first_epoch=epoch,
            report=before.report + b"+" if moves else before.report,
            first_capacity=rng.choice((before.first_capacity, rng.randint(1, 4))),
            earlier=(*before.earlier, before.version),
        )

    def _policy(self, before: Policy, n: int) -> Policy:
        """Another policy; as many may collude as in any schedule, or more."""
        rng = self.rng
        policy = Policy(
            dropout=rng.choice((0.1, 0.2, 0.3)),
            colluding=rng.choice((0.1, 0.3)),
            minimum=rng.choice((3, 3, 4)),
        )
        try:
            policy.check(n)
        except PolicyError:
            return before
        return policy
