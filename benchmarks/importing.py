"""How fast each source is imported, beside pyarrow that only reads it into memory.

An import is a whole command, its start included.  pyarrow reads in a process of its own, with one
thread; its start is not counted, and it stores nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import figures

TESTS = Path(__file__).parents[1] / "tests"
_READ = """
import sys, time
{imports}
source = sys.argv[1]
start = time.perf_counter()
table = {read}
print(table.num_rows, time.perf_counter() - start)
"""
PARQUET = ("import pyarrow.parquet as pq", "pq.read_table(source, use_threads=False)")
CSV = (
    "import pyarrow.csv as csv",
    "csv.read_csv(source, read_options=csv.ReadOptions(use_threads=False))",
)
STREAM = ("import pyarrow as pa", "pa.ipc.open_stream(pa.OSFile(source)).read_all()")
CELLS = (
    "import h5py, pyarrow as pa; file = h5py.File(sys.argv[1])",
    "[file['obsm/X_pca'][:], pa.table({'id': file['obs/id'].asstr()[:].tolist()})][1]",
)
POSTGRES = (
    "from adbc_driver_postgresql import dbapi; cursor = dbapi.connect(sys.argv[1]).cursor()",
    "[cursor.execute('select * from rows'), cursor.fetch_arrow_table()][1]",
)


@dataclass(frozen=True)
class Case:
    """A source: how it is given to the command, and how pyarrow reads it."""

    name: str
    given: tuple[object, ...]
    source: str
    reading: tuple[str, str]


def read_alone(case: Case) -> tuple[int, float]:
    """Rows and seconds of pyarrow."""
    imports, read = case.reading
    program = _READ.format(imports=imports, read=read)
    command = [sys.executable, "-W", "ignore", "-c", program, case.source]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows, seconds = done.stdout.split()
    return int(rows), float(seconds)


def write_formats(parquet: Path) -> None:
    """The rows of a Parquet file as CSV, as an Arrow stream and as cells."""
    table = pq.read_table(parquet)
    pa.csv.write_csv(table, parquet.with_suffix(".csv"))
    with pa.ipc.new_stream(str(parquet.with_suffix(".arrows")), table.schema) as writer:
        writer.write_table(table, max_chunksize=50_000)
    write_cells(table, parquet.with_suffix(".h5ad"))


def write_cells(table: pa.Table, path: Path) -> None:
    """The same rows as cells, their values in ``obsm``."""
    import h5py

    values = np.column_stack([table[name].to_numpy() for name in table.column_names[1:]])
    with h5py.File(path, "w") as file:
        obs = file.create_group("obs")
        obs.attrs.update({"_index": "id", "column-order": np.empty(0, dtype="S1")})
        obs["id"] = table["id"].to_pylist()
        file["obsm/X_pca"] = values


@contextmanager
def postgres(csv: Path) -> Iterator[str | None]:
    """The address of a server that holds the rows of a CSV file; None where there is no server."""
    sys.path.insert(0, str(TESTS))
    from postgres_server import NoServerError, running_postgres

    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except NoServerError as error:
            common.console.print(f"[dim]PostgreSQL is left out: {error}[/dim]")
            yield None
            return
        names = csv.open().readline().strip().replace('"', "").split(",")
        columns = ", ".join(f"{name} float8" for name in names[1:])
        server.run(
            f"create table rows (id text, {columns});\n"
            f"\\copy rows from '{csv}' with (format csv, header)\n"
        )
        yield server.uri()


def measure(run: Callable[..., Any], client: Path, parquet: Path, n_rows: int) -> None:
    """Import the same rows from every source into copies of an empty client, and show the speeds.

    ``run`` runs a command and says how long it took.
    """
    write_formats(parquet)
    csv, stream = parquet.with_suffix(".csv"), parquet.with_suffix(".arrows")
    cells = parquet.with_suffix(".h5ad")
    sql = parquet.with_suffix(".sql")
    sql.write_text("select * from rows", encoding="utf-8")
    shown = common.table(
        f"Import of {n_rows:,} rows from each source", "source", "import", "pyarrow alone", "times"
    )
    with postgres(csv) as uri:
        cases = [
            Case("Parquet", (parquet,), str(parquet), PARQUET),
            Case("CSV", (csv,), str(csv), CSV),
            Case("Arrow stream", (stream,), str(stream), STREAM),
            Case("cells (h5py alone)", (cells, "--features", "obsm/X_pca"), str(cells), CELLS),
        ]
        if uri is not None:
            cases.append(Case("PostgreSQL", ("--uri", uri, "--sql", sql), uri, POSTGRES))
        for case in cases:
            copied = client.with_name("copied")
            shutil.copytree(client, copied)
            done = run("client", "import", copied, *case.given, "--id", "id", "--json")
            assert done.json["records"] == n_rows
            shutil.rmtree(copied)
            rows, seconds = read_alone(case)
            assert rows == n_rows
            figures.record(
                f"import, {case.name}",
                rows_per_second=n_rows / done.seconds,
                reader_rows_per_second=n_rows / seconds,
            )
            shown.add_row(
                case.name,
                f"{n_rows / done.seconds:,.0f} rows/s",
                f"{n_rows / seconds:,.0f} rows/s",
                f"{done.seconds / seconds:.1f}×",
            )
    common.console.print(shown)
