"""Labels of cells, written into the AnnData file that the cells are in.

The new file takes the place of the old one when it is complete.  Everything else in it is copied as
it is, without being loaded, and the labels of an earlier time leave nothing behind.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedforget.arrays import Labels
from fedforget.clustering.ids import encode_id
from fedforget.errors import FedforgetError
from fedforget.parties.sources.anndata_files import OBS_NAMES, AnnDataReader
from fedforget.parties.sources.reader import Wanted, check_installed, told_otherwise
from fedforget.scverse import LABELLED, is_earlier_result
from fedforget.whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd


class Written(NamedTuple):
    """How many cells have a label, how many have none, and how many records are elsewhere."""

    labelled: int
    without: int
    elsewhere: int


def write_cell_labels(
    path: Path,
    ids: Sequence[int | str],
    labels: Labels,
    n_clusters: int,
    *,
    key: str = "fedforget",
    id_column: str | None = None,
) -> Written:
    """Write labels into a column of ``obs``, as a categorical with one category per cluster.

    Parameters
    ----------
    path : Path
        The file, which must exist.
    ids : sequence of int or str
        The records.
    labels : array of int
        The cluster of each, from 0.
    n_clusters : int
        How many clusters there are; categories are their numbers, as text.
    key : str
        The column; labels of an earlier time are replaced, any other column is refused.
    id_column : str, optional
        The column of ``obs`` with the ids; the cells' names if left out.

    Returns
    -------
    Written

    Raises
    ------
    FedforgetError
        If the file cannot be read or written; it stays as it was.
    """
    check_installed("anndata", "anndata", "AnnData")
    import h5py

    if path.is_dir():
        raise FedforgetError(f"{path} is a directory, not the AnnData file of the cells")
    if not path.is_file():
        raise FedforgetError(
            f"{path}: there is no such file; labels are written into the AnnData file of the cells"
        )
    try:
        with h5py.File(path, "r") as old:
            column, written = _looked_up(path, old, ids, labels, n_clusters, key, id_column)
            mode = path.stat().st_mode & 0o777
            with whole_file(path) as file:
                os.fchmod(file.fileno(), mode)
                # HDF5 reads what it has written.
                with os.fdopen(os.dup(file.fileno()), "r+b") as both, h5py.File(both, "w") as new:
                    _copy(old, new, key, column)
    except OSError as error:
        reason = error.strerror or str(error).splitlines()[0]
        raise FedforgetError(f"{path} cannot be labelled: {reason}; it is as it was") from None
    return written


def _looked_up(path: Path, file: Any, *given: Any) -> tuple[pd.Categorical, Written]:
    """The labels in the order of the cells; whatever is wrong with the file is a named error."""
    try:
        with told_otherwise("it is as it was"):
            return _column(path, file, *given)
    except (FedforgetError, OSError):
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FedforgetError(f"{path} cannot be labelled: {reason}; it is as it was") from None


def _column(
    path: Path,
    file: Any,
    ids: Sequence[int | str],
    labels: Labels,
    n_clusters: int,
    key: str,
    id_column: str | None,
) -> tuple[pd.Categorical, Written]:
    """The labels in the order of the cells."""
    import pandas as pd

    reader = AnnDataReader(str(path), Wanted(id_column or OBS_NAMES, ()), path)
    obs = reader.obs(file)
    if not key or "/" in key or key in (".", "_index", obs.attrs["_index"], id_column):
        raise FedforgetError(f"{key!r} cannot be the column of the labels: name another one")
    if key in obs and not _is_ours(file, key):
        raise FedforgetError(
            f"{path}: obs has a column {key!r} already, which does not hold earlier labels: name"
            " another one with --key; it is as it was"
        )
    cells = reader.ids(obs)
    label_of = dict(zip(map(encode_id, ids), labels.tolist(), strict=True))
    names = [None if cell is None else encode_id(cell) for cell in cells]
    # Several cells may be one record's: those of a patient, where ids are patients'.
    codes = [-1 if name is None else label_of.get(name, -1) for name in names]
    labelled = sum(code >= 0 for code in codes)
    if labelled == 0:
        raise FedforgetError(
            f"{path}: none of its cells is held by this client; it is as it was (--id names the"
            " column of obs with the ids)"
        )
    # Texts as objects: anndata cannot write those of pandas 3.
    numbers = pd.Index([str(number) for number in range(n_clusters)], dtype=object)
    column = pd.Categorical.from_codes(np.array(codes, dtype=np.int64), categories=numbers)
    return column, Written(labelled, len(cells) - labelled, len(label_of.keys() - set(names)))


def _is_ours(file: Any, key: str) -> bool:
    """Whether a column of an open file holds labels that were written before."""
    from anndata.io import read_elem

    uns = file.get("uns", {})
    known = {name: read_elem(uns[name]) for name in (key, LABELLED) if name in uns}
    return is_earlier_result(read_elem(file["obs"][key]), known, key)


def _copy(old: Any, new: Any, key: str, column: pd.Categorical) -> None:
    """Everything except the column of that name, and the labels in its place."""
    from anndata.io import write_elem

    _copy_attributes(old, new)
    for name in old:
        if name not in ("obs", "uns"):
            old.copy(name, new)
    _copy_uns(old, new, key)
    obs, copied = old["obs"], new.create_group("obs", track_order=True)
    _copy_attributes(obs, copied)
    for name in obs:
        if name != key:
            obs.copy(name, copied)
    write_elem(copied, key, column)
    order = [str(one) for one in obs.attrs.get("column-order", ())]
    copied.attrs["column-order"] = order if key in order else [*order, key]


def _copy_uns(old: Any, new: Any, key: str) -> None:
    """The rest of what is known, and which columns are labels."""
    from anndata.io import read_elem, write_elem

    if "uns" not in old:
        write_elem(new, "uns", {})
    elif LABELLED not in old["uns"]:
        old.copy("uns", new)
    else:
        _copy_attributes(old["uns"], new.create_group("uns", track_order=True))
        for name in old["uns"]:
            if name != LABELLED:
                old["uns"].copy(name, new["uns"])
    before = old["uns"].get(LABELLED) if "uns" in old else None
    keys = set() if before is None else set(np.ravel(read_elem(before)).tolist())
    write_elem(new["uns"], LABELLED, np.array(sorted({*map(str, keys), key}), dtype=object))


def _copy_attributes(old: Any, new: Any) -> None:
    for name, value in old.attrs.items():
        new.attrs[name] = value
