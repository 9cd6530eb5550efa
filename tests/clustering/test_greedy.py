"""Greedy seeding: candidates and potentials against plain twins, its law, and its history."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import twins
from fedforget.clustering import distance, kernels
from fedforget.clustering.distance import Rows
from fedforget.clustering.greedy import (
    NO_ROWS,
    Track,
    coarse_of,
    least_of,
    n_candidates_of,
    run_greedily,
    run_on,
)
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.kernels.candidates import count_nearer
from fedforget.clustering.prf import Keys, Secret
from fedforget.clustering.race import Candidates, Race, first_row
from fedforget.clustering.replay import engine, owned_kmeans
from fedforget.clustering.replay.engine import Task
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans
from fedforget.clustering.replay.record_slots import RecordSlots

SECRET = Secret(bytes(range(16)))
WORD = 2**kernels.LOW_BITS


def grains_of(totals: np.ndarray) -> list[int]:
    """Potentials as integers."""
    assert ((totals[..., 1] >= 0) & (totals[..., 1] < WORD)).all()
    return [high * WORD + low for high, low in totals.reshape(-1, 2).tolist()]


# -- potentials ------------------------------------------------------------------------------------

PATHS = ("tiles", "tiled", "screened")


def tried(path: str, values: np.ndarray, candidates: np.ndarray, d2: np.ndarray):
    """What rows find when they try candidates, by one of the three ways to measure."""
    near = np.empty((len(candidates), len(values)))
    totals = np.zeros((len(candidates), 2), dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "_SCREEN_SIZE", 1 if path == "screened" else 10**9)
        patch.setattr(distance, "_TURNED_SIZE", 10**9 if path == "tiles" else -1)
        coarse = coarse_of(values.shape[1])
        Rows(values).try_candidates(candidates, coarse, d2, near, totals)
    return near, totals


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 1e5, 2.0**31])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (64, 3), (130, 4), (300, 9)])
def test_potentials_are_exact(
    path: str, scale: float, n: int, d: int, rng: np.random.Generator
) -> None:
    """Coordinates are at most 2^31; the smallest squared distances vanish in a grain."""
    values = np.clip(rng.normal(size=(n, d)) / 3, -1, 1) * scale
    candidates = values[rng.integers(0, n, 3)]
    d2 = np.array([twins.squared_distance(row, values[0]) for row in values.tolist()])
    near, totals = tried(path, values, candidates, d2)
    for number, candidate in enumerate(candidates.tolist()):
        squares = [
            min(twins.squared_distance(row, candidate), before)
            for row, before in zip(values.tolist(), d2.tolist(), strict=True)
        ]
        assert near[number].tolist() == squares
        assert grains_of(totals[number]) == [twins.potential(squares, d)]


@pytest.mark.parametrize("path", PATHS)
def test_potentials_are_exact_far_from_the_origin(path: str, rng: np.random.Generator) -> None:
    """Here a matrix product knows little about distances; what it cannot rule out is measured."""
    values = 2.0**30 + rng.integers(-40, 41, (200, 6)).astype(float)
    d2 = np.array([twins.squared_distance(row, values[0]) for row in values.tolist()])
    near, totals = tried(path, values, values[1:4].copy(), d2)
    for number, candidate in enumerate(values[1:4].tolist()):
        squares = [
            min(twins.squared_distance(row, candidate), before)
            for row, before in zip(values.tolist(), d2.tolist(), strict=True)
        ]
        assert near[number].tolist() == squares
        assert grains_of(totals[number]) == [twins.potential(squares, 6)]


@pytest.mark.parametrize("path", PATHS)
def test_potentials_know_no_order(path: str, rng: np.random.Generator) -> None:
    values = rng.normal(size=(500, 5)) * 10.0 ** rng.integers(0, 9, (500, 1))
    d2 = np.array([twins.squared_distance(row, values[0]) for row in values.tolist()])
    _, first = tried("tiles", values, values[:4], d2)
    order = rng.permutation(500)
    _, again = tried(path, values[order], values[:4], d2[order])
    assert again.tolist() == first.tolist()


def test_the_largest_potentials_fit() -> None:
    """Corners of the box: no squared distance is larger."""
    for d in (1, 2, 3, 8, 9):
        values = np.full((2000, d), 2.0**31)
        values[::2] *= -1.0
        _, totals = tried("tiled", values, values[:2].copy(), np.full(2000, np.inf))
        assert grains_of(totals) == [twins.potential([d * 2.0**64] * 1000, d)] * 2
        # So many records are allowed.
        assert totals[0, 0] * (2**30 // 2000 + 1) < 2**63


@settings(max_examples=200)
@given(
    squares=st.lists(st.floats(0.0, 2.0**64), max_size=12),
    gone=st.lists(st.floats(0.0, 2.0**64), max_size=12),
    d=st.integers(1, 40),
)
def test_what_was_added_can_be_taken_away(squares: list[float], gone: list[float], d: int) -> None:
    total = np.zeros(2, dtype=np.int64)
    kernels.total_of(np.array([*squares, *gone]), coarse_of(d), total)
    assert grains_of(total) == [twins.potential([*squares, *gone], d)]
    other = np.zeros(2, dtype=np.int64)
    kernels.total_of(np.array(squares), coarse_of(d), other)
    assert grains_of(other) == [twins.potential(squares, d)]
    assert grains_of(total)[0] - twins.potential(gone, d) == grains_of(other)[0]


def test_shares_that_are_rounded_alike_add_up() -> None:
    """Each is half a coarse unit, which is rounded down: their low parts fill more than a word."""

    @numba.njit
    def count(squares: np.ndarray, sign: int, total: np.ndarray) -> None:
        count_nearer(squares, squares, coarse, sign, total)

    coarse = coarse_of(2)
    squares = np.full((1 << 18) + (1 << 16), coarse / 2)
    total = np.zeros(2, dtype=np.int64)
    count(squares, 1, total)
    assert grains_of(total) == [len(squares) * WORD // 2]
    count(squares[1:], -1, total)
    assert grains_of(total) == [WORD // 2]


def test_a_grain_is_a_small_part_of_a_step() -> None:
    """With one feature, records that differ by one step have a potential of 2^14 grains."""
    assert twins.potential([1.0], 1) == 2**14
    assert coarse_of(1) / WORD == 2.0**-14


def test_of_equal_potentials_the_first_is_the_least() -> None:
    assert least_of(np.array([[5, 0], [4, 7], [4, 7]])) == 1
    assert least_of(np.array([[0, 9], [0, 8], [1, 0]])) == 1


def test_there_are_as_many_candidates_as_in_scikit_learn() -> None:
    for n_clusters in range(1, 3000):
        assert n_candidates_of(n_clusters) == 2 + int(np.log(n_clusters))


# -- the twin --------------------------------------------------------------------------------------


def owned(values: np.ndarray, ids: np.ndarray, **given_task: object) -> OwnedKMeans:
    usual = {"n_clusters": 3, "n_init": 1, "max_iter": 300, "tol": 0.0, "memory_limit": 1 << 24}
    keys = keys_of_ids(SECRET, ids)
    task = Task(**{**usual, "greedy": True, **given_task})
    return OwnedKMeans(values, ids, keys, np.arange(len(ids)), task)


def drawn_by(
    values: np.ndarray, ids: np.ndarray, task: Task, restart: int, secret: Secret = SECRET
):
    """The race of one restart, and the records as it sees them."""
    records = RecordSlots(values, ids, keys_of_ids(secret, ids), np.arange(len(ids)))
    slots = records.in_use()
    restarts = owned_kmeans.restarts_of(records, slots, task)
    return restarts.seed(restart), records.coordinates(slots)


COORDINATES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.5, -1.0, 3.0, 1e-9, -1e9, 12345.678]),
    st.floats(-8.0, 8.0),
    st.sampled_from([1e-160, 1e-170, -1e100, 2.0**-500]),
)


@settings(max_examples=150)
@given(
    values=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 14), st.integers(1, 5)), elements=COORDINATES
    ),
    n_clusters=st.integers(1, 6),
    restart=st.sampled_from([0, 1, 5]),
    seed=st.integers(0, 2**20),
)
def test_candidates_and_potentials_are_those_of_the_twin(
    values: np.ndarray, n_clusters: int, restart: int, seed: int
) -> None:
    n = len(values)
    ids = (seed + np.arange(n))[np.random.default_rng(seed).permutation(n)]
    task = Task(n_clusters, 1, 300, 0.0, 0, greedy=True)
    race, places = drawn_by(values, ids, task, restart)
    seeds, candidates, potentials = twins.greedy_race(
        places, *keys_of_ids(SECRET, ids), ids.tolist(), n_clusters,
        n_candidates_of(n_clusters), stream=restart << 32,
    )  # fmt: skip
    assert race.rows == seeds
    assert race.candidates is not None
    assert race.candidates.rows[0, 0] == seeds[0]
    for step in range(1, len(seeds)):
        rows = race.candidates.rows[step].tolist()
        assert rows == [-1 if i is None else i for i in candidates[step]]
        totals = race.candidates.totals[step]
        found = [None if row < 0 else grains_of(totals[k])[0] for k, row in enumerate(rows)]
        assert found == potentials[step]
        assert rows[race.candidates.chosen[step]] == seeds[step]


def test_the_first_seed_is_that_of_plain_seeding(rng: np.random.Generator) -> None:
    values, ids = rng.random((200, 3)), np.arange(200)
    for restart in range(5):
        firsts = [
            drawn_by(values, ids, Task(4, 1, 9, 0.0, 0, greedy=greedy), restart)[0].rows[0]
            for greedy in (False, True)
        ]
        assert firsts[0] == firsts[1]


# -- the law ---------------------------------------------------------------------------------------

LINE = [0, 1, 2, 4, 9, 11]
SECRETS = 6000


def test_the_law_of_one_candidate_is_that_of_plain_seeding() -> None:
    assert twins.greedy_law(LINE, 3, 1) == twins.seeding_law(LINE, 3)


@pytest.mark.parametrize("restart", [0, 1])
def test_seeds_follow_the_law_of_greedy_k_means_plus_plus(restart: int) -> None:
    """A chi-squared test over all ordered triples, of level 10^-4 and with fixed seeds."""
    assert n_candidates_of(3) == 3
    law, plain = twins.greedy_law(LINE, 3, 3), twins.seeding_law(LINE, 3)
    assert sum(law.values()) == 1
    values, ids = np.array(LINE, dtype=float)[:, None] / 8.0, np.arange(len(LINE))
    task = Task(3, 2, 300, 0.0, 0, greedy=True)
    counts: Counter[tuple[int, ...]] = Counter()
    for number in range(SECRETS):
        secret = Secret(number.to_bytes(16, "little"))
        counts[tuple(drawn_by(values, ids, task, restart, secret)[0].rows)] += 1
    assert set(counts) <= set(law)

    def p_value(wanted: dict[tuple[int, ...], Fraction]) -> float:
        expected = {seeds: float(wanted.get(seeds, 0)) * SECRETS for seeds in set(law) | set(plain)}
        common = [seeds for seeds, count in expected.items() if count >= 5]
        observed = [counts[seeds] for seeds in common]
        hoped = [expected[seeds] for seeds in common]
        if SECRETS - sum(hoped) > 1e-6:
            observed.append(SECRETS - sum(observed))
            hoped.append(SECRETS - sum(hoped))
        return float(
            stats.chisquare(observed, np.array(hoped) * (sum(observed) / sum(hoped))).pvalue
        )

    assert p_value(law) > 1e-4
    # The test has power: it tells the law from others that are near.
    assert p_value(plain) < 1e-12
    assert p_value(twins.greedy_law(LINE, 3, 2)) < 1e-4


def test_candidates_of_a_step_are_independent() -> None:
    """Two candidates of step 1 are the same record as often as independent ones."""
    values, ids = np.array([0.0, 1.0, 2.0, 3.0])[:, None], np.arange(4)
    task = Task(2, 1, 1, 0.0, 0, greedy=True)
    tables = np.zeros((4, 4, 4), dtype=int)
    for number in range(6000):
        race, _ = drawn_by(values, ids, task, 0, Secret(number.to_bytes(16, "big")))
        assert race.candidates is not None
        tables[race.rows[0]][tuple(race.candidates.rows[1])] += 1
    for first in range(4):
        table = np.delete(np.delete(tables[first], first, axis=0), first, axis=1)
        assert table.sum() == tables[first].sum() > 1000
        assert stats.chi2_contingency(table).pvalue > 1e-4


# -- coming and going ------------------------------------------------------------------------------


def slots_of(model: OwnedKMeans, ids: np.ndarray) -> np.ndarray:
    slots = model.records.in_use()
    return slots[np.isin(model.records.ids[slots], ids)]


def kept_by(model: OwnedKMeans) -> Candidates:
    assert model.replayed is not None
    assert model.replayed.candidates is not None
    return model.replayed.candidates


def candidates_of(model: OwnedKMeans) -> tuple[object, ...]:
    """All that a model keeps of its candidates, by id."""
    kept = kept_by(model)
    names = np.where(kept.rows >= 0, model.records.ids[kept.rows], -1)
    return names.tolist(), kept.scores.tolist(), kept.totals.tolist(), kept.chosen.tolist()


def is_fresh(model: OwnedKMeans, values: np.ndarray, left: np.ndarray, **task: object) -> bool:
    """Whether a model is that of a fresh run, its candidates and potentials included."""
    fresh = owned(values[left], left, **task)
    return bool(
        model.outcome.centres.tobytes() == fresh.outcome.centres.tobytes()
        and model.best == fresh.best
        and candidates_of(model) == candidates_of(fresh)
    )


KINDS = {
    "blobs": lambda rng, n: rng.normal(size=(n, 3)) + 6.0 * rng.integers(0, 5, (n, 1)),
    "noise": lambda rng, n: rng.random((n, 2)),
    "integers": lambda rng, n: rng.integers(0, 6, (n, 2)).astype(float),
    "tails": lambda rng, n: rng.standard_cauchy((n, 2)).clip(-1e6, 1e6),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("n_init", [1, 3])
def test_candidates_and_potentials_follow_every_change(kind: str, n_init: int) -> None:
    rng = np.random.default_rng(5)
    values, task = KINDS[kind](rng, 260), {"n_clusters": 5, "n_init": n_init}
    held, followed = np.arange(200), 0
    model = owned(values[held], held, **task)
    for turn in range(40):
        if turn % 3:
            gone = rng.choice(held, 1 + turn % 4, replace=False)
            held = np.setdiff1d(held, gone)
            model.forget(slots_of(model, gone))
        else:
            new = rng.permutation(np.setdiff1d(np.arange(260), held))[: 1 + turn % 5]
            held = np.concatenate([held, new])
            model.learn(values[new], new, keys_of_ids(SECRET, new), new)
        followed += model.work.restarts < n_init
        assert is_fresh(model, values, np.sort(held), **task)
    assert followed > 10, "hardly anything was followed"


def test_a_candidate_that_lost_may_go(rng: np.random.Generator) -> None:
    """Its race has another winner then, which may even become the seed."""
    values, ids = KINDS["blobs"](rng, 300), np.arange(300)
    for number in range(1, 6):
        model = owned(values, ids, n_clusters=6)
        kept = kept_by(model)
        losers = [
            slot
            for slot in kept.rows[0, number].tolist()
            if slot >= 0 and slot not in model.seeds.tolist()
        ]
        for slot in losers:
            left = np.setdiff1d(ids, model.records.ids[slot])
            model.forget(np.array([slot]))
            assert is_fresh(model, values, left, n_clusters=6)
            model = owned(values, ids, n_clusters=6)


def test_a_removal_may_turn_a_choice() -> None:
    """Two candidates are nearly level; a record that is near to the better one decides."""
    turned = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        values, ids = rng.random((30, 1)), np.arange(30)
        model = owned(values, ids, n_clusters=3)
        before, tried_slots = model.seeds.tolist(), set(kept_by(model).rows.ravel().tolist())
        for slot in set(range(30)) - tried_slots:
            one = owned(values, ids, n_clusters=3)
            one.forget(np.array([slot]))
            assert is_fresh(one, values, np.setdiff1d(ids, slot), n_clusters=3)
            turned += one.seeds.tolist() != before
    assert turned > 5


def test_copies_of_seeds_come_and_go(rng: np.random.Generator) -> None:
    """Their distance is 0: they add nothing, and win nothing."""
    values = rng.random((60, 2))
    model = owned(values, np.arange(60))
    seeds = model.records.ids[model.seeds]
    values = np.concatenate([values, values[seeds]])
    new = np.arange(60, 60 + len(seeds))
    held = np.arange(60)
    for one in new:
        held = np.append(held, one)
        model.learn(values[[one]], np.array([one]), keys_of_ids(SECRET, np.array([one])), held[-1:])
        assert is_fresh(model, values, held)
    for one in new:
        held = np.setdiff1d(held, one)
        model.forget(slots_of(model, np.array([one])))
        assert is_fresh(model, values, held)


def removals(seed: int, *, broken: bool) -> list[bool]:
    """Whether the model is that of a fresh run after each of some removals."""
    rng = np.random.default_rng(seed)
    values, ids = rng.random((60, 2)), np.arange(60)
    model, right = owned(values, ids, n_clusters=5), []
    for _ in range(25):
        kept = kept_by(model)
        totals = kept.totals.copy()
        slot = int(rng.choice(model.records.in_use()))
        model.forget(np.array([slot]))
        if broken and model.work.restarts == 0:
            kept.totals[:] = totals
        left = np.sort(model.records.ids[model.records.in_use()])
        fresh = owned(values[left], left, n_clusters=5)
        right.append(model.outcome.centres.tobytes() == fresh.outcome.centres.tobytes())
    return right


def test_a_broken_update_of_potentials_is_caught() -> None:
    """Potentials that do not follow show in the model itself."""
    assert all(right for seed in range(6) for right in removals(seed, broken=False))
    assert not all(right for seed in range(6) for right in removals(seed, broken=True))


# -- a race in one kernel, and races before records went -------------------------------------------


def race_over(values: np.ndarray, keys: Keys, *, by_calls: bool = False) -> Race:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "_TURNED_SIZE", -1 if by_calls else 10**9)
        return run_greedily(Rows(values), keys, 6, 3, smallest_id=first_row)


def race_on(track: Track, here: np.ndarray, before: Candidates, gone: np.ndarray = NO_ROWS) -> Race:
    """A race on a track whose places are not all taken."""
    return run_on(track, here.astype(np.int64), before, gone, smallest_id=first_row)


def nothing_drawn() -> Candidates:
    drawn = Candidates.none(6, 3)
    drawn.rows[:] = kernels.TO_DRAW
    return drawn


def all_of(race: Race) -> tuple[object, ...]:
    """All that a race finds, bit for bit."""
    assert race.candidates is not None
    parts = vars(race.candidates).values()
    n = len(race.rows)
    return race.rows, race.scores, [part[:n].tolist() for part in parts], race.rate.tolist()


def some_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Rows, of which some are copies in one case of two."""
    if rng.random() < 0.5:
        return rng.normal(size=(n, 3))
    return rng.integers(0, 3, (n, 3)).astype(np.float64)


@pytest.mark.parametrize("number", range(20))
def test_one_kernel_draws_what_single_races_draw(number: int) -> None:
    """With equal keys, equal rates tie: ties go to the first row."""
    rng = np.random.default_rng(number)
    values = some_rows(rng, 150)
    keys = keys_of_ids(SECRET, np.arange(150) if number % 2 else np.zeros(150, dtype=np.int64))
    assert all_of(race_over(values, keys)) == all_of(race_over(values, keys, by_calls=True))


@pytest.mark.parametrize("n_steps", [1, 6])
@pytest.mark.parametrize("number", range(60))
def test_what_stands_of_a_race_before_is_what_a_new_one_draws(number: int, n_steps: int) -> None:
    """Records go several times; distances to candidates are kept in one case of two."""
    rng = np.random.default_rng(number)
    values, keys = some_rows(rng, 200), keys_of_ids(SECRET, np.arange(200))
    track = Track.of(Rows(values).turned(), keys, n_steps, 3)
    here, before, gone = np.ones(200, dtype=bool), nothing_drawn(), NO_ROWS
    for _ in range(4):
        race = race_on(track, here, before, gone)
        stays = np.flatnonzero(here)
        new = race_over(values[stays], Keys(keys.low[stays], keys.high[stays]))
        assert race.candidates is not None
        assert new.candidates is not None
        new.candidates.rows[:] = np.where(new.candidates.rows < 0, -1, stays[new.candidates.rows])
        assert race.rows == stays[new.rows].tolist()
        assert all_of(race)[1:3] == all_of(new)[1:3]
        assert race.rate[stays].tolist() == new.rate.tolist()
        assert not race.rate[~here].any()
        goes = here & (rng.random(200) < rng.choice([0.005, 0.05, 0.3]))
        here, gone, before = here & ~goes, np.flatnonzero(goes), race.candidates
        before.rows[np.isin(before.rows, gone)] = kernels.TO_DRAW


def test_what_stands_is_not_drawn_again(rng: np.random.Generator) -> None:
    """A record goes that was no candidate; scores that no race could have tell who was asked."""
    values, keys = rng.normal(size=(200, 3)), keys_of_ids(SECRET, np.arange(200))
    track, here = Track.of(Rows(values).turned(), keys, 6, 3), np.ones(200, dtype=bool)
    kept = race_on(track, here, nothing_drawn()).candidates
    assert kept is not None
    last = np.setdiff1d(np.arange(200), kept.rows)[-1:]
    here[last] = False
    kept.scores[:] += 1.0
    scores = kept.scores.tolist()
    race = race_on(track, here, kept, last)
    assert race.candidates is not None
    assert race.candidates.scores.tolist() == scores


@pytest.mark.parametrize("n_steps", [1, 6])
def test_distances_that_are_kept_are_not_measured_again(
    n_steps: int, rng: np.random.Generator
) -> None:
    """Distances that no record could have tell whether these were asked."""
    values, keys = rng.normal(size=(128, 3)), keys_of_ids(SECRET, np.arange(128))
    track, here = Track.of(Rows(values).turned(), keys, n_steps, 3), np.ones(128, dtype=bool)
    first = race_on(track, here, nothing_drawn())
    assert all_of(race_on(track, here, nothing_drawn())) == all_of(first)
    track.distances[:] = 1e-3
    assert (all_of(race_on(track, here, nothing_drawn())) == all_of(first)) == (n_steps == 1)


@pytest.mark.parametrize("n_steps", [1, 6])
def test_early_rows_that_are_kept_are_not_looked_for_again(
    n_steps: int, rng: np.random.Generator
) -> None:
    """Where nobody is said to be early, somebody else wins."""
    values, keys = rng.normal(size=(600, 3)), keys_of_ids(SECRET, np.arange(600))
    track, here = Track.of(Rows(values).turned(), keys, n_steps, 3), np.ones(600, dtype=bool)
    first = race_on(track, here, nothing_drawn())
    assert all_of(race_on(track, here, nothing_drawn())) == all_of(first)
    track.n_early[:] = 0
    assert (all_of(race_on(track, here, nothing_drawn())) == all_of(first)) == (n_steps == 1)


def test_a_high_rate_wins_where_the_clock_is_late() -> None:
    """A few records are so far away that their clocks hardly matter."""
    late = 0
    for number in range(20):
        rng = np.random.default_rng(number)
        values = rng.normal(size=(1000, 3))
        values[rng.choice(1000, 7, replace=False)] *= 1e6
        keys = keys_of_ids(SECRET, np.arange(1000))
        track = Track.of(Rows(values).turned(), keys, 6, 3)
        race = race_on(track, np.ones(1000, dtype=bool), nothing_drawn())
        assert all_of(race) == all_of(race_over(values, keys, by_calls=True))
        assert race.candidates is not None
        for step, number in np.argwhere(race.candidates.rows >= 0).tolist():
            early = track.early[step, number, : track.n_early[step, number]]
            late += race.candidates.rows[step, number] not in early
    assert late > 100


@pytest.mark.parametrize("room", [0, 1, 20])
def test_there_may_be_no_room_for_early_rows(room: int, rng: np.random.Generator) -> None:
    values, keys = some_rows(rng, 300), keys_of_ids(SECRET, np.zeros(300, dtype=np.int64))
    track = Track.of(Rows(values).turned(), keys, 6, 3)
    # Equal keys have equal clocks: all rows are early, or none is.
    keys.low[:room], keys.high[:room] = keys_of_ids(SECRET, np.arange(room))
    race = race_on(track, np.ones(300, dtype=bool), nothing_drawn())
    assert all_of(race) == all_of(race_over(values, keys, by_calls=True))


def test_nothing_is_left_of_records_that_have_gone(rng: np.random.Generator) -> None:
    """A model's races keep neither their places nor their keys, nor any distance of theirs."""
    values = rng.random((300, 3)) + 1.0
    model = owned(values, np.arange(300), n_clusters=6, n_init=2)
    assert model.replayed is not None
    races = model.replayed.races
    assert races is not None
    assert races.are_kept
    for n in (1, 40):
        candidates = np.unique(kept_by(model).rows)
        slots = np.append(rng.choice(model.records.in_use(), n), candidates[1:3])
        slots = np.unique(slots)
        model.forget(slots)
        for track in races._tracks:
            assert not track.tiles[slots // kernels.TILE, :, slots % kernels.TILE].any()
            assert not track.keys.low[slots].any()
            assert not track.keys.high[slots].any()
            assert not track.distances[..., slots].any()
            assert not np.isin(track.known, slots).any()
            for step, number in np.argwhere(track.n_early > 0).tolist():
                found = track.n_early[step, number]
                assert not np.isin(track.early[step, number, :found], slots).any()
                assert not track.early[step, number, found:].any()
                assert not track.draws[step, number, found:].any()
            used = model.records.in_use()
            for step, number in np.argwhere(track.known >= 0).tolist():
                place = model.records.coordinates(track.known[[step], number])[0]
                d2 = [
                    twins.squared_distance(row, place.tolist())
                    for row in model.records.coordinates(used).tolist()
                ]
                assert track.distances[step, number, used].tolist() == d2


@pytest.mark.parametrize("memory_limit", [0, 20_000, 1 << 24])
def test_memory_and_threads_do_not_show(
    memory_limit: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    values, ids = KINDS["blobs"](rng, 300), np.arange(300)
    gone = rng.choice(300, 12, replace=False)
    task = {"n_clusters": 5, "n_init": 4}
    ample = owned(values, ids, **task)
    for n_threads in (1, 2, 3):
        model = owned(values, ids, memory_limit=memory_limit, n_threads=n_threads, **task)
        assert model.outcome.centres.tobytes() == ample.outcome.centres.tobytes()
        for one in gone:
            model.forget(slots_of(model, np.array([one])))
        fresh = owned(np.delete(values, gone, axis=0), np.delete(ids, gone), **task)
        assert model.outcome.centres.tobytes() == fresh.outcome.centres.tobytes()
        assert model.best == fresh.best
