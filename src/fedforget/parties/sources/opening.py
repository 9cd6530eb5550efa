"""Which reader a source gets: by the ending of a file, by a stream's beginning, by an address."""

from __future__ import annotations

import glob
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from fedforget.parties.sources.anndata_files import AnnDataReader
from fedforget.parties.sources.arrow_files import ArrowReader, ArrowStreamReader, ParquetReader
from fedforget.parties.sources.databases import query_reader
from fedforget.parties.sources.npz_files import NpzReader
from fedforget.parties.sources.options import SourceOptions
from fedforget.parties.sources.pipes import Peeked
from fedforget.parties.sources.reader import Reader, TableError, Wanted
from fedforget.parties.sources.source import Source
from fedforget.parties.sources.text_files import TextFormat, TextReader
from fedforget.parties.sources.workbooks import WorkbookReader

STANDARD_INPUT = "-"

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_TEXTS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_ARROW = (".feather", ".arrow", ".ipc")
_STREAMS = (".arrows",)
ANNDATA = (".h5ad",)
_WORKBOOKS = (".xlsx", ".xlsm")
_DATABASES = (".db", ".sqlite", ".sqlite3", ".duckdb")
_ENDINGS = ".parquet, .csv, .tsv (also .gz and .zst), .feather, .arrow, .arrows, .npz, .h5ad, .xlsx"

_STREAM = b"\xff\xff\xff\xff"
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SEEKING = {b"PAR1": "a Parquet file", b"ARROW1": "an Arrow file", b"PK\x03\x04": "a workbook"}
"""How streams begin, and files that cannot be read as streams."""

_TEXT = TextReader, "text files such as .csv"
_MEANT_FOR: dict[str, tuple[type[Reader], str]] = {
    "delimiter": _TEXT,
    "decimal": _TEXT,
    "encoding": _TEXT,
    "sheet": (WorkbookReader, "workbooks (.xlsx)"),
    "features": (AnnDataReader, "AnnData files (.h5ad)"),
}
"""Options that only some readers look at."""


def open_source(
    given: Sequence[str | Path],
    features: Sequence[str],
    id_column: str,
    options: SourceOptions | None = None,
    *,
    public_fill: Mapping[str, float] | None = None,
    large: Collection[str] = (),
    standard_input: BinaryIO | None = None,
) -> Source:
    """Open a source of records; nothing is read yet except a pipe's first bytes.

    Parameters
    ----------
    given : sequence of str or Path
        Files, patterns such as ``export/*.csv``, directories of Parquet files, or ``-`` for
        standard input.  Empty if the options name a database.
    features : sequence of str
        The columns to read, in this order.
    id_column : str
        The column with the ids.
    options : SourceOptions, optional
        How the source is read.
    public_fill : mapping of str to float, optional
        The constants that stand in the federation file; no others are taken.
    large : collection of str, optional
        Features whose bounds reach 2**53 or more: integers of a text file are compared with their
        float64.  Those of other features would lie outside the bounds anyway.
    standard_input : binary file, optional
        What ``-`` means; the process's own standard input by default.

    Returns
    -------
    Source
        The records.

    Raises
    ------
    TableError
        If there is no such source, or the options do not fit it.
    """
    chosen = options or SourceOptions()
    wanted = Wanted(id_column, tuple(features), frozenset(large))
    _check_fill(chosen.fill, wanted, public_fill or {})
    if chosen.missing not in ("refuse", "drop"):
        raise TableError(f"--missing must be refuse or drop, not {chosen.missing!r}")
    if (chosen.uri is None) != (chosen.sql is None):
        raise TableError("--uri and --sql belong together: a database, and a file with one query")
    if chosen.uri is not None and chosen.sql is not None:
        if given:
            raise TableError("give either files or --uri with --sql, not both")
        _refuse_idle_options([], chosen)
        return Source([query_reader(chosen.uri, chosen.sql, wanted)], wanted, chosen)
    if not given:
        raise TableError(
            "no source was given: name files, - for standard input, or --uri and --sql"
        )
    if any(str(one) == STANDARD_INPUT for one in given):
        if len(given) > 1:
            raise TableError("standard input (-) cannot be read together with other sources")
        stream = sys.stdin.buffer if standard_input is None else standard_input
        reader = _stream_reader(stream, wanted, chosen)
        _refuse_idle_options([reader], chosen)
        return Source([reader], wanted, chosen)

    def listing() -> list[Path]:
        return [path for one in given for path in _files(one)]

    paths = listing()
    _refuse_twice(paths)
    readers = [file_reader(path, wanted, chosen) for path in paths]
    _refuse_idle_options(readers, chosen)
    return Source(readers, wanted, chosen, listing)


def _refuse_idle_options(readers: Sequence[Reader], options: SourceOptions) -> None:
    """Refuse an option that no reader looks at: whoever gave it expects something of it."""
    for name, (kind, what) in _MEANT_FOR.items():
        is_given = getattr(options, name) != getattr(SourceOptions, name)
        if is_given and not any(isinstance(reader, kind) for reader in readers):
            raise TableError(
                f"--{name} is for {what}, and there is none among the sources: leave it out, or"
                " name another source"
            )


def _check_fill(fill: Mapping[str, float], wanted: Wanted, public: Mapping[str, float]) -> None:
    """Refuse a constant that is not the federation's: members would fill differently."""
    for name, value in fill.items():
        if name not in wanted.features:
            raise TableError(f"--fill {name}: there is no such feature in the federation file")
        if name not in public:
            raise TableError(
                f"--fill {name}={value:g}: the federation file has no fill for {name!r}. All"
                " members must take the same constant, so it stands there from the beginning"
                f" (server init --fill {name}={value:g})"
            )
        if value != public[name]:
            raise TableError(
                f"--fill {name}={value:g} contradicts the federation file, which says"
                f" {public[name]!r}; nothing was imported"
            )


def _refuse_twice(paths: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise TableError(f"{path} was given twice; nothing was imported")
        seen.add(path.resolve())


def _files(given: str | Path) -> list[Path]:
    """The files that an argument stands for, in the order of their names."""
    path = Path(given)
    if path.is_dir():
        # Spark and others put marks and unfinished files beside the parts of a table.
        found = [
            one
            for one in sorted(path.rglob("*"))
            if one.suffix.lower() in _PARQUET
            and one.is_file()
            and not any(part.startswith(("_", ".")) for part in one.relative_to(path).parts)
        ]
        if not found:
            raise TableError(
                f"{path} is a directory without Parquet files; name other files one by one, or by"
                f" a pattern such as '{path}/*.csv'"
            )
        return found
    if path.exists():
        return [path]
    matches = sorted(Path(one) for one in glob.glob(str(given), recursive=True))
    found = [one for one in matches if one.is_file()]
    if not found:
        pattern = any(sign in str(given) for sign in "*?[")
        more = ", and none matches this pattern" if pattern else ""
        raise TableError(f"{given}: there is no such file{more}")
    return found


def file_reader(path: Path, wanted: Wanted, options: SourceOptions) -> Reader:
    """The reader of a file, by its ending."""
    name, ending = str(path), path.suffix.lower()
    compression = _COMPRESSIONS.get(ending)
    kind = path.with_suffix("").suffix.lower() if compression else ending
    if not path.exists():
        raise TableError(f"{path}: there is no such file")
    if path.is_dir():
        raise TableError(f"{path} is a directory, not a file")
    if not path.is_file():
        raise TableError(f"{path} is not a file; a pipe is read as standard input (-)")
    if kind in _TEXTS:
        form = _text_format(name, options, _TEXTS[kind])
        return TextReader(name, wanted, form, path, compression=compression)
    if compression is None:
        if kind in _PARQUET:
            return ParquetReader(name, wanted, path)
        if kind in _ARROW:
            return ArrowReader(name, wanted, path)
        if kind in _STREAMS:
            return ArrowStreamReader(name, wanted, path)
        if kind == ".npz":
            return NpzReader(name, wanted, path)
        if kind in ANNDATA:
            return AnnDataReader(name, wanted, path, options.features)
        if kind in _WORKBOOKS:
            return WorkbookReader(name, wanted, path, options.sheet)
    hint = "; save it as .xlsx" if kind in (".xls", ".xlsb", ".ods") else ""
    hint = "; a database is read with --uri and --sql" if kind in _DATABASES else hint
    raise TableError(f"{path}: the file name must end in one of {_ENDINGS}{hint}")


def _text_format(name: str, options: SourceOptions, delimiter: str) -> TextFormat:
    chosen = delimiter if options.delimiter is None else options.delimiter
    try:
        return TextFormat(chosen, options.decimal, options.encoding)
    except TableError as error:
        raise TableError(f"{name}: {error}") from None


def _stream_reader(stream: BinaryIO, wanted: Wanted, options: SourceOptions) -> Reader:
    """The reader of a pipe, by its first bytes: text, compressed text, or an Arrow stream."""
    name = "standard input"
    peeked = Peeked(stream)
    for beginning, what in _SEEKING.items():
        if peeked.head.startswith(beginning):
            raise TableError(
                f"{name} is {what}, which must be read from its end: give it as a file"
            )
    if peeked.head.startswith(_STREAM):
        return ArrowStreamReader(name, wanted, stream=peeked)
    compression = next(
        (kind for sign, kind in _COMPRESSED.items() if peeked.head.startswith(sign)), None
    )
    form = _text_format(name, options, ",")
    return TextReader(name, wanted, form, stream=peeked, compression=compression)
