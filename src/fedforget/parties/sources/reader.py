"""What all formats share: a reader gives raw ids and values, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedforget.arrays import Floats
from fedforget.errors import FedforgetError
from fedforget.incoming import unpacked_at_most

ROWS_AT_A_TIME = 16_384
EXACT = 2**53
"""Beyond it not every integer is a float64."""

RawIds = Sequence[Any]
"""Ids as they were found: None or an empty text where there is none."""


class TableError(FedforgetError, ValueError):
    """A table that cannot be imported."""


@dataclass(frozen=True)
class Wanted:
    """The columns that are read: the ids, and the features in the federation's order.

    ``large`` are the features that may be 2**53 or more, where not every integer is a float64.
    """

    id_column: str
    features: tuple[str, ...]
    large: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.id_column in self.features:
            raise TableError(f"{self.id_column!r} is a feature; ids need a column of their own")

    @property
    def columns(self) -> list[str]:
        return [self.id_column, *self.features]


class Reader:
    """A file, a stream or a query, and the columns that are wanted of it.

    Attributes
    ----------
    name : what messages call it.
    wanted : the columns.
    path : the file, if it is one.
    n_rows : how many rows there are, where that is known before they are read.
    columns : the names of all columns, once the first part was read.
    integers : columns of integers that come as decimals, because they are too long for 64 bits.
    """

    def __init__(self, name: str, wanted: Wanted, path: Path | None = None) -> None:
        self.name = name
        self.wanted = wanted
        self.path = path
        self.n_rows: int | None = None
        self.columns: list[str] | None = None
        self.integers: frozenset[str] = frozenset()

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        """Ids and values, some rows at a time; a value that is missing is NaN."""
        raise NotImplementedError

    def explained(self, error: Exception) -> str:
        """Why it could not be read, in one line."""
        text = str(error).strip()
        return text.splitlines()[0].rstrip(". ") if text else type(error).__name__

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a source that lacks a column, or has it twice."""
        self.columns = list(names)
        missing = [name for name in self.wanted.columns if name not in names]
        if missing:
            there = ", ".join(map(repr, names[:20]))
            raise TableError(f"{self.name} has no column {missing[0]!r}; it has {there}")
        twice = [name for name in self.wanted.columns if list(names).count(name) > 1]
        if twice:
            raise TableError(f"{self.name} has the column {twice[0]!r} twice")

    def check_unpacked(self, n_bytes: int, parts: str) -> None:
        """Refuse a small file of which a part takes a large memory."""
        assert self.path is not None
        if n_bytes > unpacked_at_most(self.path.stat().st_size):
            raise TableError(
                f"{self.name} unpacks to far more than its own size; if it is meant to, save it"
                f" without compression or in smaller {parts}; nothing was imported"
            )


_NOTHING = "nothing was imported"


@contextmanager
def told_otherwise(words: str) -> Iterator[None]:
    """For whoever reads a source without importing it: ``words`` say what did not happen.

    >>> with told_otherwise("nothing was changed"):
    ...     raise TableError("t.csv is empty; nothing was imported")
    Traceback (most recent call last):
    fedforget.parties.sources.reader.TableError: t.csv is empty; nothing was changed
    """
    try:
        yield
    except TableError as error:
        text = str(error).replace(_NOTHING, words)
        text = text.replace(_NOTHING.capitalize(), words[:1].upper() + words[1:])
        raise type(error)(text) from None


def check_installed(package: str, extra: str, what: str) -> None:
    """Refuse a format whose extra is not installed."""
    try:
        installed = find_spec(package) is not None
    except ModuleNotFoundError:
        installed = False
    if not installed:
        raise TableError(
            f"{what} needs the extra {extra}: pip install 'fedforget[{extra}]', or in a checkout"
            f" pip install '.[{extra}]'"
        )
