"""AnnData files (``.h5ad``): cells with their names, read some rows at a time.

The values come from a part of the file that is named as in Python: ``obsm/X_pca``, ``X``,
``layers/counts`` or ``obs``.  Columns of ``X``, of layers and of ``obs`` are matched by their
names.  A matrix in ``obsm`` has no names: its columns are the features in their order, and
``[:10]`` behind its name takes the first ten.  The file is read as HDF5, in pieces; what is not
asked for stays unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats
from fedforget.parties.sources.reader import (
    ROWS_AT_A_TIME,
    RawIds,
    Reader,
    TableError,
    Wanted,
    check_installed,
)

OBS_NAMES = "obs_names"
"""The column of ids, unless another one of ``obs`` is named."""

_PIECE_BYTES = 64 << 20
"""So much of a matrix is read at once."""

_EXACT = 2**53
_FIRST = re.compile(r"(?P<part>.+)\[:(?P<count>[1-9][0-9]{0,8})\]")
_MASKED = ("nullable-integer", "nullable-boolean", "nullable-float")
_NOT_A_TABLE = "its obs is not a table; write it again with a current anndata"
_NO_NAMES = "its obs lacks the names of the cells; write it again with a current anndata"

ReadRows = Callable[[int, int], Floats]
"""Values of the rows from one number to another, one column per feature."""


class AnnDataReader(Reader):
    """The cells of an AnnData file.

    Parameters
    ----------
    name, wanted, path : as of every reader; ``obs_names`` stands for the cells' names.
    part : where the values are; None looks in ``obs``, then in ``X``.
    """

    def __init__(self, name: str, wanted: Wanted, path: Path, part: str | None = None) -> None:
        super().__init__(name, wanted, path)
        self._part = part

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        check_installed("h5py", "anndata", "AnnData")
        import h5py

        with h5py.File(self.path, "r") as file:
            obs = self.obs(file)
            ids = self._id_column(obs)
            n = _length(ids)
            # A file may claim rows that it does not have; each takes some bytes at least.
            self.check_unpacked(8 * n, "files")
            rows, width = self._values(file, n)
            self._note(file, obs)
            self.n_rows = n
            step = max(1, min(ROWS_AT_A_TIME, _PIECE_BYTES // (8 * max(width, 1))))
            for first in range(0, n, step):
                last = min(first + step, n)
                yield _texts(self, ids, first, last), rows(first, last)

    # -- names -------------------------------------------------------------------------------------

    def obs(self, file: Any) -> Any:
        """The table of an open file's cells."""
        import h5py

        obs = file.get("obs")
        if not isinstance(obs, h5py.Group) or not isinstance(obs.attrs.get("_index"), str):
            raise TableError(f"{self.name}: {_NOT_A_TABLE}; nothing was imported")
        if obs.attrs["_index"] not in obs:
            raise TableError(f"{self.name}: {_NO_NAMES}; nothing was imported")
        return obs

    def ids(self, obs: Any) -> RawIds:
        """The ids of all cells."""
        column = self._id_column(obs)
        return _texts(self, column, 0, _length(column))

    def _id_column(self, obs: Any) -> Any:
        name = self.wanted.id_column
        if name in (OBS_NAMES, obs.attrs["_index"]):
            return obs[obs.attrs["_index"]]
        if name not in _columns(obs):
            there = ", ".join(map(repr, [OBS_NAMES, *_columns(obs)][:20]))
            raise TableError(f"{self.name} has no column {name!r} in obs; ids may be in {there}")
        return obs[name]

    def _note(self, file: Any, obs: Any) -> None:
        matrices = [f"obsm/{key}" for key in file.get("obsm", ())]
        self.columns = [OBS_NAMES, *_columns(obs), *matrices]

    def _places(self, names: Sequence[str], what: str) -> list[int]:
        """Where the features are among the names of columns."""
        found = []
        for one in self.wanted.features:
            count = list(names).count(one)
            if count != 1:
                there = ", ".join(map(repr, names[:20])) or "none"
                problem = f"has no {one!r}; it has {there}" if count == 0 else f"has {one!r} twice"
                raise TableError(f"{self.name}: {what} {problem}; nothing was imported")
            found.append(list(names).index(one))
        return found

    # -- values ------------------------------------------------------------------------------------

    def _values(self, file: Any, n: int) -> tuple[ReadRows, int]:
        """How rows are read, and how many columns have to be read for it."""
        part, first = self._part or self._guessed(file), None
        found = _FIRST.fullmatch(part)
        if found:
            part, first = found["part"], int(found["count"])
        if part == "obs":
            return self._table(file["obs"], "obs", n)
        top = part.split("/")[0]
        if part not in file or top not in ("obsm", "layers", "X") or "/.." in part:
            raise TableError(
                f"{self.name} has no {part}; --features takes one of {', '.join(_parts(file))};"
                " nothing was imported"
            )
        return self._matrix(file, part, first, n)

    def _guessed(self, file: Any) -> str:
        wanted = set(self.wanted.features)
        if wanted <= set(_columns(file["obs"])):
            return "obs"
        if "X" in file and "var" in file and wanted <= set(_var_names(self, file)):
            return "X"
        raise TableError(
            f"{self.name}: say where the features are: --features with one of"
            f" {', '.join(_parts(file))}; nothing was imported"
        )

    def _table(self, group: Any, what: str, n: int) -> tuple[ReadRows, int]:
        """Columns of a table, matched by their names."""
        self._places(_columns(group), what)
        columns = [(name, group[name]) for name in self.wanted.features]
        for name, column in columns:
            self._check_length(f"{what}/{name}", _length(column), n)

        def rows(first: int, last: int) -> Floats:
            out = np.empty((last - first, len(columns)))
            for at, (name, column) in enumerate(columns):
                out[:, at] = self._column_values(f"{what}/{name}", column, first, last)
            return out

        return rows, len(columns)

    def _column_values(self, what: str, column: Any, first: int, last: int) -> Floats:
        kind = _encoding(column)
        if kind in _MASKED:
            values = self._numbers(what, column["values"][first:last])
            values[column["mask"][first:last].astype(np.bool_)] = np.nan
            return values
        if hasattr(column, "keys"):
            raise self._no_numbers(what, "categories" if kind == "categorical" else kind)
        return self._numbers(what, column[first:last])

    def _matrix(self, file: Any, part: str, first: int | None, n: int) -> tuple[ReadRows, int]:
        matrix = file[part]
        kind = _encoding(matrix)
        if kind == "dataframe":
            return self._table(matrix, part, n)
        sparse = kind in ("csr_matrix", "csc_matrix")
        if not sparse and (hasattr(matrix, "keys") or len(matrix.shape) != 2):
            raise self._no_numbers(part, kind or "something else")
        shape = matrix.attrs["shape"] if sparse else matrix.shape
        height, width = (int(one) for one in shape)
        self._check_length(part, height, n)
        places = self._chosen(file, part, width, first)
        if kind == "csr_matrix":
            return self._sparse_rows(matrix, part, places, width), 1
        if kind == "csc_matrix":
            return self._sparse_columns(matrix, part, places, n), 1
        self.check_unpacked(8 * width, "pieces")

        def rows(start: int, end: int) -> Floats:
            return self._numbers(part, matrix[start:end])[:, places]

        return rows, width

    def _chosen(self, file: Any, part: str, width: int, first: int | None) -> list[int]:
        """Which columns of a matrix are the features."""
        d = len(self.wanted.features)
        if not part.startswith("obsm/"):
            names = _var_names(self, file)
            self._check_length(f"the columns of {part}", width, len(names), "names in var")
            return self._places(names, part)
        if first is not None and first > width:
            raise TableError(f"{self.name}: {part} has {width} columns, not {first}")
        if (width if first is None else first) != d:
            columns = f"the first {first}" if first is not None else str(width)
            hint = f"; {part}[:{d}] takes the first {d}" if d < width else ""
            raise TableError(
                f"{self.name}: {columns} columns of {part} are given for the {d} features of the"
                f" federation{hint}; nothing was imported"
            )
        return list(range(d))

    def _sparse_rows(self, matrix: Any, part: str, places: list[int], width: int) -> ReadRows:
        starts = matrix["indptr"][:].astype(np.int64)
        column_of = np.full(width, -1, dtype=np.int64)
        column_of[places] = np.arange(len(places))

        def rows(first: int, last: int) -> Floats:
            out = np.zeros((last - first, len(places)))
            start, end = int(starts[first]), int(starts[last])
            columns = column_of[matrix["indices"][start:end]]
            row = np.repeat(np.arange(last - first), np.diff(starts[first : last + 1]))
            some = columns >= 0
            values = self._numbers(part, matrix["data"][start:end])
            np.add.at(out, (row[some], columns[some]), values[some])
            return out

        return rows

    def _sparse_columns(self, matrix: Any, part: str, places: list[int], n: int) -> ReadRows:
        """Rows cannot be cut out of columns: the features are read whole, and nothing else is."""
        starts = matrix["indptr"][:].astype(np.int64)
        everything = np.zeros((n, len(places)))
        for at, column in enumerate(places):
            start, end = int(starts[column]), int(starts[column + 1])
            values = self._numbers(part, matrix["data"][start:end])
            np.add.at(everything[:, at], matrix["indices"][start:end].astype(np.int64), values)
        return lambda first, last: everything[first:last]

    # -- checks ------------------------------------------------------------------------------------

    def _check_length(self, what: str, found: int, n: int, rows: str = "names in obs") -> None:
        if found != n:
            raise TableError(f"{self.name}: {what} has {found} rows and there are {n} {rows}")

    def _numbers(self, what: str, found: npt.NDArray[Any]) -> Floats:
        if found.dtype.kind not in "biuf":
            raise self._no_numbers(what, str(found.dtype))
        values: Floats = found.astype(np.float64)
        # As integers: 2**53 + 1 becomes 2**53 as a float.
        if found.dtype.kind in "iu" and ((found > _EXACT) | (found < -_EXACT)).any():
            raise TableError(
                f"{self.name}: {what} holds integers beyond 2**53, which float64 cannot hold;"
                " nothing was imported"
            )
        return values

    def _no_numbers(self, what: str, kind: str) -> TableError:
        return TableError(f"{self.name}: {what} holds {kind}, not numbers; nothing was imported")


def _encoding(element: Any) -> str:
    return str(element.attrs.get("encoding-type", ""))


def _columns(table: Any) -> list[str]:
    """The names of a table's columns, in their order."""
    named = [str(one) for one in table.attrs.get("column-order", ())]
    return [one for one in named if one in table]


def _parts(file: Any) -> list[str]:
    """What --features may name in this file."""
    found = ["obs"] + ["X"] * ("X" in file)
    return found + [f"{top}/{key}" for top in ("obsm", "layers") for key in file.get(top, ())]


def _length(column: Any) -> int:
    if hasattr(column, "keys"):
        column = column["codes" if _encoding(column) == "categorical" else "values"]
    return int(column.shape[0])


def _var_names(reader: Reader, file: Any) -> list[str]:
    var = file["var"]
    index = var[var.attrs["_index"]]
    return [str(one) for one in _texts(reader, index, 0, _length(index))]


def _texts(reader: Reader, column: Any, first: int, last: int) -> RawIds:
    """Ids of some rows: texts or integers, None where there is none."""
    kind = _encoding(column)
    if kind == "categorical":
        names = _texts(reader, column["categories"], 0, _length(column["categories"]))
        codes = column["codes"][first:last].tolist()
        return [names[code] if code >= 0 else None for code in codes]
    if hasattr(column, "keys"):
        values = _texts(reader, column["values"], first, last)
        missing = column["mask"][first:last].tolist() if "mask" in column else [False] * len(values)
        return [None if no else one for one, no in zip(values, missing, strict=True)]
    if column.dtype.kind in "iu":
        integers: list[int] = column[first:last].tolist()
        return integers
    if column.dtype.kind not in "OS":
        raise TableError(
            f"{reader.name}: {column.name.lstrip('/')} holds {column.dtype}, which cannot be ids;"
            " nothing was imported"
        )
    texts: list[str] = column.asstr()[first:last].tolist()
    return texts
