"""Streams that are read once: their beginning can be looked at without taking it away."""

from __future__ import annotations

import io
from typing import Any

_HEAD = 64


class Peeked(io.RawIOBase):
    """A stream whose first bytes are known.

    Parameters
    ----------
    stream : anything with ``read``.
    n_bytes : so many bytes are looked at.
    """

    def __init__(self, stream: Any, n_bytes: int = _HEAD) -> None:
        super().__init__()
        self._rest = stream
        self.head = self._exactly(n_bytes)
        self._ahead = self.head

    def _exactly(self, n_bytes: int) -> bytes:
        """A pipe gives its bytes in pieces."""
        pieces, left = [], n_bytes
        while left > 0:
            piece = bytes(self._rest.read(left) or b"")
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes; none at the end."""
        if self._ahead:
            end = len(self._ahead) if size < 0 else size
            piece, self._ahead = self._ahead[:end], self._ahead[end:]
            return piece
        return bytes(self._rest.read(size) or b"")
