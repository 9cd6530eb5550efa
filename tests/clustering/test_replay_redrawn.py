"""Seeds that are drawn again and are the same: the rows of their restart follow the change."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.clustering.histogram import Histogram
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.prf import Secret
from fedforget.clustering.replay import ReplayingServer, engine
from fedforget.clustering.replay.engine import Replay, Task
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans
from fedforget.clustering.replay.state import STANDS
from followers import Follower, random_change, rows_keep, source_of

SECRET = Secret(bytes(16))


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Restarts whose rows have followed a change after their seeds were drawn again."""
    found: list[int] = []
    replayed = Replay._replay

    def spied(self: Replay, *arguments: object, **options: object) -> None:
        found.extend(np.flatnonzero(self.runs.restarts["status"] == STANDS).tolist())
        replayed(self, *arguments, **options)

    monkeypatch.setattr(Replay, "_replay", spied)
    return found


def owned(values: np.ndarray, ids: np.ndarray, n_threads: int, memory_limit: int) -> OwnedKMeans:
    task = Task(4, 3, 100, 1e-4, memory_limit, n_threads=n_threads, greedy=True)
    return OwnedKMeans(values, ids, keys_of_ids(SECRET, ids), np.arange(len(ids)), task)


def labels_of(model: OwnedKMeans) -> dict[int, int]:
    slots = model.records.in_use()
    ids, labels = model.records.ids[slots].tolist(), model.outcome.labels[slots].tolist()
    return dict(zip(ids, labels, strict=True))


@pytest.mark.parametrize("memory_limit", [1 << 30, 60_000])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_candidates_that_were_not_chosen_go(
    n_threads: int,
    memory_limit: int,
    rng: np.random.Generator,
    standing: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of them, too; the model is that of a fresh run in every bit."""
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    values = rng.normal(size=(300, 3)) + 4.0 * rng.integers(0, 4, (300, 1))
    ids = np.arange(300)
    model = owned(values, ids, n_threads, memory_limit)
    held = ids
    for size in (1, 1, 2, 5, 1, 3):
        replay = model.replayed
        assert replay is not None
        assert replay.candidates is not None
        candidates = np.unique(replay.candidates.rows)
        seeds = replay.runs.seeds["slot"]
        losers = np.setdiff1d(candidates[candidates >= 0], seeds)
        gone = rng.permutation(losers)[:size]
        names = model.records.ids[gone]
        model.forget(gone)
        held = np.setdiff1d(held, names)
        fresh = owned(values[held], held, 1, memory_limit)
        assert model.outcome.centres.tobytes() == fresh.outcome.centres.tobytes()
        assert model.loss() == fresh.loss()
        assert (model.best, model.outcome.n_iter) == (fresh.best, fresh.outcome.n_iter)
        assert labels_of(model) == labels_of(fresh)
    if memory_limit > 60_000:
        assert standing, "no seeds were drawn again and the same"


@pytest.mark.parametrize("kept", ["margins", "estimates", "products"])
def test_bounds_that_do_not_tell_do_not_cost_a_run(
    kept: str, rng: np.random.Generator, standing: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose runners-up are never known draws each time, and runs from the start seldom."""
    monkeypatch.setattr(
        Replay,
        "_note_seeds",
        lambda self, number, drawn, note=Replay._note_seeds: note(
            self, number, drawn._replace(runners_up=[0.0] * len(drawn.slots))
        ),
    )
    top = 1000
    with rows_keep(kept):
        aggregate = Histogram.of(rng.integers(0, top + 1, (120, 2)), rng.integers(1, 30, 120))
        server = ReplayingServer(source_of("weighted", top, 2), 5, n_init=4, max_iter=300, tol=0.0)
        follower = Follower(server, aggregate)
        run = 0
        for _ in range(40):
            random_change(rng, follower, top, 2)
            assert follower.is_right()
            run += server.work.restarts
    assert standing
    assert run < 4 * 40
