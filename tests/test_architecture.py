"""Layers import only downwards, and nothing loads a pickle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedforget

SOURCE = Path(fedforget.__file__).parent
LAYERS = [
    {"errors", "digests"},
    {"clustering"},
    {"configuration", "report"},
    {"runtime"},
    {"estimators"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
CLUSTERING = [
    {"kernels"},
    {"prf"},
    {"distance"},
    {"ids", "race", "losses", "histogram"},
    {"records"},
    {"partition"},
    {"grid", "server"},
    {"replay"},
    {"warmup"},
]
CLUSTERING_LEVEL = {name: level for level, names in enumerate(CLUSTERING) for name in names}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")


def imports(path: Path) -> set[tuple[str, ...]]:
    """The parts of every ``fedforget`` module that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.startswith("fedforget.")
        ):
            parts = tuple(node.module.split(".")[1:])
            found |= {(*parts, alias.name) for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_layers_import_only_downwards(path: Path) -> None:
    own = path.relative_to(SOURCE).with_suffix("").parts
    for parts in imports(path):
        assert LEVEL[parts[0]] <= LEVEL[own[0]], f"{own} imports {parts}"
        if own[0] == "clustering" == parts[0]:
            assert CLUSTERING_LEVEL[parts[1]] < CLUSTERING_LEVEL[own[1]], f"{own} imports {parts}"


def test_every_module_has_a_place() -> None:
    assert {path.relative_to(SOURCE).with_suffix("").parts[0] for path in MODULES} == set(LEVEL)
    own = {path.stem for path in MODULES if path.parent.name == "clustering"}
    assert own == set(CLUSTERING_LEVEL)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_pickle(path: Path) -> None:
    text = path.read_text()
    assert "import pickle" not in text
    assert "allow_pickle=True" not in text
    assert "joblib.load" not in text
