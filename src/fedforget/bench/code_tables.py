"""Tables of codes for the sum, and of exactness."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from fedforget.bench.cells import CellResult
from fedforget.bench.numbers import Entry, ResultTable, duration, label, percent, size
from fedforget.bench.runner import Results

_CODES = ("bound", "SCMA", "Alg. 2", "IBLT", "dense")


def code_lengths(results: Results) -> ResultTable | None:
    """Bits that a client sends."""
    if "codes" not in results:
        return None
    rows = []
    for one in results.of("codes"):
        bits = one.value["bits"]
        bound = bits["bound"]
        entries = [Entry(size(bound))]
        entries += [Entry(f"{size(bits[code])}; {bits[code] / bound:.2f}×") for code in _CODES[1:4]]
        entries.append(Entry(_power(bits["dense"] - 3)))
        entries.append(Entry(size(bits["SCMA, a change of 16 bins"])))
        rows.append((one.dataset, tuple(entries)))
    return ResultTable(
        "code-lengths",
        "Codes for the sum: what a client sends in a full round, and over the bound",
        ("information bound", "SCMA", "Alg. 2", "IBLT", "dense", "SCMA, a change of 16 bins"),
        tuple(rows),
        "Celltype's shape (K = 4, 110 levels, n = 12,009) with other numbers of features d and"
        " clients L; T = K L bins. The IBLT has 1.5 cells per bin.",
    )


def _power(log2_bytes: float) -> str:
    return (
        size(8 * 2.0**log2_bytes) if log2_bytes < 40 else f"10^{log2_bytes * math.log10(2):.0f} B"
    )


def code_times(results: Results) -> ResultTable | None:
    """The server's time."""
    if "codes" not in results:
        return None
    names = ("SCMA", "Alg. 2", "IBLT", "dense")
    rows = []
    for one in results.of("codes"):
        seconds = one.value["seconds"]
        entries = [Entry(duration(seconds[n]) if n in seconds else "—") for n in names]
        entries.append(Entry(percent(one.value["iblt_decoded"])))
        entries += [Entry(_encoding(one, code)) for code in ("SCMA", "Alg. 2")]
        rows.append((one.dataset, tuple(entries)))
    return ResultTable(
        "code-times",
        "Codes for the sum: the server's time to decode (dense: to add up), a client's to encode",
        (*names, "IBLTs that decode", "encode: SCMA", "encode: Alg. 2"),
        tuple(rows),
        "Encode: one client's K bins; in brackets over K² L log₂(KL), the paper's count of"
        " operations in the field. SCMA's field has one word, Alg. 2's grows with d, and so does"
        " what an operation takes.\n"
        "Alg. 2 is python-flint's Berlekamp–Massey and root finding over the literal field; it and"
        " dense vectors are timed only where that takes seconds. The IBLT is plain Python.",
    )


def _encoding(one: CellResult, code: str) -> str:
    """The time to encode, and the nanoseconds per operation that the paper counts."""
    seconds = one.value["encoding"].get(code)
    if seconds is None:
        return "—"
    k, n_clients = one.parameters["k"], one.parameters["n_clients"]
    operations = k * k * n_clients * math.log2(k * n_clients)
    return f"{duration(seconds)} ({1e9 * seconds / operations:.0f} ns)"


def exactness(results: Results) -> ResultTable | None:
    """Bit for bit."""
    cells = [one for one in results.of("exactness") if one.dataset != "small sets"]
    if not cells:
        return None
    names = list(cells[0].value)
    rows = [
        (
            label(one.dataset),
            tuple(Entry(f"{sum(one.value[name])} of {len(one.value[name])}") for name in names),
        )
        for one in cells
    ]
    return ResultTable(
        "exactness",
        "Exactness, bit for bit: removals after which the centres equal a fresh fit's",
        tuple(names),
        tuple(rows),
        "The fresh fit has the same seed and sees only the records that are left. DC-KM and Q-KM"
        " are fedforget's, whose random numbers belong to nodes and records; drawn from a running"
        " generator they could agree in law at best. Seeds drawn anew: the authors' rule, one"
        " owner. Every fifth request takes away a seed, where the method has any.",
    )


def laws(results: Results) -> ResultTable | None:
    """In law."""
    found = results.of("exactness", "small sets")
    if not found:
        return None
    held: dict[str, Any] = found[0].value
    rows = [
        (name, (Entry(text if text in ("0", "1/2") else f"{text} ≈ {float(Fraction(text)):.4f}"),))
        for name, text in held.items()
    ]
    return ResultTable(
        "laws",
        "Exactness in law: total variation between forgetting and retraining",
        ("total variation",),
        tuple(rows),
        "Enumerated with fractions. MUFC as printed and ours: K = 1, clients {0, 0.4} and {0.8},"
        " 0.4 is removed. Seeds drawn anew, and Alg. 3: K = 2 seeds of {0, 1, 3, 7}, the record"
        " for which the distance is largest. DC-KM: K = 2, clients {0, 1, 4} and {6, 9}, 4 is"
        " removed. Q-KM: K = 2 on {0, 1, 3}, one step on a lattice of width 1/2 with 8 phases,"
        " 1 is removed.",
    )
