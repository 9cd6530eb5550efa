"""Whatever is damaged in a directory is named, with what to do; no command goes on with it."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from party_world import World, all_bytes

from fedforget.cli.directory_page import report_of
from fedforget.errors import FedforgetError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.server_party import ServerParty, open_server

CONTENTS = ("x'00'", "zeroblob(32)", "randomblob(100)", "'{}'", "'text'", "-1", "1 << 60", "0.5")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A client with a request that waits and a receipt, and its server."""
    world = World(tmp_path_factory.mktemp("damaged")).set_up().fill(10)
    world.round()
    world.forget("aarhus", ["A-1"])
    world.round()
    with open_client(world.client("aarhus")) as client:
        client.forget(["A-2", "X"], ignore_missing=True)
    return world


def columns(database: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(database)) as db:
        tables = db.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
        ).fetchall()
        return [
            (table, row[1])
            for (table,) in tables
            for row in db.execute(f"PRAGMA table_info({table})")
        ]


def altered(database: Path, statement: str) -> bool:
    """Change a file by hand; false if SQLite itself refuses."""
    with closing(sqlite3.connect(database)) as db:
        try:
            db.execute(statement)
            db.commit()
        except sqlite3.Error:
            return False
    return True


def use_client(client: ClientParty) -> None:
    client.status()
    client.requests()
    client.receipts()
    client.preview()


def use_server(server: ServerParty) -> None:
    server.status()
    server.sizes()
    server.centres()


def ends_in_words(use: Callable[[], object]) -> str:
    """The named error, empty if there is none; any other error goes on to the test."""
    try:
        use()
    except FedforgetError as error:
        return str(error)
    return ""


def used(folder: Path) -> str:
    """What a directory's commands say in the end, if they stop."""

    def use() -> None:
        if (folder / "client.sqlite").exists():
            with open_client(folder) as client:
                use_client(client)
        else:
            with open_server(folder) as server:
                use_server(server)
        report_of(folder)
        if (folder / "client.sqlite").exists():
            with open_client(folder) as client:
                client.forget(["A-3"])

    return ends_in_words(use)


def audited(folder: Path) -> str:
    """What an audit finds, or why there cannot be one."""

    def use() -> None:
        if (folder / "client.sqlite").exists():
            with open_client(folder) as client:
                audit = client.audit()
                problems = [*audit.problems, *["another fit"] * (audit.stored != audit.fresh)]
        else:
            with open_server(folder) as server:
                problems = server.audit()["problems"]
        if problems:
            raise FedforgetError("; ".join(problems))

    return ends_in_words(use)


def statements(database: Path) -> Iterator[str]:
    """Every column overwritten, every table emptied, every single value doubled or gone."""
    found = columns(database)
    for table, column in found:
        yield from (f"UPDATE {table} SET {column} = {content}" for content in CONTENTS)
    for table in dict(found):
        yield f"DELETE FROM {table}"
        if table.startswith("value_"):
            yield f"INSERT INTO {table} SELECT content FROM {table}"
            yield f"DROP TABLE {table}"


MAY_LACK = re.compile("DROP TABLE value_(columns|imports|federation|salt_[0-9a-f]{8})")
"""What a directory need not have, and the salt of a receipt that was written out."""


@pytest.mark.parametrize("name", ["aarhus", "server"])
def test_whatever_is_altered(made: World, tmp_path: Path, name: str) -> None:
    """No command ends in an error of Python, and an audit sees what was altered."""
    source = made.folder / name
    file = "server.sqlite" if name == "server" else "client.sqlite"
    assert audited(source) == ""
    unseen = []
    for number, statement in enumerate(statements(source / file)):
        folder = tmp_path / f"{number}"
        shutil.copytree(source, folder)
        if altered(folder / file, statement):
            if not audited(folder) and not MAY_LACK.fullmatch(statement):
                unseen.append(statement)
            used(folder)
        shutil.rmtree(folder)
    assert not unseen


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE part SET ids = x'00'", "table “part”"),
        ("UPDATE part SET slots = slots - 1", "table “part”"),
        ("UPDATE part SET number = zeroblob(8)", "table “part”"),
        ("UPDATE cluster SET sums = x'00'", "table “cluster”"),
        ("UPDATE request SET digests = x'00'", "table “request”"),
        ("UPDATE request SET tag = 'x; DROP'", "table “request”"),
        ("UPDATE receipt SET document = '{}'", "receipt 1-"),
        ("UPDATE value_federation SET content = x'00'", "federation"),
        ("UPDATE value_imports SET content = x'00'", "imports"),
        ("INSERT INTO value_name SELECT number FROM part", "name"),
        ("DROP TABLE value_name", "name"),
        ("UPDATE part SET ids = CAST(replace(hex(ids), '0', 'x') AS BLOB)", "table “part”"),
    ],
)
def test_what_is_damaged_is_named(made: World, tmp_path: Path, statement: str, named: str) -> None:
    """With what to do; and nothing is changed."""
    folder = tmp_path / "aarhus"
    shutil.copytree(made.client("aarhus"), folder)
    assert altered(folder / "client.sqlite", statement)
    before = all_bytes(folder)
    said = used(folder)
    assert f"client.sqlite: the stored {named}" in said
    assert "is damaged; nothing was changed: restore the directory from a backup" in said
    assert "then run `client recover`" in said
    after = all_bytes(folder)
    assert before.items() <= after.items()
    assert all(path.name.endswith(("-shm", "-wal", "lock")) for path in after.keys() - before)


def test_what_is_damaged_at_a_server_is_named(made: World, tmp_path: Path) -> None:
    for value in ("federation", "model", "aggregate", "ledger"):
        folder = tmp_path / value
        shutil.copytree(made.server, folder)
        assert altered(folder / "server.sqlite", f"UPDATE value_{value} SET content = x'00'")
        said = used(folder)
        assert f"server.sqlite: the stored {value} is damaged; nothing was changed" in said
        assert "then run `server recover`" in said


def test_a_model_of_another_aggregate(made: World, tmp_path: Path) -> None:
    for labels in (b"", b"\x09\0\0\0" * 3, b"\0"):
        folder = tmp_path / labels.hex().join(("server-", ""))
        shutil.copytree(made.server, folder)
        with open_server(folder) as server, server.storing() as database:
            database.put("model", database.get("model") | {"labels": labels})
        assert "the stored model is damaged" in used(folder)


def test_the_version_that_a_server_has_counted_with(made: World, tmp_path: Path) -> None:
    shutil.copytree(made.server, tmp_path / "server")
    with open_server(tmp_path / "server") as server, server.storing() as database:
        database.put("counted_with", bytes(32))
    assert "the stored counted_with is damaged" in used(tmp_path / "server")


def test_receipts_are_not_written_out_beside_a_damaged_one(made: World, tmp_path: Path) -> None:
    shutil.copytree(made.client("aarhus"), tmp_path / "aarhus")
    altered(tmp_path / "aarhus" / "client.sqlite", "UPDATE receipt SET document = '{}'")
    with (
        open_client(tmp_path / "aarhus") as client,
        pytest.raises(FedforgetError, match=r"the stored receipt 1-.* is damaged"),
    ):
        client.write_receipts(tmp_path / "out")
    assert not (tmp_path / "out").exists()
