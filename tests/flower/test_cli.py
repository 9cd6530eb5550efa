"""``fedforget simulate`` and ``fedforget flower up``: what they refuse before they start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fedforget.cli.flower import _trial
from fedforget.cli.main import app
from fedforget.parties.folders import held
from fedforget.protocol.graph import Policy
from fedforget.runtime import directories
from fedforget.runtime.flower.trial import protocol_part

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


@pytest.mark.parametrize("command", ["simulate", "up"])
def test_one_client_alone_is_refused_in_plain_words(
    records: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out"
    if command == "up":
        done = call("flower", "up", "--clients", "1", "--folder", out)
    else:
        done = call(
            "simulate", "--dataset", records, "--clusters", "2", "--clients", "1", "--out", out
        )
    assert done.exit_code == 1
    assert "at least two clients" in " ".join(done.output.split())
    assert not out.exists()


@pytest.mark.parametrize("clients", [2, 3, 4, 10, 100])
def test_a_trial_of_any_size_can_run_rounds(clients: int) -> None:
    part = protocol_part(clients, 3, 60.0)
    Policy(part.dropout, part.colluding, part.minimum).check(clients)


def test_two_clients_can_be_tried_out(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    _, names = _trial(folder, 2)
    result = directories.run(folder / "server", [folder / "clients" / name for name in names])
    assert result["participants"] == names


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
    with held(folder):
        done = call("flower", "up", "--folder", folder)
    assert done.exit_code == 1
    assert "in use by another" in " ".join(done.output.split())
    assert database.exists()
