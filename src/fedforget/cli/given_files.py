"""Checking receipts, and the small files that commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import typer

from fedforget.arrays import Floats
from fedforget.cli.console import console, messages, safe, show
from fedforget.clustering.distance import MAX_MAGNITUDE
from fedforget.errors import FedforgetError
from fedforget.incoming import IncomingFileError, open_npz, read_json, read_text
from fedforget.parties import receipts
from fedforget.parties.federation_file import FederationFile
from fedforget.text import json_text

MAX_BYTES_OF_IDS = 1 << 30


def verify_receipt(
    path: Path, federation: Path, ids_file: Path | None, salt: str | None, as_json: bool
) -> None:
    """Check a receipt and say what it proves."""
    try:
        ids = None if ids_file is None else read_ids(ids_file)
        proof = receipts.verify(
            receipts.read(path),
            FederationFile.read(federation),
            ids=ids,
            salt=None if salt is None else _salt(salt),
        )
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


def _salt(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise FedforgetError("the salt must be hexadecimal, as it was handed out") from None


def read_ids(source: Path | TextIO) -> list[str]:
    """Ids, one per line; empty lines are passed over."""
    if isinstance(source, Path):
        text = read_text(source, MAX_BYTES_OF_IDS)
    else:
        try:
            text = source.read()
        except UnicodeDecodeError:
            raise FedforgetError("standard input is not text") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_centroids(path: Path, features: list[str]) -> Floats:
    """Centroids as ``server model`` exports them, in the order of the features."""
    try:
        if path.suffix.lower() == ".npz":
            with open_npz(path) as file:
                columns = {name: file[name] for name in features if name in file}
        else:
            columns = _columns_of(path, read_json(path), features)
    except IncomingFileError as error:
        raise FedforgetError(f"--model does not hold centroids: {error}") from None
    for name in features:
        _check_centroids(path, name, columns)
    if len({len(columns[name]) for name in features}) > 1:
        raise FedforgetError(f"{path} does not hold one value of each feature for each centroid")
    return np.column_stack([columns[name].astype(np.float64) for name in features])


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
