"""What element-wise operators share: their outputs, their spellings, and invokers that apply one
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from libdesc import invoker, onednn
from libdesc.numpy.arrays import NUMBERS, aligned, finish, wide
from libdesc.routine import Routine
from ops._names import (
    broadcast_input,
    broadcast_names,
    old_broadcast_input,
    old_broadcast_names,
    same_names,
)
from ops._writing import write_aligned
from ptensor import Layout, PTensor, lib_tagger
from vtensor.language.dims import broadcast
from vtensor.operators import Context, NodeReader, Spelling
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]

#: Numbers and truth values.
ALL = (*NUMBERS, "bool")
#: The element types without fractions.
INTEGERS = ("s64", "s32", "s16", "s8", "u64", "u32", "u16", "u8")
#: The element types that oneDNN's element-wise kernels take.
NATIVE = ("f32", "bf16", "f16")


class Unary:
    """An operator whose result has its operand's dims and element type."""

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """Dispatch on x."""
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


class Question:
    """An operator that says of each element whether something holds."""

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        """Dispatch on x."""
        y = VTensor("bool", x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


class Binary:
    """An operator on two operands whose dims meet by name; the result has the first one's type."""

    def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
        """Dispatch on a and b."""
        y = VTensor(a.dtype, broadcast(a.dims, b.dims), ctx.output(0))
        ctx.dispatch(self, [a, b], [y])
        return y


class Comparison:
    """An operator on two operands whose dims meet by name, that says whether something holds."""

    def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
        """Dispatch on a and b."""
        y = VTensor("bool", broadcast(a.dims, b.dims), ctx.output(0))
        ctx.dispatch(self, [a, b], [y])
        return y


def unary(op_type: str, since: int, make: Callable[[NodeReader], object]) -> Spelling:
    """The spelling of an operator on one operand; ``make`` reads its parameters."""

    def read(node: NodeReader) -> VTensor:
        return node.add(make(node), node.input(0))

    return Spelling(op_type, since, read, same_names, write=write_aligned(op_type))


def binary(op_type: str, since: int, make: Callable[[NodeReader], object]) -> Spelling:
    """The spelling of an operator on two operands; ``make`` reads its parameters."""

    def read(node: NodeReader) -> VTensor:
        return node.add(make(node), broadcast_input(node, 0), broadcast_input(node, 1))

    return Spelling(op_type, since, read, broadcast_names, write=write_aligned(op_type))


def binary_from_1(op_type: str, make: Callable[[NodeReader], object]) -> list[Spelling]:
    """As ``binary``; up to opset 6 attributes say where the second operand is repeated."""

    def read(node: NodeReader) -> VTensor:
        return node.add(make(node), broadcast_input(node, 0), old_broadcast_input(node))

    return [Spelling(op_type, 1, read, old_broadcast_names, until=6), binary(op_type, 7, make)]


def numpy_unary(
    name: str, function: Callable[[Any, Array], Any], dtypes: Sequence[str] = NUMBERS
) -> None:
    """NumPy's invoker: ``function(op, x)``; half and bf16 are computed in f32.

    Where the function of 0 is not 0, pads are zeroed again.
    """

    @invoker(name, library="numpy", dtypes={"x": dtypes}, python=True)
    def apply(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if lib_tagger("numpy", [src], [dst]):
            return
        with np.errstate(all="ignore"):
            dst.data()[...] = function(op, wide(src.data()))
        finish(dst)


def numpy_binary(
    name: str, function: Callable[[Any, Array, Array], Any], dtypes: Sequence[str] = NUMBERS
) -> None:
    """NumPy's invoker: ``function(op, a, b)``; half and bf16 are computed in f32."""

    @invoker(name, library="numpy", dtypes={"a": dtypes, "b": dtypes}, python=True)
    def apply(ctx: Context, op: object, a: VTensor, b: VTensor, y: VTensor) -> None:
        left, right, dst = (PTensor(t).require(Layout.ANY) for t in (a, b, y))
        if lib_tagger("numpy", [left, right], [dst]):
            return
        with np.errstate(all="ignore"):
            dst.data()[...] = function(op, wide(aligned(left, dst)), wide(aligned(right, dst)))
        finish(dst)


def onednn_unary(
    name: str,
    alg: Callable[[Any], str],
    constants: Callable[[Any], tuple[float, float]] = lambda _: (0.0, 0.0),
    when: Callable[..., bool | str] | None = None,
    keep: str = "",
) -> None:
    """oneDNN's invoker: an algorithm of its element-wise primitive and the algorithm's constants.

    ``keep`` is how a NaN comes through an algorithm that loses it. What oneDNN has, but does badly,
    is left to NumPy: its max and min lose a NaN, its log is off by 3e-6 near 1, and its soft_relu
    by as much where the result is small.
    """

    @invoker(name, library="onednn", dtypes=NATIVE, when=when, inplace=["x"])
    def apply(ctx: Context, op: object, x: VTensor, y: VTensor) -> Routine:
        return onednn.Eltwise(alg(op), x, y, *constants(op), keep)


def onednn_binary(name: str, alg: str) -> None:
    """oneDNN's invoker: an algorithm of its primitive on two operands."""

    @invoker(name, library="onednn", dtypes=NATIVE, inplace=["a"])
    def apply(ctx: Context, op: object, a: VTensor, b: VTensor, y: VTensor) -> Routine:
        return onednn.Binary(alg, a, b, y)
