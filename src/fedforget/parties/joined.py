"""A membership list beside the one before it: what an operator is told before accepting it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedforget.parties.federation_file import FederationFile
from fedforget.protocol.errors import AloneError
from fedforget.protocol.joining import (
    check_company,
    check_rest_of_group,
    few_in_every_sum,
    fewest_left,
    kept_of,
    signers_may_be_gone,
)
from fedforget.protocol.membership import Membership
from fedforget.protocol.rules import fewest_together, groups_of, parts_of


@dataclass(frozen=True)
class Joined:
    """A membership list beside the one before it: who came, went, and what will show.

    ``opened`` are members whose inputs are in a sum that may be known without a commit.  ``few``
    are those who are left in every sum since the last commit, if they are too few to be hidden.
    ``many_dropped`` says that nobody may be left who knows of a sum which others were not shown,
    and ``own`` is the member who looks at the list, if it is one.  ``amended`` is the federation
    file before, if the next version of it comes with the list.  ``known`` says that the member has
    accepted just this before.
    """

    federation: FederationFile
    before: Membership | None
    membership: Membership
    opened: frozenset[str] = frozenset()
    few: frozenset[str] = frozenset()
    many_dropped: bool = False
    own: str | None = None
    amended: FederationFile | None = None
    known: bool = False

    @classmethod
    def after(
        cls,
        federation: FederationFile,
        lists: Sequence[Membership],
        new: Sequence[Membership],
        opened: frozenset[str],
        own: str | None = None,
        amended: FederationFile | None = None,
    ) -> Joined:
        """What comes with new lists after those that are known."""
        policy = federation.policy()
        before = policy if amended is None else amended.policy()
        return cls(
            federation,
            lists[-1] if lists else None,
            new[-1],
            opened,
            few_in_every_sum(lists, new, policy, before),
            signers_may_be_gone(lists, new, policy),
            own,
            amended,
        )

    @property
    def came(self) -> list[str]:
        if self.before is None:
            return list(self.membership.joined)
        return sorted(set(self.membership.position) - set(self.before.position))

    @property
    def went(self) -> list[str]:
        return (
            []
            if self.before is None
            else sorted(set(self.before.position) - set(self.membership.position))
        )

    @property
    def changed_keys(self) -> list[str]:
        before = {} if self.before is None else self.before.keys
        now = self.membership.keys
        return sorted(name for name in now if name in before and now[name] != before[name])

    @property
    def suspended(self) -> list[str]:
        return sorted(self.membership.suspended)

    def _new(self) -> list[str]:
        """Who has come since the list before; nobody with the first list of all."""
        listed = self.membership
        last = listed.epoch - 1 if self.before is None else self.before.epoch
        return [name for name, since in listed.since.items() if since > last and listed.epoch > 1]

    def _small_rests(self) -> list[tuple[int, list[str]]]:
        """What is left of the groups from which somebody is dropped, where that is little."""
        if self.before is None:
            return []
        found, listed = [], self.membership
        fewest = fewest_left(self.before, listed, self.federation.policy())
        for group in groups_of(self.before, {*listed.counted, *self.opened}):
            kept = kept_of(group, self.before, listed)
            parts = parts_of(kept, listed.parted) if kept and group != kept else []
            small = (sorted(part) for part in parts if len(part) < fewest)
            found += [(self.before.since[rest[0]], rest) for rest in small]
        return found

    def asked(self) -> list[str]:
        """Members that must accept something before they can go on with the list, sorted.

        Their clients refuse it until their operators say `client join --alone`.
        """
        found = {name for _, rest in self._small_rests() for name in rest} | self.few
        if self.many_dropped:
            found |= set(self.membership.counted) & set(self.membership.position)
        return sorted(found | self._asked_newcomers() | self._asked_with_new_keys())

    def _asked_newcomers(self) -> set[str]:
        """Those of whom nothing is counted and who came with too few others.

        Whoever was asked with an earlier list is not asked again.
        """
        listed, found = self.membership, set()
        waiting = set(listed.position) - set(listed.counted)
        for epoch in {listed.since[name] for name in waiting}:
            for returned in (True, False):
                alike = {
                    name
                    for name in waiting
                    if listed.since[name] == epoch and (name in listed.returned) == returned
                }
                if alike and _lacks_company(min(alike), listed, self.federation):
                    found |= alike
        if self.before is None:
            return found
        before, file = self.before, self.amended or self.federation
        stay = {name for name in found if before.since.get(name) == listed.since[name]}
        return found - {name for name in stay if _lacks_company(name, before, file)}

    def _fewer_than_asked_now(self) -> list[str]:
        """Newcomers of an earlier list whom an amendment finds too few."""
        late = sorted(self._asked_newcomers() - {*self._new()})
        if self.amended is None or not late:
            return []
        line = (
            f"{', '.join(late)}: not counted yet, and by the amended policy too few who came"
            " together; the next full round shows the sum of their histograms, and each is asked"
        )
        return [line]

    def _asked_with_new_keys(self) -> set[str]:
        """Counted members with new keys: their new directories know of no list before."""
        found, federation = set(), self.federation.protocol_federation()
        for name in set(self.changed_keys) & set(self.membership.counted):
            try:
                check_rest_of_group(name, None, self.membership, federation, frozenset())
            except AloneError:
                found.add(name)
        return found

    def will_show(self) -> list[str]:
        """What the sums of the coming rounds will tell the server, beyond what they always do."""
        listed, policy = self.membership, self.federation.policy()
        fewest, lines = fewest_together(listed, policy), []
        for epoch in sorted({listed.since[name] for name in self._new()}):
            together = [name for name in self._new() if listed.since[name] == epoch]
            new = [name for name in together if name not in listed.returned]
            if 0 < len(new) < fewest:
                lines.append(
                    f"{', '.join(new)}: so few join together that the next full round shows the sum"
                    " of their histograms"
                )
        lines += self._fewer_than_asked_now()
        lines += [
            f"{name} is dropped while it is counted: the next full round shows its whole histogram"
            for name, _ in listed.dropped
        ]
        lines += [
            f"{name} is dropped after a sum with it was begun: the next full round shows its whole"
            " histogram"
            for name in self.went
            if name in self.opened and name not in listed.counted
        ]
        lines += [
            f"{name} has a new key: unless it brings what it had, the next full round shows the"
            " whole histogram that it had"
            for name in self.changed_keys
            if name in listed.counted or name in self.opened
        ]
        if self.before is None and self.own in listed.counted:
            lines.append(
                f"{self.own} was counted with another key: the next full round shows the difference"
                " from what was counted then, so all of it to whoever knows that"
            )
        lines += [
            f"{name} was a member before: the next full round may show its whole histogram"
            for name in self._new()
            if name in listed.returned
        ]
        lines += [
            f"{', '.join(rest)}: what is left of those who came with list {epoch}; with so few, the"
            " same round shows the sum of their histograms, and each of them is asked"
            for epoch, rest in self._small_rests()
        ]
        if self.few:
            lines.append(
                f"{', '.join(sorted(self.few))}: all who took part under every list since round"
                f" {listed.after_round}; with so few, what they changed since then may show, and"
                " each of them is asked"
            )
        if self.many_dropped:
            lines.append(
                "so many are dropped at once that nobody may be left who signed a sum which the"
                " others were not shown; what those who stay have may show, and each is asked"
            )
        return lines + [
            f"{name} is suspended: what it changed since round {listed.after_round} may show"
            for name in self.suspended
        ]


def _lacks_company(name: str, listed: Membership, federation: FederationFile) -> bool:
    try:
        check_company(name, listed, federation.protocol_federation())
    except AloneError:
        return True
    return False
