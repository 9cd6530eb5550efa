"""One thread, and what the numbers were made with."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
                    "NUMBA_NUM_THREADS")  # fmt: skip
PACKAGES = ("fedforget", "numpy", "scipy", "scikit-learn", "numba", "python-flint", "matplotlib")


@contextmanager
def one_thread() -> Iterator[None]:
    """Everything inside runs on one thread, whatever the environment says.

    The variables only help where NumPy is not loaded yet; the libraries are told as well.
    """
    if "numpy" not in sys.modules:
        os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")
    import numba
    import sklearn.cluster  # noqa: F401  (its thread pool must be there to be limited)
    from threadpoolctl import threadpool_limits

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        numba.set_num_threads(before)


def describe() -> dict[str, str]:
    """The machine and the versions, without names or folders."""
    facts = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads used": "1",
        "Python": platform.python_version(),
    }
    return facts | {name: version(name) for name in PACKAGES}


def _processor() -> str:
    return _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory() -> str:
    kilobytes = _field("/proc/meminfo", "MemTotal").split(" ")[0]
    return f"{int(kilobytes) / 2**20:.0f} GiB" if kilobytes.isdigit() else "unknown"


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((one.split(":", 1)[1].strip() for one in lines if one.startswith(name)), "")
