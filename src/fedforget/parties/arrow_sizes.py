"""How much memory an Arrow file or stream takes, found out before Arrow takes it.

Arrow believes what a compressed buffer says about its size.  So thirty kilobytes can become
gigabytes.  The sizes stand in the file in the clear: the footer lists the record batches and the
dictionaries, each of them lists its buffers, and each compressed buffer begins with the number of
its bytes.  The format is that of https://arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO

from fedforget.incoming import unpacked_at_most

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_MOST_METADATA = 64 << 20
_PIECE = 16 << 20
_BLOCK = struct.Struct("<qiiq")
"""Offset, bytes of metadata, padding, bytes of the body."""
_BUFFER = struct.Struct("<qq")
"""Offset in the body, bytes."""


def largest_batch(file: BinaryIO, n_bytes: int) -> int:
    """The bytes of all dictionaries and of the largest record batch, once they are unpacked.

    Parameters
    ----------
    file : BinaryIO
        The open file.
    n_bytes : int
        Its size.

    Returns
    -------
    int
        The bytes of all dictionaries together, and of the record batch that has most.

    Raises
    ------
    ValueError
        If the file is damaged.
    """
    try:
        footer = _Flat.root(_footer(file, n_bytes))
        dictionaries = sum(_unpacked(file, block) for block in footer.structs(2, _BLOCK))
        batches = (_unpacked(file, block) for block in footer.structs(3, _BLOCK))
        return dictionaries + max(batches, default=0)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"its description is damaged ({error})") from None


def _footer(file: BinaryIO, n_bytes: int) -> bytes:
    ending = _read(file, max(0, n_bytes - 10), 10)
    (length,) = struct.unpack_from("<i", ending)
    if ending[4:] != _MAGIC:
        raise ValueError("it is not an Arrow file")
    return _read(file, n_bytes - 10 - length, length)


def _unpacked(file: BinaryIO, block: tuple[int, ...]) -> int:
    """The bytes of a record batch or a dictionary in memory."""
    offset, n_metadata, _, _ = block
    metadata = _read(file, offset, n_metadata)
    (first,) = struct.unpack_from("<I", metadata)
    message = _Flat.root(metadata[8 if first == _CONTINUATION else 4 :])
    if message.number(1, "<B") not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        raise ValueError("it lists a batch that is not one")
    return _size(message, lambda at, n_bytes: _read(file, offset + n_metadata + at, n_bytes))


def _size(message: _Flat, body: Callable[[int, int], bytes]) -> int:
    """The bytes of a batch in memory; ``body`` gives bytes of the message's body."""
    batch = message.table(2)
    if message.number(1, "<B") == _DICTIONARY_BATCH:
        batch = batch.table(1)
    buffers = batch.structs(2, _BUFFER)
    if not batch.place(3):  # not compressed
        return sum(max(0, length) for _, length in buffers)
    return sum(_buffer(body, at, length) for at, length in buffers)


def _buffer(body: Callable[[int, int], bytes], at: int, length: int) -> int:
    """The bytes of a compressed buffer in memory; -1 says that this one is not compressed."""
    if length < 8:
        return 0
    (unpacked,) = struct.unpack("<q", body(at, 8))
    return length if unpacked < 0 else int(unpacked)


def _read(file: BinaryIO, at: int, n_bytes: int) -> bytes:
    if at < 0 or not 0 <= n_bytes <= _MOST_METADATA:
        raise ValueError("its description is damaged")
    file.seek(at)
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise ValueError("it ends too early")
    return data


class CheckedStream(io.RawIOBase):
    """An Arrow stream, of which each message is looked at before Arrow gets it.

    Parameters
    ----------
    stream : where the messages come from; it need not be a file.

    Attributes
    ----------
    schema : the first message, which describes the columns.

    Raises
    ------
    ValueError
        If the stream is damaged, or a small batch claims to unpack to a large memory.
    """

    def __init__(self, stream: IO[bytes] | io.RawIOBase) -> None:
        super().__init__()
        self._stream = stream
        self.schema = self._ahead = self._message()
        self._dictionaries = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """This many bytes; fewer only at the end."""
        while size < 0 or len(self._ahead) < size:
            message = self._message()
            if not message:
                break
            self._ahead += message
        end = len(self._ahead) if size < 0 else size
        piece, self._ahead = self._ahead[:end], self._ahead[end:]
        return piece

    def _message(self) -> bytes:
        """The next message with its body, once it is known how large it is in memory."""
        prefix = self._exactly(8, may_end=True)
        if not prefix:
            return b""
        mark, length = struct.unpack("<Ii", prefix)
        if mark != _CONTINUATION or not 0 <= length <= _MOST_METADATA:
            raise ValueError("it is not an Arrow stream")
        if length == 0:
            return prefix
        metadata = self._exactly(length)
        try:
            message = _Flat.root(metadata)
            n_body = message.number(3, "<q")
            if n_body < 0:
                raise ValueError("its description is damaged")
            body = self._exactly(n_body)
            if message.number(1, "<B") in (_DICTIONARY_BATCH, _RECORD_BATCH):
                self._check(message, body)
        except (struct.error, OverflowError) as error:
            raise ValueError(f"its description is damaged ({error})") from None
        return prefix + metadata + body

    def _check(self, message: _Flat, body: bytes) -> None:
        def inside(at: int, n_bytes: int) -> bytes:
            if at < 0 or at + n_bytes > len(body):
                raise ValueError("its description is damaged")
            return body[at : at + n_bytes]

        size = _size(message, inside)
        if message.number(1, "<B") == _DICTIONARY_BATCH:
            self._dictionaries += size
            size = self._dictionaries
        if size > unpacked_at_most(len(body)):
            raise ValueError(
                "it unpacks to far more than its own size; if it is meant to, write it without"
                " compression or in smaller batches"
            )

    def _exactly(self, n_bytes: int, *, may_end: bool = False) -> bytes:
        """This many bytes; memory is taken as they come, whatever was claimed."""
        pieces, left = [], n_bytes
        while left > 0:
            piece = bytes(self._stream.read(min(left, _PIECE)) or b"")
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        if left and not (may_end and not pieces):
            raise ValueError("it ends too early")
        return b"".join(pieces)


class _Flat:
    """A table of a flatbuffer: numbered fields, each of which may be missing."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._signed(at)

    @classmethod
    def root(cls, data: bytes) -> _Flat:
        return cls(data, struct.unpack_from("<I", data)[0])

    def place(self, field: int) -> int:
        """Where a field stands, 0 if it is missing."""
        (size,) = struct.unpack_from("<H", self._data, self._checked(self._fields))
        if 4 + 2 * field >= size:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, self._fields + 4 + 2 * field)
        return self._at + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        at = self.place(field)
        return int(struct.unpack_from(form, self._data, at)[0]) if at else 0

    def table(self, field: int) -> _Flat:
        return _Flat(self._data, self._follow(field))

    def structs(self, field: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
        """The entries of a list; none if it is missing."""
        if not self.place(field):
            return
        at = self._follow(field)
        (count,) = struct.unpack_from("<I", self._data, at)
        for number in range(count):
            yield form.unpack_from(self._data, at + 4 + form.size * number)

    def _follow(self, field: int) -> int:
        at = self.place(field)
        if not at:
            raise ValueError("its description is incomplete")
        return at + int(struct.unpack_from("<I", self._data, at)[0])

    def _signed(self, at: int) -> int:
        return int(struct.unpack_from("<i", self._data, self._checked(at))[0])

    def _checked(self, at: int) -> int:
        # struct counts negative places from the end.
        if at < 0:
            raise ValueError("its description is damaged")
        return at
