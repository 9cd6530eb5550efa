"""Cells of AnnData files, whatever they are stored as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
pd = pytest.importorskip("pandas")

from party_world import FEATURES, World, values_of  # noqa: E402
from scipy import sparse  # noqa: E402

from fedforget.parties.client_party import open_client  # noqa: E402
from fedforget.parties.sources import SourceOptions, TableError, open_source  # noqa: E402
from fedforget.parties.sources import anndata_files as module  # noqa: E402

N = 50
NAMES = [f"CELL-{number}" for number in range(N)]
GENES = ["g1", "weight", "g2", "age", "g3"]


pytestmark = [
    pytest.mark.usefixtures("texts_are_objects"),
    # What anndata does inside, with a newer pandas than it knows.
    pytest.mark.filterwarnings("ignore:The 'mode.chained_assignment' option is deprecated"),
]


def cells(**changes: Any) -> Any:
    """Fifty cells: the features are in X, a layer, obs, and, without names, in obsm."""
    values = values_of(N, 3)
    matrix = np.zeros((N, len(GENES)))
    matrix[:, [3, 1]] = values
    obs = pd.DataFrame(
        {"age": values[:, 0], "weight": values[:, 1], "patient": np.arange(1000, 1000 + N)},
        index=NAMES,
    )
    made = anndata.AnnData(X=matrix, obs=obs, var=pd.DataFrame(index=GENES))
    made.obsm["X_two"] = values
    made.obsm["X_pca"] = np.column_stack([values, matrix])
    made.layers["counts"] = sparse.csr_matrix(matrix)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def write(path: Path, made: Any) -> Path:
    made.write_h5ad(path)
    return path


def read(
    path: Path, part: str | None = None, ids: str = "obs_names", features: Any = FEATURES
) -> tuple[list[Any], np.ndarray]:
    source = open_source([path], features, ids, SourceOptions(features=part))
    parts = list(source.parts())
    assert source.n_rows == sum(len(one) for one, _ in parts)
    return [one for some, _ in parts for one in some.tolist()], np.concatenate(
        [values for _, values in parts]
    )


def refused(path: Path, part: str | None = None, ids: str = "obs_names") -> str:
    with pytest.raises(TableError) as caught:
        read(path, part, ids)
    return str(caught.value)


@pytest.mark.parametrize(
    "part", ["obs", "X", "layers/counts", "obsm/X_two", "obsm/X_pca[:2]", None]
)
@pytest.mark.parametrize("piece", [64 << 20, 400])
def test_every_part_gives_the_same(
    tmp_path: Path, part: str | None, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", piece)
    path = write(tmp_path / "cells.h5ad", cells())
    ids, values = read(path, part)
    assert ids == NAMES
    assert values.tobytes() == values_of(N, 3).tobytes()


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_matrix, np.asarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.bool_])
def test_matrices_of_any_kind(tmp_path: Path, kind: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    matrix = (rng.random((N, len(GENES))) * 3).astype(dtype)
    path = write(tmp_path / "cells.h5ad", cells(X=kind(matrix)))
    _, values = read(path, "X")
    assert values.tobytes() == matrix[:, [3, 1]].astype(np.float64).tobytes()


def test_a_table_in_obsm_and_columns_that_may_be_missing(tmp_path: Path) -> None:
    made = cells()
    table = pd.DataFrame(made.obs[["weight", "age"]])
    made.obsm["table"] = table
    weight = pd.array(np.arange(N), dtype="Int64")
    weight[3] = pd.NA
    made.obs["weight"] = weight
    made.obs["age"] = pd.array(np.arange(N) % 2 == 0, dtype="boolean")
    path = write(tmp_path / "cells.h5ad", made)
    assert read(path, "obsm/table")[1].tobytes() == values_of(N, 3).tobytes()
    assert "weight" in refused(path, "obs")
    source = open_source(
        [path], FEATURES, "obs_names", SourceOptions(features="obs", missing="drop")
    )
    ((ids, values),) = source.parts()
    assert source.dropped == 1
    assert "CELL-3" not in ids.tolist()
    assert values[:4].tolist() == [[1, 0], [0, 1], [1, 2], [1, 4]]


def test_ids_from_a_column(tmp_path: Path) -> None:
    made = cells()
    made.obs["barcode"] = pd.Categorical([f"B{number % 7}-{number}" for number in range(N)])
    path = write(tmp_path / "cells.h5ad", made)
    assert read(path, "obs", "_index")[0] == NAMES
    assert read(path, "obs", "patient")[0] == list(range(1000, 1000 + N))
    assert read(path, "obs", "barcode")[0] == [f"B{number % 7}-{number}" for number in range(N)]
    assert "has no column 'nobody' in obs; ids may be in 'obs_names'" in refused(
        path, "obs", "nobody"
    )
    made.obs["barcode"] = made.obs["barcode"].cat.remove_categories(["B3-3"])
    write(path, made)
    assert "row 4 has no id in column 'barcode'" in refused(path, "obs", "barcode")
    made.obs["quality"] = 0.5
    write(path, made)
    assert "obs/quality holds float64, which cannot be ids" in refused(path, "obs", "quality")


def test_what_is_refused(tmp_path: Path) -> None:
    made = cells()
    path = write(tmp_path / "cells.h5ad", made)
    words = refused(path, "obsm/X_umap")
    assert "has no obsm/X_umap; --features takes one of obs, X, obsm/" in words
    for part in ("uns", "obsm/../obs", "raw/X", "/obs/age", "obs/age"):
        assert f"has no {part}; --features takes one of" in refused(path, part)
    words = refused(path, "obsm/X_pca")
    assert "7 columns of obsm/X_pca are given for the 2 features" in words
    assert "obsm/X_pca[:2] takes the first 2" in words
    assert "obsm/X_two has 2 columns, not 3" in refused(path, "obsm/X_two[:3]")
    del made.obs["age"]
    made.obs["weight"] = pd.Categorical(["a"] * N)
    write(path, made)
    assert "obs has no 'age'" in refused(path, "obs")
    made.var_names = ["x", "weight", "weight", "age", "y"]
    write(path, made)
    assert "X has 'weight' twice" in refused(path, "X")
    made.var_names = list("abcde")
    write(path, made)
    assert "say where the features are: --features with one of obs, X, obsm/" in refused(path)
    made.obs["age"] = 1.0
    write(path, made)
    assert "obs/weight holds categories, not numbers" in refused(path, "obs")
    made.obs["weight"] = np.full(N, 2**53 + 1)
    write(path, made)
    assert "obs/weight holds integers beyond 2**53" in refused(path, "obs")


def test_files_that_are_damaged_or_lie(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5ad"
    path.write_bytes(b"not HDF5 at all")
    assert "cannot be read" in refused(path)
    with h5py.File(path, "w") as file:
        file["X"] = np.zeros((3, 2))
    assert "its obs is not a table" in refused(path, "X")
    write(path, cells())
    with h5py.File(path, "r+") as file:
        del file["obsm/X_two"]
        file["obsm/X_two"] = np.zeros((N - 1, 2))
    assert "obsm/X_two has 49 rows and there are 50 names" in refused(path, "obsm/X_two")
    # A few bytes that claim to be ten thousand million cells.
    with h5py.File(path, "r+") as file:
        del file["obs/_index"]
        file["obs"].create_dataset("_index", (10**10,), dtype="i8", chunks=(1024,))
    assert "unpacks to far more than its own size" in refused(path, "obsm/X_two")


def test_a_client_imports_and_follows_cells(tmp_path: Path) -> None:
    world = World(tmp_path).set_up()
    made = cells()
    path = write(tmp_path / "cells.h5ad", made)

    def source() -> Any:
        return open_source([path], FEATURES, "obs_names", SourceOptions(features="obsm/X_two"))

    with open_client(world.client("aarhus")) as party:
        assert party.import_table(source())["added"] == N
    made.obsm["X_two"][1] += 1.0
    write(path, made[1:].copy())
    with open_client(world.client("aarhus")) as party:
        done = party.sync(source())
        assert (done.changed.examples, done.removed.examples) == (["CELL-1"], ["CELL-0"])
        assert party.audit().passed
    made = made[1:].copy()
    del made.obsm["X_pca"]
    write(path, made)
    with (
        open_client(world.client("aarhus")) as party,
        pytest.raises(Exception, match="has no column 'obsm/X_pca', which the last source had"),
    ):
        party.sync(source())
