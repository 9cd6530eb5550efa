"""Federated K-means of cells, in the scverse's convention: results go into ``obs`` and ``uns``.

Both functions change the AnnData object that they are given, or return a changed copy with
``copy=True``.  The results are those of :class:`fedforget.FederatedKMeans` in every bit.

``uns[key_added]`` holds the parameters, the centres, the loss and the digest of the model: plain
numbers and texts, which ``write_h5ad`` takes.  The model itself is a function of the cells and of
these parameters; so :func:`forget` also works with an object that was read from a file.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedforget.arrays import Floats, Labels
from fedforget.digests import Digest
from fedforget.errors import FedforgetError
from fedforget.estimators import FederatedKMeans

if TYPE_CHECKING:
    import pandas as pd
    from anndata import AnnData

__all__ = ["forget", "kmeans"]

_OWN = ("use_rep", "client_key")
"""Parameters of :func:`kmeans` that are not parameters of the estimator."""

LABELLED = "fedforget_labels"
"""The key of ``uns`` that names the columns into which ``client labels`` has written."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")

_live: dict[int, tuple[weakref.ref[Any], dict[str, tuple[str, FederatedKMeans]]]] = {}
"""Fitted models of objects that still exist, with the digest of what they were fitted to."""


def kmeans(
    adata: AnnData,
    n_clusters: int = 8,
    *,
    use_rep: str = "X_pca",
    client_key: str | None = None,
    key_added: str = "fedforget",
    random_state: int = 0,
    copy: bool = False,
    **parameters: Any,
) -> AnnData | None:
    """Cluster cells that several clients hold; :func:`forget` takes cells out again, exactly.

    Parameters
    ----------
    adata : AnnData
        The cells.  Their names are the ids.
    n_clusters : int, default=8
        Number of clusters.
    use_rep : str, default="X_pca"
        What is clustered: a key of ``obsm``, or ``"X"``.
    client_key : str, default=None
        The column of ``obs`` that says who holds each cell; one client for all if left out.
    key_added : str, default="fedforget"
        Under which key the results are stored.  A column of ``obs`` that holds anything else than
        earlier results is refused.
    random_state : int, default=0
        Source of the clients' secrets and of the public seed.
    copy : bool, default=False
        Return a changed copy instead of changing ``adata``.
    **parameters
        Further parameters of :class:`fedforget.FederatedKMeans`, such as ``bounds``, ``step`` and
        ``min_cell``.  Bounds and a step that are left out are inferred from the cells and kept,
        with a warning: they keep a trace of cells that are forgotten later.

    Returns
    -------
    AnnData or None
        ``obs[key_added]`` holds the clusters as a categorical of texts, ``uns[key_added]`` the
        parameters (``params``), ``cluster_centers``, ``inertia`` and ``model_digest``.

    Notes
    -----
    A representation that was computed from all cells, such as PCA, keeps a trace of each of them.
    Forgetting is exact from the representation on.  Use one that does not depend on the cells (a
    fixed panel of genes, a reference's loadings), or compute it again without the forgotten ones.
    """
    params = {"n_clusters": n_clusters, "random_state": _seed(random_state), **parameters}
    model = FederatedKMeans(**params)
    if key_added in adata.obs and not is_earlier_result(adata.obs[key_added], adata.uns, key_added):
        raise FedforgetError(
            f"obs has a column {key_added!r} already, which does not hold earlier results: name"
            " another one with key_added; nothing was changed"
        )
    values, names, clients = _cells(adata, use_rep, client_key)
    model.fit(values, clients=clients, ids=names)
    # What was inferred is in force from now on.
    params |= {"bounds": model.bounds_, "step": model.step_}
    result = adata.copy() if copy else adata
    _write(result, model, key_added, params | {"use_rep": use_rep, "client_key": client_key})
    _remember(result, key_added, _fingerprint(values, names, clients), model)
    return result if copy else None


def forget(
    adata: AnnData,
    obs_names: str | Iterable[str],
    *,
    key_added: str = "fedforget",
    copy: bool = False,
) -> AnnData | None:
    """Forget cells: they leave the object, and the clusters are those of a fit without them.

    Parameters
    ----------
    adata : AnnData
        Cells with the results of :func:`kmeans`.
    obs_names : str or iterable of str
        The cells to forget.  All of them must be there; otherwise nothing changes.
    key_added : str, default="fedforget"
        The key of the results.
    copy : bool, default=False
        Return a changed copy instead of changing ``adata``.

    Returns
    -------
    AnnData or None
        The remaining cells, with new results.

    Raises
    ------
    FedforgetError
        If there are no results, or if cells, representation or results have changed since.
    UnknownIdError
        If a cell is not there.

    Notes
    -----
    The arrays of the object are replaced, not overwritten, and other results in it (neighbours, an
    embedding) are not computed again.
    """
    gone = [obs_names] if isinstance(obs_names, str) else list(obs_names)
    params = _params(adata, key_added)
    own = {name: params.pop(name, None) for name in _OWN}
    values, names, clients = _cells(adata, own["use_rep"], own["client_key"])
    model = _fitted(adata, key_added, params, values, names, clients, keep=copy)
    model.forget(gone)
    forgotten = frozenset(gone)
    kept = np.array([name not in forgotten for name in names], dtype=np.bool_)
    if copy:
        result = adata[kept].copy()
    else:
        if adata.is_view:
            adata._init_as_actual(adata.copy())
        adata._inplace_subset_obs(kept)
        result = adata
    _write(result, model, key_added, params | own)
    _remember(result, key_added, _fingerprint(*_cells(result, **own)), model)
    return result if copy else None


def _seed(random_state: Any) -> int:
    """A number that can be stored: what comes from a generator cannot be drawn again."""
    if isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer)):
        raise TypeError(
            f"random_state must be an integer, not {type(random_state).__name__}: forget computes"
            " with it again"
        )
    return int(random_state)


# -- what is clustered -----------------------------------------------------------------------------


def _cells(
    adata: AnnData, use_rep: str, client_key: str | None
) -> tuple[Floats, list[str], list[Any] | None]:
    """Values, names and clients of all cells."""
    if use_rep == "X":
        found: Any = adata.X
    elif use_rep in adata.obsm:
        found = adata.obsm[use_rep]
    else:
        there = ", ".join(map(repr, adata.obsm)) or "none"
        raise KeyError(f"use_rep={use_rep!r} is neither 'X' nor a key of obsm, which has {there}")
    if found is None:
        raise ValueError("use_rep='X', but this object has no X")
    values = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    names = [str(name) for name in adata.obs_names]
    if client_key is None:
        return values, names, None
    if client_key not in adata.obs:
        raise KeyError(f"client_key={client_key!r} is not a column of obs")
    clients = adata.obs[client_key]
    if clients.isna().any():
        raise ValueError(f"obs[{client_key!r}] does not say who holds {names[_first(clients)]!r}")
    return values, names, clients.tolist()


def _first(column: pd.Series) -> int:
    return int(column.isna().to_numpy().argmax())


# -- results ---------------------------------------------------------------------------------------


def is_earlier_result(column: Any, uns: Mapping[str, Any], key: str) -> bool:
    """Whether a column of ``obs`` holds clusters that were written before, and may be replaced.

    Clusters of other programs look the same, so ``uns`` must say whose they are.  Only under the
    default key, which nobody else uses, looks are enough.
    """
    categories = getattr(getattr(column, "cat", column), "categories", None)
    # Those of clusters without cells may be gone since.
    if categories is None or not all(_NUMBER.fullmatch(str(one)) for one in categories):
        return False
    results = uns.get(key)
    here = isinstance(results, Mapping) and {"params", "model_digest"} <= results.keys()
    labelled = key in map(str, np.ravel(uns.get(LABELLED, ())).tolist())
    return key == "fedforget" or here or labelled


def _write(adata: AnnData, model: FederatedKMeans, key: str, params: Mapping[str, Any]) -> None:
    adata.obs[key] = _categorical(model.labels_, len(model.cluster_centers_))
    adata.uns[key] = {
        "params": {name: _plain(value) for name, value in params.items() if value is not None},
        "cluster_centers": model.cluster_centers_,
        "inertia": float(model.inertia_),
        "model_digest": model.model_digest_,
    }


def _categorical(labels: Labels, n_clusters: int) -> pd.Categorical:
    import pandas as pd

    # Texts as objects: anndata cannot write those of pandas 3.
    categories = pd.Index([str(number) for number in range(n_clusters)], dtype=object)
    return pd.Categorical.from_codes(labels.astype(np.int64), categories=categories)


def _plain(value: Any) -> Any:
    """A parameter as ``write_h5ad`` takes it."""
    if isinstance(value, Mapping):
        return {str(name): int(count) for name, count in value.items()}
    return np.array(value) if isinstance(value, (list, tuple)) else value


def _params(adata: AnnData, key: str) -> dict[str, Any]:
    """The parameters of the last fit; a file gives NumPy's numbers back."""
    results = adata.uns.get(key)
    if not isinstance(results, Mapping) or not isinstance(results.get("params"), Mapping):
        raise FedforgetError(f"uns has no results under {key!r}: call fedforget.scverse.kmeans")
    found = dict(results["params"])
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in found.items()
    }


# -- models that are still there -------------------------------------------------------------------


def _fitted(
    adata: AnnData,
    key: str,
    params: dict[str, Any],
    values: Floats,
    names: list[str],
    clients: list[Any] | None,
    *,
    keep: bool,
) -> FederatedKMeans:
    """The model of the cells: the one that is still there, or the same, fitted again.

    With ``keep`` the one that is there is not to be changed.
    """
    digest = adata.uns[key].get("model_digest")
    reference, models = _live.get(id(adata), (None, {}))
    if not keep and reference is not None and reference() is adata and key in models:
        fingerprint, model = models.pop(key)
        if fingerprint == _fingerprint(values, names, clients) and model.model_digest_ == digest:
            return model
    model = FederatedKMeans(**params).fit(values, clients=clients, ids=names)
    if model.model_digest_ != digest:
        raise FedforgetError(
            f"the results under {key!r} are not those of these cells: cells, representation,"
            " clients or results have changed since. Call fedforget.scverse.kmeans again"
        )
    return model


def _remember(adata: AnnData, key: str, fingerprint: str, model: FederatedKMeans) -> None:
    number = id(adata)
    reference, models = _live.get(number, (None, {}))
    if reference is None or reference() is not adata:
        reference, models = weakref.ref(adata, lambda _: _live.pop(number, None)), {}
    models[key] = fingerprint, model
    _live[number] = reference, models


def _fingerprint(values: Floats, names: list[str], clients: list[Any] | None) -> str:
    """A digest of what a model was fitted to."""
    digest = Digest("cells").field("names", "\0".join(names))
    if clients is not None:
        digest.field("clients", "\0".join(map(str, clients)))
    return digest.array("values", np.ascontiguousarray(values)).hex()
