"""``fedforget client sync`` as a nightly job runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_parties import NAMES, error, in_process, quick_answer, set_up, told


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation of three with 120 patients each, and one round."""
    folder = tmp_path_factory.mktemp("study")
    set_up(folder, quick_answer)
    return folder


def export(study: Path, drop: int = 0, *more: str, header: str = "patient,age,weight:kg") -> str:
    """Bologna's table without its first rows, and with some others."""
    rows = (study / "bologna.csv").read_text(encoding="utf-8").splitlines()[1 + drop :]
    text = "\n".join([header, *rows, *more]) + "\n"
    (study / "tonight.csv").write_text(text, encoding="utf-8")
    return "tonight.csv"


SYNC = ("client", "sync", "bologna", "tonight.csv", "--id", "patient")


def test_nights(study: Path) -> None:
    export(study)
    first = quick_answer(study, *SYNC)
    assert (first["added"], first["changed"], first["removed"], first["synced"]) == (0, 0, 0, True)
    assert first["request"] is None
    export(study, 2, "B-new,50,80", "7,50,81")
    shown = told(study, *SYNC, "--dry-run")
    assert "2 would be learnt: B-new, 7\n" in shown
    assert "2 would be forgotten: B-0, B-1" in shown
    assert "nothing was changed" in shown
    plan = quick_answer(study, *SYNC, "--dry-run")
    assert plan["examples"]["removed"] == ["B-0", "B-1"]
    assert (plan["synced"], plan["refusal"]) == (False, None)
    shown = told(study, *SYNC)
    assert "2 learnt, 0 replaced, 2 forgotten; 120 records in all." in shown
    assert "salt" in shown
    quick_answer(study, "round", "server", *NAMES)
    written = quick_answer(study, "client", "receipts", "bologna", "-o", "receipts")
    path = written["files"][0]["file"]
    (study / "ids.txt").write_text("B-0\nB-2\n", encoding="utf-8")
    salt = written["files"][0]["salt"]
    proof = quick_answer(
        study, "verify", path, "--federation", "server/federation.toml",
        "--ids-file", "ids.txt", "--salt", salt,
    )  # fmt: skip
    assert (proof["records"], proof["covered"]) == (2, ["B-0"])
    export(study, 0, "B-new,50,80", "7,50,81")
    assert "2 ids kept out" in told(study, *SYNC)
    back = quick_answer(study, *SYNC, "--again")
    assert (back["added"], back["kept_out"], back["records"]) == (2, 0, 122)
    assert quick_answer(study, "client", "audit", "bologna")["passed"]


def test_brakes_in_plain_words(study: Path) -> None:
    quick_answer(study, "client", "sync", "coimbra", "coimbra.csv", "--id", "patient")
    before = quick_answer(study, "client", "status", "coimbra")
    rows = (study / "coimbra.csv").read_text(encoding="utf-8").splitlines()
    (study / "cut.csv").write_text("\n".join(rows[:100]), encoding="utf-8")
    cut = ("client", "sync", "coimbra", "cut.csv", "--id", "patient")
    words = error(study, *cut)
    assert "21 of 120 stored records are not in the source any more" in words
    assert "C-" not in words
    assert "21 of 120" in error(study, *cut, "--max-removed", "5%")
    assert "not '5 percent'" in error(study, *cut, "--max-removed", "5 percent")
    tried = in_process(study, *cut, "--dry-run")
    assert tried.exit_code == 1
    assert "It would be refused: 21 of 120" in tried.output
    tried = in_process(study, *cut, "--dry-run", "--json")
    assert tried.exit_code == 1
    assert json.loads(tried.stdout)["refusal"].startswith("21 of 120")
    (study / "none.csv").write_text(rows[0] + "\n", encoding="utf-8")
    none = ("client", "sync", "coimbra", "none.csv", "--id", "patient", "--max-removed", "100%")
    assert "has no rows" in error(study, *none)
    more = [rows[0] + ",ward", *(f"{row},1" for row in rows[1:])]
    (study / "more.csv").write_text("\n".join(more), encoding="utf-8")
    quick_answer(study, "client", "sync", "coimbra", "more.csv", "--id", "patient")
    whole = ("client", "sync", "coimbra", "coimbra.csv", "--id", "patient")
    assert "no column 'ward', which the last source had" in error(study, *whole)
    quick_answer(study, *whole, "--new-columns")
    after = quick_answer(study, "client", "status", "coimbra")
    assert after == before
    done = quick_answer(study, *cut, "--max-removed", "25")
    assert (done["removed"], done["records"]) == (21, 99)
    assert "not joined" in error(study, "client", "sync", new(study), "cut.csv", "--id", "patient")


def new(study: Path) -> str:
    quick_answer(study, "client", "init", "dresden", "--name", "dresden")
    return "dresden"


def test_records_with_a_hole_tonight_are_counted_apart(study: Path) -> None:
    """A-0 is gone; others are there without a weight, and are forgotten all the same."""
    rows = (study / "aarhus.csv").read_text(encoding="utf-8").splitlines()
    holed = [f"{row.rpartition(',')[0]}," for row in rows[2:13]]
    lines = [rows[0], *holed, "A-new,50,", *rows[13:]]
    (study / "holes.csv").write_text("\n".join(lines), encoding="utf-8")
    sync = ("client", "sync", "aarhus", "holes.csv", "--id", "patient", "--missing", "drop")

    refused = error(study, *sync)
    assert "12 of 120 stored records are not in the source any more" in refused
    assert "(or miss a value there: 11)" in refused
    assert "at most 10" in refused
    most = ("--max-removed", "12")
    plan = json.loads(in_process(study, *sync, "--dry-run", "--json").stdout)
    assert (plan["removed"], plan["incomplete"], plan["dropped"]) == (12, 11, 12)
    assert plan["examples"]["incomplete"] == [f"A-{row}" for row in range(1, 6)]
    assert "12 of 120" in plan["refusal"]
    shown = told(study, *sync, *most, "--dry-run")
    assert "12 would be forgotten: A-0, A-1" in shown
    assert "11 of the forgotten would be forgotten because a value is missing" in shown
    shown = told(study, *sync, *most)
    assert "11 of the forgotten are forgotten because a value is missing in the source" in shown
    done = quick_answer(study, *sync, *most)
    assert (done["removed"], done["incomplete"], done["dropped"]) == (0, 0, 12)
