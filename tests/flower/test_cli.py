"""``fedforget simulate`` and ``fedforget flower up``: what they refuse before they start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fedforget.cli.flower import _alone, _trial
from fedforget.cli.main import app

pytestmark = pytest.mark.usefixtures("flower")


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "records.npz"
    np.savez(path, X=np.random.default_rng(0).uniform(0, 1, (20, 2)))
    return path


def test_the_number_of_clusters_is_asked_for_by_its_option(records: Path) -> None:
    done = call("simulate", "--dataset", records, "--clients", "3")
    assert done.exit_code == 1
    assert "--clusters" in done.output


@pytest.mark.parametrize("option", ["--clients", "--rounds"])
def test_nothing_is_not_simulated(records: Path, option: str) -> None:
    assert call("simulate", "--dataset", records, "--clusters", "2", option, "0").exit_code == 2


def test_an_existing_folder_is_not_written_to(records: Path, tmp_path: Path) -> None:
    done = call("simulate", "--dataset", records, "--clusters", "2", "--out", tmp_path)
    assert done.exit_code == 1
    assert "exists already" in done.output


def test_a_trial_that_was_cut_off_is_not_taken_up(tmp_path: Path) -> None:
    (tmp_path / "trial" / "server").mkdir(parents=True)
    done = call("flower", "up", "--folder", tmp_path / "trial")
    assert done.exit_code == 1
    assert "no whole trial" in done.output


def test_a_trial_that_is_running_is_not_disturbed(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    _trial(folder, 3)
    (folder / "net").mkdir()
    database = folder / "net" / "superlink.sqlite"
    database.touch()
    with _alone(folder):
        done = call("flower", "up", "--folder", folder)
    assert done.exit_code == 1
    assert "in use by another" in " ".join(done.output.split())
    assert database.exists()
