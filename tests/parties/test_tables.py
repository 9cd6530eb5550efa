"""Tables as people have them: what is wrong is named with its row and column, and not imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from party_world import World, table, values_of, write_npz

from fedforget.errors import DuplicateIdError, FedforgetError, OutOfBoundsError
from fedforget.parties.client_party import ClientParty, open_client
from fedforget.parties.sources import ROWS_AT_A_TIME, TableError


@pytest.fixture
def party(tmp_path: Path) -> Iterator[ClientParty]:
    """A client that holds one record."""
    world = World(tmp_path / "world", ["aarhus", "bologna"]).set_up()
    world.hold("aarhus", ["held"], values_of(1, 0))
    with open_client(world.client("aarhus")) as opened:
        yield opened


def frame(**changes: Any) -> pd.DataFrame:
    columns = {"id": ["p", "q", "r"], "age": [1.0, 2.0, 3.0], "weight": [4.0, 5.0, 6.0]}
    return pd.DataFrame(columns | changes)


WRITERS = {
    "csv": lambda data, path: data.to_csv(path, index=False),
    "parquet": lambda data, path: data.to_parquet(path, index=False),
    "feather": lambda data, path: pa.feather.write_feather(pa.Table.from_pandas(data), path),
    "arrow": lambda data, path: pl.from_pandas(data).write_ipc(path),
    "npz": lambda data, path: np.savez(path, **{k: np.array(data[k].tolist()) for k in data}),
}


def written(data: pd.DataFrame, folder: Path, ending: str = "csv") -> Path:
    import pyarrow.feather  # noqa: F401

    path = folder / f"table.{ending}"
    WRITERS[ending](data, path)
    return path


def refused(party: ClientParty, path: Path, *words: str, **options: Any) -> None:
    """The error says all these words, and the store is as it was."""
    before = party.state_digest()
    replace = options.pop("replace", False)
    with pytest.raises(FedforgetError) as error:
        party.import_table(table(path, **options), replace=replace)
    for word in (*words, path.name):
        assert word in str(error.value), str(error.value)
    assert party.state_digest() == before
    assert party.audit().passed


@pytest.mark.parametrize("ending", WRITERS)
def test_every_format_gives_the_same(party: ClientParty, tmp_path: Path, ending: str) -> None:
    data = frame(id=["9", "17", "-3"])
    path = written(data, tmp_path, ending)
    assert party.import_table(table(path)) == {
        "added": 3, "replaced": 0, "kept_out": 0, "dropped": 0, "filled": 0, "records": 4
    }  # fmt: skip
    digest = party.state_digest()
    numbers = written(data.astype({"id": int}), tmp_path, ending)
    assert party.import_table(table(numbers), replace=True)["replaced"] == 3
    assert party.state_digest() == digest
    assert party.forget([9]).records == 1


@pytest.mark.parametrize("ending", WRITERS)
def test_extra_columns_are_not_read(party: ClientParty, tmp_path: Path, ending: str) -> None:
    data = frame(diagnosis=["x", "y", "z"])[["weight", "diagnosis", "id", "age"]]
    if ending == "npz":
        data["diagnosis"] = [1, 2, 3]
    party.import_table(table(written(data, tmp_path, ending)))
    rows = party.store.rows_of([b"sp"])
    assert party.store.values_of(list(rows.values()), 2).tolist() == [[1.0, 4.0]]


@pytest.mark.parametrize("ending", WRITERS)
def test_missing_columns(party: ClientParty, tmp_path: Path, ending: str) -> None:
    refused(party, written(frame().drop(columns="weight"), tmp_path, ending), "'weight'")
    refused(party, written(frame().drop(columns="id"), tmp_path, ending), "'id'")


@pytest.mark.parametrize("ending", WRITERS)
def test_duplicate_ids(party: ClientParty, tmp_path: Path, ending: str) -> None:
    refused(party, written(frame(id=["p", "q", "p"]), tmp_path, ending), "'p'", "twice", "row 3")
    held = written(frame(id=["p", "held", "q"]), tmp_path, ending)
    refused(party, held, "'held'", "held already", "--replace")
    again = written(frame(id=["held", "p", "held"]), tmp_path, ending)
    refused(party, again, "'held'", "twice", replace=True)


def test_duplicates_in_different_parts_of_a_file(party: ClientParty, tmp_path: Path) -> None:
    n = ROWS_AT_A_TIME + 10
    ids = [f"P-{number}" for number in range(n)]
    ids[-1] = ids[5]
    path = write_npz(tmp_path / "large.npz", ids, values_of(n, 1))
    for replace in (False, True):
        refused(party, path, "'P-5'", f"row {n}", replace=replace)
    mixed = written(frame(id=["5", "05", "5 "]), tmp_path, "parquet")
    assert party.import_table(table(mixed, ids_as_is=True))["added"] == 3
    again = written(frame(id=["5", "x", "y"]), tmp_path)
    refused(party, again, "5", "held already", ids_as_is=True)


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather"])
def test_ids_that_are_missing(party: ClientParty, tmp_path: Path, ending: str) -> None:
    refused(party, written(frame(id=["p", None, "q"]), tmp_path, ending), "row 2 has no id")
    refused(party, written(frame(id=["p", "q", ""]), tmp_path, ending), "row 3 has no id")


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_missing(
    party: ClientParty, tmp_path: Path, ending: str, value: float
) -> None:
    data = frame(weight=[1.0, 2.0, value])
    words = ["1 of 3 rows", "'weight' 1"] if np.isnan(value) else ["row 3", "'weight'", "finite"]
    refused(party, written(data, tmp_path, ending), *words)


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("value", [120.001, -1e-9])
def test_values_out_of_bounds(
    party: ClientParty, tmp_path: Path, ending: str, value: float
) -> None:
    path = written(frame(age=[0.0, value, 120.0]), tmp_path, ending)
    refused(party, path, "row 2", "'age'", repr(value), "[0.0, 120.0]", "nothing was imported")
    with pytest.raises(OutOfBoundsError):
        party.import_table(table(path))


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "npz"])
def test_text_in_a_column_of_numbers(party: ClientParty, tmp_path: Path, ending: str) -> None:
    data = frame(age=["1", "two", "3"])
    if ending == "npz":
        path = tmp_path / "table.npz"
        np.savez(path, id=np.array(["p"]), age=np.array(["two"]), weight=np.array([1.0]))
        refused(party, path, "nothing was imported")
        return
    words = ["'age'"] + (["row 2", "'two'"] if ending == "csv" else [])
    refused(party, written(data, tmp_path, ending), *words)


def test_text_far_down_in_a_large_csv(party: ClientParty, tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    lines = [f"P-{number},1.5,2.5" for number in range(40_000)]
    lines[31_233] = "P-x,1.5,2;5"
    path.write_text("\n".join(["id,age,weight", *lines]), encoding="utf-8")
    refused(party, path, "row 31234", "'weight'", "'2;5'")


@pytest.mark.parametrize("ending", WRITERS)
def test_no_rows(party: ClientParty, tmp_path: Path, ending: str) -> None:
    if ending == "npz":
        path = write_npz(tmp_path / "table.npz", np.array([], dtype=str), np.empty((0, 2)))
    else:
        path = written(frame().iloc[:0].astype({"id": str}), tmp_path, ending)
    refused(party, path, "no rows")


def test_an_empty_file(party: ClientParty, tmp_path: Path) -> None:
    for ending in ("csv", "parquet", "npz", "arrow"):
        path = tmp_path / f"empty.{ending}"
        path.write_bytes(b"")
        refused(party, path, "cannot be read")


@pytest.mark.parametrize("ending", ["parquet", "feather", "npz"])
def test_a_truncated_file(party: ClientParty, tmp_path: Path, ending: str) -> None:
    path = written(frame(), tmp_path, ending)
    data = path.read_bytes()
    for size in (len(data) // 2, len(data) - 1, 7):
        path.write_bytes(data[:size])
        refused(party, path, "cannot be read")


def test_a_csv_with_a_row_cut_off(party: ClientParty, tmp_path: Path) -> None:
    path = tmp_path / "cut.csv"
    path.write_text("id,age,weight\np,1,2\nq,1", encoding="utf-8")
    refused(party, path, "cannot be read", "row 2 has 2 cells and the first line 3")


def test_a_csv_with_another_delimiter_or_encoding(party: ClientParty, tmp_path: Path) -> None:
    path = tmp_path / "german.csv"
    path.write_bytes("id;age;weight\nMüller;1.5;2.5\n".encode("latin-1"))
    refused(party, path, "'id'", "delimiter")
    refused(party, path, "row 1, column 'id'", "not text in the encoding utf-8", delimiter=";")
    refused(party, path, "no encoding", delimiter=";", encoding="klingon")
    refused(party, path, "one character", delimiter=";;")
    party.import_table(table(path, delimiter=";", encoding="latin-1"))
    assert party.forget(["Müller"]).records == 1
    tabbed = tmp_path / "tabbed.csv"
    tabbed.write_text("id\tage\tweight\nx\t1.5\t2.5\n", encoding="utf-16")
    party.import_table(table(tabbed, delimiter="\t", encoding="utf-16"))
    assert party.forget(["x"]).records == 1


def test_a_column_that_is_there_twice(party: ClientParty, tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("id,age,age,weight\np,1,2,3\n", encoding="utf-8")
    refused(party, path, "'age' twice")


ODD = [
    "../../etc/passwd",
    "C:\\temp",
    "=HYPERLINK(1)",
    "+1+1",
    "-",
    "@SUM(A1)",
    "'; DROP TABLE part; --",
    "[bold]x[/bold]",
    "Ångström",
    "患者一",
    "👩🏽‍⚕️",
    "e\u0301",
    "é",
    " spaces ",
    "007",
    "1e5",
    "9223372036854775808",
    "NA",
    "x" * 254,
]


@pytest.mark.parametrize("ending", WRITERS)
def test_odd_ids(party: ClientParty, tmp_path: Path, ending: str) -> None:
    """They are ids like all others, for whoever says that they are meant."""
    n = len(ODD)
    data = pd.DataFrame({"id": ODD, "age": np.ones(n), "weight": np.arange(n) / 7})
    refused(party, written(data, tmp_path, ending), "mistaken", "--ids-as-is")
    party.import_table(table(written(data, tmp_path, ending), ids_as_is=True))
    ids, _ = party.labels(np.empty((0, 2)))
    assert set(map(str, ids)) == {*ODD, "held"}
    for one in ODD:
        assert party.forget([one]).records == 1
    assert party.audit().passed


@pytest.mark.parametrize("bad", ["x" * 255, "é" * 127 + "x", "a\0b"])
def test_ids_that_cannot_be_kept(party: ClientParty, tmp_path: Path, bad: str) -> None:
    path = written(frame(id=["p", bad, "q"]), tmp_path, "parquet")
    refused(party, path, "nothing was imported")


@pytest.mark.parametrize("column", [[1.5, 2.5, 3.5], [True, False, True], [b"x", b"y", b"z"]])
def test_ids_of_other_types(party: ClientParty, tmp_path: Path, column: list[Any]) -> None:
    refused(party, written(frame(id=column), tmp_path, "parquet"), "integers or strings")


def test_integers_and_categories_are_read(party: ClientParty, tmp_path: Path) -> None:
    data = frame(age=np.array([1, 2, 3], dtype=np.int16), weight=np.float32([1, 2, 3]))
    path = tmp_path / "types.parquet"
    data["id"] = pd.Categorical(data["id"])
    pq.write_table(pa.Table.from_pandas(data), path)
    assert party.import_table(table(path))["added"] == 3
    large = frame(id=np.array([2**64 - 1, 1, 2], dtype=np.uint64))
    refused(party, written(large, tmp_path, "parquet"), "64")


def test_an_npz_with_a_matrix(party: ClientParty, tmp_path: Path) -> None:
    path = tmp_path / "matrix.npz"
    X = np.array([[1.0, 9.0, 2.0]])
    names = np.array(["weight", "other", "age"])
    np.savez(path, X=X, feature_names=names, id=np.array([5]))
    party.import_table(table(path))
    rows = party.store.rows_of([b"i\x05"])
    assert party.store.values_of(list(rows.values()), 2).tolist() == [[2.0, 1.0]]
    np.savez(path, X=X, feature_names=names, id=np.array([5, 6]))
    refused(party, path, "2 ids and 1 rows")
    np.savez(path, X=X, feature_names=names)
    refused(party, path, "'id'")


def test_replacing(party: ClientParty, tmp_path: Path) -> None:
    path = written(frame(id=["held", "q", "r"]), tmp_path)
    assert party.import_table(table(path), replace=True) == {
        "added": 3,
        "replaced": 1,
        "kept_out": 0,
        "dropped": 0,
        "filled": 0,
        "records": 3,
    }
    rows = party.store.rows_of([b"sheld"])
    assert party.store.values_of(list(rows.values()), 2).tolist() == [[1.0, 4.0]]
    assert party.audit().passed


def test_files_that_are_not_tables(party: ClientParty, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no such file"):
        table(tmp_path / "missing.csv")
    path = tmp_path / "table.docx"
    path.write_bytes(b"")
    with pytest.raises(TableError, match=r"must end in one of \.parquet, \.csv"):
        table(path)
    with pytest.raises(TableError, match="is a directory"):
        table(tmp_path)
    path = tmp_path / "table.csv"
    with pytest.raises(TableError, match="is a feature"):
        table(path, features=["id", "age"])


def test_too_many_records(
    party: ClientParty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(party.config), "max_records", 3)
    refused_path = written(frame(), tmp_path)
    with pytest.raises(FedforgetError, match="4 records do not fit"):
        party.import_table(table(refused_path))
    assert len(party.store) == 1


@pytest.mark.parametrize(
    ("ids", "word"),
    [
        ([], "no ids"),
        (["held", "held"], "twice"),
        (["nobody"], "'nobody'"),
        ([""], "empty"),
        (["held", 3], "mixed"),
        ([1.5], "integers or strings"),
    ],
)
def test_requests_that_are_refused(party: ClientParty, ids: list[Any], word: str) -> None:
    before = party.state_digest()
    with pytest.raises(FedforgetError, match=word) as error:
        party.forget(ids)
    assert "nothing was forgotten" in str(error.value)
    assert party.state_digest() == before
    assert not party.store.requests()


def test_ids_given_as_text_and_as_number_are_one(party: ClientParty, tmp_path: Path) -> None:
    party.import_table(table(written(frame(id=["17", "018", "x"]), tmp_path)))
    with pytest.raises(DuplicateIdError):
        party.forget(["17", "x", "17"])
    assert party.forget([17]).records == 1
    assert party.forget(["018"]).records == 1


@pytest.mark.parametrize("ending", ["parquet", "npz"])
def test_integers_that_are_no_floats(party: ClientParty, tmp_path: Path, ending: str) -> None:
    path = written(frame(age=[1, 2**53 + 1, 3]), tmp_path, ending)
    refused(party, path, "'age'", "beyond 2**53")
