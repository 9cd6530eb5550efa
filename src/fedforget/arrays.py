"""The array types that signatures name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
UInts = npt.NDArray[np.uint64]
Int32s = npt.NDArray[np.int32]
Labels = Int32s
Flags = npt.NDArray[np.bool_]
Elements = npt.NDArray[np.uint64]
"""Elements of the field that sums are taken in (:mod:`fedforget.scma`)."""
NamedArrays = dict[str, npt.NDArray[Any]]
