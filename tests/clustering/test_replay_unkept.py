"""Iterations without room: a restart keeps its first rows, and runs the others again."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.prf import Secret
from fedforget.clustering.replay import engine
from fedforget.clustering.replay.engine import FEWEST_ROWS, NO_BOUND, Task
from fedforget.clustering.replay.following import LatticeReplay
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans, RecordReplay
from followers import Follower, make_follower, random_change, replace_points, rows_keep

SECRET = Secret(bytes(16))
AMPLE = 1 << 30
N, N_CLUSTERS = 400, 5


def owned(values: np.ndarray, ids: np.ndarray, limit: int, **changes: object) -> OwnedKMeans:
    usual = {"n_init": 1, "max_iter": 300, "tol": 0.0, "n_threads": 1, "greedy": True}
    task = Task(N_CLUSTERS, memory_limit=limit, **usual | changes)
    return OwnedKMeans(values, ids, keys_of_ids(SECRET, ids), ids, task)


def rows_of(model: OwnedKMeans) -> RecordReplay:
    assert model.replayed is not None
    return model.replayed


def rows_of_server(follower: Follower) -> LatticeReplay:
    assert follower.server._replay is not None
    return follower.server._replay


def state_of(model: OwnedKMeans) -> tuple:
    """What the model is; records have ids, and slots that depend on history."""
    slots, outcome = model.records.in_use(), model.outcome
    ids = model.records.ids
    labels = sorted(zip(ids[slots].tolist(), outcome.labels[slots].tolist(), strict=True))
    seeds = ids[model.seeds].tolist()
    return outcome.centres.tobytes(), labels, seeds, outcome.n_iter, model.best, model.loss()


def change(
    rng: np.random.Generator, model: OwnedKMeans, values: np.ndarray, held: set[int]
) -> None:
    """Some records go, or some come."""
    if rng.random() < 0.3:
        free = np.setdiff1d(np.arange(len(values)), list(held))
        new = rng.choice(free, 2, replace=False)
        model.learn(values[new], new, keys_of_ids(SECRET, new), new)
        held |= set(new.tolist())
    else:
        slots = rng.choice(model.records.in_use(), rng.choice([1, 1, 5, 30]), replace=False)
        held -= set(model.records.ids[slots].tolist())
        model.forget(slots)


def is_fresh(model: OwnedKMeans, values: np.ndarray, held: set[int], **task: object) -> bool:
    """Whether it is the model of a fresh run that has all the memory it wants."""
    ids = np.array(sorted(held))
    return state_of(model) == state_of(owned(values[ids], ids, AMPLE, **task))


@pytest.mark.parametrize("n_rows", [FEWEST_ROWS, 4, 7, -1])
@pytest.mark.parametrize("kept", ["margins", "products"])
@pytest.mark.parametrize("task", [{}, {"tol": 1e-3}, {"max_iter": 9}, {"greedy": False}])
def test_one_restart_of_which_some_rows_are_kept(
    n_rows: int, kept: str, task: dict[str, object], rng: np.random.Generator
) -> None:
    """Or all but one, so that some runs after it keep theirs."""
    values = rng.random((N + 100, 3))
    held = set(range(N))
    seen = []
    with rows_keep(kept):
        ample = rows_of(owned(values[:N], np.arange(N), AMPLE, **task))
        if n_rows < 0:
            n_rows = int(ample.runs.restarts["length"][0]) - 1
        limit = n_rows * ample.row_bytes
        model = owned(values[:N], np.arange(N), limit, **task)
        for _ in range(20):
            replay = rows_of(model)
            taken, length = replay.runs.restarts[0][["taken", "length"]].tolist()
            assert length == min(taken, n_rows)
            assert model.work.unkept == (taken - length + 2 if taken > length else 0)
            assert replay.nbytes <= limit
            assert not replay.dropped
            assert is_fresh(model, values, held, **task)
            seen.append(model.work.unkept)
            change(rng, model, values, held)
    assert seen[0] > 0


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("share", [1, FEWEST_ROWS, 6, 9])
def test_restarts_share_the_room(
    share: int, n_threads: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have more rows than their share give rows back when another wants one."""
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    values, n_init = rng.random((N + 100, 3)), 4
    held = set(range(N))
    limit = n_init * share * rows_of(owned(values[:N], np.arange(N), AMPLE)).row_bytes
    task = {"n_init": n_init, "n_threads": n_threads}
    model = owned(values[:N], np.arange(N), limit, **task)
    unkept = 0
    for _ in range(15):
        replay = rows_of(model)
        runs = replay.runs
        lengths = runs.restarts["length"]
        assert lengths.sum() + runs.pool["free"] == len(replay.rows.witness)
        places = [runs.where[r, :length].tolist() for r, length in enumerate(lengths.tolist())]
        in_use = [row for places in places for row in places]
        free = runs.free[: runs.pool["free"]].tolist()
        assert sorted(in_use + free) == list(range(len(replay.rows.witness)))
        # Rows that are given back hold nothing of records.
        assert not replay.rows.centres[free].any()
        assert not replay.rows.sums[free].any()
        if share >= FEWEST_ROWS:
            assert runs.most[0] >= share
            assert not replay.dropped
        else:
            assert replay.dropped
        assert is_fresh(model, values, held, n_init=n_init)
        unkept += model.work.unkept
        change(rng, model, values, held)
    assert unkept > 0


def test_short_runs_leave_their_rows_to_long_ones(rng: np.random.Generator) -> None:
    values = rng.random((N, 3))
    ids, n_init = np.arange(N), 5
    ample = rows_of(owned(values, ids, AMPLE, n_init=n_init))
    taken = ample.runs.restarts["taken"]
    # Only the longest run lacks rows.
    limit = int(taken.sum() - 2) * ample.row_bytes
    model = owned(values, ids, limit, n_init=n_init)
    replay = rows_of(model)
    for _ in range(5):
        model.forget(model.records.in_use()[:1])
        taken, most = replay.runs.restarts["taken"], int(replay.runs.most[0])
        n_rows = len(replay.rows.witness)
        assert np.minimum(taken, most).sum() <= n_rows
        if model.work.unkept and most < taken.max():
            # There is no room for another row of each that lacks some.
            assert np.minimum(taken, most + 1).sum() > n_rows


def test_rows_that_nobody_wants_any_more_are_taken(rng: np.random.Generator) -> None:
    """As restarts can have become shorter."""
    values = rng.random((N, 3))
    ids, task = np.arange(N), {"n_init": 3, "tol": 1e-3}
    row_bytes = rows_of(owned(values, ids, AMPLE, **task)).row_bytes
    model = owned(values, ids, 200 * row_bytes, **task)
    replay = rows_of(model)
    lengths = replay.runs.restarts["length"]
    replay.runs.most[:] = FEWEST_ROWS
    for number in range(3):
        replay._shorten(number, FEWEST_ROWS)
    for _ in range(2):
        model.forget(model.records.in_use()[:1])
    assert (lengths == replay.runs.restarts["taken"]).all()
    assert model.work.unkept == 0
    held = set(model.records.ids[model.records.in_use()].tolist())
    assert is_fresh(model, values, held, **task)


@pytest.mark.parametrize("kept", ["estimates", "columns"])
def test_a_restart_that_was_dropped_returns_when_there_is_room(
    kept: str, rng: np.random.Generator
) -> None:
    with rows_keep(kept):
        follower = make_follower(rng)
        replay = rows_of_server(follower)
        replay._drop()
        assert replay.dropped == {0}
        for _ in range(2):
            replace_points(rng, follower, 29, 1)
            assert follower.is_right()
        assert not replay.dropped
        assert follower.server._replay is replay


def test_rows_that_are_kept_save_work(rng: np.random.Generator) -> None:
    """A removal costs about what the rows cost that are run again, and not a fit."""
    values = rng.normal(size=(4000, 2)) + 2.0 * rng.integers(0, 3, (4000, 1))
    ids = np.arange(len(values))
    ample = owned(values, ids, AMPLE)
    n_rows = int(rows_of(ample).runs.restarts["length"][0])
    assert n_rows > 8
    half = owned(values, ids, n_rows // 2 * rows_of(ample).row_bytes)
    fit = half.work.distances
    for model in (ample, half):
        model.forget(np.array([17]))
    assert half.work.unkept > 0
    assert half.work.restarts == 0
    assert ample.work.distances < half.work.distances < fit / 2
    assert state_of(half) == state_of(ample)


@pytest.mark.parametrize("share", [FEWEST_ROWS, 5])
def test_a_server_keeps_some_rows_of_each_restart(share: int, rng: np.random.Generator) -> None:
    follower = make_follower(rng)
    replay = rows_of_server(follower)
    limit = share * replay.task.n_init * replay.row_bytes
    follower = make_follower(rng, memory_limit=limit)
    unkept = 0
    for _ in range(40):
        random_change(rng, follower, 29, 2)
        assert follower.is_right()
        assert follower.server.cached_bytes <= limit
        unkept += follower.server.work.unkept
    replay = rows_of_server(follower)
    assert not replay.dropped
    assert unkept > 0


@pytest.mark.parametrize("kept", ["estimates", "columns"])
def test_other_strategies_keep_all_rows_of_a_restart_or_none(
    kept: str, rng: np.random.Generator
) -> None:
    with rows_keep(kept):
        follower = make_follower(rng)
        replay = rows_of_server(follower)
        assert (replay.runs.most == NO_BOUND).all()
