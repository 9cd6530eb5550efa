"""Who came with whom: attacks on members by lists, leavers and sums that were never committed.

Each test first shows how a member's whole histogram would follow from the sums, and then who
refuses to take part in that, or who is told.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random

import pytest
from msgspec.structs import replace

from fedforget.protocol.errors import (
    AloneError,
    OlderDirectoryError,
    ProtocolError,
    RoundAbortedError,
    SecondSurvivorSetError,
    TooFewError,
)
from fedforget.protocol.graph import Policy
from fedforget.protocol.joining import check_adoption
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Membership
from parties import MODEL, Everyone, Stage, histogram, with_ledger


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
    messages = server.open("full")
    assert server.stage.context.leaving == leavers
    step = everyone.ask(messages)
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
    everyone.adopt(everyone.members(everyone.names, suspended=leavers[:3]))
    server.ledger = replace(server.ledger, lock=None)
    with_ledger(everyone.clients[victim], leaving=None)
    everyone.greet()
    assert everyone.round("delta").left == ()
    everyone.adopt(everyone.members(everyone.names))
    everyone.leave([victim])
    everyone.greet()
    # The suspended ones learn of the commit with this opening.
    assert everyone.round("delta").left == ()
    everyone.greet()
    # The server has lost its memory of the first sum, and the clients have not.
    server.ledger = replace(server.ledger, parted=())
    messages = server.open("delta")
    assert server.stage.context.leaving == leavers
    refused: list[ProtocolError] = []
    while not refused and everyone.stage is not Stage.DECIDED:
        refused += everyone.ask(messages).refusals.values()
        try:
            messages = server.advance()
        except RoundAbortedError:
            break
    assert refused
    assert {type(error) for error in refused} <= {AloneError, TooFewError}
    # Those who were in the sum may go, as a group; so may the others that hide one another.
    with_ledger(everyone.clients[victim], leaving=None)
    server.ledger = replace(server.ledger, lock=None, parted=(leavers[:3],))
    everyone.greet()
    assert everyone.round("delta").left == leavers[:3]
