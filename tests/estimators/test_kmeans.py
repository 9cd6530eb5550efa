"""What K-means of one owner promises: scikit-learn's statements about K-means, in our own words."""

import copy
import json
import pickle
import re
import subprocess
import sys
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn.cluster
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from fedforget import (
    CutOffError,
    DuplicateIdError,
    FederatedKMeans,
    KMeans,
    ModelFileError,
    SeededKMeans,
    UnknownIdError,
)
from fedforget.clustering.replay import engine
from fedforget.clustering.replay.owned_kmeans import OwnedKMeans
from fedforget.estimators import files
from fedforget.estimators import kmeans as kmeans_module
from followers import rows_keep
from reachable import arrays_of, where_found

N, D, K = 150, 3, 4
_rng = np.random.default_rng(16)
X = _rng.normal(size=(N, D)) + 3.0 * _rng.integers(0, 4, (N, 1))
IDS = np.array([f"p-{i:03}" for i in _rng.permutation(N)])
NEW_X, NEW_IDS = _rng.normal(size=(9, D)), np.array([f"q-{i}" for i in range(9)])


def kmeans(**params):
    return KMeans(**{"n_clusters": K, "random_state": 4, **params})


@pytest.fixture
def model():
    return kmeans(n_init=2).fit(X, ids=IDS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


def fresh(rows, **params):
    return kmeans(n_init=2, **params).fit(X[rows], ids=IDS[rows])


# -- what is found ---------------------------------------------------------------------------------


def test_attributes(model):
    assert model.cluster_centers_.shape == (K, D)
    assert model.cluster_centers_.dtype == np.float64
    assert model.labels_.shape == (N,)
    assert model.labels_.dtype == np.int32
    assert model.cluster_sizes_.tolist() == np.bincount(model.labels_, minlength=K).tolist()
    assert model.ids_.tolist() == IDS.tolist()
    assert isinstance(model.inertia_, float)
    assert isinstance(model.n_iter_, int)
    assert isinstance(model.model_digest_, str)
    assert 1 <= model.n_iter_ <= model.max_iter
    assert model.n_features_in_ == D
    assert kmeans().fit(X).ids_.tolist() == list(range(N))


def test_what_is_read_is_a_copy(model, snapshot):
    """Whoever writes to an attribute changes nothing."""
    before = snapshot(model)
    for name in ("cluster_centers_", "labels_", "cluster_sizes_", "ids_"):
        values = getattr(model, name)
        values[...] = values[::-1].copy()
        values[:1] = 0 if values.dtype.kind != "U" else "x"
    assert snapshot(model) == before


def test_prediction_agrees_with_labels(model):
    assert model.predict(X).tolist() == model.labels_.tolist()
    assert model.transform(X).argmin(axis=1).tolist() == model.labels_.tolist()
    assert kmeans(n_init=2).fit_predict(X, ids=IDS).tolist() == model.labels_.tolist()


@pytest.mark.parametrize("scale", [1e-270, 1e-100, 1e-9, 1.0, 1e9, 1e99])
@pytest.mark.parametrize("max_iter", [1, 3, 300])
def test_prediction_agrees_with_labels_at_any_scale(scale, max_iter, rng):
    """Also where the iteration was stopped early, and where rounding matters."""
    values = rng.normal(size=(300, 2)).round(1) * scale * [1.0, 1e-6]
    one = kmeans(n_clusters=7, max_iter=max_iter, tol=0.0).fit(values)
    assert one.predict(values).tolist() == one.labels_.tolist()
    assert [one.predict(row[None])[0] for row in values[:20]] == one.labels_[:20].tolist()


def test_a_row_s_prediction_depends_on_no_other_row():
    small = np.array([[1.0], [2.0], [7.0], [8.0]]) * 1e-95
    one = KMeans(2, random_state=0).fit(small)
    for large in (1e10, 1e120, 1e250, 1.7e308):
        together = np.concatenate([small, [[large], [-large]]])
        assert one.predict(together)[:4].tolist() == one.labels_.tolist()
        assert one.transform(together)[:4].tobytes() == one.transform(small).tobytes()
        assert np.isfinite(one.transform(together)).all()
        assert one.transform(together)[4:].tolist() == [[large, large]] * 2


def test_labels_are_nearest_centres(model):
    centres = [[Fraction(v) for v in centre] for centre in model.cluster_centers_.tolist()]
    for row, label in zip(X.tolist(), model.labels_, strict=True):
        squares = [
            sum((Fraction(v) - c) ** 2 for v, c in zip(row, centre, strict=True))
            for centre in centres
        ]
        assert label == squares.index(min(squares))


def test_centres_are_the_means_of_their_clusters():
    one = kmeans(tol=0.0).fit(X)
    means = np.array([X[one.labels_ == k].mean(axis=0) for k in range(K)])
    # Records are rounded to 28 bits or more of a feature's largest value.
    np.testing.assert_allclose(one.cluster_centers_, means, rtol=0, atol=2**-27 * np.abs(X).max())


def test_inertia_and_score(model):
    squares = ((X - model.cluster_centers_[model.labels_]) ** 2).sum()
    assert model.inertia_ == pytest.approx(squares, rel=1e-7)
    assert model.score(X) == pytest.approx(-model.inertia_, rel=1e-12)
    assert model.transform(X).min(axis=1) ** 2 @ np.ones(N) == pytest.approx(model.inertia_)


def test_integers_have_an_exact_model():
    """Nothing is rounded: the model is what can be computed by hand."""
    points = np.array([[0, 0], [0, 2], [10, 0], [10, 4]])
    one = KMeans(2, n_init=5, random_state=0).fit(points)
    assert sorted(one.cluster_centers_.tolist()) == [[0.0, 1.0], [10.0, 2.0]]
    assert one.inertia_ == 1 + 1 + 4 + 4
    assert one.score([[0, 0]]) == -1.0
    assert sorted(one.transform([[0, 1]]).ravel().tolist()) == [0.0, 101**0.5]


def test_as_good_as_scikit_learn():
    """The same local optima: from our centres, scikit-learn's iteration does not move."""
    for seed in range(5):
        ours = kmeans(random_state=seed, tol=0.0).fit(X)
        theirs = sklearn.cluster.KMeans(K, init=ours.cluster_centers_, n_init=1, tol=0.0).fit(X)
        assert theirs.labels_.tolist() == ours.labels_.tolist()
        assert theirs.inertia_ == pytest.approx(ours.inertia_, rel=1e-7)


def test_the_order_of_rows_does_not_matter(rng, snapshot):
    order = rng.permutation(N)
    one, other = kmeans().fit(X, ids=IDS), kmeans().fit(X[order], ids=IDS[order])
    assert snapshot(one, by_id=True) == snapshot(other, by_id=True)


@pytest.mark.parametrize("as_array", [np.asfortranarray, lambda a: np.repeat(a, 2, 0)[::2], list])
def test_the_layout_in_memory_does_not_matter(as_array, snapshot):
    assert snapshot(kmeans().fit(as_array(X), ids=IDS)) == snapshot(kmeans().fit(X, ids=IDS))


def test_the_data_of_the_caller_stay_as_they_are(model):
    values = X.copy()
    one = kmeans().fit(values)
    one.forget([0, 1])
    assert values.tobytes() == X.tobytes()
    values[...] = 0.0
    one.forget([2])
    assert one.predict(X[3:]).tolist() == one.labels_.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, bool])
def test_numbers_of_other_types_are_widened(dtype, snapshot):
    values = (np.abs(X) * 9).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = kmeans().fit(values, ids=IDS)
        wide = kmeans().fit(values.astype(np.float64), ids=IDS)
    assert one.cluster_centers_.dtype == one.transform(values).dtype == np.float64
    assert snapshot(one) == snapshot(wide)
    assert one.predict(values).tolist() == one.labels_.tolist()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames(frame, snapshot):
    table = frame({name: X[:, t] for t, name in enumerate("abc")})
    one = kmeans().fit(table, ids=IDS)
    assert one.feature_names_in_.tolist() == ["a", "b", "c"]
    assert one.cluster_centers_.tobytes() == kmeans().fit(X, ids=IDS).cluster_centers_.tobytes()
    assert one.predict(table).tolist() == one.labels_.tolist()
    assert list(one.get_feature_names_out()) == [f"kmeans{k}" for k in range(K)]
    new = frame({name: NEW_X[:, t] for t, name in enumerate("abc")})
    one.learn(new, ids=NEW_IDS)
    one.forget(IDS[:5])
    every = kmeans().fit(np.vstack([X[5:], NEW_X]), ids=[*IDS[5:], *NEW_IDS])
    assert one.cluster_centers_.tobytes() == every.cluster_centers_.tobytes()
    before = snapshot(one)
    with pytest.raises(ValueError, match="feature names"):
        one.learn(new[["b", "a", "c"]], ids=[f"r{i}" for i in range(9)])
    assert snapshot(one) == before


# -- parameters ------------------------------------------------------------------------------------


def test_more_restarts_are_never_worse():
    losses = [kmeans(n_init=n, n_clusters=9).fit(X).inertia_ for n in (1, 2, 5, 20)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


@pytest.mark.parametrize("memory_limit", ["2 GiB", 1])
@pytest.mark.parametrize("seeding", ["plain", "greedy"])
def test_the_report_says_from_which_step_seeds_are_others(seeding, memory_limit):
    """Whether a restart is followed or run again, and however its seeds are drawn."""
    params = {"n_init": 2, "seeding": seeding, "memory_limit": memory_limit}
    told = set()
    for i in range(N):
        model = kmeans(**params).fit(X, ids=IDS)
        before = seeds_of_all(model)
        report = model.forget(IDS[i])
        after = seeds_of_all(model)
        steps = [
            s for old, new in zip(before, after, strict=True) for s in range(K) if old[s] != new[s]
        ]
        assert dict(report.reseeded) == ({"owner": min(steps) + 1} if steps else {})
        told |= set(report.reseeded.values())
    assert told == set(range(1, K + 1))


def seeds_of_all(model):
    """The ids of the seeds of each restart."""
    inside = model._model
    return [inside.records.ids[seeds].tolist() for seeds in inside._seeds_of_all().values()]


def test_the_iteration_ends_where_it_is_told_to():
    noise = np.random.default_rng(0).random((2000, 2))
    for max_iter in (1, 2, 5):
        one = kmeans(n_clusters=8, max_iter=max_iter, tol=0.0).fit(noise)
        assert one.n_iter_ == max_iter
        assert one.predict(noise).tolist() == one.labels_.tolist()
    runs = [kmeans(n_clusters=8, tol=tol).fit(noise) for tol in (0.0, 1e-4, 1e-2, 1e9)]
    assert [one.n_iter_ for one in runs] == sorted((one.n_iter_ for one in runs), reverse=True)
    assert runs[0].n_iter_ > runs[1].n_iter_ > runs[2].n_iter_ > runs[3].n_iter_ == 1
    still = sklearn.cluster.KMeans(8, init=runs[0].cluster_centers_, n_init=1, tol=0.0).fit(noise)
    assert still.labels_.tolist() == runs[0].labels_.tolist()


def test_the_tolerance_is_relative_to_the_mean_variance():
    """So a model of values times a power of 16 is the model, times that power."""
    noise = np.random.default_rng(1).random((500, 3))
    one, other = (kmeans(tol=1e-2).fit(noise * scale) for scale in (1.0, 2.0**48))
    assert one.n_iter_ == other.n_iter_
    assert (one.cluster_centers_ * 2.0**48).tobytes() == other.cluster_centers_.tobytes()


@pytest.mark.parametrize(
    "params",
    [{"n_jobs": 1}, {"n_jobs": 2}, {"n_jobs": -1}, {"memory_limit": 0}, {"memory_limit": "1 KiB"}],
    ids=str,
)
def test_the_model_does_not_depend_on(params, snapshot, monkeypatch):
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    one, usual = kmeans(n_init=3, **params).fit(X), kmeans(n_init=3).fit(X)
    assert snapshot(one) == snapshot(usual)
    for each in (one, usual):
        each.forget([3, 5, 9])
        each.learn(NEW_X, ids=np.arange(1000, 1009))
    assert snapshot(one) == snapshot(usual)
    assert one.model_digest_ == usual.model_digest_


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0),
        ("n_clusters", 2.5),
        ("n_clusters", True),
        ("n_init", 0),
        ("n_init", "auto"),
        ("max_iter", 0),
        ("max_iter", 1.5),
        ("tol", -1e-9),
        ("tol", np.nan),
        ("tol", "small"),
        ("memory_limit", -1),
        ("memory_limit", 1.5),
        ("memory_limit", None),
        ("memory_limit", True),
        ("memory_limit", "2 GB"),
        ("memory_limit", "lots"),
        ("memory_limit", "-1 GiB"),
        ("memory_limit", ""),
        ("n_jobs", 0),
        ("n_jobs", 1.5),
        ("n_jobs", "all"),
        ("n_jobs", True),
        ("random_state", -1),
        ("random_state", "seven"),
    ],
    ids=str,
)
def test_bad_parameters_are_named_and_change_nothing(name, value, model, snapshot):
    match = name if name != "random_state" else None
    with pytest.raises((ValueError, TypeError), match=match):
        kmeans(**{name: value}).fit(X)
    before = snapshot(model)
    with pytest.raises((ValueError, TypeError), match=match):
        model.set_params(**{name: value}).fit(X[::-1])
    assert snapshot(model) == before
    model.forget(IDS[0])
    assert model.cluster_centers_.tobytes() == fresh(np.arange(1, N)).cluster_centers_.tobytes()


@pytest.mark.parametrize("limit", ["2 GiB", "1.5MiB", "100 B", 0, np.int64(10**6), "1 TiB"])
def test_sizes_of_memory(limit):
    kmeans(memory_limit=limit).fit(X)


class Named(KMeans):
    """A class with one more parameter."""

    def __init__(
        self, n_clusters=8, *, n_init=1, max_iter=300, tol=1e-4, seeding="greedy",
        memory_limit="2 GiB", n_jobs=None, random_state=None, label="",
    ):  # fmt: skip
        super().__init__(
            n_clusters, n_init=n_init, max_iter=max_iter, tol=tol, seeding=seeding,
            memory_limit=memory_limit, n_jobs=n_jobs, random_state=random_state,
        )  # fmt: skip
        self.label = label


def test_a_class_that_inherits_may_have_other_parameters(snapshot):
    named = Named(K, label="ward 7", random_state=4).fit(X, ids=IDS)
    assert snapshot(named) == snapshot(kmeans().fit(X, ids=IDS))


@pytest.mark.parametrize("parameter", [np.int32(3), np.uint8(3)])
def test_numbers_of_numpy_are_numbers(parameter, path):
    one = kmeans(n_clusters=parameter, n_init=parameter, tol=np.float32(0.0)).fit(X)
    one.save(path)
    assert KMeans.load(path).n_clusters == 3


def test_few_distinct_rows():
    values = np.repeat([[0.25, 1.0], [0.75, 1.0]], 5, axis=0)
    with pytest.warns(ConvergenceWarning, match="only 2 of n_clusters=3") as said:
        one = KMeans(3, random_state=0).fit(values)
    assert [one.filename for one in said] == [__file__]
    assert sorted(one.cluster_centers_.tolist()) == [[0.25, 1.0], [0.75, 1.0]]
    assert one.inertia_ == 0.0


def test_rows_that_rounding_makes_equal():
    """Distinct by less than a step, 2^-27 here: they count as one."""
    values = np.array([[1.0], [2.0**-40], [2.0**-39], [-(2.0**-40)], [0.0]])
    with pytest.warns(ConvergenceWarning, match=r"only 2 of n_clusters=3.*rounding removes"):
        one = KMeans(3, random_state=0).fit(values)
    one.forget(0)
    assert one.cluster_centers_.shape == (3, 1)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array"])
def test_sparse_input_is_refused(kind, model, snapshot):
    sparse = getattr(scipy.sparse, kind)(X)
    before = snapshot(model)
    verbs = [model.fit, model.predict, model.transform, model.score]
    verbs.append(lambda rows: model.learn(rows, ids=np.arange(N)))
    for verb in verbs:
        with pytest.raises(TypeError, match=r"[Ss]parse.*dense"):
            verb(sparse)
    assert snapshot(model) == before


def test_weights_are_refused(model, snapshot):
    """A record counts once; there is no parameter that would be ignored."""
    before = snapshot(model)
    for verb in (model.fit, model.fit_predict, model.predict, model.score):
        with pytest.raises(TypeError, match="sample_weight"):
            verb(X, sample_weight=np.ones(N))
    assert snapshot(model) == before


BAD_ROWS = {
    "nan": np.array([[0.0, np.nan, 0.0]]),
    "inf": np.array([[0.0, np.inf, 0.0]]),
    "beyond": np.array([[0.0, 1.1e100, 0.0]]),
    "narrow": np.zeros((1, 2)),
    "1-D": np.zeros(3),
    "text": np.array([["1", "2", "3"]]),
    "empty": np.empty((0, 3)),
}


@pytest.mark.parametrize("rows", BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_change_nothing(rows, model, snapshot):
    before, twin = snapshot(model), copy.deepcopy(model)
    ids = [f"z{i}" for i in range(len(rows))]
    with pytest.raises((ValueError, TypeError)):
        model.learn(rows, ids=ids)
    if rows.shape != (1, 2):
        with pytest.raises((ValueError, TypeError)):
            model.set_params(n_clusters=1).fit(rows, ids=ids)
    model.set_params(n_clusters=K)
    assert snapshot(model) == before
    for one in (model, twin):
        one.learn(NEW_X, ids=NEW_IDS)
        one.forget(IDS[::7])
    assert snapshot(model) == snapshot(twin)


def test_the_value_beyond_all_bounds_is_named():
    values = X.copy()
    values[7, 2] = -2e100
    with pytest.raises(ValueError, match=r"X\[7, 2\] = -2e\+100 is beyond 1e\+100.*rescale"):
        kmeans().fit(values)


@pytest.mark.parametrize(
    ("ids", "error", "match"),
    [
        (["p-000", "nobody"], UnknownIdError, "nobody.*nothing was forgotten"),
        (["p-000", "p-001", "p-000"], DuplicateIdError, "p-000"),
        ([1, 2], ValueError, "mixed type"),
        (1.5, TypeError, "integers or strings"),
        ([["p-000"]], TypeError, "position 0 holds"),
    ],
    ids=str,
)
def test_ids_that_cannot_be_forgotten(ids, error, match, model, snapshot):
    before = snapshot(model)
    with pytest.raises(error, match=match):
        model.forget(ids)
    assert snapshot(model) == before
    model.forget("p-000")
    kept = IDS != "p-000"
    assert model.cluster_centers_.tobytes() == fresh(kept).cluster_centers_.tobytes()


@pytest.mark.parametrize(
    ("ids", "error", "match"),
    [
        (["n", "p-007"], DuplicateIdError, "p-007.*forget them first"),
        (["n", "n"], DuplicateIdError, "'n'"),
        ([7, 8], ValueError, "mixed type"),
        (["n"], ValueError, "1 entries for 2 rows"),
    ],
    ids=str,
)
def test_ids_that_cannot_be_learned(ids, error, match, model, snapshot):
    before = snapshot(model)
    with pytest.raises(error, match=match):
        model.learn(NEW_X[:2], ids=ids)
    assert snapshot(model) == before
    model.learn(NEW_X[:2], ids=["n", "m"])
    assert model.ids_.tolist() == [*IDS, "n", "m"]


def test_more_clusters_than_records():
    with pytest.raises(ValueError, match="n_samples=150 should be at least n_clusters=151"):
        kmeans(n_clusters=N + 1).fit(X)
    kmeans(n_clusters=N).fit(X)


def test_more_records_than_a_model_can_hold(monkeypatch, model, snapshot, path):
    """The limit is 2^30; a smaller one shows that both verbs, and load, look at it."""
    model.save(path)
    before, twin = snapshot(model), copy.deepcopy(model)
    monkeypatch.setattr(kmeans_module, "MOST_RECORDS", N + 3)
    with pytest.raises(ValueError, match=r"X has 9 rows.*holds 150 records.*153 at most.*forget"):
        model.learn(NEW_X, ids=NEW_IDS)
    assert snapshot(model) == before
    many = np.concatenate([X, NEW_X])
    with pytest.raises(ValueError, match="X has 159 rows; a model can hold 153 records at most"):
        model.fit(many)
    assert snapshot(model) == before
    for one in (model, twin):  # as many as there is room for
        one.learn(NEW_X[:3], ids=NEW_IDS[:3])
        one.forget(IDS[::7])
        one.learn(NEW_X[3:], ids=NEW_IDS[3:])
    assert snapshot(model) == snapshot(twin)
    monkeypatch.setattr(kmeans_module, "MOST_RECORDS", N - 1)
    with pytest.raises(ModelFileError, match=r"X has 150 rows.*149 records at most"):
        KMeans.load(path)


def test_nothing_before_fit(path):
    uses = [
        lambda m: m.forget([0]), lambda m: m.learn(X, ids=IDS), lambda m: m.predict(X),
        lambda m: m.transform(X), lambda m: m.score(X), lambda m: m.save(path),
        lambda m: m.cluster_centers_, lambda m: m.labels_, lambda m: m.inertia_, lambda m: m.ids_,
        lambda m: m.model_digest_,
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(NotFittedError):
            use(kmeans())
    assert not path.exists()


def test_a_change_that_is_cut_off_leaves_a_model_that_says_so(model, monkeypatch, path):
    def interrupted(*_):
        raise KeyboardInterrupt

    for verb in (lambda: model.forget(IDS[0]), lambda: model.learn(NEW_X, ids=NEW_IDS)):
        model.fit(X, ids=IDS)
        with monkeypatch.context() as patch:
            patch.setattr(OwnedKMeans, "_choose", interrupted)
            with pytest.raises(KeyboardInterrupt):
                verb()
        uses = [
            lambda: model.cluster_centers_, lambda: model.labels_, lambda: model.ids_,
            lambda: model.inertia_, lambda: model.predict(X), lambda: model.save(path),
            lambda: model.model_digest_,
            lambda: model.forget(IDS[1]), lambda: model.learn(NEW_X, ids=NEW_IDS),
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(CutOffError, match="fit it again, or load it"):
                use()
        assert not path.exists()
    assert model.fit(X, ids=IDS).ids_.tolist() == IDS.tolist()


# -- copies ----------------------------------------------------------------------------------------


def pickled(model):
    return pickle.loads(pickle.dumps(model))


COPIES = {"deepcopy": copy.deepcopy, "pickle": pickled, "twice": lambda m: pickled(pickled(m))}


@pytest.mark.parametrize("params", [{}, {"memory_limit": 0}])
@pytest.mark.parametrize("is_copy", [False, True])
def test_what_a_caller_does_to_attributes_does_not_reach_the_model(params, is_copy):
    model = kmeans(**params).fit(X, ids=IDS)
    if is_copy:
        model = copy.deepcopy(model)
    names = ("cluster_centers_", "cluster_sizes_", "labels_", "ids_")
    before = model.model_digest_, model.inertia_, [getattr(model, name).tolist() for name in names]
    for name in names:
        array = getattr(model, name)
        array[:] = array[0] * 0 if array.dtype.kind in "fi" else "x"
    after = model.model_digest_, model.inertia_, [getattr(model, name).tolist() for name in names]
    assert after == before


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("params", [{}, {"memory_limit": 0}, {"n_clusters": 20, "n_init": 5}])
def test_a_copy_forgets_for_itself(copied, params, snapshot):
    """Trajectories hold addresses: a copy must not write where the original's are."""
    model = kmeans(**params).fit(X, ids=IDS)
    model.forget(IDS[:3])
    before = snapshot(model)
    twin = copied(model)
    assert snapshot(twin) == before
    shared = {id(array) for _, array in arrays_of(model)} & {id(a) for _, a in arrays_of(twin)}
    assert not shared
    twin.forget(IDS[[5, 9, 30]])
    twin.forget(IDS[31])
    twin.learn(NEW_X, ids=NEW_IDS)
    assert snapshot(model) == before
    rest = np.setdiff1d(np.arange(3, N), [5, 9, 30, 31])
    expected = kmeans(**params)
    expected.fit(np.vstack([X[rest], NEW_X]), ids=np.concatenate([IDS[rest], NEW_IDS]))
    assert snapshot(twin) == snapshot(expected)
    model.forget(IDS[[5, 9, 30]])
    model.forget(IDS[31])
    model.learn(NEW_X, ids=NEW_IDS)
    assert snapshot(model) == snapshot(expected)


def test_a_copy_outlives_the_original(snapshot):
    model = kmeans().fit(X, ids=IDS)
    twin = copy.deepcopy(model)
    del model
    for _ in range(3):
        kmeans().fit(np.zeros((N, D)) + np.arange(N)[:, None])
    twin.forget(IDS[0])
    assert snapshot(twin) == snapshot(kmeans().fit(X[1:], ids=IDS[1:]))


@pytest.mark.parametrize("left", [0, 1, 3])
def test_copies_of_models_with_few_records(left, snapshot):
    model = kmeans(n_init=2).fit(X, ids=IDS)
    model.forget(IDS[left:])
    twin = pickled(model)
    assert snapshot(twin) == snapshot(model)
    for one in (model, twin):
        one.learn(X[left:], ids=IDS[left:])
    assert snapshot(twin) == snapshot(model)


def test_a_pickle_goes_to_another_process(tmp_path):
    model = kmeans().fit(X, ids=IDS)
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    program = (
        "import pickle, sys; model = pickle.load(open(sys.argv[1], 'rb'));"
        "print(model.forget(sys.argv[2]).removed, model.model_digest_)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.pickle"), IDS[0]],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", kmeans().fit(X[1:], ids=IDS[1:]).model_digest_]


def test_a_clone_is_not_fitted(model):
    other = clone(model)
    assert other.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        other.predict(X)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"tol": 0.0, "n_init": 3}, {"memory_limit": "1 MiB"}, {"seeding": "plain"}]
)
@pytest.mark.parametrize("left", [N, N - 5, K, 2, 0])
def test_a_loaded_model_goes_on_as_the_original(left, params, path, snapshot):
    model = kmeans(**params).fit(X, ids=IDS)
    if left < N:
        model.forget(IDS[left:])
    model.save(path)
    loaded = KMeans.load(path)
    assert snapshot(loaded) == snapshot(model)
    assert loaded.model_digest_ == model.model_digest_
    for one in (model, loaded):
        one.learn(NEW_X, ids=NEW_IDS)
        one.forget(NEW_IDS[:2])
    assert snapshot(loaded) == snapshot(model)


@pytest.mark.parametrize(
    "limit", ["2 GiB", "1.5MiB", np.str_("1 TiB"), 0, 10**6, np.int64(10**6)], ids=repr
)
def test_a_loaded_model_has_the_parameters_that_were_given(limit, path):
    params = {"n_init": 2, "memory_limit": limit, "n_jobs": None, "tol": 0.01, "random_state": 4}
    model = KMeans(K, **params).fit(X)
    model.save(path)
    assert KMeans.load(path).get_params() == model.get_params()
    model.set_params(memory_limit="1 KiB")  # in force from the next fit on
    model.save(path)
    assert KMeans.load(path).memory_limit == limit


PLAIN_DIGEST = "9a00d7eeca09afd4104138367246f7e9eb272dd84bf2aae1301eb3cb38b92612"
"""Of the model below, as it was before seeds could be drawn greedily."""


def test_plain_seeding_is_what_it_was():
    assert kmeans(n_init=2, seeding="plain").fit(X, ids=IDS).model_digest_ == PLAIN_DIGEST


def test_files_from_before_there_was_a_choice_are_plain(path, snapshot):
    model = kmeans(n_init=2, seeding="plain").fit(X, ids=IDS)
    model.save(path)
    header, arrays = files.read(path, "KMeans")
    assert header["parameters"].pop("seeding") == "plain"
    del header["format"]
    files.write(path, header, arrays)
    loaded = KMeans.load(path)
    assert loaded.seeding == "plain"
    assert snapshot(loaded) == snapshot(model)


def test_the_digest_tells_how_seeds_were_drawn():
    """Even of a model that is the same otherwise."""
    one, other = (kmeans(n_clusters=1, seeding=seeding).fit(X) for seeding in ("greedy", "plain"))
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert one.model_digest_ != other.model_digest_


def test_the_digest_tells_to_which_steps_values_were_rounded():
    """Even where centres and sizes are the same."""
    points = np.array([[100.0, 0.5], [100.0, -0.5]])
    one, other = (KMeans(1, random_state=0).fit(points * scale) for scale in ([1, 1], [1, 3]))
    assert one.cluster_centers_.tolist() == other.cluster_centers_.tolist() == [[100.0, 0.0]]
    assert one._model.records.rounding != other._model.records.rounding
    assert one.model_digest_ != other.model_digest_


def test_the_digest_is_that_of_the_model_and_of_no_other(model, path):
    """The same for all that should be the same model, and another one for any other."""
    digest = model.model_digest_
    assert re.fullmatch("[0-9a-f]{64}", digest)
    model.save(path)
    for same in (KMeans.load(path), copy.deepcopy(model), pickled(model), fresh(np.arange(N))):
        assert same.model_digest_ == digest
    assert clone(model).fit(X[::-1], ids=IDS[::-1]).model_digest_ == digest
    model.forget(IDS[[3, 8]])
    rest = np.setdiff1d(np.arange(N), [3, 8])
    assert model.model_digest_ == fresh(rest).model_digest_ != digest
    model.learn(X[[3, 8]], ids=IDS[[3, 8]])
    assert model.model_digest_ == digest
    others = [fresh(np.arange(N), **other) for other in ({"n_clusters": 5}, {"max_iter": 1})]
    assert len({digest, *(other.model_digest_ for other in others)}) == 3


def test_nobody_waits_for_a_digest_that_nobody_reads(model, monkeypatch):
    def refuse(*_):
        raise AssertionError("a digest was computed")

    monkeypatch.setattr(KMeans, "_digest_of", refuse)
    model.forget(IDS[:2])
    model.learn(NEW_X, ids=NEW_IDS)
    model.fit(X)
    with pytest.raises(AssertionError, match="was computed"):
        _ = model.model_digest_


def test_greedy_seeding_misses_fewer_clusters():
    """Far apart clusters, of which one start of plain seeding misses some."""
    rng = np.random.default_rng(3)
    apart = 40.0 * rng.normal(size=(20, 3)).repeat(30, axis=0) + rng.normal(size=(600, 3))
    losses = {
        seeding: np.mean([KMeans(20, seeding=seeding, random_state=s).fit(apart).inertia_
                          for s in range(30)])
        for seeding in ("greedy", "plain")
    }  # fmt: skip
    theirs = [
        sklearn.cluster.KMeans(20, n_init=1, random_state=s).fit(apart).inertia_ for s in range(30)
    ]
    assert losses["plain"] > 1.2 * losses["greedy"]
    assert losses["greedy"] < 1.1 * np.mean(theirs)


def test_the_file_holds_nothing_of_the_forgotten(path):
    model, untouched = kmeans().fit(X, ids=IDS), kmeans().fit(X, ids=IDS)
    model.learn(NEW_X * 100, ids=NEW_IDS)
    model.forget(NEW_IDS)
    model.save(path)
    after = path.read_bytes()
    untouched.save(path)
    with np.load(path) as one:
        path.with_name("other.npz").write_bytes(after)
        with np.load(path.with_name("other.npz")) as other:
            assert one.files == other.files
            for name in one.files:
                assert one[name].tobytes() == other[name].tobytes()


def test_damaged_files(model, path, snapshot):
    model.save(path)
    content = path.read_bytes()
    found = 0
    for position in range(0, len(content), len(content) // 60):
        damaged = bytearray(content)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            loaded = KMeans.load(path)
        except ModelFileError:
            found += 1
        else:
            assert snapshot(loaded) == snapshot(model)
    assert found > 40
    for length in (0, 4, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            KMeans.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0),
        ("n_clusters", "4"),
        ("memory_limit", "much"),
        ("memory_limit", -1),
        ("tol", -1.0),
        ("n_jobs", 0),
        ("seeding", "other"),
        ("seeding", "plain"),
        ("more", 1),
        ("n_clusters", 5),
    ],
)
def test_forged_parameters(name, value, model, path):
    """Sealed again by whoever changed them; those that change the model do not reproduce it."""
    model.save(path)
    header, arrays = files.read(path, "KMeans")
    header["parameters"][name] = value
    del header["format"]
    files.write(path, header, arrays)
    with pytest.raises(ModelFileError):
        KMeans.load(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.1e100])
def test_forged_values(value, model, path):
    model.save(path)
    header, arrays = files.read(path, "KMeans")
    arrays["values"][3, 1] = value
    del header["format"]
    files.write(path, header, arrays)
    with pytest.raises(ModelFileError):
        KMeans.load(path)


@pytest.mark.parametrize(
    "forge",
    [
        lambda arrays: arrays.update(values=arrays["values"][:, :2]),
        lambda arrays: arrays.update(values=arrays["values"].ravel()),
        lambda arrays: arrays.update(values=arrays["values"].astype(np.float32)),
        lambda arrays: arrays.update(values=np.asfortranarray(arrays["values"])),
        lambda arrays: arrays.update(values=arrays["values"].astype(int)),
        lambda arrays: arrays.update(values=arrays["values"].astype(str)),
        lambda arrays: arrays.update(values=arrays["values"].astype(complex)),
        lambda arrays: arrays.update(ids=arrays["ids"][:-1]),
        lambda arrays: arrays.update(ids=np.repeat(arrays["ids"][:1], N)),
        lambda arrays: arrays.update(ids=np.arange(N) * 1.5),
        lambda arrays: arrays.pop("ids"),
        lambda arrays: arrays.pop("values"),
    ],
)
def test_forged_arrays(forge, model, path, snapshot):
    model.save(path)
    header, arrays = files.read(path, "KMeans")
    forge(arrays)
    del header["format"]
    files.write(path, header, arrays)
    try:
        loaded = KMeans.load(path)
    except ModelFileError:
        return
    assert snapshot(loaded) == snapshot(model)


@pytest.mark.parametrize("other", [SeededKMeans, FederatedKMeans])
def test_files_of_other_estimators(other, model, path):
    model.save(path)
    with pytest.raises(ModelFileError, match="KMeans"):
        other.load(path)
    with np.load(path) as archive:
        assert json.loads(archive["header"].tobytes())["estimator"] == "KMeans"


# -- what is left in memory ------------------------------------------------------------------------


def forms_of(model, rows):
    """Every form that a record's values take: raw, rounded, in steps, and from the origin.

    One array of forms per record and feature.
    """
    records = model._model.records
    coordinates = records.rounding.coordinates(rows)
    steps = coordinates / records.rounding.units
    forms = [rows, records.rounding.round(rows), coordinates, coordinates - records.points.base]
    forms += [steps, steps - records.points.origin, -2.0 * forms[3]]
    return np.stack(forms, axis=-1)


def left_of(model, forms):
    """Arrays in which two or more features of a record occur; one may be a coincidence."""
    left = set()
    for record in forms:
        found = [set(where_found(model, feature)) for feature in record]
        left |= {path for path in set().union(*found) if sum(path in one for one in found) > 1}
    return sorted(left)


@pytest.mark.parametrize(
    "params",
    [{}, {"n_init": 3}, {"memory_limit": 0}, {"tol": 0.0}, {"n_init": 3, "n_jobs": 2}],
    ids=str,
)
@pytest.mark.parametrize("kept", ["margins", "estimates"])
def test_a_forgotten_record_leaves_nothing_in_memory(params, kept, monkeypatch):
    """Not where records are, not in trajectories, not in the working memory of any thread."""
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 0)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(220, 3)) * [1.0, 100.0, 1e-3] + 3.0
    with rows_keep(kept):
        model = kmeans(n_clusters=6, **params).fit(values)
        for turn in range(6):
            replay = model._model.replayed
            slots = replay.in_use() if replay.absent else replay.runs.seeds["slot"].ravel()
            smallest = int(np.argmin(model.cluster_sizes_))
            gone = {
                0: model._model.records.ids[rng.choice(slots)],  # a seed
                1: model.ids_[model.labels_ == smallest],  # a cluster
                2: rng.choice(model.ids_, 4, replace=False),
            }[turn % 3]
            forms = forms_of(model, values[np.atleast_1d(gone)])
            assert left_of(model, forms)
            model.forget(gone)
            assert left_of(model, forms) == []


def test_nothing_is_left_when_all_is_computed_anew():
    """A record that determined a step, more than half of the records, and growth."""
    values = np.random.default_rng(0).random((100, 3))
    values[0] = [50.37, 60.81, 70.19]
    model = kmeans().fit(values)
    for gone in (np.array([0]), np.arange(1, 70)):
        forms = forms_of(model, values[gone])
        model.forget(gone)
        assert left_of(model, forms) == []
    new = np.random.default_rng(1).random((400, 3))
    model.learn(new, ids=np.arange(1000, 1400))
    forms = forms_of(model, new[:3])
    model.forget([1000, 1001, 1002])
    assert left_of(model, forms) == []


def test_ids_and_keys_of_the_forgotten_go_too():
    ids = 10**12 + np.random.default_rng(0).permutation(10**6)[:N]
    model = kmeans().fit(X, ids=ids)
    records = model._model.records
    keys = [records.points.keys[records.ids == one].astype(float).ravel() for one in ids[:5]]
    assert where_found(model, ids[:1].astype(float))
    model.forget(ids[:5])
    for one, key in zip(ids[:5], keys, strict=True):
        assert where_found(model, np.array([one], dtype=float)) == []
        assert len(key) == 2
    words = {int(word) for key in keys for word in key}
    for path, array in arrays_of(model):
        if array.dtype == np.uint64:
            assert not words & {int(word) for word in array.astype(float).ravel()}, path
