"""Whatever is wrong is refused with a reason, and a refused verb changes nothing."""

import contextlib
import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from fedforget import (
    DuplicateIdError,
    FederatedKMeans,
    KMeans,
    OutOfBoundsError,
    SeededKMeans,
    UnknownIdError,
)

REFUSED = (ValueError, TypeError)
VALUES = np.random.default_rng(5).integers(0, 65, size=(24, 2)) / 64
WARDS = np.repeat(["east", "north", "west"], 8)
PUBLIC = {"bounds": (0.0, 1.0), "step": 1 / 16}

BAD_RECORDS = {
    "nan": [[0.1, np.nan], [0.2, 0.3]],
    "inf": [[0.1, 0.2], [np.inf, 0.3]],
    "minus inf": [[0.1, 0.2], [0.3, -np.inf]],
    "words": [["young", "tall"], ["old", "short"]],
    "digits in strings": np.array([["0.1", "0.2"], ["0.3", "0.4"]]),
    "digits in objects": np.array([["0.1", "0.2"], ["0.3", "0.4"]], dtype=object),
    "bytes": np.array([[b"0.1", b"0.2"], [b"0.3", b"0.4"]]),
    "1-D": [0.1, 0.2],
    "scalar": 0.5,
    "3-D": np.zeros((2, 2, 1)),
    "ragged": [[0.1, 0.2], [0.3]],
    "complex": np.array([[0.1 + 1j, 0.2], [0.3, 0.4]]),
    "complex objects": np.array([[0.1 + 1j, 0.2], [0.3, 0.4]], dtype=object),
    "not numbers": [[object(), 0.2], [0.3, 0.4]],
    "dicts": [[{}, {}], [{}, {}]],
    "none": [[None, 0.2], [0.3, 0.4]],
    "dates": np.array([["2020-01-01", "2020-01-02"]] * 2, dtype="datetime64[D]"),
    "nothing": None,
    "no columns": np.empty((2, 0)),
}
ANY_WIDTH = {"too narrow": [[0.1], [0.2]], "too wide": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]}
NOT_FINITE = {
    "nan": (np.nan, r"Input X contains NaN: X\[7, 1\] = nan; leave such rows out"),
    "inf": (np.inf, r"Input X contains infinity: X\[7, 1\] = inf; leave such rows out"),
    "minus inf": (-np.inf, r"Input X contains infinity: X\[7, 1\] = -inf; leave such rows out"),
}
BAD_IDS = {
    "duplicated": [101, 101],
    "duplicated strings": ["p", "p"],
    "mixed": [101, "p"],
    "mixed objects": np.array(["p", 101], dtype=object),
    "fractions": [101.5, 102.5],
    "nan": [101, np.nan],
    "none": [101, None],
    "none among strings": ["p", None],
    "bytes": [b"p", b"q"],
    "tuples": [(1, 2), (3, 4)],
    "2-D": [[101], [102]],
    "one too few": [101],
    "one too many": [101, 102, 103],
}


def _federated(**params):
    return FederatedKMeans(3, **{**PUBLIC, "random_state": 11, **params})


def _seeded(**params):
    return SeededKMeans(**{"n_clusters": 3, "random_state": 11, **params})


def _kmeans(**params):
    return KMeans(**{"n_clusters": 3, "random_state": 11, **params})


@pytest.fixture(params=["federated", "seeded", "kmeans"])
def unfitted(request):
    return {"federated": _federated, "seeded": _seeded, "kmeans": _kmeans}[request.param]()


@pytest.fixture
def fitted(unfitted):
    if isinstance(unfitted, FederatedKMeans):
        return unfitted.fit(VALUES, clients=WARDS)
    return unfitted.fit(VALUES)


def _learn(model, X, ids):
    extra = {"clients": ["east"] * len(X)} if isinstance(model, FederatedKMeans) else {}
    return model.learn(X, ids=ids, **extra)


@pytest.fixture
def assert_refused(snapshot):
    """The verb raises; all that can be seen stays, and so does what the next verbs give."""

    def check(model, verb, error=REFUSED, match=None):
        before, twin = snapshot(model), copy.deepcopy(model)
        with pytest.raises(error, match=match) as caught:
            verb(model)
        assert str(caught.value)
        assert snapshot(model) == before
        for each in (model, twin):
            each.forget(each.ids_[::3])
            _learn(each, [[0.25, 0.75]], ids=[9999])
        assert snapshot(model) == snapshot(twin)
        return str(caught.value)

    return check


# Records


@pytest.mark.parametrize(
    "X", [*BAD_RECORDS.values(), np.empty((0, 2))], ids=[*BAD_RECORDS, "empty"]
)
def test_fit_refuses_records(unfitted, X):
    with pytest.raises(REFUSED):
        unfitted.set_params(n_clusters=1).fit(X)


@pytest.mark.parametrize(
    "X", [*BAD_RECORDS.values(), np.empty((0, 2))], ids=[*BAD_RECORDS, "empty"]
)
def test_fitting_again_with_bad_records_keeps_the_old_model(fitted, assert_refused, X):
    assert_refused(fitted, lambda model: model.fit(X))


@pytest.mark.parametrize(
    ("X", "ids"),
    [
        (np.full((24, 3), np.nan), None),
        (pd.DataFrame(np.full((24, 3), np.nan), columns=list("abc")), None),
        (np.zeros((24, 3)), [0] * 24),
        (pd.DataFrame(np.zeros((24, 2)), columns=list("ab")), [0] * 24),
    ],
    ids=["wider", "wider frame", "wider, bad ids", "frame, bad ids"],
)
def test_fitting_again_with_other_features_keeps_the_old_model(fitted, assert_refused, X, ids):
    assert_refused(fitted, lambda model: model.fit(X, ids=ids))


BAD_NEW_RECORDS = BAD_RECORDS | ANY_WIDTH


@pytest.mark.parametrize("X", BAD_NEW_RECORDS.values(), ids=BAD_NEW_RECORDS)
def test_learn_refuses_records(fitted, assert_refused, X):
    extra = {"clients": ["east"] * 2} if isinstance(fitted, FederatedKMeans) else {}
    assert_refused(fitted, lambda model: model.learn(X, ids=[101, 102], **extra))


@pytest.mark.parametrize("method", ["predict", "transform", "score"])
@pytest.mark.parametrize("X", BAD_NEW_RECORDS.values(), ids=BAD_NEW_RECORDS)
def test_reading_refuses_records(fitted, method, X):
    with pytest.raises(REFUSED):
        getattr(fitted, method)(X)


@pytest.mark.parametrize(("value", "match"), NOT_FINITE.values(), ids=NOT_FINITE)
def test_the_first_value_that_is_no_number_is_named(fitted, assert_refused, value, match):
    """With its row and column, by all that take rows."""
    X = VALUES.copy()
    X[7, 1] = value
    assert_refused(fitted, lambda model: _learn(model, X, np.arange(100, 124)), ValueError, match)
    for method in (fitted.fit, fitted.predict, fitted.transform, fitted.score):
        with pytest.raises(ValueError, match=match):
            method(X)
    X[[9, 20], 0] = np.inf, np.nan
    with pytest.raises(ValueError, match=r"X\[7, 1\] = -?(nan|inf), the first of 3 such values;"):
        fitted.fit(X)


def test_learning_no_rows_changes_nothing(fitted, snapshot):
    before = snapshot(fitted)
    with contextlib.suppress(ValueError):  # refusing is fine too
        _learn(fitted, np.empty((0, 2)), ids=[])
    assert snapshot(fitted) == before


@pytest.mark.parametrize("columns", [["b", "a"], ["a", "c"], ["a"], ["a", "b", "c"]])
def test_wrong_feature_names(unfitted, assert_refused, columns):
    model = unfitted.fit(pd.DataFrame(VALUES, columns=["a", "b"]))
    wrong = pd.DataFrame(np.zeros((2, len(columns))), columns=columns)
    extra = {"clients": [0, 0]} if isinstance(model, FederatedKMeans) else {}
    for method in (model.predict, model.transform, model.score):
        with pytest.raises(ValueError, match="feature"):
            method(wrong)
    before = model.ids_.tobytes()
    with pytest.raises(ValueError, match="feature"):
        model.learn(wrong, ids=[101, 102], **extra)
    assert model.ids_.tobytes() == before
    assert list(model.feature_names_in_) == ["a", "b"]


# Ids and clients


@pytest.mark.parametrize("ids", BAD_IDS.values(), ids=BAD_IDS)
def test_fit_refuses_ids(unfitted, ids):
    with pytest.raises(REFUSED):
        unfitted.set_params(n_clusters=1).fit(VALUES[:2], ids=ids)


@pytest.mark.parametrize("ids", BAD_IDS.values(), ids=BAD_IDS)
def test_learn_refuses_ids(fitted, assert_refused, ids):
    assert_refused(fitted, lambda model: _learn(model, VALUES[:2], ids=ids))


@pytest.mark.parametrize("ids", [[2**53, 2**53 + 1], ["\u00e9", "e\u0301"]], ids=ascii)
def test_ids_that_look_alike_are_kept_apart(unfitted, ids):
    assert unfitted.set_params(n_clusters=1).fit(VALUES[:2], ids=ids).ids_.tolist() == ids


@pytest.mark.parametrize("ids", [["p", "p\0"], [-1, 2**63 + 5], [2**70, 2**70 + 1]], ids=ascii)
def test_ids_that_arrays_would_merge_are_refused(unfitted, ids):
    with pytest.raises(ValueError, match="ids"):
        unfitted.set_params(n_clusters=1).fit(VALUES[:2], ids=ids)


def test_duplicates_have_their_own_error_that_names_them(fitted, assert_refused):
    with pytest.raises(DuplicateIdError, match="703"):
        fitted.fit(VALUES[:4], ids=[701, 703, 702, 703])
    assert_refused(
        fitted, lambda m: _learn(m, VALUES[:3], ids=[703, 701, 703]), DuplicateIdError, "703"
    )


def test_learn_refuses_ids_that_are_held(fitted, assert_refused):
    message = assert_refused(
        fitted, lambda m: _learn(m, VALUES[:3], ids=[100, 17, 101]), DuplicateIdError, r"\b17\b"
    )
    assert "101" not in message


def test_the_type_of_ids_holds_for_the_whole_model(fitted, assert_refused):
    assert_refused(fitted, lambda m: _learn(m, VALUES[:1], ids=["seventeen"]))


@pytest.mark.parametrize(
    "ids",
    [
        [3, 9001],
        [9001],
        9001,
        -1,
        "3",
        ["3"],
        ["3", "4"],
        [3, "4"],
        3.5,
        [3.5],
        None,
        [None],
        [[3], [4]],
        b"\3\4",
        [b"3"],
        [True],
    ],
    ids=str,
)
def test_forget_refuses_ids(fitted, assert_refused, ids):
    assert_refused(fitted, lambda model: model.forget(ids))


@pytest.mark.parametrize("ids", [3, [3], np.array([3, 4])], ids=str)
def test_a_number_is_not_its_digits(unfitted, snapshot, ids):
    model = unfitted.fit(VALUES, ids=[str(i) for i in range(24)])
    before = snapshot(model)
    with pytest.raises(REFUSED):
        model.forget(ids)
    assert snapshot(model) == before


def test_forget_refuses_an_id_given_twice(fitted, assert_refused):
    assert_refused(fitted, lambda model: model.forget([3, 4, 3]))


@pytest.mark.parametrize(("n_unknown", "n_named"), [(1, 1), (2, 2), (5, 5), (6, 5), (300, 5)])
def test_forget_names_up_to_five_unknown_ids(fitted, assert_refused, n_unknown, n_named):
    unknown = [90001 + i for i in range(n_unknown)]
    message = assert_refused(fitted, lambda m: m.forget([3, *unknown, 4]), UnknownIdError)
    assert sum(str(one) in message for one in unknown) == n_named


def test_forgotten_ids_are_unknown(fitted, assert_refused):
    fitted.forget([3])
    assert_refused(fitted, lambda model: model.forget([3]), UnknownIdError, r"\b3\b")


@pytest.mark.parametrize("names", ["nowhere", ["nowhere"], ["east", "nowhere"], [0], [None]])
def test_unknown_clients(assert_refused, names):
    model = _federated().fit(VALUES, clients=WARDS)
    assert_refused(model, lambda m: m.forget_clients(names))


def test_unknown_clients_are_named():
    model = _federated().fit(VALUES, clients=WARDS)
    with pytest.raises(UnknownIdError, match="nowhere"):
        model.forget_clients(["east", "nowhere"])


@pytest.mark.parametrize(
    "clients", [["east"], ["east"] * 3, [0.5, 1.5], [None, "east"], [["east"], ["east"]]], ids=str
)
def test_bad_clients(assert_refused, clients):
    with pytest.raises(REFUSED):
        _federated(n_clusters=1).fit(VALUES[:2], clients=clients)
    model = _federated().fit(VALUES, clients=WARDS)
    assert_refused(model, lambda m: m.learn(VALUES[:2], clients=clients, ids=[101, 102]))


def test_learn_needs_clients_where_fit_was_given_them(assert_refused):
    model = _federated().fit(VALUES, clients=WARDS)
    assert_refused(model, lambda m: m.learn(VALUES[:1], ids=[101]))


@pytest.mark.parametrize("options", [{}, {"ids": None}], ids=str)
def test_learning_without_ids(fitted, assert_refused, options):
    """Row numbers would be ids that are held already."""
    match = rf"^{type(fitted).__name__}\.learn needs ids: pass one per new row"
    assert_refused(fitted, lambda model: model.learn(VALUES[:2], **options), TypeError, match)


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (True, "bool"),
        (np.True_, "bool"),
        (1.0, "float"),
        (np.float64(1.0), "float64"),
        ((i for i in (1, 2)), "generator"),
        ({1: 2}.keys(), "dict_keys"),
        ({1: 2}, "dict"),
        (1j, "complex"),
        (b"p", "bytes"),
        (object(), "object"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_no_id_is_named_by_its_type(fitted, assert_refused, ids, kind):
    with pytest.raises(TypeError, match=rf"not {kind}_?$"):
        _learn(fitted, VALUES[:1], ids)
    if isinstance(fitted, FederatedKMeans):
        with pytest.raises(TypeError, match=rf"clients must .* not {kind}_?$"):
            fitted.forget_clients(ids)
    assert_refused(fitted, lambda m: m.forget(ids), TypeError, rf"not {kind}_?$")


# Order of things


@pytest.mark.parametrize(
    "verb",
    [
        lambda m: m.forget([0]),
        lambda m: _learn(m, VALUES[:1], ids=[100]),
        lambda m: m.predict(VALUES),
        lambda m: m.transform(VALUES),
        lambda m: m.score(VALUES),
        lambda m: m.save("never-written.npz"),
    ],
    ids=["forget", "learn", "predict", "transform", "score", "save"],
)
def test_nothing_before_fit(unfitted, verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFittedError):
        verb(unfitted)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("X", "ids"),
    [(BAD_RECORDS["nan"], [0, 1]), (VALUES[:2], [0, 1]), (VALUES[:3], [0, 0, 1])],
    ids=["bad records", "too few records", "bad ids"],
)
def test_a_refused_fit_leaves_an_estimator_unfitted(unfitted, X, ids):
    with pytest.raises(ValueError):  # noqa: PT011 - which reason is tested above
        unfitted.fit(X, ids=ids)
    for verb in (
        lambda m: m.forget([0]),
        lambda m: m.predict(VALUES),
        lambda m: m.transform(VALUES),
    ):
        with pytest.raises(NotFittedError):
            verb(unfitted)


def test_no_client_leaves_before_fit():
    with pytest.raises(NotFittedError):
        _federated().forget_clients(["east"])


# Parameters


@pytest.mark.parametrize("n_clusters", [0, -1, 1.5, "3", None, np.nan, [3]])
def test_number_of_clusters(unfitted, n_clusters):
    with pytest.raises(REFUSED, match="n_clusters"):
        unfitted.set_params(n_clusters=n_clusters).fit(VALUES)


def test_more_clusters_than_records(unfitted):
    with pytest.raises(ValueError, match=r"n_clusters|clusters"):
        unfitted.set_params(n_clusters=25).fit(VALUES)
    unfitted.set_params(n_clusters=24).fit(VALUES)


@pytest.mark.parametrize(
    "bounds",
    [
        (1.0, 0.0),
        [(0.0, 1.0), (1.0, 0.0)],
        (np.nan, 1.0),
        (0.0, np.inf),
        (-np.inf, np.inf),
        [(0.0, 1.0), (0.0, np.nan)],
        (0.0,),
        (0.0, 0.5, 1.0),
        [(0.0, 1.0)],
        [(0.0, 1.0)] * 3,
        [(0.0, 0.5, 1.0)] * 2,
        ("low", "high"),
        (0.0, 1j),
        (0.0, None),
        1.0,
        "wide",
    ],
    ids=str,
)
def test_bounds(bounds):
    with pytest.raises(REFUSED, match="bound"):
        _federated(bounds=bounds).fit(VALUES)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), [(0.0, 1.0), (0.0, 1.0)]], ids=["one", "each"])
@pytest.mark.parametrize("aggregation", ["plain", "centroids"])
@pytest.mark.parametrize("scale", ["none", "box"])
@pytest.mark.parametrize(("row", "column", "value"), [(13, 1, 1.25), (0, 0, -0.5), (21, 0, 1e30)])
def test_violated_bounds_name_row_and_column(bounds, aggregation, scale, row, column, value):
    X = VALUES.copy()
    X[row, column] = value
    with pytest.raises(OutOfBoundsError, match=rf"(?i)row {row}\b.*column {column}\b"):
        _federated(bounds=bounds, aggregation=aggregation, scale=scale).fit(X)


@pytest.mark.parametrize("value", [1 + 2**-52, -5e-324])
def test_the_smallest_violation_counts(value):
    X = VALUES.copy()
    X[2, 1] = value
    with pytest.raises(OutOfBoundsError):
        _federated().fit(X)


def test_learn_keeps_to_the_bounds(assert_refused):
    model = _federated().fit(VALUES, clients=WARDS)
    assert_refused(
        model,
        lambda m: m.learn([[0, 0], [0, 0], [0.5, 2]], clients=["east"] * 3, ids=[101, 102, 103]),
        OutOfBoundsError,
        r"(?i)row 2\b.*column 1\b",
    )


@pytest.mark.filterwarnings("ignore::fedforget.DataTraceWarning")
def test_inferred_bounds_bind_later_records(assert_refused):
    model = FederatedKMeans(3, random_state=11).fit(VALUES, clients=WARDS)
    assert_refused(
        model,
        lambda m: m.learn([[1.5, 0.5]], clients=["east"], ids=[101]),
        OutOfBoundsError,
        r"(?i)row 0\b.*column 0\b",
    )


@pytest.mark.parametrize("step", [0, 0.0, -0.25, 1.5, 1 + 2**-52, np.nan, np.inf, "fine", [0.1]])
def test_step(step):
    with pytest.raises(REFUSED, match="step"):
        _federated(step=step).fit(VALUES)


def test_the_whole_box_is_a_legal_step():
    assert _federated(step=1.0).fit(VALUES).step_ == 1.0


@pytest.mark.parametrize("step", [1e-30, 1e-300, 5e-324])
def test_a_step_too_fine_for_exact_integers(step):
    with pytest.raises(ValueError):  # noqa: PT011 - the words are free, wrong results are not
        _federated(step=step).fit(VALUES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", "boxes"),
        ("scale", None),
        ("representatives", "medoids"),
        ("aggregation", "sum"),
        ("mode", "Exact"),
        ("mode", 1),
        ("server_points", "gaussian"),
        ("shift", "yes"),
        ("clip", "yes"),
        ("n_init", 0),
        ("n_init", 1.5),
        ("max_iter", 0),
        ("max_iter", "many"),
        ("tol", -1.0),
        ("tol", np.nan),
        ("n_jobs", 1.5),
        ("local_clusters", 0),
        ("local_clusters", -2),
        ("local_clusters", 2.5),
        ("local_clusters", "many"),
        ("local_clusters", {"east": 0, "north": 2, "west": 2}),
        ("local_clusters", {"east": 2, "north": 1.5, "west": 2}),
    ],
    ids=str,
)
def test_other_parameters(name, value):
    with pytest.raises(REFUSED, match=name):
        _federated(**{name: value}).fit(VALUES, clients=WARDS)


@pytest.mark.parametrize("random_state", ["seven", -1, 1.5])
def test_random_state(unfitted, random_state):
    with pytest.raises(REFUSED):
        unfitted.set_params(random_state=random_state).fit(VALUES)


@pytest.mark.parametrize(
    "params", [{"step": 0.0}, {"bounds": (1, 0)}, {"mode": "x"}, {"n_clusters": 99}], ids=str
)
def test_fitting_again_with_bad_parameters_keeps_the_old_model(snapshot, params):
    model = _federated().fit(VALUES, clients=WARDS)
    before = snapshot(model)
    with pytest.raises(REFUSED):
        model.set_params(**params).fit(VALUES[::-1], clients=WARDS)
    assert snapshot(model) == before
