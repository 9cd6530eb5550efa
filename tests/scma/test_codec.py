"""The code against its slow twin, its published vectors, and its own laws."""

from __future__ import annotations

import contextlib
import json
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scma_twins as twins
from fedforget import scma
from fedforget.arrays import Elements
from fedforget.scma import Cause, Codec, DecodeError
from fedforget.scma import codec as codec_module
from fedforget.scma.literal import DeterministicScheme, LiteralScheme
from scma_twins import P, TwinCodec

SALT = b"a public salt"
VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())["cases"]


def encoded(codec: Codec, multiset: twins.Multiset) -> Elements:
    return codec.encode(list(multiset), list(multiset.values()))


def decoded(codec: Codec, vector: Elements) -> twins.Multiset:
    bins, counts = codec.decode(vector)
    return dict(zip(map(tuple, bins.tolist()), counts.tolist(), strict=True))


# -- the twin ----------------------------------------------------------------------------------


@st.composite
def small_codes(draw: st.DrawFn) -> tuple[dict[str, Any], list[twins.Multiset]]:
    levels = draw(
        st.lists(st.sampled_from([1, 2, 3, 193, 10**6, 2**32 - 1, 2**40]), min_size=1, max_size=6)
    )
    capacity = draw(st.integers(1, 5))
    signed = draw(st.booleans())
    bins = [tuple(draw(st.integers(0, level - 1)) for level in levels) for _ in range(capacity)]
    counts = st.integers(-(2**40) if signed else 1, 2**40)
    multisets = draw(st.lists(st.dictionaries(st.sampled_from(bins), counts), max_size=4))
    code = {"levels": levels, "capacity": capacity, "salt": draw(st.binary(max_size=70)),
            "spare": draw(st.integers(0, 3)), "signed": signed}  # fmt: skip
    return code, multisets


@settings(max_examples=80, deadline=None)
@given(code=small_codes())
def test_encodings_and_sums_are_the_twin_s(
    code: tuple[dict[str, Any], list[twins.Multiset]],
) -> None:
    parameters, multisets = code
    codec, twin = Codec(**parameters), TwinCodec(**parameters)
    assert codec.digest == twin.digest
    total = np.zeros(codec.length, dtype=np.uint64)
    for multiset in multisets:
        vector = encoded(codec, multiset)
        assert vector.tolist() == twin.encode(multiset)
        total = scma.add(total, vector)
    assert decoded(codec, total) == twin.decode(total.tolist()) == twins.total_of(multisets)


@settings(max_examples=80, deadline=None)
@given(code=small_codes(), data=st.data())
def test_whatever_the_twin_refuses_is_refused_for_the_same_cause(
    code: tuple[dict[str, Any], list[twins.Multiset]], data: st.DataObject
) -> None:
    parameters, multisets = code
    codec, twin = Codec(**parameters), TwinCodec(**parameters)
    vector = np.array(twin.encode(twins.total_of(multisets)), dtype=np.uint64)
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, codec.length - 1))
        vector[at] = data.draw(
            st.one_of(st.integers(0, P - 1), st.sampled_from([0, 1, P, 2**64 - 1]))
        )
    try:
        expected: object = twin.decode(vector.tolist())
    except twins.Refused as refused:
        expected = refused.args[0]
    try:
        found: object = decoded(codec, vector)
    except DecodeError as error:
        found = str(error.cause)
    assert found == expected


@pytest.mark.parametrize("n_features", [50, 784, 1000])
@pytest.mark.parametrize("capacity", [1, 3, 12])
def test_long_indices_are_the_twin_s(
    n_features: int, capacity: int, rng: np.random.Generator
) -> None:
    levels = rng.choice([1, 2, 193, 10**6], n_features).tolist()
    codec = Codec(levels, capacity, salt=SALT)
    twin = TwinCodec(levels, capacity, salt=SALT)
    bins = [tuple(row) for row in rng.integers(0, levels, (capacity, n_features)).tolist()]
    multiset = dict(zip(bins, rng.integers(1, 2**40, capacity).tolist(), strict=True))
    vector = encoded(codec, multiset)
    assert vector.tolist() == twin.encode(multiset)
    assert decoded(codec, vector) == multiset == twin.decode(vector.tolist())


@pytest.mark.parametrize("n", [1001, 1500])
def test_many_bins_are_encoded_as_few_are(
    n: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above a thousand bins the sums are computed another way."""
    codec = Codec([10**6] * 5, n, salt=SALT)
    bins, counts = rng.integers(0, 10**6, (n, 5)), rng.integers(-9, 9, n)
    vector = codec.encode(bins, counts)
    monkeypatch.setattr(codec_module, "_FEW", 10**9)
    assert codec.encode(bins, counts).tobytes() == vector.tobytes()


# -- vectors -----------------------------------------------------------------------------------


@pytest.fixture(params=VECTORS, ids=lambda case: case["name"])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    case: dict[str, Any] = request.param
    return case


@pytest.fixture
def published(case: dict[str, Any]) -> Codec:
    return Codec(
        case["levels"],
        case["capacity"],
        salt=bytes.fromhex(case["salt"]),
        spare=case["spare"],
        signed=case["signed"],
    )


def test_published_encodings(case: dict[str, Any], published: Codec) -> None:
    assert published.digest.hex() == case["digest"]
    for client, expected in zip(case["clients"], case["encodings"], strict=True):
        bins, counts = zip(*client, strict=True)
        assert published.encode(bins, counts).tolist() == expected


def test_published_sums(case: dict[str, Any], published: Codec) -> None:
    total = reduce(scma.add, (np.array(one, dtype=np.uint64) for one in case["encodings"]))
    bins, counts = published.decode(total)
    assert [
        [bin_, count] for bin_, count in zip(bins.tolist(), counts.tolist(), strict=True)
    ] == case["decoded"]
    assert published.pack(total).hex() == case["packed"]
    assert published.unpack(bytes.fromhex(case["packed"])).tobytes() == total.tobytes()


def test_published_refusals(case: dict[str, Any], published: Codec) -> None:
    for refused in case["refused"]:
        with pytest.raises(DecodeError) as caught:
            published.decode(np.array(refused["vector"], dtype=np.uint64))
        assert caught.value.cause == refused["cause"]


# -- why there are check sums ------------------------------------------------------------------


def forged_words(codec: Codec, right: Elements, rng: np.random.Generator) -> Elements:
    """Another word, chosen so that the word sums still fit the one locator."""
    vector = right.copy()
    first, n_sums = 2 * codec.capacity + codec.spare, codec.capacity + codec.spare
    count = int(right[0])
    locator = int(right[1]) * pow(count, -1, P) % P
    word = int(rng.integers(0, 2**61))
    vector[first : first + n_sums] = [count * word * pow(locator, i, P) % P for i in range(n_sums)]
    return vector


def test_check_sums_refuse_what_no_other_equation_does(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = Codec([2**20] * 6, 1, salt=SALT)
    right = encoded(codec, {(5,) * 6: 3})
    forgeries = [forged_words(codec, right, rng) for _ in range(300)]
    for vector in forgeries:
        with pytest.raises(DecodeError):
            codec.decode(vector)
    monkeypatch.setattr(codec, "_check_sums", lambda words, counts: right[-2:])
    wrong = 0
    for vector in forgeries:
        with contextlib.suppress(DecodeError):
            wrong += decoded(codec, vector) != {(5,) * 6: 3}
    assert wrong > 0


# -- growing -----------------------------------------------------------------------------------


def test_a_capacity_doubles_up_to_the_full_one(rng: np.random.Generator) -> None:
    bins = rng.permutation(10_000)[:100, np.newaxis]
    counts = np.ones(100, dtype=np.int64)
    tried, capacity = [], 16
    while True:
        codec = Codec([10_000], 1, salt=SALT).with_capacity(capacity)
        tried.append(capacity)
        try:
            found, _ = codec.decode(codec.encode(bins, counts))
            break
        except DecodeError as error:
            capacity = scma.next_capacity(error, capacity, 100)
    assert tried == [16, 32, 64, 100]
    assert np.array_equal(found, np.sort(bins, axis=0))


def test_failure_at_the_full_capacity_means_corruption() -> None:
    with pytest.raises(DecodeError, match="full capacity of 100") as caught:
        scma.next_capacity(DecodeError(Cause.CAPACITY, "too many"), 100, 100)
    assert caught.value.cause is Cause.CORRUPTED


@pytest.mark.parametrize("cause", [Cause.CORRUPTED, Cause.RANGE])
def test_more_capacity_does_not_mend_corruption(cause: Cause) -> None:
    error = DecodeError(cause, "broken")
    with pytest.raises(DecodeError) as caught:
        scma.next_capacity(error, 16, 100)
    assert caught.value is error


def test_a_bin_has_the_same_locator_at_every_capacity() -> None:
    small = Codec([10**6] * 8, 2, salt=SALT)
    large = small.with_capacity(50)
    assert small.encode([[7] * 8], [1])[:6].tolist() == large.encode([[7] * 8], [1])[:6].tolist()
    assert small.digest != large.digest


# -- the paper's own versions ------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_paper_s_versions_agree(data: st.DataObject) -> None:
    """Wherever they can run; they number bins from 1."""
    n_bins = data.draw(st.sampled_from([1, 4, 100, 10**6, 2**60]))
    capacity = data.draw(st.integers(1, 4))
    bins = data.draw(st.lists(st.integers(0, n_bins - 1), max_size=capacity, unique=True))
    clients = data.draw(
        st.lists(
            st.dictionaries(st.sampled_from(bins), st.integers(1, 50)) if bins else st.just({}),
            min_size=1,
            max_size=4,
        )
    )
    codec = Codec([n_bins], capacity, salt=SALT, signed=False)
    vectors = [codec.encode([[b] for b in one], list(one.values())) for one in clients]
    expected = {b + 1: q for (b,), q in decoded(codec, reduce(scma.add, vectors)).items()}
    total = max(1, sum(sum(one.values()) for one in clients))
    for kind in (LiteralScheme, DeterministicScheme):
        scheme = kind(n_bins, capacity, total)
        masks = scheme.masks(len(clients), Random(data.draw(st.integers(0, 9))))
        encodings = [scheme.encode({b + 1: q for b, q in one.items()}) for one in clients]
        masked = [scheme.add(e, mask) for e, mask in zip(encodings, masks, strict=True)]
        assert scheme.decode(scheme.add(*masked)) == expected
