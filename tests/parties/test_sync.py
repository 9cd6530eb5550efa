"""A client that follows a source: what is learnt, replaced, forgotten, kept out and refused."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from party_world import (
    NAMES,
    World,
    all_bytes,
    federation_file,
    found_in,
    memory_folder,
    table,
    traces,
    values_of,
    write_npz,
)

from fedforget.errors import DuplicateIdError, OutOfBoundsError
from fedforget.parties import receipts
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.database import Database, ErasureError
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.errors import ClientError
from fedforget.parties.server_party import open_server
from fedforget.parties.sources import TableError
from fedforget.parties.store import decoded_id
from fedforget.parties.sync import Brake, Synced, SyncError, SyncRules

MUCH = SyncRules(Brake.parse("100%"))


def sync(
    world: World,
    ids: Sequence[Any],
    values: np.ndarray,
    rules: SyncRules | None = None,
    name: str = "aarhus",
) -> Synced:
    path = write_npz(world.folder / "export.npz", ids, values)
    with open_client(world.client(name)) as party:
        return party.sync(table(path), rules)


def counts(done: Synced) -> dict[str, int]:
    return {name: kind.count for name, kind in done.kinds.items() if kind.count}


def everything_of(party: ClientParty) -> tuple[Any, ...]:
    """Records, labels, clusters and what is reported of them, to the last bit."""
    rows, ids, values = party.store.everything(2)
    order = np.argsort(ids, kind="stable")
    clusters = party.store.clusters(2)
    return (
        ids[order].tolist(),
        values[order].tobytes(),
        party.store.labels_of(rows)[order].tobytes(),
        clusters.seed_ids,
        *(getattr(clusters, name).tobytes() for name in ("scores", "centres", "sizes", "sums")),
        dict(party.histogram().items()),
        party.cells().sizes.tobytes(),
    )


# -- one sync ----------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Clients with 40 records each."""
    return World(tmp_path).set_up().fill(40)


IDS = [f"A-{row}" for row in range(40)]
VALUES = values_of(40, 0)


def test_the_store_becomes_the_source(world: World) -> None:
    ids, values = [*IDS[3:], "X-1", "17"], np.concatenate([VALUES[3:], values_of(2, 9)])
    values[[0, 5]] = values_of(2, 8)
    done = sync(world, ids[::-1], values[::-1])
    assert counts(done) == {"added": 2, "changed": 2, "removed": 3}
    assert done.records == 39
    rows = zip([*ids[:-1], 17], values, strict=True)
    assert world.records("aarhus") == {(one, row.tobytes()) for one, row in rows}
    world.check_audits()


def test_a_second_sync_finds_nothing(world: World) -> None:
    before = all_bytes(world.client("aarhus"))
    done = sync(world, IDS, VALUES)
    assert counts(done) == {}
    assert (done.records, done.request, done.salt, done.reseeded) == (40, None, None, None)
    assert all_bytes(world.client("aarhus")) == before


def test_a_number_that_is_written_in_another_way(world: World) -> None:
    """A spreadsheet has saved the export: 5 has become 5.0, and nobody else has changed."""
    values = np.concatenate([VALUES, values_of(1, 9)])
    sync(world, [*IDS, "5"], values)
    before = world.records("aarhus")
    with pytest.raises(TableError, match=r"'5\.0' stands beside '5'"):
        sync(world, [*IDS, "5.0"], values)
    assert world.records("aarhus") == before


def test_an_empty_client_is_filled(tmp_path: Path) -> None:
    world = World(tmp_path).set_up()
    assert counts(sync(world, IDS, VALUES)) == {"added": 40}
    assert counts(sync(world, IDS, VALUES)) == {}
    world.check_audits()


def test_vanished_records_leave_by_a_request_with_a_receipt(world: World) -> None:
    world.round()
    done = sync(world, IDS[4:], VALUES[4:])
    assert done.request is not None
    with open_client(world.client("aarhus")) as party:
        (request,) = party.requests()
        assert (request["request"], request["salt"]) == (done.request, done.salt)
        assert party.status()["ids_suppressed"] == 4
    world.round()
    world.check_sums()
    with open_client(world.client("aarhus")) as party:
        (one,) = party.store.receipts()
        proof = receipts.verify(
            json.loads(one.document),
            world.federation,
            ids=[*IDS[:4], IDS[4]],
            salt=bytes.fromhex(done.salt or ""),
        )
    assert (proof.records, proof.covered) == (4, tuple(IDS[:4]))
    left = found_in(all_bytes(world.client("aarhus")), traces([], VALUES[:4]))
    assert not left


def test_nothing_is_left_of_replaced_values(world: World) -> None:
    values = values_of(40, 7)
    values[10:] = VALUES[10:]
    assert counts(sync(world, IDS, values)) == {"changed": 10}
    left = found_in(all_bytes(world.client("aarhus")), traces([], VALUES[:10]))
    assert not left


def test_the_request_says_from_which_seed_on_it_drew_again(world: World) -> None:
    with open_client(world.client("aarhus")) as party:
        seeds = [decoded_id(one) for one in party.store.clusters(2).seed_ids]
    ordinary = next(one for one in IDS if one not in seeds)
    kept = [at for at, one in enumerate(IDS) if one != ordinary]
    assert sync(world, [IDS[at] for at in kept], VALUES[kept]).reseeded is None
    kept = [at for at in kept if IDS[at] != seeds[1]]
    assert sync(world, [IDS[at] for at in kept], VALUES[kept]).reseeded == 2
    values = VALUES.copy()
    values[IDS.index(str(seeds[0]))] += 1.0
    assert sync(world, [IDS[at] for at in kept], values[kept]).reseeded == 1
    world.check_audits()


def test_a_zero_with_a_sign_is_another_value(world: World) -> None:
    values = VALUES.copy()
    values[0] = 0.0
    sync(world, IDS, values)
    values[0] = -0.0
    assert counts(sync(world, IDS, values)) == {"changed": 1}
    assert (IDS[0], np.array([-0.0, -0.0]).tobytes()) in world.records("aarhus")


# -- the suppression list ----------------------------------------------------------------------


def test_forgotten_ids_stay_out_while_they_wait_and_afterwards(world: World) -> None:
    world.round()
    world.forget("aarhus", IDS[:2])
    assert counts(sync(world, IDS, VALUES)) == {"kept_out": 2}
    world.round()
    assert counts(sync(world, IDS, VALUES)) == {"kept_out": 2}
    done = sync(world, IDS, VALUES, SyncRules(again=True))
    assert counts(done) == {"added": 2}
    with open_client(world.client("aarhus")) as party:
        assert party.status()["ids_suppressed"] == 0
    assert counts(sync(world, IDS, VALUES)) == {}
    world.check_audits()


def test_an_id_that_waits_to_be_forgotten_does_not_come_again(world: World) -> None:
    world.forget("aarhus", IDS[:1])
    before = all_bytes(world.client("aarhus"))
    with pytest.raises(ClientError, match="1 ids wait to be forgotten by the next round"):
        sync(world, IDS, VALUES, SyncRules(again=True))
    assert all_bytes(world.client("aarhus")) == before


def test_a_restored_directory_recovers_first(world: World, tmp_path: Path) -> None:
    """What is held though it was forgotten must not be taken for kept out."""
    with open_client(world.client("aarhus")) as party:
        party.suppression.set(path=tmp_path / "elsewhere.db")
    world.back_up("aarhus")
    world.forget("aarhus", IDS[:1])
    world.restore("aarhus")
    with pytest.raises(SyncError, match=r"1 of the records .* Run client recover first"):
        sync(world, IDS, VALUES)
    with open_client(world.client("aarhus")) as party:
        assert party.recover()["records_forgotten_again"] == 1
    assert counts(sync(world, IDS, VALUES)) == {"kept_out": 1}


# -- brakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stored", "most"),
    [
        (None, 40, 10), (None, 1000, 50), (None, 0, 10), ("0", 40, 0), ("7", 40, 7),
        ("5%", 40, 2), ("0%", 1000, 0), ("12.5%", 1000, 125), ("100%", 3, 3), ("2.5 %", 100, 2),
    ],
)  # fmt: skip
def test_how_many_may_go(text: str | None, stored: int, most: int) -> None:
    brake = Brake() if text is None else Brake.parse(text)
    assert brake.most(stored) == most


@pytest.mark.parametrize("text", ["", "-1", "5 records", "101%", "%", "nan", "1e3", "1.5"])
def test_a_brake_that_is_none(text: str) -> None:
    with pytest.raises(SyncError, match="a number of records or a percentage"):
        Brake.parse(text)


def refused(
    world: World, pattern: str, ids: Sequence[Any], values: np.ndarray, rules: SyncRules | None
) -> None:
    """A sync is refused, and not a byte has changed."""
    before = all_bytes(world.client("aarhus"))
    with pytest.raises(SyncError, match=pattern):
        sync(world, ids, values, rules)
    assert all_bytes(world.client("aarhus")) == before


def test_too_many_records_are_gone(world: World) -> None:
    refused(world, "11 of 40 stored records .* at most 10", IDS[11:], VALUES[11:], None)
    refused(world, "1 of 40 .* at most 0", IDS[1:], VALUES[1:], SyncRules(Brake.parse("0")))
    # New records as well: what was written before the brake is taken back.
    others = [f"Y-{row}" for row in range(500)]
    refused(world, "40 of 40 .* --max-removed 40 lets", others, values_of(500, 3), None)
    assert counts(sync(world, IDS[10:], VALUES[10:])) == {"removed": 10}
    done = sync(world, IDS[30:], VALUES[30:], SyncRules(Brake.parse("20")))
    assert counts(done) == {"removed": 20}


def test_a_source_without_rows(world: World) -> None:
    before = all_bytes(world.client("aarhus"))
    with pytest.raises((SyncError, TableError), match="has no rows"):
        sync(world, np.array([], dtype=str), values_of(0, 0), MUCH)
    assert all_bytes(world.client("aarhus")) == before


class Nothing:
    """A reader that dropped every row that it had."""

    path, columns, n_rows = "export.csv", None, None

    def beside(self, held: object) -> None:
        """There is nothing to compare with them."""

    def tell_left_out(self, tell: object) -> None:
        """There is nobody to tell of."""

    def parts(self) -> Any:
        return iter(())


def test_a_source_whose_rows_were_all_dropped(world: World) -> None:
    with (
        open_client(world.client("aarhus")) as party,
        pytest.raises(SyncError, match=r"export\.csv has no rows"),
    ):
        party.sync(Nothing(), MUCH)  # type: ignore[arg-type]


def test_a_column_that_the_last_source_had(world: World) -> None:
    path = world.folder / "wide.npz"
    columns = dict(zip(("age", "weight"), VALUES.T, strict=True))
    np.savez(path, id=np.array(IDS), consent=np.ones(40), ward=np.ones(40), **columns)
    with open_client(world.client("aarhus")) as party:
        party.sync(table(path))
        assert party.audit().passed
        assert sorted(party.store.get("columns")) == ["age", "consent", "id", "ward", "weight"]
    refused(world, "no column 'consent', 'ward', which the last source had", IDS, VALUES, None)
    values = VALUES.copy()
    values[0] += 1.0
    assert counts(sync(world, IDS, values, SyncRules(new_columns=True))) == {"changed": 1}
    assert counts(sync(world, IDS, VALUES)) == {"changed": 1}
    # Columns that are new are no reason to stop, and an import is a source, too.
    with open_client(world.client("aarhus")) as party:
        party.import_table(table(path), replace=True)
    refused(world, "no column 'consent'", IDS, VALUES, None)


def test_more_records_than_the_grid_has_room_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedforget.configuration import Configuration

    monkeypatch.setattr(Configuration, "max_records", property(lambda self: 41))
    more = [*IDS, "X-1", "X-2"]
    refused(world, "42 records do not fit", more, np.concatenate([VALUES, VALUES[:2]]), None)
    assert counts(sync(world, more[:41], np.concatenate([VALUES, VALUES[:1]]))) == {"added": 1}


@pytest.mark.parametrize("ids", [["A-0", "A-1", "A-0"], ["N-0", "N-1", "N-0"]])
@pytest.mark.parametrize("apart", [False, True])
def test_an_id_that_comes_twice(
    world: World, ids: list[str], apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if apart:
        monkeypatch.setattr("fedforget.parties.sources.npz_files.ROWS_AT_A_TIME", 2)
    before = all_bytes(world.client("aarhus"))
    with pytest.raises(DuplicateIdError, match=rf"'{ids[0]}' occurs twice \(again in .*: row 3\)"):
        sync(world, ids, values_of(3, 1), MUCH)
    assert all_bytes(world.client("aarhus")) == before


def test_a_value_out_of_bounds_changes_nothing(world: World) -> None:
    values = VALUES.copy()
    values[39, 0] = 121.0
    before = all_bytes(world.client("aarhus"))
    with pytest.raises(OutOfBoundsError, match="row 40, column 'age'"):
        sync(world, [*IDS[:39], "X-1"], values)
    assert all_bytes(world.client("aarhus")) == before


def test_a_client_that_has_not_joined(tmp_path: Path) -> None:
    ClientParty.create(tmp_path / "new", "new")
    path = write_npz(tmp_path / "t.npz", IDS, VALUES)
    with open_client(tmp_path / "new") as party, pytest.raises(ClientError, match="not joined"):
        party.sync(table(path))


def test_what_could_not_be_overwritten_names_the_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_npz(world.folder / "export.npz", IDS[1:], VALUES[1:])
    with open_client(world.client("aarhus")) as party:
        whole = Database.empty_log

        def fails(self: Database) -> None:
            if self is party.store:
                raise ErasureError("the disk is busy")
            whole(self)

        monkeypatch.setattr(Database, "empty_log", fails)
        with pytest.raises(ErasureError, match=r"request 1-\w+ is stored .* the disk is busy"):
            party.sync(table(path))
    monkeypatch.undo()
    assert len(world.held("aarhus")) == 39


# -- a look beforehand -------------------------------------------------------------------------


def test_a_dry_run_changes_nothing(world: World) -> None:
    world.round()
    world.forget("aarhus", IDS[:1])
    ids = [IDS[0], *IDS[7:], *(f"X-{row}" for row in range(8))]
    values = np.concatenate([VALUES[:1], VALUES[7:], values_of(8, 5)])
    values[1] += 1.0
    before = all_bytes(world.client("aarhus"))
    done = sync(world, ids, values, SyncRules(dry_run=True))
    assert all_bytes(world.client("aarhus")) == before
    assert counts(done) == {"added": 8, "changed": 1, "removed": 6, "kept_out": 1}
    assert done.added.examples == [f"X-{row}" for row in range(5)]
    assert done.changed.examples == [IDS[7]]
    assert sorted(map(str, done.removed.examples)) == sorted(IDS[1:6])
    assert done.kept_out.examples == [IDS[0]]
    assert (done.refusal, done.records, done.request) == (None, 41, None)
    strict = SyncRules(Brake.parse("5"), dry_run=True)
    assert "6 of 39 stored records" in (sync(world, ids, values, strict).refusal or "")
    really = sync(world, ids, values)
    assert (counts(really), really.records) == (counts(done), done.records)


# -- any sequence of exports -------------------------------------------------------------------

RULES = (None, DisclosurePart(2, 4, 1, 0.0), DisclosurePart(3, 6, 2, 0.05))


class Exports(RuleBasedStateMachine):
    """Nightly exports, requests, imports and rounds; a sync equals an import into nothing."""

    names = NAMES[:2]

    @initialize(what=st.sampled_from(["means", "lloyd"]), rules=st.sampled_from(RULES))
    def set_up(self, what: str, rules: DisclosurePart | None) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=memory_folder()))
        self.world = World(self.folder / "world", self.names)
        self.world.set_up(federation_file(minimum=2, representatives=what, disclosure=rules))
        shutil.copytree(self.world.client("aarhus"), self.folder / "empty")
        self.world.hold("bologna", ["B-1", "B-2"], values_of(2, 1))
        self.source: dict[str, np.ndarray] = {}
        self.held: dict[str, np.ndarray] = {}
        self.waiting: set[str] = set()
        self.suppressed: set[str] = set()
        self.counter = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _values(self, n: int) -> np.ndarray:
        self.counter += 1
        # Few different values: ties and equal records are common.
        return np.random.default_rng(self.counter).integers(0, 12, (n, 2)) * [10.0, 25.0]

    def _export(self, folder: Path, records: dict[str, np.ndarray]) -> Path:
        return write_npz(folder, list(records), np.array(list(records.values())).reshape(-1, 2))

    @rule(
        new=st.sets(st.integers(0, 30), max_size=12),
        changed=st.sets(st.integers(0, 30), max_size=8),
        gone=st.sets(st.integers(0, 30), max_size=8),
        again=st.booleans(),
        order=st.randoms(use_true_random=False),
    )
    def night(
        self, new: set[int], changed: set[int], gone: set[int], again: bool, order: Any
    ) -> None:
        """The hospital's table changes, and the client follows it."""

        def texts(some: set[int]) -> list[str]:
            return [f"R{one}" if one % 2 else str(one) for one in sorted(some)]

        for one in texts(gone):
            self.source.pop(one, None)
        fresh = texts(new) + [one for one in texts(changed) if one in self.source]
        self.source |= dict(zip(fresh, self._values(len(fresh)), strict=True))
        if not self.source:
            return
        names = list(self.source)
        order.shuffle(names)
        self.source = {one: self.source[one] for one in names}
        self._follow(again and not self.waiting & set(names))

    @precondition(lambda self: self.source)
    @rule(data=st.data())
    def an_export_that_is_wrong(self, data: st.DataObject) -> None:
        """An id comes twice, with other values."""
        name = data.draw(st.sampled_from(sorted(self.source)))
        values = np.concatenate([np.array(list(self.source.values())), self._values(1)])
        path = write_npz(self.folder / "wrong.npz", [*self.source, name], values)
        before = self._state(self.world.client("aarhus"))
        with (
            open_client(self.world.client("aarhus")) as party,
            pytest.raises(DuplicateIdError, match=f"'?{name}'? occurs twice"),
        ):
            party.sync(table(path), MUCH)
        assert self._state(self.world.client("aarhus")) == before

    def _follow(self, again: bool) -> None:
        listed = self.waiting | self.suppressed
        expected = {one: row for one, row in self.source.items() if again or one not in listed}
        removed = self.held.keys() - expected.keys()
        path = self._export(self.folder / "export.npz", self.source)
        with open_client(self.world.client("aarhus")) as party:
            done = party.sync(table(path), SyncRules(Brake.parse("100%"), again=again))
        assert done.removed.count == len(removed)
        assert done.added.count == len(expected.keys() - self.held.keys())
        both = self.held.keys() & expected.keys()
        other = [one for one in both if (self.held[one] != expected[one]).any()]
        assert done.changed.count == len(other)
        assert done.kept_out.count == (0 if again else len(self.source.keys() & listed))
        assert (done.request is None) == (not removed)
        self.held = expected
        if again:
            self.suppressed -= self.source.keys()
        self.waiting |= removed
        fresh = self.folder / "fresh"
        shutil.copytree(self.folder / "empty", fresh)
        if expected:
            with open_client(fresh) as party:
                party.import_table(table(self._export(self.folder / "f.npz", expected)))
        assert self._state(self.world.client("aarhus")) == self._state(fresh)
        shutil.rmtree(fresh)
        with open_client(self.world.client("aarhus")) as party:
            assert party.audit().passed
            assert party.status()["ids_suppressed"] == len(self.waiting | self.suppressed)

    def _state(self, folder: Path) -> tuple[Any, ...]:
        with open_client(folder) as party:
            return everything_of(party)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1, max_size=3))
        self.world.forget("aarhus", sorted(gone))
        self.held = {one: row for one, row in self.held.items() if one not in gone}
        self.waiting |= gone

    @precondition(lambda self: self.held)
    @rule()
    def round(self) -> None:
        """The model is that of a federation in which the client imported what it holds."""
        digest = self.world.round()["model"]
        self.suppressed |= self.waiting
        self.waiting.clear()
        self.world.check_sums()
        with open_server(self.world.server) as server:
            assert server.audit()["problems"] == []
        other = World(self.folder / "fresh world", self.names)
        other.set_up(self.world.federation)
        other.hold("bologna", ["B-1", "B-2"], values_of(2, 1))
        other.hold("aarhus", list(self.held), np.array(list(self.held.values())))
        assert other.round()["model"] == digest
        shutil.rmtree(other.folder)


TestExports = Exports.TestCase
TestExports.settings = settings(max_examples=20, stateful_step_count=10, derandomize=True)
