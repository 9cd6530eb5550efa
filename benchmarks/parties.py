"""A client in a directory, on the command line: starting, importing, re-opening, forgetting.

Every figure is that of a whole process: its wall-clock time, start included, and its peak resident
memory as the operating system counted it.  Additional memory is what is beyond the peak of the same
command where the client holds, or imports, a single record.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import common
import importing
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import figures

ROWS, FEATURES, K = 1_000_000, 50, 10
SOURCE_ROWS = 200_000
PROGRAM = (sys.executable, "-c", "from fedforget.cli.main import app; app(prog_name='fedforget')")


@dataclass(frozen=True)
class Run:
    """What a command printed, took and needed."""

    printed: str
    seconds: float
    peak: int

    @property
    def json(self) -> dict:
        return json.loads(self.printed)


def fedforget(*arguments: object, given: str = "") -> Run:
    """Run a command to its end."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as ids:
        ids.write(given)
        ids.seek(0)
        start = time.perf_counter()
        process = subprocess.Popen([*PROGRAM, *map(str, arguments)], stdin=ids, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"fedforget {' '.join(map(str, arguments))} failed")
        output.seek(0)
        return Run(output.read(), seconds, usage.ru_maxrss * 1024)


def median(*arguments: object, repeats: int = 5) -> float:
    return sorted(fedforget(*arguments).seconds for _ in range(repeats))[repeats // 2]


def set_up(folder: Path) -> Path:
    """A federation; returns the directory of the client that is to hold records."""
    names = folder / "features.csv"
    lines = ["name,low,high", *(f"x{column},0,1" for column in range(FEATURES))]
    names.write_text("\n".join(lines), encoding="utf-8")
    server, client = folder / "server", folder / "client"
    fedforget("server", "init", server, "--name", "f", "--clusters", K, "--features", names)
    members: list[object] = []
    # A federation has three members at least; two of them stay empty.
    for name, place in (("c", client), ("d", folder / "d"), ("e", folder / "e")):
        fedforget("client", "init", place, "--name", name)
        members += ["--client", place / "enrolment.json"]
    fedforget("server", "enrol", server, *members)
    file, epoch = server / "federation.toml", server / "epoch-1.json"
    fedforget("client", "join", client, "--federation", file, "--epoch", epoch)
    return client


def write_rows(path: Path, n: int, prefix: str) -> None:
    """Random rows, in groups of a million, as pandas writes them."""
    rng = np.random.default_rng(n)
    ids = [f"{prefix}-{number}" for number in rng.permutation(n).tolist()]
    names = [f"x{column}" for column in range(FEATURES)]
    columns = [pa.array(column) for column in rng.random((FEATURES, n))]
    pq.write_table(pa.table([pa.array(ids), *columns], names=["id", *names]), path)


def write_next_night(path: Path, before: Path) -> None:
    """The rows of a file with 1 % changes: of each hundred, a half is changed, the rest goes."""
    table = pq.read_table(before)
    n = table.num_rows
    rng = np.random.default_rng(n + 1)
    touched = rng.choice(n, n // 100, replace=False)
    changed, gone = np.split(touched, [n // 200])
    columns = []
    for name in table.column_names[1:]:
        values = table[name].to_numpy().copy()
        values[changed] = rng.random(len(changed))
        # As many come as go.
        values[gone] = rng.random(len(gone))
        columns.append(pa.array(values))
    ids = np.array(table["id"].to_pylist(), dtype=object)
    ids[gone] = [f"N-{number}" for number in range(len(gone))]
    pq.write_table(pa.table([pa.array(ids), *columns], names=table.column_names), path)


def apart(work: Callable[..., None], *arguments: object) -> None:
    """In a process of its own: a child's peak counts what its parent held when it was started."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()


def a_seed(client: Path) -> str:
    """The id of the record that was drawn first: forgetting it makes the client draw all again."""
    from fedforget.parties.client_party import open_client
    from fedforget.parties.store import decoded_id

    with open_client(client) as party:
        return str(decoded_id(party.store.clusters(FEATURES).seed_ids[0]))


def everyday(n_rows: int) -> None:
    """Import, sync, status, audit and forgetting."""
    common.heading("a client in a directory, on the command line")
    rows = common.table(f"{n_rows:,} × {FEATURES}, K = {K}", "", "figure", "target")
    data = 8 * n_rows * FEATURES

    def timed(what: str, seconds: float, target: float) -> None:
        verdict = common.verdict(seconds, target, at_least=False)
        rows.add_row(what, f"{seconds:.2f} s", f"{verdict} s")
        figures.record(what, seconds=seconds)

    def sized(what: str, extra: int) -> None:
        share = extra / data
        verdict = common.verdict(share, 1.5, at_least=False)
        shown = f"{extra / 2**20:,.0f} MiB, {share:.2f}×"
        rows.add_row(f"additional memory: {what}", shown, f"{verdict}×")
        figures.record(what, memory=share)

    timed("fedforget --help", median("--help"), 0.5)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        client, table = set_up(folder), folder / "rows.parquet"
        apart(write_rows, table, n_rows, "P")
        write_rows(folder / "one.parquet", 1, "Q")
        importing = ("client", "import", client, "--id", "id", "--json")
        small = fedforget(*importing, folder / "one.parquet").peak
        baseline = fedforget("client", "audit", client, "--json").peak
        done = fedforget(*importing, table)
        assert done.json["records"] == n_rows + 1
        speed = n_rows / done.seconds
        figures.record("import", rows_per_second=speed)
        rows.add_row("import", f"{speed:,.0f} rows/s", common.verdict(speed, 50_000))
        sized("import", done.peak - small)
        other = folder / "other"
        shutil.copytree(client, other)
        night = folder / "night.parquet"
        apart(write_next_night, night, table)
        table.unlink()
        night_job = ("client", "sync", other, night, "--id", "id", "--json")
        synced = fedforget(*night_job)
        # The single record that was imported first is not in the export.
        assert synced.json["added"] == synced.json["removed"] - 1 == n_rows // 100 - n_rows // 200
        assert synced.json["changed"] == n_rows // 200
        share = synced.seconds / done.seconds
        shown = f"{synced.seconds:.2f} s, {share:.2f}× an import"
        verdict = common.verdict(share, 1.5, at_least=False)
        rows.add_row("sync, 1 % changed", shown, f"{verdict}×")
        figures.record("sync, 1 % changed", seconds=synced.seconds, of_an_import=share)
        sized("sync, 1 % changed", synced.peak - small)
        again = fedforget(*night_job)
        assert again.json["request"] is None
        rows.add_row("sync, nothing changed", f"{again.seconds:.2f} s", "")
        figures.record("sync, nothing changed", seconds=again.seconds)
        assert fedforget("client", "audit", other, "--json").json["passed"]
        shutil.rmtree(other)
        night.unlink()
        opened = fedforget("client", "status", client, "--json")
        timed("status", opened.seconds, 3)
        sized("status", opened.peak - baseline)
        audited = fedforget("client", "audit", client, "--json")
        assert audited.json["passed"]
        sized("audit", audited.peak - baseline)
        forget = ("client", "forget", client, "--yes", "--json")
        # Not one of the thousand below.
        one = fedforget(*forget, "--ids", f"P-{n_rows // 8 + 1}")
        timed("forget 1, seeds stand", one.seconds, 3)
        ids = "\n".join(f"P-{number}" for number in range(0, n_rows, n_rows // 1000))
        batch = fedforget(*forget, "--ids-file", "-", given=ids)
        assert batch.json["records"] == 1000
        timed("forget 1,000", batch.seconds, 6)
        seed = fedforget(*forget, "--ids", a_seed(client))
        assert seed.json["reseeded"] == 1
        timed("forget 1, the first seed", seed.seconds, 3)
        sized("forget", max(one.peak, seed.peak, batch.peak) - baseline)
        assert fedforget("client", "audit", client, "--json").json["passed"]
    common.console.print(rows)


def sources(n_rows: int) -> None:
    """Every source of an import."""
    common.heading("import, by sources")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        client, table = set_up(folder), folder / "rows.parquet"
        write_rows(table, n_rows, "P")
        importing.measure(fedforget, client, table, n_rows)


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--sources", action="store_true", help="only the table of sources")
    given = parser.parse_args()
    with figures.kept(given):
        if not given.sources:
            everyday(ROWS // 50 if given.quick else ROWS)
        sources(SOURCE_ROWS // 50 if given.quick else SOURCE_ROWS)


if __name__ == "__main__":
    main()
