"""What some commands need beyond a plain installation."""

from __future__ import annotations

from importlib.util import find_spec

from fedforget.errors import FedforgetError

_PACKAGES = {"bench": "matplotlib", "flower": "flwr", "page": "uvicorn"}
"""An extra, and the package by which it is known to be installed."""


def check_extra(extra: str, command: str) -> None:
    """Refuse a command if the extra that it needs is not installed, before it does anything."""
    try:
        installed = find_spec(_PACKAGES[extra]) is not None
    except ModuleNotFoundError:
        installed = False
    if not installed:
        raise FedforgetError(
            f"{command} needs the extra {extra}: pip install 'fedforget[{extra}]', or in a"
            f" checkout pip install '.[{extra}]'"
        )
