"""The options that say where records come from, once for all commands that read records."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedforget.parties.federation_file import FederationFile
    from fedforget.parties.sources import Source

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SOURCE]...",
        help="Files (.parquet, .csv, .tsv, .csv.gz, .csv.zst, .feather, .arrow, .arrows, .npz,"
        " .h5ad, .xlsx), patterns, directories of Parquet files, or - for standard input.",
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id", help="The column with the records' ids; of an .h5ad file, the cells' names if not"
        " given."
    ),
]  # fmt: skip
Features = Annotated[
    str | None,
    typer.Option(
        metavar="PART",
        help="Of an .h5ad file, where the values are: X, obs, layers/NAME or obsm/NAME.",
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="The delimiter of a text file; a comma, or a tab for .tsv, if left out."),
]
Decimal = Annotated[str, typer.Option(help="The decimal sign of a text file: . or a comma.")]
Encoding = Annotated[str, typer.Option(help="The encoding of a text file.")]
Sheet = Annotated[str | None, typer.Option(help="The sheet of a workbook with several.")]
Uri = Annotated[
    str | None,
    typer.Option(
        help="A database instead of files: postgresql://HOST/DATABASE, sqlite://FILE or"
        " duckdb://FILE. Passwords belong in ~/.pgpass or PGPASSWORD."
    ),
]
Sql = Annotated[Path | None, typer.Option(help="The file with the query, for --uri.")]
MissingOption = Annotated[
    str, typer.Option(help="Rows with missing values: refuse them all, or drop such rows.")
]
Fill = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Fill a column's missing values with the federation file's constant; repeat for each.",
    ),
]
IdsAsIs = Annotated[
    bool, typer.Option("--ids-as-is", help="Accept ids that could be mistaken for others.")
]

_ARGUMENT: dict[str, tuple[Any, Any]] = {"sources": (Sources, None)}
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "id_column": (IdColumn, None),
    "features": (Features, None),
    "delimiter": (Delimiter, None),
    "decimal": (Decimal, "."),
    "encoding": (Encoding, "utf-8"),
    "sheet": (Sheet, None),
    "uri": (Uri, None),
    "sql": (Sql, None),
    "missing": (MissingOption, "refuse"),
    "fill": (Fill, None),
    "ids_as_is": (IdsAsIs, False),
}


@dataclass(frozen=True)
class GivenSource:
    """A source as it was given on the command line."""

    sources: Sequence[str]
    id_column: str | None
    values: dict[str, Any]

    def open(self, federation: FederationFile) -> Source:
        """The source, for a member of a federation."""
        from fedforget.parties.sources import SourceOptions, open_source
        from fedforget.parties.sources.reader import EXACT

        values = dict(self.values)
        if values["delimiter"] is not None:
            values["delimiter"] = values["delimiter"].replace("\\t", "\t")
        values["fill"] = constants(values["fill"] or [])
        return open_source(
            self.sources,
            federation.feature_names,
            self._id_column(),
            SourceOptions(**values),
            public_fill=federation.fill,
            large=[one.name for one in federation.features if max(-one.low, one.high) >= EXACT],
        )

    def _id_column(self) -> str:
        """The column with the ids: only cells have names of their own."""
        from fedforget.errors import FedforgetError
        from fedforget.parties.sources.anndata_files import OBS_NAMES

        if self.id_column is not None:
            return self.id_column
        if not self.sources or not all(one.lower().endswith(".h5ad") for one in self.sources):
            raise FedforgetError("say which column holds the records' ids: --id COLUMN")
        return OBS_NAMES


def takes_source(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument and the options of a source.

    The command has a parameter ``source`` of type :class:`GivenSource`.  Its place in the command
    is the place of the argument.
    """

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        sources = given.pop("sources") or []
        values = {name: given.pop(name) for name in _OPTIONS}
        id_column = values.pop("id_column")
        command(source=GivenSource(sources, id_column, values), **given)

    own = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for one in own.parameters.values():
        if one.name == "source":
            parameters += [_parameter(*entry) for entry in (_ARGUMENT | _OPTIONS).items()]
        else:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    wrapped.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    return wrapped


def _parameter(name: str, kind: tuple[Any, Any]) -> inspect.Parameter:
    annotation, default = kind
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def constants(texts: Sequence[str]) -> dict[str, float]:
    """Constants for missing values, each written as NAME=VALUE.

    >>> constants(["age=50", "weight=kg=70.5"])
    {'age': 50.0, 'weight=kg': 70.5}
    """
    from fedforget.errors import FedforgetError

    found: dict[str, float] = {}
    for text in texts:
        name, sign, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise FedforgetError(f"--fill {text!r} must have the form NAME=VALUE")
        if name in found:
            raise FedforgetError(f"--fill {name!r} was given twice")
        found[name] = number
    return found


def words_of(source: Source) -> list[str]:
    """What was left out or filled, in words; nothing if nothing was."""
    words = []
    if source.dropped:
        rows = "row" if source.dropped == 1 else "rows"
        words.append(f"{source.dropped} {rows} with missing values left out.")
    for name, count in source.filled.items():
        values = "value" if count == 1 else "values"
        words.append(f"{count} missing {values} of {name!r} filled with the federation's constant.")
    return words
