"""A forgotten record is in no byte of any file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from party_world import (
    FEATURES,
    FIVE,
    World,
    all_bytes,
    federation_file,
    found_in,
    table,
    traces,
    values_of,
    write_npz,
)

from fedforget.clustering.partition import FIXED_POINT_BITS
from fedforget.errors import FedforgetError
from fedforget.parties import database
from fedforget.parties.client_party import open_client
from fedforget.parties.server_party import open_server
from fedforget.parties.store import Store, decoded_id, encoded_ids


def fixed_point_of(values: np.ndarray) -> np.ndarray:
    grid = federation_file().configuration().grid
    return np.floor(grid.to_units(grid.to_clustered(values)) * 2.0**FIXED_POINT_BITS + 0.5).astype(
        np.int64
    )


def forgetful_world(
    folder: Path, *, alone: bool = False, **options: Any
) -> tuple[World, dict[str, bytes]]:
    """A committed federation in which marked records are forgotten, and what they consist of.

    With ``alone``, every record is a cluster whose sum is its values, and the one drawn last is
    forgotten.
    """
    world = World(folder, FIVE[:4]).set_up(federation_file(**options))
    of_clusters: dict[str, bytes] = {}
    if alone:
        marked, values = [f"MARKED-{number:04}" for number in range(4)], values_of(4, 77)
        world.hold("aarhus", marked, values)
        for number, name in enumerate(world.names[1:]):
            world.hold(name, [f"{name}-1"], values_of(1, number))
    else:
        world.fill(400)
        marked, values = [f"MARKED-{number:04}" for number in range(60)], values_of(60, 77)
        world.hold("aarhus", marked, values)
    world.round()
    with open_client(world.client("aarhus")) as party:
        if alone:
            clusters = party.store.clusters(2)
            assert clusters.sizes.tolist() == [1, 1, 1, 1]
            last = marked.index(str(decoded_id(clusters.seed_ids[-1])))
            of_clusters["centre"] = clusters.centres[-1].astype("<f8").tobytes()
            of_clusters["sums"] = clusters.sums[-1].astype("<i8").tobytes()
            marked, values = marked[last : last + 1], values[last : last + 1]
        # One after the other, and at once.
        for one in marked[:20]:
            party.forget([one])
        if marked[20:]:
            party.forget(marked[20:])
    return world, traces(marked, values, fixed_point_of(values)) | of_clusters


@pytest.mark.parametrize("what", ["means", "lloyd"])
@pytest.mark.parametrize("alone", [False, True])
def test_nothing_is_left(tmp_path: Path, alone: bool, what: str) -> None:
    world, wanted = forgetful_world(tmp_path, alone=alone, representatives=what)
    # Before the commit already; the directory has been closed since.
    assert not found_in(all_bytes(*world.clients), wanted)
    world.round()
    world.round()
    assert not found_in(all_bytes(world.server, *world.clients), wanted)


def test_nothing_is_left_while_the_store_is_open(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(50)
    values = values_of(1, 9)
    world.hold("aarhus", ["MARKED"], values)
    with open_client(world.client("aarhus")) as party:
        party.forget(["MARKED"])
        names = {path.name for path in world.client("aarhus").iterdir()}
        assert "client.sqlite-wal" in names
        assert not found_in(all_bytes(world.client("aarhus")), traces(["MARKED"], values))


def test_the_scan_finds_what_is_there(tmp_path: Path) -> None:
    """Before they are forgotten, ids, floats and fixed-point sums of clusters of one are found."""
    world = World(tmp_path).set_up()
    values = values_of(3, 8)
    world.hold("aarhus", ["ONE", "TWO", 333], values)
    found = found_in(
        all_bytes(world.client("aarhus")),
        traces(["ONE", "TWO", 333], values, fixed_point_of(values)),
    )
    kinds = {name.split(" ")[0] for name in found}
    assert {"id", "float", "fixed"} <= kinds


@pytest.fixture
def no_overwriting(monkeypatch: pytest.MonkeyPatch) -> None:
    off = [one.replace("secure_delete = ON", "secure_delete = OFF") for one in database._PRAGMAS]
    monkeypatch.setattr(database, "_PRAGMAS", off)
    monkeypatch.setattr(database, "_OVERWRITES", [(0,)])


@pytest.mark.usefixtures("no_overwriting")
def test_without_secure_delete_something_is_left(tmp_path: Path) -> None:
    """``test_nothing_is_left`` fails without it: a forgotten seed stays in a freed row.

    (The records themselves are overwritten in place and do not depend on it.)
    """
    world, wanted = forgetful_world(tmp_path, alone=True)
    assert found_in(all_bytes(world.client("aarhus")), wanted)
    world.round()
    assert found_in(all_bytes(world.server, *world.clients), wanted)


@pytest.mark.usefixtures("no_overwriting")
def test_without_secure_delete_old_histograms_are_left(tmp_path: Path) -> None:
    world, _ = forgetful_world(tmp_path)
    old = bins_of(world, "aarhus")
    with open_client(world.client("aarhus")) as party:
        party.leave(alone=True)
    world.round()
    assert found_in(all_bytes(world.server, *world.clients), old)


def test_a_client_that_leaves_takes_everything_with_it(tmp_path: Path) -> None:
    """The counterpart of the test above."""
    world, wanted = forgetful_world(tmp_path)
    old = bins_of(world, "aarhus")
    with open_client(world.client("aarhus")) as party:
        ids = sorted(str(decoded_id(one)) for one in party.store.index())
        values = party.store.values_of(list(party.store.index().values()), 2)
        wanted |= traces(ids, values)
        assert party.leave(alone=True) == 400
    assert not found_in(all_bytes(world.client("aarhus")), wanted)
    world.round()
    contents = all_bytes(world.server, *world.clients)
    assert not found_in(contents, wanted)
    assert not found_in(contents, old)
    with open_client(world.client("aarhus")) as party:
        assert party.status()["left"]
        assert party.status()["ids_suppressed"] == 460


def bins_of(world: World, name: str) -> dict[str, bytes]:
    """The bins of a client's last committed histogram that no other client reports."""
    others = set()
    for other in world.names:
        if other != name:
            with open_client(world.client(other)) as party:
                others |= {point for point, _ in party.ledger().base.items()}
    with open_client(world.client(name)) as party:
        base = party.ledger().base
        kept = {point for point, _ in party.histogram().items()}
    return {
        f"bin {point.hex()}": point
        for point, _ in base.items()
        if point not in others and point not in kept
    }


def test_the_old_histogram_goes_with_the_commit(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(30)
    world.round()
    with open_client(world.client("aarhus")) as party:
        party.forget([f"A-{number}" for number in range(25)])
        assert party.status()["keeps_last_committed_histogram"]
    old = bins_of(world, "aarhus")
    assert old
    assert found_in(all_bytes(world.client("aarhus")), old)
    world.round()
    assert not found_in(all_bytes(world.server, *world.clients), old)
    with open_client(world.client("aarhus")) as party:
        assert not party.status()["keeps_last_committed_histogram"]


def test_the_input_of_an_attempt_goes_with_the_next_commit(tmp_path: Path) -> None:
    """An attempt that failed has stored what it would have sent."""
    world = World(tmp_path, FIVE).set_up().fill(30)
    world.round()
    world.hold("aarhus", [f"N-{number}" for number in range(25)], values_of(25, 40))
    with pytest.raises(FedforgetError, match="2 clients are left, at least 4 must be"):
        World(tmp_path, FIVE[:2]).round()
    with open_client(world.client("aarhus")) as party:
        pending = party.ledger().pending
        assert pending is not None
        assert pending.plain_input == party.histogram()
        party.forget([f"N-{number}" for number in range(25)])
        kept = {point for point, _ in (party.histogram() + party.ledger().base).items()}
    others = {point for name in FIVE[1:] for point in bins(world, name)}
    fresh = {point for point, _ in pending.plain_input.items()} - kept - others
    wanted = {f"bin {point.hex()}": point for point in fresh}
    assert wanted
    assert found_in(all_bytes(world.client("aarhus")), wanted)
    wanted["randomness"] = pending.secret_randomness
    world.round()
    assert not found_in(all_bytes(world.server, *world.clients), wanted)


def bins(world: World, name: str) -> set[bytes]:
    with open_client(world.client(name)) as party:
        return {point for point, _ in party.histogram().items()}


def test_a_salt_is_erased_once_its_receipt_is_written_out(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(30)
    world.round()
    done = [world.forget("aarhus", [f"A-{number}"]) for number in range(3)]
    world.round()
    waiting = world.forget("aarhus", ["A-7"])
    salts = {one.request: bytes.fromhex(one.salt) for one in (*done, waiting)}
    wanted = salts | {f"{name} as text": salt.hex().encode() for name, salt in salts.items()}
    folder = world.client("aarhus")
    assert len(found_in(all_bytes(folder), wanted)) == 4
    with open_client(folder) as party:
        assert [one["salt"] for one in party.requests()] == [
            waiting.salt, *(one.salt for one in done)
        ]  # fmt: skip
        written = party.write_receipts(tmp_path / "receipts")
        assert [one.salt for one in written] == [one.salt for one in done]
        left = found_in(all_bytes(folder, tmp_path / "receipts"), wanted)
        assert left == [f"{waiting.request} in client.sqlite"]
        assert [one["request"] for one in party.requests()] == [waiting.request]
        assert [one.salt for one in party.write_receipts(tmp_path / "receipts")] == [None] * 3
    assert not found_in(all_bytes(folder), {one.request: salts[one.request] for one in done})


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_suppression_list_holds_no_ids(tmp_path: Path, elsewhere: bool) -> None:
    world = World(tmp_path).set_up().fill(30)
    place = tmp_path / "safe" / "list.sqlite"
    place.parent.mkdir()
    if elsewhere:
        with open_client(world.client("aarhus")) as party:
            party.suppression.set(path=place)
    ids = [f"SECRET-PATIENT-{number}" for number in range(40)]
    world.hold("aarhus", [*ids, *(str(10**15 + number) for number in range(5))], values_of(45, 6))
    world.forget("aarhus", [*ids, *(str(10**15 + number) for number in range(5))])
    contents = all_bytes(world.client("aarhus"), place.parent)
    numbers = {
        f"{number}": (10**15 + number).to_bytes(8, order)
        for number in range(5)
        for order in ("little", "big")
    }
    wanted = {"text": b"SECRET-PATIENT", "number": str(10**15)[:-1].encode()} | numbers
    assert not found_in(contents, wanted)
    with open_client(world.client("aarhus")) as party:
        assert party.status()["ids_suppressed"] == 45
        party.suppression.set(on=False)
        assert party.status()["ids_suppressed"] == 45, "they wait for a round"
    with open_client(world.client("aarhus")) as party, party.suppression.opened() as listed:
        digests = {digest.hex(): digest for digest in listed.entries()}
    assert len(found_in(all_bytes(world.client("aarhus"), place.parent), digests)) == 45
    world.round()
    assert not found_in(all_bytes(world.client("aarhus"), place.parent), digests)


def test_a_suppression_list_that_moves_leaves_nothing_behind(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(30)
    world.forget("aarhus", ["A-1", "A-2"])
    place = tmp_path / "safe.sqlite"
    with open_client(world.client("aarhus")) as party:
        with party.suppression.opened() as listed:
            digests = {digest.hex(): digest for digest in listed.entries()}
        party.suppression.set(path=place)
        assert party.status()["ids_suppressed"] == 2
        assert not found_in(all_bytes(world.client("aarhus")), digests)
        assert len(found_in({place: place.read_bytes()}, digests)) == 2
        place.rename(tmp_path / "away.sqlite")
        with pytest.raises(FedforgetError, match=r"safe\.sqlite is missing: mount or restore it"):
            party.forget(["A-3"])
        (tmp_path / "away.sqlite").rename(place)
        party.suppression.set(path=world.client("aarhus") / "forgotten.sqlite")
        assert not place.exists()
        assert party.status()["ids_suppressed"] == 2


def test_the_old_model_goes_with_the_commit(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(30)
    world.round()
    with open_server(world.server) as server:
        centres = server.model().centres
        digest = server.status()["model"]
    with open_client(world.client("aarhus")) as party:
        party.forget([f"A-{number}" for number in range(25)])
    world.round()
    with open_server(world.server) as server:
        assert server.status()["model"] != digest
        gone = set(centres.ravel().tolist()) - set(server.model().centres.ravel().tolist())
    assert gone
    assert not found_in(all_bytes(world.server), traces([], np.array(sorted(gone))))


@pytest.mark.parametrize("n_features", [1, 40, 3000])
def test_slots_are_wiped_and_used_again(tmp_path: Path, n_features: int, seed: int) -> None:
    """Many small requests on ids in no order: SQLite never moves what may have to be erased."""
    rng = np.random.default_rng(seed)
    store = Store(tmp_path / "store.sqlite", create=True)
    n = 1500 if n_features < 100 else 60
    names = [f"P-{rng.integers(10**12)}" for _ in range(n)]
    values = rng.random((n, n_features))
    half = n // 2
    with store.transaction():
        store.add(encoded_ids(names[:half]), values[:half])
    held, at = set(range(half)), half
    for _ in range(12):
        gone = rng.choice(sorted(held), len(held) // 6, replace=False).tolist()
        new = list(range(at, min(n, at + n // 24)))
        with store.transaction():
            rows = store.rows_of(encoded_ids([names[one] for one in gone]))
            assert len(rows) == len(gone)
            store.remove(list(rows.values()), n_features)
            store.add(encoded_ids([names[one] for one in new]), values[new].reshape(-1, n_features))
        held, at = (held - set(gone)) | set(new), at + len(new)
        wanted = traces([names[one] for one in gone], values[gone, :1])
        assert not found_in(all_bytes(tmp_path), wanted)
    _, ids, stored = store.everything(n_features)
    assert {decoded_id(one) for one in ids.tolist()} == {names[one] for one in held}
    by_name = {names[one]: values[one] for one in held}
    for name, row in zip(ids.tolist(), stored, strict=True):
        assert np.array_equal(by_name[str(decoded_id(name))], row)
    store.close()


def test_replacing_erases_the_old_values(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(30)
    old, new = values_of(5, 50), values_of(5, 51)
    ids = [f"R-{number}" for number in range(5)]
    world.hold("aarhus", ids, old)
    path = write_npz(tmp_path / "again.npz", ids, new)
    with open_client(world.client("aarhus")) as party:
        done = party.import_table(table(path, FEATURES), replace=True)
        assert done.items() >= {"added": 5, "replaced": 5, "kept_out": 0, "records": 35}.items()
        assert party.audit().passed
    assert not found_in(all_bytes(world.client("aarhus")), traces([], old))
