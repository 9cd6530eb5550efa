"""npz files: one array per column, or a matrix ``X`` with ``feature_names``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats
from fedforget.incoming import Npz, open_npz
from fedforget.parties.sources.reader import ROWS_AT_A_TIME, RawIds, Reader, TableError


class NpzReader(Reader):
    """An npz file."""

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        assert self.path is not None
        id_column = self.wanted.id_column
        with open_npz(self.path) as file:
            values = self._matrix(file) if "X" in file and "feature_names" in file else None
            if values is None:
                self.check_columns(list(file))
                columns = [self._numbers(file, name, 1) for name in self.wanted.features]
                values = np.column_stack(columns).astype(np.float64)
            if id_column not in file:
                raise TableError(f"{self.name} has no array {id_column!r} with the ids")
            ids = file[id_column]
        if ids.ndim != 1:
            raise TableError(f"{self.name}: {id_column} must have one dimension")
        if len(ids) != len(values):
            raise TableError(f"{self.name} has {len(ids)} ids and {len(values)} rows")
        self.n_rows = len(ids)
        for at in range(0, len(ids), ROWS_AT_A_TIME):
            part: Any = ids[at : at + ROWS_AT_A_TIME]
            yield part, values[at : at + ROWS_AT_A_TIME]

    def _matrix(self, file: Npz) -> Floats:
        """The features' columns of the array X."""
        found = file["feature_names"]
        if found.ndim != 1:
            raise TableError(f"{self.name}: feature_names must have one dimension")
        names = [str(name) for name in found.tolist()]
        self.check_columns([self.wanted.id_column, *names])
        table = self._numbers(file, "X", 2)
        if table.shape[1] != len(names):
            raise TableError(
                f"{self.name}: X has {table.shape[1]} columns and feature_names {len(names)} names"
            )
        places = [names.index(name) for name in self.wanted.features]
        values: Floats = table[:, places].astype(np.float64)
        return values

    def _numbers(self, file: Npz, name: str, dimensions: int) -> npt.NDArray[Any]:
        found = file[name]
        if found.ndim != dimensions:
            words = {1: "one dimension", 2: "two dimensions"}[dimensions]
            raise TableError(f"{self.name}: {name} must have {words}")
        if found.dtype.kind not in "biuf":
            raise TableError(
                f"{self.name}: {name!r} holds {found.dtype}, not numbers; nothing was imported"
            )
        # As integers: 2**53 + 1 becomes 2**53 as a float.
        if found.dtype.kind in "iu" and ((found > 2**53) | (found < -(2**53))).any():
            raise TableError(
                f"{self.name}: {name!r} holds integers beyond 2**53, which float64 cannot hold;"
                " nothing was imported"
            )
        return found
