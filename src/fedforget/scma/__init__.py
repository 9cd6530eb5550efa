"""Secure compressed multiset aggregation: sparse multisets as short vectors that can be added."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedforget.lazy import names_from

if TYPE_CHECKING:
    from fedforget.arrays import Elements
    from fedforget.scma.codec import Cause, Codec, DecodeError, add, next_capacity
    from fedforget.scma.kernels import PRIME
    from fedforget.scma.polynomials import minus
else:
    # They load numba and python-flint.
    __getattr__ = names_from(
        __name__,
        {
            "PRIME": "fedforget.scma.kernels",
            "Cause": "fedforget.scma.codec",
            "Codec": "fedforget.scma.codec",
            "DecodeError": "fedforget.scma.codec",
            "Elements": "fedforget.arrays",
            "add": "fedforget.scma.codec",
            "minus": "fedforget.scma.polynomials",
            "next_capacity": "fedforget.scma.codec",
        },
    )

__all__ = ["PRIME", "Cause", "Codec", "DecodeError", "Elements", "add", "minus", "next_capacity"]
