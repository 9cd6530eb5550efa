"""Streams that are read once: their beginning can be looked at without taking it away."""

from __future__ import annotations

import io
from typing import Any

_HEAD = 64
_LEAST = 1 << 16


class Peeked(io.RawIOBase):
    """A stream whose first bytes are known.

    Parameters
    ----------
    stream : anything with ``read``.
    n_bytes : how many bytes are looked at.
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


class Ended(io.RawIOBase):
    """A stream with some bytes behind its end.

    Parameters
    ----------
    stream : anything with ``read``.
    end : what comes after everything else.
    """

    def __init__(self, stream: Any, end: bytes) -> None:
        super().__init__()
        self._rest = stream
        self._end = end

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to this many bytes; none at the end.  A short table comes with its end at once."""
        pieces, n_bytes = [], 0
        most = _LEAST if size < 0 else size
        while n_bytes < min(most, _LEAST):
            piece = bytes(self._rest.read(most - n_bytes) or b"")
            if not piece:
                piece, self._end = self._end[: most - n_bytes], self._end[most - n_bytes :]
                pieces.append(piece)
                break
            pieces.append(piece)
            n_bytes += len(piece)
        return b"".join(pieces)
