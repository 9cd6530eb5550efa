"""The commands of the parties, as a user types them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pty
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

PROGRAM = [sys.executable, "-c", "from fedforget.cli.main import app; app(prog_name='fedforget')"]
NAMES = ("aarhus", "bologna", "coimbra")


def fedforget(
    folder: Path, *arguments: str, given: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "300"},
        check=False,
    )


def told(folder: Path, *arguments: str, given: str | None = None) -> str:
    """What a command prints; it must succeed.  In this process, for speed."""
    done = in_process(folder, *arguments, given=given)
    assert done.exit_code == 0, done.output
    shown: str = done.stdout
    return shown


def answer(folder: Path, *arguments: str, given: str | None = None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(told(folder, *arguments, "--json", given=given))
    return result


def error(folder: Path, *arguments: str, given: str | None = None) -> str:
    """What a command complains of, in plain words or as JSON, with status 1."""
    done = in_process(folder, *arguments, given=given)
    assert done.exit_code == 1, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert ('"error":' if "--json" in arguments else "error:") in done.output
    return done.output


def in_process(folder: Path, *arguments: str, given: str | None = None) -> Any:
    from fedforget.cli.main import app

    with contextlib.chdir(folder):
        return CliRunner(env={"COLUMNS": "300"}).invoke(app, list(arguments), input=given)


def quick_answer(folder: Path, *arguments: str) -> dict[str, Any]:
    done = in_process(folder, *arguments, "--json")
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def set_up(folder: Path, say: Callable[..., Any]) -> None:
    """A federation of three with 120 patients each."""
    features = ("--feature", "age:0:120", "--feature", "weight:kg:0:300")
    say(folder, "server", "init", "server", "--name", "study", "--clusters", "3", *features)
    for name in NAMES:
        say(folder, "client", "init", name, "--name", name)
    enrolments = [part for name in NAMES for part in ("--client", f"{name}/enrolment.json")]
    say(folder, "server", "enrol", "server", *enrolments)
    rng = np.random.default_rng(0)
    federation = ("--federation", "server/federation.toml", "--epoch", "server/epoch-1.json")
    for number, name in enumerate(NAMES):
        values = rng.normal((40 + 10 * number, 70), (15, 20), (120, 2)).clip(0, 120)
        rows = [
            f"{name[0].upper()}-{row},{a!r},{w!r}" for row, (a, w) in enumerate(values.tolist())
        ]
        path = folder / f"{name}.csv"
        path.write_text("\n".join(["patient,age,weight:kg", *rows]), encoding="utf-8")
        say(folder, "client", "join", name, *federation)
        say(folder, "client", "import", name, path.name, "--id", "patient")
    say(folder, "round", "server", *NAMES)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Set up by commands that print JSON."""
    folder = tmp_path_factory.mktemp("story")
    set_up(folder, quick_answer)
    return folder


def test_in_words(tmp_path: Path) -> None:
    """The same commands, for people."""
    set_up(tmp_path, told)
    assert "records" in told(tmp_path, "client", "status", "aarhus")
    assert "120 records" in told(tmp_path, "client", "audit", "aarhus")
    assert "rounds committed" in told(tmp_path, "server", "status", "server")
    assert "every signature" in told(tmp_path, "server", "audit", "server")
    assert "No receipts yet" in told(tmp_path, "client", "receipts", "aarhus")
    assert "No request waits" in told(tmp_path, "client", "requests", "aarhus")
    assert "0 ids" in told(tmp_path, "client", "suppression", "aarhus")
    shown = told(tmp_path, "server", "members", "server")
    fingerprint = quick_answer(tmp_path, "client", "status", "aarhus")["fingerprint"]
    assert fingerprint in shown
    assert "by telephone" in shown
    assert "3 clusters" in told(tmp_path, "server", "model", "server", "-o", "centres.csv")
    assert (tmp_path / "centres.csv").read_text().startswith("size,age,weight:kg")


COMMANDS = [
    *(("client", name) for name in ("init", "join", "import", "sync", "forget", "leave")),
    *(("client", name) for name in ("labels", "receipts", "audit", "requests", "recover")),
    *(("client", name) for name in ("preview", "approve")),
    ("client", "suppression"),
    ("client", "status"),
    *(("server", name) for name in ("init", "enrol", "members", "recover", "status", "model")),
    ("server", "audit"),
    ("round",),
    ("verify",),
    ("report",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_json(command: tuple[str, ...], tmp_path: Path) -> None:
    shown = in_process(tmp_path, *command, "--help").output
    assert f"fedforget {' '.join(command)}" in shown
    assert "Example" in shown
    assert "--json" in shown


def test_a_request_from_beginning_to_end(story: Path) -> None:
    preview = answer(story, "client", "forget", "aarhus", "--ids", "A-3", "--dry-run")
    assert preview["records"] == 1
    assert not preview["erased"]
    assert answer(story, "client", "status", "aarhus")["records"] == 120
    done = answer(story, "client", "forget", "aarhus", "--ids", "A-3", "--ids", "A-17", "--yes")
    assert done["request"].startswith("1-")
    assert (done["records"], done["erased"]) == (2, True)
    assert len(done["salt"]) == 32
    waiting = answer(story, "client", "requests", "aarhus")["requests"]
    assert [(one["request"], one["salt"], one["state"]) for one in waiting] == [
        (done["request"], done["salt"], "waits for a round")
    ]
    status = answer(story, "client", "status", "aarhus")
    assert (status["records"], status["requests_waiting"]) == (118, 1)
    assert status["keeps_last_committed_histogram"]
    result = answer(story, "round", "server", *NAMES)
    assert (result["kind"], result["participants"]) == ("delta", list(NAMES))
    assert (result["refused"], result["findings"], result["left"]) == ({}, [], [])
    shown = told(story, "client", "requests", "aarhus")
    assert "is not written out yet" in shown
    assert done["salt"] in shown
    assert answer(story, "client", "receipts", "aarhus")["files"] == []
    listed = answer(story, "client", "receipts", "aarhus", "-o", "receipts")
    path = f"receipts/receipt-{done['request']}.json"
    assert listed["files"] == [{"file": path, "request": done["request"], "salt": done["salt"]}]
    assert stat.S_IMODE((story / path).stat().st_mode) == 0o600
    assert answer(story, "client", "requests", "aarhus")["requests"] == []
    once_more = answer(story, "client", "receipts", "aarhus", "-o", "receipts")
    assert [one["salt"] for one in once_more["files"]] == [None]
    verify = ("verify", path, "--federation", "server/federation.toml")
    assert answer(story, *verify)["valid"]
    assert answer(story, *verify)["signed_by"] == 3
    (story / "ids.txt").write_text("A-3\nA-4\n\n", encoding="utf-8")
    proof = answer(story, *verify, "--ids-file", "ids.txt", "--salt", done["salt"])
    assert proof["covered"] == ["A-3"]
    assert "valid" in told(story, *verify)
    receipt = json.loads((story / path).read_text())
    older = receipt | {"version": 1}
    (story / "older.json").write_text(json.dumps(older), encoding="utf-8")
    refused = fedforget(story, "verify", "older.json", *verify[2:])
    assert refused.returncode == 1
    assert "receipts of version 1 are checked with fedforget 0.1" in refused.stderr
    receipt["request"]["records"] = 1
    (story / "forged.json").write_text(json.dumps(receipt), encoding="utf-8")
    forged = fedforget(story, "verify", "forged.json", *verify[2:], "--json")
    assert forged.returncode == 1
    assert json.loads(forged.stdout)["valid"] is False
    assert "request" in json.loads(forged.stdout)["reason"]
    wrong = fedforget(story, *verify, "--ids-file", "ids.txt", "--salt", "zz")
    assert wrong.returncode == 1
    assert "hexadecimal" in wrong.stderr
    assert answer(story, "client", "audit", "aarhus")["passed"]
    assert answer(story, "server", "audit", "server")["problems"] == []


def test_ids_from_a_file_or_standard_input(story: Path) -> None:
    forget = ("client", "forget", "bologna", "--yes")
    (story / "some.txt").write_text("\ufeffB-1\r\nB-2\r\n", encoding="utf-8")
    assert answer(story, *forget, "--ids-file", "some.txt")["records"] == 2
    assert answer(story, *forget, "--ids-file", "-", given="B-3\nB-4\nB-5\n")["records"] == 3
    assert "salt" in told(story, *forget, "--ids", "B-6")
    assert "not held here: 'B-1'" in error(story, *forget, "--ids", "B-1")
    assert "no ids" in error(story, *forget)
    assert "cannot be read" in error(story, *forget, "--ids-file", "missing.txt")
    assert "twice" in error(story, *forget, "--ids", "B-7", "--ids", "B-7")


def test_nothing_is_erased_unless_somebody_says_so(story: Path) -> None:
    before = quick_answer(story, "client", "status", "coimbra")
    for command in (("forget", "coimbra", "--ids", "C-1"), ("leave", "coimbra")):
        for extra in ((), ("--json",)):
            assert "add --yes" in error(story, "client", *command, *extra)
    assert "add --yes" in error(
        story, "client", "forget", "coimbra", "--ids-file", "-", given="C-1"
    )
    assert quick_answer(story, "client", "status", "coimbra") == before
    assert asked(story, "n\n", "client", "forget", "coimbra", "--ids", "C-1") == 1
    assert quick_answer(story, "client", "status", "coimbra") == before
    assert asked(story, "y\n", "client", "forget", "coimbra", "--ids", "C-1") == 0
    assert quick_answer(story, "client", "status", "coimbra")["records"] == before["records"] - 1


def asked(folder: Path, reply: str, *arguments: str) -> int:
    """Run a command at a terminal, and type a reply to its question."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments], cwd=folder, stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(controller, 1024)
    os.write(controller, reply.encode())
    try:
        while os.read(controller, 1024):
            pass
    except OSError:  # The terminal is gone: so says Linux that the other side has ended.
        pass
    os.close(controller)
    return process.wait(timeout=60)


def test_labels_and_models(story: Path) -> None:
    for ending in ("npz", "json", "csv", "parquet"):
        quick_answer(story, "server", "model", "server", "-o", f"centres.{ending}")
        assert (story / f"centres.{ending}").stat().st_size
    labels = []
    for ending in ("npz", "json"):
        arguments = ("client", "labels", "aarhus", "--model", f"centres.{ending}")
        told(story, *arguments, "-o", "labels.csv")
        labels.append((story / "labels.csv").read_text(encoding="utf-8"))
    assert labels[0] == labels[1]
    assert labels[0].splitlines()[0] == "id,cluster"
    (story / "wrong.npz").write_bytes(b"PK")
    arguments = ("client", "labels", "aarhus", "-o", "labels.csv", "--model")
    assert "does not hold centroids" in error(story, *arguments, "wrong.npz")
    missing = error(story, *arguments, "missing.npz")
    assert "missing.npz: there is no such file" in missing
    assert "does not hold centroids" not in missing
    columns = dict(np.load(story / "centres.npz"))
    for size in (-1, 0.5, math.nan):
        sizes = columns["size"].astype(float)
        sizes[0] = size
        np.savez(story / "sizes.npz", **columns | {"size": sizes})
        assert "one number of records per cluster" in error(story, *arguments, "sizes.npz")
        like = ("server", "model", "server", "--like", "sizes.npz")
        assert "one number of records per cluster" in error(story, *like)
    bad = ("client", "labels", "aarhus", "--model", "centres.npz", "-o", "labels.xls")
    assert "the file name must end in" in error(story, *bad)


def test_formulas_are_defused_and_text_is_kept(story: Path) -> None:
    path = story / "odd.csv"
    path.write_text("patient;age;weight:kg\n=1+1;30;70\nMüller;40;80\n", encoding="latin-1")
    imported = ("client", "import", "coimbra", "odd.csv", "--id", "patient")
    assert "delimiter" in error(story, *imported)
    done = quick_answer(story, *imported, "--delimiter", ";", "--encoding", "latin-1")
    assert done["added"] == 2
    assert "--replace" in error(story, *imported, "--delimiter", ";", "--encoding", "latin-1")
    again = quick_answer(story, *imported, "--replace", "--delimiter", ";", "--encoding", "latin-1")
    assert again["replaced"] == 2
    quick_answer(story, "server", "model", "server", "-o", "centres.npz")
    quick_answer(
        story, "client", "labels", "coimbra", "--model", "centres.npz", "-o", "odd-labels.csv"
    )
    text = (story / "odd-labels.csv").read_text(encoding="utf-8")
    assert "'=1+1," in text
    assert "\nMüller," in text
    assert "erased" in told(story, "client", "forget", "coimbra", "--ids", "=1+1", "--yes")


def test_errors_are_in_plain_words(story: Path, tmp_path: Path) -> None:
    assert "not empty" in error(story, "client", "init", "aarhus", "--name", "x")
    assert "not a directory" in error(story, "client", "status", "nowhere")
    assert "no such file" in error(story, "client", "import", "aarhus", "x.csv", "--id", "patient")
    joined = ("client", "join", "aarhus", "--epoch", "server/epoch-1.json")
    assert "follows the list of epoch 1" in told(story, *joined)
    (story / "list.json").write_text("[]", encoding="utf-8")
    assert "membership" in error(story, "client", "join", "aarhus", "--epoch", "list.json")
    assert "not an enrolment" in error(story, "server", "enrol", "server", "--client", "list.json")
    assert "is not a member" in error(story, "server", "enrol", "server", "--gone", "nobody")
    assert "say who comes, goes, is suspended" in error(story, "server", "enrol", "server")
    missing = error(story, "round", "server", "aarhus", "bologna")
    assert "coimbra is missing; it was counted in round" in missing
    out = ("client", "receipts", "aarhus", "-o", "list.json")
    assert "cannot be made" in error(story, *out)
    init = ("server", "init", "s", "--name", "x", "--clusters", "2")
    assert "NAME:LOW:HIGH" in error(tmp_path, *init, "--feature", "age")
    assert "at least one feature" in error(tmp_path, *init)
    assert "model.step" in error(tmp_path, *init, "--feature", "a:0:1", "--step", "1e-9")
    assert "model.scale" in error(tmp_path, *init, "--feature", "a:0:1", "--scale", "cube")
    assert not (tmp_path / "s").exists()
    (tmp_path / "f.csv").write_text("name,low,high\nage,0,120\n", encoding="utf-8")
    told(tmp_path, *init, "--features", "f.csv")
    (tmp_path / "g.csv").write_text("name,low\nage,0\n", encoding="utf-8")
    other = ("server", "init", "t", "--name", "x", "--clusters", "2")
    assert "columns name, low and high" in error(tmp_path, *other, "--features", "g.csv")
    assert "cannot be read" in error(tmp_path, *other, "--features", "h.csv")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--minimum", "1"), "protocol.minimum"),
        (("--dropout", "0.45", "--colluding", "0.2"), "must be below 1"),
        (("--dropout", "2"), "protocol.dropout"),
    ],
)
def test_policies_that_make_no_sense(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    init = ("server", "init", "s", "--name", "x", "--clusters", "2", "--feature", "a:0:1")
    assert words in error(tmp_path, *init, *options)
    assert not (tmp_path / "s").exists()


def test_a_minimum_of_two_is_warned_of(tmp_path: Path) -> None:
    init = ("server", "init", "s", "--name", "x", "--clusters", "2", "--feature", "a:0:1")
    assert "warning: with a minimum of 2" in told(tmp_path, *init, "--minimum", "2")
    other = ("server", "init", "t", *init[3:])
    assert "warning" not in told(tmp_path, *other)
    assert quick_answer(tmp_path, "server", "init", "u", *init[3:], "--minimum", "2")["warnings"]


def test_rules_of_disclosure_are_on_unless_told_otherwise(tmp_path: Path) -> None:
    init = ("--name", "x", "--clusters", "2", "--feature", "a:0:1")
    number = 0

    def rules(*options: str) -> list[float]:
        nonlocal number
        number += 1
        made = quick_answer(tmp_path, "server", "init", f"s{number}", *init, *options)
        text = (tmp_path / f"s{number}" / "federation.toml").read_text(encoding="utf-8")
        part = tomllib.loads(text)["disclosure"]
        assert part == made["disclosure"]
        return list(part.values())

    assert rules() == [5, 10, 5, 0.01]
    assert rules("--step", "0.02") == [5, 10, 5, 0.02]
    assert rules("--disclosure", "datashield") == [3, 10, 5, 0.01]
    assert rules("--disclosure", "cms") == [11, 22, 11, 0.01]
    assert rules("--disclosure", "none") == [1, 1, 1, 0.0]
    assert rules("--min-cell", "7", "--published-step", "0.1") == [7, 10, 5, 0.1]
    assert rules("--disclosure", "none", "--count-step", "10") == [1, 1, 10, 0.0]
    start = ("server", "init", "t", *init)
    assert "must be one of datashield" in error(tmp_path, *start, "--disclosure", "gdpr")
    refused = error(tmp_path, *start, "--min-cell", "0")
    assert "error: --min-cell (disclosure.min_cell) must be" in refused
    assert "line" not in refused
    assert "--clusters (model.n_clusters)" in error(tmp_path, *start, "--clusters", "0")
    assert "a seed is a real record" in error(tmp_path, *start, "--representatives", "seeds")
    assert not (tmp_path / "t").exists()
    seeds = ("--representatives", "seeds", "--show-seeds")
    assert "warning: the step times the least cell" in told(
        tmp_path, *start, *seeds, "--step", "0.005"
    )
    other = ("server", "init", "u", *init, "--step", "0.0099")
    assert "least cell is 0.0495, below 0.05" in told(tmp_path, *other)


def test_a_list_that_is_too_short_is_refused(tmp_path: Path) -> None:
    init = ("server", "init", "s", "--name", "x", "--clusters", "2", "--feature", "a:0:1")
    quick_answer(tmp_path, *init)
    quick_answer(tmp_path, "client", "init", "c", "--name", "c")
    enrol = ("server", "enrol", "s", "--client", "c/enrolment.json")
    assert "3 must take part in every round" in error(tmp_path, *enrol)
    assert not (tmp_path / "s/epoch-1.json").exists()
    assert "nobody is enrolled" in error(tmp_path, "server", "members", "s")


@pytest.mark.parametrize(
    "command",
    [
        ("client", "status", "server"),
        ("client", "forget", "server", "--ids", "A-3", "--yes"),
        ("client", "audit", "server"),
        ("client", "sync", "server", "aarhus.csv", "--id", "patient"),
        ("round", "server", "aarhus", "bologna", "server"),
        ("server", "status", "aarhus"),
        ("server", "model", "aarhus"),
        ("server", "enrol", "aarhus", "--suspend", "bologna"),
        ("round", "aarhus", "server", "bologna"),
    ],
    ids=" ".join,
)
def test_the_directory_of_the_other_kind(story: Path, command: tuple[str, ...]) -> None:
    client_wanted = command[0] == "client" or command[1] == "server"
    whose = "a server's directory, not a client's" if client_wanted else "a client's directory, not"
    told = error(story, *command)
    assert whose in told
    assert f"fedforget {'server' if client_wanted else 'client'} ..." in told


def test_wrong_permissions_and_a_second_process(story: Path) -> None:
    import fcntl

    key = story / "aarhus" / "identity.key"
    key.chmod(0o644)
    assert "chmod 600" in error(story, "client", "status", "aarhus")
    key.chmod(0o600)
    with (story / "aarhus" / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "in use by another process" in error(story, "client", "status", "aarhus")
    assert answer(story, "client", "status", "aarhus")["name"] == "aarhus"
