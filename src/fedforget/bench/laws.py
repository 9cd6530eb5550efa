"""Exact laws of small models, by enumeration with fractions: how far is forgetting from retraining?

Records are numbers on a line.  A *law* maps each model that can come out to its probability.  An
unlearning rule is exact if its law equals that of a fresh fit on what is left; their distance is
the total variation, half the sum of the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from fractions import Fraction
from itertools import product
from typing import TypeVar

Point = Fraction
Model = TypeVar("Model", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)
Law = dict[Model, Fraction]
Seeds = tuple[Point, ...]
Redraw = Callable[[Seeds, int, Seeds, Point], "Law[Seeds]"]


def total_variation(one: Mapping[Model, Fraction], two: Mapping[Model, Fraction]) -> Fraction:
    """Half the sum of |P − Q|.

    >>> total_variation({"a": Fraction(1, 2), "b": Fraction(1, 2)}, {"a": Fraction(1)})
    Fraction(1, 2)
    """
    zero = Fraction(0)
    models = {**one, **two}
    return sum((abs(one.get(m, zero) - two.get(m, zero)) for m in models), zero) / 2


def mixed(parts: Iterable[tuple[Fraction, Law[Model]]]) -> Law[Model]:
    """The law of a draw from laws that are themselves drawn."""
    result: Law[Model] = {}
    for weight, law in parts:
        for model, chance in law.items():
            result[model] = result.get(model, Fraction(0)) + weight * chance
    return result


def mapped(law: Law[Model], function: Callable[[Model], Other]) -> Law[Other]:
    """The law of a function of a random model."""
    return mixed((chance, {function(model): Fraction(1)}) for model, chance in law.items())


# -- one owner -------------------------------------------------------------------------------------


def seedings(points: Seeds, k: int, prefix: Seeds = ()) -> Law[Seeds]:
    """K-means++ seeds in the order of drawing, after those of ``prefix``.

    >>> seedings((Fraction(0), Fraction(1)), 1) == {(0,): Fraction(1, 2), (1,): Fraction(1, 2)}
    True
    """
    if len(prefix) == k:
        return {prefix: Fraction(1)}
    rates = {
        point: min(((point - seed) ** 2 for seed in prefix), default=Fraction(1))
        for point in points
    }
    total = sum(rates.values(), Fraction(0))
    if total == 0:
        return {prefix: Fraction(1)}
    return mixed(
        (rate / total, seedings(points, k, (*prefix, point)))
        for point, rate in rates.items()
        if rate
    )


def keeping_the_prefix(points: Seeds, k: int, before: Seeds, victim: Point) -> Law[Seeds]:
    """Alg. 3: the seeds drawn before the removed one stand, the others are drawn again."""
    return seedings(points, k, before[: before.index(victim)])


def starting_over(points: Seeds, k: int, before: Seeds, victim: Point) -> Law[Seeds]:
    """The authors' code: where a seed is removed, all seeds are drawn again."""
    return seedings(points, k)


def after_forgetting(
    points: Seeds,
    k: int,
    victim: Point,
    redraw: Redraw,
) -> Law[Seeds]:
    """The law of the seeds after a removal; ``redraw`` says what happens if a seed is hit."""
    left = tuple(point for point in points if point != victim)
    return mixed(
        (chance, redraw(left, k, seeds, victim) if victim in seeds else {seeds: Fraction(1)})
        for seeds, chance in seedings(points, k).items()
    )


# -- a federation with one cluster -----------------------------------------------------------------


def federated_mean(clients: tuple[Seeds, ...]) -> Law[Point]:
    """K = 1: every client reports one seed and its size; the server takes the weighted mean."""
    return mixed(
        _mean_of(choice, clients) for choice in product(*(seedings(c, 1).items() for c in clients))
    )


def federated_mean_after(
    clients: tuple[Seeds, ...], victim: Point, *, counts_follow: bool
) -> Law[Point]:
    """The same after a removal, if sizes follow every removal, or only a re-seed (Alg. 4)."""
    left = tuple(tuple(point for point in one if point != victim) for one in clients)
    parts = []
    for choice in product(*(seedings(one, 1).items() for one in clients)):
        chance, sizes = Fraction(1), []
        redrawn: list[Law[Seeds]] = []
        for (seed, own), before, after in zip(choice, clients, left, strict=True):
            chance *= own
            hit = seed == (victim,)
            redrawn.append(seedings(after, 1) if hit else {seed: Fraction(1)})
            sizes.append(len(after) if hit or counts_follow else len(before))
        for drawn in product(*(law.items() for law in redrawn)):
            weight = chance
            total = Fraction(0)
            for (seed, own), size in zip(drawn, sizes, strict=True):
                weight *= own
                total += seed[0] * size
            parts.append((weight, {total / sum(sizes): Fraction(1)}))
    return mixed(parts)


def _mean_of(
    choice: tuple[tuple[Seeds, Fraction], ...], clients: tuple[Seeds, ...]
) -> tuple[Fraction, Law[Point]]:
    weight, total = Fraction(1), Fraction(0)
    for (seed, own), one in zip(choice, clients, strict=True):
        weight *= own
        total += seed[0] * len(one)
    return weight, {total / sum(map(len, clients)): Fraction(1)}


# -- the baselines ---------------------------------------------------------------------------------


def lloyd(points: Seeds, centres: Seeds) -> Seeds:
    """Lloyd's iteration to its end; centres ascending, ties to the smaller."""
    while True:
        groups: dict[Point, list[Point]] = {}
        for point in points:
            nearest = min(sorted(centres), key=lambda centre: (point - centre) ** 2)
            groups.setdefault(nearest, []).append(point)
        moved = tuple(sorted(sum(group, Fraction(0)) / len(group) for group in groups.values()))
        if moved == tuple(sorted(centres)):
            return moved
        centres = moved


def dc_k_means(clients: tuple[Seeds, ...], k: int) -> Law[tuple[Seeds, ...]]:
    """Root first, then the leaves; every node draws its own seeds."""
    leaves = [_leaf(one, k) for one in clients]
    return mixed(
        _tree(tuple(leaf for leaf, _ in choice), [own for _, own in choice], k)
        for choice in product(*(law.items() for law in leaves))
    )


def dc_k_means_after(clients: tuple[Seeds, ...], k: int, victim: Point) -> Law[tuple[Seeds, ...]]:
    """The touched leaf and the root are drawn again, the other leaves stand."""
    left = tuple(tuple(point for point in one if point != victim) for one in clients)
    parts = []
    for tree, chance in dc_k_means(clients, k).items():
        redrawn = [
            {leaf: Fraction(1)} if before == after else _leaf(after, k)
            for leaf, before, after in zip(tree[1:], clients, left, strict=True)
        ]
        for choice in product(*(law.items() for law in redrawn)):
            weight, law = _tree(tuple(leaf for leaf, _ in choice), [own for _, own in choice], k)
            parts.append((chance * weight, law))
    return mixed(parts)


def _leaf(points: Seeds, k: int) -> Law[Seeds]:
    return mapped(seedings(points, k), lambda seeds: lloyd(points, seeds))


def _tree(
    leaves: tuple[Seeds, ...], chances: list[Fraction], k: int
) -> tuple[Fraction, Law[tuple[Seeds, ...]]]:
    weight = Fraction(1)
    for chance in chances:
        weight *= chance
    points = tuple(centre for leaf in leaves for centre in leaf)
    roots = mapped(_weighted_seedings(points, k), lambda seeds: lloyd(points, seeds))
    return weight, mapped(roots, lambda root: (root, *leaves))


def _weighted_seedings(points: Seeds, k: int, prefix: Seeds = ()) -> Law[Seeds]:
    """Seeds among points of which some may be equal."""
    if len(prefix) == k:
        return {prefix: Fraction(1)}
    rates = [min(((p - seed) ** 2 for seed in prefix), default=Fraction(1)) for p in points]
    total = sum(rates, Fraction(0))
    if total == 0:
        return {prefix: Fraction(1)}
    return mixed(
        (rate / total, _weighted_seedings(points, k, (*prefix, point)))
        for point, rate in zip(points, rates, strict=True)
        if rate
    )


def q_k_means(points: Seeds, k: int, epsilon: Fraction, phases: int) -> Law[Seeds]:
    """One quantised Lloyd step from random seeds, on a lattice with one of ``phases`` phases."""
    return mixed(
        (
            chance / phases,
            {_quantised(points, seeds, epsilon, Fraction(phase, phases)): Fraction(1)},
        )
        for seeds, chance in seedings(points, k).items()
        for phase in range(phases)
    )


def q_k_means_after(
    points: Seeds, k: int, victim: Point, epsilon: Fraction, phases: int
) -> Law[Seeds]:
    """Kept while the quantised centres stand; else, and if a seed is hit, trained afresh."""
    left = tuple(point for point in points if point != victim)
    fresh = q_k_means(left, k, epsilon, phases)
    parts: list[tuple[Fraction, Law[Seeds]]] = []
    for seeds, chance in seedings(points, k).items():
        for number in range(phases):
            phase = Fraction(number, phases)
            model = _quantised(points, seeds, epsilon, phase)
            stands = victim not in seeds and model == _quantised(left, seeds, epsilon, phase)
            parts.append((chance / phases, {model: Fraction(1)} if stands else fresh))
    return mixed(parts)


def _quantised(points: Seeds, seeds: Seeds, epsilon: Fraction, phase: Fraction) -> Seeds:
    groups: dict[Point, list[Point]] = {seed: [] for seed in seeds}
    for point in points:
        groups[min(sorted(seeds), key=lambda seed: (point - seed) ** 2)].append(point)
    means = (sum(group, Fraction(0)) / len(group) for group in groups.values() if group)
    return tuple(sorted(epsilon * (round(mean / epsilon - phase) + phase) for mean in means))
