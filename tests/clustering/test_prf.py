"""Keys and clocks: known vectors, slow twins, uniformity."""

from __future__ import annotations

import math
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import twins
from fedforget.clustering import kernels, prf
from fedforget.clustering.prf import (
    Secret,
    keys_of_integers,
    keys_of_messages,
    keys_of_vectors,
)
from fedforget.clustering.siphash import siphash_128

REFERENCE_KEY = Secret(bytes(range(16)))

# From the reference implementation of SipHash: the message is 00 01 02 ... of the given length.
REFERENCE = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    9: "264499060ad9baabc47f8b02bb6d71ed",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}


def key_bytes(low: int, high: int) -> bytes:
    return int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")


@pytest.mark.parametrize(("length", "expected"), REFERENCE.items())
def test_siphash_agrees_with_the_reference_vectors(length: int, expected: str) -> None:
    message = bytes(range(length))
    keys = keys_of_messages(REFERENCE_KEY, message, np.array([0, length]))
    assert key_bytes(keys.low[0], keys.high[0]).hex() == expected
    assert twins.siphash_128(REFERENCE_KEY.data, message).hex() == expected


@given(st.binary(min_size=16, max_size=16), st.lists(st.binary(max_size=300), max_size=8))
def test_siphash_agrees_with_its_twin(key: bytes, messages: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, messages)])
    keys = keys_of_messages(Secret(key), b"".join(messages), offsets)
    found = [key_bytes(low, high) for low, high in zip(*keys, strict=True)]
    assert found == [twins.siphash_128(key, message) for message in messages]


@given(st.integers(-(2**63), 2**63 - 1), st.binary(min_size=1, max_size=1))
def test_the_integer_path_is_siphash_of_tag_and_number(number: int, tag: bytes) -> None:
    keys = keys_of_integers(REFERENCE_KEY, tag, np.array([number], dtype=np.int64))
    message = tag + number.to_bytes(8, "little", signed=True)
    expected = twins.siphash_128(REFERENCE_KEY.data, message)
    assert key_bytes(keys.low[0], keys.high[0]) == expected


def test_vectors_are_hashed_as_little_endian_integers() -> None:
    keys = keys_of_vectors(REFERENCE_KEY, np.array([[1, -2, 3]]))
    message = b"".join(v.to_bytes(8, "little", signed=True) for v in (1, -2, 3))
    expected = twins.siphash_128(REFERENCE_KEY.data, message)
    assert key_bytes(keys.low[0], keys.high[0]) == expected


@given(*[st.integers(0, 2**64 - 1)] * 3)
def test_draws_and_clocks_agree_with_their_twins(key0: int, key1: int, counter: int) -> None:
    bits = int(kernels.draw(np.uint64(key0), np.uint64(key1), np.uint64(counter)))
    assert bits == twins.draw(key0, key1, counter)
    u = kernels.uniform(np.uint64(bits))
    assert u == twins.uniform(bits)
    assert kernels.exponential(u) == twins.exponential(u)


@given(st.integers(0, 2**64 - 1))
def test_the_logarithm_is_accurate_and_never_below_its_screen(bits: int) -> None:
    u = twins.uniform(bits)
    clock = kernels.exponential(u)
    assert clock == pytest.approx(-math.log1p(-u), rel=1e-15)
    assert u <= clock * kernels.SCREEN


@pytest.mark.parametrize("bits", [0, 1, 2**63, 2**64 - 1])
def test_extreme_hashes_give_finite_positive_clocks(bits: int) -> None:
    u = kernels.uniform(np.uint64(bits))
    assert 0.0 < u < 1.0
    assert 0.0 < kernels.exponential(u) < 37.0


def test_clocks_are_exponential_and_independent_over_steps(seed: int) -> None:
    keys = keys_of_integers(Secret(bytes([seed] * 16)), b"i", np.arange(4000))
    clocks = np.array(
        [
            [twins.exponential(twins.uniform(twins.draw(low, high, step))) for step in range(3)]
            for low, high in zip(keys.low.tolist(), keys.high.tolist(), strict=True)
        ]
    )
    # Six tests a seed at 1e-5 each: a right generator fails once in 5,000 runs of three seeds.
    for column in clocks.T:
        assert stats.kstest(column, "expon").pvalue > 1e-5
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert stats.spearmanr(clocks[:, a], clocks[:, b]).pvalue > 1e-5


def test_derived_secrets_differ_by_purpose_and_name() -> None:
    root = Secret(bytes(16))
    derived = {
        root.derive(purpose, name).data
        for purpose, name in (("a", b""), ("a", b"b"), ("ab", b""), ("b", b"a"), ("", b"ab"))
    }
    assert len(derived) == 5


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(b"sixteen bytes!!!")
    assert "sixteen" not in repr(secret)
    with pytest.raises(ValueError, match="16 bytes"):
        Secret(b"short")


@pytest.mark.parametrize(("length", "expected"), REFERENCE.items())
def test_siphash_in_python_agrees_with_the_reference_vectors(length: int, expected: str) -> None:
    low, high = siphash_128(REFERENCE_KEY.data, bytes(range(length)))
    assert key_bytes(low, high).hex() == expected


@given(st.binary(min_size=16, max_size=16), st.lists(st.binary(max_size=40), max_size=5))
def test_keys_are_the_same_without_the_kernels(key: bytes, messages: list[bytes]) -> None:
    secret, data = Secret(key), b"".join(messages)
    offsets = np.cumsum([0, *map(len, messages)], dtype=np.int64)
    numbers = np.array([len(one) - 20 for one in messages], dtype=np.int64) << 58
    compiled = [
        keys_of_messages(secret, data, offsets),
        keys_of_integers(secret, b"f", numbers),
    ]
    with mock.patch.dict(sys.modules):
        sys.modules.pop("numba", None)
        assert prf._in_python(1000)
        assert not prf._in_python(1001)
        found = [keys_of_messages(secret, data, offsets), keys_of_integers(secret, b"f", numbers)]
    for one, other in zip(found, compiled, strict=True):
        assert one.low.tolist() == other.low.tolist()
        assert one.high.tolist() == other.high.tolist()
