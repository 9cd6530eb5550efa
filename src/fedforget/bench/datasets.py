"""The paper's datasets or what stands in for them, small ones for a quick run, and one's own.

Every set comes out in the unit cube, as the paper scales its data, with a client for each record.
``note`` says where a set departs from the paper's and how it was scaled.

Files are looked for in the folder passed as ``data_dir``, else in the one that the environment
variable ``FEDFORGET_DATA`` names, else in ``../shared/data`` beside the repository.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn import datasets as bundled

from fedforget.arrays import Floats, Ints
from fedforget.baselines.federation import check_values
from fedforget.baselines.lloyd import lloyd
from fedforget.bench.splits import fragmented, global_clusters, in_file_order, natural, non_iid
from fedforget.clustering.ids import parse_ids
from fedforget.incoming import open_npz

DATA_VARIABLE = "FEDFORGET_DATA"
"""The environment variable that names the folder with the data files."""

Split = Literal["file", "shuffled", "fragmented"]
"""How records are dealt: :func:`~fedforget.bench.splits.in_file_order`, as the paper's authors do,
:func:`~fedforget.bench.splits.non_iid` or :func:`~fedforget.bench.splits.fragmented`."""

_POSTURES_ROWS = 74_975

_COVTYPE_START = (12976, 6689, 6872, 1045, 12747, 3201, 1846)
"""Rows of Covtype from which Lloyd's iteration finds the clusters whose sizes the paper prints."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records in the unit cube, divided among clients.

    Attributes
    ----------
    name : what :func:`load` knows the set by.
    paper_name : the paper's set that it is or stands in for; empty where there is none.
    X : (n, d) float64, C-contiguous.
    clients : the client of each record, 0 … ``n_clients`` − 1.
    n_clusters : K.
    k_prime : K′, the most global clusters that a client sees.
    n_clients : L.
    note : where the data come from, how they differ from the paper's, and what was done to them.
    clusters : the global cluster of each record by which the records were dealt; None where the
        clients are the data's own.
    printed_start : rows from which Lloyd's iteration finds the clustering that the paper compares
        with, where that is not the best one known; else empty.
    """

    name: str
    paper_name: str
    X: Floats
    clients: Ints
    n_clusters: int
    k_prime: int
    n_clients: int
    note: str
    clusters: Ints | None = None
    printed_start: tuple[int, ...] = ()

    @property
    def step(self) -> float:
        """The paper's default grid, γ = 1/√n."""
        return float(len(self.X) ** -0.5)


@dataclass(frozen=True)
class _Recipe:
    """How a set is made: its rows in the unit cube, and its natural clients if it has any."""

    paper_name: str
    n_clusters: int
    n_clients: int
    make: Callable[[Path | None, int], tuple[Floats, Ints | None]]
    note: str
    printed_start: tuple[int, ...] = ()


def names() -> tuple[str, ...]:
    """The sets that :func:`load` knows: the paper's seven in its order, then the small ones."""
    return tuple(_RECIPES)


def load(
    name: str, data_dir: str | Path | None = None, *, seed: int = 0, split: Split = "file"
) -> Dataset:
    """A dataset with its clients.

    Clients are the data's own where it has as many as the paper.  Otherwise records are dealt by
    the clusters of centralised K-means++, with K′ = ⌊√K⌋ (:func:`default_k_prime`).  Covtype is
    dealt by the clusters whose sizes the paper prints.

    Parameters
    ----------
    name : one of :func:`names`.
    data_dir : the folder with the files; see the module's description.
    seed : of generated records, subsamples and splits.
    split : how records are dealt; ``"fragmented"`` deals those of natural clients, too.

    Raises
    ------
    ValueError
        The name is not known.
    FileNotFoundError
        The set needs a file, and it is not there.
    """
    if name not in _RECIPES:
        raise ValueError(f"no dataset is called {name!r}; there are {', '.join(_RECIPES)}")
    recipe = _RECIPES[name]
    X, clients = recipe.make(None if data_dir is None else Path(data_dir), seed)
    k_prime = default_k_prime(recipe.n_clusters)
    clusters = None
    if clients is None or split == "fragmented":
        if recipe.printed_start:
            start = X[list(recipe.printed_start)]
            clusters = lloyd(X, start).labels.astype(np.int64)
        else:
            clusters = global_clusters(X, recipe.n_clusters, seed=seed)
        clients = _dealt(X, clusters, recipe.n_clients, k_prime, seed, split)
    return Dataset(
        name, recipe.paper_name, X, clients, recipe.n_clusters, k_prime, recipe.n_clients,
        recipe.note, clusters, recipe.printed_start,
    )  # fmt: skip


def _dealt(
    X: Floats, clusters: Ints, n_clients: int, k_prime: int, seed: int, split: Split
) -> Ints:
    if split == "fragmented":
        return fragmented(X, clusters, n_clients, k_prime, seed=seed)
    deal = in_file_order if split == "file" else non_iid
    return deal(clusters, n_clients, k_prime, seed=seed)


def default_k_prime(n_clusters: int) -> int:
    """The largest K′ ≤ √K, but at least 2 where K allows.

    The paper says K′ ~ √K; K-FED, whose setting it takes over, asks for K′ ≤ √K.

    >>> [default_k_prime(k) for k in (1, 2, 4, 5, 7, 10, 62)]
    [1, 2, 2, 2, 2, 3, 7]
    """
    return min(n_clusters, max(2, math.isqrt(n_clusters)))


def find_data(data_dir: str | Path | None = None) -> Path | None:
    """The folder with the data files; None if nothing was named and the default is not there."""
    named = data_dir or os.environ.get(DATA_VARIABLE)
    if named:
        return Path(named)
    default = Path(__file__).resolve().parents[4] / "shared" / "data"
    return default if default.is_dir() else None


def unit_columns(X: npt.ArrayLike) -> Floats:
    """Each column to [0, 1] by its own minimum and maximum; a constant one becomes 0.

    >>> unit_columns([[1.0, 7.0], [3.0, 7.0], [2.0, 7.0]])
    array([[0. , 0. ],
           [1. , 0. ],
           [0.5, 0. ]])
    """
    values = np.asarray(X, dtype=np.float64)
    low, spread = values.min(axis=0), np.ptp(values, axis=0)
    scaled: Floats = np.ascontiguousarray((values - low) / np.where(spread > 0.0, spread, 1.0))
    return scaled


def unit_box(X: npt.ArrayLike) -> Floats:
    """All columns by one common shift and factor, so that distances keep their proportions."""
    values = np.asarray(X, dtype=np.float64)
    spread = float(np.ptp(values)) or 1.0
    scaled: Floats = np.ascontiguousarray((values - values.min()) / spread)
    return scaled


# -- the paper's sets ------------------------------------------------------------------------------


def _read(name: str, data_dir: Path | None, *keys: str) -> list[npt.NDArray[Any]]:
    folder = find_data(data_dir)
    if folder is None:
        raise FileNotFoundError(
            f"{name}.npz is needed: pass data_dir or set {DATA_VARIABLE} to the folder with it"
        )
    path = folder / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path.name} in {folder}")
    with np.load(path, allow_pickle=False) as file:
        return [file[key] for key in keys]


def _gaussian(_: Path | None, seed: int) -> tuple[Floats, None]:
    rng = np.random.default_rng(seed)
    centres = np.repeat(rng.random((10, 10)), 3_000, axis=0)
    return unit_box(centres + rng.normal(0.0, 0.5**0.5, centres.shape)), None


def _celltype(data_dir: Path | None, _: int) -> tuple[Floats, Ints]:
    X, clients = _read("celltype", data_dir, "X", "client")
    return np.ascontiguousarray(X, dtype=np.float64), clients.astype(np.int64)


def _covtype(data_dir: Path | None, _: int) -> tuple[Floats, None]:
    return unit_columns(*_read("covtype", data_dir, "X")), None


def _postures(data_dir: Path | None, _: int) -> tuple[Floats, None]:
    return unit_columns(*_read("postures_subset", data_dir, "X")), None


def _body_postures(data_dir: Path | None, seed: int) -> tuple[Floats, None]:
    (X,) = _read("body_postures_puc", data_dir, "X")
    rows = np.random.default_rng(seed).choice(len(X), _POSTURES_ROWS, replace=False)
    return unit_columns(X[np.sort(rows)]), None


def _femnist(data_dir: Path | None, _: int) -> tuple[Floats, Ints]:
    X, clients = _read("mnist_by_writer", data_dir, "X", "client100")
    return X / 255.0, clients.astype(np.int64)


def _tmi(data_dir: Path | None, _: int) -> tuple[Floats, None]:
    (X,) = _read("gut_microbiome_species", data_dir, "X")
    # Rounding to float32 may leave a share a little above 100 per cent.
    return np.minimum(np.ascontiguousarray(X, dtype=np.float64) / 100.0, 1.0), None


def _tcga(data_dir: Path | None, _: int) -> tuple[Floats, None]:
    (X,) = _read("tcga_expression_4cancers", data_dir, "X")
    return unit_columns(np.log2(X.astype(np.float64) + 1.0)), None


def _bundled(
    read: Callable[[], Any],
) -> Callable[[Path | None, int], tuple[Floats, None]]:
    def make(_: Path | None, __: int) -> tuple[Floats, None]:
        return unit_columns(read().data), None

    return make


_DEALT = "Clients are dealt, K' clusters each."
_COLUMNS = "Each column is scaled to [0, 1]."
_RECIPES = {
    "tmi": _Recipe(
        "TMI", 4, 10, _tmi,
        "Stand-in: 1,989 stool metagenomes x 826 species (MetaPhlAn2) for the paper's 1,126 x 984;"
        f" K = 4 is a choice. Percentages are divided by 100, as shares. {_DEALT}",
    ),
    "celltype": _Recipe(
        "Celltype", 4, 100, _celltype,
        "The paper's own data and 100 clients, scaled by its authors: each column to [0, 1]."
        " A client sees at most 2 of the 4 clusters.",
    ),
    "gaussian": _Recipe(
        "Gaussian", 10, 100, _gaussian,
        "Generated as the paper says: 10 centres uniform in the unit cube of 10 dimensions, 3,000"
        " records around each with variance 0.5. One common shift and factor brings all values"
        f" to [0, 1]. {_DEALT} K' = 3.",
    ),
    "tcga": _Recipe(
        "TCGA", 4, 10, _tcga,
        "Stand-in: RNA expression of 138 genes in 1,915 tumours of 4 types for the paper's"
        f" methylation, 1,904 x 57. Values are log2(x + 1). {_COLUMNS} {_DEALT}",
    ),
    "postures": _Recipe(
        "Postures", 5, 100, _postures,
        "A part of the paper's own set: 10,077 of its 74,975 rows, all 15 columns; 3 of its 5"
        f" postures, 3 of its 12 users. {_COLUMNS} {_DEALT} K' = 2.",
    ),
    "femnist": _Recipe(
        "FEMNIST", 62, 100, _femnist,
        "Stand-in: 36,721 MNIST digits by writer, three writers a client, for the paper's 36,725"
        " digits and letters of 100 writers; K = 62 as in the paper, though there are 10 classes."
        " Pixels are divided by 255. The clients are natural: nothing limits them to K' clusters.",
    ),
    "covtype": _Recipe(
        "Covtype", 7, 100, _covtype,
        f"The paper's rows and columns, 15,120 x 52. {_COLUMNS} {_DEALT} K' = 2. They are dealt by"
        " the local optimum whose cluster sizes the paper prints; better ones are known.",
        printed_start=_COVTYPE_START,
    ),
    "body-postures": _Recipe(
        "", 5, 100, _body_postures,
        "Stand-in for the whole of Postures: body postures (PUC-Rio), a random 74,975 of 165,631"
        f" rows x 12. {_COLUMNS} {_DEALT}",
    ),
    "digits": _Recipe(
        "", 10, 10, _bundled(bundled.load_digits),
        f"Small set of scikit-learn's: 1,797 x 64. {_COLUMNS} {_DEALT}",
    ),
    "breast_cancer": _Recipe(
        "", 2, 10, _bundled(bundled.load_breast_cancer),
        f"Small set of scikit-learn's: 569 x 30. {_COLUMNS} {_DEALT}",
    ),
    "wine": _Recipe(
        "", 3, 10, _bundled(bundled.load_wine),
        f"Small set of scikit-learn's: 178 x 13. {_COLUMNS} {_DEALT}",
    ),
    "iris": _Recipe(
        "", 3, 10, _bundled(bundled.load_iris),
        f"Small set of scikit-learn's: 150 x 4. {_COLUMNS} {_DEALT}",
    ),
}  # fmt: skip


# -- one's own data --------------------------------------------------------------------------------


def load_file(
    path: str | Path,
    *,
    n_clusters: int | None = None,
    n_clients: int = 10,
    k_prime: int | None = None,
    scale: bool = True,
    seed: int = 0,
    split: Split = "shuffled",
    id_column: str | None = None,
) -> Dataset:
    """Read one's own records from an ``.npz``, ``.csv`` or ``.parquet`` file.

    An ``.npz`` file holds ``X`` and, if there are any, ``client`` and ``y``.  A table has a header;
    the columns ``client`` and ``label`` are optional, all others must be numbers.

    Parameters
    ----------
    path : the file.
    n_clusters : K; the number of distinct labels where not given.
    n_clients, k_prime : how records are dealt where the file names no clients; K′ ~ √K by default.
    scale : bring each column to [0, 1]; otherwise the values must lie there already.
    seed : of the split.
    split : how records are dealt where the file names no clients.
    id_column : a column of a table that is left out.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        Something in it cannot be used; the message says what and where.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if path.suffix not in _READERS:
        raise ValueError(f"{path.name}: the name must end in {', '.join(_READERS)}")
    raw, client, label = _READERS[path.suffix](path, id_column)
    try:
        X = check_values(raw)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    for what, column in (("client", client), ("label", label)):
        if column is not None and column.shape != (len(X),):
            raise ValueError(f"{path.name}: {what} has shape {column.shape} for {len(X)} records")
    if scale:
        X = unit_columns(X)
    elif X.min() < 0.0 or X.max() > 1.0:
        raise ValueError(f"{path.name}: values leave [0, 1]; scale them, or pass scale=True")
    k = _clusters_of(path, n_clusters, label)
    limit = default_k_prime(k) if k_prime is None else k_prime
    clusters = None
    if client is not None:
        clients, found = natural(parse_ids(client, f"{path.name}: clients"))
        n_clients, origin = len(found), "clients as named in the file"
    else:
        clusters = global_clusters(X, k, seed=seed)
        clients = _dealt(X, clusters, n_clients, limit, seed, split)
        origin = f"clients dealt, at most {limit} clusters each"
    scaling = "each column scaled to [0, 1]" if scale else "not scaled"
    note = f"Read from {path.name}; {scaling}; {origin}."
    return Dataset(path.stem, "", X, clients, k, limit, n_clients, note, clusters)


def _clusters_of(path: Path, n_clusters: int | None, label: npt.NDArray[Any] | None) -> int:
    if n_clusters is not None:
        if n_clusters < 1:
            raise ValueError(f"the number of clusters must be at least 1, got {n_clusters}")
        return n_clusters
    if label is None:
        raise ValueError(
            f"{path.name} has no labels to count: say how many clusters there are"
            " (--clusters, or n_clusters in Python)"
        )
    found = label.tolist()
    if None in found:
        raise ValueError(f"{path.name}: record {found.index(None)} has no label")
    return len(set(found))


_Columns = tuple[npt.NDArray[Any], npt.NDArray[Any] | None, npt.NDArray[Any] | None]


def _read_npz(path: Path, id_column: str | None) -> _Columns:
    if id_column is not None:
        raise ValueError(f"{path.name}: no array but X, client and y is read, so none is left out")
    try:
        with open_npz(path) as file:
            held = {key: file[key] for key in file if key in ("X", "client", "y")}
            listed = ", ".join(file) or "nothing"
    except ValueError as error:
        raise ValueError(f"{path.name} is not an archive of plain arrays: {error}") from None
    if "X" not in held:
        raise ValueError(f"{path.name}: there is no array X in it (it holds {listed})")
    return held["X"], held.get("client"), held.get("y")


def _read_csv(path: Path, id_column: str | None) -> _Columns:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = [line for line in csv.reader(file) if line]
    if len(lines) < 2:
        raise ValueError(f"{path.name} has no records below a header")
    header, rows = [name.strip() for name in lines[0]], lines[1:]
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise ValueError(f"{path.name}: columns named twice: {', '.join(sorted(repeated))}")
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(
                f"{path.name}: record {number} has {len(row)} fields, the header {len(header)}"
            )
    fields = np.array(rows).T
    return _columns_of(path, dict(zip(header, fields, strict=True)), id_column)


def _read_parquet(path: Path, id_column: str | None) -> _Columns:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ImportError(f"reading {path.name} needs pyarrow (pip install pyarrow)") from None
    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path.name} is not a Parquet file: {error}") from None
    names = table.column_names
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in names}
    return _columns_of(path, columns, id_column)


def _columns_of(path: Path, table: dict[str, npt.NDArray[Any]], id_column: str | None) -> _Columns:
    if id_column is not None and table.pop(id_column, None) is None:
        raise ValueError(f"{path.name} has no column {id_column!r}; it has {', '.join(table)}")
    client, label = table.pop("client", None), table.pop("label", None)
    if not table:
        raise ValueError(f"{path.name} has no feature columns")
    numbers = []
    for name, column in table.items():
        try:
            numbers.append(column.astype(np.float64))
        except (TypeError, ValueError):
            number, text = _first_text(column)
            raise ValueError(
                f"{path.name}: record {number}, column {name!r}: {text!r} is not a number"
            ) from None
    return np.stack(numbers, axis=1), client, label


def _first_text(column: npt.NDArray[Any]) -> tuple[int, Any]:
    for number, value in enumerate(column.tolist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return number, value
    return 0, column[0]


_READERS = {".npz": _read_npz, ".csv": _read_csv, ".parquet": _read_parquet}
