"""The range of values: up to 1e100 in magnitude everything works, beyond it nothing is taken."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from fedforget import FederatedKMeans, ModelFileError, SeededKMeans
from fedforget.estimators import files

LIMIT = 1e100
BEYOND = np.nextafter(LIMIT, np.inf)


def seeded(X, k=1, ids=None):
    return SeededKMeans(k, random_state=0).fit(X, ids=ids)


@pytest.mark.parametrize(
    "values", [[1e100, 1.5e100], [BEYOND, BEYOND], [0.0, -BEYOND], [BEYOND, 0.9 * LIMIT], [1e300]]
)
def test_what_is_beyond_is_refused_in_any_order(values):
    for order in itertools.permutations(values):
        X = np.array(order)[:, np.newaxis]
        with pytest.raises(ValueError, match=r"is beyond 1e\+100 in magnitude"):
            seeded(X)
        model = seeded(np.zeros((2, 1)))
        with pytest.raises(ValueError, match=r"is beyond 1e\+100 in magnitude"):
            model.learn(X, ids=np.arange(len(X)) + 10)
        assert model.ids_.tolist() == [0, 1]


@pytest.mark.parametrize("position", range(5))
def test_the_value_beyond_is_named(position):
    X = np.zeros((5, 20))
    X[position, 7] = -2e100
    with pytest.raises(ValueError, match=rf"X\[{position}, 7\] = -2e\+100"):
        seeded(X, 3)


def test_wide_rows_within_the_limit_are_taken_and_kept(tmp_path):
    X = np.zeros((3, 1000))
    X[0] = 9e99
    model = seeded(X, 2)
    assert model.inertia_ == 0.0
    later = seeded(X[1:], 1, ids=[1, 2])
    later.learn(X[:1], ids=[0])
    for one in (model, later):
        one.save(tmp_path / "m.npz")
        again = SeededKMeans.load(tmp_path / "m.npz")
        assert again.cluster_centers_.tobytes() == one.cluster_centers_.tobytes()
        one.forget(0)
        one.save(tmp_path / "m.npz")
        assert SeededKMeans.load(tmp_path / "m.npz").ids_.tolist() == [1, 2]


def test_a_file_with_a_value_beyond_is_refused(tmp_path):
    model = seeded(np.array([[0.0], [1.0], [2.0]]), 2)
    model.save(tmp_path / "m.npz")
    header, arrays = files.read(tmp_path / "m.npz", "SeededKMeans")
    arrays["values"][1] = BEYOND
    del header["format"]
    files.write(tmp_path / "m.npz", header, arrays)
    with pytest.raises(ModelFileError, match=r"beyond 1e\+100 in magnitude"):
        SeededKMeans.load(tmp_path / "m.npz")


EXTREMES = st.sampled_from(
    [LIMIT, -LIMIT, LIMIT / 4, LIMIT / 4 * (1 + 2**-52), 1e99, 1.0, 0.0, -0.0, 1e-300, 5e-324]
)


@settings(max_examples=150)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@given(
    data=st.lists(st.tuples(EXTREMES, EXTREMES), min_size=5, max_size=12),
    d=st.sampled_from([1, 2, 5, 17, 900]),
    k=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_everything_within_works_and_leaves_no_history(data, d, k, seed):
    """Fits, removals and additions at the edge of the range: finite, and those of a fresh fit."""
    rng = np.random.default_rng(seed)
    X = np.array(data)[:, rng.integers(0, 2, d)]
    n = len(X)
    model = SeededKMeans(k, random_state=seed).fit(X)
    assert np.isfinite(model.inertia_)
    assert np.isfinite(model._owner.clusters.scores).all()
    assert (model._owner.clusters.scores >= 2.0**-1022).all()
    assert model.predict(X).tolist() == model.labels_.tolist()
    assert np.isfinite(model.transform(X)).all()
    gone = rng.permutation(n)[: n - max(k, 1)]
    model.forget(gone)
    kept = np.setdiff1d(np.arange(n), gone)
    assert_same(model, SeededKMeans(k, random_state=seed).fit(X[kept], ids=kept))
    model.learn(X[gone], ids=gone)
    assert_same(model, SeededKMeans(k, random_state=seed).fit(X))


def assert_same(model, fresh):
    for name in ("cluster_centers_", "cluster_sizes_", "seed_ids_"):
        assert getattr(model, name).tobytes() == getattr(fresh, name).tobytes()
    assert model.inertia_ == fresh.inertia_
    assert model.n_iter_ == fresh.n_iter_


KINDS = {
    "limit": ([-LIMIT, LIMIT, 0.0, LIMIT / 3], (-LIMIT, LIMIT)),
    "small beside the limit": ([1.0, 5e-324, -1e-300, 0.0, -LIMIT, 2.0**300], (-LIMIT, LIMIT)),
    "tiny": ([1e-300, -1e-300, 0.0, -0.0, 5e-324, -3e-301], (-1e-300, 1e-300)),
    "constant": ([LIMIT / 7], (-LIMIT, LIMIT)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["none", "box"])
@pytest.mark.parametrize("aggregation", ["plain", "centroids"])
@pytest.mark.parametrize("representatives", ["means", "seeds", "lloyd"])
def test_a_federation_works_up_to_the_limit(kind, scale, aggregation, representatives, rng):
    values, bounds = KINDS[kind]
    X = rng.choice(values, (60, 40))
    X[:, 3] = values[0]  # one feature is constant
    X[:, 4] = np.linspace(*(np.array(bounds) / 2), 60)  # and one is different everywhere
    clients = np.arange(60) % 3
    options = {
        "bounds": bounds, "step": 0.1, "scale": scale, "aggregation": aggregation,
        "representatives": representatives, "random_state": 0,
    }  # fmt: skip

    def fitted(rows):
        one = FederatedKMeans(4, **options)
        return one.fit(X[rows], clients=clients[rows], ids=rows)

    def assert_equal(one, other):
        assert one.model_digest_ == other.model_digest_
        assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
        assert [one.inertia_, one.induced_inertia_] == [other.inertia_, other.induced_inertia_]
        assert one.induced_labels_.tolist() == other.induced_labels_.tolist()
        assert one.seed_ids_.keys() == other.seed_ids_.keys()
        for client, seeds in one.seed_ids_.items():
            assert seeds.tolist() == other.seed_ids_[client].tolist()

    model = fitted(np.arange(60))
    low, high = bounds
    assert ((low <= model.cluster_centers_) & (model.cluster_centers_ <= high)).all()
    # Squares of such values as they are vanish, and a client draws one seed; K-means of a client
    # sees fractions of the box.
    is_lost = kind == "tiny" and scale == "none" and representatives != "lloyd"
    assert len(model.cluster_centers_) == (3 if is_lost else 4)
    assert np.isfinite([model.inertia_, model.induced_inertia_]).all()
    for first in (1, 20, 55):
        model.forget(model.ids_[model.ids_ < first])
        assert_equal(model, fitted(np.arange(first, 60)))
    model.learn(X[:55], clients=clients[:55], ids=np.arange(55))
    assert model.model_digest_ == fitted(np.arange(60)).model_digest_
    with pytest.raises(ValueError, match=r"beyond 1e\+100"):
        model.learn(np.full((1, 40), BEYOND), clients=[0], ids=[999])


@pytest.mark.parametrize("representatives", ["means", "seeds", "lloyd"])
def test_a_federation_whose_records_are_all_equal(representatives):
    """One centre, though many more are asked for; bounds may leave no room in a feature."""
    X = np.tile([LIMIT, -5e-324, 0.25], (30, 1))
    options = {
        "bounds": [(-LIMIT, LIMIT), (-1e-300, 1e-300), (0.25, 0.25)], "step": 0.01,
        "scale": "box", "representatives": representatives, "random_state": 0,
    }  # fmt: skip
    model = FederatedKMeans(4, **options).fit(X, clients=np.arange(30) % 3)
    assert model.cluster_centers_.tolist() == [[LIMIT, 0.0, 0.25]]
    model.forget(np.arange(29))
    fresh = FederatedKMeans(1, **options).fit(X[29:], clients=[2], ids=[29])
    assert model.cluster_centers_.tobytes() == fresh.cluster_centers_.tobytes()


def test_seeds_are_counted_as_iterations(rng):
    X = rng.random((30, 2))
    model = seeded(X, 5)
    assert model.n_iter_ == 5 == len(model.cluster_centers_)
    model.forget(np.arange(28))
    assert model.n_iter_ == 2


def test_fit_warns_of_too_few_distinct_rows():
    X = np.repeat([[0.25], [0.75]], 4, axis=0)
    with pytest.warns(ConvergenceWarning, match="only 2 of n_clusters=3 seeds") as said:
        model = SeededKMeans(3, random_state=0).fit(X)
    assert [one.filename for one in said] == [__file__]
    assert model.n_iter_ == 2


def test_only_fit_warns(tmp_path):
    """A model may shrink; that is no news about the data that were given."""
    X = np.arange(6.0)[:, np.newaxis]
    model = seeded(X, 3)
    model.forget([0, 1, 2, 3])
    model.save(tmp_path / "m.npz")
    model.learn([[4.0]], ids=[9])
    assert SeededKMeans.load(tmp_path / "m.npz").n_iter_ == 2
