"""Whether a client may go on with a membership list, and where a newcomer begins."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fedforget.protocol.errors import AloneError, UnknownPartyError
from fedforget.protocol.federation import Federation
from fedforget.protocol.history import Place, check_list
from fedforget.protocol.keys import Identity
from fedforget.protocol.ledger import Ledger
from fedforget.protocol.membership import Membership
from fedforget.protocol.rules import fewest_together, groups_of


def newcomer(membership: Membership, n_features: int) -> Ledger:
    """The ledger of somebody who comes with this list."""
    return replace(Ledger.new(n_features), place=Place.told_by(membership))


def check_adoption(
    name: str,
    identity: Identity,
    federation: Federation,
    lists: Sequence[Membership],
    membership: Membership,
    ledger: Ledger | None,
    alone: bool,
) -> None:
    """Refuse a list that this client must not go on with."""
    check_listed(membership, name, identity)
    federation.policy.check(len(membership))
    place = Place() if ledger is None else ledger.place
    check_list(lists, membership, place)
    if alone or (ledger is not None and ledger.joins_alone):
        return
    if name not in membership.counted:
        check_company(name, membership, federation)
    elif lists:
        _check_rest_of_group(name, lists[-1], membership, federation)


def check_company(
    name: str,
    membership: Membership,
    federation: Federation,
    leaving: Sequence[str] = (),
) -> None:
    """Refuse to join with so few that the next sum would show this client's histogram.

    Its company are those who came with the same list, are still there and do not leave.  Those of
    the first list of all have no sum before them.
    """
    if membership.epoch == 1:
        return
    since = membership.since
    together = {one for one in since if since[one] == since[name]} - set(leaving)
    fewest = fewest_together(membership, federation.policy)
    if len(together) < fewest:
        raise AloneError(
            f"{len(together)} members join together; with fewer than {fewest}, {name}'s histogram"
            " would show in the next full round (`client join --alone` accepts that)"
        )


def _check_rest_of_group(
    name: str,
    before: Membership,
    membership: Membership,
    federation: Federation,
) -> None:
    """Refuse a list that drops so many of those who came together with this client.

    Sums hold the group as a whole.  What a dropped member had shows, so what is left of the group
    shows as well, and must be large enough to hide this client.
    """
    groups = groups_of(before, membership.counted)
    group = next((one for one in groups if name in one), frozenset())
    dropped, rest = group - set(membership.position), group & set(membership.position)
    fewest = fewest_together(membership, federation.policy)
    if dropped and len(rest) < fewest:
        raise AloneError(
            f"the list drops {min(dropped)}, who came together with {name}; {len(rest)} are left of"
            f" that group, fewer than the {fewest} that would hide {name}'s histogram"
            " (`client join --alone` accepts that)"
        )


def check_listed(membership: Membership, name: str, identity: Identity) -> None:
    if membership.keys.get(name) != identity.public:
        raise UnknownPartyError(
            f"{name} is not a member of epoch {membership.epoch} with its present key"
        )
