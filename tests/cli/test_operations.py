"""Lists, leaving, restores and the suppression list, by commands."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_parties import asked, error, in_process, quick_answer

TOWNS = ("aarhus", "bologna", "coimbra", "dresden")


def patients(folder: Path, town: str) -> str:
    values = np.random.default_rng(len(town)).uniform((20, 90), (90, 200), (60, 2))
    rows = [f"{town[0].upper()}-{row},{a:.1f},{p:.1f}" for row, (a, p) in enumerate(values)]
    (folder / f"{town}.csv").write_text("\n".join(["patient,age,pressure", *rows]) + "\n")
    return f"{town}.csv"


class Study:
    """A federation of four towns in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str) -> dict[str, Any]:
        return quick_answer(self.folder, *arguments)

    def words(self, *arguments: str) -> str:
        done = in_process(self.folder, *arguments)
        assert done.exit_code == 0, done.output
        shown: str = done.output
        return shown

    def error(self, *arguments: str) -> str:
        return error(self.folder, *arguments)

    def round(self, *options: str, towns: tuple[str, ...] = TOWNS) -> dict[str, Any]:
        return self("round", "server", *towns, *options)

    def enrol(self, *options: str, towns: tuple[str, ...] = TOWNS) -> dict[str, Any]:
        """A new list, taken over by those who are there."""
        made = self("server", "enrol", "server", *options)
        for town in towns:
            self("client", "join", town, "--epoch", made["epoch_file"])
        return made

    def set_up(self, *, outside: bool = False) -> Study:
        features = ("--feature", "age:0:120", "--feature", "pressure:60:260")
        # What is counted is told from the exact number of records.
        exact = ("--disclosure", "none")
        self("server", "init", "server", "--name", "study", "--clusters", "2", *exact, *features)
        enrolments: list[str] = []
        for town in TOWNS:
            place = ("--suppression", f"{town}.db") if outside else ()
            self("client", "init", town, "--name", town.title(), *place)
            enrolments += ["--client", f"{town}/enrolment.json"]
        self("server", "enrol", "server", *enrolments)
        for town in TOWNS:
            self.join_first(town, 1)
        self.round()
        return self

    def join_first(self, town: str, epoch: int, *options: str) -> dict[str, Any]:
        given = ("--federation", "server/federation.toml")
        joined = self(
            "client", "join", town, *given, "--epoch", f"server/epoch-{epoch}.json", *options
        )
        self("client", "import", town, patients(self.folder, town), "--id", "patient")
        return joined

    def forget(self, town: str, *ids: str) -> dict[str, Any]:
        given = [part for one in ids for part in ("--ids", one)]
        return self("client", "forget", town, *given, "--yes")

    def backup(self, party: str) -> None:
        shutil.copytree(self.folder / party, self.folder / f"{party}.backup")

    def restore(self, party: str) -> None:
        shutil.rmtree(self.folder / party)
        shutil.copytree(self.folder / f"{party}.backup", self.folder / party)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Study(tmp_path_factory.mktemp("template")).set_up().folder


@pytest.fixture
def study(template: Path, tmp_path: Path) -> Study:
    shutil.copytree(template, tmp_path / "study")
    return Study(tmp_path / "study")


# -- lists -----------------------------------------------------------------------------------------


def test_a_list_is_shown_before_it_is_accepted(study: Study) -> None:
    made = study("server", "enrol", "server", "--suspend", "Dresden")
    assert made["suspended"] == ["Dresden"]
    assert made["will_show"] == ["Dresden is suspended: what it changed since round 1 may show"]
    before = study("client", "status", "aarhus")
    join = ("client", "join", "aarhus", "--epoch", "server/epoch-2.json")
    assert asked(study.folder, "n\n", *join) == 1
    assert study("client", "status", "aarhus") == before
    assert asked(study.folder, "y\n", *join) == 0
    status = study("client", "status", "aarhus")
    assert (status["epoch"], status["fingerprint"]) == (2, made["fingerprint"])
    shown = study.words("client", "join", "bologna", *join[3:])
    assert made["fingerprint"] in shown
    assert "by telephone" in shown
    for member in made["members"]:
        assert f"{member['key'][:16]}…" in shown
    assert "What will show" in shown
    assert "this client" in shown
    told = {key: value for key, value in made.items() if key != "epoch_file"}
    told |= {"records_that_do_not_fit": None, "known": False}
    assert study("client", "join", "coimbra", *join[3:]) == told


def test_joining_twice_says_so_and_changes_nothing(study: Study) -> None:
    study("server", "enrol", "server", "--suspend", "Dresden")
    join = ("client", "join", "aarhus", "--epoch", "server/epoch-2.json")
    study(*join)
    store = study.folder / "aarhus" / "client.sqlite"
    before = store.read_bytes()
    assert study(*join)["known"]
    shown = study.words(*join, "--federation", "server/federation.toml")
    assert "follows the list of epoch 2, version 1 of the federation file, already" in shown
    assert "Nothing was changed" in shown
    assert store.read_bytes() == before
    older = study.error(*join[:3], "--epoch", "server/epoch-1.json")
    assert "epoch 1 is not later than 2, which is in force here" in older


def test_a_suspended_member_and_its_return(study: Study) -> None:
    study.enrol("--suspend", "Dresden")
    assert "is suspended already" in study.error(
        "server", "enrol", "server", "--suspend", "Dresden"
    )
    assert study.round()["participants"] == ["Aarhus", "Bologna", "Coimbra"]
    assert "Dresden is suspended and was counted in round 1" in study.error(
        "round", "server", *TOWNS, "--full"
    )
    assert study("client", "status", "dresden")["suspended"]
    study.enrol("--resume", "Dresden")
    assert study.round()["participants"] == [town.title() for town in TOWNS]


def test_an_amendment_names_members_that_are_away(study: Study) -> None:
    amend = ("server", "amend", "server", "--clusters", "3", "--dry-run")
    study.round()
    assert not [one for one in study(*amend)["warnings"] if "last round" in one]
    study.round(towns=TOWNS[:3])
    (warning,) = [one for one in study(*amend)["warnings"] if "last round" in one]
    assert warning.lower().startswith("dresden: not in the last round")


def test_newcomers(study: Study) -> None:
    study("client", "init", "evora", "--name", "Evora")
    made = study.enrol("--client", "evora/enrolment.json", "--alone")
    assert "so few join together" in made["will_show"][0]
    first = ("--federation", "server/federation.toml", "--epoch", "server/epoch-2.json")
    assert "`client join --alone` accepts that" in study.error("client", "join", "evora", *first)
    # The others go on meanwhile.
    assert study.round()["kind"] == "delta"
    study.join_first("evora", 2, "--alone")
    result = study.round(towns=(*TOWNS, "evora"))
    assert (result["kind"], len(result["participants"])) == ("full", 5)


def test_a_list_that_members_must_accept_is_refused_before_it_is_made(study: Study) -> None:
    """The operator learns it while nothing is changed, and the option that is named goes on."""
    study("client", "init", "evora", "--name", "Evora")
    before = study("server", "status", "server")
    refused = study.error("server", "enrol", "server", "--client", "evora/enrolment.json")
    assert "Evora could go on with this list only by `client join --alone`" in refused
    assert "Nothing was changed" in refused
    assert "say --alone here" in refused
    assert study("server", "status", "server") == before
    assert not (study.folder / "server" / "epoch-2.json").exists()
    # Whoever was asked is not asked again for a list that changes nothing for it.
    made = study.enrol("--client", "evora/enrolment.json", "--alone")
    assert made["asked"] == ["Evora"]
    study.round()
    assert study("server", "enrol", "server", "--suspend", "Dresden")["asked"] == []
    # A second list without a commit in between tells what the others changed: they are named.
    refused = study.error("server", "enrol", "server", "--resume", "Dresden")
    assert "Aarhus, Bologna, Coimbra could go on" in refused
    assert study("server", "status", "server")["epoch"] == 3


def test_whoever_is_named_is_who_is_asked(study: Study) -> None:
    """Exactly those whom the server names need `--alone` to go on."""
    new = ("evora", "faro", "ghent")
    enrolments = []
    for town in new:
        study("client", "init", town, "--name", town.title())
        enrolments += ["--client", f"{town}/enrolment.json"]
    assert study.enrol(*enrolments)["asked"] == []
    for town in new:
        study.join_first(town, 2)
    study.round(towns=(*TOWNS, *new))
    refused = study.error("server", "enrol", "server", "--gone", "Ghent")
    assert "Evora, Faro could go on" in refused
    made = study.enrol("--gone", "Ghent", "--alone")
    for town in new[:2]:
        given = ("client", "join", town, "--epoch", made["epoch_file"])
        assert "`client join --alone` accepts that" in study.error(*given)
        study(*given, "--alone")
    assert study.round(towns=(*TOWNS, *new[:2]))["kind"] == "full"


def test_newcomers_whose_company_leaves(study: Study) -> None:
    """The error names a command, and that command helps: there is no newer list to join."""
    new = ("evora", "faro", "ghent")
    enrolments = []
    for town in new:
        study("client", "init", town, "--name", town.title())
        enrolments += ["--client", f"{town}/enrolment.json"]
    study.enrol(*enrolments)
    for town in new:
        study.join_first(town, 2)
    study("client", "leave", "ghent", "--yes")
    refused = study.error("round", "server", *TOWNS, *new)
    assert "2 new members join with list 2, fewer than 3 (Ghent came with the same list" in refused
    assert "`client join --alone` accepts that" in refused
    again = ("--epoch", "server/epoch-2.json")
    assert study("client", "join", "evora", *again)["known"]
    for town in new[:2]:
        study("client", "join", town, *again, "--alone")
    result = study.round(towns=(*TOWNS, *new))
    assert (result["kind"], result["left"]) == ("full", ["Ghent"])
    assert study("client", "audit", "evora")["problems"] == []


def test_a_list_that_was_made_by_mistake_is_taken_back(study: Study) -> None:
    """With four members, three lists without a commit tell so much that the others are asked."""
    study.enrol("--gone", "Dresden", towns=TOWNS[:2])
    made = study.enrol("--client", "dresden/enrolment.json", "--alone", towns=())
    assert made["asked"] == ["Aarhus", "Bologna", "Coimbra"]
    assert made["will_show"][0].startswith("Aarhus, Bologna, Coimbra: all who took part under")
    lists = [("--epoch", f"server/epoch-{number}.json") for number in (2, 3)]
    for town, given in zip(TOWNS[:3], (lists[1], lists[1], (*lists[0], *lists[1])), strict=True):
        assert "`client join --alone` accepts" in study.error("client", "join", town, *given)
        study("client", "join", town, *given, "--alone")
    study("client", "join", "dresden", *lists[0], *lists[1])
    assert study.round()["participants"] == [town.title() for town in TOWNS]


def test_whoever_has_left_comes_back_with_a_new_directory(study: Study) -> None:
    study("client", "leave", "dresden", "--alone", "--yes")
    assert study.round()["left"] == ["Dresden"]
    study.enrol("--gone", "Dresden", towns=TOWNS[:3])
    study.enrol("--client", "dresden/enrolment.json", "--alone", towns=TOWNS[:3])
    both = ("--epoch", "server/epoch-2.json", "--epoch", "server/epoch-3.json", "--alone")
    refused = study.error("client", "join", "dresden", *both)
    assert "make a new one (client init) and have the server enrol it" in refused
    shutil.rmtree(study.folder / "dresden")
    study("client", "init", "dresden", "--name", "Dresden")
    study.enrol("--client", "dresden/enrolment.json", "--renew", "Dresden", towns=TOWNS[:3])
    study.join_first("dresden", 4, "--alone")
    assert study("server", "status", "server")["needs_full_round"]
    result = study.round()
    assert (result["kind"], len(result["participants"])) == ("full", 4)


def test_renewed_keys(study: Study) -> None:
    shutil.rmtree(study.folder / "dresden")
    study("client", "init", "dresden", "--name", "Dresden")
    enrol = ("server", "enrol", "server")
    assert "--renew replaces its key" in study.error(*enrol, "--client", "dresden/enrolment.json")
    assert "give its enrolment file" in study.error(
        *enrol, "--renew", "Dresden", "--suspend", "Aarhus"
    )
    rest = TOWNS[:3]
    made = study.enrol("--client", "dresden/enrolment.json", "--renew", "Dresden", towns=rest)
    assert made["changed_keys"] == ["Dresden"]
    (shown,) = study.join_first("dresden", 2)["will_show"]
    assert shown.startswith("Dresden was counted with another key: the next full round shows the")
    assert "Dresden is missing; it was counted in round 1" in study.error("round", "server", *rest)
    assert study.round()["kind"] == "full"


def test_a_member_that_is_lost(study: Study) -> None:
    made = study.enrol("--gone", "Dresden", towns=TOWNS[:3])
    assert made["went"] == ["Dresden"]
    assert made["will_show"] == [
        "Dresden is dropped while it is counted: the next full round shows its whole histogram"
    ]
    assert study.round(towns=TOWNS[:3])["kind"] == "full"
    assert "Dresden is not enrolled" in study.error("round", "server", *TOWNS)
    assert "3 must take part" in study.error("server", "enrol", "server", "--gone", "Coimbra")


def test_lists_are_never_overwritten(study: Study) -> None:
    (study.folder / "server/epoch-2.json").write_text("{}")
    (study.folder / "server/epoch-2.json").chmod(0o600)
    before = study("server", "status", "server")
    assert "epoch-2.json exists already" in study.error(
        "server", "enrol", "server", "--suspend", "Dresden"
    )
    assert study("server", "status", "server") == before
    written = study("server", "members", "server", "-o", "list.json")
    ours, theirs = study.folder / "list.json", study.folder / "server/epoch-1.json"
    assert ours.read_bytes() == theirs.read_bytes()
    assert json.loads(ours.read_text())["fingerprint"] == written["fingerprint"]
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    study("server", "members", "server", "-o", "list.json")
    assert "exists already" in study.error(
        "server", "members", "server", "-o", "server/epoch-2.json"
    )


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"name": "x"}', '{"name": 1, "key": "00"}', '{"name": "x", "key": "zz"}',
     '{"name": "x", "key": "00"}', '{"name": "\\u202ex", "key": "00"}', '{"name": "x", "name": 1}',
     '{"name": "x\\u001b[2J[/]", "key": 7}'],
)  # fmt: skip
def test_enrolment_files_that_are_none(study: Study, content: str) -> None:
    (study.folder / "bad.json").write_text(content)
    shown = study.error("server", "enrol", "server", "--client", "bad.json")
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_name_that_looks_like_a_members(study: Study) -> None:
    study("client", "init", "evora", "--name", "B\u043elogna")
    given = ("--client", "evora/enrolment.json", "--alone")
    shown = study.error("server", "enrol", "server", *given)
    assert "looks like 'Bologna', which is taken (it has U+043E)" in shown
    assert study("server", "status", "server")["epoch"] == 1
    # Two newcomers, and somebody who has gone.
    study("client", "init", "one", "--name", "Faro")
    study("client", "init", "two", "--name", "FARO")
    both = ("--client", "one/enrolment.json", "--client", "two/enrolment.json", "--alone")
    assert "looks like 'F" in study.error("server", "enrol", "server", *both)
    study.enrol("--gone", "Dresden", towns=TOWNS[:3])
    study("client", "init", "three", "--name", "dresden")
    third = ("--client", "three/enrolment.json", "--alone")
    assert "looks like 'Dresden', which is taken" in study.error(
        "server", "enrol", "server", *third
    )
    blank = study.error("client", "init", "four", "--name", "Bo\u3164logna")
    assert "it looks like 'Bologna'; leave it out" in blank
    assert not (study.folder / "four").exists()


def test_two_enrolments_of_one_name(study: Study) -> None:
    study("client", "init", "evora", "--name", "Evora")
    study("client", "init", "other", "--name", "Evora")
    given = ("--client", "evora/enrolment.json", "--client", "other/enrolment.json")
    assert "two enrolment files of Evora" in study.error("server", "enrol", "server", *given)


@pytest.mark.parametrize("change", ["epoch", "fingerprint", "signature", "version", "extra"])
def test_changed_lists_are_refused(study: Study, change: str) -> None:
    study("server", "enrol", "server", "--suspend", "Dresden")
    document = json.loads((study.folder / "server/epoch-2.json").read_text())
    values = {
        "epoch": 3,
        "fingerprint": " ".join(["00000"] * 6),
        "signature": "00" * 64,
        "version": 1,
        "extra": "[/b]\x1b[2J",
    }
    (study.folder / "list.json").write_text(json.dumps(document | {change: values[change]}))
    shown = study.error("client", "join", "aarhus", "--epoch", "list.json")
    assert "\x1b" not in shown
    assert study("client", "status", "aarhus")["epoch"] == 1


def test_two_histories_are_noticed(study: Study) -> None:
    study.backup("server")
    study("server", "enrol", "server", "--suspend", "Dresden")
    study("client", "join", "aarhus", "--epoch", "server/epoch-2.json")
    study.restore("server")
    study("server", "enrol", "server", "--suspend", "Coimbra")
    study("server", "enrol", "server", "--resume", "Coimbra", "--alone")
    shown = study.error("client", "join", "aarhus", "--epoch", "server/epoch-3.json")
    assert "compare the fingerprints" in shown


# -- leaving ---------------------------------------------------------------------------------------


def test_leaving_waits_for_others_or_goes_alone(study: Study) -> None:
    study.forget("bologna", "B-1")
    left = study("client", "leave", "bologna", "--yes")
    assert left == {
        "records": 59,
        "leaving": True,
        "alone": False,
        "fewest_together": 3,
        "fewest_who_stay": 3,
        "came_with": ["Aarhus", "Coimbra", "Dresden"],
        "must_be_dropped": False,
    }
    done, status = study.round(), study("server", "status", "server")
    assert done["left"] == []
    (waits,) = done["waiting_to_leave"]
    assert waits.startswith("Bologna: of those who came with list 1 only Bologna would leave;")
    assert "client leave --alone" in waits
    assert (status["records"], status["waiting_to_leave"]) == (240, [waits])
    assert "Waits to leave: Bologna: of those" in study.words("round", "server", *TOWNS)
    # Nothing was taken out of the model, so there is no receipt.
    assert study("client", "receipts", "bologna")["receipts"] == []
    assert len(study("client", "requests", "bologna")["requests"]) == 2
    shown = study.words("client", "leave", "bologna", "--alone", "--yes")
    assert "can compute what Bologna had reported" in shown
    assert study.round()["left"] == ["Bologna"]
    status = study("server", "status", "server")
    assert (status["records"], status["waiting_to_leave"]) == (180, [])
    written = study("client", "receipts", "bologna", "-o", "receipts")["files"]
    assert [one["salt"] is None for one in written] == [False, True]
    for one in written:
        given = ("--federation", "server/federation.toml")
        assert study("verify", one["file"], *given)["valid"]
    assert "has left already" in study.error("client", "leave", "bologna", "--yes")
    rest = ("aarhus", "coimbra", "dresden")
    assert study.enrol("--gone", "Bologna", towns=rest)["will_show"] == []
    assert study.round(towns=rest)["kind"] == "delta"


def test_a_restored_leaver_does_not_show_by_itself(study: Study) -> None:
    study("client", "leave", "bologna", "--yes")
    study.backup("bologna")
    study.round()
    study.restore("bologna")
    study("client", "recover", "bologna", "--nothing-to-forget")
    shown = study.error("round", "server", *TOWNS, "--full")
    assert "`client leave --alone` accepts that" in shown
    assert study("server", "status", "server")["records"] == 240
    study("client", "leave", "bologna", "--alone", "--yes")
    # It gets the commit that it lacks before it says for which place it leaves.
    assert study.round("--full")["left"] == ["Bologna"]
    assert study("server", "status", "server")["records"] == 180


def test_too_few_would_stay(study: Study) -> None:
    for town in ("aarhus", "bologna", "coimbra"):
        study("client", "leave", town, "--yes")
    assert study.round()["left"] == []
    assert study("server", "status", "server")["records"] == 240


# -- restores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["ids", "list", "nothing"])
def test_a_client_restored_from_before_a_commit(study: Study, known: str) -> None:
    if known == "list":
        study("client", "suppression", "aarhus", "--move", "aarhus.db")
    study.backup("aarhus")
    study.forget("aarhus", "A-1", "A-2")
    study.round()
    study.restore("aarhus")
    result = study.round()
    assert "Run `client recover`" in result["refused"]["Aarhus"]
    assert "Refused: Aarhus: this directory is older" in study.words("round", "server", *TOWNS)
    recover = ("client", "recover", "aarhus")
    assert "say which erasures" in study.error(*recover)
    (study.folder / "ids.txt").write_text("A-1\nA-2\nA-99\n")
    both = ("--ids-file", "ids.txt", "--nothing-to-forget")
    assert "say which erasures" in study.error(*recover, *both)
    assert study("client", "status", "aarhus")["records"] == 60
    if known == "list":
        audit = in_process(study.folder, "client", "audit", "aarhus")
        assert audit.exit_code == 1
        assert "2 records are held though they were forgotten" in audit.output
    options = ("--ids-file", "ids.txt") if known == "ids" else ("--nothing-to-forget",)
    done = study(*recover, *options)
    again = 0 if known == "nothing" else 2
    assert done["records_forgotten_again"] == again
    assert done["ids_not_held"] == (known == "ids")
    assert bool(done["salt"]) == bool(again)
    assert study("client", "status", "aarhus")["needs_full_round"]
    assert "a full round is needed" in study.round()["refused"]["Aarhus"]
    assert "a full round must come first" in study.error("client", "leave", "aarhus", "--yes")
    assert study.round("--full")["refused"] == {}
    assert study("server", "status", "server")["records"] == 240 - again
    assert study("client", "audit", "aarhus")["passed"]
    assert len(study("client", "receipts", "aarhus")["receipts"]) == bool(again)
    assert study.round()["kind"] == "delta"


def test_a_restore_between_two_commits_is_noticed_by_nobody(study: Study) -> None:
    study.backup("aarhus")
    study.forget("aarhus", "A-1")
    study.restore("aarhus")
    assert study.round()["refused"] == {}
    assert study("server", "status", "server")["records"] == 240
    assert "1 record forgotten again" in study.words(
        "client", "recover", "aarhus", "--ids-file", str(_file(study, "A-1"))
    )
    study.round("--full")
    assert study("server", "status", "server")["records"] == 239


def _file(study: Study, *ids: str) -> Path:
    path = study.folder / "ids.txt"
    path.write_text("\n".join(ids))
    return path


def test_receipts_of_a_restored_client_have_names_of_their_own(study: Study) -> None:
    study.backup("aarhus")
    first = study.forget("aarhus", "A-1")["request"]
    study.round()
    study("client", "receipts", "aarhus", "-o", "receipts")
    study.restore("aarhus")
    study("client", "recover", "aarhus", "--nothing-to-forget")
    second = study.forget("aarhus", "A-2")["request"]
    study.round("--full")
    study("client", "receipts", "aarhus", "-o", "receipts")
    assert first.split("-")[0] == second.split("-")[0] == "1"
    assert {path.name for path in (study.folder / "receipts").iterdir()} == {
        f"receipt-{first}.json",
        f"receipt-{second}.json",
    }


def test_a_server_restored_from_a_backup(study: Study) -> None:
    study.backup("server")
    study.round()
    study.enrol("--suspend", "Dresden")
    study.round()
    study.enrol("--resume", "Dresden")
    study.restore("server")
    assert "Run `server recover`" in study.error("round", "server", *TOWNS)
    done = study("server", "recover", "server", *TOWNS)
    assert done == {
        "rounds_taken_over": 2,
        "lists_taken_over": 2,
        "round": 3,
        "epoch": 3,
        "epoch_file": "server/epoch-3.json",
    }
    audit = in_process(study.folder, "server", "audit", "server")
    assert audit.exit_code == 1
    assert "has run no full round since" in audit.output
    assert study.round()["kind"] == "full"
    assert study("server", "audit", "server")["problems"] == []
    assert study.round()["kind"] == "delta"


def test_who_was_away_has_its_receipt_at_once(study: Study) -> None:
    study.forget("dresden", "D-1")
    study.round(towns=TOWNS[:3])
    assert study("client", "receipts", "dresden")["receipts"] == []
    study.round()
    assert len(study("client", "receipts", "dresden")["receipts"]) == 1


@pytest.mark.parametrize("n_lists", [1, 2])
def test_a_restored_server_must_not_enrol_first(study: Study, n_lists: int) -> None:
    study.backup("server")
    study.enrol("--suspend", "Dresden")
    study.round()
    if n_lists == 2:
        study.enrol("--resume", "Dresden")
    study.restore("server")
    study("server", "enrol", "server", "--suspend", "Coimbra")
    assert "restore the backup once more" in study.error("server", "recover", "server", *TOWNS)
    study.restore("server")
    assert study("server", "recover", "server", *TOWNS)["epoch"] == 1 + n_lists


# -- the suppression list --------------------------------------------------------------------------


def test_forgotten_ids_stay_out(study: Study) -> None:
    study.forget("aarhus", "A-1", "A-2")
    imported = ("client", "import", "aarhus", "aarhus.csv", "--id", "patient", "--replace")
    assert "2 ids wait to be forgotten" in study.error(*imported)
    assert "2 ids wait to be forgotten" in study.error(*imported, "--again")
    study.round()
    assert (
        study(*imported).items()
        >= {"added": 58, "replaced": 58, "kept_out": 2, "records": 58}.items()
    )
    assert "2 ids kept out: on the suppression list" in study.words(*imported)
    assert study(*imported, "--again")["records"] == 60
    assert study("client", "suppression", "aarhus")["ids"] == 0


def test_the_suppression_list_off_and_on(study: Study) -> None:
    suppression = ("client", "suppression", "aarhus")
    inside = study(*suppression)
    assert inside == {
        "ids": 0,
        "file": str(study.folder / "aarhus/forgotten.sqlite"),
        "in_the_directory": True,
        "on": True,
    }
    assert "a place outside is better" in study.words(*suppression)
    study.forget("aarhus", "A-1")
    assert study(*suppression, "--off") == inside | {"ids": 1, "on": False}
    study.round()
    assert study(*suppression)["ids"] == 0
    assert "Switched off" in study.words(*suppression)
    assert study(*suppression, "--on")["on"]
    study.forget("aarhus", "A-2")
    study.round()
    assert study(*suppression)["ids"] == 1
    assert "contradict" in study.error(*suppression, "--on", "--off")
    written = study("client", "receipts", "aarhus")["receipts"]
    assert ["keeps no suppression list" in one["suppression"] for one in written] == [True, False]


def test_the_suppression_list_moves(study: Study) -> None:
    study.forget("aarhus", "A-1")
    suppression = ("client", "suppression", "aarhus")
    inside = study.folder / "aarhus/forgotten.sqlite"
    assert study(*suppression, "--move", "aarhus/forgotten.sqlite")["ids"] == 1
    moved = study(*suppression, "--move", "a[b].db")
    outside = study.folder / "a[b].db"
    assert (moved["ids"], moved["file"]) == (1, str(outside))
    assert not moved["in_the_directory"]
    assert not inside.exists()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600
    assert "in " + str(outside) in study.words(*suppression)
    assert "of another client" in study.error(
        "client", "suppression", "bologna", "--move", str(outside)
    )
    # A directory from before the move finds the newer list again.
    outside.rename(study.folder / "kept.db")
    assert "is missing: mount or restore it" in study.error("client", "status", "aarhus")
    assert "is missing" in study.error(*suppression, "--move", "kept.db")
    assert study(*suppression, "--anew", "--move", "kept.db")["ids"] == 1
    assert "is there; nothing was changed" in study.error(*suppression, "--anew")


def test_a_suppression_list_outside_from_the_beginning(tmp_path: Path) -> None:
    init = ("client", "init", "a", "--name", "A", "--suppression")
    (tmp_path / "taken").write_text("x")
    assert "exists already" in error(tmp_path, *init, "taken")
    assert quick_answer(tmp_path, *init, "a.db")["suppression_list"] == "a.db"
    assert (tmp_path / "a.db").is_file()
    assert not (tmp_path / "a/forgotten.sqlite").exists()
    assert quick_answer(tmp_path, "client", "status", "a")["ids_suppressed"] == 0
    other = ("client", "init", "b", "--name", "B", "--suppression", "nowhere/b.db")
    assert "nowhere/b.db cannot be opened" in error(tmp_path, *other)


# -- receipts --------------------------------------------------------------------------------------


def test_receipts_are_never_overwritten(study: Study) -> None:
    name = study.forget("aarhus", "A-1")["request"]
    study.round()
    path = study.folder / f"receipts/receipt-{name}.json"
    path.parent.mkdir()
    path.write_text("something else")
    out = ("client", "receipts", "aarhus", "-o", "receipts")
    assert "exists already" in study.error(*out)
    assert path.read_text() == "something else"
    assert study("client", "requests", "aarhus")["requests"]
    path.unlink()
    path.symlink_to("elsewhere")
    assert "symbolic link" in study.error(*out)
    path.unlink()
    shown = study.words(*out)
    assert "for the last time" in shown
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes(), path.stat().st_ino
    assert "for the last time" not in study.words(*out)
    assert (path.read_bytes(), path.stat().st_ino) == before


def test_a_salt_that_could_not_be_shown_is_not_erased(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = study.forget("aarhus", "A-1")["salt"]
    study.round()

    def broken(*arguments: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("fedforget.cli.receipts_command.show", broken)
    in_process(study.folder, "client", "receipts", "aarhus", "-o", "receipts")
    monkeypatch.undo()
    assert study("client", "requests", "aarhus")["requests"][0]["salt"] == salt


def test_pages_show_lists_and_recoveries(study: Study) -> None:
    made = study.enrol("--suspend", "Dresden")
    error(study.folder, "round", "server", "aarhus", "bologna")
    for party in ("server", "dresden"):
        study("report", party, "-o", f"{party}.html")
    page = (study.folder / "server.html").read_text()
    assert made["fingerprint"] in page
    assert "suspended" in page
    assert "nobody can be named" in page
    assert "lets this client take no part" in (study.folder / "dresden.html").read_text()


# -- receipts of several versions ------------------------------------------------------------------


def test_receipts_when_another_version_of_the_file_is_at_hand(study: Study) -> None:
    study.forget("aarhus", "A-1")
    study.round()
    made = study("server", "amend", "server", "--clusters", "3")
    files = ("--federation", made["federation_file"], "--epoch", made["epoch_file"])
    for town in TOWNS:
        study("client", "join", town, *files)
    study.forget("aarhus", "A-2")
    study.round()
    written = study("client", "receipts", "aarhus", "-o", "receipts")
    assert len(written["receipts"]) == 2
    old, new = sorted(str(one) for one in (study.folder / "receipts").glob("receipt-*.json"))
    # An auditor who was given the first version and nothing else.
    (study.folder / "auditor").mkdir()
    given = "auditor/federation-1.toml"
    shutil.copy(study.folder / "server" / "federation-1.toml", study.folder / given)
    assert study("verify", old, "--federation", given)["valid"]
    refused = in_process(study.folder, "verify", new, "--federation", given)
    assert refused.exit_code == 1
    said = " ".join(refused.output.split())
    assert "this file is version 1 of the federation file" in said
    assert "(the receipt was made with the list of epoch 2), give the version in force now" in said
    # With the version in force beside it, both are checked, whichever of the files is named.
    shutil.copy(study.folder / "server" / "federation.toml", study.folder / "auditor")
    for file in (given, "auditor/federation.toml"):
        for receipt in (old, new):
            assert study("verify", receipt, "--federation", file)["valid"]
    # A file that follows another first version is no help.
    text = (study.folder / given).read_text().replace("max_iter = 300", "max_iter = 299")
    (study.folder / given).write_text(text)
    assert in_process(study.folder, "verify", new, "--federation", given).exit_code == 1
