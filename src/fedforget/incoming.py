"""Files that somebody else wrote: read with limits, and refused by name when they are not right.

Nothing here believes a file.  Sizes are checked before memory is taken, JSON means one thing only,
and arrays hold plain numbers or text.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedforget.errors import FedforgetError

MAX_JSON_BYTES = 64 << 20
PLAIN_KINDS = "biufUSmM"
"""Kinds of arrays whose bytes are their values: numbers, text, times."""

_MEMBERS_AT_MOST = 100_000
_UNPACKED_BYTES = 256 << 20
_UNPACKED_RATIO = 20
"""An archive may unpack to so many bytes, or to so many times its own size."""
_HEADER_CHARACTERS = 10_000


class IncomingFileError(FedforgetError, ValueError):
    """A file that is too large, damaged, or of another kind than it should be."""


# -- text and JSON ---------------------------------------------------------------------------------


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """The bytes of a file that may have at most ``max_bytes``."""
    try:
        with open(path, "rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise IncomingFileError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:  # a path with a zero byte
        raise IncomingFileError(f"{str(path)!r} is not the name of a file") from None
    if len(data) > max_bytes:
        raise IncomingFileError(f"{path} is larger than {max_bytes:,} bytes; is it the right file?")
    return data


def read_text(path: Path, max_bytes: int) -> str:
    """The text of a UTF-8 file that may have at most ``max_bytes``."""
    try:
        return read_bytes(path, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise IncomingFileError(f"{path} is not UTF-8 text") from None


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file of somebody else.

    Parameters
    ----------
    path : Path
        The file.
    max_bytes : int
        The largest size; a larger file is refused before it is parsed.

    Returns
    -------
    object
        What the file holds.

    Raises
    ------
    IncomingFileError
        If the file cannot be read, is too large, is not UTF-8, or is not strict JSON (see
        :func:`parse_json`).  The message names the file.
    """
    return parse_json(read_text(path, max_bytes), str(path))


def parse_json(text: str, source: str) -> Any:
    """Parse strict JSON: no repeated keys, no NaN, no infinite numbers, no half characters.

    Parameters
    ----------
    text : str
        The JSON.
    source : str
        Where it comes from; error messages begin with it.

    Returns
    -------
    object
        The value.

    Raises
    ------
    IncomingFileError
        If the text is anything else.

    Examples
    --------
    >>> parse_json('{"a": 1, "a": 2}', "our.json")
    Traceback (most recent call last):
    fedforget.incoming.IncomingFileError: our.json is not proper JSON: the key 'a' occurs twice
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
        if "\\u" in text:
            # An escape can stand for half a character, which no file and no terminal takes.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise IncomingFileError(f"{source} is not proper JSON: it is nested too deeply") from None
    except UnicodeEncodeError:
        raise IncomingFileError(f"{source} is not proper JSON: half a character") from None
    except ValueError as error:
        raise IncomingFileError(f"{source} is not proper JSON: {error}") from None
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key[:50]!r} occurs twice")
        result[key] = value
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:30]} is too large")
    return value


# -- arrays ----------------------------------------------------------------------------------------


def unpacked_at_most(n_bytes: int) -> int:
    """To how many bytes a compressed file of ``n_bytes`` may unpack."""
    return max(_UNPACKED_BYTES, _UNPACKED_RATIO * n_bytes)


class Npz:
    """The arrays of an npz file, each one read when it is asked for.

    Before memory is taken for an array, the size in the archive's directory is compared with the
    shape and type in the array's header, and all arrays read so far with a limit.

    Parameters
    ----------
    file : the open archive.
    source : its name; error messages begin with it.
    """

    def __init__(self, file: IO[bytes], source: str) -> None:
        self._source = source
        size = os.fstat(file.fileno()).st_size
        self._left = unpacked_at_most(size)
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise self._error(f"cannot be read: it is not an npz file ({error})") from None
        members = self._archive.infolist()
        self._members = {one.filename.removesuffix(".npy"): one for one in members}
        if len(members) > _MEMBERS_AT_MOST:
            raise self._error(f"holds more than {_MEMBERS_AT_MOST:,} arrays")
        if len(self._members) != len(members):
            raise self._error("holds an array twice")

    def __enter__(self) -> Npz:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._archive.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One array; KeyError if there is none of this name."""
        member = self._members[name]
        try:
            with self._archive.open(member) as file:
                shape, fortran, dtype = self._header(file, member, name)
                return _array(file, shape, fortran, dtype)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError) as error:
            raise self._error(f"is damaged in the array {name!r} ({error})") from None
        except (ValueError, RuntimeError) as error:
            if isinstance(error, IncomingFileError):
                raise
            raise self._error(f"holds no plain array {name!r} ({error})") from None

    def _header(
        self, file: IO[bytes], member: zipfile.ZipInfo, name: str
    ) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        """Shape, order and type of an array, once its size is known to be what is there."""
        shape, fortran, dtype = _read_header(file)
        if dtype.kind not in PLAIN_KINDS:
            raise self._error(f"holds {dtype} in the array {name!r}, not numbers or text")
        count = math.prod(shape)
        if count and not dtype.itemsize:
            raise self._error(f"holds elements without size in the array {name!r}")
        if file.tell() + count * dtype.itemsize != member.file_size:
            raise self._error(
                f"is damaged: the array {name!r} does not have the size that it claims"
            )
        self._left -= member.file_size
        if self._left < 0:
            raise self._error(
                "unpacks to far more than its own size; if it is meant to, save it without"
                " compression (numpy.savez)"
            )
        return shape, fortran, dtype

    def _error(self, problem: str) -> IncomingFileError:
        return IncomingFileError(f"{self._source} {problem}")


@contextmanager
def open_npz(path: Path) -> Iterator[Npz]:
    """Open an npz file of somebody else.

    Parameters
    ----------
    path : Path
        The file.

    Yields
    ------
    Npz
        Its arrays, by their names.

    Raises
    ------
    IncomingFileError
        If it cannot be read or is not an npz file; an array that is not what it claims to be is
        refused when it is asked for.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise IncomingFileError(f"{path} cannot be read: {error.strerror}") from None
        yield stack.enter_context(Npz(file, str(path)))


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"version {version} of the format is not read")
    shape, fortran, dtype = readers[version](file, max_header_size=_HEADER_CHARACTERS)
    if any(not 0 <= length < 2**62 for length in shape):
        raise ValueError(f"no array can have the shape {shape}")
    return shape, fortran, dtype


def _array(
    file: IO[bytes], shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """The elements that follow a checked header."""
    values = np.empty(shape, dtype=dtype, order="F" if fortran else "C")
    flat = values.reshape(-1, order="A").view(np.uint8)
    done = 0
    while done < len(flat):
        piece = file.read(min(1 << 20, len(flat) - done))
        if not piece:
            raise EOFError("it ends too early")
        flat[done : done + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
        done += len(piece)
    # Reading to the end compares the archive's checksum.
    if file.read(1):
        raise ValueError("more follows than the header says")
    return values
