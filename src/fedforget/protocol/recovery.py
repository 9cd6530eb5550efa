"""What a server that was restored learns from what members say: attempts, and signed sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fedforget.protocol.client_ledger import Lock, lock_at
from fedforget.protocol.errors import TooFewError
from fedforget.protocol.graph import Policy
from fedforget.protocol.history import Place
from fedforget.protocol.membership import Membership
from fedforget.protocol.messages import Present, SignedSet
from fedforget.protocol.rules import check_leavers

MOST_ATTEMPTS_LOST = 1 << 32
"""How many attempts a server that was restored from a backup can have forgotten."""


def highest_attempt(own: int, greetings: Iterable[Present]) -> int:
    """The latest attempt that anybody has seen.

    A claim far above what this server has opened is not believed: it would use the numbers up.
    """
    claims = [one.seen for one in greetings if one.seen < own + MOST_ATTEMPTS_LOST]
    return max([own, *claims])


def signed_since(
    membership: Membership,
    policy: Policy,
    place: Place,
    greetings: Iterable[Present],
    own: Lock | None,
) -> Lock | None:
    """The set that more members have signed at this place than may collude.

    Without one, the set that this server remembers; and without that, a set with leavers whom
    these confirm: whoever signed it refuses every list that does not name them, and one member
    that lies of them does no harm.
    """
    here = [one for one in greetings if one.link == place.link]
    counts = Counter(one.signed for one in here if one.signed is not None)
    colluders = policy.colluders(len(membership))
    wishes = {one.name: one.leaving.alone for one in here if one.leaving is not None}
    own = lock_at(place, own)
    for signed, number in counts.most_common():
        alone = own is None and _may_have_been_asked(membership, policy, signed, place, wishes)
        if number > colluders or alone:
            return Lock(place.round + 1, signed.membership, signed.alive, signed.left)
    return own


def _may_have_been_asked(
    membership: Membership,
    policy: Policy,
    signed: SignedSet,
    place: Place,
    wishes: Mapping[str, bool],
) -> bool:
    """Whether an honest server can have asked members to sign a set with these leavers."""
    alive, left, counted = signed.alive, signed.left, place.counted or {}
    if not left or not {*left} <= wishes.keys() & {*alive} or not {*alive} <= {*membership.active}:
        return False
    alone = [name for name in left if wishes[name]]
    after = {name: at for name, at in counted.items() if name not in left}
    try:
        check_leavers(membership, policy, alive, left, alone, counted, after)
    except TooFewError:
        return False
    return True
