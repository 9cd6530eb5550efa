"""Text files: CSV and TSV, plain or compressed, in a file or on standard input.

A file is read once, so a pipe is as good as a file.  Messages name a cell that is not a number;
they never repeat a whole line, which would be a patient.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedforget.arrays import Floats
from fedforget.parties.sources.arrow_columns import parts_of
from fedforget.parties.sources.large_integers import exact_numbers
from fedforget.parties.sources.pipes import Ended, Peeked
from fedforget.parties.sources.reader import RawIds, Reader, TableError, Wanted

_BLOCK = 4 << 20
_HEAD = 1 << 20
_DELIMITERS = {",": "','", ";": "';'", "\t": "'\\t'", "|": "'|'", " ": "' '", ":": "':'"}
"""Those that files are written with, as they are typed on a command line."""

_NOTHING = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "#N/A", "<NA>", "None"]

_BEGINNINGS = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\xff\xff\xff\xff": "an Arrow stream",
    b"PK\x03\x04": "a zip archive or a workbook",
    b"\x1f\x8b": "a gzip file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"%PDF": "a PDF file",
}

_WRONG_COUNT = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_WRONG_CELL = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to \w+: (.*)", re.DOTALL
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


@dataclass(frozen=True)
class TextFormat:
    """How a text file is written."""

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1:
            raise TableError(f"a delimiter is one character, not {self.delimiter!r}")
        if self.decimal not in (".", ","):
            raise TableError(f"a decimal sign is . or a comma, not {self.decimal!r}")
        if self.decimal == self.delimiter:
            raise TableError(
                f"{self.decimal!r} cannot be the delimiter and the decimal sign at once: say"
                " --delimiter ';', or whatever it is"
            )
        try:
            "".encode(self.encoding)
        except LookupError:
            raise TableError(f"there is no encoding {self.encoding!r}") from None
        try:
            codecs.getincrementaldecoder(self.encoding)(errors="replace").decode(b"a")
        except (UnicodeError, LookupError):
            raise TableError(
                f"the encoding {self.encoding!r} is not one of text files: see --encoding"
            ) from None


class TextReader(Reader):
    """A CSV or TSV file.

    Parameters
    ----------
    name : what messages call it.
    wanted : the columns.
    form : how it is written.
    path : the file; None for a stream.
    stream : where it is read from, if it is not a file.
    compression : gzip, zstd or None.
    """

    def __init__(
        self,
        name: str,
        wanted: Wanted,
        form: TextFormat,
        path: Path | None = None,
        stream: io.RawIOBase | None = None,
        compression: str | None = None,
    ) -> None:
        super().__init__(name, wanted, path)
        self._form = form
        self._stream = stream
        self._compression = compression

    def parts(self) -> Iterator[tuple[RawIds, Floats]]:
        import pyarrow as pa

        with ExitStack() as stack:
            source: Any = self._stream if self.path is None else str(self.path)
            stream = stack.enter_context(pa.input_stream(source, compression=self._compression))
            peeked = Peeked(stream, _HEAD)
            self._check_head(peeked.head)
            whole = pa.PythonFile(peeked, mode="r")
            if codecs.lookup(self._form.encoding).name != "utf-8":
                whole = pa.transcoding_input_stream(whole, self._form.encoding, "utf-8")
            mark = secrets.token_hex(16)
            marked = pa.PythonFile(Ended(whole, self._last_row(mark)), mode="r")
            try:
                batches = stack.enter_context(self._open(marked))
                measured = exact_numbers(self, batches, self._form.decimal, _NOTHING)
                yield from self._up_to(mark, parts_of(self, measured))
            except pa.ArrowInvalid as error:
                raise self._refusal(str(error)) from None

    def _last_row(self, mark: str) -> bytes:
        """A row behind the last one, to see whether the table was read to its end.

        A quotation mark that is never closed makes one cell of everything behind it.
        """
        assert self.columns is not None
        cells = [mark if name == self.wanted.id_column else "" for name in self.columns]
        return f"\n{self._form.delimiter.join(cells)}\n".encode()

    def _up_to(
        self, mark: str, parts: Iterator[tuple[RawIds, Floats]]
    ) -> Iterator[tuple[RawIds, Floats]]:
        """All rows before the marked one, which must be the last."""
        rows, waiting = 0, None
        for part in parts:
            if waiting is not None:
                yield waiting
            waiting, rows = part, rows + len(part[1])
        if waiting is None or waiting[0][-1] != mark:
            raise TableError(
                f"{self.name}: row {rows} has a cell that begins with a quotation mark and never"
                " ends; nothing was imported"
            )
        ids, values = waiting
        if len(values) > 1:
            yield ids[:-1], values[:-1]

    def _open(self, stream: Any) -> Any:
        """A reader of the wanted columns."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        # With threads, errors would not say which row they mean.
        return arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self._form.delimiter, newlines_in_values=True
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self.wanted.features, pa.float64())
                | dict.fromkeys((*self.wanted.large, self.wanted.id_column), pa.string()),
                include_columns=self.wanted.columns,
                null_values=_NOTHING,
                decimal_point=self._form.decimal,
            ),
        )

    # -- the first line --------------------------------------------------------------------------

    def _check_head(self, head: bytes) -> None:
        """Refuse what is not text, and a first line that does not name the columns."""
        for beginning, what in _BEGINNINGS.items():
            if head.startswith(beginning):
                raise TableError(
                    f"{self.name} is {what}, not text; give it the ending of what it is; nothing"
                    " was imported"
                )
        text = self._decoded(head)
        if "\0" in text:
            raise TableError(
                f"{self.name} is not text in the encoding {self._form.encoding}: it has zero bytes"
                " (see --encoding); nothing was imported"
            )
        if not text.strip():
            raise TableError(f"{self.name} cannot be read: it is empty; nothing was imported")
        names = _first_row(text, self._form.delimiter)
        if not set(names) & set(self.wanted.columns):
            # What stands there may be a patient: it is not repeated.
            raise TableError(self._no_header(text, names))
        self.check_columns(names)

    def _decoded(self, head: bytes) -> str:
        decoder = codecs.getincrementaldecoder(self._form.encoding)(errors="replace")
        return decoder.decode(head).removeprefix("\ufeff")

    def check_columns(self, names: Any) -> None:
        missing = [name for name in self.wanted.columns if name not in names]
        other = self._other_delimiter(names) if missing else None
        if other is not None:
            raise TableError(f"{self.name} {other}")
        super().check_columns(names)

    def _other_delimiter(self, names: list[str]) -> str | None:
        """Whether a name that is missing stands in a cell, beside another delimiter."""
        for cell in names:
            if cell.strip() in self.wanted.columns:
                continue  # Spaces around a name do not part it from another one.
            for sign, typed in _DELIMITERS.items():
                inside = _first_row(cell, sign) if sign in cell else []
                if sign != self._form.delimiter and set(inside) & set(self.wanted.columns):
                    return f"is not delimited by {self._form.delimiter!r}: try --delimiter {typed}"
        return None

    def _no_header(self, text: str, names: list[str]) -> str:
        first = self.wanted.columns[0]
        for sign, typed in _DELIMITERS.items():
            if set(_first_row(text, sign)) & set(self.wanted.columns):
                return (
                    f"{self.name} has no column {first!r}: it is not delimited by"
                    f" {self._form.delimiter!r}; try --delimiter {typed}; nothing was imported"
                )
        return (
            f"{self.name} has no column {first!r}, and no other that is wanted: its first line has"
            f" {len(names)} cells, none of which is one of the names. Is the line with the names"
            " missing, or the delimiter another one? Nothing was imported"
        )

    # -- what is wrong further down --------------------------------------------------------------

    def _refusal(self, problem: str) -> TableError:
        """What Arrow complains of, without the line that it repeats."""
        count, cell = _WRONG_COUNT.match(problem), _WRONG_CELL.match(problem)
        if count is not None:
            row, expected, got = count.groups()
            where = f": row {int(row) - 1}" if row else ""
            more = int(got) > int(expected) and self._form.delimiter == ","
            hint = " (commas may be its decimal signs: see --delimiter, --decimal)" if more else ""
            return TableError(
                f"{self.name} cannot be read{where} has {got} cells and the first line"
                f" {expected}{hint}; nothing was imported"
            )
        if cell is None:
            reason = problem.splitlines()[0].split(": ", 1)[0] if problem else "it is damaged"
            return TableError(f"{self.name} cannot be read: {reason}; nothing was imported")
        column, row, what = cell.groups()
        assert self.columns is not None
        name = self.columns[int(column)]
        where = f"{self.name}: row {int(row) - 1}, column {name!r}" if row else self.name
        if "UTF8" in what:
            return TableError(
                f"{where} is not text in the encoding {self._form.encoding} (see --encoding);"
                " nothing was imported"
            )
        value = what.removeprefix("invalid value '").removesuffix("'")
        hint = ""
        if self._form.decimal == "." and _DECIMAL_COMMA.fullmatch(value):
            hint = " (is its decimal sign a comma? then say --decimal ,)"
        shown = repr(value) if len(value) <= 40 else f"a text of {len(value)} characters"
        return TableError(f"{where} is {shown}, not a number{hint}; nothing was imported")


def _first_row(text: str, delimiter: str) -> list[str]:
    """The cells of the first line that is not empty."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return next((row for row in rows if row), [])
    except csv.Error:
        return []
