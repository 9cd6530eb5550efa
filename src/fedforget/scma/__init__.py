"""Secure compressed multiset aggregation: sparse multisets as short vectors that can be added."""

from fedforget.scma.codec import Cause, Codec, DecodeError, add, next_capacity
from fedforget.scma.kernels import PRIME
from fedforget.scma.polynomials import Elements, minus

__all__ = ["PRIME", "Cause", "Codec", "DecodeError", "Elements", "add", "minus", "next_capacity"]
