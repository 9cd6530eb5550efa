"""Exact clustering that can forget: pure functions and small classes, arrays in, arrays out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedforget.lazy import Deferred

if TYPE_CHECKING:
    from fedforget.clustering import kernels as kernels
else:
    # They load numba.
    kernels = Deferred("fedforget.clustering.kernels")
