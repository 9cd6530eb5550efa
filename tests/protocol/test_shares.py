"""Shamir's sharing: any threshold of shares gives the secret, one fewer says nothing about it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import flint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedforget.protocol.errors import BadShareError
from fedforget.protocol.shares import HASH_BYTES, PRIME, SHARE_BYTES, fingerprint, join, split

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())["shares"]

secrets = st.binary(min_size=32, max_size=32)


def test_the_modulus_is_the_first_prime_that_holds_every_secret() -> None:
    assert flint.fmpz(PRIME).is_prime()
    assert PRIME > 2**256
    assert not any(flint.fmpz(n).is_prime() for n in range(2**256, PRIME))
    assert (PRIME - 1).bit_length() <= 8 * SHARE_BYTES


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["threshold"])
def test_shares_are_the_twin_s(case: dict[str, Any]) -> None:
    randomness = [bytes.fromhex(data) for data in case["randomness"]]
    left = iter(randomness)

    def entropy(size: int) -> bytes:
        data = next(left)
        assert len(data) == size
        return data

    secret, threshold = bytes.fromhex(case["secret"]), case["threshold"]
    shares = split(secret, case["holders"], threshold, entropy)
    assert [share.hex() for share in shares] == case["shares"]
    assert [fingerprint(share).hex() for share in shares] == case["fingerprints"]
    assert next(left, None) is None
    by_holder = dict(zip(case["holders"], shares, strict=True))
    assert join(dict(list(by_holder.items())[-threshold:]), threshold) == secret


@settings(max_examples=30)
@given(secret=secrets, n=st.integers(1, 7), seed=st.integers(0, 10**6), data=st.data())
def test_any_threshold_of_shares_give_the_secret(
    secret: bytes, n: int, seed: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers(1, n))
    random = Random(seed)
    holders = random.sample(range(1, 100_000), n)
    shares = dict(zip(holders, split(secret, holders, threshold, random.randbytes), strict=True))
    for size in range(threshold, n + 1):
        for chosen in combinations(holders, size):
            assert join({x: shares[x] for x in chosen}, threshold) == secret
    for chosen in combinations(holders, threshold - 1):
        with pytest.raises(BadShareError):
            join({x: shares[x] for x in chosen}, threshold)


def through(points: dict[int, int]) -> Callable[[int], int]:
    """The polynomial modulo the prime through some points (Lagrange)."""

    def value(at: int) -> int:
        total = 0
        for x, y in points.items():
            above = below = 1
            for other in points:
                if other != x:
                    above = above * (at - other) % PRIME
                    below = below * (x - other) % PRIME
            total += y * above * pow(below, -1, PRIME)
        return total % PRIME

    return value


@settings(max_examples=40)
@given(secret=secrets, wrong=secrets, threshold=st.integers(2, 9), seed=st.integers(0, 10**6))
def test_one_share_too_few_fits_every_secret(
    secret: bytes, wrong: bytes, threshold: int, seed: int
) -> None:
    """For any other secret there is exactly one polynomial that gives the same t - 1 shares."""
    random = Random(seed)
    holders = random.sample(range(1, 1000), threshold)
    shares = split(secret, holders, threshold, random.randbytes)
    seen = dict(zip(holders[:-1], shares, strict=False))
    points = {x: int.from_bytes(share, "little") for x, share in seen.items()}
    polynomial = through({0: int.from_bytes(wrong, "little"), **points})
    last = polynomial(holders[-1]).to_bytes(SHARE_BYTES, "little")
    assert join({**seen, holders[-1]: last}, threshold) == wrong
    assert (last == shares[-1]) == (wrong == secret)


def test_a_share_alone_looks_uniform() -> None:
    """The same secret, shared often: each holder's shares spread over the field's range."""
    random = Random(3)
    shares = [
        int.from_bytes(split(bytes(32), [5], 3, random.randbytes)[0], "little") for _ in range(2000)
    ]
    assert len(set(shares)) == 2000
    counts = [0] * 16
    for share in shares:
        counts[16 * share // PRIME] += 1
    # Chi-square with 15 degrees of freedom; 60 is passed once in two million times.
    assert sum((count - 125) ** 2 / 125 for count in counts) < 60


def test_shares_of_two_secrets_have_nothing_in_common() -> None:
    random = Random(4)
    one, other = (split(bytes(32), range(1, 6), 3, random.randbytes) for _ in range(2))
    assert not set(one) & set(other)


def test_a_wrong_share_does_not_give_the_secret() -> None:
    random = Random(5)
    secret = random.randbytes(32)
    shares = dict(enumerate(split(secret, range(1, 6), 3, random.randbytes), 1))
    for bit in range(0, 256, 7):
        value = int.from_bytes(shares[2], "little") ^ 1 << bit
        wrong = shares | {2: value.to_bytes(SHARE_BYTES, "little")}
        with contextlib.suppress(BadShareError):
            assert join(wrong, 3) != secret


@pytest.mark.parametrize("value", [PRIME, PRIME + 1, 2**264 - 1])
def test_a_share_outside_the_field_is_refused(value: int) -> None:
    shares = dict(enumerate(split(bytes(32), [1, 2], 2, Random(6).randbytes), 1))
    with pytest.raises(BadShareError):
        join(shares | {1: value.to_bytes(SHARE_BYTES, "little")}, 2)


@pytest.mark.parametrize("secret", range(2**256, PRIME, 37))
def test_a_value_that_is_no_secret_is_refused(secret: int) -> None:
    """The field is a little larger than the secrets: what lies between was never shared."""
    polynomial = through({0: secret, 1: 12345})
    shares = {x: polynomial(x).to_bytes(SHARE_BYTES, "little") for x in (1, 2)}
    with pytest.raises(BadShareError):
        join(shares, 2)


def test_a_share_counts_once() -> None:
    """Holders are keys of a mapping: the same holder cannot stand for two."""
    share = split(bytes(range(32)), [1], 2, Random(7).randbytes)[0]
    with pytest.raises(BadShareError):
        join({1: share}, 2)
    # Under another number it is another share, and gives another secret or none.
    with contextlib.suppress(BadShareError):
        assert join({1: share, 2: share}, 2) != bytes(range(32))


def test_a_fingerprint_tells_shares_apart_and_shows_nothing_of_them() -> None:
    random = Random(8)
    shares = split(random.randbytes(32), range(1, 50), 5, random.randbytes)
    found = [fingerprint(share) for share in shares]
    assert {len(one) for one in found} == {HASH_BYTES}
    assert len(set(found)) == len(shares)
    for share, one in zip(shares, found, strict=True):
        assert one not in share
        flipped = bytes([share[0] ^ 1]) + share[1:]
        assert fingerprint(flipped) != one
