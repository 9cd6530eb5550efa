"""Whatever a model of records keeps, no number in it is one of a record that has gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedforget.clustering.greedy import CANDIDATE_BITS
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.kernels import clocks
from fedforget.clustering.prf import Secret
from fedforget.clustering.replay import room
from fedforget.clustering.replay.engine import Task
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans, RecordReplay
from followers import rows_keep

SECRET = Secret(bytes(range(16)))
CLUSTERS, CANDIDATES = 4, 3
draw, uniform = clocks.draw.py_func, clocks.uniform.py_func


def arrays_in(thing: Any, seen: set[int]) -> Iterator[np.ndarray]:
    """All arrays that can be reached, with the fields of records apart."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        fields = thing.dtype.names
        yield from [thing] if fields is None else (thing[field] for field in fields)
    elif isinstance(thing, dict):
        for one in thing.values():
            yield from arrays_in(one, seen)
    elif isinstance(thing, list | tuple):
        for one in thing:
            yield from arrays_in(one, seen)
    elif type(thing).__module__.startswith("fedforget") and hasattr(thing, "__dict__"):
        yield from arrays_in(vars(thing), seen)


def numbers_of(model: OwnedKMeans, slot: int) -> dict[str, np.ndarray]:
    """What tells of a record: its places, its keys, its clocks and its distances to all others."""
    records = model.records
    points = records.points
    place = records.coordinates(np.array([slot]))[0]
    others = records.coordinates(records.in_use()[records.in_use() != slot])
    low, high = points.keys[slot]
    counters = [
        np.uint64((restart << 32) + step + (number << CANDIDATE_BITS))
        for restart in range(model.task.n_init)
        for step in range(CLUSTERS)
        for number in range(CANDIDATES if step else 1)
    ]
    with np.errstate(over="ignore"):
        draws = [uniform(draw(low, high, counter)) for counter in counters]
    return {
        "values": points.values[slot].copy(),
        "coordinates": place,
        "shifted": (place - points.base).astype(np.float32),
        "keys": np.array([low, high]),
        "draws": np.array(draws),
        "distances": ((others - place) ** 2).sum(axis=1),
    }


def left_of(model: OwnedKMeans, gone: list[dict[str, np.ndarray]]) -> list[str]:
    """Which numbers of records that have gone are still there."""
    kept = [array.ravel() for array in arrays_in(model, set()) if array.dtype.kind in "fu"]
    found = []
    for name in gone[0]:
        numbers = np.concatenate([one[name] for one in gone])
        same = [np.unique(array) for array in kept if array.dtype == numbers.dtype]
        found += [name] * int(sum(np.isin(numbers, array).sum() for array in same))
    return found


@pytest.mark.parametrize("memory_limit", [1 << 31, 1 << 17], ids=["ample", "tight"])
@pytest.mark.parametrize("learns", [False, True], ids=["", "learns"])
@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "plain"])
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_nothing_of_a_record_is_left(
    d: int, greedy: bool, learns: bool, memory_limit: int, rng: np.random.Generator
) -> None:
    # Coordinates of different features differ in magnitude, so that no number is there twice.
    values, n = rng.normal(size=(240, d)) + 3.0, 200
    ids = np.arange(240)
    task = Task(CLUSTERS, 2, 300, 0.0, memory_limit, greedy=greedy)
    model = OwnedKMeans(values[:n], ids[:n], keys_of_ids(SECRET, ids[:n]), ids[:n], task)
    for batch in (1, 3, 30):
        if learns:
            new = ids[n : n + 5]
            model.learn(values[new], new, keys_of_ids(SECRET, new), new)
            n += 5
        # Seeds, candidates that are no seeds, and others.
        slots = rng.choice(model.records.in_use(), batch, replace=False)
        slots = np.append(slots, model.seeds[-1:])
        if model.replayed is not None and model.replayed.candidates is not None:
            drawn = np.unique(model.replayed.candidates.rows)
            slots = np.append(slots, rng.choice(drawn[drawn >= 0], 2))
        slots = np.unique(slots)
        gone = [numbers_of(model, slot) for slot in slots.tolist()]
        assert {"values", "keys"} <= set(left_of(model, gone))
        model.forget(slots)
        assert left_of(model, gone) == []


@pytest.mark.parametrize("kept", ["margins", "products", "estimates"])
@pytest.mark.parametrize("memory_limit", [1 << 31, 1 << 17], ids=["ample", "tight"])
def test_no_margin_or_estimate_is_left(
    kept: str, memory_limit: int, rng: np.random.Generator
) -> None:
    """From what several rows knew of a record, it could be computed, too."""
    ids, values = np.arange(300), rng.random((300, 2))
    with rows_keep(kept):
        task = Task(CLUSTERS, 3, 300, 0.0, memory_limit)
        model = OwnedKMeans(values, ids, keys_of_ids(SECRET, ids), ids, task)
        replay = model.replayed
        assert replay is not None
        for batch in (1, 1, 1, 3, 20, 1):
            slots = rng.choice(model.records.in_use(), batch, replace=False)
            if replay.margins is not None:
                # Of those that are on a list, as few others are.
                border, listed = replay.margins.border, replay.margins.rows["listed"]
                rows = replay._rows_in_use()
                named = np.concatenate([border[row, : listed[row]] for row in rows])
                slots = np.unique(np.append(slots, named[:1]))
                assert np.isin(slots, named).any() == bool(len(named))
            model.forget(slots)
            assert left_in_rows(replay, slots) == []


def left_in_rows(replay: RecordReplay, slots: np.ndarray) -> list[str]:
    """Where something is left of records in rows, those that were given back included."""
    found = []
    if (replay.rows.labels[:, slots] > 0).any():
        found.append("labels")
    if replay.margins is not None:
        margins, rows = replay.margins, replay._rows_in_use()
        for row in rows:
            listed = margins.rows["listed"][row]
            is_gone = np.isin(margins.border[row, :listed], slots)
            if np.isfinite(margins.border_margins[row, :listed][is_gone]).any():
                found.append("lists")
        reserves = margins.reserves[:, slots]
        if (np.isfinite(reserves) & (reserves != 0.0)).any():
            found.append("reserves")
        if len(margins.farthest) and margins.farthest[slots].any():
            found.append("farthest")
        if replay.scratch.column[: replay.task.n_clusters].any():
            found.append("column")
    if replay.estimates is not None:
        for name in ("near", "other"):
            known = getattr(replay.estimates, name)[:, slots]
            if (np.isfinite(known) & (known != 0.0)).any():
                found.append(name)
        if replay.scratch.column.any():
            found.append("column")
    return found


def test_nothing_is_left_where_rows_keep_estimates(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MARGINS_UP_TO", 0)
    test_nothing_of_a_record_is_left(3, True, True, 1 << 31, rng)


def test_slots_that_are_free_hold_nothing_else(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that is taken for them may have held records before; copies of a model hold it all."""
    ids, values = np.arange(300), rng.random((300, 2))
    model = OwnedKMeans(values, ids, keys_of_ids(SECRET, ids), ids, Task(3, 1, 300, 0.0, 1 << 31))
    monkeypatch.setattr(np, "empty", lambda shape, dtype=float: np.full(shape, 77_777, dtype=dtype))
    model.forget(model.records.in_use()[:200])
    assert (model.records._free < len(model.records.ids)).all()
