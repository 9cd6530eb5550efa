"""Nearest centres: every path gives the bits of the plain definition."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import twins
from fedforget.clustering import distance, kernels
from fedforget.clustering.distance import nearest, pairwise
from fedforget.clustering.kernels.tiles import TILE, tile_distances


def plain_nearest(values: np.ndarray, centres: np.ndarray) -> tuple[list[int], list[float]]:
    labels, d2 = [], []
    for row in values.tolist():
        distances = [twins.squared_distance(row, centre) for centre in centres.tolist()]
        d2.append(min(distances, default=np.inf))
        labels.append(distances.index(d2[-1]) if distances else -1)
    return labels, d2


PATHS = {"tiles kept": (10**9, 10**9), "tiles turned": (10**9, 0), "screened": (0, 0)}


@pytest.mark.parametrize("path", PATHS)
@given(d=st.integers(1, 40), n=st.integers(0, 12), k=st.integers(0, 6), data=st.data())
def test_nearest_agrees_with_the_definition(
    path: str, d: int, n: int, k: int, data: st.DataObject
) -> None:
    """Coordinates from a small set make ties; every path must hold."""
    coordinates = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(-100, 100))
    values = data.draw(hnp.arrays(np.float64, (n, d), elements=coordinates))
    centres = data.draw(hnp.arrays(np.float64, (k, d), elements=coordinates))
    with pytest.MonkeyPatch.context() as patch:
        screen, turned = PATHS[path]
        patch.setattr(distance, "_SCREEN_SIZE", screen)
        patch.setattr(distance, "_TURNED_SIZE", turned)
        labels, d2 = nearest(values, centres)
    assert (labels.tolist(), d2.tolist()) == plain_nearest(values, centres)


@given(d=st.integers(1, 40), n=st.integers(0, 12), k=st.integers(0, 6), data=st.data())
def test_a_few_distances_need_no_kernels(d: int, n: int, k: int, data: st.DataObject) -> None:
    coordinates = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(-100, 100))
    values = data.draw(hnp.arrays(np.float64, (n, d), elements=coordinates))
    centres = data.draw(hnp.arrays(np.float64, (k, d), elements=coordinates))
    labels, d2 = distance._nearest_without_kernels(values, centres)
    assert (labels.tolist(), d2.tolist()) == plain_nearest(values, centres)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distance, "_do_without_kernels", lambda values, centres: True)
        few = pairwise(values, centres)
    assert few.tobytes() == pairwise(values, centres).tobytes()


@pytest.mark.parametrize("d", [1, 3, 4, 7, 8, 12, 52, 700])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_the_tiled_and_the_screened_path_agree(d: int, n: int) -> None:
    """On integers, where the matrix product meets exact ties all the time."""
    rng = np.random.default_rng(d * n)
    values = rng.integers(0, 3, (n, d)).astype(float)
    centres = rng.integers(0, 3, (9, d)).astype(float)
    label, d2 = np.zeros(n, np.int32), np.empty(n)
    kernels.distances_to(values, centres[0], d2)
    screened_label, screened_d2 = label.copy(), d2.copy()
    kernels.meet_tiled(values, centres, 1, d2, label)
    later = centres[1:]
    norms = (later**2).sum(axis=1)
    kernels.meet_screened(
        values,
        (values**2).sum(axis=1),
        centres,
        1,
        (values @ later.T).astype(np.float32),
        1.0,
        norms,
        float(np.sqrt(norms.max())) * (1 + 1e-9),
        8.0 * (d + 16) * 2.0**-24,
        screened_d2,
        screened_label,
    )
    assert label.tobytes() == screened_label.tobytes()
    assert d2.tobytes() == screened_d2.tobytes()
    assert (label == ((values[:, None] - centres[None]) ** 2).sum(-1).argmin(1)).all()


@numba.njit(error_model="numpy")
def distances_of_one_tile(tile, centre, out):
    tile_distances(tile, centre, out)


@pytest.mark.parametrize("d", [0, 1, 3, 4, 5, 8, 23])
def test_every_row_of_a_tile_has_the_distance_of_the_definition(
    d: int, rng: np.random.Generator
) -> None:
    rows, centre, out = rng.normal(size=(TILE, d)), rng.normal(size=d), np.empty(TILE)
    distances_of_one_tile(rows.T.copy(), centre, out)
    assert out.tolist() == [twins.squared_distance(row, centre.tolist()) for row in rows.tolist()]


SIZES = [0.0, 1e-99, 1e-60, 1e-38, 1e-20, 1e-12, 1.0, 1e12, 1e20, 1e60, 1e99]


@pytest.mark.parametrize("of_centres", SIZES)
@pytest.mark.parametrize("of_rows", [*SIZES, None])
def test_products_in_single_precision_rule_out_nobody_who_is_nearest(
    of_rows: float | None,
    of_centres: float,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of any size, the rows of one part among them (None), and with many ties and near ties."""
    sizes = rng.choice(SIZES, (130, 1)) if of_rows is None else of_rows
    values = rng.integers(-3, 4, (130, 17)) * sizes
    centres = rng.integers(-3, 4, (23, 17)) * of_centres
    centres[7:14] = centres[:7] * (1.0 + rng.choice([0.0, 2.0**-52, 1e-9], (7, 1)))
    found = []
    for screen in (0, 10**9):
        monkeypatch.setattr(distance, "_SCREEN_SIZE", screen)
        found.append([one.tobytes() for one in nearest(values, centres)])
    assert found[0] == found[1]


def test_a_batch_gives_what_its_rows_give_alone(rng: np.random.Generator) -> None:
    values, centres = rng.normal(size=(150, 60)), rng.normal(size=(80, 60))
    together = nearest(values, centres)
    for i in range(0, 150, 7):
        label, d2 = nearest(values[i : i + 1].copy(), centres)
        assert (label[0], d2[0]) == (together[0][i], together[1][i])


def test_without_centres_there_is_no_label() -> None:
    labels, d2 = nearest(np.zeros((2, 3)), np.empty((0, 3)))
    assert labels.tolist() == [-1, -1]
    assert np.isinf(d2).all()


def test_pairwise_distances_are_those_of_the_kernel(rng: np.random.Generator) -> None:
    values, centres = rng.normal(size=(5, 11)), rng.normal(size=(4, 11))
    expected = [[twins.squared_distance(x, c) for c in centres.tolist()] for x in values.tolist()]
    assert pairwise(values, centres).tolist() == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0])
def test_values_beyond_the_limit_are_found_anywhere(bad: float) -> None:
    values = np.zeros((90, 70))
    assert kernels.all_within(values, 1.0)
    for row, column in ((0, 0), (58, 36), (89, 69)):
        spoilt = values.copy()
        spoilt[row, column] = bad
        assert not kernels.all_within(spoilt, 1.0)
