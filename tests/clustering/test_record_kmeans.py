"""K-means of one owner's records: what the model is, against plain twins in exact arithmetic."""

from __future__ import annotations

import gc
import math
import weakref
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import twins
from fedforget import KMeans
from fedforget.clustering.ids import keys_of_ids
from fedforget.clustering.prf import Secret
from fedforget.clustering.record_kmeans import exact_loss
from fedforget.clustering.replay import engine, owned_kmeans, room
from fedforget.clustering.replay.engine import Task
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans
from fedforget.clustering.replay.record_slots import RecordSlots
from followers import KEPT, rows_keep

SECRET = Secret(bytes(range(16)))


def owned(values: np.ndarray, ids: np.ndarray, **given_task: object) -> OwnedKMeans:
    usual = {"n_clusters": 3, "n_init": 1, "max_iter": 300, "tol": 0.0, "memory_limit": 1 << 24}
    keys = keys_of_ids(SECRET, ids)
    return OwnedKMeans(values, ids, keys, np.arange(len(ids)), Task(**{**usual, **given_task}))


def slots_of(model: OwnedKMeans, ids: np.ndarray) -> np.ndarray:
    slots = model.records.in_use()
    return slots[np.isin(model.records.ids[slots], ids)]


# -- the twin --------------------------------------------------------------------------------------


class Twin(NamedTuple):
    centres: list[list[float]]
    labels: list[int]
    loss: Fraction
    n_iter: int


def rounded(values: np.ndarray) -> list[list[Fraction]]:
    """Records as multiples of their steps: x 2^(31-e) half to even, times 2^(e-31)."""
    columns = []
    for column in values.T.tolist():
        e = -(-math.frexp(max(map(abs, column)))[1] // 4) * 4
        step = Fraction(2) ** (e - 31)
        columns.append([round(Fraction(x) / step) * step for x in column])
    return [list(row) for row in zip(*columns, strict=True)]


def mean_variance(rows: list[list[Fraction]]) -> Fraction:
    total = Fraction(0)
    for column in zip(*rows, strict=True):
        mean = sum(column) / len(column)
        total += sum((x - mean) ** 2 for x in column) / len(column)
    return total / len(rows[0])


def plain_run(
    values: np.ndarray, ids: list, n_clusters: int, restart: int, max_iter: int, tol: float
) -> Twin:
    """One restart by the definition: the eager race, and Lloyd with sums in fractions.

    In a unit in which the largest value has 31 bits, so that no square leaves the range of floats.
    """
    unit = 31 - math.frexp(np.abs(values).max())[1]
    exact = [[x * Fraction(2) ** unit for x in row] for row in rounded(values)]
    rows = [[float(x) for x in row] for row in exact]
    keys = keys_of_ids(SECRET, np.array(ids))
    seeds, _ = twins.eager_race(np.array(rows), *keys, ids, n_clusters, stream=restart << 32)
    centres = [rows[s] for s in seeds]
    threshold = Fraction(tol) * mean_variance(exact)
    before, n_iter, is_still = None, 0, False
    while True:
        labels = []
        for row in rows:
            distances = [twins.squared_distance(row, centre) for centre in centres]
            labels.append(distances.index(min(distances)))
        if n_iter == max_iter or is_still:
            break
        n_iter += 1
        if labels == before:
            break
        before, last = labels, centres
        centres = list(centres)
        for k in range(len(centres)):
            members = [row for row, label in zip(exact, labels, strict=True) if label == k]
            if members:
                centres[k] = [float(sum(c) / len(members)) for c in zip(*members, strict=True)]
        shift = 0.0
        for one, other in zip(last, centres, strict=True):
            shift += twins.squared_distance(other, one)
        is_still = tol > 0 and Fraction(shift) <= threshold
    loss = Fraction(0)
    for row, label in zip(exact, labels, strict=True):
        loss += sum((x - Fraction(c)) ** 2 for x, c in zip(row, centres[label], strict=True))
    scaled = [[math.ldexp(c, -unit) for c in centre] for centre in centres]
    return Twin(scaled, labels, loss / Fraction(4) ** unit, n_iter)


COORDINATES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 0.5, -1.0, 3.0]),
    st.floats(-8.0, 8.0).map(lambda x: x if abs(x) > 1e-200 else 0.0),
    st.integers(-9, 9).map(lambda i: 1.0 + i * 2.0**-31),
    st.sampled_from([1e-9, -1e9, 12345.678]),
)


@settings(max_examples=120)
@given(
    values=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 14), st.integers(1, 5)), elements=COORDINATES
    ),
    n_clusters=st.integers(1, 5),
    n_init=st.sampled_from([1, 3]),
    max_iter=st.sampled_from([1, 2, 3, 300]),
    tol=st.sampled_from([0.0, 1e-4, 0.1, 1.0]),
    names=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_the_model_is_that_of_the_plain_twin(
    values: np.ndarray, n_clusters: int, n_init: int, max_iter: int, tol: float, names: bool,
    seed: int,
) -> None:  # fmt: skip
    n = len(values)
    ids = (seed + np.arange(n))[np.random.default_rng(seed).permutation(n)]
    ids = np.array([f"p{i}" for i in ids]) if names else ids
    kept = KEPT[seed % len(KEPT)]
    with rows_keep(kept):
        model = owned(values, ids, n_clusters=n_clusters, n_init=n_init, max_iter=max_iter, tol=tol)
    runs = [plain_run(values, ids.tolist(), n_clusters, r, max_iter, tol) for r in range(n_init)]
    best = min(range(n_init), key=lambda r: runs[r].loss)
    twin, outcome, records = runs[best], model.outcome, model.records
    assert model.best == best
    assert records.rounding.values_of(outcome.centres).tolist() == twin.centres
    assert outcome.labels[records.by_arrival()].tolist() == twin.labels
    assert outcome.n_iter == twin.n_iter
    assert model.loss() == twin.loss
    sizes = Counter(twin.labels)
    assert outcome.totals.tolist() == [sizes[k] for k in range(len(twin.centres))]


# -- losses and moments ----------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    values=hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 10), st.integers(1, 4)),
        elements=st.one_of(
            COORDINATES, st.sampled_from([1e100, -1e100, 1e-200, 5e-324, 2.0**-900])
        ),
    ),
    n_clusters=st.integers(1, 4),
    data=st.data(),
)
def test_the_exact_loss_is_the_sum_over_records(
    values: np.ndarray, n_clusters: int, data: st.DataObject
) -> None:
    """For any centres and any labels, not only for those that K-means ends with."""
    n, d = values.shape
    ids = np.arange(n)
    records = RecordSlots(values, ids, keys_of_ids(SECRET, ids), ids)
    points = records.coordinates(records.by_arrival())
    centre = st.one_of(st.floats(-(2.0**31), 2.0**31), st.sampled_from([0.0, 2.0**31, 2.0**-900]))
    centres = data.draw(hnp.arrays(np.float64, (n_clusters, d), elements=centre))
    labels = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, n_clusters - 1)))
    sums = np.zeros((n_clusters, d), dtype=np.int64)
    np.add.at(sums, labels, (points / records.rounding.units).astype(np.int64))
    totals = np.bincount(labels, minlength=n_clusters)
    direct = sum(
        (Fraction(x) - Fraction(c)) ** 2
        for row, label in zip(points.tolist(), labels.tolist(), strict=True)
        for x, c in zip(row, centres[label].tolist(), strict=True)
    )
    assert exact_loss(records.moments, centres, sums, totals) == direct


@settings(max_examples=150)
@given(
    values=hnp.arrays(
        np.float64, st.tuples(st.integers(2, 12), st.integers(1, 4)), elements=COORDINATES
    ),
    data=st.data(),
)
def test_moments_follow_records_that_come_and_go(values: np.ndarray, data: st.DataObject) -> None:
    """They are what the tolerance and the inertia are computed from."""
    ids = np.arange(len(values))
    model = owned(values, ids, n_clusters=1)
    gone = data.draw(st.sets(st.sampled_from(ids.tolist()), min_size=1, max_size=len(ids) - 1))
    left = np.setdiff1d(ids, sorted(gone))
    model.forget(slots_of(model, np.array(sorted(gone))))
    moments, scale = model.records.moments, Fraction(model.records.rounding.scale)
    in_units = mean_variance(rounded(values[left]))
    assert moments.mean_variance() == float(in_units * scale * scale)
    expected = owned(values[left], left, n_clusters=1).records.moments
    for name in ("weight", "sums", "squares"):
        assert np.array_equal(getattr(moments, name), getattr(expected, name))
    # Where nothing but zeros is left, any step will do.
    is_used = (expected.squares > 0).any(axis=1)
    assert moments.shifts[is_used].tolist() == expected.shifts[is_used].tolist()


def test_inertia_is_correctly_rounded() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 7)) * 10.0 ** rng.integers(-4, 5, 7)
    model = KMeans(5, random_state=0).fit(X)
    exact = rounded(X)
    centres = [[Fraction(c) for c in centre] for centre in model.cluster_centers_.tolist()]
    loss = sum(
        (x - c) ** 2
        for row, label in zip(exact, model.labels_.tolist(), strict=True)
        for x, c in zip(row, centres[label], strict=True)
    )
    assert model.inertia_ == float(loss)
    assert abs(float(loss) + model.score(X)) < 1e-12 * float(loss)


def test_of_equal_losses_the_first_restart_is_the_model() -> None:
    """Four corners of a square, in pairs: two ways to cut it, with the same loss."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    cuts = set()
    for random_state in range(40):
        many = KMeans(2, n_init=12, tol=0.0, random_state=random_state).fit(X)
        first = KMeans(2, n_init=1, tol=0.0, random_state=random_state).fit(X)
        if first.inertia_ == many.inertia_:
            assert many.cluster_centers_.tobytes() == first.cluster_centers_.tobytes()
            cuts.add(first.labels_[1] == first.labels_[0])
    assert cuts == {True, False}


# -- the law of the seeding ------------------------------------------------------------------------

LINE = [0, 1, 2, 4, 9]
SECRETS = 6000


def drawn_seeds(restart: int) -> Counter[tuple[int, ...]]:
    """How often which records were drawn in which order, over many owners' secrets."""
    values, ids = np.array(LINE, dtype=float)[:, None] / 8.0, np.arange(len(LINE))
    counts: Counter[tuple[int, ...]] = Counter()
    for number in range(SECRETS):
        secret = Secret(number.to_bytes(16, "little"))
        records = RecordSlots(values, ids, keys_of_ids(secret, ids), ids)
        task = Task(3, 2, 300, 0.0, 0)
        restarts = owned_kmeans.restarts_of(records, records.in_use(), task)
        counts[tuple(restarts.seed(restart).rows)] += 1
    return counts


@pytest.mark.parametrize("restart", [0, 1])
def test_seeds_follow_the_law_of_k_means_plus_plus(restart: int) -> None:
    """A chi-squared test over all ordered triples, of level 10^-4 and with fixed seeds."""
    law = twins.seeding_law(LINE, 3)
    counts = drawn_seeds(restart)
    assert set(counts) <= set(law)
    expected = {seeds: float(p) * SECRETS for seeds, p in law.items()}
    common = [seeds for seeds, count in expected.items() if count >= 5]
    observed = [counts[seeds] for seeds in common]
    wanted = [expected[seeds] for seeds in common]
    rare = SECRETS - sum(wanted)
    if rare > 0:
        observed.append(SECRETS - sum(observed))
        wanted.append(rare)
    assert len(common) > 30
    assert stats.chisquare(observed, wanted).pvalue > 1e-4
    # The test has power: it tells the law from that of seeds drawn without regard to distances.
    even = np.full(len(observed), SECRETS / len(observed))
    assert stats.chisquare(observed, even).pvalue < 1e-12


def test_restarts_are_drawn_independently() -> None:
    """The first seeds of two restarts agree as often as independent ones: once in five."""
    values, ids = np.array(LINE, dtype=float)[:, None], np.arange(len(LINE))
    table = np.zeros((5, 5), dtype=int)
    for number in range(1500):
        secret = Secret(number.to_bytes(16, "big"))
        records = RecordSlots(values, ids, keys_of_ids(secret, ids), ids)
        restarts = owned_kmeans.restarts_of(records, records.in_use(), Task(1, 2, 1, 0.0, 0))
        table[restarts.seed(0).rows[0], restarts.seed(1).rows[0]] += 1
    assert stats.chi2_contingency(table).pvalue > 1e-4


# -- where single precision sees nothing ----------------------------------------------------------


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("exponent", [30, 60, 90, 95, 97, 99, 100, 101, 103, 105, 120, 200, 330])
def test_a_large_constant_feature_hides_nothing(kept: str, exponent: int) -> None:
    """Beside it the other feature vanishes in single precision, but not in a full run."""
    values = np.column_stack([np.full(6, 2.0**exponent), [0.0, 1.0, 5.0, 6.0, 20.0, 21.0]])
    ids = np.arange(6)
    with rows_keep(kept):
        model = owned(values, ids)
        without_rows = owned(values, ids, memory_limit=0)
        for gone in ([], [4]):
            for one in (model, without_rows):
                one.forget(slots_of(one, np.array(gone)))
            assert model.outcome.labels.tolist() == without_rows.outcome.labels.tolist()
            assert model.outcome.centres.tobytes() == without_rows.outcome.centres.tobytes()


# -- a broken check --------------------------------------------------------------------------------


def never_give_way(model: OwnedKMeans) -> None:
    """Let no margin and no difference of estimates ever be too small."""
    replay = model.replayed
    assert replay is not None
    replay.points.summary["slack"] = -np.inf
    if replay.margins is not None:
        replay.margins.rows["cut"] = 1e9
        replay.margins.rows["debt"] = 0
        replay.margins.border_margins[:] = np.inf


def removals(kept: str, tol: float, seed: int, *, broken: bool) -> list[bool]:
    """Whether the model is that of a fresh run after each of some removals."""
    rng = np.random.default_rng(seed)
    values, ids = rng.random((400, 2)), np.arange(400)
    outcomes = []
    with rows_keep(kept):
        model = owned(values, ids, n_clusters=6, tol=tol)
        for _ in range(12):
            if broken:
                never_give_way(model)
            slot = int(rng.choice(model.records.in_use()))
            model.forget(np.array([slot]))
            left = np.sort(model.records.ids[model.records.in_use()])
            fresh = owned(values[left], left, n_clusters=6, tol=tol)
            outcomes.append(
                model.outcome.centres.tobytes() == fresh.outcome.centres.tobytes()
                and model.outcome.n_iter == fresh.outcome.n_iter
            )
    return outcomes


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("tol", [0.0, 1e-4])
def test_a_broken_margin_check_is_caught(kept: str, tol: float) -> None:
    assert all(right for seed in range(3) for right in removals(kept, tol, seed, broken=False))
    assert not all(right for seed in range(3) for right in removals(kept, tol, seed, broken=True))


def test_a_wrong_threshold_is_caught() -> None:
    """A tolerance that does not follow the variance of what is left shows."""
    differing = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        values, ids = rng.normal(size=(300, 2)), np.arange(300)
        gone = np.argsort(np.abs(values).max(axis=1))[-80:-10]
        left = np.setdiff1d(ids, gone)
        task = {"n_clusters": 5, "tol": 1e-2}
        fresh = owned(values[left], left, **task)
        for broken in (False, True):
            model = owned(values, ids, **task)
            with pytest.MonkeyPatch.context() as patch:
                if broken:
                    patch.setattr(engine, "change_moments", lambda *_: None)
                model.forget(slots_of(model, gone))
            same = model.outcome.centres.tobytes() == fresh.outcome.centres.tobytes()
            assert same or broken
            differing += not same
    assert differing


def test_moments_follow_a_large_batch(rng: np.random.Generator) -> None:
    """Squares are added up in parts, and these are joined again and again."""
    values, ids = rng.uniform(-1.0, 1.0, (3600, 5)) * 2.0 ** rng.integers(0, 30, 5), np.arange(3600)
    # The largest magnitude of a feature stays, and many come close to it.
    values[1:1200] = values[0] = np.abs(values).max(axis=0)
    model = owned(values, ids, tol=1e-4)
    left = np.setdiff1d(ids, 1 + rng.permutation(3599)[:1100])
    model.forget(np.setdiff1d(ids, left))
    fresh = RecordSlots(values[left], left, keys_of_ids(SECRET, left), left)
    assert model.replayed is not None
    assert model.records.moments.weight == fresh.moments.weight == 2500
    assert model.records.moments.sums.tolist() == fresh.moments.sums.tolist()
    assert model.records.moments.squares.tolist() == fresh.moments.squares.tolist()


@pytest.mark.parametrize("greedy", [False, True])
def test_points_that_stay_turned_do_not_show(greedy: bool, rng: np.random.Generator) -> None:
    """Labels of every row are the same, and nothing is left of who has gone."""
    values, ids = rng.normal(size=(2000, 5)), np.arange(2000)
    gone = np.sort(rng.permutation(2000)[:300])
    models = []
    for turned in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not turned:
                patch.setattr(room, "MOST_TURNED", 0)
            model = owned(values, ids, n_clusters=6, n_init=2, greedy=greedy)
        model.forget(gone)
        assert model.replayed is not None
        assert model.replayed.margins is not None
        assert (len(model.replayed.margins.turned) > 0) == turned
        tiles = model.replayed.margins.turned.transpose(0, 2, 1)
        columns = tiles.reshape(-1, tiles.shape[2])[gone if turned else gone[:0]]
        assert np.isnan(columns[:, 0]).all()
        assert not columns[:, 1:].any()
        models.append(model.replayed)
    one, two = models
    used = one._rows_in_use()
    assert used.tolist() == two._rows_in_use().tolist()
    assert one.rows.labels[used].tolist() == two.rows.labels[used].tolist()


def test_trajectories_go_before_new_ones_come() -> None:
    """Or a change that runs everything anew would take twice the memory limit."""
    rng = np.random.default_rng(0)
    values, ids = rng.random((200, 2)), np.arange(200)
    model = owned(values[:150], ids[:150])
    lives: list[bool] = []
    made = owned_kmeans.RecordReplay

    class Watched(made):  # type: ignore[misc, valid-type]
        def __init__(self, *args: object) -> None:
            lives.append(old() is not None)
            super().__init__(*args)

    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owned_kmeans, "RecordReplay", Watched)
            old = weakref.ref(model.replayed)
            model.forget(model.records.in_use()[:100])
            old = weakref.ref(model.replayed)
            new = ids[150:]
            model.learn(values[150:] * 9, new, keys_of_ids(SECRET, new), new)
            old = weakref.ref(model.replayed)
            many = np.arange(1000, 1200)
            model.learn(values, many, keys_of_ids(SECRET, many), many)
    finally:
        gc.enable()
    assert lives == [False, False, False]


def test_learned_records_may_come_column_by_column(rng: np.random.Generator) -> None:
    values, ids = rng.normal(size=(90, 5)), np.arange(90)
    one, two = owned(values[:80], ids[:80]), owned(values[:80], ids[:80])
    new = ids[80:]
    slots = one.learn(np.asfortranarray(values[80:]), new, keys_of_ids(SECRET, new), new)
    assert slots.tolist() == two.learn(values[80:], new, keys_of_ids(SECRET, new), new).tolist()
    assert one.replayed is not None
    assert one.records.moments.sums.tolist() == two.records.moments.sums.tolist()
    assert one.outcome.centres.tobytes() == two.outcome.centres.tobytes()
    assert one.loss() == owned(values, ids).loss()
