"""What the estimators promise: scikit-learn's conventions, attributes, exact forgetting."""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedforget import CutOffError, DataTraceWarning, FederatedKMeans, KMeans, SeededKMeans
from fedforget.clustering.partition import SeededPartition
from fedforget.clustering.replay import ReplayingServer
from fedforget.runtime.sums import PlainSum

N, D = 60, 3
_rng = np.random.default_rng(2023)
X = np.concatenate([_rng.normal(centre, 0.07, (N // 3, D)) for centre in (0.25, 0.5, 0.75)])
X = X.clip(0, 1)[_rng.permutation(N)]
IDS = np.array([f"p-{i:03}" for i in _rng.permutation(N)])
WARDS = np.array(["east", "north", "south", "west"])[_rng.choice(4, N, p=[0.4, 0.3, 0.2, 0.1])]
NEW_X, NEW_IDS = _rng.random((9, D)), np.array([f"q-{i}" for i in range(9)])
NEW_WARDS = np.array(["east", "annex", "west"] * 3)
PUBLIC = {"n_clusters": 3, "bounds": (0.0, 1.0), "step": 1 / 32, "n_init": 3, "random_state": 4}
LOCAL = {"east": 7, "north": 1, "south": 3, "west": 40, "annex": 2}

EXACT = {
    "default": {},
    "seeds": {"representatives": "seeds"},
    "lloyd": {"representatives": "lloyd"},
    "lloyd, local dict": {"representatives": "lloyd", "local_clusters": LOCAL},
    "lloyd, one iteration": {"representatives": "lloyd", "max_iter": 1},
    "lloyd, tolerant": {"representatives": "lloyd", "tol": 0.05},
    "lloyd, wide box": {"representatives": "lloyd", "bounds": (-1e6, 1), "step": 2**-24},
    "shifted": {"shift": True},
    "box": {"scale": "box", "bounds": [(0, 1), (-1, 2), (0, 4)]},
    "box shifted seeds": {
        "scale": "box",
        "bounds": [(0, 1), (-1, 2), (0, 4)],
        "shift": True,
        "representatives": "seeds",
    },
    "box shifted lloyd": {
        "scale": "box",
        "bounds": [(0, 1), (-1, 2), (0, 4)],
        "shift": True,
        "representatives": "lloyd",
    },
    "one bin or three": {"bounds": [(0, 1), (-1, 2), (0, 1)], "step": 1.0},
    "clipped": {"clip": True, "bounds": (0.3, 0.7)},
    "centroids": {"aggregation": "centroids"},
    "centroids of seeds": {"aggregation": "centroids", "representatives": "seeds"},
    "centroids of lloyd": {"aggregation": "centroids", "representatives": "lloyd"},
    "uniform": {"server_points": "uniform"},
    "uniform shifted": {"server_points": "uniform", "shift": True},
    "local int": {"local_clusters": 8},
    "local more than records": {"local_clusters": 1000},
    "local dict": {"local_clusters": LOCAL},
    "one restart": {"n_init": 1, "max_iter": 1},
    "tolerant": {"tol": 0.05},
    "one cluster": {"n_clusters": 1},
    "many clusters": {"n_clusters": 30},
    "coarse": {"step": 1 / 2},
    "fine": {"step": 2**-20},
}
over_exact = pytest.mark.parametrize("params", EXACT.values(), ids=EXACT)


def federated(**params):
    return FederatedKMeans(**{**PUBLIC, **params})


def fit(order=None, **params):
    order = np.arange(N) if order is None else order
    return federated(**params).fit(X[order], clients=WARDS[order], ids=IDS[order])


def everything(*parts):
    """The records, clients and ids of several (X, clients, ids), shuffled."""
    values, clients, ids = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.random.default_rng(8).permutation(len(ids))
    return values[order], clients[order], ids[order]


ALL, NEW = (X, WARDS, IDS), (NEW_X, NEW_WARDS, NEW_IDS)


def kept(mask, part=ALL):
    return tuple(column[mask] for column in part)


# scikit-learn's own checks


@pytest.mark.filterwarnings("ignore::fedforget.DataTraceWarning")
@parametrize_with_checks(
    [
        FederatedKMeans(),
        SeededKMeans(),
        KMeans(),
        KMeans(n_init=3, tol=0.0),
        KMeans(seeding="plain"),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::fedforget.DataTraceWarning")
@parametrize_with_checks(
    [
        FederatedKMeans(mode="paper", shift=True, n_init=1),
        FederatedKMeans(aggregation="centroids", scale="box", n_init=1),
        FederatedKMeans(server_points="uniform", local_clusters=5, clip=True, n_init=1),
    ]
)
def test_scikit_learn_with_other_parameters(estimator, check):
    check(estimator)


# Attributes


@over_exact
def test_attributes(params):
    model = fit(**params)
    assert model.ids_.tolist() == IDS.tolist()
    assert model.clients_.tolist() == WARDS.tolist()
    per_record = (model.labels_, model.induced_labels_, model.ids_, model.clients_)
    assert all(isinstance(one, np.ndarray) and one.shape == (N,) for one in per_record)
    k = len(model.cluster_centers_)
    assert 1 <= k <= model.n_clusters
    assert model.cluster_centers_.shape == (k, D)
    assert model.cluster_centers_.dtype == np.float64
    assert set(model.labels_) | set(model.induced_labels_) <= set(range(k))
    assert model.bounds_.shape == (D, 2)
    assert model.step_ == params.get("step", PUBLIC["step"])
    assert isinstance(model.inertia_, float)
    assert isinstance(model.induced_inertia_, float)
    assert 0 < model.inertia_ <= model.induced_inertia_
    assert 1 <= model.n_iter_ <= model.max_iter
    assert isinstance(model.model_digest_, str)
    assert model.n_features_in_ == D


def test_left_out_clients_and_ids():
    model = federated().fit(X)
    assert model.ids_.tolist() == list(range(N))
    assert len(set(model.clients_.tolist())) == 1
    named = federated().fit(X, clients=model.clients_, ids=np.arange(N))
    assert named.model_digest_ == model.model_digest_
    assert SeededKMeans(3, random_state=0).fit(X).ids_.tolist() == list(range(N))


def test_the_order_of_records():
    model = fit()
    gone = np.isin(np.arange(N), [0, 7, 8, 31, N - 1])
    model.forget(IDS[gone][::-1])
    assert model.ids_.tolist() == IDS[~gone].tolist()
    assert model.clients_.tolist() == WARDS[~gone].tolist()
    assert model.labels_.tolist() == model.predict(X[~gone]).tolist()
    model.learn(NEW_X, clients=NEW_WARDS, ids=NEW_IDS)
    assert model.ids_.tolist() == [*IDS[~gone], *NEW_IDS]
    assert model.clients_.tolist() == [*WARDS[~gone], *NEW_WARDS]
    assert model.labels_.tolist() == model.predict(np.vstack([X[~gone], NEW_X])).tolist()
    model.forget_clients(["north"])
    stay = [*(WARDS[~gone] != "north"), *(NEW_WARDS != "north")]
    assert model.ids_.tolist() == np.array([*IDS[~gone], *NEW_IDS])[stay].tolist()
    assert "north" not in model.clients_


def test_a_client_that_leaves_leaves_nothing_in_memory():
    model = fit()
    table = model._federation.clients["north"].owner.records
    columns = list(table._columns.values())
    assert all(column.any() for column in columns)
    model.forget_clients(["north"])
    assert not any(column.any() for column in columns)


@pytest.mark.parametrize("aggregation", ["plain", "scma", "secure", "centroids"])
def test_a_copy_forgets_for_itself(aggregation):
    """And what happens to it does not show in the original."""
    model = fit(aggregation=aggregation)
    digest, held = model.model_digest_, model.ids_.tolist()
    twin = copy.deepcopy(model)
    twin.forget(IDS[:3])
    fresh = fit(np.arange(3, N), aggregation=aggregation)
    assert twin.model_digest_ == fresh.model_digest_ != digest
    assert (model.model_digest_, model.ids_.tolist()) == (digest, held)
    model.forget(IDS[:3])
    assert model.model_digest_ == fresh.model_digest_


def interrupted(*_):
    raise KeyboardInterrupt


INTERRUPTIONS = {
    "the client": (SeededPartition, "forget"),
    "the sum": (PlainSum, "__call__"),
    "the server": (ReplayingServer, "update"),
}


@pytest.mark.parametrize("place", INTERRUPTIONS)
def test_a_change_that_is_cut_off_leaves_a_model_that_says_so(place, monkeypatch, tmp_path):
    model = fit()
    model.save(tmp_path / "model.npz")

    with monkeypatch.context() as patch:
        patch.setattr(*INTERRUPTIONS[place], interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.forget(IDS[0])
    uses = [
        lambda: model.cluster_centers_, lambda: model.labels_, lambda: model.ids_,
        lambda: model.predict(X), lambda: model.forget(IDS[1]), lambda: model.model_digest_,
        lambda: model.learn(NEW_X, clients=NEW_WARDS, ids=NEW_IDS),
        lambda: model.save(tmp_path / "torn.npz"),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(CutOffError, match="fit it again, or load it"):
            use()
    assert not (tmp_path / "torn.npz").exists()
    again = FederatedKMeans.load(tmp_path / "model.npz")
    again.forget(IDS[0])
    assert again.model_digest_ == model.fit(X[1:], clients=WARDS[1:], ids=IDS[1:]).model_digest_


def test_a_change_of_one_owner_that_is_cut_off(monkeypatch):
    model = SeededKMeans(3, random_state=0).fit(X, ids=IDS)

    with monkeypatch.context() as patch:
        patch.setattr(SeededPartition, "forget", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.forget(IDS[0])
    for use in (lambda: model.ids_, lambda: model.forget(IDS[0]), lambda: model.predict(X)):
        with pytest.raises(CutOffError):
            use()
    assert model.fit(X, ids=IDS).ids_.tolist() == list(IDS)


def test_the_order_of_records_of_one_owner():
    model = SeededKMeans(3, random_state=0).fit(X, ids=IDS)
    model.forget(IDS[[40, 2, 3]])
    model.learn(NEW_X, ids=NEW_IDS)
    rows = np.vstack([np.delete(X, [2, 3, 40], axis=0), NEW_X])
    assert model.ids_.tolist() == [*np.delete(IDS, [2, 3, 40]), *NEW_IDS]
    assert model.labels_.tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize("estimator", [federated(), SeededKMeans(4, random_state=1)], ids=str)
def test_labels_are_nearest_centres(estimator):
    model = clone(estimator).fit(X)
    centres = [[Fraction(v) for v in centre] for centre in model.cluster_centers_.tolist()]
    for row, label in zip(X.tolist(), model.labels_, strict=True):
        squares = [
            sum((Fraction(v) - c) ** 2 for v, c in zip(row, centre, strict=True))
            for centre in centres
        ]
        assert label == squares.index(min(squares))
    assert model.fit_predict(X).tolist() == model.labels_.tolist()


def test_losses_are_correctly_rounded():
    points = np.array([[0.0, 0.25], [0.25, 0.5], [0.5, 1.0], [1.0, 0.0]])
    model = federated(n_clusters=1, local_clusters=4).fit(points)
    assert model.cluster_centers_.tolist() == [[0.4375, 0.4375]]
    assert model.inertia_ == model.induced_inertia_ == ((points - 0.4375) ** 2).sum()
    assert model.score(points) == -model.inertia_

    seeded = SeededKMeans(3, random_state=0).fit(X[:, :1])
    squares = (X[:, 0] - seeded.cluster_centers_[seeded.labels_, 0]) ** 2
    assert seeded.inertia_ == math.fsum(squares)


def test_box_measures_losses_in_the_unit_cube_and_centres_in_units():
    points = np.array([[0.0, 8.0], [4.0, 12.0], [4.0, 8.0], [0.0, 12.0]])
    box = [(0, 4), (0, 16)]
    model = federated(n_clusters=1, local_clusters=4, bounds=box, scale="box").fit(points)
    assert model.cluster_centers_.tolist() == [[2.0, 10.0]]
    assert model.inertia_ == 4 * (1 / 4 + 1 / 64)
    assert model.transform([[4.0, 10.0], [2.0, 26.0]]).tolist() == [[0.5], [1.0]]
    assert model.score([[4.0, 10.0]]) == -0.25
    plain = federated(n_clusters=1, local_clusters=4, bounds=box).fit(points)
    assert plain.cluster_centers_.tolist() == [[2.0, 10.0]]
    assert plain.inertia_ == 4 * (4 + 4)
    assert plain.transform([[4.0, 10.0]]).tolist() == [[2.0]]


# The grid, seen through one record


@pytest.mark.parametrize(
    ("value", "params", "centre"),
    [
        (0.3, {}, 0.25),
        (0.3125, {}, 0.25),
        (0.0625, {}, 0.0),
        (0.07, {}, 0.125),
        (1.0, {}, 1.0),
        (0.0, {}, 0.0),
        (1.3, {"bounds": (1, 2)}, 1.25),
        (1.3, {"bounds": (0, 4)}, 1.5),
        (3.0, {"bounds": (3, 3)}, 3.0),
        (0.3125, {"aggregation": "centroids"}, 0.3125),
        (7.0, {"clip": True}, 1.0),
        (-7.0, {"clip": True}, 0.0),
    ],
)
@pytest.mark.parametrize("representatives", ["seeds", "means", "lloyd"])
def test_bins(value, params, centre, representatives):
    params = {"n_clusters": 1, "step": 1 / 8, "representatives": representatives, **params}
    assert federated(**params).fit([[value]]).cluster_centers_.tolist() == [[centre]]


def test_one_common_step_or_one_a_feature():
    box = [(0, 8), (0, 1)]
    common = federated(n_clusters=1, step=1 / 8, bounds=box).fit([[3.2, 0.3]])
    own = federated(n_clusters=1, step=1 / 8, bounds=box, scale="box").fit([[3.2, 0.3]])
    assert common.cluster_centers_.tolist() == [[3.0, 0.0]]
    assert own.cluster_centers_.tolist() == [[3.0, 0.25]]


def test_a_shift_moves_the_grid_by_part_of_a_step():
    points = np.arange(1, 8)[:, None] / 8
    still, moved, again = (
        federated(n_clusters=7, local_clusters=7, step=1 / 8, shift=shift).fit(points)
        for shift in (False, True, True)
    )
    assert sorted(still.cluster_centers_.ravel()) == points.ravel().tolist()
    offsets = np.sort(moved.cluster_centers_.ravel()) - points.ravel()
    assert 0 < np.abs(offsets).max() <= 1 / 16 + 2**-50
    assert np.ptp(offsets) < 2**-50
    assert again.model_digest_ == moved.model_digest_
    other = federated(n_clusters=7, local_clusters=7, step=1 / 8, shift=True, random_state=5)
    assert other.fit(points).cluster_centers_.tobytes() != moved.cluster_centers_.tobytes()


def test_clip_gives_the_model_of_clipped_records(snapshot):
    wide = X * 3 - 1
    untouched = wide.copy()
    model = federated(clip=True).fit(wide, clients=WARDS, ids=IDS)
    moved = federated(clip=True).fit(wide.clip(0, 1), clients=WARDS, ids=IDS)
    assert model.model_digest_ == moved.model_digest_
    assert model.cluster_centers_.tobytes() == moved.cluster_centers_.tobytes()
    assert (model.cluster_centers_ >= 0).all()
    assert (model.cluster_centers_ <= 1).all()
    assert wide.tobytes() == untouched.tobytes()


@pytest.mark.parametrize("scale", ["none", "box"])
def test_a_feature_with_one_level(scale):
    flat = np.column_stack([X[:, 0], np.full(N, 3.0)])
    model = federated(bounds=[(0, 1), (3, 3)], scale=scale).fit(flat)
    assert set(model.cluster_centers_[:, 1]) == {3.0}
    alone = federated(bounds=(0, 1), scale=scale).fit(X[:, :1])
    assert model.seed_ids_[0].tolist() == alone.seed_ids_[0].tolist()


def test_uniform_points_lie_in_their_bins():
    model = federated(n_clusters=1, step=1 / 8, server_points="uniform").fit([[0.5]] * 50)
    assert 0 < abs(model.cluster_centers_[0, 0] - 0.5) < 1 / 16
    weighted = federated(n_clusters=1, step=1 / 8).fit([[0.5]] * 50)
    assert weighted.cluster_centers_.tolist() == [[0.5]]


# What is inferred


@pytest.mark.parametrize(
    ("given", "inferred"),
    [({"bounds": (0, 1)}, ["step"]), ({"step": 0.1}, ["bounds"]), ({}, ["bounds", "step"])],
)
@pytest.mark.parametrize("params", [{}, {"shift": True}, {"scale": "box"}], ids=str)
def test_inferred_configuration_warns_and_can_be_passed_on(snapshot, given, inferred, params):
    params = {"random_state": 3, "n_clusters": 3, **params}
    with pytest.warns(DataTraceWarning) as warned:
        model = FederatedKMeans(**given, **params).fit(X, clients=WARDS, ids=IDS)
    said = " ".join(str(one.message) for one in warned)
    assert all(name in said for name in inferred)
    public = {"bounds": model.bounds_, "step": model.step_}
    fresh = FederatedKMeans(**public, **params).fit(X, clients=WARDS, ids=IDS)
    assert snapshot(fresh) == snapshot(model)

    extremes = np.unique([X.argmin(axis=0), X.argmax(axis=0)])
    model.forget(IDS[extremes])
    model.learn(X[extremes[:1]], clients=WARDS[extremes[:1]], ids=["back"])
    assert model.bounds_.tobytes() == public["bounds"].tobytes()
    assert model.step_ == public["step"]
    fresh.forget(IDS[extremes])
    fresh.learn(X[extremes[:1]], clients=WARDS[extremes[:1]], ids=["back"])
    assert snapshot(fresh) == snapshot(model)


def test_what_is_inferred():
    with pytest.warns(DataTraceWarning):
        model = FederatedKMeans(3, random_state=3).fit(X)
    assert model.bounds_.tolist() == np.column_stack([X.min(0), X.max(0)]).tolist()
    assert model.step_ == 1 / math.sqrt(N)


# The digest


LAYOUTS = {
    "fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed twice": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "big endian": lambda a: a.astype(">f8"),
    "lists": lambda a: a.tolist(),
    "objects": lambda a: a.astype(object),
    "read-only": lambda a: np.frombuffer(a.tobytes()).reshape(a.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    "params", [{}, {"representatives": "seeds"}, {"representatives": "lloyd"}], ids=str
)
def test_layout_does_not_matter(snapshot, layout, params):
    model = federated(**params).fit(layout(X), clients=WARDS, ids=IDS)
    assert snapshot(model) == snapshot(fit(**params))
    one = SeededKMeans(5, random_state=1)
    assert snapshot(clone(one).fit(layout(X))) == snapshot(clone(one).fit(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.bool_])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_narrow_numbers_are_widened(snapshot, dtype):
    narrow = (X * (1 if np.issubdtype(dtype, np.floating) else 100)).astype(dtype)
    estimator = federated(bounds=(0, 100))
    assert snapshot(clone(estimator).fit(narrow)) == snapshot(
        clone(estimator).fit(narrow.astype(np.float64))
    )
    one = SeededKMeans(2, random_state=1)
    assert snapshot(clone(one).fit(narrow)) == snapshot(clone(one).fit(narrow.astype(np.float64)))


@pytest.mark.parametrize("n_jobs", [1, 2, 3, -1])
def test_number_of_jobs_does_not_matter(snapshot, n_jobs):
    many = np.arange(N) % 17
    alone = federated().fit(X, clients=many, ids=IDS)
    together = federated(n_jobs=n_jobs).fit(X, clients=many, ids=IDS)
    assert snapshot(together) == snapshot(alone)
    for model in (alone, together):
        model.forget(IDS[::4])
        model.learn(NEW_X, clients=np.arange(9) + 12, ids=NEW_IDS)
    assert snapshot(together) == snapshot(alone)


@over_exact
def test_row_order_does_not_matter(snapshot, params):
    model = fit(**params)
    for seed in range(3):
        other = fit(np.random.default_rng(seed).permutation(N), **params)
        assert snapshot(other, by_id=True) == snapshot(model, by_id=True)


def test_row_order_does_not_matter_for_one_owner(snapshot):
    order = np.random.default_rng(0).permutation(N)
    model = SeededKMeans(5, random_state=1).fit(X, ids=IDS)
    other = SeededKMeans(5, random_state=1).fit(X[order], ids=IDS[order])
    assert snapshot(other, by_id=True) == snapshot(model, by_id=True)


def test_names_of_clients_are_not_in_the_digest():
    digests = {
        federated(local_clusters=N).fit(X, clients=names, ids=IDS).model_digest_
        for names in (WARDS, np.char.add(WARDS, "-ward"), np.unique(WARDS, return_inverse=True)[1])
    }
    assert len(digests) == 1


def test_names_in_local_clusters_are_not_in_the_digest():
    renamed = {name: f"{name}-ward" for name in LOCAL}
    digests = {
        federated(local_clusters={names[w]: N for w in names})
        .fit(X, clients=[names[w] for w in WARDS], ids=IDS)
        .model_digest_
        for names in ({name: name for name in LOCAL}, renamed)
    }
    assert len(digests) == 1


def test_ids_are_not_in_the_digest():
    model = federated(local_clusters=N).fit(X, clients=WARDS, ids=IDS)
    assert federated(local_clusters=N).fit(X, clients=WARDS).model_digest_ == model.model_digest_


def test_the_digest_covers_what_influences_the_model():
    variants = [
        {},
        {"n_clusters": 4},
        {"bounds": (0, 2)},
        {"bounds": (0, 2), "scale": "box"},
        {"step": 1 / 31},
        {"shift": True},
        {"local_clusters": 9},
        {"local_clusters": 10},
        {"representatives": "seeds"},
        {"representatives": "lloyd"},
        {"representatives": "lloyd", "mode": "paper"},
        {"server_points": "uniform"},
        {"mode": "paper"},
        {"n_init": 4},
        {"max_iter": 299},
        {"tol": 1e-9},
        {"random_state": 5},
    ]
    digests = [fit(**params).model_digest_ for params in variants]
    assert len(set(digests)) == len(variants)


def test_the_digest_covers_the_aggregate():
    model = federated(n_clusters=1).fit([[0.25], [0.5], [0.75]], ids=[0, 1, 2])
    before = model.model_digest_
    centre = model.cluster_centers_.tobytes()
    model.learn([[0.5]], clients=model.clients_[:1], ids=[3])
    assert model.cluster_centers_.tobytes() == centre
    assert model.model_digest_ != before


# Reading rows inside the bounds or not


@pytest.mark.parametrize("params", [{}, {"scale": "box"}, {"aggregation": "centroids"}], ids=str)
def test_rows_outside_the_bounds_are_read(params):
    model = fit(**params)
    far = np.array([[50.0, 60.0, 70.0], [-50.0, -60.0, -70.0], [0.5, 0.5, 1.0]])
    distances = model.transform(far)
    assert distances.shape == (3, 3)
    assert np.isfinite(distances).all()
    assert model.predict(far).tolist() == distances.argmin(axis=1).tolist()
    assert len(set(model.predict(far[:2]))) == 2
    assert model.score(far) < model.score(far[2:]) < 0


def test_clipping_is_for_records_and_not_for_distances():
    model = federated(n_clusters=1, clip=True).fit([[0.0], [7.0]])
    assert model.cluster_centers_.tolist() == [[0.5]]
    assert model.transform([[4.5]]).tolist() == [[4.0]]


def test_fit_predict_takes_clients_and_ids():
    model = federated()
    labels = model.fit_predict(X, clients=WARDS, ids=IDS)
    assert labels.tolist() == fit().labels_.tolist()
    assert model.ids_.tolist() == IDS.tolist()


# Exact forgetting


@over_exact
def test_forget_learn_and_leave_equal_a_fresh_fit(snapshot, params):
    model = fit(**params)
    untouched = model.get_params()

    def assert_fresh(*parts):
        values, clients, ids = everything(*parts)
        # The layer below has no check of K against n; fit does, so K ≤ n throughout.
        fresh = federated(**params).fit(values, clients=clients, ids=ids)
        assert snapshot(fresh, by_id=True) == snapshot(model, by_id=True)

    first = np.isin(np.arange(N), [5, 9, 33])
    model.forget(IDS[first])
    assert_fresh(kept(~first))
    model.learn(NEW_X, clients=NEW_WARDS, ids=NEW_IDS)
    assert_fresh(kept(~first), NEW)
    model.forget_clients(["annex"])
    assert_fresh(kept(~first), kept(NEW_WARDS != "annex", NEW))
    model.learn(NEW_X[:3][::-1], clients=["west"] * 3, ids=IDS[first])  # other values, old ids
    back = (NEW_X[:3][::-1], np.array(["west"] * 3), IDS[first])
    assert_fresh(kept(~first), kept(NEW_WARDS != "annex", NEW), back)
    model.forget(NEW_IDS[NEW_WARDS != "annex"])
    model.forget(IDS[first])
    model.learn(X[first], clients=WARDS[first], ids=IDS[first])
    assert_fresh(ALL)
    assert model.get_params() == untouched


@pytest.mark.parametrize(
    "params", [{}, {"representatives": "seeds"}, {"representatives": "lloyd"}], ids=str
)
def test_forgetting_any_one_record(snapshot, params):
    model = fit(**params)
    reseeded = 0
    for i in range(N):
        one = copy.deepcopy(model)
        reseeded += bool(one.forget(IDS[i]).reseeded)
        rest = np.arange(N) != i
        fresh = federated(**params).fit(X[rest], clients=WARDS[rest], ids=IDS[rest])
        assert snapshot(one) == snapshot(fresh)
    assert reseeded == 3 * 4  # K seeds at each of four clients


def test_any_one_record_of_one_owner(snapshot):
    model = SeededKMeans(6, random_state=9).fit(X, ids=IDS)
    for i in range(N):
        one = copy.deepcopy(model)
        report = one.forget([IDS[i]])
        rest = np.arange(N) != i
        fresh = SeededKMeans(6, random_state=9).fit(X[rest], ids=IDS[rest])
        assert snapshot(one) == snapshot(fresh)
        seeds = model.seed_ids_.tolist()
        drawn_from = [seeds.index(IDS[i]) + 1] if IDS[i] in seeds else []
        assert list(report.reseeded.values()) == drawn_from
        one.learn(X[i : i + 1], ids=IDS[i : i + 1])
        assert snapshot(one, by_id=True) == snapshot(model, by_id=True)


def test_the_callers_arrays_are_not_kept(snapshot):
    values, clients, ids = X.copy(), WARDS.copy(), np.arange(N)
    model = federated().fit(values, clients=clients, ids=ids)
    alone = SeededKMeans(3, random_state=1).fit(values, ids=ids)
    new = NEW_X.copy()
    model.learn(new, clients=NEW_WARDS, ids=np.arange(N, N + 9))
    alone.learn(new, ids=np.arange(N, N + 9))
    for array in (values, new, ids):
        array[:] = 0
    clients[:] = "none"
    gone = list(range(0, N, 2))
    model.forget(gone)
    alone.forget(gone)
    rest = (np.concatenate([X[1::2], NEW_X]), np.concatenate([WARDS[1::2], NEW_WARDS]))
    left = np.concatenate([np.arange(1, N, 2), np.arange(N, N + 9)])
    assert snapshot(model) == snapshot(federated().fit(rest[0], clients=rest[1], ids=left))
    assert snapshot(alone) == snapshot(SeededKMeans(3, random_state=1).fit(rest[0], ids=left))


@over_exact
def test_down_to_nothing_and_back(snapshot, params):
    model = fit(**params)
    model.forget(IDS)
    assert model.cluster_centers_.shape == (0, D)
    assert model.inertia_ == model.induced_inertia_ == 0.0
    for name in ("ids_", "clients_", "labels_", "induced_labels_"):
        assert getattr(model, name).shape == (0,)
    nothing = model.model_digest_
    model.learn(X[:1], clients=WARDS[:1], ids=IDS[:1])
    assert len(model.cluster_centers_) == 1
    assert model.labels_.tolist() == [0]
    model.forget(IDS[0])
    assert model.model_digest_ == nothing
    model.learn(X[::-1], clients=WARDS[::-1], ids=IDS[::-1])
    assert snapshot(model, by_id=True) == snapshot(fit(**params), by_id=True)
    model.forget_clients(np.unique(WARDS))
    assert model.model_digest_ == nothing


def test_one_owner_down_to_nothing_and_back(snapshot):
    model = SeededKMeans(4, random_state=1).fit(X, ids=IDS)
    model.forget(IDS)
    assert model.cluster_centers_.shape == (0, D)
    assert model.ids_.shape == model.labels_.shape == (0,)
    assert model.inertia_ == 0.0
    model.learn(X[:2], ids=IDS[:2])
    assert sorted(model.cluster_centers_.tolist()) == sorted(X[:2].tolist())
    model.learn(X[2:], ids=IDS[2:])
    assert snapshot(model) == snapshot(SeededKMeans(4, random_state=1).fit(X, ids=IDS))


def test_fewer_records_than_clusters_after_forgetting():
    model = federated(n_clusters=4).fit(np.array([[0.0], [0.25], [0.5], [1.0]]))
    for n_left in (3, 2, 1):
        model.forget(model.ids_[0])
        assert len(model.cluster_centers_) == n_left
        assert model.inertia_ == 0.0


@over_exact
def test_an_empty_client_leaves_no_trace(snapshot, params):
    model, untouched = fit(**params), fit(**params)
    newcomer = (NEW_X, ["annex"] * 9, NEW_IDS)
    model.learn(newcomer[0], clients=newcomer[1], ids=newcomer[2])
    assert model.model_digest_ != untouched.model_digest_
    model.forget(NEW_IDS)
    assert snapshot(model) == snapshot(untouched)
    model.learn(newcomer[0], clients=newcomer[1], ids=newcomer[2])
    model.forget_clients("annex")
    assert snapshot(model) == snapshot(untouched)


def test_forgetting_no_record_changes_nothing(snapshot):
    model, alone = fit(), SeededKMeans(3, random_state=1).fit(X)
    for one in (model, alone):
        before = snapshot(one)
        assert one.forget([]).removed == 0
        assert snapshot(one) == before


# Modes and clients


def test_paper_mode_implies_seeds(snapshot):
    meant, said = fit(mode="paper"), fit(mode="paper", representatives="seeds")
    assert snapshot(meant) == snapshot(said)
    seeds, means = fit(representatives="seeds"), fit()
    assert meant.cluster_centers_.tobytes() == seeds.cluster_centers_.tobytes()
    assert meant.cluster_centers_.tobytes() != means.cluster_centers_.tobytes()


def test_paper_mode_with_lloyd_is_complete_client_training(snapshot):
    """Every removal is reported, and the model is the exact one."""
    params = {"representatives": "lloyd", "mode": "paper"}
    model, exact = fit(**params), fit(representatives="lloyd")
    assert model.cluster_centers_.tobytes() == exact.cluster_centers_.tobytes()
    told = 0
    for i in range(0, N, 4):
        held = model._federation.aggregate.total
        told += not model.forget(IDS[i]).reseeded
        exact.forget(IDS[i])
        assert model._federation.aggregate.total == held - 1
        assert model.cluster_centers_.tobytes() == exact.cluster_centers_.tobytes()
    assert told, "a client that need not draw again reports, too"
    rest = np.arange(N) % 4 != 0
    fresh = federated(**params).fit(X[rest], clients=WARDS[rest], ids=IDS[rest])
    assert snapshot(model) == snapshot(fresh)


def test_paper_mode_runs_the_server_only_after_a_reseed():
    model = fit(mode="paper")
    rans = 0
    for i in range(N):
        one = copy.deepcopy(model)
        report = one.forget(IDS[i])
        assert (report.server == "ran") == bool(report.reseeded)
        assert one.ids_.tolist() == np.delete(IDS, i).tolist()
        if report.server != "ran":
            assert one.model_digest_ == model.model_digest_
            assert one.cluster_centers_.tobytes() == model.cluster_centers_.tobytes()
        rans += report.server == "ran"
    assert rans == 3 * 4


def test_paper_mode_keeps_counting_what_it_has_forgotten():
    """One cluster, clients {0, 0.4} and {0.8}, forget 0.4: a fresh fit gives 0.4."""
    found = {"exact": set(), "paper": set()}
    for mode, centres in found.items():
        for seed in range(40):
            params = {"n_clusters": 1, "bounds": (0, 1), "step": 0.1, "mode": mode}
            model = FederatedKMeans(**params, representatives="seeds", random_state=seed)
            model.fit([[0.0], [0.4], [0.8]], clients=["A", "A", "B"])
            model.forget(1)
            centres.add(round(model.cluster_centers_[0, 0], 3))
    assert found == {"exact": {0.4}, "paper": {0.4, 0.267}}


def test_local_clusters_as_number_and_mapping(snapshot):
    number = fit(local_clusters=5)
    mapping = fit(local_clusters=dict.fromkeys(LOCAL, 5))
    assert mapping.cluster_centers_.tobytes() == number.cluster_centers_.tobytes()
    assert mapping.induced_labels_.tobytes() == number.induced_labels_.tobytes()
    assert fit(local_clusters=3).cluster_centers_.tobytes() == fit().cluster_centers_.tobytes()
    uneven = fit(local_clusters=LOCAL)
    assert uneven.cluster_centers_.tobytes() != number.cluster_centers_.tobytes()


def test_local_clusters_of_each_client():
    """A client with one local cluster reports its mean, one with enough of them all records."""
    points = np.array([[0.0], [0.25], [0.75], [1.0]])
    clients = ["one", "one", "all", "all"]
    model = federated(n_clusters=3, local_clusters={"one": 1, "all": 2})
    model.fit(points, clients=clients)
    assert sorted(model.cluster_centers_.ravel()) == [0.125, 0.75, 1.0]
    assert model.induced_labels_[0] == model.induced_labels_[1]
    assert len(set(model.induced_labels_)) == 3


def test_local_clusters_with_numbered_clients():
    points = np.array([[0.0], [0.25], [0.75], [1.0]])
    model = federated(n_clusters=3, local_clusters={1: 1, 2: 2})
    model.fit(points, clients=[1, 1, 2, 2])
    assert sorted(model.cluster_centers_.ravel()) == [0.125, 0.75, 1.0]


def test_enough_local_clusters_report_every_record():
    points = np.arange(20)[:, None] / 32
    model = federated(n_clusters=20, local_clusters=1000).fit(points, clients=np.arange(20) % 3)
    assert sorted(model.cluster_centers_.ravel()) == points.ravel().tolist()
    assert model.inertia_ == model.induced_inertia_ == 0.0


# Reports


def test_reports_of_a_federation():
    model = fit()
    seeds = {ward: ids.tolist() for ward, ids in model.seed_ids_.items()}
    gone = [*IDS[:5], seeds["east"][2], seeds["west"][1], seeds["west"][0]]
    gone = list(dict.fromkeys(gone))
    lost = {
        ward: min(ids.index(one) for one in gone if one in ids) + 1
        for ward, ids in seeds.items()
        if set(gone) & set(ids)
    }
    report = model.forget(gone)
    assert (report.verb, report.removed, report.added) == ("forget", len(gone), 0)
    assert report.joined == report.left == ()
    assert report.server == "ran"
    assert report.reseeded == lost
    assert (lost["east"] <= 3, lost["west"]) == (True, 1)
    assert all(seconds >= 0 for seconds in report.seconds.values())
    assert report.seconds["total"] > 0

    report = model.learn(NEW_X, clients=NEW_WARDS, ids=NEW_IDS)
    assert (report.verb, report.removed, report.added) == ("learn", 0, 9)
    assert (report.joined, report.left) == (("annex",), ())

    n_annex, n_south = 3, int((model.clients_ == "south").sum())
    report = model.forget_clients(["annex", "south"])
    assert (report.verb, report.removed) == ("forget_clients", n_annex + n_south)
    assert set(report.left) == {"annex", "south"}
    assert not {"annex", "south"} & set(model.clients_)

    west = model.ids_[model.clients_ == "west"]
    report = model.forget(west)
    assert report.left == ("west",)
    assert str(len(west)) in str(report)


def test_reports_say_whether_the_server_ran():
    model = fit(n_clusters=1, step=1.0, local_clusters=1)
    for i in range(N):
        one = copy.deepcopy(model)
        before = one.model_digest_
        report = one.forget(IDS[i])
        assert report.server == "ran"
        assert report.changed_points > 0
        assert one.model_digest_ != before
    report = model.forget([])
    assert (report.server, report.changed_points) == ("unchanged", 0)


def test_reports_of_one_owner():
    model = SeededKMeans(4, random_state=1).fit(X, ids=IDS)
    first, last = model.seed_ids_[0], model.seed_ids_[3]
    report = model.forget([last])
    assert (report.removed, report.server) == (1, "none")
    assert list(report.reseeded.values()) == [4]
    report = model.forget([first])
    assert list(report.reseeded.values()) == [1]
    report = model.learn(NEW_X, ids=NEW_IDS)
    assert (report.verb, report.removed, report.added) == ("learn", 0, 9)


def test_a_report_in_a_notebook_is_short():
    """Its repr says what happened; what it cost is in the sentence and in the attributes."""
    model = fit(aggregation="secure")
    gone = IDS[model.clients_ == "west"]
    report = model.forget(gone)
    assert repr(report) == (
        f"Report(verb='forget', removed={len(gone)}, left=('west',),"
        f" changed_points={report.changed_points}, server='ran')"
    )
    assert report.work is not None
    assert report.traffic is not None
    assert report.seconds["total"] > 0
    assert "bytes sent" in str(report)
    one = SeededKMeans(4, random_state=1).fit(X, ids=IDS)
    report = one.forget(one.seed_ids_[3])
    assert repr(report) == "Report(verb='forget', removed=1, reseeded={'owner': 4})"
    assert repr(one.forget([])) == "Report(verb='forget')"
    assert repr(one.learn(NEW_X, ids=NEW_IDS)).startswith("Report(verb='learn', added=9")


# Seeds of one owner


def test_seeds_are_unchanged_rows_in_drawing_order():
    model = SeededKMeans(7, random_state=6).fit(X, ids=IDS)
    rows = [IDS.tolist().index(one) for one in model.seed_ids_]
    assert len(set(rows)) == 7
    assert model.cluster_centers_.tobytes() == X[rows].tobytes()
    assert model.labels_[rows].tolist() == list(range(7))
    assert model.cluster_sizes_.tolist() == np.bincount(model.labels_, minlength=7).tolist()
    for k in range(1, 7):
        fewer = SeededKMeans(k, random_state=6).fit(X, ids=IDS)
        assert fewer.seed_ids_.tolist() == model.seed_ids_[:k].tolist()


def test_negative_zero_stays():
    model = SeededKMeans(2, random_state=0).fit(np.array([[-0.0], [1.0]]))
    assert np.signbit(model.cluster_centers_[model.cluster_centers_ == 0]).all()


def test_random_states_draw_different_seeds():
    seeds = {tuple(SeededKMeans(3, random_state=s).fit(X).seed_ids_) for s in range(10)}
    assert len(seeds) > 5
    models = {fit(random_state=s).cluster_centers_.tobytes() for s in range(10)}
    assert len(models) > 1


# Small and equal records


@pytest.mark.parametrize("params", [{}, {"server_points": "uniform"}, {"mode": "paper"}], ids=str)
def test_one_record(params):
    model = federated(n_clusters=1, **params).fit([[0.5, 0.25]], ids=["only"])
    assert model.labels_.tolist() == model.induced_labels_.tolist() == [0]
    assert model.cluster_centers_.shape == (1, 2)
    model.forget("only")
    assert model.ids_.shape == (0,)


def test_one_record_of_one_owner():
    model = SeededKMeans(1, random_state=0).fit([[0.1, -7.0]], ids=["only"])
    assert model.cluster_centers_.tolist() == [[0.1, -7.0]]
    assert (model.labels_.tolist(), model.inertia_) == ([0], 0.0)


def test_one_cluster_is_the_mean_of_what_is_reported():
    points = np.array([[0.0], [0.25], [0.5], [1.0]])
    model = federated(n_clusters=1).fit(points, clients=["A", "A", "B", "B"])
    assert model.cluster_centers_.tolist() == [[0.4375]]
    model.forget(0)
    assert model.cluster_centers_.tolist() == [[(0.25 + 2 * 0.75) / 3]]


@pytest.mark.parametrize(
    "params", [{}, {"representatives": "seeds"}, {"representatives": "lloyd"}], ids=str
)
def test_equal_records_share_a_centre(params):
    model = federated(n_clusters=3, **params).fit([[0.25, 0.5]] * 6, clients=list("AAABBB"))
    assert model.cluster_centers_.tolist() == [[0.25, 0.5]]
    assert model.labels_.tolist() == [0] * 6
    model.forget([0, 3])
    assert model.cluster_centers_.tolist() == [[0.25, 0.5]]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_equal_records_of_one_owner(snapshot):
    points = np.array([[1.0], [1.0], [1.0], [4.0], [4.0]])
    model = SeededKMeans(4, random_state=2).fit(points)
    assert sorted(model.cluster_centers_.ravel()) == [1.0, 4.0]
    assert sorted(model.cluster_sizes_) == [2, 3]
    gone = model.seed_ids_[0]
    model.forget(gone)
    assert sorted(model.cluster_centers_.ravel()) == [1.0, 4.0]
    rest = np.arange(5) != gone
    fresh = SeededKMeans(4, random_state=2).set_params(n_clusters=4)
    assert snapshot(model) == snapshot(fresh.fit(points[rest], ids=np.arange(5)[rest]))


def test_ids_returned_after_a_change_are_new(snapshot):
    """Arrays handed out earlier keep their values."""
    model = fit()
    ids, labels, digest = model.ids_, model.labels_, model.model_digest_
    held = ids.tolist(), labels.tolist()
    model.forget(IDS[:20])
    model.learn(NEW_X, clients=NEW_WARDS, ids=NEW_IDS)
    assert (ids.tolist(), labels.tolist()) == held
    assert model.model_digest_ != digest
