"""Compiled kernels are kept, used again only while nothing that they depend on has changed, and
loaded only from a folder that is the user's own."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import numba
import pytest

import fedforget
from fedforget import kernel_cache, warmup

SOURCE = Path(fedforget.__file__).parent

ONE_KERNEL = """
import sys, numpy as np
from fedforget.clustering.kernels import race
from fedforget.compilation import compiled_now
u = np.array([0.5, 0.25])
keys = np.arange(2, dtype=np.uint64)
bound = race.runner_up(keys, keys, np.uint64(1), u, 0)
print(compiled_now(), repr(float(bound)))
"""


def run(
    code: str, cache: Path | None, *, source: Path = SOURCE.parent, **options: object
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("XDG_CACHE_HOME", kernel_cache.VARIABLE)
    }
    environment["PYTHONPATH"] = str(source)
    if cache is not None:
        environment[kernel_cache.VARIABLE] = str(cache)
    environment |= options.pop("environment", {})
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def compiled_and_result(cache: Path, source: Path) -> tuple[int, str]:
    done = run(ONE_KERNEL, cache, source=source)
    assert done.returncode == 0, done.stderr
    compiled, result = done.stdout.split()
    return int(compiled), result


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the package, to be edited."""
    shutil.copytree(SOURCE, tmp_path / "clone" / "fedforget", ignore=_no_caches)
    return tmp_path / "clone"


def _no_caches(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]


def test_a_change_of_a_helper_compiles_its_callers_again(clone: Path, tmp_path: Path) -> None:
    """The helper ``uniform`` and the kernel that calls it are in different modules."""
    cache = tmp_path / "cache"
    first, result = compiled_and_result(cache, clone)
    assert first == 1
    assert compiled_and_result(cache, clone) == (0, result)
    helpers = clone / "fedforget/clustering/kernels/clocks.py"
    text = helpers.read_text()
    changed = text.replace("return u if u < 0.9999999999999999", "return 2.0 * u if u < 0.25")
    assert changed != text
    helpers.write_text(changed)
    compiled, other = compiled_and_result(cache, clone)
    assert compiled == 1
    assert other != result
    helpers.write_text(text)
    assert compiled_and_result(cache, clone) == (0, result)


def test_a_change_elsewhere_compiles_nothing(clone: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    compiled_and_result(cache, clone)
    for module in ("clustering/kernels/index.py", "scma/kernels/field.py", "clustering/race.py"):
        path = clone / "fedforget" / module
        path.write_text(path.read_text() + "\n# A remark.\n")
    assert compiled_and_result(cache, clone)[0] == 0


def test_old_versions_do_not_pile_up(clone: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    helpers = clone / "fedforget/clustering/kernels/clocks.py"
    text = helpers.read_text()
    for number in range(kernel_cache.KEPT_VERSIONS + 2):
        helpers.write_text(f"{text}\n# Version {number}.\n")
        assert compiled_and_result(cache, clone)[0] == 1
    entries = list((cache / "kernels").glob("clustering.kernels.race.runner_up-*"))
    assert len(entries) == kernel_cache.KEPT_VERSIONS


def test_a_damaged_entry_is_compiled_again(clone: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    _, result = compiled_and_result(cache, clone)
    (entry,) = (cache / "kernels").glob("clustering.kernels.race.runner_up-*")
    entry.write_bytes(entry.read_bytes()[:-9])
    assert compiled_and_result(cache, clone) == (1, result)


def test_the_stamp_covers_what_is_imported_and_no_more() -> None:
    module = "fedforget.clustering.replay.walk"
    covered = kernel_cache.sources(module)
    for part in ("arithmetic", "estimates", "margins", "moves", "outcomes", "points", "state"):
        assert f"fedforget.clustering.replay.{part}" in covered
    for part in ("clustering.kernels.clocks", "clustering.kernels.distance", "compilation"):
        assert f"fedforget.{part}" in covered
    assert not any(name.startswith("fedforget.scma") for name in covered)
    assert "fedforget.clustering.replay.engine" not in covered


def test_the_stamp_sees_every_form_of_import(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import os, fedforget.arrays
from fedforget.clustering import (
    distance,  # squared (not rooted)
    ids,
)
if os.name:
    from fedforget import errors as known
"""
    monkeypatch.setattr(kernel_cache, "_source", lambda module: text.encode())
    found = kernel_cache._imported.__wrapped__("any")
    for module in ("arrays", "clustering.distance", "clustering.ids", "errors"):
        assert f"fedforget.{module}" in found
    assert all(name.startswith("fedforget") for name in found)


def called_by(function: FunctionType, seen: set[FunctionType]) -> None:
    """Collect a function and all functions of this package among its globals and closures."""
    if function in seen:
        return
    seen.add(function)
    used = inspect.getclosurevars(function)
    for value in (*used.globals.values(), *used.nonlocals.values()):
        plain = getattr(value, "py_func", value)
        if isinstance(plain, FunctionType) and plain.__module__.startswith("fedforget."):
            called_by(plain, seen)


def test_the_stamp_covers_the_file_of_every_helper() -> None:
    """Kernels and helpers are found as Python finds them, not by what their modules import."""
    helpers = 0
    for kernel in warmup.KERNELS:
        functions: set[FunctionType] = set()
        called_by(kernel.py_func, functions)
        helpers += len(functions) - 1
        covered = kernel_cache.sources(kernel.py_func.__module__)
        files = {str(SOURCE.parent / name.replace(".", "/")) for name in covered}
        for function in functions:
            assert function.__code__.co_filename.removesuffix(".py") in files, (kernel, function)
    assert helpers > 100


# -- whose folder it is ----------------------------------------------------------------------------


def test_the_folder_is_closed_to_others(tmp_path: Path) -> None:
    assert run(ONE_KERNEL, tmp_path / "cache").returncode == 0
    assert (tmp_path / "cache" / "kernels").stat().st_mode & 0o777 == 0o700


def warns_once(done: subprocess.CompletedProcess[str], reason: str) -> bool:
    """Whether a run has worked, and said in one sentence what is wrong and what to set."""
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("KernelCacheWarning") == 1
    return reason in done.stderr and kernel_cache.VARIABLE in done.stderr


def test_a_folder_that_is_open_to_others_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    assert warns_once(run(ONE_KERNEL, tmp_path / "cache"), "is open to other users")
    assert not list(folder.iterdir())


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernels").symlink_to(tmp_path / "elsewhere")
    assert warns_once(run(ONE_KERNEL, tmp_path / "cache"), "is not a folder")


def test_a_parent_in_which_others_can_exchange_the_folder_is_not_used(tmp_path: Path) -> None:
    parent = tmp_path / "cache"
    parent.mkdir()
    parent.chmod(0o777)
    assert warns_once(run(ONE_KERNEL, parent), "other users can exchange what is in")
    assert not list(parent.iterdir())
    parent.chmod(0o1777)
    done = run(ONE_KERNEL, parent)
    assert (done.returncode, done.stderr) == (0, "")


MEANWHILE = """
import os, pathlib, shutil
from fedforget import kernel_cache
entries = kernel_cache.folder()
(entry,) = entries.glob("clustering.kernels.race.runner_up-*")
"""


def first_entry(cache: Path) -> str:
    """Keep an entry, and give what the kernel returned."""
    done = run(ONE_KERNEL, cache)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[1]


@pytest.mark.parametrize(
    ("exchange", "reason"),
    [
        ("entry.rename(entries / 'x'); entry.symlink_to(entries / 'x')", "is a symbolic link"),
        ("entry.chmod(0o620)", "can be written to by other users"),
        ("entry.chmod(0o602)", "can be written to by other users"),
        ("entry.unlink(); os.mkfifo(entry)", "is not a plain file"),
    ],
)
def test_an_entry_that_others_may_have_written_is_not_read(
    exchange: str, reason: str, tmp_path: Path
) -> None:
    """Even if it took its place after the folder was checked."""
    result = first_entry(tmp_path / "cache")
    done = run(MEANWHILE + exchange + ONE_KERNEL, tmp_path / "cache")
    assert warns_once(done, reason)
    assert done.stdout.split() == ["1", result]


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can enter, and write to."""
    folder = Path("/tmp") / f"fedforget-test-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def installation(shared: Path) -> Path:
    """A copy of the package that others can read, and nobody but root can write to."""
    source = shared / "installed"
    shutil.copytree(SOURCE, source / "fedforget", ignore=_no_caches)
    for path in (source, *source.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return source


BECOME_NOBODY = """
import os, numba, numpy as np
# What root alone can read of this Python is imported first.
numba.njit(lambda x: x[1:].sum() + min(x[0], 1.0))(np.zeros(3))
import fedforget.clustering.kernels.race
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
"""


@as_root
def test_two_users_of_one_installation(shared: Path) -> None:
    """The second user neither loads the first one's entries nor fails."""
    source = installation(shared)
    cache = shared / "cache"
    cache.mkdir()
    cache.chmod(0o1777)
    assert run(ONE_KERNEL, cache, source=source).returncode == 0
    other = run(BECOME_NOBODY + ONE_KERNEL, cache, source=source)
    assert warns_once(other, "belongs to another user")
    home = shared / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for compiled in ("1 ", "0 "):
        own = run(BECOME_NOBODY + ONE_KERNEL, None, source=source, environment={"HOME": str(home)})
        assert own.stdout.startswith(compiled), own.stderr
        assert not own.stderr


@as_root
def test_an_entry_of_another_user_is_not_read(tmp_path: Path) -> None:
    result = first_entry(tmp_path / "cache")
    done = run(MEANWHILE + "os.chown(entry, 65534, 65534)" + ONE_KERNEL, tmp_path / "cache")
    assert warns_once(done, "belongs to another user")
    assert done.stdout.split() == ["1", result]


@as_root
@pytest.mark.parametrize("home", ["", "/nonexistent"])
def test_an_account_without_a_home_directory(home: str, shared: Path) -> None:
    """And a read-only installation: there is nowhere to write to."""
    source = installation(shared)
    code = BECOME_NOBODY + ("" if home else "del os.environ['HOME']\n") + ONE_KERNEL
    done = run(code, None, source=source, environment={"HOME": home})
    assert warns_once(done, "cannot be kept")


def test_this_numba_has_what_the_cache_uses() -> None:
    """numba's inside is not a promise; ``make test-lowest`` tries the lowest that is declared."""
    assert tuple(map(int, numba.__version__.split(".")[:2])) >= (0, 60)
