"""Toy operators. They are declared inside a function, so that importing this registers nothing."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from libdesc import invoker
from ptensor import Layout, PTensor, lib_tagger
from ptensor.transform import pack, unpack
from vtensor.language.dims import broadcast
from vtensor.language.operators import Context, operator, param
from vtensor.language.tensor import VTensor
from vtensor.language.traits import Elementwise

Array = np.ndarray[Any, Any]


def declare_operators() -> None:
    """Register ``Toy`` (x to y), ``Pair`` (a, b to y) and ``Mix`` (any number to y)."""

    @operator("Toy", dims={"x": "*", "y": "*"}, traits=[Elementwise()])
    class Toy:
        """One input."""

        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            y = VTensor(x.dtype, x.dims, ctx.output(0))
            ctx.dispatch(self, [x], [y])
            return y

    @operator("Pair", dims={"a": "*", "b": "*", "y": "*"}, traits=[Elementwise()])
    class Pair:
        """Two inputs, broadcast."""

        def compute(self, ctx: Context, a: VTensor, b: VTensor) -> VTensor:
            y = VTensor(a.dtype, broadcast(a.dims, b.dims), ctx.output(0))
            ctx.dispatch(self, [a, b], [y])
            return y

    @operator("Mix", dims={"x": "*", "y": "*"}, traits=[Elementwise()])
    class Mix:
        """Inputs, broadcast, weighted by their number; each operand in the layout that is asked.

        ``asks`` holds a text an operand, the output last: a layout, several with ``|`` between
        them, ``ANY``, or ``-`` for an operand that is never required.
        """

        asks: tuple[str, ...] = param()

        def compute(self, ctx: Context, *x: VTensor) -> VTensor:
            y = VTensor(x[0].dtype, broadcast(*(t.dims for t in x)), ctx.output(0))
            ctx.dispatch(self, list(x), [y])
            return y

    @invoker("Mix", library="toy", python=True)
    def toy_mix(ctx: Context, op: Mix, *operands: VTensor) -> None:
        tensors = [ask(tensor, text) for tensor, text in zip(operands, op.asks, strict=True)]
        if lib_tagger("toy", tensors[:-1], tensors[-1:]):
            return
        write(tensors[-1], mixed([logical(t) for t in tensors[:-1]], operands))


def ask(tensor: VTensor, text: str) -> PTensor:
    """A PTensor that requires what a text says."""
    made = PTensor(tensor)
    if text == "-":
        return made
    return made.require([Layout(one) for one in text.split("|")])


def logical(tensor: PTensor) -> Array:
    """The values of a PTensor, an axis a dim, in presentation order."""
    return unpack(tensor.data(), tensor.required_layout, list(tensor.dims), tensor.dims)


def write(tensor: PTensor, values: Array) -> None:
    """Fill a PTensor, pads with zeros."""
    tensor.data()[...] = pack(values, list(tensor.dims), tensor.required_layout)


def mixed(arrays: list[Array], operands: tuple[VTensor, ...]) -> Array:
    """What ``Mix`` computes: 1 * x0 + 2 * x1 + ... + 1, an axis a dim of the output."""
    *inputs, output = operands
    dims = list(output.dims)
    terms = [
        (index + 1) * spread(array, list(tensor.dims), dims)
        for index, (array, tensor) in enumerate(zip(arrays, inputs, strict=True))
    ]
    total = reduce(np.add, terms) + np.float32(1)
    return np.asarray(np.broadcast_to(total, list(output.dims.values())), np.float32)


def spread(array: Array, have: list[str], want: list[str]) -> Array:
    """An array with one axis for each dim of another, of length 1 where it lacks the dim."""
    order = [have.index(dim) for dim in want if dim in have]
    sizes = [array.shape[have.index(dim)] if dim in have else 1 for dim in want]
    return array.transpose(order).reshape(sizes)
