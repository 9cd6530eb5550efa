"""Files that somebody else made, or damaged, end in a named error: no crash, no endless memory."""

from __future__ import annotations

import fcntl
import io
import json
import os
import resource
import stat
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from party_world import federation_file, table

from fedforget import whole_files
from fedforget.cli.given_files import read_centroids
from fedforget.cli.words import write_table
from fedforget.errors import FedforgetError, ModelFileError
from fedforget.estimators import files as model_files
from fedforget.incoming import IncomingFileError, open_npz, parse_json, read_json
from fedforget.parties.arrow_sizes import largest_batch
from fedforget.parties.federation_file import VERSION, FederationFile, FederationFileError
from fedforget.parties.folders import FolderError, being_made, write_private
from fedforget.parties.sources import TableError

HERE = Path(__file__).parent
TEXT = federation_file().text()
NOW = f"version = {VERSION}"


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "mutants", "seed"),
    [("feather", 500, 1), ("arrows", 300, 1), *((k, 120, 1) for k in ("parquet", "npz"))],
)
def test_damaged_tables_are_read_or_refused(kind: str, mutants: int, seed: int) -> None:
    """Each mutant is read in a process of its own; a crash of one fails the test."""
    program = [sys.executable, str(HERE / "hostile_tables.py"), kind, str(mutants), str(seed)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_offset_that_points_nowhere(tmp_path: Path) -> None:
    ids = [f"patient-{row}" for row in range(8)]
    good = pa.table({"id": ids, "age": [1.0] * 8, "weight": [2.0] * 8})
    pa.feather.write_feather(good, tmp_path / "good.feather", compression="uncompressed")
    data = (tmp_path / "good.feather").read_bytes()
    offsets = np.arange(0, 9 * len(ids[0]), len(ids[0]), dtype="<i4").tobytes()
    assert data.count(offsets) == 1
    wrong = offsets[:16] + (2**31 - 64).to_bytes(4, "little") + offsets[20:]
    path = tmp_path / "wrong.feather"
    path.write_bytes(data.replace(offsets, wrong))
    script = (
        "import sys; from fedforget.parties.sources import *\n"
        "try: print(list(open_source([sys.argv[1]], ['age', 'weight'], 'id').parts()))\n"
        "except TableError as error: print('refused', error)"
    )
    program = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused")


def test_columns_that_are_not_wanted_may_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "more.feather"
    note = pa.array(["é"] * 4)
    more = pa.table({"note": note, "weight": [2.0] * 4, "id": list("abcd"), "age": [1.0] * 4})
    pa.feather.write_feather(more, path, compression="uncompressed")
    path.write_bytes(path.read_bytes().replace("é".encode() * 4, b"\xff" * 8))
    (ids, values) = next(table(path).parts())
    assert ids.tolist() == list("abcd")
    assert values.tolist() == [[1.0, 2.0]] * 4


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
@pytest.mark.parametrize("kind", ["plain", "dictionary"])
def test_the_size_of_a_batch_is_known_before_it_is_read(
    tmp_path: Path, compression: str, kind: str
) -> None:
    ids = pa.array([f"patient-{row // 2}" for row in range(4000)])
    whole = pa.table({"id": ids.dictionary_encode() if kind == "dictionary" else ids})
    whole = whole.append_column("age", pa.array(np.zeros(4000)))
    path = tmp_path / "t.feather"
    pa.feather.write_feather(whole, path, compression=compression, chunksize=3000)
    with path.open("rb") as file:
        found = largest_batch(file, path.stat().st_size)
    dictionary = whole["id"].chunk(0).dictionary.nbytes if kind == "dictionary" else 0
    largest = whole.slice(0, 3000)
    expected = largest["age"].nbytes + dictionary
    expected += 4 * 3000 if kind == "dictionary" else largest["id"].nbytes
    assert abs(found - expected) <= 256  # buffers are padded


@pytest.mark.parametrize("kind", ["feather", "parquet"])
def test_a_small_table_takes_no_large_memory(tmp_path: Path, kind: str) -> None:
    path, n = tmp_path / f"bomb.{kind}", 12_000_000
    zeros = np.zeros(n)
    columns = pa.table({"id": np.zeros(n, dtype=np.int64), "age": zeros, "weight": zeros})
    if kind == "feather":
        pa.feather.write_feather(columns, path, compression="zstd", chunksize=n)
    else:
        pa.parquet.write_table(columns, path, n, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(TableError, match="unpacks to far more"):
        list(table(path).parts())


def member(name: str, header: bytes | dict[str, Any], data: bytes) -> tuple[str, bytes]:
    """A member of an npz file with a header that need not be true."""
    out = io.BytesIO()
    if isinstance(header, dict):
        np.lib.format.write_array_header_1_0(out, header)  # type: ignore[arg-type]
    else:
        out.write(header)
    return f"{name}.npy", out.getvalue() + data


def header(descr: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"descr": descr, "fortran_order": False, "shape": shape}


def write_members(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


LIES = {
    "more elements than there are": (header("<f8", (10**12,)), bytes(80)),
    "fewer elements than there are": (header("<f8", (2,)), bytes(80)),
    "a negative length": (header("<f8", (-1,)), bytes(80)),
    "lengths whose product overflows": (header("<f8", (2**33, 2**33)), bytes(80)),
    "elements without size": (header("<U0", (10**9,)), b""),
    "objects": (header("|O", (2,)), b"\x80\x04N."),
    "records": (header("<f8, <f8", (2,)), bytes(32)),
    "no header": (b"\x93NUMPY\x01\x00\x05\x00x", b""),
    "another version": (b"\x93NUMPY\x09\x00", bytes(80)),
    "a header that is code": (b"\x93NUMPY\x01\x00\x14\x00__import__('os').abc", b""),
    "nothing": (b"", b""),
}


@pytest.mark.parametrize("lie", LIES)
def test_arrays_that_lie_about_themselves(tmp_path: Path, lie: str) -> None:
    good = member("id", header("<i8", (10,)), np.arange(10).tobytes())
    weight = member("weight", header("<f8", (10,)), bytes(80))
    path = write_members(tmp_path / "t.npz", good, member("age", *LIES[lie]), weight)
    with pytest.raises(TableError, match=r"t\.npz .*'age'"):
        list(table(path).parts())
    with pytest.raises(FedforgetError, match=r"t\.npz .*'age'"):
        read_centroids(path, ["weight", "age"])
    with pytest.raises(ModelFileError, match="not a saved model"):
        model_files.read(path, "SeededKMeans")


def bomb(path: Path, n_bytes: int) -> Path:
    """A small archive that unpacks to many zeros."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("id", "age", "weight", "header"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(
                    file,
                    header("<f8", (n_bytes // 8,)),  # type: ignore[arg-type]
                )
                for _ in range(n_bytes >> 20):
                    file.write(bytes(1 << 20))
    return path


def test_a_small_archive_takes_no_large_memory(tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.npz", 160 << 20)
    assert path.stat().st_size < 4 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (
        lambda: list(table(path).parts()),
        lambda: read_centroids(path, ["age", "weight"]),
        lambda: model_files.read(path, "SeededKMeans"),
    ):
        with pytest.raises(FedforgetError, match="unpacks to far more"):
            read()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400_000  # kilobytes; the arrays would have 640 MB


def test_the_same_array_twice(tmp_path: Path) -> None:
    one = member("age", header("<f8", (1,)), bytes(8))
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = write_members(tmp_path / "t.npz", one, one)
    with pytest.raises(IncomingFileError, match="twice"), open_npz(path):
        pass


def test_npz_files_that_are_true_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "empty": np.empty((0, 3)),
        "scalar": np.array(7),
        "text": np.array(["a", "bcd"]),
        "fortran": np.asfortranarray(rng.random((5, 3))),
        "big": rng.random(7).astype(">f4"),
        "bool": np.array([True, False]),
        "time": np.array(["2030-01-01"], dtype="M8[s]"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "t.npz", **arrays)  # type: ignore[arg-type]
        with open_npz(tmp_path / "t.npz") as archive:
            assert list(archive) == list(arrays)
            for name, expected in arrays.items():
                found = archive[name]
                assert found.dtype == expected.dtype
                assert found.shape == expected.shape
                assert (found == expected).all()


def test_tables_of_another_shape(tmp_path: Path) -> None:
    ids, column = np.arange(4), np.ones(4)
    for wrong in (np.ones((4, 2)), np.ones((4, 1)), np.array(["1"] * 4)):
        np.savez(tmp_path / "t.npz", id=ids, age=wrong, weight=column)
        with pytest.raises(TableError, match="age"):
            list(table(tmp_path / "t.npz").parts())
    for wrong in (np.ones(4), np.ones((4, 3)), np.ones((4, 2, 1))):
        np.savez(tmp_path / "t.npz", id=ids, X=wrong, feature_names=np.array(["age", "weight"]))
        with pytest.raises(TableError, match="X "):
            list(table(tmp_path / "t.npz").parts())


# -- federation files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("n_clusters = 2", f"n_clusters = {'9' * 5000}", "line 10: it has more than"),
        ("n_clusters = 2", f"n_clusters = {'9' * 3000}", "line 10: model.n_clusters must be betw"),
        ("n_clusters = 2", f"n_clusters = 0x{'f' * 3900}", "line 10: model.n_clusters must be"),
        ("high = 300.0", f"high = {'9' * 3000}", "high must be finite"),
        ("high = 300.0", "high = 1e999", "high must be finite"),
        ("high = 300.0", "high = 1e200", "high and low must lie within"),
        ("high = 300.0", "high = true", "high must be a number, got True"),
        ("deadline = 60.0", "deadline = true", "deadline must be a number, got True"),
        ("dropout = 0.2", "dropout = [0.2]", "dropout must be a number, got a list"),
        ("minimum = 3", "minimum = 1979-05-27", "minimum must be an integer, got datetime"),
        (NOW, "version = true", f"line 4: version must be {VERSION}, got True"),
        (NOW, f"{NOW}.0", f"line 4: version must be {VERSION}, got {VERSION}.0"),
        (NOW, f"version = 0x{'f' * 3900}", f"line 4: version must be {VERSION}, got an int"),
        (NOW, f"version = {'[' * 100_000}", "line 4: it has more than"),
        (NOW, "version = " + "[\n" * 100_000, "it is nested too deeply"),
        (NOW, "version = " + "{a=" * 1000, "line 4: it is nested too deeply"),
        ('name = "study"', "name = 7", "line 5: name must be text, got 7"),
        ('name = "study"', f'name = "{"x" * 201}"', "line 5: name cannot be used"),
        ("[protocol]", "[protocol.x]", "protocol.x is not a key"),
        ('scale = "box"', "scale = []", "scale must be one of none, box; got a list"),
        ("[model]", '["foo[bar].x"]', "foo[bar].x is not a key"),
        ("[model]", '["a\u202eb"]', r"a\u202eb is not a key"),
    ],
)
def test_values_that_no_federation_has(old: str, new: str, told: str) -> None:
    text = TEXT.replace(old, new, 1)
    assert text != TEXT
    with pytest.raises(FederationFileError) as error:
        FederationFile.parse(text, "our.toml")
    message = str(error.value)
    assert told in message
    assert message.startswith("our.toml")
    assert ", line " in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("title", "given"),
    [("model", "7"), ("model", "[1]"), ("protocol", '"x"'), ("protocol", "[{}]")],
)
def test_sections_that_are_none(title: str, given: str) -> None:
    parts = TEXT.split("\n[")
    kept = [part for part in parts[1:] if not part.startswith(title)]
    text = "\n[".join([f"{parts[0]}\n{title} = {given}\n", *kept])
    line = text.split("\n").index(f"{title} = {given}") + 1
    with pytest.raises(FederationFileError, match=f"line {line}: {title} must be a section, got"):
        FederationFile.parse(text)


@pytest.mark.parametrize("given", ["[1, 2]", '["age"]', "[[]]", "[{name='a',low=0,high=1}, true]"])
def test_features_that_are_no_tables(given: str) -> None:
    text = TEXT.split("\n[[features]]")[0].replace("[model]", f"features = {given}\n[model]")
    line = text.split("\n").index(f"features = {given}") + 1
    with pytest.raises(FederationFileError, match=f"line {line}: features must hold tables"):
        FederationFile.parse(text)


def test_many_features_take_no_long_time() -> None:
    """As reading grows with the square of their number, 2 MB would take minutes."""
    feature = '[[features]]\nname = "{}"\nlow = 0.0\nhigh = 1.0\n'
    text = TEXT + "".join(feature.format(number) for number in range(20_000))
    began = time.process_time()
    tomllib.loads(text)
    plain = time.process_time() - began
    began = time.process_time()
    assert len(FederationFile.parse(text).features) == 20_002
    assert time.process_time() - began < 6 * plain


def test_a_federation_file_is_not_endless() -> None:
    with pytest.raises(FederationFileError, match="larger than"):
        FederationFile.read(Path("/dev/zero"))


# -- JSON ------------------------------------------------------------------------------------------

NO_JSON = {
    "brackets": ("[" * 100_000, "nested too deeply"),
    "objects": ('{"a":' * 100_000, "nested too deeply"),
    "digits": ("9" * 5000, "not proper JSON"),
    "an infinite number": ("[1e999]", "too large"),
    "NaN": ("[NaN]", "NaN is not a number"),
    "Infinity": ("[-Infinity]", "-Infinity is not a number"),
    "a key twice": ('{"k": 1, "k": 2}', "'k' occurs twice"),
    "a key twice, inside": ('[{"k": {"l": 1, "\\u006c": 2}}]', "'l' occurs twice"),
    "half a character": ('["\\ud800"]', "half a character"),
    "a half key": ('{"\\udfff": 1}', "half a character"),
    "text": ("valid", "not proper JSON"),
    "nothing": ("", "not proper JSON"),
    "two values": ("1 2", "not proper JSON"),
}


@pytest.mark.parametrize("case", NO_JSON)
def test_json_that_is_none(tmp_path: Path, case: str) -> None:
    text, told = NO_JSON[case]
    path = tmp_path / "our.json"
    path.write_text(text, encoding="utf-8")
    for read in (lambda: read_json(path, 1 << 20), lambda: read_centroids(path, ["a"])):
        with pytest.raises(FedforgetError, match=r"our\.json") as error:
            read()
        assert told in str(error.value)
        assert len(str(error.value)) < 300


def test_json_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "our.json"
    for data, told in ((b'"\xff"', "not UTF-8"), (b" " * 1001, "larger than 1,000 bytes")):
        path.write_bytes(data)
        with pytest.raises(IncomingFileError, match=f"our.json is .*{told}"):
            read_json(path, 1000)
    with pytest.raises(IncomingFileError, match="No such file"):
        read_json(tmp_path / "missing.json", 1000)
    with pytest.raises(IncomingFileError, match="Is a directory"):
        read_json(tmp_path, 1000)
    with pytest.raises(IncomingFileError, match="larger than"):
        read_json(Path("/dev/zero"), 1000)


def test_json_that_is_good() -> None:
    value = {"a": [1, 2.5, None, True, "é\U0001f600"], "b": {}}
    assert parse_json(json.dumps(value), "x") == value
    assert parse_json(json.dumps(value, ensure_ascii=False), "x") == value


CENTROIDS: dict[str, Any] = {
    "no object": [1, 2],
    "a feature is missing": {"age": [1.0]},
    "lists of several lengths": {"age": [1.0, 2.0], "weight": [1.0]},
    "no list": {"age": 1.0, "weight": 1.0},
    "nested": {"age": [[1.0]], "weight": [[1.0]]},
    "ragged": {"age": [[1.0], [1.0, 2.0]], "weight": [1.0, 2.0]},
    "text": {"age": ["1"], "weight": ["1"]},
    "truth": {"age": [True], "weight": [1.0]},
    "nothing": {"age": [None], "weight": [1.0]},
    "empty": {"age": [], "weight": []},
    "huge": {"age": [10**400], "weight": [1.0]},
    "far away": {"age": [1e300], "weight": [1.0]},
}


@pytest.mark.parametrize("case", CENTROIDS)
def test_centroids_that_are_none(tmp_path: Path, case: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(CENTROIDS[case]), encoding="utf-8")
    with pytest.raises(FedforgetError, match=r"c\.json"):
        read_centroids(path, ["age", "weight"])


@pytest.mark.parametrize(
    "wrong",
    [[np.nan, 1.0], [np.inf, 1.0], [1e300, 1.0], [[1.0], [2.0]], [], ["1", "2"], [1j, 2j]],
    ids=str,
)
def test_centroids_in_arrays(tmp_path: Path, wrong: Any) -> None:
    np.savez(tmp_path / "c.npz", age=np.array(wrong), weight=np.ones(2))
    with pytest.raises(FedforgetError, match=r"c\.npz"):
        read_centroids(tmp_path / "c.npz", ["age", "weight"])


def test_centroids_that_are_good(tmp_path: Path) -> None:
    columns = {"size": [3, 4], "file": np.array([1.0, 2.0]), "a/b": np.array([5, 6])}
    for ending in ("npz", "json"):
        write_table(tmp_path / f"c.{ending}", columns)
        found = read_centroids(tmp_path / f"c.{ending}", ["a/b", "file"])
        assert found.tolist() == [[5.0, 1.0], [6.0, 2.0]]


# -- writing ---------------------------------------------------------------------------------------

ENDINGS = ("csv", "json", "npz", "parquet")


def to_table(path: Path) -> None:
    write_table(path, {"id": ["a"], "cluster": [1]})


def to_model(path: Path) -> None:
    model_files.write(path, {"estimator": "x"}, {"values": np.ones(3)})


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    **{ending: (f"out.{ending}", to_table) for ending in ENDINGS},
    "bytes": ("out.html", lambda path: write_private(path, b"page")),
    "model": ("model.npz", to_model),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_written_is_private_and_follows_no_link(tmp_path: Path, kind: str) -> None:
    name, write = WRITERS[kind]
    path, other = tmp_path / name, tmp_path / "other"
    before = os.umask(0)
    try:
        write(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [name]
    other.write_text("untouched")
    path.unlink()
    path.symlink_to(other)
    with pytest.raises((FedforgetError, OSError), match="symbolic link"):
        write(path)
    assert other.read_text() == "untouched"
    path.unlink()
    path.mkdir()
    with pytest.raises((FedforgetError, OSError), match="not a plain file"):
        write(path)


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("older", [True, False])
def test_a_file_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool, older: bool
) -> None:
    """With files that have no name and, as on other systems, without."""
    if not nameless:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / ("x" * 250)
    if older:
        write_private(path, b"old")

    def stop_in_the_middle() -> None:
        with whole_files.whole_file(path) as file:
            file.write(b"new")
            file.flush()
            assert not path.exists() or path.read_bytes() == b"old"
            assert nameless is all(one == path for one in tmp_path.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_in_the_middle()
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"old"] * older
    write_private(path, b"new")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"new"]


def test_leftovers_of_the_dead_are_removed_and_the_living_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    dead, living, of_another = (
        tmp_path / whole_files._temporary_name(name) for name in (path.name, path.name, "other")
    )
    foreign = tmp_path / ".model.npz.new"
    for one in (dead, living, of_another, foreign):
        one.write_bytes(b"records")
    with living.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        to_model(path)
        assert set(tmp_path.iterdir()) == {path, living, of_another, foreign}
    to_model(path)
    assert set(tmp_path.iterdir()) == {path, of_another, foreign}


def test_a_temporary_name_that_is_taken_by_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever guesses the name gains nothing."""
    victim, link = tmp_path / "victim", tmp_path / "guessed"
    victim.write_text("untouched")
    link.symlink_to(victim)
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr(whole_files, "_temporary_name", lambda name: "guessed")
    with pytest.raises(FolderError):
        write_private(tmp_path / "out", b"secret")
    assert victim.read_text() == "untouched"


def test_a_directory_is_made_again_over_leftovers(tmp_path: Path) -> None:
    folder = tmp_path / "client"

    def stop_in_the_middle() -> None:
        with being_made(folder, ("key",)):
            (folder / whole_files._temporary_name("key")).write_bytes(b"secret")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_in_the_middle()
    with being_made(folder, ("key",)):
        write_private(folder / "key", b"other")
    assert {one.name for one in folder.iterdir()} == {"key", "lock"}


def test_headers_and_cells_are_no_formulas(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", {"=cmd()": ["@x", "", "b"], "n": [1, 2, 3]})
    assert (tmp_path / "t.csv").read_text().splitlines() == ["'=cmd(),n", "'@x,1", ",2", "b,3"]
