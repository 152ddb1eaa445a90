"""``definition`` and ``elementwise``: NumPy's invoker, written as what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np

from libdesc.invokers import When
from libdesc.numpy.arrays import aligned, finish, wide
from libdesc.numpy.casts import stored
from libdesc.registry import invoker
from libdesc.routine import Routine, Wanted
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.failures import place_of
from vtensor.operators import Context
from vtensor.tensor import VTensor

#: Writes the outputs: called as an invoker is, with a PTensor for each operand.
Compute = Callable[..., None]


def declared(tensor: VTensor) -> Layout:
    """The order in which an operand's dims are declared."""
    return Layout.plain(tensor.dims)


def anyhow(tensor: VTensor) -> Layout:  # noqa: ARG001  # an order is asked of each operand
    """All operands in one layout, whichever it is."""
    return Layout.ANY


def definition(
    *ops: str,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    order: Callable[[VTensor], Wanted] = declared,
    orders: Callable[..., Sequence[Wanted]] | None = None,
    when: When | None = None,
) -> Callable[[Compute], Compute]:
    """Register a function as NumPy's invoker of operators: what their values are.

    Args:
        ops: the operators' names.
        dtypes, when: as for ``invoker``.
        order: the layout in which the function wants an operand.
        orders: the layouts of all operands, from the instance and the operands, where they depend
            on more than the operand itself.

    The function is called with the context, the instance and the operands as PTensors, once their
    layouts are decided; it writes every output. NumPy says nothing of what is infinite or no number
    then: those are results.
    """

    def register(compute: Compute) -> Compute:
        @wraps(compute)
        def describe(ctx: Context, op: Any, *operands: VTensor) -> Routine:
            wants = orders(op, *operands) if orders else [order(tensor) for tensor in operands]
            return Routine(operands, wants, run=partial(_silently, compute, ctx, op))

        for name in ops:
            invoker(name, library="numpy", dtypes=dtypes, when=when, python=True)(describe)
        return compute

    return register


def _silently(compute: Compute, *args: Any) -> None:
    with np.errstate(all="ignore"):
        compute(*args)


def elementwise(
    op: str,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    widen: bool = True,
    keeps_zero: Callable[[Any], bool] = lambda _: False,
    place: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of arrays as NumPy's invoker of an element-wise operator.

    Args:
        op: the operator's name.
        dtypes: as for ``invoker``.
        widen: half and bf16 come as f32, and what NumPy has no arithmetic for likewise.
        keeps_zero: of an instance: where all inputs are 0, so is the output.
        place: file and line of the function, where it is not written in Python.

    The function is called with the instance and an array an input, and returns the output. All lie
    in one layout; an axis that an input lacks, or along which it is repeated, has length 1. The
    padding of the output is zeroed where the function does not keep it 0.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        def compute(ctx: Context, instance: Any, *operands: PTensor) -> None:  # noqa: ARG001
            *inputs, output = operands
            arrays = [aligned(tensor, output) for tensor in inputs]
            result = function(instance, *(map(wide, arrays) if widen else arrays))
            output.data()[...] = stored(np.asarray(result), output.dtype)
            if not keeps_zero(instance):
                finish(output)

        compute.__dict__["__place__"] = place or place_of(function)
        definition(op, dtypes=dtypes, order=anyhow)(compute)
        return function

    return register
