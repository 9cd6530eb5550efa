"""Records of a real PostgreSQL server, in tables as the OMOP common data model has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from party_world import FEATURES, World, found_in, values_of

from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.sources import ROWS_AT_A_TIME, Source, SourceOptions, TableError, open_source
from postgres_server import Postgres

SCHEMA = """
create table person (
  person_id integer primary key,
  year_of_birth integer not null,
  gender_concept_id integer not null
);
create table measurement (
  measurement_id bigint primary key,
  person_id integer not null references person,
  measurement_concept_id integer not null,
  measurement_date date not null,
  value_as_number numeric
);
insert into person
  select n, 1920 + n % 90, 8507 + 25 * (n % 2) from generate_series(1, 400) n;
-- 3025315 is body weight, 3036277 body height.
insert into measurement
  select 2 * n, n, 3025315, '2024-01-01'::date + n, (40 + n % 160 + n / 977.0)::numeric(12, 6)
    from generate_series(1, 400) n;
insert into measurement
  select 2 * n + 1, n, 3025315, '2020-01-01', 299.5 from generate_series(1, 400) n;
update measurement set value_as_number = null where person_id % 40 = 0 and measurement_id % 2 = 0;
"""

COHORT = """
-- The last weight of everybody.
select p.person_id as id,
       2024 - p.year_of_birth as age,
       m.value_as_number as weight
  from person p
  join lateral (
    select value_as_number from measurement
     where person_id = p.person_id and measurement_concept_id = 3025315
     order by measurement_date desc limit 1
  ) m on true
"""


@pytest.fixture
def omop(postgres: Postgres) -> Iterator[str]:
    """A database with persons and measurements."""
    with postgres.database(SCHEMA) as name:
        yield name


@pytest.fixture
def party(tmp_path: Path) -> Iterator[ClientParty]:
    world = World(tmp_path / "world", ["aarhus", "bologna"]).set_up()
    world.hold("aarhus", ["held"], values_of(1, 0))
    with open_client(world.client("aarhus")) as client:
        yield client


def asked(folder: Path, uri: str, sql: str = COHORT, **options: Any) -> Source:
    path = folder / "cohort.sql"
    path.write_text(sql, encoding="utf-8")
    return open_source([], FEATURES, "id", SourceOptions(uri=uri, sql=path, **options))


def read(source: Source) -> dict[Any, list[float]]:
    found: dict[Any, list[float]] = {}
    for ids, values in source.parts():
        assert len(ids) <= ROWS_AT_A_TIME
        found |= dict(zip(ids.tolist(), values.tolist(), strict=True))
    return found


def refusal(source: Source) -> str:
    with pytest.raises(TableError) as error:
        read(source)
    return str(error.value)


def test_a_cohort_is_imported(
    postgres: Postgres,
    omop: str,
    party: ClientParty,
    tmp_path: Path,
) -> None:
    uri = postgres.uri(omop)
    before = party.state_digest()
    with pytest.raises(TableError, match=r"10 of 400 rows have missing values \('weight' 10\)"):
        party.import_table(asked(tmp_path, uri))
    assert party.state_digest() == before
    result = party.import_table(asked(tmp_path, uri, missing="drop"))
    assert (result["added"], result["dropped"]) == (390, 10)
    assert party.audit().passed
    exact = Fraction(postgres.run("select (40 + 7 % 160 + 7 / 977.0)::numeric(12, 6)", omop))
    (row,) = party.store.rows_of([b"i\x07"]).values()
    assert party.store.values_of([row], 2).tolist() == [[2024 - 1927, float(exact)]]


def test_the_same_records_as_from_a_file(
    postgres: Postgres,
    omop: str,
    tmp_path: Path,
) -> None:
    lines = postgres.run(f"copy ({COHORT}) to stdout (format csv, header)", omop)
    (tmp_path / "cohort.csv").write_text(lines)
    filed = open_source([tmp_path / "cohort.csv"], FEATURES, "id", SourceOptions(missing="drop"))
    queried = read(asked(tmp_path, postgres.uri(omop), missing="drop"))
    assert {str(one): row for one, row in queried.items()} == read(filed)


def test_numerics_are_rounded_once(
    postgres: Postgres,
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    texts = []
    for row in range(2000):
        digits = "".join(map(str, rng.integers(0, 10, int(rng.integers(1, 60))).tolist()))
        texts.append(f"{digits[: len(digits) // 2] or '0'}.{digits[len(digits) // 2 :]}")
        texts[-1] = f"-{texts[-1]}" if row % 2 else texts[-1]
    rows = ", ".join(f"({row}, {text})" for row, text in enumerate(texts))
    sql = "select i as id, n as age, -n as weight from t"
    with postgres.database(f"create table t (i int, n numeric); insert into t values {rows}") as d:
        found = read(asked(tmp_path, postgres.uri(d), sql))
    for row, text in enumerate(texts):
        exact = float(Fraction(text))
        assert found[row] == [exact, -exact]


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        ("'63.5'::text", "holds string, not numbers"),
        ("'63.5'::varchar", "holds string, not numbers"),
        ("'12'::money", "PostgreSQL's money"),
        ("'2020-01-01'::date", "holds date32"),
        ("array[1.5]", "holds list"),
        ("'{}'::jsonb", "not numbers"),
        ("interval '1 day'", "not numbers"),
        ("'infinity'::float8", "not a finite number"),
        ("'Infinity'::numeric", "not a finite number"),
        ("1e400::numeric", "not a finite number"),
        ("9007199254740993::bigint", "beyond 2**53"),
    ],
)
def test_columns_that_are_no_numbers(
    postgres: Postgres,
    tmp_path: Path,
    cell: str,
    word: str,
) -> None:
    sql = f"select 1 as id, {cell} as age, 1 as weight"
    message = refusal(asked(tmp_path, postgres.uri(), sql))
    assert word in message
    assert "'age'" in message


def test_columns_that_are_numbers(postgres: Postgres, tmp_path: Path) -> None:
    cells = {
        "true": 1.0,
        "1::smallint": 1.0,
        "2.5::real": 2.5,
        "0.1::float8": 0.1,
        "0.10::numeric": 0.1,
        "9007199254740992::bigint": 2.0**53,
    }
    for cell, expected in cells.items():
        sql = f"select 'P' as id, {cell} as age, 1 as weight"
        assert read(asked(tmp_path, postgres.uri(), sql)) == {"P": [expected, 1.0]}
    for nothing in ("null::float8", "'NaN'::numeric", "'NaN'::real", "null"):
        sql = f"select 'P' as id, {nothing} as age, 1 as weight"
        message = refusal(asked(tmp_path, postgres.uri(), sql))
        assert "'age' 1" in message or "'age' holds string" in message


def test_ids_of_a_database(postgres: Postgres, tmp_path: Path) -> None:
    row = "as id, 1 as age, 1 as weight"
    one = "11111111-2222-3333-4444-555555555555"
    assert set(read(asked(tmp_path, postgres.uri(), f"select '{one}'::uuid {row}"))) == {one}
    assert set(read(asked(tmp_path, postgres.uri(), f"select 17::numeric {row}"))) == {"17"}
    for fraction in ("17.00::numeric(6, 2)", "17.5::numeric"):
        with pytest.raises(TableError, match="holds numbers with decimals; ids must be integers"):
            read(asked(tmp_path, postgres.uri(), f"select {fraction} {row}"))
    padded = f"select 'ab'::char(5) {row}"
    assert "'ab   ' (row 1) ends with a space" in refusal(asked(tmp_path, postgres.uri(), padded))
    trimmed = f"select trim('ab'::char(5)) {row}"
    assert set(read(asked(tmp_path, postgres.uri(), trimmed))) == {"ab"}
    assert "row 1 has no id" in refusal(asked(tmp_path, postgres.uri(), f"select null::int {row}"))
    for bad in ("1.5::float8", "17::oid"):
        assert "'id'" in refusal(asked(tmp_path, postgres.uri(), f"select {bad} {row}"))


@pytest.mark.parametrize(
    "sql",
    [
        "delete from person returning person_id as id, 1 as age, 2 as weight",
        "insert into person values (9999, 1, 1) returning 1 as id, 2 as age, 3 as weight",
        "drop table measurement",
        "select 1 as id, 2 as age, 3 as weight; drop table measurement",
        "commit",
    ],
)
def test_a_query_only_reads(
    postgres: Postgres,
    omop: str,
    tmp_path: Path,
    sql: str,
) -> None:
    count = "select (select count(*) from person), (select count(*) from measurement)"
    before = postgres.run(count, omop)
    assert refusal(asked(tmp_path, postgres.uri(omop), sql))
    assert postgres.run(count, omop) == before


def test_queries_that_fail(postgres: Postgres, omop: str, tmp_path: Path) -> None:
    uri = postgres.uri(omop)
    assert 'column "nothing" does not exist' in refusal(
        asked(tmp_path, uri, "select nothing from person")
    )
    assert "no column 'weight'" in refusal(
        asked(tmp_path, uri, "select person_id as id, 1 as age from person")
    )
    assert "'age' twice" in refusal(
        asked(tmp_path, uri, "select 1 as id, 1 as age, 2 as age, 3 as weight")
    )
    late = "select person_id as id, 1 as age, 1 / (300 - person_id) as weight from person"
    assert "division by zero" in refusal(asked(tmp_path, uri, late))
    named = "select person_id as id, 1 as age, ('Smi' || 'th')::numeric as weight from person"
    words = refusal(asked(tmp_path, uri, named))
    assert "invalid input syntax" in words
    assert "Smith" not in words
    assert "has no rows" in refusal(asked(tmp_path, uri, f"{COHORT} where false"))


# -- who asks --------------------------------------------------------------------------------------

WRONG = "correct-horse-battery"


def test_a_wrong_password(
    postgres: Postgres,
    omop: str,
    party: ClientParty,
    tmp_path: Path,
) -> None:
    before = party.state_digest()
    uris = [
        postgres.uri(omop, password=WRONG),
        f"postgresql:///{omop}?host={postgres.sockets}&user=postgres&password={WRONG}",
    ]
    for uri in uris:
        assert WRONG in uri
        with pytest.raises(TableError) as error:
            party.import_table(asked(tmp_path, uri))
        assert "password authentication failed" in str(error.value)
        assert WRONG not in str(error.value)
        assert WRONG not in repr(error.value.__cause__) + repr(error.value.__context__)
    assert party.state_digest() == before
    assert "does not exist" in refusal(asked(tmp_path, postgres.uri("nowhere")))


def test_passwords_are_not_stored(
    postgres: Postgres,
    omop: str,
    party: ClientParty,
    tmp_path: Path,
) -> None:
    party.import_table(asked(tmp_path, postgres.uri(omop), missing="drop"))
    files = {path: path.read_bytes() for path in party.folder.rglob("*") if path.is_file()}
    wanted = {"password": postgres.password.encode(), "place": str(postgres.sockets).encode()}
    assert files
    assert not found_in(files, wanted)


def test_variables_and_the_password_file(
    postgres: Postgres,
    omop: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in postgres.environment(omop).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "nothing"))
    assert "no password supplied" in refusal(asked(tmp_path, "postgresql://"))
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    assert len(read(asked(tmp_path, "postgresql://", missing="drop"))) == 390
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.delenv("PGPASSFILE")
    (tmp_path / ".pgpass").write_text(f"*:*:{omop}:postgres:{postgres.password}\n")
    (tmp_path / ".pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / ".pgpass"))
    assert len(read(asked(tmp_path, f"postgresql:///{omop}", missing="drop"))) == 390


# -- a connection that is cut ----------------------------------------------------------------------

MANY = "select n as id, n % 100 as age, 1.5 as weight from generate_series(1, 3000000) n"


def test_a_connection_that_is_cut_in_the_middle(
    postgres: Postgres,
    party: ClientParty,
    tmp_path: Path,
) -> None:
    before = party.state_digest()
    parts: list[int] = []

    def cut(rows: int) -> None:
        parts.append(rows)
        if len(parts) == 2:
            postgres.run(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where query like 'COPY%' and pid <> pg_backend_pid()"
            )

    with pytest.raises(TableError) as error:
        party.import_table(asked(tmp_path, postgres.uri(), MANY), progress=cut)
    assert "nothing was imported" in str(error.value)
    assert postgres.password not in str(error.value)
    assert 2 <= len(parts) < 3_000_000 // ROWS_AT_A_TIME
    assert party.state_digest() == before
    assert len(party.store) == 1
    assert party.audit().passed


def test_who_stops_reading_leaves_no_connection(
    postgres: Postgres,
    tmp_path: Path,
) -> None:
    parts = asked(tmp_path, postgres.uri(), MANY).parts()
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    count = "select count(*) from pg_stat_activity where query like 'COPY%'"
    for _ in range(100):
        if postgres.run(count) == "0":
            return
        os.sched_yield()
    raise AssertionError("the connection is still there")


def test_what_may_follow_a_query(postgres: Postgres, tmp_path: Path) -> None:
    """The driver puts the query into brackets: a remark must not swallow the last one."""
    for text in (
        "select 'A' as id, 1 as age, 2 as weight;",
        "select 'A' as id, 1 as age, 2 as weight -- all",
        "select 'A' as id, 1 as age, 2 as weight ; -- all\n/* of /* them */ */\n",
        "select 'A' as id, 1 as age, 2 as weight where e'it\\'s;' <> $x$;--$x$ -- all\n;",
    ):
        assert read(asked(tmp_path, postgres.uri(), text)) == {"A": [1.0, 2.0]}


def test_a_command_that_writes_a_file(postgres: Postgres, tmp_path: Path) -> None:
    """A transaction that may not write does not keep COPY from it."""
    there = postgres.folder / "data" / "copied"
    with pytest.raises(TableError, match="begins with SELECT"):
        read(asked(tmp_path, postgres.uri(), f"copy (select 1) to '{there}'"))
    assert not there.exists()
