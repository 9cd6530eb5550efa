"""Files that are written whole or not at all, and for their owner alone unless said otherwise.

A file is written without a name and gets one when it is complete, so that a process that is killed
leaves nothing behind.  Where the file system knows no files without names, or an older file has to
be replaced, the new one has a name of its own for a time; the next one who writes the same file
removes such a leftover.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fedforget.locks import lock

_DESCRIPTORS = "/proc/self/fd"
_PATIENCE = 1.0
"""Seconds after which a new file does without its lock; whoever looks for leftovers has it less."""
_LEFTOVER = re.compile(r"\.fedforget-([0-9a-f]{16})-[0-9a-f]{16}\.new")


@contextmanager
def whole_file(path: Path, *, replace: bool = True, private: bool = True) -> Iterator[BinaryIO]:
    """Write a file in the body of the ``with``; it is there, whole, when the body has ended well.

    Parameters
    ----------
    path : Path
        The file.  A symbolic link is not followed, and only a plain file is replaced.
    replace : bool
        Replace an older file; otherwise an existing file is an error.
    private : bool
        Only the owner can read it (mode 600); otherwise whoever the process's umask allows.

    Yields
    ------
    BinaryIO
        The file to write to.

    Raises
    ------
    OSError
        If the file cannot be written; an older one is as it was.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_target(folder, path.name, replace)
        _remove_leftovers(folder, path.name)
        descriptor, temporary = _new_file(folder, path.name, 0o600 if private else 0o666)
        with os.fdopen(descriptor, "wb") as file:
            try:
                yield file
                file.flush()
                os.fsync(descriptor)
                _give_name(folder, descriptor, temporary, path.name, replace)
            finally:
                if temporary is not None:
                    _remove(folder, temporary)
        os.fsync(folder)
    finally:
        os.close(folder)


def is_leftover(name: str) -> bool:
    """Whether a name is that of a file whose writing was cut off."""
    return _LEFTOVER.fullmatch(name) is not None


def _check_target(folder: int, name: str, replace: bool) -> None:
    """Refuse to replace a link, a device or a directory, or anything without ``replace``."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise OSError(0, "it is a symbolic link; name the file itself")
    if not stat.S_ISREG(mode):
        raise OSError(0, "it exists already and is not a plain file")
    if not replace:
        raise FileExistsError(0, "it exists already")


def _new_file(folder: int, name: str, mode: int) -> tuple[int, str | None]:
    """An empty locked file, and its name if it has to have one."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is not None and os.path.isdir(_DESCRIPTORS):
        # File systems without such files answer in more than one way; then there is a name.
        with suppress(OSError):
            return _locked(os.open(".", flag | os.O_RDWR, mode, dir_fd=folder)), None
    while True:
        temporary = _temporary_name(name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = _locked(os.open(temporary, flags, mode, dir_fd=folder))
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        # Somebody took it for a leftover before it was locked.
        os.close(descriptor)


def _locked(descriptor: int) -> int:
    """Lock a file for as long as it is open: a leftover is what nobody has locked."""
    with suppress(OSError):  # not every file system has locks
        lock(descriptor, _PATIENCE)
    return descriptor


def _give_name(
    folder: int, descriptor: int, temporary: str | None, name: str, replace: bool
) -> None:
    """Put a complete file in its place."""
    if temporary is None:
        try:
            # With a descriptor of the folder, the link in /proc is followed.
            os.link(_link_to(descriptor), name, dst_dir_fd=folder)
            return
        except FileExistsError:
            if not replace:
                raise
        temporary = _temporary_name(name)
        os.link(_link_to(descriptor), temporary, dst_dir_fd=folder)
    try:
        if replace:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    finally:
        _remove(folder, temporary)


def _link_to(descriptor: int) -> str:
    return f"{_DESCRIPTORS}/{descriptor}"


def _remove(folder: int, name: str) -> None:
    with suppress(OSError):  # it is gone if it took the place of the older file
        os.unlink(name, dir_fd=folder)


def _temporary_name(name: str) -> str:
    """A name that tells whose leftover it is, and that nobody can guess beforehand."""
    return f".fedforget-{_tag(name)}-{secrets.token_hex(8)}.new"


def _tag(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:16]


def _remove_leftovers(folder: int, name: str) -> None:
    for other in os.listdir(folder):
        found = _LEFTOVER.fullmatch(other)
        if found and found.group(1) == _tag(name):
            with suppress(OSError):
                _remove_if_abandoned(folder, other)


def _remove_if_abandoned(folder: int, name: str) -> None:
    """Remove a file that no living process writes."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(name, flags, dir_fd=folder)
    try:
        lock(descriptor)
        os.unlink(name, dir_fd=folder)
    finally:
        os.close(descriptor)
