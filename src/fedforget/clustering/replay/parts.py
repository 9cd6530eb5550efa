"""How kernels get at the parts of a replay's state: one pointer per part.

Compiled code that is given dozens of arrays passes each of their lengths and strides from function
to function, and takes minutes to compile.  So a kernel is given a *table* for each part, with the
address and the lengths of each declared array.  In a kernel ``part.name`` is that array, made of
the table's entry; its type is the declared one.

Tables do not change while a kernel runs.  Whoever makes one keeps the arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
)
from numba.np.arrayobj import make_array, populate_array
from numba.np.numpy_support import from_dtype

from fedforget.arrays import Ints
from fedforget.clustering.replay.state import Spec, specs

_ENTRY = 4  # An address and up to three lengths.
_WORD = ir.IntType(64)


def table_of(part: tuple[Any, ...]) -> Ints:
    """The addresses and lengths of a part's arrays."""
    table = np.zeros((len(part), _ENTRY), dtype=np.int64)
    for entry, array in zip(table, part, strict=True):
        assert array.flags.c_contiguous
        entry[0] = array.ctypes.data
        entry[1 : 1 + array.ndim] = array.shape
    return table.reshape(-1)


class PartType(types.Type):
    """The type of a part in a kernel."""

    def __init__(self, part: type) -> None:
        self.part = part
        super().__init__(name=f"{part.__module__}.{part.__name__}")


@register_model(PartType)
class _PartModel(models.PrimitiveModel):
    def __init__(self, manager: Any, part_type: PartType) -> None:
        super().__init__(manager, part_type, _WORD.as_pointer())


def _type_of(spec: Spec) -> Any:
    inside = from_dtype(spec.dtype)
    return types.Array(inside, len(spec.shape), "C") if spec.shape else inside


@infer_getattr
class _PartAttributes(AttributeTemplate):
    key = PartType

    def generic_resolve(self, part_type: PartType, name: str) -> Any:  # type: ignore[override]
        spec = specs(part_type.part).get(name)
        return None if spec is None else _type_of(spec)


@lower_getattr_generic(PartType)
def _array_of(context: Any, builder: Any, part_type: PartType, table: Any, name: str) -> Any:
    """The array that an entry of the table describes; for a single record its address."""
    declared = specs(part_type.part)
    spec, first = declared[name], _ENTRY * list(declared).index(name)

    def word(place: int) -> Any:
        loaded = builder.load(builder.gep(table, [ir.Constant(_WORD, place)]))
        # Nobody writes to tables, so that loops need to read them only once.
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    address = word(first)
    wanted = _type_of(spec)
    if not spec.shape:
        return builder.inttoptr(address, context.get_value_type(wanted))
    lengths = [word(first + 1 + axis) for axis in range(len(spec.shape))]
    stride = ir.Constant(_WORD, spec.dtype.itemsize)
    strides = [stride]
    for length in lengths[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    array = make_array(wanted)(context, builder)
    populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=cgutils.pack_array(builder, lengths),
        strides=cgutils.pack_array(builder, strides),
        itemsize=stride,
        meminfo=None,
    )
    return array._getvalue()


def part_of(part: type) -> Any:
    """A function for kernels that takes a table for a part."""

    @intrinsic
    def from_table(typing_context: Any, table: Any) -> Any:
        signature = PartType(part)(table)

        def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, arguments[0])
            return builder.bitcast(array.data, _WORD.as_pointer())

        return signature, make

    return from_table
