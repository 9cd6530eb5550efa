"""Every number that hangs on an object: what is left of a record in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def arrays_of(root: Any) -> Iterator[tuple[str, np.ndarray]]:
    """All arrays that can be reached from an object, once each, with the way to them.

    Of objects those of this library are looked into, and containers; of a view also the whole
    array that it is a part of.
    """
    seen: set[int] = set()
    stack: list[tuple[str, Any]] = [(type(root).__name__, root)]
    while stack:
        path, one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            yield path, one
            if one.base is not None:
                stack.append((f"{path}.base", one.base))
            if one.dtype.kind != "O":
                continue
        if isinstance(one, dict):
            stack.extend((f"{path}[{key!r}]", value) for key, value in one.items())
        elif isinstance(one, tuple) and hasattr(one, "_fields"):
            stack.extend(
                (f"{path}.{name}", value) for name, value in zip(one._fields, one, strict=True)
            )
        elif isinstance(one, (list, tuple, set, frozenset)):
            stack.extend((f"{path}[{i}]", value) for i, value in enumerate(one))
        elif type(one).__module__.partition(".")[0] == "fedforget":
            stack.extend((f"{path}.{name}", value) for name, value in _attributes(one))


def _attributes(one: Any) -> Iterator[tuple[str, Any]]:
    yield from vars(one).items() if hasattr(one, "__dict__") else ()
    for kind in type(one).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(one, name):
                yield name, getattr(one, name)


def columns_of(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """An array as plain numbers; a structured one field by field."""
    if array.dtype.names is None:
        yield "", array
        return
    for name in array.dtype.names:
        yield f"[{name!r}]", array[name]


def where_found(root: Any, wanted: np.ndarray) -> list[str]:
    """The ways to all arrays in which one of some numbers occurs, exactly.

    Numbers are compared as float64: those of float32 arrays with ``wanted`` rounded likewise.
    """
    found = []
    for path, array in arrays_of(root):
        for name, column in columns_of(array):
            if column.dtype.kind not in "iuf" or column.dtype.itemsize < 4:
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                target = wanted.astype(column.dtype)
            if column.dtype.kind != "f":
                target = target[target.astype(np.float64) == wanted]
            target = target[target != 0]
            if np.isin(column, target).any():
                found.append(path + name)
    return found
