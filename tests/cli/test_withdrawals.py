"""A study's list of withdrawals: some ids are held here, some there, some nowhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_parties import NAMES, error, in_process, quick_answer, set_up, told

from fedforget.parties.client_party import open_client
from fedforget.parties.folders import locked
from fedforget.parties.sources import SourceOptions, open_source

IGNORE = ("--ignore-missing", "--yes")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation of three with 120 patients each, and one round."""
    folder = tmp_path_factory.mktemp("study")
    set_up(folder, quick_answer)
    return folder


def listed(study: Path, *lines: str, name: str = "list.txt") -> tuple[str, str]:
    (study / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "--ids-file", name


def records(study: Path, name: str) -> int:
    found: int = quick_answer(study, "client", "status", name)["records"]
    return found


def test_what_is_held_is_forgotten_and_the_receipt_counts_both(study: Path) -> None:
    given = listed(study, "A-1", "B-1", "A-2", "Z-9", "A-1")
    plan = quick_answer(study, "client", "forget", "aarhus", *given, *IGNORE, "--dry-run")
    assert (plan["held"], plan["not_held"], plan["erased"]) == (
        ["A-1", "A-2"],
        ["B-1", "Z-9"],
        False,
    )
    done = quick_answer(study, "client", "forget", "aarhus", *given, *IGNORE)
    assert (done["records"], done["erased"]) == (2, True)
    assert (done["held"], done["not_held"]) == (["A-1", "A-2"], ["B-1", "Z-9"])
    assert quick_answer(study, "client", "audit", "aarhus")["passed"]
    for _ in range(2):
        again = quick_answer(study, "client", "forget", "aarhus", *given, *IGNORE)
        assert (again["request"], again["salt"], again["erased"]) == (None, None, False)
        assert (again["held"], len(again["not_held"])) == ([], 4)
    assert "nothing to forget" in told(study, "client", "forget", "aarhus", *given, *IGNORE)
    waiting = quick_answer(study, "client", "requests", "aarhus")["requests"]
    assert [one["request"] for one in waiting] == [done["request"]]
    quick_answer(study, "round", "server", *NAMES)
    quick_answer(study, "client", "receipts", "aarhus", "-o", "receipts")
    path = f"receipts/receipt-{done['request']}.json"
    assert json.loads((study / path).read_text())["version"] == 3
    check = ("verify", path, "--federation", "server/federation.toml")
    proof = quick_answer(study, *check, *given, "--salt", done["salt"])
    assert (proof["records"], proof["not_held"]) == (2, 2)
    assert proof["covered"] == ["A-1", "A-2", "A-1"]
    assert "the request named 2 more ids, which it did not hold" in told(study, *check)
    assert quick_answer(study, "client", "audit", "aarhus")["passed"]


def test_without_the_option_a_foreign_id_is_refused_and_the_receipt_is_the_old_one(
    study: Path,
) -> None:
    before = records(study, "aarhus")
    given = listed(study, "A-5", "B-5")
    refused = error(study, "client", "forget", "aarhus", *given, "--yes")
    assert "1 of 2 ids are not held here: 'B-5'" in refused
    twice = error(study, "client", "forget", "aarhus", "--ids", "A-5", "--ids", "A-5", "--yes")
    assert "given twice: 'A-5'" in twice
    assert records(study, "aarhus") == before
    done = quick_answer(study, "client", "forget", "aarhus", "--ids", "A-5", "--yes")
    assert "held" not in done
    quick_answer(study, "round", "server", *NAMES)
    quick_answer(study, "client", "receipts", "aarhus", "-o", "receipts")
    path = f"receipts/receipt-{done['request']}.json"
    assert json.loads((study / path).read_text())["version"] == 2
    proof = quick_answer(study, "verify", path, "--federation", "server/federation.toml")
    assert proof["not_held"] is None


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("A-7 ", "ends with a space"),
        (" A-7", "begins with a space"),
        ("A-7\t", "ends with a space"),
        ("\u00a0A-7", "begins with a space"),
        ("   ", "begins with a space"),
        ("A-7\u200b", "U\\+200B, which nobody sees"),
        ("NA", "a word for a missing value"),
    ],
)
def test_an_id_is_taken_as_it_is_or_not_at_all(study: Path, line: str, trouble: str) -> None:
    before = records(study, "aarhus")
    given = listed(study, "A-6", line)
    words = error(study, "client", "forget", "aarhus", *given, *IGNORE)
    assert re.search(f"list.txt: the id in line 2 .*{trouble}", words)
    assert "A-7" not in words
    as_is = quick_answer(
        study, "client", "forget", "aarhus", *given, *IGNORE, "--ids-as-is", "--dry-run"
    )
    assert (as_is["held"], as_is["not_held"]) == (["A-6"], [line])
    assert records(study, "aarhus") == before
    recover = error(study, "client", "recover", "aarhus", *given)
    assert re.search(trouble, recover)


def test_lines_end_as_files_of_windows_do_and_nowhere_else(study: Path) -> None:
    (study / "w.txt").write_bytes("\ufeffA-8\r\n\r\nA\u20289\r\n".encode())
    plan = quick_answer(
        study, "client", "forget", "aarhus", "--ids-file", "w.txt", *IGNORE, "--ids-as-is",
        "--dry-run",
    )  # fmt: skip
    assert (plan["held"], plan["not_held"]) == (["A-8"], ["A\u20289"])


def test_a_patient_whose_id_has_white_space_can_be_forgotten(study: Path) -> None:
    (study / "odd.csv").write_text("patient,age,weight:kg\n Q 1,40,70\n", encoding="utf-8")
    names = ("age", "weight:kg")
    with open_client(study / "coimbra") as party:
        party.import_table(
            open_source([study / "odd.csv"], names, "patient", SourceOptions(ids_as_is=True))
        )
    forget = ("client", "forget", "coimbra", "--yes")
    assert "not held here: 'Q 1'" in error(study, *forget, "--ids", "Q 1")
    words = error(study, *forget, "--ids", " Q 1")
    assert "--ids ' Q 1' begins with a space" in words
    assert quick_answer(study, *forget, "--ids", " Q 1", "--ids-as-is")["records"] == 1


def test_a_quiet_night_is_no_error(study: Path) -> None:
    (study / "nobody.txt").write_text("\n", encoding="utf-8")
    given = ("--ids-file", "nobody.txt", *IGNORE)
    before = records(study, "aarhus")
    for folders in (("aarhus",), ("aarhus", "bologna")):
        said = told(study, "client", "forget", *folders, *given)
        assert said == "No ids in nobody.txt: nothing to forget.\n"
    done = quick_answer(study, "client", "forget", "aarhus", *given)
    assert (done["request"], done["records"], done["held"]) == (None, 0, [])
    done = quick_answer(study, "client", "forget", "aarhus", "bologna", *given)
    assert done["held_nowhere"] == []
    assert records(study, "aarhus") == before
    assert "not a directory" in error(study, "client", "forget", "nowhere", *given)
    assert "no ids were given" in error(study, "client", "forget", "aarhus", *given[:2], "--yes")
    assert "no ids were given" in error(study, "client", "forget", "aarhus", *IGNORE)


@pytest.mark.parametrize("sign", [",", ";"])
@pytest.mark.parametrize("folders", [("aarhus",), ("aarhus", "bologna")])
def test_a_table_is_no_list(study: Path, sign: str, folders: tuple[str, ...]) -> None:
    table = [f"patient{sign}asked", f"A-30{sign}2026-01-05", f"A-31{sign}2026-01-06"]
    before = records(study, "aarhus")
    words = error(study, "client", "forget", *folders, *listed(study, *table), *IGNORE)
    assert "list.txt: none of its lines is held here" in words
    assert "each line must be one id" in words
    given = listed(study, *table)
    plan = quick_answer(study, "client", "forget", *folders, *given, *IGNORE, "--ids-as-is")
    assert "A-30" not in str(plan.get("held"))
    assert records(study, "aarhus") == before
    # One that is held shows that lines are ids.
    plan = quick_answer(
        study, "client", "forget", *folders, *listed(study, *table, "A-30"), *IGNORE, "--dry-run"
    )
    assert "A-30" in str(plan)


# -- several clients ---------------------------------------------------------------------------


def at(result: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in result["clients"] if one["folder"] == name]
    answer: dict[str, Any] = found
    return answer


def test_a_list_goes_to_every_client(study: Path) -> None:
    given = listed(study, "A-10", "B-10", "B-11", "Y-1")
    forget = ("client", "forget", *NAMES, *given, *IGNORE)
    before = {name: records(study, name) for name in NAMES}
    plan = quick_answer(study, *forget, "--dry-run")
    assert [one["records"] for one in plan["clients"]] == [1, 2, 0]
    assert {name: records(study, name) for name in NAMES} == before
    assert "nobody can be asked here" in error(study, *forget[:-1])
    done = quick_answer(study, *forget)
    assert done["held_nowhere"] == ["Y-1"]
    assert at(done, "aarhus")["held"] == ["A-10"]
    assert at(done, "bologna")["held"] == ["B-10", "B-11"]
    assert at(done, "bologna")["not_held"] == ["A-10", "Y-1"]
    assert at(done, "coimbra")["request"] is None
    salts = {at(done, name)["salt"] for name in NAMES}
    assert len(salts) == 3
    again = quick_answer(study, *forget)
    assert [one["request"] for one in again["clients"]] == [None] * 3
    shown = told(study, *forget)
    assert shown.count("nothing to forget") == 3
    assert "4 ids held by none of them" in shown


def test_one_client_that_cannot_does_not_keep_the_others(study: Path) -> None:
    given = listed(study, "A-12", "B-12")
    forget = ("client", "forget", "aarhus", "bologna", *given, *IGNORE)
    with locked(study / "aarhus"):
        done = in_process(study, *forget, "--json")
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert "another" in at(result, "aarhus")["error"]
    assert "request" not in at(result, "aarhus")
    assert at(result, "bologna")["held"] == ["B-12"]
    assert result["held_nowhere"] is None
    # The pipeline repeats it, and makes up for what is missing.
    done = quick_answer(study, *forget)
    assert at(done, "aarhus")["held"] == ["A-12"]
    assert at(done, "bologna")["request"] is None
    nobody = in_process(study, "client", "forget", "aarhus", "nowhere", *given, *IGNORE)
    assert nobody.exit_code == 1
    assert "error:" in nobody.output
    assert "Not every client could be asked" in nobody.output


def test_several_clients_need_the_option_and_differ(study: Path) -> None:
    given = listed(study, "A-13")
    words = error(study, "client", "forget", "aarhus", "bologna", *given, "--yes")
    assert "add --ignore-missing" in words
    for rest in ((), (*given, "--yes")):
        words = error(study, "client", "forget", "aarhus", "A-13", *rest)
        assert "A-13 is not a directory; if it is an id, write --ids before it" in words
    assert "is not a directory" in error(study, "client", "forget", "A-13", *given)
    words = error(study, "client", "forget", "aarhus", "./aarhus", *given, *IGNORE)
    assert "was given twice" in words
    assert (
        "A-13"
        in quick_answer(study, "client", "forget", "aarhus", *given, *IGNORE, "--dry-run")["held"]
    )
