"""Digests of structured values, unambiguous and independent of the machine.

Every field goes into the hash with its name, its type and its length, so that no two different
structures share an encoding.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np
import numpy.typing as npt


class Digest:
    """SHA-256 over named fields.

    Examples
    --------
    >>> Digest("example").field("n_clusters", 4).field("step", 0.5).hex()[:16]
    'ffad41634c150806'
    """

    def __init__(self, domain: str) -> None:
        self._hash = hashlib.sha256()
        self._chunk(b"fedforget/1")
        self._chunk(domain.encode())

    def _chunk(self, data: bytes) -> None:
        self._hash.update(struct.pack("<Q", len(data)))
        self._hash.update(data)

    def field(self, name: str, value: int | float | str | bytes | bool | None) -> Digest:
        """Add a scalar.  A float is taken bit by bit, so 1 and 1.0 differ."""
        encoded: tuple[bytes, bytes]
        match value:
            case None:
                encoded = b"none", b""
            case bool():
                encoded = b"bool", bytes([value])
            case int():
                encoded = b"int", str(value).encode()
            case float():
                encoded = b"float", struct.pack("<d", value)
            case str():
                encoded = b"str", value.encode()
            case bytes():
                encoded = b"bytes", value
        self._chunk(name.encode())
        self._chunk(encoded[0])
        self._chunk(encoded[1])
        return self

    def array(self, name: str, values: npt.NDArray[Any]) -> Digest:
        """Add an array: its shape, kind and little-endian contents."""
        little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        self._chunk(name.encode())
        self._chunk(f"array {little.dtype.str} {little.shape}".encode())
        self._chunk(little.tobytes())
        return self

    def hex(self) -> str:
        """The digest so far, in hexadecimal."""
        return self._hash.hexdigest()

    def bytes(self) -> bytes:
        """The digest so far, as 32 bytes."""
        return self._hash.digest()
