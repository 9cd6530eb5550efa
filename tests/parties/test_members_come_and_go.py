"""Who comes, goes, is suspended or stays away: what is counted is what is held."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from party_world import FIVE, NAMES, World, federation_file, values_of

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.client_party import open_client
from fedforget.parties.joined import Joined
from fedforget.parties.server_party import ServerError, open_server
from fedforget.protocol.client_ledger import ClientLedger, Lock
from fedforget.protocol.errors import AloneError, ForkError
from fedforget.protocol.graph import PolicyError
from fedforget.protocol.history import Place, next_list
from fedforget.protocol.joining import check_adoption
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import Member, Membership


def leave(world: World, *names: str, alone: bool = False) -> None:
    for name in names:
        with open_client(world.client(name)) as party:
            party.leave(alone=alone)


def problems_of_server(world: World) -> list[str]:
    with open_server(world.server) as server:
        return server.audit()["problems"]


def counted(world: World) -> set[str]:
    with open_server(world.server) as server:
        assert server.aggregate().total == server.status()["records"]
        return set(server.status()["counted"])


# -- dropped -----------------------------------------------------------------------------------


@pytest.mark.parametrize("said_so", [False, True])
def test_a_member_that_is_dropped_while_it_is_counted(tmp_path: Path, said_so: bool) -> None:
    """With or without a leave statement that no round has carried out: the next round is full."""
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    rest = world.without("bologna")
    if said_so:
        leave(world, "bologna", alone=True)
        assert rest.round()["left"] == []
    document = rest.enrol(gone=["bologna"])
    assert "bologna" not in [one.name for one in document.members]
    named = [one for one in problems_of_server(world) if one.startswith("bologna was counted")]
    assert len(named) == 1
    assert "a full round must take it out" in named[0]
    with open_server(world.server) as server:
        assert server.needs_full_round()
        assert server.aggregate().total == 100
    with pytest.raises(FedforgetError, match="a full round must take it out"):
        rest.round(kind="delta")
    assert rest.round()["kind"] == "full"
    rest.check_sums()
    rest.check_audits()
    assert counted(world) == set(rest.names)
    assert rest.round()["kind"] == "delta"
    with pytest.raises(FedforgetError, match="bologna is not enrolled"):
        world.round()
    with open_server(world.server) as server, pytest.raises(ServerError, match="not a member"):
        server.enrol({}, gone=("bologna",))


def test_the_others_are_told_what_dropping_shows(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(5)
    world.round()
    with open_server(world.server) as server:
        document = server.enrol(gone=["bologna"], suspend=["coimbra"])
    done = world.join("aarhus", document)
    assert done.went == ["bologna"]
    assert done.suspended == ["coimbra"]
    assert any("bologna is dropped while it is counted" in one for one in done.will_show())
    assert any("coimbra is suspended" in one for one in done.will_show())


def test_a_full_round_without_a_suspended_member_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(5)
    world.round()
    world.enrol(suspend=["coimbra"])
    with pytest.raises(FedforgetError, match="coimbra is suspended and was counted in round 1"):
        world.round(kind="full")
    # Dropping another one meanwhile cannot be carried out before it comes back, or goes, too.
    rest = world.without("bologna")
    with open_server(world.server) as server:
        document = server.enrol(gone=["bologna"])
    # Two lists without a commit: what the three others changed may show, too.
    for name in ("aarhus", "dresden", "evora"):
        with pytest.raises(AloneError, match="only aarhus, dresden, evora took part under every"):
            rest.join(name, document)
        shown = rest.join(name, document, alone=True).will_show()
        assert any("aarhus, dresden, evora: all who took part" in line for line in shown)
    rest.join("coimbra", document)
    with pytest.raises(FedforgetError, match="coimbra is suspended"):
        rest.round()
    rest.enrol(resume=["coimbra"])
    assert rest.round()["kind"] == "full"
    rest.check_sums()


# -- leaving -----------------------------------------------------------------------------------


def test_leaving_alone(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    with open_client(world.client("bologna")) as party:
        assert party.leave(alone=True) == 20
        assert party.status()["leaving"]
        assert party.audit().passed
    done = world.round()
    assert (done["kind"], done["left"]) == ("delta", ["bologna"])
    world.check_sums()
    assert counted(world) == set(FIVE) - {"bologna"}
    with open_client(world.client("bologna")) as party:
        document = json.loads(party.store.receipts()[0].document)
        assert party.status()["left"]
    proof = receipts.verify(document, world.federation)
    assert proof.everything
    assert proof.records == 20
    assert "all that it held" in proof.sentences()[0]
    with pytest.raises(receipts.ReceiptError, match="cannot be checked"):
        receipts.verify(document, world.federation, ids=["B-1"], salt=bytes(16))
    # It says nothing any more, and does not stop the others, there or not.
    done = world.round()
    assert (done["kind"], "bologna has left" in done["refused"]["bologna"]) == ("delta", True)
    rest = world.without("bologna")
    assert rest.round()["kind"] == "delta"
    rest.enrol(gone=["bologna"])
    assert rest.round()["kind"] == "delta"
    rest.check_sums()
    rest.check_audits()


def test_nobody_leaves_without_enough_others(tmp_path: Path) -> None:
    """One statement is not enough, and nothing of it shows; with three they go together."""
    names = [*FIVE, "faro"]
    world = World(tmp_path, names).set_up().fill(20)
    world.round()
    leave(world, "aarhus")
    done = world.round()
    assert (done["left"], done["changed_bins"]) == ([], 0)
    assert counted(world) == set(names)
    leave(world, "bologna", "coimbra")
    done = world.round()
    assert done["left"] == list(NAMES)
    world.check_sums()
    world.check_audits()
    assert counted(world) == {"dresden", "evora", "faro"}
    for name in NAMES:
        with open_client(world.client(name)) as party:
            (receipt,) = party.store.receipts()
            assert receipts.verify(json.loads(receipt.document), world.federation).everything


def test_too_few_would_stay(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    leave(world, "aarhus", alone=True)
    assert world.round()["left"] == []
    assert counted(world) == set(NAMES)
    with open_server(world.server) as server, pytest.raises(PolicyError):
        server.enrol(gone=["aarhus"])


def test_one_of_three_leaves_after_others_have_come(tmp_path: Path) -> None:
    """The list would be too short without it: the error names what must come first."""
    world = World(tmp_path).set_up().fill()
    world.round()
    with open_client(world.client("bologna")) as party:
        party.leave(alone=True)
    assert world.round()["left"] == []
    with open_server(world.server) as server:
        (waits,) = server.waiting_to_leave()
        assert "enrol others first and then drop bologna (`server enrol --gone`)" in waits
        with pytest.raises(FedforgetError, match="enrol more members"):
            server.enrol(gone=["bologna"])
        new = ("dresden", "evora", "faro")
        more = world.with_others(*new)
        document = server.enrol({name: more.make_client(name) for name in new})
    for name in more.names:
        more.join(name, document)
    assert more.round()["left"] == []
    rest = more.without("bologna")
    rest.enrol(gone=["bologna"], alone=True)
    assert rest.round()["participants"] == sorted(rest.names)


def test_all_end_the_federation_together(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    leave(world, *NAMES)
    assert world.round()["left"] == list(NAMES)
    world.check_sums()
    with open_server(world.server) as server:
        assert server.aggregate().total == 0


def test_a_leaver_that_is_away_in_the_round_of_its_leaving(tmp_path: Path) -> None:
    """It stays counted.  When it is back, it gets the round that it has missed, and leaves."""
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    leave(world, "bologna", alone=True)
    assert world.without("bologna").round()["left"] == []
    assert "bologna" in counted(world)
    assert world.round()["left"] == ["bologna"]
    world.check_sums()
    world.check_audits()


def test_a_leaver_that_is_suspended_meanwhile(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    leave(world, "bologna", alone=True)
    world.enrol(suspend=["bologna"])
    assert world.round()["left"] == []
    assert "bologna" in counted(world)
    world.enrol(resume=["bologna"])
    assert world.round()["left"] == ["bologna"]
    world.check_sums()


def test_a_shorter_list_says_what_its_members_are_asked_for() -> None:
    """Of eleven members two may collude, of three one: what hides three here hid nobody there."""
    identities = {f"c{number:02}": Identity(bytes([number]) * 32) for number in range(1, 12)}
    key = Identity(bytes([99]) * 32).public.data.hex()
    federation, names = replace(federation_file(), server_key=key), sorted(identities)

    def listed(chosen: list[str], before: Membership | None, place: Place) -> Membership:
        members = [Member(name, identities[name].public.data) for name in chosen]
        identifier = bytes.fromhex(federation.identifier)
        return next_list(before, place, federation=identifier, members=members, capacity=44)

    longer = listed(names, None, Place())
    place = Place(1, bytes([1]) * 32, counted=dict.fromkeys(names, 1))
    shorter = listed(names[:3], longer, place)
    server = federation.protocol_federation()
    with pytest.raises(AloneError, match="fewer than the 4"):
        check_adoption(
            "c01", identities["c01"], server, [longer], [shorter], ClientLedger.new(2), False
        )
    shown = Joined.after(federation, [longer], [shorter], frozenset()).will_show()
    assert any("c01, c02, c03: what is left" in line for line in shown)
    assert any("nobody may be left who signed a sum" in line for line in shown)


@pytest.mark.parametrize("accepted", [True, False])
def test_one_of_a_small_group_is_dropped_and_the_others_of_it_are_asked(
    tmp_path: Path, accepted: bool
) -> None:
    """No round lets it leave, even alone: what the two others have would show."""
    world = World(tmp_path).set_up().fill(20)
    world.round()
    others = ("dresden", "evora", "faro")
    more = world.with_others(*others)
    with open_server(world.server) as server:
        document = server.enrol({name: more.make_client(name) for name in others})
    for name in more.names:
        more.join(name, document)
    assert more.round()["kind"] == "full"
    leave(more, "dresden", alone=True)
    assert more.round()["left"] == []
    rest = more.without("dresden")
    with open_server(world.server) as server:
        document = server.enrol(gone=["dresden"])
    for name in NAMES:
        shown = rest.join(name, document).will_show()
        assert any("evora, faro: what is left of those who came with list 2" in s for s in shown)
    for name in ("evora", "faro"):
        with pytest.raises(AloneError, match="the list drops dresden"):
            rest.join(name, document)
    if accepted:
        for name in ("evora", "faro"):
            rest.join(name, document, alone=True)
        assert rest.round()["kind"] == "full"
        rest.check_sums()
        rest.check_audits()
        return
    # The list is taken back by another one; both are taken over as one.
    enrolment = json.loads((more.client("dresden") / "enrolment.json").read_text())
    with open_server(world.server) as server:
        again = server.enrol({"dresden": enrolment["key"]})
    for name in NAMES:
        more.join(name, again)
    for name in others:
        with open_client(more.client(name)) as party:
            plan = party.join(None, document, again)
            assert (plan.came, plan.went, plan.will_show()) == ([], [], [])
            assert [one.epoch for one in party.lists()] == [2, 3, 4]
    assert more.round()["participants"] == sorted(more.names)
    more.check_sums()
    more.check_audits()


def test_a_waiting_leaver_that_was_restored_goes_with_the_others(tmp_path: Path) -> None:
    """It gets the commits that it lacks before it signs for which place it leaves."""
    names = [*FIVE, "faro", "gent"]
    world = World(tmp_path, names).set_up().fill(10)
    world.round()
    leave(world, "aarhus")
    world.back_up("aarhus")
    world.round()
    world.restore("aarhus")
    with open_client(world.client("aarhus")) as party:
        party.recover()
    with pytest.raises(FedforgetError, match=r"client leave --alone.*server enrol --gone"):
        world.round(kind="full")
    leave(world, "bologna", "coimbra")
    assert world.round(kind="full")["left"] == list(NAMES)
    world.check_sums()


def test_dropping_somebody_after_a_sum_was_begun_is_said(tmp_path: Path) -> None:
    """Nothing of dresden is counted, and yet the sums with and without it would show it."""
    world = World(tmp_path, FIVE).set_up().fill(10)
    with open_server(world.server) as server:
        lock = Lock(1, server.lists()[-1].digest, tuple(sorted(FIVE)), ())
        server._store_ledger(structs.replace(server.ledger(), lock=lock))
    for name in ("aarhus", "bologna"):
        with open_client(world.client(name)) as party:
            party._store_ledger(structs.replace(party.ledger(), lock=lock))
    with open_server(world.server) as server:
        opened = server.opened_since_the_last_commit()
        document = server.enrol(gone=["dresden"])
    assert opened == set(FIVE)
    for name, told in (("aarhus", True), ("coimbra", False)):
        shown = world.join(name, document).will_show()
        assert any("dresden is dropped after a sum with it was begun" in s for s in shown) == told


def test_nobody_goes_and_comes_with_one_list(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(5)
    with open_server(world.server) as server:
        enrolment = {"bologna": "11" * 32}
        with pytest.raises(ServerError, match="cannot go and come with one list"):
            server.enrol(enrolment, gone=["bologna"])


# -- joining -----------------------------------------------------------------------------------


def test_members_who_come_together(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    others = ("dresden", "evora", "faro")
    more = world.with_others(*others)
    with open_server(world.server) as server:
        document = server.enrol({name: more.make_client(name) for name in others})
    with pytest.raises(FedforgetError, match="knows epoch 1, the server is at 2: run client join"):
        world.round()
    for name in more.names:
        done = more.join(name, document)
        assert done.came == list(others)
        assert done.will_show() == []
    for number, name in enumerate(others):
        more.hold(name, [f"{name}-{row}" for row in range(7)], values_of(7, 50 + number))
    # Until all are there, the old ones go on among themselves.
    assert world.round()["participants"] == list(NAMES)
    done = more.round()
    assert (done["kind"], done["participants"]) == ("full", sorted(more.names))
    more.check_sums()
    more.check_audits()
    assert more.round()["kind"] == "delta"


def test_a_member_who_comes_alone(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(20)
    world.round()
    more = world.with_others("dresden")
    with open_server(world.server) as server:
        document = server.enrol({"dresden": more.make_client("dresden")})
    done = more.join("aarhus", document)
    assert any("dresden: so few join together" in one for one in done.will_show())
    with pytest.raises(AloneError, match="`client join --alone` accepts that"):
        more.join("dresden", document)
    with open_client(more.client("dresden")) as party:
        assert party.lists() == []
    for name in ("bologna", "coimbra"):
        more.join(name, document)
    more.join("dresden", document, alone=True)
    more.hold("dresden", ["D-1", "D-2"], values_of(2, 9))
    assert more.round()["kind"] == "full"
    more.check_sums()
    more.check_audits()
    more.forget("dresden", ["D-1"])
    assert more.round()["kind"] == "delta"
    more.check_sums()


# -- away --------------------------------------------------------------------------------------


def test_a_client_that_was_away(tmp_path: Path) -> None:
    """Rounds without it keep counting it; the notices that it missed come with the next one."""
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    world.forget("coimbra", ["C-1"])
    rest = world.without("coimbra")
    for number in range(3):
        rest.forget("aarhus", [f"A-{number}"])
        rest.round()
    with open_client(world.client("coimbra")) as party:
        assert party.status()["requests_waiting"] == 1
        assert party.status()["last_committed_round"] == 1
    world.round()
    world.check_sums()
    world.check_audits()
    with open_client(world.client("coimbra")) as party:
        (receipt,) = party.store.receipts()
    assert receipts.verify(json.loads(receipt.document), world.federation).round == 5


def test_a_client_that_was_away_for_rounds_and_lists(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    rest = world.without("coimbra")
    missed = [rest.enrol(suspend=["coimbra"])]
    rest.round()
    rest.forget("aarhus", ["A-1"])
    rest.round()
    missed.append(rest.enrol(resume=["coimbra"]))
    rest.round()
    with pytest.raises(FedforgetError, match="coimbra knows epoch 1, the server is at 3"):
        world.round()
    with open_client(world.client("coimbra")) as party:
        with pytest.raises(FedforgetError, match="take the list of epoch 2 first"):
            party.join(None, missed[1])
        party.forget(["C-1"])
        for document in missed:
            party.join(None, document)
    assert world.round()["kind"] == "delta"
    world.check_sums()
    world.check_audits()


def test_suspended_and_resumed(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(20)
    world.round()
    world.enrol(suspend=["evora"])
    world.forget("evora", ["E-1"])
    done = world.round()
    assert done["participants"] == list(FIVE[:4])
    assert "evora" in counted(world)
    with open_client(world.client("evora")) as party:
        assert party.status()["suspended"]
        assert party.status()["requests_waiting"] == 1
    with open_server(world.server) as server:
        assert server.aggregate().total == 100
        with pytest.raises(ServerError, match="evora is suspended already"):
            server.enrol(suspend=["evora"])
        with pytest.raises(ServerError, match="aarhus is not suspended already"):
            server.enrol(resume=["aarhus"])
    world.enrol(resume=["evora"])
    assert world.round()["participants"] == list(FIVE)
    world.check_sums()
    world.check_audits()


def test_somebody_who_is_not_counted_cannot_be_suspended(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(5)
    with open_server(world.server) as server, pytest.raises(ServerError, match="is not counted"):
        server.enrol(suspend=["evora"])


# -- what people compare -----------------------------------------------------------------------


def test_fingerprints(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(5)
    world.round()
    seen = set()
    for changes in ({"suspend": ["evora"]}, {"resume": ["evora"]}, {"suspend": ["evora"]}):
        document = world.enrol(**changes)
        prints = {document.fingerprint}
        for name in world.names:
            with open_client(world.client(name)) as party:
                prints.add(party.status()["fingerprint"])
        with open_server(world.server) as server:
            prints.add(server.status()["fingerprint"])
        assert len(prints) == 1
        seen |= prints
    assert len(seen) == 3


def test_two_lists_for_one_epoch(tmp_path: Path) -> None:
    """A server that gives members different lists cannot run a round with both."""
    world = World(tmp_path, FIVE).set_up().fill(5)
    world.round()
    world.back_up("server")
    with open_server(world.server) as server:
        one = server.enrol(suspend=["evora"])
    world.restore("server")
    with open_server(world.server) as server:
        other = server.enrol(suspend=["dresden"])
    assert one.fingerprint != other.fingerprint
    world.join("aarhus", one)
    for name in FIVE[1:]:
        world.join(name, other)
    with pytest.raises(FedforgetError, match="aarhus: the server has another membership list"):
        world.round()
    with open_server(world.server) as server:
        third = server.enrol(resume=["dresden"])
    with pytest.raises(ForkError, match="compare the fingerprints"):
        world.join("aarhus", third)
    world.join("bologna", third)


def test_a_list_made_before_the_first_round(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(5)
    more = world.with_others("dresden")
    document = world.enrol({"dresden": more.make_client("dresden")}, alone=True)
    more.join("dresden", document, alone=True)
    assert more.round()["kind"] == "full"
    more.check_audits()
    more.round()
    more.check_audits()


def test_a_full_round_after_a_smaller_set_was_signed_says_what_helps(tmp_path: Path) -> None:
    world = World(tmp_path, FIVE).set_up().fill(10)
    world.round()
    with open_server(world.server) as server:
        rest = tuple(name for name in sorted(FIVE) if name != "aarhus")
        lock = Lock(2, server.lists()[-1].digest, rest, ())
        server._store_ledger(structs.replace(server.ledger(), lock=lock))
    with pytest.raises(FedforgetError, match=r"a set without aarhus was signed.*--afresh"):
        world.round(kind="full")
    world.enrol(afresh=True)
    assert world.round(kind="full")["kind"] == "full"
    world.check_sums()
