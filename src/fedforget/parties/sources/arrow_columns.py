"""Arrow's columns as ids and numbers.

Numbers are taken as numbers: integers, floats, booleans as 0 and 1, decimals rounded once.  Text
is refused even if it looks like numbers, because only its owner knows what it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedforget.arrays import Floats
from fedforget.parties.sources.large_integers import beyond, refuse_rounded
from fedforget.parties.sources.reader import EXACT, ROWS_AT_A_TIME, RawIds, Reader, TableError

if TYPE_CHECKING:
    import pyarrow as pa

_AMBIGUOUS = {"money": "its unit depends on the server", "oid": "it has no sign there"}
"""PostgreSQL's types of which the driver gives the bare integers."""


def parts_of(reader: Reader, batches: Iterable[Any]) -> Iterator[tuple[RawIds, Floats]]:
    """Ids and values of record batches, some rows at a time."""
    first = 0
    for batch in batches:
        # Arrow believes the offsets, lengths and indices of a file, and reads where they point.
        batch.validate(full=True)
        for at in range(0, batch.num_rows, ROWS_AT_A_TIME):
            part = batch.slice(at, ROWS_AT_A_TIME)
            yield _ids(reader, part), _values(reader, part, first + at)
        first += batch.num_rows
    give_memory_back()


def _ids(reader: Reader, batch: pa.RecordBatch) -> RawIds:
    import pyarrow as pa

    name = reader.wanted.id_column
    column, kind = batch.column(name), _postgres_type(batch.schema.field(name))
    _refuse_ambiguous(reader, name, kind)
    if kind == "numeric":
        column = _storage(column)
        if _with_fraction(column):
            raise TableError(
                f"{reader.name}: column {name!r} holds numbers with decimals; ids must be integers"
                " or strings: cast them in the query, for example to bigint; nothing was imported"
            )
    elif isinstance(column.type, pa.UuidType):
        return [None if one is None else str(one) for one in column.to_pylist()]
    elif pa.types.is_decimal(column.type) and column.type.scale == 0:
        column = column.cast(pa.string())
    elif pa.types.is_floating(column.type):
        raise TableError(
            f"{reader.name}: column {name!r} holds {column.type}; ids must be integers or strings:"
            " make them integers, or text, where they come from; nothing was imported"
        )
    found: list[Any] = column.to_pylist()
    return found


def _with_fraction(column: pa.Array) -> bool:
    """Whether the text of a decimal has a decimal point: 17.00 is not the text of 17."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring(column, ".")).as_py())


def _values(reader: Reader, batch: pa.RecordBatch, row: int) -> Floats:
    out = np.empty((batch.num_rows, len(reader.wanted.features)))
    for at, name in enumerate(reader.wanted.features):
        numbers = _numbers(reader, name, batch.column(name), batch.schema.field(name), row)
        out[:, at] = numbers.to_numpy(zero_copy_only=False)
    return out


def _numbers(reader: Reader, name: str, column: pa.Array, field: pa.Field, row: int) -> pa.Array:
    """A column as float64, with nulls where values are missing; ``row`` is its first row's."""
    import pyarrow as pa

    postgres = _postgres_type(field)
    _refuse_ambiguous(reader, name, postgres)
    if postgres == "numeric":
        return _rounded(_storage(column))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_decimal(kind):
        numbers = _rounded(column)
        if name in reader.integers:
            refuse_rounded(reader, name, column.cast(pa.string()), numbers, row)
        return numbers
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.float64())
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        raise TableError(
            f"{reader.name}: column {name!r} holds {kind}, not numbers; make it numbers where it"
            " comes from; nothing was imported"
        )
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        found = np.asarray(column.fill_null(0))
        at = int(np.flatnonzero((found > EXACT) | (found < -EXACT))[0])
        raise beyond(reader, name, row + at) from None


def _rounded(column: pa.Array) -> pa.Array:
    """Decimals, or their text, as the nearest float64.

    Arrow's own cast of a decimal multiplies and divides, and misses the nearest number by a bit;
    its parser of text does not.
    """
    import pyarrow as pa

    return column.cast(pa.string()).cast(pa.float64())


def _storage(column: Any) -> Any:
    return getattr(column, "storage", column)


def _postgres_type(field: pa.Field) -> str | None:
    """The type that a column has in PostgreSQL, if it comes from there."""
    known = field.metadata or {}
    for key in (b"ADBC:postgresql:typname", b"POSTGRESQL:type"):
        if key in known:
            return bytes(known[key]).decode("utf-8", "replace")
    if getattr(field.type, "vendor_name", None) == "PostgreSQL":
        return str(field.type.type_name)
    return None


def _refuse_ambiguous(reader: Reader, name: str, kind: str | None) -> None:
    if kind in _AMBIGUOUS:
        raise TableError(
            f"{reader.name}: column {name!r} holds PostgreSQL's {kind}: {_AMBIGUOUS[kind]}; cast it"
            " in the query, for example to numeric; nothing was imported"
        )


def give_memory_back() -> None:
    """Arrow keeps what it has freed; what follows an import needs the memory."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
