"""Attacks on secure sums that succeed against naive versions.  Each is carried out here in full.

The attacker holds the server's key, sees every message and may say anything.  Where a test speaks
of colluding clients, it holds their keys and secrets as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import Consented, pair_mask, self_mask
from fedforget.protocol.errors import (
    AliveAndDeadError,
    BadShareError,
    BadSignatureError,
    ChangedParticipantsError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    SecondSurvivorSetError,
    TooFewError,
    UnknownPartyError,
)
from fedforget.protocol.federation import SERVER
from fedforget.protocol.graph import Graph, Policy
from fedforget.protocol.keys import Agreement, Identity
from fedforget.protocol.messages import (
    Advertise,
    Delivery,
    Open,
    Payload,
    Reveal,
    Roster,
    Survivors,
    Unmask,
    consent_to,
    seal,
)
from fedforget.protocol.server import Stage
from fedforget.protocol.shares import join
from fedforget.scma import DecodeError, add
from fedforget.scma.polynomials import minus
from parties import Everyone, body_of, changed, histogram, state_of, unchanged

VICTIM = "c000"


class Attacker:
    """What a server can put together from an attempt, whatever it told the clients."""

    def __init__(self, everyone: Everyone) -> None:
        self.everyone = everyone
        self.context = everyone.context
        steps = {
            step.stage: step
            for step in everyone.history
            if step.answers and step.context == self.context
        }
        self.keys = {
            name: body_of(data).masking_key for name, data in steps[Stage.ADVERTISE].answers.items()
        }
        self.graph = Graph.of(self.context.digest, sorted(self.keys), everyone.federation.policy)
        self.codec = everyone.federation.codec(self.context.capacity, self.context.salt)
        sent = steps[Stage.MASK].answers if Stage.MASK in steps else {}
        self.masked = {name: self.codec.unpack(body_of(data).vector) for name, data in sent.items()}
        self.colluding: Collection[str] = ()
        self.seed_shares: dict[str, dict[int, bytes]] = {}
        self.key_shares: dict[str, dict[int, bytes]] = {}

    def take(self, holder: str, seeds: Iterable[tuple[str, bytes]],
             keys: Iterable[tuple[str, bytes]]) -> None:  # fmt: skip
        number = self.graph.number(holder)
        for owner, share in seeds:
            self.seed_shares.setdefault(owner, {})[number] = share
        for owner, share in keys:
            self.key_shares.setdefault(owner, {})[number] = share

    def corrupt(self, name: str) -> None:
        """A colluding client hands over all that it holds, of both kinds."""
        stage = self.everyone.clients[name].stage
        held = stage.held.items()
        self.take(name, [(owner, one) for owner, (one, _) in held], ())
        self.take(name, (), [(owner, other) for owner, (_, other) in held])

    def show(self, views: Mapping[str, Survivors]) -> None:
        """Tell each client of some survivors, and collect the shares of all who let themselves."""
        everyone, threshold = self.everyone, self.graph.plan.threshold
        consents = {}
        for name, view in views.items():
            try:
                answer = everyone.clients[name].receive(everyone.from_server(name, view))
            except ProtocolError:
                continue
            consents[name] = body_of(answer).signature
        for name, view in views.items():
            near = [
                (other, self.signature(other, view, views, consents))
                for other in self.graph.neighbours(name)
                if other in view.alive
            ]
            signatures = [(other, data) for other, data in near if data is not None]
            unmask = Unmask(tuple(signatures[: threshold - 1]))
            try:
                answer = everyone.clients[name].receive(everyone.from_server(name, unmask))
            except ProtocolError:
                continue
            reveal = body_of(answer)
            assert isinstance(reveal, Reveal)
            self.take(name, reveal.seeds, reveal.keys)

    def signature(
        self,
        name: str,
        view: Survivors,
        views: Mapping[str, Survivors],
        consents: Mapping[str, bytes],
    ) -> bytes | None:
        if name in self.colluding:
            agreed = consent_to(self.context, view.alive, view.dead)
            return self.everyone.identities[name].sign(agreed)
        return consents.get(name) if views.get(name) == view else None

    def sum_of(self, names: Collection[str], partners: Collection[str]) -> Histogram | None:
        """The sum of some clients' inputs, if the shares allow it.

        ``partners`` are those with whom the clients share masks.  Masks within ``names`` cancel;
        the others come off with the key of either side.
        """
        threshold, length = self.graph.plan.threshold, self.codec.length
        total = np.zeros(length, dtype=np.uint64)
        try:
            for name in names:
                seed = join(self.seed_shares.get(name, {}), threshold)
                own = self_mask(seed, self.context, name, length)
                total = add(total, add(self.masked[name], minus(own)))
                outside = set(self.graph.neighbours(name)) & set(partners) - set(names)
                for other in outside:
                    inner, outer = name, other
                    if len(self.key_shares.get(name, {})) < threshold:
                        inner, outer = other, name
                    key = Agreement(join(self.key_shares.get(inner, {}), threshold))
                    secret = key.with_peer(self.keys[outer])
                    mask = pair_mask(secret, self.context, name, other, length)
                    total = add(total, minus(mask))
            return Histogram.of(*self.codec.decode(total))
        except (BadShareError, DecodeError):
            return None


def everybody_sent(n: int, seed: str, policy: Policy | None = None) -> Everyone:
    everyone = Everyone(n, seed=seed, policy=policy or Policy())
    everyone.histograms[VICTIM] = histogram(((13, 31), 1), ((31, 13), 2))
    everyone.until(Stage.CONSENT)
    return everyone


def test_the_attacker_s_arithmetic_is_right() -> None:
    """With honest survivors it finds the sum: so that finding nothing below means something."""
    for n in (4, 34):
        everyone = everybody_sent(n, "honest")
        attacker = Attacker(everyone)
        dead = everyone.names[-1:]
        alive = everyone.names[:-1]
        attacker.show(dict.fromkeys(alive, Survivors(alive, dead)))
        assert attacker.sum_of(alive, everyone.names) == everyone.total(alive)
        assert attacker.sum_of([VICTIM], everyone.names) is None
        assert attacker.sum_of(dead, everyone.names) is None


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
    assert attacker.sum_of([VICTIM], everyone.names) is None


# -- a split view ------------------------------------------------------------------------------


def split_view(n: int, colluding: Collection[str] = ()) -> tuple[Everyone, Attacker]:
    """One half of the circle is told that the victim survived, the other that it is lost."""
    everyone = everybody_sent(n, "split")
    attacker = Attacker(everyone)
    attacker.colluding = colluding
    circle = [name for name in attacker.graph.circle if name not in colluding]
    at = circle.index(VICTIM)
    around = circle[at:] + circle[:at]
    half = (len(around) + 1) // 2
    rest = tuple(name for name in everyone.names if name != VICTIM)
    lost = Survivors(rest, (VICTIM,))
    views = dict.fromkeys(around[:half], Survivors(everyone.names, ()))
    attacker.show(views | dict.fromkeys(around[half:], lost))
    for name in colluding:
        attacker.corrupt(name)
    return everyone, attacker


@pytest.mark.parametrize("n", [3, 4, 5, 12, 31, 32, 33, 40, 64])
def test_a_split_view_does_not_give_both_kinds_of_shares(n: int) -> None:
    """The server shows different survivors to different clients.

    Those who believe that the victim survived reveal shares of its seed, the others shares of its
    key.  If both groups reach the threshold, its input lies open.  Every group must be able to
    find a threshold of signatures on its own set, which a majority threshold rules out.
    """
    everyone, attacker = split_view(n)
    assert attacker.sum_of([VICTIM], everyone.names) is None
    threshold = attacker.graph.plan.threshold
    shares = (attacker.seed_shares.get(VICTIM, {}), attacker.key_shares.get(VICTIM, {}))
    assert min(map(len, shares)) < threshold


@pytest.mark.parametrize("n", [20, 30])
def test_a_split_view_with_colluding_clients_does_not_either(n: int) -> None:
    """As many clients as the policy allows sign both sets and hand over both kinds of shares."""
    count = int(Policy().colluding * n)
    colluding = [f"c{i:03}" for i in range(1, count + 1)]
    everyone, attacker = split_view(n, colluding)
    assert attacker.sum_of([VICTIM], everyone.names) is None


def test_one_client_apart_from_all_others_gets_no_answer() -> None:
    """The smallest split: everybody but one is told of the same survivors."""
    everyone = everybody_sent(7, "apart")
    attacker = Attacker(everyone)
    rest = everyone.names[1:]
    views = {VICTIM: Survivors(everyone.names, ())} | dict.fromkeys(
        rest, Survivors(rest, (VICTIM,))
    )
    attacker.show(views)
    assert isinstance(everyone.clients[VICTIM].stage, Consented)
    assert attacker.seed_shares.get(VICTIM) is None
    assert attacker.sum_of(rest, everyone.names) == everyone.total(rest)
    assert attacker.sum_of([VICTIM], everyone.names) is None


# -- replayed and substituted keys -------------------------------------------------------------


def test_an_advertisement_is_not_taken_twice() -> None:
    """In the first round a client vanished, so the server rebuilt its masking key.

    Were its old advertisement good for the second round as well, the server could take off the
    masks that others share with it, and open the shares sealed for it.
    """
    everyone = Everyone(4, seed="replay")
    everyone.round("full", {Stage.MASK: ["c003"]})
    old = everyone.history[0].answers["c003"]
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
        payload = Payload(everyone.context, name, SERVER, Advertise(own.public, own.public))
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


def without_the_victim(everyone: Everyone, epoch: int | None = None) -> None:
    """After an unmasked sum: open again, forget what was exposed, and leave the victim out."""
    server = everyone.server
    server.ledger = replace(server.ledger, exposed=None)
    messages = server.open("full")
    if epoch is not None:
        assert server._context is not None
        server._context = changed(server._context, epoch=epoch)
        opening = Open(server.ledger.notice)
        messages = server._ask(Stage.ADVERTISE, dict.fromkeys(everyone.names, opening))
    while server.stage is not Stage.DECIDED:
        everyone.ask(messages, [VICTIM] if server.stage is Stage.MASK else ())
        messages = server.advance()


def test_two_sums_that_differ_by_one_client_are_not_both_unmasked() -> None:
    """The server unmasks the sum of all, says that the round failed, and asks once more without
    its victim: the difference of the two sums is the victim's input."""
    everyone = Everyone(5, seed="difference")
    everyone.decide("full")
    with pytest.raises(RoundAbortedError):
        without_the_victim(everyone)
    refusals = {type(error) for error in everyone.history[-1].refusals.values()}
    assert refusals == {SecondSurvivorSetError}


def test_a_number_does_not_make_a_new_epoch() -> None:
    """The same, and the server calls it another epoch: of the same members, whom nobody asked.

    A client answers once in an epoch, so the epoch must be the one of its own membership list.
    """
    everyone = Everyone(5, seed="difference")
    everyone.decide("full")
    with pytest.raises(RoundAbortedError):
        without_the_victim(everyone, epoch=2)


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
    assert attacker.sum_of(everyone.names, everyone.names) == everyone.total(everyone.names)
    everyone.server.abandon()
    everyone.until(Stage.CONSENT)
    later = Attacker(everyone)
    later.seed_shares = attacker.seed_shares
    assert later.sum_of(everyone.names, everyone.names) is None


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
        seal(Payload(everyone.context, name, SERVER, Advertise(own.public, own.public)), identity)
        for name, identity in forged.items()
    )
    roster = Roster((VICTIM, *forged), advertisements)
    with pytest.raises(UnknownPartyError):
        client.receive(everyone.from_server(VICTIM, roster))
    # The same under members' names.
    roster = Roster(everyone.names, advertisements[:3])
    with pytest.raises(ChangedParticipantsError):
        client.receive(everyone.from_server(VICTIM, roster))
    assert unchanged(client, before)


@pytest.mark.parametrize("others", [0, 1])
def test_nobody_takes_part_in_too_small_a_round(others: int) -> None:
    """With one honest participant or two, the sum tells too much about each."""
    everyone = Everyone(5, seed="small")
    everyone.ask(everyone.server.open("full"))
    honest = everyone.history[-1].answers
    listed = everyone.names[: 1 + others]
    roster = Roster(listed, tuple(honest[name] for name in listed[1:]))
    with pytest.raises(TooFewError):
        everyone.clients[VICTIM].receive(everyone.from_server(VICTIM, roster))


@pytest.mark.parametrize("others", [0, 1, 2])
def test_nobody_sends_when_too_few_have_shared(others: int) -> None:
    """The round shrinks after the advertisements: below the minimum, then below the threshold."""
    everyone = Everyone(8, seed="shrinks")
    everyone.until(Stage.MASK)
    shares = {name: body_of(everyone.history[-1].answers[name]) for name in everyone.names}
    listed = everyone.names[: 1 + others]
    sealed = tuple((name, dict(shares[name].sealed)[VICTIM]) for name in listed[1:])
    delivery = Delivery(listed, sealed)
    client = everyone.clients[VICTIM]
    before = state_of(client)
    with pytest.raises(TooFewError):
        client.receive(everyone.from_server(VICTIM, delivery))
    assert unchanged(client, before)


def test_members_who_never_came_do_not_make_up_the_numbers() -> None:
    """Everybody has many neighbours, but far fewer than there are members.  The server goes on
    with a short piece of the circle only, says that those next to it have vanished before sharing,
    and that all others, of whom the piece can know nothing, have survived."""
    policy = Policy(dropout=0.05, colluding=0.05, minimum=50)
    everyone = Everyone(100, seed="ghosts", policy=policy)
    everyone.until(Stage.MASK)
    shares = {name: body_of(data) for name, data in everyone.history[-1].answers.items()}
    attacker = Attacker(everyone)
    graph = attacker.graph
    piece = graph.circle[: graph.plan.threshold]
    edge = {other for name in piece for other in graph.neighbours(name)} - set(piece)
    listed = tuple(name for name in everyone.names if name not in edge)
    assert len(piece) < policy.minimum <= len(listed)
    try:
        for name in piece:
            near = [other for other in graph.neighbours(name) if other in listed]
            sealed = tuple((other, dict(shares[other].sealed)[name]) for other in near)
            data = everyone.from_server(name, Delivery(listed, sealed))
            answer = everyone.clients[name].receive(data)
            attacker.masked[name] = attacker.codec.unpack(body_of(answer).vector)
    except TooFewError:
        return
    attacker.show(dict.fromkeys(piece, Survivors(listed, ())))
    assert attacker.sum_of(piece, listed) is None
