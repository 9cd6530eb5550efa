"""The table that SCMA is compared with, and the lengths of all codes, against counting by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from fedforget.bench.codes import compare, dense_bits, information_bound, literal_bits
from fedforget.bench.iblt import Iblt, decodes
from fedforget.scma import DecodeError
from fedforget.scma.literal import LiteralScheme


@pytest.mark.parametrize(("n_bins", "capacity", "n"), [(4, 2, 3), (6, 6, 4), (5, 9, 9), (7, 3, 1)])
def test_the_information_bound_counts_the_paper_s_sum(n_bins: int, capacity: int, n: int) -> None:
    """Supports are enumerated, and to each the paper's C(n, k - 1) is counted."""
    ways = sum(
        math.comb(n, len(support) - 1)
        for k in range(1, capacity + 1)
        for support in combinations(range(n_bins), k)
    )
    assert 2.0 ** information_bound(n_bins, capacity, n) == pytest.approx(ways)


def test_the_information_bound_at_shapes_beyond_floats() -> None:
    bound = information_bound(193**784, 6200, 36_725)
    assert bound == pytest.approx(6200 * 784 * math.log2(193), rel=0.02)


def test_lengths_by_hand() -> None:
    assert dense_bits(4, 12) == 16
    assert literal_bits(4, 4, 12) == 2 * 4 * 4
    assert literal_bits(110**10, 400, 12_009) == LiteralScheme(110**10, 400, 12_009).bits


def test_a_table_gives_back_what_was_put_in(rng: np.random.Generator) -> None:
    for n_features in (1, 3, 40):
        table = Iblt([50] * n_features, 30, salt=b"test", overhead=3.0)
        bins = np.unique(rng.integers(0, 50, (20, n_features)), axis=0)
        counts = rng.integers(1, 9, len(bins))
        one = table.encode(bins[:7], counts[:7])
        two = table.encode(bins[5:], counts[5:])
        found, numbers = table.decode(table.add(one, two))
        expected = counts.copy()
        expected[5:7] *= 2
        assert (found == bins).all()
        assert (numbers == expected).all()
        assert table.encode(bins, counts).size == table.length


def test_what_cancels_is_gone() -> None:
    table = Iblt([9, 9], 5, salt=b"test")
    one = table.encode([[1, 2], [3, 4]], [5, 6])
    back = table.encode([[1, 2]], [-5])
    bins, counts = table.decode(table.add(one, back))
    assert bins.tolist() == [[3, 4]]
    assert counts.tolist() == [6]
    empty = table.decode(table.add(one, table.encode([[1, 2], [3, 4]], [-5, -6])))
    assert empty[0].shape == (0, 2)


def test_a_table_that_is_too_full_is_refused(rng: np.random.Generator) -> None:
    table = Iblt([1000, 1000], 10, salt=b"test")
    full = table.encode(rng.integers(0, 1000, (60, 2)), np.ones(60, dtype=np.int64))
    with pytest.raises(DecodeError):
        table.decode(full)
    assert not decodes(table, full)


def test_all_codes_at_one_shape() -> None:
    found = compare(n_features=2, n_clients=5, k=2, levels=20, n_records=50, literal=True)
    bits = found["bits"]
    assert bits["bound"] <= min(bits["SCMA"], bits["Alg. 2"], bits["IBLT"])
    assert bits["dense"] == pytest.approx(math.log2(400 * 6))
    assert set(found["seconds"]) == {"SCMA", "IBLT", "Alg. 2", "dense"}
    assert found["iblt_decoded"] > 0.0
