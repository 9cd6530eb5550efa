"""Checking receipts, and the small files that commands take."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import typer

from fedforget.arrays import Floats, Ints
from fedforget.cli.console import console, messages, safe, show
from fedforget.cli.exported_models import (
    columns_of_csv,
    columns_of_parquet,
    names_in_csv,
    names_in_parquet,
)
from fedforget.clustering.distance import MAX_MAGNITUDE
from fedforget.errors import FedforgetError
from fedforget.incoming import IncomingFileError, open_npz, read_json, read_text
from fedforget.parties import receipts
from fedforget.parties.federation_file import FederationFile
from fedforget.parties.folders import FEDERATION
from fedforget.parties.sources.alike import trouble_with
from fedforget.parties.version_store import earlier_file
from fedforget.text import json_text, visible

MAX_BYTES_OF_IDS = 1 << 30


def verify_receipt(
    path: Path,
    federation: Path,
    ids_file: Path | None,
    salt: str | None,
    as_json: bool,
    *,
    ids_as_is: bool = False,
) -> None:
    """Check a receipt and say what it proves."""
    try:
        ids = None if ids_file is None else read_ids(ids_file, as_is=ids_as_is)
        document, secret = receipts.read(path), None if salt is None else _salt(salt)
        file = FederationFile.read(federation)
        proof = _proof_of(document, federation, file, ids=ids, salt=secret)
    except FedforgetError as error:
        if as_json:
            print(json_text({"valid": False, "reason": str(error)}, indent=2))
        else:
            messages.print(f"[bold red]not valid:[/bold red] {safe(error)}", soft_wrap=True)
        raise typer.Exit(1) from None

    def in_words() -> None:
        console.print("[bold green]valid[/bold green]")
        for sentence in proof.sentences():
            console.print(f"  {safe(sentence)}", soft_wrap=True)
        console.print("It does not prove that no copy exists elsewhere; it does not cover:")
        console.print(f"  {receipts.NOT_COVERED}.", soft_wrap=True)

    result = {"valid": True} | vars(proof) | {"not_covered": receipts.NOT_COVERED}
    show(result, as_json, in_words)


def _proof_of(
    document: dict[str, Any], path: Path, file: FederationFile, **given: Any
) -> receipts.Proof:
    """Check a receipt with a version of the federation file, or with one that lies beside it."""
    try:
        return receipts.verify(document, file, **given)
    except receipts.EarlierVersionError as error:
        earlier = _version_beside(path, error)
        return receipts.verify(document, earlier, **given, current=file)
    except receipts.LaterVersionError as error:
        later = _current_beside(path, file)
        if later is None:
            raise error
        return _proof_of(document, path.parent / FEDERATION, later, **given)


def _current_beside(path: Path, file: FederationFile) -> FederationFile | None:
    """The version in force, if an earlier one was given and it lies beside that."""
    current = path.parent / FEDERATION
    if not current.exists():
        return None
    found = FederationFile.read(current)
    follows = any(one.digest == file.digest.hex() for one in found.earlier)
    return found if follows and found.server_key == file.server_key else None


def _version_beside(federation: Path, error: receipts.EarlierVersionError) -> FederationFile:
    """The earlier version of a federation file that lies beside it, if it is the right one."""
    path = earlier_file(federation.parent, error.version)
    if not path.exists():
        raise error
    found = FederationFile.read(path)
    if found.digest.hex() != FederationFile.read(federation).earlier[error.version - 1].digest:
        raise FedforgetError(f"{path} is not version {error.version} of {federation}")
    return found


def _salt(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise FedforgetError("the salt must be hexadecimal, as it was handed out") from None


@dataclass(frozen=True)
class IdList:
    """Ids that a command is given, one by one and in a file.

    ``lines`` are those of the file whose form may be doubted, ``file`` is what it is called.
    """

    ids: list[str]
    lines: list[str]
    file: str | None

    @classmethod
    def read(cls, ids: list[str] | None, file: str | None, *, as_is: bool) -> IdList:
        """Read the file, which is standard input where it is called ``-``."""
        for one in [] if as_is else ids or []:
            trouble = trouble_with(one)
            if trouble is not None:
                raise FedforgetError(
                    f"--ids {visible(one)!r} {trouble}. Ids are taken as they are, so another"
                    " record may be meant: mend it, or add --ids-as-is if it is right; nothing was"
                    " forgotten"
                )
        if file is None:
            return cls(list(ids or []), [], None)
        lines = read_ids(sys.stdin if file == "-" else Path(file), as_is=as_is)
        name = "standard input" if file == "-" else file
        return cls([*(ids or []), *lines], [] if as_is else lines, name)

    @property
    def nothing(self) -> str:
        """What is said where a file names nobody."""
        return f"No ids in {self.file}: nothing to forget."

    def check_some(self) -> None:
        """Refuse a command that was given neither ids nor a file."""
        if self.file is None and not self.ids:
            raise FedforgetError("no ids were given (--ids, --ids-file); nothing was forgotten")

    def check_one_per_line(self) -> None:
        """Refuse a table of which no line is held: somebody meant one of its columns."""
        for sign, name in ((",", "commas"), (";", "semicolons")):
            if 2 * sum(sign in line for line in self.lines) > len(self.lines):
                raise FedforgetError(
                    f"{self.file}: none of its lines is held here, and most of them have {name}:"
                    " each line must be one id, without other columns. Give the ids alone, or add"
                    " --ids-as-is if these are ids; nothing was forgotten"
                )


def read_ids(source: Path | TextIO, *, as_is: bool = False) -> list[str]:
    """Ids, one per line, as they are; empty lines are passed over.

    A line ends in a line feed, with a carriage return before it or without.  White space around an
    id is part of it, and hardly ever meant: like other ids that are mistaken for others, it is
    refused unless ids are taken ``as_is``.
    """
    if isinstance(source, Path):
        name, text = str(source), read_text(source, MAX_BYTES_OF_IDS)
    else:
        name = "standard input"
        try:
            text = source.read().removeprefix("\ufeff")
        except UnicodeDecodeError:
            raise FedforgetError("standard input is not text") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    wrong = {} if as_is else {at: trouble_with(line) for at, line in enumerate(lines, 1) if line}
    first = next((at for at, trouble in wrong.items() if trouble is not None), None)
    if first is not None:
        raise FedforgetError(
            f"{name}: the id in line {first} {wrong[first]}. Ids are taken as they are, so another"
            " record may be meant: mend the line, or add --ids-as-is if it is right; nothing was"
            " forgotten"
        )
    return [line for line in lines if line]


def read_centroids(path: Path, features: list[str]) -> Floats:
    """Centroids as ``server model`` exports them, in the order of the features."""
    columns = _read_columns(path, list(dict.fromkeys([*features, SIZES])))
    for name in features:
        _check_centroids(path, name, columns)
    if len({len(columns[name]) for name in features}) > 1:
        raise FedforgetError(f"{path} does not hold one value of each feature for each centroid")
    if SIZES in columns and SIZES not in features:
        _check_sizes(path, columns[SIZES], len(columns[features[0]]))
    return np.column_stack([columns[name].astype(np.float64) for name in features])


def read_model(path: Path, features: list[str]) -> Floats:
    """Centroids of exactly these features; a table with other columns is no model, but data."""
    centres = read_centroids(path, features)
    others = [name for name in _names_in(path) if name not in (*features, SIZES, NUMBERS)]
    if others:
        raise FedforgetError(
            f"{path} does not hold centroids of these features alone: {visible(others[0])!r} is"
            " none of them. Give a file that server model has written"
        )
    return centres


def features_in(path: Path, features: list[str]) -> list[str]:
    """Those of the features that a file of centroids has, whatever it holds of them."""
    found = _read_columns(path, features)
    return [name for name in features if name in found]


SIZES = "size"
"""The column with the clusters' numbers of records, unless a feature has this name."""

NUMBERS = "cluster"
"""The column with the clusters' numbers, in models that are numbered like an earlier one."""


def read_numbers(path: Path, n_centroids: int, features: list[str]) -> Ints:
    """The numbers of exported centroids: their own column, or their places in the file."""
    found = None if NUMBERS in features else _read_columns(path, [NUMBERS]).get(NUMBERS)
    if found is None:
        return np.arange(n_centroids)
    # Beyond 2^53 a float is no exact number, and what is not finite is none.
    plain = found.dtype.kind in "iuf" and bool((np.abs(found.astype(np.float64)) < 2.0**53).all())
    numbers = found.astype(np.int64) if plain else np.empty(0, np.int64)
    distinct = len(set(numbers.tolist())) == len(numbers) == n_centroids
    if found.ndim != 1 or not distinct or (numbers != found).any() or numbers.min() < 0:
        raise FedforgetError(f"{path} does not hold one number per cluster as {NUMBERS!r}")
    return numbers


def _read_columns(path: Path, names: list[str]) -> dict[str, npt.NDArray[Any]]:
    """The columns of an exported model, as far as they are there."""
    try:
        match path.suffix.lower():
            case ".npz":
                with open_npz(path) as file:
                    return {name: file[name] for name in names if name in file}
            case ".csv":
                return columns_of_csv(path, names)
            case ".parquet":
                return columns_of_parquet(path, names)
            case _:
                return _columns_of(path, read_json(path), names)
    except IncomingFileError as error:
        if isinstance(error.__context__, FileNotFoundError):
            raise FedforgetError(f"{path}: there is no such file") from None
        raise FedforgetError(f"{path} does not hold centroids: {error}") from None


def _names_in(path: Path) -> list[str]:
    """The names of all columns of a file that could be read."""
    match path.suffix.lower():
        case ".npz":
            with open_npz(path) as file:
                return list(file)
        case ".csv":
            return names_in_csv(path)
        case ".parquet":
            return names_in_parquet(path)
        case _:
            return list(read_json(path))


def _columns_of(path: Path, content: Any, features: list[str]) -> dict[str, npt.NDArray[Any]]:
    """The lists of a JSON object as arrays, as far as they are there."""
    if not isinstance(content, dict):
        raise FedforgetError(f"{path} does not hold centroids: it must be a JSON object")
    columns = {}
    for name in (name for name in features if name in content):
        values = content[name]
        if not isinstance(values, list) or any(type(one) not in (int, float) for one in values):
            raise FedforgetError(f"{path} does not hold a list of numbers as {name!r}")
        try:
            columns[name] = np.array(values, dtype=np.float64)
        except OverflowError:
            raise FedforgetError(f"{path} holds a number as {name!r} that is too large") from None
    return columns


def _check_centroids(path: Path, name: str, columns: dict[str, npt.NDArray[Any]]) -> None:
    """Refuse a feature's values that cannot be coordinates of centroids."""
    if name not in columns:
        raise FedforgetError(f"{path} does not hold centroids of these features: no {name!r}")
    values = columns[name]
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iuf":
        raise FedforgetError(f"{path} does not hold a list of numbers as {name!r}")
    if not (np.abs(values.astype(np.float64)) <= MAX_MAGNITUDE).all():
        raise FedforgetError(
            f"{path} holds a value of {name!r} that is not finite, or beyond ±{MAX_MAGNITUDE:g}"
        )


def _check_sizes(path: Path, sizes: npt.NDArray[Any], n_centroids: int) -> None:
    """Refuse sizes that cannot be numbers of records; nothing else is done with them."""
    whole = sizes.ndim == 1 and sizes.dtype.kind in "iuf" and len(sizes) == n_centroids
    # What is not finite or beyond 2^53 is no number of records either.
    if not whole or not ((sizes >= 0) & (sizes < 2.0**53) & (sizes == np.floor(sizes))).all():
        raise FedforgetError(f"{path} does not hold one number of records per cluster as {SIZES!r}")
