"""Q-k-means: a deletion, certified or not, equals training without the records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.baselines.lloyd import lloyd
from fedforget.baselines.qkmeans import QKMeans, _tally
from fedforget.clustering.distance import nearest
from fedforget.errors import DuplicateIdError, OutOfBoundsError, UnknownIdError


def model(n_clusters: int = 3, **options: object) -> QKMeans:
    return QKMeans(n_clusters, **({"bounds": (0.0, 1.0), "epsilon": 0.05} | options))  # type: ignore[arg-type]


def state(trained: QKMeans) -> dict[str, object]:
    """Everything in a model that may not depend on its past."""
    return {
        "ids": trained.ids.tolist(),
        "centres": trained.centres.tobytes(),
        "first loss": trained._first_loss,
        "steps": [
            (step.sizes.tolist(), step.sums.tolist(), step.lattice.tolist(), step.loss)
            for step in trained.steps
        ],
    }


@settings(max_examples=150)
@given(
    n=st.integers(1, 80),
    d=st.integers(1, 3),
    n_clusters=st.integers(1, 4),
    epsilon=st.sampled_from([0.01, 0.1, 0.5]),
    balance=st.sampled_from([0.01, 0.2, 1.0]),
    coarse=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_deletion_equals_retraining(
    n: int, d: int, n_clusters: int, epsilon: float, balance: float, coarse: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random((n, d))
    if coarse:
        values = np.round(2 * values) / 2
    ids = rng.permutation(3 * n)[:n]
    options = {"epsilon": epsilon, "balance": balance, "seed": 5}
    trained = model(n_clusters, **options).fit(values, ids)
    held = np.ones(n, dtype=bool)
    for size in (1, 1, 3, n // 4):
        gone = rng.permutation(np.flatnonzero(held))[:size]
        trained.forget(ids[gone])
        held[gone] = False
        if not held.any():
            assert trained.centres.shape == (0, d)
            return
        order = rng.permutation(np.flatnonzero(held))
        assert state(trained) == state(model(n_clusters, **options).fit(values[order], ids[order]))


def test_most_deletions_are_certified_on_a_coarse_lattice_and_few_on_a_fine_one() -> None:
    rng = np.random.default_rng(0)
    values = np.clip(rng.normal([[0.2, 0.2], [0.8, 0.7]], 0.05, (400, 2, 2)).reshape(-1, 2), 0, 1)
    certified = {}
    for epsilon in (0.1, 0.001):
        trained = model(2, epsilon=epsilon).fit(values)
        certified[epsilon] = sum(trained.forget([victim]) for victim in range(100))
    assert certified[0.1] > 90
    assert certified[0.001] < certified[0.1]


def test_a_step_by_hand() -> None:
    """One cluster: mean 0.5, on the lattice ε (j + θ) with the phase θ of the first step."""
    trained = model(1, epsilon=0.25, max_iter=1).fit([[0.25], [0.5], [0.75]])
    phase = float(trained._phases[0, 0])
    lattice = 0.25 * (np.arange(-2, 8) + phase)
    nearest = lattice[np.abs(lattice - 0.5).argmin()]
    assert trained.steps[0].sizes.tolist() == [3]
    assert trained.steps[0].sums.tolist() == [[int(1.5 * 2**32)]]
    improves = trained.steps[0].loss < trained._first_loss
    expected = nearest if improves else trained._owner.clusters.seeds[0, 0]
    assert trained.centres[0, 0] == pytest.approx(expected)


def test_small_clusters_are_held_back() -> None:
    """γ n / K = 4: a cluster of one record moves a quarter of the way, then to the lattice."""
    values = np.array([[0.0]] * 7 + [[1.0]])
    trained = model(2, epsilon=2.0**-20, balance=1.0, max_iter=1).fit(values)
    before = np.array([[0.5], [0.5]])
    sums = np.array([[0], [2**32]])
    lattice = trained._quantise(np.array([7, 1]), sums, before, np.zeros(1))
    assert (lattice * 2.0**-20).tolist() == [[0.0], [0.625]]


def test_a_fine_lattice_is_plain_lloyd(rng: np.random.Generator) -> None:
    values = rng.random((300, 3))
    trained = model(4, epsilon=2.0**-24, balance=1e-6, max_iter=200).fit(values)
    plain = lloyd(values, trained._owner.clusters.seeds)
    np.testing.assert_allclose(trained.centres, plain.centres, atol=1e-4)
    assert trained.predict(values).tolist() == plain.labels.tolist()


def test_the_iteration_stops_when_the_loss_no_longer_falls(rng: np.random.Generator) -> None:
    for seed in range(20):
        trained = model(epsilon=0.1, seed=seed).fit(rng.random((200, 2)))
        losses = [trained._first_loss, *(step.loss for step in trained.steps)]
        falls = np.diff(losses) < 0
        assert falls[:-1].all()
        assert not falls[-1] or len(trained.steps) == 10


def test_bounds_and_units() -> None:
    """The lattice lives in fractions of the widest range, the centres in the caller's units."""
    rng = np.random.default_rng(1)
    values = rng.random((100, 2))
    unit = model(3).fit(values)
    wide = model(3, bounds=[(-4.0, 12.0), (16.0, 32.0)]).fit(16.0 * values + [-4.0, 16.0])
    np.testing.assert_allclose(wide.centres, 16.0 * unit.centres + [-4.0, 16.0])
    with pytest.raises(OutOfBoundsError, match="row 0, column 1"):
        model(3).fit([[0.5, 1.5]])


# -- what a certificate must cover -----------------------------------------------------------------


class CentroidsOnly(QKMeans):
    """Certifies a deletion by the quantised centroids alone, whatever the losses say."""

    def _certify(self, gone: np.ndarray) -> bool:
        centres = self._owner.clusters.seeds
        for old, phase in zip(self.steps, self._phases, strict=False):
            labels = nearest(gone, centres)[0]
            sizes, sums = _tally(gone, labels, len(centres))
            lattice = self._quantise(old.sizes - sizes, old.sums - sums, centres, phase)
            if not np.array_equal(lattice, old.lattice):
                return False
            centres = self._centres_of(lattice, phase)
        return True


def test_the_decision_to_stop_is_part_of_the_certificate() -> None:
    """Some deletions leave every quantised centroid alone and still change where training ends."""
    rng = np.random.default_rng(0)
    flipped = 0
    for seed in range(60):
        values = rng.random((25, 1))
        for victim in range(25):
            rest = np.arange(25) != victim
            retrained = model(2, epsilon=0.1, seed=seed).fit(values[rest], np.flatnonzero(rest))
            careless = CentroidsOnly(2, bounds=(0.0, 1.0), epsilon=0.1, seed=seed).fit(values)
            careful = model(2, epsilon=0.1, seed=seed).fit(values)
            careless.forget([victim])
            careful.forget([victim])
            assert state(careful) == state(retrained)
            flipped += careless.centres.tolist() != retrained.centres.tolist()
    assert flipped > 0


class ZeroedRows:
    """Deletes a record by overwriting its row with zeros; the row takes part in later training."""

    def __init__(self, values: np.ndarray, seed: int) -> None:
        self.values, self.seed = values.copy(), seed
        self.trained = model(2, seed=seed).fit(self.values)

    def forget(self, row: int) -> None:
        self.values[row] = 0.0
        if not self.trained.forget([row]):
            self.trained = model(2, seed=self.seed).fit(self.values)


def test_zeroed_rows_come_back() -> None:
    """Once a certificate fails, the model is trained on records at the origin that nobody holds."""
    rng = np.random.default_rng(0)
    values = 0.5 + 0.5 * rng.random((40, 2))
    rest = np.arange(40) >= 20
    retrained = model(2).fit(values[rest], np.flatnonzero(rest))
    ours, zeroed = model(2).fit(values), ZeroedRows(values, 0)
    certificates = [ours.forget([row]) for row in range(20)]
    for row in range(20):
        zeroed.forget(row)
    assert not all(certificates)
    assert state(ours) == state(retrained)
    assert zeroed.trained.centres.tolist() != retrained.centres.tolist()
    # A centroid near the origin, where there was never a record.
    assert zeroed.trained.centres.min() < 0.25 < ours.centres.min()


def test_deleted_rows_are_gone_from_memory() -> None:
    values = np.full((10, 2), 0.5)
    values[4] = 0.123456789
    trained = model(2).fit(values)
    trained.forget([4])
    for column in trained._owner.records._columns.values():
        assert not (column.astype(float) == 0.123456789).any()


# -- bad input -------------------------------------------------------------------------------------


def test_an_unknown_id_changes_nothing(rng: np.random.Generator) -> None:
    trained = model().fit(rng.random((20, 2)))
    before = state(trained)
    with pytest.raises(UnknownIdError, match="not held: 20; nothing was deleted"):
        trained.forget([3, 20])
    assert state(trained) == before


def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match="balance must be above 0 and at most 1"):
        model(balance=0.0)
    with pytest.raises(ValueError, match="max_iter must be at least 1"):
        model(max_iter=0)
    with pytest.raises(ValueError, match="epsilon must lie between"):
        model(epsilon=2.0).fit([[0.5]])
    with pytest.raises(DuplicateIdError, match="given more than once"):
        model().fit([[0.5], [0.6]], ids=[1, 1])
    with pytest.raises(ValueError, match="1 entries for 2 rows of values"):
        model().fit([[0.5], [0.6]], ids=[1])
