"""Where a round cannot come out, the error names a command, and that command helps."""

from __future__ import annotations

import re

import pytest
from test_malicious_server import with_newcomers

from fedforget.protocol.client_ledger import Lock
from fedforget.protocol.errors import AloneError, ProtocolError, RoundAbortedError
from fedforget.protocol.graph import Policy
from parties import Everyone, Stage, with_ledger


def sign_without(everyone: Everyone, absent: str) -> None:
    """A delta round breaks off after a set without one member was signed."""
    everyone.greet(absent=[absent])
    messages = everyone.server.open("delta")
    while everyone.stage is not Stage.UNMASK:
        everyone.ask(messages, lost=[absent])
        messages = everyone.server.advance()
    lock = everyone.server.ledger.lock
    assert lock is not None
    assert absent not in lock.alive


def test_a_set_of_the_counted_members_comes_out_before_newcomers_are_counted() -> None:
    """A full round cannot follow under the same list, so it must not come by itself."""
    everyone = Everyone(6, seed="newcomers wait")
    everyone.round("full")
    with_newcomers(everyone, 3)
    sign_without(everyone, "c005")
    everyone.greet()
    with pytest.raises(RoundAbortedError, match=r"a set without c005.*without --full first, or"):
        everyone.server.open("full")
    assert everyone.server.kind_needed() == "delta"
    assert everyone.round("delta").survivors == everyone.names[:5]
    everyone.greet()
    assert everyone.server.kind_needed() == "full"
    assert everyone.round("full").survivors == tuple(everyone.membership.position)


def test_where_no_delta_can_come_the_error_asks_for_a_new_list_only() -> None:
    """A recovered server needs a full round: a delta round is no way out."""
    everyone = Everyone(6, seed="recovered")
    everyone.round("full")
    backup = everyone.server.ledger
    sign_without(everyone, "c003")
    everyone.server = everyone.new_server(backup)
    recover(everyone)
    assert everyone.server.kind_needed() == "full"
    with pytest.raises(RoundAbortedError, match=r"a set without c003.*: make a new list"):
        everyone.server.open("full")
    with pytest.raises(RoundAbortedError, match="a full round must come first"):
        everyone.server.open("delta")
    everyone.adopt(everyone.members(everyone.names))
    everyone.greet()
    result = everyone.round("full")
    assert result.total == everyone.total(everyone.names)


def test_leavers_whom_a_longer_list_holds_back_are_dropped() -> None:
    """With more members more may collude: those who stay of the group are too few to be hidden."""
    everyone = Everyone(9, seed="longer list")
    everyone.round("full")
    gone, stay = everyone.names[:6], everyone.names[6:]
    everyone.leave(gone)
    everyone.greet()
    everyone.ask(everyone.until(Stage.UNMASK, "delta"))
    newcomers = with_newcomers(everyone, 4)
    everyone.greet()
    with pytest.raises(RoundAbortedError, match="so no other set can be committed") as aborted:
        everyone.server.open("full")
    asked = re.search(r"drop ([^()]+) \(`server enrol --gone`\)", str(aborted.value))
    assert asked is not None
    assert asked[1] == ", ".join(gone)
    shorter = everyone.members([*stay, *newcomers])
    for name in stay:
        with pytest.raises(AloneError, match="client join --alone"):
            everyone.clients[name].adopt(shorter)
    everyone.adopt(shorter, alone=stay)
    everyone.greet()
    result = everyone.round("full")
    assert result.survivors == (*stay, *newcomers)
    assert result.total == everyone.total(result.survivors)


def test_a_set_with_leavers_that_one_member_signed_is_not_lost_with_the_server() -> None:
    """It would refuse every list that does not name these leavers, and no full round would come."""
    everyone = Everyone(7, seed="one has signed")
    everyone.round("full")
    backup = everyone.server.ledger
    leavers, signer, absent = everyone.names[:3], "c003", "c006"
    everyone.leave(leavers)
    everyone.greet(absent=[absent])
    messages = everyone.server.open("delta")
    while everyone.stage is not Stage.CONSENT:
        everyone.ask(messages, lost=[absent])
        messages = everyone.server.advance()
    everyone.ask([one for one in messages if one.recipient == signer])
    everyone.server = everyone.new_server(backup)
    recover(everyone)
    with pytest.raises(RoundAbortedError, match=r"a set without c006.*server enrol --afresh"):
        everyone.server.open("full")
    everyone.adopt(everyone.members(everyone.names))
    assert everyone.membership.parted == (leavers,)
    everyone.greet()
    assert everyone.round("full").left == leavers


@pytest.mark.parametrize("left", [("c000",), ("c000", "c001", "c003"), ("c000", "c001", "c009")])
def test_one_member_that_lies_of_leavers_is_not_believed(left: tuple[str, ...]) -> None:
    """The set must be one that members would have signed, and its leavers must say so."""
    everyone = Everyone(7, seed="lies of leavers")
    everyone.round("full")
    everyone.leave(everyone.names[:3])
    lock = Lock(2, everyone.membership.digest, everyone.names, left)
    with_ledger(everyone.clients["c005"], lock=lock)
    recover(everyone)
    assert everyone.server.ledger.lock is None


def recover(everyone: Everyone) -> None:
    everyone.greet()
    greetings = tuple(everyone.server.present.values())
    seen = max(one.seen for one in greetings)
    everyone.server.recover(everyone.notices, everyone.lists, seen, greetings)
    everyone.greet()


def test_newcomers_whose_company_leaves_can_accept_to_join_with_fewer() -> None:
    """The error names `client join --alone`, and there is no newer list to say that for."""
    everyone = Everyone(4, seed="company leaves")
    everyone.round("full")
    u, v, w = with_newcomers(everyone, 3)
    everyone.leave([w])
    everyone.greet()
    step = everyone.ask(everyone.server.open("full"))
    assert {name: type(error) for name, error in step.refusals.items()} == dict.fromkeys(
        (u, v), AloneError
    )
    with pytest.raises(ProtocolError, match="epoch 2 is not later than 2"):
        everyone.clients[u].adopt(everyone.membership)
    for name in (u, v):
        everyone.clients[name].adopt(everyone.membership, alone=True)
        assert len(everyone.clients[name].lists) == 1
    everyone.greet()
    assert everyone.round("full").left == (w,)
    assert everyone.server.counted.keys() == {*everyone.names, u, v}


def waiting(everyone: Everyone) -> list[str]:
    return [str(one) for one in everyone.server.waiting]


def test_members_that_wait_to_leave_are_told_what_would_let_them_go() -> None:
    everyone = Everyone(6, seed="four of six")
    everyone.round("full")
    four, two = everyone.names[:4], everyone.names[4:]
    everyone.leave(four)
    everyone.greet()
    assert everyone.round("delta").left == ()
    (text,) = waiting(everyone)
    assert text.startswith("c000, c001, c002, c003: c004, c005 would be all that stays")
    # Two are too few for a list.
    assert "or enrol others first and then drop c000, c001, c002, c003 (`server enrol" in text
    everyone.adopt(everyone.members(two + tuple(with_newcomers(everyone, 3))), alone=two)
    everyone.greet()
    everyone.round("full")
    assert waiting(everyone) == []


def test_whoever_waits_because_too_few_would_stay_is_told() -> None:
    everyone = Everyone(4, seed="too few stay", policy=Policy(minimum=4))
    everyone.round("full")
    everyone.leave(["c000"], alone=["c000"])
    everyone.greet()
    assert everyone.round("delta").left == ()
    (text,) = waiting(everyone)
    assert text.startswith("c000: 3 members would stay after this round, too few")
    assert "Enrol others first" in text


def test_whoever_wishes_to_leave_after_others_signed_waits_for_the_commit() -> None:
    everyone = Everyone(7, seed="signed before")
    everyone.round("full")
    sign_without(everyone, "c006")
    everyone.leave(["c006"], alone=["c006"])
    everyone.greet()
    assert everyone.round("delta").survivors == everyone.names[:6]
    (text,) = waiting(everyone)
    assert text.startswith("c006: a set in which they do not leave was signed")
    everyone.greet()
    assert everyone.round("delta").left == ("c006",)
    assert waiting(everyone) == []
