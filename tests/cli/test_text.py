"""Text from outside is shown and never obeyed: not by a terminal, by Rich, or by a browser."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich import markup
from rich.console import Console
from test_parties import in_process, quick_answer, set_up

from fedforget.cli import given_files as receipt_commands
from fedforget.cli import round_command as round_commands
from fedforget.cli.charts import strip
from fedforget.cli.console import ask, listed, plain_errors, safe
from fedforget.cli.words import table_of
from fedforget.errors import FedforgetError
from fedforget.pages.templates import macro, render
from fedforget.parties.receipts import Proof
from fedforget.protocol.errors import Finding, RoundAbortedError
from fedforget.text import (
    UnsafeNameError,
    check_label,
    check_name,
    check_new_name,
    json_text,
    visible,
)

ACTING = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
CLEAR, TURN = "\x1b[2J\x1b[H", "\u202e"
MARKUP = "[/] [bold red]x[/b] [link=file:///x]y :heart: \\[z] \\"
ANY_TEXT = st.text() | st.text(st.sampled_from("\\[]/b:=#@ \x1b\n\u202eé"))


def acts(text: str) -> bool:
    return any(unicodedata.category(one) in ACTING for one in text.replace("\n", ""))


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a", "Aarhus", "Århus, ward 3", "北京 2", "[/b]", "a\\b", "x" * 200, "क्षि", "☃", "**"]
)
def test_names_that_people_can_read_are_allowed(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "1 to 200 characters, not 0"),
        ("x" * 201, "not 201"),
        ("*", "everybody"),
        ("ab\x1b[2J", "U+001B at character 3"),
        ("a\nb", "U+000A at character 2"),
        ("a\x7f", "U+007F at character 2"),
        ("a\x9b31m", "U+009B at character 2"),
        ("aarhus\u202egol", "U+202E at character 7"),
        ("a\u200bb", "U+200B at character 2"),
        ("a\u2066b", "U+2066 at character 2"),
        ("\ufeffa", "U+FEFF at character 1"),
        ("a\u2028b", "U+2028 at character 2"),
        ("a\u00a0b", "U+00A0 at character 2"),
        ("a\u3000b", "U+3000 at character 2"),
        ("a\ud800", "U+D800 at character 2"),
        ("a\ue000", "U+E000 at character 2"),
        ("a\U000e0041", "U+E0041 at character 2"),
        ("a\u0378", "U+0378 at character 2"),
        (" a", "begins with a space"),
        ("a ", "ends with a space"),
        ("A\u030arhus", "not in Unicode's form NFC from character 1 on (U+0041)"),
        (7, "must be text, not int"),
    ],
)
def test_names_that_hide_something_are_refused_and_the_character_is_named(
    name: Any, told: str
) -> None:
    with pytest.raises(UnsafeNameError) as error:
        check_name(name)
    assert told in str(error.value)
    assert not acts(str(error.value))


NEVER_ALIKE = [
    "Aarhus",
    "Århus",
    "Arhus",
    "Bologna",
    "北京",
    "東京",
    "Москва",
    "Αθήνα",
    "क्षि",
    "서울",
]


@pytest.mark.parametrize("name", NEVER_ALIKE)
def test_names_of_any_language_do_not_stand_in_each_others_way(name: str) -> None:
    assert check_new_name(name, NEVER_ALIKE) == name


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("BOLOGNA", "Bologna"),
        ("\uff22ologna", "Bologna"),  # a wide letter
        ("Bol\u043egna", "Bologna"),  # a Cyrillic letter
        ("\u0392ologna", "Bologna"),  # a Greek letter
        ("Bologna\ufe0f", "Bologna"),  # a selector of a variant
        ("St  Mary", "St Mary"),
        ("Mosc\u043ew", "\u041coscow"),
        ("Kl\u0131nik", "Klinik"),
        ("Stra\u00dfe", "STRASSE"),
        ("\ufb01eld", "field"),
    ],
)
def test_names_that_look_alike_are_refused_both_ways(name: str, like: str) -> None:
    for new, known in ((name, like), (like, name)):
        with pytest.raises(UnsafeNameError) as error:
            check_new_name(new, ["Aarhus", known])
        assert f"{new!r} looks like {known!r}, which is taken" in str(error.value)
        assert check_new_name(new, [new, "Aarhus"]) == new


@pytest.mark.parametrize("blank", ["\u034f", "\u115f", "\u17b4", "\u2800", "\u3164", "\uffa0"])
def test_new_names_have_no_characters_that_nobody_sees(blank: str) -> None:
    with pytest.raises(UnsafeNameError, match="it looks like 'Bologna'; leave it out"):
        check_new_name(f"Bolo{blank}gna")


def test_labels_may_be_longer() -> None:
    assert check_label("x" * 1000, "the column")
    with pytest.raises(UnsafeNameError, match="the column must have 1 to 1000"):
        check_label("x" * 1001, "the column")


# -- showing ---------------------------------------------------------------------------------------


def test_what_acts_is_written_as_an_escape() -> None:
    assert visible("a\x1b[2J\r\n\t\x9b\u202e\u2028\ud800\U000e0041") == (
        r"a\x1b[2J\r\n\t\x9b\u202e\u2028\ud800\U000e0041"
    )
    assert visible("Århus — 北京 [/b] \\") == "Århus — 北京 [/b] \\"


@given(ANY_TEXT)
def test_visible_text_never_acts(text: str) -> None:
    shown = visible(text)
    assert not acts(shown)
    assert "\n" not in shown
    assert visible(shown) == shown


@given(ANY_TEXT, ANY_TEXT)
def test_rich_takes_nothing_in_a_value_for_markup(one: str, other: str) -> None:
    """Whatever stands before and after it: half a tag in each of two values makes no tag."""
    shown = markup.render(f"[bold]{safe(one)}[/bold] is {safe(other)}[dim]![/]", emoji=False)
    expected = [re.sub(r"\\(?=\[|\Z)", r"\\x5c", visible(text)) for text in (one, other)]
    assert shown.plain == f"{expected[0]} is {expected[1]}!"
    assert [span.style for span in shown.spans] in (["bold", "dim"], ["dim"])


@given(st.dictionaries(ANY_TEXT, ANY_TEXT))
def test_json_keeps_every_character(value: dict[str, str]) -> None:
    written = json_text(value, indent=2)
    assert json.loads(written) == value
    assert not acts(written)


def test_names_in_a_list_can_be_told_apart() -> None:
    assert listed(["a", "b, c", 'd"', ""]) == r'a, "b, c", "d\"", ""'


# -- commands --------------------------------------------------------------------------------------


def printed(renderable: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=200, emoji=False).print(renderable)
    return out.getvalue()


def test_tables_of_values() -> None:
    shown = printed(table_of({"members": [f"a{CLEAR}", MARKUP], "na[/b]me": {f"x{TURN}": 1}}))
    assert not acts(shown)
    assert "[/] [bold red]x[/b] [link=file:///x]y :heart:" in shown
    assert "na[/b]me" in shown


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), plain_errors():
        raise FedforgetError(f"{CLEAR}a {TURN}{MARKUP}\nvalid")
    shown = capsys.readouterr().err
    assert not acts(shown)
    assert r"\x1b[2J\x1b[Ha \u202e[/] [bold red]x" in shown
    assert r"\nvalid" in shown


@pytest.mark.parametrize("as_json", [False, True])
def test_a_receipt_cannot_paint_its_own_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    evil = f"Aarhus{CLEAR}{TURN}[/b]"
    proof = Proof(evil, evil, 1, 1, 3, 1, evil, "aa", "bb", (evil,), False, (evil,))
    monkeypatch.setattr(receipt_commands.receipts, "read", lambda path: {})
    monkeypatch.setattr(receipt_commands.receipts, "verify", lambda *_, **__: proof)
    monkeypatch.setattr(receipt_commands.FederationFile, "read", lambda path: None)
    receipt_commands.verify_receipt(Path("r"), Path("f"), None, None, as_json)
    shown = capsys.readouterr().out
    assert not acts(shown)
    if as_json:
        assert json.loads(shown)["client"] == evil
    else:
        assert r"Aarhus\x1b[2J\x1b[H\u202e[/b] states" in shown
        assert "Note: Aarhus" in shown


def test_a_refused_receipt_cannot_paint_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> Any:
        raise FedforgetError(f"{CLEAR}valid{TURN}")

    monkeypatch.setattr(receipt_commands.receipts, "read", refuse)
    for as_json in (False, True):
        with pytest.raises(typer.Exit):
            receipt_commands.verify_receipt(Path("r"), Path("f"), None, None, as_json)
        both = capsys.readouterr()
        assert not acts(both.out + both.err)


def test_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(typer, "confirm", lambda question, abort: asked.append(question))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    ask(f"Erase 1 record of {CLEAR}?", False)
    assert asked == [r"Erase 1 record of \x1b[2J\x1b[H?"]


def test_markup_in_names_and_paths_is_shown_as_it_is(tmp_path: Path) -> None:
    name = "x[/]y [bold]z :heart:"
    done = in_process(tmp_path, "client", "init", "weird[/b]", "--name", name)
    assert done.exit_code == 0, done.output
    assert f"{name} is set up in weird[/b]; " in done.output
    assert "weird[/b]/enrolment.json" in done.output
    init = ("server", "init", "ser[/i]ver", "--name", "st[/]udy", "--clusters", "2")
    done = in_process(tmp_path, *init, "--feature", "a[/]:0:1")
    assert done.exit_code == 0, done.output
    assert "“st[/]udy” is set up in ser[/i]ver." in done.output
    enrolments = ["--client", "weird[/b]/enrolment.json"]
    for other in ("b", "c"):
        quick_answer(tmp_path, "client", "init", other, "--name", other)
        enrolments += ["--client", f"{other}/enrolment.json"]
    done = in_process(tmp_path, "server", "enrol", "ser[/i]ver", *enrolments)
    assert done.exit_code == 0, done.output
    assert "Epoch 1 of “st[/]udy”" in done.output
    assert f"came: b, c, {name}\n" in done.output
    assert "ser[/i]ver/epoch-1.json" in done.output
    given = ("--federation", "ser[/i]ver/federation.toml", "--epoch", "ser[/i]ver/epoch-1.json")
    done = in_process(tmp_path, "client", "join", "weird[/b]", *given)
    assert done.exit_code == 0, done.output
    assert f"came: b, c, {name}\n" in done.output
    assert f"{name} follows the list of epoch 1." in done.output
    done = in_process(tmp_path, "server", "members", "ser[/i]ver", "-o", "list[b].json")
    assert done.exit_code == 0, done.output
    assert "Written to list[b].json" in done.output
    done = in_process(tmp_path, "server", "status", "ser[/i]ver")
    assert done.exit_code == 0, done.output
    assert name in done.output
    done = in_process(tmp_path, "client", "leave", "weird[/b]", "--yes")
    assert done.exit_code == 0, done.output
    assert f"{name} is taken out by the first round" in done.output


def test_what_a_round_found_is_shown_and_never_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = f"[/]{CLEAR}{TURN}"
    result = {
        "round": 1,
        "kind": "delta",
        "participants": [evil],
        "left": [evil],
        "model": "aa",
        "seconds": 1.0,
        "bytes_from_a_client": 1,
        "changed_bins": 1,
        "refused": {evil: evil},
        "findings": [evil],
    }
    monkeypatch.setattr(round_commands, "run", lambda *_, **__: result)
    monkeypatch.setattr(round_commands, "_waiting_to_leave", lambda _: [evil])
    round_commands.run_round(Path("s"), [], False, False)
    shown = capsys.readouterr().out
    assert not acts(shown)
    assert r"Refused: [/]\x1b[2J" in shown
    assert r"Waits to leave: [/]\x1b[2J" in shown
    assert r"Found: [/]\x1b[2J" in shown

    def fail(*_: object, **__: object) -> None:
        raise RoundAbortedError("no", findings=[Finding((evil,), evil)])

    monkeypatch.setattr(round_commands, "run", fail)
    for as_json in (False, True):
        with pytest.raises(typer.Exit):
            round_commands.run_round(Path("s"), [], False, as_json)
        shown = capsys.readouterr().err
        assert not acts(shown)
        assert r"Found: [/]\x1b[2J" in shown


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("story")
    set_up(folder, quick_answer)
    return folder


def test_the_file_that_is_named_is_the_file_that_is_written(story: Path) -> None:
    for model in ("centres[old].npz", "centres:heart:.json", "centres\\[1].npz"):
        done = in_process(story, "server", "model", "server", "-o", model)
        assert done.exit_code == 0, done.output
        assert (story / model).is_file()
        assert f"Written to {model}".replace("\\[", r"\x5c[") in done.output
    out = "labels[old].csv"
    done = in_process(story, "client", "labels", "aarhus", "--model", model, "-o", out)
    assert f"labels written to {out}\n" in done.output
    done = in_process(story, "report", "server", "-o", "re[bold]port.html")
    assert "report: re[bold]port.html\n" in done.output
    done = in_process(story, "report", "missing\x1b[2J", "-o", "report.html")
    assert done.exit_code == 1
    assert not acts(done.output)


# -- pages -----------------------------------------------------------------------------------------


def test_pages_neither_run_nor_turn_what_others_named() -> None:
    evil = f"<script>\"'&{TURN}\x00\x1b"
    page = render(
        "client.html",
        shell="base.html",
        title=evil,
        kind=evil,
        name=evil,
        made=evil,
        now=datetime.now(UTC),
        version=evil,
        federation=None,
        live=None,
    )
    page += str(macro("charts.html", "strip")(strip(evil, 0.0, 1.0, [], [])))
    assert not acts(page)
    assert "<script>" not in page
    shown = "&lt;script&gt;&#34;&#39;&amp;\\u202e\\x00\\x1b"
    assert f"<title>{shown}</title>" in page
    assert f'aria-label="{shown}, from 0 to 1"' in page
    assert page.count(shown) == 7
