"""Saved models: one npz file of plain arrays and a JSON header, never a pickle.

The file holds records and secrets, so it is written for its owner alone, and in one step.  Since
the fitted state is a function of the records, a file holds only those; loading fits again and
compares the digest, which also finds out about damage and about machines that compute differently.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Floats, NamedArrays
from fedforget.digests import Digest
from fedforget.errors import ModelFileError
from fedforget.incoming import Npz, parse_json
from fedforget.whole_files import whole_file

FORMAT = 1


def _seal(header: dict[str, Any], arrays: NamedArrays) -> str:
    """A digest of everything in a file.  It finds damage; it does not keep out a forger."""
    digest = Digest("model file").field("header", json.dumps(header, sort_keys=True))
    for name in sorted(arrays):
        digest.array(name, arrays[name])
    return digest.hex()


def write(path: str | PathLike[str], header: dict[str, Any], arrays: NamedArrays) -> None:
    """Write a model file, readable by its owner only, replacing an old one in one step."""
    target = Path(path)
    header = json.loads(json.dumps({"format": FORMAT, **header}, allow_nan=False))
    text = json.dumps(header | {"seal": _seal(header, arrays)}, sort_keys=True)
    members: dict[str, Any] = {"header": np.frombuffer(text.encode(), dtype=np.uint8)}
    members |= arrays
    with whole_file(target) as file:
        np.savez(file, **members)


def read(path: str | PathLike[str], estimator: str) -> tuple[dict[str, Any], NamedArrays]:
    """Read a model file of one kind of estimator."""
    with open(path, "rb") as file:
        try:
            with Npz(file, "the file") as archive:
                arrays = {name: archive[name] for name in archive}
            header = parse_json(arrays.pop("header").tobytes().decode(), "the header")
            seal = header.pop("seal")
        except Exception as error:  # zip files can be broken in more ways than can be listed
            raise ModelFileError(f"{os.fspath(path)} is not a saved model: {error}") from error
    if header.get("format") != FORMAT:
        raise ModelFileError(
            f"{os.fspath(path)} has format {header.get('format')!r}; this version reads {FORMAT}"
        )
    if header.get("estimator") != estimator:
        raise ModelFileError(
            f"{os.fspath(path)} holds a {header.get('estimator')}, not a {estimator};"
            f" use {header.get('estimator')}.load"
        )
    with explained(path):
        if seal != _seal(header, arrays):
            raise ValueError("its contents do not agree with its checksum")
    return header, arrays


@contextmanager
def explained(path: str | PathLike[str]) -> Iterator[None]:
    """Turn whatever goes wrong with a file's contents into one clear error."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{os.fspath(path)} is damaged: {error}") from error


def check_digest(path: str | PathLike[str], expected: str, found: str) -> None:
    """Refuse a model that does not come out as it was saved."""
    if expected != found:
        raise ModelFileError(
            f"{os.fspath(path)} does not reproduce its model (digest {found[:16]}, saved as"
            f" {expected[:16]}): the file was changed, or was saved by another version"
        )


def plain_random_state(random_state: Any) -> int | None:
    """What of a ``random_state`` can be written down; the secret is saved in any case."""
    return int(random_state) if isinstance(random_state, Integral) else None


def matrix(array: npt.NDArray[Any]) -> Floats:
    """An array of a file as records, which must be a matrix of float64."""
    if array.ndim != 2 or array.dtype != np.float64:
        raise ValueError(f"records of type {array.dtype} and shape {array.shape}")
    return np.ascontiguousarray(array)


def feature_names(model: Any) -> NamedArrays:
    """The fitted feature names, if there are any, as an array to save."""
    names = getattr(model, "feature_names_in_", None)
    return {} if names is None else {"feature_names": np.asarray(names, dtype=np.str_)}


def restore_features(model: Any, arrays: NamedArrays, n_features: int) -> None:
    """Set scikit-learn's attributes about the features."""
    model.n_features_in_ = n_features
    if "feature_names" in arrays:
        model.feature_names_in_ = arrays["feature_names"].astype(object)
