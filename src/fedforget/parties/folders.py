"""A party's directory: private to its owner, and used by one process at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedforget.errors import FedforgetError
from fedforget.locks import lock
from fedforget.whole_files import is_leftover, whole_file

LOCK = "lock"
UNFINISHED = ".unfinished"

IDENTITY = "identity.key"
"""A party's private key."""

FEDERATION = "federation.toml"
"""The federation file in force."""

STORES = {"client": "client.sqlite", "server": "server.sqlite"}
"""The file by which one sees whose directory it is."""

_ENDINGS = ("", ".new", "-journal", "-wal", "-shm")
"""Of a file, of one being written, and of what SQLite puts beside it."""


_FILES = ("policy.toml",)
"""What people put into a directory, and never is a directory itself."""

_SQLITE = b"SQLite format 3\0"
"""So every SQLite file begins."""


class FolderError(FedforgetError):
    """A directory that is missing, taken, in use, or open to others."""


class FolderInUseError(FolderError):
    """A directory that another process holds; it may be free a moment later."""


@contextmanager
def being_made(folder: Path, files: Iterable[str]) -> Iterator[None]:
    """Make a directory that only its owner can enter, and fill it in the body of the ``with``.

    It must not hold anything yet, except what is left of a making that was cut off; that is
    removed.  It cannot be opened before the body has ended well.

    Parameters
    ----------
    folder : the directory.
    files : the names that the body writes.
    """
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"{folder} is a file; choose another directory")
    ours = {UNFINISHED} | {name + ending for name in files for ending in _ENDINGS}
    try:
        _check_vacant(folder, ours)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with held(folder):
            for path in _check_vacant(folder, ours):
                path.unlink()
            (folder / UNFINISHED).touch(mode=0o600)
            sync_folder(folder)
            yield
            (folder / UNFINISHED).unlink()
            sync_folder(folder)
    except OSError as error:
        raise FolderError(f"{folder} cannot be made: {error.strerror}") from None


def _check_vacant(folder: Path, ours: set[str]) -> list[Path]:
    """What is left in a directory of a making that was cut off; anything else is refused."""
    held = [path for path in folder.iterdir() if path.name != LOCK] if folder.exists() else []
    begun = folder / UNFINISHED in held
    for path in held:
        known = path.name in ours or is_leftover(path.name)
        if not begun or not known or not stat.S_ISREG(path.lstat().st_mode):
            raise FolderError(f"{folder} is not empty; choose another directory")
    return held


def check_private(folder: Path) -> None:
    """Refuse a directory, or a file in it, that others can read or write."""
    try:
        if not folder.is_dir():
            raise FolderError(f"{folder} is not a directory")
        paths = (folder, *sorted(folder.rglob("*")))
        modes = [path.lstat().st_mode for path in paths]
    except FileNotFoundError:
        raise FolderInUseError(f"{folder} is in use by another process; try again later") from None
    except OSError as error:
        raise FolderError(f"{folder} cannot be read: {error.strerror}") from None
    for path, mode in zip(paths, modes, strict=True):
        if stat.S_ISLNK(mode):
            # What it leads to may change, and nobody looks there.
            raise FolderError(f"{path} is a link; there must be no links in {folder}")
        if path.name in _FILES and path.parent == folder and stat.S_ISDIR(mode):
            raise FolderError(f"{path} is a directory, and must be a file: remove or replace it")
        if mode & 0o077:
            wanted = "700" if path.is_dir() else "600"
            raise FolderError(
                f"{path} can be read or written by others (mode {stat.S_IMODE(mode):o}); "
                f"run: chmod {wanted} {path}"
            )


def check_whose(folder: Path, kind: str) -> None:
    """Refuse the directory of the other kind of party, with the command that takes it."""
    other = "client" if kind == "server" else "server"
    if (folder / STORES[other]).is_file() and not (folder / STORES[kind]).is_file():
        raise FolderError(
            f"{folder} is a {other}'s directory, not a {kind}'s: give a {kind}'s here, or use the"
            f" commands `fedforget {other} ...` with this one"
        )


def write_private(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write a file that only its owner can read, whole or not at all.

    Parameters
    ----------
    path : Path
        The file; a symbolic link is refused.
    data : bytes
        What it shall hold.
    replace : bool
        Replace an older file.  Otherwise one that holds the same is left alone, and one that holds
        anything else is an error.

    Raises
    ------
    FolderError
        If it cannot be written; an older file is as it was.
    """
    if not replace and _content(path, len(data)) == data:
        return
    with writing_private(path, replace=replace) as file:
        file.write(data)


@contextmanager
def writing_private(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """The same for a file that is written piece by piece, in the body of the ``with``."""
    try:
        with whole_file(path, replace=replace) as file:
            yield file
    except FileExistsError:
        raise FolderError(
            f"{path} exists already with other content; choose another place"
        ) from None
    except OSError as error:
        raise FolderError(f"{path} cannot be written: {error.strerror or error}") from None


def _content(path: Path, n_bytes: int) -> bytes | None:
    """The beginning of a plain file, one byte more than asked for; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return file.read(n_bytes + 1) if plain else None


def strange_databases(folder: Path, ours: Iterable[Path]) -> list[Path]:
    """SQLite files in a party's directory, by whatever name, that are not the party's own.

    Those are not even opened: closing them again would end the locks that SQLite holds on them.
    """
    known = {path.resolve().with_name(path.name + ending) for path in ours for ending in _ENDINGS}
    others = [path for path in sorted(folder.rglob("*")) if path.resolve() not in known]
    return [
        path
        for path in others
        if path.is_file() and (_content(path, len(_SQLITE)) or b"").startswith(_SQLITE)
    ]


def read_key(path: Path, n_bytes: int, what_to_do: str) -> bytes:
    """A key file; ``what_to_do`` is said where it is lost."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FolderError(f"{path} is missing: {what_to_do}") from None
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) != n_bytes:
        raise FolderError(f"{path} is damaged ({len(data)} bytes, not {n_bytes}): {what_to_do}")
    return data


def sync_folder(folder: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Open a party's directory for this process: private, finished, and held."""
    check_private(folder)
    with held(folder):
        if (folder / UNFINISHED).exists():
            raise FolderError(f"{folder} is unfinished: its init was cut off; run it again")
        yield


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a directory, whatever it is; a second process is told so instead of waiting."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FolderError(f"{folder} cannot be written: {error.strerror}") from None
    try:
        try:
            lock(descriptor)
        except OSError:
            raise FolderInUseError(
                f"{folder} is in use by another process; try again later"
            ) from None
        yield
    finally:
        os.close(descriptor)
