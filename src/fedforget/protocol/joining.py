"""Whether a client may go on with a membership list, and where a newcomer begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from msgspec.structs import replace

from fedforget.protocol.client_ledger import ClientLedger, leavers_since, opened_since
from fedforget.protocol.errors import AloneError, ForkError, UnknownPartyError
from fedforget.protocol.federation import Federation
from fedforget.protocol.graph import Policy, PolicyError
from fedforget.protocol.history import Place, check_list
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Membership
from fedforget.protocol.rules import fewest_together, group_with, groups_of, part_with


def newcomer(membership: Membership, n_features: int) -> ClientLedger:
    """The ledger of somebody who comes with this list."""
    return replace(ClientLedger.new(n_features), place=Place.told_by(membership))


def check_adoption(
    name: str,
    identity: Identity,
    federation: Federation,
    lists: Sequence[Membership],
    new: Sequence[Membership],
    ledger: ClientLedger | None,
    alone: bool,
) -> None:
    """Refuse lists that this client must not go on with.

    Several may be taken over at once, if they follow one another: what matters is the last.  The
    list in force may be given once more to accept that the client joins with few others.
    """
    check_listed(new[-1], name, identity)
    if alone and is_in_force(lists, new):
        return
    _check_number(new[-1], federation.policy)
    _check_lists(name, federation, lists, new, ledger, alone)


def _check_number(membership: Membership, policy: Policy) -> None:
    try:
        policy.check(len(membership))
    except PolicyError as error:
        raise PolicyError(
            f"{error}. If the federation was amended meanwhile, join with its new file"
        ) from None


def _check_lists(
    name: str,
    federation: Federation,
    lists: Sequence[Membership],
    new: Sequence[Membership],
    ledger: ClientLedger | None,
    alone: bool,
) -> None:
    """Refuse lists that do not follow from the others, or with which too much would show."""
    membership = new[-1]
    place = Place() if ledger is None else ledger.place
    known = list(lists)
    for one in new:
        check_list(known, one, place)
        _check_leavers_known(one, place, ledger)
        if known:
            _check_new_keys_known(known[-1], one, ledger)
        known.append(one)
    counted = name in membership.counted
    # What was accepted before it was counted says nothing of later lists, nor of a return.
    stays = bool(lists) and lists[-1].since.get(name) == membership.since[name]
    if alone or (ledger is not None and ledger.joins_alone and stays and not counted):
        return
    if not counted:
        check_company(name, membership, federation)
    else:
        before = lists[-1] if lists else None
        opened = opened_at(membership, ledger)
        check_rest_of_group(name, before, membership, federation, opened)
        _check_in_every_sum(name, lists, new, federation)
        _check_signers_stay(lists, new, federation.policy)


def check_amended_adoption(
    name: str,
    identity: Identity,
    before: Federation,
    after: Federation,
    lists: Sequence[Membership],
    new: Sequence[Membership],
    ledger: ClientLedger | None,
    alone: bool,
) -> None:
    """Refuse lists that this client must not go on with, when a version comes with them.

    ``before`` and ``after`` are the federation without and with the new version.  The list with
    which it comes into force may be known already.
    """
    # All lists since the version came into force, also those that came before its file.
    given = [] if is_in_force(lists, new) else list(new)
    until = [one for one in lists if one.epoch < after.first_epoch]
    since = [*lists[len(until) :], *given]
    check_adoption(name, identity, after, until, since, ledger, alone)
    if given:
        # Sums of before the amendment were made under the old policy; how many members there must
        # be is for the new one alone to say.
        _check_lists(name, before, lists, new, ledger, alone)


def is_in_force(lists: Sequence[Membership], new: Sequence[Membership]) -> bool:
    """Whether only the list is given that the client holds already."""
    return [one.digest for one in new] == [one.digest for one in lists[-1:]]


def joins_alone(
    name: str, membership: Membership, ledger: ClientLedger | None, alone: bool
) -> bool:
    """Whether the operator has accepted that this client joins with few others.

    What the operator of a counted member accepts is for one list only.
    """
    before = ledger is not None and ledger.joins_alone
    return before or (alone and name not in membership.counted)


def opened_at(membership: Membership, ledger: ClientLedger | None) -> frozenset[str]:
    """Whose inputs are in a sum that may have been opened at the place where a list was made."""
    if ledger is None or membership.after_round != ledger.place.round:
        return frozenset()
    return opened_since(ledger.place, ledger.lock)


def _check_leavers_known(membership: Membership, place: Place, ledger: ClientLedger | None) -> None:
    """Refuse a list that hides who was to leave in a sum that this client has signed."""
    if ledger is None or membership.after_round != place.round:
        return
    leavers = leavers_since(place, ledger.lock)
    if leavers and leavers not in membership.parted:
        raise ForkError(
            f"the list of epoch {membership.epoch} does not say that {', '.join(leavers)} were to"
            " leave in a sum that was begun. If the server was restored, put its backup back once"
            " more and run `server recover` before it makes any list"
        )


def _check_new_keys_known(
    before: Membership, membership: Membership, ledger: ClientLedger | None
) -> None:
    """Refuse a list that takes somebody with a new key for the one in a sum that was signed here.

    If what that one sent is known, the next sum shows what the owner of the new key has.
    """
    for name in sorted(opened_at(membership, ledger) - {*membership.counted}):
        if name not in membership or before.keys.get(name) in (None, membership.keys[name]):
            continue
        if membership.since[name] == before.since[name]:
            raise ForkError(
                f"the list of epoch {membership.epoch} gives {name} a new key and does not say that"
                " a sum was begun with the old one; if the server was restored, run server recover"
                " first"
            )


def check_company(
    name: str,
    membership: Membership,
    federation: Federation,
    leaving: Sequence[str] = (),
) -> None:
    """Refuse to join with so few that the next sum would show this client's histogram.

    The others that hide it are those who came with the same list, are still there, do not leave,
    are not counted yet and were never there before.  Those of the first list of all have no sum
    before them.
    """
    if membership.epoch == 1:
        return
    since, known = membership.since, {*membership.counted, *membership.returned, *leaving}
    came = {one for one in since if since[one] == since[name]}
    together = came - known
    fewest = fewest_together(membership, federation.policy)
    if fewest > 1 and name in membership.returned:
        raise AloneError(
            f"{name} was on an earlier list and taken off it. Sums of that time may hold what it"
            " has, so those who come with it cannot hide it: its histogram may show in the next"
            " full round (`client join --alone` accepts that)"
        )
    if fewest > 1 and len(together) < fewest:
        others = sorted(came - together - {name})
        besides = (
            f" ({', '.join(others)} came with the same list and do not count: they were members"
            " before, are counted already, or leave)"
            if others
            else ""
        )
        new = "1 new member joins" if len(together) == 1 else f"{len(together)} new members join"
        raise AloneError(
            f"{new} with list {since[name]}, fewer than {fewest}{besides}: {name}'s histogram would"
            " show in the next full round (`client join --alone` accepts that)"
        )


def check_rest_of_group(
    name: str,
    before: Membership | None,
    membership: Membership,
    federation: Federation,
    opened: frozenset[str],
) -> None:
    """Refuse a list that drops so many of those who came together with this client.

    Sums hold the group as a whole.  What a dropped member had shows, so what is left of the group
    shows as well, and must be large enough to hide this client.  Without a list before, whoever is
    counted and not listed any more was dropped.
    """
    in_sums = {*membership.counted, *opened}
    dropped: Set[str]
    if before is None:
        since = {**dict(membership.dropped), **membership.since}
        same = {one for one in since if since[one] == since[name] and one in in_sums}
        dropped = same - set(membership.position)
        rest = part_with(name, membership, groups_of(membership, in_sums))
        fewest = fewest_together(membership, federation.policy)
    else:
        group = group_with(name, groups_of(before, in_sums))
        kept = kept_of(group, before, membership) | {name}
        dropped = group - kept
        rest = part_with(name, membership, [kept])
        fewest = fewest_left(before, membership, federation.policy)
    if dropped and len(rest) < fewest:
        first = min(dropped)
        what = f"gives {first} a new key" if first in membership else f"drops {first}"
        raise AloneError(
            f"the list {what}, who came together with {name}; {len(rest)}"
            f" are left of that group, fewer than the {fewest} that would hide {name}'s histogram"
            " (`client join --alone` accepts that)"
        )


def _check_in_every_sum(
    name: str, lists: Sequence[Membership], new: Sequence[Membership], federation: Federation
) -> None:
    """Refuse lists by which the change of this client would follow from what others changed."""
    known = federation.version_at(lists[-1].epoch) if lists else None
    before = federation.policy if known is None else known.policy
    few = few_in_every_sum(lists, new, federation.policy, before)
    if name in few:
        raise AloneError(
            f"only {', '.join(sorted(few))} took part under every list since round"
            f" {new[-1].after_round}; what each of the others changed since then may show, and so"
            f" what {name} did (`client join --alone` accepts that; a list made after the next"
            " commit does not show it)"
        )


def few_in_every_sum(
    lists: Sequence[Membership],
    new: Sequence[Membership],
    policy: Policy,
    policy_before: Policy | None = None,
) -> frozenset[str]:
    """Who is left in every sum since the last commit, if new lists make them too few.

    A list that suspends somebody shows what it changed since the commit: its change is in the sum
    under the list before, and not in the next one.  If lists suspend one member after the other,
    the changes of all of them show, and so does what is left of the sum.  It must hide two honest
    members.  Whoever gets a new key may bring something else, and does not count.  A list that
    drops somebody counts like the others: what a colluder had is known, and its full sums then tell
    what the others changed.

    ``policy_before`` is the one of the lists that are known, if an amendment comes with the new
    ones: with more colluders, those who were enough may be too few.
    """
    if not lists:
        return frozenset()
    at, counted = new[-1].after_round, new[-1].counted
    # Whether its operator was asked before: with the keys and the policy that were known by then.
    before = _too_few_at(_lists_at(lists, at), counted, policy_before or policy)
    few = _too_few_at(_lists_at([*lists, *new], at), counted, policy)
    return few if few != before else frozenset()


def _too_few_at(
    lists: Sequence[Membership], counted: Sequence[str], policy: Policy
) -> frozenset[str]:
    """Who is in every sum under these lists, if they are too few.

    Of these, some may have been away in the first sum and come in later; then they are told apart
    from the others by three sums.  Two sums do not tell those apart who are in both.
    """
    left = _in_every_sum(lists, counted)
    fewest = max(fewest_together(one, policy) for one in lists)
    if len(lists) > 2:
        fewest += max(_most_away(one, counted, policy) for one in lists)
    return left if len(left) < min(fewest, len(counted)) else frozenset()


def _most_away(membership: Membership, counted: Iterable[str], policy: Policy) -> int:
    """How many counted and active members a round of changes can do without."""
    known = [name for name in counted if name in membership]
    active = sum(name not in membership.suspended for name in known)
    return max(0, active - policy.thresholds(len(membership), len(known)).present)


def _lists_at(lists: Sequence[Membership], after_round: int) -> list[Membership]:
    """The lists under which sums may have been opened after a round and before the next one."""
    earlier = [one for one in lists if one.after_round < after_round]
    return [*earlier[-1:], *(one for one in lists if one.after_round == after_round)]


def _in_every_sum(lists: Sequence[Membership], counted: Iterable[str]) -> frozenset[str]:
    """Counted members who could take part under each of these lists, with their latest keys."""
    found, keys = set(counted), lists[-1].keys
    for one in lists:
        found &= {name for name in one.active if one.keys[name] == keys.get(name)}
    return frozenset(found)


def _check_signers_stay(
    lists: Sequence[Membership], new: Sequence[Membership], policy: Policy
) -> None:
    """Refuse lists without those who would know of a sum that this client was not shown."""
    if signers_may_be_gone(lists, new, policy):
        raise AloneError(
            f"so many members are dropped since round {new[-1].after_round} that nobody may be left"
            " who signed a sum which the others were not shown. If some were to leave in it, what"
            " those who stay have may show (`client join --alone` accepts that; lists that drop"
            " fewer, with a commit in between, do not need it)"
        )


def signers_may_be_gone(
    lists: Sequence[Membership], new: Sequence[Membership], policy: Policy
) -> bool:
    """Whether lists drop so many that all honest ones who signed one sum may be among them.

    Whoever signed a sum with leavers refuses a list that hides them.  Those who did not sign rely
    on that, so one honest signer must stay.  A new key is like being dropped.
    """
    membership = new[-1]
    for one in _lists_at([*lists, *new[:-1]], membership.after_round):
        known = [name for name in membership.counted if name in one]
        needed = policy.thresholds(len(one), len(known))
        if needed.signers > len(known):
            # There are sums of the whole list only.
            known, needed = list(one.position), policy.thresholds(len(one))
        kept = kept_of(frozenset(known), one, membership)
        if policy.minimum > 1 and len(known) - len(kept) >= needed.signers - needed.colluders:
            return True
    return False


def fewest_left(before: Membership, membership: Membership, policy: Policy) -> int:
    """How many must be left of a group from which a list drops somebody.

    As many may collude as on the longer of the two lists.
    """
    return max(fewest_together(one, policy) for one in (before, membership))


def kept_of(group: frozenset[str], before: Membership, membership: Membership) -> frozenset[str]:
    """Those of a group whom a list keeps, with their keys.

    Whoever has a new key may bring something else: then what it had shows.
    """
    keys = membership.keys
    return frozenset(one for one in group if keys.get(one) == before.keys[one])


def check_listed(membership: Membership, name: str, identity: Identity) -> None:
    if membership.keys.get(name) != identity.public:
        raise UnknownPartyError(
            f"{name} is not a member of epoch {membership.epoch} with its present key"
        )
