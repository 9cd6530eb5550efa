"""Receipts made by those who hold keys and lie: what they cannot prove is refused by name."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from party_world import FIVE, World, values_of

from fedforget.parties import receipts
from fedforget.parties.amendments import next_version
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.membership_file import MembershipDocument
from fedforget.parties.receipts import Receipt, ReceiptError
from fedforget.parties.server_party import open_server
from fedforget.protocol.errors import ProtocolError
from fedforget.protocol.keys import Identity
from fedforget.protocol.messages import Letter, Notice, Payload, consent_to, seal
from fedforget.protocol.server_side import ServerSide
from fedforget.protocol.server_stages import Outgoing


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two rounds, a request in the second; then another list, and a third round with a request."""
    made = World(tmp_path_factory.mktemp("receipts"), FIVE).set_up().fill(10)
    made.round()
    made.forget("aarhus", ["A-1", "A-2"])
    made.round()
    made.enrol(suspend=["evora"])
    made.forget("aarhus", ["A-3"])
    made.round()
    return made


def identity_of(world: World, name: str) -> Identity:
    return Identity((world.folder / name / "identity.key").read_bytes())


def receipt(world: World, number: int = 0, name: str = "aarhus") -> Receipt:
    with open_client(world.client(name)) as party:
        document = json.loads(party.store.receipts()[number].document)
    return msgspec.convert(document, Receipt)


def signed_again(world: World, one: Receipt, identity: Identity | None = None) -> dict[str, Any]:
    """What the client would have signed, with its present key or another."""
    unsigned = structs.replace(one, client_signature="")
    signature = (identity or identity_of(world, one.client)).sign(receipts._statement(unsigned))
    plain: dict[str, Any] = msgspec.to_builtins(
        structs.replace(unsigned, client_signature=signature.hex())
    )
    return plain


def notice_again(world: World, data: str, in_context: Any = None, **changes: Any) -> str:
    """A commit notice that the server signs, though it is not so."""
    payload = Letter(bytes.fromhex(data)).payload
    assert isinstance(payload.body, Notice)
    context = structs.replace(payload.context, **in_context or {})
    body = structs.replace(payload.body, **changes)
    again = Payload(context, payload.sender, payload.recipient, body)
    return seal(again, identity_of(world, "server")).hex()


def notice_of(one: Receipt) -> Notice:
    body = Letter(bytes.fromhex(one.notice_after)).payload.body
    assert isinstance(body, Notice)
    return body


def lists_of(world: World) -> list[MembershipDocument]:
    with open_server(world.server) as server:
        return [MembershipDocument.of(one) for one in server.signed_lists()]


def test_the_receipts_prove(world: World) -> None:
    for number, (records, epoch) in enumerate(((2, 1), (1, 2))):
        proof = receipts.verify(msgspec.to_builtins(receipt(world, number)), world.federation)
        assert (proof.records, proof.epoch, proof.remarks) == (records, epoch, ())
    again = signed_again(world, receipt(world))
    assert receipts.verify(again, world.federation).client == "aarhus"


def test_too_few_consents(world: World) -> None:
    one = receipt(world)
    consents = notice_of(one).consents
    assert len(consents) == 4
    for some, named in (
        (consents[:-1], "notice_after: 3 members agree to the survivors; 1 more must"),
        ((), "notice_after: 0 members agree"),
        ((*consents[:3], consents[0]), "notice_after: a signature occurs twice"),
        ((*consents[:3], ("mallory", consents[3][1])), "notice_after: .* is not by a member"),
        ((*consents[:3], (consents[3][0], bytes(64))), "notice_after: dresden did not agree"),
    ):
        notice = notice_again(world, one.notice_after, consents=some)
        document = signed_again(world, structs.replace(one, notice_after=notice))
        with pytest.raises(ReceiptError, match=named):
            receipts.verify(document, world.federation)


def test_a_commit_of_another_version_of_the_federation_file(world: World) -> None:
    """Whoever signs for a version before its list, or after the next one, proves nothing."""
    first, server = world.federation, identity_of(world, "server")
    lax = dataclasses.replace(first.protocol, dropout=0.4)
    second = next_version(first, dataclasses.replace(first, protocol=lax), 2, server)
    one = receipt(world)
    context, notice = Letter(bytes.fromhex(one.notice_after)).payload.context, notice_of(one)
    assert (context.epoch, second.digest_at(1)) == (1, first.digest)
    forged = structs.replace(context, configuration=second.digest)
    statement = consent_to(forged, notice.survivors, notice.view)
    consents = tuple(
        (name, identity_of(world, name).sign(statement)) for name, _ in notice.consents
    )
    told = {"configuration": second.digest}
    letter = notice_again(world, one.notice_after, told, consents=consents)
    changed = structs.replace(one, notice_after=letter, configuration=second.digest.hex())
    with pytest.raises(ReceiptError, match="notice_after: it belongs to another configuration"):
        receipts.verify(signed_again(world, changed), second)
    # The second version has been in force since list 2.
    late = msgspec.to_builtins(receipt(world, 1))
    assert receipts.verify(late, first).epoch == 2
    with pytest.raises(ReceiptError, match="version 1 of the file was not in force with list 2"):
        receipts.verify(late, first, current=second)
    early = msgspec.to_builtins(one)
    assert receipts.verify(early, first, current=second).epoch == 1


def test_a_notice_with_made_up_signatures_moves_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody saw the signatures when it revealed; what it keeps as evidence must hold them."""
    commit = ServerSide.commit

    def lying(server: ServerSide, model: bytes, time: int = 0) -> list[Outgoing]:
        messages = commit(server, model, time)
        sent = Letter(messages[0].data).payload
        assert isinstance(sent.body, Notice)
        made_up = tuple((name, bytes(64)) for name, _ in sent.body.consents)
        lie = Payload(
            sent.context, sent.sender, sent.recipient, structs.replace(sent.body, consents=made_up)
        )
        return [Outgoing(name, seal(lie, server._identity)) for name, _ in messages]

    world.forget(world.names[0], [f"{world.names[0][0].upper()}-5"])
    with monkeypatch.context() as patched:
        patched.setattr(ServerSide, "commit", lying)
        done = world.round()
    refused = done["refused"]
    assert set(refused) == set(done["participants"])
    assert all("did not agree to these survivors" in reason for reason in refused.values())
    # The notice that the server stored is the right one, and comes with the next opening.
    assert not world.round()["refused"]
    with open_client(world.client(world.names[0])) as party:
        for one in party.store.receipts():
            receipts.verify(json.loads(one.document), world.federation)


@pytest.mark.parametrize(
    ("in_context", "changes"),
    [
        ({"attempt": 77}, {}),
        ({"salt": bytes(16)}, {}),
        ({"kind": "full"}, {}),
        ({"round": 3}, {}),
        ({"leaving": ("aarhus",)}, {}),
        ({"capacity": 99}, {}),
        ({}, {"survivors": FIVE[:4]}),
        ({}, {"view": bytes(32)}),
    ],
)
def test_signatures_of_another_attempt(
    world: World, in_context: dict[str, Any], changes: dict[str, Any]
) -> None:
    one = receipt(world)
    notice = notice_again(world, one.notice_after, in_context, **changes)
    document = signed_again(world, structs.replace(one, notice_after=notice))
    with pytest.raises(ReceiptError, match=r"notice_after: \w+ did not agree to these survivors"):
        receipts.verify(document, world.federation)


def test_swapped_lists(world: World) -> None:
    first, second = lists_of(world)
    for number, wrong in ((0, second), (1, first)):
        one = structs.replace(receipt(world, number), membership=wrong)
        with pytest.raises(ReceiptError, match="membership: the list is not the one that the"):
            receipts.verify(signed_again(world, one), world.federation)


def test_the_commit_before(world: World) -> None:
    """It must be the one that those who signed knew: its link, its attempt, and its model."""
    one = receipt(world, 1)
    assert one.notice_before is not None
    wrong = [
        notice_again(world, one.notice_before, model=bytes(32)),
        notice_again(world, one.notice_before, {"attempt": 99}),
        notice_again(world, one.notice_before, {"last": bytes(32)}),
        notice_again(world, one.notice_before, counted=(("aarhus", 2),)),
        receipt(world, 0).notice_before,
        one.notice_after,
    ]
    for notice in wrong:
        document = signed_again(world, structs.replace(one, notice_before=notice))
        with pytest.raises(ReceiptError, match="notice_before: it is not the commit before"):
            receipts.verify(document, world.federation)
    document = signed_again(world, structs.replace(one, notice_before=None))
    with pytest.raises(ReceiptError, match="notice_before: it is missing"):
        receipts.verify(document, world.federation)


def test_a_client_that_was_not_counted(world: World) -> None:
    """Evora was suspended in the third round."""
    one = structs.replace(receipt(world, 1), client="evora")
    with pytest.raises(ReceiptError, match="round: the commit notice does not count evora"):
        receipts.verify(signed_again(world, one), world.federation)
    wrong = structs.replace(receipt(world, 1), round=2)
    with pytest.raises(ReceiptError, match="round: "):
        receipts.verify(signed_again(world, wrong), world.federation)


def test_a_revoked_key(tmp_path: Path) -> None:
    """A key that was replaced signs nothing for later rounds."""
    world = World(tmp_path, FIVE).set_up().fill(10)
    world.round()
    world.forget("aarhus", ["A-1"])
    world.round()
    old, honest = identity_of(world, "aarhus"), receipt(world)
    world.client("aarhus").rename(tmp_path / "stolen")
    world.enrol({"aarhus": world.make_client("aarhus")}, renew=["aarhus"])
    world.hold("aarhus", [f"A-{row}" for row in range(9)], values_of(9, 0))
    world.round()
    world.forget("aarhus", ["A-3"])
    world.round()
    first, second = lists_of(world)
    later = receipt(world)
    assert receipts.verify(msgspec.to_builtins(later), world.federation).epoch == 2
    with pytest.raises(ReceiptError, match="client_signature: aarhus's own statement"):
        receipts.verify(signed_again(world, later, old), world.federation)
    forged = structs.replace(later, membership=first)
    with pytest.raises(ReceiptError, match="membership: the list is not the one"):
        receipts.verify(signed_again(world, forged, old), world.federation)
    # The receipt from before is as good as it was, and the new key cannot make one for then.
    assert receipts.verify(msgspec.to_builtins(honest), world.federation).epoch == 1
    with pytest.raises(ReceiptError, match="client_signature"):
        receipts.verify(signed_again(world, honest), world.federation)
    with pytest.raises(ReceiptError, match="membership"):
        receipts.verify(
            signed_again(world, structs.replace(honest, membership=second)), world.federation
        )


def test_a_notice_that_arrives_after_a_new_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt names the list of the round, and verifies."""
    world = World(tmp_path, FIVE).set_up().fill(10)
    world.round()
    world.forget("aarhus", ["A-1"])
    real = ClientParty.receive

    def lost(self: ClientParty, data: bytes) -> bytes | None:
        content = Letter(data).content
        late = isinstance(content, Payload) and isinstance(content.body, Notice)
        if late and self.name == "aarhus":
            raise ProtocolError("lost on the way")
        return real(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(ClientParty, "receive", lost)
        assert "aarhus" in world.round()["participants"]
    with open_client(world.client("aarhus")) as party:
        assert party.store.receipts() == []
    world.enrol(suspend=["evora"])
    world.round()
    world.check_audits()
    proof = receipts.verify(msgspec.to_builtins(receipt(world)), world.federation)
    assert (proof.round, proof.epoch, proof.remarks) == (2, 1, ())
    world.enrol(resume=["evora"])
    world.round()
    world.check_sums()


def asked(one: Receipt, time: str) -> Receipt:
    return structs.replace(one, request=structs.replace(one.request, time=time))


def test_clocks(world: World) -> None:
    """Times are no proof; those that cannot be right are remarked on."""

    def remarks(one: Receipt, clock: datetime | None = None) -> list[str]:
        document = signed_again(world, one)
        return list(receipts.verify(document, world.federation, clock=clock).remarks)

    one = receipt(world)
    assert remarks(one) == []
    (remark,) = remarks(asked(one, "2019-01-01T00:00:00+00:00"))
    assert "the request is dated 2019-01-01, before the round that came before it" in remark
    found = remarks(asked(one, "2040-01-01T00:00:00+00:00"))
    assert len(found) == 2
    assert "the request is dated 2040-01-01, after the round that carried it out" in found[0]
    assert "2040-01-01, which is in the future" in found[1]
    assert remarks(asked(one, "2019-01-01"))
    found = remarks(one, datetime(2019, 1, 1, tzinfo=UTC))
    assert ["in the future" in remark for remark in found] == [True, True]
    time = int(datetime(2040, 1, 1, tzinfo=UTC).timestamp())
    wrong = structs.replace(one, notice_after=notice_again(world, one.notice_after, time=time))
    assert ["the round is dated 2040-01-01, which is in the future." in one for one in
            remarks(wrong)] == [True]  # fmt: skip
    with pytest.raises(ReceiptError, match="request: its time is not a time"):
        receipts.verify(signed_again(world, asked(one, "yesterday")), world.federation)
    for huge in (2**52, 10**15):
        notice = notice_again(world, one.notice_after, time=huge)
        with pytest.raises(ReceiptError, match="damaged"):
            receipts.verify(
                signed_again(world, structs.replace(one, notice_after=notice)), world.federation
            )


@pytest.mark.parametrize("version", [2, 3])
def test_how_many_were_not_held_belongs_to_version_3(world: World, version: int) -> None:
    """A client may sign what it likes; the two kinds of receipts are not mixed."""
    one = receipt(world)
    request = structs.replace(one.request, not_held=msgspec.UNSET if version == 3 else 4)
    forged = signed_again(world, structs.replace(one, version=version, request=request))
    with pytest.raises(ReceiptError, match="only version 3 says how many ids were not held"):
        receipts.verify(forged, world.federation)
    right = structs.replace(one.request, not_held=4)
    made = signed_again(world, structs.replace(one, version=3, request=right))
    assert receipts.verify(made, world.federation).not_held == 4
    made["request"]["not_held"] = 0
    with pytest.raises(ReceiptError, match="client_signature"):
        receipts.verify(made, world.federation)
    # What was signed as one version is not valid as another.
    older = signed_again(world, one)
    older["version"] = 3
    older["request"]["not_held"] = 0
    with pytest.raises(ReceiptError, match="client_signature"):
        receipts.verify(older, world.federation)
