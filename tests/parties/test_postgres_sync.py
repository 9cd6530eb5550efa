"""Nightly syncs with a real PostgreSQL server whose rows are changed and deleted in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from party_world import FEATURES, World, federation_file, values_of
from test_postgres import COHORT, SCHEMA

from fedforget.parties import receipts
from fedforget.parties.client_party import open_client
from fedforget.parties.sources import Source, SourceOptions, TableError, open_source
from fedforget.parties.sync import Brake, Synced, SyncError, SyncRules
from postgres_server import Postgres


class Night:
    """A client of a federation of two, and the database of its hospital."""

    def __init__(self, folder: Path, postgres: Postgres, database: str) -> None:
        self.folder, self.postgres, self.database = folder, postgres, database
        self.world = World(folder / "world", ["aarhus", "bologna"])
        self.world.set_up(federation_file(minimum=2))
        self.world.hold("bologna", ["B-1", "B-2", "B-3"], values_of(3, 1))

    def change(self, sql: str) -> None:
        self.postgres.run(sql, self.database)

    def source(self, sql: str = COHORT) -> Source:
        path = self.folder / "cohort.sql"
        path.write_text(sql, encoding="utf-8")
        uri = self.postgres.uri(self.database)
        options = SourceOptions(uri=uri, sql=path, missing="drop")
        return open_source([], FEATURES, "id", options)

    def sync(self, sql: str = COHORT, **rules: Any) -> Synced:
        with open_client(self.world.client("aarhus")) as party:
            return party.sync(self.source(sql), SyncRules(**rules))

    def state(self) -> str:
        with open_client(self.world.client("aarhus")) as party:
            return party.state_digest()

    def fresh_state(self) -> str:
        """That of a directory with the same secret, into which tonight's rows were imported."""
        other = World(self.folder / "fresh", ["aarhus", "bologna"])
        other.set_up(federation_file(minimum=2))
        with open_client(other.client("aarhus")) as party:
            party.import_table(self.source())
            return party.state_digest()


@pytest.fixture
def night(tmp_path: Path, postgres: Postgres) -> Iterator[Night]:
    with postgres.database(SCHEMA) as name:
        yield Night(tmp_path, postgres, name)


def counts(done: Synced) -> dict[str, int]:
    return {name: kind.count for name, kind in done.kinds.items() if kind.count}


def test_nights_with_a_warehouse(night: Night) -> None:
    assert counts(night.sync()) == {"added": 390}
    night.world.round()
    assert counts(night.sync()) == {}
    # A value is corrected, one patient is new, three withdraw, and one value gets lost.
    night.change(
        """
        update measurement set value_as_number = value_as_number + 0.000001
          where measurement_id in (2 * 11, 2 * 13);
        insert into person values (1001, 1980, 8507);
        insert into measurement values (9001, 1001, 3025315, '2024-05-05', 71.25);
        delete from measurement where person_id in (21, 22, 23);
        delete from person where person_id in (21, 22, 23);
        update measurement set value_as_number = null where measurement_id = 2 * 31
        """
    )
    done = night.sync()
    assert counts(done) == {"added": 1, "changed": 2, "removed": 4, "incomplete": 1}
    assert sorted(done.removed.examples) == [21, 22, 23, 31]
    assert sorted(done.changed.examples) == [11, 13]
    assert night.state() == night.fresh_state()
    night.world.round()
    night.world.check_sums()
    night.world.check_audits()
    with open_client(night.world.client("aarhus")) as party:
        (receipt,) = party.store.receipts()
        proof = receipts.verify(
            json.loads(receipt.document),
            night.world.federation,
            ids=[20, 21, 22, 23, 31],
            salt=bytes.fromhex(done.salt or ""),
        )
    assert proof.covered == ("21", "22", "23", "31")
    # The lost value is found again: the patient stays out until somebody says so.
    night.change("update measurement set value_as_number = 80 where measurement_id = 2 * 31")
    assert counts(night.sync()) == {"kept_out": 1}
    assert counts(night.sync(again=True)) == {"added": 1}
    night.world.check_audits()


def test_brakes_with_a_warehouse(night: Night) -> None:
    night.sync()
    before = night.state()
    half = COHORT + " where p.person_id % 2 = 0"
    with pytest.raises(SyncError, match="200 of 390 stored records"):
        night.sync(half)
    none = COHORT + " where false"
    with pytest.raises(TableError, match="has no rows"):
        night.sync(none, brake=Brake.parse("100%"))
    wide = COHORT.replace("m.value_as_number as weight", "m.value_as_number as weight, 1 as ward")
    assert counts(night.sync(wide)) == {}
    with pytest.raises(SyncError, match="no column 'ward', which the last source had"):
        night.sync()
    assert counts(night.sync(new_columns=True)) == {}
    assert night.state() == before


MANY = "select n as id, n % 100 as age, 1.5 as weight from generate_series(1, 3000000) n"


def test_a_connection_that_is_cut_in_the_middle_of_a_sync(night: Night) -> None:
    night.sync()
    before = night.state()
    parts: list[int] = []

    def cut(rows: int) -> None:
        parts.append(rows)
        if len(parts) == 2:
            night.postgres.run(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where query like 'COPY%' and pid <> pg_backend_pid()"
            )

    rules = SyncRules(Brake.parse("100%"))
    with open_client(night.world.client("aarhus")) as party:
        with pytest.raises(TableError, match="nothing was imported") as caught:
            party.sync(night.source(MANY), rules, progress=cut)
        assert night.postgres.password not in str(caught.value)
        assert party.requests() == []
        assert party.audit().passed
    assert night.state() == before
