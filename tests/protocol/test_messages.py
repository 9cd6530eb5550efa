"""Messages: their bytes against an independent twin, strict reading, and noise of every kind."""

from __future__ import annotations

import json
import re
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
from fedforget.protocol.client_side import ClientSide
from fedforget.protocol.errors import BadSignatureError, MalformedError, ProtocolError
from fedforget.protocol.history import link_of
from fedforget.protocol.keys import Identity, PublicKey
from fedforget.protocol.membership import (
    MAX_NUMBER,
    SERVER,
    Member,
    Membership,
    SignedMembership,
)
from fedforget.protocol.messages import (
    MAX_BYTES,
    Context,
    LeaveStatement,
    Letter,
    Masked,
    Notice,
    Payload,
    Present,
    SignedSet,
    Who,
    consent_to,
    leave_statement,
    seal,
    view_of,
)
from fedforget.protocol.server_side import ServerSide
from parties import (
    ANSWERED,
    MODEL,
    Everyone,
    Stage,
    server_state,
    stage_of,
    state_of,
    unchanged,
)

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


def kind_of(case: dict[str, Any]) -> str:
    content = case["content"]
    return str(content[4][0] if content[0] == "message" else content[0])


def content_of(case: dict[str, Any]) -> messages.Content:
    """A vector's content, built field by field."""
    tag, *fields = plain(case["content"])
    if tag == "who":
        return Who(*fields)
    if tag == "present":
        at = Present.__struct_fields__.index("leaving")
        if fields[at] is not None:
            fields[at] = LeaveStatement(*fields[at])
        if fields[-1] is not None:
            fields[-1] = SignedSet(*fields[-1])
        return Present(*fields)
    context, sender, recipient, (kind, *parts) = fields
    if kind in ("shares", "delivery"):
        at = 0 if kind == "shares" else 1
        parts[at] = tuple(messages.SealedShares(*one) for one in parts[at])
    if kind == "open":
        parts[1] = tuple(LeaveStatement(*one) for one in parts[1])
    return Payload(Context(*context), sender, recipient, BODIES[kind](*parts))


@pytest.mark.parametrize("case", VECTORS["messages"], ids=kind_of)
def test_sealed_messages_are_the_twin_s(case: dict[str, Any]) -> None:
    content = content_of(case)
    identity = Identity(bytes.fromhex(case["seed"]))
    assert identity.public.data.hex() == case["public"]
    assert seal(content, identity).hex() == case["data"]
    letter = Letter(bytes.fromhex(case["data"]))
    assert letter.content == content
    assert letter.check(identity.public) == content
    if isinstance(content, Payload):
        assert letter.payload == content
    else:
        with pytest.raises(MalformedError, match="greeting"):
            _ = letter.payload


def test_there_is_a_vector_of_every_kind_of_message() -> None:
    assert {kind_of(case) for case in VECTORS["messages"]} == {*BODIES, "who", "present"}


@pytest.mark.parametrize("case", VECTORS["consents"], ids=str)
def test_what_a_consent_signs_is_the_twin_s(case: dict[str, Any]) -> None:
    context = Context(*plain(case["context"]))
    roster, sharers, alive, dead = (
        tuple(case[name]) for name in ("roster", "sharers", "alive", "dead")
    )
    view = view_of(roster, sharers, dead)
    assert view.hex() == case["view"]
    assert consent_to(context, alive, view).hex() == case["signed"]


def test_a_consent_binds_the_attempt_and_all_lists() -> None:
    one = Context(*plain(VECTORS["consents"][0]["context"]))
    other = Context(*plain(VECTORS["consents"][1]["context"]))
    lists = [("ab", ""), ("a", "b"), ("b", "a"), ("", "ab"), ("", "")]
    signed = [
        consent_to(context, tuple(alive), view_of(roster, sharers, tuple(dead)))
        for context in (one, other)
        for alive, dead in lists
        for roster in (("a", "b"), ("ab",), ("a", "b", "c"))
        for sharers in (("a", "b"), ("ab",))
    ]
    view = view_of((), (), ())
    signed += [consent_to(one, ("ab",), view), consent_to(one, ("a", "b", ""), view)]
    assert len(set(signed)) == len(signed)


@pytest.mark.parametrize("case", VECTORS["leaves"], ids=str)
def test_what_a_leaver_signs_is_the_twin_s(case: dict[str, Any]) -> None:
    federation, membership, link = (
        bytes.fromhex(case[name]) for name in ("federation", "membership", "link")
    )
    signed = leave_statement((federation, membership, link), case["name"], case["alone"])
    assert signed.hex() == case["signed"]


def test_a_leave_statement_binds_list_place_name_and_whether_alone() -> None:
    parts = [(bytes(16), bytes(32), bytes(32)), (bytes(16), bytes(32), MODEL)]
    parts += [(bytes(16), MODEL, bytes(32)), (MODEL[:16], bytes(32), bytes(32))]
    signed = [
        leave_statement(part, name, alone)
        for part in parts
        for name in ("a", "b")
        for alone in (False, True)
    ]
    assert len(set(signed)) == len(signed)


@pytest.mark.parametrize("case", VECTORS["links"], ids=str)
def test_links_are_the_twin_s(case: dict[str, Any]) -> None:
    context = Context(*plain(case["context"]))
    survivors, left, counted = (plain(case[name]) for name in ("survivors", "left", "counted"))
    notice = Notice(survivors, left, counted, bytes(32), MODEL, 7, ())
    assert link_of(context, notice).hex() == case["link"]


def test_a_link_is_what_clients_go_on_from_and_nothing_else() -> None:
    """Another attempt at the same set, its kind, salt, model, time and signatures do not matter."""
    case = VECTORS["links"][0]
    context = Context(*plain(case["context"]))
    survivors, left, counted = (plain(case[name]) for name in ("survivors", "left", "counted"))
    notice = Notice(survivors, left, counted, bytes(32), MODEL, 7, ())
    link = link_of(context, notice)
    replace = msgspec.structs.replace
    same = {"attempt": 9, "kind": "full", "capacity": 5, "salt": b"?", "model": bytes(32)}
    same |= {"leaving": (), "alone": (), "last_attempt": 7}
    for name, value in same.items():
        assert link_of(replace(context, **{name: value}), notice) == link
    other = {"federation": bytes(16), "configuration": bytes(32), "membership": bytes(32)}
    other |= {"last": bytes(32), "round": 1}
    for name, value in other.items():
        assert link_of(replace(context, **{name: value}), notice) != link
    for name, value in {
        "view": MODEL,
        "model": bytes(32),
        "time": 8,
        "consents": (("a", b""),),
    }.items():
        assert link_of(context, replace(notice, **{name: value})) == link
    for name, value in {"survivors": ("a",), "left": (), "counted": counted[1:]}.items():
        assert link_of(context, replace(notice, **{name: value})) != link


def membership_of(case: dict[str, Any]) -> Membership:
    fields = list(plain(case["list"]))
    fields[9] = tuple(Member(*one) for one in fields[9])
    return Membership(*fields)


@pytest.mark.parametrize("case", VECTORS["memberships"], ids=lambda case: len(case["list"][9]))
def test_membership_lists_are_the_twin_s(case: dict[str, Any]) -> None:
    membership, identity = membership_of(case), Identity(bytes.fromhex(case["seed"]))
    assert membership.digest.hex() == case["digest"]
    assert membership.fingerprint == case["fingerprint"]
    signed = SignedMembership.by(membership, identity)
    assert signed.data.hex() == case["data"]
    read = SignedMembership.parse(bytes.fromhex(case["data"]))
    assert read.check(identity.public, membership.federation) == membership
    assert identity.public.data.hex() == case["public"]
    with pytest.raises(BadSignatureError):
        read.check(identity.public, bytes(16))
    with pytest.raises(BadSignatureError):
        read.check(Identity(bytes(32)).public, membership.federation)
    names = [member.name for member in membership.members]
    assert membership.position == {name: i for i, name in enumerate(names, 1)}


LISTS: dict[str, Callable[[list[Any]], object]] = {
    "an epoch of 2**61": lambda fields: fields.__setitem__(1, 2**61),
    "an epoch of 2**53": lambda fields: fields.__setitem__(1, MAX_NUMBER),
    "epoch 0": lambda fields: fields.__setitem__(1, 0),
    "a negative epoch": lambda fields: fields.__setitem__(1, -1),
    "a round of 2**61": lambda fields: fields.__setitem__(4, 2**61),
    "a capacity of 2**61": lambda fields: fields.__setitem__(10, 2**61),
    "a capacity for which no vector is made": lambda fields: fields.__setitem__(10, 2**30),
    "no capacity": lambda fields: fields.__setitem__(10, 0),
    "unsorted": lambda fields: fields[9].reverse(),
    "one member twice": lambda fields: fields[9].append(fields[9][-1]),
    "one key twice": lambda fields: fields[9][1].__setitem__(1, fields[9][0][1]),
    "a suspended member that is not counted": lambda fields: fields[9][0].__setitem__(2, True),
    "somebody who never came": lambda fields: fields[9][0].__setitem__(3, 0),
    "somebody who comes later": lambda fields: fields[9][0].__setitem__(3, fields[1] + 1),
    "somebody of whom it is not said when it came": lambda fields: fields[9][0].pop(),
    "somebody who is counted, not listed and not dropped": lambda fields: fields[6].clear(),
    "somebody dropped who was not counted": lambda fields: fields[6].append(["zoe", 1]),
    "somebody dropped who never came": lambda fields: fields[6][0].__setitem__(1, 0),
    "former members that are not sorted": lambda fields: fields[7].reverse(),
    "sets of members that are not sorted": lambda fields: fields[8].reverse(),
    "the name of everybody": lambda fields: fields[9][0].__setitem__(0, "*"),
    "the server's name": lambda fields: fields[9][0].__setitem__(0, ""),
    "a name that turns the line around": lambda fields: fields[9][0].__setitem__(0, "a\u202e"),
    "a short key": lambda fields: fields[9][0].__setitem__(1, bytes(31)),
    "a key of small order": lambda fields: fields[9][0].__setitem__(1, b"\1" + bytes(31)),
    "one more field": lambda fields: fields.append(0),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_is_not_exactly_right_is_refused(name: str) -> None:
    case = VECTORS["memberships"][0]
    fields, signature = msgspec.msgpack.decode(bytes.fromhex(case["data"]))
    SignedMembership.parse(msgspec.msgpack.encode([fields, signature]))
    LISTS[name](fields)
    with pytest.raises(MalformedError):
        SignedMembership.parse(msgspec.msgpack.encode([fields, signature]))


def test_a_fingerprint_is_long_and_slow() -> None:
    """The server makes both lists, so it needs two that agree: the root of all tries is enough."""
    membership = membership_of(VECTORS["memberships"][0])
    assert re.fullmatch(r"\d{5}( \d{5}){5}", membership.fingerprint)
    # A fast hash would show as digits that follow from the digest alone.
    fast = f"{int.from_bytes(membership.digest[:16], 'big') % 10**30:030}"
    assert membership.fingerprint.replace(" ", "") != fast


def test_every_field_of_a_list_is_signed_and_in_its_fingerprint() -> None:
    membership = membership_of(VECTORS["memberships"][1])
    replace = msgspec.structs.replace
    came_first = replace(membership.members[0], since=1)
    assert membership.members[0].since > 1
    others = [
        replace(membership, federation=bytes(16)),
        replace(membership, epoch=membership.epoch + 1),
        replace(membership, previous=bytes(32)),
        replace(membership, after=bytes(32)),
        replace(membership, after_round=7),
        replace(membership, counted=("m03", "m11"), dropped=()),
        replace(membership, dropped=(("gone", 1),)),
        replace(membership, former=()),
        replace(membership, parted=()),
        replace(membership, members=(came_first, *membership.members[1:])),
        replace(membership, members=membership.members[1:]),
        replace(membership, capacity=membership.capacity + 1),
    ]
    lists = [membership, *others]
    assert len({one.digest for one in lists}) == len(lists)
    assert len({one.fingerprint for one in lists}) == len(lists)


# -- strict reading ----------------------------------------------------------------------------


def sealed_bytes(payload: bytes, identity: Identity | None = None) -> bytes:
    """Any bytes at all, with a good signature."""
    identity = identity or Identity(bytes(32))
    return msgspec.msgpack.encode([payload, identity.sign(b"fedforget message 2\0" + payload)])


def example(tag: str = "survivors") -> list[Any]:
    """A payload as plain lists."""
    # The last one: the first "open" lists nobody.
    data = [case["data"] for case in VECTORS["messages"] if kind_of(case) == tag][-1]
    payload: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.decode(bytes.fromhex(data))[0])
    return payload


def reading(change: Callable[[list[Any]], object], tag: str = "survivors") -> Letter:
    payload = example(tag)
    change(payload)
    return Letter(sealed_bytes(msgspec.msgpack.encode(payload)))


def test_the_example_reads() -> None:
    for tag in BODIES:
        assert type(reading(lambda payload: None, tag).payload.body) is BODIES[tag]
    assert type(reading(lambda content: None, "who").content) is Who
    assert type(reading(lambda content: None, "present").content) is Present


@pytest.mark.parametrize(
    "change",
    {
        "other version": lambda payload: payload[1].__setitem__(14, 1),
        "version left out": lambda payload: payload[1].pop(),
        "one more context field": lambda payload: payload[1].append(0),
        "no tag": lambda payload: payload.pop(0),
        "unknown tag": lambda payload: payload.__setitem__(0, "surprise"),
        "one more payload field": lambda payload: payload.append(b""),
        "no body": lambda payload: payload.pop(),
        "unknown body": lambda payload: payload[4].__setitem__(0, "surprise"),
        "one more body field": lambda payload: payload[4].append([]),
        "one list too few": lambda payload: payload[4].pop(),
        "short identifier": lambda payload: payload[1].__setitem__(0, bytes(15)),
        "long identifier": lambda payload: payload[1].__setitem__(0, bytes(17)),
        "short configuration": lambda payload: payload[1].__setitem__(1, bytes(31)),
        "long membership": lambda payload: payload[1].__setitem__(2, bytes(33)),
        "negative epoch": lambda payload: payload[1].__setitem__(3, -1),
        "huge epoch": lambda payload: payload[1].__setitem__(3, 2**61),
        "short link": lambda payload: payload[1].__setitem__(4, bytes(31)),
        "negative last attempt": lambda payload: payload[1].__setitem__(5, -1),
        "no model": lambda payload: payload[1].__setitem__(6, b""),
        "huge round": lambda payload: payload[1].__setitem__(7, 2**53),
        "attempt as text": lambda payload: payload[1].__setitem__(8, "1"),
        "attempt as a float": lambda payload: payload[1].__setitem__(8, 1.5),
        "attempt as a truth": lambda payload: payload[1].__setitem__(8, True),
        "huge attempt": lambda payload: payload[1].__setitem__(8, 2**53),
        "unknown kind": lambda payload: payload[1].__setitem__(9, "partial"),
        "negative capacity": lambda payload: payload[1].__setitem__(10, -1),
        "huge capacity": lambda payload: payload[1].__setitem__(10, 2**31),
        "long salt": lambda payload: payload[1].__setitem__(11, bytes(65)),
        "salt as text": lambda payload: payload[1].__setitem__(11, "salt"),
        "leavers in bytes": lambda payload: payload[1].__setitem__(12, [b"a"]),
        "an empty leaver": lambda payload: payload[1].__setitem__(13, [""]),
        "nothing as a sender": lambda payload: payload.__setitem__(2, None),
        "long sender": lambda payload: payload.__setitem__(2, "x" * 201),
        "long recipient": lambda payload: payload.__setitem__(3, "x" * 201),
        "an empty name": lambda payload: payload[4].__setitem__(1, [""]),
        "a long name": lambda payload: payload[4].__setitem__(1, ["x" * 201]),
        "a name in bytes": lambda payload: payload[4].__setitem__(1, [b"c000"]),
        "a name that is a list": lambda payload: payload[4].__setitem__(1, [["c000"]]),
        "names as a map": lambda payload: payload[4].__setitem__(1, {"c000": 1}),
        "too many names": lambda payload: payload[4].__setitem__(1, ["x"] * 100_001),
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
        ("open", (4, 2, 0, 2), 64),
        ("advertise", (4, 1), 32),
        ("advertise", (4, 2), 32),
        ("shares", (4, 1, 0, 1), 82),
        ("shares", (4, 1, 0, 2), 16),
        ("shares", (4, 1, 0, 3), 16),
        ("shares", (4, 2), 16),
        ("shares", (4, 3), 32),
        ("delivery", (4, 2, 0, 1), 82),
        ("delivery", (4, 2, 0, 2), 16),
        ("masked", (4, 3), 32),
        ("consent", (4, 1), 64),
        ("unmask", (4, 1, 0, 1), 64),
        ("reveal", (4, 1, 0, 1), 33),
        ("notice", (4, 4), 32),
        ("notice", (4, 5), 32),
        ("notice", (4, 7, 0, 1), 64),
        ("who", (1,), 16),
        ("who", (2,), 32),
        ("who", (3,), 16),
        ("present", (2,), 16),
        ("present", (4,), 32),
        ("present", (7,), 32),
        ("present", (10, 2), 64),
    ],
)
def test_keys_shares_and_signatures_have_their_length(
    tag: str, at: tuple[int, ...], size: int
) -> None:
    def cut(length: int) -> Callable[[list[Any]], None]:
        def change(payload: list[Any]) -> None:
            place = payload
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
        body = Masked(bytes(size), (), bytes(32))
        return seal(Payload(payload.context, "a", SERVER, body), identity)

    room = 500 - len(sealed(0))
    sizes = [size for size in range(room + 10) if len(sealed(size)) <= 500]
    assert Letter(sealed(sizes[-1])).payload.body == Masked(bytes(sizes[-1]), (), bytes(32))
    with pytest.raises(MalformedError, match="500 are allowed"):
        Letter(sealed(sizes[-1] + 1))


def test_a_signature_is_over_the_domain_and_every_byte() -> None:
    case = VECTORS["messages"][0]
    data, identity = bytes.fromhex(case["data"]), Identity(bytes.fromhex(case["seed"]))
    payload = msgspec.msgpack.decode(data)[0]
    for signature in (identity.sign(payload), identity.sign(b"fedforget survivors 2\0" + payload)):
        letter = Letter(msgspec.msgpack.encode([payload, signature]))
        with pytest.raises(BadSignatureError):
            letter.check(identity.public)
    old = b"fedforget message 1\0" + payload
    letter = Letter(msgspec.msgpack.encode([payload, identity.sign(old)]))
    with pytest.raises(BadSignatureError):
        letter.check(identity.public)
    for wrong in (bytes(31) + b"\2", b"\2" + bytes(31), Identity(bytes(32)).public.data):
        with pytest.raises(BadSignatureError):
            Letter(data).check(PublicKey(wrong))


def test_another_encoding_of_the_same_values_is_refused() -> None:
    """Msgpack can write a number in several ways; a message is written in one."""
    tag, context, *rest = example()
    context[8] = 5
    packed = [msgspec.msgpack.encode(value) for value in context]

    def written() -> bytes:
        parts = [msgspec.msgpack.encode(tag), b"\x9f", *packed]
        return b"\x95" + b"".join([*parts, *map(msgspec.msgpack.encode, rest)])

    assert Letter(sealed_bytes(written())).payload.context.attempt == 5
    packed[8] = b"\xcd" + (5).to_bytes(2, "big")
    payload = written()
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


def parties_at(step: int) -> tuple[ClientSide, ServerSide]:
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
    assert stage_of(server) is (*ANSWERED, Stage.DECIDED)[step]
    return client, server


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=90),
    st.sampled_from(["", "*", "c000", "c001", "c002", "full", "delta", "open", "survivors"]),
    st.sampled_from(["message", "who", "present", "notice"]),
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


def only_named_errors(client: ClientSide, server: ServerSide, data: bytes) -> None:
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
