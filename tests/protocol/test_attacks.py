"""Attacks on secure sums that succeed against naive versions.  Each is carried out here in full.

The attacker holds the server's key, sees every message and may say anything.  Where a test speaks
of colluding clients, it holds their keys and secrets as well.  The lies that need a false history,
false lists or many rounds are in test_malicious_server.py.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import pytest
from attacker import Attacker, changes_of
from msgspec.structs import replace

from fedforget.protocol.client_ledger import dump, load
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Consented
from fedforget.protocol.errors import (
    AliveAndDeadError,
    BadSignatureError,
    ChangedParticipantsError,
    OutOfOrderError,
    ProtocolError,
    TooFewError,
)
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import Agreement, Identity
from fedforget.protocol.membership import SERVER
from fedforget.protocol.memory import freeze, thaw
from fedforget.protocol.messages import Advertise, Delivery, Payload, Roster, Survivors, seal
from fedforget.scma import DecodeError, add, minus
from parties import Everyone, Stage, body_of, histogram, state_of, unchanged

VICTIM = "c000"


def everybody_sent(n: int, seed: str, policy: Policy | None = None) -> Everyone:
    """A delta round whose vectors have all arrived."""
    everyone = Everyone(n, seed=seed, policy=policy or Policy())
    everyone.round("full")
    everyone.histograms[VICTIM] = histogram(((13, 31), 1), ((31, 13), 2))
    everyone.until(Stage.CONSENT, "delta")
    return everyone


def test_the_attacker_s_arithmetic_is_right() -> None:
    """With honest survivors it finds the sum: so that finding nothing below means something."""
    for n in (4, 34):
        everyone = everybody_sent(n, "honest")
        attacker = Attacker(everyone)
        dead = everyone.names[-1:]
        alive = everyone.names[:-1]
        attacker.show(dict.fromkeys(alive, Survivors(alive, dead)))
        assert attacker.sum_of(alive) == changes_of(everyone, alive)
        assert attacker.sum_of([VICTIM]) is None
        assert attacker.sum_of(dead) is None
        if n == 4:
            assert attacker.opened() == [alive]


# -- alive and dead ----------------------------------------------------------------------------


def test_a_node_both_alive_and_dead_is_not_unmasked() -> None:
    """The server lists its victim as a survivor *and* as lost.

    A client that answers from each list by itself reveals a share of the victim's self-mask seed
    and one of its masking key; a threshold of such answers takes every mask off its vector.
    """
    everyone = everybody_sent(5, "both")
    attacker = Attacker(everyone)
    before = {name: state_of(client) for name, client in everyone.clients.items()}
    both = Survivors(everyone.names, (VICTIM,))
    for name, client in everyone.clients.items():
        with pytest.raises(AliveAndDeadError):
            client.receive(everyone.from_server(name, both))
        assert unchanged(client, before[name])
    attacker.show(dict.fromkeys(everyone.names, both))
    assert (attacker.seed_shares, attacker.key_shares) == ({}, {})
    assert attacker.opened() == []


# -- a split view ------------------------------------------------------------------------------


def split_view(n: int, colluding: Collection[str] = ()) -> tuple[Everyone, Attacker]:
    """One half of the circle is told that the victim survived, the other that it is lost."""
    everyone = everybody_sent(n, "split")
    attacker = Attacker(everyone, colluding)
    circle = [name for name in attacker.graph.circle if name not in colluding]
    at = circle.index(VICTIM)
    around = circle[at:] + circle[:at]
    half = (len(around) + 1) // 2
    rest = tuple(name for name in everyone.names if name != VICTIM)
    lost = Survivors(rest, (VICTIM,))
    views = dict.fromkeys(around[:half], Survivors(everyone.names, ()))
    attacker.show(views | dict.fromkeys(around[half:], lost))
    return everyone, attacker


@pytest.mark.parametrize("n", [3, 4, 5, 12, 32, 33, 50])
def test_a_split_view_does_not_give_both_kinds_of_shares(n: int) -> None:
    """The server shows different survivors to different clients.

    Those who believe that the victim survived reveal shares of its seed, the others shares of its
    key.  If both groups reach the threshold, its input lies open.  Every group must find the
    signatures of a majority on its own set.
    """
    _, attacker = split_view(n)
    assert attacker.sum_of([VICTIM]) is None
    assert (attacker.seed_shares, attacker.key_shares) == ({}, {})
    assert {type(error) for error in attacker.refusals.values()} <= {TooFewError, OutOfOrderError}


@pytest.mark.parametrize("n", [20, 30])
def test_a_split_view_with_colluding_clients_does_not_either(n: int) -> None:
    """As many clients as the policy allows sign both sets and hand over both kinds of shares."""
    colluding = [f"c{i:03}" for i in range(1, Policy().colluders(n) + 1)]
    _, attacker = split_view(n, colluding)
    assert attacker.sum_of([VICTIM]) is None
    assert min(
        len(attacker.seed_shares.get(VICTIM, {})), len(attacker.key_shares.get(VICTIM, {}))
    ) <= len(colluding)


@pytest.mark.parametrize("n", [3, 5, 7, 9])
def test_no_split_of_a_small_federation_with_one_colluder_opens_anything_small(n: int) -> None:
    """Every honest member is told either that all survived or that the victim is lost, in every
    way; the colluder signs both.  Before: with three members and one colluder, either group of one
    had enough signatures, and the victim's input was open."""
    policy = Policy()
    needed = policy.thresholds(n)
    names = tuple(f"c{i:03}" for i in range(n))
    colluder, honest = names[-1], names[:-1]
    rest = tuple(name for name in names if name != VICTIM)
    views = Survivors(names, ()), Survivors(rest, (VICTIM,))
    sent = everybody_sent(n, f"one colluder {n}")
    images = {name: (dump(one.ledger), freeze(one)) for name, one in sent.clients.items()}
    # The first ones are told the one, the others the other: members are interchangeable.
    for first, told in product(range(n), ((0, 1), (1, 0))):
        everyone = sent
        for name in names:
            everyone.clients[name] = again(sent, name, images[name])
        attacker = Attacker(everyone, [colluder])
        attacker.show(
            {name: views[told[0] if i < first else told[1]] for i, name in enumerate(honest)}
        )
        for opened in attacker.opened():
            assert len(opened) >= needed.present - needed.colluders >= 2
        assert attacker.sum_of([VICTIM]) is None


def again(everyone: Everyone, name: str, image: tuple[bytes, bytes]) -> ClientSide:
    """A client as it was when it had sent its vector."""
    client = everyone.new_client(name, load(image[0]))
    thaw(client, image[1])
    return client


def test_one_client_apart_from_all_others_gets_no_answer() -> None:
    """The smallest split: everybody except one is told of the same survivors."""
    everyone = everybody_sent(10, "apart")
    attacker = Attacker(everyone)
    rest = everyone.names[1:]
    views = {VICTIM: Survivors(everyone.names, ())} | dict.fromkeys(
        rest, Survivors(rest, (VICTIM,))
    )
    attacker.show(views)
    assert isinstance(everyone.clients[VICTIM].stage, Consented)
    assert isinstance(attacker.refusals[VICTIM], TooFewError)
    assert attacker.seed_shares.get(VICTIM) is None
    assert attacker.opened() == [rest]
    assert attacker.sum_of(rest) == changes_of(everyone, rest)


# -- replayed and substituted keys -------------------------------------------------------------


def test_an_advertisement_is_not_taken_twice() -> None:
    """In the first round a client vanished, so the server rebuilt its masking key.

    Were its old advertisement good for the second round as well, the server could take off the
    masks that others share with it, and open the shares sealed for it.
    """
    everyone = Everyone(4, seed="replay")
    everyone.round("full")
    began = len(everyone.history)
    everyone.round("delta", {Stage.MASK: ["c003"]})
    old = everyone.history[began].answers["c003"]
    for kind in ("full", "delta"):
        everyone.ask(everyone.server.open(kind))
        honest = everyone.history[-1].answers
        for name in everyone.names[:3]:
            near = tuple(
                old if other == "c003" else honest[other]
                for other in everyone.names
                if other != name
            )
            client = everyone.clients[name]
            before = state_of(client)
            with pytest.raises(OutOfOrderError):
                client.receive(everyone.from_server(name, Roster(everyone.names, near)))
            assert unchanged(client, before)


@pytest.mark.parametrize("signer", ["server", "unknown", "nobody"])
def test_a_substituted_key_is_noticed(signer: str) -> None:
    """The server answers in the name of every neighbour, with keys that it made itself.

    Whoever believes it seals all shares of its secrets for the server.
    """
    everyone = Everyone(4, seed="substituted")
    everyone.ask(everyone.server.open("full"))
    identities = {
        "server": everyone.identities[SERVER],
        "unknown": Identity(b"unknown to everybody".ljust(32)),
    }
    own = Agreement(b"the server's".ljust(32))
    roster = []
    for name in everyone.names[1:]:
        payload = Payload(
            everyone.context, name, SERVER, Advertise(own.public.data, own.public.data)
        )
        data = seal(payload, identities.get(signer, identities["server"]))
        roster.append(data if signer != "nobody" else data[:-64] + bytes(64))
    client = everyone.clients[VICTIM]
    before = state_of(client)
    with pytest.raises(BadSignatureError):
        client.receive(everyone.from_server(VICTIM, Roster(everyone.names, tuple(roster))))
    assert unchanged(client, before)


def test_another_s_key_is_not_taken_for_a_neighbour_s() -> None:
    """The server gives one client's advertisement out as another's: it names its owner."""
    everyone = Everyone(4, seed="exchanged")
    everyone.ask(everyone.server.open("full"))
    honest = everyone.history[-1].answers
    twice = (honest["c001"], honest["c001"], honest["c003"])
    with pytest.raises(ChangedParticipantsError):
        everyone.clients[VICTIM].receive(
            everyone.from_server(VICTIM, Roster(everyone.names, twice))
        )


# -- differences -------------------------------------------------------------------------------


def test_masked_vectors_of_two_attempts_have_no_difference_to_speak_of() -> None:
    """With the same masks in two attempts, the difference of a client's two vectors would be the
    difference of its inputs, which decodes."""
    everyone = Everyone(3, seed="twice", capacity=20, first_capacity=8)
    everyone.until(Stage.CONSENT)
    first = Attacker(everyone)
    everyone.server.abandon()
    everyone.histograms[VICTIM] += histogram(((1, 2), 3))
    everyone.until(Stage.CONSENT)
    second = Attacker(everyone)
    for codec in (first.codec, second.codec):
        with pytest.raises(DecodeError):
            codec.decode(add(second.masked[VICTIM], minus(first.masked[VICTIM])))
        with pytest.raises(DecodeError):
            codec.decode(second.masked[VICTIM])
    assert not set(first.masked[VICTIM].tolist()) & set(second.masked[VICTIM].tolist())


def test_shares_of_one_attempt_are_worth_nothing_in_another() -> None:
    """The server has a client's seed from an attempt that failed, and its vector from the next."""
    everyone = Everyone(4, seed="stale")
    everyone.until(Stage.CONSENT)
    attacker = Attacker(everyone)
    attacker.show(dict.fromkeys(everyone.names, Survivors(everyone.names, ())))
    assert attacker.sum_of(everyone.names) == everyone.total(everyone.names)
    everyone.server.abandon()
    everyone.until(Stage.CONSENT)
    later = Attacker(everyone)
    later.seed_shares = attacker.seed_shares
    assert later.opened() == []


# -- zeroed participants -----------------------------------------------------------------------


def test_a_round_cannot_be_filled_with_parties_of_the_server_s_own() -> None:
    """The server takes part under many names, all with empty histograms: the sum is the victim's
    input.  Members are pinned, so it has no names to do that with."""
    everyone = Everyone(4, seed="sybil")
    everyone.ask(everyone.server.open("full"))
    client = everyone.clients[VICTIM]
    before = state_of(client)
    forged = {f"d{i:03}": Identity(bytes([i + 1]) * 32) for i in range(5)}
    own = Agreement(b"the server's".ljust(32))
    advertisements = tuple(
        seal(
            Payload(everyone.context, name, SERVER, Advertise(own.public.data, own.public.data)),
            identity,
        )
        for name, identity in forged.items()
    )
    roster = Roster((VICTIM, *forged), advertisements)
    with pytest.raises(ChangedParticipantsError):
        client.receive(everyone.from_server(VICTIM, roster))
    # The same under members' names.
    roster = Roster(everyone.names, advertisements[:3])
    with pytest.raises(ChangedParticipantsError):
        client.receive(everyone.from_server(VICTIM, roster))
    assert unchanged(client, before)


@pytest.mark.parametrize("kind", ["full", "delta"])
@pytest.mark.parametrize("others", [0, 1, 2, 3])
def test_nobody_takes_part_in_too_small_a_round(others: int, kind: str) -> None:
    """With one honest participant or two, the sum tells too much about each."""
    everyone = Everyone(10, seed="small")
    everyone.round("full")
    everyone.ask(everyone.server.open(kind))
    honest = everyone.history[-1].answers
    listed = everyone.names[: 1 + others]
    roster = Roster(listed, tuple(honest[name] for name in listed[1:]))
    with pytest.raises(TooFewError):
        everyone.clients[VICTIM].receive(everyone.from_server(VICTIM, roster))


@pytest.mark.parametrize("others", [0, 1, 2, 7])
def test_nobody_sends_when_too_few_have_shared(others: int) -> None:
    """The round shrinks after the advertisements."""
    everyone = Everyone(10, seed="shrinks")
    everyone.round("full")
    everyone.until(Stage.MASK, "delta")
    shares = {name: body_of(everyone.history[-1].answers[name]) for name in everyone.names}
    listed = everyone.names[: 1 + others]
    dealt = tuple(
        replace(next(one for one in shares[name].dealt if one.name == VICTIM), name=name)
        for name in listed[1:]
    )
    client = everyone.clients[VICTIM]
    before = state_of(client)
    with pytest.raises(TooFewError):
        client.receive(everyone.from_server(VICTIM, Delivery(listed, dealt)))
    assert unchanged(client, before)


@pytest.mark.parametrize("boldly", [True, False])
def test_members_who_never_came_do_not_make_up_the_numbers(boldly: bool) -> None:
    """Everybody has many neighbours, but far fewer than there are members.  The server goes on
    with a short piece of the circle only, says that those next to it have vanished before sharing,
    and that all others, of whom the piece can know nothing, have survived.

    There are more next to it than may vanish.  With as many as may, those who are left share masks
    with the piece, and nobody in it finds enough signatures."""
    policy = Policy(dropout=0.3, colluding=0.02)
    everyone = Everyone(60, seed="ghosts", policy=policy)
    everyone.round("full")
    everyone.until(Stage.MASK, "delta")
    shares = {name: body_of(data) for name, data in everyone.history[-1].answers.items()}
    attacker = Attacker(everyone)
    graph, most = attacker.graph, 60 - policy.thresholds(60).present
    piece = graph.circle[: graph.plan.threshold]
    edge = sorted({other for name in piece for other in graph.neighbours(name)} - set(piece))
    assert len(edge) > most
    lost = edge if boldly else edge[:most]
    listed = tuple(name for name in everyone.names if name not in lost)
    refusals = set()
    for name in piece:
        near = [other for other in graph.neighbours(name) if other in listed]
        dealt = tuple(
            replace(next(one for one in shares[other].dealt if one.name == name), name=other)
            for other in near
        )
        data = everyone.from_server(name, Delivery(listed, dealt))
        try:
            answer = everyone.clients[name].receive(data)
        except ProtocolError as error:
            refusals.add(type(error))
            continue
        attacker.masked[name] = attacker.codec.unpack(body_of(answer).masked_vector)
    assert refusals == ({TooFewError} if boldly else set())
    attacker.sharers = listed
    attacker.show(dict.fromkeys(piece, Survivors(listed, ())))
    expected = OutOfOrderError if boldly else TooFewError
    assert {type(attacker.refusals[name]) for name in piece} == {expected}
    assert attacker.seed_shares == {}
    assert attacker.sum_of(piece) is None
