"""Layers import only downwards, and nothing loads a pickle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedforget

SOURCE = Path(fedforget.__file__).parent
LAYERS = [
    {
        "errors",
        "arrays",
        "digests",
        "lazy",
        "text",
        "incoming",
        "locks",
        "whole_files",
        "wall_clock",
        "pages",
    },
    {"kernel_cache", "helper_code"},
    {"compilation"},
    {"clustering", "scma"},
    {
        "protocol",
        "configuration",
        "constraints",
        "local_clusters",
        "modelling",
        "record_checks",
        "report",
        "warmup",
    },
    {"parties"},
    {"runtime"},
    {"estimators"},
    {"scverse"},
    {"baselines"},
    {"bench"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
CLUSTERING = [
    {"kernels", "siphash", "rounding"},
    {"prf"},
    {"distance"},
    {"ids", "race", "losses", "histogram", "choosing", "matching"},
    {"records", "lloyd", "greedy"},
    {"partition", "record_kmeans"},
    {"grid", "owner", "lattice_kmeans"},
    {"disclosure", "replay"},
    {"lloyd_clusters"},
]
SCMA = [
    {"kernels"},
    {"polynomials"},
    {"layout", "roots", "recurrences"},
    {"codec"},
    {"literal"},
]
PROTOCOL = [
    {"errors"},
    {"keys"},
    {"blame", "graph", "masks", "membership", "shares"},
    {"federation", "messages"},
    {"rules"},
    {"history"},
    {"client_ledger"},
    {"client_stages", "server_stages", "joining"},
    {"dealing", "recovery", "unmasking"},
    {"client_side"},
    {"server_side", "memory"},
]
CLUSTERING_KERNELS = [
    {"bits", "clocks", "memory", "vectors"},
    {"index", "tiles"},
    {"distance"},
    {"race", "lattice", "candidates"},
    {"greedy"},
]
SCMA_KERNELS = [{"field"}, {"transforms", "school", "words"}, {"tree", "roots"}]
REPLAY = [
    {"state"},
    {"parts", "room", "pair_products"},
    {"arithmetic", "moves"},
    {"points", "seeds", "candidates", "products", "lanes"},
    {"measuring", "estimates", "courses", "outcomes", "erasing"},
    {"margins", "columns"},
    {"walk"},
    {"engine", "record_slots"},
    {"slot_races"},
    {"following", "owned_kmeans"},
]
INSIDE = {
    package: {name: level for level, names in enumerate(order) for name in names}
    for package, order in {
        "clustering": CLUSTERING,
        "clustering/kernels": CLUSTERING_KERNELS,
        "clustering/replay": REPLAY,
        "scma": SCMA,
        "scma/kernels": SCMA_KERNELS,
        "protocol": PROTOCOL,
    }.items()
}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")


def imports(path: Path) -> set[tuple[str, ...]]:
    """The parts of every ``fedforget`` module that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            package, *parts = node.module.split(".")
            if package == "fedforget":
                found |= {(*parts, alias.name) for alias in node.names}
    return found - {("__version__",)}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_layers_import_only_downwards(path: Path) -> None:
    own = path.relative_to(SOURCE).with_suffix("").parts
    for parts in imports(path):
        assert LEVEL[parts[0]] <= LEVEL[own[0]], f"{own} imports {parts}"
        if own[0] in INSIDE:
            assert LEVEL[parts[0]] < LEVEL[own[0]] or own[0] == parts[0], f"{own} imports {parts}"
        for depth in range(1, len(own)):
            level = INSIDE.get("/".join(own[:depth]))
            if level is None or parts[:depth] != own[:depth] or parts[depth] not in level:
                break
            if parts[depth] != own[depth] or len(own) == depth + 1:
                assert level[parts[depth]] < level[own[depth]], f"{own} imports {parts}"
                break


def test_every_module_has_a_place() -> None:
    assert {path.relative_to(SOURCE).with_suffix("").parts[0] for path in MODULES} == set(LEVEL)
    for package, level in INSIDE.items():
        modules = (SOURCE / package).glob("*.py")
        packages = (SOURCE / package).glob("*/__init__.py")
        found = {path.stem for path in modules} | {path.parent.name for path in packages}
        assert found - {"__init__"} == set(level)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_pickle(path: Path) -> None:
    text = path.read_text()
    # Compiled kernels are pickles of numba's, in a folder that is checked.
    assert "import pickle" not in text or path.name == "kernel_cache.py"
    assert "allow_pickle=True" not in text
    assert "joblib.load" not in text


SHARED_NAMES = {
    "Flags": "parties/sync.py spells the type of arrays.py out",
}
"""Names that stand in two modules, and why."""


def public_types(path: Path) -> set[str]:
    """The public classes of a module, and the names that it gives to types."""
    tree = ast.parse(path.read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if name[0].isupper() and not name.isupper()}


def test_public_types_have_names_of_their_own() -> None:
    """Nobody has to ask which of two classes, or of two aliases, is meant."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for name in public_types(path):
            places.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert several.keys() == SHARED_NAMES.keys(), several
