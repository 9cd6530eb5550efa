"""What the rows and charts of a page are made of."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedforget.cli.charts import (
    MARK_RADIUS,
    NARROW,
    WIDE,
    Cluster,
    Column,
    Label,
    columns,
    fitting,
    loss_curve,
    place_marks,
    strip,
)
from fedforget.cli.log_rows import presences, rounds_of
from fedforget.cli.pictures import MOST_FEATURES, ordered_features, separations, spread_around
from fedforget.pages.templates import macro
from fedforget.parties.federation_file import Feature


def entry(title: str, **body: Any) -> dict[str, Any]:
    return {"kind": title, "time": "2030-03-02T02:30:00+00:00", "body": body}


def epoch(*names: str, **more: Any) -> dict[str, Any]:
    return entry("epoch", epoch=1, members={name: f"key of {name}" for name in names}, **more)


def committed(number: int, *names: str, **more: Any) -> dict[str, Any]:
    return entry("round", round=number, kind="delta", participants=list(names), **more)


# -- who was there ---------------------------------------------------------------------------------


def test_absentees_are_those_on_the_list_at_that_time() -> None:
    log = [
        epoch("a", "b", "c"),
        committed(1, "a", "b", "c"),
        committed(2, "a", "b"),
        epoch("a", "b", "c", "d", suspended=["b"]),
        committed(3, "a", "d"),
    ]
    rows = rounds_of(log)
    assert [row.absent for row in rows] == [(), ("c",), ("c",)]
    assert [row.expected for row in rows] == [3, 3, 3]
    assert [row.date for row in rows] == ["2 Mar"] * 3


def test_whoever_has_left_is_not_missing() -> None:
    log = [
        epoch("a", "b", "c", "d"),
        committed(1, "a", "b", "c", "d"),
        committed(2, "a", "b", "c", "d", left=["d"]),
        committed(3, "a", "b", "c"),
    ]
    assert rounds_of(log)[-1].absent == ()
    back = entry(
        "epoch", epoch=2, members={"a": "key of a", "b": "key of b", "c": "key of c", "d": "new"}
    )
    assert rounds_of([*log, back, committed(4, "a", "b", "c")])[-1].absent == ("d",)


def test_when_a_member_took_part_last() -> None:
    log = [
        epoch("a", "b"),
        committed(1, "a", "b"),
        committed(2, "a"),
        epoch("a", "b", "c"),
        committed(3, "a"),
    ]
    found = presences(["a", "b", "c"], rounds_of(log))
    assert [found[name].round for name in "abc"] == [3, 1, None]
    assert [found[name].time is None for name in "abc"] == [False, False, True]


# -- labels keep apart -----------------------------------------------------------------------------


def span(label: Label, width: float) -> tuple[float, float]:
    length, place = 7.2 * len(label.text), label.place * width / 100
    left = {"start": place, "middle": place - length / 2, "end": place - length}[label.anchor]
    return left, left + length


@given(st.lists(st.text("0123456789,", max_size=9), max_size=120), st.data())
def test_labels_of_a_row_never_touch(texts: list[str], data: st.DataObject) -> None:
    slot = 100 / max(12, len(texts))
    found = fitting(texts, [slot * (at + 0.5) for at in range(len(texts))])
    width = data.draw(st.floats(NARROW, 2000))
    shown = [one for one in found.values() if width >= WIDE or not one.roomy]
    spans = sorted(span(one, width) for one in shown)
    assert all(one[1] < other[0] for one, other in pairwise(spans))
    assert all(left >= -0.01 and right <= width + 0.01 for left, right in spans)
    if any(texts):
        last = max(at for at, text in enumerate(texts) if text)
        assert not found[last].roomy


def test_a_date_is_written_once_a_day() -> None:
    shown = [Column(3, str(at), "2 Mar" if at < 3 else "3 Mar", "c0") for at in range(5)]
    dates = [label.text for label in columns("title", shown).rows[1]]
    assert dates == ["2 Mar", "3 Mar"]


def test_what_is_missing_is_drawn_pale() -> None:
    shown = [Column(3, "1", "2 Mar", "c0", missing=1), Column(4, "2", "2 Mar", "c0")]
    chart = columns("Members who took part", shown)
    assert [bar.missing > 0 for bar in chart.bars] == [True, False]
    tops = [bar.top - bar.missing for bar in chart.bars]
    assert tops[0] == pytest.approx(tops[1])
    assert macro("charts.html", "columns")(chart).count('class="lacking"') == 1


Box = tuple[float, float, float, float]


def size_box(place: tuple[float, float, str], text: str) -> Box:
    """Where a size is on a phone, at 17 units a line: half as wide as high for each character."""
    x, y, anchor = place
    wide = 9.5 * len(text)
    left = {"start": x, "middle": x - wide / 2, "end": x - wide}[anchor]
    return left, y - 8.5, left + wide, y + 8.5


def meet(one: Box, other: Box) -> bool:
    across = min(one[2], other[2]) - max(one[0], other[0])
    return across > 0 and min(one[3], other[3]) > max(one[1], other[1])


@given(
    st.lists(st.tuples(st.floats(36, 524), st.floats(36, 184)), min_size=1, max_size=60),
    st.integers(0, 10**7),
)
def test_marks_and_sizes_never_cover_each_other(
    centres: list[tuple[float, float]], size: int
) -> None:
    clusters = [Cluster(number, size) for number in range(len(centres))]
    marks = place_marks(centres, clusters, 560.0, 220.0)
    numbered = [one for one in marks if one.numbered]
    for at, one in enumerate(numbered):
        for other in numbered[at + 1 :]:
            assert np.hypot(one.x - other.x, one.y - other.y) >= 2 * MARK_RADIUS
    assert [(one.at_x, one.at_y) for one in marks] == centres
    circles = [
        (one.x - MARK_RADIUS, one.y - MARK_RADIUS, one.x + MARK_RADIUS, one.y + MARK_RADIUS)
        for one in numbered
    ]
    sizes = [size_box(one.size_at, f"{size:,}") for one in marks if one.size_at is not None]
    for at, one in enumerate(sizes):
        assert one[0] >= 0
        assert one[2] <= 560
        assert not any(meet(one, other) for other in (*circles, *sizes[at + 1 :]))
    if len(centres) == 1:
        assert not marks[0].moved
        assert marks[0].size_at is not None
    if len(centres) > 12:
        assert all(one.size_at is None for one in marks)


def test_too_many_marks_for_the_paper_lose_their_numbers() -> None:
    clusters = [Cluster(number, 9) for number in range(300)]
    marks = place_marks([(280.0, 110.0)] * 300, clusters, 560.0, 220.0)
    assert marks[0].numbered
    assert not all(one.numbered for one in marks)


def test_a_curve_marks_the_number_in_force() -> None:
    found = loss_curve([(4, 2.0), (2, 10.0), (3, 5.0)], chosen=3)
    assert [one.n_clusters for one in found.points] == [2, 3, 4]
    assert [one.chosen for one in found.points] == [False, True, False]
    assert found.points[0].y < found.points[1].y < found.points[2].y
    drawn = macro("charts.html", "curve")(found)
    assert drawn.count("<circle") == 3
    assert drawn.count("point chosen") == 1
    assert re.search(r"3 clusters: loss 5<", drawn)


# -- features and spread ---------------------------------------------------------------------------


def test_features_that_separate_clusters_come_first() -> None:
    features = [Feature(f"f{at}", 0.0, 10.0 ** (at % 3)) for at in range(30)]
    centres = np.zeros((2, 30))
    centres[1, 17] = 50.0  # half of its range of 100
    centres[1, 3] = 0.9  # nearly all of its range of 1
    centres[1, 4] = 0.9  # a little of its range of 10
    order, shown = ordered_features(features, centres, [10, 10])
    assert order[:3] == [3, 17, 4]
    assert sorted(order) == list(range(30))
    assert shown == MOST_FEATURES
    assert ordered_features(features[:5], centres[:, :5], [1, 1]) == ([0, 1, 2, 3, 4], 5)


def test_a_feature_without_a_range_separates_nothing() -> None:
    found = separations([Feature("x", 5.0, 5.0)], np.array([[5.0], [5.0]]), [0, 0])
    assert found.tolist() == [0.0]


def test_the_spread_is_that_of_the_repeated_points(rng: np.random.Generator) -> None:
    values, weights = rng.normal(size=(50, 3)), rng.integers(1, 5, 50)
    labels = rng.integers(-1, 3, 50).astype(np.int32)
    found = spread_around(values, weights, labels, 4)
    for number in range(3):
        here = labels == number
        repeated = np.repeat(values[here], weights[here], axis=0)
        np.testing.assert_allclose(found[number], repeated.std(axis=0))
    assert not found[3].any()


def test_a_strip_shows_how_far_clusters_reach() -> None:
    chart = strip("x", 0.0, 10.0, [5.0, 9.5], [Cluster(0, 5), Cluster(1, 5)], [1.0, 2.0])
    assert [one.reach for one in chart.dots] == [(40.0, 60.0), (75.0, 100.0)]
    assert macro("charts.html", "strip")(chart).count('class="reach') == 2
