"""Checking receipts, and the small files that commands take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO
from zipfile import BadZipFile

import numpy as np
import typer
from rich.markup import escape

from fedforget.cli.console import console, messages, show
from fedforget.clustering.distance import Floats
from fedforget.errors import FedforgetError
from fedforget.parties import receipts
from fedforget.parties.federation_file import FederationFile


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
            print(json.dumps({"valid": False, "reason": str(error)}, indent=2))
        else:
            messages.print(f"[bold red]not valid:[/bold red] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(1) from None

    def in_words() -> None:
        console.print("[bold green]valid[/bold green]")
        for sentence in proof.sentences():
            console.print(f"  {escape(sentence)}", soft_wrap=True)
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
    """Ids, one a line; empty lines are passed over."""
    if isinstance(source, Path):
        try:
            text = source.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise FedforgetError(f"{source} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise FedforgetError(f"{source} is not UTF-8 text") from None
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
            with np.load(path, allow_pickle=False) as file:
                columns = {name: file[name] for name in features}
        else:
            columns = json.loads(path.read_text(encoding="utf-8"))
        return np.column_stack([np.asarray(columns[name], dtype=np.float64) for name in features])
    except OSError as error:
        raise FedforgetError(f"{path} cannot be read: {error.strerror}") from None
    except (KeyError, ValueError, TypeError, EOFError, BadZipFile):
        raise FedforgetError(f"{path} does not hold centroids of these features") from None
