"""Ids: parsing, canonical encoding, and the index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import twins
from fedforget.clustering.ids import IdIndex, encode_id, keys_of_ids, name_some, parse_ids
from fedforget.clustering.prf import Secret

SECRET = Secret(bytes(range(16)))


@pytest.mark.parametrize(
    ("given_ids", "expected"),
    [
        ([3, 1], np.array([3, 1])),
        ((np.int32(3), 1), np.array([3, 1])),
        (np.array([3, 1], dtype=np.uint8), np.array([3, 1])),
        (range(2), np.array([0, 1])),
        (["b", "a"], np.array(["b", "a"])),
        (np.array(["b", "a"], dtype=object), np.array(["b", "a"])),
        (np.array(["b", "a"], dtype=np.dtypes.StringDType()), np.array(["b", "a"])),
        ("solo", np.array(["solo"])),
        (7, np.array([7])),
        ([], np.array([], dtype=np.int64)),
    ],
)
def test_ids_become_integers_or_strings(given_ids: object, expected: np.ndarray) -> None:
    parsed = parse_ids(given_ids)
    assert parsed.dtype.kind == expected.dtype.kind
    assert parsed.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ([1, "a"], ValueError, "mixed type"),
        (["a", None], ValueError, "mixed type"),
        ([1.0], TypeError, "position 0 holds 1.0"),
        ([True], TypeError, "bool"),
        (np.array([1.5]), TypeError, "float64"),
        (np.array([True]), TypeError, "bool"),
        ([None], TypeError, "NoneType"),
        ([b"x"], TypeError, "bytes"),
        ([2**63], ValueError, "64 signed bits"),
        (np.array([2**64 - 1], dtype=np.uint64), ValueError, "64 signed bits"),
        ([""], ValueError, "empty string"),
        (["a\0"], ValueError, "NUL"),
        (["\ud800"], ValueError, "unicode"),
        (np.zeros((2, 2), dtype=int), ValueError, "one-dimensional"),
    ],
)
def test_other_ids_are_refused(bad: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_ids(bad)


def test_an_integer_and_its_decimal_text_are_one_id() -> None:
    assert encode_id(-17) == encode_id("-17") == b"i" + (-17).to_bytes(8, "little", signed=True)
    for other in ("017", "+17", "17.0", " 17", "-0", "9223372036854775808", "１７"):
        assert encode_id(other).startswith(b"s")


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(min_size=1)), max_size=10))
def test_keys_are_the_hash_of_the_encoding(values: list[int | str]) -> None:
    for value in values:
        if isinstance(value, str):
            try:
                ids = parse_ids([value])
            except ValueError:
                continue
        else:
            ids = parse_ids([value])
        keys = keys_of_ids(SECRET, ids)
        found = int(keys.low[0]).to_bytes(8, "little") + int(keys.high[0]).to_bytes(8, "little")
        assert found == twins.siphash_128(SECRET.data, encode_id(ids.tolist()[0]))


@given(st.lists(st.text(min_size=1, alphabet=st.characters(codec="utf-8")), unique=True))
def test_encodings_of_different_ids_differ(texts: list[str]) -> None:
    assert len({encode_id(text) for text in texts}) == len(texts)


def test_messages_name_at_most_five() -> None:
    assert name_some(["a", "b"]) == "'a', 'b'"
    assert name_some(np.arange(7)) == "0, 1, 2, 3, 4 and 2 more"


class IndexMachine(RuleBasedStateMachine):
    """The index behaves like a dictionary, however keys are put and dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.index = IdIndex()
        self.model: dict[int, int] = {}

    @rule(numbers=st.lists(st.integers(0, 60), unique=True, max_size=40), base=st.integers(0, 1000))
    def put(self, numbers: list[int], base: int) -> None:
        ids = np.array(numbers, dtype=np.int64)
        fresh = self.index.put(keys_of_ids(SECRET, ids), ids + base)
        assert fresh.tolist() == [number not in self.model for number in numbers]
        self.model.update({number: number + base for number in numbers})

    @rule(numbers=st.sets(st.integers(0, 60), max_size=40))
    def drop(self, numbers: set[int]) -> None:
        present = np.array(sorted(numbers & self.model.keys()), dtype=np.int64)
        self.index.drop(keys_of_ids(SECRET, present))
        for number in present.tolist():
            del self.model[number]

    @invariant()
    def same_as_the_dictionary(self) -> None:
        everything = np.arange(61)
        found = self.index.find(keys_of_ids(SECRET, everything))
        assert found.tolist() == [self.model.get(i, -1) for i in range(61)]
        assert len(self.index) == len(self.model)


TestIndex = IndexMachine.TestCase


def test_a_dropped_key_leaves_nothing_behind() -> None:
    index = IdIndex()
    ids = np.arange(200)
    keys = keys_of_ids(SECRET, ids)
    index.put(keys, ids)
    index.drop(keys)
    assert not index._low.any()
    assert not index._high.any()
    assert (index._handles == -1).all()
