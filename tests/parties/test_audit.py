"""What somebody changes by hand in a directory, an audit sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from party_world import FIVE, World

from fedforget.errors import FedforgetError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.folders import write_private
from fedforget.parties.server_party import ServerParty, open_server
from fedforget.protocol.client_ledger import dump, load
from fedforget.protocol.membership import SignedMembership

TRIGGER = """
CREATE TRIGGER keep BEFORE DELETE ON request BEGIN
INSERT INTO receipt VALUES (99, old.tag, old.time); END
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("audit"), FIVE).set_up().fill(10)
    world.round()
    world.forget("aarhus", ["A-1"])
    world.round()
    world.enrol(suspend=["evora"])
    world.round()
    # A request that waits, and a list under which no round was run.
    world.forget("aarhus", ["A-2"])
    world.enrol(resume=["evora"])
    world.check_audits()
    return world


@pytest.fixture
def party(made: World, tmp_path: Path) -> Iterator[ClientParty]:
    shutil.copytree(made.client("aarhus"), tmp_path / "aarhus")
    with open_client(tmp_path / "aarhus") as opened:
        yield opened


@pytest.fixture
def server(made: World, tmp_path: Path) -> Iterator[ServerParty]:
    shutil.copytree(made.server, tmp_path / "server")
    with open_server(tmp_path / "server") as opened:
        yield opened


@pytest.mark.parametrize("content", [b"\0", b"\xc0", b"\x90", b"\xff", b"\x81\xc4\1x\1"], ids=repr)
def test_a_damaged_aggregate_is_named(server: ServerParty, content: bytes) -> None:
    server._db.execute("UPDATE value_aggregate SET content = ?", (content,))
    assert "aggregate" in found(server) or "damaged" in found(server)


def test_lists_that_are_gone_are_named(party: ClientParty) -> None:
    party.store.execute("DELETE FROM list")
    assert "the membership lists that were adopted are gone" in found(party)


def found(party: ClientParty | ServerParty) -> str:
    """All problems, in one line; an audit that cannot be made at all says so, too."""
    try:
        audit = party.audit()
    except FedforgetError as error:
        return str(error)
    if isinstance(audit, dict):
        return "; ".join(audit["problems"])
    assert audit.passed == (audit.stored == audit.fresh and not audit.problems)
    return "; ".join(audit.problems)


# -- a client ----------------------------------------------------------------------------------


def test_an_untouched_client(party: ClientParty) -> None:
    assert found(party) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"seen": 0},
        {"base_round": 1},
        {"lock": None, "recovering": True},
        {"base": None},
        {"joins_alone": True},
        {"left": True},
    ],
)
def test_a_ledger_that_was_altered(party: ClientParty, changes: dict) -> None:
    data = dump(structs.replace(load(party.store.get("ledger")), **changes))
    with party.store.transaction():
        party.store.put("ledger", data)
    assert "the stored ledger was altered" in found(party)
    with pytest.raises(FedforgetError, match="the stored ledger was altered"):
        party.receive(b"")


def test_an_old_ledger_with_its_seal(party: ClientParty, made: World) -> None:
    """Both were stored at an earlier round, the notices since then are still there."""
    with party.store.transaction():
        place = structs.replace(party.ledger().place, round=1)
        party._store_ledger(structs.replace(party.ledger(), place=place))
    assert "the ledger stands at another round than the stored commit notices" in found(party)


@pytest.mark.parametrize("table", ["request", "receipt"])
def test_a_request_that_was_deleted(party: ClientParty, table: str) -> None:
    party.store.execute(f"DELETE FROM {table}")
    number = {"request": 2, "receipt": 1}[table]
    assert f"request {number} neither waits nor has a receipt" in found(party)


def test_a_request_that_was_deleted_with_all_that_told_of_it(party: ClientParty) -> None:
    """Its salt, and the number that it had been given."""
    (request,) = party.store.requests()
    party.store.execute("DELETE FROM request")
    party.store.execute(f"DROP TABLE value_salt_{request.tag}")
    for statement in ("UPDATE sqlite_sequence SET seq = seq - 1", "DELETE FROM sqlite_sequence"):
        party.store.execute(statement)
        assert "the requests that wait were altered, or one was deleted" in found(party)


@pytest.mark.parametrize(
    "change",
    [
        "records = 5",
        "time = '2019-01-01T00:00:00+00:00'",
        "attempt = 9",
        "reseeded = 7",
        "number = 3",
        "tag = '00000000'",
        "digests = x'90'",
        "digests = x'c0'",
    ],
)
def test_a_request_that_was_altered(party: ClientParty, change: str) -> None:
    party.store.execute(f"UPDATE request SET {change}")
    assert "the requests that wait were altered" in found(party)


def test_nothing_goes_on_with_a_request_that_was_altered(party: ClientParty) -> None:
    """The next change would make it look right."""
    party.store.execute("UPDATE request SET records = 5")
    with pytest.raises(FedforgetError, match="the stored table “request” is damaged"):
        party.forget(["A-3"])
    assert b"sA-3" in party.store.index()
    assert "the requests that wait were altered" in found(party)


def test_a_salt_that_was_altered(party: ClientParty) -> None:
    with party.store.transaction():
        party.store.put(f"salt_{party.store.requests()[0].tag}", bytes(16))
    assert "the requests that wait were altered" in found(party)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (
            """UPDATE receipt SET document = replace(document, '"records": 1', '"records": 2')""",
            "does not hold: client_signature",
        ),
        ("UPDATE receipt SET document = '{}'", "does not hold: the receipt is damaged"),
        ("INSERT INTO receipt VALUES (9, '00000000', 'x')", "receipt 9-00000000 does not hold"),
        (
            "INSERT INTO receipt SELECT 9, tag, document FROM receipt",
            "does not hold: it is that of another request",
        ),
        ("UPDATE receipt SET tag = '00000000'", "does not hold: it is that of another request"),
    ],
)
def test_a_receipt_that_was_altered_or_added(
    party: ClientParty, statement: str, named: str
) -> None:
    party.store.execute(statement)
    assert named in found(party)


def test_a_second_row_where_one_value_is(party: ClientParty) -> None:
    """It can hold all records, and nothing would ever overwrite it."""
    tables = party.store.execute("SELECT name FROM sqlite_schema WHERE name GLOB 'value_*'")
    for (table,) in tables:
        party.store.execute(f"INSERT INTO {table} SELECT number FROM part")
        assert f"the stored {table.removeprefix('value_')} is damaged" in found(party)
        party.store.execute(f"DELETE FROM {table} WHERE rowid > 1")
    assert found(party) == ""


def test_a_value_that_only_requests_have(party: ClientParty) -> None:
    """A receipt says itself how many ids were not held; no table is needed any more."""
    table = f"value_not_held_{party.store.receipts()[0].tag}"
    party.store.execute(f"CREATE TABLE {table} (content BLOB NOT NULL)")
    assert f"something that fedforget did not make: table {table}" in found(party)


def test_copies_of_a_store_in_the_directory(party: ClientParty) -> None:
    """They keep what is forgotten, whatever they are called; other files are the operator's."""
    write_private(party.folder / "notes.txt", b"called the server's operator")
    assert found(party) == ""
    (party.folder / "old").mkdir(mode=0o700)
    for name in ("client.sqlite.bak", "old/forgotten.sqlite"):
        copy = party.folder / name
        write_private(copy, (party.folder / "client.sqlite").read_bytes())
        assert f"{copy} is a database that fedforget did not make" in found(party)
        copy.unlink()


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TABLE copy AS SELECT * FROM part", "table copy"),
        ("CREATE TABLE value_copy AS SELECT ids AS content FROM part", "table value_copy"),
        ("CREATE TABLE value_salt_00000000 (content BLOB NOT NULL)", "table value_salt_00000000"),
        ("CREATE VIEW all_ids AS SELECT ids FROM part", "view all_ids"),
        ("CREATE INDEX by_seed ON cluster (seed)", "index by_seed"),
        ("ALTER TABLE part ADD COLUMN copy BLOB", "table part"),
        (TRIGGER, "trigger keep"),
    ],
)
def test_something_that_fedforget_did_not_make(
    party: ClientParty, statement: str, named: str
) -> None:
    """A table with all records in it would keep what is forgotten."""
    party.store.execute(statement)
    wanted = f"client.sqlite holds something that fedforget did not make: {named}"
    assert wanted in found(party)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM notice WHERE round = 2", "does not follow round 1"),
        ("DELETE FROM notice WHERE round = 3", "another round than the stored commit notices"),
        ("DELETE FROM notice", "another round than the stored commit notices"),
        ("UPDATE notice SET letter = x'00' WHERE round = 2", "not a message of version 2"),
        ("UPDATE notice SET letter = (SELECT letter FROM notice WHERE round = 1)", "round 1"),
        ("DELETE FROM list WHERE epoch = 2", "does not follow epoch 1"),
        ("DELETE FROM list WHERE epoch = 1", "is not the one of the list"),
        ("UPDATE list SET data = x'00' WHERE epoch = 2", "not a membership list"),
    ],
)
def test_a_clients_history(party: ClientParty, statement: str, named: str) -> None:
    party.store.execute(statement)
    assert named in found(party), found(party)


def test_every_part_of_a_clients_notices_and_lists(party: ClientParty) -> None:
    """A changed byte anywhere, also in the last list, under which no round was run."""
    for table, column, key in (("notice", "letter", "round"), ("list", "data", "epoch")):
        for number, data in party.store.execute(f"SELECT {key}, {column} FROM {table}"):
            for at in range(0, len(data), 37):
                changed = bytearray(data)
                changed[at] ^= 1 << (at % 8)
                query = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
                party.store.execute(query, (bytes(changed), number))
                assert party.audit().problems, (table, number, at)
                party.store.execute(query, (data, number))
    assert found(party) == ""


@pytest.mark.parametrize(
    ("column", "content"),
    [("number", (12.5, 0.0)), ("number", (0.0, -0.0)), ("labels", (1,))],
)
def test_a_slot_of_an_erased_record_that_still_holds_something(
    party: ClientParty, column: str, content: tuple[float, ...]
) -> None:
    """Its id is gone, so no list of records shows it."""
    row = party.store._free_rows()[0][0]
    part, slot = divmod(row, 4096)
    data = np.array(content, dtype="<f8" if column == "number" else "<i4").tobytes()
    party.store._overwrite(column, part, np.array([slot]), data)
    assert "1 erased record has left values or a label behind" in found(party)


def test_records_that_came_back(party: ClientParty) -> None:
    with party.store.transaction():
        party.store.add([b"sA-1"], party.store.values_of([4096], 2))
        party._held.draw_afresh()
    assert "1 record is held though it was forgotten" in found(party)


def test_a_list_of_forgotten_ids_that_is_gone(party: ClientParty) -> None:
    (party.folder / "forgotten.sqlite").unlink()
    assert "forgotten.sqlite is missing" in found(party)


# -- a server ----------------------------------------------------------------------------------


def test_an_untouched_server(server: ServerParty) -> None:
    assert found(server) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"round": 2},
        {"link": bytes(32)},
        {"model": bytes(32)},
        {"attempt": 1},
        {"counted": {"aarhus": 1}},
        {"counted": {**dict.fromkeys(FIVE, 3), "mallory": 3}},
    ],
)
def test_a_servers_ledger(server: ServerParty, changes: dict) -> None:
    place = structs.replace(server.ledger().place, **changes)
    with server._db.transaction():
        server._store_ledger(structs.replace(server.ledger(), place=place))
    assert "the ledger does not stand where the commit notices lead" in found(server)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("DELETE FROM notice WHERE round = 2", "does not follow round 1"),
        ("DELETE FROM notice WHERE round = 3", "does not stand where the commit notices lead"),
        ("UPDATE notice SET letter = x'00' WHERE round = 2", "not a message of version 2"),
        ("DELETE FROM list WHERE epoch = 2", "not known here"),
        ("DELETE FROM list WHERE epoch = 3", "the membership list is not the one that the log"),
        ("DELETE FROM log WHERE number = 2", "log entry 2 is numbered 3"),
        ("UPDATE log SET entry = '{}' WHERE number = 2", "log entry 2"),
        ("CREATE TABLE copy AS SELECT * FROM value_aggregate", "table copy"),
        ("CREATE TABLE value_old AS SELECT * FROM value_aggregate", "table value_old"),
    ],
)
def test_a_servers_history(server: ServerParty, statement: str, named: str) -> None:
    server._db.execute(statement)
    assert named in found(server), found(server)


def test_a_second_row_at_a_server(server: ServerParty) -> None:
    """An old aggregate is a copy of what was forgotten."""
    server._db.execute("INSERT INTO value_aggregate SELECT content FROM value_aggregate")
    assert "the stored aggregate is damaged" in found(server)


def test_a_copy_of_the_store_at_a_server(server: ServerParty) -> None:
    write_private(server.folder / "old", (server.folder / "server.sqlite").read_bytes())
    assert f"{server.folder / 'old'} is a database that fedforget did not make" in found(server)


@pytest.mark.parametrize("epoch", [-1, 9])
def test_lists_under_other_epochs(party: ClientParty, server: ServerParty, epoch: int) -> None:
    for store in (party.store, server._db):
        store.execute("UPDATE list SET epoch = ? WHERE epoch = 3", (epoch,))
    assert "the membership list" in found(server) or "another epoch than its own" in found(server)
    assert found(party)


def test_a_list_that_the_server_did_not_publish(server: ServerParty) -> None:
    """The same names and keys, signed, but somebody is suspended: the log tells another list."""
    last = server.lists()[-1]
    members = tuple(structs.replace(one, suspended=one.name == "evora") for one in last.members)
    other = SignedMembership.by(structs.replace(last, members=members), server.identity)
    server._db.execute("UPDATE list SET data = ? WHERE epoch = ?", (other.data, last.epoch))
    assert "the membership list is not the one that the log names" in found(server)


def test_every_part_of_a_servers_notices_and_lists(server: ServerParty) -> None:
    for table, column, key in (("notice", "letter", "round"), ("list", "data", "epoch")):
        for number, data in server._db.execute(f"SELECT {key}, {column} FROM {table}"):
            for at in range(0, len(data), 53):
                changed = bytearray(data)
                changed[at] ^= 1 << (at % 8)
                query = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
                server._db.execute(query, (bytes(changed), number))
                assert found(server), (table, number, at)
                server._db.execute(query, (data, number))
    assert found(server) == ""
