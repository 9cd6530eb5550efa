"""Results that outlive the run that made them.

An experiment is made of *cells*: one dataset, one trial, one set of parameters.  Each finished cell
is one JSON file, written whole or not at all, so that a run that is cut off goes on where it
stopped.  A file is found again by the cell's name, its parameters and the version of the code that
computes it: change either, and the cell is computed anew.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import fedforget
from fedforget.bench.timing import timed
from fedforget.whole_files import whole_file

Value = dict[str, Any]

_COUNTS = (
    "clustering", "scma", "configuration.py", "runtime/local.py", "estimators", "baselines",
    "bench/datasets.py", "bench/splits.py",
)  # fmt: skip
"""The parts of the package that every figure depends on."""


@dataclass(frozen=True)
class Cell:
    """One piece of work.

    Attributes
    ----------
    experiment, dataset, trial : its name.
    parameters : all else that the result depends on; plain JSON.
    modules : the files or folders of the package that compute it, beside those that every figure
        depends on.
    run : computes the result, a JSON object.
    """

    experiment: str
    dataset: str
    trial: int
    parameters: Mapping[str, Any]
    modules: tuple[str, ...]
    run: Callable[[], Value] = field(compare=False, repr=False)

    @property
    def label(self) -> str:
        """What a progress bar shows."""
        shown = " ".join(
            f"{name}={value}" for name, value in self.parameters.items() if name != "data"
        )
        return f"{self.experiment} · {self.dataset} · trial {self.trial} {shown}".rstrip()

    @property
    def file_name(self) -> str:
        """Where a store keeps the result."""
        return f"{self.experiment}/{self.dataset}-{self.trial}-{self._digest()}.json"

    def _digest(self) -> str:
        text = json.dumps(
            [
                self.experiment,
                self.dataset,
                self.trial,
                self.parameters,
                code_version(self.modules),
            ],
            sort_keys=True,
            allow_nan=False,
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class CellResult:
    """A finished cell: what it was, what came out, and how long it took."""

    experiment: str
    dataset: str
    trial: int
    parameters: Value
    value: Value
    seconds: float


class CellStore:
    """A folder of finished cells.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = CellStore(folder.name)
    >>> cell = Cell("squares", "none", 0, {"x": 3}, ("bench/cells.py",), lambda: {"y": 9})
    >>> store.find(cell) is None
    True
    >>> store.compute(cell).value
    {'y': 9}
    >>> store.find(cell).value
    {'y': 9}
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def find(self, cell: Cell) -> CellResult | None:
        """The result of a cell that has been finished before."""
        try:
            held = json.loads((self.folder / cell.file_name).read_text(encoding="utf-8"))
            return CellResult(**held)
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None  # a file that cannot be read is as good as none

    def compute(self, cell: Cell) -> CellResult:
        """Run a cell and keep what comes out."""
        value, seconds = timed(cell.run)
        result = CellResult(
            cell.experiment,
            cell.dataset,
            cell.trial,
            dict(cell.parameters),
            value,
            seconds,
        )
        write_whole(
            self.folder / cell.file_name, json.dumps(result.__dict__, allow_nan=False, indent=1)
        )
        return result


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file such that it is there whole or not at all, whenever the process dies."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, private=False) as file:
        file.write(data)


@cache
def code_version(modules: tuple[str, ...]) -> str:
    """A digest of the code that figures depend on; comments and docstrings do not count.

    ``modules`` are paths inside the package, beside those that every figure depends on.
    """
    digest = hashlib.sha256()
    for path in _sources((*_COUNTS, *modules)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
        digest.update(path.name.encode() + ast.dump(tree).encode())
    return digest.hexdigest()[:16]


def _sources(parts: tuple[str, ...]) -> Iterator[Path]:
    root = Path(fedforget.__file__).parent
    for part in parts:
        path = root / part
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
