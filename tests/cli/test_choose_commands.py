"""Choosing the number of clusters, numbers that stay, and amendments, as a user types them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from test_parties import NAMES, answer, error, in_process, told

from fedforget.parties.server_party import open_server

FEATURES = ("age", "pressure")


def write_patients(folder: Path, name: str, seed: int, **more: float) -> None:
    """Forty patients around each of three places."""
    rng = np.random.default_rng(seed)
    places = np.repeat([(30.0, 100.0), (60.0, 150.0), (90.0, 220.0)], 40, axis=0)
    values = places + rng.normal(0.0, 3.0, places.shape)
    ids = [f"{name[0].upper()}-{row}" for row in range(len(values))]
    columns = dict(zip(FEATURES, values.T, strict=True))
    extra = {key: value + rng.random(len(values)) for key, value in more.items()}
    np.savez(folder / f"{name}.npz", id=np.array(ids), **columns, **extra)


@pytest.fixture(scope="module")
def first_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("choose")
    bounds = ("--feature", "age:0:120", "--feature", "pressure:60:260")
    told(folder, "server", "init", "server", "--name", "study", "--clusters", "4", *bounds)
    files = []
    for number, name in enumerate(NAMES):
        write_patients(folder, name, number)
        told(folder, "client", "init", name, "--name", name)
        files += ["--client", f"{name}/enrolment.json"]
    told(folder, "server", "enrol", "server", *files)
    given = ("--federation", "server/federation.toml", "--epoch", "server/epoch-1.json")
    for name in NAMES:
        told(folder, "client", "join", name, *given)
        told(folder, "client", "import", name, f"{name}.npz", "--id", "id")
    told(folder, "round", "server", *NAMES)
    return folder


@pytest.fixture
def study(first_study: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    import shutil

    shutil.copytree(first_study, tmp_path / "study")
    return tmp_path / "study"


def test_choose_shows_a_table_and_a_reason(first_study: Path) -> None:
    shown = told(first_study, "server", "choose", "server", "--clusters", "2:6")
    assert "Suggested, not taken: 3 clusters" in shown
    assert "The federation has 4." in shown
    found = answer(first_study, "server", "choose", "server", "--clusters", "2:6")
    assert [row["n_clusters"] for row in found["choices"]] == [2, 3, 4, 5, 6]
    assert found["suggested"] == 3
    assert "loss falls by" in found["reason"]
    assert found["min_cell"] == 5
    losses = [row["loss"] for row in found["choices"]]
    assert losses == sorted(losses, reverse=True)
    assert all(row["agreement"] is not None for row in found["choices"])
    assert all(row["smallest"] >= 5 for row in found["choices"] if row["complies"])


def test_choosing_changes_nothing(first_study: Path) -> None:
    before = answer(first_study, "server", "status", "server")
    answer(first_study, "server", "choose", "server")
    assert answer(first_study, "server", "status", "server") == before


def test_small_clusters_are_never_counted_out(first_study: Path) -> None:
    """Some local clusters of few records survive in many bins; none is told below the rule."""
    found = answer(first_study, "server", "choose", "server", "--clusters", "2,40")
    for row in found["choices"]:
        assert row["smallest"] is None or row["smallest"] >= 5
        assert row["complies"] == (row["too_small"] == 0)


def test_choose_draws_a_picture_without_matplotlib(first_study: Path) -> None:
    told(first_study, "server", "choose", "server", "--clusters", "2:6", "-o", "choose.svg")
    text = (first_study / "choose.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    points = [one for one in root.iter() if one.tag.endswith("circle")]
    assert len(points) == 10
    assert "agreement between restarts" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert ".svg" in error(first_study, "server", "choose", "server", "-o", "choose.png")


@pytest.mark.parametrize("text", ["", "0:3", "5:2", "a", "2:5000", "2:3:4"])
def test_numbers_that_are_none(first_study: Path, text: str) -> None:
    assert "--clusters" in error(first_study, "server", "choose", "server", "--clusters", text)


def test_any_number_is_exported(first_study: Path) -> None:
    own = answer(first_study, "server", "model", "server")
    same = answer(first_study, "server", "model", "server", "--clusters", "4")
    assert same == own
    other = answer(first_study, "server", "model", "server", "--clusters", "3", "-o", "three.npz")
    assert len(other["centroids"]) == 3
    assert other["model"] != own["model"]
    assert sum(other["sizes"]) == sum(own["sizes"])
    told(first_study, "client", "labels", "aarhus", "--model", "three.npz", "-o", "l.csv")
    lines = (first_study / "l.csv").read_text().splitlines()
    assert len(lines) == 121
    assert {line.split(",")[1] for line in lines[1:]} == {"0", "1", "2"}
    assert "at least 1" in error(first_study, "server", "model", "server", "--clusters", "0")


def test_fewer_clusters_than_asked_for_are_told(tmp_path: Path) -> None:
    """A sum of two bins has no third cluster, whoever asks."""
    bounds = ("--feature", "age:0:120", "--disclosure", "none")
    told(tmp_path, "server", "init", "server", "--name", "study", "--clusters", "2", *bounds)
    files = [part for name in NAMES for part in ("--client", f"{name}/enrolment.json")]
    for name in NAMES:
        ages = np.repeat([30.0, 90.0], 20)
        np.savez(tmp_path / f"{name}.npz", id=np.arange(40), age=ages)
        told(tmp_path, "client", "init", name, "--name", name)
    told(tmp_path, "server", "enrol", "server", *files)
    given = ("--federation", "server/federation.toml", "--epoch", "server/epoch-1.json")
    for name in NAMES:
        told(tmp_path, "client", "join", name, *given)
        told(tmp_path, "client", "import", name, f"{name}.npz", "--id", "id")
    told(tmp_path, "round", "server", *NAMES)

    export = in_process(tmp_path, "server", "model", "server", "--clusters", "30", "-o", "m.csv")
    assert "30 clusters were asked for, and at most 2 found" in export.stderr
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 3
    found = in_process(tmp_path, "server", "model", "server", "--clusters", "30", "--json")
    assert "30 clusters were asked for" in found.stderr
    plain = json.loads(found.stdout)
    assert (plain["wanted"], plain["found"]) == (30, 2)
    enough = in_process(tmp_path, "server", "model", "server", "--json")
    assert not enough.stderr
    assert json.loads(enough.stdout)["wanted"] == 2

    table = in_process(tmp_path, "server", "choose", "server", "--clusters", "1:4")
    assert "3 and 4 clusters were asked for, and at most 2 found" in table.stderr
    assert "3 (2 found)" in table.stdout
    assert answer(tmp_path, "server", "choose", "server", "--clusters", "1:4")["fewer"] == [3, 4]


def test_an_exported_number_is_what_amending_gives(study: Path) -> None:
    three = answer(study, "server", "model", "server", "--clusters", "3")
    shown = told(study, "server", "amend", "server", "--clusters", "3")
    assert "clusters: 4 → 3" in shown
    assert "the next round is a full one of everybody" in shown
    for name in NAMES:
        files = ("--federation", "server/federation.toml", "--epoch", "server/epoch-2.json")
        assert "clusters: 4 → 3" in told(study, "client", "join", name, *files)
    assert answer(study, "server", "status", "server")["needs_full_round"] is True
    done = answer(study, "round", "server", *NAMES)
    assert done["kind"] == "full"
    # No local cluster has changed.
    assert answer(study, "server", "model", "server")["centroids"] == three["centroids"]
    assert done["model"] == three["model"]
    told(study, "server", "audit", "server")


# -- numbers that stay -------------------------------------------------------------------------


def labels_of(path: Path) -> dict[str, int]:
    lines = path.read_text().splitlines()[1:]
    return {line.split(",")[0]: int(line.split(",")[1]) for line in lines}


def shuffled(path: Path, to: Path, order: list[int]) -> None:
    with np.load(path) as file:
        np.savez(to, **{name: file[name][order] for name in file.files})


def test_clusters_are_numbered_like_an_earlier_model(study: Path) -> None:
    exported = answer(study, "server", "model", "server", "-o", "now.npz")
    order = [2, 0, 3, 1]
    shuffled(study / "now.npz", study / "earlier.npz", order)
    like = answer(study, "server", "model", "server", "--like", "earlier.npz", "-o", "like.npz")
    assert like["model"] == exported["model"]
    assert like["clusters"] == [0, 1, 2, 3]
    assert like["centroids"] == [exported["centroids"][at] for at in order]
    assert like["changed"] == 0
    assert [one["moved"] for one in like["like"]] == [0.0] * 4
    # A client that labels with that file, or asks for the same itself, numbers alike.
    told(study, "client", "labels", "aarhus", "--model", "like.npz", "-o", "one.csv")
    given = ("--model", "now.npz", "--like", "earlier.npz", "-o", "two.csv")
    found = answer(study, "client", "labels", "aarhus", *given)
    assert labels_of(study / "one.csv") == labels_of(study / "two.csv")
    assert (found["changed"], found["gone"]) == (0, [])
    plain = answer(study, "client", "labels", "aarhus", "--model", "now.npz", "-o", "three.csv")
    assert "like" not in plain
    before = labels_of(study / "three.csv")
    numbers = {old: new for new, old in enumerate(order)}
    assert {one: numbers[label] for one, label in before.items()} == labels_of(study / "two.csv")


def test_a_record_between_two_clusters_keeps_its_number(study: Path) -> None:
    """Whichever comes first in a file: such a record belongs to the cluster of the lower number."""
    np.savez(study / "more.npz", id=np.array(["T-1"]), age=[60.0], pressure=[160.0])
    told(study, "client", "import", "aarhus", "more.npz", "--id", "id")
    ages = np.array([30.0, 90.0])
    for name, order in (("earlier", [0, 1]), ("now", [1, 0])):
        np.savez(study / f"{name}.npz", age=ages[order], pressure=[160.0, 160.0])
    told(study, "client", "labels", "aarhus", "--model", "earlier.npz", "-o", "one.csv")
    given = ("--model", "now.npz", "--like", "earlier.npz", "-o", "two.csv")
    found = answer(study, "client", "labels", "aarhus", *given)
    assert found["changed"] == 0
    assert labels_of(study / "two.csv") == labels_of(study / "one.csv")
    assert labels_of(study / "one.csv")["T-1"] == 0


def test_the_model_has_no_history_though_it_is_numbered_like_one(study: Path) -> None:
    before = answer(study, "server", "model", "server", "-o", "now.npz")
    shuffled(study / "now.npz", study / "earlier.npz", [3, 2, 1, 0])
    with open_server(study / "server") as party:
        model, digest = party.model(), party.status()["model"]
    answer(study, "server", "model", "server", "--like", "earlier.npz", "-o", "like.json")
    with open_server(study / "server") as party:
        assert (party.model().centres == model.centres).all()
        assert party.status()["model"] == digest == before["model"]
        assert party.audit()["problems"] == []
    assert (
        answer(study, "server", "model", "server", "-o", "again.npz")["centroids"]
        == (before["centroids"])
    )


def test_how_many_records_changed_is_exact_at_a_client(study: Path) -> None:
    answer(study, "server", "model", "server", "-o", "now.npz")
    moved = {"age": [30.0, 60.0], "pressure": [100.0, 150.0]}
    (study / "earlier.json").write_text(json.dumps(moved))
    given = ("--model", "now.npz", "--like", "earlier.json", "-o", "labels.csv")
    found = answer(study, "client", "labels", "aarhus", *given)
    assert found["gone"] == []
    # Those around the third place had the number of the second one, and are in new clusters now.
    after = labels_of(study / "labels.csv")
    with np.load(study / "aarhus.npz") as file:
        ids, values = file["id"].tolist(), np.stack([file["age"], file["pressure"]], axis=1)
    scaled = (values - [0.0, 60.0]) / [120.0, 200.0]
    centres = (np.array([[30.0, 100.0], [60.0, 150.0]]) - [0.0, 60.0]) / [120.0, 200.0]
    old = ((scaled[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
    expected = sum(int(after[one] != number) for one, number in zip(ids, old, strict=True))
    assert found["changed"] == expected > 0
    assert {one["cluster"] for one in found["like"]} == {0, 1, 2, 3}
    assert sum(one["moved"] is None for one in found["like"]) == 2
    shown = told(study, "client", "labels", "aarhus", *given)
    assert f"{expected} of 120 records have another number" in shown
    assert "new" in shown


def test_fewer_clusters_leave_numbers_free(study: Path) -> None:
    answer(study, "server", "model", "server", "-o", "four.npz")
    three = answer(
        study, "server", "model", "server", "--clusters", "3", "--like", "four.npz", "-o", "3.npz"
    )
    assert len(three["gone"]) == 1
    assert set(three["clusters"]) == {0, 1, 2, 3} - set(three["gone"])
    told(study, "client", "labels", "bologna", "--model", "3.npz", "-o", "labels.csv")
    assert set(labels_of(study / "labels.csv").values()) <= set(three["clusters"])
    # The file keeps the numbers, also for the model after it.
    again = answer(study, "server", "model", "server", "--clusters", "3", "--like", "3.npz")
    assert again["clusters"] == three["clusters"]


def test_a_model_without_any_of_the_features_is_refused(study: Path) -> None:
    (study / "other.json").write_text(json.dumps({"height": [1.0]}))
    message = error(study, "server", "model", "server", "--like", "other.json")
    assert "other.json" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("command", ["server", "client"])
def test_a_damaged_feature_is_not_taken_for_one_that_is_gone(
    study: Path, command: str, value: float
) -> None:
    told(study, "server", "model", "server", "-o", "good.npz")
    with np.load(study / "good.npz") as file:
        columns = dict(file)
    columns["age"] = np.array([value, *columns["age"][1:]])
    np.savez(study / "bad.npz", **columns)
    if command == "server":
        given: tuple[str, ...] = ("server", "model", "server")
    else:
        given = ("client", "labels", "bologna", "--model", "good.npz", "-o", "labels.csv")
    message = error(study, *given, "--like", "bad.npz")
    assert "bad.npz" in message
    assert "age" in message
    assert not (study / "labels.csv").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.5, -1.0, float(2**63)])
def test_numbers_of_clusters_that_are_none(study: Path, value: float) -> None:
    told(study, "server", "model", "server", "-o", "good.npz")
    with np.load(study / "good.npz") as file:
        columns = dict(file)
    columns["cluster"] = np.array([0.0, 1.0, 2.0, value])
    np.savez(study / "bad.npz", **columns)
    message = error(study, "server", "model", "server", "--like", "bad.npz")
    assert "one number per cluster" in message


# -- amendments --------------------------------------------------------------------------------


def join_all(folder: Path, epoch: int, *more: str) -> None:
    files = ("--federation", "server/federation.toml", "--epoch", f"server/epoch-{epoch}.json")
    for name in NAMES:
        told(folder, "client", "join", name, *files, *more)


def test_a_new_feature_comes_with_the_next_import(study: Path) -> None:
    shown = told(study, "server", "amend", "server", "--feature", "pulse:20:220", "--step", "0.02")
    assert "feature pulse: new, 20 to 220" in shown
    files = ("--federation", "server/federation.toml", "--epoch", "server/epoch-2.json")
    assert "no value of pulse" in told(study, "client", "join", "aarhus", *files)
    for name in NAMES[1:]:
        told(study, "client", "join", name, *files)
    assert "no value of pulse" in told(study, "client", "status", "aarhus")
    refused = error(study, "round", "server", *NAMES)
    assert "its operator sees why" in refused
    for number, name in enumerate(NAMES):
        write_patients(study, name, number, pulse=70.0)
        told(study, "client", "import", name, f"{name}.npz", "--id", "id", "--replace")
    assert answer(study, "round", "server", *NAMES)["kind"] == "full"
    assert answer(study, "server", "model", "server")["features"] == ["age", "pressure", "pulse"]
    for name in NAMES:
        told(study, "client", "audit", name)
    # A model of before the amendment has fewer features; what they share is compared.
    answer(study, "server", "model", "server", "-o", "now.npz")


def test_what_clients_report_can_be_amended(study: Path) -> None:
    amend = ("server", "amend", "server")
    assert "--show-seeds" in error(study, *amend, "--representatives", "seeds")
    seeds = told(study, *amend, "--representatives", "seeds", "--show-seeds", "--dry-run")
    assert "what a client reports of its clusters: means → seeds" in seeds
    assert "seeds are real records" in seeds
    assert "must be" in error(study, *amend, "--representatives", "medoids")
    shown = told(study, *amend, "--representatives", "lloyd", "--scale", "none")
    assert "what a client reports of its clusters: means → lloyd" in shown
    assert "scale of the features: box → none" in shown
    join_all(study, 2)
    done = answer(study, "round", "server", *NAMES)
    assert done["kind"] == "full"
    assert answer(study, "client", "audit", "aarhus")["passed"]


def test_an_amendment_can_be_looked_at_first(study: Path) -> None:
    before = answer(study, "server", "status", "server")
    shown = told(study, "server", "amend", "server", "--min-cell", "10", "--dry-run")
    assert "(min_cell): 5 → 10" in shown
    assert "Nothing was changed" in shown
    assert answer(study, "server", "status", "server") == before
    assert not (study / "server" / "epoch-2.json").exists()
    assert "nothing would change" in error(study, "server", "amend", "server")
    wrong = error(study, "server", "amend", "server", "--drop-feature", "height")
    assert "no such feature" in wrong
    wrong = error(study, "server", "amend", "server", "--step", "3")
    assert "model.step" in wrong


def test_it_is_said_that_values_of_a_dropped_feature_are_erased(study: Path) -> None:
    shown = told(study, "server", "amend", "server", "--drop-feature", "pressure", "--dry-run")
    assert "pressure: its values are erased" in " ".join(shown.split())


def test_receipts_are_verified_after_an_amendment(study: Path) -> None:
    told(study, "client", "forget", "aarhus", "--ids", "A-3", "--yes")
    told(study, "round", "server", *NAMES)
    told(study, "client", "receipts", "aarhus", "-o", "written")
    (receipt,) = (study / "written").iterdir()
    name = str(receipt.relative_to(study))
    told(study, "server", "amend", "server", "--clusters", "5")
    join_all(study, 2)
    given = ("--federation", "server/federation.toml")
    assert answer(study, "verify", name, *given)["valid"] is True
    (study / "elsewhere").mkdir()
    latest = (study / "server" / "federation.toml").read_bytes()
    (study / "elsewhere" / "federation.toml").write_bytes(latest)
    done = answer_of_status_1(study, "verify", name, "--federation", "elsewhere/federation.toml")
    assert "version 1" in done["reason"]
    assert "federation-1.toml" in done["reason"]


def answer_of_status_1(folder: Path, *arguments: str) -> dict[str, object]:
    from test_parties import in_process

    done = in_process(folder, *arguments, "--json")
    assert done.exit_code == 1
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_restored_server_takes_its_versions_back(study: Path) -> None:
    import shutil

    shutil.copytree(study / "server", study / "backup")
    told(study, "server", "amend", "server", "--clusters", "3")
    join_all(study, 2)
    told(study, "round", "server", *NAMES)
    shutil.rmtree(study / "server")
    shutil.copytree(study / "backup", study / "server")
    assert "server amend --restore" in error(study, "server", "recover", "server", *NAMES)
    restore = ("server", "amend", "server", "--restore", "aarhus/federation.toml")
    for more in (("--clusters", "7"), ("--dry-run",), ("--feature", "age:0:100")):
        assert "no other option" in error(study, *restore, *more)
    assert answer(study, "server", "status", "server")["version"] == 1
    assert "version 2" in told(study, *restore)
    # Its list is not there yet: no other one may take its place.
    for command in (("amend", "server", "--clusters", "6"), ("enrol", "server", "--afresh")):
        assert "server recover" in error(study, "server", *command)
    told(study, "server", "recover", "server", *NAMES)
    assert answer(study, "round", "server", *NAMES, "--full")["kind"] == "full"
    told(study, "server", "audit", "server")


def test_pages_of_an_amended_federation(study: Path) -> None:
    """Before and after the round, and while a client has records that do not fit."""
    given = ("--feature", "pulse:20:220", "--drop-feature", "age", "--clusters", "3")
    told(study, "server", "amend", "server", *given)
    join_all(study, 2)
    told(study, "report", "server", "-o", "before.html")
    assert "the model is the one that follows from the sum" in (study / "before.html").read_text()
    told(study, "report", "aarhus", "-o", "client.html")
    text = (study / "client.html").read_text()
    assert "A-0" not in text
    for number, name in enumerate(NAMES):
        write_patients(study, name, number, pulse=70.0)
        told(study, "client", "import", name, f"{name}.npz", "--id", "id", "--replace")
    told(study, "round", "server", *NAMES)
    told(study, "report", "server", "-o", "after.html")
    assert "pulse" in (study / "after.html").read_text()
    told(study, "client", "preview", "aarhus")


def test_preview_of_records_that_do_not_fit(study: Path) -> None:
    told(study, "server", "amend", "server", "--feature", "age:0:80")
    files = ("--federation", "server/federation.toml", "--epoch", "server/epoch-2.json")
    found = answer(study, "client", "join", "aarhus", *files)
    assert "lie outside the bounds of age" in found["records_that_do_not_fit"]
    assert "A-" in found["records_that_do_not_fit"]
    assert "outside the bounds" in error(study, "client", "preview", "aarhus")
    model = ("--model", "m.json", "-o", "l.csv")
    (study / "m.json").write_text(json.dumps({"age": [1.0], "pressure": [100.0]}))
    assert "outside the bounds" in error(study, "client", "labels", "aarhus", *model)
    dry = answer(study, "client", "forget", "aarhus", "--ids", "A-100", "--dry-run")
    assert dry["records"] == 1
