"""Whatever was changed is noticed, and named."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from party_world import World, federation_file

from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.client_party import open_client
from fedforget.parties.federation_file import FederationFile, FederationFileError
from fedforget.parties.folders import FolderError
from fedforget.parties.log import LogError, check_chain
from fedforget.parties.membership_file import MembershipDocument, document_of
from fedforget.parties.receipts import ReceiptError
from fedforget.parties.server_party import ServerError, open_server
from fedforget.protocol.keys import Identity, PublicKey
from fedforget.protocol.membership import Membership


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("tampering")).set_up().fill(20)
    made.round()
    with open_client(made.client("aarhus")) as party:
        made.salt = bytes.fromhex(party.forget(["A-1", "A-2"]).salt)  # type: ignore[attr-defined]
    made.round()
    return made


@pytest.fixture(scope="module")
def federation(world: World) -> FederationFile:
    return FederationFile.read(world.server / "federation.toml")


@pytest.fixture(scope="module")
def text(world: World) -> str:
    with open_client(world.client("aarhus")) as party:
        return party.store.receipts()[0].document


KEY = Identity(bytes(32)).public.data.hex()


def checked(
    data: bytes, folder: Path, federation: FederationFile, **options: Any
) -> receipts.Proof:
    path = folder / "receipt.json"
    path.write_bytes(data)
    return receipts.verify(receipts.read(path), federation, **options)


def test_the_receipt_proves(
    text: str, tmp_path: Path, federation: FederationFile, world: World
) -> None:
    salt = world.salt  # type: ignore[attr-defined]
    proof = checked(text.encode(), tmp_path, federation, ids=["A-2", "A-3", "A-1"], salt=salt)
    assert (proof.client, proof.records, proof.round) == ("aarhus", 2, 2)
    assert proof.covered == ("A-2", "A-1")
    assert checked(text.encode(), tmp_path, federation, ids=["A-1"], salt=bytes(16)).covered == ()
    with pytest.raises(ReceiptError, match="salt"):
        checked(text.encode(), tmp_path, federation, ids=["A-1"])


def test_every_byte_of_a_receipt(text: str, tmp_path: Path, federation: FederationFile) -> None:
    """Each byte is changed in one way; the ways take turns."""
    data = text.encode()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= (1, 2, 4, 16, 32, 64)[at % 6]
        if json_equal(bytes(changed), data):
            continue
        with pytest.raises(ReceiptError):
            checked(bytes(changed), tmp_path, federation)


def json_equal(one: bytes, other: bytes) -> bool:
    """White space and the spelling of a character are no part of a document."""
    try:
        return bool(json.loads(one) == json.loads(other)) and one.lower() != other.lower()
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: r.update(version=1), "version: 1 is not known here.*fedforget 0.1"),
        (lambda r: r.update(version=True), "version"),
        (lambda r: r["federation"].update(name="another"), "federation"),
        (lambda r: r["federation"].update(identifier="ee" * 16), "federation"),
        (lambda r: r.update(configuration="00" * 32), "configuration"),
        (lambda r: r.update(client="bologna"), "client_signature: bologna"),
        (lambda r: r.update(client="nobody"), "client: nobody"),
        (lambda r: r.update(client="aarhus\u202e"), "client"),
        (lambda r: r["request"].update(records=1), "request"),
        (lambda r: r["request"].update(records=-1), "damaged.*records"),
        (lambda r: r["request"].update(time="2020"), "request"),
        (lambda r: r["request"].update(tag="00"), "request"),
        (lambda r: r["request"].update(number=2), "request"),
        (lambda r: r["request"].update(digests=None), "request"),
        (lambda r: r["request"]["digests"].reverse(), "request"),
        (lambda r: r["request"]["digests"].pop(), "request"),
        (lambda r: r["request"].update(seeds_drawn_again_from=7), "request"),
        (lambda r: r["request"].update(comment=""), "damaged.*comment"),
        (lambda r: r.update(round=1), "round"),
        (lambda r: r.update(erased="everything"), "the words about the erasure"),
        (lambda r: r.update(not_covered=""), "the words about the erasure"),
        (lambda r: r.update(suppression=""), "the words about the erasure"),
        (lambda r: r.update(suppression=receipts.NOT_SUPPRESSED), "client_signature"),
        (lambda r: r["membership"].update(version=3), "membership list of version 3"),
        (lambda r: r["membership"].update(epoch=7), "membership"),
        (lambda r: r["membership"].update(fingerprint="0"), "fingerprint"),
        (lambda r: r["membership"].update(previous="11" * 32), "membership"),
        (lambda r: r["membership"].update(after_round=1), "membership"),
        (lambda r: r["membership"].update(after="11" * 32), "membership"),
        (lambda r: r["membership"].update(counted=["aarhus"]), "membership"),
        (lambda r: r["membership"]["members"][0].update(since=0), "membership"),
        (lambda r: r["membership"].update(capacity=1), "membership"),
        (lambda r: r["membership"]["members"][0].update(key="00" * 32), "membership"),
        (lambda r: r["membership"]["members"][0].update(key=KEY), "membership"),
        (lambda r: r["membership"]["members"][0].update(name="anna"), "membership"),
        (lambda r: r["membership"]["members"][0].update(suspended=True), "membership"),
        (lambda r: r["membership"]["members"].pop(), "membership"),
        (lambda r: r["membership"].update(signature="xx"), "membership"),
        (lambda r: r["membership"].update(signature="00" * 64), "membership list was changed"),
        (lambda r: r["membership"].update(federation="00" * 16), "membership"),
        (lambda r: r.update(membership=[]), "membership"),
        (lambda r: r.update(notice_after=r["notice_before"]), "notice_before: it is not the"),
        (lambda r: r.update(notice_after="00" + r["notice_after"][2:]), "notice_after"),
        (lambda r: r.update(notice_after=r["notice_after"].upper()), "notice_after"),
        (lambda r: r.update(notice_after=""), "notice_after"),
        (lambda r: r.update(notice_before="00"), "notice_before"),
        (lambda r: r.update(notice_before=r["notice_after"]), "notice_before: it is not the"),
        (lambda r: r.update(notice_before=None), "notice_before: it is missing"),
        (lambda r: r.update(client_signature=r["client_signature"].upper()), "client_signature"),
        (lambda r: r.update(client_signature="0" * 128), "client_signature"),
        (lambda r: r.update(client_signature=""), "client_signature"),
        (lambda r: r.pop("round"), "missing required field `round`"),
        (lambda r: r.update(comment="added"), "damaged.*comment"),
    ],
)
def test_what_was_changed_is_named(
    change: Any, named: str, text: str, tmp_path: Path, federation: FederationFile
) -> None:
    document = json.loads(text)
    change(document)
    with pytest.raises(ReceiptError, match=named):
        checked(json.dumps(document).encode(), tmp_path, federation)


def test_what_is_no_receipt(tmp_path: Path, federation: FederationFile) -> None:
    for data in (b"", b"[]", b"\xff\xfe", b'{"version": 1, "version": 1}', b"[" * 100_000):
        with pytest.raises(ReceiptError):
            checked(data, tmp_path, federation)
    with pytest.raises(ReceiptError, match="cannot be read"):
        receipts.read(tmp_path / "missing.json")


def test_another_federations_receipt(text: str, tmp_path: Path) -> None:
    other = World(tmp_path / "other", ["aarhus", "bologna"]).set_up()
    file = FederationFile.read(other.server / "federation.toml")
    with pytest.raises(ReceiptError, match="configuration"):
        checked(text.encode(), tmp_path, file)
    renamed = FederationFile.parse(file.text().replace("1d" * 16, "2e" * 16))
    with pytest.raises(ReceiptError, match="another federation"):
        checked(text.encode(), tmp_path, renamed)


# -- the server --------------------------------------------------------------------------------


def test_every_byte_of_the_log(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    with open_server(made.server) as server:
        rows = server._db.execute("SELECT number, entry FROM log")
        key = PublicKey(bytes.fromhex(server.federation.server_key))
        assert check_chain(server.log(), key) == 3
        for number, entry in rows:
            data = entry.encode()
            for at in range(0, len(data), 3):
                changed = bytearray(data)
                changed[at] ^= (1, 2, 4, 32)[at % 4]
                if json_equal(bytes(changed), data):
                    continue
                database = server._db
                database.execute(
                    "UPDATE log SET entry = CAST(? AS TEXT) WHERE number = ?",
                    (bytes(changed).decode("latin-1"), number),
                )
                with pytest.raises(LogError, match=f"log entr(y|ies) {number}"):
                    check_chain(server.log(), key)
            database.execute("UPDATE log SET entry = ? WHERE number = ?", (entry, number))
        assert check_chain(server.log(), key) == 3


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM log WHERE number = 2", "log entry 2 is numbered 3: one is missing"),
        ("DELETE FROM log WHERE number = 1", "log entry 1 is numbered 2: one is missing"),
    ],
)
def test_an_entry_that_is_missing(world: World, tmp_path: Path, statement: str, named: str) -> None:
    made = world.copy_to(tmp_path)
    with open_server(made.server) as server:
        server._db.execute(statement)
        with pytest.raises(LogError, match=named):
            server.audit()


def test_a_log_that_was_cut_short(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    with open_server(made.server) as server:
        server._db.execute("DELETE FROM log WHERE number = 3")
        assert any("the log ends with round 1" in one for one in server.audit()["problems"])


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("model", lambda m: m.update(centres=b"\1" + m["centres"][1:]), "stored model"),
        ("model", lambda m: m.update(loss=0.0), "stored model"),
        ("model", lambda m: m.update(n_iter=99), "stored model"),
        ("aggregate", lambda a: a.update({min(a): a[min(a)] + 1}), "aggregate does not give"),
    ],
)
def test_what_the_server_stores(
    world: World, tmp_path: Path, name: str, change: Any, named: str
) -> None:
    made = world.copy_to(tmp_path)
    with open_server(made.server) as server:
        content = server._db.get(name)
        change(content)
        with server._db.transaction():
            server._db.put(name, content)
        problems = server.audit()["problems"]
        assert any(named in problem for problem in problems), problems


def test_every_byte_of_the_model(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    with open_server(made.server) as server:
        data = server._db.execute("SELECT content FROM value_model")[0][0]
        for at in range(0, len(data), 7):
            changed = bytearray(data)
            changed[at] ^= 1 << (at % 8)
            server._db.execute("UPDATE value_model SET content = ?", (bytes(changed),))
            try:
                problems = server.audit()["problems"]
            except FedforgetError as error:
                problems = [str(error)]
            assert any("model" in problem for problem in problems)


def test_a_clients_records_and_labels(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    with open_client(made.client("aarhus")) as party:
        assert party.audit().passed
        for column, at in (("number", 3), ("labels", 0)):
            with (
                party.store.transaction(),
                party.store.blob("part", column, 1, readonly=False) as blob,
            ):
                before = blob[at]
                blob[at] = before ^ 1
            assert not party.audit().passed
            with (
                party.store.transaction(),
                party.store.blob("part", column, 1, readonly=False) as blob,
            ):
                blob[at] = before
        assert party.audit().passed


def test_a_file_that_is_no_database(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    (made.client("aarhus") / "client.sqlite").write_bytes(b"garbage " * 2000)
    with pytest.raises(FedforgetError, match=r"client\.sqlite: the file is damaged"):
        made.held("aarhus")
    (made.server / "server.sqlite").write_bytes(b"garbage " * 2000)
    with pytest.raises(FedforgetError, match=r"server\.sqlite: the file is damaged"):
        made.round()
    (made.server / "server.sqlite").unlink()
    with pytest.raises(FedforgetError, match="is missing"):
        made.round()


def test_a_store_of_a_later_version(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    path = made.client("aarhus") / "client.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(FedforgetError, match="schema 9"):
        made.held("aarhus")


def test_a_stored_value_that_is_damaged(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    with open_client(made.client("aarhus")) as party:
        party.store.execute("UPDATE value_ledger SET content = ?", (b"\xc1",))
        with pytest.raises(FedforgetError, match="stored ledger is damaged"):
            party.ledger()


# -- federation files, keys, permissions -------------------------------------------------------


def test_every_value_of_the_federation_file(world: World, tmp_path: Path) -> None:
    """A changed value is named by the party that finds it; every value counts."""
    made = world.copy_to(tmp_path)
    path = made.client("aarhus") / "federation.toml"
    original = path.read_text(encoding="utf-8")
    digest = FederationFile.parse(original).digest
    lines = original.splitlines()
    seen = 0
    for at, line in enumerate(lines):
        if " = " not in line or line.startswith("version"):
            continue
        key, value = line.split(" = ")
        other = another(value)
        changed = "\n".join([*lines[:at], f"{key} = {other}", *lines[at + 1 :]])
        path.write_text(changed, encoding="utf-8")
        assert FederationFile.parse(changed).digest != digest
        with pytest.raises(FederationFileError, match=rf"was changed.*: \S*{key} is"):
            made.held("aarhus")
        seen += 1
    assert seen == 3 + 10 + 5 + 2 * 3
    path.write_text(original, encoding="utf-8")
    assert made.held("aarhus")
    (made.server / "federation.toml").write_text("x", encoding="utf-8")
    with pytest.raises(FederationFileError, match="Expected"):
        made.round()


def another(value: str) -> str:
    choices = {'"none"': '"box"', '"box"': '"none"', '"means"': '"seeds"', "true": "false"}
    choices |= {"false": "true", '"weighted"': '"uniform"'}
    if value in choices:
        return choices[value]
    if value.startswith('"'):
        return value[:-2] + ("1" if value[-2] != "1" else "2") + '"'
    return repr(float(value) / 2 + 0.04) if "." in value else str(int(value) + 1)


def test_parties_with_different_files_refuse_each_other(tmp_path: Path) -> None:
    one = World(tmp_path / "one").set_up()
    two = World(tmp_path / "two").set_up(federation_file(step=0.02))
    mixed = [one.client("aarhus"), one.client("bologna"), two.client("coimbra")]
    from fedforget.runtime.directories import run

    with pytest.raises(FedforgetError, match=r"coimbra has another federation file: server_key is"):
        run(one.server, mixed)
    with open_server(one.server) as server:
        document = server.document()
    assert document is not None
    with (
        open_client(two.client("aarhus")) as party,
        pytest.raises(FedforgetError, match=r"federation's file: .* “study”: server_key is"),
    ):
        party.join(one.federation, document)


def test_a_foreign_key(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    key = made.client("aarhus") / "identity.key"
    key.write_bytes((made.client("bologna") / "identity.key").read_bytes())
    with pytest.raises(FedforgetError, match=r"identity\.key is not the key with which"):
        made.round()
    (made.server / "identity.key").write_bytes(key.read_bytes())
    with pytest.raises(ServerError, match=r"identity\.key is not the key of this federation"):
        made.round()


@pytest.mark.parametrize("name", ["identity.key", "records.key"])
def test_a_key_that_is_lost_or_damaged(world: World, tmp_path: Path, name: str) -> None:
    made = world.copy_to(tmp_path)
    path = made.client("aarhus") / name
    path.write_bytes(b"short")
    with pytest.raises(FolderError, match=r"is damaged \(5 bytes"):
        made.held("aarhus")
    path.unlink()
    with pytest.raises(FolderError, match=f"{name} is missing: restore it"):
        made.held("aarhus")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o666, 0o604])
def test_wrong_permissions(world: World, tmp_path: Path, mode: int) -> None:
    made = world.copy_to(tmp_path)
    for path in sorted(made.client("aarhus").iterdir()):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(FolderError, match=rf"{path.name} can be .*chmod 600"):
            made.held("aarhus")
        path.chmod(before)
    made.client("aarhus").chmod(0o750)
    with pytest.raises(FolderError, match="chmod 700"):
        made.held("aarhus")
    made.client("aarhus").chmod(0o700)
    assert made.held("aarhus")


def test_every_file_is_private_even_while_it_is_open(world: World, tmp_path: Path) -> None:
    import os

    mask = os.umask(0)
    try:
        made = World(tmp_path).set_up().fill(5)
        with open_client(made.client("aarhus")) as party:
            party.forget(["A-1"])
            names = {path.name for path in made.client("aarhus").iterdir()}
            assert {"client.sqlite-wal", "client.sqlite-shm"} <= names
            for path in made.client("aarhus").iterdir():
                assert path.stat().st_mode & 0o777 == 0o600, path
        made.round()
        for path in made.server.iterdir():
            assert path.stat().st_mode & 0o777 == 0o600, path
    finally:
        os.umask(mask)


def altered(document: MembershipDocument, **changes: Any) -> MembershipDocument:
    return document_of(document.plain() | changes)


def test_membership_lists(world: World, tmp_path: Path) -> None:
    made = world.copy_to(tmp_path)
    with open_server(made.server) as server:
        members = server.enrol({"dresden": KEY})
    lines = members.plain()["members"]
    for change in (
        {"epoch": 99},
        {"epoch": 0},
        {"capacity": 1},
        {"capacity": -1},
        {"after_round": 1},
        {"after": "11" * 32},
        {"previous": "11" * 32},
        {"counted": []},
        {"dropped": {"nobody": 1}},
        {"former": ["aarhus"]},
        {"parted": [["aarhus"]]},
        {"counted": ["coimbra", "aarhus"]},
        {"members": [lines[0] | {"since": 2}, *lines[1:]]},
        {"members": [lines[0] | {"since": 0}, *lines[1:]]},
        {"members": [lines[0] | {"since": 3}, *lines[1:]]},
        {"members": lines[1:]},
        {"members": lines[::-1]},
        {"members": [*lines, lines[0] | {"name": "mallory", "key": "00" * 32}]},
        {"members": [lines[0] | {"suspended": True}, *lines[1:]]},
        {"members": [lines[0] | {"key": lines[1]["key"]}, *lines[1:]]},
        {"signature": members.signature[:-1] + ("1" if members.signature[-1] == "0" else "0")},
        {"signature": ""},
        {"federation": "00" * 16},
    ):
        wrong = altered(members, **change)
        with (
            open_client(made.client("aarhus")) as party,
            pytest.raises(FedforgetError, match=r"membership|fingerprint"),
        ):
            party.join(None, wrong)
        try:
            # The same with a fingerprint that fits.
            wrong = altered(wrong, fingerprint=_fingerprint(wrong))
            wrong.signed()
        except (FedforgetError, ValueError):
            continue
        with (
            open_client(made.client("aarhus")) as party,
            pytest.raises(FedforgetError, match=r"membership list (was changed|belongs to)"),
        ):
            party.join(None, wrong)
    for wrong in ({}, [], {"members": {}}, None, members.plain() | {"comment": "x"}):
        with pytest.raises(FedforgetError, match="not a membership list"):
            document_of(wrong)
    for wrong in (
        {"signature": members.signature.upper()},
        {"version": 1},
        {"members": []},
        {"epoch": "2"},
    ):
        with pytest.raises(FedforgetError, match=r"membership list|fingerprint"):
            altered(members, **wrong).signed()
    with open_client(made.client("aarhus")) as party:
        assert not party.join(None, members).known
        assert party.join(None, members).known


def _fingerprint(document: MembershipDocument) -> str:
    plain = [
        bytes.fromhex(document.federation),
        document.epoch,
        bytes.fromhex(document.previous),
        bytes.fromhex(document.after),
        document.after_round,
        document.counted,
        sorted(document.dropped.items()),
        document.former,
        document.parted,
        [(one.name, bytes.fromhex(one.key), one.suspended, one.since) for one in document.members],
        document.capacity,
    ]
    membership: Membership = msgspec.convert(plain, Membership)
    return membership.fingerprint
