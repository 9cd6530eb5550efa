"""Histograms are sparse multisets."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedforget.clustering.histogram import Histogram

POINTS = st.tuples(st.integers(0, 3), st.integers(0, 2**33))
MULTISETS = st.lists(st.tuples(POINTS, st.integers(-5, 10**12)), max_size=12)


def histogram(entries: list[tuple[tuple[int, int], int]]) -> Histogram:
    points = np.array([point for point, _ in entries], dtype=np.int64).reshape(-1, 2)
    return Histogram.of(points, np.array([count for _, count in entries], dtype=np.int64))


def counter(entries: list[tuple[tuple[int, int], int]]) -> Counter[tuple[int, int]]:
    total: Counter[tuple[int, int]] = Counter()
    for point, count in entries:
        total[point] += count
    return Counter({point: count for point, count in total.items() if count})


def as_dict(h: Histogram) -> dict[tuple[int, ...], int]:
    return {tuple(p): c for p, c in zip(h.points().tolist(), h.counts().tolist(), strict=True)}


@given(MULTISETS, MULTISETS)
def test_sums_and_differences_are_those_of_multisets(one: list, other: list) -> None:
    a, b = histogram(one), histogram(other)
    assert as_dict(a + b) == counter(one + other)
    assert as_dict(a - b) == counter(one + [(point, -count) for point, count in other])
    assert a + b - b == a
    assert (a - a).total == len(a - a) == 0
    assert Histogram.sum(2, [a, b]) == b + a


@given(MULTISETS, st.randoms())
def test_the_order_is_canonical(entries: list, random: object) -> None:
    one = histogram(entries)
    random.shuffle(entries)  # type: ignore[attr-defined]
    other = histogram(entries)
    assert one.points().tobytes() == other.points().tobytes()
    assert one.counts().tobytes() == other.counts().tobytes()
    assert one.points().tolist() == sorted(one.points().tolist())


def test_an_empty_histogram_keeps_its_dimension() -> None:
    empty = Histogram(3)
    assert empty.points().shape == (0, 3)
    assert empty.counts().shape == (0,)
    assert empty == Histogram(3) != Histogram(2)
    assert repr(empty) == "Histogram(0 points, total 0)"
