"""The stored state is a function of the records: no history, and the model of a fresh fit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from party_world import (
    BOUNDS,
    NAMES,
    World,
    federation_file,
    memory_folder,
    secret_of,
    table,
    values_of,
    write_npz,
)

from fedforget import FederatedKMeans
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.prf import Secret
from fedforget.estimators.parameters import root_secret
from fedforget.parties.client_party import open_client
from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.errors import ClientError
from fedforget.parties.server_party import open_server
from fedforget.parties.store import Store, decoded_id, encoded_ids, keys_of_stored
from fedforget.runtime.local import LocalFederation


def digest_of(world: World, name: str = "aarhus") -> str:
    with open_client(world.client(name)) as party:
        return party.state_digest()


@pytest.mark.parametrize("what", ["means", "lloyd"])
def test_two_histories_one_state(tmp_path: Path, what: str, seed: int) -> None:
    file = federation_file(minimum=2, representatives=what)
    rng = np.random.default_rng(seed)
    values = values_of(300, seed)
    ids = [f"P-{number}" if number % 3 else number for number in range(300)]
    texts = [str(one) for one in ids]
    kept = np.sort(rng.choice(300, 180, replace=False))
    plain = World(tmp_path / "plain", ["aarhus", "bologna"]).set_up(file)
    plain.hold("aarhus", [texts[one] for one in kept], values[kept])
    other = World(tmp_path / "other", ["aarhus", "bologna"]).set_up(file)
    gone = np.setdiff1d(np.arange(300), kept)
    # Backwards, in pieces, with ids too long for the first slots, and with wrong values at first.
    order = np.concatenate([gone[:60], kept[::-1], gone[60:]])
    other.hold("aarhus", ["a-very-long-id-that-is-not-kept"], values_of(1, 99))
    for part in np.array_split(order, 7):
        first = values_of(len(part), int(part[0]) + 1000)
        other.hold("aarhus", [texts[one] for one in part], first)
        path = write_npz(tmp_path / "again.npz", [texts[one] for one in part], values[part])
        with open_client(other.client("aarhus")) as party:
            party.import_table(table(path), replace=True)
    with open_client(other.client("aarhus")) as party:
        party.forget(["a-very-long-id-that-is-not-kept"])
        for part in np.array_split(rng.permutation(gone), 9):
            party.forget([texts[one] for one in part])
        assert party.audit().passed
    assert digest_of(plain) == digest_of(other)


def test_another_secret_another_state(tmp_path: Path) -> None:
    """The digest covers the draws, and those depend on the client's secret."""
    world = World(tmp_path).set_up().fill(50)
    before = digest_of(world)
    (world.client("aarhus") / "records.key").write_bytes(bytes(16))
    with open_client(world.client("aarhus")) as party:
        assert party.state_digest() == before
        audit = party.audit()
        assert not audit.passed
        assert audit.stored == before


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": "none"},
        {"representatives": "seeds"},
        {"shift": True},
        {"representatives": "lloyd"},
        {"representatives": "lloyd", "scale": "none", "shift": True},
    ],
)
def test_the_model_is_that_of_the_estimator(tmp_path: Path, options: dict) -> None:
    """The same records, secrets and parameters give the same digest, after whatever happened."""
    root = root_secret(7)
    seed = root.derive("public seed").data.hex()
    world = World(tmp_path).set_up(federation_file(public_seed=seed, **options))
    for name in NAMES:
        secret = root.derive("client", b"s" + name.encode()).data
        (world.client(name) / "records.key").write_bytes(secret)
    world.fill(60)
    world.round()
    gone = [f"A-{number}" for number in range(0, 60, 2)]
    with open_client(world.client("aarhus")) as party:
        party.forget(gone)
    digest = world.round()["model"]
    X = np.concatenate([values_of(60, number) for number in range(3)])
    ids = np.array([f"{name[0].upper()}-{row}" for name in NAMES for row in range(60)])
    kept = ~np.isin(ids, gone)
    estimator = FederatedKMeans(
        2,
        bounds=BOUNDS,
        step=0.01,
        local_clusters=4,
        n_init=2,
        max_iter=50,
        random_state=7,
        **{"scale": "box"} | options,
    ).fit(X[kept], clients=np.repeat(NAMES, 60)[kept], ids=ids[kept])
    assert estimator.model_digest_ == digest
    with open_server(world.server) as server:
        assert np.array_equal(server.centres()[1], estimator.cluster_centers_)


def test_keys_are_those_of_the_ids(seed: int) -> None:
    """The packed form in the store loses nothing, whatever an id ends in."""
    rng = np.random.default_rng(seed)
    numbers = [0, -1, 1, 255, 256, -(2**63), 2**63 - 1, *rng.integers(-(2**63), 2**63, 50).tolist()]
    texts = ["x", "é", "0x", "007", "𝔘" * 5, *(f"P-{one}" for one in numbers)]
    secret = Secret(secret_of("somebody"))
    for some in (numbers, texts):
        stored = encoded_ids(some)
        assert [decoded_id(one) for one in stored] == some
        keys = keys_of_stored(secret, np.array(stored, dtype="S64"))
        plain = keys_of_ids(secret, np.array(some))
        assert np.array_equal(keys.low, plain.low)
        assert np.array_equal(keys.high, plain.high)
    assert len(keys_of_stored(secret, np.empty(0, dtype="S1")).low) == 0


def test_labels_survive_an_import_of_other_rows(tmp_path: Path) -> None:
    world = World(tmp_path).set_up().fill(30)
    world.hold("aarhus", ["X-1", "17", "-4"], values_of(3, 4))
    with open_client(world.client("aarhus")) as party:
        rows, _, _ = party.store.everything(2)
        assert (party.store.labels_of(rows) >= 0).all()
        assert party.forget(["17"]).records == 1
        assert party.forget([-4]).records == 1
        assert party.leave() == 31
        assert party.audit().passed


RULES = (None, DisclosurePart(2, 4, 1, 0.0), DisclosurePart(3, 6, 2, 0.05))


class Parties(RuleBasedStateMachine):
    """Imports, requests, replacements and rounds, against an in-process federation."""

    names = NAMES[:2]

    @initialize(what=st.sampled_from(["means", "lloyd"]), rules=st.sampled_from(RULES))
    def set_up(self, what: str, rules: DisclosurePart | None) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=memory_folder()))
        self.world = World(self.folder / "world", self.names)
        root = Secret(bytes(range(16)))
        file = federation_file(
            public_seed="aa" * 16, minimum=2, representatives=what, disclosure=rules
        )
        self.world.set_up(file)
        self.config = file.configuration()
        for name in self.names:
            secret = root.derive("client", b"s" + name.encode()).data
            (self.world.client(name) / "records.key").write_bytes(secret)
        self.root = root
        self.truth: dict[str, dict[str, np.ndarray]] = {name: {} for name in self.names}
        self.waiting: dict[str, set[str]] = {name: set() for name in self.names}
        self.suppressed: dict[str, set[str]] = {name: set() for name in self.names}
        self.counter = 0

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _values(self, n: int) -> np.ndarray:
        self.counter += 1
        # Few different values: ties and equal records are common.
        return np.random.default_rng(self.counter).integers(0, 12, (n, 2)) * [10.0, 25.0]

    @rule(
        name=st.sampled_from(names),
        ids=st.sets(st.integers(0, 30), min_size=1, max_size=12),
        again=st.booleans(),
    )
    def put(self, name: str, ids: set[int], again: bool) -> None:
        """Import; ids that are held are replaced, those that were forgotten come in if told so."""
        texts = [f"R{one}" if one % 2 else str(one) for one in sorted(ids)]
        values = self._values(len(texts))
        path = write_npz(self.folder / "t.npz", texts, values)
        with open_client(self.world.client(name)) as party:
            waiting = {one for one in texts if one in self.waiting[name]}
            if waiting:
                with pytest.raises(ClientError, match=f"{len(waiting)} ids wait to be forgotten"):
                    party.import_table(table(path), replace=True, again=again)
                return
            listed = {one for one in texts if one in self.suppressed[name]}
            done = party.import_table(table(path), replace=True, again=again)
        if again:
            self.suppressed[name] -= listed
        else:
            assert done["kept_out"] == len(listed)
            kept = [at for at, one in enumerate(texts) if one not in listed]
            texts, values = [texts[at] for at in kept], values[kept]
        assert done["replaced"] == len(self.truth[name].keys() & set(texts))
        self.truth[name] |= dict(zip(texts, values, strict=True))

    @precondition(lambda self: any(self.truth.values()))
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([one for one in self.names if self.truth[one]]))
        held = sorted(self.truth[name])
        gone = data.draw(st.sets(st.sampled_from(held), min_size=1))
        with open_client(self.world.client(name)) as party:
            party.forget(sorted(gone))
        for one in gone:
            del self.truth[name][one]
        self.waiting[name] |= gone

    @rule(kind=st.sampled_from([None, "full"]))
    def round(self, kind: str | None) -> None:
        """The model is that of a fresh fit of everything that is held."""
        digest = self.world.round(kind=kind)["model"]
        for name in self.names:
            self.suppressed[name] |= self.waiting[name]
            self.waiting[name].clear()
        fresh = LocalFederation(self.config, self.root)
        for name in self.names:
            held = self.truth[name]
            if held:
                fresh.learn(
                    np.array(list(held.values())),
                    np.array([f"{one}" for one in held]),
                    np.array([name] * len(held)),
                    self.config.grid.to_clustered,
                )
        assert digest == self.config.model_digest(fresh.aggregate, fresh.model)
        self.world.check_sums()

    @invariant()
    def holds_what_it_should(self) -> None:
        for name in self.names:
            with open_client(self.world.client(name)) as party:
                assert party.audit().passed
                listed = len(self.waiting[name] | self.suppressed[name])
                assert party.status()["ids_suppressed"] == listed
                _, ids, values = party.store.everything(2)
            found = {
                str(decoded_id(one)): row for one, row in zip(ids.tolist(), values, strict=True)
            }
            assert found.keys() == self.truth[name].keys()
            assert all(np.array_equal(row, found[one]) for one, row in self.truth[name].items())


TestParties = Parties.TestCase
TestParties.settings = settings(max_examples=30, stateful_step_count=12, derandomize=True)


def test_a_store_grows_by_parts(tmp_path: Path) -> None:
    """Small imports share parts; a wide id gets a part of its own."""
    store = Store(tmp_path / "store.sqlite", create=True)
    with store.transaction():
        for number in range(40):
            store.add(encoded_ids([f"P-{number}"]), np.full((1, 3), float(number)))
        assert store.execute("SELECT count(*) FROM part") == [(3,)]
        store.add(encoded_ids(["w" * 200]), np.zeros((1, 3)))
        store.add(encoded_ids(["P-last"]), np.zeros((1, 3)))
    assert store.execute("SELECT width FROM part ORDER BY part") == [(16,), (16,), (16,), (208,)]
    assert len(store) == 42
    store.close()
