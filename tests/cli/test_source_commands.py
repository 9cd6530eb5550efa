"""Sources on the command line, and complaints that scripts and people can read."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from test_parties import error, fedforget, in_process, quick_answer, set_up, told
from test_start import run as run_without

from fedforget.cli.main import app
from fedforget.cli.words import write_table
from fedforget.parties.federation_file import FederationFile


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three members; ages may be filled with 50."""
    folder = tmp_path_factory.mktemp("study")

    def with_fill(where: Path, *command: str) -> object:
        more = ("--fill", "age=50") if command[:2] == ("server", "init") else ()
        return quick_answer(where, *command, *more)

    set_up(folder, with_fill)
    return folder


@pytest.fixture
def place(study: Path, tmp_path: Path) -> Path:
    """A folder with a member's directory that a test may change."""
    shutil.copytree(study / "aarhus", tmp_path / "aarhus")
    (tmp_path / "aarhus").chmod(0o700)
    shutil.copytree(study / "server", tmp_path / "server")
    (tmp_path / "server").chmod(0o700)
    return tmp_path


def imported(folder: Path, *arguments: str, given: str | None = None) -> dict[str, Any]:
    done = in_process(folder, "client", "import", "aarhus", *arguments, "--json", given=given)
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


HEAD = "patient,age,weight:kg\n"


def test_standard_input(place: Path) -> None:
    rows = f"{HEAD}X-1,1,2\nX-2,3,4\n"
    assert imported(place, "-", "--id", "patient", given=rows)["added"] == 2
    tabs = rows.replace(",", "\t").replace("X", "Y").replace("1\t2", "1,5\t2")
    more = ("--id", "patient", "--delimiter", "\\t", "--decimal", ",")
    assert imported(place, "-", *more, given=tabs)["added"] == 2


def test_a_real_pipe(place: Path) -> None:
    command = ("client", "import", "aarhus", "-", "--id", "patient", "--json")
    done = fedforget(place, *command, given=f"{HEAD}X-1,1,2\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added"] == 1


def test_several_files_and_patterns(place: Path) -> None:
    for number in range(3):
        (place / f"part-{number}.csv").write_text(f"{HEAD}X-{number},1,2\n")
    assert imported(place, "part-0.csv", "part-[12].csv", "--id", "patient")["added"] == 3


def test_a_query(place: Path) -> None:
    with closing(sqlite3.connect(place / "w.db")) as connection, connection:
        connection.execute('create table t (patient, age, "weight:kg")')
        connection.execute("insert into t values ('X', 1, 2), ('Y', null, 2), ('Z', 3, null)")
    (place / "q.sql").write_text("select * from t")
    given = ("--uri", "sqlite://w.db", "--sql", "q.sql", "--id", "patient")
    assert "2 of 3 rows" in error(place, "client", "import", "aarhus", *given)
    words = told(
        place, "client", "import", "aarhus", *given, "--missing", "drop", "--fill", "age=50"
    )
    assert "2 records imported" in words
    assert "1 row with missing values left out." in words
    assert "1 missing value of 'age' filled with the federation's constant." in words


def test_constants_of_the_federation(place: Path) -> None:
    assert FederationFile.read(place / "server" / "federation.toml").fill == {"age": 50.0}
    (place / "t.csv").write_text(f"{HEAD}X,,2\n")
    command = ("client", "import", "aarhus", "t.csv", "--id", "patient", "--fill")
    assert "contradicts the federation file" in error(place, *command, "age=49")
    assert "has no fill for 'weight:kg'" in error(place, *command, "weight:kg=49")
    assert "must have the form NAME=VALUE" in error(place, *command, "age")
    assert "must have the form NAME=VALUE" in error(place, *command, "age=old")
    assert "twice" in error(place, *command, "age=50", "--fill", "age=50")
    assert imported(place, "t.csv", "--id", "patient", "--fill", "age=50.0")["filled"] == 1


def test_a_constant_of_no_feature(tmp_path: Path) -> None:
    command = ("server", "init", "s", "--name", "s", "--clusters", "2", "--feature", "age:0:120")
    assert "no feature 'x'" in error(tmp_path, *command, "--fill", "x=1")
    assert "must lie between" in error(tmp_path, *command, "--fill", "age=121")
    assert not (tmp_path / "s").exists()


def test_ids_as_they_are(place: Path) -> None:
    (place / "t.csv").write_text(f"{HEAD}NA,1,2\nX ,1,2\n")
    command = ("client", "import", "aarhus", "t.csv", "--id", "patient")
    assert "'NA' (row 1) is a word for a missing value" in error(place, *command)
    assert imported(place, "t.csv", "--id", "patient", "--ids-as-is")["added"] == 2


def test_an_id_that_was_given_twice_is_named(place: Path) -> None:
    shown = error(place, "client", "forget", "aarhus", "--ids", "A-1", "--ids", "A-1", "--yes")
    assert "given twice: 'A-1'" in shown


def test_a_directory_is_called_one(place: Path) -> None:
    shown = error(place, "client", "import", "aarhus", "server", "--id", "patient")
    assert "server is a directory without Parquet files" in shown


@pytest.mark.parametrize("kind", ["csv", "json", "npz", "parquet"])
def test_every_export_of_a_model_gives_labels(place: Path, kind: str) -> None:
    quick_answer(place, "server", "model", "server", "-o", f"m.{kind}")
    quick_answer(place, "client", "labels", "aarhus", "--model", f"m.{kind}", "-o", "labels.csv")
    quick_answer(place, "server", "model", "server", "-o", "m.npz")
    quick_answer(place, "client", "labels", "aarhus", "--model", "m.npz", "-o", "other.csv")
    assert (place / "labels.csv").read_bytes() == (place / "other.csv").read_bytes()


def test_tables_that_hold_no_centroids(place: Path) -> None:
    labels = ("client", "labels", "aarhus", "--model")
    (place / "m.csv").write_text("size,age,weight:kg\n1,2\n")
    assert "as many cells in row 1" in error(place, *labels, "m.csv", "-o", "l.csv")
    (place / "m.csv").write_text("size,age,weight:kg\n1,2,x\n")
    assert "not hold numbers as 'weight:kg'" in error(place, *labels, "m.csv", "-o", "l.csv")
    (place / "m.csv").write_text("size,age\n1,2\n")
    assert "no 'weight:kg'" in error(place, *labels, "m.csv", "-o", "l.csv")
    (place / "m.csv").write_text("")
    assert "is empty" in error(place, *labels, "m.csv", "-o", "l.csv")
    (place / "m.parquet").write_bytes(b"PAR1")
    assert "cannot be read" in error(place, *labels, "m.parquet", "-o", "l.csv")
    column = pa.array(np.zeros(40_000_000))
    pq.write_table(pa.table({"age": column}), place / "m.parquet", use_dictionary=False)
    assert "unpacks to far more" in error(place, *labels, "m.parquet", "-o", "l.csv")


# -- binary files ----------------------------------------------------------------------------------

NOISE = np.random.default_rng(5).bytes(3000)
TAKE_FILES = [
    ("client", "import", "aarhus", "noise.csv", "--id", "patient"),
    ("client", "import", "aarhus", "noise.tsv", "--id", "patient"),
    ("client", "import", "aarhus", "noise.parquet", "--id", "patient"),
    ("client", "import", "aarhus", "noise.arrows", "--id", "patient"),
    ("client", "import", "aarhus", "noise.xlsx", "--id", "patient"),
    ("client", "import", "aarhus", "--uri", "sqlite://noise.db", "--sql", "q.sql", "--id", "p"),
    ("client", "import", "aarhus", "--uri", "sqlite://x.db", "--sql", "noise.db", "--id", "p"),
    ("client", "forget", "aarhus", "--ids-file", "noise.csv", "--yes"),
    ("client", "join", "aarhus", "--epoch", "noise.csv"),
    ("client", "join", "aarhus", "--federation", "noise.csv", "--epoch", "noise.csv"),
    *(("client", "labels", "aarhus", "--model", f"noise.{kind}", "-o", "l.csv")
      for kind in ("csv", "json", "npz", "parquet")),
    ("server", "enrol", "server", "--client", "noise.csv"),
    ("server", "init", "x", "--name", "x", "--clusters", "2", "--features", "noise.csv"),
]  # fmt: skip


@pytest.mark.parametrize("command", TAKE_FILES, ids=" ".join)
def test_no_command_prints_what_a_binary_file_holds(place: Path, command: tuple[str, ...]) -> None:
    for ending in ("csv", "tsv", "parquet", "arrows", "xlsx", "db", "json", "npz"):
        (place / f"noise.{ending}").write_bytes(NOISE)
    (place / "q.sql").write_text("select 1")
    shown = error(place, *command)
    assert shown.replace("\n", "").isprintable()
    assert len(shown) < 700
    assert not set(shown) & set("ÿþÃ\ufffd")


# -- complaints as JSON ----------------------------------------------------------------------------


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def takes_json(command: click.Command) -> bool:
    return any(parameter.name == "as_json" for parameter in command.params)


WHOLE = typer.main.get_command(app)
assert isinstance(WHOLE, click.Group)
WITH_JSON = {path: one for path, one in commands(WHOLE) if takes_json(one)}


def test_which_commands_print_json() -> None:
    without = {path for path, _ in commands(WHOLE)} - set(WITH_JSON)
    # A page is looked at; scripts have `status --json`.
    pages = {("server", "page"), ("client", "page")}
    assert without == {("warm-up",), ("bench", "paper")} | pages
    assert len(WITH_JSON) > 25


@pytest.mark.parametrize("path", WITH_JSON, ids=" ".join)
def test_a_command_that_is_typed_wrongly_says_so_in_json(
    path: tuple[str, ...], tmp_path: Path
) -> None:
    done = in_process(tmp_path, *path, "--json", "--no-such-option")
    assert done.exit_code == 2
    assert "--no-such-option" in json.loads(done.stdout)["error"]
    assert done.stderr == ""


PARTIES = [path for path in WITH_JSON if path[0] in ("client", "server", "round", "report")]


@pytest.mark.parametrize("path", PARTIES, ids=" ".join)
def test_a_command_that_fails_says_so_in_json(path: tuple[str, ...], tmp_path: Path) -> None:
    arguments: list[str] = []
    for one in WITH_JSON[path].params:
        if isinstance(one, click.Argument) and one.required:
            arguments.append("nowhere")
        elif one.required:
            number = isinstance(one.type, (click.types.IntParamType, click.types.FloatParamType))
            arguments += [one.opts[0], "2" if number else "nowhere.npz"]
    if path[-1] == "init":
        # Nothing may be made where something is.
        (tmp_path / "nowhere").write_text("")
    done = in_process(tmp_path, *path, *arguments, "--json")
    assert done.exit_code == 1, done.output
    assert set(json.loads(done.stdout)) == {"error"}
    assert done.stderr == ""
    plain = in_process(tmp_path, *path, *arguments)
    assert plain.exit_code == 1
    assert "error:" in plain.stderr
    assert plain.stdout == ""


def test_json_of_an_error_escapes_what_a_terminal_obeys(place: Path) -> None:
    (place / "t.csv").write_text(f"{HEAD}X,\x1b[2J,2\n")
    done = in_process(place, "client", "import", "aarhus", "t.csv", "--id", "patient", "--json")
    assert "\x1b" not in done.stdout
    assert "not a number" in json.loads(done.stdout)["error"]


# -- what is not installed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "package", "extra"),
    [
        (("t.xlsx",), "openpyxl", "excel"),
        (("--uri", "postgresql://x", "--sql", "q.sql"), "adbc_driver_postgresql", "sql"),
        (("--uri", "duckdb://t.db", "--sql", "q.sql"), "duckdb", "duckdb"),
    ],
)
def test_a_source_without_its_extra_names_it(
    place: Path, given: tuple[str, ...], package: str, extra: str
) -> None:
    (place / "t.xlsx").write_bytes(b"PK")
    (place / "t.db").write_bytes(b"")
    (place / "q.sql").write_text("select 1")
    done = run_without(
        place, "client", "import", "aarhus", *given, "--id", "patient", blocked=(package,)
    )
    assert done.returncode == 1
    assert f"needs the extra {extra}: pip install 'fedforget[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plain_installation_reads_plain_files(place: Path) -> None:
    (place / "t.csv").write_text(f"{HEAD}X,1,2\n")
    blocked = ("openpyxl", "adbc_driver_postgresql", "adbc_driver_manager", "duckdb")
    command = ("client", "import", "aarhus", "t.csv", "--id", "patient")
    assert run_without(place, *command, blocked=blocked).returncode == 0


@pytest.mark.parametrize("kind", ["csv", "json", "npz", "parquet"])
def test_a_table_of_patients_is_no_model(place: Path, kind: str) -> None:
    rows = {"patient": ["P-1", "P-2"], "age": [30.0, 50.0], "weight:kg": [70.0, 80.0]}
    write_table(place / f"patients.{kind}", rows)
    given = ("client", "labels", "aarhus", "--model", f"patients.{kind}", "-o", "l.csv")
    shown = error(place, *given)
    assert "'patient' is none of them" in shown
    assert not (place / "l.csv").exists()


def test_messages_say_what_did_not_happen(place: Path) -> None:
    (place / "bad.parquet").write_bytes(b"no parquet file")
    given = ("aarhus", "bad.parquet", "--id", "patient")
    shown = error(place, "client", "sync", *given)
    assert "; nothing was changed" in shown
    assert "imported" not in shown
    shown = error(place, "client", "import", *given)
    assert ".; " not in shown
    assert "; nothing was imported" in shown
    (place / "x.csv").write_text("patient,age,weight:kg\nP-1,2,3\n")
    shown = error(place, "client", "import", "aarhus", "x.csv", "--id", "patient",
                  "--encoding", "idna")  # fmt: skip
    assert "the encoding 'idna'" in shown
    labels = ("client", "labels", "aarhus", "--model", "m.npz", "-o", "x.txt")
    assert ".npz, .parquet or .h5ad" in error(place, *labels)
