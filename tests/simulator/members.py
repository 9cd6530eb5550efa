"""Who belongs to the federation: clients join, leave, are given up and come back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from fedforget.protocol.federation import Federation, Membership
from fedforget.protocol.keys import Identity
from simulator.data import Data
from simulator.faults import Fate
from simulator.hosts import ClientHost

MOST = 8


class Members:
    """Every client there ever was, and the next membership list."""

    def __init__(
        self,
        federation: Federation,
        data: Data,
        fate: Fate,
        new_host: Callable[[str, Identity, Membership], ClientHost],
    ) -> None:
        self.hosts: dict[str, ClientHost] = {}
        self._federation = federation
        self._data = data
        self._fate = fate
        self._rng: Random = fate.rng
        self._new_host = new_host
        self._identities: dict[str, Identity] = {}
        self._capacity: dict[str, int] = {}

    @property
    def fewest(self) -> int:
        """Below this no round could ever be committed."""
        return max(2, self._federation.policy.minimum)

    def first(self, n_clients: int) -> Membership:
        """The list of the first epoch."""
        return self._list(1, [self._newcomer() for _ in range(n_clients)])

    def _newcomer(self) -> str:
        name = f"client-{len(self._identities)}"
        self._identities[name] = Identity(self._rng.randbytes(32))
        self._capacity[name] = self._data.enrol(name)
        return name

    def _list(self, epoch: int, names: list[str]) -> Membership:
        names = sorted(names)
        keys = {name: self._identities[name].public for name in names}
        return Membership(epoch, keys, sum(self._capacity[name] for name in names))

    def settle(self, membership: Membership) -> None:
        """Set up those on the list who are new, or have been away."""
        for name in membership.keys:
            if name not in self.hosts:
                self.hosts[name] = self._new_host(name, self._identities[name], membership)
                self.hosts[name].start()
            elif self.hosts[name].ledger is None:
                self.hosts[name].kill()
                self.hosts[name].membership = membership

    def renewed(self, before: Membership) -> Membership:
        """The same members in the next epoch."""
        return self._list(before.epoch + 1, list(before.keys))

    def next(self, before: Membership, given_up: tuple[str, ...]) -> Membership:
        """The list of the next epoch: without those given up, with some who join or return."""
        rng, tally = self._rng, self._fate.tally
        names = [name for name in before.keys if name not in given_up]
        tally["given up"] += len(given_up)
        for name in self.gone(before):
            if name in names and len(names) > self.fewest:
                names.remove(name)
                tally["left"] += 1
        away = [name for name in self.hosts if name not in before.keys]
        while len(names) < self.fewest or (len(names) < MOST and rng.random() < 0.3):
            if away and rng.random() < 0.7:
                names.append(away.pop(rng.randrange(len(away))))
                self._welcome_back(names[-1])
            else:
                names.append(self._newcomer())
                tally["joined"] += 1
        return self._list(before.epoch + 1, names)

    def gone(self, membership: Membership) -> list[str]:
        """Members who wanted to leave, and know that they are counted with nothing."""
        return [name for name in membership.keys if _counted_with_nothing(self.hosts[name])]

    def _welcome_back(self, name: str) -> None:
        host = self.hosts[name]
        host.lost = host.leaving = False
        self._capacity[name] = max(self._capacity[name], self._data.enrol(name))
        self._fate.tally["came back"] += 1
        if self._fate.strikes("ledger_lost"):
            host.lose_ledger()

    def stay_or_go(self, membership: Membership) -> None:
        """Somebody may decide to leave."""
        stayers = [name for name in membership.keys if not self.hosts[name].leaving]
        if len(stayers) > self.fewest:
            host = self.hosts[self._rng.choice(stayers)]
            host.leaving = True
            self._data.clear(host.name)
            self._fate.tally["wants to leave"] += 1


def _counted_with_nothing(host: ClientHost) -> bool:
    ledger = host.ledger
    if not host.leaving or ledger is None or ledger.pending is not None:
        return False
    return ledger.base is not None and not len(ledger.base)
