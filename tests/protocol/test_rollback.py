"""Machines rolled back, copied or restored repeat a message, or make an unrelated one.

What lasts of a client is its ledger; a runtime may also keep its attempt between two messages
(``freeze``).  An attacker that can roll a machine back has both, of any moment.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from attacker import Attacker
from msgspec.structs import replace

from fedforget.protocol.client_ledger import ClientLedger, dump, load
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Advertised, Consented, Resting, Sent, Shared
from fedforget.protocol.errors import (
    FullRoundNeededError,
    OlderDirectoryError,
    OutOfOrderError,
    SecondSurvivorSetError,
    TooFewError,
)
from fedforget.protocol.keys import OneTimeKey
from fedforget.protocol.memory import freeze, thaw
from fedforget.protocol.messages import Delivery, Open, Roster, Survivors
from fedforget.protocol.server_stages import Outgoing
from fedforget.scma import DecodeError, Elements, add, minus
from parties import Everyone, Stage, body_of, changed, histogram, with_ledger

VICTIM = "c000"
Image = tuple[bytes, bytes]
"""A client's ledger and its attempt, as they were at some moment."""


def image_of(client: ClientSide) -> Image:
    return dump(client.ledger), freeze(client)


def rolled_back(everyone: Everyone, name: str, image: Image) -> ClientSide:
    """A client as it was, with a generator that goes on elsewhere."""
    client = everyone.new_client(name, load(image[0]))
    thaw(client, image[1])
    return client


def vector_of(everyone: Everyone, answer: bytes | None) -> Elements:
    codec = everyone.federation.codec(everyone.context.capacity, everyone.context.salt)
    return codec.unpack(body_of(answer).masked_vector)


def unrelated(everyone: Everyone, one: bytes | None, other: bytes | None) -> bool:
    """Neither has an element of the other, and their difference is no encoding."""
    codec = everyone.federation.codec(everyone.context.capacity, everyone.context.salt)
    first, second = vector_of(everyone, one), vector_of(everyone, other)
    if set(first.tolist()) & set(second.tolist()):
        return False
    for difference in (add(first, minus(second)), add(second, minus(first))):
        try:
            codec.decode(difference)
        except DecodeError:
            continue
        return False
    return True


def delta_until(
    stage: Stage, n: int = 10, seed: str = "rollback"
) -> tuple[Everyone, list[Outgoing]]:
    everyone = Everyone(n, seed=seed)
    everyone.round("full")
    everyone.histograms[VICTIM] = histogram(((13, 31), 1))
    return everyone, everyone.until(stage, "delta")


# -- two inputs under one mask -----------------------------------------------------------------


def test_a_client_rolled_back_after_sharing_sends_the_same_vector_again() -> None:
    """Between *share* and *masked input* the machine is rolled back and its records change.

    Before: the vector was made of the histogram of the moment, so the difference of the two was
    the difference of the inputs, and decoded.
    """
    everyone, messages = delta_until(Stage.MASK)
    client = everyone.clients[VICTIM]
    image, delivery = image_of(client), dict(messages)[VICTIM]
    first = client.receive(delivery)
    everyone.histograms[VICTIM] = histogram(((1, 1), 5))
    for _ in range(2):
        again = rolled_back(everyone, VICTIM, image)
        assert isinstance(again.stage, Shared)
        assert again.receive(delivery) == first


def test_with_other_sharers_it_sends_an_unrelated_vector() -> None:
    """Masks belong to one list of sharers; those of a longer and a shorter one share nothing."""
    everyone, messages = delta_until(Stage.MASK)
    client = everyone.clients[VICTIM]
    image, delivery = image_of(client), dict(messages)[VICTIM]
    everyone.history.append(everyone.history[-1])
    first = client.receive(delivery)
    honest = body_of(delivery)
    fewer = Delivery(honest.sharers[:-1], honest.dealt[:-1])
    second = rolled_back(everyone, VICTIM, image).receive(everyone.from_server(VICTIM, fewer))
    assert unrelated(everyone, first, second)


@pytest.mark.parametrize("generator", ["real", "repeated"])
def test_rolled_back_before_the_opening_with_another_input_nothing_is_the_same(
    generator: str,
) -> None:
    """A copy of the machine, its generator too, is asked to open the same attempt again while its
    records are others.  Before, with a repeated generator: the same masks over another input."""
    everyone, messages = delta_until(Stage.ADVERTISE, 4)
    image = image_of(everyone.clients[VICTIM])
    step = everyone.ask(messages)
    openings, advertised = step.asked, step.answers
    seen: list[tuple[bytes | None, ...]] = []
    randomness = everyone.clients[VICTIM].ledger.pending.secret_randomness
    others = {name: image_of(everyone.clients[name]) for name in everyone.names[1:]}
    same = generator == "repeated"
    for points in (((13, 31), 1), ((13, 31), 2), ((13, 31), 1)):
        everyone.histograms[VICTIM] = histogram(points)
        client = rolled_back(everyone, VICTIM, image)
        client._entropy = (lambda size: randomness[:size]) if same else os.urandom
        own = client.receive(openings[VICTIM])
        letters = {**advertised, VICTIM: own}
        answers = dealt_by_all(everyone, letters, {**others, VICTIM: image_of(client)})
        seen.append((own, *answers))
    first, second, third = seen
    assert (first == third) == same
    keys = [body_of(one[0]) for one in (first, second)]
    assert keys[0].masking_key != keys[1].masking_key
    assert keys[0].sharing_key != keys[1].sharing_key
    hashes = [{one.hashes for one in body_of(each[1]).dealt} for each in (first, second)]
    assert not hashes[0] & hashes[1]
    everyone.history.append(step)
    assert unrelated(everyone, first[2], second[2])


def dealt_by_all(
    everyone: Everyone, letters: dict[str, bytes], images: dict[str, Image]
) -> tuple[bytes | None, bytes | None]:
    """Run *share* and *masked input* with copies of all; returns what the victim said."""
    clients = {name: rolled_back(everyone, name, images[name]) for name in everyone.names}
    shares = {}
    for name, client in clients.items():
        near = tuple(letters[other] for other in everyone.names if other != name)
        shares[name] = client.receive(everyone.from_server(name, Roster(everyone.names, near)))
    dealt = tuple(
        replace(next(one for one in body_of(shares[name]).dealt if one.name == VICTIM), name=name)
        for name in everyone.names[1:]
    )
    delivery = everyone.from_server(VICTIM, Delivery(everyone.names, dealt))
    return shares[VICTIM], clients[VICTIM].receive(delivery)


# -- keys and shares ---------------------------------------------------------------------------


def test_no_one_time_key_encrypts_two_plaintexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rolled back to *advertise* and told of one roster after another, all neighbours the same.

    Before: keys bound the attempt but not the roster, and a nonce of zero met two plaintexts."""
    everyone, _ = delta_until(Stage.SHARE, 20)
    used: dict[bytes, set[tuple[bytes, bytes]]] = {}
    honest_encrypt = OneTimeKey.encrypt

    def encrypt(self: OneTimeKey, plaintext: bytes, associated: bytes) -> bytes:
        # A key is known by its stream.
        stream = OneTimeKey.__new__(OneTimeKey)
        stream._cipher, stream._used = self._cipher, False
        known = honest_encrypt(stream, bytes(66), b"")[:66]
        used.setdefault(known, set()).add((plaintext, associated))
        return honest_encrypt(self, plaintext, associated)

    monkeypatch.setattr(OneTimeKey, "encrypt", encrypt)
    client = everyone.clients[VICTIM]
    image = image_of(client)
    letters = everyone.history[-1].answers
    policy = everyone.federation.policy
    rosters = [everyone.names]
    rosters += [everyone.names[:at] + everyone.names[at + 1 :] for at in (5, 11, 19)]
    assert min(map(len, rosters)) >= policy.thresholds(20).present
    answers = []
    for roster in [*rosters, rosters[0]]:
        again = rolled_back(everyone, VICTIM, image)
        assert isinstance(again.stage, Advertised)
        near = tuple(letters[other] for other in roster if other != VICTIM)
        answers.append(again.receive(everyone.from_server(VICTIM, Roster(roster, near))))
    assert answers[0] == answers[-1]
    assert len(used) == sum(len(roster) - 1 for roster in rosters)
    assert {len(messages) for messages in used.values()} == {1}
    # Shares of different rosters do not fit together either.
    hashes = [{one.hashes for one in body_of(answer).dealt} for answer in answers[:-1]]
    assert len(set.union(*hashes)) == sum(map(len, hashes))
    assert len({body_of(answer).seed_digest for answer in answers[:-1]}) == len(rosters)


def test_two_clients_with_one_generator_have_nothing_in_common() -> None:
    """An image of a machine is copied to several hospitals: all draw the same bytes."""
    everyone = Everyone(5, seed="cloned", entropy=lambda name: Random("the same").randbytes)
    for name in everyone.names:
        everyone.histograms[name] = histogram(((1, 1), 1))
    everyone.until(Stage.CONSENT)
    drawn = {client.ledger.pending.secret_randomness for client in everyone.clients.values()}
    assert len(drawn) == 1
    advertised = [body_of(data) for data in everyone.history[0].answers.values()]
    assert len({key for one in advertised for key in (one.sharing_key, one.masking_key)}) == 10
    answers = list(everyone.history[2].answers.values())
    for at, one in enumerate(answers):
        for other in answers[at + 1 :]:
            assert unrelated(everyone, one, other)


# -- a second set ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 5, 10])
def test_a_restored_member_that_signs_two_sets_opens_nothing_alone(n: int) -> None:
    """Its directory is restored to before it agreed, so that it agrees to another set, too, and
    reveals for both: it is one of the c.  Everybody else holds to one set."""
    everyone, _ = delta_until(Stage.CONSENT, n, f"second set {n}")
    restored = everyone.names[1]
    image = image_of(everyone.clients[restored])
    names, rest = everyone.names, everyone.names[1:]
    attacker = Attacker(everyone, [restored])
    attacker.show(dict.fromkeys(names, Survivors(names, ())))
    opened = attacker.opened()
    assert opened == [tuple(name for name in names if name != restored)]
    client = everyone.clients[restored] = rolled_back(everyone, restored, image)
    assert isinstance(client.stage, Sent)
    attacker.refusals = {}
    attacker.show(dict.fromkeys(rest, Survivors(rest, (VICTIM,))))
    assert isinstance(client.stage, Consented)
    assert isinstance(attacker.refusals[restored], TooFewError)
    honest = [name for name in rest if name != restored]
    assert {type(attacker.refusals[name]) for name in honest} == {OutOfOrderError}
    assert attacker.opened() == opened
    # In another attempt, too.
    everyone.server.abandon()
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    everyone.until(Stage.CONSENT, "delta")
    later = Attacker(everyone, [restored])
    later.show(dict.fromkeys(rest, Survivors(rest, (VICTIM,))))
    assert {type(later.refusals[name]) for name in honest} == {SecondSurvivorSetError}
    assert later.opened() == []


# -- restored to before a commit ---------------------------------------------------------------


def test_a_directory_older_than_a_commit_stops_and_needs_its_operator() -> None:
    """Before: it was counted with what it did not remember, and erased records came back."""
    everyone = Everyone(5, seed="older")
    everyone.round("full")
    image = image_of(everyone.clients[VICTIM])
    everyone.histograms[VICTIM] = histogram(((13, 31), 1))
    everyone.round("delta")
    client = everyone.clients[VICTIM] = rolled_back(everyone, VICTIM, image)
    ledger = client.ledger
    for _ in range(2):
        with pytest.raises(OlderDirectoryError, match="older than round 2"):
            client.receive(everyone.notices[1])
        messages = dict(everyone.server.open("delta"))
        with pytest.raises(OlderDirectoryError):
            client.receive(messages[VICTIM])
    assert client.ledger is ledger
    # The others go on without it, and a notice that does not count it anew does not help.
    everyone.round("delta", {Stage.ADVERTISE: [VICTIM], Stage.DECIDED: [VICTIM]})
    everyone.greet()
    messages = dict(everyone.server.open("delta"))
    with pytest.raises(OlderDirectoryError):
        client.receive(messages[VICTIM])
    # `client recover`: what is counted is not known, and a full round takes it over.
    with_ledger(client, recovering=True)
    with pytest.raises(FullRoundNeededError):
        client.receive(messages[VICTIM])
    everyone.server.abandon()
    assert everyone.round("full").total == everyone.total(everyone.names)
    assert client.ledger.base == everyone.histograms[VICTIM]
    assert not client.ledger.recovering
    assert len(everyone.round("delta").total) == 0


def test_an_attempt_is_opened_once_even_when_it_is_forgotten() -> None:
    """Numbers only grow: a server, or one that was restored, cannot begin an attempt again."""
    everyone = Everyone(4, seed="numbers")
    everyone.round("full")
    everyone.until(Stage.MASK, "delta")
    everyone.server.abandon()
    client = everyone.restart(VICTIM)
    for attempt in range(everyone.context.attempt + 1):
        context = changed(everyone.context, attempt=attempt, salt=b"other")
        with pytest.raises(OutOfOrderError):
            client.receive(everyone.from_server(VICTIM, Open(()), context))
    assert client.stage == Resting()


def test_what_lasts_is_fixed_before_anything_is_said() -> None:
    """The ledger that is stored before the advertisement goes out holds input and random bytes."""
    everyone = Everyone(3, seed="fixed")
    client = everyone.clients[VICTIM]
    messages = dict(everyone.server.open("full"))
    step = client.handle(messages[VICTIM])
    stored: ClientLedger = load(dump(step.ledger))
    assert stored.pending is not None
    assert client.ledger.pending is None
    secrets = everyone.secrets_of(
        VICTIM, stored.pending.secret_randomness, everyone.server.stage.context
    )
    advertised = body_of(step.answer)
    assert advertised.masking_key == secrets.masking.public.data
    assert stored.seen == 1
    assert stored.pending.plain_input == everyone.histograms[VICTIM]
