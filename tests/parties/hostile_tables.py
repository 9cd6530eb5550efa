"""Damages table files at random and reads each one in a process of its own.

Run as a program: ``python hostile_tables.py KIND MUTANTS SEED``.  It prints how many mutants were
read, how many were refused by name, and which ones ended in any other way; the status is 1 then.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from fedforget.errors import FedforgetError
from fedforget.parties.sources import open_source

N_ROWS = 60
READ, REFUSED, LEAKED, GREEDY = 0, 1, 3, 7
MOST_KILOBYTES = 1_500_000
MOST_SECONDS = 20


def tables() -> list[pa.Table]:
    """Small tables whose ids have every type that an id can have in Arrow."""
    rng = np.random.default_rng(0)
    ids = [f"patient-number-{row}" for row in range(N_ROWS)]
    columns = {
        "age": rng.uniform(0, 120, N_ROWS),
        "weight": pa.array(rng.integers(0, 300, N_ROWS), type=pa.int32()),
        "ward": pa.array(["a", "b"] * (N_ROWS // 2)).dictionary_encode(),
        "other": pa.array([[row] for row in range(N_ROWS)]),
    }
    kinds = [
        pa.array(ids),
        pa.array(ids).dictionary_encode(),
        pa.array(ids, type=pa.large_string()),
        pa.array(ids, type=pa.string_view()),
        pa.array(range(N_ROWS)),
    ]
    return [pa.table({"id": kind, **columns}) for kind in kinds]


def originals(kind: str, folder: Path) -> list[bytes]:
    """Good files of one kind."""
    path, found = folder / f"good.{kind}", []
    for number, table in enumerate(tables()):
        for compression in ("uncompressed", "lz4", "zstd"):
            plain = {name: table.column(name) for name in ("id", "age", "weight")}
            match kind:
                case "feather":
                    pa.feather.write_feather(table, path, compression=compression, chunksize=25)
                case "parquet":
                    packed = "none" if compression == "uncompressed" else compression
                    dictionary = number % 2 == 0
                    pa.parquet.write_table(
                        table, path, 25, compression=packed, use_dictionary=dictionary
                    )
                case "csv":
                    texts = pa.table({key: column.to_pylist() for key, column in plain.items()})
                    pa.csv.write_csv(texts, path)
                case "arrows":
                    packed = None if compression == "uncompressed" else compression
                    options = pa.ipc.IpcWriteOptions(compression=packed)
                    with pa.ipc.new_stream(str(path), table.schema, options=options) as writer:
                        writer.write_table(table, max_chunksize=25)
                case "npz":
                    arrays = {key: np.array(column.to_pylist()) for key, column in plain.items()}
                    save = np.savez if compression == "uncompressed" else np.savez_compressed
                    save(path, **arrays)
            found.append(path.read_bytes())
    return found


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, taken out, repeated or cut off."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 8])):
        at = rng.randrange(len(out))
        if rng.random() < 0.3:  # what describes the rest often stands at the end
            at = max(0, len(out) - 1 - rng.randrange(min(len(out), 900)))
        match rng.randrange(7):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 2 | 3:
                words = [2**31 - 1, 2**32 - 1, 2**31, 0, rng.randrange(2000), rng.getrandbits(32)]
                out[at & ~3 : (at & ~3) + 4] = rng.choice(words).to_bytes(4, "little")
            case 4:
                words = [2**63 - 1, 2**64 - 1, 1 << rng.randrange(63), rng.randrange(100_000)]
                out[at & ~7 : (at & ~7) + 8] = rng.choice(words).to_bytes(8, "little")
            case 5:
                del out[at : at + rng.randrange(1, 40)]
            case 6:
                back = max(0, at - rng.randrange(40))
                out = out[:at] if rng.random() < 0.3 else out[:at] + out[back:]
        out = out or bytearray(b"x")
    return bytes(out)


def ending(path: Path) -> int:
    """How reading a file ends."""
    warnings.simplefilter("error")
    try:
        for ids, values in open_source([path], ["age", "weight"], "id").parts():
            assert len(str(ids)) + len(str(values))
    except FedforgetError:
        result = REFUSED
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return LEAKED
    else:
        result = READ
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return GREEDY if used > MOST_KILOBYTES else result


def ending_apart(path: Path) -> int:
    """The same in another process; negative if a signal ended it."""
    child = os.fork()
    if not child:
        signal.alarm(MOST_SECONDS)
        status = LEAKED
        try:
            status = ending(path)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(kind: str, mutants: int, seed: int) -> int:
    rng, tally, bad = random.Random(seed), Counter[int](), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        good = originals(kind, folder)
        path = folder / f"mutant.{kind}"
        for number in range(mutants):
            path.write_bytes(damaged(rng.choice(good), rng))
            status = ending_apart(path)
            tally[status] += 1
            if status not in (READ, REFUSED):
                bad.append((number, status))
    print(f"{kind}: {tally[READ]} read, {tally[REFUSED]} refused, otherwise {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
