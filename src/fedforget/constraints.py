"""What a parameter may be, as data: one entry per parameter, for estimators and baselines alike.

A constraint takes a parameter's name and value, and gives the value in its plain type or raises an
error that names both.

>>> checked(K_MEANS, n_clusters=np.int32(3), tol=0)
{'n_clusters': 3, 'tol': 0.0}
>>> checked(K_MEANS, n_clusters=0)
Traceback (most recent call last):
ValueError: n_clusters must be at least 1, got 0
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np

from fedforget.arrays import Floats
from fedforget.clustering.distance import MAX_MAGNITUDE
from fedforget.clustering.ids import parse_ids


class Constraint(Protocol):
    """What a parameter may be."""

    def __call__(self, name: str, value: Any) -> Any: ...


def checked(constraints: Mapping[str, Constraint], /, **given: Any) -> dict[str, Any]:
    """The parameters given, each as its constraint gives it.

    A parameter that nobody checks is an error of the caller: it may be misspelt.
    """
    unknown = given.keys() - constraints.keys()
    if unknown:
        listed = ", ".join(map(repr, sorted(unknown)))
        raise TypeError(f"no constraint says what {listed} may be")
    return checked_among(constraints, given)


def checked_among(
    constraints: Mapping[str, Constraint], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Those of an estimator's parameters that have a constraint, each as the constraint gives it.

    The others are checked where they are used, or belong to a class that inherits from it.
    """
    return {
        name: constraint(name, given[name])
        for name, constraint in constraints.items()
        if name in given
    }


@dataclass(frozen=True)
class Count:
    """An integer that is at least ``least``."""

    least: int = 1

    def __call__(self, name: str, value: Any) -> int:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
            raise _wrong_type(name, "an integer", value)
        if value < self.least:
            raise ValueError(f"{name} must be at least {self.least}, got {value}")
        return int(value)


@dataclass(frozen=True)
class RealNumber:
    """A number from ``low`` to ``high``; where ``above``, ``low`` itself is left out."""

    low: float
    high: float = math.inf
    above: bool = False

    def __call__(self, name: str, value: Any) -> float:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
            raise _wrong_type(name, "a number", value)
        number = float(value)
        if not self.low <= number <= self.high or (self.above and number == self.low):
            raise ValueError(f"{name} must {self._range()}, got {number!r}")
        return number

    def _range(self) -> str:
        if self.above:
            return f"be above {self.low:g} and at most {self.high:g}"
        return f"lie between {self.low:g} and {self.high:g}"


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def __call__(self, name: str, value: Any) -> bool:
        if not isinstance(value, (bool, np.bool_)):
            raise _wrong_type(name, "True or False", value)
        return bool(value)


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in self.words:
            listed = ", ".join(map(repr, self.words))
            raise ValueError(f"{name} must be one of {listed}; got {value!r}")
        return value


@dataclass(frozen=True)
class OrNone:
    """What another constraint allows, or None."""

    other: Constraint

    def __call__(self, name: str, value: Any) -> Any:
        return None if value is None else self.other(name, value)


@dataclass(frozen=True)
class Jobs:
    """How many workers, as in scikit-learn: negative numbers count from the number of cores."""

    def __call__(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise _wrong_type(name, "None or an integer", value)
        if value == 0:
            raise ValueError(f"{name} must be None or an integer other than 0, got 0")
        return int(value)


_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(B|KiB|MiB|GiB|TiB)")
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class MemorySize:
    """A number of bytes, or text such as ``"2 GiB"``."""

    def __call__(self, name: str, value: Any) -> int:
        if isinstance(value, str):
            match = _SIZE.fullmatch(value)
            if match is None:
                raise ValueError(f"{name} must be like '2 GiB' or '500 MiB', got {value!r}")
            return int(float(match[1]) * _BYTES[match[2]])
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral):
            raise _wrong_type(name, "a number of bytes, or text such as '2 GiB'", value)
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
        return int(value)


@dataclass(frozen=True)
class CountPerClient:
    """A positive integer for all clients, or one for each client by its name."""

    def __call__(self, name: str, value: Any) -> int | dict[int | str, int]:
        if not isinstance(value, Mapping):
            return Count()(name, value)
        names = parse_ids(list(value), f"the clients in {name}").tolist()
        counts = [Count()(f"{name} of each client", count) for count in value.values()]
        return dict(zip(names, counts, strict=True))


K_MEANS: Mapping[str, Constraint] = {
    "n_clusters": Count(),
    "n_init": Count(),
    "max_iter": Count(),
    "tol": RealNumber(0.0),
}
"""What a K-means with Lloyd's iteration and several starts takes."""


def parse_bounds(bounds: Any, n_features: int) -> Floats:
    """Bounds as an (n_features, 2) array, from one (low, high) pair or one per feature."""
    try:
        array = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be numbers: one (low, high) pair, or one for each of the"
            f" {n_features} features; got {bounds!r}"
        ) from None
    if array.shape == (2,):
        array = np.tile(array, (n_features, 1))
    if array.shape != (n_features, 2):
        raise ValueError(
            f"bounds must be one (low, high) pair, or one for each of the {n_features} features;"
            f" got an array of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError("bounds must be finite")
    reversed_at = np.flatnonzero(array[:, 0] > array[:, 1])
    if len(reversed_at):
        feature = int(reversed_at[0])
        low, high = array[feature].tolist()
        raise ValueError(f"bounds are reversed for feature {feature}: low {low} > high {high}")
    if np.abs(array).max(initial=0.0) > MAX_MAGNITUDE:
        raise ValueError(
            f"bounds beyond {MAX_MAGNITUDE:g} are refused: squared distances could overflow"
        )
    return array


def _wrong_type(name: str, wanted: str, value: Any) -> TypeError:
    return TypeError(f"{name} must be {wanted}, got {value!r} of type {type(value).__name__}")
