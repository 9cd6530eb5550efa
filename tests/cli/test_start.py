"""What a command loads before it answers, and what it does without.

Loading numba, SciPy and scikit-learn takes most of a second.  Commands that only read a directory
do without them; and no command of a party needs what only draws pictures or compares methods.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from test_parties import NAMES, quick_answer, set_up

from first_open import SLOW, first_open

# Runs a command in which some packages cannot be imported, and says which others were.
PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked = set(filter(None, sys.argv[1].split(",")))
sys.meta_path.insert(0, Blocked())
from fedforget.cli.main import app
try:
    app(sys.argv[2:], prog_name="fedforget")
finally:
    print(*sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def run(
    folder: Path, *command: str, blocked: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(blocked), *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def loaded(folder: Path, *command: str) -> set[str]:
    """The packages that a command loads; it must succeed."""
    done = run(folder, *command)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return set(done.stderr.splitlines()[-1].split())


def copy(folder: Path, to: Path) -> None:
    """A party's directory, to be changed by one test."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to)
    to.chmod(0o700)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three members, one receipt written out, and a fourth that has not joined yet.

    The grid is shifted, so that its keys are computed by every party that opens it.
    """
    folder = tmp_path_factory.mktemp("study")

    def shifted(where: Path, *command: str) -> object:
        more = ("--shift",) if command[:2] == ("server", "init") else ()
        return quick_answer(where, *command, *more)

    set_up(folder, shifted)
    quick_answer(folder, "client", "forget", "aarhus", "--ids", "A-3", "--yes")
    quick_answer(folder, "round", "server", *NAMES)
    quick_answer(folder, "client", "receipts", "aarhus", "-o", "written")
    quick_answer(folder, "client", "init", "dresden", "--name", "dresden")
    quick_answer(
        folder, "server", "enrol", "server", "--client", "dresden/enrolment.json", "--alone"
    )
    next((folder / "written").iterdir()).rename(folder / "receipt.json")
    return folder


GIVEN = ("--federation", "server/federation.toml")
READING = [
    ("client", "status", "aarhus"),
    ("client", "receipts", "aarhus"),
    ("client", "requests", "aarhus"),
    ("client", "suppression", "aarhus"),
    ("client", "join", "new", *GIVEN, "--epoch", "server/epoch-2.json", "--alone"),
    ("server", "status", "server"),
    ("client", "status", "aarhus", "--check", "--metrics", "a.prom", "--stale-days", "9999"),
    ("server", "status", "server", "--check", "--metrics", "s.prom", "--stale-days", "9999"),
    ("server", "members", "server"),
    ("verify", "receipt.json", *GIVEN),
    ("--help",),
    ("client", "forget", "--help"),
]


@pytest.mark.parametrize("command", READING, ids=lambda command: " ".join(command[:2]))
def test_a_command_that_reads_loads_nothing_slow(study: Path, command: tuple[str, ...]) -> None:
    copy(study / "dresden", study / "new")
    assert not SLOW & loaded(study, *command)


def test_forgetting_an_ordinary_record_loads_nothing_slow(study: Path) -> None:
    copy(study / "aarhus", study / "new")
    forget = ("client", "forget", "new", "--ids")
    ordinary = next(
        one
        for one in (f"A-{number}" for number in range(10, 120))
        if quick_answer(study, *forget, one, "--dry-run")["reseeded"] is None
    )
    assert not SLOW & loaded(study, *forget, ordinary, "--yes")


@pytest.mark.parametrize(("folder", "kind"), [("server", "server"), ("aarhus", "client")])
def test_a_live_page_is_shown_before_anything_slow_is_loaded(
    study: Path, folder: str, kind: Literal["server", "client"]
) -> None:
    page = first_open(study / folder, kind)["page"]
    assert "being checked" in page
    assert "<svg" in page


def test_a_command_that_computes_does_load_numba(study: Path) -> None:
    """The look at what is loaded can fail."""
    assert "numba" in loaded(study, "client", "audit", "aarhus")


# -- without what only draws or compares -----------------------------------------------------------

EXTRAS = ("flwr", "matplotlib", "pandas", "polars", "starlette", "uvicorn")
ESTIMATORS = ("joblib", "scipy", "sklearn", "threadpoolctl")
"""What the estimators need, and a party does not."""

STORY = [
    ("server", "init", "centre", "--name", "s", "--clusters", "2", "--feature", "age:0:120",
     "--feature", "weight:kg:0:300"),
    *(("client", "init", name, "--name", name) for name in "abc"),
    ("server", "enrol", "centre", *(part for name in "abc"
                                    for part in ("--client", f"{name}/enrolment.json"))),
    *(("client", "join", name, "--federation", "centre/federation.toml",
       "--epoch", "centre/epoch-1.json") for name in "abc"),
    *(("client", "import", name, "aarhus.csv", "--id", "patient") for name in "abc"),
    ("round", "centre", "a", "b", "c"),
    ("client", "forget", "a", "--ids", "A-3", "--yes"),
    ("round", "centre", "a", "b", "c"),
    ("client", "audit", "a"),
    ("client", "receipts", "a", "-o", "receipts"),
    ("server", "model", "centre", "-o", "model.npz"),
    ("client", "labels", "a", "--model", "model.npz", "-o", "labels.csv"),
    ("server", "audit", "centre"),
    ("report", "a", "-o", "a.html"),
    ("report", "centre", "-o", "centre.html"),
]  # fmt: skip


def test_the_parties_need_neither_extras_nor_scikit_learn(study: Path, tmp_path: Path) -> None:
    shutil.copy(study / "aarhus.csv", tmp_path)
    for command in STORY:
        done = run(tmp_path, *command, blocked=EXTRAS + ESTIMATORS)
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("demo",), "bench"),
        (("bench", "paper", "--quick"), "bench"),
        (("flower", "up"), "flower"),
        (("server", "page", "server", "--serve"), "page"),
        (("client", "page", "aarhus", "--serve"), "page"),
        (("simulate", "--dataset", "aarhus.csv"), "flower"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else part,
)
def test_a_command_without_its_extra_names_it(
    study: Path, command: tuple[str, ...], extra: str
) -> None:
    done = run(study, *command, blocked=EXTRAS)
    assert done.returncode == 1
    assert f"needs the extra {extra}: pip install 'fedforget[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_estimators_come_with_a_plain_installation() -> None:
    program = PROGRAM.split("from fedforget.cli")[0] + (
        "from fedforget import FederatedKMeans, SeededKMeans\n"
        "X = [[0.0], [0.1], [0.9], [1.0]]\n"
        "SeededKMeans(2, random_state=0).fit(X).forget(0)\n"
        "model = FederatedKMeans(2, bounds=(0, 1), step=0.1, random_state=0)\n"
        "model.fit(X, clients=list('aabb'), ids=[1, 2, 3, 4]).forget(1)\n"
    )
    command = [sys.executable, "-c", program, ",".join(EXTRAS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_a_status_loads_no_readers_and_not_the_other_party() -> None:
    modules = loaded_by("fedforget.cli.status_command")
    assert not modules & {f"fedforget.parties.{one}_party" for one in ("client", "server")}
    modules = loaded_by("fedforget.parties.client_party")
    assert not modules & {"fedforget.parties.sources.opening", "fedforget.parties.server_party"}
    assert "fedforget.parties.client_party" not in loaded_by("fedforget.parties.server_party")


def loaded_by(module: str) -> set[str]:
    """All modules that come with one."""
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    return set(done.stdout.split())
