"""``definition`` and ``elementwise``: decorators that make NumPy invokers of plain functions."""

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

#: Takes an invoker's arguments, with a PTensor for each operand, and writes the outputs.
Compute = Callable[..., None]


def declared(tensor: VTensor) -> Layout:
    """Return the plain layout of an operand, with its dims in declared order."""
    return Layout.plain(tensor.dims)


def anyhow(tensor: VTensor) -> Layout:  # noqa: ARG001  # called for each operand
    """Return ANY. All operands for which it is returned get one common layout, which may be any."""
    return Layout.ANY


def definition(
    *ops: str,
    dtypes: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    order: Callable[[VTensor], Wanted] = declared,
    orders: Callable[..., Sequence[Wanted]] | None = None,
    when: When | None = None,
) -> Callable[[Compute], Compute]:
    """Return a decorator that registers a function as NumPy's invoker: the definition of operators.

    Args:
        ops: the operators' names.
        dtypes, when: as for ``invoker``.
        order: takes an operand and returns the layout in which the function needs it.
        orders: used instead of ``order`` if the layout of an operand depends on other things. It
            takes the operator instance and all operands, and returns a layout for each operand.

    In a run the function is called with the context, the operator instance and the operands as
    PTensors. It writes every output. NumPy's floating-point warnings are off meanwhile, since
    infinities and NaN are ordinary results.
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
    """Return a decorator that registers a function of arrays as NumPy's element-wise invoker.

    Args:
        op: the operator's name.
        dtypes: as for ``invoker``.
        widen: pass inputs through ``wide``: half floats, for instance, arrive as f32.
        keeps_zero: takes the operator instance; True if inputs of 0 give an output of 0, so that
            padding stays 0 by itself.
        place: file and line of the function, if it is not written in Python.

    The function is called with the operator instance and an array per input, all in one layout, and
    returns the output. An axis that an input lacks, or along which it is repeated, has length 1.
    The padding of the output is zeroed unless ``keeps_zero``.
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
