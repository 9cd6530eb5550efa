"""The code of SCMA: decoding against python-flint, the paper's shapes, and bits on the wire.

The first table decodes T different bins whose index fits 60 bits, so that both sides do the same:
python-flint's minimal polynomial and roots, and the whole decoder (roots, counts, every check).
``--all`` lets python-flint find the 6,200 roots too, which takes it about a minute.
"""

from __future__ import annotations

import math
from functools import partial

import common
import flint
import numpy as np

import figures

from fedforget import scma
from fedforget.scma.layout import Layout
from fedforget.warmup import warm_up

SIZES = (100, 400, 1_000, 6_200, 20_000, 100_000)
TARGETS = {400: 8.0, 6_200: 40.0}
SHAPES = {
    # features, levels, K, L, n
    "Celltype": (10, 111, 4, 100, 12_009),
    "Covtype": (52, 124, 7, 100, 15_120),
    "FEMNIST": (784, 193, 62, 100, 36_725),
}
BITS_TARGETS = {"Covtype": 1.25, "FEMNIST": 1.06}


def with_flint(syndromes: list[int]) -> int:
    """Locators by python-flint alone."""
    context = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(scma.PRIME))
    polynomial = context.minpoly(syndromes)
    return len(flint.nmod_poly([int(one) for one in polynomial.coeffs()], scma.PRIME).roots())


def decode_seconds(codec: scma.Codec, vector: np.ndarray) -> float:
    rounds = 3 if codec.capacity > 1_000 else 9
    return common.median_seconds(lambda: codec.decode(vector), repeats=rounds, rounds=rounds)[0]


def decoding(sizes: tuple[int, ...], everything: bool) -> None:
    table = common.table(
        "decoding T different bins, b = 60 bits",
        "T", "python-flint", "fedforget", "ratio", "target", "a bin", "growth",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    before = None
    for n in sizes:
        codec = scma.Codec([2**30, 2**30], n, salt=b"benchmark")
        bins, counts = rng.integers(0, 2**30, (n, 2)), rng.integers(1, 100, n)
        vector = codec.encode(bins, counts)
        peer = None
        if n <= 1_000 or (everything and n == 6_200):
            syndromes = vector[: 2 * n + 2].tolist()
            found, peer = common.timed(partial(with_flint, syndromes))
            assert found == n
        seconds = decode_seconds(codec, vector)
        target = TARGETS.get(n)
        ratio = None if peer is None else peer / seconds
        figures.record(f"T = {n:,}", decode_seconds=seconds, flint_speed_up=ratio)
        table.add_row(
            f"{n:,}",
            "" if peer is None else common.milliseconds(peer),
            common.milliseconds(seconds),
            "" if ratio is None else f"{ratio:.0f}×",
            "" if ratio is None or target is None else common.verdict(ratio, target),
            f"{1e6 * seconds / n:.0f} µs",
            "" if before is None else f"T × {n / before[0]:.1f}: time × {seconds / before[1]:.1f}",
        )
        before = n, seconds
    common.console.print(table)


def shapes(names: tuple[str, ...]) -> None:
    table = common.table(
        "the paper's shapes, T = K · L",
        "data", "T", "words", "encode a client", "decode", "change of 16",
    )  # fmt: skip
    rng = np.random.default_rng(1)
    for name in names:
        d, levels, k, n_clients, _ = SHAPES[name]
        codec = scma.Codec(np.full(d, levels), k * n_clients, salt=b"benchmark")
        total = np.zeros(codec.length, dtype=np.uint64)
        times = []
        for _ in range(n_clients):
            bins, counts = rng.integers(0, levels, (k, d)), rng.integers(1, 100, k)
            vector, seconds = common.timed(partial(codec.encode, bins, counts))
            times.append(seconds)
            total = scma.add(total, vector)
        decode = decode_seconds(codec, total)
        small = codec.with_capacity(16)
        change = small.encode(rng.integers(0, levels, (16, d)), rng.choice([-3, 2], 16))
        delta = decode_seconds(small, change)
        figures.record(
            name,
            encode_seconds=float(np.median(times)),
            decode_seconds=decode,
            change_seconds=delta,
        )
        table.add_row(
            f"{name}: d = {d}, {levels} levels, K = {k}, L = {n_clients}",
            f"{codec.capacity:,}",
            str(Layout(codec.levels).n_words),
            common.milliseconds(float(np.median(times))),
            common.milliseconds(decode),
            common.milliseconds(delta),
        )
    common.console.print(table)


def log2_binomial(n: int, k: int) -> float:
    """log₂ of n over k, for n of any size."""
    return sum(math.log2(n - i) - math.log2(k - i) for i in range(k))


def information_bound(n_bins: int, capacity: int, n: int) -> float:
    """Bits that name one multiset, by the paper's bound.

    Of its sum the last term is all that counts: at these shapes it is more than 2⁵⁰ times the one
    before.
    """
    return log2_binomial(n_bins, capacity) + log2_binomial(n, capacity - 1)


def bits() -> None:
    table = common.table(
        "bits a client sends, in a full round",
        "data", "information bound", "fedforget", "ratio", "target", "Alg. 2", "change of 16",
    )  # fmt: skip
    for name, (d, levels, k, n_clients, n) in SHAPES.items():
        capacity = k * n_clients
        codec = scma.Codec(np.full(d, levels), capacity, salt=b"benchmark")
        bound = information_bound(levels**d, capacity, n)
        literal = 2 * capacity * max(n, levels**d).bit_length()
        target = BITS_TARGETS.get(name)
        ratio = codec.bits / bound
        figures.record(name, bits_ratio=ratio, paper_bits_ratio=literal / bound)
        table.add_row(
            name,
            f"{bound / 8e3:,.1f} kB",
            f"{codec.bits / 8e3:,.1f} kB",
            f"{ratio:.2f}×",
            "" if target is None else common.verdict(ratio, target, at_least=False),
            f"{literal / bound:.2f}×",
            f"{codec.with_capacity(16).bits / 8e3:,.1f} kB",
        )
    common.console.print(table)


def main() -> None:
    parser = figures.parser(__doc__)
    parser.add_argument("--all", action="store_true", help="python-flint finds 6,200 roots, too")
    given = parser.parse_args()
    common.heading("SCMA: encoding, decoding, bits")
    warm_up()
    with figures.kept(given):
        decoding(SIZES[:3] if given.quick else SIZES, given.all and not given.quick)
        shapes(tuple(SHAPES)[:1] if given.quick else tuple(SHAPES))
        bits()


if __name__ == "__main__":
    main()
