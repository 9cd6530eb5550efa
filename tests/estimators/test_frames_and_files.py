"""Data frames in, models out to files and back, without pickle."""

import copy
import json
import os
import pickle
import stat
import zipfile
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from fedforget import DataTraceWarning, FederatedKMeans, ModelFileError, SeededKMeans

N = 40
FEATURES = ["age", "dose", "weight"]
_rng = np.random.default_rng(77)
X = _rng.random((N, 3))
IDS = np.array([f"päth-{i:02}" for i in _rng.permutation(N)])
WARDS = np.array(["Åbo", "east", "west"])[_rng.integers(3, size=N)]
NEW_X, NEW_IDS = _rng.random((4, 3)), ["n1", "n2", "n3", "n4"]
NEW_WARDS = ["east", "annex", "annex", "west"]
PUBLIC = {"n_clusters": 3, "bounds": (0, 1), "step": 1 / 16, "n_init": 2, "random_state": 12}
FRAMES = {
    "pandas": lambda values: pd.DataFrame(values, columns=FEATURES),
    "polars": lambda values: pl.DataFrame(values, schema=FEATURES),
}
STRINGS = {
    "list": list,
    "pandas": pd.Series,
    "pandas object": lambda values: pd.Series(list(values), dtype=object),
    "pandas string": lambda values: pd.Series(list(values), dtype="string"),
    "pandas category": lambda values: pd.Series(list(values), dtype="category"),
    "pandas index": lambda values: pd.Index(list(values)),
    "pandas odd index": lambda values: pd.Series(list(values), index=range(len(values))[::-1]),
    "polars": lambda values: pl.Series(list(values)),
    "polars category": lambda values: pl.Series(list(values), dtype=pl.Categorical),
}
NUMBERS = {
    "list": list,
    "int32": lambda values: np.asarray(values, dtype=np.int32),
    "uint64": lambda values: np.asarray(values, dtype=np.uint64),
    "objects": lambda values: np.array(values, dtype=object),
    "pandas": lambda values: pd.Series(values),
    "pandas Int64": lambda values: pd.Series(values, dtype="Int64"),
    "polars": lambda values: pl.Series(values),
    "polars int16": lambda values: pl.Series(values, dtype=pl.Int16),
}


def federated(**params):
    return FederatedKMeans(**{**PUBLIC, **params})


def one_owner():
    return SeededKMeans(4, random_state=12)


# Frames


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_frames_give_the_model_of_their_values(snapshot, frame):
    for estimator in (federated(), one_owner()):
        plain = copy.deepcopy(estimator).fit(X)
        model = copy.deepcopy(estimator).fit(frame(X))
        assert list(model.feature_names_in_) == FEATURES
        seen = snapshot(model)
        del seen["feature_names_in_"]
        assert seen == snapshot(plain)
        assert model.predict(frame(NEW_X)).tolist() == plain.predict(NEW_X).tolist()
        assert model.transform(frame(NEW_X)).tobytes() == plain.transform(NEW_X).tobytes()
        assert model.score(frame(NEW_X)) == plain.score(NEW_X)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("later", FRAMES.values(), ids=FRAMES)
def test_learn_from_frames(snapshot, frame, later):
    model = federated().fit(frame(X), clients=WARDS, ids=IDS)
    model.learn(later(NEW_X), clients=NEW_WARDS, ids=NEW_IDS)
    rows, wards = np.vstack([X, NEW_X]), [*WARDS, *NEW_WARDS]
    fresh = federated().fit(frame(rows), clients=wards, ids=[*IDS, *NEW_IDS])
    assert snapshot(model) == snapshot(fresh)

    alone = one_owner().fit(frame(X), ids=IDS)
    alone.learn(later(NEW_X), ids=NEW_IDS)
    assert snapshot(alone) == snapshot(one_owner().fit(frame(rows), ids=[*IDS, *NEW_IDS]))


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("columns", [FEATURES[::-1], FEATURES[:2], [*FEATURES[:2], "height"]])
def test_feature_names_are_checked(snapshot, frame, columns):
    federation = federated().fit(frame(X), clients=WARDS, ids=IDS)
    owner = one_owner().fit(frame(X), ids=IDS)
    wrong = type(frame(X))({name: [0.5, 0.5] for name in columns})
    for model in (federation, owner):
        before = snapshot(model)
        extra = {"clients": ["east"] * 2} if model is federation else {}
        for method in (model.predict, model.transform, model.score):
            with pytest.raises(ValueError, match="feature"):
                method(wrong)
        with pytest.raises(ValueError, match="feature"):
            model.learn(wrong, ids=NEW_IDS[:2], **extra)
        assert snapshot(model) == before


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_missing_values_in_frames(frame):
    holed = X.copy()
    holed[3, 1] = np.nan
    for estimator in (federated(), one_owner()):
        with pytest.raises(ValueError, match="NaN"):
            estimator.fit(frame(holed))
    for null in (
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
        pl.DataFrame({"a": [1, None]}),
    ):
        with pytest.raises((ValueError, TypeError)):
            SeededKMeans(1).fit(null)


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_distances_as_frames(container):
    model = federated().fit(FRAMES[container](X)).set_output(transform=container)
    distances = model.transform(FRAMES[container](NEW_X))
    assert isinstance(distances, {"pandas": pd.DataFrame, "polars": pl.DataFrame}[container])
    assert list(distances.columns) == list(model.get_feature_names_out())
    assert distances.shape == (4, 3)


@pytest.mark.parametrize("series", STRINGS.values(), ids=STRINGS)
def test_strings_from_anywhere(snapshot, series):
    model = federated().fit(X, clients=series(WARDS), ids=series(IDS))
    assert isinstance(model.ids_, np.ndarray)
    assert isinstance(model.clients_, np.ndarray)
    plain = federated().fit(X, clients=WARDS, ids=IDS)
    assert snapshot(model) == snapshot(plain)
    alone, plain_alone = one_owner().fit(X, ids=series(IDS)), one_owner().fit(X, ids=IDS)
    assert snapshot(alone) == snapshot(plain_alone)
    for one, other in ((model, plain), (alone, plain_alone)):
        one.forget(series(IDS[4:9]))
        other.forget(IDS[4:9])
        assert snapshot(one) == snapshot(other)
    for each, wrap in ((model, series), (plain, list)):
        each.learn(NEW_X, clients=wrap(NEW_WARDS), ids=wrap(NEW_IDS))
        each.forget_clients(wrap(["annex", "Åbo"]))
    assert snapshot(model) == snapshot(plain)


@pytest.mark.parametrize("series", NUMBERS.values(), ids=NUMBERS)
def test_numbers_from_anywhere(snapshot, series):
    numbers, wards = list(range(100, 100 + N)), [i % 3 for i in range(N)]
    model = federated().fit(X, clients=series(wards), ids=series(numbers))
    plain = federated().fit(X, clients=wards, ids=numbers)
    assert snapshot(model) == snapshot(plain)
    model.forget(series(numbers[3:8]))
    plain.forget(numbers[3:8])
    model.forget_clients(series([1]))
    plain.forget_clients([1])
    assert snapshot(model) == snapshot(plain)


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype=object),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.0, 2.5]),
        pl.Series(["a", None]),
        pl.Series([1, None]),
        pd.Series(["a", "a"]),
        pl.Series([1, 1]),
    ],
    ids=repr,
)
def test_missing_and_repeated_ids_in_series(ids):
    for estimator in (federated(n_clusters=1), SeededKMeans(1)):
        with pytest.raises((ValueError, TypeError)):
            estimator.fit(X[:2], ids=ids)


# Files


def _changed(model):
    """Forget seeds and others, learn, and let a client leave."""
    reports = [model.forget(model.ids_[::4])]
    federation = isinstance(model, FederatedKMeans)
    ids = NEW_IDS if model.ids_.dtype.kind in "UOT" else [901, 902, 903, 904]
    names = NEW_WARDS if federation and model.clients_.dtype.kind in "UOT" else [0, 1, 7, 7]
    reports.append(model.learn(NEW_X, ids=ids, **({"clients": names} if federation else {})))
    if federation:
        reports.append(model.forget_clients(model.clients_[:1]))
    return [
        (r.verb, r.removed, r.added, r.left, r.joined, dict(r.reseeded), r.server) for r in reports
    ]


FITTED = {
    "exact": lambda: federated().fit(X, clients=WARDS, ids=IDS),
    "paper": lambda: federated(mode="paper").fit(X, clients=WARDS, ids=IDS),
    "lloyd": lambda: federated(representatives="lloyd").fit(X, clients=WARDS, ids=IDS),
    "paper lloyd": lambda: federated(mode="paper", representatives="lloyd").fit(
        X, clients=WARDS, ids=IDS
    ),
    "numbers": lambda: federated().fit(X, clients=np.arange(N) % 3),
    "numbered dict": lambda: federated(local_clusters={0: 1, 1: 9, 2: 4, 7: 2}).fit(
        X, clients=np.arange(N) % 3
    ),
    "named dict": lambda: federated(
        local_clusters={"Åbo": 1, "east": 9, "west": 4, "annex": 1}
    ).fit(X, clients=WARDS, ids=IDS),
    "box": lambda: federated(
        scale="box", shift=True, bounds=np.array([[0, 1], [-1, 1], [0, 9.5]])
    ).fit(X, clients=WARDS, ids=IDS),
    "clipped": lambda: federated(clip=True, bounds=[(0.2, 0.7)] * 3).fit(X, clients=WARDS, ids=IDS),
    "centroids": lambda: federated(aggregation="centroids", representatives="seeds").fit(
        X, clients=WARDS, ids=IDS
    ),
    "uniform": lambda: federated(server_points="uniform").fit(X, clients=WARDS, ids=IDS),
    "numpy parameters": lambda: federated(
        n_clusters=np.int64(3), step=np.float64(0.1), random_state=np.int32(5), tol=np.float32(0.5)
    ).fit(X, clients=WARDS, ids=IDS),
    "random secret": lambda: federated(random_state=None).fit(X, clients=WARDS, ids=IDS),
    "generator": lambda: federated(random_state=np.random.RandomState(3)).fit(
        X, clients=WARDS, ids=IDS
    ),
    "frame": lambda: federated().fit(FRAMES["pandas"](X), clients=WARDS, ids=IDS),
    "one owner": lambda: one_owner().fit(X, ids=IDS),
    "one owner numbers": lambda: one_owner().fit(X),
    "one owner secret": lambda: SeededKMeans(4).fit(X, ids=IDS),
    "one owner frame": lambda: one_owner().fit(FRAMES["polars"](X), ids=IDS),
}


@pytest.fixture(params=FITTED.values(), ids=FITTED)
def model(request):
    return request.param()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


def assert_same(loaded, original, snapshot):
    assert type(loaded) is type(original)
    assert snapshot(loaded) == snapshot(original)
    assert loaded.predict(_like(original)).tolist() == original.predict(_like(original)).tolist()


def _like(model):
    return FRAMES["pandas"](NEW_X) if hasattr(model, "feature_names_in_") else NEW_X


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_loaded_model_goes_on_as_the_original(model, path, snapshot):
    model.save(path)
    loaded = type(model).load(path)
    assert_same(loaded, model, snapshot)
    for record in model.ids_:
        mine, theirs = copy.deepcopy(model), copy.deepcopy(loaded)
        assert dict(theirs.forget(record).reseeded) == dict(mine.forget(record).reseeded)
        assert snapshot(theirs) == snapshot(mine)
    assert _changed(loaded) == _changed(model)
    assert_same(loaded, model, snapshot)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_changed_model_is_saved_as_it_is(model, path, snapshot):
    _changed(model)
    model.save(path)
    loaded = type(model).load(path)
    assert_same(loaded, model, snapshot)
    last = model.ids_[-1:]
    assert dict(loaded.forget(last).reseeded) == dict(model.forget(last).reseeded)
    assert_same(loaded, model, snapshot)


def test_parameters_come_back(model, path):
    model.save(path)
    params, loaded = model.get_params(), type(model).load(path).get_params()
    del params["random_state"], loaded["random_state"]
    bounds = [p.pop("bounds", None) for p in (params, loaded)]
    assert loaded == params
    assert np.array_equal(*bounds)


@pytest.mark.parametrize(
    "later",
    [
        {"mode": "paper"},
        {"n_clusters": 7},
        {"step": 0.5},
        {"bounds": (0, 9)},
        {"representatives": "seeds"},
        {"representatives": "lloyd"},
        {"local_clusters": 9},
        {"random_state": 99},
        {"server_points": "uniform"},
    ],
    ids=str,
)
def test_parameters_set_after_fit_wait_for_the_next_fit(later, path, snapshot):
    model, twin = FITTED["exact"](), FITTED["exact"]()
    model.set_params(**later)
    model.save(path)
    loaded = FederatedKMeans.load(path)
    assert snapshot(loaded) == snapshot(twin)
    assert _changed(model) == _changed(loaded) == _changed(twin)
    assert snapshot(model) == snapshot(loaded) == snapshot(twin)


def test_the_file_can_be_opened_without_pickle(model, path):
    model.save(path)
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files
        assert all(archive[name].dtype.kind != "O" for name in archive.files)


def test_an_emptied_model_can_be_saved(model, path, snapshot):
    model.forget(model.ids_)
    model.save(path)
    loaded = type(model).load(path)
    assert snapshot(loaded) == snapshot(model)
    assert loaded.cluster_centers_.shape == (0, 3)


@pytest.mark.parametrize("kind", ["exact", "named dict", "clipped", "centroids", "one owner"])
def test_the_file_holds_nothing_of_the_forgotten(kind, path):
    """Entry by entry it equals the file of a model that never met them."""
    model, untouched = FITTED[kind](), FITTED[kind]()
    extra = {"clients": ["annex"] * 4} if isinstance(model, FederatedKMeans) else {}
    model.learn(NEW_X, ids=NEW_IDS, **extra)
    model.forget(NEW_IDS)
    model.save(path)
    after = _entries(path.read_bytes(), path)
    untouched.save(path)
    before = _entries(path.read_bytes(), path)
    assert list(after) == list(before)
    for name, entry in before.items():
        assert after[name].dtype == entry.dtype
        assert after[name].tobytes() == entry.tobytes()


def test_paper_mode_keeps_its_stale_counts(path, snapshot):
    """Alg. 4's aggregate is history: the saved model must not be that of a fresh fit."""
    original = FITTED["paper"]()
    stale = []
    for record in original.ids_.tolist():
        one = copy.deepcopy(original)
        if not one.forget(record).reseeded:
            original.forget(record)
            stale.append(record)
        if len(stale) == 12:
            break
    rest = ~np.isin(IDS, stale)
    fresh = federated(mode="paper").fit(X[rest], clients=WARDS[rest], ids=IDS[rest])
    assert fresh.model_digest_ != original.model_digest_
    original.save(path)
    loaded = FederatedKMeans.load(path)
    assert_same(loaded, original, snapshot)
    assert _changed(loaded) == _changed(original)
    assert_same(loaded, original, snapshot)


@pytest.mark.filterwarnings("ignore::fedforget.DataTraceWarning")
def test_inferred_configuration_is_saved(path, snapshot):
    model = FederatedKMeans(3, random_state=1).fit(X, clients=WARDS, ids=IDS)
    model.forget(IDS[[X[:, 0].argmax(), X[:, 0].argmin()]])
    model.save(path)
    assert_same(FederatedKMeans.load(path), model, snapshot)


def test_loading_an_inferred_model_is_silent(path):
    with pytest.warns(DataTraceWarning):
        FederatedKMeans(3, random_state=1).fit(X).save(path)
    FederatedKMeans.load(path)


@pytest.mark.parametrize("kind", ["exact", "one owner"])
def test_only_the_owner_may_read_the_file(kind, path):
    model = FITTED[kind]()
    model.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    model.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", ["exact", "one owner"])
@pytest.mark.parametrize("as_type", [str, lambda p: p], ids=["str", "path"])
def test_the_name_is_taken_as_given(kind, as_type, tmp_path, snapshot):
    model = FITTED[kind]()
    target = tmp_path / "model without suffix"
    model.save(as_type(target))
    assert [one.name for one in tmp_path.iterdir()] == [target.name]
    assert snapshot(type(model).load(as_type(target))) == snapshot(model)


@pytest.mark.parametrize("kind", ["exact", "one owner"])
def test_saving_where_nothing_can_be_written(kind, tmp_path):
    with pytest.raises(OSError, match="missing"):
        FITTED[kind]().save(tmp_path / "missing" / "model.npz")


@pytest.mark.parametrize("cls", [FederatedKMeans, SeededKMeans])
def test_unfitted_models_are_not_saved(cls, path):
    with pytest.raises(NotFittedError):
        cls().save(path)
    assert not path.exists()


# Files that are not what they should be


SAVED = {"exact": FITTED["exact"], "paper": FITTED["paper"], "one owner": FITTED["one owner"]}


@pytest.fixture(params=SAVED, scope="module")
def saved(request, tmp_path_factory):
    """A fitted, changed model and the bytes of its file."""
    model = SAVED[request.param]()
    _changed(model)
    where = tmp_path_factory.mktemp("saved") / "model.npz"
    model.save(where)
    return model, where.read_bytes()


@pytest.mark.parametrize("cls", [FederatedKMeans, SeededKMeans])
def test_a_missing_file(cls, path):
    with pytest.raises(FileNotFoundError):
        cls.load(path)


def test_truncated_files(saved, path):
    model, content = saved
    for length in [0, 1, 4, 30, 100, len(content) // 2, len(content) - 30, len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            type(model).load(path)


def test_damaged_files(saved, path, snapshot):
    """A flipped byte is found, unless it lies in a part of the container that says nothing."""
    model, content = saved
    found = 0
    for position in range(0, len(content), max(1, len(content) // 150)):
        damaged = bytearray(content)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        try:
            loaded = type(model).load(path)
        except ModelFileError:
            found += 1
        else:
            assert snapshot(loaded) == snapshot(model)
    assert found > 75


class _Trap:
    """Unpickling this is a failure of the test."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


def _foreign(kind, path):
    if kind == "text":
        path.write_text("id,age\n1,2\n")
    elif kind == "nothing":
        path.write_bytes(b"")
    elif kind == "npy":
        with path.open("wb") as file:
            np.save(file, X)
    elif kind == "npz":
        np.savez(path, X=X, ids=IDS)
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.npy", b"not an array")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(_Trap()))
    elif kind == "json":
        path.write_text(json.dumps({"estimator": "FederatedKMeans"}))
    elif kind == "pickled arrays":
        np.savez(path, header=np.array([_Trap()], dtype=object))


@pytest.mark.parametrize("cls", [FederatedKMeans, SeededKMeans])
@pytest.mark.parametrize(
    "kind", ["text", "nothing", "npy", "npz", "zip", "pickle", "json", "pickled arrays"]
)
def test_foreign_files(cls, kind, path):
    _foreign(kind, path)
    with pytest.raises(ModelFileError):
        cls.load(path)


def test_the_other_estimators_file(saved, path):
    model, content = saved
    path.write_bytes(content)
    other = SeededKMeans if isinstance(model, FederatedKMeans) else FederatedKMeans
    with pytest.raises(ModelFileError):
        other.load(path)


def _entries(content, path):
    path.write_bytes(content)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _leaves(value, at=()):
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in _leaves(one, (*at, key))]
    if isinstance(value, list):
        return [leaf for key, one in enumerate(value) for leaf in _leaves(one, (*at, key))]
    return [at]


def _json(array):
    try:
        return json.loads(array.tobytes())
    except ValueError:
        return None


def _not_refused(model, path, variants):
    """The variants of a file that were loaded, or refused with an error of another kind."""
    missed = []
    for name, entries in variants:
        np.savez(path, **entries)
        try:
            type(model).load(path)
            missed.append(name)
        except ModelFileError:
            pass
        except Exception as error:
            missed.append(f"{name} ({type(error).__name__})")
    return missed


def test_missing_entries(saved, path):
    model, content = saved
    entries = _entries(content, path)
    variants = [(one, {k: v for k, v in entries.items() if k != one}) for one in entries]
    assert _not_refused(model, path, variants) == []


def test_entries_of_another_kind(saved, path):
    model, content = saved
    entries = _entries(content, path)
    kinds = {
        "pickle": lambda entry: np.array([_Trap()], dtype=object),
        "number": lambda entry: np.array(3.5),
        "string": lambda entry: np.array(["x"]),
        "one row less": lambda entry: entry[:-1],
        "one row twice": lambda entry: np.concatenate([entry, entry[-1:]]),
        "one axis more": lambda entry: entry[None],
        "no rows": lambda entry: entry[:0],
    }
    variants = [
        (f"{name}: {kind}", {**entries, name: wrong(entry)})
        for name, entry in entries.items()
        for kind, wrong in kinds.items()
        if kind != "one axis more" or _json(entry) is None
    ]
    assert _not_refused(model, path, variants) == []


def _tampered(entry, where):
    changed = entry.copy()
    flat = changed.reshape(-1)
    if changed.dtype.kind == "U":
        flat[where] = flat[where][:-1] + "#"
    else:
        flat[where] += 1 if changed.dtype.kind in "iu" else 0.0625 - flat[where] / 8
    return changed


def test_tampered_records(saved, path):
    """One changed element of any array is found."""
    model, content = saved
    entries = _entries(content, path)
    variants = [
        (f"{name} at {where}", {**entries, name: _tampered(entry, where)})
        for name, entry in entries.items()
        if _json(entry) is None
        for where in range(0, entry.size, max(1, entry.size // 5))
    ]
    assert variants
    assert _not_refused(model, path, variants) == []


def test_values_that_no_fit_would_take(saved, path):
    model, content = saved
    entries = _entries(content, path)
    variants = []
    for name, entry in entries.items():
        if entry.dtype.kind == "f":
            for value in (np.nan, np.inf, -1e300):
                changed = entry.copy()
                changed[0, 0] = value
                variants.append((f"{name}: {value}", {**entries, name: changed}))
    assert variants
    assert _not_refused(model, path, variants) == []


def _set(tree, at, value):
    tree = copy.deepcopy(tree)
    inner = tree
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return tree


def test_tampered_headers(saved, path):
    """A changed value of the JSON is found, whichever it is."""
    model, content = saved
    entries = _entries(content, path)
    variants = []
    for name, entry in entries.items():
        header = _json(entry)
        for at in _leaves(header) if header is not None else []:
            for wrong in (-7, "other", None, [[]]):
                changed = _set(header, at, wrong)
                if changed != header:
                    text = np.frombuffer(json.dumps(changed).encode(), dtype=np.uint8)
                    variants.append((f"{at} = {wrong}", {**entries, name: text}))
    assert variants
    assert _not_refused(model, path, variants) == []


@pytest.mark.parametrize(
    "local", [np.int64(4), {np.int64(0): np.int64(4), 1: 2}, MappingProxyType({0: 3})], ids=str
)
def test_local_clusters_of_any_number_type_are_saved(local, tmp_path):
    rng = np.random.default_rng(0)
    model = FederatedKMeans(2, bounds=(0, 1), step=0.1, random_state=0, local_clusters=local)
    model.fit(rng.random((30, 2)), clients=np.arange(30) % 2)
    model.save(tmp_path / "m.npz")
    assert FederatedKMeans.load(tmp_path / "m.npz").model_digest_ == model.model_digest_


def test_names_of_another_kind_in_local_clusters_are_refused():
    rng = np.random.default_rng(0)
    model = FederatedKMeans(2, bounds=(0, 1), step=0.1, local_clusters={"0": 9})
    with pytest.raises(ValueError, match="names in local_clusters of mixed type"):
        model.fit(rng.random((30, 2)), clients=np.arange(30) % 2)


def test_a_leftover_of_a_killed_process_is_in_nobody_s_way(tmp_path):
    model = SeededKMeans(2, random_state=0).fit(np.random.default_rng(0).random((9, 2)))
    leftover = tmp_path / f".m.npz.{os.getpid()}.tmp"
    leftover.touch()
    model.save(tmp_path / "m.npz")
    assert {path.name for path in tmp_path.iterdir()} == {"m.npz", leftover.name}
    assert (tmp_path / "m.npz").stat().st_mode & 0o777 == 0o600


def test_the_fitted_random_state_is_saved(tmp_path):
    model = SeededKMeans(2, random_state=1).fit(np.random.default_rng(0).random((9, 2)))
    model.set_params(random_state=99)
    model.save(tmp_path / "m.npz")
    assert SeededKMeans.load(tmp_path / "m.npz").random_state == 1


@pytest.mark.parametrize("n", [1, 3])
def test_equal_rows_beyond_all_bounds_are_refused_by_fit(n):
    with pytest.raises(ValueError, match="its square could overflow"):
        SeededKMeans(1).fit(np.full((n, 2), 1e200))
