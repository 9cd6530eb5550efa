"""One element of the field of p = 29·2⁵⁷ + 1 elements, and vectors of elements.

A field element a is held as a·2⁶⁴ mod p (*Montgomery form*), in which a product costs three machine
multiplications and no division.  The product of a plain residue and a Montgomery number is a plain
residue, which some kernels use to leave the form for nothing.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedforget.compilation import allocating_kernel, helper

PRIME = 29 * 2**57 + 1
ORDER = 57  # p - 1 = 29 · 2^57
GENERATOR = 3  # of the multiplicative group

P = np.uint64(PRIME)
P2 = np.uint64(2 * PRIME)
_INVERSE = np.uint64(pow(PRIME, -1, 2**64))  # of p modulo 2^64
ONE = np.uint64(2**64 % PRIME)  # one in Montgomery form
SQUARE = np.uint64(2**128 % PRIME)  # takes a plain residue to Montgomery form
ZERO = np.uint64(0)
UNIT = np.uint64(1)
REST = np.uint64(29)


@intrinsic
def _product(typingctx, a, b):
    """The 128-bit product of two words: (high, low)."""
    signature = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64)

    def codegen(context, builder, signature, arguments):
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return _halves(context, builder, product)

    return signature, codegen


@intrinsic
def _add_product(typingctx, high, low, a, b):
    """(high, low) plus the 128-bit product of a and b."""
    signature = types.UniTuple(types.uint64, 2)(*[types.uint64] * 4)

    def codegen(context, builder, signature, arguments):
        wide = ir.IntType(128)
        high, low, a, b = (builder.zext(argument, wide) for argument in arguments)
        total = builder.or_(builder.shl(high, ir.Constant(wide, 64)), low)
        return _halves(context, builder, builder.add(total, builder.mul(a, b)))

    return signature, codegen


def _halves(context, builder, wide_value):
    word = ir.IntType(64)
    high = builder.lshr(wide_value, ir.Constant(wide_value.type, 64))
    parts = [builder.trunc(high, word), builder.trunc(wide_value, word)]
    return cgutils.pack_array(builder, parts)


@helper
def reduce(high, low):
    """(high·2⁶⁴ + low) / 2⁶⁴ mod p, for high < p."""
    correction = _product(low * _INVERSE, P)[0]
    return high - correction if high >= correction else high - correction + P


@helper
def mul(a, b):
    high, low = _product(a, b)
    return reduce(high, low)


@helper
def add(a, b):
    total = a + b
    return total - P if total >= P else total


@helper
def sub(a, b):
    return a - b if a >= b else a - b + P


@helper
def power(a, exponent):
    """``a`` to a power, by repeated squaring."""
    result = ONE
    while exponent:
        if exponent & UNIT:
            result = mul(result, a)
        a = mul(a, a)
        exponent >>= UNIT
    return result


@helper
def inverse(a):
    """1 / a, and 0 for a = 0."""
    return power(a, P - np.uint64(2))


@helper
def shoup_quotient(a):
    """For a in Montgomery form: the quotient that :func:`shoup` wants beside the plain a."""
    return (ZERO - a) * _INVERSE


@helper
def shoup(a, w, quotient):
    """a·w modulo p, but only below 2p; any word a."""
    return a * w - _product(a, quotient)[0] * P


@helper
def copy(source, target):
    """Copy the elements of a vector to the beginning of another.  OUT: target."""
    for i in range(source.size):
        target[i] = source[i]


@helper
def clear(target):
    """Set all elements to zero.  OUT: target."""
    for i in range(target.size):
        target[i] = ZERO


@allocating_kernel
def enter(values):
    """Plain residues in Montgomery form."""
    out = np.empty(values.size, np.uint64)
    for i in range(values.size):
        out[i] = mul(values[i], SQUARE)
    return out


@allocating_kernel
def leave(values):
    """Montgomery numbers as plain residues."""
    out = np.empty(values.size, np.uint64)
    for i in range(values.size):
        out[i] = reduce(ZERO, values[i])
    return out


@allocating_kernel
def multiply(a, b):
    """Products, element by element."""
    out = np.empty(a.size, np.uint64)
    for i in range(a.size):
        out[i] = mul(a[i], b[i])
    return out


@allocating_kernel
def inverses(values):
    """The inverse of every element, none of which is zero, for the price of one and 3n products."""
    n = values.size
    out = np.empty(values.size, np.uint64)
    running = ONE
    for i in range(n):
        out[i] = running
        running = mul(running, values[i])
    running = inverse(running)
    for i in range(n - 1, -1, -1):
        out[i] = mul(out[i], running)
        running = mul(running, values[i])
    return out


@allocating_kernel
def powers(base, n):
    """base⁰ … baseⁿ⁻¹."""
    out = np.empty(n, np.uint64)
    running = ONE
    for i in range(n):
        out[i] = running
        running = mul(running, base)
    return out


@allocating_kernel
def factorials(n):
    """0! … (n-1)!"""
    out = np.empty(n, np.uint64)
    running, number = ONE, ZERO
    for i in range(n):
        out[i] = running
        number = add(number, ONE)
        running = mul(running, number)
    return out


@helper
def dot(a, b):
    """Σ a[i]·b[i]; four products of numbers below p fit 128 bits before a reduction."""
    total = ZERO
    end = a.size - a.size % 4
    for i in range(0, end, 4):
        high, low = _product(a[i], b[i])
        high, low = _add_product(high, low, a[i + 1], b[i + 1])
        high, low = _add_product(high, low, a[i + 2], b[i + 2])
        high, low = _add_product(high, low, a[i + 3], b[i + 3])
        total = add(total, reduce(high, low))
    for i in range(end, a.size):
        total = add(total, mul(a[i], b[i]))
    return total


@allocating_kernel
def inner_product(a, b):
    """Σ a[i]·b[i]; plain residues and Montgomery numbers give a plain residue."""
    return dot(a, b)


@helper
def add_multiple(a, factor, b):
    """Add factor·b[i] to a[i] for each i.  OUT: a."""
    w, quotient = reduce(ZERO, factor), shoup_quotient(factor)
    for i in range(a.size):
        y = shoup(b[i], w, quotient)
        a[i] = add(a[i], y - P if y >= P else y)
