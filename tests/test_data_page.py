"""docs/data.md, run as a user types it; its part on PostgreSQL with a real server."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from postgres_server import Postgres
from test_guide import DOCS, TOWNS, fits, steps_of, typed, write_patients

SECTION = "## PostgreSQL"
CELLS = "## Cells in AnnData files"

QUERY = """select person_id as patient, age, pressure
  from visit
 where pressure is not null
"""

OMOP = """
create table person (person_id integer primary key, year_of_birth integer);
create table measurement (
  measurement_id integer primary key,
  person_id integer references person,
  measurement_concept_id integer,
  value_as_number numeric
);
insert into person select n, 1940 + n from generate_series(1, 40) n;
insert into measurement select n, n, 3004249, 100 + n / 7.0 from generate_series(1, 40) n;
insert into measurement select n + 40, n, 3025315, 70 from generate_series(1, 40) n;
update measurement set value_as_number = null where measurement_id = 7;
"""

OMOP_QUERY = """select p.person_id as patient,
       2024 - p.year_of_birth as age,
       m.value_as_number as pressure
  from person p
  join measurement m using (person_id)
 where m.measurement_concept_id = 3004249
"""


def sections() -> tuple[str, str, str]:
    """The page without the parts on PostgreSQL and on cells, and these two parts."""
    text = (DOCS / "data.md").read_text(encoding="utf-8")
    text, postgres = _without(text, SECTION)
    text, cells = _without(text, CELLS)
    return text, postgres, cells


def _without(text: str, heading: str) -> tuple[str, str]:
    before, _, rest = text.partition(heading)
    part, end, after = rest.partition("\n## ")
    assert part
    return before + end + after, part


def hospitals(folder: Path) -> None:
    """What the page begins with: the hospitals have joined, and hold nothing."""
    write_patients(folder)
    features = "--feature age:0:120 --feature pressure:60:260 --fill age=50"
    commands = [f"fedforget server init server --name s --clusters 3 {features}"]
    towns = TOWNS[:4]
    commands += [f"fedforget client init {town} --name {town.title()}" for town in towns]
    enrolments = " ".join(f"--client {town}/enrolment.json" for town in towns)
    commands.append(f"fedforget server enrol server {enrolments}")
    given = "--federation server/federation.toml --epoch server/epoch-1.json"
    commands += [f"fedforget client join {town} {given}" for town in towns]
    for command in commands:
        typed(folder, command)


def piped(folder: Path, line: str) -> str:
    """What a line with a pipe prints, in a shell that finds this fedforget."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "fedforget"
    start = "from fedforget.cli.main import app; app(prog_name='fedforget')"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "COLUMNS": "500"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_through(folder: Path, text: str) -> int:
    """Type every command of a text; returns how many there were."""
    found = steps_of(text)
    for command, expected in found:
        run = piped if " | " in command else typed
        printed = run(folder, command)
        assert fits(printed, expected), f"{command}\n{printed}"
    return len(found)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of POSIX")
def test_the_page_runs_as_it_is_written(tmp_path: Path) -> None:
    hospitals(tmp_path)
    (tmp_path / "cohort.sql").write_text(QUERY)
    with closing(sqlite3.connect(tmp_path / "warehouse.db")) as connection, connection:
        connection.execute("create table visit (person_id, age, pressure)")
        connection.execute("insert into visit values (1, 50, 120), (2, 60, null), (3, 70, 130.5)")
    text, _, _ = sections()
    assert run_through(tmp_path, text) > 15


def test_the_part_on_postgresql_runs_as_it_is_written(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    hospitals(tmp_path)
    (tmp_path / "cohort.sql").write_text(OMOP_QUERY)
    for name, value in postgres.environment(PGPASSWORD=postgres.password).items():
        monkeypatch.setenv(name, value)
    postgres.run("create database omop")
    try:
        postgres.run(OMOP, "omop")
        _, part, _ = sections()
        assert run_through(tmp_path, part) == 2
    finally:
        postgres.run("drop database omop with (force)")


@pytest.mark.usefixtures("option_of_texts")  # puts the option back that the page sets
def test_the_part_on_cells_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks of Python, too, in their order."""
    pytest.importorskip("anndata")
    hospitals(tmp_path)
    monkeypatch.chdir(tmp_path)
    _, _, part = sections()
    names: dict[str, object] = {}
    commands = 0
    for kind, block in re.findall(r"```(python|console)\n(.*?)```", part, re.S):
        if kind == "python":
            exec(compile(block, "data.md", "exec"), names)
        else:
            commands += run_through(tmp_path, f"```console\n{block}```")
    assert commands == 4
