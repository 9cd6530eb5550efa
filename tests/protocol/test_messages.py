"""Messages: their bytes against an independent twin, strict reading, and noise of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.protocol import messages
from fedforget.protocol.client import Client
from fedforget.protocol.errors import BadSignatureError, MalformedError, ProtocolError
from fedforget.protocol.federation import SERVER
from fedforget.protocol.keys import Identity
from fedforget.protocol.messages import (
    MAX_BYTES,
    Context,
    Letter,
    Masked,
    Payload,
    consent_to,
    seal,
)
from fedforget.protocol.server import Server, Stage
from parties import ANSWERED, MODEL, Everyone, server_state, state_of, unchanged

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())
BODIES = {
    body.__struct_config__.tag: body
    for body in (
        messages.Open,
        messages.Advertise,
        messages.Roster,
        messages.Shares,
        messages.Delivery,
        messages.Masked,
        messages.Survivors,
        messages.Consent,
        messages.Unmask,
        messages.Reveal,
        messages.Notice,
    )
}


def plain(value: Any) -> Any:
    """A value of the vectors' file as the package holds it."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return tuple(map(plain, value)) if isinstance(value, list) else value


# -- vectors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", VECTORS["messages"], ids=lambda case: case["body"][0])
def test_sealed_messages_are_the_twin_s(case: dict[str, Any]) -> None:
    tag, *fields = plain(case["body"])
    body, context = BODIES[tag](*fields), Context(*plain(case["context"]))
    assert context.digest.hex() == case["context digest"]
    identity = Identity(bytes.fromhex(case["seed"]))
    assert identity.public.hex() == case["public"]
    payload = Payload(context, case["sender"], case["recipient"], body)
    assert seal(payload, identity).hex() == case["data"]
    letter = Letter(bytes.fromhex(case["data"]))
    assert letter.payload == payload
    assert letter.check(identity.public) == payload


def test_there_is_a_vector_of_every_kind_of_message() -> None:
    assert {case["body"][0] for case in VECTORS["messages"]} == set(BODIES)


@pytest.mark.parametrize("case", VECTORS["consents"], ids=str)
def test_what_a_consent_signs_is_the_twin_s(case: dict[str, Any]) -> None:
    context = Context(*plain(case["context"]))
    signed = consent_to(context, tuple(case["alive"]), tuple(case["dead"]))
    assert signed.hex() == case["signed"]


def test_a_consent_binds_the_attempt_and_both_lists() -> None:
    one = Context(*plain(VECTORS["consents"][0]["context"]))
    other = Context(*plain(VECTORS["consents"][1]["context"]))
    lists = [("ab", ""), ("a", "b"), ("b", "a"), ("", "ab"), ("", "")]
    signed = [
        consent_to(context, tuple(alive), tuple(dead))
        for context in (one, other)
        for alive, dead in lists
    ]
    signed += [consent_to(one, ("ab",), ()), consent_to(one, ("a", "b", ""), ())]
    assert len(set(signed)) == len(signed)


# -- strict reading ----------------------------------------------------------------------------


def sealed_bytes(payload: bytes, identity: Identity | None = None) -> bytes:
    """Any bytes at all, with a good signature."""
    identity = identity or Identity(bytes(32))
    return msgspec.msgpack.encode([payload, identity.sign(b"fedforget message 1\0" + payload)])


def example(tag: str = "survivors") -> list[Any]:
    """A payload as plain lists."""
    data = next(case["data"] for case in VECTORS["messages"] if case["body"][0] == tag)
    payload: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.decode(bytes.fromhex(data))[0])
    return payload


def reading(change: Callable[[list[Any]], object], tag: str = "survivors") -> Letter:
    payload = example(tag)
    change(payload)
    return Letter(sealed_bytes(msgspec.msgpack.encode(payload)))


def test_the_example_reads() -> None:
    for tag in BODIES:
        assert type(reading(lambda payload: None, tag).payload.body) is BODIES[tag]


@pytest.mark.parametrize(
    "change",
    {
        "other version": lambda payload: payload[0].__setitem__(9, 2),
        "version left out": lambda payload: payload[0].pop(),
        "one more context field": lambda payload: payload[0].append(0),
        "one more payload field": lambda payload: payload.append(b""),
        "no body": lambda payload: payload.pop(),
        "unknown body": lambda payload: payload[3].__setitem__(0, "surprise"),
        "one more body field": lambda payload: payload[3].append([]),
        "one list too few": lambda payload: payload[3].pop(),
        "short identifier": lambda payload: payload[0].__setitem__(0, bytes(15)),
        "long identifier": lambda payload: payload[0].__setitem__(0, bytes(17)),
        "short configuration": lambda payload: payload[0].__setitem__(1, bytes(31)),
        "long membership": lambda payload: payload[0].__setitem__(2, bytes(33)),
        "negative epoch": lambda payload: payload[0].__setitem__(3, -1),
        "huge round": lambda payload: payload[0].__setitem__(4, 2**62),
        "attempt as text": lambda payload: payload[0].__setitem__(5, "1"),
        "attempt as a float": lambda payload: payload[0].__setitem__(5, 1.5),
        "attempt as a truth": lambda payload: payload[0].__setitem__(5, True),
        "unknown kind": lambda payload: payload[0].__setitem__(6, "partial"),
        "negative capacity": lambda payload: payload[0].__setitem__(7, -1),
        "long salt": lambda payload: payload[0].__setitem__(8, bytes(65)),
        "salt as text": lambda payload: payload[0].__setitem__(8, "salt"),
        "nothing as a sender": lambda payload: payload.__setitem__(1, None),
        "long sender": lambda payload: payload.__setitem__(1, "x" * 201),
        "long recipient": lambda payload: payload.__setitem__(2, "x" * 201),
        "an empty name": lambda payload: payload[3].__setitem__(1, [""]),
        "a long name": lambda payload: payload[3].__setitem__(1, ["x" * 201]),
        "a name in bytes": lambda payload: payload[3].__setitem__(1, [b"c000"]),
        "a name that is a list": lambda payload: payload[3].__setitem__(1, [["c000"]]),
        "names as a map": lambda payload: payload[3].__setitem__(1, {"c000": 1}),
        "too many names": lambda payload: payload[3].__setitem__(1, ["x"] * 100_001),
    }.items(),
    ids=lambda change: change[0],
)
def test_a_payload_that_is_not_exactly_right_is_refused(
    change: tuple[str, Callable[[list[Any]], object]],
) -> None:
    with pytest.raises(MalformedError):
        reading(change[1])


@pytest.mark.parametrize(
    ("tag", "at", "size"),
    [
        ("advertise", (1,), 32),
        ("advertise", (2,), 32),
        ("shares", (1, 0, 1), 82),
        ("delivery", (2, 0, 1), 82),
        ("consent", (1,), 64),
        ("unmask", (1, 0, 1), 64),
        ("reveal", (1, 0, 1), 33),
        ("notice", (3,), 32),
    ],
)
def test_keys_shares_and_signatures_have_their_length(
    tag: str, at: tuple[int, ...], size: int
) -> None:
    def cut(length: int) -> Callable[[list[Any]], None]:
        def change(payload: list[Any]) -> None:
            place = payload[3]
            for step in at[:-1]:
                place = place[step]
            place[at[-1]] = bytes(length)

        return change

    reading(cut(size), tag)
    for length in (0, size - 1, size + 1):
        with pytest.raises(MalformedError):
            reading(cut(length), tag)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x90",
        b"\x92\xc4\x00\xc4\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\x92\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\x81" * 5_000,
        msgspec.msgpack.encode([b"payload", bytes(64), 1]),
        msgspec.msgpack.encode([b"payload", bytes(63)]),
        msgspec.msgpack.encode({"payload": b"", "signature": bytes(64)}),
    ],
    ids=range(11),
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        Letter(data)
    with pytest.raises(MalformedError):
        Letter(sealed_bytes(data))


def test_bytes_behind_a_message_are_refused() -> None:
    data = bytes.fromhex(VECTORS["messages"][0]["data"])
    with pytest.raises(MalformedError):
        Letter(data + b"\0")
    payload = msgspec.msgpack.decode(data)[0]
    with pytest.raises(MalformedError):
        Letter(sealed_bytes(payload + b"\0"))


def test_too_many_bytes_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_BYTES == 2**28
    monkeypatch.setattr(messages, "MAX_BYTES", 500)
    case = VECTORS["messages"][0]
    payload = Letter(bytes.fromhex(case["data"])).payload
    identity = Identity(bytes.fromhex(case["seed"]))

    def sealed(size: int) -> bytes:
        body = Masked(bytes(size))
        return seal(Payload(payload.context, "a", SERVER, body), identity)

    room = 500 - len(sealed(0))
    sizes = [size for size in range(room + 10) if len(sealed(size)) <= 500]
    assert Letter(sealed(sizes[-1])).payload.body == Masked(bytes(sizes[-1]))
    with pytest.raises(MalformedError, match="500 are allowed"):
        Letter(sealed(sizes[-1] + 1))


def test_a_signature_is_over_the_domain_and_every_byte() -> None:
    case = VECTORS["messages"][0]
    data, identity = bytes.fromhex(case["data"]), Identity(bytes.fromhex(case["seed"]))
    payload = msgspec.msgpack.decode(data)[0]
    for signature in (identity.sign(payload), identity.sign(b"fedforget survivors 1\0" + payload)):
        letter = Letter(msgspec.msgpack.encode([payload, signature]))
        with pytest.raises(BadSignatureError):
            letter.check(identity.public)
    for wrong in (b"", bytes(31), bytes(33), bytes(32), b"\xff" * 32):
        with pytest.raises(BadSignatureError):
            Letter(data).check(wrong)


def test_another_encoding_of_the_same_values_is_refused() -> None:
    """Msgpack can write a number in several ways; a message is written in one."""
    context, *rest = example()
    packed = [msgspec.msgpack.encode(value) for value in context]
    assert context[5] < 128
    packed[5] = b"\xcd" + context[5].to_bytes(2, "big")
    payload = b"\x94\x9a" + b"".join(packed) + b"".join(map(msgspec.msgpack.encode, rest))
    with pytest.raises(MalformedError, match="one way only"):
        Letter(sealed_bytes(payload))


# -- noise -------------------------------------------------------------------------------------


@cache
def recorded() -> tuple[Everyone, tuple[bytes, ...], tuple[bytes, ...]]:
    """Two rounds, and all that was said to the first client and by everybody."""
    everyone = Everyone(3, seed="noise")
    everyone.round("full")
    everyone.round("delta")
    asked = tuple(step.asked["c000"] for step in everyone.history)
    said = tuple(data for step in everyone.history for data in step.answers.values())
    return everyone, asked, said


def parties_at(step: int) -> tuple[Client, Server]:
    """A client and the server somewhere in the second round."""
    everyone, asked, _ = recorded()
    client, server = everyone.new_client("c000"), everyone.new_server()
    for data in asked[: 6 + step]:
        client.receive(data)
    for kind, steps in (("full", everyone.history[:5]), ("delta", everyone.history[6 : 6 + step])):
        server.open(kind)
        for one in steps:
            for answer in one.answers.values():
                server.receive(answer)
            server.advance()
        if kind == "full":
            server.commit(MODEL)
    assert server.stage is (*ANSWERED, Stage.DECIDED)[step]
    return client, server


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=90),
    st.sampled_from(["", "*", "c000", "c001", "c002", "full", "delta", "open", "survivors"]),
    st.sampled_from([bytes(16), bytes(32), bytes(33), bytes(64), bytes(82)]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn, sources: tuple[bytes, ...], identities: list[Identity]) -> bytes:
    """A recorded message with flipped, cut or added bytes, or with other values, signed again."""
    data = draw(st.sampled_from(sources))
    how = draw(st.sampled_from(["bytes", "payload bytes", "values", "values", "values"]))
    if how == "bytes":
        return draw(noisy(data))
    payload, _ = msgspec.msgpack.decode(data)
    if how == "payload bytes":
        return sealed_bytes(draw(noisy(payload)), draw(st.sampled_from(identities)))
    tree = msgspec.msgpack.decode(payload)
    for _ in range(draw(st.integers(1, 3))):
        place: Any = tree
        while True:
            at = draw(st.integers(0, len(place) - 1))
            if isinstance(place[at], list) and place[at] and draw(st.booleans()):
                place = place[at]
                continue
            action = draw(st.sampled_from(["replace", "drop", "double", "reverse"]))
            if action == "replace":
                place[at] = draw(values)
            elif action == "drop" and len(place) > 1:
                del place[at]
            elif action == "double":
                place.insert(at, place[at])
            else:
                place.reverse()
            break
    return sealed_bytes(msgspec.msgpack.encode(tree), draw(st.sampled_from(identities)))


@st.composite
def noisy(draw: st.DrawFn, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(out) - 1)))
        action = draw(st.sampled_from(["flip", "cut", "insert", "end"]))
        if action == "flip" and out:
            out[at] ^= draw(st.integers(1, 255))
        elif action == "cut":
            del out[at : at + draw(st.integers(1, 9))]
        elif action == "insert":
            out[at:at] = draw(st.binary(min_size=1, max_size=9))
        else:
            del out[at:]
    return bytes(out)


def only_named_errors(client: Client, server: Server, data: bytes) -> None:
    """Either party takes what is legal, or refuses by name and stays as it was."""
    before = state_of(client)
    try:
        client.receive(data)
    except ProtocolError:
        assert unchanged(client, before)
    kept = server_state(server)
    try:
        server.receive(data)
    except ProtocolError:
        assert server_state(server) == kept


@settings(max_examples=200, derandomize=True)
@given(data=st.data(), step=st.integers(0, 5))
def test_mutated_messages_are_taken_or_refused_by_name(data: st.DataObject, step: int) -> None:
    everyone, asked, said = recorded()
    client, server = parties_at(step)
    for _ in range(data.draw(st.integers(1, 3))):
        identities = [everyone.identities[name] for name in (SERVER, *everyone.names)]
        # Mostly the server's words to a client, or a client's to the server, at the right time.
        now = asked[6 + step : 8 + step] or asked[-1:]
        sources = data.draw(st.sampled_from([now, asked, said]))
        signers = identities if sources is said else [*identities[:1] * 3, *identities]
        only_named_errors(client, server, data.draw(mutated(sources, signers)))


@settings(max_examples=200, derandomize=True)
@given(data=st.binary(max_size=300) | values.map(msgspec.msgpack.encode), wrap=st.booleans())
def test_random_bytes_are_refused_by_name(data: bytes, wrap: bool) -> None:
    everyone, _, _ = recorded()
    message = sealed_bytes(data, everyone.identities[SERVER]) if wrap else data
    client, server = everyone.new_client("c000"), everyone.new_server()
    before, kept = state_of(client), server_state(server)
    with pytest.raises(MalformedError):
        client.receive(message)
    with pytest.raises(MalformedError):
        server.receive(message)
    assert unchanged(client, before)
    assert server_state(server) == kept


@pytest.mark.parametrize("step", range(6))
def test_every_single_bit_matters(step: int) -> None:
    """No bit of a message can be flipped on its way without being noticed."""
    asked = recorded()[1]
    client, _ = parties_at(step)
    data = asked[6 + step]
    before = state_of(client)
    random = Random(step)
    for at in random.sample(range(8 * len(data)), 120):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(ProtocolError):
            client.receive(bytes(flipped))
    assert unchanged(client, before)
    client.receive(data)
