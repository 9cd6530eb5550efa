"""Cells on the command line: imported from an .h5ad file, followed, and labelled in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
pd = pytest.importorskip("pandas")

from test_parties import NAMES, error, quick_answer, told  # noqa: E402

from fedforget.cli import cell_labels  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("texts_are_objects"),
    # What anndata does inside, with a newer pandas than it knows.
    pytest.mark.filterwarnings("ignore:The 'mode.chained_assignment' option is deprecated"),
]


def cells(name: str, n: int = 60) -> Any:
    rng = np.random.default_rng(len(name))
    values = rng.random((n, 3))
    obs = pd.DataFrame(
        {"quality": rng.random(n), "site": pd.Categorical([name] * n)},
        index=[f"{name}-{number}" for number in range(n)],
    )
    made = anndata.AnnData(X=rng.random((n, 4)), obs=obs)
    made.obsm["X_pca"] = values
    made.uns["note"] = {"kept": "as it is"}
    return made


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cells")
    features = [part for one in ("PC1", "PC2", "PC3") for part in ("--feature", f"{one}:0:1")]
    quick_answer(folder, "server", "init", "server", "--name", "s", "--clusters", "3", *features)
    for name in NAMES:
        quick_answer(folder, "client", "init", name, "--name", name)
    enrolments = [part for name in NAMES for part in ("--client", f"{name}/enrolment.json")]
    quick_answer(folder, "server", "enrol", "server", *enrolments)
    given = ("--federation", "server/federation.toml", "--epoch", "server/epoch-1.json")
    for name in NAMES:
        quick_answer(folder, "client", "join", name, *given)
    return folder


PCA = ("--features", "obsm/X_pca")


def test_from_import_to_labels(study: Path) -> None:
    for name in NAMES:
        cells(name).write_h5ad(study / f"{name}.h5ad")
        done = quick_answer(study, "client", "import", name, f"{name}.h5ad", *PCA)
        assert done["added"] == 60
    quick_answer(study, "round", "server", *NAMES)
    quick_answer(study, "server", "model", "server", "-o", "model.npz")
    # Two cells are gone from tonight's file, and one is new.
    more = anndata.concat([cells("aarhus")[2:], cells("new", 1)], uns_merge="first")
    more.write_h5ad(study / "aarhus.h5ad")
    done = quick_answer(study, "client", "sync", "aarhus", "aarhus.h5ad", *PCA)
    assert (done["added"], done["changed"], done["removed"]) == (1, 0, 2)
    (study / "aarhus.h5ad").chmod(0o640)
    label = ("client", "labels", "aarhus", "--model", "model.npz", "-o", "aarhus.h5ad")
    first = quick_answer(study, *label)
    assert (first["labelled"], first["without"], first["elsewhere"]) == (59, 0, 0)
    assert stat.S_IMODE((study / "aarhus.h5ad").stat().st_mode) == 0o640
    quick_answer(study, "client", "labels", "aarhus", "--model", "model.npz", "-o", "labels.csv")
    expected = pd.read_csv(study / "labels.csv").set_index("id")["cluster"]
    found = anndata.read_h5ad(study / "aarhus.h5ad")
    column = found.obs["fedforget"]
    assert column.cat.categories.tolist() == ["0", "1", "2"]
    assert column.astype(int).to_dict() == expected.to_dict()
    for one in (found, more):
        assert one.uns["note"]["kept"] == "as it is"
    assert found.X.tobytes() == more.X.tobytes()
    assert found.obs.drop(columns="fedforget").equals(more.obs)
    # The file does not grow, and the old labels are nowhere.
    quick_answer(study, *label)
    size = (study / "aarhus.h5ad").stat().st_size
    quick_answer(study, *label)
    assert (study / "aarhus.h5ad").stat().st_size == size
    quick_answer(study, *label, "--key", "again")
    both = anndata.read_h5ad(study / "aarhus.h5ad").obs
    assert both["again"].tolist() == both["fedforget"].tolist()


def test_cells_that_are_not_held_have_no_label(study: Path) -> None:
    made = anndata.concat([cells("bologna")[:10], cells("stranger", 5)])
    made.obs["barcode"] = made.obs_names.to_numpy()
    made.obs_names = [f"row {number}" for number in range(15)]
    made.write_h5ad(study / "mixed.h5ad")
    label = ("client", "labels", "bologna", "--model", "model.npz", "-o", "mixed.h5ad")
    before = (study / "mixed.h5ad").read_bytes()
    assert "none of its cells is held by this client" in error(study, *label)
    assert (study / "mixed.h5ad").read_bytes() == before
    shown = told(study, *label, "--id", "barcode")
    assert "10 labels written to mixed.h5ad" in shown
    assert "5 cells of the file are not held here" in shown
    assert "50 records are not cells of the file" in shown
    column = anndata.read_h5ad(study / "mixed.h5ad").obs["fedforget"]
    assert column.isna().tolist() == [False] * 10 + [True] * 5


def test_all_cells_of_one_record_have_its_label(study: Path) -> None:
    made = cells("bologna", 5)
    patients = made.obs_names.tolist()
    made.obs["patient"] = [*patients[:3], *patients[:2]]
    made.obs_names = [f"row {number}" for number in range(5)]
    made.write_h5ad(study / "several.h5ad")
    label = ("client", "labels", "bologna", "--model", "model.npz", "-o", "several.h5ad")
    done = quick_answer(study, *label, "--id", "patient")
    assert (done["labelled"], done["without"], done["elsewhere"]) == (5, 0, 57)
    column = anndata.read_h5ad(study / "several.h5ad").obs["fedforget"].astype(int).tolist()
    assert column[3:] == column[:2]


def test_a_file_that_cannot_be_labelled_stays_as_it_was(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = ("client", "labels", "bologna", "--model", "model.npz", "-o")
    assert "there is no such file" in error(study, *label, "missing.h5ad")
    (study / "folder.h5ad").mkdir()
    assert "is a directory" in error(study, *label, "folder.h5ad")
    (study / "broken.h5ad").write_bytes(b"no HDF5")
    assert "cannot be labelled" in error(study, *label, "broken.h5ad")
    assert (study / "broken.h5ad").read_bytes() == b"no HDF5"
    before = (study / "bologna.h5ad").read_bytes()
    for key in ("_index", "a/b", "", "."):
        words = error(study, *label, "bologna.h5ad", "--key", key)
        assert "cannot be the column of the labels" in words

    def fails(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cell_labels, "_copy", fails)
    words = error(study, *label, "bologna.h5ad")
    assert "No space left on device; it is as it was" in words
    assert (study / "bologna.h5ad").read_bytes() == before
    assert not [name for name in os.listdir(study) if name.startswith(".fedforget")]


def test_only_cells_have_names_of_their_own(study: Path) -> None:
    (study / "t.csv").write_text("PC1,PC2,PC3\n0,0,0\n", encoding="utf-8")
    assert "--id COLUMN" in error(study, "client", "import", "aarhus", "t.csv")
    words = error(study, "client", "import", "aarhus", "bologna.h5ad")
    assert "say where the features are: --features with one of obs, X, obsm/X_pca" in words


def test_a_column_of_data_is_not_overwritten(study: Path) -> None:
    made = cells("bologna")
    made.obs["leiden"] = pd.Categorical(["0", "1"] * 30)
    made.write_h5ad(study / "columns.h5ad")
    before = (study / "columns.h5ad").read_bytes()
    label = ("client", "labels", "bologna", "--model", "model.npz", "-o", "columns.h5ad")
    for key in ("quality", "site", "leiden"):
        words = error(study, *label, "--key", key)
        assert f"obs has a column '{key}' already" in words
        assert "--key" in words
    assert (study / "columns.h5ad").read_bytes() == before
    # What was written before is known again, even after another program wrote the file.
    for key in ("mine", "other"):
        quick_answer(study, *label, "--key", key)
        anndata.read_h5ad(study / "columns.h5ad").write_h5ad(study / "columns.h5ad")
        quick_answer(study, *label, "--key", key)
    found = anndata.read_h5ad(study / "columns.h5ad")
    assert found.obs["mine"].equals(found.obs["other"].rename("mine"))
    assert found.uns["note"]["kept"] == "as it is"
    made.obs["fedforget"] = made.obs["quality"]
    made.write_h5ad(study / "columns.h5ad")
    assert "obs has a column 'fedforget' already" in error(study, *label)


def test_a_file_without_the_names_of_its_cells(study: Path) -> None:
    cells("bologna").write_h5ad(study / "nameless.h5ad")
    with h5py.File(study / "nameless.h5ad", "r+") as file:
        del file["obs"][file["obs"].attrs["_index"]]
    label = ("client", "labels", "bologna", "--model", "model.npz", "-o", "nameless.h5ad")
    words = error(study, *label)
    assert "its obs lacks the names of the cells" in words
    assert "it is as it was" in words
    assert "imported" not in words
    given = ("client", "import", "bologna", "nameless.h5ad", *PCA)
    assert "its obs lacks the names of the cells" in error(study, *given)
