"""Secure compressed multiset aggregation: sparse multisets as short vectors that can be added."""

from fedforget.scma.codec import Cause, Codec, DecodeError, add, next_capacity

__all__ = ["Cause", "Codec", "DecodeError", "add", "next_capacity"]
