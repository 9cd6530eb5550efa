"""How a source is to be read, as a user says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

MissingPolicy = Literal["refuse", "drop"]


@dataclass(frozen=True)
class SourceOptions:
    """How a source is to be read.

    Attributes
    ----------
    delimiter : of a text file; None is a tab for .tsv and a comma for others.
    decimal : the decimal sign of a text file.
    encoding : of a text file.
    sheet : the sheet of a workbook; None if it has only one.
    features : the part of an AnnData file that holds the values, such as ``obsm/X_pca``.
    uri, sql : the address of a database, and the file with the query.
    missing : whether rows with missing values are refused or left out.
    fill : constants that stand for missing values, by the columns' names.
    ids_as_is : take ids that could be mistaken for others.
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"
    sheet: str | None = None
    features: str | None = None
    uri: str | None = None
    sql: Path | None = None
    missing: MissingPolicy = "refuse"
    fill: Mapping[str, float] = field(default_factory=dict)
    ids_as_is: bool = False
