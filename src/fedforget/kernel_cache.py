"""Where compiled kernels are kept between runs, and when one may be used again.

An entry is a file that holds one compiled kernel for one signature.  Its name is a hash of
everything that the machine code depends on: the text of the kernel's module and of every module of
this package that it imports (helpers and constants are compiled into their callers), the
signature, the processor, and the versions of Python, numba and llvmlite.  So an entry is never out
of date, and clones of different age can share one folder.

Entries are pickles, and whoever can write them can run code as their reader.  The folder must
therefore belong to the user and be closed to everybody else, and nobody else may be able to put
another one in its place, or it is not used.  As a folder can be exchanged later, every entry is
checked again, after it was opened and before it is read.
"""

from __future__ import annotations

import ast
import errno
import hashlib
import importlib.util
import os
import pickle
import platform
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import caching, compiler, serialize

from fedforget.errors import KernelCacheWarning
from fedforget.whole_files import whole_file

VARIABLE = "FEDFORGET_CACHE"
"""The environment variable that names the folder."""

KEPT_VERSIONS = 4
"""How many versions of a kernel keep their entries: a few branches or clones in turn."""

_UNUSED_SECONDS = 60 * 86_400
_TOUCH_SECONDS = 86_400
_PACKAGE = __name__.partition(".")[0]


# -- the folder ------------------------------------------------------------------------------------


@cache
def folder() -> Path | None:
    """The folder of this user's entries; None, with one warning, if there is none to be had."""
    try:
        place = _place()
        _make(place)
    except OSError as error:
        reason = error.strerror or str(error)
        warnings.warn(
            f"compiled kernels cannot be kept ({reason}), so every start compiles them again;"
            f" set {VARIABLE} to a folder that only you can write to",
            KernelCacheWarning,
            stacklevel=2,
        )
        return None
    return place


def _place() -> Path:
    """The named folder, or one in the user's cache directory."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).absolute() / "kernels"
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            raise OSError(0, "this account has no home directory")
        base = os.path.join(home, ".cache")
    return Path(base) / "fedforget" / "kernels"


def _make(place: Path) -> None:
    """Make the folder if necessary; refuse one that others could write to or own."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = place.parent.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise OSError(0, f"other users can exchange what is in {place.parent}")
    with suppress(FileExistsError):
        place.mkdir(mode=0o700)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(0, f"{place} is not a folder")
    if hasattr(os, "geteuid"):
        if found.st_uid != os.geteuid():
            raise OSError(0, f"{place} belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise OSError(0, f"{place} is open to other users; its mode should be 700")
    if not os.access(place, os.W_OK | os.X_OK):
        raise OSError(0, f"{place} cannot be written to")


def _read_own(path: Path) -> bytes:
    """The content of an entry that only this user can have written.

    The file is checked after it was opened: what lies under its name can be exchanged meanwhile.
    Another user's file is a ``PermissionError`` that says why.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PermissionError(0, "is a symbolic link") from None
        raise
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(0, "is not a plain file")
        if found.st_uid != os.geteuid():
            raise PermissionError(0, "belongs to another user")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(0, "can be written to by other users")
        if time.time() - found.st_mtime > _TOUCH_SECONDS:
            os.utime(descriptor)
        return file.read()


# -- what an entry depends on ----------------------------------------------------------------------


@cache
def _source(module: str) -> bytes | None:
    """The text of one of this package's modules; None if there is no such module."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return None
    if found is None or found.origin is None:
        return None
    return Path(found.origin).read_bytes()


@cache
def _imported(module: str) -> frozenset[str]:
    """The names in this package that a module imports: modules, and what it takes from them."""
    tree = ast.parse(_source(module) or b"")
    names = {name for statement in ast.walk(tree) for name in _names_in(statement)}
    return frozenset(name for name in names if name.partition(".")[0] == _PACKAGE)


def _names_in(statement: ast.AST) -> Iterator[str]:
    """What one statement imports; this package has no relative imports."""
    if isinstance(statement, ast.Import):
        yield from (one.name for one in statement.names)
    elif isinstance(statement, ast.ImportFrom) and statement.module is not None:
        yield statement.module
        yield from (f"{statement.module}.{one.name}" for one in statement.names)


def sources(module: str) -> dict[str, bytes]:
    """The text of a module, and that of every module of this package that it imports."""
    texts: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        text = _source(name)
        if name in texts or text is None:
            continue
        texts[name] = text
        waiting += _imported(name)
    return texts


@cache
def stamp(module: str) -> str:
    """A hash over :func:`sources`."""
    texts = sources(module)
    hashed = hashlib.sha256()
    for name in sorted(texts):
        hashed.update(f"{name} {len(texts[name])}\n".encode() + texts[name])
    return hashed.hexdigest()[:16]


def versions() -> tuple[str, ...]:
    """Those of Python, numba and llvmlite."""
    return platform.python_version(), numba.__version__, llvmlite.__version__


# -- one kernel's entries --------------------------------------------------------------------------


class KernelCache(caching._Cache):
    """The entries of one kernel, as numba's dispatcher asks for them.

    ``on_compiled`` is called with the kernel's name after it was compiled, kept or not.
    """

    on_compiled: Callable[[str], None] | None = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module = function.__module__
        self._name = f"{function.__module__.removeprefix(_PACKAGE + '.')}.{function.__qualname__}"
        self._enabled = True

    @property
    def cache_path(self) -> str | None:
        place = folder()
        return None if place is None else str(place)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        """Remove all entries of this version of the kernel."""
        place = folder()
        for path in place.glob(f"{self._prefix}*") if place is not None else ():
            path.unlink(missing_ok=True)

    @property
    def _prefix(self) -> str:
        return f"{self._name}-{stamp(self._module)}-"

    def _entry(self, signature: object, context: Any) -> Path | None:
        place = folder()
        if place is None or not self._enabled:
            return None
        options = context.codegen().magic_tuple(), bool(getattr(numba.config, "BOUNDSCHECK", False))
        rest = repr((str(signature), options, versions()))
        return place / f"{self._prefix}{hashlib.sha256(rest.encode()).hexdigest()[:16]}.nbc"

    def load_overload(self, signature: object, target_context: Any) -> Any:
        """The compiled kernel for a signature; None if there is none that can be used."""
        target_context.refresh()
        path = self._entry(signature, target_context)
        if path is None:
            return None
        try:
            written = _read_own(path)
        except PermissionError as error:
            warnings.warn(
                f"compiled kernels in {path.parent} are not used ({path.name} {error.strerror}), so"
                f" every start compiles them again; remove the folder, or set {VARIABLE} to one"
                f" that only you can write to",
                KernelCacheWarning,
                stacklevel=2,
            )
            return None
        except OSError:
            return None
        digest, data = written[:32], written[32:]
        if hashlib.sha256(data).digest() != digest:
            return None
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(data))

    def save_overload(self, signature: object, data: Any) -> None:
        """Keep a compiled kernel, whole or not at all, and let go of old versions."""
        path = self._entry(signature, data.target_context)
        if path is not None and not data.library.has_dynamic_globals:
            reduced = serialize.dumps(data._reduce())
            with suppress(OSError):
                with whole_file(path) as file:
                    file.write(hashlib.sha256(reduced).digest() + reduced)
                _forget_old_versions(path.parent, self._name)
        if KernelCache.on_compiled is not None:
            KernelCache.on_compiled(self._name)


def _forget_old_versions(place: Path, name: str) -> None:
    """Keep the entries of a kernel's latest versions; remove whatever was not used for long."""
    newest: dict[str, float] = {}
    files = []
    now = time.time()
    for entry in os.scandir(place):
        written = entry.stat().st_mtime
        if now - written > _UNUSED_SECONDS:
            os.unlink(entry.path)
        elif entry.name.startswith(f"{name}-"):
            version = entry.name[len(name) + 1 :].partition("-")[0]
            newest[version] = max(newest.get(version, 0.0), written)
            files.append((version, entry.path))
    kept = sorted(newest, key=newest.__getitem__)[-KEPT_VERSIONS:]
    for version, path in files:
        if version not in kept:
            os.unlink(path)
