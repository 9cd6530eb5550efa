"""Every source gives the same records; what is not right is refused, and nothing has changed."""

from __future__ import annotations

import datetime
import decimal
import gzip
import io
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from party_world import FEATURES, World, federation_file, values_of

from fedforget.errors import FedforgetError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.federation_file import (
    Feature,
    FederationFile,
    FederationFileError,
    with_fill,
)
from fedforget.parties.sources import (
    ROWS_AT_A_TIME,
    Source,
    SourceOptions,
    TableError,
    open_source,
)
from fedforget.parties.sources.addresses import Address

N_ROWS = ROWS_AT_A_TIME + 100


def opened(*given: str | Path, stdin: bytes | None = None, **options: Any) -> Source:
    public = options.pop("public_fill", None)
    stream = None if stdin is None else io.BytesIO(stdin)
    return open_source(
        given,
        FEATURES,
        "id",
        SourceOptions(**options),
        public_fill=public,
        standard_input=stream,  # type: ignore[arg-type]
    )


def read(source: Source) -> dict[str, list[float]]:
    """Everything that a source holds, by ids as text."""
    ids: list[str] = []
    rows: list[list[float]] = []
    for some, values in source.parts():
        assert 0 < len(some) == len(values) <= ROWS_AT_A_TIME
        assert values.dtype == np.float64
        ids += map(str, some.tolist())
        rows += values.tolist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, rows, strict=True))


def refusal(source: Callable[[], Source]) -> str:
    """Why a source is refused."""
    with pytest.raises(TableError) as error:
        read(source())
    return str(error.value)


# -- formats ---------------------------------------------------------------------------------------


def csv_bytes(table: pa.Table, delimiter: str = ",") -> bytes:
    out = io.BytesIO()
    pa.csv.write_csv(table, out, pa.csv.WriteOptions(delimiter=delimiter))
    return out.getvalue()


def stream_bytes(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=1000)
    return out.getvalue()


def write_sheet(path: Path, *rows: Any, **sheets: list[Any]) -> Path:
    book = openpyxl.Workbook(write_only=True)
    for name, content in ({"Sheet": rows} if rows else sheets).items():
        sheet = book.create_sheet(name)
        for row in content:
            sheet.append(row)
    book.save(path)
    return path


def write_sqlite(path: Path, table: pa.Table) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute('create table t (id, age, weight, "ward name")')
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        connection.executemany("insert into t values (?, ?, ?, ?)", rows)
    return path


def write_duckdb(path: Path, table: pa.Table) -> Path:
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.register("given", table)
        connection.execute("create table t as select * from given")
    return path


def query(folder: Path, text: str = "select * from t") -> Path:
    path = folder / "query.sql"
    path.write_text(text, encoding="utf-8")
    return path


FORMATS: dict[str, Callable[[Path, pa.Table], Any]] = {
    "t.csv": lambda path, table: path.write_bytes(csv_bytes(table)),
    "t.tsv": lambda path, table: path.write_bytes(csv_bytes(table, "\t")),
    "t.csv.gz": lambda path, table: path.write_bytes(gzip.compress(csv_bytes(table))),
    "t.csv.zst": lambda path, table: path.write_bytes(
        pa.compress(csv_bytes(table), "zstd", asbytes=True)
    ),
    "t.tsv.gz": lambda path, table: path.write_bytes(gzip.compress(csv_bytes(table, "\t"))),
    "t.parquet": lambda path, table: pq.write_table(table, path),
    "t.feather": lambda path, table: pa.feather.write_feather(table, path),
    "t.arrow": lambda path, table: pa.feather.write_feather(table, path, compression="zstd"),
    "t.arrows": lambda path, table: path.write_bytes(stream_bytes(table)),
    "stream.arrow": lambda path, table: path.write_bytes(stream_bytes(table, compression="lz4")),
    "t.npz": lambda path, table: np.savez(
        path, **{name: table[name].to_numpy() for name in ("age", "weight")},
        id=np.array(table["id"].to_pylist()),
    ),
    "t.xlsx": lambda path, table: write_sheet(
        path,
        table.column_names,
        *zip(*(column.to_pylist() for column in table.columns), strict=True),
    ),
}  # fmt: skip


def patients(n: int = N_ROWS, seed: int = 0, digits: int = 17) -> pa.Table:
    """Records; spreadsheets are written here with 16 digits at most."""
    values = values_of(n, seed).round(digits)
    return pa.table(
        {
            "id": [f"P-{row}" for row in range(n)],
            "age": values[:, 0],
            "weight": values[:, 1],
            "ward name": ["a"] * n,
        }
    )


def content(table: pa.Table) -> dict[str, list[float]]:
    rows = zip(table["age"].to_pylist(), table["weight"].to_pylist(), strict=True)
    return dict(zip(table["id"].to_pylist(), map(list, rows), strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_gives_the_same(tmp_path: Path, name: str) -> None:
    # A spreadsheet cell takes microseconds, one of the others nanoseconds.
    table = patients(500 if name.endswith("xlsx") else N_ROWS, digits=4)
    FORMATS[name](tmp_path / name, table)
    source = opened(tmp_path / name)
    assert read(source) == content(table)
    assert source.columns is not None
    assert {"id", "age", "weight"} <= set(source.columns)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_every_database_gives_the_same(tmp_path: Path, kind: str) -> None:
    table = patients()
    path = tmp_path / "t.db"
    {"sqlite": write_sqlite, "duckdb": write_duckdb}[kind](path, table)
    sql = query(tmp_path)
    before = path.read_bytes()
    assert read(opened(uri=f"{kind}://{path}", sql=sql)) == content(table)
    assert path.read_bytes() == before


PIPES: dict[str, Callable[[pa.Table], bytes]] = {
    "csv": csv_bytes,
    "gzip": lambda table: gzip.compress(csv_bytes(table)),
    "zstd": lambda table: pa.compress(csv_bytes(table), "zstd", asbytes=True),
    "stream": stream_bytes,
    "packed stream": lambda table: stream_bytes(table, compression="zstd"),
}


@pytest.mark.parametrize("kind", PIPES)
def test_standard_input_gives_the_same(kind: str) -> None:
    table = patients()
    assert read(opened("-", stdin=PIPES[kind](table))) == content(table)


def test_a_real_pipe_gives_its_bytes_in_pieces() -> None:
    table = patients()
    data = csv_bytes(table)
    reading, writing = os.pipe()

    def feed() -> None:
        with open(writing, "wb", buffering=0) as pipe:
            for at in range(0, len(data), 1009):
                pipe.write(data[at : at + 1009])

    feeder = threading.Thread(target=feed)
    feeder.start()
    with open(reading, "rb", buffering=0) as pipe:
        source = open_source(["-"], FEATURES, "id", standard_input=pipe)  # type: ignore[arg-type]
        assert read(source) == content(table)
    feeder.join()


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.xlsx"])
def test_files_that_need_their_end_are_no_pipes(tmp_path: Path, name: str) -> None:
    FORMATS[name](tmp_path / name, patients(10))
    data = (tmp_path / name).read_bytes()
    assert "give it as a file" in refusal(lambda: opened("-", stdin=data))


# -- several files ---------------------------------------------------------------------------------


def parts_of_an_export(folder: Path, ending: str = "parquet", n: int = 3) -> pa.Table:
    table = patients(90)
    for part in range(n):
        path = folder / f"part-{part}.{ending}"
        FORMATS[f"t.{ending}"](path, table.slice(30 * part, 30))
    return table


def test_several_files_are_one_source(tmp_path: Path) -> None:
    table = parts_of_an_export(tmp_path)
    shutil.copy(tmp_path / "part-2.parquet", tmp_path / "x.parquet")
    FORMATS["t.csv"](tmp_path / "last.csv", table.slice(60, 30))
    mixed = opened(tmp_path / "part-0.parquet", tmp_path / "part-1.parquet", tmp_path / "last.csv")
    assert read(mixed) == content(table)
    assert read(opened(str(tmp_path / "part-*.parquet"))) == content(table)


def test_a_directory_of_parquet_files(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    (folder / "year=2020").mkdir(parents=True)
    (folder / "_temporary").mkdir()
    table = parts_of_an_export(folder)
    (folder / "part-1.parquet").rename(folder / "year=2020" / "part-1.parquet")
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "_temporary" / "half.parquet").write_bytes(b"PAR1")
    (folder / ".part-0.parquet.crc").write_bytes(b"x")
    assert read(opened(folder)) == content(table)


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    FORMATS["t.csv"](tmp_path / "t.csv", patients(3))
    assert "is a directory without Parquet files" in refusal(lambda: opened(tmp_path / "empty"))
    assert "there is no such file" in refusal(lambda: opened(tmp_path / "no.csv"))
    message = refusal(lambda: opened(str(tmp_path / "*.npz")))
    assert "and none matches this pattern" in message
    twice = (tmp_path / "t.csv", str(tmp_path / "*.csv"))
    assert "t.csv was given twice" in refusal(lambda: opened(*twice))
    assert "no source was given" in refusal(lambda: opened())
    assert "together with other sources" in refusal(lambda: opened("-", "-", stdin=b""))
    assert "belong together" in refusal(lambda: opened(uri="sqlite://x.db"))
    sql = query(tmp_path)
    either = refusal(lambda: opened("t.csv", uri="sqlite://x.db", sql=sql))
    assert "either files or --uri" in either
    os.mkfifo(tmp_path / "pipe.csv")
    assert "read as standard input" in refusal(lambda: opened(tmp_path / "pipe.csv"))
    for ending, hint in (("xls", "save it as .xlsx"), ("db", "--uri"), ("docx", "must end in")):
        (tmp_path / f"t.{ending}").write_bytes(b"x")
        assert hint in refusal(lambda ending=ending: opened(tmp_path / f"t.{ending}"))
    assert "refuse or drop" in refusal(lambda: opened("t.csv", missing="guess"))


def test_an_error_in_a_later_file_names_it(tmp_path: Path) -> None:
    parts_of_an_export(tmp_path, "csv")
    bad = tmp_path / "part-1.csv"
    bad.write_bytes(bad.read_bytes().replace(b'"P-31"', b'""'))
    message = refusal(lambda: opened(str(tmp_path / "part-*.csv")))
    assert "part-1.csv: row 2 has no id" in message
    FORMATS["t.csv"](bad, patients(30).drop_columns("age"))
    assert "part-1.csv has no column 'age'" in refusal(lambda: opened(str(tmp_path / "part-*.csv")))


# -- types -----------------------------------------------------------------------------------------


def one_column(column: pa.Array, folder: Path, kind: str = "parquet") -> Source:
    table = pa.table(
        {"id": [f"P-{row}" for row in range(len(column))], "age": column, "weight": column}
    )
    FORMATS[f"t.{kind}"](folder / f"t.{kind}", table)
    return opened(folder / f"t.{kind}", missing="drop")


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrows"])
def test_numbers_of_all_types(tmp_path: Path, kind: str) -> None:
    columns = {
        "bool": (pa.array([True, False, True]), [1.0, 0.0, 1.0]),
        "int8": (pa.array([1, -2, 3], pa.int8()), [1.0, -2.0, 3.0]),
        "uint64": (pa.array([1, 2, 2**53], pa.uint64()), [1.0, 2.0, 2.0**53]),
        "float32": (pa.array([0.5, 1.5], pa.float32()), [0.5, 1.5]),
        "dictionary": (pa.array([0.5, 7.0, 0.5]).dictionary_encode(), [0.5, 7.0, 0.5]),
        "decimal": (pa.array([Decimal("0.1"), Decimal("2.675")]), [0.1, 2.675]),
        "nulls": (pa.array([1, None, 3]), [1.0, 3.0]),
    }
    for name, (column, expected) in columns.items():
        found = [row[0] for row in read(one_column(column, tmp_path, kind)).values()]
        assert found == expected, name


@pytest.mark.parametrize("scale", [0, 3, 12, 30])
def test_decimals_are_rounded_once(tmp_path: Path, scale: int) -> None:
    """Beside Python's exact fractions; Arrow's own cast misses the nearest number."""
    rng = np.random.default_rng(scale)
    lengths = rng.integers(1, 39, 500).tolist()
    digits = ["".join(map(str, rng.integers(0, 10, length))) for length in lengths]
    with decimal.localcontext(prec=40):
        given = [Decimal(int(text)).scaleb(-scale) for text in digits]
    column = pa.array(given, pa.decimal128(38, scale))
    exact = [float(Fraction(int(text), 10**scale)) for text in digits]
    found = [row[0] for row in read(one_column(column, tmp_path)).values()]
    assert found == exact
    if scale == 12:
        assert column.cast(pa.float64()).to_pylist() != exact


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (pa.array(["1", "2"]), "holds string, not numbers"),
        (pa.array(["1", "2"]).dictionary_encode(), "holds string, not numbers"),
        (pa.array([datetime.date(2020, 1, 1)] * 2), "holds date32"),
        (pa.array([1, 2**53 + 1]), "row 2, column 'age' holds an integer beyond 2**53"),
        (pa.array([[1.0], [2.0]]), "holds list"),
        (pa.array([b"1", b"2"]), "holds binary"),
    ],
    ids=str,
)
def test_what_is_no_number_is_refused(tmp_path: Path, column: pa.Array, word: str) -> None:
    message = refusal(lambda: one_column(column, tmp_path))
    assert "column 'age'" in message
    assert word in message


def test_ids_of_more_types(tmp_path: Path) -> None:
    import uuid

    values = {"age": [1.0, 2.0], "weight": [1.0, 2.0]}
    path = tmp_path / "t.parquet"
    whole = pa.array([Decimal(17), Decimal(18)], pa.decimal128(20, 0))
    pq.write_table(pa.table({"id": whole, **values}), path)
    assert set(read(opened(path))) == {"17", "18"}
    two = [uuid.UUID(int=1), uuid.UUID(int=2)]
    stored = pa.array([one.bytes for one in two], pa.binary(16))
    column = pa.ExtensionArray.from_storage(pa.uuid(), stored)
    path = tmp_path / "t.arrows"
    path.write_bytes(stream_bytes(pa.table({"id": column, **values})))
    assert set(read(opened(path))) == set(map(str, two))
    path.write_bytes(stream_bytes(pa.table({"id": [1.0, 2.0], **values})))
    assert "make them integers, or text" in refusal(lambda: opened(path))


# -- text files ------------------------------------------------------------------------------------

SECRET = "Rasmussen"


def text_file(folder: Path, text: str, name: str = "t.csv", encoding: str = "utf-8") -> Path:
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("sign", [";", "\t", "|", " "])
def test_a_wrong_delimiter_is_recognised(tmp_path: Path, sign: str) -> None:
    lines = ["id,age,weight", f"{SECRET},63.5,81.5"]
    path = text_file(tmp_path, "\n".join(lines).replace(",", sign))
    message = refusal(lambda: opened(path))
    typed = {"\t": "\\t"}.get(sign, sign)
    assert f"--delimiter '{typed}'" in message
    assert SECRET not in message
    assert "63.5" not in message
    assert read(opened(path, delimiter=sign)) == {SECRET: [63.5, 81.5]}
    # The other way round: a comma's file, read with this sign.
    plain = text_file(tmp_path, "\n".join(lines))
    assert "--delimiter ','" in refusal(lambda: opened(plain, delimiter=sign))


def test_a_delimiter_that_only_some_cells_need(tmp_path: Path) -> None:
    path = text_file(tmp_path, f"id;age,weight\n{SECRET};63,5\n")
    message = refusal(lambda: opened(path))
    assert "--delimiter ';'" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    "text",
    [f"{SECRET},63.5,81.5\nx,1,2\n", f"{SECRET};63.5;81.5\n", f'"{SECRET}\n,",1,2\n'],
)
def test_a_file_without_names_of_columns_shows_no_patient(tmp_path: Path, text: str) -> None:
    message = refusal(lambda: opened(text_file(tmp_path, text)))
    assert "first line" in message
    assert SECRET not in message
    assert "63.5" not in message


@pytest.mark.parametrize("row", [f"{SECRET},63,5,81,5", f"{SECRET},63.5"])
def test_a_row_of_another_length_shows_no_patient(tmp_path: Path, row: str) -> None:
    message = refusal(lambda: opened(text_file(tmp_path, f"id,age,weight\nP,1,2\n{row}\n")))
    assert f"row 2 has {row.count(',') + 1} cells and the first line 3" in message
    assert ("decimal signs" in message) == (row.count(",") > 2)
    assert SECRET not in message


def test_decimal_commas(tmp_path: Path) -> None:
    path = text_file(tmp_path, "id;age;weight\nP;63,5;81,25\n")
    assert "--decimal ," in refusal(lambda: opened(path, delimiter=";"))
    assert read(opened(path, delimiter=";", decimal=",")) == {"P": [63.5, 81.25]}
    assert "at once" in refusal(lambda: opened(path, decimal=","))
    assert "decimal sign is" in refusal(lambda: opened(path, decimal="x"))
    message = refusal(lambda: opened(path, delimiter=";;"))
    assert "one character" in message
    assert path.name in message


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16", "cp1252"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = text_file(tmp_path, "id,age,weight\nMüller,1,2\n", encoding=encoding)
    assert read(opened(path, encoding=encoding)) == {"Müller": [1.0, 2.0]}
    if encoding != "utf-8-sig":
        assert "--encoding" in refusal(lambda: opened(path))


def test_quotes_empty_lines_and_line_ends(tmp_path: Path) -> None:
    text = 'id,note,age,weight\r\n\r\n"P ""x"", 1","two\r\nlines",1.5,2\r\nQ,,3,4'
    found = read(opened(text_file(tmp_path, text)))
    assert found == {'P "x", 1': [1.5, 2.0], "Q": [3.0, 4.0]}


BINARY = ["t.parquet", "t.feather", "t.arrows", "t.csv.gz", "t.csv.zst", "t.xlsx", "t.npz"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin1"])
@pytest.mark.parametrize("cell", ['"a remark', '"a ""remark""', '"a remark""', '"'])
def test_a_quotation_mark_that_is_never_closed(tmp_path: Path, cell: str, encoding: str) -> None:
    """It would make one cell of all patients behind it, and they would be missing."""
    path = tmp_path / "t.csv"
    text = f"id,age,weight,remark\nA,1,2,x\nB,3,4,{cell}\nC,5,6,y\nD,7,8,z"
    for end in ("", "\n", "\r\n"):
        path.write_text(text + end, encoding=encoding)
        said = refusal(lambda: opened(path, encoding=encoding))
        assert "row 2 has a cell that begins with a quotation mark and never ends" in said
    path.write_text(text.replace(cell, 'a 6" needle'), encoding=encoding)
    assert list(read(opened(path, encoding=encoding))) == ["A", "B", "C", "D"]


def test_names_with_spaces_around_them_are_no_other_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id, age, weight\nA,1,2\n")
    said = refusal(lambda: opened(path))
    assert "has no column 'age'; it has 'id', ' age', ' weight'" in said


def test_a_table_of_nothing_but_names(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text in ("id,age,weight", "id,age,weight\n", "id,age,weight\r\n\r\n"):
        path.write_bytes(text.encode())
        assert "has no rows" in refusal(lambda: opened(path))


@pytest.mark.parametrize("name", BINARY)
def test_binary_files_with_the_wrong_ending(tmp_path: Path, name: str) -> None:
    FORMATS[name](tmp_path / name, patients(20))
    (tmp_path / name).rename(tmp_path / "wrong.csv")
    message = refusal(lambda: opened(tmp_path / "wrong.csv"))
    assert "not text" in message
    assert message.isprintable()
    assert len(message) < 250


def test_random_bytes_are_not_repeated(tmp_path: Path) -> None:
    for seed in range(20):
        data = np.random.default_rng(seed).bytes(5000)
        for text in (data, data.replace(b"\0", b"x")):
            (tmp_path / "t.csv").write_bytes(text)
            message = refusal(lambda: opened(tmp_path / "t.csv"))
            assert len(message) < 400
            assert message.isascii()


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.zst", "t.arrows"])
def test_a_truncated_stream(tmp_path: Path, name: str) -> None:
    FORMATS[name](tmp_path / name, patients(3000))
    data = (tmp_path / name).read_bytes()
    for size in (len(data) // 2, len(data) - 20, 7, 0):
        (tmp_path / name).write_bytes(data[:size])
        message = refusal(lambda: opened(tmp_path / name))
        assert "nothing was imported" in message


def test_a_small_stream_takes_no_large_memory(tmp_path: Path) -> None:
    zeros = np.zeros(40_000_000)
    table = pa.table({"id": zeros.astype(np.int64), "age": zeros, "weight": zeros})
    out = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table)
    del table, zeros
    assert len(out.getvalue()) < 1 << 20
    (tmp_path / "t.arrows").write_bytes(out.getvalue())
    assert "unpacks to far more" in refusal(lambda: opened(tmp_path / "t.arrows"))
    assert "unpacks to far more" in refusal(lambda: opened("-", stdin=out.getvalue()))


def test_a_compressed_text_is_read_in_pieces(tmp_path: Path) -> None:
    """300 MB of text in a file of less than one, within little memory."""
    path = tmp_path / "t.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"id,age,weight,note\n")
        note = b"x" * 3000
        for row in range(100_000):
            file.write(b"P-%d,1,2,%s\n" % (row, note))
    small = tmp_path / "small.csv"
    small.write_text("id,age,weight,note\nP,1,2,x\n", encoding="utf-8")
    program = (
        "import resource, sys\n"
        "from fedforget.parties.sources import open_source\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "def read(path):\n"
        "    return sum(len(ids) for ids, _ in open_source([path], ['age'], 'id').parts())\n"
        # Whatever is imported on the way is there before.
        "read(sys.argv[1]); before = peak()\n"
        "print(read(sys.argv[2]), peak() - before)\n"
    )
    command = [sys.executable, "-c", program, str(small), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    rows, kilobytes = map(int, done.stdout.split())
    assert rows == 100_000
    assert kilobytes < 150_000


# -- workbooks -------------------------------------------------------------------------------------

HEADER = ["id", "age", "weight"]


def test_a_workbook(tmp_path: Path) -> None:
    rows = [[17, 1, 2.5], ["x", True, 3], [None, None, None], ["y", 0.1, None]]
    path = write_sheet(tmp_path / "t.xlsx", [], HEADER, *rows[:2], rows[3], rows[2], rows[2])
    assert "1 of 3 rows have missing values ('weight' 1)" in refusal(lambda: opened(path))
    assert read(opened(path, missing="drop")) == {"17": [1.0, 2.5], "x": [1.0, 3.0]}
    gap = write_sheet(tmp_path / "gap.xlsx", HEADER, *rows)
    assert "row 3 has no id" in refusal(lambda: opened(gap, missing="drop"))


@pytest.mark.parametrize("cell", ["12", "#DIV/0!", datetime.date(2020, 1, 1)])
def test_a_workbook_with_text_for_numbers(tmp_path: Path, cell: Any) -> None:
    path = write_sheet(tmp_path / "t.xlsx", HEADER, ["P", 1, 2], ["Q", cell, 2])
    message = refusal(lambda: opened(path))
    assert "row 2, column 'age' holds" in message


def test_the_sheets_of_a_workbook(tmp_path: Path) -> None:
    path = write_sheet(tmp_path / "t.xlsx", old=[HEADER, ["P", 1, 2]], new=[HEADER, ["Q", 3, 4]])
    assert "'old', 'new': choose one with --sheet" in refusal(lambda: opened(path))
    assert "has no sheet 'x'" in refusal(lambda: opened(path, sheet="x"))
    assert read(opened(path, sheet="new")) == {"Q": [3.0, 4.0]}
    bare = write_sheet(tmp_path / "bare.xlsx", [SECRET, 63.5, 81.5])
    message = refusal(lambda: opened(bare))
    assert "first row must name the columns" in message
    assert SECRET not in message


IDLE = {"delimiter": ";", "decimal": ",", "encoding": "latin-1", "sheet": "new", "features": "X"}
MEANT = {"delimiter": "csv", "decimal": "csv", "encoding": "csv", "sheet": "xlsx", "features": ""}


@pytest.mark.parametrize("option", IDLE)
def test_an_option_that_no_source_looks_at_is_refused(tmp_path: Path, option: str) -> None:
    """A forgotten option of another source, or one that does not do what somebody hopes."""
    given = {option: IDLE[option]}
    (tmp_path / "q.sql").write_text("SELECT * FROM patients")
    table = pa.table({"id": ["P"], "age": [1.0], "weight": [2.0]})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("id;age;weight\nP;1;2\n")
    write_sheet(tmp_path / "t.xlsx", new=[HEADER, ["Q", 3, 4]])
    query = {"uri": f"sqlite://{tmp_path / 't.db'}", "sql": tmp_path / "q.sql"}
    wording = f"--{option} is for "
    assert wording in refusal(lambda: opened(**query, **given))
    for kind in ("parquet", "csv", "xlsx"):
        if kind != MEANT[option]:
            assert wording in refusal(lambda kind=kind: opened(tmp_path / f"t.{kind}", **given))
    if MEANT[option]:
        # One source that looks at it is enough.
        opened(
            tmp_path / f"t.{MEANT[option]}",
            tmp_path / "t.parquet",
            **({"delimiter": ";"} | given if MEANT[option] == "csv" else given),
        )
    if MEANT[option] != "csv":
        assert wording in refusal(lambda: opened("-", stdin=b"id,age,weight\nP,1,2\n", **given))


def test_a_workbook_whose_last_cell_is_far_away(tmp_path: Path) -> None:
    path = write_sheet(tmp_path / "t.xlsx", HEADER, ["P", 1, 2])
    far = tmp_path / "far.xlsx"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(far, "w") as new:
        for one in old.infolist():
            data = old.read(one)
            if "sheet1" in one.filename:
                assert b"</sheetData>" in data
                cell = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
                data = data.replace(b"</sheetData>", cell)
            new.writestr(one, data)
    assert "has no id" in refusal(lambda: opened(far, missing="drop"))


def test_a_workbook_that_is_none(tmp_path: Path) -> None:
    for data in (b"", b"PK\x03\x04", b"x" * 100):
        (tmp_path / "t.xlsx").write_bytes(data)
        assert "cannot be read" in refusal(lambda: opened(tmp_path / "t.xlsx"))


# -- files of databases ----------------------------------------------------------------------------


def test_sqlite_columns_that_begin_with_nulls(tmp_path: Path) -> None:
    """The type of a value is its own in SQLite, not its column's."""
    n = 3000
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("create table t (id, age real, weight)")
        rows = [(row, None if row < 2000 else row / 100, row % 7) for row in range(n)]
        rows[2500] = ("x", 1.5, 2.5)
        connection.executemany("insert into t values (?, ?, ?)", rows)
    uri, sql = f"sqlite://{tmp_path}/t.db", query(tmp_path)
    assert "2000 of 3000 rows" in refusal(lambda: opened(uri=uri, sql=sql))
    source = opened(uri=uri, sql=sql, missing="drop")
    found = read(source)
    assert source.dropped == 2000
    assert found["2999"] == [29.99, 2999 % 7]
    assert found["x"] == [1.5, 2.5]
    text = query(tmp_path, "select id, '63' as age, 1 as weight from t")
    assert "row 1, column 'age' holds text" in refusal(lambda: opened(uri=uri, sql=text))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_queries_that_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.db"
    {"sqlite": write_sqlite, "duckdb": write_duckdb}[kind](path, patients(5))
    before = path.read_bytes()
    uri = f"{kind}://{path}"
    for text in (
        "select nothing from t",
        "not sql",
        "delete from t",
        "drop table t",
        "insert into t values ('z', 1, 2, 'b')",
        "select 1 as id",
        "select *, 1 as age from t",
    ):
        message = refusal(lambda text=text: opened(uri=uri, sql=query(tmp_path, text)))
        assert "t.db" in message
    assert path.read_bytes() == before
    assert "is empty" in refusal(lambda: opened(uri=uri, sql=query(tmp_path, " \n")))
    sql = query(tmp_path)
    gone = f"{kind}://{tmp_path}/no.db"
    assert "no such database" in refusal(lambda: opened(uri=gone, sql=sql))
    assert not (tmp_path / "no.db").exists()
    (tmp_path / "text.db").write_text("x" * 5000)
    wrong = f"{kind}://{tmp_path}/text.db"
    assert "cannot be read" in refusal(lambda: opened(uri=wrong, sql=sql))
    assert "--sql" in refusal(lambda: opened(uri=uri, sql=tmp_path / "no.sql"))


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_what_may_follow_a_query(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.db"
    {"sqlite": write_sqlite, "duckdb": write_duckdb}[kind](path, patients(5))
    for text in (
        "select * from t;",
        "-- all ; of them\nselect * from t -- yes",
        "/* ; */ select * from t where id <> ';--' ; ; -- done\n/* over */",
        "with a as (select * from t) select * from a /* no end",
        "SELECT * FROM t WHERE id <> 'it''s; --'\n\n;\n",
    ):
        if kind == "sqlite" or "no end" not in text:
            assert len(read(opened(uri=f"{kind}://{path}", sql=query(tmp_path, text)))) == 5


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_commands_that_write_beside_the_database(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "t.db", tmp_path / "other"
    {"sqlite": write_sqlite, "duckdb": write_duckdb}[kind](path, patients(5))
    for text in (
        f"vacuum into '{other}'",
        f"attach '{other}' as o",
        f"copy t to '{other}'",
        f"copy t to '{other}'; select * from t",
        f"select * from t; copy t to '{other}'",
        f"select 1; attach '{other}' as o; select * from t",
        "select * from t; select * from t",
    ):
        message = refusal(
            lambda text=text: opened(uri=f"{kind}://{path}", sql=query(tmp_path, text))
        )
        assert "begins with SELECT" in message or "more than one command" in message
        assert not other.exists()


def test_text_of_sqlite_that_is_none(tmp_path: Path) -> None:
    """In a column that is not wanted it does no harm; no message shows what it says."""
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table t (id, age, weight, name)")
        connection.execute("insert into t values ('A', 1, 2, cast(x'4af67267' as text))")
        connection.execute("insert into t values (cast(x'4af67267' as text), 1, 2, '')")
    uri = f"sqlite://{path}"
    sql = query(tmp_path, "select * from t where id = 'A'")
    assert list(read(opened(uri=uri, sql=sql))) == ["A"]
    message = refusal(lambda: opened(uri=uri, sql=query(tmp_path)))
    assert "is not valid unicode text" in message


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:hunter2@host/db",
        "postgresql://u:hunter2@host:5433/db?sslmode=require",
        "postgresql://host/db?user=u&password=hunter2",
        "postgresql://u:%68unter2@/db?host=%2Ftmp",
        "postgres://host/db?sslkey=a&sslpassword=hunter2",
    ],
)
def test_passwords_are_not_shown(uri: str) -> None:
    address = Address.parse(uri)
    told = f"IO: [libpq] bad hunter2 in {uri}\nmore"
    for shown in (address.name, repr(address), address.cleaned(told)):
        assert "hunter2" not in shown
        assert "68unter2" not in shown
    assert address.cleaned(told).startswith("bad ***")


def test_the_scheme_in_capitals() -> None:
    """PostgreSQL's own library would take the whole address for something else."""
    assert Address.parse("POSTGRES://u:hunter2@h/db").uri == "postgresql://u:hunter2@h/db"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://u:hunter/2@host/db",
        "postgresql://u:hunter@2@host/db",
        "postgresql://u:hunter#2@host/db",
        "postgresql://u:hunter 2@host/db",
        "postgresql://u:hunter?2@host/db",
        "postgresql://u:hunter%zz2@host/db",
        "mysql://u:hunter2@host/db",
        "hunter2",
        "sqlite://",
    ],
)
def test_addresses_that_cannot_be_read_are_not_repeated(tmp_path: Path, uri: str) -> None:
    message = refusal(lambda: opened(uri=uri, sql=query(tmp_path)))
    assert "--uri" in message
    assert "hunter" not in message


# -- missing values --------------------------------------------------------------------------------


def holes(folder: Path, kind: str = "csv") -> Path:
    table = pa.table(
        {
            "id": list("abcdef"),
            "age": [1.0, None, 3.0, None, 5.0, 6.0],
            "weight": [1.0, 2.0, None, None, 5.0, 6.0],
        }
    )
    path = folder / f"t.{kind}"
    FORMATS[path.name](path, table)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrows", "xlsx"])
def test_missing_values(tmp_path: Path, kind: str) -> None:
    path = holes(tmp_path, kind)
    message = refusal(lambda: opened(path))
    assert "3 of 6 rows have missing values ('age' 2, 'weight' 2)" in message
    assert "--missing drop" in message
    dropping = opened(path, missing="drop")
    assert set(read(dropping)) == set("aef")
    assert dropping.dropped == 3
    public = {"age": 50.0, "weight": 70.0}
    both = opened(path, fill=public, public_fill=public)
    assert read(both)["d"] == [50.0, 70.0]
    assert (both.dropped, both.filled) == (0, {"age": 2, "weight": 2})
    mixed = opened(path, fill={"age": 50.0}, public_fill=public, missing="drop")
    assert set(read(mixed)) == set("abef")
    assert (mixed.dropped, mixed.filled) == (2, {"age": 1})
    assert "'weight' 2)" in refusal(lambda: opened(path, fill={"age": 50.0}, public_fill=public))


def test_words_for_nothing_in_a_text_file(tmp_path: Path) -> None:
    words = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "#N/A", "<NA>"]
    rows = [f"P-{at},{word},1" for at, word in enumerate(words)]
    path = text_file(tmp_path, "\n".join(["id,age,weight", *rows]))
    assert f"{len(words)} of {len(words)} rows" in refusal(lambda: opened(path))
    assert "every row has missing values" in refusal(lambda: opened(path, missing="drop"))
    path.write_text("id,age,weight\nP,?,1\n")
    assert "is '?', not a number" in refusal(lambda: opened(path, missing="drop"))


def test_rows_are_counted_as_in_the_file(tmp_path: Path) -> None:
    """Rows that were left out are counted where a later one is named."""
    path = text_file(tmp_path, "id,age,weight\na,,1\nb,1,1\nc,1,inf\n")
    assert "row 3, column 'weight' is not a finite" in refusal(lambda: opened(path, missing="drop"))
    path.write_text("id,age,weight\na,,1\nb,1,1\nc,1,-1\n")
    source = opened(path, missing="drop")
    grid = federation_file().configuration().grid
    ((_, values),) = source.parts()
    with pytest.raises(FedforgetError, match=r"row 3, column 'weight' is -1\.0, outside"):
        source.check_inside(values, grid, 0)


def test_constants_stand_in_the_federation_file(tmp_path: Path) -> None:
    path = holes(tmp_path)
    public = {"age": 50.0}
    assert "contradicts the federation file, which says 50.0" in refusal(
        lambda: opened(path, fill={"age": 51.0}, public_fill=public)
    )
    assert "has no fill for 'weight'" in refusal(
        lambda: opened(path, fill={"weight": 51.0}, public_fill=public)
    )
    assert "no such feature" in refusal(lambda: opened(path, fill={"x": 1.0}, public_fill=public))


def test_the_fill_of_a_federation_file() -> None:
    plain = federation_file()
    filled = federation_file(features=with_fill(plain.features, {"age": 50.0}))
    assert FederationFile.parse(filled.text()) == filled
    assert filled.fill == {"age": 50.0}
    assert filled.digest != plain.digest
    assert plain.fill == {}
    assert "fill" not in plain.text()
    assert filled.difference(plain) == "features[1].fill is 50.0 here and None there"
    with pytest.raises(FederationFileError, match=r"features\[1\]\.fill must lie between"):
        FederationFile.parse(plain.text().replace("high = 120.0", "high = 120.0\nfill = 121.0"))
    with pytest.raises(FederationFileError, match=r"fill must be a number"):
        FederationFile.parse(plain.text().replace("high = 120.0", 'high = 120.0\nfill = "x"'))
    with pytest.raises(FederationFileError, match="no feature 'x'"):
        with_fill([Feature("age", 0.0, 1.0)], {"x": 1.0})


# -- ids that look alike ---------------------------------------------------------------------------

ALIKE = {
    "A1 ": "ends with a space",
    " A1": "begins with a space",
    "A1\t": "ends with a space",
    "A1\u00a0": "ends with a space",
    "A\u200b1": "U+200B",
    "A1\ufeff": "U+FEFF",
    "A\u00ad1": "U+00AD",
    "A\u00a01": "U+00A0",
    "A\u31641": "U+3164",
    "e\u0301": "form NFC",
    "A\uff11": "looks like '1'",
    "A²": "looks like '2'",
    "NA": "missing value",
    "na": "missing value",
    "null": "missing value",
    "NaN": "missing value",
    "None": "missing value",
    "N/A": "missing value",
}


def with_ids(folder: Path, ids: list[str], kind: str = "csv") -> Path:
    ones = [1.0] * len(ids)
    path = folder / f"t.{kind}"
    FORMATS[path.name](path, pa.table({"id": ids, "age": ones, "weight": ones}))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("one", ALIKE)
def test_an_id_that_is_easily_mistaken(tmp_path: Path, one: str, kind: str) -> None:
    path = with_ids(tmp_path, ["P-1", one, "P-2"], kind)
    message = refusal(lambda: opened(path))
    assert "1 id can be mistaken" in message
    assert f"{one!r} (row 2)" in message
    assert ALIKE[one] in message
    assert set(read(opened(path, ids_as_is=True))) == {"P-1", one, "P-2"}


@pytest.mark.parametrize(
    ("ids", "example"),
    [
        (["5", "5.0"], "'5.0' stands beside '5'"),
        (["5.0", "x", "5"], "'5.0' stands beside '5'"),
        (["05", "5"], "'05' stands beside '5'"),
        (["+5", "5", "x"], "'+5' stands beside '5'"),
        (["-5.00", "-5"], "'-5.00' stands beside '-5'"),
        (["0.0", "0"], "'0.0' stands beside '0'"),
        (["05", "005"], "'005' stands beside '05'"),
        (["5.0", "5.", "Ü"], "'5.' stands beside '5.0'"),
        (
            ["12345678901234567890", "12345678901234567890.0"],
            "'12345678901234567890.0' stands beside '12345678901234567890'",
        ),
        (
            ["1234567890123456789.", "1234567890123456789"],
            "'1234567890123456789.' stands beside '1234567890123456789'",
        ),
        (["+12345678901234567890", "012345678901234567890", "Ü"], "stands beside '+1234567890"),
        (["00000000000000000000005", "5"], "'00000000000000000000005' stands beside '5'"),
    ],
)
@pytest.mark.parametrize("far", [False, True])
def test_numbers_that_are_there_in_two_ways(
    tmp_path: Path, ids: list[str], example: str, far: bool
) -> None:
    more = [f"P-{row}" for row in range(N_ROWS)] if far else []
    path = with_ids(tmp_path, [ids[0], *more, *ids[1:]])
    assert example in refusal(lambda: opened(path))
    assert len(read(opened(path, ids_as_is=True))) == len(ids) + len(more)


def test_numbers_that_are_not_alike(tmp_path: Path) -> None:
    ids = ["05", "6.0", "7.5", "75", "1e5", "100000", "+8", "-6", "9223372036854775807", "1-2"]
    ids += ["5 a", "A 6", "Åse", "nation", "Nana", "12345678901234567890", "12345678901234567891.0"]
    ids += ["µ-1", "٣"]
    assert set(read(opened(with_ids(tmp_path, ids)))) == set(ids)


@pytest.mark.parametrize("text", ["9007199254740993", "-9007199254740993", "1234567890123456789"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_an_integer_of_a_text_file_is_never_rounded(
    tmp_path: Path, text: str, decimal: str
) -> None:
    """With the row's number, also beyond the first part."""
    more = [f"A-{row};1{decimal}5;2" for row in range(N_ROWS)]
    path = tmp_path / "large.csv"
    rows = ["id;age;weight", "A;NA;1", *more, f"B;1;{text}"]
    path.write_text("\n".join(rows), encoding="utf-8")
    source = open_source(
        [path],
        ["age", "weight"],
        "id",
        SourceOptions(delimiter=";", decimal=decimal, missing="drop"),
        large=["weight"],
    )
    message = refusal(lambda: source)
    assert f"row {len(rows) - 1}, column 'weight' holds an integer beyond 2**53" in message


def test_large_numbers_that_are_float64_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    texts = ["9007199254740992", "9007199254740994", "1e20", "-1152921504606846976", " 5", '"2"']
    rows = [f"A-{at},{text},1" for at, text in enumerate([*texts, "", "1.5e18"])]
    path.write_text("\n".join(["id,age,weight", *rows]), encoding="utf-8")
    options = SourceOptions(missing="drop")
    taken = read(open_source([path], ["age", "weight"], "id", options, large=["age"]))
    wanted = [2.0**53, 2.0**53 + 2, 1e20, -(2.0**60), 5.0, 2.0, 1.5e18]
    assert [row[0] for row in taken.values()] == wanted
    path.write_text("id,age,weight\nA,1,1\nB,x,1\n", encoding="utf-8")
    source = open_source([path], ["age", "weight"], "id", large=["age"])
    assert "row 2, column 'age' is not a number" in refusal(lambda: source)


def test_integers_of_128_bits(tmp_path: Path) -> None:
    import duckdb

    path, query = tmp_path / "large.duckdb", tmp_path / "query.sql"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE one (id VARCHAR, age HUGEINT, weight UHUGEINT)")
        connection.execute("INSERT INTO one VALUES ('A', 1152921504606846976, 1)")

    def asked(weight: str) -> Source:
        query.write_text(f"SELECT id, age, {weight} AS weight FROM one ORDER BY id")
        return opened(uri=f"duckdb://{path}", sql=query)

    assert read(asked("1")) == {"A": [2.0**60, 1.0]}
    assert "'weight' holds UHUGEINT" in refusal(lambda: asked("weight"))
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO one VALUES ('B', 9007199254740993, 1)")
    message = refusal(lambda: asked("1"))
    assert "row 2, column 'age' holds an integer beyond 2**53" in message


def test_up_to_five_examples(tmp_path: Path) -> None:
    ids = [f"P-{row} " for row in range(7)]
    message = refusal(lambda: opened(with_ids(tmp_path, ids)))
    assert message.count("ends with a space") == 5
    assert "7 ids can be mistaken" in message
    assert "and 2 more" in message


# -- at a client -----------------------------------------------------------------------------------


@pytest.fixture
def party(tmp_path: Path) -> Iterator[ClientParty]:
    """A client that holds three records."""
    world = World(tmp_path / "world", ["aarhus", "bologna"]).set_up()
    world.hold("aarhus", ["5", "held", "6"], values_of(3, 0))
    with open_client(world.client("aarhus")) as client:
        yield client


def unchanged(party: ClientParty, source: Callable[[], Source], *words: str) -> None:
    before = party.state_digest()
    with pytest.raises(FedforgetError) as error:
        party.import_table(source())
    for word in words:
        assert word in str(error.value)
    assert party.state_digest() == before
    assert len(party.store) == 3


def test_a_number_that_is_held_in_another_way(party: ClientParty, tmp_path: Path) -> None:
    path = with_ids(tmp_path, ["5.0", "x"])
    unchanged(party, lambda: opened(path), "'5.0' stands beside '5'")
    party.import_table(opened(with_ids(tmp_path, ["7.0"])))
    before = party.state_digest()
    path = with_ids(tmp_path, ["7", "y"])
    with pytest.raises(TableError, match=r"'7' stands beside '7\.0', which is held"):
        party.import_table(opened(path))
    assert party.state_digest() == before
    party.import_table(opened(path, ids_as_is=True))


def test_a_long_number_that_is_held_in_another_way(party: ClientParty, tmp_path: Path) -> None:
    long = "12345678901234567890"
    party.import_table(opened(with_ids(tmp_path, [long])))
    with pytest.raises(TableError, match=rf"'{long}\.0' stands beside '{long}'"):
        party.import_table(opened(with_ids(tmp_path, [f"{long}.0"])))
    party.import_table(opened(with_ids(tmp_path, ["98765432109876543210.0"])))
    with pytest.raises(TableError, match=r"stands beside '98765432109876543210\.0', which is held"):
        party.import_table(opened(with_ids(tmp_path, ["98765432109876543210"])))


def test_what_was_left_out_is_counted(party: ClientParty, tmp_path: Path) -> None:
    path = holes(tmp_path)
    unchanged(party, lambda: opened(path), "3 of 6 rows")
    source = opened(path, missing="drop", fill={"age": 50.0}, public_fill={"age": 50.0})
    result = party.import_table(source)
    assert (result["added"], result["dropped"], result["filled"]) == (4, 2, 1)
    assert party.audit().passed


def test_problems_at_the_end_of_a_source_leave_nothing(party: ClientParty, tmp_path: Path) -> None:
    """The first parts are in the store already when the last row is read."""
    ids = [f"P-{row}" for row in range(2 * ROWS_AT_A_TIME)]
    unchanged(party, lambda: opened(with_ids(tmp_path, [*ids, "null"])), "'null'")
    path = with_ids(tmp_path, ids)
    path.write_bytes(path.read_bytes() + b"last,,1\n")
    unchanged(party, lambda: opened(path), "1 of 32769 rows", "'age' 1")


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"late,1,2\n")


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "grown": (append, "grew by 9 bytes"),
    "cut": (lambda path: os.truncate(path, 100), "has changed"),
    "touched": (lambda path: os.utime(path, (1, 1)), "has changed"),
    "gone": (lambda path: path.unlink(), "is gone"),
    "replaced": (
        lambda path: shutil.copy2(path, path.with_suffix(".new")).replace(path),
        "was replaced",
    ),
}


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["csv", "parquet", "arrows", "csv.gz", "npz"])
def test_a_file_that_changes_while_it_is_read(
    party: ClientParty, tmp_path: Path, change: str, kind: str
) -> None:
    path = tmp_path / f"t.{kind}"
    FORMATS[path.name](path, patients(3 * ROWS_AT_A_TIME).drop_columns("ward name"))
    alter, word = CHANGES[change]
    done = []

    def once(_: int) -> None:
        if not done:
            done.append(alter(path))

    before = party.state_digest()
    with pytest.raises(TableError, match=word) as error:
        party.import_table(opened(path), progress=once)
    assert "nothing was imported" in str(error.value)
    assert str(path) in str(error.value)
    assert party.state_digest() == before
    assert len(party.store) == 3


def test_a_file_that_is_still_being_written(party: ClientParty, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    stop = threading.Event()
    ready = threading.Event()

    def write() -> None:
        with path.open("w") as file:
            file.write("id,age,weight\n")
            row = 0
            while not stop.is_set():
                file.writelines(f"P-{row + more},1.5,2.5\n" for more in range(1000))
                row += 1000
                if row == 50_000:
                    ready.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert ready.wait(60)
        before = party.state_digest()
        with pytest.raises(TableError):
            party.import_table(opened(path), progress=lambda _: stop.set())
        assert party.state_digest() == before
    finally:
        stop.set()
        writer.join()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
def test_a_file_whose_writer_pauses(party: ClientParty, tmp_path: Path) -> None:
    """Nothing changes while it is read, and still it is not written to its end."""
    path = text_file(tmp_path, "id,age,weight\nP-1,1,2\n")
    with path.open("a") as file:
        file.write("P-2,1")
        file.flush()
        unchanged(party, lambda: opened(path), "t.csv is still open for writing")
        file.write(",2\n")
    with path.open():  # another reader does no harm
        assert party.import_table(opened(path))["added"] == 2


@pytest.mark.parametrize("kind", ["directory", "pattern"])
def test_files_that_come_while_others_are_read(
    party: ClientParty, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    parts_of_an_export(folder)
    given = folder if kind == "directory" else f"{folder}/*.parquet"
    late = folder / "part-9.parquet"
    done: list[Any] = []

    def come(_: int) -> None:
        if not done:
            done.append(FORMATS["t.parquet"](late, patients(120).slice(100, 20)))

    before = party.state_digest()
    with pytest.raises(TableError, match="files have come or gone"):
        party.import_table(opened(given), progress=come)
    assert party.state_digest() == before
    assert party.import_table(opened(given))["added"] == 110


def test_one_of_several_files_changes(party: ClientParty, tmp_path: Path) -> None:
    parts_of_an_export(tmp_path, "csv")
    first = tmp_path / "part-0.csv"
    done = []

    def late(_: int) -> None:
        done.append(1)
        if len(done) == 3:
            os.utime(first, (1, 1))

    with pytest.raises(TableError, match=r"part-0\.csv has changed"):
        party.import_table(opened(str(tmp_path / "part-*.csv")), progress=late)
    assert len(party.store) == 3


def test_every_source_gives_the_same_model(party: ClientParty, tmp_path: Path) -> None:
    """Imported from each format, the state is the same in every bit."""
    table = patients(200, digits=4)
    digests = set()
    names = ["t.csv", "t.parquet", "t.arrows", "t.xlsx", "t.npz", "t.csv.zst"]
    for name in names:
        FORMATS[name](tmp_path / name, table)
        party.import_table(opened(tmp_path / name), replace=True)
        digests.add(party.state_digest())
    write_sqlite(tmp_path / "t.db", table)
    uri = f"sqlite://{tmp_path}/t.db"
    party.import_table(opened(uri=uri, sql=query(tmp_path)), replace=True)
    digests.add(party.state_digest())
    assert len(digests) == 1


def test_a_stream_whose_message_lies(tmp_path: Path) -> None:
    data = stream_bytes(patients(10))
    (length,) = struct.unpack_from("<i", data, 4)
    for wrong in (
        b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 1) + data[8:],
        b"\xff\xff\xff\xff" + struct.pack("<i", -5) + data[8:],
        data[: 8 + length // 2],
        b"\xff\xff\xff\xff" + bytes(60),
        data.replace(b"P-3", b"\xff\xfe\xfd"),
    ):
        message = refusal(lambda wrong=wrong: opened("-", stdin=wrong))
        assert "nothing was imported" in message or "no column" in message
