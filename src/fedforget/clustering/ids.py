"""Record ids and client names: integers or strings, in one canonical form.

An id is encoded as its type and value: ``i`` and a little-endian int64, or ``s`` and UTF-8 text.
The decimal text of an integer is that integer's id, so a table read as text gives the same model
as the same table read as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedforget.arrays import Flags, Ints
from fedforget.clustering import kernels
from fedforget.clustering.prf import Keys, Secret, keys_of_integers, keys_of_messages

Ids = npt.NDArray[Any]
"""A one-dimensional array of int64 or of unicode strings."""

_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}")
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_INTEGER_TAG, _TEXT_TAG = b"i", b"s"


def parse_ids(values: Any, what: str = "ids") -> Ids:
    """Bring ids (or names) of any array-like to int64 or unicode strings.

    Raises
    ------
    ValueError
        Mixed types, more than one dimension, empty strings, integers beyond 64 bits.
    TypeError
        Anything that is neither an integer nor a string.
    """
    if isinstance(values, (str, int, np.integer)) and not isinstance(values, (bool, np.bool_)):
        values = [values]
    if isinstance(values, (bytes, bytearray, memoryview)):
        raise TypeError(f"{what} must be integers or strings, not {type(values).__name__}")
    if isinstance(values, (Sequence, range, set, frozenset)) and not isinstance(values, range):
        array = np.empty(len(values), dtype=object)
        array[:] = list(values)
    else:
        array = np.asarray(values)
        if array.ndim == 0 and not isinstance(values, np.ndarray):
            raise TypeError(
                f"{what} must be integers or strings, or a list or array of them,"
                f" not {type(values).__name__}"
            )
    if array.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, got an array of shape {array.shape}")
    if array.dtype.kind == "T":
        array = array.astype(object)
    if array.dtype.kind == "O":
        array = _from_objects(array, what)
    if array.dtype.kind == "u" and array.size and int(array.max()) > _LARGEST:
        raise ValueError(
            f"{what}: integers must fit into 64 signed bits; larger ones can only be strings"
        )
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind != "U":
        raise TypeError(f"{what} must be integers or strings, not {array.dtype}")
    if (array == "").any():
        raise ValueError(f"{what}: the empty string (position {int((array == '').argmax())})")
    return array.copy()


def _from_objects(array: npt.NDArray[Any], what: str) -> Ids:
    items = array.tolist()
    if all(isinstance(item, str) for item in items):
        for position, item in enumerate(items):
            if "\0" in item:
                raise ValueError(f"{what}: a NUL character in {item!r} (position {position})")
            try:
                item.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"{what}: {item!r} (position {position}) is not valid unicode text"
                ) from None
        return np.array(items, dtype=np.str_) if items else np.empty(0, dtype=np.int64)
    for position, item in enumerate(items):
        if isinstance(item, str):
            other = next(other for other in items if not isinstance(other, str))
            raise ValueError(
                f"{what} are of mixed type: {other!r} is not a string, {item!r} is;"
                " all must be of one type"
            )
        if isinstance(item, (bool, np.bool_)) or not isinstance(item, (int, np.integer)):
            raise TypeError(
                f"{what} must be integers or strings; position {position} holds"
                f" {item!r} of type {type(item).__name__}"
            )
        if not _SMALLEST <= item <= _LARGEST:
            raise ValueError(
                f"{what}: {item} does not fit into 64 signed bits; such ids can only be strings"
            )
    return np.array(items, dtype=np.int64)


def kind_of(ids: Ids) -> str:
    """'integers' or 'strings'."""
    return "integers" if ids.dtype.kind == "i" else "strings"


def encode_id(value: int | str) -> bytes:
    """The canonical encoding of one id or name.

    >>> encode_id("17") == encode_id(17), encode_id("017")
    (True, b's017')
    """
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value) or not _SMALLEST <= int(value) <= _LARGEST:
            return _TEXT_TAG + value.encode()
        value = int(value)
    return _INTEGER_TAG + int(value).to_bytes(8, "little", signed=True)


def keys_of_ids(secret: Secret, ids: Ids) -> Keys:
    """The record keys of ``ids`` under an owner's secret."""
    if ids.dtype.kind == "i":
        return keys_of_integers(secret, _INTEGER_TAG, ids)
    return keys_of_encoded(secret, [encode_id(text) for text in ids.tolist()])


def keys_of_encoded(secret: Secret, encoded: Sequence[bytes]) -> Keys:
    """The record keys of ids that are encoded already."""
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(item) for item in encoded], out=offsets[1:])
    return keys_of_messages(secret, b"".join(encoded), offsets)


def smallest_id(ids: Ids, rows: Ints) -> int:
    """Of some rows, the one with the smallest id."""
    return int(rows[np.argsort(ids[rows], kind="stable")[0]])


def name_some(ids: Iterable[Any], most: int = 5) -> str:
    """A few ids for an error message: ``'a', 'b' and 3 more``."""
    listed = [item.item() if isinstance(item, np.generic) else item for item in ids]
    shown = ", ".join(repr(item) for item in listed[:most])
    return shown if len(listed) <= most else f"{shown} and {len(listed) - most} more"


class Found(NamedTuple):
    """Ids that were looked up: their keys in an index, and what it says of each (-1: nothing).

    A change that follows the look-up needs the keys again; hashing ids is most of its work.
    """

    keys: Keys
    handles: Ints


class IdIndex:
    """Where each record is: a hash table from 128-bit keys of ids to integer handles.

    The keys come from :func:`keys_of_ids` under a secret, so they are uniform and nobody can
    choose ids that collide.  Removing a key leaves nothing of it behind.
    """

    def __init__(self) -> None:
        self._count = 0
        self._allocate(16)

    def _allocate(self, size: int) -> None:
        self._low = np.zeros(size, dtype=np.uint64)
        self._high = np.zeros(size, dtype=np.uint64)
        self._handles = np.full(size, -1, dtype=np.int64)

    def __len__(self) -> int:
        return self._count

    def look_up(self, keys: Keys) -> Found:
        """:meth:`find`, with the keys that a change will need again."""
        return Found(keys, self.find(keys))

    def find(self, keys: Keys) -> Ints:
        """The handle of each key, -1 where there is none."""
        out = np.empty(len(keys.low), dtype=np.int64)
        kernels.index_find(self._low, self._high, self._handles, *keys, out)
        return out

    def put(self, keys: Keys, handles: Ints) -> Flags:
        """Set handles; returns which keys were new (of equal keys, the first is)."""
        if not len(handles):  # As with most removals, which need not know the kernel.
            return np.empty(0, dtype=np.bool_)
        self._reserve(self._count + len(keys.low))
        fresh = np.empty(len(keys.low), dtype=np.bool_)
        kernels.index_put(self._low, self._high, self._handles, *keys, handles, fresh)
        self._count += int(np.count_nonzero(fresh))
        return fresh

    def drop(self, keys: Keys) -> None:
        """Remove keys, each of which must be present, once."""
        kernels.index_drop(self._low, self._high, self._handles, *keys)
        self._count -= len(keys.low)

    def _reserve(self, count: int) -> None:
        size = len(self._handles)
        if 2 * count <= size:
            return
        while size < 2 * count:
            size *= 2
        low, high, handles = self._low, self._high, self._handles
        self._allocate(size)
        used = handles >= 0
        if used.any():
            scratch = np.empty(int(np.count_nonzero(used)), dtype=np.bool_)
            kernels.index_put(
                self._low, self._high, self._handles, low[used], high[used], handles[used], scratch
            )
