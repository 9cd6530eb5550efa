"""K-means of one owner: after any history the model is that of a fresh fit, bit for bit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sklearn.exceptions import ConvergenceWarning

from fedforget import KMeans
from fedforget.clustering.ids import parse_ids
from fedforget.clustering.replay import engine
from fedforget.constraints import checked, checked_among
from fedforget.estimators.parameters import root_secret
from followers import KEPT, rows_keep

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def state_of(model: KMeans) -> dict[str, Any]:
    """All that a model says, in a form where == means the same bits; records by id."""
    order = np.argsort(model.ids_)
    return {
        "ids": model.ids_[order].tolist(),
        "labels": model.labels_[order].tolist(),
        "centres": model.cluster_centers_.tobytes(),
        "shape": model.cluster_centers_.shape,
        "sizes": model.cluster_sizes_.tolist(),
        "inertia": float(model.inertia_).hex(),
        "n_iter": model.n_iter_,
        "digest": model.model_digest_,
    }


def fresh_fit(model: KMeans, X: np.ndarray, ids: Any) -> KMeans:
    """What ``fit`` would give; below K records, which ``fit`` refuses, the layer beneath it."""
    other = KMeans(**model.get_params())
    if len(X) >= model.n_clusters:
        return other.fit(X, ids=ids)
    other.n_features_in_ = model.n_features_in_
    given = checked_among(other._constraints, other.get_params())
    other._build(np.ascontiguousarray(X), parse_ids(ids), given, root_secret(other.random_state))
    return other


class Owner:
    """A model, and the records that it must hold; every change is checked."""

    seeding = "greedy"

    def __init__(
        self, X: np.ndarray, held: np.ndarray | None = None, names: Any = None, **params: Any
    ) -> None:
        self.X = X
        self.names = np.arange(len(X)) if names is None else np.asarray(names)
        self.held = np.arange(len(X)) if held is None else held
        self.model = KMeans(**{"random_state": 7, "seeding": self.seeding, **params})
        self.model.fit(X[self.held], ids=self.names[self.held])

    def forget(self, rows: Any) -> Any:
        rows = np.atleast_1d(rows)
        self.held = self.held[~np.isin(self.held, rows)]
        return self.model.forget(self.names[rows])

    def learn(self, rows: Any) -> Any:
        rows = np.atleast_1d(rows)
        self.held = np.concatenate([self.held, rows])
        return self.model.learn(self.X[rows], ids=self.names[rows])

    def free(self) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self.X)), self.held)

    def fresh(self, rng: np.random.Generator | None = None) -> KMeans:
        order = self.held if rng is None else rng.permutation(self.held)
        return fresh_fit(self.model, self.X[order], self.names[order])

    def check(self, rng: np.random.Generator | None = None) -> None:
        assert self.model.ids_.tolist() == self.names[self.held].tolist()
        assert state_of(self.model) == state_of(self.fresh(rng))


# -- any history -----------------------------------------------------------------------------------


def blobs(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.normal(size=(n, d)) + 4.0 * rng.integers(0, 3, (n, 1))


def uniform(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.random((n, d))


def integers(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.integers(-3, 4, (n, d)).astype(float)


def two_places(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Fewer distinct rows than clusters."""
    return np.repeat(rng.integers(0, 2, (n, 1)), d, axis=1) * 1.5


def magnitudes(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """A feature may be a billion billion times another one."""
    return rng.normal(size=(n, d)) * 10.0 ** rng.integers(-90, 91, d)


def heavy_tails(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """The largest value of a feature is often alone in its power of two."""
    return rng.choice([-1.0, 1.0], (n, d)) * 2.0 ** rng.integers(0, 12, (n, d)) * rng.random((n, d))


def extremes(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    some = [0.0, -0.0, 1e100, -1e100, 5e-324, -5e-324, 1e-300, 2.0**-900, 1.0, 1.0 + 2**-31, -3.0]
    return rng.choice(some, (n, d))


def tiny(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.choice([0.0, 5e-324, 1e-310, 2.0**-931, 3 * 2.0**-932, 2.0**-899, -1e-271], (n, d))


def far_away(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Far from zero and close together: here rounding matters most."""
    return 1e6 + rng.integers(0, 9, (n, d)) * 2.0**-9


def one_constant(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """A feature so large that others vanish beside it in single precision; but it is constant."""
    X = rng.normal(size=(n, d))
    X[:, 0] = 1e60
    return X


KINDS = (
    blobs, uniform, integers, two_places, magnitudes, heavy_tails, extremes, tiny, far_away,
    one_constant,
)  # fmt: skip
POOL = 90


class OwnerMachine(RuleBasedStateMachine):
    """Records come, go and come back; the past must not show."""

    @initialize(
        seed=st.integers(0, 2**32 - 1),
        kind=st.sampled_from(KINDS),
        d=st.integers(1, 5),
        kept=st.sampled_from(sorted(KEPT)),
        named=st.booleans(),
        params=st.fixed_dictionaries(
            {
                "n_clusters": st.integers(1, 6),
                "n_init": st.sampled_from([1, 3]),
                "max_iter": st.sampled_from([1, 2, 3, 300]),
                "tol": st.sampled_from([0.0, 1e-4, 0.05]),
                "memory_limit": st.sampled_from([0, 20_000, "2 GiB"]),
                "n_jobs": st.sampled_from([None, None, 2]),
                "seeding": st.sampled_from(["greedy", "plain"]),
            }
        ),
    )
    def fit(
        self, seed: int, kind: Any, d: int, kept: str, named: bool, params: dict[str, Any]
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.kept = kept
        X = kind(self.rng, POOL, d)
        names = [f"p{i}-{'x' * (i % 7)}" for i in range(POOL)] if named else None
        n = int(self.rng.integers(params["n_clusters"], 60))
        held = self.rng.permutation(POOL)[:n]
        with rows_keep(kept):
            self.owner = Owner(X, held, names, random_state=seed, **params)

    @rule(count=st.integers(1, 8))
    def forget_some(self, count: int) -> None:
        gone = self.rng.permutation(self.owner.held)[:count]
        with rows_keep(self.kept):
            report = self.owner.forget(gone)
        assert report.removed == len(gone)

    @precondition(lambda self: len(self.owner.held))
    @rule()
    def forget_a_seed(self) -> None:
        replay = self.owner.model._model.replayed
        if replay is None or not (replay.runs.restarts["length"] > 0).any():
            return
        with_rows = np.flatnonzero(replay.runs.restarts["length"])
        self._forget_one_of(replay.runs.seeds["slot"][with_rows])

    def _forget_one_of(self, slots: np.ndarray) -> None:
        slot = int(self.rng.choice(slots.ravel()))
        name = self.owner.model._model.records.ids[slot]
        with rows_keep(self.kept):
            self.owner.forget(np.flatnonzero(self.owner.names == name))

    @precondition(lambda self: len(self.owner.held))
    @rule()
    def forget_a_candidate(self) -> None:
        replay = self.owner.model._model.replayed
        if replay is not None and replay.candidates is not None:
            with_rows = np.flatnonzero(replay.runs.restarts["length"])
            slots = replay.candidates.rows[with_rows]
            if (slots >= 0).any():
                self._forget_one_of(slots[slots >= 0])

    @precondition(lambda self: len(self.owner.held))
    @rule()
    def forget_a_cluster(self) -> None:
        model = self.owner.model
        smallest = int(np.argmin(np.where(model.cluster_sizes_ > 0, model.cluster_sizes_, 10**9)))
        with rows_keep(self.kept):
            self.owner.forget(self.owner.held[model.labels_ == smallest])

    @precondition(lambda self: len(self.owner.held))
    @rule(feature=st.integers(0, 4))
    def forget_the_largest(self, feature: int) -> None:
        column = np.abs(self.owner.X[self.owner.held, feature % self.owner.X.shape[1]])
        with rows_keep(self.kept):
            self.owner.forget(self.owner.held[column.argmax()])

    @rule(left=st.integers(0, 2))
    def forget_nearly_all(self, left: int) -> None:
        with rows_keep(self.kept):
            self.owner.forget(self.rng.permutation(self.owner.held)[left:])

    @rule(count=st.integers(1, 8))
    def learn_some(self, count: int) -> None:
        with rows_keep(self.kept):
            new = self.rng.permutation(self.owner.free())[:count]
            if len(new):
                assert self.owner.learn(new).added == len(new)

    @rule()
    def learn_everything(self) -> None:
        """More than there are spare slots."""
        new = self.rng.permutation(self.owner.free())
        if len(new):
            with rows_keep(self.kept):
                self.owner.learn(new)

    @invariant()
    def equals_a_fresh_fit(self) -> None:
        self.owner.check(self.rng)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
class TestOwner(OwnerMachine.TestCase):
    """Some kinds of records have fewer distinct rows than there are clusters."""


@pytest.fixture(autouse=True)
def threads_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few records are enough to try them."""
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)


@pytest.fixture(params=["greedy", "plain"])
def each_seeding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to draw seeds."""
    monkeypatch.setattr(Owner, "seeding", request.param)


TestOwner.settings = settings(max_examples=200, stateful_step_count=12)


# -- histories of a certain kind -------------------------------------------------------------------

TOLERANCES = [0.0, 1e-4, 1e-2]


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize(("tol", "max_iter"), [(0.0, 300), (1e-4, 300), (0.0, 7)])
def test_structureless_noise(kept: str, tol: float, max_iter: int) -> None:
    """Without structure, trajectories diverge after a small change."""
    rng = np.random.default_rng(3)
    X = rng.random((3000, 2))
    with rows_keep(kept):
        owner = Owner(X, n_clusters=8, tol=tol, max_iter=max_iter)
        replayed = 0
        for turn in range(100):
            owner.forget(rng.choice(owner.held))
            replayed += owner.model._model.work.restarts == 0
            if turn % 10 == 9:
                owner.check()
    assert replayed > 80, "hardly anything was replayed"
    assert owner.model.n_iter_ == max_iter or max_iter == 300


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("tol", TOLERANCES)
@pytest.mark.parametrize("n_init", [1, 4])
def test_every_single_removal_and_addition(
    kept: str, tol: float, n_init: int, rng: np.random.Generator
) -> None:
    X = blobs(rng, 160, 3)
    with rows_keep(kept):
        owner = Owner(X, np.arange(130), n_clusters=5, tol=tol, n_init=n_init)
        for turn in range(24):
            owner.forget(rng.choice(owner.held)) if turn % 3 else owner.learn(owner.free()[0])
            owner.check(rng)


@pytest.mark.usefixtures("each_seeding")
def test_many_duplicates(rng: np.random.Generator) -> None:
    X = rng.integers(0, 4, (700, 2)).astype(float)
    owner = Owner(X, n_clusters=5, n_init=3, tol=0.0)
    for _ in range(15):
        owner.forget(rng.choice(owner.held, 20, replace=False))
        owner.learn(rng.choice(owner.free(), 5, replace=False))
        owner.check(rng)


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.parametrize("limit", [0, 9_000, 40_000, "100 KiB"])
def test_memory_that_does_not_suffice(limit: int | str, rng: np.random.Generator) -> None:
    """Some restarts, or all of them, have no rows or not all of theirs."""
    X = rng.normal(size=(300, 2))
    owner = Owner(X, np.arange(250), n_clusters=4, n_init=3, memory_limit=limit)
    ample = KMeans(4, n_init=3, random_state=7, seeding=owner.model.seeding).fit(X[:250])
    assert state_of(owner.model) == state_of(ample)
    for turn in range(8):
        owner.forget(rng.choice(owner.held, 3, replace=False))
        if turn % 2:
            owner.learn(owner.free()[:2])
        replay = owner.model._model.replayed
        assert replay is not None
        assert replay.nbytes <= checked(KMeans._constraints, memory_limit=limit)["memory_limit"]
        owner.check(rng)
    if limit == 0:
        assert replay.absent.keys() == {0, 1, 2}
        assert owner.model._model.work.restarts == 3


SQUEEZE = np.repeat([0.0, 205.0, 220.0, 420.0, 481.0, 539.0], [1, 3, 1, 1, 3, 1])
"""Records on a line of whose three clusters the middle one is squeezed out.

With seeds at 0, 420 and 539 the clusters are {0, 205}, {220, 420} and {481, 539}.  The means of the
outer ones, 153.75 and 495.5, are nearer to 220 and to 420 than the mean of the two, 320.
"""
THESE_ARE_DRAWN = [53, 119, 228, 278, 300, 333, 434, 477, 481, 539]
"""Random states whose race draws such seeds."""


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("n_init", [1, 3])
def test_clusters_vanish_and_come_back(kept: str, n_init: int) -> None:
    """One record at a time goes and comes back, some of them to the centre without records."""
    seen: Counter[str] = Counter()
    noise = np.linspace(0, 1, len(SQUEEZE))
    X = np.append(SQUEEZE + noise, [320.5, 321.0, 330.0, 206.0, 480.0, 100.0])[:, None]
    for random_state in THESE_ARE_DRAWN:
        params = {"n_clusters": 3, "n_init": n_init, "random_state": random_state, "tol": 0.0}
        params["seeding"] = "plain"
        with rows_keep(kept):
            owner = Owner(X, np.arange(len(SQUEEZE)), **params)
            before = _vanished(owner)
            assert before[0]
            for turn in range(2 * len(X)):
                row = turn // 2 % len(X)
                owner.forget(row) if row in owner.held else owner.learn(row)
                owner.check()
                now = _vanished(owner)
                if owner.model._model.work.restarts == 0:
                    seen["followed"] += bool(now[0])
                    seen["gone"] += bool(now[0] and not before[0])
                    seen["back"] += bool(before[0] and not now[0])
                before = now
    assert seen["followed"] > 50, seen
    assert min(seen["gone"], seen["back"]) > 3, seen


def _vanished(owner: Owner) -> list[bool]:
    """Which restarts end with a cluster that has no records."""
    replay = owner.model._model.replayed
    assert replay is not None
    return [
        bool((replay.rows.sums[replay.last_row(r), :, -1] == 0).any())
        for r in range(owner.model.n_init)
    ]


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.parametrize("factor", [2.0**-31, 2.0**-32, 3 * 2.0**-33])
def test_a_record_alone_in_its_power_of_two(factor: float, rng: np.random.Generator) -> None:
    """Its removal makes the steps of all others finer: what was equal no longer is."""
    X = np.concatenate([rng.random((60, 2)) * factor, [[1.0, -1.0], [0.75, 0.0]]])
    owner = Owner(X, n_clusters=3)
    coarse = owner.model._model.records.rounding.exponents.tolist()
    owner.check()
    owner.forget(60)  # 0.75 is still there: one feature changes
    owner.check()
    owner.forget(61)
    owner.check()
    fine = owner.model._model.records.rounding.exponents.tolist()
    assert max(fine) < min(coarse) - 25
    owner.learn([61, 60])
    owner.check()
    assert owner.model._model.records.rounding.exponents.tolist() == coarse
    assert owner.model.n_iter_ == owner.fresh().n_iter_


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_steps_stand_while_another_large_record_is_there(sign: float) -> None:
    """Exponents are multiples of 4: 1 needs another than the largest number below it."""
    below = np.nextafter(1.0, 0.0)
    X = np.array([[0.5], [-0.5], [below], [sign], [sign * 1.5], [0.0625], [0.06], [0.05], [0.01]])
    owner = Owner(X, np.array([0, 1, 2, 5, 6, 7, 8]), n_clusters=2)

    def exponents() -> list[int]:
        owner.check()
        return owner.model._model.records.rounding.exponents.tolist()

    assert exponents() == [0]
    for row in (3, 4):
        owner.learn(row)
        assert exponents() == [4]
    for row, exponent in ((3, 4), (4, 0), (2, 0), (0, 0), (1, 0), (5, -4), (6, -4)):
        owner.forget(row)
        assert exponents() == [exponent]


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.parametrize("small", [1.0, 1e-30, 1e-290, 1e-300, 5e-324])
def test_a_feature_of_which_nothing_but_zeros_is_left(small: float) -> None:
    """Its exponent is then that of the largest feature, however small it was."""
    X = np.column_stack([np.arange(12.0), np.zeros(12)])
    X[[3, 7], 1] = small, -small / 2
    owner = Owner(X, n_clusters=3)
    for row in (7, 3):
        owner.forget(row)
        owner.check()
    for row in (3, 7):
        owner.learn(row)
        owner.check()


@pytest.mark.usefixtures("each_seeding")
def test_down_to_nothing_and_back(rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 3))
    names = np.array([f"patient {i}" for i in range(40)])
    owner = Owner(X, names=names, n_clusters=4, n_init=2)
    for left in (4, 3, 1, 0):
        owner.forget(rng.permutation(owner.held)[left:])
        owner.check(rng)
        assert owner.model.cluster_centers_.shape == (min(left, 4), 3)
    assert owner.model.inertia_ == 0.0
    assert owner.model.labels_.shape == owner.model.ids_.shape == (0,)
    with pytest.raises(ValueError, match="every record has been forgotten"):
        owner.model.predict(X)
    for count in (1, 1, 2, 30):
        owner.learn(owner.free()[:count])
        owner.check(rng)


def test_an_emptied_model_takes_ids_of_another_kind() -> None:
    model = KMeans(2, random_state=0).fit([[0.0], [1.0], [5.0]])
    model.forget([0, 1, 2])
    model.learn([[0.0], [1.0], [5.0]], ids=["a long name", "b", "c"])
    fresh = KMeans(2, random_state=0).fit([[0.0], [1.0], [5.0]], ids=["a long name", "b", "c"])
    assert state_of(model) == state_of(fresh)


def test_ids_that_grow_longer(rng: np.random.Generator) -> None:
    X = rng.random((30, 2))
    names = np.array(["x" * (1 + i) for i in range(30)])
    owner = Owner(X, np.arange(10), names, n_clusters=3)
    for i in range(10, 30, 4):
        owner.learn(np.arange(i, i + 4))
        owner.check(rng)


@pytest.mark.usefixtures("each_seeding")
def test_learning_far_beyond_the_spare_slots(rng: np.random.Generator) -> None:
    X = blobs(rng, 1200, 2)
    owner = Owner(X, np.arange(40), n_clusters=4, n_init=2)
    for count in (1, 30, 100, 1, 900):
        owner.learn(owner.free()[:count])
        owner.check(rng)
        owner.forget(owner.held[:7])
        owner.check(rng)


@pytest.mark.usefixtures("each_seeding")
def test_one_batch_is_the_same_as_one_by_one(rng: np.random.Generator) -> None:
    X = blobs(rng, 400, 4)
    together, apart = (Owner(X, n_clusters=6) for _ in range(2))
    gone = rng.choice(400, 60, replace=False)
    together.forget(gone)
    for one in rng.permutation(gone):
        apart.forget(one)
    assert state_of(together.model) == state_of(apart.model)
    together.check()


@pytest.mark.usefixtures("each_seeding")
def test_forgetting_and_learning_back_gives_the_first_model(rng: np.random.Generator) -> None:
    X = uniform(rng, 500, 3)
    owner = Owner(X, n_clusters=7, tol=0.0)
    first = state_of(owner.model)
    for size in (1, 1, 40, 1):
        gone = rng.choice(500, size, replace=False)
        owner.forget(gone)
        owner.learn(rng.permutation(gone))
        assert state_of(owner.model) == first


def test_no_records_to_forget_and_none_to_learn(rng: np.random.Generator) -> None:
    owner = Owner(uniform(rng, 50, 2), n_clusters=3)
    first = state_of(owner.model)
    assert owner.model.forget([]).removed == 0
    assert state_of(owner.model) == first


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.parametrize("n_clusters", [1, 17, 30])
@pytest.mark.parametrize("kept", KEPT)
def test_many_features(kept: str, n_clusters: int, rng: np.random.Generator) -> None:
    X = rng.gamma(0.3, 40.0, (200, 150))
    with rows_keep(kept):
        owner = Owner(X, n_clusters=n_clusters)
        for _ in range(4):
            owner.forget(rng.choice(owner.held, 3, replace=False))
            owner.check()


def test_few_distinct_records_warn_in_fit_alone() -> None:
    X = np.repeat([[0.25], [0.75]], 4, axis=0)
    with pytest.warns(ConvergenceWarning, match="only 2 of n_clusters=3") as said:
        model = KMeans(3, random_state=0).fit(X)
    assert [one.filename for one in said] == [__file__]
    assert model.cluster_centers_.shape == (2, 1)


@pytest.mark.usefixtures("each_seeding")
@pytest.mark.filterwarnings("error")
def test_a_model_may_shrink_in_silence(rng: np.random.Generator) -> None:
    owner = Owner(np.arange(9.0)[:, None], n_clusters=3)
    owner.forget([0, 1, 2, 3, 4, 5, 6])
    owner.learn([3, 4])
    owner.check()
