"""Ways to sum sparse histograms without seeing them: bits per client, and the server's time.

* **SCMA** is :class:`fedforget.scma.Codec`;
* **Alg. 2** is the paper's scheme as printed, over a prime field larger than the number of bins;
* **IBLT** is :mod:`fedforget.bench.iblt`;
* **dense** sends a count, large enough for all records, for every bin of the grid;
* the **bound** is the paper's: the bits that tell all possible sums apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from fedforget.bench.cells import Value
from fedforget.bench.iblt import Iblt, decodes
from fedforget.bench.timing import timed
from fedforget.scma import Codec, add
from fedforget.scma.literal import LiteralScheme

MOST_DENSE = 2**22
"""Bins up to which dense vectors are really added up."""


def information_bound(n_bins: int, capacity: int, n_records: int) -> float:
    """log₂ of the number of sums: Σ_k C(N, k) C(n, k − 1) over k = 1, …, T different bins.

    (C(n, k − 1) is how the paper counts the ways to spread at most n records over k bins.)

    >>> round(2 ** information_bound(4, 2, 3))  # 4·1 + 6·3
    22
    """
    term, logs = math.log2(n_bins), []
    for k in range(1, min(capacity, n_bins, n_records + 1) + 1):
        logs.append(term)
        if k < n_bins and k <= n_records:
            term += math.log2(n_bins - k) - math.log2(k + 1)
            term += math.log2(n_records - k + 1) - math.log2(k)
    top = max(logs)
    return top + math.log2(math.fsum(2.0 ** (one - top) for one in logs))


def dense_bits(n_bins: int, n_records: int) -> int:
    """A count of up to n for every bin."""
    return n_bins * n_records.bit_length()


def literal_bits(n_bins: int, capacity: int, n_records: int) -> int:
    """2T elements of the smallest prime field that Alg. 2 allows, to within a bit."""
    return 2 * capacity * max(n_bins, n_records).bit_length()


def compare(
    *, n_features: int, n_clients: int, k: int, levels: int, n_records: int, literal: bool
) -> Value:
    """All codes at one shape; ``literal`` says whether Alg. 2 is decoded too, or only counted."""
    rng = np.random.default_rng([n_features, n_clients])
    capacity, n_bins = k * n_clients, levels**n_features
    rows = rng.integers(0, levels, (n_clients, k, n_features))
    counts = rng.integers(1, 1 + max(1, n_records // capacity), (n_clients, k))
    codec = Codec(np.full(n_features, levels), capacity, salt=b"bench")
    vectors = [codec.encode(*one) for one in zip(rows, counts, strict=True)]
    total = reduce(add, vectors)
    table = Iblt(np.full(n_features, levels), capacity, salt=b"bench")
    summed = table.add(*(table.encode(*one) for one in zip(rows, counts, strict=True)))
    seconds = {
        "SCMA": _median(lambda: codec.decode(total)),
        "IBLT": _median(lambda: decodes(table, summed)),
    }
    encoding = {"SCMA": _median(lambda: codec.encode(rows[0], counts[0]), 7)}
    if literal:
        encoding["Alg. 2"], seconds["Alg. 2"] = _literal_seconds(rows, counts, levels)
    if n_bins <= MOST_DENSE:
        seconds["dense"] = _dense_seconds(n_bins, n_clients)
    return {
        "bits": {
            "bound": information_bound(n_bins, capacity, n_records),
            "SCMA": codec.bits,
            "SCMA, a change of 16 bins": codec.with_capacity(16).bits,
            "Alg. 2": literal_bits(n_bins, capacity, n_records),
            "IBLT": table.bits,
            # As a logarithm: there may be more bins than a float can count.
            "dense": math.log2(dense_bits(n_bins, n_records)),
        },
        "seconds": seconds,
        "encoding": encoding,
        "iblt_decoded": _iblt_rate(levels, n_features, capacity),
    }


def _literal_seconds(rows: np.ndarray, counts: np.ndarray, levels: int) -> tuple[float, float]:
    """What Alg. 2 takes to encode one client's bins, and to decode the sum of all."""
    place = [levels**power for power in range(rows.shape[2] - 1, -1, -1)]
    held: dict[int, int] = {}
    first: dict[int, int] = {}
    for client, (own_rows, own_counts) in enumerate(zip(rows.tolist(), counts, strict=True)):
        for row, count in zip(own_rows, own_counts.tolist(), strict=True):
            number = 1 + sum(one * digit for one, digit in zip(place, row, strict=True))
            held[number] = held.get(number, 0) + count
            if client == 0:
                first[number] = first.get(number, 0) + count
    scheme = LiteralScheme(levels ** rows.shape[2], counts.size, sum(held.values()))
    sums = scheme.encode(held)
    return _median(lambda: scheme.encode(first)), _median(lambda: scheme.decode(sums), 1)


def _dense_seconds(n_bins: int, n_clients: int) -> float:
    """Adding up one vector per client; the vectors are all the same one, to spare memory."""
    vector, total = np.ones(n_bins, dtype=np.int64), np.zeros(n_bins, dtype=np.int64)

    def add_up() -> None:
        for _ in range(n_clients):
            np.add(total, vector, out=total)

    return _median(add_up)


def _iblt_rate(levels: int, n_features: int, capacity: int, tables: int = 20) -> float:
    """The share of full tables that decode."""
    rng = np.random.default_rng(1)
    good = 0
    for number in range(tables if capacity <= 1000 else 3):
        table = Iblt(np.full(n_features, levels), capacity, salt=bytes([number]))
        bins = rng.integers(0, levels, (capacity, n_features))
        good += decodes(table, table.encode(bins, np.ones(capacity, dtype=np.int64)))
    return good / (tables if capacity <= 1000 else 3)


def _median(call: Callable[[], object], repeats: int = 3) -> float:
    return float(np.median([timed(call)[1] for _ in range(repeats)]))
