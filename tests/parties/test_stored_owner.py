"""A client in a directory is an owner like any other, whose records live in a database."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from party_world import World, federation_file, memory_folder, table, values_of, write_npz

from fedforget.clustering import partition as partition_module
from fedforget.clustering.grid import Grid
from fedforget.clustering.lloyd_clusters import LocalKMeans
from fedforget.clustering.prf import Secret
from fedforget.parties import client_party
from fedforget.parties import store as store_module
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.errors import ClientError
from fedforget.parties.store import Store, StoreError, decoded_id, encoded_ids, keys_of_stored
from fedforget.parties.stored_records import (
    StoredRecords,
    clusters_of,
    fresh_owner,
    standing_owner,
)

SECRET = Secret(bytes(range(16)))
MANY = 400


def stored_state(store: Store, n_features: int) -> dict[str, Any]:
    """Everything that the store holds of records and clusters, bit for bit, without history."""
    rows, ids, values = store.everything(n_features)
    order = np.argsort(ids, kind="stable")
    clusters = store.clusters(n_features)
    return {
        "ids": ids[order].tolist(),
        "values": values[order].tobytes(),
        "labels": store.labels_of(rows)[order].tobytes(),
        "seed_ids": clusters.seed_ids,
        "scores": clusters.scores.tobytes(),
        "seeds": clusters.centres.tobytes(),
        "sizes": clusters.sizes.tobytes(),
        "sums": clusters.sums.tobytes(),
    }


def party_state(party: ClientParty) -> dict[str, Any]:
    histogram = party.histogram()
    return stored_state(party.store, 2) | {
        "points": histogram.points().tobytes(),
        "counts": histogram.counts().tobytes(),
        "digest": party.state_digest(),
    }


def world_with(folder: Path, numbers: np.ndarray, **options: Any) -> World:
    world = World(folder, ["aarhus", "bologna"]).set_up(federation_file(minimum=2, **options))
    world.hold("aarhus", [f"P-{one}" for one in numbers], values_of(MANY, 3)[numbers])
    return world


@contextmanager
def races(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[float]]]:
    """The scores of the seeds that every race began with."""
    begun: list[list[float]] = []
    run = partition_module.run_race

    def watched(race: Any, *arguments: Any, **options: Any) -> None:
        begun.append(list(race.scores))
        run(race, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(partition_module, "run_race", watched)
        yield begun


@pytest.mark.parametrize("scale", ["box", "none"])
@pytest.mark.parametrize("step", range(4))
def test_a_lost_seed_keeps_the_seeds_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, scale: str
) -> None:
    """And the directory equals, in every bit, one that never held the record."""
    world = world_with(tmp_path / "one", np.arange(MANY), scale=scale)
    with open_client(world.client("aarhus")) as party:
        before = party.store.clusters(2)
        assert len(before.seed_ids) == 4
        victim = decoded_id(before.seed_ids[step])
        with races(monkeypatch) as begun:
            assert party.forget([victim], dry_run=True).reseeded == step + 1
            assert begun == []
            assert party.forget([victim]).reseeded == step + 1
            assert begun == [before.scores[:step].tolist()]
        after = party.store.clusters(2)
        assert after.seed_ids[:step] == before.seed_ids[:step]
        assert after.seed_ids[step] != before.seed_ids[step]
        assert party.audit().passed
        state = party_state(party)
    kept = np.delete(np.arange(MANY), int(str(victim)[2:]))
    other = world_with(tmp_path / "two", kept, scale=scale)
    with open_client(other.client("aarhus")) as party:
        assert party_state(party) == state


def test_several_lost_seeds_keep_those_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with(tmp_path / "one", np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        before = party.store.clusters(2)
        gone = {str(decoded_id(before.seed_ids[step])) for step in (1, 3)}
        gone |= {f"P-{number}" for number in range(0, MANY, 7)}
        gone -= {str(decoded_id(before.seed_ids[step])) for step in (0, 2)}
        with races(monkeypatch) as begun:
            assert party.forget(sorted(gone)).reseeded == 2
        assert begun == [before.scores[:1].tolist()]
        state = party_state(party)
    kept = np.array([one for one in range(MANY) if f"P-{one}" not in gone])
    other = world_with(tmp_path / "two", kept)
    with open_client(other.client("aarhus")) as party:
        assert party_state(party) == state


@pytest.mark.parametrize("scale", ["box", "none"])
def test_a_client_that_runs_kmeans_runs_it_again_with_every_change(
    tmp_path: Path, scale: str
) -> None:
    """Whichever record goes, the directory equals one that never held it."""
    options = {"scale": scale, "representatives": "lloyd"}
    world = world_with(tmp_path / "one", np.arange(MANY), **options)
    with open_client(world.client("aarhus")) as party:
        before = party.store.clusters(2)
        seeds = [decoded_id(one) for one in before.seed_ids]
        ordinary = next(f"P-{one}" for one in range(MANY) if f"P-{one}" not in seeds)
        for number, (victim, step) in enumerate([(ordinary, None), (seeds[2], 3)]):
            assert party.forget([victim], dry_run=True).reseeded == step
            assert party.forget([victim]).reseeded == step
            assert party.audit().passed
            state = party_state(party)
            gone = [ordinary, seeds[2]][: number + 1]
            kept = np.array([one for one in range(MANY) if f"P-{one}" not in gone])
            other = world_with(tmp_path / f"two-{number}", kept, **options)
            with open_client(other.client("aarhus")) as twin:
                assert party_state(twin) == state
        assert party.histogram().total == MANY - 2


@pytest.fixture
def values_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of records' values were read: by each blob, and by each query."""
    read: list[int] = []
    open_blob, execute = Store.blob, Store.execute

    class Watched:
        def __init__(self, blob: Any) -> None:
            self._blob = blob

        def read(self, *size: int) -> bytes:
            data: bytes = self._blob.read(*size)
            read.append(len(data))
            return data

        def __getattr__(self, name: str) -> Any:
            return getattr(self._blob, name)

    @contextmanager
    def blob(self: Store, table: str, column: str, row: int, *, readonly: bool = True) -> Any:
        with open_blob(self, table, column, row, readonly=readonly) as one:
            yield Watched(one) if column == "number" else one

    def watched_query(self: Store, statement: str, values: Any = ()) -> Any:
        rows = execute(self, statement, values)
        if statement.startswith("SELECT") and ("number FROM part" in statement or "*" in statement):
            read.extend(len(row[-1]) for row in rows)
        return rows

    monkeypatch.setattr(Store, "blob", blob)
    monkeypatch.setattr(Store, "execute", watched_query)
    return read


def ordinary_ids(party: ClientParty, count: int) -> list[str]:
    seeds = set(party.store.clusters(2).seed_ids)
    ids = [one for one in party.store.index() if one not in seeds]
    return [str(decoded_id(one)) for one in ids[:count]]


@pytest.mark.parametrize("count", [1, 9])
def test_an_ordinary_forget_reads_only_the_rows_that_go(
    tmp_path: Path, values_read: list[int], count: int
) -> None:
    world = world_with(tmp_path, np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        gone = ordinary_ids(party, count)
        values_read.clear()
        assert party.forget(gone, dry_run=True).reseeded is None
        assert values_read == []
        assert party.forget(gone).reseeded is None
        assert values_read == [2 * 8] * count
        values_read.clear()
        seed = decoded_id(party.store.clusters(2).seed_ids[0])
        party.forget([seed])
        assert sum(values_read) >= 2 * 8 * (MANY - count), "the look at reads does not see them"


def test_an_ordinary_forget_needs_no_compiled_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading it takes longer than all the rest of the command."""
    world = world_with(tmp_path, np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        monkeypatch.delattr(partition_module.SeededPartition, "_count")
        assert party.forget(ordinary_ids(party, 5)).reseeded is None
        monkeypatch.undo()
        assert party.audit().passed


def test_an_import_of_losers_reads_only_what_it_brings(
    tmp_path: Path, values_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New records that win no step are counted where they belong; nobody else is looked at."""
    values = values_of(MANY, 3)
    world = world_with(tmp_path / "one", np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        seeds = {decoded_id(one) for one in party.store.clusters(2).seed_ids}
    losers = [number for number in range(MANY) if f"P-{number}" not in seeds][:20]
    others = np.setdiff1d(np.arange(MANY), losers)
    other = world_with(tmp_path / "two", others)
    path = write_npz(tmp_path / "t.npz", [f"P-{one}" for one in losers], values[losers])
    with open_client(other.client("aarhus")) as party:
        values_read.clear()
        with races(monkeypatch) as begun:
            party.import_table(table(path))
        assert begun == []
        assert sum(values_read) == 20 * 2 * 8
        state = party_state(party)
    with open_client(world.client("aarhus")) as party:
        assert party_state(party) == state


def replaced_state(
    folder: Path, numbers: list[int], values: np.ndarray, **options: Any
) -> dict[str, Any]:
    """The state of a client that imported the records with their new values at once."""
    fresh = values_of(MANY, 3)
    fresh[numbers] = values
    world = World(folder, ["aarhus", "bologna"]).set_up(federation_file(minimum=2, **options))
    world.hold("aarhus", [f"P-{one}" for one in range(MANY)], fresh)
    with open_client(world.client("aarhus")) as party:
        return party_state(party)


def test_an_import_that_replaces_an_ordinary_record_reads_only_that(
    tmp_path: Path, values_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All seeds stand if the new values win no step: two rows are read, the old and the new one."""
    world = world_with(tmp_path / "one", np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        number = int(ordinary_ids(party, 1)[0][2:])
        values = values_of(MANY, 3)[[number]] + 0.25
        path = write_npz(tmp_path / "t.npz", [f"P-{number}"], values)
        values_read.clear()
        with races(monkeypatch) as begun:
            assert party.import_table(table(path), replace=True)["replaced"] == 1
        assert begun == []
        assert values_read == [2 * 8] * 2
        assert party.audit().passed
        state = party_state(party)
    assert replaced_state(tmp_path / "two", [number], values) == state


@pytest.mark.parametrize("step", range(4))
def test_an_import_that_replaces_a_seed_draws_once_and_keeps_the_seeds_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    world = world_with(tmp_path / "one", np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        before = party.store.clusters(2)
        numbers = [int(str(decoded_id(before.seed_ids[step]))[2:])]
        numbers += [int(one[2:]) for one in ordinary_ids(party, 9)]
        values = values_of(MANY, 3)[numbers] + 0.25
        path = write_npz(tmp_path / "t.npz", [f"P-{one}" for one in numbers], values)
        with races(monkeypatch) as begun:
            party.import_table(table(path), replace=True)
        assert len(begun) == 1
        assert begun[0] == before.scores[: len(begun[0])].tolist()
        assert len(begun[0]) <= step
        state = party_state(party)
    assert replaced_state(tmp_path / "two", numbers, values) == state


@pytest.mark.parametrize("lloyd", [False, True])
@pytest.mark.parametrize("count", [3, 30, 300])
def test_an_import_that_replaces_few_or_many_records_equals_a_fresh_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, lloyd: bool
) -> None:
    """However large the change is, and though it comes in several parts."""
    monkeypatch.setattr("fedforget.parties.sources.npz_files.ROWS_AT_A_TIME", 7)
    options = {"representatives": "lloyd"} if lloyd else {}
    world = world_with(tmp_path / "one", np.arange(MANY), **options)
    numbers = np.random.default_rng(count).permutation(MANY)[:count].tolist()
    values = values_of(count, 5)
    path = write_npz(tmp_path / "t.npz", [f"P-{one}" for one in numbers], values)
    with open_client(world.client("aarhus")) as party:
        party.import_table(table(path), replace=True)
        assert party.audit().passed
        state = party_state(party)
    assert replaced_state(tmp_path / "two", numbers, values, **options) == state


@pytest.mark.parametrize("step", range(4))
def test_a_sync_that_loses_a_seed_keeps_the_seeds_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Though new and changed records come with it, there is one draw."""
    world = world_with(tmp_path / "one", np.arange(MANY - 3))
    with open_client(world.client("aarhus")) as party:
        before = party.store.clusters(2)
        victim = int(str(decoded_id(before.seed_ids[step]))[2:])
        changed = [int(one[2:]) for one in ordinary_ids(party, 4)]
        values = values_of(MANY, 3)
        values[changed] += 0.25
        kept = np.delete(np.arange(MANY), victim)
        path = write_npz(tmp_path / "t.npz", [f"P-{one}" for one in kept], values[kept])
        with races(monkeypatch) as begun:
            done = party.sync(table(path))
        assert (done.added.count, done.changed.count, done.removed.count) == (3, 4, 1)
        assert len(begun) == 1
        assert begun[0] == before.scores[: len(begun[0])].tolist()
        assert done.reseeded == len(begun[0]) + 1 <= step + 1
        state = party_state(party)
    other = World(tmp_path / "two", ["aarhus", "bologna"]).set_up(federation_file(minimum=2))
    other.hold("aarhus", [f"P-{one}" for one in kept], values[kept])
    with open_client(other.client("aarhus")) as party:
        assert party_state(party) == state


def test_a_sync_that_only_loses_a_late_seed_keeps_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with(tmp_path / "one", np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        before = party.store.clusters(2)
        kept = np.delete(np.arange(MANY), int(str(decoded_id(before.seed_ids[3]))[2:]))
        path = write_npz(tmp_path / "t.npz", [f"P-{one}" for one in kept], values_of(MANY, 3)[kept])
        with races(monkeypatch) as begun:
            assert party.sync(table(path)).reseeded == 4
        assert begun == [before.scores[:3].tolist()]
        state = party_state(party)
    other = world_with(tmp_path / "two", kept)
    with open_client(other.client("aarhus")) as party:
        assert party_state(party) == state


def test_a_request_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown before is what is carried out: ids are encoded once, and found once."""
    world = world_with(tmp_path, np.arange(MANY))
    calls: list[str] = []

    def counting(place: Any, name: str) -> None:
        call = getattr(place, name)

        def counted(*arguments: Any) -> Any:
            calls.append(name)
            return call(*arguments)

        monkeypatch.setattr(place, name, counted)

    with open_client(world.client("aarhus")) as party:
        gone = ordinary_ids(party, 3)
        counting(client_party, "encoded_ids")
        counting(Store, "rows_of")
        plan = party.plan_forget(gone)
        done = party.carry_out(plan)
        assert calls == ["encoded_ids", "rows_of"]
        assert (done.held, done.reseeded) == (plan.preview.held, plan.preview.reseeded)
        assert done.request == party.requests()[0]["request"]


def test_a_plan_is_refused_once_the_records_have_changed(tmp_path: Path) -> None:
    world = world_with(tmp_path, np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        one, other = ordinary_ids(party, 2)
        plan, another = party.plan_forget([one]), party.plan_forget([other])
        assert party.carry_out(plan).held == (one,)
        with pytest.raises(ClientError, match="have changed since"):
            party.carry_out(plan)
        assert party.carry_out(another).records == 1
        late = party.plan_forget(ordinary_ids(party, 1))
        party.forget([decoded_id(party.store.clusters(2).seed_ids[0])])
        with pytest.raises(ClientError, match="have changed since"):
            party.carry_out(late)
        assert len(party.store) == MANY - 3


def test_an_import_hashes_an_id_once_per_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: Counter[Any] = Counter()
    hash_messages = store_module.keys_of_messages

    def counted(secret: Secret, data: bytes, offsets: np.ndarray) -> Any:
        pairs = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        hashed.update((secret.data, data[begin:end]) for begin, end in pairs)
        return hash_messages(secret, data, offsets)

    world = World(tmp_path, ["aarhus", "bologna"]).set_up(federation_file(minimum=2))
    values = values_of(MANY, 3)
    monkeypatch.setattr(store_module, "keys_of_messages", counted)
    # The first import is larger than what is held, the second is not, the third replaces.
    for numbers, replace in ((range(300), False), (range(300, 400), False), (range(9), True)):
        rows = list(numbers)
        path = write_npz(tmp_path / "t.npz", [f"P-{one}" for one in rows], values[rows])
        with open_client(world.client("aarhus")) as party:
            hashed.clear()
            party.import_table(table(path), replace=replace)
        owned = {key: count for key, count in hashed.items() if key[1] != b"owner"}
        assert set(owned.values()) == {1}
        assert len(owned) >= len(rows)


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 4),
    n_seeds=st.integers(1, 5),
    coarse=st.booleans(),
    lloyd=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_whatever_comes_and_goes_the_store_is_that_of_a_fresh_draw(
    d: int, n_seeds: int, coarse: bool, lloyd: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, 3, (40, d)) / 2.0 if coarse else rng.random((40, d))
    grid = Grid(np.tile([[0.0, 1.0]], (d, 1)), 0.1)
    kmeans = LocalKMeans(n_seeds, grid.fixed_point, 300, 0.0) if lloyd else None
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        store = Store(Path(folder) / "changed.sqlite", create=True)
        held = np.empty(0, dtype=np.int64)
        for turn in range(4):
            came = rng.permutation(np.setdiff1d(np.arange(40), held))[: int(rng.integers(1, 12))]
            with store.transaction():
                _change(store, grid, n_seeds, kmeans, came, pool, [])
            held = np.concatenate([held, came])
            gone = held[rng.random(len(held)) < 0.3]
            with store.transaction():
                _change(store, grid, n_seeds, kmeans, held[:0], pool, gone.tolist())
            held = np.setdiff1d(held, gone)
            fresh = Store(Path(folder) / f"fresh-{turn}.sqlite", create=True)
            with fresh.transaction():
                fresh.add(encoded_ids(held.tolist()), pool[held])
                owner = fresh_owner(StoredRecords(fresh, grid, SECRET), n_seeds, kmeans)
                fresh.set_clusters(clusters_of(owner.clusters))
            assert stored_state(store, d) == stored_state(fresh, d)
            fresh.close()
        store.close()


def _change(
    store: Store,
    grid: Grid,
    n_seeds: int,
    kmeans: LocalKMeans | None,
    came: np.ndarray,
    pool: np.ndarray,
    gone: list[int],
) -> None:
    clusters, index = store.clusters(grid.n_features), store.index()
    records = StoredRecords(store, grid, SECRET, len(clusters.seed_ids))
    owner = standing_owner(records, clusters, index, n_seeds, kmeans)
    if len(came):
        ids = encoded_ids(came.tolist())
        kept = len(clusters.seed_ids)
        owner.take_in(store.add(ids, pool[came]), keys_of_stored(SECRET, np.array(ids)), kept)
    else:
        owner.forget(np.array([index[one] for one in encoded_ids(gone)], dtype=np.int64))
    store.set_clusters(clusters_of(owner.clusters))


@pytest.mark.parametrize("damage", ["seed", "label"])
def test_clusters_of_other_records_are_refused(tmp_path: Path, damage: str) -> None:
    world = world_with(tmp_path, np.arange(MANY))
    with open_client(world.client("aarhus")) as party:
        gone = ordinary_ids(party, 1)
        with party.store.transaction():
            if damage == "seed":
                party.store.execute("UPDATE cluster SET seed = ? WHERE step = 2", (b"snobody",))
            else:
                row = party.store.rows_of(encoded_ids(gone))
                party.store.set_labels(list(row.values()), np.array([9], dtype=np.int32))
        for dry_run in (True, False):
            with pytest.raises(StoreError, match="not those of the stored records"):
                party.forget(gone, dry_run=dry_run)
        assert len(party.store) == MANY
        assert not party.audit().passed
