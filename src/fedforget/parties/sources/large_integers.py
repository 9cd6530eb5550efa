"""Integers that float64 cannot hold: refused with their place, never rounded without a word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedforget.parties.sources.reader import EXACT, Reader, TableError

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGER = re.compile(r"[+-]?[0-9]+")


def refuse_rounded(reader: Reader, name: str, texts: pa.Array, numbers: pa.Array, row: int) -> None:
    """Refuse an integer that its float64 is not; ``row`` is the first one's number, from 0."""
    found = numbers.to_numpy(zero_copy_only=False)
    for at in np.flatnonzero(np.abs(found) >= EXACT).tolist():
        text = texts[at].as_py()
        if not _INTEGER.fullmatch(text) or not np.isfinite(found[at]):
            continue
        if int(text) != int(found[at]):
            raise beyond(reader, name, row + at)


def beyond(reader: Reader, name: str, row: int) -> TableError:
    """The refusal of an integer, in the row with this number, from 0."""
    return TableError(
        f"{reader.name}: row {row + 1}, column {name!r} holds an integer beyond 2**53 that is no"
        " float64: give it in a larger unit, or round it where it comes from; nothing was imported"
    )


def exact_numbers(
    reader: Reader, batches: Iterable[Any], decimal: str, nothing: Sequence[str]
) -> Iterator[Any]:
    """Batches of a text file, with the large features as numbers that their integers equal.

    They come as text; ``nothing`` are the words for a missing value.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    large = [name for name in reader.wanted.features if name in reader.wanted.large]
    row = 0
    for batch in batches:
        for name in large:
            at = batch.schema.get_field_index(name)
            texts = pc.utf8_trim_whitespace(batch.column(at))
            missing = pc.is_in(texts, value_set=pa.array(nothing, pa.string()))
            texts = pc.if_else(missing, None, texts)
            written = pc.replace_substring(texts, ",", ".") if decimal == "," else texts
            try:
                numbers = written.cast(pa.float64())
            except pa.ArrowInvalid:
                raise TableError(
                    f"{reader.name}: row {row + _first_wrong(written) + 1}, column {name!r} is not"
                    " a number; nothing was imported"
                ) from None
            refuse_rounded(reader, name, texts, numbers, row)
            batch = batch.set_column(at, name, numbers)
        yield batch
        row += batch.num_rows


def _first_wrong(texts: pa.Array) -> int:
    """The place of the first text that is not a number."""
    import pyarrow as pa

    for at in range(len(texts)):
        try:
            texts.slice(at, 1).cast(pa.float64())
        except pa.ArrowInvalid:
            return at
    raise AssertionError("every text is a number")
