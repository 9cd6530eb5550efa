"""Errors in a federation file name the key and the line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st
from party_world import federation_file

from fedforget.parties.disclosure import DisclosurePart
from fedforget.parties.federation_file import Feature, FederationFile, FederationFileError

TEXT = federation_file().text()


def line_of(text: str, beginning: str, nth: int = 1) -> int:
    found = [at for at, line in enumerate(text.splitlines(), 1) if line.startswith(beginning)]
    return found[nth - 1]


def test_it_reads_what_it_writes() -> None:
    assert FederationFile.parse(TEXT) == federation_file()
    assert FederationFile.parse(TEXT).difference(federation_file()) is None
    assert FederationFile.parse(TEXT).digest == federation_file().digest


@pytest.mark.parametrize(
    ("old", "new", "key", "at"),
    [
        ("n_clusters = 2", "n_clusters = 0", "model.n_clusters", "n_clusters"),
        ("n_clusters = 2", "n_clusters = 2.5", "model.n_clusters", "n_clusters"),
        ("n_clusters = 2", 'n_clusters = "2"', "model.n_clusters", "n_clusters"),
        ("n_clusters = 2", "n_clusters = true", "model.n_clusters", "n_clusters"),
        ("local_clusters = 4", "", "model.local_clusters", "[model]"),
        ('scale = "box"', 'scale = "cube"', "model.scale", "scale"),
        ("step = 0.01", "step = 2.0", "model.step", "step"),
        ("step = 0.01", "step = nan", "model.step", "step"),
        ("shift = false", "shift = 0", "model.shift", "shift"),
        ('representatives = "means"', 'representatives = "x"', "model.representatives", "repr"),
        ('public_seed = "5e', 'public_seed = "5X', "model.public_seed", "public_seed"),
        ("dropout = 0.2", "dropout = 1.0", "protocol.dropout", "dropout"),
        ("dropout = 0.2", "dropout = 0.95", "protocol.dropout", "dropout"),
        ("dropout = 0.2", "dropout = 0.45", "protocol.dropout", "dropout"),
        ("minimum = 3", "minimum = -1", "protocol.minimum", "minimum"),
        ("minimum = 3", "minimum = 3\nextra = 1", "protocol.extra", "extra"),
        ('name = "study"', 'name = ""', "name", "name"),
        ('name = "study"', 'name = "study"\nowner = "x"', "owner", "owner"),
        ("version = 2", "version = 1", "version", "version"),
        ("server_key", "server_kex", "server_kex", "server_kex"),
        ("low = 0.0", "low = 500.0", "features[1].high", "high"),
        ("high = 300.0", "high = inf", "features[2].high", "high = inf"),
        ('name = "weight"', 'name = "age"', "features[2].name", "[[features]]"),
    ],
)
def test_errors_name_the_key_and_the_line(old: str, new: str, key: str, at: str) -> None:
    text = TEXT.replace(old, new, 1)
    assert text != TEXT
    with pytest.raises(FederationFileError) as error:
        FederationFile.parse(text, "our.toml")
    message = str(error.value)
    line = line_of(text, at, 2) + 1 if at == "[[features]]" else line_of(text, at)
    assert message.startswith(f"our.toml, line {line}: {key} "), message


def test_sections_and_syntax() -> None:
    with pytest.raises(FederationFileError, match="model is missing"):
        FederationFile.parse(TEXT.split("[model]")[0])
    with pytest.raises(FederationFileError, match="line 9: model2 is not a key"):
        FederationFile.parse(TEXT.replace("[model]", "[model2]"))
    with pytest.raises(FederationFileError, match="features must list"):
        FederationFile.parse(TEXT.split("[[features]]")[0])
    with pytest.raises(FederationFileError, match="line 5"):
        FederationFile.parse(TEXT.replace('name = "study"', "name = study"))


RULES = DisclosurePart(5, 10, 5, 0.01)


def test_a_file_without_rules_is_what_it_was() -> None:
    """Files of earlier versions keep their digest and their meaning."""
    old = FederationFile.parse(TEXT)
    assert "[disclosure]" not in TEXT
    assert old.digest.hex() == "8016721e3cecdf16a3440f35953948e4cbd639d6fecc10ac6952fde1a2f2e571"
    assert old.configuration().rules.are_off
    assert old.configuration().published_step is None


def test_rules_are_part_of_the_file_and_of_its_digest() -> None:
    file = federation_file(disclosure=RULES)
    assert FederationFile.parse(file.text()) == file
    assert file.configuration().rules == RULES.rules
    assert file.configuration().published_step == 0.01
    digests = {federation_file().digest, file.digest}
    for key, value in {
        "min_cell": 6,
        "min_records": 9,
        "count_step": 1,
        "published_step": 0.0,
    }.items():
        other = federation_file(disclosure=DisclosurePart(**{**vars(RULES), key: value}))
        digests.add(other.digest)
        assert f"disclosure.{key} is " in str(file.difference(other))
    assert len(digests) == 6
    exact = federation_file(disclosure=replace(RULES, published_step=0.0))
    assert exact.configuration().published_step is None


@pytest.mark.parametrize(
    ("old", "new", "key", "at"),
    [
        ("min_cell = 5", "min_cell = 0", "min_cell", "min_cell"),
        ("min_cell = 5\n", "", "min_cell", "[disclosure]"),
        ("count_step = 5", "count_step = 2.5", "count_step", "count_step"),
        ("published_step = 0.01", "published_step = 1.5", "published_step", "published"),
        ("published_step = 0.01", "published_step = 1e-9", "published_step", "published"),
        ("min_records", "min_recordz", "min_recordz", "min_recordz"),
    ],
)
def test_errors_about_rules(old: str, new: str, key: str, at: str) -> None:
    text = federation_file(disclosure=RULES).text().replace(old, new, 1)
    with pytest.raises(FederationFileError) as error:
        FederationFile.parse(text, "our.toml")
    assert str(error.value).startswith(f"our.toml, line {line_of(text, at)}: disclosure.{key} ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    with pytest.raises(FederationFileError, match="No such file"):
        FederationFile.read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FederationFileError, match="not UTF-8"):
        FederationFile.read(path)


def printable(most: int) -> st.SearchStrategy[str]:
    """Names that may be used: quotes, backslashes and letters of any alphabet."""
    letters = st.characters(exclude_categories=("C", "Zl", "Zp", "Zs"))
    text = st.text(letters | st.sampled_from("\"'\\[]#= x"), min_size=1, max_size=most)
    return text.map(lambda one: normalize("NFC", one).strip(" ")).filter(_is_name)


def _is_name(text: str) -> bool:
    return bool(text) and text != "*" and normalize("NFC", text) == text


@given(
    name=printable(30),
    features=st.lists(printable(10), min_size=1, max_size=5, unique=True),
    low=st.floats(-1e6, 0),
    high=st.floats(0, 1e6),
)
def test_any_printable_text_survives(
    name: str, features: list[str], low: float, high: float
) -> None:
    """Quotes, backslashes, all alphabets: what is written is what is read."""
    columns = tuple(Feature(feature, low, high) for feature in features)
    file = replace(federation_file(features=columns), name=name)
    again = FederationFile.parse(file.text())
    assert again == file
    assert again.digest == file.digest


@pytest.mark.parametrize("name", ["a\u202eb", "a\nb", "a\x1b[2J", " a", "A\u030a", "\u200b"])
def test_a_federation_and_its_columns_have_such_names(name: str) -> None:
    good = federation_file()
    with pytest.raises(FederationFileError, match="line 5: name cannot be used"):
        FederationFile.parse(good.text().replace('"study"', json.dumps(name)))
    columns = (Feature("age", 0.0, 1.0), Feature(name, 0.0, 1.0))
    with pytest.raises(FederationFileError, match=r"line \d+: features\[2\].name cannot be used"):
        FederationFile.parse(federation_file(features=columns).text())
