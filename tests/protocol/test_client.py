"""The two state machines: every message in every state, every lie, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fedforget.clustering.histogram import Histogram
from fedforget.protocol.client_ledger import Followed, InputFixed, dump, load
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.client_stages import Advertised, Consented, Resting, Revealed, Sent, Shared
from fedforget.protocol.errors import (
    AliveAndDeadError,
    BadShareError,
    BadSignatureError,
    ChangedParticipantsError,
    ForkError,
    FullRoundNeededError,
    MalformedError,
    MissingNoticeError,
    OlderDirectoryError,
    OutOfOrderError,
    ProtocolError,
    RoundAbortedError,
    SecondSurvivorSetError,
    TooFewError,
    UnknownPartyError,
    WrongFederationError,
    WrongLengthError,
)
from fedforget.protocol.graph import Policy
from fedforget.protocol.keys import Identity
from fedforget.protocol.membership import EVERYONE, SERVER
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
    SealedShares,
    Survivors,
    Unmask,
    Who,
    consent_to,
    digest_of_delivery,
    seal,
    view_of,
)
from fedforget.protocol.server_side import ServerSide
from parties import (
    ANSWERED,
    MODEL,
    Everyone,
    Stage,
    Step,
    body_of,
    came_with,
    changed,
    histogram,
    server_state,
    stage_of,
    state_of,
    unchanged,
    with_ledger,
)

ME, OTHER, GONE = "c000", "c001", "c003"
STATES = (Resting, Advertised, Shared, Sent, Consented, Revealed)


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


def client_in(state: type) -> ClientSide:
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


def refused(client: ClientSide, data: bytes, error: type[ProtocolError]) -> None:
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
    return story().notices[0]


def roster_without_gone() -> Roster:
    honest = body_of(asked(1))
    kept = tuple(data for data in honest.advertisements if payload_of(data).sender != GONE)
    return Roster(honest.participants[:3], kept)


def delivery_without_gone() -> Delivery:
    honest = body_of(asked(2))
    return Delivery(honest.sharers[:3], tuple(one for one in honest.dealt if one.name != GONE))


def older_notice() -> bytes:
    """Of a round before any that was ever run."""
    return story().from_server(EVERYONE, body_of(notice()), changed(context(), round=0))


def other_notice() -> bytes:
    """Of the first round, with other survivors."""
    honest = body_of(notice())
    first = first_round()[0].context
    return story().from_server(EVERYONE, replace(honest, survivors=story().names[:3]), first)


def forged_notice(**fields: Any) -> bytes:
    """The second round's notice, with other fields."""
    return story().from_server(EVERYONE, replace(body_of(asked(5)), **fields), context())


def opening(**fields: Any) -> bytes:
    return signed(Open((notice(),)), **fields)


MESSAGES: dict[str, Callable[[], bytes]] = {
    "open": lambda: asked(0),
    "open, other bytes": lambda: opening(salt=b"another"),
    "open, older attempt": lambda: opening(attempt=1),
    "open, last round": lambda: asked(0, first_round),
    "open, next attempt": lambda: opening(attempt=3),
    "open, committed round": lambda: opening(attempt=3, round=1),
    "open, next round": lambda: opening(attempt=3, round=3),
    "open, another history": lambda: opening(attempt=3, last=bytes(32)),
    "open, another attempt was counted": lambda: opening(attempt=3, last_attempt=7),
    "open, another model": lambda: opening(attempt=3, model=bytes(32)),
    "open, without the notice": lambda: signed(Open(()), attempt=3),
    "open, older commit": lambda: signed(Open((older_notice(),)), attempt=3),
    "open, other commit": lambda: signed(Open((other_notice(),)), attempt=3),
    "open, with this round's notice": lambda: signed(
        Open((asked(5),)),
        attempt=3,
        round=3,
        last=story().server.ledger.place.link,
        last_attempt=2,
    ),
    "roster": lambda: asked(1),
    "roster, others": lambda: signed(roster_without_gone()),
    "roster, last round": lambda: asked(1, first_round),
    "roster, next attempt": lambda: signed(body_of(asked(1)), attempt=3),
    "delivery": lambda: asked(2),
    "delivery, others": lambda: signed(delivery_without_gone()),
    "delivery, last round": lambda: asked(2, first_round),
    "delivery, next attempt": lambda: signed(body_of(asked(2)), attempt=3),
    "survivors": lambda: asked(3),
    "survivors, others": lambda: signed(Survivors(story().names, ())),
    "survivors, last round": lambda: asked(3, first_round),
    "survivors, next attempt": lambda: signed(body_of(asked(3)), attempt=3),
    "unmask": lambda: asked(4),
    "unmask, unsigned": lambda: signed(Unmask(())),
    "unmask, last round": lambda: asked(4, first_round),
    "unmask, next attempt": lambda: signed(body_of(asked(4)), attempt=3),
    "notice": lambda: asked(5),
    "notice, seen": notice,
    "notice, older": older_notice,
    "notice, another of the last round": other_notice,
    "notice, of a round that is to come": lambda: story().from_server(
        EVERYONE, body_of(asked(5)), changed(context(), round=3)
    ),
    "notice, counts another": lambda: forged_notice(counted=(("c000", 2), ("c001", 2))),
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
# N: legal, and changes nothing.  Else the error.  In the first state the client is between rounds,
# and the attempts of the second round are still to come.
TABLE = {
    "open": "LROOOO",
    "open, other bytes": "LOOOOO",
    "open, older attempt": "OOOOOO",
    "open, last round": "OOOOOO",
    "open, next attempt": "LLLLLL",
    "open, committed round": "OOOOOO",
    "open, next round": "MMMMMM",
    "open, another history": "FFFFFF",
    "open, another attempt was counted": "FFFFFF",
    "open, another model": "FFFFFF",
    "open, without the notice": "LLLLLL",
    "open, older commit": "LLLLLL",
    "open, other commit": "FFFFFF",
    "open, with this round's notice": "DDDLLL",
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
    "unmask, unsigned": "OOOOCO",
    "unmask, last round": "OOOOOO",
    "unmask, next attempt": "OOOOOO",
    "notice": "DDDLLL",
    "notice, seen": "NNNNNN",
    "notice, older": "NNNNNN",
    "notice, another of the last round": "FFFFFF",
    "notice, of a round that is to come": "MMMMMM",
    "notice, counts another": "FFFFFF",
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
    "F": ForkError,
    "M": MissingNoticeError,
    "D": OlderDirectoryError,
}
LEADS_TO = {
    "open": Advertised,
    "roster": Shared,
    "delivery": Sent,
    "survivors": Consented,
    "unmask": Revealed,
    "notice": Resting,
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
        assert client.stage == Resting()


@pytest.mark.parametrize("at", range(5))
def test_the_last_message_again_has_the_same_answer_until_another_is_taken(at: int) -> None:
    client = client_in(STATES[at])
    answer = client.receive(asked(at))
    for _ in range(3):
        refused(client, b"noise", MalformedError)
        assert client.receive(asked(at)) == answer
    client.receive(opening(attempt=9))
    refused(client, asked(at), OutOfOrderError)


def test_a_notice_seen_before_does_not_take_the_last_answer_away() -> None:
    """A notice may be delivered twice, and late: between a message and its being sent again."""
    client = client_in(Shared)
    client.receive(notice())
    assert client.receive(asked(1)) == second_round()[1].answers[ME]


# -- what a message must not be torn out of ----------------------------------------------------

FOREIGN: dict[str, tuple[Any, type[ProtocolError]]] = {
    "federation": (bytes(16), WrongFederationError),
    "configuration": (bytes(32), WrongFederationError),
    "membership": (bytes(32), WrongFederationError),
    "epoch": (2, OutOfOrderError),
    "last": (bytes(32), OutOfOrderError),
    "last_attempt": (7, OutOfOrderError),
    "model": (bytes(32), OutOfOrderError),
    "round": (3, OutOfOrderError),
    "attempt": (3, OutOfOrderError),
    "kind": ("full", OutOfOrderError),
    "capacity": (17, OutOfOrderError),
    "salt": (b"", OutOfOrderError),
    "leaving": (("c001",), OutOfOrderError),
    "alone": (("c001",), OutOfOrderError),
}


def test_no_field_of_the_context_is_forgotten_here() -> None:
    assert {*FOREIGN, "version"} == set(Context.__struct_fields__)


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("field", FOREIGN)
def test_a_message_of_another_context_is_refused(at: int, field: str) -> None:
    value, error = FOREIGN[field]
    data = signed(body_of(asked(at)), **{field: value})
    refused(client_in(STATES[at]), data, error)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("field", ["federation", "configuration", "membership", "epoch"])
def test_an_attempt_of_another_federation_is_refused(state: type, field: str) -> None:
    """The number of the epoch alone must not make a new one: it would allow a second set."""
    data = opening(attempt=3, **{field: FOREIGN[field][0]})
    refused(client_in(state), data, WrongFederationError)


@pytest.mark.parametrize("field", ["federation", "configuration"])
def test_a_notice_of_another_federation_is_refused(field: str) -> None:
    foreign = changed(context(), **{field: FOREIGN[field][0]})
    data = story().from_server(EVERYONE, body_of(asked(5)), foreign)
    for state in STATES:
        refused(client_in(state), data, WrongFederationError)
        refused(client_in(state), signed(Open((data,)), attempt=3), WrongFederationError)


def test_a_notice_of_another_list_is_refused() -> None:
    for fields in ({"membership": bytes(32)}, {"epoch": 2}):
        data = story().from_server(EVERYONE, body_of(asked(5)), changed(context(), **fields))
        for state in STATES:
            refused(client_in(state), data, WrongFederationError)


def test_what_comes_as_a_notice_in_an_open_must_be_one() -> None:
    server = story().identities[SERVER]
    for state in STATES:
        for data, error in (
            (asked(1), OutOfOrderError),
            (b"nonsense", MalformedError),
            (seal(payload_of(notice()), story().identities[OTHER]), BadSignatureError),
            (seal(replace(payload_of(notice()), sender=OTHER), server), OutOfOrderError),
        ):
            refused(client_in(state), signed(Open((data,)), attempt=3), error)


NOTICES: dict[str, tuple[Callable[[Notice], Notice], type[ProtocolError]]] = {
    "one survivor less": (
        lambda one: replace(one, survivors=one.survivors[:2]), ForkError
    ),
    "one survivor less, counted rightly": (
        lambda one: replace(
            one,
            survivors=one.survivors[:2],
            counted=(("c000", 2), ("c001", 2), ("c002", 1), ("c003", 1)),
        ),
        TooFewError,
    ),
    "one survivor more": (
        lambda one: replace(
            one,
            survivors=(*one.survivors, GONE),
            counted=tuple((name, 2) for name in story().names),
        ),
        BadSignatureError,
    ),
    "one more counted": (lambda one: replace(one, counted=(*one.counted, ("c009", 1))), ForkError),
    "one counted less": (lambda one: replace(one, counted=one.counted[:3]), ForkError),
    "counted at another round": (
        lambda one: replace(one, counted=(*one.counted[:3], (GONE, 2))), ForkError
    ),
    "counted in another order": (lambda one: replace(one, counted=one.counted[::-1]), ForkError),
    "somebody left": (lambda one: replace(one, left=(OTHER,)), ForkError),
    "no signatures": (lambda one: replace(one, consents=()), TooFewError),
    "one signature less": (lambda one: replace(one, consents=one.consents[1:]), TooFewError),
    "one signature twice": (
        lambda one: replace(one, consents=(*one.consents[1:], one.consents[-1])), TooFewError
    ),
    "a stranger's signature": (
        lambda one: replace(one, consents=(("d000", one.consents[0][1]), *one.consents[1:])),
        TooFewError,
    ),
    "a wrong signature": (
        lambda one: replace(one, consents=((OTHER, bytes(64)), one.consents[0], one.consents[2])),
        BadSignatureError,
    ),
    "another view": (lambda one: replace(one, view=bytes(32)), BadSignatureError),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTICES)
@pytest.mark.parametrize("state", [Resting, Sent], ids=lambda state: state.__name__)
def test_a_notice_that_lies_is_refused(name: str, state: type) -> None:
    """By a member who was away, and by one who has sent its input but signed nothing."""
    make, error = NOTICES[name]
    forged = story().from_server(EVERYONE, make(body_of(asked(5))), context())
    client = client_in(Resting) if state is Resting else client_in(Sent)
    refused(client, forged, error)
    refused(client, signed(Open((forged,)), attempt=3, round=3), error)


@pytest.mark.parametrize("name", NOTICES)
def test_a_notice_that_lies_is_refused_by_one_who_has_revealed(name: str) -> None:
    """It has seen the signatures itself, and does not ask for them again."""
    make, error = NOTICES[name]
    client = client_in(Revealed)
    forged = story().from_server(EVERYONE, make(body_of(asked(5))), context())
    if "signature" in name or "view" in name:
        client.receive(forged)
        assert client.ledger.place == story().clients[ME].ledger.place
    else:
        refused(client, forged, SecondSurvivorSetError if "more" in name[:17] and error is
                BadSignatureError else error)  # fmt: skip


def test_a_committed_round_is_over() -> None:
    """Another attempt at it would be summed up again, and its notice passed over as seen."""
    client = client_in(Revealed)
    client.receive(asked(5))
    refused(client, signed(Open((asked(5),)), attempt=3), OutOfOrderError)


# -- greetings ---------------------------------------------------------------------------------


def who(**fields: Any) -> bytes:
    ours = story().federation
    plain = Who(ours.identifier, ours.configuration, bytes(16), 1, 1)
    return seal(replace(plain, **fields), story().identities[SERVER])


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_a_client_says_what_it_knows_in_any_state_and_stays_there(state: type) -> None:
    client = client_in(state)
    before = state_of(client)
    answer = client.receive(who())
    assert unchanged(client, before)
    assert answer is not None
    greeting = Letter(answer).check(story().identities[ME].public)
    seen = 1 if state is Resting else 2
    assert (greeting.name, greeting.round, greeting.seen) == (ME, 1, seen)
    assert (greeting.epoch, greeting.membership) == (1, story().membership.digest)
    assert greeting.link == client.ledger.place.link
    assert (greeting.needs_full, greeting.leaving) == (False, None)
    # The message before it can still be sent again.
    at = STATES.index(state)
    if at:
        assert client.receive(asked(at - 1)) == second_round()[at - 1].answers[ME]


def test_a_question_of_another_server_is_refused() -> None:
    for state in STATES:
        client = client_in(state)
        refused(client, who(federation=bytes(16)), WrongFederationError)
        refused(client, who(configuration=bytes(32)), WrongFederationError)
        forged = seal(Letter(who()).content, story().identities[OTHER])
        refused(client, forged, BadSignatureError)
        refused(client, client.receive(who()), MalformedError)


def test_greetings_are_answers_to_one_question_by_members() -> None:
    everyone = Everyone(3, seed="greetings")
    question = everyone.server.ask()
    answers = {name: client.receive(question) for name, client in everyone.clients.items()}
    other = everyone.server.ask()
    for answer in answers.values():
        with pytest.raises(OutOfOrderError):
            everyone.server.greet(answer)
    greeting = Letter(everyone.clients[ME].receive(other)).content
    for forged, error in (
        (seal(greeting, everyone.identities[OTHER]), BadSignatureError),
        (seal(replace(greeting, name="stranger"), everyone.identities[ME]), UnknownPartyError),
        (seal(replace(greeting, federation=bytes(16)), everyone.identities[ME]), OutOfOrderError),
        (other, OutOfOrderError),
        (b"", MalformedError),
    ):
        with pytest.raises(error):
            everyone.server.greet(forged)
    assert everyone.server.present == {}
    assert everyone.server.greet(everyone.clients[ME].receive(other)) == ME
    assert everyone.server.waiting_for == everyone.names[1:]
    # The same again changes nothing; another one says that there are two of this member.
    everyone.server.greet(everyone.clients[ME].receive(other))
    with pytest.raises(OutOfOrderError, match="another copy"):
        everyone.server.greet(seal(replace(greeting, seen=7), everyone.identities[ME]))


@pytest.mark.parametrize("at", range(6))
def test_only_the_server_s_signature_counts(at: int) -> None:
    payload = payload_of(asked(at))
    for identity in (story().identities[OTHER], story().identities[ME], Identity(bytes(32))):
        refused(client_in(STATES[at]), seal(payload, identity), BadSignatureError)
    outer = msgspec.msgpack.decode(asked(at))
    assert b"message" in outer[0][:10]
    for position in (0, 31, 63):
        spoiled = bytearray(outer[1])
        spoiled[position] ^= 1
        data = msgspec.msgpack.encode([outer[0], bytes(spoiled)])
        refused(client_in(STATES[at]), data, BadSignatureError)
    # One bit of the signed part, in the federation's identifier.
    spoiled = bytearray(outer[0])
    spoiled[spoiled.index(story().federation.identifier) + 3] ^= 1
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
    data = opening(attempt=3, kind=kind, capacity=capacity)
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
        "a suspended or unknown one": Roster((*names[:3], "d000"), advertisements),
        "missing": Roster(names, advertisements[1:]),
        "none": Roster(names, ()),
        "doubled": Roster(names, (*advertisements, advertisements[0])),
        "replaced by another": Roster(names, (*advertisements[:2], advertisements[0])),
        "its own": Roster(names, (*advertisements[:2], second_round()[0].answers[ME])),
        "nobody's neighbour": Roster(names[:3], advertisements),
        "of the last round": Roster(names, (old[OTHER], *advertisements[1:])),
        "other body": Roster(names, (second_round()[1].answers[OTHER], *advertisements[1:])),
        "a greeting": Roster(names, (who(), *advertisements[1:])),
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
        "unknown": ChangedParticipantsError,
        "the server takes part": ChangedParticipantsError,
        "a suspended or unknown one": ChangedParticipantsError,
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
        "a greeting": MalformedError,
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


def lie_in_a_delivery(lie: str) -> Delivery:
    honest = body_of(asked(2))
    names, dealt = honest.sharers, honest.dealt
    return {
        "unsorted": Delivery(names[::-1], dealt),
        "twice": Delivery((*names, names[-1]), dealt),
        "somebody new": Delivery((*names, "stranger"), dealt),
        "left out": Delivery(names[1:], dealt),
        "too few": Delivery(names[:2], dealt[:1]),
        "missing": Delivery(names, dealt[1:]),
        "surplus": Delivery(names[:3], dealt),
        "doubled": Delivery(names, (*dealt, dealt[0])),
        "in another order": Delivery(names, dealt[::-1]),
        "its own": Delivery(names, (replace(dealt[0], name=ME), *dealt)),
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
        "in another order": ChangedParticipantsError,
        "its own": ChangedParticipantsError,
    }.items(),
)
def test_a_delivery_that_lies_is_refused(lie: str, error: type[ProtocolError]) -> None:
    client = client_in(Shared)
    refused(client, signed(lie_in_a_delivery(lie)), error)
    assert client.receive(asked(2)) == second_round()[2].answers[ME]


def flipped(data: bytes, at: int) -> bytes:
    wrong = bytearray(data)
    wrong[at] ^= 1
    return bytes(wrong)


def unreadable_deal(how: str) -> SealedShares:
    """A share from the second member that the first one cannot use."""
    honest = body_of(asked(2)).dealt[0]
    assert honest.name == OTHER
    # What the first member itself sealed for the second one, sent back to it.
    own = next(one for one in body_of(second_round()[1].answers[ME]).dealt if one.name == OTHER)
    another = body_of(asked(2)).dealt[1]
    old = body_of(asked(2, first_round)).dealt[0]
    return {
        "first bit": replace(honest, ciphertext=flipped(honest.ciphertext, 0)),
        "last bit": replace(honest, ciphertext=flipped(honest.ciphertext, -1)),
        "another's": replace(another, name=OTHER),
        "of the last round": old,
        "reflected": own,
        "another hash of the seed": replace(honest, seed_hash=bytes(16)),
        "another hash of the key": replace(honest, key_hash=bytes(16)),
        "hashes exchanged": replace(honest, seed_hash=honest.key_hash, key_hash=honest.seed_hash),
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "first bit",
        "last bit",
        "another's",
        "of the last round",
        "reflected",
        "another hash of the seed",
        "another hash of the key",
        "hashes exchanged",
    ],
)
def test_a_share_that_cannot_be_used_is_complained_of_by_name(how: str) -> None:
    """The vector is sent nevertheless, and nothing of that dealer's is ever revealed."""
    client, honest = client_in(Shared), body_of(asked(2))
    delivery = Delivery(honest.sharers, (unreadable_deal(how), *honest.dealt[1:]))
    masked = body_of(client.receive(signed(delivery)))
    expected = body_of(second_round()[2].answers[ME])
    assert masked.unreadable == (OTHER,)
    assert expected.unreadable == ()
    assert masked.masked_vector == expected.masked_vector
    assert masked.received != expected.received
    client.receive(asked(3))
    reveal = body_of(client.receive(asked(4)))
    assert OTHER not in dict(reveal.seeds)
    honestly = body_of(second_round()[4].answers[ME])
    assert dict(reveal.seeds) == {n: x for n, x in honestly.seeds if n != OTHER}
    assert reveal.keys == honestly.keys


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


def agreed_by(
    name: str,
    alive: tuple[str, ...],
    dead: tuple[str, ...],
    roster: tuple[str, ...] | None = None,
    sharers: tuple[str, ...] | None = None,
    **fields: Any,
) -> bytes:
    names = story().names
    view = view_of(roster or names, sharers or names, dead)
    return story().identities[name].sign(consent_to(changed(context(), **fields), alive, view))


def lie_in_an_unmask(lie: str) -> Unmask:
    """The quorum is three of four; the survivors are three, and two others must have signed."""
    alive, dead = story().names[:3], (GONE,)
    mine, one, other = ((name, agreed_by(name, alive, dead)) for name in alive)

    def last(signature: bytes) -> Unmask:
        return Unmask((mine, one, ("c002", signature)))

    return {
        "none": Unmask(()),
        "its own alone": Unmask((mine,)),
        "one too few": Unmask((mine, one)),
        "without its own": Unmask((one, other)),
        "twice": Unmask((mine, one, one)),
        "the dead one's": Unmask((mine, one, (GONE, agreed_by(GONE, alive, dead)))),
        "a stranger's": Unmask((mine, one, ("stranger", one[1]))),
        "the server's": last(agreed_by(SERVER, alive, dead)),
        "swapped": Unmask((mine, (one[0], other[1]), (other[0], one[1]))),
        "other survivors": last(agreed_by("c002", (*alive, GONE), ())),
        "lists exchanged": last(agreed_by("c002", dead, alive)),
        "one list": last(agreed_by("c002", (*alive, GONE), dead)),
        "other roster": last(agreed_by("c002", alive, dead, roster=alive)),
        "other sharers": last(agreed_by("c002", alive, dead, sharers=alive)),
        "other attempt": last(agreed_by("c002", alive, dead, attempt=3)),
        "last round": last(agreed_by("c002", alive, dead, round=1)),
        "other salt": last(agreed_by("c002", alive, dead, salt=b"")),
        "other history": last(agreed_by("c002", alive, dead, last=bytes(32))),
    }[lie]


@pytest.mark.parametrize(
    ("lie", "error"),
    {
        "none": ChangedParticipantsError,
        "its own alone": TooFewError,
        "one too few": TooFewError,
        "without its own": ChangedParticipantsError,
        "twice": TooFewError,
        "the dead one's": ChangedParticipantsError,
        "a stranger's": ChangedParticipantsError,
        "the server's": BadSignatureError,
        "swapped": BadSignatureError,
        "other survivors": BadSignatureError,
        "lists exchanged": BadSignatureError,
        "one list": BadSignatureError,
        "other roster": BadSignatureError,
        "other sharers": BadSignatureError,
        "other attempt": BadSignatureError,
        "last round": BadSignatureError,
        "other salt": BadSignatureError,
        "other history": BadSignatureError,
    }.items(),
)
def test_an_unmask_without_enough_matching_signatures_is_refused(
    lie: str, error: type[ProtocolError]
) -> None:
    client = client_in(Consented)
    refused(client, signed(lie_in_an_unmask(lie)), error)
    assert client.receive(asked(4)) == second_round()[4].answers[ME]


@pytest.mark.parametrize("which", ["sharing_key", "masking_key"])
def test_a_neighbour_s_low_order_key_is_refused(which: str) -> None:
    """The mask shared with its owner, and the key of the shares for it, would be known to all."""
    everyone = Everyone(3, seed="low order")
    everyone.ask(everyone.server.open("full"))
    honest = everyone.history[0].answers
    body = replace(body_of(honest["c001"]), **{which: bytes(32)})
    forged = everyone.from_client("c001", body)
    roster = Roster(everyone.names, (forged, honest["c002"]))
    client = everyone.clients[ME]
    with pytest.raises(BadShareError, match="c001"):
        client.receive(everyone.from_server(ME, roster))
    assert isinstance(client.stage, Advertised)
    # The server refuses it before that, and says whose it is.
    server = Everyone(3, seed="low order").server
    server.open("full")
    with pytest.raises(BadShareError, match="c001"):
        server.receive(forged)
    assert [finding.members for finding in server.findings] == [("c001",)]


def test_a_client_is_a_member_with_its_key() -> None:
    everyone = story()
    with pytest.raises(UnknownPartyError):
        ClientSide(ME, everyone.identities[OTHER], everyone.federation, everyone.lists, Histogram)
    client = client_in(Sent)
    before = state_of(client)
    with pytest.raises(MissingNoticeError):
        client.adopt(everyone.membership)
    with pytest.raises(UnknownPartyError):
        client.adopt(everyone.members(everyone.names[1:]))
    assert unchanged(client, before)


def test_a_new_membership_ends_the_attempt_and_refuses_the_old_one() -> None:
    client = client_in(Consented)
    place = client.ledger.place
    later = story().members(story().names, place=place, capacity=12)
    client.adopt(later)
    assert client.stage == Resting()
    refused(client, asked(4), WrongFederationError)
    refused(client, opening(attempt=3), WrongFederationError)
    fields = {"membership": later.digest, "epoch": 2, "attempt": 3, "kind": "full", "capacity": 12}
    assert client.receive(opening(**fields)) is not None


LISTS: dict[str, tuple[dict[str, Any], type[ProtocolError]]] = {
    "an epoch too far": ({"epoch": 3}, MissingNoticeError),
    "an epoch of 2**53 - 1": ({"epoch": 2**53 - 1}, MissingNoticeError),
    "the same epoch": ({"epoch": 1}, MissingNoticeError),
    "after another list": ({"previous": bytes(32)}, ForkError),
    "after another commit": ({"after": bytes(32)}, ForkError),
    "after an older commit": ({"after_round": 0, "counted": ()}, ForkError),
    "somebody came who was there": ({"since": {OTHER: 2}}, ForkError),
    "somebody was there who came": ({"since": {"c003": 2, OTHER: 2}}, ForkError),
    "another was counted": ({"counted": (ME, OTHER)}, ForkError),
    "one more was counted": (
        {"counted": ("c000", "c001", "c002", "c003", "d000"), "dropped": (("d000", 1),)},
        ForkError,
    ),
    "somebody was there before": ({"former": ("d000",)}, ForkError),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_another_history_is_refused(name: str) -> None:
    client = client_in(Sent)
    place = client.ledger.place
    honest = story().members(story().names, place=place)
    fields, error = LISTS[name]
    since = fields.get("since", {})
    fields = {name: value for name, value in fields.items() if name != "since"}
    before, lists = state_of(client), list(client.lists)
    with pytest.raises(error):
        client.adopt(came_with(replace(honest, **fields), since))
    assert unchanged(client, before)
    assert client.lists == lists
    client.adopt(honest)


def test_a_list_made_after_a_round_that_is_not_known_yet_waits_for_its_notice() -> None:
    """It must be the commit that the list was made after, and count whom the list says."""
    commit = story().server.ledger.place
    honest = story().members(story().names, place=commit)
    attempt = {"attempt": 3, "round": 3, "last": commit.link, "model": commit.model, "epoch": 2}
    attempt |= {"last_attempt": commit.attempt}
    for fields, error in (
        ({}, None),
        ({"after": bytes(32)}, ForkError),
        ({"counted": (ME, OTHER)}, ForkError),
    ):
        client = client_in(Revealed)
        later = replace(honest, **fields)
        client.adopt(later)
        fields = {"membership": later.digest, "capacity": 16, **attempt}
        refused(client, signed(Open(()), **fields), MissingNoticeError)
        if error is None:
            assert client.receive(signed(Open((asked(5),)), **fields)) is not None
        else:
            refused(client, signed(Open((asked(5),)), **fields), error)
            refused(client, asked(5), error)


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
    # The randomness of another process is another one, but it is drawn at the opening only.
    answer = client.receive(asked(at))
    assert (answer == second_round()[at].answers.get(ME)) == (at > 0)


def test_a_ledger_comes_back_from_its_bytes() -> None:
    for state in STATES:
        ledger = client_in(state).ledger
        assert load(dump(ledger)) == ledger
        assert dump(load(dump(ledger))) == dump(ledger)
        assert b"secret" not in repr(ledger).encode()


def test_a_damaged_memory_of_an_attempt_is_refused_by_name() -> None:
    for state in STATES:
        data = freeze(client_in(state))
        client = client_in(Resting)
        before = state_of(client)
        for size in range(0, len(data), 7):
            with pytest.raises(MalformedError):
                thaw(client, data[:size])
        for noise in (b"\xff" * 20, b"\x94\xa1\xff\x90\xc4\x00\xc0", b"\x94\xa4Idle\x90\xc4\x00"):
            with pytest.raises(MalformedError):
                thaw(client, noise)
        assert unchanged(client, before)


def test_two_memories_of_one_attempt_do_not_agree_to_two_sets() -> None:
    """A process dies after its answer is sent and before its memory is, so the next one stands at
    an earlier stage and is asked about other survivors.  The ledger, which lasts, must tell."""
    everyone = Everyone(4, seed="memories")
    everyone.round("full")
    everyone.until(Stage.CONSENT, "delta")
    client = everyone.clients[ME]
    sent = freeze(client)
    names = everyone.names
    views = [Survivors(names, ()), Survivors(names[:3], names[3:])]
    first = everyone.from_server(ME, views[0])
    answer = client.receive(first)
    assert client.ledger.lock is not None
    thaw(client, sent)
    refused(client, everyone.from_server(ME, views[1]), SecondSurvivorSetError)
    assert client.receive(first) == answer


# -- one set of survivors between two commits --------------------------------------------------


@pytest.mark.parametrize("told", ["agree", "reveal"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_second_set_of_survivors_is_refused_across_attempts(restarted: bool, told: str) -> None:
    """Also by a client that has lost everything except its ledger, and as soon as it has signed."""
    everyone = Everyone(5, seed="second set")
    everyone.round("full")
    stage = Stage.CONSENT if told == "agree" else Stage.UNMASK
    for message in everyone.until(stage, "delta"):
        everyone.clients[message.recipient].receive(message.data)
    assert all(client.ledger.lock is not None for client in everyone.clients.values())
    if restarted:
        for name in everyone.names:
            everyone.restart(name)
    # The server forgets what it has asked for, and leaves one out: first of the survivors …
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    messages = everyone.until(Stage.MASK, "delta")
    everyone.ask(messages, [GONE])
    messages = everyone.server.advance()
    before = {name: state_of(client) for name, client in everyone.clients.items()}
    step = everyone.ask(messages)
    assert step.stage is Stage.CONSENT
    assert {type(error) for error in step.refusals.values()} == {SecondSurvivorSetError}
    assert set(step.refusals) == set(everyone.names) - {GONE}
    assert all(unchanged(everyone.clients[name], before[name]) for name in everyone.names)
    # … then already of the roster.
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    everyone.ask(everyone.server.open("delta"), [GONE])
    step = everyone.ask(everyone.server.advance())
    assert {type(error) for error in step.refusals.values()} == {SecondSurvivorSetError}
    assert not step.answers


def test_the_same_survivors_may_be_signed_for_again() -> None:
    everyone = Everyone(5, seed="again")
    everyone.round("full")
    first = everyone.decide("delta", {Stage.MASK: [GONE]})
    everyone.server.abandon()
    second = everyone.decide("delta")
    assert second == first
    assert everyone.server.ledger.lock is not None
    assert everyone.server.ledger.lock.alive == first.survivors
    everyone.commit()
    assert everyone.round("full").survivors == everyone.names


def test_a_full_round_of_others_than_those_signed_for_is_refused_at_once() -> None:
    everyone = Everyone(5, seed="full after delta")
    everyone.round("full")
    everyone.decide("delta", {Stage.MASK: [GONE]})
    everyone.server.abandon()
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    step = everyone.ask(everyone.server.open("full"))
    assert {type(error) for error in step.refusals.values()} == {SecondSurvivorSetError}
    assert set(step.answers) == {GONE}


def test_another_set_may_follow_a_commit() -> None:
    everyone = Everyone(5, seed="another")
    everyone.round("full")
    assert everyone.round("delta", {Stage.MASK: [GONE]}).survivors != everyone.names
    assert everyone.round("delta", {Stage.MASK: [ME]}).survivors == everyone.names[1:]
    assert all(client.ledger.lock is None for client in everyone.clients.values())


def test_after_a_new_list_nobody_of_a_signed_set_is_missing() -> None:
    """More may come; who is suspended or dropped by the list may be away."""
    everyone = Everyone(6, seed="new list")
    everyone.round("full")
    everyone.decide("delta", {Stage.MASK: [GONE]})
    everyone.adopt(everyone.members(everyone.names))
    everyone.server.ledger = replace(everyone.server.ledger, lock=None)
    everyone.ask(everyone.server.open("delta"), ["c005"])
    step = everyone.ask(everyone.server.advance())
    assert {type(step.refusals[name]) for name in ("c000", "c004")} == {SecondSurvivorSetError}
    everyone.server.abandon()
    everyone.adopt(everyone.members(everyone.names, suspended=["c005"]))
    assert everyone.round("delta").survivors == everyone.names[:5]


# -- base and pending --------------------------------------------------------------------------


def one_round_old() -> Everyone:
    everyone = Everyone(4, seed="base")
    everyone.round("full")
    return everyone


def test_the_base_moves_on_a_notice_that_counts_the_client() -> None:
    everyone = one_round_old()
    client = everyone.clients[ME]
    assert client.ledger.base == everyone.histograms[ME]
    assert (client.ledger.base_round, client.ledger.place.round) == (1, 1)
    old, new = everyone.histograms[ME], histogram(((9, 9), 9))
    everyone.histograms[ME] = new
    everyone.decide("delta")
    pending = client.ledger.pending
    assert pending is not None
    assert (client.ledger.base, pending.plain_input, pending.attempt) == (old, new, 2)
    everyone.commit()
    assert (client.ledger.base, client.ledger.pending, client.ledger.base_round) == (new, None, 2)
    assert client.ledger.place == everyone.server.ledger.place


@pytest.mark.parametrize("stage", ANSWERED[:3])
def test_the_base_stays_where_the_client_was_not_counted(stage: Stage) -> None:
    everyone = one_round_old()
    client = everyone.clients[ME]
    old = everyone.histograms[ME]
    everyone.histograms[ME] = new = histogram(((9, 9), 9))
    everyone.round("delta", {stage: [ME]})
    assert (client.ledger.base, client.ledger.base_round) == (old, 1)
    assert client.ledger.place.round == 2
    assert client.ledger.pending is None
    assert everyone.server.counted[ME] == 1
    assert everyone.round("delta").total == new - old
    assert client.ledger.base == new


def test_what_happened_is_told_with_every_step() -> None:
    everyone = one_round_old()
    client = everyone.clients[ME]
    messages = dict(everyone.server.open("delta"))
    step = client.handle(messages[ME])
    assert step.events == (InputFixed(2),)
    assert client.ledger.seen == 1
    everyone.server.abandon()
    everyone.round("delta", {Stage.DECIDED: [ME]})
    step = client.handle(everyone.notices[-1])
    (event,) = step.events
    assert isinstance(event, Followed)
    assert (event.round, event.letter, event.attempt) == (2, everyone.notices[-1], 3)
    client.accept(step)
    assert client.handle(everyone.notices[-1]).events == ()
    everyone.round("delta", {Stage.ADVERTISE: [ME], Stage.DECIDED: [ME]})
    (event,) = client.handle(everyone.notices[-1]).events
    assert (event.round, event.attempt, event.left) == (3, None, False)


def test_a_missed_notice_comes_with_the_next_open() -> None:
    everyone = one_round_old()
    client = everyone.clients[ME]
    everyone.histograms[ME] = new = histogram(((9, 9), 9))
    everyone.round("delta", {Stage.DECIDED: [ME]})
    assert client.ledger.place.round == 1
    assert client.ledger.pending is not None
    assert client.ledger.pending.plain_input == new
    everyone.histograms[ME] = newer = histogram(((8, 8), 8))
    messages = dict(everyone.server.open("delta"))
    client.receive(messages[ME])
    assert (client.ledger.base, client.ledger.place.round) == (new, 2)
    assert everyone.round("delta").total == newer - new


def test_missed_notices_come_all_and_in_their_order() -> None:
    everyone = one_round_old()
    everyone.histograms[ME] = new = histogram(((9, 9), 9))
    everyone.round("delta", {Stage.DECIDED: [ME]})
    everyone.histograms[OTHER] = histogram()
    everyone.round("delta", {Stage.ADVERTISE: [ME], Stage.DECIDED: [ME]})
    everyone.histograms[ME] = newer = histogram(((8, 8), 8))
    client = everyone.clients[ME]
    # The last one alone does not follow what is known here, nor do the two in another order.
    fields = {"round": 4, "attempt": 4, "last": everyone.server.ledger.place.link}
    context = changed(everyone.context, **fields)
    for notices in (everyone.notices[2:], everyone.notices[:0:-1], ()):
        data = everyone.from_server(ME, Open(tuple(notices)), context)
        refused(client, data, MissingNoticeError)
    refused(client, everyone.notices[2], MissingNoticeError)
    everyone.greet()
    assert everyone.round("delta").total == newer - new


def test_a_lost_attempt_leaves_the_base_and_drops_what_was_pending() -> None:
    everyone = one_round_old()
    client, old = everyone.clients[ME], everyone.histograms[ME]
    everyone.histograms[ME] = histogram(((9, 9), 9))
    everyone.until(Stage.CONSENT, "delta")
    everyone.server.abandon()
    assert client.ledger.pending is not None
    assert client.ledger.pending.plain_input == histogram(((9, 9), 9))
    everyone.histograms[ME] = newer = histogram(((8, 8), 8))
    assert everyone.round("delta").total == newer - old


def test_a_client_that_does_not_know_its_base_takes_part_in_full_rounds_only() -> None:
    everyone = one_round_old()
    client = everyone.clients[ME]
    with_ledger(client, base=None)
    messages = dict(everyone.server.open("delta"))
    refused(client, messages[ME], FullRoundNeededError)
    everyone.server.abandon()
    everyone.greet()
    assert everyone.server.present[ME].needs_full
    # A full round does not begin because a member says so.
    assert everyone.server.kind_needed() == "delta"
    assert everyone.round("full").total == everyone.total(everyone.names)
    assert client.ledger.base == everyone.histograms[ME]
    assert len(everyone.round("delta").total) == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_the_input_is_fixed_at_the_opening_of_every_attempt(restarted: bool) -> None:
    """What changes later comes with the next attempt; what was counted is that of the last one."""
    everyone = Everyone(3, seed="pending", capacity=40, first_capacity=2)
    everyone.round("full")
    client, old = everyone.clients[ME], everyone.total(everyone.names)
    everyone.histograms[ME] = histogram(*(((i, i), i + 1) for i in range(12)))
    fixed = Histogram(2)
    messages = everyone.server.open("delta")
    while everyone.stage is not Stage.DECIDED:
        if everyone.stage is Stage.ADVERTISE:
            if restarted:
                client = everyone.restart(ME)
            fixed = everyone.histograms[ME]
        everyone.ask(messages)
        if everyone.stage is Stage.MASK:
            assert client.ledger.pending is not None
            assert client.ledger.pending.plain_input == fixed
            assert client.ledger.pending.attempt == everyone.server.ledger.attempt
            everyone.histograms[ME] = fixed + histogram(((40, 40), everyone.server.ledger.attempt))
        messages = everyone.server.advance()
    assert everyone.server.ledger.attempt > 3
    assert everyone.server.result is not None
    everyone.histograms[ME] = fixed
    assert everyone.server.result.total == everyone.total(everyone.names) - old
    everyone.commit()
    assert client.ledger.base == fixed


def test_the_pending_input_does_not_follow_the_caller_s_object() -> None:
    """A histogram can be changed in place; what was sent once must be sent again."""
    everyone = Everyone(3, seed="in place")
    everyone.until(Stage.CONSENT)
    sent = histogram(*(((3, 3), 3),)) + everyone.histograms[ME]
    everyone.histograms[ME] += histogram(((3, 3), 3))
    assert everyone.histograms[ME] == sent
    pending = everyone.clients[ME].ledger.pending
    assert pending is not None
    assert pending.plain_input != sent


@pytest.mark.parametrize("state", STATES[1:], ids=lambda state: state.__name__)
def test_a_commit_in_between_ends_the_attempt_by_name(state: type) -> None:
    """The notice of another attempt at this place: with other survivors, a client is not in it.

    Who has signed another set in an attempt that broke off follows the others; who has seen that
    enough signed it knows that there are two histories."""
    client = client_in(state)
    survivors = story().names[1:]
    forged_context = changed(context(), attempt=9)
    counted = ((ME, 1), *((name, 2) for name in survivors))
    view = view_of(survivors, survivors, ())
    statement = consent_to(forged_context, survivors, view)
    consents = tuple((name, story().identities[name].sign(statement)) for name in survivors)
    body = Notice(survivors, (), counted, view, MODEL, 0, consents)
    data = story().from_server(EVERYONE, body, forged_context)
    if state is Revealed:
        refused(client, data, SecondSurvivorSetError)
        return
    client.receive(data)
    assert client.stage == Resting()
    assert (client.ledger.place.round, client.ledger.base_round) == (2, 1)
    for at in range(1, 5):
        refused(client, asked(at), OutOfOrderError)


# -- every message at every stage of the server ------------------------------------------------

STAGES = (Stage.IDLE, *ANSWERED, Stage.DECIDED)


def answered_twice(name: str, at: int) -> bytes:
    """Another answer than the one given, and as good."""
    honest = body_of(said(at, name=name))
    if at == 0:
        honest = Advertise(honest.masking_key, honest.sharing_key)
    elif at == 1:
        honest = replace(honest, own_hash=bytes(16))
    else:
        honest = replace(honest, received=bytes(32))
    return by_client(honest, name)


def server_at(stage: Stage) -> ServerSide:
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


def masked_by_the_lost() -> Body:
    """A vector that comes late, with the signature for the shares that its sender was sent."""
    delivered = body_of(second_round()[2].asked[GONE]).dealt
    return replace(body_of(said(2)), received=digest_of_delivery(delivered))


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
    "advertise, otherwise": lambda: answered_twice(ME, 0),
    "shares, otherwise": lambda: answered_twice(ME, 1),
    "masked, otherwise": lambda: answered_twice(ME, 2),
    "masked by one who is lost": lambda: by_client(masked_by_the_lost(), GONE),
    "consent by one who is lost": lambda: by_client(body_of(said(3)), GONE),
    "advertise, last round": lambda: said(0, first_round),
    "shares, last round": lambda: said(1, first_round),
    "masked, last round": lambda: said(2, first_round),
    "consent, last round": lambda: said(3, first_round),
    "reveal, last round": lambda: said(4, first_round),
    "masked, next attempt": lambda: by_client(body_of(said(2)), attempt=3),
    "masked, other capacity": lambda: by_client(body_of(said(2)), capacity=17),
    "masked, other kind": lambda: by_client(body_of(said(2)), kind="full"),
    "masked, other history": lambda: by_client(body_of(said(2)), last=bytes(32)),
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
    "a greeting": lambda: client_in(Resting).receive(who()) or b"",
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
    "reveal": "OOOOOLO",
    "advertise, again": "ONOOOOO",
    "shares, again": "OONOOOO",
    "masked, again": "OOONOOO",
    "consent, again": "OOOONOO",
    "reveal, again": "OOOOONO",
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
    "masked, other history": "OOOOOOO",
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
    "a greeting": "XXXXXXX",
    "to another": "UUUUUUU",
}
SERVER_ERRORS = ERRORS | {
    "B": BadSignatureError,
    "F": WrongFederationError,
    "X": MalformedError,
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("message", SERVER_TABLE)
def test_every_message_at_every_stage_of_the_server(message: str, stage: Stage) -> None:
    server, data = server_at(stage), ANSWERS[message]()
    assert stage_of(server) is stage
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
    advertise, shares, masked, reveal = (body_of(said(at)) for at in (0, 1, 2, 4))
    vector, dealt = masked.masked_vector, shares.dealt
    other = story().federation.codec(16, b"another salt")
    agreed = agreed_by(OTHER, story().names, ())

    def with_vector(data: bytes) -> Masked:
        return replace(masked, masked_vector=data)

    def complaining(*names: str) -> Masked:
        return replace(masked, unreadable=names)

    def wrong_share(part: tuple[tuple[str, bytes], ...], at: int) -> Any:
        return tuple(
            (name, flipped(share, 0) if i == at else share) for i, (name, share) in enumerate(part)
        )

    return {
        "low order": (Stage.ADVERTISE, replace(advertise, masking_key=bytes(32)), BadShareError),
        "low order, the other": (
            Stage.ADVERTISE,
            replace(advertise, sharing_key=(2**255 - 19).to_bytes(32, "little")),
            BadShareError,
        ),
        "shares for fewer": (Stage.SHARE, replace(shares, dealt=dealt[1:]), WrongLengthError),
        "shares in another order": (
            Stage.SHARE,
            replace(shares, dealt=dealt[::-1]),
            WrongLengthError,
        ),
        "shares for itself": (
            Stage.SHARE,
            replace(shares, dealt=(replace(dealt[0], name=OTHER), *dealt[1:])),
            WrongLengthError,
        ),
        "shares twice": (
            Stage.SHARE,
            replace(shares, dealt=(*dealt, dealt[0])),
            WrongLengthError,
        ),
        "empty vector": (Stage.MASK, with_vector(b""), WrongLengthError),
        "shorter vector": (Stage.MASK, with_vector(vector[:-1]), WrongLengthError),
        "longer vector": (Stage.MASK, with_vector(vector + b"\0"), WrongLengthError),
        "vector of another code": (
            Stage.MASK,
            with_vector(other.pack(other.encode([[1, 1]], [1]))),
            WrongLengthError,
        ),
        "element above p": (
            Stage.MASK,
            with_vector(vector[:32] + b"\xff" * (len(vector) - 32)),
            WrongLengthError,
        ),
        "a complaint of itself": (Stage.MASK, complaining(OTHER), ChangedParticipantsError),
        "a complaint of a stranger": (Stage.MASK, complaining("d"), ChangedParticipantsError),
        "a complaint twice": (Stage.MASK, complaining(ME, ME), ChangedParticipantsError),
        "unsorted complaints": (Stage.MASK, complaining(GONE, ME), ChangedParticipantsError),
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
        "a wrong share of a seed": (
            Stage.UNMASK,
            Reveal(wrong_share(reveal.seeds, 0), reveal.keys),
            BadShareError,
        ),
        "a wrong share of its own seed": (
            Stage.UNMASK,
            Reveal(wrong_share(reveal.seeds, 1), reveal.keys),
            BadShareError,
        ),
        "a wrong share of a key": (
            Stage.UNMASK,
            Reveal(reveal.seeds, wrong_share(reveal.keys, 0)),
            BadShareError,
        ),
    }


@pytest.mark.parametrize("name", list(wrong_answers()))
def test_an_answer_that_does_not_fit_is_refused_and_names_its_sender(name: str) -> None:
    stage, body, error = wrong_answers()[name]
    server = server_at(stage)
    before = server_state(server)
    for _ in range(2):
        with pytest.raises(error):
            server.receive(by_client(body))
        assert server_state(server) == before
        assert [finding.members for finding in server.findings] == [(OTHER,)]
    server.receive(said(ANSWERED.index(stage)))


@pytest.mark.parametrize("message", ["a stranger's", "in another's name", "shares, last round"])
def test_a_message_that_nobody_signed_for_this_attempt_names_nobody(message: str) -> None:
    server = server_at(Stage.MASK)
    with pytest.raises(ProtocolError):
        server.receive(ANSWERS[message]())
    assert server.findings == []


def test_the_whole_vector_of_ones_is_refused() -> None:
    """Every element is above p, and the length and digest are right."""
    server = server_at(Stage.MASK)
    masked = body_of(said(2))
    vector = masked.masked_vector
    bits = 62 * server.stage.masked_total.size
    ones = ((1 << bits) - 1).to_bytes(len(vector) - 32, "little")
    with pytest.raises(WrongLengthError, match="below p"):
        server.receive(by_client(replace(masked, masked_vector=vector[:32] + ones)))


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
        ServerSide(everyone.identities[ME], everyone.federation, everyone.membership)
    server = server_at(Stage.MASK)
    before = server_state(server)
    with pytest.raises(OutOfOrderError):
        server.adopt(everyone.membership)
    later = everyone.members(everyone.names, place=server.ledger.place)
    with pytest.raises(ForkError):
        server.adopt(replace(later, after=bytes(32)))
    assert server_state(server) == before
    server.adopt(later)
    assert stage_of(server) is Stage.IDLE


def test_no_delta_round_over_somebody_who_has_gone() -> None:
    """Its histogram would be counted for ever; a full round leaves it out."""
    everyone = Everyone(4, seed="gone")
    everyone.round("full")
    everyone.adopt(everyone.members(everyone.names[:3], capacity=16))
    ledger = everyone.server.ledger
    with pytest.raises(RoundAbortedError, match="c003 was counted in round 1 and is no longer"):
        everyone.server.open("delta")
    assert everyone.server.ledger == ledger
    assert everyone.server.kind_needed() == "full"
    assert everyone.round("full").total == everyone.total(everyone.names[:3])
    assert everyone.server.counted == dict.fromkeys(everyone.names[:3], 2)
    assert len(everyone.round("delta").total) == 0


def test_attempt_numbers_only_grow_and_rounds_count_commits() -> None:
    everyone = Everyone(4, seed="numbers")
    everyone.round("full")
    for _ in range(3):
        everyone.until(Stage.SHARE, "delta")
        everyone.server.abandon()
    everyone.round("delta")
    assert (everyone.context.round, everyone.context.attempt) == (2, 5)
    everyone.adopt(everyone.members(everyone.names))
    everyone.round("delta")
    assert (everyone.context.epoch, everyone.context.round, everyone.context.attempt) == (2, 3, 6)
    client = everyone.clients[ME]
    for attempt in (0, 1, 6):
        context = changed(everyone.context, round=4, attempt=attempt)
        refused(client, everyone.from_server(ME, Open(()), context), OutOfOrderError)
    assert client.ledger.seen == 6


def test_somebody_missing_after_a_set_was_listed_ends_the_round_by_name() -> None:
    everyone = Everyone(5, seed="epoch")
    everyone.round("full")
    everyone.decide("delta")
    everyone.server.abandon()
    for stage in (Stage.ADVERTISE, Stage.SHARE, Stage.MASK):
        with pytest.raises(RoundAbortedError, match="c003 is missing") as caught:
            everyone.decide("delta", {stage: [GONE]})
        assert not caught.value.again
        assert everyone.stage is Stage.IDLE
    everyone.adopt(everyone.members(everyone.names, suspended=[GONE]))
    result = everyone.round("delta")
    assert result.survivors == tuple(name for name in everyone.names if name != GONE)
    with pytest.raises(RoundAbortedError, match="c003 is suspended"):
        everyone.server.open("full")


def test_between_a_set_and_its_commit_only_the_survivors_are_invited() -> None:
    everyone = Everyone(5, seed="invited")
    everyone.round("full")
    survivors = everyone.decide("delta", {Stage.SHARE: [GONE]}).survivors
    everyone.server.abandon()
    assert tuple(name for name, _ in everyone.server.open("delta")) == survivors
    advertise = body_of(everyone.history[0].answers[GONE])
    forged = everyone.from_client(GONE, advertise, everyone.server.stage.context)
    with pytest.raises(OutOfOrderError):
        everyone.server.receive(forged)


def test_a_sum_that_is_no_encoding_ends_the_round() -> None:
    """A client that sends noise spoils the round; the sum is not used and the next one is right."""
    everyone = Everyone(3, seed="noise", policy=Policy(minimum=3))
    messages = everyone.until(Stage.MASK)
    for name, data in messages:
        answer = everyone.clients[name].receive(data)
        assert answer is not None
        if name == OTHER:
            masked = body_of(answer)
            spoilt = flipped(masked.masked_vector, 40)
            answer = everyone.from_client(name, replace(masked, masked_vector=spoilt))
        everyone.server.receive(answer)
    messages = everyone.server.advance()
    for _ in range(2):
        everyone.ask(messages)
        if everyone.stage is Stage.CONSENT:
            messages = everyone.server.advance()
    with pytest.raises(RoundAbortedError, match="corrupted") as caught:
        everyone.server.advance()
    # Nobody can be named.
    assert [finding.members for finding in caught.value.findings] == [()]
    assert everyone.stage is Stage.IDLE
    assert everyone.server.ledger.place.round == 0
    assert everyone.round("full").total == everyone.total(everyone.names)
