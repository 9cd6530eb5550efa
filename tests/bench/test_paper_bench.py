"""The paper's experiments end to end, on settings small enough for a test."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from fedforget.bench import paper, removals, theory
from fedforget.bench.catalogue import ALIASES, EXPERIMENTS, chosen
from fedforget.bench.cells import CellStore
from fedforget.bench.checks import all_checks
from fedforget.bench.datasets import Dataset, load
from fedforget.bench.machine import describe, one_thread
from fedforget.bench.numbers import STAND_INS, Entry, ResultTable
from fedforget.bench.plan import FULL, PAPER_SETS, QUICK, Library, Plan, own_plan
from fedforget.bench.result_tables import all_tables
from fedforget.bench.results_page import page, write_results
from fedforget.bench.runner import Results, run
from fedforget.cli.bench import app

TINY = replace(
    QUICK,
    name="tiny",
    datasets=("iris", "wine"),
    synthetic="wine",
    real="iris",
    adversarial_main="wine",
    batch_sets=("iris",),
    fragmented_sets=("iris",),
    growth=(2, 4),
    scales=(200,),
    remark_runs=20,
    trials=2,
    sweep_trials=1,
    requests=6,
    adversarial_requests=4,
    retrainings=1,
    reference_starts=2,
    seedings=10,
    k_primes=(1, 3),
    steps=(0.01, 0.3),
    multiples=(1, 2),
    q_sets=("iris",),
    q_epsilons=(0.25,),
    q_requests=5,
    exact_sets=("iris",),
    exact_requests=6,
    code_features=(1, 2, 70),
    code_clients=(5,),
    code_literal=10,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("bench")
    library = Library()
    with one_thread():
        results = run(TINY, library, CellStore(folder / "cells"))
    write_results(
        results,
        folder,
        command="fedforget bench paper",
        machine=describe(),
        notes={name: library.get(name).note for name in TINY.datasets},
    )
    return results, folder


def test_every_experiment_and_every_table_is_there(finished: tuple[Results, Path]) -> None:
    results, folder = finished
    assert set(results.cells) == {"reference", *EXPERIMENTS}
    names = {path.stem for path in (folder / "tables").iterdir()}
    assert names == {table.name for table in all_tables(results)}
    assert len(names) == 22  # all but the cluster sizes, which the paper prints for its own sets
    drawn = {path.name for path in (folder / "figures").iterdir()}
    wanted = {"fig3", "trade-off", "appendix", "batch", "local-clusters", "theorem4-1", "scaling",
              "reseeding", "codes"}  # fmt: skip
    assert drawn == {f"{name}.{kind}" for name in wanted for kind in ("png", "svg")}
    for path in (folder / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_second_run_computes_nothing(finished: tuple[Results, Path]) -> None:
    results, folder = finished
    store = CellStore(folder / "cells")
    store.compute = None  # type: ignore[assignment, method-assign]
    again = run(TINY, Library(), store)
    assert again.cells == results.cells


def test_the_page_needs_nothing_else(finished: tuple[Results, Path]) -> None:
    _, folder = finished
    page = (folder / "index.html").read_text(encoding="utf-8")
    for address in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert address.startswith("data:image/svg+xml,")
        drawn = ElementTree.fromstring(unquote(unescape(address).split(",", 1)[1]))
        assert drawn.tag.endswith("svg")
        assert "\\n" not in unescape(address)
    assert "<script" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "url(http" not in page
    for word in ("Table 1", "Figure 3", "Machine and versions", "numpy", "seeds 0–1", "iris"):
        assert word in page
    assert str(Path.home()) not in page
    assert str(folder) not in page


def test_a_name_with_markup_is_escaped_on_the_page(finished: tuple[Results, Path]) -> None:
    results, _ = finished
    evil = "<b>iris</b>"
    shown = page(results, [], [], [], evil, {evil: evil}, {evil: evil})
    assert "<b>" not in shown
    assert shown.count("&lt;b&gt;iris&lt;/b&gt;") == 5


def test_numbers_come_as_json_and_csv(finished: tuple[Results, Path]) -> None:
    _, folder = finished
    content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert {"command", "plan", "machine", "datasets", "checks", "tables", "cells"} == set(content)
    assert "centres" not in content["cells"]["reference"][0]["value"]
    with (folder / "tables" / "table1.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    mufc = [row for row in rows if row["row"] == "MUFC (induced)"]
    assert [row["column"] for row in mufc] == ["iris", "wine"]
    assert all(re.fullmatch(r"\d\.\d{3} ± \d\.\d{3}", row["measured"]) for row in mufc)


def test_what_must_hold_on_any_data(finished: tuple[Results, Path]) -> None:
    results, _ = finished
    exact = [one for one in all_checks(results) if "bit for bit" in one.claim]
    assert exact
    assert all(one.holds for one in exact)
    for one in results.of("table1"):
        reference = results.reference(one.dataset)
        assert reference is not None
        for losses in one.value.values():
            assert losses["nearest"] <= losses["induced"] * (1 + 1e-12)
    for one in results.of("fragmented"):
        assert "complete client training" in one.value
    for one in results.of("exactness", "iris"):
        assert not any(one.value["MUFC as printed"])
        assert not all(one.value["seeds drawn anew if one is hit"])
    for one in results.of("reseeding"):
        assert one.value["without"]["epsilon_2"] <= one.value["with"]["epsilon_2"]


def test_k_means_at_the_clients_is_in_every_table_of_methods(
    finished: tuple[Results, Path],
) -> None:
    """A row or a column of its own, wherever methods that forget are compared."""
    for table in all_tables(finished[0]):
        words = " ".join((*table.columns, *(row for row, _ in table.rows)))
        if table.name in ("guarantees", "remark", "code-lengths", "code-times", "laws"):
            continue  # what the paper proves, codes, and laws by enumeration
        assert "lloyd" in words or table.name == "q-k-means", table.name
        if table.name == "q-k-means":
            assert "KMeans" in table.columns


def test_all_methods_serve_the_same_random_requests(finished: tuple[Results, Path]) -> None:
    for experiment, counts in (("random", {6}), ("adversarial", {4}), ("batch", {6, 2})):
        cells = finished[0].of(experiment)
        assert {len(s) for one in cells for s in one.value["seconds"].values()} == counts
        for one in cells:
            assert len({len(s) for s in one.value["seconds"].values()}) == 1
            assert all(s > 0.0 for own in one.value["seconds"].values() for s in own)
            assert len(one.value["retraining"]) == 1
            assert one.value["checked"][0] == 0


# -- parts -----------------------------------------------------------------------------------------


def test_the_adversary_takes_the_costliest_record() -> None:
    data = load("iris")
    contender = removals.CONTENDERS["MUFC"](data, 0)
    victim = contender.costliest()
    assert isinstance(contender, removals.EstimatorContender)
    model = contender.model
    d2 = ((data.X - model.cluster_centers_[model.induced_labels_]) ** 2).sum(axis=1)
    assert victim == d2.argmax()
    contender.remove([victim])
    assert victim not in contender.held()
    assert contender.costliest() != victim
    tree = removals.CONTENDERS["DC-KM"](data, 0)
    tree.remove([tree.costliest()])
    assert len(tree.held()) == len(data.X) - 1


def test_the_bound_of_the_theorem_by_hand() -> None:
    assert theory.adversarial_bound(10_000, 4, 2.0, 10.0) == (1 + 10 * 4 * 3 * 20) / 10_000
    assert theory.adversarial_bound(10, 4, 2.0, 10.0) == 1.0
    assert theory.adversarial_bound(100, 1, 9.0, 9.0) == 0.01


def test_epsilons_by_hand() -> None:
    """Two clusters: {0, 1, 2} around 1 and {10} by itself."""
    values = np.array([[0.0], [1.0], [2.0], [10.0]])
    found = theory._chance(values, 2, [[1.0], [10.0]], 5)
    assert found["epsilon_1"] == 4 / (2 * 1)
    assert found["epsilon_2"] == pytest.approx(1.5)
    assert found["random_bound"] == 0.5


# -- the printed numbers ---------------------------------------------------------------------------


def test_the_printed_numbers() -> None:
    assert [str(paper.TABLE_1[m]["Celltype"]) for m in ("MUFC", "K-FED", "DC-KM")] == [
        "1.14 ± 0.03", "1.72 ± 0.24", "1.46 ± 0.01",
    ]  # fmt: skip
    assert str(paper.TABLE_2["MUFC"]["Celltype"]) == "1.03 ± 0.00"
    assert list(paper.SPEED_UP.values()) == [151, 1535, 2074, 483, 613, 53, 267]
    for table in (paper.TABLE_1, paper.TABLE_2):
        assert all(tuple(row) == paper.DATASETS for row in table.values())
    assert tuple(name.lower() for name in paper.DATASETS) == PAPER_SETS
    assert set(FULL.datasets) == {*PAPER_SETS, "body-postures"}
    assert set(STAND_INS) < set(FULL.datasets)


def test_the_printed_numbers_are_those_of_the_source(data_folder: Path) -> None:
    """The rows of the two tables, digit for digit, where the paper's source is at hand."""
    source = data_folder.parent / "paper" / "mufc.tex"
    if not source.is_file():
        pytest.skip("the paper's source is not there")
    text = re.sub(r"[{}$]|\\mathbf", "", source.read_text(encoding="utf-8"))
    rows = [
        [(float(a), float(b)) for a, b in re.findall(r"(\d\.\d\d)\\pm ?(\d\.\d\d)", line)]
        for line in text.splitlines()
    ]
    found = [row for row in rows if len(row) == 7]
    expected = [[*row.values()] for t in (paper.TABLE_1, paper.TABLE_2) for row in t.values()]
    assert found == expected
    for name, sizes in paper.SIZES.items():
        assert ", ".join(map(str, sizes)) in text, name
    speed = next(line for line in text.splitlines() if "1535x" in line)
    assert [int(n) for n in re.findall(r"(\d+)x", speed)][-7:] == [*paper.SPEED_UP.values()]


# -- the command -----------------------------------------------------------------------------------


def test_the_command_on_one_s_own_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "mine.npz"
    np.savez(path, X=rng.random((60, 3)), y=np.arange(60) % 3, client=np.arange(60) % 4)
    out = tmp_path / "out"
    arguments = ["paper", "--quick", "--dataset", str(path), "--out", str(out)]
    arguments += ["--only", "table2,fig3a", "--trials", "1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "fedforget bench paper --quick --only table2,fig3a --dataset mine.npz" in page
    assert str(tmp_path) not in page
    assert sorted(p.name for p in (out / "cells").iterdir()) == ["fig3a", "reference", "table2"]


def test_the_command_deals_as_it_is_told(tmp_path: Path) -> None:
    """In file order, the first client of a sorted file has its first rows; shuffled, it has not."""
    path = tmp_path / "sorted.npz"
    np.savez(path, X=np.sort(np.random.default_rng(0).random((80, 1)), axis=0))
    losses = []
    for split in ([], ["--split", "shuffled"]):
        out = tmp_path / f"out{len(losses)}"
        arguments = ["paper", "--quick", "--dataset", str(path), "--clusters", "4", "--trials", "1"]
        arguments += ["--only", "table2", "--out", str(out), *split]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        page = (out / "index.html").read_text(encoding="utf-8")
        assert ("--split shuffled" in page) == bool(split)
        content = json.loads((out / "results.json").read_text(encoding="utf-8"))
        losses.append(content["cells"]["table2"][0]["value"]["MUFC"]["induced"])
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "table9"], "there is no experiment 'table9'"),
        (["--dataset", "none.npz"], "there is no file none.npz"),
        (["--data", "nowhere"], "in nowhere"),
    ],
)
def test_what_cannot_be_run(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "out"), *arguments])
    assert result.exit_code == 1
    assert words in result.output
    assert not (tmp_path / "out").exists()


def test_experiments_by_other_names() -> None:
    assert chosen(None) == tuple(EXPERIMENTS)
    assert chosen("fig3d,table1") == ("table1", "random")
    assert set(chosen(",".join(ALIASES))) <= set(EXPERIMENTS)
    with pytest.raises(ValueError, match="no experiment"):
        chosen("")


def test_plans() -> None:
    assert set(QUICK.datasets) == {"gaussian", "digits", "breast_cancer", "wine", "iris"}
    assert (FULL.trials_of("femnist"), FULL.trials_of("tmi")) == (1, 10)
    assert set(FULL.datasets) - set(FULL.light_sets) == {"femnist"}
    own: Plan = own_plan(FULL, Dataset("mine", "", np.eye(60), np.arange(60) % 2, 3, 2, 2, ""))
    assert own.datasets == own.batch_sets == ("mine",)
    assert max(own.k_primes) <= 3
    assert own.requests == own.adversarial_requests == own.exact_requests == own.q_requests == 28


def test_a_table_as_text() -> None:
    table = ResultTable("t", "T", ("a", "b"), (("row", (Entry("1", "2"), Entry("3"))),))
    assert table.csv() == "row,column,measured,printed\nrow,a,1,2\nrow,b,3,\n"
