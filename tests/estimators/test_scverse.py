"""Cells in an AnnData object: the estimator's results, in the scverse's convention."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

anndata = pytest.importorskip("anndata")
pd = pytest.importorskip("pandas")

from scipy import sparse  # noqa: E402

from fedforget import DataTraceWarning, FederatedKMeans, FedforgetError, scverse  # noqa: E402
from fedforget.errors import DuplicateIdError, UnknownIdError  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("texts_are_objects"),
    # What anndata does inside, with a newer pandas than it knows.
    pytest.mark.filterwarnings("ignore:The 'mode.chained_assignment' option is deprecated"),
]

N = 120
PUBLIC: dict[str, Any] = {"bounds": (-8.0, 8.0), "step": 0.01}


def cells(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 3, (4, 3))
    values = (centres[rng.integers(0, 4, N)] + rng.normal(0, 0.3, (N, 3))).clip(-8, 8)
    names = [f"cell-{number}" for number in range(N)]
    sites = [("north", "south", "west")[number % 3] for number in range(N)]
    made = anndata.AnnData(
        X=sparse.csr_matrix(values.astype(np.float32)),
        obs=pd.DataFrame({"site": pd.Categorical(sites)}, index=names),
    )
    made.obsm["X_pca"] = values.astype(np.float32)
    return made


def estimator(adata: Any, kept: np.ndarray | None = None, **parameters: Any) -> FederatedKMeans:
    """A fresh fit of the estimator to some cells."""
    kept = np.ones(adata.n_obs, dtype=bool) if kept is None else kept
    model = FederatedKMeans(4, random_state=0, **PUBLIC | parameters)
    return model.fit(
        adata.obsm["X_pca"][kept],
        clients=adata.obs["site"].to_numpy()[kept].tolist(),
        ids=adata.obs_names.to_numpy()[kept].tolist(),
    )


def check(adata: Any, model: FederatedKMeans, key: str = "fedforget") -> None:
    """The results in an object are those of a model, to the last bit."""
    column = adata.obs[key]
    assert column.cat.codes.tolist() == model.labels_.tolist()
    centres = model.cluster_centers_
    assert column.cat.categories.tolist() == [str(number) for number in range(len(centres))]
    results = adata.uns[key]
    assert results["model_digest"] == model.model_digest_
    assert np.asarray(results["cluster_centers"]).tobytes() == centres.tobytes()
    assert results["inertia"] == model.inertia_


@pytest.mark.parametrize(
    "more", [{}, {"representatives": "lloyd"}, {"min_cell": 3, "scale": "box"}]
)
def test_the_results_are_the_estimators(seed: int, more: dict[str, Any]) -> None:
    adata = cells(seed)
    assert scverse.kmeans(adata, 4, client_key="site", **PUBLIC, **more) is None
    check(adata, estimator(adata, **more))
    whole = adata.copy()
    gone = [f"cell-{number}" for number in range(0, N, 7)]
    kept = ~whole.obs_names.isin(gone)
    assert scverse.forget(adata, gone) is None
    assert adata.obs_names.tolist() == whole.obs_names[kept].tolist()
    check(adata, estimator(whole, kept, **more))
    # Once more, and one cell alone.
    scverse.forget(adata, "cell-1")
    kept &= whole.obs_names != "cell-1"
    check(adata, estimator(whole, kept, **more))


def test_copies_leave_the_object_alone() -> None:
    adata = cells()
    made = scverse.kmeans(adata, 4, client_key="site", key_added="sites", copy=True, **PUBLIC)
    assert "sites" not in adata.obs
    assert "sites" not in adata.uns
    smaller = scverse.forget(made, ["cell-0", "cell-5"], key_added="sites", copy=True)
    assert (made.n_obs, smaller.n_obs) == (N, N - 2)
    check(made, estimator(adata), "sites")
    kept = ~adata.obs_names.isin(["cell-0", "cell-5"])
    check(smaller, estimator(adata, kept), "sites")
    scverse.forget(made, ["cell-0", "cell-5"], key_added="sites")
    check(made, estimator(adata, kept), "sites")


def test_a_file_is_enough_to_forget(tmp_path: Path) -> None:
    """No model is stored; what was inferred is."""
    adata = cells()
    with pytest.warns(DataTraceWarning):
        scverse.kmeans(
            adata, 4, client_key="site", local_clusters={"north": 3, "south": 5, "west": 4}
        )
    adata.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    check(again, estimator(adata, bounds=adata.uns["fedforget"]["params"]["bounds"],
                           step=adata.uns["fedforget"]["params"]["step"],
                           local_clusters={"north": 3, "south": 5, "west": 4}))  # fmt: skip
    scverse.forget(again, ["cell-3"])
    scverse.forget(adata, ["cell-3"])
    assert again.uns["fedforget"]["model_digest"] == adata.uns["fedforget"]["model_digest"]
    again.write_h5ad(tmp_path / "cells.h5ad")


def test_the_model_that_is_still_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    adata = cells()
    scverse.kmeans(adata, 4, client_key="site", **PUBLIC)
    fits: list[int] = []
    whole = FederatedKMeans.fit

    def counted(self: FederatedKMeans, *given: Any, **named: Any) -> FederatedKMeans:
        fits.append(1)
        return whole(self, *given, **named)

    monkeypatch.setattr(FederatedKMeans, "fit", counted)
    scverse.forget(adata, ["cell-1"])
    scverse.forget(adata, ["cell-2"])
    assert not fits
    # Not for another object, and not if anything has changed.
    other = adata.copy()
    scverse.forget(other, ["cell-3"])
    assert len(fits) == 1
    adata.obsm["X_pca"][0] += 0.5
    with pytest.raises(FedforgetError, match="are not those of these cells"):
        scverse.forget(adata, ["cell-3"])
    assert adata.n_obs == N - 2
    number = id(other)
    assert number in scverse._live
    del other
    gc.collect()
    assert number not in scverse._live


def test_views_become_objects_of_their_own() -> None:
    adata = cells()
    scverse.kmeans(adata, 4, client_key="site", **PUBLIC)
    view = adata[:]
    scverse.forget(view, ["cell-1"])
    assert (view.n_obs, adata.n_obs, view.is_view) == (N - 1, N, False)
    check(view, estimator(adata, adata.obs_names != "cell-1"))


def test_one_client_and_sparse_values() -> None:
    adata = cells()
    scverse.kmeans(adata, 4, use_rep="X", **PUBLIC)
    model = FederatedKMeans(4, random_state=0, **PUBLIC)
    model.fit(adata.X.toarray(), ids=adata.obs_names.tolist())
    check(adata, model)
    scverse.forget(adata, ["cell-9"])
    model.forget(["cell-9"])
    check(adata, model)


def test_what_is_refused() -> None:
    adata = cells()
    with pytest.raises(FedforgetError, match="no results under 'fedforget'"):
        scverse.forget(adata, ["cell-0"])
    with pytest.raises(
        KeyError, match="'X_umap' is neither 'X' nor a key of obsm, which has 'X_pca'"
    ):
        scverse.kmeans(adata, 4, use_rep="X_umap", **PUBLIC)
    with pytest.raises(KeyError, match="client_key='ward' is not a column of obs"):
        scverse.kmeans(adata, 4, client_key="ward", **PUBLIC)
    for state in (None, np.random.default_rng(0), True):
        with pytest.raises(TypeError, match="random_state must be an integer"):
            scverse.kmeans(adata, 4, random_state=state, **PUBLIC)  # type: ignore[arg-type]
    bare = anndata.AnnData(obs=adata.obs.copy())
    with pytest.raises(ValueError, match="has no X"):
        scverse.kmeans(bare, 4, use_rep="X", **PUBLIC)
    adata.obs["site"] = adata.obs["site"].cat.remove_categories(["west"])
    with pytest.raises(ValueError, match="does not say who holds 'cell-2'"):
        scverse.kmeans(adata, 4, client_key="site", **PUBLIC)
    adata = cells()
    scverse.kmeans(adata, 4, client_key="site", **PUBLIC)
    for names, problem in ((["cell-0", "x"], UnknownIdError), (["cell-0"] * 2, DuplicateIdError)):
        with pytest.raises(problem):
            scverse.forget(adata, names)
        assert adata.n_obs == N
        check(adata, estimator(adata))
    scverse.forget(adata, ["cell-0"])
    assert adata.n_obs == N - 1


def test_a_column_of_data_is_not_overwritten() -> None:
    adata = cells()
    adata.obs["leiden"] = pd.Categorical(["0", "1"] * (N // 2))
    adata.obs["fedforget"] = np.arange(N) / 7
    before = adata.obs.copy()
    for key in ("site", "leiden", "fedforget"):
        with pytest.raises(FedforgetError, match=f"a column '{key}' already.*key_added"):
            scverse.kmeans(adata, 4, key_added=key, client_key="site", **PUBLIC)
    assert adata.obs.equals(before)
    scverse.kmeans(adata, 4, key_added="mine", client_key="site", **PUBLIC)
    some = adata[adata.obs["mine"] != "1"].copy()
    scverse.kmeans(some, 2, key_added="mine", client_key="site", **PUBLIC)
    assert set(some.obs["mine"]) == {"0", "1"}
