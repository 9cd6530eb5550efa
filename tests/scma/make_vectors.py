"""Writes vectors.json: encodings, sums and things that must be refused, made by the slow twin.

    python tests/scma/make_vectors.py

Another implementation of the code can be checked against them; the format is explained in the file.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from scma_twins import P, Refused, TwinCodec, total_of

TARGET = Path(__file__).with_name("vectors.json")
ABOUT = (
    "p = 29*2^57 + 1. Each case has the code's parameters (salt in hexadecimal) and digest, the "
    "multisets of some clients as [bin, count], their encodings, and the decoded sum. 'packed' is "
    "the wire form of the sum: digest, then 62 bits an element, lowest bit first, in hexadecimal. "
    "'refused' lists vectors that are no sums, each with the cause of its refusal."
)
CASES: dict[str, tuple[list[int], int, int, bool, int]] = {
    # levels, capacity, spare, signed, clients
    "one bin": ([1], 1, 2, True, 2),
    "the paper's size": ([4], 4, 0, False, 2),
    "60 bits": ([1024] * 6, 5, 2, True, 3),
    "61 bits": ([2] + [1024] * 6, 3, 2, True, 3),
    "mixed": ([1, 7, 10**6, 193, 2, 10**5, 1, 999_983], 6, 1, True, 4),
    "many features": ([193] * 40, 4, 2, False, 2),
}


def packed(digest: bytes, vector: list[int]) -> str:
    bits = sum(element << 62 * i for i, element in enumerate(vector))
    return (digest + bits.to_bytes(-(-62 * len(vector) // 8), "little")).hex()


def refused(codec: TwinCodec, vector: list[int]) -> dict[str, Any]:
    try:
        codec.decode(vector)
    except Refused as error:
        return {"vector": vector, "cause": error.args[0]}
    raise AssertionError("this vector must not decode")


def make(name: str, rng: random.Random) -> dict[str, Any]:
    salt = rng.randbytes(16)
    levels, capacity, spare, signed, n_clients = CASES[name]
    codec = TwinCodec(levels, capacity, salt=salt, spare=spare, signed=signed)
    bins = [tuple(rng.randrange(level) for level in levels) for _ in range(capacity)]
    least = -1000 if signed else 1
    clients = [
        {bin_: rng.randrange(least, 2**40) for bin_ in rng.sample(bins, rng.randint(1, capacity))}
        for _ in range(n_clients)
    ]
    encodings = [codec.encode(multiset) for multiset in clients]
    total = [sum(column) % P for column in zip(*encodings, strict=True)]
    decoded = codec.decode(total)
    assert decoded == total_of(clients)
    wrong = [list(total) for _ in range(4)]
    wrong[0][0] = (wrong[0][0] + 1) % P
    wrong[1][-1] = (wrong[1][-1] + 1) % P
    wrong[2][len(total) // 2] = P
    wrong[3] = [rng.randrange(P) for _ in total]
    return {
        "name": name,
        "levels": levels,
        "capacity": capacity,
        "spare": spare,
        "signed": signed,
        "salt": salt.hex(),
        "digest": codec.digest.hex(),
        "clients": [list(multiset.items()) for multiset in clients],
        "encodings": encodings,
        "decoded": sorted(decoded.items()),
        "packed": packed(codec.digest, total),
        "refused": [refused(codec, vector) for vector in wrong],
    }


def main() -> None:
    rng = random.Random(20230501)
    cases = [make(name, rng) for name in CASES]
    TARGET.write_text(json.dumps({"about": ABOUT, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
