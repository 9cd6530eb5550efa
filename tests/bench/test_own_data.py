"""One's own data: files of few records, and what cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedforget.bench.plan import own_library
from fedforget.cli.bench import app


def write(path: Path, n: int, clients: int) -> Path:
    X = np.random.default_rng(0).random((n, 3))
    np.savez(path, X=X, client=np.arange(n) % clients)
    return path


@pytest.mark.parametrize("clients", [1, 3])
def test_few_records_are_enough(clients: int, tmp_path: Path) -> None:
    path, out = write(tmp_path / "small.npz", 24, clients), tmp_path / "out"
    arguments = ["paper", "--dataset", str(path), "--clusters", "3", "--out", str(out)]
    arguments += ["--only", "random,adversarial,batch,clients,exactness,q-k-means,reseeding"]
    result = CliRunner().invoke(app, [*arguments, "--trials", "1"])
    assert result.exit_code == 0, result.output
    assert (out / "index.html").is_file()


def test_one_s_own_celltype_is_not_the_paper_s(tmp_path: Path) -> None:
    library = own_library(write(tmp_path / "celltype.npz", 24, 2), 3)
    assert library.get("celltype").name == "own-celltype"


def test_data_that_clusters_without_loss_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "bits.npz", X=np.arange(40).reshape(-1, 1) % 4)
    with pytest.raises(ValueError, match="4 distinct records, which 4 clusters fit without loss"):
        own_library(tmp_path / "bits.npz", 4)
    assert own_library(tmp_path / "bits.npz", 3).get("bits").n_clusters == 3
