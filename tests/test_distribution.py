"""The law of the draws: exactly that of K-means++, before and after forgetting.

Small sets are enumerated in fractions.  The tests of fit below compare counts with exact
probabilities; their seeds are fixed, so they do not flicker, and each would reject a right
implementation for one choice of seeds in 10,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import twins
from fedforget import FederatedKMeans, SeededKMeans

POINTS = [0, 1, 3, 7, 8]
RUNS = 4000


def draws(n_seeds: int, change: Callable[[SeededKMeans], None]) -> list[tuple[int, ...]]:
    """The seeds' positions in POINTS over many secrets."""
    X = np.array(POINTS, dtype=float)[:, None]
    outcomes = []
    for run in range(RUNS):
        model = SeededKMeans(n_seeds, random_state=run).fit(X)
        change(model)
        outcomes.append(tuple(model.seed_ids_.tolist()))
    return outcomes


def relabelled(law: dict[tuple[int, ...], Fraction], kept: list[int]) -> dict:
    return {tuple(kept[i] for i in outcome): p for outcome, p in law.items()}


@pytest.mark.parametrize("n_seeds", [1, 2, 3])
def test_fresh_seeds_follow_the_law_of_kmeans_plus_plus(n_seeds: int) -> None:
    observed = draws(n_seeds, lambda model: None)
    assert twins.fits(observed, twins.seeding_law(POINTS, n_seeds))


@pytest.mark.parametrize("gone", [[0], [3], [1, 4]])
def test_seeds_after_forgetting_follow_the_law_of_what_is_left(gone: list[int]) -> None:
    kept = [i for i in range(len(POINTS)) if i not in gone]
    law = relabelled(twins.seeding_law([POINTS[i] for i in kept], 2), kept)
    observed = draws(2, lambda model: model.forget(gone))
    assert twins.fits(observed, law)
    # The test has teeth: the law before forgetting, without the lost outcomes, does not fit.
    before = {o: p for o, p in twins.seeding_law(POINTS, 2).items() if not set(o) & set(gone)}
    unchanged = {o: p / sum(before.values()) for o, p in before.items()}
    assert twins.total_variation(law, unchanged) > Fraction(1, 50)
    assert not twins.fits(observed, unchanged)


def test_seeds_after_learning_follow_the_law_of_everything() -> None:
    X = np.array(POINTS, dtype=float)[:, None]
    outcomes = []
    for run in range(RUNS):
        model = SeededKMeans(2, random_state=run).fit(X[:3])
        model.learn(X[3:], ids=[3, 4])
        outcomes.append(tuple(model.seed_ids_.tolist()))
    assert twins.fits(outcomes, twins.seeding_law(POINTS, 2))


def test_restarting_from_scratch_is_not_exact() -> None:
    """Drawing all seeds again when one is removed gives another law than a fresh fit.

    Points 0, 1 and 3 with two seeds; the record at 3 is removed.  What is left is 0 and 1, so a
    fresh fit starts with 0 or 1 with probability 1/2 each.  Restarting keeps (0, 1) and (1, 0),
    which were not drawn equally often.
    """
    points, gone = [0, 1, 3], 2
    law = twins.seeding_law(points, 2)
    fresh = twins.seeding_law(points[:2], 2)
    lost = sum((p for outcome, p in law.items() if gone in outcome), Fraction(0))
    restarted = {o: p for o, p in law.items() if gone not in o}
    for outcome, p in fresh.items():
        restarted[outcome] = restarted.get(outcome, Fraction(0)) + lost * p
    assert fresh == {(0, 1): Fraction(1, 2), (1, 0): Fraction(1, 2)}
    assert twins.total_variation(restarted, fresh) == Fraction(1, 60)
    # Keeping the seeds before the removed one, as Alg. 3 does, is exact.
    kept = {o: p for o, p in law.items() if gone not in o}
    for outcome, p in law.items():
        if gone in outcome:
            prefix = outcome[: outcome.index(gone)]
            for completed, q in fresh.items():
                if completed[: len(prefix)] == prefix:
                    share = sum(r for o, r in fresh.items() if o[: len(prefix)] == prefix)
                    kept[completed] = kept.get(completed, Fraction(0)) + p * q / share
    assert twins.total_variation(kept, fresh) == 0


class TestCounts:
    """The smallest case in which Alg. 4 as printed forgets to forget: K = 1, {0, 0.4} and {0.8}."""

    RUNS = 400

    def centroids(self, mode: str) -> Counter[float]:
        found: Counter[float] = Counter()
        for run in range(self.RUNS):
            model = FederatedKMeans(
                1,
                bounds=(0, 1),
                step=0.1,
                mode=mode,
                representatives="seeds",
                n_init=1,
                random_state=run,
            )
            model.fit([[0.0], [0.4], [0.8]], clients=["a", "a", "b"], ids=["p", "q", "r"])
            model.forget("q")
            found[round(float(model.cluster_centers_[0, 0]), 12)] += 1
        return found

    def test_exact_mode_gives_what_a_fresh_fit_gives(self) -> None:
        assert self.centroids("exact") == {0.4: self.RUNS}

    def test_paper_mode_is_wrong_half_of_the_time(self) -> None:
        found = self.centroids("paper")
        assert set(found) == {0.4, round(0.8 / 3, 12)}
        assert stats.binomtest(found[0.4], self.RUNS, 0.5).pvalue > twins.ERROR_RATE
