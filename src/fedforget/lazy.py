"""Modules and names that are imported when they are first used.

numba alone takes half a second to load: a command that shows a status must not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class Deferred(ModuleType):
    """Stands for a module, which is imported when one of its names is asked for.

    A name is looked up in the module once and then kept, so that later uses cost nothing.  Threads
    may ask at the same time: the import system lets one of them load the module.

    >>> colours = Deferred("colorsys")
    >>> colours.rgb_to_hsv(1, 1, 1)
    (0.0, 0.0, 1)
    """

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def names_from(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``, which imports each of its public names from its home.

    Parameters
    ----------
    package : str
        The package's name, for errors.
    homes : Mapping[str, str]
        The module that defines each name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
