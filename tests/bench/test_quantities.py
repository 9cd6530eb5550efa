"""What the tables show is what they say: known numbers in, known numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedforget import FederatedKMeans, SeededKMeans
from fedforget.baselines.federation import FederatedClustering, Seconds
from fedforget.baselines.qkmeans import QKMeans
from fedforget.bench import exactness, methods, quality, removals, theory
from fedforget.bench.cells import CellResult
from fedforget.bench.checks import all_checks
from fedforget.bench.datasets import Dataset, load
from fedforget.bench.numbers import columns_of, quiet_seconds, quiet_speed_up, ratios, speed_up
from fedforget.bench.plan import QUICK
from fedforget.bench.runner import Results


@pytest.fixture(scope="module")
def iris() -> Dataset:
    return load("iris")


# -- tables and claims, from numbers made up here --------------------------------------------------


def removal_cell(dataset: str = "celltype") -> CellResult:
    value = {
        "seconds": {"MUFC": [0.1, 0.5, 0.3], "ours, K": [0.2, 0.2, 0.8]},
        "reseeded": {"MUFC": [False, True, False], "ours, K": [False, False, True]},
        "retraining": [30.0, 60.0, 90.0],
    }
    return CellResult("random", dataset, 0, {}, value, 1.0)


def test_speed_ups() -> None:
    cell = removal_cell()
    assert quiet_seconds(cell, "MUFC") == [0.1, 0.3]
    assert math.isclose(speed_up(cell, "MUFC"), 60.0 / 0.3)
    assert math.isclose(quiet_speed_up(cell, "MUFC"), 60.0 / 0.2)
    assert math.isclose(speed_up(cell, "ours, K"), 60.0 / 0.4)
    assert math.isclose(quiet_speed_up(cell, "ours, K"), 60.0 / 0.2)
    assert math.isnan(speed_up(cell, "DC-KM"))
    nothing = replace(cell, value={**cell.value, "seconds": {"MUFC": [0.0]}})
    assert math.isnan(speed_up(nothing, "MUFC"))


def results(
    losses: dict[str, dict[str, float]], datasets: Sequence[str] = ("celltype",)
) -> Results:
    found = Results(replace(QUICK, datasets=tuple(datasets)))
    for name in datasets:
        found.cells["reference"].append(CellResult("reference", name, 0, {}, {"loss": 2.0}, 1.0))
        found.cells["table1"].append(CellResult("table1", name, 0, {}, losses, 1.0))
    return found


def test_ratios_are_to_the_reference_and_of_the_loss_asked_for() -> None:
    found = results({"MUFC": {"induced": 3.0, "nearest": 2.5}})
    assert ratios(found, "table1", "MUFC", "celltype", "induced") == [1.5]
    assert ratios(found, "table1", "MUFC", "celltype", "nearest") == [1.25]
    assert ratios(found, "table1", "MUFC", "wine", "induced") == []


def claims(found: Results) -> dict[str, bool]:
    return {one.claim: one.holds for one in all_checks(found)}


def claims_with(words: str, found: Results) -> dict[str, bool]:
    return {claim: holds for claim, holds in claims(found).items() if words in claim}


@pytest.mark.parametrize(
    ("mean", "holds"), [(1.14, True), (1.169, True), (1.171, False), (1.10, False)]
)
def test_agreement_with_the_paper_is_within_the_deviations(mean: float, holds: bool) -> None:
    """One trial has no deviation of its own: 1.14 ± 0.03 is all that is allowed."""
    found = results({"MUFC": {"induced": 2.0 * mean, "nearest": 0.0}})
    made = claims_with("in the paper", found)
    assert list(made.values()) == [holds]


def test_our_own_deviation_counts_too_and_what_is_outside_is_said() -> None:
    found = results({"MUFC": {"induced": 2.0 * 1.17, "nearest": 0.0}})
    far = {"MUFC": {"induced": 2.0 * 1.21, "nearest": 0.0}}
    found.cells["table1"].append(CellResult("table1", "celltype", 1, {}, far, 1.0))
    (one,) = [check for check in all_checks(found) if "in the paper" in check.claim]
    # 1.19 ± 0.028 against 1.14 ± 0.03.
    assert one.holds
    found.cells["table1"].append(CellResult("table1", "celltype", 2, {}, far, 1.0))
    (one,) = [check for check in all_checks(found) if "in the paper" in check.claim]
    # 1.197 ± 0.023: outside by 0.0036.
    assert not one.holds
    assert "outside by 0.004, which rounding explains" in one.evidence


def test_agreement_is_checked_wherever_the_data_are_the_paper_s() -> None:
    losses = {name: {"induced": 2.2, "nearest": 2.2} for name in ("MUFC", "K-FED", "DC-KM")}
    names = ["celltype", "gaussian", "postures", "covtype", "tmi", "body-postures"]
    made = claims_with("in the paper", results(losses, names))
    assert {claim.split(",")[0] for claim in made} == {
        "Celltype", "Gaussian", "Postures", "Covtype",
    }  # fmt: skip
    assert len(made) == 12


def test_covtype_stands_against_both_references() -> None:
    found = results({"MUFC": {"induced": 3.0, "nearest": 3.0}}, ["covtype"])
    found.cells["reference"][0].value["printed"] = {"loss": 3.0, "sizes": [1]}
    assert [(c.title, c.reference) for c in columns_of(found, ["covtype"])] == [
        ("Covtype, φ* = 2", 2.0), ("Covtype, φ* = 3", 3.0),
    ]  # fmt: skip
    assert [c.title for c in columns_of(found, ["covtype"], printed=False)] == ["Covtype"]
    assert ratios(found, "table1", "MUFC", "covtype") == [1.5]
    assert ratios(found, "table1", "MUFC", "covtype", printed=True) == [1.0]


def test_better_than_every_other_method_on_both_losses() -> None:
    losses = {
        "MUFC": {"induced": 4.0, "nearest": 2.0},
        "DC-KM": {"induced": 3.5, "nearest": 2.5},
        "ours, 2K": {"induced": 3.0, "nearest": 3.0},
    }
    made = {one.claim: one for one in all_checks(results(losses, ["wine"]))}
    once = "every other method that talks once"
    induced = made[f"wine: ours, 2K has a lower induced ratio than {once}"]
    nearest = made[f"wine: ours, 2K has a lower nearest-centre ratio than {once}"]
    assert induced.holds
    assert induced.evidence == "1.5000 against DC-KM 1.7500"
    assert not nearest.holds
    assert nearest.evidence == "1.5000 against MUFC 1.0000, DC-KM 1.2500"
    assert len(made) == 2
    losses["FKM"] = {"induced": 2.9, "nearest": 2.9}
    made = {one.claim: one for one in all_checks(results(losses, ["wine"]))}
    assert made[f"wine: ours, 2K has a lower induced ratio than {once}"].holds
    rounds = made["wine: ours, 2K has a lower induced ratio than FKM, which talks in rounds"]
    assert (rounds.holds, rounds.evidence) == (False, "1.5000 against FKM 1.4500")
    assert len(made) == 4


@pytest.mark.parametrize(("ours", "holds"), [(2.0, True), (2.05, True), (2.3, False)])
def test_no_worse_than_complete_client_training(ours: float, holds: bool) -> None:
    found = results({"ours, lloyd K": {"induced": ours, "nearest": 2.0}}, ["wine"])
    for trial, loss in enumerate((1.9, 2.1)):
        value = {"MUFC": {"induced": loss, "nearest": loss}}
        found.cells["table2"].append(CellResult("table2", "wine", trial, {}, value, 1.0))
    (one,) = [check for check in all_checks(found) if "no worse than" in check.claim]
    assert one.holds == holds
    # One trial of ours has no deviation to show.
    assert one.evidence == f"{ours / 2:.4f} against 1.0000 ± 0.0707"


def test_claims_about_speed() -> None:
    found = Results(replace(QUICK, datasets=("celltype", "gaussian")))
    found.cells["random"] = [removal_cell(), removal_cell("gaussian")]
    made = claims(found)
    # 150 times faster on average; without re-seeding 300, where the paper has 1535 and 2074.
    assert [holds for claim, holds in made.items() if "lloyd" not in claim] == [True, False, False]
    slow = removal_cell()
    slow.value["seconds"]["ours, K"] = [60.0, 60.0, 60.0]
    found.cells["random"] = [slow]
    assert next(iter(claims(found).values())) is False


def test_claims_about_exactness() -> None:
    found = Results(QUICK)
    for same in ([True, True], [True, False]):
        found.cells["exactness"] = [CellResult("exactness", "iris", 0, {}, {"ours": same}, 1.0)]
        assert list(claims(found).values()) == [all(same)]


# -- removals, served by contenders that take notes ------------------------------------------------


class Notes:
    """Forgets nothing; knows what it was asked."""

    def __init__(self, data: Dataset) -> None:
        self.asked: list[list[int]] = []
        self._left = set(range(len(data.X)))

    def remove(self, ids: Sequence[int]) -> tuple[float, bool]:
        self.asked.append(list(ids))
        self._left -= set(ids)
        return 0.25 * len(self.asked), len(self.asked) % 3 == 0

    def costliest(self) -> int:
        return 100 + len(self.asked)

    def loss(self) -> float:
        return 3.0

    def held(self) -> np.ndarray:
        return np.array(sorted(self._left))


def serve(
    data: Dataset, kind: str, requests: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[Notes]]:
    made: list[Notes] = []

    def contender(data: Dataset, _: int) -> Notes:
        made.append(Notes(data))
        return made[-1]

    monkeypatch.setattr(removals, "CONTENDERS", {"one": contender, "two": contender})
    monkeypatch.setattr(methods, "refined_loss", lambda values, _: float(len(values)))
    empty = np.empty(0, dtype=np.int32)
    outcome = FederatedClustering(np.empty((0, 4)), empty, empty, Seconds(2.0, 5.0))
    monkeypatch.setattr(removals, "complete_retraining", lambda *_, **__: outcome)
    found = removals.removals(
        data, 0, kind=kind, requests=requests, retrainings=3, centres=data.X[:3],
        names=("one", "two"),
    )  # fmt: skip
    return found, made


def test_every_method_serves_the_same_records_each_of_one_client(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, (one, two) = serve(iris, "3", 12, monkeypatch)
    assert one.asked == two.asked
    assert [len(ids) for ids in one.asked] == [3] * 12
    everyone = [victim for ids in one.asked for victim in ids]
    assert len(set(everyone)) == 36
    assert all(len(set(iris.clients[ids])) == 1 for ids in one.asked)
    assert len({int(iris.clients[ids[0]]) for ids in one.asked}) > 3
    assert found["seconds"]["one"] == [0.25 * turn for turn in range(1, 13)]
    assert found["reseeded"]["two"] == [turn % 3 == 0 for turn in range(1, 13)]
    assert found["retraining"] == [7.0, 7.0, 7.0]


def test_loss_ratios_are_to_the_records_then_held(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = serve(iris, "random", 10, monkeypatch)
    assert found["checked"] == [0, 2, 4, 6, 8, 10]
    assert found["ratios"]["one"] == [3.0 / (150 - gone) for gone in found["checked"]]


def test_the_adversary_is_asked_anew_each_time(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = serve(iris, "adversarial", 4, monkeypatch)
    assert made[0].asked == made[1].asked == [[100], [101], [102], [103]]


def test_the_costliest_record_is_the_one_farthest_from_its_centre(iris: Dataset) -> None:
    model = methods.ours(iris, 0).fit(iris.X, clients=iris.clients)
    contender = removals.EstimatorContender(methods.ours(iris, 0), iris)
    d2 = ((iris.X - model.cluster_centers_[model.induced_labels_]) ** 2).sum(axis=1)
    assert contender.costliest() == model.ids_[d2.argmax()]


def test_clients_leave_one_after_the_other(iris: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    left: dict[str, list[int]] = {}

    def noted(name: str, make: Any) -> Any:
        def contender(data: Dataset, seed: int) -> removals.EstimatorContender:
            found = make(data, seed)
            before = found.model.forget_clients

            def forget_clients(names: Any) -> Any:
                left.setdefault(name, []).extend(names)
                return before(names)

            found.model.forget_clients = forget_clients
            return found

        return contender

    noting = {name: noted(name, make) for name, make in removals.CONTENDERS.items()}
    monkeypatch.setattr(removals, "CONTENDERS", noting)
    found = removals.client_removals(iris, 0, requests=3)
    assert left["MUFC"] == left["ours, 2K"] == left["ours, lloyd K"]
    assert len(set(left["MUFC"])) == 3
    assert {name: len(seconds) for name, seconds in found["seconds"].items()} == {
        "MUFC": 3, "ours, 2K": 3, "ours, lloyd K": 3, "DC-KM": 3,
    }  # fmt: skip


# -- quality, theory, exactness --------------------------------------------------------------------


def test_table_1_has_the_methods_that_it_names(iris: Dataset) -> None:
    found = quality.table_1(iris, 1)
    for name, options in (
        ("ours, K", {"local_clusters": 3}),
        ("ours, 2K", {"local_clusters": 6}),
        ("ours, lloyd K", {"local_clusters": 3, "representatives": "lloyd"}),
        ("ours, lloyd 2K", {"local_clusters": 6, "representatives": "lloyd"}),
        ("MUFC", {"mode": "paper", "server_points": "uniform", "tol": 1e-4}),
    ):
        model = FederatedKMeans(3, bounds=(0, 1), step=iris.step, random_state=1, **options)
        model.fit(iris.X, clients=iris.clients)
        assert found[name] == {"induced": model.induced_inertia_, "nearest": model.inertia_}
    tree = methods.dc_km(iris, 1).fit(iris.X, iris.clients).outcome()
    assert found["DC-KM"] == methods.losses_of_outcome(iris.X, tree)
    assert found["K-FED"] == methods.losses_of_outcome(iris.X, methods.k_fed(iris, 1))
    assert found["K-FED"] != found["DC-KM"]
    fewer = set(found) - set(quality.table_1(iris, 1, alternatives=False))
    assert fewer == {
        "MUFC, greedy server", "K-FED, drawn start", "K-FED, K′", "DC-KM, 10 starts",
    }  # fmt: skip
    assert 1 <= found["FKM"]["rounds"] <= 20


def test_the_chance_of_a_re_seed(iris: Dataset) -> None:
    """A client drawn first, then one of its records: K over each client's records, averaged."""
    found = quality.local_clusters(iris, 0, multiple=2, representatives="means")
    sizes = np.bincount(iris.clients)
    assert math.isclose(found["reseed"], (np.minimum(6, sizes) / sizes).mean())


def test_hits_of_the_costliest_record_are_counted(iris: Dataset) -> None:
    reference = quality.reference(iris, n_init=3)
    found = theory.reseeding(iris, reference=reference, seedings=30)["with"]
    centres = np.array(reference["centres"])
    d2 = ((iris.X[:, None] - centres) ** 2).sum(axis=-1).min(axis=1)
    seeds = [SeededKMeans(3, random_state=seed).fit(iris.X).seed_ids_ for seed in range(30)]
    assert found["hits"] == sum(d2.argmax() in one for one in seeds) < 30
    assert reference["costliest"] == d2.argmax()


def test_certified_removals_are_those_that_left_the_model_alone(iris: Dataset) -> None:
    victims = np.random.default_rng([0, 4]).permutation(len(iris.X))[:120].tolist()
    found = theory.owned_k_means(iris, 0, iterate=False, requests=120)
    model = SeededKMeans(3, random_state=0).fit(iris.X)
    stood = []
    for one in victims:
        before = model.seed_ids_.tolist()
        model.forget(one)
        stood.append(model.seed_ids_.tolist() == before)
    assert found["certified"] == stood
    assert True in stood
    assert False in stood
    quantised = QKMeans(3, bounds=(0, 1), epsilon=0.25, seed=0).fit(iris.X)
    assert theory.q_k_means(iris, 0, epsilon=0.25, requests=120)["certified"] == [
        quantised.forget([one]) for one in victims
    ]


def test_exactness_tells_exact_methods_from_others(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = exactness.bit_for_bit(iris, 0, requests=20)
    assert {name: all(same) for name, same in found.items()} == {
        "MUFC as printed": False,
        "seeds drawn anew if one is hit": False,
        "DC-KM": True,
        "Q-KM": True,
        "ours": True,
        "ours, lloyd K": True,
    }
    # Methods that do not delete are found out.
    monkeypatch.setattr(QKMeans, "forget", lambda *_: True)
    assert not all(exactness.bit_for_bit(iris, 0, requests=20)["Q-KM"])


def test_seeds_are_removed_where_a_method_has_any(
    iris: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = []
    before = QKMeans.forget

    def forget(self: QKMeans, ids: Any) -> bool:
        hit.append(ids[0] in self.seed_ids)
        return before(self, ids)

    monkeypatch.setattr(QKMeans, "forget", forget)
    exactness.bit_for_bit(iris, 0, requests=20)
    assert all(hit[exactness.SEED_EVERY - 1 :: exactness.SEED_EVERY])
