"""Who came with whom: attacks on members by lists, leavers and sums that were never committed.

Each test first shows how a member's whole histogram would follow from the sums, and then who
refuses to take part in that, or who is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, product
from random import Random

import pytest
from msgspec.structs import replace
from test_malicious_server import open_with_leavers, statement_of

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.errors import (
    AloneError,
    ForkError,
    OlderDirectoryError,
    ProtocolError,
    SecondSurvivorSetError,
)
from fedforget.protocol.graph import Policy
from fedforget.protocol.joining import check_adoption, few_in_every_sum, signers_may_be_gone
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Membership
from parties import MODEL, Everyone, Stage, histogram, with_ledger
from simulator.view import independent, shows_alone


def come(everyone: Everyone, names: Collection[str], new: Sequence[str]) -> Membership:
    """A list with some more members, which nobody has taken over yet."""
    for name in new:
        if name not in everyone.identities:
            everyone.enrol(name)
        everyone.histograms.setdefault(name, histogram(((len(name), 3), 17)))
    return everyone.members([*names, *new])


def takes_it(everyone: Everyone, name: str, *lists: Membership, alone: bool = False) -> bool:
    """Whether a new directory of this name goes on with these lists."""
    identity = everyone.identities[name]
    try:
        check_adoption(name, identity, everyone.federation, [], lists, None, alone)
    except AloneError:
        return False
    return True


def with_counted_newcomers(everyone: Everyone, *names: str) -> None:
    everyone.adopt(come(everyone, everyone.names, names))
    everyone.greet()
    assert everyone.round("full").survivors == tuple(sorted([*everyone.names, *names]))


# -- company -----------------------------------------------------------------------------------


def test_somebody_who_is_still_counted_is_no_company() -> None:
    """Y is dropped and listed again before a full round: the difference of the sums around it is
    W and A, as Y is in both.  If A colludes, W shows."""
    everyone = Everyone(5, seed="sham")
    everyone.round("full")
    y, *rest = everyone.names
    everyone.adopt(everyone.members(rest))
    everyone.identities[y] = Identity(Random("another directory").randbytes(32))
    later = come(everyone, rest, [y, "w", "a"])
    assert later.since == dict.fromkeys([*rest, y], 1) | {"w": 3, "a": 3}
    assert not takes_it(everyone, "w", later)
    # Y comes back to those it belongs to.
    assert takes_it(everyone, y, later)
    assert takes_it(everyone, "w", come(everyone, rest, [y, "w", "a", "b"]))


def test_whoever_was_there_before_is_no_company_and_must_accept_to_show() -> None:
    """{v, x, a} join, leave and come back with z: their sum is known from the first time."""
    everyone = Everyone(4, seed="again")
    everyone.round("full")
    with_counted_newcomers(everyone, "v", "x", "a")
    everyone.leave(["v", "x", "a"])
    everyone.greet()
    assert everyone.round("delta").left == ("a", "v", "x")
    everyone.adopt(everyone.members(everyone.names))
    assert everyone.membership.former == ("a", "v", "x")
    later = come(everyone, everyone.names, ["v", "x", "a", "z"])
    for name in ("v", "x", "z"):
        assert not takes_it(everyone, name, later)
        assert takes_it(everyone, name, later, alone=True)
    # They stay former members on all lists that follow.
    for name in ("v", "x", "a"):
        del everyone.clients[name]
    everyone.adopt(later, alone=["v", "x", "a", "z"])
    assert everyone.members(everyone.names).former == ("a", "v", "x", "z")


def test_newcomers_enrolled_one_by_one_and_then_together_are_told_why_they_show() -> None:
    everyone = Everyone(4, seed="one by one")
    everyone.round("full")
    for name in ("u", "v", "w"):
        everyone.lists.append(come(everyone, everyone.membership.position, [name]))
    identities, federation = everyone.identities, everyone.federation

    def refusal(name: str, listed: Membership) -> str:
        with pytest.raises(AloneError) as refused:
            check_adoption(name, identities[name], federation, [], [listed], None, False)
        return str(refused.value)

    assert refusal("u", everyone.membership).startswith("1 new member joins with list 2, fewer")
    everyone.lists.append(everyone.members(everyone.names))
    again = come(everyone, everyone.names, ["u", "v", "w", "x"])
    assert refusal("u", again).startswith("u was on an earlier list and taken off it.")
    text = refusal("x", again)
    assert text.startswith("1 new member joins with list 6, fewer than 3 (u, v, w came with the")


def test_a_new_key_before_anything_was_counted_makes_nobody_a_former_member() -> None:
    """A wrong enrolment file is put right at once, or after a commit: then it counts as new."""
    everyone = Everyone(4, seed="typing error")
    everyone.round("full")
    everyone.adopt(come(everyone, everyone.names, ["u", "v", "w"]))
    everyone.identities["w"] = Identity(Random("right key").randbytes(32))
    everyone.greet(absent=("w",))
    at_once = come(everyone, everyone.names, ["u", "v", "w"])
    assert (at_once.since["w"], at_once.former) == (2, ())
    assert takes_it(everyone, "w", at_once)
    everyone.round("delta")
    later = come(everyone, everyone.names, ["u", "v", "w"])
    assert (later.since["w"], later.former) == (3, ("w",))
    assert not takes_it(everyone, "w", later)


def test_a_newcomer_that_waits_to_leave_hides_nobody() -> None:
    """The server keeps Y's statement back: Y would send nothing, and W be alone with a colluder."""
    everyone = Everyone(4, seed="empty company")
    everyone.round("full")
    everyone.adopt(come(everyone, everyone.names, ["w", "y", "a"]))
    everyone.histograms["y"] = histogram()
    everyone.leave(["y"])
    everyone.greet()
    everyone.server.present["y"] = replace(everyone.server.present["y"], leaving=None)
    step = everyone.ask(everyone.server.open("full"))
    assert {name: type(error) for name, error in step.refusals.items()} == {"y": AloneError}
    # An honest server lists Y, and then the two others are too few, and say so.
    everyone.greet()
    step = everyone.ask(everyone.server.open("full"))
    assert {name: type(error) for name, error in step.refusals.items()} == {
        "a": AloneError,
        "w": AloneError,
    }


def test_the_key_of_a_newcomer_in_a_sum_does_not_pass_to_somebody_else() -> None:
    """W's first key is the server's own, which opens U + V and gives W's line to an honest newcomer
    at the same place: the next sum less the first is what that one has."""
    everyone = Everyone(4, seed="a line for somebody else")
    everyone.round("full")
    everyone.adopt(come(everyone, everyone.names, ["u", "v", "w"]))
    everyone.histograms["w"] = histogram()
    everyone.greet()
    first = everyone.decide("full").total
    everyone.server.abandon()
    everyone.identities["w"] = Identity(Random("an honest newcomer").randbytes(32))
    everyone.histograms["w"] = histogram(((9, 9), 77))
    honest = everyone.members(list(everyone.membership.position))
    assert (honest.since["w"], honest.former) == (3, ("w",))
    assert not takes_it(everyone, "w", honest)
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    hiding = everyone.members(list(everyone.membership.position))
    assert hiding.since["w"] == 2
    assert takes_it(everyone, "w", hiding)
    # Its company is what W can see.  Everybody who signed the first sum knows better.
    assert first == everyone.total([*everyone.names, "u", "v"])
    for name in (*everyone.names, "u", "v"):
        with pytest.raises(ForkError, match="gives w a new key and does not say"):
            everyone.clients[name].adopt(hiding)
        twin = everyone.new_client(name, everyone.clients[name].ledger)
        twin.adopt(honest, alone=True)


def test_what_a_counted_member_accepted_says_nothing_of_its_return() -> None:
    everyone = Everyone(5, seed="accepted something else")
    everyone.round("full")
    with_counted_newcomers(everyone, "u", "v", "w")
    rest = [name for name in everyone.membership.position if name != "w"]
    everyone.adopt(everyone.members(rest), alone=["u", "v"])
    absent = everyone.clients.pop("u")
    without = everyone.members([name for name in rest if name != "u"])
    everyone.adopt(without, alone=["v"])
    everyone.greet()
    everyone.round("full")
    back = everyone.members(rest)
    assert "u" in back.former
    with pytest.raises(AloneError, match="u was on an earlier list"):
        absent.adopt(without, back)


def test_a_newcomer_that_was_taken_off_is_asked_again_when_it_comes_back() -> None:
    everyone = Everyone(5, seed="asked for its return")
    everyone.round("full")
    everyone.adopt(come(everyone, everyone.names, ["u", "v"]), alone=["u", "v"])
    absent = everyone.clients.pop("u")
    without = everyone.members([*everyone.names, "v"])
    everyone.adopt(without)
    with pytest.raises(AloneError, match="u was on an earlier list"):
        absent.adopt(without, everyone.members([*everyone.names, "u", "v"]))


# -- new directories of counted members --------------------------------------------------------


@pytest.mark.parametrize("in_one_list", [True, False])
def test_a_new_directory_is_asked_when_its_group_has_become_small(in_one_list: bool) -> None:
    """V gets a new key and B of {V, A, B} is dropped: V + A show, and V if A colludes."""
    everyone = Everyone(5, seed="renewed")
    everyone.round("full")
    with_counted_newcomers(everyone, "v", "a", "b")
    everyone.identities["v"] = Identity(Random("new key").randbytes(32))
    rest = [name for name in everyone.membership.position if name != "b"]
    lists = [] if in_one_list else [everyone.members([*rest, "b"])]
    everyone.lists += lists
    dropping = everyone.members(rest)
    assert dict(dropping.dropped) == {"b": 2}
    for given in ([dropping], [*lists, dropping]):
        assert not takes_it(everyone, "v", *given)
        assert takes_it(everyone, "v", *given, alone=True)


def test_what_was_accepted_for_one_list_is_asked_again_for_the_next() -> None:
    everyone = Everyone(5, seed="asked again")
    everyone.round("full")
    with_counted_newcomers(everyone, "u", "v", "w", "x")
    client = everyone.clients["u"]
    for gone, asked in (("x", False), ("w", True), ("v", True)):
        rest = [name for name in everyone.membership.position if name != gone]
        dropping = everyone.members(rest)
        if asked:
            with pytest.raises(AloneError):
                client.adopt(dropping)
        everyone.adopt(dropping, alone=["u", "v", "w"] if asked else ())


# -- lists that nobody wants -------------------------------------------------------------------


def test_a_list_that_was_refused_can_be_taken_back() -> None:
    """The next list undoes it, and both are taken over as one: nobody has to accept anything."""
    everyone = Everyone(4, seed="taken back")
    everyone.round("full")
    with_counted_newcomers(everyone, "u", "v", "w")
    dropping = everyone.members([name for name in everyone.membership.position if name != "w"])
    everyone.server.adopt(dropping)
    everyone.lists.append(dropping)
    for name in everyone.names:
        everyone.clients[name].adopt(dropping)
    for name in ("u", "v"):
        with pytest.raises(AloneError):
            everyone.clients[name].adopt(dropping)
    undone = everyone.members([*everyone.names, "u", "v", "w"])
    assert (undone.since["w"], undone.former) == (2, ())
    everyone.server.adopt(undone)
    everyone.lists.append(undone)
    for name in everyone.names:
        everyone.clients[name].adopt(undone)
    for name in ("u", "v", "w"):
        with pytest.raises(ProtocolError, match="take the list of epoch 3 first"):
            everyone.clients[name].adopt(undone)
        everyone.clients[name].adopt(dropping, undone)
    everyone.greet()
    assert everyone.round("full").total == everyone.total(list(undone.position))


# -- sums that were never committed ------------------------------------------------------------


def test_recovering_does_not_undo_a_signature() -> None:
    """The server opens a sum with leavers, begins another attempt, and shows the first one's
    notice: all clients say `run client recover`.  After that a fourth leaver would show."""
    everyone = Everyone(8, seed="all recover")
    everyone.round("full")
    leavers = everyone.names[:4]
    everyone.leave(leavers)
    everyone.greet()
    server, victim = everyone.server, leavers[3]
    server.present[victim] = replace(server.present[victim], leaving=None)
    assert everyone.decide("delta").left == leavers[:3]
    ledger, greetings = server.ledger, dict(server.present)
    server.commit(MODEL)
    server.ledger, server.present = ledger, greetings
    for name, data in server.open("delta"):
        everyone.clients[name].receive(data)
    for client in everyone.clients.values():
        with pytest.raises(OlderDirectoryError):
            client.receive(server.last_notice)
        # What `client recover` does.
        with_ledger(client, base=None, pending=None, recovering=True)
    server.ledger = replace(ledger, lock=None)
    everyone.greet()
    # The fourth holds its statement back: in what it has signed, it does not leave.
    assert server.present[victim].leaving is None
    messages = server.open("full")
    assert server.stage.context.leaving == leavers[:3]
    everyone.ask(messages)
    # Another set does not come out, even if the server has a statement from elsewhere.
    forged = [statement_of(everyone, name) for name in leavers]
    step = everyone.ask(open_with_leavers(everyone, forged, "full"))
    assert {type(error) for error in step.refusals.values()} == {SecondSurvivorSetError}
    assert set(step.refusals) == set(everyone.names)


def test_leavers_of_a_sum_that_was_never_committed_are_a_group_from_then_on() -> None:
    """A sum with {0, 1, 2} as leavers is opened; a list suspends them, a round commits, the next
    list lets them come back, and {0, 1, 2, 3} leave: the difference of the two sums is 3."""
    everyone = Everyone(10, seed="suspended", policy=Policy(dropout=0.3, colluding=0.1))
    everyone.round("full")
    leavers, victim = everyone.names[:4], everyone.names[3]
    everyone.leave(leavers)
    everyone.greet()
    server = everyone.server
    server.present[victim] = replace(server.present[victim], leaving=None)
    assert everyone.decide("delta").left == leavers[:3]
    server.abandon()
    # A list that hides these leavers is refused by everybody who signed.
    listed = everyone.members(everyone.names, suspended=leavers[:3])
    assert listed.parted == (leavers[:3],)
    for client in everyone.clients.values():
        with pytest.raises(ForkError, match="does not say that c000, c001, c002 were to leave"):
            client.adopt(replace(listed, parted=()))
    everyone.adopt(listed)
    server.ledger = replace(server.ledger, lock=None)
    everyone.greet()
    assert everyone.round("delta").left == ()
    # All lists that follow keep it, whoever makes them.
    back = everyone.members(everyone.names)
    assert back.parted == (leavers[:3],)
    with pytest.raises(ForkError):
        everyone.clients[victim].adopt(replace(back, parted=()))
    everyone.adopt(back)
    everyone.greet()
    assert everyone.round("delta").left == ()
    everyone.greet()
    server.open("delta")
    assert server.stage.context.leaving == leavers[:3]
    forged = [statement_of(everyone, name) for name in leavers]
    messages = open_with_leavers(everyone, forged)
    step = everyone.ask(messages)
    assert {name: type(error) for name, error in step.refusals.items()} == {victim: AloneError}
    # If one of them is dropped, the two others are asked.
    dropping = everyone.members([name for name in everyone.names if name != leavers[0]])
    for name in leavers[1:3]:
        with pytest.raises(AloneError):
            everyone.clients[name].adopt(dropping)
    everyone.clients[victim].adopt(dropping)


def test_dropping_all_who_signed_a_sum_asks_those_who_did_not() -> None:
    """Of eight, c000 colludes.  {0, 1, 2} are to leave in a sum which 0 and {4, 5, 6, 7} sign; then
    a list drops these four and hides the leavers.  0 + 1 + 2 + 3 less 0 + 1 + 2 is what 3 has."""
    everyone = Everyone(8, seed="signers are dropped")
    everyone.round("full")
    leavers, victim, signers = everyone.names[:3], everyone.names[3], everyone.names[4:]
    everyone.leave(leavers)
    everyone.greet()
    messages = everyone.until(Stage.CONSENT, "delta")
    everyone.ask([one for one in messages if one.recipient in (leavers[0], *signers)])
    everyone.ask(everyone.server.advance())
    everyone.server.advance()
    result = everyone.server.result
    assert result is not None
    assert Histogram(2) - result.total == everyone.total(leavers)
    everyone.server.abandon()
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    hiding = everyone.members([*leavers, victim])
    assert hiding.parted == ()
    for name in (*leavers[1:], victim):
        with pytest.raises(AloneError, match="nobody may be left who signed a sum"):
            everyone.clients[name].adopt(hiding)
    # If one of the four stays, it refuses the list, and there is no full round without it.
    hiding = everyone.members([*leavers, victim, signers[0]])
    everyone.clients[victim].adopt(hiding)
    with pytest.raises(ForkError, match="does not say that c000, c001, c002 were to leave"):
        everyone.clients[signers[0]].adopt(hiding)


@pytest.mark.parametrize(("n", "most"), [(5, 2), (8, 3), (10, 4), (14, 6), (33, 14)])
def test_so_many_may_be_dropped_with_one_list(n: int, most: int) -> None:
    """Fewer than s - c: then somebody honest who has signed is left."""
    everyone = Everyone(n, seed="how many")
    everyone.round("full")
    policy, lists = everyone.federation.policy, everyone.lists
    needed = policy.thresholds(n)
    assert most == needed.signers - needed.colluders - 1
    assert not signers_may_be_gone(lists, [everyone.members(everyone.names[most:])], policy)
    dropping = everyone.members(everyone.names[most + 1 :])
    assert signers_may_be_gone(lists, [dropping], policy)
    # Several lists at one place count together.
    between = everyone.members(everyone.names[1:])
    everyone.lists.append(between)
    later = everyone.members(everyone.names[most + 1 :])
    assert signers_may_be_gone(lists, [later], policy)
    assert signers_may_be_gone(lists[:1], [between, later], policy)


def test_whoever_has_left_can_be_dropped_at_once() -> None:
    everyone = Everyone(10, seed="most have left")
    everyone.round("full")
    gone = everyone.names[:6]
    everyone.leave(gone)
    everyone.greet()
    assert everyone.round("delta").left == gone
    everyone.adopt(everyone.members(everyone.names[6:]))
    everyone.greet()
    assert everyone.round("delta").survivors == everyone.names[6:]


def test_whoever_was_dropped_and_taken_back_is_a_group_of_its_own() -> None:
    """Of {u, v, w, x}, w is dropped, a full sum without it may be opened, and w is taken back; then
    x is dropped: u + v show, as w is known."""
    everyone = Everyone(5, seed="back")
    everyone.round("full")
    with_counted_newcomers(everyone, "u", "v", "w", "x")
    names = list(everyone.membership.position)
    absent = everyone.clients.pop("w")
    everyone.adopt(everyone.members([name for name in names if name != "w"]))
    everyone.clients["w"] = absent
    back = everyone.members(names)
    assert back.parted == (("w",),)
    absent.adopt(everyone.membership, back)
    del everyone.clients["w"]
    everyone.lists.append(back)
    everyone.server.adopt(back)
    for client in everyone.clients.values():
        client.adopt(back)
    everyone.clients["w"] = absent
    everyone.greet()
    everyone.round("full")
    dropping = everyone.members([name for name in names if name != "x"])
    for name in ("u", "v"):
        with pytest.raises(AloneError, match="2 are left of that group"):
            everyone.clients[name].adopt(dropping)


def test_a_new_key_is_like_being_dropped_for_the_others_of_the_group() -> None:
    everyone = Everyone(5, seed="new key")
    everyone.round("full")
    with_counted_newcomers(everyone, "u", "v", "w")
    everyone.identities["w"] = Identity(Random("new").randbytes(32))
    renewing = everyone.members(list(everyone.membership.position))
    for name in ("u", "v"):
        with pytest.raises(AloneError, match="gives w a new key"):
            everyone.clients[name].adopt(renewing)
    everyone.clients["c000"].adopt(renewing)


def test_as_many_may_collude_as_on_the_longer_list() -> None:
    everyone = Everyone(14, seed="shorter")
    everyone.round("full")
    assert everyone.federation.policy.colluders(14) == 2
    three = everyone.members(everyone.names[:3])
    with pytest.raises(AloneError, match="fewer than the 4"):
        everyone.clients["c000"].adopt(three)


def test_leavers_that_are_renewed_are_new() -> None:
    """They left before the list at whose place they get new keys."""
    everyone = Everyone(10, seed="renewed leavers")
    everyone.round("full")
    gone = everyone.names[:4]
    everyone.leave(gone)
    everyone.greet()
    assert everyone.round("delta").left == gone
    for name in gone:
        del everyone.clients[name]
    everyone.lists.append(everyone.members(everyone.names))
    for name in gone[:3]:
        everyone.identities[name] = Identity(Random(f"new {name}").randbytes(32))
    later = everyone.members(everyone.names[:3] + everyone.names[4:])
    assert later.former == gone
    for name in gone[:3]:
        assert not takes_it(everyone, name, later)


def test_a_restored_server_learns_what_was_signed() -> None:
    """Otherwise it would list other leavers than those of the set, and no round would come out."""
    everyone = Everyone(8, seed="restored")
    everyone.round("full")
    backup = everyone.server.ledger
    everyone.leave(everyone.names[:2])
    everyone.greet()
    assert everyone.decide("delta").left == ()
    everyone.server = everyone.new_server(backup)
    everyone.leave(everyone.names[:3])
    everyone.greet()
    greetings = tuple(everyone.server.present.values())
    seen = max(one.seen for one in greetings)
    everyone.server.recover(everyone.notices, everyone.lists, seen, greetings)
    lock = everyone.server.ledger.lock
    assert lock is not None
    assert lock.same_set(everyone.names, ())
    everyone.greet()
    # Three wish to leave, and wait for the next commit.
    assert everyone.round("full").left == ()
    everyone.greet()
    assert everyone.round("delta").left == everyone.names[:3]


# -- suspended one after the other -------------------------------------------------------------


def changed_in(everyone: Everyone, absent: Collection[str] = ()) -> Histogram:
    """The sum of a round of changes that is never committed."""
    everyone.greet(absent)
    return everyone.decide("delta").total


def test_members_suspended_one_after_the_other_leave_enough_in_every_sum() -> None:
    """Four members, c003 colludes.  The sums of {0, 1, 2}, {1, 2} and {0, 2}, each with c003 which
    changes nothing, give what c002 changed: the second and the third less the first."""
    everyone = Everyone(4, seed="one after the other")
    everyone.round("full")
    names = everyone.names
    before = everyone.histograms["c002"]
    for number, name in enumerate(names[:3]):
        everyone.histograms[name] = everyone.histograms[name] + histogram(((number, 7), 5))
    first = changed_in(everyone)
    everyone.adopt(everyone.members(names, suspended=["c000"]))
    second = changed_in(everyone)
    third = everyone.members(names, suspended=["c001"])
    for name in ("c002", "c003"):
        with pytest.raises(AloneError, match="only c002, c003 took part under every list"):
            everyone.clients[name].adopt(third)
    # Whoever is suspended, or was, is told of its own change by the list itself.
    for name in ("c000", "c001"):
        twin = everyone.new_client(name, everyone.clients[name].ledger)
        twin.adopt(third)
    # With their consent it is as the first lines say.
    everyone.adopt(third, alone=["c002", "c003"])
    shown = second + changed_in(everyone) - first
    assert shown == everyone.histograms["c002"] - before
    # The next list asks for nothing new.
    everyone.adopt(everyone.members(names))


@pytest.mark.parametrize("order", ["suspended and back", "suspended last"])
def test_whoever_was_away_in_the_first_sum_is_not_in_every_sum(order: str) -> None:
    """Four members, c003 colludes, c000 is away at first.  {1, 2}, {0, 2} and {0, 1, 2}, in any
    order that keeps those who were in a sum, give what c002 changed."""
    everyone = Everyone(4, seed="away at first")
    everyone.round("full")
    names = everyone.names
    before = everyone.histograms["c002"]
    for number, name in enumerate(names[:3]):
        everyone.histograms[name] = everyone.histograms[name] + histogram(((number, 7), 5))
    everyone.greet(absent=["c000"])
    away = {stage: ["c000"] for stage in Stage}
    sums = [everyone.decide("delta", away).total]
    suspended = [["c001"], []] if order == "suspended and back" else [[], ["c001"]]
    everyone.adopt(everyone.members(names, suspended=suspended[0]))
    sums.append(changed_in(everyone))
    third = everyone.members(names, suspended=suspended[1])
    with pytest.raises(AloneError, match="only c000, c002, c003 took part under every list"):
        everyone.clients["c002"].adopt(third)
    everyone.adopt(third, alone=["c000", "c002", "c003"])
    sums.append(changed_in(everyone))
    larger, smaller = max(sums, key=len), [one for one in sums if one is not max(sums, key=len)]
    assert smaller[0] + smaller[1] - larger == everyone.histograms["c002"] - before


def test_a_new_key_takes_a_member_out_of_every_sum_whatever_came_before() -> None:
    """c000 is suspended; the next list takes it back and gives c001 a new key: only c002 and c003
    are in all sums, which was not so before."""
    everyone = Everyone(4, seed="suspended and renewed")
    everyone.round("full")
    everyone.adopt(everyone.members(everyone.names, suspended=["c000"]))
    everyone.identities["c001"] = Identity(Random("new key").randbytes(32))
    renewing = everyone.members(everyone.names)
    for name in ("c002", "c003"):
        with pytest.raises(AloneError, match="only c002, c003 took part under every list"):
            everyone.clients[name].adopt(renewing)
    everyone.clients["c000"].adopt(renewing)


def test_full_sums_without_a_dropped_colluder_count_like_others() -> None:
    """c003 colludes, c000 is away at first.  {1, 2}, then {0, 1, 2} in a full sum while c003 is
    dropped, and {0, 2} while c001 is suspended, give what c002 changed."""
    everyone = Everyone(4, seed="dropped in between")
    base = everyone.round("full").total
    names, colluder = everyone.names, everyone.names[3]
    before = everyone.histograms["c002"]
    for number, name in enumerate(names[:3]):
        everyone.histograms[name] = everyone.histograms[name] + histogram(((number, 7), 5))
    everyone.greet(absent=["c000"])
    first = everyone.decide("delta", {stage: ["c000"] for stage in Stage}).total
    absent = everyone.clients.pop(colluder)
    without = everyone.members(names[:3])
    everyone.adopt(without)
    everyone.greet()
    second = everyone.decide("full").total - base + everyone.histograms[colluder]
    third = everyone.members(names, suspended=["c001"])
    with pytest.raises(AloneError, match="only c000, c002 took part under every list"):
        everyone.clients["c002"].adopt(third)
    absent.adopt(without, third)
    everyone.clients[colluder] = absent
    everyone.lists.append(third)
    everyone.server.adopt(third)
    for name in names[:3]:
        everyone.clients[name].adopt(third, alone=True)
    shown = first + changed_in(everyone) - second
    assert shown == everyone.histograms["c002"] - before


def test_new_lists_of_the_same_members_ask_for_nothing() -> None:
    for n in (3, 4, 5, 8):
        everyone = Everyone(n, seed="the same")
        everyone.round("full")
        for _ in range(4):
            everyone.adopt(everyone.members(everyone.names))


def test_a_commit_in_between_lets_others_be_suspended() -> None:
    everyone = Everyone(4, seed="commit in between")
    everyone.round("full")
    everyone.adopt(everyone.members(everyone.names, suspended=["c000"]))
    everyone.greet()
    everyone.round("delta")
    everyone.adopt(everyone.members(everyone.names))
    everyone.greet()
    everyone.round("delta")
    everyone.adopt(everyone.members(everyone.names, suspended=["c001"]))
    everyone.greet()
    assert everyone.round("delta").survivors == ("c000", "c002", "c003")


def test_lists_that_are_taken_over_together_count_one_by_one() -> None:
    """Others may have opened sums under the list in between."""
    everyone = Everyone(4, seed="both at once")
    everyone.round("full")
    late = everyone.new_client("c002", everyone.clients["c002"].ledger)
    everyone.adopt(everyone.members(everyone.names, suspended=["c000"]))
    third = everyone.members(everyone.names, suspended=["c001"])
    with pytest.raises(AloneError, match="only c002, c003 took part"):
        late.adopt(everyone.membership, third)


def sets_of_sums(
    actives: Sequence[frozenset[str]], fewest: int, before: tuple[frozenset[str], ...] = ()
) -> Iterator[tuple[frozenset[str], ...]]:
    """Whose inputs are in the sums that a server can open under lists, one or none under each."""
    if not actives:
        yield before
        return
    yield from sets_of_sums(actives[1:], fewest, before)
    active = actives[0]
    must = active.intersection(frozenset().union(*before))
    for size in range(fewest, len(active) + 1):
        for chosen in map(frozenset, combinations(sorted(active), size)):
            if must <= chosen:
                yield from sets_of_sums(actives[1:], fewest, (*before, chosen))


@pytest.mark.parametrize(
    ("n", "dropout", "n_lists"), [(4, 0.1, 5), (5, 0.2, 4), (6, 0.1, 5), (7, 0.3, 3)]
)
def test_what_nobody_is_told_does_not_follow_from_any_sums_at_one_place(
    n: int, dropout: float, n_lists: int
) -> None:
    """Every way to suspend members and to call them lost, with the last member on the server's
    side: either the list asks, or nobody shows who was active and there all the time."""
    everyone = Everyone(n, seed="enumerated", policy=Policy(dropout=dropout))
    everyone.round("full")
    names, policy = everyone.names, everyone.federation.policy
    fewest, colluder = policy.thresholds(n).present, names[-1]
    most = n - fewest
    choices = [one for size in range(most + 1) for one in combinations(names, size)]
    listed = {one: everyone.members(names, suspended=one) for one in choices}
    asked, checked = 0, set[tuple[object, ...]]()
    for chain in product(choices, repeat=n_lists - 1):
        lists = [everyone.membership, *(listed[one] for one in chain)]
        if any(few_in_every_sum(lists[:at], [lists[at]], policy) for at in range(1, n_lists)):
            asked += 1
            continue
        suspended = frozenset().union(*chain)
        for sums in sets_of_sums([frozenset(one.active) for one in lists], fewest):
            if (sums, suspended) in checked:
                continue
            checked.add((sums, suspended))
            rows = independent([{(name, 0): 1 for name in one - {colluder}} for one in sums])
            late = frozenset().union(*sums) - frozenset(names).intersection(*sums)
            for name in set(names) - suspended - late - {colluder}:
                assert not shows_alone(rows, name), (chain, sums, name)
    assert asked > 0
    assert len(checked) > 20
