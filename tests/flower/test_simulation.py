"""Flower's simulation engine; ``make test-flower`` runs this."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedforget import __version__
from fedforget.runtime import directories
from fedforget.runtime.flower.app_folder import write_app
from fedforget.runtime.flower.network import Network
from fedforget.runtime.flower.simulation import forget_records, run_once, simulate
from fedforget.runtime.flower.trial import make_federation

pytestmark = pytest.mark.usefixtures("campaign")


def records(n: int, n_clients: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.uniform(0, 1, (n, 4)), rng.permutation(n) % n_clients


def test_twenty_clients_give_the_model_of_the_in_process_runtime(tmp_path: Path) -> None:
    values, owners = records(1000, 20)
    root, twin = tmp_path / "flower", tmp_path / "twin"
    make_federation(root, values, owners, n_clusters=4)
    shutil.copytree(root, twin)
    write_app(root / "app", __version__, server=root / "server", clients=root / "clients")
    with Network(tmp_path / "net", root / "app", simulation=True) as network:
        network.start_superlink()
        for gone in (None, np.array([3, 14, 159, 265])):
            if gone is not None:
                forget_records(root, gone, owners)
                forget_records(twin, gone, owners)
            result = run_once(network, root / "server", 20)
            folders = sorted((twin / "clients").iterdir())
            expected = directories.run(twin / "server", folders)
            for key in ("round", "kind", "participants", "model", "attempts", "changed_bins"):
                assert result[key] == expected[key], key


def test_a_hundred_clients_run(tmp_path: Path) -> None:
    values, owners = records(5000, 100)
    first, second = simulate(tmp_path / "root", values, owners, n_clusters=4, rounds=2, forget=5)
    assert (first["kind"], second["kind"]) == ("full", "delta")
    assert len(first["participants"]) == len(second["participants"]) == 100
