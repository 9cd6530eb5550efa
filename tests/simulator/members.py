"""Who belongs to the federation: the next membership list, and the hosts of those who are on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random

from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import PolicyError
from fedforget.protocol.history import Place, next_list
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Member, Membership, SignedMembership
from fedforget.protocol.rules import fewest_together
from simulator.data import Data
from simulator.hosts import ClientHost


class Members:
    """Every client there ever was, and the lists that name them.

    Attributes
    ----------
    hosts : the clients by their names.
    published : every list, in the order of their epochs; people have seen them.
    gone : who was taken off a list without having left.
    suspended_once : who was suspended by any list.
    federation : in the version of the latest list.
    amendments : the versions that came with a list, by its epoch; a server that lies has several.
    """

    def __init__(
        self,
        server: Identity,
        federation: Federation,
        data: Data,
        rng: Random,
        new_host: Callable[[str, Identity], ClientHost],
        most: int = 8,
        *,
        keeps_the_dropped: bool = False,
    ) -> None:
        self.hosts: dict[str, ClientHost] = {}
        self.published: list[SignedMembership] = []
        self.gone: set[str] = set()
        self.suspended_once: set[str] = set()
        self.most = most
        self._keeps_the_dropped = keeps_the_dropped
        self.federation = federation
        self.amendments: dict[int, list[Federation]] = {}
        self._amended_from: dict[int, Federation] = {}
        self._server = server
        self._data = data
        self._rng = rng
        self._new_host = new_host
        self._identities: dict[str, Identity] = {}
        self._capacity: dict[str, int] = {}

    @property
    def latest(self) -> Membership:
        return self.published[-1].membership

    def newcomer(self) -> str:
        """Somebody new with data; on no list yet."""
        name = f"c{len(self._identities):02}"
        self._identities[name] = Identity(self._rng.randbytes(32))
        self._capacity[name] = self._data.enrol(name)
        return name

    def rekey(self, name: str) -> None:
        """A member loses everything except for its records, and makes a new key."""
        self._identities[name] = Identity(self._rng.randbytes(32))

    def identity(self, name: str) -> Identity:
        return self._identities[name]

    def first(self, n_clients: int) -> SignedMembership:
        """The list of the first epoch."""
        names = [self.newcomer() for _ in range(n_clients)]
        return self._signed(None, Place(), names, ())

    def next(
        self,
        place: Place,
        *,
        add: Collection[str] = (),
        drop: Collection[str] = (),
        suspend: Collection[str] = (),
        back: Collection[str] = (),
        leavers: Collection[tuple[str, ...]] = (),
        opened: frozenset[str] = frozenset(),
    ) -> SignedMembership | None:
        """The list of the next epoch; None if no round could ever be committed with it.

        Whoever is no longer counted cannot stay suspended, and is taken off.
        """
        before, counted = self.latest, place.counted or {}
        suspended = (before.suspended | set(suspend)) - set(back) - set(drop)
        drop = set(drop) | {name for name in suspended if name not in counted}
        names = [*(name for name in before.position if name not in drop), *add]
        try:
            self.federation.policy.check(len(names))
        except PolicyError:
            return None
        return self._signed(before, place, names, suspended & set(names), leavers, opened)

    def amending(
        self,
        place: Place,
        *,
        leavers: Collection[tuple[str, ...]] = (),
        opened: frozenset[str] = frozenset(),
    ) -> SignedMembership:
        """A list of the same members, with which a version comes into force."""
        membership = next_list(
            self.latest,
            place,
            federation=self.federation.identifier,
            members=self.latest.members,
            capacity=self.latest.capacity,
            leavers=leavers,
            opened=opened,
        )
        return SignedMembership.by(membership, self._server)

    def amend(self, signed: SignedMembership, *versions: Federation) -> None:
        """Tell everybody of a list that amends the federation; the last version is the true one."""
        epoch, before = signed.membership.epoch, self.federation
        self.publish(signed, versions)
        self._amended_from[epoch] = before

    def _signed(
        self,
        before: Membership | None,
        place: Place,
        names: Collection[str],
        suspended: Collection[str],
        leavers: Collection[tuple[str, ...]] = (),
        opened: frozenset[str] = frozenset(),
    ) -> SignedMembership:
        membership = next_list(
            before,
            place,
            federation=self.federation.identifier,
            members=[
                Member(name, self._identities[name].public.data, name in suspended)
                for name in names
            ],
            capacity=sum(self._capacity[name] for name in names),
            leavers=leavers,
            opened=opened,
        )
        return SignedMembership.by(membership, self._server)

    def publish(self, signed: SignedMembership, versions: Sequence[Federation] = ()) -> None:
        """Tell everybody of a list, and set up those who are new on it."""
        membership = signed.membership
        if membership.epoch in self.amendments:
            # A list in the place of another one brings what comes with it, and nothing else.
            del self.amendments[membership.epoch]
            self.federation = self._amended_from[membership.epoch]
        if versions:
            self.amendments[membership.epoch] = list(versions)
            self.federation = versions[-1]
        self.published = [one for one in self.published if one.membership.epoch < membership.epoch]
        if self.published:
            dropped = set(self.latest.position) - set(membership.position)
            self.gone |= {name for name in dropped if not _has_left(self.hosts[name], membership)}
            for name in dropped if not self._keeps_the_dropped else ():
                self.hosts[name].kill()
        self.published.append(signed)
        self.suspended_once |= membership.suspended
        for name in membership.position:
            host = self.hosts.get(name)
            if host is None or host.identity != self._identities[name]:
                self.hosts[name] = self._new_host(name, self._identities[name])
                if host is not None:
                    self.hosts[name].troubled = self.hosts[name].alone = True

    def catch_up(self, host: ClientHost, *, only_next: bool = False, files: float = 1.0) -> None:
        """Let a client take over the lists and versions that it does not know.

        What it refuses is raised.  With probability ``files`` the file of a version is given
        together with its list, or after it.
        """
        known = 0 if host.membership is None else host.membership.epoch
        for signed in self.published:
            epoch = signed.membership.epoch
            if epoch <= known or host.name not in signed.membership:
                continue
            if signed.membership.keys[host.name] != host.identity.public:
                continue
            self._give_files(host, files)
            version = self._version_with(host, epoch, files)
            if version is None:
                host.adopt(signed)
            else:
                host.amend(version, signed)
            if only_next:
                return
        self._give_files(host, files)

    def _give_files(self, host: ClientHost, files: float) -> None:
        """Give a client the versions of lists that it has."""
        if host.membership is None:
            return
        for epoch in sorted(self.amendments):
            if epoch <= host.membership.epoch:
                version = self._version_with(host, epoch, files)
                if version is not None:
                    host.amend(version)

    def _version_with(self, host: ClientHost, epoch: int, files: float) -> Federation | None:
        """The version that comes with a list, if the client lacks it and is given it now."""
        there = self.amendments.get(epoch, [])
        # A newcomer has the file of its time.
        held = host.federation.first_epoch
        lacks = host.ledger is not None and held < epoch
        # Versions are taken over in their order.
        lacks = lacks and not any(held < one < epoch for one in self.amendments)
        if not there or not lacks or (files < 1 and self._rng.random() >= files):
            return None
        return self._rng.choice(there) if len(there) > 1 else there[0]

    def behind(self, host: ClientHost) -> bool:
        latest = self.latest
        if host.name not in latest:
            return False
        lacks = any(
            host.federation.first_epoch < epoch <= latest.epoch for epoch in self.amendments
        )
        return host.membership != latest or lacks

    def together(self, more: int = 0) -> int:
        """How many must join or leave at once, when so many more are on the list."""
        c = self.federation.policy.colluders(len(self.latest) + more)
        fewest = fewest_together(self.latest, self.federation.policy)
        return max(fewest, c + 2)


def _has_left(host: ClientHost, membership: Membership) -> bool:
    """Whether somebody wanted to leave, was counted, and is not any more; it may not know yet."""
    ledger = host.ledger
    if ledger is None or not host.leaving:
        return False
    return host.left or (ledger.base_round > 0 and host.name not in membership.counted)
