"""The attack on removed records: it finds them where it should, and rules stop it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedforget.bench.datasets import Dataset, load
from fedforget.bench.disclosure import (
    COUNT,
    MEAN,
    MORE,
    NOTHING,
    SETTINGS,
    Setting,
    added_up,
    attack,
    guesses_of,
)
from fedforget.clustering.disclosure import NO_RULES, ReportRules

PLAIN = Setting("plain", NO_RULES, False)
RULES = Setting("rules", ReportRules(5, 10, 5), True)


def test_a_record_is_where_the_means_say() -> None:
    rng = np.random.default_rng(0)
    cluster = rng.random((7, 3))
    for gone in range(7):
        left = np.delete(cluster, gone, axis=0)
        points = np.stack([cluster.mean(axis=0), left.mean(axis=0)])
        (guess,) = guesses_of(points, np.array([-7, 6]))
        assert np.allclose(guess, cluster[gone])
    assert guesses_of(np.array([[0.3], [0.9]]), np.array([-1, -2])).tolist() == [[0.9], [0.3]]
    assert guesses_of(np.empty((0, 2)), np.empty(0, dtype=np.int64)).shape == (0, 2)


def test_a_change_adds_up_to_one_record() -> None:
    rng = np.random.default_rng(0)
    cluster, other = rng.random((7, 3)), rng.random(3)
    for gone in range(7):
        left = np.delete(cluster, gone, axis=0)
        points = np.stack([cluster.mean(axis=0), left.mean(axis=0), other])
        (whole,) = added_up(points, np.array([-7, 6, 0]))
        assert np.allclose(whole, cluster[gone])
    assert added_up(np.array([[0.3, 0.4]]), np.array([-5])).tolist() == [[0.3, 0.4]]
    for counts in ([-5, 5], [5, 0]):  # nothing was lost, or more came than went
        assert added_up(rng.random((2, 3)), np.array(counts)).shape == (0, 3)


def test_a_fine_grid_gives_records_away_and_rules_do_not() -> None:
    data = load("iris")
    plain, rules = attack(data, (PLAIN, RULES), step=0.0001, outsider_tries=20)
    assert plain.server.tries == len(data.X)
    assert plain.server.near > 0.5
    # Without rules nearly everything is in the sum of the changes; with them nearly nothing is.
    assert plain.server.added_up > 0.5 > 0.1 > rules.server.added_up
    assert plain.smallest_cell < 5
    assert plain.loss == 1.0
    assert rules.server.near < 0.2
    assert rules.smallest_cell >= 5
    for one in (plain, rules):
        assert sum(kind.removals for kind in one.shown) == pytest.approx(1.0)
        assert sum(kind.near for kind in one.shown) == pytest.approx(one.server.near)
        assert one.server.singled_out <= one.server.near
        blind = sum(kind.near for kind in one.shown if kind.what == NOTHING)
        assert one.server.informed == pytest.approx(one.server.near - blind)
    assert plain.server.singled_out > 0.5 > 0.2 > rules.server.singled_out
    again = attack(data, (RULES,), step=0.0001, outsider_tries=20)
    assert again == [rules]


def test_a_guess_into_a_crowd_singles_nobody_out() -> None:
    """Half of all records are at one place: whoever guesses it is near, and has learnt nothing."""
    rng = np.random.default_rng(0)
    X = np.concatenate([np.full((96, 2), 0.3), 0.6 + 0.4 * rng.random((104, 2))])
    data = Dataset("crowd", "", X, np.arange(200) % 2, 2, 2, 2, "")
    (found,) = attack(data, (RULES,), outsider_tries=5)
    # 48 of them at either client, so that the removal of each takes 50 to 45.
    assert found.fullest_place == 96 / 200
    assert found.server.near > 0.4
    assert found.server.singled_out < 0.03
    assert {kind.what for kind in found.shown} <= {NOTHING, COUNT, MEAN, MORE}


def test_no_figure_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedforget.cli import console
    from fedforget.cli.main import app

    monkeypatch.setattr(console.console, "width", 80)
    given = ["bench", "disclosure", "--dataset", "iris", "--removals", "5", "--models", "1"]
    shown = CliRunner().invoke(app, given)
    assert shown.exit_code == 0, shown.output
    assert "…" not in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80


def test_the_command_prints_the_table(tmp_path: Path) -> None:
    from fedforget.cli.main import app

    given = ["bench", "disclosure", "--dataset", "iris", "--removals", "40", "--models", "5"]
    done = CliRunner().invoke(app, [*given, "--json", "-o", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert json.loads((tmp_path / "new" / "disclosure.json").read_text()) == found
    assert (tmp_path / "new" / "disclosure.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "new" / "disclosure.svg").read_text(encoding="utf-8")
    assert all(one.name in drawn for one in SETTINGS)
    assert "singled out" in drawn
    assert [one["setting"]["name"] for one in found["settings"]] == [one.name for one in SETTINGS]
    assert CliRunner().invoke(app, ["bench", "disclosure", "--dataset", "no.csv"]).exit_code == 1


def test_an_export_with_ids_and_rules_that_publish_nothing(tmp_path: Path) -> None:
    from fedforget.cli.main import app

    rows = [f"P-{row},{row % 7},{row % 5}" for row in range(30)]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["patient,age,weight", *rows]), encoding="utf-8")
    given = ["bench", "disclosure", "--dataset", str(path), "--clusters", "2"]
    few = ["--removals", "3", "--models", "1"]
    refused = CliRunner().invoke(app, [*given, *few])
    assert refused.exit_code == 1
    assert "'P-0' is not a number" in refused.output
    done = CliRunner().invoke(app, [*given, *few, "--id", "patient", "--json"])
    assert done.exit_code == 0, done.output

    def no_number(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(done.stdout, parse_constant=no_number)
    # Ten clients of three records each: most rules hide all of them.
    assert None in [one["loss"] for one in found["settings"]]
    assert CliRunner().invoke(app, [*given, *few, "--id", "patient"]).exit_code == 0
    assert "no column 'id'" in CliRunner().invoke(app, [*given, "--id", "id"]).output
    assert CliRunner().invoke(app, [*given, "--removals", "0"]).exit_code == 2
    known = CliRunner().invoke(app, ["bench", "disclosure", "--dataset", "nosuch"])
    assert known.exit_code == 1
    assert "celltype" in known.output
