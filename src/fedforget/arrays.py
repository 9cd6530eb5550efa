"""The array types that signatures name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
UInts = npt.NDArray[np.uint64]
Labels = npt.NDArray[np.int32]
