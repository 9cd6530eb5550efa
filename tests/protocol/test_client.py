"""The two state machines: every message in every state, every lie, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client import (
    Advertised,
    Client,
    Consented,
    Idle,
    Revealed,
    Sent,
    Shared,
)
from fedforget.protocol.errors import (
    AliveAndDeadError,
    BadShareError,
    BadSignatureError,
    BaseMismatchError,
    ChangedParticipantsError,
    MalformedError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    SecondSurvivorSetError,
    TooFewError,
    UnknownPartyError,
    WrongFederationError,
    WrongLengthError,
)
from fedforget.protocol.federation import EVERYONE, SERVER
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import Identity
from fedforget.protocol.memory import freeze, thaw
from fedforget.protocol.messages import (
    Advertise,
    Body,
    Consent,
    Context,
    Delivery,
    Letter,
    Masked,
    Notice,
    Open,
    Payload,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Unmask,
    consent_to,
    seal,
)
from fedforget.protocol.server import Server, Stage
from parties import (
    ANSWERED,
    MODEL,
    Everyone,
    Step,
    body_of,
    changed,
    histogram,
    server_state,
    state_of,
    unchanged,
    with_ledger,
)

ME, OTHER, GONE = "c000", "c001", "c003"
STATES = (Idle, Advertised, Shared, Sent, Consented, Revealed)


@cache
def story() -> Everyone:
    """Four members: a full round, then a delta round in which one vanishes after sharing."""
    everyone = Everyone(4, seed="story")
    everyone.round("full")
    everyone.histograms[OTHER] = histogram(((7, 7), 7))
    everyone.round("delta", {Stage.MASK: [GONE]})
    return everyone


def first_round() -> list[Step]:
    return story().history[:6]


def second_round() -> list[Step]:
    return story().history[6:]


def context() -> Context:
    return second_round()[0].context


def client_in(state: type) -> Client:
    """The first member as it was in the second round, made again from its messages."""
    client = story().new_client(ME)
    steps = first_round() + second_round()[: STATES.index(state)]
    for step in steps:
        assert client.receive(step.asked[ME]) == step.answers.get(ME)
    assert isinstance(client.stage, state)
    return client


def signed(body: Body, **fields: Any) -> bytes:
    """A body from the server to the first member, in the second round's context."""
    return story().from_server(ME, body, changed(context(), **fields))


def asked(at: int, steps: Callable[[], list[Step]] = second_round) -> bytes:
    return steps()[at].asked[ME]


def refused(client: Client, data: bytes, error: type[ProtocolError]) -> None:
    """A message is refused by name, and nothing has changed."""
    before = state_of(client)
    with pytest.raises(error) as caught:
        client.receive(data)
    assert caught.type is error
    assert unchanged(client, before)


def payload_of(data: bytes) -> Payload:
    return Letter(data).payload


# -- every message in every state of a client --------------------------------------------------


def notice() -> bytes:
    """The first round's commit notice."""
    data = body_of(asked(0)).notice
    assert isinstance(data, bytes)
    return data


def roster_without_gone() -> Roster:
    honest = body_of(asked(1))
    kept = tuple(data for data in honest.advertisements if payload_of(data).sender != GONE)
    return Roster(honest.participants[:3], kept)


def delivery_without_gone() -> Delivery:
    honest = body_of(asked(2))
    return Delivery(honest.sharers[:3], tuple(one for one in honest.sealed if one[0] != GONE))


def older_notice() -> bytes:
    body = Notice((), (), MODEL)
    return story().from_server(EVERYONE, body, changed(context(), round=0))


MESSAGES: dict[str, Callable[[], bytes]] = {
    "open": lambda: asked(0),
    "open, other bytes": lambda: signed(Open(notice()), salt=b"another"),
    "open, older attempt": lambda: signed(Open(notice()), attempt=0),
    "open, older round": lambda: asked(0, first_round),
    "open, next attempt": lambda: signed(Open(notice()), attempt=2),
    "open, next round": lambda: signed(Open(notice()), round=3),
    "open, last commit forgotten": lambda: signed(Open(None), attempt=2),
    "open, older commit": lambda: signed(Open(older_notice()), attempt=2),
    "roster": lambda: asked(1),
    "roster, others": lambda: signed(roster_without_gone()),
    "roster, last round": lambda: asked(1, first_round),
    "roster, next attempt": lambda: signed(body_of(asked(1)), attempt=2),
    "delivery": lambda: asked(2),
    "delivery, others": lambda: signed(delivery_without_gone()),
    "delivery, last round": lambda: asked(2, first_round),
    "delivery, next attempt": lambda: signed(body_of(asked(2)), attempt=2),
    "survivors": lambda: asked(3),
    "survivors, others": lambda: signed(Survivors(story().names, ())),
    "survivors, last round": lambda: asked(3, first_round),
    "survivors, next attempt": lambda: signed(body_of(asked(3)), attempt=2),
    "unmask": lambda: asked(4),
    "unmask, unsigned": lambda: signed(Unmask(())),
    "unmask, last round": lambda: asked(4, first_round),
    "unmask, next attempt": lambda: signed(body_of(asked(4)), attempt=2),
    "notice": lambda: asked(5),
    "notice, seen": notice,
    "notice, older": older_notice,
    "advertise": lambda: signed(body_of(second_round()[0].answers[OTHER])),
    "shares": lambda: signed(body_of(second_round()[1].answers[OTHER])),
    "masked": lambda: signed(body_of(second_round()[2].answers[OTHER])),
    "consent": lambda: signed(body_of(second_round()[3].answers[OTHER])),
    "reveal": lambda: signed(body_of(second_round()[4].answers[OTHER])),
    "advertise, a client's": lambda: second_round()[0].answers[OTHER],
    "shares, a client's": lambda: second_round()[1].answers[OTHER],
    "masked, a client's": lambda: second_round()[2].answers[OTHER],
    "consent, a client's": lambda: second_round()[3].answers[OTHER],
    "reveal, a client's": lambda: second_round()[4].answers[OTHER],
    "advertise, its own": lambda: second_round()[0].answers[ME],
}
# Columns are the states, in their order.  L: legal, and leads on.  R: sent again, the same answer.
# N: legal, and changes nothing.  Else the error.
TABLE = {
    "open": "LROOOO",
    "open, other bytes": "LOOOOO",
    "open, older attempt": "LOOOOO",
    "open, older round": "OOOOOO",
    "open, next attempt": "LLLLLL",
    "open, next round": "LLLLLL",
    "open, last commit forgotten": "OOOOOO",
    "open, older commit": "OOOOOO",
    "roster": "OLROOO",
    "roster, others": "OLCCCO",
    "roster, last round": "OOOOOO",
    "roster, next attempt": "OOOOOO",
    "delivery": "OOLROO",
    "delivery, others": "OOLOOO",
    "delivery, last round": "OOOOOO",
    "delivery, next attempt": "OOOOOO",
    "survivors": "OOOLRO",
    "survivors, others": "OOOLSO",
    "survivors, last round": "OOOOOO",
    "survivors, next attempt": "OOOOOO",
    "unmask": "OOOOLR",
    "unmask, unsigned": "OOOOTO",
    "unmask, last round": "OOOOOO",
    "unmask, next attempt": "OOOOOO",
    "notice": "LLLLLL",
    "notice, seen": "NNNNNN",
    "notice, older": "OOOOOO",
    "advertise": "OOOOOO",
    "shares": "OOOOOO",
    "masked": "OOOOOO",
    "consent": "OOOOOO",
    "reveal": "OOOOOO",
    "advertise, a client's": "UUUUUU",
    "shares, a client's": "UUUUUU",
    "masked, a client's": "UUUUUU",
    "consent, a client's": "UUUUUU",
    "reveal, a client's": "UUUUUU",
    "advertise, its own": "UUUUUU",
}
ERRORS = {
    "O": OutOfOrderError,
    "C": ChangedParticipantsError,
    "S": SecondSurvivorSetError,
    "T": TooFewError,
    "U": UnknownPartyError,
}
LEADS_TO = {
    "open": Advertised,
    "roster": Shared,
    "delivery": Sent,
    "survivors": Consented,
    "unmask": Revealed,
    "notice": Idle,
}


def test_the_table_is_complete() -> None:
    assert TABLE.keys() == MESSAGES.keys()
    assert {len(row) for row in TABLE.values()} == {len(STATES)}
    server_bodies = {"open", "roster", "delivery", "survivors", "unmask", "notice"}
    client_bodies = {"advertise", "shares", "masked", "consent", "reveal"}
    assert {name.split(",")[0] for name in TABLE} == server_bodies | client_bodies


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("message", TABLE)
def test_every_message_in_every_state_of_a_client(message: str, state: type) -> None:
    client, data = client_in(state), MESSAGES[message]()
    expected = TABLE[message][STATES.index(state)]
    if expected in ERRORS:
        refused(client, data, ERRORS[expected])
        return
    before = state_of(client)
    answer = client.receive(data)
    if expected == "R":
        assert unchanged(client, before)
        assert answer == client_in(state)._last[1]
    elif expected == "N":
        assert answer is None
        assert (client.stage, client.ledger) == before[:2]
    else:
        kind = message.split(",")[0]
        assert isinstance(client.stage, LEADS_TO[kind])
        assert (answer is None) == (kind == "notice")
        # Whatever is answered can be asked for again, as long as nothing else came.
        assert client.receive(data) == answer


@pytest.mark.parametrize("state", STATES[1:], ids=lambda state: state.__name__)
def test_a_refusal_does_not_stop_a_client(state: type) -> None:
    """After every message that is refused, the honest one is answered as if nothing had been."""
    client = client_in(state)
    at = STATES.index(state)
    for message, row in TABLE.items():
        if row[at] in ERRORS:
            refused(client, MESSAGES[message](), ERRORS[row[at]])
    if at < 5:
        assert client.receive(asked(at)) == second_round()[at].answers[ME]
    else:
        client.receive(asked(5))
        assert client.stage == Idle()


@pytest.mark.parametrize("at", range(5))
def test_the_last_message_again_has_the_same_answer_until_another_is_taken(at: int) -> None:
    client = client_in(STATES[at])
    answer = client.receive(asked(at))
    for _ in range(3):
        refused(client, b"noise", MalformedError)
        assert client.receive(asked(at)) == answer
    client.receive(signed(Open(notice()), attempt=9))
    refused(client, asked(at), OutOfOrderError)


def test_a_notice_seen_before_does_not_take_the_last_answer_away() -> None:
    """A notice may be delivered twice, and late: between a message and its being sent again."""
    client = client_in(Shared)
    client.receive(notice())
    assert client.receive(asked(1)) == second_round()[1].answers[ME]


# -- what a message must not be torn out of ----------------------------------------------------

FOREIGN = {
    "federation": (bytes(16), WrongFederationError),
    "configuration": (bytes(32), WrongFederationError),
    "membership": (bytes(32), WrongFederationError),
    "epoch": (2, OutOfOrderError),
    "round": (3, OutOfOrderError),
    "attempt": (2, OutOfOrderError),
    "kind": ("full", OutOfOrderError),
    "capacity": (17, OutOfOrderError),
    "salt": (b"", OutOfOrderError),
}


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("field", FOREIGN)
def test_a_message_of_another_context_is_refused(at: int, field: str) -> None:
    value, error = FOREIGN[field]
    data = signed(body_of(asked(at)), **{field: value})
    refused(client_in(STATES[at]), data, error)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("field", ["federation", "configuration", "membership"])
def test_an_attempt_of_another_federation_is_refused(state: type, field: str) -> None:
    data = signed(Open(notice()), attempt=2, **{field: FOREIGN[field][0]})
    refused(client_in(state), data, WrongFederationError)


@pytest.mark.parametrize("field", ["federation", "configuration"])
def test_a_notice_of_another_federation_is_refused(field: str) -> None:
    foreign = changed(context(), **{field: FOREIGN[field][0]})
    data = story().from_server(EVERYONE, Notice((), (), MODEL), foreign)
    for state in STATES:
        refused(client_in(state), data, WrongFederationError)
        refused(client_in(state), signed(Open(data), attempt=2), WrongFederationError)


def test_what_comes_as_a_notice_in_an_open_must_be_one() -> None:
    for state in STATES:
        for data, error in (
            (asked(1), OutOfOrderError),
            (b"nonsense", MalformedError),
            (seal(payload_of(notice()), story().identities[OTHER]), BadSignatureError),
        ):
            refused(client_in(state), signed(Open(data), attempt=2), error)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_the_epoch_is_the_membership_s(state: type) -> None:
    """The number alone must not make a new epoch: it would allow a second set of survivors."""
    client, before = client_in(state), state_of(client_in(state))
    with pytest.raises((WrongFederationError, OutOfOrderError)):
        client.receive(signed(Open(notice()), epoch=2))
    assert client.ledger == before[1]
    assert type(client.stage) is state


def test_a_committed_round_is_over() -> None:
    """Another attempt at it would be summed up again, and its notice passed over as seen."""
    client = client_in(Revealed)
    client.receive(asked(5))
    refused(client, signed(Open(asked(5)), attempt=2), OutOfOrderError)


@pytest.mark.parametrize("at", range(6))
def test_only_the_server_s_signature_counts(at: int) -> None:
    payload = payload_of(asked(at))
    for identity in (story().identities[OTHER], story().identities[ME], Identity(bytes(32))):
        refused(client_in(STATES[at]), seal(payload, identity), BadSignatureError)
    outer = msgspec.msgpack.decode(asked(at))
    for position in (0, 31, 63):
        spoiled = bytearray(outer[1])
        spoiled[position] ^= 1
        data = msgspec.msgpack.encode([outer[0], bytes(spoiled)])
        refused(client_in(STATES[at]), data, BadSignatureError)
    # One bit of the signed part, in the federation's identifier.
    spoiled = bytearray(outer[0])
    spoiled[10] ^= 1
    data = msgspec.msgpack.encode([bytes(spoiled), outer[1]])
    refused(client_in(STATES[at]), data, BadSignatureError)


@pytest.mark.parametrize("at", range(5))
def test_a_message_to_somebody_else_is_refused(at: int) -> None:
    client = client_in(STATES[at])
    body = body_of(asked(at))
    for recipient in (OTHER, EVERYONE, SERVER, "stranger"):
        refused(client, story().from_server(recipient, body, context()), UnknownPartyError)
    server = story().identities[SERVER]
    for sender in (OTHER, ME, "stranger", EVERYONE):
        refused(client, seal(Payload(context(), sender, ME, body), server), UnknownPartyError)


# -- lies at each stage ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "capacity"),
    [("full", 15), ("full", 17), ("full", 32), ("delta", 15), ("delta", 33), ("delta", 0)],
)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_an_attempt_of_a_wrong_capacity_is_refused(kind: str, capacity: int, state: type) -> None:
    assert story().membership.capacity == 16
    data = signed(Open(notice()), attempt=2, kind=kind, capacity=capacity)
    refused(client_in(state), data, WrongLengthError)


def lie_in_a_roster(lie: str) -> Roster:
    honest = body_of(asked(1))
    names, advertisements = honest.participants, honest.advertisements
    old = {name: first_round()[0].answers[name] for name in story().names}
    # Low order: everybody's shared secret with this key is zero.
    low = Advertise(bytes(32), body_of(second_round()[0].answers[OTHER]).masking_key)
    fake = Payload(context(), OTHER, SERVER, body_of(second_round()[0].answers["c002"]))
    return {
        "unsorted": Roster(names[::-1], advertisements),
        "twice": Roster((*names[:1], *names), advertisements),
        "unknown": Roster((*names, "stranger"), advertisements),
        "the server takes part": Roster(("*", *names), advertisements),
        "left out": Roster(names[1:], advertisements),
        "too few": Roster(names[:2], advertisements[:1]),
        "missing": Roster(names, advertisements[1:]),
        "none": Roster(names, ()),
        "doubled": Roster(names, (*advertisements, advertisements[0])),
        "replaced by another": Roster(names, (*advertisements[:2], advertisements[0])),
        "its own": Roster(names, (*advertisements[:2], second_round()[0].answers[ME])),
        "nobody's neighbour": Roster(names[:3], advertisements),
        "of the last round": Roster(names, (old[OTHER], *advertisements[1:])),
        "other body": Roster(names, (second_round()[1].answers[OTHER], *advertisements[1:])),
        "substituted": Roster(names, (seal(fake, story().identities[SERVER]), *advertisements[1:])),
        "by the server": Roster(names, (asked(0), *advertisements[1:])),
        "malformed": Roster(names, (b"\x92\xc4\x00\xc4\x00", *advertisements[1:])),
        "low order": Roster(
            names, (story().from_client(OTHER, low, context()), *advertisements[1:])
        ),
    }[lie]


@pytest.mark.parametrize(
    ("lie", "error"),
    {
        "unsorted": ChangedParticipantsError,
        "twice": ChangedParticipantsError,
        "unknown": UnknownPartyError,
        "the server takes part": UnknownPartyError,
        "left out": ChangedParticipantsError,
        "too few": TooFewError,
        "missing": ChangedParticipantsError,
        "none": ChangedParticipantsError,
        "doubled": ChangedParticipantsError,
        "replaced by another": ChangedParticipantsError,
        "its own": ChangedParticipantsError,
        "nobody's neighbour": ChangedParticipantsError,
        "of the last round": OutOfOrderError,
        "other body": OutOfOrderError,
        "substituted": BadSignatureError,
        "by the server": ChangedParticipantsError,
        "malformed": MalformedError,
        "low order": BadShareError,
    }.items(),
)
def test_a_roster_that_lies_is_refused(lie: str, error: type[ProtocolError]) -> None:
    client = client_in(Advertised)
    refused(client, signed(lie_in_a_roster(lie)), error)
    client.receive(asked(1))
    assert isinstance(client.stage, Shared)


def spoilt(sealed: tuple[tuple[str, bytes], ...], at: int) -> tuple[tuple[str, bytes], ...]:
    name, ciphertext = sealed[0]
    wrong = bytearray(ciphertext)
    wrong[at] ^= 1
    return ((name, bytes(wrong)), *sealed[1:])


def lie_in_a_delivery(lie: str) -> Delivery:
    honest = body_of(asked(2))
    names, sealed = honest.sharers, honest.sealed
    old = dict(body_of(asked(2, first_round)).sealed)
    # What the first member itself sealed for the second one, sent back to it.
    own = dict(body_of(second_round()[1].answers[ME]).sealed)
    return {
        "unsorted": Delivery(names[::-1], sealed),
        "twice": Delivery((*names, names[-1]), sealed),
        "somebody new": Delivery((*names, "stranger"), sealed),
        "left out": Delivery(names[1:], sealed),
        "too few": Delivery(names[:2], sealed[:1]),
        "missing": Delivery(names, sealed[1:]),
        "surplus": Delivery(names[:3], sealed),
        "doubled": Delivery(names, (*sealed, sealed[0])),
        "its own": Delivery(names, ((ME, sealed[0][1]), *sealed)),
        "first bit": Delivery(names, spoilt(sealed, 0)),
        "last bit": Delivery(names, spoilt(sealed, -1)),
        "swapped": Delivery(
            names, ((sealed[0][0], sealed[1][1]), (sealed[1][0], sealed[0][1]), sealed[2])
        ),
        "of the last round": Delivery(names, ((OTHER, old[OTHER]), *sealed[1:])),
        "reflected": Delivery(names, ((OTHER, own[OTHER]), *sealed[1:])),
    }[lie]


@pytest.mark.parametrize(
    ("lie", "error"),
    {
        "unsorted": ChangedParticipantsError,
        "twice": ChangedParticipantsError,
        "somebody new": ChangedParticipantsError,
        "left out": ChangedParticipantsError,
        "too few": TooFewError,
        "missing": ChangedParticipantsError,
        "surplus": ChangedParticipantsError,
        "doubled": ChangedParticipantsError,
        "its own": ChangedParticipantsError,
        "first bit": BadShareError,
        "last bit": BadShareError,
        "swapped": BadShareError,
        "of the last round": BadShareError,
        "reflected": BadShareError,
    }.items(),
)
def test_a_delivery_that_lies_is_refused(lie: str, error: type[ProtocolError]) -> None:
    client = client_in(Shared)
    refused(client, signed(lie_in_a_delivery(lie)), error)
    assert client.receive(asked(2)) == second_round()[2].answers[ME]


@pytest.mark.parametrize(
    ("alive", "dead", "error"),
    [
        ("012", "23", AliveAndDeadError),
        ("0123", "0", AliveAndDeadError),
        ("0123", "3", AliveAndDeadError),
        ("012", "012", AliveAndDeadError),
        ("210", "3", ChangedParticipantsError),
        ("0012", "3", ChangedParticipantsError),
        ("012", "33", ChangedParticipantsError),
        ("012", "", ChangedParticipantsError),
        ("01", "3", ChangedParticipantsError),
        ("01234", "", ChangedParticipantsError),
        ("012", "34", ChangedParticipantsError),
        ("123", "0", ChangedParticipantsError),
        ("", "0123", ChangedParticipantsError),
        ("01", "23", TooFewError),
        ("0", "123", TooFewError),
    ],
)
def test_survivors_that_would_expose_somebody_are_refused(
    alive: str, dead: str, error: type[ProtocolError]
) -> None:
    client = client_in(Sent)
    lists = (tuple(f"c00{digit}" for digit in digits) for digits in (alive, dead))
    refused(client, signed(Survivors(*lists)), error)
    assert client.receive(asked(3)) == second_round()[3].answers[ME]


def agreed_by(name: str, alive: tuple[str, ...], dead: tuple[str, ...], **fields: Any) -> bytes:
    return story().identities[name].sign(consent_to(changed(context(), **fields), alive, dead))


def lie_in_an_unmask(lie: str) -> Unmask:
    alive, dead = story().names[:3], (GONE,)
    one, other = ((name, agreed_by(name, alive, dead)) for name in alive[1:])
    return {
        "none": Unmask(()),
        "one too few": Unmask((one,)),
        "twice": Unmask((one, one)),
        "the dead one's": Unmask((one, (GONE, agreed_by(GONE, alive, dead)))),
        "its own": Unmask((one, (ME, agreed_by(ME, alive, dead)))),
        "a stranger's": Unmask((one, ("stranger", one[1]))),
        "the server's": Unmask((one, ("c002", agreed_by(SERVER, alive, dead)))),
        "swapped": Unmask(((one[0], other[1]), (other[0], one[1]))),
        "other survivors": Unmask((one, ("c002", agreed_by("c002", (*alive, GONE), ())))),
        "lists exchanged": Unmask((one, ("c002", agreed_by("c002", dead, alive)))),
        "one list": Unmask((one, ("c002", agreed_by("c002", (*alive, GONE), dead)))),
        "other attempt": Unmask((one, ("c002", agreed_by("c002", alive, dead, attempt=2)))),
        "last round": Unmask((one, ("c002", agreed_by("c002", alive, dead, round=1)))),
        "other salt": Unmask((one, ("c002", agreed_by("c002", alive, dead, salt=b"")))),
    }[lie]


@pytest.mark.parametrize(
    ("lie", "error"),
    {
        "none": TooFewError,
        "one too few": TooFewError,
        "twice": ChangedParticipantsError,
        "the dead one's": ChangedParticipantsError,
        "its own": ChangedParticipantsError,
        "a stranger's": ChangedParticipantsError,
        "the server's": BadSignatureError,
        "swapped": BadSignatureError,
        "other survivors": BadSignatureError,
        "lists exchanged": BadSignatureError,
        "one list": BadSignatureError,
        "other attempt": BadSignatureError,
        "last round": BadSignatureError,
        "other salt": BadSignatureError,
    }.items(),
)
def test_an_unmask_without_enough_matching_signatures_is_refused(
    lie: str, error: type[ProtocolError]
) -> None:
    client = client_in(Consented)
    refused(client, signed(lie_in_an_unmask(lie)), error)
    assert client.receive(asked(4)) == second_round()[4].answers[ME]


def test_a_neighbour_s_low_order_masking_key_is_refused() -> None:
    """The mask shared with its owner would be known to everybody."""
    everyone = Everyone(3, seed="low order")
    everyone.ask(everyone.server.open("full"))
    honest = everyone.history[0].answers
    forged = everyone.from_client("c001", Advertise(body_of(honest["c001"]).sharing_key, bytes(32)))
    sealed = []
    for name in everyone.names[1:]:
        shares = body_of(everyone.clients[name].receive(roster_for(everyone, name)))
        sealed.append((name, dict(shares.sealed)[ME]))
    client, refusals = everyone.clients[ME], []
    for body in (
        Roster(everyone.names, (forged, honest["c002"])),
        Delivery(everyone.names, tuple(sealed)),
    ):
        before = state_of(client)
        try:
            client.receive(everyone.from_server(ME, body))
        except BadShareError as error:
            refusals.append(error)
            assert unchanged(client, before)
    assert refusals
    assert isinstance(client.stage, Advertised | Shared)


def roster_for(everyone: Everyone, name: str) -> bytes:
    honest = everyone.history[0].answers
    others = tuple(honest[other] for other in everyone.names if other != name)
    return everyone.from_server(name, Roster(everyone.names, others))


def test_a_client_is_a_member_with_its_key() -> None:
    everyone = story()
    with pytest.raises(UnknownPartyError):
        Client(
            ME, everyone.identities[OTHER], everyone.federation, everyone.membership, lambda: None
        )
    client = client_in(Sent)
    before = state_of(client)
    with pytest.raises(OutOfOrderError):
        client.adopt(everyone.members(1, everyone.names))
    with pytest.raises(UnknownPartyError):
        client.adopt(everyone.members(2, everyone.names[1:]))
    assert unchanged(client, before)


def test_a_new_membership_ends_the_attempt_and_refuses_the_old_one() -> None:
    client = client_in(Consented)
    later = story().members(2, story().names[:3])
    client.adopt(later)
    assert client.stage == Idle()
    refused(client, asked(4), WrongFederationError)
    refused(client, signed(Open(notice()), attempt=2), WrongFederationError)
    fields = {"membership": later.digest, "epoch": 2, "round": 3, "kind": "full", "capacity": 12}
    assert client.receive(signed(Open(notice()), **fields)) is not None


# -- an attempt between two processes ----------------------------------------------------------


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_a_remembered_attempt_goes_on_as_if_nothing_had_been(state: type) -> None:
    at = STATES.index(state)
    before = client_in(state)
    client = story().new_client(ME, before.ledger)
    thaw(client, freeze(before))
    assert isinstance(client.stage, state)
    if at:
        assert client.receive(asked(at - 1)) == second_round()[at - 1].answers[ME]
    # The randomness of another process is another one: keys and shares differ, all else is equal.
    answer = client.receive(asked(at))
    assert (answer == second_round()[at].answers.get(ME)) == (at > 1)


def test_a_damaged_memory_of_an_attempt_is_refused_by_name() -> None:
    for state in STATES:
        data = freeze(client_in(state))
        client = client_in(Idle)
        before = state_of(client)
        for size in range(0, len(data), 7):
            with pytest.raises(MalformedError):
                thaw(client, data[:size])
        for noise in (b"\xff" * 20, b"\x94\xa1\xff\x90\xc4\x00\xc0", b"\x94\xa4Idle\x90\xc4\x00"):
            with pytest.raises(MalformedError):
                thaw(client, noise)
        assert unchanged(client, before)


def test_two_memories_of_one_attempt_do_not_reveal_for_two_sets() -> None:
    """A process dies after its answer is sent and before its memory is, so the next one stands at
    an earlier stage and agrees to other survivors.  The ledger, which lasts, must tell."""
    everyone = Everyone(4, seed="memories")
    everyone.until(Stage.CONSENT)
    client = everyone.clients[ME]
    sent = freeze(client)
    names = everyone.names
    views = [Survivors(names, ()), Survivors(names[:3], names[3:])]
    agreed = []
    for view in views:
        thaw(client, sent)
        client.receive(everyone.from_server(ME, view))
        agreed.append(freeze(client))
    unmasks = []
    for view in views:
        data = consent_to(everyone.context, view.alive, view.dead)
        signatures = tuple((name, everyone.identities[name].sign(data)) for name in names[1:3])
        unmasks.append(everyone.from_server(ME, Unmask(signatures)))
    thaw(client, agreed[0])
    client.receive(unmasks[0])
    assert client.ledger.answered is not None
    thaw(client, agreed[1])
    refused(client, unmasks[1], SecondSurvivorSetError)


# -- one set of survivors between two commits --------------------------------------------------


@pytest.mark.parametrize("where", ["attempt", "round"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_set_of_survivors_is_refused_across(where: str, restarted: bool) -> None:
    """Also by a client that has lost everything but its ledger."""
    everyone = Everyone(5, seed="second set")
    everyone.round("full")
    for message in everyone.until(Stage.UNMASK):
        everyone.clients[message.recipient].receive(message.data)
    assert all(client.ledger.answered is not None for client in everyone.clients.values())
    if restarted:
        for name in everyone.names:
            everyone.clients[name] = everyone.new_client(name, everyone.clients[name].ledger)
    # The server forgets what it has asked for, and leaves one out.
    everyone.server.ledger = replace(everyone.server.ledger, exposed=None)
    if where == "attempt":
        attempt = everyone.server.ledger.attempt
        everyone.server.ledger = replace(everyone.server.ledger, round=1, attempt=attempt)
        messages = everyone.server.open("full")
        messages = everyone.server._open_attempt("full", everyone.membership.capacity)
    else:
        messages = everyone.server.open("full")
    for lost in ((), (), [GONE]):
        everyone.ask(messages, lost)
        messages = everyone.server.advance()
    before = {name: state_of(client) for name, client in everyone.clients.items()}
    step = everyone.ask(messages)
    assert step.stage is Stage.CONSENT
    assert {type(error) for error in step.refusals.values()} == {SecondSurvivorSetError}
    assert set(step.refusals) == set(everyone.names) - {GONE}
    assert all(unchanged(everyone.clients[name], before[name]) for name in everyone.names)


def test_the_same_survivors_may_be_answered_for_again() -> None:
    everyone = Everyone(5, seed="again")
    first = everyone.decide("full", {Stage.MASK: [GONE]})
    everyone.server.abandon()
    second = everyone.decide("full")
    assert second == first
    assert everyone.server.exposed == first.survivors
    everyone.commit()
    assert everyone.round("full").survivors == everyone.names


def test_another_set_may_follow_a_commit_or_in_a_new_epoch() -> None:
    everyone = Everyone(5, seed="another")
    everyone.round("full")
    assert everyone.round("full", {Stage.MASK: [GONE]}).survivors != everyone.names
    everyone.decide("full", {Stage.MASK: [ME]})
    everyone.adopt(everyone.members(2, everyone.names))
    result = everyone.round("full")
    assert result.survivors == everyone.names
    assert result.total == everyone.total(everyone.names)


# -- base and pending --------------------------------------------------------------------------


def three_rounds_old() -> Everyone:
    everyone = Everyone(4, seed="base")
    everyone.round("full")
    return everyone


def test_the_base_moves_on_a_notice_that_counts_the_client() -> None:
    everyone = three_rounds_old()
    client = everyone.clients[ME]
    assert client.ledger.base == everyone.histograms[ME]
    assert (client.ledger.base_round, client.ledger.committed) == (1, (1, 1))
    old, new = everyone.histograms[ME], histogram(((9, 9), 9))
    everyone.histograms[ME] = new
    everyone.decide("delta")
    assert (client.ledger.base, client.ledger.pending, client.ledger.pending_round) == (old, new, 2)
    everyone.commit()
    assert (client.ledger.base, client.ledger.pending, client.ledger.base_round) == (new, None, 2)


@pytest.mark.parametrize("stage", ANSWERED[:3])
def test_the_base_stays_where_the_client_was_not_counted(stage: Stage) -> None:
    everyone = three_rounds_old()
    client = everyone.clients[ME]
    old = everyone.histograms[ME]
    everyone.histograms[ME] = new = histogram(((9, 9), 9))
    everyone.round("delta", {stage: [ME]})
    assert (client.ledger.base, client.ledger.base_round) == (old, 1)
    assert client.ledger.pending is None
    assert everyone.round("delta").total == new - old
    assert client.ledger.base == new


@pytest.mark.parametrize("stage", ANSWERED[:3])
def test_a_client_that_a_full_round_did_not_count_starts_from_nothing(stage: Stage) -> None:
    everyone = three_rounds_old()
    everyone.round("full", {stage: [ME]})
    ledger = everyone.clients[ME].ledger
    assert (ledger.base, ledger.base_round, ledger.pending) == (Histogram(2), 0, None)
    assert everyone.round("delta").total == everyone.histograms[ME]


def test_a_missed_notice_comes_with_the_next_open() -> None:
    everyone = three_rounds_old()
    client = everyone.clients[ME]
    everyone.histograms[ME] = new = histogram(((9, 9), 9))
    everyone.round("delta", {Stage.DECIDED: [ME]})
    assert client.ledger.committed == (1, 1)
    assert client.ledger.pending == new
    everyone.histograms[ME] = newer = histogram(((8, 8), 8))
    messages = dict(everyone.server.open("delta"))
    client.receive(messages[ME])
    assert (client.ledger.base, client.ledger.committed) == (new, (1, 2))
    assert everyone.round("delta").total == newer - new


def test_two_missed_notices_are_made_up_for_by_the_last_one() -> None:
    everyone = three_rounds_old()
    everyone.histograms[ME] = new = histogram(((9, 9), 9))
    everyone.round("delta", {Stage.DECIDED: [ME]})
    everyone.histograms[OTHER] = histogram()
    everyone.round("delta", {Stage.ADVERTISE: [ME], Stage.DECIDED: [ME]})
    everyone.histograms[ME] = newer = histogram(((8, 8), 8))
    assert everyone.round("delta").total == newer - new


def test_a_lost_round_leaves_the_base_and_drops_what_was_pending() -> None:
    everyone = three_rounds_old()
    client, old = everyone.clients[ME], everyone.histograms[ME]
    everyone.histograms[ME] = histogram(((9, 9), 9))
    everyone.until(Stage.CONSENT, "delta")
    everyone.server.abandon()
    assert client.ledger.pending == histogram(((9, 9), 9))
    everyone.histograms[ME] = newer = histogram(((8, 8), 8))
    assert everyone.round("delta").total == newer - old


def test_a_count_that_is_not_remembered_refuses_delta_rounds_and_takes_part_in_full_ones() -> None:
    everyone = three_rounds_old()
    client = everyone.clients[ME]
    with_ledger(client, base_round=7)
    everyone.histograms[OTHER] = histogram()
    everyone.round("delta", {Stage.ADVERTISE: [ME]})
    assert client.ledger.base is None
    assert client.ledger.base_round == 1
    messages = dict(everyone.server.open("delta"))
    refused(client, messages[ME], BaseMismatchError)
    everyone.server.abandon()
    assert everyone.round("full").total == everyone.total(everyone.names)
    assert client.ledger.base == everyone.histograms[ME]
    assert len(everyone.round("delta").total) == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_the_pending_target_is_the_same_in_every_attempt_of_a_round(restarted: bool) -> None:
    everyone = Everyone(3, seed="pending", capacity=40, first_capacity=2)
    everyone.round("full")
    client, old = everyone.clients[ME], everyone.total(everyone.names)
    everyone.histograms[ME] = target = histogram(*(((i, i), i + 1) for i in range(12)))
    messages = everyone.server.open("delta")
    while everyone.server.stage is not Stage.DECIDED:
        if everyone.server.stage is Stage.ADVERTISE and restarted:
            ledger = everyone.clients[ME].ledger
            client = everyone.clients[ME] = everyone.new_client(ME, ledger)
        everyone.ask(messages)
        if everyone.server.stage is Stage.MASK:
            assert client.ledger.pending == target
            everyone.histograms[ME] = histogram(((40, 40), everyone.server.ledger.attempt))
        messages = everyone.server.advance()
    assert everyone.server.ledger.attempt > 2
    assert everyone.server.result is not None
    everyone.histograms[ME] = target
    assert everyone.server.result.total == everyone.total(everyone.names) - old
    everyone.commit()
    assert client.ledger.base == target


def test_the_pending_target_does_not_follow_the_caller_s_object() -> None:
    """A histogram can be changed in place; what was sent once must be sent again."""
    everyone = Everyone(3, seed="in place")
    everyone.until(Stage.CONSENT)
    sent = histogram(*(((3, 3), 3),)) + everyone.histograms[ME]
    everyone.histograms[ME] += histogram(((3, 3), 3))
    assert everyone.histograms[ME] == sent
    assert everyone.clients[ME].ledger.pending != sent


@pytest.mark.parametrize("state", [Advertised, Shared], ids=lambda state: state.__name__)
def test_a_notice_in_between_cannot_break_a_delta_round(state: type) -> None:
    """The base may become unknown after a delta attempt has begun: that is a refusal by name."""
    everyone = Everyone(3, seed="between")
    everyone.server.ledger = replace(everyone.server.ledger, round=5)
    everyone.ask(everyone.server.open("delta"))
    if state is Shared:
        everyone.ask(everyone.server.advance())
    client = everyone.clients[ME]
    assert isinstance(client.stage, state)
    unknown = Notice(everyone.names, ((ME, 2),), MODEL)
    client.receive(everyone.from_server(EVERYONE, unknown, changed(everyone.context, round=3)))
    # It may sit the attempt out at once, or refuse when it would have to send its change.
    refusals: list[ProtocolError] = []
    for _ in range(2 if state is Advertised else 1):
        refusals += everyone.ask(everyone.server.advance()).refusals.values()
    assert {type(error) for error in refusals} <= {BaseMismatchError, OutOfOrderError}
    assert refusals


# -- every message at every stage of the server ------------------------------------------------

STAGES = (Stage.IDLE, *ANSWERED, Stage.DECIDED)


def server_at(stage: Stage) -> Server:
    """The server as it was in the second round, before the second member answered."""
    server = story().new_server()
    for steps in (first_round(), second_round()):
        server.open("full" if steps[0].context.round == 1 else "delta")
        last = steps is not first_round() and steps[0] is second_round()[0]
        for step in steps[:5]:
            if last and stage is Stage.IDLE:
                server.abandon()
                return server
            for name, answer in step.answers.items():
                if not (last and step.stage is stage and name == OTHER):
                    server.receive(answer)
            if last and step.stage is stage:
                return server
            server.advance()
        if last:
            return server
        server.commit(MODEL)
    raise AssertionError


def said(at: int, steps: Callable[[], list[Step]] = second_round, name: str = OTHER) -> bytes:
    return steps()[at].answers[name]


def by_client(body: Body, name: str = OTHER, **fields: Any) -> bytes:
    return story().from_client(name, body, changed(context(), **fields))


ANSWERS: dict[str, Callable[[], bytes]] = {
    "advertise": lambda: said(0),
    "shares": lambda: said(1),
    "masked": lambda: said(2),
    "consent": lambda: said(3),
    "reveal": lambda: said(4),
    "advertise, again": lambda: said(0, name=ME),
    "shares, again": lambda: said(1, name=ME),
    "masked, again": lambda: said(2, name=ME),
    "consent, again": lambda: said(3, name=ME),
    "reveal, again": lambda: said(4, name=ME),
    "advertise, otherwise": lambda: by_client(body_of(said(0)), ME),
    "shares, otherwise": lambda: by_client(
        Shares(tuple((name, bytes(82)) for name in story().names[1:])), ME
    ),
    "masked, otherwise": lambda: by_client(body_of(said(2)), ME),
    "masked by one who is lost": lambda: by_client(body_of(said(2)), GONE),
    "consent by one who is lost": lambda: by_client(body_of(said(3)), GONE),
    "advertise, last round": lambda: said(0, first_round),
    "shares, last round": lambda: said(1, first_round),
    "masked, last round": lambda: said(2, first_round),
    "consent, last round": lambda: said(3, first_round),
    "reveal, last round": lambda: said(4, first_round),
    "masked, next attempt": lambda: by_client(body_of(said(2)), attempt=2),
    "masked, other capacity": lambda: by_client(body_of(said(2)), capacity=17),
    "masked, other kind": lambda: by_client(body_of(said(2)), kind="full"),
    "masked, other federation": lambda: by_client(body_of(said(2)), federation=bytes(16)),
    "masked, other membership": lambda: by_client(body_of(said(2)), membership=bytes(32)),
    "masked, other configuration": lambda: by_client(body_of(said(2)), configuration=bytes(32)),
    "open": lambda: by_client(body_of(asked(0))),
    "roster": lambda: by_client(body_of(asked(1))),
    "delivery": lambda: by_client(body_of(asked(2))),
    "survivors": lambda: by_client(body_of(asked(3))),
    "unmask": lambda: by_client(body_of(asked(4))),
    "notice": lambda: by_client(body_of(asked(5))),
    "its own": lambda: asked(2),
    "its own notice": lambda: asked(5),
    "a stranger's": lambda: seal(
        Payload(context(), "stranger", SERVER, body_of(said(2))), Identity(bytes(32))
    ),
    "in another's name": lambda: seal(
        Payload(context(), OTHER, SERVER, body_of(said(2))), story().identities[ME]
    ),
    "to another": lambda: seal(
        Payload(context(), OTHER, ME, body_of(said(2))), story().identities[OTHER]
    ),
}
# Columns are the stages: idle, advertise, share, masked input, consistency, unmask, decided.
# L: taken.  N: taken already, and changes nothing.
SERVER_TABLE = {
    "advertise": "OLOOOOO",
    "shares": "OOLOOOO",
    "masked": "OOOLOOO",
    "consent": "OOOOLOO",
    "reveal": "OOOOOLN",
    "advertise, again": "ONOOOOO",
    "shares, again": "OONOOOO",
    "masked, again": "OOONOOO",
    "consent, again": "OOOONOO",
    "reveal, again": "OOOOONN",
    "advertise, otherwise": "OOOOOOO",
    "shares, otherwise": "OOOOOOO",
    "masked, otherwise": "OOOOOOO",
    "masked by one who is lost": "OOOLOOO",
    "consent by one who is lost": "OOOOOOO",
    "advertise, last round": "OOOOOOO",
    "shares, last round": "OOOOOOO",
    "masked, last round": "OOOOOOO",
    "consent, last round": "OOOOOOO",
    "reveal, last round": "OOOOOOO",
    "masked, next attempt": "OOOOOOO",
    "masked, other capacity": "OOOOOOO",
    "masked, other kind": "OOOOOOO",
    "masked, other federation": "OOOOOOO",
    "masked, other membership": "OOOOOOO",
    "masked, other configuration": "FFFFFFF",
    "open": "OOOOOOO",
    "roster": "OOOOOOO",
    "delivery": "OOOOOOO",
    "survivors": "OOOOOOO",
    "unmask": "OOOOOOO",
    "notice": "OOOOOOO",
    "its own": "UUUUUUU",
    "its own notice": "UUUUUUU",
    "a stranger's": "UUUUUUU",
    "in another's name": "BBBBBBB",
    "to another": "UUUUUUU",
}
SERVER_ERRORS = ERRORS | {"B": BadSignatureError, "F": WrongFederationError}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("message", SERVER_TABLE)
def test_every_message_at_every_stage_of_the_server(message: str, stage: Stage) -> None:
    server, data = server_at(stage), ANSWERS[message]()
    assert server.stage is stage
    before = server_state(server)
    expected = SERVER_TABLE[message][STAGES.index(stage)]
    if expected in SERVER_ERRORS:
        with pytest.raises(SERVER_ERRORS[expected]):
            server.receive(data)
        assert server_state(server) == before
        return
    server.receive(data)
    assert (server_state(server) == before) == (expected == "N")
    taken = server_state(server)
    server.receive(data)
    assert server_state(server) == taken


def test_the_server_s_table_is_complete() -> None:
    assert SERVER_TABLE.keys() == ANSWERS.keys()
    assert {len(row) for row in SERVER_TABLE.values()} == {len(STAGES)}


def wrong_answers() -> dict[str, tuple[Stage, Body, type[ProtocolError]]]:
    shares, masked, reveal = (body_of(said(at)) for at in (1, 2, 4))
    vector = masked.vector
    other = Everyone(4, seed="other").federation.codec(16, b"another salt")
    agreed = agreed_by(OTHER, story().names, ())
    return {
        "shares for fewer": (Stage.SHARE, Shares(shares.sealed[1:]), WrongLengthError),
        "shares in another order": (Stage.SHARE, Shares(shares.sealed[::-1]), WrongLengthError),
        "shares for itself": (
            Stage.SHARE,
            Shares(((OTHER, bytes(82)), *shares.sealed[1:])),
            WrongLengthError,
        ),
        "shares twice": (
            Stage.SHARE,
            Shares((*shares.sealed, shares.sealed[0])),
            WrongLengthError,
        ),
        "empty vector": (Stage.MASK, Masked(b""), WrongLengthError),
        "shorter vector": (Stage.MASK, Masked(vector[:-1]), WrongLengthError),
        "longer vector": (Stage.MASK, Masked(vector + b"\0"), WrongLengthError),
        "vector of another code": (
            Stage.MASK,
            Masked(other.pack(other.encode([[1, 1]], [1]))),
            WrongLengthError,
        ),
        "element above p": (Stage.MASK, Masked(vector[:32] + b"\xff" * 80), WrongLengthError),
        "consent to others": (Stage.CONSENT, Consent(agreed), BadSignatureError),
        "no consent": (Stage.CONSENT, Consent(bytes(64)), BadSignatureError),
        "fewer seeds": (Stage.UNMASK, Reveal(reveal.seeds[1:], reveal.keys), WrongLengthError),
        "no keys": (Stage.UNMASK, Reveal(reveal.seeds, ()), WrongLengthError),
        "seed of the dead": (
            Stage.UNMASK,
            Reveal((*reveal.seeds, reveal.keys[0]), ()),
            WrongLengthError,
        ),
        "keys of all": (
            Stage.UNMASK,
            Reveal(reveal.seeds, reveal.seeds + reveal.keys),
            WrongLengthError,
        ),
        "a seed twice": (
            Stage.UNMASK,
            Reveal((*reveal.seeds, reveal.seeds[0]), reveal.keys),
            WrongLengthError,
        ),
    }


@pytest.mark.parametrize("name", list(wrong_answers()))
def test_an_answer_that_does_not_fit_is_refused(name: str) -> None:
    stage, body, error = wrong_answers()[name]
    server = server_at(stage)
    before = server_state(server)
    with pytest.raises(error):
        server.receive(by_client(body))
    assert server_state(server) == before
    server.receive(said(ANSWERED.index(stage)))


def test_the_whole_vector_of_ones_is_refused() -> None:
    """Every element is above p, and the length and digest are right."""
    server = server_at(Stage.MASK)
    vector = body_of(said(2)).vector
    bits = 62 * server._total.size
    ones = ((1 << bits) - 1).to_bytes(len(vector) - 32, "little")
    with pytest.raises(WrongLengthError, match="below p"):
        server.receive(by_client(Masked(vector[:32] + ones)))


@pytest.mark.parametrize("stage", [Stage.IDLE, Stage.DECIDED])
def test_there_is_no_stage_to_end(stage: Stage) -> None:
    server = server_at(stage)
    before = server_state(server)
    with pytest.raises(OutOfOrderError):
        server.advance()
    assert server_state(server) == before


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_only_a_result_can_be_committed(stage: Stage) -> None:
    server = server_at(stage)
    before = server_state(server)
    with pytest.raises(OutOfOrderError):
        server.commit(MODEL)
    assert server_state(server) == before


@pytest.mark.parametrize("model", [b"", bytes(31), bytes(33)], ids=len)
def test_a_notice_that_nobody_could_read_is_not_committed(model: bytes) -> None:
    """It would come with every later message, and every client would refuse it."""
    server = server_at(Stage.DECIDED)
    before = server_state(server)
    with pytest.raises((ValueError, ProtocolError)):
        server.commit(model)
    assert server_state(server) == before


def test_a_server_has_the_server_s_key_and_goes_forward_only() -> None:
    everyone = story()
    with pytest.raises(UnknownPartyError):
        Server(everyone.identities[ME], everyone.federation, everyone.membership)
    server = server_at(Stage.MASK)
    before = server_state(server)
    with pytest.raises(OutOfOrderError):
        server.adopt(everyone.membership)
    assert server_state(server) == before
    server.adopt(everyone.members(2, everyone.names))
    assert server.stage is Stage.IDLE


def test_no_delta_round_over_somebody_who_has_gone() -> None:
    """Its histogram would be counted for ever; a full round leaves it out."""
    everyone = Everyone(4, seed="gone")
    everyone.round("full")
    everyone.adopt(everyone.members(2, everyone.names[:3], 16))
    ledger = everyone.server.ledger
    with pytest.raises(RoundAbortedError):
        everyone.server.open("delta")
    assert everyone.server.ledger == ledger
    assert everyone.round("full").total == everyone.total(everyone.names[:3])
    assert everyone.server.ledger.counted == dict.fromkeys(everyone.names[:3], 2)
    assert len(everyone.round("delta").total) == 0


def test_somebody_missing_after_an_unmask_calls_for_a_new_epoch() -> None:
    everyone = Everyone(5, seed="epoch")
    everyone.decide("full")
    everyone.server.abandon()
    for stage in (Stage.ADVERTISE, Stage.MASK):
        with pytest.raises(RoundAbortedError) as caught:
            everyone.decide("full", {stage: [GONE]})
        assert caught.value.needs_new_epoch
        assert everyone.server.stage is Stage.IDLE
    everyone.adopt(everyone.members(2, everyone.names))
    result = everyone.round("full", {Stage.MASK: [GONE]})
    assert result.total == everyone.total(result.survivors)
    assert GONE not in result.survivors


def test_between_an_unmask_and_its_commit_only_the_survivors_are_invited() -> None:
    everyone = Everyone(5, seed="invited")
    survivors = everyone.decide("full", {Stage.SHARE: [GONE]}).survivors
    everyone.server.abandon()
    assert tuple(name for name, _ in everyone.server.open("full")) == survivors
    with pytest.raises(OutOfOrderError):
        everyone.server.receive(
            everyone.from_client(
                GONE,
                body_of(everyone.history[0].answers[GONE]),
                changed(everyone.context, round=2),
            )
        )


def test_a_sum_that_is_no_encoding_ends_the_round() -> None:
    """A client that sends noise spoils the round; the sum is not used and the next one is right."""
    everyone = Everyone(3, seed="noise", policy=Policy(minimum=3))
    messages = everyone.until(Stage.MASK)
    for name, data in messages:
        answer = everyone.clients[name].receive(data)
        assert answer is not None
        if name == OTHER:
            vector = body_of(answer).vector
            spoilt_vector = vector[:40] + bytes([vector[40] ^ 1]) + vector[41:]
            answer = everyone.from_client(name, Masked(spoilt_vector))
        everyone.server.receive(answer)
    messages = everyone.server.advance()
    for _ in range(2):
        everyone.ask(messages)
        if everyone.server.stage is Stage.CONSENT:
            messages = everyone.server.advance()
    with pytest.raises(RoundAbortedError, match="corrupted"):
        everyone.server.advance()
    assert everyone.server.stage is Stage.IDLE
    assert everyone.server.ledger.committed_round == 0
    assert everyone.round("full").total == everyone.total(everyone.names)


def test_a_wrong_share_of_a_key_is_noticed() -> None:
    """The rebuilt key is compared with the advertised one, so no mask of another comes off."""
    server = server_at(Stage.UNMASK)
    reveal = body_of(said(4))
    (owner, share), *_ = reveal.keys
    wrong = bytes([share[0] ^ 1]) + share[1:]
    server.receive(by_client(Reveal(reveal.seeds, ((owner, wrong),))))
    with pytest.raises(RoundAbortedError, match="do not give its key"):
        server.advance()
    assert server.stage is Stage.IDLE
    assert server.result is None
