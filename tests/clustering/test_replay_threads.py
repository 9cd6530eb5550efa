"""Threads share the restarts of a replay; no bit depends on how many there are."""

from __future__ import annotations

import numpy as np
import pytest

from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.prf import Secret
from fedforget.clustering.replay import engine, room
from fedforget.clustering.replay.engine import Task
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans

SECRET = Secret(bytes(16))


@pytest.fixture(autouse=True)
def threads_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)


def bits(model: OwnedKMeans) -> tuple:
    outcome = model.outcome
    # Kept rows have narrower labels than runs without rows.
    labels = outcome.labels.astype(np.int32)
    return outcome.centres.tobytes(), labels.tobytes(), model.best, model.loss()


def history(n_threads: int, memory_limit: int, seed: int) -> list[tuple]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(400, 3)) + rng.integers(0, 3, (400, 1)) * 2.0
    ids = np.arange(400)
    task = Task(5, 7, max_iter=40, tol=1e-4, memory_limit=memory_limit, n_threads=n_threads)
    model = OwnedKMeans(values, ids, keys_of_ids(SECRET, ids), ids, task)
    assert model.replayed is not None
    assert len(model.replayed._crew) == (n_threads if n_threads > 1 else 0)
    found = [bits(model)]
    slots = rng.permutation(400)
    for step in range(12):
        gone = slots[3 * step : 3 * step + 3]
        kept = values[gone].copy()
        model.forget(gone)
        found.append(bits(model))
        if step % 4 == 3:
            back = np.arange(1000 + 3 * step, 1003 + 3 * step)
            model.learn(kept, back, keys_of_ids(SECRET, back), back)
            found.append(bits(model))
    return found


@pytest.mark.parametrize("memory_limit", [1 << 30, 150_000, 20_000])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by_products", [10**9, 0])
def test_any_number_of_threads_gives_the_same_bits(
    by_products: int, memory_limit: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where not all restarts have room for their rows."""
    monkeypatch.setattr(room, "PRODUCTS_FROM", by_products)
    alone = history(1, memory_limit, seed)
    assert history(2, memory_limit, seed) == alone
    assert history(5, memory_limit, seed) == alone
